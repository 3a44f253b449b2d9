//! Recovery: before anything else at start, every turn without a terminal event gets one.
//!
//! Invariant: the predicate is "no terminal event", never a status column, so nothing that a bug wrote into a cache can
//! hide an open turn. Idempotent; each turn is closed in one transaction, so a crash in here loses nothing.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

use protocol::{
    Boot, Effect, EventBody, InterruptedWhy, ItemBody, ItemId, OutcomeKind, Resolution, SessionId,
    StreamId, Timestamp, ToolOutcome, ToolState, TurnId, TurnOutcome, TurnView,
};
use rusqlite::{Connection, TransactionBehavior, params};
use transcript::fold_turn;

use super::{
    Append, Commit, CommitError, Derived, FILE_NAME, OpenError, StorageError, branches, codec,
    ledger, reader, writer,
};
use crate::{Harness, gate::gate_blocking, mutant::mutated};

/// Says how many turns it closed.
pub(super) fn run(
    db: &mut Connection,
    boot: Boot,
    now: Timestamp,
    harness: &Harness,
) -> Result<u64, OpenError> {
    let path = PathBuf::from(db.path().unwrap_or(FILE_NAME));
    let storage = |e| {
        OpenError::Recovery(CommitError::Storage(Arc::new(
            StorageError::from(e).at(&path),
        )))
    };
    index_turns(db).map_err(storage)?;
    ledger::make_whole(db).map_err(storage)?;
    let mut closed = 0;
    // Turns found here belong to other boots: this one has started none yet.
    for (key, session, turn) in open_turns(db).map_err(storage)? {
        if mutated!(harness, NoRecovery) {
            continue;
        }
        let transaction = db
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(storage)?;
        let mut commit = closing(&transaction, key, session, turn).map_err(storage)?;
        if mutated!(harness, NoToolRecovery) {
            commit
                .appends
                .retain(|append| !matches!(append.body, EventBody::ToolCallFinished { .. }));
        }
        writer::append_all(&transaction, &commit, now).map_err(OpenError::Recovery)?;
        gate_blocking!(harness, RecoveryHalfWritten);
        transaction.commit().map_err(storage)?;
        closed += 1;
        gate_blocking!(harness, RecoveryOneClosed);
        tracing::warn!(%session, %turn, "a turn that the last run left open is now interrupted");
    }
    db.execute(
        "INSERT INTO boots (boot, started_at) VALUES (?1, ?2)",
        params![boot.bits().to_be_bytes(), now.millis()],
    )
    .map_err(storage)?;
    Ok(closed)
}

/// After a salvage: what the library still calls running ends there too, if nothing runs any more. Its session may have
/// lost the turn, or all it had.
pub(super) fn end_lost_turns(db: &mut Connection, now: Timestamp) -> Result<(), OpenError> {
    let storage = |e: rusqlite::Error| {
        OpenError::Recovery(CommitError::Storage(Arc::new(StorageError::from(e))))
    };
    let running = running_in_library(db).map_err(storage)?;
    if running.is_empty() {
        return Ok(());
    }
    let appends = running.into_iter().map(|(session, turn)| Append {
        stream: StreamId::Library,
        turn: None,
        body: EventBody::SessionTurnEnded {
            session,
            turn,
            outcome: OutcomeKind::Interrupted,
            unread: true,
        },
    });
    let commit = Commit {
        appends: appends.collect(),
        ..Commit::default()
    };
    let transaction = db
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(storage)?;
    writer::append_all(&transaction, &commit, now).map_err(OpenError::Recovery)?;
    transaction.commit().map_err(storage)
}

/// Every turn of a session that stands open was ended by [`run`], in the library too; these were left over.
fn running_in_library(db: &Connection) -> rusqlite::Result<BTreeSet<(SessionId, TurnId)>> {
    let mut statement = db.prepare(
        "SELECT seq, at, turn, kind, body FROM events
         WHERE stream = 0 AND kind IN ('SessionTurnStarted', 'SessionTurnEnded') ORDER BY seq",
    )?;
    let mut running = BTreeSet::new();
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let event = codec::event_of(row)?;
        if let EventBody::SessionTurnStarted { session, turn, .. } = event.body {
            running.insert((session, turn));
        } else if let EventBody::SessionTurnEnded { session, turn, .. } = event.body {
            running.remove(&(session, turn));
        }
    }
    Ok(running)
}

/// Makes the index of turns anew if it lacks any.
fn index_turns(db: &mut Connection) -> rusqlite::Result<()> {
    let lacks: bool = db.query_row(
        "SELECT (SELECT count(*) FROM turns) < (SELECT count(*) FROM events WHERE kind = 'TurnStarted')",
        [],
        |row| row.get(0),
    )?;
    if !lacks {
        return Ok(());
    }
    tracing::warn!("the index of turns lacks some; it is made anew from the events");
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(
        "DELETE FROM turns;
         INSERT INTO turns (stream, turn, first_seq, hidden)
         SELECT stream, turn, min(seq), 0 FROM events WHERE turn IS NOT NULL GROUP BY stream, turn;",
    )?;
    branches::index(&transaction)?;
    transaction.commit()
}

fn open_turns(db: &Connection) -> rusqlite::Result<Vec<(i64, StreamId, TurnId)>> {
    let mut statement = db.prepare(
        "SELECT s.stream, streams.session, s.turn FROM events s JOIN streams USING (stream)
         WHERE s.kind = 'TurnStarted' AND NOT EXISTS (
             SELECT 1 FROM events e
             WHERE e.kind = 'TurnEnded' AND e.stream = s.stream AND e.turn = s.turn)
         ORDER BY s.stream, s.turn",
    )?;
    let rows = statement.query_map([], |row| {
        let session: [u8; 16] = row.get(1)?;
        let session = protocol::SessionId::from_bits(u128::from_be_bytes(session));
        let turn = TurnId::new(row.get::<_, i64>(2)?.unsigned_abs());
        Ok((row.get(0)?, StreamId::Session(session), turn))
    })?;
    rows.collect()
}

fn closing(db: &Connection, key: i64, stream: StreamId, turn: TurnId) -> rusqlite::Result<Commit> {
    let mut statement = db.prepare_cached(
        "SELECT seq, at, turn, kind, body FROM events WHERE stream = ?1 AND turn = ?2 ORDER BY seq",
    )?;
    let events = statement
        .query_map(params![key, turn.get() as i64], codec::event_of)?
        .collect::<Result<Vec<_>, _>>()?;
    let outcome = TurnOutcome::Interrupted {
        why: InterruptedWhy::Crash,
    };
    let mut bodies: Vec<EventBody> = fold_turn(&events)
        .iter()
        .flat_map(ends_of_open_calls)
        .collect();
    bodies.push(EventBody::TurnEnded {
        outcome: outcome.clone(),
    });
    let mut head = reader::head_of(db, key)?;
    for body in &bodies {
        head.apply(Some(turn), body);
    }
    let mut appends: Vec<Append> = bodies
        .into_iter()
        .map(|body| Append {
            stream,
            turn: Some(turn),
            body,
        })
        .collect();
    if let StreamId::Session(session) = stream {
        appends.push(Append {
            stream: StreamId::Library,
            turn: None,
            body: EventBody::SessionTurnEnded {
                session,
                turn,
                outcome: OutcomeKind::from(&outcome),
                unread: true,
            },
        });
    }
    // The cache of open turns may be wrong after a crash of an older version; the events are right.
    db.prepare_cached("INSERT OR REPLACE INTO open_turns (stream, turn) VALUES (?1, ?2)")?
        .execute(params![key, turn.get() as i64])?;
    Ok(Commit {
        appends,
        derived: vec![Derived::Head {
            stream,
            head: Box::new(head),
        }],
        op: None,
    })
}

/// The ends of the questions and calls that a turn leaves behind when it ends under them: each gets exactly one.
pub(crate) fn ends_of_open_calls(turn: &TurnView) -> Vec<EventBody> {
    let mut asked: Vec<ItemId> = Vec::new();
    let questions = turn.items.iter().filter_map(|item| {
        let ItemBody::ToolCall {
            approval: Some(approval),
            ..
        } = &item.body
        else {
            return None;
        };
        if approval.resolution.is_some() || asked.contains(&approval.item) {
            return None;
        }
        asked.push(approval.item);
        Some(EventBody::ApprovalResolved {
            item: approval.item,
            resolution: Resolution::Expired,
        })
    });
    let mut closing: Vec<EventBody> = questions.collect();
    let open = turn.items.iter().filter_map(|item| {
        let ItemBody::ToolCall { state, .. } = &item.body else {
            return None;
        };
        let effect = match state {
            ToolState::Requested => Effect::None,
            // It had started, and nobody saw it end.
            ToolState::Running { .. } => Effect::Unknown,
            ToolState::Finished { .. } => return None,
        };
        let outcome = ToolOutcome::Abandoned;
        Some(EventBody::ToolCallFinished {
            item: item.item,
            outcome,
            effect,
        })
    });
    closing.extend(open);
    closing
}

#[cfg(test)]
mod tests {
    use protocol::{ModelRef, ProviderId};

    use super::*;
    use crate::log::LOCK_WAIT;

    #[test]
    fn what_the_library_calls_running_ends_there_after_a_salvage_once() {
        let dir = tempfile::tempdir().unwrap();
        let now = Timestamp::from_millis(0);
        let opened =
            super::super::database::open_to_write(dir.path(), now, LOCK_WAIT, &Harness::default());
        let mut db = opened.unwrap().connection;
        let session = SessionId::from_bits(1);
        let started = |turn| Append {
            stream: StreamId::Library,
            turn: None,
            body: EventBody::SessionTurnStarted {
                session,
                turn: TurnId::new(turn),
                model: ModelRef {
                    provider: ProviderId::from_bits(1),
                    provider_name: "box".into(),
                    model: "m".into(),
                },
            },
        };
        let ended = Append {
            stream: StreamId::Library,
            turn: None,
            body: EventBody::SessionTurnEnded {
                session,
                turn: TurnId::new(1),
                outcome: OutcomeKind::Completed,
                unread: true,
            },
        };
        let commit = Commit {
            appends: vec![started(1), ended, started(2)],
            ..Commit::default()
        };
        let transaction = db.transaction().unwrap();
        writer::append_all(&transaction, &commit, now).unwrap();
        transaction.commit().unwrap();
        let left = running_in_library(&db).unwrap();
        assert_eq!(left, BTreeSet::from([(session, TurnId::new(2))]));
        end_lost_turns(&mut db, now).unwrap();
        end_lost_turns(&mut db, now).unwrap();
        assert_eq!(reader::count_of(&db, 0).unwrap(), 4);
    }
}
