//! Model files at the terminal: fetched, gone on with, listed and deleted, each in words.

use serde_json::{Value, json};
use tests::{
    file_server::{FileServer, Served, model_file},
    world::World,
};

use super::keyboard::run;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the built app"]
async fn a_model_file_is_fetched_listed_and_deleted_at_the_terminal() {
    let (server, world) = (FileServer::start(), World::without_engine());
    let url = server.url("kelp.gguf");
    let file = Served::of(model_file("Kelp", 600_000)).marked("one");
    server.put("kelp.gguf", file.clone().cut_after(200_000));
    let cut = run(world.data_dir(), &["pull", &url]).await;
    assert_eq!((cut.code, cut.out.as_str()), (Some(1), ""), "{cut:?}");
    assert!(cut.err.contains("ended before kelp.gguf did"), "{cut:?}");

    server.put("kelp.gguf", file);
    let fetched = run(world.data_dir(), &["pull", &url]).await;
    assert_eq!(fetched.code, Some(0), "{fetched:?}");
    assert!(
        fetched.err.contains("This computer has kelp.gguf now"),
        "{fetched:?}"
    );
    assert!(fetched.err.contains("its SHA-256 is "), "{fetched:?}");

    let listed = run(world.data_dir(), &["models", "local", "--json"]).await;
    let listed: Value = serde_json::from_str(&listed.out).expect("JSON");
    assert_eq!(listed[0]["name"], "kelp.gguf");
    assert_eq!(listed[0]["context_tokens"], 2_048);
    assert_eq!(listed[0]["file"]["ours"], true);
    assert_eq!(listed[0]["file"]["license"], "apache-2.0");
    let shown = run(world.data_dir(), &["models", "local"]).await;
    assert!(shown.out.starts_with("kelp.gguf "), "{shown:?}");
    assert!(shown.out.contains(" · apache-2.0"), "{shown:?}");

    let asked = run(world.data_dir(), &["rm", "kelp.gguf"]).await;
    assert_eq!(asked.code, Some(1), "nobody can be asked: {asked:?}");
    let gone = run(world.data_dir(), &["rm", "kelp.gguf", "--yes"]).await;
    assert_eq!(gone.code, Some(0), "{gone:?}");
    assert!(
        gone.err
            .contains("kelp.gguf was deleted from This computer"),
        "{gone:?}"
    );
    let listed = run(world.data_dir(), &["models", "local", "--json"]).await;
    assert_eq!(
        serde_json::from_str::<Value>(&listed.out).expect("JSON"),
        json!([])
    );

    let page = run(world.data_dir(), &["pull", "https:///"]).await;
    assert_eq!(page.code, Some(1), "{page:?}");
    assert!(
        page.err.contains("Paste the whole address of a model file"),
        "{page:?}"
    );
}
