//! Random conversations with failed, stopped, summed up, rewound and restored turns: however the log is cut, both parts
//! fold to the whole, and the model is told what the reader reads, growing at its end.

use protocol::{Cursor, Event, ItemBody, Op, Receipt, SessionId, TranscriptPage, TurnId};
use tests::{
    client::Client,
    dice::Dice,
    model_server::{Answer, DIALECTS, ModelServer, Script},
    verdict::{judge, replay},
    world::World,
};
use transcript::{Follow, Transcript};

const SEEDS: u64 = 6;
const ACTIONS: u64 = 12;

#[tokio::test(flavor = "multi_thread")]
async fn however_a_log_is_cut_its_parts_fold_to_the_whole_and_the_model_is_told_what_is_read() {
    for seed in 1..=SEEDS {
        println!("seed {seed}");
        tell(Dice::new(seed)).await;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Say,
    Retry,
    Edit,
    Undo,
}

async fn tell(mut dice: Dice) {
    let dialect = dice.one_of(&DIALECTS);
    let (server, world) = (ModelServer::start(dialect), World::new().await);
    server.script(Answer::whole(dialect, "Hello."));
    let session = world.begin(&server, "Hello?").await;
    let window = world.page().await.follow(session);
    window.until_idle().await;
    let mut told = server.chat(1).await.conversation();
    for n in 0..ACTIONS {
        let action = match dice.below(8) {
            0..4 => Action::Say,
            4 => Action::Retry,
            5 => Action::Edit,
            _ => Action::Undo,
        };
        let chats = server.chats().len();
        let Some(op) = op(&mut dice, action, &window, session, n) else {
            continue;
        };
        if action == Action::Undo {
            world.submit(op).await.expect("undone");
            until_there(&world, session, &window).await;
            // What is told next belongs to the other branch.
            told.clear();
            continue;
        }
        let stops = answers(&mut dice, &server, n);
        let receipt = world.submit(op).await.expect("taken");
        if let Some(text) = stops {
            window.sees(&text).await;
            world.stop(session, turn_of(receipt)).await;
        }
        until_ended(&window, turn_of(receipt)).await;
        server.forget_scripts();
        let page = window.to_page().expect("something is shown");
        let asked = server.chats();
        let last = asked.last().expect("a request").conversation();
        let said: Vec<&str> = users(&last);
        assert_eq!(said, read_by_model(&page), "action {n}: {action:?}");
        let is_longer = asked.len() == chats + 1;
        if action == Action::Say && is_longer {
            assert!(last.starts_with(&told), "action {n}: {told:#?} {last:#?}");
        }
        told = last;
    }
    judge(&world, session, &[&window]).await;
    let whole = window.to_page().expect("something is shown");
    every_cut_folds(session, &world.events(session), &whole);
}

fn turn_of(receipt: Receipt) -> TurnId {
    receipt.turn.expect("it began a turn")
}

fn op(
    dice: &mut Dice,
    action: Action,
    window: &Client<Transcript>,
    session: SessionId,
    n: u64,
) -> Option<Op> {
    let page = window.to_page().expect("something is shown");
    let expected_tip = page.tip.expect("a tip");
    let text = format!("Question {n}?");
    let turns: Vec<TurnId> = page.turns.iter().map(|turn| turn.turn).collect();
    let turn = dice.one_of(&turns);
    Some(match action {
        Action::Say => Op::message(session, text),
        Action::Retry => Op::RetryTurn {
            session,
            turn,
            expected_tip,
        },
        Action::Edit => Op::EditMessage {
            session,
            turn,
            text,
            expected_tip,
            images: None,
        },
        Action::Undo => Op::RestoreTurn {
            session,
            turn: page.taken_out?,
            expected_tip,
        },
    })
}

/// What the model does with the next message; the text at which it is stopped, if it is.
fn answers(dice: &mut Dice, server: &ModelServer, n: u64) -> Option<String> {
    let dialect = server.dialect();
    let whole = Answer::whole(dialect, &format!("Answer {n}."));
    match dice.below(6) {
        0 => {
            let half = Answer::new(dialect).says(&format!("Half {n} "));
            server.script(half.fails("the runner fell over"));
        }
        1 => {
            let text = format!("Begun {n}");
            server.script(Answer::new(dialect).says(&text).goes_silent());
            return Some(text);
        }
        2 => {
            let words = "request (1531 tokens) exceeds the available context size (1024 tokens)";
            server.script(Script::error(dialect, 400, words));
            server.script(Answer::whole(dialect, "Short."));
            server.script(whole);
        }
        _ => server.script(whole),
    }
    None
}

async fn until_ended(window: &Client<Transcript>, turn: TurnId) {
    let ended = |shown: &Transcript| shown.turn(turn)?.outcome.as_ref().map(|_| ());
    window.until_shown("the turn to end", ended).await;
}

/// Waits until a window has all there is.
async fn until_there(world: &World, session: SessionId, window: &Client<Transcript>) {
    let stored = world.reader().transcript(session).expect("it can be read");
    window
        .until_shown("the window to have every event", |shown| {
            (shown.cursor() == stored.as_of).then_some(())
        })
        .await;
}

fn users(told: &[(String, String)]) -> Vec<&str> {
    let users = told.iter().filter(|(role, _)| role == "user");
    users.map(|(_, text)| text.as_str()).collect()
}

/// The reader's own messages that no summary stands for.
fn read_by_model(page: &TranscriptPage) -> Vec<&str> {
    let items = page
        .turns
        .iter()
        .rev()
        .flat_map(|turn| turn.items.iter().rev());
    let mut summed_up = items.filter_map(|item| match &item.body {
        ItemBody::Compacted { through, .. } => *through,
        _ => None,
    });
    let summed_up = summed_up.next();
    let told = page.turns.iter().filter(|turn| Some(turn.turn) > summed_up);
    told.flat_map(|turn| &turn.items)
        .filter_map(|item| match &item.body {
            ItemBody::UserMessage { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

/// A page of any length, and the rest of the events on top of it.
fn every_cut_folds(session: SessionId, events: &[Event], whole: &TranscriptPage) {
    let start = Cursor::at_start(whole.as_of.log());
    for cut in 0..=events.len() {
        let (before, after) = events.split_at(cut);
        let mut transcript = Transcript::from(replay(session, start, before));
        for (event, upto) in after.iter().zip(cut + 1..) {
            if transcript.lacks(event) {
                // As a page does whose other branch is not at hand: it is loaded anew.
                transcript = Transcript::from(replay(session, start, &events[..upto]));
            } else {
                transcript.apply(event, &mut Vec::new());
            }
        }
        assert_eq!(transcript.to_page(), *whole, "cut after {cut} events");
    }
}
