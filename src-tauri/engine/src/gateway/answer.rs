//! One answer being put together, the same for every dialect.
//!
//! Invariant: after the end marker or a fault nothing changes any more, unless the server shows by more of the answer
//! that its marker was none. Calls that come in pieces are given out with the verdict: whole only if the answer is.
//! White space alone opens no item: it is held until words of its part follow, and an answer of nothing else is empty.

use protocol::{FinishReason, Part, Timings, Usage};
use serde_json::Value;

use super::{
    ModelEvent, StepEnd,
    calls::{Calls, Restated, TooMuch},
    fault::Fault,
    tags::{Said, Tags},
    thoughts::{Source, Thoughts},
};

/// What a decoder still wants to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    /// The answer.
    More,
    /// Only a rest that may be waited for a moment: the usage of a whole answer, or more of what is no answer.
    Rest,
    /// Nothing: the verdict is in.
    Nothing,
}

/// A decoder's last words.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Verdict {
    /// What had been held back.
    pub(super) events: Vec<ModelEvent>,
    /// How it ended.
    pub(super) end: Result<StepEnd, Fault>,
}

/// The answer so far.
#[derive(Debug)]
pub(super) struct Answer {
    tags: Tags,
    /// Empty between deltas: room for what one says, to be used again.
    words: Vec<Said>,
    thoughts: Thoughts,
    calls: Calls,
    /// Whose words came last.
    part: Option<Part>,
    /// White space that may come to open an item of this part.
    blank: Option<(Part, String)>,
    /// Words, not white space, came out.
    spoke: bool,
    /// Something of the answer came in: text, even blank, or a call.
    began: bool,
    called: bool,
    /// A marker was followed by more of the answer: no marker of this server says much.
    reopened: bool,
    /// More of the answer came after its marker; it belongs to it, and the marker stands.
    resumed: bool,
    ended: Option<FinishReason>,
    fault: Option<Fault>,
    pub(super) usage: Usage,
    /// Of which the model was not told, as it says itself.
    pub(super) untold_tools: u64,
    pub(super) timings: Timings,
}

impl Answer {
    pub(super) fn new() -> Self {
        Self {
            tags: Tags::new(),
            words: Vec::new(),
            thoughts: Thoughts::default(),
            calls: Calls::default(),
            part: None,
            blank: None,
            spoke: false,
            began: false,
            called: false,
            reopened: false,
            resumed: false,
            ended: None,
            fault: None,
            usage: Usage::default(),
            untold_tools: 0,
            timings: Timings::default(),
        }
    }

    /// The reasoning so far.
    pub(super) fn thought(&self) -> &str {
        self.thoughts.shown()
    }

    /// Nothing but a marker that this server puts everywhere says that the answer is whole.
    pub(super) fn distrust_end(&mut self) {
        if self.reopened && self.ended.is_some() {
            let called = self.called || !self.calls.is_empty();
            self.ended = (!called).then_some(FinishReason::Unknown);
        }
    }

    /// Whether anything of the answer has come.
    pub(super) fn began(&self) -> bool {
        self.began
    }

    /// Whether the end marker is one after which more may come all the same.
    pub(super) fn was_reopened(&self) -> bool {
        self.reopened
    }

    /// The end marker was none: more of the answer came with or after it.
    pub(super) fn reopen(&mut self) {
        if self.fault.is_none() && self.ended.take().is_some() {
            self.reopened = true;
        }
    }

    /// More of the answer came after its end marker: it is not dropped, and the marker stands until another one comes.
    pub(super) fn resume(&mut self) {
        self.resumed |= self.ended.is_some();
    }

    /// Whether nothing is taken any more.
    pub(super) fn is_shut(&self) -> bool {
        self.fault.is_some() || (self.ended.is_some() && !self.resumed)
    }

    /// Whether the end marker or a fault was seen.
    pub(super) fn is_over(&self) -> bool {
        self.ended.is_some() || self.fault.is_some()
    }

    pub(super) fn has_fault(&self) -> bool {
        self.fault.is_some()
    }

    /// Content came, perhaps with reasoning tagged in it.
    pub(super) fn content(&mut self, text: &str, out: &mut Vec<ModelEvent>) {
        if text.is_empty() || self.is_shut() {
            return;
        }
        self.began = true;
        let mut words = std::mem::take(&mut self.words);
        self.tags.feed(text, self.thoughts.shown(), &mut words);
        for said in words.drain(..) {
            match said {
                Said::Words(Part::Answer, text) => self.say(Part::Answer, text, out),
                Said::Words(Part::Reasoning, text) => {
                    let text = self.thoughts.add(Source::Tagged, &text);
                    self.say(Part::Reasoning, text, out);
                }
                Said::WasReasoning => {
                    self.blank = None;
                    if self.part.take().is_some() {
                        out.push(ModelEvent::FoundReasoning);
                    }
                }
            }
        }
        self.words = words;
    }

    /// Reasoning came in a field of its own. The same thought under another name is not shown again.
    pub(super) fn reasoning(&mut self, source: Source, text: &str, out: &mut Vec<ModelEvent>) {
        if text.is_empty() || self.is_shut() {
            return;
        }
        self.began = true;
        let text = self.thoughts.add(source, text);
        if text.is_empty() {
            return;
        }
        if !self.tags.is_in_block() {
            self.tags.separated();
            self.flush(out);
        }
        self.say(Part::Reasoning, text, out);
    }

    /// Entries of `tool_calls` came, all of them in one list.
    pub(super) fn calls<'a>(
        &mut self,
        entries: impl IntoIterator<Item = &'a Value>,
        out: &mut Vec<ModelEvent>,
    ) {
        if self.is_shut() {
            return;
        }
        self.calls.next_delta();
        for entry in entries {
            match self.calls.add(entry) {
                Ok(progress) => {
                    self.began |= progress.is_some();
                    out.extend(progress);
                }
                Err(TooMuch) => return self.fail(Fault::TooLong),
            }
        }
    }

    /// The `tool_calls` of a whole message came; they may be known already.
    pub(super) fn calls_again(
        &mut self,
        entries: &[Value],
        how: Restated,
        out: &mut Vec<ModelEvent>,
    ) {
        if self.is_shut() {
            return;
        }
        self.calls.next_delta();
        match self.calls.restate(entries, how) {
            Ok(progress) => {
                self.began |= !progress.is_empty();
                out.extend(progress);
            }
            Err(TooMuch) => self.fail(Fault::TooLong),
        }
    }

    /// The calls so far are whole: the server says so by how it sends them.
    pub(super) fn calls_are_whole(&mut self, out: &mut Vec<ModelEvent>) {
        if !self.is_over() {
            self.called |= !self.calls.is_empty();
            out.extend(self.calls.take());
        }
    }

    /// The end marker came.
    pub(super) fn end(&mut self, finish: FinishReason) {
        let says_more = self.resumed && self.fault.is_none() && finish != FinishReason::Unknown;
        if self.is_over() && !says_more {
            return;
        }
        self.ended = Some(finish);
    }

    /// Something is wrong with it. What comes first stands.
    pub(super) fn fail(&mut self, fault: Fault) {
        if !self.is_over() {
            self.fault = Some(fault);
        }
    }

    /// Something is wrong that was seen before the end marker, and is known only now: the answer is not whole.
    pub(super) fn spoil(&mut self, fault: Fault) {
        self.ended = None;
        self.fault.get_or_insert(fault);
    }

    /// The verdict at the end of the bytes.
    pub(super) fn finish(mut self) -> Verdict {
        let mut events = Vec::new();
        self.flush(&mut events);
        let Some(finish) = self.ended else {
            events.extend(self.calls.take_cut());
            let fault = self.fault.unwrap_or(Fault::Truncated);
            return Verdict {
                events,
                end: Err(fault.after(self.began)),
            };
        };
        let called = self.called || !self.calls.is_empty();
        events.extend(match finish {
            FinishReason::Length | FinishReason::Filter => self.calls.take_ended_early(),
            FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Unknown => {
                self.calls.take()
            }
        });
        // A backend that ends a call with "stop" has called all the same.
        let finish = match finish {
            FinishReason::Stop | FinishReason::Unknown if called => FinishReason::ToolCalls,
            FinishReason::Stop
            | FinishReason::Length
            | FinishReason::ToolCalls
            | FinishReason::Filter
            | FinishReason::Unknown => finish,
        };
        let end = if finish == FinishReason::ToolCalls && !called {
            Err(Fault::CallsMissing)
        } else if !self.spoke && !called {
            Err(Fault::Empty)
        } else {
            Ok(StepEnd {
                finish,
                usage: self.usage,
                timings: self.timings,
                unseen_images: 0,
                untold_tools: self.untold_tools,
            })
        };
        Verdict { events, end }
    }

    /// Lets go of what might have become a tag.
    fn flush(&mut self, out: &mut Vec<ModelEvent>) {
        if let Some((part, text)) = self.tags.finish() {
            let text = match part {
                Part::Answer => text,
                Part::Reasoning => self.thoughts.add(Source::Tagged, &text),
            };
            self.say(part, text, out);
        }
    }

    fn say(&mut self, part: Part, text: String, out: &mut Vec<ModelEvent>) {
        if text.is_empty() {
            return;
        }
        let text = if self.part == Some(part) {
            self.blank = None;
            text
        } else {
            let text = match self.blank.take() {
                Some((held, blank)) if held == part => blank + &text,
                Some(_) | None => text,
            };
            if text.trim().is_empty() {
                self.blank = Some((part, text));
                return;
            }
            self.part = Some(part);
            text
        };
        self.spoke = true;
        out.push(ModelEvent::Text { part, text });
    }
}

/// A whole number, however a server writes it.
pub(super) fn whole(value: Option<&Value>) -> Option<u64> {
    let value = value?;
    value
        .as_u64()
        // Fractions of a millisecond or token mean nothing to the reader; `as` saturates.
        .or_else(|| {
            value
                .as_f64()
                .filter(|f| *f >= 0.0)
                .map(|f| f.round() as u64)
        })
        .or_else(|| value.as_str()?.trim().parse().ok())
        // No server counts that far: such a number would poison every sum that it went into.
        .filter(|number| *number <= NUMBER_MAX)
}

/// The largest whole number that JSON carries everywhere.
const NUMBER_MAX: u64 = 1 << 53;
