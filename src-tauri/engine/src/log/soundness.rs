//! Whether a database is sound, looked into when there is reason to doubt it; and caches made anew that are not.
//!
//! Reasons are a note about damage, and a last run that did not end by itself. A database that was closed in order is
//! not looked into: reading all of it would make each start as slow as it is large.
//! Invariant: what is damaged in a cache or an index costs nothing but time. Damage to facts is an error, and `salvage`
//! answers it.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension};

use super::{
    OpenError, damage,
    database::{FILE_NAME, corrupt, worded},
};

/// Tables whose content nothing else says.
const FACTS: [&str; 9] = [
    "meta",
    "boots",
    "streams",
    "events",
    "ops",
    "drafts",
    "images",
    "image_uses",
    "draft_images",
];

/// Tables that are made from events.
const CACHES: [&str; 6] = [
    "open_turns",
    "turns",
    "heads",
    "turn_views",
    "shelf",
    "attempts",
];

/// How large a database is looked into after a run that did not end by itself. A start must not take longer than a
/// moment, and 72 MB of events took 2 s to look into (two busy cores). A larger one is looked into once somebody met
/// damage, and whenever it is copied.
const CHECKED_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// How closely to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// Whether every page is what it says.
    Quick,
    /// Also whether indexes agree with their tables, and seqs have no hole.
    Thorough,
}

/// Looks into the database if there is reason to.
pub(super) fn check(db: &Connection, dir: &Path) -> Result<(), OpenError> {
    let path = dir.join(FILE_NAME);
    let words = |error| worded(&path, error);
    let look = if damage::is_noted(dir) {
        Look::Thorough
    } else if ended_by_itself(db).map_err(words)? || size(&path) > CHECKED_BYTES_MAX {
        return Ok(());
    } else {
        Look::Quick
    };
    if is_sound(db, look, None).map_err(words)? {
        return Ok(());
    }
    for table in FACTS {
        if !is_sound(db, look, Some(table)).map_err(words)? && !can_be_read(db, table) {
            return Err(corrupt(&path, &format!("its table of {table} is damaged")));
        }
    }
    if look == Look::Thorough
        && let Some(stream) = hole(db).map_err(words)?
    {
        return Err(corrupt(
            &path,
            &format!("events of stream {stream} are missing"),
        ));
    }
    tracing::warn!("a cache of the database is damaged; caches and indexes are made anew");
    make_anew(db).map_err(words)?;
    if is_sound(db, Look::Thorough, None).map_err(words)? {
        Ok(())
    } else {
        Err(corrupt(&path, "it is damaged beyond its caches"))
    }
}

/// Whether the last run closed the database; true of a database that no run has used.
fn ended_by_itself(db: &Connection) -> rusqlite::Result<bool> {
    let last: Option<bool> = db
        .query_row(
            "SELECT clean_exit_at IS NOT NULL FROM boots ORDER BY started_at DESC LIMIT 1",
            [],
            |row| row.get(0),
        )
        .optional()?;
    Ok(last.unwrap_or(true))
}

fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |file| file.len())
}

fn is_sound(db: &Connection, look: Look, table: Option<&str>) -> rusqlite::Result<bool> {
    let pragma = match look {
        Look::Quick => "quick_check",
        Look::Thorough => "integrity_check",
    };
    let of = table.unwrap_or("1");
    let found: String = db.query_row(&format!("PRAGMA {pragma}({of})"), [], |row| row.get(0))?;
    if found != "ok" {
        tracing::warn!(table, found, "the database is not sound");
    }
    Ok(found == "ok" && (table.is_some() || look == Look::Quick || hole(db)?.is_none()))
}

/// Whether all rows of a table can be read without any index.
fn can_be_read(db: &Connection, table: &str) -> bool {
    let sql = format!("SELECT * FROM {table} NOT INDEXED");
    let read = || {
        let mut statement = db.prepare(&sql)?;
        let columns = statement.column_count();
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            for column in 0..columns {
                row.get_ref(column)?;
            }
        }
        Ok::<_, rusqlite::Error>(())
    };
    read().is_ok()
}

/// A stream whose seqs are not dense.
fn hole(db: &Connection) -> rusqlite::Result<Option<i64>> {
    db.query_row(
        "SELECT stream FROM events GROUP BY stream HAVING max(seq) <> count(*) LIMIT 1",
        [],
        |row| row.get(0),
    )
    .optional()
}

/// Takes caches and indexes out of the schema, puts empty ones in, and writes the database anew without the old pages.
/// Dropping them in the usual way would read what cannot be read.
fn make_anew(db: &Connection) -> rusqlite::Result<()> {
    let caches = CACHES.map(|name| format!("'{name}'")).join(", ");
    let doubted = format!("tbl_name IN ({caches}) OR (type = 'index' AND sql IS NOT NULL)");
    let made: Vec<String> = db
        .prepare(&format!(
            "SELECT sql FROM sqlite_schema WHERE ({doubted}) AND sql IS NOT NULL ORDER BY type DESC"
        ))?
        .query_map([], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    db.execute_batch(&format!(
        "BEGIN IMMEDIATE; PRAGMA writable_schema = ON;
         DELETE FROM sqlite_schema WHERE {doubted};
         PRAGMA writable_schema = RESET;"
    ))?;
    for sql in made {
        db.execute_batch(&sql)?;
    }
    db.execute_batch("COMMIT; VACUUM;")
}
