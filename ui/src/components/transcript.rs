//! The transcript: the turns of the open session, and the view onto them.
//!
//! The view follows the text only while the reader is at its end. Going up by any means lets go of it, coming back to
//! the end takes hold again; nothing else moves it. Older turns appear above without moving what is read, and of a long
//! conversation only what is near the view is in the page.

mod hold;
mod room;
mod stand;

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
use stand::Stand;

/// Keeps the view where it is while what is below it changes, also at its end.
#[derive(Clone, Copy)]
pub(crate) struct Hold(pub(crate) Callback<()>);

/// What is shown of a session.
#[component]
pub(crate) fn Transcript(pane: Pane) -> impl IntoView {
    let desk = use_desk();
    let stand = Stand::at_end_of(pane);
    let content = NodeRef::<html::Div>::new();
    let follows = stand.follows;
    let loading = stand.loading;
    provide_context(AtEnd(follows));
    provide_context(Hold(Callback::new(move |()| follows.set(false))));

    // What changes the height of the text or of the view is answered in the same frame.
    let watches = StoredValue::new_local(Vec::<SizeWatch>::new());
    Effect::new(move |_| {
        if let (Some(view), Some(text)) = (stand.view.get(), content.get()) {
            let seen = [
                SizeWatch::new(&view, move || stand.settle()),
                SizeWatch::new(&text, move || stand.settle()),
            ];
            watches.set_value(seen.into_iter().flatten().collect());
        }
    });
    // Who sends something wants to see what becomes of it.
    Effect::new(move |before: Option<u64>| {
        let sent = desk.sent.get();
        if before.is_some_and(|before| before != sent) {
            stand.to_end();
        }
        sent
    });

    let on_wheel = move |event: ev::WheelEvent| {
        if event.delta_y() < 0.0 {
            stand.let_go();
        }
    };
    let on_keydown = move |event: ev::KeyboardEvent| {
        let key = event.key();
        match key.as_str() {
            "PageUp" | "ArrowUp" | "Home" => stand.let_go(),
            " " if event.shift_key() => stand.let_go(),
            _ => {}
        }
        let plain = !(event.ctrl_key() || event.alt_key() || event.meta_key() || event.shift_key());
        if plain && !ipc::is_text_focused() && stand.go(&key) {
            event.prevent_default();
        }
    };
    let release = window_event_listener(ev::pointerup, move |_| stand.release());
    on_cleanup(move || release.remove());

    // The versions of its turns change when one is begun in the place of another one.
    let versions = Memo::new(move |_| {
        let begun = pane.turns.with(|turns| turns.last().copied());
        (pane.taken_out.get(), begun, pane.is_live())
    });
    Effect::new(move |_| {
        if let (Some(_), _, true) = versions.get() {
            pane.versions.load(pane.session);
        }
    });

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
                node_ref=stand.view
                class="transcript"
                data-testid="transcript"
                role="log"
                aria-label="Conversation"
                aria-busy=busy
                tabindex="0"
                on:scroll=move |_| stand.scrolled()
                on:wheel=on_wheel
                on:touchmove=move |_| stand.let_go()
                on:keydown=on_keydown
                on:pointerdown=move |_| stand.press()
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
                    <div node_ref=stand.list class="turns">
                        <For each=move || stand.rows.get() key=|row| row.turn let:row>
                            <Slot pane stand turn=row.turn />
                        </For>
                    </div>
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
                on:click=move |_| stand.to_end()
            >
                <Glyph icon=Icon::ArrowDown />
                {move || if pane.question().is_some() { "Waiting for you" } else { "Latest" }}
            </button>
        </div>
    }
    .into_any()
}

/// A turn in the page, below the room of those above it that are not.
#[component]
fn Slot(pane: Pane, stand: Stand, turn: TurnId) -> impl IntoView {
    let cell = pane.draw(turn);
    on_cleanup(move || pane.undraw(turn));
    let gap = Memo::new(move |_| {
        stand.rows.with(|rows| {
            let own = rows.iter().find(|row| row.turn == turn);
            own.map_or(0.0, |row| row.gap)
        })
    });
    cell.map(|cell| {
        view! {
            <div
                class="turn-slot"
                data-turn=turn.get().to_string()
                on:click=move |_| stand.touch(turn)
            >
                <div class="turn-gap" style:block-size=move || format!("{}px", gap.get())></div>
                <Turn pane cell />
            </div>
        }
        .into_any()
    })
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
