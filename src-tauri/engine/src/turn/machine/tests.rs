//! What follows from what, told to the machine by hand.

use std::time::Duration;

use protocol::{ProviderId, Timings, Usage};

use super::*;

fn model(name: &str) -> ModelRef {
    ModelRef {
        provider: ProviderId::from_bits(1),
        provider_name: "box".into(),
        model: name.into(),
    }
}

fn rules() -> Rules {
    Rules {
        candidates: vec![model("m")],
        tools: vec!["current_time".into(), "write_file".into()],
        changing: vec!["write_file".into()],
        allowed: Vec::new(),
        next_item: ItemId::new(2),
        jitter: 0,
    }
}

fn machine() -> Machine {
    Machine::new(rules())
}

fn with_candidates(names: &[&str]) -> Machine {
    let candidates = names.iter().copied().map(model).collect();
    let mut machine = Machine::new(Rules {
        candidates,
        ..rules()
    });
    machine.step(Input::Begin);
    machine
}

fn begun() -> Machine {
    let mut machine = machine();
    machine.step(Input::Begin);
    machine
}

fn say(text: &str) -> Input {
    Input::Text {
        part: Part::Answer,
        text: text.into(),
    }
}

fn call(name: &str, arguments: &str) -> Input {
    Input::Call {
        name: name.into(),
        arguments: arguments.into(),
        call_id: None,
        unclear: None,
    }
}

fn cut_call(arguments: &str) -> Input {
    Input::CallCut {
        name: "write_file".into(),
        arguments: arguments.into(),
    }
}

/// Name, arguments and end of each call in the log, in their order.
fn calls_shown(effects: &[Effect]) -> Vec<String> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Record(EventBody::ToolCallRequested {
                name, arguments, ..
            }) => Some(format!("{name} {arguments}")),
            Effect::Record(EventBody::ToolCallFinished {
                outcome: ToolOutcome::NotRun { why },
                effect: ToolEffect::None,
                ..
            }) => Some(why.clone()),
            Effect::RunTool { .. } | Effect::Prepare { .. } => Some("ran".into()),
            _ => None,
        })
        .collect()
}

#[test]
fn a_call_that_was_cut_is_shown_as_not_run_unless_the_attempt_is_made_again() {
    let began = "write_file {\"path\":\"a";
    let shown = [began, "cut before its arguments were whole"];
    let mut machine = machine();
    machine.step(Input::Begin);
    assert_eq!(machine.step(cut_call("{\"path\":\"a")), vec![]);
    let effects = machine.step(cut(Retry::Backoff));
    assert!(
        calls_shown(&effects).is_empty(),
        "the next attempt makes up for it"
    );
    machine.step(Input::RetryDue);
    machine.step(cut_call("{\"path\":\"a"));
    let effects = machine.step(cut(Retry::Never));
    assert_eq!(calls_shown(&effects), shown);
    assert!(matches!(
        outcome(&effects),
        Some(TurnOutcome::Failed { .. })
    ));

    for last in [end(FinishReason::Length), Input::Cancelled(Cause::UserStop)] {
        let mut machine = self::machine();
        machine.step(Input::Begin);
        machine.step(say("Let me write."));
        machine.step(cut_call("{\"path\":\"a"));
        let effects = machine.step(last);
        assert_eq!(calls_shown(&effects), shown);
        assert!(outcome(&effects).is_some());
    }

    let mut whole = self::machine();
    whole.step(Input::Begin);
    whole.step(cut_call("{}"));
    let effects = whole.step(cut(Retry::Never));
    assert_eq!(
        calls_shown(&effects),
        [
            "write_file {}",
            "the answer was cut before the call could run"
        ]
    );
}

#[test]
fn a_call_that_is_not_clear_is_told_to_the_model_and_never_runs_though_another_of_its_step_does() {
    let mut machine = machine();
    machine.step(Input::Begin);
    machine.step(Input::Call {
        name: "current_time".into(),
        arguments: "{}".into(),
        call_id: None,
        unclear: Some("two calls may be meant".into()),
    });
    machine.step(call("current_time", "{}"));
    let effects = machine.step(end(FinishReason::ToolCalls));
    let ran: Vec<&Effect> = effects
        .iter()
        .filter(|effect| matches!(effect, Effect::RunTool { .. }))
        .collect();
    assert_eq!(ran.len(), 1);
    assert!(effects.contains(&finished(
        ItemId::new(2),
        ToolOutcome::NotRun {
            why: "two calls may be meant".into()
        },
        ToolEffect::None
    )));
}

fn end(finish: FinishReason) -> Input {
    let end = StepEnd {
        finish,
        usage: Usage::default(),
        timings: Timings::default(),
        unseen_images: 0,
        untold_tools: 0,
    };
    Input::AttemptEnded(end, None)
}

fn cut(retry: Retry) -> Input {
    let failure = Failure::new(FailureCode::StreamCut, "cut");
    Input::AttemptFailed(AttemptError { failure, retry })
}

fn outcome(effects: &[Effect]) -> Option<&TurnOutcome> {
    effects.iter().find_map(|e| match e {
        Effect::End(outcome) => Some(outcome),
        _ => None,
    })
}

#[test]
fn an_answer_with_its_end_marker_completes_the_turn() {
    let mut m = begun();
    assert!(matches!(
        m.step(say("hi")).as_slice(),
        [Effect::Append { .. }]
    ));
    let effects = m.step(end(FinishReason::Stop));
    assert_eq!(
        outcome(&effects),
        Some(&TurnOutcome::Completed {
            stop: StopReason::EndOfTurn
        })
    );
}

#[test]
fn what_was_found_to_be_reasoning_is_recorded_once_and_the_answer_is_an_item_of_its_own() {
    let mut m = begun();
    assert_eq!(m.step(Input::FoundReasoning), [], "nothing was said yet");
    let said = m.step(say("I should add"));
    let [Effect::Append { item, .. }] = said.as_slice() else {
        panic!("{said:?}");
    };
    let found = EventBody::TextFoundReasoning { item: *item };
    assert_eq!(m.step(Input::FoundReasoning), [Effect::Record(found)]);
    assert_eq!(m.step(Input::FoundReasoning), []);
    let answer = m.step(say("4"));
    assert!(
        matches!(answer.as_slice(), [Effect::Append { item: next, .. }] if next != item),
        "{answer:?}"
    );
}

#[test]
fn nothing_follows_the_end() {
    let mut m = begun();
    m.step(say("hi"));
    m.step(end(FinishReason::Stop));
    for input in [
        say("more"),
        end(FinishReason::Stop),
        cut(Retry::Backoff),
        Input::Cancelled(Cause::UserStop),
    ] {
        assert_eq!(m.step(input), []);
    }
}

#[test]
fn a_failure_before_content_is_tried_again_and_not_more_than_the_limit() {
    let mut m = begun();
    let mut dials = 1;
    loop {
        let effects = m.step(cut(Retry::Backoff));
        if outcome(&effects).is_some() {
            break;
        }
        assert!(effects.iter().any(|e| matches!(e, Effect::Wait { .. })));
        m.step(Input::RetryDue);
        dials += 1;
    }
    assert_eq!(dials, ATTEMPTS_MAX);
}

#[test]
fn a_failure_after_content_ends_the_turn_whatever_the_server_says() {
    for retry in [Retry::Backoff, Retry::After(Duration::ZERO), Retry::Never] {
        let mut m = begun();
        m.step(say("half an"));
        let effects = m.step(cut(retry));
        assert!(
            matches!(outcome(&effects), Some(TurnOutcome::Failed { .. })),
            "{retry:?}"
        );
    }
}

#[test]
fn a_wait_of_five_hours_is_not_waited_for() {
    let mut m = begun();
    let effects = m.step(cut(Retry::After(Duration::from_secs(18_000))));
    assert!(matches!(
        outcome(&effects),
        Some(TurnOutcome::Failed { .. })
    ));
}

#[test]
fn a_tool_runs_only_after_its_step_ended_well() {
    let mut m = begun();
    let effects = m.step(call("current_time", "{}"));
    assert!(!effects.iter().any(|e| matches!(e, Effect::RunTool { .. })));
    let effects = m.step(end(FinishReason::Stop));
    assert!(effects.iter().any(|e| matches!(e, Effect::RunTool { .. })));
    let effects = m.step(Input::ToolEnded {
        item: ItemId::new(2),
        outcome: ToolOutcome::Succeeded {
            output: "noon".into(),
        },
        effect: ToolEffect::None,
    });
    assert!(
        effects
            .iter()
            .any(|e| matches!(e, Effect::CallModel { .. }))
    );
}

#[test]
fn calls_of_a_cut_or_limited_step_never_run_and_get_a_result() {
    for input in [end(FinishReason::Length), cut(Retry::Backoff)] {
        let mut m = begun();
        m.step(call("current_time", "{}"));
        let effects = m.step(input);
        assert!(!effects.iter().any(|e| matches!(e, Effect::RunTool { .. })));
        let results = effects
            .iter()
            .filter(|e| matches!(e, Effect::Record(EventBody::ToolCallFinished { .. })));
        assert_eq!(results.count(), 1);
    }
}

#[test]
fn unknown_tools_and_broken_arguments_are_told_to_the_model_not_run() {
    for (name, arguments) in [
        ("rm", "{}"),
        ("current_time", "{"),
        ("current_time", r#"{"a":1}mul{"b":2}"#),
        ("current_time", "[]"),
    ] {
        let mut m = begun();
        m.step(call(name, arguments));
        let effects = m.step(end(FinishReason::ToolCalls));
        assert!(
            !effects.iter().any(|e| matches!(e, Effect::RunTool { .. })),
            "{name} {arguments}"
        );
        assert!(
            effects
                .iter()
                .any(|e| matches!(e, Effect::CallModel { .. }))
        );
    }
}

#[test]
fn stopping_closes_running_tools_with_an_unknown_effect() {
    let mut m = begun();
    m.step(call("current_time", "{}"));
    m.step(end(FinishReason::ToolCalls));
    let effects = m.step(Input::Cancelled(Cause::UserStop));
    assert!(effects.contains(&finished(
        ItemId::new(2),
        ToolOutcome::Abandoned,
        ToolEffect::Unknown
    )));
    assert_eq!(
        outcome(&effects),
        Some(&TurnOutcome::Cancelled {
            by: CancelledBy::User
        })
    );
}

#[test]
fn a_model_that_always_calls_is_asked_a_last_time_without_tools() {
    let mut m = machine();
    let mut effects = m.step(Input::Begin);
    let mut dials = 0;
    while outcome(&effects).is_none() {
        let Some(Effect::CallModel { tools, .. }) = effects.last() else {
            panic!("{effects:?}")
        };
        dials += 1;
        assert_eq!(*tools == Tools::Withheld, dials == STEPS_MAX);
        // Never twice the same, which would end it sooner.
        m.step(call("current_time", &format!("{{\"n\":{dials}}}")));
        effects = m.step(end(FinishReason::ToolCalls));
        if let Some(Effect::RunTool { item, .. }) = effects.last() {
            let outcome = ToolOutcome::Succeeded {
                output: String::new(),
            };
            effects = m.step(Input::ToolEnded {
                item: *item,
                outcome,
                effect: ToolEffect::None,
            });
        }
    }
    assert_eq!(dials, STEPS_MAX);
    assert_eq!(
        outcome(&effects),
        Some(&TurnOutcome::Completed {
            stop: StopReason::StepLimit
        })
    );
}

#[test]
fn reasoning_and_answer_are_items_of_their_own_in_the_order_they_came() {
    let mut m = begun();
    let parts = [Part::Reasoning, Part::Answer, Part::Answer, Part::Reasoning];
    let items: Vec<u64> = parts
        .into_iter()
        .flat_map(|part| {
            m.step(Input::Text {
                part,
                text: "x".into(),
            })
        })
        .map(|e| match e {
            Effect::Append { item, .. } => item.get(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(items, [2, 3, 3, 4]);
}

fn failed(code: FailureCode, retry: Retry) -> Input {
    let failure = Failure::new(code, format!("{code:?}"));
    Input::AttemptFailed(AttemptError { failure, retry })
}

fn failure_code(effects: &[Effect]) -> Option<FailureCode> {
    match outcome(effects) {
        Some(TurnOutcome::Failed { failure }) => Some(failure.code),
        _ => None,
    }
}

fn asked_of(effects: &[Effect]) -> Option<usize> {
    effects.iter().find_map(|e| match e {
        Effect::CallModel { candidate, .. } => Some(*candidate),
        _ => None,
    })
}

#[test]
fn a_candidate_that_fails_before_anything_was_said_gives_way_to_the_next_at_once() {
    let mut m = with_candidates(&["a", "b"]);
    let effects = m.step(failed(FailureCode::ConnectFailed, Retry::Backoff));
    assert!(effects.contains(&Effect::Record(EventBody::AttemptFailed {
        step: 1,
        attempt: 1,
        failure: Failure::new(FailureCode::ConnectFailed, "ConnectFailed"),
        retry_in_ms: None,
        next: Some(model("b")),
    })));
    assert_eq!(asked_of(&effects), Some(1));
}

#[test]
fn nobody_takes_over_once_something_was_said_in_an_earlier_step_too() {
    let mut m = with_candidates(&["a", "b"]);
    m.step(say("half"));
    let effects = m.step(failed(FailureCode::StreamCut, Retry::Backoff));
    assert_eq!(failure_code(&effects), Some(FailureCode::StreamCut));

    let mut m = with_candidates(&["a", "b"]);
    m.step(call("current_time", "{}"));
    m.step(end(FinishReason::ToolCalls));
    m.step(ran(2));
    let effects = m.step(failed(FailureCode::ProviderError, Retry::Never));
    assert_eq!(failure_code(&effects), Some(FailureCode::ProviderError));
}

#[test]
fn a_bug_of_ours_is_not_the_candidates_failure() {
    let mut m = with_candidates(&["a", "b"]);
    let effects = m.step(failed(FailureCode::Panicked, Retry::Never));
    assert_eq!(failure_code(&effects), Some(FailureCode::Panicked));
}

#[test]
fn when_all_candidates_failed_each_has_its_line_and_only_the_last_is_tried_again() {
    let mut m = with_candidates(&["a", "b"]);
    m.step(failed(FailureCode::ConnectFailed, Retry::Backoff));
    let mut dials = 2;
    let effects = loop {
        let effects = m.step(failed(FailureCode::ProviderError, Retry::Backoff));
        if outcome(&effects).is_some() {
            break effects;
        }
        m.step(Input::RetryDue);
        dials += 1;
    };
    assert_eq!(dials, 1 + ATTEMPTS_MAX);
    let Some(TurnOutcome::Failed { failure }) = outcome(&effects) else {
        panic!("{effects:?}")
    };
    assert_eq!(failure.code, FailureCode::AllCandidatesFailed);
    assert_eq!(
        failure.detail.as_deref(),
        Some("a on box: ConnectFailed\nb on box: ProviderError")
    );
}

#[test]
fn the_retries_of_a_whole_turn_are_bounded_too() {
    let mut m = machine();
    let mut effects = m.step(Input::Begin);
    let (mut retries, mut step) = (0, 0);
    while outcome(&effects).is_none() {
        // Two failures, then an answer with a call: every step by itself stays within its limit.
        for _ in 0..2 {
            effects = m.step(failed(FailureCode::ProviderError, Retry::Backoff));
            if outcome(&effects).is_some() {
                break;
            }
            retries += 1;
            m.step(Input::RetryDue);
        }
        if outcome(&effects).is_none() {
            step += 1;
            let item = 1 + step;
            m.step(call("current_time", &format!("{{\"n\":{step}}}")));
            m.step(end(FinishReason::ToolCalls));
            effects = m.step(ran(item));
        }
    }
    assert_eq!(retries, RETRIES_MAX);
}

fn ran(item: u64) -> Input {
    Input::ToolEnded {
        item: ItemId::new(item),
        outcome: ToolOutcome::Succeeded {
            output: "noon".into(),
        },
        effect: ToolEffect::None,
    }
}

#[test]
fn the_same_calls_again_and_again_are_warned_about_once_and_then_end_the_turn() {
    let mut m = machine();
    let mut effects = m.step(Input::Begin);
    let (mut dials, mut runs, mut item) = (0, 0, 2);
    while outcome(&effects).is_none() {
        dials += 1;
        m.step(call("current_time", "{}"));
        effects = m.step(end(FinishReason::ToolCalls));
        if effects.iter().any(|e| matches!(e, Effect::RunTool { .. })) {
            runs += 1;
            effects = m.step(ran(item));
        }
        item += 1;
    }
    assert_eq!((dials, runs), (4, 2));
    assert_eq!(failure_code(&effects), Some(FailureCode::ToolLoop));
}

fn intent() -> Intent {
    Intent::WriteFile {
        path: "/n/a.md".into(),
        before: None,
        after: 1,
        diff: "+a".into(),
        diff_left_out: 0,
    }
}

fn changes(item: u64, may_have_run: bool) -> Input {
    Input::Prepared {
        item: ItemId::new(item),
        found: Prospect::Changes {
            intent: intent(),
            may_have_run,
        },
    }
}

fn answered(item: u64, resolution: Resolution) -> Input {
    Input::Answered {
        item: ItemId::new(item),
        resolution,
    }
}

fn asks(effects: &[Effect]) -> Vec<&EventBody> {
    let records = effects.iter().filter_map(|e| match e {
        Effect::Record(body @ EventBody::ApprovalRequested { .. }) => Some(body),
        _ => None,
    });
    records.collect()
}

fn runs(effects: &[Effect]) -> Vec<u64> {
    let runs = effects.iter().filter_map(|e| match e {
        Effect::RunTool { item, .. } => Some(item.get()),
        _ => None,
    });
    runs.collect()
}

fn results(effects: &[Effect]) -> Vec<(u64, &ToolOutcome)> {
    let results = effects.iter().filter_map(|e| match e {
        Effect::Record(EventBody::ToolCallFinished { item, outcome, .. }) => {
            Some((item.get(), outcome))
        }
        _ => None,
    });
    results.collect()
}

/// A machine whose step asked to write these contents, each prepared.
fn writing(rules: Rules, contents: &[&str]) -> (Machine, Vec<Effect>) {
    let mut m = Machine::new(rules);
    m.step(Input::Begin);
    for content in contents {
        m.step(call("write_file", content));
    }
    let mut all = m.step(end(FinishReason::ToolCalls));
    let prepare: Vec<u64> = all
        .iter()
        .filter_map(|e| match e {
            Effect::Prepare { item, .. } => Some(item.get()),
            _ => None,
        })
        .collect();
    for item in prepare {
        all.extend(m.step(changes(item, false)));
    }
    (m, all)
}

#[test]
fn a_changing_call_runs_only_after_the_user_allowed_it() {
    let (mut m, effects) = writing(rules(), &["{}"]);
    assert_eq!((asks(&effects).len(), runs(&effects)), (1, vec![]));
    assert_eq!(m.waits_for_user(), Some(ItemId::new(2)));
    let effects = m.step(answered(2, Resolution::AllowedOnce));
    assert_eq!(runs(&effects), [2]);
    assert_eq!(m.waits_for_user(), None);
}

#[test]
fn a_denied_call_never_runs_and_the_model_is_told_so() {
    let (mut m, _) = writing(rules(), &["{}"]);
    let effects = m.step(answered(2, Resolution::Denied));
    assert_eq!(results(&effects), [(2, &ToolOutcome::Denied)]);
    assert!(runs(&effects).is_empty());
    assert_eq!(asked_of(&effects), Some(0));
}

#[test]
fn identical_calls_share_one_question_and_run_once() {
    let (mut m, effects) = writing(rules(), &["{}", "{}", r#"{"b":1}"#, "{}"]);
    let questions: Vec<Vec<u64>> = asks(&effects)
        .into_iter()
        .map(|body| match body {
            EventBody::ApprovalRequested { calls, .. } => {
                calls.iter().map(|call| call.get()).collect()
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(questions, [vec![2, 3, 5], vec![4]]);
    let effects = m.step(answered(2, Resolution::AllowedOnce));
    assert_eq!(runs(&effects), [2]);
    let effects = m.step(ran(2));
    let with_result: Vec<u64> = results(&effects).iter().map(|(item, _)| *item).collect();
    assert_eq!(with_result, [2, 3, 5]);
}

#[test]
fn what_was_allowed_for_the_session_is_not_asked_again_unless_it_may_have_run_already() {
    let (mut m, _) = writing(rules(), &["{}"]);
    m.step(answered(2, Resolution::AllowedForSession));
    m.step(ran(2));
    for (item, may_have_run, asked) in [(3, false, 0), (4, true, 1)] {
        m.step(call("write_file", &format!("{{\"n\":{item}}}")));
        m.step(end(FinishReason::ToolCalls));
        let effects = m.step(changes(item, may_have_run));
        assert_eq!(asks(&effects).len(), asked);
        m.step(answered(item, Resolution::AllowedOnce));
        m.step(ran(item));
    }
}

#[test]
fn a_call_that_cannot_be_done_is_told_to_the_model_without_asking_anybody() {
    let mut m = begun();
    m.step(call("write_file", "{}"));
    m.step(end(FinishReason::ToolCalls));
    let effects = m.step(Input::Prepared {
        item: ItemId::new(2),
        found: Prospect::Refused("outside the folder".into()),
    });
    assert_eq!(asks(&effects).len(), 0);
    assert!(matches!(
        results(&effects).as_slice(),
        [(2, ToolOutcome::Failed { .. })]
    ));
}

#[test]
fn an_end_under_an_open_question_lets_it_expire_and_the_call_did_nothing() {
    let (mut m, _) = writing(rules(), &["{}", "{}"]);
    let effects = m.step(Input::Cancelled(Cause::UserStop));
    let expired = EventBody::ApprovalResolved {
        item: ItemId::new(2),
        resolution: Resolution::Expired,
    };
    assert!(effects.contains(&Effect::Record(expired)));
    assert_eq!(results(&effects).len(), 2);
    assert!(!effects.iter().any(|e| matches!(
        e,
        Effect::Record(EventBody::ToolCallFinished {
            effect: ToolEffect::Unknown,
            ..
        })
    )));
}

#[test]
fn a_conversation_that_does_not_fit_is_summed_up_once_and_then_given_up() {
    let mut m = begun();
    let effects = m.step(failed(FailureCode::ContextOverflow, Retry::Shorter(None)));
    assert!(effects.iter().any(|e| matches!(e, Effect::Compact { .. })));
    let compaction = Compaction {
        through: Some(TurnId::new(1)),
        summary: "they spoke of tides".into(),
        set_aside: Vec::new(),
    };
    let effects = m.step(Input::Compacted(Ok(compaction)));
    assert!(
        effects
            .iter()
            .any(|e| matches!(e, Effect::Record(EventBody::HistoryCompacted { .. })))
    );
    assert_eq!(asked_of(&effects), Some(0));
    let effects = m.step(failed(FailureCode::ContextOverflow, Retry::Shorter(None)));
    assert_eq!(failure_code(&effects), Some(FailureCode::ContextOverflow));
}
