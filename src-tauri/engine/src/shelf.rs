//! The library, folded: which sessions and providers exist, as the engine itself needs to know it.
//!
//! A cache: brought up to date from the log whenever it is asked, so nothing has to tell it of changes.

use protocol::{
    LibraryPage, ModelRef, Provider, ProviderId, Salvage, SessionId, SessionSummary, StreamId,
    TimeLimits,
};
use tokio::sync::Mutex;
use transcript::{Follow, Library};

use crate::log::{EventLog, ReadError};

/// Events read in one go while catching up.
const CATCH_UP_BYTES: usize = 4 * 1024 * 1024;

pub(crate) struct Shelf {
    log: EventLog,
    library: Mutex<Library>,
}

impl Shelf {
    pub(crate) fn new(log: EventLog) -> Self {
        let library = Mutex::new(Library::empty(log.id()));
        Self { log, library }
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
        self.with(|library| library.providers().iter().find(|p| p.id == id).cloned())
            .await
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
                .filter(|other| other.provider != model.provider || other.model != model.model);
            others
                .filter_map(|other| {
                    let mut providers = library.providers().iter();
                    let provider = providers.find(|p| p.id == other.provider)?;
                    Some((provider.clone(), other.clone()))
                })
                .collect()
        })
        .await
    }

    /// What was saved of damaged logs, oldest first.
    pub(crate) async fn salvages(&self) -> Result<Vec<Salvage>, ReadError> {
        self.with(|library| library.salvages().to_vec()).await
    }

    async fn with<T>(&self, look: impl FnOnce(&Library) -> T) -> Result<T, ReadError> {
        let mut library = self.library.lock().await;
        loop {
            let after = library.cursor().count();
            let events = self
                .log
                .reads()
                .read(move |log| log.events_after(StreamId::Library, after, CATCH_UP_BYTES))
                .await?;
            if events.is_empty() {
                return Ok(look(&library));
            }
            let mut changes = Vec::new();
            for event in &events {
                library.apply(event, &mut changes);
            }
        }
    }
}
