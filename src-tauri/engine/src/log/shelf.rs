//! The library's snapshot in the database: its sessions, one row each, and a header that says as of which event.
//!
//! Invariant: a cache. Without it, with one of another version or with one that contradicts itself or the log, the
//! library is folded from its first event, and says the same. The header is taken away before rows that do not belong
//! to it are written, and is written last.
//! Not here: when it is written, and what it is folded with (`crate::shelf`).

use protocol::{LibraryPage, LogId, SessionId, SessionSummary};
use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};

use super::{CommitError, codec, reader, writer};

/// Of the fold and of the rows: another version's snapshot is made anew. To be raised when either changes.
const VERSION: u32 = 1;

/// The library's stream.
const STREAM: i64 = 0;

/// A step of writing a snapshot.
#[derive(Clone, Debug)]
pub(crate) enum Shelving {
    /// What there is does not count from here on.
    Begin,
    /// No row of an older one is left either.
    Clear,
    /// A session.
    Session(SessionSummary),
    /// It is whole again: so many sessions, and everything else in this page, which names none of them.
    Done {
        sessions: u64,
        page: Box<LibraryPage>,
    },
}

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    version: u32,
    /// How many rows belong to it.
    sessions: u64,
    /// Without its sessions.
    page: LibraryPage,
}

pub(super) fn write(db: &Connection, step: &Shelving) -> Result<usize, CommitError> {
    let sql = |result: rusqlite::Result<usize>| result.map_err(writer::storage);
    match step {
        Shelving::Begin => sql(db
            .prepare_cached("DELETE FROM heads WHERE stream = ?1")
            .and_then(|mut statement| statement.execute([STREAM]))),
        Shelving::Clear => sql(db.execute("DELETE FROM shelf", [])),
        Shelving::Session(summary) => {
            let body = serde_json::to_string(summary).map_err(writer::encoding)?;
            sql(db
                .prepare_cached(
                    "INSERT INTO shelf (session, body) VALUES (?1, ?2)
                     ON CONFLICT (session) DO UPDATE SET body = ?2",
                )
                .and_then(|mut statement| statement.execute(params![key(summary.session), body])))
        }
        Shelving::Done { sessions, page } => {
            let header = Header {
                version: VERSION,
                sessions: *sessions,
                page: page.as_ref().clone(),
            };
            let body = serde_json::to_string(&header).map_err(writer::encoding)?;
            sql(writer::write_head(db, STREAM, page.as_of.count(), &body))
        }
    }
}

/// The snapshot, if there is one that holds.
pub(super) fn read(db: &Connection, log: LogId) -> rusqlite::Result<Option<LibraryPage>> {
    let Some(header) = reader::stored_head::<Header>(db, STREAM)? else {
        return Ok(None);
    };
    let as_of = header.page.as_of;
    let holds = header.version == VERSION
        && as_of.log() == log
        && as_of.count() <= reader::count_of(db, STREAM)?;
    if !holds {
        return Ok(None);
    }
    let mut statement = db.prepare_cached("SELECT session, body FROM shelf")?;
    let mut rows = statement.query([])?;
    let mut sessions: Vec<SessionSummary> = Vec::new();
    while let Some(row) = rows.next()? {
        let body = codec::cached(row, 1)?;
        let summary = body.and_then(|body| serde_json::from_str::<SessionSummary>(&body).ok());
        match summary {
            Some(summary) if row.get_ref(0)?.as_blob() == Ok(&key(summary.session)[..]) => {
                sessions.push(summary);
            }
            Some(_) | None => return Ok(None),
        }
    }
    let is_whole = sessions.len() as u64 == header.sessions;
    Ok(is_whole.then_some(LibraryPage {
        sessions,
        ..header.page
    }))
}

fn key(session: SessionId) -> [u8; 16] {
    session.bits().to_be_bytes()
}
