//! A file that is not whole yet: its bytes in `‹name›.part`, and what they are of in `‹name›.part.json`.
//!
//! Invariant: one writer at a time, and bytes are only ever added to those that belong to the same file. Kept by a lock
//! on the part, and by a note that is written before the first byte of another file is.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

/// What lies beside a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    url: String,
    /// `ETag` or `Last-Modified`; without one it cannot be gone on with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mark: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    total: Option<u64>,
}

/// Bytes that can be gone on with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Remembered {
    pub(super) bytes: u64,
    pub(super) mark: String,
}

pub(super) struct Part {
    folder: PathBuf,
    name: String,
    path: PathBuf,
    file: File,
    bytes: u64,
    digest: Context,
    total: Option<u64>,
    remembered: Option<Remembered>,
}

fn part_of(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.part"))
}

fn note_of(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.part.json"))
}

/// Removes a part and its note; neither need be there.
pub(super) fn remove(folder: &Path, name: &str) {
    for path in [part_of(folder, name), note_of(folder, name)] {
        if let Err(error) = fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "a part of a download could not be removed");
        }
    }
}

impl Part {
    /// Opens what is there, waits for whoever is still writing it, and reads it once for its checksum.
    pub(super) fn open(folder: &Path, name: &str, url: &str) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let path = part_of(folder, name);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(&path)?;
        file.lock()?;
        let mut part = Self {
            folder: folder.to_owned(),
            name: name.to_owned(),
            path,
            file,
            bytes: 0,
            digest: Context::new(&SHA256),
            total: None,
            remembered: None,
        };
        // A note that cannot be read belongs to bytes that cannot be gone on with.
        let note: Option<Note> = fs::read(note_of(folder, name))
            .ok()
            .and_then(|note| serde_json::from_slice(&note).ok());
        if let Some(Note {
            mark: Some(mark),
            total,
            ..
        }) = note.filter(|note| note.url == url)
        {
            part.read_all()?;
            part.total = total;
            part.remembered = (part.bytes > 0).then_some(Remembered {
                bytes: part.bytes,
                mark,
            });
        }
        if part.remembered.is_none() {
            part.clear()?;
        }
        Ok(part)
    }

    fn read_all(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; 1 << 20];
        self.file.rewind()?;
        loop {
            let read = self.file.read(&mut buffer)?;
            if read == 0 {
                return Ok(());
            }
            self.digest.update(buffer.get(..read).unwrap_or_default());
            self.bytes = self.bytes.saturating_add(read as u64);
        }
    }

    fn clear(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.bytes = 0;
        self.total = None;
        self.remembered = None;
        self.digest = Context::new(&SHA256);
        Ok(())
    }

    pub(super) fn remembered(&self) -> Option<&Remembered> {
        self.remembered.as_ref()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether as much is there as the server announced.
    pub(super) fn is_whole(&self) -> bool {
        self.total.is_some_and(|total| total == self.bytes)
    }

    pub(super) fn sha256(&self) -> String {
        let digest = self.digest.clone().finish();
        digest
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    pub(super) fn emptied(mut self) -> io::Result<Self> {
        self.clear()?;
        Ok(self)
    }

    /// Ready for the bytes from `begins` on.
    pub(super) fn continued(
        mut self,
        begins: u64,
        url: &str,
        mark: Option<String>,
        total: Option<u64>,
    ) -> io::Result<Self> {
        if begins != self.bytes {
            // Only the beginning is asked for besides the end of what is there.
            self.clear()?;
        }
        let note = Note {
            url: url.to_owned(),
            mark,
            total,
        };
        let note = serde_json::to_vec(&note).map_err(io::Error::other)?;
        let path = note_of(&self.folder, &self.name);
        let mut file = File::create(path)?;
        file.write_all(&note)?;
        file.sync_all()?;
        self.total = total;
        self.file.seek(SeekFrom::Start(begins))?;
        Ok(self)
    }

    pub(super) fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.file.write_all(piece)?;
        self.digest.update(piece);
        self.bytes = self.bytes.saturating_add(piece.len() as u64);
        Ok(())
    }

    pub(super) fn remove(self) {
        let Self {
            folder, name, file, ..
        } = self;
        drop(file);
        remove(&folder, &name);
    }

    /// Gives it its name.
    pub(super) fn named(self) -> io::Result<()> {
        let to = self.folder.join(&self.name);
        if to.exists() {
            let words = format!("there is a file {} already", to.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, words));
        }
        self.file.sync_all()?;
        fs::rename(&self.path, &to)?;
        // A folder that cannot be opened is synced by its system sooner or later.
        if let Ok(folder) = File::open(&self.folder) {
            let _ = folder.sync_all();
        }
        remove(&self.folder, &self.name);
        Ok(())
    }
}
