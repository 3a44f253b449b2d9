//! Cancelling, with a cause that is set before anybody can notice.

use protocol::InterruptedWhy;
use tokio::sync::watch;

/// Why a turn is ended from outside. The cause decides the outcome, never an error's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Stop was pressed.
    UserStop,
    /// The turn worked for this long.
    Ceiling { limit_ms: u64 },
    /// The engine closes.
    Shutdown(InterruptedWhy),
    /// The log cannot be written.
    StorageFailed,
}

/// The asking side. The first cause wins.
#[derive(Clone, Debug)]
pub(crate) struct Cancel(watch::Sender<Option<Cause>>);

/// The listening side.
#[derive(Clone, Debug)]
pub(crate) struct Cancelled(watch::Receiver<Option<Cause>>);

pub(crate) fn channel() -> (Cancel, Cancelled) {
    let (sender, receiver) = watch::channel(None);
    (Cancel(sender), Cancelled(receiver))
}

impl Cancel {
    /// Sets the cause and fires, in one step; does nothing if there was a cause already.
    pub(crate) fn cancel(&self, cause: Cause) {
        self.0.send_if_modified(|set| {
            let first = set.is_none();
            if first {
                *set = Some(cause);
            }
            first
        });
    }
}

impl Cancelled {
    /// Ready, with the cause, once there is one; never if nobody can set one any more.
    ///
    /// Cancel safe.
    pub(crate) async fn fired(&mut self) -> Cause {
        loop {
            if let Some(cause) = *self.0.borrow_and_update() {
                return cause;
            }
            if self.0.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}
