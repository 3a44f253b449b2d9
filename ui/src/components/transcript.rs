//! The transcript: the turns of the open session, and the view onto them.
//!
//! The view follows the text only while the reader is at its end. Going up by any means lets go of it, coming back to
//! the end takes hold again; nothing else moves it. Older turns appear above without moving what is read.

use std::{cell::Cell, rc::Rc};

use leptos::{ev, html, prelude::*};
use protocol::{Origin, Phase, Status, TurnId};
use transcript::{LinkState, words};

use crate::{
    components::{
        approval::AtEnd,
        icons::{Glyph, Icon},
        turn::Turn,
    },
    desk::{sentence, use_desk},
    ipc::{self, SizeWatch},
    pane::Pane,
};

/// This near to the end counts as being there: a fraction of a line.
const AT_END_PX: i32 = 12;
/// Older turns are asked for before the reader runs out of text: about a screen.
const NEAR_TOP_PX: i32 = 800;

/// What is shown of a session.
#[component]
pub(crate) fn Transcript(pane: Pane) -> impl IntoView {
    let desk = use_desk();
    let scroller = NodeRef::<html::Section>::new();
    let content = NodeRef::<html::Div>::new();
    // Whether the view follows the end of the text.
    let follows = RwSignal::new(true);
    provide_context(AtEnd(follows));
    let pressed = Rc::new(Cell::new(false));
    let last_top = Rc::new(Cell::new(0));
    let loading = RwSignal::new(false);

    let to_end = move || {
        if let Some(view) = scroller.get_untracked() {
            view.set_scroll_top(view.scroll_height());
        }
    };
    let load_older = move || {
        let wanted = scroller
            .get_untracked()
            .is_some_and(|view| view.scroll_top() < NEAR_TOP_PX);
        let possible = pane.more_before.get_untracked()
            && pane.link_state.get_untracked() == LinkState::Live
            && !loading.get_untracked();
        if !(wanted && possible) {
            return;
        }
        loading.set(true);
        ipc::spawn(async move {
            let stood = Rc::new(Cell::new((0, 0)));
            let noted = Rc::clone(&stood);
            let came = pane
                .load_older(move || {
                    if let Some(view) = scroller.try_get_untracked().flatten() {
                        noted.set((view.scroll_height(), view.scroll_top()));
                    }
                })
                .await;
            if came {
                ipc::next_frame_or(100).await;
                // What is read stays where it is; the new turns are above it.
                if let Some(view) = scroller.try_get_untracked().flatten() {
                    let (height, top) = stood.get();
                    view.set_scroll_top(top + view.scroll_height() - height);
                }
            }
            loading.try_set(false);
        });
    };

    // What changes the height of the text or of the view is followed by the view in the same frame.
    let watches = StoredValue::new_local(Vec::<SizeWatch>::new());
    let holds = Rc::clone(&pressed);
    let resized = move || {
        if follows.try_get_untracked() == Some(true) && !holds.get() {
            to_end();
        }
        load_older();
    };
    Effect::new(move |_| {
        if let (Some(view), Some(text)) = (scroller.get(), content.get()) {
            let seen = [
                SizeWatch::new(&view, resized.clone()),
                SizeWatch::new(&text, resized.clone()),
            ];
            watches.set_value(seen.into_iter().flatten().collect());
        }
    });
    // Who sends something wants to see what becomes of it.
    Effect::new(move |before: Option<u64>| {
        let sent = desk.sent.get();
        if before.is_some_and(|before| before != sent) {
            follows.set(true);
            to_end();
        }
        sent
    });

    let on_scroll = {
        let last_top = Rc::clone(&last_top);
        move |_| {
            let Some(view) = scroller.get_untracked() else {
                return;
            };
            let top = view.scroll_top();
            let went_up = top < last_top.replace(top);
            let at_end = view.scroll_height() - top - view.client_height() <= AT_END_PX;
            if at_end != follows.get_untracked() && (at_end || went_up) {
                follows.set(at_end);
            }
            load_older();
        }
    };
    // Letting go at once, and not only when the scroll is reported: the next piece of text must not win the race.
    let let_go = move || {
        let scrollable = scroller
            .get_untracked()
            .is_some_and(|view| view.scroll_top() > 0);
        if scrollable && follows.get_untracked() {
            follows.set(false);
        }
    };
    let on_wheel = move |event: ev::WheelEvent| {
        if event.delta_y() < 0.0 {
            let_go();
        }
    };
    let on_keydown = move |event: ev::KeyboardEvent| match event.key().as_str() {
        "PageUp" | "ArrowUp" | "Home" => let_go(),
        " " if event.shift_key() => let_go(),
        _ => {}
    };
    let on_pointerdown = {
        let pressed = Rc::clone(&pressed);
        move |_| pressed.set(true)
    };
    let release = window_event_listener(ev::pointerup, {
        let pressed = Rc::clone(&pressed);
        move |_| {
            // Somebody who selected text is reading it.
            if pressed.replace(false) && ipc::has_selection() {
                let_go();
            }
        }
    });
    on_cleanup(move || release.remove());

    // What stands on the screen of a window that somebody looks at, down to its end, has been seen.
    let seen = Memo::new(move |_| {
        let unread = desk.library.unread(pane.session)?;
        let shown = pane.last_ended()?;
        (follows.get() && desk.looked_at.get() && shown >= unread).then_some(shown)
    });
    Effect::new(move |_| {
        if let Some(turn) = seen.get() {
            desk.note_seen(pane.session, turn, seen);
        }
    });

    // The end of a turn is spoken once, when it comes while somebody is here.
    let ended = RwSignal::new(String::new());
    Effect::new(move |before: Option<Option<TurnId>>| {
        let running = pane.running.get();
        match (before.flatten(), running) {
            (Some(turn), None) => ended.set(pane.end_words(turn)),
            (_, Some(_)) => ended.set(String::new()),
            (None, None) => {}
        }
        running
    });

    let busy = move || {
        if pane.running.get().is_some() {
            "true"
        } else {
            "false"
        }
    };
    view! {
        <div class="transcript-frame">
            <section
                node_ref=scroller
                class="transcript"
                data-testid="transcript"
                role="log"
                aria-label="Conversation"
                aria-busy=busy
                tabindex="0"
                on:scroll=on_scroll
                on:wheel=on_wheel
                on:touchmove=move |_| let_go()
                on:keydown=on_keydown
                on:pointerdown=on_pointerdown
            >
                <div node_ref=content class="transcript-column">
                    {move || {
                        (pane.more_before.get())
                            .then(|| {
                                view! {
                                    <p class="transcript-older hint">
                                        {move || if loading.get() { "Loading earlier messages…" } else { "" }}
                                    </p>
                                }
                            })
                    }}
                    {move || {
                        (pane.loaded.get() && pane.origin.get() == Origin::Sample)
                            .then(|| {
                                view! {
                                    <p class="transcript-note hint">
                                        "A recorded conversation. Everything in it is on this computer, so it opens without any server."
                                    </p>
                                }
                            })
                    }}
                    <For each=move || pane.turns.get() key=|cell| cell.turn let:cell>
                        <Turn pane cell />
                    </For>
                    <LinkBar pane />
                </div>
            </section>
            <p class="offscreen" role="status">
                {ended}
            </p>
            <button
                type="button"
                class="jump button"
                class:is-shown=move || !follows.get()
                data-testid="jump-latest"
                tabindex=move || if follows.get() { "-1" } else { "0" }
                aria-hidden=move || if follows.get() { "true" } else { "false" }
                on:click=move |_| {
                    follows.set(true);
                    to_end();
                }
            >
                <Glyph icon=Icon::ArrowDown />
                {move || if pane.question().is_some() { "Waiting for you" } else { "Latest" }}
            </button>
        </div>
    }
    .into_any()
}

/// Where the link stands when that concerns the reader. The transcript stays as it is.
#[component]
fn LinkBar(pane: Pane) -> impl IntoView {
    let manual = Memo::new(move |_| pane.link_state.get() == LinkState::NeedsManual);
    let said = Memo::new(move |_| {
        pane.trouble
            .with(|trouble| words::link(pane.link_state.get(), trouble.as_ref()))
    });
    // Whatever else happens: a chat that is read and not saved says so.
    let unsaved = Memo::new(move |_| {
        pane.status.with(|status| match status {
            Some(Status {
                phase: phase @ Phase::NotSaving { .. },
                ..
            }) => words::phase(phase),
            Some(_) | None => None,
        })
    });
    view! {
        {move || {
            unsaved
                .get()
                .map(|said| view! { <p class="alert" role="alert">{sentence(&said)}</p> })
        }}
        <div class="link-bar" role="status">
            {move || {
                said.get()
                    .map(|said| {
                        view! {
                            <span class="hint">{sentence(&said)}</span>
                            {manual
                                .get()
                                .then(|| {
                                    view! {
                                        <button
                                            type="button"
                                            class="button"
                                            data-testid="reconnect"
                                            on:click=move |_| pane.reconnect()
                                        >
                                            "Reconnect"
                                        </button>
                                    }
                                })}
                        }
                    })
            }}
        </div>
    }
    .into_any()
}
