//! The usage page: what was asked of which model, by time and by model, with a chart and the numbers behind it.
//!
//! Invariant: unknown is not zero. What nobody counted is a dash; a sum that lacks something says "at least"; requests
//! that did not end well are counted apart.

use leptos::{ev, prelude::*};
use protocol::{Ledger, LedgerArgs, LedgerSums, Timestamp};
use transcript::{
    ledger::{self, BucketSums, Cost, ModelSums, Totals},
    words,
};

use crate::{
    calendar,
    components::{prices::PriceList, settings::refusal_words},
    desk::use_desk,
    ipc,
};

const LEDGER_LIMIT_MS: u64 = 15_000;
const UNKNOWN: &str = "–";

/// For how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Period {
    Week,
    Month,
    Year,
}

impl Period {
    const ALL: [Self; 3] = [Self::Week, Self::Month, Self::Year];

    const fn name(self) -> &'static str {
        match self {
            Self::Week => "7",
            Self::Month => "30",
            Self::Year => "365",
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Week => "7 days",
            Self::Month => "30 days",
            Self::Year => "52 weeks",
        }
    }

    /// Days in a bar, and how many bars.
    const fn bars(self) -> (i64, i64) {
        match self {
            Self::Week => (1, 7),
            Self::Month => (1, 30),
            Self::Year => (7, 52),
        }
    }

    /// Where each bar begins, and where today ends.
    fn bounds(self, now: Timestamp) -> Vec<Timestamp> {
        let (days, bars) = self.bars();
        let end = calendar::day(now) + 1;
        (0..=bars)
            .map(|nth| calendar::day_start(end - (bars - nth) * days))
            .collect()
    }
}

/// What was heard, and for which bounds.
#[derive(Clone)]
struct Heard {
    ledger: Ledger,
    bounds: Vec<Timestamp>,
    period: Period,
}

/// The part of the settings.
#[component]
pub(crate) fn Usage() -> impl IntoView {
    let desk = use_desk();
    let period = RwSignal::new(Period::Month);
    let heard = RwSignal::new(None::<Result<Heard, String>>);
    let chosen = period;
    let ask = move || {
        let period = chosen.get_untracked();
        let bounds = period.bounds(ipc::wall());
        ipc::spawn(async move {
            let args = LedgerArgs {
                bounds: bounds.clone(),
            };
            let answer = ipc::within(LEDGER_LIMIT_MS, ipc::ledger(&args)).await;
            let answer = answer
                .map(|ledger| Heard {
                    ledger,
                    bounds,
                    period,
                })
                .map_err(|error| refusal_words(&error));
            // An answer for a period that was left is no answer to the one that is shown.
            if chosen.try_get_untracked() == Some(period) {
                heard.try_set(Some(answer));
            }
        });
    };
    Effect::new(move |_| {
        // What anything costs is looked up anew when a price was entered.
        desk.library.prices.track();
        period.track();
        ask();
    });
    let choose = move |event: ev::Event| {
        let name = event_target_value(&event);
        if let Some(chosen) = Period::ALL.into_iter().find(|p| p.name() == name) {
            period.set(chosen);
        }
    };
    view! {
        <div class="usage" data-testid="usage">
            <div class="usage-row">
                <label>
                    <span class="label">"Period"</span>
                    <select class="field" data-testid="usage-period" on:change=choose>
                        {Period::ALL
                            .into_iter()
                            .map(|choice| {
                                view! {
                                    <option
                                        value=choice.name()
                                        selected=move || period.get() == choice
                                    >
                                        {choice.words()}
                                    </option>
                                }
                            })
                            .collect_view()}
                    </select>
                </label>
                <button type="button" class="button" data-testid="usage-again" on:click=move |_| ask()>
                    "Look again"
                </button>
            </div>
            <div aria-live="polite">
                {move || match heard.get() {
                    None => ().into_any(),
                    Some(Err(words)) => view! { <p class="alert" role="alert">{words}</p> }.into_any(),
                    Some(Ok(heard)) => view! { <Sums heard /> }.into_any(),
                }}
            </div>
        </div>
    }
    .into_any()
}

#[component]
fn Sums(heard: Heard) -> impl IntoView {
    let Heard {
        ledger,
        bounds,
        period,
    } = heard;
    let totals = Totals::of(&ledger, bounds.len().saturating_sub(1));
    let currency = ledger.prices.as_ref();
    let currency = currency.map_or_else(String::new, |prices| prices.currency.clone());
    let sums = totals.all.sums;
    if sums.attempts() == 0 {
        let said = format!(
            "Nothing was asked of any model in the last {}.",
            period.words()
        );
        return view! { <p class="usage-total" data-testid="usage-total">{said}</p> }.into_any();
    }
    let said = total_words(&totals.all, &currency);
    view! {
        <p class="usage-total" data-testid="usage-total">{said}</p>
        <Chart totals=totals.clone() bounds=bounds.clone() period />
        <div class="numbers-frame" tabindex="0" role="region" aria-label="By model">
            <table class="numbers" data-testid="usage-models">
                <caption>"By model"</caption>
                {head("Model")}
                <tbody>
                    {totals
                        .models
                        .iter()
                        .map(|model| model_row(model, &currency))
                        .collect_view()}
                </tbody>
            </table>
        </div>
        <details class="form-details">
            <summary data-testid="usage-days">{by_time(period)}</summary>
            <div class="numbers-frame" tabindex="0" role="region" aria-label=by_time(period)>
                <table class="numbers">
                    {head(if period == Period::Year { "Week from" } else { "Day" })}
                    <tbody>
                        {bounds
                            .iter()
                            .zip(&totals.buckets)
                            .rev()
                            .filter(|(_, bucket)| bucket.sums.attempts() > 0)
                            .map(|(begins, BucketSums { sums, cost })| {
                                row(calendar::date(*begins, ipc::wall()), None, sums, *cost, &currency)
                            })
                            .collect_view()}
                    </tbody>
                </table>
            </div>
        </details>
        <PriceList models=totals.models.clone() prices=ledger.prices.clone() />
    }
    .into_any()
}

const fn by_time(period: Period) -> &'static str {
    match period {
        Period::Week | Period::Month => "By day",
        Period::Year => "By week",
    }
}

/// All of it in a sentence or two.
fn total_words(all: &BucketSums, currency: &str) -> String {
    let sums = &all.sums;
    let tokens = |sum, known| ledger::tokens(sum, known, sums);
    let input = tokens(sums.prompt_tokens, sums.prompt_known);
    let output = tokens(sums.completion_tokens, sums.completion_known);
    let mut said = words::how_many(sums.attempts(), "request", "requests");
    if let Some(mishaps) = ledger::mishaps(sums) {
        said.push_str(&format!(" ({mishaps})"));
    }
    match (input, output) {
        (None, None) => said.push_str("; no server counted its tokens"),
        (input, output) => {
            let or_unknown = |tokens: Option<String>| {
                tokens.unwrap_or_else(|| "an unknown number of".to_owned())
            };
            said.push_str(&format!(
                ": {} tokens in, {} out",
                or_unknown(input),
                or_unknown(output)
            ));
        }
    }
    said.push('.');
    if let Some(cost) = all.cost.words(currency) {
        said.push_str(&format!(" At your prices: {cost}."));
    }
    said
}

/// Bars for the eye; the table below says the same.
#[component]
fn Chart(totals: Totals, bounds: Vec<Timestamp>, period: Period) -> impl IntoView {
    let now = ipc::wall();
    let highest = totals.buckets.iter().map(|b| ledger::weight(&b.sums)).max();
    let highest = highest.unwrap_or(0);
    let peak = totals
        .buckets
        .iter()
        .zip(&bounds)
        .max_by_key(|(bucket, _)| ledger::weight(&bucket.sums))
        .filter(|_| highest > 0)
        .map(|(_, begins)| {
            format!(
                "; most on {}: {}",
                calendar::date(*begins, now),
                words::tokens(highest)
            )
        });
    let label = format!(
        "Tokens in and out {}{}",
        match period {
            Period::Week | Period::Month => "for each day",
            Period::Year => "for each week",
        },
        peak.unwrap_or_default()
    );
    let last = bounds.len().saturating_sub(2);
    let ends = [bounds.first(), bounds.get(last)];
    view! {
        <figure class="usage-chart" data-testid="usage-chart">
            <figcaption class="hint">{label}</figcaption>
            <div class="usage-bars" aria-hidden="true">
                {totals
                    .buckets
                    .iter()
                    .zip(&bounds)
                    .map(|(bucket, begins)| bar(&bucket.sums, *begins, highest, now))
                    .collect_view()}
            </div>
            <div class="usage-axis hint" aria-hidden="true">
                {ends
                    .into_iter()
                    .flatten()
                    .map(|at| view! { <span>{calendar::date(*at, now)}</span> })
                    .collect_view()}
            </div>
        </figure>
    }
    .into_any()
}

fn bar(
    sums: &LedgerSums,
    begins: Timestamp,
    highest: u64,
    now: Timestamp,
) -> impl IntoView + use<> {
    let height = |tokens: u64| tokens as f64 * 100.0 / highest.max(1) as f64;
    let title = format!(
        "{}: {}, {} in, {} out",
        calendar::date(begins, now),
        words::how_many(sums.attempts(), "request", "requests"),
        words::count(sums.prompt_tokens),
        words::count(sums.completion_tokens)
    );
    // A day on which something was asked is never a day without a bar.
    let uncounted = (sums.attempts() > 0 && ledger::weight(sums) == 0)
        .then(|| view! { <span class="usage-uncounted"></span> });
    view! {
        <span class="usage-bar" title=title>
            {uncounted}
            <span class="usage-out" style:block-size=format!("{:.2}%", height(sums.completion_tokens))></span>
            <span class="usage-in" style:block-size=format!("{:.2}%", height(sums.prompt_tokens))></span>
        </span>
    }
}

fn head(first: &'static str) -> impl IntoView {
    let rest = ["Requests", "Tokens in", "Tokens out", "Speed", "Cost"];
    view! {
        <thead>
            <tr>
                <th scope="col">{first}</th>
                {rest
                    .into_iter()
                    .map(|name| view! { <th scope="col" class="is-number">{name}</th> })
                    .collect_view()}
                <th scope="col">"Not ended well"</th>
            </tr>
        </thead>
    }
}

fn model_row(model: &ModelSums, currency: &str) -> impl IntoView + use<> {
    let mut below = format!("on {}", model.provider_name);
    if model.summaries > 0 {
        below.push_str(&format!(
            ", {} for summaries",
            words::how_many(model.summaries, "request", "requests")
        ));
    }
    row(
        model.model.clone(),
        Some(below),
        &model.sums,
        model.cost,
        currency,
    )
}

fn row(
    name: String,
    below: Option<String>,
    sums: &LedgerSums,
    cost: Cost,
    currency: &str,
) -> impl IntoView + use<> {
    let tokens =
        |sum, known| ledger::tokens(sum, known, sums).unwrap_or_else(|| UNKNOWN.to_owned());
    let or_unknown = |said: Option<String>| said.unwrap_or_else(|| UNKNOWN.to_owned());
    let numbers = [
        words::count(sums.attempts()),
        tokens(sums.prompt_tokens, sums.prompt_known),
        tokens(sums.completion_tokens, sums.completion_known),
        or_unknown(ledger::rate(sums).map(words::rate)),
        or_unknown(cost.words(currency)),
    ];
    view! {
        <tr>
            <th scope="row">
                {name}
                {below.map(|below| view! { <span class="numbers-below">{below}</span> })}
            </th>
            {numbers
                .into_iter()
                .map(|number| view! { <td class="is-number">{number}</td> })
                .collect_view()}
            <td>{ledger::mishaps(sums).unwrap_or_default()}</td>
        </tr>
    }
}
