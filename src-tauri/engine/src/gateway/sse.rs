//! Server-sent events: lines in, frames out.
//!
//! The framing is eventsource-stream's. It is fed whole, repaired lines only, because of what it does not do itself:
//! a lone `\r` at the end of a read makes it wait for the next byte, bytes that are not UTF-8 make it wait for ever,
//! a long line is parsed again from its start at every read, and nothing bounds it. At the end of the bytes a last
//! event without its blank line is let out too: whether it is whole is for the JSON in it to say.
//! An event of one `data` line, with or without an `event` line before it, is what nearly all are: it says the same
//! without the parser, which copies every event five times ([`Reading`]).
//! Lines that are no server-sent event at all (a proxy's plain words) are handed on instead of being dropped.

use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use eventsource_stream::EventStream;
use futures_util::{Stream, task::noop_waker};

use super::{
    lines::{Lines, TooLong},
    plain::Reading,
};

/// One thing an event stream said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    /// An event with data.
    Data { event: &'a str, data: &'a str },
    /// A line that is no field of an event.
    Stray(&'a str),
}

/// The name of an event that was given none.
const UNNAMED: &str = "message";

/// Cuts bytes into frames.
pub(super) struct Frames {
    lines: Lines,
    events: Events,
}

/// Puts lines together to frames.
struct Events {
    reading: Reading,
    plain: Plain,
    queue: Queue,
    parser: EventStream<Queue>,
    /// Of the event being gathered: an event of endless lines is as bad as an endless line.
    event_bytes: usize,
    event_bytes_max: usize,
}

/// The lines of an event as long as it is a plain one.
#[derive(Default)]
struct Plain {
    stage: Stage,
    event: String,
    data: String,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    /// No line of it came.
    #[default]
    Nothing,
    /// Its name came.
    Named,
    /// Its data came, perhaps after its name.
    Told { named: bool },
    /// It is none: the parser has all its lines so far.
    Parsed,
}

impl Frames {
    pub(super) fn new(event_bytes_max: usize, reading: Reading) -> Self {
        let queue = Queue::default();
        Self {
            lines: Lines::new(event_bytes_max),
            events: Events {
                reading,
                plain: Plain::default(),
                parser: EventStream::new(queue.clone()),
                queue,
                event_bytes: 0,
                event_bytes_max,
            },
        }
    }

    /// Tells `each` frame that `bytes` complete.
    ///
    /// # Errors
    /// [`TooLong`]; the frames before the long one have been told.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(Frame<'_>),
    ) -> Result<(), TooLong> {
        let Self { lines, events } = self;
        lines.feed(bytes, |line| events.line(line, &mut each))
    }

    /// What the end of the bytes completes.
    pub(super) fn finish(self, mut each: impl FnMut(Frame<'_>)) {
        let Self {
            mut lines,
            mut events,
        } = self;
        if let Some(tail) = lines.finish().filter(|tail| !begins_field(tail)) {
            // Too long at the very end: there is no event in it, and the missing end marker tells.
            if events.line(&tail, &mut each).is_err() {
                return;
            }
        }
        events.end(&mut each);
    }
}

impl Events {
    fn line(&mut self, line: &str, each: &mut impl FnMut(Frame<'_>)) -> Result<(), TooLong> {
        if line.is_empty() {
            self.event_bytes = 0;
            self.end(each);
        } else if is_field(line) {
            self.event_bytes = self.event_bytes.saturating_add(line.len());
            if self.event_bytes > self.event_bytes_max {
                return Err(TooLong);
            }
            self.field(line, each);
        } else {
            each(Frame::Stray(line));
        }
        Ok(())
    }

    fn field(&mut self, line: &str, each: &mut impl FnMut(Frame<'_>)) {
        let plain = &mut self.plain;
        match (self.reading, plain.stage) {
            (Reading::Quick, Stage::Nothing) => {
                if let Some(name) = value(line, "event:").filter(|name| !name.is_empty()) {
                    plain.event.push_str(name);
                    plain.stage = Stage::Named;
                    return;
                }
                if let Some(data) = value(line, "data:") {
                    plain.data.push_str(data);
                    plain.stage = Stage::Told { named: false };
                    return;
                }
            }
            (Reading::Quick, Stage::Named) => {
                if let Some(data) = value(line, "data:") {
                    plain.data.push_str(data);
                    plain.stage = Stage::Told { named: true };
                    return;
                }
            }
            (Reading::Quick, Stage::Told { .. } | Stage::Parsed) | (Reading::Whole, _) => {}
        }
        self.unfold();
        self.push(line);
        self.drain(each);
    }

    /// The event's blank line came, or the end of the bytes.
    fn end(&mut self, each: &mut impl FnMut(Frame<'_>)) {
        let plain = &mut self.plain;
        match plain.stage {
            Stage::Nothing => {}
            Stage::Told { named } => {
                let event = if named { &plain.event } else { UNNAMED };
                each(Frame::Data {
                    event,
                    data: &plain.data,
                });
                plain.clear();
            }
            Stage::Named => plain.clear(),
            Stage::Parsed => {
                plain.clear();
                self.push("");
                self.drain(each);
            }
        }
    }

    /// It is no plain event: the parser gets what came of it.
    fn unfold(&mut self) {
        let Plain { stage, event, data } = std::mem::take(&mut self.plain);
        self.plain.stage = Stage::Parsed;
        let (named, told) = match stage {
            Stage::Nothing | Stage::Parsed => (false, false),
            Stage::Named => (true, false),
            Stage::Told { named } => (named, true),
        };
        if named {
            self.push(&format!("event: {event}"));
        }
        if told {
            self.push(&format!("data: {data}"));
        }
    }

    fn push(&self, line: &str) {
        self.queue.lines().push_back(format!("{line}\n"));
    }

    /// Never waits: the queue is empty, not closed, when everything was parsed.
    fn drain(&mut self, each: &mut impl FnMut(Frame<'_>)) {
        let waker = noop_waker();
        let mut cx = Context::from_waker(&waker);
        while let Poll::Ready(Some(event)) = Pin::new(&mut self.parser).poll_next(&mut cx) {
            // Whole lines of valid text always parse; were one not to, it is words we do not understand.
            match event {
                Ok(event) => each(Frame::Data {
                    event: &event.event,
                    data: &event.data,
                }),
                Err(error) => return each(Frame::Stray(&error.to_string())),
            }
        }
    }
}

impl Plain {
    /// Keeps the room for the next one.
    fn clear(&mut self) {
        self.stage = Stage::Nothing;
        self.event.clear();
        self.data.clear();
    }
}

/// The value of a field, of which one space before it is no part.
fn value<'a>(line: &'a str, field: &str) -> Option<&'a str> {
    let value = line.strip_prefix(field)?;
    Some(value.strip_prefix(' ').unwrap_or(value))
}

const FIELDS: [&str; 4] = ["data", "event", "id", "retry"];

/// Whether a line is a comment or one of the fields an event has.
fn is_field(line: &str) -> bool {
    let name = line.split_once(':').map_or(line, |(name, _)| name);
    name.is_empty() || FIELDS.contains(&name)
}

/// Whether a last line was cut in the name of its field.
fn begins_field(tail: &str) -> bool {
    FIELDS
        .iter()
        .any(|field| field.starts_with(tail) && *field != tail)
}

/// Lines on their way into the parser, shared with the half of the stream that it owns.
#[derive(Clone, Default)]
struct Queue(Arc<Mutex<VecDeque<String>>>);

impl Queue {
    fn lines(&self) -> std::sync::MutexGuard<'_, VecDeque<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stream for Queue {
    type Item = Result<String, Infallible>;

    fn poll_next(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.lines().pop_front() {
            Some(line) => Poll::Ready(Some(Ok(line))),
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    enum Seen {
        Data(String, String),
        Stray(String),
    }

    impl From<Frame<'_>> for Seen {
        fn from(frame: Frame<'_>) -> Self {
            match frame {
                Frame::Data { event, data } => Self::Data(event.to_owned(), data.to_owned()),
                Frame::Stray(line) => Self::Stray(line.to_owned()),
            }
        }
    }

    fn seen(bytes: &[u8], piece: usize, reading: Reading) -> Vec<Seen> {
        let (mut cutter, mut out) = (Frames::new(4096, reading), Vec::new());
        for piece in bytes.chunks(piece) {
            cutter.feed(piece, |frame| out.push(frame.into())).unwrap();
        }
        cutter.finish(|frame| out.push(frame.into()));
        out
    }

    fn frames(bytes: &[u8], piece: usize) -> Vec<Seen> {
        let quick = seen(bytes, piece, Reading::Quick);
        assert_eq!(quick, seen(bytes, piece, Reading::Whole));
        quick
    }

    fn data(data: &str) -> Seen {
        Seen::Data("message".into(), data.into())
    }

    #[test]
    fn frames_are_the_same_for_every_line_end_and_every_cut() {
        let text = ": ping\n\ndata:a\n\ndata:\n\ndata:  b\nid: 7\n\n:\n\ndata: naïve 👩‍👩‍👧‍👦\n\ndata: [DONE] \n\n";
        let want = vec![
            data("a"),
            data(""),
            data(" b"),
            data("naïve 👩‍👩‍👧‍👦"),
            data("[DONE] "),
        ];
        for text in [
            text.to_owned(),
            text.replace('\n', "\r\n"),
            text.replace('\n', "\r"),
            format!("\u{feff}{text}"),
            text.replace("\n\n", "\r\n\n"),
        ] {
            for piece in [1, 2, 3, 5, 4096] {
                assert_eq!(frames(text.as_bytes(), piece), want, "{piece}: {text:?}");
            }
        }
    }

    #[test]
    fn an_event_is_out_as_soon_as_its_blank_line_is_even_if_that_ends_in_a_lone_cr() {
        let (mut cutter, mut out) = (Frames::new(4096, Reading::Quick), Vec::new());
        let each = |frame: Frame<'_>| out.push(Seen::from(frame));
        cutter.feed(b"data: a\r\r", each).unwrap();
        assert_eq!(out, vec![data("a")]);
    }

    #[test]
    fn a_last_event_without_its_blank_line_or_line_end_is_let_out() {
        assert_eq!(frames(b"data: a\n", 1), vec![data("a")]);
        assert_eq!(frames(b"data: [DONE]", 3), vec![data("[DONE]")]);
        assert_eq!(frames(b"data: a\n\nda", 3), vec![data("a")]);
    }

    #[test]
    fn words_that_are_no_event_are_handed_on_in_their_place() {
        assert_eq!(
            frames(b"data: a\n\nproxy error: Failed to read connection", 4),
            vec![
                data("a"),
                Seen::Stray("proxy error: Failed to read connection".into())
            ]
        );
    }

    #[test]
    fn bytes_that_are_no_text_do_not_stop_the_stream() {
        assert_eq!(
            frames(b"data: a\xffb\n\ndata: c\n\n", 1),
            vec![data("a\u{fffd}b"), data("c")]
        );
    }

    #[test]
    fn an_event_of_endless_lines_is_refused() {
        let mut cutter = Frames::new(64, Reading::Quick);
        let line = format!("data: {}\n", "x".repeat(16));
        let mut fed = Ok(());
        for _ in 0..5 {
            fed = cutter.feed(line.as_bytes(), |_| {});
        }
        assert_eq!(fed, Err(TooLong));
    }

    proptest! {
        #[test]
        fn what_the_parser_would_say_is_said_without_it_too(
            lines in prop::collection::vec(
                prop::sample::select(vec![
                    "", "", "data: a", "data:", "data", "data:  b", "event: e", "event:", "event", "event: error",
                    ": c", ":", "id: 7", "retry: 9", "words", "{}", "da", "\u{feff}data: x", "data: \u{feff}",
                ]),
                0..12,
            ),
            piece in 1_usize..9,
            end in prop::sample::select(vec!["\n", "\r\n", "\r"]),
        ) {
            frames(lines.join(end).as_bytes(), piece);
        }
    }
}
