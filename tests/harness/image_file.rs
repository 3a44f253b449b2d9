//! Image files for stories, made by hand: a grey PNG of any size, stored without compression.

/// A PNG of one shade. Files of different shades have different hashes; a large one is as large as its pixels.
pub fn png(width: u32, height: u32, shade: u8) -> Vec<u8> {
    let mut header = Vec::new();
    header.extend_from_slice(&width.to_be_bytes());
    header.extend_from_slice(&height.to_be_bytes());
    // Eight bits of grey, and nothing special.
    header.extend_from_slice(&[8, 0, 0, 0, 0]);
    let mut row = vec![0];
    row.resize(width as usize + 1, shade);
    let pixels: Vec<u8> = std::iter::repeat_n(row, height as usize)
        .flatten()
        .collect();
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    chunk(&mut file, b"IHDR", &header);
    chunk(&mut file, b"IDAT", &stored(&pixels));
    chunk(&mut file, b"IEND", &[]);
    file
}

fn chunk(file: &mut Vec<u8>, kind: &[u8; 4], content: &[u8]) {
    file.extend_from_slice(&(content.len() as u32).to_be_bytes());
    let from = file.len();
    file.extend_from_slice(kind);
    file.extend_from_slice(content);
    let check = check_sum(file.get(from..).unwrap_or_default());
    file.extend_from_slice(&check.to_be_bytes());
}

/// A zlib stream of stored blocks.
fn stored(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0x78, 0x01];
    let mut blocks = bytes.chunks(65_535).peekable();
    while let Some(block) = blocks.next() {
        out.push(u8::from(blocks.peek().is_none()));
        let length = block.len() as u16;
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&(!length).to_le_bytes());
        out.extend_from_slice(block);
    }
    let (mut low, mut high) = (1_u32, 0_u32);
    for byte in bytes {
        low = (low + u32::from(*byte)) % 65_521;
        high = (high + low) % 65_521;
    }
    out.extend_from_slice(&((high << 16) | low).to_be_bytes());
    out
}

fn check_sum(bytes: &[u8]) -> u32 {
    let table: Vec<u32> = (0..256_u32)
        .map(|byte| {
            (0..8).fold(byte, |crc, _| {
                if crc & 1 == 1 {
                    (crc >> 1) ^ 0xedb8_8320
                } else {
                    crc >> 1
                }
            })
        })
        .collect();
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        let at = (crc ^ u32::from(*byte)) & 0xff;
        (crc >> 8) ^ table.get(at as usize).copied().unwrap_or_default()
    })
}
