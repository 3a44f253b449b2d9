//! A window out of sight: what happens meanwhile is in it when it is seen again.

use protocol::Dialect;
use serde_json::{Value, json};
use tests::{
    model_server::{Answer, ModelServer},
    sentinel::Sentinel,
};

use super::{
    glass::{Desk, ESCAPE, SHIFT},
    shows_what_is_stored,
};

const DIALECT: Dialect = Dialect::Ollama;

/// What is written in the page when it is drawn for the first time after it was hidden, and what it asked for until
/// the story looks.
const FIRST_FRAME: &str = "
    const real = window.fetch;
    window.asked = [];
    window.fetch = (to, ...rest) => {
        window.asked.push(String(to.url ?? to).split('/').pop());
        return real(to, ...rest);
    };
    const texts = (kind) => [...document.querySelectorAll(`[data-testid=${kind}]`)].map((row) => row.innerText);
    document.addEventListener('visibilitychange', () => {
        if (document.hidden) return;
        window.asked = [];
        requestAnimationFrame(() => {
            window.first = {
                asked: texts('message-user'),
                said: texts('message-assistant'),
                alarms: texts('toast').length + document.querySelectorAll('.is-alert, [data-testid=reconnect]').length,
            };
        });
    });
";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn a_window_hidden_while_three_turns_end_shows_all_of_them_in_its_first_frame() {
    let server = ModelServer::start(DIALECT);
    let words = ["first", "one", "two", "three"].map(Sentinel::new);
    server.script(Answer::whole(DIALECT, &words[0].to_string()));
    for word in &words[1..] {
        server.script(
            Answer::new(DIALECT)
                .says("It begins, ")
                .gate(&word.to_string())
                .says(&word.to_string())
                .ends(),
        );
    }
    Desk::tell("hidden", &server, async |desk, window| {
        let first = window.next_view(&[]).await;
        window.send("Tell me").await;
        window
            .wait_for_text("message-assistant", &words[0].to_string())
            .await;
        window.wait_for("send").await;
        window.chord(&format!("{SHIFT}n")).await;
        let second = window.next_view(&[&first]).await;
        let session = window.wait_for_text("session", "Tell me").await;
        session.click().await.expect("a row can be clicked");
        window
            .wait_for_text("message-assistant", &words[0].to_string())
            .await;
        window.look_at(&first).await;
        window.run(FIRST_FRAME).await;
        window.hide().await;

        window.look_at(&second).await;
        for word in &words[1..] {
            window.send("And more").await;
            window.wait_for("stop").await;
            server.pass(&word.to_string()).await;
            window
                .wait_for_text("message-assistant", &word.to_string())
                .await;
            window.wait_for("send").await;
        }
        shows_what_is_stored(desk, &window).await;

        // Out of sight it hears of the end later than a window that is looked at, but without being looked at.
        window.look_at(&first).await;
        window
            .wait_for_script(&format!(
                "return document.body.textContent.includes('{}')",
                words[3]
            ))
            .await;
        window.unhide().await;
        window
            .wait_for_script("return window.first !== undefined")
            .await;
        let seen = window.run("return window.first").await;
        let now = |kind: &str| {
            let script = format!(
                "return [...document.querySelectorAll('[data-testid={kind}]')].map((row) => row.innerText)"
            );
            let window = &window;
            async move { window.run(&script).await }
        };
        window
            .wait_for_text("message-assistant", &words[3].to_string())
            .await;
        shows_what_is_stored(desk, &window).await;
        let (asked, said): (Value, Value) =
            (now("message-user").await, now("message-assistant").await);
        assert_eq!(
            seen,
            json!({ "asked": asked, "said": said, "alarms": 0 }),
            "the first frame is the last one"
        );
        let anew = window.run("return window.asked.filter((what) => what === 'attach').length");
        assert_eq!(anew.await, json!(0), "it went on from where it stood");
        window.close().await;
    })
    .await;
    assert_eq!(server.counters().chats, 4);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn the_settings_of_a_window_that_was_hidden_are_there_when_it_is_shown_again() {
    let server = ModelServer::start(DIALECT);
    Desk::tell("hidden-settings", &server, async |_, window| {
        window.type_text("a draft").await;
        window.chord(",").await;
        window.wait_for("settings-page").await;
        // What is typed is saved when a window goes out of sight; here its field is not there.
        window.hide().await;
        window.unhide().await;
        window
            .wait_for_script(
                "return document.querySelector('[data-testid=settings-page]') !== null",
            )
            .await;
        window.press(ESCAPE).await;
        window
            .wait_for_script(
                "return document.querySelector('[data-testid=composer]').value === 'a draft'",
            )
            .await;
        window.close().await;
    })
    .await;
}
