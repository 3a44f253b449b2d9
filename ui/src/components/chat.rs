//! The chat: the open session's transcript, or the beginning of a new one, above its composer.

use leptos::prelude::*;

use crate::{
    components::{composer::Composer, player::Player, transcript::Transcript, welcome::Welcome},
    desk::{SettingsPart, use_desk},
};

/// The main column, unless the settings are open.
#[component]
pub(crate) fn Chat() -> impl IntoView {
    let desk = use_desk();
    let session = Memo::new(move |_| desk.session.get());
    let newcomer = Memo::new(move |_| {
        desk.library.loaded.get()
            && desk.library.providers.with(Vec::is_empty)
            && desk.library.shelves.with(Vec::is_empty)
    });
    view! {
        <div class="chat">
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
                    (whose.is_some() || begins).then(|| view! { <Composer whose /> })
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
