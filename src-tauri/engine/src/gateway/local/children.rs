//! The models that are in memory: one process each, kept for a while after its last answer.
//!
//! Invariant: a file has at most one process, and a process that leaves is found by nobody any more. Whoever uses one
//! holds a [`Use`]; only what nobody uses is ended for time or for room.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use protocol::{Model, Timestamp, model_process::Load};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Host,
    child::{Child, Ended},
    memory,
};
use crate::{FreeMemory, clock::Clock};

/// As an Ollama keeps them, if nobody says how long.
const KEPT_FOR: Duration = Duration::from_secs(5 * 60);

/// All of them. Cheap to clone.
#[derive(Clone)]
pub(in crate::gateway) struct Children(Arc<Inner>);

struct Inner {
    host: Host,
    free_memory: FreeMemory,
    clock: Arc<dyn Clock>,
    tracker: TaskTracker,
    table: Mutex<HashMap<PathBuf, Entry>>,
    /// Somebody let go of one, or one is gone.
    news: watch::Sender<u64>,
    closing: CancellationToken,
}

struct Entry {
    child: Arc<Child>,
    users: usize,
    /// Counts the uses, so that a timer knows whether there was one meanwhile.
    uses: u64,
    /// When it leaves, and when it was last used.
    until: Option<Duration>,
    used_at: Duration,
}

/// A process in use. Dropping it lets go of it.
pub(super) struct Use {
    pub(super) child: Arc<Child>,
    keep: Option<Duration>,
    inner: Arc<Inner>,
}

impl Children {
    pub(in crate::gateway) fn new(
        host: Host,
        free_memory: FreeMemory,
        clock: Arc<dyn Clock>,
        tracker: TaskTracker,
    ) -> Self {
        Self(Arc::new(Inner {
            host,
            free_memory,
            clock,
            tracker,
            table: Mutex::default(),
            news: watch::channel(0).0,
            closing: CancellationToken::new(),
        }))
    }

    /// The process of a model, loaded in this way; started if there is none. Waits while others use it in another way.
    ///
    /// Cancel safe.
    ///
    /// # Errors
    /// That none can be started.
    pub(super) async fn take(
        &self,
        file: PathBuf,
        load: Load,
        keep: Option<Duration>,
    ) -> std::io::Result<Use> {
        loop {
            let mut news = self.0.news.subscribe();
            match self.try_take(&file, &load, keep)? {
                Some(taken) => return Ok(taken),
                // The sender lives as long as this.
                None => drop(news.changed().await),
            }
        }
    }

    fn try_take(
        &self,
        file: &Path,
        load: &Load,
        keep: Option<Duration>,
    ) -> std::io::Result<Option<Use>> {
        if self.0.closing.is_cancelled() {
            return Err(std::io::Error::other("Holdfast is closing"));
        }
        let now = self.0.clock.monotonic();
        let mut table = self.0.table();
        if let Some(entry) = table.get_mut(file) {
            if !entry.child.is_over() && entry.child.load == *load {
                entry.users = entry.users.saturating_add(1);
                entry.uses = entry.uses.saturating_add(1);
                entry.until = None;
                return Ok(Some(self.0.used(&entry.child, keep)));
            }
            if !entry.child.is_over() && entry.users > 0 {
                return Ok(None);
            }
            entry.child.end();
            table.remove(file);
        }
        self.0.make_room(&mut table, file);
        let child = self.0.start(file, load)?;
        let entry = Entry {
            child: Arc::clone(&child),
            users: 1,
            uses: 1,
            until: None,
            used_at: now,
        };
        table.insert(file.to_owned(), entry);
        Ok(Some(self.0.used(&child, keep)))
    }

    /// Whether a process of this file is there already.
    pub(super) fn has(&self, file: &Path) -> bool {
        let table = self.0.table();
        table.get(file).is_some_and(|entry| !entry.child.is_over())
    }

    /// Takes a model out of memory. False if somebody uses it.
    pub(super) async fn unload(&self, file: &Path) -> bool {
        let child = {
            let mut table = self.0.table();
            match table.get(file) {
                None => return true,
                Some(entry) if entry.users > 0 && !entry.child.is_over() => return false,
                Some(_) => table.remove(file).map(|entry| entry.child),
            }
        };
        if let Some(child) = child {
            child.end();
            child.until_ended().await;
        }
        true
    }

    /// Adds what is known of a model because it is in memory.
    pub(super) fn describe(&self, file: &Path, model: &mut Model) {
        let (now, wall) = (self.0.clock.monotonic(), self.0.clock.wall());
        let table = self.0.table();
        let entry = table.get(file).filter(|entry| {
            !entry.child.is_over()
                && entry
                    .child
                    .is_loaded
                    .load(std::sync::atomic::Ordering::Relaxed)
        });
        model.loaded = Some(entry.is_some());
        let Some(entry) = entry else { return };
        model.memory_bytes = entry.child.pid.and_then(memory::of_process);
        model.expires_at = entry.until.map(|until| {
            let left = until.saturating_sub(now).as_millis();
            let left = i64::try_from(left).unwrap_or(i64::MAX);
            Timestamp::from_millis(wall.millis().saturating_add(left))
        });
    }

    /// Ends all of them; none begins any more.
    pub(in crate::gateway) fn close(&self) {
        self.0.closing.cancel();
        for (_, entry) in self.0.table().drain() {
            entry.child.end();
        }
    }
}

impl Inner {
    fn table(&self) -> std::sync::MutexGuard<'_, HashMap<PathBuf, Entry>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn used(self: &Arc<Self>, child: &Arc<Child>, keep: Option<Duration>) -> Use {
        Use {
            child: Arc::clone(child),
            keep,
            inner: Arc::clone(self),
        }
    }

    fn start(self: &Arc<Self>, file: &Path, load: &Load) -> std::io::Result<Arc<Child>> {
        let inner = Arc::downgrade(self);
        let gone = move || {
            if let Some(inner) = inner.upgrade() {
                inner.changed();
            }
        };
        Child::start(
            &self.host,
            file.to_owned(),
            load.clone(),
            &self.tracker,
            gone,
        )
    }

    /// While memory is short, what nobody uses leaves, the longest unused first.
    fn make_room(&self, table: &mut HashMap<PathBuf, Entry>, file: &Path) {
        // Who cannot be asked is believed to have enough; a file that is not there needs none.
        let needed = std::fs::metadata(file).map_or(0, |found| found.len());
        let mut free = (self.free_memory)().unwrap_or(u64::MAX);
        while free < needed {
            let idle = table.iter().filter(|(_, entry)| entry.users == 0);
            let Some(oldest) = idle
                .min_by_key(|(_, entry)| entry.used_at)
                .map(|(file, _)| file.clone())
            else {
                return;
            };
            let Some(entry) = table.remove(&oldest) else {
                return;
            };
            tracing::info!("memory is short; a model that nobody uses leaves it");
            entry.child.end();
            let its = std::fs::metadata(&oldest).map_or(0, |found| found.len());
            free = free.saturating_add(its.max(1));
        }
    }

    fn changed(&self) {
        self.news.send_modify(|news| *news = news.wrapping_add(1));
    }

    /// One user less; the last one sets the time at which it leaves.
    fn released(self: &Arc<Self>, child: &Arc<Child>, keep: Option<Duration>) {
        let now = self.clock.monotonic();
        let mut table = self.table();
        let entry = table
            .get_mut(&child.file)
            .filter(|entry| Arc::ptr_eq(&entry.child, child));
        if let Some(entry) = entry {
            entry.users = entry.users.saturating_sub(1);
            entry.used_at = now;
            if entry.users == 0 {
                if child.is_over() || keep == Some(Duration::ZERO) {
                    child.end();
                    table.remove(&child.file);
                } else if let Some(keep) = keep {
                    let until = now.saturating_add(keep);
                    entry.until = Some(until);
                    let uses = entry.uses;
                    self.leave_at(child, uses, until);
                }
            }
        }
        drop(table);
        self.changed();
    }

    fn leave_at(self: &Arc<Self>, child: &Arc<Child>, uses: u64, until: Duration) {
        let late = self.clock.sleep_until(until);
        let (inner, child) = (Arc::downgrade(self), Arc::downgrade(child));
        let closing = self.closing.clone();
        self.tracker.spawn(async move {
            tokio::select! {
                () = late => leave(&inner, &child, uses),
                () = closing.cancelled() => {}
                _ = ended(&child) => {}
            }
        });
    }
}

async fn ended(child: &Weak<Child>) -> Ended {
    match child.upgrade() {
        Some(child) => child.until_ended().await,
        None => Ended::Unknown,
    }
}

/// The time is over; unless somebody has used it since.
fn leave(inner: &Weak<Inner>, child: &Weak<Child>, uses: u64) {
    let (Some(inner), Some(child)) = (inner.upgrade(), child.upgrade()) else {
        return;
    };
    let mut table = inner.table();
    let is_idle = table.get(&child.file).is_some_and(|entry| {
        Arc::ptr_eq(&entry.child, &child) && entry.users == 0 && entry.uses == uses
    });
    if is_idle {
        table.remove(&child.file);
        child.end();
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.inner.released(&self.child, self.keep);
    }
}

/// How long a model stays, as options say it; `None` is for ever.
pub(super) fn kept_for(words: Option<&str>) -> Option<Duration> {
    let Some(words) = words.map(str::trim) else {
        return Some(KEPT_FOR);
    };
    if words.starts_with('-') {
        return None;
    }
    if let Ok(seconds) = words.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let mut rest = words.trim_start_matches('+');
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let (unit, one) = [
            ("ms", 1e-3),
            ("us", 1e-6),
            ("µs", 1e-6),
            ("ns", 1e-9),
            ("h", 3600.0),
            ("m", 60.0),
            ("s", 1.0),
        ]
        .into_iter()
        .find(|(unit, _)| after.starts_with(unit))?;
        // Options were checked when they were chosen; what is no number here was never accepted.
        seconds += number.parse::<f64>().unwrap_or_default() * one;
        rest = after.strip_prefix(unit).unwrap_or_default();
    }
    Some(Duration::try_from_secs_f64(seconds).unwrap_or(KEPT_FOR))
}

#[cfg(test)]
mod tests;
