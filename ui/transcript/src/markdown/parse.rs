//! One source text to blocks, by pulldown-cmark's events.
//!
//! Invariant: total, and bounded in depth whatever the text nests; everything the source says is in the blocks, as text
//! if as nothing else.

use std::ops::Range;

use pulldown_cmark::{Alignment, CodeBlockKind, Event, LinkType, Options, Parser, Tag};

use super::{Align, Block, Inline, ListItem, address};

/// Deeper nesting is drawn at this depth: nobody can see more, and drawing and dropping go one call deeper per level.
const DEPTH_MAX: usize = 24;
/// Of several definitions of one label only the first is told of, so each further one takes a round. A label that one
/// tail defines more often is a prank, and loses what lies beyond.
const DEFINITION_ROUNDS_MAX: usize = 64;

/// What a source text says.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    pub(super) blocks: Vec<Block>,
    /// One for each block.
    pub(super) tops: Vec<Top>,
}

/// Where a block is in the source.
#[derive(Debug)]
pub(super) struct Top {
    pub(super) start: usize,
    /// Where its items or its rows, the head not counted, begin.
    pub(super) parts: Vec<usize>,
}

/// Reads a source. Link reference definitions in it are escaped on the way, so that they are read, and shown, as text.
pub(super) fn blocks(source: &mut String) -> Parsed {
    for _ in 0..DEFINITION_ROUNDS_MAX {
        // Spares nearly every text the second reading.
        if !source.contains("]:") {
            break;
        }
        let mut starts: Vec<usize> = events(source)
            .reference_definitions()
            .iter()
            .map(|(_, definition)| definition.span.start)
            .collect();
        if starts.is_empty() {
            break;
        }
        starts.sort_unstable();
        for start in starts.into_iter().rev() {
            if source.get(start..).is_some_and(|at| at.starts_with('[')) {
                source.insert(start, '\\');
            }
        }
    }
    let mut builder = Builder::new(source);
    for (event, range) in events(source).into_offset_iter() {
        builder.take(event, range);
    }
    builder.finish()
}

fn events(source: &str) -> Parser<'_> {
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    Parser::new_ext(source, options)
}

/// Adds text at the end of a line, to the text that is there.
pub(super) fn add_text(inlines: &mut Vec<Inline>, text: &str) {
    match inlines.last_mut() {
        Some(Inline::Text(last)) => last.push_str(text),
        Some(_) | None => inlines.push(Inline::Text(text.to_owned())),
    }
}

fn add_inline(inlines: &mut Vec<Inline>, inline: Inline) {
    match inline {
        Inline::Text(text) => add_text(inlines, &text),
        Inline::Html(html) => match inlines.last_mut() {
            Some(Inline::Html(last)) => last.push_str(&html),
            Some(_) | None => inlines.push(Inline::Html(html)),
        },
        Inline::Code(_)
        | Inline::Emphasis(_)
        | Inline::Strong(_)
        | Inline::Strike(_)
        | Inline::Link { .. }
        | Inline::Image { .. }
        | Inline::SoftBreak
        | Inline::HardBreak => inlines.push(inline),
    }
}

/// What is being read, from the outermost to the innermost.
struct Builder<'a> {
    source: &'a str,
    root: Vec<Block>,
    tops: Vec<Top>,
    frames: Vec<Frame>,
    /// For every tag that is open, whether it has a frame; one beyond the depth has none.
    framed: Vec<bool>,
}

enum Frame {
    Quote(Nest),
    Item {
        task: Option<bool>,
        nest: Nest,
    },
    List {
        start: Option<u64>,
        items: Vec<ListItem>,
    },
    Table {
        align: Vec<Align>,
        head: Vec<Vec<Inline>>,
        rows: Vec<Vec<Vec<Inline>>>,
    },
    Head(Vec<Vec<Inline>>),
    Row(Vec<Vec<Inline>>),
    Cell(Vec<Inline>),
    Paragraph(Vec<Inline>),
    Heading {
        level: u8,
        inlines: Vec<Inline>,
    },
    Code {
        language: Option<String>,
        text: String,
        fence: Option<FenceEnd>,
    },
    Html(String),
    Emphasis(Vec<Inline>),
    Strong(Vec<Inline>),
    Strike(Vec<Inline>),
    Link {
        href: Option<String>,
        title: String,
        inlines: Vec<Inline>,
    },
    Image {
        src: String,
        alt: Vec<Inline>,
    },
}

/// Blocks within a block, and text that stands among them without a paragraph of its own, as in a tight list.
#[derive(Default)]
struct Nest {
    blocks: Vec<Block>,
    bare: Vec<Inline>,
}

impl Nest {
    fn add(&mut self, block: Block) {
        self.wrap();
        self.blocks.push(block);
    }

    fn wrap(&mut self) {
        if !self.bare.is_empty() {
            let bare = address::linked(std::mem::take(&mut self.bare));
            self.blocks.push(Block::Paragraph(bare));
        }
    }

    fn into_blocks(mut self) -> Vec<Block> {
        self.wrap();
        self.blocks
    }
}

/// Where a fenced block's closing fence stands, if it has one: after its last line of code, before its end.
struct FenceEnd {
    mark: char,
    after: usize,
    before: usize,
}

impl FenceEnd {
    fn expected(source: &str, range: Range<usize>) -> Self {
        let fence = source.get(range.clone()).unwrap_or_default();
        Self {
            mark: fence.chars().next().unwrap_or('`'),
            after: range.start + fence.find('\n').unwrap_or(fence.len()),
            before: range.end,
        }
    }

    fn was_seen(&self, source: &str) -> bool {
        source
            .get(self.after..self.before)
            .is_some_and(|end| end.contains(self.mark))
    }
}

impl<'a> Builder<'a> {
    fn new(source: &'a str) -> Self {
        Self {
            source,
            root: Vec::new(),
            tops: Vec::new(),
            frames: Vec::new(),
            framed: Vec::new(),
        }
    }

    fn take(&mut self, event: Event<'_>, range: Range<usize>) {
        match event {
            Event::Start(tag) => self.open(tag, range),
            Event::End(_) => self.close(),
            Event::Text(text) => {
                self.text(&text);
                if let Some(Frame::Code {
                    fence: Some(fence), ..
                }) = self.frames.last_mut()
                {
                    fence.after = range.end;
                }
            }
            Event::Code(code) => self.inline(Inline::Code(code.into_string())),
            Event::InlineHtml(html) => self.inline(Inline::Html(html.into_string())),
            Event::Html(html) => match self.frames.last_mut() {
                Some(Frame::Html(text)) => text.push_str(&html),
                Some(_) | None => self.inline(Inline::Html(html.into_string())),
            },
            Event::SoftBreak => self.inline(Inline::SoftBreak),
            Event::HardBreak => self.inline(Inline::HardBreak),
            Event::Rule => {
                self.note_top(range.start);
                self.block(Block::Rule);
            }
            Event::TaskListMarker(done) => {
                // The marker may stand within the item's first paragraph.
                let item = self.frames.iter_mut().rev().find_map(|frame| {
                    let Frame::Item { task, .. } = frame else {
                        return None;
                    };
                    Some(task)
                });
                if let Some(task) = item {
                    *task = Some(done);
                }
            }
            // Not asked for, so it does not come; if it did, it would be text.
            Event::InlineMath(text) | Event::DisplayMath(text) | Event::FootnoteReference(text) => {
                self.text(&text);
            }
        }
    }

    fn open(&mut self, tag: Tag<'_>, range: Range<usize>) {
        self.note_top(range.start);
        self.note_part(&tag, range.start);
        let frame = self.frame(tag, range);
        let fits = match &frame {
            // What nests without end.
            Some(
                Frame::Quote(_)
                | Frame::Item { .. }
                | Frame::List { .. }
                | Frame::Emphasis(_)
                | Frame::Strong(_)
                | Frame::Strike(_)
                | Frame::Link { .. },
            ) => self.frames.len() < DEPTH_MAX,
            Some(_) => true,
            None => false,
        };
        if let Some(frame) = frame.filter(|_| fits) {
            self.frames.push(frame);
        } else {
            self.wrap();
        }
        self.framed.push(fits);
    }

    fn frame(&self, tag: Tag<'_>, range: Range<usize>) -> Option<Frame> {
        Some(match tag {
            Tag::Paragraph => Frame::Paragraph(Vec::new()),
            Tag::Heading { level, .. } => Frame::Heading {
                level: level as u8,
                inlines: Vec::new(),
            },
            Tag::BlockQuote(_) => Frame::Quote(Nest::default()),
            Tag::CodeBlock(kind) => match kind {
                CodeBlockKind::Indented => Frame::Code {
                    language: None,
                    text: String::new(),
                    fence: None,
                },
                CodeBlockKind::Fenced(info) => Frame::Code {
                    language: language(&info),
                    text: String::new(),
                    fence: Some(FenceEnd::expected(self.source, range)),
                },
            },
            Tag::HtmlBlock => Frame::Html(String::new()),
            Tag::List(start) => Frame::List {
                start,
                items: Vec::new(),
            },
            Tag::Item => Frame::Item {
                task: None,
                nest: Nest::default(),
            },
            Tag::Table(align) => Frame::Table {
                align: align.into_iter().map(aligned).collect(),
                head: Vec::new(),
                rows: Vec::new(),
            },
            Tag::TableHead => Frame::Head(Vec::new()),
            Tag::TableRow => Frame::Row(Vec::new()),
            Tag::TableCell => Frame::Cell(Vec::new()),
            Tag::Emphasis => Frame::Emphasis(Vec::new()),
            Tag::Strong => Frame::Strong(Vec::new()),
            Tag::Strikethrough => Frame::Strike(Vec::new()),
            Tag::Link {
                link_type,
                dest_url,
                title,
                ..
            } => Frame::Link {
                href: href(link_type, &dest_url),
                title: title.into_string(),
                inlines: Vec::new(),
            },
            Tag::Image { dest_url, .. } => Frame::Image {
                src: dest_url.into_string(),
                alt: Vec::new(),
            },
            // Not asked for; what is within them is drawn as if they were not there.
            Tag::FootnoteDefinition(_)
            | Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::Superscript
            | Tag::Subscript
            | Tag::MetadataBlock(_) => return None,
        })
    }

    fn close(&mut self) {
        if self.framed.pop() != Some(true) {
            self.wrap();
            return;
        }
        let Some(frame) = self.frames.pop() else {
            return;
        };
        match frame {
            Frame::Quote(nest) => self.block(Block::Quote(nest.into_blocks())),
            Frame::Item { task, nest } => {
                let item = ListItem {
                    task,
                    blocks: nest.into_blocks(),
                };
                match self.frames.last_mut() {
                    Some(Frame::List { items, .. }) => items.push(item),
                    // Its list lies beyond the depth.
                    Some(_) | None => item.blocks.into_iter().for_each(|block| self.block(block)),
                }
            }
            Frame::List { start, items } => self.block(Block::List { start, items }),
            Frame::Table { align, head, rows } => self.block(Block::Table { align, head, rows }),
            Frame::Head(cells) => {
                if let Some(Frame::Table { head, .. }) = self.frames.last_mut() {
                    *head = cells;
                }
            }
            Frame::Row(cells) => {
                if let Some(Frame::Table { rows, .. }) = self.frames.last_mut() {
                    rows.push(cells);
                }
            }
            Frame::Cell(inlines) => {
                if let Some(Frame::Head(cells) | Frame::Row(cells)) = self.frames.last_mut() {
                    cells.push(address::linked(inlines));
                }
            }
            Frame::Paragraph(inlines) => self.block(Block::Paragraph(address::linked(inlines))),
            Frame::Heading { level, inlines } => self.block(Block::Heading {
                level,
                inlines: address::linked(inlines),
            }),
            Frame::Code {
                language,
                mut text,
                fence,
            } => {
                if text.ends_with('\n') {
                    text.pop();
                }
                self.block(Block::Code {
                    language,
                    text,
                    closed: fence.is_none_or(|fence| fence.was_seen(self.source)),
                });
            }
            Frame::Html(text) => self.block(Block::Html(text)),
            Frame::Emphasis(inlines) => self.inline(Inline::Emphasis(inlines)),
            Frame::Strong(inlines) => self.inline(Inline::Strong(inlines)),
            Frame::Strike(inlines) => self.inline(Inline::Strike(inlines)),
            Frame::Link {
                href: Some(href),
                title,
                inlines,
            } => self.inline(Inline::Link {
                href,
                title,
                inlines,
            }),
            Frame::Link {
                href: None,
                inlines,
                ..
            } => inlines.into_iter().for_each(|inline| self.inline(inline)),
            Frame::Image { src, alt } => self.inline(Inline::Image {
                src,
                alt: plain(&alt),
            }),
        }
    }

    fn text(&mut self, text: &str) {
        match self.frames.last_mut() {
            Some(Frame::Code { text: code, .. }) => code.push_str(text),
            Some(Frame::Html(html)) => html.push_str(text),
            Some(_) | None => self.inline(Inline::Text(text.to_owned())),
        }
    }

    fn inline(&mut self, inline: Inline) {
        match self.frames.last_mut() {
            Some(
                Frame::Paragraph(inlines)
                | Frame::Heading { inlines, .. }
                | Frame::Cell(inlines)
                | Frame::Emphasis(inlines)
                | Frame::Strong(inlines)
                | Frame::Strike(inlines)
                | Frame::Link { inlines, .. }
                | Frame::Image { alt: inlines, .. }
                | Frame::Item {
                    nest: Nest { bare: inlines, .. },
                    ..
                }
                | Frame::Quote(Nest { bare: inlines, .. }),
            ) => add_inline(inlines, inline),
            Some(Frame::Code { text, .. } | Frame::Html(text)) => text.push_str(&plain(&[inline])),
            // There is no text directly in these; it would become a paragraph of its own.
            Some(Frame::List { .. } | Frame::Table { .. } | Frame::Head(_) | Frame::Row(_))
            | None => self.block(Block::Paragraph(vec![inline])),
        }
    }

    /// Adds a block to the innermost one that holds blocks.
    fn block(&mut self, block: Block) {
        let nest = self.frames.iter_mut().rev().find_map(|frame| {
            let (Frame::Quote(nest) | Frame::Item { nest, .. }) = frame else {
                return None;
            };
            Some(nest)
        });
        match nest {
            Some(nest) => nest.add(block),
            None => self.root.push(block),
        }
    }

    fn wrap(&mut self) {
        if let Some(Frame::Quote(nest) | Frame::Item { nest, .. }) = self.frames.last_mut() {
            nest.wrap();
        }
    }

    fn note_top(&mut self, start: usize) {
        if self.framed.is_empty() {
            self.tops.push(Top {
                start,
                parts: Vec::new(),
            });
        }
    }

    fn note_part(&mut self, tag: &Tag<'_>, start: usize) {
        if self.framed.len() == 1
            && matches!(tag, Tag::Item | Tag::TableRow)
            && let Some(top) = self.tops.last_mut()
        {
            top.parts.push(start);
        }
    }

    fn finish(mut self) -> Parsed {
        while !self.framed.is_empty() {
            self.close();
        }
        debug_assert_eq!(self.root.len(), self.tops.len(), "one top for each block");
        Parsed {
            blocks: self.root,
            tops: self.tops,
        }
    }
}

fn aligned(alignment: Alignment) -> Align {
    match alignment {
        Alignment::None => Align::None,
        Alignment::Left => Align::Left,
        Alignment::Center => Align::Center,
        Alignment::Right => Align::Right,
    }
}

/// The language in a fence's info string: its first word.
fn language(info: &str) -> Option<String> {
    info.split(|char: char| char.is_whitespace() || matches!(char, ',' | '{'))
        .next()
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
}

/// The address of a link that may be followed; anything but the web and mail may not.
fn href(link_type: LinkType, address: &str) -> Option<String> {
    if matches!(link_type, LinkType::Email) {
        address::followed(&format!("mailto:{address}"))
    } else {
        address::followed(address)
    }
}

/// What inlines say without their form.
pub(super) fn plain(inlines: &[Inline]) -> String {
    let mut text = String::new();
    for inline in inlines {
        match inline {
            Inline::Text(own) | Inline::Code(own) | Inline::Html(own) => text.push_str(own),
            Inline::Emphasis(inner)
            | Inline::Strong(inner)
            | Inline::Strike(inner)
            | Inline::Link { inlines: inner, .. } => text.push_str(&plain(inner)),
            Inline::Image { alt, .. } => text.push_str(alt),
            Inline::SoftBreak => text.push(' '),
            Inline::HardBreak => text.push('\n'),
        }
    }
    text
}
