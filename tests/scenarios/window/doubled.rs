//! `double-invoke` in the real window: every op reaches the engine twice, as after a reload that posts a request again.

use protocol::{Dialect, EventBody};
use serde_json::json;
use tests::model_server::{Answer, ModelServer};

use super::{glass::Desk, shows_what_is_stored};

const DIALECT: Dialect = Dialect::Ollama;

/// Posts every op once more than the page does, before the page's own.
const TWICE: &str = "
    const real = window.fetch;
    window.doubled = 0;
    window.fetch = (to, ...rest) => {
        if (String(to.url ?? to).split('/').pop() === 'submit') {
            window.doubled++;
            real(to, ...rest);
        }
        return real(to, ...rest);
    };
";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn ops_that_arrive_twice_run_once() {
    let server = ModelServer::start(DIALECT);
    for word in ["First.", "Second.", "Third."] {
        server.script(Answer::whole(DIALECT, word));
    }
    Desk::tell("doubled", &server, async |desk, window| {
        window.run(TWICE).await;
        for (nth, word) in ["First.", "Second."].into_iter().enumerate() {
            window.send(&format!("Message {nth}")).await;
            window.wait_for_text("message-assistant", word).await;
            window.wait_for("send").await;
        }
        window.click("retry-answer").await;
        window.wait_for_text("message-assistant", "Third.").await;
        window.wait_for("send").await;
        let doubled = window.run("return window.doubled").await;
        assert!(doubled.as_u64() >= Some(3), "{doubled}: each came twice");
        shows_what_is_stored(desk, &window).await;
        let count = |wanted: fn(&EventBody) -> bool| {
            let events = desk.events();
            events.iter().filter(|event| wanted(&event.body)).count()
        };
        let begun = count(|body| matches!(body, EventBody::TurnStarted { .. }));
        let rewound = count(|body| matches!(body, EventBody::HistoryRewound { .. }));
        assert_eq!((begun, rewound), (3, 1));
        assert_eq!(
            window
                .run("return document.querySelectorAll('[data-testid=toast]').length")
                .await,
            json!(0),
            "nobody is told of it"
        );
        window.close().await;
    })
    .await;
    assert_eq!(server.counters().chats, 3);
}
