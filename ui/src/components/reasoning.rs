//! Reasoning, folded to one line with the time it took. Its text is drawn only where somebody unfolds it.

use leptos::prelude::*;
use transcript::words;

use crate::{
    calendar,
    components::{
        icons::{Glyph, Icon},
        markdown::pieces,
        status_line::seconds,
    },
    desk::sentence,
    pane::{Pane, ReasoningCell},
};

/// As for code: it comes fast, and in lines.
const PIECE_BYTES: usize = 512;

/// One reasoning block.
#[component]
pub(crate) fn Reasoning(pane: Pane, reasoning: ReasoningCell) -> impl IntoView {
    let unfolded = RwSignal::new(false);
    let open = Memo::new(move |_| reasoning.ended_at.get().is_none());
    let line = move || {
        let began_at = reasoning.began_at;
        match reasoning.ended_at.get() {
            Some(ended_at) => {
                let took_ms = ended_at.millis_since(began_at);
                if took_ms < calendar::NOTICED_MS {
                    "Thought".to_owned()
                } else {
                    format!("Thought for {}", calendar::duration(took_ms))
                }
            }
            None => {
                let took_ms = pane.now().millis_since(began_at);
                sentence(&words::reasoning(open.get(), took_ms))
            }
        }
    };
    view! {
        <div class="reasoning" data-testid="reasoning">
            <button
                type="button"
                class="fold"
                class:is-open=unfolded
                aria-expanded=move || if unfolded.get() { "true" } else { "false" }
                on:click=move |_| unfolded.update(|unfolded| *unfolded = !*unfolded)
            >
                <Glyph icon=Icon::Chevron />
                {move || {
                    let line = if open.get() { seconds(line) } else { Signal::derive(line) };
                    view! { <span class="fold-words">{line}</span> }
                }}
            </button>
            {move || {
                unfolded
                    .get()
                    .then(|| {
                        view! {
                            <div class="reasoning-text" dir="auto">
                                {move || {
                                    reasoning.text.with(|text| pieces(text, PIECE_BYTES, '\n'))
                                }}
                            </div>
                        }
                    })
            }}
        </div>
    }
    .into_any()
}
