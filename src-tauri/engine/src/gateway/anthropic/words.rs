//! What the events of an Anthropic answer say.
//!
//! Invariant: a `stop_reason` or `message_stop` ends an answer, nothing else does. A call is whole when its server says
//! so; one that was given no arguments has none, which is an empty object. Blocks we know nothing of pass by unseen.

use std::collections::HashSet;

use protocol::FinishReason;
use serde_json::{Value, json};

use crate::gateway::{
    ModelEvent,
    answer::{Answer, Verdict, whole},
    fault::{Fault, Said, Unreadable},
    openai::words,
    plain::{self, Reading},
    stream::{After, Speech, Stream},
    thoughts::Source,
};

/// Reads the answer to a request.
pub(in crate::gateway) type Decoder = Stream<Message>;

/// One message of the model.
pub(in crate::gateway) struct Message {
    answer: Answer,
    blocks: Vec<Block>,
    /// Of blocks that are not for us: what the server calls itself, and what is yet to be invented.
    foreign: HashSet<u64>,
    counted: Counted,
}

/// One block of it, kept to be sent back as it came.
struct Block {
    index: Option<u64>,
    said: Kind,
}

enum Kind {
    Text(String),
    Thinking {
        thinking: String,
        signature: String,
    },
    Redacted(Value),
    /// Arguments that came with its beginning, and whether others did after it.
    Call {
        input: Value,
        heard: bool,
    },
}

/// Tokens, as far as they were told; each number only grows.
#[derive(Default)]
struct Counted {
    input: Option<u64>,
    cache_read: Option<u64>,
    cache_written: Option<u64>,
    output: Option<u64>,
}

impl Stream<Message> {
    pub(in crate::gateway) fn new(reading: Reading) -> Self {
        let message = Message {
            answer: Answer::new(),
            blocks: Vec::new(),
            foreign: HashSet::new(),
            counted: Counted::default(),
        };
        Self::of(message, reading)
    }
}

impl Speech for Message {
    fn answer(&self) -> &Answer {
        &self.answer
    }

    fn answer_mut(&mut self) -> &mut Answer {
        &mut self.answer
    }

    fn error(chunk: &Value) -> Option<Said> {
        Said::read(chunk)
    }

    fn is_whole(document: &Value) -> bool {
        document.get("content").is_some_and(Value::is_array)
    }

    fn word(&mut self, text: &str, out: &mut Vec<ModelEvent>) -> bool {
        let Some((index, word)) = plain::anthropic(text) else {
            return false;
        };
        if self.foreign.contains(&index) {
            return true;
        }
        if !word.content.is_empty() {
            self.said(Some(index), &word.content, out);
        }
        if !word.thinking.is_empty() {
            self.thought(Some(index), &word.thinking, out);
        }
        true
    }

    fn chunk(&mut self, chunk: &Value, out: &mut Vec<ModelEvent>) -> After {
        match chunk.get("type").and_then(Value::as_str) {
            Some("message_start") => {
                let message = chunk.get("message");
                self.measure(message.and_then(|message| message.get("usage")));
            }
            Some("content_block_start") => self.begin(chunk, out),
            Some("content_block_delta") => self.add(chunk, out),
            Some("content_block_stop") => self.end_block(index(chunk), out),
            Some("message_delta") => {
                self.measure(chunk.get("usage"));
                self.stop(chunk.get("delta"), out);
            }
            Some("message_stop") => {
                self.answer.end(FinishReason::Unknown);
                return After::Nothing;
            }
            Some("message") => self.message(chunk, out),
            Some(_) => {}
            // Frames of another dialect: nothing that follows will be an answer either.
            None if chunk.get("choices").is_some() || chunk.get("done").is_some() => {
                let frame = Unreadable::new(&chunk.to_string());
                self.answer.fail(Fault::Unreadable(frame));
            }
            None => {}
        }
        After::More
    }

    fn close(&mut self, out: &mut Vec<ModelEvent>) {
        let calls = self.blocks.iter().any(|block| block.said.is_call());
        let sealed = self.blocks.iter().any(|block| block.said.is_sealed());
        if calls && sealed {
            let blocks: Vec<Value> = self.blocks.iter().filter_map(Block::kept).collect();
            let blocks = Value::from(blocks).to_string();
            out.push(ModelEvent::Verbatim { blocks });
        }
    }

    fn verdict(self) -> Verdict {
        self.answer.finish()
    }
}

impl Message {
    /// A whole message, in place of a stream.
    fn message(&mut self, message: &Value, out: &mut Vec<ModelEvent>) {
        let blocks = message.get("content").and_then(Value::as_array);
        for (index, block) in blocks.into_iter().flatten().enumerate() {
            let place = json!({ "index": index, "content_block": block });
            self.begin(&place, out);
            self.end_block(Some(index as u64), out);
        }
        self.measure(message.get("usage"));
        self.stop(Some(message), out);
    }

    fn begin(&mut self, chunk: &Value, out: &mut Vec<ModelEvent>) {
        let index = index(chunk);
        let block = chunk.get("content_block").unwrap_or(&Value::Null);
        let text = |name: &str| words(block.get(name));
        let said = match block.get("type").and_then(Value::as_str) {
            Some("text") => {
                self.answer.content(&text("text"), out);
                Kind::Text(text("text"))
            }
            Some("thinking") => {
                let thinking = text("thinking");
                self.answer.reasoning(Source::Thinking, &thinking, out);
                Kind::Thinking {
                    thinking,
                    signature: text("signature"),
                }
            }
            Some("redacted_thinking") => Kind::Redacted(block.clone()),
            Some("tool_use") => {
                self.call(index, block.get("id"), json!({ "name": text("name") }), out);
                Kind::Call {
                    input: block.get("input").cloned().unwrap_or_default(),
                    heard: false,
                }
            }
            Some(_) | None => {
                self.foreign.extend(index);
                return;
            }
        };
        if let Some(index) = index {
            self.foreign.remove(&index);
        }
        self.blocks.push(Block { index, said });
    }

    fn add(&mut self, chunk: &Value, out: &mut Vec<ModelEvent>) {
        let index = index(chunk);
        if index.is_some_and(|index| self.foreign.contains(&index)) {
            return;
        }
        let delta = chunk.get("delta").unwrap_or(&Value::Null);
        let text = |name: &str| words(delta.get(name));
        match delta.get("type").and_then(Value::as_str) {
            Some("text_delta") => self.said(index, &text("text"), out),
            Some("thinking_delta") => self.thought(index, &text("thinking"), out),
            Some("signature_delta") => {
                let text = text("signature");
                if let Some(Kind::Thinking { signature, .. }) = self.block(index) {
                    signature.push_str(&text);
                }
            }
            Some("input_json_delta") => {
                let arguments = delta.get("partial_json").cloned().unwrap_or_default();
                if arguments.as_str() == Some("") {
                    return;
                }
                if let Some(Kind::Call { heard, .. }) = self.block(index) {
                    *heard = true;
                }
                self.call(index, None, json!({ "arguments": arguments }), out);
            }
            Some(_) | None => {}
        }
    }

    fn said(&mut self, index: Option<u64>, text: &str, out: &mut Vec<ModelEvent>) {
        if let Some(Kind::Text(said)) = self.block(index) {
            said.push_str(text);
        }
        self.answer.content(text, out);
    }

    fn thought(&mut self, index: Option<u64>, text: &str, out: &mut Vec<ModelEvent>) {
        if let Some(Kind::Thinking { thinking, .. }) = self.block(index) {
            thinking.push_str(text);
        }
        self.answer.reasoning(Source::Thinking, text, out);
    }

    fn end_block(&mut self, index: Option<u64>, out: &mut Vec<ModelEvent>) {
        let Some(Kind::Call { input, heard }) = self.block(index) else {
            return;
        };
        if std::mem::replace(heard, true) {
            return;
        }
        let arguments = match input {
            Value::Null => json!({}),
            input => input.clone(),
        };
        self.call(index, None, json!({ "arguments": arguments }), out);
    }

    fn call(
        &mut self,
        index: Option<u64>,
        id: Option<&Value>,
        function: Value,
        out: &mut Vec<ModelEvent>,
    ) {
        let entry = json!({ "index": index, "id": id, "function": function });
        self.answer.calls([&entry], out);
    }

    /// The newest block of that number; the newest of all where a server counts none.
    fn block(&mut self, index: Option<u64>) -> Option<&mut Kind> {
        let newest = self.blocks.iter_mut().rev();
        let mut fits = newest.filter(|block| index.is_none() || block.index == index);
        fits.next().map(|block| &mut block.said)
    }

    /// The reason to stop, where it is told.
    fn stop(&mut self, told: Option<&Value>, out: &mut Vec<ModelEvent>) {
        let reason = told.and_then(|told| told.get("stop_reason")?.as_str());
        let Some(reason) = reason.filter(|reason| !reason.is_empty()) else {
            return;
        };
        if let Some(said) = Said::given_up(reason) {
            return self.answer.fail(Fault::Said(said));
        }
        let finish = match reason {
            "end_turn" | "stop_sequence" | "stop" => FinishReason::Stop,
            "max_tokens" | "model_context_window_exceeded" | "length" => FinishReason::Length,
            "tool_use" | "tool_calls" => FinishReason::ToolCalls,
            "refusal" => FinishReason::Filter,
            _ => FinishReason::Unknown,
        };
        if finish == FinishReason::ToolCalls {
            // Servers that do not say where a block ends.
            let indexes: Vec<Option<u64>> = self.blocks.iter().map(|block| block.index).collect();
            for index in indexes {
                self.end_block(index, out);
            }
        }
        self.answer.end(finish);
    }

    fn measure(&mut self, usage: Option<&Value>) {
        let Some(usage) = usage.filter(|usage| usage.is_object()) else {
            return;
        };
        let number = |name: &str| whole(usage.get(name));
        let counted = &mut self.counted;
        counted.input = counted.input.max(number("input_tokens"));
        counted.cache_read = counted.cache_read.max(number("cache_read_input_tokens"));
        counted.cache_written = counted
            .cache_written
            .max(number("cache_creation_input_tokens"));
        counted.output = counted.output.max(number("output_tokens"));
        // What the cache gave or took is not part of the input here, and is of the prompt.
        let cached = [counted.cache_read, counted.cache_written];
        let prompt = counted.input.map(|input| {
            let cached = cached.into_iter().flatten();
            cached.fold(input, u64::saturating_add)
        });
        let told = &mut self.answer.usage;
        told.prompt_tokens = prompt;
        told.cached_tokens = counted.cache_read;
        told.cache_written_tokens = counted.cache_written;
        told.completion_tokens = counted.output;
    }
}

impl Kind {
    fn is_call(&self) -> bool {
        match self {
            Self::Call { .. } => true,
            Self::Text(_) | Self::Thinking { .. } | Self::Redacted(_) => false,
        }
    }

    /// Whether the server can tell that it is its own.
    fn is_sealed(&self) -> bool {
        match self {
            Self::Thinking { signature, .. } => !signature.is_empty(),
            Self::Redacted(_) => true,
            Self::Text(_) | Self::Call { .. } => false,
        }
    }
}

impl Block {
    /// It, as it is sent back. What the server would refuse is left out; a call is filled in by whoever sends it.
    fn kept(&self) -> Option<Value> {
        match &self.said {
            Kind::Text(text) if text.trim().is_empty() => None,
            Kind::Text(text) => Some(json!({ "type": "text", "text": text })),
            Kind::Thinking { signature, .. } if signature.is_empty() => None,
            Kind::Thinking {
                thinking,
                signature,
            } => Some(json!({
                "type": "thinking", "thinking": thinking, "signature": signature,
            })),
            Kind::Redacted(block) => Some(block.clone()),
            Kind::Call { .. } => Some(json!({ "type": "tool_use" })),
        }
    }
}

fn index(chunk: &Value) -> Option<u64> {
    chunk.get("index").and_then(Value::as_u64)
}
