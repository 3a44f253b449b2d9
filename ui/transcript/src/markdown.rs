//! Markdown that grows: a text pushed piece by piece becomes blocks to draw, and only the unfinished tail is read again.

/// A Markdown text that grows.
#[derive(Clone, Debug, Default)]
pub struct Document {
    blocks: Vec<Block>,
    kept: usize,
    tail: String,
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

    /// Adds text at the end.
    pub fn push(&mut self, text: &str) -> Update {
        self.tail.push_str(text);
        let paragraph = Block::Paragraph(vec![Inline::Text(self.tail.clone())]);
        self.blocks.truncate(self.kept);
        self.blocks.push(paragraph);
        Update {
            kept: self.kept,
            within: Within::Nothing,
        }
    }

    /// No more text comes.
    pub fn finish(&mut self) -> Update {
        Update {
            kept: self.kept,
            within: Within::Nothing,
        }
    }

    /// What there is.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }
}
