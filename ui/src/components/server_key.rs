//! A server's key: entered, replaced, forgotten. Saved by itself, not with the rest of the server.
//!
//! Invariant: a key is on this page only while it is being typed; what comes back says where it is kept and at most
//! how it ends. Where it will live is said before it is kept, and where no keychain is, nobody chooses but the user.

use leptos::{ev, prelude::*};
use protocol::{
    ChangeKeyArgs, KeptSecrets, KeyChange, KeyPlace, KeychainReport, KeysArgs, KeysReport,
    Provider, ProviderId, SecretName, TypedKey,
};

use crate::{
    components::settings::refusal_words,
    ipc::{self, CallError},
};

/// A keychain may wait for its password twice, once to tell that it is there.
const KEYS_LIMIT_MS: u64 = 200_000;

/// A key that is being typed, and where it is to go.
#[derive(Clone, Copy)]
pub(crate) struct KeyEntry {
    pub(crate) typed: RwSignal<String>,
    place: RwSignal<Option<KeyPlace>>,
    report: RwSignal<Option<KeysReport>>,
    /// Why nobody could tell what is kept.
    lost: RwSignal<Option<String>>,
}

impl KeyEntry {
    pub(crate) fn new() -> Self {
        Self {
            typed: RwSignal::new(String::new()),
            place: RwSignal::new(None),
            report: RwSignal::new(None),
            lost: RwSignal::new(None),
        }
    }

    /// Asks where keys can be kept, and which one this server has.
    pub(crate) fn look(self, provider: ProviderId) {
        ipc::spawn(async move {
            let args = KeysArgs { provider };
            match ipc::within(KEYS_LIMIT_MS, ipc::keys(&args)).await {
                Ok(report) => self.take(report),
                // The places are still shown, the keychain not among them.
                Err(error) => {
                    self.lost.try_set(Some(refusal_words(&error)));
                }
            }
        });
    }

    fn take(self, report: KeysReport) {
        let usual = match (&report.kept, &report.keychain) {
            (Some(kept), _) => Some(kept.place),
            (None, KeychainReport::There { .. }) => Some(KeyPlace::Keychain),
            (None, KeychainReport::Missing { .. }) => None,
        };
        if self.place.try_get_untracked() == Some(None) {
            self.place.try_set(usual);
        }
        self.report.try_set(Some(report));
        self.lost.try_set(None);
    }

    /// Why nobody could tell, or words for as long as nobody has.
    fn lost_or(self, words: &'static str) -> impl Fn() -> String {
        move || self.lost.get().unwrap_or_else(|| words.to_owned())
    }

    /// What was typed, if anything.
    pub(crate) fn key(self) -> Option<TypedKey> {
        let typed = TypedKey::new(&self.typed.get_untracked());
        (!typed.is_empty()).then_some(typed)
    }

    /// Whether it can be kept as it stands: nothing typed is nothing to keep.
    pub(crate) fn is_ready(self) -> bool {
        self.typed.with(|typed| typed.trim().is_empty()) || self.place.get().is_some()
    }

    /// What was typed and where it is to live, for [`Self::keep`]: read before anything is waited for, since the view that
    /// holds it may be gone by then.
    pub(crate) fn to_keep(self) -> Option<(TypedKey, KeyPlace)> {
        self.key().zip(self.place.get_untracked())
    }

    /// Keeps what was typed.
    pub(crate) async fn keep(
        self,
        typed: Option<(TypedKey, KeyPlace)>,
        provider: ProviderId,
        name: SecretName,
    ) -> Result<(), CallError> {
        let Some((typed, place)) = typed else {
            return Ok(());
        };
        let change = KeyChange::Keep { name, typed, place };
        self.change(provider, change).await?;
        self.typed.try_set(String::new());
        Ok(())
    }

    /// Another server is meant: what was typed for the one before is not for it.
    pub(crate) fn forget_typed(self) {
        self.typed.set(String::new());
    }

    async fn change(self, provider: ProviderId, change: KeyChange) -> Result<(), CallError> {
        self.take(change_key(provider, change).await?);
        Ok(())
    }
}

/// Changes what is kept for a server.
pub(crate) async fn change_key(
    provider: ProviderId,
    change: KeyChange,
) -> Result<KeysReport, CallError> {
    let args = ChangeKeyArgs { provider, change };
    ipc::within(KEYS_LIMIT_MS, ipc::change_key(&args)).await
}

/// The field for a key, and where it will live.
#[component]
pub(crate) fn KeyField(entry: KeyEntry, label: &'static str) -> impl IntoView {
    view! {
        <label class="form-field">
            <span class="label">{label}</span>
            <input
                class="field"
                type="password"
                data-testid="key-field"
                spellcheck="false"
                autocapitalize="off"
                autocomplete="off"
                placeholder="paste it here"
                bind:value=entry.typed
            />
        </label>
        <Show when=move || entry.typed.with(|typed| !typed.trim().is_empty())>
            <Places entry />
        </Show>
    }
    .into_any()
}

#[component]
fn Places(entry: KeyEntry) -> impl IntoView {
    let choice = move |place: KeyPlace, words: String| {
        view! {
            <label class="form-check">
                <input
                    type="radio"
                    name="key-place"
                    data-testid=place_value(place)
                    prop:checked=move || entry.place.get() == Some(place)
                    on:change=move |_| entry.place.set(Some(place))
                />
                <span>{words}</span>
            </label>
        }
        .into_any()
    };
    let list = move || {
        let report = entry.report.get();
        let (keychain, file) = match report {
            None => (
                view! { <p class="hint">{entry.lost_or("Looking for this computer’s keychain…")}</p> }
                    .into_any(),
                "a file in the data folder".to_owned(),
            ),
            Some(KeysReport { keychain: KeychainReport::There { name }, file, .. }) => (
                choice(KeyPlace::Keychain, format!("In {name}")),
                file,
            ),
            Some(KeysReport { keychain: KeychainReport::Missing { why }, file, .. }) => (
                view! {
                    <p class="hint" data-testid="no-keychain">
                        {format!("{} Choose where else the key is to live.", crate::desk::sentence(&why) + ".")}
                    </p>
                }
                .into_any(),
                file,
            ),
        };
        view! {
            {keychain}
            {choice(KeyPlace::File, format!("In {file}, readable, but only by you"))}
            {choice(
                KeyPlace::Memory,
                "Nowhere: until Holdfast is closed, then it is asked for again".to_owned(),
            )}
        }
    };
    view! {
        <fieldset class="key-places">
            <legend class="label">"Where the key will live"</legend>
            {list}
        </fieldset>
    }
    .into_any()
}

const fn place_value(place: KeyPlace) -> &'static str {
    match place {
        KeyPlace::Keychain => "key-in-keychain",
        KeyPlace::File => "key-in-file",
        KeyPlace::Memory => "key-in-memory",
    }
}

/// The key of a server in the settings. `changed` is called when it was.
#[component]
pub(crate) fn ServerKey(provider: Provider, changed: Callback<()>) -> impl IntoView {
    let entry = KeyEntry::new();
    let id = provider.id;
    entry.look(id);
    let words = RwSignal::new(None::<String>);
    let busy = RwSignal::new(false);
    let run = move |work: std::pin::Pin<Box<dyn Future<Output = Result<(), CallError>>>>| {
        if busy.get_untracked() {
            return;
        }
        busy.set(true);
        words.set(None);
        ipc::spawn(async move {
            match work.await {
                Ok(()) => {
                    changed.try_run(());
                }
                Err(error) => {
                    words.try_set(Some(refusal_words(&error)));
                }
            }
            busy.try_set(false);
        });
    };
    let keep = move |event: ev::SubmitEvent| {
        event.prevent_default();
        event.stop_propagation();
        run(Box::pin(entry.keep(entry.to_keep(), id, SecretName::Key)));
    };
    let forget = move |name: SecretName| {
        run(Box::pin(async move {
            entry.change(id, KeyChange::Forget { name }).await
        }));
    };
    let carry = move |_| {
        run(Box::pin(
            async move { entry.change(id, KeyChange::Carry).await },
        ));
    };
    let secrets: Vec<String> = provider
        .connection
        .secret_headers()
        .map(str::to_owned)
        .collect();
    let kept = move || entry.report.get().and_then(|report| report.kept);
    let is_replaced = Memo::new(move |_| kept().is_some_and(|kept| kept.key.is_some()));
    let status = move || {
        let report = entry.report.get();
        match report {
            None => view! { <p class="hint">{entry.lost_or("Looking for its key…")}</p> }.into_any(),
            Some(KeysReport { kept: None, left, .. }) => view! {
                <p class="hint">"No key is kept for this server. Most servers of your own need none."</p>
                {left.then(LeftCopy)}
            }
            .into_any(),
            Some(KeysReport { kept: Some(kept), keychain, file, left }) => {
                let said = kept_words(&kept, &keychain, &file);
                let elsewhere = kept.elsewhere;
                let has_key = kept.key.is_some();
                view! {
                    <p class="key-status" data-testid="key-status">{said}</p>
                    {left.then(LeftCopy)}
                    {elsewhere
                        .then(|| {
                            view! {
                                <div class="test-result" role="status">
                                    <p class="alert">
                                        "The address has changed, so the key is not sent. It goes to nobody but who it was entered for."
                                    </p>
                                    <button
                                        type="button"
                                        class="button"
                                        data-testid="key-carry"
                                        disabled=move || busy.get()
                                        on:click=carry
                                    >
                                        "It is for the new address too"
                                    </button>
                                </div>
                            }
                        })}
                    {has_key
                        .then(|| {
                            view! {
                                <button
                                    type="button"
                                    class="button"
                                    data-testid="key-forget"
                                    disabled=move || busy.get()
                                    on:click=move |_| forget(SecretName::Key)
                                >
                                    "Forget the key"
                                </button>
                            }
                        })}
                }
                .into_any()
            }
        }
    };
    view! {
        <section class="server-key" aria-label=format!("Key of {}", provider.name)>
            <div role="status">{status}</div>
            {secrets
                .into_iter()
                .map(|name| view! { <SecretHeader id name entry changed /> })
                .collect_view()}
            <form on:submit=keep>
                {move || {
                    let label = if is_replaced.get() { "Replace the key" } else { "Key" };
                    view! { <KeyField entry label /> }
                }}
                {move || words.get().map(|words| view! { <p class="alert" role="alert">{words}</p> })}
                <Show when=move || entry.typed.with(|typed| !typed.trim().is_empty())>
                    <div class="form-actions">
                        <button
                            type="submit"
                            class="button button-primary"
                            data-testid="key-keep"
                            disabled=move || busy.get() || !entry.is_ready()
                        >
                            {move || if busy.get() { "Keeping it…" } else { "Keep this key" }}
                        </button>
                    </div>
                </Show>
            </form>
        </section>
    }
    .into_any()
}

/// The value of a header that is kept like a key.
#[component]
fn SecretHeader(
    id: ProviderId,
    name: String,
    entry: KeyEntry,
    changed: Callback<()>,
) -> impl IntoView {
    let own = KeyEntry {
        typed: RwSignal::new(String::new()),
        ..entry
    };
    let words = RwSignal::new(None::<String>);
    let is_kept = {
        let name = name.to_ascii_lowercase();
        Memo::new(move |_| {
            let report = entry.report.get();
            let kept = report.and_then(|report| report.kept);
            kept.is_some_and(|kept| kept.headers.contains(&name))
        })
    };
    let label = name.clone();
    let keep = move |event: ev::SubmitEvent| {
        event.prevent_default();
        event.stop_propagation();
        let name = SecretName::Header { name: name.clone() };
        let typed = own.to_keep();
        ipc::spawn(async move {
            match own.keep(typed, id, name).await {
                Ok(()) => {
                    words.try_set(None);
                    changed.try_run(());
                }
                Err(error) => {
                    words.try_set(Some(refusal_words(&error)));
                }
            }
        });
    };
    view! {
        <form on:submit=keep>
            <label class="form-field">
                <span class="label">
                    {move || {
                        if is_kept.get() {
                            format!("{label} (a value is kept; another one replaces it)")
                        } else {
                            format!("{label} (no value yet, so nothing can be asked)")
                        }
                    }}
                </span>
                <input
                    class="field"
                    type="password"
                    data-testid="header-field"
                    spellcheck="false"
                    autocomplete="off"
                    bind:value=own.typed
                />
            </label>
            <Show when=move || own.typed.with(|typed| !typed.trim().is_empty())>
                <Places entry=own />
                <div class="form-actions">
                    <button
                        type="submit"
                        class="button button-primary"
                        disabled=move || !own.is_ready()
                    >
                        "Keep this value"
                    </button>
                </div>
            </Show>
            {move || words.get().map(|words| view! { <p class="alert" role="alert">{words}</p> })}
        </form>
    }
    .into_any()
}

/// A copy that is where it should not be.
#[component]
fn LeftCopy() -> impl IntoView {
    view! {
        <p class="alert" data-testid="key-left">
            "The system’s keychain did not answer, and may still have a copy of the key. Holdfast takes it out at its next start."
        </p>
    }
}

fn kept_words(kept: &KeptSecrets, keychain: &KeychainReport, file: &str) -> String {
    let what = match &kept.key {
        Some(hint) => match &hint.ends {
            Some(ends) => format!("Its key ends in {ends} and lives"),
            None => "Its key lives".to_owned(),
        },
        None => "Secret headers live".to_owned(),
    };
    let place = match (kept.place, keychain) {
        (KeyPlace::Keychain, KeychainReport::There { name }) => format!("in {name}"),
        (KeyPlace::Keychain, KeychainReport::Missing { why }) => {
            format!("in the system’s keychain, which cannot be asked now: {why}")
        }
        (KeyPlace::File, _) => format!("in {file}, which only you can read"),
        (KeyPlace::Memory, _) => "nowhere but here, until Holdfast is closed".to_owned(),
    };
    format!("{what} {place}. It is sent to {} alone.", kept.origin)
}
