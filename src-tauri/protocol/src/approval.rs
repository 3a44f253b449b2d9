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
