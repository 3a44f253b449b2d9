//! Long sessions, written straight into the database: holding thousands of turns would take minutes.
//!
//! Invariant: only facts are written (events, and where turns begin); every cache is the product's own to make.

use std::path::Path;

use protocol::{
    Boot, Dialect, EventBody, FinishReason, ItemId, MessagePurpose, ModelRef, Op, OpId, Origin,
    OutcomeKind, Part, SessionId, StopReason, Timings, TurnId, TurnOutcome, Usage,
};
use rusqlite::{Connection, params};
use serde_json::Value;

use crate::{
    model_server::{Answer, ModelServer},
    sentinel::random_u128,
    world::World,
};

/// The database's file in a data folder.
pub const DATABASE: &str = "holdfast.sqlite3";

/// A conversation of one turn that was held and `turns` that were written, with its engine open and no window.
pub async fn conversation_of(server: &ModelServer, turns: u64) -> (World, SessionId) {
    let mut world = World::new().await;
    server.script(Answer::whole(Dialect::Ollama, "Yes."));
    let session = world.begin(server, "Are you there?").await;
    let window = world.page().await.follow(session);
    window.until_idle().await;
    drop(window);
    world.quit().await;
    add_turns(world.data_dir(), session, &server.model(), turns);
    world.open().await;
    // The first write brings the session's header up to date with what was seeded.
    let title = "A long one".to_owned();
    world
        .submit(Op::RenameSession { session, title })
        .await
        .expect("renamed");
    (world, session)
}

/// Adds `turns` finished turns to a session that has ended its last one. No engine may have the folder open.
pub fn add_turns(data_dir: &Path, session: SessionId, model: &ModelRef, turns: u64) {
    let mut db = Connection::open(data_dir.join(DATABASE)).expect("the database opens");
    let write = db.transaction().expect("a transaction");
    let stream: i64 = write
        .query_row(
            "SELECT stream FROM streams WHERE session = ?1",
            [session.bits().to_be_bytes()],
            |row| row.get(0),
        )
        .expect("the session exists");
    let (mut seq, mut turn, mut item, at): (i64, i64, i64, i64) = write
        .query_row(
            "SELECT max(seq), max(turn), max(item), max(at) FROM events WHERE stream = ?1",
            [stream],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
        )
        .expect("the session has a turn");
    for _ in 0..turns {
        turn += 1;
        let first = seq + 1;
        for body in one_turn(number(item) + 1, model) {
            seq += 1;
            let mut fields = serde_json::to_value(&body).expect("an event has a JSON form");
            if let Value::Object(fields) = &mut fields {
                fields.remove("kind");
            }
            let own = body
                .item()
                .map(|item| i64::try_from(item.get()).expect("a small number"));
            item = own.unwrap_or(item);
            write
                .execute(
                    "INSERT INTO events (stream, seq, turn, item, kind, at, body)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                    params![stream, seq, turn, own, body.kind(), at, fields.to_string()],
                )
                .expect("the log takes the event");
        }
        write
            .execute(
                "INSERT INTO turns (stream, turn, first_seq) VALUES (?1, ?2, ?3)",
                params![stream, turn, first],
            )
            .expect("the turn begins somewhere");
    }
    write.commit().expect("all of it, or nothing");
}

/// Adds sessions to the library, each with `turns` turns that ended and were seen; their own streams stay empty. No engine
/// may have the folder open. How many events the library has then.
pub fn add_sessions(data_dir: &Path, model: &ModelRef, sessions: u64, turns: u64) -> u64 {
    let mut db = Connection::open(data_dir.join(DATABASE)).expect("the database opens");
    let write = db.transaction().expect("a transaction");
    let mut seq: i64 = write
        .query_row(
            "SELECT coalesce(max(seq), 0) FROM events WHERE stream = 0",
            [],
            |row| row.get(0),
        )
        .expect("a count");
    let mut insert = write
        .prepare("INSERT INTO events (stream, seq, kind, at, body) VALUES (0, ?1, ?2, ?3, ?4)")
        .expect("a statement");
    let mut add = |body: &EventBody| {
        let mut fields = serde_json::to_value(body).expect("an event has a JSON form");
        if let Value::Object(fields) = &mut fields {
            fields.remove("kind");
        }
        seq += 1;
        insert
            .execute(params![seq, body.kind(), seq, fields.to_string()])
            .expect("the log takes the event");
    };
    for n in 0..sessions {
        let session = SessionId::from_bits(u128::from(n) + 1);
        add(&EventBody::SessionListed {
            session,
            title: format!("What of the tides, and how do they move the kelp? Part {n}"),
            origin: Origin::Conversation,
        });
        for turn in (1..=turns).map(TurnId::new) {
            let model = model.clone();
            add(&EventBody::SessionTurnStarted {
                session,
                turn,
                model,
            });
            add(&EventBody::SessionTurnEnded {
                session,
                turn,
                outcome: OutcomeKind::Completed,
                unread: true,
            });
            add(&EventBody::SessionSeen { session, turn });
        }
    }
    drop(insert);
    write.commit().expect("all of it, or nothing");
    number(seq)
}

/// Whether the folder's library has a snapshot.
pub fn has_snapshot(data_dir: &Path) -> bool {
    let db = Connection::open(data_dir.join(DATABASE)).expect("the database opens");
    db.query_row("SELECT 1 FROM heads WHERE stream = 0", [], |_| Ok(()))
        .is_ok()
}

fn number(stored: i64) -> u64 {
    u64::try_from(stored).expect("ids are positive")
}

fn one_turn(item: u64, model: &ModelRef) -> [EventBody; 6] {
    let message = ItemId::new(item);
    [
        EventBody::UserMessageAdded {
            item: message,
            text: "And what of the tides, how do they move the kelp?".to_owned(),
            op: OpId::from_bits(random_u128()),
            purpose: MessagePurpose::Said,
        },
        EventBody::TurnStarted {
            boot: Boot::from_bits(1),
            message,
            model: model.clone(),
            fallbacks: Vec::new(),
        },
        EventBody::StepStarted {
            step: 1,
            attempt: 1,
            model: model.clone(),
        },
        EventBody::TextAppended {
            item: message.next(),
            part: Part::Answer,
            offset: 0,
            text: "They pull it to and fro, twice a day, and the holdfast keeps it where it is. "
                .repeat(4),
        },
        EventBody::StepEnded {
            step: 1,
            finish: FinishReason::Stop,
            usage: Usage::default(),
            timings: Timings::default(),
        },
        EventBody::TurnEnded {
            outcome: TurnOutcome::Completed {
                stop: StopReason::EndOfTurn,
            },
        },
    ]
}
