//! Words of a question: what a call would do, and who answered how.
//!
//! Invariant: what is asked is said in full: the path as it is, the sizes before and after, and what is not shown.

use protocol::{Intent, Resolution};

/// A turn, a call or a session that asks, wherever it is named.
pub const WAITING_FOR_YOU: &str = "waiting for you";

/// A path or a line of code with every letter that could mislead spelled out: what turns the direction of writing, hides,
/// or moves the cursor. A question must show what is, not what it was made to look like.
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\t' => shown.push(letter),
            '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}' => shown.push_str(&format!("⟨U+{:04X}⟩", u32::from(letter))),
            control if control.is_control() => {
                shown.push_str(&format!("⟨U+{:04X}⟩", u32::from(control)));
            }
            plain => shown.push(plain),
        }
    }
    shown
}

/// What the call would do, before its path.
pub const fn intent(intent: &Intent) -> &'static str {
    match intent {
        Intent::WriteFile { before: None, .. } => "create this file",
        Intent::WriteFile {
            before: Some(_), ..
        } => "change this file",
    }
}

/// The sizes of what it would change: "new file, 1.2 kB" or "980 bytes → 1.2 kB".
pub fn sizes(intent: &Intent) -> String {
    match intent {
        Intent::WriteFile {
            before: None,
            after,
            ..
        } => format!("new file, {}", size(*after)),
        Intent::WriteFile {
            before: Some(before),
            after,
            ..
        } => format!("{} → {}", size(*before), size(*after)),
    }
}

/// What of the change is not shown; `None` when all of it is.
pub fn left_out(lines: u64) -> Option<String> {
    match lines {
        0 => None,
        1 => Some("1 more line not shown".to_owned()),
        lines => Some(format!("{lines} more lines not shown")),
    }
}

/// Said above a question about a call that was cut before.
pub const MAY_HAVE_RUN: &str =
    "the same call was cut off before, and may already have taken effect";

/// How a question was answered, beside its call.
pub const fn resolution(resolution: Resolution) -> &'static str {
    match resolution {
        Resolution::AllowedOnce => "you allowed this once",
        Resolution::AllowedForSession => "you allowed this for this conversation",
        Resolution::Denied => "you denied this",
        Resolution::Expired => "the question expired: nobody answered it before the turn ended",
    }
}

/// Said to whoever answered a question that had its answer.
pub fn already_resolved(resolved: Resolution) -> String {
    match resolved {
        Resolution::Expired => "this question has expired; the turn is over".to_owned(),
        Resolution::AllowedOnce | Resolution::AllowedForSession | Resolution::Denied => format!(
            "this was answered already, in another window or terminal: {}",
            resolution(resolved)
        ),
    }
}

/// A number of bytes as people say it.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    if bytes == 1 {
        return "1 byte".to_owned();
    }
    if bytes < 1_000 {
        return format!("{bytes} bytes");
    }
    // In tenths of the unit, rounded; whole numbers all the way.
    let mut tenths = bytes / 100 + u64::from(bytes % 100 >= 50);
    let mut units = UNITS.iter();
    let mut unit = units.next().copied().unwrap_or_default();
    for next in units {
        if tenths < 10_000 {
            break;
        }
        tenths = tenths / 1_000 + u64::from(tenths % 1_000 >= 500);
        unit = next;
    }
    if tenths >= 1_000 {
        format!("{} {unit}", tenths / 10)
    } else {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_said_with_the_digits_that_matter() {
        let said = [
            (0, "0 bytes"),
            (1, "1 byte"),
            (999, "999 bytes"),
            (1_000, "1.0 kB"),
            (1_249, "1.2 kB"),
            (1_250, "1.3 kB"),
            (123_456, "123 kB"),
            (1_000_000, "1.0 MB"),
            (5_120_000_000, "5.1 GB"),
            (u64::MAX, "18446744 TB"),
        ];
        for (bytes, words) in said {
            assert_eq!(size(bytes), words, "{bytes}");
        }
    }

    #[test]
    fn a_change_says_what_was_there_and_what_will_be() {
        let write = |before, after| Intent::WriteFile {
            path: "/notes/a.md".to_owned(),
            before,
            after,
            diff: String::new(),
            diff_left_out: 0,
        };
        assert_eq!(intent(&write(None, 1)), "create this file");
        assert_eq!(sizes(&write(None, 12)), "new file, 12 bytes");
        assert_eq!(intent(&write(Some(0), 1)), "change this file");
        assert_eq!(sizes(&write(Some(980), 1_240)), "980 bytes → 1.2 kB");
        assert_eq!(left_out(0), None);
        assert_eq!(left_out(1).as_deref(), Some("1 more line not shown"));
        assert_eq!(left_out(7).as_deref(), Some("7 more lines not shown"));
    }

    #[test]
    fn letters_that_mislead_are_spelled_out_and_no_others() {
        assert_eq!(visible("/a/\u{202e}fdp.exe"), "/a/⟨U+202E⟩fdp.exe");
        assert_eq!(visible("x\u{7}\r"), "x⟨U+0007⟩⟨U+000D⟩");
        assert_eq!(visible("\tשלום 日本 é"), "\tשלום 日本 é");
    }

    #[test]
    fn every_answer_has_words_of_its_own_and_an_expired_one_blames_nobody() {
        let all = [
            Resolution::AllowedOnce,
            Resolution::AllowedForSession,
            Resolution::Denied,
            Resolution::Expired,
        ];
        let said: std::collections::BTreeSet<_> = all.iter().map(|r| resolution(*r)).collect();
        assert_eq!(said.len(), all.len());
        assert!(!resolution(Resolution::Expired).contains("you "));
        assert!(already_resolved(Resolution::Denied).contains("you denied this"));
        assert!(!already_resolved(Resolution::Expired).contains("answered already"));
    }
}
