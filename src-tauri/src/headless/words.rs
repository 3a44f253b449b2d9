//! States, ends and times in words.

use protocol::{
    CancelledBy, Civil, Effect, Failure, InterruptedWhy, ModelRef, OutcomeKind, Phase,
    SessionState, Slept, StopReason, Timestamp, ToolOutcome, TurnOutcome,
};

use super::question::harmless_line;

pub(super) use engine::words::image;

/// What fits beside a tool's name on a usual terminal's line.
const BRIEF_CHARS: usize = 100;

/// What a turn is doing; nothing when there is nothing to say.
pub(super) fn phase(phase: &Phase) -> Option<String> {
    match phase {
        Phase::Idle => None,
        Phase::Connecting { provider } => Some(format!("connecting to {provider}")),
        Phase::Waiting { model } => Some(format!("waiting for {model}")),
        // How far it is would be a line each time.
        Phase::LoadingModel { model, .. } => Some(format!("loading {model}")),
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

/// A failed attempt that does not end the turn, and how it goes on. The last one's words are the turn's own.
pub(super) fn attempt_failed(
    failure: &Failure,
    retry_in_ms: Option<u64>,
    next: Option<&ModelRef>,
) -> Option<String> {
    let what = failure.message.trim_end_matches('.');
    match (next, retry_in_ms) {
        (Some(next), _) => Some(format!("{what}; asking {} instead", model(next))),
        (None, Some(ms)) => Some(format!("{what}; trying again in {}", duration(ms))),
        (None, None) => None,
    }
}

/// The computer slept while the turn ran.
pub(super) fn slept(slept: &Slept) -> String {
    let ms = slept.to.millis_since(slept.from);
    let minutes = ms / 60_000;
    let time = match minutes {
        0..60 => duration(ms),
        _ => format!("{} h {} min", minutes / 60, minutes % 60),
    };
    format!("the computer slept for {time} meanwhile")
}

/// A call, briefly.
pub(super) fn tool_call(tool: &str, arguments: &str) -> String {
    format!("{} {}", harmless_line(tool), brief(arguments))
}

/// What became of a call, briefly.
pub(super) fn tool_result(tool: &str, outcome: &ToolOutcome, effect: Effect) -> String {
    let what = match outcome {
        ToolOutcome::Succeeded { output } => {
            format!("{}: {}", tool_outcome(outcome), size(output))
        }
        ToolOutcome::Failed { message } => {
            format!("{}: {}", tool_outcome(outcome), brief(message))
        }
        ToolOutcome::NotRun { why } => format!("{}: {}", tool_outcome(outcome), brief(why)),
        ToolOutcome::Denied | ToolOutcome::Abandoned => tool_outcome(outcome).to_owned(),
    };
    let effect = effect_unknown(effect).map_or_else(String::new, |words| format!("; {words}"));
    format!("{} {what}{effect}", harmless_line(tool))
}

/// How a call ended, in a word or two.
pub(super) const fn tool_outcome(outcome: &ToolOutcome) -> &'static str {
    match outcome {
        ToolOutcome::Succeeded { .. } => "ok",
        ToolOutcome::Failed { .. } => "failed",
        ToolOutcome::Denied => "not allowed",
        ToolOutcome::NotRun { .. } => "not run",
        ToolOutcome::Abandoned => "abandoned",
    }
}

/// The one effect that has to be said.
pub(super) const fn effect_unknown(effect: Effect) -> Option<&'static str> {
    match effect {
        Effect::None | Effect::Committed => None,
        Effect::Unknown => Some("whether it took effect is not known"),
    }
}

/// The history was summed up for the model.
pub(super) fn compacted(set_aside: usize) -> String {
    let left_out = match set_aside {
        0 => String::new(),
        1 => ", and one tool's result is left out".to_owned(),
        n => format!(", and {n} tools' results are left out"),
    };
    format!(
        "the conversation had outgrown the model's context: from here on the model goes on from a summary{left_out}; \
         nothing was deleted"
    )
}

/// A text as one short and harmless line.
pub(super) fn brief(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = harmless_line(&line);
    if line.chars().count() <= BRIEF_CHARS {
        return line;
    }
    let cut: String = line.chars().take(BRIEF_CHARS).collect();
    format!("{cut}…")
}

fn size(text: &str) -> String {
    let lines = text.lines().count();
    match (text.len(), lines) {
        (0, _) => "nothing".to_owned(),
        (bytes, 1) => format!("{bytes} bytes"),
        (bytes, lines) => format!("{bytes} bytes in {lines} lines"),
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

/// A size a person can read, in powers of a thousand as disks are sold.
pub(super) fn bytes(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
    let unit = UNITS.into_iter().find(|(unit, _)| bytes >= *unit);
    unit.map_or_else(
        || format!("{bytes} bytes"),
        |(unit, name)| format!("{}.{} {name}", bytes / unit, bytes % unit * 10 / unit),
    )
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
    use protocol::{FailureCode, ProviderId};

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
    fn a_failed_attempt_says_how_it_goes_on_and_the_last_one_leaves_that_to_the_turn() {
        let failure = Failure::new(FailureCode::ConnectFailed, "Nobody answers at h:1.");
        let next = ModelRef {
            provider: ProviderId::from_bits(1),
            provider_name: "Ollama".to_owned(),
            model: "m".to_owned(),
        };
        assert_eq!(
            attempt_failed(&failure, None, Some(&next)).as_deref(),
            Some("Nobody answers at h:1; asking m at Ollama instead")
        );
        assert_eq!(
            attempt_failed(&failure, Some(1_500), None).as_deref(),
            Some("Nobody answers at h:1; trying again in 2 s")
        );
        assert_eq!(attempt_failed(&failure, None, None), None);
    }

    #[test]
    fn a_tools_result_is_told_briefly_and_an_unknown_effect_always() {
        let told = |outcome, effect| tool_result("write_file", &outcome, effect);
        let long = ToolOutcome::Succeeded {
            output: "a\nb\n".repeat(500),
        };
        assert_eq!(
            told(long, Effect::None),
            "write_file ok: 2000 bytes in 1000 lines"
        );
        let failed = ToolOutcome::Failed {
            message: format!("no\n\x1b[2Jroom {}", "x".repeat(200)),
        };
        let words = told(failed, Effect::None);
        assert!(
            words.starts_with("write_file failed: no \\u{1b}[2Jroom xxx")
                && words.chars().count() < 130,
            "{words}"
        );
        assert_eq!(
            told(ToolOutcome::Abandoned, Effect::Unknown),
            "write_file abandoned; whether it took effect is not known"
        );
        assert_eq!(
            told(ToolOutcome::Denied, Effect::None),
            "write_file not allowed"
        );
    }

    #[test]
    fn sizes_are_cut_to_a_tenth() {
        for (size, expected) in [
            (0, "0 bytes"),
            (999, "999 bytes"),
            (1_000, "1.0 kB"),
            (5_399_999, "5.3 MB"),
            (u64::MAX, "18446744073.7 GB"),
        ] {
            assert_eq!(bytes(size), expected);
        }
    }

    #[test]
    fn durations_are_rounded_up_to_seconds() {
        assert_eq!(duration(1), "1 s");
        assert_eq!(duration(14_000), "14 s");
        assert_eq!(duration(61_500), "1 min 2 s");
    }
}
