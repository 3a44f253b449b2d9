//! Reads a text file, or some of its lines.
//!
//! Invariant: neither a huge file nor an endless line is ever in memory as a whole, and bytes reach the model as they
//! are: line ends and a byte order mark included.

use std::io::Read as _;

use cap_fs_ext::FollowSymlinks;
use serde::Deserialize;

use super::{
    arguments::{Field, Kind, Need},
    bound::{Bound, Rest, line_ends},
    folder::{Folder, NotOpened, because, open_file},
};

/// As far into a file as is looked: a fraction of a second, and more text than any model reads.
pub(super) const SCANNED_BYTES_MAX: u64 = 16 * 1_024 * 1_024;
/// One read; a line may be longer.
const CHUNK_BYTES: usize = 64 * 1_024;

pub(super) const FIELDS: &[Field] = &[
    Field {
        name: "path",
        kind: Kind::Text,
        need: Need::Required,
        meaning: "The file, as a path from the folder on.",
    },
    Field {
        name: "from_line",
        kind: Kind::Count,
        need: Need::Optional,
        meaning: "The first line to give; 1 is the first of the file.",
    },
    Field {
        name: "lines",
        kind: Kind::Count,
        need: Need::Optional,
        meaning: "How many lines to give at most.",
    },
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadFile {
    path: String,
    from_line: Option<u64>,
    lines: Option<u64>,
}

pub(super) fn run(folder: &Folder, asked: &ReadFile) -> Result<String, String> {
    let below = folder.below(&asked.path)?;
    below.as_file()?;
    let name = below.said();
    let (mut file, metadata) =
        open_file(&folder.dir, below.path(), FollowSymlinks::Yes).map_err(|why| {
            let advice = match why {
                NotOpened::Folder => "; list_files shows what is in it",
                NotOpened::NoFile | NotOpened::Io(_) => "",
            };
            format!("{name} cannot be read: {why}{advice}")
        })?;
    let mut picker = Picker::new(asked);
    let mut chunk = vec![0; CHUNK_BYTES];
    // The beginning of a character whose rest comes with the next read.
    let mut pending = 0;
    let mut scanned = 0_u64;
    let ended = loop {
        if scanned >= SCANNED_BYTES_MAX {
            break false;
        }
        let room = chunk.get_mut(pending..).unwrap_or_default();
        let read = match file.read(room) {
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(format!("{name} cannot be read: {}", because(&error))),
        };
        scanned += read as u64;
        let bytes = chunk.get(..pending + read).unwrap_or_default();
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) if error.error_len().is_none() && read > 0 => {
                let whole = bytes.get(..error.valid_up_to()).unwrap_or_default();
                std::str::from_utf8(whole).unwrap_or_default()
            }
            Err(_) => return Err(not_text(&name, metadata.len())),
        };
        if text.contains('\0') {
            return Err(not_text(&name, metadata.len()));
        }
        picker.take(text);
        let (taken, held) = (text.len(), bytes.len());
        if read == 0 {
            break true;
        }
        chunk.copy_within(taken..held, 0);
        pending = held - taken;
    };
    picker.finish(&name, ended)
}

fn not_text(name: &str, bytes: u64) -> String {
    format!(
        "{name} is not a text file in UTF-8 but holds other data ({bytes} bytes), so it cannot be read as text"
    )
}

/// Picks the lines asked for out of the text that goes by.
struct Picker {
    from: u64,
    /// The first line that is not wanted any more.
    until: u64,
    line: u64,
    /// Something of the present line has been seen.
    in_line: bool,
    picked: Bound,
}

impl Picker {
    fn new(asked: &ReadFile) -> Self {
        let from = asked.from_line.unwrap_or(1);
        Self {
            from,
            until: asked
                .lines
                .map_or(u64::MAX, |lines| from.saturating_add(lines)),
            line: 1,
            in_line: false,
            picked: Bound::new(Rest::FromLine(from)),
        }
    }

    fn take(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let all = self.line >= self.from && self.until == u64::MAX;
        let none = self.line >= self.until;
        if all || none {
            if all {
                self.picked.push(text);
            }
            self.line += line_ends(text);
            self.in_line = !text.ends_with('\n');
            return;
        }
        for piece in text.split_inclusive('\n') {
            if (self.from..self.until).contains(&self.line) {
                self.picked.push(piece);
            }
            self.in_line = !piece.ends_with('\n');
            if !self.in_line {
                self.line += 1;
            }
        }
    }

    fn finish(self, name: &str, ended: bool) -> Result<String, String> {
        let Self {
            from,
            until,
            line,
            in_line,
            mut picked,
        } = self;
        let count = if in_line { line } else { line - 1 };
        if ended && count == 0 {
            return Ok(format!("[{name} is empty.]"));
        }
        if from > count {
            return Err(if ended {
                format!("{name} has only {count} lines; there is no line {from}")
            } else {
                format!(
                    "Line {from} of {name} lies beyond the first {SCANNED_BYTES_MAX} bytes of the file, and this tool \
                     looks no further"
                )
            });
        }
        let last = count.min(until - 1);
        if !ended {
            picked.end_line();
            picked.push(&format!(
                "[The file goes on: only its first {SCANNED_BYTES_MAX} bytes were looked at.]"
            ));
        } else if from > 1 || last < count {
            picked.end_line();
            picked.push(&format!("[These are lines {from} to {last} of {count}.]"));
        }
        Ok(picked.finish())
    }
}
