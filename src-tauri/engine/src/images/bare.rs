//! A picture and nothing else: without the place and the camera, the comments and thumbnails that files carry.
//!
//! Invariant: not a pixel changes; what says how colours are meant stays. A file that does not come to its own end is
//! none: decoders draw the missing part grey and say nothing.

/// A JPEG without what is not the picture; `None` if it is cut.
pub(super) fn jpeg(bytes: &[u8]) -> Option<Vec<u8>> {
    const END: u8 = 0xd9;
    const SCAN: u8 = 0xda;
    let mut out = bytes.get(..2)?.to_vec();
    let mut at = 2;
    loop {
        if *bytes.get(at)? != 0xff {
            return None;
        }
        while *bytes.get(at + 1)? == 0xff {
            at += 1;
        }
        let marker = *bytes.get(at + 1)?;
        match marker {
            END => {
                out.extend_from_slice(&[0xff, END]);
                return Some(out);
            }
            // These have no length.
            0x01 | 0xd0..=0xd7 => {
                out.extend_from_slice(&[0xff, marker]);
                at += 2;
                continue;
            }
            _ => {}
        }
        let length = bytes.get(at + 2..at + 4)?;
        let length = usize::from(u16::from_be_bytes(length.try_into().ok()?));
        let end = at + 2 + length;
        let segment = bytes.get(at..end)?;
        if is_picture(marker, segment.get(4..).unwrap_or_default()) {
            out.extend_from_slice(segment);
        }
        at = end;
        if marker == SCAN {
            let rest = bytes.get(at..)?;
            // In a scan, these two belong to it: a byte that looks like a marker, and the marks to begin anew at.
            let is_end = |pair: &[u8]| match pair {
                [0xff, after] => !matches!(after, 0x00 | 0xd0..=0xd7),
                _ => false,
            };
            let scan = rest.windows(2).position(is_end)?;
            out.extend_from_slice(rest.get(..scan)?);
            at += scan;
        }
    }
}

/// Whether a segment says something about the picture: its coding, its colour profile, how its colours are mixed.
fn is_picture(marker: u8, content: &[u8]) -> bool {
    match marker {
        0xe0 => content.starts_with(b"JFIF"),
        0xe2 => content.starts_with(b"ICC_PROFILE"),
        0xee => content.starts_with(b"Adobe"),
        0xe1..=0xef | 0xfe => false,
        _ => true,
    }
}

/// A PNG without what is not the picture, and its first frame if it moves; `None` if it is cut.
pub(super) fn png(bytes: &[u8]) -> Option<Vec<u8>> {
    const SIGNATURE: usize = 8;
    /// Length, kind and check sum.
    const AROUND: usize = 12;
    let mut out = bytes.get(..SIGNATURE)?.to_vec();
    let mut at = SIGNATURE;
    loop {
        let length = u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?);
        let end = at
            .checked_add(usize::try_from(length).ok()?)?
            .checked_add(AROUND)?;
        let chunk = bytes.get(at..end)?;
        let kind = chunk.get(4..8)?;
        let beside: [&[u8]; 8] = [
            b"tEXt", b"zTXt", b"iTXt", b"eXIf", b"tIME", b"acTL", b"fcTL", b"fdAT",
        ];
        if !beside.contains(&kind) {
            out.extend_from_slice(chunk);
        }
        if kind == b"IEND" {
            return Some(out);
        }
        at = end;
    }
}
