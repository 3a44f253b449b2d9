//! The gateway: the engine's one door to providers.
//!
//! Invariant: end of bytes is not end of answer. An attempt ends well only when its dialect saw its own end marker.
//! Kept by: pure decoders whose `finish` is the only way to a verdict, and one IO loop around them that owns
//! timeouts and the socket. Dropping an attempt closes its socket.
//! Not here: retries and failover (the turn decides), and what goes into the context.

use std::time::Duration;

use protocol::{Failure, FinishReason, Part, Timings, Usage};

/// How long to wait for what. There is no total limit anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For a connection.
    pub connect: Duration,
    /// Silence before the first event of an answer; headers do not end it, any body byte restarts it.
    pub first_event: Duration,
    /// Silence after it; any body byte restarts it.
    pub gap: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            // A cold model on a slow disk takes minutes, and closing the connection aborts its load.
            first_event: Duration::from_secs(600),
            gap: Duration::from_secs(300),
        }
    }
}

/// What the model is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelRequest {
    /// The model as the provider names it.
    pub model: String,
    /// The conversation, oldest first.
    pub messages: Vec<Message>,
    /// Tools the model may call; empty for none.
    pub tools: Vec<ToolSpec>,
}

/// One message of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Instructions.
    System { text: String },
    /// What the user said.
    User { text: String },
    /// What the model said and which tools it called.
    Assistant { text: String, calls: Vec<CallMade> },
    /// One call's result, in words.
    ToolResult {
        call_id: String,
        name: String,
        text: String,
    },
}

/// A call the model made earlier, as it is told to it again.
#[derive(Clone, Debug, PartialEq)]
pub struct CallMade {
    /// Our name for it, used as the provider's id in the request.
    pub call_id: String,
    /// The tool.
    pub name: String,
    /// JSON text; an object.
    pub arguments: String,
}

/// A tool, as it is offered to the model.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema of its arguments, as JSON text.
    pub parameters: String,
}

/// What comes out of an attempt while it runs.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelEvent {
    /// The connection stands and the request is out.
    Sent,
    /// The provider said that it loads the model.
    Loading,
    /// The provider reads the prompt.
    ReadingPrompt { done: u64, total: u64 },
    /// Text came. Never empty.
    Text { part: Part, text: String },
    /// A tool call is being written: bytes of arguments so far.
    CallProgress { name: String, argument_bytes: u64 },
    /// A whole tool call. Sent before the attempt returns, run only after it returned well.
    Call {
        name: String,
        arguments: String,
        call_id: Option<String>,
    },
}

/// An attempt that saw its end marker.
#[derive(Clone, Debug, PartialEq)]
pub struct StepEnd {
    /// Why the model stopped.
    pub finish: FinishReason,
    /// As the provider counted.
    pub usage: Usage,
    /// As the provider and our clock measured.
    pub timings: Timings,
}

/// An attempt that did not.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptError {
    /// What happened, in words.
    pub failure: Failure,
    /// Whether another attempt may help, if nothing was shown yet.
    pub retry: Retry,
}

/// Whether another attempt may help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// No: the same request will fail the same way.
    Never,
    /// Yes, after the usual wait.
    Backoff,
    /// Yes, but not before this long from now: the server said so.
    After(Duration),
}
