//! `replay-offline`: what was said can be opened and shown again with nobody there to say it, frame by frame as it was.

use protocol::{
    Answer as Word, Dialect, ErrorCode, Event, ItemBody, Op, Seq, SessionId, TurnId, TurnView,
};
use serde_json::json;
use tests::{
    backend::Missed,
    client::Client,
    model_server::{Answer, ModelServer},
    picture, seeded,
    sentinel::random_u128,
    verdict::{judge, recorded},
    world::World,
};
use transcript::{
    Follow, Transcript,
    player::{Moved, Pace, Player, Waits},
};

const PIECES: u64 = 10_000;

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_events_open_and_play_again_and_no_server_is_asked() {
    let server = ModelServer::start(Dialect::Ollama);
    server.script(Answer::whole(Dialect::Ollama, "Yes."));
    let mut world = World::new().await;
    let session = world.begin(&server, "Are you there?").await;
    world.page().await.follow(session).until_idle().await;
    world.quit().await;
    let answer = seeded::add_long_answer(world.data_dir(), session, &server.model(), PIECES);
    let dials = server.counters().dials;
    world.open().await;

    let long = TurnId::new(2);
    let window = world.page().await.follow(session);
    window.sees(&format!("piece{} ", PIECES - 1)).await;
    while window.load_older().await > 0 {}
    let shown = window.look(|shown| shown.and_then(|shown| shown.turn(long).cloned()));
    let shown = shown.expect("the long turn is shown");
    assert!(picture::turns([&shown]).contains(&answer), "the full text");

    let attachments = world.engine().counters().attachments_now;
    let recording = recorded(&world.line, session, long).await;
    assert_eq!(
        world.engine().counters().attachments_now,
        attachments,
        "showing again is not following"
    );
    let mut player = Player::of(recording);
    assert_eq!(player.events() as u64, PIECES + 5);
    assert_eq!(player.total_ms(), 600_005 + (PIECES - 1) * 40);

    // At its recorded pace: nothing is shown before its time, and everything at it.
    let mut changes = Vec::new();
    let mut now = 0;
    player.set_waits(Waits::Exact, now, &mut changes);
    player.play(now, &mut changes);
    while let Some(due) = player.due_in_ms(now) {
        if due > 0 {
            assert_eq!(player.advance(now + due - 1, &mut changes), Moved::Nowhere);
        }
        now += due;
        assert_eq!(player.advance(now, &mut changes), Moved::On);
        changes.clear();
    }
    assert_eq!((now, player.folded()), (player.total_ms(), PIECES + 5));
    assert_eq!(player.frame(), Some(&shown), "it ends as it is stored");

    // And from the middle, faster.
    player.seek(PIECES as usize / 2);
    player.set_pace(Pace::Tenfold, now, &mut changes);
    player.play(now, &mut changes);
    player.advance(now + player.total_ms() / 10, &mut changes);
    assert_eq!(player.frame(), Some(&shown));
    assert_eq!(server.counters().dials, dials, "reading dialled the server");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_frame_of_a_turn_with_a_question_is_what_the_window_showed_then() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = ModelServer::start(Dialect::Ollama);
    let arguments = json!({ "path": "a.txt", "content": "kelp\n" });
    server.script(
        Answer::new(Dialect::Ollama)
            .thinks("I write it down.")
            .says("One moment. ")
            .calls("write_file", arguments)
            .ends(),
    );
    server.script(Answer::whole(Dialect::Ollama, "It is written."));
    let world = World::new().await;
    let session = world.begin_in(&server, folder.path(), "Write kelp.").await;
    let window = world.page().await.follow(session);
    allow(&world, session, &window).await;
    window.until_idle().await;

    let frames = frames(&world, session);
    let player = Player::of(recorded(&world.line, session, TurnId::FIRST).await);
    assert_eq!(frames.len(), player.events());
    shows(player, &frames);
    judge(&world, session, &[&window]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rewound_turn_and_one_that_runs_can_be_shown_and_one_that_never_was_cannot() {
    let server = ModelServer::start(Dialect::Ollama);
    server.script(Answer::whole(Dialect::Ollama, "The first answer."));
    let running = Answer::new(Dialect::Ollama).says("The second ");
    server.script(running.gate("half").says("answer.").ends());
    let world = World::new().await;
    let session = world.begin(&server, "Say something.").await;
    let window = world.page().await.follow(session);
    window.sees("The first answer.").await;
    window.until_idle().await;
    let before = window.look(|shown| shown.and_then(|shown| shown.turn(TurnId::FIRST).cloned()));

    let expected_tip = window.look(|shown| shown.and_then(Transcript::tip));
    world
        .submit(Op::RetryTurn {
            session,
            turn: TurnId::FIRST,
            expected_tip: expected_tip.expect("a tip"),
        })
        .await
        .expect("the turn runs again");
    server.arrived("half").await;
    window.sees("model: The second ").await;

    // The one that was taken out of the conversation, as it was.
    let mut rewound = Player::of(recorded(&world.line, session, TurnId::FIRST).await);
    rewound.seek(usize::MAX);
    assert_eq!(rewound.frame(), before.as_ref());

    // The one that runs, up to now.
    let second = TurnId::new(2);
    let mut running = Player::of(recorded(&world.line, session, second).await);
    running.seek(usize::MAX);
    let now = running.frame().cloned();
    assert!(now.as_ref().is_some_and(|view| view.outcome.is_none()));
    assert_eq!(
        now,
        window.look(|shown| shown.and_then(|shown| shown.turn(second).cloned()))
    );

    server.release("half");
    window.until_idle().await;
    for (session, turn) in [
        (session, TurnId::new(3)),
        (SessionId::from_bits(random_u128()), TurnId::FIRST),
    ] {
        let missed = world.line.load_events(session, turn, None, 1_000).await;
        let Err(Missed::Refused(report)) = missed else {
            panic!("{missed:?}")
        };
        assert_eq!(report.code, ErrorCode::NotFound);
    }
    judge(&world, session, &[&window]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_a_turn_are_bounded_and_each_brings_at_least_one_event() {
    let server = ModelServer::start(Dialect::Ollama);
    let words = "word ".repeat(50);
    let answer = Answer::new(Dialect::Ollama).thinks(&words);
    server.script(answer.says(&words).ends());
    let world = World::new().await;
    let session = world.begin(&server, "Go on.").await;
    let window = world.page().await.follow(session);
    window.until_idle().await;
    let stored: Vec<Event> = world
        .events(session)
        .into_iter()
        .filter(|event| event.turn == Some(TurnId::FIRST))
        .collect();
    let mut after: Option<Seq> = None;
    let mut read = Vec::new();
    loop {
        let page = world
            .line
            .load_events(session, TurnId::FIRST, after, 1)
            .await
            .expect("the turn can be read");
        assert_eq!(page.events.len(), 1, "one, however small the limit");
        after = page.events.last().map(|event| event.seq);
        read.extend(page.events);
        if !page.more_after {
            break;
        }
    }
    assert_eq!(read, stored);
    let end = world
        .line
        .load_events(session, TurnId::FIRST, after, 1)
        .await
        .expect("nothing more is an answer too");
    assert_eq!((end.events.len(), end.more_after), (0, false));
    let whole = world
        .line
        .load_events(session, TurnId::FIRST, None, u32::MAX)
        .await
        .expect("the turn can be read");
    assert_eq!((whole.events, whole.more_after), (stored, false));
}

/// Allows what is asked, once it is.
async fn allow(world: &World, session: SessionId, window: &Client<Transcript>) {
    let question = window
        .until_shown("a question", |shown| {
            let items = shown.turn(TurnId::FIRST)?.items.iter();
            items.into_iter().find_map(|item| match &item.body {
                ItemBody::ToolCall { approval, .. } => approval.as_ref().map(|asked| asked.item),
                ItemBody::UserMessage { .. }
                | ItemBody::Text { .. }
                | ItemBody::Compacted { .. }
                | ItemBody::Unsupported { .. } => None,
            })
        })
        .await;
    world
        .submit(Op::AnswerApproval {
            session,
            turn: TurnId::FIRST,
            item: question,
            answer: Word::AllowOnce,
        })
        .await
        .expect("the answer counts");
}

/// What a window that followed the session showed of its first turn, after each event of it.
fn frames(world: &World, session: SessionId) -> Vec<TurnView> {
    let mut live = Transcript::empty(session, world.reader().log_id());
    let mut frames = Vec::new();
    for event in world.events(session) {
        live.apply(&event, &mut Vec::new());
        if event.turn == Some(TurnId::FIRST) {
            frames.extend(live.turn(TurnId::FIRST).cloned());
        }
    }
    frames
}

/// Every frame, forwards, backwards, and from one end to the other.
fn shows(mut player: Player, frames: &[TurnView]) {
    let mut changes = Vec::new();
    for frame in frames {
        assert_eq!(player.step(&mut changes), Moved::On);
        assert_eq!(player.frame(), Some(frame));
    }
    assert_eq!(player.step(&mut changes), Moved::Nowhere);
    for frame in frames.iter().rev().skip(1) {
        player.back();
        assert_eq!(player.frame(), Some(frame));
    }
    for (from_start, from_end) in (1..=frames.len()).zip((1..=frames.len()).rev()) {
        for position in [from_start, from_end] {
            player.seek(position);
            assert_eq!(player.frame(), frames.get(position - 1));
        }
    }
}
