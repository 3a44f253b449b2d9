//! A model's own process: llama.cpp behind lines of JSON on the standard streams.
//!
//! Invariant: native code runs here and in no other process, so that whatever becomes of it ends one turn and no more.
//! It ends with whoever started it, also while native code hangs: a thread of its own waits for the end of stdin.
//! Read in this order: `streams` (who speaks), `prompt` (what the model reads), `speech` (what it said, with
//! `calls` and `channels`), `process`.

mod streams;

mod calls;
mod channels;
mod prompt;
mod speech;

#[cfg(feature = "llama")]
mod grammar;
#[cfg(feature = "llama")]
mod machine;
#[cfg(feature = "llama")]
mod process;
#[cfg(feature = "llama")]
mod words;

#[cfg(feature = "llama")]
pub use process::run;

pub use calls::Call;
pub use prompt::{Prompt, Template, TemplateError};
pub use speech::{Said, Speech, spoken_marks};
pub use streams::{Inbox, Voice};
