//! Random turns: random answers of two servers, questions answered at random or not at all, Stops, cut connections,
//! retries, closed windows, restarts, SIGKILL; through the whole engine, judged by the laws of the log after each.
//!
//! The same seed tells the same story as far as the machine's threads allow; the seed of a failure is printed.

use std::path::Path;

use engine::gate::Gate;
use protocol::{Answer as Word, Dialect, ErrorCode, ItemId, Op, Phase, SessionId, Status, TurnId};
use serde_json::json;
use tests::{
    backend::Missed,
    child::Held,
    client::{Client, Page},
    dice::Dice,
    kept_log,
    model_server::{ALL_DIALECTS, Answer, Ending, ModelServer, Script},
    verdict::judge,
    world::World,
};
use transcript::Transcript;

const SEEDS: u64 = 14;
const TURNS: u64 = 6;

const CHILD: &str = env!("CARGO_BIN_EXE_engine_child");

#[tokio::test(flavor = "multi_thread")]
async fn random_turns_keep_the_laws_of_the_log_whatever_happens_to_them() {
    kept_log::differs("how far a turn has come when it is stopped is a matter of time");
    for seed in 1..=SEEDS {
        println!("seed {seed}");
        let told = tell(Dice::new(seed)).await;
        println!("{told}");
    }
}

/// A conversation that anything may happen to; gives what it came to.
async fn tell(mut dice: Dice) -> String {
    let dialect = dice.one_of(&ALL_DIALECTS);
    let server = ModelServer::start(dialect);
    let mut world = World::without_engine();
    // Time jumps from timer to timer here, and a connection on loopback is not what takes long.
    world.limits.connect_ms = 50 * 60 * 1_000;
    world.open().await;
    let other = ModelServer::start(dice.one_of(&ALL_DIALECTS));
    world.add(other.provider()).await;
    let models = vec![other.model()];
    let chosen = world.submit(Op::ChooseFallbacks { models }).await;
    chosen.expect("chosen");
    let files = tempfile::tempdir().expect("a folder");
    server.script(Answer::whole(dialect, "Hello."));
    let session = world.begin_in(&server, files.path(), "Hello?").await;
    let mut window = world
        .page()
        .await
        .follow_with_witness(session, world.data_dir());
    window.until_idle().await;
    for _ in 0..TURNS {
        for server in [&server, &other] {
            answers(&mut dice, server.dialect())
                .into_iter()
                .for_each(|script| server.script(script));
        }
        let patience = dice.between(0, 12);
        let happens = dice.below(8);
        if happens == 0 {
            window.no_contradictions();
            world.quit().await;
            a_life_cut_short(&mut dice, &world, session, patience).await;
            world.open().await;
            window = follow(&world, session).await;
            window.until_idle().await;
        } else {
            let turn = world.say(session, "And now?").await;
            began(&window, turn).await;
            match happens {
                1 => stop_after(&mut dice, &world, &window, session, patience).await,
                2 => {
                    window.no_contradictions();
                    window = follow(&world, session).await;
                    began(&window, turn).await;
                    to_the_end(&mut dice, &world, &window, session).await;
                }
                3 => {
                    pass_some(&window, patience).await;
                    world.restart().await;
                    window = follow(&world, session).await;
                    began(&window, turn).await;
                    to_the_end(&mut dice, &world, &window, session).await;
                }
                _ => to_the_end(&mut dice, &world, &window, session).await,
            }
        }
        server.forget_scripts();
        other.forget_scripts();
        judge(&world, session, &[&window]).await;
    }
    let text = window.text();
    world.quit().await;
    text
}

/// A fresh page in the main window.
async fn follow(world: &World, session: SessionId) -> Client<Transcript> {
    let page = Page::load(&world.line, "main").await;
    page.follow_with_witness(session, world.data_dir())
}

/// A turn in a process of its own, which is killed in the middle of it, or after it.
async fn a_life_cut_short(dice: &mut Dice, world: &World, session: SessionId, patience: u64) {
    let gate = match dice.below(8) {
        0 | 1 => None,
        2 => Some((Gate::BeforeDial, dice.between(1, 2))),
        3 => Some((Gate::TextCommitted, dice.between(1, 3))),
        4 => Some((Gate::CallCommitted, 1)),
        5 => Some((Gate::ToolRunning, 1)),
        6 => Some((Gate::BeforeTerminal, 1)),
        _ => Some((Gate::Deciding, dice.between(1, 30))),
    };
    let held = Held {
        gate,
        ..Held::default()
    };
    let child = world.spawn_held(Path::new(CHILD), held).await;
    let window = follow(world, session).await;
    let life = async {
        let turn = world.say(session, "And now?").await;
        began(&window, turn).await;
        pass_some(&window, patience).await;
    };
    tokio::select! {
        biased;
        () = child.stands() => {}
        () = life => {}
    }
    child.kill().await;
    world.line.cut();
}

/// What the server does with the next turn, as many requests as it may take.
fn answers(dice: &mut Dice, dialect: Dialect) -> Vec<Script> {
    let mut scripts = Vec::new();
    // As many attempts and steps as a turn may take from here.
    for _ in 0..8 {
        if dice.once_in(6) {
            scripts.push(Script::error(dialect, 503, "busy"));
            continue;
        }
        let words = dice.below(12);
        let answer = (0..words).fold(Answer::new(dialect), |answer, n| match dice.below(6) {
            0 => answer.thinks(&format!("hm{n} ")),
            1 => answer.pings(),
            _ => answer.says(&format!("word{n} ")),
        });
        scripts.push(match dice.below(13) {
            0 => answer.cut(Ending::Fin),
            1 => answer.cut(Ending::Rst),
            2 => answer.goes_silent(),
            3 => answer.fails("the runner fell over"),
            4 => answer
                .calls("current_time", json!({ "n": dice.below(3) }))
                .ends(),
            5 => answer.calls("no_such_tool", json!({})).reaches_its_limit(),
            6..=10 => {
                let path = dice.one_of(&["a.md", "b.md"]);
                let content = format!("{}\n", dice.below(3));
                answer
                    .calls("write_file", json!({ "path": path, "content": content }))
                    .ends()
            }
            _ => answer.says("Done.").ends(),
        });
    }
    scripts.push(Answer::whole(dialect, "Enough."));
    scripts
}

fn question(status: &Status) -> Option<ItemId> {
    match status.phase {
        Phase::Asking { item } => Some(item),
        _ => None,
    }
}

/// Lets time pass until no turn runs: every wait, every silence. Questions are answered, or left open until a Stop.
async fn to_the_end(
    dice: &mut Dice,
    world: &World,
    window: &Client<Transcript>,
    session: SessionId,
) {
    let passes = async {
        loop {
            let connected = |status: &Status| !matches!(status.phase, Phase::Connecting { .. });
            let status = window.until_status("a connection", connected).await;
            if let Some(item) = question(&status) {
                answer(dice, world, window, session, item).await;
                window
                    .until_status("the answer to count", |status| {
                        question(status) != Some(item)
                    })
                    .await;
                continue;
            }
            tokio::select! {
                // While the user is asked, no time is measured.
                _ = window.until_status("a question", |status| question(status).is_some()) => {}
                () = world.clock.fire_next_within(world.first_event()) => {}
            }
            // Whoever was woken goes first: time that jumps from timer to timer is not what is tested here.
            for _ in 0..64 {
                tokio::task::yield_now().await;
            }
        }
    };
    tokio::select! {
        biased;
        _ = window.until_idle() => {}
        () = passes => unreachable!("time does not end"),
    }
}

/// Answers a question, or stops the turn it is asked in.
async fn answer(
    dice: &mut Dice,
    world: &World,
    window: &Client<Transcript>,
    session: SessionId,
    item: ItemId,
) {
    let running = window.look(|shown| shown.and_then(Transcript::running));
    let Some(turn) = running else {
        return;
    };
    let answer = match dice.below(7) {
        0..=2 => Word::AllowOnce,
        3 => Word::AllowForSession,
        4 | 5 => Word::Deny,
        _ => return world.stop(session, turn).await,
    };
    let op = Op::AnswerApproval {
        session,
        turn,
        item,
        answer,
    };
    match world.submit(op).await {
        Ok(_) => {}
        // The turn was stopped a moment ago.
        Err(Missed::Refused(report)) => assert!(
            matches!(report.code, ErrorCode::AlreadyResolved { .. }),
            "{report:?}"
        ),
        Err(Missed::Lost) => panic!("nobody answered"),
    }
}

/// Waits until a turn is drawn.
async fn began(window: &Client<Transcript>, turn: TurnId) {
    window
        .until_shown("the turn", |shown| shown.turn(turn).map(|_| ()))
        .await;
}

/// Waits until some of the turn is drawn, or its end.
async fn pass_some(window: &Client<Transcript>, bytes: u64) {
    let drawn = |shown: &Transcript| -> usize {
        shown
            .turns()
            .next_back()
            .map_or(0, |turn| tests::picture::turns([turn]).len())
    };
    let wanted = "you: And now?\n(running)\n".len() + usize::try_from(bytes).expect("few");
    let some =
        |shown: &Transcript| (drawn(shown) >= wanted || shown.running().is_none()).then_some(());
    tokio::select! {
        () = window.until_shown("some of the turn", some) => {}
        // A turn that says nothing at first waits for its next attempt, or for its model.
        _ = window.until_status("a wait", |status| {
            matches!(
                status.phase,
                Phase::Retrying { .. } | Phase::Waiting { .. } | Phase::Asking { .. } | Phase::Idle
            )
        }) => {}
    }
}

async fn stop_after(
    dice: &mut Dice,
    world: &World,
    window: &Client<Transcript>,
    session: SessionId,
    draws: u64,
) {
    pass_some(window, draws).await;
    let running = window.look(|shown| shown.and_then(Transcript::running));
    if let Some(turn) = running {
        world.stop(session, turn).await;
    }
    to_the_end(dice, world, window, session).await;
}
