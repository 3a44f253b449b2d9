//! Guards around a sleep of the computer.

use std::time::Duration;

use engine::mutant::Mutant;
use tests::{
    client::Client,
    model_server::{Answer, ModelServer},
    world::World,
};
use transcript::Transcript;

use super::{DIALECT, begin, end_of, set};

/// Longer than a model may be silent, shorter than a turn may take.
const NAP: Duration = Duration::from_secs(20 * 60);

async fn slept(window: &Client<Transcript>) {
    window
        .until_shown("the sleep", |shown| {
            let turn = shown.turns().next_back()?;
            (!turn.slept.is_empty()).then_some(())
        })
        .await;
}

/// A machine whose clock goes on in its sleep.
pub(super) async fn night(mutant: Option<Mutant>) -> String {
    let mut world = World::without_engine_on_windows();
    world.mutant = mutant;
    world.limits.ceiling_ms = 3 * 60 * 60 * 1_000;
    world.open().await;
    let server = ModelServer::start(DIALECT);
    server.script(Answer::new(DIALECT).says("Half").gate("morning").ends());
    let (_, window) = begin(&world, &server).await;
    window.sees("Half").await;
    world.clock.until_armed(world.gap()).await;
    world.clock.until_looked_at().await;
    world.clock.advance(NAP);
    tokio::select! {
        end = end_of(&window) => {
            server.release_all();
            end
        }
        () = slept(&window) => {
            server.pass("morning").await;
            end_of(&window).await
        }
    }
}

/// The server is gone without a word.
pub(super) async fn nobody_answers(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    server.script(Answer::new(DIALECT).says("Half").goes_silent());
    let (_, window) = begin(&world, &server).await;
    window.sees("Half").await;
    world.clock.until_armed(world.gap()).await;
    server.refuse_connections().await;
    world.clock.until_looked_at().await;
    world.clock.fall_asleep(NAP);
    slept(&window).await;
    time_passes_until(&world, end_of(&window)).await
}

/// The server is there, and its model thinks.
pub(super) async fn thinks_on(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    server.script(Answer::new(DIALECT).says("Half").gate("thought").ends());
    let (_, window) = begin(&world, &server).await;
    window.sees("Half").await;
    world.clock.until_armed(world.gap()).await;
    world.clock.until_looked_at().await;
    world.clock.fall_asleep(NAP);
    slept(&window).await;
    server
        .until("somebody to knock", |server| {
            server.dials >= 2 && server.open == 1
        })
        .await;
    if mutant.is_some() {
        let end = time_passes_until(&world, end_of(&window)).await;
        server.release_all();
        return end;
    }
    world.clock.advance(Duration::from_secs(60));
    server.pass("thought").await;
    end_of(&window).await
}

/// Lets timers fire, the nearest first.
async fn time_passes_until(world: &World, end: impl Future<Output = String>) -> String {
    let passing = async {
        loop {
            world.clock.fire_next_within(Duration::from_secs(60)).await;
        }
    };
    tokio::select! {
        biased;
        end = end => end,
        () = passing => unreachable!("it waits for the end"),
    }
}
