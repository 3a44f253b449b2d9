//! The engine as a page reaches it: in this process, in a child process, or not at all.
//!
//! Invariant: calls and answers are the door's own types, and in the child's case their own JSON, so that nothing the
//! IPC carries is replaced by something kinder.

use std::sync::{Arc, Mutex, PoisonError};

use engine::Engine;
use protocol::{
    AttachReason, Attached, Batch, Cursor, Epoch, ErrorCode, ErrorReport, EventPage, LibraryPage,
    Op, OpId, PROTOCOL, PageId, PollRequest, Receipt, Seq, SessionId, StreamId, TranscriptPage,
    TurnId, Welcome,
};

use crate::child::Child;

/// What became of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missed {
    /// There is nobody at the other end, or there was nobody any more before the answer.
    Lost,
    /// The engine said no.
    Refused(ErrorReport),
}

/// Why the engine said no.
///
/// # Panics
/// When it did not.
pub fn refusal<T: std::fmt::Debug>(answer: Result<T, Missed>) -> ErrorCode {
    match answer {
        Err(Missed::Refused(report)) => report.code,
        other => panic!("not refused: {other:?}"),
    }
}

/// The engine at the other end of the line, replaced as it is closed and opened. Clones are the same line.
#[derive(Clone, Debug, Default)]
pub struct Line {
    end: Arc<Mutex<End>>,
}

#[derive(Clone, Default)]
enum End {
    #[default]
    Dead,
    Here(Engine),
    Child(Child),
}

impl std::fmt::Debug for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Dead => "nobody",
            Self::Here(_) => "an engine in this process",
            Self::Child(_) => "an engine in a child process",
        })
    }
}

/// One call through the line.
macro_rules! call {
    ($line:expr, $engine:ident => $here:expr, $child:ident => $there:expr) => {
        match $line.end() {
            End::Dead => Err(Missed::Lost),
            End::Here($engine) => $here.map_err(Missed::Refused),
            End::Child($child) => $there.await,
        }
    };
}

impl Line {
    pub fn to_engine(&self, engine: Engine) {
        self.set(End::Here(engine));
    }

    pub fn to_child(&self, child: Child) {
        self.set(End::Child(child));
    }

    pub fn cut(&self) {
        self.set(End::Dead);
    }

    fn set(&self, end: End) {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner) = end;
    }

    fn end(&self) -> End {
        self.end
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub async fn hello(&self, window: &str, page: PageId) -> Result<Welcome, Missed> {
        call!(self,
            engine => engine.hello(window, page, PROTOCOL),
            child => child.hello(window, page))
    }

    pub async fn attach(
        &self,
        page: PageId,
        stream: StreamId,
        cursor: Option<Cursor>,
    ) -> Result<Attached, Missed> {
        call!(self,
            engine => engine.attach(page, stream, cursor, AttachReason::Open).await,
            child => child.attach(page, stream, cursor))
    }

    pub async fn poll(&self, request: PollRequest) -> Result<Batch, Missed> {
        call!(self, engine => engine.poll(request).await, child => child.poll(request))
    }

    pub async fn detach(&self, epoch: Epoch) -> Result<(), Missed> {
        call!(self,
            engine => { engine.detach(epoch); Ok(()) },
            child => child.detach(epoch))
    }

    pub async fn load_older(
        &self,
        session: SessionId,
        before: TurnId,
        as_of: Cursor,
    ) -> Result<TranscriptPage, Missed> {
        call!(self,
            engine => engine.load_older(session, before, as_of).await,
            child => child.load_older(session, before, as_of))
    }

    pub async fn load_events(
        &self,
        session: SessionId,
        turn: TurnId,
        after: Option<Seq>,
        max_bytes: u32,
    ) -> Result<EventPage, Missed> {
        call!(self,
            engine => engine.load_events(session, turn, after, max_bytes).await,
            child => child.load_events(session, turn, after, max_bytes))
    }

    pub async fn submit(&self, op_id: OpId, op: Op) -> Result<Receipt, Missed> {
        call!(self, engine => engine.submit(op_id, op).await, child => child.submit(op_id, op))
    }

    pub async fn library(&self) -> Result<LibraryPage, Missed> {
        call!(self, engine => engine.library().await, child => child.library())
    }
}
