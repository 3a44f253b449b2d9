//! The disk: whichever write fails, and however long one takes, nothing is seen that is not kept, and every turn gets
//! the end it was to have.

use std::{path::Path, sync::atomic::Ordering, time::Duration};

use engine::{BackupError, Fault, OpenError, Room, WriteStep, clock::Clock, gate::Gate};
use protocol::{
    Dialect, ErrorCode, InterruptedWhy, Op, OpId, Phase, Receipt, SessionId, Status, StopReason,
    StreamId, TurnOutcome,
};
use rusqlite::Connection;
use serde_json::json;
use tests::{
    backend::Missed,
    child::Held,
    client::Client,
    model_server::{Answer, ModelServer},
    sentinel::random_u128,
    verdict::judge,
    world::World,
};
use transcript::Transcript;

const CHILD: &str = env!("CARGO_BIN_EXE_engine_child");

const DIALECT: Dialect = Dialect::OpenAiChat;

/// What an end that could not be written waits for the next try.
const RETRY_SAVE: Duration = Duration::from_secs(5);

/// How long a disk stays bad.
#[derive(Clone, Copy, Debug)]
enum Bad {
    Once,
    UntilHealed,
}

/// One whole conversation over a disk of which the `nth` write fails. Says whether it came to that write.
async fn conversation(nth: u64, step: WriteStep, fault: Fault, bad: Bad) -> bool {
    let case = format!("write {nth} fails with {fault:?} at {step:?}, {bad:?}");
    let server = ModelServer::start(DIALECT);
    let mut world = World::new().await;
    world.add(server.provider()).await;
    let page = world.page().await;

    // Another conversation is in the middle of an answer all the while.
    server.script(
        Answer::new(DIALECT)
            .says("Before ")
            .gate("the other")
            .says("and after.")
            .ends()
            .when_asked("Other?"),
    );
    let other = world.begin_with(server.model(), "Other?").await;
    let bystander = page.follow_with_witness(other, world.data_dir());
    bystander.sees("model: Before ").await;

    let writes = world.faults.writes();
    match bad {
        Bad::Once => world.faults.fail_write(nth, step, fault),
        Bad::UntilHealed => world.faults.fail_writes_from(nth, step, fault),
    }
    server.script(
        Answer::new(DIALECT)
            .says("Let me ")
            .says("look. ")
            .calls("current_time", json!({}))
            .ends()
            .when_asked("What time is it?"),
    );
    server.script(Answer::whole(DIALECT, "It is nine."));
    let session = SessionId::from_bits(random_u128());
    let start = Op::StartSession {
        session,
        model: server.model(),
        text: "What time is it?".to_owned(),
        folder: None,
        options: protocol::ModelOptions::default(),
        images: Vec::new(),
    };
    let before = world.faults.refused().len();
    insist(&world, session, start, &case).await;
    let window = page.follow_with_witness(session, world.data_dir());
    let first = to_its_end(&world, &window, 1, before, &case).await;
    server.forget_scripts();

    server.script(Answer::whole(DIALECT, "Yes.").when_asked("Sure?"));
    let before = world.faults.refused().len();
    let text = "Sure?".to_owned();
    insist(&world, session, Op::message(session, text), &case).await;
    let second = to_its_end(&world, &window, 2, before, &case).await;
    server.forget_scripts();
    // Its view is written when its end is seen already; the rest of the story is about a good disk.
    world.faults.heal();
    let came_to_it = world.faults.writes() - writes >= nth;

    server.pass("the other").await;
    bystander.until_idle().await;
    assert_eq!(
        bystander.text(),
        "you: Other?\nmodel: Before and after.\n(completed)\n",
        "{case}: the other conversation went on"
    );
    let whole = "you: What time is it?\n\
                 model: Let me look. \n\
                 tool: current_time {} -> 2026-03-01T09:00:00Z\n\
                 model: It is nine.\n\
                 (completed)\n";
    if first == Meant::Completed && second == Meant::Completed {
        // The clock may have moved by the time a save is tried again, and with it the time that is told.
        let text = window.text().replace("09:00:05", "09:00:00");
        assert_eq!(
            text,
            format!("{whole}you: Sure?\nmodel: Yes.\n(completed)\n"),
            "{case}"
        );
    }
    window.no_contradictions();
    judge(&world, session, &[&window]).await;
    judge(&world, other, &[&bystander]).await;
    let failed = world.faults.refused();
    let counted = world.engine().counters().log.failed_commits;
    assert!(
        counted >= failed.len() as u64,
        "{case}: {counted} counted of {failed:?}"
    );
    drop((window, bystander));
    world.restart().await;
    let cold = world.page().await.follow(session);
    cold.until_shown("both turns", |shown| {
        (shown.turns().len() == 2).then_some(())
    })
    .await;
    judge(&world, session, &[&cold]).await;
    world.quit().await;
    came_to_it
}

/// Submits an op until it is taken. A refusal says that nothing was saved, and nothing was.
async fn insist(world: &World, session: SessionId, op: Op, case: &str) -> Receipt {
    let op_id = OpId::from_bits(random_u128());
    loop {
        let before = world.events(session);
        match world.line.submit(op_id, op.clone()).await {
            Ok(receipt) => return receipt,
            Err(Missed::Refused(report)) => {
                assert_eq!(report.code, ErrorCode::StorageFailed, "{case}: {report:?}");
                assert!(
                    report.message.contains("holdfast.sqlite3"),
                    "{case}: {report:?}"
                );
                assert_eq!(world.events(session), before, "{case}: refused and kept");
                world.faults.heal();
            }
            Err(Missed::Lost) => panic!("{case}: the engine is gone"),
        }
    }
}

/// What a turn was to end as when its end was first to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meant {
    Completed,
    StorageFailed,
}

/// Follows a turn until it rests, heals the disk, and checks that the end is the one that was meant.
async fn to_its_end(
    world: &World,
    window: &Client<Transcript>,
    turns: usize,
    before: usize,
    case: &str,
) -> Meant {
    let ended = async || {
        let over = |shown: &Transcript| {
            (shown.turns().len() == turns && shown.running().is_none()).then_some(())
        };
        window
            .until_shown(&format!("{case}: turn {turns} to end"), over)
            .await;
    };
    let not_saving = async || {
        world.faults.refuses("TurnEnded", before).await;
        let says_so = |status: &Status| matches!(status.phase, Phase::NotSaving { .. });
        window.until_status(case, says_so).await
    };
    loop {
        tokio::select! {
            biased;
            () = ended() => break,
            // With a disk that stays bad the end cannot be written, and the session says so in words.
            status = not_saving() => {
                let Phase::NotSaving { message } = status.phase else {
                    panic!("{case}")
                };
                assert!(message.starts_with("This conversation is not being saved: "), "{message}");
                assert!(message.contains("holdfast.sqlite3"), "{message}");
                break;
            }
            () = world.flush_text() => {}
        }
    }
    let refused: Vec<_> = world.faults.refused().split_off(before);
    // A beginning was refused and asked for again; a view that was not written is made when it is read.
    let of_turn = refused
        .iter()
        .find(|write| !write.kinds.is_empty() && !write.kinds.contains(&"TurnStarted"));
    let meant = match of_turn {
        Some(write) if !write.kinds.contains(&"TurnEnded") => Meant::StorageFailed,
        Some(_) | None => Meant::Completed,
    };
    world.faults.heal();
    loop {
        tokio::select! {
            biased;
            () = ended() => break,
            () = world.clock.fire_next_within(RETRY_SAVE) => {}
        }
    }
    let outcome = window.look(|shown| {
        let shown = shown.expect("something is shown");
        shown.turns().last().expect("a turn").outcome.clone()
    });
    let expected = match meant {
        Meant::Completed => TurnOutcome::Completed {
            stop: StopReason::EndOfTurn,
        },
        Meant::StorageFailed => TurnOutcome::Interrupted {
            why: InterruptedWhy::StorageFailed,
        },
    };
    assert_eq!(outcome, Some(expected), "{case}: after {refused:?}");
    meant
}

#[tokio::test(flavor = "multi_thread")]
async fn whichever_write_fails_the_intended_end_is_kept_once_the_disk_is_good_again() {
    for (step, fault, bad) in [
        (WriteStep::Begin, Fault::Busy, Bad::Once),
        (WriteStep::Append, Fault::Full, Bad::Once),
        (WriteStep::Append, Fault::Full, Bad::UntilHealed),
        (WriteStep::Commit, Fault::IoError, Bad::UntilHealed),
    ] {
        let mut nth = 1;
        while conversation(nth, step, fault, bad).await {
            nth += 1;
        }
        assert!(nth > 8, "a conversation is more than {nth} writes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_slower_than_the_models_silence_limit_is_not_the_models_silence() {
    tests::kept_log::differs("how much was read before the stop is a matter of time");
    let server = ModelServer::start(DIALECT);
    let world = World::new().await;
    server.script(
        Answer::new(DIALECT)
            .says("First ")
            .gate("first")
            .says("second ")
            .gate("second")
            .says_word_by_word(&"word ".repeat(50_000))
            .goes_silent(),
    );
    let session = world.begin(&server, "Go on.").await;
    let page = world.page().await;
    let window = page.follow_with_witness(session, world.data_dir());
    window.sees("model: First").await;
    let before = world.engine().counters().log;
    world.faults.hold_next_write();
    server.pass("first").await;
    world.flush_text().await;
    world.faults.arrived(1).await;
    // More has come, and whoever read it stands with it in hand while the disk takes its time.
    world.gates.hold(Gate::Decoding);
    server.pass("second").await;
    world.gates.arrived(Gate::Decoding).await;
    world.clock.advance(world.gap() + Duration::from_secs(60));
    let turn = window.look(|shown| shown.and_then(Transcript::running).expect("it runs"));
    world.stop(session, turn).await;
    window
        .until_status("the stop to be noted", |status| {
            status.phase == Phase::Stopping
        })
        .await;
    assert_eq!(
        window.text(),
        "you: Go on.\nmodel: First \n(running)\n",
        "nothing is seen before it is kept"
    );
    world.gates.release(Gate::Decoding);
    world.faults.release();
    let text = window.until_idle().await;
    assert!(text.ends_with("(stopped)\n"), "{text}");
    assert!(text.contains("First second "), "{text}");
    let log = world.engine().counters().log;
    assert_eq!(log.slow_commits, before.slow_commits + 1);
    // Nobody reads on for a turn that cannot write: what waited in memory is a queue of pieces, not 250 kB of answer.
    assert!(text.len() < 100_000, "{} bytes were held", text.len());
    judge(&world, session, &[&window]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_fails_is_said_and_the_next_one_is_right() {
    let server = ModelServer::start(DIALECT);
    let world = World::new().await;
    server.script(Answer::whole(DIALECT, "A word."));
    let session = world.begin(&server, "Say it.").await;
    world.page().await.follow(session).until_idle().await;
    let page = world.page().await;
    world.faults.fail_reads(Fault::IoError);
    let refused = page
        .attach(StreamId::Session(session))
        .await
        .expect_err("the disk does not read");
    assert_eq!(refused.code, ErrorCode::StorageFailed);
    assert!(refused.message.contains("holdfast.sqlite3"), "{refused:?}");
    world.faults.heal();
    page.attach(StreamId::Session(session))
        .await
        .expect("the disk reads again");
    assert!(world.engine().counters().log.failed_reads >= 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn too_little_room_ends_a_turn_while_its_end_can_still_be_kept_and_none_begins() {
    const MB: u64 = 1024 * 1024;
    let server = ModelServer::start(DIALECT);
    let world = World::new().await;
    server.script(
        Answer::new(DIALECT)
            .says("One ")
            .gate("more")
            .says("two ")
            .goes_silent(),
    );
    let session = world.begin(&server, "Count.").await;
    let window = world.page().await.follow(session);
    window.sees("model: One").await;
    assert_eq!(world.engine().counters().log.low_room, 0);

    // Low: counted, and all goes on.
    world.free_bytes.store(300 * MB, Ordering::Relaxed);
    world.clock.advance(Duration::from_secs(6));
    assert_eq!(world.engine().room(), Room::Low { free: 300 * MB });
    assert_eq!(world.engine().counters().log.low_room, 1);

    // Too low: the running turn ends, and says why.
    world.free_bytes.store(30 * MB, Ordering::Relaxed);
    world.clock.advance(Duration::from_secs(6));
    server.pass("more").await;
    // When the first words are seen, their time may not be noted yet; then the next ones wait for the clock.
    let text = loop {
        tokio::select! {
            biased;
            text = window.until_idle() => break text,
            () = world.flush_text() => {}
        }
    };
    assert_eq!(
        text,
        "you: Count.\nmodel: One two \n(interrupted: StorageFailed)\n"
    );
    judge(&world, session, &[&window]).await;

    let text = "And then?".to_owned();
    let op = Op::message(session, text);
    let Err(Missed::Refused(report)) = world.submit(op).await else {
        panic!("a turn began that has no room for its end")
    };
    assert_eq!(report.code, ErrorCode::StorageFailed);
    assert!(report.message.contains("nly 30 MB are free"), "{report:?}");
    let dir = world.data_dir().display().to_string();
    assert!(report.message.contains(&dir), "{report:?}");

    world.free_bytes.store(3_000 * MB, Ordering::Relaxed);
    world.clock.advance(Duration::from_secs(6));
    server.script(Answer::whole(DIALECT, "Three."));
    world.say(session, "And then?").await;
    window.sees("Three.").await;
    window.until_idle().await;
    judge(&world, session, &[&window]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_is_made_in_the_middle_of_an_answer_and_opens_as_what_was_there() {
    let server = ModelServer::start(DIALECT);
    let world = World::new().await;
    server.script(
        Answer::new(DIALECT)
            .says("Half ")
            .gate("half")
            .says("and whole.")
            .ends(),
    );
    let session = world.begin(&server, "Go on.").await;
    let window = world.page().await.follow(session);
    window.sees("model: Half").await;
    let now = world.clock.wall();
    let made = engine::backup(world.data_dir(), None, now).expect("a backup");
    assert!(
        made.starts_with(world.data_dir().join("backups")),
        "{made:?}"
    );
    let named = world.data_dir().join("copy.db");
    engine::backup(world.data_dir(), Some(&named), now).expect("a backup where it was said");
    let nowhere = world.data_dir().join("nowhere.sqlite3");
    std::os::unix::fs::symlink("gone", &nowhere).expect("a link to nothing");
    let onto = engine::backup(world.data_dir(), Some(&nowhere), now);
    assert!(matches!(onto, Err(BackupError::Exists { .. })), "{onto:?}");
    let again = engine::backup(world.data_dir(), Some(&named), now);
    assert!(
        matches!(again, Err(BackupError::Exists { .. })),
        "{again:?}"
    );
    server.pass("half").await;
    window.until_idle().await;

    let mut restored = World::without_engine();
    std::fs::copy(&made, restored.data_dir().join("holdfast.sqlite3")).unwrap();
    restored.open().await;
    let text = restored.page().await.follow(session).until_idle().await;
    assert_eq!(text, "you: Go on.\nmodel: Half \n(interrupted: Crash)\n");
    restored.quit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_anywhere_in_a_migration_the_next_start_ends_it_and_a_copy_of_before_is_kept() {
    for gate in [
        Gate::MigrationBegins,
        Gate::MigrationBackedUp,
        Gate::MigrationApplied,
        Gate::MigrationNumbered,
        Gate::MigrationCommitted,
    ] {
        let server = ModelServer::start(DIALECT);
        let mut world = World::new().await;
        server.script(Answer::whole(DIALECT, "Yes."));
        let session = world.begin(&server, "Are you there?").await;
        world.page().await.follow(session).until_idle().await;
        world.quit().await;
        let before = world.reader().transcript(session).unwrap();
        let file = world.data_dir().join("holdfast.sqlite3");
        // What later versions added is taken out again.
        let raw = Connection::open(&file).unwrap();
        raw.execute_batch(
            "DROP INDEX one_resolution_per_approval; DROP TABLE shelf; DROP TABLE attempts; DROP INDEX requests;
             DROP TABLE images; DROP TABLE image_uses; DROP TABLE draft_images; PRAGMA user_version = 1;",
        )
        .unwrap();
        raw.close().unwrap();
        match engine::Reader::open(world.data_dir()) {
            Err(OpenError::Older { found: 1, .. }) => {}
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("an older schema was read"),
        }

        let held = Held {
            gate: Some((gate, 1)),
            ..Held::default()
        };
        let child = world.spawn_held(Path::new(CHILD), held).await;
        child.stands().await;
        child.kill().await;
        world.line.cut();

        world.open().await;
        assert_eq!(
            world.reader().transcript(session).unwrap(),
            before,
            "{gate:?}"
        );
        judge(&world, session, &[]).await;
        world.quit().await;
        assert_eq!(version_of(&file), 5, "{gate:?}");
        let mut copies = Vec::new();
        for entry in std::fs::read_dir(world.data_dir().join("backups")).unwrap() {
            let copy = entry.unwrap().path();
            assert_eq!(copy.extension().unwrap(), "sqlite3", "{gate:?}: {copy:?}");
            copies.push(version_of(&copy));
        }
        // Killed between two steps, the next start copies what it finds once more.
        assert!(
            copies.contains(&1),
            "{gate:?}: a copy of before: {copies:?}"
        );
        assert!(copies.iter().all(|version| *version < 5), "{copies:?}");
    }
}

fn version_of(file: &Path) -> i64 {
    let db = Connection::open(file).unwrap();
    db.query_row("PRAGMA user_version", [], |row| row.get(0))
        .unwrap()
}
