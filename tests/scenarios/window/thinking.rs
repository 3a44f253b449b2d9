//! What was taken for the answer and turns out to be a thought is drawn anew as one, while the answer goes on.

use protocol::Dialect;
use tests::model_server::{Answer, ModelServer};

use super::{glass::Desk, verdict};

const DIALECT: Dialect = Dialect::Ollama;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn an_answer_that_was_a_thought_becomes_one_before_the_readers_eyes() {
    let server = ModelServer::start(DIALECT);
    let thought = Answer::new(DIALECT).says("I should add").gate("thought");
    let answer = thought.says("</think>\n\nIt is 4").gate("answer");
    server.script(answer.says(" indeed.").ends());
    Desk::tell("thinking", &server, async |desk, window| {
        window.send("2 + 2?").await;
        server.arrived("thought").await;
        window
            .wait_for_text("message-assistant", "I should add")
            .await;
        server.release("thought");
        server.arrived("answer").await;
        window.wait_for_text("message-assistant", "It is 4").await;
        // The turn still runs: what was drawn was changed, not loaded anew.
        window.wait_for("stop").await;
        window.wait_for_text("reasoning", "hought for").await;
        assert_eq!(window.texts("message-assistant").await, ["It is 4"]);
        server.release("answer");
        window.wait_for("send").await;
        assert_eq!(window.texts("message-assistant").await, ["It is 4 indeed."]);
        assert_eq!(verdict::of(desk, &window).await, "same");
        window.close().await;
    })
    .await;
}
