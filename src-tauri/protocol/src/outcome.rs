//! How turns, steps and tool calls end: every way is a name of its own.

use serde::{Deserialize, Serialize};

use crate::{Timestamp, TurnId};

/// How a turn ended. The return value of the turn's future, and the body of its terminal event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "result")]
pub enum TurnOutcome {
    /// The provider's own end marker was received.
    Completed { stop: StopReason },
    /// Something went wrong; what was shown is kept and marked.
    Failed { failure: Failure },
    /// Somebody asked for it.
    Cancelled { by: CancelledBy },
    /// Neither success nor failure: the engine went away under it.
    Interrupted { why: InterruptedWhy },
}

/// Why a completed answer stopped where it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopReason {
    /// The model was done.
    EndOfTurn,
    /// A token limit: complete, and it says so.
    Length,
    /// The provider's content filter.
    Filter,
    /// Our limit of steps.
    StepLimit,
    /// Ended properly without saying why.
    Unknown,
}

/// Who cancelled a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CancelledBy {
    /// Stop, Esc or Ctrl-C.
    User,
}

/// Why a turn was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InterruptedWhy {
    /// Holdfast was closed.
    AppExit,
    /// The system went down or logged out.
    OsShutdown,
    /// The process ended without a word; found at the next start.
    Crash,
    /// The log could not be written.
    StorageFailed,
}

/// A failure with words for the reader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What kind; decides what is offered next.
    pub code: FailureCode,
    /// One sentence: what happened, whose doing it was, what to do.
    pub message: String,
    /// The server's own words or other raw text, bounded; folded away beneath the sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// When it may work again, where the server said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
}

impl Failure {
    /// A failure of which nothing more is known than its sentence.
    pub fn new(code: FailureCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            detail: None,
            retry_at: None,
        }
    }
    /// The same with raw text to fold away beneath it.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }
}

/// Kinds of failure. What each offers next is in `transcript::words`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FailureCode {
    /// No connection within the limit: refused, name not found, TLS.
    ConnectFailed,
    /// 401 or 403.
    KeyRejected,
    /// The provider has no such model.
    ModelNotFound,
    /// The server could not load it.
    ModelLoadFailed,
    /// Silent too long before the first event.
    FirstTokenTimeout,
    /// No byte for the gap limit.
    IdleTimeout,
    /// The ceiling of active time.
    TurnTimeout,
    /// Bytes ended without the end marker.
    StreamCut,
    /// A reply that is not a model's reply.
    BadStream,
    /// Ended properly, said nothing.
    EmptyResponse,
    /// Still limited after the allowed waits.
    RateLimited,
    /// The account's limit.
    QuotaExceeded,
    /// The provider refused the request.
    BadRequest,
    /// The model sees no images, and the conversation shows some.
    CannotSeeImages,
    /// The conversation does not fit the model's context.
    ContextOverflow,
    /// 5xx, or an error inside the stream.
    ProviderError,
    /// Every candidate failed before content.
    AllCandidatesFailed,
    /// Identical tool calls after a warning.
    ToolLoop,
    /// A bug of ours in this turn.
    Panicked,
    /// The backstop: also a bug of ours.
    Aborted,
}

/// How one step (one answer of a provider) ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FinishReason {
    /// The model was done.
    Stop,
    /// A token limit.
    Length,
    /// It wants tools to run.
    ToolCalls,
    /// A content filter.
    Filter,
    /// The end marker came without a reason.
    Unknown,
}

/// Tokens of one step, as the provider counted them; unknown stays unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt, cached ones included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<u64>,
    /// Of these, taken from the server's cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_tokens: Option<u64>,
    /// Of these, put into the server's cache, where it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_written_tokens: Option<u64>,
    /// Tokens of the answer, reasoning included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_tokens: Option<u64>,
}

/// Durations of one step in milliseconds; the server's own where it gives them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timings {
    /// Loading the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_ms: Option<u64>,
    /// Reading the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_ms: Option<u64>,
    /// Writing the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decode_ms: Option<u64>,
    /// From our request to the first content, by our clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_content_ms: Option<u64>,
    /// From our request to the moment when the connection stands and the request goes out, by our clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect_ms: Option<u64>,
    /// From our request to the head of the reply, by our clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_ms: Option<u64>,
    /// From our request to the end of the answer, by our clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_ms: Option<u64>,
}

/// What of a conversation a model cannot have seen: its server took the beginning away without a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unread {
    /// Tokens that the request had at least: every tokenizer makes at least so many of it.
    pub sent_tokens_min: u64,
    /// Tokens that the server says it read.
    pub read_tokens: u64,
    /// The context that was asked for, where one was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
    /// The last turn of which probably nothing was read; those before it were not read either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<TurnId>,
    /// How many turns that makes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub turns: u64,
    /// The turn of which probably only the end was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partly: Option<TurnId>,
    /// Whether instructions or a summary stood before all turns: they may be gone as well.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preamble: bool,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks with a reference"
)]
pub(crate) const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// How a tool call ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "result")]
pub enum ToolOutcome {
    /// It ran; this is what it said.
    Succeeded { output: String },
    /// It ran, or could not, and this is what went wrong, in words the model can read.
    Failed { message: String },
    /// The user said no.
    Denied,
    /// It never ran: its step did not end cleanly, or its arguments cannot be trusted.
    NotRun { why: String },
    /// The turn ended while it ran.
    Abandoned,
}

/// What a tool call did to the world outside, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// Nothing.
    None,
    /// Its work is done.
    Committed,
    /// It had started when the engine went away: never run again in silence.
    Unknown,
}
