//! The guards of model files.

use std::sync::atomic::Ordering;

use engine::mutant::Mutant;
use protocol::{Op, ProviderId, PullState};
use tests::{
    backend::Missed,
    file_server::{FileServer, Served, model_file},
    world::World,
};

use super::pulling::told;

const WEIGHTS: u32 = 600_000;

async fn set(mutant: Option<Mutant>) -> (World, FileServer) {
    let mut world = World::without_engine();
    world.mutant = mutant;
    world.open().await;
    (world, FileServer::start())
}

async fn begun(world: &World, server: &FileServer) {
    let op = Op::PullModel {
        provider: ProviderId::THIS_COMPUTER,
        model: server.url("kelp.gguf"),
    };
    world.submit(op).await.expect("it begins");
}

async fn ended(world: &World) -> String {
    told(world, |state| match state {
        PullState::Failed { failure } => Some(format!("failed: {:?}", failure.code)),
        PullState::Completed { .. } => Some("completed".to_owned()),
        PullState::Waiting | PullState::Running { .. } | PullState::Interrupted => None,
    })
    .await
}

/// Nobody says how long the file is, and its end does not come.
pub(super) async fn cut(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    let file = Served::of(model_file("Kelp", WEIGHTS)).unsized_body();
    server.put("kelp.gguf", file.cut_after(200_000));
    begun(&world, &server).await;
    ended(&world).await
}

/// The file is another one when the download goes on.
pub(super) async fn changed(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    let old = Served::of(model_file("Kelp", WEIGHTS)).marked("one");
    server.put("kelp.gguf", old.cut_after(200_000));
    begun(&world, &server).await;
    ended(&world).await;
    let file = model_file("Moss", WEIGHTS);
    server.put("kelp.gguf", Served::of(file.clone()).marked("two"));
    begun(&world, &server).await;
    told(&world, |state| {
        matches!(state, PullState::Completed { .. }).then_some(())
    })
    .await;
    let kept = std::fs::read(world.data_dir().join("models/kelp.gguf")).expect("the file");
    format!("whole{}", u8::from(kept == file))
}

/// What came is not what was announced.
pub(super) async fn exchanged(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    let file = Served::of(model_file("Kelp", WEIGHTS));
    let other = format!("\"{}\"", "0".repeat(64));
    server.put("kelp.gguf", file.with("x-linked-etag", &other));
    begun(&world, &server).await;
    ended(&world).await
}

/// A web page that goes on and on, and does not say that it is one.
pub(super) async fn page(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    let page = format!("<!DOCTYPE html>{}", "hello ".repeat(1_000));
    server.put("kelp.gguf", Served::of(page).gate_after(3_000, "held"));
    begun(&world, &server).await;
    let verdict = told(&world, |state| match state {
        PullState::Failed { failure } => Some(format!("failed: {:?}", failure.code)),
        PullState::Running { progress } if progress.completed_bytes > 0 => Some("taken".to_owned()),
        PullState::Waiting
        | PullState::Running { .. }
        | PullState::Interrupted
        | PullState::Completed { .. } => None,
    })
    .await;
    server.pass("held").await;
    verdict
}

/// The disk is nearly full.
pub(super) async fn no_room(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    world.free_bytes.store(200 * 1024 * 1024, Ordering::Relaxed);
    server.put("kelp.gguf", Served::of(model_file("Kelp", WEIGHTS)));
    begun(&world, &server).await;
    ended(&world).await
}

/// A picture is to be added.
pub(super) async fn picture(mutant: Option<Mutant>) -> String {
    let (world, _server) = set(mutant).await;
    let path = world.data_dir().join("picture.png");
    std::fs::write(&path, b"\x89PNG\r\n").expect("a picture");
    let path = path.to_str().expect("text").to_owned();
    match world.submit(Op::AddModelFile { path }).await {
        Ok(_) => "added".to_owned(),
        Err(Missed::Refused(report)) => format!("{:?}", report.code),
        Err(other) => format!("{other:?}"),
    }
}
