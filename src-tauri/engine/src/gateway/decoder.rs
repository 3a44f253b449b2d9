//! Bytes of an answer in, events out, for whichever dialect is spoken.
//!
//! Invariant: pure. No IO and no clock; the events depend on the bytes, never on how they were cut into reads.
//! [`Decoder::finish`] is the only way to a verdict, and the end of the bytes is no end marker.

use protocol::Dialect;

use super::{
    ModelEvent,
    answer::{Verdict, Wants},
    anthropic, local, ollama, openai,
    plain::Reading,
};

/// The decoder of one answer.
pub(super) enum Decoder {
    Ollama(ollama::Decoder),
    OpenAi(openai::Decoder),
    Anthropic(anthropic::Decoder),
    Local(local::Decoder),
}

impl Decoder {
    pub(super) fn new(dialect: Dialect) -> Self {
        Self::reading(dialect, Reading::Quick)
    }

    /// The same, and how it reads events.
    pub(super) fn reading(dialect: Dialect, reading: Reading) -> Self {
        match dialect {
            Dialect::Ollama => Self::Ollama(ollama::Decoder::new(reading)),
            Dialect::OpenAiChat => Self::OpenAi(openai::Decoder::new(reading)),
            Dialect::Anthropic => Self::Anthropic(anthropic::Decoder::new(reading)),
            Dialect::Local => Self::Local(local::Decoder::of_any()),
        }
    }

    /// What these bytes say.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<ModelEvent> {
        match self {
            Self::Ollama(decoder) => decoder.feed(bytes),
            Self::OpenAi(decoder) => decoder.feed(bytes),
            Self::Anthropic(decoder) => decoder.feed(bytes),
            Self::Local(decoder) => decoder.feed(bytes),
        }
    }

    /// Whether to go on reading.
    pub(super) fn wants(&self) -> Wants {
        match self {
            Self::Ollama(decoder) => decoder.wants(),
            Self::OpenAi(decoder) => decoder.wants(),
            Self::Anthropic(decoder) => decoder.wants(),
            Self::Local(decoder) => decoder.wants(),
        }
    }

    /// Whether anything of the answer itself has come.
    pub(super) fn began(&self) -> bool {
        match self {
            Self::Ollama(decoder) => decoder.began(),
            Self::OpenAi(decoder) => decoder.began(),
            Self::Anthropic(decoder) => decoder.began(),
            Self::Local(decoder) => decoder.began(),
        }
    }

    /// The verdict, with what had been held back.
    pub(super) fn finish(self) -> Verdict {
        match self {
            Self::Ollama(decoder) => decoder.finish(),
            Self::OpenAi(decoder) => decoder.finish(),
            Self::Anthropic(decoder) => decoder.finish(),
            Self::Local(decoder) => decoder.finish(),
        }
    }
}
