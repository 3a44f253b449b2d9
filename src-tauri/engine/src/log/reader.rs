//! Reads: on connections of their own, each read one transaction, none held while anybody waits.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use protocol::{
    Draft, Effect, Event, Image, ImageId, ItemBody, ItemId, Ledger, LibraryPage, LogId, OpId,
    Receipt, Seq, SessionId, StreamId, Timestamp, ToolState, TurnId, TurnView,
};
use rusqlite::{Connection, OptionalExtension, Transaction, params};
use serde::de::DeserializeOwned;
use transcript::fold_turn;

use super::{
    CommitError, Counts, Head, LogFaults, OpDigest, ReadError, Trouble, codec, damage,
    database::{self, OpenError},
    images, ledger, shelf,
    writer::{self, find_key},
};

/// How many idle connections are kept: readers come in bursts, and a connection costs a file handle and its cache.
const IDLE_MAX: usize = 4;

/// Rows looked at in one go while looking for the end of a batch.
const ROWS_MAX: i64 = 4_096;

/// What an event costs beside its body, roughly, when it is sent.
const ROW_BYTES: usize = 64;

/// A turn's events from a seq on. Those of the next turn end the scan; what happened to the session meanwhile is no
/// part of the turn.
const TURN_EVENTS: &str = "SELECT seq, at, turn, kind, body FROM events
     WHERE stream = ?1 AND seq >= ?2 AND seq < coalesce(
         (SELECT first_seq FROM turns WHERE stream = ?1 AND turn > ?3 ORDER BY turn LIMIT 1),
         9223372036854775807)
     AND turn = ?3 ORDER BY seq";

/// How much of a transcript one page holds: whichever is reached first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageLimit {
    pub(crate) turns: usize,
    pub(crate) bytes: usize,
}

impl PageLimit {
    /// What fills a window several times over, and still crosses to it within a few milliseconds.
    pub(crate) const WINDOW: Self = Self {
        turns: 24,
        bytes: 256 * 1024,
    };
    /// All of it.
    pub(crate) const WHOLE: Self = Self {
        turns: usize::MAX,
        bytes: usize::MAX,
    };
}

/// A part of a session as it was at one moment.
#[derive(Debug)]
pub(crate) struct Excerpt {
    pub(crate) head: Head,
    pub(crate) turns: Vec<TurnView>,
    pub(crate) more_before: bool,
}

/// A part of one turn's events.
#[derive(Debug)]
pub(crate) struct TurnEvents {
    pub(crate) events: Vec<Event>,
    pub(crate) more_after: bool,
}

/// A pool of reading connections. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Reads(Arc<Pool>);

struct Pool {
    dir: PathBuf,
    idle: Mutex<Vec<Connection>>,
    counters: Counts,
    faults: LogFaults,
}

impl Reads {
    pub(super) fn new(dir: &Path, counters: Counts, faults: LogFaults) -> Self {
        Self(Arc::new(Pool {
            dir: dir.to_owned(),
            idle: Mutex::new(Vec::new()),
            counters,
            faults,
        }))
    }

    /// For readers beside a running writer of another process.
    pub(crate) fn beside(dir: &Path) -> Result<Self, OpenError> {
        let reads = Self::new(dir, Counts::default(), Default::default());
        let first = database::open_to_read(dir)?;
        reads
            .0
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(first);
        Ok(reads)
    }

    /// Runs `read` in one transaction, on a thread that may block.
    ///
    /// Cancel safe: a dropped read changes nothing.
    pub(crate) async fn read<T, F>(&self, read: F) -> Result<T, ReadError>
    where
        T: Send + 'static,
        F: FnOnce(&Snapshot<'_>) -> Result<T, ReadError> + Send + 'static,
    {
        let reads = self.clone();
        tokio::task::spawn_blocking(move || reads.read_now(read))
            .await
            .map_err(|_| ReadError::Closed)?
    }

    /// The same, on this thread.
    pub(crate) fn read_now<T>(
        &self,
        read: impl FnOnce(&Snapshot<'_>) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        self.read_raw(read).map_err(|error| self.failed(error))
    }

    fn read_raw<T>(
        &self,
        read: impl FnOnce(&Snapshot<'_>) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        let mut connection = self.connection()?;
        let transaction = connection.transaction()?;
        let result = read(&Snapshot(&transaction));
        self.0.faults.rows_read()?;
        // Nothing was written; ending the transaction lets the write-ahead log shrink.
        transaction.rollback()?;
        let mut idle = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
        result
    }

    /// Names the database in the error, counts it, and notes damage for the next start.
    fn failed(&self, error: ReadError) -> ReadError {
        let damaged = match &error {
            ReadError::Storage(error) => error.trouble() == Trouble::Damaged,
            ReadError::Hole { .. } => true,
            ReadError::NoSuchSession | ReadError::Closed => return error,
        };
        self.0.counters.add(|count| count.failed_reads += 1);
        let error = match error {
            ReadError::Storage(error) => {
                ReadError::Storage(error.at(&self.0.dir.join(database::FILE_NAME)))
            }
            other @ (ReadError::Hole { .. } | ReadError::NoSuchSession | ReadError::Closed) => {
                other
            }
        };
        tracing::error!(%error, "a read of the log failed");
        if damaged {
            damage::note(&self.0.dir, &error.to_string());
        }
        error
    }

    fn connection(&self) -> Result<Connection, ReadError> {
        let idle = self
            .0
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        match idle {
            Some(connection) => Ok(connection),
            None => database::open_to_read(&self.0.dir).map_err(|error| match error {
                OpenError::Storage(error) => ReadError::Storage(error),
                error @ (OpenError::Folder { .. }
                | OpenError::InUse { .. }
                | OpenError::Missing { .. }
                | OpenError::Newer { .. }
                | OpenError::Older { .. }
                | OpenError::Foreign { .. }
                | OpenError::Emptied { .. }
                | OpenError::NotSalvaged { .. }
                | OpenError::Backup { .. }
                | OpenError::Recovery(_)
                | OpenError::Thread(_)
                | OpenError::Gateway(_)) => {
                    tracing::error!(%error, "cannot open the log for reading");
                    ReadError::Closed
                }
            }),
        }
    }

    /// What a reader holds who does not end its transaction.
    #[cfg(feature = "mutants")]
    pub(crate) fn hold(&self) -> Option<Connection> {
        let connection = self.connection().ok()?;
        let begun = connection.execute_batch("BEGIN; SELECT count(*) FROM events");
        begun.ok().map(|()| connection)
    }

    #[cfg(not(feature = "mutants"))]
    pub(crate) fn hold(&self) -> Option<Connection> {
        None
    }

    pub(super) fn bytes(&self) -> u64 {
        let file = self.0.dir.join(database::FILE_NAME);
        let size = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
        size(&file) + size(&database::write_ahead_log(&file))
    }

    pub(super) fn last_backup(&self) -> Option<String> {
        super::backup::newest(&self.0.dir)
    }

    pub(crate) async fn count(&self, stream: StreamId) -> Result<u64, ReadError> {
        self.read(move |log| log.count(stream)).await
    }
}

/// The log as it is at one moment.
pub(crate) struct Snapshot<'a>(&'a Transaction<'a>);

impl Snapshot<'_> {
    pub(super) fn key(&self, stream: StreamId) -> Result<Option<i64>, ReadError> {
        Ok(find_key(self.0, stream)?)
    }

    pub(super) fn connection(&self) -> &Connection {
        self.0
    }

    /// How many events the stream has.
    pub(crate) fn count(&self, stream: StreamId) -> Result<u64, ReadError> {
        let Some(key) = self.key(stream)? else {
            return Ok(0);
        };
        Ok(count_of(self.0, key)?)
    }

    /// Events after the first `after`, oldest first: about `max_bytes` of them, but at least one if there is any.
    pub(crate) fn events_after(
        &self,
        stream: StreamId,
        after: u64,
        max_bytes: usize,
    ) -> Result<Vec<Event>, ReadError> {
        let Some(key) = self.key(stream)? else {
            return Ok(Vec::new());
        };
        let mut statement = self.0.prepare_cached(
            "SELECT seq, at, turn, kind, body FROM events
             WHERE stream = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3",
        )?;
        let mut rows = statement.query(params![key, after as i64, ROWS_MAX])?;
        let mut events: Vec<Event> = Vec::new();
        let mut bytes = 0;
        let mut expected = after + 1;
        while let Some(row) = rows.next()? {
            bytes += row.get_ref(4)?.as_str().map_or(0, str::len) + ROW_BYTES;
            if !events.is_empty() && bytes > max_bytes {
                break;
            }
            let event = codec::event_of(row)?;
            if event.seq.get() != expected {
                return Err(ReadError::Hole {
                    stream,
                    seq: Seq::new(expected),
                });
            }
            expected += 1;
            events.push(event);
        }
        Ok(events)
    }

    /// A session's header, brought up to date from its cache, or rebuilt without one.
    pub(crate) fn head(&self, session: SessionId) -> Result<Option<Head>, ReadError> {
        let stream = StreamId::Session(session);
        let Some(key) = self.key(stream)? else {
            return Ok(None);
        };
        let head = head_of(self.0, key)?;
        Ok((head.count > 0).then_some(head))
    }

    /// The last turns of the conversation, or those before a turn.
    pub(crate) fn excerpt(
        &self,
        session: SessionId,
        before: Option<TurnId>,
        limit: PageLimit,
    ) -> Result<Excerpt, ReadError> {
        let stream = StreamId::Session(session);
        let key = self.key(stream)?.ok_or(ReadError::NoSuchSession)?;
        let head = head_of(self.0, key)?;
        if head.count == 0 {
            return Err(ReadError::NoSuchSession);
        }
        let mut statement = self.0.prepare_cached(
            "SELECT t.turn, t.first_seq, v.body FROM turns t
             LEFT JOIN turn_views v ON v.stream = t.stream AND v.turn = t.turn
             WHERE t.stream = ?1 AND t.turn < ?2 AND t.hidden = 0 ORDER BY t.turn DESC",
        )?;
        let before = before.map_or(i64::MAX, |t| t.get() as i64);
        let mut rows = statement.query(params![key, before])?;
        let (mut turns, mut bytes, mut more_before) = (Vec::new(), 0_usize, false);
        while let Some(row) = rows.next()? {
            if turns.len() >= limit.turns || (bytes >= limit.bytes && !turns.is_empty()) {
                more_before = true;
                break;
            }
            let turn = TurnId::new(row.get::<_, i64>(0)?.unsigned_abs());
            let stored = codec::cached(row, 2)?;
            bytes += stored.as_ref().map_or(0, String::len);
            let view = match stored.and_then(|body| serde_json::from_str(&body).ok()) {
                Some(view) => Some(view),
                // No view yet, or one of another version: the events say the same.
                None => self.fold(key, turn, row.get(1)?)?,
            };
            turns.extend(view);
        }
        turns.reverse();
        Ok(Excerpt {
            head,
            turns,
            more_before,
        })
    }

    /// One turn, folded from its events.
    pub(crate) fn folded_turn(
        &self,
        session: SessionId,
        turn: TurnId,
    ) -> Result<Option<TurnView>, ReadError> {
        let Some(key) = self.key(StreamId::Session(session))? else {
            return Ok(None);
        };
        match self.first_of(key, turn)? {
            Some(first) => self.fold(key, turn, first),
            None => Ok(None),
        }
    }

    /// A turn's events after `after`, oldest first: about `max_bytes` of them, but at least one if there is any, and
    /// whether there are more. Of a rewound turn like of any other; `None` if there is no such turn.
    pub(crate) fn turn_events_after(
        &self,
        session: SessionId,
        turn: TurnId,
        after: u64,
        max_bytes: usize,
    ) -> Result<Option<TurnEvents>, ReadError> {
        let Some(key) = self.key(StreamId::Session(session))? else {
            return Ok(None);
        };
        let Some(first) = self.first_of(key, turn)? else {
            return Ok(None);
        };
        let mut statement = self.0.prepare_cached(TURN_EVENTS)?;
        let from = (after as i64).saturating_add(1).max(first);
        let mut rows = statement.query(params![key, from, turn.get() as i64])?;
        let (mut events, mut bytes) = (Vec::new(), 0_usize);
        while let Some(row) = rows.next()? {
            bytes += row.get_ref(4)?.as_str().map_or(0, str::len) + ROW_BYTES;
            if !events.is_empty() && bytes > max_bytes {
                return Ok(Some(TurnEvents {
                    events,
                    more_after: true,
                }));
            }
            events.push(codec::event_of(row)?);
        }
        Ok(Some(TurnEvents {
            events,
            more_after: false,
        }))
    }

    /// Where a turn begins.
    fn first_of(&self, key: i64, turn: TurnId) -> Result<Option<i64>, ReadError> {
        Ok(self
            .0
            .prepare_cached("SELECT first_seq FROM turns WHERE stream = ?1 AND turn = ?2")?
            .query_row(params![key, turn.get() as i64], |r| r.get(0))
            .optional()?)
    }

    fn fold(&self, key: i64, turn: TurnId, first: i64) -> Result<Option<TurnView>, ReadError> {
        let mut statement = self.0.prepare_cached(TURN_EVENTS)?;
        let events = statement
            .query_map(params![key, first, turn.get() as i64], codec::event_of)?
            .collect::<Result<Vec<_>, _>>()?;
        Ok(fold_turn(&events))
    }

    /// Whether the newest result of this same call, in a rewound turn too, says that nobody knows what it did.
    pub(crate) fn may_have_run(
        &self,
        session: SessionId,
        name: &str,
        arguments: &str,
    ) -> Result<bool, ReadError> {
        let Some(key) = self.key(StreamId::Session(session))? else {
            return Ok(false);
        };
        // The index of results makes this a look at the session's calls, not at its text.
        let mut statement = self.0.prepare_cached(
            "SELECT DISTINCT turn FROM events WHERE stream = ?1 AND kind = 'ToolCallFinished'
             AND item >= (SELECT min(item) FROM events WHERE stream = ?1 AND kind = 'ToolCallFinished'
                          AND json_extract(body, '$.effect') = 'unknown')
             ORDER BY turn DESC",
        )?;
        let turns = statement
            .query_map([key], |row| row.get(0))?
            .collect::<Result<Vec<i64>, _>>()?;
        for turn in turns {
            let view = self.folded_turn(session, TurnId::new(turn.unsigned_abs()))?;
            let items = view.iter().flat_map(|view| view.items.iter().rev());
            let mut newest = items.filter_map(|item| match &item.body {
                ItemBody::ToolCall {
                    name: own,
                    arguments: asked,
                    state: ToolState::Finished { effect, .. },
                    ..
                } if own == name && asked == arguments => match effect {
                    // One that did nothing says nothing about the ones before it.
                    Effect::None => None,
                    Effect::Committed => Some(false),
                    Effect::Unknown => Some(true),
                },
                ItemBody::ToolCall { .. }
                | ItemBody::UserMessage { .. }
                | ItemBody::Text { .. }
                | ItemBody::Compacted { .. }
                | ItemBody::Unsupported { .. } => None,
            });
            if let Some(is_unknown) = newest.next() {
                return Ok(is_unknown);
            }
        }
        Ok(false)
    }

    /// What an op was answered, if it ran before; an error if its id was used for something else.
    pub(crate) fn find_op(
        &self,
        op: OpId,
        digest: OpDigest,
    ) -> Result<Option<Result<Receipt, CommitError>>, ReadError> {
        Ok(writer::find_op(self.0, op, digest)?)
    }

    /// What was typed and not sent; empty if nothing.
    pub(crate) fn draft(&self, session: Option<SessionId>) -> Result<Draft, ReadError> {
        let row: Option<(String, String)> = self
            .0
            .prepare_cached(
                "SELECT text, coalesce((SELECT images FROM draft_images WHERE session = ?1), '')
                 FROM drafts WHERE session = ?1",
            )?
            .query_row([draft_key(session)], |r| {
                Ok((codec::text(r, 0)?, codec::text(r, 1)?))
            })
            .optional()?;
        let (text, images) = row.unwrap_or_default();
        Ok(Draft {
            text,
            // Empty for none, and what cannot be read is none: the text counts more.
            images: serde_json::from_str(&images).unwrap_or_default(),
        })
    }

    /// What is stored of these images, in their order; `None` for one that is not there.
    pub(crate) fn known_images(&self, shown: &[Image]) -> Result<Vec<Option<Image>>, ReadError> {
        let known = shown.iter().map(|image| images::known(self.0, image));
        Ok(known.collect::<Result<_, _>>()?)
    }

    /// An image's bytes.
    pub(crate) fn image(&self, image: ImageId) -> Result<images::Found, ReadError> {
        Ok(images::read(self.0, image)?)
    }

    /// The library as of its last snapshot, if there is one that holds.
    pub(crate) fn shelf(&self, log: LogId) -> Result<Option<LibraryPage>, ReadError> {
        Ok(shelf::read(self.0, log)?)
    }

    /// The requests between the bounds, summed up, and when the first of all was made.
    pub(crate) fn ledger(&self, bounds: &[Timestamp]) -> Result<Ledger, ReadError> {
        Ok(Ledger {
            rows: ledger::rows(self.0, bounds)?,
            since: ledger::since(self.0)?,
            prices: None,
        })
    }

    /// The database's identity.
    pub(crate) fn log_id(&self) -> Result<protocol::LogId, ReadError> {
        database::log_id(self.0).map_err(|_| ReadError::Closed)
    }
}

pub(super) fn draft_key(session: Option<SessionId>) -> Vec<u8> {
    session.map_or_else(Vec::new, |s| s.bits().to_be_bytes().to_vec())
}

pub(super) fn count_of(db: &Connection, key: i64) -> rusqlite::Result<u64> {
    db.prepare_cached("SELECT coalesce(max(seq), 0) FROM events WHERE stream = ?1")?
        .query_row([key], |r| r.get::<_, i64>(0))
        .map(i64::unsigned_abs)
}

/// What the cache holds of a stream's header, if it can be read.
pub(super) fn stored_head<T: DeserializeOwned>(
    db: &Connection,
    key: i64,
) -> rusqlite::Result<Option<T>> {
    let stored = db
        .prepare_cached("SELECT body FROM heads WHERE stream = ?1")?
        .query_row([key], |r| codec::cached(r, 0))
        .optional()?
        .flatten();
    Ok(stored.and_then(|body| serde_json::from_str(&body).ok()))
}

/// The header from its cache plus the events since; from the first event if the cache is missing, unreadable or wrong.
pub(super) fn head_of(db: &Connection, key: i64) -> rusqlite::Result<Head> {
    let count = count_of(db, key)?;
    let mut head = stored_head::<Head>(db, key)?
        .filter(|head| head.count <= count)
        .unwrap_or_else(Head::empty);
    if head.count < count {
        let since = head.count as i64;
        // A running turn is mostly text, and text moves nothing in a header but its counts.
        let mut statement = db.prepare_cached(
            "SELECT seq, at, turn, kind, body FROM events
             WHERE stream = ?1 AND seq > ?2 AND kind <> 'TextAppended' ORDER BY seq",
        )?;
        let mut rows = statement.query(params![key, since])?;
        while let Some(row) = rows.next()? {
            let event = codec::event_of(row)?;
            head.count = event.seq.get().saturating_sub(1);
            head.apply(event.turn, &event.body);
        }
        head.count = count;
        let last_item: Option<i64> = db
            .prepare_cached("SELECT max(item) FROM events WHERE stream = ?1 AND seq > ?2")?
            .query_row(params![key, since], |r| r.get(0))?;
        if let Some(item) = last_item {
            head.next_item = head.next_item.max(ItemId::new(item.unsigned_abs()).next());
        }
    }
    Ok(head)
}
