//! Pulls: models that servers download because somebody asked for it.
//!
//! A model of this computer is pulled by ourselves, from an address.
//!
//! Invariant: a pull belongs to nobody's window. That it was begun and how it ended is in the log; how far it is, is
//! here and nowhere else, and is bounded. An answer about it is derived from both, so it may be lost, repeated or late.
//! Kept by: one task per pull, which writes the end; a pull of another boot without an end was interrupted.
//! Not here: what a server says of a pull (`gateway::pull`).

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::FutureExt;
use protocol::{
    Boot, Dialect, ErrorReport, EventBody, FailureCode, ModelRef, OpenPull, Provider, ProviderId,
    PullOutcome, PullProgress, PullState, PullView, StreamId, Timestamp, model_name, pulled_name,
};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    engine::Shared,
    gate::gate,
    gateway::{self, Landed, Limits},
    log::{Append, Commit, Durability},
    model_files::ModelFiles,
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
    /// How many left: whoever does so while the log is read is in neither.
    left: u64,
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
    pub(crate) fn admits(
        &self,
        provider: &Provider,
        files: &ModelFiles,
        typed: &str,
    ) -> Result<ModelRef, ErrorReport> {
        let model = match provider.dialect {
            Dialect::Ollama => model_name(typed).map_err(|words| invalid("model", words))?,
            Dialect::Local => {
                let order = files.order(typed)?;
                if order.folder.join(&order.name).exists() {
                    let words = format!("{} is there already.", order.name);
                    return Err(invalid("model", &words));
                }
                order.url.to_string()
            }
            Dialect::OpenAiChat | Dialect::Anthropic => {
                let words = format!(
                    "{} is not an Ollama; its models are put there by other means.",
                    provider.name
                );
                return Err(invalid("provider", &words));
            }
        };
        let is_fetched = provider.dialect == Dialect::Local;
        let model = ModelRef {
            provider: provider.id,
            provider_name: provider.name.clone(),
            model,
        };
        let board = self.board();
        let is_taken = |live: &Live| {
            live.model.is_same_pull(&model)
                // Two addresses of one file would write the same one.
                || (is_fetched
                    && live.model.provider == model.provider
                    && pulled_name(&live.model.model) == pulled_name(&model.model))
        };
        if board.live.iter().any(is_taken) {
            let words = format!("{} is being downloaded already.", pulled_name(&model.model));
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
                let ends = live.model.is_same_pull(model);
                if ends {
                    live.stop.cancel();
                    board.left += 1;
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

    /// How many have left so far. To be read before the log.
    pub(crate) fn left(&self) -> u64 {
        self.board().left
    }

    /// Every pull there is: those that live here, and those that the log knows. None if one left since `left` was read:
    /// then its end may be in the log by now, and the log is to be read again.
    pub(crate) fn with(
        &self,
        open: Vec<OpenPull>,
        boot: Boot,
        revision: u64,
        left: u64,
    ) -> Option<protocol::Pulls> {
        let now = self.clock.wall().millis();
        let board = self.board();
        if board.left != left {
            return None;
        }
        let is_live =
            |model: &ModelRef| board.live.iter().any(|live| live.model.is_same_pull(model));
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
            PullState::Completed { at, .. } => now.saturating_sub(at.millis()) < TOLD_FOR_MS,
            PullState::Waiting
            | PullState::Running { .. }
            | PullState::Interrupted
            | PullState::Failed { .. } => false,
        });
        pulls.extend(recent.cloned());
        pulls.sort_by_key(|view| view.started_at);
        Some(protocol::Pulls { revision, pulls })
    }

    /// A place on the board; nothing if the model has one.
    fn enter(&self, model: &ModelRef) -> Option<(u64, CancellationToken)> {
        let started_at = self.clock.wall();
        self.change(|board| {
            if board.live.iter().any(|live| live.model.is_same_pull(model)) {
                return None;
            }
            board.next += 1;
            let (number, stop) = (board.next, CancellationToken::new());
            board.told.retain(|view| !view.model.is_same_pull(model));
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
        self.change_if(|board| {
            let mut live = board.live.iter_mut();
            let Some(live) = live.find(|live| live.number == number) else {
                return false;
            };
            if let PullState::Running { progress: before } = &live.state {
                progress.changed_at = before.changed_at;
                // Servers say the same many times a second, which is no news to anybody.
                if *before == progress {
                    return false;
                }
            }
            progress.changed_at = Some(now);
            live.state = PullState::Running { progress };
            true
        });
    }

    /// Its end is in the log.
    fn leave(&self, number: u64, outcome: &PullOutcome, landed: Option<Landed>) {
        let at = self.clock.wall();
        self.change(|board| {
            let found = board.live.iter().position(|live| live.number == number);
            let Some(live) = found.map(|found| board.live.remove(found)) else {
                return;
            };
            board.left += 1;
            match outcome {
                PullOutcome::Completed => {
                    board.told.push(PullView {
                        model: live.model,
                        started_at: live.started_at,
                        state: PullState::Completed {
                            at,
                            sha256: landed.map(|landed| landed.sha256),
                        },
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
        self.announce(board);
        out
    }

    /// The same for what may turn out to be no change.
    fn change_if(&self, change: impl FnOnce(&mut Board) -> bool) {
        let mut board = self.board();
        if change(&mut board) {
            self.announce(board);
        }
    }

    fn announce(&self, board: std::sync::MutexGuard<'_, Board>) {
        let running = board.live.len();
        drop(board);
        self.news.send_modify(|news| *news = (news.0 + 1, running));
    }

    fn board(&self) -> std::sync::MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
    let pulling = AssertUnwindSafe(pulled(shared, number, model)).catch_unwind();
    let (outcome, landed) = match pulling.await {
        Ok(Ok(landed)) => (PullOutcome::Completed, landed),
        Ok(Err(failure)) => (PullOutcome::Failed { failure }, None),
        Err(_) => {
            let failure = protocol::Failure::new(
                FailureCode::Panicked,
                "Holdfast failed at this download in a way that nobody foresaw; the log file says where.",
            );
            (PullOutcome::Failed { failure }, None)
        }
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
    shared.pulls.leave(number, &outcome, landed);
}

async fn pulled(
    shared: &Shared,
    number: u64,
    model: &ModelRef,
) -> Result<Option<Landed>, protocol::Failure> {
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
    gate!(shared.harness, PullBegins);
    let told = |progress| shared.pulls.tell(number, progress);
    let limits = Limits::from(&limits);
    match provider.dialect {
        Dialect::Local => {
            let order = shared.files.order(&model.model);
            let order = order.map_err(|report| gone(report.message))?;
            shared
                .gateway
                .download(order, &limits, told)
                .await
                .map(Some)
        }
        Dialect::Ollama | Dialect::OpenAiChat | Dialect::Anthropic => {
            let pull = shared.gateway.pull(&provider, &model.model, &limits, told);
            pull.await.map(|()| None)
        }
    }
}

/// The user wants no more of a file that did not come to its end. Blocks.
pub(crate) fn forget(files: &ModelFiles, model: &ModelRef) {
    if model.provider == ProviderId::THIS_COMPUTER
        && let Ok(order) = files.order(&model.model)
    {
        gateway::forget(&order.folder, &order.name);
    }
}

const fn failure_code(outcome: &PullOutcome) -> Option<FailureCode> {
    match outcome {
        PullOutcome::Completed | PullOutcome::Cancelled => None,
        PullOutcome::Failed { failure } => Some(failure.code),
    }
}

#[cfg(test)]
mod tests {
    use protocol::ProviderId;

    use super::*;
    use crate::gateway::tests::HandClock;

    fn kelp() -> ModelRef {
        ModelRef {
            provider: ProviderId::from_bits(1),
            provider_name: "box".to_owned(),
            model: "kelp".to_owned(),
        }
    }

    #[test]
    fn what_left_while_the_log_was_read_is_not_missing_from_both() {
        let pulls = Pulls::new(Arc::<HandClock>::default());
        let all = |left| pulls.with(Vec::new(), Boot::from_bits(1), 1, left);
        let (number, _stop) = pulls.enter(&kelp()).expect("a place");
        let left = pulls.left();
        assert_eq!(all(left).expect("nobody left").pulls.len(), 1);
        pulls.leave(number, &PullOutcome::Cancelled, None);
        assert_eq!(all(left), None, "the log is to be read again");
        assert!(all(pulls.left()).is_some());

        let (_, _stop) = pulls.enter(&kelp()).expect("a place");
        let left = pulls.left();
        pulls.end(&kelp());
        assert_eq!(all(left), None, "also who was ended by the user");
    }

    #[test]
    fn what_a_server_says_again_is_no_news() {
        let pulls = Pulls::new(Arc::<HandClock>::default());
        let (number, _stop) = pulls.enter(&kelp()).expect("a place");
        let progress = |completed_bytes| PullProgress {
            completed_bytes,
            ..PullProgress::default()
        };
        pulls.tell(number, progress(1));
        let begun = pulls.revision();
        pulls.tell(number, progress(1));
        assert_eq!(pulls.revision(), begun, "nobody is woken");
        pulls.tell(number, progress(2));
        assert_eq!(pulls.revision(), begun + 1);
        pulls.tell(number + 1, progress(3));
        assert_eq!(pulls.revision(), begun + 1, "it has no place any more");
    }
}
