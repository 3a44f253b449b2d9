//! Several windows, several sessions: each shows its own, all of it, and the same as every other.

use engine::gate::Gate;
use protocol::{Dialect, ErrorCode, Op};
use serde_json::json;
use tests::{
    backend::refusal,
    client::{CallKind, Fault, Page},
    model_server::{Answer, DIALECTS, ModelServer},
    sentinel::Sentinel,
    verdict::judge,
    world::World,
};

use super::{DIALECT, patient_page};

/// `two-windows-user`. `ReconcileByText` and `DraftBackTwice` cannot be: a message is shown when it is in the log and not
/// before, under the id of its item, and its text stays in the composer until there is a receipt.
#[tokio::test(flavor = "multi_thread")]
async fn the_same_text_sent_twice_from_two_windows_is_two_rows_in_both_and_a_refused_one_is_kept() {
    let (server, world) = (ModelServer::start(DIALECT), World::new().await);
    server.script(Answer::whole(DIALECT, "Hello."));
    let session = world.begin(&server, "Hello?").await;
    let one = Page::load(&world.line, "one").await.follow(session);
    let two = Page::load(&world.line, "two").await.follow(session);
    one.until_idle().await;
    two.until_idle().await;
    let text = Sentinel::new("same").to_string();
    let send = || Op::message(session, text.clone());
    let rows = |drawn: &str| drawn.matches(&format!("you: {text}")).count();
    let keep = || {
        world
            .engine()
            .save_draft(Some(session), text.as_str().into())
    };
    keep().await.expect("kept");
    server.script(Answer::new(DIALECT).says("First.").gate("end").ends());
    let (first, second) = tokio::join!(one.page().submit(send()), two.page().submit(send()));
    let (taken, refused) = match (first, second) {
        (Ok(taken), refused) | (refused, Ok(taken)) => (taken, refused),
        neither => panic!("{neither:?}"),
    };
    assert_eq!(refusal(refused), ErrorCode::TurnActive);
    assert!(taken.turn.is_some());
    // The window that was refused still has its text, and keeps it.
    keep().await.expect("kept");
    server.pass("end").await;
    for window in [&one, &two] {
        window.sees("First.").await;
        window.until_idle().await;
        assert_eq!(rows(&window.text()), 1);
    }
    assert_eq!(
        world.engine().draft(Some(session)).await,
        Ok(text.as_str().into())
    );
    server.script(Answer::whole(DIALECT, "Second."));
    two.page().submit(send()).await.expect("now it is taken");
    for window in [&one, &two] {
        window.sees("Second.").await;
        window.until_idle().await;
        assert_eq!(rows(&window.text()), 2, "{}", window.text());
        assert_eq!(window.counters().swaps, 1, "no reload");
    }
    assert_eq!(one.text(), two.text());
    assert_eq!(world.engine().draft(Some(session)).await, Ok("".into()));
    judge(&world, session, &[&one, &two]).await;

    // Either may close first; the other goes on.
    for (n, closing) in ["one", "two"].into_iter().enumerate() {
        let other = Page::load(&world.line, "a third").await.follow(session);
        other.until_idle().await;
        let answer = Sentinel::new("on").to_string();
        server.script(
            Answer::new(DIALECT)
                .says(&answer)
                .gate(closing)
                .says("!")
                .ends(),
        );
        world.say(session, "And?").await;
        other.sees(&answer).await;
        world.engine().window_gone(closing);
        server.pass(closing).await;
        other.sees(&format!("{answer}!")).await;
        other.until_idle().await;
        assert_eq!(rows(&other.text()), 2, "after closing {n}");
        judge(&world, session, &[&other]).await;
    }
}

/// `two-windows-tool`. Mutant: `KeyByProviderId`.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_id_that_comes_again_in_the_next_step_is_another_card_with_its_own_result() {
    for dialect in DIALECTS {
        let (server, world) = (ModelServer::start(dialect), World::new().await);
        let folder = world.data_dir().join("files");
        std::fs::create_dir_all(&folder).expect("a folder");
        let words = ["first", "second"].map(Sentinel::new);
        for (name, word) in ["a.txt", "b.txt"].iter().zip(&words) {
            std::fs::write(folder.join(name), format!("{word}\n")).expect("written");
            // Each answer numbers its calls from the start: the ids are the same.
            let answer = Answer::new(dialect).calls("read_file", json!({ "path": name }));
            server.script(answer.ends());
        }
        server.script(Answer::whole(dialect, "Read."));
        let session = world.begin_in(&server, &folder, "Read both.").await;
        let one = Page::load(&world.line, "one").await.follow(session);
        let two = Page::load(&world.line, "two").await.follow(session);
        for window in [&one, &two] {
            window.sees("Read.").await;
            let text = window.until_idle().await;
            let cards: Vec<_> = text
                .lines()
                .filter(|line| line.starts_with("tool: "))
                .collect();
            assert_eq!(cards.len(), 2, "{dialect:?}: {text}");
            for word in &words {
                assert_eq!(word.count_in(&text), 1, "{dialect:?}: {text}");
            }
            let at = |word: &Sentinel| text.find(&word.to_string());
            assert!(at(&words[0]) < at(&words[1]), "{dialect:?}: {text}");
        }
        judge(&world, session, &[&one, &two]).await;
    }
}

/// `nested-items`. `KeyByKind` cannot be: a result names its call by an id of ours, and the log takes one for each.
#[tokio::test(flavor = "multi_thread")]
async fn four_calls_that_end_out_of_order_have_their_own_results_and_the_model_gets_them_in_order()
{
    for dialect in DIALECTS {
        let (server, world) = (ModelServer::start(dialect), World::new().await);
        let folder = world.data_dir().join("files");
        std::fs::create_dir_all(&folder).expect("a folder");
        let words = ["one", "two", "three", "four"].map(Sentinel::new);
        let mut answer = Answer::new(dialect);
        for (n, word) in words.iter().enumerate() {
            std::fs::write(folder.join(format!("{n}.txt")), format!("{word}\n")).expect("written");
            answer = answer.calls("read_file", json!({ "path": format!("{n}.txt") }));
        }
        server.script(answer.ends());
        server.script(Answer::whole(dialect, "Read."));
        // Whichever comes to its tool first is the last to use it.
        world.gates.hold(Gate::ToolRunning);
        let session = world.begin_in(&server, &folder, "Read all.").await;
        let window = world.page().await.follow(session);
        world.gates.arrived(Gate::ToolRunning).await;
        window
            .until_text("the three others", |text| {
                words.iter().filter(|word| word.count_in(text) == 1).count() == 3
            })
            .await;
        world.gates.release(Gate::ToolRunning);
        window.sees("model: Read.").await;
        let text = window.until_idle().await;
        for (n, word) in words.iter().enumerate() {
            let card = text.lines().find(|line| line.contains(&format!("{n}.txt")));
            let card = card.expect("a card");
            let own = words.iter().filter(|other| other.count_in(card) > 0);
            assert_eq!(own.collect::<Vec<_>>(), [word], "{dialect:?}: {card}");
        }
        let told = server.chat(2).await.messages();
        let results: Vec<_> = told
            .iter()
            .filter(|message| message.role == "tool")
            .collect();
        assert_eq!(results.len(), 4);
        for (result, word) in results.iter().zip(&words) {
            assert_eq!(
                word.count_in(&result.content),
                1,
                "{dialect:?}: in call order"
            );
        }
        judge(&world, session, &[&window]).await;
    }
}

/// `switch-midstream`. `AppendToLastItem` cannot be: text names the item it belongs to, in the transcript it belongs to.
#[tokio::test(flavor = "multi_thread")]
async fn text_goes_to_its_own_session_while_another_is_looked_at_whose_load_failed() {
    let server = ModelServer::start(Dialect::OpenAiChat);
    let world = World::new().await;
    let (a, b) = (Sentinel::new("a"), Sentinel::new("b"));
    let answer = Answer::new(Dialect::OpenAiChat)
        .says(&format!("{a} "))
        .gate("a");
    server.script(answer.says(&format!("{a}.")).ends().when_asked("First?"));
    let answer = Answer::new(Dialect::OpenAiChat)
        .says(&format!("{b} "))
        .gate("b");
    server.script(answer.says(&format!("{b}.")).ends().when_asked("Second?"));
    world.add(server.provider()).await;
    let (page, clock) = patient_page(&world, "main").await;
    let first_session = world.begin_with(server.model(), "First?").await;
    let first = page.follow(first_session);
    first.sees(&a.to_string()).await;
    first.hide();
    let second_session = world.begin_with(server.model(), "Second?").await;
    page.fault(CallKind::Attach, Fault::Refuse(ErrorCode::StorageFailed));
    let second = page.follow(second_session);
    second
        .until_counters("the failure", |now| now.refused == 1)
        .await;
    assert!(second.look(|shown| shown.is_none()));
    clock.fire_next_within(super::REPAIR_MAX).await;
    second.sees(&b.to_string()).await;
    server.pass("a").await;
    server.pass("b").await;
    let second_text = second.until_idle().await;
    first.show();
    let first_text = first.until_idle().await;
    assert_eq!(
        (first_text, second_text),
        (
            format!("you: First?\nmodel: {a} {a}.\n(completed)\n"),
            format!("you: Second?\nmodel: {b} {b}.\n(completed)\n"),
        )
    );
    judge(&world, first_session, &[&first]).await;
    judge(&world, second_session, &[&second]).await;
}
