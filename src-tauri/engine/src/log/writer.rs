//! The writer: the one thread that appends.
//!
//! Invariant: seqs are dense, all of a commit is in one transaction, and waiters wake after the transaction is committed.
//! Kept by: groups of commits share a transaction, each inside a savepoint, so that one refused commit does not take
//! its neighbours along; a failed transaction fails them all and nothing was answered before.
//! Not here: what to append.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use protocol::{
    Boot, Draft, EventBody, Image, ItemId, OpId, Receipt, SessionId, StreamId, Timestamp, TurnId,
};
use rusqlite::{
    Connection, ErrorCode, OptionalExtension, Transaction, TransactionBehavior, params,
};
use tokio::sync::{mpsc, oneshot};

use super::{
    Append, Commit, CommitError, Committed, Counts, Derived, Durability, Heads, LogCounters,
    LogFaults, OpDigest, RoomWatch, codec, damage, database, faults::WriteStep, images, ledger,
    shelf,
};
use crate::{Harness, clock::Clock, gate::gate_blocking, mutant::mutated};

/// How many commits share a transaction at most: bounds how long the first of them waits.
const GROUP_MAX: usize = 128;

/// While only text flows, one commit in this time is synced: what a power cut may cost.
const SYNC_EVERY: Duration = Duration::from_secs(2);

/// A commit that takes longer is counted as slow: what a reader would no longer call at once.
const SLOW: Duration = Duration::from_millis(250);

pub(super) enum Request {
    Commit {
        commit: Commit,
        durability: Durability,
        reply: oneshot::Sender<Result<Committed, CommitError>>,
    },
    Close {
        boot: Boot,
        at: Timestamp,
        reply: oneshot::Sender<()>,
    },
}

type Waiting = (
    Commit,
    Durability,
    oneshot::Sender<Result<Committed, CommitError>>,
);

/// What a writer is made of.
pub(super) struct Tools {
    pub(super) connection: Connection,
    pub(super) dir: PathBuf,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) heads: Arc<Heads>,
    pub(super) counters: Counts,
    pub(super) room: RoomWatch,
    pub(super) faults: LogFaults,
    pub(super) harness: Harness,
}

/// One answer for each commit of a group, and what was written; or nothing was written of any.
type Written = Result<(Vec<Result<Committed, CommitError>>, LogCounters), CommitError>;

pub(super) struct Writer {
    connection: Connection,
    dir: PathBuf,
    clock: Arc<dyn Clock>,
    heads: Arc<Heads>,
    counters: Counts,
    room: RoomWatch,
    faults: LogFaults,
    keys: StreamKeys,
    texts: OpenTexts,
    synced_at: Duration,
    level: Option<Durability>,
    harness: Harness,
}

impl Writer {
    pub(super) fn new(tools: Tools) -> Self {
        let Tools {
            connection,
            dir,
            clock,
            heads,
            counters,
            room,
            faults,
            harness,
        } = tools;
        Self {
            synced_at: clock.monotonic(),
            connection,
            dir,
            clock,
            heads,
            counters,
            room,
            faults,
            keys: StreamKeys::default(),
            texts: OpenTexts::default(),
            level: None,
            harness,
        }
    }

    pub(super) fn run(mut self, mut inbox: mpsc::Receiver<Request>) {
        while let Some(first) = inbox.blocking_recv() {
            let mut group = Vec::new();
            let mut next = Some(first);
            let mut closing = None;
            while let Some(request) = next {
                match request {
                    Request::Commit {
                        commit,
                        durability,
                        reply,
                    } => {
                        group.push((commit, durability, reply));
                    }
                    Request::Close { boot, at, reply } => {
                        closing = Some((boot, at, reply));
                        break;
                    }
                }
                next = if group.len() < GROUP_MAX {
                    inbox.try_recv().ok()
                } else {
                    None
                };
            }
            if !group.is_empty() {
                self.commit_group(group);
            }
            if let Some((boot, at, reply)) = closing {
                self.note_clean_exit(boot, at);
                drop(self);
                // Whoever asked may have given up waiting; the log is closed all the same.
                let _ = reply.send(());
                return;
            }
        }
    }

    fn commit_group(&mut self, group: Vec<Waiting>) {
        let now = self.clock.monotonic();
        let strictest = group
            .iter()
            .map(|(_, d, _)| *d)
            .max()
            .unwrap_or(Durability::Process);
        let durability = if now.saturating_sub(self.synced_at) >= SYNC_EVERY {
            Durability::Disk
        } else {
            strictest
        };
        // A bug in one commit must not end the log for all. Its transaction rolls back as it unwinds, and what the writer
        // remembers of it is undone below, as after any failure.
        let written = catch_unwind(AssertUnwindSafe(|| self.write_group(&group, durability)))
            .unwrap_or_else(|_| {
                tracing::error!("the writer panicked; nothing of its transaction was kept");
                Err(CommitError::Panicked)
            });
        let is_slow = self.clock.monotonic().saturating_sub(now) > SLOW;
        let replies = match written {
            Ok((results, written)) => {
                self.texts.settle();
                if durability == Durability::Disk {
                    self.synced_at = now;
                }
                self.counters.add(|count| {
                    count.commits += 1;
                    count.syncs += u64::from(durability == Durability::Disk);
                    count.events += written.events;
                    count.body_bytes += written.body_bytes;
                    count.cache_bytes += written.cache_bytes;
                });
                results
            }
            Err(error) => {
                let error = error.at(&self.dir.join(database::FILE_NAME));
                tracing::error!(%error, commits = group.len(), "a transaction of the log failed");
                if error.is_damage() {
                    damage::note(&self.dir, &error.to_string());
                }
                self.keys = StreamKeys::default();
                self.texts.undo_to(Mark::default());
                group.iter().map(|_| Err(error.clone())).collect()
            }
        };
        let failed = replies.iter().filter(|reply| reply.is_err()).count() as u64;
        self.counters.add(|count| {
            count.slow_commits += u64::from(is_slow);
            count.failed_commits += failed;
        });
        // Every few seconds, while something is written, somebody looks.
        self.room.now();
        for result in replies.iter().flatten() {
            for (stream, count) in &result.counts {
                self.heads.moved(*stream, *count);
            }
        }
        for ((_, _, reply), result) in group.into_iter().zip(replies) {
            // Whoever asked may be gone; the commit stands on its own.
            let _ = reply.send(result);
        }
    }

    fn write_group(&mut self, group: &[Waiting], durability: Durability) -> Written {
        self.faults
            .writing(group.iter().flat_map(|(commit, _, _)| &commit.appends));
        self.set_level(durability)?;
        let at = self.clock.wall();
        self.faults.write(WriteStep::Begin).map_err(storage)?;
        let mut transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(storage)?;
        let mut results = Vec::with_capacity(group.len());
        let mut written = LogCounters::default();
        for (commit, _, _) in group {
            let mark = self.texts.mark();
            let savepoint = transaction.savepoint().map_err(storage)?;
            let mut batch = Batch {
                db: &savepoint,
                keys: &mut self.keys,
                texts: &mut self.texts,
                at,
                faults: &self.faults,
                written: LogCounters::default(),
                harness: &self.harness,
            };
            let result = batch.write(commit);
            let counts = batch.written;
            match result {
                Ok(committed) => {
                    savepoint.commit().map_err(storage)?;
                    written.events += counts.events;
                    written.body_bytes += counts.body_bytes;
                    written.cache_bytes += counts.cache_bytes;
                    results.push(Ok(committed));
                }
                // The disk: SQLite may have rolled back the whole transaction already, so nobody's part of it stands,
                // and what came after would be committed on its own.
                Err(error @ CommitError::Storage(_)) => return Err(error),
                Err(error) => {
                    // Dropping a savepoint rolls it back, and with it what it taught the caches.
                    drop(savepoint);
                    self.keys = StreamKeys::default();
                    self.texts.undo_to(mark);
                    results.push(Err(error));
                }
            }
        }
        if mutated!(self.harness, WakeBeforeCommit) {
            for (stream, count) in results.iter().flatten().flat_map(|c| &c.counts) {
                self.heads.moved(*stream, *count);
            }
        }
        gate_blocking!(self.harness, Committing);
        self.faults.write(WriteStep::Commit).map_err(storage)?;
        transaction.commit().map_err(storage)?;
        Ok((results, written))
    }

    fn set_level(&mut self, durability: Durability) -> Result<(), CommitError> {
        if self.level != Some(durability) {
            let pragma = match durability {
                Durability::Process => "PRAGMA synchronous = NORMAL",
                Durability::Disk => "PRAGMA synchronous = FULL",
            };
            self.connection.execute_batch(pragma).map_err(storage)?;
            self.level = Some(durability);
        }
        Ok(())
    }

    fn note_clean_exit(&mut self, boot: Boot, at: Timestamp) {
        let noted = self.connection.execute(
            "UPDATE boots SET clean_exit_at = ?2 WHERE boot = ?1",
            params![boot.bits().to_be_bytes(), at.millis()],
        );
        if let Err(error) = noted {
            // Only a note for diagnostics: recovery looks at turns, not at this.
            tracing::warn!(%error, "could not note the clean exit");
        }
    }
}

/// The numbers that stand for streams in rows.
#[derive(Default)]
pub(super) struct StreamKeys(HashMap<StreamId, i64>);

impl StreamKeys {
    fn key(&mut self, db: &Connection, stream: StreamId) -> rusqlite::Result<i64> {
        if let Some(key) = self.0.get(&stream) {
            return Ok(*key);
        }
        let key = match find_key(db, stream)? {
            Some(key) => key,
            None => {
                let StreamId::Session(session) = stream else {
                    return Ok(0);
                };
                db.prepare_cached("INSERT INTO streams (session) VALUES (?1)")?
                    .execute([session.bits().to_be_bytes()])?;
                db.last_insert_rowid()
            }
        };
        self.0.insert(stream, key);
        Ok(key)
    }
}

/// The number that stands for a stream, if it has one yet.
pub(super) fn find_key(db: &Connection, stream: StreamId) -> rusqlite::Result<Option<i64>> {
    match stream {
        StreamId::Library => Ok(Some(0)),
        StreamId::Session(session) => db
            .prepare_cached("SELECT stream FROM streams WHERE session = ?1")?
            .query_row([session.bits().to_be_bytes()], |r| r.get(0))
            .optional(),
    }
}

/// Bytes of text so far in the items that may still grow; follows the transaction back when it is rolled back.
#[derive(Default)]
pub(super) struct OpenTexts {
    lengths: HashMap<(i64, ItemId), u64>,
    undo: Vec<((i64, ItemId), u64)>,
    ended: Vec<i64>,
}

impl OpenTexts {
    fn length(&self, key: i64, item: ItemId) -> u64 {
        self.lengths.get(&(key, item)).copied().unwrap_or(0)
    }
    fn grow(&mut self, key: i64, item: ItemId, to: u64) {
        let before = self.lengths.insert((key, item), to).unwrap_or(0);
        self.undo.push(((key, item), before));
    }
    fn end(&mut self, key: i64) {
        self.ended.push(key);
    }
    fn mark(&self) -> Mark {
        Mark {
            grown: self.undo.len(),
            ended: self.ended.len(),
        }
    }
    fn undo_to(&mut self, mark: Mark) {
        // A turn whose end was not written goes on where its text is.
        self.ended.truncate(mark.ended);
        while self.undo.len() > mark.grown {
            if let Some((text, before)) = self.undo.pop() {
                self.lengths.insert(text, before);
            }
        }
    }
    fn settle(&mut self) {
        self.undo.clear();
        if !self.ended.is_empty() {
            let ended = std::mem::take(&mut self.ended);
            self.lengths.retain(|(key, _), _| !ended.contains(key));
        }
    }
}

/// A point in a transaction to go back to; the default is its beginning.
#[derive(Clone, Copy, Default)]
struct Mark {
    grown: usize,
    ended: usize,
}

/// One commit on its way into the database.
pub(super) struct Batch<'a> {
    db: &'a Connection,
    keys: &'a mut StreamKeys,
    texts: &'a mut OpenTexts,
    at: Timestamp,
    faults: &'a LogFaults,
    written: LogCounters,
    harness: &'a Harness,
}

impl<'a> Batch<'a> {
    fn write(&mut self, commit: &Commit) -> Result<Committed, CommitError> {
        if let Some(stamp) = &commit.op
            && !mutated!(self.harness, NoOpIdInWriter)
            && let Some(earlier) = find_op(self.db, stamp.op, stamp.digest).map_err(storage)?
        {
            return earlier.map(|receipt| Committed {
                counts: Vec::new(),
                receipt: Some(receipt),
            });
        }
        let mut counts: Vec<(StreamId, u64)> = Vec::new();
        for append in &commit.appends {
            let seq = self.append(append)?;
            match counts
                .iter_mut()
                .find(|(stream, _)| *stream == append.stream)
            {
                Some((_, count)) => *count = seq,
                None => counts.push((append.stream, seq)),
            }
            if commit.op.is_some() {
                if mutated!(self.harness, SplitOp) {
                    self.db
                        .execute_batch("COMMIT; BEGIN IMMEDIATE; SAVEPOINT _rusqlite_sp")
                        .map_err(storage)?;
                }
                gate_blocking!(self.harness, OpHalfWritten);
            }
        }
        for derived in &commit.derived {
            self.derive(derived)?;
        }
        if let Some(stamp) = &commit.op {
            let receipt = serde_json::to_string(&stamp.receipt).map_err(encoding)?;
            self.db
                .prepare_cached("INSERT INTO ops (op, digest, receipt, at) VALUES (?1, ?2, ?3, ?4)")
                .and_then(|mut s| {
                    s.execute(params![
                        stamp.op.bits().to_be_bytes(),
                        stamp.digest.0,
                        receipt,
                        self.at.millis()
                    ])
                })
                .map_err(storage)?;
        }
        Ok(Committed {
            counts,
            receipt: commit.op.map(|stamp| stamp.receipt),
        })
    }

    fn append(&mut self, append: &Append) -> Result<u64, CommitError> {
        let Append { stream, turn, body } = append;
        let key = self.keys.key(self.db, *stream).map_err(storage)?;
        let text = codec::encode(body).map_err(encoding)?;
        self.check_text(key, body)?;
        let turn = turn.map(|t| t.get() as i64);
        let item = body.item().map(|i| i.get() as i64);
        let seq: i64 = self
            .db
            .prepare_cached(
                "INSERT INTO events (stream, seq, turn, item, kind, at, body)
                 VALUES (?1, 1 + coalesce((SELECT max(seq) FROM events WHERE stream = ?1), 0), ?2, ?3, ?4, ?5, ?6)
                 RETURNING seq",
            )
            .and_then(|mut s| {
                s.query_row(
                    params![key, turn, item, body.kind(), self.at.millis(), text],
                    |r| r.get(0),
                )
            })
            .map_err(storage)?;
        self.faults.write(WriteStep::Append).map_err(storage)?;
        match body {
            EventBody::UserMessageAdded { images, .. } => {
                images::use_them(self.db, images).map_err(storage)?;
            }
            EventBody::TurnStarted { .. } => self
                .db
                .prepare_cached("INSERT INTO open_turns (stream, turn) VALUES (?1, ?2)")
                .and_then(|mut s| s.execute(params![key, turn]))
                .map(drop)
                .map_err(storage)?,
            EventBody::TurnEnded { .. } => {
                self.texts.end(key);
                let closed = self
                    .db
                    .prepare_cached("DELETE FROM open_turns WHERE stream = ?1 AND turn = ?2")
                    .and_then(|mut s| s.execute(params![key, turn]))
                    .map_err(storage)?;
                if closed != 1 {
                    return Err(CommitError::Refused {
                        rule: "only the open turn of a session can end".into(),
                    });
                }
            }
            // Every other kind is a row and nothing else.
            _ => {}
        }
        let place = ledger::Place {
            key,
            seq,
            turn: append.turn,
            at: self.at,
        };
        ledger::follow(self.db, place, body, self.harness).map_err(storage)?;
        self.written.events += 1;
        self.written.body_bytes += text.len() as u64;
        Ok(seq.unsigned_abs())
    }

    /// L7: an item's text only grows, at its end.
    fn check_text(&mut self, key: i64, body: &EventBody) -> Result<(), CommitError> {
        let EventBody::TextAppended {
            item, offset, text, ..
        } = body
        else {
            return Ok(());
        };
        let length = self.texts.length(key, *item);
        if *offset != length {
            return Err(CommitError::Refused {
                rule: format!("a text of {length} bytes grows at its end, not at {offset}"),
            });
        }
        self.texts.grow(key, *item, length + text.len() as u64);
        Ok(())
    }

    fn derive(&mut self, derived: &Derived) -> Result<(), CommitError> {
        let written = match derived {
            Derived::Head { stream, head } => {
                let key = self.keys.key(self.db, *stream).map_err(storage)?;
                let body = serde_json::to_string(head).map_err(encoding)?;
                self.written.cache_bytes += body.len() as u64;
                write_head(self.db, key, head.count, &body)
            }
            Derived::TurnBegun {
                stream,
                turn,
                first_seq,
            } => {
                let key = self.keys.key(self.db, *stream).map_err(storage)?;
                self.db
                    .prepare_cached(
                        "INSERT INTO turns (stream, turn, first_seq) VALUES (?1, ?2, ?3)",
                    )
                    .and_then(|mut s| {
                        s.execute(params![key, turn.get() as i64, first_seq.get() as i64])
                    })
            }
            Derived::TurnsHidden { stream, from } => {
                let key = self.keys.key(self.db, *stream).map_err(storage)?;
                hide_turns(self.db, key, *from)
            }
            Derived::TurnsShown { stream, turns } => {
                let key = self.keys.key(self.db, *stream).map_err(storage)?;
                show_turns(self.db, key, turns)
            }
            Derived::TurnView { stream, turn, body } => {
                self.written.cache_bytes += body.len() as u64;
                let key = self.keys.key(self.db, *stream).map_err(storage)?;
                write_turn_view(self.db, key, *turn, body)
            }
            Derived::Shelf(step) => return shelf::write(self.db, step).map(drop),
            Derived::Draft { session, draft } => {
                let images = images_json(&draft.images)?;
                write_draft(self.db, *session, draft, &images, self.at)
            }
            Derived::DraftSent { session, draft } => {
                let images = images_json(&draft.images)?;
                forget_sent_draft(self.db, *session, &draft.text, &images)
            }
            Derived::Image { image, bytes } => {
                if mutated!(self.harness, ImageNotStored) {
                    return Ok(());
                }
                images::write(self.db, image, bytes, self.at)
            }
        };
        written.map(drop).map_err(storage)
    }
}

/// The turns from this one on are no longer part of the conversation.
pub(super) fn hide_turns(db: &Connection, key: i64, from: TurnId) -> rusqlite::Result<usize> {
    db.prepare_cached(
        "UPDATE turns SET hidden = 1 WHERE stream = ?1 AND turn >= ?2 AND hidden = 0",
    )?
    .execute(params![key, from.get() as i64])
}

/// These turns are part of the conversation again.
pub(super) fn show_turns(db: &Connection, key: i64, turns: &[TurnId]) -> rusqlite::Result<usize> {
    let mut statement =
        db.prepare_cached("UPDATE turns SET hidden = 0 WHERE stream = ?1 AND turn = ?2")?;
    let mut shown = 0;
    for turn in turns {
        shown += statement.execute(params![key, turn.get() as i64])?;
    }
    Ok(shown)
}

/// Empty for none.
fn images_json(images: &[Image]) -> Result<String, CommitError> {
    if images.is_empty() {
        return Ok(String::new());
    }
    serde_json::to_string(images).map_err(encoding)
}

fn write_draft(
    db: &Connection,
    session: Option<SessionId>,
    draft: &Draft,
    images: &str,
    at: Timestamp,
) -> rusqlite::Result<usize> {
    let key = super::reader::draft_key(session);
    if images.is_empty() {
        db.prepare_cached("DELETE FROM draft_images WHERE session = ?1")?
            .execute([&key])?;
    } else {
        db.prepare_cached("INSERT OR REPLACE INTO draft_images (session, images) VALUES (?1, ?2)")?
            .execute(params![key, images])?;
    }
    if draft.is_empty() {
        db.prepare_cached("DELETE FROM drafts WHERE session = ?1")?
            .execute([key])
    } else {
        db.prepare_cached(
            "INSERT INTO drafts (session, text, at) VALUES (?1, ?2, ?3)
             ON CONFLICT (session) DO UPDATE SET text = ?2, at = ?3",
        )?
        .execute(params![key, draft.text, at.millis()])
    }
}

/// The draft was sent, if it is this one; anything else stays.
fn forget_sent_draft(
    db: &Connection,
    session: Option<SessionId>,
    text: &str,
    images: &str,
) -> rusqlite::Result<usize> {
    let key = super::reader::draft_key(session);
    let sent = db
        .prepare_cached(
            "DELETE FROM drafts WHERE session = ?1 AND trim(text) = trim(?2)
             AND coalesce((SELECT images FROM draft_images WHERE session = ?1), '') = ?3",
        )?
        .execute(params![key, text, images])?;
    if sent > 0 {
        db.prepare_cached("DELETE FROM draft_images WHERE session = ?1")?
            .execute([key])?;
    }
    Ok(sent)
}

pub(super) fn write_head(
    db: &Connection,
    key: i64,
    count: u64,
    body: &str,
) -> rusqlite::Result<usize> {
    db.prepare_cached(
        "INSERT INTO heads (stream, as_of, body) VALUES (?1, ?2, ?3)
         ON CONFLICT (stream) DO UPDATE SET as_of = ?2, body = ?3",
    )?
    .execute(params![key, count as i64, body])
}

fn write_turn_view(db: &Connection, key: i64, turn: TurnId, body: &str) -> rusqlite::Result<usize> {
    db.prepare_cached(
        "INSERT INTO turn_views (stream, turn, body) VALUES (?1, ?2, ?3)
         ON CONFLICT (stream, turn) DO UPDATE SET body = ?3",
    )?
    .execute(params![key, turn.get() as i64, body])
}

/// The receipt of an op that ran before; an error if the id was used for something else.
pub(super) fn find_op(
    db: &Connection,
    op: OpId,
    digest: OpDigest,
) -> rusqlite::Result<Option<Result<Receipt, CommitError>>> {
    db.prepare_cached("SELECT digest, receipt FROM ops WHERE op = ?1")?
        .query_row([op.bits().to_be_bytes()], |r| {
            if r.get::<_, [u8; 16]>(0)? != digest.0 {
                return Ok(Err(CommitError::OpIdConflict));
            }
            let receipt: String = r.get(1)?;
            let receipt = serde_json::from_str(&receipt).map_err(|e| {
                rusqlite::Error::FromSqlConversionFailure(
                    1,
                    rusqlite::types::Type::Text,
                    Box::new(e),
                )
            })?;
            Ok(Ok(receipt))
        })
        .optional()
}

/// Appends outside of the writer's loop, for recovery: same rules, same statements.
pub(super) fn append_all(
    transaction: &Transaction<'_>,
    commit: &Commit,
    at: Timestamp,
) -> Result<Committed, CommitError> {
    let (mut keys, mut texts) = (StreamKeys::default(), OpenTexts::default());
    Batch {
        db: transaction,
        keys: &mut keys,
        texts: &mut texts,
        at,
        // Faults are for the writer.
        faults: &Default::default(),
        written: LogCounters::default(),
        harness: &Harness::default(),
    }
    .write(commit)
}

/// Tells a broken rule from a broken disk.
pub(super) fn storage(error: rusqlite::Error) -> CommitError {
    if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) {
        CommitError::Refused {
            rule: error.to_string(),
        }
    } else {
        CommitError::Storage(Arc::new(error.into()))
    }
}

pub(super) fn encoding(error: serde_json::Error) -> CommitError {
    CommitError::Encode(Arc::new(error))
}
