//! Reading a data folder without being its engine: for the terminal, beside a running window.

use std::path::Path;

use protocol::{
    Event, EventPage, Ledger, LibraryPage, LogId, Seq, SessionId, StreamId, Timestamp,
    TranscriptPage, TurnId,
};
use transcript::{Follow, Library};

use crate::{
    engine::{event_page, transcript_page},
    log::{OpenError, PageLimit, ReadError, Reads},
};

/// Events read in one go.
const CHUNK_BYTES: usize = 4 * 1024 * 1024;

/// A data folder, open for reading only: takes no lock, recovers nothing, dials nothing.
///
/// Blocking.
pub struct Reader {
    reads: Reads,
    log: LogId,
}

impl Reader {
    /// Opens the data folder.
    ///
    /// # Errors
    /// [`OpenError::Missing`] if there is nothing in it yet; others as named.
    pub fn open(dir: &Path) -> Result<Self, OpenError> {
        let reads = Reads::beside(dir)?;
        let log = reads
            .read_now(|log| log.log_id())
            .map_err(|_| OpenError::Foreign {
                path: dir.join(crate::log::FILE_NAME),
            })?;
        Ok(Self { reads, log })
    }

    /// The database's identity.
    pub fn log_id(&self) -> LogId {
        self.log
    }

    /// What sessions and providers exist.
    ///
    /// # Errors
    /// [`ReadError`]
    pub fn library(&self) -> Result<LibraryPage, ReadError> {
        let kept = self.reads.read_now(|log| log.shelf(self.log))?;
        let mut library = kept.map_or_else(|| Library::empty(self.log), Library::from);
        let mut changes = Vec::new();
        loop {
            let after = library.cursor().count();
            let events = self
                .reads
                .read_now(|log| log.events_after(StreamId::Library, after, CHUNK_BYTES))?;
            if events.is_empty() {
                return Ok(library.to_page());
            }
            for event in &events {
                library.apply(event, &mut changes);
            }
            changes.clear();
        }
    }

    /// The requests between the bounds, ascending, summed up by bucket and model.
    ///
    /// # Errors
    /// [`ReadError`]
    pub fn ledger(&self, bounds: &[Timestamp]) -> Result<Ledger, ReadError> {
        let prices = self.library()?.prices;
        let ledger = self.reads.read_now(|log| log.ledger(bounds))?;
        Ok(Ledger { prices, ..ledger })
    }

    /// A session's whole transcript.
    ///
    /// # Errors
    /// [`ReadError::NoSuchSession`], or the disk.
    pub fn transcript(&self, session: SessionId) -> Result<TranscriptPage, ReadError> {
        self.reads
            .read_now(|log| transcript_page(log, self.log, session, None, PageLimit::WHOLE))
    }

    /// A part of what the log holds of a turn, after `after`; `None` if there is no such turn. Rewound turns have theirs.
    ///
    /// # Errors
    /// [`ReadError::NoSuchSession`], or the disk.
    pub fn turn_events(
        &self,
        session: SessionId,
        turn: TurnId,
        after: Option<Seq>,
    ) -> Result<Option<EventPage>, ReadError> {
        self.reads
            .read_now(|log| event_page(log, self.log, session, turn, after, CHUNK_BYTES))
    }

    /// At most `max` events of a stream after `after`, oldest first.
    ///
    /// # Errors
    /// [`ReadError`]
    pub fn events(
        &self,
        stream: StreamId,
        after: Option<Seq>,
        max: usize,
    ) -> Result<Vec<Event>, ReadError> {
        let mut all: Vec<Event> = Vec::new();
        while all.len() < max {
            let after = all
                .last()
                .map(|event| event.seq)
                .or(after)
                .map_or(0, Seq::get);
            let mut events = self
                .reads
                .read_now(|log| log.events_after(stream, after, CHUNK_BYTES))?;
            if events.is_empty() {
                break;
            }
            events.truncate(max - all.len());
            all.append(&mut events);
        }
        Ok(all)
    }
}
