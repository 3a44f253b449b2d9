//! The library as signals: one per session, so that a turn that starts or ends somewhere redraws one row.
//!
//! Fed by `follow` from the fold; nothing here decides what the library holds.

use std::collections::HashMap;

use leptos::prelude::*;
use protocol::{
    ModelOptions, ModelRef, OptionsOfModel, Place, Prices, Provider, ProviderId, Salvage,
    SessionId, SessionState, SessionSummary, TimeLimits, Timestamp, TurnId,
};

use crate::{calendar, ipc};

/// When a session was last active, as the list groups it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Age {
    Today,
    Yesterday,
    ThisWeek,
    Older,
}

impl Age {
    /// Its heading.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Today => "Today",
            Self::Yesterday => "Yesterday",
            Self::ThisWeek => "Previous 7 days",
            Self::Older => "Older",
        }
    }
}

/// A row of the session list.
#[derive(Clone, Copy)]
pub(crate) struct SessionRow {
    pub(crate) session: SessionId,
    pub(crate) summary: ArcSummary,
}

/// A session's summary; lives as long as the library does.
pub(crate) type ArcSummary = RwSignal<SessionSummary>;

/// A heading and the sessions under it, newest first.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Shelf {
    pub(crate) age: Age,
    pub(crate) sessions: Vec<SessionId>,
}

/// What sessions and providers exist.
#[derive(Clone, Copy)]
pub(crate) struct Library {
    /// Whether the library was ever loaded: only then "nothing here yet" may be said.
    pub(crate) loaded: RwSignal<bool>,
    /// Sessions on the shelf, grouped.
    pub(crate) shelves: RwSignal<Vec<Shelf>>,
    /// Configured model servers, in the order they were added.
    pub(crate) providers: RwSignal<Vec<Provider>>,
    /// What a new session begins with.
    pub(crate) last_model: RwSignal<Option<ModelRef>>,
    /// How long turns wait for what, where the user chose.
    pub(crate) limits: RwSignal<Option<TimeLimits>>,
    /// The models asked when a turn's own fails, in this order.
    pub(crate) fallbacks: RwSignal<Vec<ModelRef>>,
    /// How models are asked, each as far as somebody chose.
    pub(crate) model_options: RwSignal<Vec<OptionsOfModel>>,
    /// What models cost, where the user said so.
    pub(crate) prices: RwSignal<Option<Prices>>,
    /// What was saved of damaged logs, oldest first.
    pub(crate) salvages: RwSignal<Vec<Salvage>>,
    rows: StoredValue<HashMap<SessionId, ArcSummary>>,
}

impl Library {
    pub(crate) fn new() -> Self {
        Self {
            loaded: RwSignal::new(false),
            shelves: RwSignal::new(Vec::new()),
            providers: RwSignal::new(Vec::new()),
            last_model: RwSignal::new(None),
            limits: RwSignal::new(None),
            fallbacks: RwSignal::new(Vec::new()),
            model_options: RwSignal::new(Vec::new()),
            prices: RwSignal::new(None),
            salvages: RwSignal::new(Vec::new()),
            rows: StoredValue::new(HashMap::new()),
        }
    }

    /// Shows the fold's present state.
    pub(crate) fn show(self, library: &transcript::Library) {
        self.rows.update_value(|rows| {
            for summary in library.sessions_newest_first() {
                match rows.get(&summary.session) {
                    Some(row) => {
                        if row.with_untracked(|shown| shown != summary) {
                            row.set(summary.clone());
                        }
                    }
                    None => {
                        rows.insert(summary.session, RwSignal::new(summary.clone()));
                    }
                }
            }
        });
        let listed = library
            .sessions_newest_first()
            .filter(|s| s.place == Place::Shelf);
        set_if_new(self.shelves, shelves(listed, ipc::wall()));
        set_if_new(self.providers, library.providers().to_vec());
        set_if_new(self.last_model, library.last_model().cloned());
        set_if_new(self.limits, library.limits());
        set_if_new(self.fallbacks, library.fallbacks().to_vec());
        set_if_new(self.model_options, library.model_options().to_vec());
        set_if_new(self.prices, library.prices().cloned());
        set_if_new(self.salvages, library.salvages().to_vec());
        set_if_new(self.loaded, true);
    }

    /// How a model is asked, as far as somebody chose.
    pub(crate) fn options_of_model(self, model: &ModelRef) -> ModelOptions {
        self.model_options.with(|all| {
            let mut all = all.iter();
            let own = all.find(|own| own.model.is_same(model));
            own.map(|own| own.options.clone()).unwrap_or_default()
        })
    }

    /// The same, asked once.
    pub(crate) fn options_of(self, model: &ModelRef) -> ModelOptions {
        untrack(move || self.options_of_model(model))
    }

    /// A model server, if it is in the settings now.
    pub(crate) fn provider(self, id: ProviderId) -> Option<Provider> {
        self.providers.with_untracked(|providers| {
            let mut all = providers.iter();
            all.find(|provider| provider.id == id).cloned()
        })
    }

    /// A session's summary, if the library knows it.
    pub(crate) fn row(self, session: SessionId) -> Option<SessionRow> {
        let summary = self.rows.with_value(|rows| rows.get(&session).copied())?;
        Some(SessionRow { session, summary })
    }

    /// Whether a session on the shelf waits for the user's word.
    pub(crate) fn is_any_asking(self) -> bool {
        let listed: Vec<SessionId> = self.shelves.with(|shelves| {
            let listed = shelves.iter().flat_map(|shelf| &shelf.sessions);
            listed.copied().collect()
        });
        // All of them are looked at, so that each can change the answer.
        let asking = listed.iter().filter_map(|session| self.row(*session));
        asking.fold(false, |any, row| {
            let state = row.summary.with(|summary| summary.state);
            any | matches!(state, SessionState::Asking { .. })
        })
    }

    /// The newest turn of a session whose end nobody has seen.
    pub(crate) fn unread(self, session: SessionId) -> Option<TurnId> {
        // A session that was just begun is not listed yet.
        self.shelves.track();
        let row = self.row(session)?;
        row.summary.with(|summary| summary.unread)
    }

    /// The `nth` session of the list, from 1.
    pub(crate) fn nth(self, nth: usize) -> Option<SessionId> {
        self.shelves.with_untracked(|shelves| {
            let mut listed = shelves.iter().flat_map(|shelf| &shelf.sessions);
            listed.nth(nth.checked_sub(1)?).copied()
        })
    }

    /// One server of the settings, as it is now; whoever asks is told of every change.
    pub(crate) fn provider_now(self, id: ProviderId) -> Option<Provider> {
        self.providers.track();
        self.provider(id)
    }

    /// Whether a model is of a server that is configured now.
    pub(crate) fn has_provider(self, model: &ModelRef) -> bool {
        self.providers
            .with(|providers| providers.iter().any(|p| p.id == model.provider))
    }
}

/// Sets a signal only if that changes it: what looks the same is not drawn again.
pub(crate) fn set_if_new<T: PartialEq + Send + Sync + 'static>(signal: RwSignal<T>, value: T) {
    if signal.with_untracked(|shown| *shown != value) {
        signal.set(value);
    }
}

/// Groups sessions that come newest first.
fn shelves<'a>(sessions: impl Iterator<Item = &'a SessionSummary>, now: Timestamp) -> Vec<Shelf> {
    let today = calendar::day(now);
    let mut shelves: Vec<Shelf> = Vec::new();
    for summary in sessions {
        let age = match today - calendar::day(summary.active_at) {
            ..=0 => Age::Today,
            1 => Age::Yesterday,
            2..=7 => Age::ThisWeek,
            _ => Age::Older,
        };
        match shelves.last_mut() {
            Some(shelf) if shelf.age == age => shelf.sessions.push(summary.session),
            Some(_) | None => shelves.push(Shelf {
                age,
                sessions: vec![summary.session],
            }),
        }
    }
    shelves
}
