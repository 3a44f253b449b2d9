//! The question a tool call waits for: exactly what would happen, and the three answers.
//!
//! Invariant: nothing is answered but by a deliberate act. Kept by: the focus comes here only from where nobody is
//! writing, it rests on the answer that changes nothing, and keys that were already on their way when it came are not
//! heard. Escape is no answer: it stops the turn, here as everywhere.

use leptos::{ev, html, prelude::*};
use protocol::{Answer, Intent, ItemId, Op};
use transcript::words;

use crate::{
    components::{
        icons::{Glyph, Icon},
        model_picker::short_name,
    },
    desk::{sentence, use_desk},
    ipc,
    pane::{Pane, ToolCell, TurnCell},
};

/// Whoever typed within this time is still writing, and keeps the focus.
const WRITING_MS: u64 = 1_500;
/// Keys pressed within this time after the focus came here by itself were meant for something else.
const UNAWARE_MS: u64 = 700;
/// How long a page that was just opened may take to give its focus to the composer first.
const SETTLING_MS: u64 = 120;

/// Whether the view stands at the end of the text, where a question appears.
#[derive(Clone, Copy)]
pub(crate) struct AtEnd(pub(crate) RwSignal<bool>);

/// An answer as a button and as a key.
#[derive(Clone, Copy)]
struct Choice {
    answer: Answer,
    label: &'static str,
    letter: &'static str,
    digit: &'static str,
    testid: &'static str,
}

const CHOICES: [Choice; 3] = [
    Choice {
        answer: Answer::AllowOnce,
        label: "Allow once",
        letter: "a",
        digit: "1",
        testid: "allow-once",
    },
    Choice {
        answer: Answer::AllowForSession,
        label: "Allow for this conversation",
        letter: "s",
        digit: "2",
        testid: "allow-session",
    },
    Choice {
        answer: Answer::Deny,
        label: "Deny",
        letter: "d",
        digit: "3",
        testid: "deny",
    },
];

/// Where the focus goes: the answer that changes nothing.
const FOCUSED: &str = "[data-testid=deny]";

/// Puts the focus on the open question, wherever it was before.
pub(crate) fn focus_question() {
    // Where nothing is asked, nothing happens.
    let _ = ipc::focus(FOCUSED);
}

/// The open question named `question`, at its first call.
#[component]
pub(crate) fn Approval(
    pane: Pane,
    cell: TurnCell,
    question: ItemId,
    tool: RwSignal<ToolCell>,
) -> impl IntoView {
    let desk = use_desk();
    let at_end = use_context::<AtEnd>();
    let group = NodeRef::<html::Div>::new();
    let sending = RwSignal::new(false);
    let ready = Memo::new(move |_| pane.is_live() && !sending.get());
    // When the focus came here without being sent by anybody.
    let came_at = StoredValue::new(None::<u64>);

    let answer = move |answer: Answer| {
        if !ready.get_untracked() {
            return;
        }
        sending.set(true);
        ipc::spawn(async move {
            let op = Op::AnswerApproval {
                session: pane.session,
                turn: cell.turn,
                item: question,
                answer,
            };
            let answered = desk.submit(op).await;
            // The prompt goes with the event; until then a second answer could only be refused.
            if let Err(error) = answered {
                sending.try_set(false);
                desk.tell(&error);
            }
            desk.take_attention();
        });
    };

    // Once, as soon as it can be answered: the focus, from where nobody writes.
    Effect::new(move |done: Option<bool>| {
        let live = ready.get();
        if live && done != Some(true) {
            ipc::spawn(async move {
                ipc::sleep(SETTLING_MS).await;
                // Whoever is about to write is waited for; where there is text, the focus stays with it.
                while desk.typed_within(WRITING_MS)
                    && !ipc::is_text_focused()
                    && sending.try_get_untracked() == Some(false)
                {
                    ipc::sleep(SETTLING_MS).await;
                }
                let in_view =
                    at_end.is_none_or(|AtEnd(at_end)| at_end.try_get_untracked() == Some(true));
                let free = desk.overlay.get_untracked().is_none()
                    && !desk.typed_within(WRITING_MS)
                    && !ipc::is_text_focused();
                if in_view && free && sending.try_get_untracked() == Some(false) {
                    came_at.try_set_value(Some(ipc::now_ms()));
                    focus_question();
                }
            });
        }
        done == Some(true) || live
    });

    let on_keydown = move |event: ev::KeyboardEvent| {
        let modified = event.ctrl_key() || event.meta_key() || event.alt_key() || event.shift_key();
        if ipc::is_composing(&event) || modified || event.default_prevented() {
            return;
        }
        let key = event.key().to_lowercase();
        let choice = CHOICES
            .iter()
            .find(|choice| choice.letter == key || choice.digit == key);
        if choice.is_none() && key != "enter" && key != " " {
            return;
        }
        let unaware = came_at
            .get_value()
            .is_some_and(|at| ipc::now_ms().saturating_sub(at) < UNAWARE_MS);
        if unaware || event.repeat() {
            event.prevent_default();
            return;
        }
        if let Some(choice) = choice {
            event.prevent_default();
            answer(choice.answer);
        }
    };

    let title_id = format!("ask-{question}");
    let what_id = format!("ask-what-{question}");
    let (title_ref, what_ref) = (title_id.clone(), what_id.clone());
    let title = move || {
        let model = cell.head.with(|head| short_name(head.model()).to_owned());
        let deed = tool.with(|tool| {
            let intent = tool
                .approval
                .as_ref()
                .map(|asked| words::intent(&asked.intent));
            intent.unwrap_or_default()
        });
        format!("May {model} {deed}?")
    };
    let may_have_run = move || {
        tool.with(|tool| {
            tool.approval
                .as_ref()
                .is_some_and(|asked| asked.may_have_run)
        })
    };
    let intent = tool.with_untracked(|tool| tool.approval.as_ref().map(|a| a.intent.clone()));
    let shared = move || match cell.calls_of(question) {
        0 | 1 => None,
        calls => Some(format!(
            "Asked {calls} times; one answer counts for all of them."
        )),
    };
    view! {
        <div
            node_ref=group
            class="ask"
            role="group"
            aria-labelledby=title_ref
            aria-describedby=what_ref
            data-testid="approval"
            on:keydown=on_keydown
            // Whoever comes back, or goes on to another answer, does so on purpose.
            on:focusout=move |_| {
                came_at.try_set_value(None);
            }
        >
            <p class="ask-title" id=title_id>{title}</p>
            <div id=what_id>
                {move || {
                    may_have_run()
                        .then(|| {
                            view! {
                                <p class="ask-warning" data-testid="may-have-run">
                                    <Glyph icon=Icon::Warning />
                                    <span>{sentence(words::MAY_HAVE_RUN)}"."</span>
                                </p>
                            }
                        })
                }}
                {intent.as_ref().map(|intent| view! { <What intent=intent.clone() /> })}
            </div>
            {intent.map(|intent| view! { <Change intent /> })}
            {move || shared().map(|said| view! { <p class="ask-shared hint">{said}</p> })}
            <div class="ask-answers">
                {CHOICES
                    .map(|choice| {
                        view! {
                            <button
                                type="button"
                                class="button"
                                data-testid=choice.testid
                                aria-keyshortcuts=choice.letter
                                disabled=move || !ready.get()
                                on:click=move |_| answer(choice.answer)
                            >
                                {choice.label}
                                <kbd aria-hidden="true">{choice.letter.to_uppercase()}</kbd>
                            </button>
                        }
                    })
                    .collect_view()}
            </div>
            <p class="ask-shared hint">
                "“For this conversation” lets " {move || tool.with(|tool| tool.name.clone())}
                " write in this folder without asking again."
            </p>
        </div>
    }
    .into_any()
}

/// On what, and how large it is before and after.
#[component]
fn What(intent: Intent) -> impl IntoView {
    let sizes = words::sizes(&intent);
    let Intent::WriteFile { path, .. } = intent;
    view! {
        <p class="ask-path">
            <code dir="ltr" data-testid="approval-path">{words::visible(&path)}</code>
        </p>
        <p class="ask-sizes hint">{sizes}</p>
    }
    .into_any()
}

/// The change itself, line by line; the sign says what the colour says.
#[component]
pub(crate) fn Change(intent: Intent) -> impl IntoView {
    let Intent::WriteFile {
        diff,
        diff_left_out,
        ..
    } = intent;
    let lines: Vec<_> = diff
        .lines()
        .map(|line| view! { <span class=line_class(line)>{words::visible(line)} "\n"</span> })
        .collect();
    view! {
        // Long changes are read by scrolling; none of it is read out by itself.
        <pre
            class="diff"
            dir="ltr"
            tabindex="0"
            role="region"
            aria-label="The change"
            aria-live="off"
            data-testid="approval-diff"
        >
            {lines}
        </pre>
        {words::left_out(diff_left_out)
            .map(|said| view! { <p class="ask-shared hint" data-testid="left-out">{said}</p> })}
    }
    .into_any()
}

fn line_class(line: &str) -> &'static str {
    match line.as_bytes().first() {
        Some(b'+') if !line.starts_with("+++ ") => "diff-line is-added",
        Some(b'-') if !line.starts_with("--- ") => "diff-line is-removed",
        Some(b'@') => "diff-line is-place",
        Some(_) | None => "diff-line",
    }
}
