//! The door between the pages and the engine: opening, open, refused, or closed; a page is always told which.
//!
//! Invariant: every command gets an answer, also when there is no engine; a page never waits for one that will not come.
//! Kept by: one state with one owner, and `engine()`, which waits while the door opens and at no other time.
//! Not here: the commands themselves (`commands`), and when the process leaves (`windows`).

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use engine::{Engine, OpenError};
use protocol::{ErrorCode, ErrorReport, InterruptedWhy, ModelRef};
use tauri::async_runtime;
use tokio::sync::watch;

use crate::{arguments::Wish, choice, headless, second_start};

/// An ordered shutdown takes less (the engine's own limit is 3 s); after this the process leaves all the same, and the
/// next start finds what was running and says so.
const SHUTDOWN_MAX: Duration = Duration::from_secs(4);

/// Two starts in one moment are told apart within this; an `ask` that has the lock answers none of them.
const HAND_OVER_PAUSES_MS: [u64; 5] = [0, 50, 150, 300, 500];

/// The engine, as the pages may find it.
#[derive(Clone)]
enum State {
    /// Being opened; a command waits.
    Opening,
    /// At work.
    Open(Engine),
    /// Could not be opened, for this reason. A page that says hello again knocks again.
    Refused(ErrorReport),
    /// The process is leaving.
    Closed,
}

/// See the module.
pub(crate) struct Door {
    data_dir: PathBuf,
    state: watch::Sender<State>,
    preferred: Mutex<Option<ModelRef>>,
    /// A model's file to begin with, if nothing was ever chosen.
    first_model: Option<PathBuf>,
    arrivals: Arrivals,
}

/// Called when another start of Holdfast hands its wish over.
type Arrivals = Box<dyn Fn() + Send + Sync>;

/// How opening went, for whoever started it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opened {
    /// The engine is at work.
    Here,
    /// Another window has this data folder, and was brought to the front.
    HandedOver,
    /// Not; the page says why.
    Refused,
}

impl Door {
    /// A door to the engine of `data_dir`, not opened yet. `arrivals` brings the window to the front.
    pub(crate) fn new(
        data_dir: PathBuf,
        first_model: Option<PathBuf>,
        arrivals: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        Self {
            data_dir,
            first_model,
            state: watch::Sender::new(State::Opening),
            preferred: Mutex::new(None),
            arrivals: Box::new(arrivals),
        }
    }

    /// Where everything is kept.
    pub(crate) fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// What a new session begins with, if a command line said so.
    pub(crate) fn preferred(&self) -> Option<ModelRef> {
        self.preferred
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Opens the engine; then listens for other starts and grants what the command line wished.
    pub(crate) async fn open(self: &Arc<Self>, wish: &Wish) -> Opened {
        let error = match Engine::open(headless::config(self.data_dir.clone())).await {
            Ok(engine) => {
                self.opened(engine, wish.clone());
                return Opened::Here;
            }
            Err(error) => error,
        };
        if matches!(error, OpenError::InUse { .. }) && self.hand_over(wish).await {
            return Opened::HandedOver;
        }
        tracing::error!(%error, "the engine could not be opened");
        self.become_unless_closed(State::Refused(refusal(&error)));
        Opened::Refused
    }

    /// Tries again if the last try was refused. For a page that says hello: what was in the way may be gone.
    pub(crate) async fn knock(self: &Arc<Self>) {
        let knocks = self.state.send_if_modified(|state| {
            let refused = matches!(state, State::Refused(_));
            if refused {
                *state = State::Opening;
            }
            refused
        });
        if knocks {
            self.open(&Wish::default()).await;
        }
    }

    /// The engine, as soon as it is there.
    ///
    /// # Errors
    /// Why there is none: it was refused, or the process is leaving.
    ///
    /// Cancel safe: it only looks.
    pub(crate) async fn engine(&self) -> Result<Engine, ErrorReport> {
        let mut state = self.state.subscribe();
        let known = state
            .wait_for(|state| !matches!(state, State::Opening))
            .await;
        match known.as_deref() {
            Ok(State::Open(engine)) => Ok(engine.clone()),
            Ok(State::Refused(report)) => Err(report.clone()),
            // The sender lives in the door, so it is never gone; and `wait_for` has ruled opening out.
            Ok(State::Closed | State::Opening) | Err(_) => Err(ErrorReport::new(
                ErrorCode::ShuttingDown,
                "Holdfast is closing",
            )),
        }
    }

    /// The engine whenever there is one, also after a refusal; nothing once the process is leaving. Cancel safe.
    pub(crate) async fn until_open(&self) -> Option<Engine> {
        let mut state = self.state.subscribe();
        let settled = state
            .wait_for(|state| matches!(state, State::Open(_) | State::Closed))
            .await;
        match settled.as_deref() {
            Ok(State::Open(engine)) => Some(engine.clone()),
            Ok(State::Closed | State::Opening | State::Refused(_)) | Err(_) => None,
        }
    }

    /// How many turns and downloads run.
    pub(crate) fn at_work(&self) -> usize {
        match &*self.state.borrow() {
            State::Open(engine) => engine.running_turns() + engine.running_pulls(),
            State::Opening | State::Refused(_) | State::Closed => 0,
        }
    }

    /// Ready when neither a turn nor a download runs, or there is no engine.
    pub(crate) async fn until_nothing_runs(&self) {
        let engine = match &*self.state.borrow() {
            State::Open(engine) => Some(engine.clone()),
            State::Opening | State::Refused(_) | State::Closed => None,
        };
        if let Some(engine) = engine {
            engine.until_nothing_runs().await;
        }
    }

    /// A window is gone; its pages are.
    pub(crate) fn window_gone(&self, label: &str) {
        if let State::Open(engine) = &*self.state.borrow() {
            engine.window_gone(label);
        }
    }

    /// Ends what runs in order, within [`SHUTDOWN_MAX`]. Commands are answered `ShuttingDown` from now on.
    pub(crate) async fn close(&self, why: InterruptedWhy) {
        match self.state.send_replace(State::Closed) {
            State::Open(engine) => {
                let shutdown = engine.shutdown(why);
                if tokio::time::timeout(SHUTDOWN_MAX, shutdown).await.is_err() {
                    tracing::error!(
                        "the engine did not shut down in time; the next start recovers"
                    );
                }
            }
            State::Opening | State::Refused(_) | State::Closed => {}
        }
    }

    /// Whoever has the lock may be a window that has not begun to listen, so there are a few tries.
    async fn hand_over(&self, wish: &Wish) -> bool {
        for pause in HAND_OVER_PAUSES_MS {
            tokio::time::sleep(Duration::from_millis(pause)).await;
            let (data_dir, wish) = (self.data_dir.clone(), wish.clone());
            let tried =
                async_runtime::spawn_blocking(move || second_start::handed_over(&data_dir, &wish));
            // A try that panicked was noted, and handed nothing over.
            if tried.await.unwrap_or(false) {
                return true;
            }
        }
        false
    }

    fn opened(self: &Arc<Self>, engine: Engine, wish: Wish) {
        let door = Arc::clone(self);
        // Before the state says so: a start that finds the lock taken is to find this one listening.
        let listening = second_start::listen(&self.data_dir, move |wish| {
            (door.arrivals)();
            async_runtime::spawn(Arc::clone(&door).grant(wish));
        });
        if let Err(error) = listening {
            tracing::warn!(%error, "other starts of Holdfast cannot hand over to this one");
        }
        self.become_unless_closed(State::Open(engine));
        async_runtime::spawn(Arc::clone(self).grant(wish));
    }

    /// Does what a command line wished: the server is configured, and new sessions begin with the model.
    async fn grant(self: Arc<Self>, wish: Wish) {
        let is_silent = wish == Wish::default();
        if is_silent && self.first_model.is_none() {
            return;
        }
        let Ok(engine) = self.engine().await else {
            return; // The page says why there is none.
        };
        if is_silent {
            if let Some(file) = &self.first_model {
                let first = choice::first(&engine, file).await;
                self.prefer(first);
            }
            return;
        }
        match choice::choose(&engine, &wish, None, None).await {
            Ok(model) => self.prefer(Some(model)),
            Err(_) => {
                tracing::warn!("no model was chosen for the command line");
                // A server that does not run yet is configured all the same: the page shows what is wrong with it.
                if let Some(provider) = &wish.provider
                    && let Err(error) = choice::ensured(&engine, provider).await
                {
                    tracing::warn!(code = ?error.code, "nor was its server added");
                }
            }
        }
    }

    fn prefer(&self, model: Option<ModelRef>) {
        *self
            .preferred
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = model;
    }

    fn become_unless_closed(&self, next: State) {
        self.state.send_if_modified(|state| match state {
            State::Closed => false,
            State::Opening | State::Open(_) | State::Refused(_) => {
                *state = next;
                true
            }
        });
    }
}

/// What a page shows when there is no engine. The error's own words say what to do.
fn refusal(error: &OpenError) -> ErrorReport {
    ErrorReport::new(ErrorCode::Other, engine::sentence(&error.to_string()))
}
