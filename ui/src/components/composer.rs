//! The composer: where one writes. One per session, so that undo never crosses from one chat into another.
//!
//! Invariant: a text leaves the composer only for a receipt. Kept by: the field is cleared by the answer to the op, of
//! exactly the text that was sent; a refusal changes nothing. The Enter of an input method never sends.
//! A key costs the same however long the text is: the text is read when it is saved or sent, and not before.

use std::{cell::Cell, rc::Rc};

use leptos::{ev, html, prelude::*};
use protocol::{Draft, ErrorCode, ModelOptions, ModelRef, Op, OpId, SessionId};

use crate::{
    components::{
        enclosures::{AttachButton, Enclosures},
        folder_picker::{FolderPicker, about_folder},
        icons::{Glyph, Icon},
        meter::Meter,
        missing_model::MissingModel,
        model_picker::ModelPicker,
        options::ChatOptions,
        settings::refusal_words,
        sidebar::chord,
    },
    desk::{Desk, Overlay, use_desk},
    drafts::Whose,
    ipc::{self, CallError},
    pane::Pane,
};

/// The Enter that ended a composition comes within this time after it; the next one is the writer's own.
const COMPOSED_ENTER_MS: u64 = 150;

const STILL_READING: &str = "An image is still being read";

const STILL_ANSWERING: &str = "Still answering – Esc stops it, then Enter sends";

/// What is being sent, until its fate is known. Sent again unchanged, it keeps its id, so that it cannot arrive twice.
#[derive(Clone, PartialEq, Eq)]
struct Sending {
    op_id: OpId,
    op: Op,
    session: SessionId,
    draft: Draft,
}

impl Sending {
    fn of(
        whose: Whose,
        draft: Draft,
        model: &ModelRef,
        folder: Option<String>,
        options: ModelOptions,
    ) -> Self {
        let session = whose.unwrap_or_else(|| SessionId::from_bits(ipc::random_bits()));
        let Draft { text, images } = draft.clone();
        let op = match whose {
            Some(session) => Op::SendMessage {
                session,
                text,
                images,
            },
            None => Op::StartSession {
                session,
                model: model.clone(),
                text,
                images,
                folder,
                options,
            },
        };
        Self {
            op_id: OpId::from_bits(ipc::random_bits()),
            op,
            session,
            draft,
        }
    }

    /// Whether both say the same to the same model with the same folder and options; of a session not begun yet, the id says nothing.
    fn is(&self, other: &Self) -> bool {
        let begun = |op: &Op| match op {
            Op::StartSession {
                model,
                folder,
                options,
                ..
            } => Some((model.clone(), folder.clone(), options.clone())),
            Op::SendMessage { .. }
            | Op::CancelTurn { .. }
            | Op::RetryTurn { .. }
            | Op::RestoreTurn { .. }
            | Op::EditMessage { .. }
            | Op::ContinueTurn { .. }
            | Op::AnswerApproval { .. }
            | Op::ChooseFolder { .. }
            | Op::ChangeTimeLimits { .. }
            | Op::ChooseFallbacks { .. }
            | Op::ChooseOptions { .. }
            | Op::ChangeModelOptions { .. }
            | Op::PullModel { .. }
            | Op::CancelPull { .. }
            | Op::AddModelFile { .. }
            | Op::ChoosePrices { .. }
            | Op::RenameSession { .. }
            | Op::BinSession { .. }
            | Op::UnbinSession { .. }
            | Op::NoteSeen { .. }
            | Op::ChooseModel { .. }
            | Op::AddProvider { .. }
            | Op::ChangeProvider { .. }
            | Op::RemoveProvider { .. }
            | Op::AddSample { .. } => None,
        };
        self.draft == other.draft && begun(&self.op) == begun(&other.op)
    }
}

/// The composer of `whose` session.
#[component]
pub(crate) fn Composer(whose: Whose) -> impl IntoView {
    let desk = use_desk();
    let field = NodeRef::<html::Textarea>::new();
    let empty = RwSignal::new(true);
    let hint = RwSignal::new(None::<&'static str>);
    let busy = RwSignal::new(false);
    let focused = RwSignal::new(false);
    let unsettled = StoredValue::new(None::<Sending>);
    let composed_at = Rc::new(Cell::new(None::<u64>));

    let running = Memo::new(move |_| {
        desk.pane
            .get()
            .filter(|pane| Some(pane.session) == whose)
            .and_then(|pane| pane.running.get())
    });
    let asking = Memo::new(move |_| {
        let pane = desk.pane.get().filter(|pane| Some(pane.session) == whose);
        pane.and_then(Pane::question).is_some()
    });
    let stopping = Memo::new(move |_| desk.pane.get().is_some_and(Pane::is_stopping));
    // A hint about a running answer is over when the answer is.
    Effect::new(move |_| {
        if running.get().is_none() {
            hint.set(None);
        }
    });

    // Who waited for an answer may find the composer gone: both ask first.
    let changed = move || {
        let Some(area) = field.try_get_untracked().flatten() else {
            return;
        };
        empty.try_set(area.text_length() == 0);
        ipc::fit_field(&area);
    };
    let fill = move |text: &str| {
        if let Some(area) = field.try_get_untracked().flatten() {
            area.set_value(text);
            changed();
        }
    };

    field.on_load(move |area| {
        match desk.drafts.known(whose) {
            Some(text) => fill(&text),
            None => {
                // The field is the one of the composer before, with the text of another chat.
                fill("");
                ipc::spawn(async move {
                    let Draft { text, images } = desk.drafts.load(whose).await;
                    desk.images.show(whose, images);
                    let untouched = field
                        .try_get_untracked()
                        .flatten()
                        .is_some_and(|area| area.text_length() == 0);
                    if untouched && !text.is_empty() {
                        fill(&text);
                    }
                });
            }
        }
        // Focus is a courtesy; a field that cannot take it is focused by a click.
        let _ = area.focus();
    });
    Effect::new(move |before: Option<u64>| {
        let attention = desk.attention.get();
        if before.is_some_and(|before| before != attention)
            && let Some(area) = field.get_untracked()
        {
            // As above.
            let _ = area.focus();
        }
        attention
    });

    let text_now = move || field.try_get_untracked().flatten().map(|area| area.value());
    let save_now = move || {
        if let Some(text) = text_now() {
            desk.drafts.put(whose, text);
        }
    };
    desk.on_leaving(save_now);
    on_cleanup(save_now);

    let has_images = Memo::new(move |_| !desk.images.of(whose).is_empty());
    let reading = Memo::new(move |_| desk.images.is_reading(whose));
    Effect::new(move |_| {
        desk.images.of(whose);
        ipc::note_images(&desk.images.taken(whose));
    });
    // Known before anything is sent: what its server says of the model.
    let blind = move || has_images.get() && desk.sees_images() == Some(false);
    let blind = Memo::new(move |_| blind());
    let blind = move || blind.get();
    Effect::new(move |_| {
        if has_images.get()
            && let Some(model) = desk.model()
        {
            desk.catalog.ask(model.provider);
        }
    });
    Effect::new(move |_| {
        if !reading.get() && hint.get_untracked() == Some(STILL_READING) {
            hint.set(None);
        }
    });

    let send = move || {
        if busy.get_untracked() {
            return;
        }
        if asking.get_untracked() {
            return;
        }
        if running.get_untracked().is_some() {
            hint.set(Some(STILL_ANSWERING));
            return;
        }
        if untrack(|| desk.images.is_reading(whose)) {
            hint.set(Some(STILL_READING));
            return;
        }
        if untrack(blind) {
            // The line below says it already.
            return;
        }
        let text = text_now().unwrap_or_default();
        let images = desk.images.taken(whose);
        if text.trim().is_empty() && images.is_empty() {
            return;
        }
        let draft = Draft { text, images };
        hint.set(None);
        busy.set(true);
        ipc::spawn(async move {
            let model = match desk.model_untracked() {
                None if whose.is_none() => {
                    hint.try_set(Some("Looking for a model…"));
                    desk.model_in_time().await
                }
                model => model,
            };
            let Some(model) = model else {
                // The composer may be gone by now, the message is not: all of this asks before it writes.
                busy.try_set(false);
                hint.try_set(Some("Choose a model first"));
                desk.open_models();
                return;
            };
            let folder = desk.folder_for_new.get_untracked();
            let options = desk.options_for_new.get_untracked();
            let sending = Sending::of(whose, draft, &model, folder, options);
            let sending = unsettled
                .try_get_value()
                .flatten()
                .filter(|unsettled: &Sending| unsettled.is(&sending))
                .unwrap_or(sending);
            unsettled.try_set_value(Some(sending.clone()));
            desk.catalog.note_use(&model);
            let answer = desk.submit_as(sending.op_id, sending.op.clone()).await;
            busy.try_set(false);
            hint.try_set(None);
            match answer {
                Ok(_) => {
                    unsettled.try_set_value(None);
                    desk.note_sent();
                    clear(desk, whose, &sending, text_now(), fill);
                }
                Err(error) => {
                    if let CallError::Refused(report) = &error {
                        unsettled.try_set_value(None);
                        if report.code == ErrorCode::TurnActive {
                            hint.try_set(Some(STILL_ANSWERING));
                            return;
                        }
                        if about_folder(&error) {
                            desk.folder_words.set(Some(refusal_words(&error)));
                            desk.overlay.set(Some(Overlay::Folder));
                            return;
                        }
                    }
                    desk.tell(&error);
                }
            }
        });
    };

    let composed = Rc::clone(&composed_at);
    let on_keydown = move |event: ev::KeyboardEvent| {
        if event.key() != "Enter" || ipc::is_composing(&event) {
            return;
        }
        // WebKit ends the composition before it reports the very Enter that ended it.
        let ended_it = composed
            .take()
            .is_some_and(|at| ipc::now_ms().saturating_sub(at) < COMPOSED_ENTER_MS);
        if ended_it {
            event.prevent_default();
            return;
        }
        if event.shift_key() || event.alt_key() {
            return;
        }
        event.prevent_default();
        send();
    };
    let composed = Rc::clone(&composed_at);
    let on_compositionend = move |_| composed.set(Some(ipc::now_ms()));
    // A released key belongs to the press that may have ended a composition; what comes next is another press.
    let on_keyup = move |_| composed_at.set(None);

    // A text that was copied together with its picture is what was meant.
    let on_paste = move |event: ev::ClipboardEvent| {
        let images = ipc::pasted_images(&event);
        if !images.is_empty() {
            event.prevent_default();
            desk.images.add(whose, images);
        }
    };
    let name = match whose {
        Some(_) => "Message",
        None => "First message of a new chat",
    };
    view! {
        <form
            class="composer"
            aria-label="Write a message"
            on:submit=move |event: ev::SubmitEvent| {
                event.prevent_default();
                send();
            }
        >
            <div class="composer-box">
                <Enclosures whose />
                <textarea
                    node_ref=field
                    class="composer-text"
                    data-testid="composer"
                    data-session=whose.map(|session| session.to_string())
                    rows="1"
                    aria-label=name
                    aria-describedby="composer-hint"
                    placeholder="Write a message"
                    autocomplete="off"
                    on:input=move |_| {
                        desk.note_typing();
                        changed();
                        desk.drafts.touch(whose, text_now);
                    }
                    on:keydown=on_keydown
                    on:keyup=on_keyup
                    on:compositionend=on_compositionend
                    on:focus=move |_| focused.set(true)
                    on:blur=move |_| {
                        focused.set(false);
                        save_now();
                    }
                    on:paste=on_paste
                />
                <MissingModel whose />
                <div class="composer-row">
                    <AttachButton whose />
                    <ModelPicker />
                    <FolderPicker />
                    <ChatOptions />
                    <span class="composer-hint hint" id="composer-hint" role="status">
                        {move || {
                            if blind() {
                                return desk.model().map(|model| cannot_see(&model.model));
                            }
                            // Not while the question itself has the focus: it says the same, better.
                            let asked = (asking.get() && focused.get()).then(question_hint);
                            hint.get().map(str::to_owned).or(asked)
                        }}
                    </span>
                    <Meter whose />
                    {move || match running.get() {
                        Some(_) => {
                            view! {
                                <button
                                    type="button"
                                    class="send-button is-stop"
                                    data-testid="stop"
                                    aria-label="Stop"
                                    title="Stop (Esc)"
                                    disabled=move || stopping.get()
                                    on:click=move |_| desk.stop()
                                >
                                    <Glyph icon=Icon::Stop />
                                </button>
                            }
                                .into_any()
                        }
                        None => {
                            view! {
                                <button
                                    type="submit"
                                    class="send-button"
                                    data-testid="send"
                                    aria-label="Send"
                                    title="Send (Enter)"
                                    disabled=move || {
                                        (empty.get() && !has_images.get()) || busy.get() || reading.get() || blind()
                                    }
                                >
                                    <Glyph icon=Icon::Send />
                                </button>
                            }
                                .into_any()
                        }
                    }}
                </div>
            </div>
        </form>
    }
    .into_any()
}

/// Said of a model that sees no images, before any is sent.
fn cannot_see(model: &str) -> String {
    format!("{model} cannot see images: choose another model, or take the image out")
}

/// Said to whoever writes while the model waits for a word.
fn question_hint() -> String {
    format!("Waiting for your answer above – {} goes there", chord("J"))
}

/// Takes the text that was sent out of the composer; what was typed behind it meanwhile stays. Who went elsewhere
/// meanwhile stays there; a new chat is in the list.
fn clear(
    desk: Desk,
    whose: Whose,
    sending: &Sending,
    text_now: Option<String>,
    fill: impl Fn(&str),
) {
    let sent = sending.draft.text.as_str();
    let is_gone = text_now.is_none();
    let now = text_now
        .or_else(|| desk.drafts.known(whose))
        .unwrap_or_default();
    desk.images.sent(whose, &sending.draft.images);
    let rest = now.strip_prefix(sent).unwrap_or(&now);
    if whose.is_none() {
        desk.folder_for_new.set(None);
        desk.options_for_new.set(ModelOptions::default());
    }
    match whose {
        None if !is_gone => {
            fill("");
            desk.drafts.put(None, String::new());
            desk.drafts.put(Some(sending.session), rest.to_owned());
            desk.open(sending.session);
        }
        None | Some(_) => {
            fill(rest);
            desk.drafts.put(whose, rest.to_owned());
        }
    }
    if is_gone {
        // Who came back before the answer found the text in another composer.
        ipc::take_from_composer(whose, sent);
    }
}
