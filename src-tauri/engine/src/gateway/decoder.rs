//! Bytes of an answer in, events out, for whichever dialect is spoken.
//!
//! Invariant: pure. No IO and no clock; the events depend on the bytes, never on how they were cut into reads.
//! [`Decoder::finish`] is the only way to a verdict, and the end of the bytes is no end marker.

use protocol::Dialect;

use super::{
    ModelEvent,
    answer::{Verdict, Wants},
    anthropic, ollama, openai,
};

/// The decoder of one answer.
pub(super) enum Decoder {
    Ollama(ollama::Decoder),
    OpenAi(openai::Decoder),
    Anthropic(anthropic::Decoder),
}

impl Decoder {
    pub(super) fn new(dialect: Dialect) -> Self {
        match dialect {
            Dialect::Ollama => Self::Ollama(ollama::Decoder::new()),
            Dialect::OpenAiChat => Self::OpenAi(openai::Decoder::new()),
            Dialect::Anthropic => Self::Anthropic(anthropic::Decoder::new()),
        }
    }

    /// What these bytes say.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<ModelEvent> {
        match self {
            Self::Ollama(decoder) => decoder.feed(bytes),
            Self::OpenAi(decoder) => decoder.feed(bytes),
            Self::Anthropic(decoder) => decoder.feed(bytes),
        }
    }

    /// Whether to go on reading.
    pub(super) fn wants(&self) -> Wants {
        match self {
            Self::Ollama(decoder) => decoder.wants(),
            Self::OpenAi(decoder) => decoder.wants(),
            Self::Anthropic(decoder) => decoder.wants(),
        }
    }

    /// Whether anything of the answer itself has come.
    pub(super) fn began(&self) -> bool {
        match self {
            Self::Ollama(decoder) => decoder.began(),
            Self::OpenAi(decoder) => decoder.began(),
            Self::Anthropic(decoder) => decoder.began(),
        }
    }

    /// The verdict, with what had been held back.
    pub(super) fn finish(self) -> Verdict {
        match self {
            Self::Ollama(decoder) => decoder.finish(),
            Self::OpenAi(decoder) => decoder.finish(),
            Self::Anthropic(decoder) => decoder.finish(),
        }
    }
}
