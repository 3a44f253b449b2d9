//! A failure in words: what happened and what to do, with the server's own words folded away beneath.

use leptos::prelude::*;
use protocol::Failure;

use crate::{
    components::icons::{Glyph, Icon},
    desk::{sentence, use_desk},
};

/// The sentence and its details.
#[component]
pub(crate) fn FailureWords(failure: Failure) -> impl IntoView {
    view! {
        <p class="failure-words">{sentence(&failure.message)}</p>
        {failure.detail.map(|detail| view! { <FoldedDetail detail /> })}
    }
    .into_any()
}

/// Raw text that only someone who looks for a cause wants to see.
#[component]
pub(crate) fn FoldedDetail(detail: String) -> impl IntoView {
    let desk = use_desk();
    let copied = detail.clone();
    view! {
        <details class="detail">
            <summary>"Details"</summary>
            <div class="detail-box">
                <pre dir="auto">{detail}</pre>
                <button
                    type="button"
                    class="icon-button"
                    aria-label="Copy the details"
                    title="Copy"
                    on:click=move |_| desk.copy(copied.clone())
                >
                    <Glyph icon=Icon::Copy />
                </button>
            </div>
        </details>
    }
    .into_any()
}
