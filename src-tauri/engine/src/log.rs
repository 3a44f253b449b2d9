//! The log: every stream's events in one SQLite database, and the caches derived from them.
//!
//! Invariant: a client never receives an uncommitted event. Kept by: one writer thread appends; readers have
//! connections of their own and see committed rows only; the wake-up of waiters follows the commit.
//! Only this module and its parts know SQL.
//! Not here: what to append (sessions and turns decide that).

mod backup;
mod branches;
mod codec;
mod damage;
mod database;
pub(crate) mod faults;
mod images;
mod ledger;
mod migration;
mod reader;
mod recovery;
mod room;
mod salvage;
mod shelf;
mod soundness;
mod storage_error;
mod writer;

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use protocol::{
    Boot, Cursor, Draft, EventBody, Image, ItemId, LogId, ModelOptions, ModelRef, OpId, Origin,
    Receipt, Resolution, Salvage, Seq, SessionId, StreamId, Timestamp, TitleBy, TurnId,
};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};

use crate::{Harness, clock::Clock, mutant::mutated};

pub use backup::{BackupError, backup};
pub use database::OpenError;
pub use database::READ_LOCK_WAIT;
pub(crate) use database::{FILE_NAME, LOCK_WAIT};
#[cfg(not(feature = "faults"))]
pub(crate) use faults::LogFaults;
#[cfg(feature = "faults")]
pub use faults::{Fault, LogFaults, RefusedWrite, WriteStep};
pub(crate) use images::Found as FoundImage;
pub(crate) use reader::{PageLimit, Reads, Snapshot, TurnEvents};
pub(crate) use recovery::ends_of_open_calls;
pub(crate) use room::RoomWatch;
pub use room::{FreeSpace, Room};
pub(crate) use shelf::Shelving;
pub use storage_error::{StorageError, Trouble};

/// How many commits may wait for the writer. Full: whoever wants to commit waits, a turn stops reading its socket,
/// and the disk sets the pace, not memory.
const WRITER_QUEUE: usize = 256;

/// How strictly a commit is kept. A group takes its strictest member's class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Durability {
    /// Survives a crash of the process; a power cut may cost the last two seconds.
    Process,
    /// Synced to the disk before it is answered.
    Disk,
}

/// One event to append. Seq and time are given by the writer.
#[derive(Clone, Debug)]
pub(crate) struct Append {
    pub(crate) stream: StreamId,
    pub(crate) turn: Option<TurnId>,
    pub(crate) body: EventBody,
}

/// What one op or one turn report writes: all of it in one transaction, or nothing.
#[derive(Debug, Default)]
pub(crate) struct Commit {
    pub(crate) appends: Vec<Append>,
    /// Caches to bring up to date in the same transaction.
    pub(crate) derived: Vec<Derived>,
    /// The op this answers; makes it run once.
    pub(crate) op: Option<OpStamp>,
}

/// An op's identity and what it will be answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpStamp {
    pub(crate) op: OpId,
    pub(crate) digest: OpDigest,
    pub(crate) receipt: Receipt,
}

/// Of an op's content: the same id with another digest is a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpDigest(pub(crate) [u8; 16]);

/// A change to a cache.
#[derive(Clone, Debug)]
pub(crate) enum Derived {
    /// A session's header.
    Head { stream: StreamId, head: Box<Head> },
    /// A turn begins at this event.
    TurnBegun {
        stream: StreamId,
        turn: TurnId,
        first_seq: Seq,
    },
    /// The turns from this one on are no longer part of the conversation.
    TurnsHidden { stream: StreamId, from: TurnId },
    /// These turns are part of it again.
    TurnsShown {
        stream: StreamId,
        turns: Vec<TurnId>,
    },
    /// A finished turn, folded, as JSON.
    TurnView {
        stream: StreamId,
        turn: TurnId,
        body: String,
    },
    /// A step of the library's snapshot.
    Shelf(Shelving),
    /// What is typed and not sent; empty removes it.
    Draft {
        session: Option<SessionId>,
        draft: Draft,
    },
    /// This was sent, so if it is what stands in the draft, the draft is empty now.
    DraftSent {
        session: Option<SessionId>,
        draft: Draft,
    },
    /// An image that a message may show.
    Image { image: Image, bytes: Arc<[u8]> },
}

/// A session's header: everything its task needs to go on, without reading the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    /// Events in the stream so far.
    pub(crate) count: u64,
    pub(crate) title: String,
    pub(crate) title_by: TitleBy,
    pub(crate) origin: Origin,
    pub(crate) model: Option<ModelRef>,
    /// The last structural event.
    pub(crate) tip: Option<Seq>,
    /// The first turn that was taken out last. Required, so that a header of an earlier version is made anew.
    pub(crate) taken_out: TakenOut,
    pub(crate) next_turn: TurnId,
    pub(crate) next_item: ItemId,
    /// The turn without a terminal.
    pub(crate) open_turn: Option<TurnId>,
    /// Where tools see files.
    #[serde(default)]
    pub(crate) folder: Option<String>,
    /// How its next turns ask, as far as the session says it.
    #[serde(default)]
    pub(crate) options: ModelOptions,
    /// Changing tools that the user allowed for the session.
    #[serde(default)]
    pub(crate) allowed: Vec<String>,
    /// Questions of the open turn without an answer: their names, and the tools they are about.
    #[serde(default)]
    pub(crate) questions: Vec<(ItemId, String)>,
}

/// What an undo brings back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TakenOut {
    Nothing,
    From(TurnId),
}

impl From<TakenOut> for Option<TurnId> {
    fn from(taken_out: TakenOut) -> Self {
        match taken_out {
            TakenOut::Nothing => None,
            TakenOut::From(turn) => Some(turn),
        }
    }
}

impl Head {
    pub(crate) fn empty() -> Self {
        Self {
            count: 0,
            title: String::new(),
            title_by: TitleBy::Holdfast,
            origin: Origin::Conversation,
            model: None,
            tip: None,
            taken_out: TakenOut::Nothing,
            next_turn: TurnId::FIRST,
            next_item: ItemId::FIRST,
            open_turn: None,
            folder: None,
            options: ModelOptions::default(),
            allowed: Vec::new(),
            questions: Vec::new(),
        }
    }

    /// Moves the header over the next event of the session's stream.
    pub(crate) fn apply(&mut self, turn: Option<TurnId>, body: &EventBody) {
        self.count += 1;
        if body.is_structural() {
            self.tip = Some(Seq::new(self.count));
        }
        if let Some(item) = body.item() {
            self.next_item = self.next_item.max(item.next());
        }
        if let Some(turn) = turn {
            self.next_turn = self.next_turn.max(turn.next());
        }
        match body {
            EventBody::SessionStarted { origin, .. } => self.origin = *origin,
            EventBody::SessionRenamed { title, by } => {
                self.title.clone_from(title);
                self.title_by = *by;
            }
            EventBody::ModelChosen { model } => self.model = Some(model.clone()),
            EventBody::TurnStarted { model, .. } => {
                self.model = Some(model.clone());
                self.open_turn = turn;
            }
            EventBody::HistoryRewound { from, .. } | EventBody::HistoryRestored { from, .. } => {
                self.taken_out = TakenOut::From(*from);
            }
            EventBody::FolderChosen { folder } => {
                self.folder.clone_from(folder);
                // What was allowed, was allowed there.
                self.allowed.clear();
            }
            EventBody::OptionsChosen { options } => self.options.clone_from(options),
            EventBody::ApprovalRequested { item, tool, .. } => {
                self.questions.push((*item, tool.clone()));
            }
            EventBody::ApprovalResolved { item, resolution } => {
                let at = self.questions.iter().position(|(open, _)| open == item);
                let tool = at.map(|at| self.questions.remove(at).1);
                if let (Resolution::AllowedForSession, Some(tool)) = (resolution, tool)
                    && !self.allowed.contains(&tool)
                {
                    self.allowed.push(tool);
                }
            }
            EventBody::TurnEnded { .. } => {
                self.open_turn = None;
                self.questions.clear();
            }
            EventBody::SessionListed { .. }
            | EventBody::SessionTitled { .. }
            | EventBody::SessionTurnStarted { .. }
            | EventBody::SessionTurnEnded { .. }
            | EventBody::SessionSeen { .. }
            | EventBody::SessionAsked { .. }
            | EventBody::SessionAnswered { .. }
            | EventBody::SessionRestored { .. }
            | EventBody::SessionBinned { .. }
            | EventBody::SessionUnbinned { .. }
            | EventBody::ProviderAdded { .. }
            | EventBody::ProviderChanged { .. }
            | EventBody::ProviderRemoved { .. }
            | EventBody::TimeLimitsChanged { .. }
            | EventBody::FallbacksChosen { .. }
            | EventBody::ModelOptionsChanged { .. }
            | EventBody::ModelPullStarted { .. }
            | EventBody::ModelPullEnded { .. }
            | EventBody::PricesChosen { .. }
            | EventBody::LogSalvaged { .. }
            | EventBody::UserMessageAdded { .. }
            | EventBody::StepStarted { .. }
            | EventBody::TextAppended { .. }
            | EventBody::TextFoundReasoning { .. }
            | EventBody::ToolCallRequested { .. }
            | EventBody::ToolCallStarted { .. }
            | EventBody::ToolCallFinished { .. }
            | EventBody::StepEnded { .. }
            | EventBody::AttemptFailed { .. }
            | EventBody::HistoryCompacted { .. }
            | EventBody::ComputerSlept { .. }
            | EventBody::Unsupported { .. } => {}
        }
    }
}

/// What a commit did.
#[derive(Clone, Debug)]
pub(crate) struct Committed {
    /// The new counts of the streams it appended to.
    pub(crate) counts: Vec<(StreamId, u64)>,
    /// The receipt on record: the op's own, or, if the op had run before, the one of then.
    pub(crate) receipt: Option<Receipt>,
}

impl Committed {
    pub(crate) fn count(&self, stream: StreamId) -> Option<u64> {
        self.counts
            .iter()
            .find(|(s, _)| *s == stream)
            .map(|(_, count)| *count)
    }
}

/// A commit that did not happen: nothing of it is in the log.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The same op id came with other content.
    #[error("this op id was used before, for something else")]
    OpIdConflict,
    /// A rule of the log was about to be broken; a bug of ours, stopped by the database.
    #[error("the log refused the event: {rule}")]
    Refused {
        /// The rule, in the schema's words.
        rule: String,
    },
    /// The disk.
    #[error(transparent)]
    Storage(Arc<StorageError>),
    /// An event that has no JSON form; a bug of ours.
    #[error("could not encode an event: {0}")]
    Encode(#[source] Arc<serde_json::Error>),
    /// A bug of ours while it was written; nothing of it is in the log.
    #[error("Holdfast hit a bug while it wrote to the log")]
    Panicked,
    /// The log is closed.
    #[error("the log is closed")]
    Closed,
}

impl Clone for CommitError {
    fn clone(&self) -> Self {
        match self {
            Self::OpIdConflict => Self::OpIdConflict,
            Self::Refused { rule } => Self::Refused { rule: rule.clone() },
            Self::Storage(source) => Self::Storage(Arc::clone(source)),
            Self::Encode(source) => Self::Encode(Arc::clone(source)),
            Self::Panicked => Self::Panicked,
            Self::Closed => Self::Closed,
        }
    }
}

impl CommitError {
    /// Names the database that it was about.
    fn at(self, path: &Path) -> Self {
        match self {
            Self::Storage(error) => Self::Storage(match Arc::try_unwrap(error) {
                Ok(error) => Arc::new(error.at(path)),
                // Somebody was told already; nobody is told before the writer.
                Err(shared) => shared,
            }),
            Self::OpIdConflict
            | Self::Refused { .. }
            | Self::Encode(_)
            | Self::Panicked
            | Self::Closed => self,
        }
    }

    fn is_damage(&self) -> bool {
        match self {
            Self::Storage(error) => error.trouble() == Trouble::Damaged,
            Self::OpIdConflict
            | Self::Refused { .. }
            | Self::Encode(_)
            | Self::Panicked
            | Self::Closed => false,
        }
    }
}

/// A read that did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The disk, or a damaged database.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// There is no such session.
    #[error("there is no such session")]
    NoSuchSession,
    /// The seqs of a stream are not dense: something took an event out.
    #[error("the log of {stream} has a hole at {seq}; restore a backup, or export what is there")]
    Hole {
        /// Where.
        stream: StreamId,
        /// The first missing event.
        seq: Seq,
    },
    /// The reading thread is gone.
    #[error("the log is closed")]
    Closed,
}

impl From<rusqlite::Error> for ReadError {
    fn from(source: rusqlite::Error) -> Self {
        Self::Storage(source.into())
    }
}

/// Counts of what the log did, for tests, benchmarks and the health page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounters {
    /// Transactions.
    pub commits: u64,
    /// Of these, synced to the disk.
    pub syncs: u64,
    /// Events appended.
    pub events: u64,
    /// Bytes of their bodies.
    pub body_bytes: u64,
    /// Bytes of turn views and headers, which are written anew as they change.
    pub cache_bytes: u64,
    /// Commits that waited longer for the disk than a reader would call at once.
    pub slow_commits: u64,
    /// Commits that were answered with an error of the disk or of a rule.
    pub failed_commits: u64,
    /// Reads that the disk failed.
    pub failed_reads: u64,
    /// Events saved from a damaged database when this engine was opened.
    pub salvaged_events: u64,
    /// Copies made by this engine: before a migration, or because somebody asked.
    pub backups: u64,
    /// Turns that an earlier run left open and that were closed when this engine was opened.
    pub recovered_turns: u64,
    /// How often the disk was found to be filling up.
    pub low_room: u64,
}

/// The counters, shared by everyone who counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts(Arc<Mutex<LogCounters>>);

impl Counts {
    pub(crate) fn now(&self) -> LogCounters {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, count: impl FnOnce(&mut LogCounters)) {
        count(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// The log, open for writing. Cheap to clone.
#[derive(Clone)]
pub(crate) struct EventLog(Arc<Inner>);

struct Inner {
    id: LogId,
    boot: Boot,
    requests: mpsc::Sender<writer::Request>,
    heads: Arc<Heads>,
    reads: Reads,
    counters: Counts,
    room: RoomWatch,
    salvaged: Option<Salvage>,
    harness: Harness,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

/// How many events each stream has, and who waits for more. The writer moves it after its commits.
#[derive(Default)]
pub(crate) struct Heads(Mutex<HashMap<StreamId, watch::Sender<u64>>>);

impl Heads {
    /// A watch of the stream's count, and whether that has yet to be told. An empty stream's is told again and again;
    /// a read that failed, or was given up, leaves the next watcher with the same duty.
    fn watch(&self, stream: StreamId, harness: &Harness) -> (watch::Receiver<u64>, bool) {
        let mut heads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = !heads.contains_key(&stream);
        let sender = heads.entry(stream).or_insert_with(|| watch::channel(0).0);
        let is_untold = *sender.borrow() == 0 && !mutated!(harness, FailedCountIsZero);
        (sender.subscribe(), is_new || is_untold)
    }

    /// The count only grows, whoever says it first.
    fn moved(&self, stream: StreamId, count: u64) {
        let heads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = heads.get(&stream) {
            sender.send_if_modified(|known| std::mem::replace(known, (*known).max(count)) < count);
        }
    }
}

/// How to open a log.
pub(crate) struct How {
    /// This run.
    pub(crate) boot: Boot,
    /// The time.
    pub(crate) now: Timestamp,
    /// How long another program's lock is waited for.
    pub(crate) lock_wait: Duration,
    /// Whether this folder held a log before.
    pub(crate) was_used: bool,
    /// Asks how much room there is.
    pub(crate) free_space: FreeSpace,
}

/// A database that is ready to be written.
struct Opening {
    connection: rusqlite::Connection,
    backups: u64,
    recovered: u64,
    salvaged: Option<Salvage>,
}

/// Opens the database; a damaged one is salvaged first.
fn opened(dir: &Path, how: &How, harness: &Harness) -> Result<Opening, OpenError> {
    let path = dir.join(FILE_NAME);
    let not_salvaged = |found, source: salvage::NotSalvaged| OpenError::NotSalvaged {
        path: path.clone(),
        found,
        source: Box::new(source),
    };
    salvage::resume(dir).map_err(|e| not_salvaged("a salvage was cut off".to_owned(), e))?;
    let error = match opened_sound(dir, how, harness) {
        Ok(opening) => return Ok(opening),
        Err(error) => error,
    };
    let damage = error.damage();
    let Some(found) = damage.filter(|_| !mutated!(harness, NoSalvage)) else {
        return Err(error);
    };
    tracing::error!(%error, "the database is damaged; what can be read of it is saved");
    let salvaged =
        salvage::run(dir, found.clone(), how.now).map_err(|e| not_salvaged(found.clone(), e))?;
    tracing::warn!(?salvaged, "a new database took the damaged one's place");
    damage::forget(dir);
    match opened_sound(dir, how, harness) {
        Ok(mut opening) => {
            recovery::end_lost_turns(&mut opening.connection, how.now)?;
            Ok(Opening {
                salvaged: Some(salvaged),
                ..opening
            })
        }
        Err(again) => match again.damage() {
            Some(words) => Err(not_salvaged(found, salvage::NotSalvaged::Again(words))),
            None => Err(again),
        },
    }
}

fn opened_sound(dir: &Path, how: &How, harness: &Harness) -> Result<Opening, OpenError> {
    let path = dir.join(FILE_NAME);
    if how.was_used && path.exists() && !database::has_bytes(&path) {
        return Err(database::corrupt(&path, "it is empty, and was not before"));
    }
    let silent = salvage::silent_damage(dir).map_err(|source| OpenError::Folder {
        path: dir.to_owned(),
        source,
    })?;
    if let Some(found) = silent {
        return Err(database::corrupt(&path, &found));
    }
    let database::Opened {
        mut connection,
        backups,
    } = database::open_to_write(dir, how.now, how.lock_wait, harness)?;
    if !mutated!(harness, SkipDamageCheck) {
        soundness::check(&connection, dir)?;
    }
    database::log_id(&connection)?;
    let recovered = recovery::run(&mut connection, how.boot, how.now, harness)?;
    if let Err(error) = images::forget_unsent(&connection, how.now) {
        // They only take room; the next start tries again.
        tracing::warn!(%error, "images that were never sent could not be removed");
    }
    database::settle(&connection).map_err(|e| database::worded(&path, e))?;
    damage::forget(dir);
    Ok(Opening {
        connection,
        backups,
        recovered,
        salvaged: None,
    })
}

impl EventLog {
    /// Opens the database in `dir`: creates or migrates it, recovers turns that a crash left open, and starts the writer.
    ///
    /// Blocking; meant for a blocking thread.
    pub(crate) fn open(
        dir: &Path,
        clock: Arc<dyn Clock>,
        how: How,
        faults: LogFaults,
        harness: Harness,
    ) -> Result<Self, OpenError> {
        let boot = how.boot;
        let Opening {
            connection,
            backups,
            recovered,
            salvaged,
        } = opened(dir, &how, &harness)?;
        let id = database::log_id(&connection)?;
        let (requests, inbox) = mpsc::channel(WRITER_QUEUE);
        let heads = Arc::new(Heads::default());
        let counters = Counts::default();
        counters.add(|count| {
            count.backups = backups;
            count.recovered_turns = recovered;
            count.salvaged_events = salvaged.as_ref().map_or(0, |salvaged| salvaged.events);
        });
        let reads = Reads::new(dir, counters.clone(), faults.clone());
        let room = RoomWatch::new(
            dir,
            Arc::clone(&how.free_space),
            Arc::clone(&clock),
            counters.clone(),
        );
        let own_harness = harness.clone();
        let writer = writer::Writer::new(writer::Tools {
            connection,
            dir: dir.to_owned(),
            clock,
            heads: Arc::clone(&heads),
            counters: counters.clone(),
            room: room.clone(),
            faults,
            harness,
        });
        let thread = std::thread::Builder::new()
            .name("log-writer".into())
            .spawn(move || writer.run(inbox))
            .map_err(OpenError::Thread)?;
        Ok(Self(Arc::new(Inner {
            id,
            boot,
            requests,
            heads,
            reads,
            counters,
            room,
            salvaged,
            harness: own_harness,
            thread: Mutex::new(Some(thread)),
        })))
    }

    /// What was saved of a damaged database when this log was opened, if that was so.
    pub(crate) fn salvaged(&self) -> Option<&Salvage> {
        self.0.salvaged.as_ref()
    }

    pub(crate) fn id(&self) -> LogId {
        self.0.id
    }

    pub(crate) fn boot(&self) -> Boot {
        self.0.boot
    }

    pub(crate) fn counters(&self) -> LogCounters {
        self.0.counters.now()
    }

    /// Size of the database and its write-ahead log.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.reads.bytes()
    }

    /// The newest copy in the folder of backups, by name.
    pub(crate) fn last_backup(&self) -> Option<String> {
        self.0.reads.last_backup()
    }

    /// How much room the disk has.
    pub(crate) fn room(&self) -> &RoomWatch {
        &self.0.room
    }

    /// The readers' side.
    pub(crate) fn reads(&self) -> &Reads {
        &self.0.reads
    }

    /// Appends all of `commit`, or nothing.
    ///
    /// Not cancel safe: a dropped call may still commit. Whoever must know awaits it.
    pub(crate) async fn commit(
        &self,
        commit: Commit,
        durability: Durability,
    ) -> Result<Committed, CommitError> {
        let (reply, answer) = oneshot::channel();
        let request = writer::Request::Commit {
            commit,
            durability,
            reply,
        };
        self.0
            .requests
            .send(request)
            .await
            .map_err(|_| CommitError::Closed)?;
        answer.await.map_err(|_| CommitError::Closed)?
    }

    /// A watch of the stream's count of events. Register first, then look: a commit in between is not missed.
    pub(crate) async fn watch(&self, stream: StreamId) -> Result<watch::Receiver<u64>, ReadError> {
        let (receiver, is_untold) = self.0.heads.watch(stream, &self.0.harness);
        if is_untold {
            // Counted after the watch exists, so that no commit falls between the two.
            let count = self.0.reads.count(stream).await?;
            self.0.heads.moved(stream, count);
        }
        Ok(receiver)
    }

    /// A cursor after the first `count` events.
    pub(crate) fn cursor(&self, count: u64) -> Cursor {
        Cursor::from_count(self.0.id, count)
    }

    /// Notes the clean exit and ends the writer, after everything sent before. Idempotent.
    pub(crate) async fn close(&self, at: Timestamp) {
        let (reply, done) = oneshot::channel();
        let request = writer::Request::Close {
            boot: self.0.boot,
            at,
            reply,
        };
        if self.0.requests.send(request).await.is_ok() {
            // An error means that the writer ended before: closed is closed.
            let _ = done.await;
        }
        let thread = self
            .0
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the writer thread panicked");
        }
    }
}
