//! The plainest events of each dialect: a piece of text and nothing else.
//!
//! Of a long answer nearly all are. Building a tree of every one of them costs more than all else a decoder does, so
//! they are read straight from their bytes, and only they: what has a field that is not expected here, or a value of
//! another kind, is read whole.
//! Invariant: read either way, an answer says the same. Kept by refusing whatever might mean more, and by comparing
//! both ways in tests and under made-up bytes.

use std::{borrow::Cow, ops::Deref};

use serde::{Deserialize, de::IgnoredAny};

/// How events are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// Plain ones straight from their bytes.
    Quick,
    /// Every one whole: what the quick way is compared with.
    #[cfg_attr(
        not(any(test, feature = "decoding")),
        expect(dead_code, reason = "only compared with")
    )]
    Whole,
}

/// Text in its two parts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Word<'a> {
    /// Reasoning in a field named so.
    pub(super) reasoning_content: Text<'a>,
    /// Reasoning in a field named so.
    pub(super) reasoning: Text<'a>,
    /// Reasoning in a field named so.
    pub(super) thinking: Text<'a>,
    /// The answer.
    pub(super) content: Text<'a>,
}

/// A string, borrowed where it was written without escapes. Serde borrows no `Option<Cow<str>>`.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// What must be null if it is there.
type Unsaid = Option<IgnoredAny>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OllamaFrame<'a> {
    #[serde(borrow, default, rename = "model")]
    _model: Option<Text<'a>>,
    #[serde(borrow, default, rename = "created_at")]
    _created_at: Option<Text<'a>>,
    #[serde(borrow, default, rename = "remote_model")]
    _remote_model: Option<Text<'a>>,
    #[serde(borrow, default, rename = "remote_host")]
    _remote_host: Option<Text<'a>>,
    #[serde(borrow)]
    message: OllamaMessage<'a>,
    #[serde(default)]
    done: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OllamaMessage<'a> {
    #[serde(borrow, default, rename = "role")]
    _role: Option<Text<'a>>,
    #[serde(borrow, default)]
    content: Option<Text<'a>>,
    #[serde(borrow, default)]
    thinking: Option<Text<'a>>,
}

/// A plain line of an Ollama.
pub(super) fn ollama(line: &str) -> Option<Word<'_>> {
    let frame: OllamaFrame<'_> = serde_json::from_str(line).ok()?;
    (!frame.done).then(|| Word {
        content: frame.message.content.unwrap_or_default(),
        thinking: frame.message.thinking.unwrap_or_default(),
        ..Word::default()
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Chunk<'a> {
    #[serde(borrow, default, rename = "id")]
    _id: Option<Text<'a>>,
    #[serde(borrow, default, rename = "object")]
    _object: Option<Text<'a>>,
    #[serde(default, rename = "created")]
    _created: Option<u64>,
    #[serde(borrow, default, rename = "model")]
    _model: Option<Text<'a>>,
    #[serde(borrow, default, rename = "system_fingerprint")]
    _system_fingerprint: Option<Text<'a>>,
    #[serde(borrow, default, rename = "service_tier")]
    _service_tier: Option<Text<'a>>,
    #[serde(borrow, default, rename = "provider")]
    _provider: Option<Text<'a>>,
    #[serde(borrow, default, rename = "obfuscation")]
    _obfuscation: Option<Text<'a>>,
    #[serde(default)]
    usage: Unsaid,
    #[serde(borrow)]
    choices: [Choice<'a>; 1],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Choice<'a> {
    #[serde(default)]
    index: u64,
    #[serde(borrow)]
    delta: Delta<'a>,
    #[serde(default)]
    finish_reason: Unsaid,
    #[serde(default)]
    native_finish_reason: Unsaid,
    #[serde(default)]
    stop_reason: Unsaid,
    #[serde(default)]
    logprobs: Unsaid,
    #[serde(default)]
    token_ids: Unsaid,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Delta<'a> {
    #[serde(borrow, default, rename = "role")]
    _role: Option<Text<'a>>,
    #[serde(borrow, default)]
    content: Option<Text<'a>>,
    #[serde(borrow, default)]
    reasoning_content: Option<Text<'a>>,
    #[serde(borrow, default)]
    reasoning: Option<Text<'a>>,
    #[serde(default)]
    refusal: Unsaid,
    #[serde(default)]
    tool_calls: Unsaid,
    #[serde(default)]
    function_call: Unsaid,
}

/// A plain chunk of chat completions.
pub(super) fn openai(text: &str) -> Option<Word<'_>> {
    let chunk: Chunk<'_> = serde_json::from_str(text).ok()?;
    let [choice] = chunk.choices;
    let delta = choice.delta;
    let plain = choice.index == 0
        && [
            chunk.usage,
            choice.finish_reason,
            choice.native_finish_reason,
            choice.stop_reason,
            choice.logprobs,
            choice.token_ids,
            delta.refusal,
            delta.tool_calls,
            delta.function_call,
        ]
        .iter()
        .all(Option::is_none);
    plain.then(|| Word {
        content: delta.content.unwrap_or_default(),
        reasoning_content: delta.reasoning_content.unwrap_or_default(),
        reasoning: delta.reasoning.unwrap_or_default(),
        ..Word::default()
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BlockDelta<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    index: u64,
    #[serde(borrow)]
    delta: TextDelta<'a>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TextDelta<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow, default)]
    text: Option<Text<'a>>,
    #[serde(borrow, default)]
    thinking: Option<Text<'a>>,
}

/// A plain delta of an Anthropic message, and the number of its block.
pub(super) fn anthropic(text: &str) -> Option<(u64, Word<'_>)> {
    let delta: BlockDelta<'_> = serde_json::from_str(text).ok()?;
    let TextDelta {
        kind,
        text,
        thinking,
    } = delta.delta;
    if &*delta.kind != "content_block_delta" {
        return None;
    }
    let word = match (&*kind, text, thinking) {
        ("text_delta", Some(content), None) => Word {
            content,
            ..Word::default()
        },
        ("thinking_delta", None, Some(thinking)) => Word {
            thinking,
            ..Word::default()
        },
        _ => return None,
    };
    Some((delta.index, word))
}
