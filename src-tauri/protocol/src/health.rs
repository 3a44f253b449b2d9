//! How the engine is doing: what went wrong and was dealt with, counted at one place.

use serde::{Deserialize, Serialize};

use crate::{Boot, Timestamp};

/// What was saved of a damaged log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Salvage {
    /// Where the damaged file is kept.
    pub kept_as: String,
    /// What was wrong with it, in words.
    pub found: String,
    /// Events that could be read, and are in this log.
    pub events: u64,
    /// Conversations they belong to.
    pub sessions: u64,
    /// Conversations that lost something: events after a hole, or all of them.
    #[serde(default)]
    pub incomplete: u64,
}

/// One thing that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Counted {
    /// A turn ended.
    TurnEnded,
    /// A turn that an earlier run left open was closed at the start.
    TurnRecovered,
    /// A failed attempt was made again.
    Retry,
    /// A failed model gave way to the next one.
    Failover,
    /// A turn was cancelled: by its ceiling, by the engine's end, by a broken log, or by the user.
    Cancelled,
    /// A turn hit a bug of ours.
    Panicked,
    /// A turn ended without an outcome of its own.
    Backstop,
    /// A tool panicked.
    ToolPanicked,
    /// A commit took longer than a quarter of a second.
    SlowWrite,
    /// A commit failed.
    FailedWrite,
    /// A read failed.
    FailedRead,
    /// A conversation was summed up to fit its model.
    Compaction,
    /// The disk was found to be filling up.
    LowRoom,
    /// The computer slept while this ran.
    Slept,
    /// A window attached again because it had missed something.
    Gap,
    /// A window attached again because the engine told it to begin anew.
    Reset,
    /// A window attached again because an answer did not come.
    LostAnswer,
    /// An op id came twice with different content.
    OpIdConflict,
}

impl Counted {
    /// All of them, in the order they are shown.
    pub const ALL: &'static [Self] = &[
        Self::TurnEnded,
        Self::TurnRecovered,
        Self::Retry,
        Self::Failover,
        Self::Cancelled,
        Self::Panicked,
        Self::Backstop,
        Self::ToolPanicked,
        Self::SlowWrite,
        Self::FailedWrite,
        Self::FailedRead,
        Self::Compaction,
        Self::LowRoom,
        Self::Slept,
        Self::Gap,
        Self::Reset,
        Self::LostAnswer,
        Self::OpIdConflict,
    ];

    /// Whether a single one is a bug or a fault worth looking at.
    pub const fn is_fault(self) -> bool {
        match self {
            Self::TurnEnded
            | Self::TurnRecovered
            | Self::Retry
            | Self::Failover
            | Self::Cancelled
            | Self::SlowWrite
            | Self::Compaction
            | Self::LowRoom
            | Self::Slept
            | Self::Gap
            | Self::Reset
            | Self::LostAnswer => false,
            Self::Panicked
            | Self::Backstop
            | Self::ToolPanicked
            | Self::FailedWrite
            | Self::FailedRead
            | Self::OpIdConflict => true,
        }
    }
}

/// `health` -> this
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthReport {
    /// This run.
    pub boot: Boot,
    /// Since when it runs; the counts are of this time.
    pub started_at: Timestamp,
    /// Where everything is kept.
    pub data_dir: String,
    /// Size of the database, its write-ahead log included.
    pub database_bytes: u64,
    /// Room left on its disk, where the system tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    /// Turns that run now.
    pub running_turns: u64,
    /// Pages that follow something now.
    pub attachments: u64,
    /// Every [`Counted`], in its order.
    pub counts: Vec<(Counted, u64)>,
    /// The newest backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_backup: Option<String>,
    /// What was saved of damaged logs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub salvages: Vec<Salvage>,
}

/// Why a page attaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttachReason {
    /// It opens the stream.
    #[default]
    Open,
    /// See [`Counted::Gap`].
    Gap,
    /// See [`Counted::Reset`].
    Reset,
    /// See [`Counted::LostAnswer`].
    LostAnswer,
}
