//! Answers that break off: after nothing, after some of it, after the end marker; by FIN, RST and silence; with and
//! without another model to ask.

use std::time::Duration;

use engine::gate::Gate;
use protocol::{Dialect, EventBody, Op};
use tests::{
    model_server::{ALL_DIALECTS, Answer, Ending, ModelServer},
    world::World,
};

use super::Set;

/// How much of the answer comes before it breaks off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// A sign of life, and nothing of the answer.
    Nothing,
    Pieces(usize),
    TheEnd,
}

const WAYS: [Ending; 3] = [Ending::Fin, Ending::Rst, Ending::Silence];

fn other_of(dialect: Dialect) -> Dialect {
    match dialect {
        Dialect::Ollama => Dialect::OpenAiChat,
        Dialect::OpenAiChat => Dialect::Anthropic,
        Dialect::Anthropic => Dialect::Local,
        Dialect::Local => Dialect::Ollama,
    }
}

/// What the cell must come to: the drawn answer, dials of the first, dials of the other.
fn expected(after: After, way: Ending, others: u64) -> (String, u64, u64) {
    let said = match after {
        After::Nothing => String::new(),
        After::Pieces(n) => (0..n).map(|n| format!("piece{n} ")).collect(),
        After::TheEnd => return ("model: All of it.\n(completed)\n".to_owned(), 1, 0),
    };
    let code = match (after, way) {
        (After::Nothing, Ending::Silence) => "FirstTokenTimeout",
        (_, Ending::Silence) => "IdleTimeout",
        (_, Ending::Fin | Ending::Rst | Ending::Proper) => "StreamCut",
    };
    match (after, others) {
        (After::Nothing, 1) => ("model: Here.\n(completed)\n".to_owned(), 1, 1),
        // Closing the connection aborts a load, so silence is not tried again.
        (After::Nothing, _) if way == Ending::Silence => (format!("(failed: {code})\n"), 1, 0),
        (After::Nothing, _) => (format!("(failed: {code})\n"), 3, 0),
        _ => (format!("model: {said}\n(failed: {code})\n"), 1, 0),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_breaks_off_ends_as_the_table_says_and_another_model_takes_over_only_at_nothing()
 {
    let afters = [
        After::Nothing,
        After::Pieces(1),
        After::Pieces(3),
        After::TheEnd,
    ];
    for dialect in ALL_DIALECTS {
        for after in afters {
            for way in WAYS {
                for others in [0, 1] {
                    let cell = format!("{dialect:?}, after {after:?}, by {way:?}, {others} others");
                    assert_eq!(
                        meet(dialect, after, way, others).await,
                        expected(after, way, others),
                        "{cell}"
                    );
                }
            }
        }
    }
}

async fn meet(dialect: Dialect, after: After, way: Ending, others: u64) -> (String, u64, u64) {
    let server = ModelServer::start(dialect);
    let other = ModelServer::start(other_of(dialect));
    let world = World::new().await;
    if others > 0 {
        world.add(other.provider()).await;
        let models = vec![other.model()];
        world
            .submit(Op::ChooseFallbacks { models })
            .await
            .expect("chosen");
        other.script(Answer::whole(other_of(dialect), "Here."));
    }
    let answer = Answer::new(dialect);
    match after {
        After::Nothing => {
            let script = answer.stirs().cut(way);
            let tries = if others == 0 && way != Ending::Silence {
                3
            } else {
                1
            };
            (0..tries).for_each(|_| server.script(script.clone()));
            if way == Ending::Silence {
                world.gates.hold(Gate::Decoding);
            }
        }
        After::Pieces(n) => {
            let answer = (0..n).fold(answer, |answer, n| answer.says(&format!("piece{n} ")));
            server.script(match way {
                Ending::Silence => answer.cut(way),
                // A reset may overtake what the client has not read; so it reads first.
                Ending::Fin | Ending::Rst | Ending::Proper => answer.gate("cut").cut(way),
            });
        }
        After::TheEnd => server.script(Answer::whole(dialect, "All of it.").but_ends(way)),
    }
    let session = world.begin(&server, "Hello?").await;
    let window = world
        .page()
        .await
        .follow_with_witness(session, world.data_dir());
    match (after, way) {
        (After::Nothing, Ending::Silence) => {
            world.gates.pass(Gate::Decoding).await;
            world.clock.until_armed(world.first_event()).await;
            world.clock.advance(world.first_event());
        }
        (After::Nothing, _) if others == 0 => {
            for attempt in [2, 3] {
                world.pass_the_wait(&window, attempt).await;
            }
        }
        (After::Nothing | After::TheEnd, _) => {}
        (After::Pieces(n), _) => {
            world
                .flush_until(&window, &format!("piece{} ", n - 1))
                .await;
            if way == Ending::Silence {
                // Two frames may have passed since it was armed.
                let gap = world.gap();
                let frames = Duration::from_millis(66);
                world.clock.until_armed_between(gap - frames, gap, 1).await;
                world.clock.advance(gap);
            } else {
                server.pass("cut").await;
            }
        }
    }
    let set = Set {
        world,
        server,
        session,
        window,
    };
    let picture = set.end().await;
    let (dials, others_dials) = (set.server.counters().chats, other.counters().chats);
    if others_dials == 0 {
        other.forget_scripts();
    }
    if way == Ending::Silence {
        let closed = |now: tests::model_server::Counters| now.closed_by_us == 1;
        set.server.until("our socket to close", closed).await;
    }
    // Each attempt is in the log, and the change of the model is told once.
    let events = set.world.events(session);
    let count =
        |wanted: fn(&EventBody) -> bool| events.iter().filter(|event| wanted(&event.body)).count();
    let attempts = count(|body| matches!(body, EventBody::StepStarted { .. }));
    assert_eq!(u64::try_from(attempts).expect("few"), dials + others_dials);
    let told = count(|body| matches!(body, EventBody::AttemptFailed { next: Some(_), .. }));
    assert_eq!(u64::try_from(told).expect("few"), others_dials);
    (picture, dials, others_dials)
}
