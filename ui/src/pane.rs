//! A session's pane as signals: one per turn's head, one per item, so that a text event touches the item it names.
//!
//! Invariant: what is shown is what the fold holds. Kept by: every change names what it is about and is answered from
//! the fold; a swap goes through all of it, keeping the cells that are still right, so nothing blinks.
//! A turn costs signals, and its texts are read as Markdown, only while it is drawn; the last one always has its cell,
//! because the page asks it what it is doing.
//! Not here: the fold (`transcript`), and the order of requests (`follow`).

use std::{collections::HashMap, rc::Rc};

use leptos::prelude::*;
use protocol::{
    ApprovalView, AttemptView, Effect, Image, ItemBody, ItemId, ItemView, MessagePurpose,
    ModelOptions, ModelRef, Origin, Part, Phase, Seq, SessionId, Slept, Status, Timestamp,
    ToolState, TurnId, TurnOutcome, TurnView,
};
use transcript::{
    Change, Heard, Link, LinkState, Transcript, Trouble,
    words::{self, Offer},
};

use crate::{
    follow::{self, Follower, Line},
    ipc,
    library::set_if_new,
    prose::{Prose, Since},
    versions::Versions,
};

/// All of a turn but its items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TurnHead {
    pub(crate) model: ModelRef,
    pub(crate) started_at: Timestamp,
    pub(crate) attempts: Vec<AttemptView>,
    /// When the computer slept meanwhile.
    pub(crate) slept: Vec<Slept>,
    pub(crate) outcome: Option<TurnOutcome>,
    pub(crate) ended_at: Option<Timestamp>,
    /// What can be done about its end.
    pub(crate) offers: Vec<Offer>,
}

impl TurnHead {
    /// The model that was asked last: after a failover not the one it began with.
    pub(crate) fn model(&self) -> &str {
        let last = self.attempts.last().map(|attempt| &attempt.model);
        &last.unwrap_or(&self.model).model
    }
}

/// A turn on the screen.
#[derive(Clone, Copy)]
pub(crate) struct TurnCell {
    pub(crate) turn: TurnId,
    pub(crate) head: RwSignal<TurnHead>,
    pub(crate) items: RwSignal<Vec<ItemCell>>,
}

impl TurnCell {
    /// A cell for this turn that shows nothing of it yet but its head.
    pub(crate) fn of(view: &TurnView) -> Self {
        Self {
            turn: view.turn,
            head: RwSignal::new(head(view)),
            items: RwSignal::new(Vec::new()),
        }
    }

    /// Brings it up to date with a turn of which anything may be different; each time needs a `swap` of its own.
    pub(crate) fn show_anew(self, view: &TurnView, swap: u64) {
        set_if_new(self.head, head(view));
        show_items(self, view, swap);
    }

    /// Brings it up to date with what these changed of it.
    pub(crate) fn show_changes(self, view: &TurnView, changes: &[Change], swap: u64) {
        let (mut any_head, mut any_item) = (false, false);
        let mut grown: Vec<ItemId> = Vec::new();
        for change in changes {
            match *change {
                Change::TurnAdded(_) | Change::TurnChanged(_) => any_head = true,
                Change::ItemAdded { .. } => any_item = true,
                Change::TextGrew { item, .. } | Change::ItemChanged { item, .. } => {
                    if !grown.contains(&item) {
                        grown.push(item);
                    }
                }
                Change::Rewound | Change::SessionChanged => {}
            }
        }
        if any_head {
            set_if_new(self.head, head(view));
        }
        if any_item {
            // Those that were there are kept, and all are brought up to date.
            show_items(self, view, swap);
            return;
        }
        let shown = self.items.get_untracked();
        for item in grown {
            let cell = shown.iter().rev().find(|cell| cell.item == item);
            let item_view = view.items.iter().rev().find(|view| view.item == item);
            if let (Some(cell), Some(item)) = (cell, item_view)
                && !show_item(*cell, item, Since::Grown)
            {
                // It has become another kind of item.
                show_items(self, view, swap);
                return;
            }
        }
    }

    /// Whether the model has said anything to the reader.
    pub(crate) fn has_answer(self) -> bool {
        self.items.with(|items| {
            items
                .iter()
                .any(|item| matches!(item.body, CellBody::Answer(_)))
        })
    }

    /// How many of its calls share this question.
    pub(crate) fn calls_of(self, question: ItemId) -> usize {
        self.items.with(|items| {
            let asks = |item: &&ItemCell| item.asks(|asked| asked.item == question);
            items.iter().filter(asks).count()
        })
    }

    /// The first question that nobody has answered.
    fn open_question(self) -> Option<ItemId> {
        self.items.with(|items| {
            let open = |item: &&ItemCell| item.asks(|asked| asked.resolution.is_none());
            items.iter().find(open).map(|item| item.item)
        })
    }

    /// Whether a tool of it may have had an effect that nobody knows of.
    pub(crate) fn may_have_had_effect(self) -> bool {
        self.items.with(|items| {
            items.iter().any(|item| match item.body {
                CellBody::Tool(tool) => tool.with(|tool| match &tool.state {
                    ToolState::Finished { effect, .. } => *effect == Effect::Unknown,
                    ToolState::Requested | ToolState::Running { .. } => false,
                }),
                CellBody::User(_)
                | CellBody::Continued
                | CellBody::Answer(_)
                | CellBody::Reasoning(_)
                | CellBody::Compacted(_)
                | CellBody::Unsupported(_) => false,
            })
        })
    }

    /// Whether it is thinking in front of the reader's eyes.
    pub(crate) fn has_open_reasoning(self) -> bool {
        self.items.with(|items| match items.last() {
            Some(ItemCell {
                body: CellBody::Reasoning(reasoning),
                ..
            }) => reasoning.ended_at.get().is_none(),
            Some(_) | None => false,
        })
    }
}

/// An item on the screen.
#[derive(Clone, Copy)]
pub(crate) struct ItemCell {
    pub(crate) item: ItemId,
    /// Which whole transcript it first came with: an item that a swap replaced is another cell.
    swap: u64,
    pub(crate) body: CellBody,
}

impl ItemCell {
    /// Whether it is a call with such a question.
    fn asks(&self, such: impl Fn(&ApprovalView) -> bool) -> bool {
        match self.body {
            CellBody::Tool(tool) => tool.with(|tool| tool.approval.as_ref().is_some_and(&such)),
            CellBody::User(_)
            | CellBody::Continued
            | CellBody::Answer(_)
            | CellBody::Reasoning(_)
            | CellBody::Compacted(_)
            | CellBody::Unsupported(_) => false,
        }
    }

    /// What tells cells apart: an answer that turned out to be reasoning is another cell.
    pub(crate) const fn key(&self) -> (ItemId, u64, bool) {
        let thinks = matches!(self.body, CellBody::Reasoning(_));
        (self.item, self.swap, thinks)
    }
}

/// What the user said and showed. Never changes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) text: StoredValue<String>,
    pub(crate) images: StoredValue<Vec<Image>>,
}

/// What an item shows.
#[derive(Clone, Copy)]
pub(crate) enum CellBody {
    /// What the user said.
    User(Said),
    /// The user pressed Continue: nobody's words.
    Continued,
    /// What the model says.
    Answer(Prose),
    /// What it thinks.
    Reasoning(ReasoningCell),
    Tool(RwSignal<ToolCell>),
    /// What the model is told in place of earlier turns. Never changes.
    Compacted(StoredValue<CompactedCell>),
    /// Something this version cannot show, by its kind.
    Unsupported(StoredValue<String>),
}

/// A reasoning block; its text is only drawn when it is unfolded.
#[derive(Clone, Copy)]
pub(crate) struct ReasoningCell {
    pub(crate) text: RwSignal<String>,
    pub(crate) began_at: Timestamp,
    /// When its last text came; absent while more may come.
    pub(crate) ended_at: RwSignal<Option<Timestamp>>,
}

/// What the model is told in place of earlier turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CompactedCell {
    pub(crate) summary: String,
    /// How many results were left out.
    pub(crate) set_aside: usize,
}

/// A tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ToolCell {
    pub(crate) name: String,
    pub(crate) arguments: String,
    pub(crate) state: ToolState,
    /// The question it waits for, or waited for.
    pub(crate) approval: Option<ApprovalView>,
}

/// A turn's cell, with the owner of all its signals.
struct Kept {
    cell: TurnCell,
    owner: Owner,
    drawn: bool,
}

/// What is shown of one session.
#[derive(Clone, Copy)]
pub(crate) struct Pane {
    pub(crate) session: SessionId,
    /// Whether it was ever loaded: only then "nothing here" may be said.
    pub(crate) loaded: RwSignal<bool>,
    pub(crate) title: RwSignal<String>,
    pub(crate) origin: RwSignal<Origin>,
    pub(crate) model: RwSignal<Option<ModelRef>>,
    /// Where its tools see files.
    pub(crate) folder: RwSignal<Option<String>>,
    /// How its next turn asks, as far as the chat says it.
    pub(crate) options: RwSignal<ModelOptions>,
    /// All that are loaded.
    pub(crate) turns: RwSignal<Vec<TurnId>>,
    pub(crate) more_before: RwSignal<bool>,
    /// The first turn that was taken out last.
    pub(crate) taken_out: RwSignal<Option<TurnId>>,
    pub(crate) versions: Versions,
    /// The turn that runs, by its events.
    pub(crate) running: RwSignal<Option<TurnId>>,
    /// What it is doing, as last heard.
    pub(crate) status: RwSignal<Option<Status>>,
    pub(crate) link_state: RwSignal<LinkState>,
    /// What keeps the link from following.
    pub(crate) trouble: RwSignal<Option<Trouble>>,
    /// For a turn that is shown again: what the clock said then.
    moment: Option<RwSignal<Timestamp>>,
    cells: StoredValue<HashMap<TurnId, Kept>>,
    owner: StoredValue<Owner>,
    line: StoredValue<Option<Rc<Line<Transcript>>>, LocalStorage>,
}

impl Pane {
    /// A pane that shows nothing yet, and the follower that fills it. Its signals belong to `owner`.
    pub(crate) fn open(session: SessionId, owner: &Owner) -> (Self, Follower) {
        let pane = owner.with(|| Self::empty(session, None));
        let (line, follower) = follow::session(pane, owner.clone());
        pane.line.set_value(Some(line));
        (pane, follower)
    }

    /// A pane for a turn that is shown again, at `moment` of its time. Nobody follows it and none of its turns is the
    /// last of a conversation, so nothing can be asked for in it.
    pub(crate) fn replayed(session: SessionId, moment: RwSignal<Timestamp>) -> Self {
        Self::empty(session, Some(moment))
    }

    fn empty(session: SessionId, moment: Option<RwSignal<Timestamp>>) -> Self {
        Self {
            session,
            loaded: RwSignal::new(false),
            title: RwSignal::new(String::new()),
            origin: RwSignal::new(Origin::Conversation),
            model: RwSignal::new(None),
            folder: RwSignal::new(None),
            options: RwSignal::new(ModelOptions::default()),
            turns: RwSignal::new(Vec::new()),
            more_before: RwSignal::new(false),
            taken_out: RwSignal::new(None),
            versions: Versions::unknown(),
            running: RwSignal::new(None),
            status: RwSignal::new(None),
            link_state: RwSignal::new(LinkState::Detached),
            trouble: RwSignal::new(None),
            moment,
            cells: StoredValue::new(HashMap::new()),
            // Whoever makes the pane owns its cells.
            owner: StoredValue::new(Owner::current().unwrap_or_default()),
            line: StoredValue::new_local(None),
        }
    }

    /// Whether this is the past, shown again.
    pub(crate) fn is_replay(self) -> bool {
        self.moment.is_some()
    }

    /// What the clock says, or said then.
    pub(crate) fn now(self) -> Timestamp {
        self.moment.map_or_else(ipc::wall, |moment| moment.get())
    }

    /// Whether a structural action may be asked for.
    pub(crate) fn is_live(self) -> bool {
        self.link_state.get() == LinkState::Live
    }

    /// The last turn that came to an end.
    pub(crate) fn last_ended(self) -> Option<TurnId> {
        self.turns.track();
        self.running.track();
        self.with_transcript(|transcript| {
            let ended = |view: &&TurnView| view.outcome.is_some();
            transcript.turns().rev().find(ended).map(|view| view.turn)
        })
        .flatten()
    }

    /// The question that the running turn waits with, by its events.
    pub(crate) fn question(self) -> Option<ItemId> {
        let turn = self.running.get()?;
        self.cell(turn)?.open_question()
    }

    /// Whether Stop was asked for and not answered yet.
    pub(crate) fn is_stopping(self) -> bool {
        self.running.get().is_some()
            && self
                .status
                .with(|status| status.as_ref().is_some_and(|s| s.phase == Phase::Stopping))
    }

    /// The last structural event of what is shown.
    pub(crate) fn tip(self) -> Option<Seq> {
        self.with_transcript(Transcript::tip).flatten()
    }

    /// All that a turn's model said to the reader.
    pub(crate) fn answer(self, turn: TurnId) -> String {
        let parts = self.with_transcript(|transcript| {
            let items = transcript.turn(turn).map(|view| view.items.as_slice());
            let answers = items
                .unwrap_or_default()
                .iter()
                .filter_map(|item| match &item.body {
                    ItemBody::Text {
                        part: Part::Answer,
                        text,
                        ..
                    } => Some(text.as_str()),
                    ItemBody::Text {
                        part: Part::Reasoning,
                        ..
                    }
                    | ItemBody::UserMessage { .. }
                    | ItemBody::ToolCall { .. }
                    | ItemBody::Compacted { .. }
                    | ItemBody::Unsupported { .. } => None,
                });
            answers.collect::<Vec<_>>().join("\n\n")
        });
        parts.unwrap_or_default()
    }

    /// Everything that is loaded, as Markdown.
    pub(crate) fn markdown(self) -> String {
        let text = self.with_transcript(|transcript| {
            words::as_markdown(transcript.title(), transcript.turns())
        });
        text.unwrap_or_default()
    }

    /// How a turn ended, to be spoken.
    pub(crate) fn end_words(self, turn: TurnId) -> String {
        let outcome = self
            .cell(turn)
            .and_then(|cell| cell.head.with_untracked(|head| head.outcome.clone()));
        match outcome {
            Some(outcome) => {
                words::scar(&outcome).unwrap_or_else(|| "The answer is complete".to_owned())
            }
            None => String::new(),
        }
    }

    /// Begins again after the link stopped trying.
    pub(crate) fn reconnect(self) {
        if let Some(line) = self.line.try_get_value().flatten() {
            line.retry();
        }
    }

    /// Loads older turns and puts them in front; says whether any came.
    pub(crate) async fn load_older(self) -> bool {
        let Some(line) = self.line.try_get_value().flatten() else {
            return false;
        };
        if !follow::older(&line).await {
            return false;
        }
        let link = line.link.borrow();
        if let Some(transcript) = link.shown() {
            self.show_order(transcript, link.counters().swaps);
        }
        true
    }

    /// The cell of a turn that is drawn from now on.
    pub(crate) fn draw(self, turn: TurnId) -> Option<TurnCell> {
        let line = self.line.try_get_value().flatten()?;
        let link = line.link.borrow();
        let view = link.shown()?.turn(turn)?;
        let cell = match self.cell(turn) {
            Some(cell) => cell,
            None => self.new_cell(view, link.counters().swaps),
        };
        self.note_drawn(turn, true);
        Some(cell)
    }

    /// It is not drawn any more. Whoever drew it has let go of its signals.
    pub(crate) fn undraw(self, turn: TurnId) {
        self.note_drawn(turn, false);
        self.drop_undrawn();
    }

    fn note_drawn(self, turn: TurnId, drawn: bool) {
        // A pane that is gone has nothing to note.
        self.cells.try_update_value(|cells| {
            if let Some(kept) = cells.get_mut(&turn) {
                kept.drawn = drawn;
            }
        });
    }

    /// Only what is drawn keeps its cell, and the last turn.
    fn drop_undrawn(self) {
        let last = self.turns.try_with_untracked(|turns| turns.last().copied());
        let dropped = self.cells.try_update_value(|cells| {
            let mut dropped = Vec::new();
            cells.retain(|turn, kept| {
                let keep = kept.drawn || last == Some(Some(*turn));
                if !keep {
                    dropped.push(kept.owner.clone());
                }
                keep
            });
            dropped
        });
        for owner in dropped.into_iter().flatten() {
            owner.cleanup();
        }
    }

    /// How much there is to read in a turn, for whoever must guess its height.
    pub(crate) fn with_turn<R>(self, turn: TurnId, ask: impl FnOnce(&TurnView) -> R) -> Option<R> {
        self.with_transcript(|transcript| transcript.turn(turn).map(ask))
            .flatten()
    }

    /// Shows what a link has heard.
    pub(crate) fn show(self, link: &Link<Transcript>, heard: &Heard<Change>) {
        if let Some(transcript) = link.shown() {
            if heard.swapped {
                self.show_all(link);
            } else if !heard.changes.is_empty() {
                self.show_changes(transcript, &heard.changes, link.counters().swaps);
            }
        }
        if heard.swapped || heard.status_changed {
            set_if_new(self.status, link.status().cloned());
        }
        set_if_new(self.trouble, link.trouble().cloned());
        set_if_new(self.link_state, link.state());
    }

    fn show_all(self, link: &Link<Transcript>) {
        let Some(transcript) = link.shown() else {
            return;
        };
        self.show_session(transcript);
        let swap = link.counters().swaps;
        for view in transcript.turns() {
            self.show_turn(view, swap);
        }
        self.show_order(transcript, swap);
        set_if_new(self.loaded, true);
    }

    fn show_changes(self, transcript: &Transcript, changes: &[Change], swap: u64) {
        let mut session = false;
        let mut order = false;
        // Many fragments of one text are drawn once.
        let mut grown: Vec<(TurnId, ItemId)> = Vec::new();
        for change in changes {
            match *change {
                Change::SessionChanged => session = true,
                Change::TurnAdded(_) => order = true,
                Change::TurnChanged(turn) => {
                    if let (Some(cell), Some(view)) = (self.cell(turn), transcript.turn(turn)) {
                        set_if_new(cell.head, head(view));
                    }
                }
                Change::ItemAdded { turn, item } => {
                    let known = self.cell(turn).is_some_and(|cell| {
                        let items = cell.items;
                        items.with_untracked(|items| items.iter().any(|cell| cell.item == item))
                    });
                    if let Some(view) = transcript.turn(turn)
                        && !known
                    {
                        self.show_turn(view, swap);
                    }
                }
                Change::TextGrew { turn, item } | Change::ItemChanged { turn, item } => {
                    if !grown.contains(&(turn, item)) {
                        grown.push((turn, item));
                    }
                }
                Change::Rewound => {
                    order = true;
                    session = true;
                }
            }
        }
        for (turn, item) in grown {
            self.with_kept(turn, |turn_cell| {
                let cell = turn_cell
                    .items
                    .with_untracked(|items| items.iter().rev().find(|c| c.item == item).copied());
                if let (Some(cell), Some(view)) = (cell, transcript.item(turn, item))
                    && !show_item(cell, view, Since::Grown)
                    && let Some(view) = transcript.turn(turn)
                {
                    // It has become another kind of item: an answer that turned out to be reasoning.
                    show_items(turn_cell, view, swap);
                }
            });
        }
        if order {
            self.show_order(transcript, swap);
        }
        if session {
            self.show_session(transcript);
        }
        set_if_new(self.running, transcript.running());
    }

    fn show_session(self, transcript: &Transcript) {
        set_if_new(self.title, transcript.title().to_owned());
        set_if_new(self.origin, transcript.origin());
        set_if_new(self.model, transcript.model().cloned());
        set_if_new(self.folder, transcript.folder().map(str::to_owned));
        set_if_new(self.taken_out, transcript.taken_out());
        set_if_new(self.options, transcript.options().clone());
    }

    fn show_order(self, transcript: &Transcript, swap: u64) {
        if let Some(last) = transcript.turns().next_back()
            && self.cell(last.turn).is_none()
        {
            self.new_cell(last, swap);
        }
        let now: Vec<TurnId> = transcript.turns().map(|view| view.turn).collect();
        if self.turns.with_untracked(|before| *before != now) {
            self.turns.set(now);
            self.drop_undrawn();
        }
        set_if_new(self.more_before, transcript.more_before());
        set_if_new(self.running, transcript.running());
    }

    /// Brings a turn up to date, if it is drawn.
    fn show_turn(self, view: &TurnView, swap: u64) {
        self.with_kept(view.turn, |cell| cell.show_anew(view, swap));
    }

    fn new_cell(self, view: &TurnView, swap: u64) -> TurnCell {
        let parent = self.owner.get_value();
        let owner = parent.with(Owner::new);
        let cell = owner.with(|| {
            let cell = TurnCell::of(view);
            show_items(cell, view, swap);
            cell
        });
        self.cells.update_value(|cells| {
            let kept = Kept {
                cell,
                owner,
                drawn: false,
            };
            cells.insert(view.turn, kept);
        });
        cell
    }

    fn cell(self, turn: TurnId) -> Option<TurnCell> {
        self.cells
            .with_value(|cells| cells.get(&turn).map(|kept| kept.cell))
    }

    /// Changes a turn's cell as the owner of its signals.
    fn with_kept<R>(self, turn: TurnId, change: impl FnOnce(TurnCell) -> R) -> Option<R> {
        let (cell, owner) = self
            .cells
            .with_value(|cells| cells.get(&turn).map(|kept| (kept.cell, kept.owner.clone())))?;
        Some(owner.with(|| change(cell)))
    }

    fn with_transcript<R>(self, ask: impl FnOnce(&Transcript) -> R) -> Option<R> {
        let line = self.line.try_get_value().flatten()?;
        let link = line.link.borrow();
        link.shown().map(ask)
    }
}

fn head(view: &TurnView) -> TurnHead {
    TurnHead {
        model: view.model.clone(),
        started_at: view.started_at,
        attempts: view.attempts.clone(),
        slept: view.slept.clone(),
        outcome: view.outcome.clone(),
        ended_at: view.ended_at,
        offers: words::offers_for(view),
    }
}

/// Brings all items of a turn up to date.
fn show_items(cell: TurnCell, view: &TurnView, swap: u64) {
    let before = cell.items.get_untracked();
    let same_items = before.len() == view.items.len()
        && before
            .iter()
            .zip(&view.items)
            .all(|(a, b)| a.item == b.item);
    let now: Vec<ItemCell> = view
        .items
        .iter()
        .map(|view| {
            let known = before.iter().find(|cell| cell.item == view.item).copied();
            match known {
                Some(cell) if show_item(cell, view, Since::Swapped) => cell,
                Some(_) | None => new_item(view, swap),
            }
        })
        .collect();
    let same_cells = before.iter().zip(&now).all(|(a, b)| a.body.is(b.body));
    if !(same_items && same_cells) {
        cell.items.set(now);
    }
}

impl CellBody {
    /// Whether both are the very same signals.
    fn is(self, other: Self) -> bool {
        match (self, other) {
            (Self::User(a), Self::User(b)) => a == b,
            (Self::Unsupported(a), Self::Unsupported(b)) => a == b,
            (Self::Continued, Self::Continued) => true,
            (Self::Compacted(a), Self::Compacted(b)) => a == b,
            (Self::Answer(a), Self::Answer(b)) => a == b,
            (Self::Reasoning(a), Self::Reasoning(b)) => a.text == b.text,
            (Self::Tool(a), Self::Tool(b)) => a == b,
            (
                Self::User(_)
                | Self::Continued
                | Self::Compacted(_)
                | Self::Unsupported(_)
                | Self::Answer(_)
                | Self::Reasoning(_)
                | Self::Tool(_),
                _other,
            ) => false,
        }
    }
}

fn new_item(view: &ItemView, swap: u64) -> ItemCell {
    let body = match &view.body {
        ItemBody::UserMessage {
            text,
            purpose,
            images,
            ..
        } => match purpose {
            MessagePurpose::Said => CellBody::User(Said {
                text: StoredValue::new(text.clone()),
                images: StoredValue::new(images.clone()),
            }),
            MessagePurpose::Continue { .. } => CellBody::Continued,
        },
        ItemBody::Text {
            part: Part::Answer,
            text,
            open,
        } => {
            let prose = Prose::new();
            prose.show(text, *open, Since::Grown);
            CellBody::Answer(prose)
        }
        ItemBody::Text {
            part: Part::Reasoning,
            text,
            open,
        } => CellBody::Reasoning(ReasoningCell {
            text: RwSignal::new(text.clone()),
            began_at: view.began_at,
            ended_at: RwSignal::new((!open).then_some(view.changed_at)),
        }),
        ItemBody::ToolCall {
            name,
            arguments,
            state,
            approval,
            ..
        } => CellBody::Tool(RwSignal::new(ToolCell {
            name: name.clone(),
            arguments: arguments.clone(),
            state: state.clone(),
            approval: approval.clone(),
        })),
        ItemBody::Compacted {
            summary, set_aside, ..
        } => CellBody::Compacted(StoredValue::new(compacted(summary, set_aside.len()))),
        ItemBody::Unsupported {
            original_kind: kind,
        } => CellBody::Unsupported(StoredValue::new(kind.clone())),
    };
    ItemCell {
        item: view.item,
        swap,
        body,
    }
}

/// Brings a cell up to date; `false` if it is a cell of another kind of item.
fn show_item(cell: ItemCell, view: &ItemView, since: Since) -> bool {
    match (cell.body, &view.body) {
        (
            CellBody::User(shown),
            ItemBody::UserMessage {
                text,
                purpose: MessagePurpose::Said,
                images,
                ..
            },
        ) => {
            shown.text.with_value(|shown| shown == text)
                && shown.images.with_value(|shown| shown == images)
        }
        (
            CellBody::Continued,
            ItemBody::UserMessage {
                purpose: MessagePurpose::Continue { .. },
                ..
            },
        ) => true,
        (
            CellBody::Answer(prose),
            ItemBody::Text {
                part: Part::Answer,
                text,
                open,
            },
        ) => prose.show(text, *open, since),
        (
            CellBody::Reasoning(reasoning),
            ItemBody::Text {
                part: Part::Reasoning,
                text,
                open,
            },
        ) => {
            let grew = grow(reasoning.text, text, since);
            set_if_new(reasoning.ended_at, (!open).then_some(view.changed_at));
            grew
        }
        (
            CellBody::Tool(shown),
            ItemBody::ToolCall {
                name,
                arguments,
                state,
                approval,
                ..
            },
        ) => {
            let tool = ToolCell {
                name: name.clone(),
                arguments: arguments.clone(),
                state: state.clone(),
                approval: approval.clone(),
            };
            set_if_new(shown, tool);
            true
        }
        (
            CellBody::Compacted(shown),
            ItemBody::Compacted {
                summary, set_aside, ..
            },
        ) => shown.with_value(|shown| *shown == compacted(summary, set_aside.len())),
        (
            CellBody::Unsupported(shown),
            ItemBody::Unsupported {
                original_kind: kind,
            },
        ) => shown.with_value(|shown| shown == kind),
        (
            CellBody::User(_)
            | CellBody::Continued
            | CellBody::Answer(_)
            | CellBody::Reasoning(_)
            | CellBody::Tool(_)
            | CellBody::Compacted(_)
            | CellBody::Unsupported(_),
            ItemBody::UserMessage { .. }
            | ItemBody::Text { .. }
            | ItemBody::ToolCall { .. }
            | ItemBody::Compacted { .. }
            | ItemBody::Unsupported { .. },
        ) => false,
    }
}

fn compacted(summary: &str, set_aside: usize) -> CompactedCell {
    CompactedCell {
        summary: summary.to_owned(),
        set_aside,
    }
}

/// Adds what is new at the end of a text; `false` if another text is shown already.
fn grow(shown: RwSignal<String>, text: &str, since: Since) -> bool {
    let tail = shown.with_untracked(|shown| match since {
        Since::Grown => text.get(shown.len()..),
        Since::Swapped => text.strip_prefix(shown.as_str()),
    });
    match tail {
        Some("") => true,
        Some(tail) => {
            shown.update(|shown| shown.push_str(tail));
            true
        }
        None => false,
    }
}
