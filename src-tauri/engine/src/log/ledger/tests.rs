use protocol::{
    CancelledBy, Failure, FailureCode, FinishReason, ModelRef, SessionId, StreamId, Timings,
};

use super::*;
use crate::log::{Append, Commit, LOCK_WAIT, database, writer};

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn database(dir: &std::path::Path) -> Connection {
    let opened = database::open_to_write(dir, at(0), LOCK_WAIT, &Harness::default());
    opened.unwrap().connection
}

fn write(db: &mut Connection, ms: i64, turn: u64, bodies: Vec<EventBody>) {
    let appends = bodies.into_iter().map(|body| Append {
        stream: StreamId::Session(SessionId::from_bits(1)),
        turn: Some(TurnId::new(turn)),
        body,
    });
    let commit = Commit {
        appends: appends.collect(),
        ..Commit::default()
    };
    let transaction = db.transaction().unwrap();
    writer::append_all(&transaction, &commit, at(ms)).unwrap();
    transaction.commit().unwrap();
}

fn started(step: u32, attempt: u32, model: &str, purpose: Purpose) -> EventBody {
    EventBody::StepStarted {
        step,
        attempt,
        model: ModelRef {
            provider: ProviderId::from_bits(7),
            provider_name: "box".to_owned(),
            model: model.to_owned(),
        },
        purpose,
    }
}

fn turn_started() -> EventBody {
    EventBody::TurnStarted {
        boot: protocol::Boot::from_bits(1),
        message: protocol::ItemId::new(1),
        model: ModelRef {
            provider: ProviderId::from_bits(7),
            provider_name: "box".to_owned(),
            model: "m".to_owned(),
        },
        fallbacks: Vec::new(),
    }
}

fn ended(usage: Usage) -> EventBody {
    EventBody::StepEnded {
        step: 1,
        finish: FinishReason::Stop,
        usage,
        timings: Timings {
            decode_ms: Some(2_000),
            first_content_ms: Some(300),
            ..Timings::default()
        },
        unread: None,
        unseen_images: 0,
        untold_tools: 0,
    }
}

fn failed() -> EventBody {
    EventBody::AttemptFailed {
        step: 1,
        attempt: 1,
        failure: Failure::new(FailureCode::ConnectFailed, "away"),
        retry_in_ms: Some(10),
        next: None,
    }
}

fn over(outcome: TurnOutcome) -> EventBody {
    EventBody::TurnEnded { outcome }
}

fn stopped() -> EventBody {
    over(TurnOutcome::Cancelled {
        by: CancelledBy::User,
    })
}

const KNOWN: Usage = Usage {
    prompt_tokens: Some(1_000),
    cached_tokens: Some(600),
    cache_written_tokens: None,
    completion_tokens: Some(80),
};

/// A failed request and its repeat; a summary without counts; one that the user stopped.
fn a_few(db: &mut Connection) {
    write(
        db,
        100,
        1,
        vec![turn_started(), started(1, 1, "m", Purpose::Answer)],
    );
    write(db, 150, 1, vec![failed()]);
    write(db, 200, 1, vec![started(1, 2, "m", Purpose::Answer)]);
    write(db, 900, 1, vec![ended(KNOWN)]);
    write(db, 1_000, 1, vec![started(2, 1, "m", Purpose::Summary)]);
    write(db, 1_100, 1, vec![ended(Usage::default())]);
    write(db, 1_200, 1, vec![started(2, 2, "other", Purpose::Answer)]);
    write(db, 1_300, 1, vec![stopped()]);
}

fn all(db: &Connection) -> Vec<LedgerRow> {
    rows(db, &[at(0), at(1_000), at(10_000)]).unwrap()
}

#[test]
fn every_request_is_counted_once_and_what_nobody_counted_is_not_zero() {
    let dir = tempfile::tempdir().unwrap();
    let mut db = database(dir.path());
    a_few(&mut db);
    let rows = all(&db);
    let told: Vec<_> = rows
        .iter()
        .map(|row| (row.bucket, row.model.as_str(), row.purpose, row.sums))
        .collect();
    let answers = LedgerSums {
        ended: 1,
        failed: 1,
        prompt_tokens: 1_000,
        prompt_known: 1,
        cached_tokens: 600,
        cached_known: 1,
        completion_tokens: 80,
        completion_known: 1,
        priced: 1,
        priced_input: 400,
        priced_cached: 600,
        priced_output: 80,
        decode_tokens: 80,
        decode_ms: 2_000,
        first_content_ms: 300,
        first_content_known: 1,
        took_ms: 750,
        ..LedgerSums::default()
    };
    let summary = LedgerSums {
        ended: 1,
        first_content_ms: 300,
        first_content_known: 1,
        took_ms: 100,
        ..LedgerSums::default()
    };
    let stopped = LedgerSums {
        cancelled: 1,
        took_ms: 100,
        ..LedgerSums::default()
    };
    assert_eq!(
        told,
        [
            (0, "m", Purpose::Answer, answers),
            (1, "m", Purpose::Summary, summary),
            (1, "other", Purpose::Answer, stopped),
        ]
    );
    assert_eq!(since(&db).unwrap(), Some(at(100)));
    assert_eq!(super::rows(&db, &[]).unwrap(), [], "no bounds, no rows");
}

#[test]
fn a_ledger_that_was_lost_or_lacks_a_request_is_made_anew_and_says_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let mut db = database(dir.path());
    a_few(&mut db);
    let before = all(&db);
    for damage in [
        "DELETE FROM attempts",
        "DELETE FROM attempts WHERE seq = (SELECT min(seq) FROM attempts)",
    ] {
        db.execute_batch(damage).unwrap();
        assert_ne!(all(&db), before, "{damage}");
        make_whole(&mut db).unwrap();
        assert_eq!(all(&db), before, "{damage}");
    }
    // A whole one is left alone.
    db.execute_batch("UPDATE attempts SET model = 'touched'")
        .unwrap();
    make_whole(&mut db).unwrap();
    assert!(all(&db).iter().all(|row| row.model == "touched"));
}

#[test]
fn a_request_that_runs_is_open_and_ends_with_its_turn() {
    let dir = tempfile::tempdir().unwrap();
    let mut db = database(dir.path());
    write(
        &mut db,
        100,
        1,
        vec![turn_started(), started(1, 1, "m", Purpose::Answer)],
    );
    let sums = |db: &Connection| {
        all(db)
            .iter()
            .fold(LedgerSums::default(), |sum, row| sum.plus(row.sums))
    };
    assert_eq!(sums(&db).open, 1);
    let crash = TurnOutcome::Interrupted {
        why: protocol::InterruptedWhy::Crash,
    };
    write(&mut db, 300, 1, vec![over(crash)]);
    assert_eq!((sums(&db).open, sums(&db).interrupted), (0, 1));
    let timeout = TurnOutcome::Failed {
        failure: Failure::new(FailureCode::TurnTimeout, "late"),
    };
    write(
        &mut db,
        400,
        2,
        vec![
            turn_started(),
            started(1, 1, "m", Purpose::Answer),
            over(timeout),
        ],
    );
    assert_eq!(sums(&db).failed, 1);
}

#[test]
fn the_ledger_of_a_database_from_before_there_was_one_is_made_from_its_events() {
    let dir = tempfile::tempdir().unwrap();
    let mut db = database(dir.path());
    a_few(&mut db);
    let before = all(&db);
    db.execute_batch("DROP TABLE attempts; DROP INDEX requests; PRAGMA user_version = 3;")
        .unwrap();
    drop(db);
    let mut db = database(dir.path());
    make_whole(&mut db).unwrap();
    assert_eq!(all(&db), before);
}

#[test]
fn numbers_beyond_all_reason_stay_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let mut db = database(dir.path());
    let usage = Usage {
        prompt_tokens: Some(u64::MAX),
        completion_tokens: Some(u64::MAX),
        ..Usage::default()
    };
    write(
        &mut db,
        1,
        1,
        vec![
            turn_started(),
            started(1, 1, "m", Purpose::Answer),
            ended(usage),
        ],
    );
    let rows = all(&db);
    assert_eq!(
        rows.first().map(|row| row.sums.prompt_tokens),
        Some(i64::MAX.unsigned_abs())
    );
}
