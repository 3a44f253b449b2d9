//! The settings: model servers, where everything is kept, and the shortcuts.

use leptos::{ev, html, prelude::*};
use protocol::{
    About, Connection, Dialect, DraftServer, ExamineArgs, Examined, FailureCode, Op, ProbeArgs,
    ProbeReport, Provider, SecretName, Think, TimeLimits,
};

use crate::{
    components::{
        background::Background,
        doctor::{self, Findings, KnownServer, Remedies, Visit},
        failure::FailureWords,
        fallbacks::Fallbacks,
        health::Health,
        icons::{Glyph, Icon},
        limits::{GeneralLimits, LimitFields, LimitsForm},
        models::Models,
        options::{THINKS, think_words},
        server_connection::{ConnectionFields, ConnectionForm},
        server_key::{KeyEntry, KeyField, ServerKey},
        sidebar::chord,
        usage::Usage,
    },
    desk::{LimitField, SettingsPart, name_of_address, new_provider, sentence, use_desk},
    ipc::{self, CallError},
};

/// A test asks several addresses in turn, each with a limit of the gateway's own.
const PROBE_LIMIT_MS: u64 = 45_000;

/// What a test of an address has come to.
#[derive(Clone, PartialEq, Eq)]
enum Test {
    Untried,
    Asking,
    Answered(ProbeReport),
    Lost(String),
}

/// The page.
#[component]
pub(crate) fn Settings(part: SettingsPart) -> impl IntoView {
    let desk = use_desk();
    let editing = RwSignal::new(None::<protocol::ProviderId>);
    let shortcuts = NodeRef::<html::Section>::new();
    let usage = NodeRef::<html::Section>::new();
    let health = NodeRef::<html::Section>::new();
    let models = NodeRef::<html::Section>::new();
    let wanted = match part {
        SettingsPart::Shortcuts => Some(shortcuts),
        SettingsPart::Usage => Some(usage),
        SettingsPart::Health => Some(health),
        SettingsPart::Models => Some(models),
        // These are at the top, or take the focus themselves.
        SettingsPart::Servers | SettingsPart::Limits(..) => None,
    };
    if let Some(wanted) = wanted {
        wanted.on_load(|section| {
            section.scroll_into_view();
            // Focus is a courtesy; whoever reads by ear begins here.
            let _ = section.focus();
        });
    }
    let (general, own) = match part {
        SettingsPart::Limits(field, None) => (Some(field), None),
        SettingsPart::Limits(field, Some(server)) => {
            editing.set(Some(server));
            (None, Some(field))
        }
        SettingsPart::Servers
        | SettingsPart::Models
        | SettingsPart::Usage
        | SettingsPart::Health
        | SettingsPart::Shortcuts => (None, None),
    };
    let providers = desk.library.providers;
    view! {
        <div class="settings" data-testid="settings-page">
            <div class="settings-column">
                <h1 class="settings-title">"Settings"</h1>

                <section class="settings-part" aria-labelledby="servers-heading">
                    <h2 class="settings-heading" id="servers-heading">"Model servers"</h2>
                    <p class="hint">
                        "The computers that run your models. Holdfast talks to them directly and to nobody else."
                    </p>
                    <ul class="server-list">
                        <For
                            each=move || providers.get()
                            key=row_key
                            let:provider
                        >
                            <ServerEntry provider editing focused=own />
                        </For>
                    </ul>
                    <AddServer />
                </section>

                <section
                    class="settings-part"
                    aria-labelledby="models-heading"
                    tabindex="-1"
                    node_ref=models
                >
                    <h2 class="settings-heading" id="models-heading">"Models"</h2>
                    <p class="hint">
                        "What your servers have on their disks and in their memory. A download goes on when this window is closed."
                    </p>
                    <Models />
                </section>

                <section class="settings-part" aria-labelledby="fallbacks-heading">
                    <h2 class="settings-heading" id="fallbacks-heading">"If a model fails"</h2>
                    <p class="hint">
                        "When the model of a chat fails before it said anything, these are asked instead, in this order."
                    </p>
                    <Fallbacks />
                </section>

                <section class="settings-part" aria-labelledby="limits-heading">
                    <h2 class="settings-heading" id="limits-heading">"Time limits"</h2>
                    <p class="hint">
                        "How long to wait before a turn counts as failed. A server can have limits of its own: edit it above."
                    </p>
                    <GeneralLimits focused=general />
                </section>

                <section class="settings-part" aria-labelledby="background-heading">
                    <h2 class="settings-heading" id="background-heading">"In the background"</h2>
                    <Background />
                </section>

                <section
                    class="settings-part"
                    aria-labelledby="usage-heading"
                    tabindex="-1"
                    node_ref=usage
                >
                    <h2 class="settings-heading" id="usage-heading">"Usage"</h2>
                    <p class="hint">
                        "What was asked of which model, as far as the servers counted it. Titles cost nothing here: \
                         Holdfast makes them itself."
                    </p>
                    <Usage />
                </section>

                <section
                    class="settings-part"
                    aria-labelledby="health-heading"
                    tabindex="-1"
                    node_ref=health
                >
                    <h2 class="settings-heading" id="health-heading">"Health"</h2>
                    <Health />
                </section>

                <section
                    class="settings-part"
                    aria-labelledby="shortcuts-heading"
                    tabindex="-1"
                    node_ref=shortcuts
                >
                    <h2 class="settings-heading" id="shortcuts-heading">"Keyboard"</h2>
                    <Shortcuts />
                </section>

                <section class="settings-part" aria-labelledby="about-heading">
                    <h2 class="settings-heading" id="about-heading">"Where everything is"</h2>
                    <AboutLines />
                </section>
            </div>
        </div>
    }
    .into_any()
}

/// All that a row shows: a changed server is another row.
fn row_key(provider: &Provider) -> String {
    format!("{provider:?}")
}

#[component]
fn ServerEntry(
    provider: Provider,
    editing: RwSignal<Option<protocol::ProviderId>>,
    focused: Option<LimitField>,
) -> impl IntoView {
    let desk = use_desk();
    let id = provider.id;
    let visit = RwSignal::new(Visit::Not);
    let is_edited = Memo::new(move |_| editing.get() == Some(id));
    let shown = provider.clone();
    let removed = provider.clone();
    let doctor_of = provider.clone();
    let check = Callback::new(move |()| {
        doctor::examine(visit, doctor::known(desk.model_for(id), id));
    });
    if desk.examined_next.get_untracked() == Some(id) {
        desk.examined_next.set(None);
        check.run(());
    }
    // Whoever looked at it once wants to know what changed by the key.
    let changed = Callback::new(move |()| {
        if visit.get_untracked() != Visit::Not {
            check.run(());
        }
    });
    let enter_key = Callback::new(move |()| {
        editing.set(Some(id));
        ipc::spawn(async move {
            ipc::next_frame_or(100).await;
            // Focus is a courtesy.
            ipc::focus("[data-testid=server] [data-testid=key-field]");
        });
    });
    view! {
        <li class="server" data-testid="server">
            <div class="server-row">
                <span class="server-icon"><Glyph icon=Icon::Server /></span>
                <span class="server-words">
                    <span class="server-name">{provider.name.clone()}</span>
                    <span class="server-address">
                        {provider.base_url.clone()} " · " {dialect_words(provider.dialect)}
                    </span>
                </span>
                <button
                    type="button"
                    class="button"
                    data-testid="examine"
                    disabled=move || visit.get() == Visit::Looking
                    aria-label=format!("Check {}", provider.name)
                    on:click=move |_| check.run(())
                >
                    "Check"
                </button>
                <button
                    type="button"
                    class="icon-button"
                    data-testid="server-edit"
                    aria-label=format!("Edit {}", provider.name)
                    title="Edit"
                    aria-expanded=move || if is_edited.get() { "true" } else { "false" }
                    on:click=move |_| {
                        editing.update(|open| *open = if *open == Some(id) { None } else { Some(id) });
                    }
                >
                    <Glyph icon=Icon::Pencil />
                </button>
                <button
                    type="button"
                    class="icon-button"
                    aria-label=format!("Remove {}", provider.name)
                    title="Remove"
                    on:click=move |_| desk.remove_provider(removed.clone())
                >
                    <Glyph icon=Icon::Bin />
                </button>
            </div>
            <KnownServer provider=doctor_of visit enter_key />
            {move || {
                is_edited
                    .get()
                    .then(|| {
                        view! {
                            <ServerKey provider=shown.clone() changed />
                            <EditServer provider=shown.clone() focused editing />
                        }
                    })
            }}
        </li>
    }
    .into_any()
}

#[component]
fn EditServer(
    provider: Provider,
    focused: Option<LimitField>,
    editing: RwSignal<Option<protocol::ProviderId>>,
) -> impl IntoView {
    let desk = use_desk();
    let form = ServerForm::of(&provider);
    let id = provider.id;
    let close = move || {
        editing.try_update(|open| {
            if *open == Some(id) {
                *open = None;
            }
        });
    };
    let words = RwSignal::new(None::<String>);
    let save = move |event: ev::SubmitEvent| {
        event.prevent_default();
        let Some(changed) = form.filled(provider.id, words) else {
            return;
        };
        ipc::spawn(async move {
            match desk.submit(Op::ChangeProvider { provider: changed }).await {
                // The changed server is another row with a form of its own, which may be there before this answer is.
                Ok(_) => close(),
                Err(error) => {
                    if !form.limits.take_refusal(&error) {
                        words.try_set(Some(refusal_words(&error)));
                    }
                }
            }
        });
    };
    view! {
        <form class="server-form" on:submit=save>
            <div class="form-grid">
                <label class="form-field">
                    <span class="label">"Name"</span>
                    <input class="field" type="text" bind:value=form.name required />
                </label>
                <label class="form-field">
                    <span class="label">"Address"</span>
                    <input
                        class="field"
                        type="text"
                        data-testid="server-address"
                        spellcheck="false"
                        bind:value=form.base_url
                        required
                    />
                </label>
            </div>
            <FormDetails form focused />
            <FormWords words />
            <div class="form-actions">
                <button type="submit" class="button button-primary">"Save"</button>
                <button type="button" class="button" on:click=move |_| close()>"Cancel"</button>
            </div>
        </form>
    }
    .into_any()
}

#[component]
fn AddServer() -> impl IntoView {
    let desk = use_desk();
    let address = RwSignal::new(String::new());
    let insisted = RwSignal::new(None::<Dialect>);
    let test = RwSignal::new(Test::Untried);
    let form = ServerForm::empty();
    let key = KeyEntry::new();
    let words = RwSignal::new(None::<String>);
    let visit = RwSignal::new(Visit::Not);
    // Once something in it was wrong, it stays open for whoever mends it.
    let was_wrong = Memo::new(move |before: Option<&bool>| {
        before.is_some_and(|before| *before) || words.with(Option::is_some)
    });
    // Nothing is asked but by the way that was typed: another one could show the key to somebody else.
    let way = move || match form.connection.filled() {
        Ok(connection) => {
            words.set(None);
            Some(connection)
        }
        Err(said) => {
            words.set(Some(said));
            None
        }
    };
    let probe = move |dialect: Option<Dialect>| {
        test.set(Test::Untried);
        let Some(connection) = way() else {
            return;
        };
        let args = ProbeArgs {
            dialect,
            connection,
            key: key.key(),
            ..ProbeArgs::of(address.get_untracked().trim())
        };
        ask(test, args);
    };
    let examine = Callback::new(move |()| {
        let Some(connection) = way() else {
            return;
        };
        let provider = Provider {
            connection,
            ..new_provider(
                "The server".to_owned(),
                insisted.get_untracked().unwrap_or(Dialect::Ollama),
                address.get_untracked().trim().to_owned(),
            )
        };
        let key = key.key();
        let draft = Box::new(DraftServer { provider, key });
        doctor::examine(
            visit,
            ExamineArgs {
                server: Examined::Draft { draft },
                model: None,
            },
        );
    });
    // A fix goes into the form, and is tested at once.
    let change = Callback::new(move |provider: Provider| {
        form.connection.show(&provider.connection);
        address.set(provider.base_url);
        insisted.set(Some(provider.dialect));
        visit.set(Visit::Not);
        probe(Some(provider.dialect));
    });
    let enter_key = Callback::new(move |()| {
        ipc::focus(".server-add [data-testid=key-field]");
    });
    let remedies = Remedies {
        change,
        enter_key,
        is_known: false,
    };
    // Once it is asked for, its field stays until the server is saved.
    let wants_key = RwSignal::new(false);
    Effect::new(move |_| {
        let refused = test.with(|test| match test {
            Test::Answered(ProbeReport::Fails { failure }) => {
                failure.code == FailureCode::KeyRejected
            }
            Test::Answered(ProbeReport::Works { .. })
            | Test::Untried
            | Test::Asking
            | Test::Lost(_) => false,
        });
        if refused && !wants_key.get_untracked() {
            // Nothing is kept under a fresh id: this asks where keys can live.
            key.look(new_provider(String::new(), Dialect::Ollama, String::new()).id);
            wants_key.set(true);
        }
    });
    // The form's own fields follow what the test found, until someone types into them.
    Effect::new(move |_| {
        if let Test::Answered(ProbeReport::Works {
            dialect, base_url, ..
        }) = test.get()
        {
            form.name.set(name_of_address(&base_url));
            form.base_url.set(base_url);
            form.dialect.set(dialect);
        }
    });
    let found = Memo::new(move |_| {
        test.with(|test| match test {
            Test::Answered(ProbeReport::Works { .. }) => true,
            Test::Answered(ProbeReport::Fails { .. })
            | Test::Untried
            | Test::Asking
            | Test::Lost(_) => false,
        })
    });
    let check = move |event: ev::SubmitEvent| {
        event.prevent_default();
        let typed = address.get_untracked().trim().to_owned();
        if !typed.is_empty() {
            visit.set(Visit::Not);
            probe(insisted.get_untracked());
        }
    };
    let save = move |event: ev::SubmitEvent| {
        event.prevent_default();
        let fresh = new_provider(String::new(), Dialect::Ollama, String::new());
        let Some(provider) = form.filled(fresh.id, words) else {
            return;
        };
        let models = test.with_untracked(|test| match test {
            Test::Answered(ProbeReport::Works { models, .. }) => models.clone(),
            Test::Answered(ProbeReport::Fails { .. })
            | Test::Untried
            | Test::Asking
            | Test::Lost(_) => Vec::new(),
        });
        let id = provider.id;
        let to_keep = key.to_keep();
        ipc::spawn(async move {
            let answer = desk.add_provider(provider, models).await;
            match answer {
                Ok(()) => {
                    if let Err(error) = key.keep(to_keep, id, SecretName::Key).await {
                        // The server is there by now, and its key can be entered at it.
                        desk.tell(&error);
                    }
                    key.typed.try_set(String::new());
                    wants_key.try_set(false);
                    address.try_set(String::new());
                    visit.try_set(Visit::Not);
                    test.try_set(Test::Untried);
                    form.clear();
                }
                Err(error) => {
                    words.try_set(Some(refusal_words(&error)));
                }
            }
        });
    };
    view! {
        <div class="server-add">
            <form class="server-test" on:submit=check>
                <label class="form-field">
                    <span class="label">"Add a server"</span>
                    <input
                        class="field"
                        type="text"
                        data-testid="settings-address"
                        spellcheck="false"
                        autocapitalize="off"
                        autocomplete="off"
                        placeholder="localhost:11434, homelab.lan:8080/v1 …"
                        aria-describedby="address-hint"
                        prop:value=move || address.get()
                        on:input=move |event| {
                            address.set(event_target_value(&event));
                            insisted.set(None);
                            test.set(Test::Untried);
                            key.forget_typed();
                        }
                    />
                </label>
                <button
                    type="submit"
                    class="button"
                    data-testid="settings-test"
                    disabled=move || {
                        address.with(|typed| typed.trim().is_empty()) || test.get() == Test::Asking
                    }
                >
                    "Test"
                </button>
            </form>
            <p class="hint" id="address-hint">
                "The address as you know it, with or without http:// and a path. "
                "Holdfast finds out which kind of server answers there."
            </p>
            <TestResult test />
            <Show when=move || wants_key.get()>
                <KeyField entry=key label="Its key; then test again" />
            </Show>
            <Show when=move || !found.get()>
                <details class="form-details" data-testid="add-way" prop:open=move || was_wrong.get()>
                    <summary>"How it is reached"</summary>
                    <ConnectionFields form=form.connection />
                    <FormWords words />
                </details>
            </Show>
            {move || {
                found
                    .get()
                    .then(|| {
                        view! {
                            <form class="server-form" on:submit=save>
                                <label class="form-field">
                                    <span class="label">"Name"</span>
                                    <input class="field" type="text" bind:value=form.name required />
                                </label>
                                <FormDetails form focused=None />
                                <FormWords words />
                                <div class="form-actions">
                                    <button
                                        type="submit"
                                        class="button button-primary"
                                        data-testid="settings-save"
                                        disabled=move || !key.is_ready()
                                    >
                                        "Save"
                                    </button>
                                </div>
                            </form>
                        }
                    })
            }}
            <Show when=move || {
                test.with(|test| matches!(test, Test::Answered(ProbeReport::Fails { .. })))
            }>
                <Show when=move || visit.get() == Visit::Not>
                    <button
                        type="button"
                        class="button"
                        data-testid="settings-why"
                        on:click=move |_| examine.run(())
                    >
                        "Find out why"
                    </button>
                </Show>
                <Findings visit again=examine remedies />
                <fieldset class="dialect-choice">
                    <legend class="hint">
                        "If you know which kind of server it is, test it as one:"
                    </legend>
                    {DIALECTS
                        .map(|dialect| {
                            view! {
                                <button
                                    type="button"
                                    class="button"
                                    aria-pressed=move || {
                                        if insisted.get() == Some(dialect) { "true" } else { "false" }
                                    }
                                    on:click=move |_| {
                                        insisted.set(Some(dialect));
                                        probe(Some(dialect));
                                    }
                                >
                                    {dialect_words(dialect)}
                                </button>
                            }
                        })
                        .collect_view()}
                </fieldset>
            </Show>
        </div>
    }
    .into_any()
}

/// The fields of a server as they are being typed.
#[derive(Clone, Copy)]
struct ServerForm {
    name: RwSignal<String>,
    base_url: RwSignal<String>,
    dialect: RwSignal<Dialect>,
    num_ctx: RwSignal<String>,
    keep_alive: RwSignal<String>,
    think: RwSignal<Think>,
    /// Whether it has limits of its own, and these.
    has_limits: RwSignal<bool>,
    limits: LimitsForm,
    /// How it is reached.
    connection: ConnectionForm,
}

impl ServerForm {
    fn empty() -> Self {
        Self {
            name: RwSignal::new(String::new()),
            base_url: RwSignal::new(String::new()),
            dialect: RwSignal::new(Dialect::Ollama),
            num_ctx: RwSignal::new(String::new()),
            keep_alive: RwSignal::new(String::new()),
            think: RwSignal::new(Think::ServerDefault),
            has_limits: RwSignal::new(false),
            limits: LimitsForm::of(TimeLimits::default()),
            connection: ConnectionForm::new(),
        }
    }

    fn of(provider: &Provider) -> Self {
        let form = Self::empty();
        form.name.set(provider.name.clone());
        form.base_url.set(provider.base_url.clone());
        form.dialect.set(provider.dialect);
        form.num_ctx
            .set(provider.num_ctx.map_or_else(String::new, |n| n.to_string()));
        form.keep_alive
            .set(provider.keep_alive.clone().unwrap_or_default());
        form.think.set(provider.think);
        form.has_limits.set(provider.limits.is_some());
        form.connection.show(&provider.connection);
        if let Some(limits) = provider.limits {
            form.limits.show(limits);
        }
        form
    }

    fn clear(self) {
        for text in [self.name, self.base_url, self.num_ctx, self.keep_alive] {
            text.try_set(String::new());
        }
        self.think.try_set(Think::ServerDefault);
        self.has_limits.try_set(false);
        self.connection.show(&Connection::default());
    }

    /// The server as typed, or words about the field that cannot be used.
    fn filled(self, id: protocol::ProviderId, words: RwSignal<Option<String>>) -> Option<Provider> {
        let text = |field: RwSignal<String>| field.get_untracked().trim().to_owned();
        let num_ctx = match text(self.num_ctx).as_str() {
            "" => None,
            typed => match typed.parse::<u32>() {
                Ok(tokens) if tokens > 0 => Some(tokens),
                Ok(_) | Err(_) => {
                    let said = "The context length is a number of tokens, for example 8192";
                    words.set(Some(said.to_owned()));
                    return None;
                }
            },
        };
        let limits = if self.has_limits.get_untracked() {
            Some(self.limits.filled()?)
        } else {
            None
        };
        let connection = match self.connection.filled() {
            Ok(connection) => connection,
            Err(said) => {
                words.set(Some(said));
                return None;
            }
        };
        words.set(None);
        let base_url = text(self.base_url).trim_end_matches('/').to_owned();
        let name = match text(self.name) {
            name if name.is_empty() => name_of_address(&base_url),
            name => name,
        };
        Some(Provider {
            id,
            name,
            dialect: self.dialect.get_untracked(),
            base_url,
            num_ctx,
            keep_alive: Some(text(self.keep_alive)).filter(|typed| !typed.is_empty()),
            // The engine keeps those that it has: they are added and forgotten one by one.
            files: Vec::new(),
            think: self.think.get_untracked(),
            limits,
            connection,
        })
    }
}

#[component]
fn FormDetails(form: ServerForm, focused: Option<LimitField>) -> impl IntoView {
    let is = move |dialect| form.dialect.get() == dialect;
    let loads = move || is(Dialect::Ollama) || is(Dialect::Local);
    view! {
        <details class="form-details" open=focused.is_some()>
            <summary>"Advanced"</summary>
            <div class="form-grid">
                <label class="form-field">
                    <span class="label">"Kind of server"</span>
                    <select
                        class="field"
                        on:change=move |event| {
                            let chosen = event_target_value(&event);
                            let known = DIALECTS.into_iter();
                            let mut chosen = known.filter(|d| dialect_value(*d) == chosen);
                            if let Some(dialect) = chosen.next() {
                                form.dialect.set(dialect);
                            }
                        }
                    >
                        {DIALECTS
                            .map(|dialect| {
                                view! {
                                    <option
                                        value=dialect_value(dialect)
                                        selected=move || is(dialect)
                                    >
                                        {dialect_words(dialect)}
                                    </option>
                                }
                            })
                            .collect_view()}
                    </select>
                </label>
                <label class="form-field">
                    <span class="label">"Thinking"</span>
                    <select
                        class="field"
                        on:change=move |event| {
                            let chosen = event_target_value(&event);
                            let mut known = THINKS.into_iter();
                            if let Some(think) = known.find(|t| think_words(*t) == chosen) {
                                form.think.set(think);
                            }
                        }
                    >
                        {THINKS
                            .map(|think| {
                                view! {
                                    <option
                                        value=think_words(think)
                                        selected=move || form.think.get() == think
                                    >
                                        {think_words(think)}
                                    </option>
                                }
                            })
                            .collect_view()}
                    </select>
                </label>
                <Show when=loads>
                    <label class="form-field">
                        <span class="label">"Context length (tokens)"</span>
                        <input
                            class="field"
                            type="text"
                            inputmode="numeric"
                            placeholder="the server’s own"
                            bind:value=form.num_ctx
                        />
                    </label>
                    <label class="form-field">
                        <span class="label">"Keep the model loaded for"</span>
                        <input
                            class="field"
                            type="text"
                            placeholder="the server’s own, or 10m, 1h, -1"
                            bind:value=form.keep_alive
                        />
                    </label>
                </Show>
            </div>
            <ConnectionFields form=form.connection />
            <label class="form-check">
                <input type="checkbox" data-testid="own-limits" bind:checked=form.has_limits />
                "Its own time limits"
            </label>
            <Show when=move || form.has_limits.get()>
                <LimitFields form=form.limits focused />
            </Show>
        </details>
    }
    .into_any()
}

/// Words about the field that cannot be used.
#[component]
fn FormWords(words: RwSignal<Option<String>>) -> impl IntoView {
    view! {
        {move || {
            words
                .get()
                .map(|words| {
                    view! {
                        <p class="alert" role="alert" data-testid="form-words">
                            {words}
                        </p>
                    }
                })
        }}
    }
    .into_any()
}

#[component]
fn TestResult(test: RwSignal<Test>) -> impl IntoView {
    let said = move || match test.get() {
        Test::Untried => ().into_any(),
        Test::Asking => view! { <p class="test-result hint">"Asking…"</p> }.into_any(),
        Test::Lost(words) => view! { <p class="test-result alert">{words}</p> }.into_any(),
        Test::Answered(ProbeReport::Fails { failure }) => view! {
            <div class="test-result">
                <FailureWords failure />
            </div>
        }
        .into_any(),
        Test::Answered(ProbeReport::Works { server, models, .. }) => {
            let names: Vec<&str> = models.iter().take(4).map(|m| m.name.as_str()).collect();
            let more = models.len().saturating_sub(names.len());
            let list = match (names.is_empty(), more) {
                (true, _) => "It has no models yet.".to_owned(),
                (false, 0) => names.join(", "),
                (false, more) => format!("{} and {more} more", names.join(", ")),
            };
            let count = match models.len() {
                1 => "1 model".to_owned(),
                count => format!("{count} models"),
            };
            view! {
                <div class="test-result is-ok">
                    <Glyph icon=Icon::Check />
                    <span>
                        <strong>{server}</strong>
                        " answers, with "
                        {count}
                        ". "
                        <span class="hint">{list}</span>
                    </span>
                </div>
            }
            .into_any()
        }
    };
    view! {
        <div role="status" data-testid="test-result">
            {said}
        </div>
    }
    .into_any()
}

fn ask(test: RwSignal<Test>, args: ProbeArgs) {
    test.set(Test::Asking);
    ipc::spawn(async move {
        let answer = ipc::within(PROBE_LIMIT_MS, ipc::probe(&args)).await;
        // Whoever typed on meanwhile no longer asks this question.
        if test.try_get_untracked() == Some(Test::Asking) {
            test.set(match answer {
                Ok(report) => Test::Answered(report),
                Err(error) => Test::Lost(refusal_words(&error)),
            });
        }
    });
}

/// Words for the field that a refusal is about.
pub(crate) fn refusal_words(error: &CallError) -> String {
    match error {
        CallError::Refused(report) => sentence(&report.to_string()),
        CallError::Lost(words) => format!("Holdfast’s engine did not answer ({words})"),
    }
}

/// The same of a file, whose name keeps its letters: the engine's words begin with it, and the transport's know none.
pub(crate) fn refusal_of_file(name: &str, undone: &str, error: &CallError) -> String {
    let words = refusal_words(error);
    let after = words.split_at_checked(name.len());
    match after.filter(|(head, _)| head.eq_ignore_ascii_case(name)) {
        Some((_, rest)) => format!("{name}{rest}"),
        None => format!("{name} was not {undone}: {words}"),
    }
}

/// Every dialect, the likeliest first.
const DIALECTS: [Dialect; 4] = [
    Dialect::Ollama,
    Dialect::OpenAiChat,
    Dialect::Anthropic,
    Dialect::Local,
];

/// A dialect as a choice of a list.
const fn dialect_value(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Ollama => "ollama",
        Dialect::OpenAiChat => "openai",
        Dialect::Anthropic => "anthropic",
        Dialect::Local => "local",
    }
}

/// A dialect as people know it.
pub(crate) const fn dialect_words(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Ollama => "Ollama",
        Dialect::OpenAiChat => "OpenAI-compatible (llama.cpp, LM Studio, vLLM)",
        Dialect::Anthropic => "Anthropic messages",
        Dialect::Local => "This computer (a folder of GGUF files)",
    }
}

#[component]
fn AboutLines() -> impl IntoView {
    let desk = use_desk();
    let about = RwSignal::new(None::<About>);
    ipc::spawn(async move {
        if let Ok(known) = ipc::about().await {
            about.try_set(Some(known));
        }
    });
    view! {
        <p class="hint">
            "Every chat is in one folder on this computer. Nothing is sent anywhere but to your model servers."
        </p>
        {move || {
            about
                .get()
                .map(|about| {
                    let folder = about.data_dir.clone();
                    view! {
                        <div class="about">
                            <span class="label">"Data folder"</span>
                            <div class="about-folder">
                                <code data-testid="data-folder">{about.data_dir.clone()}</code>
                                <button
                                    type="button"
                                    class="icon-button"
                                    aria-label="Copy the data folder’s path"
                                    title="Copy"
                                    on:click=move |_| desk.copy(folder.clone())
                                >
                                    <Glyph icon=Icon::Copy />
                                </button>
                            </div>
                            <p class="hint">"Holdfast " {about.version.clone()}</p>
                        </div>
                    }
                })
        }}
    }
    .into_any()
}

#[component]
fn Shortcuts() -> impl IntoView {
    let list = [
        ("Send", "Enter".to_owned()),
        ("New line", "Shift+Enter".to_owned()),
        ("Stop the answer", "Esc".to_owned()),
        ("New chat", chord("N")),
        ("Open this chat in a new window", chord("Shift+N")),
        (
            "One of the first nine chats",
            format!("{} to {}", chord("1"), chord("9")),
        ),
        ("Go to the model’s question", chord("J")),
        ("Rename this chat", "F2".to_owned()),
        ("Copy the last answer", chord("Shift+C")),
        (
            "Show the last answer again as it happened",
            chord("Shift+P"),
        ),
        ("Show or hide the sidebar", chord("B")),
        ("Settings", chord(",")),
        ("Usage", chord("Shift+L")),
        ("Health", chord("Shift+H")),
        (
            "Load the view anew",
            if ipc::is_mac() {
                chord("R")
            } else {
                "F5".to_owned()
            },
        ),
        ("This list", format!("F1 or {}", chord("/"))),
    ];
    view! {
        <dl class="shortcuts">
            {list
                .into_iter()
                .map(|(what, keys)| {
                    view! {
                        <div class="shortcut">
                            <dt>{what}</dt>
                            <dd>
                                <kbd>{keys}</kbd>
                            </dd>
                        </div>
                    }
                })
                .collect_view()}
        </dl>
    }
    .into_any()
}
