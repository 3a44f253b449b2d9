//! The model picker: a button that names the model, and a list that is filtered by typing.
//!
//! It is a combobox: the focus stays in the field, the arrows move a mark through the list, Enter chooses, Escape
//! closes. A server that does not answer is a quiet line, not an error: the others are as usable as before.

use leptos::{ev, html, prelude::*};
use protocol::{Model, ModelRef, Provider};

use crate::{
    calendar,
    catalog::Offer,
    components::icons::{Glyph, Icon},
    desk::{Overlay, SettingsPart, sentence, use_desk},
    ipc,
};

/// One model that can be chosen.
#[derive(Clone, PartialEq, Eq)]
struct Choice {
    of: ModelRef,
    model: Model,
}

/// What stands in the list.
#[derive(Clone, PartialEq, Eq)]
enum Row {
    Heading(String),
    /// A choice and its place among the choices.
    Choice(usize, Box<Choice>),
    Quiet(String),
}

/// The button in the composer, and the list above it.
#[component]
pub(crate) fn ModelPicker() -> impl IntoView {
    let desk = use_desk();
    let open = Memo::new(move |_| desk.overlay.get() == Some(Overlay::Models));
    let chosen = Memo::new(move |_| desk.model());
    let name = move || match chosen.get() {
        Some(model) => short_name(&model.model).to_owned(),
        None => "Choose a model".to_owned(),
    };
    let label = move || match chosen.get() {
        Some(model) => format!("Model: {} on {}", model.model, model.provider_name),
        None => "Choose a model".to_owned(),
    };
    view! {
        <div class="picker">
            <button
                type="button"
                class="picker-button"
                data-testid="model-picker"
                aria-haspopup="listbox"
                aria-expanded=move || if open.get() { "true" } else { "false" }
                aria-label=label
                title=label
                on:click=move |_| {
                    if open.get_untracked() { desk.close_overlay() } else { desk.open_models() }
                }
            >
                <span class="picker-name">{name}</span>
                <Glyph icon=Icon::Chevron />
            </button>
            {move || open.get().then(|| view! { <PickerList chosen /> })}
        </div>
    }
    .into_any()
}

#[component]
fn PickerList(chosen: Memo<Option<ModelRef>>) -> impl IntoView {
    let desk = use_desk();
    let field = NodeRef::<html::Input>::new();
    let filter = RwSignal::new(String::new());
    let marked = RwSignal::new(0_usize);
    let rows = Memo::new(move |_| {
        let providers = desk.library.providers.get();
        let recent = desk.catalog.recent.get();
        let filter = filter.get();
        desk.catalog.offers.with(|offers| {
            let known = providers.iter().map(|provider| {
                let offer = offers.get(&provider.id).cloned().unwrap_or_default();
                (provider.clone(), offer)
            });
            rows(known.collect(), &recent, chosen.get().as_ref(), &filter)
        })
    });
    let choices = Memo::new(move |_| {
        rows.with(|rows| {
            let choices = rows.iter().filter_map(|row| match row {
                Row::Choice(_, choice) => Some(choice.of.clone()),
                Row::Heading(_) | Row::Quiet(_) => None,
            });
            choices.collect::<Vec<_>>()
        })
    });
    // The mark begins at the model in use, and at the top of every other list.
    Effect::new(move |_| {
        let at = choices.with(|choices| {
            let used = chosen.get_untracked();
            choices.iter().position(|of| Some(of) == used.as_ref())
        });
        marked.set(
            at.filter(|_| filter.with_untracked(String::is_empty))
                .unwrap_or(0),
        );
    });
    let step = move |by: isize| {
        let count = choices.with_untracked(Vec::len);
        if count > 0 {
            marked.update(|at| *at = (*at).saturating_add_signed(by).min(count - 1));
            ipc::reveal(&option_id(marked.get_untracked()));
        }
    };
    let choose = move |of: ModelRef| {
        desk.choose_model(of);
        desk.close_overlay();
        desk.take_attention();
    };
    let choose_marked = move || {
        let of = choices.with_untracked(|choices| choices.get(marked.get_untracked()).cloned());
        if let Some(of) = of {
            choose(of);
        }
    };
    field.on_load(|field| {
        // Focus is a courtesy; the field can be clicked.
        let _ = field.focus();
    });
    let on_keydown = move |event: ev::KeyboardEvent| {
        if ipc::is_composing(&event) {
            return;
        }
        match event.key().as_str() {
            "ArrowDown" => step(1),
            "ArrowUp" => step(-1),
            "PageDown" => step(8),
            "PageUp" => step(-8),
            "Enter" => choose_marked(),
            "Tab" => {
                desk.close_overlay();
                return;
            }
            _ => return,
        }
        event.prevent_default();
    };
    view! {
        <div class="popover picker-popover" role="dialog" aria-label="Choose a model">
            <div class="picker-search">
                <Glyph icon=Icon::Search />
                <input
                    node_ref=field
                    class="picker-field"
                    type="text"
                    role="combobox"
                    aria-label="Find a model"
                    aria-expanded="true"
                    aria-controls="model-list"
                    aria-autocomplete="list"
                    aria-activedescendant=move || option_id(marked.get())
                    placeholder="Find a model"
                    autocomplete="off"
                    spellcheck="false"
                    prop:value=move || filter.get()
                    on:input=move |event| filter.set(event_target_value(&event))
                    on:keydown=on_keydown
                />
            </div>
            <div class="picker-list" id="model-list" role="listbox" aria-label="Models">
                <For each=move || rows.get() key=row_key let:row>
                    {match row {
                        Row::Heading(words) => {
                            view! { <div class="picker-heading" role="presentation">{words}</div> }
                                .into_any()
                        }
                        Row::Quiet(words) => {
                            view! { <div class="picker-quiet" role="presentation">{words}</div> }
                                .into_any()
                        }
                        Row::Choice(at, choice) => {
                            let choice = *choice;
                            view! { <ChoiceRow at choice marked chosen choose=Callback::new(choose) /> }
                                .into_any()
                        }
                    }}
                </For>
            </div>
            <div class="picker-foot">
                <button
                    type="button"
                    class="button button-quiet"
                    on:click=move |_| desk.open_settings(SettingsPart::Servers)
                >
                    "Servers…"
                </button>
                <button
                    type="button"
                    class="button button-quiet"
                    data-testid="picker-manage"
                    on:click=move |_| desk.open_settings(SettingsPart::Models)
                >
                    "Models…"
                </button>
            </div>
        </div>
    }
    .into_any()
}

#[component]
fn ChoiceRow(
    at: usize,
    choice: Choice,
    marked: RwSignal<usize>,
    chosen: Memo<Option<ModelRef>>,
    choose: Callback<ModelRef>,
) -> impl IntoView {
    let Choice { of, model } = choice;
    let picked = of.clone();
    let is_chosen = Memo::new(move |_| chosen.with(|chosen| chosen.as_ref() == Some(&picked)));
    let facts = facts(&model);
    let abilities = abilities(&model);
    let loaded = model.loaded == Some(true);
    view! {
        <div
            id=option_id(at)
            class="picker-option"
            class:is-marked=move || marked.get() == at
            role="option"
            data-testid="model-option"
            data-model=model.name.clone()
            aria-selected=move || if is_chosen.get() { "true" } else { "false" }
            on:pointermove=move |_| {
                if marked.get_untracked() != at {
                    marked.set(at);
                }
            }
            on:click=move |_| choose.run(of.clone())
        >
            <span class="picker-check">
                {move || is_chosen.get().then(|| view! { <Glyph icon=Icon::Check /> })}
            </span>
            <span class="picker-model">
                <span class="picker-model-name">
                    {file_name(&model.name, model.file.is_some())}
                </span>
                <span class="picker-facts">
                    {loaded.then(loaded_mark)}
                    {facts}
                </span>
            </span>
            <span class="picker-badges">
                {abilities
                    .into_iter()
                    .map(|ability| view! { <span class="badge">{ability}</span> })
                    .collect_view()}
            </span>
        </div>
    }
    .into_any()
}

/// A dot, and the word for it.
pub(crate) fn loaded_mark() -> impl IntoView {
    view! {
        <span class="picker-loaded">
            <span class="dot is-ok" aria-hidden="true"></span>
            "loaded"
        </span>
    }
}

/// What a model can do beside answering in words, as badges say it.
pub(crate) fn abilities(model: &Model) -> Vec<String> {
    let shown = |ability: &&String| {
        matches!(
            ability.as_str(),
            "tools" | "vision" | "thinking" | "embedding" | "audio"
        )
    };
    model.capabilities.iter().filter(shown).cloned().collect()
}

/// A name that still tells models apart when their owner's name is left away.
pub(crate) fn short_name(model: &str) -> &str {
    let name = model.rsplit('/').next().unwrap_or(model);
    name.strip_suffix(".gguf").unwrap_or(name)
}

/// A model's name; of a file that lies elsewhere the last part of its path.
pub(crate) fn file_name(model: &str, is_file: bool) -> String {
    // Not by the standard library, which knows no paths on a page: they are those of the engine's system.
    let behind_drive = model.get(1..).unwrap_or_default();
    let is_path = model.starts_with(['/', '\\'])
        || behind_drive.starts_with(":\\")
        || behind_drive.starts_with(":/");
    let name = model.rsplit(['/', '\\']).next().unwrap_or(model);
    if is_file && is_path { name } else { model }.to_owned()
}

fn option_id(at: usize) -> String {
    format!("model-option-{at}")
}

fn row_key(row: &Row) -> String {
    match row {
        Row::Heading(words) => format!("h {words}"),
        Row::Quiet(words) => format!("q {words}"),
        Row::Choice(at, choice) => {
            let provider = choice.of.provider;
            format!("{at} {provider} {:?}", choice.model)
        }
    }
}

pub(crate) fn facts(model: &Model) -> String {
    let size = model.size_bytes.map(calendar::bytes);
    let context = model
        .context_tokens
        .map(|tokens| format!("{} context", calendar::context(tokens)));
    let trouble = model.file.as_ref().and_then(|file| {
        let words = if file.problem.is_some() {
            "cannot be used"
        } else {
            file.warning.as_ref()?;
            "may not fit into memory"
        };
        Some(words.to_owned())
    });
    let known = [
        trouble,
        model.parameters.clone(),
        model.quantization.clone(),
        size,
        context,
    ];
    known.into_iter().flatten().collect::<Vec<_>>().join(" · ")
}

/// The list: what was used last and is on offer, then every server with its models, or with what keeps it quiet.
fn rows(
    known: Vec<(Provider, Offer)>,
    recent: &[(protocol::ProviderId, String)],
    chosen: Option<&ModelRef>,
    filter: &str,
) -> Vec<Row> {
    let words: Vec<String> = filter.split_whitespace().map(str::to_lowercase).collect();
    let named = |choice: &Choice| {
        let name = choice.of.model.to_lowercase();
        words.iter().all(|word| name.contains(word.as_str()))
    };
    let anywhere = |choice: &Choice| {
        let name = format!("{} {}", choice.of.model, choice.of.provider_name).to_lowercase();
        words.iter().all(|word| name.contains(word.as_str()))
    };
    let mut offered: Vec<(&Provider, &Offer, Vec<Choice>)> = known
        .iter()
        .map(|(provider, offer)| {
            let choices = offer.models.iter().map(|model| Choice {
                of: ModelRef {
                    provider: provider.id,
                    provider_name: provider.name.clone(),
                    model: model.name.clone(),
                },
                model: model.clone(),
            });
            (provider, offer, choices.collect())
        })
        .collect();
    // Who types "llama" means a model, not every model of "Ollama"; a server's name counts where no model's does.
    let by_model = offered
        .iter()
        .any(|(_, _, choices)| choices.iter().any(named));
    for (_, _, choices) in &mut offered {
        choices.retain(|choice| {
            if by_model {
                named(choice)
            } else {
                anywhere(choice)
            }
        });
    }
    let total: usize = offered.iter().map(|(_, _, choices)| choices.len()).sum();

    let mut rows = Vec::new();
    let mut at = 0;
    let mut push = |rows: &mut Vec<Row>, choice: &Choice| {
        rows.push(Row::Choice(at, Box::new(choice.clone())));
        at += 1;
    };
    // A short list needs no shortcut into itself.
    if total > 6 && words.is_empty() {
        let used = chosen.map(|of| (of.provider, of.model.clone()));
        let mut shortcuts: Vec<&Choice> = Vec::new();
        for (provider, model) in used.iter().chain(recent) {
            let choice = offered
                .iter()
                .flat_map(|(_, _, choices)| choices)
                .find(|choice| choice.of.provider == *provider && choice.of.model == *model);
            if let Some(choice) = choice
                && !shortcuts.contains(&choice)
            {
                shortcuts.push(choice);
            }
        }
        if !shortcuts.is_empty() {
            rows.push(Row::Heading("Recent".to_owned()));
            for choice in shortcuts {
                push(&mut rows, choice);
            }
        }
    }
    for (provider, offer, choices) in &offered {
        let quiet = if offer.asking && offer.models.is_empty() {
            Some(format!("Asking {}…", provider.name))
        } else if let Some(failure) = &offer.failure {
            Some(sentence(&failure.message))
        } else if offer.models.is_empty() {
            Some(format!("{} has no models yet", provider.name))
        } else {
            None
        };
        let hidden = choices.is_empty() && !words.is_empty() && !offer.models.is_empty();
        if hidden {
            continue;
        }
        rows.push(Row::Heading(provider.name.clone()));
        for choice in choices {
            push(&mut rows, choice);
        }
        rows.extend(quiet.map(Row::Quiet));
    }
    if known.is_empty() {
        rows.push(Row::Quiet(
            "No model server yet: add one under Servers".to_owned(),
        ));
    } else if total == 0 && !words.is_empty() {
        rows.push(Row::Quiet(format!("Nothing matches “{filter}”")));
    }
    rows
}
