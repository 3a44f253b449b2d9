//! Recorded answers of real servers come out as they were said, and end as they ended.

use tests::{
    model_server::{Cassette, ModelServer},
    verdict::judge,
    world::World,
};

#[tokio::test(flavor = "multi_thread")]
async fn recorded_answers_come_out_as_they_were_said() {
    let recorded = [
        ("stream", "completed: Length"),
        ("stream-end-of-turn", "completed"),
        ("stream-usage", "completed: Length"),
        ("stream-unicode", "completed"),
        ("stream-markdown", "completed"),
        ("stream-multiturn", "completed"),
        ("stream-stop-string", "completed"),
        ("context-full-midstream", "completed: Length"),
        ("think-stream", "completed: Length"),
        ("think-off-stream", "completed: Length"),
        ("think-truncated-stream", "completed: Length"),
        ("ollama-chat-stream", "completed: Length"),
        ("ollama-chat-end-of-turn", "completed"),
        ("ollama-chat-think-stream", "completed: Length"),
        ("ollama-v1-think-stream", "completed: Length"),
        ("server-kill9", "failed: StreamCut"),
        ("server-sigterm-cut", "failed: StreamCut"),
        ("ollama-v1-midstream-error-lost", "failed: StreamCut"),
        ("ollama-midstream-error", "failed: ProviderError"),
        // The router puts its own plain text into the stream of a model that died.
        ("router-child-kill9", "failed: ProviderError"),
    ];
    for (name, end) in recorded {
        let cassette = Cassette::load(name);
        let server = ModelServer::start(cassette.dialect());
        let world = World::new().await;
        server.script(cassette.script());
        let session = world.begin(&server, "Again, please.").await;
        let window = world.page().await.follow(session);
        let (reasoning, answer) = cassette.said();
        let mut expected = "you: Again, please.\n".to_owned();
        for (voice, text) in [("thinks", reasoning), ("model", answer)] {
            if !text.is_empty() {
                expected.push_str(&format!("{voice}: {text}\n"));
            }
        }
        expected.push_str(&format!("({end})\n"));
        assert_eq!(window.until_idle().await, expected, "{name}");
        judge(&world, session, &[&window]).await;
    }
}
