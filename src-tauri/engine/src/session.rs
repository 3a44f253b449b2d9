//! A session's task: the only writer of its stream.
//!
//! Invariant: a session takes a new turn if and only if its last turn's terminal is committed, and every turn that
//! started gets exactly one terminal. Kept by: one task per session decides about ops and writes for the running turn;
//! the turn's end arrives as a value, and if its sender is dropped without one, that is recorded as `Aborted` and counted.
//! What could not be written is kept and tried again; the session says so meanwhile.

use std::{collections::VecDeque, panic::AssertUnwindSafe, path::Path, sync::Arc, time::Duration};

use futures_util::FutureExt;
use protocol::{
    Answer, ErrorCode, ErrorReport, EventBody, Failure, FailureCode, ItemBody, ItemId,
    MessagePurpose, ModelRef, Op, OpId, Origin, OutcomeKind, Phase, Place, Provider, Receipt,
    Resolution, RewindFor, Seq, SessionId, StreamId, TitleBy, TurnId, TurnOutcome,
};
use tokio::sync::{mpsc, oneshot};

use crate::{
    clock::ready,
    engine::Shared,
    gate::gate,
    gateway::Limits,
    log::{
        Append, Commit, CommitError, Derived, Durability, Head, OpDigest, OpStamp, ReadError,
        ends_of_open_calls,
    },
    mutant::mutated,
    sample,
    status::PhaseSetter,
    turn::{self, Answered, Candidate, TurnCx, TurnEnd},
};

/// Ops and records that may wait for a session's task. Full: whoever asks waits.
pub(crate) const SESSION_QUEUE: usize = 32;

/// How long a terminal that could not be written waits for the next try.
const RETRY_SAVE: Duration = Duration::from_secs(5);

/// Longest title taken from a message, in characters: what fits a list's line.
const TITLE_CHARS: usize = 60;

/// What the model is asked by Continue. Told to the model, not shown as the user's own words.
const GO_ON: &str = "Your last answer did not come to its end. Please go on exactly where it stopped, without repeating what it said.";

/// Longest message, in bytes: one event, delivered whole.
const MESSAGE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// What a session's task is asked.
pub(crate) enum SessionInput {
    /// Apply an op.
    Op {
        op_id: OpId,
        op: Op,
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
    answers: mpsc::UnboundedSender<Answered>,
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
                let answer = self.op(op_id, op).await;
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
        let bodies = bodies.into_iter().map(|body| (Some(turn), body)).collect();
        self.write(
            Written {
                bodies,
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
            library,
            mut derived,
            op,
        } = written;
        let stream = self.stream();
        let mut head = self.head.clone();
        let mut keeps_head = false;
        let mut turn_started = None;
        let mut library = library;
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
                head: head.clone(),
            });
        }
        let in_session = !bodies.is_empty();
        // Text is most of what there is, and says nothing about how the engine is doing.
        let news: Vec<(TurnId, EventBody)> = bodies
            .iter()
            .filter(|(_, body)| !matches!(body, EventBody::TextAppended { .. }))
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
            stream,
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
        }];
        let written = Written {
            bodies,
            library,
            ..Written::default()
        };
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
                self.unsaved = Some((turn, end));
                // The turn works no more; only its end is not on the disk yet.
                self.shared.turn_is_over(self.id);
            }
        }
    }

    /// After a panic or the backstop the turn itself could not close its calls; each still gets its one result.
    async fn ends_of_open_calls(&self, turn: TurnId, closing: &[EventBody]) -> Vec<EventBody> {
        let id = self.id;
        let read = self
            .shared
            .log
            .reads()
            .read(move |log| log.folded_turn(id, turn))
            .await;
        let view = match read {
            Ok(view) => view,
            Err(error) => {
                // The terminal must not wait for a read; the fold shows such calls as ended anyway.
                tracing::error!(session = %id, %turn, %error, "could not look for open calls");
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

    async fn save_unsaved(&mut self) {
        if let Some((turn, end)) = self.unsaved.take() {
            self.save_end(turn, end).await;
        }
    }

    /// Folds the finished turn and keeps the view. A cache: outside the writer, and without it the events say the same.
    fn keep_view(&self, turn: TurnId) {
        let (log, id, stream) = (self.shared.log.clone(), self.id, self.stream());
        self.shared.tracker.spawn(async move {
            let folded = log.reads().read(move |log| log.folded_turn(id, turn)).await;
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

    // Ops.

    async fn op(&mut self, op_id: OpId, op: Op) -> Result<Receipt, ErrorReport> {
        let digest = OpDigest::of(&op)?;
        // An op that ran before is answered as it was then, whatever has happened since.
        let ran = self
            .shared
            .log
            .reads()
            .read(move |log| log.find_op(op_id))
            .await;
        match ran.map_err(|e| read_report(&e))? {
            _ if mutated!(self.shared.harness, NoOpId) => {}
            Some((then, receipt)) if then == digest.0 => return Ok(receipt),
            Some(_) => return Err(commit_report(&CommitError::OpIdConflict)),
            None => {}
        }
        if self.unsaved.is_some() {
            self.save_unsaved().await;
        }
        let stamp = Some((op_id, digest));
        match op {
            Op::StartSession {
                model,
                text,
                folder,
                ..
            } => self.start(stamp, op_id, model, text, folder).await,
            Op::AddSample { .. } => self.add_sample(stamp, op_id).await,
            Op::SendMessage { text, .. } => self.send(stamp, op_id, text).await,
            Op::RetryTurn {
                turn, expected_tip, ..
            } => self.rewind(stamp, op_id, turn, None, expected_tip).await,
            Op::EditMessage {
                turn,
                text,
                expected_tip,
                ..
            } => {
                self.rewind(stamp, op_id, turn, Some(text), expected_tip)
                    .await
            }
            Op::RenameSession { title, .. } => self.rename(stamp, &title).await,
            Op::BinSession { session } => {
                self.shelve(stamp, EventBody::SessionBinned { session })
                    .await
            }
            Op::UnbinSession { session } => {
                self.shelve(stamp, EventBody::SessionUnbinned { session })
                    .await
            }
            Op::ChooseModel { model, .. } => self.choose_model(stamp, model).await,
            Op::ChooseFolder { folder, .. } => self.choose_folder(stamp, folder).await,
            Op::ContinueTurn {
                turn, expected_tip, ..
            } => self.go_on(stamp, op_id, turn, expected_tip).await,
            Op::AnswerApproval {
                turn, item, answer, ..
            } => self.answer(stamp, turn, item, answer).await,
            Op::CancelTurn { .. }
            | Op::ChangeTimeLimits { .. }
            | Op::ChooseFallbacks { .. }
            | Op::AddProvider { .. }
            | Op::ChangeProvider { .. }
            | Op::RemoveProvider { .. } => Err(ErrorReport::new(
                ErrorCode::Other,
                "This is not asked of a session.",
            )),
        }
    }

    async fn start(
        &mut self,
        op: Stamp,
        op_id: OpId,
        model: ModelRef,
        text: String,
        folder: Option<String>,
    ) -> Result<Receipt, ErrorReport> {
        if self.head.count > 0 {
            return Err(ErrorReport::new(
                ErrorCode::Other,
                "This conversation exists already.",
            ));
        }
        let session = self.id;
        let title = title_from(&text);
        let folder = match folder {
            Some(folder) => Some(usable_folder(&folder).await?),
            None => None,
        };
        let mut before = vec![
            (
                None,
                EventBody::SessionStarted {
                    session,
                    origin: Origin::Conversation,
                },
            ),
            (
                None,
                EventBody::SessionRenamed {
                    title: title.clone(),
                    by: TitleBy::Holdfast,
                },
            ),
        ];
        if folder.is_some() {
            before.push((None, EventBody::FolderChosen { folder }));
        }
        let library = vec![EventBody::SessionListed {
            session,
            title,
            origin: Origin::Conversation,
        }];
        let written = Written {
            bodies: before,
            library,
            derived: vec![Derived::DraftSent {
                session: None,
                text: text.clone(),
            }],
            op,
        };
        let message = Message::said(text);
        self.begin_turn(written, op_id, model, message).await
    }

    async fn send(&mut self, op: Stamp, op_id: OpId, text: String) -> Result<Receipt, ErrorReport> {
        self.must_be_idle()?;
        let model = self.model()?;
        let written = Written {
            derived: vec![Derived::DraftSent {
                session: Some(self.id),
                text: text.clone(),
            }],
            op,
            ..Written::default()
        };
        let message = Message::said(text);
        self.begin_turn(written, op_id, model, message).await
    }

    async fn rewind(
        &mut self,
        op: Stamp,
        op_id: OpId,
        turn: TurnId,
        text: Option<String>,
        expected_tip: Seq,
    ) -> Result<Receipt, ErrorReport> {
        self.must_be_idle()?;
        self.must_be_at(expected_tip)?;
        let model = self.model()?;
        let purpose = if text.is_some() {
            RewindFor::Edit
        } else {
            RewindFor::Retry
        };
        let message = match text {
            Some(text) => Message::said(text),
            None => self.message_of(turn).await?,
        };
        let written = Written {
            bodies: vec![(
                None,
                EventBody::HistoryRewound {
                    from: turn,
                    purpose,
                },
            )],
            derived: vec![Derived::TurnsHidden {
                stream: self.stream(),
                from: turn,
            }],
            op,
            ..Written::default()
        };
        self.begin_turn(written, op_id, model, message).await
    }

    async fn message_of(&self, turn: TurnId) -> Result<Message, ErrorReport> {
        let id = self.id;
        let view = self
            .shared
            .log
            .reads()
            .read(move |log| log.folded_turn(id, turn))
            .await;
        let view = view.map_err(|e| read_report(&e))?;
        view.and_then(|view| {
            view.items.into_iter().find_map(|item| match item.body {
                ItemBody::UserMessage { text, purpose, .. } => Some(Message { text, purpose }),
                ItemBody::Text { .. }
                | ItemBody::ToolCall { .. }
                | ItemBody::Compacted { .. }
                | ItemBody::Unsupported { .. } => None,
            })
        })
        .ok_or_else(|| ErrorReport::new(ErrorCode::NotFound, "There is no such message any more."))
    }

    async fn rename(&mut self, op: Stamp, title: &str) -> Result<Receipt, ErrorReport> {
        self.must_exist()?;
        let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
        if title.is_empty() {
            return Err(invalid("title", "A title needs at least one character."));
        }
        let title: String = title.chars().take(500).collect();
        let bodies = vec![(
            None,
            EventBody::SessionRenamed {
                title: title.clone(),
                by: TitleBy::User,
            },
        )];
        let library = vec![EventBody::SessionTitled {
            session: self.id,
            title,
        }];
        let written = Written {
            bodies,
            library,
            op,
            ..Written::default()
        };
        self.write(written, Durability::Process)
            .await
            .map_err(|e| commit_report(&e))
    }

    async fn shelve(&mut self, op: Stamp, body: EventBody) -> Result<Receipt, ErrorReport> {
        self.must_exist()?;
        if matches!(body, EventBody::SessionBinned { .. }) {
            // Nobody watches a session in the bin.
            self.shared.cancel(self.id, None, turn::Cause::UserStop);
        }
        let written = Written {
            library: vec![body],
            op,
            ..Written::default()
        };
        self.write(written, Durability::Process)
            .await
            .map_err(|e| commit_report(&e))
    }

    async fn choose_model(&mut self, op: Stamp, model: ModelRef) -> Result<Receipt, ErrorReport> {
        self.must_exist()?;
        let bodies = vec![(None, EventBody::ModelChosen { model })];
        let written = Written {
            bodies,
            op,
            ..Written::default()
        };
        self.write(written, Durability::Process)
            .await
            .map_err(|e| commit_report(&e))
    }

    /// Records the one answer to a question of the running turn, and tells the turn.
    async fn answer(
        &mut self,
        op: Stamp,
        turn: TurnId,
        item: ItemId,
        answer: Answer,
    ) -> Result<Receipt, ErrorReport> {
        let is_open = self.head.open_turn == Some(turn)
            && self.head.questions.iter().any(|(open, _)| *open == item)
            || mutated!(self.shared.harness, AnyAnswerCounts);
        if !is_open {
            return Err(self.already_answered(turn, item).await?);
        }
        let resolution = Resolution::from(answer);
        let body = EventBody::ApprovalResolved { item, resolution };
        let written = Written {
            bodies: vec![(Some(turn), body)],
            op,
            ..Written::default()
        };
        let receipt = self
            .write(written, Durability::Disk)
            .await
            .map_err(|e| commit_report(&e))?;
        if let Some(running) = &self.running
            && running.turn == turn
        {
            // A turn that has just ended wants no answer any more; its end closed the call.
            let _ = running.answers.send(Answered { item, resolution });
        }
        Ok(receipt)
    }

    /// Why a question that is not open cannot be answered.
    async fn already_answered(
        &self,
        turn: TurnId,
        item: ItemId,
    ) -> Result<ErrorReport, ErrorReport> {
        let id = self.id;
        let read = self
            .shared
            .log
            .reads()
            .read(move |log| log.folded_turn(id, turn))
            .await;
        let view = read.map_err(|e| read_report(&e))?;
        let resolution =
            view.iter()
                .flat_map(|view| &view.items)
                .find_map(|view| match &view.body {
                    ItemBody::ToolCall {
                        approval: Some(approval),
                        ..
                    } if approval.item == item => approval.resolution,
                    ItemBody::ToolCall { .. }
                    | ItemBody::UserMessage { .. }
                    | ItemBody::Text { .. }
                    | ItemBody::Compacted { .. }
                    | ItemBody::Unsupported { .. } => None,
                });
        Ok(match resolution {
            Some(resolution) => ErrorReport::new(
                ErrorCode::AlreadyResolved { resolution },
                match resolution {
                    Resolution::AllowedOnce => "This was answered already: allowed once.",
                    Resolution::AllowedForSession => {
                        "This was answered already: allowed for this conversation."
                    }
                    Resolution::Denied => "This was answered already: not allowed.",
                    Resolution::Expired => "This question expired when its turn ended.",
                },
            ),
            None => ErrorReport::new(ErrorCode::NotFound, "There is no such question."),
        })
    }

    async fn choose_folder(
        &mut self,
        op: Stamp,
        folder: Option<String>,
    ) -> Result<Receipt, ErrorReport> {
        self.must_be_idle()?;
        let folder = match folder {
            Some(folder) => Some(usable_folder(&folder).await?),
            None => None,
        };
        let written = Written {
            bodies: vec![(None, EventBody::FolderChosen { folder })],
            op,
            ..Written::default()
        };
        self.write(written, Durability::Process)
            .await
            .map_err(|e| commit_report(&e))
    }

    /// A new turn that asks the model to go on where the last one's answer stopped.
    async fn go_on(
        &mut self,
        op: Stamp,
        op_id: OpId,
        turn: TurnId,
        expected_tip: Seq,
    ) -> Result<Receipt, ErrorReport> {
        self.must_be_idle()?;
        self.must_be_at(expected_tip)?;
        let model = self.model()?;
        let written = Written {
            op,
            ..Written::default()
        };
        let message = Message {
            text: GO_ON.to_owned(),
            purpose: MessagePurpose::Continue { of: turn },
        };
        self.begin_turn(written, op_id, model, message).await
    }

    /// The models asked, in this order, when `model` fails before it said anything: those in the settings whose server
    /// still exists.
    async fn fallbacks(&self, model: &ModelRef) -> Result<Vec<ModelRef>, ErrorReport> {
        let page = self
            .shared
            .shelf
            .page()
            .await
            .map_err(|e| read_report(&e))?;
        let known = |other: &ModelRef| page.providers.iter().any(|p| p.id == other.provider);
        let same =
            |other: &ModelRef| other.provider == model.provider && other.model == model.model;
        Ok(page
            .fallbacks
            .iter()
            .filter(|other| known(other) && !same(other))
            .cloned()
            .collect())
    }

    async fn add_sample(&mut self, op: Stamp, op_id: OpId) -> Result<Receipt, ErrorReport> {
        if self.head.count > 0 {
            return Err(ErrorReport::new(
                ErrorCode::Other,
                "This conversation exists already.",
            ));
        }
        let session = self.id;
        let (bodies, library) = sample::events(session, self.shared.log.boot(), op_id);
        let turns: Vec<TurnId> = sample::turns(&bodies);
        let written = Written {
            bodies,
            library,
            op,
            ..Written::default()
        };
        let receipt = self
            .write(written, Durability::Disk)
            .await
            .map_err(|e| commit_report(&e))?;
        for turn in turns {
            self.keep_view(turn);
        }
        Ok(receipt)
    }

    fn must_exist(&self) -> Result<(), ErrorReport> {
        if self.head.count == 0 {
            return Err(ErrorReport::new(
                ErrorCode::NotFound,
                "There is no such conversation.",
            ));
        }
        Ok(())
    }

    fn must_be_idle(&self) -> Result<(), ErrorReport> {
        self.must_exist()?;
        if self.head.open_turn.is_some() && !mutated!(self.shared.harness, NoTurnActive) {
            return Err(match &self.unsaved {
                Some(_) => ErrorReport::new(
                    ErrorCode::StorageFailed,
                    "The last answer could not be saved yet, so nothing new can begin here.",
                )
                .with_remedy("make room on the disk and try again"),
                None => ErrorReport::new(
                    ErrorCode::TurnActive,
                    "The model is still answering; Esc stops it.",
                ),
            });
        }
        Ok(())
    }

    fn must_be_at(&self, expected_tip: Seq) -> Result<(), ErrorReport> {
        if self.head.tip == Some(expected_tip) || mutated!(self.shared.harness, NoExpectedHead) {
            return Ok(());
        }
        Err(ErrorReport::new(
            ErrorCode::StaleHead,
            "This conversation has changed since; have a look at it and try again.",
        ))
    }

    fn model(&self) -> Result<ModelRef, ErrorReport> {
        self.head.model.clone().ok_or_else(|| {
            ErrorReport::new(
                ErrorCode::Invalid {
                    field: "model".into(),
                },
                "No model is chosen yet.",
            )
            .with_remedy("choose one below the text")
        })
    }

    // The beginning of a turn.

    /// Commits the message and the start of its turn, then starts it.
    async fn begin_turn(
        &mut self,
        mut written: Written,
        op_id: OpId,
        model: ModelRef,
        message: Message,
    ) -> Result<Receipt, ErrorReport> {
        let Message { text, purpose } = message;
        if text.trim().is_empty() {
            return Err(invalid("text", "There is nothing to send yet."));
        }
        if text.len() > MESSAGE_BYTES_MAX {
            return Err(invalid(
                "text",
                "This message is larger than 8 MB; send it in parts.",
            ));
        }
        if self.shared.is_closing() {
            return Err(ErrorReport::new(
                ErrorCode::ShuttingDown,
                "Holdfast is closing.",
            ));
        }
        if let Some(no_room) = self.shared.log.room().refusal() {
            return Err(
                ErrorReport::new(ErrorCode::StorageFailed, sentence(&no_room.to_string()))
                    .with_remedy("make room on that disk and try again"),
            );
        }
        let listed = self
            .shared
            .shelf
            .session(self.id)
            .await
            .map_err(|e| read_report(&e))?;
        if listed.is_some_and(|summary| summary.place == Place::Bin) {
            return Err(
                ErrorReport::new(ErrorCode::Gone, "This conversation is in the bin.")
                    .with_remedy("take it out of the bin first"),
            );
        }
        let provider = self
            .shared
            .shelf
            .provider(model.provider)
            .await
            .map_err(|e| read_report(&e))?;
        let provider = provider.ok_or_else(|| {
            ErrorReport::new(
                ErrorCode::Invalid {
                    field: "model".into(),
                },
                format!(
                    "The server “{}” is no longer in the settings, so {} cannot be asked.",
                    model.provider_name, model.model
                ),
            )
            .with_remedy("choose another model, or add the server again")
        })?;
        let fallbacks = self.fallbacks(&model).await?;
        let limits = self
            .shared
            .limits_for(&provider)
            .await
            .map_err(|e| read_report(&e))?;
        let ceiling = Duration::from_millis(limits.ceiling_ms);
        let mut candidates = vec![self.candidate(provider, model.clone()).await?];
        for fallback in &fallbacks {
            let provider = self.shared.shelf.provider(fallback.provider).await;
            if let Some(provider) = provider.map_err(|e| read_report(&e))? {
                candidates.push(self.candidate(provider, fallback.clone()).await?);
            }
        }
        let turn = self.head.next_turn;
        let item = self.head.next_item;
        written.bodies.push((
            Some(turn),
            EventBody::UserMessageAdded {
                item,
                text,
                op: op_id,
                purpose,
            },
        ));
        written.bodies.push((
            Some(turn),
            EventBody::TurnStarted {
                boot: self.shared.log.boot(),
                message: item,
                model: model.clone(),
                fallbacks,
            },
        ));
        written.library.push(EventBody::SessionTurnStarted {
            session: self.id,
            turn,
            model: model.clone(),
        });
        let receipt = self
            .write(written, Durability::Disk)
            .await
            .map_err(|e| commit_report(&e))?;
        if self.head.open_turn == Some(turn) {
            gate!(self.shared.harness, MessageCommitted);
            self.run_turn(turn, item.next(), candidates, ceiling);
        }
        Ok(receipt)
    }

    async fn candidate(
        &self,
        provider: Provider,
        model: ModelRef,
    ) -> Result<Candidate, ErrorReport> {
        let limits = self.shared.limits_for(&provider).await;
        let limits = Limits::from(&limits.map_err(|e| read_report(&e))?);
        Ok(Candidate {
            provider,
            model,
            limits,
        })
    }

    fn run_turn(
        &mut self,
        turn: TurnId,
        next_item: ItemId,
        candidates: Vec<Candidate>,
        ceiling: Duration,
    ) {
        let shared = Arc::clone(&self.shared);
        // The engine is gone: recovery closes the turn at the next start.
        let Some(own) = self.own.upgrade() else {
            return;
        };
        let (cancel, cancelled) = turn::cancel_channel();
        let (ended_in, ended) = oneshot::channel();
        let (answers_in, answers) = mpsc::unbounded_channel();
        self.running = Some(Running {
            turn,
            answers: answers_in,
            ended,
        });
        shared.turn_runs(self.id, turn, cancel.clone());
        let phase = PhaseSetter {
            board: Arc::clone(&shared.statuses),
            session: self.id,
            turn,
        };
        tracing::info!(session = %self.id, %turn, "turn started");
        let cx = TurnCx {
            session: self.id,
            turn,
            candidates,
            next_item,
            recorder: Recorder(own),
            reads: shared.log.reads().clone(),
            gateway: shared.gateway.clone(),
            clock: Arc::clone(&shared.clock),
            ceiling,
            answers,
            folder: self.head.folder.clone(),
            health: Arc::clone(&shared.health),
            allowed: self.head.allowed.clone(),
            cancel,
            cancelled,
            phase,
            tracker: shared.tracker.clone(),
            jitter: shared.mint.jitter(),
            harness: shared.harness.clone(),
        };
        let unguarded = mutated!(shared.harness, NoGuard);
        shared.tracker.clone().spawn(async move {
            // Nothing of the turn survives a panic but what is in the log, so there is nothing to leave inconsistent.
            let end = AssertUnwindSafe(turn::run(cx)).catch_unwind().await;
            if end.is_err() && unguarded {
                return;
            }
            let end = end.unwrap_or_else(|_| TurnEnd {
                outcome: TurnOutcome::Failed {
                    failure: turn::panicked(),
                },
                closing: Vec::new(),
            });
            // The session outlives its turns; if it is gone, recovery closes the turn at the next start.
            let _ = ended_in.send(end);
        });
    }
}

/// What begins a turn.
struct Message {
    text: String,
    purpose: MessagePurpose,
}

impl Message {
    fn said(text: String) -> Self {
        Self {
            text,
            purpose: MessagePurpose::Said,
        }
    }
}

/// The folder in its one true form, or words about why tools cannot use it.
async fn usable_folder(typed: &str) -> Result<String, ErrorReport> {
    let typed = typed.trim().to_owned();
    if !Path::new(&typed).is_absolute() {
        return Err(invalid(
            "folder",
            "The path of a folder begins at the root of the disk.",
        ));
    }
    let shown = typed.clone();
    let found = tokio::task::spawn_blocking(move || {
        let folder = std::fs::canonicalize(&typed)?;
        // Reading it now tells of missing rights while the user looks.
        std::fs::read_dir(&folder).map(|_| folder)
    });
    let found = found
        .await
        .unwrap_or_else(|lost| Err(std::io::Error::other(lost)));
    match found.map(|folder| folder.into_os_string().into_string()) {
        Ok(Ok(folder)) => Ok(folder),
        Ok(Err(_)) => Err(invalid(
            "folder",
            "The name of this folder is not readable as text, so it cannot be used.",
        )),
        Err(error) => Err(invalid(
            "folder",
            &format!("The folder {shown} cannot be used: {error}."),
        )),
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

impl OpDigest {
    /// FNV-1a, 128 bits, of the op's JSON: stable between versions, which `std`'s hashers are not.
    pub(crate) fn of(op: &Op) -> Result<Self, ErrorReport> {
        let text = serde_json::to_vec(op).map_err(|error| {
            tracing::error!(%error, "an op has no JSON form");
            ErrorReport::new(ErrorCode::Other, "This cannot be stored.")
        })?;
        let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        for byte in text {
            hash ^= u128::from(byte);
            hash = hash.wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
        Ok(Self(hash.to_be_bytes()))
    }
}

/// A title from the first words of a message.
fn title_from(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= TITLE_CHARS {
        return line;
    }
    let cut: String = line.chars().take(TITLE_CHARS).collect();
    let words = match cut.rfind(' ') {
        Some(space) if space > 20 => cut.get(..space).unwrap_or(&cut),
        Some(_) | None => cut.as_str(),
    };
    format!("{words}…")
}

fn invalid(field: &str, message: &str) -> ErrorReport {
    ErrorReport::new(
        ErrorCode::Invalid {
            field: field.into(),
        },
        message,
    )
}

pub(crate) fn read_report(error: &ReadError) -> ErrorReport {
    match error {
        ReadError::NoSuchSession => {
            ErrorReport::new(ErrorCode::NotFound, "There is no such conversation.")
        }
        ReadError::Storage(_) | ReadError::Hole { .. } => {
            ErrorReport::new(ErrorCode::StorageFailed, sentence(&error.to_string()))
        }
        ReadError::Closed => ErrorReport::new(ErrorCode::ShuttingDown, "Holdfast is closing."),
    }
}

pub(crate) fn commit_report(error: &CommitError) -> ErrorReport {
    match error {
        CommitError::OpIdConflict => {
            ErrorReport::new(ErrorCode::OpIdConflict, sentence(&error.to_string()))
        }
        CommitError::Storage(_) => {
            ErrorReport::new(ErrorCode::StorageFailed, sentence(&error.to_string()))
                .with_remedy("nothing was saved; check the disk and try again")
        }
        CommitError::Refused { .. } | CommitError::Encode(_) => {
            ErrorReport::new(ErrorCode::Other, sentence(&error.to_string()))
        }
        CommitError::Closed => ErrorReport::new(ErrorCode::ShuttingDown, "Holdfast is closing."),
    }
}

/// An error's words (lower case, no full stop) as a sentence for the reader.
pub fn sentence(words: &str) -> String {
    let mut letters = words.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(letters).chain(std::iter::once('.')).collect()
}

async fn ended(running: Option<&mut Running>) -> Option<TurnEnd> {
    match running {
        // A sender dropped without an end is the backstop's case.
        Some(running) => (&mut running.ended).await.ok(),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_the_first_words_of_the_message() {
        assert_eq!(
            title_from("  What is\n\na holdfast? "),
            "What is a holdfast?"
        );
        let long =
            "Please explain in great detail how the holdfast of a kelp grips the stone below";
        assert_eq!(
            title_from(long),
            "Please explain in great detail how the holdfast of a kelp…"
        );
        assert_eq!(
            title_from(&"x".repeat(100)).chars().count(),
            TITLE_CHARS + 1
        );
    }

    #[test]
    fn the_same_op_has_the_same_digest_and_another_has_another() {
        let op = |title: &str| Op::RenameSession {
            session: SessionId::from_bits(7),
            title: title.into(),
        };
        let digest = |title| OpDigest::of(&op(title)).unwrap();
        assert_eq!(digest("a"), digest("a"));
        assert_ne!(digest("a"), digest("b"));
    }

    #[test]
    fn cancel_is_cloneable_and_the_first_cause_wins() {
        let (cancel, cancelled) = turn::cancel_channel();
        cancel.clone().cancel(turn::Cause::UserStop);
        cancel.cancel(turn::Cause::StorageFailed);
        let mut cancelled = cancelled;
        assert_eq!(
            cancelled.fired().now_or_never(),
            Some(turn::Cause::UserStop)
        );
    }
}
