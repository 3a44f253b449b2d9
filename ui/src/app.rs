//! The page as a whole: says hello, then shows the desk; or says in words why it cannot.

use leptos::{ev, prelude::*};
use protocol::ErrorCode;
use transcript::words;

use crate::{
    components::{
        Glyph, Icon, approval,
        chat::Chat,
        health::SalvageBanner,
        picture::LargePicture,
        settings::Settings,
        sidebar::{Sidebar, chord, shown_title},
        toast::ToastCorner,
    },
    desk::{Desk, Overlay, Screen, SettingsPart, sentence, use_desk},
    follow::{self, Follower},
    ipc::{self, CallError},
};

/// How often hello is said to a shell that gives no answer.
const HELLO_TRIES: u32 = 3;
const HELLO_PAUSE_MS: u64 = 700;

/// Where the page stands.
#[derive(Clone, PartialEq, Eq)]
enum Stage {
    /// The engine may still be opening its database.
    Opening,
    Open,
    Refused(CallError),
}

/// The page.
#[component]
pub(crate) fn App() -> impl IntoView {
    let desk = Desk::new();
    provide_context(desk);
    let stage = RwSignal::new(Stage::Opening);
    let followers = StoredValue::new_local(Vec::<Follower>::new());
    ipc::spawn(async move {
        let mut answer = follow::hello().await;
        for _ in 1..HELLO_TRIES {
            if let Err(CallError::Lost(_)) = answer {
                ipc::sleep(HELLO_PAUSE_MS).await;
                answer = follow::hello().await;
            }
        }
        match answer {
            Ok(()) => {
                followers.update_value(|followers| followers.push(desk.begin()));
                stage.set(Stage::Open);
            }
            Err(error) => stage.set(Stage::Refused(error)),
        }
    });
    // Where one was, as soon as it is known what there is.
    Effect::new(move |done: Option<bool>| {
        let loaded = desk.library.loaded.get();
        let first = desk.wishes.first().filter(|_| loaded);
        match first {
            Some(first) if done != Some(true) => {
                desk.reopen(first);
                true
            }
            Some(_) | None => done == Some(true),
        }
    });
    let shortcuts = window_event_listener(ev::keydown, move |event| {
        if stage.get_untracked() == Stage::Open {
            on_key(desk, &event);
        }
    });
    on_cleanup(move || shortcuts.remove());
    move || match stage.get() {
        Stage::Opening => ().into_any(),
        Stage::Open => view! { <Window /> }.into_any(),
        Stage::Refused(error) => view! { <Refused error /> }.into_any(),
    }
}

#[component]
fn Window() -> impl IntoView {
    let desk = use_desk();
    Effect::new(move |_| desk.look_for_model());
    Effect::new(move |_| {
        desk.library.providers.track();
        desk.ask_preferred();
    });
    let drawer = Memo::new(move |_| desk.overlay.get() == Some(Overlay::Drawer));
    let title = Memo::new(move |_| match (desk.screen.get(), desk.pane.get()) {
        (Screen::Settings(_), _) | (Screen::Chat, None) => String::new(),
        (Screen::Chat, Some(pane)) if pane.loaded.get() => shown_title(&pane.title.get()),
        (Screen::Chat, Some(_)) => String::new(),
    });
    // Of any chat: whoever works in another window sees that this one waits.
    let asking = Memo::new(move |_| desk.library.is_any_asking());
    Effect::new(move |_| {
        let title = title.get();
        let name = if title.is_empty() {
            "Holdfast".to_owned()
        } else {
            format!("{title} – Holdfast")
        };
        ipc::set_title(&if asking.get() {
            format!("{} – {name}", sentence(words::WAITING_FOR_YOU))
        } else {
            name
        });
    });
    let covered = Memo::new(move |_| desk.overlay.with(Option::is_some));
    view! {
        <div
            class="app"
            class:is-folded=move || desk.folded.get()
            class:is-drawer=drawer
            class:is-covered=covered
        >
            <Sidebar />
            {move || {
                desk.overlay
                    .get()
                    .map(|overlay| {
                        let class = match overlay {
                            Overlay::Drawer => "veil is-dark",
                            Overlay::Models
                            | Overlay::Folder
                            | Overlay::Options
                            | Overlay::SessionMenu(_) => "veil",
                        };
                        view! { <div class=class on:click=move |_| desk.close_overlay()></div> }
                    })
            }}
            <main class="main">
                <SalvageBanner />
                <header class="bar">
                    <button
                        type="button"
                        class="icon-button bar-sidebar"
                        aria-label="Show the sidebar"
                        title=format!("Show the sidebar ({})", chord("B"))
                        on:click=move |_| desk.toggle_sidebar()
                    >
                        <Glyph icon=Icon::Sidebar />
                    </button>
                    <button
                        type="button"
                        class="icon-button bar-drawer"
                        aria-label="Show the chats"
                        title="Show the chats"
                        on:click=move |_| desk.overlay.set(Some(Overlay::Drawer))
                    >
                        <Glyph icon=Icon::Sidebar />
                    </button>
                    <h1 class="bar-title" dir="auto">
                        {title}
                    </h1>
                    <button
                        type="button"
                        class="icon-button bar-new"
                        aria-label="New chat"
                        title=format!("New chat ({})", chord("N"))
                        on:click=move |_| desk.open_new()
                    >
                        <Glyph icon=Icon::Plus />
                    </button>
                </header>
                {move || match desk.screen.get() {
                    Screen::Chat => view! { <Chat /> }.into_any(),
                    Screen::Settings(part) => view! { <Settings part /> }.into_any(),
                }}
            </main>
            <LargePicture />
            <ToastCorner toasts=desk.toasts />
        </div>
    }
    .into_any()
}

/// Why there is no window: in words, and with what to do.
#[component]
fn Refused(error: CallError) -> impl IntoView {
    let (title, said, remedy) = match error {
        CallError::Refused(report) => {
            let title = match report.code {
                ErrorCode::ProtocolMismatch => "This page is of another version",
                ErrorCode::StorageFailed => "Your chats cannot be opened",
                ErrorCode::TurnActive
                | ErrorCode::StaleHead
                | ErrorCode::AlreadyResolved { .. }
                | ErrorCode::OpIdConflict
                | ErrorCode::NotFound
                | ErrorCode::Gone
                | ErrorCode::Invalid { .. }
                | ErrorCode::ShuttingDown
                | ErrorCode::Superseded
                | ErrorCode::UnknownEpoch
                | ErrorCode::Other => "Holdfast could not start",
            };
            (title, report.message, report.remedy)
        }
        CallError::Lost(words) => (
            "Holdfast’s engine does not answer",
            format!("the window is there, but what keeps your chats is not ({words})"),
            Some(
                "close Holdfast and start it again; nothing that was on the screen is lost"
                    .to_owned(),
            ),
        ),
    };
    view! {
        <main class="words-page" role="alert" data-testid="start-failure">
            <h1 class="words-title">{title}</h1>
            <p>{sentence(&said)}</p>
            {remedy.map(|remedy| view! { <p class="words-text">{sentence(&remedy)}</p> })}
            <button
                type="button"
                class="button button-primary"
                data-testid="reload-view"
                on:click=move |_| ipc::reload()
            >
                "Try again"
            </button>
        </main>
    }
    .into_any()
}

/// Shortcuts of the window. What lies above the page takes Escape first.
fn on_key(desk: Desk, event: &ev::KeyboardEvent) {
    if ipc::is_composing(event) || event.default_prevented() {
        return;
    }
    let command = if ipc::is_mac() {
        event.meta_key()
    } else {
        event.ctrl_key()
    };
    let plain = !(event.ctrl_key() || event.meta_key() || event.alt_key());
    match event.key().as_str() {
        "n" | "N" if command && !event.shift_key() => desk.open_new(),
        "n" | "N" if command => desk.open_window(None),
        "b" | "B" if command && !event.shift_key() => desk.toggle_sidebar(),
        // Not U: a Linux text field takes it for the number of a character.
        "l" | "L" if command && event.shift_key() => desk.open_settings(SettingsPart::Usage),
        "h" | "H" if command && event.shift_key() => desk.open_settings(SettingsPart::Health),
        "p" | "P" if command && event.shift_key() => {
            if !desk.replay_last() {
                return;
            }
        }
        "," if command => desk.open_settings(SettingsPart::Servers),
        "/" if command => desk.open_settings(SettingsPart::Shortcuts),
        "C" | "c" if command && event.shift_key() => {
            let last = desk.pane.get_untracked().and_then(|pane| {
                let turn = pane.turns.with_untracked(|turns| turns.last().copied())?;
                Some(pane.answer(turn)).filter(|answer| !answer.is_empty())
            });
            match last {
                Some(answer) => desk.copy(answer),
                None => return,
            }
        }
        digit @ ("1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9") if command => {
            let nth = digit.parse::<usize>().unwrap_or(1);
            match desk.library.nth(nth) {
                Some(session) => desk.open(session),
                None => return,
            }
        }
        "j" | "J" if command && !event.shift_key() => approval::focus_question(),
        "F1" => desk.open_settings(SettingsPart::Shortcuts),
        "F2" if plain => {
            if let Some(session) = desk.session.get_untracked() {
                if desk.folded.get_untracked() {
                    desk.toggle_sidebar();
                }
                desk.renaming.set(Some(session));
            }
        }
        "Escape" if plain => on_escape(desk),
        _ => return,
    }
    event.prevent_default();
}

fn on_escape(desk: Desk) {
    if desk.large_image.with_untracked(Option::is_some) {
        desk.close_large_image();
    } else if desk.overlay.get_untracked().is_some() {
        desk.close_overlay();
        desk.take_attention();
    } else if desk.player.get_untracked().is_some() {
        desk.close_player();
    } else {
        match desk.screen.get_untracked() {
            Screen::Settings(_) => {
                desk.show_chat();
                desk.take_attention();
            }
            Screen::Chat => desk.stop(),
        }
    }
}
