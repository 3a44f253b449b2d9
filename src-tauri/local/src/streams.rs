//! The two streams: orders in, frames out.
//!
//! Invariant: a stop is known at once, whatever the model is at, and the end of stdin is the end of the process.

use std::{
    fs::File,
    io::{self, BufRead, Write},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, SyncSender},
    },
};

use protocol::model_process::{Ask, Frame, Load, Order};

/// Asks that wait; an engine sends one at a time.
const ASKS_MAX: usize = 16;

/// What is to be done.
pub struct Inbox {
    /// The first order.
    loads: Receiver<Load>,
    asks: Receiver<Box<Ask>>,
    stopped: Arc<AtomicU64>,
}

impl Inbox {
    /// Begins to read orders on a thread of its own; `gone` is called when there can be none any more.
    ///
    /// # Errors
    /// That the system gives no thread.
    pub fn open(
        orders: impl BufRead + Send + 'static,
        gone: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let (load, loads) = mpsc::sync_channel(1);
        let (ask, asks) = mpsc::sync_channel(ASKS_MAX);
        let stopped = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&stopped);
        std::thread::Builder::new()
            .name("orders".to_owned())
            .spawn(move || {
                read(orders, &load, &ask, &told);
                gone();
            })?;
        Ok(Self {
            loads,
            asks,
            stopped,
        })
    }

    /// What to load; nothing if nobody wants anything any more.
    pub fn load(&self) -> Option<Load> {
        self.loads.recv().ok()
    }

    /// What to answer next.
    pub fn ask(&self) -> Option<Box<Ask>> {
        self.asks.recv().ok()
    }

    /// Whether nobody waits for that answer any more. Asks are numbered upwards.
    pub fn is_stopped(&self, ask: u64) -> bool {
        self.stopped.load(Ordering::Relaxed) >= ask
    }
}

fn read(
    orders: impl BufRead,
    load: &SyncSender<Load>,
    ask: &SyncSender<Box<Ask>>,
    stopped: &AtomicU64,
) {
    for line in orders.lines() {
        let Ok(line) = line else { return };
        // Both ends are one program; what is no order was not meant for us.
        let Ok(order) = serde_json::from_str(&line) else {
            continue;
        };
        let taken = match order {
            Order::Load(what) => load.try_send(what).is_ok(),
            Order::Ask(what) => ask.try_send(what).is_ok(),
            Order::Stop { ask } => {
                stopped.fetch_max(ask, Ordering::Relaxed);
                true
            }
        };
        if !taken {
            return;
        }
    }
}

/// Where frames go. Clones are the same stream.
#[derive(Clone)]
pub struct Voice(Arc<Mutex<File>>);

impl Voice {
    /// Takes the standard output; what native code prints from now on goes to stderr.
    ///
    /// # Errors
    /// That there is none.
    #[cfg(unix)]
    pub fn of_stdout() -> io::Result<Self> {
        use std::os::fd::AsFd;
        let ours = io::stdout().as_fd().try_clone_to_owned()?;
        rustix::stdio::dup2_stdout(io::stderr())?;
        Ok(Self(Arc::new(Mutex::new(File::from(ours)))))
    }

    /// Takes the standard output.
    ///
    /// # Errors
    /// That there is none.
    #[cfg(windows)]
    pub fn of_stdout() -> io::Result<Self> {
        use std::os::windows::io::AsHandle;
        let ours = io::stdout().as_handle().try_clone_to_owned()?;
        Ok(Self(Arc::new(Mutex::new(File::from(ours)))))
    }

    /// Says it, in one write.
    pub fn say(&self, frame: &Frame) {
        self.say_all(std::slice::from_ref(frame));
    }

    /// Says them, in one write.
    pub fn say_all(&self, frames: &[Frame]) {
        let lines: String = frames
            .iter()
            // Frames are made of text and numbers, which JSON can say.
            .map(|frame| serde_json::to_string(frame).unwrap_or_default() + "\n")
            .collect();
        let mut out = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if out.write_all(lines.as_bytes()).is_err() {
            // Nobody listens any more, and stdin says so too.
            leave();
        }
    }
}

/// Ends the process now, without asking native code, which may hang.
pub(crate) fn leave() -> ! {
    #[cfg(unix)]
    {
        // Should the system not do it, the next line does.
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
    std::process::exit(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_is_known_before_what_stands_before_it_is_done() {
        let orders = "{\"order\":\"Load\",\"file\":\"/a.gguf\"}\nnoise\n{\"order\":\"Ask\",\"ask\":1,\"messages\":[]}\n{\"order\":\"Stop\",\"ask\":1}\n";
        let (tell, gone) = mpsc::channel();
        let inbox = Inbox::open(orders.as_bytes(), move || tell.send(()).unwrap_or(())).unwrap();
        gone.recv().expect("the orders end");
        assert!(inbox.is_stopped(1) && !inbox.is_stopped(2));
        assert_eq!(
            inbox.load().map(|load| load.file).as_deref(),
            Some("/a.gguf")
        );
        assert_eq!(inbox.ask().map(|ask| ask.ask), Some(1));
        assert!(inbox.ask().is_none(), "and nothing more comes");
    }
}
