//! Retry, edit and undo: each on the state it was decided on, whole or not at all, and nothing is ever lost by one.

use std::{sync::Arc, time::Duration};

use engine::{Fault as DiskFault, WriteStep, gate::Gate};
use protocol::{Dialect, ErrorCode, Event, EventBody, Op, OpId, Receipt, Seq, SessionId, TurnId};
use tests::{
    backend::Missed,
    client::{CallKind, Client, Fault, Page},
    clock::TestClock,
    model_server::{Answer, ModelServer},
    seeded::DATABASE,
    sentinel::random_u128,
    verdict::judge,
    world::World,
};
use transcript::{LinkState, Transcript};

const DIALECT: Dialect = Dialect::Ollama;

/// What is asked for below, on one and the same state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Click {
    Send,
    Retry,
    Edit,
}

const CLICKS: [Click; 3] = [Click::Send, Click::Retry, Click::Edit];

impl Click {
    fn op(self, session: SessionId, (turn, expected_tip): (TurnId, Seq)) -> Op {
        let text = "And now?".to_owned();
        match self {
            Self::Send => Op::message(session, text),
            Self::Retry => Op::RetryTurn {
                session,
                turn,
                expected_tip,
            },
            Self::Edit => Op::EditMessage {
                session,
                turn,
                text,
                expected_tip,
                images: None,
            },
        }
    }
}

fn retry(session: SessionId, (turn, expected_tip): (TurnId, Seq)) -> Op {
    Click::Retry.op(session, (turn, expected_tip))
}

fn restore(session: SessionId, turn: TurnId, window: &Client<Transcript>) -> Op {
    let (_, expected_tip) = last(window);
    Op::RestoreTurn {
        session,
        turn,
        expected_tip,
    }
}

/// The last turn that a window shows, and the state it shows it in.
fn last(window: &Client<Transcript>) -> (TurnId, Seq) {
    window.look(|shown| {
        let shown = shown.expect("something is shown");
        let turn = shown.turns().next_back().expect("a turn").turn;
        (turn, shown.tip().expect("a tip"))
    })
}

fn code(answer: Result<Receipt, Missed>) -> Option<ErrorCode> {
    match answer {
        Ok(_) => None,
        Err(Missed::Refused(report)) => Some(report.code),
        Err(Missed::Lost) => panic!("nobody answered"),
    }
}

fn rewinds(events: &[Event]) -> usize {
    let rewinds = |event: &&Event| matches!(event.body, EventBody::HistoryRewound { .. });
    events.iter().filter(rewinds).count()
}

fn messages(events: &[Event]) -> usize {
    let said = |event: &&Event| matches!(event.body, EventBody::UserMessageAdded { .. });
    events.iter().filter(said).count()
}

/// A conversation of one turn, and the window it stands in.
async fn begin(
    world: &World,
    server: &ModelServer,
    page: &Page,
) -> (SessionId, Client<Transcript>) {
    server.script(Answer::whole(DIALECT, "Bad."));
    let session = world.begin(server, "Say it.").await;
    let window = page.follow(session);
    window.until_idle().await;
    (session, window)
}

/// Wakes a window's parked poll, so that its next one meets the fault.
async fn next_poll_meets(world: &World, session: SessionId, page: &Page, fault: Fault) {
    page.fault(CallKind::Poll, fault);
    let title = "A title".to_owned();
    let renamed = world.submit(Op::RenameSession { session, title }).await;
    renamed.expect("renamed");
    page.until_faults_met().await;
}

/// Waits in another window until an answer has come and its turn has ended.
async fn ends_elsewhere(world: &World, session: SessionId, answer: &str) {
    let witness = Page::load(&world.line, "another").await.follow(session);
    witness.sees(answer).await;
    witness.until_idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_click_before_the_window_has_heard_of_the_first_changes_nothing() {
    let (server, world) = (ModelServer::start(DIALECT), World::new().await);
    let page = world.page().await;
    let (session, window) = begin(&world, &server, &page).await;
    server.script(Answer::whole(DIALECT, "Good."));
    next_poll_meets(
        &world,
        session,
        &page,
        Fault::HoldAnswer("reload".to_owned()),
    )
    .await;

    let first = code(page.submit(retry(session, last(&window))).await);
    page.arrived("reload").await;
    ends_elsewhere(&world, session, "Good.").await;
    let second = code(page.submit(retry(session, last(&window))).await);
    assert_eq!((first, second), (None, Some(ErrorCode::StaleHead)));
    assert_eq!(window.text(), "you: Say it.\nmodel: Bad.\n(completed)\n");
    page.release("reload");
    window.sees("Good.").await;
    window.until_idle().await;
    assert_eq!(rewinds(&world.events(session)), 1);
    judge(&world, session, &[&window]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rewind_whose_commit_fails_leaves_no_trace_and_can_be_asked_for_again() {
    for click in [Click::Retry, Click::Edit] {
        for step in [WriteStep::Begin, WriteStep::Append, WriteStep::Commit] {
            let (server, world) = (ModelServer::start(DIALECT), World::new().await);
            let page = world.page().await;
            let (session, window) = begin(&world, &server, &page).await;
            let before = world.events(session);
            world.faults.fail_writes_from(1, step, DiskFault::Full);
            let op_id = OpId::from_bits(random_u128());
            let op = click.op(session, last(&window));
            let refused = code(world.line.submit(op_id, op.clone()).await);
            assert_eq!(
                refused,
                Some(ErrorCode::StorageFailed),
                "{click:?} {step:?}"
            );
            assert_eq!(world.events(session), before, "{click:?} {step:?}");
            world.faults.heal();
            server.script(Answer::whole(DIALECT, "Good."));
            let taken = world.line.submit(op_id, op).await;
            taken.expect("nothing has happened in between");
            window.sees("Good.").await;
            window.until_idle().await;
            assert_eq!(rewinds(&world.events(session)), 1, "{click:?} {step:?}");
            judge(&world, session, &[&window]).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_reload_after_a_rewind_fails_a_click_is_stale_and_after_the_heal_it_counts() {
    let (server, world) = (ModelServer::start(DIALECT), World::new().await);
    let clock = TestClock::default();
    let own = Arc::new(clock.clone());
    let page = Page::load_with_clock(&world.line, "main", own).await;
    let (session, window) = begin(&world, &server, &page).await;
    server.script(Answer::whole(DIALECT, "Good."));
    next_poll_meets(&world, session, &page, Fault::LoseAnswer).await;
    let first = code(page.submit(retry(session, last(&window))).await);
    ends_elsewhere(&world, session, "Good.").await;

    // The answer is given up on, and the disk does not read when the page asks again.
    world.faults.fail_reads(DiskFault::IoError);
    let limit =
        Duration::from_millis(u64::from(transcript::POLL_WAIT_MS) + transcript::POLL_MARGIN_MS);
    clock.until_armed(limit).await;
    clock.advance(limit);
    clock.fire_next_within(Duration::from_secs(1)).await;
    window
        .until_counters("the reload to fail", |now| now.refused == 1)
        .await;
    world.faults.heal();
    let stale = code(page.submit(retry(session, last(&window))).await);
    assert_eq!((first, stale), (None, Some(ErrorCode::StaleHead)));
    assert_ne!(
        window.state(),
        LinkState::Live,
        "its buttons are out of use"
    );
    assert_eq!(window.text(), "you: Say it.\nmodel: Bad.\n(completed)\n");

    clock.fire_next_within(Duration::from_secs(2)).await;
    window.sees("Good.").await;
    window.until_state(LinkState::Live).await;
    server.script(Answer::whole(DIALECT, "Better."));
    let third = code(page.submit(retry(session, last(&window))).await);
    assert_eq!(third, None);
    window.sees("Better.").await;
    window.until_idle().await;
    assert_eq!(rewinds(&world.events(session)), 2);
    judge(&world, session, &[&window]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undo_brings_back_what_was_there_and_can_be_undone() {
    let (server, mut world) = (ModelServer::start(DIALECT), World::new().await);
    let page = world.page().await;
    let (session, window) = begin(&world, &server, &page).await;
    server.script(Answer::whole(DIALECT, "Worse."));
    world.say(session, "Again.").await;
    window.sees("Worse.").await;
    let earlier = window.until_idle().await;
    let edit = window.look(|shown| {
        let shown = shown.expect("something is shown");
        let first = shown.turns().next().expect("a turn").turn;
        Click::Edit.op(session, (first, shown.tip().expect("a tip")))
    });
    server.script(Answer::whole(DIALECT, "Good."));
    page.submit(edit).await.expect("taken");
    window.sees("Good.").await;
    let later = window.until_idle().await;
    assert_eq!(later, "you: And now?\nmodel: Good.\n(completed)\n");
    // It has never seen what the edit took out.
    let stranger = Page::load(&world.line, "another").await.follow(session);
    stranger.until_idle().await;

    for (text, word) in [
        (&earlier, "Worse."),
        (&later, "Good."),
        (&earlier, "Worse."),
    ] {
        let undo = window.look(|shown| shown.and_then(Transcript::taken_out));
        let undo = restore(session, undo.expect("something was taken out"), &window);
        page.submit(undo.clone()).await.expect("taken");
        for window in [&window, &stranger] {
            window.sees(word).await;
            assert_eq!(window.text(), *text);
        }
        assert_eq!(code(page.submit(undo).await), Some(ErrorCode::StaleHead));
        judge(&world, session, &[&window, &stranger]).await;
    }
    assert_eq!(window.counters().swaps, 1, "it had everything at hand");
    assert!(stranger.counters().swaps >= 2, "it loaded what it had not");

    // What is part of the conversation cannot come back to it, nor what never was.
    for turn in [TurnId::FIRST, TurnId::new(99)] {
        let refused = code(page.submit(restore(session, turn, &window)).await);
        assert_eq!(refused, Some(ErrorCode::NotFound));
    }
    drop((window, stranger));

    // The index of turns is made anew from the events, and says the same.
    world.quit().await;
    let db = rusqlite::Connection::open(world.data_dir().join(DATABASE)).expect("it opens");
    db.execute_batch("DELETE FROM turns; DELETE FROM heads")
        .expect("they are dropped");
    db.close().expect("it closes");
    world.open().await;
    let window = world.page().await.follow(session);
    assert_eq!(window.until_idle().await, earlier);

    // And the model is told what the reader reads.
    server.script(Answer::new(DIALECT).says("Yes").gate("end").ends());
    world.say(session, "Sure?").await;
    window.sees("Yes").await;
    let undo = restore(session, TurnId::new(3), &window);
    assert_eq!(code(world.submit(undo).await), Some(ErrorCode::TurnActive));
    server.pass("end").await;
    window.until_idle().await;
    let told = server.chat(4).await.conversation();
    let told: Vec<_> = told.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(told, ["Say it.", "Bad.", "Again.", "Worse.", "Sure?"]);
    judge(&world, session, &[&window]).await;
}

/// A model of the conversation: what was read whenever it changed.
#[derive(Default)]
struct Read(Vec<(Vec<TurnId>, String)>);

impl Read {
    fn note(&mut self, window: &Client<Transcript>) {
        self.0.push((turns(window), window.text()));
    }

    /// What was read with this turn in it, the last time.
    fn with(&self, turn: TurnId) -> &str {
        let found = self.0.iter().rev().find(|(turns, _)| turns.contains(&turn));
        &found.expect("it was there").1
    }
}

fn turns(window: &Client<Transcript>) -> Vec<TurnId> {
    let page = window.to_page().expect("something is shown");
    page.turns.iter().map(|view| view.turn).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_version_comes_back_with_all_that_followed_it_also_after_a_restart() {
    let (server, mut world) = (ModelServer::start(DIALECT), World::new().await);
    let page = world.page().await;
    let (session, window) = begin(&world, &server, &page).await;
    let mut read = Read::default();
    let answered = async |window: &Client<Transcript>, op: Op, answer: &str| {
        server.script(Answer::whole(DIALECT, answer));
        world.submit(op).await.expect("taken");
        window.sees(answer).await;
        window.until_idle().await;
    };
    let say = |text: &str| Op::message(session, text);
    let at = |turn: TurnId, window: &Client<Transcript>| (turn, last(window).1);
    answered(&window, say("More."), "Worse.").await;
    read.note(&window);
    let edit = Click::Edit.op(session, at(TurnId::FIRST, &window));
    answered(&window, edit, "Good.").await;
    answered(&window, say("Go on."), "Better.").await;
    read.note(&window);
    for n in 1..=2 {
        let undo = restore(session, TurnId::FIRST, &window);
        if n == 1 {
            world.submit(undo).await.expect("taken");
            window.sees("Worse.").await;
            read.note(&window);
        }
        let (first, tip) = at(turns(&window)[0], &window);
        answered(&window, retry(session, (first, tip)), &format!("Try {n}.")).await;
        answered(&window, say("And?"), &format!("End {n}.")).await;
        read.note(&window);
    }
    let versions = world
        .engine()
        .versions(session)
        .await
        .expect("they are read");
    let versions: Vec<Vec<u64>> = versions
        .iter()
        .map(|place| place.turns.iter().map(|turn| turn.get()).collect())
        .collect();
    assert_eq!(versions, [[1, 3, 5, 7]], "one place has four versions");
    drop((window, page));

    for round in ["before the restart", "after it"] {
        let window = world.page().await.follow(session);
        window.until_idle().await;
        for turn in [1, 3, 7, 5, 2, 8, 4, 6, 1].map(TurnId::new) {
            if turns(&window).contains(&turn) {
                continue;
            }
            let undo = restore(session, turn, &window);
            world.submit(undo).await.expect("taken");
            let is_there = |shown: &Transcript| shown.turn(turn).map(drop);
            window.until_shown("it to come back", is_there).await;
            assert_eq!(window.text(), read.with(turn), "turn {turn}, {round}");
            read.note(&window);
        }
        judge(&world, session, &[&window]).await;
        drop(window);
        world.quit().await;
        world.open().await;
    }
}

/// When the window goes that asked.
#[derive(Clone, Copy, Debug)]
enum Gone {
    BeforeTheCommit,
    BeforeTheReceipt,
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_goes_on_when_its_window_is_gone() {
    for gone in [Gone::BeforeTheCommit, Gone::BeforeTheReceipt] {
        let (server, world) = (ModelServer::start(DIALECT), World::new().await);
        let page = world.page().await;
        let (session, window) = begin(&world, &server, &page).await;
        server.script(Answer::whole(DIALECT, "Good."));
        let gate = match gone {
            Gone::BeforeTheCommit => Gate::OpHalfWritten,
            Gone::BeforeTheReceipt => Gate::MessageCommitted,
        };
        world.gates.hold(gate);
        let (op_id, op) = (
            OpId::from_bits(random_u128()),
            Click::Edit.op(session, last(&window)),
        );
        {
            let asking = world.line.submit(op_id, op.clone());
            tokio::select! {
                biased;
                answer = asking => panic!("{gone:?}: answered: {answer:?}"),
                () = world.gates.arrived(gate) => {}
            }
        }
        drop((window, page));
        world.gates.release(gate);
        let window = Page::load(&world.line, "another").await.follow(session);
        window.sees("Good.").await;
        let text = window.until_idle().await;
        assert_eq!(
            text, "you: And now?\nmodel: Good.\n(completed)\n",
            "{gone:?}"
        );
        // A reload asks once more.
        let receipt = world.line.submit(op_id, op).await.expect("it ran");
        let (turn, _) = last(&window);
        assert_eq!(receipt.turn, Some(turn), "{gone:?}");
        let events = world.events(session);
        assert_eq!((rewinds(&events), messages(&events)), (1, 2), "{gone:?}");
        judge(&world, session, &[&window]).await;
    }
}

/// Which comes first to the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    TheOp,
    TheEnd,
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_in_the_moment_of_the_end_is_taken_or_refused_by_name() {
    for click in CLICKS {
        for first in [First::TheOp, First::TheEnd] {
            let case = format!("{click:?}, {first:?} first");
            let (server, world) = (ModelServer::start(DIALECT), World::new().await);
            server.script(Answer::whole(DIALECT, "Bad."));
            world.gates.hold(match first {
                First::TheOp => Gate::Decoding,
                First::TheEnd => Gate::BeforeTerminal,
            });
            let session = world.begin(&server, "Say it.").await;
            let window = world.page().await.follow(session);
            window.sees("you: Say it.").await;
            let draft = protocol::Draft::from("And now?");
            let engine = world.engine();
            engine
                .save_draft(Some(session), draft.clone())
                .await
                .expect("kept");
            let op = click.op(session, last(&window));
            let answer = match first {
                First::TheOp => {
                    world.gates.arrived(Gate::Decoding).await;
                    let answer = world.submit(op).await;
                    world.gates.release(Gate::Decoding);
                    answer
                }
                First::TheEnd => {
                    world.gates.arrived(Gate::BeforeTerminal).await;
                    if click == Click::Send {
                        server.script(Answer::whole(DIALECT, "Good."));
                    }
                    let asking = world.submit(op);
                    tokio::pin!(asking);
                    // It is asked while the end is on its way to the disk.
                    tokio::select! {
                        biased;
                        answer = &mut asking => panic!("{case}: answered: {answer:?}"),
                        () = std::future::ready(()) => {}
                    }
                    world.gates.release(Gate::BeforeTerminal);
                    asking.await
                }
            };
            let expected = match (first, click) {
                (First::TheOp, _) => Some(ErrorCode::TurnActive),
                (First::TheEnd, Click::Send) => None,
                // They were decided on a conversation that has ended since.
                (First::TheEnd, Click::Retry | Click::Edit) => Some(ErrorCode::StaleHead),
            };
            let refused = code(answer);
            assert_eq!(refused, expected, "{case}");
            if refused.is_none() {
                window.sees("Good.").await;
            }
            window.until_idle().await;
            let events = world.events(session);
            let turns = if refused.is_none() { 2 } else { 1 };
            assert_eq!((rewinds(&events), messages(&events)), (0, turns), "{case}");
            let kept = engine.draft(Some(session)).await.expect("it can be read");
            let draft = if refused.is_none() {
                protocol::Draft::default()
            } else {
                draft
            };
            assert_eq!(kept, draft, "{case}");
            judge(&world, session, &[&window]).await;
        }
    }
}
