//! Copies of the whole database, at one moment, while it is in use.
//!
//! Invariant: a copy has its name only when it is whole, on the disk, and was found sound; nothing that exists is
//! overwritten.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use protocol::Timestamp;
use rusqlite::Connection;

use super::{StorageError, Trouble, damage, database};

/// Where copies are kept unless somebody says otherwise.
const FOLDER: &str = "backups";

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// Something is there already.
    #[error("{path} exists already, and a backup overwrites nothing; name another file")]
    Exists {
        /// What is there.
        path: PathBuf,
    },
    /// The place for it cannot be used.
    #[error("a backup cannot be written to {path}: {source}")]
    Place {
        /// Where it was to be.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The database could not be opened.
    #[error(transparent)]
    NotOpened(Box<super::OpenError>),
    /// The database could not be read, or the copy not written.
    #[error("{0}")]
    Storage(#[source] StorageError),
    /// The copy is not what was written.
    #[error("the copy in {path} was found unsound and was removed: {found}")]
    Unsound {
        /// Where it was.
        path: PathBuf,
        /// What SQLite found.
        found: String,
    },
}

impl BackupError {
    pub(super) fn storage(&self) -> Option<&StorageError> {
        match self {
            Self::Storage(error) => Some(error),
            Self::Exists { .. }
            | Self::Place { .. }
            | Self::NotOpened(_)
            | Self::Unsound { .. } => None,
        }
    }
}

/// Copies the database of a data folder, also while an engine has it open: to `to`, or into the folder of backups.
/// Blocking. Says where the copy is.
///
/// # Errors
/// [`BackupError`]; then there is no copy.
pub fn backup(dir: &Path, to: Option<&Path>, now: Timestamp) -> Result<PathBuf, BackupError> {
    let database = dir.join(database::FILE_NAME);
    let made = copy(dir, &database, to, now);
    if let Err(BackupError::Storage(error)) = &made
        && error.trouble() == Trouble::Damaged
    {
        damage::note(dir, &error.to_string());
    }
    made
}

fn copy(
    dir: &Path,
    database: &Path,
    to: Option<&Path>,
    now: Timestamp,
) -> Result<PathBuf, BackupError> {
    let connection =
        database::open_to_copy(dir).map_err(|e| BackupError::NotOpened(Box::new(e)))?;
    // The copy is the only thing that is written.
    connection
        .execute_batch("PRAGMA query_only = OFF")
        .map_err(|e| storage(database, e))?;
    let Some(to) = to else {
        return beside(&connection, database, "holdfast", now);
    };
    let place = |source| BackupError::Place {
        path: to.to_owned(),
        source,
    };
    let to = std::path::absolute(to).map_err(place)?;
    write(&connection, database, &to)?;
    Ok(to)
}

/// Copies into the folder of backups beside the database; the name says why and when.
pub(super) fn beside(
    connection: &Connection,
    database: &Path,
    why: &str,
    now: Timestamp,
) -> Result<PathBuf, BackupError> {
    let folder = database.with_file_name(FOLDER);
    let place = |source| BackupError::Place {
        path: folder.clone(),
        source,
    };
    fs::create_dir_all(&folder).map_err(place)?;
    let date = date(connection, now).map_err(|e| storage(database, e))?;
    let mut to = folder.join(format!("{why}-{date}.sqlite3"));
    let mut number = 2;
    while to.exists() {
        to = folder.join(format!("{why}-{date}-{number}.sqlite3"));
        number += 1;
    }
    write(connection, database, &to)?;
    Ok(to)
}

/// The newest copy in the folder of backups.
pub(super) fn newest(dir: &Path) -> Option<String> {
    // A folder that is not there holds no copy, and one that cannot be read shows none.
    let entries = fs::read_dir(dir.join(FOLDER)).ok()?;
    let copies = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let name = entry.file_name().into_string().ok()?;
        let made = entry.metadata().ok()?.modified().ok()?;
        name.ends_with(".sqlite3").then_some((made, name))
    });
    copies.max().map(|(_, name)| name)
}

/// Copies to `to`.
pub(super) fn write(
    connection: &Connection,
    database: &Path,
    to: &Path,
) -> Result<(), BackupError> {
    // A link that leads nowhere is somebody's too.
    if fs::symlink_metadata(to).is_ok() {
        return Err(BackupError::Exists {
            path: to.to_owned(),
        });
    }
    let part = database::beside(to, ".part");
    let written = write_part(connection, database, &part, to);
    if written.is_err() {
        // What is left of it is of no use; that it may not be there is fine.
        let _ = fs::remove_file(&part);
    }
    written
}

fn write_part(
    connection: &Connection,
    database: &Path,
    part: &Path,
    to: &Path,
) -> Result<(), BackupError> {
    let place = |source| BackupError::Place {
        path: to.to_owned(),
        source,
    };
    match fs::remove_file(part) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(place(error)),
    }
    // Made here, so that a place that cannot be written is told from a database that cannot be read.
    fs::File::create(part)
        .and_then(|file| owner_only(&file))
        .map_err(place)?;
    connection
        .execute("VACUUM INTO ?1", [part.to_string_lossy()])
        .map_err(|e| {
            // Reading needs no room: what is full is the disk that the copy goes to.
            let is_full = e.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull);
            storage(if is_full { to } else { database }, e)
        })?;
    let found = soundness(part).map_err(|e| storage(part, e))?;
    if found != "ok" {
        return Err(BackupError::Unsound {
            path: to.to_owned(),
            found,
        });
    }
    fs::File::open(part)
        .and_then(|file| file.sync_all())
        .map_err(place)?;
    fs::rename(part, to).map_err(place)
}

/// Conversations are nobody else's business.
fn owner_only(file: &fs::File) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
    }
    #[cfg(not(unix))]
    let _ = file;
    Ok(())
}

fn soundness(copy: &Path) -> rusqlite::Result<String> {
    let copy = Connection::open(copy)?;
    copy.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
}

/// A moment as it may stand in a file's name.
pub(super) fn date(connection: &Connection, at: Timestamp) -> rusqlite::Result<String> {
    connection.query_row(
        "SELECT strftime('%Y-%m-%d-%H%M%S', ?1, 'unixepoch')",
        [at.millis().div_euclid(1_000)],
        |row| row.get(0),
    )
}

fn storage(path: &Path, error: rusqlite::Error) -> BackupError {
    BackupError::Storage(StorageError::from(error).at(path))
}
