//! Events: immutable, committed facts, named in the past tense.

use serde::{Deserialize, Serialize};

use crate::{
    Boot, Effect, Failure, FinishReason, Image, Intent, ItemId, ModelOptions, OpId, Prices,
    Provider, ProviderId, PullOutcome, Resolution, Salvage, Seq, SessionId, Slept, TimeLimits,
    Timestamp, Timings, ToolOutcome, TurnId, TurnOutcome, Unread, Usage,
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

/// Why a user's message stands in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "purpose")]
pub enum MessagePurpose {
    /// The user wrote it.
    #[default]
    Said,
    /// The user pressed Continue under this turn, whose answer did not come to its end.
    Continue { of: TurnId },
}

impl MessagePurpose {
    /// Whether the user wrote the message.
    pub fn is_said(&self) -> bool {
        *self == Self::Said
    }
}

/// What a request to a provider is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Purpose {
    /// An answer for the reader.
    #[default]
    Answer,
    /// A summary that makes room in the model's context.
    Summary,
}

impl Purpose {
    /// Whether it is for the reader.
    pub fn is_answer(&self) -> bool {
        *self == Self::Answer
    }
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
    /// A session's turn ended. With `unread` that is news, until a [`EventBody::SessionSeen`] says that somebody saw it.
    SessionTurnEnded {
        session: SessionId,
        turn: TurnId,
        outcome: OutcomeKind,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unread: bool,
    }
    /// The user has seen the end of this turn, and of all before it.
    SessionSeen { session: SessionId, turn: TurnId }
    /// A session's turn waits for the user's word.
    SessionAsked { session: SessionId, turn: TurnId }
    /// It waits no more: somebody answered, or the question expired.
    SessionAnswered { session: SessionId, turn: TurnId }
    /// A session's conversation is again what it was before a rewind; its last turn, `turn`, had ended so.
    SessionRestored { session: SessionId, turn: TurnId, outcome: OutcomeKind }
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
    /// How long turns wait for what, where a server has no limits of its own.
    TimeLimitsChanged { limits: TimeLimits }
    /// The models that are asked, in this order, when a turn's own model fails before it said anything.
    FallbacksChosen { models: Vec<ModelRef> }
    /// How one model of one server is asked, in every session that says nothing else.
    ModelOptionsChanged { model: ModelRef, options: ModelOptions }
    /// A server is about to download a model, because the user asked for it.
    ModelPullStarted { boot: Boot, model: ModelRef }
    /// It has ended.
    ModelPullEnded { model: ModelRef, outcome: PullOutcome }
    /// What models cost, as the user knows it; in place of all earlier prices.
    PricesChosen { prices: Prices }
    /// This log was made from what could be read of a damaged one.
    LogSalvaged { salvage: Salvage }

    // A session's stream.

    /// The session's first event.
    SessionStarted { session: SessionId, origin: Origin }
    /// It has another title.
    SessionRenamed { title: String, by: TitleBy }
    /// Its next turns use this model.
    ModelChosen { model: ModelRef }
    /// Tools of its next turns see the files below this folder (absolute); absent: none.
    FolderChosen {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        folder: Option<String>,
    }
    /// How its next turns ask, whatever their model; what it does not say is as the model's options say.
    OptionsChosen { options: ModelOptions }
    /// The user said something; first event of a turn. The bytes of its `images` were stored before it.
    UserMessageAdded {
        item: ItemId,
        text: String,
        op: OpId,
        #[serde(default, skip_serializing_if = "MessagePurpose::is_said")]
        purpose: MessagePurpose,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<Image>,
    }
    /// The turn exists; committed together with its message, before any provider is dialled. `fallbacks` are asked, in
    /// this order, when `model` fails before it said anything.
    TurnStarted {
        boot: Boot,
        message: ItemId,
        model: ModelRef,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fallbacks: Vec<ModelRef>,
    }
    /// One request to a provider is about to be made. `step` counts answers, `attempt` requests for one answer; both from 1.
    /// One for a summary has the numbers of the attempt that needs it.
    StepStarted {
        step: u32,
        attempt: u32,
        model: ModelRef,
        #[serde(default, skip_serializing_if = "Purpose::is_answer")]
        purpose: Purpose,
    }
    /// An item's text grew. `offset` is the item's length so far in UTF-8 bytes; 0 begins the item.
    TextAppended { item: ItemId, part: Part, offset: u64, text: String }
    /// What this item has said so far was reasoning: the tag that ends it came, and the one that begins it stands in the
    /// server's template, where nobody sees it. Nothing is appended to the item after this.
    TextFoundReasoning { item: ItemId }
    /// The model asks for a tool. `arguments` is the JSON text as received; `call_id` the provider's name for it, mere metadata.
    ToolCallRequested {
        item: ItemId,
        step: u32,
        name: String,
        arguments: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call_id: Option<String>,
    }
    /// A call that changes something waits for the user's word. `calls` ask the same and share the answer; `item` is the
    /// first of them, and the question's name. `may_have_run`: the same call was cut before, and whether it took effect is
    /// not known. `tool` is what [`Resolution::AllowedForSession`] allows.
    ApprovalRequested {
        item: ItemId,
        calls: Vec<ItemId>,
        tool: String,
        intent: Intent,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        may_have_run: bool,
    }
    /// The question has its one answer.
    ApprovalResolved { item: ItemId, resolution: Resolution }
    /// A tool starts to run; synced before it does.
    ToolCallStarted { item: ItemId }
    /// A tool call has its one result.
    ToolCallFinished { item: ItemId, outcome: ToolOutcome, effect: Effect }
    /// A provider's answer ended with its own end marker. `unread` is there when the model cannot have seen all of it,
    /// `unseen_images` counts earlier images of which it was told the names alone, since it sees none, and `untold_tools`
    /// the tools of the session that it was not offered, since it takes none.
    StepEnded {
        step: u32,
        finish: FinishReason,
        #[serde(default)]
        usage: Usage,
        #[serde(default)]
        timings: Timings,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unread: Option<Unread>,
        #[serde(default, skip_serializing_if = "crate::outcome::is_zero")]
        unseen_images: u64,
        #[serde(default, skip_serializing_if = "crate::outcome::is_zero")]
        untold_tools: u64,
    }
    /// An attempt failed; with `retry_in_ms` another follows after that wait, with `next` this model is asked instead.
    AttemptFailed {
        step: u32,
        attempt: u32,
        failure: Failure,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_in_ms: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<ModelRef>,
    }
    /// The conversation had outgrown the model's context, so from here on the model is told `summary` in place of the
    /// turns up to `through`, and that the results of the calls `set_aside` were left out. Nothing is deleted.
    HistoryCompacted {
        item: ItemId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        through: Option<TurnId>,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        summary: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        set_aside: Vec<ItemId>,
    }
    /// The computer slept while the turn ran; none of that time counts against the turn's limits.
    ComputerSlept { slept: Slept }
    /// The terminal event: exactly one per turn, nothing of that turn after it.
    TurnEnded { outcome: TurnOutcome }
    /// The turn `from` and all later ones are no longer part of the conversation; nothing is deleted.
    HistoryRewound { from: TurnId, purpose: RewindFor }
    /// In place of the turn `from` and all later ones, `turns`, which had been taken out, are part of the conversation
    /// again; nothing is deleted.
    HistoryRestored { from: TurnId, turns: Vec<TurnId> }

    /// Something this version cannot read: another version's kind, or a damaged body. Kept, and shown as such; never written.
    Unsupported { original_kind: String, body: String }
}

impl EventBody {
    /// The item it is about, for the log's unique indexes.
    pub const fn item(&self) -> Option<ItemId> {
        match self {
            Self::UserMessageAdded { item, .. }
            | Self::TextAppended { item, .. }
            | Self::TextFoundReasoning { item }
            | Self::ToolCallRequested { item, .. }
            | Self::ApprovalRequested { item, .. }
            | Self::ApprovalResolved { item, .. }
            | Self::ToolCallStarted { item }
            | Self::ToolCallFinished { item, .. }
            | Self::HistoryCompacted { item, .. } => Some(*item),
            Self::SessionListed { .. }
            | Self::SessionTitled { .. }
            | Self::SessionTurnStarted { .. }
            | Self::SessionTurnEnded { .. }
            | Self::SessionSeen { .. }
            | Self::SessionAsked { .. }
            | Self::SessionAnswered { .. }
            | Self::SessionRestored { .. }
            | Self::SessionBinned { .. }
            | Self::SessionUnbinned { .. }
            | Self::ProviderAdded { .. }
            | Self::ProviderChanged { .. }
            | Self::ProviderRemoved { .. }
            | Self::TimeLimitsChanged { .. }
            | Self::FallbacksChosen { .. }
            | Self::ModelOptionsChanged { .. }
            | Self::ModelPullStarted { .. }
            | Self::ModelPullEnded { .. }
            | Self::PricesChosen { .. }
            | Self::LogSalvaged { .. }
            | Self::SessionStarted { .. }
            | Self::SessionRenamed { .. }
            | Self::ModelChosen { .. }
            | Self::FolderChosen { .. }
            | Self::OptionsChosen { .. }
            | Self::TurnStarted { .. }
            | Self::StepStarted { .. }
            | Self::StepEnded { .. }
            | Self::AttemptFailed { .. }
            | Self::ComputerSlept { .. }
            | Self::TurnEnded { .. }
            | Self::HistoryRewound { .. }
            | Self::HistoryRestored { .. }
            | Self::Unsupported { .. } => None,
        }
    }

    /// Whether it changes the conversation's structure, so that ops decided before it are stale.
    /// A title, usage or a text does not.
    pub const fn is_structural(&self) -> bool {
        match self {
            Self::UserMessageAdded { .. }
            | Self::TurnEnded { .. }
            | Self::HistoryRewound { .. }
            | Self::HistoryRestored { .. } => true,
            Self::SessionListed { .. }
            | Self::SessionTitled { .. }
            | Self::SessionTurnStarted { .. }
            | Self::SessionTurnEnded { .. }
            | Self::SessionSeen { .. }
            | Self::SessionAsked { .. }
            | Self::SessionAnswered { .. }
            | Self::SessionRestored { .. }
            | Self::SessionBinned { .. }
            | Self::SessionUnbinned { .. }
            | Self::ProviderAdded { .. }
            | Self::ProviderChanged { .. }
            | Self::ProviderRemoved { .. }
            | Self::TimeLimitsChanged { .. }
            | Self::FallbacksChosen { .. }
            | Self::ModelOptionsChanged { .. }
            | Self::ModelPullStarted { .. }
            | Self::ModelPullEnded { .. }
            | Self::PricesChosen { .. }
            | Self::LogSalvaged { .. }
            | Self::SessionStarted { .. }
            | Self::SessionRenamed { .. }
            | Self::ModelChosen { .. }
            | Self::FolderChosen { .. }
            | Self::OptionsChosen { .. }
            | Self::TurnStarted { .. }
            | Self::StepStarted { .. }
            | Self::TextAppended { .. }
            | Self::TextFoundReasoning { .. }
            | Self::ToolCallRequested { .. }
            | Self::ApprovalRequested { .. }
            | Self::ApprovalResolved { .. }
            | Self::ToolCallStarted { .. }
            | Self::ToolCallFinished { .. }
            | Self::StepEnded { .. }
            | Self::AttemptFailed { .. }
            | Self::ComputerSlept { .. }
            | Self::HistoryCompacted { .. }
            | Self::Unsupported { .. } => false,
        }
    }
}
