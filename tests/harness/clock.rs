//! The test clock: time moves only when the test moves it.
//!
//! Invariant: no auto-advance. A runtime's paused clock jumps whenever the runtime is idle, though bytes or the writer
//! thread are still on their way; this one stands until told. Wall and monotonic time move together or apart.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use engine::clock::{Clock, Sleep};
use protocol::Timestamp;

use crate::watched::Watched;

/// Where every test's wall clock begins: 2026-03-01 09:00:00 UTC.
const WALL_AT_START_MS: i64 = 1_772_355_600_000;

#[derive(Debug)]
struct Time {
    wall_ms: i64,
    monotonic: Duration,
    /// How long it slept, by the clock that goes on.
    slept: Duration,
    moves: u64,
    /// Whoever looks at the clock again when it has moved; all have looked since its last move.
    beats: Vec<Waker>,
    next_timer: u64,
    timers: BTreeMap<u64, Timer>,
}

#[derive(Debug)]
struct Timer {
    at: Duration,
    waker: Option<Waker>,
}

/// A clock moved by hand. Clones are the same clock.
#[derive(Clone, Debug)]
pub struct TestClock {
    time: Arc<Watched<Time>>,
}

impl Default for TestClock {
    fn default() -> Self {
        Self {
            time: Arc::new(Watched::new(Time {
                wall_ms: WALL_AT_START_MS,
                monotonic: Duration::ZERO,
                slept: Duration::ZERO,
                moves: 0,
                beats: Vec::new(),
                next_timer: 0,
                timers: BTreeMap::new(),
            })),
        }
    }
}

impl TestClock {
    /// Time passes: both clocks move, and every timer that has become due fires.
    pub fn advance(&self, by: Duration) {
        self.move_by(millis(by), by, Duration::ZERO);
    }

    /// Somebody sets the wall clock forward; no time passes.
    pub fn advance_wall(&self, by: Duration) {
        self.move_by(millis(by), Duration::ZERO, Duration::ZERO);
    }

    /// Somebody sets the wall clock back; no time passes.
    pub fn set_wall_back(&self, by: Duration) {
        self.move_by(-millis(by), Duration::ZERO, Duration::ZERO);
    }

    /// The computer sleeps, and its monotonic clock stands still: Linux, macOS.
    pub fn fall_asleep(&self, by: Duration) {
        self.move_by(millis(by), Duration::ZERO, by);
    }

    fn move_by(&self, wall_ms: i64, monotonic: Duration, slept: Duration) {
        let due = self.time.change(|time| {
            time.wall_ms += wall_ms;
            time.monotonic += monotonic;
            time.slept += slept;
            time.moves += 1;
            let now = time.monotonic;
            let mut due = std::mem::take(&mut time.beats);
            let timers = time.timers.values_mut().filter(|timer| timer.at <= now);
            due.extend(timers.filter_map(|timer| timer.waker.take()));
            due
        });
        due.into_iter().for_each(Waker::wake);
    }

    /// How long each armed timer still has to run, shortest first; those that are due no longer count.
    pub fn armed(&self) -> Vec<Duration> {
        self.time.read(Time::remaining)
    }

    /// Waits until a timer is armed that still has exactly `remaining` to run.
    pub async fn until_armed(&self, remaining: Duration) {
        self.time
            .until(&format!("a timer over {remaining:?}"), |time| {
                time.remaining().contains(&remaining).then_some(())
            })
            .await;
    }

    /// Waits until a timer is armed that fires within `limit`, and lets that much time pass.
    pub async fn fire_next_within(&self, limit: Duration) {
        let wait = self
            .time
            .until(&format!("a timer that fires within {limit:?}"), |time| {
                time.remaining()
                    .first()
                    .copied()
                    .filter(|wait| *wait <= limit)
            })
            .await;
        self.advance(wait);
    }

    /// Waits until `count` timers are armed that still have between `least` and `most` to run.
    pub async fn until_armed_between(&self, least: Duration, most: Duration, count: usize) {
        self.time
            .until(
                &format!("{count} timers over {least:?} to {most:?}"),
                |time| {
                    let remaining = time.remaining();
                    let between = remaining
                        .iter()
                        .filter(|wait| (least..=most).contains::<Duration>(wait));
                    (between.count() >= count).then_some(())
                },
            )
            .await;
    }

    /// Waits until a timer is armed that fires within `limit`; how long it still has to run.
    pub async fn until_armed_within(&self, limit: Duration) -> Duration {
        self.time
            .until(&format!("a timer that fires within {limit:?}"), |time| {
                let first = time.remaining().first().copied();
                first.filter(|wait| *wait <= limit)
            })
            .await
    }

    /// Waits until the engine has looked at the clock since it was last moved.
    pub async fn until_looked_at(&self) {
        self.time
            .until("a look at the clock", |time| {
                (!time.beats.is_empty()).then_some(())
            })
            .await;
    }

    /// Waits until no timer is armed.
    pub async fn until_no_timer(&self) {
        self.time
            .until("the last timer to be disarmed", |time| {
                time.timers.is_empty().then_some(())
            })
            .await;
    }
}

impl Time {
    fn remaining(&self) -> Vec<Duration> {
        let mut remaining: Vec<_> = self
            .timers
            .values()
            .filter(|timer| timer.at > self.monotonic)
            .map(|timer| timer.at - self.monotonic)
            .collect();
        remaining.sort_unstable();
        remaining
    }
}

impl Clock for TestClock {
    fn wall(&self) -> Timestamp {
        self.time.read(|time| Timestamp::from_millis(time.wall_ms))
    }

    fn monotonic(&self) -> Duration {
        self.time.read(|time| time.monotonic)
    }

    fn elapsed(&self) -> Duration {
        self.time.read(|time| time.monotonic + time.slept)
    }

    fn beat(&self) -> Sleep {
        let (clock, moves) = (self.clone(), self.time.read(|time| time.moves));
        Box::pin(std::future::poll_fn(move |cx| {
            clock.time.change(|time| {
                if time.moves != moves {
                    return Poll::Ready(());
                }
                time.beats.push(cx.waker().clone());
                Poll::Pending
            })
        }))
    }

    fn sleep_until(&self, at: Duration) -> Sleep {
        let id = self.time.change(|time| {
            let id = time.next_timer;
            time.next_timer += 1;
            time.timers.insert(id, Timer { at, waker: None });
            id
        });
        Box::pin(Armed {
            clock: self.clone(),
            id,
            at,
        })
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).expect("tests move by days, not by ages")
}

/// One armed timer; dropping it disarms it.
struct Armed {
    clock: TestClock,
    id: u64,
    at: Duration,
}

impl Future for Armed {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // Time and waker under one lock: no move of the clock can fall between the look and the registration.
        // Nobody waits for a waker, so nobody is told of one.
        self.clock.time.change_quietly(|time| {
            if time.monotonic >= self.at {
                return Poll::Ready(());
            }
            if let Some(timer) = time.timers.get_mut(&self.id) {
                timer.waker = Some(cx.waker().clone());
            }
            Poll::Pending
        })
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        self.clock.time.change(|time| {
            time.timers.remove(&self.id);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn time_stands_until_the_test_moves_it() {
        let clock = TestClock::default();
        let mut sleep = clock.sleep(Duration::from_secs(5));
        assert_eq!(clock.armed(), [Duration::from_secs(5)]);

        clock.advance_wall(Duration::from_secs(3600));
        clock.advance(Duration::from_secs(4));
        assert!(
            futures_now(&mut sleep).is_pending(),
            "only four of five seconds have passed"
        );
        assert_eq!(clock.armed(), [Duration::from_secs(1)]);

        clock.advance(Duration::from_secs(1));
        sleep.await;
        clock.until_no_timer().await;
        assert_eq!(clock.wall().millis() - WALL_AT_START_MS, 3_605_000);
    }

    #[tokio::test]
    async fn a_dropped_timer_is_disarmed() {
        let clock = TestClock::default();
        drop(clock.sleep(Duration::from_secs(5)));
        assert_eq!(clock.armed(), [Duration::ZERO; 0]);
    }

    fn futures_now(sleep: &mut Sleep) -> Poll<()> {
        sleep.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }
}
