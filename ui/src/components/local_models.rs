//! Models that are files of this computer: how one comes here, what its file says, and which small ones there are to
//! begin with.
//!
//! Not here: how far a download is, which is told like any other (`models`).

use leptos::{ev, prelude::*};
use protocol::{
    CuratedModel, LocalModels, Model, ModelFile, ModelRef, Op, Provider, ProviderId, PullState,
    PullView, pulled_name,
};

use crate::{
    calendar,
    components::{
        icons::{Glyph, Icon},
        model_form::{ModelForm, ModelLine, submitting},
        model_picker,
        models::{PullList, watched_pulls},
        settings::{refusal_of_file, refusal_words},
    },
    desk::{Desk, use_desk},
    ipc::{self, ImageFile},
};

/// What this computer can run by itself; nothing until it said so, or where it cannot.
pub(crate) fn local_models() -> RwSignal<Option<LocalModels>> {
    let local = RwSignal::new(None);
    ipc::spawn(async move {
        // An engine that does not answer says so elsewhere.
        if let Ok(models) = ipc::local_models().await {
            local.try_set(models);
        }
    });
    local
}

/// The servers of the settings, and this computer, whether it is among them or not.
pub(crate) fn with_this_computer(
    mut providers: Vec<Provider>,
    local: Option<LocalModels>,
) -> Vec<Provider> {
    if let Some(local) = local
        && !providers.iter().any(|p| p.id == local.provider.id)
    {
        providers.push(local.provider);
    }
    providers
}

/// What a file says of itself, in one line.
pub(crate) fn file_facts(file: &ModelFile) -> String {
    if file.problem.is_some() {
        return String::new();
    }
    let template = if file.has_template {
        "with a chat template"
    } else {
        "no chat template of its own, a general form is used"
    };
    let memory = file
        .needs_bytes
        .map(|bytes| format!("takes about {} of memory", calendar::bytes(bytes)));
    let license = file.license.as_ref().map(|name| format!("licence {name}"));
    let known = [
        file.title.clone(),
        file.architecture.clone(),
        license,
        Some(template.to_owned()),
        memory,
    ];
    known.into_iter().flatten().collect::<Vec<_>>().join(" · ")
}

/// What stands in the way of a model, or may.
pub(crate) fn trouble(model: &Model) -> Option<String> {
    let file = model.file.as_ref()?;
    file.problem.clone().or_else(|| file.warning.clone())
}

/// How files come here.
#[component]
pub(crate) fn LocalTools(local: LocalModels, pulls: RwSignal<Vec<PullView>>) -> impl IntoView {
    let folder = local.provider.base_url.clone();
    let free = local
        .free_memory
        .map(|bytes| format!(" {} of memory are free now.", calendar::bytes(bytes)));
    view! {
        <p class="hint">
            "Holdfast runs model files in the GGUF format by itself, without any server. Those it downloads lie in "
            <code class="local-folder">{folder}</code> "; others stay where they are." {free}
        </p>
        <ByAddress />
        <ByPath />
        <Curated models=local.curated pulls />
    }
    .into_any()
}

/// Adds the models that were dropped, says what came of it, and hands on the other files.
pub(crate) fn take_dropped(
    desk: Desk,
    event: &ev::DragEvent,
    others: impl FnOnce(Vec<ImageFile>) + 'static,
) {
    let given = ipc::dropped_files(event);
    ipc::spawn(async move {
        let noted = match ipc::dropped().await {
            Ok(noted) => noted,
            Err(error) => return desk.tell(&error),
        };
        let places: Vec<String> = noted.iter().filter_map(|file| file.model.clone()).collect();
        let files = if given.is_empty() {
            noted.into_iter().map(ImageFile::Dropped).collect()
        } else {
            given
        };
        let (models, files): (Vec<_>, Vec<_>) = files.into_iter().partition(ImageFile::is_model);
        if places.is_empty() && !models.is_empty() {
            desk.toasts.say(
                "This system does not say where the file lies; add it by its path in the settings, under Models",
            );
        }
        if !files.is_empty() {
            others(files);
        }
        for path in places {
            let name = model_picker::file_name(&path, true);
            match desk.submit(Op::AddModelFile { path }).await {
                Ok(_) => {
                    desk.catalog.ask(ProviderId::THIS_COMPUTER);
                    desk.toasts
                        .say(format!("{name} was added to the models of this computer"));
                }
                Err(error) => desk.toasts.say(refusal_of_file(&name, "added", &error)),
            }
        }
    });
}

/// Submits what changes the files of this computer; they are looked at again when it is done.
fn changing(
    desk: Desk,
    words: RwSignal<Option<String>>,
    busy: RwSignal<bool>,
    op: Op,
    done: impl Fn() + Send + Sync + 'static,
) {
    let done = Callback::new(move |()| {
        desk.catalog.ask(ProviderId::THIS_COMPUTER);
        done();
    });
    submitting(desk, words, busy, op, done);
}

#[component]
fn ByAddress() -> impl IntoView {
    let line = ModelLine::new();
    let desk = use_desk();
    let begin = Callback::new(move |typed: String| {
        let op = Op::PullModel {
            provider: ProviderId::THIS_COMPUTER,
            model: typed.trim().to_owned(),
        };
        changing(desk, line.words, line.busy, op, move || line.clear());
    });
    view! {
        <ModelForm
            line
            label="Download a model file by its address"
            field_testid="local-address"
            placeholder="https://…/model.gguf"
            button="Download"
            button_testid="local-download"
            begin
        />
    }
    .into_any()
}

#[component]
fn ByPath() -> impl IntoView {
    let line = ModelLine::new();
    let desk = use_desk();
    let add = move |path: String| {
        let op = Op::AddModelFile { path };
        changing(desk, line.words, line.busy, op, move || line.clear());
    };
    let choose = move |_| {
        ipc::spawn(async move {
            match ipc::pick_model().await {
                Ok(Some(path)) => add(path),
                Ok(None) => {}
                Err(error) => {
                    line.words.try_set(Some(refusal_words(&error)));
                }
            }
        });
    };
    view! {
        <ModelForm
            line
            label="Add a model file that is here already"
            field_testid="local-path"
            placeholder="/home/…/model.gguf"
            button="Add"
            button_testid="local-add"
            begin=Callback::new(add)
        >
            <button
                type="button"
                class="button"
                data-testid="local-choose"
                disabled=move || line.busy.get()
                on:click=choose
            >
                "Choose…"
            </button>
        </ModelForm>
    }
    .into_any()
}

#[component]
fn Curated(models: Vec<CuratedModel>, pulls: RwSignal<Vec<PullView>>) -> impl IntoView {
    view! {
        <details class="form-details" data-testid="curated">
            <summary>"Small models to begin with"</summary>
            <ul class="model-list">
                {models
                    .into_iter()
                    .map(|model| view! { <CuratedEntry model pulls /> })
                    .collect_view()}
            </ul>
        </details>
    }
    .into_any()
}

#[component]
fn CuratedEntry(model: CuratedModel, pulls: RwSignal<Vec<PullView>>) -> impl IntoView {
    let desk = use_desk();
    let words = RwSignal::new(None::<String>);
    let busy = RwSignal::new(false);
    let url = model.url.clone();
    let file = pulled_name(&model.url).to_owned();
    let is_there = Memo::new(move |_| {
        desk.catalog.offers.with(|offers| {
            let offer = offers.get(&ProviderId::THIS_COMPUTER);
            offer.is_some_and(|offer| offer.models.iter().any(|model| model.name == file))
        })
    });
    let state = Memo::new({
        let url = url.clone();
        move |_| {
            pulls.with(|pulls| {
                let found = pulls.iter().find(|pull| pull.model.model == url);
                found.and_then(|pull| curated_words(&pull.state))
            })
        }
    });
    let begin = move |_| {
        let op = Op::PullModel {
            provider: ProviderId::THIS_COMPUTER,
            model: url.clone(),
        };
        changing(desk, words, busy, op, || {});
    };
    let label = format!("Download {}", model.name);
    let begin = StoredValue::new(begin);
    view! {
        <li class="model-row" data-testid="curated-model" data-model=model.name.clone()>
            <div class="server-row">
                <span class="server-words">
                    <span class="server-name">{model.name.clone()}</span>
                    <span class="picker-facts">
                        {format!(
                            "{} · {} · {}",
                            calendar::bytes(model.size_bytes),
                            model.license,
                            model.purpose,
                        )}
                    </span>
                </span>
                <span class="model-actions">
                    {move || {
                        if is_there.get() {
                            view! { <span class="hint">"It is here"</span> }.into_any()
                        } else if let Some(words) = state.get() {
                            view! { <span class="hint">{words}</span> }.into_any()
                        } else {
                            view! {
                                <button
                                    type="button"
                                    class="button"
                                    data-testid="curated-download"
                                    aria-label=label.clone()
                                    disabled=move || busy.get()
                                    on:click=move |event| begin.with_value(|begin| begin(event))
                                >
                                    "Download"
                                </button>
                            }
                                .into_any()
                        }
                    }}
                </span>
            </div>
            {move || words.get().map(|words| view! { <p class="alert" role="alert">{words}</p> })}
        </li>
    }
    .into_any()
}

/// What is told beside a model that is on its way; nothing where a button says more.
fn curated_words(state: &PullState) -> Option<String> {
    match state {
        PullState::Waiting => Some("Waits".to_owned()),
        PullState::Running { progress } => Some(format!("{} %", progress.permille / 10)),
        PullState::Interrupted | PullState::Failed { .. } => Some("Stopped, see above".to_owned()),
        PullState::Completed { .. } => None,
    }
}

/// For those who have no server at all: a small model, in one click.
#[component]
pub(crate) fn FirstModel() -> impl IntoView {
    let desk = use_desk();
    let local = local_models();
    let pulls = watched_pulls();
    let words = RwSignal::new(None::<String>);
    let busy = RwSignal::new(false);
    let here = Memo::new(move |_| {
        pulls.with(|pulls| {
            pulls
                .iter()
                .filter(|pull| pull.model.provider == ProviderId::THIS_COMPUTER)
                .cloned()
                .collect::<Vec<_>>()
        })
    });
    let shown = RwSignal::new(Vec::new());
    Effect::new(move |_| shown.set(here.get()));
    // As soon as it is here, one can talk to it.
    Effect::new(move |_| {
        let arrived = here.with(|here| {
            let is_there = |pull: &&PullView| matches!(pull.state, PullState::Completed { .. });
            here.iter().find(is_there).map(|pull| pull.model.clone())
        });
        if let Some(arrived) = arrived {
            desk.catalog.ask(ProviderId::THIS_COMPUTER);
            desk.model_for_new.set(Some(ModelRef {
                model: pulled_name(&arrived.model).to_owned(),
                ..arrived
            }));
        }
    });
    view! {
        {move || {
            if !here.with(Vec::is_empty) {
                return Some(
                    view! {
                        <div class="welcome-pull" data-testid="welcome-pull">
                            <PullList pulls=shown />
                        </div>
                    }
                        .into_any(),
                );
            }
            let model = local.get()?.curated.into_iter().next()?;
            let facts = format!(
                "{} · {} · runs on this computer, also without a network",
                model.name,
                model.license,
            );
            let size = calendar::bytes(model.size_bytes);
            let url = model.url;
            let begin = move |_| {
                let op = Op::PullModel {
                    provider: ProviderId::THIS_COMPUTER,
                    model: url.clone(),
                };
                changing(desk, words, busy, op, || {});
            };
            Some(
                view! {
                    <button
                        type="button"
                        class="found-server"
                        data-testid="welcome-small-model"
                        disabled=move || busy.get()
                        on:click=begin
                    >
                        <Glyph icon=Icon::Download />
                        <span class="server-words">
                            <span class="server-name">
                                {format!("Download a small model, {size}")}
                            </span>
                            <span class="server-address">{facts}</span>
                        </span>
                        <Glyph icon=Icon::Chevron />
                    </button>
                }
                    .into_any(),
            )
        }}
        {move || words.get().map(|words| view! { <p class="alert" role="alert">{words}</p> })}
    }
    .into_any()
}

/// Above the composer: that the chosen model cannot be used, or may not fit.
#[component]
pub(crate) fn ModelTrouble() -> impl IntoView {
    let desk = use_desk();
    let said = Memo::new(move |_| {
        let chosen = desk.model()?;
        desk.catalog.offers.with(|offers| {
            let offer = offers.get(&chosen.provider)?;
            let model = offer
                .models
                .iter()
                .find(|model| model.name == chosen.model)?;
            // One that is in memory did fit.
            (model.loaded != Some(true))
                .then(|| trouble(model))
                .flatten()
        })
    });
    // Whoever comes back to a model of this computer is told too.
    Effect::new(move |before: Option<Option<ModelRef>>| {
        let chosen = desk.model();
        if chosen.as_ref().map(|model| model.provider) == Some(ProviderId::THIS_COMPUTER)
            && before.flatten() != chosen
        {
            desk.catalog.ask(ProviderId::THIS_COMPUTER);
        }
        chosen
    });
    view! {
        <div class="model-trouble" role="status" data-testid="model-trouble">
            {move || said.get().map(|words| view! { <p><Glyph icon=Icon::Warning /> {words}</p> })}
        </div>
    }
    .into_any()
}
