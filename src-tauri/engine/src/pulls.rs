//! Pulls: models that servers download because somebody asked for it.
//!
//! Invariant: a pull belongs to nobody's window. That it was begun and how it ended is in the log; how far it is, is
//! here and nowhere else, and is bounded. An answer about it is derived from both, so it may be lost, repeated or late.
//! Kept by: one task per pull, which writes the end; a pull of another boot without an end was interrupted.
//! Not here: what a server says of a pull (`gateway::pull`).

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use protocol::{
    Boot, Dialect, ErrorReport, EventBody, FailureCode, ModelRef, OpenPull, Provider, PullOutcome,
    PullProgress, PullState, PullView, StreamId, Timestamp, canonical_model_name, model_name,
};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    engine::Shared,
    gateway::Limits,
    log::{Append, Commit, Durability},
    refusal::{invalid, read_report},
};

/// Pulls that run at the same time: a server's line is shared by all of them, and so is its disk.
const AT_ONCE: usize = 2;

/// Pulls that run or wait. Full: another one is refused, in words.
const LIVE_MAX: usize = 32;

/// How long one that was completed is told of, and how many of them.
const TOLD_FOR_MS: i64 = 10 * 60 * 1_000;
const TOLD_MAX: usize = 8;

/// How often an end that could not be written is tried again.
const RETRY_SAVE: Duration = Duration::from_secs(5);

/// Every pull of this boot.
pub(crate) struct Pulls {
    clock: Arc<dyn Clock>,
    board: Mutex<Board>,
    /// The revision, and how many run or wait.
    news: watch::Sender<(u64, usize)>,
    slots: Arc<Semaphore>,
}

#[derive(Default)]
struct Board {
    next: u64,
    live: Vec<Live>,
    /// Completed ones, oldest first.
    told: Vec<PullView>,
}

/// One that runs or waits.
struct Live {
    number: u64,
    model: ModelRef,
    started_at: Timestamp,
    state: PullState,
    stop: CancellationToken,
}

impl Pulls {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            board: Mutex::default(),
            news: watch::channel((1, 0)).0,
            slots: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// The model to pull, if that can be.
    pub(crate) fn admits(&self, provider: &Provider, typed: &str) -> Result<ModelRef, ErrorReport> {
        let model = model_name(typed).map_err(|words| invalid("model", words))?;
        match provider.dialect {
            Dialect::Ollama => {}
            Dialect::OpenAiChat | Dialect::Anthropic => {
                let words = format!(
                    "{} is not an Ollama; its models are put there by other means.",
                    provider.name
                );
                return Err(invalid("provider", &words));
            }
        }
        let model = ModelRef {
            provider: provider.id,
            provider_name: provider.name.clone(),
            model,
        };
        let board = self.board();
        if board.live.iter().any(|live| is_same(&live.model, &model)) {
            let words = format!("{} is being downloaded already.", model.model);
            return Err(invalid("model", &words));
        }
        if board.live.len() >= LIVE_MAX {
            return Err(invalid(
                "model",
                "There are 32 downloads already; wait until one of them has ended.",
            ));
        }
        Ok(model)
    }

    /// The user wants no more of it, and the log says so.
    pub(crate) fn end(&self, model: &ModelRef) {
        self.change(|board| {
            board.live.retain(|live| {
                let ends = is_same(&live.model, model);
                if ends {
                    live.stop.cancel();
                }
                !ends
            });
        });
    }

    /// How many run or wait.
    pub(crate) fn running(&self) -> usize {
        self.news.borrow().1
    }

    /// Ready when none runs or waits. Cancel safe.
    pub(crate) async fn until_none_runs(&self) {
        let mut news = self.news.subscribe();
        // The sender lives as long as this.
        let _ = news.wait_for(|(_, running)| *running == 0).await;
    }

    /// Ready when the revision is another than the one seen. Cancel safe.
    pub(crate) async fn news(&self, seen: Option<u64>) {
        let mut news = self.news.subscribe();
        let _ = news
            .wait_for(|(revision, _)| seen.is_none_or(|seen| seen != *revision))
            .await;
    }

    /// The revision now. To be read before what the log says: an answer may be newer than its revision, and then the
    /// next one comes at once; an older one would be waited on for ever.
    pub(crate) fn revision(&self) -> u64 {
        self.news.borrow().0
    }

    /// Every pull there is: those that live here, and those that the log knows.
    pub(crate) fn with(&self, open: Vec<OpenPull>, boot: Boot, revision: u64) -> protocol::Pulls {
        let now = self.clock.wall().millis();
        let board = self.board();
        let is_live = |model: &ModelRef| board.live.iter().any(|live| is_same(&live.model, model));
        // One of this boot that has not failed is just beginning or ending.
        let stopped = open
            .into_iter()
            .filter(|pull| !is_live(&pull.model) && (pull.failure.is_some() || pull.boot != boot));
        let mut pulls: Vec<PullView> = stopped
            .map(|pull| PullView {
                model: pull.model,
                started_at: pull.started_at,
                state: match pull.failure {
                    Some(failure) => PullState::Failed { failure },
                    None => PullState::Interrupted,
                },
            })
            .collect();
        pulls.extend(board.live.iter().map(|live| PullView {
            model: live.model.clone(),
            started_at: live.started_at,
            state: live.state.clone(),
        }));
        let recent = board.told.iter().filter(|view| match view.state {
            PullState::Completed { at } => now.saturating_sub(at.millis()) < TOLD_FOR_MS,
            PullState::Waiting
            | PullState::Running { .. }
            | PullState::Interrupted
            | PullState::Failed { .. } => false,
        });
        pulls.extend(recent.cloned());
        pulls.sort_by_key(|view| view.started_at);
        protocol::Pulls { revision, pulls }
    }

    /// A place on the board; nothing if the model has one.
    fn enter(&self, model: &ModelRef) -> Option<(u64, CancellationToken)> {
        let started_at = self.clock.wall();
        self.change(|board| {
            if board.live.iter().any(|live| is_same(&live.model, model)) {
                return None;
            }
            board.next += 1;
            let (number, stop) = (board.next, CancellationToken::new());
            board.told.retain(|view| !is_same(&view.model, model));
            board.live.push(Live {
                number,
                model: model.clone(),
                started_at,
                state: PullState::Waiting,
                stop: stop.clone(),
            });
            Some((number, stop))
        })
    }

    fn set(&self, number: u64, state: PullState) {
        self.change(|board| {
            if let Some(live) = board.live.iter_mut().find(|live| live.number == number) {
                live.state = state;
            }
        });
    }

    /// Tells how far it is; when that last changed is our own clock's word.
    fn tell(&self, number: u64, mut progress: PullProgress) {
        let now = self.clock.wall();
        self.change(|board| {
            let mut live = board.live.iter_mut();
            let Some(live) = live.find(|live| live.number == number) else {
                return;
            };
            if let PullState::Running { progress: before } = &live.state {
                progress.changed_at = before.changed_at;
                if *before != progress {
                    progress.changed_at = Some(now);
                }
            } else {
                progress.changed_at = Some(now);
            }
            live.state = PullState::Running { progress };
        });
    }

    /// Its end is in the log.
    fn leave(&self, number: u64, outcome: &PullOutcome) {
        let at = self.clock.wall();
        self.change(|board| {
            let found = board.live.iter().position(|live| live.number == number);
            let Some(live) = found.map(|found| board.live.remove(found)) else {
                return;
            };
            match outcome {
                PullOutcome::Completed => {
                    board.told.push(PullView {
                        model: live.model,
                        started_at: live.started_at,
                        state: PullState::Completed { at },
                    });
                    if board.told.len() > TOLD_MAX {
                        board.told.remove(0);
                    }
                }
                // The log says the rest.
                PullOutcome::Failed { .. } | PullOutcome::Cancelled => {}
            }
        });
    }

    fn change<T>(&self, change: impl FnOnce(&mut Board) -> T) -> T {
        let mut board = self.board();
        let out = change(&mut board);
        let running = board.live.len();
        drop(board);
        self.news.send_modify(|news| *news = (news.0 + 1, running));
        out
    }

    fn board(&self) -> std::sync::MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_same(one: &ModelRef, other: &ModelRef) -> bool {
    one.provider == other.provider
        && canonical_model_name(&one.model) == canonical_model_name(&other.model)
}

/// Begins a pull whose start is in the log.
pub(crate) fn start(shared: Arc<Shared>, model: ModelRef) {
    // Asked for twice in one moment: the first one pulls it.
    let Some((number, stop)) = shared.pulls.enter(&model) else {
        return;
    };
    let tracker = shared.tracker.clone();
    tracker.spawn(async move {
        tokio::select! {
            () = run(&shared, number, &model) => {}
            () = stop.cancelled() => {}
            // Without an end in the log it is interrupted, and the next start says so.
            () = shared.until_closing() => {}
        }
    });
}

async fn run(shared: &Shared, number: u64, model: &ModelRef) {
    let slots = Arc::clone(&shared.pulls.slots);
    // Only a closed semaphore has no permit, and nobody closes this one.
    let Ok(_slot) = slots.acquire_owned().await else {
        return;
    };
    let outcome = match pulled(shared, number, model).await {
        Ok(()) => PullOutcome::Completed,
        Err(failure) => PullOutcome::Failed { failure },
    };
    tracing::info!(provider = %model.provider, ended = ?failure_code(&outcome), "a pull ended");
    let body = EventBody::ModelPullEnded {
        model: model.clone(),
        outcome: outcome.clone(),
    };
    loop {
        let append = Append {
            stream: StreamId::Library,
            turn: None,
            body: body.clone(),
        };
        let commit = Commit {
            appends: vec![append],
            ..Commit::default()
        };
        match shared.log.commit(commit, Durability::Process).await {
            Ok(_) => break,
            Err(error) => {
                tracing::error!(%error, "the end of a pull could not be written");
                shared.clock.sleep(RETRY_SAVE).await;
            }
        }
    }
    shared.pulls.leave(number, &outcome);
}

async fn pulled(shared: &Shared, number: u64, model: &ModelRef) -> Result<(), protocol::Failure> {
    let gone = |words: String| protocol::Failure::new(FailureCode::ConnectFailed, words);
    let provider = shared.shelf.provider(model.provider).await;
    let provider = provider
        .map_err(|error| gone(read_report(&error).message))?
        .ok_or_else(|| {
            gone(format!(
                "The server “{}” is no longer in the settings.",
                model.provider_name
            ))
        })?;
    let limits = match provider.limits {
        Some(limits) => limits,
        None => {
            let general = shared.limits().await;
            general.map_err(|error| gone(read_report(&error).message))?
        }
    };
    let progress = PullProgress::default();
    shared.pulls.set(number, PullState::Running { progress });
    let told = |progress| shared.pulls.tell(number, progress);
    shared
        .gateway
        .pull(&provider, &model.model, &Limits::from(&limits), told)
        .await
}

const fn failure_code(outcome: &PullOutcome) -> Option<FailureCode> {
    match outcome {
        PullOutcome::Completed | PullOutcome::Cancelled => None,
        PullOutcome::Failed { failure } => Some(failure.code),
    }
}
