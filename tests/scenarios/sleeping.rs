//! The computer sleeps while a turn runs: no limit counts it, what survived goes on, and what did not is named.
//!
//! On two kinds of machines: one whose monotonic clock stands still meanwhile (Linux, macOS), and one whose goes on
//! (Windows), where the sleep shows only in nobody having looked for so long.

use std::time::Duration;

use protocol::{
    Answer as Word, Counted, Dialect, EventBody, Failure, FailureCode, Op, Phase, SessionId,
    TurnId, TurnOutcome,
};
use serde_json::json;
use tests::{
    client::Client,
    model_server::{Answer, DIALECTS, Ending, ModelServer, Script},
    picture,
    verdict::judge,
    world::World,
};
use transcript::Transcript;

/// Longer than any limit of a turn.
const NIGHT: Duration = Duration::from_secs(9 * 60 * 60);

/// In which a dead connection has to be named, in time awake.
const NAMED_WITHIN: Duration = Duration::from_secs(30);

/// What is left of a limit; more than the moment around a sleep that may count as awake.
const NEARLY: Duration = Duration::from_secs(15);

/// What the monotonic clock does in a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Machine {
    Stands,
    GoesOn,
}

const MACHINES: [Machine; 2] = [Machine::Stands, Machine::GoesOn];

impl Machine {
    async fn world(self) -> World {
        let mut world = match self {
            Self::Stands => World::without_engine(),
            Self::GoesOn => World::without_engine_on_windows(),
        };
        world.open().await;
        world
    }

    /// Sleeps, and wakes.
    async fn sleeps(self, world: &World, time: Duration) {
        // What is before the sleep has been looked at.
        world.clock.until_looked_at().await;
        match self {
            Self::Stands => world.clock.fall_asleep(time),
            Self::GoesOn => world.clock.advance(time),
        }
        world.clock.until_looked_at().await;
    }

    /// Time passes while somebody looks.
    async fn works(self, world: &World, time: Duration) {
        match self {
            Self::Stands => world.clock.advance(time),
            Self::GoesOn => {
                let mut left = time;
                while !left.is_zero() {
                    let step = left.min(Duration::from_secs(5));
                    world.clock.advance(step);
                    world.clock.until_looked_at().await;
                    left -= step;
                }
            }
        }
    }
}

/// Waits until the transcript says how often the computer slept.
async fn sleeps_shown(window: &Client<Transcript>, times: usize) {
    window
        .until_shown(&format!("{times} sleeps"), |shown| {
            let turn = shown.turns().next_back()?;
            (turn.slept.len() == times).then_some(())
        })
        .await;
}

/// Waits until the engine has knocked at the server and gone away again.
async fn knocked(server: &ModelServer) {
    server
        .until("somebody to knock", |server| {
            server.dials == 2 && server.open == 1
        })
        .await;
}

fn outcome(window: &Client<Transcript>) -> TurnOutcome {
    let outcome = window.look(|shown| shown?.turns().next_back()?.outcome.clone());
    outcome.expect("it has ended")
}

fn failure(window: &Client<Transcript>) -> Failure {
    match outcome(window) {
        TurnOutcome::Failed { failure } => failure,
        other => panic!("{other:?}"),
    }
}

/// Lets the timers of knocks run until the turn has ended; how long that took.
async fn knocks_until_idle(world: &World, window: &Client<Transcript>) -> Duration {
    let knocks = async {
        let mut passed = Duration::ZERO;
        loop {
            let wait = world.clock.until_armed_within(Duration::from_secs(3)).await;
            passed += wait;
            assert!(passed <= NAMED_WITHIN, "still not named after {passed:?}");
            world.clock.advance(wait);
        }
    };
    let before = engine::clock::Clock::monotonic(&world.clock);
    tokio::select! {
        biased;
        _ = window.until_idle() => {}
        () = knocks => unreachable!("it waits for the end"),
    }
    engine::clock::Clock::monotonic(&world.clock).saturating_sub(before)
}

async fn counted(world: &World) -> u64 {
    let report = world.engine().health().await.expect("a report");
    let slept = report
        .counts
        .iter()
        .find(|(what, _)| *what == Counted::Slept);
    slept.expect("it is counted").1
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_outlives_a_night_goes_on_and_no_limit_counts_it() {
    for machine in MACHINES {
        for dialect in DIALECTS {
            let (server, world) = (ModelServer::start(dialect), machine.world().await);
            server.script(
                Answer::new(dialect)
                    .says("Half ")
                    .gate("morning")
                    .says("and half.")
                    .ends(),
            );
            let session = world.begin(&server, "Take your time.").await;
            let window = world.page().await.follow(session);
            window.sees("Half ").await;
            world.clock.until_armed(world.gap()).await;
            machine.sleeps(&world, NIGHT).await;
            sleeps_shown(&window, 1).await;
            knocked(&server).await;
            // Awake again for nearly as long as the model may be silent.
            machine.works(&world, world.gap() - NEARLY).await;
            server.pass("morning").await;
            world.flush_until(&window, "and half.").await;
            let text = window.until_idle().await;
            assert!(text.ends_with("(completed)\n"), "{machine:?}: {text}");
            let slept = window.look(|shown| shown?.turns().next_back()?.slept.first().copied());
            let slept = slept.expect("one sleep");
            let told = Duration::from_millis(slept.to.millis_since(slept.from));
            assert!(
                told <= NIGHT && told + Duration::from_secs(5) >= NIGHT,
                "{told:?}"
            );
            assert_eq!(counted(&world).await, 1);
            judge(&world, session, &[&window]).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_whose_server_is_gone_is_named_within_half_a_minute_of_waking() {
    for machine in MACHINES {
        for dialect in DIALECTS {
            let (server, world) = (ModelServer::start(dialect), machine.world().await);
            server.script(Answer::new(dialect).says("Half ").goes_silent());
            let session = world.begin(&server, "Take your time.").await;
            let window = world.page().await.follow(session);
            window.sees("Half ").await;
            world.clock.until_armed(world.gap()).await;
            server.refuse_connections().await;
            machine.sleeps(&world, NIGHT).await;
            sleeps_shown(&window, 1).await;
            let took = knocks_until_idle(&world, &window).await;
            assert!(took <= NAMED_WITHIN, "{machine:?}: {took:?}");
            let failure = failure(&window);
            assert_eq!(failure.code, FailureCode::StreamCut, "{machine:?}");
            let words = "The computer slept for 8 hours, and the connection to ";
            let words_too = "The computer slept for 9 hours, and the connection to ";
            assert!(
                failure.message.starts_with(words) || failure.message.starts_with(words_too),
                "{}",
                failure.message
            );
            assert!(failure.message.ends_with("did not survive it."));
            window.sees("model: Half ").await;
            server
                .until("our end to be closed", |server| server.closed_by_us == 1)
                .await;
            judge(&world, session, &[&window]).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_the_server_resets_after_the_sleep_says_that_it_was_the_sleep() {
    for machine in MACHINES {
        for ending in [Ending::Rst, Ending::Fin] {
            let dialect = Dialect::Ollama;
            let (server, world) = (ModelServer::start(dialect), machine.world().await);
            server.script(
                Answer::new(dialect)
                    .says("Half ")
                    .gate("morning")
                    .cut(ending),
            );
            let session = world.begin(&server, "Take your time.").await;
            let window = world.page().await.follow(session);
            window.sees("Half ").await;
            machine.sleeps(&world, NIGHT).await;
            server.pass("morning").await;
            window.until_idle().await;
            let failure = failure(&window);
            assert_eq!(failure.code, FailureCode::StreamCut);
            assert!(failure.message.contains("slept"), "{}", failure.message);
            sleeps_shown(&window, 1).await;
            judge(&world, session, &[&window]).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_still_loads_after_the_sleep_is_waited_for() {
    for machine in MACHINES {
        let dialect = Dialect::OpenAiChat;
        let (server, world) = (ModelServer::start(dialect), machine.world().await);
        server.script(
            Answer::new(dialect)
                .says("Here.")
                .ends()
                .head_behind("loaded"),
        );
        let session = world.begin(&server, "Hello?").await;
        let window = world.page().await.follow(session);
        server.arrived("loaded").await;
        world.clock.until_armed(world.first_event()).await;
        machine.sleeps(&world, NIGHT).await;
        sleeps_shown(&window, 1).await;
        knocked(&server).await;
        machine.works(&world, world.first_event() - NEARLY).await;
        server.pass("loaded").await;
        let text = window.until_idle().await;
        assert!(text.ends_with("model: Here.\n(completed)\n"), "{text}");
        assert_eq!(server.counters().chats, 1, "asked once");
        judge(&world, session, &[&window]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_somebody_sets_is_no_sleep_in_either_direction() {
    let dialect = Dialect::Ollama;
    for machine in MACHINES {
        let (server, world) = (ModelServer::start(dialect), machine.world().await);
        server.script(
            Answer::new(dialect)
                .says("Half ")
                .gate("on")
                .says("and half.")
                .ends(),
        );
        let session = world.begin(&server, "Take your time.").await;
        let window = world.page().await.follow(session);
        window.sees("Half ").await;
        for _ in 0..2 {
            world.clock.advance_wall(NIGHT);
            world.clock.until_looked_at().await;
            world.clock.set_wall_back(NIGHT * 2);
            world.clock.until_looked_at().await;
        }
        server.pass("on").await;
        world.flush_until(&window, "and half.").await;
        let text = window.until_idle().await;
        assert!(text.ends_with("(completed)\n"), "{machine:?}: {text}");
        assert_eq!(server.counters().dials, 1, "nobody knocked");
        assert_eq!(counted(&world).await, 0);
        let slept = |event: &protocol::Event| matches!(event.body, EventBody::ComputerSlept { .. });
        assert!(!world.events(session).iter().any(slept));
        judge(&world, session, &[&window]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_waits_through_the_night_and_so_does_its_turn() {
    for machine in MACHINES {
        let dialect = Dialect::Ollama;
        let (server, world) = (ModelServer::start(dialect), machine.world().await);
        let notes = tempfile::tempdir().expect("a folder");
        server.script(
            Answer::new(dialect)
                .calls("write_file", json!({"path": "a.md", "content": "a"}))
                .ends(),
        );
        server.script(Answer::whole(dialect, "Written."));
        let session = world.begin_in(&server, notes.path(), "Note it.").await;
        let window = world.page().await.follow(session);
        let status = window
            .until_status("the question", |status| {
                matches!(status.phase, Phase::Asking { .. })
            })
            .await;
        let Phase::Asking { item } = status.phase else {
            panic!("{status:?}")
        };
        machine.sleeps(&world, NIGHT).await;
        sleeps_shown(&window, 1).await;
        let answer = Op::AnswerApproval {
            session,
            turn: TurnId::FIRST,
            item,
            answer: Word::AllowOnce,
        };
        world.submit(answer).await.expect("the word is taken");
        let text = window.until_idle().await;
        assert!(text.ends_with("model: Written.\n(completed)\n"), "{text}");
        judge(&world, session, &[&window]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_wait_before_another_attempt_goes_on_where_it_stood() {
    let dialect = Dialect::Ollama;
    let (server, world) = (ModelServer::start(dialect), World::new().await);
    server.script(Script::error(dialect, 429, "slow down").header("Retry-After", "30"));
    server.script(Answer::whole(dialect, "Here."));
    let session = world.begin(&server, "Hello?").await;
    let window = world.page().await.follow(session);
    let status = window
        .until_status("the wait", |status| {
            matches!(status.phase, Phase::Retrying { .. })
        })
        .await;
    let Phase::Retrying { until, .. } = status.phase else {
        panic!("{status:?}")
    };
    // Half a minute, and a little at random.
    let wait = Duration::from_millis(until.millis_since(status.since));
    world.clock.until_armed(wait).await;
    let half = Duration::from_secs(15);
    world.clock.advance(half);
    Machine::Stands.sleeps(&world, NIGHT).await;
    sleeps_shown(&window, 1).await;
    let left = wait - half;
    let now = engine::clock::Clock::wall(&world.clock);
    window
        .until_status("what is left of the wait", |status| match status.phase {
            Phase::Retrying { until, .. } => Duration::from_millis(until.millis_since(now)) == left,
            _ => false,
        })
        .await;
    assert_eq!(server.counters().chats, 1);
    world.clock.until_armed(left).await;
    world.clock.advance(left);
    let text = window.until_idle().await;
    assert!(text.ends_with("model: Here.\n(completed)\n"), "{text}");
    judge(&world, session, &[&window]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_did_not_survive_the_night_goes_on_at_a_word() {
    let dialect = Dialect::Ollama;
    let (server, world) = (ModelServer::start(dialect), World::new().await);
    server.script(
        Answer::new(dialect)
            .says("Half ")
            .gate("morning")
            .cut(Ending::Rst),
    );
    server.script(Answer::whole(dialect, "and half."));
    let session: SessionId = world.begin(&server, "Take your time.").await;
    let window = world.page().await.follow(session);
    window.sees("Half ").await;
    Machine::Stands.sleeps(&world, NIGHT).await;
    server.pass("morning").await;
    window.until_idle().await;
    let ended = picture::outcome(Some(&outcome(&window)));
    assert_eq!(ended, "failed: StreamCut");
    let expected_tip = window
        .look(|shown| shown?.tip())
        .expect("the end of a turn");
    let go_on = Op::ContinueTurn {
        session,
        turn: TurnId::FIRST,
        expected_tip,
    };
    world.submit(go_on).await.expect("it goes on");
    window.sees("and half.").await;
    let text = window.until_idle().await;
    assert!(text.ends_with("(completed)\n"), "{text}");
    judge(&world, session, &[&window]).await;
}
