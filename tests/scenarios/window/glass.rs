//! The real window, through WebDriver: the shipped binary, unchanged, on a data folder of its own.
//!
//! Invariant: whatever a story does, its session is closed and its processes end, or the next story would hang: the
//! driver takes one session at a time. Waiting for the window looks again and again, with a bound: WebDriver tells
//! nothing by itself.

use std::{
    net::{Ipv4Addr, TcpListener},
    panic::{AssertUnwindSafe, resume_unwind},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use engine::Reader;
use fantoccini::{Client, ClientBuilder, Locator, elements::Element, error::CmdError};
use futures_util::FutureExt;
use hyper_util::client::legacy::connect::HttpConnector;
use protocol::{Dialect, LibraryPage, StreamId, TranscriptPage};
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::{model_server::ModelServer, watched::within_limit};
use tokio::{
    net::TcpStream,
    process::{Child, Command},
    time::sleep,
};

/// A debug build on a busy machine is slow to draw.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How often an element may be drawn anew just while it is looked at.
const REDRAWS_MAX: usize = 100;

pub(super) const ENTER: &str = "\u{E007}";
pub(super) const SHIFT: &str = "\u{E008}";
const CONTROL: &str = "\u{E009}";
/// Lets go of every key that is held.
const RELEASED: &str = "\u{E000}";
pub(super) const ESCAPE: &str = "\u{E00C}";

/// The driver and a data folder; windows are opened and closed on it.
pub(super) struct Desk {
    data_dir: TempDir,
    driver: Child,
    port: u16,
    arguments: Vec<String>,
    last_opened: Option<Client>,
}

impl Desk {
    /// Runs a story. If it fails, its last picture and its log are kept.
    pub(super) async fn tell(
        name: &str,
        server: &ModelServer,
        story: impl AsyncFnOnce(&mut Desk, Window),
    ) {
        let mut desk = Self::set_up(server).await;
        let told = AssertUnwindSafe(async {
            let window = desk.open().await;
            story(&mut desk, window).await;
        });
        let told = told.catch_unwind().await;
        if let Err(failure) = told {
            desk.tell_of_a_failure(name).await;
            desk.put_away().await;
            resume_unwind(failure);
        }
        desk.put_away().await;
    }

    /// Whatever window is still there shows what went wrong. The story's own failure is the one that counts.
    #[allow(
        clippy::print_stdout,
        reason = "the test harness shows it with the failure"
    )]
    async fn tell_of_a_failure(&mut self, name: &str) {
        if let Some(client) = self.last_opened.take() {
            if let Ok(picture) = client.screenshot().await {
                keep(&format!("{name}-failed"), &picture);
            }
            client.close().await.ok();
        }
        let Ok(reader) = Reader::open(self.data_dir.path()) else {
            return;
        };
        for summary in reader
            .library()
            .map(|library| library.sessions)
            .unwrap_or_default()
        {
            let stream = StreamId::Session(summary.session);
            for event in reader.events(stream, None, usize::MAX).unwrap_or_default() {
                println!("{event:?}");
            }
        }
    }

    async fn set_up(server: &ModelServer) -> Self {
        let [port, native_port] = free_ports();
        let driver = Command::new("tauri-driver")
            .args([
                "--port",
                &port.to_string(),
                "--native-port",
                &native_port.to_string(),
            ])
            .args(["--native-driver", "/usr/bin/WebKitWebDriver"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("tauri-driver; `cargo xtask setup --window-tests` installs it");
        within_limit("WebKit's driver to listen", listening(native_port)).await;
        within_limit("tauri-driver to listen", listening(port)).await;
        let kind = match server.dialect() {
            Dialect::Ollama => format!("ollama={}", server.root()),
            Dialect::OpenAiChat => format!("openai={}/v1", server.root()),
        };
        Self {
            data_dir: tempfile::tempdir().expect("a data folder"),
            driver,
            port,
            arguments: vec!["--provider".to_owned(), kind],
            last_opened: None,
        }
    }

    /// Starts the app.
    pub(super) async fn open(&mut self) -> Window {
        let app = std::env::var("HOLDFAST_APP").expect("HOLDFAST_APP, the path of the built app");
        let mut arguments = vec![
            "--data-dir".to_owned(),
            self.data_dir.path().display().to_string(),
        ];
        arguments.extend(self.arguments.clone());
        let capabilities = json!({
            "browserName": "wry",
            "tauri:options": { "application": app, "args": arguments },
        });
        let Value::Object(capabilities) = capabilities else {
            panic!("an object")
        };
        let client = ClientBuilder::new(HttpConnector::new())
            .capabilities(capabilities)
            .connect(&format!("http://127.0.0.1:{}", self.port))
            .await
            .expect("a session with the app");
        self.last_opened = Some(client.clone());
        let window = Window { client };
        window.wait_for("composer").await;
        window
    }

    /// The conversation as the data folder has it, read while the app has it open.
    pub(super) fn stored(&self) -> TranscriptPage {
        let reader = Reader::open(self.data_dir.path()).expect("the data folder can be read");
        let library = reader.library().expect("the library can be read");
        let session = library.sessions.first().expect("a session").session;
        reader.transcript(session).expect("the session can be read")
    }

    /// The library as the data folder has it.
    pub(super) fn library(&self) -> LibraryPage {
        let reader = Reader::open(self.data_dir.path()).expect("the data folder can be read");
        reader.library().expect("the library can be read")
    }

    /// SIGKILL for the app, found by its data folder.
    pub(super) async fn kill_app(&self) {
        let ours = self.data_dir.path().display().to_string();
        let mut killed = 0;
        for process in std::fs::read_dir("/proc").expect("Linux").flatten() {
            let name = process.file_name().to_string_lossy().into_owned();
            // Processes come and go while we look.
            let Ok(line) = std::fs::read(process.path().join("cmdline")) else {
                continue;
            };
            let mut words = line.split(|byte| *byte == 0);
            if name.parse::<u32>().is_ok() && words.any(|word| word == ours.as_bytes()) {
                let status = Command::new("kill").args(["-9", &name]).status().await;
                assert!(status.expect("kill runs").success(), "kill -9 {name}");
                killed += 1;
            }
        }
        assert_eq!(killed, 1, "one process has this data folder");
    }

    async fn put_away(mut self) {
        self.end_driver();
        within_limit("tauri-driver to end", self.driver.wait())
            .await
            .expect("it ends");
    }

    /// SIGTERM, so that the driver takes WebKit's driver along.
    fn end_driver(&self) {
        if let Some(id) = self.driver.id() {
            let kill = std::process::Command::new("kill")
                .arg(id.to_string())
                .status();
            kill.expect("kill runs");
        }
    }
}

/// For a story that cannot even begin.
impl Drop for Desk {
    fn drop(&mut self) {
        self.end_driver();
    }
}

/// Whether words of a mark are waited for, or their end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    There,
    Gone,
}

/// One open window.
pub(super) struct Window {
    client: Client,
}

impl Window {
    /// Ends the app as WebDriver does it.
    pub(super) async fn close(self) {
        self.client.close().await.expect("the session is closed");
    }

    /// The session with an app that is gone.
    pub(super) async fn forget(self) {
        // The driver may already have noticed by itself.
        self.client.close().await.ok();
    }

    /// Keeps a picture.
    pub(super) async fn picture(&self, name: &str) {
        keep(
            name,
            &self
                .client
                .screenshot()
                .await
                .expect("a picture of the window"),
        );
    }

    /// Loads the page anew.
    pub(super) async fn reload(&self) {
        self.client.refresh().await.expect("the page loads again");
        self.wait_for("composer").await;
    }

    /// Types into the composer.
    pub(super) async fn type_text(&self, text: &str) {
        self.wait_for("composer")
            .await
            .send_keys(text)
            .await
            .expect("the composer takes text");
    }

    /// Types into whatever has the focus.
    pub(super) async fn press(&self, keys: &str) {
        let focused = self.client.active_element().await;
        let focused = focused.expect("something has the focus");
        focused.send_keys(keys).await.expect("it takes keys");
    }

    /// A shortcut: Control and a key, wherever the focus is.
    pub(super) async fn chord(&self, key: &str) {
        self.press(&format!("{CONTROL}{key}{RELEASED}")).await;
    }

    /// Sends a message with Enter.
    pub(super) async fn send(&self, text: &str) {
        self.type_text(text).await;
        self.type_text(ENTER).await;
    }

    pub(super) async fn click(&self, testid: &str) {
        self.wait_for(testid)
            .await
            .click()
            .await
            .unwrap_or_else(|e| panic!("{testid}: {e}"));
    }

    /// Waits until an element is there.
    pub(super) async fn wait_for(&self, testid: &str) -> Element {
        self.wait_for_path(&format!("//*[@data-testid='{testid}']"), testid)
            .await
    }

    /// Waits until there are `n` elements of a kind.
    pub(super) async fn wait_for_nth(&self, testid: &str, n: usize) -> Element {
        let path = format!("(//*[@data-testid='{testid}'])[{n}]");
        self.wait_for_path(&path, &format!("{testid} number {n}"))
            .await
    }

    /// Waits until an element contains a text. The text has no quotes in it.
    pub(super) async fn wait_for_text(&self, testid: &str, text: &str) -> Element {
        let path = format!("//*[@data-testid='{testid}'][contains(normalize-space(.), '{text}')]");
        self.wait_for_path(&path, &format!("{text:?} in {testid}"))
            .await
    }

    /// Waits until an element that contains a text contains another one as well, or no more.
    pub(super) async fn wait_for_mark(&self, testid: &str, text: &str, mark: &str, is: Mark) {
        let says = |text: &str| format!("contains(normalize-space(.), '{text}')");
        let (text, mark) = (says(text), says(mark));
        let marked = match is {
            Mark::There => mark,
            Mark::Gone => format!("not({mark})"),
        };
        let path = format!("//*[@data-testid='{testid}'][{text}][{marked}]");
        self.wait_for_path(&path, &path).await;
    }

    /// Waits until an element has the focus.
    pub(super) async fn wait_for_focus(&self, testid: &str) {
        let wait = self.client.wait().at_most(PATIENCE).every(LOOK_EVERY);
        let focused = format!("[data-testid={testid}]:focus");
        if let Err(error) = wait.for_element(Locator::Css(&focused)).await {
            let text = self.text().await;
            panic!("{testid} did not get the focus ({error}); the window shows:\n{text}")
        }
    }

    /// Puts another text into a field.
    pub(super) async fn fill(&self, testid: &str, text: &str) {
        let field = self.wait_for(testid).await;
        field.clear().await.expect("a field can be emptied");
        field.send_keys(text).await.expect("a field takes text");
    }

    /// Waits until no such element is there any more.
    pub(super) async fn wait_until_gone(&self, testid: &str) {
        let path = format!("//body[not(descendant::*[@data-testid='{testid}'])]");
        self.wait_for_path(&path, &format!("no {testid}")).await;
    }

    async fn wait_for_path(&self, path: &str, what: &str) -> Element {
        for _ in 0..REDRAWS_MAX {
            let wait = self.client.wait().at_most(PATIENCE).every(LOOK_EVERY);
            match wait.for_element(Locator::XPath(path)).await {
                Ok(element) => return element,
                Err(CmdError::WaitTimeout) => {
                    let text = self.text().await;
                    panic!("hung while waiting for {what}; the window shows:\n{text}")
                }
                // The page drew it anew while the driver held it in its hands: as good as not there yet.
                Err(error) if error.to_string().contains("parse element info") => {}
                Err(error) => panic!("while waiting for {what}: {error}"),
            }
        }
        panic!("{what} is drawn anew without end")
    }

    /// The texts of all elements of a kind.
    pub(super) async fn texts(&self, testid: &str) -> Vec<String> {
        let path = format!("//*[@data-testid='{testid}']");
        let found = self
            .client
            .find_all(Locator::XPath(&path))
            .await
            .expect("elements");
        let mut texts = Vec::new();
        for element in found {
            texts.push(element.text().await.expect("the text of an element"));
        }
        texts
    }

    /// Everything that can be read in the window.
    pub(super) async fn text(&self) -> String {
        let body = self
            .client
            .find(Locator::Css("body"))
            .await
            .expect("a page");
        body.text().await.expect("the text of the page")
    }

    /// Runs a script of the test's own in the page.
    pub(super) async fn run(&self, script: &str) -> Value {
        self.client
            .execute(script, Vec::new())
            .await
            .expect("the script runs")
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

fn keep(name: &str, picture: &[u8]) {
    let folder = screenshots();
    std::fs::create_dir_all(&folder).expect("a folder for pictures");
    std::fs::write(folder.join(format!("{name}.png")), picture).expect("the picture is kept");
}

fn screenshots() -> PathBuf {
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    temporary
        .parent()
        .expect("it is inside the target folder")
        .join("screenshots")
}
