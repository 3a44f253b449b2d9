//! The first start: looks for a model server on this computer, and otherwise asks where one is.

use leptos::{ev, prelude::*};
use protocol::{
    Failure, FailureCode, Op, ProbeArgs, ProbeReport, ProviderId, SecretName, SessionId,
};

use crate::{
    components::{
        failure::FailureWords,
        icons::{Glyph, Icon, Mark},
        local_models::FirstModel,
        server_key::{KeyEntry, KeyField},
        settings::refusal_words,
    },
    desk::{name_of_address, new_provider, use_desk},
    ipc,
};

/// The usual ports of this computer are asked side by side.
const DISCOVER_LIMIT_MS: u64 = 15_000;
/// As in the settings.
const PROBE_LIMIT_MS: u64 = 45_000;

/// What looking around has come to.
#[derive(Clone, PartialEq, Eq)]
enum Search {
    Looking,
    Found(Vec<ProbeReport>),
}

/// What is shown while there is neither a server nor a chat.
#[component]
pub(crate) fn Welcome() -> impl IntoView {
    let desk = use_desk();
    let search = RwSignal::new(Search::Looking);
    let look = move || {
        search.set(Search::Looking);
        ipc::spawn(async move {
            let found = ipc::within(DISCOVER_LIMIT_MS, ipc::discover()).await;
            // Not finding any is no error: the next question is where it is.
            let working = found
                .unwrap_or_default()
                .into_iter()
                .filter(|report| match report {
                    ProbeReport::Works { .. } => true,
                    ProbeReport::Fails { .. } => false,
                });
            search.try_set(Search::Found(working.collect()));
        });
    };
    look();
    let open_sample = move |_| {
        ipc::spawn(async move {
            let session = SessionId::from_bits(ipc::random_bits());
            match desk.submit(Op::AddSample { session }).await {
                Ok(_) => desk.open(session),
                Err(error) => desk.tell(&error),
            }
        });
    };
    view! {
        <div class="welcome" data-testid="welcome">
            <div class="welcome-column">
                <span class="welcome-mark"><Mark /></span>
                <h1 class="welcome-title">"Where do your models run?"</h1>
                <p class="welcome-text">
                    "Holdfast is a place to talk with models on your own computers. "
                    "What you have seen here is kept here."
                </p>
                <div class="welcome-search" role="status">
                    {move || match search.get() {
                        Search::Looking => {
                            view! {
                                <p class="hint">
                                    <span class="dot is-running" aria-hidden="true"></span>
                                    " Looking for a model server on this computer…"
                                </p>
                            }
                                .into_any()
                        }
                        Search::Found(reports) if reports.is_empty() => {
                            view! {
                                <FirstModel />
                                <p class="hint">
                                    "No model server answered on this computer. "
                                    <button
                                        type="button"
                                        class="button button-quiet"
                                        on:click=move |_| look()
                                    >
                                        "Look again"
                                    </button>
                                </p>
                            }
                                .into_any()
                        }
                        Search::Found(reports) => {
                            reports
                                .into_iter()
                                .map(|report| view! { <FoundServer report /> })
                                .collect_view()
                                .into_any()
                        }
                    }}
                </div>
                <AskAddress />
                <div class="welcome-sample">
                    <button
                        type="button"
                        class="button button-quiet"
                        data-testid="welcome-sample"
                        on:click=open_sample
                    >
                        <Glyph icon=Icon::Book />
                        "Look at a recorded conversation instead"
                    </button>
                </div>
            </div>
        </div>
    }
    .into_any()
}

#[component]
fn FoundServer(report: ProbeReport) -> impl IntoView {
    let desk = use_desk();
    let ProbeReport::Works {
        server,
        dialect,
        base_url,
        models,
    } = report
    else {
        return ().into_any();
    };
    let count = match models.len() {
        0 => "no models yet".to_owned(),
        1 => "1 model".to_owned(),
        count => format!("{count} models"),
    };
    let address = base_url.clone();
    let use_it = move |_| {
        let provider = new_provider(name_of_address(&base_url), dialect, base_url.clone());
        let models = models.clone();
        ipc::spawn(async move {
            if let Err(error) = desk.add_provider(provider, models).await {
                desk.tell(&error);
            }
        });
    };
    view! {
        <button type="button" class="found-server" data-testid="welcome-found" on:click=use_it>
            <Glyph icon=Icon::Server />
            <span class="server-words">
                <span class="server-name">{format!("Use {server}")}</span>
                <span class="server-address">{address} " · " {count}</span>
            </span>
            <Glyph icon=Icon::Chevron />
        </button>
    }
    .into_any()
}

#[component]
fn AskAddress() -> impl IntoView {
    let desk = use_desk();
    let address = RwSignal::new(String::new());
    let asking = RwSignal::new(false);
    let failure = RwSignal::new(None::<Failure>);
    let words = RwSignal::new(None::<String>);
    let key = KeyEntry::new();
    let wants_key = RwSignal::new(false);
    let connect = move |event: ev::SubmitEvent| {
        event.prevent_default();
        let typed = address.get_untracked().trim().to_owned();
        if typed.is_empty() || asking.get_untracked() {
            return;
        }
        asking.set(true);
        failure.set(None);
        words.set(None);
        // This form goes as soon as there is a server.
        let (asked_with, to_keep) = (key.key(), key.to_keep());
        ipc::spawn(async move {
            let args = ProbeArgs {
                key: asked_with,
                ..ProbeArgs::of(typed)
            };
            let answer = match ipc::within(PROBE_LIMIT_MS, ipc::probe(&args)).await {
                Ok(ProbeReport::Works {
                    dialect,
                    base_url,
                    models,
                    ..
                }) => {
                    let provider = new_provider(name_of_address(&base_url), dialect, base_url);
                    let id = provider.id;
                    match desk.add_provider(provider, models).await {
                        Ok(()) => {
                            if let Err(error) = key.keep(to_keep, id, SecretName::Key).await {
                                // The server is there by now, and its key can be entered at it.
                                desk.tell(&error);
                            }
                            Ok(())
                        }
                        refused => refused,
                    }
                }
                Ok(ProbeReport::Fails { failure: why }) => {
                    if why.code == FailureCode::KeyRejected
                        && wants_key.try_get_untracked() == Some(false)
                    {
                        // Nothing is kept under a fresh id: this asks where keys can live.
                        key.look(ProviderId::from_bits(ipc::random_bits()));
                        wants_key.try_set(true);
                    }
                    failure.try_set(Some(why));
                    Ok(())
                }
                Err(error) => Err(error),
            };
            if let Err(error) = answer {
                words.try_set(Some(refusal_words(&error)));
            }
            asking.try_set(false);
        });
    };
    view! {
        <form class="welcome-ask" on:submit=connect>
            <label class="label" for="welcome-address">"The computer that runs your models"</label>
            <div class="welcome-row">
                <input
                    class="field"
                    id="welcome-address"
                    type="text"
                    data-testid="welcome-address"
                    spellcheck="false"
                    autocapitalize="off"
                    autocomplete="off"
                    placeholder="homelab.lan:11434"
                    aria-describedby="welcome-hint"
                    prop:value=move || address.get()
                    on:input=move |event| {
                        address.set(event_target_value(&event));
                        key.forget_typed();
                    }
                />
                <button
                    type="submit"
                    class="button button-primary"
                    data-testid="welcome-connect"
                    disabled=move || {
                        asking.get() || address.with(|typed| typed.trim().is_empty())
                            || !key.is_ready()
                    }
                >
                    {move || if asking.get() { "Connecting…" } else { "Connect" }}
                </button>
            </div>
            <p class="hint" id="welcome-hint">
                "The computer that runs Ollama, llama.cpp or LM Studio, for example 192.168.1.20 or homelab.lan:11434."
            </p>
            <Show when=move || wants_key.get()>
                <KeyField entry=key label="Its key" />
            </Show>
            <div role="alert">
                {move || failure.get().map(|failure| view! { <FailureWords failure /> })}
                {move || words.get().map(|words| view! { <p class="alert">{words}</p> })}
            </div>
        </form>
    }
    .into_any()
}
