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
    blocks: Blocks,
    /// Tokens of the prompt, by its own word.
    read: u64,
}

/// Where an answer in blocks stands.
#[derive(Clone, Copy, Debug, Default)]
struct Blocks {
    /// Its message has begun.
    begun: bool,
    /// Blocks so far.
    count: u64,
    /// What the last one holds, while it is open.
    open: Option<&'static str>,
}

impl Answer {
    /// An answer that has not said anything yet.
    pub fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            steps: Vec::new(),
            calls: 0,
            blocks: Blocks::default(),
            read: 31,
        }
    }

    /// The server says that the prompt had so many tokens.
    #[must_use]
    pub const fn having_read(mut self, tokens: u64) -> Self {
        self.read = tokens;
        self
    }

    /// The whole of an ordinary answer.
    pub fn whole(dialect: Dialect, text: &str) -> Script {
        Self::new(dialect).says(text).ends()
    }

    /// The frame that only says who speaks. llama-server sends it when it has read the prompt, with `content: null`.
    #[must_use]
    pub fn begins(self) -> Self {
        match self.dialect {
            Dialect::Ollama | Dialect::Local => self,
            Dialect::OpenAiChat => self.delta(json!({ "role": "assistant", "content": null })),
            Dialect::Anthropic => {
                let mut answer = self;
                let frames = answer.message_start();
                answer.write(&frames)
            }
        }
    }

    /// One frame that says nothing, as the dialect's servers send it before they say something.
    #[must_use]
    pub fn stirs(self) -> Self {
        match self.dialect {
            Dialect::Ollama | Dialect::Local => self.pings(),
            Dialect::OpenAiChat | Dialect::Anthropic => self.begins(),
        }
    }

    /// A piece of the answer.
    #[must_use]
    pub fn says(self, text: &str) -> Self {
        match self.dialect {
            Dialect::Ollama => self.message(json!({ "role": "assistant", "content": text })),
            Dialect::Local => self.frame(json!({ "frame": "Text", "text": text })),
            Dialect::OpenAiChat => self.delta(json!({ "content": text })),
            Dialect::Anthropic => {
                self.in_block("text", json!({ "type": "text_delta", "text": text }))
            }
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
            Dialect::Local => self.frame(json!({ "frame": "Thought", "text": text })),
            Dialect::Anthropic => self.in_block(
                "thinking",
                json!({ "type": "thinking_delta", "thinking": text }),
            ),
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
            Dialect::Local => self.frame(json!({
                "frame": "Call", "name": name, "arguments": arguments.to_string(),
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
            Dialect::Anthropic => {
                let text = arguments.to_string();
                let (first, rest) = text.split_at(1);
                let mut frames = self.message_start();
                frames.extend(self.block_stop());
                frames.push(self.block_start(
                    "tool_use",
                    json!({ "type": "tool_use", "id": format!("call{index}"), "name": name, "input": {} }),
                ));
                let piece = |answer: &Self, text: &str| {
                    answer.block_delta(json!({ "type": "input_json_delta", "partial_json": text }))
                };
                frames.push(piece(&self, first));
                let rest = piece(&self, rest);
                self.write(&frames).write(&[rest])
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
            Dialect::Local => self.frame(json!({ "frame": "Reading", "done": 1, "total": 31 })),
            Dialect::Anthropic => self.frame(json!({ "type": "ping" })),
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
            (Dialect::OpenAiChat | Dialect::Ollama | Dialect::Anthropic | Dialect::Local, _) => {
                "stop"
            }
        };
        self.ends_because(reason)
    }

    /// Ends well, at a token limit.
    pub fn reaches_its_limit(self) -> Script {
        self.ends_because("length")
    }

    fn ends_because(mut self, reason: &str) -> Script {
        let read = self.read;
        let answer = match self.dialect {
            Dialect::Ollama => self.frame(json!({
                "model": MODEL,
                "created_at": CREATED_AT,
                "message": { "role": "assistant", "content": "" },
                "done": true,
                "done_reason": reason,
                "total_duration": 700_000_000,
                "load_duration": 20_000_000,
                "prompt_eval_count": read,
                "prompt_eval_duration": 80_000_000,
                "eval_count": 7,
                "eval_duration": 600_000_000,
            })),
            Dialect::Local => {
                let finish = if reason == "length" { "Length" } else { "Stop" };
                self.frame(json!({
                    "frame": "Ended",
                    "finish": finish,
                    "usage": { "prompt_tokens": read, "cached_tokens": 0, "completion_tokens": 7 },
                    "timings": { "load_ms": 20, "prompt_ms": 80, "decode_ms": 600 },
                }))
            }
            Dialect::OpenAiChat => self
                .frame(json!({
                    "choices": [{ "finish_reason": reason, "index": 0, "delta": {} }],
                    "created": 1, "id": "chatcmpl-1", "model": MODEL, "object": "chat.completion.chunk",
                }))
                .frame(json!({
                    "choices": [],
                    "created": 1, "id": "chatcmpl-1", "model": MODEL, "object": "chat.completion.chunk",
                    "usage": {
                        "completion_tokens": 7, "prompt_tokens": read, "total_tokens": read + 7,
                        "prompt_tokens_details": { "cached_tokens": 0 },
                    },
                }))
                .raw(b"data: [DONE]\n\n"),
            Dialect::Anthropic => {
                let mut frames = self.message_start();
                frames.extend(self.block_stop());
                let answer = self.write(&frames);
                let reason = match (reason, answer.calls) {
                    ("stop", 1..) => "tool_use",
                    ("length", _) => "max_tokens",
                    (_, _) => "end_turn",
                };
                answer
                    .frame(json!({
                        "type": "message_delta",
                        "delta": { "stop_reason": reason, "stop_sequence": null },
                        "usage": { "output_tokens": 7 },
                    }))
                    .frame(json!({ "type": "message_stop" }))
            }
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
            Dialect::Anthropic => self.frame(anthropic_error(500, message)),
            Dialect::Local => self.frame(failed("ProviderError", message)),
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
            Dialect::Ollama | Dialect::Local => format!("{frame}\n"),
            Dialect::OpenAiChat => format!("data: {frame}\n\n"),
            Dialect::Anthropic => event(&frame),
        };
        self.raw(bytes.as_bytes())
    }

    /// Several frames in one write.
    fn write(self, frames: &[Value]) -> Self {
        if frames.is_empty() {
            return self;
        }
        let bytes: String = frames.iter().map(event).collect();
        self.raw(bytes.as_bytes())
    }

    /// The beginning of a message in blocks, unless it has begun.
    fn message_start(&mut self) -> Vec<Value> {
        if std::mem::replace(&mut self.blocks.begun, true) {
            return Vec::new();
        }
        vec![json!({
            "type": "message_start",
            "message": {
                "id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": MODEL,
                "stop_reason": null, "stop_sequence": null,
                "usage": {
                    "input_tokens": self.read, "cache_creation_input_tokens": 0,
                    "cache_read_input_tokens": 0, "output_tokens": 1,
                },
            },
        })]
    }

    /// A piece of a block of that kind, and what has to come before it.
    fn in_block(mut self, kind: &'static str, delta: Value) -> Self {
        let mut frames = self.message_start();
        if self.blocks.open != Some(kind) {
            frames.extend(self.block_stop());
            let block = match kind {
                "thinking" => json!({ "type": kind, "thinking": "", "signature": "" }),
                _ => json!({ "type": kind, "text": "" }),
            };
            frames.push(self.block_start(kind, block));
        }
        frames.push(self.block_delta(delta));
        self.write(&frames)
    }

    fn block_start(&mut self, kind: &'static str, block: Value) -> Value {
        self.blocks.open = Some(kind);
        self.blocks.count += 1;
        json!({
            "type": "content_block_start", "index": self.blocks.count - 1, "content_block": block,
        })
    }

    fn block_delta(&self, delta: Value) -> Value {
        json!({ "type": "content_block_delta", "index": self.blocks.count - 1, "delta": delta })
    }

    /// The end of the open block; a thought is signed at its end.
    fn block_stop(&mut self) -> Vec<Value> {
        let stop =
            json!({ "type": "content_block_stop", "index": self.blocks.count.saturating_sub(1) });
        match self.blocks.open.take() {
            None => Vec::new(),
            Some("thinking") => {
                let signature = format!("signed-{}", self.blocks.count);
                let signed = json!({ "type": "signature_delta", "signature": signature });
                vec![self.block_delta(signed), stop]
            }
            Some(_) => vec![stop],
        }
    }

    fn stream(self, ending: Ending) -> Script {
        Script {
            condition: Condition::Next,
            head: Some(Head {
                status: 200,
                content_type: match self.dialect {
                    Dialect::Ollama | Dialect::Local => "application/x-ndjson".to_owned(),
                    Dialect::OpenAiChat | Dialect::Anthropic => "text/event-stream".to_owned(),
                },
                headers: Vec::new(),
                framing: match self.dialect {
                    // The model's process passes the body on as it comes, and knows no chunks.
                    Dialect::Local => Framing::UntilClose,
                    Dialect::Ollama | Dialect::OpenAiChat | Dialect::Anthropic => Framing::Chunked,
                },
            }),
            head_gate: None,
            steps: self.steps,
            ending,
        }
    }
}

/// What a model's own process says of a failure that has a code of its own.
pub(super) fn failed(code: &str, message: &str) -> Value {
    json!({ "frame": "Failed", "code": code, "message": message })
}

/// One event as Anthropic's servers write it.
fn event(frame: &Value) -> String {
    let kind = frame["type"].as_str().unwrap_or_default();
    format!("event: {kind}\ndata: {frame}\n\n")
}

/// An error as they say it, in a stream and by itself.
pub(super) fn anthropic_error(status: u16, message: &str) -> Value {
    let kind = match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    };
    json!({ "type": "error", "error": { "type": kind, "message": message }, "request_id": "req_1" })
}

const CREATED_AT: &str = "2026-03-01T09:00:00.123456Z";
