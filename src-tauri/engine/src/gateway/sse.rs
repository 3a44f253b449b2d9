//! Server-sent events: lines in, frames out.
//!
//! The framing is eventsource-stream's. It is fed whole, repaired lines only, because of what it does not do itself:
//! a lone `\r` at the end of a read makes it wait for the next byte, bytes that are not UTF-8 make it wait for ever,
//! a long line is parsed again from its start at every read, and nothing bounds it. At the end of the bytes a last
//! event without its blank line is let out too: whether it is whole is for the JSON in it to say.
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

use super::lines::{Lines, TooLong};

/// One thing an event stream said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// An event with data.
    Data { event: String, data: String },
    /// A line that is no field of an event.
    Stray(String),
}

/// Cuts bytes into frames.
pub(super) struct Frames {
    lines: Lines,
    queue: Queue,
    events: EventStream<Queue>,
    /// Of the event being gathered: an event of endless lines is as bad as an endless line.
    event_bytes: usize,
    event_bytes_max: usize,
}

impl Frames {
    pub(super) fn new(event_bytes_max: usize) -> Self {
        let queue = Queue::default();
        Self {
            lines: Lines::new(event_bytes_max),
            events: EventStream::new(queue.clone()),
            queue,
            event_bytes: 0,
            event_bytes_max,
        }
    }

    /// Adds what `bytes` complete to `frames`.
    ///
    /// # Errors
    /// [`TooLong`]; the frames before the long one have been added.
    pub(super) fn feed(&mut self, bytes: &[u8], frames: &mut Vec<Frame>) -> Result<(), TooLong> {
        let mut lines = Vec::new();
        let fed = self.lines.feed(bytes, &mut lines);
        for line in lines {
            self.line(line, frames)?;
        }
        fed
    }

    /// What the end of the bytes completes.
    pub(super) fn finish(mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        if let Some(tail) = self.lines.finish().filter(|tail| !begins_field(tail)) {
            // Too long at the very end: there is no event in it, and the missing end marker tells.
            if self.line(tail, &mut frames).is_err() {
                return frames;
            }
        }
        self.push(String::new());
        self.drain(&mut frames);
        frames
    }

    fn line(&mut self, line: String, frames: &mut Vec<Frame>) -> Result<(), TooLong> {
        if line.is_empty() {
            self.event_bytes = 0;
        } else if is_field(&line) {
            self.event_bytes = self.event_bytes.saturating_add(line.len());
            if self.event_bytes > self.event_bytes_max {
                return Err(TooLong);
            }
        } else {
            frames.push(Frame::Stray(line));
            return Ok(());
        }
        self.push(line);
        self.drain(frames);
        Ok(())
    }

    fn push(&self, mut line: String) {
        line.push('\n');
        self.queue.lines().push_back(line);
    }

    /// Never waits: the queue is empty, not closed, when everything was parsed.
    fn drain(&mut self, frames: &mut Vec<Frame>) {
        let waker = noop_waker();
        let mut cx = Context::from_waker(&waker);
        while let Poll::Ready(Some(event)) = Pin::new(&mut self.events).poll_next(&mut cx) {
            // Whole lines of valid text always parse; were one not to, it is words we do not understand.
            frames.push(match event {
                Ok(event) => Frame::Data {
                    event: event.event,
                    data: event.data,
                },
                Err(error) => {
                    frames.push(Frame::Stray(error.to_string()));
                    return;
                }
            });
        }
    }
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
    use super::*;

    fn frames(bytes: &[u8], piece: usize) -> Vec<Frame> {
        let (mut cutter, mut out) = (Frames::new(4096), Vec::new());
        for piece in bytes.chunks(piece) {
            cutter.feed(piece, &mut out).unwrap();
        }
        out.extend(cutter.finish());
        out
    }

    fn data(data: &str) -> Frame {
        Frame::Data {
            event: "message".into(),
            data: data.into(),
        }
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
        let (mut cutter, mut out) = (Frames::new(4096), Vec::new());
        cutter.feed(b"data: a\r\r", &mut out).unwrap();
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
                Frame::Stray("proxy error: Failed to read connection".into())
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
        let mut cutter = Frames::new(64);
        let line = format!("data: {}\n", "x".repeat(16));
        let mut fed = Ok(());
        for _ in 0..5 {
            fed = cutter.feed(line.as_bytes(), &mut Vec::new());
        }
        assert_eq!(fed, Err(TooLong));
    }
}
