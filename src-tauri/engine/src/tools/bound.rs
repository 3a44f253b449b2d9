//! How much of a tool's result is given: all of a short one, head and tail of a long one with an honest notice between.
//!
//! Invariant: what is left out is said in the text itself, with the fact that the tool ran, and the cut never falls
//! inside a character. The same text gives the same result, in however many pieces it came, and never more than a few
//! pieces of it are in memory.
//! Not here: errors and headings, which are short by construction and always given whole.

/// Results up to this many characters pass whole, whatever else changes here.
pub(crate) const FLOOR_CHARS: usize = 2_048;
/// A longer result is cut: a quarter of what a small model's context of 16k tokens holds.
pub(super) const LIMIT_BYTES: usize = 16 * 1_024;
/// What is kept of the beginning, where most files say what they are …
const HEAD_BYTES: usize = 12 * 1_024;
/// … and of the end, where logs and listings say how it came out.
const TAIL_BYTES: usize = 4 * 1_024;

const _: () = assert!(
    FLOOR_CHARS * 4 <= LIMIT_BYTES,
    "a character has up to 4 bytes"
);
const _: () = assert!(HEAD_BYTES + TAIL_BYTES <= LIMIT_BYTES);

/// How the model gets at what was left out.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rest {
    /// By lines; the text begins with this one.
    FromLine(u64),
    /// In another way.
    Words(&'static str),
}

/// Takes a result piece by piece.
#[derive(Debug)]
pub(super) struct Bound {
    rest: Rest,
    head: String,
    /// What came after the head; the older part of a long one is forgotten.
    tail: Option<String>,
    chars: u64,
    line_ends: u64,
}

impl Bound {
    pub(super) const fn new(rest: Rest) -> Self {
        Self {
            rest,
            head: String::new(),
            tail: None,
            chars: 0,
            line_ends: 0,
        }
    }

    pub(super) fn push(&mut self, piece: &str) {
        self.chars += chars(piece);
        self.line_ends += line_ends(piece);
        match &mut self.tail {
            None => {
                self.head.push_str(piece);
                if self.head.len() > LIMIT_BYTES {
                    self.tail = Some(self.head.split_off(head_cut(&self.head)));
                }
            }
            Some(tail) => tail.push_str(piece),
        }
        if let Some(tail) = &mut self.tail
            && tail.len() > 4 * TAIL_BYTES
        {
            // One character more than will be given, which tells whether the cut falls on a line's beginning.
            let from = tail.floor_char_boundary(tail.len() - TAIL_BYTES - 1);
            tail.drain(..from);
        }
    }

    /// Ends the text with a line end, so that something may follow it on a line of its own.
    pub(super) fn end_line(&mut self) {
        let last = self.tail.as_ref().unwrap_or(&self.head);
        if !last.is_empty() && !last.ends_with('\n') {
            self.push("\n");
        }
    }

    pub(super) fn finish(self) -> String {
        let Self {
            rest,
            head,
            tail,
            chars: all,
            line_ends: ends,
        } = self;
        let Some(mut tail) = tail else {
            return head;
        };
        let from = tail_cut(&tail);
        let at_line_start = tail
            .get(..from)
            .is_some_and(|before| before.ends_with('\n'));
        tail.drain(..from);
        let left_out = all - chars(&head) - chars(&tail);
        let whole_lines = head.ends_with('\n') && at_line_start;
        let (before, after) = (line_ends(&head), ends - line_ends(&tail));
        let lines_left_out = after - before;
        let (which, how) = match rest {
            Rest::FromLine(first) if whole_lines => {
                let (from, to) = (first + before, first + after - 1);
                let which = if from == to {
                    format!("line {from}")
                } else {
                    format!("lines {from} to {to}")
                };
                (which, format!("Call again with from_line {from} for them."))
            }
            Rest::FromLine(first) => {
                let (from, to) = (first + before, first + after);
                let which = if from == to {
                    format!("a part of line {from}")
                } else {
                    format!("from within line {from} to within line {to}")
                };
                let how = format!(
                    "A line this long cannot be given whole; from_line {} gives what follows it.",
                    from + 1
                );
                (which, how)
            }
            Rest::Words(how) => (format!("{lines_left_out} lines"), how.to_owned()),
        };
        let gap = if head.ends_with('\n') { "" } else { "\n" };
        format!(
            "{head}{gap}[Not everything is shown: the tool ran, but its result is long. Left out here: {left_out} \
             characters ({which}). {how}]\n{tail}"
        )
    }
}

/// After the last line that the head holds whole; inside a line only if that would waste half of the room.
fn head_cut(text: &str) -> usize {
    let most = text.floor_char_boundary(HEAD_BYTES);
    text.get(..most)
        .and_then(|head| head.rfind('\n'))
        .map(|end| end + 1)
        .filter(|cut| *cut >= HEAD_BYTES / 2)
        .unwrap_or(most)
}

/// At the first line that the tail holds whole, by the same rule.
fn tail_cut(text: &str) -> usize {
    let least = text.ceil_char_boundary(text.len().saturating_sub(TAIL_BYTES));
    let before = text.floor_char_boundary(least.saturating_sub(1));
    text.get(before..)
        .and_then(|tail| tail.find('\n'))
        .map(|end| before + end + 1)
        .filter(|cut| text.len() - cut >= TAIL_BYTES / 2)
        .unwrap_or(least)
}

pub(super) fn line_ends(text: &str) -> u64 {
    text.matches('\n').count() as u64
}

fn chars(text: &str) -> u64 {
    text.chars().count() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bound(text: &str) -> String {
        let mut bound = Bound::new(Rest::FromLine(1));
        bound.push(text);
        bound.finish()
    }

    #[test]
    fn everything_up_to_the_floor_passes_whole_in_any_script() {
        for c in ["a", "é", "語", "👍", "\n"] {
            let text = c.repeat(FLOOR_CHARS);
            assert_eq!(bound(&text), text);
        }
        let text = "x".repeat(LIMIT_BYTES);
        assert_eq!(bound(&text), text, "and more, as long as it fits");
    }

    #[test]
    fn a_long_text_keeps_whole_lines_of_both_ends_and_says_which_it_left_out() {
        let text: String = (1..=2_000).map(|n| format!("line {n:04}\n")).collect();
        let given = bound(&text);
        let (head, rest) = given.split_once("[Not everything").unwrap();
        let (notice, tail) = rest.split_once("]\n").unwrap();
        assert!(text.starts_with(head) && text.ends_with(tail));
        assert!(head.ends_with('\n') && tail.starts_with("line "));
        let shown = head.lines().count() + tail.lines().count();
        let first = head.lines().count() + 1;
        let last = 2_000 - tail.lines().count();
        assert!(notice.contains("the tool ran"), "{notice}");
        assert!(
            notice.contains(&format!("lines {first} to {last}")),
            "{notice}"
        );
        assert!(notice.contains(&format!("from_line {first} ")), "{notice}");
        assert!(
            notice.contains(&format!("{} characters", (2_000 - shown) * 10)),
            "{notice}"
        );
    }

    #[test]
    fn one_endless_line_is_cut_between_characters() {
        let text = "👩‍👩‍👧‍👦é".repeat(10_000);
        let given = bound(&text);
        let (head, rest) = given.split_once("\n[Not everything").unwrap();
        let (notice, tail) = rest.split_once("]\n").unwrap();
        assert!(text.starts_with(head) && text.ends_with(tail));
        assert!(notice.contains("a part of line 1"), "{notice}");
        let left_out = text.chars().count() - head.chars().count() - tail.chars().count();
        assert!(
            notice.contains(&format!("{left_out} characters")),
            "{notice}"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn pieces_do_not_matter_and_the_counts_add_up(
            runs in proptest::collection::vec(
                (proptest::sample::select(vec!["a", "語", "\n", "a line\n"]), 1_usize..9_000),
                0..8,
            ),
            size in 1_usize..9_000,
        ) {
            let text: String = runs.into_iter().map(|(word, times)| word.repeat(times)).collect();
            let mut pieces = Bound::new(Rest::FromLine(1));
            let mut rest = text.as_str();
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(rest.ceil_char_boundary(size.min(rest.len())));
                pieces.push(piece);
                rest = after;
            }
            let given = pieces.finish();
            prop_assert_eq!(&given, &bound(&text));
            prop_assert!(given.len() <= LIMIT_BYTES + 400);
            if text.len() <= LIMIT_BYTES {
                prop_assert_eq!(given, text);
            } else {
                prop_assert!(given.contains("the tool ran"));
            }
        }
    }
}
