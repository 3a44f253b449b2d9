//! The processes of one story: its driver, the app, and what WebKit starts beside the app.
//!
//! Invariant: whatever a story started can be found and ended, whoever its parent is by now. Kept by: a mark in the
//! environment of the driver, which everything below it inherits. The product does not know of it.

use std::{fs, time::Duration};

use tokio::{process::Command, time::sleep};

const NAME: &str = "HOLDFAST_STORY";
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What the processes of one story have in common.
#[derive(Clone)]
pub(crate) struct Mark(String);

/// A process, as the system tells of it.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// Such as `S (sleeping)`.
    pub(crate) state: String,
    arguments: Vec<u8>,
}

impl Mark {
    /// `word` is this story's alone.
    pub(super) fn new(word: &str) -> Self {
        Self(word.to_owned())
    }

    pub(super) fn put_on(&self, command: &mut Command) {
        command.env(NAME, &self.0);
    }

    /// What runs with this mark.
    pub(crate) fn processes(&self) -> Vec<Process> {
        let wanted = format!("{NAME}={}", self.0);
        let running = fs::read_dir("/proc").expect("Linux").flatten();
        let mut found: Vec<_> = running
            .filter_map(|entry| {
                let id: u32 = entry.file_name().to_str()?.parse().ok()?;
                // Processes come and go while we look.
                let environment = fs::read(entry.path().join("environ")).ok()?;
                let status = fs::read_to_string(entry.path().join("status")).ok()?;
                let arguments = fs::read(entry.path().join("cmdline")).ok()?;
                let said = |field| {
                    let line = status.lines().find_map(|line| line.strip_prefix(field));
                    line.unwrap_or_default().trim().to_owned()
                };
                let ours = environment
                    .split(|byte| *byte == 0)
                    .any(|word| word == wanted.as_bytes());
                ours.then(|| Process {
                    id,
                    name: said("Name:"),
                    state: said("State:"),
                    arguments,
                })
            })
            .collect();
        found.sort_by_key(|process| process.id);
        found
    }

    /// Waits until nothing is left of them, and kills what is left after `patience`.
    pub(super) async fn end(&self, patience: Duration) {
        let leave = async {
            while !self.processes().is_empty() {
                sleep(LOOK_EVERY).await;
            }
        };
        if tokio::time::timeout(patience, leave).await.is_err() {
            for process in self.processes() {
                process.kill("KILL").await;
            }
        }
    }
}

impl Process {
    /// Whether this is one of its words.
    pub(super) fn is_told(&self, word: &str) -> bool {
        let mut words = self.arguments.split(|byte| *byte == 0);
        words.any(|own| own == word.as_bytes())
    }

    /// Sends it a signal, if it is still there.
    pub(crate) async fn kill(&self, signal: &str) {
        let mut command = Command::new("kill");
        command.args(["-s", signal, &self.id.to_string()]);
        command.stderr(std::process::Stdio::null());
        // It may have ended by itself just now; whoever needs it gone looks.
        command.status().await.expect("kill runs");
    }
}
