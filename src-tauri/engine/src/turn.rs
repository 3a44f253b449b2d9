//! A turn: one user message and all the work it causes, up to its terminal event.
//!
//! Invariant: the terminal is the return value of [`run`], so there is exactly one. Whoever awaits it writes it down,
//! together with everything the turn still had to say, in one transaction.
//! Kept by: the machine decides, the driver acts; a cancellation is an input like any other and never races the end.
//! Not here: the terminal's commit and the backstop (`session`).

mod cancel;
mod machine;
mod text;

use std::{convert::Infallible, sync::Arc, time::Duration};

use protocol::{
    Dialect, EventBody, Failure, FailureCode, ItemId, ModelRef, Part, Phase, Provider, SessionId,
    TurnId, TurnOutcome,
};
use tokio::{
    sync::{mpsc, watch},
    task::{JoinHandle, JoinSet},
};
use tokio_util::task::TaskTracker;

use crate::{
    Harness,
    clock::{Clock, Sleep, ready},
    context,
    gate::gate,
    gateway::{AttemptError, Gateway, Limits, ModelEvent, ModelRequest, Retry, StepEnd},
    log::{PageLimit, Reads},
    mutant::mutated,
    session::{NotRecorded, Recorder},
    status::PhaseSetter,
    tools::{ToolResult, Toolbox},
};

pub(crate) use cancel::{Cancel, Cancelled, Cause, channel as cancel_channel};
use machine::{Effect, Input, Machine, Tools};
use text::TextBuffer;

/// Events of an attempt that may wait for the driver. Full: the attempt stops reading its socket, and no silence is
/// counted against the provider while our own disk is slow.
const ATTEMPT_QUEUE: usize = 64;

/// How often a silent Ollama is asked, in passing, whether it loads the model.
const GLANCE_EVERY: Duration = Duration::from_secs(2);

/// How much longer a tool call's arguments grow before the reader is told again.
const PROGRESS_BYTES: u64 = 1_024;

/// Everything a turn needs; nothing it could find out by itself.
pub(crate) struct TurnCx {
    pub(crate) session: SessionId,
    pub(crate) turn: TurnId,
    pub(crate) provider: Provider,
    pub(crate) model: ModelRef,
    pub(crate) next_item: ItemId,
    pub(crate) recorder: Recorder,
    pub(crate) reads: Reads,
    pub(crate) gateway: Gateway,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) limits: Limits,
    pub(crate) ceiling: Duration,
    pub(crate) cancel: Cancel,
    pub(crate) cancelled: Cancelled,
    pub(crate) phase: PhaseSetter,
    pub(crate) tracker: TaskTracker,
    pub(crate) jitter: u64,
    pub(crate) harness: Harness,
}

/// How a turn ended, and what it still had to say.
#[derive(Debug)]
pub(crate) struct TurnEnd {
    pub(crate) outcome: TurnOutcome,
    /// To be committed before the terminal, in the same transaction.
    pub(crate) closing: Vec<EventBody>,
}

/// Runs a turn that is in the log already, to its end.
///
/// Not cancel safe: a dropped turn has no end of its own, and its owner records it as aborted. Use [`Cancel`].
#[tracing::instrument(skip_all, fields(session = %cx.session, turn = %cx.turn))]
pub(crate) async fn run(cx: TurnCx) -> TurnEnd {
    let toolbox = Toolbox::new(Arc::clone(&cx.clock), None).held_by(cx.harness.clone());
    let machine = Machine::new(cx.model.clone(), toolbox.names(), cx.next_item, cx.jitter)
        .held_by(cx.harness.clone());
    let ceiling = cx.clock.sleep(cx.ceiling);
    let mut driver = Driver {
        text: TextBuffer::new(),
        batch: Vec::new(),
        work: Work::None,
        toolbox,
        tools: JoinSet::new(),
        ceiling: Some(ceiling),
        progress: 0,
        cx,
    };
    let mut machine = machine;
    let mut effects = machine.step(Input::Begin);
    loop {
        match driver.perform(effects).await {
            Ok(Some(end)) => return end,
            Ok(None) => {
                let inputs = driver.next_inputs().await;
                gate!(driver.cx.harness, Deciding);
                effects = inputs
                    .into_iter()
                    .flat_map(|input| machine.step(input))
                    .collect();
            }
            // What could not be written stays in the batch and goes out with the terminal.
            Err(NotRecorded) => {
                driver.cx.cancel.cancel(Cause::StorageFailed);
                effects = machine.step(Input::Cancelled(Cause::StorageFailed));
            }
        }
    }
}

struct Driver {
    cx: TurnCx,
    text: TextBuffer,
    /// Decided, not yet committed; in order.
    batch: Vec<EventBody>,
    work: Work,
    toolbox: Toolbox,
    tools: JoinSet<(ItemId, ToolResult)>,
    /// Gone once it has fired.
    ceiling: Option<Sleep>,
    /// Bytes of arguments the reader was last told of.
    progress: u64,
}

/// What the turn waits for, besides tools.
enum Work {
    None,
    Attempt(Attempt),
    Wait(Sleep),
}

/// A request to a provider, in a task of its own, so that the socket is read while we write.
struct Attempt {
    events: mpsc::Receiver<ModelEvent>,
    task: JoinHandle<Result<StepEnd, AttemptError>>,
    /// Whether the model has begun to say something.
    begun: watch::Sender<bool>,
    called: bool,
}

/// What an attempt asks, and whom.
struct Asking {
    gateway: Gateway,
    provider: Provider,
    limits: Limits,
    clock: Arc<dyn Clock>,
    request: ModelRequest,
}

impl Asking {
    /// One attempt. A server that answers "still loading" is asked again, as long as a silent one would be waited for.
    async fn until_loaded(&self, out: &mpsc::Sender<ModelEvent>) -> Result<StepEnd, AttemptError> {
        let until = self
            .clock
            .monotonic()
            .saturating_add(self.limits.first_event);
        loop {
            let end = self
                .gateway
                .stream(&self.provider, &self.request, &self.limits, out)
                .await;
            match end {
                Err(AttemptError {
                    retry: Retry::WhenLoaded(wait),
                    ..
                }) if self.clock.monotonic().saturating_add(wait) < until => {
                    self.clock.sleep(wait).await;
                }
                end => return end,
            }
        }
    }

    /// While an Ollama is silent, finds out whether that is because it loads the model: its stream does not say so.
    async fn glance(
        &self,
        out: &mpsc::Sender<ModelEvent>,
        begun: &mut watch::Receiver<bool>,
    ) -> Infallible {
        if self.provider.dialect != Dialect::Ollama {
            return std::future::pending().await;
        }
        loop {
            let has_begun = tokio::select! {
                begun = begun.wait_for(|begun| *begun) => begun.is_ok(),
                () = self.clock.sleep(GLANCE_EVERY) => false,
            };
            if has_begun {
                break;
            }
            let news = match self
                .gateway
                .is_loading(&self.provider, &self.request.model)
                .await
            {
                Some(true) => ModelEvent::Loading,
                Some(false) | None => ModelEvent::Sent,
            };
            if out.send(news).await.is_err() {
                break;
            }
        }
        std::future::pending().await
    }
}

impl Attempt {
    /// Ends it and waits until its socket is closed.
    async fn stop(self) {
        self.task.abort();
        // Aborted, or ended a moment before: either way it holds no socket any more.
        let _ = self.task.await;
    }
}

impl Driver {
    async fn perform(&mut self, effects: Vec<Effect>) -> Result<Option<TurnEnd>, NotRecorded> {
        for effect in effects {
            match effect {
                Effect::Record(body) => {
                    if !mutated!(self.cx.harness, NoFlushBeforeOther) {
                        self.text.drain_into(&mut self.batch);
                    }
                    self.batch.push(body);
                }
                Effect::Append { item, part, text } => {
                    self.text.push(item, part, &text, &mut self.batch);
                }
                Effect::CallModel { tools } => {
                    self.commit().await?;
                    self.call_model(tools).await;
                }
                Effect::RunTool {
                    item,
                    name,
                    arguments,
                } => {
                    self.batch.push(EventBody::ToolCallStarted { item });
                    self.commit().await?;
                    self.run_tool(item, name, arguments);
                }
                Effect::Wait {
                    ms,
                    attempt,
                    failure,
                } => {
                    self.commit().await?;
                    self.wait(ms, attempt, failure);
                }
                Effect::StopWork => self.stop_work().await,
                Effect::End(outcome) => {
                    self.stop_work().await;
                    self.text.drain_into(&mut self.batch);
                    return Ok(Some(TurnEnd {
                        outcome,
                        closing: std::mem::take(&mut self.batch),
                    }));
                }
            }
        }
        let now = self.cx.clock.monotonic();
        if self.text.is_due(now) || mutated!(self.cx.harness, FlushEveryToken) {
            self.text.drain_into(&mut self.batch);
        }
        self.commit().await?;
        Ok(None)
    }

    /// Commits what was decided so far. On failure it stays decided.
    async fn commit(&mut self) -> Result<(), NotRecorded> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.cx
            .recorder
            .record(self.cx.turn, self.batch.clone())
            .await?;
        let has_text = self
            .batch
            .iter()
            .any(|b| matches!(b, EventBody::TextAppended { .. }));
        if has_text {
            // Only text holds up text: the first fragment after any other event still leaves at once.
            self.text.flushed_at(self.cx.clock.monotonic());
            gate!(self.cx.harness, TextCommitted);
        }
        let has_call = self
            .batch
            .iter()
            .any(|b| matches!(b, EventBody::ToolCallRequested { .. }));
        self.batch.clear();
        if has_call {
            gate!(self.cx.harness, CallCommitted);
        }
        Ok(())
    }

    async fn call_model(&mut self, tools: Tools) {
        self.cx.phase.set(Phase::Connecting {
            provider: self.cx.provider.name.clone(),
        });
        self.progress = 0;
        let (session, cx) = (self.cx.session, &self.cx);
        let read = cx
            .reads
            .read(move |log| log.excerpt(session, None, PageLimit::WHOLE))
            .await;
        let (events_in, events) = mpsc::channel(ATTEMPT_QUEUE);
        let begun = watch::channel(false).0;
        let task = match read {
            Ok(excerpt) => {
                let request = ModelRequest {
                    model: cx.model.model.clone(),
                    messages: context::messages(&excerpt.turns),
                    tools: match tools {
                        Tools::Offered => self.toolbox.specs(),
                        Tools::Withheld => Vec::new(),
                    },
                };
                let asking = Asking {
                    gateway: cx.gateway.clone(),
                    provider: cx.provider.clone(),
                    limits: cx.limits,
                    clock: Arc::clone(&cx.clock),
                    request,
                };
                let mut has_begun = begun.subscribe();
                cx.tracker.spawn(async move {
                    tokio::select! {
                        end = asking.until_loaded(&events_in) => end,
                        never = asking.glance(&events_in, &mut has_begun) => match never {},
                    }
                })
            }
            Err(error) => cx.tracker.spawn(async move {
                drop(events_in);
                let failure = Failure::new(
                    FailureCode::Panicked,
                    "Holdfast could not read this conversation from its log.",
                );
                Err(AttemptError {
                    failure: failure.with_detail(error.to_string()),
                    retry: Retry::Never,
                })
            }),
        };
        self.work = Work::Attempt(Attempt {
            events,
            task,
            begun,
            called: false,
        });
    }

    fn run_tool(&mut self, item: ItemId, name: String, arguments: String) {
        self.cx.phase.set(Phase::RunningTool { name: name.clone() });
        let toolbox = self.toolbox.clone();
        self.tools.spawn(async move {
            // A task of its own, so that a panicking tool is an error result and not the end of the turn.
            (item, toolbox.run(name, arguments, None).await)
        });
    }

    fn wait(&mut self, ms: u64, attempt: u32, failure: Failure) {
        let until = protocol::Timestamp::from_millis(
            self.cx.clock.wall().millis().saturating_add_unsigned(ms),
        );
        self.cx.phase.set(Phase::Retrying {
            until,
            attempt,
            of: machine::ATTEMPTS_MAX,
            failure,
        });
        self.work = Work::Wait(self.cx.clock.sleep(Duration::from_millis(ms)));
    }

    async fn stop_work(&mut self) {
        if let Work::Attempt(attempt) = std::mem::replace(&mut self.work, Work::None) {
            if mutated!(self.cx.harness, LeaveSocket) {
                return;
            }
            attempt.stop().await;
        }
        self.tools.shutdown().await;
    }

    /// Waits for whatever comes next. Several inputs only when the turn is cancelled: what had come before it goes first.
    async fn next_inputs(&mut self) -> Vec<Input> {
        loop {
            let now = self.cx.clock.monotonic();
            let mut flush = self
                .text
                .due_at(now)
                .map(|at| self.cx.clock.sleep_until(at));
            let (mut events, wait) = match &mut self.work {
                Work::None => (None, None),
                Work::Attempt(attempt) => (Some(&mut attempt.events), None),
                Work::Wait(sleep) => (None, Some(sleep)),
            };
            // Nothing in here writes or ends anything: it only says what happened first.
            let news = tokio::select! {
                biased;
                cause = self.cx.cancelled.fired() => News::Cancelled(cause),
                () = ready(self.ceiling.as_mut()) => News::Ceiling,
                event = recv(events.as_mut()) => News::Attempt(event),
                () = ready(wait) => News::WaitOver,
                Some(ended) = self.tools.join_next_with_id() => News::Tool(ended),
                () = ready(flush.as_mut()) => News::FlushDue,
            };
            match news {
                News::Cancelled(cause) => return self.before_cancel(cause).await,
                News::Ceiling => {
                    // Through the same door as every other cause, so that the first one wins.
                    self.ceiling = None;
                    let limit_ms = u64::try_from(self.cx.ceiling.as_millis()).unwrap_or(u64::MAX);
                    self.cx.cancel.cancel(Cause::Ceiling { limit_ms });
                }
                News::Attempt(Some(event)) => {
                    if let Some(input) = self.heard(event) {
                        return vec![input];
                    }
                }
                News::Attempt(None) => return vec![self.attempt_over().await],
                News::WaitOver => {
                    self.work = Work::None;
                    return vec![Input::RetryDue];
                }
                News::Tool(Ok((_, (item, result)))) => {
                    return vec![Input::ToolEnded {
                        item,
                        outcome: result.outcome,
                        effect: result.effect,
                    }];
                }
                News::Tool(Err(error)) => {
                    // `Toolbox::run` catches a tool's panic; this is the runtime going away.
                    tracing::error!(%error, "a tool's task was lost");
                    return vec![Input::Cancelled(Cause::StorageFailed)];
                }
                News::FlushDue => {
                    self.text.drain_into(&mut self.batch);
                    return Vec::new();
                }
            }
        }
    }

    fn heard(&mut self, event: ModelEvent) -> Option<Input> {
        let has_begun = match &self.work {
            Work::Attempt(attempt) => *attempt.begun.borrow(),
            Work::None | Work::Wait(_) => false,
        };
        let begins = match event {
            // A glance that came back after the first word says nothing new.
            ModelEvent::Sent | ModelEvent::Loading if has_begun => return None,
            ModelEvent::Sent | ModelEvent::Loading => false,
            ModelEvent::ReadingPrompt { .. }
            | ModelEvent::Text { .. }
            | ModelEvent::CallProgress { .. }
            | ModelEvent::Call { .. } => true,
        };
        if begins
            && !has_begun
            && let Work::Attempt(attempt) = &self.work
        {
            attempt.begun.send_replace(true);
        }
        match event {
            ModelEvent::Sent => {
                self.cx.phase.set(Phase::Waiting {
                    model: self.cx.model.model.clone(),
                });
                None
            }
            ModelEvent::Loading => {
                self.cx.phase.set(Phase::LoadingModel {
                    model: self.cx.model.model.clone(),
                });
                None
            }
            ModelEvent::ReadingPrompt { done, total } => {
                self.cx.phase.set(Phase::ReadingPrompt {
                    done: Some(done),
                    total: Some(total),
                });
                None
            }
            ModelEvent::Text { part, text } => {
                self.cx.phase.set(match part {
                    Part::Answer => Phase::Writing,
                    Part::Reasoning => Phase::Thinking,
                });
                Some(Input::Text { part, text })
            }
            ModelEvent::CallProgress {
                name,
                argument_bytes,
            } => {
                if self.progress == 0 || argument_bytes >= self.progress + PROGRESS_BYTES {
                    self.progress = argument_bytes.max(1);
                    self.cx.phase.set(Phase::CallingTool {
                        name,
                        argument_bytes,
                    });
                }
                None
            }
            ModelEvent::Call {
                name,
                arguments,
                call_id,
            } => {
                if let Work::Attempt(attempt) = &mut self.work {
                    attempt.called = true;
                }
                Some(Input::Call {
                    name,
                    arguments,
                    call_id,
                })
            }
        }
    }

    /// The attempt's channel is closed: its task has ended.
    async fn attempt_over(&mut self) -> Input {
        let Work::Attempt(attempt) = std::mem::replace(&mut self.work, Work::None) else {
            return Input::Cancelled(Cause::StorageFailed);
        };
        match attempt.task.await {
            Ok(Ok(end)) => Input::AttemptEnded(end),
            Ok(Err(error)) => Input::AttemptFailed(error),
            Err(error) => {
                tracing::error!(%error, "an attempt's task was lost");
                Input::AttemptFailed(AttemptError {
                    failure: panicked(),
                    retry: Retry::Never,
                })
            }
        }
    }

    /// What had arrived before the cancellation counts: text is kept, and an end marker makes the turn complete.
    async fn before_cancel(&mut self, cause: Cause) -> Vec<Input> {
        self.cx.phase.set(Phase::Stopping);
        let mut inputs = Vec::new();
        while let Work::Attempt(attempt) = &mut self.work {
            match attempt.events.try_recv() {
                Ok(event) => inputs.extend(self.heard(event)),
                Err(mpsc::error::TryRecvError::Empty) => break,
                Err(mpsc::error::TryRecvError::Disconnected) => {
                    // An end that asks for tools does not end the turn: the cancellation does.
                    if !attempt.called {
                        inputs.push(self.attempt_over().await);
                    }
                    break;
                }
            }
        }
        self.cx.phase.set(Phase::Stopping);
        inputs.push(Input::Cancelled(cause));
        inputs
    }
}

enum News {
    Cancelled(Cause),
    Ceiling,
    Attempt(Option<ModelEvent>),
    WaitOver,
    Tool(Result<(tokio::task::Id, (ItemId, ToolResult)), tokio::task::JoinError>),
    FlushDue,
}

/// The failure of a turn that hit a bug of ours.
pub(crate) fn panicked() -> Failure {
    Failure::new(
        FailureCode::Panicked,
        "Holdfast hit a bug in this turn; nothing else is affected. Trying again may work.",
    )
}

async fn recv(events: Option<&mut &mut mpsc::Receiver<ModelEvent>>) -> Option<ModelEvent> {
    match events {
        Some(events) => events.recv().await,
        None => std::future::pending().await,
    }
}
