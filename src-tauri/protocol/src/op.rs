//! Ops: what a client asks for, imperative, each with a client-minted [`OpId`](crate::OpId).

use serde::{Deserialize, Serialize};

use crate::{
    Answer, Image, ItemId, ModelOptions, ModelRef, Prices, Provider, ProviderId, Seq, SessionId,
    StreamId, TimeLimits, TurnId,
};

/// What a client asks for. Applied exactly once per op id, answered after commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op")]
pub enum Op {
    /// Begin a session with its first message, and its first turn. The client mints the session's id.
    StartSession {
        session: SessionId,
        model: ModelRef,
        text: String,
        /// What it shows; their bytes are with the engine already.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<Image>,
        /// Where its tools may read and write files.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        folder: Option<String>,
        /// How its turns ask.
        #[serde(default, skip_serializing_if = "ModelOptions::is_empty")]
        options: ModelOptions,
    },
    /// Say something in a session; starts a turn. Refused `TurnActive` while one runs.
    SendMessage {
        session: SessionId,
        text: String,
        /// What it shows; their bytes are with the engine already.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<Image>,
    },
    /// Stop the running turn. Answered when the request is noted; the fact is `TurnEnded`.
    CancelTurn { session: SessionId, turn: TurnId },
    /// Rewind to before `turn` and say its message again, to the session's present model.
    RetryTurn {
        session: SessionId,
        turn: TurnId,
        expected_tip: Seq,
    },
    /// Make the conversation again what it was before `turn` was taken out of it; what takes its place now can be
    /// brought back the same way.
    RestoreTurn {
        session: SessionId,
        turn: TurnId,
        expected_tip: Seq,
    },
    /// Ask the session's present model to go on where the last turn's answer stopped before its end.
    ContinueTurn {
        session: SessionId,
        turn: TurnId,
        expected_tip: Seq,
    },
    /// Answer the question named `item`. Refused `AlreadyResolved` when it has its answer.
    AnswerApproval {
        session: SessionId,
        turn: TurnId,
        item: ItemId,
        answer: Answer,
    },
    /// Rewind to before `turn` and say `text` instead of its message.
    EditMessage {
        session: SessionId,
        turn: TurnId,
        text: String,
        /// What it shows; absent: what the message showed before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        images: Option<Vec<Image>>,
        expected_tip: Seq,
    },
    /// Give a session a title.
    RenameSession { session: SessionId, title: String },
    /// Put a session into the bin.
    BinSession { session: SessionId },
    /// Take it out again.
    UnbinSession { session: SessionId },
    /// The user has seen the end of this turn. Answered without an event when that is no news.
    NoteSeen { session: SessionId, turn: TurnId },
    /// The session's next turns use this model.
    ChooseModel { session: SessionId, model: ModelRef },
    /// Tools of the session's next turns see the files below this folder; absent: none.
    ChooseFolder {
        session: SessionId,
        folder: Option<String>,
    },
    /// How the session's next turns ask; replaces what it said before. Refused `Invalid` at the field at fault.
    ChooseOptions {
        session: SessionId,
        options: ModelOptions,
    },
    /// How a model is asked in every session that says nothing else. Refused `Invalid` at the field at fault.
    ChangeModelOptions {
        model: ModelRef,
        options: ModelOptions,
    },
    /// Have a server download a model. Refused `Invalid` if it is no name of a model, or if that is going on already.
    PullModel { provider: ProviderId, model: String },
    /// Have it stop, or forget a pull that failed or was interrupted.
    CancelPull { provider: ProviderId, model: String },
    /// Have a file of this computer listed with its models; it stays where it lies. Refused `Invalid` if it is no model.
    AddModelFile { path: String },
    /// How long turns wait for what, where a server has no limits of its own. Refused `Invalid` as a whole.
    ChangeTimeLimits { limits: TimeLimits },
    /// The models asked when a turn's own fails before it said anything, in this order.
    ChooseFallbacks { models: Vec<ModelRef> },
    /// What models cost, as the user knows it; in place of all earlier prices. Refused `Invalid` as a whole.
    ChoosePrices { prices: Prices },
    /// Add a model server.
    AddProvider { provider: Provider },
    /// Change a model server.
    ChangeProvider { provider: Provider },
    /// Remove a model server from the settings.
    RemoveProvider { provider: ProviderId },
    /// Add the recorded sample session. The client mints the session's id.
    AddSample { session: SessionId },
}

impl Op {
    /// Say something in words alone.
    pub fn message(session: SessionId, text: impl Into<String>) -> Self {
        Self::SendMessage {
            session,
            text: text.into(),
            images: Vec::new(),
        }
    }

    /// The session it is about.
    pub const fn session(&self) -> Option<SessionId> {
        match self {
            Self::StartSession { session, .. }
            | Self::SendMessage { session, .. }
            | Self::CancelTurn { session, .. }
            | Self::RetryTurn { session, .. }
            | Self::RestoreTurn { session, .. }
            | Self::EditMessage { session, .. }
            | Self::ContinueTurn { session, .. }
            | Self::AnswerApproval { session, .. }
            | Self::ChooseFolder { session, .. }
            | Self::ChooseOptions { session, .. }
            | Self::RenameSession { session, .. }
            | Self::BinSession { session }
            | Self::UnbinSession { session }
            | Self::NoteSeen { session, .. }
            | Self::ChooseModel { session, .. }
            | Self::AddSample { session } => Some(*session),
            Self::ChangeTimeLimits { .. }
            | Self::ChooseFallbacks { .. }
            | Self::ChangeModelOptions { .. }
            | Self::PullModel { .. }
            | Self::CancelPull { .. }
            | Self::AddModelFile { .. }
            | Self::ChoosePrices { .. }
            | Self::AddProvider { .. }
            | Self::ChangeProvider { .. }
            | Self::RemoveProvider { .. } => None,
        }
    }
}

/// "Your op is in the log."
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The stream its first event is in.
    pub stream: StreamId,
    /// The last event it caused there; absent when it caused none (a cancel that found the turn ended).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<Seq>,
    /// The turn it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
}
