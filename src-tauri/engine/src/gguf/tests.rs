use std::io::Cursor;

use proptest::prelude::*;

use super::*;

/// A file in the making.
struct Made(Vec<u8>);

impl Made {
    fn new(tensors: u64, values: u64) -> Self {
        Self(b"GGUF".to_vec()).u32(3).u64(tensors).u64(values)
    }
    fn u32(mut self, number: u32) -> Self {
        self.0.extend(number.to_le_bytes());
        self
    }
    fn u64(mut self, number: u64) -> Self {
        self.0.extend(number.to_le_bytes());
        self
    }
    fn text(mut self, text: &str) -> Self {
        self = self.u64(text.len() as u64);
        self.0.extend(text.as_bytes());
        self
    }
    fn says(self, name: &str, text: &str) -> Self {
        self.text(name).u32(tables::TEXT).text(text)
    }
    fn counts(self, name: &str, number: u32) -> Self {
        self.text(name).u32(tables::U32).u32(number)
    }
    /// `numbers` of 32 bits, at `offset`.
    fn tensor(self, numbers: u64, offset: u64) -> Self {
        self.text("t").u32(1).u64(numbers).u32(0).u64(offset)
    }
    fn padded(mut self, more: usize) -> Self {
        let begins = self.0.len().next_multiple_of(32);
        self.0.resize(begins + more, 0);
        self
    }
}

/// A small whole model.
fn kelp() -> Made {
    Made::new(2, 11)
        .says("general.architecture", "kelp")
        .says("general.name", "Kelp")
        .says("general.license", "apache-2.0")
        .counts("general.file_type", 15)
        .counts("kelp.context_length", 2048)
        .counts("kelp.block_count", 2)
        .counts("kelp.embedding_length", 64)
        .counts("kelp.attention.head_count", 8)
        .counts("kelp.attention.head_count_kv", 4)
        .says(
            "tokenizer.chat_template",
            "{% if tools %}<tool_call><think>",
        )
        .text("tokenizer.ggml.tokens")
        .u32(tables::LIST)
        .u32(tables::TEXT)
        .u64(2)
        .text("a")
        .text("bc")
        .tensor(8, 0)
        .tensor(4, 32)
        .padded(48)
}

fn looked(bytes: &[u8]) -> Result<Facts, NotAModel> {
    read(Cursor::new(bytes), bytes.len() as u64, &Harness::default())
}

#[test]
fn a_file_tells_what_it_is() {
    let bytes = kelp().0;
    let facts = looked(&bytes).expect("a model");
    assert_eq!(
        facts,
        Facts {
            file_bytes: bytes.len() as u64,
            name: Some("Kelp".to_owned()),
            architecture: "kelp".to_owned(),
            parameters: Some("12".to_owned()),
            quantization: Some("Q4_K_M".to_owned()),
            context_tokens: Some(2048),
            has_template: true,
            capabilities: ["completion", "tools", "thinking"]
                .map(str::to_owned)
                .to_vec(),
            license: Some("apache-2.0".to_owned()),
            weight_bytes: 48,
            // Two layers of four heads, each with a key and a value of eight numbers, at two bytes.
            token_bytes: Some(2 * 4 * (8 + 8) * 2),
            vocabulary: 2,
            split: None,
        }
    );
}

#[test]
fn a_file_that_is_cut_anywhere_is_named_as_cut() {
    let bytes = kelp().0;
    let whole = bytes.len() as u64;
    for there in 1..bytes.len() {
        let cut = looked(&bytes[..there]).expect_err("it is cut");
        let named = match cut {
            NotAModel::CutEarly => there >= 4,
            NotAModel::Cut { needed, .. } => needed == whole,
            // Not even its mark is whole.
            NotAModel::Other(_) => there < 4,
            _ => false,
        };
        assert!(named, "{there}: {cut:?}");
    }
}

#[test]
fn a_cut_file_says_how_much_is_there_and_what_to_do() {
    let cut = NotAModel::Cut {
        there: 93_000_000,
        needed: 98_362_432,
    };
    assert_eq!(
        cut.to_string(),
        "the file is cut: 93.0 MB of 98.3 MB are there; download it again"
    );
}

#[test]
fn what_is_no_model_is_named_as_what_it_is() {
    for (bytes, what) in [
        (&b"\x89PNG\r\n\x1a\n0000000000"[..], "a picture"),
        (b"\n<!DOCTYPE html><html>", "a web page"),
        (b"PK\x03\x04aaaaaaaaaaaaaa", "a packed archive"),
        (
            b"version https://git-lfs",
            "a note of where the file lies (Git LFS)",
        ),
        (
            b"\x10\x00\x00\x00\x00\x00\x00\x00{\"__meta",
            "a model in the safetensors format",
        ),
        (b"hello", "a text"),
        (b"\0", "some other kind of file"),
    ] {
        assert_eq!(looked(bytes), Err(NotAModel::Other(what)));
    }
    assert_eq!(looked(b""), Err(NotAModel::Empty));
    let version = |version: u32| looked(&Made(b"GGUF".to_vec()).u32(version).u64(0).u64(0).0);
    assert_eq!(version(1), Err(NotAModel::Old(1)));
    assert_eq!(version(9), Err(NotAModel::New(9)));
    assert_eq!(version(3_u32.swap_bytes()), Err(NotAModel::BigEndian));
    assert_eq!(version(1_u32.swap_bytes()), Err(NotAModel::BigEndian));
    let eyes = Made::new(0, 1).says("general.architecture", "clip").0;
    assert_eq!(looked(&eyes), Err(NotAModel::Projector));
    let part = Made::new(0, 3)
        .says("general.architecture", "kelp")
        .counts("split.no", 1)
        .counts("split.count", 3);
    assert_eq!(
        looked(&part.0),
        Err(NotAModel::LaterPart { part: 2, of: 3 })
    );
}

#[test]
fn numbers_that_no_model_has_are_damage_and_take_no_memory() {
    let huge = 1 << 60;
    for made in [
        Made::new(huge, 0),
        Made::new(0, huge),
        Made::new(0, 1).u64(huge),
        Made::new(0, 1).text("a").u32(tables::TEXT).u64(huge),
        Made::new(0, 1).text("a").u32(99),
        // A list of lists.
        Made::new(0, 1)
            .text("a")
            .u32(tables::LIST)
            .u32(tables::LIST)
            .u64(1),
        // So many numbers have no size.
        Made::new(0, 1)
            .text("a")
            .u32(tables::LIST)
            .u32(tables::U64)
            .u64(1 << 62),
        Made::new(1, 0).text("t").u32(1_000),
        Made::new(1, 0).text("t").u32(2).u64(huge).u64(huge),
        Made::new(1, 0).tensor(4, u64::MAX),
        Made::new(0, 1).counts("general.alignment", 0),
    ] {
        let found = looked(&made.0);
        assert!(matches!(found, Err(NotAModel::Damaged(_))), "{found:?}");
    }
}

#[test]
fn a_list_without_an_end_is_given_up() {
    // Words without letters: each takes eight bytes that a hole in a file gives for nothing.
    let head = Made::new(0, 1)
        .text("a")
        .u32(tables::LIST)
        .u32(tables::TEXT)
        .u64(1 << 40)
        .0;
    let endless = Cursor::new(head).chain_of_zeros();
    let found = read(endless, u64::MAX / 4, &Harness::default());
    assert_eq!(found, Err(NotAModel::Damaged("it has no end")));
}

/// Bytes, and then zeros for ever.
struct Endless(Cursor<Vec<u8>>, u64);

trait ChainOfZeros {
    fn chain_of_zeros(self) -> Endless;
}

impl ChainOfZeros for Cursor<Vec<u8>> {
    fn chain_of_zeros(self) -> Endless {
        Endless(self, 0)
    }
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.set_position(self.1);
        let read = self.0.read(buffer)?;
        let read = if read == 0 {
            buffer.fill(0);
            buffer.len()
        } else {
            read
        };
        self.1 += read as u64;
        Ok(read)
    }
}

impl Seek for Endless {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        self.1 = match to {
            io::SeekFrom::Start(at) => at,
            io::SeekFrom::Current(by) => self.1.saturating_add_signed(by),
            io::SeekFrom::End(_) => return Err(io::ErrorKind::Unsupported.into()),
        };
        Ok(self.1)
    }
}

#[test]
fn a_folder_and_a_file_that_is_not_there_are_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let harness = Harness::default();
    assert_eq!(look(dir.path(), &harness), Err(NotAModel::Folder));
    let missing = dir.path().join("none.gguf");
    assert_eq!(look(&missing, &harness), Err(NotAModel::Missing));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = looked(&bytes);
        let mut marked = Made::new(3, 3).0;
        marked.extend(bytes);
        let _ = looked(&marked);
    }

    #[test]
    fn no_change_of_a_model_does_harm(at in 0_usize..500, to in any::<[u8; 8]>(), cut in 0_usize..600) {
        let mut bytes = kelp().0;
        let at = at % (bytes.len() - 8);
        bytes[at..at + 8].copy_from_slice(&to);
        bytes.truncate(bytes.len() - cut % bytes.len() / 4);
        let _ = looked(&bytes);
    }
}
