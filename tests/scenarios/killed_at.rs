//! SIGKILL exactly there: at each named point of a turn, inside recovery, and at two hundred random points.
//!
//! Whatever the moment: every turn has exactly one end, every word that was drawn is there, and the next message is taken.

use std::path::Path;

use engine::gate::Gate;
use protocol::{Dialect, EventBody, Op, OpId, SessionId};
use serde_json::json;
use tests::{
    child::{Child, Held},
    client::Page,
    dice::Dice,
    model_server::{Answer, DIALECTS, Ending, ModelServer},
    picture,
    sentinel::random_u128,
    verdict::{judge, laws_hold},
    world::World,
};
const CHILD: &str = env!("CARGO_BIN_EXE_engine_child");

/// A folder with a conversation of one turn, whose engine is closed.
async fn a_conversation(dialect: Dialect) -> (World, ModelServer, SessionId) {
    let server = ModelServer::start(dialect);
    let mut world = World::new().await;
    server.script(Answer::whole(dialect, "Yes."));
    let session = world.begin(&server, "Are you there?").await;
    world.page().await.follow(session).until_idle().await;
    world.quit().await;
    (world, server, session)
}

const FIRST_TURN: &str = "you: Are you there?\nmodel: Yes.\n(completed)\n";

fn held_at(gate: Gate, visit: u64) -> Held {
    Held {
        gate: Some((gate, visit)),
        ..Held::default()
    }
}

/// A turn with text, a tool and text again.
fn script_a_turn(server: &ModelServer, ending: Ending) {
    let dialect = server.dialect();
    server.script(
        Answer::new(dialect)
            .says("Let me ")
            .says("look. ")
            .calls("current_time", json!({}))
            .ends(),
    );
    let second = Answer::new(dialect).says("It is ");
    server.script(match ending {
        Ending::Proper => second.says("nine.").ends(),
        Ending::Silence | Ending::Fin | Ending::Rst => second.cut(ending),
    });
}

fn message(session: SessionId, text: &str) -> Op {
    Op::message(session, text)
}

/// Sends a message to a child that never comes to answer it.
async fn send_into_the_gate(world: &World, child: &Child, op_id: OpId, op: Op) {
    tokio::select! {
        biased;
        () = child.stands() => {}
        // An answer that came is as good: the gate is still ahead.
        _ = world.line.submit(op_id, op) => child.stands().await,
    }
}

/// What was drawn is there, each line as far as it had come.
fn is_kept(drawn: &str, stored: &str) {
    let said = drawn.lines().filter(|line| !line.starts_with('('));
    for line in said.map(|line| line.split(" -> ").next().unwrap_or(line)) {
        let kept = stored.lines().any(|kept| kept.starts_with(line));
        assert!(kept, "{line:?} had been drawn, and now there is\n{stored}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_each_named_point_the_turn_has_one_end_and_nothing_drawn_is_lost() {
    tests::kept_log::differs(
        "what the other threads had done when it was killed is a matter of time",
    );
    let interrupted = |text: &str| Some(format!("you: And now?\n{text}(interrupted: Crash)\n"));
    let called = "model: Let me look. \ntool: current_time {} -> ";
    let points = [
        (Gate::OpHalfWritten, 1, Some(String::new())),
        (Gate::Committing, 1, Some(String::new())),
        (Gate::MessageCommitted, 1, interrupted("")),
        (Gate::BeforeDial, 1, interrupted("")),
        (Gate::Decoding, 1, interrupted("")),
        (Gate::Deciding, 1, interrupted("")),
        (Gate::TextCommitted, 1, interrupted("model: Let me \n")),
        (
            Gate::CallCommitted,
            1,
            interrupted(&format!("{called}abandoned, effect none\n")),
        ),
        (
            Gate::ToolRunning,
            1,
            interrupted(&format!("{called}abandoned, effect unknown\n")),
        ),
        (
            Gate::TextCommitted,
            3,
            None, // The tool's result tells the time.
        ),
        (Gate::BeforeTerminal, 1, None),
        (Gate::AfterTerminal, 1, None),
    ];
    for dialect in DIALECTS {
        for (gate, visit, expected) in points.clone() {
            let (mut world, server, session) = a_conversation(dialect).await;
            let child = world
                .spawn_held(Path::new(CHILD), held_at(gate, visit))
                .await;
            // An answer that ends at once may let its text go with its end.
            let ending = if gate == Gate::TextCommitted {
                Ending::Silence
            } else {
                Ending::Proper
            };
            script_a_turn(&server, ending);
            let window = Page::load(&world.line, "main")
                .await
                .follow_with_witness(session, world.data_dir());
            window.sees("(completed)").await;
            let (op_id, op) = (OpId::from_bits(random_u128()), message(session, "And now?"));
            send_into_the_gate(&world, &child, op_id, op.clone()).await;
            child.kill().await;
            world.line.cut();
            window.no_contradictions();
            server.forget_scripts();

            world.open().await;
            let stored = world.reader().transcript(session).unwrap();
            let text = picture::turns(&stored.turns);
            let told = format!("{dialect:?}, killed at {gate:?}, visit {visit}:\n{text}");
            for drawn in window.draws() {
                is_kept(&drawn, &text);
            }
            drop(window);
            match expected {
                Some(expected) => assert_eq!(text, format!("{FIRST_TURN}{expected}"), "{told}"),
                None if gate == Gate::AfterTerminal => {
                    assert!(text.ends_with("nine.\n(completed)\n"), "{told}");
                }
                None => {
                    assert!(text.contains(" -> 20"), "{told}");
                    assert!(text.ends_with("(interrupted: Crash)\n"), "{told}");
                }
            }

            // The same op once more, as a page does that never heard: it is in the log, or it runs now; never twice.
            let was_there = text.contains("you: And now?");
            if !was_there {
                script_a_turn(&server, Ending::Proper);
            }
            world
                .line
                .submit(op_id, op)
                .await
                .expect("the op is answered");
            let window = world.page().await.follow(session);
            let text = window.until_idle().await;
            assert_eq!(text.matches("you: And now?").count(), 1, "{told}");
            server.script(Answer::whole(dialect, "I am back."));
            world.say(session, "Are you back?").await;
            window.sees("I am back.").await;
            window.until_idle().await;
            judge(&world, session, &[&window]).await;
            world.quit().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_whose_end_nobody_saw_is_closed_with_an_unknown_effect_and_does_not_run_again() {
    let (mut world, server, session) = a_conversation(Dialect::Ollama).await;
    let child = world
        .spawn_held(Path::new(CHILD), held_at(Gate::ToolRunning, 1))
        .await;
    script_a_turn(&server, Ending::Proper);
    let op = message(session, "And now?");
    send_into_the_gate(&world, &child, OpId::from_bits(random_u128()), op).await;
    child.kill().await;
    world.line.cut();
    server.forget_scripts();
    let calls = |world: &World| -> Vec<&'static str> {
        let events = world.events(session);
        let kinds = events.iter().map(|event| event.body.kind());
        kinds.filter(|kind| kind.starts_with("ToolCall")).collect()
    };
    assert_eq!(
        calls(&world),
        ["ToolCallRequested", "ToolCallStarted"],
        "an orphan lies in the log"
    );
    world.open().await;
    let window = world.page().await.follow(session);
    let text = window.until_idle().await;
    assert!(
        text.ends_with("-> abandoned, effect unknown\n(interrupted: Crash)\n"),
        "{text}"
    );
    let orphan = ["ToolCallRequested", "ToolCallStarted", "ToolCallFinished"];
    assert_eq!(calls(&world), orphan, "nothing of it ran again");
    judge(&world, session, &[&window]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn recovery_that_is_killed_inside_itself_is_done_again_and_changes_nothing_twice() {
    let server = ModelServer::start(Dialect::Ollama);
    let mut world = World::without_engine();
    let child = world.spawn(Path::new(CHILD)).await;
    let mut sessions = Vec::new();
    world.add(server.provider()).await;
    for word in ["one", "two", "three"] {
        server.script(Answer::new(Dialect::Ollama).says(word).goes_silent());
        let session = world.begin_with(server.model(), "Hello?").await;
        let window = world.page().await.follow(session);
        window.sees(word).await;
        sessions.push(session);
    }
    child.kill().await;
    let ends = |world: &World| -> usize {
        let events = sessions.iter().flat_map(|session| world.events(*session));
        events
            .filter(|event| matches!(event.body, EventBody::TurnEnded { .. }))
            .count()
    };
    let mut found = vec![ends(&world)];
    for gate in [
        Gate::RecoveryHalfWritten,
        Gate::RecoveryOneClosed,
        Gate::RecoveryHalfWritten,
        Gate::RecoveryOneClosed,
    ] {
        let child = world.spawn_held(Path::new(CHILD), held_at(gate, 1)).await;
        child.stands().await;
        child.kill().await;
        found.push(ends(&world));
    }
    assert_eq!(found, [0, 0, 1, 1, 2], "ended turns after each kill");
    world.line.cut();
    for _ in 0..2 {
        world.open().await;
        assert_eq!(
            ends(&world),
            3,
            "each turn ended once, however often it is looked for"
        );
        for session in &sessions {
            let window = world.page().await.follow(*session);
            window.sees("(interrupted: Crash)").await;
            judge(&world, *session, &[&window]).await;
        }
        world.quit().await;
    }
}

/// Lives that one engine lives before its folder is opened for good.
const LIVES: u64 = 25;

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_two_hundred_random_points_nothing_drawn_is_lost_and_every_turn_has_one_end() {
    tests::kept_log::differs(
        "what the other threads had done when it was killed is a matter of time",
    );
    let seeds = [[1, 2, 3, 4], [5, 6, 7, 8]];
    for together in seeds {
        let [one, two, three, four] = together.map(lives_that_are_cut_short);
        tokio::join!(one, two, three, four);
    }
}

async fn lives_that_are_cut_short(seed: u64) {
    let mut dice = Dice::new(seed);
    let dialect = dice.one_of(&DIALECTS);
    let (mut world, server, session) = a_conversation(dialect).await;
    for life in 1..=LIVES {
        let told = format!("seed {seed}, life {life}");
        println!(
            "{told}: {:?}",
            a_life(&mut dice, &world, &server, session).await
        );
        world.line.cut();
    }
    world.open().await;
    let window = world.page().await.follow(session);
    let text = window.until_idle().await;
    server.script(Answer::whole(dialect, "I am back."));
    world.say(session, "Are you back?").await;
    window.sees("I am back.").await;
    window.until_idle().await;
    while window.load_older().await > 0 {}
    judge(&world, session, &[&window]).await;
    println!("seed {seed}:\n{text}");
    world.quit().await;
}

/// When a life ends.
#[derive(Clone, Copy, Debug)]
enum Kill {
    At(Gate, u64),
    AfterBytes(usize),
}

fn a_moment(dice: &mut Dice) -> Kill {
    let (gate, last) = match dice.below(18) {
        0..=3 => return Kill::AfterBytes(usize::try_from(dice.below(400)).expect("few")),
        4 => (Gate::OpHalfWritten, 3),
        5 => (Gate::MessageCommitted, 1),
        6 => (Gate::BeforeDial, 2),
        7 => (Gate::Decoding, 12),
        8 | 9 => (Gate::Deciding, 60),
        10 => (Gate::TextCommitted, 4),
        11 => (Gate::CallCommitted, 1),
        12 => (Gate::ToolRunning, 1),
        13 | 14 => (Gate::Committing, 8),
        15 => (Gate::BeforeTerminal, 1),
        16 => (Gate::AfterTerminal, 1),
        _ => (Gate::RowsRead, 6),
    };
    Kill::At(gate, dice.between(1, last))
}

async fn a_life(dice: &mut Dice, world: &World, server: &ModelServer, session: SessionId) -> Kill {
    let kill = a_moment(dice);
    let held = match kill {
        Kill::At(gate, visit) => held_at(gate, visit),
        Kill::AfterBytes(_) => Held::default(),
    };
    let child = world.spawn_held(Path::new(CHILD), held).await;
    // The engine is open: what the life before left open is closed, and what had ended has kept its end.
    laws_hold(&world.events(session));
    random_turn(dice, server);
    let window = Page::load(&world.line, "main").await.follow(session);
    let op = message(session, "And now?");
    let bytes = match kill {
        Kill::At(..) => usize::MAX,
        Kill::AfterBytes(bytes) => bytes,
    };
    let whole_turn = async {
        let receipt = world.submit(op).await.expect("the message is taken");
        let turn = receipt.turn.expect("a message starts a turn");
        window
            .until_shown("the turn to end, or enough of it", |shown| {
                let view = shown.turn(turn)?;
                let drawn = picture::turns([view]).len();
                (view.outcome.is_some() || drawn >= bytes).then_some(())
            })
            .await;
    };
    tokio::select! {
        biased;
        () = child.stands() => {}
        () = whole_turn => {}
    }
    child.kill().await;
    server.forget_scripts();
    let stored = world.reader().transcript(session).unwrap();
    is_kept(&window.text(), &picture::turns(&stored.turns));
    kill
}

fn random_turn(dice: &mut Dice, server: &ModelServer) {
    let dialect = server.dialect();
    let mut speak = |answer: Answer| {
        let words = dice.between(1, 25);
        (0..words).fold(answer, |answer, n| match dice.below(8) {
            0 => answer.thinks(&format!("hm{n} ")),
            1 => answer.pings(),
            _ => answer.says(&format!("word{n} ")),
        })
    };
    let first = speak(Answer::new(dialect));
    let second = speak(Answer::new(dialect));
    if dice.once_in(2) {
        server.script(first.calls("current_time", json!({})).ends());
        server.script(second.ends());
    } else {
        server.script(first.ends());
    }
}
