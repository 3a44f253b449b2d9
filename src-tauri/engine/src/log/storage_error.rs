//! What kept the log from being read or written, sorted by what helps.
//!
//! Invariant: a full disk, a locked or a read-only file are not damage; only damage leads to a salvage. An error that
//! leaves the log names the file and says what to do.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use rusqlite::ErrorCode;

/// With less room than this, what fails fails for want of room.
const ROOM_TO_WORK_BYTES: u64 = 128 * 1_024;

/// What kept the log from being read or written.
#[derive(Debug)]
pub struct StorageError {
    /// Filled in by whoever knows which database it was.
    path: PathBuf,
    trouble: Trouble,
    source: rusqlite::Error,
}

/// The kinds of trouble a disk can make, by what helps against them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// There is no room.
    Full,
    /// The file or its folder cannot be written.
    ReadOnly,
    /// Another program holds it.
    Locked,
    /// It does not hold what was written.
    Damaged,
    /// Anything else a disk may say.
    Other,
}

impl StorageError {
    /// What kind of trouble it is.
    pub fn trouble(&self) -> Trouble {
        self.trouble
    }

    /// SQLite's own words.
    pub(super) fn source_words(&self) -> String {
        self.source.to_string()
    }

    pub(super) fn at(self, path: &Path) -> Self {
        let io_failed = self.source.sqlite_error_code() == Some(ErrorCode::SystemIoFailure);
        // SQLite says "I/O error" where it could not even grow a helper file for want of room.
        let is_full = io_failed
            && path
                .parent()
                .and_then(|folder| fs4::available_space(folder).ok())
                .is_some_and(|free| free < ROOM_TO_WORK_BYTES);
        Self {
            path: path.to_owned(),
            trouble: if is_full { Trouble::Full } else { self.trouble },
            ..self
        }
    }
}

impl From<rusqlite::Error> for StorageError {
    fn from(source: rusqlite::Error) -> Self {
        let trouble = match source.sqlite_error_code() {
            // A text of our own that is none any more.
            None if matches!(source, rusqlite::Error::Utf8Error(..)) => Trouble::Damaged,
            Some(ErrorCode::DiskFull) => Trouble::Full,
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Trouble::ReadOnly,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Trouble::Locked,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Trouble::Damaged,
            // A file that cannot be opened at all, an I/O error, or none of SQLite's own errors.
            Some(_) | None => Trouble::Other,
        };
        Self {
            path: PathBuf::new(),
            trouble,
            source,
        }
    }
}

impl std::error::Error for StorageError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, source, .. } = self;
        let path = path.display();
        match self.trouble {
            Trouble::Full => write!(f, "the disk that holds {path} is full; make room on it"),
            Trouble::ReadOnly => write!(
                f,
                "{path} cannot be written, because the file or its folder is read-only; allow writing it, or choose another folder with --data-dir"
            ),
            Trouble::Locked => write!(
                f,
                "another program holds {path} locked, such as a database browser or a backup; close that program"
            ),
            Trouble::Damaged => write!(
                f,
                "{path} is damaged ({source}); close Holdfast and open it again: it keeps the damaged file and saves everything in it that can still be read"
            ),
            Trouble::Other => write!(f, "{path} cannot be used ({source}); check the disk"),
        }
    }
}
