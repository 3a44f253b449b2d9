//! The fold, by stories of events and by any events at all.

use proptest::prelude::*;
use protocol::{
    Admission, AttemptState, Boot, CancelledBy, Cursor, Dialect, Effect, Event, EventBody, Failure,
    FailureCode, FinishReason, Intent, ItemBody, ItemId, LogId, MessagePurpose, ModelRef, OpId,
    Origin, OutcomeKind, Page, Part, Place, Provider, ProviderId, Purpose, Resolution, RewindFor,
    Seq, SessionId, SessionState, Slept, StopReason, Think, Timestamp, Timings, TitleBy,
    ToolOutcome, ToolState, TranscriptPage, TurnId, TurnOutcome, TurnView, Usage,
};

use super::{
    Change, DAMAGED_RECORD, DAMAGED_TEXT, Declined, Follow, LATE_EVENTS, Library, LibraryChange,
    Transcript, WrongPage, fold_turn,
};

const LOG: LogId = LogId::from_bits(1);
const SESSION: SessionId = SessionId::from_bits(2);
const T1: TurnId = TurnId::new(1);
const T2: TurnId = TurnId::new(2);
const T3: TurnId = TurnId::new(3);

fn item(number: u64) -> ItemId {
    ItemId::new(number)
}

fn model(name: &str) -> ModelRef {
    ModelRef {
        provider: ProviderId::from_bits(3),
        provider_name: "Ollama".to_owned(),
        model: name.to_owned(),
    }
}

/// Writes a log: every event gets the next seq, and a second later than the last.
#[derive(Default)]
struct Log(Vec<Event>);

impl Log {
    fn started() -> Self {
        let mut log = Self::default();
        log.say(
            None,
            EventBody::SessionStarted {
                session: SESSION,
                origin: Origin::Conversation,
            },
        );
        log
    }

    fn say(&mut self, turn: impl Into<Option<TurnId>>, body: EventBody) -> &mut Self {
        let seq = self.0.len() as u64 + 1;
        self.0.push(Event {
            seq: Seq::new(seq),
            at: Timestamp::from_millis(seq as i64 * 1_000),
            turn: turn.into(),
            body,
        });
        self
    }

    fn begin(&mut self, turn: TurnId, message: u64) -> &mut Self {
        self.say(
            turn,
            EventBody::UserMessageAdded {
                item: item(message),
                text: format!("message {message}"),
                op: OpId::from_bits(u128::from(message)),
                purpose: MessagePurpose::Said,
                images: Vec::new(),
            },
        )
        .say(
            turn,
            EventBody::TurnStarted {
                boot: Boot::from_bits(4),
                message: item(message),
                model: model("llama3.2"),
                fallbacks: Vec::new(),
            },
        )
    }

    fn step(&mut self, turn: TurnId, step: u32) -> &mut Self {
        self.say(
            turn,
            EventBody::StepStarted {
                step,
                attempt: 1,
                model: model("llama3.2"),
                purpose: Purpose::Answer,
            },
        )
    }

    fn text(
        &mut self,
        turn: TurnId,
        number: u64,
        part: Part,
        offset: u64,
        text: &str,
    ) -> &mut Self {
        self.say(
            turn,
            EventBody::TextAppended {
                item: item(number),
                part,
                offset,
                text: text.to_owned(),
            },
        )
    }

    fn call(&mut self, turn: TurnId, number: u64) -> &mut Self {
        self.say(
            turn,
            EventBody::ToolCallRequested {
                item: item(number),
                step: 1,
                name: "read_file".to_owned(),
                arguments: "{}".to_owned(),
                // Providers repeat these; nothing may depend on them.
                call_id: Some("call_0".to_owned()),
            },
        )
    }

    fn run(&mut self, turn: TurnId, number: u64) -> &mut Self {
        self.say(turn, EventBody::ToolCallStarted { item: item(number) })
    }

    fn result(&mut self, turn: TurnId, number: u64, output: &str) -> &mut Self {
        self.say(
            turn,
            EventBody::ToolCallFinished {
                item: item(number),
                outcome: ToolOutcome::Succeeded {
                    output: output.to_owned(),
                },
                effect: Effect::Committed,
            },
        )
    }

    fn step_end(&mut self, turn: TurnId, step: u32) -> &mut Self {
        self.say(
            turn,
            EventBody::StepEnded {
                step,
                finish: FinishReason::Stop,
                usage: Usage::default(),
                timings: Timings::default(),
                unread: None,
                unseen_images: 0,
                untold_tools: 0,
            },
        )
    }

    fn end(&mut self, turn: TurnId) -> &mut Self {
        self.say(
            turn,
            EventBody::TurnEnded {
                outcome: TurnOutcome::Completed {
                    stop: StopReason::EndOfTurn,
                },
            },
        )
    }

    fn rewind(&mut self, from: TurnId) -> &mut Self {
        self.say(
            None,
            EventBody::HistoryRewound {
                from,
                purpose: RewindFor::Retry,
            },
        )
    }

    /// A whole short turn: a message, an answer, an end.
    fn turn(&mut self, turn: TurnId, message: u64) -> &mut Self {
        self.begin(turn, message)
            .step(turn, 1)
            .text(
                turn,
                message + 1,
                Part::Answer,
                0,
                &format!("answer {message}"),
            )
            .step_end(turn, 1)
            .end(turn)
    }

    fn folded(&self) -> Transcript {
        self.folded_to(self.0.len())
    }

    fn folded_to(&self, count: usize) -> Transcript {
        let mut transcript = Transcript::empty(SESSION, LOG);
        apply(&mut transcript, &self.0[..count]);
        transcript
    }

    fn of_turn(&self, turn: TurnId) -> Vec<Event> {
        self.0
            .iter()
            .filter(|event| event.turn == Some(turn))
            .cloned()
            .collect()
    }
}

fn apply<F: Follow>(fold: &mut F, events: &[Event]) -> Vec<F::Change> {
    let mut changes = Vec::new();
    for event in events {
        fold.apply(event, &mut changes);
    }
    changes
}

fn turn_ids(transcript: &Transcript) -> Vec<u64> {
    transcript.turns().map(|view| view.turn.get()).collect()
}

fn kinds(view: &TurnView) -> Vec<&'static str> {
    view.items
        .iter()
        .map(|item| match &item.body {
            ItemBody::UserMessage { .. } => "message",
            ItemBody::Text {
                part: Part::Answer, ..
            } => "answer",
            ItemBody::Text {
                part: Part::Reasoning,
                ..
            } => "reasoning",
            ItemBody::ToolCall { .. } => "tool",
            ItemBody::Compacted { .. } => "compacted",
            ItemBody::Unsupported { .. } => "unsupported",
        })
        .collect()
}

fn text_of(transcript: &Transcript, turn: TurnId, number: u64) -> (String, bool) {
    match transcript.item(turn, item(number)).map(|view| &view.body) {
        Some(ItemBody::Text { text, open, .. }) => (text.clone(), *open),
        other => panic!("no text: {other:?}"),
    }
}

fn tool_of(transcript: &Transcript, turn: TurnId, number: u64) -> ToolState {
    match transcript.item(turn, item(number)).map(|view| &view.body) {
        Some(ItemBody::ToolCall { state, .. }) => state.clone(),
        other => panic!("no tool: {other:?}"),
    }
}

fn marks(view: &TurnView) -> Vec<&str> {
    view.items
        .iter()
        .filter_map(|item| match &item.body {
            ItemBody::Unsupported {
                original_kind: kind,
            } => Some(kind.as_str()),
            ItemBody::UserMessage { .. }
            | ItemBody::Text { .. }
            | ItemBody::ToolCall { .. }
            | ItemBody::Compacted { .. } => None,
        })
        .collect()
}

/// Two turns with everything in them, one of them rewound and said again.
fn story() -> Log {
    let mut log = Log::started();
    log.say(
        None,
        EventBody::SessionRenamed {
            title: "Tides".to_owned(),
            by: TitleBy::Holdfast,
        },
    )
    .begin(T1, 1)
    .step(T1, 1)
    .text(T1, 2, Part::Reasoning, 0, "Two ")
    .text(T1, 2, Part::Reasoning, 4, "tides.")
    .text(T1, 3, Part::Answer, 0, "Let me look.")
    .call(T1, 4)
    .call(T1, 5)
    .step_end(T1, 1)
    .run(T1, 4)
    .run(T1, 5)
    .result(T1, 5, "five")
    .result(T1, 4, "four")
    .step(T1, 2)
    .text(T1, 6, Part::Answer, 0, "Möön")
    .text(T1, 6, Part::Answer, 6, " and sun.")
    .step_end(T1, 2)
    .end(T1)
    .say(
        None,
        EventBody::ModelChosen {
            model: model("qwen3"),
        },
    )
    .turn(T2, 7)
    .rewind(T2)
    .begin(T3, 9)
    .step(T3, 1)
    .say(
        T3,
        EventBody::AttemptFailed {
            step: 1,
            attempt: 1,
            failure: Failure::new(FailureCode::RateLimited, "wait"),
            retry_in_ms: Some(500),
            next: None,
        },
    )
    .say(
        T3,
        EventBody::StepStarted {
            step: 1,
            attempt: 2,
            model: model("qwen3"),
            purpose: Purpose::Answer,
        },
    )
    .say(
        T3,
        EventBody::Unsupported {
            original_kind: "ImageShown".to_owned(),
            body: "{}".to_owned(),
        },
    )
    .text(T3, 10, Part::Answer, 0, "Again")
    .say(
        T3,
        EventBody::TurnEnded {
            outcome: TurnOutcome::Cancelled {
                by: CancelledBy::User,
            },
        },
    );
    log
}

#[test]
fn a_turn_is_told_in_the_order_of_the_log_whatever_its_items_are() {
    let transcript = story().folded();
    assert_eq!(turn_ids(&transcript), [1, 3]);
    let first = transcript.turn(T1).expect("the first turn");
    assert_eq!(
        kinds(first),
        ["message", "reasoning", "answer", "tool", "tool", "answer"]
    );
    assert_eq!(
        text_of(&transcript, T1, 2),
        ("Two tides.".to_owned(), false)
    );
    assert_eq!(
        text_of(&transcript, T1, 6),
        ("Möön and sun.".to_owned(), false)
    );
    assert_eq!(first.model, model("llama3.2"));
    assert_eq!(first.attempts.len(), 2);
    assert_eq!(transcript.title(), "Tides");
    assert_eq!(transcript.model(), Some(&model("qwen3")));
    let third = transcript.turn(T3).expect("the third turn");
    assert_eq!(kinds(third), ["message", "unsupported", "answer"]);
    assert_eq!(marks(third), ["ImageShown"]);
    assert!(matches!(
        third.attempts.as_slice(),
        [failed, open]
            if matches!(failed.state, AttemptState::Failed { retry_in_ms: Some(500), .. })
                && open.state == AttemptState::Open
    ));
    assert_eq!(transcript.running(), None);
}

#[test]
fn a_text_that_was_found_to_be_reasoning_is_reasoning_and_the_answer_begins_after_it() {
    let mut log = Log::started();
    log.begin(T1, 1).step(T1, 1);
    log.text(T1, 2, Part::Answer, 0, "I should add");
    log.say(T1, EventBody::TextFoundReasoning { item: item(2) });
    log.text(T1, 3, Part::Answer, 0, "4");
    let transcript = log.folded();
    let turn = transcript.turn(T1).expect("the turn");
    assert_eq!(kinds(turn), ["message", "reasoning", "answer"]);
    assert_eq!(
        text_of(&transcript, T1, 2),
        ("I should add".to_owned(), false)
    );
}

#[test]
fn a_thought_that_is_no_text_or_is_missing_is_marked_as_damage() {
    for lost in [1, 9] {
        let mut log = Log::started();
        log.begin(T1, 1).step(T1, 1);
        log.say(T1, EventBody::TextFoundReasoning { item: item(lost) });
        let transcript = log.folded();
        let turn = transcript.turn(T1).expect("the turn");
        assert_eq!(kinds(turn), ["message", "unsupported"], "item {lost}");
    }
}

#[test]
fn every_result_is_in_its_own_call_though_the_provider_names_them_alike() {
    let transcript = story().folded();
    for (number, expected) in [(4, "four"), (5, "five")] {
        let ToolState::Finished {
            outcome: ToolOutcome::Succeeded { output },
            ..
        } = tool_of(&transcript, T1, number)
        else {
            panic!("not finished");
        };
        assert_eq!(output, expected);
    }
}

#[test]
fn a_page_at_any_point_and_the_rest_live_is_the_same_as_all_of_it() {
    let log = story();
    let whole = log.folded();
    for split in 0..=log.0.len() {
        let page = log.folded_to(split).to_page();
        let json = serde_json::to_string(&Page::Session(page)).expect("encodes");
        let page: Page = serde_json::from_str(&json).expect("decodes");
        let mut transcript = Transcript::from_page(page).expect("a session's page");
        apply(&mut transcript, &log.0[split..]);
        assert_eq!(transcript.to_page(), whole.to_page(), "split at {split}");
    }
}

#[test]
fn a_stored_view_is_what_the_transcript_shows() {
    let log = story();
    let transcript = log.folded();
    for view in transcript.turns() {
        assert_eq!(fold_turn(&log.of_turn(view.turn)).as_ref(), Some(view));
    }
    assert!(
        fold_turn(&log.of_turn(T2)).is_some(),
        "a rewound turn keeps its view"
    );
    assert_eq!(fold_turn(&[]), None);
    assert_eq!(
        fold_turn(&log.of_turn(T1)[2..]),
        None,
        "a turn without its beginning"
    );
}

#[test]
fn an_event_that_is_not_the_next_changes_nothing() {
    let log = story();
    let mut transcript = log.folded_to(10);
    let before = transcript.clone();
    let mut changes = Vec::new();
    for event in log.0[..10].iter().chain(&log.0[11..]) {
        transcript.apply(event, &mut changes);
    }
    assert_eq!((transcript, changes.len()), (before, 0));
}

#[test]
fn changes_name_what_they_touch_and_nothing_else() {
    let log = story();
    let mut transcript = log.folded_to(2);
    let turn = T1;
    assert_eq!(
        apply(&mut transcript, &log.0[2..9]),
        [
            Change::TurnAdded(turn),
            Change::ItemAdded {
                turn,
                item: item(1)
            },
            Change::SessionChanged,
            Change::TurnChanged(turn),
            Change::TurnChanged(turn),
            Change::ItemAdded {
                turn,
                item: item(2)
            },
            Change::TextGrew {
                turn,
                item: item(2)
            },
            Change::ItemChanged {
                turn,
                item: item(2)
            },
            Change::ItemAdded {
                turn,
                item: item(3)
            },
            Change::ItemChanged {
                turn,
                item: item(3)
            },
            Change::ItemAdded {
                turn,
                item: item(4)
            },
        ]
    );
}

#[test]
fn a_text_is_open_until_another_item_the_step_or_the_turn_closes_it() {
    type Close = fn(&mut Log);
    let closes: [(&str, Close); 6] = [
        ("an item", |log| {
            log.text(T1, 3, Part::Answer, 0, "x");
        }),
        ("a call", |log| {
            log.call(T1, 3);
        }),
        ("the step", |log| {
            log.step_end(T1, 1);
        }),
        ("a failed attempt", |log| {
            log.say(
                T1,
                EventBody::AttemptFailed {
                    step: 1,
                    attempt: 1,
                    failure: Failure::new(FailureCode::StreamCut, ""),
                    retry_in_ms: None,
                    next: None,
                },
            );
        }),
        ("an unknown kind", |log| {
            log.say(
                T1,
                EventBody::Unsupported {
                    original_kind: "x".to_owned(),
                    body: String::new(),
                },
            );
        }),
        ("the end", |log| {
            log.end(T1);
        }),
    ];
    for (name, close) in closes {
        let mut log = Log::started();
        log.begin(T1, 1)
            .step(T1, 1)
            .text(T1, 2, Part::Reasoning, 0, "hm");
        assert!(text_of(&log.folded(), T1, 2).1, "{name}");
        close(&mut log);
        assert!(!text_of(&log.folded(), T1, 2).1, "{name}");
    }
}

#[test]
fn how_long_a_thought_took_is_from_its_first_to_its_last_text() {
    let mut log = Log::started();
    log.begin(T1, 1)
        .step(T1, 1)
        .text(T1, 2, Part::Reasoning, 0, "a")
        .text(T1, 2, Part::Reasoning, 1, "b")
        .end(T1);
    let transcript = log.folded();
    let view = transcript.item(T1, item(2)).expect("the thought");
    assert_eq!(view.changed_at.millis_since(view.began_at), 1_000);
}

#[test]
fn a_text_at_a_wrong_offset_is_marked_once_and_the_rest_renders() {
    let mut log = Log::started();
    log.begin(T1, 1)
        .step(T1, 1)
        .text(T1, 2, Part::Answer, 0, "Hello")
        .text(T1, 2, Part::Answer, 3, "lo twice")
        .text(T1, 2, Part::Answer, 9, "a hole")
        .text(T1, 2, Part::Answer, 5, " world")
        .text(T1, 3, Part::Answer, 4, "no beginning")
        .text(T1, 1, Part::Answer, 0, "in a message")
        .text(T1, 2, Part::Reasoning, 11, "in another voice")
        .text(T1, 4, Part::Answer, 0, "fine")
        .end(T1);
    let transcript = log.folded();
    assert_eq!(
        text_of(&transcript, T1, 2),
        ("Hello world".to_owned(), false)
    );
    assert_eq!(text_of(&transcript, T1, 4), ("fine".to_owned(), false));
    let view = transcript.turn(T1).expect("the turn");
    assert_eq!(marks(view), [DAMAGED_TEXT; 3], "one for each item");
    assert_eq!(fold_turn(&log.of_turn(T1)).as_ref(), Some(view));
}

#[test]
fn nothing_looks_running_after_the_end() {
    let mut log = Log::started();
    log.begin(T1, 1)
        .step(T1, 1)
        .call(T1, 2)
        .call(T1, 3)
        .run(T1, 3);
    assert_eq!(log.folded().running(), Some(T1));
    assert!(matches!(
        tool_of(&log.folded(), T1, 3),
        ToolState::Running { .. }
    ));
    log.end(T1);
    let transcript = log.folded();
    assert_eq!(transcript.running(), None);
    assert!(matches!(
        tool_of(&transcript, T1, 2),
        ToolState::Finished {
            outcome: ToolOutcome::NotRun { .. },
            effect: Effect::None,
            ..
        }
    ));
    assert!(matches!(
        tool_of(&transcript, T1, 3),
        ToolState::Finished {
            outcome: ToolOutcome::Abandoned,
            effect: Effect::Unknown,
            ..
        }
    ));
}

#[test]
fn what_comes_after_the_end_is_marked_and_changes_nothing_else() {
    let mut log = Log::started();
    log.turn(T1, 1);
    let ended = log.folded().turn(T1).cloned().expect("the turn");
    log.text(T1, 2, Part::Answer, 8, "more")
        .call(T1, 5)
        .result(T1, 5, "late")
        .end(T1);
    let transcript = log.folded();
    let mut view = transcript.turn(T1).cloned().expect("the turn");
    assert_eq!(marks(&view), [LATE_EVENTS]);
    view.items.pop();
    assert_eq!(view, ended);
}

#[test]
fn the_first_result_stands_and_results_without_a_call_are_marked() {
    let mut log = Log::started();
    log.begin(T1, 1)
        .call(T1, 2)
        .run(T1, 2)
        .result(T1, 2, "first")
        .result(T1, 2, "second")
        .run(T1, 9)
        .call(T1, 1);
    let transcript = log.folded();
    assert!(matches!(
        tool_of(&transcript, T1, 2),
        ToolState::Finished { outcome: ToolOutcome::Succeeded { output }, .. } if output == "first"
    ));
    let view = transcript.turn(T1).expect("the turn");
    assert_eq!(marks(view), [DAMAGED_RECORD; 3]);
}

#[test]
fn a_rewind_hides_turns_and_moves_the_tip_and_a_title_does_not() {
    let mut log = Log::started();
    log.turn(T1, 1).turn(T2, 3);
    let tip = log.folded().tip();
    log.say(
        None,
        EventBody::SessionRenamed {
            title: "x".to_owned(),
            by: TitleBy::User,
        },
    );
    assert_eq!(log.folded().tip(), tip, "a title makes no op stale");
    log.rewind(T2);
    let transcript = log.folded();
    assert_eq!(turn_ids(&transcript), [1]);
    assert_eq!(transcript.tip(), Some(Seq::new(log.0.len() as u64)));
    log.rewind(T1);
    assert_eq!(turn_ids(&log.folded()), [0_u64; 0]);
    assert!(!log.folded().more_before());
}

#[test]
fn a_late_event_of_a_rewound_turn_does_not_bring_it_back() {
    let mut log = Log::started();
    log.turn(T1, 1)
        .begin(T2, 3)
        .rewind(T2)
        .text(T2, 4, Part::Answer, 0, "x")
        .end(T2);
    assert_eq!(turn_ids(&log.folded()), [1]);
}

/// A page of some of the turns of a log, as the engine would make it for "older than `before`".
fn older(log: &Log, count: usize, before: u64, turns: usize) -> TranscriptPage {
    let mut page = log.folded_to(count).to_page();
    page.turns.retain(|view| view.turn.get() < before);
    let skip = page.turns.len().saturating_sub(turns);
    page.more_before = skip > 0;
    page.turns.drain(..skip);
    page
}

fn long_log(turns: u64) -> Log {
    let mut log = Log::started();
    for turn in 1..=turns {
        log.turn(TurnId::new(turn), turn * 2);
    }
    log
}

#[test]
fn older_turns_are_put_in_front_until_there_are_none() {
    let log = long_log(9);
    let count = log.0.len();
    let mut transcript = Transcript::from(older(&log, count, 99, 4));
    assert_eq!(turn_ids(&transcript), [6, 7, 8, 9]);
    let mut added = 0;
    while let Some(before) = transcript.older_before() {
        added += transcript
            .file_older(before, older(&log, count, before.get(), 2))
            .expect("joins on");
    }
    assert_eq!(added, 5);
    assert_eq!(transcript.to_page(), log.folded().to_page());
}

#[test]
fn two_older_pages_in_the_wrong_order_leave_no_hole_and_nothing_twice() {
    let log = long_log(9);
    let count = log.0.len();
    let mut transcript = Transcript::from(older(&log, count, 99, 3));
    let (near, far) = (older(&log, count, 7, 3), older(&log, count, 4, 3));
    assert_eq!(
        transcript.file_older(TurnId::new(4), far.clone()),
        Err(Declined::NotNext)
    );
    assert_eq!(transcript.file_older(TurnId::new(7), near.clone()), Ok(3));
    assert_eq!(
        transcript.file_older(TurnId::new(7), near.clone()),
        Ok(0),
        "the same answer again"
    );
    assert_eq!(transcript.file_older(TurnId::new(4), far), Ok(3));
    assert_eq!(transcript.older_before(), None);
    assert_eq!(transcript.file_older(TurnId::new(7), near), Ok(0));
    assert_eq!(
        transcript.older_before(),
        None,
        "an old answer knows nothing of what is above"
    );
    assert_eq!(transcript.to_page(), log.folded().to_page());
}

#[test]
fn older_turns_read_before_a_rewind_are_filed_without_what_was_rewound() {
    let mut log = long_log(9);
    let count = log.0.len();
    let mut transcript = Transcript::from(older(&log, count, 99, 3));
    let held = older(&log, count, 7, 5);
    assert_eq!(turn_ids(&Transcript::from(held.clone())), [2, 3, 4, 5, 6]);
    log.rewind(TurnId::new(4)).turn(TurnId::new(10), 30);
    apply(&mut transcript, &log.0[count..]);
    assert_eq!(turn_ids(&transcript), [10]);
    assert_eq!(transcript.file_older(TurnId::new(7), held), Ok(2));
    assert_eq!(turn_ids(&transcript), [2, 3, 10]);
    let before = transcript.older_before().expect("there are older ones");
    let page = older(&log, log.0.len(), before.get(), 9);
    assert_eq!(transcript.file_older(before, page), Ok(1));
    assert_eq!(transcript.to_page(), log.folded().to_page());
}

#[test]
fn older_turns_of_which_a_rewind_left_none_change_nothing() {
    let mut log = long_log(9);
    let count = log.0.len();
    let mut transcript = Transcript::from(older(&log, count, 99, 3));
    let held = older(&log, count, 7, 2);
    log.rewind(TurnId::new(3)).turn(TurnId::new(10), 30);
    apply(&mut transcript, &log.0[count..]);
    assert_eq!(transcript.file_older(TurnId::new(7), held), Ok(0));
    assert_eq!(transcript.older_before(), Some(TurnId::new(3)));
    let page = older(&log, log.0.len(), 3, 9);
    assert_eq!(transcript.file_older(TurnId::new(3), page), Ok(2));
    assert_eq!(transcript.to_page(), log.folded().to_page());
}

#[test]
fn older_turns_read_after_a_rewind_that_is_still_to_come_fit_too() {
    let mut log = long_log(9);
    let count = log.0.len();
    let mut transcript = Transcript::from(older(&log, count, 99, 2));
    log.rewind(TurnId::new(6)).turn(TurnId::new(10), 30);
    let page = older(&log, log.0.len(), 8, 9);
    assert_eq!(transcript.file_older(TurnId::new(8), page), Ok(5));
    apply(&mut transcript, &log.0[count..]);
    assert_eq!(transcript.to_page(), log.folded().to_page());
}

#[test]
fn older_turns_of_another_session_or_log_are_declined() {
    let log = long_log(5);
    let count = log.0.len();
    let mut transcript = Transcript::from(older(&log, count, 99, 2));
    let before = transcript.clone();
    let mut page = older(&log, count, 4, 2);
    page.session = SessionId::from_bits(99);
    assert_eq!(
        transcript.file_older(TurnId::new(4), page),
        Err(Declined::Foreign)
    );
    let mut page = older(&log, count, 4, 2);
    page.as_of = Cursor::from_count(LogId::from_bits(99), 1_000);
    assert_eq!(
        transcript.file_older(TurnId::new(4), page),
        Err(Declined::Foreign)
    );
    assert_eq!(transcript, before);
}

#[test]
fn the_cost_of_an_event_does_not_grow_with_the_transcript() {
    // Counted in what an event can touch: the changes it names, whatever lies before it.
    let changes = |turns: u64| {
        let mut log = long_log(turns);
        let mut transcript = log.folded();
        let count = log.0.len();
        let turn = TurnId::new(turns + 1);
        log.begin(turn, 1_000_000)
            .step(turn, 1)
            .text(turn, 1_000_001, Part::Answer, 0, "a");
        apply(&mut transcript, &log.0[count..]).len()
    };
    assert_eq!(changes(1), changes(2_000));
}

#[test]
fn a_page_of_the_other_kind_is_refused() {
    let library = Page::Library(Library::empty(LOG).to_page());
    let session = Page::Session(Transcript::empty(SESSION, LOG).to_page());
    assert_eq!(Transcript::from_page(library).err(), Some(WrongPage));
    assert_eq!(Library::from_page(session).err(), Some(WrongPage));
}

fn provider(id: u128, name: &str) -> Provider {
    Provider {
        id: ProviderId::from_bits(id),
        name: name.to_owned(),
        dialect: Dialect::Ollama,
        base_url: "http://localhost:11434".to_owned(),
        num_ctx: None,
        keep_alive: None,
        files: Vec::new(),
        think: Think::ServerDefault,
        limits: None,
        connection: protocol::Connection::default(),
    }
}

fn library_story() -> Log {
    let [a, b] = [10, 11].map(SessionId::from_bits);
    let mut log = Log::default();
    let listed = |session, title: &str| EventBody::SessionListed {
        session,
        title: title.to_owned(),
        origin: Origin::Conversation,
    };
    for body in [
        EventBody::ProviderAdded {
            provider: provider(1, "one"),
        },
        EventBody::ProviderAdded {
            provider: provider(2, "two"),
        },
        listed(a, "A"),
        listed(b, "B"),
        EventBody::SessionTurnStarted {
            session: a,
            turn: T1,
            model: model("llama3.2"),
        },
        EventBody::SessionTurnEnded {
            session: a,
            turn: T1,
            outcome: OutcomeKind::Failed,
            unread: true,
        },
        EventBody::SessionTurnEnded {
            session: b,
            turn: T1,
            outcome: OutcomeKind::Completed,
            unread: true,
        },
        EventBody::SessionTurnStarted {
            session: a,
            turn: T2,
            model: model("llama3.2"),
        },
        EventBody::SessionTurnEnded {
            session: a,
            turn: T2,
            outcome: OutcomeKind::Failed,
            unread: true,
        },
        EventBody::SessionSeen {
            session: b,
            turn: T1,
        },
        EventBody::SessionTitled {
            session: b,
            title: "B, renamed".to_owned(),
        },
        EventBody::ProviderChanged {
            provider: provider(1, "uno"),
        },
        EventBody::ProviderRemoved {
            provider: ProviderId::from_bits(2),
        },
        EventBody::SessionBinned { session: b },
        EventBody::SessionTitled {
            session: SessionId::from_bits(99),
            title: "never listed".to_owned(),
        },
    ] {
        log.say(None, body);
    }
    log
}

#[test]
fn the_library_lists_the_most_recently_active_first_and_each_session_once() {
    let log = library_story();
    let mut library = Library::empty(LOG);
    let changes = apply(&mut library, &log.0);
    let titles: Vec<_> = library
        .sessions_newest_first()
        .map(|summary| summary.title.as_str())
        .collect();
    assert_eq!(titles, ["A", "B, renamed"], "a title is no activity");
    let a = library.session(SessionId::from_bits(10)).expect("listed");
    assert_eq!(
        a.state,
        SessionState::Ended {
            outcome: OutcomeKind::Failed
        }
    );
    let b = library.session(SessionId::from_bits(11)).expect("listed");
    assert_eq!(b.place, Place::Bin);
    assert_eq!(library.providers(), [provider(1, "uno")]);
    assert_eq!(library.last_model(), Some(&model("llama3.2")));
    let listed = changes
        .iter()
        .filter(|change| **change == LibraryChange::Sessions(SessionId::from_bits(10)))
        .count();
    assert_eq!(listed, 5);
    assert_eq!((a.unread, b.unread), (Some(T2), None));
    assert!(changes.contains(&LibraryChange::LastModel));
}

#[test]
fn a_library_page_at_any_point_and_the_rest_live_is_the_same_as_all_of_it() {
    let log = library_story();
    let mut whole = Library::empty(LOG);
    apply(&mut whole, &log.0);
    for split in 0..=log.0.len() {
        let mut before = Library::empty(LOG);
        apply(&mut before, &log.0[..split]);
        let mut library = Library::from_page(Page::Library(before.to_page())).expect("a library");
        apply(&mut library, &log.0[split..]);
        assert_eq!(library, whole, "split at {split}");
    }
}

#[test]
fn an_end_is_unread_from_its_event_on_until_it_or_a_later_one_was_seen() {
    let session = SessionId::from_bits(10);
    let ended = |turn, unread| EventBody::SessionTurnEnded {
        session,
        turn,
        outcome: OutcomeKind::Completed,
        unread,
    };
    let seen = |turn| EventBody::SessionSeen { session, turn };
    let steps = [
        // Of a version that did not know of it: what it wrote is read.
        (ended(T1, false), None),
        (ended(T1, true), Some(T1)),
        (seen(T1), None),
        (ended(T2, true), Some(T2)),
        (seen(T1), Some(T2)),
        (
            EventBody::SessionTitled {
                session,
                title: "Another".to_owned(),
            },
            Some(T2),
        ),
        (seen(T2.next()), None),
        (seen(T2), None),
    ];
    let mut log = Log::default();
    log.say(
        None,
        EventBody::SessionListed {
            session,
            title: "One".to_owned(),
            origin: Origin::Conversation,
        },
    );
    let mut library = Library::empty(LOG);
    for (body, unread) in steps {
        log.say(None, body.clone());
        let before = library.session(session).map(|summary| summary.active_at);
        apply(&mut library, &log.0);
        let summary = library.session(session).expect("listed");
        assert_eq!(summary.unread, unread, "{body:?}");
        if let EventBody::SessionSeen { .. } = body {
            assert_eq!(Some(summary.active_at), before, "seeing is no activity");
        }
    }
}

#[test]
fn a_turn_says_when_the_computer_slept_and_nothing_after_its_end() {
    let slept = |from, to| EventBody::ComputerSlept {
        slept: Slept {
            from: Timestamp::from_millis(from),
            to: Timestamp::from_millis(to),
        },
    };
    let mut log = Log::default();
    log.say(
        Some(T1),
        EventBody::TurnStarted {
            boot: Boot::from_bits(1),
            message: ItemId::FIRST,
            model: model("m"),
            fallbacks: Vec::new(),
        },
    )
    .say(Some(T1), slept(1, 2))
    .say(Some(T1), slept(3, 4));
    let view = fold_turn(&log.0).expect("a turn");
    let times: Vec<_> = view.slept.iter().map(|s| s.from.millis()).collect();
    assert_eq!(times, [1, 3]);
}

#[test]
fn a_turn_that_ended_elsewhere_does_not_stop_the_one_that_runs() {
    let session = SessionId::from_bits(10);
    let mut log = Log::default();
    log.say(
        None,
        EventBody::SessionListed {
            session,
            title: String::new(),
            origin: Origin::Sample,
        },
    )
    .say(
        None,
        EventBody::SessionTurnStarted {
            session,
            turn: T2,
            model: model("m"),
        },
    )
    .say(
        None,
        EventBody::SessionTurnEnded {
            session,
            turn: T1,
            outcome: OutcomeKind::Interrupted,
            unread: true,
        },
    );
    let mut library = Library::empty(LOG);
    apply(&mut library, &log.0);
    assert_eq!(
        library.session(session).map(|summary| summary.state),
        Some(SessionState::Running { turn: T2 })
    );
}

fn intent() -> Intent {
    Intent::WriteFile {
        path: "/notes/a.md".to_owned(),
        before: None,
        after: 1,
        diff: "+a".to_owned(),
        diff_left_out: 0,
    }
}

#[test]
fn calls_that_share_a_question_share_its_one_answer_and_an_open_one_expires_with_the_turn() {
    let mut log = Log::default();
    log.begin(T1, 1).step(T1, 1);
    for call in [2, 3, 4] {
        log.say(
            T1,
            EventBody::ToolCallRequested {
                item: item(call),
                step: 1,
                name: "write_file".to_owned(),
                arguments: "{}".to_owned(),
                call_id: None,
            },
        );
    }
    let ask = |first: u64, calls: &[u64]| EventBody::ApprovalRequested {
        item: item(first),
        calls: calls.iter().copied().map(item).collect(),
        tool: "write_file".to_owned(),
        intent: intent(),
        may_have_run: false,
    };
    let resolved = |resolution| EventBody::ApprovalResolved {
        item: item(2),
        resolution,
    };
    log.say(T1, ask(2, &[2, 3])).say(T1, ask(4, &[4]));
    log.say(T1, resolved(Resolution::AllowedOnce));
    log.say(T1, resolved(Resolution::Denied));
    let resolutions = |log: &Log| -> Vec<Option<Resolution>> {
        let whole = log.folded();
        let view = whole.turn(T1).expect("the turn");
        let approvals = view.items.iter().filter_map(|item| match &item.body {
            ItemBody::ToolCall { approval, .. } => Some(approval.as_ref()?.resolution),
            _ => None,
        });
        approvals.collect()
    };
    let allowed = Some(Resolution::AllowedOnce);
    assert_eq!(resolutions(&log), [allowed, allowed, None]);
    log.say(
        T1,
        EventBody::TurnEnded {
            outcome: TurnOutcome::Completed {
                stop: StopReason::Unknown,
            },
        },
    );
    assert_eq!(
        resolutions(&log),
        [allowed, allowed, Some(Resolution::Expired)]
    );
}

/// Any event at all, of few enough turns and items that they meet.
pub(crate) fn any_body() -> impl Strategy<Value = EventBody> {
    let part = prop_oneof![Just(Part::Answer), Just(Part::Reasoning)];
    let number = prop_oneof![8 => 1..6_u64, 1 => Just(u64::MAX), 1 => Just(1 << 63 | 3)];
    prop_oneof![
        3 => number.clone().prop_map(|number| EventBody::UserMessageAdded {
            item: item(number), text: "m".to_owned(), op: OpId::from_bits(1), purpose: MessagePurpose::Said,
            images: Vec::new(),
        }),
        3 => Just(EventBody::TurnStarted {
            boot: Boot::from_bits(1), message: item(1), model: model("a"), fallbacks: Vec::new(),
        }),
        2 => (1..3_u32, 1..3_u32).prop_map(|(step, attempt)| EventBody::StepStarted {
            step, attempt, model: model("b"), purpose: Purpose::Answer,
        }),
        10 => (number.clone(), part, 0..6_u64, "[aü]{0,3}").prop_map(|(number, part, offset, text)| {
            EventBody::TextAppended { item: item(number), part, offset, text }
        }),
        2 => number.clone().prop_map(|number| EventBody::TextFoundReasoning { item: item(number) }),
        3 => number.clone().prop_map(|number| EventBody::ToolCallRequested {
            item: item(number), step: 1, name: "t".to_owned(), arguments: "{".to_owned(), call_id: None,
        }),
        3 => number.clone().prop_map(|number| EventBody::ToolCallStarted { item: item(number) }),
        2 => (number.clone(), number.clone()).prop_map(|(first, second)| EventBody::ApprovalRequested {
            item: item(first), calls: vec![item(first), item(second)], tool: "w".to_owned(), intent: intent(), may_have_run: false,
        }),
        2 => number.clone().prop_map(|number| EventBody::ApprovalResolved {
            item: item(number), resolution: Resolution::Denied,
        }),
        1 => number.clone().prop_map(|number| EventBody::HistoryCompacted {
            item: item(number), through: Some(T1), summary: "s".to_owned(), set_aside: Vec::new(),
        }),
        3 => number.prop_map(|number| EventBody::ToolCallFinished {
            item: item(number), outcome: ToolOutcome::Denied, effect: Effect::None,
        }),
        2 => (1..3_u32).prop_map(|step| EventBody::StepEnded {
            step, finish: FinishReason::Length, usage: Usage::default(), timings: Timings::default(),
            unread: None,
            unseen_images: 0,
            untold_tools: 0,
        }),
        2 => (1..3_u32, 1..3_u32).prop_map(|(step, attempt)| EventBody::AttemptFailed {
            step, attempt, failure: Failure::new(FailureCode::Aborted, ""), retry_in_ms: None, next: None,
        }),
        2 => Just(EventBody::TurnEnded {
            outcome: TurnOutcome::Completed { stop: StopReason::Unknown },
        }),
        1 => (1..5_u64).prop_map(|from| EventBody::HistoryRewound {
            from: TurnId::new(from), purpose: RewindFor::Edit,
        }),
        1 => Just(EventBody::Unsupported { original_kind: "New".to_owned(), body: String::new() }),
        1 => Just(EventBody::ModelChosen { model: model("c") }),
        1 => Just(EventBody::SessionBinned { session: SESSION }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_events_at_all_give_a_transcript_that_can_be_drawn(
        events in proptest::collection::vec((proptest::option::of(1..5_u64), any_body()), 0..60),
        split in any::<proptest::sample::Index>(),
    ) {
        let mut log = Log::default();
        for (turn, body) in events {
            log.say(turn.map(TurnId::new), body);
        }
        let whole = log.folded();
        prop_assert_eq!(whole.cursor().count(), log.0.len() as u64);

        // In order, each once, and found by its id.
        let ids = turn_ids(&whole);
        prop_assert!(ids.is_sorted_by(|one, next| one < next));
        for view in whole.turns() {
            prop_assert_eq!(whole.turn(view.turn), Some(view));
            for (position, item) in view.items.iter().enumerate() {
                prop_assert_eq!(whole.item(view.turn, item.item), Some(item));
                match &item.body {
                    ItemBody::Text { open, .. } => {
                        prop_assert!(!open || position + 1 == view.items.len(), "two open texts");
                        prop_assert!(!open || view.outcome.is_none(), "open after the end");
                    }
                    ItemBody::ToolCall { state, approval, .. } => {
                        let over = matches!(state, ToolState::Finished { .. });
                        prop_assert!(over || view.outcome.is_none(), "running after the end");
                        let asks = approval.as_ref().is_some_and(|a| a.resolution.is_none());
                        prop_assert!(!asks || view.outcome.is_none(), "asking after the end");
                    }
                    ItemBody::UserMessage { .. }
                    | ItemBody::Compacted { .. }
                    | ItemBody::Unsupported { .. } => {}
                }
            }
        }

        // A page in the middle and the rest live give the same.
        let split = split.index(log.0.len() + 1);
        let mut resumed = Transcript::from(log.folded_to(split).to_page());
        apply(&mut resumed, &log.0[split..]);
        prop_assert_eq!(resumed.to_page(), whole.to_page());
        prop_assert_eq!(whole.cursor().admits(Seq::new(log.0.len() as u64 + 1)), Admission::Next);
    }

    #[test]
    fn what_a_window_draws_from_changes_is_what_the_fold_shows(
        events in proptest::collection::vec((proptest::option::of(1..4_u64), any_body()), 0..60),
    ) {
        let mut log = Log::default();
        for (turn, body) in events {
            log.say(turn.map(TurnId::new), body);
        }
        let mut transcript = Transcript::empty(SESSION, LOG);
        let mut drawn: std::collections::BTreeMap<TurnId, TurnView> = Default::default();
        for event in &log.0 {
            for change in apply(&mut transcript, std::slice::from_ref(event)) {
                let view = |turn| transcript.turn(turn).expect("a change names a turn that is there");
                match change {
                    Change::TurnAdded(turn) => {
                        let mut added = view(turn).clone();
                        added.items.clear();
                        prop_assert!(drawn.insert(turn, added).is_none(), "added twice");
                    }
                    Change::TurnChanged(turn) => {
                        let own = drawn.get_mut(&turn).expect("drawn");
                        let items = std::mem::take(&mut own.items);
                        *own = TurnView { items, ..view(turn).clone() };
                    }
                    Change::ItemAdded { turn, item } => {
                        let new = transcript.item(turn, item).expect("there").clone();
                        let own = drawn.get_mut(&turn).expect("drawn");
                        prop_assert!(own.items.iter().all(|old| old.item != item), "added twice");
                        own.items.push(new);
                    }
                    Change::TextGrew { turn, item } | Change::ItemChanged { turn, item } => {
                        let new = transcript.item(turn, item).expect("there").clone();
                        let own = drawn.get_mut(&turn).expect("drawn");
                        let old = own.items.iter_mut().find(|old| old.item == item).expect("drawn");
                        *old = new;
                    }
                    Change::Rewound => drawn.retain(|turn, _| transcript.turn(*turn).is_some()),
                    Change::SessionChanged => {}
                }
            }
            let shown: Vec<&TurnView> = transcript.turns().collect();
            prop_assert_eq!(drawn.values().collect::<Vec<_>>(), shown);
        }
    }
}
