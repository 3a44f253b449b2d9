//! The doctor: one click on a server, a line for every check, and the fix as a button where there is one.
//!
//! Invariant: a fix changes the server by the same op as its form would, and what was changed is examined anew. Nothing
//! is trusted before its fingerprint was shown.

use leptos::prelude::*;
use protocol::{
    Check, Examination, ExamineArgs, Examined, Finding, Fix, KeyChange, Op, Provider,
    ShownCertificate, Verdict, WakeArgs,
};

use crate::{
    components::{
        failure::FoldedDetail,
        icons::{Glyph, Icon},
        server_key::change_key,
        settings::refusal_words,
    },
    desk::use_desk,
    ipc,
};

/// Every look has a limit of its own, and a keychain may be asked before them all.
const EXAMINE_LIMIT_MS: u64 = 90_000;
/// Between two knocks at a server that is being woken.
const KNOCK_PAUSE_MS: u64 = 3_000;
/// A computer that was asleep is up by then, or does not wake.
const WAKING_MAX_MS: u64 = 180_000;
/// The packet may be lost, and goes out again.
const PACKET_EVERY: u64 = 5;

/// What an examination has come to.
#[derive(Clone, PartialEq)]
pub(crate) enum Visit {
    Not,
    Looking,
    Done(Box<Examination>),
    Lost(String),
}

/// Begins an examination.
pub(crate) fn examine(visit: RwSignal<Visit>, args: ExamineArgs) {
    visit.set(Visit::Looking);
    ipc::spawn(async move {
        let answer = ipc::within(EXAMINE_LIMIT_MS, ipc::examine(&args)).await;
        // Whoever stopped waiting does not ask any more.
        if visit.try_get_untracked() == Some(Visit::Looking) {
            visit.set(match answer {
                Ok(examination) => Visit::Done(Box::new(examination)),
                Err(error) => Visit::Lost(refusal_words(&error)),
            });
        }
    });
}

/// What a fix does that is not done by the doctor alone.
#[derive(Clone, Copy)]
pub(crate) struct Remedies {
    /// Puts a changed server where it belongs: into the settings, or into the form it is being typed in.
    pub(crate) change: Callback<Provider>,
    /// Shows the field for a key.
    pub(crate) enter_key: Callback<()>,
    /// Whether the server is in the settings.
    pub(crate) is_known: bool,
}

/// Every finding.
#[component]
pub(crate) fn Findings(
    visit: RwSignal<Visit>,
    again: Callback<()>,
    remedies: Remedies,
) -> impl IntoView {
    let shown = move || {
        match visit.get() {
        Visit::Not => ().into_any(),
        Visit::Looking => view! {
            <p class="hint doctor-busy">
                "Looking at it from every side… "
                <button type="button" class="button button-quiet" on:click=move |_| visit.set(Visit::Not)>
                    "Cancel"
                </button>
            </p>
        }
        .into_any(),
        Visit::Lost(words) => view! { <p class="alert">{words}</p> }.into_any(),
        Visit::Done(examination) => {
            let verdict = if examination.is_well() {
                "Everything is as it should be."
            } else {
                "This is what keeps it from being used:"
            };
            let Examination { server, findings } = *examination;
            // What is wrong stands first; the rest is there for whoever wants to know.
            let (bad, rest): (Vec<Finding>, Vec<Finding>) = findings
                .into_iter()
                .partition(|finding| finding.verdict == Verdict::Bad);
            let is_well = bad.is_empty();
            let of_server = server.clone();
            let list = move |findings: Vec<Finding>| {
                findings
                    .into_iter()
                    .map(|finding| {
                        view! { <OneFinding finding server=of_server.clone() visit again remedies /> }
                    })
                    .collect_view()
            };
            view! {
                <p class="doctor-verdict" data-testid="doctor-verdict">{verdict}</p>
                <ul class="findings">{list(bad)}</ul>
                <details class="doctor-rest" open=is_well>
                    <summary>{if is_well { "What was checked" } else { "What else was checked" }}</summary>
                    <ul class="findings">{list(rest)}</ul>
                </details>
            }
            .into_any()
        }
    }
    };
    view! {
        <div class="doctor" role="status" data-testid="doctor">
            {shown}
        </div>
    }
    .into_any()
}

#[component]
fn OneFinding(
    finding: Finding,
    server: Provider,
    visit: RwSignal<Visit>,
    again: Callback<()>,
    remedies: Remedies,
) -> impl IntoView {
    let Finding {
        check,
        verdict,
        message,
        detail,
        fix,
    } = finding;
    let (icon, word, class) = match verdict {
        Verdict::Good => (Icon::Check, "good", "finding is-good"),
        Verdict::Note => (Icon::Info, "note", "finding is-note"),
        Verdict::Bad => (Icon::Warning, "wrong", "finding is-bad"),
    };
    view! {
        <li class=class data-testid=format!("finding-{}", check.words().to_lowercase())>
            <Glyph icon=icon />
            <div class="finding-words">
                <p>
                    <strong>{check.words()}</strong>
                    <span class="offscreen">{format!(" ({word})")}</span>
                    " · "
                    {message}
                </p>
                {detail.map(|detail| view! { <FoldedDetail detail /> })}
                {fix.map(|fix| view! { <FixButton fix server check visit again remedies /> })}
            </div>
        </li>
    }
    .into_any()
}

#[component]
fn FixButton(
    fix: Fix,
    server: Provider,
    check: Check,
    visit: RwSignal<Visit>,
    again: Callback<()>,
    remedies: Remedies,
) -> impl IntoView {
    match fix {
        Fix::Change { provider } => {
            let words = change_words(check, &server, &provider);
            view! {
                <button
                    type="button"
                    class="button"
                    data-testid="doctor-fix"
                    on:click=move |_| remedies.change.run((*provider).clone())
                >
                    {words}
                </button>
            }
            .into_any()
        }
        Fix::Trust { certificate } => {
            view! { <TrustIt certificate=*certificate server remedies /> }.into_any()
        }
        Fix::EnterKey => view! {
            <button
                type="button"
                class="button"
                data-testid="doctor-key"
                on:click=move |_| remedies.enter_key.run(())
            >
                "Enter a key"
            </button>
        }
        .into_any(),
        Fix::CarryKey => {
            let words = RwSignal::new(None::<String>);
            let carry = move |_| {
                ipc::spawn(async move {
                    match change_key(server.id, KeyChange::Carry).await {
                        Ok(_) => {
                            again.try_run(());
                        }
                        Err(error) => {
                            words.try_set(Some(refusal_words(&error)));
                        }
                    }
                });
            };
            view! {
                <button type="button" class="button" data-testid="doctor-carry" on:click=carry>
                    "The key is for this address too"
                </button>
                {move || words.get().map(|words| view! { <p class="alert" role="alert">{words}</p> })}
            }
            .into_any()
        }
        Fix::ChooseModel { models } => view! {
            <p class="hint">{format!("It offers {}.", few(&models))}</p>
        }
        .into_any(),
        Fix::Wake { .. } if remedies.is_known => view! { <WakeIt server visit again /> }.into_any(),
        // Once it is in the settings.
        Fix::Wake { .. } => ().into_any(),
    }
}

fn few(models: &[String]) -> String {
    const SHOWN: usize = 6;
    let names: Vec<&str> = models.iter().take(SHOWN).map(String::as_str).collect();
    let more = models.len().saturating_sub(names.len());
    match more {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

fn change_words(check: Check, before: &Provider, after: &Provider) -> String {
    match check {
        Check::Language => "Speak to it as Ollama".to_owned(),
        Check::Proxy => "Go past the proxy".to_owned(),
        Check::Address
        | Check::Name
        | Check::Connection
        | Check::Certificate
        | Check::Server
        | Check::Key
        | Check::Models
        | Check::Model
        | Check::Context => {
            if before.base_url == after.base_url {
                "Change it".to_owned()
            } else {
                format!("Use {}", after.base_url)
            }
        }
    }
}

/// A certificate that is shown before it is trusted.
#[component]
fn TrustIt(certificate: ShownCertificate, server: Provider, remedies: Remedies) -> impl IntoView {
    let sure = RwSignal::new(false);
    let day = |at: Option<protocol::Timestamp>| {
        at.map_or_else(
            || "not told".to_owned(),
            |at| at.rfc3339().chars().take(10).collect(),
        )
    };
    let or_none = |text: &str| {
        if text.is_empty() {
            "nobody by name".to_owned()
        } else {
            text.to_owned()
        }
    };
    let lines = [
        ("For", or_none(&certificate.names.join(", "))),
        ("Calls itself", or_none(&certificate.subject)),
        ("Vouched for by", or_none(&certificate.issuer)),
        ("Valid from", day(certificate.not_before)),
        ("Valid until", day(certificate.not_after)),
    ];
    let trusted = certificate.trusted();
    let endpoint = certificate.endpoint.clone();
    let trust = move |_| {
        let mut provider = server.clone();
        provider.connection.trusts = Some(trusted.clone());
        remedies.change.run(provider);
    };
    view! {
        <div class="certificate" data-testid="certificate">
            <dl class="certificate-facts">
                {lines
                    .into_iter()
                    .map(|(what, value)| {
                        view! {
                            <div>
                                <dt>{what}</dt>
                                <dd>{value}</dd>
                            </div>
                        }
                    })
                    .collect_view()}
                <div>
                    <dt>"SHA-256"</dt>
                    <dd>
                        <code data-testid="fingerprint">{certificate.sha256.in_pairs()}</code>
                    </dd>
                </div>
            </dl>
            <label class="form-check">
                <input type="checkbox" data-testid="fingerprint-compared" bind:checked=sure />
                "I compared the SHA-256 with what the server itself shows"
            </label>
            <button
                type="button"
                class="button"
                data-testid="trust"
                disabled=move || !sure.get()
                on:click=trust
            >
                {format!("Trust it at {endpoint}, and nowhere else")}
            </button>
        </div>
    }
    .into_any()
}

/// Wakes a server, and waits for it.
#[component]
fn WakeIt(server: Provider, visit: RwSignal<Visit>, again: Callback<()>) -> impl IntoView {
    let since = RwSignal::new(None::<u64>);
    let seconds = RwSignal::new(0_u64);
    let words = RwSignal::new(None::<String>);
    let id = server.id;
    let wake = move |_| {
        let begun = ipc::now_ms();
        since.set(Some(begun));
        words.set(None);
        ipc::spawn(async move {
            let mut knocks = 0_u64;
            // Cancelled, or gone with its page, it knocks no more.
            while since.try_get_untracked() == Some(Some(begun)) {
                let args = WakeArgs {
                    provider: id,
                    send: knocks.is_multiple_of(PACKET_EVERY),
                };
                knocks = knocks.saturating_add(1);
                match ipc::within(EXAMINE_LIMIT_MS, ipc::wake(&args)).await {
                    Ok(report) if report.answers => {
                        since.try_set(None);
                        if visit.try_get_untracked().is_some() {
                            again.try_run(());
                        }
                        return;
                    }
                    Ok(_) => {}
                    Err(error) => {
                        since.try_set(None);
                        words.try_set(Some(refusal_words(&error)));
                        return;
                    }
                }
                let elapsed = ipc::now_ms().saturating_sub(begun);
                seconds.try_set(elapsed / 1_000);
                if elapsed >= WAKING_MAX_MS {
                    since.try_set(None);
                    let said = "It did not wake. Is waking by network switched on there, and is this the right card?";
                    words.try_set(Some(said.to_owned()));
                    return;
                }
                ipc::sleep(KNOCK_PAUSE_MS).await;
            }
        });
    };
    view! {
        {move || {
            if since.get().is_some() {
                view! {
                    <p class="hint" data-testid="waking">
                        {move || format!("Waking it… {} s ", seconds.get())}
                        <button
                            type="button"
                            class="button button-quiet"
                            on:click=move |_| since.set(None)
                        >
                            "Cancel"
                        </button>
                    </p>
                }
                    .into_any()
            } else {
                view! {
                    <button type="button" class="button" data-testid="wake" on:click=wake>
                        "Wake it"
                    </button>
                }
                    .into_any()
            }
        }}
        {move || words.get().map(|words| view! { <p class="alert" role="alert">{words}</p> })}
    }
    .into_any()
}

/// The doctor of a server in the settings.
#[component]
pub(crate) fn KnownServer(
    provider: Provider,
    visit: RwSignal<Visit>,
    enter_key: Callback<()>,
) -> impl IntoView {
    let desk = use_desk();
    let id = provider.id;
    let again = Callback::new(move |()| examine(visit, known(desk.model_for(id), id)));
    let words = RwSignal::new(None::<String>);
    let change = Callback::new(move |provider: Provider| {
        ipc::spawn(async move {
            // Taken, the row is another one, which is examined when it is drawn.
            desk.examined_next.try_set(Some(provider.id));
            if let Err(error) = desk.submit(Op::ChangeProvider { provider }).await {
                desk.examined_next.try_set(None);
                words.try_set(Some(refusal_words(&error)));
            }
        });
    });
    let remedies = Remedies {
        change,
        enter_key,
        is_known: true,
    };
    view! {
        <Findings visit again remedies />
        {move || words.get().map(|words| view! { <p class="alert" role="alert">{words}</p> })}
    }
    .into_any()
}

/// The question for a server of the settings.
pub(crate) fn known(model: Option<String>, id: protocol::ProviderId) -> ExamineArgs {
    ExamineArgs {
        server: Examined::Known { id },
        model,
    }
}
