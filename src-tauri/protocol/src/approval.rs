//! The user's word on a call that changes something.

use serde::{Deserialize, Serialize};

/// What a call would do to the world outside, exactly, as the user is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "intent")]
pub enum Intent {
    /// A file gets this content.
    WriteFile {
        /// Absolute, as shown.
        path: String,
        /// Its size now, in bytes; absent: the file is new.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<u64>,
        /// Its size then, in bytes.
        after: u64,
        /// The change as a unified diff, bounded.
        diff: String,
        /// Lines of the diff that did not fit.
        #[serde(default)]
        diff_left_out: u64,
    },
}

/// What the user says to the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Answer {
    /// This once.
    AllowOnce,
    /// This, and further calls of the same tool in this session, as long as its folder stays the same.
    AllowForSession,
    /// No.
    Deny,
}

/// How a question ended: exactly one for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Resolution {
    /// See [`Answer::AllowOnce`].
    AllowedOnce,
    /// See [`Answer::AllowForSession`].
    AllowedForSession,
    /// See [`Answer::Deny`].
    Denied,
    /// Nobody answered before the turn ended, or before the engine went away.
    Expired,
}

impl From<Answer> for Resolution {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::AllowOnce => Self::AllowedOnce,
            Answer::AllowForSession => Self::AllowedForSession,
            Answer::Deny => Self::Denied,
        }
    }
}
