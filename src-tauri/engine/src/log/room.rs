//! Room on the disk, looked at before SQLite runs into its end.
//!
//! Invariant: a turn is not begun that has no room for its end. Kept by: new turns are refused and running ones end
//! below the floor, while what is left is still enough to write their ends down.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::Counts;
use crate::clock::Clock;

/// Asks how many bytes are free where a path is.
pub type FreeSpace = Arc<dyn Fn(&Path) -> io::Result<u64> + Send + Sync>;

/// Less than this is worth a word: an hour of answers is a few megabytes, but other programs write too.
const LOW_BYTES: u64 = 512 * 1024 * 1024;

/// Less than this, and nothing new begins: room for the ends of all running turns, a checkpoint and a tool's result.
const FLOOR_BYTES: u64 = 64 * 1024 * 1024;

/// How long an answer of the disk counts. Asking costs microseconds, but not on every kind of disk.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How much room there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Nothing to say.
    Enough,
    /// Not much, in bytes; all goes on.
    Low {
        /// Bytes that are free.
        free: u64,
    },
    /// Too little to begin anything, in bytes.
    Full {
        /// Bytes that are free.
        free: u64,
    },
}

impl Room {
    fn of(free: u64) -> Self {
        match free {
            ..FLOOR_BYTES => Self::Full { free },
            FLOOR_BYTES..LOW_BYTES => Self::Low { free },
            LOW_BYTES.. => Self::Enough,
        }
    }
}

/// Looks at the room now and then. Clones are the same.
#[derive(Clone)]
pub(crate) struct RoomWatch(Arc<Inner>);

struct Inner {
    dir: PathBuf,
    free_space: FreeSpace,
    clock: Arc<dyn Clock>,
    counters: Counts,
    seen: Mutex<Option<(Duration, Room)>>,
}

impl RoomWatch {
    pub(super) fn new(
        dir: &Path,
        free_space: FreeSpace,
        clock: Arc<dyn Clock>,
        counters: Counts,
    ) -> Self {
        Self(Arc::new(Inner {
            dir: dir.to_owned(),
            free_space,
            clock,
            counters,
            seen: Mutex::new(None),
        }))
    }

    /// How much room there is, as of a few seconds ago at most.
    pub(crate) fn now(&self) -> Room {
        let inner = &self.0;
        let now = inner.clock.monotonic();
        let mut seen = inner.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, room)) = *seen
            && now.saturating_sub(at) < LOOK_EVERY
        {
            return room;
        }
        let room = match (inner.free_space)(&inner.dir) {
            Ok(free) => Room::of(free),
            Err(error) => {
                // A disk that does not say is written to until it says no.
                tracing::warn!(%error, "the disk does not say how much room there is");
                Room::Enough
            }
        };
        let before = seen.replace((now, room)).map(|(_, room)| room);
        if room != Room::Enough && matches!(before, None | Some(Room::Enough)) {
            tracing::warn!(?room, "the disk is filling up");
            inner.counters.add(|count| count.low_room += 1);
        }
        room
    }

    /// Bytes that are free, if the disk says.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        match (self.0.free_space)(&self.0.dir) {
            Ok(free) => Some(free),
            Err(error) => {
                tracing::warn!(%error, "the disk does not say how much room there is");
                None
            }
        }
    }

    /// Why nothing new begins, if there is too little room.
    pub(crate) fn refusal(&self) -> Option<NoRoom> {
        match self.now() {
            Room::Full { free } => Some(NoRoom {
                dir: self.0.dir.clone(),
                free,
            }),
            Room::Enough | Room::Low { .. } => None,
        }
    }
}

/// There is too little room to begin anything.
#[derive(Debug)]
pub(crate) struct NoRoom {
    dir: PathBuf,
    free: u64,
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "only {} MB are free on the disk that holds {}, and an answer that cannot be saved is not begun",
            self.free / (1024 * 1024),
            self.dir.display()
        )
    }
}
