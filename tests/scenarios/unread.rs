//! News: a turn's end that nobody has seen is told as unread, the same everywhere, until somebody saw it.

use protocol::{
    Dialect, EventBody, Op, OpId, OutcomeKind, SessionId, SessionState, StreamId, TurnId,
};
use tests::{
    client::{Client, Page},
    model_server::{Answer, ModelServer, Script},
    sentinel::random_u128,
    verdict::judge,
    world::World,
};
use transcript::Library;

const DIALECT: Dialect = Dialect::Ollama;

fn seen(session: SessionId, turn: TurnId) -> Op {
    Op::NoteSeen { session, turn }
}

/// Waits until a window's list says so.
async fn lists(list: &Client<Library>, session: SessionId, unread: Option<TurnId>) {
    list.until_shown(&format!("unread: {unread:?}"), |library| {
        let listed = library.session(session)?;
        let has_ended = matches!(listed.state, SessionState::Ended { .. });
        (has_ended && listed.unread == unread).then_some(())
    })
    .await;
}

/// How often it was noted that somebody saw something.
fn notes(world: &World) -> usize {
    let events = world.reader().events(StreamId::Library, None, usize::MAX);
    let events = events.expect("the library can be read");
    events
        .iter()
        .filter(|event| matches!(event.body, EventBody::SessionSeen { .. }))
        .count()
}

async fn lists_of(world: &World) -> [Client<Library>; 2] {
    [
        Page::load(&world.line, "one").await.follow_library(),
        Page::load(&world.line, "two").await.follow_library(),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_is_news_in_every_list_until_one_window_has_seen_it() {
    let (server, mut world) = (ModelServer::start(DIALECT), World::new().await);
    server.script(Answer::whole(DIALECT, "Here."));
    server.script(Answer::whole(DIALECT, "There."));
    let session = world.begin(&server, "Where?").await;
    let windows = lists_of(&world).await;
    for list in &windows {
        lists(list, session, Some(TurnId::FIRST)).await;
    }
    let read = world.reader().library().expect("it can be read");
    assert_eq!(read.sessions[0].unread, Some(TurnId::FIRST));

    // One window says so twice, the other once, and one of them has its answer lost and asks again.
    let op = OpId::from_bits(random_u128());
    let turn = TurnId::FIRST;
    let first = world.line.submit(op, seen(session, turn)).await;
    let again = world.line.submit(op, seen(session, turn)).await;
    assert_eq!(first.clone().expect("noted"), again.expect("noted"));
    let other = world.submit(seen(session, turn)).await;
    assert_eq!(other, first, "written or not, it is about the library");
    assert_eq!(other.expect("noted").stream, StreamId::Library);
    for list in &windows {
        lists(list, session, None).await;
    }
    assert_eq!(notes(&world), 1);

    world.say(session, "And?").await;
    for list in &windows {
        lists(list, session, Some(turn.next())).await;
    }
    // Whoever saw the first end has not seen the second.
    world.submit(seen(session, turn)).await.expect("noted");
    assert_eq!(notes(&world), 1);
    world.restart().await;
    let windows = lists_of(&world).await;
    lists(&windows[0], session, Some(turn.next())).await;
    world
        .submit(seen(session, turn.next()))
        .await
        .expect("noted");
    lists(&windows[1], session, None).await;
    let shown = world.page().await.follow(session);
    judge(&world, session, &[&shown]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn seeing_and_renaming_move_nothing_in_the_list_and_renaming_is_no_news() {
    let (server, world) = (ModelServer::start(DIALECT), World::new().await);
    server.script(Answer::whole(DIALECT, "One."));
    server.script(Answer::whole(DIALECT, "Two."));
    let one = world.begin(&server, "One?").await;
    let [list, _] = lists_of(&world).await;
    lists(&list, one, Some(TurnId::FIRST)).await;
    world.clock.advance(std::time::Duration::from_secs(60));
    let two = world.begin_with(server.model(), "Two?").await;
    lists(&list, two, Some(TurnId::FIRST)).await;
    world.clock.advance(std::time::Duration::from_secs(60));

    world.submit(seen(one, TurnId::FIRST)).await.expect("noted");
    lists(&list, one, None).await;
    let title = "The first".to_owned();
    let rename = Op::RenameSession {
        session: one,
        title,
    };
    world.submit(rename).await.expect("renamed");
    let order = list
        .until_shown("the new title", |library| {
            let named = library.session(one)?.title == "The first";
            let order: Vec<SessionId> =
                library.sessions_newest_first().map(|s| s.session).collect();
            named.then_some(order)
        })
        .await;
    assert_eq!(order, [two, one]);
    lists(&list, one, None).await;
    lists(&list, two, Some(TurnId::FIRST)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_and_an_interruption_are_news_and_what_the_user_stopped_is_not() {
    let (server, mut world) = (ModelServer::start(DIALECT), World::new().await);
    server.script(Script::unknown_model(DIALECT, "m"));
    let failed = world.begin(&server, "Fail.").await;
    let [list, _] = lists_of(&world).await;
    lists(&list, failed, Some(TurnId::FIRST)).await;

    server.script(Answer::new(DIALECT).says("On and on").goes_silent());
    let stopped = world.begin_with(server.model(), "Stop.").await;
    let window = world.page().await.follow(stopped);
    window.sees("On and on").await;
    world.stop(stopped, TurnId::FIRST).await;
    lists(&list, stopped, None).await;
    // A page that lives would take its place in the window back.
    drop(window);

    server.script(Answer::new(DIALECT).says("Still here").goes_silent());
    let interrupted = world.begin_with(server.model(), "Wait.").await;
    let window = world.page().await.follow(interrupted);
    window.sees("Still here").await;
    world.restart().await;
    let [list, _] = lists_of(&world).await;
    lists(&list, interrupted, Some(TurnId::FIRST)).await;
    lists(&list, failed, Some(TurnId::FIRST)).await;
    let state = list.look(|library| library.and_then(|l| Some(l.session(interrupted)?.state)));
    let outcome = OutcomeKind::Interrupted;
    assert_eq!(state, Some(SessionState::Ended { outcome }));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_knows_cannot_be_seen() {
    let world = World::new().await;
    let nobody = SessionId::from_bits(7);
    let answer = world.submit(seen(nobody, TurnId::FIRST)).await;
    assert!(answer.is_err(), "{answer:?}");
    assert_eq!(notes(&world), 0);
}
