//! Where the time of a turn went: a table whose last column is the chart, read from the log on demand.

use leptos::prelude::*;
use protocol::{AttemptState, AttemptView, SessionId, TurnId};
use transcript::{
    numbers,
    waterfall::{Part, Segment, Waterfall},
    words,
};

use crate::{
    components::player,
    desk::{SettingsPart, sentence, use_desk},
    ipc,
};

/// The times of one turn, below its line.
#[component]
pub(crate) fn Times(session: SessionId, turn: TurnId, attempts: Vec<AttemptView>) -> impl IntoView {
    let desk = use_desk();
    let waterfall = RwSignal::new(None::<Result<Waterfall, String>>);
    ipc::spawn(async move {
        let read = load(session, turn).await;
        waterfall.try_set(Some(read));
    });
    view! {
        <section class="times" data-testid="times" aria-label="Where the time of this answer went">
            {move || match waterfall.get() {
                None => view! { <p class="hint" role="status">"Reading the log…"</p> }.into_any(),
                Some(Err(words)) => view! { <p class="alert" role="alert">{sentence(&words)}</p> }.into_any(),
                Some(Ok(waterfall)) => view! { <Falls waterfall /> }.into_any(),
            }}
            <ul class="times-requests">
                {attempts.iter().filter_map(request).collect_view()}
            </ul>
            <button
                type="button"
                class="button button-quiet"
                data-testid="open-usage"
                on:click=move |_| desk.open_settings(SettingsPart::Usage)
            >
                "Usage of all models"
            </button>
        </section>
    }
    .into_any()
}

async fn load(session: SessionId, turn: TurnId) -> Result<Waterfall, String> {
    let recording = player::recorded(session, turn).await?;
    Ok(Waterfall::of(recording.events(), Some(ipc::wall())))
}

/// The numbers of one request.
fn request(attempt: &AttemptView) -> Option<impl IntoView + use<>> {
    let who = match attempt.purpose.is_answer() {
        true => attempt.model.model.clone(),
        false => format!("{} (summary)", attempt.model.model),
    };
    let said = match &attempt.state {
        AttemptState::Ended { .. } => numbers::details(attempt).join(" · "),
        AttemptState::Failed { failure, .. } => format!("failed: {}", failure.message),
        AttemptState::Open => return None,
    };
    let said = match said.is_empty() {
        true => "the server gave no numbers".to_owned(),
        false => said,
    };
    Some(view! { <li class="hint">{format!("{who}: {said}")}</li> })
}

#[component]
fn Falls(waterfall: Waterfall) -> impl IntoView {
    let total_ms = waterfall.total_ms;
    let sums: Vec<String> = waterfall
        .sums()
        .into_iter()
        .map(|(part, ms)| format!("{} {}", part.words(), words::took(ms)))
        .collect();
    view! {
        <table class="numbers times-table">
            <caption>
                {format!("{} in all: {}", words::took(total_ms), sums.join(", "))}
            </caption>
            <thead>
                <tr>
                    <th scope="col">"What"</th>
                    <th scope="col" class="is-number">"After"</th>
                    <th scope="col" class="is-number">"Took"</th>
                    <th scope="col" class="times-chart" aria-hidden="true"></th>
                </tr>
            </thead>
            <tbody>
                {waterfall
                    .segments
                    .iter()
                    .map(|segment| row(segment, total_ms))
                    .collect_view()}
            </tbody>
        </table>
    }
    .into_any()
}

fn row(segment: &Segment, total_ms: u64) -> impl IntoView + use<> {
    let percent = |ms: u64| ms as f64 * 100.0 / total_ms.max(1) as f64;
    let begins = format!("{:.2}%", percent(segment.from_ms).min(99.0));
    let length = format!("{:.2}%", percent(segment.ms));
    let class = match segment.part {
        Part::Decode => "times-bar is-writing",
        Part::Failed => "times-bar is-failed",
        Part::Ours | Part::Wait | Part::Sleep | Part::Asking => "times-bar is-idle",
        Part::Connect | Part::Queue | Part::Load | Part::Prompt | Part::FirstToken | Part::Tool => {
            "times-bar"
        }
    };
    view! {
        <tr>
            <th scope="row">{sentence_start(&segment.words())}</th>
            <td class="is-number">{words::took(segment.from_ms)}</td>
            <td class="is-number">{words::took(segment.ms)}</td>
            <td class="times-chart" aria-hidden="true">
                <span class=class style:margin-inline-start=begins style:inline-size=length></span>
            </td>
        </tr>
    }
}

/// With a capital letter, and no full stop: a row, not a sentence.
fn sentence_start(words: &str) -> String {
    let mut letters = words.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => String::new(),
    }
}
