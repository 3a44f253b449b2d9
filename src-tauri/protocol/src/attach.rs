//! The frames of attach and poll. Any of them may be lost, repeated or late: none holds anything that log, cursor and
//! the turn's present state cannot give again.

use serde::{Deserialize, Serialize};

use crate::{
    Boot, Cursor, Epoch, Event, LibraryPage, LogId, SessionId, Status, StreamId, TranscriptPage,
    TurnId,
};

/// Answer to `hello`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// This run of the engine.
    pub boot: Boot,
    /// The database it has open.
    pub log: LogId,
    /// The frames it speaks.
    pub protocol: u32,
}

/// Answer to `attach`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// Names this attachment; every poll carries it.
    pub epoch: Epoch,
    /// The stream it follows.
    pub stream: StreamId,
    /// Whether the client keeps what it has.
    pub mode: AttachMode,
    /// How far the stream reached when this was answered: replay has ended when the client's cursor gets here.
    pub head: Cursor,
    /// The new transcript to swap in; absent on `Resume`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<Page>,
    /// What the session's turn is doing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
}

/// Whether an attaching client keeps what it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttachMode {
    /// Go on from the cursor.
    Resume,
    /// There was no cursor: here is everything needed.
    Fresh,
    /// The cursor cannot be used: here is everything needed instead.
    Reset(ResetReason),
}

/// Why a cursor cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResetReason {
    /// It belongs to another database.
    ForeignLog,
    /// It is beyond the end of the stream: the database lost its tail.
    AheadOfHead,
}

/// A read model of a stream, with the cursor to go on from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "of")]
pub enum Page {
    /// Of the library.
    Library(LibraryPage),
    /// Of a session: its last turns.
    Session(TranscriptPage),
}

/// Answer to `poll`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// The attachment it belongs to.
    pub epoch: Epoch,
    /// Events after the cursor asked for, oldest first; at least one if there is any, however small the limit.
    pub events: Vec<Event>,
    /// How far the stream reaches; beyond the events when the limit cut them.
    pub head: Cursor,
    /// What the session's turn is doing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
}

/// A part of what the log holds of one turn, for showing the turn again. Belongs to no attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventPage {
    /// Of which session.
    pub session: SessionId,
    /// Of which of its turns.
    pub turn: TurnId,
    /// The turn's events after the one asked for, oldest first; at least one if there is any, however small the limit.
    pub events: Vec<Event>,
    /// Whether the turn had more events than these when this was read.
    pub more_after: bool,
    /// How far the session reached when this was read.
    pub as_of: Cursor,
}

/// What a poll asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PollRequest {
    /// The attachment.
    pub epoch: Epoch,
    /// The client's position.
    pub after: Cursor,
    /// The newest [`Status::revision`] the client has; the poll answers when there is a newer one.
    pub seen_status: u64,
    /// How long to stay parked when there is nothing, in milliseconds; the engine has a limit of its own.
    pub wait_ms: u32,
    /// How many bytes of events at most, roughly; one event is always sent whole.
    pub max_bytes: u32,
}
