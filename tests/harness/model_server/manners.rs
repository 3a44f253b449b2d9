//! What a real server refuses, so that the scripted one does too: a conversation that is put wrongly would end well
//! here and nowhere else.

use serde_json::Value;

use super::Request;

/// Why an Anthropic server would refuse this request; nothing if it would not.
pub(super) fn breach(request: &Request) -> Option<String> {
    let body = request.json();
    let messages = body["messages"].as_array()?;
    if request.header("anthropic-version").is_none() {
        return Some("anthropic-version: header is required".to_owned());
    }
    if body["max_tokens"].as_u64().is_none_or(|max| max == 0) {
        return Some("max_tokens: Field required".to_owned());
    }
    let role = |at: usize| {
        messages
            .get(at)
            .and_then(|message| message["role"].as_str())
    };
    let named = body["tools"]
        .as_array()
        .is_some_and(|tools| !tools.is_empty());
    let system = body["system"].as_array().into_iter().flatten();
    if system.into_iter().any(is_blank) {
        return Some("system: text content blocks must be non-empty".to_owned());
    }
    for (at, message) in messages.iter().enumerate() {
        let wanted = ["user", "assistant"].get(at % 2).copied();
        if role(at) != wanted {
            return Some(format!("messages.{at}: roles must alternate"));
        }
        let blocks = message["content"]
            .as_array()
            .filter(|blocks| !blocks.is_empty());
        let Some(blocks) = blocks else {
            return Some(format!("messages.{at}: content must not be empty"));
        };
        if blocks.iter().any(is_blank) {
            return Some(format!("messages.{at}: text must not be blank"));
        }
        let calls = ids(blocks, "tool_use", "id");
        if !calls.is_empty() && !named {
            return Some("tools: required with tool_use blocks".to_owned());
        }
        let before = at.checked_sub(1).and_then(|at| messages.get(at));
        let before = before.and_then(|message| message["content"].as_array());
        let called = before.map(|blocks| ids(blocks, "tool_use", "id"));
        let results = ids(blocks, "tool_result", "tool_use_id");
        let first = blocks.iter().take(results.len());
        let lead = first.filter(|block| block["type"] == "tool_result").count();
        if called.unwrap_or_default() != results || lead != results.len() {
            return Some(format!(
                "messages.{at}: tool_use and tool_result must match"
            ));
        }
    }
    (role(messages.len().saturating_sub(1)) != Some("user"))
        .then(|| "messages: the last one must be the user's".to_owned())
}

fn is_blank(block: &Value) -> bool {
    block["type"] == "text"
        && block["text"]
            .as_str()
            .is_none_or(|text| text.trim().is_empty())
}

fn ids(blocks: &[Value], kind: &str, name: &str) -> Vec<String> {
    blocks
        .iter()
        .filter(|block| block["type"] == kind)
        .map(|block| block[name].as_str().unwrap_or_default().to_owned())
        .collect()
}
