//! INV-112: numbers that no double holds cross the boundary as they are.

use std::path::Path;

use protocol::{Dialect, EventBody, Seq, StreamId};
use tests::{
    client::Page,
    model_server::{Answer, DIALECTS, ModelServer},
    seeded,
    world::World,
};

const CHILD: &str = env!("CARGO_BIN_EXE_engine_child");

/// The first number after which a double cannot count on.
const TWO_TO_53: u64 = 1 << 53;

/// A conversation so long that its seqs are beyond 2^53, followed over JSON text: the next piece is found each time at its
/// own number, whether that is odd or even, so nothing is repeated, missed or loaded again.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_beyond_two_to_the_fifty_third_is_followed_event_by_event() {
    for dialect in DIALECTS {
        let (server, mut world) = (ModelServer::start(dialect), World::new().await);
        server.script(Answer::whole(dialect, "Hello."));
        let session = world.begin(&server, "Hello?").await;
        world.page().await.follow(session).until_idle().await;
        world.quit().await;
        seeded::move_up(world.data_dir(), session, TWO_TO_53);

        let child = world.spawn(Path::new(CHILD)).await;
        let window = Page::load(&world.line, "main").await.follow(session);
        window.until_idle().await;
        let before = window.cursor().expect("it follows").count();
        assert!(before > TWO_TO_53);
        script_in_pieces(dialect, &server);
        world.say(session, "And on?").await;
        for n in 0..PIECES {
            window.sees(&format!("piece{n} ")).await;
            server.pass(&n.to_string()).await;
        }
        let text = window.until_idle().await;
        assert!(text.starts_with("you: Hello?\nmodel: Hello.\n(completed)\n"));
        assert!(text.ends_with("piece5 (completed)\n") || text.ends_with("piece5 \n(completed)\n"));
        let now = window.counters();
        assert_eq!(
            (now.attaches, now.swaps, now.repeated, now.gaps, now.repairs),
            (1, 1, 0, 0, 0),
            "{dialect:?}: {now:?}"
        );
        let after = window.cursor().expect("it follows").count();
        child.kill().await;
        world.line.cut();

        let reader = world.reader();
        let since = Some(Seq::new(before));
        let events = reader.events(StreamId::Session(session), since, usize::MAX);
        let events = events.expect("it can be read");
        let last = events.last().expect("there are events");
        assert!(matches!(last.body, EventBody::TurnEnded { .. }), "{last:?}");
        assert_eq!(last.seq.get(), after, "{dialect:?}");
    }
}

const PIECES: usize = 6;

fn script_in_pieces(dialect: Dialect, server: &ModelServer) {
    let answer = (0..PIECES).fold(Answer::new(dialect), |answer, n| {
        answer.says(&format!("piece{n} ")).gate(&n.to_string())
    });
    server.script(answer.ends());
}
