//! A turn: one user message and all the work it causes, up to its terminal event.
//!
//! Invariant: the terminal is the return value of [`run`], so there is exactly one. Whoever awaits it writes it down,
//! together with everything the turn still had to say, in one transaction.
//! Kept by: the machine decides, the driver acts; a cancellation is an input like any other and never races the end.
//! Not here: the terminal's commit and the backstop (`session`).

mod answers;
mod calls;
mod cancel;
mod ceiling;
mod compaction;
mod machine;
mod sent;
mod text;

use std::{collections::HashMap, convert::Infallible, path::PathBuf, sync::Arc, time::Duration};

use protocol::{
    Dialect, EventBody, Failure, FailureCode, FinishReason, ItemId, ModelOptions, ModelRef,
    OptionField, Part, Phase, Provider, Purpose, SessionId, Slept, TimeLimits, TurnId, TurnOutcome,
    TurnView,
};
use tokio::{
    sync::{Mutex, mpsc, watch},
    task::{JoinHandle, JoinSet},
};
use tokio_util::task::TaskTracker;

use crate::{
    Harness,
    clock::{Clock, Sleep, ready},
    context,
    gate::gate,
    gateway::{
        AttemptError, Gateway, Images, Limits, Message, ModelEvent, ModelRequest, Retry, Room,
        StepEnd, ToolSpec,
    },
    health::Health,
    log::{FoundImage, PageLimit, ReadError, Reads},
    mutant::mutated,
    session::{NotRecorded, Recorder},
    status::PhaseSetter,
    tools::{Prepared, ToolResult, Toolbox},
    wake::Woken,
};

pub(crate) use answers::{Answered, Answers, AnswersIn, channel as answers_channel};
pub(crate) use cancel::{Cancel, Cancelled, Cause, channel as cancel_channel};
use ceiling::Ceiling;
use machine::{Compaction, Effect, Input, Machine, Prospect, Rules, Tools};
use sent::Sent;
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
    /// Who is asked, in order: the turn's own model, then its fallbacks. At least one.
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) next_item: ItemId,
    pub(crate) recorder: Recorder,
    pub(crate) reads: Reads,
    pub(crate) gateway: Gateway,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ceiling: Duration,
    /// Where tools see files.
    pub(crate) folder: Option<String>,
    /// Changing tools that need no word any more.
    pub(crate) allowed: Vec<String>,
    pub(crate) answers: Answers,
    pub(crate) cancel: Cancel,
    pub(crate) cancelled: Cancelled,
    pub(crate) phase: PhaseSetter,
    pub(crate) tracker: TaskTracker,
    pub(crate) woken: Woken,
    pub(crate) jitter: u64,
    pub(crate) health: Arc<Health>,
    pub(crate) harness: Harness,
}

impl TurnCx {
    /// The turns of the conversation, this one included, as the log has them now.
    async fn conversation(&self) -> Result<Vec<TurnView>, Failure> {
        let session = self.session;
        let read = self
            .reads
            .read(move |log| log.excerpt(session, None, PageLimit::WHOLE))
            .await;
        match read {
            Ok(mut excerpt) => {
                if mutated!(self.harness, SecondIterator) {
                    let is_whole = |turn: &TurnView| match &turn.outcome {
                        None => true,
                        Some(outcome) => matches!(outcome, TurnOutcome::Completed { .. }),
                    };
                    excerpt.turns.retain(is_whole);
                }
                Ok(excerpt.turns)
            }
            Err(error) => Err(unreadable(&error)),
        }
    }
}

/// A model that may be asked, and how long to wait for it.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) provider: Provider,
    pub(crate) model: ModelRef,
    pub(crate) limits: Limits,
    /// How it is asked, in every request of the turn.
    pub(crate) options: ModelOptions,
}

impl Candidate {
    /// `chosen` is how the session or the model says that it is asked; the server's own word is added.
    pub(crate) fn new(
        provider: Provider,
        model: ModelRef,
        limits: &TimeLimits,
        chosen: &ModelOptions,
    ) -> Self {
        Self {
            options: chosen.over(&ModelOptions::of_server(&provider)),
            provider,
            model,
            limits: Limits::from(limits),
        }
    }
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
    let folder = cx.folder.as_ref().map(PathBuf::from);
    let toolbox = Toolbox::new(Arc::clone(&cx.clock), folder)
        .held_by(cx.harness.clone())
        .counted_by(Arc::clone(&cx.health));
    let names = toolbox.names();
    let rules = Rules {
        candidates: cx.candidates.iter().map(|c| c.model.clone()).collect(),
        changing: names
            .iter()
            .filter(|name| toolbox.changes_something(name))
            .cloned()
            .collect(),
        tools: names,
        allowed: cx.allowed.clone(),
        next_item: cx.next_item,
        jitter: cx.jitter,
    };
    let mut machine = Machine::new(rules).held_by(cx.harness.clone());
    let mut driver = Driver {
        text: TextBuffer::new(),
        batch: Vec::new(),
        work: Work::None,
        tools: JoinSet::new(),
        toolbox,
        prepared: HashMap::new(),
        verbatim: HashMap::new(),
        changing: Arc::new(Mutex::new(())),
        ceiling: Ceiling::new(cx.ceiling, cx.clock.as_ref()),
        progress: 0,
        images: Images::default(),
        at_once: Vec::new(),
        cx,
    };
    let mut effects = machine.step(Input::Begin);
    loop {
        match driver.perform(effects).await {
            Ok(Some(end)) => return end,
            Ok(None) => {
                driver.pause_for_user(machine.waits_for_user());
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
                let cause = driver.cx.cancelled.fired().await;
                effects = machine.step(Input::Cancelled(cause));
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
    tools: JoinSet<(ItemId, Done)>,
    toolbox: Toolbox,
    /// What the calls that wait for the user's word would do.
    prepared: HashMap<ItemId, Box<Prepared>>,
    /// The blocks that go back to the server as they came, each by the name of its answer's first call. Gone with the
    /// turn, as is the server's wish for them.
    verbatim: HashMap<String, String>,
    /// Held by the one call that changes something right now.
    changing: Arc<Mutex<()>>,
    ceiling: Ceiling,
    /// Bytes of arguments the reader was last told of.
    progress: u64,
    /// The images that the model is shown, once they were read.
    images: Images,
    /// What is known without waiting for anything.
    at_once: Vec<Input>,
}

/// What came of a tool's task.
enum Done {
    Prepared(Prospect, Option<Box<Prepared>>),
    Ran(ToolResult),
}

/// What the turn waits for, besides tools.
enum Work {
    None,
    Attempt(Attempt),
    Summary(Attempt, Box<Summing>),
    Wait(Box<Wait>),
}

/// The wait before the next attempt.
struct Wait {
    sleep: Sleep,
    until: Duration,
    attempt: u32,
    failure: Failure,
}

/// A summary that is being written.
struct Summing {
    /// The step and the attempt that need it.
    asked: (u32, u32),
    plan: compaction::Plan,
    overflow: Failure,
    text: String,
}

/// A request to a provider, in a task of its own, so that the socket is read while we write.
struct Attempt {
    /// The model's name, for the reader.
    model: String,
    events: mpsc::Receiver<ModelEvent>,
    task: JoinHandle<Result<StepEnd, AttemptError>>,
    /// Whether the model has begun to say something.
    begun: watch::Sender<bool>,
    called: bool,
    /// Its first call, once it is in the log, and the blocks that its server wants back with the results.
    first_call: Option<ItemId>,
    verbatim: Option<String>,
    /// What was told, measured; absent for a summary.
    sent: Option<Sent>,
}

/// What an attempt asks, and whom.
struct Asking {
    gateway: Gateway,
    provider: Provider,
    limits: Limits,
    clock: Arc<dyn Clock>,
    request: ModelRequest,
    harness: Harness,
}

impl Asking {
    /// One attempt. A server that answers "still loading" is asked again, as long as a silent one would be waited for.
    async fn until_loaded(&self, out: &mpsc::Sender<ModelEvent>) -> Result<StepEnd, AttemptError> {
        let until = self
            .clock
            .monotonic()
            .saturating_add(self.limits.first_event);
        let mut again = 0;
        loop {
            let end = self
                .gateway
                .stream(&self.provider, &self.request, &self.limits, out)
                .await;
            again += 1;
            match end {
                Err(_) if mutated!(self.harness, NestedRetry) && again < 3 => {}
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
                Some(true) => ModelEvent::Loading { permille: None },
                Some(false) => ModelEvent::Sent,
                // Whoever does not say has not said otherwise: what is shown goes on.
                None => continue,
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
                    if let (EventBody::ToolCallRequested { item, .. }, Work::Attempt(attempt)) =
                        (&body, &mut self.work)
                    {
                        attempt.first_call.get_or_insert(*item);
                    }
                    self.batch.push(body);
                }
                Effect::Append { item, part, text } => {
                    self.text.push(item, part, &text, &mut self.batch);
                }
                Effect::CallModel { candidate, tools } => {
                    self.commit().await?;
                    self.call_model(candidate, tools).await;
                }
                Effect::Compact {
                    candidate,
                    step,
                    attempt,
                    overflow,
                    room,
                } => {
                    self.commit().await?;
                    self.compact(candidate, (step, attempt), overflow, room)
                        .await?;
                }
                Effect::Prepare {
                    item,
                    name,
                    arguments,
                } => {
                    // The call is in the log before anything of it happens.
                    self.commit().await?;
                    self.prepare(item, name, arguments);
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
        // From when it leaves, not from when the disk is done: the pace is the reader's, and a slow disk sets its own.
        let left_at = self.cx.clock.monotonic();
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
            self.text.flushed_at(left_at);
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

    async fn call_model(&mut self, candidate: usize, tools: Tools) {
        let asked = match self.cx.conversation().await {
            Ok(turns) => self.tell(candidate, tools, &turns).await,
            Err(failure) => Err(failure),
        };
        match asked {
            Ok(attempt) => self.work = Work::Attempt(attempt),
            Err(failure) => self.at_once.push(Input::AttemptFailed(AttemptError {
                failure,
                retry: Retry::Never,
            })),
        }
    }

    /// Tells a candidate the conversation.
    async fn tell(
        &mut self,
        candidate: usize,
        tools: Tools,
        turns: &[TurnView],
    ) -> Result<Attempt, Failure> {
        let told = context::by_turns(turns, turns, &self.cx.harness);
        let context_tokens = self.context_tokens(candidate);
        let sent = Sent::of(&self.instructions(candidate), &told, context_tokens);
        let mut messages: Vec<Message> = told.into_iter().flat_map(|(_, said)| said).collect();
        context::put_back(&mut messages, &self.verbatim);
        self.read_images(&messages).await;
        let tools = match tools {
            Tools::Offered => self.toolbox.specs(),
            Tools::Withheld => Vec::new(),
        };
        let mut attempt = self.ask(candidate, messages, tools)?;
        attempt.sent = Some(sent);
        Ok(attempt)
    }

    /// Reads the images that these messages show, each once in a turn. One that cannot be read is told in words.
    async fn read_images(&mut self, messages: &[Message]) {
        for shown in messages.iter().flat_map(Message::images) {
            let (id, images) = (shown.image, &mut self.images);
            if images.has(id) {
                continue;
            }
            match self.cx.reads.read(move |log| log.image(id)).await {
                Ok(FoundImage::Whole(bytes)) => images.add(id, &bytes),
                Ok(FoundImage::Damaged | FoundImage::Missing) => {
                    tracing::error!(image = %id, "an image of the conversation is damaged or missing");
                }
                Err(error) => tracing::error!(image = %id, %error, "an image could not be read"),
            }
        }
    }

    /// The context that this candidate is asked for; only an Ollama and our own engine take that wish.
    fn context_tokens(&self, candidate: usize) -> Option<u64> {
        let candidate = self.cx.candidates.get(candidate)?;
        let takes_it = OptionField::NumCtx.is_known_to(candidate.provider.dialect);
        let tokens = candidate.options.num_ctx.filter(|_| takes_it);
        tokens.map(u64::from)
    }

    /// What stands before the conversation: the user's instructions, if there are any.
    fn instructions(&self, candidate: usize) -> Vec<Message> {
        let candidate = self.cx.candidates.get(candidate);
        candidate.map_or_else(Vec::new, |candidate| {
            context::instructed(&candidate.options, Vec::new())
        })
    }

    /// Sends a request, in a task of its own.
    fn ask(
        &mut self,
        candidate: usize,
        messages: Vec<Message>,
        tools: Vec<ToolSpec>,
    ) -> Result<Attempt, Failure> {
        self.progress = 0;
        let cx = &self.cx;
        let candidate = cx.candidates.get(candidate).ok_or_else(panicked)?;
        cx.phase.set(Phase::Connecting {
            provider: candidate.provider.name.clone(),
        });
        let asking = Asking {
            gateway: cx.gateway.clone(),
            provider: candidate.provider.clone(),
            limits: candidate.limits,
            clock: Arc::clone(&cx.clock),
            request: ModelRequest {
                model: candidate.model.model.clone(),
                messages: context::instructed(&candidate.options, messages),
                tools,
                options: candidate.options.clone(),
                images: self.images.clone(),
            },
            harness: cx.harness.clone(),
        };
        let (events_in, events) = mpsc::channel(ATTEMPT_QUEUE);
        let begun = watch::channel(false).0;
        let mut has_begun = begun.subscribe();
        let task = cx.tracker.spawn(async move {
            tokio::select! {
                end = asking.until_loaded(&events_in) => end,
                never = asking.glance(&events_in, &mut has_begun) => match never {},
            }
        });
        Ok(Attempt {
            model: candidate.model.model.clone(),
            events,
            task,
            begun,
            called: false,
            first_call: None,
            verbatim: None,
            sent: None,
        })
    }

    /// Makes room: results that can be left out, and a summary of the older turns, written by the model itself.
    /// `asked` are the step and the attempt that need it.
    async fn compact(
        &mut self,
        candidate: usize,
        asked: (u32, u32),
        overflow: Failure,
        room: Option<Room>,
    ) -> Result<(), NotRecorded> {
        self.cx.phase.set(Phase::Compacting);
        let plan = match self.cx.conversation().await {
            Ok(turns) => compaction::plan(&turns, self.cx.turn, room),
            Err(failure) => {
                self.at_once.push(Input::Compacted(Err(failure)));
                return Ok(());
            }
        };
        let Some(plan) = plan else {
            let failure = compaction::nothing_to_leave_out(overflow);
            self.at_once.push(Input::Compacted(Err(failure)));
            return Ok(());
        };
        let Some(messages) = plan.request() else {
            let done = plan.with_summary(String::new());
            self.at_once.push(Input::Compacted(Ok(done)));
            return Ok(());
        };
        // A request like any other: in the log before the provider is dialled.
        let (step, attempt) = asked;
        if let Some(model) = self.cx.candidates.get(candidate).map(|c| c.model.clone())
            && !mutated!(self.cx.harness, SummaryUnlisted)
        {
            self.batch.push(EventBody::StepStarted {
                step,
                attempt,
                model,
                purpose: Purpose::Summary,
            });
            self.commit().await?;
        }
        let request = if mutated!(self.cx.harness, SummaryOwnOptions) {
            self.ask_otherwise(candidate, messages)
        } else {
            self.ask(candidate, messages, Vec::new())
        };
        match request {
            Ok(attempt) => {
                self.cx.phase.set(Phase::Compacting);
                let summing = Summing {
                    asked,
                    plan,
                    overflow,
                    text: String::new(),
                };
                self.work = Work::Summary(attempt, Box::new(summing));
            }
            Err(failure) => self.at_once.push(Input::Compacted(Err(failure))),
        }
        Ok(())
    }

    #[cfg(feature = "mutants")]
    fn ask_otherwise(
        &mut self,
        candidate: usize,
        messages: Vec<Message>,
    ) -> Result<Attempt, Failure> {
        if let Some(candidate) = self.cx.candidates.get_mut(candidate) {
            candidate.options.num_ctx = None;
        }
        self.ask(candidate, messages, Vec::new())
    }

    #[cfg(not(feature = "mutants"))]
    fn ask_otherwise(&mut self, _: usize, _: Vec<Message>) -> Result<Attempt, Failure> {
        Err(panicked())
    }

    fn prepare(&mut self, item: ItemId, name: String, arguments: String) {
        self.cx.phase.set(Phase::RunningTool { name: name.clone() });
        let (toolbox, reads, session) =
            (self.toolbox.clone(), self.cx.reads.clone(), self.cx.session);
        let harness = self.cx.harness.clone();
        self.tools.spawn(async move {
            let may_have_run = {
                let (name, arguments) = (name.clone(), arguments.clone());
                reads
                    .read(move |log| log.may_have_run(session, &name, &arguments))
                    .await
            };
            let may_have_run = may_have_run.unwrap_or_else(|error| {
                // Unknown: better asked about once too often.
                tracing::error!(%session, %error, "could not look for cut calls");
                true
            });
            let may_have_run = may_have_run && !mutated!(harness, MayHaveRunIgnored);
            let done = match toolbox.prepare(name, arguments).await {
                Err(why) => Done::Prepared(Prospect::Refused(why), None),
                Ok(None) => Done::Prepared(Prospect::Harmless, None),
                Ok(Some(prepared)) => {
                    let intent = prepared.intent.clone();
                    let found = Prospect::Changes {
                        intent,
                        may_have_run,
                    };
                    Done::Prepared(found, Some(Box::new(prepared)))
                }
            };
            (item, done)
        });
    }

    fn run_tool(&mut self, item: ItemId, name: String, arguments: String) {
        self.cx.phase.set(Phase::RunningTool { name: name.clone() });
        let toolbox = self.toolbox.clone();
        let prepared = self.prepared.remove(&item);
        let changes = toolbox.changes_something(&name);
        let changing = Arc::clone(&self.changing);
        self.tools.spawn(async move {
            // One change after the other: what the second one does may depend on the first.
            let _turn = match changes {
                true => Some(changing.lock().await),
                false => None,
            };
            // A task of its own, so that a panicking tool is an error result and not the end of the turn.
            (
                item,
                Done::Ran(
                    toolbox
                        .run(name, arguments, prepared.map(|held| *held))
                        .await,
                ),
            )
        });
    }

    /// Waiting for the user is not work: the ceiling stands still.
    fn pause_for_user(&mut self, question: Option<ItemId>) {
        let clock = self.cx.clock.as_ref();
        match question {
            Some(item) => {
                if !mutated!(self.cx.harness, ParkCounts) {
                    self.ceiling.pause(clock);
                }
                self.cx.phase.set(Phase::Asking { item });
            }
            None => self.ceiling.go_on(clock),
        }
    }

    fn wait(&mut self, ms: u64, attempt: u32, failure: Failure) {
        let until = self.cx.clock.monotonic() + Duration::from_millis(ms);
        let wait = Wait {
            sleep: self.cx.clock.sleep_until(until),
            until,
            attempt,
            failure,
        };
        self.tell_of(&wait);
        self.work = Work::Wait(Box::new(wait));
    }

    fn tell_of(&self, wait: &Wait) {
        let clock = self.cx.clock.as_ref();
        let left = wait.until.saturating_sub(clock.monotonic());
        let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        let until = clock.wall().millis().saturating_add_unsigned(left_ms);
        self.cx.phase.set(Phase::Retrying {
            until: protocol::Timestamp::from_millis(until),
            attempt: wait.attempt,
            of: machine::ATTEMPTS_MAX,
            failure: wait.failure.clone(),
        });
    }

    async fn stop_work(&mut self) {
        match std::mem::replace(&mut self.work, Work::None) {
            Work::Attempt(_) | Work::Summary(..) if mutated!(self.cx.harness, LeaveSocket) => {
                return;
            }
            Work::Attempt(attempt) | Work::Summary(attempt, _) => attempt.stop().await,
            Work::None | Work::Wait(_) => {}
        }
        self.tools.shutdown().await;
    }

    /// Waits for whatever comes next. Several inputs only when the turn is cancelled: what had come before it goes first.
    async fn next_inputs(&mut self) -> Vec<Input> {
        if !self.at_once.is_empty() {
            return std::mem::take(&mut self.at_once);
        }
        loop {
            let now = self.cx.clock.monotonic();
            let mut flush = self
                .text
                .due_at(now)
                .map(|at| self.cx.clock.sleep_until(at));
            // As far as a test can make it: every other turn is unlucky.
            let unlucky =
                mutated!(self.cx.harness, TerminalInSelect) && self.cx.turn.get().is_multiple_of(2);
            let (mut events, wait) = match &mut self.work {
                Work::None => (None, None),
                Work::Attempt(attempt) | Work::Summary(attempt, _) => {
                    (Some(&mut attempt.events), None)
                }
                Work::Wait(wait) => (None, Some(&mut wait.sleep)),
            };
            // Nothing in here writes or ends anything: it only says what happened first.
            let news = tokio::select! {
                biased;
                cause = self.cx.cancelled.fired() => News::Cancelled(cause),
                () = self.ceiling.reached(), if !unlucky => News::Ceiling,
                answer = self.cx.answers.next() => News::Answered(answer),
                // Before what the sleep did to the attempt.
                slept = self.cx.woken.next() => News::Woke(slept),
                event = recv(events.as_mut()) => News::Attempt(event),
                () = ready(wait) => News::WaitOver,
                Some(ended) = self.tools.join_next_with_id() => News::Tool(ended),
                () = ready(flush.as_mut()) => News::FlushDue,
            };
            match news {
                News::Cancelled(cause) => return self.before_cancel(cause).await,
                News::Ceiling => {
                    // Through the same door as every other cause, so that the first one wins.
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
                News::Answered(Answered { item, resolution }) => {
                    return vec![Input::Answered { item, resolution }];
                }
                News::Tool(Ok((_, (item, Done::Prepared(found, prepared))))) => {
                    self.prepared
                        .extend(prepared.map(|prepared| (item, prepared)));
                    return vec![Input::Prepared { item, found }];
                }
                News::Tool(Ok((_, (item, Done::Ran(result))))) => {
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
                News::Woke(slept) => {
                    self.text.drain_into(&mut self.batch);
                    self.batch.push(EventBody::ComputerSlept { slept });
                    if let Work::Wait(wait) = &self.work {
                        // It goes on with what was left of it.
                        self.tell_of(wait);
                    }
                    return Vec::new();
                }
                News::FlushDue => {
                    self.text.drain_into(&mut self.batch);
                    return Vec::new();
                }
            }
        }
    }

    fn heard(&mut self, event: ModelEvent) -> Option<Input> {
        let attempt = match &mut self.work {
            Work::Attempt(attempt) => attempt,
            Work::Summary(_, summing) => {
                // Not the reader's: only the phase says that a summary is being written.
                match event {
                    ModelEvent::Text {
                        part: Part::Answer,
                        text,
                    } => summing.text.push_str(&text),
                    ModelEvent::FoundReasoning => summing.text.clear(),
                    ModelEvent::Text {
                        part: Part::Reasoning,
                        ..
                    }
                    | ModelEvent::Sent
                    | ModelEvent::Loading { .. }
                    | ModelEvent::ReadingPrompt { .. }
                    | ModelEvent::CallProgress { .. }
                    | ModelEvent::Call { .. }
                    | ModelEvent::CallCut { .. }
                    | ModelEvent::Verbatim { .. } => {}
                }
                return None;
            }
            Work::None | Work::Wait(_) => return None,
        };
        let has_begun = *attempt.begun.borrow();
        let begins = match event {
            // A glance that came back after the first word says nothing new.
            ModelEvent::Sent | ModelEvent::Loading { .. } if has_begun => return None,
            ModelEvent::Sent | ModelEvent::Loading { .. } => false,
            ModelEvent::ReadingPrompt { .. }
            | ModelEvent::Text { .. }
            | ModelEvent::FoundReasoning
            | ModelEvent::CallProgress { .. }
            | ModelEvent::Call { .. }
            | ModelEvent::CallCut { .. }
            | ModelEvent::Verbatim { .. } => true,
        };
        if begins && !has_begun {
            attempt.begun.send_replace(true);
        }
        let (phase, input) = match event {
            ModelEvent::Sent => (
                Phase::Waiting {
                    model: attempt.model.clone(),
                },
                None,
            ),
            ModelEvent::Loading { permille } => (
                Phase::LoadingModel {
                    model: attempt.model.clone(),
                    permille,
                },
                None,
            ),
            ModelEvent::ReadingPrompt { done, total } => (
                Phase::ReadingPrompt {
                    done: Some(done),
                    total: Some(total),
                },
                None,
            ),
            ModelEvent::Text { part, text } => (
                match part {
                    Part::Answer => Phase::Writing,
                    Part::Reasoning => Phase::Thinking,
                },
                Some(Input::Text { part, text }),
            ),
            ModelEvent::FoundReasoning => return Some(Input::FoundReasoning),
            ModelEvent::CallProgress {
                name,
                argument_bytes,
            } => {
                let is_news =
                    self.progress == 0 || argument_bytes >= self.progress + PROGRESS_BYTES;
                if !is_news {
                    return None;
                }
                self.progress = argument_bytes.max(1);
                let phase = Phase::CallingTool {
                    name,
                    argument_bytes,
                };
                (phase, None)
            }
            ModelEvent::Call {
                name,
                arguments,
                call_id,
                unclear,
            } => {
                attempt.called = true;
                return Some(Input::Call {
                    name,
                    arguments,
                    call_id,
                    unclear,
                });
            }
            ModelEvent::CallCut { name, arguments } => {
                return Some(Input::CallCut { name, arguments });
            }
            ModelEvent::Verbatim { blocks } => {
                attempt.verbatim = Some(blocks);
                return None;
            }
        };
        self.cx.phase.set(phase);
        input
    }

    /// The attempt's channel is closed: its task has ended.
    async fn attempt_over(&mut self) -> Input {
        let (attempt, summing) = match std::mem::replace(&mut self.work, Work::None) {
            Work::Attempt(attempt) => (attempt, None),
            Work::Summary(attempt, summing) => (attempt, Some(summing)),
            Work::None | Work::Wait(_) => return Input::Cancelled(Cause::StorageFailed),
        };
        if let (Some(first), Some(blocks)) = (attempt.first_call, attempt.verbatim)
            && !mutated!(self.cx.harness, ForgetVerbatim)
        {
            self.verbatim.insert(context::call_id(first), blocks);
        }
        let ended = attempt.task.await.unwrap_or_else(|error| {
            tracing::error!(%error, "an attempt's task was lost");
            Err(AttemptError {
                failure: panicked(),
                retry: Retry::Never,
            })
        });
        if let Some(summing) = &summing
            && !mutated!(self.cx.harness, SummaryUnlisted)
        {
            self.batch.push(summing.end_event(&ended));
        }
        match (summing, ended) {
            (None, Ok(end)) => {
                let unread = attempt
                    .sent
                    .and_then(|sent| sent.unread(end.usage.prompt_tokens, &self.cx.harness))
                    .filter(|_| !mutated!(self.cx.harness, UnreadUntold));
                Input::AttemptEnded(end, unread)
            }
            (None, Err(error)) => Input::AttemptFailed(error),
            (Some(summing), Ok(end)) => {
                Input::Compacted(summing.finished(end.finish, &self.cx.harness))
            }
            (Some(summing), Err(error)) => Input::Compacted(Err(compaction::no_summary(
                summing.overflow,
                &error.failure,
            ))),
        }
    }

    /// What had arrived before the cancellation counts: text is kept, and an end marker makes the turn complete.
    async fn before_cancel(&mut self, cause: Cause) -> Vec<Input> {
        self.cx.phase.set(Phase::Stopping);
        // What we had only thought of is not begun any more, and neither is what the user has just allowed.
        self.at_once.clear();
        let mut inputs = Vec::new();
        while let Work::Attempt(attempt) = &mut self.work {
            match attempt.events.try_recv() {
                Ok(event) => inputs.extend(self.heard(event)),
                Err(mpsc::error::TryRecvError::Empty) => break,
                Err(mpsc::error::TryRecvError::Disconnected) => {
                    // An end that asks for tools does not end the turn: the cancellation does.
                    // Nor does a failure: what was decided first is what ended it.
                    if !attempt.called
                        && let ended @ Input::AttemptEnded(..) = self.attempt_over().await
                    {
                        inputs.push(ended);
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
    Answered(Answered),
    Woke(Slept),
    Tool(Result<(tokio::task::Id, (ItemId, Done)), tokio::task::JoinError>),
    FlushDue,
}

impl Summing {
    /// How the request for it ended, for the log. Whether the summary is of use is another question.
    fn end_event(&self, ended: &Result<StepEnd, AttemptError>) -> EventBody {
        let (step, attempt) = self.asked;
        match ended {
            Ok(end) => EventBody::StepEnded {
                step,
                finish: end.finish,
                usage: end.usage,
                timings: end.timings,
                unread: None,
                unseen_images: end.unseen_images,
                untold_tools: end.untold_tools,
            },
            Err(error) => EventBody::AttemptFailed {
                step,
                attempt,
                failure: error.failure.clone(),
                retry_in_ms: None,
                next: None,
            },
        }
    }

    /// A summary counts only as a whole: half of one would stand for a conversation it does not tell.
    fn finished(self, finish: FinishReason, harness: &Harness) -> Result<Compaction, Failure> {
        let summary = self.text.trim();
        match finish {
            FinishReason::Length if mutated!(harness, CutSummaryCounts) && !summary.is_empty() => {
                Ok(self.plan.with_summary(summary.to_owned()))
            }
            FinishReason::Stop | FinishReason::Unknown if self.plan.is_no_shorter(summary) => {
                Err(compaction::long_summary(self.overflow))
            }
            FinishReason::Stop | FinishReason::Unknown if !summary.is_empty() => {
                Ok(self.plan.with_summary(summary.to_owned()))
            }
            FinishReason::Stop
            | FinishReason::Unknown
            | FinishReason::Length
            | FinishReason::ToolCalls
            | FinishReason::Filter => Err(compaction::cut_summary(self.overflow)),
        }
    }
}

fn unreadable(error: &ReadError) -> Failure {
    Failure::new(
        FailureCode::Panicked,
        "Holdfast could not read this conversation from its log.",
    )
    .with_detail(error.to_string())
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
