//! Pure client logic: the fold of committed events into what the reader sees, and the client half of attach.
//!
//! Invariant: everything here is total and decided by its arguments alone. No clock, no IO, no async, no panic: the time
//! is passed in, and any event, page or answer, however odd, late or repeated, leaves a state that can be drawn.
//! Compiled twice: the window runs it in WASM, the engine folds finished turns into stored views with it.
//! Not here: how an answer travels (the window's `ipc`, the engine), and how any of it looks.

// Tests ask for one thing and fail on all others.
#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

pub mod fold;
pub mod link;
pub mod mutant;

pub mod player;

pub mod ledger;
pub mod markdown;
pub mod meter;
pub mod numbers;
pub mod revival;
pub mod sheet;
pub mod waterfall;
pub mod words;

pub use fold::*;
pub use link::*;
pub use revival::*;
