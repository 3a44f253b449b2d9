//! What windows and engines leave behind: nothing that holds up the log, and nothing that lives on.

use protocol::Dialect;
use rusqlite::Connection;
use tests::{
    client::Page,
    model_server::{Answer, ModelServer},
    seeded::DATABASE,
    watched::until,
    world::World,
};

const DIALECT: Dialect = Dialect::Ollama;

/// Whether a checkpoint by somebody else could not be completed.
fn checkpoint_is_held_up(world: &World) -> bool {
    let db = Connection::open(world.data_dir().join(DATABASE)).expect("it opens");
    db.busy_timeout(std::time::Duration::ZERO)
        .expect("it does not wait");
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
        .expect("it answers")
}

#[tokio::test(flavor = "multi_thread")]
async fn twelve_parked_polls_do_not_hold_up_a_checkpoint_and_a_reader_in_the_middle_does() {
    let (server, mut world) = (ModelServer::start(DIALECT), World::new().await);
    server.script(Answer::whole(DIALECT, "Hello."));
    let session = world.begin(&server, "Hello?").await;
    world.page().await.follow(session).until_idle().await;
    // The end of a turn is seen before its view is kept; whoever writes holds up a checkpoint too.
    world.restart().await;
    let mut windows = Vec::new();
    for n in 0..12 {
        let page = Page::load(&world.line, &format!("window {n}")).await;
        let window = page.follow(session);
        window.until_idle().await;
        windows.push(window);
    }
    let parked = || world.engine().counters().parked_now == 12;
    until("every poll to be parked", parked).await;
    assert!(!checkpoint_is_held_up(&world));

    // That it would be noticed.
    let reader = Connection::open(world.data_dir().join(DATABASE)).expect("it opens");
    let read = "BEGIN; SELECT count(*) FROM events";
    reader.execute_batch(read).expect("it begins to read");
    let title = "Meanwhile".to_owned();
    let rename = protocol::Op::RenameSession { session, title };
    world.submit(rename).await.expect("renamed");
    until("the polls to be parked again", parked).await;
    assert!(checkpoint_is_held_up(&world));
    reader.execute_batch("COMMIT").expect("it has read");
    assert!(!checkpoint_is_held_up(&world));
}

fn tasks() -> usize {
    tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_was_closed_leaves_no_task_no_poll_no_attachment_and_no_socket() {
    let server = ModelServer::start(DIALECT);
    let before = tasks();
    let mut world = World::new().await;
    server.script(Answer::new(DIALECT).says("On and on").goes_silent());
    let session = world.begin(&server, "Hello?").await;
    let library = Page::load(&world.line, "list").await.follow_library();
    let window = world.page().await.follow(session);
    window.sees("On and on").await;
    let engine = world.engine().clone();
    let parked = || engine.counters().parked_now == 2;
    until("both polls to be parked", parked).await;
    assert_eq!(engine.counters().attachments_now, 2);
    assert!(tasks() > before && server.counters().open > 0);

    world.quit().await;
    // Whoever polled is told so, and goes by itself.
    until("no poll to be parked", || engine.counters().parked_now == 0).await;
    drop((library, window, world, engine));
    let hung_up = |now: tests::model_server::Counters| now.open == 0;
    server.until("every connection to end", hung_up).await;
    until("every task to end", || tasks() <= before).await;
}
