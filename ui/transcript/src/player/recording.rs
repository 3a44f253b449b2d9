//! A turn's events, gathered page by page.
//!
//! Invariant: what is gathered is a beginning of the turn without a hole that a page could have told of, each event
//! once. Kept by: a page that does not join on is not taken.

use protocol::{Event, EventPage, LogId, Seq, SessionId, TurnId};

/// The events of one turn, as far as they were read.
#[derive(Clone, Debug)]
pub struct Recording {
    session: SessionId,
    turn: TurnId,
    log: Option<LogId>,
    events: Vec<Event>,
}

/// Whether a turn has been read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gathered {
    /// No: ask for what comes after [`Recording::after`].
    More,
    /// Yes, as far as it had got.
    Whole,
}

/// A page that does not belong here. Nothing of it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Torn {
    /// Of another turn.
    #[error("the events are of another turn")]
    OtherTurn,
    /// Of another database than the pages before it.
    #[error("the database was replaced while the turn was read")]
    OtherLog,
    /// Its events do not come after those that are here.
    #[error("the events do not join on")]
    NotNext,
    /// There should be more, and none came.
    #[error("the rest of the turn cannot be read")]
    NoProgress,
}

impl Recording {
    /// Nothing yet.
    pub fn of(session: SessionId, turn: TurnId) -> Self {
        Self {
            session,
            turn,
            log: None,
            events: Vec::new(),
        }
    }

    /// The last event that is here.
    pub fn after(&self) -> Option<Seq> {
        self.events.last().map(|event| event.seq)
    }

    /// What is here, oldest first.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Takes the next page.
    ///
    /// # Errors
    /// [`Torn`]: the page does not belong here.
    pub fn take(&mut self, page: EventPage) -> Result<Gathered, Torn> {
        if page.session != self.session || page.turn != self.turn {
            return Err(Torn::OtherTurn);
        }
        if self.log.is_some_and(|log| log != page.as_of.log()) {
            return Err(Torn::OtherLog);
        }
        let mut last = self.after();
        for event in &page.events {
            if event.turn != Some(self.turn) {
                return Err(Torn::OtherTurn);
            }
            if last.is_some_and(|last| event.seq <= last) {
                return Err(Torn::NotNext);
            }
            last = Some(event.seq);
        }
        if page.more_after && page.events.is_empty() {
            return Err(Torn::NoProgress);
        }
        self.log = Some(page.as_of.log());
        self.events.extend(page.events);
        Ok(if page.more_after {
            Gathered::More
        } else {
            Gathered::Whole
        })
    }

    pub(super) fn into_events(self) -> Vec<Event> {
        self.events
    }
}
