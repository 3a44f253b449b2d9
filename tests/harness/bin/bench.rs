//! What things cost, printed: a text event in a new and in a long session, opening a long session, bytes written per
//! byte of answer, a start with a long library. Tests count, benchmarks time; this one is run by hand: `cargo run --release -p tests --bin bench`.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "part of the test harness, and it measures real time"
)]

use std::time::{Duration, Instant};

use protocol::{Dialect, SessionId, TurnId};
use tests::{
    client::Client,
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

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        opening().await;
        for turns in [0, TURNS] {
            text_events(turns).await;
        }
        for (bytes, name) in [(6_000, "6 kB"), (200_000, "200 kB")] {
            bytes_written(bytes, name).await;
        }
        for sessions in [1_000, 100_000] {
            library(sessions).await;
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
