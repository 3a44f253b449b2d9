//! Time, passed in. The engine asks a [`Clock`]; only [`SystemClock`] asks the machine.
//!
//! Wall time is for readers and stored; monotonic time decides. Tests drive a clock of their own by hand.

use std::{future::Future, pin::Pin, time::Duration};

use protocol::Timestamp;

/// A wait on a [`Clock`]. Cancel safe: dropping it disarms the timer.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where time comes from.
pub trait Clock: Send + Sync + 'static {
    /// The wall clock.
    fn wall(&self) -> Timestamp;
    /// Time since a fixed, arbitrary origin; never goes back.
    fn monotonic(&self) -> Duration;
    /// Ready when [`Clock::monotonic`] has reached `at`.
    fn sleep_until(&self, at: Duration) -> Sleep;

    /// Ready after `wait` from now.
    fn sleep(&self, wait: Duration) -> Sleep {
        self.sleep_until(self.monotonic().saturating_add(wait))
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
