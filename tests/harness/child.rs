//! An engine in a process of its own, so that SIGKILL is real.
//!
//! The child is `harness/bin/engine_child.rs`. Calls and answers are lines of JSON over its stdin and stdout; several
//! may be under way, and a number brings each answer back to its call.
//! Invariant: only [`Child::kill`] ends it, by SIGKILL, and checks that it was this signal that ended it.

use std::{
    collections::HashMap,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
};

use protocol::{
    AttachArgs, AttachReason, Attached, Batch, Cursor, DetachArgs, Epoch, ErrorReport, EventPage,
    HelloArgs, Image, LibraryPage, LoadEventsArgs, LoadOlderArgs, Op, OpId, PROTOCOL, PageId,
    PollArgs, PollRequest, Receipt, Seq, SessionId, StreamId, SubmitArgs, TranscriptPage, TurnId,
    Welcome,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{ChildStdin, ChildStdout, Command},
    sync::{Mutex as AsyncMutex, oneshot},
    task::JoinSet,
};

use engine::gate::Gate;

use crate::{
    backend::Missed,
    watched::{Watched, within_limit},
};

const SIGKILL: i32 = 9;

/// One call on its way to the child.
#[derive(Debug, Serialize, Deserialize)]
pub struct Call {
    pub number: u64,
    #[serde(flatten)]
    pub what: Asked,
}

/// What is asked of the child: the window's commands.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "command", content = "args", rename_all = "snake_case")]
pub enum Asked {
    Hello { window: String, hello: HelloArgs },
    Attach(AttachArgs),
    Poll(PollArgs),
    Detach(DetachArgs),
    LoadOlder(LoadOlderArgs),
    LoadEvents(LoadEventsArgs),
    Submit(Box<SubmitArgs>),
    TakeImage { name: String, bytes: Vec<u8> },
    Library,
}

/// One answer on its way back.
#[derive(Debug, Serialize, Deserialize)]
pub struct Answer {
    pub number: u64,
    pub answer: Result<Value, ErrorReport>,
}

/// What the child says once its engine is open.
pub const READY: &str = "ready";

/// What the child says when it stands at the gate where it is to be killed.
pub const STANDS: &str = "stands at the gate";

/// How a child's engine is held by its test; its second argument, as JSON.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Held {
    /// Where it stops for good, and at which visit, from 1.
    pub gate: Option<(Gate, u64)>,
    /// The guard it lacks.
    pub mutant: Option<ChildMutant>,
    /// The port on loopback of the proxy that its system names; otherwise it names none.
    #[serde(skip)]
    pub system_proxy: Option<u16>,
}

/// The guards that matter to an engine that is killed.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum ChildMutant {
    SplitOp,
    VersionAfterTx,
    LocalThroughProxy,
}

/// What the child has said of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Told {
    ready: bool,
    stands: bool,
    gone: bool,
}

/// An engine in a process of its own. Clones are the same process.
#[derive(Clone)]
pub struct Child {
    inner: Arc<Inner>,
}

struct Inner {
    process: AsyncMutex<tokio::process::Child>,
    stdin: AsyncMutex<ChildStdin>,
    waiting: Arc<Waiting>,
    told: Arc<Watched<Told>>,
    _listener: JoinSet<()>,
}

#[derive(Default)]
struct Waiting {
    calls: Mutex<HashMap<u64, oneshot::Sender<Answer>>>,
    gone: Mutex<bool>,
    next: Mutex<u64>,
}

impl Child {
    /// Starts `program` on a data folder and waits until its engine is open, or stands at its gate.
    pub async fn start(program: &Path, data_dir: &Path, held: Held) -> Self {
        let proxy = held.system_proxy;
        let held = serde_json::to_string(&held).expect("it has a JSON form");
        let mut command = Command::new(program);
        for name in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
            let names = [name.to_owned(), name.to_uppercase()];
            for name in names {
                command.env_remove(&name);
                if let (Some(port), false) = (proxy, name.eq_ignore_ascii_case("no_proxy")) {
                    command.env(name, format!("http://127.0.0.1:{port}"));
                }
            }
        }
        let mut process = command
            .arg(data_dir)
            .arg(held)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the child starts");
        let stdin = process.stdin.take().expect("a piped stdin");
        let stdout = process.stdout.take().expect("a piped stdout");
        let lines = BufReader::new(stdout).lines();
        let told = Arc::new(Watched::new(Told::default()));
        let waiting = Arc::new(Waiting::default());
        let mut listener = JoinSet::new();
        listener.spawn(listen(lines, Arc::clone(&waiting), Arc::clone(&told)));
        let opened = told
            .until("the child's engine to open", |told| {
                (told.ready || told.stands || told.gone).then_some(*told)
            })
            .await;
        assert!(!opened.gone, "the child ended before its engine was open");
        Self {
            inner: Arc::new(Inner {
                process: AsyncMutex::new(process),
                stdin: AsyncMutex::new(stdin),
                waiting,
                told,
                _listener: listener,
            }),
        }
    }

    /// Waits until it stands at the gate where it was to be held.
    pub async fn stands(&self) {
        let stands = |told: &Told| (told.stands || told.gone).then_some(told.stands);
        let stands = self
            .inner
            .told
            .until("the child to reach its gate", stands)
            .await;
        assert!(stands, "the child ended before it came to its gate");
    }

    /// Its number, while it runs.
    pub async fn id(&self) -> u32 {
        let process = self.inner.process.lock().await;
        process.id().expect("the child still runs")
    }

    /// SIGKILL, and the wait for it.
    pub async fn kill(&self) {
        let mut process = self.inner.process.lock().await;
        process.start_kill().expect("the child still runs");
        let status = within_limit("the killed child to end", process.wait()).await;
        let status = status.expect("a child that can be waited for");
        assert_eq!(
            status.signal(),
            Some(SIGKILL),
            "the child ended by itself before: {status}"
        );
    }

    /// Has the engine take an image.
    pub async fn take_image(&self, name: &str, bytes: Vec<u8>) -> Result<Image, Missed> {
        let name = name.to_owned();
        self.ask(Asked::TakeImage { name, bytes }).await
    }

    async fn ask<T: DeserializeOwned>(&self, what: Asked) -> Result<T, Missed> {
        let (number, answer) = self.inner.waiting.register()?;
        let call = Call { number, what };
        let mut line = serde_json::to_string(&call).expect("calls have a JSON form");
        line.push('\n');
        let written = self
            .inner
            .stdin
            .lock()
            .await
            .write_all(line.as_bytes())
            .await;
        if written.is_err() {
            return Err(Missed::Lost);
        }
        match answer.await {
            Ok(Answer {
                answer: Ok(value), ..
            }) => Ok(serde_json::from_value(value).expect("an answer of its kind")),
            Ok(Answer {
                answer: Err(report),
                ..
            }) => Err(Missed::Refused(report)),
            Err(_) => Err(Missed::Lost),
        }
    }

    pub(crate) async fn hello(&self, window: &str, page: PageId) -> Result<Welcome, Missed> {
        let hello = HelloArgs {
            page,
            protocol: PROTOCOL,
        };
        self.ask(Asked::Hello {
            window: window.to_owned(),
            hello,
        })
        .await
    }

    pub(crate) async fn attach(
        &self,
        page: PageId,
        stream: StreamId,
        cursor: Option<Cursor>,
    ) -> Result<Attached, Missed> {
        self.ask(Asked::Attach(AttachArgs {
            page,
            stream,
            cursor,
            why: AttachReason::Open,
        }))
        .await
    }

    pub(crate) async fn poll(&self, request: PollRequest) -> Result<Batch, Missed> {
        self.ask(Asked::Poll(PollArgs { request })).await
    }

    pub(crate) async fn detach(&self, epoch: Epoch) -> Result<(), Missed> {
        self.ask(Asked::Detach(DetachArgs { epoch })).await
    }

    pub(crate) async fn load_older(
        &self,
        session: SessionId,
        before: TurnId,
        as_of: Cursor,
    ) -> Result<TranscriptPage, Missed> {
        self.ask(Asked::LoadOlder(LoadOlderArgs {
            session,
            before,
            as_of,
        }))
        .await
    }

    pub(crate) async fn load_events(
        &self,
        session: SessionId,
        turn: TurnId,
        after: Option<Seq>,
        max_bytes: u32,
    ) -> Result<EventPage, Missed> {
        self.ask(Asked::LoadEvents(LoadEventsArgs {
            session,
            turn,
            after,
            max_bytes,
        }))
        .await
    }

    pub(crate) async fn submit(&self, op_id: OpId, op: Op) -> Result<Receipt, Missed> {
        self.ask(Asked::Submit(Box::new(SubmitArgs { op_id, op })))
            .await
    }

    pub(crate) async fn library(&self) -> Result<LibraryPage, Missed> {
        self.ask(Asked::Library).await
    }
}

impl Waiting {
    fn register(&self) -> Result<(u64, oneshot::Receiver<Answer>), Missed> {
        // Under one lock with the end: a call is either answered, or told that nobody is there.
        let gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        if *gone {
            return Err(Missed::Lost);
        }
        let (sender, receiver) = oneshot::channel();
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        *next += 1;
        self.calls
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(*next, sender);
        Ok((*next, receiver))
    }
}

async fn listen(
    mut lines: Lines<BufReader<ChildStdout>>,
    waiting: Arc<Waiting>,
    told: Arc<Watched<Told>>,
) {
    while let Ok(Some(line)) = lines.next_line().await {
        match line.as_str() {
            READY => {
                told.change(|told| told.ready = true);
                continue;
            }
            STANDS => {
                told.change(|told| told.stands = true);
                continue;
            }
            _ => {}
        }
        // The last line of a killed process may be cut; it is an answer that never came.
        let Ok(answer) = serde_json::from_str::<Answer>(&line) else {
            break;
        };
        let call = {
            let mut calls = waiting.calls.lock().unwrap_or_else(PoisonError::into_inner);
            calls.remove(&answer.number)
        };
        if let Some(call) = call {
            // Whoever asked may be gone.
            let _ = call.send(answer);
        }
    }
    told.change(|told| told.gone = true);
    *waiting.gone.lock().unwrap_or_else(PoisonError::into_inner) = true;
    waiting
        .calls
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clear();
}
