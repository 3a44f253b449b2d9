//! What the engine and a model's own process say to each other, one line of JSON each.
//!
//! Invariant: after [`Frame::Asked`] all frames belong to that ask until the next one begins, and only [`Frame::Ended`]
//! is the end of an answer. What comes before the frame of one's own ask is an older one's, and is passed over.
//! Never stored: both ends are always the same program.

use serde::{Deserialize, Serialize};

use crate::{FailureCode, FinishReason, ModelOptions, Timings, Usage};

/// The context that a model is loaded with, unless somebody chose.
const CONTEXT_USUAL: u64 = 8_192;
/// It is made shorter where memory is short, but not shorter than this.
const CONTEXT_LEAST: u64 = 2_048;

/// The context, in tokens, that a model is loaded with unless somebody chose: as long as it was made for, within
/// reason, and as half of the free memory holds at so many bytes a token. What is unknown is no limit.
pub fn usual_context(
    trained: Option<u64>,
    token_bytes: Option<u64>,
    free_bytes: Option<u64>,
) -> u64 {
    let most = trained.map_or(CONTEXT_USUAL, |trained| trained.min(CONTEXT_USUAL));
    let room = free_bytes.and_then(|free| (free / 2).checked_div(token_bytes?));
    room.map_or(most, |room| room.clamp(CONTEXT_LEAST.min(most), most))
}

/// What the engine says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order")]
pub enum Order {
    /// To load the model; the first order, and once.
    Load(Load),
    /// To answer. One at a time; a second one waits.
    Ask(Box<Ask>),
    /// To write no more of that answer. The model stays loaded.
    Stop {
        /// Which.
        ask: u64,
    },
}

/// What is loaded, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// The model's file: an absolute path.
    pub file: String,
    /// The context, in tokens; what fits into this machine's memory when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_ctx: Option<u32>,
    /// Threads that reckon; the cores when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Layers on the graphics card; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_layers: Option<u32>,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// Its number, which no other ask of this process has.
    pub ask: u64,
    /// The conversation, oldest first.
    pub messages: Vec<Told>,
    /// Tools the model may call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Offered>,
    /// How it is asked.
    #[serde(default)]
    pub options: ModelOptions,
}

/// One message, as chat templates know them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: Role,
    /// Its words.
    pub content: String,
    /// Calls that the model made in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<Made>,
    /// Of a result: the tool's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Of a result: the call it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

/// Who said it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions.
    System,
    /// A person.
    User,
    /// The model.
    Assistant,
    /// A tool.
    Tool,
}

/// A call that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// Its name in this conversation.
    pub id: String,
    /// The tool.
    pub name: String,
    /// JSON text; an object.
    pub arguments: String,
}

/// A tool that may be called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offered {
    /// Its name.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema of its arguments, as JSON text.
    pub parameters: String,
}

/// What the model's process says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "frame")]
pub enum Frame {
    /// It is there, and takes orders.
    Ready,
    /// So much of the file is read.
    Loading {
        /// In thousandths.
        permille: u32,
    },
    /// The model is in memory.
    Loaded {
        /// How long that took.
        load_ms: u64,
        /// The context it has.
        context_tokens: u64,
    },
    /// There will be no model, and the process ends.
    NotLoaded(Failed),
    /// What follows belongs to this ask.
    Asked {
        /// Which.
        ask: u64,
    },
    /// So much of the prompt is read.
    Reading {
        /// Tokens read, those of an earlier prompt included.
        done: u64,
        /// Of so many.
        total: u64,
    },
    /// Words, perhaps with tags of thought in them.
    Text {
        /// Never cut within a character.
        text: String,
    },
    /// Words of a thought.
    Thought {
        /// Never cut within a character.
        text: String,
    },
    /// A call of a tool is being written; sent as it goes on.
    Calling {
        /// The tool; empty as long as it is not known.
        name: String,
        /// So far.
        bytes: u64,
    },
    /// A whole call of a tool.
    Call {
        /// The tool.
        name: String,
        /// JSON text.
        arguments: String,
    },
    /// The model was done, or reached a limit.
    Ended {
        /// Why.
        finish: FinishReason,
        /// As it was counted.
        usage: Usage,
        /// As it was measured.
        timings: Timings,
        /// Tools of which the model was not told, since its template tells of none in a form that is understood.
        #[serde(default)]
        untold_tools: u64,
    },
    /// It was not answered, or not to its end.
    Failed(Failed),
}

/// Why something could not be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// Its kind.
    pub code: FailureCode,
    /// One sentence: what happened and what to do.
    pub message: String,
    /// Raw words of the engine below, to be folded away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Of a prompt that is too long: its tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needed: Option<u64>,
    /// And how many there is room for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub there_is: Option<u64>,
}

impl Failed {
    /// One that needs no more than a sentence.
    pub fn new(code: FailureCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            detail: None,
            needed: None,
            there_is: None,
        }
    }

    /// The same with raw words.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_shorter_where_memory_is_short() {
        let usual = |trained, free| usual_context(Some(trained), Some(1_000), free);
        assert_eq!(usual(32_768, None), 8_192);
        assert_eq!(usual(32_768, Some(1_000_000_000)), 8_192);
        assert_eq!(usual(32_768, Some(10_000_000)), 5_000);
        assert_eq!(usual(32_768, Some(1_000)), 2_048);
        assert_eq!(usual(512, Some(1_000)), 512);
    }
}
