//! The bar below a turn that is shown again: where it is, and every way to move.

use leptos::{html, prelude::*};
use transcript::{
    player::{Mark, MarkKind, Pace, Waits},
    words,
};

use super::Showing;
use crate::{
    components::icons::{Glyph, Icon},
    desk::sentence,
};

/// More marks than this are no help on any slider: those that fall onto another are left out.
const MARKS_MAX: usize = 160;

/// Where one is, and every way to move.
#[component]
pub(super) fn Bar(showing: Showing) -> impl IntoView {
    let place = showing.place;
    let play = NodeRef::<html::Button>::new();
    play.on_load(|play| {
        // Focus is a courtesy.
        let _ = play.focus();
    });
    let plays = Memo::new(move |_| place.with(|place| place.plays));
    let pace = Memo::new(move |_| place.with(|place| place.pace));
    let exact = Memo::new(move |_| place.with(|place| place.waits == Waits::Exact));
    let position = Memo::new(move |_| place.with(|place| place.position));
    let events = Memo::new(move |_| place.with(|place| place.events));
    let at_start = Memo::new(move |_| position.get() <= 1);
    let at_end = Memo::new(move |_| position.get() >= events.get());
    let play_name = move || match (pace.get(), plays.get()) {
        (Pace::Step, _) => "Show the next event",
        (Pace::Recorded | Pace::Double | Pace::Tenfold, true) => "Pause",
        (Pace::Recorded | Pace::Double | Pace::Tenfold, false) => "Play",
    };
    view! {
        <div class="player-bar" data-testid="player-bar">
            <div class="player-line">
                <input
                    type="range"
                    class="player-slider"
                    data-testid="player-slider"
                    aria-label="Place in the replay"
                    aria-valuetext=move || place.with(|place| place.said.clone())
                    min="1"
                    max=move || events.get().to_string()
                    step="1"
                    prop:value=move || position.get().to_string()
                    style=(
                        "--played",
                        move || format!("{}", share(position.get(), events.get())),
                    )
                    on:input=move |event| {
                        if let Ok(position) = event_target_value(&event).parse() {
                            showing.seek(position);
                        }
                    }
                />
                <div class="player-marks" aria-hidden="true">
                    {move || {
                        let events = events.get();
                        spread(&showing.marks(), events)
                            .into_iter()
                            .map(|mark| {
                                view! {
                                    <span
                                        class=class(mark.kind)
                                        style=("--at", format!("{}", share(mark.position, events)))
                                    ></span>
                                }
                            })
                            .collect_view()
                    }}
                </div>
            </div>
            <p class="player-place">
                <span class="player-time" data-testid="player-time">
                    {move || {
                        place
                            .with(|place| {
                                format!(
                                    "{} / {}",
                                    words::elapsed(place.elapsed_ms),
                                    words::elapsed(place.total_ms),
                                )
                            })
                    }}
                </span>
                <span class="player-words" data-testid="player-words">
                    {move || place.with(|place| sentence(&place.event))}
                    {move || place.with(|place| wait_words(place.wait_ms, place.waits))}
                </span>
                <span class="player-count">
                    {move || place.with(|place| format!("{} of {}", place.position, place.events))}
                </span>
            </p>
            <div class="player-controls">
                <button
                    type="button"
                    class="icon-button"
                    data-testid="player-back"
                    aria-label="One event back"
                    title="One event back (←; Shift+← to the mark before)"
                    disabled=at_start
                    on:click=move |_| showing.back()
                >
                    <Glyph icon=Icon::StepBack />
                </button>
                <button
                    node_ref=play
                    type="button"
                    class="icon-button player-play"
                    data-testid="player-play"
                    aria-label=play_name
                    title=move || format!("{} (Space)", play_name())
                    on:click=move |_| showing.toggle()
                >
                    {move || {
                        let icon = if plays.get() { Icon::Pause } else { Icon::Play };
                        view! { <Glyph icon /> }
                    }}
                </button>
                <button
                    type="button"
                    class="icon-button"
                    data-testid="player-forward"
                    aria-label="One event on"
                    title="One event on (→; Shift+→ to the next mark)"
                    disabled=at_end
                    on:click=move |_| showing.forward()
                >
                    <Glyph icon=Icon::StepForward />
                </button>
                <div class="player-paces" role="group" aria-label="Pace">
                    {Pace::ALL
                        .into_iter()
                        .map(|own| {
                            let (label, name, testid) = spelled(own);
                            view! {
                                <button
                                    type="button"
                                    class="player-choice"
                                    class:is-chosen=move || pace.get() == own
                                    data-testid=testid
                                    aria-label=name
                                    title=name
                                    aria-pressed=move || {
                                        if pace.get() == own { "true" } else { "false" }
                                    }
                                    on:click=move |_| showing.set_pace(own)
                                >
                                    {label}
                                </button>
                            }
                        })
                        .collect_view()}
                </div>
                <button
                    type="button"
                    class="player-choice"
                    class:is-chosen=exact
                    data-testid="player-waits"
                    aria-pressed=move || if exact.get() { "true" } else { "false" }
                    title="Without it, a wait of more than 2 s is told and takes 2 s"
                    on:click=move |_| showing.toggle_waits()
                >
                    "Long waits in full"
                </button>
            </div>
        </div>
    }
    .into_any()
}

const fn spelled(pace: Pace) -> (&'static str, &'static str, &'static str) {
    match pace {
        Pace::Step => ("Step", "Event by event", "player-step"),
        Pace::Recorded => ("1×", "As fast as it happened", "player-1x"),
        Pace::Double => ("2×", "Twice as fast", "player-2x"),
        Pace::Tenfold => ("10×", "Ten times as fast", "player-10x"),
    }
}

/// What is said of a long wait beside the event.
fn wait_words(wait_ms: Option<u64>, waits: Waits) -> String {
    let Some(wait_ms) = wait_ms else {
        return String::new();
    };
    let waited = words::waited(wait_ms);
    match waits {
        Waits::Shortened => format!(" · {waited}, shortened here"),
        Waits::Exact => format!(" · {waited}"),
    }
}

/// Between the first event (0) and the last (1).
fn share(position: usize, events: usize) -> f64 {
    let last = events.saturating_sub(1).max(1);
    position.saturating_sub(1) as f64 / last as f64
}

/// Those that can be told apart; the end is one of them.
fn spread(marks: &[Mark], events: usize) -> Vec<Mark> {
    let mut shown: Vec<Mark> = Vec::new();
    let bucket = |mark: &Mark| (share(mark.position, events) * MARKS_MAX as f64).round() as usize;
    for mark in marks {
        match shown.last_mut() {
            Some(last) if bucket(last) == bucket(mark) => {
                if weight(mark.kind) > weight(last.kind) {
                    *last = *mark;
                }
            }
            Some(_) | None => shown.push(*mark),
        }
    }
    shown
}

/// What is looked for first.
const fn weight(kind: MarkKind) -> u8 {
    match kind {
        MarkKind::Reasoning | MarkKind::Text => 0,
        MarkKind::Message => 1,
        MarkKind::ToolCall | MarkKind::Answered | MarkKind::Compaction => 2,
        MarkKind::Approval | MarkKind::Retry | MarkKind::Failover | MarkKind::Failure => 3,
        MarkKind::End => 4,
    }
}

const fn class(kind: MarkKind) -> &'static str {
    match weight(kind) {
        0 => "player-mark",
        1 | 2 => "player-mark is-tall",
        _ => "player-mark is-tall is-strong",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_marks_that_fall_together_the_one_that_is_looked_for_is_shown() {
        let mark = |position, kind| Mark { position, kind };
        let marks = [
            mark(1, MarkKind::Message),
            mark(2, MarkKind::Text),
            mark(5_000, MarkKind::Text),
            mark(5_001, MarkKind::Approval),
            mark(10_000, MarkKind::End),
        ];
        assert_eq!(
            spread(&marks, 10_000),
            [
                mark(1, MarkKind::Message),
                mark(5_001, MarkKind::Approval),
                mark(10_000, MarkKind::End),
            ]
        );
        assert_eq!(spread(&marks[..2], 4), marks[..2]);
    }

    #[test]
    fn a_share_of_one_event_is_the_beginning() {
        assert_eq!(share(1, 1), 0.0);
        assert_eq!(share(1, 3), 0.0);
        assert_eq!(share(2, 3), 0.5);
        assert_eq!(share(3, 3), 1.0);
    }
}
