//! Salvage: every event that a damaged database still holds, saved into a new one.
//!
//! Invariant: nothing is removed. The damaged file is kept beside under a name of its own, with its write-ahead log, and
//! not a byte of it is changed; it makes way only when the new one is whole and on the disk. Events keep their seqs:
//! each one that is lost leaves an event that says so in its place, so that the ones behind it are not lost too.
//! Caches are not saved but made anew. A crash anywhere in here is made good by the next start.

mod frames;
mod pages;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
};

use protocol::{
    EventBody, Image, ImageId, LogId, MediaType, OutcomeKind, Salvage, SessionId, SessionState,
    Timestamp, TurnId,
};
use rusqlite::{Connection, OptionalExtension, params};
use serde::de::IgnoredAny;
use transcript::{Follow, Library};

use super::{
    OpenError, StorageError, backup, codec,
    database::{self, FILE_NAME, PAGE_BYTES, beside, write_ahead_log},
    images,
    migration::{self, MIGRATIONS},
};
use crate::Harness;
use pages::{Pages, Value};

/// The new database while it is made, and when it is whole.
const PART: &str = "holdfast.salvage.part";
const WHOLE: &str = "holdfast.salvaged";

/// The kind of the event that stands in the place of a lost one.
const LOST: &str = "EventLost";

/// The longest run of lost events that is filled. A longer one is a number that was damaged, not that many events.
const GAP_MAX: u64 = 1_000_000;

/// Why nothing could be saved.
#[derive(Debug, thiserror::Error)]
pub enum NotSalvaged {
    /// The damaged file could not be read, or not be moved.
    #[error("{0}")]
    File(#[from] io::Error),
    /// The new database could not be written.
    #[error("{0}")]
    Database(#[from] StorageError),
    /// The new database could not be set up.
    #[error("{0}")]
    Schema(#[source] Box<OpenError>),
    /// The new database is not better.
    #[error("the new database cannot be used either: {0}")]
    Again(String),
}

impl From<rusqlite::Error> for NotSalvaged {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error.into())
    }
}

/// Looks at what SQLite would pass over in silence; says what is wrong.
pub(super) fn silent_damage(dir: &Path) -> io::Result<Option<String>> {
    let log = write_ahead_log(&dir.join(FILE_NAME));
    let frames = frames::read(&log, PAGE_BYTES as usize)?;
    Ok(frames
        .is_damaged
        .then(|| "its write-ahead log is damaged in the middle".to_owned()))
}

/// Saves what can be read of the database in `dir` into a new one, and puts that in its place.
pub(super) fn run(dir: &Path, found: String, now: Timestamp) -> Result<Salvage, NotSalvaged> {
    let part = dir.join(PART);
    remove(&part)?;
    let made = make(dir, &part, found, now).map_err(|error| match error {
        NotSalvaged::Database(error) => NotSalvaged::Database(error.at(&part)),
        other @ (NotSalvaged::File(_) | NotSalvaged::Schema(_) | NotSalvaged::Again(_)) => other,
    });
    let salvaged = match made {
        Ok(salvaged) => salvaged,
        Err(error) => {
            // Half of it is of no use, and may be what fills the disk.
            remove(&part)?;
            return Err(error);
        }
    };
    fs::File::open(&part)?.sync_all()?;
    fs::rename(&part, dir.join(WHOLE))?;
    place(dir)?;
    Ok(salvaged)
}

/// Ends what a crash cut off: a new database that is whole takes the damaged one's place.
pub(super) fn resume(dir: &Path) -> Result<(), NotSalvaged> {
    remove(&dir.join(PART))?;
    if dir.join(WHOLE).exists() {
        place(dir)?;
    }
    Ok(())
}

/// The damaged files make way, its write-ahead log first: it must never meet the new database.
fn place(dir: &Path) -> Result<(), NotSalvaged> {
    let whole = dir.join(WHOLE);
    let kept_as: String = Connection::open(&whole)?.query_row(
        "SELECT value FROM meta WHERE name = 'salvaged_from'",
        [],
        |row| row.get(0),
    )?;
    let (current, kept) = (dir.join(FILE_NAME), dir.join(&kept_as));
    let log = write_ahead_log(&current);
    if database::has_bytes(&log) {
        fs::rename(&log, write_ahead_log(&kept))?;
    }
    remove(&log)?;
    remove(&beside(&current, "-shm"))?;
    rename_if_there(&current, &kept)?;
    fs::rename(&whole, &current)?;
    Ok(())
}

fn make(dir: &Path, part: &Path, found: String, now: Timestamp) -> Result<Salvage, NotSalvaged> {
    let mut db = Connection::open(part)?;
    // It is synced as a whole when it is whole.
    db.execute_batch(&format!(
        "PRAGMA page_size = {PAGE_BYTES}; PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF;
         PRAGMA foreign_keys = OFF; PRAGMA temp_store = FILE;"
    ))?;
    migration::run(&mut db, part, 0, MIGRATIONS, now, &Harness::default())
        .map_err(|error| NotSalvaged::Schema(Box::new(error)))?;
    let transaction = db.transaction()?;
    let damaged = dir.join(FILE_NAME);
    let sessions = collect(&transaction, &damaged)?;
    let settled = settle(&transaction, &sessions, now)?;
    copy_small_facts(&transaction, &damaged);
    list_again(&transaction, now)?;
    let kept_as = free_name(dir, &backup::date(&transaction, now)?);
    transaction.execute(
        "INSERT INTO meta (name, value) VALUES ('salvaged_from', ?1)",
        [&kept_as],
    )?;
    let found = match settled.lost {
        0 => found,
        lost => format!("{found}; {lost} events in it cannot be read any more"),
    };
    let salvage = Salvage {
        kept_as,
        found,
        events: settled.saved,
        sessions: settled.sessions,
        incomplete: settled.incomplete,
    };
    let body = EventBody::LogSalvaged {
        salvage: salvage.clone(),
    };
    append(&transaction, now, &body)?;
    transaction.execute_batch("DROP TABLE temp.found")?;
    transaction.commit()?;
    db.close().map_err(|(_, error)| error)?;
    Ok(salvage)
}

/// Counts of events: those that were saved, those in whose place another stands, and whose they are.
#[derive(Default)]
struct Settled {
    saved: u64,
    lost: u64,
    sessions: u64,
    /// Sessions that lost something.
    incomplete: u64,
}

/// Reads every page, and keeps aside the events that are on them. Says which stream is which session's.
fn collect(db: &Connection, damaged: &Path) -> Result<BTreeMap<i64, SessionId>, NotSalvaged> {
    db.execute_batch(
        "CREATE TEMP TABLE found (
             stream INTEGER, seq INTEGER, turn INTEGER, item INTEGER, kind TEXT, at INTEGER, body TEXT,
             PRIMARY KEY (stream, seq)
         ) WITHOUT ROWID",
    )?;
    // Pages come newest first, so what is there already is right.
    let mut keep =
        db.prepare("INSERT OR IGNORE INTO temp.found VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?;
    let mut sessions = BTreeMap::new();
    let mut said = BTreeMap::new();
    Pages::open(damaged)?.each_record(|record| {
        match record.as_slice() {
            [
                Value::Integer(stream @ 0..),
                Value::Integer(seq @ 1..),
                turn @ (Value::Null | Value::Integer(1..)),
                item @ (Value::Null | Value::Integer(1..)),
                Value::Text(kind),
                Value::Integer(at),
                Value::Text(body),
            ] if is_kind(kind) && is_object(body) => {
                if let EventBody::SessionStarted { session, .. } = codec::decode(kind, body) {
                    said.insert(*stream, session);
                }
                let row = params![stream, seq, number(turn), number(item), kind, at, body];
                keep.execute(row)?;
            }
            // An image, whose name says whether it is whole.
            [
                Value::Null | Value::Integer(_),
                Value::Bytes(name),
                Value::Text(media_type),
                Value::Integer(width @ 1..),
                Value::Integer(height @ 1..),
                Value::Integer(at),
                Value::Bytes(bytes),
            ] => keep_image(db, name, media_type, [*width, *height], *at, bytes)?,
            // A row of `streams`, whose number is its row id, or the index of its sessions.
            [
                Value::Integer(stream @ 1..),
                Value::Null,
                Value::Bytes(session),
            ]
            | [Value::Bytes(session), Value::Integer(stream @ 1..)] => {
                if let Ok(bits) = <[u8; 16]>::try_from(session.as_slice()) {
                    let session = SessionId::from_bits(u128::from_be_bytes(bits));
                    sessions.entry(*stream).or_insert(session);
                }
            }
            _ => {}
        }
        Ok::<(), NotSalvaged>(())
    })?;
    // What a session's own first event says of it counts more than a row that could be changed.
    sessions.extend(said);
    let mut taken = BTreeSet::new();
    sessions.retain(|_, session| taken.insert(*session));
    Ok(sessions)
}

/// Keeps an image that is what its name says. Who shows it, the events say; that it is shown is taken for granted.
fn keep_image(
    db: &Connection,
    name: &[u8],
    media_type: &str,
    size: [i64; 2],
    at: i64,
    bytes: &[u8],
) -> Result<(), NotSalvaged> {
    let ([width, height], Some(media_type), Ok(name)) = (
        size.map(|px| u32::try_from(px).unwrap_or(u32::MAX)),
        MediaType::of(media_type),
        <[u8; 32]>::try_from(name),
    ) else {
        return Ok(());
    };
    let image = Image {
        image: ImageId::from_bytes(name),
        media_type,
        bytes: bytes.len() as u64,
        width,
        height,
        name: String::new(),
    };
    if images::is_named(image.image, bytes) {
        images::write(db, &image, bytes, Timestamp::from_millis(at))?;
        images::use_them(db, &[image])?;
    }
    Ok(())
}

fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Integer(number) => Some(*number),
        Value::Null | Value::Text(_) | Value::Bytes(_) => None,
    }
}

fn is_kind(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_uppercase())
        && text.chars().all(|letter| letter.is_ascii_alphanumeric())
}

fn is_object(text: &str) -> bool {
    text.starts_with('{') && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// One event as it was found.
struct Row {
    seq: u64,
    turn: Option<i64>,
    item: Option<i64>,
    kind: String,
    at: i64,
    body: String,
}

/// Writes the events that were found, stream by stream, into their places. Says how many, and of how many sessions.
fn settle(
    db: &Connection,
    sessions: &BTreeMap<i64, SessionId>,
    now: Timestamp,
) -> Result<Settled, NotSalvaged> {
    let mut settled = Settled::default();
    let streams: Vec<i64> = db
        .prepare("SELECT DISTINCT stream FROM temp.found ORDER BY stream")?
        .query_map([], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    for stream in streams {
        if stream != 0 {
            let Some(session) = sessions.get(&stream) else {
                // Nobody could ask for it: nothing says whose it is. It stays in the file that is kept.
                tracing::warn!(
                    stream,
                    "events of a session without a name were left in the damaged database"
                );
                settled.incomplete += 1;
                continue;
            };
            db.execute(
                "INSERT INTO streams (stream, session) VALUES (?1, ?2)",
                params![stream, session.bits().to_be_bytes()],
            )?;
            settled.sessions += 1;
        }
        let lost = settled.lost;
        settle_stream(db, stream, now, &mut settled)?;
        settled.incomplete += u64::from(stream != 0 && settled.lost > lost);
    }
    Ok(settled)
}

fn settle_stream(
    db: &Connection,
    stream: i64,
    now: Timestamp,
    settled: &mut Settled,
) -> Result<(), NotSalvaged> {
    let mut find = db.prepare(
        "SELECT seq, turn, item, kind, at, body FROM temp.found WHERE stream = ?1 ORDER BY seq",
    )?;
    let mut rows = find.query([stream])?;
    let (mut next, mut turn) = (1, None);
    let mut last_at = now.millis();
    while let Some(row) = rows.next()? {
        let row = Row {
            seq: row.get::<_, i64>(0)?.unsigned_abs(),
            turn: row.get(1)?,
            item: row.get(2)?,
            kind: row.get(3)?,
            at: row.get(4)?,
            body: row.get(5)?,
        };
        if row.seq.saturating_sub(next) > GAP_MAX {
            break;
        }
        // The first of a run of lost events is shown, in the turn before it; the others only keep the numbers.
        let mut shown_in = turn.or(row.turn);
        while next < row.seq {
            let lost = Row {
                seq: next,
                turn: shown_in.take(),
                item: None,
                kind: LOST.to_owned(),
                at: if next == 1 { row.at } else { last_at },
                body: "{}".to_owned(),
            };
            put(db, stream, &lost)?;
            settled.lost += 1;
            next += 1;
        }
        (turn, last_at) = (row.turn, row.at);
        match put(db, stream, &row) {
            Ok(()) => settled.saved += u64::from(row.kind != LOST),
            // A second start, end or result: a row that says so twice is damage, and the first one stands.
            Err(error)
                if error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation) =>
            {
                let lost = Row {
                    kind: LOST.to_owned(),
                    item: None,
                    body: "{}".to_owned(),
                    ..row
                };
                put(db, stream, &lost)?;
                settled.lost += 1;
            }
            Err(error) => return Err(error.into()),
        }
        next += 1;
    }
    Ok(())
}

fn put(db: &Connection, stream: i64, row: &Row) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO events (stream, seq, turn, item, kind, at, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![stream, row.seq as i64, row.turn, row.item, row.kind, row.at, row.body])
    .map(drop)
}

/// Drafts and receipts, if SQLite can still read them: they change, so an old page must not speak for them.
fn copy_small_facts(db: &Connection, damaged: &Path) {
    if !database::has_bytes(damaged) {
        // SQLite would throw the write-ahead log of an empty database away.
        return;
    }
    let flags =
        rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY | rusqlite::OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let copied = Connection::open_with_flags(damaged, flags).map(|damaged| {
        let drafts = copy(&damaged, "SELECT session, text, at FROM drafts", |row| {
            db.execute(
                "INSERT OR IGNORE INTO drafts (session, text, at) VALUES (?1, ?2, ?3)",
                params![
                    row.get::<_, Vec<u8>>(0)?,
                    row.get::<_, String>(1)?,
                    row.get::<_, i64>(2)?
                ],
            )
        });
        let images = copy(
            &damaged,
            "SELECT session, images FROM draft_images",
            |row| {
                db.execute(
                    "INSERT OR IGNORE INTO draft_images (session, images) VALUES (?1, ?2)",
                    params![row.get::<_, Vec<u8>>(0)?, row.get::<_, String>(1)?],
                )
            },
        );
        let receipts = copy(&damaged, "SELECT op, digest, receipt, at FROM ops", |row| {
            db.execute(
                "INSERT OR IGNORE INTO ops (op, digest, receipt, at) VALUES (?1, ?2, ?3, ?4)",
                params![
                    row.get::<_, Vec<u8>>(0)?,
                    row.get::<_, Vec<u8>>(1)?,
                    row.get::<_, String>(2)?,
                    row.get::<_, i64>(3)?
                ],
            )
        });
        drafts.and(images).and(receipts)
    });
    if let Ok(Err(error)) | Err(error) = copied {
        tracing::warn!(%error, "not all drafts and receipts could be read from the damaged database");
    }
}

fn copy(
    from: &Connection,
    sql: &str,
    mut put: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<usize>,
) -> rusqlite::Result<()> {
    let mut statement = from.prepare(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        put(row)?;
    }
    Ok(())
}

/// The library lists every session that has events, and says how its last turn ended.
fn list_again(db: &Connection, now: Timestamp) -> Result<(), NotSalvaged> {
    let mut library = Library::empty(LogId::from_bits(0));
    let mut changes = Vec::new();
    let mut read =
        db.prepare("SELECT seq, at, turn, kind, body FROM events WHERE stream = 0 ORDER BY seq")?;
    for event in read.query_map([], codec::event_of)? {
        library.apply(&event?, &mut changes);
    }
    drop(read);
    let sessions: Vec<(i64, [u8; 16])> = db
        .prepare("SELECT stream, session FROM streams WHERE session IS NOT NULL ORDER BY stream")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    for (stream, session) in sessions {
        let session = SessionId::from_bits(u128::from_be_bytes(session));
        let head = super::reader::head_of(db, stream)?;
        let listed = library.session(session).map(|summary| summary.state);
        if listed.is_none() {
            let title = if head.title.is_empty() {
                "Salvaged".to_owned()
            } else {
                head.title.clone()
            };
            let origin = head.origin;
            append(
                db,
                now,
                &EventBody::SessionListed {
                    session,
                    title,
                    origin,
                },
            )?;
        }
        // A turn without an end is closed, and listed so, by recovery.
        let last: Option<(i64, String, String)> = db
            .query_row(
                "SELECT turn, kind, body FROM events WHERE stream = ?1 AND kind = 'TurnEnded' ORDER BY seq DESC LIMIT 1",
                [stream],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
            )
            .optional()?;
        if let Some((turn, kind, body)) = last
            && let EventBody::TurnEnded { outcome } = codec::decode(&kind, &body)
        {
            let outcome = OutcomeKind::from(&outcome);
            if listed != Some(SessionState::Ended { outcome }) {
                let turn = TurnId::new(turn.unsigned_abs());
                if let Some(model) = head.model.clone() {
                    append(
                        db,
                        now,
                        &EventBody::SessionTurnStarted {
                            session,
                            turn,
                            model,
                        },
                    )?;
                }
                append(
                    db,
                    now,
                    &EventBody::SessionTurnEnded {
                        session,
                        turn,
                        outcome,
                        // What was seen is lost with the library; a list full of news would help nobody.
                        unread: false,
                    },
                )?;
            }
        }
    }
    Ok(())
}

/// Appends to the library.
fn append(db: &Connection, now: Timestamp, body: &EventBody) -> Result<(), NotSalvaged> {
    let text = codec::encode(body).map_err(io::Error::other)?;
    let seq = super::reader::count_of(db, 0)? + 1;
    let row = Row {
        seq,
        turn: None,
        item: None,
        kind: body.kind().to_owned(),
        at: now.millis(),
        body: text,
    };
    Ok(put(db, 0, &row)?)
}

/// A name for the damaged file that nothing has yet.
fn free_name(dir: &Path, date: &str) -> String {
    let mut name = format!("holdfast-damaged-{date}.db");
    let mut number = 2;
    while dir.join(&name).exists() || write_ahead_log(&dir.join(&name)).exists() {
        name = format!("holdfast-damaged-{date}-{number}.db");
        number += 1;
    }
    name
}

fn rename_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        renamed => renamed,
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
