//! A conversation: what is said streams, is kept before it is seen, and is told to the model again.

use protocol::{Dialect, EventBody};
use serde_json::json;
use tests::{
    model_server::{Answer, DIALECTS, ModelServer},
    sentinel::Sentinel,
    verdict::judge,
    world::World,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_of_two_turns_streams_and_nothing_is_seen_before_it_is_on_the_disk() {
    for dialect in DIALECTS {
        let server = ModelServer::start(dialect);
        let world = World::new().await;
        let word = Sentinel::new("kelp");
        server.script(
            Answer::new(dialect)
                .begins()
                .says("A holdfast ")
                .gate("first words")
                .says("is an anchor.")
                .gate("more words")
                .says(&format!(" It grips {word}"))
                .says(" like a fist.")
                .ends(),
        );
        server.script(
            Answer::new(dialect)
                .thinks("Easy. ")
                .says_word_by_word("By its haptera.")
                .ends(),
        );

        let session = world.begin(&server, "What is a holdfast?").await;
        let window = world
            .page()
            .await
            .follow_with_witness(session, world.data_dir());
        server.arrived("first words").await;
        window.sees("A holdfast ").await;
        server.release("first words");
        server.arrived("more words").await;
        world.flush_text().await;
        window.sees("A holdfast is an anchor.").await;
        server.release("more words");
        window.until_idle().await;
        world.say(session, "How does it hold on?").await;
        window.sees("haptera").await;

        let text = window.until_idle().await;
        assert_eq!(
            text,
            format!(
                "you: What is a holdfast?\n\
                 model: A holdfast is an anchor. It grips {word} like a fist.\n\
                 (completed)\n\
                 you: How does it hold on?\n\
                 thinks: Easy. \n\
                 model: By its haptera.\n\
                 (completed)\n"
            ),
            "{dialect:?}"
        );
        let second = server.chat(2).await.conversation();
        let expected = [
            ("user", "What is a holdfast?".to_owned()),
            (
                "assistant",
                format!("A holdfast is an anchor. It grips {word} like a fist."),
            ),
            ("user", "How does it hold on?".to_owned()),
        ];
        let expected = expected.map(|(role, content)| (role.to_owned(), content));
        assert_eq!(
            second, expected,
            "the second request carries the first turn"
        );
        judge(&world, session, &[&window]).await;
        assert_eq!(window.counters().repairs, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_fragment_is_kept_and_seen_with_the_clock_unmoved() {
    for dialect in DIALECTS {
        let server = ModelServer::start(dialect);
        let world = World::new().await;
        server.script(Answer::new(dialect).says("First").gate("first").ends());
        let session = world.begin(&server, "Go on.").await;
        let window = world.page().await.follow(session);
        server.arrived("first").await;
        window.sees("model: First").await;
        server.release("first");
        window.until_idle().await;
        judge(&world, session, &[&window]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn thoughts_that_were_taken_for_the_answer_are_told_from_it_when_they_end() {
    for dialect in DIALECTS {
        let server = ModelServer::start(dialect);
        let world = World::new().await;
        server.script(
            Answer::new(dialect)
                .says("I should ")
                .says("add.")
                .gate("thought")
                .says("</think>\n\n4")
                .ends(),
        );
        let session = world.begin(&server, "2 + 2?").await;
        let window = world.page().await.follow(session);
        // The clock stands still, so the second piece waits for the end of the thought.
        window.sees("model: I should ").await;
        server.release("thought");
        assert_eq!(
            window.until_idle().await,
            "you: 2 + 2?\nthinks: I should add.\nmodel: 4\n(completed)\n",
            "{dialect:?}"
        );
        server.script(Answer::whole(dialect, "5"));
        world.say(session, "2 + 3?").await;
        let told = server.chat(2).await.conversation();
        let said: Vec<&str> = told.iter().map(|(_, said)| said.as_str()).collect();
        assert_eq!(said, ["2 + 2?", "4", "2 + 3?"], "{dialect:?}");
        window.sees("2 + 3?").await;
        window.until_idle().await;
        judge(&world, session, &[&window]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn text_is_joined_between_two_frames_and_a_burst_is_not_held_up() {
    let server = ModelServer::start(Dialect::Ollama);
    let world = World::new().await;
    let burst = "word ".repeat(4_000);
    server.script(
        Answer::new(Dialect::Ollama)
            .says_word_by_word(&burst)
            .ends(),
    );
    let session = world.begin(&server, "Talk a lot.").await;
    let window = world.page().await.follow(session);
    let text = window.until_idle().await;
    assert_eq!(
        text,
        format!("you: Talk a lot.\nmodel: {burst}\n(completed)\n")
    );
    let events = world.events(session);
    let pieces: Vec<usize> = events
        .iter()
        .filter_map(|event| match &event.body {
            EventBody::TextAppended { text, .. } => Some(text.len()),
            _ => None,
        })
        .collect();
    // The clock stood still, so only the size of a piece let text go.
    assert!(
        pieces.len() <= 2 + burst.len() / 4_096,
        "{} text events: {pieces:?}",
        pieces.len()
    );
    judge(&world, session, &[&window]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_may_arrive_in_any_pieces() {
    for dialect in DIALECTS {
        for size in [1, 2, 3, 7, 64] {
            let server = ModelServer::start(dialect);
            let world = World::new().await;
            let text = "Größe: 語 🪸, “quoted”, a\ttab\nand a line.";
            let script = Answer::new(dialect)
                .thinks("é—")
                .says(text)
                .says(" End.")
                .ends();
            server.script(script.in_pieces_of(size));
            let session = world.begin(&server, "Unicode, please.").await;
            let window = world.page().await.follow(session);
            assert_eq!(
                window.until_idle().await,
                format!("you: Unicode, please.\nthinks: é—\nmodel: {text} End.\n(completed)\n"),
                "{dialect:?} in pieces of {size}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_cut_by_a_token_limit_is_complete_and_says_so() {
    for dialect in DIALECTS {
        let server = ModelServer::start(dialect);
        let world = World::new().await;
        server.script(Answer::new(dialect).says("So short").reaches_its_limit());
        let session = world.begin(&server, "Be brief.").await;
        let window = world.page().await.follow(session);
        assert_eq!(
            window.until_idle().await,
            "you: Be brief.\nmodel: So short\n(completed: Length)\n",
            "{dialect:?}"
        );
        judge(&world, session, &[&window]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reasoning_alone_is_an_answer() {
    for dialect in DIALECTS {
        let server = ModelServer::start(dialect);
        let world = World::new().await;
        server.script(Answer::new(dialect).thinks("Hm, ").thinks("no.").ends());
        let session = world.begin(&server, "Say nothing.").await;
        let window = world.page().await.follow(session);
        assert_eq!(
            window.until_idle().await,
            "you: Say nothing.\nthinks: Hm, no.\n(completed)\n",
            "{dialect:?}"
        );
        judge(&world, session, &[&window]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_runs_after_its_step_and_its_result_goes_back_to_the_model() {
    for dialect in DIALECTS {
        let server = ModelServer::start(dialect);
        let world = World::new().await;
        server.script(
            Answer::new(dialect)
                .says("Let me look. ")
                .calls("current_time", json!({}))
                .ends(),
        );
        server.script(Answer::whole(dialect, "It is nine o'clock."));
        let session = world.begin(&server, "What time is it?").await;
        let window = world
            .page()
            .await
            .follow_with_witness(session, world.data_dir());
        assert_eq!(
            window.until_idle().await,
            "you: What time is it?\n\
             model: Let me look. \n\
             tool: current_time {} -> 2026-03-01T09:00:00Z\n\
             model: It is nine o'clock.\n\
             (completed)\n",
            "{dialect:?}"
        );
        let told = server.chat(2).await;
        let last = told
            .messages()
            .pop()
            .expect("the second step tells something");
        assert_eq!(
            (last.role.as_str(), last.content.as_str()),
            ("tool", "2026-03-01T09:00:00Z"),
            "{dialect:?}"
        );
        assert_eq!(server.counters().chats, 2);
        judge(&world, session, &[&window]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_was_cut_at_the_token_limit_never_runs() {
    for dialect in DIALECTS {
        let server = ModelServer::start(dialect);
        let world = World::new().await;
        server.script(
            Answer::new(dialect)
                .calls("current_time", json!({}))
                .reaches_its_limit(),
        );
        let session = world.begin(&server, "What time is it?").await;
        let window = world.page().await.follow(session);
        assert_eq!(
            window.until_idle().await,
            "you: What time is it?\ntool: current_time {} -> not run\n(completed: Length)\n",
            "{dialect:?}"
        );
        assert_eq!(server.counters().chats, 1);
        judge(&world, session, &[&window]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_sessions_stream_at_once_and_nothing_crosses_over() {
    for dialect in DIALECTS {
        let server = ModelServer::start(dialect);
        let world = World::new().await;
        let (one, two) = (Sentinel::new("one"), Sentinel::new("two"));
        for (asked, word) in [("First?", &one), ("Second?", &two)] {
            let gate = format!("middle of {asked}");
            server.script(
                Answer::new(dialect)
                    .says(&format!("{word} begins "))
                    .gate(&gate)
                    .says("and ends.")
                    .ends()
                    .when_asked(asked),
            );
        }
        world.add(server.provider()).await;
        let page = world.page().await;
        let first = page.follow(world.begin_with(server.model(), "First?").await);
        let second = page.follow(world.begin_with(server.model(), "Second?").await);
        first.sees(&one.to_string()).await;
        second.sees(&two.to_string()).await;
        server.pass("middle of Second?").await;
        second.until_idle().await;
        assert!(
            first.text().ends_with("(running)\n"),
            "the first still runs: {}",
            first.text()
        );
        server.pass("middle of First?").await;
        first.until_idle().await;
        let counts = [&first, &second].map(|window| {
            let text = window.text();
            (one.count_in(&text), two.count_in(&text))
        });
        assert_eq!(counts, [(1, 0), (0, 1)], "{dialect:?}");
    }
}
