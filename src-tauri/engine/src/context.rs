//! What the model is told: a pure function of the conversation's turns, the same for the same turns, growing at its end.
//!
//! Invariant: a turn that failed, was stopped or was interrupted is told once, as what it is, and never as a finished
//! answer. Every call has exactly one result, in the order of the calls.
//! Reasoning is not sent back: servers differ in what they accept, and none needs it.

use std::collections::{HashMap, HashSet};

use protocol::{
    Effect, ItemBody, ItemId, ModelOptions, Part, StopReason, ToolOutcome, ToolState, TurnId,
    TurnOutcome, TurnView,
};

use crate::{
    Harness,
    gateway::{CallMade, Message},
    mutant::mutated,
};

/// The messages of these turns, oldest first.
pub(crate) fn messages(turns: &[TurnView]) -> Vec<Message> {
    messages_of(turns, turns, &Harness::default())
}

/// The messages behind the instructions that the options have, if they have some. One message of instructions at most
/// comes of it: templates refuse a second one.
pub(crate) fn instructed(options: &ModelOptions, mut messages: Vec<Message>) -> Vec<Message> {
    let Some(system) = &options.system else {
        return messages;
    };
    match messages.first_mut() {
        Some(Message::System { text }) => *text = format!("{system}\n\n{text}"),
        Some(Message::User { .. } | Message::Assistant { .. } | Message::ToolResult { .. })
        | None => {
            let text = system.clone();
            messages.insert(0, Message::System { text });
        }
    }
    messages
}

/// The messages of some turns of a conversation: what stands for the summed up ones, and the others among `told`.
pub(crate) fn messages_of(
    turns: &[TurnView],
    told: &[TurnView],
    harness: &Harness,
) -> Vec<Message> {
    let parts = by_turns(turns, told, harness);
    parts.into_iter().flat_map(|(_, said)| said).collect()
}

/// The same, apart: first what stands before all turns, if anything does, then each turn's messages.
pub(crate) fn by_turns(
    turns: &[TurnView],
    told: &[TurnView],
    harness: &Harness,
) -> Vec<(Option<TurnId>, Vec<Message>)> {
    let mut out = Vec::new();
    let before = summary_message(turns);
    if !before.is_empty() {
        out.push((None, before));
    }
    let summed_up = summed_up(turns);
    let set_aside = set_aside(turns);
    for turn in told {
        if summed_up.is_none_or(|through| turn.turn > through) {
            let mut said = Vec::new();
            tell(turn, &set_aside, harness, &mut said);
            out.push((Some(turn.turn), said));
        }
    }
    out
}

/// The turn up to which a summary stands for the conversation.
pub(crate) fn summed_up(turns: &[TurnView]) -> Option<TurnId> {
    summary(turns).0
}

/// The newest summary, as the model is told it; nothing if there is none.
fn summary_message(turns: &[TurnView]) -> Vec<Message> {
    match summary(turns).1 {
        "" => Vec::new(),
        summary => vec![Message::System {
            text: format!("Summary of this conversation so far:\n\n{summary}"),
        }],
    }
}

/// The turn up to which the newest summary stands for the conversation, and the summary.
fn summary(turns: &[TurnView]) -> (Option<TurnId>, &str) {
    let items = turns.iter().rev().flat_map(|turn| turn.items.iter().rev());
    let mut newest = items.filter_map(|item| match &item.body {
        ItemBody::Compacted {
            through: Some(through),
            summary,
            ..
        } => Some((Some(*through), summary.as_str())),
        ItemBody::Compacted { through: None, .. }
        | ItemBody::UserMessage { .. }
        | ItemBody::Text { .. }
        | ItemBody::ToolCall { .. }
        | ItemBody::Unsupported { .. } => None,
    });
    newest.next().unwrap_or((None, ""))
}

/// The calls whose results are left out.
pub(crate) fn set_aside(turns: &[TurnView]) -> HashSet<ItemId> {
    let items = turns.iter().flat_map(|turn| &turn.items);
    items
        .filter_map(|item| match &item.body {
            ItemBody::Compacted { set_aside, .. } => Some(set_aside),
            ItemBody::UserMessage { .. }
            | ItemBody::Text { .. }
            | ItemBody::ToolCall { .. }
            | ItemBody::Unsupported { .. } => None,
        })
        .flatten()
        .copied()
        .collect()
}

/// One answer of a turn: words, then calls, then their results.
#[derive(Default)]
struct Answer {
    text: String,
    step: u32,
    calls: Vec<CallMade>,
    results: Vec<Message>,
}

impl Answer {
    fn finish(&mut self, out: &mut Vec<Message>) {
        let Self {
            text,
            calls,
            results,
            ..
        } = std::mem::take(self);
        if !text.is_empty() || !calls.is_empty() {
            out.push(Message::Assistant {
                text,
                calls,
                verbatim: None,
            });
            out.extend(results);
        }
    }
}

fn tell(turn: &TurnView, set_aside: &HashSet<ItemId>, harness: &Harness, out: &mut Vec<Message>) {
    let mut answer = Answer::default();
    for item in &turn.items {
        match &item.body {
            ItemBody::UserMessage { text, images, .. } => {
                answer.finish(out);
                let images = match images {
                    _ if mutated!(harness, ImagesForgotten) => Vec::new(),
                    images => images.clone(),
                };
                out.push(Message::User {
                    text: text.clone(),
                    images,
                });
            }
            ItemBody::Text {
                part: Part::Answer,
                text,
                ..
            } => {
                if !answer.calls.is_empty() {
                    answer.finish(out);
                }
                answer.text.push_str(text);
            }
            ItemBody::ToolCall {
                name,
                arguments,
                call_id: provider_id,
                step,
                state,
                ..
            } => {
                if !answer.calls.is_empty() && answer.step != *step {
                    answer.finish(out);
                }
                answer.step = *step;
                // Ours, not the provider's: those may be missing, or repeat between steps.
                let call_id = match provider_id {
                    Some(theirs) if mutated!(harness, KeyByProviderId) => theirs.clone(),
                    Some(_) | None => call_id(item.item),
                };
                answer.calls.push(CallMade {
                    call_id: call_id.clone(),
                    name: sendable(name),
                    arguments: object_or_empty(arguments),
                });
                answer.results.push(Message::ToolResult {
                    call_id,
                    name: sendable(name),
                    text: match result_text(state) {
                        text if set_aside.contains(&item.item) => left_out(&text, harness),
                        text => text,
                    },
                });
            }
            ItemBody::Text {
                part: Part::Reasoning,
                ..
            }
            | ItemBody::Compacted { .. }
            | ItemBody::Unsupported { .. } => {}
        }
    }
    if let Some(note) = turn.outcome.as_ref().and_then(note) {
        if !answer.calls.is_empty() {
            answer.finish(out);
        }
        if !answer.text.is_empty() {
            answer.text.push_str("\n\n");
        }
        answer.text.push_str(&note);
    }
    answer.finish(out);
}

/// Gives answers of the running turn the blocks they came in, which some servers want back as they were. By the name of
/// an answer's first call.
pub(crate) fn put_back(messages: &mut [Message], blocks: &HashMap<String, String>) {
    for message in messages {
        match message {
            Message::Assistant {
                calls, verbatim, ..
            } => {
                let first = calls.first();
                *verbatim = first.and_then(|call| blocks.get(&call.call_id)).cloned();
            }
            Message::System { .. } | Message::User { .. } | Message::ToolResult { .. } => {}
        }
    }
}

/// What a call is named in a request.
pub(crate) fn call_id(item: ItemId) -> String {
    format!("call_{item}")
}

/// A name as servers take it back. One the model left out, or made of other signs, would be refused in every later request.
fn sendable(name: &str) -> String {
    if name.is_empty() {
        return "unnamed".to_owned();
    }
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.') {
            c
        } else {
            '_'
        }
    };
    name.chars().map(plain).collect()
}

/// Arguments that no server would take back are not sent back; the result says what was wrong with them.
fn object_or_empty(arguments: &str) -> String {
    match serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(arguments) {
        Ok(_) => arguments.to_owned(),
        Err(_) => "{}".to_owned(),
    }
}

/// What stands for a result that was left out: that the tool ran, and how much it said.
fn left_out(text: &str, harness: &Harness) -> String {
    if mutated!(harness, PlaceholderAsResult) {
        return String::new();
    }
    format!(
        "[The tool ran. Its result of {} characters was left out here to make room; call it again if you need it.]",
        text.chars().count()
    )
}

fn result_text(state: &ToolState) -> String {
    match state {
        ToolState::Finished {
            outcome, effect, ..
        } => match (outcome, effect) {
            (ToolOutcome::Succeeded { output }, _) if output.is_empty() => {
                "The tool ran and said nothing.".to_owned()
            }
            (ToolOutcome::Succeeded { output }, _) => output.clone(),
            (ToolOutcome::Failed { message }, _) => format!("Error: {message}"),
            (ToolOutcome::Denied, _) => {
                "The user did not allow this call; it was not run.".to_owned()
            }
            (ToolOutcome::NotRun { why }, _) => format!("Not run: {why}."),
            (ToolOutcome::Abandoned, Effect::None) => {
                "The turn ended before this call was run.".to_owned()
            }
            (ToolOutcome::Abandoned, Effect::Committed | Effect::Unknown) => {
                "The turn ended while this call ran; whether it took effect is not known."
                    .to_owned()
            }
        },
        ToolState::Requested | ToolState::Running { .. } => {
            "This call has no result yet.".to_owned()
        }
    }
}

/// What the model is told of a turn that did not end by itself.
fn note(outcome: &TurnOutcome) -> Option<String> {
    match outcome {
        TurnOutcome::Completed { stop } => match stop {
            StopReason::EndOfTurn | StopReason::Unknown => None,
            StopReason::Length => Some("[This answer was cut at the token limit.]".to_owned()),
            StopReason::Filter => Some("[This answer was cut by a content filter.]".to_owned()),
            StopReason::StepLimit => Some("[This answer reached the limit of steps.]".to_owned()),
        },
        TurnOutcome::Failed { failure } => Some(format!(
            "[This answer failed before it was complete: {:?}.]",
            failure.code
        )),
        TurnOutcome::Cancelled { .. } => Some("[The user stopped this answer here.]".to_owned()),
        TurnOutcome::Interrupted { .. } => {
            Some("[This answer was interrupted here and is not complete.]".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_never_sent_back_under_a_name_that_servers_refuse() {
        assert_eq!(sendable(""), "unnamed");
        assert_eq!(sendable("current_time"), "current_time");
        assert_eq!(sendable("weather in Zürich"), "weather_in_Z_rich");
    }

    #[test]
    fn arguments_that_are_no_object_are_sent_back_as_none() {
        assert_eq!(object_or_empty(r#"{"a":1}mul{"b":2}"#), "{}");
        assert_eq!(object_or_empty(r#"{"a":1}"#), r#"{"a":1}"#);
    }
}
