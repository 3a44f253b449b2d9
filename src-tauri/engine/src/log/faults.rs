//! Faults put into the log by tests: what a disk does, at the moment the test names.
//!
//! Invariant: compiled to nothing without the cargo feature `faults`, which only the package `tests` asks for; with it,
//! an engine whose test asked for no fault behaves like one without. The writer and the readers ask here at their
//! steps; nothing in here decides what follows from a fault.

#[cfg(feature = "faults")]
pub use real::{Fault, LogFaults, RefusedWrite};

#[cfg(not(feature = "faults"))]
pub(crate) use absent::LogFaults;

/// A step of a transaction of the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "faults"),
    expect(unreachable_pub, reason = "a test names it, and then it is reachable")
)]
pub enum WriteStep {
    /// Before it begins.
    Begin,
    /// After its first event is in.
    Append,
    /// When everything is in, before it is committed.
    Commit,
}

#[cfg(not(feature = "faults"))]
mod absent {
    use super::WriteStep;
    use crate::log::Append;

    /// No faults: the product's.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct LogFaults;

    impl LogFaults {
        pub(crate) fn writing<'a>(&self, _: impl Iterator<Item = &'a Append>) {}

        pub(crate) fn write(&self, _: WriteStep) -> rusqlite::Result<()> {
            Ok(())
        }

        pub(crate) fn rows_read(&self) -> rusqlite::Result<()> {
            Ok(())
        }
    }
}

#[cfg(feature = "faults")]
mod real {
    use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

    use rusqlite::ffi;
    use tokio::sync::watch;

    use super::WriteStep;
    use crate::log::Append;

    /// What the disk says.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Fault {
        /// Another program has it.
        Busy,
        /// There is no room.
        Full,
        /// It does not answer properly.
        IoError,
        /// It answers something that was never written.
        Damaged,
    }

    impl Fault {
        fn error(self) -> rusqlite::Error {
            let (code, words) = match self {
                Self::Busy => (ffi::SQLITE_BUSY, "database is locked"),
                Self::Full => (ffi::SQLITE_FULL, "database or disk is full"),
                Self::IoError => (ffi::SQLITE_IOERR_WRITE, "disk I/O error"),
                Self::Damaged => (ffi::SQLITE_CORRUPT, "database disk image is malformed"),
            };
            rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some(words.to_owned()))
        }
    }

    /// A transaction that met a fault.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct RefusedWrite {
        /// Its number, from 1.
        pub write: u64,
        /// The kinds of the events in it.
        pub kinds: Vec<&'static str>,
    }

    /// Which transactions of the writer meet which fault. Clones are the same.
    #[derive(Clone, Debug)]
    pub struct LogFaults(Arc<Shared>);

    #[derive(Debug)]
    struct Shared {
        state: Mutex<State>,
        released: Condvar,
        arrived: watch::Sender<u64>,
        refused: watch::Sender<usize>,
    }

    #[derive(Debug, Default)]
    struct State {
        writes: u64,
        kinds: Vec<&'static str>,
        plan: Option<Plan>,
        refused: Vec<RefusedWrite>,
        read_fault: Option<Fault>,
        hold_write: bool,
        hold_read: bool,
    }

    #[derive(Clone, Copy, Debug)]
    struct Plan {
        from: u64,
        to: u64,
        step: WriteStep,
        fault: Fault,
    }

    impl Default for LogFaults {
        fn default() -> Self {
            Self(Arc::new(Shared {
                state: Mutex::default(),
                released: Condvar::new(),
                arrived: watch::channel(0).0,
                refused: watch::channel(0).0,
            }))
        }
    }

    /// The test's side.
    impl LogFaults {
        /// The `nth` transaction from now on (from 1) fails at `step`, and only that one.
        pub fn fail_write(&self, nth: u64, step: WriteStep, fault: Fault) {
            self.plan(nth, nth, step, fault);
        }

        /// The `nth` transaction from now on and all after it fail at `step`, until [`LogFaults::heal`].
        pub fn fail_writes_from(&self, nth: u64, step: WriteStep, fault: Fault) {
            self.plan(nth, u64::MAX, step, fault);
        }

        fn plan(&self, from: u64, to: u64, step: WriteStep, fault: Fault) {
            let mut state = self.state();
            state.plan = Some(Plan {
                from: state.writes.saturating_add(from),
                to: state.writes.saturating_add(to),
                step,
                fault,
            });
        }

        /// From now on every read fails after its rows are read, until [`LogFaults::heal`].
        pub fn fail_reads(&self, fault: Fault) {
            self.state().read_fault = Some(fault);
        }

        /// The disk is good again.
        pub fn heal(&self) {
            let mut state = self.state();
            state.plan = None;
            state.read_fault = None;
        }

        /// Transactions that met a fault, oldest first.
        pub fn refused(&self) -> Vec<RefusedWrite> {
            self.state().refused.clone()
        }

        /// Ready when a transaction with an event of this kind has met a fault, not counting the first `before` ones.
        pub async fn refuses(&self, kind: &str, before: usize) {
            let mut refused = self.0.refused.subscribe();
            let met = |_: &usize| {
                let refused = self.refused();
                let mut later = refused.iter().skip(before);
                later.any(|write| write.kinds.contains(&kind))
            };
            // The sender lives in `self`.
            let _ = refused.wait_for(met).await;
        }

        /// Transactions so far.
        pub fn writes(&self) -> u64 {
            self.state().writes
        }

        /// The next transaction waits before its commit until [`LogFaults::release`].
        pub fn hold_next_write(&self) {
            self.state().hold_write = true;
        }

        /// The next read waits, its rows read, until [`LogFaults::release`].
        pub fn hold_next_read(&self) {
            self.state().hold_read = true;
        }

        /// Ready when what is to be held is held: the nth that ever was.
        pub async fn arrived(&self, nth: u64) {
            let mut arrived = self.0.arrived.subscribe();
            // The sender lives in `self`.
            let _ = arrived.wait_for(|held| *held >= nth).await;
        }

        /// Lets go what is held.
        pub fn release(&self) {
            let mut state = self.state();
            state.hold_write = false;
            state.hold_read = false;
            drop(state);
            self.0.released.notify_all();
        }

        fn state(&self) -> MutexGuard<'_, State> {
            self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// The log's side.
    impl LogFaults {
        pub(crate) fn writing<'a>(&self, appends: impl Iterator<Item = &'a Append>) {
            let mut state = self.state();
            state.writes += 1;
            state.kinds = appends.map(|append| append.body.kind()).collect();
        }

        pub(crate) fn write(&self, step: WriteStep) -> rusqlite::Result<()> {
            let mut state = self.state();
            if step == WriteStep::Commit {
                state = self.held(state, |state| state.hold_write);
            }
            match state.plan {
                Some(plan)
                    if plan.step == step && (plan.from..=plan.to).contains(&state.writes) =>
                {
                    let refused = RefusedWrite {
                        write: state.writes,
                        kinds: state.kinds.clone(),
                    };
                    state.refused.push(refused);
                    let count = state.refused.len();
                    drop(state);
                    self.0.refused.send_replace(count);
                    Err(plan.fault.error())
                }
                Some(_) | None => Ok(()),
            }
        }

        pub(crate) fn rows_read(&self) -> rusqlite::Result<()> {
            let state = self.state();
            let state = self.held(state, |state| state.hold_read);
            state.read_fault.map_or(Ok(()), |fault| Err(fault.error()))
        }

        fn held<'a>(
            &'a self,
            mut state: MutexGuard<'a, State>,
            is_held: impl Fn(&State) -> bool,
        ) -> MutexGuard<'a, State> {
            if is_held(&state) {
                self.0.arrived.send_modify(|held| *held += 1);
            }
            while is_held(&state) {
                state = self
                    .0
                    .released
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            state
        }
    }
}
