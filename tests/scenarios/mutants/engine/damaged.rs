//! Damaged files: what is done before anybody works with one.

use engine::{OpenError, mutant::Mutant};
use protocol::{InterruptedWhy, StreamId};
use tests::{seeded::DATABASE, world::World};

use super::{ended, set};

/// A file that is no database.
pub(super) async fn no_database(mutant: Option<Mutant>) -> String {
    let mut world = World::without_engine();
    world.mutant = mutant;
    let words = "this was never a database ".repeat(100);
    std::fs::write(world.data_dir().join(DATABASE), words).expect("it can be written");
    match world.try_open().await {
        Ok(engine) => {
            engine.shutdown(InterruptedWhy::AppExit).await;
            "opens".to_owned()
        }
        Err(OpenError::Storage(error)) => format!("refused: {:?}", error.trouble()),
        Err(error) => format!("refused: {error}"),
    }
}

/// An event is gone from the middle of a conversation, and a reader met the hole.
pub(super) async fn missing_event(mutant: Option<Mutant>) -> String {
    let (mut world, server) = set(mutant).await;
    let session = ended(&world, &server).await;
    world.quit().await;
    let db = rusqlite::Connection::open(world.data_dir().join(DATABASE)).expect("it opens");
    db.execute_batch(
        "DROP TRIGGER events_are_never_deleted; DELETE FROM events WHERE stream = 1 AND seq = 3",
    )
    .expect("it is deleted");
    db.close().expect("it closes");
    let read = |world: &World| {
        let reader = world.reader();
        reader.events(StreamId::Session(session), None, usize::MAX)
    };
    assert!(read(&world).is_err(), "it is met");
    world.open().await;
    match read(&world) {
        Ok(events) => format!("{} in its place", events[2].body.kind()),
        Err(_) => "a hole".to_owned(),
    }
}
