//! Ops: each runs once, whole, and only on the state it was decided on; a refusal changes nothing.

use protocol::{ErrorCode, EventBody, Op, OpId, SessionId};
use tests::{
    backend::refusal,
    model_server::{Answer, DIALECTS, ModelServer},
    sentinel::random_u128,
    verdict::judge,
    world::World,
};

fn op_id() -> OpId {
    OpId::from_bits(random_u128())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_op_submitted_twice_runs_once_also_across_a_restart() {
    for dialect in DIALECTS {
        let server = ModelServer::start(dialect);
        let mut world = World::new().await;
        server.script(Answer::whole(dialect, "First."));
        server.script(Answer::whole(dialect, "Second."));
        let session = world.begin(&server, "One?").await;
        let window = world.page().await.follow(session);
        window.until_idle().await;

        let (id, op) = (op_id(), Op::message(session, "Two?"));
        let (one, two) = tokio::join!(
            world.line.submit(id, op.clone()),
            world.line.submit(id, op.clone())
        );
        let receipt = one.expect("taken");
        assert_eq!(two.expect("taken"), receipt, "both at once");
        window.sees("Second.").await;
        window.until_idle().await;
        assert_eq!(
            world.line.submit(id, op.clone()).await.expect("taken"),
            receipt,
            "afterwards"
        );
        let other = Op::message(session, "Three?");
        assert_eq!(
            refusal(world.line.submit(id, other).await),
            ErrorCode::OpIdConflict
        );

        drop(window);
        world.restart().await;
        assert_eq!(
            world.line.submit(id, op).await.expect("taken"),
            receipt,
            "in another boot"
        );
        let page = world.reader().transcript(session).unwrap();
        assert_eq!(
            tests::picture::turns(&page.turns),
            "you: One?\nmodel: First.\n(completed)\nyou: Two?\nmodel: Second.\n(completed)\n"
        );
        assert_eq!(server.counters().chats, 2);
        judge(&world, session, &[]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_sent_during_a_turn_is_refused_and_leaves_no_trace() {
    for dialect in DIALECTS {
        let server = ModelServer::start(dialect);
        let world = World::new().await;
        server.script(
            Answer::new(dialect)
                .says("Wait. ")
                .gate("end")
                .says("Done.")
                .ends(),
        );
        server.script(Answer::whole(dialect, "Yes?"));
        let session = world.begin(&server, "One?").await;
        let window = world.page().await.follow(session);
        window.sees("Wait. ").await;
        let before = world.events(session).len();
        let send = Op::message(session, "Two?");
        let id = op_id();
        assert_eq!(
            refusal(world.line.submit(id, send.clone()).await),
            ErrorCode::TurnActive
        );
        assert_eq!(world.events(session).len(), before);
        server.pass("end").await;
        window.until_idle().await;
        // Refused is not run: the same op may be asked again.
        world.line.submit(id, send).await.expect("taken now");
        window.sees("Yes?").await;
        window.until_idle().await;
        judge(&world, session, &[&window]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_and_edit_take_turns_out_of_the_conversation_and_delete_nothing() {
    for dialect in DIALECTS {
        let server = ModelServer::start(dialect);
        let world = World::new().await;
        for text in ["Bad.", "Good.", "Better."] {
            server.script(Answer::whole(dialect, text));
        }
        let session = world.begin(&server, "Say it.").await;
        let window = world.page().await.follow(session);
        window.until_idle().await;

        let (turn, tip) = last(&window);
        let retry = Op::RetryTurn {
            session,
            turn,
            expected_tip: tip,
        };
        world.submit(retry.clone()).await.expect("taken");
        window.sees("Good.").await;
        let text = window.until_idle().await;
        assert_eq!(
            text, "you: Say it.\nmodel: Good.\n(completed)\n",
            "{dialect:?}"
        );
        // The second click was decided on what the first one changed.
        assert_eq!(refusal(world.submit(retry).await), ErrorCode::StaleHead);

        let (turn, expected_tip) = last(&window);
        let text = "Say it well.".to_owned();
        world
            .submit(Op::EditMessage {
                session,
                turn,
                text,
                expected_tip,
                images: None,
            })
            .await
            .expect("taken");
        window.sees("Better.").await;
        let text = window.until_idle().await;
        assert_eq!(text, "you: Say it well.\nmodel: Better.\n(completed)\n");

        let told = server.chat(3).await.conversation();
        assert_eq!(told, [("user".to_owned(), "Say it well.".to_owned())]);
        let kept: String = world
            .events(session)
            .into_iter()
            .filter_map(|event| match event.body {
                EventBody::TextAppended { text, .. } => Some(text),
                _ => None,
            })
            .collect();
        assert_eq!(kept, "Bad.Good.Better.", "every answer is still in the log");
        judge(&world, session, &[&window]).await;
    }
}

fn last(
    window: &tests::client::Client<transcript::Transcript>,
) -> (protocol::TurnId, protocol::Seq) {
    window.look(|shown| {
        let shown = shown.unwrap();
        (
            shown.turns().next_back().unwrap().turn,
            shown.tip().unwrap(),
        )
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_title_does_not_make_an_edit_stale() {
    let server = ModelServer::start(protocol::Dialect::Ollama);
    let world = World::new().await;
    server.script(Answer::whole(server.dialect(), "One."));
    server.script(Answer::whole(server.dialect(), "Two."));
    let session = world.begin(&server, "Say it.").await;
    let window = world.page().await.follow(session);
    window.until_idle().await;
    let (turn, expected_tip) = last(&window);
    world
        .submit(Op::RenameSession {
            session,
            title: "A title".to_owned(),
        })
        .await
        .unwrap();
    world
        .submit(Op::RetryTurn {
            session,
            turn,
            expected_tip,
        })
        .await
        .expect("not stale");
    window.sees("Two.").await;
    window.until_idle().await;
    judge(&world, session, &[&window]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_exist_or_is_binned_is_refused_by_name() {
    let server = ModelServer::start(protocol::Dialect::Ollama);
    let world = World::new().await;
    server.script(Answer::whole(server.dialect(), "One."));
    let session = world.begin(&server, "Say it.").await;
    let window = world.page().await.follow(session);
    window.until_idle().await;
    let say = |session, text: &str| Op::message(session, text);
    let nobody = SessionId::from_bits(random_u128());
    assert_eq!(
        refusal(world.submit(say(nobody, "Hello?")).await),
        ErrorCode::NotFound
    );
    let empty = refusal(world.submit(say(session, " \n")).await);
    assert_eq!(
        empty,
        ErrorCode::Invalid {
            field: "text".to_owned()
        }
    );
    world.submit(Op::BinSession { session }).await.unwrap();
    assert_eq!(
        refusal(world.submit(say(session, "Hello?")).await),
        ErrorCode::Gone
    );
    world.submit(Op::UnbinSession { session }).await.unwrap();
    world
        .submit(Op::RemoveProvider {
            provider: server.provider().id,
        })
        .await
        .unwrap();
    let homeless = refusal(world.submit(say(session, "Hello?")).await);
    assert_eq!(
        homeless,
        ErrorCode::Invalid {
            field: "model".to_owned()
        }
    );
    assert_eq!(server.counters().chats, 1);
    judge(&world, session, &[&window]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drafts_survive_a_restart_and_go_when_they_are_sent() {
    let server = ModelServer::start(protocol::Dialect::Ollama);
    let mut world = World::new().await;
    server.script(Answer::whole(server.dialect(), "One."));
    server.script(Answer::whole(server.dialect(), "Two."));
    world
        .engine()
        .save_draft(None, "Say it.".into())
        .await
        .unwrap();
    world.restart().await;
    assert_eq!(world.engine().draft(None).await.unwrap().text, "Say it.");

    let session = world.begin(&server, "Say it.").await;
    let window = world.page().await.follow(session);
    window.until_idle().await;
    drop(window);
    assert_eq!(
        world.engine().draft(None).await.unwrap().text,
        "",
        "sent is no draft any more"
    );
    world
        .engine()
        .save_draft(Some(session), "Again".into())
        .await
        .unwrap();
    world.restart().await;
    assert_eq!(
        world.engine().draft(Some(session)).await.unwrap().text,
        "Again"
    );
    assert_eq!(world.engine().draft(None).await.unwrap().text, "");

    // What was typed meanwhile is not what was sent.
    world.say(session, "Something else").await;
    assert_eq!(
        world.engine().draft(Some(session)).await.unwrap().text,
        "Again"
    );
    let window = world.page().await.follow(session);
    window.sees("Two.").await;
    window.until_idle().await;
    judge(&world, session, &[&window]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_that_comes_after_the_end_changes_nothing() {
    for dialect in DIALECTS {
        let server = ModelServer::start(dialect);
        let world = World::new().await;
        server.script(Answer::whole(dialect, "Done."));
        let session = world.begin(&server, "Quick.").await;
        let window = world.page().await.follow(session);
        window.until_idle().await;
        let before = world.events(session);
        let (turn, _) = last(&window);
        world.stop(session, turn).await;
        assert_eq!(world.events(session), before);
        judge(&world, session, &[&window]).await;
    }
}
