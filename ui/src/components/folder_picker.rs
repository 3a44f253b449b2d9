//! The folder whose files the model's tools may see: a chip in the composer that names it, and the form behind it.
//!
//! A path can be typed or chosen in the system's dialog. What cannot be used is said at the field, and nothing changes.

use leptos::{ev, html, prelude::*};
use protocol::{ErrorCode, ErrorReport};

use crate::{
    components::{
        icons::{Glyph, Icon},
        settings::refusal_words,
    },
    desk::{Overlay, use_desk},
    ipc::{self, CallError},
};

/// The chip, and the form above it.
#[component]
pub(crate) fn FolderPicker() -> impl IntoView {
    let desk = use_desk();
    let open = Memo::new(move |_| desk.overlay.get() == Some(Overlay::Folder));
    let folder = Memo::new(move |_| desk.folder());
    let name = move || match folder.get() {
        Some(path) => folder_name(&path).to_owned(),
        None => "No folder".to_owned(),
    };
    let label = move || match folder.get() {
        Some(path) => format!("Folder for tools: {path}"),
        None => "No folder: the model sees no files".to_owned(),
    };
    view! {
        <div class="picker is-folder">
            <button
                type="button"
                class="picker-button folder-chip"
                data-testid="folder"
                aria-haspopup="dialog"
                aria-expanded=move || if open.get() { "true" } else { "false" }
                aria-label=label
                title=label
                on:click=move |_| desk.toggle_overlay(Overlay::Folder)
            >
                <Glyph icon=Icon::Folder />
                <span class="picker-name" dir="auto">{name}</span>
            </button>
            {move || open.get().then(|| view! { <FolderForm folder /> })}
        </div>
    }
    .into_any()
}

#[component]
fn FolderForm(folder: Memo<Option<String>>) -> impl IntoView {
    let desk = use_desk();
    let field = NodeRef::<html::Input>::new();
    let typed = RwSignal::new(folder.get_untracked().unwrap_or_default());
    // What a message that could not be sent said of the folder is said here.
    let words = RwSignal::new(desk.folder_words.get_untracked());
    desk.folder_words.set(None);
    let busy = RwSignal::new(false);
    field.on_load(|field| {
        // Both are courtesies; the field can be clicked.
        let _ = field.focus();
        field.select();
    });
    let choose = move |path: Option<String>| {
        // The form may be gone when the dialog comes to its end; what was chosen there holds nevertheless.
        if busy.try_get_untracked() == Some(true) {
            return;
        }
        busy.try_set(true);
        words.try_set(None);
        ipc::spawn(async move {
            let answer = desk.choose_folder(path).await;
            busy.try_set(false);
            match answer {
                Ok(()) => {
                    desk.close_overlay();
                    desk.take_attention();
                }
                Err(error) => {
                    desk.tell_at(words, &error);
                    focus_field(field);
                }
            }
        });
    };
    let use_typed = move || {
        let path = typed.get_untracked().trim().to_owned();
        choose(Some(path).filter(|path| !path.is_empty()));
    };
    let browse = move |_| {
        ipc::spawn(async move {
            match ipc::pick_folder().await {
                Ok(Some(path)) => {
                    typed.try_set(path.clone());
                    choose(Some(path));
                }
                // Whoever closes the dialog wants nothing.
                Ok(None) => focus_field(field),
                Err(error) => {
                    words.try_set(Some(refusal_words(&error)));
                }
            }
        });
    };
    let on_keydown = move |event: ev::KeyboardEvent| {
        if event.key() == "Enter" && !ipc::is_composing(&event) {
            event.prevent_default();
            event.stop_propagation();
            use_typed();
        }
    };
    view! {
        // Not a form: it stands inside the composer's own.
        <div
            class="popover picker-popover folder-form"
            role="dialog"
            aria-label="Folder for tools"
            data-testid="folder-form"
        >
            <label class="form-field">
                <span class="label">"Folder for tools"</span>
                <input
                    node_ref=field
                    class="field"
                    type="text"
                    dir="ltr"
                    spellcheck="false"
                    autocapitalize="off"
                    autocomplete="off"
                    placeholder="/home/you/notes"
                    data-testid="folder-path"
                    aria-invalid=move || words.with(Option::is_some).then_some("true")
                    aria-describedby="folder-words folder-hint"
                    bind:value=typed
                    on:keydown=on_keydown
                />
            </label>
            <div id="folder-words">
                {move || {
                    words
                        .get()
                        .map(|words| {
                            view! {
                                <p class="alert" role="alert" data-testid="folder-error">
                                    {words}
                                </p>
                            }
                        })
                }}
            </div>
            <p class="hint" id="folder-hint">
                "Models that know tools can list and read the files in it, and ask you before they write one."
            </p>
            <div class="form-actions">
                {move || {
                    folder
                        .get()
                        .is_some()
                        .then(|| {
                            view! {
                                <button
                                    type="button"
                                    class="button button-quiet"
                                    data-testid="folder-none"
                                    disabled=move || busy.get()
                                    on:click=move |_| choose(None)
                                >
                                    "No folder"
                                </button>
                            }
                        })
                }}
                <button
                    type="button"
                    class="button"
                    data-testid="folder-browse"
                    disabled=move || busy.get()
                    on:click=browse
                >
                    "Browse…"
                </button>
                <button
                    type="button"
                    class="button button-primary"
                    data-testid="folder-use"
                    disabled=move || busy.get()
                    on:click=move |_| use_typed()
                >
                    "Use"
                </button>
            </div>
        </div>
    }
    .into_any()
}

fn focus_field(field: NodeRef<html::Input>) {
    if let Some(field) = field.try_get_untracked().flatten() {
        // As above.
        let _ = field.focus();
    }
}

/// What a refusal says of the folder, if it is about that.
pub(crate) fn about_folder(error: &CallError) -> bool {
    match error {
        CallError::Refused(ErrorReport {
            code: ErrorCode::Invalid { field },
            ..
        }) => field == "folder",
        CallError::Refused(_) | CallError::Lost(_) => false,
    }
}

/// A folder's own name, without the way to it.
fn folder_name(path: &str) -> &str {
    let trimmed = path.trim_end_matches(['/', '\\']);
    let name = trimmed.rsplit(['/', '\\']).next().unwrap_or(trimmed);
    if name.is_empty() { path } else { name }
}
