//! Reasoning written into the answer's own text: `<think>…</think>`, and the other tags that models are taught.
//!
//! Invariant: no text is lost. A tag counts only where it leads: at the start of the content, white space aside, or
//! right after another reasoning block. `<think>` in mid-answer, in prose or in a code fence is text.
//! A closing tag whose opening one stood in the server's template (`I should add…</think>4`) makes reasoning of all that
//! came before it, also of what was shown as the answer; but only the first tag of a content without blocks, not where
//! code came before it, and not in the middle of a sentence: there somebody speaks of it.
//! Where the server also gives reasoning in a field of its own, a leading block counts only if it repeats that: then it
//! is passed over. Any other tag is text there.

use protocol::Part;

/// DeepSeek's and most others', then those of Gemma, Seed, Magistral, Kimi and older finetunes.
const OPENING: [&str; 8] = [
    "<think>",
    "<thinking>",
    "<thought>",
    "<reasoning>",
    "<seed:think>",
    "[THINK]",
    "◁think▷",
    "<|begin_of_thought|>",
];
const CLOSING: [&str; 8] = [
    "</think>",
    "</thinking>",
    "</thought>",
    "</reasoning>",
    "</seed:think>",
    "[/THINK]",
    "◁/think▷",
    "<|end_of_thought|>",
];

/// What tags begin with.
const SIGNS: [char; 3] = ['<', '[', '◁'];

/// Splits content into answer and reasoning.
#[derive(Debug)]
pub(super) struct Tags {
    place: Place,
    /// The start of what may become a tag, and white space before it.
    held: String,
    /// The server separates reasoning itself, so an opening tag is text.
    separated: bool,
    /// All of the answer so far may turn out to be a block.
    unopened: bool,
    /// The last character of an answer that may turn out to be a block.
    last: Option<char>,
    /// A block ended whose beginning nobody saw: whatever tag comes now is somebody's words.
    over: bool,
}

/// What content says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// These words.
    Words(Part, String),
    /// All the words before were reasoning.
    WasReasoning,
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
            unopened: true,
            last: None,
            over: false,
        }
    }

    /// Reasoning came in a field of its own.
    pub(super) fn separated(&mut self) {
        self.separated = true;
        self.unopened = false;
    }

    /// Whether what comes next belongs to a block.
    pub(super) fn is_in_block(&self) -> bool {
        match self.place {
            Place::Block | Place::Echo => true,
            Place::Lead | Place::AfterBlock | Place::Answer => false,
        }
    }

    /// Adds what one delta of content says to `said`; `thought` is the reasoning so far.
    pub(super) fn feed(&mut self, delta: &str, thought: &str, said: &mut Vec<Said>) {
        // What has no sign that a tag or a quoted one begins with is nothing but words, wherever it stands.
        let plain = self.held.is_empty() && !delta.contains(SIGNS) && !delta.contains('`');
        match self.place {
            Place::Answer if plain || !self.unopened => {
                self.last = delta.chars().next_back().or(self.last);
                return said.push(words(Part::Answer, delta));
            }
            Place::Block if plain && !delta.is_empty() => {
                return said.push(words(Part::Reasoning, delta));
            }
            Place::Lead | Place::AfterBlock | Place::Block | Place::Echo | Place::Answer => {}
        }
        let mut text = std::mem::take(&mut self.held);
        text.push_str(delta);
        while !text.is_empty() {
            text = match self.place {
                Place::Lead | Place::AfterBlock => self.lead(text, said),
                Place::Block => self.block(text, said),
                Place::Echo => self.echo(text, thought),
                Place::Answer if self.unopened => self.unopened(&text, said),
                Place::Answer => {
                    said.push(Said::Words(Part::Answer, text));
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
    fn lead(&mut self, text: String, said: &mut Vec<Said>) -> String {
        let trimmed = text.trim_start();
        if let Some(rest) = after_any(trimmed, &CLOSING) {
            self.place = Place::AfterBlock;
            self.unopened = false;
            return rest.to_owned();
        }
        if let Some(rest) = after_any(trimmed, &OPENING) {
            self.unopened = false;
            if self.separated {
                self.place = Place::Echo;
                return text;
            }
            self.place = Place::Block;
            return rest.to_owned();
        }
        if trimmed.is_empty() || begins_any(trimmed, &OPENING) || begins_any(trimmed, &CLOSING) {
            self.held = text;
            return String::new();
        }
        let may_close = !self.over && !self.separated;
        if let (true, Some((at, tag))) = (may_close, find_any(&text, &CLOSING)) {
            let (before, rest) = text.split_at(at);
            let after = rest.get(tag..).unwrap_or_default();
            let last = before.chars().next_back();
            if after.is_empty() && may_be_spoken_of(last) {
                // What follows tells.
                self.held = text;
                return String::new();
            }
            // A tag that somebody quotes stands in code.
            if !before.contains('`') && !is_spoken_of(last, after) {
                said.push(words(Part::Reasoning, before));
                self.place = Place::AfterBlock;
                self.over = std::mem::take(&mut self.unopened);
                return after.to_owned();
            }
        }
        let answer = match self.place {
            Place::AfterBlock => trimmed.to_owned(),
            Place::Lead | Place::Block | Place::Echo | Place::Answer => text,
        };
        self.place = Place::Answer;
        if self.unopened {
            return answer;
        }
        said.push(Said::Words(Part::Answer, answer));
        String::new()
    }

    /// In an answer that may be the end of a block whose beginning nobody saw.
    fn unopened(&mut self, text: &str, said: &mut Vec<Said>) -> String {
        let code = text.find('`').unwrap_or(text.len());
        match find_any(text, &CLOSING).filter(|(at, _)| *at < code) {
            Some((at, tag)) => {
                let (before, rest) = text.split_at(at);
                let after = rest.get(tag..).unwrap_or_default();
                let last = before.chars().next_back().or(self.last);
                if after.is_empty() && may_be_spoken_of(last) {
                    // What follows tells.
                    self.answered(before, said);
                    self.held = rest.to_owned();
                    return String::new();
                }
                self.unopened = false;
                if is_spoken_of(last, after) {
                    return text.to_owned();
                }
                self.over = true;
                self.place = Place::AfterBlock;
                said.push(words(Part::Answer, before));
                said.push(Said::WasReasoning);
                after.to_owned()
            }
            None if code < text.len() => {
                self.unopened = false;
                text.to_owned()
            }
            None => {
                let (certain, maybe) = text.split_at(before_cut_tag(text));
                self.answered(certain, said);
                self.held = maybe.to_owned();
                String::new()
            }
        }
    }

    fn answered(&mut self, text: &str, said: &mut Vec<Said>) {
        if let Some(last) = text.chars().next_back() {
            self.last = Some(last);
            said.push(words(Part::Answer, text));
        }
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

    fn block(&mut self, text: String, said: &mut Vec<Said>) -> String {
        if let Some((at, tag)) = find_any(&text, &CLOSING) {
            let (inside, rest) = text.split_at(at);
            if !inside.is_empty() {
                said.push(words(Part::Reasoning, inside));
            }
            self.place = Place::AfterBlock;
            return rest.get(tag..).unwrap_or_default().to_owned();
        }
        let (inside, maybe) = text.split_at(before_cut_tag(&text));
        if !inside.is_empty() {
            said.push(words(Part::Reasoning, inside));
        }
        self.held = maybe.to_owned();
        String::new()
    }
}

/// Whether the character before a tag leaves it open if somebody only speaks of it.
fn may_be_spoken_of(before: Option<char>) -> bool {
    before.is_some_and(|c| c == ' ' || c == '\t' || is_quote(c))
}

/// Whether a closing tag between these is one that somebody speaks of: in quotes, or among the words of a line.
fn is_spoken_of(before: Option<char>, after: &str) -> bool {
    match (before, after.chars().next()) {
        (Some(one), Some(other)) if is_quote(one) => is_quote(other),
        (Some(' ' | '\t'), Some(other)) => !other.is_control(),
        _ => false,
    }
}

fn is_quote(c: char) -> bool {
    matches!(
        c,
        '"' | '\'' | '“' | '”' | '„' | '‘' | '’' | '«' | '»' | '(' | ')' | '*' | '`'
    )
}

fn words(part: Part, text: &str) -> Said {
    Said::Words(part, text.to_owned())
}

/// What follows the opening tag.
fn inside(text: &str) -> &str {
    after_any(text.trim_start(), &OPENING).unwrap_or_default()
}

/// Where a closing tag begins of which only the start is there; else the end.
fn before_cut_tag(text: &str) -> usize {
    text.rfind(SIGNS)
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
    text.match_indices(SIGNS).find_map(|(at, _)| {
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
        said.extend(tags.finish().map(|(part, text)| Said::Words(part, text)));
        let (mut reasoning, mut answer) = (String::new(), String::new());
        for said in said {
            match said {
                Said::Words(Part::Reasoning, text) => reasoning.push_str(&text),
                Said::Words(Part::Answer, text) => answer.push_str(&text),
                Said::WasReasoning => reasoning.push_str(&std::mem::take(&mut answer)),
            }
        }
        (reasoning, answer)
    }

    #[test]
    fn leading_tags_make_reasoning_however_the_deltas_are_cut() {
        for (text, reasoning, answer) in [
            ("<thinking>x</thinking>y", "x", "y"),
            ("\n<THINK>\nx</Think>\n\n y", "\nx", "y"),
            ("<think>never closed", "never closed", ""),
            ("<think>a</think>\n<think>b</think>c", "ab", "c"),
            ("<think></think>c", "", "c"),
            ("<thought>x</thought>y", "x", "y"),
            ("<seed:think>x</seed:think>y", "x", "y"),
            ("[THINK]x[/THINK]y", "x", "y"),
            ("◁think▷x◁/think▷y", "x", "y"),
            ("<|begin_of_thought|>x<|end_of_thought|>y", "x", "y"),
            (
                "[link](there) and [THINK] in prose",
                "",
                "[link](there) and [THINK] in prose",
            ),
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
    fn a_closing_tag_alone_makes_reasoning_of_all_before_it_unless_it_is_quoted() {
        for (text, reasoning, answer) in [
            ("I should add…</think>4", "I should add…", "4"),
            ("I should\nadd…\n</THINKING>\n\n4", "I should\nadd…\n", "4"),
            (
                "So.</think>4 </think> is a tag",
                "So.",
                "4 </think> is a tag",
            ),
            ("So.</think>Use `</think>`", "So.", "Use `</think>`"),
            ("Use `</think>` to end", "", "Use `</think>` to end"),
            ("a < b </thin", "", "a < b </thin"),
            ("So.</think>", "So.", ""),
            ("So. </think>\n4", "So. ", "4"),
            ("So it is[/THINK]4", "So it is", "4"),
            (
                "They end thoughts with </think> and then answer.",
                "",
                "They end thoughts with </think> and then answer.",
            ),
            (
                "Look for \"</think>\" there",
                "",
                "Look for \"</think>\" there",
            ),
            ("It is called </think>", "", "It is called </think>"),
        ] {
            let want = (reasoning.to_owned(), answer.to_owned());
            assert_eq!(split(&[text]), want, "whole: {text:?}");
            for at in (0..=text.len()).filter(|at| text.is_char_boundary(*at)) {
                let (head, tail) = text.split_at(at);
                assert_eq!(split(&[head, tail]), want, "{head:?} {tail:?}");
            }
            let letters: Vec<String> = text.chars().map(String::from).collect();
            let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
            assert_eq!(split(&letters), want, "letter by letter: {text:?}");
        }
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
                said.extend(tags.finish().map(|(part, text)| Said::Words(part, text)));
                let answer: String = said
                    .into_iter()
                    .map(|said| match said {
                        Said::Words(Part::Answer, text) => text,
                        other => panic!("{other:?}"),
                    })
                    .collect();
                assert_eq!(answer, want, "{content:?} in {} deltas", deltas.len());
            }
        }
    }
}
