//! GGUF files: what a model's file says of itself, read without any code that trusts it.
//!
//! Invariant: whatever the bytes are, reading them ends soon, takes little memory and never panics. Kept by: every
//! length is held against what is left of the file before anything is read or set aside, every count against a bound,
//! and all steps together against one more. What is not wanted is skipped, not kept.
//! Not here: whether the engine for such files knows the architecture; only loading one tells.

mod source;
mod tables;

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read, Seek},
    path::Path,
};

use crate::{Harness, mutant::mutated};

pub(crate) use tables::kind_of;

use source::{Failed, Source};

/// Values and tensors that a file may name; the largest models have some thousand tensors and a hundred values.
const NAMED_MAX: u64 = 1 << 16;

/// Steps in all: entries of lists of words, mostly. The largest vocabularies have some hundred thousand words.
const STEPS_MAX: u64 = 8 << 20;

/// A name of a value or a tensor; GGUF itself allows 64 KiB for the one and 64 bytes for the other.
const NAME_BYTES_MAX: u64 = 1 << 16;

/// A text that is kept: chat templates are the longest, and have some ten thousand characters.
const KEPT_BYTES_MAX: u64 = 1 << 20;

/// One word of a vocabulary, or any other text that is skipped.
const TEXT_BYTES_MAX: u64 = 64 << 20;

/// Lists of numbers that are kept have an entry for each layer.
const LAYERS_MAX: u64 = 4_096;

/// Tokens of context: fewer are no conversation, more than llama.cpp counts are none either.
const CONTEXT_MIN: u64 = 16;
const CONTEXT_MAX: u64 = i32::MAX as u64;

const DIMENSIONS_MAX: u32 = 8;

const ALIGNMENT: u64 = 32;

/// What a file says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) file_bytes: u64,
    pub(crate) name: Option<String>,
    pub(crate) architecture: String,
    /// "135M", as the file says it, or from its tensors.
    pub(crate) parameters: Option<String>,
    pub(crate) quantization: Option<String>,
    pub(crate) context_tokens: Option<u64>,
    /// Whether there is a chat template; without one a model only continues texts.
    pub(crate) has_template: bool,
    /// As others name them: `completion`, `tools`, `thinking`, `embedding`.
    pub(crate) capabilities: Vec<String>,
    pub(crate) license: Option<String>,
    /// Of all tensors.
    pub(crate) weight_bytes: u64,
    /// Of one token in the model's memory of a conversation, at 16 bits a number.
    pub(crate) token_bytes: Option<u64>,
    /// The numbers that a step makes anew: for the room of its work.
    pub(crate) vocabulary: u64,
    /// Which part this is, and of how many.
    pub(crate) split: Option<(u64, u64)>,
}

/// Why a file is no model that could be used; each says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotAModel {
    #[error("the file is not there; put it back, or forget it here")]
    Missing,
    #[error("this is a folder; choose the .gguf file in it")]
    Folder,
    #[error("the file cannot be read ({0}); look at its permissions")]
    Unreadable(String),
    #[error("the file is empty; download it again")]
    Empty,
    #[error("this is {0} and not a model; choose a file in the GGUF format")]
    Other(&'static str),
    #[error(
        "this is a GGUF file of the old version {0}, which is no longer read; download a newer one"
    )]
    Old(u32),
    #[error(
        "this is a GGUF file of version {0}, which is newer than this Holdfast; look for an update"
    )]
    New(u32),
    #[error("this is a GGUF file for big-endian machines; download the usual one")]
    BigEndian,
    #[error("the file is cut: {} are there; download it again", of_bytes(*.there, *.needed))]
    Cut { there: u64, needed: u64 },
    #[error("the file is cut in its own description; download it again")]
    CutEarly,
    #[error("the file is damaged ({0}); download it again")]
    Damaged(&'static str),
    #[error("this is part {part} of {of}; choose the first part, and keep the others beside it")]
    LaterPart { part: u64, of: u64 },
    #[error("a part of it is missing, {0}; download that into the same folder")]
    PartMissing(String),
    #[error("this holds the eyes of a model with vision, not a model; choose the model’s own file")]
    Projector,
}

/// "93.0 MB of 98.3 MB"; never the same twice, for a file that lacks a byte is not whole either.
pub(crate) fn of_bytes(there: u64, all: u64) -> String {
    let (short, whole) = (in_words(there), in_words(all));
    if short == whole {
        format!("{there} of {all} bytes")
    } else {
        format!("{short} of {whole}")
    }
}

/// "4.7 GB", in powers of a thousand as disks are sold.
pub(crate) fn in_words(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
    let unit = UNITS.into_iter().find(|(unit, _)| bytes >= *unit);
    unit.map_or_else(
        || format!("{bytes} bytes"),
        |(unit, name)| format!("{}.{} {name}", bytes / unit, bytes % unit * 10 / unit),
    )
}

impl From<&io::Error> for NotAModel {
    fn from(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::Missing,
            io::ErrorKind::IsADirectory => Self::Folder,
            _ => Self::Unreadable(error.to_string()),
        }
    }
}

impl From<Failed> for NotAModel {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Io(error) => Self::from(&error),
            Failed::Ended => Self::CutEarly,
            Failed::Damaged(what) => Self::Damaged(what),
        }
    }
}

/// Reads what a file says of itself. Blocks.
pub(crate) fn look(path: &Path, harness: &Harness) -> Result<Facts, NotAModel> {
    // Opening a pipe waits for somebody to write into it, so its kind is looked at first.
    let kind = std::fs::metadata(path).map_err(|error| NotAModel::from(&error))?;
    if kind.is_dir() {
        return Err(NotAModel::Folder);
    }
    if !kind.is_file() {
        return Err(NotAModel::Other("no ordinary file"));
    }
    let file = File::open(path).map_err(|error| NotAModel::from(&error))?;
    read(file, kind.len(), harness)
}

/// The same for anything that can be read.
pub(crate) fn read(
    from: impl Read + Seek,
    file_bytes: u64,
    harness: &Harness,
) -> Result<Facts, NotAModel> {
    if file_bytes == 0 {
        return Err(NotAModel::Empty);
    }
    let mut source = Source::new(from, file_bytes);
    let mut head = [0; 16];
    let there = source.begins_with(&mut head)?;
    let head = head.get(..there).unwrap_or_default();
    if head.get(..4) != Some(b"GGUF".as_slice()) {
        return Err(NotAModel::Other(kind_of(head)));
    }
    source.skip(4)?;
    match source.number_u32()? {
        2 | 3 => {}
        version if version.swap_bytes() <= 16 => return Err(NotAModel::BigEndian),
        version @ ..2 => return Err(NotAModel::Old(version)),
        version => return Err(NotAModel::New(version)),
    }
    let (tensors, values) = (source.number_u64()?, source.number_u64()?);
    if tensors > NAMED_MAX || values > NAMED_MAX {
        return Err(NotAModel::Damaged("it names more parts than any model has"));
    }
    let mut known = Known::default();
    for _ in 0..values {
        let name = source.text(NAME_BYTES_MAX)?;
        let kind = source.number_u32()?;
        known.take(&name, kind, &mut source)?;
    }
    let weights = Weights::read(tensors, &mut source)?;
    let alignment = match known.number("general.alignment") {
        Some(0) => return Err(NotAModel::Damaged("its parts have no place")),
        Some(alignment) => alignment,
        None => ALIGNMENT,
    };
    let begins = source
        .position()
        .checked_next_multiple_of(alignment)
        .and_then(|begins| begins.checked_add(weights.end));
    let needed = begins.ok_or(NotAModel::Damaged("its parts lie beyond any disk"))?;
    if weights.end > 0 && needed > file_bytes && !mutated!(harness, TrustCutModels) {
        let there = file_bytes;
        return Err(NotAModel::Cut { there, needed });
    }
    known.facts(file_bytes, &weights)
}

/// What all tensors come to.
#[derive(Debug, Default)]
struct Weights {
    /// Where the last one ends, from where the first one begins.
    end: u64,
    bytes: u64,
    numbers: u64,
}

impl Weights {
    fn read(tensors: u64, source: &mut Source<impl Read + Seek>) -> Result<Self, NotAModel> {
        const NO_SUCH: NotAModel = NotAModel::Damaged("a part of it has no size");
        let mut all = Self::default();
        for _ in 0..tensors {
            source.text(NAME_BYTES_MAX)?;
            let dimensions = source.number_u32()?;
            if dimensions > DIMENSIONS_MAX {
                return Err(NO_SUCH);
            }
            let mut numbers: u64 = 1;
            for _ in 0..dimensions {
                numbers = numbers.checked_mul(source.number_u64()?).ok_or(NO_SUCH)?;
            }
            let kind = source.number_u32()?;
            let offset = source.number_u64()?;
            // Of a kind that came after this was written, only its beginning is known.
            let bytes = tables::tensor_bytes(kind, numbers).unwrap_or(0);
            let end = offset.checked_add(bytes).ok_or(NO_SUCH)?;
            all.end = all.end.max(end);
            all.bytes = all.bytes.saturating_add(bytes);
            all.numbers = all.numbers.saturating_add(numbers);
        }
        Ok(all)
    }
}

/// The values that are of use.
#[derive(Debug, Default)]
struct Known {
    texts: HashMap<String, String>,
    numbers: HashMap<String, u64>,
    /// The sums of lists that have an entry for each layer.
    sums: HashMap<String, u64>,
    vocabulary: u64,
}

/// What a layer says, behind the architecture's name.
const OF_ARCHITECTURE: [&str; 7] = [
    ".context_length",
    ".block_count",
    ".embedding_length",
    ".attention.head_count",
    ".attention.head_count_kv",
    ".attention.key_length",
    ".attention.value_length",
];

impl Known {
    fn take(
        &mut self,
        name: &str,
        kind: u32,
        source: &mut Source<impl Read + Seek>,
    ) -> Result<(), NotAModel> {
        const STRANGE: NotAModel = NotAModel::Damaged("a value of it has no kind");
        let is_wanted = name.starts_with("general.")
            || name.starts_with("split.")
            || name == "tokenizer.chat_template"
            || OF_ARCHITECTURE.iter().any(|end| name.ends_with(end));
        match kind {
            tables::TEXT if is_wanted => {
                if let Some(text) = source.text_up_to(KEPT_BYTES_MAX, TEXT_BYTES_MAX)? {
                    self.texts.insert(name.to_owned(), text);
                }
            }
            tables::TEXT => source.skip_text(TEXT_BYTES_MAX)?,
            tables::LIST => {
                let kind = source.number_u32()?;
                let length = source.number_u64()?;
                if name == "tokenizer.ggml.tokens" {
                    self.vocabulary = length;
                }
                match tables::number_bytes(kind) {
                    Some(_) if is_wanted && length <= LAYERS_MAX => {
                        let mut sum: u64 = 0;
                        for _ in 0..length {
                            sum = sum.saturating_add(source.number(kind)?.unwrap_or(0));
                        }
                        self.sums.insert(name.to_owned(), sum);
                    }
                    Some(bytes) => {
                        let bytes = length.checked_mul(bytes);
                        source.skip(bytes.ok_or(NotAModel::Damaged("a list of it has no end"))?)?;
                    }
                    None if kind == tables::TEXT => {
                        for _ in 0..length {
                            source.skip_text(TEXT_BYTES_MAX)?;
                        }
                    }
                    None => return Err(STRANGE),
                }
            }
            kind => {
                tables::number_bytes(kind).ok_or(STRANGE)?;
                let number = source.number(kind)?;
                if let Some(number) = number.filter(|_| is_wanted) {
                    self.numbers.insert(name.to_owned(), number);
                }
            }
        }
        Ok(())
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.numbers.get(name).copied()
    }

    fn text(&self, name: &str) -> Option<String> {
        let text = self.texts.get(name)?.trim();
        // What is shown is one short line.
        let shown: String = text.chars().filter(|c| !c.is_control()).take(120).collect();
        Some(shown).filter(|text| !text.is_empty())
    }

    fn facts(self, file_bytes: u64, weights: &Weights) -> Result<Facts, NotAModel> {
        let architecture = self.text("general.architecture").unwrap_or_default();
        let split = self.split();
        if let Some((part, of)) = split
            && part > 1
        {
            return Err(NotAModel::LaterPart { part, of });
        }
        match architecture.as_str() {
            "" => return Err(NotAModel::Damaged("it names no architecture")),
            "clip" => return Err(NotAModel::Projector),
            _ => {}
        }
        let of = |name: &str| self.number(&format!("{architecture}.{name}"));
        // Whoever reckons with these gives up, or takes all the memory there is.
        let is_absurd = |number: Option<u64>, least: u64, most: u64| {
            number.is_some_and(|number| number < least || number > most)
        };
        if is_absurd(of("context_length"), CONTEXT_MIN, CONTEXT_MAX) {
            return Err(NotAModel::Damaged("its context has an impossible length"));
        }
        if is_absurd(of("block_count"), 1, LAYERS_MAX) {
            return Err(NotAModel::Damaged("it has an impossible number of layers"));
        }
        let file_type = self.number("general.file_type");
        let template = self.texts.get("tokenizer.chat_template");
        let label = self.text("general.size_label");
        Ok(Facts {
            file_bytes,
            name: self.text("general.name"),
            // A part counts only its own.
            parameters: label.or_else(|| {
                (weights.numbers > 0 && split.is_none()).then(|| tables::rounded(weights.numbers))
            }),
            quantization: file_type.and_then(tables::quantization).map(str::to_owned),
            context_tokens: of("context_length"),
            has_template: template.is_some(),
            capabilities: tables::capabilities(&architecture, template.map(String::as_str)),
            license: self.text("general.license"),
            weight_bytes: weights.bytes,
            token_bytes: self.token_bytes(&architecture),
            vocabulary: self.vocabulary,
            split,
            architecture,
        })
    }

    /// Part and count, both from 1.
    fn split(&self) -> Option<(u64, u64)> {
        let count = self.number("split.count").filter(|count| *count > 1)?;
        let part = self.number("split.no").unwrap_or(0).saturating_add(1);
        Some((part, count))
    }

    fn token_bytes(&self, architecture: &str) -> Option<u64> {
        let of = |name: &str| self.number(&format!("{architecture}.{name}"));
        let layers = of("block_count")?;
        let heads = of("attention.head_count");
        let summed = self
            .sums
            .get(&format!("{architecture}.attention.head_count_kv"));
        let kept_heads = match summed {
            Some(sum) => *sum,
            None => layers.checked_mul(of("attention.head_count_kv").or(heads)?)?,
        };
        let width = || of("embedding_length")?.checked_div(heads?);
        let key = of("attention.key_length").or_else(width)?;
        let value = of("attention.value_length").or_else(width)?;
        // 16 bits a number.
        kept_heads
            .checked_mul(key.checked_add(value)?)?
            .checked_mul(2)
    }
}

#[cfg(test)]
mod tests;
