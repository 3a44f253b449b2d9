//! The ledger in the database: one row for each request to a provider.
//!
//! Invariant: an index of the events. A row is written in the transaction of the event that it follows from, a request
//! has exactly one however often it is repeated, and what nobody counted is absent, never zero. A ledger that lacks
//! requests is made anew from the events.
//! Not here: what anything costs, and what is shown of it (`transcript::ledger`).

use std::collections::BTreeMap;

use protocol::{
    EventBody, LedgerRow, LedgerSums, ProviderId, Purpose, Timestamp, TurnId, TurnOutcome, Usage,
};
use rusqlite::{Connection, TransactionBehavior, params};
use transcript::numbers;

use super::codec;
use crate::{Harness, mutant::mutated};

/// Where an event stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// The number of its stream.
    pub(super) key: i64,
    pub(super) seq: i64,
    pub(super) turn: Option<TurnId>,
    pub(super) at: Timestamp,
}

/// How a request ended, as its row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ended,
    Failed,
    Cancelled,
    Interrupted,
}

impl State {
    const ALL: [Self; 4] = [
        Self::Ended,
        Self::Failed,
        Self::Cancelled,
        Self::Interrupted,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
        }
    }
}

/// Follows an event that was just written.
pub(super) fn follow(
    db: &Connection,
    place: Place,
    body: &EventBody,
    harness: &Harness,
) -> rusqlite::Result<()> {
    let Some(turn) = place.turn.map(|turn| whole(turn.get())) else {
        return Ok(());
    };
    match body {
        EventBody::StepStarted {
            step,
            attempt,
            model,
            purpose,
        } => {
            if *attempt > 1 && mutated!(harness, RetryOverwrites) {
                db.prepare_cached(
                    "DELETE FROM attempts WHERE stream = ?1 AND turn = ?2 AND step = ?3",
                )?
                .execute(params![place.key, turn, step])?;
            }
            db.prepare_cached(
                "INSERT INTO attempts (stream, seq, turn, step, at, purpose, provider, provider_name, model)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?
            .execute(params![
                place.key,
                place.seq,
                turn,
                step,
                place.at.millis(),
                purpose_name(*purpose),
                model.provider.bits().to_be_bytes(),
                model.provider_name,
                model.model,
            ])
            .map(drop)
        }
        EventBody::StepEnded { usage, timings, .. } => {
            let wrote = numbers::wrote(usage, timings);
            let Usage {
                prompt_tokens,
                cached_tokens,
                completion_tokens,
                ..
            } = *usage;
            let zero = mutated!(harness, UnknownIsZero).then_some(0);
            db.prepare_cached(
                "UPDATE attempts SET state = ?10, ended_at = ?3, prompt_tokens = ?4, cached_tokens = ?5,
                    completion_tokens = ?6, decode_tokens = ?7, decode_ms = ?8, first_content_ms = ?9
                 WHERE stream = ?1 AND seq = (SELECT max(seq) FROM attempts
                    WHERE stream = ?1 AND turn = ?2 AND state IS NULL)",
            )?
            .execute(params![
                place.key,
                turn,
                place.at.millis(),
                prompt_tokens.or(zero).map(whole),
                cached_tokens.map(whole),
                completion_tokens.or(zero).map(whole),
                wrote.map(|(tokens, _)| whole(tokens)),
                wrote.map(|(_, ms)| whole(ms)),
                timings.first_content_ms.map(whole),
                State::Ended.name(),
            ])
            .map(drop)
        }
        EventBody::AttemptFailed { failure, .. } => db
            .prepare_cached(
                "UPDATE attempts SET state = ?5, code = ?3, ended_at = ?4
                 WHERE stream = ?1 AND seq = (SELECT max(seq) FROM attempts
                    WHERE stream = ?1 AND turn = ?2 AND state IS NULL)",
            )?
            .execute(params![
                place.key,
                turn,
                format!("{:?}", failure.code),
                place.at.millis(),
                State::Failed.name(),
            ])
            .map(drop),
        // What still ran ends with its turn.
        EventBody::TurnEnded { outcome } => {
            let (state, code) = match outcome {
                TurnOutcome::Cancelled { .. } => (State::Cancelled, None),
                TurnOutcome::Failed { failure } => {
                    (State::Failed, Some(format!("{:?}", failure.code)))
                }
                TurnOutcome::Interrupted { .. } | TurnOutcome::Completed { .. } => {
                    (State::Interrupted, None)
                }
            };
            db.prepare_cached(
                "UPDATE attempts SET state = ?3, code = ?4, ended_at = ?5
                 WHERE stream = ?1 AND turn = ?2 AND state IS NULL",
            )?
            .execute(params![
                place.key,
                turn,
                state.name(),
                code,
                place.at.millis()
            ])
            .map(drop)
        }
        // Every other kind is no part of a request's life.
        _ => Ok(()),
    }
}

/// Makes the ledger anew if it lacks any request.
pub(super) fn make_whole(db: &mut Connection) -> rusqlite::Result<()> {
    let lacks: bool = db.query_row(
        "SELECT (SELECT count(*) FROM attempts)
             < (SELECT count(*) FROM events INDEXED BY requests WHERE kind = 'StepStarted')",
        [],
        |row| row.get(0),
    )?;
    if !lacks {
        return Ok(());
    }
    tracing::info!("the ledger lacks requests; it is made anew from the events");
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute("DELETE FROM attempts", [])?;
    {
        let mut statement = transaction.prepare(
            "SELECT seq, at, turn, kind, body, stream FROM events
             WHERE kind IN ('StepStarted', 'StepEnded', 'AttemptFailed', 'TurnEnded') ORDER BY stream, seq",
        )?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let event = codec::event_of(row)?;
            let place = Place {
                key: row.get(5)?,
                seq: row.get(0)?,
                turn: event.turn,
                at: event.at,
            };
            follow(&transaction, place, &event.body, &Harness::default())?;
        }
    }
    // A request that cannot be read any more has its row all the same, or the ledger would be made anew at every start.
    transaction.execute(
        "INSERT OR IGNORE INTO attempts
            (stream, seq, turn, step, at, purpose, provider, provider_name, model, state)
         SELECT stream, seq, coalesce(turn, 0), 0, at, ?1, zeroblob(16), '', '', ?2
         FROM events INDEXED BY requests WHERE kind = 'StepStarted'",
        [purpose_name(Purpose::Answer), State::Interrupted.name()],
    )?;
    transaction.commit()
}

/// The attempts between the bounds, summed up; by bucket, then by model.
pub(super) fn rows(db: &Connection, bounds: &[Timestamp]) -> rusqlite::Result<Vec<LedgerRow>> {
    let (Some(first), Some(last)) = (bounds.first(), bounds.last()) else {
        return Ok(Vec::new());
    };
    let mut statement = db.prepare_cached(
        "SELECT at, purpose, provider, provider_name, model, state, ended_at, prompt_tokens, cached_tokens,
            completion_tokens, decode_tokens, decode_ms, first_content_ms
         FROM attempts WHERE at >= ?1 AND at < ?2 ORDER BY at",
    )?;
    let mut found = statement.query(params![first.millis(), last.millis()])?;
    let mut rows: BTreeMap<(u32, ProviderId, String, bool), LedgerRow> = BTreeMap::new();
    while let Some(row) = found.next()? {
        let at = Timestamp::from_millis(row.get(0)?);
        let bucket = bounds
            .partition_point(|bound| *bound <= at)
            .saturating_sub(1);
        let bucket = u32::try_from(bucket).unwrap_or(u32::MAX);
        let purpose = purpose_of(&codec::text(row, 1)?);
        let provider: [u8; 16] = row.get(2)?;
        let provider = ProviderId::from_bits(u128::from_be_bytes(provider));
        let (provider_name, model) = (codec::text(row, 3)?, codec::text(row, 4)?);
        let sums = sums_of(row, at)?;
        let key = (bucket, provider, model.clone(), purpose.is_answer());
        let known = rows.entry(key).or_insert_with(|| LedgerRow {
            bucket,
            provider,
            provider_name: String::new(),
            model,
            purpose,
            sums: LedgerSums::default(),
        });
        known.provider_name = provider_name;
        known.sums = known.sums.plus(sums);
    }
    Ok(rows.into_values().collect())
}

/// When the first request of all was made.
pub(super) fn since(db: &Connection) -> rusqlite::Result<Option<Timestamp>> {
    let first: Option<i64> = db.query_row("SELECT min(at) FROM attempts", [], |row| row.get(0))?;
    Ok(first.map(Timestamp::from_millis))
}

fn sums_of(row: &rusqlite::Row<'_>, at: Timestamp) -> rusqlite::Result<LedgerSums> {
    let state: Option<String> = row.get(5)?;
    let state = state.and_then(|name| State::ALL.into_iter().find(|s| s.name() == name));
    let number = |column: usize| -> rusqlite::Result<Option<u64>> {
        Ok(row
            .get::<_, Option<i64>>(column)?
            .map(|n| n.max(0).unsigned_abs()))
    };
    let ended_at: Option<i64> = row.get(6)?;
    let (prompt, cached, completion) = (number(7)?, number(8)?, number(9)?);
    let first_content = number(12)?;
    let mut sums = LedgerSums {
        prompt_tokens: prompt.unwrap_or(0),
        prompt_known: u64::from(prompt.is_some()),
        cached_tokens: cached.unwrap_or(0),
        cached_known: u64::from(cached.is_some()),
        completion_tokens: completion.unwrap_or(0),
        completion_known: u64::from(completion.is_some()),
        decode_tokens: number(10)?.unwrap_or(0),
        decode_ms: number(11)?.unwrap_or(0),
        first_content_ms: first_content.unwrap_or(0),
        first_content_known: u64::from(first_content.is_some()),
        took_ms: ended_at.map_or(0, |end| Timestamp::from_millis(end).millis_since(at)),
        ..LedgerSums::default()
    };
    match state {
        None => sums.open = 1,
        Some(State::Ended) => sums.ended = 1,
        Some(State::Failed) => sums.failed = 1,
        Some(State::Cancelled) => sums.cancelled = 1,
        Some(State::Interrupted) => sums.interrupted = 1,
    }
    if let (Some(prompt), Some(completion)) = (prompt, completion) {
        let cached = cached.unwrap_or(0).min(prompt);
        sums.priced = 1;
        sums.priced_input = prompt - cached;
        sums.priced_cached = cached;
        sums.priced_output = completion;
    }
    Ok(sums)
}

const fn purpose_name(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Answer => "Answer",
        Purpose::Summary => "Summary",
    }
}

fn purpose_of(name: &str) -> Purpose {
    if name == purpose_name(Purpose::Summary) {
        Purpose::Summary
    } else {
        Purpose::Answer
    }
}

/// A number as SQLite keeps it. No real one is so large.
fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
