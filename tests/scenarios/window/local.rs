//! A model of this computer in the real window: no server anywhere, and a whole conversation all the same.

use std::time::Duration;

use protocol::{Dialect, ProviderId, TurnOutcome};
use tests::{file_server::model_file, model_server::ModelServer};

use super::{
    glass::{Colours, Desk, ENTER},
    looks::{WIDE, look},
    shows_what_is_stored,
};

/// The small model is quick, and the machine may be busy.
const LIMIT: Duration = Duration::from_secs(300);

/// Nothing was ever set up: a model's file is named, as `cargo xtask run` does, and everything else follows.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display, and HOLDFAST_MODEL, the file of a small model"]
async fn a_newcomer_without_any_server_talks_with_the_model_in_the_box() {
    let file = std::env::var("HOLDFAST_MODEL").expect("HOLDFAST_MODEL, the file of a small model");
    Desk::tell_with_file("local", &file, 3 * LIMIT, async |desk, window| {
        let view = window.next_view(&[]).await;
        window.resize(WIDE.0, WIDE.1).await;
        window.wait_for_text("model-picker", "SmolLM2-135M").await;
        // A small model may go on for ever, and this story may not.
        window.click("chat-options").await;
        window.wait_for("options-form").await;
        for (option, value) in [("num_predict", "48"), ("temperature", "0")] {
            window
                .run(&format!(
                    "document.querySelector('[data-option={option}]').focus()"
                ))
                .await;
            window.press(value).await;
        }
        window.press(ENTER).await;
        window.wait_until_gone("options-form").await;
        window.wait_for_focus("composer").await;
        for (n, said) in [
            "What is the capital of France?",
            "And which river is it on?",
        ]
        .into_iter()
        .enumerate()
        {
            window.send(said).await;
            desk.until_within(LIMIT, "the answer has its end", |desk| desk.ended() > n)
                .await;
            window.wait_for("send").await;
        }
        shows_what_is_stored(desk, &window).await;
        for turn in &desk.stored().turns {
            assert_eq!(turn.model.provider, ProviderId::THIS_COMPUTER);
            let completed = matches!(turn.outcome, Some(TurnOutcome::Completed { .. }));
            assert!(completed, "{turn:?}");
        }
        window.picture("local-conversation").await;

        window.click("model-picker").await;
        window.click("picker-manage").await;
        window.wait_for_text("model", "loaded").await;
        window
            .wait_for_text("model-file", "licence apache-2.0")
            .await;
        window.wait_for_text("model-file", "of memory").await;
        let row = window.run("return document.querySelector('[data-testid=model]').innerText");
        let row = row.await.to_string();
        let name = file.rsplit('/').next().unwrap_or_default();
        assert!(row.contains(name) && !row.contains(&file), "{row}");
        look(&window, &view, "local-models", Colours::Light).await;
        window
            .run("document.querySelector('[data-testid=curated] > summary').click()")
            .await;
        window.wait_for("curated-download").await;
        look(&window, &view, "local-curated", Colours::Light).await;
        window.click("unload").await;
        window.wait_until_gone("unload").await;
        window.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn a_model_dropped_on_the_window_can_be_chosen_and_what_is_none_is_refused_in_words() {
    let server = ModelServer::start(Dialect::Ollama);
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("a file");
        path
    };
    let kelp = file("kelp forest.gguf", &model_file("Kelp", 4_096));
    let picture = file("kelp picture.gguf", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
    Desk::tell("dropped", &server, async |_desk, window| {
        window.resize(WIDE.0, WIDE.1).await;
        let middle = (WIDE.0 / 2, WIDE.1 / 2);
        window.drop_file(&picture, middle).await;
        let refused = "kelp picture.gguf: this is a picture and not a model";
        window.wait_for_text("toast", refused).await;
        window.drop_file(&kelp, middle).await;
        window
            .wait_for_text(
                "toast",
                "kelp forest.gguf was added to the models of this computer",
            )
            .await;
        window.picture("dropped").await;
        // A link is no file, and is text as ever.
        window
            .drop_address("https://kelp.example/forest", middle)
            .await;
        window
            .wait_for_script(
                "return document.querySelector('[data-testid=composer]').value === 'https://kelp.example/forest'",
            )
            .await;
        window.click("model-picker").await;
        window.wait_for_text("model-option", "kelp forest").await;
        window.close().await;
    })
    .await;
}
