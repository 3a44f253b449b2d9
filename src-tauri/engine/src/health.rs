//! Health: what went wrong and was dealt with, counted at one place and said once in the log file.
//!
//! Invariant: what is in the log is counted from what was committed to it, so the counts and the log cannot differ; the
//! rest is counted where it is noticed, through here. Nothing in here holds anybody's text.

use std::sync::atomic::{AtomicU64, Ordering};

use protocol::{
    AttachReason, Counted, EventBody, FailureCode, SessionId, Timestamp, TurnId, TurnOutcome,
};

/// The counts of one run.
#[derive(Debug)]
pub(crate) struct Health {
    pub(crate) started_at: Timestamp,
    counts: Vec<(Counted, AtomicU64)>,
}

impl Health {
    pub(crate) fn new(started_at: Timestamp) -> Self {
        let counts = Counted::ALL.iter().map(|what| (*what, AtomicU64::new(0)));
        Self {
            started_at,
            counts: counts.collect(),
        }
    }

    /// Counts one.
    pub(crate) fn count(&self, what: Counted) {
        if let Some((_, count)) = self.counts.iter().find(|(counted, _)| *counted == what) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        if what.is_fault() {
            tracing::error!(?what, "counted");
        } else {
            tracing::debug!(?what, "counted");
        }
    }

    pub(crate) fn of(&self, what: Counted) -> u64 {
        self.counts
            .iter()
            .find(|(counted, _)| *counted == what)
            .map_or(0, |(_, count)| count.load(Ordering::Relaxed))
    }

    /// A page attaches, and this is why.
    pub(crate) fn attached(&self, why: AttachReason) {
        match why {
            AttachReason::Open => {}
            AttachReason::Gap => self.count(Counted::Gap),
            AttachReason::Reset => self.count(Counted::Reset),
            AttachReason::LostAnswer => self.count(Counted::LostAnswer),
        }
    }

    /// Whether [`Self::committed`] has anything to count in it; most of what is written is not kept for that.
    pub(crate) const fn counts(body: &EventBody) -> bool {
        matches!(
            body,
            EventBody::AttemptFailed { .. }
                | EventBody::HistoryCompacted { .. }
                | EventBody::TurnEnded { .. }
        )
    }

    /// This event of a running turn was committed.
    pub(crate) fn committed(&self, session: SessionId, turn: TurnId, body: &EventBody) {
        if let EventBody::AttemptFailed {
            failure,
            retry_in_ms,
            next,
            attempt,
            ..
        } = body
        {
            let code = failure.code;
            tracing::info!(%session, %turn, ?code, attempt, ?retry_in_ms, "an attempt failed");
            if retry_in_ms.is_some() {
                self.count(Counted::Retry);
            }
            if next.is_some() {
                self.count(Counted::Failover);
            }
        }
        if let EventBody::HistoryCompacted { .. } = body {
            tracing::info!(%session, %turn, "the conversation was summed up");
            self.count(Counted::Compaction);
        }
        if let EventBody::TurnEnded { outcome } = body {
            self.count(Counted::TurnEnded);
            match outcome {
                TurnOutcome::Completed { .. } => {}
                TurnOutcome::Cancelled { .. } | TurnOutcome::Interrupted { .. } => {
                    self.count(Counted::Cancelled);
                }
                TurnOutcome::Failed { failure } => match failure.code {
                    FailureCode::TurnTimeout => self.count(Counted::Cancelled),
                    FailureCode::Panicked => self.count(Counted::Panicked),
                    FailureCode::Aborted => self.count(Counted::Backstop),
                    FailureCode::ConnectFailed
                    | FailureCode::KeyRejected
                    | FailureCode::ModelNotFound
                    | FailureCode::ModelLoadFailed
                    | FailureCode::FirstTokenTimeout
                    | FailureCode::IdleTimeout
                    | FailureCode::StreamCut
                    | FailureCode::BadStream
                    | FailureCode::EmptyResponse
                    | FailureCode::RateLimited
                    | FailureCode::QuotaExceeded
                    | FailureCode::BadRequest
                    | FailureCode::CannotSeeImages
                    | FailureCode::ContextOverflow
                    | FailureCode::ProviderError
                    | FailureCode::AllCandidatesFailed
                    | FailureCode::ToolLoop => {}
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::{CancelledBy, Failure, StopReason};

    use super::*;

    #[test]
    fn what_is_committed_is_counted_once_under_its_name() {
        let health = Health::new(Timestamp::from_millis(0));
        let ended = |outcome| EventBody::TurnEnded { outcome };
        let failed = |code| TurnOutcome::Failed {
            failure: Failure::new(code, ""),
        };
        for body in [
            ended(TurnOutcome::Completed {
                stop: StopReason::EndOfTurn,
            }),
            ended(TurnOutcome::Cancelled {
                by: CancelledBy::User,
            }),
            ended(failed(FailureCode::Aborted)),
            ended(failed(FailureCode::StreamCut)),
            EventBody::AttemptFailed {
                step: 1,
                attempt: 1,
                failure: Failure::new(FailureCode::RateLimited, ""),
                retry_in_ms: Some(1),
                next: None,
            },
        ] {
            health.committed(SessionId::from_bits(1), TurnId::FIRST, &body);
        }
        health.attached(AttachReason::Open);
        health.attached(AttachReason::Gap);
        let counted: Vec<(Counted, u64)> = Counted::ALL
            .iter()
            .map(|what| (*what, health.of(*what)))
            .filter(|(_, count)| *count > 0)
            .collect();
        assert_eq!(
            counted,
            [
                (Counted::TurnEnded, 4),
                (Counted::Retry, 1),
                (Counted::Cancelled, 1),
                (Counted::Backstop, 1),
                (Counted::Gap, 1),
            ]
        );
    }
}
