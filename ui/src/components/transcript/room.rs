//! How much room a turn will probably take that was never drawn. A guess: whoever draws it learns better.

use protocol::{ItemBody, Part, TurnView};

/// Letters of a line of text, and its height, in the widest column.
const LINE_LETTERS: usize = 92;
const LINE_PX: f64 = 25.6;
/// Around a message: its own space, and the block of the reader's words.
const MESSAGE_PX: f64 = 56.0;
/// What is folded to a line.
const FOLDED_PX: f64 = 40.0;
/// Below the answer, and the space before the next turn.
const FOOT_PX: f64 = 72.0;

pub(super) fn likely(view: &TurnView) -> f64 {
    let items = view.items.iter().map(|item| match &item.body {
        ItemBody::UserMessage { text, .. } => MESSAGE_PX + text_px(text),
        ItemBody::Text {
            part: Part::Answer,
            text,
            ..
        } => text_px(text),
        ItemBody::Text {
            part: Part::Reasoning,
            ..
        }
        | ItemBody::ToolCall { .. }
        | ItemBody::Compacted { .. }
        | ItemBody::Unsupported { .. } => FOLDED_PX,
    });
    FOOT_PX + items.sum::<f64>()
}

fn text_px(text: &str) -> f64 {
    let lines: usize = text.lines().map(|line| 1 + line.len() / LINE_LETTERS).sum();
    lines as f64 * LINE_PX
}
