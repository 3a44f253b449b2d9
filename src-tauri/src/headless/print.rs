//! stdout and stderr, as the faces without a window use them.
//!
//! A terminal is not sent control characters: text from a model is text, whatever it holds. A pipe gets every byte.

use std::{
    borrow::Cow,
    fmt,
    io::{self, IsTerminal, Write},
};

/// Whether there is still somebody to print for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listener {
    There,
    Gone,
}

/// stderr: what is said about the answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Margin {
    dims: bool,
}

impl Margin {
    pub(super) fn of_this_process() -> Self {
        Self {
            dims: io::stderr().is_terminal(),
        }
    }

    /// A line.
    pub(super) fn say(self, words: impl fmt::Display) {
        self.write(format!("{words}\n"));
    }

    /// A line that steps back behind the answer.
    pub(super) fn murmur(self, words: impl fmt::Display) {
        if self.dims {
            self.write(format!("\x1b[2m{}\x1b[0m\n", printable(&words.to_string())));
        } else {
            self.say(words);
        }
    }

    /// Text that steps back behind the answer, without an end of line.
    pub(super) fn whisper(self, text: &str) {
        if self.dims {
            self.write(format!("\x1b[2m{}\x1b[0m", printable(text)));
        } else {
            self.write(text.to_owned());
        }
    }

    /// What went wrong.
    pub(super) fn complain(self, words: impl fmt::Display) {
        let words = words.to_string();
        let words = if self.dims {
            printable(&words)
        } else {
            Cow::Borrowed(words.as_str())
        };
        self.write(format!("holdfast: {words}\n"));
    }

    fn write(self, text: String) {
        // Nobody reads stderr any more; there is no other place to say that.
        let _ = io::stderr().write_all(text.as_bytes());
    }
}

/// Whether stdout is a terminal.
pub(super) fn is_stdout_watched() -> bool {
    io::stdout().is_terminal()
}

/// Text as it may be sent to stdout.
pub(super) fn for_stdout(text: &str) -> Cow<'_, str> {
    if is_stdout_watched() {
        printable(text)
    } else {
        Cow::Borrowed(text)
    }
}

/// Prints to stdout at once.
///
/// # Errors
/// Other than a closed pipe, which is an answer.
pub(super) fn put(text: &str) -> io::Result<Listener> {
    let mut stdout = io::stdout().lock();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
    match written {
        Ok(()) => Ok(Listener::There),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Listener::Gone),
        Err(error) => Err(error),
    }
}

/// The text without anything that a terminal would act upon; ends of lines and tabs stay.
fn printable(text: &str) -> Cow<'_, str> {
    let acts = |c: char| c.is_control() && c != '\n' && c != '\t';
    if text.contains(acts) {
        Cow::Owned(text.replace(acts, "\u{fffd}"))
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_text_and_no_orders() {
        assert_eq!(printable("plain\n\tünï 山"), "plain\n\tünï 山");
        assert_eq!(
            printable("\x1b]0;title\x07\r\u{9b}31m"),
            "\u{fffd}]0;title\u{fffd}\u{fffd}\u{fffd}31m"
        );
    }
}
