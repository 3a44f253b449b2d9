//! The images in a composer: what will be sent with the text, what is being read, and what was refused and why.

use leptos::{ev, html, prelude::*};
use protocol::Image;
use transcript::words;

use crate::{
    components::{
        icons::{Glyph, Icon},
        picture::Pixels,
    },
    desk::use_desk,
    drafts::Whose,
    ipc,
};

/// The images above the text, and the words about those that were not taken.
#[component]
pub(crate) fn Enclosures(whose: Whose) -> impl IntoView {
    let desk = use_desk();
    let shown = Memo::new(move |_| desk.images.of(whose));
    let refused = Memo::new(move |_| desk.images.words(whose));
    view! {
        {move || {
            let refused = refused.get();
            (!refused.is_empty())
                .then(|| {
                    view! {
                        <div class="enclosed-words" role="alert" data-testid="image-refused">
                            <Glyph icon=Icon::Warning />
                            <div>
                                {refused
                                    .into_iter()
                                    .map(|words| view! { <p>{words}</p> })
                                    .collect_view()}
                            </div>
                            <button
                                type="button"
                                class="icon-button"
                                aria-label="Dismiss"
                                title="Dismiss"
                                on:click=move |_| {
                                    desk.images.hush(whose);
                                    desk.take_attention();
                                }
                            >
                                <Glyph icon=Icon::Cross />
                            </button>
                        </div>
                    }
                })
        }}
        <ul
            class="enclosed-list"
            aria-label="Images to be sent"
            hidden=move || shown.with(Vec::is_empty)
        >
            <For each=move || shown.get() key=|image| (image.key, image.taken.is_some()) let:image>
                <Enclosed
                    name=image.name
                    taken=image.taken
                    remove=move || {
                        desk.images.remove(whose, image.key);
                        desk.take_attention();
                    }
                />
            </For>
        </ul>
    }
    .into_any()
}

/// One image in a list of those that a message shows or will show, and the button that takes it out.
#[component]
pub(crate) fn Enclosed(
    name: String,
    taken: Option<Image>,
    remove: impl Fn() + 'static,
) -> impl IntoView {
    let label = format!("Take out {name}");
    view! {
        <li class="enclosed" data-testid="enclosed">
            <EnclosedPicture name taken />
            <button
                type="button"
                class="icon-button enclosed-remove"
                data-testid="remove-image"
                aria-label=label
                title="Take out"
                on:click=move |_| remove()
            >
                <Glyph icon=Icon::Cross />
            </button>
        </li>
    }
    .into_any()
}

/// A small picture with its name and size, or that it is being read.
#[component]
fn EnclosedPicture(name: String, taken: Option<Image>) -> impl IntoView {
    match taken {
        Some(image) => {
            let size = words::size(image.bytes);
            let all = words::image(&image);
            view! {
                <span class="enclosed-picture">
                    <Pixels image />
                </span>
                <span class="enclosed-name" title=all>
                    <span class="enclosed-file" dir="auto">{name}</span>
                    <span class="hint">{size}</span>
                </span>
            }
            .into_any()
        }
        None => view! {
            <span class="enclosed-picture is-reading"></span>
            <span class="enclosed-name">
                <span class="enclosed-file" dir="auto">{name}</span>
                <span class="hint" role="status">"reading…"</span>
            </span>
        }
        .into_any(),
    }
}

/// Opens the system's dialog for files.
#[component]
pub(crate) fn AttachButton(whose: Whose) -> impl IntoView {
    let desk = use_desk();
    let input = NodeRef::<html::Input>::new();
    let on_change = move |event: ev::Event| {
        desk.images.add(whose, ipc::chosen_images(&event));
        desk.take_attention();
    };
    view! {
        <button
            type="button"
            class="icon-button attach-button"
            data-testid="attach"
            aria-label="Attach images"
            title="Attach images (or paste or drop them)"
            on:click=move |_| {
                if let Some(input) = input.get_untracked() {
                    input.click();
                }
            }
        >
            <Glyph icon=Icon::Picture />
        </button>
        <input
            node_ref=input
            type="file"
            class="attach-input"
            data-testid="attach-input"
            accept="image/png,image/jpeg,image/gif,image/webp,.png,.jpg,.jpeg,.gif,.webp"
            multiple
            tabindex="-1"
            aria-hidden="true"
            on:change=on_change
        />
    }
    .into_any()
}
