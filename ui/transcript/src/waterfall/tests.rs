use proptest::prelude::*;
use protocol::{
    Boot, CancelledBy, Effect, Failure, FailureCode, FinishReason, Intent, MessagePurpose,
    ModelRef, OpId, ProviderId, Resolution, Seq, StopReason, ToolOutcome, TurnId, TurnOutcome,
    Usage,
};

use super::*;
use crate::fold::tests::any_body;

struct Told(Vec<Event>);

impl Told {
    fn new() -> Self {
        Self(Vec::new())
            .at(
                0,
                EventBody::UserMessageAdded {
                    item: ItemId::new(1),
                    text: "m".to_owned(),
                    op: OpId::from_bits(1),
                    purpose: MessagePurpose::Said,
                    images: Vec::new(),
                },
            )
            .at(
                0,
                EventBody::TurnStarted {
                    boot: Boot::from_bits(1),
                    message: ItemId::new(1),
                    model: model(),
                    fallbacks: Vec::new(),
                },
            )
    }

    fn at(mut self, ms: i64, body: EventBody) -> Self {
        let seq = Seq::new(self.0.len() as u64 + 1);
        self.0.push(Event {
            seq,
            at: Timestamp::from_millis(1_000_000 + ms),
            turn: Some(TurnId::FIRST),
            body,
        });
        self
    }

    fn asked(self, ms: i64, purpose: Purpose) -> Self {
        self.at(
            ms,
            EventBody::StepStarted {
                step: 1,
                attempt: 1,
                model: model(),
                purpose,
            },
        )
    }

    fn says(self, ms: i64) -> Self {
        self.at(
            ms,
            EventBody::TextAppended {
                item: ItemId::new(2),
                part: protocol::Part::Answer,
                offset: 0,
                text: "a".to_owned(),
            },
        )
    }

    fn ended(self, ms: i64, timings: Timings) -> Self {
        self.at(
            ms,
            EventBody::StepEnded {
                step: 1,
                finish: FinishReason::Stop,
                usage: Usage::default(),
                timings,
                unread: None,
                unseen_images: 0,
                untold_tools: 0,
            },
        )
    }

    fn failed(self, ms: i64, retry_in_ms: Option<u64>) -> Self {
        self.at(
            ms,
            EventBody::AttemptFailed {
                step: 1,
                attempt: 1,
                failure: Failure::new(FailureCode::ConnectFailed, "away"),
                retry_in_ms,
                next: None,
            },
        )
    }

    fn over(self, ms: i64) -> Self {
        self.at(
            ms,
            EventBody::TurnEnded {
                outcome: TurnOutcome::Completed {
                    stop: StopReason::EndOfTurn,
                },
            },
        )
    }

    fn shown(&self) -> Vec<(Part, u64, u64)> {
        let waterfall = Waterfall::of(&self.0, None);
        let segments = waterfall.segments.iter();
        segments.map(|s| (s.part, s.from_ms, s.to_ms())).collect()
    }
}

fn model() -> ModelRef {
    ModelRef {
        provider: ProviderId::from_bits(1),
        provider_name: "box".to_owned(),
        model: "m".to_owned(),
    }
}

fn timings(connect: u64, first: u64, total: u64) -> Timings {
    Timings {
        connect_ms: Some(connect),
        first_content_ms: Some(first),
        total_ms: Some(total),
        ..Timings::default()
    }
}

#[test]
fn a_server_that_says_how_long_it_took_has_each_part_and_the_rest_is_its_queue_and_ours() {
    let told = Told::new().asked(10, Purpose::Answer).says(3_010).ended(
        5_020,
        Timings {
            load_ms: Some(2_000),
            prompt_ms: Some(700),
            decode_ms: Some(1_990),
            ..timings(5, 3_000, 5_000)
        },
    );
    assert_eq!(
        told.over(5_021).shown(),
        [
            (Part::Ours, 0, 10),
            (Part::Connect, 10, 15),
            (Part::Queue, 15, 310),
            (Part::Load, 310, 2_310),
            (Part::Prompt, 2_310, 3_010),
            (Part::Decode, 3_010, 5_010),
            (Part::Ours, 5_010, 5_021),
        ]
    );
}

#[test]
fn a_server_that_says_nothing_has_one_wait_for_the_first_word() {
    let told = Told::new()
        .asked(0, Purpose::Answer)
        .says(800)
        .ended(1_000, timings(3, 800, 1_000));
    assert_eq!(
        told.over(1_000).shown(),
        [
            (Part::Connect, 0, 3),
            (Part::FirstToken, 3, 800),
            (Part::Decode, 800, 1_000),
        ]
    );
}

#[test]
fn durations_that_do_not_fit_between_our_readings_are_cut_to_them() {
    let told = Told::new().asked(0, Purpose::Answer).says(100).ended(
        200,
        Timings {
            load_ms: Some(u64::MAX),
            prompt_ms: Some(u64::MAX),
            ..timings(10, 100, 200)
        },
    );
    assert_eq!(
        told.over(200).shown(),
        [
            (Part::Connect, 0, 10),
            (Part::Load, 10, 100),
            (Part::Decode, 100, 200),
        ]
    );
}

#[test]
fn a_log_from_before_there_were_such_numbers_has_what_its_times_tell() {
    let told = Told::new()
        .asked(0, Purpose::Answer)
        .says(800)
        .ended(1_000, Timings::default());
    assert_eq!(
        told.over(1_000).shown(),
        [(Part::FirstToken, 0, 800), (Part::Decode, 800, 1_000),]
    );
}

#[test]
fn a_failed_request_its_wait_and_its_repeat_stand_one_after_the_other() {
    let told = Told::new()
        .asked(0, Purpose::Answer)
        .failed(50, Some(1_000))
        .asked(1_050, Purpose::Answer)
        .says(1_100)
        .ended(1_200, timings(1, 50, 150));
    assert_eq!(
        told.over(1_200).shown(),
        [
            (Part::Failed, 0, 50),
            (Part::Wait, 50, 1_050),
            (Part::Connect, 1_050, 1_051),
            (Part::FirstToken, 1_051, 1_100),
            (Part::Decode, 1_100, 1_200),
        ]
    );
}

#[test]
fn a_server_that_was_asked_until_it_was_ready_kept_us_waiting_in_its_queue() {
    let told = Told::new()
        .asked(0, Purpose::Answer)
        .says(30_100)
        .ended(30_200, timings(1, 100, 200));
    assert_eq!(
        told.over(30_200).shown(),
        [
            (Part::Queue, 0, 30_000),
            (Part::Connect, 30_000, 30_001),
            (Part::FirstToken, 30_001, 30_100),
            (Part::Decode, 30_100, 30_200),
        ]
    );
}

#[test]
fn tools_run_beside_each_other_and_a_question_is_waiting_for_the_user() {
    let call = |item: u64, name: &str| EventBody::ToolCallRequested {
        item: ItemId::new(item),
        step: 1,
        name: name.to_owned(),
        arguments: "{}".to_owned(),
        call_id: None,
    };
    let item = ItemId::new;
    let done = |item| EventBody::ToolCallFinished {
        item,
        outcome: ToolOutcome::Succeeded {
            output: String::new(),
        },
        effect: Effect::None,
    };
    let told = Told::new()
        .asked(0, Purpose::Answer)
        .at(90, call(2, "read_file"))
        .at(95, call(3, "write_file"))
        .ended(100, timings(1, 90, 100))
        .at(100, EventBody::ToolCallStarted { item: item(2) })
        .at(
            105,
            EventBody::ApprovalRequested {
                item: item(3),
                calls: vec![item(3)],
                tool: "write_file".to_owned(),
                intent: Intent::WriteFile {
                    path: "/a".to_owned(),
                    before: None,
                    after: 1,
                    diff: String::new(),
                    diff_left_out: 0,
                },
                may_have_run: false,
            },
        )
        .at(120, done(item(2)))
        .at(
            5_105,
            EventBody::ApprovalResolved {
                item: item(3),
                resolution: Resolution::AllowedOnce,
            },
        )
        .at(5_105, EventBody::ToolCallStarted { item: item(3) })
        .at(5_205, done(item(3)))
        .asked(5_205, Purpose::Answer);
    let stopped = told.at(
        5_305,
        EventBody::TurnEnded {
            outcome: TurnOutcome::Cancelled {
                by: CancelledBy::User,
            },
        },
    );
    assert_eq!(
        stopped.shown(),
        [
            (Part::Connect, 0, 1),
            (Part::FirstToken, 1, 90),
            (Part::Decode, 90, 100),
            (Part::Tool, 100, 120),
            (Part::Asking, 105, 5_105),
            (Part::Tool, 5_105, 5_205),
            (Part::FirstToken, 5_205, 5_305),
        ]
    );
}

#[test]
fn a_summary_is_named_as_one_and_a_running_turn_is_seen_as_of_now() {
    let told = Told::new().asked(0, Purpose::Summary);
    let now = Timestamp::from_millis(1_000_400);
    let seen = Waterfall::of(&told.0, Some(now));
    assert_eq!(seen.total_ms, 400);
    let words: Vec<String> = seen.segments.iter().map(Segment::words).collect();
    assert_eq!(words, ["until the first word: m (summary)"]);
    assert_eq!(seen.sums(), [(Part::FirstToken, 400)]);
    assert_eq!(Waterfall::of(&[], Some(now)), Waterfall::default());
}

#[test]
fn how_long_holdfast_was_away_is_no_part_of_a_turn_that_recovery_closed() {
    const NEXT_DAY: i64 = 86_400_000;
    let crashed = || EventBody::TurnEnded {
        outcome: TurnOutcome::Interrupted {
            why: InterruptedWhy::Crash,
        },
    };
    let writing = Told::new().asked(0, Purpose::Answer).says(90).says(900);
    let writing = writing.at(NEXT_DAY, crashed());
    assert_eq!(
        writing.shown(),
        [(Part::FirstToken, 0, 90), (Part::Decode, 90, 900)]
    );
    // The question and the call that it left open are closed by recovery too.
    let item = ItemId::new(3);
    let asking = Told::new()
        .asked(0, Purpose::Answer)
        .at(
            50,
            EventBody::ToolCallRequested {
                item,
                step: 1,
                name: "write_file".to_owned(),
                arguments: "{}".to_owned(),
                call_id: None,
            },
        )
        .at(60, EventBody::ToolCallStarted { item })
        .at(
            NEXT_DAY,
            EventBody::ApprovalResolved {
                item,
                resolution: Resolution::Expired,
            },
        )
        .at(
            NEXT_DAY + 1,
            EventBody::ToolCallFinished {
                item,
                outcome: ToolOutcome::Abandoned,
                effect: Effect::Unknown,
            },
        )
        .at(NEXT_DAY + 1, crashed());
    let seen = Waterfall::of(&asking.0, Some(Timestamp::from_millis(2 * NEXT_DAY)));
    assert_eq!(seen.total_ms, 60, "{seen:?}");
    // Whoever closes Holdfast ends the turn while it lives.
    let closed = Told::new().asked(0, Purpose::Answer).says(90).at(
        900,
        EventBody::TurnEnded {
            outcome: TurnOutcome::Interrupted {
                why: InterruptedWhy::AppExit,
            },
        },
    );
    assert_eq!(
        closed.shown(),
        [(Part::FirstToken, 0, 90), (Part::Decode, 90, 900)]
    );
}

#[test]
fn a_sleep_is_shown_and_is_nobodys_queue() {
    let slept = Slept {
        from: Timestamp::from_millis(1_000_100),
        to: Timestamp::from_millis(1_060_100),
    };
    let told = Told::new()
        .asked(0, Purpose::Answer)
        .at(60_100, EventBody::ComputerSlept { slept })
        .ended(60_200, timings(1, 150, 200));
    let shown = told.over(60_200).shown();
    assert!(shown.contains(&(Part::Sleep, 100, 60_100)), "{shown:?}");
    assert!(
        shown.iter().all(|(part, ..)| *part != Part::Queue),
        "{shown:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_log_says_all_of_the_time_is_explained_and_no_segment_lies_outside(
        bodies in proptest::collection::vec((any_body(), 0..5_000_i64), 0..40),
    ) {
        let mut told = Told(Vec::new());
        for (body, ms) in bodies {
            told = told.at(ms, body);
        }
        let waterfall = Waterfall::of(&told.0, None);
        for segment in &waterfall.segments {
            prop_assert!(segment.ms > 0);
            prop_assert!(segment.to_ms() <= waterfall.total_ms, "{:?}", waterfall);
        }
        prop_assert_eq!(gaps(&waterfall.segments, waterfall.total_ms), Vec::new());
    }
}
