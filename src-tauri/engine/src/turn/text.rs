//! Text on its way to the log: joined, so that a token does not cost a commit.
//!
//! Invariant: text leaves in the order it came, before any other event of its turn, and an item's text grows at its end.
//! The first fragment leaves at once, the following at most every [`TEXT_FLUSH`] or [`TEXT_FLUSH_BYTES`].

use std::time::Duration;

use protocol::{EventBody, ItemId, Part};

/// Two display frames: reads as immediate, and costs one small commit.
const TEXT_FLUSH: Duration = Duration::from_millis(33);

/// A burst is written in pieces of this size, so that no event is large.
const TEXT_FLUSH_BYTES: usize = 4 * 1024;

/// Largest text of one event: a provider that sends a whole answer in one frame still gives readable rows.
const EVENT_BYTES_MAX: usize = 32 * 1024;

#[derive(Debug)]
pub(super) struct TextBuffer {
    open: Option<Open>,
    flushed_at: Option<Duration>,
}

#[derive(Debug)]
struct Open {
    item: ItemId,
    part: Part,
    /// Bytes of the item that have left already.
    offset: u64,
    text: String,
}

impl TextBuffer {
    pub(super) fn new() -> Self {
        Self {
            open: None,
            flushed_at: None,
        }
    }

    /// Adds text; what was buffered of another item leaves into `out`.
    pub(super) fn push(&mut self, item: ItemId, part: Part, text: &str, out: &mut Vec<EventBody>) {
        match &mut self.open {
            Some(open) if open.item == item => open.text.push_str(text),
            Some(_) | None => {
                self.drain_into(out);
                self.open = Some(Open {
                    item,
                    part,
                    offset: 0,
                    text: text.to_owned(),
                });
            }
        }
    }

    /// Whether the text should leave now.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        self.open
            .as_ref()
            .is_some_and(|open| open.text.len() >= TEXT_FLUSH_BYTES)
            || self.due_at(now).is_some_and(|at| at <= now)
    }

    /// When the buffered text is to leave; `None` if there is none.
    pub(super) fn due_at(&self, now: Duration) -> Option<Duration> {
        let open = self.open.as_ref()?;
        if open.text.is_empty() {
            return None;
        }
        Some(
            self.flushed_at
                .map_or(now, |at| at.saturating_add(TEXT_FLUSH)),
        )
    }

    /// Notes that text was committed.
    pub(super) fn flushed_at(&mut self, now: Duration) {
        self.flushed_at = Some(now);
    }

    /// Lets everything buffered leave.
    pub(super) fn drain_into(&mut self, out: &mut Vec<EventBody>) {
        let Some(open) = &mut self.open else { return };
        let text = std::mem::take(&mut open.text);
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.floor_char_boundary(EVENT_BYTES_MAX));
            out.push(EventBody::TextAppended {
                item: open.item,
                part: open.part,
                offset: open.offset,
                text: piece.to_owned(),
            });
            open.offset += piece.len() as u64;
            rest = after;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn drained(buffer: &mut TextBuffer) -> Vec<(u64, u64, String)> {
        let mut out = Vec::new();
        buffer.drain_into(&mut out);
        out.into_iter()
            .map(|body| match body {
                EventBody::TextAppended {
                    item, offset, text, ..
                } => (item.get(), offset, text),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn the_first_fragment_is_due_at_once_and_the_next_after_two_frames() {
        let (mut buffer, mut out) = (TextBuffer::new(), Vec::new());
        buffer.push(ItemId::FIRST, Part::Answer, "a", &mut out);
        assert!(buffer.is_due(ms(5)));
        drained(&mut buffer);
        buffer.flushed_at(ms(5));
        buffer.push(ItemId::FIRST, Part::Answer, "b", &mut out);
        assert!(!buffer.is_due(ms(37)));
        assert!(buffer.is_due(ms(38)));
        assert_eq!(out, []);
    }

    #[test]
    fn a_burst_is_due_before_its_time() {
        let (mut buffer, mut out) = (TextBuffer::new(), Vec::new());
        buffer.flushed_at(ms(0));
        buffer.push(
            ItemId::FIRST,
            Part::Answer,
            &"x".repeat(TEXT_FLUSH_BYTES),
            &mut out,
        );
        assert!(buffer.is_due(ms(1)));
    }

    #[test]
    fn offsets_count_bytes_and_no_character_is_cut() {
        let (mut buffer, mut out) = (TextBuffer::new(), Vec::new());
        let text = "語".repeat(EVENT_BYTES_MAX / 3 + 10);
        buffer.push(ItemId::FIRST, Part::Answer, &text, &mut out);
        let pieces = drained(&mut buffer);
        assert_eq!(pieces.len(), 2);
        assert_eq!(pieces[1].1, pieces[0].2.len() as u64);
        assert_eq!(
            pieces.iter().map(|p| p.2.as_str()).collect::<String>(),
            text
        );
    }

    #[test]
    fn text_of_another_item_lets_the_first_leave_before_it() {
        let (mut buffer, mut out) = (TextBuffer::new(), Vec::new());
        buffer.push(ItemId::new(1), Part::Reasoning, "hm", &mut out);
        buffer.push(ItemId::new(2), Part::Answer, "so", &mut out);
        assert_eq!(out.len(), 1);
        assert_eq!(drained(&mut buffer), [(2, 0, "so".to_owned())]);
    }
}
