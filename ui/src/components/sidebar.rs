//! The sidebar: the sessions, the way to a new one, and the way to the settings.

use leptos::{ev, html, prelude::*};
use protocol::{Op, OutcomeKind, SessionId, SessionState};
use transcript::words;

use crate::{
    components::icons::{Glyph, Icon, Mark},
    desk::{Overlay, Screen, SettingsPart, use_desk},
    ipc,
    library::{SessionRow, Shelf},
};

/// A title longer than this is not a title.
const TITLE_CHARS_MAX: &str = "200";

/// The list of sessions and what surrounds it.
#[component]
pub(crate) fn Sidebar() -> impl IntoView {
    let desk = use_desk();
    let at_settings = move || match desk.screen.get() {
        Screen::Settings(_) => true,
        Screen::Chat => false,
    };
    view! {
        <nav class="sidebar" aria-label="Chats">
            <div class="sidebar-head">
                <span class="sidebar-name">
                    <Mark />
                    "Holdfast"
                </span>
                <button
                    type="button"
                    class="icon-button"
                    aria-label="Hide the sidebar"
                    title=format!("Hide the sidebar ({})", chord("B"))
                    on:click=move |_| desk.hide_sidebar()
                >
                    <Glyph icon=Icon::Sidebar />
                </button>
            </div>
            <button
                type="button"
                class="sidebar-action"
                data-testid="new-session"
                title=format!("New chat ({})", chord("N"))
                on:click=move |_| desk.open_new()
            >
                <Glyph icon=Icon::Plus />
                "New chat"
            </button>
            <div class="sidebar-list">
                <For each=move || desk.library.shelves.get() key=|shelf| shelf.age let:shelf>
                    <ShelfSection shelf />
                </For>
            </div>
            <button
                type="button"
                class="sidebar-action sidebar-foot"
                data-testid="settings"
                class:is-chosen=at_settings
                title=format!("Settings ({})", chord(","))
                on:click=move |_| desk.open_settings(SettingsPart::Servers)
            >
                <Glyph icon=Icon::Gear />
                "Settings"
            </button>
        </nav>
    }
    .into_any()
}

/// How a shortcut is spelled here.
pub(crate) fn chord(key: &str) -> String {
    if ipc::is_mac() {
        format!("⌘{key}")
    } else {
        format!("Ctrl+{key}")
    }
}

#[component]
fn ShelfSection(shelf: Shelf) -> impl IntoView {
    let desk = use_desk();
    let age = shelf.age;
    // The section outlives its first content: it is keyed by its age alone.
    let sessions = Memo::new(move |_| {
        desk.library.shelves.with(|shelves| {
            let shelf = shelves.iter().find(|shelf| shelf.age == age);
            shelf
                .map(|shelf| shelf.sessions.clone())
                .unwrap_or_default()
        })
    });
    view! {
        <section class="shelf" aria-label=age.words()>
            <h2 class="shelf-heading">{age.words()}</h2>
            <ul class="shelf-list">
                <For each=move || sessions.get() key=|session| *session let:session>
                    {desk.library.row(session).map(|row| view! { <SessionEntry row /> })}
                </For>
            </ul>
        </section>
    }
    .into_any()
}

#[component]
fn SessionEntry(row: SessionRow) -> impl IntoView {
    let desk = use_desk();
    let SessionRow { session, summary } = row;
    let title = Memo::new(move |_| summary.with(|s| s.title.clone()));
    let state = Memo::new(move |_| summary.with(|s| (s.state, s.unread.is_some())));
    let is_unread = Memo::new(move |_| state.with(|(state, unread)| *unread && has_ended(*state)));
    let is_open = Memo::new(move |_| {
        desk.session.get() == Some(session) && desk.screen.get() == Screen::Chat
    });
    let menu = Overlay::SessionMenu(session);
    let menu_open = Memo::new(move |_| desk.overlay.get() == Some(menu));
    let renaming = Memo::new(move |_| desk.renaming.get() == Some(session));
    view! {
        <li
            class="session"
            class:is-open=is_open
            class:is-unread=is_unread
            class:has-menu=menu_open
        >
            {move || {
                if renaming.get() {
                    view! { <TitleField session title=title.get_untracked() /> }.into_any()
                } else {
                    view! {
                        <button
                            type="button"
                            class="session-button"
                            data-testid="session"
                            data-session=session.to_string()
                            aria-current=move || is_open.get().then_some("page")
                            title=title
                            on:click=move |_| desk.open(session)
                            on:dblclick=move |_| desk.renaming.set(Some(session))
                            on:keydown=move |event: ev::KeyboardEvent| match event.key().as_str() {
                                "F2" => {
                                    event.stop_propagation();
                                    desk.renaming.set(Some(session));
                                }
                                "Delete" => desk.bin(session),
                                _ => {}
                            }
                        >
                            <span class="session-title" dir="auto">
                                {move || shown_title(&title.get())}
                            </span>
                            {move || {
                                // What needs the reader is said, not only marked.
                                let (state, unread) = state.get();
                                said(state, unread)
                                    .map(|(class, words)| {
                                        view! {
                                            <span class=class aria-hidden="true">
                                                {words}
                                            </span>
                                        }
                                    })
                            }}
                            {move || {
                                let (state, unread) = state.get();
                                state_mark(state, unread)
                            }}
                        </button>
                        <button
                            type="button"
                            class="icon-button session-more"
                            data-testid="session-menu"
                            aria-label=move || format!("Actions for {}", shown_title(&title.get()))
                            aria-haspopup="menu"
                            aria-expanded=move || if menu_open.get() { "true" } else { "false" }
                            on:click=move |_| desk.toggle_overlay(menu)
                        >
                            <Glyph icon=Icon::Dots />
                        </button>
                    }
                        .into_any()
                }
            }}
            {move || menu_open.get().then(|| view! { <SessionMenu session /> })}
        </li>
    }
    .into_any()
}

#[component]
fn SessionMenu(session: SessionId) -> impl IntoView {
    let desk = use_desk();
    let first = NodeRef::<html::Button>::new();
    first.on_load(|button| {
        // Focus is a courtesy; the menu can be reached by Tab.
        let _ = button.focus();
    });
    let on_keydown = move |event: ev::KeyboardEvent| match event.key().as_str() {
        "ArrowDown" => {
            event.prevent_default();
            let _ = ipc::focus(".session-menu button:focus + button");
        }
        "ArrowUp" => {
            event.prevent_default();
            let _ = ipc::focus(".session-menu button:has(+ button:focus)");
        }
        _ => {}
    };
    view! {
        <div class="popover session-menu" role="menu" aria-label="Chat" on:keydown=on_keydown>
            <button
                node_ref=first
                type="button"
                class="menu-item"
                role="menuitem"
                data-testid="rename"
                on:click=move |_| {
                    desk.close_overlay();
                    desk.renaming.set(Some(session));
                }
            >
                <Glyph icon=Icon::Pencil />
                "Rename"
                <kbd>"F2"</kbd>
            </button>
            <button
                type="button"
                class="menu-item"
                role="menuitem"
                data-testid="open-window"
                on:click=move |_| desk.open_window(Some(session))
            >
                <Glyph icon=Icon::Window />
                "Open in a new window"
            </button>
            <button
                type="button"
                class="menu-item"
                role="menuitem"
                data-testid="delete"
                on:click=move |_| {
                    desk.close_overlay();
                    desk.bin(session);
                }
            >
                <Glyph icon=Icon::Bin />
                "Delete"
            </button>
        </div>
    }
    .into_any()
}

#[component]
fn TitleField(session: SessionId, title: String) -> impl IntoView {
    let desk = use_desk();
    let field = NodeRef::<html::Input>::new();
    field.on_load(|field| {
        // Both are courtesies; the field can be clicked.
        let _ = field.focus();
        field.select();
    });
    let before = title.clone();
    let keep = move || {
        // Leaving the field by Enter or Escape takes it away, which leaves it once more.
        if desk.renaming.get_untracked() != Some(session) {
            return;
        }
        desk.renaming.set(None);
        let title = field.get_untracked().map(|field| field.value());
        if let Some(title) = title.map(|title| title.trim().to_owned())
            && !title.is_empty()
            && title != before
        {
            desk.act(Op::RenameSession { session, title });
        }
    };
    let on_keydown = {
        let keep = keep.clone();
        move |event: ev::KeyboardEvent| {
            event.stop_propagation();
            if ipc::is_composing(&event) {
                return;
            }
            match event.key().as_str() {
                "Enter" => {
                    event.prevent_default();
                    keep();
                }
                "Escape" => desk.renaming.set(None),
                _ => {}
            }
        }
    };
    view! {
        <input
            node_ref=field
            class="session-field"
            data-testid="rename-field"
            type="text"
            dir="auto"
            aria-label="Title of this chat"
            maxlength=TITLE_CHARS_MAX
            value=title
            on:keydown=on_keydown
            on:blur=move |_| keep()
        />
    }
    .into_any()
}

/// What is shown for a session that has no title yet.
pub(crate) fn shown_title(title: &str) -> String {
    if title.trim().is_empty() {
        "New chat".to_owned()
    } else {
        title.to_owned()
    }
}

const fn has_ended(state: SessionState) -> bool {
    match state {
        SessionState::Ended { .. } => true,
        SessionState::Empty | SessionState::Running { .. } | SessionState::Asking { .. } => false,
    }
}

/// The short word beside a title, and its class.
const fn said(state: SessionState, unread: bool) -> Option<(&'static str, &'static str)> {
    match (state, unread) {
        (SessionState::Asking { .. }, _) => Some(("session-asks", "waits for you")),
        (SessionState::Ended { outcome }, true) => match outcome {
            OutcomeKind::Completed | OutcomeKind::Cancelled => Some(("session-news", "new")),
            OutcomeKind::Failed => Some(("session-news is-failed", "failed")),
            OutcomeKind::Interrupted => Some(("session-news", "interrupted")),
        },
        (SessionState::Empty | SessionState::Running { .. }, _)
        | (SessionState::Ended { .. }, false) => None,
    }
}

/// A mark for the eye and words for the ear; a session that ended well and was seen has neither.
fn state_mark(state: SessionState, unread: bool) -> impl IntoView {
    let words = words::session_state(state, unread)?;
    let class = match state {
        SessionState::Empty => return None,
        SessionState::Running { .. } => "dot is-running",
        SessionState::Asking { .. } => "dot is-asking",
        SessionState::Ended { outcome } => match outcome {
            OutcomeKind::Completed | OutcomeKind::Cancelled => "dot is-unread",
            OutcomeKind::Failed => "dot is-failed",
            OutcomeKind::Interrupted => "dot is-interrupted",
        },
    };
    Some(view! {
        <span class=class class:is-seen=!unread title=words>
            <span class="offscreen">{format!(", {words}")}</span>
        </span>
    })
}
