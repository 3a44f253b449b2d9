//! One model's own process, as the engine sees it.
//!
//! Invariant: it lives as long as it is wanted and not longer. One task owns it: it writes the orders, and ends the
//! process when nobody may need it any more, by killing it: nothing in it is worth saving, and memory comes back at once.

use std::{
    path::PathBuf,
    process::{ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use protocol::model_process::{Load, Order};
use tokio::{
    io::AsyncWriteExt,
    process::{ChildStdin, ChildStdout, Command},
    sync::{Mutex, mpsc, watch},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::Host;

/// Orders on their way; full only if the process reads nothing any more, and then it is ended.
const ORDERS_MAX: usize = 16;

/// A model's process.
pub(super) struct Child {
    pub(super) file: PathBuf,
    pub(super) load: Load,
    pub(super) pid: Option<u32>,
    /// What it says; whoever holds it is answered.
    pub(super) voice: Arc<Mutex<ChildStdout>>,
    /// Something came from it.
    pub(super) is_up: AtomicBool,
    /// Its model is in memory.
    pub(super) is_loaded: AtomicBool,
    orders: mpsc::Sender<String>,
    end: CancellationToken,
    ended: watch::Receiver<Option<Ended>>,
    asks: AtomicU64,
}

/// How it ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ended {
    /// By itself, or by somebody.
    As(ExitStatus),
    /// Nobody can tell.
    Unknown,
}

impl Child {
    /// Starts one, and tells it what to load.
    ///
    /// # Errors
    /// That the program cannot be started.
    pub(super) fn start(
        host: &Host,
        file: PathBuf,
        load: Load,
        tracker: &TaskTracker,
        gone: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<Arc<Self>> {
        let mut process = Command::new(&host.program)
            .args(&host.arguments)
            // Otherwise llama.cpp starts a debugger on itself when it gives up.
            .env("GGML_NO_BACKTRACE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // The engine below writes a great deal there.
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let (stdin, stdout) = (process.stdin.take(), process.stdout.take());
        let (Some(stdin), Some(stdout)) = (stdin, stdout) else {
            return Err(std::io::Error::other("its standard streams are missing"));
        };
        let (orders, inbox) = mpsc::channel(ORDERS_MAX);
        let (tell, ended) = watch::channel(None);
        let end = CancellationToken::new();
        let child = Arc::new(Self {
            file,
            load: load.clone(),
            pid: process.id(),
            voice: Arc::new(Mutex::new(stdout)),
            is_up: AtomicBool::new(false),
            is_loaded: AtomicBool::new(false),
            orders,
            end: end.clone(),
            ended,
            asks: AtomicU64::new(0),
        });
        child.order(&Order::Load(load));
        tracing::info!(pid = process.id(), "a model's process begins");
        tracker.spawn(async move {
            let status = tokio::select! {
                status = process.wait() => status,
                () = writing(stdin, inbox) => killed(&mut process).await,
                () = end.cancelled() => killed(&mut process).await,
            };
            tracing::info!(?status, "a model's process ended");
            gone();
            tell.send_replace(Some(status.map_or(Ended::Unknown, Ended::As)));
        });
        Ok(child)
    }

    /// A number for one more ask.
    pub(super) fn next_ask(&self) -> u64 {
        self.asks.fetch_add(1, Ordering::Relaxed).saturating_add(1)
    }

    /// Gives an order, and does not wait. A process that takes none any more is ended.
    pub(super) fn order(&self, order: &Order) {
        // Orders are made of text and numbers, which JSON can say.
        let line = serde_json::to_string(order).unwrap_or_default() + "\n";
        if self.orders.try_send(line).is_err() {
            self.end();
        }
    }

    /// Ends it. Its memory is free once [`Child::until_ended`] is over.
    pub(super) fn end(&self) {
        self.end.cancel();
    }

    /// How it ended, once it has. Cancel safe.
    pub(super) async fn until_ended(&self) -> Ended {
        let mut ended = self.ended.clone();
        let ended = ended.wait_for(Option::is_some).await;
        ended.map_or(Ended::Unknown, |ended| ended.unwrap_or(Ended::Unknown))
    }

    /// Whether it has ended, or is about to.
    pub(super) fn is_over(&self) -> bool {
        self.end.is_cancelled() || self.ended.borrow().is_some()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

/// Writes orders until there can be none any more, or the process takes none.
async fn writing(mut stdin: ChildStdin, mut inbox: mpsc::Receiver<String>) {
    while let Some(line) = inbox.recv().await {
        if stdin.write_all(line.as_bytes()).await.is_err() {
            // It is gone or leaving; how, its status says.
            return std::future::pending().await;
        }
    }
}

async fn killed(process: &mut tokio::process::Child) -> std::io::Result<ExitStatus> {
    // It may have ended by itself; its status says so.
    process.start_kill().unwrap_or(());
    process.wait().await
}

impl Ended {
    /// In words: how, and what may be behind it.
    pub(super) fn words(self) -> String {
        match self {
            Self::Unknown => "how, the system does not say".to_owned(),
            Self::As(status) => of_status(status),
        }
    }
}

#[cfg(unix)]
fn of_status(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.signal(), status.code()) {
        (Some(9), _) => "killed (signal 9), perhaps for want of memory".to_owned(),
        (Some(6), _) => {
            "it gave up (signal 6), for want of memory or because the file is damaged".to_owned()
        }
        (Some(15), _) => "somebody ended it (signal 15)".to_owned(),
        (Some(7), _) => {
            "a part of the file could not be read (signal 7); it may have been cut".to_owned()
        }
        (Some(signal), _) => format!("it crashed (signal {signal})"),
        (None, Some(code)) => format!("exit code {code}"),
        (None, None) => "how, the system does not say".to_owned(),
    }
}

#[cfg(not(unix))]
fn of_status(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("exit code {code:#x}"),
        None => "how, the system does not say".to_owned(),
    }
}
