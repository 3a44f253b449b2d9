//! Models of this computer: a file is fetched, gone on with and looked at, and gets its name only when it is whole; what
//! was added stays listed; and nothing is deleted that is not ours.

use std::{fs, path::PathBuf};

use protocol::{
    Dialect, ErrorCode, FailureCode, ManageModelArgs, Model, ModelAction, Op, ProbeReport,
    ProviderId, PullState, PullView,
};
use tests::{
    backend::Missed,
    file_server::{FileServer, Served, model_file},
    watched::until as until_holds,
    world::World,
};

use super::pulling::{only, until};

/// Larger than what one read of a socket gives.
const WEIGHTS: u32 = 600_000;

fn pull(url: &str) -> Op {
    Op::PullModel {
        provider: ProviderId::THIS_COMPUTER,
        model: url.to_owned(),
    }
}

fn cancel(url: &str) -> Op {
    Op::CancelPull {
        provider: ProviderId::THIS_COMPUTER,
        model: url.to_owned(),
    }
}

async fn models(world: &World) -> Vec<Model> {
    match world.engine().models(ProviderId::THIS_COMPUTER).await {
        ProbeReport::Works { models, .. } => models,
        ProbeReport::Fails { failure } => panic!("{failure:?}"),
    }
}

fn place(world: &World, name: &str) -> PathBuf {
    world.data_dir().join("models").join(name)
}

/// What lies in the models folder.
fn folder(world: &World) -> Vec<String> {
    let entries = fs::read_dir(place(world, "")).into_iter().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

fn refusal<T: std::fmt::Debug>(answer: Result<T, Missed>) -> protocol::ErrorReport {
    match answer {
        Err(Missed::Refused(report)) => report,
        other => panic!("{other:?}"),
    }
}

fn completed(state: &PullState) -> bool {
    matches!(state, PullState::Completed { .. })
}

fn failed(state: &PullState) -> bool {
    matches!(state, PullState::Failed { .. })
}

fn bytes(state: &PullState) -> u64 {
    match state {
        PullState::Running { progress } => progress.completed_bytes,
        _ => 0,
    }
}

async fn fetched(world: &World, url: &str) -> PullState {
    world.submit(pull(url)).await.expect("it begins");
    let ended = only(|state| completed(state) || failed(state));
    let [pull]: [PullView; 1] = until(world, "the end", ended)
        .await
        .try_into()
        .expect("one download");
    pull.state
}

async fn failure(world: &World, url: &str) -> protocol::Failure {
    match fetched(world, url).await {
        PullState::Failed { failure } => failure,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_fetched_over_redirects_and_says_what_it_is() {
    let (server, world) = (FileServer::start(), World::new().await);
    let file = model_file("Kelp", WEIGHTS);
    server.put("kelp.gguf", Served::sends_to("/a/b"));
    server.put("a/b", Served::sends_to(&server.url("store")));
    server.put(
        "store",
        Served::of(file.clone())
            .marked("one")
            .gate_after(WEIGHTS as usize / 2, "half"),
    );
    let url = server.url("kelp.gguf");
    world.submit(pull(&url)).await.expect("it begins");
    let shown = until(&world, "half of it", only(|state| bytes(state) > 100_000)).await;
    assert_eq!(shown[0].model.model, url);
    let PullState::Running { progress } = &shown[0].state else {
        panic!("{shown:?}")
    };
    assert_eq!(progress.total_bytes, Some(file.len() as u64));
    assert!((1..=500).contains(&progress.permille), "{progress:?}");
    assert!(!place(&world, "kelp.gguf").exists(), "it is not whole");
    server.pass("half").await;
    let shown = until(&world, "the end", only(completed)).await;
    let PullState::Completed { sha256, .. } = &shown[0].state else {
        panic!("{shown:?}")
    };
    let digest = ring::digest::digest(&ring::digest::SHA256, &file);
    let digest: String = digest
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(*sha256, Some(digest), "the computed one is told");
    assert_eq!(
        fs::read(place(&world, "kelp.gguf")).expect("the file"),
        file
    );
    assert_eq!(folder(&world), ["kelp.gguf"], "nothing is left beside it");

    let library = world.engine().library().await.expect("the library");
    let [here] = &library.providers[..] else {
        panic!("{library:?}")
    };
    assert_eq!(
        (here.id, here.dialect),
        (ProviderId::THIS_COMPUTER, Dialect::Local)
    );
    let models = models(&world).await;
    let [model] = &models[..] else {
        panic!("{models:?}")
    };
    assert_eq!(model.name, "kelp.gguf");
    assert_eq!(model.context_tokens, Some(2_048));
    let told = model.file.as_ref().expect("it is a file");
    assert_eq!(told.title.as_deref(), Some("Kelp"));
    assert_eq!(told.license.as_deref(), Some("apache-2.0"));
    assert!(
        told.ours && !told.has_template && told.problem.is_none(),
        "{told:?}"
    );

    let again = refusal(world.submit(pull(&url)).await);
    assert!(
        again.message.contains("kelp.gguf is there already"),
        "{again:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_download_goes_on_where_it_stopped() {
    let (server, world) = (FileServer::start(), World::new().await);
    let file = model_file("Kelp", WEIGHTS);
    let url = server.url("kelp.gguf");
    let whole = Served::of(file.clone()).marked("one");
    server.put("kelp.gguf", whole.clone().cut_after(200_000));
    let cut = failure(&world, &url).await;
    assert_eq!(cut.code, FailureCode::StreamCut, "{cut:?}");
    assert!(
        cut.message.contains("It goes on from where it stopped"),
        "{cut:?}"
    );
    assert_eq!(folder(&world), ["kelp.gguf.part", "kelp.gguf.part.json"]);
    let there = fs::metadata(place(&world, "kelp.gguf.part"))
        .expect("a part")
        .len();
    assert_eq!(there, 200_000);
    assert_eq!(models(&world).await, [], "a part is no model");

    server.put("kelp.gguf", whole);
    assert!(completed(&fetched(&world, &url).await));
    assert_eq!(
        fs::read(place(&world, "kelp.gguf")).expect("the file"),
        file
    );
    let asked = server.asked();
    assert_eq!(asked[0].range, None);
    assert_eq!(asked[1].range.as_deref(), Some("bytes=200000-"));
    assert_eq!(asked[1].if_range.as_deref(), Some("\"one\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changed_meanwhile_is_fetched_from_its_beginning() {
    let (server, world) = (FileServer::start(), World::new().await);
    let url = server.url("kelp.gguf");
    let old = Served::of(model_file("Kelp", WEIGHTS)).marked("one");
    server.put("kelp.gguf", old.cut_after(200_000));
    failure(&world, &url).await;
    let file = model_file("Dulse, which is longer", WEIGHTS);
    server.put("kelp.gguf", Served::of(file.clone()).marked("two"));
    assert!(completed(&fetched(&world, &url).await));
    assert_eq!(
        fs::read(place(&world, "kelp.gguf")).expect("the file"),
        file
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_ranges_or_marks_sends_the_whole_again() {
    for again in [
        Served::of(model_file("Kelp", WEIGHTS))
            .marked("one")
            .whole_only(),
        Served::of(model_file("Kelp", WEIGHTS)),
    ] {
        let (server, world) = (FileServer::start(), World::new().await);
        let url = server.url("kelp.gguf");
        server.put("kelp.gguf", again.clone().cut_after(200_000));
        failure(&world, &url).await;
        server.put("kelp.gguf", again);
        assert!(completed(&fetched(&world, &url).await));
        assert_eq!(
            fs::read(place(&world, "kelp.gguf")).expect("the file"),
            model_file("Kelp", WEIGHTS)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_that_holdfast_did_not_outlive_goes_on_when_asked_to() {
    let (server, mut world) = (FileServer::start(), World::new().await);
    let url = server.url("kelp.gguf");
    let file = model_file("Kelp", WEIGHTS);
    let whole = Served::of(file.clone()).marked("one");
    server.put("kelp.gguf", whole.clone().gate_after(200_000, "held"));
    world.submit(pull(&url)).await.expect("it begins");
    until(&world, "some of it", only(|state| bytes(state) == 200_000)).await;
    world.restart().await;
    until(
        &world,
        "its name",
        only(|state| matches!(state, PullState::Interrupted)),
    )
    .await;
    // What had come is on its way to the disk still, and whoever goes on waits for that.
    server.put("kelp.gguf", whole);
    assert!(completed(&fetched(&world, &url).await));
    assert_eq!(
        fs::read(place(&world, "kelp.gguf")).expect("the file"),
        file
    );
    assert_eq!(server.asked()[1].range.as_deref(), Some("bytes=200000-"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_wants_any_more_leaves_nothing_behind() {
    let (server, world) = (FileServer::start(), World::new().await);
    let url = server.url("kelp.gguf");
    let whole = Served::of(model_file("Kelp", WEIGHTS)).marked("one");
    server.put("kelp.gguf", whole.clone().gate_after(200_000, "held"));
    world.submit(pull(&url)).await.expect("it begins");
    until(&world, "some of it", only(|state| bytes(state) == 200_000)).await;
    let other = refusal(world.submit(pull(&server.url("elsewhere/kelp.gguf"))).await);
    assert!(
        other
            .message
            .contains("kelp.gguf is being downloaded already"),
        "{other:?}"
    );
    world.submit(cancel(&url)).await.expect("it ends");
    until(&world, "nothing", <[PullView]>::is_empty).await;
    until_holds("an empty folder", || folder(&world).is_empty()).await;

    server.put("kelp.gguf", whole.cut_after(200_000));
    failure(&world, &url).await;
    world.submit(cancel(&url)).await.expect("it is forgotten");
    until_holds("an empty folder", || folder(&world).is_empty()).await;
}

/// Each ends by name, and leaves nothing that could be taken for a model.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_model_is_named_and_not_kept() {
    let file = model_file("Kelp", 1_000);
    let zeros = "0".repeat(64);
    let cases = [
        (
            Served::page(200),
            FailureCode::BadStream,
            "sent a web page and not a file",
        ),
        (
            Served::of("<!DOCTYPE html><html>sign in</html>"),
            FailureCode::BadStream,
            "sent a web page and not a file",
        ),
        (
            Served::of(&b"\x89PNG\r\n\x1a\n and so on"[..]),
            FailureCode::BadStream,
            "sent a picture and not a model",
        ),
        (Served::of(""), FailureCode::BadStream, "the file is empty"),
        (
            Served::page(404),
            FailureCode::ModelNotFound,
            "There is no such file",
        ),
        (
            Served::page(401),
            FailureCode::KeyRejected,
            "does not give this file to everybody",
        ),
        (
            Served::page(429),
            FailureCode::RateLimited,
            "asks for fewer requests",
        ),
        (Served::page(503), FailureCode::ProviderError, "status 503"),
        (Served::page(416), FailureCode::ProviderError, "status 416"),
        (
            Served::of(&file[..file.len() - 300]),
            FailureCode::BadStream,
            "the file is cut",
        ),
        (
            Served::of(file.clone()).with("x-linked-etag", &format!("\"{zeros}\"")),
            FailureCode::BadStream,
            "is not the file that was announced, so it was deleted",
        ),
        (
            Served::sends_to("ftp://elsewhere.example/kelp.gguf"),
            FailureCode::BadStream,
            "an address that is none",
        ),
        (
            Served::sends_to("/kelp.gguf"),
            FailureCode::BadStream,
            "on and on and never to the file",
        ),
    ];
    for (served, code, words) in cases {
        let (server, world) = (FileServer::start(), World::new().await);
        server.put("kelp.gguf", served);
        let failure = failure(&world, &server.url("kelp.gguf")).await;
        assert_eq!(failure.code, code, "{failure:?}");
        assert!(failure.message.contains(words), "{failure:?}");
        assert_eq!(folder(&world), Vec::<String>::new(), "{words}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_whose_length_nobody_says_is_measured_by_its_own_description() {
    let (server, world) = (FileServer::start(), World::new().await);
    let url = server.url("kelp.gguf");
    let whole = Served::of(model_file("Kelp", WEIGHTS))
        .marked("one")
        .unsized_body();
    server.put("kelp.gguf", whole.clone().cut_after(200_000));
    let cut = failure(&world, &url).await;
    assert_eq!(cut.code, FailureCode::StreamCut, "{cut:?}");
    server.put("kelp.gguf", whole);
    assert!(completed(&fetched(&world, &url).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_room_on_the_disk_is_not_begun() {
    let (server, world) = (FileServer::start(), World::new().await);
    let url = server.url("kelp.gguf");
    server.put(
        "kelp.gguf",
        Served::of(model_file("Kelp", WEIGHTS)).marked("one"),
    );
    let free = &world.free_bytes;
    free.store(200 * 1024 * 1024, std::sync::atomic::Ordering::Relaxed);
    let full = failure(&world, &url).await;
    assert!(
        full.message.contains("There is no room for kelp.gguf"),
        "{full:?}"
    );
    free.store(u64::MAX, std::sync::atomic::Ordering::Relaxed);
    assert!(completed(&fetched(&world, &url).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_server_is_left_and_gone_on_with() {
    let (server, world) = (FileServer::start(), World::new().await);
    let url = server.url("kelp.gguf");
    let whole = Served::of(model_file("Kelp", WEIGHTS)).marked("one");
    server.put("kelp.gguf", whole.clone().gate_after(200_000, "held"));
    world.submit(pull(&url)).await.expect("it begins");
    until(&world, "some of it", only(|state| bytes(state) == 200_000)).await;
    world.clock.until_armed(world.gap()).await;
    world.clock.advance(world.gap());
    let shown = until(&world, "the end", only(failed)).await;
    let PullState::Failed { failure } = &shown[0].state else {
        panic!("{shown:?}")
    };
    assert_eq!(failure.code, FailureCode::IdleTimeout, "{failure:?}");
    server.put("kelp.gguf", whole);
    assert!(completed(&fetched(&world, &url).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_was_added_stays_where_it_lies_and_is_only_forgotten() {
    let mut world = World::new().await;
    let elsewhere = tempfile::tempdir().expect("a folder");
    let path = elsewhere.path().join("dulse.gguf");
    let name = path.to_str().expect("text").to_owned();
    let add = |path: &str| Op::AddModelFile {
        path: path.to_owned(),
    };
    let missing = refusal(world.submit(add(&name)).await);
    assert!(
        missing
            .message
            .contains("dulse.gguf: the file is not there"),
        "{missing:?}"
    );
    fs::write(&path, b"\x89PNG\r\n").expect("a picture");
    let picture = refusal(world.submit(add(&name)).await);
    assert_eq!(
        picture.code,
        ErrorCode::Invalid {
            field: "path".into()
        }
    );
    assert!(
        picture
            .message
            .contains("this is a picture and not a model"),
        "{picture:?}"
    );
    refusal(world.submit(add("dulse.gguf")).await);

    fs::write(&path, model_file("Dulse", 1_000)).expect("a model");
    world.submit(add(&name)).await.expect("it is added");
    let twice = refusal(world.submit(add(&name)).await);
    assert!(twice.message.contains("in the list already"), "{twice:?}");
    world.restart().await;
    let shown = models(&world).await;
    assert_eq!(shown.len(), 1);
    assert_eq!(shown[0].name, name);
    let file = shown[0].file.as_ref().expect("a file");
    assert!(!file.ours && file.problem.is_none(), "{file:?}");

    fs::rename(&path, elsewhere.path().join("away")).expect("it is moved");
    let shown = models(&world).await;
    let file = shown[0].file.as_ref().expect("it is listed all the same");
    let problem = file.problem.as_deref().unwrap_or_default();
    assert!(problem.starts_with("The file is not there"), "{problem}");

    fs::rename(elsewhere.path().join("away"), &path).expect("it is back");
    delete(&world, &name).await.expect("it is forgotten");
    assert_eq!(models(&world).await, []);
    assert!(path.exists(), "only files of the models folder are deleted");
}

async fn delete(world: &World, model: &str) -> Result<(), protocol::ErrorReport> {
    let action = ModelAction::Delete {
        model: model.to_owned(),
    };
    let provider = ProviderId::THIS_COMPUTER;
    world
        .engine()
        .manage_model(ManageModelArgs { provider, action })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_the_models_folder_are_listed_with_what_is_wrong_with_them_and_deleted() {
    let world = World::new().await;
    fs::create_dir_all(place(&world, "below")).expect("a folder");
    let whole = model_file("Kelp", 1_000);
    fs::write(place(&world, "kelp.gguf"), &whole).expect("a model");
    fs::write(place(&world, "cut.gguf"), &whole[..whole.len() - 500]).expect("half a model");
    fs::write(place(&world, "below/Deep.GGUF"), &whole).expect("a model");
    fs::write(place(&world, "notes.txt"), "not a model").expect("a text");
    fs::write(place(&world, "empty.gguf"), "").expect("nothing");
    let shown = models(&world).await;
    let told: Vec<(&str, Option<&str>)> = shown
        .iter()
        .map(|model| {
            let file = model.file.as_ref().expect("a file");
            (model.name.as_str(), file.problem.as_deref())
        })
        .collect();
    let cut = told[1].1.unwrap_or_default();
    assert!(cut.starts_with("The file is cut: "), "{cut}");
    assert_eq!(
        told,
        [
            ("below/Deep.GGUF", None),
            ("cut.gguf", Some(cut)),
            ("empty.gguf", Some("The file is empty; download it again.")),
            ("kelp.gguf", None),
        ]
    );
    for outside in ["../notes.gguf", "/etc/kelp.gguf", "notes.txt", ""] {
        let refused = delete(&world, outside).await.expect_err("it is not ours");
        assert_eq!(
            refused.code,
            ErrorCode::Invalid {
                field: "model".into()
            },
            "{outside}"
        );
    }
    delete(&world, "kelp.gguf").await.expect("it is ours");
    let gone = delete(&world, "kelp.gguf").await.expect_err("it is gone");
    assert_eq!(gone.code, ErrorCode::NotFound);
    assert_eq!(models(&world).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_of_one_model_are_one_model_and_a_missing_part_is_named() {
    let world = World::new().await;
    fs::create_dir_all(place(&world, "")).expect("a folder");
    let part = model_file("Kelp", 1_000);
    fs::write(place(&world, "kelp-00001-of-00002.gguf"), &part).expect("the first");
    fs::write(place(&world, "kelp-00002-of-00002.gguf"), &part).expect("the second");
    let shown = models(&world).await;
    assert_eq!(shown.len(), 1, "{shown:?}");
    assert_eq!(shown[0].size_bytes, Some(2 * part.len() as u64));
    fs::remove_file(place(&world, "kelp-00002-of-00002.gguf")).expect("it goes");
    let shown = models(&world).await;
    let file = shown[0].file.as_ref().expect("a file");
    let problem = file.problem.as_deref().unwrap_or_default();
    assert!(
        problem.starts_with("A part of it is missing, kelp-00002-of-00002.gguf;"),
        "{problem}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_may_not_fit_into_memory_says_so_before_it_is_loaded() {
    let world = World::new().await;
    fs::create_dir_all(place(&world, "")).expect("a folder");
    fs::write(place(&world, "kelp.gguf"), model_file("Kelp", WEIGHTS)).expect("a model");
    let shown = models(&world).await;
    let file = shown[0].file.as_ref().expect("a file");
    assert_eq!(
        (file.needs_bytes, &file.warning),
        (Some(u64::from(WEIGHTS)), &None)
    );
    world
        .free_memory
        .store(500_000, std::sync::atomic::Ordering::Relaxed);
    let shown = models(&world).await;
    let file = shown[0].file.as_ref().expect("a file");
    let warning = file.warning.as_deref().unwrap_or_default();
    assert!(
        warning.starts_with("It takes about 600.0 kB of memory, and 500.0 kB are free"),
        "{warning}"
    );
}
