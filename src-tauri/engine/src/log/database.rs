//! The database file: its settings, its schema's version, and the refusal of what it cannot serve.
//!
//! Invariant: a database of a newer version is refused by name and not altered. A migration is preceded by a backup
//! and commits together with its version.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use protocol::{LogId, Timestamp};
use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior};

/// The database's name in the data folder.
pub(crate) const FILE_NAME: &str = "holdfast.sqlite3";

/// Marks the file as ours, in SQLite's header: "HLDF".
const APPLICATION_ID: i32 = 0x484C_4446;

/// Schema versions, oldest first; each is applied once, in one transaction with its number.
const MIGRATIONS: &[&str] = &[include_str!("schema/0001.sql")];

/// One text event a commit dirties one leaf: 5.9 kB of write-ahead log with 4 KiB pages, 2.2 kB with these (measured
/// with SQLite 3.40 before this was written). Smaller pages would push ordinary events into overflow pages.
const PAGE_BYTES: u32 = 1_024;

/// How long to wait for another process's lock: a backup tool holds one for seconds.
const BUSY_WAIT: Duration = Duration::from_secs(10);

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// The one writer; creates and migrates.
    Write,
    /// Readers; never create anything.
    Read,
}

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
    /// Some other program's database.
    #[error(
        "{path} is a database, but not Holdfast's; nothing was changed: move it away, or choose another folder with --data-dir"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// Not readable as a database.
    #[error(
        "the database {path} is damaged ({source}); nothing was changed: restore a copy from the backups folder beside it, or move it away to begin anew"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// SQLite's words.
        #[source]
        source: rusqlite::Error,
    },
    /// Emptied under a write-ahead log that still holds conversations; opening it would throw that log away.
    #[error(
        "the database {path} is empty, but its write-ahead log beside it is not; nothing was changed: restore a copy from the backups folder, or move both files away to begin anew"
    )]
    Emptied {
        /// The file.
        path: PathBuf,
    },
    /// The database cannot be opened, for another reason.
    #[error("cannot open the database {path}: {source}")]
    Database {
        /// The file.
        path: PathBuf,
        /// SQLite's words.
        #[source]
        source: rusqlite::Error,
    },
    /// The backup before a migration failed, so the migration was not begun.
    #[error("could not back up {path} before updating it, so it was not updated: {source}")]
    Backup {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: rusqlite::Error,
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

/// Opens the database in `dir` for `access`.
pub(super) fn open(dir: &Path, access: Access, now: Timestamp) -> Result<Connection, OpenError> {
    let path = dir.join(FILE_NAME);
    if std::fs::metadata(&path).is_ok_and(|file| file.len() == 0) && has_write_ahead_log(&path) {
        return Err(OpenError::Emptied { path });
    }
    let flags = match access {
        Access::Write => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
        Access::Read if !path.exists() => return Err(OpenError::Missing { path }),
        // Not READ_ONLY: a reader of a write-ahead log must be able to create its shared memory. Writes are refused below.
        Access::Read => OpenFlags::SQLITE_OPEN_READ_WRITE,
    };
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = Connection::open_with_flags(&path, flags).map_err(|e| worded(&path, e));
    let prepared = opened.and_then(|connection| prepare(connection, &path, access, now));
    match (prepared, access) {
        // A folder that cannot be written has no room for a write-ahead log's shared memory; without such a log the
        // file alone is the whole truth, and nobody can change it under us.
        (Err(OpenError::Database { .. }), Access::Read) if !has_write_ahead_log(&path) => {
            let connection = Connection::open_with_flags(
                immutable(&path),
                OpenFlags::SQLITE_OPEN_READ_ONLY
                    | OpenFlags::SQLITE_OPEN_URI
                    | OpenFlags::SQLITE_OPEN_NO_MUTEX,
            );
            prepare(
                connection.map_err(|e| worded(&path, e))?,
                &path,
                access,
                now,
            )
        }
        (prepared, Access::Read | Access::Write) => prepared,
    }
}

fn has_write_ahead_log(path: &Path) -> bool {
    let log = path.with_file_name(format!("{FILE_NAME}-wal"));
    std::fs::metadata(log).is_ok_and(|log| log.len() > 0)
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

fn prepare(
    mut connection: Connection,
    path: &Path,
    access: Access,
    now: Timestamp,
) -> Result<Connection, OpenError> {
    let words = |e| worded(path, e);
    connection.busy_timeout(BUSY_WAIT).map_err(words)?;
    let version: i64 = connection
        .query_row("PRAGMA user_version", [], |r| r.get(0))
        .map_err(words)?;
    let application: i32 = connection
        .query_row("PRAGMA application_id", [], |r| r.get(0))
        .map_err(words)?;
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0))
        .map_err(words)?;
    let known = MIGRATIONS.len() as i64;
    if application != APPLICATION_ID && (tables > 0 || application != 0) {
        return Err(OpenError::Foreign {
            path: path.to_owned(),
        });
    }
    if version > known {
        return Err(OpenError::Newer {
            path: path.to_owned(),
            found: version,
            known,
        });
    }
    match access {
        Access::Read => {
            if version < known {
                // Made by an older Holdfast; only a writer may bring it up to date.
                return Err(OpenError::Missing {
                    path: path.to_owned(),
                });
            }
            connection
                .execute_batch("PRAGMA query_only = ON")
                .map_err(words)?;
        }
        Access::Write => {
            if tables == 0 {
                connection
                    .execute_batch(&format!("PRAGMA page_size = {PAGE_BYTES}"))
                    .map_err(words)?;
            }
            connection
                .query_row("PRAGMA journal_mode = WAL", [], |r| r.get::<_, String>(0))
                .map_err(words)?;
            connection
                .execute_batch("PRAGMA foreign_keys = ON; PRAGMA wal_autocheckpoint = 4000;")
                .map_err(words)?;
            migrate(&mut connection, path, version, now)?;
        }
    }
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

fn migrate(
    connection: &mut Connection,
    path: &Path,
    from: i64,
    now: Timestamp,
) -> Result<(), OpenError> {
    if from > 0 && (from as usize) < MIGRATIONS.len() {
        backup(
            connection,
            path,
            &format!("before-schema-{}-{}", MIGRATIONS.len(), now.millis()),
        )?;
    }
    for (index, script) in MIGRATIONS
        .iter()
        .enumerate()
        .skip(from.unsigned_abs() as usize)
    {
        let words = |e| worded(path, e);
        let transaction = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(words)?;
        transaction.execute_batch(script).map_err(words)?;
        if index == 0 {
            transaction
                .pragma_update(None, "application_id", APPLICATION_ID)
                .map_err(words)?;
            transaction
                .execute(
                    "INSERT INTO meta (name, value) VALUES ('log_id', lower(hex(randomblob(16))))",
                    [],
                )
                .map_err(words)?;
        }
        transaction
            .pragma_update(None, "user_version", index as i64 + 1)
            .map_err(words)?;
        transaction.commit().map_err(words)?;
    }
    Ok(())
}

/// Writes a whole copy of the database into the folder `backups` beside it.
fn backup(connection: &Connection, path: &Path, name: &str) -> Result<(), OpenError> {
    let folder = path.with_file_name("backups");
    std::fs::create_dir_all(&folder).map_err(|source| OpenError::Folder {
        path: folder.clone(),
        source,
    })?;
    let copy = folder.join(format!("{name}.sqlite3"));
    connection
        .execute("VACUUM INTO ?1", [copy.to_string_lossy()])
        .map_err(|source| OpenError::Backup {
            path: path.to_owned(),
            source,
        })?;
    Ok(())
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
        .ok_or_else(|| OpenError::Foreign { path: path() })
}

fn worded(path: &Path, source: rusqlite::Error) -> OpenError {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    let path = path.to_owned();
    match source.sqlite_error_code() {
        Some(DatabaseCorrupt | NotADatabase) => OpenError::Damaged { path, source },
        Some(_) | None => OpenError::Database { path, source },
    }
}
