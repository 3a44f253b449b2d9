//! What can go wrong with a model's own process, in words.

use std::{path::Path, time::Duration};

use protocol::{Failure, FailureCode, model_process::Failed};

use super::child::Ended;
use crate::{
    gateway::{AttemptError, Retry, Room},
    gguf::NotAModel,
};

/// This program cannot run models.
pub(crate) fn no_engine() -> Failure {
    Failure::new(
        FailureCode::ModelLoadFailed,
        "This build of Holdfast has no model engine of its own. Build it with `cargo xtask run`, or with the feature `local-model`, which needs cmake and libclang; or ask a model server.",
    )
}

/// Its process could not be started.
pub(super) fn not_started(problem: &std::io::Error) -> AttemptError {
    AttemptError {
        failure: Failure::new(
            FailureCode::ModelLoadFailed,
            "The model's own process could not be started.",
        )
        .with_detail(problem.to_string()),
        retry: Retry::Never,
    }
}

/// The file is no model that could be loaded, whoever tried.
pub(super) fn unusable(path: &Path, why: &NotAModel) -> AttemptError {
    let name = path.file_name().unwrap_or(path.as_os_str());
    AttemptError {
        failure: Failure::new(
            FailureCode::ModelLoadFailed,
            format!("{}: {why}.", name.to_string_lossy()),
        ),
        retry: Retry::Never,
    }
}

/// It was started and said nothing.
pub(super) fn not_up(limit: Duration) -> AttemptError {
    AttemptError {
        failure: Failure::new(
            FailureCode::ConnectFailed,
            format!(
                "The model's own process did not say anything within {} seconds of its start.",
                limit.as_secs()
            ),
        ),
        retry: Retry::Never,
    }
}

/// It ended before the answer did.
pub(super) fn died(model: &str, ended: Ended, was_loaded: bool) -> AttemptError {
    let how = ended.words();
    if was_loaded {
        return AttemptError {
            failure: Failure::new(
                FailureCode::StreamCut,
                format!("The model's own process ended before the answer did: {how}."),
            ),
            retry: Retry::Backoff,
        };
    }
    AttemptError {
        failure: Failure::new(
            FailureCode::ModelLoadFailed,
            format!(
                "The model's own process ended while it loaded {model}: {how}. Choose a smaller model, or a smaller context."
            ),
        ),
        retry: Retry::Never,
    }
}

/// What a model's process said, as the failure of an attempt.
pub(in crate::gateway) fn failed(failed: &Failed) -> AttemptError {
    let room = match (failed.needed, failed.there_is) {
        (Some(needed), Some(there_is)) => Some(Room { needed, there_is }),
        (Some(_), None) | (None, Some(_) | None) => None,
    };
    let retry = match failed.code {
        FailureCode::ContextOverflow => Retry::Shorter(room),
        FailureCode::ProviderError => Retry::Backoff,
        FailureCode::ConnectFailed
        | FailureCode::KeyRejected
        | FailureCode::ModelNotFound
        | FailureCode::ModelLoadFailed
        | FailureCode::FirstTokenTimeout
        | FailureCode::IdleTimeout
        | FailureCode::TurnTimeout
        | FailureCode::StreamCut
        | FailureCode::BadStream
        | FailureCode::EmptyResponse
        | FailureCode::RateLimited
        | FailureCode::QuotaExceeded
        | FailureCode::BadRequest
        | FailureCode::CannotSeeImages
        | FailureCode::AllCandidatesFailed
        | FailureCode::ToolLoop
        | FailureCode::Panicked
        | FailureCode::Aborted => Retry::Never,
    };
    let mut failure = Failure::new(failed.code, failed.message.clone());
    failure.detail.clone_from(&failed.detail);
    AttemptError { failure, retry }
}
