//! Anthropic's messages API: `/v1/messages`, as Anthropic and the servers that copy it (llama.cpp, Ollama, proxies)
//! take it.
//!
//! Invariant: user and assistant take turns, whatever the conversation looks like; every call is followed at once by its
//! result, all results of one answer in one message, and no block is empty. The blocks of an answer that calls tools go
//! back as they came, signatures included, while the turn lasts: with its thinking on, the server insists on it.
//! The prompt is marked for the server's cache up to its last block, so that the next request reads it from there.

mod ways;
mod words;

use protocol::{Decimal, ModelOptions, Think};
use serde_json::{Map, Value, json};

use super::{CallMade, Message, ModelRequest, ToolSpec, ollama::object};

pub(super) use ways::{Thinking, Ways};
pub(super) use words::Decoder;

/// What the server is told of how it is spoken to.
pub(super) const VERSION: &str = "2023-06-01";

/// Thinking by budget: no model takes less.
const BUDGET_MIN: u64 = 1024;
/// Enough for hard questions; the rest of the limit is for the answer.
const BUDGET_MAX: u64 = 16_000;

/// As much of a name as every model takes.
const NAME_BYTES_MAX: usize = 64;

/// The body of a request.
pub(super) fn encode(request: &ModelRequest, ways: Ways) -> Value {
    let (mut system, mut messages) = (Vec::new(), Vec::new());
    for message in &request.messages {
        match message {
            Message::System { text } => system.extend(text_block(text)),
            Message::User { text, images } => {
                let (shown, text) = request.shown(text, images);
                let shown = shown.into_iter().map(|(image, bytes)| {
                    let media_type = image.media_type.name();
                    let source =
                        json!({ "type": "base64", "media_type": media_type, "data": bytes });
                    json!({ "type": "image", "source": source })
                });
                add(&mut messages, Role::User, shown.chain(text_block(&text)));
            }
            Message::Assistant {
                text,
                calls,
                verbatim,
            } => {
                let blocks = said(text, calls, verbatim.as_deref());
                add(&mut messages, Role::Assistant, blocks);
            }
            Message::ToolResult { call_id, text, .. } => {
                let result =
                    json!({ "type": "tool_result", "tool_use_id": call_id, "content": text });
                add(&mut messages, Role::User, [result]);
            }
        }
    }
    if messages
        .first()
        .is_some_and(|(role, _)| *role == Role::Assistant)
    {
        // The user speaks first, or the request is refused.
        let blocks = text_block("…").into_iter().collect();
        messages.insert(0, (Role::User, blocks));
    }
    mark_last(&mut system);
    if let Some((Role::User, blocks)) = messages.last_mut() {
        mark_last(blocks);
    }
    let messages: Vec<Value> = messages
        .into_iter()
        .map(|(role, blocks)| json!({ "role": role.word(), "content": blocks }))
        .collect();

    let mut body = Map::new();
    body.insert("model".into(), request.model.clone().into());
    let chosen_max = request.options.num_predict.map_or(u64::MAX, u64::from);
    let output_max = ways.output_max().min(chosen_max);
    body.insert("max_tokens".into(), output_max.into());
    if !system.is_empty() {
        body.insert("system".into(), system.into());
    }
    body.insert("messages".into(), messages.into());
    body.insert("stream".into(), true.into());
    let think = request.options.think.unwrap_or_default();
    let thinking = thinking(think, ways, output_max);
    let thinks = matches!(think, Think::On | Think::Low | Think::Medium | Think::High);
    if !(thinks && thinking.is_some()) {
        // Beside thinking the server takes none of these.
        body.extend(sampling(&request.options));
    }
    if !request.options.stop.is_empty() {
        body.insert("stop_sequences".into(), request.options.stop.clone().into());
    }
    if let Some(thinking) = thinking {
        body.insert("thinking".into(), thinking);
    }
    let tools = tools(request);
    if !tools.is_empty() {
        body.insert("tools".into(), tools.into());
        if request.tools.is_empty() {
            body.insert("tool_choice".into(), json!({ "type": "none" }));
        }
    }
    body.into()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    User,
    Assistant,
}

impl Role {
    const fn word(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

/// Adds blocks to the message of that role at the end, or begins one.
fn add(
    messages: &mut Vec<(Role, Vec<Value>)>,
    role: Role,
    blocks: impl IntoIterator<Item = Value>,
) {
    let mut blocks = blocks.into_iter().peekable();
    if blocks.peek().is_none() {
        return;
    }
    match messages.last_mut() {
        Some((last, list)) if *last == role => list.extend(blocks),
        Some(_) | None => messages.push((role, blocks.collect())),
    }
}

/// A text as a block; nothing for one that the server would call empty.
fn text_block(text: &str) -> Option<Value> {
    (!text.trim().is_empty()).then(|| json!({ "type": "text", "text": text }))
}

/// The blocks of something the model said.
fn said(text: &str, calls: &[CallMade], verbatim: Option<&str>) -> Vec<Value> {
    let used = |call: &CallMade| {
        json!({
            "type": "tool_use",
            "id": call.call_id,
            "name": plain_name(&call.name),
            "input": object(&call.arguments),
        })
    };
    let is = |block: &Value, kind: &str| block.get("type").and_then(Value::as_str) == Some(kind);
    let kept: Vec<Value> = verbatim
        .and_then(|blocks| serde_json::from_str(blocks).ok())
        .unwrap_or_default();
    let kept_calls = kept.iter().filter(|block| is(block, "tool_use")).count();
    if kept_calls > 0 && kept_calls == calls.len() {
        let mut calls = calls.iter();
        // Calls under our names, for those their results have.
        let ours = |block| match is(&block, "tool_use") {
            true => calls.next().map(used),
            false => Some(block),
        };
        return kept.into_iter().filter_map(ours).collect();
    }
    // Only a part of that answer is told here; what led to it comes first all the same.
    let leads = |block: &Value| is(block, "thinking") || is(block, "redacted_thinking");
    kept.into_iter()
        .take_while(leads)
        .chain(text_block(text))
        .chain(calls.iter().map(used))
        .collect()
}

/// Marks the prompt up to here for the server's cache.
fn mark_last(blocks: &mut [Value]) {
    if let Some(Value::Object(block)) = blocks.last_mut() {
        block.insert("cache_control".into(), json!({ "type": "ephemeral" }));
    }
}

fn thinking(think: Think, ways: Ways, output_max: u64) -> Option<Value> {
    let budget_max = match think {
        Think::ServerDefault => return None,
        Think::Off => {
            return match ways.thinking {
                Thinking::Adaptive | Thinking::Budget => Some(json!({ "type": "disabled" })),
                Thinking::Unsaid => None,
            };
        }
        Think::Low => BUDGET_MAX / 4,
        Think::Medium => BUDGET_MAX / 2,
        Think::On | Think::High => BUDGET_MAX,
    };
    match ways.thinking {
        // Newer models keep their thoughts to themselves unless asked for them, and measure them out by themselves.
        Thinking::Adaptive => Some(json!({ "type": "adaptive", "display": "summarized" })),
        Thinking::Budget => {
            let budget = budget_max.min(output_max / 2);
            (budget >= BUDGET_MIN).then(|| json!({ "type": "enabled", "budget_tokens": budget }))
        }
        Thinking::Unsaid => None,
    }
}

/// How words are chosen, as far as somebody said it and the server takes it: its scale of temperatures ends at 1.
fn sampling(options: &ModelOptions) -> Map<String, Value> {
    let decimal = |value: Option<Decimal>| value.map(|value| value.get().min(1.0).into());
    let known: [(&str, Option<Value>); 3] = [
        ("temperature", decimal(options.temperature)),
        ("top_p", decimal(options.top_p)),
        // None of the words is no choice.
        (
            "top_k",
            options.top_k.filter(|words| *words > 0).map(Value::from),
        ),
    ];
    let chosen = known.into_iter();
    chosen
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

/// The tools on offer. Where none is but some were called before, these are named all the same: a server refuses a
/// conversation with calls of tools that it was not told of.
fn tools(request: &ModelRequest) -> Vec<Value> {
    if !request.tools.is_empty() {
        return request.tools.iter().map(offered).collect();
    }
    let mut names: Vec<String> = Vec::new();
    for message in &request.messages {
        match message {
            Message::Assistant { calls, .. } => {
                for call in calls {
                    let name = plain_name(&call.name);
                    if !names.contains(&name) {
                        names.push(name);
                    }
                }
            }
            Message::System { .. } | Message::User { .. } | Message::ToolResult { .. } => {}
        }
    }
    names
        .into_iter()
        .map(|name| json!({ "name": name, "input_schema": { "type": "object" } }))
        .collect()
}

fn offered(tool: &ToolSpec) -> Value {
    let mut schema = object(&tool.parameters);
    if let Some(fields) = schema.as_object_mut() {
        fields.entry("type").or_insert("object".into());
    }
    json!({
        "name": plain_name(&tool.name),
        "description": tool.description,
        "input_schema": schema,
    })
}

/// A name of the signs that this API takes.
fn plain_name(name: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') {
            c
        } else {
            '_'
        }
    };
    name.chars().take(NAME_BYTES_MAX).map(plain).collect()
}
