//! The sentences a reader sees: one place, shared by window and terminal.
//!
//! Invariant: every end and every state has words, and every end that is not a plain success says what can be done next.
//! Sentences are made from codes, never matched on. Where the engine wrote a sentence for the case at hand (a
//! [`Failure`]'s message), that one is used.
//! Not here: wall-clock times and locale; whoever draws puts the time beside the sentence.

use protocol::{
    AttemptState, CancelledBy, Effect, ErrorCode, Failure, FailureCode, InterruptedWhy, ItemBody,
    OutcomeKind, Part, Phase, SessionState, Status, StopReason, Timestamp, ToolOutcome, ToolState,
    TurnOutcome, TurnView,
};

mod amounts;
mod asking;
mod export;
mod health;
mod missing;
mod replay;
mod span;

pub use amounts::*;
pub use asking::*;
pub use export::*;
pub use health::*;
pub use missing::*;
pub use replay::*;
pub use span::*;

use crate::{
    fold::{DAMAGED_RECORD, DAMAGED_TEXT, LATE_EVENTS},
    link::{LinkState, Trouble},
};

/// Kind of the event that a salvage leaves in the place of one that could not be read.
const LOST_EVENT: &str = "EventLost";

/// Something a reader can do about the end of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Offer {
    /// The same message again.
    TryAgain,
    /// Ask the model to go on where it stopped.
    Continue,
    /// Another model for the next try.
    ChooseModel,
    /// The provider's settings.
    OpenSettings,
    /// The provider's key.
    OpenKey,
    /// The provider's address.
    CheckAddress,
    /// A longer silence before the first word.
    WaitLonger,
    /// A longer ceiling.
    ChangeLimit,
    /// The message in other words.
    EditMessage,
    /// The model's options.
    ModelSettings,
    /// A shorter history, then the same message.
    CompactAndTryAgain,
    /// A larger context length.
    LargerContext,
    /// The raw words beneath the sentence.
    ShowDetails,
    /// What a developer needs to know, without the conversation.
    CopyReport,
    /// Save again what could not be saved.
    RetryWrite,
    /// Save the conversation elsewhere.
    Export,
}

impl Offer {
    /// What stands on its button.
    pub const fn label(self) -> &'static str {
        match self {
            Self::TryAgain => "Try again",
            Self::Continue => "Continue",
            Self::ChooseModel => "Choose another model",
            Self::OpenSettings => "Open settings",
            Self::OpenKey => "Enter the key",
            Self::CheckAddress => "Check the address",
            Self::WaitLonger => "Wait longer",
            Self::ChangeLimit => "Change the limit",
            Self::EditMessage => "Edit the message",
            Self::ModelSettings => "Model settings",
            Self::CompactAndTryAgain => "Compact and try again",
            Self::LargerContext => "Use a larger context",
            Self::ShowDetails => "Details",
            Self::CopyReport => "Copy a report",
            Self::RetryWrite => "Save again",
            Self::Export => "Export",
        }
    }
}

/// What can be done about the end of a turn, the most likely first. Takes the partial answer for something to go on
/// from; [`offers_for`] looks.
pub const fn offers(outcome: &TurnOutcome) -> &'static [Offer] {
    match outcome {
        TurnOutcome::Completed { stop } => match stop {
            StopReason::EndOfTurn | StopReason::Unknown => &[],
            StopReason::Length | StopReason::StepLimit => &[Offer::Continue],
            StopReason::Filter => &[Offer::EditMessage, Offer::ChooseModel],
        },
        TurnOutcome::Failed { failure } => offers_after(failure.code),
        TurnOutcome::Cancelled {
            by: CancelledBy::User,
        } => &[Offer::Continue, Offer::TryAgain],
        TurnOutcome::Interrupted { why } => match why {
            InterruptedWhy::AppExit | InterruptedWhy::OsShutdown | InterruptedWhy::Crash => {
                &[Offer::Continue, Offer::TryAgain]
            }
            InterruptedWhy::StorageFailed => &[
                Offer::RetryWrite,
                Offer::Export,
                Offer::Continue,
                Offer::TryAgain,
            ],
        },
    }
}

/// What can be done after a failure.
pub const fn offers_after(code: FailureCode) -> &'static [Offer] {
    match code {
        FailureCode::ConnectFailed => &[Offer::TryAgain, Offer::CheckAddress],
        FailureCode::KeyRejected => &[Offer::OpenKey],
        FailureCode::ModelNotFound | FailureCode::ModelLoadFailed => &[Offer::ChooseModel],
        FailureCode::FirstTokenTimeout => &[Offer::TryAgain, Offer::WaitLonger],
        FailureCode::IdleTimeout | FailureCode::StreamCut | FailureCode::ProviderError => {
            &[Offer::Continue, Offer::TryAgain]
        }
        FailureCode::TurnTimeout => &[Offer::Continue, Offer::ChangeLimit],
        FailureCode::BadStream => &[Offer::CheckAddress, Offer::ShowDetails],
        FailureCode::EmptyResponse => &[Offer::TryAgain],
        FailureCode::RateLimited => &[Offer::TryAgain, Offer::ChooseModel],
        FailureCode::QuotaExceeded => &[Offer::ChooseModel],
        FailureCode::CannotSeeImages => &[Offer::ChooseModel, Offer::EditMessage],
        FailureCode::BadRequest => &[Offer::EditMessage, Offer::ModelSettings],
        FailureCode::ContextOverflow => &[
            Offer::CompactAndTryAgain,
            Offer::LargerContext,
            Offer::ChooseModel,
        ],
        FailureCode::AllCandidatesFailed => &[Offer::TryAgain, Offer::OpenSettings],
        FailureCode::ToolLoop => &[Offer::Continue, Offer::EditMessage],
        FailureCode::Panicked | FailureCode::Aborted => &[Offer::TryAgain, Offer::CopyReport],
    }
}

/// What can be done about this turn's end: [`offers`], without going on from an answer that never began.
pub fn offers_for(turn: &TurnView) -> Vec<Offer> {
    let Some(outcome) = &turn.outcome else {
        return Vec::new();
    };
    let mut offers = offers(outcome).to_vec();
    if !has_answer(turn) && offers.contains(&Offer::Continue) {
        offers.retain(|offer| *offer != Offer::Continue);
        if !offers.contains(&Offer::TryAgain) {
            offers.insert(0, Offer::TryAgain);
        }
    }
    offers
}

/// Whether the model said anything to the reader, or used a tool.
fn has_answer(turn: &TurnView) -> bool {
    turn.items.iter().any(|item| match &item.body {
        ItemBody::Text { part, text, .. } => *part == Part::Answer && !text.trim().is_empty(),
        ItemBody::ToolCall { .. } => true,
        ItemBody::UserMessage { .. }
        | ItemBody::Compacted { .. }
        | ItemBody::Unsupported { .. } => false,
    })
}

/// The line under an answer that did not come to its end; `None` under one that did.
/// A limit is a [`badge`] instead: that answer is complete, and says where it was stopped.
pub fn scar(outcome: &TurnOutcome) -> Option<String> {
    match outcome {
        TurnOutcome::Completed { .. } => None,
        TurnOutcome::Failed { failure } => Some(failed(failure)),
        TurnOutcome::Cancelled {
            by: CancelledBy::User,
        } => Some("stopped".to_owned()),
        TurnOutcome::Interrupted { why } => Some(
            match why {
                InterruptedWhy::AppExit => "interrupted: Holdfast was closed",
                InterruptedWhy::OsShutdown => "interrupted: the computer was shut down",
                InterruptedWhy::Crash => "interrupted: Holdfast ended unexpectedly",
                InterruptedWhy::StorageFailed => {
                    "interrupted: this chat could not be saved to the disk"
                }
            }
            .to_owned(),
        ),
    }
}

/// Said of an answer that is none.
pub const ONLY_THOUGHT: &str =
    "The model thought, and ended without an answer. Try again, or switch its thinking off.";

/// Whether a turn came to its end with a thought, and no answer after it.
pub fn only_thought(turn: &TurnView) -> bool {
    let completed = matches!(
        turn.outcome,
        Some(TurnOutcome::Completed {
            stop: StopReason::EndOfTurn | StopReason::Unknown
        })
    );
    let last = turn.items.last().map(|item| &item.body);
    completed
        && matches!(
            last,
            Some(ItemBody::Text {
                part: Part::Reasoning,
                ..
            })
        )
}

/// The mark on a completed answer that a limit ended.
pub const fn badge(stop: StopReason) -> Option<&'static str> {
    match stop {
        StopReason::EndOfTurn | StopReason::Unknown => None,
        StopReason::Length => Some("stopped at the token limit"),
        StopReason::Filter => Some("stopped by the provider's content filter"),
        StopReason::StepLimit => Some("stopped at the limit of steps"),
    }
}

/// Messages of the engine begin with a small letter; a sentence on its own does not, unless with a name that is no word:
/// of a file or a model, which keeps its letters.
pub fn sentence(words: &str) -> String {
    let first = words.split_whitespace().next().unwrap_or_default();
    let word = first.trim_end_matches(['.', ',', ':', ';', '!', '?']);
    let is_word = word
        .chars()
        .all(|letter| letter.is_alphabetic() || matches!(letter, '-' | '’' | '\''));
    let mut letters = words.chars();
    match letters.next() {
        Some(letter) if is_word => letter.to_uppercase().chain(letters).collect(),
        Some(_) | None => words.to_owned(),
    }
}

/// A failure's sentence: the engine's own, or that of its code.
pub fn failed(failure: &Failure) -> String {
    if failure.message.trim().is_empty() {
        failure_code(failure.code).to_owned()
    } else {
        failure.message.clone()
    }
}

/// What a kind of failure means, when nothing more is known.
pub const fn failure_code(code: FailureCode) -> &'static str {
    match code {
        FailureCode::ConnectFailed => "the model server cannot be reached",
        FailureCode::KeyRejected => "the model server refused the key",
        FailureCode::ModelNotFound => "the model server has no such model",
        FailureCode::ModelLoadFailed => "the model server could not load the model",
        FailureCode::FirstTokenTimeout => "the model did not start in time",
        FailureCode::IdleTimeout => "the model went silent",
        FailureCode::TurnTimeout => "the turn reached its time limit",
        FailureCode::StreamCut => "the connection ended before the answer did",
        FailureCode::BadStream => "this is not a model's reply",
        FailureCode::EmptyResponse => "the model gave no answer",
        FailureCode::RateLimited => "the model server asks to wait",
        FailureCode::QuotaExceeded => "the account's limit is used up",
        FailureCode::BadRequest => "the model server refused the request",
        FailureCode::CannotSeeImages => "the model cannot see images",
        FailureCode::ContextOverflow => "the conversation does not fit the model's context",
        FailureCode::ProviderError => "the model server reported an error",
        FailureCode::AllCandidatesFailed => "no model server answered",
        FailureCode::ToolLoop => "the model kept asking for the same tool",
        FailureCode::Panicked | FailureCode::Aborted => {
            "Holdfast hit a bug in this turn; nothing else is affected"
        }
    }
}

/// The quiet line under a running answer; `None` when there is nothing to say.
/// `now` is the reader's clock: it is only used to tell how long it has been.
pub fn status(status: &Status, now: Timestamp) -> Option<String> {
    let words = phase(&status.phase)?;
    let elapsed_ms = now.millis_since(status.since);
    Some(match &status.phase {
        Phase::Waiting { .. }
        | Phase::LoadingModel { .. }
        | Phase::ReadingPrompt { .. }
        | Phase::Thinking
        | Phase::Compacting
        | Phase::RunningTool { .. } => format!("{words} ({})", elapsed(elapsed_ms)),
        Phase::Connecting { .. } if elapsed_ms >= 1_000 => {
            format!("{words} ({})", elapsed(elapsed_ms))
        }
        Phase::Retrying { until, .. } => {
            let left_s = until.millis_since(now).div_ceil(1_000);
            format!("{words} in {left_s} s")
        }
        Phase::Idle
        | Phase::Connecting { .. }
        | Phase::Writing
        | Phase::CallingTool { .. }
        | Phase::Asking { .. }
        | Phase::Stopping
        | Phase::NotSaving { .. } => words,
    })
}

/// What a turn is doing, without the time it takes.
pub fn phase(phase: &Phase) -> Option<String> {
    Some(match phase {
        Phase::Idle => return None,
        Phase::Connecting { provider } => format!("connecting to {provider}"),
        Phase::Waiting { model } => format!("waiting for {model}"),
        Phase::LoadingModel {
            model,
            permille: Some(permille),
        } => format!("loading {model}, {} %", (permille / 10).min(100)),
        Phase::LoadingModel {
            model,
            permille: None,
        } => format!("loading {model}"),
        Phase::ReadingPrompt {
            done: Some(done),
            total: Some(total),
        } if *total > 0 => format!("reading the prompt, {done} of {total} tokens"),
        Phase::ReadingPrompt { .. } => "reading the prompt".to_owned(),
        Phase::Thinking => "thinking".to_owned(),
        Phase::Writing => "writing".to_owned(),
        Phase::CallingTool {
            name,
            argument_bytes,
        } if *argument_bytes >= 1_024 => {
            format!("preparing {name}, {} kB", argument_bytes / 1_024)
        }
        Phase::CallingTool { name, .. } => format!("preparing {name}"),
        Phase::RunningTool { name } => format!("running {name}"),
        // The log does not say how many there could have been; whoever shows a turn again does not know.
        Phase::Retrying { of: 0, failure, .. } => format!("{}; trying again", failed(failure)),
        Phase::Retrying {
            attempt,
            of,
            failure,
            ..
        } => format!("{}; trying again ({attempt} of {of})", failed(failure)),
        Phase::Asking { .. } => WAITING_FOR_YOU.to_owned(),
        Phase::Compacting => "summing up the conversation to make room".to_owned(),
        Phase::Stopping => "stopping".to_owned(),
        Phase::NotSaving { message } => format!("not being saved: {message}"),
    })
}

/// How an attempt that another one followed ended, and when that follows.
pub fn attempt(state: &AttemptState) -> Option<String> {
    match state {
        AttemptState::Open | AttemptState::Ended { .. } => None,
        AttemptState::Failed {
            failure,
            retry_in_ms: Some(wait_ms),
            ..
        } => Some(format!(
            "{}; tried again after {} s",
            failed(failure),
            wait_ms.div_ceil(1_000)
        )),
        AttemptState::Failed {
            failure,
            next: Some(next),
            ..
        } => Some(format!("asked {} instead: {}", next.model, failed(failure))),
        AttemptState::Failed { failure, .. } => Some(failed(failure)),
    }
}

/// What the session list says of a session; nothing when all is well and seen. `unread`: nobody has seen its end yet.
pub const fn session_state(state: SessionState, unread: bool) -> Option<&'static str> {
    match (state, unread) {
        (SessionState::Empty, _) => None,
        (SessionState::Running { .. }, _) => Some("answering"),
        (SessionState::Asking { .. }, _) => Some(WAITING_FOR_YOU),
        (SessionState::Ended { outcome }, false) => match outcome {
            OutcomeKind::Completed | OutcomeKind::Cancelled => None,
            OutcomeKind::Failed => Some("failed"),
            OutcomeKind::Interrupted => Some("interrupted"),
        },
        (SessionState::Ended { outcome }, true) => Some(match outcome {
            OutcomeKind::Completed | OutcomeKind::Cancelled => "new answer",
            OutcomeKind::Failed => "failed, not seen yet",
            OutcomeKind::Interrupted => "interrupted, not seen yet",
        }),
    }
}

/// How a tool call stands, and what it may have done to the world.
pub fn tool_state(state: &ToolState) -> String {
    match state {
        ToolState::Requested => "asked for".to_owned(),
        ToolState::Running { .. } => "running".to_owned(),
        ToolState::Finished {
            outcome, effect, ..
        } => {
            let ended = tool_outcome_words(outcome);
            match effect {
                Effect::None | Effect::Committed => ended.to_owned(),
                Effect::Unknown => format!("{ended}; it may have had an effect"),
            }
        }
    }
}

const fn tool_outcome_words(outcome: &ToolOutcome) -> &'static str {
    match outcome {
        ToolOutcome::Succeeded { .. } => "done",
        ToolOutcome::Failed { .. } => "failed",
        ToolOutcome::Denied => "denied",
        ToolOutcome::NotRun { .. } => "did not run",
        ToolOutcome::Abandoned => "abandoned",
    }
}

/// The folded line of a reasoning block.
pub fn reasoning(open: bool, took_ms: u64) -> String {
    let took = elapsed(took_ms);
    if open {
        format!("thinking ({took})")
    } else {
        format!("thought for {took}")
    }
}

/// The line where the model's view of the conversation was cut short.
pub const fn compacted(summary: &str) -> &'static str {
    if summary.is_empty() {
        "some results were left out to make room for the model"
    } else {
        "earlier turns were summed up to make room for the model"
    }
}

/// What an item that cannot be shown says in its place.
pub fn unsupported(kind: &str) -> String {
    match kind {
        DAMAGED_TEXT => "a part of this text is missing from the record".to_owned(),
        DAMAGED_RECORD => "a part of this turn's record is damaged".to_owned(),
        LOST_EVENT => "something here was lost with a damaged database".to_owned(),
        LATE_EVENTS => "this turn's record goes on after its end".to_owned(),
        other => format!("this version of Holdfast cannot show \u{201c}{other}\u{201d}"),
    }
}

/// Where the link stands, for the reader; `None` while there is nothing to say.
pub fn link(state: LinkState, trouble: Option<&Trouble>) -> Option<String> {
    match (state, trouble) {
        (LinkState::NeedsManual, Some(trouble)) => Some(trouble_words(trouble).to_owned()),
        (LinkState::NeedsManual, None) => Some(trouble_words(&Trouble::Lost).to_owned()),
        (LinkState::Detached | LinkState::Attaching | LinkState::Replaying, Some(_)) => {
            Some("reconnecting".to_owned())
        }
        (LinkState::Detached | LinkState::Attaching | LinkState::Replaying, None) => None,
        // A single lost answer while live is repaired before anybody needs to know.
        (LinkState::Live, Some(_) | None) => None,
    }
}

const fn trouble_words(trouble: &Trouble) -> &'static str {
    match trouble {
        Trouble::Lost => "the connection to Holdfast's engine was lost",
        Trouble::Gap | Trouble::BadAnswer => "this chat could not be brought up to date",
        Trouble::Refused(code) => match code {
            ErrorCode::Gone => "this chat is in the bin",
            ErrorCode::NotFound => "this chat does not exist",
            ErrorCode::StorageFailed => "this chat could not be read from the disk",
            ErrorCode::ShuttingDown => "Holdfast is closing",
            ErrorCode::ProtocolMismatch => {
                "this page is of another version than the engine; reload it"
            }
            ErrorCode::Superseded => "another page has taken this window's place; reload it",
            ErrorCode::UnknownEpoch
            | ErrorCode::TurnActive
            | ErrorCode::StaleHead
            | ErrorCode::AlreadyResolved { .. }
            | ErrorCode::OpIdConflict
            | ErrorCode::Invalid { .. }
            | ErrorCode::Other => "this chat could not be opened",
        },
    }
}

/// A duration as a reader reads it: "0:08", "12:04", "1:00:00".
pub fn elapsed(ms: u64) -> String {
    let total_s = ms / 1_000;
    let (hours, minutes, seconds) = (total_s / 3_600, total_s / 60 % 60, total_s % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes}:{seconds:02}")
    }
}

#[cfg(test)]
mod tests;
