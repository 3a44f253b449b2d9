//! A tool call: one line that says what, on what and how it ended, and opens to the arguments and the output.
//! While it waits for the user's word, the question stands below it; afterwards a quiet line says how that went.

use leptos::prelude::*;
use protocol::{ItemId, Resolution, ToolOutcome, ToolState};
use transcript::words;

use crate::{
    components::{
        approval::{Approval, Change},
        icons::{Glyph, Icon},
    },
    desk::{sentence, use_desk},
    ipc,
    pane::{Pane, ToolCell, TurnCell},
};

/// As much of the arguments as fits beside a name.
const GLANCE_CHARS: usize = 80;

/// What a call has to do with a question.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Nothing.
    Free,
    /// It asks.
    Asks,
    /// It waits for the answer to an earlier call that asks the same.
    Shares,
    /// It asked, and was answered.
    Answered(Resolution),
}

/// One tool call.
#[component]
pub(crate) fn ToolCall(
    pane: Pane,
    cell: TurnCell,
    item: ItemId,
    tool: RwSignal<ToolCell>,
) -> impl IntoView {
    let desk = use_desk();
    let unfolded = RwSignal::new(false);
    let name = Memo::new(move |_| tool.with(|tool| tool.name.clone()));
    let glance = move || tool.with(|tool| glance(&tool.arguments));
    let standing = Memo::new(move |_| tool.with(|tool| standing(tool, item)));
    let ended = move || match standing.get() {
        // The question stands right below.
        Standing::Asks => String::new(),
        Standing::Shares => words::WAITING_FOR_YOU.to_owned(),
        Standing::Free | Standing::Answered(_) => tool.with(|tool| words::tool_state(&tool.state)),
    };
    let output = move || tool.with(|tool| output(&tool.state));
    // A prompt that goes takes the focus along; it is given back to the composer.
    Effect::new(move |before: Option<Standing>| {
        let now = standing.get();
        if before == Some(Standing::Asks) && now != Standing::Asks && !pane.is_replay() {
            ipc::spawn(async move {
                ipc::next_frame_or(100).await;
                if ipc::is_focus_lost() {
                    desk.take_attention();
                }
            });
        }
        now
    });
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
                    <code class="tool-glance" dir="ltr">{glance}</code>
                </span>
                <span class="tool-ended">{ended}</span>
            </button>
            {move || match standing.get() {
                Standing::Free | Standing::Shares => None,
                Standing::Asks => {
                    Some(view! { <Approval pane cell question=item tool /> }.into_any())
                }
                Standing::Answered(resolution) => {
                    let calls = cell.calls_of(item);
                    let said = sentence(words::resolution(resolution));
                    let said = if calls > 1 { format!("{said}, for {calls} calls") } else { said };
                    Some(
                        view! { <p class="tool-answered hint" data-testid="approval-answer">{said}</p> }
                            .into_any(),
                    )
                }
            }}
            {move || {
                unfolded
                    .get()
                    .then(|| {
                        let asked = tool
                            .with_untracked(|tool| {
                                tool.approval
                                    .as_ref()
                                    .filter(|asked| asked.resolution.is_some())
                                    .map(|asked| asked.intent.clone())
                            });
                        view! {
                            <div class="tool-box">
                                <span class="label">"Arguments"</span>
                                <pre dir="ltr">{move || tool.with(|tool| tool.arguments.clone())}</pre>
                                {asked
                                    .map(|intent| {
                                        view! {
                                            <span class="label">"The change you were asked about"</span>
                                            <Change intent />
                                        }
                                    })}
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

fn standing(tool: &ToolCell, item: ItemId) -> Standing {
    match &tool.approval {
        None => Standing::Free,
        Some(asked) => match asked.resolution {
            None if asked.item == item => Standing::Asks,
            None => Standing::Shares,
            Some(resolution) if asked.item == item => Standing::Answered(resolution),
            Some(_) => Standing::Free,
        },
    }
}

fn glance(arguments: &str) -> String {
    let one_line: String = words::visible(arguments)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
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
