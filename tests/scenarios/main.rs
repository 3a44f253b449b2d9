//! The scenarios: short stories with a verdict, each of which has been seen red.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a story whose assumptions are broken must stop"
)]
#![allow(
    clippy::print_stdout,
    reason = "a random story prints its seed, and the mutants their verdicts"
)]

mod accounting;
mod afterwards;
mod any_windows;
mod approving;
mod asking;
mod conversation;
mod damaged;
mod failing;
mod failing_over;
mod faults;
mod fetching;
mod folder;
mod following;
mod killed;
mod killed_at;
mod left_behind;
mod making_room;
mod opening;
mod optioned;
mod projecting;
mod pulling;
mod random_turns;
mod recorded;
mod replaying;
mod rewinding;
mod serving;
mod shelved;
mod showing;
mod sleeping;
mod storage;
mod transport;
mod unread;

mod mutants;

mod cost;
mod tidy;

#[cfg(target_os = "linux")]
mod own_model;
mod real_model;
#[cfg(target_os = "linux")]
mod terminal;
mod window;
