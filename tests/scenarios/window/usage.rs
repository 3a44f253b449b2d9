//! What answers took, in the real window: the usage page says what the ledger says, and an answer whose model was not
//! shown the whole conversation says so.

use protocol::{Dialect, LedgerSums, Timestamp};
use tests::model_server::{Answer, MODEL, ModelServer};

use super::{
    glass::{Desk, SHIFT, Window},
    hold_back,
};

const DIALECT: Dialect = Dialect::Ollama;

/// All that the ledger has, read beside the window.
fn sums(desk: &Desk) -> LedgerSums {
    let reader = engine::Reader::open(desk.data_dir()).expect("a database");
    let bounds = [Timestamp::from_millis(0), Timestamp::from_millis(i64::MAX)];
    let ledger = reader.ledger(&bounds).expect("a ledger");
    let rows = ledger.rows.iter();
    rows.fold(LedgerSums::default(), |sum, row| sum.plus(row.sums))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn the_usage_page_opens_by_a_shortcut_and_says_what_the_ledger_says() {
    let server = ModelServer::start(DIALECT);
    Desk::tell("usage", &server, async |desk, window| {
        for answer in ["Kelp.", "Stone."] {
            server.script(Answer::whole(DIALECT, answer));
            window.send("Who grips what?").await;
            window.wait_for_text("message-assistant", answer).await;
            window.wait_for("send").await;
        }
        window.chord(&format!("{SHIFT}l")).await;
        let known = sums(desk);
        assert_eq!((known.attempts(), known.ended), (2, 2), "{known:?}");
        let said = format!(
            "2 requests: {} tokens in, {} out.",
            known.prompt_tokens, known.completion_tokens
        );
        window.wait_for_text("usage-total", &said).await;
        window.wait_for_text("usage-models", MODEL).await;
        window.wait_for("usage-chart").await;
        window.picture("usage").await;
        window.click("usage-days").await;
        // Another period is another question; its answer says the same of two requests of today.
        choose(&window, "365").await;
        window.wait_for_text("usage-days", "By week").await;
        window.wait_for_text("usage-total", &said).await;
        window
            .wait_for_script(
                "return document.querySelectorAll('[data-testid=usage-total]').length === 1",
            )
            .await;
        window.close().await;
    })
    .await;
}

async fn choose(window: &Window, period: &str) {
    window
        .run(&format!(
            "const field = document.querySelector('[data-testid=usage-period]');
             field.value = '{period}';
             field.dispatchEvent(new Event('change', {{ bubbles: true }}));"
        ))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn an_answer_for_a_period_that_was_left_is_not_shown_for_the_one_that_was_chosen_since() {
    let server = ModelServer::start(DIALECT);
    server.script(Answer::whole(DIALECT, "Kelp."));
    Desk::tell("usage-left", &server, async |_desk, window| {
        window.send("Who grips what?").await;
        window.wait_for_text("message-assistant", "Kelp.").await;
        window.wait_for("send").await;
        window.chord(&format!("{SHIFT}l")).await;
        window.wait_for_text("usage-days", "By day").await;
        window.run(&hold_back("ledger")).await;
        choose(&window, "365").await;
        window
            .wait_for_script("return window.isHeldBack === true")
            .await;
        choose(&window, "7").await;
        window.wait_for_text("usage-total", "1 request").await;
        // Late, and for what nobody looks at any more.
        window
            .run_to_its_end(
                "window.letGo().then(() => requestAnimationFrame(() =>
                     requestAnimationFrame(() => setTimeout(arguments[0], 0))))",
            )
            .await;
        assert_eq!(window.texts("usage-days").await, ["By day"]);
        // It is only that one answer that does not count.
        choose(&window, "365").await;
        window.wait_for_text("usage-days", "By week").await;
        window.close().await;
    })
    .await;
}

/// Sends what nobody types letter by letter.
async fn paste(window: &Window, text: &str) {
    window
        .run(&format!(
            "const field = document.querySelector('[data-testid=composer]');
             field.value = '{text}';
             field.dispatchEvent(new Event('input', {{ bubbles: true }}));"
        ))
        .await;
    window.click("send").await;
}

/// B70: the server read fewer tokens than it was sent, and says nothing of it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn an_answer_says_which_messages_its_model_did_not_see() {
    let server = ModelServer::start(DIALECT);
    Desk::tell("unseen", &server, async |_desk, window| {
        let whole = Answer::new(DIALECT).having_read(2_100).says("Oui.");
        server.script(whole.ends());
        let first = format!("How does kelp hold on?{}", " kelp".repeat(2_000));
        paste(&window, &first).await;
        window.wait_for_text("message-assistant", "Oui.").await;
        window.wait_for("send").await;
        assert_eq!(window.texts("unread").await, Vec::<String>::new());
        let cut = Answer::new(DIALECT).having_read(4_096).says("Yes.");
        server.script(cut.ends());
        paste(&window, &"tide ".repeat(4_000)).await;
        window.wait_for_text("message-assistant", "Yes.").await;
        let told = window
            .wait_for_text("unread", "How does kelp hold on?")
            .await;
        let told = told.text().await.expect("its words");
        assert!(told.contains("did not see"), "{told}");
        window.picture("unseen").await;
        window.reload().await;
        window
            .wait_for_text("unread", "How does kelp hold on?")
            .await;
        window.close().await;
    })
    .await;
}
