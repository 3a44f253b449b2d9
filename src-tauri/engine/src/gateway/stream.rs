//! A stream of JSON events, read the same way for every dialect that has one.
//!
//! Invariant: what a dialect means by its events is its own; how loosely they may be written is not. A line that is no
//! event, an event that is no JSON, an error in any wrapping and a document in place of a stream come out alike.
//! Never relied on: a last blank line, blank lines between events, `data:` before every one of them.

use protocol::FinishReason;
use serde_json::{Value, json};

use super::{
    ModelEvent,
    answer::{Answer, Verdict, Wants},
    body::{Body, Enough, Rest, Stray},
    fault::{Fault, Said, Unreadable},
    halves::{Halves, Read},
    json,
    plain::Reading,
    sse::Frame,
};

/// What a dialect makes of its events.
pub(super) trait Speech {
    /// The answer so far.
    fn answer(&self) -> &Answer;

    /// The same, to say something of it.
    fn answer_mut(&mut self) -> &mut Answer;

    /// A piece of text and nothing else, where the event is one that says no more: told like [`Speech::chunk`] would.
    /// False if it is another, of which nothing was told.
    fn word(&mut self, text: &str, out: &mut Vec<ModelEvent>) -> bool;

    /// One event. It is no error.
    fn chunk(&mut self, chunk: &Value, out: &mut Vec<ModelEvent>) -> After;

    /// Whether what the dialect calls an error is in an event.
    fn error(chunk: &Value) -> Option<Said>;

    /// Whether a document is a whole answer of this dialect.
    fn is_whole(document: &Value) -> bool;

    /// The bytes have ended.
    fn close(&mut self, out: &mut Vec<ModelEvent>);

    /// What it comes to.
    fn verdict(self) -> Verdict;
}

/// Whether anything is worth waiting for after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    More,
    Nothing,
}

/// A stream that is being read.
pub(super) struct Stream<S> {
    body: Body,
    told: Told<S>,
}

/// What it told so far.
struct Told<S> {
    reading: Reading,
    speech: S,
    /// A proper event came.
    framed: bool,
    /// All is said: there is nothing more to wait for.
    done: bool,
    stray: Stray,
    halves: Halves,
}

/// Whether a frame came with its end.
#[derive(Clone, Copy)]
enum Whole {
    Surely,
    Perhaps,
}

impl<S: Speech> Stream<S> {
    pub(super) fn of(speech: S, reading: Reading) -> Self {
        Self {
            body: Body::new(reading),
            told: Told {
                reading,
                speech,
                framed: false,
                done: false,
                stray: Stray::default(),
                halves: Halves::default(),
            },
        }
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<ModelEvent> {
        let Self { body, told } = self;
        let mut out = Vec::new();
        let fed = body.feed(bytes, |frame| told.frame(frame, Whole::Surely, &mut out));
        if fed.is_err() {
            told.fail(Fault::TooLong);
        }
        out
    }

    pub(super) fn wants(&self) -> Wants {
        let answer = self.told.speech.answer();
        if self.told.done || answer.has_fault() {
            return Wants::Nothing;
        }
        match self.body.is_page() {
            Some(Enough::Yes) => Wants::Nothing,
            Some(Enough::NotYet) => Wants::Rest,
            // A server that ends every piece as if it were the last says nothing by that.
            None if answer.is_over() && !answer.was_reopened() => Wants::Rest,
            None => Wants::More,
        }
    }

    pub(super) fn began(&self) -> bool {
        self.told.speech.answer().began()
    }

    pub(super) fn finish(mut self) -> Verdict {
        let mut events = Vec::new();
        let told = &mut self.told;
        match self.body.finish() {
            Rest::Nothing => {}
            Rest::Page(fault) => told.fail(fault),
            Rest::Document(document) => told.document(&document, &mut events),
            Rest::Frames(frames) => {
                frames.finish(|frame| told.frame(frame, Whole::Perhaps, &mut events));
            }
        }
        self.told.finish(events)
    }
}

impl<S: Speech> Told<S> {
    fn finish(mut self, mut events: Vec<ModelEvent>) -> Verdict {
        self.give_up_halves(&mut events);
        let ended = self.speech.answer().is_over() && !self.speech.answer().has_fault();
        match self.stray.verdict(self.framed, ended) {
            // A frame that lost its head, or a proxy's words: what they stand for is missing from the answer.
            Some((fault, true)) => self.speech.answer_mut().spoil(fault),
            Some((fault, false)) => self.fail(fault),
            None => {}
        }
        if !self.done {
            self.speech.answer_mut().distrust_end();
        }
        self.speech.close(&mut events);
        let mut verdict = self.speech.verdict();
        events.append(&mut verdict.events);
        verdict.events = events;
        verdict
    }

    fn fail(&mut self, fault: Fault) {
        self.speech.answer_mut().fail(fault);
    }

    fn frame(&mut self, frame: Frame<'_>, whole: Whole, out: &mut Vec<ModelEvent>) {
        if self.done || self.speech.answer().has_fault() {
            return;
        }
        match frame {
            Frame::Data { event, data } => self.data(event, data, whole, out),
            Frame::Stray(line) => {
                // llama.cpp's older way to report an error, and servers that leave `data:` out.
                let text = line.strip_prefix("error:").unwrap_or(line);
                match self.read(text, out) {
                    Ok(chunk @ Value::Object(_)) if text.len() == line.len() => {
                        self.chunk(&chunk, out);
                    }
                    Ok(error) if text.len() != line.len() => {
                        let said = Said::read(&json!({ "error": error }));
                        self.fail(Fault::Said(said.unwrap_or_default()));
                    }
                    Ok(_) | Err(_) => {
                        self.give_up_halves(out);
                        let over = self.speech.answer().is_over();
                        self.stray.keep(line, over);
                    }
                }
            }
        }
    }

    fn data(&mut self, event: &str, data: &str, whole: Whole, out: &mut Vec<ModelEvent>) {
        let text = data.trim();
        if text.is_empty() {
            return;
        }
        if text == "[DONE]" {
            self.give_up_halves(out);
            self.speech.answer_mut().end(FinishReason::Unknown);
            self.done = true;
            return;
        }
        let is_quick = self.reading == Reading::Quick && event != "error" && !self.halves.wait();
        if is_quick && self.speech.word(text, out) {
            self.framed = true;
            return;
        }
        if let Ok(chunk) = self.read(text, out) {
            if event == "error" && Said::read(&chunk).is_none() {
                let said = Said::read(&json!({ "error": chunk }));
                self.fail(Fault::Said(said.unwrap_or_default()));
            } else {
                self.chunk(&chunk, out);
            }
            return;
        }
        if event == "error" {
            self.give_up_halves(out);
            self.fail(Fault::Said(Said::words(text)));
            return;
        }
        if text.contains('\n') {
            // Events without the blank lines between them arrive as one.
            for line in text.split('\n') {
                if !self.done && !self.speech.answer().has_fault() {
                    self.data(event, line, whole, out);
                }
            }
            return;
        }
        self.give_up_halves(out);
        if !self.stray.text().is_empty()
            && let Ok(chunk) = json::read(&format!("{text}\n{}", self.stray.text()))
        {
            // One object over several lines, of which only the first is marked as data.
            self.stray.clear();
            return self.chunk(&chunk, out);
        }
        match whole {
            Whole::Surely if !self.speech.answer().is_over() => {
                self.fail(Fault::Unreadable(Unreadable::new(text)));
            }
            // What cannot be read of the last frame is missing, not wrong.
            Whole::Surely | Whole::Perhaps => {}
        }
    }

    /// Reads an event; what is known of the ones before it by now is told.
    fn read(&mut self, text: &str, out: &mut Vec<ModelEvent>) -> Result<Value, serde_json::Error> {
        let Read { before, event } = self.halves.read(text)?;
        for alone in before {
            self.speech.chunk(&alone, out);
        }
        Ok(event)
    }

    /// Whatever comes now, it is not the other half of anything.
    fn give_up_halves(&mut self, out: &mut Vec<ModelEvent>) {
        for alone in self.halves.give_up() {
            self.speech.chunk(&alone, out);
        }
    }

    fn chunk(&mut self, chunk: &Value, out: &mut Vec<ModelEvent>) {
        if let Some(said) = S::error(chunk) {
            return self.fail(Fault::Said(said));
        }
        self.framed = true;
        match self.speech.chunk(chunk, out) {
            After::Nothing => self.done = true,
            After::More => {}
        }
    }

    fn document(&mut self, text: &str, out: &mut Vec<ModelEvent>) {
        match json::read(text) {
            Ok(Value::Array(list)) if list.iter().any(|item| Said::read(item).is_some()) => {
                let said = list.iter().find_map(Said::read);
                self.fail(Fault::Said(said.unwrap_or_default()));
            }
            Ok(document) => {
                self.chunk(&document, out);
                if S::is_whole(&document) {
                    // It is whole, or it would not have parsed.
                    self.speech.answer_mut().end(FinishReason::Unknown);
                } else {
                    self.fail(Fault::Unreadable(Unreadable::new(text)));
                }
            }
            Err(error) => {
                let mut read = false;
                for line in text.lines().filter(|line| !line.trim().is_empty()) {
                    if line.trim() == "[DONE]" {
                        read = true;
                        self.data("message", line, Whole::Surely, out);
                    } else if let Ok(chunk @ Value::Object(_)) = json::read(line) {
                        read = true;
                        self.chunk(&chunk, out);
                    }
                }
                if !read && !error.is_eof() {
                    self.fail(Fault::Unreadable(Unreadable::new(text)));
                }
            }
        }
    }
}
