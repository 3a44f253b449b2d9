//! Servers at the terminal: their keys, their ills, their models, and what they were asked.

use protocol::Dialect;
use serde_json::{Value, json};
use tests::{
    model_server::{Answer, Download, MODEL, ModelServer, refused_address},
    sentinel::Sentinel,
    world::World,
};

use super::keyboard::{Ran, run, run_with};

/// What was printed for programs.
fn shape(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

fn is_refused(ran: &Ran, words: &str) {
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{ran:?}");
    assert!(ran.err.contains(words), "{words:?} is not in {ran:?}");
}

/// A call that nobody can mean exits with 2, says why, and begins nothing.
async fn is_wrong(world: &World, arguments: &[&str], words: &str) {
    let ran = run(world.data_dir(), arguments).await;
    assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{ran:?}");
    assert!(ran.err.contains(words), "{words:?} is not in {ran:?}");
    let begun = std::fs::read_dir(world.data_dir()).expect("the folder");
    assert_eq!(begun.count(), 0, "{arguments:?} begins nothing");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the built app"]
async fn a_key_is_kept_shown_by_its_end_replaced_and_forgotten() {
    let server = ModelServer::start(Dialect::OpenAiChat);
    let world = World::without_engine();
    let dir = world.data_dir();
    let (first, second) = (
        Sentinel::new("sk-terminal-first-"),
        Sentinel::new("sk-terminal-second-"),
    );
    let named = format!("openai={}/v1", server.root());
    let environment = [("TERMINAL_KEY", first.to_string())];
    let keep = [
        "key",
        &named,
        "--key-env",
        "TERMINAL_KEY",
        "--place",
        "file",
    ];
    let ran = run_with(dir, &keep, &environment, None).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let kept_at = dir.join("keys.json");
    for words in ["kept in ", &kept_at.display().to_string(), &server.root()] {
        assert!(ran.out.contains(words), "{words:?} is not in {ran:?}");
    }
    assert_eq!(first.count_in(&format!("{ran:?}")), 0, "it is masked");

    let looked = run(dir, &["key", "model server"]).await;
    assert_eq!(looked.out, ran.out, "by its name");
    assert_eq!(run(dir, &["key", &named]).await.out, ran.out);
    let other = named.replace("openai=", "anthropic=");
    let ran = run(dir, &["key", &other]).await;
    is_refused(&ran, &format!("{other} is not in the settings yet"));
    let ran = run(dir, &["key", "Nobody", "--forget"]).await;
    is_refused(&ran, "there is no server ‘Nobody’; there are Model server");

    let replace = ["key", "Model server", "-", "--place", "file"];
    let typed = format!("  {second}\n");
    let ran = run_with(dir, &replace, &[], Some(&typed)).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = run_with(dir, &replace, &[], Some(" \n")).await;
    is_refused(&ran, "no key came by stdin");
    let kept = std::fs::read_to_string(&kept_at).expect("the list of keys");
    assert_eq!((first.count_in(&kept), second.count_in(&kept)), (0, 1));

    server.script(Answer::whole(Dialect::OpenAiChat, "Kelp."));
    let ask = ["ask", "--provider", &named, "--model", MODEL, "Who?"];
    let ran = run(dir, &ask).await;
    assert_eq!(ran.out, "Kelp.\n", "{ran:?}");
    let shown = server.chat(1).await;
    let shown = shown.header("authorization").unwrap_or_default().to_owned();
    assert_eq!(shown, format!("Bearer {second}"));

    let ran = run(dir, &["key", "Model server", "--forget"]).await;
    assert_eq!(ran.out, "no key is kept for Model server\n", "{ran:?}");
    let kept = std::fs::read_to_string(&kept_at).expect("the list of keys");
    assert_eq!(second.count_in(&kept), 0, "{kept}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the built app"]
async fn a_wrong_call_about_keys_says_so_and_repeats_none() {
    let world = World::without_engine();
    is_wrong(&world, &["key"], "key needs a server").await;
    is_wrong(
        &world,
        &["key", "Box", "--place", "nowhere"],
        "keychain or file",
    )
    .await;
    let both = ["key", "Box", "-", "--forget"];
    is_wrong(&world, &both, "cannot both be meant").await;
    let unset = ["key", "Box", "--key-env", "HOLDFAST_TEST_UNSET"];
    is_wrong(&world, &unset, "HOLDFAST_TEST_UNSET").await;
    is_wrong(&world, &["key", "Box", "sk-on-the-line"], "key").await;
    let ran = run(world.data_dir(), &["key", "Box", "sk-on-the-line"]).await;
    assert!(!format!("{ran:?}").contains("sk-on-the-line"), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the built app"]
async fn the_doctor_says_what_is_well_what_is_wrong_and_exits_by_it() {
    let server = ModelServer::start(Dialect::Ollama);
    let world = World::without_engine();
    let dir = world.data_dir();
    is_wrong(&world, &["doctor", "a", "b"], "takes no ‘b’").await;
    is_wrong(&world, &["doctor", "--all"], "--all is not an option").await;
    let ran = run(dir, &["doctor"]).await;
    is_refused(&ran, "no server is in the settings yet");

    let ran = run(dir, &["doctor", &server.root()]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("  good   Server "), "{ran:?}");
    assert!(!ran.out.contains("WRONG"), "{ran:?}");
    let away = format!("http://{}", refused_address());
    let ran = run(dir, &["doctor", &away]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.out.contains("  WRONG  Connection "), "{ran:?}");

    let model_at = format!("ollama={}", server.root());
    run(dir, &["models", "--provider", &model_at]).await;
    let ran = run(dir, &["doctor", "--json"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let all = shape(&ran);
    assert_eq!(all[0]["server"], "Ollama");
    assert_eq!((&all[0]["well"], &all[1]), (&json!(true), &Value::Null));
    let ran = run(dir, &["doctor", "Nobody"]).await;
    is_refused(&ran, "there is no server ‘Nobody’; there are Ollama");
    server.refuse_connections().await;
    let ran = run(dir, &["doctor", "ollama", "--json"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let all = shape(&ran);
    let findings = all[0]["findings"].as_array().expect("findings");
    let mut bad = findings.iter().filter(|f| f["verdict"] == "Bad");
    let bad = bad.next().unwrap_or_else(|| panic!("{all}"));
    assert_eq!(
        (&bad["check"], &all[0]["well"]),
        (&json!("Connection"), &json!(false))
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the built app"]
async fn models_are_listed_pulled_copied_unloaded_and_deleted_by_whoever_says_so() {
    let server = ModelServer::start(Dialect::Ollama);
    let world = World::without_engine();
    let dir = world.data_dir();
    is_wrong(&world, &["pull"], "pull needs the name of a model").await;
    is_wrong(&world, &["cp", MODEL], "cp needs the second name").await;
    is_wrong(&world, &["rm", " "], "rm needs the name of a model").await;
    is_wrong(&world, &["models", "a", "b"], "models takes no ‘b’").await;
    is_wrong(
        &world,
        &["unload", MODEL, "--json"],
        "--json is not an option",
    )
    .await;
    is_wrong(&world, &["pull", MODEL, "--yes"], "--yes is not an option").await;

    let at = format!("ollama={}", server.root());
    let ran = run(dir, &["models", "--provider", &at, "--json"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let listed = shape(&ran);
    assert_eq!(listed[0]["name"], MODEL);
    assert_eq!(listed[0]["loaded"], true);
    assert_eq!(listed[0]["server"], "Ollama");
    let ran = run(dir, &["models", "ollama"]).await;
    assert!(
        ran.out.starts_with(MODEL) && ran.out.contains("loaded"),
        "{ran:?}"
    );
    is_refused(&run(dir, &["models", "Nobody"]).await, "no server ‘Nobody’");

    server.download(Download::new().part("aaa", 1_000, 1_000).succeeds());
    let ran = run(dir, &["pull", "kelp:7b"]).await;
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), ""), "{ran:?}");
    assert!(ran.err.contains("Ollama has kelp:7b now"), "{ran:?}");
    server.download(Download::new().fails("max retries exceeded: EOF"));
    let ran = run(dir, &["pull", "reef:1b"]).await;
    is_refused(&ran, "max retries exceeded");
    is_refused(&run(dir, &["pull", "two words"]).await, "without spaces");

    let ran = run(dir, &["cp", MODEL, "beacon:1b"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    is_refused(&run(dir, &["cp", MODEL, "Beacon:1B"]).await, "already");
    is_refused(&run(dir, &["rm", "beacon:1b"]).await, "say --yes");
    let ran = run(dir, &["rm", "beacon:1b", "--yes"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    is_refused(&run(dir, &["rm", "beacon:1b", "--yes"]).await, "beacon:1b");
    let ran = run(dir, &["unload", MODEL]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let listed = shape(&run(dir, &["models", "--json"]).await);
    assert_eq!(listed[0]["loaded"], false);
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");

    let away = format!("ollama=http://{}", refused_address());
    let ran = run(dir, &["models", "--provider", &away]).await;
    is_refused(&ran, "nothing is listening there");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the built app"]
async fn what_was_asked_is_summed_up_and_nothing_is_not_zero_of_something() {
    let server = ModelServer::start(Dialect::Ollama);
    let world = World::without_engine();
    let dir = world.data_dir();
    is_wrong(&world, &["usage", "--days", "0"], "from 1 to 400").await;
    is_wrong(&world, &["usage", "week"], "usage takes no ‘week’").await;
    is_wrong(&world, &["usage", "--yes"], "--yes is not an option").await;
    let ran = run(dir, &["usage", "--days", "1"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.out.starts_with("no model was asked anything"),
        "{ran:?}"
    );

    server.script(Answer::whole(Dialect::Ollama, "Kelp."));
    let at = format!("ollama={}", server.root());
    let ask = ["ask", "--provider", &at, "--model", MODEL, "Who?"];
    assert_eq!(run(dir, &ask).await.out, "Kelp.\n");
    let ran = run(dir, &["usage", "--json", "--days", "2"]).await;
    let sums = shape(&ran);
    assert_eq!(sums["all"]["requests"], 1, "{sums}");
    assert_eq!(sums["all"]["ended"], 1, "{sums}");
    assert!(sums["all"]["tokens_out"].as_u64() > Some(0), "{sums}");
    assert_eq!(
        sums["all"]["tokens_cached"],
        Value::Null,
        "an Ollama says nothing of a cache"
    );
    assert_eq!(
        sums["all"]["cost_micros"],
        Value::Null,
        "nobody said what it costs"
    );
    assert_eq!(sums["days"].as_array().map(Vec::len), Some(2), "{sums}");
    assert_eq!(sums["models"][0]["model"], MODEL);
    let ran = run(dir, &["usage", "--days", "2"]).await;
    let line = format!("{MODEL} on Ollama");
    assert!(
        ran.out.lines().any(|told| told.starts_with(&line)),
        "{ran:?}"
    );
}
