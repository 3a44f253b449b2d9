//! The sentences, as a reader would read them.

use protocol::{
    CancelledBy, Failure, FailureCode, InterruptedWhy, ItemBody, ItemId, ItemView, ModelRef, Part,
    Phase, ProviderId, Status, StopReason, Timestamp, TurnId, TurnOutcome, TurnView,
};

use super::*;

const CODES: [FailureCode; 20] = [
    FailureCode::ConnectFailed,
    FailureCode::KeyRejected,
    FailureCode::ModelNotFound,
    FailureCode::ModelLoadFailed,
    FailureCode::FirstTokenTimeout,
    FailureCode::IdleTimeout,
    FailureCode::TurnTimeout,
    FailureCode::StreamCut,
    FailureCode::BadStream,
    FailureCode::EmptyResponse,
    FailureCode::RateLimited,
    FailureCode::QuotaExceeded,
    FailureCode::BadRequest,
    FailureCode::CannotSeeImages,
    FailureCode::ContextOverflow,
    FailureCode::ProviderError,
    FailureCode::AllCandidatesFailed,
    FailureCode::ToolLoop,
    FailureCode::Panicked,
    FailureCode::Aborted,
];

fn turn(outcome: TurnOutcome, answer: Option<&str>) -> TurnView {
    let at = Timestamp::from_millis(0);
    TurnView {
        turn: TurnId::FIRST,
        model: ModelRef {
            provider: ProviderId::from_bits(1),
            provider_name: "Ollama".to_owned(),
            model: "llama3.2".to_owned(),
        },
        started_at: at,
        items: answer
            .map(|text| ItemView {
                item: ItemId::FIRST,
                began_at: at,
                changed_at: at,
                body: ItemBody::Text {
                    part: Part::Answer,
                    text: text.to_owned(),
                    open: false,
                },
            })
            .into_iter()
            .collect(),
        attempts: Vec::new(),
        outcome: Some(outcome),
        slept: Vec::new(),
        ended_at: Some(at),
    }
}

#[test]
fn a_sentence_begins_with_a_capital_and_a_name_with_its_own_letter() {
    for (words, said) in [
        ("no such chat", "No such chat"),
        ("don’t", "Don’t"),
        ("émigré: nothing", "Émigré: nothing"),
        ("", ""),
        (
            "picture.gguf: this is a picture",
            "picture.gguf: this is a picture",
        ),
        ("kelp:7b cannot be asked", "kelp:7b cannot be asked"),
        ("/m/kelp is a folder", "/m/kelp is a folder"),
        ("llama9, then", "llama9, then"),
    ] {
        assert_eq!(sentence(words), said);
    }
}

#[test]
fn every_failure_has_words_and_something_to_do() {
    for code in CODES {
        let outcome = TurnOutcome::Failed {
            failure: Failure::new(code, ""),
        };
        let scar = scar(&outcome).expect("a failure leaves a scar");
        assert!(scar.len() > 10 && !scar.ends_with('.'), "{code:?}: {scar}");
        assert!(!offers(&outcome).is_empty(), "{code:?}");
        assert!(!offers_for(&turn(outcome, None)).is_empty(), "{code:?}");
    }
}

#[test]
fn the_engines_own_sentence_is_used_where_there_is_one() {
    let failure = Failure::new(
        FailureCode::ConnectFailed,
        "cannot reach Ollama at localhost; is it running?",
    );
    assert_eq!(
        scar(&TurnOutcome::Failed {
            failure: failure.clone()
        }),
        Some(failure.message)
    );
}

#[test]
fn a_limit_is_a_badge_and_a_clean_end_is_nothing() {
    for (stop, words) in [
        (StopReason::EndOfTurn, None),
        (StopReason::Unknown, None),
        (StopReason::Length, Some("stopped at the token limit")),
        (
            StopReason::Filter,
            Some("stopped by the provider's content filter"),
        ),
        (StopReason::StepLimit, Some("stopped at the limit of steps")),
    ] {
        let outcome = TurnOutcome::Completed { stop };
        assert_eq!(badge(stop), words);
        assert_eq!(scar(&outcome), None);
        assert_eq!(offers(&outcome).is_empty(), words.is_none());
    }
}

#[test]
fn going_on_is_offered_only_where_there_is_something_to_go_on_from() {
    let stopped = TurnOutcome::Cancelled {
        by: CancelledBy::User,
    };
    assert_eq!(
        offers_for(&turn(stopped.clone(), Some("Once"))),
        [Offer::Continue, Offer::TryAgain]
    );
    assert_eq!(
        offers_for(&turn(stopped.clone(), Some(" "))),
        [Offer::TryAgain]
    );
    assert_eq!(offers_for(&turn(stopped, None)), [Offer::TryAgain]);
    let slow = TurnOutcome::Failed {
        failure: Failure::new(FailureCode::TurnTimeout, ""),
    };
    assert_eq!(
        offers_for(&turn(slow, None)),
        [Offer::TryAgain, Offer::ChangeLimit]
    );
}

#[test]
fn a_chat_that_could_not_be_saved_offers_to_save_it() {
    let outcome = TurnOutcome::Interrupted {
        why: InterruptedWhy::StorageFailed,
    };
    assert_eq!(offers(&outcome)[..2], [Offer::RetryWrite, Offer::Export]);
}

#[test]
fn the_status_line_says_what_happens_and_for_how_long() {
    let at = |phase, seconds: i64| {
        let status = Status {
            revision: 1,
            turn: Some(TurnId::FIRST),
            phase,
            since: Timestamp::from_millis(1_000_000),
        };
        super::status(&status, Timestamp::from_millis(1_000_000 + seconds * 1_000))
    };
    let retrying = Phase::Retrying {
        until: Timestamp::from_millis(1_007_400),
        attempt: 2,
        of: 3,
        failure: Failure::new(FailureCode::RateLimited, "Ollama asks to wait"),
    };
    let model = || "llama3.2".to_owned();
    for (phase, seconds, words) in [
        (Phase::Idle, 5, None),
        (
            Phase::Connecting {
                provider: "Ollama".to_owned(),
            },
            0,
            Some("connecting to Ollama"),
        ),
        (
            Phase::LoadingModel {
                model: model(),
                permille: None,
            },
            42,
            Some("loading llama3.2 (0:42)"),
        ),
        (
            Phase::LoadingModel {
                model: model(),
                permille: Some(456),
            },
            42,
            Some("loading llama3.2, 45 % (0:42)"),
        ),
        (
            Phase::Waiting { model: model() },
            600,
            Some("waiting for llama3.2 (10:00)"),
        ),
        (
            Phase::ReadingPrompt {
                done: None,
                total: None,
            },
            1,
            Some("reading the prompt (0:01)"),
        ),
        (
            Phase::ReadingPrompt {
                done: Some(512),
                total: Some(2_048),
            },
            1,
            Some("reading the prompt, 512 of 2048 tokens (0:01)"),
        ),
        (Phase::Thinking, 8, Some("thinking (0:08)")),
        (Phase::Writing, 8, Some("writing")),
        (
            retrying.clone(),
            0,
            Some("Ollama asks to wait; trying again (2 of 3) in 8 s"),
        ),
        (
            retrying,
            100,
            Some("Ollama asks to wait; trying again (2 of 3) in 0 s"),
        ),
        (Phase::Stopping, 1, Some("stopping")),
    ] {
        assert_eq!(at(phase, seconds).as_deref(), words);
    }
    assert_eq!(
        at(Phase::Thinking, -60).as_deref(),
        Some("thinking (0:00)"),
        "a clock that was set back"
    );
}

#[test]
fn durations_read_like_a_clock() {
    for (ms, words) in [
        (0, "0:00"),
        (8_999, "0:08"),
        (724_000, "12:04"),
        (3_600_000, "1:00:00"),
    ] {
        assert_eq!(elapsed(ms), words);
    }
}

#[test]
fn a_result_that_nobody_saw_says_that_it_may_have_had_an_effect() {
    let state = ToolState::Finished {
        outcome: ToolOutcome::Abandoned,
        effect: Effect::Unknown,
        at: Timestamp::from_millis(0),
    };
    assert_eq!(tool_state(&state), "abandoned; it may have had an effect");
}

#[test]
fn a_link_that_stopped_trying_says_why_and_one_that_heals_is_quiet() {
    assert_eq!(link(LinkState::Live, Some(&Trouble::Lost)), None);
    assert_eq!(link(LinkState::Attaching, None), None);
    assert_eq!(
        link(LinkState::Attaching, Some(&Trouble::Gap)).as_deref(),
        Some("reconnecting")
    );
    assert_eq!(
        link(
            LinkState::NeedsManual,
            Some(&Trouble::Refused(ErrorCode::Gone))
        )
        .as_deref(),
        Some("this chat is in the bin")
    );
}

#[test]
fn the_list_says_what_runs_what_waits_and_what_nobody_has_seen() {
    let turn = TurnId::FIRST;
    let ended = |outcome| SessionState::Ended { outcome };
    for (state, unread, words) in [
        (SessionState::Empty, false, None),
        (SessionState::Running { turn }, true, Some("answering")),
        (SessionState::Asking { turn }, false, Some(WAITING_FOR_YOU)),
        (ended(OutcomeKind::Completed), false, None),
        (ended(OutcomeKind::Completed), true, Some("new answer")),
        (ended(OutcomeKind::Cancelled), false, None),
        (ended(OutcomeKind::Failed), false, Some("failed")),
        (
            ended(OutcomeKind::Failed),
            true,
            Some("failed, not seen yet"),
        ),
        (
            ended(OutcomeKind::Interrupted),
            true,
            Some("interrupted, not seen yet"),
        ),
    ] {
        assert_eq!(session_state(state, unread), words, "{state:?}");
    }
}
