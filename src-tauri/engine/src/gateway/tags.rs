//! Reasoning written into the answer's own text: `<think>…</think>` and `<thinking>…</thinking>`.
//!
//! Invariant: text is never taken back. A tag counts only where it leads: at the start of the content, white space
//! aside, or right after another reasoning block. `<think>` in mid-answer, in prose or in a code fence is text.
//! A closing tag whose opening one stood in the server's template (`I should add…</think>4`) is understood only if it
//! comes with the first words, in the same delta: later, what is before it has been shown as the answer, and stays so.
//! Where the server also gives reasoning in a field of its own, a leading block counts only if it repeats that: then it
//! is passed over. Any other tag is text there.
//! RULING: reopened if the log gains an event that turns shown text into reasoning.

use protocol::Part;

const OPENING: [&str; 2] = ["<think>", "<thinking>"];
const CLOSING: [&str; 2] = ["</think>", "</thinking>"];

/// Splits content into answer and reasoning.
#[derive(Debug)]
pub(super) struct Tags {
    place: Place,
    /// The start of what may become a tag, and white space before it.
    held: String,
    /// The server separates reasoning itself, so an opening tag is text.
    separated: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Nothing was said yet.
    Lead,
    /// A block has just ended; white space before what follows belongs to neither.
    AfterBlock,
    /// In a block.
    Block,
    /// In what may be a block that repeats the reasoning which the server gave in a field of its own; all held.
    Echo,
    /// In the answer, for good.
    Answer,
}

impl Tags {
    pub(super) fn new() -> Self {
        Self {
            place: Place::Lead,
            held: String::new(),
            separated: false,
        }
    }

    /// Reasoning came in a field of its own.
    pub(super) fn separated(&mut self) {
        self.separated = true;
    }

    /// Whether what comes next belongs to a block.
    pub(super) fn is_in_block(&self) -> bool {
        match self.place {
            Place::Block | Place::Echo => true,
            Place::Lead | Place::AfterBlock | Place::Answer => false,
        }
    }

    /// Adds what one delta of content says to `said`; `thought` is the reasoning so far.
    pub(super) fn feed(&mut self, delta: &str, thought: &str, said: &mut Vec<(Part, String)>) {
        if self.place == Place::Answer {
            said.push((Part::Answer, delta.to_owned()));
            return;
        }
        let mut text = std::mem::take(&mut self.held);
        text.push_str(delta);
        while !text.is_empty() {
            text = match self.place {
                Place::Lead | Place::AfterBlock => self.lead(text, said),
                Place::Block => self.block(text, said),
                Place::Echo => self.echo(text, thought),
                Place::Answer => {
                    said.push((Part::Answer, text));
                    return;
                }
            };
        }
    }

    /// What was held back: it was no tag.
    pub(super) fn finish(&mut self) -> Option<(Part, String)> {
        let part = match self.place {
            // It repeated what was thought until it was cut.
            Place::Echo => {
                self.held.clear();
                return None;
            }
            Place::Lead | Place::AfterBlock | Place::Answer => Part::Answer,
            Place::Block => Part::Reasoning,
        };
        let held = std::mem::take(&mut self.held);
        (!held.is_empty()).then_some((part, held))
    }

    /// Returns what is still to be looked at.
    fn lead(&mut self, text: String, said: &mut Vec<(Part, String)>) -> String {
        let words = text.trim_start();
        if let Some(rest) = after_any(words, &CLOSING) {
            self.place = Place::AfterBlock;
            return rest.to_owned();
        }
        if let Some(rest) = after_any(words, &OPENING) {
            if self.separated {
                self.place = Place::Echo;
                return text;
            }
            self.place = Place::Block;
            return rest.to_owned();
        }
        if words.is_empty() || begins_any(words, &OPENING) || begins_any(words, &CLOSING) {
            self.held = text;
            return String::new();
        }
        if let Some((at, tag)) = find_any(&text, &CLOSING) {
            let (before, rest) = text.split_at(at);
            // A tag that somebody quotes stands in code.
            if !before.contains('`') {
                said.push((Part::Reasoning, before.to_owned()));
                self.place = Place::AfterBlock;
                return rest.get(tag..).unwrap_or_default().to_owned();
            }
        }
        let answer = match self.place {
            Place::AfterBlock => words.to_owned(),
            Place::Lead | Place::Block | Place::Echo | Place::Answer => text,
        };
        self.place = Place::Answer;
        said.push((Part::Answer, answer));
        String::new()
    }

    fn echo(&mut self, text: String, thought: &str) -> String {
        let rest = inside(&text);
        let closing = find_any(rest, &CLOSING);
        let so_far = match closing {
            Some((at, _)) => rest.get(..at),
            None => rest.get(..before_cut_tag(rest)),
        };
        let so_far = so_far.unwrap_or_default().trim();
        if !thought.trim_start().starts_with(so_far) {
            self.place = Place::Answer;
            return text;
        }
        match closing {
            Some((at, tag)) => {
                self.place = Place::AfterBlock;
                rest.get(at.saturating_add(tag)..)
                    .unwrap_or_default()
                    .to_owned()
            }
            None => {
                self.held = text;
                String::new()
            }
        }
    }

    fn block(&mut self, text: String, said: &mut Vec<(Part, String)>) -> String {
        if let Some((at, tag)) = find_any(&text, &CLOSING) {
            let (inside, rest) = text.split_at(at);
            if !inside.is_empty() {
                said.push((Part::Reasoning, inside.to_owned()));
            }
            self.place = Place::AfterBlock;
            return rest.get(tag..).unwrap_or_default().to_owned();
        }
        let (inside, maybe) = text.split_at(before_cut_tag(&text));
        if !inside.is_empty() {
            said.push((Part::Reasoning, inside.to_owned()));
        }
        self.held = maybe.to_owned();
        String::new()
    }
}

/// What follows the opening tag.
fn inside(text: &str) -> &str {
    after_any(text.trim_start(), &OPENING).unwrap_or_default()
}

/// Where a closing tag begins of which only the start is there; else the end.
fn before_cut_tag(text: &str) -> usize {
    text.rfind('<')
        .filter(|at| begins_any(text.get(*at..).unwrap_or_default(), &CLOSING))
        .unwrap_or(text.len())
}

fn after_any<'a>(text: &'a str, tags: &[&str]) -> Option<&'a str> {
    tags.iter().find_map(|tag| {
        let head = text.get(..tag.len())?;
        head.eq_ignore_ascii_case(tag)
            .then(|| text.get(tag.len()..))?
    })
}

/// Whether `text` is the start of one of the tags, and not yet all of it.
fn begins_any(text: &str, tags: &[&str]) -> bool {
    !text.is_empty()
        && tags.iter().any(|tag| {
            tag.get(..text.len())
                .is_some_and(|head| text.len() < tag.len() && head.eq_ignore_ascii_case(text))
        })
}

/// Where the first of the tags begins, and how long it is.
fn find_any(text: &str, tags: &[&str]) -> Option<(usize, usize)> {
    text.match_indices('<').find_map(|(at, _)| {
        let rest = text.get(at..)?;
        let after = after_any(rest, tags)?;
        Some((at, rest.len().saturating_sub(after.len())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(deltas: &[&str]) -> (String, String) {
        let (mut tags, mut said) = (Tags::new(), Vec::new());
        for delta in deltas {
            tags.feed(delta, "", &mut said);
        }
        said.extend(tags.finish());
        let gather = |part| {
            said.iter()
                .filter(|(p, _)| *p == part)
                .map(|(_, t)| t.as_str())
                .collect()
        };
        (gather(Part::Reasoning), gather(Part::Answer))
    }

    #[test]
    fn leading_tags_make_reasoning_however_the_deltas_are_cut() {
        for (text, reasoning, answer) in [
            ("<thinking>x</thinking>y", "x", "y"),
            ("\n<THINK>\nx</Think>\n\n y", "\nx", "y"),
            ("<think>never closed", "never closed", ""),
            ("<think>a</think>\n<think>b</think>c", "ab", "c"),
            ("<think></think>c", "", "c"),
            ("<think>a < b </thin", "a < b </thin", ""),
            ("</think>4", "", "4"),
            (" plain", "", " plain"),
            ("<thin", "", "<thin"),
            ("<b>bold</b>", "", "<b>bold</b>"),
            (
                "Use `<think>` like\n```\n<think>x</think>\n```",
                "",
                "Use `<think>` like\n```\n<think>x</think>\n```",
            ),
            (
                "```\n<think>x</think>\n```",
                "",
                "```\n<think>x</think>\n```",
            ),
        ] {
            let want = (reasoning.to_owned(), answer.to_owned());
            assert_eq!(split(&[text]), want, "whole: {text:?}");
            let letters: Vec<String> = text.chars().map(String::from).collect();
            let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
            assert_eq!(split(&letters), want, "letter by letter: {text:?}");
        }
    }

    #[test]
    fn a_missing_opening_tag_is_understood_in_the_first_delta_and_only_there() {
        assert_eq!(
            split(&["I should add…</think>4"]),
            ("I should add…".into(), "4".into())
        );
        assert_eq!(
            split(&["I should", " add…</think>4"]),
            (String::new(), "I should add…</think>4".into()),
            "what was shown stays as it was shown"
        );
    }

    #[test]
    fn a_nested_block_ends_at_its_first_closing_tag_and_loses_no_text() {
        assert_eq!(
            split(&["<think>a<think>b</think>c</think>d"]),
            ("a<think>bc".into(), "d".into())
        );
    }

    #[test]
    fn a_block_that_repeats_separate_reasoning_is_passed_over_and_any_other_tag_is_text() {
        for (content, thought, want) in [
            ("<think> is a tag", "", "<think> is a tag"),
            ("<think> is a tag", "I muse", "<think> is a tag"),
            ("<think>other</think>a", "I muse", "<think>other</think>a"),
            ("<think>\nI muse\n</think>\n\na", "I muse", "a"),
            ("<think>I m", "I muse", ""),
            ("<think>I muse</thi", "I muse", ""),
            ("<thi", "I muse", "<thi"),
        ] {
            let letters: Vec<String> = content.chars().map(String::from).collect();
            for deltas in [vec![content.to_owned()], letters] {
                let (mut tags, mut said) = (Tags::new(), Vec::new());
                tags.separated();
                for delta in &deltas {
                    tags.feed(delta, thought, &mut said);
                }
                said.extend(tags.finish());
                assert!(said.iter().all(|(part, _)| *part == Part::Answer));
                let answer: String = said.into_iter().map(|(_, text)| text).collect();
                assert_eq!(answer, want, "{content:?} in {} deltas", deltas.len());
            }
        }
    }
}
