//! The fault matrix: every way an answer can break off, and every way a turn can be ended, in every phase of it.
//!
//! Invariant: each cell has one outcome, written down here; whatever happens, one end, our socket closed, nothing lost.

mod cancelled;
mod cut;
mod panicked;
mod timed;

use protocol::SessionId;
use tests::{client::Client, model_server::ModelServer, picture, verdict::judge, world::World};
use transcript::Transcript;

/// A conversation that is about to meet a fault.
struct Set {
    world: World,
    server: ModelServer,
    session: SessionId,
    window: Client<Transcript>,
}

impl Set {
    /// Waits for the end, judges everything, and says how the last turn ended and what it had said.
    async fn end(&self) -> String {
        self.window.until_idle().await;
        judge(&self.world, self.session, &[&self.window]).await;
        last_turn(&self.window)
    }
}

/// The last turn as it is drawn, without its first line.
fn last_turn(window: &Client<Transcript>) -> String {
    let text = window.look(|shown| {
        let turn = shown.and_then(|shown| shown.turns().next_back());
        picture::turns(turn)
    });
    let (_, answer) = text.split_once('\n').expect("it begins with a message");
    answer.to_owned()
}
