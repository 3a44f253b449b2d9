//! The guards of downloads, and of what is known of models.

use std::time::Duration;

use engine::{gate::Gate, mutant::Mutant};
use protocol::{ManageModelArgs, ModelAction, Op, ProbeReport, PullState};
use tests::{
    model_server::{Download, MODEL, ModelServer},
    watched::within_limit,
    world::World,
};

use super::set;

async fn begun(world: &World, server: &ModelServer) {
    world.add(server.provider()).await;
    let op = Op::PullModel {
        provider: server.provider().id,
        model: "kelp".to_owned(),
    };
    world.submit(op).await.expect("it begins");
}

/// Waits until the one download is such, and says that.
pub(super) async fn told<T>(world: &World, such: impl Fn(&PullState) -> Option<T>) -> T {
    let look = async {
        let mut seen = None;
        loop {
            let pulls = world
                .engine()
                .pulls(seen, 8_000)
                .await
                .expect("they are told");
            if let Some(found) = pulls.pulls.first().and_then(|pull| such(&pull.state)) {
                return found;
            }
            seen = Some(pulls.revision);
        }
    };
    within_limit("the download", look).await
}

/// The server begins a part anew.
pub(super) async fn anew(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    server.download(
        Download::new()
            .part("aaa", 1_000, 700)
            .gate("shown")
            .part("aaa", 1_000, 200)
            .status("verifying")
            .gate("anew")
            .succeeds(),
    );
    begun(&world, &server).await;
    told(&world, |state| match state {
        PullState::Running { progress } if progress.permille == 700 => Some(()),
        _ => None,
    })
    .await;
    server.pass("shown").await;
    let permille = told(&world, |state| match state {
        PullState::Running { progress } if progress.status == "verifying" => {
            Some(progress.permille)
        }
        _ => None,
    })
    .await;
    server.pass("anew").await;
    format!("shown{permille}")
}

/// The bytes end before the server has the model.
pub(super) async fn cut(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    server.download(Download::new().part("aaa", 1_000, 700).is_cut());
    begun(&world, &server).await;
    told(&world, |state| match state {
        PullState::Failed { failure } => Some(format!("failed: {:?}", failure.code)),
        PullState::Completed { .. } => Some("completed".to_owned()),
        PullState::Waiting | PullState::Running { .. } | PullState::Interrupted => None,
    })
    .await
}

/// A download fails while somebody has read the log and not yet looked at those that run.
pub(super) async fn ends_meanwhile(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    let runs = Download::new().status("pulling").gate("end");
    server.download(runs.fails("no room on the disk"));
    begun(&world, &server).await;
    server.arrived("end").await;
    world.gates.hold(Gate::PullsRead);
    let engine = world.engine().clone();
    let mut asking = tokio::task::JoinSet::new();
    asking.spawn(async move { engine.pulls(None, 8_000).await });
    world.gates.arrived(Gate::PullsRead).await;
    server.pass("end").await;
    // Whoever asks now is told of its end.
    told(&world, |state| match state {
        PullState::Failed { .. } => Some(()),
        _ => None,
    })
    .await;
    world.gates.release(Gate::PullsRead);
    match within_limit("the downloads", asking.join_next()).await {
        Some(Ok(Ok(pulls))) => format!("told{}", pulls.pulls.len()),
        other => format!("{other:?}"),
    }
}

/// A look at a model takes long.
pub(super) async fn slow_look(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    world.add(server.provider()).await;
    server.holds_looks("look");
    let (engine, provider) = (world.engine().clone(), server.provider().id);
    let mut listing = tokio::task::JoinSet::new();
    listing.spawn(async move { engine.models(provider).await });
    server.arrived("look").await;
    let verdict = if mutant.is_none() {
        world.clock.until_armed(Duration::from_millis(400)).await;
        world.clock.advance(Duration::from_millis(400));
        match within_limit("the list", listing.join_next()).await {
            Some(Ok(ProbeReport::Works { models, .. })) => format!("listed{}", models.len()),
            other => format!("{other:?}"),
        }
    } else {
        // It waits for nothing but the look, which is held.
        world.clock.advance(Duration::from_secs(5));
        format!("listed{}", u8::from(listing.try_join_next().is_some()))
    };
    server.release("look");
    if mutant.is_some() {
        drop(within_limit("the list", listing.join_next()).await);
    }
    verdict
}

/// A copy is to have the name of another model.
pub(super) async fn copy_over(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    world.add(server.provider()).await;
    server.stocks("beacon:1b", &["completion", "vision"]);
    let action = ModelAction::Copy {
        model: MODEL.to_owned(),
        to: "beacon:1b".to_owned(),
    };
    let provider = server.provider().id;
    match world
        .engine()
        .manage_model(ManageModelArgs { provider, action })
        .await
    {
        Ok(()) => "replaced1".to_owned(),
        Err(report) => format!("{:?}", report.code),
    }
}
