//! A tool that asks, in the real window: the question outlives the page, is answered by hand alone, and is over when
//! nobody answered it. And a turn that was cut, and what its offers do.

use protocol::Dialect;
use serde_json::json;
use tests::{
    model_server::{Answer, ModelServer, Script},
    sentinel::Sentinel,
};

use super::glass::{Desk, Window};

const DIALECT: Dialect = Dialect::Ollama;

fn writes(content: &str) -> Script {
    let arguments = json!({ "path": "tides.md", "content": content });
    Answer::new(DIALECT)
        .says("I will note that. ")
        .calls("write_file", arguments)
        .ends()
}

/// Types the path of a folder for the tools.
pub(super) async fn choose_folder(window: &Window, folder: &std::path::Path) {
    window.click("folder").await;
    window.wait_for("folder-path").await;
    window.press(&folder.display().to_string()).await;
    window.press(super::glass::ENTER).await;
    window.wait_until_gone("folder-form").await;
}

/// Sends a message whose tool will ask, in a folder that was typed.
async fn ask(window: &Window, folder: &std::path::Path) {
    choose_folder(window, folder).await;
    window.send("Note it down").await;
    window.wait_for("approval").await;
}

async fn title(window: &Window) -> String {
    let title = window.run("return document.title").await;
    title.as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn a_question_outlives_its_page_steals_no_typing_and_is_answered_by_keyboard() {
    let server = ModelServer::start(DIALECT);
    server.script(writes("two tides a day\n"));
    server.script(Answer::whole(DIALECT, "It is noted."));
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tides.md");
    Desk::tell("asking", &server, async |_, window| {
        ask(&window, folder.path()).await;
        // Nobody writes, so the answer that changes nothing has the focus.
        window.wait_for_focus("deny").await;
        window.picture("asking").await;
        let shown = window.wait_for("approval").await.text().await.unwrap();
        assert!(shown.contains("tides.md"), "{shown}");
        assert!(shown.contains("+two tides a day"), "{shown}");
        window.wait_for_text("session", "waiting for you").await;

        window.reload().await;
        window.wait_for("approval").await;
        assert!(title(&window).await.starts_with("Waiting for you"));
        window.type_text("a draft, answering nothing").await;
        window.wait_for("approval").await;
        assert!(!file.exists(), "typing in the composer answered");

        window.chord("j").await;
        window.press("a").await;
        window
            .wait_for_text("approval-answer", "You allowed this once")
            .await;
        window
            .wait_for_text("message-assistant", "It is noted.")
            .await;
        window.wait_until_gone("approval").await;
        window.wait_for("send").await;
        assert_eq!(
            std::fs::read_to_string(&file).expect("the file is written"),
            "two tides a day\n"
        );
        assert!(!title(&window).await.starts_with("Waiting for you"));
        let draft = window.run("return document.querySelector('[data-testid=composer]').value");
        assert_eq!(draft.await, json!("a draft, answering nothing"));
        window.picture("answered").await;
        window.close().await;
    })
    .await;
    assert_eq!(server.counters().chats, 2);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn a_question_that_nobody_answered_has_expired_after_a_restart_and_nothing_was_written() {
    let server = ModelServer::start(DIALECT);
    server.script(writes("two tides a day\n"));
    let folder = tempfile::tempdir().expect("a folder");
    Desk::tell("expired", &server, async |desk, window| {
        ask(&window, folder.path()).await;
        desk.kill_app().await;
        window.forget().await;

        let window = desk.open().await;
        window
            .wait_for_text("session", "Note it down")
            .await
            .click()
            .await
            .unwrap();
        window
            .wait_for_text("approval-answer", "The question expired")
            .await;
        window.wait_until_gone("approval").await;
        window.wait_for("retry").await;
        window.picture("expired").await;
        window.close().await;
    })
    .await;
    assert!(!folder.path().join("tides.md").exists());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn a_killed_turn_shows_what_was_there_and_both_of_its_offers_work() {
    let server = ModelServer::start(DIALECT);
    let begun = ["continue", "retry"].map(|offer| Sentinel::new(&format!("begun by {offer}")));
    let ended = ["continue", "retry"].map(|offer| Sentinel::new(&format!("ended by {offer}")));
    Desk::tell("offers", &server, async |desk, window| {
        let mut window = window;
        for (turn, offer) in ["continue", "retry"].into_iter().enumerate() {
            let half = Answer::new(DIALECT).says(&format!("It begins: {} ", begun[turn]));
            server.script(half.goes_silent());
            server.script(Answer::whole(DIALECT, &format!("It ends: {}", ended[turn])));
            window.send(&format!("Story {turn}")).await;
            window
                .wait_for_text("message-assistant", &begun[turn].to_string())
                .await;
            desk.kill_app().await;
            window.forget().await;

            window = desk.open().await;
            window
                .wait_for_text("session", "Story 0")
                .await
                .click()
                .await
                .unwrap();
            window
                .wait_for_text("message-assistant", &begun[turn].to_string())
                .await;
            window.wait_for("continue").await;
            window.wait_for("retry").await;
            window.click(offer).await;
            window
                .wait_for_text("message-assistant", &ended[turn].to_string())
                .await;
            window.wait_for("send").await;
        }
        let text = window.text().await;
        // Going on keeps what was there; trying again takes its place.
        let counts = begun.each_ref().map(|word| word.count_in(&text));
        assert_eq!(counts, [1, 0], "{text}");
        let said = window.texts("message-user").await;
        assert_eq!(said.len(), 2, "going on is nobody's words: {said:?}");
        window
            .wait_for_text("continued", "You asked to go on")
            .await;
        window.picture("went-on").await;
        window.close().await;
    })
    .await;
}
