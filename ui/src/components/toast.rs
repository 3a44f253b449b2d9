//! The corner where toasts appear.

use leptos::prelude::*;

use crate::{
    components::icons::{Glyph, Icon},
    toasts::{Toast, Toasts, Tone},
};

/// The toasts, each announced once.
#[component]
pub(crate) fn ToastCorner(toasts: Toasts) -> impl IntoView {
    view! {
        <div class="toasts" aria-live="polite">
            <For each=move || toasts.shown.get() key=|toast| toast.id let:toast>
                <ToastRow toast toasts />
            </For>
        </div>
    }
    .into_any()
}

#[component]
fn ToastRow(toast: Toast, toasts: Toasts) -> impl IntoView {
    let id = toast.id;
    let (role, class) = match toast.tone {
        Tone::Calm => ("status", "toast"),
        Tone::Alert => ("alert", "toast is-alert"),
    };
    let hold = move |_| toasts.held.set(Some(id));
    let release = move |_| toasts.held.set(None);
    view! {
        <div
            class=class
            role=role
            data-testid="toast"
            on:pointerenter=hold
            on:pointerleave=release
            on:focusin=move |_| toasts.held.set(Some(id))
            on:focusout=move |_| toasts.held.set(None)
        >
            <span class="toast-words">{toast.words}</span>
            {toast
                .undo
                .map(|undo| {
                    view! {
                        <button
                            type="button"
                            class="button button-quiet"
                            data-testid="toast-undo"
                            on:click=move |_| {
                                undo.run(());
                                toasts.dismiss(id);
                            }
                        >
                            "Undo"
                        </button>
                    }
                })}
            <button
                type="button"
                class="icon-button"
                aria-label="Dismiss"
                title="Dismiss"
                on:click=move |_| toasts.dismiss(id)
            >
                <Glyph icon=Icon::Cross />
            </button>
        </div>
    }
    .into_any()
}
