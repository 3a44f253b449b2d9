//! What a text event costs does not depend on how long the conversation is: counted, not timed.

use protocol::{Dialect, EventBody, SessionId, TurnId};
use tests::{
    client::Client,
    model_server::{Answer, ModelServer},
    seeded,
    world::World,
};
use transcript::Transcript;

/// Twice this many messages.
const TURNS: u64 = 2_500;

/// Text events of one answer, each committed by itself.
const PIECES: usize = 20;

/// What one answer cost.
#[derive(Debug, PartialEq, Eq)]
struct Cost {
    commits: u64,
    events: u64,
    events_served: u64,
    changes_drawn: usize,
    repairs: u64,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_event_costs_the_same_in_a_session_of_five_thousand_messages() {
    let (short, short_log_bytes) = cost_of_an_answer(0).await;
    let (long, long_log_bytes) = cost_of_an_answer(TURNS).await;
    assert_eq!(short, long);
    // A longer table is a level deeper; nothing else may differ.
    assert!(
        long_log_bytes <= short_log_bytes + short_log_bytes / 4,
        "{short_log_bytes} bytes of log in an empty session, {long_log_bytes} in a long one"
    );
}

/// A conversation of one turn and `turns` more, opened in a window.
async fn conversation_of(
    server: &ModelServer,
    turns: u64,
) -> (World, SessionId, Client<Transcript>) {
    let (world, session) = seeded::conversation_of(server, turns).await;
    let window = world.page().await.follow(session);
    let last = TurnId::new(turns + 1);
    window
        .until_shown("the end of the session", |shown| {
            shown.turn(last).map(|_| ())
        })
        .await;
    (world, session, window)
}

/// Streams one answer piece by piece into a session that has `turns` more turns; also says by how much the log grew.
async fn cost_of_an_answer(turns: u64) -> (Cost, u64) {
    let server = ModelServer::start(Dialect::Ollama);
    let (world, session, window) = conversation_of(&server, turns).await;
    let pieces = (0..PIECES)
        .map(|n| format!("piece{n} "))
        .collect::<Vec<_>>();
    let answer = pieces
        .iter()
        .fold(Answer::new(Dialect::Ollama), |answer, piece| {
            answer.says(piece).gate(piece)
        });
    server.script(answer.ends());
    world.say(session, "Go on.").await;
    // Counted from the first piece to the last: neither the message nor the end, and the request carries the history.
    window.sees(&pieces[0]).await;
    let before = world.engine().counters();
    let (drawn, log_bytes) = (window.changes(), log_bytes(&world));
    let mut said = pieces[0].clone();
    for n in 1..PIECES {
        server.pass(&pieces[n - 1]).await;
        world.flush_text().await;
        said.push_str(&pieces[n]);
        window.sees(&said).await;
    }
    let after = world.engine().counters();
    let cost = Cost {
        commits: after.log.commits - before.log.commits,
        events: after.log.events - before.log.events,
        events_served: after.events_served - before.events_served,
        changes_drawn: window.changes() - drawn,
        repairs: window.counters().repairs,
    };
    let grown = self::log_bytes(&world) - log_bytes;
    assert_eq!(
        (cost.commits, cost.events),
        (19, 19),
        "each piece was an event and a commit of its own"
    );
    server.pass(&pieces[PIECES - 1]).await;
    window.until_idle().await;
    (cost, grown)
}

fn log_bytes(world: &World) -> u64 {
    let name = format!("{}-wal", seeded::DATABASE);
    std::fs::metadata(world.data_dir().join(name))
        .expect("a write-ahead log")
        .len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_five_thousand_messages_opens_with_its_end_and_the_rest_on_demand() {
    let server = ModelServer::start(Dialect::Ollama);
    let (_world, _, window) = conversation_of(&server, TURNS).await;
    let shown = window.look(|shown| shown.unwrap().turns().len());
    assert!(shown < 100, "{shown} turns were sent at once");
    let mut all = shown;
    loop {
        match window.load_older().await {
            0 => break,
            added => all += added,
        }
    }
    assert_eq!(all as u64, TURNS + 1);
    assert!(
        window
            .text()
            .starts_with("you: Are you there?\nmodel: Yes.\n(completed)\n")
    );
    assert_eq!(window.counters().swaps, 1);
}

/// `linear-cost` at the pace of a slow model: every piece is a commit of its own, and the last ones write no more than the first.
#[tokio::test(flavor = "multi_thread")]
async fn a_piece_at_the_end_of_a_slow_answer_writes_as_much_as_one_at_its_beginning() {
    /// In each half of the answer.
    const HALF: usize = 60;
    let (server, world) = (ModelServer::start(Dialect::Ollama), World::new().await);
    let pieces: Vec<_> = (0..2 * HALF).map(|n| format!("piece{n:04} ")).collect();
    let answer = pieces
        .iter()
        .fold(Answer::new(Dialect::Ollama), |answer, piece| {
            answer.says(piece).gate(piece)
        });
    server.script(answer.ends());
    let session = world.begin(&server, "Go on.").await;
    let window = world.page().await.follow(session);
    window.sees(&pieces[0]).await;
    let written = || {
        let log = world.engine().counters().log;
        (
            log.commits,
            log.body_bytes + log.cache_bytes,
            log_bytes(&world),
        )
    };
    let mut halves = Vec::new();
    for half in 0..2 {
        let before = written();
        for n in half * HALF..(half + 1) * HALF - half {
            server.pass(&pieces[n]).await;
            world.flush_text().await;
            window.sees(&pieces[n + 1]).await;
        }
        let after = written();
        let commits = after.0 - before.0;
        assert_eq!(commits, (HALF - half) as u64, "each piece is one");
        halves.push([
            (after.1 - before.1) / commits,
            (after.2 - before.2) / commits,
        ]);
    }
    for (first, second) in halves[0].iter().zip(&halves[1]) {
        assert!(second <= &(first + first / 4), "{halves:?} bytes a commit");
    }
    server.pass(&pieces[2 * HALF - 1]).await;
    window.until_idle().await;
    let text = window.text();
    assert!(text.contains(&pieces.concat()), "stored as it was said");
}

/// What is written of an answer of so many words, each of which comes alone, on a clock that stands; and what is stored.
async fn bytes_of_an_answer(words: usize) -> (u64, String) {
    let (server, world) = (ModelServer::start(Dialect::Ollama), World::new().await);
    let said = "kelp ".repeat(words);
    let answer = Answer::new(Dialect::Ollama).says_word_by_word(&said);
    server.script(answer.ends());
    let before = world.engine().counters().log;
    let session = world.begin(&server, "Go on.").await;
    world.page().await.follow(session).until_idle().await;
    let after = world.engine().counters().log;
    let stored = world.events(session).into_iter();
    let stored = stored.filter_map(|event| match event.body {
        EventBody::TextAppended { text, .. } => Some(text),
        _ => None,
    });
    let stored: String = stored.collect();
    assert_eq!(stored, said, "every word once");
    (after.body_bytes - before.body_bytes, stored)
}

/// `linear-cost`. Mutant: `RewriteWhole`. Five megabytes are a matter of minutes without optimisation: the benchmark has them.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_twice_as_long_is_at_most_twice_as_much_to_write() {
    let (once, said) = bytes_of_an_answer(2_000).await;
    let (twice, _) = bytes_of_an_answer(4_000).await;
    assert!(twice <= 2 * once, "{once} bytes, and {twice}");
    let text = said.len() as u64;
    assert!(once < text + text / 2, "{once} bytes for {text} of text");
}
