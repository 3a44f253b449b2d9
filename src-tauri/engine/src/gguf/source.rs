//! Bytes of a file that nobody trusts, read from its beginning on.

use std::io::{self, BufReader, Read, Seek};

use super::{NotAModel, STEPS_MAX, tables};

/// Why reading ended.
#[derive(Debug)]
pub(super) enum Failed {
    Io(io::Error),
    /// The file has no more.
    Ended,
    Damaged(&'static str),
}

pub(super) struct Source<R> {
    from: BufReader<R>,
    position: u64,
    end: u64,
    steps: u64,
}

impl<R: Read + Seek> Source<R> {
    pub(super) fn new(from: R, end: u64) -> Self {
        Self {
            from: BufReader::with_capacity(1 << 16, from),
            position: 0,
            end,
            steps: 0,
        }
    }

    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Its first bytes, as many as there are; reading goes on from the beginning.
    pub(super) fn begins_with(&mut self, head: &mut [u8; 16]) -> Result<usize, NotAModel> {
        let there = usize::try_from(self.end)
            .unwrap_or(usize::MAX)
            .min(head.len());
        let head = head.get_mut(..there).unwrap_or_default();
        self.from
            .read_exact(head)
            .and_then(|()| self.from.rewind())
            .map_err(|error| NotAModel::from(&error))?;
        Ok(there)
    }

    /// Holds a length against what is left, and counts it as read.
    fn advance(&mut self, bytes: u64) -> Result<(), Failed> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Err(Failed::Damaged("it has no end"));
        }
        let after = self.position.checked_add(bytes);
        match after.filter(|after| *after <= self.end) {
            Some(after) => {
                self.position = after;
                Ok(())
            }
            None => Err(Failed::Ended),
        }
    }

    pub(super) fn skip(&mut self, bytes: u64) -> Result<(), Failed> {
        self.advance(bytes)?;
        let bytes = i64::try_from(bytes).map_err(|_| Failed::Ended)?;
        self.from.seek_relative(bytes).map_err(Failed::Io)
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Failed> {
        self.advance(N as u64)?;
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes).map_err(read)?;
        Ok(bytes)
    }

    pub(super) fn number_u32(&mut self) -> Result<u32, Failed> {
        self.bytes().map(u32::from_le_bytes)
    }

    pub(super) fn number_u64(&mut self) -> Result<u64, Failed> {
        self.bytes().map(u64::from_le_bytes)
    }

    /// A number of this kind; nothing for one that is not whole or below zero.
    pub(super) fn number(&mut self, kind: u32) -> Result<Option<u64>, Failed> {
        let signed = |number: i64| u64::try_from(number).ok();
        Ok(match kind {
            tables::U8 | tables::BOOL => self.bytes::<1>()?.first().map(|byte| u64::from(*byte)),
            tables::I8 => signed(i8::from_le_bytes(self.bytes()?).into()),
            tables::U16 => Some(u16::from_le_bytes(self.bytes()?).into()),
            tables::I16 => signed(i16::from_le_bytes(self.bytes()?).into()),
            tables::U32 => Some(self.number_u32()?.into()),
            tables::I32 => signed(i32::from_le_bytes(self.bytes()?).into()),
            tables::U64 => Some(self.number_u64()?),
            tables::I64 => signed(i64::from_le_bytes(self.bytes()?)),
            other => {
                self.skip(tables::number_bytes(other).unwrap_or(0))?;
                None
            }
        })
    }

    /// A short text; a longer one is damage.
    pub(super) fn text(&mut self, bytes_max: u64) -> Result<String, Failed> {
        let text = self.text_up_to(bytes_max, bytes_max)?;
        text.ok_or(Failed::Damaged("a name of it has no end"))
    }

    /// A text, or nothing if it is longer than what is kept; one that is longer than what is skipped is damage.
    pub(super) fn text_up_to(
        &mut self,
        kept_max: u64,
        skipped_max: u64,
    ) -> Result<Option<String>, Failed> {
        let length = self.length(skipped_max)?;
        if length > kept_max {
            self.skip(length)?;
            return Ok(None);
        }
        self.advance(length)?;
        let mut bytes = vec![0; usize::try_from(length).map_err(|_| Failed::Ended)?];
        self.from.read_exact(&mut bytes).map_err(read)?;
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }

    pub(super) fn skip_text(&mut self, bytes_max: u64) -> Result<(), Failed> {
        let length = self.length(bytes_max)?;
        self.skip(length)
    }

    fn length(&mut self, bytes_max: u64) -> Result<u64, Failed> {
        let length = self.number_u64()?;
        if length > bytes_max {
            return Err(Failed::Damaged("a text of it has no end"));
        }
        Ok(length)
    }
}

/// Somebody may be making the file shorter at this moment.
fn read(error: io::Error) -> Failed {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Failed::Ended,
        _ => Failed::Io(error),
    }
}
