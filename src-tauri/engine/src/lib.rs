//! Holdfast's engine: sessions, turns, the gateway to model servers, and the log. No Tauri, no UI.
//!
//! Read in this order: `log` (what is kept), `session` (who writes), `turn` (how an answer comes about), `gateway`
//! (who is asked), `attach` and `engine` (how windows and terminals follow).

pub mod clock;

pub mod gate;
mod harness;
pub mod mutant;

mod lock;
mod log;

mod session;
mod turn;

mod cabinet;
mod context;
pub mod gateway;
mod images;
mod sample;
mod tools;

mod attach;
mod engine;
mod gguf;
mod health;
mod model_files;
mod models;
mod pulls;
mod reader;
mod refusal;
mod shelf;
mod status;
mod wake;

mod mint;

pub use cabinet::{KEYCHAIN_WAIT, Keychain, KeychainError, NoKeychain};
pub use engine::{Config, Counters, Engine, canonical_data_dir};
pub use harness::Harness;
pub use log::{
    BackupError, CommitError, FreeSpace, LogCounters, OpenError, READ_LOCK_WAIT, ReadError, Room,
    StorageError, Trouble, backup,
};
#[cfg(feature = "faults")]
pub use log::{Fault, LogFaults, RefusedWrite, WriteStep};
pub use model_files::{FreeMemory, model_address};
pub use reader::Reader;
pub use refusal::sentence;
/// Showing a past turn again, its numbers and its words, for faces that have no page.
pub use transcript::{ledger, player, waterfall, words};

/// Whether faults can be put into this engine's log. The product is built without them.
pub const FAULTS: bool = cfg!(feature = "faults");
