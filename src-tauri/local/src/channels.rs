//! Answers in channels, as gpt-oss writes them: each message says first which channel it is for, and for whom.
//!
//! Invariant: what is written for a tool is a call if it is whole, and what is for no channel is for the reader.
//! The form is the one that OpenAI published as "harmony".

use crate::{
    calls::{self, CHANNEL, Call},
    speech::{Said, overlap, say},
};

const MESSAGE: &str = "<|message|>";
const START: &str = "<|start|>";
const CALL: &str = "<|call|>";
/// Whatever ends a message.
const ENDS: [&str; 5] = ["<|end|>", CALL, "<|return|>", START, CHANNEL];
/// Longer than any head; what has no end by then is none.
const HEAD_BYTES_MAX: usize = 512;

/// All marks that the model's own words may hold.
pub(crate) const MARKS: [&str; 7] = [
    MESSAGE,
    START,
    CALL,
    CHANNEL,
    "<|end|>",
    "<|return|>",
    "<|constrain|>",
];

/// Whom a message is for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum For {
    Reader,
    Nobody,
    Tool(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum At {
    Head,
    Message(For),
}

/// An answer as it comes.
#[derive(Debug)]
pub(crate) struct Channels {
    at: At,
    /// What is not clear yet.
    held: String,
    /// A tool's message so far: it is told whole.
    written: String,
}

impl Channels {
    /// One of which the prompt holds the beginning: the head comes first.
    pub(crate) fn new() -> Self {
        Self {
            at: At::Head,
            held: String::new(),
            written: String::new(),
        }
    }

    pub(crate) fn hear(&mut self, text: &str, out: &mut Vec<Said>) {
        self.held.push_str(text);
        loop {
            match &self.at {
                At::Head => {
                    if let Some((head, after)) = self.held.split_once(MESSAGE) {
                        self.at = At::Message(whom(head));
                        self.held = after.to_owned();
                        continue;
                    }
                    if self.held.len() > HEAD_BYTES_MAX || is_no_head(&self.held) {
                        self.at = At::Message(For::Reader);
                        continue;
                    }
                    return;
                }
                At::Message(whom) => {
                    let ends = ENDS
                        .iter()
                        .filter_map(|end| Some((self.held.find(end)?, *end)))
                        .min();
                    let Some((at, end)) = ends else {
                        self.go_on(out);
                        return;
                    };
                    let whom = whom.clone();
                    let (message, after) = self.held.split_at(at);
                    let message = format!("{}{message}", std::mem::take(&mut self.written));
                    tell(whom, message, out);
                    let after = after.strip_prefix(end).unwrap_or(after);
                    // A channel may follow its message without a start.
                    self.held = if end == CHANNEL {
                        format!("{CHANNEL}{after}")
                    } else {
                        after.to_owned()
                    };
                    self.at = At::Head;
                }
            }
        }
    }

    /// The name and the bytes so far of a call that is being written.
    pub(crate) fn calling(&self) -> Option<(&str, usize)> {
        match &self.at {
            At::Message(For::Tool(name)) => Some((name, self.written.len() + self.held.len())),
            At::Message(For::Reader | For::Nobody) | At::Head => None,
        }
    }

    /// What was held back. `is_whole` says that the model was done.
    pub(crate) fn finish(self, is_whole: bool, out: &mut Vec<Said>) {
        let message = format!("{}{}", self.written, self.held);
        match self.at {
            At::Message(For::Tool(_)) if !is_whole => say(message, out),
            At::Message(whom) => tell(whom, message, out),
            At::Head => say(beside_head(&self.held, is_whole), out),
        }
    }

    /// Tells what is clear of a message that goes on.
    fn go_on(&mut self, out: &mut Vec<Said>) {
        let At::Message(whom) = &self.at else {
            return;
        };
        let keep = ENDS
            .iter()
            .map(|end| overlap(&self.held, end))
            .max()
            .unwrap_or_default();
        let (clear, held) = self.held.split_at(self.held.len().saturating_sub(keep));
        match whom {
            For::Tool(_) => self.written.push_str(clear),
            whom => tell(whom.clone(), clear.to_owned(), out),
        }
        self.held = held.to_owned();
    }
}

fn tell(whom: For, message: String, out: &mut Vec<Said>) {
    match whom {
        For::Reader => say(message, out),
        For::Nobody if message.is_empty() => {}
        For::Nobody => out.push(Said::Thought(message)),
        For::Tool(name) => match calls::object(&message) {
            Some(arguments) => out.push(Said::Call(Call { name, arguments })),
            // No call after all: the reader may see what it was.
            None => say(message, out),
        },
    }
}

/// Whom the message under this head is for.
fn whom(head: &str) -> For {
    if let Some((_, to)) = head.split_once("to=") {
        let name = to
            .split(|letter: char| letter.is_whitespace() || letter == '<')
            .next()
            .unwrap_or_default();
        let name = name.strip_prefix("functions.").unwrap_or(name);
        return match name {
            "" => For::Reader,
            name => For::Tool(name.to_owned()),
        };
    }
    let channel = head.split_once(CHANNEL).map(|(_, channel)| channel.trim());
    match channel {
        Some(channel) if channel.starts_with("analysis") => For::Nobody,
        Some(_) | None => For::Reader,
    }
}

/// What stands in a head that is none of it: a model that speaks without a channel is heard in the end. Of one that was
/// cut, a single word may be a part of a name.
fn beside_head(held: &str, is_whole: bool) -> String {
    let plain = MARKS
        .iter()
        .fold(held.to_owned(), |plain, mark| plain.replace(mark, " "));
    let mut words = plain.split_whitespace().peekable();
    let is_cut = !is_whole && plain.split_whitespace().count() <= 1;
    let is_of_head = |word: &&str| {
        ["assistant", "analysis", "commentary", "final", "json"].contains(word)
            || word.starts_with("to=functions.")
    };
    while words.next_if(is_of_head).is_some() {}
    match words.peek() {
        Some(_) if !is_cut => words.collect::<Vec<_>>().join(" "),
        Some(_) | None => String::new(),
    }
}

/// Whether no head begins so: a model that was never taught channels speaks at once.
fn is_no_head(said: &str) -> bool {
    let said = said.trim_start();
    ["<|", "to=", "assistant"]
        .iter()
        .all(|begins| !said.starts_with(begins) && !begins.starts_with(said))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::speech::joined;

    fn heard(text: &str, size: usize, is_whole: bool) -> Vec<Said> {
        let mut channels = Channels::new();
        let mut out = Vec::new();
        let letters: Vec<char> = text.chars().collect();
        for piece in letters.chunks(size) {
            channels.hear(&piece.iter().collect::<String>(), &mut out);
        }
        channels.finish(is_whole, &mut out);
        joined(out)
    }

    fn thought(text: &str) -> Said {
        Said::Thought(text.to_owned())
    }

    fn words(text: &str) -> Said {
        Said::Words(text.to_owned())
    }

    fn call(name: &str, arguments: &str) -> Said {
        Said::Call(Call {
            name: name.to_owned(),
            arguments: arguments.to_owned(),
        })
    }

    #[test]
    fn thoughts_words_and_calls_come_apart_whatever_the_pieces() {
        let text = "<|channel|>analysis<|message|>Look < there.<|end|><|start|>assistant<|channel|>commentary<|message|>One moment.<|end|><|start|>assistant<|channel|>commentary to=functions.look <|constrain|>json<|message|>{\"at\":\"日\"}";
        for size in 1..text.chars().count() {
            assert_eq!(
                heard(text, size, true),
                [
                    thought("Look < there."),
                    words("One moment."),
                    call("look", "{\"at\":\"日\"}")
                ],
                "in pieces of {size}"
            );
        }
        assert_eq!(
            heard(
                " to=functions.look<|channel|>commentary json<|message|>{}<|call|>",
                4,
                true
            ),
            [call("look", "{}")]
        );
        assert_eq!(
            heard(
                "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Kelp.<|return|>",
                7,
                true
            ),
            [thought("Hm."), words("Kelp.")]
        );
    }

    #[test]
    fn a_call_that_was_cut_or_is_none_is_words() {
        let head = "<|channel|>commentary to=functions.look<|message|>";
        for (said, is_whole) in [("{\"at\":", true), ("{}", false), ("reef", true)] {
            let text = format!("{head}{said}");
            assert_eq!(heard(&text, 5, is_whole), [words(said)], "{said}");
        }
    }

    #[test]
    fn a_model_without_channels_is_heard() {
        assert_eq!(heard("Kelp grows.", 3, true), [words("Kelp grows.")]);
        assert_eq!(heard("<|channel|>ana", 3, false), []);
        for (text, said) in [
            ("assistants help people.", "assistants help people."),
            ("<|channel|>final Kelp grows.", "Kelp grows."),
            ("to=5", "to=5"),
        ] {
            assert_eq!(heard(text, 3, true), [words(said)]);
        }
        assert_eq!(heard("<|start|>assistant<|channel|>final", 3, true), []);
        assert_eq!(
            heard("<|channel|>commentary to=<|message|>{}", 3, true),
            [words("{}")]
        );
        let endless = format!("<|{}", "x".repeat(HEAD_BYTES_MAX));
        assert_eq!(heard(&endless, 9, true), [words(&endless)]);
    }
}
