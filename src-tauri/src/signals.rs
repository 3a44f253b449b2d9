//! How a terminal or a desktop asks a process to stop or to leave.

use std::io;

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Ctrl-C: whoever sits at the terminal wants it to stop.
    Stop,
    /// The system, the terminal or a service manager goes away, or wants us to.
    Leave,
}

/// Listens from its creation on.
#[cfg(unix)]
pub(crate) struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    /// Takes the signals over from the system's own handling, which would end the process without a word.
    ///
    /// # Errors
    /// If the system refuses that.
    pub(crate) fn taken() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// The next one. Cancel safe: a signal that was not returned is returned by the next call.
    pub(crate) async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.interrupt.recv() => Asked::Stop,
            _ = self.terminate.recv() => Asked::Leave,
            _ = self.hangup.recv() => Asked::Leave,
        }
    }
}

/// Listens from its creation on.
#[cfg(windows)]
pub(crate) struct Signals {
    interrupt: tokio::signal::windows::CtrlC,
    close: tokio::signal::windows::CtrlClose,
    shutdown: tokio::signal::windows::CtrlShutdown,
}

#[cfg(windows)]
impl Signals {
    /// Takes the signals over from the system's own handling, which would end the process without a word.
    ///
    /// # Errors
    /// If the system refuses that.
    pub(crate) fn taken() -> io::Result<Self> {
        use tokio::signal::windows::{ctrl_c, ctrl_close, ctrl_shutdown};
        Ok(Self {
            interrupt: ctrl_c()?,
            close: ctrl_close()?,
            shutdown: ctrl_shutdown()?,
        })
    }

    /// The next one. Cancel safe: a signal that was not returned is returned by the next call.
    pub(crate) async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.interrupt.recv() => Asked::Stop,
            _ = self.close.recv() => Asked::Leave,
            _ = self.shutdown.recv() => Asked::Leave,
        }
    }
}
