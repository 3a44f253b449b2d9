//! The library's snapshot: a start does not read what has ever been written, and whatever becomes of the snapshot, the
//! library says the same.

use engine::{Fault, WriteStep};
use protocol::{Dialect, LibraryPage, SessionId, StreamId};
use rusqlite::Connection;
use tests::{
    model_server::{Answer, ModelServer},
    watched::within_limit,
    world::World,
};
use transcript::{Follow, Library};

const DIALECT: Dialect = Dialect::Ollama;

/// More events of the library than a snapshot may be behind.
const RENAMES: usize = 300;

/// A library whose snapshot was written, and closed.
async fn kept() -> (World, SessionId) {
    let (server, mut world) = (ModelServer::start(DIALECT), World::new().await);
    server.script(Answer::whole(DIALECT, "One."));
    server.script(Answer::whole(DIALECT, "Two."));
    let one = world.begin(&server, "One?").await;
    let two = world.begin_with(server.model(), "Two?").await;
    for session in [one, two] {
        world.page().await.follow(session).until_idle().await;
    }
    for n in 0..RENAMES {
        world.rename(one, &format!("Title {n}")).await;
    }
    served(&world).await;
    world.quit().await;
    assert_eq!(snapshots(&world), 1, "one is kept by the time it is closed");
    (world, one)
}

async fn served(world: &World) -> LibraryPage {
    world.line.library().await.expect("the library can be read")
}

fn raw(world: &World) -> Connection {
    Connection::open(world.data_dir().join("holdfast.sqlite3")).expect("the database opens")
}

fn snapshots(world: &World) -> i64 {
    raw(world)
        .query_row("SELECT count(*) FROM heads WHERE stream = 0", [], |row| {
            row.get(0)
        })
        .expect("a count")
}

/// The library from its events alone.
fn replayed(world: &World) -> Library {
    let reader = world.reader();
    let events = reader.events(StreamId::Library, None, usize::MAX);
    let mut library = Library::empty(reader.log_id());
    let mut changes = Vec::new();
    for event in events.expect("it can be read") {
        library.apply(&event, &mut changes);
    }
    library
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_begins_with_the_snapshot_and_reads_on_from_there() {
    let (mut world, one) = kept().await;
    // Visible only to whoever reads the snapshot and not the events.
    let changed = raw(&world).execute(
        "UPDATE shelf SET body = json_set(body, '$.title', 'From the snapshot') WHERE session = ?1",
        [one.bits().to_be_bytes()],
    );
    assert_eq!(changed.expect("a row"), 1);
    let shown = |page: &LibraryPage| {
        let listed = page.sessions.iter().find(|s| s.session == one);
        listed.expect("it is listed").title.clone()
    };
    let read = world.reader().library().expect("it can be read");
    assert_eq!(shown(&read), "From the snapshot");
    world.open().await;
    assert_eq!(shown(&served(&world).await), "From the snapshot");
    world.rename(one, "And on from there").await;
    assert_eq!(Library::from(served(&world).await), replayed(&world));
    let read = world.reader().library().expect("it can be read");
    assert_eq!(Library::from(read), replayed(&world));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_is_dropped_or_does_not_hold_is_made_anew() {
    for harm in [
        "DELETE FROM heads; DELETE FROM shelf; DELETE FROM turn_views",
        "DELETE FROM heads WHERE stream = 0",
        "DELETE FROM shelf WHERE session = (SELECT min(session) FROM shelf)",
        "UPDATE heads SET body = json_set(body, '$.version', 0) WHERE stream = 0",
        "UPDATE heads SET body = json_set(body, '$.page.as_of.after', 1000000) WHERE stream = 0",
        "UPDATE heads SET body = 'no JSON' WHERE stream = 0",
        "UPDATE shelf SET body = '{}'",
        "UPDATE shelf SET body = CAST(x'ff' AS TEXT)",
        "UPDATE shelf SET session = x'00112233445566778899aabbccddeeff'
         WHERE session = (SELECT min(session) FROM shelf)",
    ] {
        let (mut world, one) = kept().await;
        raw(&world).execute_batch(harm).expect(harm);
        let read = world.reader().library().expect("it can be read");
        assert_eq!(Library::from(read), replayed(&world), "{harm}");
        world.open().await;
        assert_eq!(
            Library::from(served(&world).await),
            replayed(&world),
            "{harm}"
        );
        world.rename(one, "Afterwards").await;
        assert_eq!(
            Library::from(served(&world).await),
            replayed(&world),
            "{harm}"
        );
        world.restart().await;
        assert_eq!(snapshots(&world), 1, "{harm}: it was made anew");
        let read = world.reader().library().expect("it can be read");
        assert_eq!(Library::from(read), replayed(&world), "{harm}");
    }
}

/// The disk is full, and the snapshot is one more thing that it does not take: once, and not at every look.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_cannot_be_written_is_not_tried_again_at_every_look() {
    let (server, mut world) = (ModelServer::start(DIALECT), World::new().await);
    server.script(Answer::whole(DIALECT, "One."));
    let one = world.begin(&server, "One?").await;
    world.page().await.follow(one).until_idle().await;
    // Nobody writes any more: the view of the turn is kept.
    world.restart().await;
    world
        .faults
        .fail_writes_from(1, WriteStep::Commit, Fault::Full);
    served(&world).await;
    assert_eq!(world.engine().counters().log.failed_commits, 0);
    world.faults.heal();
    for n in 0..RENAMES {
        world.rename(one, &format!("Title {n}")).await;
    }
    world
        .faults
        .fail_writes_from(1, WriteStep::Commit, Fault::Full);
    let tasks = world.engine().counters().tasks_now;
    for look in 0..5 {
        served(&world).await;
        let noted = async {
            while world.engine().counters().tasks_now > tasks {
                tokio::task::yield_now().await;
            }
        };
        within_limit("the attempt to be over", noted).await;
        let tried = world.engine().counters().log.failed_commits;
        assert_eq!(tried, 1, "after look {look}");
    }
    world.faults.heal();
    for n in 0..RENAMES {
        world.rename(one, &format!("Another title {n}")).await;
    }
    served(&world).await;
    world.quit().await;
    assert_eq!(snapshots(&world), 1, "with more to keep, it is tried again");
    world.open().await;
    assert_eq!(Library::from(served(&world).await), replayed(&world));
}
