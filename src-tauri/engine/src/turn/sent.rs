//! What was sent, and whether the model can have read all of it.
//!
//! Invariant: a conversation is said to be cut only if that follows from what is known. `tokens_min` is a floor: no
//! tokenizer in use joins words across white space, so every word is a token at least. A server that read less than the
//! floor has cut the beginning, or has counted only what its cache did not hold. It has cut if the floor is more than
//! the context that was asked for, or if it read exactly as much as a context has; every other low count may be a cache.
//! Which turns that were is an estimate, and is worded as one.

use protocol::{Image, TurnId, Unread};

use crate::{Harness, gateway::Message, mutant::mutated};

/// Letters of the longest words that a vocabulary has.
const LETTERS_PER_TOKEN_MAX: u64 = 24;

/// The same in scripts that have many letters, and write words without white space between.
const SIGNS_PER_TOKEN_MAX: u64 = 8;

/// Contexts are set in multiples of this, and none that anybody uses is smaller than a few of it.
const CONTEXT_STEP: u64 = 256;
const CONTEXT_MIN: u64 = 1_024;

/// A part of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    /// Absent for what stands before all turns.
    turn: Option<TurnId>,
    /// Tokens that it has at least.
    tokens_min: u64,
    /// Tokens that it has about.
    tokens_about: u64,
}

/// A request, measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    pieces: Vec<Piece>,
    context_tokens: Option<u64>,
}

impl Sent {
    /// `instructions` stand before everything; `told` is the conversation, by turns; `context_tokens` the context that
    /// is asked for, if any is.
    pub(super) fn of(
        instructions: &[Message],
        told: &[(Option<TurnId>, Vec<Message>)],
        context_tokens: Option<u64>,
    ) -> Self {
        let before = (!instructions.is_empty()).then_some((None, instructions));
        let told = told.iter().map(|(turn, said)| (*turn, said.as_slice()));
        let pieces = before.into_iter().chain(told).map(|(turn, messages)| {
            let mut piece = Piece {
                turn,
                tokens_min: 0,
                tokens_about: 0,
            };
            for text in messages.iter().flat_map(texts) {
                piece.tokens_min = piece.tokens_min.saturating_add(tokens_min(text));
                piece.tokens_about = piece.tokens_about.saturating_add(tokens_about(text));
            }
            // Of an image no floor is known: a model may look at a thumbnail.
            let shown = messages.iter().flat_map(Message::images);
            let shown: u64 = shown.map(Image::tokens_about).sum();
            piece.tokens_about = piece
                .tokens_about
                .max(piece.tokens_min)
                .saturating_add(shown);
            piece
        });
        Self {
            pieces: pieces.collect(),
            context_tokens: context_tokens.filter(|tokens| *tokens > 0),
        }
    }

    /// What the model cannot have read, if the server says that it read `read` tokens.
    pub(super) fn unread(&self, read: Option<u64>, harness: &Harness) -> Option<Unread> {
        let read_tokens = read?;
        let sent_tokens_min = self
            .pieces
            .iter()
            .fold(0_u64, |sum, piece| sum.saturating_add(piece.tokens_min));
        if read_tokens >= sent_tokens_min {
            return None;
        }
        let is_too_much = self
            .context_tokens
            .is_some_and(|context| read_tokens <= context && sent_tokens_min > context);
        let is_a_context = read_tokens >= CONTEXT_MIN && read_tokens.is_multiple_of(CONTEXT_STEP);
        if !is_too_much && !is_a_context && !mutated!(harness, CacheIsCut) {
            return None;
        }
        let (through, turns, partly) = self.left_out(read_tokens);
        Some(Unread {
            sent_tokens_min,
            read_tokens,
            context_tokens: self.context_tokens,
            through,
            turns,
            partly,
            preamble: self.pieces.iter().any(|piece| piece.turn.is_none()),
        })
    }

    /// Servers keep the end: the last turn not read and how many those are, and the one of which a part was read.
    fn left_out(&self, read_tokens: u64) -> (Option<TurnId>, u64, Option<TurnId>) {
        let of_turns = || {
            self.pieces
                .iter()
                .filter_map(|piece| Some((piece.turn?, piece.tokens_about)))
        };
        let mut left = read_tokens;
        let mut partly = None;
        let mut unread = Vec::new();
        for (turn, tokens) in of_turns().rev() {
            if left >= tokens {
                left -= tokens;
            } else if left > 0 {
                partly = Some(turn);
                left = 0;
            } else {
                unread.push(turn);
            }
        }
        if partly.is_none() && unread.is_empty() {
            // The estimate was too low; the cut is somewhere in the first one.
            partly = of_turns().next().map(|(turn, _)| turn);
        }
        (unread.first().copied(), unread.len() as u64, partly)
    }
}

fn texts(message: &Message) -> Vec<&str> {
    match message {
        Message::System { text }
        | Message::User { text, .. }
        | Message::ToolResult { text, .. } => {
            vec![text]
        }
        Message::Assistant { text, calls, .. } => std::iter::once(text.as_str())
            .chain(calls.iter().map(|call| call.arguments.as_str()))
            .collect(),
    }
}

/// Tokens that a text has at least, in any vocabulary.
fn tokens_min(text: &str) -> u64 {
    text.split_whitespace().fold(0, |sum, word| {
        let (mut letters, mut signs) = (0_u64, 0_u64);
        for letter in word.chars() {
            if letter.is_ascii() {
                letters += 1;
            } else {
                signs += 1;
            }
        }
        let whole = letters / LETTERS_PER_TOKEN_MAX + signs / SIGNS_PER_TOKEN_MAX;
        sum + whole.max(1)
    })
}

/// Tokens that a text has about: four bytes each, as in most prose.
const fn tokens_about(text: &str) -> u64 {
    text.len().div_ceil(4) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(turn: u64, words: usize) -> (Option<TurnId>, Vec<Message>) {
        let text = "kelp ".repeat(words);
        (
            Some(TurnId::new(turn)),
            vec![Message::User {
                text,
                images: Vec::new(),
            }],
        )
    }

    fn instructed() -> Vec<Message> {
        let text = "answer in French".to_owned();
        vec![Message::System { text }]
    }

    fn unread(sent: &Sent, read: u64) -> Option<Unread> {
        sent.unread(Some(read), &Harness::default())
    }

    #[test]
    fn a_server_that_read_exactly_a_context_and_less_than_was_sent_has_cut_the_beginning() {
        let told = [said(1, 1_000), said(2, 1_000), said(3, 4_000)];
        let sent = Sent::of(&instructed(), &told, None);
        let cut = Unread {
            sent_tokens_min: 6_003,
            read_tokens: 4_096,
            context_tokens: None,
            through: Some(TurnId::new(2)),
            turns: 2,
            partly: Some(TurnId::new(3)),
            preamble: true,
        };
        assert_eq!(unread(&sent, 4_096), Some(cut));
        assert_eq!(unread(&sent, 6_003), None, "all of it");
        assert_eq!(unread(&sent, 9_999), None, "and its template");
    }

    #[test]
    fn a_low_count_that_may_be_a_cache_is_no_cut() {
        let sent = Sent::of(&[], &[said(1, 6_000)], None);
        for read in [0, 1, 12, 512, 1_023, 4_000, 4_097, 5_999] {
            assert_eq!(unread(&sent, read), None, "{read}");
        }
        assert_eq!(
            sent.unread(None, &Harness::default()),
            None,
            "unknown is unknown"
        );
    }

    #[test]
    fn more_than_the_context_that_was_asked_for_cannot_have_been_read() {
        let sent = Sent::of(&[], &[said(1, 3_000), said(2, 2_000)], Some(4_000));
        let cut = unread(&sent, 3_700).expect("cut");
        assert_eq!((cut.turns, cut.partly), (0, Some(TurnId::new(1))));
        assert!(!cut.preamble);
        assert_eq!(
            unread(&sent, 4_500),
            None,
            "the context is larger than was asked for"
        );
        let fits = Sent::of(&[], &[said(1, 3_000)], Some(4_000));
        assert_eq!(unread(&fits, 2_900), None);
    }

    #[test]
    fn the_floor_is_one_token_a_word_and_more_for_what_no_vocabulary_has_as_one() {
        assert_eq!(tokens_min(""), 0);
        assert_eq!(tokens_min(" \n\t "), 0);
        assert_eq!(tokens_min("one two\nthree"), 3);
        assert_eq!(tokens_min(&"x".repeat(240)), 10);
        assert_eq!(tokens_min(&"海".repeat(80)), 10);
        assert_eq!(tokens_min(&" ".repeat(10_000)), 0);
    }
}
