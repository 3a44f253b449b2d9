//! Pictures: what a reader would see, as plain text, so that a whole transcript is compared and printed as one value.
//!
//! Not here: the product's own words and looks. A picture names what is there; that it is worded well is the window's.

use std::fmt::Write;

use protocol::{
    ApprovalView, CancelledBy, ItemBody, Part, Place, SessionState, StopReason, ToolOutcome,
    ToolState, TurnOutcome, TurnView,
};
use transcript::{Library, Transcript};

/// What can be drawn.
pub trait Draw {
    fn draw(&self) -> String;
}

impl Draw for Transcript {
    fn draw(&self) -> String {
        self.turns().map(turn).collect()
    }
}

impl Draw for Library {
    fn draw(&self) -> String {
        self.sessions_newest_first()
            .map(|session| {
                let state = match session.state {
                    SessionState::Empty => "empty".to_owned(),
                    SessionState::Running { .. } => "running".to_owned(),
                    SessionState::Asking { .. } => "asking".to_owned(),
                    SessionState::Ended { outcome } => format!("{outcome:?}").to_lowercase(),
                };
                let place = match session.place {
                    Place::Shelf => "",
                    Place::Bin => ", in the bin",
                };
                format!("{} ({state}{place})\n", session.title)
            })
            .collect()
    }
}

/// Turns as one picture.
pub fn turns<'a>(turns: impl IntoIterator<Item = &'a TurnView>) -> String {
    turns.into_iter().map(turn).collect()
}

fn turn(view: &TurnView) -> String {
    let mut out = String::new();
    for item in &view.items {
        let line = match &item.body {
            ItemBody::UserMessage { text, .. } => format!("you: {text}"),
            ItemBody::Text {
                part: Part::Answer,
                text,
                ..
            } => format!("model: {text}"),
            ItemBody::Text {
                part: Part::Reasoning,
                text,
                ..
            } => format!("thinks: {text}"),
            ItemBody::ToolCall {
                name,
                arguments,
                state,
                approval,
                ..
            } => {
                let asked = approval.as_ref().map_or_else(String::new, question);
                format!("tool: {name} {arguments}{asked} -> {}", tool(state))
            }
            ItemBody::Compacted {
                summary, set_aside, ..
            } => format!("compacted: {summary} ({} set aside)", set_aside.len()),
            ItemBody::Unsupported {
                original_kind: kind,
            } => format!("unsupported: {kind}"),
        };
        writeln!(out, "{line}").expect("a string takes everything");
    }
    writeln!(out, "({})", outcome(view.outcome.as_ref())).expect("a string takes everything");
    out
}

fn question(approval: &ApprovalView) -> String {
    match approval.resolution {
        None => " [asks]".to_owned(),
        Some(resolution) => format!(" [{resolution:?}]").to_lowercase(),
    }
}

fn tool(state: &ToolState) -> String {
    match state {
        ToolState::Requested => "requested".to_owned(),
        ToolState::Running { .. } => "running".to_owned(),
        ToolState::Finished {
            outcome, effect, ..
        } => match outcome {
            ToolOutcome::Succeeded { output } => output.clone(),
            ToolOutcome::Failed { message } => format!("failed: {message}"),
            ToolOutcome::Denied => "denied".to_owned(),
            ToolOutcome::NotRun { .. } => "not run".to_owned(),
            ToolOutcome::Abandoned => format!("abandoned, effect {effect:?}").to_lowercase(),
        },
    }
}

/// An outcome in a word or two.
pub fn outcome(outcome: Option<&TurnOutcome>) -> String {
    match outcome {
        None => "running".to_owned(),
        Some(TurnOutcome::Completed {
            stop: StopReason::EndOfTurn,
        }) => "completed".to_owned(),
        Some(TurnOutcome::Completed { stop }) => format!("completed: {stop:?}"),
        Some(TurnOutcome::Failed { failure }) => format!("failed: {:?}", failure.code),
        Some(TurnOutcome::Cancelled {
            by: CancelledBy::User,
        }) => "stopped".to_owned(),
        Some(TurnOutcome::Interrupted { why }) => format!("interrupted: {why:?}"),
    }
}
