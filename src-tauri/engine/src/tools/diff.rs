//! What a write would change, for the user's eyes.
//!
//! Invariant: whatever is not shown is counted, and no character hides or reorders what stands beside it.

use similar::{ChangeTag, TextDiff, udiff::UnifiedHunkHeader};

/// Lines of a diff that a person reads before saying yes.
const LINES_MAX: usize = 400;
const BYTES_MAX: usize = 24 * 1_024;
/// A longer line is data, not text.
const LINE_CHARS_MAX: usize = 400;
/// More changed lines than this are shown as one block: comparing them takes time that grows with their square.
const COMPARED_LINES_MAX: usize = 4_000;

/// A unified diff, and how many of its lines were left out.
pub(super) fn diff(before: Option<&[u8]>, after: &str) -> (String, u64) {
    let mut shown = Shown::default();
    let Ok(before) = std::str::from_utf8(before.unwrap_or_default()) else {
        shown.line("The present content is not text; this would replace it:");
        block(&mut shown, "", after, LineEnds::AsUsual);
        return shown.end();
    };
    // Marked only where they differ: a file that stays as it is needs no marks.
    let ends = if before.is_empty() || before.contains("\r\n") == after.contains("\r\n") {
        LineEnds::AsUsual
    } else {
        LineEnds::Marked
    };
    if before.lines().count() + after.lines().count() > COMPARED_LINES_MAX {
        block(&mut shown, before, after, ends);
    } else {
        compared(&mut shown, before, after, ends);
    }
    shown.end()
}

/// Lines are as `\n` divides them, as the tools count them.
fn split(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

fn compared(shown: &mut Shown, before: &str, after: &str, ends: LineEnds) {
    let (before, after) = (split(before), split(after));
    let diff = TextDiff::from_slices(&before, &after);
    for group in diff.grouped_ops(3) {
        if group.is_empty() {
            continue;
        }
        shown.line(&UnifiedHunkHeader::new(&group).to_string());
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let sign = match change.tag() {
                ChangeTag::Equal => ' ',
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
            };
            shown.text(sign, change.value(), ends);
        }
    }
}

/// Everything between the equal beginning and the equal end, as one change.
fn block(shown: &mut Shown, before: &str, after: &str, ends: LineEnds) {
    let (before, after) = (split(before), split(after));
    let same = before
        .iter()
        .zip(&after)
        .take_while(|(a, b)| a == b)
        .count();
    let (before, after) = (
        before.get(same..).unwrap_or_default(),
        after.get(same..).unwrap_or_default(),
    );
    let same_end = before
        .iter()
        .rev()
        .zip(after.iter().rev())
        .take_while(|(a, b)| a == b)
        .count();
    let before = before.get(..before.len() - same_end).unwrap_or_default();
    let after = after.get(..after.len() - same_end).unwrap_or_default();
    let start = |lines: &[&str]| if lines.is_empty() { same } else { same + 1 };
    shown.line(&format!(
        "@@ -{},{} +{},{} @@",
        start(before),
        before.len(),
        start(after),
        after.len()
    ));
    // Of both something is seen, however long the first is.
    let removed_max = if after.is_empty() {
        LINES_MAX
    } else {
        LINES_MAX / 2
    };
    for (index, line) in before.iter().enumerate() {
        if index < removed_max && shown.diff.len() < BYTES_MAX / 2 {
            shown.text('-', line, ends);
        } else {
            shown.left_out += 1;
        }
    }
    for line in after {
        shown.text('+', line, ends);
    }
}

#[derive(Clone, Copy)]
enum LineEnds {
    AsUsual,
    /// A carriage return is drawn.
    Marked,
}

#[derive(Default)]
struct Shown {
    diff: String,
    lines: usize,
    left_out: u64,
}

impl Shown {
    fn line(&mut self, line: &str) {
        if self.lines >= LINES_MAX || self.diff.len() + line.len() >= BYTES_MAX {
            self.left_out += 1;
            // What comes after a gap would look as if it followed.
            self.lines = LINES_MAX;
            return;
        }
        self.lines += 1;
        self.diff.push_str(line);
        self.diff.push('\n');
    }

    fn text(&mut self, sign: char, text: &str, ends: LineEnds) {
        let (line, ended) = match text.strip_suffix('\n') {
            Some(line) => (line, true),
            None => (text, false),
        };
        let (line, crlf) = match line.strip_suffix('\r') {
            Some(line) if ended => (line, true),
            Some(_) | None => (line, false),
        };
        let mut drawn = String::from(sign);
        let mut chars = line.chars();
        chars
            .by_ref()
            .take(LINE_CHARS_MAX)
            .for_each(|c| draw(c, &mut drawn));
        let hidden = chars.count();
        if hidden > 0 {
            drawn.push_str(&format!("… ({hidden} more characters)"));
        }
        match ends {
            LineEnds::Marked if crlf => drawn.push('␍'),
            LineEnds::Marked | LineEnds::AsUsual => {}
        }
        self.line(&drawn);
        if !ended {
            self.line("\\ No newline at end of file");
        }
    }

    fn end(self) -> (String, u64) {
        (self.diff, self.left_out)
    }
}

/// Characters that would not be seen, or would move others, are drawn as their numbers.
fn draw(c: char, into: &mut String) {
    let hides = matches!(
        c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}'
    );
    if hides || (c.is_control() && c != '\t') {
        into.extend(c.escape_unicode());
    } else {
        into.push(c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_shown_with_three_lines_around_it() {
        let before: String = (1..=20).map(|n| format!("{n}\n")).collect();
        let after = before.replace("10\n", "ten\n");
        assert_eq!(
            diff(Some(before.as_bytes()), &after),
            (
                "@@ -7,7 +7,7 @@\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13\n".to_owned(),
                0
            )
        );
    }

    #[test]
    fn new_empty_and_unfinished_files_are_told_apart() {
        assert_eq!(
            diff(None, "a\nb\n"),
            ("@@ -0,0 +1,2 @@\n+a\n+b\n".to_owned(), 0)
        );
        assert_eq!(diff(None, ""), (String::new(), 0));
        assert_eq!(
            diff(Some(b"a\n"), "a"),
            (
                "@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file\n".to_owned(),
                0
            )
        );
        assert_eq!(
            diff(Some(b"a\n"), ""),
            ("@@ -1 +0,0 @@\n-a\n".to_owned(), 0)
        );
    }

    #[test]
    fn changed_line_ends_are_drawn_and_unchanged_ones_are_not() {
        assert_eq!(
            diff(Some(b"a\r\n"), "a\n"),
            ("@@ -1 +1 @@\n-a␍\n+a\n".to_owned(), 0)
        );
        assert_eq!(
            diff(Some(b"a\r\nb\r\n"), "a\r\nc\r\n"),
            ("@@ -1,2 +1,2 @@\n a\n-b\n+c\n".to_owned(), 0)
        );
    }

    #[test]
    fn content_that_is_not_text_is_replaced_in_words() {
        assert_eq!(
            diff(Some(b"\xff\xfe"), "a\n").0,
            "The present content is not text; this would replace it:\n@@ -0,0 +1,1 @@\n+a\n"
        );
    }

    #[test]
    fn what_would_hide_or_reorder_is_drawn_as_a_number() {
        assert_eq!(
            diff(None, "if admin\u{202e} \u{1b}[2K\u{200b}\n").0,
            "@@ -0,0 +1 @@\n+if admin\\u{202e} \\u{1b}[2K\\u{200b}\n"
        );
    }

    #[test]
    fn a_long_diff_is_bounded_and_every_line_left_out_is_counted() {
        let lines =
            |n: usize, word: &str| -> String { (0..n).map(|i| format!("{word} {i}\n")).collect() };
        for (before, after) in [(0, 1_000), (1_000, 0), (300, 900), (100_000, 100_000)] {
            let (shown, left_out) =
                diff(Some(lines(before, "old").as_bytes()), &lines(after, "new"));
            assert!(shown.len() <= BYTES_MAX + 100 && shown.lines().count() <= LINES_MAX);
            assert_eq!(
                shown.lines().count() as u64 + left_out,
                (before + after + 1) as u64,
                "{before} to {after}, with one heading"
            );
            assert_eq!(shown.contains("+new 0\n"), after > 0, "{before} to {after}");
        }
        let (shown, left_out) = diff(None, &"x".repeat(1_000_000));
        assert!(shown.contains("… (999600 more characters)"), "{shown}");
        assert_eq!(left_out, 0);
    }

    #[test]
    fn of_a_big_file_only_the_changed_part_is_shown() {
        let before: String = (0..50_000).map(|i| format!("{i}\n")).collect();
        let after = before.replace("\n25000\n", "\nhalf\n");
        assert_eq!(
            diff(Some(before.as_bytes()), &after),
            ("@@ -25001,1 +25001,1 @@\n-25000\n+half\n".to_owned(), 0)
        );
    }
}
