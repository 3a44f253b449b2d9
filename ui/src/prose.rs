//! A Markdown text on the screen that grows: its document, and signals down to the part that still changes.
//!
//! Invariant: a piece of text costs the block it falls into, and of a list, a table or code only the last item, row or
//! line. Kept by: the document says what is unchanged, and only what lies behind that is set.
//! Not here: reading Markdown (`transcript::markdown`), and drawing it (`components::markdown`).

use leptos::prelude::*;
use transcript::markdown::{Align, Block, Document, Inline, ListItem, Within};

use crate::library::set_if_new;

/// Cells of a table's row.
pub(crate) type Cells = Vec<Vec<Inline>>;

/// How much is known of the text that is to be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    /// It is the one that is shown, perhaps with more at its end.
    Grown,
    /// It came with a whole new transcript: it may be another one.
    Swapped,
}

/// A growing text.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Prose {
    pub(crate) blocks: RwSignal<Vec<BlockCell>>,
    state: StoredValue<State>,
}

struct State {
    document: Document,
    source: String,
    finished: bool,
    next_key: u64,
}

/// A block on the screen. Another kind of block is another cell.
#[derive(Clone, Copy)]
pub(crate) struct BlockCell {
    pub(crate) key: u64,
    pub(crate) shape: Shape,
}

/// A block's signals, as fine as it can grow.
#[derive(Clone, Copy)]
pub(crate) enum Shape {
    Code {
        language: RwSignal<Option<String>>,
        text: RwSignal<String>,
    },
    List {
        start: RwSignal<Option<u64>>,
        items: RwSignal<Vec<RwSignal<ListItem>>>,
    },
    Table {
        align: RwSignal<Vec<Align>>,
        head: RwSignal<Cells>,
        rows: RwSignal<Vec<RwSignal<Cells>>>,
    },
    /// All others grow little, or rarely.
    Whole(RwSignal<Block>),
}

impl Prose {
    pub(crate) fn new() -> Self {
        Self {
            blocks: RwSignal::new(Vec::new()),
            state: StoredValue::new(State {
                document: Document::new(),
                source: String::new(),
                finished: false,
                next_key: 0,
            }),
        }
    }

    /// Shows `text`, of which no more comes if it is not `open`; `false` if another text is shown here already.
    pub(crate) fn show(self, text: &str, open: bool, since: Since) -> bool {
        let fits = self.state.with_value(|state| match since {
            Since::Grown => text.is_char_boundary(state.source.len()),
            Since::Swapped => text.starts_with(&state.source),
        });
        // A finished document takes no more text.
        let ended = self
            .state
            .with_value(|state| state.finished && (open || text.len() != state.source.len()));
        if !fits || ended {
            return false;
        }
        self.state.update_value(|state| {
            if let Some(tail) = text.get(state.source.len()..)
                && !tail.is_empty()
            {
                let update = state.document.push(tail);
                state.source.push_str(tail);
                self.draw(state, update.kept, update.within);
            }
            if !open && !state.finished {
                state.finished = true;
                let update = state.document.finish();
                self.draw(state, update.kept, update.within);
            }
        });
        true
    }

    fn draw(self, state: &mut State, kept: usize, within: Within) {
        let blocks = state.document.blocks();
        let shown = self.blocks.get_untracked();
        let mut cells: Vec<BlockCell> = shown.iter().take(blocks.len()).copied().collect();
        let mut changed = cells.len() != shown.len();
        for (at, block) in blocks.iter().enumerate().skip(kept) {
            let within = if at == kept { within } else { Within::Nothing };
            let fits = cells
                .get(at)
                .is_some_and(|cell| refresh(cell.shape, block, within));
            if fits {
                continue;
            }
            let cell = BlockCell {
                key: state.next_key,
                shape: shape(block),
            };
            state.next_key += 1;
            changed = true;
            match cells.get_mut(at) {
                Some(other) => *other = cell,
                None => cells.push(cell),
            }
        }
        if changed {
            self.blocks.set(cells);
        }
    }
}

fn shape(block: &Block) -> Shape {
    match block {
        Block::Code { language, text, .. } => Shape::Code {
            language: RwSignal::new(language.clone()),
            text: RwSignal::new(text.clone()),
        },
        Block::List { start, items } => Shape::List {
            start: RwSignal::new(*start),
            items: RwSignal::new(items.iter().cloned().map(RwSignal::new).collect()),
        },
        Block::Table { align, head, rows } => Shape::Table {
            align: RwSignal::new(align.clone()),
            head: RwSignal::new(head.clone()),
            rows: RwSignal::new(rows.iter().cloned().map(RwSignal::new).collect()),
        },
        Block::Heading { .. }
        | Block::Paragraph(_)
        | Block::Quote(_)
        | Block::Rule
        | Block::Html(_) => Shape::Whole(RwSignal::new(block.clone())),
    }
}

/// Brings a cell up to date; `false` if its block has become one of another kind.
fn refresh(shape: Shape, block: &Block, within: Within) -> bool {
    match (shape, block) {
        (
            Shape::Code {
                language,
                text: shown,
            },
            Block::Code {
                language: now,
                text,
                ..
            },
        ) => {
            set_if_new(language, now.clone());
            let kept = match within {
                Within::CodeBytes(bytes) => bytes,
                Within::Nothing | Within::Items(_) | Within::Rows(_) => 0,
            };
            match text.get(kept..) {
                Some(tail) if kept > 0 => {
                    if !(tail.is_empty() && shown.with_untracked(String::len) == kept) {
                        shown.update(|shown| {
                            shown.truncate(kept);
                            shown.push_str(tail);
                        });
                    }
                }
                Some(_) | None => set_if_new(shown, text.clone()),
            }
            true
        }
        (
            Shape::List { start, items },
            Block::List {
                start: now,
                items: list,
            },
        ) => {
            set_if_new(start, *now);
            let kept = match within {
                Within::Items(count) => count,
                Within::Nothing | Within::Rows(_) | Within::CodeBytes(_) => 0,
            };
            refresh_all(items, list, kept);
            true
        }
        (
            Shape::Table { align, head, rows },
            Block::Table {
                align: now_align,
                head: now_head,
                rows: list,
            },
        ) => {
            let kept = match within {
                Within::Rows(count) => count,
                Within::Nothing | Within::Items(_) | Within::CodeBytes(_) => {
                    set_if_new(align, now_align.clone());
                    set_if_new(head, now_head.clone());
                    0
                }
            };
            refresh_all(rows, list, kept);
            true
        }
        (Shape::Whole(shown), Block::Heading { .. })
        | (Shape::Whole(shown), Block::Paragraph(_))
        | (Shape::Whole(shown), Block::Quote(_))
        | (Shape::Whole(shown), Block::Rule)
        | (Shape::Whole(shown), Block::Html(_)) => {
            set_if_new(shown, block.clone());
            true
        }
        (
            Shape::Code { .. } | Shape::List { .. } | Shape::Table { .. } | Shape::Whole(_),
            Block::Code { .. }
            | Block::List { .. }
            | Block::Table { .. }
            | Block::Heading { .. }
            | Block::Paragraph(_)
            | Block::Quote(_)
            | Block::Rule
            | Block::Html(_),
        ) => false,
    }
}

/// Brings the parts from `kept` on up to date.
fn refresh_all<T>(shown: RwSignal<Vec<RwSignal<T>>>, parts: &[T], kept: usize)
where
    T: Clone + PartialEq + Send + Sync + 'static,
{
    let mut cells = shown.get_untracked();
    let before = cells.len();
    cells.truncate(parts.len());
    let mut changed = cells.len() != before;
    for (at, part) in parts.iter().enumerate().skip(kept) {
        match cells.get(at) {
            Some(cell) => set_if_new(*cell, part.clone()),
            None => {
                cells.push(RwSignal::new(part.clone()));
                changed = true;
            }
        }
    }
    if changed {
        shown.set(cells);
    }
}
