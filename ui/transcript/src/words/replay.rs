//! Words of a turn that is shown again: what each event was, how long nothing happened, and where one is.

use protocol::{EventBody, MessagePurpose, Part, TurnOutcome};

use super::{badge, elapsed, resolution, scar, tool_outcome_words, unsupported, visible};

/// A name of a model or a tool is somebody else's, and stands in the middle of a line.
const NAME_CHARS: usize = 60;

/// What an event was, in a few words.
pub fn event(body: &EventBody) -> String {
    match body {
        EventBody::UserMessageAdded { purpose, .. } => match purpose {
            MessagePurpose::Said => "your message".to_owned(),
            MessagePurpose::Continue { .. } => "you asked to go on".to_owned(),
        },
        EventBody::TurnStarted { .. } => "the turn begins".to_owned(),
        EventBody::StepStarted {
            attempt,
            model,
            purpose,
            ..
        } => {
            let model = name(&model.model);
            match attempt {
                _ if !purpose.is_answer() => format!("{model} is asked for a summary"),
                0 | 1 => format!("{model} is asked"),
                again => format!("{model} is asked, attempt {again}"),
            }
        }
        EventBody::TextAppended { part, .. } => match part {
            Part::Answer => "text".to_owned(),
            Part::Reasoning => "reasoning".to_owned(),
        },
        EventBody::TextFoundReasoning { .. } => "that was reasoning".to_owned(),
        EventBody::ToolCallRequested { name: tool, .. } => format!("tool call {}", name(tool)),
        EventBody::ApprovalRequested { tool, .. } => format!("question about {}", name(tool)),
        EventBody::ApprovalResolved {
            resolution: answer, ..
        } => resolution(*answer).to_owned(),
        EventBody::ToolCallStarted { .. } => "the tool runs".to_owned(),
        EventBody::ToolCallFinished { outcome, .. } => {
            format!("tool result: {}", tool_outcome_words(outcome))
        }
        EventBody::StepEnded {
            unread: Some(_), ..
        } => "the model ended its answer, and had not seen all of the conversation".to_owned(),
        EventBody::StepEnded { .. } => "the model ended its answer".to_owned(),
        EventBody::AttemptFailed {
            retry_in_ms, next, ..
        } => match (next, retry_in_ms) {
            (Some(next), _) => format!("failed; {} is asked instead", name(&next.model)),
            (None, Some(ms)) => format!("failed; tried again after {} s", ms.div_ceil(1_000)),
            (None, None) => "failed".to_owned(),
        },
        EventBody::HistoryCompacted { .. } => "compaction".to_owned(),
        EventBody::ComputerSlept { .. } => "the computer slept".to_owned(),
        EventBody::TurnEnded { outcome } => format!("the end: {}", end(outcome)),
        EventBody::Unsupported { original_kind, .. } => unsupported(original_kind),
        // Of the session or the library: never part of a turn.
        EventBody::SessionStarted { .. }
        | EventBody::SessionRenamed { .. }
        | EventBody::ModelChosen { .. }
        | EventBody::FolderChosen { .. }
        | EventBody::OptionsChosen { .. }
        | EventBody::HistoryRewound { .. }
        | EventBody::HistoryRestored { .. }
        | EventBody::SessionRestored { .. }
        | EventBody::SessionListed { .. }
        | EventBody::SessionTitled { .. }
        | EventBody::SessionTurnStarted { .. }
        | EventBody::SessionTurnEnded { .. }
        | EventBody::SessionSeen { .. }
        | EventBody::SessionAsked { .. }
        | EventBody::SessionAnswered { .. }
        | EventBody::SessionBinned { .. }
        | EventBody::SessionUnbinned { .. }
        | EventBody::ProviderAdded { .. }
        | EventBody::ProviderChanged { .. }
        | EventBody::ProviderRemoved { .. }
        | EventBody::TimeLimitsChanged { .. }
        | EventBody::FallbacksChosen { .. }
        | EventBody::ModelOptionsChanged { .. }
        | EventBody::ModelPullStarted { .. }
        | EventBody::ModelPullEnded { .. }
        | EventBody::PricesChosen { .. }
        | EventBody::LogSalvaged { .. } => "a change beside the turn".to_owned(),
    }
}

/// Where one is: "event 12 of 340, 0:03 of 0:41, tool call read_file".
pub fn replay_position(
    position: usize,
    events: usize,
    elapsed_ms: u64,
    total_ms: u64,
    last: Option<&EventBody>,
) -> String {
    let place = format!(
        "event {position} of {events}, {} of {}",
        elapsed(elapsed_ms),
        elapsed(total_ms)
    );
    match last {
        Some(last) => format!("{place}, {}", event(last)),
        None => place,
    }
}

/// For how long nothing happened: "waited 4 min 12 s".
pub fn waited(ms: u64) -> String {
    format!("waited {}", long(ms))
}

fn end(outcome: &TurnOutcome) -> String {
    match outcome {
        TurnOutcome::Completed { stop } => badge(*stop).unwrap_or("complete").to_owned(),
        TurnOutcome::Failed { .. }
        | TurnOutcome::Cancelled { .. }
        | TurnOutcome::Interrupted { .. } => scar(outcome).unwrap_or_default(),
    }
}

/// To the second, in at most two units.
fn long(ms: u64) -> String {
    let seconds = ms / 1_000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => two(seconds / 60, "min", seconds % 60, "s"),
        3_600..86_400 => two(seconds / 3_600, "h", seconds / 60 % 60, "min"),
        _ => two(seconds / 86_400, "d", seconds / 3_600 % 24, "h"),
    }
}

fn two(large: u64, unit: &str, small: u64, small_unit: &str) -> String {
    match small {
        0 => format!("{large} {unit}"),
        _ => format!("{large} {unit} {small} {small_unit}"),
    }
}

fn name(text: &str) -> String {
    let shown = visible(text).replace('\t', " ");
    match shown.char_indices().nth(NAME_CHARS) {
        Some((end, _)) => format!("{}…", shown.get(..end).unwrap_or_default()),
        None => shown,
    }
}

#[cfg(test)]
mod tests {
    use protocol::{ItemId, ToolOutcome};

    use super::*;

    #[test]
    fn a_place_says_the_event_the_time_and_what_it_was() {
        let call = EventBody::ToolCallRequested {
            item: ItemId::new(3),
            step: 1,
            name: "read_file\u{202e}".to_owned(),
            arguments: "{}".to_owned(),
            call_id: None,
        };
        assert_eq!(
            replay_position(12, 340, 3_400, 41_900, Some(&call)),
            "event 12 of 340, 0:03 of 0:41, tool call read_file⟨U+202E⟩"
        );
        assert_eq!(
            replay_position(0, 340, 0, 41_900, None),
            "event 0 of 340, 0:00 of 0:41"
        );
        let denied = EventBody::ToolCallFinished {
            item: ItemId::new(3),
            outcome: ToolOutcome::Denied,
            effect: protocol::Effect::None,
        };
        assert_eq!(event(&denied), "tool result: denied");
    }

    #[test]
    fn a_wait_is_told_in_two_units_at_most() {
        for (ms, words) in [
            (2_999, "waited 2 s"),
            (252_000, "waited 4 min 12 s"),
            (120_000, "waited 2 min"),
            (3_600_000, "waited 1 h"),
            (5_400_000, "waited 1 h 30 min"),
            (90_000_000, "waited 1 d 1 h"),
        ] {
            assert_eq!(waited(ms), words);
        }
    }
}
