//! Errors of the log as they reach a client: a code to act on and a sentence.

use protocol::{ErrorCode, ErrorReport, ModelOptions};

use crate::log::{CommitError, ReadError};

pub(crate) fn read_report(error: &ReadError) -> ErrorReport {
    match error {
        ReadError::NoSuchSession => {
            ErrorReport::new(ErrorCode::NotFound, "There is no such conversation.")
        }
        ReadError::Storage(_) | ReadError::Hole { .. } => {
            ErrorReport::new(ErrorCode::StorageFailed, sentence(&error.to_string()))
        }
        ReadError::Closed => ErrorReport::new(ErrorCode::ShuttingDown, "Holdfast is closing."),
    }
}

pub(crate) fn commit_report(error: &CommitError) -> ErrorReport {
    match error {
        CommitError::OpIdConflict => {
            ErrorReport::new(ErrorCode::OpIdConflict, sentence(&error.to_string()))
        }
        CommitError::Storage(_) => {
            ErrorReport::new(ErrorCode::StorageFailed, sentence(&error.to_string()))
                .with_remedy("nothing was saved; check the disk and try again")
        }
        CommitError::Refused { .. } | CommitError::Encode(_) | CommitError::Panicked => {
            ErrorReport::new(ErrorCode::Other, sentence(&error.to_string()))
        }
        CommitError::Closed => ErrorReport::new(ErrorCode::ShuttingDown, "Holdfast is closing."),
    }
}

/// An error's words (lower case, no full stop) as a sentence for the reader.
pub fn sentence(words: &str) -> String {
    let mut letters = words.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(letters).chain(std::iter::once('.')).collect()
}

/// The options, if a model can be asked so.
pub(crate) fn usable_options(options: ModelOptions) -> Result<ModelOptions, ErrorReport> {
    match options.validate() {
        Ok(()) => Ok(options),
        Err(wrong) => Err(invalid(wrong.field.name(), &wrong.message)),
    }
}

pub(crate) fn invalid(field: &str, message: &str) -> ErrorReport {
    ErrorReport::new(
        ErrorCode::Invalid {
            field: field.into(),
        },
        message,
    )
}
