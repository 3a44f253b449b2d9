//! WebKit's driver and Tauri's in front of it, one of each for a story.
//!
//! Invariant: a question of ours has an answer or an end: every one has a limit. The story's own questions go through
//! one queue, which hangs as a whole; what must be known of a hanging window is asked past it.

use std::{
    net::{Ipv4Addr, TcpListener},
    process::Stdio,
    time::Duration,
};

use serde_json::Value;
use tests::watched::within_limit;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    process::{Child, Command},
    time::{sleep, timeout},
};

use super::processes::Mark;

const LOOK_EVERY: Duration = Duration::from_millis(50);
/// For a question to a window that may hang.
const ASKED_PAST_LIMIT: Duration = Duration::from_secs(2);
/// For a driver to end what it started.
const END_LIMIT: Duration = Duration::from_secs(10);

/// How the desktop is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colours {
    Light,
    Dark,
}

impl Colours {
    fn theme(self) -> &'static str {
        match self {
            Self::Light => "Adwaita",
            Self::Dark => "Adwaita:dark",
        }
    }
}

pub(super) struct Driver {
    process: Child,
    port: u16,
}

impl Driver {
    /// Starts it; what it starts sees this environment too.
    pub(super) async fn start(mark: &Mark, colours: Colours, environment: &[(&str, &str)]) -> Self {
        let [port, native_port] = free_ports();
        let mut command = Command::new("tauri-driver");
        command
            .args(["--port", &port.to_string()])
            .args(["--native-port", &native_port.to_string()])
            .args(["--native-driver", "/usr/bin/WebKitWebDriver"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit());
        // What it starts takes its environment over.
        command.env("GTK_THEME", colours.theme());
        mark.put_on(&mut command);
        command.envs(environment.iter().copied());
        let process = command
            .spawn()
            .expect("tauri-driver; `cargo xtask setup --window-tests` installs it");
        within_limit("WebKit's driver to listen", listening(native_port)).await;
        within_limit("tauri-driver to listen", listening(port)).await;
        Self { process, port }
    }

    pub(super) fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Asks it directly; nothing, if there is no answer in time.
    pub(super) async fn ask(&self, method: &str, path: &str, body: &str) -> Option<Value> {
        let asked = async {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))
                .await
                .ok()?;
            let head = format!(
                "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n\
                 Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                self.port,
                body.len()
            );
            stream.write_all(head.as_bytes()).await.ok()?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.ok()?;
            let answer = String::from_utf8_lossy(&answer).into_owned();
            let (_, body) = answer.split_once("\r\n\r\n")?;
            let mut answer: Value = serde_json::from_str(body).ok()?;
            Some(answer["value"].take())
        };
        timeout(ASKED_PAST_LIMIT, asked).await.ok().flatten()
    }

    /// SIGTERM, so that it takes WebKit's driver along.
    pub(super) fn tell_to_end(&self) {
        if let Some(id) = self.process.id() {
            let kill = std::process::Command::new("kill")
                .arg(id.to_string())
                .status();
            kill.expect("kill runs");
        }
    }

    /// Ends it, by force if need be.
    pub(super) async fn end(mut self) {
        self.tell_to_end();
        if timeout(END_LIMIT, self.process.wait()).await.is_err() {
            self.process.kill().await.expect("our own child is killed");
        }
    }
}

fn free_ports<const N: usize>() -> [u16; N] {
    // All bound at once, so that no two are the same.
    let listeners = [(); N]
        .map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port on loopback"));
    listeners.map(|listener| listener.local_addr().expect("a bound listener").port())
}

async fn listening(port: u16) {
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port))
        .await
        .is_err()
    {
        sleep(LOOK_EVERY).await;
    }
}
