//! An engine in a process of its own, driven by lines of JSON, to be killed by the tests.
//!
//! Real time, no clean-up of its own: what a SIGKILL leaves behind is what the next start finds.

#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "part of the test harness"
)]

use std::{
    path::PathBuf,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use engine::{
    Config, Engine, Harness,
    gate::{Gate, Gatekeeper},
    mutant::Mutant,
};
use protocol::ErrorReport;
use serde::Serialize;
use serde_json::Value;
use tests::child::{Answer, Asked, Call, ChildMutant, Held, READY, STANDS};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    sync::Mutex,
    task::JoinSet,
};

/// The whole program; its arguments are the data folder, and how it is held.
pub(crate) fn main() {
    let data_dir = PathBuf::from(std::env::args_os().nth(1).expect("the data folder"));
    let held = std::env::args().nth(2).expect("how it is held");
    let held: Held = serde_json::from_str(&held).expect("how it is held");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(serve(data_dir, held));
}

/// Stops its engine for good at one visit of one gate.
#[derive(Debug)]
struct LastGate {
    gate: Gate,
    visit: u64,
    visits: AtomicU64,
}

impl LastGate {
    fn is_here(&self, gate: Gate) -> bool {
        gate == self.gate && self.visits.fetch_add(1, Ordering::Relaxed) + 1 == self.visit
    }
}

impl Gatekeeper for LastGate {
    fn pass(&self, gate: Gate) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        if self.is_here(gate) {
            println!("{STANDS}");
            return Box::pin(std::future::pending());
        }
        Box::pin(std::future::ready(()))
    }

    fn pass_blocking(&self, gate: Gate) {
        if self.is_here(gate) {
            println!("{STANDS}");
            loop {
                std::thread::park();
            }
        }
    }
}

fn harness(held: Held) -> Harness {
    let mut harness = Harness::default();
    if let Some((gate, visit)) = held.gate {
        harness = harness.with_keeper(Arc::new(LastGate {
            gate,
            visit,
            visits: AtomicU64::new(0),
        }));
    }
    match held.mutant {
        Some(ChildMutant::SplitOp) => harness.with_mutant(Mutant::SplitOp),
        Some(ChildMutant::VersionAfterTx) => harness.with_mutant(Mutant::VersionAfterTx),
        Some(ChildMutant::LocalThroughProxy) => harness.with_mutant(Mutant::LocalThroughProxy),
        None => harness,
    }
}

async fn serve(data_dir: PathBuf, held: Held) {
    let config = Config {
        harness: harness(held),
        host: Some(tests::world::model_host()),
        ..Config::new(data_dir)
    };
    let engine = Engine::open(config).await.expect("the engine opens");
    let stdout = Arc::new(Mutex::new(tokio::io::stdout()));
    say(&stdout, READY).await;
    let mut calls = JoinSet::new();
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        // What was answered is let go of: whoever measures this process measures the engine.
        while calls.try_join_next().is_some() {}
        let Call { number, what } = serde_json::from_str(&line).expect("a call");
        let (engine, stdout) = (engine.clone(), Arc::clone(&stdout));
        calls.spawn(async move {
            let answer = Answer {
                number,
                answer: answer(&engine, what).await,
            };
            let line = serde_json::to_string(&answer).expect("answers have a JSON form");
            say(&stdout, &line).await;
        });
    }
}

async fn answer(engine: &Engine, what: Asked) -> Result<Value, ErrorReport> {
    match what {
        Asked::Hello { window, hello } => {
            engine.hello(&window, hello.page, hello.protocol).map(value)
        }
        Asked::Attach(args) => engine
            .attach(args.page, args.stream, args.cursor, args.why)
            .await
            .map(value),
        Asked::Poll(args) => engine.poll(args.request).await.map(value),
        Asked::Detach(args) => {
            engine.detach(args.epoch);
            Ok(Value::Null)
        }
        Asked::LoadOlder(args) => engine
            .load_older(args.session, args.before, args.as_of)
            .await
            .map(value),
        Asked::LoadEvents(args) => engine
            .load_events(args.session, args.turn, args.after, args.max_bytes)
            .await
            .map(value),
        Asked::Submit(args) => engine.submit(args.op_id, args.op).await.map(value),
        Asked::TakeImage { name, bytes } => engine.take_image(&name, bytes).await.map(value),
        Asked::Library => engine.library().await.map(value),
    }
}

fn value(answer: impl Serialize) -> Value {
    serde_json::to_value(answer).expect("answers have a JSON form")
}

async fn say(stdout: &Mutex<tokio::io::Stdout>, line: &str) {
    let mut stdout = stdout.lock().await;
    stdout
        .write_all(format!("{line}\n").as_bytes())
        .await
        .expect("the parent listens");
    stdout.flush().await.expect("the parent listens");
}
