//! The models of the servers: what there is, what is in memory, what is being downloaded, and what can be done to it.
//!
//! Downloads are the engine's: this page only asks how far they are, for as long as it is shown.

use std::collections::HashSet;

use leptos::{ev, prelude::*};
use protocol::{
    Dialect, LocalModels, ManageModelArgs, Model, ModelAction, ModelOptions, ModelRef, Op,
    Provider, ProviderId, PullProgress, PullState, PullView, PullsArgs, pulled_name,
};

use crate::{
    calendar,
    components::{
        failure::FailureWords,
        icons::{Glyph, Icon},
        local_models::{self, LocalTools},
        model_form::{ModelForm, ModelLine, submitting},
        model_picker,
        options::{Answer, OptionsForm},
        settings::refusal_words,
        status_line::seconds,
    },
    desk::{sentence, use_desk},
    ipc::{self, CallError},
};

/// As many rows as one looks through; the others are a filter or a button away.
const SHOWN: usize = 50;
/// A list as long as this is worth a filter.
const FILTERED_FROM: usize = 8;
/// Between two looks at downloads: as often as a number that grows can be read.
const PULLS_PAUSE_MS: u64 = 250;
const PULLS_WAIT_MS: u32 = 8_000;
const PULLS_LIMIT_MS: u64 = 15_000;
const PULLS_AGAIN_MS: u64 = 2_000;
/// A model is unloaded or deleted within this time, or the server is busy.
const MANAGE_LIMIT_MS: u64 = 70_000;
/// A download that tells nothing new for so long says so.
const STILL_MS: u64 = 10_000;
/// Badges come after the list; it is asked for again a few times.
const BADGES_AGAIN_MS: u64 = 1_500;
const BADGES_TRIES: u32 = 8;

/// The part of the settings.
#[component]
pub(crate) fn Models() -> impl IntoView {
    let desk = use_desk();
    let local = local_models::local_models();
    let providers = Memo::new(move |_| {
        local_models::with_this_computer(desk.library.providers.get(), local.get())
    });
    let wanted = RwSignal::new(None::<ProviderId>);
    let chosen = Memo::new(move |_| {
        providers.with(|providers| {
            let used = desk.library.last_model.get().map(|model| model.provider);
            let find = |id: Option<ProviderId>| {
                let id = id?;
                providers.iter().find(|provider| provider.id == id)
            };
            find(wanted.get())
                .or_else(|| find(used))
                .or(providers.first())
                .cloned()
        })
    });
    let pulls = watched_pulls();
    // A download that has just ended is one more model.
    Effect::new(move |before: Option<usize>| {
        let ended = pulls.with(|pulls| {
            let is_there = |pull: &&PullView| matches!(pull.state, PullState::Completed { .. });
            pulls.iter().filter(is_there).count()
        });
        if before.is_some_and(|before| before < ended)
            && let Some(provider) = chosen.get_untracked()
        {
            desk.catalog.ask(provider.id);
        }
        ended
    });
    let on_drag = |event: ev::DragEvent| {
        if ipc::drags_files(&event) {
            event.prevent_default();
        }
    };
    view! {
        <div
            on:dragenter=on_drag
            on:dragover=on_drag
            on:drop=move |event: ev::DragEvent| {
                if ipc::drags_files(&event) {
                    event.prevent_default();
                    local_models::take_dropped(desk, &event, |_| {});
                }
            }
        >
        <PullList pulls />
        {move || match chosen.get() {
            None => {
                view! { <p class="hint">"Add a server above; its models are shown here."</p> }
                    .into_any()
            }
            Some(provider) => {
                view! {
                    <ServerChoice chosen=provider.id providers wanted />
                    <ServerModels provider local pulls />
                }
                    .into_any()
            }
        }}
        </div>
    }
    .into_any()
}

/// What is being downloaded, asked for as long as the signal lives.
pub(crate) fn watched_pulls() -> RwSignal<Vec<PullView>> {
    let pulls = RwSignal::new(Vec::<PullView>::new());
    ipc::spawn(async move {
        let mut seen = None;
        while !pulls.is_disposed() {
            let args = PullsArgs {
                seen,
                wait_ms: PULLS_WAIT_MS,
            };
            match ipc::within(PULLS_LIMIT_MS, ipc::pulls(&args)).await {
                Ok(known) => {
                    seen = Some(known.revision);
                    if pulls
                        .try_get_untracked()
                        .is_some_and(|before| before != known.pulls)
                    {
                        pulls.try_set(known.pulls);
                    }
                    ipc::sleep(PULLS_PAUSE_MS).await;
                }
                Err(_) => ipc::sleep(PULLS_AGAIN_MS).await,
            }
        }
    });
    pulls
}

#[component]
fn ServerChoice(
    chosen: ProviderId,
    providers: Memo<Vec<Provider>>,
    wanted: RwSignal<Option<ProviderId>>,
) -> impl IntoView {
    // This computer may be known of a moment later than the others.
    move || {
        let providers = providers.get();
        (providers.len() > 1).then(|| {
            view! {
                <label class="form-field models-server">
                    <span class="label">"Server"</span>
                    <select
                        class="field"
                        data-testid="models-server"
                        on:change=move |event| {
                            wanted.set(event_target_value(&event).parse().ok());
                        }
                    >
                        {providers
                            .into_iter()
                            .map(|provider| {
                                view! {
                                    <option
                                        value=provider.id.to_string()
                                        selected=provider.id == chosen
                                    >
                                        {provider.name}
                                    </option>
                                }
                            })
                            .collect_view()}
                    </select>
                </label>
            }
            .into_any()
        })
    }
}

#[component]
fn ServerModels(
    provider: Provider,
    local: RwSignal<Option<LocalModels>>,
    pulls: RwSignal<Vec<PullView>>,
) -> impl IntoView {
    let desk = use_desk();
    let id = provider.id;
    desk.catalog.ask(id);
    let offer = Memo::new(move |_| {
        desk.catalog
            .offers
            .with(|offers| offers.get(&id).cloned().unwrap_or_default())
    });
    let is_ollama = provider.dialect == Dialect::Ollama;
    if is_ollama {
        badges_soon(offer, id);
    }
    let filter = RwSignal::new(String::new());
    let all = RwSignal::new(false);
    let matching = Memo::new(move |_| {
        let words: Vec<String> = filter.with(|typed| {
            let words = typed.split_whitespace();
            words.map(str::to_lowercase).collect()
        });
        offer.with(|offer| {
            let named = |model: &&Model| {
                let name = model.name.to_lowercase();
                words.iter().all(|word| name.contains(word.as_str()))
            };
            // One row for a name, however often the server has it.
            let mut seen = HashSet::new();
            let found = offer.models.iter().filter(named);
            let found = found.filter(|model| seen.insert(model.name.as_str()));
            found.cloned().collect::<Vec<Model>>()
        })
    });
    let rows = Memo::new(move |_| {
        let mut models = matching.get();
        if !all.get() {
            models.truncate(SHOWN);
        }
        models
    });
    let many = Memo::new(move |_| offer.with(|offer| offer.models.len() >= FILTERED_FROM));
    let name = provider.name.clone();
    let quiet = move || {
        offer.with(|offer| {
            if let Some(failure) = &offer.failure {
                let failure = failure.clone();
                return Some(view! { <FailureWords failure /> }.into_any());
            }
            let words = if offer.models.is_empty() && offer.asking {
                format!("Asking {name}…")
            } else if offer.models.is_empty() {
                format!("{name} has no models yet.")
            } else if matching.with(Vec::is_empty) {
                "No model is called so.".to_owned()
            } else {
                return None;
            };
            Some(view! { <p class="hint">{words}</p> }.into_any())
        })
    };
    let more = move || {
        let count = matching.with(Vec::len);
        (count > rows.with(Vec::len)).then(|| {
            view! {
                <button type="button" class="button button-quiet" on:click=move |_| all.set(true)>
                    {format!("Show all {count}")}
                </button>
            }
        })
    };
    let of = provider.clone();
    view! {
        {is_ollama.then(|| view! { <Download provider=provider.clone() /> })}
        {move || {
            local
                .get()
                .filter(|local| local.provider.id == id)
                .map(|local| view! { <LocalTools local pulls /> })
        }}
        <Show when=move || many.get()>
            <label class="form-field models-filter">
                <span class="label">"Find a model"</span>
                <input
                    class="field"
                    type="text"
                    data-testid="models-filter"
                    autocomplete="off"
                    spellcheck="false"
                    bind:value=filter
                />
            </label>
        </Show>
        <ul class="model-list" data-testid="models-list">
            // A row stays while its model is, whatever is learnt about that: somebody may be typing in it.
            <For each=move || rows.get() key=|model| model.name.clone() let:model>
                <ModelEntry model offer provider=of.clone() />
            </For>
        </ul>
        <div role="status">{quiet}</div>
        {more}
    }
    .into_any()
}

/// Asks again while a list has models of which nothing is known yet.
fn badges_soon(offer: Memo<crate::catalog::Offer>, id: ProviderId) {
    let desk = use_desk();
    ipc::spawn(async move {
        for _ in 0..BADGES_TRIES {
            ipc::sleep(BADGES_AGAIN_MS).await;
            let Some(known) = offer.try_get_untracked() else {
                return;
            };
            let lacks = |model: &Model| model.capabilities.is_empty();
            if !known.asking && !known.models.iter().any(lacks) {
                return;
            }
            desk.catalog.ask(id);
        }
    });
}

/// What is asked about a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Options,
    Copy,
    Delete,
}

#[component]
fn ModelEntry(
    model: Model,
    offer: Memo<crate::catalog::Offer>,
    provider: Provider,
) -> impl IntoView {
    let desk = use_desk();
    let asked = RwSignal::new(None::<Asked>);
    let words = RwSignal::new(None::<String>);
    let busy = RwSignal::new(false);
    let id = provider.id;
    let name = model.name.clone();
    let of = ModelRef {
        provider: id,
        provider_name: provider.name.clone(),
        model: model.name.clone(),
    };
    // As it was last told; as before, should it be gone from the list a moment before its row is.
    let model = Memo::new(move |before: Option<&Model>| {
        let known = before.unwrap_or(&model);
        let told = offer.with(|offer| {
            let mut models = offer.models.iter();
            models.find(|told| told.name == known.name).cloned()
        });
        told.unwrap_or_else(|| known.clone())
    });
    let is_loaded = Memo::new(move |_| model.with(|model| model.loaded == Some(true)));
    let abilities = move || {
        let badge = |ability| view! { <span class="badge">{ability}</span> };
        model.with(|model| {
            model_picker::abilities(model)
                .into_iter()
                .map(badge)
                .collect_view()
        })
    };
    let known = of.clone();
    let chosen = Memo::new(move |_| desk.library.options_of_model(&known));
    let toggle = move |what: Asked| {
        words.set(None);
        asked.update(|open| {
            *open = if *open == Some(what) {
                None
            } else {
                Some(what)
            }
        });
    };
    let manage = move |action: ModelAction| {
        if busy.get_untracked() {
            return;
        }
        busy.set(true);
        words.set(None);
        ipc::spawn(async move {
            let args = ManageModelArgs {
                provider: id,
                action,
            };
            let answer = ipc::within(MANAGE_LIMIT_MS, ipc::manage_model(&args)).await;
            busy.try_set(false);
            match answer {
                Ok(()) => {
                    asked.try_set(None);
                    desk.catalog.ask(id);
                }
                Err(error) => {
                    words.try_set(Some(refusal_words(&error)));
                }
            }
        });
    };
    let manage = Callback::new(manage);
    let is_ollama = provider.dialect == Dialect::Ollama;
    let is_file = provider.id == ProviderId::THIS_COMPUTER;
    let of_file = Memo::new(move |_| {
        model.with(|model| {
            let file = model.file.as_ref();
            file.map(local_models::file_facts)
                .filter(|facts| !facts.is_empty())
        })
    });
    let troubled = Memo::new(move |_| model.with(local_models::trouble));
    let unloaded = StoredValue::new(name.clone());
    let server = provider.name.clone();
    let of_server = ModelOptions::of_server(&provider);
    let dialect = provider.dialect;
    let (form_of, asked_of) = (name.clone(), name.clone());
    view! {
        <li class="model-row" data-testid="model" data-model=name.clone()>
            <div class="server-row">
                <span class="server-words">
                    <span class="server-name" title=name.clone()>
                        {model_picker::file_name(&name, is_file)}
                    </span>
                    <span class="picker-facts">
                        {move || is_loaded.get().then(model_picker::loaded_mark)}
                        {move || model.with(model_picker::facts)}
                        {move || model.with(expiry)}
                        {move || {
                            match chosen.with(|chosen| chosen.chosen().len()) {
                                0 => String::new(),
                                1 => " · 1 option chosen".to_owned(),
                                count => format!(" · {count} options chosen"),
                            }
                        }}
                    </span>
                    {move || {
                        of_file
                            .get()
                            .map(|facts| {
                                view! {
                                    <span class="picker-facts" data-testid="model-file">{facts}</span>
                                }
                            })
                    }}
                    {move || {
                        troubled
                            .get()
                            .map(|words| {
                                view! {
                                    <span class="picker-facts is-fault" data-testid="model-problem">
                                        {words}
                                    </span>
                                }
                            })
                    }}
                </span>
                <span class="picker-badges">{abilities}</span>
                <span class="model-actions">
                    <Show when=move || (is_ollama || is_file) && is_loaded.get()>
                        <button
                            type="button"
                            class="button"
                            data-testid="unload"
                            disabled=move || busy.get()
                            aria-label=format!("Unload {}", unloaded.get_value())
                            on:click=move |_| {
                                manage.run(ModelAction::Unload { model: unloaded.get_value() });
                            }
                        >
                            "Unload"
                        </button>
                    </Show>
                    <RowButton asked toggle icon=Icon::Gear what=Asked::Options name=name.clone() />
                    {is_ollama
                        .then(|| {
                            let name = form_of.clone();
                            view! {
                                <RowButton asked toggle icon=Icon::Copy what=Asked::Copy name />
                            }
                        })}
                    {(is_ollama || is_file)
                        .then(|| {
                            let name = form_of.clone();
                            view! {
                                <RowButton asked toggle icon=Icon::Bin what=Asked::Delete name />
                            }
                        })}
                </span>
            </div>
            {move || {
                let name = asked_of.clone();
                match asked.get()? {
                    Asked::Options => {
                        let of = of.clone();
                        let save = Callback::new(move |(options, answer): (ModelOptions, Answer)| {
                            let op = Op::ChangeModelOptions { model: of.clone(), options };
                            ipc::spawn(async move {
                                let saved = desk.submit(op).await.map(drop);
                                answer.take(&saved);
                            });
                        });
                        Some(
                            view! {
                                <p class="hint">
                                    "They hold in every chat with this model that says nothing else."
                                </p>
                                <OptionsForm
                                    chosen=chosen.get_untracked()
                                    wider=of_server.clone()
                                    dialect=Some(dialect)
                                    save
                                    done=Callback::new(move |()| {
                                        asked.try_set(None);
                                    })
                                />
                            }
                                .into_any(),
                        )
                    }
                    Asked::Copy => Some(view! { <CopyForm name manage busy asked /> }.into_any()),
                    Asked::Delete => {
                        let server = server.clone();
                        let place = model.with_untracked(Place::of);
                        Some(view! { <DeleteForm name server place manage busy asked /> }.into_any())
                    }
                }
            }}
            {move || words.get().map(|words| view! { <p class="alert" role="alert">{words}</p> })}
        </li>
    }
    .into_any()
}

#[component]
fn RowButton<F: Fn(Asked) + 'static>(
    asked: RwSignal<Option<Asked>>,
    toggle: F,
    icon: Icon,
    what: Asked,
    name: String,
) -> impl IntoView {
    let (word, testid) = match what {
        Asked::Options => ("Options of", "model-options"),
        Asked::Copy => ("Copy", "model-copy"),
        Asked::Delete => ("Delete", "model-delete"),
    };
    let label = format!("{word} {name}");
    view! {
        <button
            type="button"
            class="icon-button"
            data-testid=testid
            aria-label=label.clone()
            title=label
            aria-expanded=move || if asked.get() == Some(what) { "true" } else { "false" }
            on:click=move |_| toggle(what)
        >
            <Glyph icon=icon />
        </button>
    }
}

#[component]
fn CopyForm(
    name: String,
    manage: Callback<ModelAction>,
    busy: RwSignal<bool>,
    asked: RwSignal<Option<Asked>>,
) -> impl IntoView {
    let to = RwSignal::new(String::new());
    let copied = name.clone();
    let copy = move |event: ev::SubmitEvent| {
        event.prevent_default();
        manage.run(ModelAction::Copy {
            model: copied.clone(),
            to: to.get_untracked(),
        });
    };
    view! {
        <form class="server-test model-ask" on:submit=copy>
            <label class="form-field">
                <span class="label">{format!("A second name for {name}")}</span>
                <input
                    class="field"
                    type="text"
                    data-testid="copy-to"
                    autocomplete="off"
                    spellcheck="false"
                    placeholder="my-model"
                    bind:value=to
                />
            </label>
            <button type="submit" class="button button-primary" disabled=move || busy.get()>
                "Copy"
            </button>
            <button type="button" class="button" on:click=move |_| asked.set(None)>
                "Cancel"
            </button>
        </form>
    }
    .into_any()
}

/// Where a model lies, as far as its deletion is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Server,
    OurFolder,
    Elsewhere,
}

impl Place {
    fn of(model: &Model) -> Self {
        match &model.file {
            None => Self::Server,
            Some(file) if file.ours => Self::OurFolder,
            Some(_) => Self::Elsewhere,
        }
    }
}

#[component]
fn DeleteForm(
    name: String,
    server: String,
    place: Place,
    manage: Callback<ModelAction>,
    busy: RwSignal<bool>,
    asked: RwSignal<Option<Asked>>,
) -> impl IntoView {
    let model = name.clone();
    let (title, words, yes) = match place {
        Place::Server => (
            format!("Delete {name}?"),
            format!(
                "Delete {name} from {server}? Its files are removed there and would have to be downloaded again. Chats with it stay."
            ),
            "Delete it",
        ),
        Place::OurFolder => (
            format!("Delete {name}?"),
            format!(
                "Delete {name}? The file is removed from this computer and would have to be downloaded again. Chats with it stay."
            ),
            "Delete the file",
        ),
        Place::Elsewhere => (
            format!("Forget {name}?"),
            format!("Forget {name}? The file stays where it is, and so do chats with it."),
            "Forget it",
        ),
    };
    view! {
        <div class="model-ask" role="group" aria-label=title>
            <p>{words}</p>
            <div class="form-actions">
                <button
                    type="button"
                    class="button button-danger"
                    data-testid="delete-yes"
                    disabled=move || busy.get()
                    on:click=move |_| manage.run(ModelAction::Delete { model: model.clone() })
                >
                    {yes}
                </button>
                <button type="button" class="button" on:click=move |_| asked.set(None)>
                    "Keep it"
                </button>
            </div>
        </div>
    }
    .into_any()
}

/// " · leaves memory at 14:03"
fn expiry(model: &Model) -> Option<String> {
    let at = model.expires_at.filter(|_| model.loaded == Some(true))?;
    let now = ipc::wall();
    // A server that keeps a model for ever says some year of which nobody here will know.
    const YEAR_MS: i64 = 365 * 86_400_000;
    let left = at.millis().saturating_sub(now.millis());
    Some(match left {
        ..=0 => " · is leaving memory".to_owned(),
        1..YEAR_MS => format!(" · leaves memory at {}", calendar::moment(at, now)),
        _ => " · stays in memory".to_owned(),
    })
}

/// The field for the name of a model to download.
#[component]
fn Download(provider: Provider) -> impl IntoView {
    let desk = use_desk();
    let line = ModelLine::new();
    let id = provider.id;
    let begin = Callback::new(move |model: String| {
        if line.busy.get_untracked() {
            return;
        }
        line.words.set(None);
        if let Err(said) = protocol::model_name(&model) {
            line.words.set(Some(said.to_owned()));
            return;
        }
        let op = Op::PullModel {
            provider: id,
            model,
        };
        let done = Callback::new(move |()| line.clear());
        submitting(desk, line.words, line.busy, op, done);
    });
    view! {
        <ModelForm
            line
            label=format!("Download a model to {}", provider.name)
            field_testid="pull-name"
            placeholder="llama3.2, qwen3:8b …"
            button="Download"
            button_testid="pull-begin"
            begin
        />
    }
    .into_any()
}

#[component]
pub(crate) fn PullList(pulls: RwSignal<Vec<PullView>>) -> impl IntoView {
    let keys = Memo::new(move |_| {
        pulls.with(|pulls| {
            pulls
                .iter()
                .map(|pull| pull.model.clone())
                .collect::<Vec<_>>()
        })
    });
    view! {
        <ul class="pull-list" data-testid="pulls">
            <For
                each=move || keys.get()
                key=|model| format!("{} {}", model.provider, model.model)
                let:model
            >
                <PullEntry model pulls />
            </For>
        </ul>
    }
    .into_any()
}

#[component]
fn PullEntry(model: ModelRef, pulls: RwSignal<Vec<PullView>>) -> impl IntoView {
    let desk = use_desk();
    let this = model.clone();
    let state = Memo::new(move |_| {
        pulls.with(|pulls| {
            let mut all = pulls.iter();
            let found = all.find(|pull| pull.model == this);
            found.map(|pull| pull.state.clone())
        })
    });
    let permille = Memo::new(move |_| {
        state.with(|state| match state {
            Some(PullState::Running { progress }) => Some(progress.permille),
            Some(PullState::Waiting) => Some(0),
            Some(
                PullState::Interrupted | PullState::Failed { .. } | PullState::Completed { .. },
            )
            | None => None,
        })
    });
    let goes = Memo::new(move |_| permille.get().is_some());
    let stopped = Memo::new(move |_| {
        state.with(|state| {
            matches!(
                state,
                Some(PullState::Interrupted | PullState::Failed { .. })
            )
        })
    });
    let said =
        seconds(move || state.with(|state| state.as_ref().map(state_words).unwrap_or_default()));
    let (provider, name) = (model.provider, model.model.clone());
    let act = move |op: Op| {
        ipc::spawn(async move {
            if let Err(error) = desk.submit(op).await {
                // Over already, by somebody else's word.
                let over = matches!(&error, CallError::Refused(report) if report.code == protocol::ErrorCode::NotFound);
                if !over {
                    desk.tell(&error);
                }
            }
        });
    };
    let again = Op::PullModel {
        provider,
        model: name.clone(),
    };
    let cancel = Op::CancelPull {
        provider,
        model: name.clone(),
    };
    let dismiss = cancel.clone();
    let label = format!("Download of {}", pulled_name(&name));
    // What a server has of a model stays there; a part of a file on this computer is of no use to anybody.
    let stop_label = if provider == ProviderId::THIS_COMPUTER {
        format!(
            "Stop the download of {} and delete what has come",
            pulled_name(&name)
        )
    } else {
        format!("Stop the download of {name}")
    };
    view! {
        <li class="pull" data-testid="pull" data-model=name.clone()>
            <div class="server-row">
                <span class="server-words">
                    <span class="server-name" title=name.clone()>{pulled_name(&name).to_owned()}</span>
                    <span class="picker-facts" class:is-fault=stopped data-testid="pull-words">
                        {said}
                    </span>
                </span>
                {move || {
                    let (cancel, label) = (cancel.clone(), stop_label.clone());
                    goes.get()
                        .then(|| {
                            view! {
                                <button
                                    type="button"
                                    class="button"
                                    data-testid="pull-stop"
                                    title=label.clone()
                                    aria-label=label
                                    on:click=move |_| act(cancel.clone())
                                >
                                    "Stop"
                                </button>
                            }
                        })
                }}
                {move || {
                    let (again, dismiss) = (again.clone(), dismiss.clone());
                    stopped
                        .get()
                        .then(|| {
                            view! {
                                <button
                                    type="button"
                                    class="button button-primary"
                                    data-testid="pull-again"
                                    on:click=move |_| act(again.clone())
                                >
                                    "Go on"
                                </button>
                                <button
                                    type="button"
                                    class="button"
                                    data-testid="pull-dismiss"
                                    on:click=move |_| act(dismiss.clone())
                                >
                                    "Forget"
                                </button>
                            }
                        })
                }}
            </div>
            {move || {
                let label = label.clone();
                goes.get()
                    .then(|| {
                        view! {
                            <div
                                class="meter"
                                role="progressbar"
                                aria-label=label
                                aria-valuemin="0"
                                aria-valuemax="1000"
                                aria-valuenow=move || permille.get().unwrap_or(0)
                            >
                                <div
                                    class="meter-fill"
                                    style:inline-size=move || {
                                        format!("{}%", f64::from(permille.get().unwrap_or(0)) / 10.0)
                                    }
                                ></div>
                            </div>
                            <Layers state />
                        }
                    })
            }}
        </li>
    }
    .into_any()
}

/// The parts, folded away: how far each of them is.
#[component]
fn Layers(state: Memo<Option<PullState>>) -> impl IntoView {
    let parts = Memo::new(move |_| {
        state.with(|state| match state {
            Some(PullState::Running { progress }) => progress.layers.clone(),
            Some(
                PullState::Waiting
                | PullState::Interrupted
                | PullState::Failed { .. }
                | PullState::Completed { .. },
            )
            | None => Vec::new(),
        })
    });
    let count = Memo::new(move |_| parts.with(Vec::len));
    view! {
        <Show when=move || { count.get() > 1 }>
            <details class="form-details">
                <summary>{move || format!("{} parts", count.get())}</summary>
                <ul class="pull-parts">
                    {move || {
                        parts
                            .get()
                            .into_iter()
                            .map(|part| {
                                let name: String = part
                                    .digest
                                    .trim_start_matches("sha256:")
                                    .chars()
                                    .take(12)
                                    .collect();
                                let there = calendar::bytes(part.completed_bytes);
                                let words = match part.total_bytes {
                                    Some(total) if total == part.completed_bytes => {
                                        format!("{there}, all of it")
                                    }
                                    Some(total) => format!("{there} of {}", calendar::bytes(total)),
                                    None => there,
                                };
                                view! {
                                    <li class="shortcut">
                                        <code>{name}</code>
                                        <span class="health-value">{words}</span>
                                    </li>
                                }
                            })
                            .collect_view()
                    }}
                </ul>
            </details>
        </Show>
    }
    .into_any()
}

fn state_words(state: &PullState) -> String {
    match state {
        PullState::Waiting => "Waits until another download is over".to_owned(),
        PullState::Running { progress } => progress_words(progress),
        PullState::Interrupted => {
            "Interrupted: Holdfast ended before it did. It goes on where it stopped.".to_owned()
        }
        PullState::Failed { failure } => sentence(&failure.message),
        PullState::Completed { sha256: None, .. } => "Downloaded".to_owned(),
        PullState::Completed {
            sha256: Some(sum), ..
        } => format!("Downloaded · SHA-256 {sum}"),
    }
}

/// "45 %, 1.2 GB of 4.7 GB, pulling 6a0746a1ec1a, nothing new for 0:42"
fn progress_words(progress: &PullProgress) -> String {
    let mut words = format!("{} %", progress.permille / 10);
    if let Some(total) = progress.total_bytes {
        let there = calendar::bytes(progress.completed_bytes);
        words = format!("{words}, {there} of {}", calendar::bytes(total));
    }
    if !progress.status.is_empty() {
        words = format!("{words} · {}", progress.status);
    }
    let still = progress
        .changed_at
        .map(|at| ipc::wall().millis_since(at))
        .filter(|ms| *ms >= STILL_MS);
    if let Some(ms) = still {
        let seconds = ms / 1_000;
        words = format!(
            "{words} · nothing new for {}:{:02}",
            seconds / 60,
            seconds % 60
        );
    }
    words
}
