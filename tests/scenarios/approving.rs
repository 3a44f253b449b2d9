//! A call that changes something waits for the user's word: once, however many windows there are, and however long.

use std::{fs, path::Path, time::Duration};

use protocol::{
    Answer as Word, Dialect, ErrorCode, Intent, ItemBody, ItemId, Op, Phase, Resolution, SessionId,
    SessionState, TurnId,
};
use serde_json::json;
use tempfile::TempDir;
use tests::{
    backend::Missed,
    client::{Client, Page},
    model_server::{Answer, DIALECTS, ModelServer, Script},
    verdict::judge,
    world::World,
};
use transcript::Transcript;

const TURN: TurnId = TurnId::FIRST;

/// The call of the first turn.
const CALL: ItemId = ItemId::new(2);

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

fn writes(dialect: Dialect, path: &str, content: &str) -> Script {
    Answer::new(dialect)
        .calls("write_file", json!({"path": path, "content": content}))
        .ends()
}

fn word(session: SessionId, turn: TurnId, item: ItemId, answer: Word) -> Op {
    Op::AnswerApproval {
        session,
        turn,
        item,
        answer,
    }
}

fn read(folder: &TempDir, name: &str) -> Option<String> {
    fs::read_to_string(folder.path().join(name)).ok()
}

async fn asked(window: &Client<Transcript>) -> ItemId {
    let status = window
        .until_status("the question", |status| {
            matches!(status.phase, Phase::Asking { .. })
        })
        .await;
    window.sees("[asks]").await;
    match status.phase {
        Phase::Asking { item } => item,
        other => panic!("{other:?}"),
    }
}

fn shown_intent(window: &Client<Transcript>, call: ItemId) -> Intent {
    window.look(|transcript| {
        let item = transcript
            .and_then(|t| t.item(TURN, call))
            .expect("the call");
        match &item.body {
            ItemBody::ToolCall {
                approval: Some(approval),
                ..
            } => approval.intent.clone(),
            other => panic!("{other:?}"),
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_written_only_after_the_word_and_exactly_as_it_was_shown() {
    for dialect in DIALECTS {
        let (server, world, notes) = (ModelServer::start(dialect), World::new().await, folder());
        fs::write(notes.path().join("tides.md"), "two tides\n").expect("a note");
        server.script(writes(dialect, "tides.md", "two tides a day\n"));
        server.script(Answer::whole(dialect, "Written."));
        let session = world.begin_in(&server, notes.path(), "Note it.").await;
        let window = world
            .page()
            .await
            .follow_with_witness(session, world.data_dir());
        let library = Page::load(&world.line, "list").await.follow_library();
        assert_eq!(asked(&window).await, CALL);
        library
            .until_shown("the list to say so", |library| {
                let state = library.session(session)?.state;
                (state == SessionState::Asking { turn: TURN }).then_some(())
            })
            .await;
        let Intent::WriteFile {
            path,
            before,
            after,
            diff,
            ..
        } = shown_intent(&window, CALL);
        assert!(
            Path::new(&path).is_absolute() && path.ends_with("tides.md"),
            "{path}"
        );
        assert_eq!((before, after), (Some(10), 16));
        assert!(diff.contains("-two tides\n+two tides a day\n"), "{diff}");
        assert_eq!(read(&notes, "tides.md").as_deref(), Some("two tides\n"));

        world
            .submit(word(session, TURN, CALL, Word::AllowOnce))
            .await
            .expect("the word is taken");
        let text = window.until_idle().await;
        assert!(text.contains("[allowedonce]"), "{text}");
        assert!(text.ends_with("model: Written.\n(completed)\n"), "{text}");
        assert_eq!(
            read(&notes, "tides.md").as_deref(),
            Some("two tides a day\n")
        );
        judge(&world, session, &[&window]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denied_call_changes_nothing_and_the_model_is_told_so() {
    for dialect in DIALECTS {
        let (server, world, notes) = (ModelServer::start(dialect), World::new().await, folder());
        server.script(writes(dialect, "a.md", "a"));
        server.script(Answer::whole(dialect, "As you wish."));
        let session = world.begin_in(&server, notes.path(), "Note it.").await;
        let window = world.page().await.follow(session);
        asked(&window).await;
        world
            .submit(word(session, TURN, CALL, Word::Deny))
            .await
            .expect("the word is taken");
        let text = window.until_idle().await;
        assert!(text.contains("[denied] -> denied"), "{text}");
        assert_eq!(read(&notes, "a.md"), None);
        let told = server.chat(2).await.messages().pop().expect("a result");
        assert!(told.content.contains("did not allow"), "{}", told.content);
        judge(&world, session, &[&window]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_outlives_every_window_and_does_not_count_as_work() {
    let dialect = Dialect::Ollama;
    let (server, world, notes) = (ModelServer::start(dialect), World::new().await, folder());
    server.script(writes(dialect, "a.md", "a"));
    server.script(Answer::new(dialect).says("Done").gate("working").ends());
    let session = world.begin_in(&server, notes.path(), "Note it.").await;
    let window = world.page().await.follow(session);
    asked(&window).await;
    drop(window);

    // Four times the ceiling, and nobody there.
    world.clock.advance(world.ceiling() * 4);
    let window = world.page().await.follow(session);
    assert_eq!(asked(&window).await, CALL);
    world
        .submit(word(session, TURN, CALL, Word::AllowOnce))
        .await
        .expect("the word is taken");
    window.sees("model: Done").await;
    assert_eq!(read(&notes, "a.md").as_deref(), Some("a"));

    // From here on it works again, and has all of its time left.
    let before = world.ceiling() - Duration::from_secs(1);
    let mut left = before;
    while left > Duration::ZERO {
        let step = left.min(world.gap() - Duration::from_secs(1));
        world.clock.until_armed_within(world.gap()).await;
        world.clock.advance(step);
        left -= step;
        if left > Duration::ZERO {
            break;
        }
    }
    assert!(window.text().ends_with("(running)\n"), "{}", window.text());
    server.pass("working").await;
    window.until_idle().await;
    judge(&world, session, &[&window]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_answers_one_counts_and_the_other_window_is_told_which() {
    let dialect = Dialect::OpenAiChat;
    for (first, second) in [
        (Word::AllowOnce, Word::Deny),
        (Word::Deny, Word::AllowForSession),
    ] {
        let (server, world, notes) = (ModelServer::start(dialect), World::new().await, folder());
        server.script(writes(dialect, "a.md", "a"));
        server.script(Answer::whole(dialect, "So be it."));
        let session = world.begin_in(&server, notes.path(), "Note it.").await;
        let one = world.page().await;
        let two = Page::load(&world.line, "second").await;
        let (left, right) = (one.follow(session), two.follow(session));
        asked(&left).await;
        asked(&right).await;
        let answers = tokio::join!(
            one.submit(word(session, TURN, CALL, first)),
            two.submit(word(session, TURN, CALL, second)),
        );
        let (won, lost) = match answers {
            (Ok(_), Err(lost)) => (first, lost),
            (Err(lost), Ok(_)) => (second, lost),
            other => panic!("{other:?}"),
        };
        let resolution = Resolution::from(won);
        let Missed::Refused(report) = lost else {
            panic!("{lost:?}")
        };
        assert_eq!(report.code, ErrorCode::AlreadyResolved { resolution });
        left.until_idle().await;
        right.until_idle().await;
        let written = read(&notes, "a.md").is_some();
        assert_eq!(written, won != Word::Deny);
        judge(&world, session, &[&left, &right]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_allowed_for_the_conversation_is_not_asked_again_until_its_folder_changes() {
    let dialect = Dialect::Ollama;
    let (server, world) = (ModelServer::start(dialect), World::new().await);
    let (notes, other) = (folder(), folder());
    for name in ["a.md", "b.md", "c.md"] {
        server.script(writes(dialect, name, name));
        server.script(Answer::whole(dialect, "Written."));
    }
    let session = world.begin_in(&server, notes.path(), "Note it.").await;
    let window = world.page().await.follow(session);
    asked(&window).await;
    world
        .submit(word(session, TURN, CALL, Word::AllowForSession))
        .await
        .expect("the word is taken");
    window.until_idle().await;

    world.say(session, "And another.").await;
    window.sees("you: And another.").await;
    let text = window.until_idle().await;
    assert_eq!(text.matches("[allowedforsession]").count(), 1, "{text}");
    assert_eq!(read(&notes, "b.md").as_deref(), Some("b.md"));

    let choose = Op::ChooseFolder {
        session,
        folder: Some(other.path().to_str().expect("a plain name").to_owned()),
    };
    world.submit(choose).await.expect("the folder is taken");
    let turn = world.say(session, "And over there.").await;
    let question = asked(&window).await;
    assert_eq!(read(&other, "c.md"), None);
    world
        .submit(word(session, turn, question, Word::AllowOnce))
        .await
        .expect("the word is taken");
    window.until_idle().await;
    assert_eq!(read(&other, "c.md").as_deref(), Some("c.md"));
    judge(&world, session, &[&window]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn four_times_the_same_call_is_one_question_and_one_file() {
    let dialect = Dialect::OpenAiChat;
    let (server, world, notes) = (ModelServer::start(dialect), World::new().await, folder());
    let call = json!({"path": "a.md", "content": "a"});
    let answer = (0..4).fold(Answer::new(dialect), |answer, _| {
        answer.calls("write_file", call.clone())
    });
    server.script(answer.ends());
    server.script(Answer::whole(dialect, "Written."));
    let session = world.begin_in(&server, notes.path(), "Note it.").await;
    let window = world.page().await.follow(session);
    asked(&window).await;
    assert_eq!(window.text().matches("[asks]").count(), 4);
    world
        .submit(word(session, TURN, CALL, Word::AllowOnce))
        .await
        .expect("the word is taken");
    let text = window.until_idle().await;
    assert_eq!(text.matches("[allowedonce]").count(), 4, "{text}");
    assert_eq!(text.matches("-> not run").count(), 3, "{text}");
    judge(&world, session, &[&window]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_and_quit_let_an_open_question_expire_and_nothing_is_written() {
    let dialect = Dialect::Ollama;
    for quits in [false, true] {
        let (server, notes) = (ModelServer::start(dialect), folder());
        let mut world = World::new().await;
        server.script(writes(dialect, "a.md", "a"));
        let session = world.begin_in(&server, notes.path(), "Note it.").await;
        let window = world.page().await.follow(session);
        asked(&window).await;
        if quits {
            drop(window);
            world.restart().await;
        } else {
            world.stop(session, TURN).await;
        }
        let window = world.page().await.follow(session);
        let text = window.until_idle().await;
        assert!(text.contains("[expired] -> not run"), "{text}");
        assert_eq!(read(&notes, "a.md"), None);
        let late = world
            .submit(word(session, TURN, CALL, Word::AllowOnce))
            .await
            .expect_err("it is too late");
        let Missed::Refused(report) = late else {
            panic!("{late:?}")
        };
        let resolution = Resolution::Expired;
        assert_eq!(report.code, ErrorCode::AlreadyResolved { resolution });
        judge(&world, session, &[&window]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_whose_engine_was_killed_expires_at_the_next_start() {
    let dialect = Dialect::OpenAiChat;
    let (server, notes) = (ModelServer::start(dialect), folder());
    let mut world = World::without_engine();
    let child = world
        .spawn(Path::new(env!("CARGO_BIN_EXE_engine_child")))
        .await;
    server.script(writes(dialect, "a.md", "a"));
    let session = world.begin_in(&server, notes.path(), "Note it.").await;
    let window = world.page().await.follow(session);
    asked(&window).await;
    child.kill().await;
    world.line.cut();
    drop(window);

    world.open().await;
    let window = world.page().await.follow(session);
    let text = window.until_idle().await;
    assert!(
        text.contains("[expired] -> abandoned, effect none"),
        "{text}"
    );
    assert!(text.ends_with("(interrupted: Crash)\n"), "{text}");
    assert_eq!(read(&notes, "a.md"), None);
    judge(&world, session, &[&window]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changed_since_the_question_is_left_alone() {
    let dialect = Dialect::Ollama;
    let (server, world, notes) = (ModelServer::start(dialect), World::new().await, folder());
    server.script(writes(dialect, "a.md", "theirs"));
    server.script(Answer::whole(dialect, "I see."));
    let session = world.begin_in(&server, notes.path(), "Note it.").await;
    let window = world.page().await.follow(session);
    asked(&window).await;
    fs::write(notes.path().join("a.md"), "mine").expect("a note");
    world
        .submit(word(session, TURN, CALL, Word::AllowOnce))
        .await
        .expect("the word is taken");
    let text = window.until_idle().await;
    assert!(text.contains("-> failed: "), "{text}");
    assert_eq!(read(&notes, "a.md").as_deref(), Some("mine"));
    judge(&world, session, &[&window]).await;
}

/// The session looks before it writes; below that the database itself takes one answer and no more.
#[tokio::test(flavor = "multi_thread")]
async fn the_database_refuses_a_second_answer_and_without_its_index_it_would_take_two() {
    let dialect = Dialect::Ollama;
    for (index, expected) in [("kept", 1), ("dropped", 2)] {
        let (server, notes) = (ModelServer::start(dialect), folder());
        let mut world = World::without_engine();
        world.mutant = Some(engine::mutant::Mutant::AnyAnswerCounts);
        world.open().await;
        if index == "dropped" {
            let file = world.data_dir().join(tests::seeded::DATABASE);
            let raw = rusqlite::Connection::open(file).expect("it opens");
            raw.execute_batch("DROP INDEX one_resolution_per_approval")
                .expect("it is dropped");
        }
        server.script(writes(dialect, "a.md", "a"));
        server.script(Answer::whole(dialect, "So be it."));
        let session = world.begin_in(&server, notes.path(), "Note it.").await;
        let window = world.page().await.follow(session);
        asked(&window).await;
        world.gates.hold(engine::gate::Gate::BeforeDial);
        let first = world
            .submit(word(session, TURN, CALL, Word::AllowOnce))
            .await;
        first.expect("the first counts");
        world.gates.arrived(engine::gate::Gate::BeforeDial).await;
        let second = world.submit(word(session, TURN, CALL, Word::Deny)).await;
        assert_eq!(second.is_ok(), expected == 2, "{index}: {second:?}");
        world.gates.release(engine::gate::Gate::BeforeDial);
        window.until_idle().await;
        let events = world.events(session);
        let answers = events
            .iter()
            .filter(|event| matches!(event.body, protocol::EventBody::ApprovalResolved { .. }));
        assert_eq!(answers.count(), expected, "{index}");
    }
}
