//! The engine's answer to what somebody did comes when that person is elsewhere already: nothing is undone, doubled or
//! taken along by it.

use protocol::Dialect;
use tests::model_server::{Answer, ModelServer};

use super::{
    glass::{Desk, ENTER, ESCAPE, Window},
    hold_back,
    unread::go_to,
};

const DIALECT: Dialect = Dialect::Ollama;

async fn composer_says(window: &Window, text: &str) {
    window
        .wait_for_script(&format!(
            "return document.querySelector('[data-testid=composer]').value === '{text}'"
        ))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn a_message_that_is_answered_late_takes_nobody_along_who_went_elsewhere() {
    let server = ModelServer::start(DIALECT);
    for title in ["Alpha", "Beta"] {
        server.script(Answer::whole(DIALECT, &format!("{title} it is.")).when_asked(title));
    }
    Desk::tell("late", &server, async |_desk, window| {
        window.send("Alpha").await;
        window
            .wait_for_text("message-assistant", "Alpha it is.")
            .await;
        window.wait_for("send").await;
        window.click("new-session").await;
        window.run(&hold_back("submit")).await;
        window.send("Beta").await;
        // The list has it, and its sender has no answer yet.
        window.wait_for_text("session", "Beta").await;
        go_to(&window, "Alpha").await;
        window
            .wait_for_text("message-assistant", "Alpha it is.")
            .await;
        window.click("new-session").await;
        // Nobody knows yet that it was taken, so it is kept.
        composer_says(&window, "Beta").await;
        window.type_text(" and Gamma").await;
        window.run("letGo()").await;
        // What was sent is gone, and what was typed behind it is there, in the place where it was typed.
        composer_says(&window, " and Gamma").await;
        assert_eq!(
            window.texts("message-assistant").await,
            Vec::<String>::new()
        );
        go_to(&window, "Beta").await;
        window
            .wait_for_text("message-assistant", "Beta it is.")
            .await;
        // Nor is it in the field of a chat that this page has not shown before.
        composer_says(&window, "").await;
        window.click("new-session").await;
        composer_says(&window, " and Gamma").await;
        window.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn a_message_that_is_answered_late_opens_its_chat_for_who_waited() {
    let server = ModelServer::start(DIALECT);
    server.script(Answer::whole(DIALECT, "Alpha it is."));
    Desk::tell("late-waited", &server, async |_desk, window| {
        window.run(&hold_back("submit")).await;
        window.type_text("Alpha").await;
        window.type_text(ENTER).await;
        window.wait_for_text("session", "Alpha").await;
        window.type_text(" and more").await;
        window.run("letGo()").await;
        window
            .wait_for_text("message-assistant", "Alpha it is.")
            .await;
        composer_says(&window, " and more").await;
        window.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn a_message_that_is_answered_late_leaves_the_settings_open_for_who_went_there() {
    let server = ModelServer::start(DIALECT);
    server.script(Answer::whole(DIALECT, "Alpha it is."));
    Desk::tell("late-settings", &server, async |_desk, window| {
        window.run(&hold_back("submit")).await;
        window.send("Alpha").await;
        window.wait_for_text("session", "Alpha").await;
        window.chord(",").await;
        window.fill("settings-address", "reef.lan").await;
        window.run("letGo()").await;
        // It is told to the page before what is asked here.
        window
            .wait_for_script(
                "return document.querySelector('[data-testid=settings-address]')?.value === 'reef.lan'",
            )
            .await;
        window.press(ESCAPE).await;
        composer_says(&window, "").await;
        go_to(&window, "Alpha").await;
        window
            .wait_for_text("message-assistant", "Alpha it is.")
            .await;
        window.close().await;
    })
    .await;
}
