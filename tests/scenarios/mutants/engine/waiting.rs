//! The guards of who waits for whom: two limits, an op behind parked polls, and an engine that closes.

use std::time::Duration;

use engine::{gate::Gate, mutant::Mutant};
use protocol::{Op, PollRequest, StreamId};
use tests::{
    client::{Client, Page},
    model_server::{Answer, ModelServer},
    sentinel::random_u128,
    watched::within_limit,
    world::World,
};
use tokio::task::JoinSet;
use transcript::Transcript;

use super::{DIALECT, end_of, set};

/// Two turns whose ceiling and whose provider's silence end in the same tick: by how many ends they can be told apart.
pub(super) async fn due_at_once(mutant: Option<Mutant>) -> String {
    let mut world = World::without_engine();
    world.mutant = mutant;
    world.limits.ceiling_ms = world.limits.first_event_ms + 1_000;
    world.limits.gap_ms = world.limits.first_event_ms;
    world.open().await;
    let server = ModelServer::start(DIALECT);
    let script = |gate: &str| {
        let answer = Answer::new(DIALECT).gate(gate).says(gate);
        server.script(answer.goes_silent());
    };
    script("first");
    let session = world.begin(&server, "Go on.").await;
    let window = world.page().await.follow(session);
    let first = both_due(&world, &server, &window, "first").await;
    script("second");
    world.say(session, "And on.").await;
    let second = both_due(&world, &server, &window, "second").await;
    format!("logs{}", 1 + u8::from(first != second))
}

async fn both_due(
    world: &World,
    server: &ModelServer,
    window: &Client<Transcript>,
    word: &str,
) -> String {
    let text_at = Duration::from_secs(1);
    server.arrived(word).await;
    world.clock.until_armed(world.ceiling()).await;
    world.clock.advance(text_at);
    server.release(word);
    window.sees(word).await;
    world.clock.until_armed(world.gap()).await;
    world.clock.advance(world.ceiling() - text_at);
    end_of(window).await
}

/// An op is sent while as many polls are parked as twelve windows make.
pub(super) async fn behind_parked_polls(mutant: Option<Mutant>) -> String {
    const WINDOWS: u64 = 12;
    let (world, server) = set(mutant).await;
    let mut polls = JoinSet::new();
    for n in 0..WINDOWS {
        let page = Page::load(&world.line, &format!("window {n}")).await;
        let attached = page.attach(StreamId::Library).await.expect("it may");
        let request = PollRequest {
            epoch: attached.epoch,
            after: attached.head,
            seen_status: u64::MAX,
            wait_ms: 8_000,
            max_bytes: 1_000,
        };
        let line = world.line.clone();
        polls.spawn(async move { line.poll(request).await });
    }
    let waiting = async |count: u64| {
        while world.engine().counters().parked_now != count {
            tokio::task::yield_now().await;
        }
    };
    within_limit("every poll to be parked", waiting(WINDOWS)).await;
    let provider = server.provider();
    tokio::select! {
        biased;
        added = world.submit(Op::AddProvider { provider }) => {
            added.expect("added");
            "waited0".to_owned()
        }
        () = waiting(WINDOWS + 1) => "waited1".to_owned(),
    }
}

/// An op that is being committed, and how many tasks of it the engine would not wait for.
pub(super) async fn op_under_way(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    let before = world.engine().counters().tasks_now;
    world.gates.hold(Gate::Committing);
    let provider = server.provider();
    let op_id = protocol::OpId::from_bits(random_u128());
    let submitting = world.line.submit(op_id, Op::AddProvider { provider });
    let look = async {
        world.gates.arrived(Gate::Committing).await;
        let owned = world.engine().counters().tasks_now - before;
        world.gates.release(Gate::Committing);
        owned
    };
    let (added, owned) = tokio::join!(submitting, look);
    added.expect("added");
    format!("tasks{}", 1 - owned)
}
