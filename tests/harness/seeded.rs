//! Long sessions, written straight into the database: holding thousands of turns would take minutes.
//!
//! Invariant: facts are written (events, and where turns begin), and of the caches only what the product would have
//! written with each turn's end: its view. Nobody can tell the conversation from one that was held, its op ids aside.

use std::path::Path;

use protocol::{
    Boot, Dialect, Event, EventBody, FinishReason, ItemId, MessagePurpose, ModelRef, Op, OpId,
    Origin, OutcomeKind, Part, Purpose, Seq, SessionId, StopReason, Timestamp, Timings, TurnId,
    TurnOutcome, Usage,
};
use rusqlite::{Connection, params};
use serde_json::Value;
use transcript::fold_turn;

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
    add(data_dir, session, turns, |turn, item| {
        let bodies = one_turn(turn, item, model);
        bodies.into_iter().map(|body| (0, body)).collect()
    });
}

/// Adds one finished turn whose answer came in `pieces` pieces, one every 40 ms, after a wait of ten minutes. Says
/// what the answer is. No engine may have the folder open.
pub fn add_long_answer(
    data_dir: &Path,
    session: SessionId,
    model: &ModelRef,
    pieces: u64,
) -> String {
    let mut answer = String::new();
    add(data_dir, session, 1, |turn, item| {
        let [message, start, step, _, step_end, end] = one_turn(turn, item, model);
        let mut bodies = vec![(0, message), (0, start), (5, step)];
        for number in 0..pieces {
            let text = format!("piece{number} ");
            let offset = answer.len() as u64;
            answer.push_str(&text);
            let wait_ms = if number == 0 { 600_000 } else { 40 };
            bodies.push((
                wait_ms,
                EventBody::TextAppended {
                    item: ItemId::new(item + 1),
                    part: Part::Answer,
                    offset,
                    text,
                },
            ));
        }
        bodies.extend([(0, step_end), (0, end)]);
        bodies
    });
    answer
}

/// Moves all events of a session up by as many, as if that many had come before and were gone. No engine may have the
/// folder open.
pub fn move_up(data_dir: &Path, session: SessionId, by: u64) {
    let mut db = Connection::open(data_dir.join(DATABASE)).expect("the database opens");
    let write = db.transaction().expect("a transaction");
    let refusals = write
        .prepare(
            "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'events'",
        )
        .and_then(|mut triggers| {
            let triggers = triggers.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            triggers.collect::<Result<Vec<(String, String)>, _>>()
        })
        .expect("what refuses to rewrite history");
    for (name, _) in &refusals {
        let dropped = write.execute_batch(&format!("DROP TRIGGER {name}"));
        dropped.expect("this once it is rewritten");
    }
    let key = "(SELECT stream FROM streams WHERE session = ?2)";
    for moved in [
        format!("UPDATE events SET seq = seq + ?1 WHERE stream = {key}"),
        format!("UPDATE turns SET first_seq = first_seq + ?1 WHERE stream = {key}"),
        format!("DELETE FROM heads WHERE ?1 > 0 AND stream = {key}"),
    ] {
        let by = i64::try_from(by).expect("a number that SQLite has");
        let session = session.bits().to_be_bytes();
        let rows = write.execute(&moved, params![by, session]);
        assert!(rows.expect("moved") > 0, "{moved}");
    }
    for (_, sql) in &refusals {
        write.execute_batch(sql).expect("and never again");
    }
    write.commit().expect("all of it, or nothing");
}

/// Adds turns; `bodies` are those of the turn of that number whose first item has the other number, each so many milliseconds
/// after the one before.
fn add(
    data_dir: &Path,
    session: SessionId,
    turns: u64,
    mut bodies: impl FnMut(u64, u64) -> Vec<(i64, EventBody)>,
) {
    let mut db = Connection::open(data_dir.join(DATABASE)).expect("the database opens");
    let write = db.transaction().expect("a transaction");
    let stream: i64 = write
        .query_row(
            "SELECT stream FROM streams WHERE session = ?1",
            [session.bits().to_be_bytes()],
            |row| row.get(0),
        )
        .expect("the session exists");
    let (mut seq, mut turn, mut item, mut at): (i64, i64, i64, i64) = write
        .query_row(
            "SELECT max(seq), max(turn), max(item), max(at) FROM events WHERE stream = ?1",
            [stream],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
        )
        .expect("the session has a turn");
    for _ in 0..turns {
        turn += 1;
        let first = seq + 1;
        let mut events = Vec::new();
        for (wait_ms, body) in bodies(number(turn), number(item) + 1) {
            seq += 1;
            at += wait_ms;
            let mut fields = serde_json::to_value(&body).expect("an event has a JSON form");
            if let Value::Object(fields) = &mut fields {
                fields.remove("kind");
            }
            let own = body
                .item()
                .map(|item| i64::try_from(item.get()).expect("a small number"));
            item = own.map_or(item, |own| own.max(item));
            write
                .prepare_cached(
                    "INSERT INTO events (stream, seq, turn, item, kind, at, body)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                )
                .and_then(|mut insert| {
                    let text = fields.to_string();
                    insert.execute(params![stream, seq, turn, own, body.kind(), at, text])
                })
                .expect("the log takes the event");
            events.push(Event {
                seq: Seq::new(number(seq)),
                at: Timestamp::from_millis(at),
                turn: Some(TurnId::new(number(turn))),
                body,
            });
        }
        write
            .execute(
                "INSERT INTO turns (stream, turn, first_seq) VALUES (?1, ?2, ?3)",
                params![stream, turn, first],
            )
            .expect("the turn begins somewhere");
        let view = fold_turn(&events).expect("a turn that ended has a view");
        let view = serde_json::to_string(&view).expect("a view has a JSON form");
        write
            .execute(
                "INSERT INTO turn_views (stream, turn, body) VALUES (?1, ?2, ?3)",
                params![stream, turn, view],
            )
            .expect("the view is kept");
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

/// What the user says in a turn. The turn's number makes it unlike all others.
pub fn question(turn: u64) -> String {
    format!("Question {turn}: and what of the tides, how do they move the kelp?")
}

/// What the model says: four answers of five have code in them, which are two messages of five.
fn answer(turn: u64) -> String {
    const SENTENCES: [&str; 4] = [
        "They pull it to and fro, twice a day, and the holdfast keeps it where it is.",
        "The moon does most of the pulling; the sun helps when they stand in a line, and hinders when they do not.",
        "A stipe of *Macrocystis* bends and does not break, because it floats on gas of its own making.",
        "What tears it loose is a **storm**, and then it drifts, still alive, for as long as `light` reaches it.",
    ];
    let mut text = format!("Answer {turn}. ");
    for n in 0..2 + turn % 3 {
        let first = (turn + n) as usize;
        for sentence in SENTENCES.iter().cycle().skip(first % 4).take(3) {
            text.push_str(sentence);
            text.push(' ');
        }
        text.push_str("\n\n");
    }
    if turn.is_multiple_of(3) {
        text.push_str(
            "- the blade, which gathers light\n- the stipe, which carries it\n- the holdfast\n\n",
        );
    }
    if !turn.is_multiple_of(5) {
        text.push_str("```rust\n");
        for line in 0..6 + turn % 13 {
            text.push_str(&format!(
                "let height_{line} = tide.at(hour + {line}) * {turn}; // in metres\n"
            ));
        }
        text.push_str("```\n\nSo much for turn ");
        text.push_str(&turn.to_string());
        text.push('.');
    }
    text
}

fn one_turn(turn: u64, item: u64, model: &ModelRef) -> [EventBody; 6] {
    let message = ItemId::new(item);
    [
        EventBody::UserMessageAdded {
            item: message,
            text: question(turn),
            op: OpId::from_bits(random_u128()),
            purpose: MessagePurpose::Said,
            images: Vec::new(),
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
            purpose: Purpose::Answer,
        },
        EventBody::TextAppended {
            item: message.next(),
            part: Part::Answer,
            offset: 0,
            text: answer(turn),
        },
        EventBody::StepEnded {
            step: 1,
            finish: FinishReason::Stop,
            usage: Usage::default(),
            timings: Timings::default(),
            unread: None,
            unseen_images: 0,
            untold_tools: 0,
        },
        EventBody::TurnEnded {
            outcome: TurnOutcome::Completed {
                stop: StopReason::EndOfTurn,
            },
        },
    ]
}
