//! The data folder: one engine at a time, nothing newer is touched, nothing written is changed, nobody is dialled to read.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash, Hasher},
    path::{Path, PathBuf},
};

use engine::OpenError;
use protocol::{Dialect, SessionId};
use rusqlite::Connection;
use tests::{
    model_server::{Answer, ModelServer},
    verdict::judge,
    world::World,
};

/// A folder with one finished conversation in it, and no engine on it.
async fn with_one_conversation() -> (World, SessionId, ModelServer) {
    let server = ModelServer::start(Dialect::Ollama);
    let mut world = World::new().await;
    server.script(
        Answer::new(Dialect::Ollama)
            .thinks("Hm. ")
            .says("A word.")
            .ends(),
    );
    let session = world.begin(&server, "Say it.").await;
    let window = world.page().await.follow(session);
    window.until_idle().await;
    judge(&world, session, &[&window]).await;
    drop(window);
    world.quit().await;
    (world, session, server)
}

fn database(world: &World) -> PathBuf {
    world.data_dir().join("holdfast.sqlite3")
}

fn hash(file: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    std::fs::read(file).unwrap().hash(&mut hasher);
    hasher.finish()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_engine_on_the_same_folder_is_refused_until_the_first_is_closed() {
    let mut world = World::new().await;
    match world.try_open().await {
        Err(OpenError::InUse { path }) => assert_eq!(path, world.data_dir()),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("two engines on one folder"),
    }
    world.restart().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_of_a_newer_version_is_refused_by_name_and_not_altered() {
    let (world, _, _server) = with_one_conversation().await;
    let file = database(&world);
    let raw = Connection::open(&file).unwrap();
    raw.pragma_update(None, "user_version", 9_999).unwrap();
    raw.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
    raw.close().unwrap();
    let before = hash(&file);
    match world.try_open().await {
        Err(OpenError::Newer {
            path, found: 9_999, ..
        }) => assert_eq!(path, file),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("a newer database was opened"),
    }
    assert_eq!(hash(&file), before, "the file was altered");
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_elses_database_is_refused_and_not_altered() {
    let foreign = World::without_engine();
    let raw = Connection::open(database(&foreign)).unwrap();
    raw.execute_batch("CREATE TABLE recipes (name TEXT)")
        .unwrap();
    raw.close().unwrap();
    let before = hash(&database(&foreign));
    match foreign.try_open().await {
        Err(OpenError::Foreign { path }) => assert_eq!(path, database(&foreign)),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("opened all the same"),
    }
    assert_eq!(hash(&database(&foreign)), before, "the file was altered");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_database_itself_refuses_to_rewrite_history() {
    let (mut world, session, _server) = with_one_conversation().await;
    let raw = Connection::open(database(&world)).unwrap();
    let copy = |kind: &str, seq: &str| {
        format!(
            "INSERT INTO events (stream, seq, turn, item, kind, at, body)
             SELECT stream, {seq}, turn, item, kind, at, body FROM events
             WHERE kind = '{kind}' ORDER BY stream DESC LIMIT 1"
        )
    };
    let next = "1 + (SELECT max(seq) FROM events AS e WHERE e.stream = events.stream)";
    let forbidden = [
        (
            "another text in place",
            "UPDATE events SET body = '{}' WHERE seq = 3".to_owned(),
        ),
        (
            "a deleted event",
            "DELETE FROM events WHERE seq = 3".to_owned(),
        ),
        ("a second end", copy("TurnEnded", next)),
        ("a second start", copy("TurnStarted", next)),
        ("a hole", copy("TextAppended", "1000")),
        ("an event in the middle", copy("TextAppended", "2")),
    ];
    for (what, sql) in forbidden {
        let refused = raw
            .execute(&sql, [])
            .map(|rows| panic!("{what}: {rows} rows were written"));
        assert!(
            matches!(refused, Err(rusqlite::Error::SqliteFailure(..))),
            "{what}: {refused:?}"
        );
    }
    let answer = |item: i64| {
        raw.execute(
            "INSERT INTO events (stream, seq, turn, item, kind, at, body)
             SELECT stream, 1 + max(seq), 1, ?1, 'ApprovalResolved', 0, '{}' FROM events WHERE stream = 1",
            [item],
        )
    };
    raw.execute_batch("BEGIN").unwrap();
    answer(2).unwrap();
    assert!(answer(2).is_err(), "a second answer to an approval");
    raw.execute_batch("ROLLBACK").unwrap();
    let open = "INSERT INTO open_turns (stream, turn) SELECT max(stream), ?1 FROM streams";
    raw.execute(open, [7]).unwrap();
    assert!(
        raw.execute(open, [8]).is_err(),
        "a second open turn in a session"
    );
    raw.execute("DELETE FROM open_turns", []).unwrap();
    raw.close().unwrap();

    world.open().await;
    let window = world.page().await.follow(session);
    assert_eq!(
        window.until_idle().await,
        "you: Say it.\nthinks: Hm. \nmodel: A word.\n(completed)\n"
    );
    judge(&world, session, &[&window]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn caches_can_be_dropped_and_say_the_same_afterwards() {
    let (mut world, session, _server) = with_one_conversation().await;
    let before = world.reader().transcript(session).unwrap();
    let raw = Connection::open(database(&world)).unwrap();
    raw.execute_batch("DELETE FROM turn_views; DELETE FROM heads;")
        .unwrap();
    assert_eq!(
        world.reader().transcript(session).unwrap(),
        before,
        "read without them"
    );
    raw.execute_batch("DELETE FROM turns;").unwrap();
    raw.close().unwrap();
    world.open().await;
    let window = world.page().await.follow(session);
    window.until_idle().await;
    judge(&world, session, &[&window]).await;
    assert_eq!(world.reader().transcript(session).unwrap(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_is_read_again_with_the_server_gone_and_nobody_is_dialled() {
    let (mut world, session, server) = with_one_conversation().await;
    let dials = server.counters().dials;
    world.open().await;
    let window = world.page().await.follow(session);
    let text = window.until_idle().await;
    assert_eq!(
        text,
        "you: Say it.\nthinks: Hm. \nmodel: A word.\n(completed)\n"
    );
    let library = window.page().follow_library();
    library.sees("Say it. (completed)\n").await;
    judge(&world, session, &[&window]).await;
    assert_eq!(server.counters().dials, dials, "reading dialled the server");

    drop((window, library));
    world.quit().await;
    server.stop().await;
    world.open().await;
    let window = world.page().await.follow(session);
    assert_eq!(window.until_idle().await, text);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_database_in_place_of_the_old_one_resets_a_living_page() {
    let (mut one, session, _server) = with_one_conversation().await;
    one.open().await;
    let window = one.page().await.follow(session);
    window.until_idle().await;
    one.quit().await;

    // The same session in another log: its events were copied, its identity is new.
    let raw = Connection::open(database(&one)).unwrap();
    let log = "UPDATE meta SET value = lower(hex(randomblob(16))) WHERE name = 'log_id'";
    assert_eq!(raw.execute(log, []).unwrap(), 1);
    raw.close().unwrap();
    one.open().await;
    window
        .until_counters("the page to be reset", |counters| counters.resets == 1)
        .await;
    let text = window.until_idle().await;
    assert_eq!(
        text,
        "you: Say it.\nthinks: Hm. \nmodel: A word.\n(completed)\n"
    );
    assert_eq!(window.counters().swaps, 2);
    judge(&one, session, &[&window]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_is_refused_by_name_and_starts_when_the_first_was_killed() {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_engine_child"));
    let mut world = World::without_engine();
    let child = world.spawn(program).await;
    let second = world.try_open().await;
    let refused = matches!(second, Err(OpenError::InUse { .. }));
    assert!(refused, "{:?}", second.map(drop));
    child.kill().await;
    world.line.cut();
    world.open().await;
    world.quit().await;
}
