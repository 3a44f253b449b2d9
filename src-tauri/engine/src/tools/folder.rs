//! The one folder that a session's tools may use, and the paths that name something in it.
//!
//! Invariant: nothing outside the folder is opened, whatever a path says and whatever links are swapped meanwhile.
//! Kept by `cap-std`: every path is resolved by the system from the opened folder, never joined to its name.
//! Not here: what is done with a file.

use std::{
    io::{self, ErrorKind},
    path::{Component, Path, PathBuf},
};

use cap_fs_ext::{FollowSymlinks, MetadataExt, OpenOptionsFollowExt, OpenOptionsSyncExt};
use cap_std::{
    ambient_authority,
    fs::{Dir, File, Metadata, OpenOptions},
};

use super::arguments::quoted;

/// What a path may be long on the systems we know.
const PATH_CHARS_MAX: usize = 4_096;

/// The folder, opened.
pub(super) struct Folder {
    pub(super) dir: Dir,
    path: PathBuf,
}

/// A folder that is the same after a rename and another after it was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    file: u64,
}

/// A path below the folder, from the folder on; without names it is the folder itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Below {
    pub(super) names: Vec<String>,
    /// It ended in a slash.
    pub(super) says_folder: bool,
}

impl Folder {
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let dir = Dir::open_ambient_dir(path, ambient_authority()).map_err(|error| {
            format!(
                "The folder {} that was chosen for this conversation cannot be opened: {}. Tell the user.",
                quoted(&path.to_string_lossy()),
                because(&error)
            )
        })?;
        Ok(Self {
            dir,
            path: path.to_owned(),
        })
    }

    pub(super) fn identity(&self) -> Result<Identity, String> {
        let metadata = self
            .dir
            .dir_metadata()
            .map_err(|error| format!("The folder cannot be looked at: {}", because(&error)))?;
        Ok(Identity {
            device: metadata.dev(),
            file: metadata.ino(),
        })
    }

    /// What the model wrote as a path, taken from the folder on. Touches the disk only to learn the folder's true name.
    pub(super) fn below(&self, given: &str) -> Result<Below, String> {
        let refuse = |why: &str| Err(format!("The path {} is refused: {why}", quoted(given)));
        if given.trim().is_empty() {
            return refuse(
                "it is empty. Give a path from the folder on, such as \"notes/today.md\"",
            );
        }
        if given.chars().count() > PATH_CHARS_MAX {
            return refuse("it is longer than any path can be");
        }
        if given.contains(char::is_control) {
            return refuse("it holds a control character");
        }
        let path = Path::new(given);
        let path = if path.has_root() || path.is_absolute() {
            let inside = path.strip_prefix(&self.path).map(Path::to_owned);
            // The folder may have been chosen through a link, and the model may know it by its true name.
            let inside = inside.or_else(|elsewhere| {
                let truly = self.path.canonicalize().map_err(|_| elsewhere)?;
                path.strip_prefix(truly).map(Path::to_owned)
            });
            match inside {
                Ok(inside) => inside,
                Err(_) => {
                    return refuse(
                        "it is outside the folder chosen for this conversation. Give a path from that folder on, \
                         such as \"notes/today.md\"",
                    );
                }
            }
        } else {
            path.to_owned()
        };
        let mut names = Vec::new();
        for component in path.components() {
            match component {
                Component::Normal(name) => {
                    // It was text a moment ago.
                    let Some(name) = name.to_str() else {
                        return refuse("it is not text");
                    };
                    names.push(name.to_owned());
                }
                Component::CurDir => {}
                Component::ParentDir => {
                    return refuse("it holds \"..\". Give the path from the chosen folder on");
                }
                Component::RootDir | Component::Prefix(_) => {
                    return refuse("it is outside the folder chosen for this conversation");
                }
            }
        }
        if names.first().is_some_and(|name| name.starts_with('~')) && !given.starts_with("./") {
            return refuse(
                "\"~\" is not the home folder here. Give a path from the chosen folder on; if a name truly begins \
                 with \"~\", put \"./\" in front",
            );
        }
        if cfg!(windows)
            && let Some(name) = names.iter().find(|name| is_special_on_windows(name))
        {
            return refuse(&format!("{} means something else on Windows", quoted(name)));
        }
        let says_folder = given.ends_with('/') || (cfg!(windows) && given.ends_with('\\'));
        Ok(Below { names, says_folder })
    }

    /// The absolute path, as a person is shown it.
    pub(super) fn shown(&self, below: &Below) -> String {
        let mut path = self.path.clone();
        path.extend(&below.names);
        path.display().to_string()
    }
}

impl Below {
    pub(super) fn path(&self) -> PathBuf {
        if self.names.is_empty() {
            PathBuf::from(".")
        } else {
            self.names.iter().collect()
        }
    }

    /// As it is said to the model: from the folder on, with `/` on every system.
    pub(super) fn said(&self) -> String {
        if self.names.is_empty() {
            "the folder".to_owned()
        } else {
            quoted(&self.names.join("/"))
        }
    }

    /// Refuses what can only be a folder.
    pub(super) fn as_file(&self) -> Result<(), String> {
        if self.names.is_empty() {
            return Err("The path names the folder itself, not a file in it".to_owned());
        }
        if self.says_folder {
            return Err(format!(
                "The path of {} ends in a slash, so it names a folder; give a file's path",
                self.said()
            ));
        }
        Ok(())
    }
}

/// Opens a regular file for reading, and nothing else: a pipe would wait for ever, a device may act on being opened.
pub(super) fn open_file(
    dir: &Dir,
    path: impl AsRef<Path>,
    follow: FollowSymlinks,
) -> Result<(File, Metadata), NotOpened> {
    let path = path.as_ref();
    let metadata = match follow {
        FollowSymlinks::Yes => dir.metadata(path)?,
        FollowSymlinks::No => dir.symlink_metadata(path)?,
    };
    regular(&metadata)?;
    let mut options = OpenOptions::new();
    // It may have become a pipe since.
    options.read(true).nonblock(true).follow(follow);
    let file = dir.open_with(path, &options)?;
    let metadata = file.metadata()?;
    regular(&metadata)?;
    Ok((file, metadata))
}

fn regular(metadata: &Metadata) -> Result<(), NotOpened> {
    if metadata.is_dir() {
        Err(NotOpened::Folder)
    } else if metadata.is_file() {
        Ok(())
    } else {
        Err(NotOpened::NoFile)
    }
}

/// Why a file was not opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotOpened {
    #[error("it is a folder")]
    Folder,
    #[error("it is neither a file nor a folder, but a link, a pipe, a socket or a device")]
    NoFile,
    #[error("{}", because(.0))]
    Io(#[from] io::Error),
}

/// What went wrong, in words.
pub(super) fn because(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "there is nothing of that name".to_owned(),
        // `cap-std` refuses by an error of its own, the system by a number.
        ErrorKind::PermissionDenied if error.raw_os_error().is_none() => {
            "a link in it leads outside the folder chosen for this conversation".to_owned()
        }
        ErrorKind::PermissionDenied => "the system does not permit it".to_owned(),
        ErrorKind::NotADirectory => {
            "a part of the path is not a folder, or a link was put in its place".to_owned()
        }
        ErrorKind::InvalidFilename => {
            "a name in it is longer than the system allows, or not allowed".to_owned()
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "the disk is full".to_owned(),
        ErrorKind::ReadOnlyFilesystem => "the disk is read-only".to_owned(),
        // `ErrorKind` is open-ended; the system's own words serve for the rest.
        _ => error.to_string(),
    }
}

/// Names that Windows gives to devices, and those it would store under another name.
fn is_special_on_windows(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or(name).trim_end();
    let device = ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"]
        .iter()
        .any(|device| stem.eq_ignore_ascii_case(device));
    let mut letters = stem.chars();
    let numbered = letters.by_ref().take(3).collect::<String>();
    let port = (numbered.eq_ignore_ascii_case("COM") || numbered.eq_ignore_ascii_case("LPT"))
        && matches!(letters.next(), Some('0'..='9' | '¹' | '²' | '³'))
        && letters.next().is_none();
    device
        || port
        || name.ends_with(['.', ' '])
        || name.contains(['<', '>', ':', '"', '|', '?', '*'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_windows_devices_are_known_in_every_disguise() {
        for name in [
            "con", "NUL", "nul.txt", "aux .c", "COM1", "lpt9.log", "com¹", "CONOUT$", "a:b",
            "dot.", "space ",
        ] {
            assert!(is_special_on_windows(name), "{name}");
        }
        for name in [
            "console",
            "com",
            "com10",
            "nullable.rs",
            "auxiliary",
            ".config",
            "a.con",
        ] {
            assert!(!is_special_on_windows(name), "{name}");
        }
    }
}
