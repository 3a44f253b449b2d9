//! What each session's turn is doing right now. Never stored: after a restart nothing runs, and the log says how it ended.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use protocol::{Phase, SessionId, Status, TurnId};
use tokio::sync::watch;

use crate::clock::Clock;

/// The present status of every session that had a turn in this boot.
pub(crate) struct StatusBoard {
    clock: Arc<dyn Clock>,
    revision: AtomicU64,
    sessions: Mutex<HashMap<SessionId, watch::Sender<Status>>>,
}

impl StatusBoard {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            revision: AtomicU64::new(1),
            sessions: Mutex::new(HashMap::new()),
        }
    }

    /// A watch of a session's status.
    pub(crate) fn watch(&self, session: SessionId) -> watch::Receiver<Status> {
        self.sender(session).subscribe()
    }

    /// Says what a session's turn is doing. Saying the same again changes nothing.
    pub(crate) fn set(&self, session: SessionId, turn: Option<TurnId>, phase: Phase) {
        self.sender(session).send_if_modified(|status| {
            if status.turn == turn && status.phase == phase {
                return false;
            }
            let goes_on = status.turn == turn && phase.goes_on_from(&status.phase);
            *status = Status {
                revision: self.revision.fetch_add(1, Ordering::Relaxed) + 1,
                turn,
                since: if goes_on {
                    status.since
                } else {
                    self.clock.wall()
                },
                phase,
            };
            true
        });
    }

    fn sender(&self, session: SessionId) -> watch::Sender<Status> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions
            .entry(session)
            .or_insert_with(|| {
                watch::channel(Status {
                    revision: 1,
                    turn: None,
                    phase: Phase::Idle,
                    since: self.clock.wall(),
                })
                .0
            })
            .clone()
    }
}

/// Says what one turn is doing.
#[derive(Clone)]
pub(crate) struct PhaseSetter {
    pub(crate) board: Arc<StatusBoard>,
    pub(crate) session: SessionId,
    pub(crate) turn: TurnId,
}

impl PhaseSetter {
    pub(crate) fn set(&self, phase: Phase) {
        self.board.set(self.session, Some(self.turn), phase);
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::atomic::AtomicI64, time::Duration};

    use protocol::Timestamp;

    use super::*;
    use crate::clock::Sleep;

    /// A second later each time it is looked at.
    struct Later(AtomicI64);

    impl Clock for Later {
        fn wall(&self) -> Timestamp {
            Timestamp::from_millis(self.0.fetch_add(1_000, Ordering::Relaxed))
        }
        fn monotonic(&self) -> Duration {
            Duration::ZERO
        }
        fn sleep_until(&self, _at: Duration) -> Sleep {
            Box::pin(std::future::pending())
        }
    }

    #[test]
    fn a_state_that_gets_further_keeps_its_beginning_and_another_has_its_own() {
        let board = StatusBoard::new(Arc::new(Later(AtomicI64::new(0))));
        let session = SessionId::from_bits(1);
        let status = board.watch(session);
        let set = |phase| {
            board.set(session, Some(TurnId::FIRST), phase);
            let status = status.borrow().clone();
            (status.since.millis(), status.revision)
        };
        let loading = |permille| Phase::LoadingModel {
            model: "kelp:7b".to_owned(),
            permille,
        };
        let reading = |done| Phase::ReadingPrompt {
            done: Some(done),
            total: Some(90),
        };
        let (began, first) = set(loading(None));
        let (since, second) = set(loading(Some(450)));
        assert_eq!(since, began, "it loads since it began to");
        assert!(second > first, "and whoever looks is told how far it is");
        let (read, _) = set(reading(1));
        assert!(read > began, "reading is something else");
        assert_eq!(set(reading(45)).0, read);
        assert!(set(Phase::Writing).0 > read);
    }
}
