//! The world of a story: a data folder, an engine on it, a clock, and the line to the pages.
//!
//! Invariant: the engine is the product's own, made by its own factory; the world only passes in what is passed in.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use engine::{
    Config, Engine, Harness, Keychain, LogFaults, OpenError, Reader,
    clock::{Awake, SystemClock},
    gateway::local::Host,
    mutant::Mutant,
};
use protocol::{
    Event, InterruptedWhy, ModelRef, Op, OpId, Phase, Provider, Receipt, SessionId, StreamId,
    TimeLimits, TurnId,
};
use tempfile::TempDir;
use transcript::Transcript;

use crate::{
    backend::{Line, Missed},
    child::{Child, Held},
    client::{Client, Page},
    clock::TestClock,
    engine_gates::EngineGates,
    model_server::ModelServer,
    sentinel::random_u128,
    watched::within_limit,
};

/// Two frames: what the engine joins text for, before it is written.
const TEXT_FLUSH: Duration = Duration::from_millis(33);

/// The program that stands in for a model's own process; it is built with the tests.
pub fn model_host() -> Host {
    let here = std::env::current_exe().expect("this program has a path");
    let program = here
        .ancestors()
        .map(|folder| folder.join("model_child"))
        .find(|program| program.is_file());
    // The benchmark is built alone, and asks none.
    Host::new(program.unwrap_or_else(|| "model_child".into()), [])
}

/// Everything around one engine.
pub struct World {
    dir: TempDir,
    pub clock: TestClock,
    pub line: Line,
    /// What its disk does.
    pub faults: LogFaults,
    /// How many bytes that disk says are free.
    pub free_bytes: Arc<AtomicU64>,
    /// How many bytes of memory it is told are free.
    pub free_memory: Arc<AtomicU64>,
    pub limits: TimeLimits,
    /// Where the engine can be held.
    pub gates: EngineGates,
    /// Where its keys can be kept.
    pub keychain: Arc<dyn Keychain>,
    /// What runs models of this computer.
    pub host: Host,
    /// The guard that the engine lacks.
    pub mutant: Option<Mutant>,
    time: Time,
    engine: Option<Engine>,
}

/// Whose time the engine lives in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Time {
    Test,
    /// The test's, on a machine whose monotonic clock goes on while it sleeps.
    Sleepless,
    Real,
}

impl World {
    /// An empty data folder with an engine on it.
    pub async fn new() -> Self {
        let mut world = Self::without_engine();
        world.open().await;
        world
    }

    /// An empty data folder.
    pub fn without_engine() -> Self {
        let product = Config::new("");
        Self {
            dir: tempfile::tempdir().expect("a data folder"),
            clock: TestClock::default(),
            line: Line::default(),
            faults: LogFaults::default(),
            free_bytes: Arc::new(AtomicU64::new(u64::MAX)),
            free_memory: Arc::new(AtomicU64::new(u64::MAX)),
            limits: product.limits,
            gates: EngineGates::default(),
            keychain: product.keychain,
            host: model_host(),
            mutant: None,
            time: Time::Test,
            engine: None,
        }
    }

    /// An empty data folder with an engine on it that lives in real time: for real servers, and for measuring.
    pub async fn in_real_time() -> Self {
        let mut world = Self::without_engine();
        world.live_in_real_time();
        world.open().await;
        world
    }

    /// Its engine, which is not open yet, lives in real time.
    pub fn live_in_real_time(&mut self) {
        self.time = Time::Real;
    }

    /// The same, for a machine whose monotonic clock goes on while it sleeps: Windows. There the clock is moved in steps of
    /// a few seconds, and a long one is a sleep.
    pub fn without_engine_on_windows() -> Self {
        let mut world = Self::without_engine();
        world.time = Time::Sleepless;
        world
    }

    /// The silence that is waited out before the first event.
    pub fn first_event(&self) -> Duration {
        Duration::from_millis(self.limits.first_event_ms)
    }

    /// The silence that is waited out after it.
    pub fn gap(&self) -> Duration {
        Duration::from_millis(self.limits.gap_ms)
    }

    /// The limit of a turn's active time.
    pub fn ceiling(&self) -> Duration {
        Duration::from_millis(self.limits.ceiling_ms)
    }

    /// The data folder.
    pub fn data_dir(&self) -> &Path {
        self.dir.path()
    }

    /// What an engine of this world is made of.
    pub fn config(&self) -> Config {
        let mut harness = Harness::default().with_keeper(self.gates.keeper());
        if let Some(mutant) = self.mutant {
            harness = harness.with_mutant(mutant);
        }
        Config {
            harness: harness.clone(),
            clock: match self.time {
                Time::Test => Arc::new(self.clock.clone()),
                Time::Sleepless => Arc::new(Awake::new(self.clock.clone(), harness.clone())),
                Time::Real => Arc::new(SystemClock::new()),
            },
            faults: self.faults.clone(),
            free_space: {
                let free = Arc::clone(&self.free_bytes);
                Arc::new(move |_| Ok(free.load(Ordering::Relaxed)))
            },
            free_memory: {
                let free = Arc::clone(&self.free_memory);
                Arc::new(move || Some(free.load(Ordering::Relaxed)))
            },
            limits: self.limits,
            keychain: Arc::clone(&self.keychain),
            host: Some(self.host.clone()),
            ..Config::new(self.data_dir())
        }
    }

    /// Starts the engine.
    pub async fn open(&mut self) {
        let engine = self.try_open().await.expect("the engine opens");
        self.line.to_engine(engine.clone());
        self.engine = Some(engine);
    }

    /// Tries to start another one on the same folder.
    pub async fn try_open(&self) -> Result<Engine, OpenError> {
        within_limit("the engine to open", Engine::open(self.config())).await
    }

    /// The running engine.
    pub fn engine(&self) -> &Engine {
        self.engine.as_ref().expect("an open engine")
    }

    /// Closes the engine, as Quit does.
    pub async fn quit(&mut self) {
        let engine = self.engine.take().expect("an open engine");
        within_limit(
            "the engine to close",
            engine.shutdown(InterruptedWhy::AppExit),
        )
        .await;
        assert_eq!(
            engine.counters().backstops,
            0,
            "a turn ended without an outcome of its own"
        );
        self.line.cut();
    }

    /// Closes the engine and leaves its data folder to whoever goes on with it.
    pub async fn leave(mut self) -> TempDir {
        self.quit().await;
        let empty = tempfile::tempdir().expect("a data folder");
        std::mem::replace(&mut self.dir, empty)
    }

    /// Closes the engine and starts it again.
    pub async fn restart(&mut self) {
        self.quit().await;
        self.open().await;
    }

    /// Starts an engine in a process of its own instead.
    pub async fn spawn(&self, program: &Path) -> Child {
        self.spawn_held(program, Held::default()).await
    }

    /// The same, to be held at a gate, or without one of its guards. Its engine need not have come to open.
    pub async fn spawn_held(&self, program: &Path, held: Held) -> Child {
        let child = Child::start(program, self.data_dir(), held).await;
        self.line.to_child(child.clone());
        child
    }

    /// Submits an op under a fresh id.
    pub async fn submit(&self, op: Op) -> Result<Receipt, Missed> {
        self.line.submit(OpId::from_bits(random_u128()), op).await
    }

    /// Adds a server to the settings.
    pub async fn add(&self, provider: Provider) {
        self.submit(Op::AddProvider { provider })
            .await
            .expect("the provider is added");
    }

    /// Adds a server to the settings and begins a conversation with its model.
    pub async fn begin(&self, server: &ModelServer, text: &str) -> SessionId {
        self.add(server.provider()).await;
        self.begin_with(server.model(), text).await
    }

    /// Begins a conversation.
    pub async fn begin_with(&self, model: ModelRef, text: &str) -> SessionId {
        let session = SessionId::from_bits(random_u128());
        let op = Op::StartSession {
            session,
            model,
            text: text.to_owned(),
            folder: None,
            options: protocol::ModelOptions::default(),
            images: Vec::new(),
        };
        self.submit(op).await.expect("the conversation begins");
        session
    }

    /// Adds a server and begins a conversation with it whose tools see the files below a folder.
    pub async fn begin_in(&self, server: &ModelServer, folder: &Path, text: &str) -> SessionId {
        self.add(server.provider()).await;
        let session = SessionId::from_bits(random_u128());
        let folder = folder.to_str().expect("a folder with a plain name");
        let op = Op::StartSession {
            session,
            model: server.model(),
            text: text.to_owned(),
            folder: Some(folder.to_owned()),
            options: protocol::ModelOptions::default(),
            images: Vec::new(),
        };
        self.submit(op).await.expect("the conversation begins");
        session
    }

    /// Goes on with a conversation.
    pub async fn say(&self, session: SessionId, text: &str) -> TurnId {
        let op = Op::message(session, text);
        let receipt = self.submit(op).await.expect("the message is taken");
        receipt.turn.expect("a message starts a turn")
    }

    /// Gives a conversation another title.
    pub async fn rename(&self, session: SessionId, title: &str) {
        let title = title.to_owned();
        let renamed = self.submit(Op::RenameSession { session, title }).await;
        renamed.expect("renamed");
    }

    /// Stops a turn.
    pub async fn stop(&self, session: SessionId, turn: TurnId) {
        self.submit(Op::CancelTurn { session, turn })
            .await
            .expect("the stop is noted");
    }

    /// A page in the window called "main".
    pub async fn page(&self) -> Page {
        Page::load(&self.line, "main").await
    }

    /// Waits until a session waits for its next attempt, and lets that much time pass.
    pub async fn pass_the_wait(&self, window: &Client<Transcript>, next_attempt: u32) {
        let status = window
            .until_status(&format!("the wait for attempt {next_attempt}"), |status| {
                matches!(status.phase, Phase::Retrying { attempt, .. } if attempt == next_attempt)
            })
            .await;
        let Phase::Retrying { until, .. } = status.phase else {
            panic!("{status:?}")
        };
        let wait = Duration::from_millis(until.millis_since(status.since));
        // The status may be seen a moment before its timer is armed.
        self.clock.until_armed(wait).await;
        self.clock.advance(wait);
    }

    /// Lets text go that waits to be joined: waits until some does, and moves the clock by two frames.
    pub async fn flush_text(&self) {
        self.clock.fire_next_within(TEXT_FLUSH).await;
    }

    /// Lets joined text go until a window has drawn `text`, however many pieces it comes in.
    pub async fn flush_until(&self, window: &Client<Transcript>, text: &str) {
        loop {
            tokio::select! {
                biased;
                _ = window.sees(text) => return,
                () = self.flush_text() => {}
            }
        }
    }

    /// The data folder, read as the terminal reads it.
    pub fn reader(&self) -> Reader {
        Reader::open(self.data_dir()).expect("the data folder can be read")
    }

    /// Every event of a session, as stored.
    pub fn events(&self, session: SessionId) -> Vec<Event> {
        let events = self
            .reader()
            .events(StreamId::Session(session), None, usize::MAX);
        events.expect("the session can be read")
    }
}

/// No story leaves a turn whose end nobody decided (INV-119), unless the guard is gone that it is about.
impl Drop for World {
    fn drop(&mut self) {
        if let (Some(engine), None, false) = (&self.engine, self.mutant, std::thread::panicking()) {
            let backstops = engine.counters().backstops;
            assert_eq!(backstops, 0, "a turn ended without an outcome of its own");
        }
    }
}
