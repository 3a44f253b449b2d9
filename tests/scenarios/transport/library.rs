//! The list of sessions: a stream like any other.

use protocol::{ErrorCode, Op};
use tests::{
    backend::refusal,
    client::{CallKind, Fault, Page},
    model_server::{Answer, ModelServer},
    sentinel::Sentinel,
    world::World,
};

use super::DIALECT;

/// `library`. Mutant: `NoGapCheck`. `ListSkipsLogId` and `ReloadPerEvent` cannot be: the list is followed by the same link
/// over the same door, which has one request out and one slot for repairs.
#[tokio::test(flavor = "multi_thread")]
async fn the_list_follows_over_a_restart_and_three_gaps_at_once_cost_one_reload() {
    let (server, mut world) = (ModelServer::start(DIALECT), World::new().await);
    server.script(Answer::whole(DIALECT, "Yes."));
    let kept = world.begin(&server, "Kept").await;
    world.page().await.follow(kept).until_idle().await;
    let gone = Sentinel::new("gone");
    server.script(Answer::whole(DIALECT, "No."));
    let binned = world.begin_with(server.model(), &gone.to_string()).await;
    world.page().await.follow(binned).until_idle().await;
    let library = Page::load(&world.line, "list").await.follow_library();
    library.sees(&format!("{gone} (completed)\n")).await;
    library.sees("Kept (completed)\n").await;

    // Renamed, and thrown away, elsewhere, while the window sleeps and the engine starts again.
    library.hide();
    world.rename(kept, "Renamed").await;
    world
        .submit(Op::BinSession { session: binned })
        .await
        .expect("binned");
    world.restart().await;
    library.show();
    let text = library
        .sees(&format!("{gone} (completed, in the bin)\n"))
        .await;
    assert!(text.contains("Renamed (completed)\n"), "{text}");
    let text = "Are you there?".to_owned();
    let send = Op::SendMessage {
        session: binned,
        text,
        images: Vec::new(),
    };
    let refused = refusal(world.submit(send).await);
    assert_eq!(refused, ErrorCode::Gone, "nobody writes into the bin");
    let before = library.counters();
    assert_eq!(before.swaps, 1, "it resumed");

    library.hide();
    super::until("its poll to come home or to be parked", || {
        library.page().requests_out() <= 1
    })
    .await;
    for n in 1..=3 {
        world.rename(kept, &format!("Title {n}")).await;
    }
    super::until("its poll to come home", || {
        library.page().requests_out() == 0
    })
    .await;
    for n in 4..=6 {
        world.rename(kept, &format!("Title {n}")).await;
    }
    let page = library.page();
    page.fault(CallKind::Poll, Fault::LoseFirstEvent);
    library.show();
    library.sees("Title 6 (completed)\n").await;
    let now = library.counters();
    assert_eq!(
        (
            now.gaps - before.gaps,
            now.attaches - before.attaches,
            now.swaps
        ),
        (1, 1, 1),
        "one gap, one attach, and nothing loaded anew"
    );
}
