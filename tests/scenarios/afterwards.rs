//! What comes after the end of a turn: nothing of it reaches the reader, the log or the next message.

use engine::gate::Gate;
use protocol::TurnId;
use serde_json::json;
use tests::{
    model_server::{ALL_DIALECTS, Answer, ModelServer},
    verdict::judge,
    world::World,
};

/// `late-chunk`. `KeepLateOutput` cannot be: a tool's output is its result and comes by one way, a set of tasks that the turn
/// owns and ends with; and the database takes one result for a call.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_tool_brings_after_its_turn_ended_is_drawn_and_stored_nowhere() {
    for dialect in ALL_DIALECTS {
        let (server, world) = (ModelServer::start(dialect), World::new().await);
        server.script(Answer::new(dialect).calls("current_time", json!({})).ends());
        world.gates.hold(Gate::ToolRunning);
        let session = world.begin(&server, "What time is it?").await;
        let window = world.page().await.follow(session);
        world.gates.arrived(Gate::ToolRunning).await;
        world.stop(session, TurnId::FIRST).await;
        let stopped = window.until_idle().await;
        let before = world.events(session);

        // The tool goes on in the middle of the next turn, which calls it too.
        server.script(Answer::new(dialect).calls("current_time", json!({})).ends());
        server.script(
            Answer::new(dialect)
                .says("It is ")
                .gate("end")
                .says("nine.")
                .ends(),
        );
        world.say(session, "Again?").await;
        window.sees("It is ").await;
        world.gates.release(Gate::ToolRunning);
        server.pass("end").await;
        let text = window.until_idle().await;
        let (_, second) = text.split_at(stopped.len());
        assert!(text.starts_with(&stopped), "{dialect:?}: {text}");
        assert_eq!(
            second,
            "you: Again?\n\
             tool: current_time {} -> 2026-03-01T09:00:00Z\n\
             model: It is nine.\n\
             (completed)\n",
            "{dialect:?}"
        );
        let events = world.events(session);
        assert_eq!(events[..before.len()], before, "{dialect:?}");
        judge(&world, session, &[&window]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_whose_fold_panics_stops_nothing_and_is_made_when_it_is_read() {
    let dialect = ALL_DIALECTS[0];
    let (server, world) = (ModelServer::start(dialect), World::new().await);
    server.script(Answer::whole(dialect, "Yes."));
    world.gates.panic_at(Gate::ViewFolding);
    let session = world.begin(&server, "Hello?").await;
    let window = world.page().await.follow(session);
    window.until_idle().await;
    world.gates.arrived(Gate::ViewFolding).await;
    judge(&world, session, &[&window]).await;
    server.script(Answer::whole(dialect, "Again."));
    world.say(session, "Still there?").await;
    window.sees("Again.").await;
    window.until_idle().await;
    judge(&world, session, &[&window]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_message_is_taken_while_the_view_of_the_last_turn_is_still_being_made() {
    let dialect = ALL_DIALECTS[0];
    let (server, world) = (ModelServer::start(dialect), World::new().await);
    server.script(Answer::whole(dialect, "Yes."));
    world.gates.hold(Gate::ViewFolding);
    let session = world.begin(&server, "Hello?").await;
    let window = world.page().await.follow(session);
    window.until_idle().await;
    world.gates.arrived(Gate::ViewFolding).await;
    server.script(Answer::whole(dialect, "Again."));
    world.say(session, "Still there?").await;
    window.sees("Again.").await;
    window.until_idle().await;
    world.gates.release(Gate::ViewFolding);
    judge(&world, session, &[&window]).await;
}
