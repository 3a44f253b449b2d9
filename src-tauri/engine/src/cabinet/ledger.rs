//! The file that says which servers have secrets and where; it holds those that the user wanted in a file.
//!
//! Invariant: from its first byte on nobody but this user can read it, and it is there whole or as it was before. What
//! lives only until Holdfast is closed is not mentioned.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use protocol::{KeyHint, KeyPlace, ProviderId};
use serde::{Deserialize, Serialize};

use crate::gateway::{ApiKey, Secrets};

const FILE_NAME: &str = "keys.json";
const VERSION: u32 = 1;

/// What is known of a server's secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) origin: String,
    pub(super) place: KeyPlace,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<KeyHint>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) headers: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Written {
    version: u32,
    servers: BTreeMap<ProviderId, Line>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    left: BTreeSet<ProviderId>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    #[serde(flatten)]
    entry: Entry,
    /// Only of those that are to be in this file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secrets: Option<Bare>,
}

/// Secrets as they are written down.
#[derive(Serialize, Deserialize)]
struct Bare {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
}

impl Bare {
    fn of(secrets: &Secrets) -> Self {
        let bare = |key: &ApiKey| key.expose().to_owned();
        Self {
            key: secrets.key.as_ref().map(bare),
            headers: secrets
                .headers
                .iter()
                .map(|(name, value)| (name.clone(), bare(value)))
                .collect(),
        }
    }

    fn taken(self) -> Secrets {
        Secrets {
            key: self.key.as_deref().map(ApiKey::new),
            headers: self
                .headers
                .into_iter()
                .map(|(name, value)| (name, ApiKey::new(&value)))
                .collect(),
        }
    }
}

/// Secrets as a keychain keeps them: one text for all of a server's.
pub(super) fn in_words(secrets: &Secrets) -> Result<String, serde_json::Error> {
    serde_json::to_string(&Bare::of(secrets))
}

pub(super) fn from_words(text: &str) -> Option<Secrets> {
    // The error's words could quote the text.
    serde_json::from_str::<Bare>(text).ok().map(Bare::taken)
}

/// Why the file is not as it should be. Never quotes it.
#[derive(Debug, thiserror::Error)]
pub(super) enum LedgerError {
    #[error("the list of keys in {path} could not be {what}: {source}")]
    Io {
        path: PathBuf,
        what: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("the list of keys in {path} cannot be understood (line {line})")]
    Garbled { path: PathBuf, line: usize },
    #[error("the list of keys in {path} is of a newer version of Holdfast")]
    Newer { path: PathBuf },
}

/// Which servers have secrets, and those secrets that are at hand.
#[derive(Clone, Default)]
pub(super) struct Kept {
    pub(super) entries: BTreeMap<ProviderId, Entry>,
    /// What was in the file itself, or was read or entered in this process.
    pub(super) known: HashMap<ProviderId, Secrets>,
    /// Servers of whose secrets a keychain may have a copy that is not to be there.
    pub(super) left: BTreeSet<ProviderId>,
}

#[derive(Clone)]
pub(super) struct Ledger {
    path: PathBuf,
}

impl Ledger {
    pub(super) fn in_folder(dir: &Path) -> Self {
        Self {
            path: dir.join(FILE_NAME),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn read(&self) -> Result<Kept, LedgerError> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Kept::default()),
            Err(source) => return Err(self.io("read", source)),
        };
        let written: Written =
            serde_json::from_str(&text).map_err(|error| LedgerError::Garbled {
                path: self.path.clone(),
                line: error.line(),
            })?;
        if written.version > VERSION {
            return Err(LedgerError::Newer {
                path: self.path.clone(),
            });
        }
        let mut kept = Kept {
            left: written.left,
            ..Kept::default()
        };
        for (id, line) in written.servers {
            if let Some(secrets) = line.secrets {
                kept.known.insert(id, secrets.taken());
            }
            kept.entries.insert(id, line.entry);
        }
        Ok(kept)
    }

    /// Blocking, and short.
    pub(super) fn write(&self, kept: &Kept) -> Result<(), LedgerError> {
        let line = |(id, entry): (&ProviderId, &Entry)| {
            let secrets = match entry.place {
                KeyPlace::File => kept.known.get(id).map(Bare::of),
                KeyPlace::Keychain => None,
                KeyPlace::Memory => return None,
            };
            let entry = entry.clone();
            Some((*id, Line { entry, secrets }))
        };
        let written = Written {
            version: VERSION,
            servers: kept.entries.iter().filter_map(line).collect(),
            left: kept.left.clone(),
        };
        let text = serde_json::to_string_pretty(&written)
            .map_err(|error| self.io("written", io::Error::other(error)))?;
        self.replace(text.as_bytes())
            .map_err(|source| self.io("written", source))
    }

    fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        let beside = self.path.with_extension("json.new");
        // One that a crash left is not whole, and may have been made by somebody else.
        match fs::remove_file(&beside) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let mut file = private(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        drop(file);
        fs::rename(&beside, &self.path)
    }

    /// Puts a file that cannot be understood out of the way.
    pub(super) fn set_aside(&self) -> Result<(), LedgerError> {
        let aside = self.path.with_extension("json.unreadable");
        match fs::rename(&self.path, aside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.io("moved", error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn io(&self, what: &'static str, source: io::Error) -> LedgerError {
        LedgerError::Io {
            path: self.path.clone(),
            what,
            source,
        }
    }
}

#[cfg(unix)]
fn private(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// The data folder is in the user's own place, which others cannot read.
#[cfg(not(unix))]
fn private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}
