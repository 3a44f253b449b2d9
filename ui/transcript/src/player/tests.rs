//! The player, by stories of time and by any events at all.

use proptest::prelude::*;
use protocol::{
    Boot, Cursor, Effect, Event, EventBody, EventPage, Failure, FailureCode, Intent, ItemId, LogId,
    MessagePurpose, ModelRef, OpId, Origin, Part, Phase, ProviderId, Purpose, Resolution, Seq,
    SessionId, StopReason, Timestamp, ToolOutcome, TurnId, TurnOutcome,
};

use super::{Gathered, LONG_WAIT_MS, MarkKind, Moved, Pace, Player, Recording, Torn, Waits};
use crate::fold::{Follow, Transcript, fold_turn, tests::any_body};

const SESSION: SessionId = SessionId::from_bits(1);
const LOG: LogId = LogId::from_bits(2);
const TURN: TurnId = TurnId::FIRST;

fn model(name: &str) -> ModelRef {
    ModelRef {
        provider: ProviderId::from_bits(3),
        provider_name: "Ollama".to_owned(),
        model: name.to_owned(),
    }
}

fn page(events: &[Event], more_after: bool) -> EventPage {
    EventPage {
        session: SESSION,
        turn: TURN,
        events: events.to_vec(),
        more_after,
        as_of: Cursor::from_count(LOG, 1_000),
    }
}

fn player(events: &[Event]) -> Player {
    let mut recording = Recording::of(SESSION, TURN);
    recording
        .take(page(events, false))
        .expect("events of one turn");
    Player::of(recording)
}

/// Events of the turn, each so long after the first.
fn turn(bodies: Vec<(i64, EventBody)>) -> Vec<Event> {
    let events = bodies.into_iter().zip(7..);
    events
        .map(|((at, body), seq)| Event {
            seq: Seq::new(seq),
            at: Timestamp::from_millis(1_000_000 + at),
            turn: Some(TURN),
            body,
        })
        .collect()
}

fn asked(text: &str) -> EventBody {
    EventBody::UserMessageAdded {
        item: ItemId::new(1),
        text: text.to_owned(),
        op: OpId::from_bits(1),
        purpose: MessagePurpose::Said,
        images: Vec::new(),
    }
}

fn started() -> EventBody {
    EventBody::TurnStarted {
        boot: Boot::from_bits(1),
        message: ItemId::new(1),
        model: model("a"),
        fallbacks: vec![model("b")],
    }
}

fn step(step: u32, name: &str) -> EventBody {
    EventBody::StepStarted {
        step,
        attempt: 1,
        model: model(name),
        purpose: Purpose::Answer,
    }
}

fn says(item: u64, part: Part, offset: u64, text: &str) -> EventBody {
    EventBody::TextAppended {
        item: ItemId::new(item),
        part,
        offset,
        text: text.to_owned(),
    }
}

fn fails(step: u32, retry_in_ms: Option<u64>, next: Option<&str>) -> EventBody {
    EventBody::AttemptFailed {
        step,
        attempt: 1,
        failure: Failure::new(FailureCode::ConnectFailed, "nobody answers"),
        retry_in_ms,
        next: next.map(model),
    }
}

fn completed() -> EventBody {
    EventBody::TurnEnded {
        outcome: TurnOutcome::Completed {
            stop: StopReason::EndOfTurn,
        },
    }
}

/// A message, a wait of 4 min 12 s, three words a second apart, the end.
fn a_slow_answer() -> Vec<Event> {
    turn(vec![
        (0, asked("Go on.")),
        (0, started()),
        (10, step(1, "a")),
        (252_010, says(2, Part::Answer, 0, "one ")),
        (253_010, says(2, Part::Answer, 4, "two ")),
        (254_010, says(2, Part::Answer, 8, "three")),
        (254_010, completed()),
    ])
}

/// Everything there is to mark.
fn an_eventful_turn() -> Vec<Event> {
    let call = ItemId::new(4);
    turn(vec![
        (0, asked("Go on.")),
        (0, started()),
        (1, step(1, "a")),
        (2, fails(1, Some(1_000), None)),
        (1_002, step(1, "a")),
        (1_003, fails(1, None, Some("b"))),
        (1_004, step(1, "b")),
        (1_005, says(2, Part::Reasoning, 0, "Hm. ")),
        (1_006, says(2, Part::Reasoning, 4, "Yes.")),
        (1_007, says(3, Part::Answer, 0, "I write.")),
        (
            1_008,
            EventBody::ToolCallRequested {
                item: call,
                step: 1,
                name: "write_file".to_owned(),
                arguments: "{}".to_owned(),
                call_id: None,
            },
        ),
        (
            1_009,
            EventBody::ApprovalRequested {
                item: call,
                calls: vec![call],
                tool: "write_file".to_owned(),
                intent: Intent::WriteFile {
                    path: "/a".to_owned(),
                    before: None,
                    after: 1,
                    diff: "+x".to_owned(),
                    diff_left_out: 0,
                },
                may_have_run: false,
            },
        ),
        (
            9_000,
            EventBody::ApprovalResolved {
                item: call,
                resolution: Resolution::AllowedOnce,
            },
        ),
        (9_001, EventBody::ToolCallStarted { item: call }),
        (
            9_002,
            EventBody::ToolCallFinished {
                item: call,
                outcome: ToolOutcome::Succeeded {
                    output: "done".to_owned(),
                },
                effect: Effect::Committed,
            },
        ),
        (
            9_003,
            EventBody::HistoryCompacted {
                item: ItemId::new(5),
                through: None,
                summary: "s".to_owned(),
                set_aside: vec![],
            },
        ),
        (9_004, completed()),
    ])
}

#[test]
fn a_turn_plays_at_its_pace_and_a_long_wait_is_shortened_and_told() {
    let mut player = player(&a_slow_answer());
    let mut changes = Vec::new();
    assert_eq!(player.total_ms(), 254_010);
    assert_eq!(player.frame(), None, "nothing is shown before it begins");

    assert_eq!(player.play(5_000, &mut changes), Moved::On);
    assert_eq!(
        player.position(),
        2,
        "the message and its turn are one commit"
    );
    assert_eq!(player.due_in_ms(5_000), Some(10));
    assert_eq!(player.advance(5_009, &mut changes), Moved::Nowhere);
    assert_eq!(player.advance(5_010, &mut changes), Moved::On);
    assert_eq!((player.position(), player.wait_ms()), (3, None));

    // 252 s of waiting pass in two.
    assert_eq!(player.due_in_ms(5_010), Some(LONG_WAIT_MS));
    assert_eq!(player.advance(6_010, &mut changes), Moved::Nowhere);
    assert_eq!(player.wait_ms(), Some(252_000));
    assert_eq!(player.elapsed_ms(), 126_010, "half of the wait has passed");
    assert_eq!(player.advance(7_010, &mut changes), Moved::On);
    assert_eq!((player.position(), player.elapsed_ms()), (4, 252_010));
    assert_eq!(player.wait_ms(), Some(252_000), "told once it is over, too");

    assert_eq!(player.advance(8_010, &mut changes), Moved::On);
    assert_eq!(player.wait_ms(), None);
    assert_eq!(player.advance(60_000, &mut changes), Moved::On);
    assert!(player.is_at_end() && !player.is_playing());
    assert_eq!(player.elapsed_ms(), 254_010);
    assert_eq!(player.due_in_ms(60_000), None);
    assert_eq!(player.frame().cloned(), fold_turn(&a_slow_answer()));
}

#[test]
fn paces_multiply_the_time_that_passes_and_exact_waits_are_waited_out() {
    let mut player = player(&a_slow_answer());
    let mut changes = Vec::new();
    player.set_pace(Pace::Tenfold, 0, &mut changes);
    player.play(0, &mut changes);
    player.advance(1, &mut changes);
    assert_eq!(player.position(), 3);
    assert_eq!(player.due_in_ms(1), Some(200));

    player.set_waits(Waits::Exact, 1, &mut changes);
    assert_eq!(player.due_in_ms(1), Some(25_200));
    player.set_pace(Pace::Double, 1, &mut changes);
    assert_eq!(player.due_in_ms(1), Some(126_000));
    player.advance(126_000, &mut changes);
    assert_eq!(player.position(), 3);
    player.advance(126_001, &mut changes);
    assert_eq!(player.position(), 4);
    assert_eq!(player.wait_ms(), Some(252_000));
}

#[test]
fn what_is_paused_stands_still_and_goes_on_where_it_was() {
    let mut player = player(&a_slow_answer());
    let mut changes = Vec::new();
    player.seek(4);
    player.play(100, &mut changes);
    player.pause(600, &mut changes);
    assert_eq!((player.position(), player.elapsed_ms()), (4, 252_510));
    assert_eq!(player.advance(90_000, &mut changes), Moved::Nowhere);
    assert_eq!(player.due_in_ms(90_000), None);
    player.play(90_000, &mut changes);
    assert_eq!(player.due_in_ms(90_000), Some(500));
    // A clock that goes back passes no time.
    assert_eq!(player.advance(50, &mut changes), Moved::Nowhere);
    assert_eq!(player.advance(90_500, &mut changes), Moved::On);
    assert_eq!(player.position(), 5);
}

#[test]
fn playing_at_the_end_begins_again_and_step_by_step_play_shows_one_event() {
    let mut player = player(&a_slow_answer());
    let mut changes = Vec::new();
    player.seek(usize::MAX);
    assert!(player.is_at_end());
    assert_eq!(player.play(0, &mut changes), Moved::Anew);
    assert_eq!((player.position(), player.is_playing()), (2, true));

    player.set_pace(Pace::Step, 0, &mut changes);
    assert!(!player.is_playing());
    for position in 3..=7 {
        assert_eq!(player.play(0, &mut changes), Moved::On);
        assert_eq!(player.position(), position);
    }
    assert_eq!(player.play(0, &mut changes), Moved::Nowhere);
}

#[test]
fn a_step_costs_one_event_and_going_back_at_most_the_one_turn() {
    let events = a_slow_answer();
    let mut player = player(&events);
    let mut changes = Vec::new();
    for _ in 0..5 {
        player.step(&mut changes);
    }
    assert_eq!(player.folded(), 5);
    assert_eq!(player.back(), Moved::Anew);
    assert_eq!((player.position(), player.folded()), (4, 9));
    player.seek(6);
    assert_eq!(player.folded(), 11, "forwards, only what is new");
    player.seek(6);
    assert_eq!(player.folded(), 11);
    player.back();
    player.back();
    player.back();
    player.back();
    player.back();
    player.back();
    assert_eq!(player.position(), 0);
    assert_eq!(player.back(), Moved::Nowhere);
}

#[test]
fn a_time_finds_what_had_happened_by_then() {
    let mut player = player(&a_slow_answer());
    for (ms, position) in [
        (0, 2),
        (9, 2),
        (10, 3),
        (252_009, 3),
        (252_010, 4),
        (u64::MAX, 7),
    ] {
        player.seek_time(ms);
        assert_eq!(player.position(), position, "{ms}");
    }
}

#[test]
fn marks_are_found_forwards_and_back() {
    let events = an_eventful_turn();
    let mut player = player(&events);
    let kinds: Vec<_> = player
        .marks()
        .iter()
        .map(|mark| (mark.position, mark.kind))
        .collect();
    let expected = [
        (1, MarkKind::Message),
        (4, MarkKind::Retry),
        (6, MarkKind::Failover),
        (8, MarkKind::Reasoning),
        (10, MarkKind::Text),
        (11, MarkKind::ToolCall),
        (12, MarkKind::Approval),
        (13, MarkKind::Answered),
        (16, MarkKind::Compaction),
        (17, MarkKind::End),
    ];
    assert_eq!(kinds, expected);
    let there: Vec<_> = expected
        .iter()
        .map(|(position, _)| {
            player.seek_next_mark();
            assert_eq!(player.position(), *position);
            *position
        })
        .collect();
    for position in there.iter().rev().skip(1) {
        player.seek_previous_mark();
        assert_eq!(player.position(), *position);
    }
    player.seek_previous_mark();
    assert_eq!(player.position(), 0);
}

#[test]
fn what_the_turn_was_doing_is_told_from_its_events() {
    let mut player = player(&an_eventful_turn());
    let mut changes = Vec::new();
    let mut told = Vec::new();
    while player.step(&mut changes) == Moved::On {
        let words = crate::words::phase(&player.phase()).unwrap_or_default();
        if told.last() != Some(&words) {
            told.push(words);
        }
    }
    assert_eq!(
        told,
        [
            "",
            "waiting for a",
            "nobody answers; trying again",
            "waiting for a",
            "waiting for b",
            "thinking",
            "writing",
            "preparing write_file",
            "waiting for you",
            "preparing write_file",
            "running write_file",
            "waiting for b",
            "",
        ]
    );
    assert_eq!(player.phase(), Phase::Idle);
}

#[test]
fn a_recording_takes_only_what_joins_on() {
    let events = a_slow_answer();
    let mut recording = Recording::of(SESSION, TURN);
    assert_eq!(recording.after(), None);
    assert_eq!(recording.take(page(&events[..3], true)), Ok(Gathered::More));
    assert_eq!(recording.after(), Some(Seq::new(9)));
    assert_eq!(
        recording.take(page(&events[2..4], true)),
        Err(Torn::NotNext),
        "the same event twice"
    );
    assert_eq!(recording.take(page(&[], true)), Err(Torn::NoProgress));
    let elsewhere = EventPage {
        as_of: Cursor::from_count(LogId::from_bits(9), 1_000),
        ..page(&events[3..], false)
    };
    assert_eq!(recording.take(elsewhere), Err(Torn::OtherLog));
    let other = EventPage {
        turn: TurnId::new(2),
        ..page(&events[3..], false)
    };
    assert_eq!(recording.take(other), Err(Torn::OtherTurn));
    let mut foreign = events[3..].to_vec();
    foreign[1].turn = None;
    assert_eq!(recording.take(page(&foreign, false)), Err(Torn::OtherTurn));

    assert_eq!(
        recording.take(page(&events[3..], false)),
        Ok(Gathered::Whole)
    );
    let mut player = Player::of(recording);
    player.seek(usize::MAX);
    assert_eq!(player.frame().cloned(), fold_turn(&events));
}

#[test]
fn a_turn_of_no_events_can_be_played_too() {
    let mut player = Player::of(Recording::of(SESSION, TURN));
    let mut changes = Vec::new();
    assert_eq!(player.play(0, &mut changes), Moved::Nowhere);
    assert_eq!(player.step(&mut changes), Moved::Nowhere);
    assert_eq!(player.seek_next_mark(), Moved::Nowhere);
    assert_eq!((player.elapsed_ms(), player.total_ms()), (0, 0));
    assert_eq!(player.phase(), Phase::Idle);
}

/// What a reader can do.
#[derive(Clone, Debug)]
enum Deed {
    Seek(usize),
    Step,
    Back,
    NextMark,
    PreviousMark,
    Time(u64),
    Play(u64),
    Pause(u64),
    Pace(usize, u64),
    Waits(bool, u64),
}

fn any_deed() -> impl Strategy<Value = Deed> {
    let passes = || 0..3_000_u64;
    prop_oneof![
        (0..50_usize).prop_map(Deed::Seek),
        Just(Deed::Step),
        Just(Deed::Back),
        Just(Deed::NextMark),
        Just(Deed::PreviousMark),
        (0..100_000_u64).prop_map(Deed::Time),
        passes().prop_map(Deed::Play),
        passes().prop_map(Deed::Pause),
        (0..4_usize, passes()).prop_map(|(pace, ms)| Deed::Pace(pace, ms)),
        (any::<bool>(), passes()).prop_map(|(exact, ms)| Deed::Waits(exact, ms)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn however_one_got_there_a_frame_is_the_fold_of_the_events_before_it(
        bodies in proptest::collection::vec((-5_000..5_000_i64, any_body()), 0..40),
        deeds in proptest::collection::vec(any_deed(), 0..40),
    ) {
        let mut at = 0;
        let timed = bodies.into_iter().map(|(gap, body)| {
            at += gap;
            (at, body)
        });
        let events = turn(timed.collect());
        let mut player = player(&events);
        let mut now = 0;
        let mut changes = Vec::new();
        for deed in deeds {
            let elapsed = player.elapsed_ms();
            let mut onwards = false;
            match deed {
                Deed::Seek(position) => { player.seek(position); }
                Deed::Step => { player.step(&mut changes); }
                Deed::Back => { player.back(); }
                Deed::NextMark => { player.seek_next_mark(); }
                Deed::PreviousMark => { player.seek_previous_mark(); }
                Deed::Time(ms) => { player.seek_time(ms); }
                Deed::Play(ms) => {
                    now += ms;
                    onwards = !player.is_at_end();
                    player.play(now, &mut changes);
                    prop_assert!(player.position() > 0 || events.is_empty() || player.due_in_ms(now).is_some());
                }
                Deed::Pause(ms) => {
                    now += ms;
                    onwards = true;
                    player.pause(now, &mut changes);
                }
                Deed::Pace(pace, ms) => {
                    now += ms;
                    onwards = true;
                    player.set_pace(Pace::ALL[pace], now, &mut changes);
                }
                Deed::Waits(exact, ms) => {
                    now += ms;
                    let waits = if exact { Waits::Exact } else { Waits::Shortened };
                    player.set_waits(waits, now, &mut changes);
                }
            }
            let prefix = &events[..player.position()];
            prop_assert_eq!(player.frame().cloned(), fold_turn(prefix));
            prop_assert!(player.elapsed_ms() <= player.total_ms());
            prop_assert!(!onwards || player.elapsed_ms() >= elapsed, "time ran back");
            prop_assert_eq!(player.last(), prefix.last());
            // Whatever is asked in between, it can be told in words.
            let _ = (player.phase(), player.wait_ms(), player.moment());
        }
        player.seek(0);
        player.set_pace(Pace::Tenfold, now, &mut changes);
        player.play(now, &mut changes);
        while let Some(due) = player.due_in_ms(now) {
            now += due;
            prop_assert_eq!(player.advance(now, &mut changes), Moved::On, "what is due is shown");
        }
        prop_assert!(player.is_at_end());
        prop_assert_eq!(player.elapsed_ms(), player.total_ms());
        prop_assert_eq!(player.frame().cloned(), fold_turn(&events));
    }

    #[test]
    fn a_frame_is_what_the_window_showed_when_it_happened(
        bodies in proptest::collection::vec((any::<bool>(), any_body()), 0..40),
    ) {
        // A live transcript, in which the session's own events stand between those of the turn.
        let mut live = Transcript::empty(SESSION, LOG);
        let mut told = Vec::new();
        let mut say = |turn: Option<TurnId>, body: EventBody| {
            let seq = live.cursor().count() + 1;
            let event = Event {
                seq: Seq::new(seq),
                at: Timestamp::from_millis(seq as i64),
                turn,
                body,
            };
            live.apply(&event, &mut Vec::new());
            (event, live.turn(TURN).cloned())
        };
        say(None, EventBody::SessionStarted { session: SESSION, origin: Origin::Conversation });
        for (beside, body) in bodies {
            // A rewind takes the turn away; what is shown again is what it was.
            let rewinds = matches!(body, EventBody::HistoryRewound { .. });
            if beside {
                let title = EventBody::ModelChosen { model: model("c") };
                say(None, title);
            }
            if !rewinds {
                told.push(say(Some(TURN), body));
            }
        }
        let events: Vec<Event> = told.iter().map(|(event, _)| event.clone()).collect();
        let mut player = player(&events);
        let mut changes = Vec::new();
        for (_, then) in told {
            player.step(&mut changes);
            prop_assert_eq!(player.frame(), then.as_ref());
        }
    }
}
