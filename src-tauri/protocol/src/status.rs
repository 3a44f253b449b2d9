//! What a turn is doing right now: for the reader's eyes, never stored, always derivable again.

use serde::{Deserialize, Serialize};

use crate::{Failure, ItemId, Timestamp, TurnId};

/// A session's present state, with a revision that grows with every change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Grows with every change within a boot. A poll answers when it is newer than the one last seen.
    pub revision: u64,
    /// The running turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// What it is doing.
    pub phase: Phase,
    /// Since when, by the wall clock. A state that only got further goes on.
    pub since: Timestamp,
}

/// The named states a reader sees in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase")]
pub enum Phase {
    /// No turn runs.
    Idle,
    /// Reaching the provider.
    Connecting { provider: String },
    /// The request is out and nothing came yet: the provider queues it or loads the model.
    Waiting { model: String },
    /// The provider says that it loads the model; how much of it, in thousandths, where it tells.
    LoadingModel {
        model: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        permille: Option<u32>,
    },
    /// The provider reads the prompt; tokens where it tells.
    ReadingPrompt {
        done: Option<u64>,
        total: Option<u64>,
    },
    /// Reasoning comes.
    Thinking,
    /// The answer comes.
    Writing,
    /// A tool call's arguments come; bytes so far.
    CallingTool { name: String, argument_bytes: u64 },
    /// Tools run.
    RunningTool { name: String },
    /// A call waits for the user's word; the question's name.
    Asking { item: ItemId },
    /// The conversation has outgrown the model's context, and is summed up.
    Compacting,
    /// A failed attempt is made again at `until`; `of` is 0 where it is not known how many there may be.
    Retrying {
        until: Timestamp,
        attempt: u32,
        of: u32,
        failure: Failure,
    },
    /// Stop was asked for.
    Stopping,
    /// The log cannot be written: readable, but not being saved.
    NotSaving { message: String },
}

impl Phase {
    /// Whether this is what was done before, only further: the time it takes counts on.
    pub fn goes_on_from(&self, before: &Self) -> bool {
        match (self, before) {
            (Self::LoadingModel { model, .. }, Self::LoadingModel { model: other, .. }) => {
                model == other
            }
            (Self::ReadingPrompt { .. }, Self::ReadingPrompt { .. }) => true,
            (Self::CallingTool { name, .. }, Self::CallingTool { name: other, .. }) => {
                name == other
            }
            (_, _) => false,
        }
    }
}
