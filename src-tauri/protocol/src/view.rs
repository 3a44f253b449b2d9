//! Read models: what the reader sees, as the fold of the events. Built by `transcript`, in both worlds.

use serde::{Deserialize, Serialize};

use crate::{
    Cursor, Effect, Failure, Image, Intent, ItemId, MessagePurpose, ModelOptions, ModelRef, OpId,
    OpenPull, OptionsOfModel, Origin, OutcomeKind, Part, Prices, Provider, Purpose, Resolution,
    Salvage, Seq, SessionId, TimeLimits, Timestamp, Timings, ToolOutcome, TurnId, TurnOutcome,
    Unread, Usage,
};

/// A turn as the reader sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnView {
    /// Which.
    pub turn: TurnId,
    /// The model that was asked.
    pub model: ModelRef,
    /// When it started.
    pub started_at: Timestamp,
    /// What was said, in log order; the user's message comes first.
    pub items: Vec<ItemView>,
    /// Its steps, one entry per request to a provider.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<AttemptView>,
    /// When the computer slept while it ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slept: Vec<Slept>,
    /// How it ended; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<TurnOutcome>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

/// A time in which the computer slept, by the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slept {
    /// About when it fell asleep.
    pub from: Timestamp,
    /// When it was found awake.
    pub to: Timestamp,
}

/// One thing the reader sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemView {
    /// Its key.
    pub item: ItemId,
    /// When it began.
    pub began_at: Timestamp,
    /// When it last changed.
    pub changed_at: Timestamp,
    /// What it is.
    pub body: ItemBody,
}

/// What an item is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind")]
pub enum ItemBody {
    /// What the user said.
    UserMessage {
        text: String,
        op: OpId,
        #[serde(default, skip_serializing_if = "MessagePurpose::is_said")]
        purpose: MessagePurpose,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<Image>,
    },
    /// What the model said or thought. `open` while it may still grow.
    Text {
        part: Part,
        text: String,
        open: bool,
    },
    /// A tool call.
    ToolCall {
        name: String,
        arguments: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call_id: Option<String>,
        step: u32,
        state: ToolState,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approval: Option<ApprovalView>,
    },
    /// From here on the model is told a summary in place of the turns up to `through`, and that some results were left out.
    Compacted {
        through: Option<TurnId>,
        summary: String,
        set_aside: Vec<ItemId>,
    },
    /// Something this version cannot show.
    Unsupported { original_kind: String },
}

/// The question a tool call waited for, or waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalView {
    /// Its name: the first of the calls that share it.
    pub item: ItemId,
    /// What the call would do.
    pub intent: Intent,
    /// Whether the same call was cut before, and may have taken effect.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_have_run: bool,
    /// When it was asked.
    pub asked_at: Timestamp,
    /// Its answer; absent while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<Resolution>,
}

/// Where a tool call stands: one of these, derived from events only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state")]
pub enum ToolState {
    /// Asked for; not started.
    Requested,
    /// Running.
    Running { since: Timestamp },
    /// It has its result.
    Finished {
        outcome: ToolOutcome,
        effect: Effect,
        at: Timestamp,
    },
}

/// One request to a provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptView {
    /// Which answer of the turn, from 1.
    pub step: u32,
    /// Which request for that answer, from 1.
    pub attempt: u32,
    /// Who was asked.
    pub model: ModelRef,
    /// What for.
    #[serde(default, skip_serializing_if = "Purpose::is_answer")]
    pub purpose: Purpose,
    /// When.
    pub started_at: Timestamp,
    /// How it ended.
    pub state: AttemptState,
}

/// How a request to a provider ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state")]
pub enum AttemptState {
    /// Not yet, or never: the turn's outcome says why.
    Open,
    /// With the provider's own end marker.
    Ended {
        finish: crate::FinishReason,
        usage: Usage,
        timings: Timings,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unread: Option<Unread>,
        #[serde(default, skip_serializing_if = "crate::outcome::is_zero")]
        unseen_images: u64,
        #[serde(default, skip_serializing_if = "crate::outcome::is_zero")]
        untold_tools: u64,
        at: Timestamp,
    },
    /// Not.
    Failed {
        failure: Failure,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_in_ms: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<ModelRef>,
        at: Timestamp,
    },
}

/// A part of a session's transcript, and the cursor to go on from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TranscriptPage {
    /// Which session.
    pub session: SessionId,
    /// Its title.
    pub title: String,
    /// Where it came from.
    pub origin: Origin,
    /// The model its next turn uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// Where its tools see files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// How its next turn asks, as far as the session says it.
    #[serde(default, skip_serializing_if = "ModelOptions::is_empty")]
    pub options: ModelOptions,
    /// Turns that belong to the conversation, oldest first; the last may still run.
    pub turns: Vec<TurnView>,
    /// Whether there are older turns before these.
    pub more_before: bool,
    /// The last structural event, to be named in structural ops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tip: Option<Seq>,
    /// The first turn that was taken out last, by a rewind or in favour of restored ones: what
    /// [`Op::RestoreTurn`](crate::Op::RestoreTurn) brings back as an undo.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_out: Option<TurnId>,
    /// All of this is the fold of the events before this position.
    pub as_of: Cursor,
}

/// Turns that were begun in one and the same place of a conversation, oldest first: two or more, of which at most one
/// stands there. [`Op::RestoreTurn`](crate::Op::RestoreTurn) puts another one there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnVersions {
    /// Which.
    pub turns: Vec<TurnId>,
}

/// The library: what sessions and providers exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LibraryPage {
    /// Sessions, binned ones included; in no particular order.
    pub sessions: Vec<SessionSummary>,
    /// Configured model servers, in the order they were added.
    pub providers: Vec<Provider>,
    /// The model of the newest turn anywhere: what a new session begins with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_model: Option<ModelRef>,
    /// How long turns wait for what; absent until the user chose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<TimeLimits>,
    /// The models asked when a turn's own fails.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<ModelRef>,
    /// How models are asked, each as far as somebody chose.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub model_options: Vec<OptionsOfModel>,
    /// Pulls that were begun and not completed, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pulls: Vec<OpenPull>,
    /// What models cost; absent until the user said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<Prices>,
    /// What was saved of damaged logs, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub salvages: Vec<Salvage>,
    /// All of this is the fold of the events before this position.
    pub as_of: Cursor,
}

/// A session, as the list shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionSummary {
    /// Which.
    pub session: SessionId,
    /// Its title.
    pub title: String,
    /// Where it came from.
    pub origin: Origin,
    /// When it began.
    pub created_at: Timestamp,
    /// When its last turn started or ended; a title does not count.
    pub active_at: Timestamp,
    /// What its last turn is doing or how it ended.
    pub state: SessionState,
    /// The newest turn whose end is news: nobody has seen it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread: Option<TurnId>,
    /// Whether it is in the bin.
    pub place: Place,
}

/// What a session's last turn is doing, or how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "state")]
pub enum SessionState {
    /// No turn yet.
    Empty,
    /// A turn runs.
    Running { turn: TurnId },
    /// A turn waits for the user's word.
    Asking { turn: TurnId },
    /// The last turn ended so.
    Ended { outcome: OutcomeKind },
}

/// Whether a session is listed or in the bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Place {
    /// In the list.
    Shelf,
    /// In the bin.
    Bin,
}
