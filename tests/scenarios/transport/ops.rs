//! Ops over a transport that runs a command twice.

use std::collections::BTreeMap;

use protocol::{
    Answer as Word, ErrorCode, Event, Op, OpId, Phase, Provider, SessionId, StreamId, TimeLimits,
};
use serde_json::json;
use tests::{
    backend::{Missed, refusal},
    client::Page,
    file_server::model_file,
    model_server::{Answer, ModelServer},
    sentinel::random_u128,
    verdict::judge,
    world::World,
};

use super::DIALECT;

/// Everything that is in the log, by stream.
fn everything(world: &World, sessions: &[SessionId]) -> BTreeMap<String, Vec<Event>> {
    let mut logs = BTreeMap::new();
    let reader = world.reader();
    let library = reader.events(StreamId::Library, None, usize::MAX);
    logs.insert("library".to_owned(), library.expect("it can be read"));
    for session in sessions {
        // One that was never begun has no log.
        let events = reader.events(StreamId::Session(*session), None, usize::MAX);
        logs.insert(session.to_string(), events.unwrap_or_default());
    }
    logs
}

/// The same kind of op with other content.
fn otherwise(op: &Op) -> Op {
    match op.clone() {
        Op::StartSession {
            session,
            model,
            folder,
            ..
        } => Op::StartSession {
            session,
            model,
            text: "Otherwise".to_owned(),
            folder,
            options: protocol::ModelOptions::default(),
            images: Vec::new(),
        },
        Op::EditMessage {
            session,
            turn,
            expected_tip,
            ..
        } => Op::EditMessage {
            session,
            turn,
            text: "Otherwise".to_owned(),
            expected_tip,
            images: None,
        },
        Op::SendMessage { session, .. }
        | Op::CancelTurn { session, .. }
        | Op::RetryTurn { session, .. }
        | Op::ContinueTurn { session, .. }
        | Op::RestoreTurn { session, .. }
        | Op::NoteSeen { session, .. }
        | Op::AnswerApproval { session, .. }
        | Op::RenameSession { session, .. }
        | Op::BinSession { session }
        | Op::UnbinSession { session }
        | Op::ChooseModel { session, .. }
        | Op::ChooseFolder { session, .. }
        | Op::ChooseOptions { session, .. }
        | Op::AddSample { session } => Op::message(session, "Otherwise"),
        Op::ChangeTimeLimits { limits } => Op::ChangeTimeLimits {
            limits: TimeLimits {
                connect_ms: limits.connect_ms + 1,
                ..limits
            },
        },
        Op::ChooseFallbacks { .. }
        | Op::ChangeModelOptions { .. }
        | Op::PullModel { .. }
        | Op::CancelPull { .. }
        | Op::AddModelFile { .. }
        | Op::ChoosePrices { .. }
        | Op::AddProvider { .. }
        | Op::ChangeProvider { .. }
        | Op::RemoveProvider { .. } => Op::ChooseFallbacks { models: Vec::new() },
    }
}

/// Submits an op twice at once and once more, and then the same id with other content.
async fn twice(world: &World, op: &Op) -> OpId {
    let id = OpId::from_bits(random_u128());
    let (one, two) = tokio::join!(
        world.line.submit(id, op.clone()),
        world.line.submit(id, op.clone())
    );
    let receipt = one.unwrap_or_else(|error| panic!("{op:?}: {error:?}"));
    assert_eq!(two.expect("taken"), receipt, "{op:?}: at once");
    let third = world.line.submit(id, op.clone()).await;
    assert_eq!(third.expect("taken"), receipt, "{op:?}: in turn");
    // The request to stop is no event; asking twice is asking once, under whatever id.
    if !matches!(op, Op::CancelTurn { .. }) && otherwise(op) != *op {
        let other = world.line.submit(id, otherwise(op)).await;
        assert_eq!(refusal(other), ErrorCode::OpIdConflict, "{op:?}");
    }
    id
}

/// `double-invoke`. Mutants: `NoOpId`, `NoOpIdInWriter`.
#[tokio::test(flavor = "multi_thread")]
async fn every_op_that_is_executed_twice_runs_once_also_after_a_restart() {
    let (server, mut world) = (ModelServer::start(DIALECT), World::new().await);
    let other = ModelServer::start(DIALECT);
    let folder = world.data_dir().join("files");
    std::fs::create_dir_all(&folder).expect("a folder");
    let session = SessionId::from_bits(random_u128());
    let sample = SessionId::from_bits(random_u128());
    let mut ran: Vec<(OpId, Op)> = Vec::new();
    let mut run = async |world: &World, op: Op| {
        let id = twice(world, &op).await;
        ran.push((id, op));
    };

    let spare = other.provider();
    let renamed = Provider {
        name: "Another name".to_owned(),
        ..spare.clone()
    };
    run(
        &world,
        Op::AddProvider {
            provider: server.provider(),
        },
    )
    .await;
    run(
        &world,
        Op::AddProvider {
            provider: spare.clone(),
        },
    )
    .await;
    run(&world, Op::ChangeProvider { provider: renamed }).await;
    run(
        &world,
        Op::ChooseFallbacks {
            models: vec![other.model()],
        },
    )
    .await;
    run(
        &world,
        Op::ChooseFallbacks {
            models: vec![server.model()],
        },
    )
    .await;
    run(&world, Op::RemoveProvider { provider: spare.id }).await;
    run(
        &world,
        Op::ChangeTimeLimits {
            limits: world.limits,
        },
    )
    .await;
    let file = folder.join("kelp.gguf");
    std::fs::write(&file, model_file("Kelp", 100)).expect("a model");
    let path = file.to_str().expect("text").to_owned();
    run(&world, Op::AddModelFile { path }).await;
    run(&world, Op::AddSample { session: sample }).await;

    server.script(
        Answer::new(DIALECT)
            .calls("write_file", json!({ "path": "a.txt", "content": "a" }))
            .ends(),
    );
    server.script(Answer::whole(DIALECT, "Written."));
    let start = Op::StartSession {
        session,
        model: server.model(),
        text: "Write.".to_owned(),
        folder: Some(folder.display().to_string()),
        options: protocol::ModelOptions::default(),
        images: Vec::new(),
    };
    run(&world, start).await;
    let window = Page::load(&world.line, "main").await.follow(session);
    let asks = |status: &protocol::Status| matches!(status.phase, Phase::Asking { .. });
    let status = window.until_status("the question", asks).await;
    let (Phase::Asking { item }, Some(turn)) = (status.phase, status.turn) else {
        panic!("it asks")
    };
    let answer = Word::AllowOnce;
    run(
        &world,
        Op::AnswerApproval {
            session,
            turn,
            item,
            answer,
        },
    )
    .await;
    window.sees("Written.").await;
    window.until_idle().await;

    let newest = || {
        window.look(|shown| {
            let shown = shown.expect("something is shown");
            let turn = shown.turns().next_back().expect("a turn");
            (turn.turn, shown.tip().expect("a tip"))
        })
    };
    for word in ["Retried.", "Edited."] {
        server.script(Answer::whole(DIALECT, word));
        let (turn, expected_tip) = newest();
        let text = "Otherwise put".to_owned();
        let op = match word {
            "Retried." => Op::RetryTurn {
                session,
                turn,
                expected_tip,
            },
            _ => Op::EditMessage {
                session,
                turn,
                text,
                expected_tip,
                images: None,
            },
        };
        run(&world, op).await;
        window.sees(word).await;
        window.until_idle().await;
    }
    let page = window.to_page().expect("something is shown");
    let (taken_out, (_, expected_tip)) = (page.taken_out.expect("one was edited"), newest());
    let restore = Op::RestoreTurn {
        session,
        turn: taken_out,
        expected_tip,
    };
    run(&world, restore).await;
    let is_back = |shown: &transcript::Transcript| shown.turn(taken_out).map(|_| ());
    window.until_shown("the turn to be back", is_back).await;

    server.script(Answer::new(DIALECT).says("On and on").goes_silent());
    let text = "Go on?".to_owned();
    run(&world, Op::message(session, text)).await;
    window.sees("On and on").await;
    let (turn, _) = newest();
    run(&world, Op::CancelTurn { session, turn }).await;
    window.until_idle().await;
    server.script(Answer::whole(DIALECT, "Continued."));
    let (turn, expected_tip) = newest();
    run(
        &world,
        Op::ContinueTurn {
            session,
            turn,
            expected_tip,
        },
    )
    .await;
    window.sees("Continued.").await;
    window.until_idle().await;

    let title = "A title".to_owned();
    run(&world, Op::RenameSession { session, title }).await;
    run(
        &world,
        Op::ChooseModel {
            session,
            model: server.model(),
        },
    )
    .await;
    run(
        &world,
        Op::ChooseFolder {
            session,
            folder: None,
        },
    )
    .await;
    let options = protocol::ModelOptions {
        num_ctx: Some(8192),
        ..protocol::ModelOptions::default()
    };
    run(
        &world,
        Op::ChooseOptions {
            session,
            options: options.clone(),
        },
    )
    .await;
    run(
        &world,
        Op::ChangeModelOptions {
            model: server.model(),
            options,
        },
    )
    .await;
    run(&world, Op::BinSession { session }).await;
    run(&world, Op::UnbinSession { session }).await;

    let before = everything(&world, &[session, sample]);
    let mut receipts = Vec::new();
    for (id, op) in &ran {
        receipts.push(world.line.submit(*id, op.clone()).await);
    }
    world.restart().await;
    for ((id, op), then) in ran.iter().zip(receipts) {
        let now: Result<_, Missed> = world.line.submit(*id, op.clone()).await;
        assert_eq!(now, then, "{op:?}: in another boot");
        assert!(now.is_ok(), "{op:?}: {now:?}");
    }
    assert_eq!(
        everything(&world, &[session, sample]),
        before,
        "and nothing of it ran again"
    );
    assert_eq!(server.counters().chats, 6, "each turn was asked for once");
    assert_eq!(
        std::fs::read_to_string(folder.join("a.txt")).expect("it is there"),
        "a"
    );
    judge(&world, session, &[&window]).await;
}
