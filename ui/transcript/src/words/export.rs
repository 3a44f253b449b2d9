//! A conversation as Markdown, for whoever takes it elsewhere.
//!
//! Invariant: everything a reader sees of the turns is in it, an unfinished end included; nothing is added but who speaks.

use protocol::{Image, ItemBody, MessagePurpose, Part, ToolOutcome, ToolState, TurnView};

use super::{compacted, image, scar, tool_state, unsupported};

/// All these turns, below the title.
pub fn as_markdown<'a>(title: &str, turns: impl Iterator<Item = &'a TurnView>) -> String {
    let mut parts = vec![format!("# {}", title.replace('\n', " ").trim())];
    for turn in turns {
        for item in &turn.items {
            parts.push(match &item.body {
                ItemBody::UserMessage {
                    text,
                    purpose: MessagePurpose::Said,
                    images,
                    ..
                } => format!("**You:**\n\n{}{text}", shown(images)),
                ItemBody::UserMessage {
                    purpose: MessagePurpose::Continue { .. },
                    ..
                } => "*(asked to go on)*".to_owned(),
                ItemBody::Text {
                    part: Part::Answer,
                    text,
                    ..
                } => format!("**{}:**\n\n{text}", turn.model.model),
                ItemBody::Text {
                    part: Part::Reasoning,
                    text,
                    ..
                } => format!("*Thoughts:*\n\n{}", quoted(text)),
                ItemBody::ToolCall {
                    name,
                    arguments,
                    state,
                    ..
                } => {
                    let head = format!("*{name}, {}:*", tool_state(state));
                    let mut call = format!("{head}\n\n{}", fenced(arguments));
                    if let Some(output) = output(state) {
                        call.push_str("\n\n");
                        call.push_str(&fenced(output));
                    }
                    call
                }
                ItemBody::Compacted { summary, .. } => {
                    format!("*({})*\n\n{}", compacted(summary), quoted(summary))
                }
                ItemBody::Unsupported { original_kind } => {
                    format!("*({})*", unsupported(original_kind))
                }
            });
        }
        parts.extend(
            turn.outcome
                .as_ref()
                .and_then(scar)
                .map(|end| format!("*({end})*")),
        );
    }
    let mut text = parts.join("\n\n");
    text.push('\n');
    text
}

fn output(state: &ToolState) -> Option<&str> {
    match state {
        ToolState::Requested | ToolState::Running { .. } => None,
        ToolState::Finished { outcome, .. } => match outcome {
            ToolOutcome::Succeeded { output } => Some(output),
            ToolOutcome::Failed { message } => Some(message),
            ToolOutcome::NotRun { why } => Some(why),
            ToolOutcome::Denied | ToolOutcome::Abandoned => None,
        },
    }
}

fn quoted(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| format!("> {line}")).collect();
    lines.join("\n")
}

/// In a fence that is longer than any within it.
fn fenced(text: &str) -> String {
    let longest = text
        .split(|letter| letter != '`')
        .map(str::len)
        .max()
        .unwrap_or_default();
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}\n{}\n{fence}", text.trim_end_matches('\n'))
}

/// What a message shows. The pictures themselves do not fit into text.
fn shown(images: &[Image]) -> String {
    let lines = images.iter().map(|shown| format!("*{}*\n\n", image(shown)));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use protocol::{
        CancelledBy, Effect, ItemId, ItemView, ModelRef, OpId, ProviderId, Timestamp, TurnId,
        TurnOutcome,
    };

    use super::*;

    fn turn(items: Vec<ItemBody>) -> TurnView {
        let at = Timestamp::from_millis(0);
        let items = items.into_iter().zip(1..).map(|(body, number)| ItemView {
            item: ItemId::new(number),
            began_at: at,
            changed_at: at,
            body,
        });
        TurnView {
            turn: TurnId::new(1),
            started_at: at,
            model: ModelRef {
                provider: ProviderId::from_bits(1),
                provider_name: "Ollama".to_owned(),
                model: "qwen3:8b".to_owned(),
            },
            items: items.collect(),
            attempts: Vec::new(),
            outcome: Some(TurnOutcome::Cancelled {
                by: CancelledBy::User,
            }),
            slept: Vec::new(),
            ended_at: Some(at),
        }
    }

    #[test]
    fn a_conversation_is_taken_along_with_its_tools_and_its_unfinished_end() {
        let said = turn(vec![
            ItemBody::UserMessage {
                text: "Read it".to_owned(),
                op: OpId::from_bits(1),
                purpose: MessagePurpose::Said,
                images: Vec::new(),
            },
            ItemBody::ToolCall {
                name: "read_file".to_owned(),
                arguments: "{}".to_owned(),
                call_id: None,
                step: 1,
                state: ToolState::Finished {
                    outcome: ToolOutcome::Succeeded {
                        output: "```\ncode\n```\n".to_owned(),
                    },
                    effect: Effect::None,
                    at: Timestamp::from_millis(0),
                },
                approval: None,
            },
            ItemBody::Text {
                part: Part::Answer,
                text: "It says".to_owned(),
                open: false,
            },
        ]);
        assert_eq!(
            as_markdown("Files", [&said].into_iter()),
            "# Files\n\n**You:**\n\nRead it\n\n*read_file, done:*\n\n```\n{}\n```\n\n\
             ````\n```\ncode\n```\n````\n\n**qwen3:8b:**\n\nIt says\n\n*(stopped)*\n"
        );
    }
}
