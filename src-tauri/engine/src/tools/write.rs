//! Writes a text file: first what would happen, for the user to decide, then exactly that.
//!
//! Invariant: a write does what was shown and nothing else. Its file is named by the names that were shown, followed
//! through no link; it is replaced in one step, or not at all; and not if it has changed since.
//! Not kept: a file's owner and its other hard links, which a replacement cannot keep.

use std::{
    collections::hash_map::RandomState,
    hash::BuildHasher as _,
    io::{self, ErrorKind, Read as _, Write as _},
    path::{Path, PathBuf},
};

use cap_fs_ext::{DirExt, FollowSymlinks};
use cap_std::fs::{Dir, File, OpenOptions, Permissions};
use protocol::{Effect, Intent, ToolOutcome};
use serde::Deserialize;

use crate::{Harness, mutant::mutated};

use super::{
    Prepared, ToolResult, Wanted,
    arguments::{Field, Kind, Need},
    diff::diff,
    folder::{Below, Folder, Identity, NotOpened, because, open_file},
};

/// Content that a person can be asked about, and that a model can have written.
pub(super) const CONTENT_BYTES_MAX: u64 = 1_024 * 1_024;

const BOM: &str = "\u{feff}";

pub(super) const FIELDS: &[Field] = &[
    Field {
        name: "path",
        kind: Kind::Text,
        need: Need::Required,
        meaning: "The file, as a path from the folder on. Missing folders are made.",
    },
    Field {
        name: "content",
        kind: Kind::Text,
        need: Need::Required,
        meaning: "The whole new content of the file.",
    },
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteFile {
    path: String,
    content: String,
}

/// A write, decided to the last byte.
#[derive(Clone)]
pub(super) struct Planned {
    folder: PathBuf,
    identity: Identity,
    /// Free of links.
    target: Below,
    before: Option<Vec<u8>>,
    after: String,
    /// Line ends and mark that were kept, for the model.
    kept: &'static str,
}

/// Looks what a write would change. Reads only.
pub(super) fn prepare(folder_path: &Path, asked: WriteFile) -> Result<Prepared, String> {
    let folder = Folder::open(folder_path)?;
    let below = folder.below(&asked.path)?;
    below.as_file()?;
    let name = below.said();
    let too_large = || {
        format!(
            "{name} cannot be written: this tool writes and replaces at most {CONTENT_BYTES_MAX} bytes. \
             Make smaller files, or ask the user to do it"
        )
    };
    if asked.content.len() as u64 > CONTENT_BYTES_MAX {
        return Err(too_large());
    }
    let target = resolve(&folder, &below)?;
    let before = match open_file(&folder.dir, target.path(), FollowSymlinks::No) {
        Ok((_, metadata)) if metadata.permissions().readonly() => {
            return Err(format!(
                "{name} cannot be written: it is marked as read-only"
            ));
        }
        Ok((_, metadata)) if metadata.len() > CONTENT_BYTES_MAX => return Err(too_large()),
        Ok((file, _)) => Some(content(file).map_err(|error| {
            format!(
                "{name} cannot be written, as it cannot be read: {}",
                because(&error)
            )
        })?),
        Err(NotOpened::Io(error)) if error.kind() == ErrorKind::NotFound => None,
        Err(why) => return Err(format!("{name} cannot be written: {why}")),
    };
    if before
        .as_ref()
        .is_some_and(|before| before.len() as u64 > CONTENT_BYTES_MAX)
    {
        return Err(too_large());
    }
    let (after, kept) = in_the_manner_of(before.as_deref(), asked.content);
    if before.as_deref() == Some(after.as_bytes()) {
        return Err(format!(
            "{name} has exactly this content already, so nothing was written"
        ));
    }
    let (diff, diff_left_out) = diff(before.as_deref(), &after);
    Ok(Prepared {
        intent: Intent::WriteFile {
            path: folder.shown(&target),
            before: before.as_ref().map(|before| before.len() as u64),
            after: after.len() as u64,
            diff,
            diff_left_out,
        },
        planned: Planned {
            folder: folder_path.to_owned(),
            identity: folder.identity()?,
            target,
            before,
            after,
            kept,
        },
    })
}

/// Does what was planned, unless nobody wants it any more or the file is not what it was.
pub(super) fn run(planned: &Planned, wanted: &Wanted, harness: &Harness) -> ToolResult {
    let name = planned.target.said();
    let failed = |message: String, effect| ToolResult {
        outcome: ToolOutcome::Failed { message },
        effect,
    };
    let opened = Folder::open(&planned.folder).and_then(|folder| Ok((folder.identity()?, folder)));
    let folder = match opened {
        Ok((identity, folder)) if identity == planned.identity => folder,
        Ok(_) => {
            return failed(
                "The folder chosen for this conversation was replaced by another one since the user was asked; \
                 nothing was written"
                    .to_owned(),
                Effect::None,
            );
        }
        Err(why) => return failed(why, Effect::None),
    };
    let mut made = Made::default();
    match replace(&folder.dir, planned, wanted, &mut made, harness) {
        Ok(()) => {
            let what = if planned.before.is_some() {
                "replaced"
            } else {
                "new"
            };
            let bytes = planned.after.len();
            ToolResult {
                outcome: ToolOutcome::Succeeded {
                    output: format!("Wrote {name} ({what}, {bytes} bytes).{}", planned.kept),
                },
                effect: Effect::Committed,
            }
        }
        Err(NotWritten::Unclear(error)) => {
            // Whatever can be tidied up of an unclear write; more than that is not known.
            if let Err(error) = made.undo() {
                tracing::warn!(%error, "what an unclear write had made was not removed");
            }
            failed(
                format!(
                    "Whether {name} was written is not known: {}. Look at the file before trying again",
                    because(&error)
                ),
                Effect::Unknown,
            )
        }
        Err(why @ (NotWritten::Changed | NotWritten::Unwanted | NotWritten::Io(_))) => {
            let (left, effect) = match made.undo() {
                Ok(()) => ("", Effect::None),
                Err(error) => {
                    tracing::warn!(%error, "what a failed write had made could not be removed");
                    (
                        " Folders made for it, or a file ending in .tmp, are left behind.",
                        Effect::Committed,
                    )
                }
            };
            failed(format!("{name} was not written: {why}.{left}"), effect)
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum NotWritten {
    #[error("it has changed since the user was asked. Read it and ask again")]
    Changed,
    #[error("the turn had ended")]
    Unwanted,
    #[error("{}", because(.0))]
    Io(#[from] io::Error),
    #[error("it is not known whether it was written")]
    Unclear(#[source] io::Error),
}

fn replace(
    dir: &Dir,
    planned: &Planned,
    wanted: &Wanted,
    made: &mut Made,
    harness: &Harness,
) -> Result<(), NotWritten> {
    let Some((file_name, parents)) = planned.target.names.split_last() else {
        return Err(NotWritten::Changed);
    };
    let parent = open_parent(dir, parents, made, harness)?;
    let permissions = unchanged(&parent, file_name, planned, harness)?;
    let temporary = format!(".{:016x}.tmp", RandomState::new().hash_one(file_name));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    let mut file = parent.open_with(&temporary, &options)?;
    made.file = Some((parent.try_clone()?, temporary.clone()));
    // Before the content, which may be nobody else's business.
    if let Some(permissions) = permissions {
        file.set_permissions(permissions)?;
    }
    file.write_all(planned.after.as_bytes())?;
    file.sync_all()?;
    drop(file);
    // Again, as late as can be: writing took its time.
    unchanged(&parent, file_name, planned, harness)?;
    if !wanted.still() {
        return Err(NotWritten::Unwanted);
    }
    if let Err(error) = parent.rename(&temporary, &parent, file_name) {
        // A network's answer may be lost where its deed is not.
        return match read_at(&parent, file_name) {
            Ok(Some(content)) if content == planned.after.as_bytes() => Ok(()),
            Ok(content) if content == planned.before => Err(NotWritten::Io(error)),
            Ok(_) | Err(_) => Err(NotWritten::Unclear(error)),
        };
    }
    sync_folder(&parent);
    Ok(())
}

/// The permissions to keep, if the file is as it was shown.
fn unchanged(
    parent: &Dir,
    name: &str,
    planned: &Planned,
    harness: &Harness,
) -> Result<Option<Permissions>, NotWritten> {
    let (file, metadata) = match open_file(parent, name, FollowSymlinks::No) {
        Ok(opened) => opened,
        Err(NotOpened::Io(error)) if error.kind() == ErrorKind::NotFound => {
            return if planned.before.is_none() {
                Ok(None)
            } else {
                Err(NotWritten::Changed)
            };
        }
        Err(NotOpened::Io(error)) => return Err(error.into()),
        Err(NotOpened::Folder | NotOpened::NoFile) => return Err(NotWritten::Changed),
    };
    let changed = metadata.permissions().readonly() || Some(content(file)?) != planned.before;
    if changed && !mutated!(harness, ChangedSinceAsked) {
        return Err(NotWritten::Changed);
    }
    Ok(Some(metadata.permissions()))
}

fn read_at(parent: &Dir, name: &str) -> Result<Option<Vec<u8>>, NotOpened> {
    match open_file(parent, name, FollowSymlinks::No) {
        Ok((file, _)) => Ok(Some(content(file)?)),
        Err(NotOpened::Io(error)) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(why) => Err(why),
    }
}

/// At most one byte more than may be written: enough to see that it is too much.
fn content(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(CONTENT_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Makes a rename survive a power cut. It has happened either way, so a failure is only told to the log.
fn sync_folder(parent: &Dir) {
    if cfg!(unix)
        && let Err(error) = parent
            .try_clone()
            .and_then(|dir| dir.into_std_file().sync_all())
    {
        tracing::warn!(%error, "a written file's folder could not be synced");
    }
}

/// Name by name and through no link, so that it is the folder that was shown; missing ones are made.
fn open_parent(
    dir: &Dir,
    names: &[String],
    made: &mut Made,
    harness: &Harness,
) -> Result<Dir, NotWritten> {
    let mut at = dir.try_clone()?;
    for name in names {
        if mutated!(harness, FollowLinks) {
            at = at.open_dir(name)?;
            continue;
        }
        at = match at.open_dir_nofollow(name) {
            Ok(inner) => inner,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                at.create_dir(name)?;
                made.folders.push((at.try_clone()?, name.clone()));
                at.open_dir_nofollow(name)?
            }
            Err(error) => return Err(error.into()),
        };
    }
    Ok(at)
}

/// What a write has made on its way, to be taken back if it comes to nothing.
#[derive(Default)]
struct Made {
    folders: Vec<(Dir, String)>,
    file: Option<(Dir, String)>,
}

impl Made {
    fn undo(self) -> io::Result<()> {
        if let Some((dir, name)) = self.file {
            dir.remove_file(name)?;
        }
        for (dir, name) in self.folders.into_iter().rev() {
            dir.remove_dir(name)?;
        }
        Ok(())
    }
}

/// The path without links, so that the one shown is the one written; its last part may not exist yet.
fn resolve(folder: &Folder, below: &Below) -> Result<Below, String> {
    let refuse = |why: &str| Err(format!("{} cannot be written: {why}", below.said()));
    for existing in (0..=below.names.len()).rev() {
        let (known, rest) = below.names.split_at(existing);
        let known = Below {
            names: known.to_vec(),
            says_folder: false,
        };
        match folder.dir.canonicalize(known.path()) {
            Ok(path) => {
                if !rest.is_empty() && !folder.dir.is_dir(&path) {
                    return refuse(&format!("{} is not a folder", known.said()));
                }
                let mut names = Vec::new();
                for component in path.components() {
                    if let std::path::Component::Normal(name) = component {
                        match name.to_str() {
                            Some(name) => names.push(name.to_owned()),
                            None => return refuse("a link in it leads to a name that is not text"),
                        }
                    }
                }
                names.extend_from_slice(rest);
                return Ok(Below {
                    names,
                    says_folder: false,
                });
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if folder.dir.symlink_metadata(known.path()).is_ok() {
                    return refuse(&format!("{} is a link to nothing", known.said()));
                }
            }
            Err(error) => return refuse(&because(&error)),
        }
    }
    refuse("the folder is gone")
}

/// A file that was written on Windows stays one: models give back plain line ends and drop the byte order mark.
fn in_the_manner_of(before: Option<&[u8]>, content: String) -> (String, &'static str) {
    let Some(before) = before.and_then(|before| std::str::from_utf8(before).ok()) else {
        return (content, "");
    };
    let marked = before.starts_with(BOM) && !content.starts_with(BOM);
    let ends = before.matches('\n').count();
    let crlf = ends > 0
        && before.matches("\r\n").count() == ends
        && content.contains('\n')
        && !content.contains('\r');
    let content = if crlf {
        content.replace('\n', "\r\n")
    } else {
        content
    };
    match (marked, crlf) {
        (false, false) => (content, ""),
        (false, true) => (content, " Its CRLF line ends were kept."),
        (true, false) => (format!("{BOM}{content}"), " Its byte order mark was kept."),
        (true, true) => (
            format!("{BOM}{content}"),
            " Its byte order mark and CRLF line ends were kept.",
        ),
    }
}
