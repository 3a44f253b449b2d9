//! A database file, read page by page without SQLite, for what SQLite can no longer find its way to.
//!
//! Events are never changed, so a row in any page that was ever committed says something true, whatever has become of
//! the pages that led to it. A record that does not parse is left out; whether it is one of ours, its columns say.
//! The format is described in SQLite's "Database File Format".

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::Path,
};

use super::{
    super::database::{PAGE_BYTES, write_ahead_log},
    frames::{self, Frames},
};

/// Bytes before the first page's own header.
const FILE_HEADER: usize = 100;

/// No record of ours is longer; a length beyond it is damage.
const RECORD_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// One value of a record.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Integer(i64),
    Text(String),
    Bytes(Vec<u8>),
}

/// The pages of a database and of its write-ahead log.
pub(super) struct Pages {
    main: Option<File>,
    log: Option<File>,
    page_size: usize,
    main_pages: u32,
    frames: Frames,
    /// Where the newest committed form of a page is in the write-ahead log.
    newest: HashMap<u32, u64>,
}

impl Pages {
    /// Opens the files as they are; either may be missing.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let mut main = present(path)?;
        let (size, declared) = match &mut main {
            None => (0, None),
            Some(file) => {
                let mut header = [0; FILE_HEADER];
                let size = file.metadata()?.len();
                let whole = file.read_exact(&mut header).is_ok();
                (size, whole.then(|| page_size_of(&header)).flatten())
            }
        };
        let guess = declared.unwrap_or(PAGE_BYTES as usize);
        let frames = frames::read(&write_ahead_log(path), guess)?;
        let page_size = declared.or(frames.page_size).unwrap_or(guess);
        let newest = frames.pages.iter().copied().collect();
        Ok(Self {
            main,
            log: present(&write_ahead_log(path))?,
            page_size,
            main_pages: u32::try_from(size.div_ceil(page_size as u64)).unwrap_or(u32::MAX),
            frames,
            newest,
        })
    }

    /// Gives every record that can be read to `take`, newest pages first. A row id, if the record has one, comes first.
    pub(super) fn each_record<E: From<io::Error>>(
        &mut self,
        mut take: impl FnMut(Vec<Value>) -> Result<(), E>,
    ) -> Result<(), E> {
        for at in (0..self.frames.pages.len()).rev() {
            let Some((number, offset)) = self.frames.pages.get(at).copied() else {
                continue;
            };
            if let Some(page) = read_at(self.log.as_mut(), offset, self.page_size)? {
                self.records_of(number, &page, &mut take)?;
            }
        }
        for number in 1..=self.main_pages {
            let offset = u64::from(number - 1) * self.page_size as u64;
            if let Some(page) = read_at(self.main.as_mut(), offset, self.page_size)? {
                self.records_of(number, &page, &mut take)?;
            }
        }
        Ok(())
    }

    fn records_of<E: From<io::Error>>(
        &mut self,
        number: u32,
        page: &[u8],
        take: &mut impl FnMut(Vec<Value>) -> Result<(), E>,
    ) -> Result<(), E> {
        let header = if number == 1 { FILE_HEADER } else { 0 };
        let Some(kind) = page.get(header).copied().and_then(Kind::of) else {
            return Ok(());
        };
        let cells = number_at(page, header + 3, 2).unwrap_or(0) as usize;
        let first = header + kind.header_bytes();
        for cell in 0..cells {
            let Some(at) = number_at(page, first + 2 * cell, 2) else {
                break;
            };
            if let Some(record) = self.record(kind, page, at as usize)? {
                take(record)?;
            }
        }
        Ok(())
    }

    fn record(&mut self, kind: Kind, page: &[u8], at: usize) -> io::Result<Option<Vec<Value>>> {
        let parsed = || {
            let mut at = at + kind.child_bytes();
            let (length, next) = varint(page, at)?;
            at = next;
            let row = match kind {
                Kind::TableLeaf => {
                    let (row, next) = varint(page, at)?;
                    at = next;
                    Some(row.cast_signed())
                }
                Kind::IndexLeaf | Kind::IndexInterior => None,
            };
            (length <= RECORD_BYTES_MAX).then_some((length as usize, row, at))
        };
        let Some((length, row, at)) = parsed() else {
            return Ok(None);
        };
        let local = kind.local_bytes(length, self.page_size);
        let Some(start) = page.get(at..at + local) else {
            return Ok(None);
        };
        let mut bytes = start.to_vec();
        if local < length {
            let next = number_at(page, at + local, 4).unwrap_or(0);
            if !self.overflow(next as u32, length, &mut bytes)? {
                return Ok(None);
            }
        }
        let columns = columns(&bytes);
        Ok(columns.map(|columns| row.map(Value::Integer).into_iter().chain(columns).collect()))
    }

    /// Follows a chain of overflow pages until `bytes` holds `length`; says whether it does.
    fn overflow(&mut self, mut next: u32, length: usize, bytes: &mut Vec<u8>) -> io::Result<bool> {
        while bytes.len() < length {
            let Some(page) = self.newest_form(next)? else {
                return Ok(false);
            };
            let (Some(after), Some(data)) = (number_at(&page, 0, 4), page.get(4..)) else {
                return Ok(false);
            };
            let wanted = (length - bytes.len()).min(data.len());
            bytes.extend(data.iter().take(wanted));
            next = after as u32;
        }
        Ok(true)
    }

    fn newest_form(&mut self, number: u32) -> io::Result<Option<Vec<u8>>> {
        if number == 0 {
            return Ok(None);
        }
        match self.newest.get(&number) {
            Some(offset) => read_at(self.log.as_mut(), *offset, self.page_size),
            None => {
                let offset = u64::from(number - 1) * self.page_size as u64;
                read_at(self.main.as_mut(), offset, self.page_size)
            }
        }
    }
}

/// Pages that hold records of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Of tables without row ids, and of indexes.
    IndexLeaf,
    /// Its divider keys are records too.
    IndexInterior,
    TableLeaf,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        match byte {
            0x02 => Some(Self::IndexInterior),
            0x0a => Some(Self::IndexLeaf),
            0x0d => Some(Self::TableLeaf),
            _ => None,
        }
    }

    const fn header_bytes(self) -> usize {
        match self {
            Self::IndexInterior => 12,
            Self::IndexLeaf | Self::TableLeaf => 8,
        }
    }

    const fn child_bytes(self) -> usize {
        match self {
            Self::IndexInterior => 4,
            Self::IndexLeaf | Self::TableLeaf => 0,
        }
    }

    /// How many of a record's bytes are in the page itself; the format's own arithmetic.
    const fn local_bytes(self, length: usize, page_size: usize) -> usize {
        let max = match self {
            Self::TableLeaf => page_size - 35,
            Self::IndexLeaf | Self::IndexInterior => (page_size - 12) * 64 / 255 - 23,
        };
        if length <= max {
            return length;
        }
        let min = (page_size - 12) * 32 / 255 - 23;
        let fitting = min + (length - min) % (page_size - 4);
        if fitting <= max { fitting } else { min }
    }
}

/// A record's values: serial types first, then as many bytes as each of them says.
fn columns(record: &[u8]) -> Option<Vec<Value>> {
    let (header, mut at) = varint(record, 0)?;
    let mut body = usize::try_from(header).ok()?;
    let mut values = Vec::new();
    while at < usize::try_from(header).ok()? {
        let (serial, next) = varint(record, at)?;
        at = next;
        let length = match serial {
            0 | 8 | 9 => 0,
            1..=4 => serial as usize,
            5 => 6,
            6 | 7 => 8,
            10 | 11 => return None,
            _ => usize::try_from((serial - 12) / 2).ok()?,
        };
        let bytes = record.get(body..body.checked_add(length)?)?;
        body += length;
        values.push(match serial {
            0 => Value::Null,
            8 => Value::Integer(0),
            9 => Value::Integer(1),
            1..=6 => Value::Integer(integer(bytes)),
            // None of our columns is a fraction.
            7 => return None,
            _ if serial % 2 == 1 => Value::Text(String::from_utf8(bytes.to_vec()).ok()?),
            _ => Value::Bytes(bytes.to_vec()),
        });
    }
    Some(values)
}

/// A big-endian number with a sign.
fn integer(bytes: &[u8]) -> i64 {
    let sign = bytes.first().is_some_and(|byte| byte & 0x80 != 0);
    let start = if sign { -1 } else { 0 };
    bytes
        .iter()
        .fold(start, |number, byte| (number << 8) | i64::from(*byte))
}

fn varint(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let mut number = 0_u64;
    for index in 0..9 {
        let byte = *bytes.get(at + index)?;
        if index == 8 {
            return Some(((number << 8) | u64::from(byte), at + 9));
        }
        number = (number << 7) | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some((number, at + index + 1));
        }
    }
    None
}

/// A big-endian number of `length` bytes.
fn number_at(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + length)?;
    Some(
        bytes
            .iter()
            .fold(0, |number, byte| (number << 8) | u64::from(*byte)),
    )
}

fn page_size_of(header: &[u8; FILE_HEADER]) -> Option<usize> {
    let size = match number_at(header, 16, 2)? {
        1 => 65_536,
        size => size as usize,
    };
    (size >= 512 && size.is_power_of_two()).then_some(size)
}

fn present(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A page; none where the file ends before it does, or where the disk does not give it.
fn read_at(file: Option<&mut File>, offset: u64, length: usize) -> io::Result<Option<Vec<u8>>> {
    let Some(file) = file else { return Ok(None) };
    let mut page = vec![0; length];
    file.seek(SeekFrom::Start(offset))?;
    match file.read_exact(&mut page) {
        Ok(()) => Ok(Some(page)),
        Err(error) => {
            if error.kind() != io::ErrorKind::UnexpectedEof {
                tracing::warn!(%error, offset, "a page of the damaged database cannot be read");
            }
            Ok(None)
        }
    }
}
