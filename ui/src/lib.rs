//! Holdfast's window: follows streams and draws transcripts.
//!
//! Invariant: this page decides nothing. What is shown is the fold of committed events (`transcript`); what is asked for
//! is an op; both go through the one door that knows JavaScript (`ipc`).
//! A page can be thrown away at any time: everything it holds can be had again from the engine.

// The ends of what the browser runs are all within; natively only the tests are built.
#![cfg_attr(
    not(target_arch = "wasm32"),
    allow(dead_code, reason = "called from the page")
)]

mod app;

mod desk;
mod drafts;
mod library;
mod pane;
mod prose;
mod toasts;

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
