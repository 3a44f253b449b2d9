//! The numbers of the format, and what they mean.

use protocol::CallForm;

pub(super) const U8: u32 = 0;
pub(super) const I8: u32 = 1;
pub(super) const U16: u32 = 2;
pub(super) const I16: u32 = 3;
pub(super) const U32: u32 = 4;
pub(super) const I32: u32 = 5;
const F32: u32 = 6;
pub(super) const BOOL: u32 = 7;
pub(super) const TEXT: u32 = 8;
pub(super) const LIST: u32 = 9;
pub(super) const U64: u32 = 10;
pub(super) const I64: u32 = 11;
const F64: u32 = 12;

/// Of one number of such a kind.
pub(super) const fn number_bytes(kind: u32) -> Option<u64> {
    match kind {
        U8 | I8 | BOOL => Some(1),
        U16 | I16 => Some(2),
        U32 | I32 | F32 => Some(4),
        U64 | I64 | F64 => Some(8),
        _ => None,
    }
}

/// Of so many numbers in such a packing: how many are packed together, and into how many bytes.
pub(super) fn tensor_bytes(kind: u32, numbers: u64) -> Option<u64> {
    let (block, bytes) = match kind {
        0 | 26 => (1, 4),
        1 | 25 | 30 => (1, 2),
        24 => (1, 1),
        27 | 28 => (1, 8),
        2 | 20 => (32, 18),
        3 => (32, 20),
        6 => (32, 22),
        7 => (32, 24),
        8 => (32, 34),
        9 => (32, 36),
        10 => (256, 84),
        11 | 21 => (256, 110),
        12 => (256, 144),
        13 => (256, 176),
        14 => (256, 210),
        15 => (256, 292),
        16 | 35 => (256, 66),
        17 => (256, 74),
        18 => (256, 98),
        19 => (256, 50),
        22 => (256, 82),
        23 => (256, 136),
        29 => (256, 56),
        34 => (256, 54),
        39 => (32, 17),
        _ => return None,
    };
    numbers.div_ceil(block).checked_mul(bytes)
}

/// The name of `general.file_type`.
pub(super) const fn quantization(file_type: u64) -> Option<&'static str> {
    Some(match file_type {
        0 => "F32",
        1 => "F16",
        2 => "Q4_0",
        3 => "Q4_1",
        7 => "Q8_0",
        8 => "Q5_0",
        9 => "Q5_1",
        10 => "Q2_K",
        11 => "Q3_K_S",
        12 => "Q3_K_M",
        13 => "Q3_K_L",
        14 => "Q4_K_S",
        15 => "Q4_K_M",
        16 => "Q5_K_S",
        17 => "Q5_K_M",
        18 => "Q6_K",
        19 => "IQ2_XXS",
        20 => "IQ2_XS",
        21 => "Q2_K_S",
        22 => "IQ3_XS",
        23 => "IQ3_XXS",
        24 => "IQ1_S",
        25 => "IQ4_NL",
        26 => "IQ3_S",
        27 => "IQ3_M",
        28 => "IQ2_S",
        29 => "IQ2_M",
        30 => "IQ4_XS",
        31 => "IQ1_M",
        32 => "BF16",
        36 => "TQ1_0",
        37 => "TQ2_0",
        38 => "MXFP4",
        _ => return None,
    })
}

/// What a model can do, by its architecture and by what its chat template speaks of.
pub(super) fn capabilities(architecture: &str, template: Option<&str>) -> Vec<String> {
    if architecture.contains("bert") {
        return vec!["embedding".to_owned()];
    }
    let mut can = vec!["completion".to_owned()];
    let template = template.unwrap_or_default();
    if CallForm::of(template).is_some() {
        can.push("tools".to_owned());
    }
    if [
        "<think>",
        "enable_thinking",
        "reasoning_content",
        "<|channel|>",
    ]
    .iter()
    .any(|mark| template.contains(mark))
    {
        can.push("thinking".to_owned());
    }
    can
}

/// What a file is that begins so, for somebody who took it for a model.
pub(crate) fn kind_of(head: &[u8]) -> &'static str {
    let text: Vec<u8> = head
        .iter()
        .map(u8::to_ascii_lowercase)
        .skip_while(|byte| byte.is_ascii_whitespace() || matches!(byte, 0xEF | 0xBB | 0xBF))
        .collect();
    let begins = |with: &[u8]| head.starts_with(with);
    if text.starts_with(b"<!doctype") || text.starts_with(b"<html") || text.starts_with(b"<?xml") {
        "a web page"
    } else if begins(b"version https://") {
        "a note of where the file lies (Git LFS)"
    } else if begins(b"\x89PNG") || begins(b"\xFF\xD8\xFF") || begins(b"GIF8") || begins(b"RIFF") {
        "a picture"
    } else if begins(b"PK\x03\x04") || begins(b"\x1F\x8B") || begins(b"\x28\xB5\x2F\xFD") {
        "a packed archive"
    } else if begins(b"%PDF") {
        "a PDF document"
    } else if begins(b"ggml") || begins(b"lmgg") || begins(b"tjgg") || begins(b"fmgg") {
        "a model in the old GGML format"
    } else if head.get(8) == Some(&b'{') && head.get(6..8) == Some(&[0, 0]) {
        "a model in the safetensors format"
    } else if !text.is_empty()
        && text
            .iter()
            .all(|b| b.is_ascii_graphic() || b.is_ascii_whitespace())
    {
        "a text"
    } else {
        "some other kind of file"
    }
}

/// "135M", "7.2B".
pub(super) fn rounded(parameters: u64) -> String {
    match parameters {
        0..1_000_000 => parameters.to_string(),
        1_000_000..1_000_000_000 => format!("{}M", parameters.saturating_add(500_000) / 1_000_000),
        _ => {
            let tenths = parameters.saturating_add(50_000_000) / 100_000_000;
            format!("{}.{}B", tenths / 10, tenths % 10)
        }
    }
}
