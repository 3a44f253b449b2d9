//! How a server is reached, as it is being typed: authentication, headers, proxy, the trusted certificate, waking.
//!
//! Invariant: what is secret is not among these fields; a header that is marked as secret has its value entered where
//! the key is.

use leptos::prelude::*;
use protocol::{Auth, Connection, CustomHeader, MacAddress, ProxyChoice, TrustedCertificate};

use crate::components::icons::{Glyph, Icon};

/// The fields.
#[derive(Clone, Copy)]
pub(crate) struct ConnectionForm {
    auth: RwSignal<&'static str>,
    user: RwSignal<String>,
    headers: RwSignal<Vec<HeaderRow>>,
    proxy: RwSignal<&'static str>,
    proxy_url: RwSignal<String>,
    trusts: RwSignal<Option<TrustedCertificate>>,
    card: RwSignal<String>,
    next: RwSignal<u32>,
}

/// Shared, and nobody's own: a row outlives the view in which somebody asked for it.
#[derive(Clone, PartialEq)]
struct HeaderRow {
    number: u32,
    name: ArcRwSignal<String>,
    value: ArcRwSignal<String>,
    is_secret: ArcRwSignal<bool>,
}

impl ConnectionForm {
    pub(crate) fn new() -> Self {
        Self {
            auth: RwSignal::new("usual"),
            user: RwSignal::new(String::new()),
            headers: RwSignal::new(Vec::new()),
            proxy: RwSignal::new("system"),
            proxy_url: RwSignal::new(String::new()),
            trusts: RwSignal::new(None),
            card: RwSignal::new(String::new()),
            next: RwSignal::new(0),
        }
    }

    pub(crate) fn show(self, connection: &Connection) {
        let (auth, user) = match &connection.auth {
            Auth::Usual => ("usual", ""),
            Auth::Bearer => ("bearer", ""),
            Auth::ApiKey => ("api-key", ""),
            Auth::Basic { user } => ("basic", user.as_str()),
        };
        self.auth.try_set(auth);
        self.user.try_set(user.to_owned());
        let rows = connection.headers.iter().map(|header| {
            let row = self.row();
            row.name.set(header.name.clone());
            row.is_secret.set(header.value.is_none());
            row.value.set(header.value.clone().unwrap_or_default());
            row
        });
        let rows = rows.collect();
        self.headers.try_set(rows);
        let (proxy, url) = match &connection.proxy {
            ProxyChoice::System => ("system", ""),
            ProxyChoice::Direct => ("direct", ""),
            ProxyChoice::Proxy { url } => ("proxy", url.as_str()),
        };
        self.proxy.try_set(proxy);
        self.proxy_url.try_set(url.to_owned());
        self.trusts.try_set(connection.trusts.clone());
        let card = connection.wakes.map(|card| card.to_string());
        self.card.try_set(card.unwrap_or_default());
    }

    fn row(self) -> HeaderRow {
        let number = self.next.try_get_untracked().unwrap_or_default();
        self.next.try_set(number.wrapping_add(1));
        HeaderRow {
            number,
            name: ArcRwSignal::new(String::new()),
            value: ArcRwSignal::new(String::new()),
            is_secret: ArcRwSignal::new(false),
        }
    }

    /// As typed.
    ///
    /// # Errors
    /// Words about the field that cannot be used.
    pub(crate) fn filled(self) -> Result<Connection, String> {
        let text = |field: RwSignal<String>| field.get_untracked().trim().to_owned();
        let wakes = match text(self.card).as_str() {
            "" => None,
            typed => Some(MacAddress::parse(typed).ok_or_else(|| {
                "The address of a network card looks like 00:1b:63:84:45:e6".to_owned()
            })?),
        };
        let typed = |field: &ArcRwSignal<String>| field.get_untracked().trim().to_owned();
        let headers = self.headers.get_untracked().into_iter().map(|row| {
            let value = (!row.is_secret.get_untracked()).then(|| typed(&row.value));
            CustomHeader {
                name: typed(&row.name),
                value,
            }
        });
        let connection = Connection {
            auth: match self.auth.get_untracked() {
                "bearer" => Auth::Bearer,
                "api-key" => Auth::ApiKey,
                "basic" => Auth::Basic {
                    user: text(self.user),
                },
                _ => Auth::Usual,
            },
            // A row that nothing was typed into is none.
            headers: headers
                .filter(|h| !h.name.is_empty() || h.value.as_ref().is_some_and(|v| !v.is_empty()))
                .collect(),
            proxy: match self.proxy.get_untracked() {
                "direct" => ProxyChoice::Direct,
                "proxy" => ProxyChoice::Proxy {
                    url: text(self.proxy_url),
                },
                _ => ProxyChoice::System,
            },
            trusts: self.trusts.get_untracked(),
            wakes,
        };
        connection.validate().map_err(|invalid| invalid.message)?;
        Ok(connection)
    }
}

/// The fields, drawn.
#[component]
pub(crate) fn ConnectionFields(form: ConnectionForm) -> impl IntoView {
    view! {
        <div class="form-grid">
            <label class="form-field">
                <span class="label">"The key goes out as"</span>
                {chooser(
                    form.auth,
                    "auth",
                    &[
                        ("usual", "This kind of server has it"),
                        ("bearer", "Authorization: Bearer"),
                        ("api-key", "x-api-key"),
                        ("basic", "User name and password (Basic)"),
                    ],
                )}
            </label>
            <Show when=move || form.auth.get() == "basic">
                <label class="form-field">
                    <span class="label">"User name; the key is the password"</span>
                    <input
                        class="field"
                        type="text"
                        spellcheck="false"
                        autocomplete="off"
                        bind:value=form.user
                    />
                </label>
            </Show>
            <label class="form-field">
                <span class="label">"Reached through"</span>
                {chooser(
                    form.proxy,
                    "proxy",
                    &[
                        ("system", "The system’s proxy, if it is on the internet"),
                        ("direct", "No proxy"),
                        ("proxy", "This proxy"),
                    ],
                )}
            </label>
            <Show when=move || form.proxy.get() == "proxy">
                <label class="form-field">
                    <span class="label">"Proxy"</span>
                    <input
                        class="field"
                        type="text"
                        spellcheck="false"
                        placeholder="http://proxy.lan:3128, socks5h://…"
                        bind:value=form.proxy_url
                    />
                </label>
            </Show>
            <label class="form-field">
                <span class="label">"Network card, to wake it"</span>
                <input
                    class="field"
                    type="text"
                    spellcheck="false"
                    data-testid="card"
                    placeholder="00:1b:63:84:45:e6"
                    bind:value=form.card
                />
            </label>
        </div>
        {move || {
            form.trusts
                .get()
                .map(|trusted| {
                    view! {
                        <div class="trusted" data-testid="trusted">
                            <p>
                                "One certificate is trusted at " {trusted.endpoint}
                                ", and nowhere else. Its SHA-256 is "
                                <code>{trusted.sha256.in_pairs()}</code>
                            </p>
                            <button
                                type="button"
                                class="button"
                                on:click=move |_| form.trusts.set(None)
                            >
                                "Trust it no more"
                            </button>
                        </div>
                    }
                })
        }}
        <fieldset class="headers">
            <legend class="label">"Headers with every request"</legend>
            <For each=move || form.headers.get() key=|row| row.number let:row>
                <HeaderFields form row />
            </For>
            <button
                type="button"
                class="button button-quiet"
                data-testid="header-add"
                on:click=move |_| {
                    let row = form.row();
                    form.headers.update(|rows| rows.push(row));
                }
            >
                <Glyph icon=Icon::Plus />
                "Add a header"
            </button>
        </fieldset>
    }
    .into_any()
}

#[component]
fn HeaderFields(form: ConnectionForm, row: HeaderRow) -> impl IntoView {
    let number = row.number;
    let name = RwSignal::from(row.name);
    let value = RwSignal::from(row.value);
    let is_secret = RwSignal::from(row.is_secret);
    view! {
        <div class="header-row">
            <input
                class="field"
                type="text"
                data-testid="header-name"
                aria-label="Name of the header"
                placeholder="X-Name"
                spellcheck="false"
                bind:value=name
            />
            <Show
                when=move || is_secret.get()
                fallback=move || {
                    view! {
                        <input
                            class="field"
                            type="text"
                            data-testid="header-value"
                            aria-label="Value of the header"
                            placeholder="its value"
                            spellcheck="false"
                            bind:value=value
                        />
                    }
                }
            >
                <p class="hint header-secret">"Save, then enter it beside the key"</p>
            </Show>
            <label class="form-check">
                <input type="checkbox" bind:checked=is_secret />
                "Secret"
            </label>
            <button
                type="button"
                class="icon-button"
                aria-label="Remove this header"
                title="Remove"
                on:click=move |_| {
                    form.headers.update(|rows| rows.retain(|other| other.number != number));
                }
            >
                <Glyph icon=Icon::Bin />
            </button>
        </div>
    }
    .into_any()
}

fn chooser(
    chosen: RwSignal<&'static str>,
    testid: &'static str,
    list: &'static [(&'static str, &'static str)],
) -> impl IntoView {
    view! {
        <select
            class="field"
            data-testid=testid
            on:change=move |event| {
                let value = event_target_value(&event);
                let known = list.iter().find(|(name, _)| *name == value);
                chosen.set(known.map_or("", |(name, _)| name));
            }
        >
            {list
                .iter()
                .map(|(name, words)| {
                    view! {
                        <option value=*name prop:selected=move || chosen.get() == *name>
                            {*words}
                        </option>
                    }
                })
                .collect_view()}
        </select>
    }
}
