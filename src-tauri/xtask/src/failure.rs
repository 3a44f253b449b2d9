//! What went wrong and what to do about it: no chore fails without both.

use std::fmt;

pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// A failed chore, told to the person who started it.
#[derive(Debug)]
pub(crate) struct Failure {
    what: String,
    remedy: String,
}

impl Failure {
    pub(crate) fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            remedy: remedy.into(),
        }
    }

    /// A file operation that failed; `what` is "could not …", without the reason.
    pub(crate) fn io(what: impl fmt::Display, error: &std::io::Error) -> Self {
        Self::new(
            format!("{what}: {error}"),
            "check that the disk has room and the folder can be written",
        )
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}\n  what to do: {}", self.what, self.remedy)
    }
}
