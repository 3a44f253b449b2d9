//! The beginning of a turn: its message and its start in one commit, and then the task that runs it.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt;
use protocol::{
    ErrorCode, ErrorReport, EventBody, ItemId, ModelOptions, ModelRef, OpId, Place, Receipt,
    TurnId, TurnOutcome,
};
use tokio::sync::oneshot;

use super::{Recorder, Running, Session, Written, folded_to_keep, ops::Message};
use crate::{
    gate::gate,
    log::{Durability, Snapshot},
    mutant::mutated,
    refusal::{invalid, read_report, sentence},
    status::PhaseSetter,
    turn::{self, Candidate, TurnCx, TurnEnd},
};

/// Longest message, in bytes: one event, delivered whole.
const MESSAGE_BYTES_MAX: usize = 8 * 1024 * 1024;

impl Session {
    /// Commits the message and the start of its turn, then starts it.
    pub(super) async fn begin_turn(
        &mut self,
        mut written: Written,
        op_id: OpId,
        model: ModelRef,
        message: Message,
    ) -> Result<Receipt, ErrorReport> {
        let Message {
            text,
            purpose,
            images,
        } = message;
        if text.trim().is_empty() && images.is_empty() {
            return Err(invalid("text", "There is nothing to send yet."));
        }
        if text.len() > MESSAGE_BYTES_MAX {
            return Err(invalid(
                "text",
                "This message is larger than 8 MB; send it in parts.",
            ));
        }
        if self.shared.is_closing() {
            return Err(ErrorReport::new(
                ErrorCode::ShuttingDown,
                "Holdfast is closing.",
            ));
        }
        if let Some(no_room) = self.shared.log.room().refusal()
            && !mutated!(self.shared.harness, RoomIgnored)
        {
            return Err(
                ErrorReport::new(ErrorCode::StorageFailed, sentence(&no_room.to_string()))
                    .with_remedy("make room on that disk and try again"),
            );
        }
        let listed = self
            .shared
            .shelf
            .session(self.id)
            .await
            .map_err(|e| read_report(&e))?;
        if listed.is_some_and(|summary| summary.place == Place::Bin) {
            return Err(
                ErrorReport::new(ErrorCode::Gone, "This conversation is in the bin.")
                    .with_remedy("take it out of the bin first"),
            );
        }
        let provider = self
            .shared
            .shelf
            .provider(model.provider)
            .await
            .map_err(|e| read_report(&e))?;
        let provider = provider.ok_or_else(|| {
            ErrorReport::new(
                ErrorCode::Invalid {
                    field: "model".into(),
                },
                format!(
                    "The server “{}” is no longer in the settings, so {} cannot be asked.",
                    model.provider_name, model.model
                ),
            )
            .with_remedy("choose another model, or add the server again")
        })?;
        let others = self.shared.shelf.fallbacks_of(&model).await;
        let others = others.map_err(|e| read_report(&e))?;
        let fallbacks = others.iter().map(|(_, model)| model.clone()).collect();
        let limits = self.shared.limits().await.map_err(|e| read_report(&e))?;
        let ceiling = Duration::from_millis(provider.limits.unwrap_or(limits).ceiling_ms);
        let chosen = chosen_with(&self.head.options, &written);
        let mut candidates = Vec::new();
        for (provider, model) in std::iter::once((provider, model.clone())).chain(others) {
            let limits = provider.limits.unwrap_or(limits);
            let options = self.options_for(&model, &chosen).await?;
            candidates.push(Candidate::new(provider, model, &limits, &options));
        }
        let turn = self.head.next_turn;
        let item = self.head.next_item;
        written.bodies.push((
            Some(turn),
            EventBody::UserMessageAdded {
                item,
                text,
                op: op_id,
                purpose,
                images,
            },
        ));
        written.bodies.push((
            Some(turn),
            EventBody::TurnStarted {
                boot: self.shared.log.boot(),
                message: item,
                model: model.clone(),
                fallbacks,
            },
        ));
        written.library.push(EventBody::SessionTurnStarted {
            session: self.id,
            turn,
            model: model.clone(),
        });
        let receipt = self.save(written, Durability::Disk).await?;
        if self.head.open_turn == Some(turn) {
            gate!(self.shared.harness, MessageCommitted);
            self.run_turn(turn, item.next(), candidates, ceiling);
        }
        Ok(receipt)
    }

    /// How this session, which chose so, asks that model: the nearest word on each option.
    async fn options_for(
        &self,
        model: &ModelRef,
        chosen: &ModelOptions,
    ) -> Result<ModelOptions, ErrorReport> {
        let of_model = self.shared.shelf.options_of(model).await;
        Ok(chosen.over(&of_model.map_err(|e| read_report(&e))?))
    }

    fn run_turn(
        &mut self,
        turn: TurnId,
        next_item: ItemId,
        candidates: Vec<Candidate>,
        ceiling: Duration,
    ) {
        let shared = Arc::clone(&self.shared);
        // The engine is gone: recovery closes the turn at the next start.
        let Some(own) = self.own.upgrade() else {
            return;
        };
        let (cancel, cancelled) = turn::cancel_channel();
        let (ended_in, ended) = oneshot::channel();
        let (answers_in, answers) = turn::answers_channel();
        self.running = Some(Running {
            turn,
            answers: answers_in,
            ended,
        });
        shared.turn_runs(self.id, turn, cancel.clone());
        let phase = PhaseSetter {
            board: Arc::clone(&shared.statuses),
            session: self.id,
            turn,
        };
        tracing::info!(session = %self.id, %turn, "turn started");
        let cx = TurnCx {
            session: self.id,
            turn,
            candidates,
            next_item,
            recorder: Recorder(own),
            reads: shared.log.reads().clone(),
            gateway: shared.gateway.clone(),
            clock: Arc::clone(&shared.clock),
            ceiling,
            answers,
            folder: self.head.folder.clone(),
            health: Arc::clone(&shared.health),
            allowed: self.head.allowed.clone(),
            cancel,
            cancelled,
            phase,
            tracker: shared.tracker.clone(),
            woken: shared.wakes.follow(),
            jitter: shared.mint.jitter(),
            harness: shared.harness.clone(),
        };
        let unguarded = mutated!(shared.harness, NoGuard);
        let (log, session) = (shared.log.clone(), self.id);
        let harness = shared.harness.clone();
        shared.tracker.clone().spawn(async move {
            // Nothing of the turn survives a panic but what is in the log, so there is nothing to leave inconsistent.
            let end = AssertUnwindSafe(turn::run(cx)).catch_unwind().await;
            if end.is_err() && unguarded {
                return;
            }
            let end = end.unwrap_or_else(|_| TurnEnd {
                outcome: TurnOutcome::Failed {
                    failure: turn::panicked(),
                },
                closing: Vec::new(),
            });
            if mutated!(harness, ViewInTurn) {
                let fold = move |log: &Snapshot<'_>| folded_to_keep(&harness, log, session, turn);
                drop(log.reads().read(fold).await);
            }
            // The session outlives its turns; if it is gone, recovery closes the turn at the next start.
            let _ = ended_in.send(end);
        });
    }
}

/// What the session says of its options once this is written.
fn chosen_with(now: &ModelOptions, written: &Written) -> ModelOptions {
    let mut newly = written.bodies.iter().rev();
    let newly = newly.find_map(|(_, body)| {
        if let EventBody::OptionsChosen { options } = body {
            Some(options)
        } else {
            None
        }
    });
    newly.unwrap_or(now).clone()
}
