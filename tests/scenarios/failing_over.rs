//! A model that fails before it said anything gives way to the next; one that stopped in the middle can be asked to go on.

use protocol::{
    Dialect, ErrorCode, EventBody, FailureCode, MessagePurpose, Op, TimeLimits, TurnOutcome,
};
use tests::{
    backend::Missed,
    model_server::{
        Answer, DIALECTS, MODEL, ModelServer, Script, model_of, provider_at, refused_address,
    },
    verdict::judge,
    world::World,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_second_model_answers_when_the_first_one_cannot_and_the_log_says_so() {
    for dialect in DIALECTS {
        let (server, world) = (ModelServer::start(dialect), World::new().await);
        let away = provider_at(dialect, refused_address());
        world.add(away.clone()).await;
        world.add(server.provider()).await;
        let fallbacks = Op::ChooseFallbacks {
            models: vec![server.model()],
        };
        world.submit(fallbacks).await.expect("they are taken");
        server.script(Answer::whole(dialect, "I am here."));
        let session = world.begin_with(model_of(&away, MODEL), "Hello?").await;
        let window = world.page().await.follow(session);
        let text = window.until_idle().await;
        assert_eq!(
            text, "you: Hello?\nmodel: I am here.\n(completed)\n",
            "{dialect:?}"
        );
        let events = world.events(session);
        let next: Vec<_> = events
            .iter()
            .filter_map(|event| match &event.body {
                EventBody::AttemptFailed { failure, next, .. } => {
                    Some((failure.code, next.clone()))
                }
                _ => None,
            })
            .collect();
        assert_eq!(next, [(FailureCode::ConnectFailed, Some(server.model()))]);
        let asked: Vec<_> = events
            .iter()
            .filter_map(|event| match &event.body {
                EventBody::StepStarted { model, .. } => Some(model.provider),
                _ => None,
            })
            .collect();
        assert_eq!(asked, [away.id, server.provider().id]);
        judge(&world, session, &[&window]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn once_something_was_said_nobody_takes_over() {
    for dialect in DIALECTS {
        let (server, other) = (ModelServer::start(dialect), ModelServer::start(dialect));
        let world = World::new().await;
        world.add(other.provider()).await;
        let fallbacks = Op::ChooseFallbacks {
            models: vec![other.model()],
        };
        world.submit(fallbacks).await.expect("they are taken");
        server.script(Answer::new(dialect).says("Half an").fails("out of luck"));
        let session = world.begin(&server, "Hello?").await;
        let window = world.page().await.follow(session);
        let text = window.until_idle().await;
        assert!(text.contains("model: Half an\n(failed: "), "{text}");
        assert_eq!(other.counters().chats, 0, "{dialect:?}");
        judge(&world, session, &[&window]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn when_all_fail_there_is_one_end_with_a_line_for_each() {
    let dialect = Dialect::Ollama;
    let (server, world) = (ModelServer::start(dialect), World::new().await);
    let away = provider_at(dialect, refused_address());
    world.add(away.clone()).await;
    let fallbacks = Op::ChooseFallbacks {
        models: vec![model_of(&away, MODEL)],
    };
    world.submit(fallbacks).await.expect("they are taken");
    server.script(Script::error(dialect, 404, "model not found"));
    let session = world.begin(&server, "Hello?").await;
    let window = world.page().await.follow(session);
    window.until_idle().await;
    let failure = world
        .events(session)
        .into_iter()
        .find_map(|event| match event.body {
            EventBody::TurnEnded {
                outcome: TurnOutcome::Failed { failure },
            } => Some(failure),
            _ => None,
        });
    let failure = failure.expect("it failed");
    assert_eq!(failure.code, FailureCode::AllCandidatesFailed);
    assert_eq!(failure.detail.map(|detail| detail.lines().count()), Some(2));
    judge(&world, session, &[&window]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_answer_goes_on_and_the_model_is_told_once_where_it_stopped() {
    for dialect in DIALECTS {
        let (server, world) = (ModelServer::start(dialect), World::new().await);
        server.script(Answer::new(dialect).says("A holdfast is").goes_silent());
        server.script(Answer::whole(dialect, "an anchor."));
        let session = world.begin(&server, "What is a holdfast?").await;
        let window = world.page().await.follow(session);
        window.sees("A holdfast is").await;
        world.stop(session, protocol::TurnId::FIRST).await;
        window.until_idle().await;
        let tip = window.look(|shown| shown.and_then(|shown| shown.tip()));
        let go_on = |expected_tip| Op::ContinueTurn {
            session,
            turn: protocol::TurnId::FIRST,
            expected_tip,
        };
        let tip = tip.expect("something happened");
        world.submit(go_on(tip)).await.expect("it goes on");
        window.sees("model: an anchor.").await;
        window.until_idle().await;
        let purposes: Vec<MessagePurpose> = world
            .events(session)
            .iter()
            .filter_map(|event| match event.body {
                EventBody::UserMessageAdded { purpose, .. } => Some(purpose),
                _ => None,
            })
            .collect();
        let of = protocol::TurnId::FIRST;
        assert_eq!(
            purposes,
            [MessagePurpose::Said, MessagePurpose::Continue { of }]
        );
        let told = server.chat(2).await.conversation();
        let halves = told
            .iter()
            .filter(|(_, said)| said.contains("A holdfast is"))
            .count();
        assert_eq!(halves, 1, "{told:?}");
        let stale = world.submit(go_on(tip)).await.expect_err("it has gone on");
        let Missed::Refused(report) = stale else {
            panic!("{stale:?}")
        };
        assert_eq!(report.code, ErrorCode::StaleHead);
        judge(&world, session, &[&window]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_taken_as_a_whole_or_refused_at_their_field_and_a_server_may_have_its_own() {
    let dialect = Dialect::OpenAiChat;
    let (server, world) = (ModelServer::start(dialect), World::new().await);
    let mut limits = TimeLimits {
        gap_ms: 7_000,
        ..TimeLimits::default()
    };
    let change = |limits| Op::ChangeTimeLimits { limits };
    world.submit(change(limits)).await.expect("a good set");
    limits.ceiling_ms = limits.first_event_ms;
    let bad = world.submit(change(limits)).await.expect_err("a bad set");
    let Missed::Refused(report) = bad else {
        panic!("{bad:?}")
    };
    let field = "ceiling_ms".to_owned();
    assert_eq!(report.code, ErrorCode::Invalid { field });

    let mut patient = server.provider();
    for own in [None, Some(9_000)] {
        patient.limits = own.map(|gap_ms| TimeLimits {
            gap_ms,
            ..TimeLimits::default()
        });
        world.add(patient.clone()).await;
        server.script(Answer::new(dialect).says("Well").goes_silent());
        let session = world.begin_with(server.model(), "Hello?").await;
        let window = world.page().await.follow(session);
        window.sees("Well").await;
        let gap = std::time::Duration::from_millis(own.unwrap_or(7_000));
        world.clock.until_armed(gap).await;
        world.clock.advance(gap);
        let text = window.until_idle().await;
        assert!(text.ends_with("(failed: IdleTimeout)\n"), "{text}");
        judge(&world, session, &[&window]).await;
    }
}
