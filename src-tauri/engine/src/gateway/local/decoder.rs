//! Frames of a model's own process, one JSON object a line.
//!
//! Invariant: only `Ended` ends an answer. The frames of an older ask, and a line whose beginning another attempt read,
//! come before the frame of this ask and are passed over; after it, what is no frame is a fault.

use protocol::model_process::Frame;
use serde_json::json;

use crate::gateway::{
    ModelEvent,
    answer::{Answer, Verdict, Wants},
    fault::{Fault, Unreadable},
    lines::{LINE_BYTES_MAX, Lines},
    thoughts::Source,
};

/// Whose frames are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// Those of this ask, when they begin.
    Awaited(u64),
    /// All there are.
    Ours,
}

/// Reads the answer to one ask.
pub(in crate::gateway) struct Decoder {
    lines: Lines,
    told: Told,
}

/// What was told so far.
struct Told {
    whose: Whose,
    answer: Answer,
    load_ms: Option<u64>,
    /// A frame of the answer came.
    stirred: bool,
}

impl Decoder {
    /// Of the ask with this number.
    pub(super) fn of(ask: u64) -> Self {
        Self::reading(Whose::Awaited(ask))
    }

    /// Of whatever comes.
    pub(in crate::gateway) fn of_any() -> Self {
        Self::reading(Whose::Ours)
    }

    fn reading(whose: Whose) -> Self {
        Self {
            lines: Lines::new(LINE_BYTES_MAX),
            told: Told {
                whose,
                answer: Answer::new(),
                load_ms: None,
                stirred: false,
            },
        }
    }

    pub(in crate::gateway) fn feed(&mut self, bytes: &[u8]) -> Vec<ModelEvent> {
        let Self { lines, told } = self;
        let mut out = Vec::new();
        let fed = lines.feed(bytes, |line| {
            told.line(line, &mut out);
            Ok(())
        });
        if fed.is_err() {
            told.answer.fail(Fault::TooLong);
        }
        out
    }

    pub(in crate::gateway) fn wants(&self) -> Wants {
        if self.told.answer.is_over() {
            Wants::Nothing
        } else {
            Wants::More
        }
    }

    /// Whether anything of the answer came, were it only how far its prompt is read.
    pub(super) fn has_stirred(&self) -> bool {
        self.told.stirred
    }

    /// Whether it was told that the model is in memory: by its own load, or by an answer that began.
    pub(super) fn has_loaded(&self) -> bool {
        self.told.load_ms.is_some() || self.told.whose == Whose::Ours
    }

    pub(in crate::gateway) fn began(&self) -> bool {
        self.told.answer.began()
    }

    /// A line without its end was cut, for here every line has one.
    pub(in crate::gateway) fn finish(self) -> Verdict {
        let mut answer = self.told.answer;
        answer.timings.load_ms = self.told.load_ms.or(answer.timings.load_ms);
        answer.finish()
    }
}

impl Told {
    fn line(&mut self, line: &str, out: &mut Vec<ModelEvent>) {
        if self.answer.is_over() || line.trim().is_empty() {
            return;
        }
        match (serde_json::from_str::<Frame>(line), self.whose) {
            (Ok(Frame::Asked { ask }), Whose::Awaited(ours)) if ask == ours => {
                self.whose = Whose::Ours;
            }
            // What happens to the model concerns every ask.
            (
                Ok(frame @ (Frame::Loading { .. } | Frame::Loaded { .. } | Frame::NotLoaded(_))),
                _,
            )
            | (Ok(frame), Whose::Ours) => self.frame(frame, out),
            (Ok(_) | Err(_), Whose::Awaited(_)) => {}
            (Err(_), Whose::Ours) => self.answer.fail(Fault::Unreadable(Unreadable::new(line))),
        }
    }

    fn frame(&mut self, frame: Frame, out: &mut Vec<ModelEvent>) {
        self.stirred |= self.whose == Whose::Ours;
        match frame {
            Frame::Ready | Frame::Asked { .. } => {}
            Frame::Loading { permille } => out.push(ModelEvent::Loading {
                permille: Some(permille),
            }),
            Frame::Loaded { load_ms, .. } => {
                self.load_ms = Some(load_ms);
                out.push(ModelEvent::Sent);
            }
            Frame::Reading { done, total } => out.push(ModelEvent::ReadingPrompt { done, total }),
            Frame::Text { text } => self.answer.content(&text, out),
            Frame::Thought { text } => self.answer.reasoning(Source::Thinking, &text, out),
            Frame::Calling { name, bytes } => out.push(ModelEvent::CallProgress {
                name: if name.is_empty() {
                    "a tool".to_owned()
                } else {
                    name
                },
                argument_bytes: bytes,
            }),
            Frame::Call { name, arguments } => {
                let call = json!({ "function": { "name": name, "arguments": arguments } });
                self.answer.calls([&call], out);
                // Here a call is never sent in pieces.
                self.answer.calls_are_whole(out);
            }
            Frame::Ended {
                finish,
                usage,
                timings,
                untold_tools,
            } => {
                self.answer.untold_tools = untold_tools;
                self.answer.usage = usage;
                self.answer.timings = timings;
                self.answer.end(finish);
            }
            Frame::NotLoaded(failed) | Frame::Failed(failed) => {
                self.answer.fail(Fault::Failed(failed))
            }
        }
    }
}

#[cfg(test)]
mod tests;
