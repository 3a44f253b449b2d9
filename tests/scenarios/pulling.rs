//! Models of a server: a download belongs to no window, never goes back, and is named again after a restart; what is
//! known of models is told without anybody waiting for it.

use std::time::Duration;

use engine::gate::Gate;
use protocol::{
    Boot, Dialect, ErrorCode, EventBody, FailureCode, ManageModelArgs, Model, ModelAction, Op,
    OpId, ProbeReport, PullOutcome, PullState, PullView, StreamId,
};
use tests::{
    backend::Missed,
    model_server::{Answer, Download, MODEL, ModelServer, model_of},
    sentinel::random_u128,
    watched::within_limit,
    world::World,
};

const DIALECT: Dialect = Dialect::Ollama;

async fn set() -> (ModelServer, World) {
    let (server, world) = (ModelServer::start(DIALECT), World::new().await);
    world.add(server.provider()).await;
    (server, world)
}

fn pull_of(server: &ModelServer, model: &str) -> Op {
    Op::PullModel {
        provider: server.provider().id,
        model: model.to_owned(),
    }
}

fn cancel_of(server: &ModelServer, model: &str) -> Op {
    Op::CancelPull {
        provider: server.provider().id,
        model: model.to_owned(),
    }
}

/// Waits until the pulls are such.
pub(super) async fn until(
    world: &World,
    what: &str,
    such: impl Fn(&[PullView]) -> bool,
) -> Vec<PullView> {
    let look = async {
        let mut seen = None;
        loop {
            let pulls = world
                .engine()
                .pulls(seen, 8_000)
                .await
                .expect("they are told");
            if such(&pulls.pulls) {
                return pulls.pulls;
            }
            seen = Some(pulls.revision);
        }
    };
    within_limit(what, look).await
}

/// Such a download is the only one.
pub(super) fn only(such: impl Fn(&PullState) -> bool) -> impl Fn(&[PullView]) -> bool {
    move |pulls| matches!(pulls, [pull] if such(&pull.state))
}

fn bytes(state: &PullState) -> Option<u64> {
    match state {
        PullState::Running { progress } => Some(progress.completed_bytes),
        _ => None,
    }
}

async fn models(world: &World, server: &ModelServer) -> Vec<Model> {
    match world.engine().models(server.provider().id).await {
        ProbeReport::Works { models, .. } => models,
        ProbeReport::Fails { failure } => panic!("{failure:?}"),
    }
}

fn refusal<T: std::fmt::Debug>(answer: Result<T, Missed>) -> protocol::ErrorReport {
    match answer {
        Err(Missed::Refused(report)) => report,
        other => panic!("{other:?}"),
    }
}

fn pull_events(world: &World) -> Vec<EventBody> {
    let events = world.reader().events(StreamId::Library, None, usize::MAX);
    let events = events.expect("the library can be read").into_iter();
    events
        .map(|event| event.body)
        .filter(|body| body.kind().starts_with("ModelPull"))
        .collect()
}

/// B78. Nobody looks while the last part comes, and it comes all the same; nothing ever went back, and the log has one
/// line for the beginning and one for the end.
#[tokio::test(flavor = "multi_thread")]
async fn a_download_goes_on_without_anybody_and_never_goes_back() {
    let (server, world) = set().await;
    server.download(
        Download::new()
            .part("aaa", 1_000, 0)
            .part("aaa", 1_000, 700)
            .gate("first")
            .part("bbb", 3_000, 100)
            .part("aaa", 1_000, 300)
            .part("bbb", 0, 200)
            .gate("second")
            .part("bbb", 3_000, 2_900)
            .part("aaa", 1_000, 1_000)
            .gate("third")
            .succeeds(),
    );
    world
        .submit(pull_of(&server, "kelp:7b"))
        .await
        .expect("it begins");
    let shown = until(
        &world,
        "the first part",
        only(|state| bytes(state) == Some(700)),
    )
    .await;
    let PullState::Running { progress } = &shown[0].state else {
        panic!("{shown:?}")
    };
    assert_eq!(
        (progress.permille, progress.total_bytes),
        (700, Some(1_000))
    );
    server.pass("first").await;
    let shown = until(
        &world,
        "the second part",
        only(|state| bytes(state) == Some(900)),
    )
    .await;
    let PullState::Running { progress } = &shown[0].state else {
        panic!("{shown:?}")
    };
    assert_eq!(
        progress.permille, 700,
        "the whole grew, and what was shown stays shown"
    );
    assert_eq!(progress.layers.len(), 2);
    assert_eq!(progress.layers[0].completed_bytes, 700);
    server.pass("second").await;
    until(
        &world,
        "nearly all",
        only(|state| bytes(state) == Some(3_900)),
    )
    .await;
    server.stocks("kelp:7b", &["completion", "vision"]);
    server.pass("third").await;
    // Whoever looks again later sees how it ended.
    until(
        &world,
        "the end",
        only(|state| matches!(state, PullState::Completed { .. })),
    )
    .await;
    assert_eq!(world.engine().running_pulls(), 0);
    let model = model_of(&server.provider(), "kelp:7b");
    assert_eq!(
        pull_events(&world),
        [
            EventBody::ModelPullStarted {
                boot: world.engine().boot(),
                model: model.clone(),
            },
            EventBody::ModelPullEnded {
                model: model.clone(),
                outcome: PullOutcome::Completed,
            },
        ]
    );
    let names: Vec<_> = models(&world, &server)
        .await
        .into_iter()
        .map(|m| m.name)
        .collect();
    assert_eq!(names, [MODEL, "kelp:7b"]);
    server.script(Answer::whole(DIALECT, "Here I am."));
    let session = world.begin_with(model, "Are you there?").await;
    let text = world.page().await.follow(session).until_idle().await;
    assert!(text.contains("model: Here I am."), "{text}");
    assert_eq!(server.chat(1).await.json()["model"], "kelp:7b");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_that_holdfast_did_not_outlive_is_named_and_goes_on_when_asked_to() {
    let (server, mut world) = set().await;
    server.download(Download::new().part("aaa", 1_000, 700).goes_silent());
    world
        .submit(pull_of(&server, "kelp:7b"))
        .await
        .expect("it begins");
    until(&world, "the part", only(|state| bytes(state) == Some(700))).await;
    let boot: Boot = world.engine().boot();
    world.restart().await;
    server
        .until("the server hears of it", |counted| {
            counted.closed_by_us == 1
        })
        .await;
    assert_ne!(world.engine().boot(), boot);
    until(
        &world,
        "its name",
        only(|state| matches!(state, PullState::Interrupted)),
    )
    .await;
    assert_eq!(server.pulls().len(), 1, "nothing resumes by itself");

    server.download(Download::new().part("aaa", 1_000, 900).succeeds());
    world
        .submit(pull_of(&server, "kelp:7b"))
        .await
        .expect("it goes on");
    until(
        &world,
        "the end",
        only(|state| matches!(state, PullState::Completed { .. })),
    )
    .await;
    world.restart().await;
    until(&world, "nothing", <[PullView]>::is_empty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_that_failed_says_why_until_it_is_asked_for_again_or_dismissed() {
    let (server, mut world) = set().await;
    let failed = |code| {
        only(move |state| matches!(state, PullState::Failed { failure } if failure.code == code))
    };
    server.download(
        Download::new()
            .part("aaa", 10, 9)
            .fails("max retries exceeded: EOF"),
    );
    world
        .submit(pull_of(&server, "kelp"))
        .await
        .expect("it begins");
    let shown = until(&world, "why", failed(FailureCode::ProviderError)).await;
    let PullState::Failed { failure } = &shown[0].state else {
        panic!("{shown:?}")
    };
    assert!(
        failure.message.contains("max retries exceeded: EOF"),
        "{failure:?}"
    );
    world.restart().await;
    until(
        &world,
        "why, after a restart",
        failed(FailureCode::ProviderError),
    )
    .await;

    server.download(Download::new().part("aaa", 10, 9).is_cut());
    // Under another spelling of the same name it is the same one.
    world
        .submit(pull_of(&server, "Kelp:latest"))
        .await
        .expect("it begins");
    until(&world, "the cut", failed(FailureCode::StreamCut)).await;
    world
        .submit(cancel_of(&server, "kelp"))
        .await
        .expect("it is dismissed");
    until(&world, "nothing", <[PullView]>::is_empty).await;
    let again = refusal(world.submit(cancel_of(&server, "kelp")).await);
    assert_eq!(again.code, ErrorCode::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_for_minutes_is_waited_for_and_named_in_the_end() {
    let (server, world) = set().await;
    server.download(Download::new().part("aaa", 10, 1).goes_silent());
    world
        .submit(pull_of(&server, "kelp"))
        .await
        .expect("it begins");
    until(&world, "the part", only(|state| bytes(state) == Some(1))).await;
    let patience = world.first_event();
    world.clock.until_armed(patience).await;
    world.clock.advance(patience - Duration::from_secs(1));
    assert_eq!(
        world.engine().running_pulls(),
        1,
        "nine minutes are nothing"
    );
    world.clock.advance(Duration::from_secs(1));
    let silent = |state: &PullState| matches!(state, PullState::Failed { failure } if failure.code == FailureCode::IdleTimeout);
    until(&world, "the end of patience", only(silent)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_a_download_closes_its_connection_and_two_run_while_others_wait() {
    let (server, world) = set().await;
    for _ in 0..2 {
        server.download(Download::new().part("aaa", 10, 1).goes_silent());
    }
    let waiting = |pulls: &[PullView]| {
        let count = |such: fn(&PullState) -> bool| pulls.iter().filter(|p| such(&p.state)).count();
        (
            count(|state| bytes(state) == Some(1)),
            count(|state| matches!(state, PullState::Waiting)),
        )
    };
    for model in ["one", "two", "three"] {
        world
            .submit(pull_of(&server, model))
            .await
            .expect("it begins");
    }
    until(&world, "two run and one waits", |pulls| {
        waiting(pulls) == (2, 1)
    })
    .await;
    assert_eq!(server.pulls().len(), 2);
    let twice = refusal(world.submit(pull_of(&server, "ONE")).await);
    assert_eq!(
        twice.code,
        ErrorCode::Invalid {
            field: "model".into()
        }
    );

    let first = server.pulls()[0].json()["model"]
        .as_str()
        .unwrap()
        .to_owned();
    server.download(Download::new().part("aaa", 10, 1).goes_silent());
    world
        .submit(cancel_of(&server, &first))
        .await
        .expect("it stops");
    server
        .until("the server hears of it", |counted| {
            counted.closed_by_us == 1
        })
        .await;
    until(&world, "the third runs", |pulls| waiting(pulls) == (2, 0)).await;
    for pull in until(&world, "two", |pulls| pulls.len() == 2).await {
        let stop = cancel_of(&server, &pull.model.model);
        world.submit(stop).await.expect("it stops");
    }
    server
        .until("all are closed", |counted| counted.closed_by_us == 3)
        .await;
    until(&world, "nothing", <[PullView]>::is_empty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn asking_twice_under_one_id_downloads_once_and_what_is_no_name_is_refused() {
    let (server, world) = set().await;
    server.download(Download::new().part("aaa", 10, 1).gate("held").succeeds());
    let id = OpId::from_bits(random_u128());
    let op = pull_of(&server, " kelp ");
    let (one, two) = tokio::join!(
        world.line.submit(id, op.clone()),
        world.line.submit(id, op.clone())
    );
    assert_eq!(one.expect("it begins"), two.expect("it is the same"));
    server.pass("held").await;
    until(
        &world,
        "the end",
        only(|state| matches!(state, PullState::Completed { .. })),
    )
    .await;
    assert_eq!(server.pulls().len(), 1);
    assert_eq!(server.pulls()[0].json()["model"], "kelp");
    for typed in ["", "two words", "https://example.org/kelp"] {
        let report = refusal(world.submit(pull_of(&server, typed)).await);
        assert_eq!(
            report.code,
            ErrorCode::Invalid {
                field: "model".into()
            },
            "{typed:?}"
        );
    }
    let other = ModelServer::start(Dialect::OpenAiChat);
    world.add(other.provider()).await;
    let report = refusal(world.submit(pull_of(&other, "kelp")).await);
    assert_eq!(
        report.code,
        ErrorCode::Invalid {
            field: "provider".into()
        }
    );
}

async fn manage(
    world: &World,
    server: &ModelServer,
    action: ModelAction,
) -> Result<(), protocol::ErrorReport> {
    let provider = server.provider().id;
    world
        .engine()
        .manage_model(ManageModelArgs { provider, action })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_is_copied_under_a_free_name_unloaded_and_deleted() {
    let (server, world) = set().await;
    let own = || MODEL.to_owned();
    let copy = |to: &str| ModelAction::Copy {
        model: own(),
        to: to.to_owned(),
    };
    let names = async || {
        let models = models(&world, &server).await.into_iter();
        models.map(|model| model.name).collect::<Vec<_>>()
    };
    manage(&world, &server, copy("beacon:1b"))
        .await
        .expect("it is copied");
    assert_eq!(names().await, [MODEL, "beacon:1b"]);
    for taken in ["beacon:1b", "Beacon:1B", "lighthouse:1B", "two words", ""] {
        let report = manage(&world, &server, copy(taken)).await.expect_err(taken);
        assert_eq!(
            report.code,
            ErrorCode::Invalid { field: "to".into() },
            "{taken:?}"
        );
    }
    let loaded = models(&world, &server).await.remove(0);
    assert_eq!(loaded.loaded, Some(true));
    assert!(loaded.expires_at.is_some(), "{loaded:?}");
    assert_eq!(loaded.vram_bytes, Some(0));
    let unload = ModelAction::Unload { model: own() };
    manage(&world, &server, unload)
        .await
        .expect("it is unloaded");
    assert_eq!(models(&world, &server).await.remove(0).loaded, Some(false));
    let delete = || ModelAction::Delete {
        model: "beacon:1b".to_owned(),
    };
    manage(&world, &server, delete())
        .await
        .expect("it is deleted");
    assert_eq!(names().await, [MODEL]);
    let gone = manage(&world, &server, delete())
        .await
        .expect_err("it is gone");
    assert!(gone.message.contains("beacon:1b"), "{gone:?}");
}

/// A look at each of hundreds of models takes its time; the list does not.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_models_does_not_wait_for_a_look_at_each_and_the_next_one_knows_more() {
    let (server, world) = set().await;
    for n in 0..300 {
        server.stocks(
            &format!("model{n}:1b"),
            &["completion", "vision", "thinking"],
        );
    }
    server.holds_looks("looks");
    let provider = server.provider().id;
    let engine = world.engine().clone();
    let mut listing = tokio::task::JoinSet::new();
    listing.spawn(async move { engine.models(provider).await });
    server.arrived("looks").await;
    world.clock.until_armed(Duration::from_millis(400)).await;
    world.clock.advance(Duration::from_millis(400));
    let listed = within_limit("the list", listing.join_next()).await;
    let listed = listed.expect("it was asked").expect("it is told");
    let ProbeReport::Works { models: first, .. } = listed else {
        panic!("{listed:?}")
    };
    assert_eq!(first.len(), 301);
    assert!(first.iter().all(|model| model.capabilities.is_empty()));
    server.release("looks");
    // Nobody waits for it: who asks again later is told more.
    let known = async {
        loop {
            let models = models(&world, &server).await;
            if models.iter().all(|model| !model.capabilities.is_empty()) {
                return models;
            }
            tokio::task::yield_now().await;
        }
    };
    let known = within_limit("the looks", known).await;
    assert_eq!(
        known[300].capabilities,
        ["completion", "vision", "thinking"]
    );
    assert_eq!(known[300].context_tokens, Some(8192));
    let dials = server.counters().dials;
    models(&world, &server).await;
    assert_eq!(
        server.counters().dials,
        dials + 3,
        "what is known is not asked again"
    );
}

/// Old servers say of no model what it can do; that they do not is known after one look.
#[tokio::test(flavor = "multi_thread")]
async fn a_model_of_which_a_look_tells_nothing_is_not_looked_at_with_every_list() {
    let (server, world) = set().await;
    server.stocks("bare:1b", &[]);
    let bare = |models: &[Model]| {
        let bare = models.iter().find(|model| model.name == "bare:1b");
        bare.and_then(|model| model.context_tokens)
    };
    let looked = async {
        while bare(&models(&world, &server).await).is_none() {
            tokio::task::yield_now().await;
        }
    };
    within_limit("the look", looked).await;
    let dials = server.counters().dials;
    models(&world, &server).await;
    assert_eq!(server.counters().dials, dials + 3, "the list, and no look");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_panic_in_a_look_the_next_list_looks_again() {
    let (server, world) = set().await;
    world.gates.panic_at(Gate::LookBegins);
    let first = models(&world, &server).await;
    assert!(first[0].capabilities.is_empty(), "{first:?}");
    let looked = async {
        while models(&world, &server).await[0].capabilities.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    within_limit("another look", looked).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_a_download_ends_it_by_name_and_it_can_be_asked_for_again() {
    let (server, world) = set().await;
    world.gates.panic_at(Gate::PullBegins);
    world
        .submit(pull_of(&server, "kelp:7b"))
        .await
        .expect("it begins");
    let is_panic = |state: &PullState| match state {
        PullState::Failed { failure } => failure.code == FailureCode::Panicked,
        PullState::Waiting
        | PullState::Running { .. }
        | PullState::Interrupted
        | PullState::Completed { .. } => false,
    };
    until(&world, "its end", only(is_panic)).await;
    assert_eq!(world.engine().running_pulls(), 0, "nothing waits for it");
    server.download(Download::new().part("aaa", 10, 10).succeeds());
    world
        .submit(pull_of(&server, "kelp:7b"))
        .await
        .expect("it begins again");
    until(
        &world,
        "the whole",
        only(|state| matches!(state, PullState::Completed { .. })),
    )
    .await;
}
