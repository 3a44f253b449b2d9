//! The same scripts with no window, one and three, attaching and detaching at random: the same log, event for event.

use protocol::{Dialect, Op, SessionId};
use serde_json::{Value, json};
use tests::{
    client::{Client, Page},
    dice::Dice,
    kept_log::without_ids,
    model_server::{Answer, DIALECTS, Ending, ModelServer, Script},
    sentinel::random_u128,
    world::World,
};
use transcript::Transcript;

/// What is done in every telling, in the same order; the windows come and go between these.
const SCRIPTS: usize = 6;

#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_the_same_with_no_window_with_one_and_with_three_that_come_and_go() {
    for dialect in DIALECTS {
        for number in 0..SCRIPTS {
            let mut logs = Vec::new();
            for windows in [0, 1, 3] {
                let seed = 100 * u64::try_from(number).expect("few") + windows;
                logs.push((
                    windows,
                    tell(dialect, number, windows, Dice::new(seed)).await,
                ));
            }
            let (_, alone) = logs.first().expect("the telling without a window").clone();
            assert!(alone.len() > 4, "something happened: {alone:#?}");
            for (windows, log) in logs {
                assert_eq!(
                    log, alone,
                    "{dialect:?}, script {number}, {windows} windows"
                );
            }
        }
    }
}

/// The answers of a script, held between their pieces. The clock stands, so that text is joined alike in every telling.
fn script(dialect: Dialect, number: usize) -> Vec<Script> {
    let answer = Answer::new(dialect);
    let whole = || Answer::whole(dialect, "And that is all.");
    match number {
        0 => vec![
            answer
                .says("One, ")
                .gate("0")
                .says("two, ")
                .gate("1")
                .says("three.")
                .gate("2")
                .ends(),
        ],
        1 => vec![
            answer
                .thinks("Hm, ")
                .gate("0")
                .thinks("so. ")
                .gate("1")
                .says("Yes.")
                .gate("2")
                .ends(),
        ],
        2 => vec![
            answer
                .says("Let me ")
                .gate("0")
                .says("look. ")
                .gate("1")
                .calls("current_time", json!({}))
                .gate("2")
                .ends(),
            whole(),
        ],
        3 => vec![
            answer
                .says("Half ")
                .gate("0")
                .says("of ")
                .gate("1")
                .says("it")
                .gate("2")
                .cut(Ending::Fin),
        ],
        4 => vec![
            answer
                .says("So ")
                .gate("0")
                .says("far ")
                .gate("1")
                .says("and ")
                .gate("2")
                .reaches_its_limit(),
        ],
        _ => vec![
            answer
                .gate("0")
                .gate("1")
                .says("Late.")
                .gate("2")
                .fails("the runner fell over"),
        ],
    }
}

/// Tells a script under windows that come and go, and gives its log without ids.
async fn tell(dialect: Dialect, number: usize, windows: u64, mut dice: Dice) -> Vec<Value> {
    let server = ModelServer::start(dialect);
    let world = World::new().await;
    let scripts = script(dialect, number);
    let steps = scripts.len();
    scripts.into_iter().for_each(|script| server.script(script));
    world.add(server.provider()).await;
    let session = SessionId::from_bits(random_u128());
    let mut open: Vec<Option<(Page, Client<Transcript>)>> = Vec::new();
    open.resize_with(usize::try_from(windows).expect("few"), || None);
    let begin = Op::StartSession {
        session,
        model: server.model(),
        text: "Hello?".to_owned(),
        folder: None,
        options: protocol::ModelOptions::default(),
        images: Vec::new(),
    };
    world.submit(begin).await.expect("it begins");
    come_and_go(&world, session, &mut open, &mut dice).await;
    for gate in ["0", "1", "2"] {
        server.arrived(gate).await;
        come_and_go(&world, session, &mut open, &mut dice).await;
        server.release(gate);
        come_and_go(&world, session, &mut open, &mut dice).await;
    }
    server
        .until("every answer to be asked for", |now| {
            now.chats == steps as u64
        })
        .await;
    // A window that was never there before sees the end, whoever else has looked.
    drop(open);
    until_ended(&world, session).await;
    world
        .events(session)
        .into_iter()
        .map(|event| without_ids(&event))
        .collect()
}

async fn until_ended(world: &World, session: SessionId) {
    let window = Page::load(&world.line, "the last").await.follow(session);
    window.until_idle().await;
}

/// Each window may close, reload or open, or do nothing.
async fn come_and_go(
    world: &World,
    session: SessionId,
    windows: &mut [Option<(Page, Client<Transcript>)>],
    dice: &mut Dice,
) {
    for (n, window) in windows.iter_mut().enumerate() {
        *window = match (window.take(), dice.below(3)) {
            (Some(_), 0) => None,
            (Some((page, client)), 1) => {
                drop(client);
                let page = page.reload().await;
                let client = page.follow(session);
                Some((page, client))
            }
            (Some(open), _) => Some(open),
            (None, 0) => None,
            (None, _) => {
                let page = Page::load(&world.line, &format!("window {n}, {}", random_u128())).await;
                let client = page.follow(session);
                client.sees("you: Hello?").await;
                Some((page, client))
            }
        };
    }
}
