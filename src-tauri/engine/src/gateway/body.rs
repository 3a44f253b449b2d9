//! The body of an answer that should be server-sent events, taken for what it really is.
//!
//! Invariant: told by its first byte and never by a header. A plain JSON document is one, whatever was asked for; a web
//! page is one, whatever status and content type it came with. White space and a byte order mark before it say nothing.

use super::{
    fault::{EXCERPT_BYTES_MAX, Fault, Kind, Place, Said, Unreadable, clip},
    json,
    lines::{LINE_BYTES_MAX, TooLong},
    ollama::PAGE_BYTES_MAX,
    sse::{Frame, Frames},
};

/// A body that is being read.
pub(super) struct Body(Form);

/// What the body turned out to be.
enum Form {
    Unknown(Vec<u8>),
    Events(Box<Frames>),
    /// A JSON answer to a request for a stream.
    Document(Vec<u8>),
    Page(Page),
}

/// A web page: as much of it as is worth keeping, and how long it is.
#[derive(Default)]
struct Page {
    head: Vec<u8>,
    bytes: u64,
}

/// What the end of the bytes leaves to be read.
pub(super) enum Rest {
    Nothing,
    /// The last events, the very last of them perhaps without its end.
    Frames(Vec<Frame>),
    /// The whole of a JSON document.
    Document(String),
    /// A web page.
    Page(Fault),
}

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

impl Body {
    pub(super) fn new() -> Self {
        Self(Form::Unknown(Vec::new()))
    }

    /// Adds the events that `bytes` complete to `frames`.
    ///
    /// # Errors
    /// [`TooLong`]; the events before the long one have been added.
    pub(super) fn feed(&mut self, bytes: &[u8], frames: &mut Vec<Frame>) -> Result<(), TooLong> {
        if let Form::Unknown(head) = &mut self.0 {
            head.extend_from_slice(bytes);
            let Some((form, body)) = Form::of(head) else {
                return Ok(());
            };
            self.0 = form;
            return self.add(&body, frames);
        }
        self.add(bytes, frames)
    }

    fn add(&mut self, bytes: &[u8], frames: &mut Vec<Frame>) -> Result<(), TooLong> {
        match &mut self.0 {
            Form::Events(events) => events.feed(bytes, frames),
            Form::Document(document) => {
                let room = LINE_BYTES_MAX.saturating_sub(document.len());
                document.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
                if bytes.len() > room {
                    Err(TooLong)
                } else {
                    Ok(())
                }
            }
            Form::Page(page) => {
                let room = EXCERPT_BYTES_MAX.saturating_sub(page.head.len());
                page.head
                    .extend_from_slice(bytes.get(..room).unwrap_or(bytes));
                page.bytes = page.bytes.saturating_add(bytes.len() as u64);
                Ok(())
            }
            Form::Unknown(_) => Ok(()),
        }
    }

    /// Whether it is a web page, and enough of it was read.
    pub(super) fn is_page(&self) -> Option<Enough> {
        match &self.0 {
            Form::Page(page) if page.bytes > PAGE_BYTES_MAX => Some(Enough::Yes),
            Form::Page(_) => Some(Enough::NotYet),
            Form::Unknown(_) | Form::Events(_) | Form::Document(_) => None,
        }
    }

    /// What the end of the bytes completes; nothing of it is left.
    pub(super) fn finish(&mut self) -> Rest {
        match std::mem::replace(&mut self.0, Form::Unknown(Vec::new())) {
            Form::Unknown(_) => Rest::Nothing,
            Form::Events(frames) => Rest::Frames(frames.finish()),
            Form::Document(document) => {
                Rest::Document(String::from_utf8_lossy(&document).into_owned())
            }
            Form::Page(page) => Rest::Page(Fault::Unreadable(Unreadable {
                kind: Kind::Page,
                place: Place::Instead,
                bytes: page.bytes,
                excerpt: clip(&String::from_utf8_lossy(&page.head), EXCERPT_BYTES_MAX).to_owned(),
            })),
        }
    }
}

/// Whether a web page was read far enough to be named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Enough {
    Yes,
    NotYet,
}

impl Form {
    /// What the body is, and its bytes so far; none while only white space came.
    fn of(head: &mut Vec<u8>) -> Option<(Self, Vec<u8>)> {
        if BYTE_ORDER_MARK.starts_with(head) && head.len() < BYTE_ORDER_MARK.len() {
            return None;
        }
        if head.starts_with(BYTE_ORDER_MARK) {
            head.drain(..BYTE_ORDER_MARK.len());
        }
        let blank = head
            .iter()
            .take_while(|byte| byte.is_ascii_whitespace())
            .count();
        head.drain(..blank);
        let form = match head.first()? {
            b'<' => Self::Page(Page::default()),
            b'{' | b'[' => Self::Document(Vec::new()),
            _ => Self::Events(Box::new(Frames::new(LINE_BYTES_MAX))),
        };
        Some((form, std::mem::take(head)))
    }
}

/// Words between the events: a proxy's, or a frame that lost its head.
#[derive(Default)]
pub(super) struct Stray {
    text: String,
    before_end: bool,
}

impl Stray {
    /// One more line of it; `over` if it came after the end marker.
    pub(super) fn keep(&mut self, line: &str, over: bool) {
        self.before_end |= !over;
        if !self.text.is_empty() && self.text.len() < EXCERPT_BYTES_MAX {
            self.text.push('\n');
        }
        let room = EXCERPT_BYTES_MAX.saturating_sub(self.text.len());
        self.text.push_str(clip(line, room));
    }

    /// All of it so far.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// It was understood after all.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// What it comes to, and whether some of it came before the end marker; `framed` if proper events came too.
    pub(super) fn verdict(&mut self, framed: bool) -> Option<(Fault, bool)> {
        let Self { text, before_end } = std::mem::take(self);
        if text.is_empty() {
            return None;
        }
        let words = framed || text.starts_with("proxy error");
        // An error over several lines.
        let said = json::read(&text).ok().and_then(|value| Said::read(&value));
        let fault = match (said, Kind::of(&text)) {
            (Some(said), _) => Fault::Said(said),
            (None, Kind::Text) if words => Fault::Said(Said::words(&text)),
            (None, Kind::Text | Kind::Page | Kind::Json | Kind::BrokenJson) => {
                Fault::Unreadable(Unreadable::new(&text))
            }
        };
        Some((fault, before_end))
    }
}
