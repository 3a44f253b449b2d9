//! Panics: in a tool, in a decoder, in the turn itself, in the writer. Nothing else is affected.

use engine::gate::Gate;
use protocol::Dialect;
use serde_json::json;
use tests::{
    model_server::{ALL_DIALECTS, Answer, DIALECTS, ModelServer},
    verdict::judge,
    world::World,
};

use super::Set;

/// A world in which another conversation streams meanwhile; the script of the one that panics, and its gate.
async fn beside_another(dialect: Dialect, answer: Answer, gate: Gate) -> String {
    let server = ModelServer::start(dialect);
    let world = World::new().await;
    let other = Answer::new(dialect)
        .says("Calmly ")
        .gate("meanwhile")
        .says("on.")
        .ends();
    server.script(other.when_asked("Another?"));
    world.add(server.provider()).await;
    let calm = world
        .page()
        .await
        .follow(world.begin_with(server.model(), "Another?").await);
    calm.sees("Calmly ").await;
    server.arrived("meanwhile").await;

    server.script(answer.ends().when_asked("Hello?"));
    world.gates.panic_at(gate);
    let session = world.begin_with(server.model(), "Hello?").await;
    let window = tests::client::Page::load(&world.line, "beside")
        .await
        .follow(session);
    let set = Set {
        world,
        server,
        session,
        window,
    };
    let met = set.end().await;
    set.server.release("meanwhile");
    assert_eq!(
        calm.until_idle().await,
        "you: Another?\nmodel: Calmly on.\n(completed)\n",
        "the other conversation is whole"
    );
    assert_eq!(set.world.engine().counters().backstops, 0);
    set.server.forget_scripts();
    met
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_a_decoder_or_in_the_turn_itself_ends_that_turn_only_and_by_name() {
    // A model of this computer answers one conversation after the other, so there is none beside it.
    for dialect in DIALECTS {
        for gate in [Gate::Decoding, Gate::Deciding, Gate::BeforeDial] {
            let met = beside_another(dialect, Answer::new(dialect).says("Hi."), gate).await;
            assert_eq!(met, "(failed: Panicked)\n", "{dialect:?}, at {gate:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panicking_tool_is_a_result_the_model_can_read() {
    for dialect in ALL_DIALECTS {
        let server = ModelServer::start(dialect);
        let world = World::new().await;
        server.script(Answer::new(dialect).calls("current_time", json!({})).ends());
        server.script(Answer::whole(dialect, "It broke."));
        world.gates.panic_at(Gate::ToolRunning);
        let session = world.begin(&server, "What time is it?").await;
        let window = world.page().await.follow(session);
        let set = Set {
            world,
            server,
            session,
            window,
        };
        let met = set.end().await;
        assert!(
            met.starts_with("tool: current_time {} -> failed: "),
            "{dialect:?}: {met}"
        );
        assert!(
            met.ends_with("model: It broke.\n(completed)\n"),
            "{dialect:?}: {met}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panicking_writer_ends_the_turn_keeps_its_text_and_writes_on() {
    let dialect = Dialect::Ollama;
    let server = ModelServer::start(dialect);
    let world = World::new().await;
    server.script(
        Answer::new(dialect)
            .says("Half ")
            .gate("more")
            .says("more ")
            .goes_silent(),
    );
    let session = world.begin(&server, "Hello?").await;
    let window = world
        .page()
        .await
        .follow_with_witness(session, world.data_dir());
    window.sees("Half ").await;
    world.gates.panic_at(Gate::Committing);
    server.pass("more").await;
    world.flush_text().await;
    let text = window.until_idle().await;
    assert_eq!(
        text,
        "you: Hello?\nmodel: Half more \n(interrupted: StorageFailed)\n"
    );
    server
        .until("our socket to close", |now| now.closed_by_us == 1)
        .await;
    window.no_contradictions();
    server.script(Answer::whole(dialect, "Yes."));
    world.say(session, "Still there?").await;
    window.sees("model: Yes.").await;
    window.until_idle().await;
    judge(&world, session, &[&window]).await;
}
