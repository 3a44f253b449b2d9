//! Gates: named points at which the engine of a test says that it arrived, and waits until it may go on.
//!
//! Invariant: compiled with the cargo feature `gates` only; without it a gate is nothing at all. A gate stands where a
//! crash, a panic or an overlap has to be shown possible or harmless, and it decides nothing.

/// Whether gates are compiled in. The product never has them.
pub const GATES: bool = cfg!(feature = "gates");

/// Text that only a build with gates contains, for whoever packs the product.
#[cfg(feature = "gates")]
pub(crate) const MARKER: &str = "holdfast-gates-compiled-in";

#[cfg(feature = "gates")]
pub use points::{Gate, Gatekeeper};

/// Stands at a gate, in async code: `gate!(harness, BeforeDial)`.
macro_rules! gate {
    ($harness:expr, $gate:ident) => {{
        #[cfg(feature = "gates")]
        $harness.stand_at($crate::gate::Gate::$gate).await;
        #[cfg(not(feature = "gates"))]
        let _ = &$harness;
    }};
}

/// The same on a thread that may block.
macro_rules! gate_blocking {
    ($harness:expr, $gate:ident) => {{
        #[cfg(feature = "gates")]
        $harness.stand_at_blocking($crate::gate::Gate::$gate);
        #[cfg(not(feature = "gates"))]
        let _ = &$harness;
    }};
}

pub(crate) use {gate, gate_blocking};

#[cfg(feature = "gates")]
mod points {
    use std::{future::Future, pin::Pin};

    use serde::{Deserialize, Serialize};

    /// The points there are, in the order in which a turn comes to them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum Gate {
        /// The writer has written the first of an op's events, and none of it is committed.
        OpHalfWritten,
        /// Message and start of the turn are committed; the turn does not run yet.
        MessageCommitted,
        /// A provider is about to be dialled.
        BeforeDial,
        /// A provider's headers came; nothing of the body is read yet.
        HeadRead,
        /// Bytes came from a provider and are about to be decoded.
        Decoding,
        /// The turn's machine is about to decide.
        Deciding,
        /// A fragment of text is committed.
        TextCommitted,
        /// A tool call is committed; its tool does not run yet.
        CallCommitted,
        /// A tool is about to do what it does; its start is committed and synced.
        ToolRunning,
        /// A server is about to be asked for a download.
        PullBegins,
        /// The log was asked which downloads have not ended; those that run are not looked at yet.
        PullsRead,
        /// The folder's lock is held by somebody; whether for long is looked at now.
        FolderHeld,
        /// A model is about to be looked at.
        LookBegins,
        /// The turn has ended; its terminal is not written yet.
        BeforeTerminal,
        /// The terminal is committed.
        AfterTerminal,
        /// A finished turn is about to be folded, to keep its view.
        ViewFolding,
        /// The writer has written a transaction and is about to commit it.
        Committing,
        /// A poll waits for changes and has not looked yet.
        PollRegistered,
        /// A poll has looked, found nothing, and is about to park.
        PollLooked,
        /// A poll or an attach has read its rows and not answered yet.
        RowsRead,
        /// Recovery has written the end of a turn and not committed it.
        RecoveryHalfWritten,
        /// Recovery has closed a turn; others may be left.
        RecoveryOneClosed,
        /// A database of an older version is about to be copied and brought up to date.
        MigrationBegins,
        /// The copy is made.
        MigrationBackedUp,
        /// A step's statements have run.
        MigrationApplied,
        /// And its number is set.
        MigrationNumbered,
        /// And both are committed.
        MigrationCommitted,
    }

    /// Who decides how long anybody stands at a gate. It may also panic there, to see what a panic does.
    pub trait Gatekeeper: std::fmt::Debug + Send + Sync + 'static {
        /// Somebody stands at the gate; ready when they may go on.
        fn pass(&self, gate: Gate) -> Pin<Box<dyn Future<Output = ()> + Send>>;
        /// The same on a thread that may block; returns when they may go on.
        fn pass_blocking(&self, gate: Gate);
    }
}
