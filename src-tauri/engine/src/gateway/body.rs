//! The body of an answer that should be server-sent events, taken for what it really is.
//!
//! Invariant: told by its first byte and never by a header. A plain JSON document is one, whatever was asked for; a web
//! page is one, whatever status and content type it came with. White space and a byte order mark before it say nothing.

use super::{
    fault::{EXCERPT_BYTES_MAX, Fault, Kind, Place, Said, Unreadable, clip},
    json,
    lines::{LINE_BYTES_MAX, TooLong},
    ollama::PAGE_BYTES_MAX,
    plain::Reading,
    sse::{Frame, Frames},
};

/// A body that is being read.
pub(super) struct Body {
    form: Form,
    reading: Reading,
}

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
    Frames(Box<Frames>),
    /// The whole of a JSON document.
    Document(String),
    /// A web page.
    Page(Fault),
}

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

impl Body {
    pub(super) fn new(reading: Reading) -> Self {
        Self {
            form: Form::Unknown(Vec::new()),
            reading,
        }
    }

    /// Tells `each` event that `bytes` complete.
    ///
    /// # Errors
    /// [`TooLong`]; the events before the long one have been told.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        each: impl FnMut(Frame<'_>),
    ) -> Result<(), TooLong> {
        if let Form::Unknown(head) = &mut self.form {
            head.extend_from_slice(bytes);
            let Some((form, body)) = Form::of(head, self.reading) else {
                return Ok(());
            };
            self.form = form;
            return self.add(&body, each);
        }
        self.add(bytes, each)
    }

    fn add(&mut self, bytes: &[u8], each: impl FnMut(Frame<'_>)) -> Result<(), TooLong> {
        match &mut self.form {
            Form::Events(events) => events.feed(bytes, each),
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
        match &self.form {
            Form::Page(page) if page.bytes > PAGE_BYTES_MAX => Some(Enough::Yes),
            Form::Page(_) => Some(Enough::NotYet),
            Form::Unknown(_) | Form::Events(_) | Form::Document(_) => None,
        }
    }

    /// What the end of the bytes completes; nothing of it is left.
    pub(super) fn finish(&mut self) -> Rest {
        match std::mem::replace(&mut self.form, Form::Unknown(Vec::new())) {
            Form::Unknown(_) => Rest::Nothing,
            Form::Events(frames) => Rest::Frames(frames),
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
    fn of(head: &mut Vec<u8>, reading: Reading) -> Option<(Self, Vec<u8>)> {
        // In any order, so that it does not matter in which pieces they come.
        loop {
            let blank = head
                .iter()
                .take_while(|byte| byte.is_ascii_whitespace())
                .count();
            head.drain(..blank);
            if !head.starts_with(BYTE_ORDER_MARK) {
                break;
            }
            head.drain(..BYTE_ORDER_MARK.len());
        }
        // Nothing yet, or perhaps the beginning of a mark.
        if BYTE_ORDER_MARK.starts_with(head) {
            return None;
        }
        let form = match head.first()? {
            b'<' => Self::Page(Page::default()),
            b'{' | b'[' => Self::Document(Vec::new()),
            _ => Self::Events(Box::new(Frames::new(LINE_BYTES_MAX, reading))),
        };
        Some((form, std::mem::take(head)))
    }
}

/// Whether a line may be a field of an event that we do not know, and not words.
fn may_be_field(line: &str) -> bool {
    let (name, value) = line.split_once(':').unwrap_or((line, ""));
    let is_name = name.len() <= 40
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    // A frame that lost its head is missing from the answer.
    let is_data = value.trim_start().starts_with(['{', '[', '"']);
    let is_complaint = ["error", "fail", "denied", "timeout"];
    let lower = line.to_ascii_lowercase();
    is_name && !is_data && !is_complaint.iter().any(|word| lower.contains(word))
}

/// Words between the events: a proxy's, or a frame that lost its head.
#[derive(Default)]
pub(super) struct Stray {
    text: String,
    before_end: bool,
    /// Some of it cannot be passed for fields of events that nobody knows.
    speaks: bool,
}

impl Stray {
    /// One more line of it; `over` if it came after the end marker.
    pub(super) fn keep(&mut self, line: &str, over: bool) {
        self.before_end |= !over;
        self.speaks |= !may_be_field(line);
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

    /// What it comes to, and whether some of it came before the end marker; `framed` if proper events came too, and
    /// `ended` if these came to their end.
    pub(super) fn verdict(&mut self, framed: bool, ended: bool) -> Option<(Fault, bool)> {
        let Self {
            text,
            before_end,
            speaks,
        } = std::mem::take(self);
        // Fields that nobody knows are to be passed over, says the standard; an answer without its end may want them.
        if text.is_empty() || (framed && ended && !speaks) {
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
