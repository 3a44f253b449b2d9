//! A session's transcript: its turns, and the facts about the session that events change.
//!
//! Invariant: turns stand in the order of their ids, each once, and form one run: between the first and the last none of
//! the conversation is missing. Older ones are put in front, and only when they join on.
//! Turns and items are found by an index; no event makes the cost of the next depend on how long the chat is.

use std::collections::{BTreeMap, VecDeque};

use protocol::{
    Admission, Cursor, Event, EventBody, ItemId, ItemView, LogId, ModelOptions, ModelRef, Origin,
    Page, Seq, SessionId, StreamId, TranscriptPage, TurnId, TurnView,
};

use super::{Change, Follow, WrongPage, turn::Turn};
use crate::mutant::mutated;

/// What the reader reads: the fold of one session's events.
#[derive(Clone, Debug, PartialEq)]
pub struct Transcript {
    session: SessionId,
    title: String,
    origin: Origin,
    model: Option<ModelRef>,
    folder: Option<String>,
    options: ModelOptions,
    turns: VecDeque<Turn>,
    more_before: bool,
    /// Every turn before this one is still to be loaded, if there is any; `None`: there is nothing above.
    floor: Option<TurnId>,
    tip: Option<Seq>,
    cursor: Cursor,
    taken_out: Option<TurnId>,
    shelf: Shelf,
    #[cfg(feature = "mutants")]
    mutant: Option<crate::mutant::Mutant>,
}

/// Turns that were taken out while somebody looked, in case they are restored. A cache: a transcript that lacks one of
/// them [asks for a new page](Follow::lacks), so two transcripts are equal whatever is on their shelves.
#[derive(Clone, Debug, Default)]
struct Shelf(BTreeMap<TurnId, Turn>);

impl PartialEq for Shelf {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// Older turns that were not taken. Harmless: ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Declined {
    /// Of another session, or of another database.
    #[error("the older turns are of another session")]
    Foreign,
    /// Asked for when the transcript began further up, so turns would be missing in between.
    #[error("the older turns do not join on")]
    NotNext,
}

impl Transcript {
    /// Before the first event.
    pub fn empty(session: SessionId, log: LogId) -> Self {
        Self {
            session,
            title: String::new(),
            origin: Origin::Conversation,
            model: None,
            folder: None,
            options: ModelOptions::default(),
            turns: VecDeque::new(),
            more_before: false,
            floor: None,
            tip: None,
            cursor: Cursor::at_start(log),
            taken_out: None,
            shelf: Shelf::default(),
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }

    /// Which session.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Its title.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Where it came from.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The folder its next turn's tools may read and write in.
    pub fn folder(&self) -> Option<&str> {
        self.folder.as_deref()
    }

    /// How its next turn asks, as far as the session says it.
    pub fn options(&self) -> &ModelOptions {
        &self.options
    }

    /// The model its next turn uses.
    pub fn model(&self) -> Option<&ModelRef> {
        self.model.as_ref()
    }

    /// The turns that are loaded, oldest first.
    pub fn turns(&self) -> impl DoubleEndedIterator<Item = &TurnView> + ExactSizeIterator {
        self.turns.iter().map(|turn| &turn.view)
    }

    /// One of them.
    pub fn turn(&self, turn: TurnId) -> Option<&TurnView> {
        let position = self.position(turn).ok()?;
        self.turns.get(position).map(|turn| &turn.view)
    }

    /// One item of one of them.
    pub fn item(&self, turn: TurnId, item: ItemId) -> Option<&ItemView> {
        let position = self.position(turn).ok()?;
        self.turns.get(position)?.item(item)
    }

    /// The turn that runs. Derived from events only: a lost connection does not end it.
    pub fn running(&self) -> Option<TurnId> {
        let last = self.turns.back()?;
        match &last.view.outcome {
            Some(_) => None,
            None => Some(last.view.turn),
        }
    }

    /// The last structural event: what a structural op names as the state it was decided on.
    pub fn tip(&self) -> Option<Seq> {
        self.tip
    }

    /// The first turn that was taken out last: what an undo brings back.
    pub fn taken_out(&self) -> Option<TurnId> {
        self.taken_out
    }

    /// Whether there may be older turns to load.
    pub fn more_before(&self) -> bool {
        self.more_before
    }

    /// The turn to ask older ones before; `None` when there are none.
    pub fn older_before(&self) -> Option<TurnId> {
        if self.more_before { self.floor } else { None }
    }

    /// The position after the last applied event.
    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// Files the answer to "older than `before`" in front. Says how many turns were new.
    ///
    /// An answer may be late: read before a rewind, asked for twice, or asked for before this transcript took another
    /// one's place. What is filed is only what lies above the first turn there is, or was: rewinds apply on top, and
    /// what is here already is newer than the answer.
    ///
    /// # Errors
    /// When the page does not belong here; nothing has changed then.
    pub fn file_older(&mut self, before: TurnId, page: TranscriptPage) -> Result<usize, Declined> {
        if page.session != self.session || page.as_of.log() != self.cursor.log() {
            return Err(Declined::Foreign);
        }
        let floor = match self.older_before() {
            Some(floor) => floor,
            None if mutated!(self, LastArrivedWins) => self.floor.unwrap_or(before),
            // All is here; a page that says otherwise is an old one.
            None => return Ok(0),
        };
        if before < floor && !mutated!(self, FileAnywhere) {
            return Err(Declined::NotNext);
        }
        let mut turns = in_order(page.turns);
        if !mutated!(self, IgnoreAsOf) {
            turns.retain(|turn| turn.turn < floor);
        }
        self.more_before = page.more_before;
        let added = turns.len();
        for view in turns.into_iter().rev() {
            self.floor = Some(view.turn);
            self.turns.push_front(Turn::from_view(view));
        }
        Ok(added)
    }

    /// This as a page to go on from.
    pub fn to_page(&self) -> TranscriptPage {
        TranscriptPage {
            session: self.session,
            title: self.title.clone(),
            origin: self.origin,
            model: self.model.clone(),
            folder: self.folder.clone(),
            options: self.options.clone(),
            turns: self.turns().cloned().collect(),
            more_before: self.more_before,
            tip: self.tip,
            taken_out: self.taken_out,
            as_of: self.cursor,
        }
    }

    fn fold(&mut self, event: &Event, changes: &mut Vec<Change>) {
        match &event.body {
            EventBody::SessionStarted { origin, .. } => {
                self.origin = *origin;
                changes.push(Change::SessionChanged);
            }
            EventBody::SessionRenamed { title, .. } => {
                self.title.clone_from(title);
                changes.push(Change::SessionChanged);
            }
            EventBody::ModelChosen { model } => {
                self.model = Some(model.clone());
                changes.push(Change::SessionChanged);
            }
            EventBody::FolderChosen { folder } => {
                self.folder.clone_from(folder);
                changes.push(Change::SessionChanged);
            }
            EventBody::OptionsChosen { options } => {
                self.options.clone_from(options);
                changes.push(Change::SessionChanged);
            }
            EventBody::HistoryRewound { from, .. } => self.rewind(*from, changes),
            EventBody::HistoryRestored { from, turns } => {
                self.rewind(*from, changes);
                self.restore(turns, changes);
            }
            EventBody::UserMessageAdded { .. } => self.fold_into_turn(event, changes),
            EventBody::TurnStarted { model, .. } => {
                // A session whose model was never chosen goes on with the one it began with.
                if self.model.is_none() {
                    self.model = Some(model.clone());
                    changes.push(Change::SessionChanged);
                }
                self.fold_into_turn(event, changes);
            }
            EventBody::StepStarted { .. }
            | EventBody::TextAppended { .. }
            | EventBody::TextFoundReasoning { .. }
            | EventBody::ToolCallRequested { .. }
            | EventBody::ApprovalRequested { .. }
            | EventBody::ApprovalResolved { .. }
            | EventBody::ToolCallStarted { .. }
            | EventBody::ToolCallFinished { .. }
            | EventBody::StepEnded { .. }
            | EventBody::AttemptFailed { .. }
            | EventBody::HistoryCompacted { .. }
            | EventBody::ComputerSlept { .. }
            | EventBody::TurnEnded { .. }
            | EventBody::Unsupported { .. } => self.fold_into_turn(event, changes),
            // Of the library's stream; they say nothing here.
            EventBody::SessionListed { .. }
            | EventBody::SessionTitled { .. }
            | EventBody::SessionTurnStarted { .. }
            | EventBody::SessionTurnEnded { .. }
            | EventBody::SessionSeen { .. }
            | EventBody::SessionAsked { .. }
            | EventBody::SessionAnswered { .. }
            | EventBody::SessionRestored { .. }
            | EventBody::SessionBinned { .. }
            | EventBody::SessionUnbinned { .. }
            | EventBody::ProviderAdded { .. }
            | EventBody::ProviderChanged { .. }
            | EventBody::ProviderRemoved { .. }
            | EventBody::TimeLimitsChanged { .. }
            | EventBody::FallbacksChosen { .. }
            | EventBody::ModelOptionsChanged { .. }
            | EventBody::ModelPullStarted { .. }
            | EventBody::ModelPullEnded { .. }
            | EventBody::PricesChosen { .. }
            | EventBody::LogSalvaged { .. } => {}
        }
    }

    /// RULING: an event of a turn that names no turn, or one that is not loaded, is not drawn: there is no turn view to
    /// hold it, and views must equal folds. The log's own checks refuse to write such an event. A kind from a newer
    /// version that belongs to the session as a whole would reopen this.
    fn fold_into_turn(&mut self, event: &Event, changes: &mut Vec<Change>) {
        let Some(id) = event.turn else { return };
        let position = match self.position(id) {
            Ok(position) => position,
            Err(position) if Turn::begins_with(&event.body) => {
                if position == 0 && !self.more_before {
                    self.floor = Some(id);
                }
                self.turns.insert(position, Turn::begin(id, event.at));
                changes.push(Change::TurnAdded(id));
                position
            }
            Err(_) => return,
        };
        if let Some(turn) = self.turns.get_mut(position) {
            #[cfg(feature = "mutants")]
            turn.lacking(self.mutant);
            turn.apply(event, changes);
        }
    }

    fn rewind(&mut self, from: TurnId, changes: &mut Vec<Change>) {
        while self.turns.back().is_some_and(|last| last.view.turn >= from) {
            if let Some(last) = self.turns.pop_back() {
                self.shelf.0.insert(last.view.turn, last);
            }
        }
        self.floor = self.floor.map(|floor| floor.min(from));
        if from <= TurnId::FIRST {
            self.more_before = false;
        }
        self.taken_out = Some(from);
        changes.push(Change::Rewound);
    }

    /// Puts turns back at the end, where they stood. If one of them is not at hand, none of the turns that are shown joins
    /// on to what comes next, and all are to be loaded.
    fn restore(&mut self, turns: &[TurnId], changes: &mut Vec<Change>) {
        if turns.iter().any(|turn| !self.shelf.0.contains_key(turn)) {
            self.turns.clear();
            self.more_before = true;
            self.floor = Some(TurnId::new(u64::MAX));
            return;
        }
        if !self.more_before && self.turns.is_empty() {
            self.floor = turns.first().copied();
        }
        for turn in turns.iter().filter_map(|turn| self.shelf.0.remove(turn)) {
            let id = turn.view.turn;
            changes.push(Change::TurnAdded(id));
            let items = turn.view.items.iter().map(|view| view.item);
            changes.extend(items.map(|item| Change::ItemAdded { turn: id, item }));
            self.turns.push_back(turn);
        }
    }

    /// Where a turn is, or would be. Events nearly always go to the last one.
    fn position(&self, turn: TurnId) -> Result<usize, usize> {
        match self.turns.back() {
            None => Err(0),
            Some(last) if last.view.turn == turn => Ok(self.turns.len() - 1),
            Some(last) if last.view.turn < turn => Err(self.turns.len()),
            Some(_) => self
                .turns
                .binary_search_by_key(&turn, |turn| turn.view.turn),
        }
    }
}

impl Follow for Transcript {
    type Change = Change;

    fn from_page(page: Page) -> Result<Self, WrongPage> {
        match page {
            Page::Session(page) => Ok(Self::from(page)),
            Page::Library(_) => Err(WrongPage),
        }
    }

    fn stream(&self) -> StreamId {
        StreamId::Session(self.session)
    }

    fn cursor(&self) -> Cursor {
        self.cursor
    }

    fn lacks(&self, event: &Event) -> bool {
        let EventBody::HistoryRestored { turns, .. } = &event.body else {
            return false;
        };
        let is_here = |turn: &TurnId| self.position(*turn).is_ok();
        let mut turns = turns.iter();
        turns.any(|turn| !self.shelf.0.contains_key(turn) && !is_here(turn))
    }

    fn apply(&mut self, event: &Event, changes: &mut Vec<Change>) {
        match self.cursor.admits(event.seq) {
            Admission::Next => {}
            Admission::Seen | Admission::Gap => return,
        }
        self.fold(event, changes);
        if event.body.is_structural() {
            self.tip = Some(event.seq);
        }
        self.cursor = self.cursor.advanced_to(event.seq);
    }

    #[cfg(feature = "mutants")]
    fn lacking(&mut self, mutant: Option<crate::mutant::Mutant>) {
        self.mutant = mutant;
    }
}

impl From<TranscriptPage> for Transcript {
    fn from(page: TranscriptPage) -> Self {
        let turns: VecDeque<Turn> = in_order(page.turns)
            .into_iter()
            .map(Turn::from_view)
            .collect();
        Self {
            session: page.session,
            title: page.title,
            origin: page.origin,
            model: page.model,
            folder: page.folder,
            options: page.options,
            // Nothing is loaded, so everything there is comes before any turn.
            floor: match turns.front() {
                Some(first) => Some(first.view.turn),
                None if page.more_before => Some(TurnId::new(u64::MAX)),
                None => None,
            },
            turns,
            more_before: page.more_before,
            tip: page.tip,
            cursor: page.as_of,
            taken_out: page.taken_out,
            shelf: Shelf::default(),
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }
}

/// A page's turns as they have to stand. They come in order; this is for one that does not.
fn in_order(mut turns: Vec<TurnView>) -> Vec<TurnView> {
    if !turns.is_sorted_by(|one, next| one.turn < next.turn) {
        turns.sort_by_key(|view| view.turn);
        turns.dedup_by_key(|view| view.turn);
    }
    turns
}
