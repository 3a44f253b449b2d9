//! Everything that goes wrong on the way to an answer has a name, words, and keeps what was there.

use std::time::Duration;

use engine::gate::Gate;
use protocol::{Dialect, EventBody, Failure, Phase, TimeLimits, TurnOutcome};
use tests::{
    model_server::{
        Answer, CUTS, DIALECTS, MODEL, ModelServer, Script, model_of, provider_at, refused_address,
    },
    verdict::judge,
    world::World,
};

/// How a turn ended that met these scripts, one per attempt.
struct Met {
    picture: String,
    chats: u64,
    failure: Failure,
}

/// Asks once and waits for the end; every attempt after the first needs the clock.
async fn meet(dialect: Dialect, scripts: Vec<Script>) -> Met {
    let server = ModelServer::start(dialect);
    let world = World::new().await;
    let retries = scripts.len() - 1;
    scripts.into_iter().for_each(|script| server.script(script));
    let session = world.begin(&server, "Hello?").await;
    let window = world
        .page()
        .await
        .follow_with_witness(session, world.data_dir());
    for attempt in (2..).take(retries) {
        world.pass_the_wait(&window, attempt).await;
    }
    let picture = window.until_idle().await;
    judge(&world, session, &[&window]).await;
    let failure = window.look(|shown| {
        let turn = shown.unwrap().turns().next_back().unwrap();
        match turn.outcome.clone() {
            Some(TurnOutcome::Failed { failure }) => failure,
            other => panic!("{dialect:?}: not a failure: {other:?}"),
        }
    });
    Met {
        picture,
        chats: server.counters().chats,
        failure,
    }
}

fn failed(code: &str, said: &str) -> String {
    let said = if said.is_empty() {
        String::new()
    } else {
        format!("model: {said}\n")
    };
    format!("you: Hello?\n{said}(failed: {code})\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_at_which_nothing_listens_is_a_failed_connection() {
    for dialect in DIALECTS {
        let world = World::new().await;
        let address = refused_address();
        let provider = provider_at(dialect, address);
        world.add(provider.clone()).await;
        let session = world.begin_with(model_of(&provider, MODEL), "Hello?").await;
        let window = world.page().await.follow(session);
        assert_eq!(
            window.until_idle().await,
            failed("ConnectFailed", ""),
            "{dialect:?}"
        );
        let outcome = window.look(|shown| shown.unwrap().turns().next().unwrap().outcome.clone());
        let Some(TurnOutcome::Failed { failure }) = outcome else {
            panic!("{outcome:?}")
        };
        assert!(
            failure.message.contains(&address.to_string()),
            "{}",
            failure.message
        );
        judge(&world, session, &[&window]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_web_page_is_never_an_answer() {
    for dialect in DIALECTS {
        let met = meet(dialect, vec![Script::html(200)]).await;
        assert_eq!(
            (met.picture, met.chats),
            (failed("BadStream", ""), 1),
            "{dialect:?}"
        );
        assert!(
            !met.failure.message.contains('<'),
            "{}",
            met.failure.message
        );

        let met = meet(dialect, vec![Script::html(502); 3]).await;
        assert_eq!(
            (met.picture, met.chats),
            (failed("ProviderError", ""), 3),
            "{dialect:?}"
        );
        assert!(
            !met.failure.message.contains('<'),
            "{}",
            met.failure.message
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_model_is_named() {
    for dialect in DIALECTS {
        let met = meet(dialect, vec![Script::unknown_model(dialect, MODEL)]).await;
        assert_eq!(
            (met.picture, met.chats),
            (failed("ModelNotFound", ""), 1),
            "{dialect:?}"
        );
        assert!(
            met.failure.message.contains(MODEL),
            "{}",
            met.failure.message
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_told_in_the_servers_own_words() {
    for dialect in DIALECTS {
        for (status, code) in [
            (400, "BadRequest"),
            (401, "KeyRejected"),
            (403, "KeyRejected"),
        ] {
            let words = "the quince is not ripe";
            let met = meet(dialect, vec![Script::error(dialect, status, words)]).await;
            assert_eq!(
                (met.picture, met.chats),
                (failed(code, ""), 1),
                "{dialect:?} {status}"
            );
            let told = format!("{} {:?}", met.failure.message, met.failure.detail);
            assert!(told.contains(words), "{dialect:?} {status}: {told}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_ends_before_any_content_is_tried_again_and_then_named() {
    for dialect in DIALECTS {
        for cut in CUTS {
            for before in [None, Some(Answer::new(dialect).begins())] {
                let script = match before {
                    None => Script::hang_up(cut),
                    Some(answer) => answer.cut(cut),
                };
                let met = meet(dialect, vec![script; 3]).await;
                let expected = (failed("StreamCut", ""), 3);
                assert_eq!((met.picture, met.chats), expected, "{dialect:?} {cut:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_cut_keeps_its_text_and_is_not_tried_again() {
    for dialect in DIALECTS {
        for cut in CUTS {
            for pieces in [1, 3] {
                let server = ModelServer::start(dialect);
                let world = World::new().await;
                let answer = (0..pieces).fold(Answer::new(dialect), |answer, n| {
                    answer.says(&format!("piece {n} "))
                });
                server.script(answer.gate("cut").cut(cut));
                let session = world.begin(&server, "Hello?").await;
                let window = world
                    .page()
                    .await
                    .follow_with_witness(session, world.data_dir());
                // A reset may overtake what the client has not read; so it reads first.
                world
                    .flush_until(&window, &format!("piece {} ", pieces - 1))
                    .await;
                server.pass("cut").await;
                let said: String = (0..pieces).map(|n| format!("piece {n} ")).collect();
                assert_eq!(
                    window.until_idle().await,
                    failed("StreamCut", &said),
                    "{dialect:?} {cut:?} after {pieces}"
                );
                assert_eq!(server.counters().chats, 1);
                judge(&world, session, &[&window]).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_after_the_end_marker_changes_nothing() {
    for dialect in DIALECTS {
        for cut in CUTS {
            let server = ModelServer::start(dialect);
            let world = World::new().await;
            server.script(Answer::whole(dialect, "All of it.").but_ends(cut));
            let session = world.begin(&server, "Hello?").await;
            let window = world.page().await.follow(session);
            assert_eq!(
                window.until_idle().await,
                "you: Hello?\nmodel: All of it.\n(completed)\n",
                "{dialect:?} {cut:?}"
            );
            judge(&world, session, &[&window]).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_inside_the_stream_keeps_what_was_said() {
    for dialect in DIALECTS {
        let script = Answer::new(dialect)
            .says("So far ")
            .fails("the runner fell over");
        let met = meet(dialect, vec![script]).await;
        assert_eq!(
            (met.picture, met.chats),
            (failed("ProviderError", "So far "), 1),
            "{dialect:?}"
        );
        let told = format!("{} {:?}", met.failure.message, met.failure.detail);
        assert!(told.contains("the runner fell over"), "{dialect:?}: {told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_ends_well_and_says_nothing_is_empty() {
    for dialect in DIALECTS {
        for answer in [Answer::new(dialect), Answer::new(dialect).begins().pings()] {
            let met = meet(dialect, vec![answer.ends()]).await;
            assert_eq!(
                (met.picture, met.chats),
                (failed("EmptyResponse", ""), 1),
                "{dialect:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_before_the_first_event_is_not_silence_after_it() {
    for dialect in DIALECTS {
        let silent = || Answer::new(dialect).goes_silent();
        let in_mid_answer = Answer::new(dialect).says("Well, ").goes_silent();
        for (script, code, said) in [
            (silent(), "FirstTokenTimeout", ""),
            (
                silent().head_behind("the head never comes"),
                "FirstTokenTimeout",
                "",
            ),
            (in_mid_answer, "IdleTimeout", "Well, "),
        ] {
            let server = ModelServer::start(dialect);
            let world = World::new().await;
            let has_head = !script.waits_with_its_head();
            server.script(script);
            if has_head {
                world.gates.hold(Gate::HeadRead);
            }
            let session = world.begin(&server, "Hello?").await;
            let window = world.page().await.follow(session);
            let limit = match code {
                "IdleTimeout" => world.gap(),
                _ => world.first_event(),
            };
            // Headers begin the silence anew, so they come before it is measured.
            if has_head {
                world.gates.pass(Gate::HeadRead).await;
            }
            window.sees("you: Hello?").await;
            window.sees(said).await;
            world.clock.until_armed(limit).await;
            world.clock.advance(limit - Duration::from_millis(1));
            world.clock.until_armed(Duration::from_millis(1)).await;
            assert!(window.text().ends_with("(running)\n"), "{}", window.text());
            world.clock.advance(Duration::from_millis(1));
            let text = window.until_idle().await;
            assert_eq!(text, failed(code, said), "{dialect:?}");
            server
                .until("our socket to close", |counters| counters.closed_by_us == 1)
                .await;
            assert_eq!(
                server.counters().chats,
                1,
                "a model that loads is not asked twice"
            );
            judge(&world, session, &[&window]).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn any_byte_is_a_sign_of_life() {
    for dialect in DIALECTS {
        let server = ModelServer::start(dialect);
        let world = World::new().await;
        let answer = Answer::new(dialect)
            .says("Slow")
            .gate("1")
            .pings()
            .gate("2")
            .thinks("hm");
        server.script(answer.gate("3").says("ly.").ends());
        let session = world.begin(&server, "Hello?").await;
        let window = world.page().await.follow(session);
        window.sees("Slow").await;
        for gate in ["1", "2", "3"] {
            world.clock.until_armed(world.gap()).await;
            world.clock.advance(world.gap() - Duration::from_secs(1));
            server.pass(gate).await;
        }
        assert_eq!(
            window.until_idle().await,
            "you: Hello?\nmodel: Slow\nthinks: hm\nmodel: ly.\n(completed)\n",
            "{dialect:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_has_a_ceiling_that_names_itself() {
    for dialect in DIALECTS {
        let server = ModelServer::start(dialect);
        let mut world = World::without_engine();
        world.limits = TimeLimits {
            first_event_ms: 60_000,
            gap_ms: 60_000,
            ceiling_ms: 90_000,
            ..world.limits
        };
        world.open().await;
        let answer = Answer::new(dialect).says("On and on").gate("later");
        server.script(answer.pings().goes_silent());
        let session = world.begin(&server, "Hello?").await;
        let window = world.page().await.follow(session);
        window.sees("On and on").await;
        world.clock.until_armed(world.gap()).await;
        // A sign of life restarts the silence, and not the whole.
        let before = world.gap() - Duration::from_secs(1);
        world.clock.advance(before);
        server.pass("later").await;
        world.clock.until_armed(world.gap()).await;
        world.clock.advance(world.ceiling() - before);
        assert_eq!(
            window.until_idle().await,
            failed("TurnTimeout", "On and on"),
            "{dialect:?}"
        );
        server
            .until("our socket to close", |counters| counters.closed_by_us == 1)
            .await;
        judge(&world, session, &[&window]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_asks_to_wait_is_given_the_time_and_the_wait_is_shown() {
    for dialect in DIALECTS {
        let server = ModelServer::start(dialect);
        let world = World::new().await;
        server.script(Script::error(dialect, 429, "slow down").header("Retry-After", "30"));
        server.script(Answer::whole(dialect, "Now."));
        let session = world.begin(&server, "Hello?").await;
        let window = world.page().await.follow(session);
        let shown = window
            .until_status("the wait to be shown", |status| {
                matches!(status.phase, Phase::Retrying { .. })
            })
            .await;
        let Phase::Retrying {
            until, attempt: 2, ..
        } = shown.phase
        else {
            panic!("{shown:?}")
        };
        let wait = until.millis_since(shown.since);
        assert!((30_000..31_000).contains(&wait), "{wait} ms");
        world.clock.until_armed(Duration::from_millis(wait)).await;
        world.clock.advance(Duration::from_millis(wait - 1));
        world.clock.until_armed(Duration::from_millis(1)).await;
        assert_eq!(server.counters().chats, 1, "not before the time");
        world.clock.advance(Duration::from_millis(1));
        assert_eq!(
            window.until_idle().await,
            "you: Hello?\nmodel: Now.\n(completed)\n",
            "{dialect:?}"
        );
        assert_eq!(server.counters().chats, 2);
        judge(&world, session, &[&window]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_of_hours_is_told_and_not_waited() {
    for dialect in DIALECTS {
        let script = Script::error(dialect, 429, "come back tomorrow");
        let met = meet(dialect, vec![script.header("Retry-After", "18000")]).await;
        assert_eq!(
            (met.picture, met.chats),
            (failed("RateLimited", ""), 1),
            "{dialect:?}"
        );
        assert!(met.failure.retry_at.is_some(), "{:?}", met.failure);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_failed_before_content_stays_in_the_log() {
    for dialect in DIALECTS {
        let server = ModelServer::start(dialect);
        let world = World::new().await;
        server.script(Script::error(dialect, 503, "busy"));
        server.script(Answer::whole(dialect, "There."));
        let session = world.begin(&server, "Hello?").await;
        let window = world.page().await.follow(session);
        world.pass_the_wait(&window, 2).await;
        assert_eq!(
            window.until_idle().await,
            "you: Hello?\nmodel: There.\n(completed)\n"
        );
        let attempts: Vec<_> = world
            .events(session)
            .into_iter()
            .filter_map(|event| match event.body {
                EventBody::StepStarted { step, attempt, .. } => Some((step, attempt, "started")),
                EventBody::AttemptFailed { step, attempt, .. } => Some((step, attempt, "failed")),
                EventBody::StepEnded { step, .. } => Some((step, 0, "ended")),
                _ => None,
            })
            .collect();
        let expected = [
            (1, 1, "started"),
            (1, 1, "failed"),
            (1, 2, "started"),
            (1, 0, "ended"),
        ];
        assert_eq!(attempts, expected, "{dialect:?}");
    }
}
