//! What a retry or an edit took out comes back in the real window, by keyboard, with all that followed it; also after
//! the app was started anew.

use protocol::Dialect;
use tests::model_server::{Answer, ModelServer};

use super::{
    glass::{Desk, ENTER, Mark, Window},
    verdict,
};

const DIALECT: Dialect = Dialect::Ollama;

/// Waits until a version stands there with its answers, and that the window shows what is stored.
async fn stands(desk: &Desk, window: &Window, version: &str, answers: &[&str]) {
    window.wait_for_text("version", version).await;
    for answer in answers {
        window.wait_for_text("message-assistant", answer).await;
    }
    window.wait_for("send").await;
    assert_eq!(window.texts("message-assistant").await, answers);
    assert_eq!(verdict::of(desk, window).await, "same");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn every_version_of_a_turn_comes_back_by_keyboard_with_what_followed_it() {
    let server = ModelServer::start(DIALECT);
    let answers = ["First.", "It goes on.", "Second.", "Third."];
    for answer in answers {
        server.script(Answer::whole(DIALECT, answer));
    }
    Desk::tell("versions", &server, async |desk, window| {
        window.send("Count").await;
        window.wait_for_text("message-assistant", "First.").await;
        window.wait_until_gone("version").await;
        window.send("Go on").await;
        window
            .wait_for_text("message-assistant", "It goes on.")
            .await;
        window.wait_for("send").await;

        // An edit of the first message takes out both turns.
        window.click("edit-message").await;
        window.fill("edit-field", "Count again").await;
        window.press(ENTER).await;
        stands(desk, &window, "Version 2 of 2", &["Second."]).await;
        window.picture("versions").await;
        window.click("version-earlier").await;
        stands(desk, &window, "Version 1 of 2", &["First.", "It goes on."]).await;

        // The focus stays with the control, on the way that leads further.
        window.wait_for_focus("version-later").await;
        window.press(ENTER).await;
        stands(desk, &window, "Version 2 of 2", &["Second."]).await;
        window.wait_for_focus("version-earlier").await;

        window.click("retry-answer").await;
        stands(desk, &window, "Version 3 of 3", &["Third."]).await;
        window
            .wait_for_mark("message-user", "Count again", "Version", Mark::Gone)
            .await;
        let chats = server.counters().chats;
        desk.kill_app().await;
        window.forget().await;

        let window = desk.open().await;
        window
            .wait_for_text("session", "Count")
            .await
            .click()
            .await
            .unwrap();
        stands(desk, &window, "Version 3 of 3", &["Third."]).await;
        window.click("version-earlier").await;
        stands(desk, &window, "Version 2 of 3", &["Second."]).await;
        window.wait_for_focus("version-earlier").await;
        window.press(ENTER).await;
        stands(desk, &window, "Version 1 of 3", &["First.", "It goes on."]).await;
        window.picture("versions-first").await;
        assert_eq!(server.counters().chats, chats, "no model was asked");
        window.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn an_answer_that_failed_offers_the_one_whose_place_it_took() {
    let server = ModelServer::start(DIALECT);
    server.script(Answer::whole(DIALECT, "First."));
    let half = Answer::new(DIALECT).says("Secon");
    server.script(half.fails("the runner fell over"));
    Desk::tell("versions-failed", &server, async |desk, window| {
        window.send("Count").await;
        window.wait_for_text("message-assistant", "First.").await;
        window.click("retry-answer").await;
        window.wait_for("scar").await;
        window
            .wait_for_text("bring-back", "Bring back the earlier version")
            .await;
        window.picture("versions-failed").await;
        window.click("bring-back").await;
        stands(desk, &window, "Version 1 of 2", &["First."]).await;
        window.wait_until_gone("scar").await;
        window.wait_for_focus("version-later").await;
        window.close().await;
    })
    .await;
}
