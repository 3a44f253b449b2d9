//! The database file: its settings, its schema's version, and the refusal of what it cannot serve.
//!
//! Invariant: what cannot be served is refused by name and not altered: a newer version, another program's database, a
//! file that cannot be reached. Not here: what becomes of a damaged one (`salvage`), and how an older one is brought
//! up to date (`migration`).

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use protocol::{LogId, Timestamp};
use rusqlite::{Connection, OpenFlags, OptionalExtension, config::DbConfig};

use super::{
    BackupError, CommitError, StorageError, Trouble,
    migration::{self, MIGRATIONS},
};
use crate::Harness;

/// The database's name in the data folder.
pub(crate) const FILE_NAME: &str = "holdfast.sqlite3";

/// Marks the file as ours, in SQLite's header: "HLDF".
pub(super) const APPLICATION_ID: i32 = 0x484C_4446;

/// One text event a commit dirties one leaf: 5.9 kB of write-ahead log with 4 KiB pages, 2.2 kB with these (measured
/// with SQLite 3.40 before this was written). Smaller pages would push ordinary events into overflow pages.
pub(super) const PAGE_BYTES: u32 = 1_024;

/// How long the writer waits for another program's lock: a backup tool holds one for seconds.
pub(crate) const LOCK_WAIT: Duration = Duration::from_secs(10);

/// How long a reader waits: a write-ahead log keeps readers and writers apart, so only a program that wants the file
/// for itself is in the way, and it may want it for hours.
pub const READ_LOCK_WAIT: Duration = Duration::from_secs(1);

/// How much of a write-ahead log may pile up before its pages move into the database.
const CHECKPOINT_PAGES: u32 = 4_000;

/// Why a data folder cannot be used. Nothing in it was altered, unless it says so.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder itself.
    #[error("cannot use the data folder {path}: {source}; choose another with --data-dir")]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Another process has it open.
    #[error(
        "Holdfast is already running on the data folder {path}; close it, or choose another folder with --data-dir"
    )]
    InUse {
        /// Which.
        path: PathBuf,
    },
    /// There is nothing to read yet.
    #[error("there are no conversations in {path} yet")]
    Missing {
        /// The database that does not exist.
        path: PathBuf,
    },
    /// Made by a later Holdfast.
    #[error(
        "the database {path} was made by a newer Holdfast (schema {found}, this version knows {known}); nothing was changed: update Holdfast, or choose another folder with --data-dir"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// Ours.
        known: i64,
    },
    /// Made by an earlier Holdfast; only who writes may bring it up to date.
    #[error(
        "the database {path} was made by an older Holdfast (schema {found}, this version reads {known}); close the older one and open this one, which brings it up to date and keeps a copy"
    )]
    Older {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// Ours.
        known: i64,
    },
    /// Some other program's database.
    #[error(
        "{path} is a database, but not Holdfast's; nothing was changed: move it away, or choose another folder with --data-dir"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// Emptied under a write-ahead log that still holds conversations; opening it would throw that log away.
    #[error(
        "the database {path} is empty, but its write-ahead log beside it is not; open Holdfast: it keeps both files and saves everything in them that can still be read"
    )]
    Emptied {
        /// The file.
        path: PathBuf,
    },
    /// The database cannot be opened.
    #[error("{0}; nothing was changed")]
    Storage(#[source] StorageError),
    /// The database is damaged, and what can be read of it could not be saved. Nothing was removed.
    #[error(
        "{path} is damaged ({found}), and what can be read of it could not be saved: {source}; nothing was removed"
    )]
    NotSalvaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        found: String,
        /// What was in the way.
        #[source]
        source: Box<super::salvage::NotSalvaged>,
    },
    /// The backup before a migration failed, so the migration was not begun.
    #[error("could not back up {path} before updating it, so it was not updated: {source}")]
    Backup {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: BackupError,
    },
    /// Recovery of interrupted turns failed.
    #[error("could not close the turns that the last run left open: {0}")]
    Recovery(#[source] super::CommitError),
    /// A thread could not be started.
    #[error("could not start the log's writer: {0}")]
    Thread(#[source] std::io::Error),
    /// HTTP could not be set up.
    #[error("could not set up the connection to model servers: {0}")]
    Gateway(String),
}

impl OpenError {
    /// What is wrong with what is in the file, if that is what kept it from being opened.
    pub(super) fn damage(&self) -> Option<String> {
        let of_storage = |error: &StorageError| {
            (error.trouble() == Trouble::Damaged).then(|| error.source_words())
        };
        match self {
            Self::Storage(error) => of_storage(error),
            Self::Recovery(CommitError::Storage(error)) => of_storage(error),
            Self::Recovery(CommitError::Refused { rule }) => Some(rule.clone()),
            Self::Emptied { .. } => Some("it is empty, but its write-ahead log is not".to_owned()),
            Self::Backup { source, .. } => source.storage().and_then(of_storage),
            Self::Folder { .. }
            | Self::InUse { .. }
            | Self::Missing { .. }
            | Self::Newer { .. }
            | Self::Older { .. }
            | Self::Foreign { .. }
            | Self::NotSalvaged { .. }
            | Self::Recovery(
                CommitError::OpIdConflict
                | CommitError::Encode(_)
                | CommitError::Panicked
                | CommitError::Closed,
            )
            | Self::Thread(_)
            | Self::Gateway(_) => None,
        }
    }
}

/// Opens the database in `dir` for writing: creates it, or brings it up to date.
///
/// Until [`settle`] the write-ahead log stays as it is, so that a damaged database can be kept as it was found.
pub(super) fn open_to_write(
    dir: &Path,
    now: Timestamp,
    lock_wait: Duration,
    harness: &Harness,
) -> Result<Opened, OpenError> {
    let path = dir.join(FILE_NAME);
    let words = |error: rusqlite::Error| worded(&path, error);
    if !has_bytes(&path) && has_bytes(&write_ahead_log(&path)) {
        return Err(OpenError::Emptied { path });
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(&path, flags).map_err(words)?;
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
        .map_err(words)?;
    let version = looked_at(&connection, &path, lock_wait)?;
    if version == Version::Empty {
        connection
            .execute_batch(&format!("PRAGMA page_size = {PAGE_BYTES}"))
            .map_err(words)?;
    }
    connection
        .query_row("PRAGMA journal_mode = WAL", [], |r| r.get::<_, String>(0))
        .map_err(words)?;
    connection
        .execute_batch(&format!(
            "PRAGMA foreign_keys = ON; PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES};"
        ))
        .map_err(words)?;
    let backups = migration::run(
        &mut connection,
        &path,
        version.number(),
        MIGRATIONS,
        now,
        harness,
    )?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(Opened {
        connection,
        backups,
    })
}

/// A database that was opened for writing.
pub(super) struct Opened {
    pub(super) connection: Connection,
    /// Copies made on the way.
    pub(super) backups: u64,
}

/// From now on the write-ahead log moves into the database when the last connection closes, as usual.
pub(super) fn settle(connection: &Connection) -> rusqlite::Result<()> {
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)
        .map(drop)
}

/// Opens the database in `dir` for reading; never creates or changes anything.
pub(super) fn open_to_read(dir: &Path) -> Result<Connection, OpenError> {
    open_unwritten(dir, MIGRATIONS.len() as i64)
}

/// The same for whoever only copies it: older versions too.
pub(super) fn open_to_copy(dir: &Path) -> Result<Connection, OpenError> {
    open_unwritten(dir, 1)
}

fn open_unwritten(dir: &Path, oldest: i64) -> Result<Connection, OpenError> {
    let path = dir.join(FILE_NAME);
    let words = |error: rusqlite::Error| worded(&path, error);
    if !path.exists() {
        return Err(OpenError::Missing { path });
    }
    if !has_bytes(&path) && has_bytes(&write_ahead_log(&path)) {
        return Err(OpenError::Emptied { path });
    }
    let ready = |connection: Connection| {
        let version = looked_at(&connection, &path, READ_LOCK_WAIT)?;
        if version == Version::Empty {
            return Err(OpenError::Missing { path: path.clone() });
        }
        if version.number() < oldest {
            return Err(OpenError::Older {
                path: path.clone(),
                found: version.number(),
                known: MIGRATIONS.len() as i64,
            });
        }
        connection
            .execute_batch("PRAGMA query_only = ON")
            .map_err(words)?;
        connection.set_prepared_statement_cache_capacity(64);
        Ok(connection)
    };
    // Not READ_ONLY: a reader of a write-ahead log must be able to create its shared memory.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = Connection::open_with_flags(&path, flags)
        .map_err(words)
        .and_then(ready);
    match opened {
        // A folder that cannot be written has no room for a write-ahead log's shared memory; without such a log the
        // file alone is the whole truth, and nobody can change it under us.
        Err(OpenError::Storage(error))
            if matches!(error.trouble(), Trouble::Other | Trouble::ReadOnly)
                && !has_bytes(&write_ahead_log(&path)) =>
        {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
                | OpenFlags::SQLITE_OPEN_URI
                | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            Connection::open_with_flags(immutable(&path), flags)
                .map_err(words)
                .and_then(ready)
        }
        opened => opened,
    }
}

pub(super) fn write_ahead_log(path: &Path) -> PathBuf {
    beside(path, "-wal")
}

/// A file whose name only goes on.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

pub(super) fn has_bytes(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.len() > 0)
}

/// SQLite's address of a file that does not change while it is open.
fn immutable(path: &Path) -> String {
    let mut address = "file:".to_owned();
    for letter in path.to_string_lossy().chars() {
        match letter {
            '%' => address.push_str("%25"),
            '?' => address.push_str("%3f"),
            '#' => address.push_str("%23"),
            other => address.push(other),
        }
    }
    address.push_str("?immutable=1");
    address
}

/// Which schema a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// Nothing was ever written.
    Empty,
    Known(i64),
}

impl Version {
    const fn number(self) -> i64 {
        match self {
            Self::Empty => 0,
            Self::Known(version) => version,
        }
    }
}

/// Refuses what is not ours or not known yet, and touches nothing.
fn looked_at(
    connection: &Connection,
    path: &Path,
    lock_wait: Duration,
) -> Result<Version, OpenError> {
    let words = |e| worded(path, e);
    connection.busy_timeout(lock_wait).map_err(words)?;
    let number = |sql| connection.query_row(sql, [], |r| r.get::<_, i64>(0));
    let version = number("PRAGMA user_version").map_err(words)?;
    let application = number("PRAGMA application_id").map_err(words)?;
    let tables = number("SELECT count(*) FROM sqlite_schema").map_err(words)?;
    let is_ours = application == i64::from(APPLICATION_ID);
    if !is_ours && (tables > 0 || application != 0) {
        return Err(OpenError::Foreign {
            path: path.to_owned(),
        });
    }
    let known = MIGRATIONS.len() as i64;
    if version > known {
        return Err(OpenError::Newer {
            path: path.to_owned(),
            found: version,
            known,
        });
    }
    Ok(if tables == 0 {
        Version::Empty
    } else {
        Version::Known(version)
    })
}

/// The identity of this database, minted when it was created.
pub(super) fn log_id(connection: &Connection) -> Result<LogId, OpenError> {
    let path = || PathBuf::from(connection.path().unwrap_or(FILE_NAME));
    let text: Option<String> = connection
        .query_row("SELECT value FROM meta WHERE name = 'log_id'", [], |r| {
            r.get(0)
        })
        .optional()
        .map_err(|e| worded(&path(), e))?;
    text.and_then(|t| t.parse().ok())
        .ok_or_else(|| corrupt(&path(), "it has lost its identity"))
}

pub(super) fn worded(path: &Path, source: rusqlite::Error) -> OpenError {
    OpenError::Storage(StorageError::from(source).at(path))
}

/// Damage that we found and SQLite did not.
pub(super) fn corrupt(path: &Path, found: &str) -> OpenError {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
    worded(
        path,
        rusqlite::Error::SqliteFailure(code, Some(found.to_owned())),
    )
}
