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
    halves::{Halves, Read},
    json,
    lines::{LINE_BYTES_MAX, Lines},
    openai::words,
    plain::{self, Reading},
    thoughts::Source,
};

/// Enough of a page to say what it is.
pub(super) const PAGE_BYTES_MAX: u64 = 64 * 1024;

const NANOS_PER_MILLI: u64 = 1_000_000;

/// The body of a chat request.
pub(super) fn encode(request: &ModelRequest) -> Value {
    let said = |said| message(request, said);
    let messages: Vec<Value> = request.messages.iter().filter_map(said).collect();
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

fn message(request: &ModelRequest, message: &Message) -> Option<Value> {
    Some(match message {
        Message::System { text } => json!({ "role": "system", "content": text }),
        Message::User { text, images } => {
            let (shown, text) = request.shown(text, images);
            let mut said = json!({ "role": "user", "content": text });
            if let (false, Some(fields)) = (shown.is_empty(), said.as_object_mut()) {
                let shown: Vec<Value> = shown.into_iter().map(|(_, bytes)| bytes.into()).collect();
                fields.insert("images".into(), shown.into());
            }
            said
        }
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
    told: Told,
}

/// What it told so far.
struct Told {
    reading: Reading,
    answer: Answer,
    /// What came is no answer; its kind and length are for the reader.
    unreadable: Option<Unreadable>,
    halves: Halves,
}

impl Decoder {
    pub(super) fn new(reading: Reading) -> Self {
        Self {
            lines: Lines::new(LINE_BYTES_MAX),
            told: Told {
                reading,
                answer: Answer::new(),
                unreadable: None,
                halves: Halves::default(),
            },
        }
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<ModelEvent> {
        let Self { lines, told } = self;
        let mut out = Vec::new();
        let fed = lines.feed(bytes, |line| {
            told.line(line, &mut out);
            Ok(())
        });
        if fed.is_err() {
            told.answer.fail(Fault::TooLong);
        }
        out
    }

    pub(super) fn wants(&self) -> Wants {
        match &self.told.unreadable {
            _ if self.told.answer.is_over() => Wants::Nothing,
            Some(unreadable) if unreadable.bytes > PAGE_BYTES_MAX => Wants::Nothing,
            Some(_) => Wants::Rest,
            None => Wants::More,
        }
    }

    pub(super) fn began(&self) -> bool {
        self.told.answer.began()
    }

    pub(super) fn finish(mut self) -> Verdict {
        self.told.finish(self.lines.finish())
    }
}

impl Told {
    fn finish(mut self, tail: Option<String>) -> Verdict {
        let mut events = Vec::new();
        if let Some(tail) = tail {
            // A line without its end may be cut: what cannot be read of it is missing, not wrong.
            let cut = self.unreadable.is_none()
                && tail.trim_start().starts_with('{')
                && json::read(&tail).is_err();
            if !cut {
                self.line(&tail, &mut events);
            }
        }
        self.give_up_halves(&mut events);
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
        if self.reading == Reading::Quick
            && !self.halves.wait()
            && let Some(word) = plain::ollama(line)
        {
            self.answer.reasoning(Source::Thinking, &word.thinking, out);
            self.answer.content(&word.content, out);
            return;
        }
        let event = match self.halves.read(line) {
            Ok(Read { before, event }) => {
                self.frames(&before, out);
                event
            }
            Err(_) => Value::Null,
        };
        match event {
            frame @ Value::Object(_) => self.frame(&frame, out),
            _ => {
                self.give_up_halves(out);
                self.unreadable = Some(Unreadable::new(line));
            }
        }
    }

    /// Whatever comes now, it is not the other half of anything.
    fn give_up_halves(&mut self, out: &mut Vec<ModelEvent>) {
        let alone = self.halves.give_up();
        self.frames(&alone, out);
    }

    fn frames(&mut self, frames: &[Value], out: &mut Vec<ModelEvent>) {
        for frame in frames {
            self.frame(frame, out);
        }
    }

    fn frame(&mut self, frame: &Value, out: &mut Vec<ModelEvent>) {
        if let Some(said) = Said::read(frame) {
            self.answer.fail(Fault::Said(said));
            return;
        }
        if let Some(message) = frame.get("message") {
            // The second name is that of servers that only nearly speak Ollama.
            let thought = [message.get("thinking"), message.get("reasoning")].map(words);
            let thought = thought.iter().find(|thought| !thought.is_empty());
            self.answer
                .reasoning(Source::Thinking, thought.map_or("", String::as_str), out);
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
            let reason = frame.get("done_reason").and_then(Value::as_str);
            if let Some(said) = reason.and_then(Said::given_up) {
                return self.answer.fail(Fault::Said(said));
            }
            self.answer.end(match reason {
                Some("stop") => FinishReason::Stop,
                Some("length") => FinishReason::Length,
                Some(_) | None => FinishReason::Unknown,
            });
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
