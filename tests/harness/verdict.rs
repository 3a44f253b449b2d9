//! What has to hold after every story (INV-1, 33, 34, 64, 119).
//!
//! Invariant: live == replayed == opened cold == shown again == stored, compared as whole values.

use std::collections::{BTreeMap, BTreeSet};

use protocol::{
    Cursor, Event, EventBody, FailureCode, OutcomeKind, Resolution, SessionId, SessionState,
    StreamId, TranscriptPage, TurnId, TurnOutcome,
};
use transcript::{
    Follow, Library, Transcript,
    player::{Gathered, Player, Recording},
};

use crate::{
    backend::Line,
    client::{Client, Page},
    kept_log,
    world::World,
};

/// Judges a session whose turns have all ended, as each of these clients sees it.
///
/// # Panics
/// With what does not hold.
pub async fn judge(world: &World, session: SessionId, live: &[&Client<Transcript>]) {
    let reader = world.reader();
    let events = world.events(session);
    laws_hold(&events);
    kept_log::keep(&events);

    let stored = reader.transcript(session).expect("the session can be read");
    let replayed = replay(session, Cursor::at_start(reader.log_id()), &events);
    assert_eq!(
        replayed, stored,
        "the replayed transcript is not the stored one"
    );

    for client in live {
        let head = stored.as_of;
        client
            .until_shown("the client to have every event", |shown| {
                (shown.cursor() == head).then_some(())
            })
            .await;
        client.no_contradictions();
        let shown = client.to_page().expect("something is shown");
        assert_eq!(
            whole(shown),
            whole(stored.clone()),
            "the living transcript is not the stored one"
        );
    }

    let cold = Page::load(&world.line, "a cold window")
        .await
        .follow(session);
    cold.until_shown("the cold window to have every event", |shown| {
        (shown.cursor() == stored.as_of).then_some(())
    })
    .await;
    while cold.load_older().await > 0 {}
    let shown = cold.to_page().expect("something is shown");
    assert_eq!(
        whole(shown),
        whole(stored.clone()),
        "the transcript opened cold is not the stored one"
    );

    the_players_agree(world, session, &stored).await;
    the_library_agrees(world, session, &stored).await;
}

/// Every turn that is shown again ends as it is stored.
async fn the_players_agree(world: &World, session: SessionId, stored: &TranscriptPage) {
    for view in &stored.turns {
        let mut player = Player::of(recorded(&world.line, session, view.turn).await);
        player.seek(usize::MAX);
        assert_eq!(
            player.frame(),
            Some(view),
            "a turn that is shown again does not end as it did"
        );
    }
}

/// A turn's events, read as the window reads them: in pages, without an attachment.
pub async fn recorded(line: &Line, session: SessionId, turn: TurnId) -> Recording {
    /// Small, so that there are several.
    const PAGE_BYTES: u32 = 16 * 1024;
    let mut recording = Recording::of(session, turn);
    loop {
        let page = line
            .load_events(session, turn, recording.after(), PAGE_BYTES)
            .await
            .expect("the turn can be read");
        match recording.take(page).expect("the pages join on") {
            Gathered::More => {}
            Gathered::Whole => return recording,
        }
    }
}

/// What holds of any session at rest, by its events alone.
///
/// # Panics
/// With what does not hold.
pub fn laws_hold(events: &[Event]) {
    seqs_are_dense(events);
    texts_only_grow(events);
    every_turn_has_one_end_and_nothing_after_it(events);
    every_call_has_one_result(events);
    every_question_has_one_answer(events);
    nothing_runs_before_its_word(events);
    nobody_needed_the_backstop(events);
}

/// A transcript from its events alone.
pub fn replay(session: SessionId, start: Cursor, events: &[Event]) -> TranscriptPage {
    let mut transcript = Transcript::empty(session, start.log());
    let mut changes = Vec::new();
    events
        .iter()
        .for_each(|event| transcript.apply(event, &mut changes));
    transcript.to_page()
}

/// Whether older turns were loaded is the window's business.
fn whole(page: TranscriptPage) -> TranscriptPage {
    TranscriptPage {
        more_before: false,
        ..page
    }
}

fn seqs_are_dense(events: &[Event]) {
    for (event, expected) in events.iter().zip(1..) {
        assert_eq!(event.seq.get(), expected, "the seqs have a hole");
    }
}

fn texts_only_grow(events: &[Event]) {
    let mut lengths = BTreeMap::new();
    for event in events {
        if let EventBody::TextAppended {
            item, offset, text, ..
        } = &event.body
        {
            let length = lengths.entry(*item).or_insert(0);
            assert_eq!(
                offset, length,
                "event {} does not begin where its item ends",
                event.seq
            );
            assert!(!text.is_empty(), "event {} says nothing", event.seq);
            *length += text.len() as u64;
        }
    }
}

fn every_turn_has_one_end_and_nothing_after_it(events: &[Event]) {
    let turns = |wanted: fn(&EventBody) -> bool| -> Vec<TurnId> {
        let events = events.iter().filter(|event| wanted(&event.body));
        events
            .map(|event| event.turn.expect("it belongs to a turn"))
            .collect()
    };
    let started = turns(|body| matches!(body, EventBody::TurnStarted { .. }));
    let ended = turns(|body| matches!(body, EventBody::TurnEnded { .. }));
    assert_eq!(
        started, ended,
        "turns that started, and turns that ended, in order"
    );
    for turn in ended {
        let last = events
            .iter()
            .rfind(|event| event.turn == Some(turn))
            .expect("it has events");
        assert!(
            matches!(last.body, EventBody::TurnEnded { .. }),
            "{last:?} follows its turn's end"
        );
    }
}

fn every_call_has_one_result(events: &[Event]) {
    let items = |wanted: fn(&EventBody) -> bool| -> BTreeSet<_> {
        let bodies = events
            .iter()
            .map(|event| &event.body)
            .filter(|body| wanted(body));
        bodies.filter_map(EventBody::item).collect()
    };
    assert_eq!(
        items(|body| matches!(body, EventBody::ToolCallRequested { .. })),
        items(|body| matches!(body, EventBody::ToolCallFinished { .. })),
        "calls that were made, and calls that have a result"
    );
}

fn every_question_has_one_answer(events: &[Event]) {
    let (mut asked, mut answered) = (Vec::new(), Vec::new());
    for event in events {
        if let EventBody::ApprovalRequested { item, .. } = &event.body {
            asked.push(*item);
        }
        if let EventBody::ApprovalResolved { item, .. } = &event.body {
            answered.push(*item);
        }
    }
    asked.sort_unstable();
    answered.sort_unstable();
    assert_eq!(asked, answered, "questions, and their answers");
}

/// L2: a call that was asked about starts only after it was allowed, and every call only after it was made.
fn nothing_runs_before_its_word(events: &[Event]) {
    let (mut made, mut open) = (BTreeSet::new(), BTreeMap::new());
    for event in events {
        match &event.body {
            EventBody::ToolCallRequested { item, .. } => {
                made.insert(*item);
            }
            EventBody::ApprovalRequested { item, calls, .. } => {
                open.extend(calls.iter().map(|call| (*call, *item)));
            }
            EventBody::ApprovalResolved {
                item,
                resolution: Resolution::AllowedOnce | Resolution::AllowedForSession,
            } => open.retain(|_, question| question != item),
            EventBody::ToolCallStarted { item } => {
                assert!(made.contains(item), "{event:?}: nobody asked for it");
                assert!(!open.contains_key(item), "{event:?}: it was not allowed");
            }
            _ => {}
        }
    }
}

fn nobody_needed_the_backstop(events: &[Event]) {
    for event in events {
        if let EventBody::TurnEnded {
            outcome: TurnOutcome::Failed { failure },
        } = &event.body
        {
            assert_ne!(failure.code, FailureCode::Aborted, "{event:?}");
        }
    }
}

async fn the_library_agrees(world: &World, session: SessionId, stored: &TranscriptPage) {
    let page = world.line.library().await.expect("the library can be read");
    let library = Library::from(page);
    let listed = library.session(session).expect("the session is listed");
    assert_eq!(listed.title, stored.title);
    let last = stored.turns.last().and_then(|turn| turn.outcome.as_ref());
    let outcome: &TurnOutcome = last.expect("the last turn has ended");
    assert_eq!(
        listed.state,
        SessionState::Ended {
            outcome: OutcomeKind::from(outcome)
        }
    );

    let reader = world.reader();
    let events = reader
        .events(StreamId::Library, None, usize::MAX)
        .expect("it can be read");
    seqs_are_dense(&events);
    let mut replayed = Library::empty(reader.log_id());
    let mut changes = Vec::new();
    events
        .iter()
        .for_each(|event| replayed.apply(event, &mut changes));
    assert_eq!(
        replayed, library,
        "the replayed library is not the served one"
    );
}
