//! Where a story takes place: a data folder, a driver, and the windows that are opened on them.
//!
//! Invariant: whatever a story does, or does not do any more, it ends: its limit is over, what it waited for is told,
//! its sessions are closed and its processes gone, so that the next story runs. The driver takes one session at a time.

use std::{
    panic::{AssertUnwindSafe, resume_unwind},
    time::Duration,
};

use engine::Reader;
use fantoccini::{Client, ClientBuilder};
use futures_util::FutureExt;
use hyper_util::client::legacy::connect::HttpConnector;
use protocol::{Dialect, Event, LibraryPage, StreamId, TranscriptPage};
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::model_server::ModelServer;
use tokio::time::{sleep, timeout};

use super::{
    LOOK_EVERY, PATIENCE, Steps, Window,
    driver::{Colours, Driver},
    pictures,
    processes::{Mark, Process},
};

/// Real time for a whole story on a busy machine; the longest takes a fifth of it on an idle one.
const STORY_LIMIT: Duration = Duration::from_secs(120);
/// For the app to start and to let itself be driven.
const OPEN_LIMIT: Duration = Duration::from_secs(60);
/// For the app to go by itself after its session was closed.
const LEAVE_LIMIT: Duration = Duration::from_secs(10);

/// Lines of the app's own notes that a failure is told with.
const NOTES_TOLD: usize = 40;
/// What the app notes when a page cannot go on.
const BROKE: &str = "a page broke";

/// The driver and a data folder; windows are opened and closed on it.
pub(crate) struct Desk {
    data_dir: TempDir,
    driver: Driver,
    mark: Mark,
    arguments: Vec<String>,
    /// The sessions that were ever opened.
    sessions: Vec<String>,
    /// A session is closed when nobody has its client any more: after a failure it must still be there to be looked at.
    clients: Vec<Client>,
    steps: Steps,
    /// How often its pages were broken on purpose.
    breaks: usize,
}

impl Desk {
    /// Runs a story. If it fails or hangs, its last picture and its log are kept.
    pub(crate) async fn tell(
        name: &str,
        server: &ModelServer,
        story: impl AsyncFnOnce(&mut Desk, Window),
    ) {
        let data_dir = tempfile::tempdir().expect("a data folder");
        Self::tell_in(data_dir, name, server, story).await;
    }

    /// The same in a data folder that was used before.
    pub(crate) async fn tell_in(
        data_dir: TempDir,
        name: &str,
        server: &ModelServer,
        story: impl AsyncFnOnce(&mut Desk, Window),
    ) {
        Self::tell_within(STORY_LIMIT, data_dir, name, server, story).await;
    }

    /// The same with a limit of the story's own.
    pub(crate) async fn tell_within(
        limit: Duration,
        data_dir: TempDir,
        name: &str,
        server: &ModelServer,
        story: impl AsyncFnOnce(&mut Desk, Window),
    ) {
        let desk = Self::set_up(data_dir, server, Colours::Light).await;
        Self::tell_at(desk, limit, name, story).await;
    }

    /// The same on a desktop of these colours.
    pub(crate) async fn tell_in_colours(
        colours: Colours,
        name: &str,
        server: &ModelServer,
        story: impl AsyncFnOnce(&mut Desk, Window),
    ) {
        let data_dir = tempfile::tempdir().expect("a data folder");
        let desk = Self::set_up(data_dir, server, colours).await;
        Self::tell_at(desk, STORY_LIMIT, name, story).await;
    }

    async fn tell_at(
        mut desk: Self,
        limit: Duration,
        name: &str,
        story: impl AsyncFnOnce(&mut Desk, Window),
    ) {
        let told = AssertUnwindSafe(async {
            let window = desk.open().await;
            timeout(limit, story(&mut desk, window)).await
        });
        match told.catch_unwind().await {
            Ok(Ok(())) => {
                let (broke, notes) = (desk.noted(BROKE), desk.last_notes());
                let breaks = desk.breaks;
                desk.put_away(LEAVE_LIMIT).await;
                // One that was loaded anew may look as if nothing had happened.
                assert_eq!(broke, breaks, "a page broke: {notes:#?}");
            }
            Ok(Err(_)) => {
                let steps = desk.steps.told();
                desk.tell_of_a_failure(name).await;
                desk.put_away(Duration::ZERO).await;
                panic!("the story is not over after {limit:?}; its last steps:\n{steps}");
            }
            Err(failure) => {
                desk.tell_of_a_failure(name).await;
                desk.put_away(Duration::ZERO).await;
                resume_unwind(failure);
            }
        }
    }

    /// The same without any server, and with the file of a model that one begins with.
    pub(crate) async fn tell_with_file(
        name: &str,
        file: &str,
        limit: Duration,
        story: impl AsyncFnOnce(&mut Desk, Window),
    ) {
        let data_dir = tempfile::tempdir().expect("a data folder");
        let mark = Mark::new(&data_dir.path().display().to_string());
        let environment = [("HOLDFAST_FIRST_MODEL", file)];
        let driver = Driver::start(&mark, Colours::Light, &environment).await;
        let desk = Self::with(driver, data_dir, mark, Vec::new());
        Self::tell_at(desk, limit, name, story).await;
    }

    /// Whatever window is still there shows what went wrong. The story's own failure is the one that counts.
    #[allow(
        clippy::print_stdout,
        reason = "the test harness shows it with the failure"
    )]
    async fn tell_of_a_failure(&self, name: &str) {
        println!("the last steps:\n{}", self.steps.told());
        pictures::keep_screen(&format!("{name}-failed")).await;
        if let Some(session) = self.sessions.last() {
            let text = json!({ "script": "return document.body.innerText", "args": [] });
            let path = format!("/session/{session}/execute/sync");
            match self.driver.ask("POST", &path, &text.to_string()).await {
                Some(Value::String(text)) => println!("the window shows:\n{text}"),
                Some(other) => println!("the window cannot be read: {other}"),
                None => println!("the window does not answer"),
            }
        }
        for process in self.mark.processes() {
            println!("{} {}: {}", process.id, process.name, process.state);
        }
        for line in self.last_notes() {
            println!("{line}");
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

    /// What the app noted about itself, the last of it: how a web process ended, among other things.
    fn last_notes(&self) -> Vec<String> {
        let lines: Vec<_> = self.notes().lines().map(str::to_owned).collect();
        let (_, last) = lines.split_at(lines.len().saturating_sub(NOTES_TOLD));
        last.to_vec()
    }

    async fn set_up(data_dir: TempDir, server: &ModelServer, colours: Colours) -> Self {
        let mark = Mark::new(&data_dir.path().display().to_string());
        let kind = match server.dialect() {
            Dialect::Ollama => format!("ollama={}", server.root()),
            Dialect::OpenAiChat => format!("openai={}/v1", server.root()),
            Dialect::Anthropic => format!("anthropic={}/v1", server.root()),
            Dialect::Local => format!("local={}", server.provider().base_url),
        };
        let driver = Driver::start(&mark, colours, &[]).await;
        Self::with(driver, data_dir, mark, vec!["--provider".to_owned(), kind])
    }

    fn with(driver: Driver, data_dir: TempDir, mark: Mark, arguments: Vec<String>) -> Self {
        Self {
            driver,
            data_dir,
            mark,
            arguments,
            sessions: Vec::new(),
            clients: Vec::new(),
            steps: Steps::default(),
            breaks: 0,
        }
    }

    fn app_arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            "--data-dir".to_owned(),
            self.data_dir.path().display().to_string(),
        ];
        arguments.extend(self.arguments.clone());
        arguments
    }

    /// Starts the app once more while it runs; says what the second start said.
    pub(crate) async fn start_again(&self) -> String {
        let mut command = tokio::process::Command::new(app_path());
        command.args(self.app_arguments());
        command
            .stdin(std::process::Stdio::null())
            .kill_on_drop(true);
        self.mark.put_on(&mut command);
        self.steps.note("a second start");
        let told = timeout(OPEN_LIMIT, command.output()).await;
        let told = told.expect("a second start ends").expect("it starts");
        String::from_utf8_lossy(&told.stdout).into_owned()
    }

    /// Starts the app.
    pub(crate) async fn open(&mut self) -> Window {
        let app = app_path();
        let arguments = self.app_arguments();
        let capabilities = json!({
            "browserName": "wry",
            "tauri:options": { "application": app, "args": arguments },
        });
        let Value::Object(capabilities) = capabilities else {
            panic!("an object")
        };
        self.steps.note("the app to start");
        let mut app = ClientBuilder::new(HttpConnector::new());
        let address = self.driver.address();
        let client =
            match timeout(OPEN_LIMIT, app.capabilities(capabilities).connect(&address)).await {
                Ok(client) => client.expect("a session with the app"),
                Err(_) => panic!("hung: the app does not start, or not as the driver wants it"),
            };
        let session = client.session_id().await.expect("the session has an id");
        self.sessions.extend(session);
        self.clients.push(client.clone());
        let window = Window::new(client, self.steps.clone());
        window.wait_for("composer").await;
        window
    }

    /// The conversation as the data folder has it, read while the app has it open.
    pub(crate) fn stored(&self) -> TranscriptPage {
        let reader = Reader::open(self.data_dir.path()).expect("the data folder can be read");
        let library = reader.library().expect("the library can be read");
        let session = library.sessions.first().expect("a session").session;
        reader.transcript(session).expect("the session can be read")
    }

    /// How many of its turns have ended; none while there is no conversation.
    pub(crate) fn ended(&self) -> usize {
        if self.library().sessions.is_empty() {
            return 0;
        }
        let turns = self.stored().turns.into_iter();
        turns.filter(|turn| turn.outcome.is_some()).count()
    }

    /// The same, event by event.
    pub(crate) fn events(&self) -> Vec<Event> {
        let reader = Reader::open(self.data_dir.path()).expect("the data folder can be read");
        let library = reader.library().expect("the library can be read");
        let session = library.sessions.first().expect("a session").session;
        let events = reader.events(StreamId::Session(session), None, usize::MAX);
        events.expect("the session can be read")
    }

    /// Waits until something is so that no window tells of.
    pub(crate) async fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        self.until_within(PATIENCE, what, is_so).await;
    }

    /// The same for what takes longer.
    pub(crate) async fn until_within(
        &self,
        limit: Duration,
        what: &str,
        is_so: impl Fn(&Self) -> bool,
    ) {
        self.steps.note(&format!("wait until {what}"));
        let wait = async {
            while !is_so(self) {
                sleep(LOOK_EVERY).await;
            }
        };
        if timeout(limit, wait).await.is_err() {
            panic!("hung while waiting until {what}");
        }
    }

    /// Keeps a picture of the whole screen, for a window without a driver.
    pub(crate) async fn screen(&self, name: &str) {
        pictures::keep_screen(name).await;
    }

    /// The story breaks its pages on purpose, so many times.
    pub(crate) fn breaks(&mut self, times: usize) {
        self.breaks = times;
    }

    /// The data folder.
    pub(crate) fn data_dir(&self) -> &std::path::Path {
        self.data_dir.path()
    }

    /// How often the app's notes say this.
    pub(crate) fn noted(&self, words: &str) -> usize {
        self.notes().matches(words).count()
    }

    fn notes(&self) -> String {
        let files = std::fs::read_dir(self.data_dir.path().join("logs"));
        let files = files.into_iter().flatten().flatten();
        files
            .filter_map(|file| std::fs::read_to_string(file.path()).ok())
            .collect()
    }

    /// The library as the data folder has it.
    pub(crate) fn library(&self) -> LibraryPage {
        let reader = Reader::open(self.data_dir.path()).expect("the data folder can be read");
        reader.library().expect("the library can be read")
    }

    /// What this story started and is still there.
    pub(crate) fn processes(&self) -> Vec<Process> {
        self.mark.processes()
    }

    /// To look for them when the story is over.
    pub(crate) fn mark(&self) -> Mark {
        self.mark.clone()
    }

    /// Whether the app is there.
    pub(crate) fn runs(&self) -> bool {
        let ours = self.data_dir.path().display().to_string();
        let running = self.mark.processes();
        running.iter().any(|process| process.is_told(&ours))
    }

    /// The app's own process.
    pub(crate) fn app(&self) -> Process {
        let ours = self.data_dir.path().display().to_string();
        let mut running = self.mark.processes();
        running.retain(|process| process.is_told(&ours));
        assert_eq!(running.len(), 1, "one process has this data folder");
        running.remove(0)
    }

    /// SIGKILL for the app.
    pub(crate) async fn kill_app(&self) {
        self.app().kill("KILL").await;
    }

    /// Closes what is open, and ends what has not gone by itself in time.
    async fn put_away(self, patience: Duration) {
        for session in &self.sessions {
            let path = format!("/session/{session}");
            // One that is closed already says so, and one that hangs ends with its processes.
            self.driver.ask("DELETE", &path, "").await;
        }
        self.driver.end().await;
        self.mark.end(patience).await;
    }
}

pub(super) fn app_path() -> String {
    std::env::var("HOLDFAST_APP").expect("HOLDFAST_APP, the path of the built app")
}
