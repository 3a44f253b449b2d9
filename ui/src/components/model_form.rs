//! One line to type, a button, and what came of it under both: how a model is named that is to come.

use leptos::{ev, prelude::*};
use protocol::Op;

use crate::{desk::Desk, ipc};

/// What was typed, what was said to it, and whether somebody still works on it.
#[derive(Clone, Copy)]
pub(super) struct ModelLine {
    pub(super) typed: RwSignal<String>,
    pub(super) words: RwSignal<Option<String>>,
    pub(super) busy: RwSignal<bool>,
}

impl ModelLine {
    pub(super) fn new() -> Self {
        Self {
            typed: RwSignal::new(String::new()),
            words: RwSignal::new(None),
            busy: RwSignal::new(false),
        }
    }

    /// Empties the line: what was typed is on its way.
    pub(super) fn clear(self) {
        self.typed.try_set(String::new());
    }
}

/// Submits, and says what came of it at the place where it was asked.
pub(super) fn submitting(
    desk: Desk,
    words: RwSignal<Option<String>>,
    busy: RwSignal<bool>,
    op: Op,
    done: Callback<()>,
) {
    // The line may be gone when a dialog that it opened comes to its end; what was chosen there holds nevertheless.
    if busy.try_get_untracked() == Some(true) {
        return;
    }
    busy.try_set(true);
    words.try_set(None);
    ipc::spawn(async move {
        let answer = desk.submit(op).await;
        busy.try_set(false);
        match answer {
            Ok(_) => {
                done.try_run(());
            }
            Err(error) => {
                desk.tell_at(words, &error);
            }
        }
    });
}

/// The line itself. `begin` gets what was typed; `children` are further buttons.
#[component]
pub(super) fn ModelForm(
    line: ModelLine,
    #[prop(into)] label: String,
    field_testid: &'static str,
    placeholder: &'static str,
    button: &'static str,
    button_testid: &'static str,
    begin: Callback<String>,
    #[prop(optional)] children: Option<Children>,
) -> impl IntoView {
    let ModelLine { typed, words, busy } = line;
    view! {
        <form
            class="server-test"
            on:submit=move |event: ev::SubmitEvent| {
                event.prevent_default();
                begin.run(typed.get_untracked());
            }
        >
            <label class="form-field">
                <span class="label">{label}</span>
                <input
                    class="field"
                    type="text"
                    data-testid=field_testid
                    autocapitalize="off"
                    autocomplete="off"
                    spellcheck="false"
                    placeholder=placeholder
                    aria-invalid=move || words.with(Option::is_some).then_some("true")
                    bind:value=typed
                />
            </label>
            <button
                type="submit"
                class="button"
                data-testid=button_testid
                disabled=move || busy.get() || typed.with(|typed| typed.trim().is_empty())
            >
                {button}
            </button>
            {children.map(|children| children())}
        </form>
        {move || words.get().map(|words| view! { <p class="alert" role="alert">{words}</p> })}
    }
    .into_any()
}
