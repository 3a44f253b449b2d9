//! Clicks: on the state they were made on, and whoever clicked may be gone.

use engine::{gate::Gate, mutant::Mutant};
use protocol::{ErrorCode, Op, Seq, SessionId, TurnId};
use tests::{client::Client, model_server::Answer};
use transcript::Transcript;

use super::{DIALECT, begin, refusal, set};

fn last(window: &Client<Transcript>) -> (TurnId, Seq) {
    window.look(|shown| {
        let shown = shown.expect("something is shown");
        let turn = shown.turns().next_back().expect("a turn").turn;
        (turn, shown.tip().expect("a tip"))
    })
}

fn say(session: SessionId) -> Op {
    let text = "And now?".to_owned();
    Op::message(session, text)
}

/// Two windows send when the turn has ended, the second while the first one's message is being taken.
pub(super) async fn at_once(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    server.script(Answer::whole(DIALECT, "Yes."));
    let (session, window) = begin(&world, &server).await;
    window.until_idle().await;
    // The window may hear of the end before the engine has counted it.
    world.engine().until_no_turn_runs().await;
    server.script(Answer::whole(DIALECT, "Again."));
    world.gates.hold(Gate::MessageCommitted);
    let (one, two) = (world.submit(say(session)), world.submit(say(session)));
    tokio::pin!(one, two);
    tokio::select! {
        biased;
        _ = &mut one => panic!("it stands at its gate"),
        () = world.gates.arrived(Gate::MessageCommitted) => {}
    }
    tokio::select! {
        biased;
        _ = &mut two => panic!("the session has other things to do"),
        () = std::future::ready(()) => {}
    }
    world.gates.release(Gate::MessageCommitted);
    let answers = [refusal(one.await), refusal(two.await)];
    window.sees("Again.").await;
    window.until_idle().await;
    let (mut turns, mut active, mut lost) = (0, 0, 0);
    for answer in answers {
        match answer {
            None => turns += 1,
            Some(ErrorCode::TurnActive) => active += 1,
            Some(_) => lost += 1,
        }
    }
    format!("turns{turns} active{active} lost{lost}")
}

/// A title lands between the look and the click.
pub(super) async fn after_a_title(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    server.script(Answer::whole(DIALECT, "Yes."));
    let (session, window) = begin(&world, &server).await;
    window.until_idle().await;
    let (turn, expected_tip) = last(&window);
    let title = "A title".to_owned();
    let renamed = world.submit(Op::RenameSession { session, title }).await;
    renamed.expect("renamed");
    server.script(Answer::whole(DIALECT, "Again."));
    let text = "And now?".to_owned();
    let edit = Op::EditMessage {
        session,
        turn,
        text,
        expected_tip,
        images: None,
    };
    let refused = refusal(world.submit(edit).await).is_some();
    if !refused {
        window.sees("Again.").await;
        window.until_idle().await;
    }
    server.forget_scripts();
    format!("refused{}", u8::from(refused))
}

/// The window is destroyed between the click and the commit.
pub(super) async fn and_gone(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    server.script(Answer::whole(DIALECT, "Yes."));
    let (session, window) = begin(&world, &server).await;
    window.until_idle().await;
    let (turn, expected_tip) = last(&window);
    server.script(Answer::whole(DIALECT, "Again."));
    world.gates.hold(Gate::OpHalfWritten);
    let edit = world.submit(Op::EditMessage {
        session,
        turn,
        text: "And now?".to_owned(),
        expected_tip,
        images: None,
    });
    tokio::select! {
        biased;
        _ = edit => panic!("it stands at its gate"),
        () = world.gates.arrived(Gate::OpHalfWritten) => {}
    }
    drop(window);
    world.gates.release(Gate::OpHalfWritten);
    // The session comes to this when it has done what was asked before.
    let title = "Afterwards".to_owned();
    let renamed = world.submit(Op::RenameSession { session, title }).await;
    renamed.expect("renamed");
    let turns = world.reader().transcript(session).expect("it can be read");
    let turns = turns.turns.len();
    if turns > 0 {
        world.page().await.follow(session).until_idle().await;
    }
    server.forget_scripts();
    format!("turns{turns}")
}
