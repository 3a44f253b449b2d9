//! The library: which sessions and model servers exist.
//!
//! Invariant: a session is listed once, under its id; the order of the list is an index over the summaries, never a
//! second copy of them.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use protocol::{
    Admission, Cursor, Event, EventBody, LibraryPage, LogId, ModelOptions, ModelRef, OpenPull,
    OptionsOfModel, Page, Place, Prices, Provider, PullOutcome, Salvage, SessionId, SessionState,
    SessionSummary, StreamId, TimeLimits, Timestamp,
};

use super::{Follow, WrongPage};

/// The fold of the library's events.
#[derive(Clone, Debug, PartialEq)]
pub struct Library {
    sessions: BTreeMap<SessionId, SessionSummary>,
    order: BTreeSet<Rank>,
    providers: Vec<Provider>,
    last_model: Option<ModelRef>,
    limits: Option<TimeLimits>,
    fallbacks: Vec<ModelRef>,
    model_options: Vec<OptionsOfModel>,
    pulls: Vec<OpenPull>,
    prices: Option<Prices>,
    salvages: Vec<Salvage>,
    cursor: Cursor,
}

/// Newest first; of equally new ones the younger first. The id only makes it total.
type Rank = (Reverse<Timestamp>, Reverse<Timestamp>, SessionId);

/// What an event changed in the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LibraryChange {
    /// This session's entry, or its place in the list.
    Sessions(SessionId),
    /// The model servers.
    Providers,
    /// The model a new session begins with.
    LastModel,
    /// The time limits, the fallbacks, models' options, pulls, prices, or what was salvaged.
    Settings,
}

impl Library {
    /// Before the first event.
    pub fn empty(log: LogId) -> Self {
        Self {
            sessions: BTreeMap::new(),
            order: BTreeSet::new(),
            providers: Vec::new(),
            last_model: None,
            limits: None,
            fallbacks: Vec::new(),
            model_options: Vec::new(),
            pulls: Vec::new(),
            prices: None,
            salvages: Vec::new(),
            cursor: Cursor::at_start(log),
        }
    }

    /// All sessions, the most recently active first, those in the bin included: [`SessionSummary::place`] tells.
    pub fn sessions_newest_first(&self) -> impl DoubleEndedIterator<Item = &SessionSummary> {
        self.order
            .iter()
            .filter_map(|(_, _, session)| self.sessions.get(session))
    }

    /// One session's entry.
    pub fn session(&self, session: SessionId) -> Option<&SessionSummary> {
        self.sessions.get(&session)
    }

    /// The configured model servers, in the order they were added.
    pub fn providers(&self) -> &[Provider] {
        &self.providers
    }

    /// The model of the newest turn anywhere: what a new session begins with.
    pub fn last_model(&self) -> Option<&ModelRef> {
        self.last_model.as_ref()
    }

    /// The position after the last applied event.
    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// How long turns wait for what, where the user chose.
    pub fn limits(&self) -> Option<TimeLimits> {
        self.limits
    }

    /// The models asked when a turn's own fails, in this order.
    pub fn fallbacks(&self) -> &[ModelRef] {
        &self.fallbacks
    }

    /// How models are asked, each as far as somebody chose.
    pub fn model_options(&self) -> &[OptionsOfModel] {
        &self.model_options
    }

    /// How this model is asked, as far as somebody chose.
    pub fn options_of(&self, model: &ModelRef) -> Option<&ModelOptions> {
        let mut all = self.model_options.iter();
        all.find(|own| own.model.is_same(model))
            .map(|own| &own.options)
    }

    /// Pulls that were begun and not completed, oldest first.
    pub fn pulls(&self) -> &[OpenPull] {
        &self.pulls
    }

    /// What models cost, where the user said so.
    pub fn prices(&self) -> Option<&Prices> {
        self.prices.as_ref()
    }

    /// What was saved of damaged logs, oldest first.
    pub fn salvages(&self) -> &[Salvage] {
        &self.salvages
    }

    /// This as a page to go on from.
    pub fn to_page(&self) -> LibraryPage {
        LibraryPage {
            sessions: self.sessions.values().cloned().collect(),
            providers: self.providers.clone(),
            last_model: self.last_model.clone(),
            limits: self.limits,
            fallbacks: self.fallbacks.clone(),
            model_options: self.model_options.clone(),
            pulls: self.pulls.clone(),
            prices: self.prices.clone(),
            salvages: self.salvages.clone(),
            as_of: self.cursor,
        }
    }

    fn fold(&mut self, event: &Event, changes: &mut Vec<LibraryChange>) {
        let at = event.at;
        match &event.body {
            EventBody::SessionListed {
                session,
                title,
                origin,
            } => {
                if self.sessions.contains_key(session) {
                    self.edit(*session, changes, |summary| summary.title.clone_from(title));
                } else {
                    let summary = SessionSummary {
                        session: *session,
                        title: title.clone(),
                        origin: *origin,
                        created_at: at,
                        active_at: at,
                        state: SessionState::Empty,
                        unread: None,
                        place: Place::Shelf,
                    };
                    self.order.insert(rank(&summary));
                    self.sessions.insert(*session, summary);
                    changes.push(LibraryChange::Sessions(*session));
                }
            }
            EventBody::SessionTitled { session, title } => {
                self.edit(*session, changes, |summary| summary.title.clone_from(title));
            }
            EventBody::SessionTurnStarted {
                session,
                turn,
                model,
            } => {
                self.edit(*session, changes, |summary| {
                    summary.state = SessionState::Running { turn: *turn };
                    summary.active_at = at;
                });
                if self.last_model.as_ref() != Some(model) {
                    self.last_model = Some(model.clone());
                    changes.push(LibraryChange::LastModel);
                }
            }
            EventBody::SessionTurnEnded {
                session,
                turn,
                outcome,
                unread,
            } => {
                self.edit(*session, changes, |summary| {
                    let ends_it = match summary.state {
                        SessionState::Running { turn: running }
                        | SessionState::Asking { turn: running } => running == *turn,
                        SessionState::Empty | SessionState::Ended { .. } => true,
                    };
                    if ends_it {
                        summary.state = SessionState::Ended { outcome: *outcome };
                    }
                    if *unread {
                        summary.unread = summary.unread.max(Some(*turn));
                    }
                    summary.active_at = at;
                });
            }
            // Seeing moves nothing: the list is in the order of what happened, not of who looked.
            EventBody::SessionSeen { session, turn } => {
                self.edit(*session, changes, |summary| {
                    summary.unread = summary.unread.filter(|unread| unread > turn);
                });
            }
            EventBody::SessionAsked { session, turn } => {
                self.edit(*session, changes, |summary| {
                    if summary.state == (SessionState::Running { turn: *turn }) {
                        summary.state = SessionState::Asking { turn: *turn };
                    }
                });
            }
            EventBody::SessionAnswered { session, turn } => {
                self.edit(*session, changes, |summary| {
                    if summary.state == (SessionState::Asking { turn: *turn }) {
                        summary.state = SessionState::Running { turn: *turn };
                    }
                });
            }
            EventBody::SessionRestored {
                session, outcome, ..
            } => {
                // When its turns ran has not changed, and so the session stays where it is in the list.
                self.edit(*session, changes, |summary| {
                    summary.state = SessionState::Ended { outcome: *outcome };
                    // Whoever brought it back knows it, and what it replaced is out of the conversation.
                    summary.unread = None;
                });
            }
            EventBody::SessionBinned { session } => {
                self.edit(*session, changes, |summary| summary.place = Place::Bin);
            }
            EventBody::SessionUnbinned { session } => {
                self.edit(*session, changes, |summary| summary.place = Place::Shelf);
            }
            EventBody::ProviderAdded { provider } | EventBody::ProviderChanged { provider } => {
                match self.providers.iter_mut().find(|own| own.id == provider.id) {
                    Some(own) => own.clone_from(provider),
                    None => self.providers.push(provider.clone()),
                }
                changes.push(LibraryChange::Providers);
            }
            EventBody::ProviderRemoved { provider } => {
                self.providers.retain(|own| own.id != *provider);
                changes.push(LibraryChange::Providers);
            }
            EventBody::TimeLimitsChanged { limits } => {
                self.limits = Some(*limits);
                changes.push(LibraryChange::Settings);
            }
            EventBody::FallbacksChosen { models } => {
                self.fallbacks.clone_from(models);
                changes.push(LibraryChange::Settings);
            }
            EventBody::ModelOptionsChanged { model, options } => {
                self.model_options.retain(|own| !own.model.is_same(model));
                if !options.is_empty() {
                    self.model_options.push(OptionsOfModel {
                        model: model.clone(),
                        options: options.clone(),
                    });
                }
                changes.push(LibraryChange::Settings);
            }
            EventBody::ModelPullStarted { boot, model } => {
                self.pulls.retain(|pull| !pull.model.is_same_pull(model));
                self.pulls.push(OpenPull {
                    model: model.clone(),
                    boot: *boot,
                    started_at: at,
                    failure: None,
                });
                changes.push(LibraryChange::Settings);
            }
            EventBody::ModelPullEnded { model, outcome } => {
                match outcome {
                    PullOutcome::Completed | PullOutcome::Cancelled => {
                        self.pulls.retain(|pull| !pull.model.is_same_pull(model));
                    }
                    // One that the user wants no more of has no failure either.
                    PullOutcome::Failed { failure } => {
                        let mut pulls = self.pulls.iter_mut();
                        if let Some(pull) = pulls.find(|pull| pull.model.is_same_pull(model)) {
                            pull.failure = Some(failure.clone());
                        }
                    }
                }
                changes.push(LibraryChange::Settings);
            }
            EventBody::PricesChosen { prices } => {
                self.prices = Some(prices.clone());
                changes.push(LibraryChange::Settings);
            }
            EventBody::LogSalvaged { salvage } => {
                self.salvages.push(salvage.clone());
                changes.push(LibraryChange::Settings);
            }
            // Of a session's stream.
            EventBody::SessionStarted { .. }
            | EventBody::SessionRenamed { .. }
            | EventBody::ModelChosen { .. }
            | EventBody::FolderChosen { .. }
            | EventBody::OptionsChosen { .. }
            | EventBody::UserMessageAdded { .. }
            | EventBody::TurnStarted { .. }
            | EventBody::StepStarted { .. }
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
            | EventBody::HistoryRewound { .. }
            | EventBody::HistoryRestored { .. }
            // A newer version's; the list has no place for what it cannot read, and the log keeps it.
            | EventBody::Unsupported { .. } => {}
        }
    }

    /// Changes a session's entry and moves it to where it then belongs. One that was never listed has none to change.
    fn edit(
        &mut self,
        session: SessionId,
        changes: &mut Vec<LibraryChange>,
        edit: impl FnOnce(&mut SessionSummary),
    ) {
        let Some(summary) = self.sessions.get_mut(&session) else {
            return;
        };
        let before = rank(summary);
        edit(summary);
        let after = rank(summary);
        if before != after {
            self.order.remove(&before);
            self.order.insert(after);
        }
        changes.push(LibraryChange::Sessions(session));
    }
}

impl Follow for Library {
    type Change = LibraryChange;

    fn from_page(page: Page) -> Result<Self, WrongPage> {
        match page {
            Page::Library(page) => Ok(Self::from(page)),
            Page::Session(_) => Err(WrongPage),
        }
    }

    fn stream(&self) -> StreamId {
        StreamId::Library
    }

    fn cursor(&self) -> Cursor {
        self.cursor
    }

    fn apply(&mut self, event: &Event, changes: &mut Vec<LibraryChange>) {
        match self.cursor.admits(event.seq) {
            Admission::Next => {}
            Admission::Seen | Admission::Gap => return,
        }
        self.fold(event, changes);
        self.cursor = self.cursor.advanced_to(event.seq);
    }
}

impl From<LibraryPage> for Library {
    fn from(page: LibraryPage) -> Self {
        let sessions: BTreeMap<_, _> = page
            .sessions
            .into_iter()
            .map(|summary| (summary.session, summary))
            .collect();
        Self {
            order: sessions.values().map(rank).collect(),
            sessions,
            providers: page.providers,
            last_model: page.last_model,
            limits: page.limits,
            fallbacks: page.fallbacks,
            model_options: page.model_options,
            pulls: page.pulls,
            prices: page.prices,
            salvages: page.salvages,
            cursor: page.as_of,
        }
    }
}

fn rank(summary: &SessionSummary) -> Rank {
    (
        Reverse(summary.active_at),
        Reverse(summary.created_at),
        summary.session,
    )
}
