//! A tool call: one line that says what, on what and how it ended, and opens to the arguments and the output.

use leptos::prelude::*;
use protocol::{ToolOutcome, ToolState};
use transcript::words;

use crate::{
    components::icons::{Glyph, Icon},
    pane::ToolCell,
};

/// As much of the arguments as fits beside a name.
const GLANCE_CHARS: usize = 80;

/// One tool call.
#[component]
pub(crate) fn ToolCall(tool: RwSignal<ToolCell>) -> impl IntoView {
    let unfolded = RwSignal::new(false);
    let name = Memo::new(move |_| tool.with(|tool| tool.name.clone()));
    let glance = move || tool.with(|tool| glance(&tool.arguments));
    let ended = move || tool.with(|tool| words::tool_state(&tool.state));
    let output = move || tool.with(|tool| output(&tool.state));
    view! {
        <div class="tool" data-testid="tool-call">
            <button
                type="button"
                class="fold"
                class:is-open=unfolded
                aria-expanded=move || if unfolded.get() { "true" } else { "false" }
                on:click=move |_| unfolded.update(|unfolded| *unfolded = !*unfolded)
            >
                <Glyph icon=Icon::Chevron />
                <Glyph icon=Icon::Tool />
                <span class="fold-words">
                    <strong>{name}</strong>
                    " "
                    <code class="tool-glance">{glance}</code>
                </span>
                <span class="tool-ended">{ended}</span>
            </button>
            {move || {
                unfolded
                    .get()
                    .then(|| {
                        view! {
                            <div class="tool-box">
                                <span class="label">"Arguments"</span>
                                <pre dir="ltr">{move || tool.with(|tool| tool.arguments.clone())}</pre>
                                {move || {
                                    output()
                                        .map(|output| {
                                            view! {
                                                <span class="label">"Result"</span>
                                                <pre dir="auto">{output}</pre>
                                            }
                                        })
                                }}
                            </div>
                        }
                    })
            }}
        </div>
    }
    .into_any()
}

fn glance(arguments: &str) -> String {
    let one_line: String = arguments.split_whitespace().collect::<Vec<_>>().join(" ");
    match one_line.char_indices().nth(GLANCE_CHARS) {
        Some((end, _)) => format!("{}…", one_line.get(..end).unwrap_or_default()),
        None => one_line,
    }
}

fn output(state: &ToolState) -> Option<String> {
    match state {
        ToolState::Requested | ToolState::Running { .. } => None,
        ToolState::Finished { outcome, .. } => match outcome {
            ToolOutcome::Succeeded { output } => Some(output.clone()),
            ToolOutcome::Failed { message } => Some(message.clone()),
            ToolOutcome::NotRun { why } => Some(why.clone()),
            ToolOutcome::Denied | ToolOutcome::Abandoned => None,
        },
    }
}
