//! Lists what is in the folder.
//!
//! Invariant: a listing ends, however large or deep the folder is: links are named and not followed, depth and number
//! are limited, and a limit that was met is said.

use std::{cmp::Ordering, ffi::OsString};

use cap_fs_ext::DirExt;
use cap_std::fs::Dir;
use serde::Deserialize;

use super::{
    arguments::{Field, Kind, Need, quoted},
    bound::{Bound, Rest},
    folder::{Folder, because},
};

/// Entries looked at in one call: several times what a result can hold, so that a count is mostly the whole count.
pub(super) const ENTRIES_MAX: usize = 2_000;
/// Folders within folders; each level holds one open handle.
const DEPTH_MAX: u64 = 20;

pub(super) const FIELDS: &[Field] = &[
    Field {
        name: "path",
        kind: Kind::Text,
        need: Need::Optional,
        meaning: "A folder below the chosen one, as a path from that folder on. Left away: the chosen folder itself.",
    },
    Field {
        name: "depth",
        kind: Kind::Count,
        need: Need::Optional,
        meaning: "How many levels of folders to list; 1, the default, lists the folder alone. At most 20.",
    },
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListFiles {
    path: Option<String>,
    depth: Option<u64>,
}

pub(super) fn run(folder: &Folder, asked: &ListFiles) -> Result<String, String> {
    let below = folder.below(asked.path.as_deref().unwrap_or("."))?;
    let name = below.said();
    let depth = asked.depth.unwrap_or(1);
    if depth > DEPTH_MAX {
        return Err(format!(
            "A depth of {depth} is more than this tool lists; give at most {DEPTH_MAX}"
        ));
    }
    let path = below.path();
    let cannot = |error: std::io::Error| format!("{name} cannot be listed: {}", because(&error));
    if !folder.dir.metadata(&path).map_err(cannot)?.is_dir() {
        return Err(format!("{name} is not a folder; read_file reads a file"));
    }
    let dir = folder.dir.open_dir(&path).map_err(cannot)?;
    let mut listing = Listing {
        lines: Bound::new(Rest::Words(
            "List a folder below this one, or with less depth, for the rest.",
        )),
        looked_at: 0,
        more: false,
    };
    let prefix = below
        .names
        .iter()
        .map(|name| format!("{}/", visible(name)))
        .collect::<String>();
    listing.walk(&dir, &prefix, depth).map_err(cannot)?;
    let Listing {
        mut lines,
        looked_at,
        more,
    } = listing;
    if more {
        lines.push(&format!(
            "[There is more: only {ENTRIES_MAX} entries were looked at. List a folder below this one for the rest.]\n"
        ));
    }
    let count = match (looked_at, more) {
        (0, false) => "it is empty".to_owned(),
        (1, false) => "1 entry".to_owned(),
        (count, false) => format!("{count} entries"),
        (count, true) => format!("more than {count} entries"),
    };
    Ok(format!(
        "{name}, depth {depth}: {count}\n{}",
        lines.finish()
    ))
}

struct Listing {
    lines: Bound,
    looked_at: usize,
    more: bool,
}

impl Listing {
    fn walk(&mut self, dir: &Dir, prefix: &str, depth: u64) -> std::io::Result<()> {
        let mut entries = Vec::new();
        for entry in dir.entries()? {
            if self.looked_at >= ENTRIES_MAX {
                self.more = true;
                break;
            }
            self.looked_at += 1;
            let entry = entry?;
            entries.push((entry.file_name(), entry));
        }
        entries.sort_by(|(a, _), (b, _)| by_name(a, b));
        for (name, entry) in entries {
            let (shown, remark) = match name.to_str() {
                Some(name) if !name.contains(char::is_control) => (name.to_owned(), ""),
                Some(name) => (
                    visible(name),
                    " (its name holds a control character; the tools cannot use it)",
                ),
                None => (
                    visible(&name.to_string_lossy()),
                    " (its name is not text; the tools cannot use it)",
                ),
            };
            // The entry may be gone by now, or not ours to look at: it is named all the same.
            let Ok(metadata) = entry.metadata() else {
                self.line(prefix, &shown, " (cannot be looked at)");
                continue;
            };
            if metadata.is_symlink() {
                let target = dir.read_link_contents(&name).map_or_else(
                    |_| "?".to_owned(),
                    |target| visible(&target.to_string_lossy()),
                );
                self.line(prefix, &shown, &format!(" -> {target} (a link){remark}"));
            } else if metadata.is_dir() {
                self.line(prefix, &shown, &format!("/{remark}"));
                if depth > 1 && !self.more {
                    self.inside(dir, &name, &format!("{prefix}{shown}/"), depth - 1);
                }
            } else if metadata.is_file() {
                self.line(
                    prefix,
                    &shown,
                    &format!(" ({} bytes){remark}", metadata.len()),
                );
            } else {
                self.line(
                    prefix,
                    &shown,
                    &format!(" (a pipe, socket or device){remark}"),
                );
            }
        }
        Ok(())
    }

    fn inside(&mut self, dir: &Dir, name: &OsString, prefix: &str, depth: u64) {
        // Not by following: it may have been swapped for a link since.
        let walked = dir
            .open_dir_nofollow(name)
            .and_then(|dir| self.walk(&dir, prefix, depth));
        if let Err(error) = walked {
            self.line(
                prefix,
                "",
                &format!(" (cannot be listed: {})", because(&error)),
            );
        }
    }

    fn line(&mut self, prefix: &str, name: &str, after: &str) {
        self.lines.push(prefix);
        self.lines.push(name);
        self.lines.push(after);
        self.lines.push("\n");
    }
}

fn by_name(a: &OsString, b: &OsString) -> Ordering {
    a.as_encoded_bytes().cmp(b.as_encoded_bytes())
}

/// A name that stays on its line.
fn visible(name: &str) -> String {
    if name.contains(char::is_control) {
        quoted(name)
    } else {
        name.to_owned()
    }
}
