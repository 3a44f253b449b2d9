//! `ask`: one turn, followed by attach and poll exactly as a window follows it.
//!
//! Invariant: the answer on stdout is the committed one, each character once, whatever is asked or answered twice.
//! Kept by: the cursor admits an event or does not, and every item knows how much of it was printed.

use std::{
    cell::Cell,
    collections::HashMap,
    io::{self, Read},
    path::Path,
    pin::{Pin, pin},
    time::Duration,
};

use engine::{Config, Engine};
use protocol::{
    Admission, AttachMode, AttachReason, Attached, Batch, Cursor, Epoch, ErrorCode, ErrorReport,
    Event, EventBody, InterruptedWhy, ItemBody, ItemId, Op, PROTOCOL, Page, PageId, Part, Phase,
    PollRequest, SessionId, Status, StreamId, TranscriptPage, TurnId, TurnOutcome,
};
use tokio::{task::JoinSet, time::Sleep};

use crate::{
    arguments::{Prompt, Question, Talk},
    choice::{self, NoChoice},
    signals::{Asked, Signals},
};

use super::{
    Exit, complain, lookup,
    print::{self, Listener, Margin},
    words,
};

/// The window's label, as far as the engine is concerned.
const LABEL: &str = "ask";

/// How long a poll stays parked; the next one follows at once.
const POLL_WAIT_MS: u32 = 8_000;
const POLL_BYTES_MAX: u32 = 256 * 1024;

/// After Ctrl-C the turn's end is awaited for so long.
const STOP_MAX: Duration = Duration::from_secs(3);

/// An ordered shutdown takes less; then the process leaves all the same, and the next start recovers.
const SHUTDOWN_MAX: Duration = Duration::from_secs(4);

/// An attachment that is lost again and again is not a blip.
const ATTACHES_MAX: u32 = 4;

/// Polls in a row that find the turn unsaved: the disk is given a quarter of a minute to recover.
const UNSAVED_POLLS_MAX: u32 = 2;

/// Asks, prints the answer, and says how that ended.
pub(crate) async fn ask(data_dir: &Path, question: Question) -> Exit {
    let margin = Margin::of_this_process();
    let prompt = match said(question.prompt.clone()) {
        Ok(prompt) => prompt,
        Err(error) => {
            return complain(
                format!("the prompt could not be read: {error}"),
                Exit::Failed,
            );
        }
    };
    if prompt.trim().is_empty() {
        return complain("the prompt is empty", Exit::Usage);
    }
    let signals = match Signals::taken() {
        Ok(signals) => signals,
        Err(error) => return complain(format!("signals cannot be handled: {error}"), Exit::Failed),
    };
    let engine = match Engine::open(Config::new(data_dir.to_owned())).await {
        Ok(engine) => engine,
        Err(error) => return complain(error, Exit::Failed),
    };
    let conversation = Conversation {
        engine: engine.clone(),
        margin,
        talk: question.talk,
        running: Cell::new(None),
    };
    let held = conversation.held(&question, prompt);
    let (exit, haste) = under_signals(&conversation, signals, held).await;
    if haste == Haste::AtOnce {
        return exit;
    }
    let shutdown = engine.shutdown(InterruptedWhy::AppExit);
    if tokio::time::timeout(SHUTDOWN_MAX, shutdown).await.is_err() {
        tracing::error!("the engine did not shut down in time; the next start recovers");
    }
    exit
}

fn said(prompt: Prompt) -> io::Result<String> {
    match prompt {
        Prompt::Said(text) => Ok(text),
        Prompt::Stdin => {
            let mut text = String::new();
            io::stdin().lock().read_to_string(&mut text)?;
            // The end of the last line belongs to the pipe, not to the question.
            text.truncate(text.trim_end_matches(['\n', '\r']).len());
            Ok(text)
        }
    }
}

/// How the process leaves after the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Haste {
    /// With an ordered shutdown.
    InOrder,
    /// Somebody pressed Ctrl-C twice; the next start recovers what is left open.
    AtOnce,
}

/// Holds the conversation until it ends by itself or a signal ends it.
async fn under_signals(
    conversation: &Conversation,
    mut signals: Signals,
    held: impl Future<Output = Result<Exit, Refused>>,
) -> (Exit, Haste) {
    let mut held = pin!(held);
    let mut patience = pin!(None);
    // A shutdown runs beside the conversation, which so hears how its turn ended.
    let mut closing = JoinSet::new();
    loop {
        tokio::select! {
            ended = &mut held => {
                let exit = ended.unwrap_or_else(|refused| refused.told(conversation));
                return (exit, Haste::InOrder);
            }
            () = expired(patience.as_mut()) => {
                conversation.margin.murmur("the answer did not end in time");
                return (Exit::Stopped, Haste::InOrder);
            }
            asked = signals.next() => match (asked, conversation.running.get()) {
                (Asked::Stop, _) if patience.is_some() => return (Exit::Stopped, Haste::AtOnce),
                (Asked::Stop, Some((session, turn))) => {
                    conversation.margin.murmur("stopping");
                    let op = Op::CancelTurn { session, turn };
                    let engine = &conversation.engine;
                    if let Err(report) = engine.submit(engine.mint_op(), op).await {
                        conversation.margin.complain(report);
                    }
                    patience.set(Some(tokio::time::sleep(STOP_MAX)));
                }
                // Nothing is said yet that could be stopped.
                (Asked::Stop | Asked::Leave, None) => return (Exit::Stopped, Haste::InOrder),
                (Asked::Leave, Some(_)) => {
                    let engine = conversation.engine.clone();
                    closing.spawn(async move { engine.shutdown(InterruptedWhy::OsShutdown).await });
                    patience.set(Some(tokio::time::sleep(STOP_MAX)));
                }
            },
        }
    }
}

/// Ready when the sleep is over; never without one.
async fn expired(sleep: Pin<&mut Option<Sleep>>) {
    match sleep.as_pin_mut() {
        Some(sleep) => sleep.await,
        None => std::future::pending().await,
    }
}

/// Why there is no turn.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error(transparent)]
    Session(#[from] lookup::NoSession),
    #[error(transparent)]
    Choice(#[from] NoChoice),
    #[error(transparent)]
    Engine(#[from] ErrorReport),
    #[error("the message was taken and no turn was begun")]
    NoTurn,
    #[error("the answer came with holes; `holdfast show` has what is stored")]
    Gap,
    #[error(
        "the answer cannot be saved, so waiting for its end makes no sense; what was saved is in `holdfast show`"
    )]
    NotSaved,
}

impl Refused {
    fn told(&self, conversation: &Conversation) -> Exit {
        if let (Self::Choice(NoChoice::Fails(failure)), Talk::Verbose) = (self, conversation.talk)
            && let Some(detail) = &failure.detail
        {
            conversation.margin.murmur(detail);
        }
        conversation.margin.complain(self);
        match self {
            Self::Engine(report) if report.code == ErrorCode::ShuttingDown => Exit::Stopped,
            Self::Session(_)
            | Self::Choice(_)
            | Self::Engine(_)
            | Self::NoTurn
            | Self::Gap
            | Self::NotSaved => Exit::Failed,
        }
    }
}

struct Conversation {
    engine: Engine,
    margin: Margin,
    talk: Talk,
    /// The turn that Ctrl-C stops.
    running: Cell<Option<(SessionId, TurnId)>>,
}

impl Conversation {
    async fn held(&self, question: &Question, prompt: String) -> Result<Exit, Refused> {
        let engine = &self.engine;
        let page = engine.mint_page();
        let welcome = engine.hello(LABEL, page, PROTOCOL)?;
        let (session, attached) = match &question.session {
            Some(word) => {
                let library = engine.library().await?;
                let session = lookup::session(&library, word)?.session;
                let stream = StreamId::Session(session);
                (
                    session,
                    Some(
                        engine
                            .attach(page, stream, None, AttachReason::Open)
                            .await?,
                    ),
                )
            }
            None => (engine.mint_session(), None),
        };
        let present = attached.as_ref().and_then(|attached| match &attached.page {
            Some(Page::Session(transcript)) => transcript.model.clone(),
            Some(Page::Library(_)) | None => None,
        });
        let model = choice::choose(engine, &question.wish, present.as_ref()).await?;
        let op = if attached.is_some() {
            if present.as_ref() != Some(&model) {
                let choose = Op::ChooseModel { session, model };
                engine.submit(engine.mint_op(), choose).await?;
            }
            Op::SendMessage {
                session,
                text: prompt,
            }
        } else {
            Op::StartSession {
                session,
                model,
                text: prompt,
                folder: None,
            }
        };
        let receipt = engine.submit(engine.mint_op(), op).await?;
        let turn = receipt.turn.ok_or(Refused::NoTurn)?;
        self.running.set(Some((session, turn)));
        self.margin.say(format_args!("session {session}"));

        let mut answer = Answer::new(self.margin, self.talk, turn);
        let mut place = match attached {
            Some(attached) => Following::after(&attached),
            None => {
                let start = Cursor::at_start(welcome.log);
                let stream = StreamId::Session(session);
                let attached = engine
                    .attach(page, stream, Some(start), AttachReason::Open)
                    .await?;
                Following::of(&attached, Some(start), &mut answer).await
            }
        };
        let outcome = self
            .followed(page, session, &mut place, &mut answer)
            .await?;
        answer.end_line().await;
        Ok(match (self.ended(&outcome), answer.printing) {
            (Exit::Done, Printing::Failed) => Exit::Failed,
            (exit, Printing::Goes | Printing::Unheard | Printing::Failed) => exit,
        })
    }

    /// Follows the turn to its terminal event.
    async fn followed(
        &self,
        page: PageId,
        session: SessionId,
        following: &mut Following,
        answer: &mut Answer,
    ) -> Result<TurnOutcome, Refused> {
        let mut attaches = 1;
        let mut unsaved = 0;
        loop {
            if let Some(outcome) = answer.outcome.take() {
                return Ok(outcome);
            }
            if unsaved > UNSAVED_POLLS_MAX {
                return Err(Refused::NotSaved);
            }
            match self.engine.poll(following.request()).await {
                Ok(batch) => {
                    let not_saving = batch
                        .status
                        .as_ref()
                        .is_some_and(|status| matches!(status.phase, Phase::NotSaving { .. }));
                    unsaved = if not_saving { unsaved + 1 } else { 0 };
                    match following.take(&batch, answer).await {
                        Applied::All => {}
                        Applied::Gap if attaches < ATTACHES_MAX => {
                            attaches += 1;
                            self.attach_again(page, session, following, answer).await?;
                        }
                        Applied::Gap => return Err(Refused::Gap),
                    }
                }
                Err(report) => match report.code {
                    ErrorCode::UnknownEpoch if attaches < ATTACHES_MAX => {
                        attaches += 1;
                        self.attach_again(page, session, following, answer).await?;
                    }
                    ErrorCode::UnknownEpoch
                    | ErrorCode::TurnActive
                    | ErrorCode::StaleHead
                    | ErrorCode::AlreadyResolved { .. }
                    | ErrorCode::OpIdConflict
                    | ErrorCode::NotFound
                    | ErrorCode::Gone
                    | ErrorCode::Invalid { .. }
                    | ErrorCode::StorageFailed
                    | ErrorCode::ShuttingDown
                    | ErrorCode::Superseded
                    | ErrorCode::ProtocolMismatch
                    | ErrorCode::Other => return Err(report.into()),
                },
            }
        }
    }

    async fn attach_again(
        &self,
        page: PageId,
        session: SessionId,
        following: &mut Following,
        answer: &mut Answer,
    ) -> Result<(), Refused> {
        let cursor = Some(following.cursor);
        let stream = StreamId::Session(session);
        let attached = self
            .engine
            .attach(page, stream, cursor, AttachReason::Gap)
            .await?;
        *following = Following::of(&attached, cursor, answer).await;
        Ok(())
    }

    fn ended(&self, outcome: &TurnOutcome) -> Exit {
        let words = words::outcome(outcome);
        match outcome {
            TurnOutcome::Completed { .. } => {
                if let Some(words) = words {
                    self.margin.murmur(words);
                }
                Exit::Done
            }
            TurnOutcome::Failed { failure } => {
                if let (Talk::Verbose, Some(detail)) = (self.talk, &failure.detail) {
                    self.margin.murmur(detail);
                }
                complain(&failure.message, Exit::Failed)
            }
            TurnOutcome::Cancelled { .. } | TurnOutcome::Interrupted { .. } => {
                if let Some(words) = words {
                    self.margin.say(words);
                }
                Exit::Stopped
            }
        }
    }
}

/// Where this client stands in its stream.
struct Following {
    epoch: Epoch,
    cursor: Cursor,
    seen_status: u64,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Applied {
    All,
    /// Something was missing in between, or it was another attachment's answer.
    Gap,
}

impl Following {
    /// From the position of what came with an attachment; what is in it is not printed.
    fn after(attached: &Attached) -> Self {
        let cursor = match &attached.page {
            Some(Page::Session(transcript)) => transcript.as_of,
            Some(Page::Library(library)) => library.as_of,
            None => attached.head,
        };
        Self {
            epoch: attached.epoch,
            cursor,
            seen_status: 0,
        }
    }

    /// From `cursor`, or from the page that came instead, of which our turn is printed as far as it was not.
    async fn of(attached: &Attached, cursor: Option<Cursor>, answer: &mut Answer) -> Self {
        let mut following = Self::after(attached);
        match (attached.mode, cursor, &attached.page) {
            (AttachMode::Resume, Some(cursor), _) => following.cursor = cursor,
            (_, _, Some(Page::Session(transcript))) => answer.catch_up(transcript).await,
            (AttachMode::Resume | AttachMode::Fresh | AttachMode::Reset(_), _, _) => {}
        }
        if let Some(status) = &attached.status {
            following.hear(status, answer).await;
        }
        following
    }

    fn request(&self) -> PollRequest {
        PollRequest {
            epoch: self.epoch,
            after: self.cursor,
            seen_status: self.seen_status,
            wait_ms: POLL_WAIT_MS,
            max_bytes: POLL_BYTES_MAX,
        }
    }

    async fn take(&mut self, batch: &Batch, answer: &mut Answer) -> Applied {
        if batch.epoch != self.epoch {
            return Applied::Gap;
        }
        for event in &batch.events {
            match self.cursor.admits(event.seq) {
                Admission::Next => {
                    answer.apply(event).await;
                    self.cursor = self.cursor.advanced_to(event.seq);
                }
                Admission::Seen => {}
                Admission::Gap => return Applied::Gap,
            }
        }
        if let Some(status) = &batch.status {
            self.hear(status, answer).await;
        }
        Applied::All
    }

    async fn hear(&mut self, status: &Status, answer: &mut Answer) {
        if status.revision > self.seen_status {
            self.seen_status = status.revision;
            answer.status(&status.phase).await;
        }
    }
}

/// Whether the answer reaches anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Printing {
    Goes,
    /// The reader went away, which is theirs to decide.
    Unheard,
    /// stdout takes nothing more.
    Failed,
}

/// The answer, as far as it was printed.
struct Answer {
    margin: Margin,
    talk: Talk,
    turn: TurnId,
    printed: HashMap<ItemId, usize>,
    last_item: Option<ItemId>,
    ends_line: bool,
    whispered: bool,
    last_words: Option<String>,
    printing: Printing,
    outcome: Option<TurnOutcome>,
}

impl Answer {
    fn new(margin: Margin, talk: Talk, turn: TurnId) -> Self {
        Self {
            margin,
            talk,
            turn,
            printed: HashMap::new(),
            last_item: None,
            ends_line: true,
            whispered: false,
            last_words: None,
            printing: Printing::Goes,
            outcome: None,
        }
    }

    async fn apply(&mut self, event: &Event) {
        if event.turn != Some(self.turn) {
            return;
        }
        match &event.body {
            EventBody::TextAppended {
                item,
                part,
                offset,
                text,
            } => {
                let offset = usize::try_from(*offset).unwrap_or(usize::MAX);
                self.text(*item, *part, offset, text).await;
            }
            EventBody::TurnEnded { outcome } => self.outcome = Some(outcome.clone()),
            EventBody::ToolCallRequested { name, .. } => {
                let words = format!("{name} is called");
                self.aside(words).await;
            }
            EventBody::SessionListed { .. }
            | EventBody::SessionTitled { .. }
            | EventBody::SessionTurnStarted { .. }
            | EventBody::SessionTurnEnded { .. }
            | EventBody::SessionAsked { .. }
            | EventBody::SessionAnswered { .. }
            | EventBody::SessionBinned { .. }
            | EventBody::SessionUnbinned { .. }
            | EventBody::ProviderAdded { .. }
            | EventBody::ProviderChanged { .. }
            | EventBody::ProviderRemoved { .. }
            | EventBody::TimeLimitsChanged { .. }
            | EventBody::FallbacksChosen { .. }
            | EventBody::LogSalvaged { .. }
            | EventBody::SessionStarted { .. }
            | EventBody::SessionRenamed { .. }
            | EventBody::ModelChosen { .. }
            | EventBody::FolderChosen { .. }
            | EventBody::ApprovalRequested { .. }
            | EventBody::ApprovalResolved { .. }
            | EventBody::HistoryCompacted { .. }
            | EventBody::UserMessageAdded { .. }
            | EventBody::TurnStarted { .. }
            | EventBody::StepStarted { .. }
            | EventBody::ToolCallStarted { .. }
            | EventBody::ToolCallFinished { .. }
            | EventBody::StepEnded { .. }
            | EventBody::AttemptFailed { .. }
            | EventBody::HistoryRewound { .. }
            | EventBody::Unsupported { .. } => {}
        }
    }

    /// Prints of our turn what was not printed yet.
    async fn catch_up(&mut self, transcript: &TranscriptPage) {
        let Some(turn) = transcript.turns.iter().find(|turn| turn.turn == self.turn) else {
            return;
        };
        for item in &turn.items {
            match &item.body {
                ItemBody::Text { part, text, .. } => self.text(item.item, *part, 0, text).await,
                ItemBody::UserMessage { .. }
                | ItemBody::ToolCall { .. }
                | ItemBody::Compacted { .. }
                | ItemBody::Unsupported { .. } => {}
            }
        }
        self.outcome = turn.outcome.clone();
    }

    /// What the turn is doing; while text comes, the text says it.
    async fn status(&mut self, phase: &Phase) {
        let tells = match phase {
            Phase::Idle | Phase::Writing => false,
            Phase::Thinking => self.talk == Talk::Usual,
            Phase::Connecting { .. }
            | Phase::Waiting { .. }
            | Phase::LoadingModel { .. }
            | Phase::ReadingPrompt { .. }
            | Phase::CallingTool { .. }
            | Phase::RunningTool { .. }
            | Phase::Asking { .. }
            | Phase::Compacting
            | Phase::Retrying { .. }
            // Whoever pressed Ctrl-C has been told.
            | Phase::NotSaving { .. } => true,
            Phase::Stopping => false,
        };
        match words::phase(phase) {
            Some(words) if tells && self.last_words.as_ref() != Some(&words) => {
                self.last_words = Some(words.clone());
                self.aside(words).await
            }
            Some(_) | None => {}
        }
    }

    /// A line on stderr that does not begin in the middle of a line of the answer.
    async fn aside(&mut self, words: String) {
        self.end_line().await;
        self.margin.murmur(words);
    }

    async fn text(&mut self, item: ItemId, part: Part, offset: usize, text: &str) {
        let printed = self.printed.entry(item).or_default();
        let end = offset.saturating_add(text.len());
        let Some(fresh) = text.get(printed.saturating_sub(offset)..) else {
            return; // All of it was printed.
        };
        *printed = (*printed).max(end);
        match (part, self.talk) {
            (Part::Answer, _) => self.say(item, fresh).await,
            (Part::Reasoning, Talk::Verbose) => {
                self.margin.whisper(fresh);
                self.whispered = true;
            }
            (Part::Reasoning, Talk::Usual) => {}
        }
    }

    async fn say(&mut self, item: ItemId, text: &str) {
        if text.is_empty() {
            return;
        }
        if std::mem::take(&mut self.whispered) {
            self.margin.say("");
        }
        let mut said = String::new();
        if self
            .last_item
            .replace(item)
            .is_some_and(|last| last != item)
        {
            // Two answers of one turn, with tools between them.
            said.push_str(if self.ends_line { "\n" } else { "\n\n" });
        }
        said.push_str(&print::for_stdout(text));
        self.ends_line = text.ends_with('\n');
        self.put(said).await
    }

    /// Ends the last line, so that a prompt or a pipe's reader finds it ended.
    async fn end_line(&mut self) {
        if std::mem::take(&mut self.whispered) {
            self.margin.say("");
        }
        if !std::mem::replace(&mut self.ends_line, true) {
            self.put("\n".to_owned()).await;
        }
    }

    /// A reader who is slow holds up the printing, on a thread of its own: signals are heard all the same.
    /// Printing that fails is told once, and the turn goes on: it is kept, and can be shown.
    async fn put(&mut self, text: String) {
        match self.printing {
            Printing::Goes => {}
            Printing::Unheard | Printing::Failed => return,
        }
        let printed = tokio::task::spawn_blocking(move || print::put(&text)).await;
        match printed
            .map_err(io::Error::other)
            .and_then(|printed| printed)
        {
            Ok(Listener::There) => {}
            Ok(Listener::Gone) => self.printing = Printing::Unheard,
            Err(error) => {
                self.printing = Printing::Failed;
                self.margin
                    .complain(format_args!("the answer cannot be printed: {error}"));
            }
        }
    }
}
