//! A write-ahead log, read without SQLite: SQLite stops at the first frame that does not check, in silence, and throws
//! away what is behind it.
//!
//! A frame's checksum goes on from the one before it, which stands in that frame's header. So a frame behind a damaged
//! one can still be checked, and is taken if a later commit covers it.
//!
//! RULING: frames that an I/O error kept from being committed and that a shorter transaction overwrote in part look the
//! same as damage. Then the database is salvaged once without need, and nothing is lost.

use std::{
    fs::File,
    io::{self, BufReader, Read, Seek, SeekFrom},
    path::Path,
};

/// Bytes of the log's own header, and of each frame's.
const LOG_HEADER: usize = 32;
const FRAME_HEADER: usize = 24;

/// The first four bytes say in which byte order checksums are made.
const MAGIC_LITTLE: u32 = 0x377f_0682;
const MAGIC_BIG: u32 = 0x377f_0683;

/// The committed pages of a write-ahead log.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Frames {
    pub(super) page_size: Option<usize>,
    /// Page numbers, and where each one's bytes begin; oldest first.
    pub(super) pages: Vec<(u32, u64)>,
    /// Whether something is wrong in the middle: committed frames lie behind one that does not check.
    pub(super) is_damaged: bool,
}

/// Reads the log at `path`; none is like an empty one. `page_size` is the database's, should the log's own be unreadable.
pub(super) fn read(path: &Path, page_size: usize) -> io::Result<Frames> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Frames::default()),
        Err(error) => return Err(error),
    };
    let mut file = BufReader::with_capacity(64 * 1024, file);
    let mut header = [0; LOG_HEADER];
    if !filled(&mut file, &mut header)? {
        return Ok(Frames::default());
    }
    if let Some(header) = Header::of(&header) {
        return walk(&mut file, &header, true);
    }
    // What the header would have said, the first frame's own says again, but for the byte order.
    let mut first = [0; FRAME_HEADER];
    if !filled(&mut file, &mut first)? {
        return Ok(Frames::default());
    }
    for order in [Order::Little, Order::Big] {
        let guess = Header {
            order,
            page_size,
            salts: (word(&first, 8), word(&first, 12)),
            sum: (0, 0),
        };
        file.seek(SeekFrom::Start(LOG_HEADER as u64))?;
        let frames = walk(&mut file, &guess, false)?;
        if frames.is_damaged {
            return Ok(frames);
        }
    }
    Ok(Frames::default())
}

#[derive(Clone, Copy, Debug)]
enum Order {
    Little,
    Big,
}

#[derive(Debug)]
struct Header {
    order: Order,
    page_size: usize,
    salts: (u32, u32),
    sum: (u32, u32),
}

impl Header {
    fn of(bytes: &[u8; LOG_HEADER]) -> Option<Self> {
        let order = match word(bytes, 0) {
            MAGIC_LITTLE => Order::Little,
            MAGIC_BIG => Order::Big,
            _ => return None,
        };
        let sum = checksum(order, (0, 0), bytes.get(..24)?);
        let page_size = word(bytes, 8) as usize;
        (sum == (word(bytes, 24), word(bytes, 28)) && page_size.is_power_of_two()).then_some(Self {
            order,
            page_size,
            salts: (word(bytes, 16), word(bytes, 20)),
            sum,
        })
    }
}

fn walk(file: &mut impl Read, header: &Header, header_is_sound: bool) -> io::Result<Frames> {
    let mut frame = vec![0; FRAME_HEADER + header.page_size];
    let mut before = header.sum;
    let mut at = LOG_HEADER as u64;
    let mut taken: Vec<(u32, u64)> = Vec::new();
    let (mut committed, mut broken, mut is_damaged) = (0, !header_is_sound, false);
    while filled(file, &mut frame)? {
        let (head, data) = frame.split_at(FRAME_HEADER);
        let stored = (word(head, 16), word(head, 20));
        let sum = checksum(header.order, before, head.get(..8).unwrap_or(head));
        let sum = checksum(header.order, sum, data);
        if (word(head, 8), word(head, 12)) == header.salts && sum == stored {
            taken.push((word(head, 0), at + FRAME_HEADER as u64));
            let is_commit = word(head, 4) != 0;
            if is_commit {
                committed = taken.len();
                is_damaged |= broken;
            }
        } else {
            broken = true;
        }
        before = stored;
        at += frame.len() as u64;
    }
    taken.truncate(committed);
    Ok(Frames {
        page_size: Some(header.page_size),
        pages: taken,
        is_damaged,
    })
}

fn checksum(order: Order, (mut one, mut two): (u32, u32), bytes: &[u8]) -> (u32, u32) {
    let mut words = bytes.chunks_exact(4).map(|chunk| match order {
        Order::Little => chunk.try_into().map_or(0, u32::from_le_bytes),
        Order::Big => chunk.try_into().map_or(0, u32::from_be_bytes),
    });
    while let (Some(first), Some(second)) = (words.next(), words.next()) {
        one = one.wrapping_add(first).wrapping_add(two);
        two = two.wrapping_add(second).wrapping_add(one);
    }
    (one, two)
}

/// A big-endian number; 0 where there is none.
fn word(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..at + 4)
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, u32::from_be_bytes)
}

/// Whether all of `into` could be filled; the end of a file in the middle of it says no.
fn filled(file: &mut impl Read, into: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(into) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}
