//! A session's task: the only writer of its stream.
//!
//! Invariant: a session takes a new turn if and only if its last turn's terminal is committed, and every turn that
//! started gets exactly one terminal. Kept by: one task per session decides about ops and writes for the running turn;
//! the turn's end arrives as a value, and if its sender is dropped without one, that is recorded as `Aborted` and counted.
//! What could not be written is kept and tried again; the session says so meanwhile.

mod beginning;
mod ops;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use protocol::{
    ErrorReport, EventBody, Failure, FailureCode, ItemId, Op, OpId, OutcomeKind, Phase, Receipt,
    Seq, SessionId, StreamId, TurnId, TurnOutcome, TurnView,
};
use tokio::sync::{mpsc, oneshot};

use crate::{
    Harness,
    clock::ready,
    engine::Shared,
    gate::{gate, gate_blocking},
    health::Health,
    log::{
        Append, Commit, CommitError, Derived, Durability, Head, OpDigest, OpStamp, ReadError,
        Snapshot, ends_of_open_calls,
    },
    mutant::mutated,
    refusal::read_report,
    turn::{self, AnswersIn, TurnEnd},
};

/// Ops and records that may wait for a session's task. Full: whoever asks waits.
pub(crate) const SESSION_QUEUE: usize = 32;

/// How long a terminal that could not be written waits for the next try.
const RETRY_SAVE: Duration = Duration::from_secs(5);

/// What a session's task is asked.
pub(crate) enum SessionInput {
    /// Apply an op.
    Op {
        op_id: OpId,
        op: Box<Op>,
        reply: oneshot::Sender<Result<Receipt, ErrorReport>>,
    },
    /// Write for the running turn.
    Record {
        turn: TurnId,
        bodies: Vec<EventBody>,
        reply: oneshot::Sender<Result<(), NotRecorded>>,
    },
}

/// The log did not take it; the session knows why.
#[derive(Debug)]
pub(crate) struct NotRecorded;

/// A turn's way to write into its session.
#[derive(Clone)]
pub(crate) struct Recorder(pub(crate) mpsc::Sender<SessionInput>);

impl Recorder {
    /// Ready when the bodies are committed.
    pub(crate) async fn record(
        &self,
        turn: TurnId,
        bodies: Vec<EventBody>,
    ) -> Result<(), NotRecorded> {
        let (reply, answer) = oneshot::channel();
        let input = SessionInput::Record {
            turn,
            bodies,
            reply,
        };
        self.0.send(input).await.map_err(|_| NotRecorded)?;
        answer.await.map_err(|_| NotRecorded)?
    }
}

/// The running turn, as its session sees it.
struct Running {
    turn: TurnId,
    /// Answers to its questions, once they are in the log.
    answers: AnswersIn,
    ended: oneshot::Receiver<TurnEnd>,
}

pub(crate) struct Session {
    shared: Arc<Shared>,
    id: SessionId,
    head: Head,
    /// For the turns it starts.
    own: mpsc::WeakSender<SessionInput>,
    inbox: mpsc::Receiver<SessionInput>,
    running: Option<Running>,
    /// An end that could not be written yet.
    unsaved: Option<(TurnId, TurnEnd)>,
}

impl Session {
    /// The task's whole life. Ends when nobody can ask it anything any more.
    pub(crate) async fn run(
        shared: Arc<Shared>,
        id: SessionId,
        own: mpsc::WeakSender<SessionInput>,
        mut inbox: mpsc::Receiver<SessionInput>,
    ) {
        let mut head = Err(ReadError::Closed);
        // A header that cannot be read fails the op that asked, not the session: the next op tries again.
        while let Some(input) = inbox.recv().await {
            head = shared.log.reads().read(move |log| log.head(id)).await;
            match (&head, input) {
                (Ok(_), input) => {
                    let head = head.ok().flatten().unwrap_or_else(Head::empty);
                    let mut session = Self {
                        shared,
                        id,
                        head,
                        own,
                        inbox,
                        running: None,
                        unsaved: None,
                    };
                    session.handle(input).await;
                    session.serve().await;
                    return;
                }
                (Err(error), SessionInput::Op { reply, .. }) => {
                    // The asking side may have gone; nothing happened either way.
                    let _ = reply.send(Err(read_report(error)));
                }
                (Err(_), SessionInput::Record { reply, .. }) => {
                    let _ = reply.send(Err(NotRecorded));
                }
            }
        }
        drop(head);
    }

    async fn serve(&mut self) {
        loop {
            let mut retry = self
                .unsaved
                .is_some()
                .then(|| self.shared.clock.sleep(RETRY_SAVE));
            tokio::select! {
                biased;
                end = ended(self.running.as_mut()) => self.turn_ended(end).await,
                input = self.inbox.recv() => match input {
                    Some(input) => self.handle(input).await,
                    None => return,
                },
                () = ready(retry.as_mut()) => self.save_unsaved().await,
            }
        }
    }

    async fn handle(&mut self, input: SessionInput) {
        match input {
            SessionInput::Op { op_id, op, reply } => {
                let answer = self.op(op_id, *op).await;
                // A window that is gone does not undo what it asked for.
                let _ = reply.send(answer);
            }
            SessionInput::Record {
                turn,
                bodies,
                reply,
            } => {
                let answer = self.record(turn, bodies).await;
                let _ = reply.send(answer);
            }
        }
    }

    fn stream(&self) -> StreamId {
        StreamId::Session(self.id)
    }

    // Writing.

    async fn record(&mut self, turn: TurnId, bodies: Vec<EventBody>) -> Result<(), NotRecorded> {
        if self.head.open_turn != Some(turn) {
            return Err(NotRecorded);
        }
        if self.shared.log.room().refusal().is_some() {
            // What is asked for is still written, and so is the end: there is room for both.
            self.shared
                .cancel(self.id, Some(turn), turn::Cause::StorageFailed);
        }
        let bodies = self.still_to_say(bodies);
        // A tool call is synced before the tool runs, and a question before it is asked; text is not worth a sync.
        let is_of_consequence = bodies.iter().any(|b| {
            matches!(
                b,
                EventBody::ToolCallStarted { .. } | EventBody::ApprovalRequested { .. }
            )
        });
        let durability = if is_of_consequence && !mutated!(self.shared.harness, TextClassForCalls) {
            Durability::Disk
        } else {
            Durability::Process
        };
        let mut derived = Vec::new();
        if mutated!(self.shared.harness, RewriteWhole)
            && let Ok(Some(view)) = self.folded_turn(turn).await
        {
            derived.push(Derived::TurnView {
                stream: self.stream(),
                turn,
                body: serde_json::to_string(&view).unwrap_or_default(),
            });
        }
        let bodies = bodies.into_iter().map(|body| (Some(turn), body)).collect();
        self.write(
            Written {
                bodies,
                derived,
                ..Written::default()
            },
            durability,
        )
        .await
        .map(drop)
        .map_err(|error| {
            self.not_saving(turn, &error);
            NotRecorded
        })
    }

    /// Appends to this session, and to the library, in one transaction; moves the header with it.
    async fn write(
        &mut self,
        written: Written,
        durability: Durability,
    ) -> Result<Receipt, CommitError> {
        let Written {
            bodies,
            mut library,
            mut derived,
            op,
        } = written;
        let stream = self.stream();
        let mut head = self.head.clone();
        let mut keeps_head = false;
        let mut turn_started = None;
        for (turn, body) in &bodies {
            let first_of_turn = matches!(body, EventBody::UserMessageAdded { .. });
            let asked = !head.questions.is_empty();
            head.apply(*turn, body);
            if let (Some(turn), false) = (*turn, matches!(body, EventBody::TurnEnded { .. }))
                && asked == head.questions.is_empty()
            {
                library.push(if asked {
                    EventBody::SessionAnswered {
                        session: self.id,
                        turn,
                    }
                } else {
                    EventBody::SessionAsked {
                        session: self.id,
                        turn,
                    }
                });
            }
            keeps_head |= !matches!(body, EventBody::TextAppended { .. });
            if let (true, Some(turn)) = (first_of_turn, turn) {
                turn_started = Some(*turn);
                derived.push(Derived::TurnBegun {
                    stream,
                    turn: *turn,
                    first_seq: Seq::new(head.count),
                });
            }
        }
        if keeps_head {
            derived.push(Derived::Head {
                stream,
                head: Box::new(head.clone()),
            });
        }
        let in_session = !bodies.is_empty();
        let news: Vec<(TurnId, EventBody)> = bodies
            .iter()
            .filter(|(_, body)| Health::counts(body))
            .filter_map(|(turn, body)| Some(((*turn)?, body.clone())))
            .collect();
        let mut appends: Vec<Append> = bodies
            .into_iter()
            .map(|(turn, body)| Append { stream, turn, body })
            .collect();
        appends.extend(library.into_iter().map(|body| Append {
            stream: StreamId::Library,
            turn: None,
            body,
        }));
        let seq = in_session.then(|| Seq::new(head.count));
        let receipt = Receipt {
            stream: if in_session {
                stream
            } else {
                StreamId::Library
            },
            seq,
            turn: turn_started,
        };
        let op = op.map(|(op, digest)| OpStamp {
            op,
            digest,
            receipt,
        });
        let committed = self
            .shared
            .log
            .commit(
                Commit {
                    appends,
                    derived,
                    op,
                },
                durability,
            )
            .await?;
        match committed.count(stream) {
            Some(count) if count != head.count => {
                // Impossible while this task is the only writer; the log's own count is the truth.
                tracing::error!(session = %self.id, count, expected = head.count, "header out of step");
                head.count = count;
                self.head = head;
            }
            Some(_) => self.head = head,
            // The op had run before, or wrote elsewhere only.
            None => return Ok(committed.receipt.unwrap_or(receipt)),
        }
        for (turn, body) in &news {
            self.shared.health.committed(self.id, *turn, body);
        }
        Ok(committed.receipt.unwrap_or(receipt))
    }

    /// Without the resolutions of questions that have one: an answer may have come while the turn was ending them.
    fn still_to_say(&self, mut bodies: Vec<EventBody>) -> Vec<EventBody> {
        let mut open: Vec<ItemId> = self.head.questions.iter().map(|(item, _)| *item).collect();
        bodies.retain(|body| {
            if let EventBody::ApprovalRequested { item, .. } = body {
                open.push(*item);
            }
            if let EventBody::ApprovalResolved { item, .. } = body {
                let before = open.len();
                open.retain(|other| other != item);
                return open.len() < before;
            }
            true
        });
        bodies
    }

    fn not_saving(&self, turn: TurnId, error: &CommitError) {
        tracing::error!(session = %self.id, %turn, %error, "could not write the turn");
        let message = format!("This conversation is not being saved: {error}.");
        self.shared
            .statuses
            .set(self.id, Some(turn), Phase::NotSaving { message });
    }

    // The end of a turn.

    async fn turn_ended(&mut self, end: Option<TurnEnd>) {
        let Some(Running { turn, .. }) = self.running.take() else {
            return;
        };
        // What the turn had asked to be written before it ended comes before its end.
        let mut later = VecDeque::new();
        while let Ok(input) = self.inbox.try_recv() {
            match input {
                SessionInput::Record { .. } => self.handle(input).await,
                SessionInput::Op { .. } => later.push_back(input),
            }
        }
        let end = end.unwrap_or_else(|| {
            tracing::error!(session = %self.id, %turn, "a turn ended without an outcome");
            let failure = Failure {
                code: FailureCode::Aborted,
                ..turn::panicked()
            };
            TurnEnd {
                outcome: TurnOutcome::Failed { failure },
                closing: Vec::new(),
            }
        });
        self.save_end(turn, end).await;
        for input in later {
            self.handle(input).await;
        }
    }

    async fn save_end(&mut self, turn: TurnId, end: TurnEnd) {
        let kind = OutcomeKind::from(&end.outcome);
        let mut closing = end.closing.clone();
        closing.extend(self.ends_of_open_calls(turn, &end.closing).await);
        let mut bodies = self.still_to_say(closing);
        bodies.push(EventBody::TurnEnded {
            outcome: end.outcome.clone(),
        });
        let bodies = bodies.into_iter().map(|body| (Some(turn), body)).collect();
        let library = vec![EventBody::SessionTurnEnded {
            session: self.id,
            turn,
            outcome: kind,
            unread: is_news(kind) || mutated!(self.shared.harness, StoppedIsNews),
        }];
        let written = Written {
            bodies,
            library,
            ..Written::default()
        };
        if mutated!(self.shared.harness, ViewFailsTerminal) && self.view_of(turn).await.is_err() {
            return;
        }
        gate!(self.shared.harness, BeforeTerminal);
        match self.write(written, Durability::Disk).await {
            Ok(_) => {
                gate!(self.shared.harness, AfterTerminal);
                tracing::info!(session = %self.id, %turn, outcome = ?kind, "turn ended");
                self.shared.statuses.set(self.id, None, Phase::Idle);
                self.shared.turn_is_over(self.id);
                self.keep_view(turn);
            }
            Err(error) => {
                self.not_saving(turn, &error);
                if mutated!(self.shared.harness, LogAndGoOn) {
                    return self.shared.turn_is_over(self.id);
                }
                self.unsaved = Some((turn, end));
                // The turn works no more; only its end is not on the disk yet.
                self.shared.turn_is_over(self.id);
            }
        }
    }

    /// After a panic or the backstop the turn itself could not close its calls; each still gets its one result.
    async fn ends_of_open_calls(&self, turn: TurnId, closing: &[EventBody]) -> Vec<EventBody> {
        let view = match self.folded_turn(turn).await {
            Ok(view) => view,
            Err(error) => {
                // The terminal must not wait for a read; the fold shows such calls as ended anyway.
                tracing::error!(session = %self.id, %turn, %error, "could not look for open calls");
                return Vec::new();
            }
        };
        let closed = |item: Option<ItemId>| {
            closing.iter().any(|body| {
                matches!(body, EventBody::ToolCallFinished { .. }) && body.item() == item
            })
        };
        let results = view.iter().flat_map(ends_of_open_calls);
        results
            .filter(|body| {
                !matches!(body, EventBody::ToolCallFinished { .. }) || !closed(body.item())
            })
            .collect()
    }

    /// A turn of this session, as its events say.
    async fn folded_turn(&self, turn: TurnId) -> Result<Option<TurnView>, ReadError> {
        let (id, reads) = (self.id, self.shared.log.reads());
        reads.read(move |log| log.folded_turn(id, turn)).await
    }

    async fn save_unsaved(&mut self) {
        if let Some((turn, end)) = self.unsaved.take() {
            self.save_end(turn, end).await;
        }
    }

    #[cfg(feature = "mutants")]
    async fn view_of(&self, turn: TurnId) -> Result<(), ReadError> {
        let (id, harness) = (self.id, self.shared.harness.clone());
        let fold = move |log: &Snapshot<'_>| folded_to_keep(&harness, log, id, turn);
        self.shared.log.reads().read(fold).await.map(drop)
    }

    #[cfg(not(feature = "mutants"))]
    async fn view_of(&self, _: TurnId) -> Result<(), ReadError> {
        Ok(())
    }

    /// Folds the finished turn and keeps the view. A cache: outside the writer, and without it the events say the same.
    fn keep_view(&self, turn: TurnId) {
        let (log, id, stream) = (self.shared.log.clone(), self.id, self.stream());
        let harness = self.shared.harness.clone();
        self.shared.tracker.spawn(async move {
            let fold = move |log: &Snapshot<'_>| folded_to_keep(&harness, log, id, turn);
            let folded = log.reads().read(fold).await;
            let body = match folded {
                Ok(Some(view)) => serde_json::to_string(&view).map_err(|e| e.to_string()),
                Ok(None) => Err("the turn has no events".to_owned()),
                Err(error) => Err(error.to_string()),
            };
            let kept = match body {
                Ok(body) => {
                    let derived = vec![Derived::TurnView { stream, turn, body }];
                    let commit = Commit {
                        derived,
                        ..Commit::default()
                    };
                    log.commit(commit, Durability::Process)
                        .await
                        .map_err(|e| e.to_string())
                }
                Err(error) => Err(error),
            };
            if let Err(error) = kept {
                tracing::warn!(session = %id, %turn, %error, "no view of the turn was kept");
            }
        });
    }
}

/// A finished turn, folded for its view.
fn folded_to_keep(
    harness: &Harness,
    log: &Snapshot<'_>,
    session: SessionId,
    turn: TurnId,
) -> Result<Option<TurnView>, ReadError> {
    gate_blocking!(harness, ViewFolding);
    log.folded_turn(session, turn)
}

/// Whether somebody should come and see how a turn ended. Whoever stopped it knows.
const fn is_news(outcome: OutcomeKind) -> bool {
    match outcome {
        OutcomeKind::Completed | OutcomeKind::Failed | OutcomeKind::Interrupted => true,
        OutcomeKind::Cancelled => false,
    }
}

type Stamp = Option<(OpId, OpDigest)>;

/// What one op or record writes.
#[derive(Default)]
struct Written {
    bodies: Vec<(Option<TurnId>, EventBody)>,
    library: Vec<EventBody>,
    derived: Vec<Derived>,
    op: Stamp,
}

async fn ended(running: Option<&mut Running>) -> Option<TurnEnd> {
    match running {
        // A sender dropped without an end is the backstop's case.
        Some(running) => (&mut running.ended).await.ok(),
        None => std::future::pending().await,
    }
}
