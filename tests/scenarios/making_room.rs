//! A conversation that outgrew its model is summed up once, by the model itself, and nothing is lost or left out in silence.

use protocol::{Dialect, EventBody, FailureCode, Op, TurnId};
use serde_json::json;
use tests::{
    model_server::{Answer, DIALECTS, ModelServer, Script},
    sentinel::Sentinel,
    verdict::judge,
    world::World,
};

fn too_long(dialect: Dialect) -> Script {
    Script::error(
        dialect,
        400,
        "request (1531 tokens) exceeds the available context size (1024 tokens)",
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn the_older_part_is_summed_up_and_the_turn_goes_on() {
    for dialect in DIALECTS {
        let (server, world) = (ModelServer::start(dialect), World::new().await);
        let (old, summary) = (Sentinel::new("old"), Sentinel::new("summary"));
        server.script(Answer::whole(
            dialect,
            &format!("{} {old}", "kelp ".repeat(100)),
        ));
        server.script(too_long(dialect));
        server.script(Answer::whole(dialect, &format!("They spoke of {summary}.")));
        server.script(Answer::whole(dialect, "Twice a day."));
        server.script(Answer::whole(dialect, "Yes."));
        let session = world.begin(&server, "What is kelp?").await;
        let window = world.page().await.follow(session);
        window.until_idle().await;
        world.say(session, "And the tides?").await;
        window.sees("Twice a day.").await;
        let text = window.until_idle().await;
        assert_eq!(text.matches("compacted: ").count(), 1, "{text}");
        assert_eq!(
            old.count_in(&text),
            1,
            "the old answer is still there: {text}"
        );

        let asked = server.chat(3).await.conversation();
        assert_eq!(asked.len(), 1, "{asked:?}");
        assert_eq!(old.count_in(&asked[0].1), 1, "{asked:?}");
        let told = server.chat(4).await.messages();
        let roles: Vec<&str> = told.iter().map(|said| said.role.as_str()).collect();
        assert_eq!(roles, ["system", "user"], "{told:?}");
        assert_eq!(summary.count_in(&told[0].content), 1, "{told:?}");

        // It stays so, and the conversation grows at its end only.
        world.say(session, "Really?").await;
        window.sees("model: Yes.").await;
        window.until_idle().await;
        let next = server.chat(5).await.messages();
        assert_eq!(next[..2], told[..], "{dialect:?}");
        assert_eq!(server.counters().chats, 5);
        judge(&world, session, &[&window]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_empty_or_endless_summary_is_refused_and_nothing_is_left_out() {
    for dialect in DIALECTS {
        for cut in [
            Answer::new(dialect)
                .says("They spoke of")
                .reaches_its_limit(),
            Answer::new(dialect).says("   ").ends(),
            Answer::whole(dialect, &"They spoke of kelp. ".repeat(50)),
        ] {
            let (server, world) = (ModelServer::start(dialect), World::new().await);
            server.script(Answer::whole(dialect, &"kelp ".repeat(100)));
            server.script(too_long(dialect));
            server.script(cut);
            let session = world.begin(&server, "What is kelp?").await;
            let window = world.page().await.follow(session);
            window.until_idle().await;
            world.say(session, "And the tides?").await;
            window.sees("And the tides?").await;
            let text = window.until_idle().await;
            assert!(text.ends_with("(failed: ContextOverflow)\n"), "{text}");
            assert!(!text.contains("compacted"), "{text}");
            assert_eq!(server.counters().chats, 3);
            judge(&world, session, &[&window]).await;
        }
    }
}

/// `budget-band`: whichever part of the context is there, one compaction makes room, and what it leaves out is said. Mutants:
/// `PlaceholderAsResult`, `ThresholdOnly`.
#[tokio::test(flavor = "multi_thread")]
async fn from_half_of_the_context_to_all_of_it_one_compaction_makes_room_and_says_what_it_left_out()
{
    const LEFT_OUT: &str = "The tool ran. Its result of";
    for (nth, percent) in (50..=100).step_by(5).enumerate() {
        let dialect = DIALECTS[nth % DIALECTS.len()];
        let (server, world) = (ModelServer::start(dialect), World::new().await);
        let folder = world.data_dir().join("files");
        std::fs::create_dir(&folder).expect("a fresh folder");
        let (old, new) = (Sentinel::new("old"), Sentinel::new("new"));
        for (name, word) in [("a.txt", &old), ("b.txt", &new)] {
            let long = format!("{word}\n{}", "kelp and tides\n".repeat(400));
            std::fs::write(folder.join(name), long).expect("a fresh file");
        }
        server.script(Answer::whole(dialect, &"# Kelp\n\n- holds on\n".repeat(40)));
        let read = |name: &str| json!({ "path": name });
        let answer = Answer::new(dialect)
            .calls("read_file", read("a.txt"))
            .calls("read_file", read("none.txt"))
            .calls("current_time", json!({}))
            .calls("read_file", read("b.txt"));
        server.script(answer.ends());
        let words = format!(
            "request (1000 tokens) exceeds the available context size ({} tokens)",
            10 * percent
        );
        server.script(Script::error(dialect, 400, &words));
        // A summary, if one is asked for, and the answer.
        server.script(Answer::whole(dialect, "It is about kelp."));
        server.script(Answer::whole(dialect, "It is about kelp."));
        let session = world.begin_in(&server, &folder, "What is kelp?").await;
        let window = world.page().await.follow(session);
        window.until_idle().await;
        world.say(session, "Read both, and something else.").await;
        window.sees("Read both").await;
        let text = window.until_idle().await;
        server.forget_scripts();
        assert!(text.ends_with("(completed)\n"), "{percent} %: {text}");
        assert_eq!(text.matches("compacted: ").count(), 1, "{percent} %");

        let requests = server.chats();
        let refused = requests[2].conversation();
        let last = requests.last().expect("a request").messages();
        let told = |wanted: &str| {
            let told = last.iter().filter(|said| said.content.contains(wanted));
            told.count()
        };
        let (is_left_out, is_whole) = (told(LEFT_OUT), told(&old.to_string()));
        assert_eq!(
            is_left_out + is_whole,
            1,
            "{percent} %: told or said to be left out"
        );
        assert_eq!(
            told(&new.to_string()),
            1,
            "{percent} %: the newest one stays"
        );
        assert_eq!(told("Error: "), 1, "{percent} %: errors always pass");
        assert_eq!(
            told("2026-03-01T09:00:00Z"),
            1,
            "{percent} %: and so do small ones"
        );
        let bytes = |said: usize, content: &str| said + content.len();
        let before = refused.iter().fold(0, |sum, (_, said)| bytes(sum, said));
        let after = last.iter().fold(0, |sum, said| bytes(sum, &said.content));
        assert!(
            after < before,
            "{percent} %: {after} bytes instead of {before}"
        );
        judge(&world, session, &[&window]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_that_still_does_not_fit_is_given_up_not_summed_up_again() {
    let dialect = Dialect::Ollama;
    let (server, world) = (ModelServer::start(dialect), World::new().await);
    server.script(Answer::whole(dialect, &"kelp ".repeat(100)));
    server.script(too_long(dialect));
    server.script(Answer::whole(dialect, "They spoke of kelp."));
    server.script(too_long(dialect));
    let session = world.begin(&server, "What is kelp?").await;
    let window = world.page().await.follow(session);
    window.until_idle().await;
    world.say(session, "And the tides?").await;
    window.sees("And the tides?").await;
    let text = window.until_idle().await;
    assert!(text.ends_with("(failed: ContextOverflow)\n"), "{text}");
    assert_eq!(server.counters().chats, 4);
    let compactions = world
        .events(session)
        .iter()
        .filter(|event| matches!(event.body, EventBody::HistoryCompacted { .. }))
        .count();
    assert_eq!(compactions, 1);
    judge(&world, session, &[&window]).await;
}

/// B71. Nobody is stuck: another model is offered, and answers the same message, which stands in the chat once.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_does_not_fit_one_model_is_answered_by_another() {
    let offered = transcript::words::offers_after(FailureCode::ContextOverflow);
    assert!(offered.contains(&transcript::words::Offer::ChooseModel));
    for words in [
        "request (1531 tokens) exceeds the available context size (1024 tokens)",
        "This model's maximum context length is 1024 tokens. Please reduce the length of the messages.",
        "输入长度超过模型的最大上下文长度",
    ] {
        let (small, large) = (
            ModelServer::start(Dialect::Ollama),
            ModelServer::start(Dialect::OpenAiChat),
        );
        let world = World::new().await;
        world.add(large.provider()).await;
        small.script(Script::error(Dialect::Ollama, 400, words));
        let session = world.begin(&small, "What is kelp?").await;
        let window = world.page().await.follow(session);
        window.sees("What is kelp?").await;
        let text = window.until_idle().await;
        assert!(
            text.ends_with("(failed: ContextOverflow)\n"),
            "{words}: {text}"
        );
        large.script(Answer::whole(Dialect::OpenAiChat, "An alga."));
        let model = large.model();
        let chosen = world.submit(Op::ChooseModel { session, model }).await;
        chosen.expect("it is chosen");
        let tip = window.look(|shown| shown.and_then(|shown| shown.tip()));
        let retry = Op::RetryTurn {
            session,
            turn: TurnId::FIRST,
            expected_tip: tip.expect("a tip"),
        };
        world.submit(retry).await.expect("it is asked again");
        window.sees("model: An alga.").await;
        let text = window.until_idle().await;
        assert_eq!(
            text, "you: What is kelp?\nmodel: An alga.\n(completed)\n",
            "{words}"
        );
        let told = large.chat(1).await.conversation();
        assert_eq!(told.len(), 1, "the failed turn adds nothing: {told:?}");
    }
}
