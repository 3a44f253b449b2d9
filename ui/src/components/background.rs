//! How Holdfast behaves when nobody looks: what closing the last window does, the tray, and notifications.
//!
//! Every change is saved at once, and shown as it was if it could not be kept.

use leptos::prelude::*;
use protocol::{DesktopChoices, OnClose};

use crate::{desk::use_desk, ipc};

/// A small file; a disk that spins up takes seconds.
const LIMIT_MS: u64 = 15_000;

/// The choices.
#[component]
pub(crate) fn Background() -> impl IntoView {
    let chosen = RwSignal::new(DesktopChoices::default());
    let known = RwSignal::new(false);
    ipc::spawn(async move {
        // Without an answer there is nothing to choose from, and nothing is shown.
        if let Ok(now) = ipc::within(LIMIT_MS, ipc::desktop_choices()).await {
            chosen.try_set(now);
            known.try_set(true);
        }
    });
    view! {
        {move || known.get().then(|| view! { <Choices chosen /> })}
    }
    .into_any()
}

#[component]
fn Choices(chosen: RwSignal<DesktopChoices>) -> impl IntoView {
    let desk = use_desk();
    let choose = move |changed: DesktopChoices| {
        let before = chosen.get_untracked();
        chosen.set(changed);
        ipc::spawn(async move {
            if let Err(error) = ipc::within(LIMIT_MS, ipc::choose_desktop(&changed)).await {
                desk.tell(&error);
                chosen.try_set(before);
            }
        });
    };
    let option = move |what: OnClose, words: &'static str| {
        view! {
            <option value=key(what) prop:selected=move || chosen.get().on_close == what>
                {words}
            </option>
        }
    };
    view! {
        <label class="form-field">
            <span class="label">"Closing the last window while something runs"</span>
            <select
                class="field"
                data-testid="on-close"
                on:change=move |event| {
                    let value = event_target_value(&event);
                    let wanted = [OnClose::Ask, OnClose::Quit];
                    choose(DesktopChoices {
                        on_close: wanted.into_iter().find(|what| key(*what) == value).unwrap_or_default(),
                        ..chosen.get_untracked()
                    });
                }
            >
                {option(OnClose::KeepWorking, "Keep working until it ends")}
                {option(OnClose::Ask, "Ask each time")}
                {option(OnClose::Quit, "Quit, and interrupt it")}
            </select>
            <span class="hint">
                "Meanwhile it is in the tray. On a desktop without one, starting Holdfast again brings the window back."
            </span>
        </label>
        <label class="form-check">
            <input
                type="checkbox"
                data-testid="stay-when-idle"
                prop:checked=move || chosen.get().stay_when_idle
                on:change=move |_| {
                    let now = chosen.get_untracked();
                    choose(DesktopChoices { stay_when_idle: !now.stay_when_idle, ..now });
                }
            />
            "Stay in the tray when nothing runs"
        </label>
        <label class="form-check">
            <input
                type="checkbox"
                data-testid="notify"
                prop:checked=move || chosen.get().notify
                on:change=move |_| {
                    let now = chosen.get_untracked();
                    choose(DesktopChoices { notify: !now.notify, ..now });
                }
            />
            "Notify me of an answer that ends, or asks something, while I look elsewhere"
        </label>
    }
    .into_any()
}

/// A choice's name in the list.
const fn key(what: OnClose) -> &'static str {
    match what {
        OnClose::KeepWorking => "keep",
        OnClose::Ask => "ask",
        OnClose::Quit => "quit",
    }
}
