//! A model that is not where it was, in the real window (B05): the chat is as it was, the composer says what is missing,
//! and another model goes on.

use protocol::Dialect;
use tests::model_server::{Answer, MODEL, ModelServer};

use super::glass::{Desk, ENTER, Window};

const DIALECT: Dialect = Dialect::Ollama;

async fn shows_what_was_said(window: &Window) {
    window
        .wait_for_text("message-assistant", "A root that is none.")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn a_chat_whose_model_is_gone_says_so_keeps_its_words_and_goes_on_with_another() {
    let server = ModelServer::start(DIALECT);
    Desk::tell("missing", &server, async |_desk, window| {
        server.script(Answer::whole(DIALECT, "A root that is none."));
        window.send("What is a holdfast?").await;
        shows_what_was_said(&window).await;
        window.wait_for("send").await;
        assert_eq!(window.texts("model-missing").await, Vec::<String>::new());

        // Out of memory is no news.
        server.loads(MODEL, false);
        server.stocks("kelp:7b", &["completion"]);
        server.drops(MODEL);
        window.reload().await;
        let said = format!("does not have {MODEL}.");
        window.wait_for_text("model-missing", &said).await;
        shows_what_was_said(&window).await;
        window.picture("missing").await;
        window.click("model-missing-choose").await;
        window.wait_for_text("model-option", "kelp:7b").await;
        window.press("kelp").await;
        window.press(ENTER).await;
        window.wait_until_gone("model-missing").await;
        server.script(Answer::whole(DIALECT, "And it grips the stone."));
        window.wait_until_gone("model-option").await;
        window.send("And then?").await;
        window
            .wait_for_text("message-assistant", "And it grips the stone.")
            .await;
        window.wait_for("send").await;

        server.refuse_connections().await;
        window.reload().await;
        window
            .wait_for_text("model-missing", "kelp:7b cannot be asked now.")
            .await;
        shows_what_was_said(&window).await;
        window.picture("unreachable").await;
        window.close().await;
    })
    .await;
    assert_eq!(server.chat(2).await.json()["model"], "kelp:7b");
}
