//! Events: immutable, committed facts, named in the past tense.

use serde::{Deserialize, Serialize};

use crate::{
    Boot, Effect, Failure, FinishReason, ItemId, OpId, Provider, ProviderId, Seq, SessionId,
    Timestamp, Timings, ToolOutcome, TurnId, TurnOutcome, Usage,
};

/// One committed event of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Its dense number in the stream.
    pub seq: Seq,
    /// When it was committed, by the wall clock.
    pub at: Timestamp,
    /// The turn it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// What happened.
    pub body: EventBody,
}

/// Which of a model's two voices a text belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// What is said to the reader.
    Answer,
    /// What the model thinks before or between.
    Reasoning,
}

/// Who gave a session its title.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TitleBy {
    /// Taken from the first message.
    Holdfast,
    /// Typed by the user; never overwritten by ours.
    User,
}

/// Where a session came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// A conversation held here.
    Conversation,
    /// The recorded sample that comes with Holdfast.
    Sample,
}

/// Which model a turn or session uses, readable for ever, also when the provider is gone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ModelRef {
    /// The provider.
    pub provider: ProviderId,
    /// Its name at that time.
    pub provider_name: String,
    /// The model as the provider names it.
    pub model: String,
}

/// Why a part of the history was rewound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RewindFor {
    /// The same message again.
    Retry,
    /// The message in other words.
    Edit,
}

/// How a turn ended, for the session list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum OutcomeKind {
    /// See [`TurnOutcome::Completed`].
    Completed,
    /// See [`TurnOutcome::Failed`].
    Failed,
    /// See [`TurnOutcome::Cancelled`].
    Cancelled,
    /// See [`TurnOutcome::Interrupted`].
    Interrupted,
}

impl From<&TurnOutcome> for OutcomeKind {
    fn from(outcome: &TurnOutcome) -> Self {
        match outcome {
            TurnOutcome::Completed { .. } => Self::Completed,
            TurnOutcome::Failed { .. } => Self::Failed,
            TurnOutcome::Cancelled { .. } => Self::Cancelled,
            TurnOutcome::Interrupted { .. } => Self::Interrupted,
        }
    }
}

macro_rules! event_bodies {
    ($($(#[$doc:meta])* $kind:ident { $($(#[$field_doc:meta])* $field:ident : $type:ty),* $(,)? })*) => {
        /// What happened. `kind` is the variant's name, in JSON as in the glossary.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(tag = "kind")]
        pub enum EventBody {
            $($(#[$doc])* $kind { $($(#[$field_doc])* $field: $type),* },)*
        }

        impl EventBody {
            /// Every kind there is, in the order of their definition; each has a golden sample.
            pub const KINDS: &'static [&'static str] = &[$(stringify!($kind)),*];

            /// The kind's name, as stored.
            pub const fn kind(&self) -> &'static str {
                match self { $(Self::$kind { .. } => stringify!($kind),)* }
            }
        }
    };
}

event_bodies! {
    // The library stream.

    /// A session exists.
    SessionListed { session: SessionId, title: String, origin: Origin }
    /// A session has another title.
    SessionTitled { session: SessionId, title: String }
    /// A turn runs in a session.
    SessionTurnStarted { session: SessionId, turn: TurnId, model: ModelRef }
    /// A session's turn ended.
    SessionTurnEnded { session: SessionId, turn: TurnId, outcome: OutcomeKind }
    /// A session was put into the bin.
    SessionBinned { session: SessionId }
    /// A session was taken out of the bin.
    SessionUnbinned { session: SessionId }
    /// A model server was added.
    ProviderAdded { provider: Provider }
    /// A model server's address or options were changed.
    ProviderChanged { provider: Provider }
    /// A model server was removed from the settings; past turns keep its name.
    ProviderRemoved { provider: ProviderId }

    // A session's stream.

    /// The session's first event.
    SessionStarted { session: SessionId, origin: Origin }
    /// It has another title.
    SessionRenamed { title: String, by: TitleBy }
    /// Its next turns use this model.
    ModelChosen { model: ModelRef }
    /// The user said something; first event of a turn.
    UserMessageAdded { item: ItemId, text: String, op: OpId }
    /// The turn exists; committed together with its message, before any provider is dialled.
    TurnStarted { boot: Boot, message: ItemId, model: ModelRef }
    /// One request to a provider is about to be made. `step` counts answers, `attempt` requests for one answer; both from 1.
    StepStarted { step: u32, attempt: u32, model: ModelRef }
    /// An item's text grew. `offset` is the item's length so far in UTF-8 bytes; 0 begins the item.
    TextAppended { item: ItemId, part: Part, offset: u64, text: String }
    /// The model asks for a tool. `arguments` is the JSON text as received; `call_id` the provider's name for it, mere metadata.
    ToolCallRequested {
        item: ItemId,
        step: u32,
        name: String,
        arguments: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call_id: Option<String>,
    }
    /// A tool starts to run; synced before it does.
    ToolCallStarted { item: ItemId }
    /// A tool call has its one result.
    ToolCallFinished { item: ItemId, outcome: ToolOutcome, effect: Effect }
    /// A provider's answer ended with its own end marker.
    StepEnded {
        step: u32,
        finish: FinishReason,
        #[serde(default)]
        usage: Usage,
        #[serde(default)]
        timings: Timings,
    }
    /// An attempt failed; with `retry_in_ms` another follows after that wait.
    AttemptFailed {
        step: u32,
        attempt: u32,
        failure: Failure,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_in_ms: Option<u64>,
    }
    /// The terminal event: exactly one per turn, nothing of that turn after it.
    TurnEnded { outcome: TurnOutcome }
    /// The turn `from` and all later ones are no longer part of the conversation; nothing is deleted.
    HistoryRewound { from: TurnId, purpose: RewindFor }

    /// Something this version cannot read: another version's kind, or a damaged body. Kept, and shown as such; never written.
    Unsupported { original_kind: String, body: String }
}

impl EventBody {
    /// The item it is about, for the log's unique indexes.
    pub const fn item(&self) -> Option<ItemId> {
        match self {
            Self::UserMessageAdded { item, .. }
            | Self::TextAppended { item, .. }
            | Self::ToolCallRequested { item, .. }
            | Self::ToolCallStarted { item }
            | Self::ToolCallFinished { item, .. } => Some(*item),
            Self::SessionListed { .. }
            | Self::SessionTitled { .. }
            | Self::SessionTurnStarted { .. }
            | Self::SessionTurnEnded { .. }
            | Self::SessionBinned { .. }
            | Self::SessionUnbinned { .. }
            | Self::ProviderAdded { .. }
            | Self::ProviderChanged { .. }
            | Self::ProviderRemoved { .. }
            | Self::SessionStarted { .. }
            | Self::SessionRenamed { .. }
            | Self::ModelChosen { .. }
            | Self::TurnStarted { .. }
            | Self::StepStarted { .. }
            | Self::StepEnded { .. }
            | Self::AttemptFailed { .. }
            | Self::TurnEnded { .. }
            | Self::HistoryRewound { .. }
            | Self::Unsupported { .. } => None,
        }
    }

    /// Whether it changes the conversation's structure, so that ops decided before it are stale.
    /// A title, usage or a text does not.
    pub const fn is_structural(&self) -> bool {
        match self {
            Self::UserMessageAdded { .. }
            | Self::TurnEnded { .. }
            | Self::HistoryRewound { .. } => true,
            Self::SessionListed { .. }
            | Self::SessionTitled { .. }
            | Self::SessionTurnStarted { .. }
            | Self::SessionTurnEnded { .. }
            | Self::SessionBinned { .. }
            | Self::SessionUnbinned { .. }
            | Self::ProviderAdded { .. }
            | Self::ProviderChanged { .. }
            | Self::ProviderRemoved { .. }
            | Self::SessionStarted { .. }
            | Self::SessionRenamed { .. }
            | Self::ModelChosen { .. }
            | Self::TurnStarted { .. }
            | Self::StepStarted { .. }
            | Self::TextAppended { .. }
            | Self::ToolCallRequested { .. }
            | Self::ToolCallStarted { .. }
            | Self::ToolCallFinished { .. }
            | Self::StepEnded { .. }
            | Self::AttemptFailed { .. }
            | Self::Unsupported { .. } => false,
        }
    }
}
