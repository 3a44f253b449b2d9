//! The ceiling of a turn's active time: a clock that can stand still.

use std::time::Duration;

use crate::clock::{Clock, Sleep, ready};

pub(super) struct Ceiling {
    left: Duration,
    /// Since when it runs, and the timer; absent while it stands, and once it was reached.
    running: Option<(Duration, Sleep)>,
    is_reached: bool,
}

impl Ceiling {
    /// Runs from now.
    pub(super) fn new(limit: Duration, clock: &dyn Clock) -> Self {
        let mut ceiling = Self {
            left: limit,
            running: None,
            is_reached: false,
        };
        ceiling.go_on(clock);
        ceiling
    }

    /// Stands still until [`Self::go_on`].
    pub(super) fn pause(&mut self, clock: &dyn Clock) {
        if let Some((since, _)) = self.running.take() {
            let worked = clock.monotonic().saturating_sub(since);
            self.left = self.left.saturating_sub(worked);
        }
    }

    /// Runs on with what is left.
    pub(super) fn go_on(&mut self, clock: &dyn Clock) {
        if self.running.is_none() && !self.is_reached {
            self.running = Some((clock.monotonic(), clock.sleep(self.left)));
        }
    }

    /// Ready once, when nothing is left. Cancel safe.
    pub(super) async fn reached(&mut self) {
        ready(self.running.as_mut().map(|(_, sleep)| sleep)).await;
        self.running = None;
        self.is_reached = true;
    }
}
