//! Where the model's view of the conversation was cut short: a quiet line that opens to what it is told instead.

use leptos::prelude::*;
use transcript::words;

use crate::{
    components::icons::{Glyph, Icon},
    desk::sentence,
    pane::CompactedCell,
};

/// One compaction. Everything before it stays readable above.
#[component]
pub(crate) fn Compacted(compacted: StoredValue<CompactedCell>) -> impl IntoView {
    let unfolded = RwSignal::new(false);
    let CompactedCell { summary, set_aside } = compacted.get_value();
    let line = sentence(words::compacted(&summary));
    let left_out = match set_aside {
        0 => None,
        1 => Some("The result of 1 tool call was left out.".to_owned()),
        calls => Some(format!("The results of {calls} tool calls were left out.")),
    };
    view! {
        <div class="compacted" data-testid="compacted">
            <button
                type="button"
                class="fold"
                class:is-open=unfolded
                aria-expanded=move || if unfolded.get() { "true" } else { "false" }
                on:click=move |_| unfolded.update(|unfolded| *unfolded = !*unfolded)
            >
                <Glyph icon=Icon::Chevron />
                <span class="fold-words">{line}</span>
            </button>
            {move || {
                unfolded
                    .get()
                    .then(|| {
                        view! {
                            <div class="reasoning-text" dir="auto">
                                <p class="hint">
                                    "You still see everything; the model is told this in its place:"
                                </p>
                                {summary.clone()}
                                {left_out.clone().map(|said| view! { <p class="hint">{said}</p> })}
                            </div>
                        }
                    })
            }}
        </div>
    }
    .into_any()
}
