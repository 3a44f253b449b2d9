//! Random turns: random answers, Stops, cut connections, retries, closed and killed windows, restarts; through the whole
//! engine, judged by the laws of the log after each life.
//!
//! The same seed tells the same story as far as the machine's threads allow; the seed of a failure is printed.

use protocol::{Dialect, Op, Phase, SessionId, TurnId};
use serde_json::json;
use tests::{
    client::{Client, Page},
    dice::Dice,
    model_server::{Answer, DIALECTS, Ending, ModelServer, Script},
    verdict::judge,
    world::World,
};
use transcript::Transcript;

const SEEDS: u64 = 24;
const TURNS: u64 = 6;

#[tokio::test(flavor = "multi_thread")]
async fn random_turns_keep_the_laws_of_the_log_whatever_happens_to_them() {
    for seed in 1..=SEEDS {
        println!("seed {seed}");
        let told = tell(Dice::new(seed)).await;
        println!("{told}");
    }
}

/// A conversation that anything may happen to; gives what it came to.
async fn tell(mut dice: Dice) -> String {
    let dialect = dice.one_of(&DIALECTS);
    let server = ModelServer::start(dialect);
    let mut world = World::without_engine();
    // Time jumps from timer to timer here, and a connection on loopback is not what takes long.
    world.limits.connect_ms = 50 * 60 * 1_000;
    world.open().await;
    server.script(Answer::whole(dialect, "Hello."));
    let session = world.begin(&server, "Hello?").await;
    let mut window = world
        .page()
        .await
        .follow_with_witness(session, world.data_dir());
    window.until_idle().await;
    for _ in 0..TURNS {
        answers(&mut dice, dialect)
            .into_iter()
            .for_each(|script| server.script(script));
        let text = "And now?".to_owned();
        let sent = world.submit(Op::SendMessage { session, text }).await;
        let turn = sent
            .expect("an idle session takes a message")
            .turn
            .expect("it starts a turn");
        began(&window, turn).await;
        let happens = dice.below(6);
        let patience = dice.between(0, 12);
        match happens {
            0 => stop_after(&world, &window, session, patience).await,
            1 => {
                window.no_contradictions();
                let page = Page::load(&world.line, "main").await;
                window = page.follow_with_witness(session, world.data_dir());
                began(&window, turn).await;
                to_the_end(&world, &window).await;
            }
            2 => {
                pass_some(&window, patience).await;
                world.restart().await;
                let page = Page::load(&world.line, "main").await;
                window = page.follow_with_witness(session, world.data_dir());
                began(&window, turn).await;
                to_the_end(&world, &window).await;
            }
            _ => to_the_end(&world, &window).await,
        }
        server.forget_scripts();
        judge(&world, session, &[&window]).await;
    }
    let text = window.text();
    world.quit().await;
    text
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
        scripts.push(match dice.below(8) {
            0 => answer.cut(Ending::Fin),
            1 => answer.cut(Ending::Rst),
            2 => answer.goes_silent(),
            3 => answer.fails("the runner fell over"),
            4 => answer
                .calls("current_time", json!({ "n": dice.below(3) }))
                .ends(),
            5 => answer.calls("no_such_tool", json!({})).reaches_its_limit(),
            _ => answer.says("Done.").ends(),
        });
    }
    scripts.push(Answer::whole(dialect, "Enough."));
    scripts
}

/// Lets time pass until no turn runs: every wait, every silence.
async fn to_the_end(world: &World, window: &Client<Transcript>) {
    let passes = async {
        loop {
            let connected =
                |status: &protocol::Status| !matches!(status.phase, Phase::Connecting { .. });
            window.until_status("a connection", connected).await;
            world.clock.fire_next_within(world.first_event()).await;
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
            matches!(status.phase, Phase::Retrying { .. } | Phase::Waiting { .. } | Phase::Idle)
        }) => {}
    }
}

async fn stop_after(world: &World, window: &Client<Transcript>, session: SessionId, draws: u64) {
    pass_some(window, draws).await;
    let running = window.look(|shown| shown.and_then(Transcript::running));
    if let Some(turn) = running {
        world.stop(session, turn).await;
    }
    to_the_end(world, window).await;
}
