//! How much room a turn will probably take that was never drawn. A guess: whoever draws it learns better.

use protocol::{Image, ItemBody, Part, TurnView};

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
        ItemBody::UserMessage { text, images, .. } => {
            MESSAGE_PX + text_px(text) + images_px(images)
        }
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

/// As `Pictures` draws them: one alone, or small ones beside each other.
fn images_px(images: &[Image]) -> f64 {
    match images {
        [] => 0.0,
        [image] => f64::from(image.height).min(320.0),
        several => 190.0 * several.len().div_ceil(3) as f64,
    }
}
