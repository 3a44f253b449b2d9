//! Messages: the reader's own in a tinted block, the model's on the page itself.

use leptos::{ev, html, prelude::*};
use protocol::{Image, Op, TurnId};

use crate::{
    components::{
        enclosures::Enclosed,
        icons::{Glyph, Icon},
        markdown::Markdown,
        picture::Pictures,
        versions::Versions,
    },
    desk::use_desk,
    ipc,
    pane::{Pane, Said},
    prose::Prose,
};

/// What the model says. Its text content is the answer and nothing else.
#[component]
pub(crate) fn Answer(prose: Prose) -> impl IntoView {
    view! {
        <div class="answer prose" data-testid="message-assistant" dir="auto">
            <Markdown prose />
        </div>
    }
    .into_any()
}

/// What the user said, and the form to say it in other words.
#[component]
pub(crate) fn UserMessage(
    pane: Pane,
    turn: TurnId,
    said: Said,
    editing: RwSignal<bool>,
) -> impl IntoView {
    let desk = use_desk();
    let Said { text, images } = said;
    view! {
        <div class="mine">
            {move || {
                if editing.get() {
                    view! { <EditForm pane turn said editing /> }.into_any()
                } else {
                    view! {
                        {images
                            .with_value(|images| !images.is_empty())
                            .then(|| view! { <Pictures images=images.get_value() /> })}
                        // An image may stand for itself.
                        <div
                            class="mine-text"
                            data-testid="message-user"
                            dir="auto"
                            hidden=text.with_value(String::is_empty)
                        >
                            {text.get_value()}
                        </div>
                        <div class="mine-below"><div class="actions">
                            <button
                                type="button"
                                class="icon-button"
                                data-testid="copy-message"
                                aria-label="Copy your message"
                                title="Copy"
                                on:click=move |_| desk.copy(text.get_value())
                            >
                                <Glyph icon=Icon::Copy />
                            </button>
                            {(!pane.is_replay())
                                .then(|| {
                                    view! {
                                        <button
                                            type="button"
                                            class="icon-button"
                                            data-testid="edit-message"
                                            aria-label="Edit your message"
                                            title="Edit"
                                            disabled=move || {
                                                !pane.is_live() || pane.running.get().is_some()
                                            }
                                            on:click=move |_| editing.set(true)
                                        >
                                            <Glyph icon=Icon::Pencil />
                                        </button>
                                    }
                                })}
                        </div> <Versions pane turn /></div>
                    }
                        .into_any()
                }
            }}
        </div>
    }
    .into_any()
}

#[component]
fn EditForm(pane: Pane, turn: TurnId, said: Said, editing: RwSignal<bool>) -> impl IntoView {
    let desk = use_desk();
    let Said { text, images } = said;
    // What it shows; some may be taken out.
    let kept = RwSignal::new(images.get_value());
    let field = NodeRef::<html::Textarea>::new();
    // What the words are written against; a transcript that changes meanwhile refuses them.
    let tip = pane.tip();
    let is_last = pane
        .turns
        .with_untracked(|turns| turns.last() == Some(&turn));
    let sending = RwSignal::new(false);
    field.on_load(move |field| {
        text.with_value(|text| field.set_value(text));
        ipc::fit_field(&field);
        // Focus is a courtesy.
        let _ = field.focus();
    });
    let send = move || {
        let said = field.get_untracked().map(|field| field.value());
        let (Some(said), Some(expected_tip)) = (said, tip) else {
            return;
        };
        let shows = kept.get_untracked();
        if (said.trim().is_empty() && shows.is_empty()) || sending.get_untracked() {
            return;
        }
        sending.set(true);
        ipc::spawn(async move {
            // As it was means whatever has become of it.
            let as_it_was = images.with_value(|images| *images == shows);
            let op = Op::EditMessage {
                session: pane.session,
                turn,
                text: said,
                images: (!as_it_was).then_some(shows),
                expected_tip,
            };
            match desk.submit(op).await {
                Ok(_) => {
                    editing.try_set(false);
                    desk.note_sent();
                }
                Err(error) => {
                    sending.try_set(false);
                    desk.tell(&error);
                }
            }
        });
    };
    let on_keydown = move |event: ev::KeyboardEvent| {
        if ipc::is_composing(&event) {
            return;
        }
        match event.key().as_str() {
            "Enter" if !event.shift_key() => {
                event.prevent_default();
                send();
            }
            "Escape" => {
                event.stop_propagation();
                editing.set(false);
                desk.take_attention();
            }
            _ => {}
        }
    };
    view! {
        <form
            class="edit"
            aria-label="Edit your message"
            on:submit=move |event: ev::SubmitEvent| {
                event.prevent_default();
                send();
            }
        >
            <EditedImages kept />
            <textarea
                node_ref=field
                class="composer-text edit-text"
                data-testid="edit-field"
                rows="1"
                aria-label="Your message"
                on:input=move |_| {
                    if let Some(field) = field.get_untracked() {
                        ipc::fit_field(&field);
                    }
                }
                on:keydown=on_keydown
            />
            <div class="form-actions">
                {(!is_last)
                    .then(|| {
                        view! {
                            <span class="hint edit-hint">
                                "What was said after it leaves the conversation."
                            </span>
                        }
                    })}
                <button type="button" class="button" on:click=move |_| editing.set(false)>
                    "Cancel"
                </button>
                <button
                    type="submit"
                    class="button button-primary"
                    data-testid="edit-send"
                    disabled=move || sending.get()
                >
                    "Send"
                </button>
            </div>
        </form>
    }
    .into_any()
}

/// The images of a message that is being edited, each to be taken out.
#[component]
fn EditedImages(kept: RwSignal<Vec<Image>>) -> impl IntoView {
    let shown = move || kept.get().into_iter().enumerate().collect::<Vec<_>>();
    view! {
        <ul
            class="enclosed-list"
            aria-label="Images of the message"
            hidden=move || kept.with(Vec::is_empty)
        >
            <For each=shown key=|(at, image)| (*at, image.image) let((at, image))>
                <Enclosed
                    name=image.name.clone()
                    taken=Some(image)
                    remove=move || {
                        kept.update(|kept| {
                            if at < kept.len() {
                                kept.remove(at);
                            }
                        });
                    }
                />
            </For>
        </ul>
    }
    .into_any()
}
