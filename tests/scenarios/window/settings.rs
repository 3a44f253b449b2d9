//! The settings in the real window: what is refused is said at its field and changes nothing, what is saved is in the log.

use protocol::{Dialect, TimeLimits};
use tests::model_server::ModelServer;

use super::glass::{Desk, ENTER, SHIFT};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn limits_are_refused_in_words_or_saved_and_fallbacks_are_chosen_and_removed() {
    let server = ModelServer::start(Dialect::Ollama);
    Desk::tell("settings", &server, async |desk, window| {
        window.wait_for_focus("composer").await;
        window.chord(",").await;
        for (typed, said) in [
            ("5", "This is a time like"),
            ("10 min", "must be longer than the wait for the first word"),
        ] {
            window.fill("limit-ceiling_ms", typed).await;
            window.press(ENTER).await;
            window.wait_for_text("limit-error", said).await;
            window.wait_for_focus("limit-ceiling_ms").await;
            assert_eq!(desk.library().limits, None, "a refused set changes nothing");
        }
        window.picture("settings-refused").await;
        window.fill("limit-ceiling_ms", "1 h 30 min").await;
        window.press(ENTER).await;
        window.wait_until_gone("limit-error").await;
        window
            .wait_for_text("toast", "The time limits are saved")
            .await;
        let saved = TimeLimits {
            ceiling_ms: 90 * 60 * 1_000,
            ..TimeLimits::default()
        };
        assert_eq!(desk.library().limits, Some(saved));

        let list = window.wait_for("fallback-model").await;
        let offered = server.model().model;
        list.select_by_label(&offered)
            .await
            .expect("a model on offer");
        window.click("fallback-add").await;
        window.wait_for("fallback").await;
        assert_eq!(desk.library().fallbacks.len(), 1);
        window.picture("settings").await;
        let remove = window.wait_for("fallback-remove").await;
        remove.send_keys(ENTER).await.expect("a button takes keys");
        window.wait_until_gone("fallback").await;
        assert!(desk.library().fallbacks.is_empty());

        window.wait_for_focus("fallback-model").await;
        window.chord(&format!("{SHIFT}h")).await;
        window
            .wait_for_text("health-verdict", "Nothing went wrong in this run")
            .await;
        window.picture("health").await;
        window.close().await;
    })
    .await;
}
