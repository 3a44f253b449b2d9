//! Wakes: that the computer slept, found by comparing the clock that sleeps with the one that does not.
//!
//! Invariant: only sleep is called sleep. A wall clock that somebody sets, forwards or back, moves neither of the two.
//! Not here: what becomes of a connection that slept (`gateway::attempt`), and that limits do not count it (`clock`).

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use protocol::{Counted, Slept, Timestamp};
use tokio::sync::watch;

use crate::{clock::Clock, health::Health};

/// Shorter sleeps are not worth a word: connections outlive them, and the two clocks are never read at the same moment.
const SLEEP_MIN: Duration = Duration::from_secs(10);

/// Every sleep of this run. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Wakes(Arc<Inner>);

struct Inner {
    clock: Arc<dyn Clock>,
    health: Option<Arc<Health>>,
    asleep: Mutex<Asleep>,
    sleeps: watch::Sender<Vec<Slept>>,
}

/// How much longer the one clock has run than the other, at the last look.
struct Asleep(Duration);

impl Asleep {
    fn of(clock: &dyn Clock) -> Duration {
        // The one that stands still is read first, so that the time between the two reads cannot hide any sleep.
        let awake = clock.monotonic();
        clock.elapsed().saturating_sub(awake)
    }

    fn look(&mut self, now: Duration) -> Option<Duration> {
        // Measured from look to look: two clocks may drift apart by a little every day, and that is no sleep.
        let by = now.saturating_sub(self.0);
        self.0 = now;
        (by >= SLEEP_MIN).then_some(by)
    }
}

impl Wakes {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let asleep = Mutex::new(Asleep(Asleep::of(clock.as_ref())));
        Self(Arc::new(Inner {
            clock,
            health: None,
            asleep,
            sleeps: watch::channel(Vec::new()).0,
        }))
    }

    /// The same, and each is counted.
    pub(crate) fn counted_by(mut self, health: Arc<Health>) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.health = Some(health);
        }
        self
    }

    /// Compares the clocks now, and tells everyone if the computer has slept since the last time.
    pub(crate) fn look(&self) {
        let inner = &self.0;
        let mut asleep = inner.asleep.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(by) = asleep.look(Asleep::of(inner.clock.as_ref())) else {
            return;
        };
        let to = inner.clock.wall();
        let by_ms = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        let from = Timestamp::from_millis(to.millis().saturating_sub(by_ms));
        tracing::info!(slept_s = by.as_secs(), "the computer slept");
        if let Some(health) = &inner.health {
            health.count(Counted::Slept);
        }
        inner
            .sleeps
            .send_modify(|sleeps| sleeps.push(Slept { from, to }));
    }

    /// Looks at every beat, until the other end of `running` changes or goes away.
    pub(crate) async fn keep_looking<T>(self, mut running: watch::Receiver<T>) {
        loop {
            // Counted from before the look: what happens after it is seen by the next one.
            let beat = self.0.clock.beat();
            self.look();
            tokio::select! {
                _ = running.changed() => return,
                () = beat => {}
            }
        }
    }

    /// Follows the sleeps from now on.
    pub(crate) fn follow(&self) -> Woken {
        let sleeps = self.0.sleeps.subscribe();
        let seen = sleeps.borrow().len();
        Woken { sleeps, seen }
    }
}

/// Sleeps that have not been dealt with.
pub(crate) struct Woken {
    sleeps: watch::Receiver<Vec<Slept>>,
    seen: usize,
}

impl Woken {
    /// The next one, if there is one.
    pub(crate) fn ready(&mut self) -> Option<Slept> {
        let slept = self.sleeps.borrow_and_update().get(self.seen).copied();
        self.seen += usize::from(slept.is_some());
        slept
    }

    /// The next one. Cancel safe.
    pub(crate) async fn next(&mut self) -> Slept {
        loop {
            if let Some(slept) = self.ready() {
                return slept;
            }
            if self.sleeps.changed().await.is_err() {
                // Nobody looks any more.
                std::future::pending::<()>().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_is_told_once_and_clocks_that_drift_apart_are_none() {
        let secs = Duration::from_secs;
        let mut asleep = Asleep(secs(100));
        assert_eq!(asleep.look(secs(100)), None);
        assert_eq!(asleep.look(secs(3_700)), Some(secs(3_600)));
        assert_eq!(asleep.look(secs(3_700)), None);
        assert_eq!(asleep.look(secs(3_706)), None);
        assert_eq!(asleep.look(secs(3_712)), None);
        assert_eq!(asleep.look(secs(0)), None);
        assert_eq!(asleep.look(secs(10)), Some(secs(10)));
    }
}
