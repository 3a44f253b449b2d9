//! The models that are asked, in this order, when a turn's own fails before it said anything.
//!
//! Every change is saved at once: there is no half-made list. Moving keeps the focus on the model that moved.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use leptos::prelude::*;
use protocol::{ModelRef, Op};

use crate::{
    components::icons::{Glyph, Icon},
    desk::use_desk,
    ipc,
};

/// Between a server and a model in an option's value; no id has it in it.
const SEPARATOR: char = '\u{1f}';

/// The list, and the way to make it longer.
#[component]
pub(crate) fn Fallbacks() -> impl IntoView {
    let desk = use_desk();
    let models = desk.library.fallbacks;
    desk.catalog
        .ask_all(&desk.library.providers.get_untracked());
    let offered = Memo::new(move |_| {
        let chosen = models.get();
        let providers = desk.library.providers.get();
        desk.catalog.offers.with(|offers| {
            let mut offered = Vec::new();
            for provider in &providers {
                let known = offers
                    .get(&provider.id)
                    .map(|offer| offer.models.as_slice());
                let free = known.unwrap_or_default().iter().map(|model| ModelRef {
                    provider: provider.id,
                    provider_name: provider.name.clone(),
                    model: model.name.clone(),
                });
                let free: Vec<ModelRef> = free.filter(|model| !has(&chosen, model)).collect();
                if !free.is_empty() {
                    offered.push((provider.name.clone(), free));
                }
            }
            offered
        })
    });
    let wanted = RwSignal::new(String::new());
    let choose = move |models: Vec<ModelRef>| desk.act(Op::ChooseFallbacks { models });
    let add = move |_| {
        let value = wanted.get_untracked();
        let found = offered.with_untracked(|offered| {
            let mut models = offered.iter().flat_map(|(_, models)| models);
            models.find(|model| option_value(model) == value).cloned()
        });
        if let Some(model) = found {
            let mut all = models.get_untracked();
            all.push(model);
            wanted.set(String::new());
            choose(all);
            // The button that was pressed has nothing to add now, and cannot keep the focus.
            let _ = ipc::focus("[data-testid=fallback-model]");
        }
    };
    view! {
        <ol class="fallbacks" data-testid="fallbacks">
            <For each=move || models.get() key=option_value let:model>
                <Fallback model models />
            </For>
        </ol>
        {move || {
            models
                .with(Vec::is_empty)
                .then(|| view! { <p class="hint">"None: a turn whose model fails ends there."</p> })
        }}
        <div class="fallback-add">
            <label class="form-field">
                <span class="offscreen">"Model to add"</span>
                <select
                    class="field"
                    data-testid="fallback-model"
                    prop:value=move || wanted.get()
                    on:change=move |event| wanted.set(event_target_value(&event))
                >
                    <option value="">"Choose a model…"</option>
                    {move || {
                        offered
                            .get()
                            .into_iter()
                            .map(|(server, models)| {
                                let options = models
                                    .into_iter()
                                    .map(|model| {
                                        let value = option_value(&model);
                                        view! { <option value=value>{model.model}</option> }
                                    })
                                    .collect_view();
                                view! { <optgroup label=server>{options}</optgroup> }
                            })
                            .collect_view()
                    }}
                </select>
            </label>
            <button
                type="button"
                class="button"
                data-testid="fallback-add"
                disabled=move || wanted.with(String::is_empty)
                on:click=add
            >
                "Add"
            </button>
        </div>
    }
    .into_any()
}

#[component]
fn Fallback(model: ModelRef, models: RwSignal<Vec<ModelRef>>) -> impl IntoView {
    let desk = use_desk();
    let of = StoredValue::new(model.clone());
    let place = Memo::new(move |_| {
        let at = models
            .with(|models| of.with_value(|of| models.iter().position(|other| is_same(other, of))));
        at.unwrap_or_default()
    });
    let is_last = move || models.with(|models| place.get() + 1 >= models.len());
    // What moves is moved in the page too, which takes its focus; it is given back when it has moved, and that is when
    // the change comes back, however long that takes.
    let moving = StoredValue::new(None::<&'static str>);
    Effect::new(move |before: Option<usize>| {
        let at = place.get();
        if before.is_some_and(|before| before != at)
            && let Some(testid) = moving.try_update_value(Option::take).flatten()
        {
            ipc::spawn(async move {
                ipc::next_frame_or(100).await;
                // The end of the list has no further way; the other button is then the nearest.
                for testid in [testid, "fallback-up", "fallback-down"] {
                    let selector = format!(
                        ".fallbacks li:nth-child({}) [data-testid={testid}]:not(:disabled)",
                        at + 1
                    );
                    if ipc::focus(&selector) {
                        break;
                    }
                }
            });
        }
        at
    });
    let move_by = move |by: isize, testid: &'static str| {
        let from = place.get_untracked();
        let mut all = models.get_untracked();
        let to = from.saturating_add_signed(by);
        if from >= all.len() || to >= all.len() || from == to {
            return;
        }
        all.swap(from, to);
        moving.set_value(Some(testid));
        ipc::spawn(async move {
            if let Err(error) = desk.submit(Op::ChooseFallbacks { models: all }).await {
                moving.try_update_value(Option::take);
                desk.tell(&error);
            }
        });
    };
    // The row goes away with its focus; what it can be replaced with is next.
    let leaving = Arc::new(AtomicBool::new(false));
    let left = Arc::clone(&leaving);
    on_cleanup(move || {
        if left.load(Ordering::Relaxed) {
            ipc::spawn(async {
                ipc::next_frame_or(100).await;
                if ipc::is_focus_lost() {
                    let _ = ipc::focus("[data-testid=fallback-model]");
                }
            });
        }
    });
    let remove = move |_| {
        let mut all = models.get_untracked();
        of.with_value(|of| all.retain(|other| !is_same(other, of)));
        leaving.store(true, Ordering::Relaxed);
        let leaving = Arc::clone(&leaving);
        ipc::spawn(async move {
            if let Err(error) = desk.submit(Op::ChooseFallbacks { models: all }).await {
                leaving.store(false, Ordering::Relaxed);
                desk.tell(&error);
            }
        });
    };
    let name = model.model.clone();
    view! {
        <li class="fallback" data-testid="fallback">
            <span class="server-words">
                <span class="server-name">{model.model}</span>
                <span class="server-address">{model.provider_name}</span>
            </span>
            <button
                type="button"
                class="icon-button"
                data-testid="fallback-up"
                aria-label=format!("Ask {name} earlier")
                title="Earlier"
                disabled=move || place.get() == 0
                on:click=move |_| move_by(-1, "fallback-up")
            >
                <Glyph icon=Icon::ArrowUp />
            </button>
            <button
                type="button"
                class="icon-button"
                data-testid="fallback-down"
                aria-label=format!("Ask {name} later")
                title="Later"
                disabled=is_last
                on:click=move |_| move_by(1, "fallback-down")
            >
                <Glyph icon=Icon::ArrowDown />
            </button>
            <button
                type="button"
                class="icon-button"
                data-testid="fallback-remove"
                aria-label=format!("Remove {name}")
                title="Remove"
                on:click=remove
            >
                <Glyph icon=Icon::Bin />
            </button>
        </li>
    }
    .into_any()
}

/// Names may have changed since; the server and its model are what counts.
fn is_same(one: &ModelRef, other: &ModelRef) -> bool {
    one.provider == other.provider && one.model == other.model
}

fn has(models: &[ModelRef], model: &ModelRef) -> bool {
    models.iter().any(|other| is_same(other, model))
}

fn option_value(model: &ModelRef) -> String {
    format!("{}{SEPARATOR}{}", model.provider, model.model)
}
