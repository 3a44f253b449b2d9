//! How Holdfast is doing: what went wrong and was dealt with, counted by the engine and by this page.
//!
//! Nothing here is measured by asking: the engine counts where things happen, and says so on demand.

use leptos::{html, prelude::*};
use protocol::{Counted, HealthReport, Salvage};
use transcript::words;

use crate::{
    calendar,
    components::{
        icons::{Glyph, Icon},
        settings::refusal_words,
    },
    desk::{sentence, use_desk},
    follow, ipc,
};

/// Less room than this is said before it is none.
const LITTLE_ROOM_BYTES: u64 = 1_000_000_000;
const HEALTH_LIMIT_MS: u64 = 15_000;

/// The part of the settings.
#[component]
pub(crate) fn Health() -> impl IntoView {
    let desk = use_desk();
    let report = RwSignal::new(None::<HealthReport>);
    let words = RwSignal::new(None::<String>);
    let links = RwSignal::new(follow::counters());
    let ask = move || {
        links.set(follow::counters());
        ipc::spawn(async move {
            match ipc::within(HEALTH_LIMIT_MS, ipc::health()).await {
                Ok(heard) => {
                    words.try_set(None);
                    report.try_set(Some(heard));
                }
                Err(error) => {
                    words.try_set(Some(refusal_words(&error)));
                }
            }
        });
    };
    ask();
    view! {
        <div data-testid="health">
            <div aria-live="polite">
                {move || words.get().map(|words| view! { <p class="alert" role="alert">{words}</p> })}
                {move || report.get().map(|report| view! { <Report report /> })}
            </div>
            <details class="form-details">
                <summary>"What this window counted"</summary>
                <dl class="shortcuts">
                    {move || {
                        links
                            .with(words::links)
                            .map(|(said, count)| view! { <Count said count fault=false /> })
                            .collect_view()
                    }}
                </dl>
            </details>
            <div class="form-actions">
                <button
                    type="button"
                    class="button"
                    data-testid="health-copy"
                    disabled=move || report.with(Option::is_none)
                    on:click=move |_| {
                        if let Some(report) = report.get_untracked() {
                            desk.copy(as_text(&report, &links.get_untracked()));
                        }
                    }
                >
                    "Copy"
                </button>
                <button type="button" class="button" data-testid="health-again" on:click=move |_| ask()>
                    "Look again"
                </button>
            </div>
        </div>
    }
    .into_any()
}

#[component]
fn Report(report: HealthReport) -> impl IntoView {
    let little_room = report.free_bytes.filter(|free| *free < LITTLE_ROOM_BYTES);
    let faults = faults(&report);
    let verdict = match faults {
        0 => "Nothing went wrong in this run.".to_owned(),
        1 => "One thing went wrong in this run; it is marked below.".to_owned(),
        faults => format!("{faults} things went wrong in this run; they are marked below."),
    };
    view! {
        <p class="health-verdict" data-testid="health-verdict">
            <span class=if faults == 0 { "dot is-ok" } else { "dot is-failed" } aria-hidden="true"></span>
            {verdict}
        </p>
        {little_room
            .map(|free| {
                view! {
                    <p class="ask-warning" data-testid="little-room">
                        <Glyph icon=Icon::Warning />
                        <span>
                            {format!(
                                "Only {} are left on this disk. Chats cannot be saved when it is full.",
                                words::size(free),
                            )}
                        </span>
                    </p>
                }
            })}
        <dl class="shortcuts">
            {facts(&report)
                .into_iter()
                .map(|(said, value)| {
                    view! {
                        <div class="shortcut">
                            <dt>{said}</dt>
                            <dd class="health-value">{value}</dd>
                        </div>
                    }
                })
                .collect_view()}
            {report
                .counts
                .iter()
                .map(|(counted, count)| {
                    let said = words::counted(*counted);
                    view! { <Count said count=*count fault=counted.is_fault() /> }
                })
                .collect_view()}
        </dl>
        {report
            .salvages
            .iter()
            .map(|salvage| view! { <Salvaged salvage=salvage.clone() /> })
            .collect_view()}
    }
    .into_any()
}

/// One count: zeros are quiet, and a fault that happened says so in words too.
#[component]
fn Count(said: &'static str, count: u64, fault: bool) -> impl IntoView {
    let class = match (count, fault) {
        (0, _) => "shortcut is-zero",
        (_, true) => "shortcut is-fault",
        (_, false) => "shortcut",
    };
    view! {
        <div class=class>
            <dt>{sentence(said)}</dt>
            <dd class="health-value">
                {(fault && count > 0).then_some("worth a look · ")} {count}
            </dd>
        </div>
    }
    .into_any()
}

/// What was saved of a damaged log.
#[component]
fn Salvaged(salvage: Salvage) -> impl IntoView {
    view! {
        <p class="health-salvage">
            {sentence(&words::salvage(&salvage))} " (" {salvage.found} "). The damaged file is kept as "
            <code dir="ltr">{salvage.kept_as}</code> "."
        </p>
    }
    .into_any()
}

/// Above everything, until it was read: the log is not what it was.
#[component]
pub(crate) fn SalvageBanner() -> impl IntoView {
    const SEEN: &str = "salvage-seen";
    let desk = use_desk();
    let seen = RwSignal::new(ipc::preference(SEEN).unwrap_or_default());
    let newest = Memo::new(move |_| {
        let newest = desk
            .library
            .salvages
            .with(|salvages| salvages.last().cloned());
        newest.filter(|salvage| seen.with(|seen| *seen != salvage.kept_as))
    });
    let button = NodeRef::<html::Button>::new();
    move || {
        newest.get().map(|salvage| {
            let kept_as = salvage.kept_as.clone();
            view! {
                <div class="banner" role="status" data-testid="salvage">
                    <Glyph icon=Icon::Warning />
                    <div class="banner-words">
                        <p>"The chats on this disk were damaged. What could be read was saved."</p>
                        <Salvaged salvage />
                    </div>
                    <button
                        node_ref=button
                        type="button"
                        class="button"
                        data-testid="salvage-seen"
                        on:click=move |_| {
                            ipc::keep_preference(SEEN, &kept_as);
                            seen.set(kept_as.clone());
                            desk.take_attention();
                        }
                    >
                        "Understood"
                    </button>
                </div>
            }
        })
    }
}

fn faults(report: &HealthReport) -> usize {
    let faults = report.counts.iter();
    faults
        .filter(|(counted, count)| counted.is_fault() && *count > 0)
        .count()
}

fn facts(report: &HealthReport) -> Vec<(&'static str, String)> {
    let now = ipc::wall();
    let runs_ms = now.millis_since(report.started_at);
    let mut facts = vec![
        ("Runs for", calendar::duration(runs_ms)),
        ("Turns running now", report.running_turns.to_string()),
        ("Streams followed now", report.attachments.to_string()),
        ("Size of all chats", words::size(report.database_bytes)),
    ];
    facts.extend(
        report
            .free_bytes
            .map(|free| ("Room on this disk", words::size(free))),
    );
    facts.push((
        "Newest backup",
        report
            .last_backup
            .clone()
            .unwrap_or_else(|| "none yet".to_owned()),
    ));
    facts
}

/// The same for whoever helps: numbers and places, nothing of what was said.
fn as_text(report: &HealthReport, links: &transcript::Counters) -> String {
    let mut lines = vec![format!("Holdfast, run {}", report.boot)];
    lines.extend(
        facts(report)
            .into_iter()
            .map(|(said, value)| format!("{said}: {value}")),
    );
    let counted =
        |(counted, count): &(Counted, u64)| format!("{}: {count}", words::counted(*counted));
    lines.extend(report.counts.iter().map(counted));
    lines.push("This window:".to_owned());
    lines.extend(words::links(links).map(|(said, count)| format!("{said}: {count}")));
    lines.join("\n")
}
