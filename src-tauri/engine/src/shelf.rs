//! The library, folded: which sessions and providers exist, as the engine itself needs to know it.
//!
//! A cache: brought up to date from the log whenever it is asked, so nothing has to tell it of changes. It begins with
//! the snapshot that an earlier run kept, so that a start does not grow with what has ever been written.

use std::{
    collections::BTreeSet,
    sync::{Arc, Weak},
};

use protocol::{
    LibraryPage, ModelOptions, ModelRef, OpenPull, Prices, Provider, ProviderId, Salvage,
    SessionId, SessionSummary, StreamId, TimeLimits,
};
use tokio::sync::Mutex;
use tokio_util::task::TaskTracker;
use transcript::{Follow, Library, LibraryChange};

use crate::{
    log::{Commit, CommitError, Derived, Durability, EventLog, ReadError, Shelving},
    model_files::ModelFiles,
};

/// Events read in one go while catching up.
const CATCH_UP_BYTES: usize = 4 * 1024 * 1024;

/// How many events a snapshot may be behind: read and folded within a few milliseconds.
const KEEP_EVERY: u64 = 256;

/// Sessions written in one commit: bounds how long the writer is kept from what a reader waits for.
const KEPT_AT_ONCE: usize = 1_000;

pub(crate) struct Shelf {
    log: EventLog,
    known: Arc<Mutex<Known>>,
    tracker: TaskTracker,
    files: Arc<ModelFiles>,
}

struct Known {
    library: Library,
    snapshot: Snapshot,
    /// Sessions that changed since the snapshot was written.
    changed: BTreeSet<SessionId>,
}

/// What the database holds of the library besides its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Snapshot {
    /// Nobody has looked yet.
    Unread,
    /// Nothing that holds.
    None,
    /// One as of this many events.
    Kept(u64),
    /// None that holds: one that was to be as of this many events could not be written.
    Failed(u64),
    /// One is being written.
    Writing,
}

impl Shelf {
    pub(crate) fn new(log: EventLog, tracker: TaskTracker, files: Arc<ModelFiles>) -> Self {
        let known = Known {
            library: Library::empty(log.id()),
            snapshot: Snapshot::Unread,
            changed: BTreeSet::new(),
        };
        Self {
            log,
            known: Arc::new(Mutex::new(known)),
            tracker,
            files,
        }
    }

    /// All of it, up to date.
    pub(crate) async fn page(&self) -> Result<LibraryPage, ReadError> {
        self.with(Library::to_page).await
    }

    pub(crate) async fn session(
        &self,
        session: SessionId,
    ) -> Result<Option<SessionSummary>, ReadError> {
        self.with(|library| library.session(session).cloned()).await
    }

    pub(crate) async fn provider(&self, id: ProviderId) -> Result<Option<Provider>, ReadError> {
        let found = self.with(|library| library.providers().iter().find(|p| p.id == id).cloned());
        Ok(found.await?.map(|provider| self.files.here(provider)))
    }

    pub(crate) async fn limits(&self) -> Result<Option<TimeLimits>, ReadError> {
        self.with(Library::limits).await
    }

    /// The models asked, in this order, when `model` fails before it said anything, with their servers: those in the
    /// settings whose server still exists.
    pub(crate) async fn fallbacks_of(
        &self,
        model: &ModelRef,
    ) -> Result<Vec<(Provider, ModelRef)>, ReadError> {
        self.with(|library| {
            let others = library
                .fallbacks()
                .iter()
                .filter(|other| !other.is_same(model));
            others
                .filter_map(|other| {
                    let mut providers = library.providers().iter();
                    let provider = providers.find(|p| p.id == other.provider)?;
                    Some((self.files.here(provider.clone()), other.clone()))
                })
                .collect()
        })
        .await
    }

    /// How this model is asked, as far as somebody chose.
    pub(crate) async fn options_of(&self, model: &ModelRef) -> Result<ModelOptions, ReadError> {
        self.with(|library| library.options_of(model).cloned().unwrap_or_default())
            .await
    }

    /// Models of a server with a context length of their own, in tokens.
    pub(crate) async fn contexts_of(
        &self,
        provider: ProviderId,
    ) -> Result<Vec<(String, u32)>, ReadError> {
        self.with(|library| {
            let own = library.model_options().iter();
            let own = own.filter(|own| own.model.provider == provider);
            own.filter_map(|own| Some((own.model.model.clone(), own.options.num_ctx?)))
                .collect()
        })
        .await
    }

    /// Pulls that were begun and not completed, oldest first.
    pub(crate) async fn pulls(&self) -> Result<Vec<OpenPull>, ReadError> {
        self.with(|library| library.pulls().to_vec()).await
    }

    /// One of them.
    pub(crate) async fn pull(
        &self,
        provider: ProviderId,
        model: String,
    ) -> Result<Option<OpenPull>, ReadError> {
        let pulls = self.pulls().await?;
        let mut pulls = pulls.into_iter();
        Ok(pulls.find(|pull| pull.model.is_pull_of(provider, &model)))
    }

    /// What models cost, where the user said so.
    pub(crate) async fn prices(&self) -> Result<Option<Prices>, ReadError> {
        self.with(|library| library.prices().cloned()).await
    }

    /// What was saved of damaged logs, oldest first.
    pub(crate) async fn salvages(&self) -> Result<Vec<Salvage>, ReadError> {
        self.with(|library| library.salvages().to_vec()).await
    }

    async fn with<T>(&self, look: impl FnOnce(&Library) -> T) -> Result<T, ReadError> {
        let mut known = self.known.lock().await;
        if known.snapshot == Snapshot::Unread {
            let id = self.log.id();
            let kept = self.log.reads().read(move |log| log.shelf(id)).await?;
            known.snapshot = match kept {
                Some(page) => {
                    let count = page.as_of.count();
                    known.library = Library::from(page);
                    Snapshot::Kept(count)
                }
                None => Snapshot::None,
            };
        }
        loop {
            let after = known.library.cursor().count();
            let events = self
                .log
                .reads()
                .read(move |log| log.events_after(StreamId::Library, after, CATCH_UP_BYTES))
                .await?;
            if events.is_empty() {
                break;
            }
            let mut changes = Vec::new();
            for event in &events {
                known.library.apply(event, &mut changes);
            }
            known.changed.extend(changes.iter().filter_map(session_of));
        }
        self.keep(&mut known);
        Ok(look(&known.library))
    }

    /// Has a snapshot written if the last one is far behind.
    fn keep(&self, known: &mut Known) {
        let count = known.library.cursor().count();
        let (since, anew) = match known.snapshot {
            Snapshot::Kept(kept) => (kept, false),
            Snapshot::None => (0, true),
            Snapshot::Failed(tried) => (tried, true),
            Snapshot::Unread | Snapshot::Writing => return,
        };
        if count.saturating_sub(since) < KEEP_EVERY {
            return;
        }
        let mut page = known.library.to_page();
        let mut sessions = std::mem::take(&mut page.sessions);
        let all = sessions.len() as u64;
        let mut steps = vec![Shelving::Begin];
        if anew {
            steps.push(Shelving::Clear);
        } else {
            sessions.retain(|summary| known.changed.contains(&summary.session));
        }
        steps.extend(sessions.into_iter().map(Shelving::Session));
        steps.push(Shelving::Done {
            sessions: all,
            page: Box::new(page),
        });
        known.snapshot = Snapshot::Writing;
        known.changed.clear();
        // Weak: an engine that is gone needs no snapshot.
        let (log, held) = (self.log.clone(), Arc::downgrade(&self.known));
        self.tracker.spawn(async move {
            let written = write(&log, steps).await;
            let snapshot = match written {
                Ok(()) => Snapshot::Kept(count),
                Err(error) => {
                    // The events say the same; the next one begins from nothing, when there is more to keep.
                    tracing::warn!(%error, "no snapshot of the library was kept");
                    Snapshot::Failed(count)
                }
            };
            note(&held, snapshot).await;
        });
    }
}

async fn note(held: &Weak<Mutex<Known>>, snapshot: Snapshot) {
    if let Some(known) = held.upgrade() {
        known.lock().await.snapshot = snapshot;
    }
}

async fn write(log: &EventLog, steps: Vec<Shelving>) -> Result<(), CommitError> {
    let mut steps = steps.into_iter().map(Derived::Shelf).peekable();
    while steps.peek().is_some() {
        let commit = Commit {
            derived: steps.by_ref().take(KEPT_AT_ONCE).collect(),
            ..Commit::default()
        };
        log.commit(commit, Durability::Process).await?;
    }
    Ok(())
}

const fn session_of(change: &LibraryChange) -> Option<SessionId> {
    match change {
        LibraryChange::Sessions(session) => Some(*session),
        LibraryChange::Providers | LibraryChange::LastModel | LibraryChange::Settings => None,
    }
}
