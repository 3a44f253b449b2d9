//! The built app as a shell starts it: with pipes, or at a terminal where somebody types.
//!
//! Invariant: nothing waits for time; what is waited for is what somebody at the terminal would see.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::OwnedFd,
    path::Path,
    process::Stdio,
    sync::Arc,
    thread,
};

use rustix::{
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{LocalModes, tcgetattr},
};
use serde_json::Value;
use tests::watched::{Watched, within_limit};
use tokio::{
    io::AsyncWriteExt,
    process::{Child, Command},
};

/// What a run left behind.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) code: Option<i32>,
    pub(super) out: String,
    pub(super) err: String,
}

fn command(data_dir: &Path, arguments: &[&str]) -> Command {
    let app = std::env::var("HOLDFAST_APP").expect("HOLDFAST_APP, the path of the built app");
    let mut command = Command::new(app);
    command
        .arg("--data-dir")
        .arg(data_dir)
        .args(arguments)
        .env_remove("HOLDFAST_DATA_DIR")
        .env_remove("HOLDFAST_LOG")
        .kill_on_drop(true);
    command
}

/// Runs it to its end, with nobody at a terminal.
pub(super) async fn run(data_dir: &Path, arguments: &[&str]) -> Ran {
    run_with(data_dir, arguments, &[], None).await
}

/// The same with variables of its own, and something on its stdin.
pub(super) async fn run_with(
    data_dir: &Path,
    arguments: &[&str],
    environment: &[(&str, String)],
    stdin: Option<&str>,
) -> Ran {
    let mut command = command(data_dir, arguments);
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    command.stdin(match stdin {
        Some(_) => Stdio::piped(),
        None => Stdio::null(),
    });
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the app starts");
    if let (Some(text), Some(mut pipe)) = (stdin, child.stdin.take()) {
        let written = pipe.write_all(text.as_bytes()).await;
        written.expect("it reads its stdin");
    }
    let what = format!("{arguments:?} to end");
    let output = within_limit(&what, child.wait_with_output())
        .await
        .expect("the app runs");
    Ran {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Runs it for a reader who goes away before anything is printed.
pub(super) async fn run_unread(data_dir: &Path, arguments: &[&str]) -> Ran {
    let mut command = command(data_dir, arguments);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the app starts");
    drop(child.stdout.take());
    let what = format!("{arguments:?} to end");
    let output = within_limit(&what, child.wait_with_output())
        .await
        .expect("an exit");
    Ran {
        code: output.status.code(),
        out: String::new(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// The log of the last session, one object an event.
pub(super) async fn events(data_dir: &Path) -> Vec<Value> {
    let ran = run(data_dir, &["events", "last", "--json"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let lines = ran.out.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().expect("an event a line")
}

/// What kind of event said about something, in order.
pub(super) fn said<'a>(events: &'a [Value], kind: &str, field: &str) -> Vec<&'a Value> {
    let of_kind = events.iter().filter(|event| event["kind"] == kind);
    of_kind.map(|event| &event[field]).collect()
}

/// The app with somebody at its terminal.
pub(super) struct AtTerminal {
    child: Child,
    keys: File,
    seen: Arc<Watched<String>>,
}

impl AtTerminal {
    /// The answer goes to a pipe.
    pub(super) fn start(data_dir: &Path, arguments: &[&str]) -> Self {
        Self::start_with(data_dir, arguments, |_| Stdio::piped())
    }

    /// The answer goes to the terminal, too.
    pub(super) fn start_all_there(data_dir: &Path, arguments: &[&str]) -> Self {
        Self::start_with(data_dir, arguments, |terminal| terminal.into())
    }

    fn start_with(
        data_dir: &Path,
        arguments: &[&str],
        stdout: impl FnOnce(OwnedFd) -> Stdio,
    ) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        unlockpt(&ours).expect("a terminal that can be opened");
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
        let theirs = ioctl_tiocgptpeer(&ours, flags).expect("its other end");
        let again = |end: &OwnedFd| end.try_clone().expect("one more handle");
        let child = command(data_dir, arguments)
            .stdin(again(&theirs))
            .stdout(stdout(again(&theirs)))
            .stderr(theirs)
            .spawn()
            .expect("the app starts");
        let seen = Arc::new(Watched::new(String::new()));
        let (keys, mut screen, shown) = (again(&ours).into(), File::from(ours), Arc::clone(&seen));
        thread::spawn(move || {
            let mut piece = [0; 4096];
            // It ends with an error when the app has left.
            while let Ok(length @ 1..) = screen.read(&mut piece) {
                let text = String::from_utf8_lossy(&piece[..length]).replace('\r', "");
                shown.change(|seen| seen.push_str(&text));
            }
        });
        Self { child, keys, seen }
    }

    pub(super) async fn sees(&self, text: &str) {
        let look = |seen: &String| seen.contains(text).then_some(());
        self.seen.until(&format!("{text:?} to be seen"), look).await;
    }

    /// Waits until a text was shown so many times.
    pub(super) async fn sees_times(&self, text: &str, times: usize) {
        let look = |seen: &String| (seen.matches(text).count() >= times).then_some(());
        let what = format!("{text:?} to be seen {times} times");
        self.seen.until(&what, look).await;
    }

    pub(super) fn types(&mut self, text: &str) {
        self.keys.write_all(text.as_bytes()).expect("keys");
    }

    /// Whether the terminal passes on whole lines and shows what is typed, as a shell wants it.
    pub(super) fn is_as_a_shell_wants_it(&self) -> bool {
        let modes = tcgetattr(&self.keys).expect("a terminal").local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    pub(super) fn interrupts(&self) {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok());
        let pid = id.and_then(Pid::from_raw).expect("a running process");
        kill_process(pid, Signal::INT).expect("a signal");
    }

    /// Waits until it leaves.
    pub(super) async fn leaves(self) -> Ran {
        let Self { child, keys, seen } = self;
        let output = within_limit("the app to leave", child.wait_with_output())
            .await
            .expect("an exit");
        drop(keys);
        Ran {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: seen.read(String::clone),
        }
    }

    /// Waits until it leaves, and for the terminal to be as a shell wants it again.
    pub(super) async fn leaves_a_terminal(mut self) -> Ran {
        within_limit("the app to leave", self.child.wait())
            .await
            .expect("an exit");
        assert!(self.is_as_a_shell_wants_it(), "the shell gets it back");
        self.leaves().await
    }
}
