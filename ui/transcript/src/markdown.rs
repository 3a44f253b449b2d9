//! Markdown that grows: a text pushed piece by piece becomes blocks to draw, and only its unfinished tail is read again.
//!
//! Invariant: after `finish`, the blocks are those of the whole text, however it was cut into pieces; blocks before
//! [`Update::kept`] never change again. CommonMark decides line by line, so a block is final once a complete line has
//! begun another one. The same holds for the items of the last list and the rows of the last table, and an open code
//! fence takes lines without being read as Markdown at all: the cost of a push does not grow with the text.
//! A single paragraph, item or quotation above a few kilobytes is read again whenever it has grown by a sixteenth; what
//! comes in between is shown as plain text until then.
//! Deliberately not here: link reference definitions (they would change what was drawn long ago; they are shown as the
//! text they are), footnotes, maths, and any HTML: what looks like it is text.

mod address;
mod fence;
mod parse;

use fence::{Fed, Fence};
use parse::{Parsed, Top};

/// Below this, reading all of the tail again costs less than a frame notices.
const TAIL_ALWAYS_READ: usize = 2 * 1024;
/// Above it, the tail is read again when this fraction of it is new, which makes the cost per byte a constant.
const TAIL_GROWTH: usize = 16;
/// Long texts are taken in by pieces, so that a tail stays short also when all of it comes at once.
const PIECE: usize = 4 * 1024;

/// A Markdown text that grows.
#[derive(Clone, Debug, Default)]
pub struct Document {
    blocks: Vec<Block>,
    /// Blocks before this one are final.
    kept: usize,
    /// What is known of the block at `kept`.
    open: Open,
    /// The source that may still mean something else: all of it while plain, only what follows the final items or rows
    /// of a list or table, and nothing within a fence.
    tail: String,
    /// How long the tail was when it was last read.
    read: usize,
    /// The last piece ended in a carriage return; a line feed that follows belongs to it.
    after_return: bool,
    /// How much source was read in all, for the tests of cost.
    #[cfg(test)]
    read_in_all: usize,
}

/// The block that may still grow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Open {
    /// Nothing of it is final.
    #[default]
    Plain,
    /// A list whose first items are final.
    List { items: usize },
    /// A table whose head (kept as its source) and first rows are final.
    Table { head: String, rows: usize },
    /// Code whose closing fence has not come.
    Fence(Fence),
}

/// What a push or the finish changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update {
    /// Blocks before this index are unchanged and final; those from it on are new or changed.
    pub kept: usize,
    /// Of the block at `kept`, what is unchanged since the last update.
    pub within: Within,
}

/// How much of a block that changed did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Within {
    /// Take all of it as new.
    Nothing,
    /// Its first so many items (of a list) are unchanged and final.
    Items(usize),
    /// Its head and first so many rows (of a table) are unchanged and final.
    Rows(usize),
    /// Its first so many bytes of text (of code) are unchanged; what follows was added.
    CodeBytes(usize),
}

/// A block, as CommonMark has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// A heading of level 1 to 6.
    Heading { level: u8, inlines: Vec<Inline> },
    /// A paragraph.
    Paragraph(Vec<Inline>),
    /// A list; with `start` an ordered one.
    List {
        start: Option<u64>,
        items: Vec<ListItem>,
    },
    /// A table.
    Table {
        align: Vec<Align>,
        head: Vec<Vec<Inline>>,
        rows: Vec<Vec<Vec<Inline>>>,
    },
    /// Code; not `closed` while its closing fence is missing.
    Code {
        language: Option<String>,
        text: String,
        closed: bool,
    },
    /// A quotation.
    Quote(Vec<Block>),
    /// A thematic break.
    Rule,
    /// Raw HTML, to be shown as the text it is.
    Html(String),
}

/// One item of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListItem {
    /// Whether it is a task, and whether that is done.
    pub task: Option<bool>,
    /// What it says.
    pub blocks: Vec<Block>,
}

/// How a table's column is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Not said.
    None,
    /// To the left.
    Left,
    /// In the middle.
    Center,
    /// To the right.
    Right,
}

/// A piece of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inline {
    /// Plain text.
    Text(String),
    /// Code.
    Code(String),
    /// Emphasis.
    Emphasis(Vec<Inline>),
    /// Strong emphasis.
    Strong(Vec<Inline>),
    /// Struck through.
    Strike(Vec<Inline>),
    /// A link to an http, https or mailto address; there are no others.
    Link {
        href: String,
        title: String,
        inlines: Vec<Inline>,
    },
    /// An image, which is never fetched.
    Image { src: String, alt: String },
    /// The end of a source line.
    SoftBreak,
    /// A break that was asked for.
    HardBreak,
    /// Raw HTML, to be shown as the text it is.
    Html(String),
}

impl Document {
    /// Without text.
    pub fn new() -> Self {
        Self::default()
    }

    /// All of a text at once.
    pub fn from_text(text: &str) -> Self {
        let mut document = Self::new();
        document.push(text);
        document.finish();
        document
    }

    /// What there is.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Adds text at the end.
    pub fn push(&mut self, text: &str) -> Update {
        let update = self.unchanged();
        let mut rest = text;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(piece_end(rest));
            self.take(piece);
            rest = after;
        }
        update
    }

    /// No more text comes: what was left open is what it is.
    pub fn finish(&mut self) -> Update {
        let update = self.unchanged();
        self.read_tail();
        if let Open::Fence(fence) = &mut self.open
            && let Some(Block::Code { text, closed, .. }) = self.blocks.last_mut()
        {
            *closed = fence.finish(text);
        }
        self.kept = self.blocks.len();
        self.open = Open::Plain;
        self.tail.clear();
        self.read = 0;
        self.after_return = false;
        update
    }

    /// What no change from here on touches.
    fn unchanged(&self) -> Update {
        let within = match &self.open {
            Open::Plain => Within::Nothing,
            Open::List { items } => Within::Items(*items),
            Open::Table { rows, .. } => Within::Rows(*rows),
            Open::Fence(_) => match self.blocks.last() {
                Some(Block::Code { text, .. }) => Within::CodeBytes(text.len()),
                Some(_) | None => Within::Nothing,
            },
        };
        Update {
            kept: self.kept,
            within,
        }
    }

    fn take(&mut self, piece: &str) {
        let piece = self.with_plain_line_ends(piece);
        if let Open::Fence(fence) = &mut self.open {
            let Some(Block::Code { text, closed, .. }) = self.blocks.last_mut() else {
                return;
            };
            match fence.feed(&piece, text) {
                Fed::Open => return,
                Fed::Closed { rest } => {
                    *closed = true;
                    self.kept = self.blocks.len();
                    self.open = Open::Plain;
                    self.read = 0;
                    self.tail.push_str(rest);
                }
            }
        } else {
            self.tail.push_str(&piece);
            let grown = self.tail.len().saturating_sub(self.read);
            if self.tail.len() > TAIL_ALWAYS_READ && grown < self.tail.len() / TAIL_GROWTH {
                extend(&mut self.blocks, &piece);
                return;
            }
        }
        self.read_tail();
    }

    /// Line feeds only, and no NUL: what CommonMark prescribes, and what makes cutting at any place harmless.
    fn with_plain_line_ends(&mut self, piece: &str) -> String {
        let mut plain = String::with_capacity(piece.len());
        for char in piece.chars() {
            match char {
                '\n' if self.after_return => {}
                '\r' => plain.push('\n'),
                '\0' => plain.push('\u{fffd}'),
                other => plain.push(other),
            }
            self.after_return = char == '\r';
        }
        plain
    }

    /// Reads the tail, replaces what it had become before, and lets go of what is final now.
    fn read_tail(&mut self) {
        while !matches!(self.open, Open::Fence(_)) {
            let prefix = match &self.open {
                Open::Table { head, .. } => head.clone(),
                Open::Plain | Open::List { .. } | Open::Fence(_) => String::new(),
            };
            let prefix_len = prefix.len();
            let mut source = prefix + &self.tail;
            #[cfg(test)]
            {
                self.read_in_all += source.len();
            }
            let Parsed { blocks, tops } = parse::blocks(&mut source);
            self.place(blocks);
            let again = self.settle(&source, prefix_len, &tops);
            self.read = self.tail.len();
            if !again {
                return;
            }
        }
    }

    /// Puts the tail's blocks in the place of those it had become before.
    fn place(&mut self, blocks: Vec<Block>) {
        let mut blocks = blocks.into_iter();
        match &self.open {
            Open::Plain | Open::Fence(_) => self.blocks.truncate(self.kept),
            Open::List { items: kept } => {
                self.blocks.truncate(self.kept + 1);
                if let Some(Block::List { items, .. }) = self.blocks.last_mut() {
                    items.truncate(*kept);
                    if let Some(Block::List { items: new, .. }) = blocks.next() {
                        items.extend(new);
                    }
                }
            }
            Open::Table { rows: kept, .. } => {
                self.blocks.truncate(self.kept + 1);
                if let Some(Block::Table { rows, .. }) = self.blocks.last_mut() {
                    rows.truncate(*kept);
                    if let Some(Block::Table { rows: new, .. }) = blocks.next() {
                        rows.extend(new);
                    }
                }
            }
        }
        self.blocks.extend(blocks);
    }

    /// Lets go of the source of what is final: whole blocks, then items or rows of the one that is not.
    /// Says whether there is source that has not been read yet.
    fn settle(&mut self, source: &str, prefix_len: usize, tops: &[Top]) -> bool {
        let lines = Lines(source);
        let done = (0..tops.len())
            .rev()
            .find(|index| {
                let Some(top) = tops.get(*index) else {
                    return false;
                };
                match self.blocks.get(self.kept + index) {
                    // Only its second line makes it a table, and not a part of the paragraph before. While that line
                    // grows, what may become a table stands for a moment as a paragraph of its own.
                    Some(Block::Table { .. } | Block::Paragraph(_)) => {
                        lines.is_complete(lines.end(top.start))
                    }
                    Some(_) | None => lines.is_complete(top.start),
                }
            })
            .unwrap_or(0);
        if done > 0 {
            self.kept += done;
            self.open = Open::Plain;
        }
        let Some(top) = tops.get(done) else {
            // Blank lines; only the last one may still become something.
            if self.open == Open::Plain {
                self.tail = lines.last().to_owned();
            }
            return false;
        };
        let start = lines.start(top.start);
        let mut cut = match &self.open {
            Open::Plain => start,
            Open::List { .. } | Open::Table { .. } | Open::Fence(_) => prefix_len,
        };
        match self.blocks.get(self.kept) {
            Some(Block::List { .. }) => {
                let begun = top
                    .parts
                    .iter()
                    .skip(1)
                    .rposition(|at| lines.is_complete(*at));
                if let Some(before) = begun.map(|index| index + 1)
                    && let Some(at) = top.parts.get(before)
                {
                    let items = match &self.open {
                        Open::List { items } => items + before,
                        Open::Plain | Open::Table { .. } | Open::Fence(_) => before,
                    };
                    self.open = Open::List { items };
                    cut = lines.start(*at);
                }
            }
            Some(Block::Table { .. }) => {
                let whole = top
                    .parts
                    .iter()
                    .take_while(|at| lines.is_complete(**at))
                    .count();
                if let Some(last) = whole.checked_sub(1).and_then(|last| top.parts.get(last)) {
                    let end = lines.end(*last);
                    match &mut self.open {
                        Open::Table { rows, .. } => *rows += whole,
                        Open::Plain | Open::List { .. } | Open::Fence(_) => {
                            let head = lines.end(lines.end(start));
                            self.open = Open::Table {
                                head: source.get(start..head).unwrap_or_default().to_owned(),
                                rows: whole,
                            };
                        }
                    }
                    cut = end;
                }
            }
            Some(Block::Code { .. }) if start == top.start && lines.is_complete(start) => {
                let body = lines.end(start);
                if let Some(mut fence) =
                    Fence::opened_by(source.get(start..body).unwrap_or_default())
                {
                    return self.enter(&mut fence, source.get(body..).unwrap_or_default());
                }
            }
            Some(
                Block::Code { .. }
                | Block::Heading { .. }
                | Block::Paragraph(_)
                | Block::Quote(_)
                | Block::Rule
                | Block::Html(_),
            )
            | None => {}
        }
        self.tail = source.get(cut..).unwrap_or_default().to_owned();
        false
    }

    /// Goes on line by line within a fence. What the whole of it was read as is dropped: the lines decide.
    fn enter(&mut self, fence: &mut Fence, body: &str) -> bool {
        self.blocks.truncate(self.kept + 1);
        self.tail.clear();
        let Some(Block::Code { text, closed, .. }) = self.blocks.last_mut() else {
            return false;
        };
        text.clear();
        match fence.feed(body, text) {
            Fed::Open => {
                *closed = false;
                self.open = Open::Fence(fence.clone());
                false
            }
            Fed::Closed { rest } => {
                *closed = true;
                self.kept = self.blocks.len();
                self.open = Open::Plain;
                self.tail.push_str(rest);
                true
            }
        }
    }
}

/// Where the first piece of a text ends: never within a character.
fn piece_end(text: &str) -> usize {
    if text.len() <= PIECE {
        return text.len();
    }
    (0..=PIECE)
        .rev()
        .find(|end| text.is_char_boundary(*end))
        .unwrap_or(text.len())
}

/// Shows text whose meaning is not known yet at the end of what there is.
fn extend(blocks: &mut Vec<Block>, text: &str) {
    match blocks.last_mut() {
        Some(Block::Paragraph(inlines) | Block::Heading { inlines, .. }) => {
            parse::add_text(inlines, text);
        }
        Some(Block::Quote(inner)) => extend(inner, text),
        Some(Block::List { items, .. }) if !items.is_empty() => {
            if let Some(item) = items.last_mut() {
                extend(&mut item.blocks, text);
            }
        }
        Some(Block::Code { text: code, .. }) => code.push_str(text),
        Some(Block::Html(html)) => html.push_str(text),
        Some(Block::List { .. } | Block::Table { .. } | Block::Rule) | None => {
            blocks.push(Block::Paragraph(vec![Inline::Text(text.to_owned())]));
        }
    }
}

/// Where lines of a source begin and end.
#[derive(Clone, Copy)]
struct Lines<'a>(&'a str);

impl<'a> Lines<'a> {
    /// Whether the line at `at` has its end.
    fn is_complete(self, at: usize) -> bool {
        self.0.get(at..).is_some_and(|rest| rest.contains('\n'))
    }

    fn start(self, at: usize) -> usize {
        let before = self.0.get(..at).unwrap_or_default();
        before.rfind('\n').map_or(0, |newline| newline + 1)
    }

    /// After the end of the line at `at`.
    fn end(self, at: usize) -> usize {
        let rest = self.0.get(at..).unwrap_or_default();
        rest.find('\n')
            .map_or(self.0.len(), |newline| at + newline + 1)
    }

    fn last(self) -> &'a str {
        self.0.get(self.start(self.0.len())..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
