//! A value that a test can wait on.
//!
//! Invariant: a wait ends because of a change, never because time passed (SCENARIOS.md, section 8, rule 1). Real time
//! serves one purpose: a wait that never ends says what it waited for, and what there was instead.

use std::{fmt::Debug, time::Duration};

use tokio::sync::watch;

/// How long anything may take on a busy machine before it counts as hung.
pub const HANG_LIMIT: Duration = Duration::from_secs(20);

/// A value whose every change wakes those who wait on it.
#[derive(Debug)]
pub struct Watched<T> {
    value: watch::Sender<T>,
}

impl<T: Debug> Watched<T> {
    pub fn new(value: T) -> Self {
        Self {
            value: watch::Sender::new(value),
        }
    }

    /// Looks at the value.
    pub fn read<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.value.borrow())
    }

    /// Changes the value and wakes whoever waits on it.
    pub fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let mut change = Some(change);
        let mut result = None;
        self.value.send_modify(|value| {
            result = change.take().map(|change| change(value));
        });
        result.expect("the closure runs exactly once")
    }

    /// Changes a part of the value that nobody waits on.
    pub fn change_quietly<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let mut change = Some(change);
        let mut result = None;
        self.value.send_if_modified(|value| {
            result = change.take().map(|change| change(value));
            false
        });
        result.expect("the closure runs exactly once")
    }

    /// Waits until `look` finds what it looks for.
    ///
    /// # Panics
    /// After [`HANG_LIMIT`] of real time, naming `what`.
    pub async fn until<R>(&self, what: &str, look: impl FnMut(&T) -> Option<R>) -> R {
        match tokio::time::timeout(HANG_LIMIT, self.wait(look)).await {
            Ok(found) => found,
            Err(_) => {
                self.read(|value| panic!("hung while waiting for {what}; there is {value:#?}"))
            }
        }
    }

    /// The same without a limit, for the fakes themselves: whoever drives them has the limit.
    pub async fn wait<R>(&self, mut look: impl FnMut(&T) -> Option<R>) -> R {
        let mut found = None;
        let mut changes = self.value.subscribe();
        changes
            .wait_for(|value| {
                found = look(value);
                found.is_some()
            })
            .await
            .expect("the sender is borrowed for as long as this waits");
        found.expect("the wait ends when something was found")
    }
}

/// Waits for a future that must not take long.
///
/// # Panics
/// After [`HANG_LIMIT`] of real time, naming `what`.
pub async fn within_limit<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(HANG_LIMIT, future).await {
        Ok(value) => value,
        Err(_) => panic!("hung while waiting for {what}"),
    }
}

/// Goes on when something holds that nobody tells of.
///
/// # Panics
/// After [`HANG_LIMIT`] of real time, naming `what`.
pub async fn until(what: &str, holds: impl Fn() -> bool) {
    let look = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    within_limit(what, look).await;
}
