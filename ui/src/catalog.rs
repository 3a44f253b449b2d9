//! The catalog: which models the configured servers offer, as last heard, and which were used last.
//!
//! A server is asked when someone wants to see its models, never while a question to it is open. What it said stays
//! shown until it says something else. Nothing here is kept anywhere but which models were used last.

use std::collections::HashMap;

use leptos::prelude::*;
use protocol::{
    Failure, FailureCode, Model, ModelRef, ModelsArgs, ProbeReport, Provider, ProviderId,
};

use crate::ipc;

/// A server that loads its index from a cold disk may take a while; the picker is usable meanwhile.
const MODELS_LIMIT_MS: u64 = 20_000;
/// As many as one remembers.
const RECENT_KEPT: usize = 6;
/// Between the parts of a model's name in the page's storage; no server's model has it in its name.
const SEPARATOR: char = '\u{1f}';

/// What is known of a server's models.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offer {
    /// Whether it is being asked now.
    pub(crate) asking: bool,
    /// What it said last.
    pub(crate) models: Vec<Model>,
    /// Why it said nothing the last time.
    pub(crate) failure: Option<Failure>,
}

/// What the servers offer.
#[derive(Clone, Copy)]
pub(crate) struct Catalog {
    pub(crate) offers: RwSignal<HashMap<ProviderId, Offer>>,
    /// Models used last, the newest first.
    pub(crate) recent: RwSignal<Vec<(ProviderId, String)>>,
}

impl Catalog {
    pub(crate) fn new() -> Self {
        Self {
            offers: RwSignal::new(HashMap::new()),
            recent: RwSignal::new(read_recent()),
        }
    }

    /// Asks every server that is not being asked already.
    pub(crate) fn ask_all(self, providers: &[Provider]) {
        for provider in providers {
            self.ask(provider.id);
        }
    }

    /// Asks one server.
    pub(crate) fn ask(self, provider: ProviderId) {
        let mut asking = true;
        self.offers.update(|offers| {
            let offer = offers.entry(provider).or_default();
            asking = std::mem::replace(&mut offer.asking, true);
        });
        if asking {
            return;
        }
        ipc::spawn(async move {
            let args = ModelsArgs { provider };
            let answer = ipc::within(MODELS_LIMIT_MS, ipc::models(&args)).await;
            self.offers.update(|offers| {
                let offer = offers.entry(provider).or_default();
                offer.asking = false;
                match answer {
                    Ok(ProbeReport::Works { models, .. }) => {
                        offer.models = models;
                        offer.failure = None;
                    }
                    Ok(ProbeReport::Fails { failure }) => offer.failure = Some(failure),
                    Err(error) => {
                        offer.failure =
                            Some(Failure::new(FailureCode::ConnectFailed, error.to_string()));
                    }
                }
            });
        });
    }

    /// Notes what a test of a server found, so that it need not be asked again.
    pub(crate) fn note(self, provider: ProviderId, models: Vec<Model>) {
        self.offers.update(|offers| {
            offers.insert(
                provider,
                Offer {
                    asking: false,
                    models,
                    failure: None,
                },
            );
        });
    }

    /// Notes that a model was chosen.
    pub(crate) fn note_use(self, model: &ModelRef) {
        let used = (model.provider, model.model.clone());
        self.recent.update(|recent| {
            recent.retain(|other| *other != used);
            recent.insert(0, used);
            recent.truncate(RECENT_KEPT);
        });
        let text: Vec<String> = self.recent.with_untracked(|recent| {
            recent
                .iter()
                .map(|(provider, model)| format!("{provider}{SEPARATOR}{model}"))
                .collect()
        });
        ipc::keep_preference("recent-models", &text.join("\n"));
    }
}

fn read_recent() -> Vec<(ProviderId, String)> {
    let text = ipc::preference("recent-models").unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let (provider, model) = line.split_once(SEPARATOR)?;
            // A line that cannot be read is a model that is not at the top of a list.
            Some((provider.parse().ok()?, model.to_owned()))
        })
        .collect()
}

/// The model to begin with when nobody chose one: one that is in memory, else the first that can answer.
pub(crate) fn first_choice(models: &[Model]) -> Option<&Model> {
    let answers = |model: &&Model| {
        model.capabilities.is_empty() || model.capabilities.iter().any(|c| c == "completion")
    };
    models
        .iter()
        .filter(answers)
        .find(|model| model.loaded == Some(true))
        .or_else(|| models.iter().find(answers))
}
