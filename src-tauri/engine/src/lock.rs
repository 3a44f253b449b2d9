//! One process per data folder. The lock is the system's, so it ends with the process, however that ends.

use std::{
    fs::{File, TryLockError},
    path::Path,
};

use crate::log::OpenError;

/// The lock's file. Its content means nothing.
const FILE_NAME: &str = "holdfast.lock";

/// Held as long as it lives.
#[derive(Debug)]
pub(crate) struct FolderLock {
    _file: File,
}

impl FolderLock {
    /// Creates the folder if needed, and takes its lock.
    pub(crate) fn take(dir: &Path) -> Result<Self, OpenError> {
        let folder = |source| OpenError::Folder {
            path: dir.to_owned(),
            source,
        };
        std::fs::create_dir_all(dir).map_err(folder)?;
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(dir.join(FILE_NAME))
            .map_err(folder)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(OpenError::InUse {
                path: dir.to_owned(),
            }),
            Err(TryLockError::Error(source)) => Err(folder(source)),
        }
    }
}
