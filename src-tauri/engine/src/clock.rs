//! Time, passed in. The engine asks a [`Clock`]; only [`SystemClock`] asks the machine.
//!
//! Wall time is for readers and stored; monotonic time decides. Tests drive a clock of their own by hand.
//! Invariant: monotonic time stands still while the computer sleeps, so that no limit counts what nobody could do
//! anything about. Linux and macOS give such a clock; on Windows the machine's goes on, and [`Awake`] takes the sleep out.

mod awake;

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use protocol::Timestamp;

use crate::Harness;

pub use awake::Awake;

/// How often the clocks are compared: soon enough after waking that a dead connection is found within half a minute.
pub const BEAT: Duration = Duration::from_secs(5);

/// A wait on a [`Clock`]. Cancel safe: dropping it disarms the timer.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where time comes from.
pub trait Clock: Send + Sync + 'static {
    /// The wall clock.
    fn wall(&self) -> Timestamp;
    /// Time awake since a fixed, arbitrary origin; never goes back.
    fn monotonic(&self) -> Duration;
    /// Time since a fixed, arbitrary origin, sleep included, whatever is done to the wall clock.
    fn elapsed(&self) -> Duration {
        self.monotonic()
    }
    /// Ready when [`Clock::monotonic`] has reached `at`.
    fn sleep_until(&self, at: Duration) -> Sleep;

    /// Ready after `wait` from now.
    fn sleep(&self, wait: Duration) -> Sleep {
        self.sleep_until(self.monotonic().saturating_add(wait))
    }

    /// Ready when it is time to compare the clocks again. No limit of anything.
    fn beat(&self) -> Sleep {
        self.sleep(BEAT)
    }
}

/// The clock of this machine, awake time its only measure.
pub fn of_this_machine() -> Arc<dyn Clock> {
    let clock = SystemClock::new();
    // These two say so by themselves, and without guessing.
    if cfg!(any(
        target_os = "linux",
        target_os = "android",
        target_vendor = "apple"
    )) {
        Arc::new(clock)
    } else {
        Arc::new(Awake::new(clock, Harness::default()))
    }
}

/// Ready when the sleep is over; never without one.
pub(crate) async fn ready(sleep: Option<&mut Sleep>) {
    match sleep {
        Some(sleep) => sleep.await,
        None => std::future::pending().await,
    }
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    origin: std::time::Instant,
}

impl SystemClock {
    /// Its origin is now.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that asks the machine for the time"
    )]
    #[expect(
        clippy::new_without_default,
        reason = "a clock has a moment of creation, not a default"
    )]
    pub fn new() -> Self {
        Self {
            origin: std::time::Instant::now(),
        }
    }
}

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that asks the machine for the time"
    )]
    fn wall(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        // A clock before 1970 reads as 1970: times are for the reader, nothing is decided by them.
        Timestamp::from_millis(since.map_or(0, |d| d.as_millis() as i64))
    }

    fn monotonic(&self) -> Duration {
        self.origin.elapsed()
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn elapsed(&self) -> Duration {
        since_boot(rustix::time::ClockId::Boottime)
    }

    // The same name as on Linux, and here it is the clock that goes on in a sleep.
    #[cfg(target_vendor = "apple")]
    fn elapsed(&self) -> Duration {
        since_boot(rustix::time::ClockId::Monotonic)
    }

    fn sleep_until(&self, at: Duration) -> Sleep {
        let until = self.origin.checked_add(at);
        Box::pin(async move {
            match until {
                Some(until) => tokio::time::sleep_until(until.into()).await,
                // Further away than the machine can count.
                None => std::future::pending().await,
            }
        })
    }
}

#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
fn since_boot(clock: rustix::time::ClockId) -> Duration {
    // Neither part of such a clock is ever below zero.
    let time = rustix::time::clock_gettime(clock);
    let secs = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(secs, u32::try_from(time.tv_nsec).unwrap_or(0))
}
