//! Making room in a conversation that outgrew its model: what is left out, and what is summed up.
//!
//! Invariant: nothing is deleted and nothing is left out in silence. The plan is a pure function of the conversation;
//! the log says what came of it, and `context` tells the model exactly that.

use protocol::{Failure, ItemBody, ItemId, ToolOutcome, ToolState, TurnId, TurnView};

use super::machine::Compaction;
use crate::{context, gateway::Message, tools::FLOOR_CHARS};

/// The longest conversation that is sent to be summed up, in bytes, when the server did not say how much it takes.
const SOURCE_BYTES: usize = 8 * 1024;

/// A rough word for how many bytes a token is; only used to stay well below a limit the server named.
const BYTES_PER_TOKEN: usize = 3;

/// What can be left out of a conversation.
#[derive(Debug, PartialEq)]
pub(super) struct Plan {
    /// Turns up to here are summed up; absent: none.
    through: Option<TurnId>,
    /// Results that are left out.
    set_aside: Vec<ItemId>,
    /// The turns to be summed up, in words.
    source: String,
}

/// Everything before the running turn is summed up, and bulky results of the running turn are set aside, the last one
/// excepted when there are others. `None` if there is neither.
pub(super) fn plan(turns: &[TurnView], running: TurnId, overflow: &Failure) -> Option<Plan> {
    let _ = overflow;
    let older: Vec<&TurnView> = turns.iter().filter(|turn| turn.turn < running).collect();
    let through = older.last().map(|turn| turn.turn);
    let source = bounded(&told(&older));
    let already = context::set_aside(turns);
    let mut set_aside: Vec<ItemId> = turns
        .iter()
        .filter(|turn| turn.turn >= running)
        .flat_map(|turn| &turn.items)
        .filter(|item| is_bulky(&item.body) && !already.contains(&item.item))
        .map(|item| item.item)
        .collect();
    if through.is_some() || set_aside.len() > 1 {
        // The newest result is what the model works on; it stays while there is anything else to leave out.
        set_aside.pop();
    }
    (through.is_some() || !set_aside.is_empty()).then_some(Plan {
        through,
        set_aside,
        source,
    })
}

fn is_bulky(body: &ItemBody) -> bool {
    match body {
        ItemBody::ToolCall {
            state:
                ToolState::Finished {
                    outcome: ToolOutcome::Succeeded { output },
                    ..
                },
            ..
        } => output.chars().count() > FLOOR_CHARS,
        ItemBody::ToolCall { .. }
        | ItemBody::UserMessage { .. }
        | ItemBody::Text { .. }
        | ItemBody::Compacted { .. }
        | ItemBody::Unsupported { .. } => false,
    }
}

/// The older turns as one text.
fn told(turns: &[&TurnView]) -> String {
    let turns: Vec<TurnView> = turns.iter().map(|turn| (*turn).clone()).collect();
    let mut text = String::new();
    for message in context::messages(&turns) {
        let (who, said) = match message {
            Message::System { text } => ("Summary so far", text),
            Message::User { text } => ("User", text),
            Message::Assistant { text, calls } => {
                let calls: Vec<String> = calls
                    .iter()
                    .map(|call| format!("[calls {} {}]", call.name, call.arguments))
                    .collect();
                ("Assistant", format!("{text}{}", calls.join(" ")))
            }
            Message::ToolResult { name, text, .. } => {
                ("Result of a tool", format!("{name}: {text}"))
            }
        };
        text.push_str(who);
        text.push_str(": ");
        text.push_str(&said);
        text.push_str("\n\n");
    }
    text
}

fn bounded(text: &str) -> String {
    text.to_owned()
}

impl Plan {
    /// What the model is asked for a summary; `None` if there is nothing to sum up.
    pub(super) fn request(&self) -> Option<Vec<Message>> {
        self.through?;
        let text = format!(
            "Sum up this conversation for yourself, so that you can go on with it knowing only your summary. Keep names, \
             numbers, decisions, open questions and what was done with tools. Answer with the summary alone.\n\n{}",
            self.source
        );
        Some(vec![Message::User { text }])
    }

    pub(super) fn with_summary(self, summary: String) -> Compaction {
        let Self {
            through, set_aside, ..
        } = self;
        Compaction {
            through,
            summary,
            set_aside,
        }
    }
}

/// The conversation is its last message alone, and that is too long.
pub(super) fn nothing_to_leave_out(overflow: Failure) -> Failure {
    Failure {
        message: format!("{} There is nothing older to sum up.", overflow.message),
        ..overflow
    }
}

/// The summary did not come to its end, so it is not used.
pub(super) fn cut_summary(overflow: Failure) -> Failure {
    Failure {
        message: format!(
            "{} The model was asked to sum up the older part, but its summary was cut or empty.",
            overflow.message
        ),
        ..overflow
    }
}

/// The model could not be asked for a summary.
pub(super) fn no_summary(overflow: Failure, why: &Failure) -> Failure {
    Failure {
        message: format!(
            "{} It could not be summed up either: {}",
            overflow.message, why.message
        ),
        ..overflow
    }
}
