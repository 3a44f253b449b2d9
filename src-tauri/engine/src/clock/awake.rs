//! A clock without its sleep: for machines whose monotonic clock goes on while they sleep, as it does on Windows.
//!
//! Invariant: what passed while nobody could look is not time awake. Kept by: somebody looks at every beat, so a look
//! that comes much later than that is the first after a sleep, whoever takes it; a timer that fired in between finds
//! that its time has not come.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use protocol::Timestamp;

use super::{BEAT, Clock, Sleep};
use crate::{Harness, mutant::mutated};

/// A look that comes later than this after the last one was preceded by a sleep. A few beats: a busy machine is late too.
const LATE: Duration = Duration::from_secs(15);

/// A clock, and what has to be taken out of it.
#[derive(Debug)]
pub struct Awake<C>(Arc<Inner<C>>);

#[derive(Debug)]
struct Inner<C> {
    clock: C,
    looks: Mutex<Looks>,
    harness: Harness,
}

#[derive(Debug)]
struct Looks {
    last: Duration,
    slept: Duration,
}

impl<C> Clone for Awake<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<C: Clock> Awake<C> {
    /// This clock, awake now.
    pub fn new(clock: C, harness: Harness) -> Self {
        let looks = Mutex::new(Looks {
            last: clock.monotonic(),
            slept: Duration::ZERO,
        });
        Self(Arc::new(Inner {
            clock,
            looks,
            harness,
        }))
    }
}

impl<C: Clock> Clock for Awake<C> {
    fn wall(&self) -> Timestamp {
        self.0.clock.wall()
    }

    fn monotonic(&self) -> Duration {
        let mut looks = self.0.looks.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock: two looks never come in the wrong order.
        let now = self.0.clock.monotonic();
        let since = now.saturating_sub(looks.last);
        if since > LATE && !mutated!(self.0.harness, WallClock) {
            looks.slept += since.saturating_sub(BEAT);
        }
        looks.last = now;
        now.saturating_sub(looks.slept)
    }

    fn elapsed(&self) -> Duration {
        self.0.clock.elapsed()
    }

    fn sleep_until(&self, at: Duration) -> Sleep {
        let this = self.clone();
        Box::pin(async move {
            loop {
                let left = at.saturating_sub(this.monotonic());
                if left.is_zero() {
                    return;
                }
                this.0.clock.sleep(left).await;
            }
        })
    }

    fn beat(&self) -> Sleep {
        self.0.clock.beat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where it stands; nobody waits on it.
    #[derive(Debug, Default)]
    struct Hand(Mutex<Duration>);

    impl Hand {
        fn advance(&self, secs: u64) {
            *self.0.lock().unwrap() += Duration::from_secs(secs);
        }
    }

    impl Clock for Arc<Hand> {
        fn wall(&self) -> Timestamp {
            Timestamp::default()
        }
        fn monotonic(&self) -> Duration {
            *self.0.lock().unwrap()
        }
        fn sleep_until(&self, _at: Duration) -> Sleep {
            Box::pin(std::future::pending())
        }
    }

    #[test]
    fn what_passes_between_two_beats_counts_and_a_sleep_does_not() {
        let hand = Arc::new(Hand::default());
        let clock = Awake::new(Arc::clone(&hand), Harness::default());
        for _ in 0..12 {
            hand.advance(5);
            clock.monotonic();
        }
        assert_eq!(clock.monotonic(), Duration::from_secs(60));
        hand.advance(3_600);
        assert_eq!(clock.monotonic(), Duration::from_secs(65), "a beat at most");
        assert_eq!(clock.elapsed(), Duration::from_secs(3_660));
        hand.advance(15);
        assert_eq!(
            clock.monotonic(),
            Duration::from_secs(80),
            "late, not asleep"
        );
    }
}
