//! The engine: what windows and terminals ask, and who answers.
//!
//! Invariant: nothing in here depends on a window that lives. An op is answered after its commit; a turn belongs to its
//! session. Kept by: every task is tracked, and shutdown is ordered: refuse ops, cancel turns, commit their ends,
//! answer parked polls, close the log.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use protocol::{
    AttachMode, AttachReason, Attached, Batch, Boot, Check, Counted, Cursor, Dialect, Draft,
    DraftServer, Epoch, ErrorCode, ErrorReport, Event, EventBody, EventPage, Examination,
    ExamineArgs, Examined, Failure, FailureCode, Finding, HealthReport, Image, ImageId,
    InterruptedWhy, KeyChange, KeysReport, Ledger, LedgerArgs, LibraryPage, LocalModels, LogId,
    ManageModelArgs, ModelOptions, Op, OpId, PROTOCOL, Page, PageId, Phase, PollRequest, Prices,
    ProbeArgs, ProbeReport, Provider, ProviderId, PullOutcome, Receipt, ResetReason, Salvage, Seq,
    SessionId, Status, StreamId, TimeLimits, TranscriptPage, TurnId, TurnVersions, TypedKey,
    Verdict, WakeArgs, WakeReport, Welcome,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::task::TaskTracker;

use crate::{
    Harness,
    attach::{Attachments, BATCH_BYTES_MAX, POLL_WAIT_MS_MAX},
    cabinet::{Cabinet, Keychain, NoKeychain},
    clock::{self, Clock},
    gate::gate,
    gateway::{self, ApiKey, Gateway, Secrets, Wanted, local::Host},
    health::Health,
    images,
    lock::FolderLock,
    log::{
        Append, Commit, Derived, Durability, EventLog, FoundImage, FreeSpace, How, LOCK_WAIT,
        LogCounters, OpDigest, OpStamp, OpenError, PageLimit, ReadError, Room, TurnEvents,
    },
    mint::Mint,
    model_files::{self, FreeMemory, ModelFiles},
    models::{self, Details},
    mutant::mutated,
    pulls::{self, Pulls},
    refusal::{commit_report, invalid, read_report, sentence, usable_options},
    session::{SESSION_QUEUE, Session, SessionInput},
    shelf::Shelf,
    status::StatusBoard,
    turn::{Cancel, Cause},
    wake::Wakes,
};

/// How long shutdown waits for turns to record their ends, and then for tasks to finish.
const SHUTDOWN_MAX: Duration = Duration::from_millis(2_500);

/// What an engine is made of.
pub struct Config {
    /// The folder of everything that is kept. Created if it does not exist.
    pub data_dir: PathBuf,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// What runs models of this computer; nothing does when absent.
    pub host: Option<Host>,
    /// The system's keychain.
    pub keychain: Arc<dyn Keychain>,
    /// How long to wait for what, until the user chooses; valid.
    pub limits: TimeLimits,
    /// What a test holds of it; empty in the product.
    pub harness: Harness,
    /// How long another program's lock on the database is waited for.
    pub lock_wait: Duration,
    /// Asks how much room the disk has.
    pub free_space: FreeSpace,
    /// Asks how much memory is free.
    pub free_memory: FreeMemory,
    /// What a test wants the disk to do.
    #[cfg(feature = "faults")]
    pub faults: crate::log::LogFaults,
}

impl Config {
    /// The product's own settings.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            clock: clock::of_this_machine(),
            host: None,
            keychain: Arc::new(NoKeychain),
            limits: TimeLimits::default(),
            harness: Harness::default(),
            lock_wait: LOCK_WAIT,
            free_space: Arc::new(|dir| fs4::available_space(dir)),
            free_memory: Arc::new(free_memory),
            #[cfg(feature = "faults")]
            faults: crate::log::LogFaults::default(),
        }
    }
}

/// What the engine counted since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Turns that ended without an outcome of their own: 0, or there is a bug.
    pub backstops: u64,
    /// What the log did.
    pub log: LogCounters,
    /// Attachments that exist now.
    pub attachments_now: usize,
    /// Everything that is kept of pages, windows and attachments, gone ones included, as a number of entries.
    pub remembered_now: usize,
    /// Polls parked now.
    pub parked_now: u64,
    /// Tasks that the engine owns now.
    pub tasks_now: usize,
    /// Calls of `attach` that arrived.
    pub attach_arrived: u64,
    /// Of these, answered well.
    pub attach_ok: u64,
    /// Events given to clients.
    pub events_served: u64,
}

/// An open engine. Cheap to clone; all clones are the same engine.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    attachments: Attachments,
    sessions: Mutex<HashMap<SessionId, mpsc::Sender<SessionInput>>>,
    /// Held until the log is closed.
    lock: Mutex<Option<FolderLock>>,
    attach_arrived: AtomicU64,
    attach_ok: AtomicU64,
    events_served: AtomicU64,
    parked: AtomicU64,
    #[cfg(feature = "mutants")]
    thread: tokio::sync::Mutex<()>,
}

/// What sessions and turns share with the engine.
pub(crate) struct Shared {
    pub(crate) log: EventLog,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) gateway: Gateway,
    cabinet: Cabinet,
    limits: TimeLimits,
    pub(crate) pulls: Pulls,
    pub(crate) details: Details,
    pub(crate) files: Arc<ModelFiles>,
    /// Whether this program can run models by itself.
    runs_models: bool,
    pub(crate) harness: Harness,
    pub(crate) tracker: TaskTracker,
    pub(crate) statuses: Arc<StatusBoard>,
    pub(crate) shelf: Shelf,
    pub(crate) mint: Mint,
    pub(crate) health: Arc<Health>,
    pub(crate) wakes: Wakes,
    data_dir: PathBuf,
    running: watch::Sender<HashMap<SessionId, (TurnId, Cancel)>>,
    closing: watch::Sender<Closing>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Closing {
    No,
    /// Ops are refused.
    Asked,
    /// Polls are answered: every terminal is committed.
    Ended,
}

impl Shared {
    /// Puts models of this computer into the settings.
    async fn settle(&self) -> Result<Provider, ErrorReport> {
        let provider = self.files.provider();
        let append = Append {
            stream: StreamId::Library,
            turn: None,
            body: EventBody::ProviderAdded {
                provider: provider.clone(),
            },
        };
        let commit = Commit {
            appends: vec![append],
            ..Commit::default()
        };
        let added = self.log.commit(commit, Durability::Process).await;
        added.map_err(|error| commit_report(&error))?;
        Ok(provider)
    }

    /// Takes a file that lies elsewhere off the list of models of this computer.
    pub(crate) async fn forget_file(
        &self,
        mut provider: Provider,
        path: &str,
    ) -> Result<(), ErrorReport> {
        provider.files.retain(|file| file != path);
        let append = Append {
            stream: StreamId::Library,
            turn: None,
            body: EventBody::ProviderChanged { provider },
        };
        let commit = Commit {
            appends: vec![append],
            ..Commit::default()
        };
        let changed = self.log.commit(commit, Durability::Process).await;
        changed.map(drop).map_err(|error| commit_report(&error))
    }

    /// Ready when the engine is closing. Cancel safe.
    pub(crate) async fn until_closing(&self) {
        let mut closing = self.closing.subscribe();
        // The sender lives as long as this.
        let _ = closing.wait_for(|closing| *closing != Closing::No).await;
    }

    pub(crate) fn is_closing(&self) -> bool {
        *self.closing.borrow() != Closing::No
    }

    /// How long to wait for what with a provider that does not say it itself: as the user chose, or as built in.
    pub(crate) async fn limits(&self) -> Result<TimeLimits, ReadError> {
        Ok(self.shelf.limits().await?.unwrap_or(self.limits))
    }

    /// What an op was answered that ran before, in this boot or another.
    ///
    /// # Errors
    /// `OpIdConflict` if it was another op. `StorageFailed`.
    pub(crate) async fn ran_before(
        &self,
        op_id: OpId,
        digest: OpDigest,
    ) -> Result<Option<Receipt>, ErrorReport> {
        let reads = self.log.reads();
        let ran = reads.read(move |log| log.find_op(op_id, digest)).await;
        let ran = ran.map_err(|e| read_report(&e))?.transpose();
        ran.map_err(|e| commit_report(&e))
    }

    pub(crate) fn turn_runs(&self, session: SessionId, turn: TurnId, cancel: Cancel) {
        self.running.send_modify(|running| {
            running.insert(session, (turn, cancel));
        });
    }

    pub(crate) fn turn_is_over(&self, session: SessionId) {
        self.running.send_modify(|running| {
            running.remove(&session);
        });
    }

    /// Cancels the session's running turn, or only the one named. Says whether there was one.
    pub(crate) fn cancel(&self, session: SessionId, turn: Option<TurnId>, cause: Cause) -> bool {
        let running = self.running.borrow();
        match running.get(&session) {
            Some((running, cancel)) if turn.is_none_or(|turn| turn == *running) => {
                cancel.cancel(cause);
                self.statuses.set(session, Some(*running), Phase::Stopping);
                true
            }
            Some(_) | None => false,
        }
    }
}

impl Engine {
    /// Opens the data folder: takes its lock, creates or migrates the database, and closes turns that a crash left open.
    /// Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// [`OpenError`]; nothing was altered unless it says so.
    pub async fn open(config: Config) -> Result<Self, OpenError> {
        let Config {
            data_dir,
            clock,
            host,
            keychain,
            limits,
            harness,
            lock_wait,
            free_space,
            free_memory,
            #[cfg(feature = "faults")]
            faults,
        } = config;
        announce_test_build();
        let runs_models = host.is_some();
        let files = Arc::new(ModelFiles::new(
            &data_dir,
            Arc::clone(&free_memory),
            Arc::clone(&free_space),
            harness.clone(),
        ));
        #[cfg(not(feature = "faults"))]
        let faults = crate::log::LogFaults;
        let mint = Mint::new();
        let boot = Boot::from_bits(mint.bits());
        let health = Arc::new(Health::new(clock.wall()));
        let wakes = Wakes::new(Arc::clone(&clock)).counted_by(Arc::clone(&health));
        let log_clock = Arc::clone(&clock);
        let log_dir = data_dir.clone();
        let log_harness = harness.clone();
        let opened = tokio::task::spawn_blocking(move || {
            let mut lock = FolderLock::take(&log_dir, &log_harness)?;
            let how = How {
                boot,
                now: log_clock.wall(),
                lock_wait,
                was_used: lock.was_used(),
                free_space,
            };
            let cabinet_clock = Arc::clone(&log_clock);
            let log = EventLog::open(&log_dir, log_clock, how, faults, log_harness.clone())?;
            lock.remember(log.id());
            let cabinet = Cabinet::open(&log_dir, keychain, cabinet_clock, log_harness);
            Ok::<_, OpenError>((lock, log, cabinet))
        });
        let (lock, log, cabinet) = opened
            .await
            .map_err(|e| OpenError::Thread(std::io::Error::other(e.to_string())))??;
        let tracker = TaskTracker::new();
        let gateway = Gateway::new(Arc::clone(&clock), Arc::new(cabinet.clone()))
            .map_err(|e| OpenError::Gateway(e.to_string()))?
            .hosting(host, free_memory, &tracker)
            .held_by(harness.clone())
            .woken_by(wakes.clone());
        tracing::info!(%boot, log = %log.id(), "engine open");
        let shared = Arc::new(Shared {
            shelf: Shelf::new(log.clone(), tracker.clone(), Arc::clone(&files)),
            statuses: Arc::new(StatusBoard::new(Arc::clone(&clock))),
            pulls: Pulls::new(Arc::clone(&clock)),
            details: Details::default(),
            files,
            runs_models,
            log,
            clock,
            gateway,
            cabinet,
            limits,
            harness: harness.clone(),
            tracker,
            health,
            wakes,
            data_dir,
            running: watch::channel(HashMap::new()).0,
            closing: watch::channel(Closing::No).0,
            mint,
        });
        let looking = shared.wakes.clone();
        shared
            .tracker
            .spawn(looking.keep_looking(shared.closing.subscribe()));
        if shared.cabinet.is_used() {
            shared.tracker.spawn(forget_removed(Arc::clone(&shared)));
        }
        let epoch_base = if mutated!(harness, EpochFromOne) {
            1
        } else {
            shared.mint.epoch_base()
        };
        let attachments = Attachments::new(epoch_base, harness);
        Ok(Self(Arc::new(Inner {
            shared,
            attachments,
            sessions: Mutex::new(HashMap::new()),
            lock: Mutex::new(Some(lock)),
            attach_arrived: AtomicU64::new(0),
            attach_ok: AtomicU64::new(0),
            events_served: AtomicU64::new(0),
            parked: AtomicU64::new(0),
            #[cfg(feature = "mutants")]
            thread: tokio::sync::Mutex::new(()),
        })))
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    fn now(&self) -> Duration {
        self.shared().clock.monotonic()
    }

    /// This run of the engine.
    pub fn boot(&self) -> Boot {
        self.shared().log.boot()
    }

    /// The database that is open.
    pub fn log_id(&self) -> LogId {
        self.shared().log.id()
    }

    /// A fresh op id.
    pub fn mint_op(&self) -> OpId {
        OpId::from_bits(self.shared().mint.bits())
    }

    /// A fresh session id.
    pub fn mint_session(&self) -> SessionId {
        SessionId::from_bits(self.shared().mint.bits())
    }

    /// A fresh provider id.
    pub fn mint_provider(&self) -> ProviderId {
        ProviderId::from_bits(self.shared().mint.bits())
    }

    /// A fresh page id, for a terminal that follows a stream like a page does.
    pub fn mint_page(&self) -> PageId {
        PageId::from_bits(self.shared().mint.bits())
    }

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        Counters {
            backstops: self.shared().health.of(Counted::Backstop),
            log: self.shared().log.counters(),
            attachments_now: self.0.attachments.count(self.now()),
            remembered_now: self.0.attachments.remembered(self.now()),
            parked_now: self.0.parked.load(Ordering::Relaxed),
            tasks_now: self.shared().tracker.len(),
            attach_arrived: self.0.attach_arrived.load(Ordering::Relaxed),
            attach_ok: self.0.attach_ok.load(Ordering::Relaxed),
            events_served: self.0.events_served.load(Ordering::Relaxed),
        }
    }

    /// What the log counts, it counts itself.
    fn counted(&self, what: Counted) -> u64 {
        let log = self.shared().log.counters();
        match what {
            Counted::SlowWrite => log.slow_commits,
            Counted::FailedWrite => log.failed_commits,
            Counted::FailedRead => log.failed_reads,
            Counted::LowRoom => log.low_room,
            Counted::TurnRecovered => log.recovered_turns,
            Counted::TurnEnded
            | Counted::Retry
            | Counted::Failover
            | Counted::Cancelled
            | Counted::Panicked
            | Counted::Backstop
            | Counted::ToolPanicked
            | Counted::Compaction
            | Counted::Slept
            | Counted::Gap
            | Counted::Reset
            | Counted::LostAnswer
            | Counted::OpIdConflict => self.shared().health.of(what),
        }
    }

    /// How the engine is doing.
    ///
    /// # Errors
    /// `StorageFailed`.
    pub async fn health(&self) -> Result<HealthReport, ErrorReport> {
        let shared = self.shared();
        let salvages = shared.shelf.salvages().await;
        let salvages = salvages.map_err(|e| read_report(&e))?;
        let counts = Counted::ALL.iter().map(|what| (*what, self.counted(*what)));
        Ok(HealthReport {
            boot: self.boot(),
            started_at: shared.health.started_at,
            data_dir: shared.data_dir.display().to_string(),
            database_bytes: shared.log.bytes(),
            free_bytes: shared.log.room().free_bytes(),
            running_turns: self.running_turns() as u64,
            attachments: self.0.attachments.count(self.now()) as u64,
            counts: counts.collect(),
            last_backup: shared.log.last_backup(),
            salvages,
        })
    }

    /// What was saved of a damaged database when this engine was opened, if that was so.
    pub fn salvaged(&self) -> Option<&Salvage> {
        self.shared().log.salvaged()
    }

    /// How much room the disk has.
    pub fn room(&self) -> Room {
        self.shared().log.room().now()
    }

    // Attach and poll.

    /// A page says that it is there; from now on it is the newest of its window.
    ///
    /// # Errors
    /// `ProtocolMismatch`: page and engine are of different versions. `Superseded`: a newer page of this window exists.
    pub fn hello(&self, window: &str, page: PageId, protocol: u32) -> Result<Welcome, ErrorReport> {
        if protocol != PROTOCOL && !mutated!(self.shared().harness, SkipVersion) {
            return Err(ErrorReport::new(
                ErrorCode::ProtocolMismatch,
                "This window belongs to another version of Holdfast.",
            )
            .with_remedy("close Holdfast and start it again"));
        }
        if self.shared().is_closing() {
            return Err(shutting_down());
        }
        self.0.attachments.hello(window, page, self.now())?;
        Ok(Welcome {
            boot: self.boot(),
            log: self.log_id(),
            protocol: PROTOCOL,
        })
    }

    /// Begins to follow a stream; `why` is only counted.
    ///
    /// # Errors
    /// `Superseded`, `NotFound`, `StorageFailed`, `ShuttingDown`.
    ///
    /// Cancel safe: an attachment exists only once it is answered; an unanswered one is reaped.
    #[tracing::instrument(skip_all, fields(%page, %stream), err(level = "debug"))]
    pub async fn attach(
        &self,
        page: PageId,
        stream: StreamId,
        cursor: Option<Cursor>,
        why: AttachReason,
    ) -> Result<Attached, ErrorReport> {
        self.shared().health.attached(why);
        let call = self.0.attach_arrived.fetch_add(1, Ordering::Relaxed);
        self.0.attachments.admits(page, self.now())?;
        if *self.shared().closing.borrow() == Closing::Ended {
            return Err(shutting_down());
        }
        if mutated!(self.shared().harness, PingOnOpen) {
            self.ping_all().await;
        }
        let log = &self.shared().log;
        let count = log
            .reads()
            .count(stream)
            .await
            .map_err(|e| read_report(&e))?;
        let mode = match cursor {
            None => AttachMode::Fresh,
            Some(cursor)
                if cursor.log() != log.id() && !mutated!(self.shared().harness, SkipLogId) =>
            {
                AttachMode::Reset(ResetReason::ForeignLog)
            }
            Some(cursor)
                if cursor.count() > count && !mutated!(self.shared().harness, ClampCursor) =>
            {
                AttachMode::Reset(ResetReason::AheadOfHead)
            }
            Some(_) => AttachMode::Resume,
        };
        let page_sent = match (mode, stream) {
            (AttachMode::Resume, _) => None,
            (AttachMode::Fresh | AttachMode::Reset(_), StreamId::Library) => {
                Some(Page::Library(self.library().await?))
            }
            (AttachMode::Fresh | AttachMode::Reset(_), StreamId::Session(session)) => Some(
                Page::Session(self.page(session, None, PageLimit::WINDOW).await?),
            ),
        };
        let head = match &page_sent {
            None => log.cursor(count),
            Some(Page::Library(page)) => page.as_of,
            Some(Page::Session(page)) => page.as_of,
        };
        gate!(self.shared().harness, RowsRead);
        let epoch = self.0.attachments.attach(page, stream, call, self.now())?;
        self.0.attach_ok.fetch_add(1, Ordering::Relaxed);
        let status = self.status(stream);
        Ok(Attached {
            epoch,
            stream,
            mode,
            head,
            page: page_sent,
            status,
        })
    }

    #[cfg(feature = "mutants")]
    async fn ping_all(&self) {
        for provider in self
            .library()
            .await
            .map(|page| page.providers)
            .unwrap_or_default()
        {
            drop(self.models(provider.id).await);
        }
    }

    #[cfg(not(feature = "mutants"))]
    async fn ping_all(&self) {}

    fn status(&self, stream: StreamId) -> Option<Status> {
        match stream {
            StreamId::Library => None,
            StreamId::Session(session) => {
                Some(self.shared().statuses.watch(session).borrow().clone())
            }
        }
    }

    /// Answers with the events after the request's cursor, oldest first; parks until there is one, or until the turn's
    /// status is newer than the one seen, or until the wait is over.
    ///
    /// # Errors
    /// `UnknownEpoch` after a detach, a minute without a poll, or from another boot: attach again. `Superseded` when a
    /// newer page of the window ended it. `ShuttingDown`. `StorageFailed`.
    ///
    /// Cancel safe: a dropped poll changes nothing; the next one with the same cursor finds the same events.
    pub async fn poll(&self, request: PollRequest) -> Result<Batch, ErrorReport> {
        let shared = self.shared();
        let attachment = self.0.attachments.followed(request.epoch, self.now())?;
        let stream = attachment.stream;
        // First a waiter …
        let mut changes = shared
            .log
            .watch(stream)
            .await
            .map_err(|e| read_report(&e))?;
        let mut status = match stream {
            StreamId::Library => None,
            StreamId::Session(session) => Some(shared.statuses.watch(session)),
        };
        let mut closing = shared.closing.subscribe();
        let mut ended = attachment.ended;
        let wait = Duration::from_millis(request.wait_ms.min(POLL_WAIT_MS_MAX).into());
        let mut until = shared.clock.sleep(wait);
        let max_bytes = request.max_bytes.min(BATCH_BYTES_MAX) as usize;
        let after = request.after.count();
        gate!(shared.harness, PollRegistered);
        loop {
            // … then look. What changes from here on is seen by the waiting below.
            let head = *changes.borrow_and_update();
            let news = status
                .as_mut()
                .map(|status| status.borrow_and_update().clone());
            let is_news = news
                .as_ref()
                .is_some_and(|s| s.revision > request.seen_status);
            if *closing.borrow_and_update() == Closing::Ended && head <= after {
                return Err(shutting_down());
            }
            if head > after || is_news {
                return self
                    .batch(request.epoch, stream, after, max_bytes, head, news)
                    .await;
            }
            gate!(shared.harness, PollLooked);
            if mutated!(shared.harness, CheckThenPark) {
                changes.mark_unchanged();
            }
            let held = if mutated!(shared.harness, PollHoldsRead) {
                shared.log.reads().hold()
            } else {
                None
            };
            let parked = Parked::new(&self.0.parked);
            let thread = self.one_thread().await;
            let timed_out = tokio::select! {
                biased;
                // Nothing is ever sent: it only closes, and then asking again says why.
                _ = ended.changed() => {
                    self.0.attachments.followed(request.epoch, self.now())?;
                    false
                }
                changed = changes.changed() => changed.is_err(),
                () = status_changed(status.as_mut()) => false,
                changed = closing.changed() => changed.is_err(),
                () = &mut until => true,
            };
            drop((parked, held, thread));
            if timed_out {
                let news = status.as_ref().map(|status| status.borrow().clone());
                let head = *changes.borrow();
                return self
                    .batch(request.epoch, stream, after, max_bytes, head, news)
                    .await;
            }
        }
    }

    /// What every call would need if they shared a thread.
    #[cfg(feature = "mutants")]
    async fn one_thread(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        match mutated!(self.shared().harness, PollsShareOneThread) {
            true => Some(self.0.thread.lock().await),
            false => None,
        }
    }

    #[cfg(not(feature = "mutants"))]
    async fn one_thread(&self) -> Option<()> {
        None
    }

    async fn batch(
        &self,
        epoch: Epoch,
        stream: StreamId,
        after: u64,
        max_bytes: usize,
        head: u64,
        status: Option<Status>,
    ) -> Result<Batch, ErrorReport> {
        let log = &self.shared().log;
        let events = if head > after {
            log.reads()
                .read(move |log| log.events_after(stream, after, max_bytes))
                .await
                .map_err(|e| read_report(&e))?
        } else {
            Vec::new()
        };
        gate!(self.shared().harness, RowsRead);
        let events = if mutated!(self.shared().harness, StrictMaxBytes) {
            within(events, max_bytes)
        } else {
            events
        };
        let read_to = events.last().map_or(after, |event| event.seq.get());
        self.0
            .events_served
            .fetch_add(events.len() as u64, Ordering::Relaxed);
        self.0.attachments.answered(epoch, self.now());
        Ok(Batch {
            epoch,
            events,
            head: log.cursor(head.max(read_to)),
            status,
        })
    }

    /// Ends an attachment. One that does not exist has ended already.
    pub fn detach(&self, epoch: Epoch) {
        if mutated!(self.shared().harness, CloseIsDeny) {
            self.deny_all();
        }
        self.0.attachments.detach(epoch, self.now());
    }

    #[cfg(feature = "mutants")]
    fn deny_all(&self) {
        let sessions = self.0.sessions.lock();
        let sessions = sessions.unwrap_or_else(PoisonError::into_inner);
        for (session, inbox) in sessions.iter() {
            let status = self.shared().statuses.watch(*session).borrow().clone();
            if let (Some(turn), protocol::Phase::Asking { item }) = (status.turn, status.phase) {
                let op = Op::AnswerApproval {
                    session: *session,
                    turn,
                    item,
                    answer: protocol::Answer::Deny,
                };
                let (op_id, reply) = (self.mint_op(), oneshot::channel().0);
                // A full inbox would be a fault of the test's.
                let op = Box::new(op);
                drop(inbox.try_send(SessionInput::Op { op_id, op, reply }));
            }
        }
    }

    #[cfg(not(feature = "mutants"))]
    fn deny_all(&self) {}

    /// Ends everything a closed window was attached to. Turns go on.
    pub fn window_gone(&self, window: &str) {
        self.0.attachments.window_gone(window, self.now());
    }

    /// Turns before `before`, for a transcript that has read up to `_as_of`; the page says its own position.
    ///
    /// # Errors
    /// `NotFound`, `StorageFailed`.
    pub async fn load_older(
        &self,
        session: SessionId,
        before: TurnId,
        _as_of: Cursor,
    ) -> Result<TranscriptPage, ErrorReport> {
        self.page(session, Some(before), PageLimit::WINDOW).await
    }

    /// What the log holds of a turn after `after`, to show the turn again: of a rewound turn too, and of one that runs
    /// what there is of it. Attaches nothing, asks no server, and leaves nothing behind.
    ///
    /// # Errors
    /// `NotFound`, `StorageFailed`.
    pub async fn load_events(
        &self,
        session: SessionId,
        turn: TurnId,
        after: Option<Seq>,
        max_bytes: u32,
    ) -> Result<EventPage, ErrorReport> {
        let log = &self.shared().log;
        let id = log.id();
        let max_bytes = max_bytes.min(BATCH_BYTES_MAX) as usize;
        let page = log
            .reads()
            .read(move |log| event_page(log, id, session, turn, after, max_bytes))
            .await
            .map_err(|e| read_report(&e))?;
        page.ok_or_else(|| ErrorReport::new(ErrorCode::NotFound, "There is no such turn."))
    }

    /// The requests of some time, summed up by bucket and model.
    ///
    /// # Errors
    /// `Invalid` if the bounds are none, `StorageFailed`.
    pub async fn ledger(&self, args: LedgerArgs) -> Result<Ledger, ErrorReport> {
        let LedgerArgs { bounds } = args;
        if !(2..=LedgerArgs::BUCKETS_MAX + 1).contains(&bounds.len()) || !bounds.is_sorted() {
            let words = "The times to sum up between have to ascend, and there may be 400 of them.";
            return Err(invalid("bounds", words));
        }
        let shared = self.shared();
        let prices = shared.shelf.prices().await.map_err(|e| read_report(&e))?;
        let reads = shared.log.reads();
        let ledger = reads.read(move |log| log.ledger(&bounds)).await;
        Ok(Ledger {
            prices,
            ..ledger.map_err(|e| read_report(&e))?
        })
    }

    /// The places of a conversation that have more than one version: what retries and edits took out, and what took
    /// its place.
    ///
    /// # Errors
    /// `StorageFailed`.
    pub async fn versions(&self, session: SessionId) -> Result<Vec<TurnVersions>, ErrorReport> {
        let reads = self.shared().log.reads();
        let found = reads.read(move |log| log.versions(session)).await;
        found.map_err(|e| read_report(&e))
    }

    async fn page(
        &self,
        session: SessionId,
        before: Option<TurnId>,
        limit: PageLimit,
    ) -> Result<TranscriptPage, ErrorReport> {
        let log = &self.shared().log;
        let id = log.id();
        log.reads()
            .read(move |log| transcript_page(log, id, session, before, limit))
            .await
            .map_err(|e| read_report(&e))
    }

    /// What sessions and providers exist.
    ///
    /// # Errors
    /// `StorageFailed`.
    pub async fn library(&self) -> Result<LibraryPage, ErrorReport> {
        self.shared()
            .shelf
            .page()
            .await
            .map_err(|e| read_report(&e))
    }

    // Ops.

    /// Applies an op exactly once per id, and answers after its commit.
    ///
    /// # Errors
    /// Nothing has happened; the code says what to do differently.
    ///
    /// An accepted op goes on when the caller is gone.
    #[tracing::instrument(skip_all, fields(%op_id), err(level = "debug"))]
    pub async fn submit(&self, op_id: OpId, op: Op) -> Result<Receipt, ErrorReport> {
        if mutated!(self.shared().harness, PollsShareOneThread) {
            let waiting = Parked::new(&self.0.parked);
            drop((self.one_thread().await, waiting));
        }
        let answer = self.apply(op_id, op).await;
        if let Err(ErrorReport {
            code: ErrorCode::OpIdConflict,
            ..
        }) = &answer
        {
            self.shared().health.count(Counted::OpIdConflict);
        }
        answer
    }

    async fn apply(&self, op_id: OpId, op: Op) -> Result<Receipt, ErrorReport> {
        if self.shared().is_closing() {
            return Err(shutting_down());
        }
        if let Op::CancelTurn { session, turn } = op {
            // Not an event, so nothing to commit: the fact is the turn's end. Asking twice is asking once.
            self.shared().cancel(session, Some(turn), Cause::UserStop);
            return Ok(Receipt {
                stream: StreamId::Session(session),
                seq: None,
                turn: Some(turn),
            });
        }
        let Some(session) = op.session() else {
            let engine = self.clone();
            return self
                .tracked(async move { engine.change_settings(op_id, op).await })
                .await;
        };
        if mutated!(self.shared().harness, CheckOutsideTx)
            && self.shared().running.borrow().contains_key(&session)
        {
            return Err(ErrorReport::new(ErrorCode::TurnActive, "A turn runs."));
        }
        let (reply, answer) = oneshot::channel();
        let op = Box::new(op);
        let input = SessionInput::Op { op_id, op, reply };
        self.session(session)
            .send(input)
            .await
            .map_err(|_| shutting_down())?;
        answer.await.map_err(|_| shutting_down())?
    }

    fn session(&self, id: SessionId) -> mpsc::Sender<SessionInput> {
        let mut sessions = self
            .0
            .sessions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        sessions
            .entry(id)
            .or_insert_with(|| {
                let (sender, inbox) = mpsc::channel(SESSION_QUEUE);
                let own = sender.downgrade();
                let shared = Arc::clone(self.shared());
                self.shared()
                    .tracker
                    .spawn(Session::run(shared, id, own, inbox));
                sender
            })
            .clone()
    }

    async fn tracked<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, ErrorReport>> + Send + 'static,
    ) -> Result<T, ErrorReport> {
        let task = if mutated!(self.shared().harness, BareSpawn) {
            // One that nobody waits for.
            TaskTracker::new().spawn(work)
        } else {
            self.shared().tracker.spawn(work)
        };
        task.await.map_err(|error| {
            tracing::error!(%error, "an op was lost");
            ErrorReport::new(ErrorCode::Other, "Holdfast hit a bug; nothing was changed.")
        })?
    }

    async fn change_settings(&self, op_id: OpId, op: Op) -> Result<Receipt, ErrorReport> {
        let digest = OpDigest::of(&op)?;
        let body = match self.settings_event(op).await {
            Ok(body) => body,
            Err(refusal) if mutated!(self.shared().harness, NoOpIdInSettings) => {
                return Err(refusal);
            }
            // What cannot be done may have been done, by this very op: then it is answered as it was then.
            Err(refusal) => {
                let ran = self.shared().ran_before(op_id, digest).await?;
                return ran.ok_or(refusal);
            }
        };
        let receipt = Receipt {
            stream: StreamId::Library,
            seq: None,
            turn: None,
        };
        let append = Append {
            stream: StreamId::Library,
            turn: None,
            body: body.clone(),
        };
        let commit = Commit {
            appends: vec![append],
            derived: Vec::new(),
            op: Some(OpStamp {
                op: op_id,
                digest,
                receipt,
            }),
        };
        let committed = self
            .shared()
            .log
            .commit(commit, Durability::Process)
            .await
            .map_err(|e| commit_report(&e))?;
        if committed.count(StreamId::Library).is_some() {
            // Not when the op had run before: then this was done already.
            self.act_on(body);
        }
        Ok(committed.receipt.unwrap_or(receipt))
    }

    /// What follows from an event of the settings that is in the log.
    fn act_on(&self, body: EventBody) {
        if let EventBody::ModelPullStarted { model, .. } = body {
            pulls::start(Arc::clone(self.shared()), model);
        } else if let EventBody::ModelPullEnded { model, .. } = body {
            self.shared().pulls.end(&model);
            let files = Arc::clone(&self.shared().files);
            tokio::task::spawn_blocking(move || pulls::forget(&files, &model));
        }
    }

    /// What an op on the settings does, if it can be done.
    async fn settings_event(&self, op: Op) -> Result<EventBody, ErrorReport> {
        Ok(match op {
            Op::AddProvider { provider } => {
                let provider = checked(provider, &self.shared().harness)?;
                EventBody::ProviderAdded { provider }
            }
            Op::ChangeProvider { provider } => {
                let mut provider = checked(provider, &self.shared().harness)?;
                // They are added and forgotten one by one, and a form does not know them.
                provider.files = self.configured(provider.id).await?.files;
                EventBody::ProviderChanged { provider }
            }
            Op::RemoveProvider { provider } => {
                self.configured(provider).await?;
                EventBody::ProviderRemoved { provider }
            }
            Op::ChangeTimeLimits { limits } => {
                checked_limits(&limits, &self.shared().harness)?;
                EventBody::TimeLimitsChanged { limits }
            }
            Op::ChooseFallbacks { models } => {
                for model in &models {
                    self.configured(model.provider).await?;
                }
                EventBody::FallbacksChosen { models }
            }
            Op::ChangeModelOptions { model, options } => {
                self.configured(model.provider).await?;
                let options = usable_options(options)?;
                EventBody::ModelOptionsChanged { model, options }
            }
            Op::PullModel { provider, model } => {
                let known = self.shared().shelf.provider(provider).await;
                let provider = match known.map_err(|e| read_report(&e))? {
                    None if provider == ProviderId::THIS_COMPUTER => self.shared().settle().await?,
                    Some(provider) => provider,
                    None => self.configured(provider).await?,
                };
                let shared = self.shared();
                let model = shared.pulls.admits(&provider, &shared.files, &model)?;
                let boot = self.boot();
                EventBody::ModelPullStarted { boot, model }
            }
            Op::CancelPull { provider, model } => {
                let open = self.shared().shelf.pull(provider, model).await;
                let open = open.map_err(|e| read_report(&e))?.ok_or_else(|| {
                    ErrorReport::new(ErrorCode::NotFound, "This download is over already.")
                })?;
                let outcome = PullOutcome::Cancelled;
                EventBody::ModelPullEnded {
                    model: open.model,
                    outcome,
                }
            }
            Op::AddModelFile { path } => {
                let here = self
                    .shared()
                    .shelf
                    .provider(ProviderId::THIS_COMPUTER)
                    .await;
                let here = here.map_err(|e| read_report(&e))?;
                let files = Arc::clone(&self.shared().files);
                let is_there = here.is_some();
                let provider = here.unwrap_or_else(|| files.provider());
                let added = blocking(move || files.with(provider, &path)).await??;
                if is_there {
                    EventBody::ProviderChanged { provider: added }
                } else {
                    EventBody::ProviderAdded { provider: added }
                }
            }
            Op::ChoosePrices { prices } => {
                // A server that was removed keeps its prices: what it cost, it cost.
                if prices.currency.chars().count() > Prices::CURRENCY_CHARS_MAX {
                    let words = "A currency is a sign or a few letters, such as $ or EUR.";
                    return Err(invalid("currency", words));
                }
                EventBody::PricesChosen { prices }
            }
            Op::StartSession { .. }
            | Op::SendMessage { .. }
            | Op::CancelTurn { .. }
            | Op::RetryTurn { .. }
            | Op::RestoreTurn { .. }
            | Op::EditMessage { .. }
            | Op::ContinueTurn { .. }
            | Op::AnswerApproval { .. }
            | Op::ChooseFolder { .. }
            | Op::ChooseOptions { .. }
            | Op::RenameSession { .. }
            | Op::BinSession { .. }
            | Op::UnbinSession { .. }
            | Op::NoteSeen { .. }
            | Op::ChooseModel { .. }
            | Op::AddSample { .. } => {
                return Err(ErrorReport::new(
                    ErrorCode::Other,
                    "This is asked of a session.",
                ));
            }
        })
    }

    // Drafts.

    /// What was typed in a session and not sent; `None` for the session not begun yet. Empty if nothing.
    ///
    /// # Errors
    /// `StorageFailed`.
    pub async fn draft(&self, session: Option<SessionId>) -> Result<Draft, ErrorReport> {
        let reads = self.shared().log.reads();
        reads
            .read(move |log| log.draft(session))
            .await
            .map_err(|e| read_report(&e))
    }

    /// Keeps what is typed; an empty draft removes it.
    ///
    /// # Errors
    /// `StorageFailed`.
    pub async fn save_draft(
        &self,
        session: Option<SessionId>,
        draft: Draft,
    ) -> Result<(), ErrorReport> {
        let derived = vec![Derived::Draft { session, draft }];
        let commit = Commit {
            derived,
            ..Commit::default()
        };
        let kept = self.shared().log.commit(commit, Durability::Process).await;
        kept.map(drop).map_err(|e| commit_report(&e))
    }

    // Images.

    /// Takes the bytes of a file as an image that messages may show: looked at, scaled down if it is large, and on the
    /// disk when this returns. `name` is for the reader.
    ///
    /// Cancel safe: an image is stored or not; one that nobody sends goes after a while.
    ///
    /// # Errors
    /// `Invalid` at `image` in words that begin with its name, if it cannot be taken. `StorageFailed`.
    pub async fn take_image(&self, name: &str, bytes: Vec<u8>) -> Result<Image, ErrorReport> {
        let shared = self.shared();
        if self.shared().is_closing() {
            return Err(ErrorReport::new(
                ErrorCode::ShuttingDown,
                "Holdfast is closing.",
            ));
        }
        if let Some(no_room) = shared.log.room().refusal() {
            return Err(
                ErrorReport::new(ErrorCode::StorageFailed, sentence(&no_room.to_string()))
                    .with_remedy("make room on that disk and try again"),
            );
        }
        let taken = images::taken(name.to_owned(), bytes).await;
        let taken = taken.map_err(|why| {
            let name = match name.trim() {
                "" => "The image",
                name => name,
            };
            invalid("image", &format!("{name} {why}."))
        })?;
        let image = taken.image.clone();
        let commit = Commit {
            derived: vec![Derived::Image {
                image: taken.image,
                bytes: taken.bytes,
            }],
            ..Commit::default()
        };
        let stored = shared.log.commit(commit, Durability::Disk).await;
        stored.map_err(|e| commit_report(&e))?;
        Ok(image)
    }

    /// The bytes of an image, which are a PNG or a JPEG.
    ///
    /// # Errors
    /// `NotFound` in words, if it is missing or damaged. `StorageFailed`.
    pub async fn image(&self, image: ImageId) -> Result<Arc<[u8]>, ErrorReport> {
        let reads = self.shared().log.reads();
        let found = reads.read(move |log| log.image(image)).await;
        match found.map_err(|e| read_report(&e))? {
            FoundImage::Whole(bytes) => Ok(bytes),
            FoundImage::Damaged => Err(ErrorReport::new(
                ErrorCode::NotFound,
                "This image was damaged on the disk.",
            )),
            FoundImage::Missing => Err(ErrorReport::new(
                ErrorCode::NotFound,
                "This image is not there any more.",
            )),
        }
    }

    // Providers.

    /// What a configured provider offers now.
    pub async fn models(&self, id: ProviderId) -> ProbeReport {
        let provider = match self.shared().shelf.provider(id).await {
            Ok(Some(provider)) => provider,
            // It has files before anybody settled it.
            Ok(None) if id == ProviderId::THIS_COMPUTER => self.shared().files.provider(),
            Ok(None) => {
                let failure = Failure::new(
                    FailureCode::ConnectFailed,
                    "This server is no longer in the settings.",
                );
                return ProbeReport::Fails { failure };
            }
            Err(error) => {
                let failure = Failure::new(FailureCode::Panicked, read_report(&error).message);
                return ProbeReport::Fails { failure };
            }
        };
        let listed = match provider.dialect {
            Dialect::Local => models::of_this_computer(self.shared(), &provider).await,
            Dialect::Ollama | Dialect::OpenAiChat | Dialect::Anthropic => {
                self.shared().gateway.models(&provider).await
            }
        };
        match listed {
            Ok(models) => ProbeReport::Works {
                models: models::detailed(self.shared(), &provider, models).await,
                server: provider.name,
                dialect: provider.dialect,
                base_url: provider.base_url,
            },
            Err(failure) => ProbeReport::Fails { failure },
        }
    }

    /// What is needed to begin with models of this computer; nothing where nobody can run them.
    pub fn local_models(&self) -> Option<LocalModels> {
        let files = &self.shared().files;
        self.shared().runs_models.then(|| LocalModels {
            provider: files.provider(),
            curated: model_files::curated(),
            free_memory: files.free_memory(),
        })
    }

    /// The provider of models of this computer, as it is before anybody changed it.
    pub fn this_computer(&self) -> Provider {
        self.shared().files.provider()
    }

    /// Deletes, copies or unloads a model of a server, now.
    ///
    /// # Errors
    /// Why not, in words: of this computer, or of the server.
    ///
    /// Not cancel safe: a server that was asked may do it all the same. Asking again is harmless.
    pub async fn manage_model(&self, args: ManageModelArgs) -> Result<(), ErrorReport> {
        let provider = self.configured(args.provider).await?;
        models::manage(self.shared(), &provider, args.action).await
    }

    /// The pulls there are, at once if they are others than `seen` says, else as soon as they are, or after `wait_ms`.
    ///
    /// # Errors
    /// `StorageFailed`, `ShuttingDown`.
    ///
    /// Cancel safe: it only looks.
    pub async fn pulls(
        &self,
        seen: Option<u64>,
        wait_ms: u32,
    ) -> Result<protocol::Pulls, ErrorReport> {
        let shared = self.shared();
        let wait = Duration::from_millis(wait_ms.min(POLL_WAIT_MS_MAX).into());
        let news = shared.pulls.news(seen);
        tokio::select! {
            () = news => {}
            () = shared.clock.sleep(wait) => {}
            () = shared.until_closing() => return Err(shutting_down()),
        }
        loop {
            let (revision, left) = (shared.pulls.revision(), shared.pulls.left());
            let open = shared.shelf.pulls().await.map_err(|e| read_report(&e))?;
            gate!(shared.harness, PullsRead);
            let left = if mutated!(shared.harness, PullsReadOnce) {
                shared.pulls.left()
            } else {
                left
            };
            if let Some(pulls) = shared.pulls.with(open, self.boot(), revision, left) {
                return Ok(pulls);
            }
        }
    }

    /// Finds out what answers at an address, as a person types it.
    pub async fn probe(&self, address: &str, dialect: Option<Dialect>) -> ProbeReport {
        self.shared().gateway.probe(address, dialect).await
    }

    /// The same for a server that is not reached as usual, or wants a key. The key is not kept.
    pub async fn probe_by(&self, args: &ProbeArgs) -> ProbeReport {
        let secrets = match self.secrets_for(args).await {
            Ok(secrets) => secrets,
            Err(failure) => return ProbeReport::Fails { failure },
        };
        let gateway = &self.shared().gateway;
        gateway
            .probe_by(&args.address, args.dialect, &args.connection, secrets)
            .await
    }

    /// Looks at a server from every side, and says what is wrong and what can be done. Bounded in time, and changes
    /// nothing.
    ///
    /// # Errors
    /// `NotFound`, `StorageFailed`.
    pub async fn examine(&self, args: ExamineArgs) -> Result<Examination, ErrorReport> {
        let gateway = &self.shared().gateway;
        let (provider, secrets) = match args.server {
            Examined::Known { id } => {
                let provider = self.configured(id).await?;
                let secrets = gateway.kept_for(&provider).await;
                (provider, secrets)
            }
            Examined::Draft { draft } => {
                let DraftServer { mut provider, key } = *draft;
                match gateway::base_url(&provider.base_url, provider.dialect) {
                    Ok(base_url) => provider.base_url = base_url,
                    Err(failure) => {
                        let shown = gateway::without_secret(&provider.base_url);
                        let has_secret = shown != provider.base_url;
                        // What is no address is found to be none.
                        provider.base_url = shown;
                        if has_secret {
                            let finding =
                                Finding::new(Check::Address, Verdict::Bad, &failure.message);
                            return Ok(Examination {
                                server: provider,
                                findings: vec![finding],
                            });
                        }
                    }
                }
                let key = key.filter(|key| !key.is_empty());
                let secrets = key.map_or_else(Secrets::default, |key| {
                    Secrets::of(ApiKey::new(key.expose()))
                });
                (provider, Ok(secrets))
            }
        };
        if provider.dialect == Dialect::Local {
            return Ok(self.examine_files(provider, args.model.as_deref()).await);
        }
        let contexts = self.shared().shelf.contexts_of(provider.id).await;
        let wanted = Wanted {
            model: args.model,
            contexts: contexts.map_err(|e| read_report(&e))?,
        };
        Ok(gateway.examine(&provider, secrets, wanted).await)
    }

    async fn examine_files(&self, server: Provider, wanted: Option<&str>) -> Examination {
        let listed = models::of_this_computer(self.shared(), &server).await;
        let no_engine = (!self.shared().runs_models).then(gateway::no_engine);
        let findings =
            model_files::findings(&server, listed.as_deref(), wanted, no_engine.as_ref());
        Examination { server, findings }
    }

    /// Sends a server the packet that wakes it, if that is wanted, and knocks.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` if the address of its network card is not known; `Other` if no packet can be sent.
    pub async fn wake(&self, args: WakeArgs) -> Result<WakeReport, ErrorReport> {
        let provider = self.configured(args.provider).await?;
        let gateway = &self.shared().gateway;
        if args.send {
            let card = provider
                .connection
                .wakes
                .ok_or_else(|| invalid("wakes", "The address of its network card is not known."))?;
            gateway.wake(&card).map_err(|error| {
                let words = format!("No packet could be sent to wake it: {error}.");
                ErrorReport::new(ErrorCode::Other, words)
            })?;
        }
        let answers = gateway.is_awake(&provider).await;
        Ok(WakeReport { answers })
    }

    async fn configured(&self, id: ProviderId) -> Result<Provider, ErrorReport> {
        let known = self.shared().shelf.provider(id).await;
        match known.map_err(|e| read_report(&e))? {
            Some(provider) => Ok(provider),
            // Its folder is there before anybody settled it.
            None if id == ProviderId::THIS_COMPUTER => Ok(self.this_computer()),
            None => {
                let words = "There is no such server any more.";
                Err(ErrorReport::new(ErrorCode::NotFound, words))
            }
        }
    }

    async fn secrets_for(&self, args: &ProbeArgs) -> Result<Secrets, Failure> {
        if let Some(key) = args.key.as_ref().filter(|key| !key.is_empty()) {
            return Ok(Secrets::of(ApiKey::new(key.expose())));
        }
        let Some(id) = args.server else {
            return Ok(Secrets::default());
        };
        let shelf = &self.shared().shelf;
        let known = shelf
            .provider(id)
            .await
            .map_err(|error| Failure::new(FailureCode::Panicked, read_report(&error).message))?;
        match known {
            Some(provider) => self.shared().gateway.secrets(&provider).await,
            None => Ok(Secrets::default()),
        }
    }

    /// Where keys can be kept, and which secrets a server has.
    ///
    /// # Errors
    /// `StorageFailed`; a keychain that does not answer is part of the report.
    pub async fn keys(&self, provider: ProviderId) -> Result<KeysReport, ErrorReport> {
        let shared = self.shared();
        // One that is being typed is not there, and has nothing.
        let known = shared.shelf.provider(provider).await;
        let known = known.map_err(|e| read_report(&e))?;
        Ok(shared.cabinet.report(provider, known.as_ref()).await)
    }

    /// Uses a key for a server as long as this engine lives, and keeps it nowhere.
    ///
    /// # Errors
    /// `Invalid`, if no header can hold it.
    pub fn lend_key(&self, provider: &Provider, key: &TypedKey) -> Result<(), ErrorReport> {
        self.shared().cabinet.lend(provider, key)
    }

    /// Changes the secrets of a server in the settings. Never an event: keys are in no log.
    ///
    /// # Errors
    /// `NotFound`, `Invalid`, `StorageFailed`, or what the keychain said.
    ///
    /// An accepted change goes on when the caller is gone.
    pub async fn change_key(
        &self,
        provider: ProviderId,
        change: KeyChange,
    ) -> Result<KeysReport, ErrorReport> {
        let server = self.configured(provider).await?;
        let cabinet = self.shared().cabinet.clone();
        self.tracked(async move { cabinet.change(&server, change).await })
            .await?;
        self.keys(provider).await
    }

    /// Model servers that answer on this computer's usual ports.
    pub async fn discover(&self) -> Vec<ProbeReport> {
        self.shared().gateway.discover().await
    }

    // The end.

    /// How many turns run now.
    pub fn running_turns(&self) -> usize {
        self.shared().running.borrow().len()
    }

    /// Ready when no turn runs. Cancel safe.
    pub async fn until_no_turn_runs(&self) {
        let mut running = self.shared().running.subscribe();
        // The sender lives as long as `shared`.
        let _ = running.wait_for(HashMap::is_empty).await;
    }

    /// How many pulls run or wait now.
    pub fn running_pulls(&self) -> usize {
        self.shared().pulls.running()
    }

    /// Ready when neither a turn nor a pull runs. Cancel safe.
    pub async fn until_nothing_runs(&self) {
        loop {
            self.until_no_turn_runs().await;
            self.shared().pulls.until_none_runs().await;
            if self.running_turns() == 0 {
                return;
            }
        }
    }

    /// Ends everything in order, within three seconds: ops are refused, running turns end as interrupted and say so in
    /// the log, parked polls are answered, the log is closed. Idempotent.
    #[tracing::instrument(skip_all, fields(?why))]
    pub async fn shutdown(&self, why: InterruptedWhy) {
        let shared = self.shared();
        shared
            .closing
            .send_modify(|closing| *closing = (*closing).max(Closing::Asked));
        for (_, cancel) in shared.running.borrow().values() {
            cancel.cancel(Cause::Shutdown(why));
        }
        if mutated!(shared.harness, CloseLogFirst) {
            shared.log.close(shared.clock.wall()).await;
        }
        let mut running = shared.running.subscribe();
        tokio::select! {
            // The sender lives as long as `shared`, so this ends only with no turn left.
            _ = running.wait_for(HashMap::is_empty) => {}
            () = shared.clock.sleep(SHUTDOWN_MAX) => {
                tracing::error!("a turn did not end in time; it is closed at the next start");
            }
        }
        shared
            .closing
            .send_modify(|closing| *closing = Closing::Ended);
        self.0
            .sessions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
        shared.gateway.close();
        shared.tracker.close();
        tokio::select! {
            () = shared.tracker.wait() => {}
            () = shared.clock.sleep(SHUTDOWN_MAX) => {
                tracing::error!(tasks = shared.tracker.len(), "tasks did not end in time");
            }
        }
        shared.log.close(shared.clock.wall()).await;
        self.0
            .lock
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        tracing::info!("engine closed");
    }
}

/// The part of a session's transcript before `before`, or its end.
pub(crate) fn transcript_page(
    log: &crate::log::Snapshot<'_>,
    id: LogId,
    session: SessionId,
    before: Option<TurnId>,
    limit: PageLimit,
) -> Result<TranscriptPage, ReadError> {
    let excerpt = log.excerpt(session, before, limit)?;
    Ok(TranscriptPage {
        session,
        title: excerpt.head.title,
        origin: excerpt.head.origin,
        model: excerpt.head.model,
        folder: excerpt.head.folder,
        options: excerpt.head.options,
        turns: excerpt.turns,
        more_before: excerpt.more_before,
        tip: excerpt.head.tip,
        taken_out: excerpt.head.taken_out.into(),
        as_of: Cursor::from_count(id, excerpt.head.count),
    })
}

/// A part of a turn's events; `None` if there is no such turn.
pub(crate) fn event_page(
    log: &crate::log::Snapshot<'_>,
    id: LogId,
    session: SessionId,
    turn: TurnId,
    after: Option<Seq>,
    max_bytes: usize,
) -> Result<Option<EventPage>, ReadError> {
    let count = log.count(StreamId::Session(session))?;
    if count == 0 {
        return Err(ReadError::NoSuchSession);
    }
    let read = log.turn_events_after(session, turn, after.map_or(0, Seq::get), max_bytes)?;
    Ok(read.map(|TurnEvents { events, more_after }| EventPage {
        session,
        turn,
        events,
        more_after,
        as_of: Cursor::from_count(id, count),
    }))
}

/// The key of a server that was removed stays until the next start, so that the removal can be undone.
async fn forget_removed(shared: Arc<Shared>) {
    let work = async {
        match shared.shelf.page().await {
            Ok(page) => {
                let servers = page.providers.iter().map(|provider| provider.id).collect();
                shared.cabinet.forget_all_but(&servers).await;
            }
            Err(error) => tracing::warn!(%error, "keys of removed servers stay for now"),
        }
    };
    tokio::select! {
        () = work => {}
        () = shared.until_closing() => {}
    }
}

/// Says that this is no product; the words are also what a packer looks for.
fn announce_test_build() {
    #[cfg(feature = "gates")]
    tracing::warn!("{}", crate::gate::MARKER);
    #[cfg(feature = "mutants")]
    tracing::warn!("{}", crate::mutant::MARKER);
}

/// Work that blocks, off the threads that do not.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ErrorReport> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| {
        tracing::error!(%error, "a look at a file was lost");
        ErrorReport::new(ErrorCode::Other, "Holdfast hit a bug; nothing was changed.")
    })
}

/// What the system can give without taking it from anybody.
fn free_memory() -> Option<u64> {
    let kind = sysinfo::RefreshKind::nothing()
        .with_memory(sysinfo::MemoryRefreshKind::nothing().with_ram());
    let system = sysinfo::System::new_with_specifics(kind);
    // A container may be allowed less than the machine has.
    let allowed = system.cgroup_limits().map(|limits| limits.free_memory);
    let free = Some(system.available_memory()).filter(|bytes| *bytes > 0)?;
    Some(
        allowed
            .filter(|bytes| *bytes > 0)
            .map_or(free, |allowed| allowed.min(free)),
    )
}

fn checked(mut provider: Provider, harness: &Harness) -> Result<Provider, ErrorReport> {
    provider.name = provider.name.trim().to_owned();
    provider.base_url = provider.base_url.trim().trim_end_matches('/').to_owned();
    if provider.name.is_empty() {
        let words = "A server needs a name, so that you can tell it from others.";
        return Err(invalid("name", words));
    }
    if provider.dialect == Dialect::Local {
        if !std::path::Path::new(&provider.base_url).is_absolute() {
            let words = "A folder of models is named by its whole path, from the root on.";
            return Err(invalid("base_url", words));
        }
    } else if !provider.base_url.starts_with("http://")
        && !provider.base_url.starts_with("https://")
    {
        let words = "An address begins with http:// or https://.";
        return Err(invalid("base_url", words));
    }
    if let Some(limits) = &provider.limits {
        checked_limits(limits, harness)?;
    }
    let connection = provider.connection.validate();
    connection.map_err(|wrong| invalid(wrong.field, &wrong.message))?;
    usable_options(ModelOptions::of_server(&provider))?;
    Ok(provider)
}

fn checked_limits(limits: &TimeLimits, harness: &Harness) -> Result<(), ErrorReport> {
    let together = limits.ceiling_ms == limits.first_event_ms.max(limits.gap_ms);
    if together && mutated!(harness, AcceptEqual) {
        return Ok(());
    }
    let checked = limits.validate();
    checked.map_err(|wrong| invalid(wrong.field, &wrong.message))
}

fn shutting_down() -> ErrorReport {
    ErrorReport::new(ErrorCode::ShuttingDown, "Holdfast is closing.")
}

/// The events that fit, and none that does not.
fn within(mut events: Vec<Event>, max_bytes: usize) -> Vec<Event> {
    let mut bytes = 0;
    events.retain(|event| {
        bytes += serde_json::to_string(event).map_or(0, |text| text.len());
        bytes <= max_bytes
    });
    events
}

async fn status_changed(status: Option<&mut watch::Receiver<Status>>) {
    let changed = match status {
        Some(status) => status.changed().await.is_ok(),
        None => false,
    };
    if !changed {
        std::future::pending::<()>().await;
    }
}

/// Counts a parked poll for as long as it is parked, also when the poll is dropped.
struct Parked<'a>(&'a AtomicU64);

impl<'a> Parked<'a> {
    fn new(count: &'a AtomicU64) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Parked<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The canonical form of a data folder, so that every way to name it names the same one. Creates it if needed.
///
/// # Errors
/// [`OpenError::Folder`]
pub fn canonical_data_dir(dir: &Path) -> Result<PathBuf, OpenError> {
    let words = |source| OpenError::Folder {
        path: dir.to_owned(),
        source,
    };
    std::fs::create_dir_all(dir).map_err(words)?;
    std::fs::canonicalize(dir).map_err(words)
}
