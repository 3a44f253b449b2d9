//! The marks of the list: what happened out of sight is new until its chat was opened.

use protocol::Dialect;
use tests::model_server::{Answer, ModelServer, Script};

use super::glass::{Desk, Mark, Window};

const DIALECT: Dialect = Dialect::Ollama;

/// Leaves the open chat for another one of the list.
pub(super) async fn go_to(window: &Window, title: &str) {
    let row = window.wait_for_text("session", title).await;
    row.click().await.expect("the chat is opened");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn what_ended_out_of_sight_is_new_in_the_list_until_its_chat_is_opened() {
    let server = ModelServer::start(DIALECT);
    server.script(Answer::whole(DIALECT, "In sight.").when_asked("Alpha"));
    server.script(
        Answer::new(DIALECT)
            .gate("beta")
            .says("Out of sight.")
            .ends()
            .when_asked("Beta"),
    );
    server.script(
        Script::unknown_model(DIALECT, "m")
            .head_behind("gamma")
            .when_asked("Gamma"),
    );
    server.script(
        Answer::new(DIALECT)
            .says("Still here")
            .goes_silent()
            .when_asked("Delta"),
    );
    Desk::tell("unread", &server, async |desk, window| {
        window.send("Alpha").await;
        window.wait_for_text("message-assistant", "In sight.").await;
        window
            .wait_for_mark("session", "Alpha", "new answer", Mark::Gone)
            .await;
        for (title, words) in [("Beta", "new answer"), ("Gamma", "failed, not seen yet")] {
            window.click("new-session").await;
            window.send(title).await;
            let gate = title.to_lowercase();
            server.arrived(&gate).await;
            go_to(&window, "Alpha").await;
            server.release(&gate);
            window
                .wait_for_mark("session", title, words, Mark::There)
                .await;
        }
        window.click("new-session").await;
        window.send("Delta").await;
        window
            .wait_for_text("message-assistant", "Still here")
            .await;
        go_to(&window, "Alpha").await;
        window.picture("unread").await;

        go_to(&window, "Beta").await;
        window
            .wait_for_text("message-assistant", "Out of sight.")
            .await;
        window
            .wait_for_mark("session", "Beta", "new answer", Mark::Gone)
            .await;
        go_to(&window, "Gamma").await;
        window.wait_for("scar").await;
        window
            .wait_for_mark("session", "Gamma", "not seen yet", Mark::Gone)
            .await;
        let unread = desk
            .library()
            .sessions
            .iter()
            .filter(|session| session.unread.is_some())
            .count();
        assert_eq!(unread, 0);
        window.picture("unread-seen").await;
        window.close().await;
    })
    .await;
}
