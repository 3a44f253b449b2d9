//! Owned programs: whatever a chore starts ends with the chore.
//!
//! Invariant: a started program is ended by its own process id, and only while it is still our child, so
//! no stranger is ever hit. Kept by: the child sits behind a lock; ended is asked there before a signal is
//! sent. Dropping the handle, Ctrl-C and SIGTERM all take the same way: SIGTERM, a grace, SIGKILL. On Linux
//! the kernel does it when we are killed ourselves.

use std::process::{Child, ChildStdout, Command, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::{Failure, Result};
use crate::tool;

/// What a program may take to end in order: the app closes its log, a server its sockets.
const GRACE: Duration = Duration::from_secs(8);
/// How often an ending is looked for; far below what a person notices.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The shell's own answer for "ended by Ctrl-C".
const EXIT_INTERRUPTED: i32 = 130;

static STARTED: Mutex<Vec<Arc<Entry>>> = Mutex::new(Vec::new());

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    /// In our process group: the terminal's Ctrl-C reaches it by itself.
    Ours,
    /// In one of its own: its children are ended with it, and only we decide when.
    Own,
}

struct Entry {
    name: String,
    group: Group,
    child: Mutex<Child>,
}

/// A running program; ends when dropped.
pub(crate) struct Owned(Arc<Entry>);

impl Owned {
    /// # Errors
    /// The program is not there or may not be run.
    pub(crate) fn start(command: &mut Command, name: &str, group: Group) -> Result<Self> {
        #[cfg(unix)]
        if group == Group::Own {
            std::os::unix::process::CommandExt::process_group(command, 0);
        }
        let child = command.spawn().map_err(|error| {
            Failure::new(
                format!("could not start {name}: {error}"),
                "`cargo xtask setup --window-tests` says what is missing on this machine",
            )
        })?;
        let entry = Arc::new(Entry {
            name: name.to_owned(),
            group,
            child: Mutex::new(child),
        });
        lock(&STARTED).push(Arc::clone(&entry));
        Ok(Self(entry))
    }

    /// The process, and its group if it has one of its own.
    pub(crate) fn id(&self) -> u32 {
        lock(&self.0.child).id()
    }

    /// Its output, if it was started with a pipe and nobody has taken it yet.
    pub(crate) fn stdout(&self) -> Option<ChildStdout> {
        lock(&self.0.child).stdout.take()
    }

    /// How it ended, or `None` while it runs.
    pub(crate) fn ended(&self) -> Result<Option<ExitStatus>> {
        lock(&self.0.child)
            .try_wait()
            .map_err(|error| Failure::io(format!("could not ask about {}", self.0.name), &error))
    }

    /// Waits for it to end by itself.
    pub(crate) fn wait(&self) -> Result<ExitStatus> {
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.stop();
        lock(&STARTED).retain(|entry| !Arc::ptr_eq(entry, &self.0));
    }
}

impl Entry {
    fn stop(&self) {
        let mut child = lock(&self.child);
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        self.ask_to_end(&mut child);
        let until = Instant::now() + GRACE;
        while matches!(child.try_wait(), Ok(None)) {
            if Instant::now() >= until {
                eprintln!(
                    "xtask: {} did not end in {} s and was killed",
                    self.name,
                    GRACE.as_secs()
                );
                self.kill(&mut child);
                return;
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    #[cfg(unix)]
    fn signal(&self, child: &Child, signal: nix::sys::signal::Signal) {
        let Ok(id) = i32::try_from(child.id()) else {
            return;
        };
        let id = nix::unistd::Pid::from_raw(id);
        // The only error possible is that it has just ended, which is what was wanted.
        let _ = match self.group {
            Group::Ours => nix::sys::signal::kill(id, signal),
            Group::Own => nix::sys::signal::killpg(id, signal),
        };
    }

    #[cfg(unix)]
    fn ask_to_end(&self, child: &mut Child) {
        self.signal(child, nix::sys::signal::Signal::SIGTERM);
    }

    #[cfg(not(unix))]
    fn ask_to_end(&self, child: &mut Child) {
        self.kill(child);
    }

    fn kill(&self, child: &mut Child) {
        #[cfg(unix)]
        self.signal(child, nix::sys::signal::Signal::SIGKILL);
        // Both fail only for a child that has already ended.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// A command whose program the kernel ends when this one dies without a word (`kill -9`).
pub(crate) fn helper(name: &str) -> Command {
    if cfg!(target_os = "linux") && tool::on_path("setpriv").is_some() {
        let mut command = tool::program("setpriv");
        command.args(["--pdeathsig", "TERM", "--", name]);
        return command;
    }
    tool::program(name)
}

/// From now on Ctrl-C and SIGTERM end every owned program, newest first, and then this one.
pub(crate) fn stop_all_when_interrupted() {
    let set = ctrlc::set_handler(|| {
        let entries = lock(&STARTED).clone();
        for entry in entries.iter().rev() {
            entry.stop();
        }
        std::process::exit(EXIT_INTERRUPTED);
    });
    if let Err(error) = set {
        eprintln!("xtask: Ctrl-C will leave helper programs running: {error}");
    }
}

/// A lock is poisoned only by a panic elsewhere, and a child must be ended even then.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_program_has_ended_with_its_children() {
        let mut command = Command::new("sh");
        command
            .args(["-c", "sleep 600 & echo $!; wait"])
            .stdout(std::process::Stdio::piped());
        let owned = Owned::start(&mut command, "a sleeping shell", Group::Own).expect("sh starts");
        let mut line = String::new();
        let mut out = std::io::BufReader::new(owned.stdout().expect("stdout is a pipe"));
        std::io::BufRead::read_line(&mut out, &mut line).expect("the shell names its child");

        drop(owned);

        // The pipe's other end is held by the shell and by its child: end of file means both are gone.
        let mut rest = Vec::new();
        std::io::Read::read_to_end(&mut out, &mut rest).expect("the pipe can be read to its end");
        assert!(
            line.trim().parse::<u32>().is_ok(),
            "the child had an id: {line:?}"
        );
    }

    #[test]
    fn a_program_that_ends_by_itself_says_how() {
        let mut command = Command::new("sh");
        let owned = Owned::start(command.args(["-c", "exit 7"]), "a short shell", Group::Own)
            .expect("sh starts");
        assert_eq!(owned.wait().expect("it ends").code(), Some(7));
    }
}
