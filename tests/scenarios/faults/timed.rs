//! Time: two limits due at once, and a model that is slow and not dead.

use std::{collections::BTreeMap, time::Duration};

use protocol::Dialect;
use tests::{
    model_server::{ALL_DIALECTS, Answer, ModelServer},
    picture,
    world::World,
};

use super::Set;

const SCHEDULES: usize = 1_000;

/// Turns that run beside each other, all due in the same tick.
const TURNS: usize = 50;

/// Which limit is due first, and by how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Ceiling,
    Both,
    Provider,
}

/// `ceiling-vs-provider`. Mutant: `TerminalInSelect`.
#[tokio::test(flavor = "multi_thread")]
async fn the_ceiling_and_the_provider_due_at_once_give_one_outcome_in_a_thousand_schedules() {
    let mut met: BTreeMap<Due, BTreeMap<String, usize>> = BTreeMap::new();
    for round in 0..SCHEDULES / TURNS {
        let due = [Due::Both, Due::Ceiling, Due::Both, Due::Provider][round % 4];
        for outcome in all_due(due).await {
            *met.entry(due).or_default().entry(outcome).or_default() += 1;
        }
    }
    let outcomes: Vec<_> = met
        .iter()
        .map(|(due, met)| (*due, met.keys().map(String::as_str).collect::<Vec<_>>()))
        .collect();
    let expected = [
        (Due::Ceiling, vec!["failed: TurnTimeout"]),
        (Due::Both, vec!["failed: TurnTimeout"]),
        (Due::Provider, vec!["failed: IdleTimeout"]),
    ];
    assert_eq!(outcomes, expected, "{met:#?}");
}

/// Turns whose ceiling and whose provider's silence end at nearly the same time.
async fn all_due(due: Due) -> Vec<String> {
    let server = ModelServer::start(Dialect::Ollama);
    let mut world = World::without_engine();
    world.limits.ceiling_ms = world.limits.first_event_ms + 1_000;
    world.limits.gap_ms = world.limits.first_event_ms;
    world.open().await;
    world.add(server.provider()).await;
    let page = world.page().await;
    let mut windows = Vec::new();
    for turn in 0..TURNS {
        let gate = turn.to_string();
        let answer = Answer::new(Dialect::Ollama).gate(&gate).says("On and on");
        server.script(answer.goes_silent());
        let session = world.begin_with(server.model(), "Go on.").await;
        server.arrived(&gate).await;
        windows.push(page.follow(session));
    }
    // Between the start of the turns and their text.
    let text_at = Duration::from_millis(match due {
        Due::Ceiling => 1_001,
        Due::Both => 1_000,
        Due::Provider => 999,
    });
    let (ceiling, gap) = (world.ceiling(), world.gap());
    world
        .clock
        .until_armed_between(ceiling, ceiling, TURNS)
        .await;
    world.clock.advance(text_at);
    for (turn, window) in windows.iter().enumerate() {
        server.release(&turn.to_string());
        window.sees("On and on").await;
    }
    world.clock.until_armed_between(gap, gap, TURNS).await;
    world.clock.advance(match due {
        Due::Ceiling | Due::Both => ceiling - text_at,
        Due::Provider => gap,
    });
    let mut outcomes = Vec::new();
    for window in windows {
        window.until_idle().await;
        outcomes.push(window.look(|shown| {
            let turn = shown.and_then(|shown| shown.turns().next_back());
            picture::outcome(turn.and_then(|turn| turn.outcome.as_ref()))
        }));
    }
    outcomes
}

#[tokio::test(flavor = "multi_thread")]
async fn a_word_just_inside_the_gap_for_two_hours_is_slow_and_one_just_outside_is_not() {
    for dialect in ALL_DIALECTS {
        let mut world = World::without_engine();
        world.limits.ceiling_ms = 3 * 60 * 60 * 1_000;
        world.open().await;
        let second = Duration::from_secs(1);
        let words = 2 * 60 * 60 / (world.gap() - second).as_secs() + 1;
        let server = ModelServer::start(dialect);
        let answer = (0..words).fold(Answer::new(dialect).says("So "), |answer, n| {
            answer.gate(&n.to_string()).says(&format!("word{n} "))
        });
        server.script(answer.gate("end").ends());
        server.script(
            Answer::new(dialect)
                .says("And then ")
                .gate("late")
                .says("nothing.")
                .ends(),
        );
        let session = world.begin(&server, "Take your time.").await;
        let window = world.page().await.follow(session);
        window.sees("So ").await;
        // A flush may have moved the clock by two frames since the silence began.
        let (gap, frames) = (world.gap(), Duration::from_millis(66));
        for n in 0..words {
            world.clock.until_armed_between(gap - frames, gap, 1).await;
            world.clock.advance(gap - second);
            server.pass(&n.to_string()).await;
            world.flush_until(&window, &format!("word{n} ")).await;
        }
        world.clock.until_armed_between(gap - frames, gap, 1).await;
        server.pass("end").await;
        let set = Set {
            world,
            server,
            session,
            window,
        };
        assert!(set.end().await.ends_with("(completed)\n"), "{dialect:?}");
        assert_eq!(set.server.counters().chats, 1, "{dialect:?}: asked once");

        set.world.say(session, "And then?").await;
        set.window.sees("And then ").await;
        set.world.clock.until_armed(gap).await;
        set.world.clock.advance(set.world.gap() + second);
        assert_eq!(
            set.end().await,
            "model: And then \n(failed: IdleTimeout)\n",
            "{dialect:?}"
        );
    }
}
