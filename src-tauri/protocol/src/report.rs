//! What the door says when something is not possible: a code to act on, a sentence, a remedy.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Resolution;

/// An error as it reaches a window or a terminal. Never holds a secret or a message's text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorReport {
    /// What the client does differently for it.
    pub code: ErrorCode,
    /// What happened, in a sentence.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl ErrorReport {
    /// A report without a remedy.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            remedy: None,
        }
    }
    /// The same with one.
    #[must_use]
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

impl fmt::Display for ErrorReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.remedy {
            // The message is a sentence, and goes on.
            Some(remedy) => write!(f, "{}; {remedy}", self.message.trim_end_matches('.')),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for ErrorReport {}

/// A code exists only where the client does something different for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind")]
pub enum ErrorCode {
    /// A turn runs; calm, the draft stays.
    TurnActive,
    /// The conversation changed since; the draft stays and the new state arrives.
    StaleHead,
    /// The question has its answer already: this one.
    AlreadyResolved { resolution: Resolution },
    /// The same op id with other content: our bug.
    OpIdConflict,
    /// There is no such thing.
    NotFound,
    /// The session is in the bin.
    Gone,
    /// A value cannot be used; words at the field.
    Invalid { field: String },
    /// Nothing was saved.
    StorageFailed,
    /// The engine is closing.
    ShuttingDown,
    /// A newer page of this window exists: say hello again, or be quiet.
    Superseded,
    /// Another attachment's, or another boot's: attach again.
    UnknownEpoch,
    /// Page and engine are of different versions: reload.
    ProtocolMismatch,
    /// Anything else: shown, not acted on.
    Other,
}
