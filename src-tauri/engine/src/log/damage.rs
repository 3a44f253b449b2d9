//! Damage that was met while the log was in use: noted beside the database, looked into when it is opened next.
//!
//! The note is a file of its own because what cannot be trusted any more is the database. Its text is for people.

use std::path::{Path, PathBuf};

/// The note's name in the data folder.
const FILE_NAME: &str = "holdfast.damaged";

fn file(dir: &Path) -> PathBuf {
    dir.join(FILE_NAME)
}

/// Leaves a note for the next start. Whoever met the damage is told of it in any case.
pub(super) fn note(dir: &Path, words: &str) {
    if let Err(error) = std::fs::write(file(dir), format!("{words}\n")) {
        tracing::error!(%error, "could not leave a note about the damaged database");
    }
}

/// Whether somebody has met damage since the database was last looked into.
pub(super) fn is_noted(dir: &Path) -> bool {
    file(dir).exists()
}

/// The database was looked into.
pub(super) fn forget(dir: &Path) {
    match std::fs::remove_file(file(dir)) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        // It is looked into once more than needed at the next start.
        Err(error) => tracing::warn!(%error, "could not remove the note about a damaged database"),
    }
}
