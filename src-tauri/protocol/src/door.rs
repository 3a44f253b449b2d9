//! What the window's commands take, one struct per command. They travel as JSON text in both directions, so that 64-bit
//! numbers stay inside Rust on either side and never become a JavaScript double.

use serde::{Deserialize, Serialize};

use crate::{
    AttachReason, Cursor, Dialect, Epoch, ModelRef, Op, OpId, PageId, PollRequest, ProviderId,
    SessionId, StreamId, TurnId,
};

/// `hello` -> [`Welcome`](crate::Welcome)
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HelloArgs {
    /// Minted by the page at its load.
    pub page: PageId,
    /// [`PROTOCOL`](crate::PROTOCOL) of the page.
    pub protocol: u32,
}

/// `attach` -> [`Attached`](crate::Attached)
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AttachArgs {
    /// The page that asks.
    pub page: PageId,
    /// What it wants to follow.
    pub stream: StreamId,
    /// Where it stands.
    pub cursor: Option<Cursor>,
    /// Why it asks; counted.
    #[serde(default)]
    pub why: AttachReason,
}

/// `poll` -> [`Batch`](crate::Batch)
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PollArgs {
    /// See there.
    pub request: PollRequest,
}

/// `detach` -> `()`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DetachArgs {
    /// The attachment to end.
    pub epoch: Epoch,
}

/// `load_older` -> [`TranscriptPage`](crate::TranscriptPage)
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoadOlderArgs {
    /// Of which session.
    pub session: SessionId,
    /// Turns before this one.
    pub before: TurnId,
    /// The position the client's transcript has; the answer names its own.
    pub as_of: Cursor,
}

/// `submit` -> [`Receipt`](crate::Receipt)
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SubmitArgs {
    /// Minted by the client, once per thing the user did.
    pub op_id: OpId,
    /// What to do.
    pub op: Op,
}

/// `draft` -> `String`, and with `text` `save_draft` -> `()`. `session` is absent for the one not begun yet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DraftArgs {
    /// Whose composer.
    pub session: Option<SessionId>,
    /// For `save_draft`: its text.
    #[serde(default)]
    pub text: String,
}

/// `models` -> [`ProbeReport`](crate::ProbeReport)
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ModelsArgs {
    /// The configured provider to ask.
    pub provider: ProviderId,
}

/// `probe` -> [`ProbeReport`](crate::ProbeReport)
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProbeArgs {
    /// As typed: `host`, `host:port`, `http://host/`, `…/v1`, `…/api` …
    pub address: String,
    /// To insist on one; absent to find out.
    pub dialect: Option<Dialect>,
}

/// `open_link` -> `()`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenLinkArgs {
    /// An http, https or mailto address; anything else is refused.
    pub url: String,
}

/// `about` -> this
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct About {
    /// Holdfast's version.
    pub version: String,
    /// Where everything is kept.
    pub data_dir: String,
    /// What a new session begins with, if the command line named a server or model; the last turn's model otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred: Option<ModelRef>,
}
