//! Holdfast's window: follows streams and draws transcripts.
//!
//! Invariant: this page decides nothing. What is shown is the fold of committed events (`transcript`); what is asked for
//! is an op; both go through the one door that knows JavaScript (`ipc`).
//! A page can be thrown away at any time: everything it holds can be had again from the engine.

#![allow(
    unreachable_pub,
    reason = "a component's properties become a struct that the macro makes public"
)]

mod app;

mod desk;
mod drafts;
mod images;
mod library;
mod pane;
mod prose;
mod toasts;
mod versions;
mod wishes;

mod catalog;

mod components;

mod calendar;
mod follow;
mod ipc;

use wasm_bindgen::prelude::wasm_bindgen;

/// Draws the page.
#[wasm_bindgen(start)]
pub fn start() {
    ipc::guard_page();
    leptos::mount::mount_to_body(app::App);
}
