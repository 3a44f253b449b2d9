//! Turns that are ended from outside: by Stop, the ceiling, closing Holdfast, a log that takes nothing any more, and the
//! provider's silence; in each phase of the turn.

use std::time::Duration;

use engine::{Fault, WriteStep, gate::Gate};
use protocol::{Dialect, Op, Phase, SessionId, TurnId};
use serde_json::json;
use tests::{
    model_server::{ALL_DIALECTS, Answer, ModelServer, Script},
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
            Cause::Stop | Cause::Ceiling | Cause::Quit | Cause::StorageFailed => {
                Some("(completed)")
            }
            Cause::Silence => None,
        };
    }
    match (cause, when) {
        (Cause::Stop, _) => Some("(stopped)"),
        // The user's time is not the turn's.
        (Cause::Ceiling, When::AtAQuestion) => Some("(running)"),
        (Cause::Ceiling, _) => Some("(failed: TurnTimeout)"),
        (Cause::Quit, _) => Some("(interrupted: AppExit)"),
        // Nobody wants to write until the user says something, and that end is kept until it can be written.
        (Cause::StorageFailed, When::AtAQuestion) => Some("(stopped)"),
        (Cause::StorageFailed, _) => Some("(interrupted: StorageFailed)"),
        (Cause::Silence, When::Loading | When::BeforeTheFirstWord) => {
            Some("(failed: FirstTokenTimeout)")
        }
        (Cause::Silence, When::InMidText) => Some("(failed: IdleTimeout)"),
        (Cause::Silence, _) => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_is_ended_from_outside_ends_as_its_cause_says_in_every_phase() {
    for dialect in ALL_DIALECTS {
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
        When::Loading => {
            let late = answer.says("Late ").goes_silent();
            late.head_behind("the head never comes")
        }
        When::BeforeTheFirstWord => answer.stirs().gate("more").says("more ").goes_silent(),
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
        options: protocol::ModelOptions::default(),
        images: Vec::new(),
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
        // From now on the log takes no event, as on a full disk.
        Cause::StorageFailed => {
            let faults = &set.world.faults;
            faults.fail_writes_from(1, WriteStep::Commit, Fault::Full);
            want_to_write(&set, when).await;
        }
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
        set.world.faults.heal();
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

/// Lets the turn come to where it wants to write something.
async fn want_to_write(set: &Set, when: When) {
    match when {
        When::Loading => set.server.release("the head never comes"),
        When::BeforeTheFirstWord | When::InMidText => set.server.pass("more").await,
        When::BetweenAttempts => set.world.pass_the_wait(&set.window, 2).await,
        When::AtAQuestion => set.world.stop(set.session, TurnId::FIRST).await,
        // They write when they are let go.
        When::InMidTool | When::AfterTheEnd => {}
    }
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
