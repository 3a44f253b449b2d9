//! States, ends and times in words.

use protocol::{
    CancelledBy, Civil, InterruptedWhy, ModelRef, OutcomeKind, Phase, SessionState, StopReason,
    Timestamp, TurnOutcome,
};

/// What a turn is doing; nothing when there is nothing to say.
pub(super) fn phase(phase: &Phase) -> Option<String> {
    match phase {
        Phase::Idle => None,
        Phase::Connecting { provider } => Some(format!("connecting to {provider}")),
        Phase::Waiting { model } => Some(format!("waiting for {model}")),
        Phase::LoadingModel { model } => Some(format!("loading {model}")),
        Phase::ReadingPrompt { .. } => Some("reading the prompt".to_owned()),
        Phase::Thinking => Some("thinking".to_owned()),
        Phase::Writing => Some("writing".to_owned()),
        Phase::CallingTool { name, .. } => Some(format!("asking for {name}")),
        Phase::RunningTool { name } => Some(format!("running {name}")),
        Phase::Asking { .. } => Some("waiting for your word".to_owned()),
        Phase::Compacting => Some("summing up the conversation to make room".to_owned()),
        Phase::Retrying {
            attempt,
            of,
            failure,
            ..
        } => Some(format!(
            "{}; trying again ({attempt} of {of})",
            failure.message
        )),
        Phase::Stopping => Some("stopping".to_owned()),
        Phase::NotSaving { message } => Some(message.clone()),
    }
}

/// How a turn ended, where that is worth a word.
pub(super) fn outcome(outcome: &TurnOutcome) -> Option<String> {
    match outcome {
        TurnOutcome::Completed { stop } => match stop {
            StopReason::EndOfTurn | StopReason::Unknown => None,
            StopReason::Length => {
                Some("the answer ends here because it reached its limit of tokens".to_owned())
            }
            StopReason::Filter => {
                Some("the provider's content filter ended the answer here".to_owned())
            }
            StopReason::StepLimit => {
                Some("the answer ends here because it reached the limit of steps".to_owned())
            }
        },
        TurnOutcome::Failed { failure } => Some(failure.message.clone()),
        TurnOutcome::Cancelled { by } => match by {
            CancelledBy::User => Some("stopped".to_owned()),
        },
        TurnOutcome::Interrupted { why } => Some(
            match why {
                InterruptedWhy::AppExit => "interrupted: Holdfast was closed",
                InterruptedWhy::OsShutdown => "interrupted: the system asked Holdfast to leave",
                InterruptedWhy::Crash => "interrupted: Holdfast ended without a word",
                InterruptedWhy::StorageFailed => "interrupted: the log could not be written",
            }
            .to_owned(),
        ),
    }
}

/// The state's one word, the same for programs and people.
pub(super) const fn state(state: SessionState) -> &'static str {
    match state {
        SessionState::Empty => "empty",
        SessionState::Running { .. } => "running",
        SessionState::Asking { .. } => "asking",
        SessionState::Ended { outcome } => kind(outcome),
    }
}

/// The same of a turn.
pub(super) fn turn_state(outcome: Option<&TurnOutcome>) -> &'static str {
    outcome.map_or("running", |outcome| kind(OutcomeKind::from(outcome)))
}

/// Whom a turn asked.
pub(super) fn model(model: &ModelRef) -> String {
    format!("{} at {}", model.model, model.provider_name)
}

/// A date and time a person can read.
pub(super) fn time(at: Timestamp) -> String {
    let Civil {
        year,
        month,
        day,
        hour,
        minute,
        second: _,
    } = at.civil();
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

/// A duration a person can read.
pub(super) fn duration(ms: u64) -> String {
    let seconds = ms.div_ceil(1_000);
    match seconds {
        0..60 => format!("{seconds} s"),
        _ => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

const fn kind(outcome: OutcomeKind) -> &'static str {
    match outcome {
        OutcomeKind::Completed => "completed",
        OutcomeKind::Failed => "failed",
        OutcomeKind::Cancelled => "cancelled",
        OutcomeKind::Interrupted => "interrupted",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00 UTC"),
            (-1, "1969-12-31 23:59 UTC"),
            (951_782_399, "2000-02-28 23:59 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
            (1_785_420_180, "2026-07-30 14:03 UTC"),
        ] {
            assert_eq!(time(Timestamp::from_millis(seconds * 1_000)), expected);
        }
    }

    #[test]
    fn durations_are_rounded_up_to_seconds() {
        assert_eq!(duration(1), "1 s");
        assert_eq!(duration(14_000), "14 s");
        assert_eq!(duration(61_500), "1 min 2 s");
    }
}
