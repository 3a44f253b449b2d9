//! Pictures: an image as large as its place allows, and one that fills the window.
//!
//! Invariant: its room is reserved before its bytes are there, so nothing jumps. Bytes that cannot be had are said in
//! words in that room. The page asks its own engine for them and nobody else.

use std::sync::Arc;

use leptos::{ev, html, prelude::*};
use protocol::Image;
use transcript::words;

use crate::{
    components::icons::{Glyph, Icon},
    desk::use_desk,
    ipc::{self, ImageUrl},
};

/// What of an image is there.
#[derive(Clone)]
enum Seen {
    Reading,
    Here(Arc<ImageUrl>),
    Not(String),
}

/// The bytes of an image, shown; as large as what stands around it.
#[component]
pub(crate) fn Pixels(image: Image) -> impl IntoView {
    let desk = use_desk();
    let seen = RwSignal::new(Seen::Reading);
    let id = image.image;
    ipc::spawn(async move {
        let url = desk.images.url(id).await;
        // Whoever scrolled on gave it back.
        seen.try_set(match url {
            Ok(url) => Seen::Here(url),
            Err(words) => Seen::Not(words),
        });
    });
    let name = StoredValue::new(image.name);
    move || match seen.get() {
        Seen::Reading => view! { <span class="pixels is-reading"></span> }.into_any(),
        Seen::Here(url) => view! {
            <img
                class="pixels"
                src=url.address()
                alt=name.get_value()
                decoding="async"
                draggable="false"
                on:error=move |_| {
                    seen.set(Seen::Not("This image cannot be shown.".to_owned()));
                }
            />
        }
        .into_any(),
        Seen::Not(words) => view! {
            <span class="pixels is-lost" data-testid="image-lost">
                <Glyph icon=Icon::Warning />
                <span>{format!("{}: {words}", name.get_value())}</span>
            </span>
        }
        .into_any(),
    }
}

/// The images of a message. Each opens large.
#[component]
pub(crate) fn Pictures(images: Vec<Image>) -> impl IntoView {
    let desk = use_desk();
    // Several share a line.
    let height = if images.len() > 1 { 11 } else { 20 };
    let pictures = images.into_iter().map(|image| {
        let (width, tall) = (image.width.max(1), image.height.max(1));
        let shape = format!("{width} / {tall}");
        let room = format!("min({width}px, {height}rem * {width} / {tall})");
        let label = format!("{}: show it large", words::image(&image));
        let opened = image.clone();
        let title = words::image(&image);
        let id = image.image.to_string();
        view! {
            <button
                type="button"
                class="picture"
                data-testid="picture"
                data-image=id
                aria-label=label
                title=title
                style:aspect-ratio=shape
                style:width=room
                on:click=move |_| desk.large_image.set(Some(opened.clone()))
            >
                <Pixels image />
            </button>
        }
    });
    view! { <div class="pictures">{pictures.collect_view()}</div> }.into_any()
}

/// The image that fills the window, while one does.
#[component]
pub(crate) fn LargePicture() -> impl IntoView {
    let desk = use_desk();
    move || {
        desk.large_image.get().map(|image| {
            let close = NodeRef::<html::Button>::new();
            close.on_load(|button| {
                // Focus is a courtesy; Escape works all the same.
                let _ = button.focus();
            });
            let on_keydown = move |event: ev::KeyboardEvent| {
                // There is nothing else to go to.
                if event.key() == "Tab" {
                    event.prevent_default();
                }
            };
            view! {
                <div
                    class="large"
                    role="dialog"
                    aria-modal="true"
                    aria-label=words::image(&image)
                    data-testid="large-picture"
                    on:click=move |_| desk.close_large_image()
                    on:keydown=on_keydown
                >
                    <button
                        node_ref=close
                        type="button"
                        class="icon-button large-close"
                        aria-label="Close the image"
                        title="Close (Esc)"
                        on:click=move |_| desk.close_large_image()
                    >
                        <Glyph icon=Icon::Cross />
                    </button>
                    <div class="large-room">
                        <Pixels image=image.clone() />
                    </div>
                    <p class="large-words" dir="auto">{words::image(&image)}</p>
                </div>
            }
        })
    }
}
