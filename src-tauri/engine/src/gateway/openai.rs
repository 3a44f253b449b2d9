//! OpenAI-compatible chat completions: server-sent events, as llama.cpp, vLLM, LM Studio, Ollama's `/v1` and the rest
//! really send them.
//!
//! Invariant: a `finish_reason` or `[DONE]` ends an answer, nothing else does. A plain JSON answer to a request for a
//! stream is an answer; a web page or a proxy's words are not, whatever status and content type they came with.
//! Never relied on: `choices[0]` being there, `content` being a string, a chunk's order of keys, a last blank line.

use protocol::{Decimal, FinishReason, ModelOptions, Think};
use serde_json::{Map, Value, json};

use super::{
    Message, ModelEvent, ModelRequest, ToolSpec,
    answer::{Answer, Verdict, whole},
    calls::Restated,
    fault::{Fault, Said},
    plain::{self, Reading},
    stream::{After, Speech, Stream},
    thoughts::Source,
};

/// Whether to ask for the usage: a few old servers refuse what they do not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AskUsage {
    Yes,
    No,
}

/// The body of a chat request.
pub(super) fn encode(request: &ModelRequest, usage: AskUsage) -> Value {
    let said = |said| message(request, said);
    let messages: Vec<Value> = request.messages.iter().filter_map(said).collect();
    let mut body = Map::new();
    body.insert("model".into(), request.model.clone().into());
    body.insert("messages".into(), messages.into());
    body.insert("stream".into(), true.into());
    match usage {
        AskUsage::Yes => {
            body.insert("stream_options".into(), json!({ "include_usage": true }));
        }
        AskUsage::No => {}
    }
    // The switch that llama.cpp, vLLM and SGLang have in common.
    let kwargs = |on: bool| json!({ "enable_thinking": on });
    let thinks = match request.options.think {
        None | Some(Think::ServerDefault) => None,
        Some(Think::On) => Some((kwargs(true), None)),
        Some(Think::Off) => Some((kwargs(false), None)),
        Some(Think::Low) => Some((kwargs(true), Some("low"))),
        Some(Think::Medium) => Some((kwargs(true), Some("medium"))),
        Some(Think::High) => Some((kwargs(true), Some("high"))),
    };
    if let Some((switch, effort)) = thinks {
        body.insert("chat_template_kwargs".into(), switch);
        if let Some(effort) = effort {
            body.insert("reasoning_effort".into(), effort.into());
        }
    }
    body.extend(sampling(&request.options));
    if !request.tools.is_empty() {
        body.insert("tools".into(), tools(&request.tools));
    }
    body.into()
}

/// How words are chosen, as far as somebody said it. The last three are not OpenAI's own: llama.cpp and most others
/// know them, and who does not says so.
fn sampling(options: &ModelOptions) -> Map<String, Value> {
    let decimal = |value: Option<Decimal>| value.map(|value| value.get().into());
    let known: [(&str, Option<Value>); 8] = [
        ("temperature", decimal(options.temperature)),
        ("top_p", decimal(options.top_p)),
        ("seed", options.seed.map(Value::from)),
        ("max_tokens", options.num_predict.map(Value::from)),
        (
            "stop",
            (!options.stop.is_empty()).then(|| options.stop.clone().into()),
        ),
        ("top_k", options.top_k.map(Value::from)),
        ("min_p", decimal(options.min_p)),
        ("repeat_penalty", decimal(options.repeat_penalty)),
    ];
    let chosen = known.into_iter();
    chosen
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

/// Tools as both dialects are told of them.
pub(super) fn tools(tools: &[ToolSpec]) -> Value {
    tools
        .iter()
        .map(|tool| {
            json!({
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": super::ollama::object(&tool.parameters),
                },
            })
        })
        .collect()
}

fn message(request: &ModelRequest, message: &Message) -> Option<Value> {
    Some(match message {
        Message::System { text } => json!({ "role": "system", "content": text }),
        Message::User { text, images } => {
            let (shown, text) = request.shown(text, images);
            if shown.is_empty() {
                return Some(json!({ "role": "user", "content": text }));
            }
            let shown = shown.into_iter().map(|(image, bytes)| {
                let url = format!("data:{};base64,{bytes}", image.media_type.name());
                json!({ "type": "image_url", "image_url": { "url": url } })
            });
            // An empty part is refused by some servers.
            let text = (!text.is_empty()).then(|| json!({ "type": "text", "text": text }));
            let parts: Vec<Value> = shown.chain(text).collect();
            json!({ "role": "user", "content": parts })
        }
        Message::Assistant { text, calls, .. } if calls.is_empty() => {
            if text.is_empty() {
                return None;
            }
            json!({ "role": "assistant", "content": text })
        }
        Message::Assistant { text, calls, .. } => {
            let calls: Vec<Value> = calls
                .iter()
                .map(|call| {
                    json!({
                        "id": call.call_id,
                        "type": "function",
                        "function": {
                            "name": call.name,
                            // A template that parses broken arguments fails the whole request.
                            "arguments": super::ollama::object(&call.arguments).to_string(),
                        },
                    })
                })
                .collect();
            // An empty text is refused by some servers, a missing one by others; null is in the contract.
            let content = (!text.is_empty()).then_some(text);
            json!({ "role": "assistant", "content": content, "tool_calls": calls })
        }
        Message::ToolResult { call_id, text, .. } => {
            json!({ "role": "tool", "tool_call_id": call_id, "content": text })
        }
    })
}

/// Reads the answer to a chat request.
pub(super) type Decoder = Stream<Chat>;

/// What the events of an answer say.
pub(super) struct Chat {
    answer: Answer,
    heard: Heard,
}

/// The content so far, to know a message that repeats it.
#[derive(Default)]
struct Heard {
    content: String,
    /// Pieces it came in.
    pieces: u32,
    /// Of these, deltas.
    deltas: u32,
}

impl Stream<Chat> {
    pub(super) fn new(reading: Reading) -> Self {
        let chat = Chat {
            answer: Answer::new(),
            heard: Heard::default(),
        };
        Self::of(chat, reading)
    }
}

impl Speech for Chat {
    fn answer(&self) -> &Answer {
        &self.answer
    }

    fn answer_mut(&mut self) -> &mut Answer {
        &mut self.answer
    }

    fn error(chunk: &Value) -> Option<Said> {
        let choices = chunk.get("choices").and_then(Value::as_array);
        match chunk.get("error") {
            None if choices.is_some_and(|list| !list.is_empty()) => None,
            None | Some(_) => Said::read(chunk),
        }
    }

    fn is_whole(document: &Value) -> bool {
        document.get("choices").is_some_and(Value::is_array)
    }

    fn word(&mut self, text: &str, out: &mut Vec<ModelEvent>) -> bool {
        let Some(word) = plain::openai(text) else {
            return false;
        };
        let thoughts = [
            (Source::ReasoningContent, word.reasoning_content),
            (Source::Reasoning, word.reasoning),
        ];
        if word.content.is_empty() && thoughts.iter().all(|(_, thought)| thought.is_empty()) {
            return true;
        }
        self.heard.deltas = self.heard.deltas.saturating_add(1);
        if self.answer.is_over() && !self.answer.began() {
            self.answer.reopen();
        }
        self.answer.resume();
        for (source, thought) in &thoughts {
            self.answer.reasoning(*source, thought, out);
        }
        self.content(&word.content, out);
        true
    }

    fn chunk(&mut self, chunk: &Value, out: &mut Vec<ModelEvent>) -> After {
        let choices = chunk.get("choices").and_then(Value::as_array);
        let is_chunk = choices.is_some_and(|list| !list.is_empty());
        let over = self.answer.is_over();
        let measured = self.measure(chunk);
        if let Some(progress) = chunk.get("prompt_progress")
            && let (Some(done), Some(total)) = (
                whole(progress.get("processed")),
                whole(progress.get("total")),
            )
        {
            out.push(ModelEvent::ReadingPrompt { done, total });
        }
        let first = |choice: &&Value| choice.get("index").and_then(Value::as_u64).unwrap_or(0) == 0;
        for choice in choices.into_iter().flatten().filter(first) {
            self.choice(choice, out);
        }
        // The usage after the finish reason is the last there is to wait for.
        if over && measured && self.answer.is_over() && !(is_chunk && self.answer.was_reopened()) {
            After::Nothing
        } else {
            After::More
        }
    }

    fn close(&mut self, _out: &mut Vec<ModelEvent>) {}

    fn verdict(self) -> Verdict {
        self.answer.finish()
    }
}

impl Chat {
    fn choice(&mut self, choice: &Value, out: &mut Vec<ModelEvent>) {
        let reason = choice.get("finish_reason").and_then(Value::as_str);
        let ends = match reason.unwrap_or_default() {
            // Not yet. Some servers write the empty or the spelled-out null.
            "" | "null" => None,
            reason => Some(reason),
        };
        if let Some(delta @ Value::Object(_)) = choice.get("delta") {
            let said = Saying::read(delta);
            self.heard.deltas = self
                .heard
                .deltas
                .saturating_add(u32::from(!said.is_empty()));
            self.say(said, ends, out);
        }
        if let Some(message @ Value::Object(_)) = choice.get("message") {
            self.message(message, ends, out);
        }
        if let Some(text) = choice.get("text").and_then(Value::as_str) {
            let said = Saying {
                content: text.to_owned(),
                ..Saying::default()
            };
            self.say(said, ends, out);
        }
        if let Some(said) = Said::read(choice) {
            self.answer.fail(Fault::Said(said));
        }
        match ends {
            None => {}
            Some(reason) => match Said::given_up(reason) {
                Some(said) => self.answer.fail(Fault::Said(said)),
                None => self.answer.end(finish(reason)),
            },
        }
    }

    /// A message repeats the deltas before it, or all messages before it, or comes where others send deltas.
    fn message(&mut self, message: &Value, ends: Option<&str>, out: &mut Vec<ModelEvent>) {
        let mut said = Saying::read(message);
        let how = if self.heard.deltas > 0 {
            Restated::AfterDeltas
        } else {
            Restated::AmongMessages
        };
        // One word may be said twice, but not everything that was said.
        let certain = ends.is_some() || self.heard.pieces > 1;
        said.content = news(&said.content, &self.heard.content, how, certain);
        for (_, thought) in &mut said.thoughts {
            *thought = news(thought, self.answer.thought(), how, certain);
        }
        let calls = std::mem::take(&mut said.calls);
        self.say(said, ends, out);
        self.answer.calls_again(&calls, how, out);
    }

    fn say(&mut self, said: Saying, ends: Option<&str>, out: &mut Vec<ModelEvent>) {
        if said.is_empty() {
            return;
        }
        if self.answer.is_over() && (ends.is_some() || !self.answer.began()) {
            self.answer.reopen();
        }
        self.answer.resume();
        let Saying {
            thoughts,
            content,
            calls,
        } = said;
        for (source, thought) in thoughts {
            self.answer.reasoning(source, &thought, out);
        }
        self.content(&content, out);
        self.answer.calls(&calls, out);
    }

    fn content(&mut self, content: &str, out: &mut Vec<ModelEvent>) {
        if !content.is_empty() && !self.answer.is_shut() {
            self.heard.pieces = self.heard.pieces.saturating_add(1);
            self.heard.content.push_str(content);
            self.answer.content(content, out);
        }
    }

    /// Whether the chunk tells the usage.
    fn measure(&mut self, chunk: &Value) -> bool {
        let timings = chunk.get("timings").filter(|t| t.is_object());
        if let Some(timings) = timings {
            let number = |name: &str| whole(timings.get(name));
            let (cached, read) = (number("cache_n"), number("prompt_n"));
            let usage = &mut self.answer.usage;
            usage.cached_tokens = cached.or(usage.cached_tokens);
            usage.prompt_tokens = read
                .map(|read| read.saturating_add(cached.unwrap_or(0)))
                .or(usage.prompt_tokens);
            usage.completion_tokens = number("predicted_n").or(usage.completion_tokens);
            self.answer.timings.prompt_ms = number("prompt_ms");
            self.answer.timings.decode_ms = number("predicted_ms");
        }
        let Some(counted) = chunk.get("usage").filter(|u| u.is_object()) else {
            return false;
        };
        let number = |name: &str| whole(counted.get(name));
        let usage = &mut self.answer.usage;
        usage.prompt_tokens = number("prompt_tokens").or(usage.prompt_tokens);
        usage.completion_tokens = number("completion_tokens").or(usage.completion_tokens);
        usage.cached_tokens = counted
            .get("prompt_tokens_details")
            .and_then(|details| whole(details.get("cached_tokens")))
            .or_else(|| number("prompt_cache_hit_tokens"))
            .or(usage.cached_tokens);
        true
    }
}

/// What a delta or a message says.
/// Rarer names of a thought. No server has two of them.
pub(super) const OTHER_THOUGHTS: [&str; 5] = [
    "thinking",
    "thinking_content",
    "reasoning_text",
    "thought",
    "thoughts",
];

#[derive(Default)]
struct Saying {
    thoughts: Vec<(Source, String)>,
    content: String,
    calls: Vec<Value>,
}

impl Saying {
    fn read(delta: &Value) -> Self {
        let mut said = Self::default();
        for (source, name) in [
            (Source::ReasoningContent, "reasoning_content"),
            (Source::Reasoning, "reasoning"),
            (Source::Details, "reasoning_details"),
        ] {
            said.think(source, words(delta.get(name)));
        }
        let mut others = OTHER_THOUGHTS
            .into_iter()
            .map(|name| words(delta.get(name)));
        said.think(
            Source::Thinking,
            others
                .find(|thought| !thought.is_empty())
                .unwrap_or_default(),
        );
        let mut thought = String::new();
        match delta.get("content") {
            Some(Value::Array(parts)) => {
                for part in parts {
                    match part.get("type").and_then(Value::as_str) {
                        Some("thinking" | "reasoning") => thought.push_str(&words(Some(part))),
                        Some(_) | None => said.content.push_str(&words(Some(part))),
                    }
                }
            }
            other => said.content = words(other),
        }
        said.think(Source::Parts, thought);
        said.content.push_str(&words(delta.get("refusal")));
        match delta.get("tool_calls") {
            Some(Value::Array(calls)) => said.calls.clone_from(calls),
            Some(call @ Value::Object(_)) => said.calls.push(call.clone()),
            Some(_) | None => {}
        }
        // Beside `tool_calls` it says the same once more.
        if let (true, Some(call @ Value::Object(_))) =
            (said.calls.is_empty(), delta.get("function_call"))
        {
            said.calls.push(call.clone());
        }
        said
    }

    fn think(&mut self, source: Source, thought: String) {
        if !thought.is_empty() {
            self.thoughts.push((source, thought));
        }
    }

    fn is_empty(&self) -> bool {
        self.thoughts.is_empty() && self.content.is_empty() && self.calls.is_empty()
    }
}

/// What a message says beyond what was heard.
fn news(text: &str, heard: &str, how: Restated, certain: bool) -> String {
    match (text.strip_prefix(heard), how) {
        _ if heard.is_empty() => text.to_owned(),
        (Some(""), Restated::AmongMessages) if !certain => text.to_owned(),
        (Some(new), Restated::AfterDeltas | Restated::AmongMessages) => new.to_owned(),
        // The same in other words, or trimmed.
        (None, Restated::AfterDeltas) => String::new(),
        (None, Restated::AmongMessages) => text.to_owned(),
    }
}

/// The text of a string or number, of `{"text": …}` and its relatives, or of a list of these.
pub(super) fn words(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        Some(Value::Array(parts)) => parts.iter().map(|part| words(Some(part))).collect(),
        Some(Value::Object(fields)) => ["text", "thinking", "summary", "content", "refusal"]
            .into_iter()
            .find_map(|name| match fields.get(name) {
                Some(inner @ (Value::String(_) | Value::Number(_) | Value::Array(_))) => {
                    Some(inner).map(|inner| words(Some(inner)))
                }
                _ => None,
            })
            .unwrap_or_default(),
        _ => String::new(),
    }
}

fn finish(reason: &str) -> FinishReason {
    match reason {
        "stop" | "eos" | "eos_token" | "end_turn" | "stop_sequence" | "STOP" => FinishReason::Stop,
        "length" | "max_tokens" | "model_length" | "MAX_TOKENS" => FinishReason::Length,
        "tool_calls" | "tool_use" | "function_call" => FinishReason::ToolCalls,
        "content_filter" | "safety" | "SAFETY" | "refusal" => FinishReason::Filter,
        _ => FinishReason::Unknown,
    }
}
