//! The scenario harness: everything around the product that a test needs, and nothing of the product itself.
//!
//! Invariant: faults sit at the seams (TCP, transport, file, clock); between them is the product, built by its own
//! factory. No sleeps: a test waits for a fact, and a wait that hangs says what for.
//! Reading order: what can be waited on, the fakes at the seams, then the client.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a harness that finds its own assumptions broken must stop the test"
)]

pub mod watched;

pub mod clock;
pub mod dice;
pub mod engine_gates;
pub mod file_server;
pub mod gate;
pub mod keychain;
pub mod model_server;
pub mod sentinel;
pub mod tls_front;

pub mod backend;
pub mod child;

pub mod client;
pub mod hand;
pub mod image_file;
pub mod picture;
pub mod relay;

pub mod kept_log;
pub mod seeded;
pub mod verdict;
pub mod world;
