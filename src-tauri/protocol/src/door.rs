//! What the window's commands take, one struct per command. They travel as JSON text in both directions, so that 64-bit
//! numbers stay inside Rust on either side and never become a JavaScript double.

use serde::{Deserialize, Serialize};

use crate::{
    AttachReason, Connection, Cursor, Dialect, Epoch, Image, ImageId, ModelRef, Op, OpId, PageId,
    PollRequest, ProviderId, Seq, SessionId, StreamId, TurnId, TypedKey,
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

/// `load_events` -> [`EventPage`](crate::EventPage)
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoadEventsArgs {
    /// Of which session.
    pub session: SessionId,
    /// Of which of its turns; a rewound one is as good as any.
    pub turn: TurnId,
    /// The last event the client has; absent: none.
    #[serde(default)]
    pub after: Option<Seq>,
    /// How many bytes of events at most, roughly; one event is always sent whole.
    pub max_bytes: u32,
}

/// `load_versions` -> `Vec` of [`TurnVersions`](crate::TurnVersions)
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoadVersionsArgs {
    /// Of which session.
    pub session: SessionId,
}

/// `submit` -> [`Receipt`](crate::Receipt)
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SubmitArgs {
    /// Minted by the client, once per thing the user did.
    pub op_id: OpId,
    /// What to do.
    pub op: Op,
}

/// `draft` -> [`Draft`]. `session` is absent for the one not begun yet.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct DraftArgs {
    /// Whose composer.
    pub session: Option<SessionId>,
}

/// What stands in a composer and was not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draft {
    /// As typed.
    #[serde(default)]
    pub text: String,
    /// To be sent with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
}

impl Draft {
    /// Whether nothing is kept of it.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty() && self.images.is_empty()
    }
}

impl From<&str> for Draft {
    fn from(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            images: Vec::new(),
        }
    }
}

/// `image` -> its bytes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ImageArgs {
    /// Which.
    pub image: ImageId,
}

/// `save_draft` -> `()`. An empty draft is none.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SaveDraftArgs {
    /// Whose composer; absent for the session not begun yet.
    pub session: Option<SessionId>,
    /// What is in it.
    #[serde(flatten)]
    pub draft: Draft,
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
    /// How it is to be reached.
    #[serde(default)]
    pub connection: Connection,
    /// Its key, if one was typed. It is not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<TypedKey>,
    /// The server of the settings that it is: then what is kept for that is shown, if nothing was typed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ProviderId>,
}

impl ProbeArgs {
    /// An address as typed, reached as usual.
    pub fn of(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            dialect: None,
            connection: Connection::default(),
            key: None,
            server: None,
        }
    }
}

/// `open_link` -> `()`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenLinkArgs {
    /// An http, https or mailto address; anything else is refused.
    pub url: String,
}

/// `note_broken` -> `()`. A page that cannot go on says where, before it is loaded anew.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NoteBrokenArgs {
    /// The place in its sources. What it said stays in the page: that may quote what is on the screen.
    pub at: String,
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

/// What a window is to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "show")]
pub enum Show {
    /// The session not begun yet.
    NewChat,
    /// This one.
    Session { session: SessionId },
}

/// `wish` -> [`WindowWish`]; parks until the window's wish is newer than the one seen, or for a while.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WishArgs {
    /// The revision of the last wish this page knows; 0 for a page that was just loaded, which is answered at once.
    pub seen: u64,
}

/// What the window of a page is to show, by the word of the shell: a notification or the tray named it, or the window
/// showed it before the page was loaded anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowWish {
    /// Grows with every new wish.
    pub revision: u64,
    /// Absent while nobody named anything: the page chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub show: Option<Show>,
}

/// `showing` -> `()`: what the page shows now, so that nobody is notified of what is being read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShowingArgs {
    /// The revision of the last wish this page knows; what it shows is older than a newer one.
    pub seen: u64,
    /// What it has open.
    pub open: Show,
    /// Whether that is in sight: the settings may lie over it.
    pub in_sight: bool,
}

/// `open_window` -> `()`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenWindowArgs {
    /// What the new window is to show.
    pub show: Show,
}

/// What closing the last window does while something runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnClose {
    /// It goes on without a window until it has ended.
    #[default]
    KeepWorking,
    /// The user is asked each time.
    Ask,
    /// Holdfast quits, and what runs ends as interrupted.
    Quit,
}

/// How Holdfast behaves on the desktop. `desktop_choices` -> this; `choose_desktop` takes it -> `()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DesktopChoices {
    /// What closing the last window does while something runs.
    pub on_close: OnClose,
    /// Whether Holdfast stays in the tray when nothing runs.
    pub stay_when_idle: bool,
    /// Whether the end of a turn that nobody looks at is notified.
    pub notify: bool,
}

impl Default for DesktopChoices {
    fn default() -> Self {
        Self {
            on_close: OnClose::default(),
            stay_when_idle: false,
            notify: true,
        }
    }
}
