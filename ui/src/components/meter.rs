//! The context meter beside the composer: how full the model's context is, by the servers' own counts.
//!
//! Not here: what counts (`transcript::meter`). The size is what is known without asking anybody: the one the server is
//! told to use, or the one it said when its models were listed.

use leptos::prelude::*;
use protocol::{AttemptView, Dialect, ModelRef};
use transcript::meter::ContextMeter;

use crate::{
    desk::{Desk, use_desk},
    drafts::Whose,
};

/// Turns that are looked at: the count is nearly always in the last one.
const TURNS_LOOKED_AT: usize = 8;

/// The meter of `whose` conversation; nothing for the one not begun yet.
#[component]
pub(crate) fn Meter(whose: Whose) -> impl IntoView {
    let desk = use_desk();
    let reading = Memo::new(move |_| {
        let pane = desk.pane.get().filter(|pane| Some(pane.session) == whose)?;
        // What is counted changes with the turns: at their beginnings and ends.
        pane.running.track();
        let turns = pane.turns.get();
        let skipped = turns.len().saturating_sub(TURNS_LOOKED_AT);
        let attempts: Vec<Vec<AttemptView>> = turns
            .iter()
            .skip(skipped)
            .filter_map(|turn| pane.with_turn(*turn, |view| view.attempts.clone()))
            .collect();
        let size = desk.model().and_then(|model| size(desk, &model));
        Some(ContextMeter::of(attempts.iter().map(Vec::as_slice), size))
    });
    move || {
        let meter = reading.get()?;
        let (brief, words) = (meter.brief()?, meter.words()?);
        let percent = meter.percent();
        let title = format!("Context: {words}");
        let spoken = title.clone();
        Some(view! {
            <span
                class="context-meter"
                class:is-nearly-full=meter.is_nearly_full()
                data-testid="context-meter"
                title=title
            >
                {percent
                    .map(|percent| {
                        view! {
                            <span class="context-bar" aria-hidden="true">
                                <span class="context-fill" style:inline-size=format!("{percent}%")></span>
                            </span>
                        }
                    })}
                <span aria-hidden="true">{brief}</span>
                <span class="offscreen">{spoken}</span>
            </span>
        })
    }
}

fn size(desk: Desk, model: &ModelRef) -> Option<u64> {
    let provider = desk.library.providers.with(|providers| {
        let mut providers = providers.iter();
        providers.find(|p| p.id == model.provider).cloned()
    })?;
    let listed = desk.catalog.offers.with(|offers| {
        let models = &offers.get(&model.provider)?.models;
        models.iter().find(|m| m.name == model.model).cloned()
    });
    let chosen = desk.library.options_of_model(model).num_ctx;
    match provider.dialect {
        Dialect::Ollama | Dialect::Local => {
            chosen.or(provider.num_ctx).map(u64::from).or_else(|| {
                // What it could do at most says nothing about a model that is not loaded: its server's default is smaller.
                let loaded = listed.filter(|model| model.loaded == Some(true))?;
                loaded.context_tokens
            })
        }
        Dialect::OpenAiChat | Dialect::Anthropic => listed?.context_tokens,
    }
}
