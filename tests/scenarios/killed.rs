//! SIGKILL at any moment: every word that was drawn is there after the next start, in a turn with exactly one end.

use std::path::Path;

use protocol::{Dialect, InterruptedWhy, SessionId, TurnOutcome};
use serde_json::json;
use tests::{
    client::{Client, Page},
    model_server::{ALL_DIALECTS, Answer, ModelServer},
    sentinel::Sentinel,
    verdict::judge,
    world::World,
};
use transcript::Transcript;

const CHILD: &str = env!("CARGO_BIN_EXE_engine_child");

/// A conversation in a child process, at the moment before the kill.
struct Story {
    world: World,
    server: ModelServer,
    child: tests::child::Child,
    session: SessionId,
    window: Client<Transcript>,
}

async fn begin(server: ModelServer) -> Story {
    let world = World::without_engine();
    let child = world.spawn(Path::new(CHILD)).await;
    let session = world.begin(&server, "Hello?").await;
    let window = Page::load(&world.line, "main").await;
    let window = window.follow_with_witness(session, world.data_dir());
    Story {
        world,
        server,
        child,
        session,
        window,
    }
}

impl Story {
    /// Kills the child, opens the folder again here, and compares what had been drawn with what is there now.
    async fn kill_and_reopen(self) -> String {
        let Self {
            mut world,
            server,
            child,
            session,
            window,
        } = self;
        child.kill().await;
        world.line.cut();
        let drawn = window.draws();
        window.no_contradictions();
        drop(window);
        let dialect = server.dialect();
        world.open().await;
        let window = world.page().await.follow(session);
        let text = window.until_idle().await;
        for drawn in &drawn {
            let said = drawn.lines().filter(|line| !line.starts_with('('));
            for line in said.map(|line| line.split(" -> ").next().unwrap_or(line)) {
                let kept = text.lines().any(|kept| kept.starts_with(line));
                assert!(kept, "{line:?} had been drawn, and now there is\n{text}");
            }
        }
        judge(&world, session, &[&window]).await;

        server.script(Answer::whole(dialect, "I am back."));
        world.say(session, "Are you there?").await;
        window.sees("I am back.").await;
        window.until_idle().await;
        judge(&world, session, &[&window]).await;
        text
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_before_the_first_word_the_message_is_there_and_interrupted() {
    for dialect in ALL_DIALECTS {
        let server = ModelServer::start(dialect);
        server.script(Answer::new(dialect).goes_silent());
        let story = begin(server).await;
        story.server.chat(1).await;
        story.window.sees("you: Hello?").await;
        let text = story.kill_and_reopen().await;
        assert_eq!(text, "you: Hello?\n(interrupted: Crash)\n", "{dialect:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_in_mid_answer_every_word_that_was_drawn_is_there() {
    for dialect in ALL_DIALECTS {
        for words in [1, 2, 25, 400] {
            let server = ModelServer::start(dialect);
            let last = Sentinel::new("last");
            let answer = (1..words).fold(Answer::new(dialect), |answer, n| {
                answer.says(&format!("word{n} "))
            });
            server.script(answer.says(&last.to_string()).goes_silent());
            let story = begin(server).await;
            story.window.sees(&last.to_string()).await;
            let text = story.kill_and_reopen().await;
            assert_eq!(last.count_in(&text), 1, "{dialect:?} after {words}: {text}");
            assert!(text.ends_with("(interrupted: Crash)\n"), "{text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_text_pours_in_what_was_drawn_is_a_part_of_what_is_there() {
    tests::kept_log::differs("how much had come when it was killed is a matter of time");
    for dialect in ALL_DIALECTS {
        let server = ModelServer::start(dialect);
        let answer = Answer::new(dialect).says_word_by_word(&"word ".repeat(20_000));
        server.script(answer.goes_silent());
        let story = begin(server).await;
        story
            .window
            .until_text("some text", |text| text.len() > 2_000)
            .await;
        let text = story.kill_and_reopen().await;
        assert!(text.ends_with("(interrupted: Crash)\n"), "{dialect:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_between_two_steps_the_tools_result_is_there_once() {
    for dialect in ALL_DIALECTS {
        let server = ModelServer::start(dialect);
        server.script(
            Answer::new(dialect)
                .says("Let me look. ")
                .calls("current_time", json!({}))
                .ends(),
        );
        server.script(Answer::new(dialect).thinks("So it is ").goes_silent());
        let story = begin(server).await;
        story.window.sees("So it is ").await;
        let text = story.kill_and_reopen().await;
        assert_eq!(
            text.matches("tool: current_time {} -> 20").count(),
            1,
            "{dialect:?}: {text}"
        );
        assert!(
            text.ends_with("thinks: So it is \n(interrupted: Crash)\n"),
            "{text}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_after_the_end_the_turn_keeps_the_end_it_had() {
    for dialect in ALL_DIALECTS {
        let server = ModelServer::start(dialect);
        server.script(Answer::whole(dialect, "All of it."));
        let story = begin(server).await;
        story.window.until_idle().await;
        let text = story.kill_and_reopen().await;
        assert_eq!(
            text, "you: Hello?\nmodel: All of it.\n(completed)\n",
            "{dialect:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_during_recovery_again_and_again_there_is_still_one_end() {
    let server = ModelServer::start(Dialect::Ollama);
    server.script(Answer::new(Dialect::Ollama).says("Half of ").goes_silent());
    let mut story = begin(server).await;
    story.window.sees("Half of ").await;
    for _ in 0..5 {
        story.child.kill().await;
        story.child = story.world.spawn(Path::new(CHILD)).await;
    }
    let stored = story.world.reader().transcript(story.session).unwrap();
    let why = InterruptedWhy::Crash;
    assert_eq!(
        stored.turns[0].outcome,
        Some(TurnOutcome::Interrupted { why })
    );
    let text = story.kill_and_reopen().await;
    assert_eq!(text, "you: Hello?\nmodel: Half of \n(interrupted: Crash)\n");
}
