//! What things cost, printed: a text event in a new and in a long session, opening a long session, bytes written per
//! byte of answer, a start with a long library, and what an engine has in memory after many windows and many words. Tests count, benchmarks time; this one is run by hand: `cargo run --release -p tests --bin bench [decoders|opening|first|text|writing|memory|library]`.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "part of the test harness, and it measures real time"
)]

#[path = "bench/decoders.rs"]
mod decoders;
#[path = "engine_child.rs"]
mod engine_child;
#[path = "bench/local.rs"]
mod local;

use std::time::{Duration, Instant};

use protocol::{Dialect, EventBody, SessionId, SessionState, TurnId};
use tests::{
    child::Child,
    client::{Client, Page},
    model_server::{Answer, ModelServer},
    seeded,
    world::World,
};
use transcript::Transcript;

const TURNS: u64 = 2_500;
/// Messages in the sessions that are opened, and how often.
const LENGTHS: [u64; 2] = [5_000, 50_000];
const OPENINGS: usize = 21;
/// The longer one may take so many times as long.
const RATIO_TARGET: f64 = 1.3;
const PIECES: usize = 300;
const FIRST_WORDS: usize = 100;
/// Windows that are opened, reloaded and closed over an engine, counted from the first.
const WINDOWS: [u64; 3] = [1_000, 2_000, 10_000];
/// Answers whose every word is a delta, and words in each.
const ANSWERS: u64 = 20;
const WORDS: usize = 100_000;

fn main() {
    // The engine whose memory is measured is this very program, in a process of its own.
    if std::env::args_os().len() > 2 {
        return engine_child::main();
    }
    let only = std::env::args().nth(1);
    let wanted = |part: &str| only.as_ref().is_none_or(|only| only == part);
    if wanted("decoders") {
        decoders::measure();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        if wanted("opening") {
            opening().await;
        }
        if wanted("first") {
            first_words().await;
        }
        if wanted("text") {
            for turns in [0, TURNS] {
                text_events(turns).await;
            }
        }
        if wanted("writing") {
            for (bytes, name) in [(6_000, "6 kB"), (200_000, "200 kB")] {
                bytes_written(bytes, name).await;
            }
            five_megabytes().await;
        }
        if wanted("memory") {
            memory_of_windows().await;
            memory_of_words().await;
        }
        // Only by name: it needs a model, an app with the engine, and a server.
        if only.as_deref() == Some("local") {
            local::measure().await;
        }
        if wanted("library") {
            for sessions in [1_000, 100_000] {
                library(sessions).await;
            }
        }
    });
}

/// A session with `turns` more turns than one, opened in a window.
async fn session_of(server: &ModelServer, turns: u64) -> (World, SessionId, Client<Transcript>) {
    let (mut world, session) = seeded::conversation_of(server, turns).await;
    world.quit().await;
    let began = Instant::now();
    world.open().await;
    let opened = began.elapsed();
    let window = world.page().await.follow(session);
    let last = TurnId::new(turns + 1);
    window
        .until_shown("its end", |shown| shown.turn(last).map(|_| ()))
        .await;
    println!(
        "{:>6} messages: engine open {opened:?}, last message drawn after {:?}",
        2 * (turns + 1),
        began.elapsed()
    );
    (world, session, window)
}

/// From attaching to the first page, folded: what the engine has a part in when a session is opened.
async fn opening() {
    let mut medians = Vec::new();
    for messages in LENGTHS {
        let server = ModelServer::start(Dialect::Ollama);
        let turns = messages / 2 - 1;
        let (mut world, session) = seeded::conversation_of(&server, turns).await;
        world.restart().await;
        let last = TurnId::new(turns + 1);
        let mut times = Vec::with_capacity(OPENINGS);
        for _ in 0..OPENINGS {
            let page = world.page().await;
            let began = Instant::now();
            let window = page.follow(session);
            window
                .until_shown("its end", |shown| shown.turn(last).map(|_| ()))
                .await;
            times.push(began.elapsed());
        }
        let first = times[0];
        times.sort_unstable();
        let median = times[OPENINGS / 2];
        println!(
            "{messages:>6} messages: attach -> first page, folded: median {median:?}, the first time {first:?}"
        );
        medians.push(median.as_secs_f64());
    }
    println!(
        "  opening {} messages takes {:.2} times as long as {} (aim: under {RATIO_TARGET})",
        LENGTHS[1],
        medians[1] / medians[0],
        LENGTHS[0]
    );
}

/// A first word, from the server's write to its event in the log and to what a window folds of it.
async fn first_words() {
    let server = ModelServer::start(Dialect::Ollama);
    let world = World::in_real_time().await;
    let word = |n: usize| format!("first{n} ");
    let script = |n| {
        let answer = Answer::new(Dialect::Ollama).gate(&word(n)).says(&word(n));
        server.script(answer.ends());
    };
    script(0);
    let session = world.begin(&server, "Go on.").await;
    let window = world.page().await.follow(session);
    let (mut committed, mut drawn) = (Vec::new(), Vec::new());
    for n in 0..FIRST_WORDS {
        if n > 0 {
            script(n);
            world.say(session, "And?").await;
        }
        server.arrived(&word(n)).await;
        // What the sent request still writes is not the word's.
        std::thread::sleep(Duration::from_millis(50));
        let commits = || world.engine().counters().log.commits;
        let before = commits();
        let began = Instant::now();
        server.release(&word(n));
        while commits() == before {
            std::hint::spin_loop();
        }
        committed.push(began.elapsed());
        window.sees(&word(n)).await;
        drawn.push(began.elapsed());
        window.until_idle().await;
    }
    for (times, what) in [
        (&mut committed, "committed"),
        (&mut drawn, "folded by a window"),
    ] {
        times.sort_unstable();
        println!(
            "a first word, written by the server to {what}: p50 {:?}, p95 {:?}",
            times[(FIRST_WORDS - 1) / 2],
            times[(FIRST_WORDS - 1) * 95 / 100]
        );
    }
}

async fn text_events(turns: u64) {
    let server = ModelServer::start(Dialect::Ollama);
    let (world, session, window) = session_of(&server, turns).await;
    let pieces: Vec<_> = (0..PIECES).map(|n| format!("piece{n} ")).collect();
    let answer = pieces
        .iter()
        .fold(Answer::new(Dialect::Ollama), |answer, piece| {
            answer.says(piece).gate(piece)
        });
    server.script(answer.ends());
    world.say(session, "Go on.").await;
    window.sees(&pieces[0]).await;
    let mut times = Vec::with_capacity(PIECES);
    for n in 1..PIECES {
        server.arrived(&pieces[n - 1]).await;
        let began = Instant::now();
        server.release(&pieces[n - 1]);
        world.flush_text().await;
        window.sees(&pieces[n]).await;
        times.push(began.elapsed());
    }
    server.pass(&pieces[PIECES - 1]).await;
    window.until_idle().await;
    times.sort_unstable();
    let at = |share: usize| times[(times.len() - 1) * share / 100];
    println!(
        "{:>6} messages: a piece of text, written by the server to drawn: p50 {:?}, p99 {:?}",
        2 * (turns + 1),
        at(50),
        at(99)
    );
}

async fn bytes_written(bytes: usize, name: &str) {
    let server = ModelServer::start(Dialect::Ollama);
    let world = World::in_real_time().await;
    // 4 bytes a frame, as fast as they go.
    server.script(
        Answer::new(Dialect::Ollama)
            .says_word_by_word(&"abc ".repeat(bytes / 4))
            .ends(),
    );
    let began = Instant::now();
    let session = world.begin(&server, "Go on.").await;
    let window = world.page().await.follow(session);
    window
        .until_shown("the end", |shown| {
            (shown.turns().len() == 1 && shown.running().is_none()).then_some(())
        })
        .await;
    let took: Duration = began.elapsed();
    let counters = world.engine().counters().log;
    let wal = std::fs::metadata(world.data_dir().join(format!("{}-wal", seeded::DATABASE)));
    println!(
        "{name:>6} answer: {took:?}, {} commits, {} syncs, {:.1} bytes of write-ahead log per byte of answer",
        counters.commits,
        counters.syncs,
        wal.map_or(0, |file| file.len()) as f64 / bytes as f64,
    );
}

/// A long answer that nobody looks at, and one twice as long: stored as it was said, at twice the cost at most.
async fn five_megabytes() {
    let mut written = Vec::new();
    for bytes in [2_500_000, 5_000_000] {
        let server = ModelServer::start(Dialect::Ollama);
        let world = World::in_real_time().await;
        let said = "abc ".repeat(bytes / 4);
        server.script(Answer::new(Dialect::Ollama).says_word_by_word(&said).ends());
        let began = Instant::now();
        let session = world.begin(&server, "Go on.").await;
        world.engine().until_no_turn_runs().await;
        let took = began.elapsed();
        let log = world.engine().counters().log;
        let stored = world.events(session).into_iter();
        let stored = stored.filter_map(|event| match event.body {
            EventBody::TextAppended { text, .. } => Some(text),
            _ => None,
        });
        assert!(stored.collect::<String>() == said, "stored as it was said");
        println!(
            "{bytes} bytes of answer in pieces of 4: {took:?}, {} commits, {:.2} bytes of events per byte",
            log.commits,
            log.body_bytes as f64 / bytes as f64
        );
        written.push(log.body_bytes);
    }
    assert!(
        written[1] <= 2 * written[0] + written[0] / 100,
        "{written:?}"
    );
}

/// An engine in a process of its own; its memory is nobody else's.
async fn child_of(world: &World) -> Child {
    let own = std::env::current_exe().expect("this program has a path");
    world.spawn(&own).await
}

/// What the system says that a process has in memory, in kB.
async fn resident(child: &Child) -> String {
    let status = format!("/proc/{}/status", child.id().await);
    let status = std::fs::read_to_string(status).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let said = line.and_then(|line| line.split_once(':'));
    said.map_or("unknown here".to_owned(), |(_, kb)| kb.trim().to_owned())
}

/// Windows come and go over the end of a long conversation.
async fn memory_of_windows() {
    let server = ModelServer::start(Dialect::Ollama);
    let (mut world, session) = seeded::conversation_of(&server, 200).await;
    world.quit().await;
    let child = child_of(&world).await;
    println!(
        "an engine that was just opened: {} resident",
        resident(&child).await
    );
    let last = TurnId::new(201);
    let is_here = |shown: &Transcript| shown.turn(last).map(|_| ());
    let mut opened = 0;
    for windows in WINDOWS {
        while opened < windows {
            let page = Page::load(&world.line, "main").await;
            let first = page.follow(session);
            first.until_shown("its end", is_here).await;
            drop(first);
            let again = page.reload().await.follow(session);
            again.until_shown("its end", is_here).await;
            again.close().await;
            opened += 1;
        }
        println!(
            "  after {opened:>6} windows opened, reloaded and closed: {} resident",
            resident(&child).await
        );
    }
    child.kill().await;
    world.line.cut();
}

/// Answers that come word by word, each in a conversation of its own, with a window that comes at their end.
async fn memory_of_words() {
    let server = ModelServer::start(Dialect::Ollama);
    let world = World::without_engine();
    let child = child_of(&world).await;
    world.add(server.provider()).await;
    println!(
        "an engine that was just opened: {} resident",
        resident(&child).await
    );
    let text = "abc ".repeat(WORDS);
    for n in 1..=ANSWERS {
        server.script(Answer::new(Dialect::Ollama).says_word_by_word(&text).ends());
        let session = world.begin_with(server.model(), "Go on.").await;
        while runs(&world, session).await {
            std::thread::sleep(Duration::from_millis(100));
        }
        let window = world.page().await.follow(session);
        let ended = |shown: &Transcript| shown.running().is_none().then_some(());
        window.until_shown("the end", ended).await;
        window.close().await;
        if n % 5 == 0 || n == 1 {
            println!(
                "  after {:>9} deltas: {} resident",
                n * WORDS as u64,
                resident(&child).await
            );
        }
    }
    child.kill().await;
    world.line.cut();
}

async fn runs(world: &World, session: SessionId) -> bool {
    let library = world.line.library().await.expect("a library");
    let mut listed = library.sessions.iter();
    listed.any(|own| own.session == session && matches!(own.state, SessionState::Running { .. }))
}

/// A start with a long library: from its events, as after an upgrade, and from its snapshot.
async fn library(sessions: u64) {
    let server = ModelServer::start(Dialect::Ollama);
    let mut world = World::without_engine();
    world.open().await;
    world.quit().await;
    let events = seeded::add_sessions(world.data_dir(), &server.model(), sessions, 3);
    for from in ["events", "snapshot"] {
        let began = Instant::now();
        world.open().await;
        let opened = began.elapsed();
        let listed = world.line.library().await.expect("a library");
        println!(
            "{sessions:>6} sessions, {events} events of the library: engine open {opened:?}, listed after {:?}, from its {from}",
            began.elapsed()
        );
        assert_eq!(listed.sessions.len() as u64, sessions);
        let began = Instant::now();
        while !seeded::has_snapshot(world.data_dir()) {
            std::thread::sleep(Duration::from_millis(10));
        }
        println!("        its snapshot is there {:?} later", began.elapsed());
        world.quit().await;
    }
}
