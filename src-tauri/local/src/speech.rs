//! What the model said: words, thoughts and calls, out of the pieces in which it says them.
//!
//! Invariant: no character is cut, no word of a mark is shown, and what may become a stop or a mark is held back until
//! it is clear. What was held goes out with [`Speech::finish`].

use protocol::{CallForm, model_process::Offered};

use crate::{
    calls::{self, Beginning, Call, Marks},
    channels::{self, Channels},
};

/// One thing that was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// Words.
    Words(String),
    /// Words of a thought that a channel of its own told from the answer.
    Thought(String),
    /// A call of a tool.
    Call(Call),
}

/// Words of a call; nobody asks for more.
const CALL_BYTES_MAX: usize = 1024 * 1024;

/// Marks of thoughts, which some vocabularies keep from being words.
const THOUGHTS: [&str; 4] = ["<think>", "</think>", "[THINK]", "[/THINK]"];

/// Of a call: its tool's name is in the first so many bytes.
const NAME_WITHIN: usize = 1024;

const THINKS: &str = "<think>";
const THOUGHT: &str = "</think>";

/// Marks that a model of this form writes as tokens which are no words, and that must be heard nevertheless.
pub fn spoken_marks(form: Option<CallForm>) -> impl Iterator<Item = &'static str> {
    let of_calls: Vec<&str> = match form {
        Some(CallForm::Channels) => channels::MARKS.to_vec(),
        Some(form) => {
            let Marks { begin, end } = calls::marks(form);
            let inside = ["[ARGS]", "[CALL_ID]", "<arg_key>", "</arg_key>"];
            let values = ["<arg_value>", "</arg_value>"];
            let all = begin.iter().copied().chain(end);
            all.chain(inside).chain(values).collect()
        }
        None => Vec::new(),
    };
    THOUGHTS.into_iter().chain(of_calls)
}

/// A call that is being written.
#[derive(Debug)]
struct Writing {
    /// The mark it began with.
    begun: &'static str,
    written: String,
}

/// An answer as it comes.
#[derive(Debug)]
pub struct Speech {
    /// The first bytes of a character.
    rest: Vec<u8>,
    /// Text that is not clear yet.
    held: String,
    call: Option<Writing>,
    /// Of calls; nothing if there can be none.
    form: Option<CallForm>,
    marks: Marks,
    channels: Option<Channels>,
    tools: Vec<Offered>,
    stops: Vec<String>,
    stopped: bool,
    /// Whether words came already: only an answer's beginning is a call without a mark.
    begun: bool,
    /// Within a thought at the answer's beginning: what it says of calls is thought of, and not meant.
    thinks: bool,
}

impl Speech {
    /// One that ends before any of `stops`, and may hold calls of `tools`, written as `form` says. `thinks` says that the
    /// prompt has begun a thought already.
    pub fn new(stops: &[String], form: Option<CallForm>, tools: &[Offered], thinks: bool) -> Self {
        let is_in_channels = form == Some(CallForm::Channels);
        let form = form.filter(|_| !tools.is_empty() && !is_in_channels);
        Self {
            rest: Vec::new(),
            held: String::new(),
            call: None,
            form,
            marks: form.map(calls::marks).unwrap_or_default(),
            channels: is_in_channels.then(Channels::new),
            tools: tools.to_vec(),
            stops: stops.to_vec(),
            stopped: false,
            begun: false,
            thinks,
        }
    }

    /// Whether a word came that ends the answer.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// The tool, where that is known already, and the bytes so far of a call that is being written.
    pub fn calling(&self) -> Option<(&str, usize)> {
        if let Some(calling) = self.channels.as_ref().and_then(Channels::calling) {
            return Some(calling);
        }
        let written = &self.call.as_ref()?.written;
        let bytes = written.len();
        // A call names its tool first; looking through all of it at each token would take ever longer.
        let written = written.get(..written.floor_char_boundary(NAME_WITHIN))?;
        let named = self.tools.iter().map(|tool| tool.name.as_str());
        let first = named.filter_map(|name| Some((written.find(name)?, name)));
        let name = first.min_by_key(|(at, name)| (*at, usize::MAX - name.len()));
        Some((name.map_or("", |(_, name)| name), bytes))
    }

    /// The next piece, as bytes: it may begin and end within a character.
    pub fn feed(&mut self, piece: &[u8]) -> Vec<Said> {
        self.rest.extend_from_slice(piece);
        let text = self.characters();
        let mut out = Vec::new();
        self.take(&text, &mut out);
        out
    }

    /// What was held back. `is_whole` says that the model was done: then a call ends with its answer.
    pub fn finish(mut self, is_whole: bool) -> Vec<Said> {
        let mut out = Vec::new();
        if self.stopped {
            return out;
        }
        if !self.rest.is_empty() {
            let rest = String::from_utf8_lossy(&self.rest).into_owned();
            self.take(&rest, &mut out);
        }
        if let Some(channels) = self.channels.take() {
            let mut said = Vec::new();
            channels.finish(is_whole, &mut said);
            self.pass_on(said, &mut out);
        }
        match self.call.take() {
            // Cut within a call: what there is of it is words, and nothing is called.
            Some(Writing { begun, written }) => {
                let written = format!("{written}{}", self.held);
                self.end_call(begun, &written, None, is_whole, &mut out);
            }
            None => say(self.held, &mut out),
        }
        out
    }

    /// The whole characters of what came; what is none becomes U+FFFD.
    fn characters(&mut self) -> String {
        let mut text = String::new();
        loop {
            match std::str::from_utf8(&self.rest) {
                Ok(whole) => {
                    text.push_str(whole);
                    self.rest.clear();
                    return text;
                }
                Err(error) => {
                    let (whole, rest) = self.rest.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(whole));
                    match error.error_len() {
                        // Its other bytes are still to come.
                        None => {
                            self.rest = rest.to_vec();
                            return text;
                        }
                        Some(bytes) => {
                            text.push(char::REPLACEMENT_CHARACTER);
                            self.rest = rest.get(bytes..).unwrap_or_default().to_vec();
                        }
                    }
                }
            }
        }
    }

    /// Channels first, where there are any.
    fn take(&mut self, text: &str, out: &mut Vec<Said>) {
        match &mut self.channels {
            Some(channels) => {
                let mut said = Vec::new();
                channels.hear(text, &mut said);
                self.pass_on(said, out);
            }
            None => self.hear(text, out),
        }
    }

    fn pass_on(&mut self, said: Vec<Said>, out: &mut Vec<Said>) {
        for said in said {
            match said {
                Said::Words(words) => self.hear(&words, out),
                Said::Thought(_) | Said::Call(_) if self.stopped => {}
                Said::Thought(_) | Said::Call(_) => {
                    say(std::mem::take(&mut self.held), out);
                    out.push(said);
                }
            }
        }
    }

    fn hear(&mut self, text: &str, out: &mut Vec<Said>) {
        if self.stopped {
            return;
        }
        self.held.push_str(text);
        while !self.go_on(out) {}
    }

    /// One step; whether there is nothing more to be done with what is held.
    fn go_on(&mut self, out: &mut Vec<Said>) -> bool {
        if self.call.is_some() {
            return self.go_on_with_call(out);
        }
        if self.form == Some(CallForm::Bare) && !self.begun {
            match calls::beginning(&self.held, &self.tools) {
                Beginning::Unclear => return true,
                Beginning::Call => {
                    let written = std::mem::take(&mut self.held);
                    self.call = Some(Writing { begun: "", written });
                    return false;
                }
                Beginning::Words => {}
            }
        }
        let stop = self
            .stops
            .iter()
            .filter(|stop| !stop.is_empty())
            .filter_map(|stop| self.held.find(stop.as_str()))
            .min();
        if !self.begun && self.held.trim_start().starts_with(THINKS) {
            self.thinks = true;
        }
        let thought = if self.thinks {
            self.held.find(THOUGHT).map(|at| at + THOUGHT.len())
        } else {
            Some(0)
        };
        let call = thought.and_then(|from| {
            let meant = self.held.get(from..)?;
            let begins = self.marks.begin.iter();
            begins
                .filter_map(|mark| Some((from + meant.find(mark)?, *mark)))
                .min()
        });
        match (stop, call) {
            (Some(stop), call) if call.is_none_or(|(call, _)| stop < call) => {
                let (before, _) = self.held.split_at(stop);
                say(before.to_owned(), out);
                self.held.clear();
                self.stopped = true;
                true
            }
            (_, Some((at, mark))) => {
                let (before, after) = self.held.split_at(at);
                say(before.to_owned(), out);
                self.held = after.strip_prefix(mark).unwrap_or(after).to_owned();
                self.call = Some(Writing {
                    begun: mark,
                    written: String::new(),
                });
                self.begun = true;
                self.thinks = false;
                false
            }
            (_, None) => {
                let marks = self.marks.begin.iter().copied();
                let keep = self
                    .stops
                    .iter()
                    .map(String::as_str)
                    .chain(marks)
                    .map(|word| overlap(&self.held, word))
                    .max()
                    .unwrap_or_default();
                let keep = if self.thinks {
                    keep.max(overlap(&self.held, THOUGHT))
                } else if self.begun {
                    keep
                } else {
                    keep.max(overlap(&self.held, THINKS))
                };
                let (clear, held) = self.held.split_at(self.held.len().saturating_sub(keep));
                self.thinks &= thought.is_none();
                self.begun |= !clear.trim().is_empty();
                say(clear.to_owned(), out);
                self.held = held.to_owned();
                true
            }
        }
    }

    fn go_on_with_call(&mut self, out: &mut Vec<Said>) -> bool {
        let Some(call) = &mut self.call else {
            return true;
        };
        let ended = self.marks.end.and_then(|end| self.held.split_once(end));
        if let Some((inside, after)) = ended {
            call.written.push_str(inside);
            if let Some(end) = self.marks.end
                && calls::is_within_value(&call.written)
            {
                // The mark is a part of what the call is about.
                call.written.push_str(end);
                self.held = after.to_owned();
                return false;
            }
            let (begun, written) = (call.begun, std::mem::take(&mut call.written));
            self.held = after.to_owned();
            self.call = None;
            self.end_call(begun, &written, self.marks.end, true, out);
            return false;
        }
        let keep = self.marks.end.map_or(0, |end| overlap(&self.held, end));
        let (clear, held) = self.held.split_at(self.held.len().saturating_sub(keep));
        call.written.push_str(clear);
        self.held = held.to_owned();
        if call.written.len() > CALL_BYTES_MAX {
            let (begun, written) = (call.begun, std::mem::take(&mut call.written));
            self.call = None;
            say(format!("{begun}{written}"), out);
        }
        true
    }

    fn end_call(
        &self,
        begun: &str,
        written: &str,
        ended: Option<&str>,
        is_whole: bool,
        out: &mut Vec<Said>,
    ) {
        let calls = self
            .form
            .filter(|_| is_whole)
            .and_then(|form| calls::read(form, begun, written, &self.tools));
        match calls {
            Some(calls) => out.extend(calls.into_iter().map(Said::Call)),
            // No call after all: the reader may see what it was.
            None => say(
                format!("{begun}{written}{}", ended.unwrap_or_default()),
                out,
            ),
        }
    }
}

pub(crate) fn say(text: String, out: &mut Vec<Said>) {
    if !text.is_empty() {
        out.push(Said::Words(text));
    }
}

/// How many bytes at the end of `text` may be the beginning of `word`.
pub(crate) fn overlap(text: &str, word: &str) -> usize {
    let most = text.len().min(word.len().saturating_sub(1));
    (1..=most)
        .rev()
        .find(|count| {
            word.get(..*count)
                .is_some_and(|start| text.ends_with(start))
        })
        .unwrap_or_default()
}

/// The same in as few parts as may be.
#[cfg(test)]
pub(crate) fn joined(said: Vec<Said>) -> Vec<Said> {
    let mut joined: Vec<Said> = Vec::new();
    for said in said {
        match (joined.last_mut(), said) {
            (Some(Said::Words(words)), Said::Words(more))
            | (Some(Said::Thought(words)), Said::Thought(more)) => words.push_str(&more),
            (_, said) => joined.push(said),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look() -> Vec<Offered> {
        vec![Offered {
            name: "look".to_owned(),
            description: String::new(),
            parameters: "{\"type\":\"object\"}".to_owned(),
        }]
    }

    fn heard(text: &str, size: usize, stops: &[&str]) -> (Vec<Said>, bool) {
        heard_in(CallForm::Tagged, text, size, stops, true)
    }

    fn heard_in(
        form: CallForm,
        text: &str,
        size: usize,
        stops: &[&str],
        is_whole: bool,
    ) -> (Vec<Said>, bool) {
        let stops: Vec<String> = stops.iter().map(|stop| (*stop).to_owned()).collect();
        let mut speech = Speech::new(&stops, Some(form), &look(), false);
        let mut out = Vec::new();
        for piece in text.as_bytes().chunks(size) {
            out.extend(speech.feed(piece));
        }
        let stopped = speech.is_stopped();
        out.extend(speech.finish(is_whole));
        (joined(out), stopped)
    }

    fn words(text: &str) -> Said {
        Said::Words(text.to_owned())
    }

    fn call(arguments: &str) -> Said {
        Said::Call(Call {
            name: "look".to_owned(),
            arguments: arguments.to_owned(),
        })
    }

    #[test]
    fn a_call_is_heard_in_every_form_and_in_any_pieces() {
        for (form, text, said) in [
            (
                CallForm::TaggedParameters,
                "Yes.<function=look>\n<parameter=at>\nreef\n</parameter>\n</function>\n</tool_call>",
                vec![words("Yes."), call("{\"at\":\"reef\"}")],
            ),
            (
                CallForm::MistralNamed,
                "Yes.[TOOL_CALLS]look[ARGS]{\"at\": 1}[TOOL_CALLS]look[ARGS]{}",
                vec![words("Yes."), call("{\"at\": 1}"), call("{}")],
            ),
            (
                CallForm::Barred,
                "<|tool_call|>[{\"name\": \"look\"}]",
                vec![call("{}")],
            ),
            (
                CallForm::Bare,
                "\n{\"name\": \"look\", \"parameters\": {\"at\":\"日\"}}",
                vec![call("{\"at\":\"日\"}")],
            ),
            (
                CallForm::Bare,
                "<|python_tag|>{\"name\": \"look\", \"parameters\": {}}",
                vec![call("{}")],
            ),
            (
                CallForm::Bare,
                "{\"name\": \"lo\", \"age\": 4}",
                vec![words("{\"name\": \"lo\", \"age\": 4}")],
            ),
            (
                CallForm::Bare,
                "So: {\"name\": \"look\", \"parameters\": {}}",
                vec![words("So: {\"name\": \"look\", \"parameters\": {}}")],
            ),
            (
                CallForm::Channels,
                "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.look<|message|>{}",
                vec![Said::Thought("Hm.".to_owned()), call("{}")],
            ),
            (
                CallForm::Tagged,
                "<tool_call>{\"name\": \"look\", \"arguments\": {}}",
                vec![call("{}")],
            ),
        ] {
            for size in 1..text.len() {
                let heard = heard_in(form, text, size, &["END"], true);
                assert_eq!(heard, (said.clone(), false), "{form:?} in pieces of {size}");
            }
            // Of an answer that was cut, nobody knows whether more was to come.
            let cut = heard_in(form, text, 3, &[], false).0;
            let ends_itself = matches!(form, CallForm::TaggedParameters);
            let calls = cut.iter().any(|said| matches!(said, Said::Call(_)));
            assert_eq!(calls, ends_itself, "{form:?}: {cut:?}");
        }
    }

    #[test]
    fn without_tools_nothing_is_a_call_and_channels_are_apart_nevertheless() {
        let mut speech = Speech::new(&[], Some(CallForm::Tagged), &[], false);
        let text = "<tool_call>{\"name\": \"look\"}</tool_call>";
        assert_eq!(speech.feed(text.as_bytes()), [words(text)]);
        let mut speech = Speech::new(&["END".to_owned()], Some(CallForm::Channels), &[], false);
        let text = "<|channel|>analysis<|message|>END?<|end|><|start|>assistant<|channel|>final<|message|>Kelp. END";
        let said = speech.feed(text.as_bytes());
        assert_eq!(said, [Said::Thought("END?".to_owned()), words("Kelp. ")]);
        assert!(speech.is_stopped());
    }

    #[test]
    fn what_a_thought_says_of_calls_is_not_meant() {
        let mentioned = "I could <tool_call>{\"name\": \"look\"}</tool_call> but no.</think>";
        let made = "\n<tool_call>{\"name\": \"look\"}</tool_call>";
        let text = format!("<think>{mentioned}{made}");
        for size in 1..text.len() {
            assert_eq!(
                heard(&text, size, &[]).0,
                [words(&format!("<think>{mentioned}\n")), call("{}")],
                "in pieces of {size}"
            );
        }
        let mut speech = Speech::new(&[], Some(CallForm::Tagged), &look(), true);
        let mut said = speech.feed(mentioned.as_bytes());
        said.extend(speech.feed(made.as_bytes()));
        said.extend(speech.finish(true));
        assert_eq!(
            said.iter()
                .filter(|said| matches!(said, Said::Call(_)))
                .count(),
            1
        );
    }

    #[test]
    fn a_mark_within_an_argument_is_a_part_of_it() {
        let inner = "<tool_call>\n<function=look>\n</function>\n</tool_call>";
        let text = format!(
            "<tool_call>\n<function=look>\n<parameter=at>\n{inner}\n{inner}\n</parameter>\n</function>\n</tool_call>"
        );
        let arguments = serde_json::json!({ "at": format!("{inner}\n{inner}") }).to_string();
        for size in 1..text.len() {
            let heard = heard_in(CallForm::TaggedParameters, &text, size, &[], true);
            assert_eq!(heard.0, [call(&arguments)], "in pieces of {size}");
        }
        let text = "<tool_call>{\"name\": \"look\", \"arguments\": {\"at\": \"</tool_call>\"}}</tool_call>";
        let heard = heard(text, 7, &[]);
        assert_eq!(heard.0, [call("{\"at\":\"</tool_call>\"}")]);
    }

    #[test]
    fn a_call_that_is_being_written_is_told_with_its_tool() {
        let mut speech = Speech::new(&[], Some(CallForm::Tagged), &look(), false);
        assert_eq!(speech.calling(), None);
        speech.feed(b"<tool_call>{\"na");
        assert_eq!(speech.calling(), Some(("", 4)));
        speech.feed(b"me\": \"look\", ");
        assert_eq!(speech.calling(), Some(("look", 17)));
    }

    #[test]
    fn what_was_said_does_not_depend_on_its_pieces() {
        let call = call("{\"at\":\"日\"}");
        let text = "Kelp 日本 <tool <tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\": \"日\"}}\n</tool_call> after";
        for size in 1..text.len() {
            assert_eq!(
                heard(text, size, &["END"]),
                (
                    vec![words("Kelp 日本 <tool "), call.clone(), words(" after")],
                    false
                ),
                "in pieces of {size}"
            );
        }
    }

    #[test]
    fn an_answer_ends_before_a_stop_and_no_part_of_it_is_shown() {
        for size in 1..12 {
            assert_eq!(
                heard("One, EN, two ENDING", size, &["END", "Q"]),
                (vec![words("One, EN, two ")], true)
            );
        }
    }

    #[test]
    fn a_call_that_is_none_or_was_cut_is_words() {
        for text in [
            "a<tool_call>no json</tool_call>b",
            "a<tool_call>{\"name\": \"look\"",
            "a<tool_c",
        ] {
            assert_eq!(heard(text, 3, &[]), (vec![words(text)], false));
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_told_as_such() {
        let mut speech = Speech::new(&[], None, &[], false);
        assert_eq!(speech.feed(b"a\xff\xe6"), [words("a\u{fffd}")]);
        assert_eq!(speech.feed(b"\x97\xa5"), [words("日")]);
        assert_eq!(speech.feed(b"\xe6"), []);
        assert_eq!(speech.finish(true), [words("\u{fffd}")]);
    }
}
