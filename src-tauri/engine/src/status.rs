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
            *status = Status {
                revision: self.revision.fetch_add(1, Ordering::Relaxed) + 1,
                turn,
                phase,
                since: self.clock.wall(),
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
