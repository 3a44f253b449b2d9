//! Models in the real window: a download that is seen, left and seen again, and a turn with what it brought; options that
//! are refused at their field, kept, and sent.

use protocol::Dialect;
use serde_json::json;
use tests::model_server::{Answer, Download, MODEL, ModelServer};

use super::glass::{Desk, ENTER, ESCAPE, SHIFT, Window};

const DIALECT: Dialect = Dialect::Ollama;

/// Opens the settings at the models of the servers, by the picker.
async fn open_models(window: &Window) {
    window.click("model-picker").await;
    window.click("picker-manage").await;
    window.wait_for("models-list").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn a_download_goes_on_when_its_window_is_closed_and_a_turn_runs_with_what_it_brought() {
    let server = ModelServer::start(DIALECT);
    server.download(
        Download::new()
            .part("6a0746a1ec1a", 4_000_000_000, 1_200_000_000)
            .part("4fa551d4f938", 12_000, 0)
            .gate("first")
            .part("6a0746a1ec1a", 4_000_000_000, 900_000_000)
            .part("4fa551d4f938", 12_000, 12_000)
            .part("6a0746a1ec1a", 4_000_000_000, 2_600_000_000)
            .gate("second")
            .succeeds(),
    );
    Desk::tell("download", &server, async |desk, window| {
        let first = window.next_view(&[]).await;
        open_models(&window).await;
        window.wait_for_text("model", MODEL).await;
        window.wait_for_text("model", "tools").await;
        window.wait_for_text("model", "loaded").await;
        window.fill("pull-name", "two words").await;
        window.press(ENTER).await;
        window
            .wait_for_text("settings-page", "without spaces")
            .await;
        window.fill("pull-name", "kelp:7b").await;
        window.press(ENTER).await;
        window
            .wait_for_text("pull-words", "30 %, 1.2 GB of 4.0 GB")
            .await;
        window.picture("download").await;
        // The window goes; another one has seen nothing of it.
        window
            .press_in("pull-name", &format!("{}{SHIFT}n\u{E000}", "\u{E009}"))
            .await;
        let second = window.next_view(&[&first]).await;
        window.look_at(&first).await;
        window.close_view(first).await;
        window.look_at(&second).await;
        server.pass("first").await;
        open_models(&window).await;
        window
            .wait_for_text("pull-words", "65 %, 2.6 GB of 4.0 GB")
            .await;
        window.reload().await;
        server.stocks("kelp:7b", &["completion", "vision", "thinking"]);
        open_models(&window).await;
        window.wait_for_text("pull-words", "65 %").await;
        server.pass("second").await;
        window.wait_for_text("pull-words", "Downloaded").await;
        window.wait_for_text("model", "kelp:7b").await;
        window.wait_for_text("model", "vision").await;
        window.picture("models").await;
        assert!(desk.library().pulls.is_empty());

        window.press(ESCAPE).await;
        window.click("model-picker").await;
        window.wait_for_text("model-option", "kelp:7b").await;
        window.picture("picker").await;
        window.press("kelp").await;
        window.press(ENTER).await;
        server.script(Answer::whole(DIALECT, "I came by the wire."));
        // Without a window manager nobody gives the second window the focus when the first has gone.
        window.wait_until_gone("model-option").await;
        window.send("Are you there?").await;
        window
            .wait_for_text("message-assistant", "I came by the wire.")
            .await;
        window.wait_for("send").await;
        window.close().await;
    })
    .await;
    assert_eq!(server.chat(1).await.json()["model"], "kelp:7b");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn what_is_learnt_about_a_model_leaves_the_form_that_somebody_types_in() {
    let server = ModelServer::start(DIALECT);
    server.holds_looks("look");
    Desk::tell("learnt", &server, async |_desk, window| {
        open_models(&window).await;
        window.wait_for_text("model", MODEL).await;
        assert!(!window.texts("model").await[0].contains("tools"));
        window.click("model-options").await;
        window
            .run("document.querySelector('[data-option=num_ctx]').focus()")
            .await;
        window.press("12").await;
        server.pass("look").await;
        window.wait_for_text("model", "tools").await;
        // The row has learnt it, and is the same row: what was typed is there, and so is the focus.
        window.press("000").await;
        let typed = window
            .run("return document.querySelector('[data-option=num_ctx]').value")
            .await;
        assert_eq!(typed, "12000");
        window.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn options_are_refused_at_their_field_or_kept_and_sent() {
    let server = ModelServer::start(DIALECT);
    Desk::tell("options", &server, async |desk, window| {
        open_models(&window).await;
        window.wait_for_text("model", MODEL).await;
        window.click("model-options").await;
        window
            .run("document.querySelector('[data-option=num_ctx]').focus()")
            .await;
        window.press("12").await;
        window.press(ENTER).await;
        window
            .wait_for_text("options-form", "from 256 to 16777216")
            .await;
        window.picture("options-refused").await;
        window.press("000").await;
        window.press(ENTER).await;
        window.wait_until_gone("options-form").await;
        window.wait_for_text("model", "1 option chosen").await;
        assert_eq!(desk.library().model_options.len(), 1);

        window.press(ESCAPE).await;
        window.click("chat-options").await;
        window.wait_for("options-form").await;
        window
            .run("document.querySelector('[data-option=temperature]').focus()")
            .await;
        window.press("0,3").await;
        window.picture("options").await;
        window.press(ENTER).await;
        window.wait_until_gone("options-form").await;
        server.script(Answer::whole(DIALECT, "As you wish."));
        window.wait_for_focus("composer").await;
        window.send("Say something").await;
        window
            .wait_for_text("message-assistant", "As you wish.")
            .await;
        window.wait_for("send").await;

        // This chat alone goes back behind what was chosen for its model.
        window.click("chat-options").await;
        window.wait_for("options-form").await;
        window
            .run("document.querySelector('[data-left=num_ctx]').click()")
            .await;
        window.picture("options-left").await;
        window.click("options-save").await;
        window.wait_until_gone("options-form").await;
        server.script(Answer::whole(DIALECT, "As the server does."));
        window.wait_for_focus("composer").await;
        window.send("And now?").await;
        window
            .wait_for_text("message-assistant", "As the server does.")
            .await;
        window.wait_for("send").await;
        window.close().await;
    })
    .await;
    assert_eq!(
        server.chat(1).await.json()["options"],
        json!({ "num_ctx": 12_000, "temperature": 0.3 })
    );
    assert_eq!(
        server.chat(2).await.json()["options"],
        json!({ "temperature": 0.3 })
    );
}
