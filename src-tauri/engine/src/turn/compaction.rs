//! Making room in a conversation that outgrew its model: what is left out, and what is summed up.
//!
//! Invariant: nothing is deleted and nothing is left out in silence. The plan is a pure function of the conversation;
//! the log says what came of it, and `context` tells the model exactly that.

use protocol::{Failure, Image, ItemBody, ItemId, ToolOutcome, ToolState, TurnId, TurnView};

use super::machine::Compaction;
use crate::{
    Harness, context,
    gateway::{Message, Room},
    tools::FLOOR_CHARS,
};

/// Shares of what fits, in percent. What is left is for the summary itself and the answer.
const RECENT_PERCENT: u64 = 25;
const SOURCE_PERCENT: u64 = 75;
const RUNNING_PERCENT: u64 = 50;

/// What fits, in percent of what did not, when the server does not say.
const UNKNOWN_PERCENT: u64 = 50;

/// Of a token, as in most prose.
const BYTES_PER_TOKEN: u64 = 4;

/// What can be left out of a conversation.
#[derive(Debug, PartialEq)]
pub(super) struct Plan {
    /// Turns up to here are summed up; absent: none.
    through: Option<TurnId>,
    /// Results of the running turn that are left out.
    set_aside: Vec<ItemId>,
    /// The turns to be summed up, in words.
    source: String,
    /// Bytes of them that are too many even for that.
    unread: usize,
}

/// What to leave out. The newest of the older turns stay as they are while a quarter of the room holds them, the others
/// are summed up; bulky results of the running turn are set aside, the oldest first, until half of the room holds it.
/// `None` if there is nothing.
pub(super) fn plan(turns: &[TurnView], running: TurnId, room: Option<Room>) -> Option<Plan> {
    let whole = bytes(turns);
    let fits = match room {
        Some(Room { needed, there_is }) if needed > 0 => {
            whole.saturating_mul(there_is.min(needed)) / needed
        }
        Some(_) | None => percent(whole, UNKNOWN_PERCENT),
    };
    let split = turns.partition_point(|turn| turn.turn < running);
    let (older, this) = turns.split_at(split);
    let (set_aside, this_bytes) = left_out(turns, this, percent(fits, RUNNING_PERCENT));
    let spare = fits.saturating_sub(this_bytes);
    let recent = recent(older, percent(fits, RECENT_PERCENT).min(spare));
    let summed_up = older.get(..older.len() - recent).unwrap_or(older);
    // What a summary stands for already is summed up again with it, not instead of it.
    let through = summed_up
        .last()
        .map(|turn| turn.turn)
        .filter(|through| context::summed_up(turns).is_none_or(|before| before < *through));
    let (source, unread) = match through {
        Some(_) => bounded(
            told(&context::messages_of(turns, summed_up, &Harness::default())),
            percent(fits, SOURCE_PERCENT),
        ),
        None => (String::new(), 0),
    };
    (through.is_some() || !set_aside.is_empty()).then_some(Plan {
        through,
        set_aside,
        source,
        unread,
    })
}

fn percent(of: u64, percent: u64) -> u64 {
    of.saturating_mul(percent) / 100
}

/// As long as they are to the model: an image is as much as the text that takes the same room.
fn bytes(turns: &[TurnView]) -> u64 {
    let messages = context::messages(turns);
    let shown = messages.iter().flat_map(Message::images);
    let tokens: u64 = shown.map(Image::tokens_about).sum();
    let text = told(&messages).len() as u64;
    text.saturating_add(tokens.saturating_mul(BYTES_PER_TOKEN))
}

/// How many of the newest turns fit.
fn recent(older: &[TurnView], room: u64) -> usize {
    let mut sum = 0;
    older
        .iter()
        .rev()
        .take_while(|turn| {
            sum += bytes(std::slice::from_ref(*turn));
            sum <= room
        })
        .count()
}

/// The results of the running turn to leave out, and how long the turn is without them.
fn left_out(turns: &[TurnView], this: &[TurnView], room: u64) -> (Vec<ItemId>, u64) {
    let already = context::set_aside(turns);
    let mut long = bytes(this);
    let mut set_aside = Vec::new();
    let bulky: Vec<(ItemId, u64)> = this
        .iter()
        .flat_map(|turn| &turn.items)
        .filter(|item| !already.contains(&item.item))
        .filter_map(|item| Some((item.item, bulk(&item.body)?)))
        .collect();
    // The newest result is what the model works on: it stays, unless nothing else can be left out.
    let keep = usize::from(bulky.len() > 1);
    for (item, bulk) in bulky.iter().take(bulky.len() - keep) {
        if long <= room {
            break;
        }
        long = long.saturating_sub(*bulk);
        set_aside.push(*item);
    }
    (set_aside, long)
}

/// The bytes of a result that may be left out: small ones and errors always pass whole.
fn bulk(body: &ItemBody) -> Option<u64> {
    match body {
        ItemBody::ToolCall {
            state:
                ToolState::Finished {
                    outcome: ToolOutcome::Succeeded { output },
                    ..
                },
            ..
        } if output.chars().count() > FLOOR_CHARS => Some(output.len() as u64),
        ItemBody::ToolCall { .. }
        | ItemBody::UserMessage { .. }
        | ItemBody::Text { .. }
        | ItemBody::Compacted { .. }
        | ItemBody::Unsupported { .. } => None,
    }
}

/// Messages as one text.
fn told(messages: &[Message]) -> String {
    let mut text = String::new();
    for message in messages {
        let (who, said) = match message {
            Message::System { text } => ("Before", text.clone()),
            Message::User { text, images } => {
                let shown = images.iter().map(|image| format!("[shows {}]", image.name));
                let said: Vec<String> = shown.chain([text.clone()]).collect();
                ("User", said.join(" "))
            }
            Message::Assistant { text, calls, .. } => {
                let calls = calls
                    .iter()
                    .map(|call| format!("[calls {} {}]", call.name, call.arguments));
                let said: Vec<String> = std::iter::once(text.clone()).chain(calls).collect();
                ("Assistant", said.join(" "))
            }
            Message::ToolResult { name, text, .. } => ("Result", format!("{name}: {text}")),
        };
        text.push_str(who);
        text.push_str(": ");
        text.push_str(said.trim());
        text.push_str("\n\n");
    }
    text
}

/// The text, or its first quarter and its end, with the number of bytes between them.
fn bounded(text: String, limit: u64) -> (String, usize) {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if text.len() <= limit {
        return (text, 0);
    }
    let head = text.floor_char_boundary(limit / 4);
    let tail = text.ceil_char_boundary(text.len() - (limit - limit / 4));
    let unread = tail.saturating_sub(head);
    let (Some(first), Some(last)) = (text.get(..head), text.get(tail..)) else {
        return (text, 0);
    };
    (
        format!("{first}\n[{unread} bytes are left out here]\n{last}"),
        unread,
    )
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
        let images = Vec::new();
        Some(vec![Message::User { text, images }])
    }

    /// Whether it would not make room.
    pub(super) fn is_no_shorter(&self, summary: &str) -> bool {
        summary.len() >= self.source.len().saturating_add(self.unread)
    }

    /// What is told from now on. A summary of a part says so.
    pub(super) fn with_summary(self, mut summary: String) -> Compaction {
        if self.unread > 0 && !summary.is_empty() {
            summary.push_str(&format!(
                "\n\n[{} bytes of the conversation were too long to be read for this summary.]",
                self.unread
            ));
        }
        Compaction {
            through: self.through,
            summary,
            set_aside: self.set_aside,
        }
    }
}

/// The conversation is its last message alone, and that is too long.
pub(super) fn nothing_to_leave_out(overflow: Failure) -> Failure {
    add(
        overflow,
        "There is nothing older that could be summed up; a shorter message or a larger context may help.",
    )
}

/// The summary did not come to its end, so it is not used.
pub(super) fn cut_summary(overflow: Failure) -> Failure {
    add(
        overflow,
        "The model was asked to sum up the older part, but its summary was cut or empty, so nothing was left out.",
    )
}

/// The summary is no shorter than what it stands for, so it is not used.
pub(super) fn long_summary(overflow: Failure) -> Failure {
    add(
        overflow,
        "The model was asked to sum up the older part, but its summary was no shorter, so nothing was left out.",
    )
}

/// The model could not be asked for a summary.
pub(super) fn no_summary(overflow: Failure, why: &Failure) -> Failure {
    let words = format!("The older part could not be summed up: {}", why.message);
    add(overflow, &words)
}

fn add(failure: Failure, words: &str) -> Failure {
    Failure {
        message: format!("{} {words}", failure.message),
        ..failure
    }
}

#[cfg(test)]
mod tests;
