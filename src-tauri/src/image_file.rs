//! A file of this computer that may be an image: its bytes, and no more of them than an image may have.

use std::{fs, io, io::Read, path::Path};

use protocol::IMAGE_FILE_BYTES_MAX;

/// Reads it. One that is too large comes with a byte more than is taken, so that the engine says so.
///
/// # Errors
/// That it cannot be read, or is no ordinary file: opening a pipe would wait for somebody to write into it.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let kind = fs::metadata(path)?;
    if !kind.is_file() && !kind.is_dir() {
        return Err(io::Error::other("it is no ordinary file"));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?
        .take(IMAGE_FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}
