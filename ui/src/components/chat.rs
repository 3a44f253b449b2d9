//! The chat: the open session's transcript, or the beginning of a new one, above its composer.

use leptos::{ev, prelude::*};
use protocol::ProviderId;

use crate::{
    components::{
        composer::Composer,
        local_models::{self, ModelTrouble},
        player::Player,
        transcript::Transcript,
        welcome::Welcome,
    },
    desk::{SettingsPart, use_desk},
    ipc,
};

/// For a frame of a page that may not be drawn just now.
const FOCUS_MS: u64 = 200;

/// The main column, unless the settings are open.
#[component]
pub(crate) fn Chat() -> impl IntoView {
    let desk = use_desk();
    let session = Memo::new(move |_| desk.session.get());
    let newcomer = Memo::new(move |_| {
        desk.library.loaded.get()
            && desk.library.providers.with(|providers| {
                // This computer is there from the first download on, and no place to begin before its end.
                providers.iter().all(|p| p.id == ProviderId::THIS_COMPUTER)
            })
            && desk.library.shelves.with(Vec::is_empty)
            && desk.model().is_none()
    });
    // Files may be dropped anywhere here. Without the first, the browser would open them in place of the page.
    let dropping = RwSignal::new(false);
    // Asked once more when the shell has said what was dropped; the chat may be gone by then.
    let takes = move || {
        desk.player.with_untracked(Option::is_none) && newcomer.try_get_untracked() != Some(true)
    };
    let on_drag = move |event: ev::DragEvent| {
        if ipc::drags_files(&event) {
            event.prevent_default();
            dropping.set(takes());
        }
    };
    let on_drop = move |event: ev::DragEvent| {
        dropping.set(false);
        if !ipc::drags_files(&event) {
            return;
        }
        event.prevent_default();
        if let Some(link) = ipc::dropped_link(&event) {
            if takes() {
                desk.take_attention();
                ipc::spawn(async move {
                    // By then the composer has the focus.
                    ipc::next_frame_or(FOCUS_MS).await;
                    ipc::type_at_caret(&link);
                });
            }
            return;
        }
        let whose = session.get_untracked();
        local_models::take_dropped(desk, &event, move |files| {
            if takes() {
                desk.images.add(whose, files);
                desk.take_attention();
            }
        });
    };
    view! {
        <div
            class="chat"
            class:is-dropping=dropping
            on:dragenter=on_drag
            on:dragover=on_drag
            on:dragleave=move |_| dropping.set(false)
            on:drop=on_drop
        >
            // It stays as it is beneath a replay, and out of reach.
            <div class="chat-now" inert=move || desk.player.get().is_some()>
                {move || match session.get() {
                    // Read once per session: the pane is set together with it.
                    Some(_) => {
                        desk.pane
                            .get_untracked()
                            .map(|pane| view! { <Transcript pane /> })
                            .into_any()
                    }
                    None if newcomer.get() => view! { <Welcome /> }.into_any(),
                    None => view! { <Beginning /> }.into_any(),
                }}
                {move || {
                    let whose = session.get();
                    let begins = desk.library.loaded.get() && !newcomer.get();
                    (whose.is_some() || begins)
                        .then(|| {
                            view! {
                                <ModelTrouble />
                                <Composer whose />
                            }
                        })
                }}
            </div>
            {move || desk.player.get().map(|replay| view! { <Player replay /> })}
        </div>
    }
    .into_any()
}

/// Before the first message: one sentence.
#[component]
fn Beginning() -> impl IntoView {
    let desk = use_desk();
    let without_server =
        move || desk.library.loaded.get() && desk.library.providers.with(Vec::is_empty);
    view! {
        <div class="beginning">
            {move || {
                if without_server() {
                    view! {
                        <p class="beginning-words">"No model server is set up."</p>
                        <button
                            type="button"
                            class="button button-primary"
                            on:click=move |_| {
                                desk.open_settings(SettingsPart::Servers);
                            }
                        >
                            "Add a server"
                        </button>
                    }
                        .into_any()
                } else if desk.library.loaded.get() {
                    view! { <p class="beginning-words">"What is on your mind?"</p> }.into_any()
                } else {
                    ().into_any()
                }
            }}
        </div>
    }
    .into_any()
}
