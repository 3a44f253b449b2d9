//! Turns that are ended from outside: by Stop, the ceiling, closing Holdfast, a log that takes nothing any more, and the
//! provider's silence; in each phase of the turn.

use std::time::Duration;

use engine::gate::Gate;
use protocol::{Dialect, Op, Phase, SessionId, TurnId};
use serde_json::json;
use tests::{
    model_server::{Answer, DIALECTS, ModelServer, Script},
    seeded::DATABASE,
    sentinel::random_u128,
    world::World,
};

use super::{Set, last_turn};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// The request is out, and not even the head of the reply has come.
    Loading,
    /// The head of the reply has come, and a sign of life.
    BeforeTheFirstWord,
    InMidText,
    InMidTool,
    BetweenAttempts,
    AtAQuestion,
    /// The end marker has come; the end is not written yet.
    AfterTheEnd,
}

const PHASES: [When; 7] = [
    When::Loading,
    When::BeforeTheFirstWord,
    When::InMidText,
    When::InMidTool,
    When::BetweenAttempts,
    When::AtAQuestion,
    When::AfterTheEnd,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Stop,
    Ceiling,
    Quit,
    StorageFailed,
    Silence,
}

const CAUSES: [Cause; 5] = [
    Cause::Stop,
    Cause::Ceiling,
    Cause::Quit,
    Cause::StorageFailed,
    Cause::Silence,
];

/// How the turn must end; nothing where the cause cannot come up in that phase.
fn expected(when: When, cause: Cause) -> Option<&'static str> {
    if when == When::AfterTheEnd {
        return match cause {
            Cause::Stop | Cause::Ceiling | Cause::Quit => Some("(completed)"),
            Cause::StorageFailed | Cause::Silence => None,
        };
    }
    match (cause, when) {
        (Cause::Stop, _) => Some("(stopped)"),
        // The user's time is not the turn's.
        (Cause::Ceiling, When::AtAQuestion) => Some("(running)"),
        (Cause::Ceiling, _) => Some("(failed: TurnTimeout)"),
        (Cause::Quit, _) => Some("(interrupted: AppExit)"),
        // Somebody has to want to write.
        (Cause::StorageFailed, When::InMidText | When::InMidTool) => {
            Some("(interrupted: StorageFailed)")
        }
        (Cause::StorageFailed, _) => None,
        (Cause::Silence, When::Loading | When::BeforeTheFirstWord) => {
            Some("(failed: FirstTokenTimeout)")
        }
        (Cause::Silence, When::InMidText) => Some("(failed: IdleTimeout)"),
        (Cause::Silence, _) => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_is_ended_from_outside_ends_as_its_cause_says_in_every_phase() {
    for dialect in DIALECTS {
        for when in PHASES {
            for cause in CAUSES {
                let Some(expected) = expected(when, cause) else {
                    continue;
                };
                let cell = format!("{dialect:?}, {when:?}, {cause:?}");
                println!("{cell}");
                let set = bring_to(dialect, when).await;
                let met = end_by(set, when, cause).await;
                assert!(met.contains(expected), "{cell}: {met}");
            }
        }
    }
}

/// A turn in that phase.
async fn bring_to(dialect: Dialect, when: When) -> Set {
    let server = ModelServer::start(dialect);
    let world = World::new().await;
    let answer = Answer::new(dialect);
    let folder = world.data_dir().join("files");
    std::fs::create_dir(&folder).expect("a fresh folder");
    server.script(match when {
        When::Loading => answer.goes_silent().head_behind("the head never comes"),
        When::BeforeTheFirstWord => answer.stirs().goes_silent(),
        When::InMidText => answer
            .says("Half ")
            .gate("more")
            .says("more ")
            .goes_silent(),
        When::InMidTool => answer.calls("current_time", json!({})).ends(),
        When::BetweenAttempts => Script::error(dialect, 503, "busy"),
        When::AtAQuestion => {
            let arguments = json!({ "path": "a.txt", "content": "hello" });
            answer.calls("write_file", arguments).ends()
        }
        When::AfterTheEnd => answer.says("All of it.").ends(),
    });
    let gate = match when {
        When::BeforeTheFirstWord => Some(Gate::Decoding),
        When::InMidTool => Some(Gate::ToolRunning),
        When::AfterTheEnd => Some(Gate::BeforeTerminal),
        When::Loading | When::InMidText | When::BetweenAttempts | When::AtAQuestion => None,
    };
    if let Some(gate) = gate {
        world.gates.hold(gate);
    }
    world.add(server.provider()).await;
    let session = SessionId::from_bits(random_u128());
    let begin = Op::StartSession {
        session,
        model: server.model(),
        text: "Hello?".to_owned(),
        folder: Some(folder.display().to_string()),
    };
    world.submit(begin).await.expect("it begins");
    let window = world.page().await.follow(session);
    let phase = |wanted: fn(&Phase) -> bool| {
        window.until_status("the phase", move |status| wanted(&status.phase))
    };
    match when {
        When::Loading => {
            server.arrived("the head never comes").await;
        }
        When::BeforeTheFirstWord => {
            world.gates.pass(Gate::Decoding).await;
            world.clock.until_armed(world.first_event()).await;
        }
        When::InMidText => {
            window.sees("Half ").await;
            server.arrived("more").await;
        }
        When::InMidTool => world.gates.arrived(Gate::ToolRunning).await,
        When::BetweenAttempts => {
            phase(|phase| matches!(phase, Phase::Retrying { .. })).await;
        }
        When::AtAQuestion => {
            phase(|phase| matches!(phase, Phase::Asking { .. })).await;
        }
        When::AfterTheEnd => world.gates.arrived(Gate::BeforeTerminal).await,
    }
    Set {
        world,
        server,
        session,
        window,
    }
}

/// Ends it, and says how it ended.
async fn end_by(mut set: Set, when: When, cause: Cause) -> String {
    let first = TurnId::FIRST;
    match cause {
        Cause::Stop => set.world.stop(set.session, first).await,
        Cause::Ceiling => set.world.clock.advance(set.world.ceiling()),
        Cause::Quit => {
            // The engine may wait for what stands at a gate; so it is let go when it was told.
            let release = |set: &Set| match when {
                When::AfterTheEnd => set.world.gates.release(Gate::BeforeTerminal),
                When::InMidTool => set.world.gates.release(Gate::ToolRunning),
                _ => {}
            };
            release(&set);
            set.world.quit().await;
            set.server.release_all();
            let stored = set
                .world
                .reader()
                .transcript(set.session)
                .expect("it can be read");
            sockets_are_closed(&set, when).await;
            return tests::picture::turns(&stored.turns);
        }
        Cause::StorageFailed => refuse_writes(&set.world),
        Cause::Silence => {
            let limit = match when {
                When::InMidText => set.world.gap(),
                _ => set.world.first_event(),
            };
            set.world.clock.until_armed(limit).await;
            set.world.clock.advance(limit);
        }
    }
    match when {
        When::InMidTool => set.world.gates.release(Gate::ToolRunning),
        When::AfterTheEnd => set.world.gates.release(Gate::BeforeTerminal),
        When::InMidText if cause == Cause::StorageFailed => set.server.pass("more").await,
        _ => {}
    }
    if cause == Cause::StorageFailed {
        let not_saving =
            |status: &protocol::Status| matches!(status.phase, Phase::NotSaving { .. });
        let told = set.window.until_status("the session to say so", not_saving);
        tokio::select! {
            _ = told => {}
            () = async { loop { set.world.flush_text().await; } } => unreachable!("it waits"),
        }
        allow_writes(&set.world);
        // The end is kept and tried again, unless the log was mended before its first try.
        let again = Duration::from_secs(5);
        tokio::select! {
            _ = set.window.until_idle() => {}
            () = set.world.clock.until_armed(again) => set.world.clock.advance(again),
        }
    }
    if when == When::AtAQuestion && cause == Cause::Ceiling {
        let still = last_turn(&set.window);
        set.world.stop(set.session, first).await;
        set.end().await;
        return still;
    }
    let met = set.end().await;
    set.server.release_all();
    sockets_are_closed(&set, when).await;
    met
}

/// Every connection has ended, and where the provider had not, we have.
async fn sockets_are_closed(set: &Set, when: When) {
    let now = set
        .server
        .until("every connection to end", |now| now.open == 0)
        .await;
    let by_us = match when {
        When::Loading | When::BeforeTheFirstWord | When::InMidText => 1,
        When::InMidTool | When::BetweenAttempts | When::AtAQuestion | When::AfterTheEnd => 0,
    };
    assert_eq!((now.chats, now.closed_by_us), (1, by_us), "{when:?}");
}

/// From now on the log takes no event, as on a full disk.
fn refuse_writes(world: &World) {
    let db = rusqlite::Connection::open(world.data_dir().join(DATABASE)).expect("it opens");
    db.busy_timeout(Duration::from_secs(10)).expect("it waits");
    db.execute_batch(
        "CREATE TRIGGER full BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'the disk is full'); END",
    )
    .expect("a trigger");
}

fn allow_writes(world: &World) {
    let db = rusqlite::Connection::open(world.data_dir().join(DATABASE)).expect("it opens");
    db.busy_timeout(Duration::from_secs(10)).expect("it waits");
    db.execute_batch("DROP TRIGGER full").expect("no trigger");
}
