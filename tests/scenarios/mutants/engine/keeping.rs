//! What is kept: the end of a turn, its view, the folder, and what a crash leaves of a migration.

use std::{path::Path, time::Duration};

use engine::{Fault, OpenError, WriteStep, gate::Gate, mutant::Mutant};
use protocol::{InterruptedWhy, Op, PROTOCOL, PageId};
use rusqlite::Connection;
use tests::{
    child::{ChildMutant, Held},
    client::Page,
    model_server::Answer,
    seeded::DATABASE,
    sentinel::random_u128,
    watched::within_limit,
};

use super::{CHILD, DIALECT, begin, count, ended, is_end, refusal, said, set};

/// The end of a turn is refused by the disk, which is good again then.
pub(super) async fn end_refused(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    server.script(Answer::whole(DIALECT, "Yes."));
    world.gates.hold(Gate::BeforeTerminal);
    let (session, _window) = begin(&world, &server).await;
    world.gates.arrived(Gate::BeforeTerminal).await;
    let faults = &world.faults;
    faults.fail_writes_from(1, WriteStep::Commit, Fault::Full);
    world.gates.release(Gate::BeforeTerminal);
    faults.refuses("TurnEnded", 0).await;
    faults.heal();
    // Before it does anything else a session tries again to keep what it could not.
    let title = "Afterwards".to_owned();
    let renamed = world.submit(Op::RenameSession { session, title }).await;
    renamed.expect("renamed");
    format!("terminals{}", count(&world.events(session), is_end))
}

/// The fold of a turn panics when it has ended.
pub(super) async fn view_fails(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    server.script(Answer::whole(DIALECT, "Yes."));
    world.gates.panic_at(Gate::ViewFolding);
    let (session, _window) = begin(&world, &server).await;
    // It is visited by whoever keeps the view, and without the guard by whoever ends the turn.
    world.gates.arrived(Gate::ViewFolding).await;
    let title = "Afterwards".to_owned();
    let renamed = world.submit(Op::RenameSession { session, title }).await;
    renamed.expect("renamed");
    format!("terminals{}", count(&world.events(session), is_end))
}

/// What comes after a turn takes its time, and the next message is sent.
pub(super) async fn view_held(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    server.script(Answer::whole(DIALECT, "Yes."));
    world.gates.hold(Gate::ViewFolding);
    let (session, window) = begin(&world, &server).await;
    window.sees("model: Yes.").await;
    world.gates.arrived(Gate::ViewFolding).await;
    server.script(Answer::whole(DIALECT, "Again."));
    let text = "And now?".to_owned();
    let sent = refusal(world.submit(Op::message(session, text)).await);
    world.gates.release(Gate::ViewFolding);
    if sent.is_none() {
        window.sees("Again.").await;
    }
    window.until_idle().await;
    server.forget_scripts();
    format!("refused{}", u8::from(sent.is_some()))
}

/// What is written of an answer in so many pieces, each of them a commit.
async fn bytes_of(mutant: Option<Mutant>, pieces: usize) -> u64 {
    let (world, server) = set(mutant).await;
    let names: Vec<String> = (0..pieces).map(|n| format!("piece{n:04} ")).collect();
    let answer = names.iter().fold(Answer::new(DIALECT), |answer, piece| {
        answer.says(&piece.repeat(100)).gate(piece)
    });
    server.script(answer.ends());
    let (_, window) = begin(&world, &server).await;
    window.sees(&names[0]).await;
    let before = world.engine().counters().log;
    for pair in names.windows(2) {
        server.pass(&pair[0]).await;
        world.flush_until(&window, &pair[1]).await;
    }
    let after = world.engine().counters().log;
    server.pass(&names[pieces - 1]).await;
    window.until_idle().await;
    after.body_bytes + after.cache_bytes - before.body_bytes - before.cache_bytes
}

/// An answer, and one that is twice as long.
pub(super) async fn twice_the_answer(mutant: Option<Mutant>) -> String {
    let (once, twice) = (bytes_of(mutant, 31).await, bytes_of(mutant, 61).await);
    format!("bytes{}", (twice + once / 2) / once)
}

/// A database of the first version, brought up to date by a process that is killed between a step and its number.
pub(super) async fn migration_killed(mutant: Option<Mutant>) -> String {
    let (mut world, server) = set(None).await;
    ended(&world, &server).await;
    world.quit().await;
    let raw = Connection::open(world.data_dir().join(DATABASE)).expect("it opens");
    raw.execute_batch("DROP INDEX one_resolution_per_approval; PRAGMA user_version = 1;")
        .expect("it is of the first version");
    raw.close().expect("it closes");
    let held = Held {
        gate: Some((Gate::MigrationNumbered, 1)),
        mutant: mutant.map(|_| ChildMutant::VersionAfterTx),
        ..Held::default()
    };
    let child = world.spawn_held(Path::new(CHILD), held).await;
    child.stands().await;
    child.kill().await;
    world.line.cut();
    match world.try_open().await {
        Ok(engine) => {
            engine.shutdown(InterruptedWhy::AppExit).await;
            "opens".to_owned()
        }
        Err(_) => "twice1".to_owned(),
    }
}

/// A second engine on the same folder.
pub(super) async fn second_engine(mutant: Option<Mutant>) -> String {
    let (world, _server) = set(mutant).await;
    match world.try_open().await {
        Ok(engine) => {
            engine.shutdown(InterruptedWhy::AppExit).await;
            "writers2".to_owned()
        }
        Err(OpenError::InUse { .. }) => "writers1".to_owned(),
        Err(error) => format!("refused: {error}"),
    }
}

/// A lock that somebody holds at first, and soon nobody does.
pub(super) async fn lock_left_behind(mutant: Option<Mutant>) -> String {
    let (mut world, _server) = set(mutant).await;
    world.quit().await;
    let file = std::fs::File::options()
        .write(true)
        .open(world.data_dir().join("holdfast.lock"))
        .expect("the lock's file");
    file.try_lock().expect("nobody's");
    world.gates.hold(Gate::FolderHeld);
    let gives_up = async {
        world.gates.arrived(Gate::FolderHeld).await;
        file.unlock().expect("ours");
        world.gates.release(Gate::FolderHeld);
        std::future::pending::<()>().await;
    };
    let opened = tokio::select! {
        opened = world.try_open() => opened,
        () = gives_up => unreachable!("it waits for ever"),
    };
    match opened {
        Ok(engine) => {
            engine.shutdown(InterruptedWhy::AppExit).await;
            "opens".to_owned()
        }
        Err(_) => "refused".to_owned(),
    }
}

/// A checkpoint while a poll is parked.
pub(super) async fn parked_poll(mutant: Option<Mutant>) -> String {
    let (mut world, server) = set(mutant).await;
    let session = ended(&world, &server).await;
    // Nobody writes any more: the view of the turn is kept.
    world.restart().await;
    let page = Page::load(&world.line, "another").await;
    world.gates.hold(Gate::PollLooked);
    let window = page.follow(session);
    window.until_idle().await;
    world.gates.pass(Gate::PollLooked).await;
    let parked = async {
        while world.engine().counters().parked_now == 0 {
            tokio::task::yield_now().await;
        }
    };
    within_limit("the poll to be parked", parked).await;
    // Something is written that a reader from before would hold up.
    world.add(server.provider()).await;
    let db = Connection::open(world.data_dir().join(DATABASE)).expect("it opens");
    db.busy_timeout(Duration::ZERO).expect("it does not wait");
    let held_up: bool = db
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
        .expect("it answers");
    format!("checkpoint{}", u8::from(!held_up))
}

/// A page of another version.
pub(super) async fn other_version(mutant: Option<Mutant>) -> String {
    let (world, _server) = set(mutant).await;
    let page = PageId::from_bits(random_u128());
    let answer = world.engine().hello("main", page, PROTOCOL + 1);
    said(answer.err().map(|report| report.code), "ran1")
}
