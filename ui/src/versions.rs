//! The versions of a conversation's turns: what retries and edits took out, and what stands in its place.
//!
//! Invariant: what is known is the engine's answer to the newest question, and one version is brought back at a time.
//! A place that is not known yet only lacks its control; the next change of the conversation asks again.
//! Not here: which version stands there (`pane`), and what bringing one back does to the view (`components::versions`).

use leptos::prelude::*;
use protocol::{LoadVersionsArgs, SessionId, TurnId, TurnVersions};

use crate::{ipc, library::set_if_new};

/// Reading from a disk that spins up takes seconds, not more.
const LOAD_LIMIT_MS: u64 = 15_000;

/// To which of its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Earlier,
    Later,
}

/// Where a turn stands among its versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// From 1.
    pub(crate) at: usize,
    pub(crate) of: usize,
    pub(crate) earlier: Option<TurnId>,
    pub(crate) later: Option<TurnId>,
}

/// What is known of one session.
#[derive(Clone, Copy)]
pub(crate) struct Versions {
    places: RwSignal<Vec<TurnVersions>>,
    /// How often the engine was asked.
    asked: StoredValue<u64>,
    /// Whether one is being brought back.
    under_way: StoredValue<bool>,
    /// Whose control takes the focus when it is drawn, and which of its buttons.
    awaited: StoredValue<Option<(TurnId, Way)>>,
}

impl Versions {
    pub(crate) fn unknown() -> Self {
        Self {
            places: RwSignal::new(Vec::new()),
            asked: StoredValue::new(0),
            under_way: StoredValue::new(false),
            awaited: StoredValue::new(None),
        }
    }

    /// Asks the engine.
    pub(crate) fn load(self, session: SessionId) {
        self.asked.update_value(|asked| *asked += 1);
        let asked = self.asked.get_value();
        ipc::spawn(async move {
            let args = LoadVersionsArgs { session };
            let places = ipc::within(LOAD_LIMIT_MS, ipc::load_versions(&args)).await;
            let is_newest = self.asked.try_get_value() == Some(asked);
            if let (Ok(places), true) = (places, is_newest) {
                set_if_new(self.places, places);
            }
        });
    }

    /// Where a turn stands among its versions, if there are others.
    pub(crate) fn of(self, turn: TurnId) -> Option<Version> {
        self.places.with(|places| {
            let place = places.iter().find(|place| place.turns.contains(&turn))?;
            let at = place.turns.iter().position(|own| *own == turn)?;
            Some(Version {
                at: at + 1,
                of: place.turns.len(),
                earlier: at
                    .checked_sub(1)
                    .and_then(|at| place.turns.get(at))
                    .copied(),
                later: place.turns.get(at + 1).copied(),
            })
        })
    }

    /// Begins to bring one back; `false` while another one is under way.
    pub(crate) fn begin(self, turn: TurnId, way: Way) -> bool {
        if self.under_way.get_value() {
            return false;
        }
        self.under_way.set_value(true);
        self.awaited.set_value(Some((turn, way)));
        true
    }

    /// It is back, or was refused: then nothing waits for it.
    pub(crate) fn end(self, is_back: bool) {
        self.under_way.try_set_value(false);
        if !is_back {
            self.awaited.try_set_value(None);
        }
    }

    /// The button of this turn's control that takes the focus; asked when it is drawn, and answered once.
    pub(crate) fn focus_of(self, turn: TurnId) -> Option<Way> {
        let (awaited, way) = self.awaited.get_value()?;
        (awaited == turn).then(|| {
            self.awaited.set_value(None);
            way
        })
    }
}
