//! Ollama's own API: `/api/chat`, one JSON object a line.
//!
//! Invariant: only `"done":true` ends an answer. `num_ctx` and `keep_alive` come from the options alone, which are the
//! same in every request of a turn and change only when somebody changes them, so that the server never reloads the
//! model because of us; `truncate` is off, so that history is dropped by us and visibly, or not at all.

use protocol::{Decimal, FinishReason, ModelOptions, Think};
use serde_json::{Map, Value, json};

use super::{
    Message, ModelEvent, ModelRequest,
    answer::{Answer, Verdict, Wants, whole},
    fault::{Fault, Kind, Said, Unreadable},
    json,
    lines::{LINE_BYTES_MAX, Lines},
    openai::words,
    thoughts::Source,
};

/// Enough of a page to say what it is.
pub(super) const PAGE_BYTES_MAX: u64 = 64 * 1024;

const NANOS_PER_MILLI: u64 = 1_000_000;

/// The body of a chat request.
pub(super) fn encode(request: &ModelRequest) -> Value {
    let messages: Vec<Value> = request.messages.iter().filter_map(message).collect();
    let mut body = Map::new();
    body.insert("model".into(), request.model.clone().into());
    body.insert("messages".into(), messages.into());
    body.insert("stream".into(), true.into());
    body.insert("truncate".into(), false.into());
    let sampling = sampling(&request.options);
    if !sampling.is_empty() {
        body.insert("options".into(), sampling.into());
    }
    if let Some(time) = &request.options.keep_alive {
        body.insert("keep_alive".into(), keep_alive(time));
    }
    let think: Option<Value> = match request.options.think {
        None | Some(Think::ServerDefault) => None,
        Some(Think::On) => Some(true.into()),
        Some(Think::Off) => Some(false.into()),
        Some(Think::Low) => Some("low".into()),
        Some(Think::Medium) => Some("medium".into()),
        Some(Think::High) => Some("high".into()),
    };
    if let Some(think) = think {
        body.insert("think".into(), think);
    }
    if !request.tools.is_empty() {
        body.insert("tools".into(), super::openai::tools(&request.tools));
    }
    body.into()
}

/// What stands in `options`: what was chosen and nothing else.
fn sampling(options: &ModelOptions) -> Map<String, Value> {
    let decimal = |value: Option<Decimal>| value.map(|value| value.get().into());
    let known: [(&str, Option<Value>); 9] = [
        ("num_ctx", options.num_ctx.map(Value::from)),
        ("temperature", decimal(options.temperature)),
        ("top_p", decimal(options.top_p)),
        ("top_k", options.top_k.map(Value::from)),
        ("min_p", decimal(options.min_p)),
        ("repeat_penalty", decimal(options.repeat_penalty)),
        ("seed", options.seed.map(Value::from)),
        ("num_predict", options.num_predict.map(Value::from)),
        (
            "stop",
            (!options.stop.is_empty()).then(|| options.stop.clone().into()),
        ),
    ];
    let chosen = known.into_iter();
    chosen
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

/// Ollama takes "10m" as a string, but seconds and "for ever" (-1) as a number only.
fn keep_alive(time: &str) -> Value {
    let time = time.trim();
    time.parse::<i64>()
        .map_or_else(|_| time.into(), Value::from)
}

fn message(message: &Message) -> Option<Value> {
    Some(match message {
        Message::System { text } => json!({ "role": "system", "content": text }),
        Message::User { text } => json!({ "role": "user", "content": text }),
        Message::Assistant { text, calls, .. } => {
            if text.is_empty() && calls.is_empty() {
                return None;
            }
            let mut said = json!({ "role": "assistant", "content": text });
            if let (false, Some(fields)) = (calls.is_empty(), said.as_object_mut()) {
                let calls: Vec<Value> = calls
                    .iter()
                    .map(|call| {
                        json!({
                            "id": call.call_id,
                            "function": {
                                "name": call.name,
                                "arguments": object(&call.arguments),
                            },
                        })
                    })
                    .collect();
                fields.insert("tool_calls".into(), calls.into());
            }
            said
        }
        Message::ToolResult {
            call_id,
            name,
            text,
        } => json!({
            "role": "tool",
            "content": text,
            "tool_name": name,
            "tool_call_id": call_id,
        }),
    })
}

/// Arguments as the object a server insists on; broken ones were never run, and are told as none.
pub(super) fn object(arguments: &str) -> Value {
    serde_json::from_str::<Map<String, Value>>(arguments)
        .unwrap_or_default()
        .into()
}

/// Reads the answer to a chat request.
pub(super) struct Decoder {
    lines: Lines,
    answer: Answer,
    /// What came is no answer; its kind and length are for the reader.
    unreadable: Option<Unreadable>,
}

impl Decoder {
    pub(super) fn new() -> Self {
        Self {
            lines: Lines::new(LINE_BYTES_MAX),
            answer: Answer::new(),
            unreadable: None,
        }
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<ModelEvent> {
        let (mut lines, mut out) = (Vec::new(), Vec::new());
        let fed = self.lines.feed(bytes, &mut lines);
        for line in lines {
            self.line(&line, &mut out);
        }
        if fed.is_err() {
            self.answer.fail(Fault::TooLong);
        }
        out
    }

    pub(super) fn wants(&self) -> Wants {
        match &self.unreadable {
            _ if self.answer.is_over() => Wants::Nothing,
            Some(unreadable) if unreadable.bytes > PAGE_BYTES_MAX => Wants::Nothing,
            Some(_) => Wants::Rest,
            None => Wants::More,
        }
    }

    pub(super) fn began(&self) -> bool {
        self.answer.began()
    }

    pub(super) fn finish(mut self) -> Verdict {
        let mut events = Vec::new();
        if let Some(tail) = self.lines.finish() {
            // A line without its end may be cut: what cannot be read of it is missing, not wrong.
            let cut = self.unreadable.is_none()
                && tail.trim_start().starts_with('{')
                && json::read(&tail).is_err();
            if !cut {
                self.line(&tail, &mut events);
            }
        }
        if let Some(mut unreadable) = self.unreadable.take() {
            unreadable.kind = Kind::of(&unreadable.excerpt);
            match json::read(&unreadable.excerpt) {
                // One object over several lines.
                Ok(frame @ Value::Object(_)) => self.frame(&frame, &mut events),
                _ => self.answer.fail(Fault::Unreadable(unreadable)),
            }
        }
        let mut verdict = self.answer.finish();
        events.append(&mut verdict.events);
        verdict.events = events;
        verdict
    }

    fn line(&mut self, line: &str, out: &mut Vec<ModelEvent>) {
        if self.answer.is_over() || line.trim().is_empty() {
            return;
        }
        if let Some(unreadable) = &mut self.unreadable {
            unreadable.add("\n");
            unreadable.add(line);
            return;
        }
        match json::read(line) {
            Ok(frame @ Value::Object(_)) => self.frame(&frame, out),
            Ok(_) | Err(_) => self.unreadable = Some(Unreadable::new(line)),
        }
    }

    fn frame(&mut self, frame: &Value, out: &mut Vec<ModelEvent>) {
        if let Some(said) = Said::read(frame) {
            self.answer.fail(Fault::Said(said));
            return;
        }
        if let Some(message) = frame.get("message") {
            self.answer
                .reasoning(Source::Thinking, &words(message.get("thinking")), out);
            self.answer.content(&words(message.get("content")), out);
            if let Some(calls) = message.get("tool_calls").and_then(Value::as_array) {
                for call in calls {
                    self.answer.calls([call], out);
                    // Here a call is never sent in pieces, so the next one is another, however alike.
                    self.answer.calls_are_whole(out);
                }
            }
        }
        if frame.get("done").and_then(Value::as_bool) == Some(true) {
            self.measure(frame);
            let finish = match frame.get("done_reason").and_then(Value::as_str) {
                Some("stop") => FinishReason::Stop,
                Some("length") => FinishReason::Length,
                Some(_) | None => FinishReason::Unknown,
            };
            self.answer.end(finish);
        }
    }

    fn measure(&mut self, frame: &Value) {
        let count = |name: &str| whole(frame.get(name));
        let millis = |name: &str| count(name).map(|ns| ns / NANOS_PER_MILLI);
        self.answer.usage.prompt_tokens = count("prompt_eval_count");
        self.answer.usage.completion_tokens = count("eval_count");
        self.answer.timings.load_ms = millis("load_duration");
        self.answer.timings.prompt_ms = millis("prompt_eval_duration");
        self.answer.timings.decode_ms = millis("eval_duration");
    }
}
