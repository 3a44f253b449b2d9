//! Answers: a stream of frames in one dialect, as the real servers write them.

use protocol::Dialect;
use serde_json::{Value, json};

use super::script::{Condition, Ending, Framing, Head, Script, Step};

/// The model that the server offers unless told otherwise.
pub const MODEL: &str = "lighthouse:1b";

/// One streamed answer, built frame by frame.
///
/// One method is one frame and one write. An answer has an end marker only if it is [ended](Answer::ends).
#[derive(Clone, Debug)]
pub struct Answer {
    dialect: Dialect,
    steps: Vec<Step>,
    calls: u64,
}

impl Answer {
    /// An answer that has not said anything yet.
    pub fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            steps: Vec::new(),
            calls: 0,
        }
    }

    /// The whole of an ordinary answer.
    pub fn whole(dialect: Dialect, text: &str) -> Script {
        Self::new(dialect).says(text).ends()
    }

    /// The frame that only says who speaks. llama-server sends it when it has read the prompt, with `content: null`.
    #[must_use]
    pub fn begins(self) -> Self {
        match self.dialect {
            Dialect::Ollama => self,
            Dialect::OpenAiChat => self.delta(json!({ "role": "assistant", "content": null })),
        }
    }

    /// One frame that says nothing, as the dialect's servers send it before they say something.
    #[must_use]
    pub fn stirs(self) -> Self {
        match self.dialect {
            Dialect::Ollama => self.pings(),
            Dialect::OpenAiChat => self.begins(),
        }
    }

    /// A piece of the answer.
    #[must_use]
    pub fn says(self, text: &str) -> Self {
        match self.dialect {
            Dialect::Ollama => self.message(json!({ "role": "assistant", "content": text })),
            Dialect::OpenAiChat => self.delta(json!({ "content": text })),
        }
    }

    /// Every word in a frame of its own.
    #[must_use]
    pub fn says_word_by_word(self, text: &str) -> Self {
        text.split_inclusive(' ').fold(self, Self::says)
    }

    /// A piece of reasoning.
    #[must_use]
    pub fn thinks(self, text: &str) -> Self {
        match self.dialect {
            Dialect::Ollama => {
                self.message(json!({ "role": "assistant", "content": "", "thinking": text }))
            }
            Dialect::OpenAiChat => self.delta(json!({ "reasoning_content": text })),
        }
    }

    /// A call of a tool; in the OpenAI dialect its arguments come in pieces.
    #[must_use]
    pub fn calls(mut self, name: &str, arguments: Value) -> Self {
        let index = self.calls;
        self.calls += 1;
        match self.dialect {
            Dialect::Ollama => self.message(json!({
                "role": "assistant",
                "content": "",
                "tool_calls": [{ "function": { "index": index, "name": name, "arguments": arguments } }],
            })),
            Dialect::OpenAiChat => {
                let text = arguments.to_string();
                let (first, rest) = text.split_at(1);
                self.delta(json!({ "tool_calls": [{
                    "index": index,
                    "id": format!("call{index}"),
                    "type": "function",
                    "function": { "name": name, "arguments": first },
                }] }))
                .delta(json!({ "tool_calls": [{ "index": index, "function": { "arguments": rest } }] }))
            }
        }
    }

    /// A sign of life without content.
    #[must_use]
    pub fn pings(self) -> Self {
        match self.dialect {
            // Ollama has no pings; an empty piece comes closest.
            Dialect::Ollama => self.message(json!({ "role": "assistant", "content": "" })),
            Dialect::OpenAiChat => self.raw(b":\n\n"),
        }
    }

    /// Any bytes at all.
    #[must_use]
    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.steps.push(Step::Send(bytes.to_vec()));
        self
    }

    /// Stands still until the test releases the gate.
    #[must_use]
    pub fn gate(mut self, name: &str) -> Self {
        self.steps.push(Step::Gate(name.to_owned()));
        self
    }

    /// Ends well: the model was done, or wants its tools run.
    pub fn ends(self) -> Script {
        let reason = match (self.dialect, self.calls) {
            (Dialect::OpenAiChat, 1..) => "tool_calls",
            // Ollama ends with `stop` also when it calls tools.
            (Dialect::OpenAiChat | Dialect::Ollama, _) => "stop",
        };
        self.ends_because(reason)
    }

    /// Ends well, at a token limit.
    pub fn reaches_its_limit(self) -> Script {
        self.ends_because("length")
    }

    fn ends_because(self, reason: &str) -> Script {
        let answer = match self.dialect {
            Dialect::Ollama => self.frame(json!({
                "model": MODEL,
                "created_at": CREATED_AT,
                "message": { "role": "assistant", "content": "" },
                "done": true,
                "done_reason": reason,
                "total_duration": 700_000_000,
                "load_duration": 20_000_000,
                "prompt_eval_count": 31,
                "prompt_eval_duration": 80_000_000,
                "eval_count": 7,
                "eval_duration": 600_000_000,
            })),
            Dialect::OpenAiChat => self
                .frame(json!({
                    "choices": [{ "finish_reason": reason, "index": 0, "delta": {} }],
                    "created": 1, "id": "chatcmpl-1", "model": MODEL, "object": "chat.completion.chunk",
                }))
                .frame(json!({
                    "choices": [],
                    "created": 1, "id": "chatcmpl-1", "model": MODEL, "object": "chat.completion.chunk",
                    "usage": {
                        "completion_tokens": 7, "prompt_tokens": 31, "total_tokens": 38,
                        "prompt_tokens_details": { "cached_tokens": 0 },
                    },
                }))
                .raw(b"data: [DONE]\n\n"),
        };
        answer.stream(Ending::Proper)
    }

    /// Ends with the dialect's error inside the stream: a proper body without an end marker.
    pub fn fails(self, message: &str) -> Script {
        let answer = match self.dialect {
            Dialect::Ollama => self.frame(json!({ "error": message })),
            Dialect::OpenAiChat => self.frame(json!({
                "error": { "code": 500, "message": message, "type": "server_error" }
            })),
        };
        answer.stream(Ending::Proper)
    }

    /// Ends without an end marker.
    pub fn cut(self, how: Ending) -> Script {
        self.stream(how)
    }

    /// Says nothing more and does not hang up either.
    pub fn goes_silent(self) -> Script {
        self.stream(Ending::Silence)
    }

    fn message(self, message: Value) -> Self {
        self.frame(json!({
            "model": MODEL, "created_at": CREATED_AT, "message": message, "done": false,
        }))
    }

    fn delta(self, delta: Value) -> Self {
        self.frame(json!({
            "choices": [{ "finish_reason": null, "index": 0, "delta": delta }],
            "created": 1, "id": "chatcmpl-1", "model": MODEL, "object": "chat.completion.chunk",
        }))
    }

    fn frame(self, frame: Value) -> Self {
        let bytes = match self.dialect {
            Dialect::Ollama => format!("{frame}\n"),
            Dialect::OpenAiChat => format!("data: {frame}\n\n"),
        };
        self.raw(bytes.as_bytes())
    }

    fn stream(self, ending: Ending) -> Script {
        Script {
            condition: Condition::Next,
            head: Some(Head {
                status: 200,
                content_type: match self.dialect {
                    Dialect::Ollama => "application/x-ndjson".to_owned(),
                    Dialect::OpenAiChat => "text/event-stream".to_owned(),
                },
                headers: Vec::new(),
                framing: Framing::Chunked,
            }),
            head_gate: None,
            steps: self.steps,
            ending,
        }
    }
}

const CREATED_AT: &str = "2026-03-01T09:00:00.123456Z";
