//! A question of a tool that would change something, on the terminal.
//!
//! Invariant: what is allowed was shown, exactly and harmlessly: no character of it orders the terminal about, hides or
//! reorders others, and no key pressed before the question stood there answers it.
//! Not here: who else may answer; the log has one answer for each question, and `asker` hears of it.

use std::{
    fmt::Write as _,
    io::{self, IsTerminal},
    sync::mpsc as threads,
    thread,
};

use protocol::{Answer, Intent, ItemBody, ItemId, Resolution, TurnView};
use tokio::sync::mpsc;

/// What stands under a question; the keys are the letters in brackets.
pub(super) const CHOICE: &str = "[o]nce, [c]onversation, [n]o?";

/// What is said to anything else.
pub(super) const AGAIN: &str = "please answer o (this once), c (for this conversation) or n (no)";

/// Lines that wait to be looked at: one is asked for at a time.
const LINES_MAX: usize = 1;

/// A question that has no answer yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) item: ItemId,
    pub(super) tool: String,
    pub(super) intent: Intent,
    pub(super) may_have_run: bool,
}

impl Question {
    /// Those that a turn waits for; calls that share a question ask it once.
    pub(super) fn open_in(turn: &TurnView) -> Vec<Self> {
        let mut open: Vec<Self> = Vec::new();
        for item in &turn.items {
            match &item.body {
                ItemBody::ToolCall {
                    name,
                    approval: Some(approval),
                    ..
                } if approval.resolution.is_none()
                    && open.iter().all(|known| known.item != approval.item) =>
                {
                    open.push(Self {
                        item: approval.item,
                        tool: name.clone(),
                        intent: approval.intent.clone(),
                        may_have_run: approval.may_have_run,
                    });
                }
                ItemBody::ToolCall { .. }
                | ItemBody::UserMessage { .. }
                | ItemBody::Text { .. }
                | ItemBody::Compacted { .. }
                | ItemBody::Unsupported { .. } => {}
            }
        }
        open
    }

    /// Exactly what will happen.
    pub(super) fn words(&self) -> String {
        let mut words = intent(&self.tool, &self.intent);
        if self.may_have_run {
            words.push_str(
                "\nCareful: the same call was cut off before, and whether it took effect is not known. \
                 Allowed now, it may happen a second time.",
            );
        }
        words
    }
}

/// What a call would do, with the whole of what is known about it.
pub(super) fn intent(tool: &str, intent: &Intent) -> String {
    let tool = harmless_line(tool);
    match intent {
        Intent::WriteFile {
            path,
            before,
            after,
            diff,
            diff_left_out,
        } => {
            let path = harmless_line(path);
            let mut words = match before {
                Some(before) => format!(
                    "{tool} would change a file of {before} bytes into one of {after} bytes:\n  {path}\n"
                ),
                None => format!("{tool} would make a new file of {after} bytes:\n  {path}\n"),
            };
            let diff = harmless(diff);
            if diff.trim().is_empty() {
                words.push_str("  (its content stays the same)");
            } else {
                words.push_str(diff.trim_end_matches('\n'));
            }
            if *diff_left_out > 0 {
                // Writing to a string does not fail.
                let _ = write!(
                    words,
                    "\n  ({diff_left_out} more lines of the change are not shown here)"
                );
            }
            words
        }
    }
}

/// How a question ended.
pub(super) const fn resolution(resolution: Resolution) -> &'static str {
    match resolution {
        Resolution::AllowedOnce => "allowed once",
        Resolution::AllowedForSession => "allowed for this conversation",
        Resolution::Denied => "not allowed",
        Resolution::Expired => "nobody answered before the turn ended",
    }
}

/// What a typed line says, if it says anything.
pub(super) fn answer_in(line: &str) -> Option<Answer> {
    match line.trim().to_ascii_lowercase().as_str() {
        "o" | "once" => Some(Answer::AllowOnce),
        "c" | "conversation" => Some(Answer::AllowForSession),
        "n" | "no" => Some(Answer::Deny),
        _ => None,
    }
}

/// Text in which every character shows itself and nothing else; ends of lines and tabs stay.
pub(super) fn harmless(text: &str) -> String {
    escaped(text, |c| c != '\n' && c != '\t')
}

/// The same on one line.
pub(super) fn harmless_line(text: &str) -> String {
    escaped(text, |_| true)
}

fn escaped(text: &str, also: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if acts(c) && also(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Whether a character does something else than stand there: controls, changes of direction, and what is invisible.
fn acts(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// What the terminal said.
#[derive(Debug)]
pub(super) enum Typed {
    Line(String),
    /// Ctrl-D, or the terminal is gone.
    End,
    Unreadable(io::Error),
}

/// The keyboard of somebody who also sees the question.
///
/// Its thread may stay in a read for ever; it holds nothing, and the process leaves without it.
pub(super) struct Keyboard {
    wanted: threads::Sender<()>,
    typed: mpsc::Receiver<Typed>,
    reads: bool,
}

impl Keyboard {
    /// Whether somebody can be asked: who only reads our stdout, or only types, cannot.
    pub(super) fn is_there() -> bool {
        io::stdin().is_terminal() && io::stderr().is_terminal()
    }

    /// # Errors
    /// The system gives no thread.
    pub(super) fn begin() -> io::Result<Self> {
        let (wanted, wants) = threads::channel();
        let (types, typed) = mpsc::channel(LINES_MAX);
        thread::Builder::new()
            .name("keyboard".to_owned())
            .spawn(move || {
                while let Ok(()) = wants.recv() {
                    if types.blocking_send(one_line()).is_err() {
                        return;
                    }
                }
            })?;
        Ok(Self {
            wanted,
            typed,
            reads: false,
        })
    }

    /// What was typed before is not an answer to what is asked now.
    pub(super) fn forget(&mut self) {
        if self.typed.try_recv().is_ok() {
            self.reads = false;
        }
        discard_typed_ahead();
    }

    /// Begins to wait for a line.
    pub(super) fn listen(&mut self) {
        if !self.reads {
            // The thread lives as long as we do.
            self.reads = self.wanted.send(()).is_ok();
        }
    }

    /// The line. Cancel safe: one that was not returned is returned by the next call.
    pub(super) async fn line(&mut self) -> Typed {
        let typed = self.typed.recv().await;
        self.reads = false;
        typed.unwrap_or(Typed::End)
    }
}

fn one_line() -> Typed {
    let mut line = String::new();
    match io::stdin().read_line(&mut line) {
        Ok(0) => Typed::End,
        Ok(_) => Typed::Line(line),
        Err(error) => Typed::Unreadable(error),
    }
}

#[cfg(unix)]
fn discard_typed_ahead() {
    use rustix::termios::{QueueSelector, tcflush};
    if let Err(error) = tcflush(io::stdin(), QueueSelector::IFlush) {
        tracing::warn!(%error, "what was typed ahead stays");
    }
}

/// RULING: what was typed ahead counts on systems without termios. What would reopen it: a Windows build that is tested.
#[cfg(not(unix))]
fn discard_typed_ahead() {}

#[cfg(test)]
mod tests {
    use protocol::{ApprovalView, ItemView, ModelRef, ProviderId, Timestamp, ToolState, TurnId};

    use super::*;

    fn write(before: Option<u64>, diff: &str, diff_left_out: u64) -> Question {
        Question {
            item: ItemId::new(3),
            tool: "write_file".to_owned(),
            intent: Intent::WriteFile {
                path: "/home/ada/a.txt".to_owned(),
                before,
                after: 12,
                diff: diff.to_owned(),
                diff_left_out,
            },
            may_have_run: false,
        }
    }

    #[test]
    fn a_question_says_path_sizes_diff_and_what_it_leaves_out() {
        assert_eq!(
            write(None, "@@ -0,0 +1 @@\n+hello\n", 0).words(),
            "write_file would make a new file of 12 bytes:\n  /home/ada/a.txt\n@@ -0,0 +1 @@\n+hello"
        );
        assert_eq!(
            write(Some(7), "-a\n+b\n", 9).words(),
            "write_file would change a file of 7 bytes into one of 12 bytes:\n  /home/ada/a.txt\n-a\n+b\n  \
             (9 more lines of the change are not shown here)"
        );
        assert_eq!(
            write(Some(12), "", 0).words(),
            "write_file would change a file of 12 bytes into one of 12 bytes:\n  /home/ada/a.txt\n  \
             (its content stays the same)"
        );
    }

    #[test]
    fn a_call_that_may_have_run_says_so_where_it_is_read() {
        let mut question = write(None, "+x\n", 0);
        assert!(!question.words().contains("Careful"));
        question.may_have_run = true;
        let words = question.words();
        let last = words.lines().last().unwrap();
        assert!(
            last.starts_with("Careful: the same call was cut off before"),
            "{words}"
        );
    }

    #[test]
    fn nothing_in_a_question_orders_the_terminal_about_or_hides_its_neighbours() {
        let question = Question {
            tool: "write\x1b[2Kfile".to_owned(),
            intent: Intent::WriteFile {
                path: "/home/ada/\u{202e}txt.exe\nwrite_file would do nothing".to_owned(),
                before: None,
                after: 1,
                diff: "+a\x1b[8mb\rc\u{2066}\u{200b}\td\n".to_owned(),
                diff_left_out: 0,
            },
            ..write(None, "", 0)
        };
        assert_eq!(
            question.words(),
            "write\\u{1b}[2Kfile would make a new file of 1 bytes:\n  \
             /home/ada/\\u{202e}txt.exe\\nwrite_file would do nothing\n\
             +a\\u{1b}[8mb\\rc\\u{2066}\\u{200b}\td"
        );
    }

    #[test]
    fn only_a_clear_yes_is_a_yes() {
        for (line, expected) in [
            ("o\n", Some(Answer::AllowOnce)),
            (" Once \r\n", Some(Answer::AllowOnce)),
            ("c\n", Some(Answer::AllowForSession)),
            ("conversation", Some(Answer::AllowForSession)),
            ("N\n", Some(Answer::Deny)),
            ("no", Some(Answer::Deny)),
            ("", None),
            ("\n", None),
            ("y\n", None),
            ("yes", None),
            ("ok", None),
            ("no way", None),
        ] {
            assert_eq!(answer_in(line), expected, "{line:?}");
        }
    }

    #[test]
    fn a_question_shared_by_calls_is_open_once_and_only_until_it_has_its_answer() {
        let at = Timestamp::from_millis(1);
        let call = |number, question, resolution| ItemView {
            item: ItemId::new(number),
            began_at: at,
            changed_at: at,
            body: ItemBody::ToolCall {
                name: "write_file".to_owned(),
                arguments: "{}".to_owned(),
                call_id: None,
                step: 1,
                state: ToolState::Requested,
                approval: Some(ApprovalView {
                    item: ItemId::new(question),
                    intent: write(None, "+x\n", 0).intent,
                    may_have_run: true,
                    asked_at: at,
                    resolution,
                }),
            },
        };
        let turn = TurnView {
            turn: TurnId::FIRST,
            model: ModelRef {
                provider: ProviderId::from_bits(1),
                provider_name: "Ollama".to_owned(),
                model: "m".to_owned(),
            },
            started_at: at,
            items: vec![
                call(2, 2, Some(Resolution::AllowedOnce)),
                call(3, 3, None),
                call(4, 3, None),
                call(5, 5, None),
            ],
            attempts: vec![],
            outcome: None,
            slept: Vec::new(),
            ended_at: None,
        };
        let open = Question::open_in(&turn);
        let items: Vec<_> = open.iter().map(|question| question.item.get()).collect();
        assert_eq!(items, [3, 5]);
        assert_eq!(
            open[0],
            Question {
                may_have_run: true,
                ..write(None, "+x\n", 0)
            }
        );
    }
}
