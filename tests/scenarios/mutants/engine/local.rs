//! Models of this computer, in processes of their own.

use engine::mutant::Mutant;
use protocol::{Dialect, TurnId};
use tests::{
    client::Page,
    model_server::{Answer, ModelServer},
    world::World,
};

use super::end_of;

/// An answer is stopped in the middle, and the next one comes from the same process.
pub(super) async fn stopped(mutant: Option<Mutant>) -> String {
    let mut world = World::without_engine();
    world.mutant = mutant;
    world.open().await;
    let server = ModelServer::start(Dialect::Local);
    server.script(Answer::new(Dialect::Local).says("Half ").goes_silent());
    let session = world.begin(&server, "Hello?").await;
    let window = Page::load(&world.line, "main").await.follow(session);
    window.sees("Half ").await;
    world.stop(session, TurnId::FIRST).await;
    end_of(&window).await;
    server.script(Answer::whole(Dialect::Local, "And again."));
    world.say(session, "Again?").await;
    window.sees("And again.").await;
    end_of(&window).await;
    if mutant.is_none() {
        server
            .until("the stopped answer to be let go of", |now| {
                now.closed_by_us == 1
            })
            .await;
    }
    // Otherwise the order would have come before the next question, which is answered by now.
    format!("closed{}", server.counters().closed_by_us)
}
