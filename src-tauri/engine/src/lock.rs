//! One process per data folder. The lock is the system's, so it ends with the process, however that ends.
//!
//! The lock's file also remembers which log was opened here: a database that is empty all at once is then not taken for
//! a new one.

use std::{
    fs::{File, TryLockError},
    io::{Read, Seek, Write},
    path::Path,
    time::Duration,
};

use protocol::LogId;

use crate::{Harness, gate::gate_blocking, log::OpenError, mutant::mutated};

/// The lock's file. Empty until a log was opened in its folder; then it names the last one.
const FILE_NAME: &str = "holdfast.lock";

/// How often it is looked whether a lock was only inherited: a process becomes its program within milliseconds.
const INHERITED_LOOKS: u32 = 20;
const LOOK_EVERY: Duration = Duration::from_millis(10);

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

/// That another process became its program is no event that one could wait for, and no business of the injected clock.
#[expect(
    clippy::disallowed_methods,
    reason = "bounded, and on a thread of its own"
)]
fn wait_a_moment() {
    std::thread::sleep(LOOK_EVERY);
}

impl FolderLock {
    /// Creates the folder if needed, and takes its lock. Blocks for a moment where somebody has it: a process that was
    /// killed while it started another one has left its lock to that one, until it has become its program.
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
        let mut locked = file.try_lock();
        if matches!(locked, Err(TryLockError::WouldBlock)) {
            gate_blocking!(harness, FolderHeld);
        }
        let looks = if mutated!(harness, LockTriedOnce) {
            0
        } else {
            INHERITED_LOOKS
        };
        for _ in 0..looks {
            if !matches!(locked, Err(TryLockError::WouldBlock)) {
                break;
            }
            wait_a_moment();
            locked = file.try_lock();
        }
        match locked {
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
