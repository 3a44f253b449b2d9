//! Every type that crosses the boundary between engine and window, or that lands on the disk.
//!
//! Invariant: a stored event means the same for ever. Kinds and optional fields are added; nothing is renamed,
//! retyped or removed. Kept by the golden samples in `golden/`, which are only ever added to.
//! Compiled twice, natively and for wasm32, so the two sides cannot drift apart.
//! Not here: any decision. What an event does is the fold's business (`transcript`), what may happen is the engine's.

mod id;

mod event;
mod image;
mod outcome;

mod op;
mod report;

mod approval;
mod attach;
mod door;
mod status;
mod view;

mod health;
mod ledger;
mod limits;
mod options;

pub mod model_process;

mod call_form;
mod connection;
mod dropped;
mod examination;
mod key;
mod model_file;
mod provider;
mod pull;

pub use approval::*;
pub use attach::*;
pub use call_form::*;
pub use connection::*;
pub use door::*;
pub use dropped::*;
pub use event::*;
pub use examination::*;
pub use health::*;
pub use id::*;
pub use image::*;
pub use key::*;
pub use ledger::*;
pub use limits::*;
pub use model_file::*;
pub use op::*;
pub use options::*;
pub use outcome::*;
pub use provider::*;
pub use pull::*;
pub use report::*;
pub use status::*;
pub use view::*;

/// Version of the frames in this crate. A page whose engine speaks another one says so and reloads.
pub const PROTOCOL: u32 = 2;
