//! The system's keychain, behind a thread of its own.
//!
//! Invariant: whoever asks is answered or told within a limit that nobody answered. What was asked goes on all the
//! same; a keychain that came back answers the next one.

use std::{
    sync::{
        Arc, OnceLock,
        mpsc::{self, SyncSender, TrySendError},
    },
    time::Duration,
};

use tokio::sync::oneshot;

use crate::clock::Clock;

/// Questions that wait for the one before; more than these are refused at once, since nobody answers.
const QUEUE: usize = 16;

/// A keychain, as an operating system has one. Every call may block, for as long as its user looks for a password.
pub trait Keychain: Send + Sync + 'static {
    /// What it is called, if it can be used.
    ///
    /// # Errors
    /// Why it cannot.
    fn look(&self) -> Result<String, KeychainError>;

    /// What is kept under `account`, if anything.
    ///
    /// # Errors
    /// Why nobody can tell.
    fn read(&self, account: &str) -> Result<Option<String>, KeychainError>;

    /// Keeps `secret` in place of what was kept before.
    ///
    /// # Errors
    /// Why it was not kept.
    fn write(&self, account: &str, secret: &str) -> Result<(), KeychainError>;

    /// Forgets what is kept; nothing to forget is as good.
    ///
    /// # Errors
    /// Why it is still kept.
    fn remove(&self, account: &str) -> Result<(), KeychainError>;
}

/// Why a keychain did not do it. The words hold no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeychainError {
    /// There is none.
    #[error("this system has no keychain that could be used ({0})")]
    Missing(String),
    /// It is locked, and stayed so.
    #[error("the system’s keychain is locked, and was not unlocked ({0})")]
    Locked(String),
    /// Anything else.
    #[error("the system’s keychain did not do it ({0})")]
    Failed(String),
}

/// No keychain at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoKeychain;

impl NoKeychain {
    fn none<T>() -> Result<T, KeychainError> {
        Err(KeychainError::Missing("none was looked for".to_owned()))
    }
}

impl Keychain for NoKeychain {
    fn look(&self) -> Result<String, KeychainError> {
        Self::none()
    }
    fn read(&self, _account: &str) -> Result<Option<String>, KeychainError> {
        Self::none()
    }
    fn write(&self, _account: &str, _secret: &str) -> Result<(), KeychainError> {
        Self::none()
    }
    fn remove(&self, _account: &str) -> Result<(), KeychainError> {
        Self::none()
    }
}

/// Nobody answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the system’s keychain did not answer within {seconds} s; it may be waiting for its password in a window of its own"
)]
pub(super) struct Silent {
    pub(super) seconds: u64,
}

type Job = Box<dyn FnOnce(&dyn Keychain) + Send>;

pub(super) struct Worker {
    keychain: Arc<dyn Keychain>,
    /// Begun with the first question: most people have servers that need no key.
    jobs: OnceLock<Option<SyncSender<Job>>>,
}

impl Worker {
    pub(super) const fn new(keychain: Arc<dyn Keychain>) -> Self {
        Self {
            keychain,
            jobs: OnceLock::new(),
        }
    }

    /// Cancel safe: a question that nobody waits for any more is answered to nobody.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        clock: &dyn Clock,
        limit: Duration,
        question: impl FnOnce(&dyn Keychain) -> Result<T, KeychainError> + Send + 'static,
    ) -> Result<Result<T, KeychainError>, Silent> {
        let silent = Silent {
            seconds: limit.as_secs(),
        };
        let failed = |words: &str| Ok(Err(KeychainError::Failed(words.to_owned())));
        let Some(jobs) = self.jobs.get_or_init(|| begin(&self.keychain)) else {
            return failed("the system gives no thread");
        };
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |keychain| {
            // Whoever asked may have stopped waiting.
            let _ = reply.send(question(keychain));
        });
        match jobs.try_send(job) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => return Err(silent),
            Err(TrySendError::Disconnected(_)) => return failed("its thread is gone"),
        }
        let mut late = clock.sleep(limit);
        tokio::select! {
            biased;
            answered = answer => match answered {
                Ok(answer) => Ok(answer),
                // Only a question that panicked is dropped without an answer.
                Err(_) => failed("it failed in a way that nobody foresaw"),
            },
            () = &mut late => Err(silent),
        }
    }
}

fn begin(keychain: &Arc<dyn Keychain>) -> Option<SyncSender<Job>> {
    let keychain = Arc::clone(keychain);
    let (jobs, inbox) = mpsc::sync_channel::<Job>(QUEUE);
    let work = move || {
        for job in inbox {
            let asked = std::panic::AssertUnwindSafe(|| job(keychain.as_ref()));
            if std::panic::catch_unwind(asked).is_err() {
                tracing::error!("a question to the keychain panicked");
            }
        }
    };
    let thread = std::thread::Builder::new().name("keychain".to_owned());
    match thread.spawn(work) {
        // It ends when the cabinet does, or with the process if the keychain never answers.
        Ok(_) => Some(jobs),
        Err(error) => {
            tracing::error!(%error, "no thread for the keychain");
            None
        }
    }
}
