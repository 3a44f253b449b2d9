//! What a running turn is doing, in words, with the time it has been at it.
//!
//! The words are spoken when they change; the seconds are for the eye only, and tick only here and only while it runs.

use leptos::prelude::*;
use protocol::Phase;
use transcript::words;

use crate::{
    ipc,
    pane::{Pane, TurnCell},
};

const SECOND_MS: u64 = 1_000;

/// The one quiet line under a running answer.
#[component]
pub(crate) fn StatusLine(pane: Pane, cell: TurnCell) -> impl IntoView {
    let turn = cell.turn;
    let status = move || {
        pane.status.get().filter(|status| {
            // A status from before this turn, or from after it, says nothing about it.
            status.turn == Some(turn)
        })
    };
    let spoken = Memo::new(move |_| {
        let said = status().and_then(|status| words::phase(&status.phase));
        // It runs, by its events; what it is doing was not heard yet.
        said.unwrap_or_else(|| "working".to_owned())
    });
    let alert = Memo::new(move |_| {
        status().is_some_and(|status| matches!(status.phase, Phase::NotSaving { .. }))
    });
    // The reasoning block says the same, with its time, just above.
    let said_above = Memo::new(move |_| {
        status().is_some_and(|status| status.phase == Phase::Thinking) && cell.has_open_reasoning()
    });
    // What the whole line has beyond the spoken words: the time.
    let time = seconds(move || {
        let line = status().and_then(|status| words::status(&status, pane.now()));
        let line = line.unwrap_or_default();
        spoken.with(|spoken| {
            line.strip_prefix(spoken.as_str())
                .unwrap_or_default()
                .to_owned()
        })
    });
    view! {
        <p class="status" class:is-alert=alert data-testid="status">
            <span class="dot is-running" aria-hidden="true"></span>
            <span class="status-words" class:offscreen=said_above>
                <span role="status">{spoken}</span>
                <span aria-hidden="true">{time}</span>
            </span>
        </p>
    }
    .into_any()
}

/// `words`, said again every second for as long as somebody shows them.
pub(crate) fn seconds(words: impl Fn() -> String + Send + Sync + 'static) -> Signal<String> {
    let tick = RwSignal::new(0_u32);
    ipc::spawn(async move {
        loop {
            ipc::sleep(SECOND_MS).await;
            if tick.is_disposed() {
                return;
            }
            tick.update(|tick| *tick = tick.wrapping_add(1));
        }
    });
    let said = Memo::new(move |_| {
        tick.track();
        words()
    });
    said.into()
}
