//! One process per data folder. The lock is the system's, so it ends with the process, however that ends.
//!
//! The lock's file also remembers which log was opened here: a database that is empty all at once is then not taken for
//! a new one.

use std::{
    fs::{File, TryLockError},
    io::{Read, Seek, Write},
    path::Path,
};

use protocol::LogId;

use crate::{Harness, log::OpenError, mutant::mutated};

/// The lock's file. Empty until a log was opened in its folder; then it names the last one.
const FILE_NAME: &str = "holdfast.lock";

/// Held as long as it lives.
#[derive(Debug)]
pub(crate) struct FolderLock {
    file: File,
    was_used: bool,
}

/// Let go in so many words: a process that is being started at this moment has inherited the open file, and closing ours
/// alone would leave the folder locked until that one has become another program.
impl Drop for FolderLock {
    fn drop(&mut self) {
        if let Err(error) = self.file.unlock() {
            tracing::warn!(%error, "could not let go of the folder's lock");
        }
    }
}

impl FolderLock {
    /// Creates the folder if needed, and takes its lock.
    pub(crate) fn take(dir: &Path, harness: &Harness) -> Result<Self, OpenError> {
        let folder = |source| OpenError::Folder {
            path: dir.to_owned(),
            source,
        };
        std::fs::create_dir_all(dir).map_err(folder)?;
        let mut file = File::options()
            .read(true)
            .create(true)
            .truncate(false)
            .write(true)
            .open(dir.join(FILE_NAME))
            .map_err(folder)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if mutated!(harness, NoLock) => Ok(Self {
                file,
                was_used: true,
            }),
            Ok(()) => {
                let mut named = String::new();
                file.read_to_string(&mut named).map_err(folder)?;
                Ok(Self {
                    file,
                    was_used: !named.trim().is_empty(),
                })
            }
            Err(TryLockError::WouldBlock) => Err(OpenError::InUse {
                path: dir.to_owned(),
            }),
            Err(TryLockError::Error(source)) => Err(folder(source)),
        }
    }

    /// Whether a log was opened in this folder before.
    pub(crate) fn was_used(&self) -> bool {
        self.was_used
    }

    /// Remembers that a log was opened in this folder.
    pub(crate) fn remember(&mut self, log: LogId) {
        let written = self
            .file
            .rewind()
            .and_then(|()| self.file.set_len(0))
            .and_then(|()| writeln!(self.file, "{log}"));
        if let Err(error) = written {
            // Only an emptied database would not be noticed.
            tracing::warn!(%error, "could not remember the log in the folder's lock");
        }
    }
}
