//! Says in the composer that the chat's model is not where it was, and leads to those there are.
//!
//! Invariant: what stands in the chat does not depend on any of this. A server is asked when a chat with its model is
//! opened or an answer of it failed, and never while a question to it is open.

use leptos::prelude::*;
use protocol::{Origin, TurnOutcome};
use transcript::words::{self, Server};

use crate::{desk::use_desk, drafts::Whose};

/// The line above the buttons; nothing where the model is there, or may be.
#[component]
pub(crate) fn MissingModel(whose: Whose) -> impl IntoView {
    let desk = use_desk();
    let pane = move || desk.pane.get().filter(|pane| Some(pane.session) == whose);
    let model = Memo::new(move |_| match pane() {
        Some(pane) => pane.model.get(),
        None => desk.model(),
    });
    let is_running = Memo::new(move |_| pane().is_some_and(|pane| pane.running.get().is_some()));
    let has_failed = move || {
        let pane = pane()?;
        let turn = pane.last_ended()?;
        pane.with_turn(turn, |view| match &view.outcome {
            Some(TurnOutcome::Failed { .. }) => Some(()),
            Some(
                TurnOutcome::Completed { .. }
                | TurnOutcome::Cancelled { .. }
                | TurnOutcome::Interrupted { .. },
            )
            | None => None,
        })?
    };
    let asked = StoredValue::new(None);
    Effect::new(move |_| {
        let (Some(model), false) = (model.get(), is_running.get()) else {
            return;
        };
        let is_known = asked.get_value().as_ref() == Some(&model);
        let is_there = desk.library.has_provider(&model);
        if is_there && (!is_known || untrack(has_failed).is_some()) {
            desk.catalog.ask(model.provider);
        }
        asked.set_value(Some(model));
    });
    let said = Memo::new(move |_| {
        let model = model.get().filter(|_| !is_running.get())?;
        if !desk.library.loaded.get() {
            return None;
        }
        let Some(provider) = desk.library.provider_now(model.provider) else {
            // Nobody ever had the server of the sample.
            let is_sample = pane().is_some_and(|pane| pane.origin.get() == Origin::Sample);
            return words::missing_model(&model, Server::Removed).filter(|_| !is_sample);
        };
        desk.catalog.offers.with(|offers| {
            let offer = offers.get(&provider.id)?;
            if offer.asking {
                return None;
            }
            let server = match &offer.failure {
                Some(failure) => Server::Silent(failure),
                None => Server::Offers(provider.dialect, &offer.models),
            };
            words::missing_model(&model, server)
        })
    });
    move || {
        said.get().map(|said| {
            view! {
                <p class="composer-missing" role="status" data-testid="model-missing">
                    <span>{said}</span>
                    <button
                        type="button"
                        class="button"
                        data-testid="model-missing-choose"
                        on:click=move |_| desk.open_models()
                    >
                        "Choose another model"
                    </button>
                </p>
            }
        })
    }
}
