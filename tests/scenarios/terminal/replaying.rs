//! `holdfast replay`: a conversation shown again at the terminal, at its pace, in steps, or as fast as a pipe takes it.

use std::time::Duration;

use protocol::{Dialect, Op, TurnId};
use serde_json::json;
use tests::{
    model_server::{Answer, ModelServer, Script},
    world::World,
};

use super::{
    Desk,
    keyboard::{AtTerminal, run, run_unread},
    whole, words,
};

const STEPS: &str = "Enter or Space shows the next event, q leaves";

/// A recorded conversation of one turn in which nothing happened for 4 min 12 s, with its engine closed.
async fn a_wait() -> (ModelServer, World) {
    let server = ModelServer::start(Dialect::Ollama);
    let answer = Answer::new(Dialect::Ollama).says("One ").gate("long");
    server.script(answer.says("two.").ends());
    let mut world = World::new().await;
    let session = world.begin(&server, "Count.").await;
    let window = world.page().await.follow(session);
    server.arrived("long").await;
    window.sees("model: One ").await;
    world.clock.until_armed(world.gap()).await;
    world.clock.advance(Duration::from_secs(252));
    server.release("long");
    window.until_idle().await;
    world.quit().await;
    (server, world)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the built app"]
async fn every_turn_of_a_replay_says_which_requests_of_it_failed() {
    let desk = Desk::new();
    let data_dir = desk.world.data_dir();
    for more in [&[][..], &["--session", "last"]] {
        let busy = Script::error(Dialect::Ollama, 503, "server busy");
        desk.server.script(busy);
        desk.server.script(whole("Yes."));
        run(data_dir, &words(&desk.ask(more))).await;
    }
    let shown = run(data_dir, &["replay", "last"]).await;
    let told = shown.err.matches("trying again in").count();
    assert_eq!(told, 2, "{shown:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the built app"]
async fn every_turn_of_a_replay_says_what_its_model_had_not_seen() {
    let desk = Desk::new();
    let data_dir = desk.world.data_dir();
    for more in [&[][..], &["--session", "last"]] {
        let reads_little = Answer::new(Dialect::Ollama).having_read(4_096);
        desk.server.script(reads_little.says("Oui.").ends());
        let mut asked = desk.ask(more);
        asked.pop();
        asked.push("kelp ".repeat(6_000));
        run(data_dir, &words(&asked)).await;
    }
    for (turns, times) in [(&[][..], 2), (&["--turn", "2"], 1)] {
        let shown = run(data_dir, &[&["replay", "last"], turns].concat()).await;
        let told = shown.err.matches("did not see all of this conversation");
        assert_eq!(told.count(), times, "{shown:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the built app"]
async fn a_pipe_gets_the_answers_again_at_once_and_stderr_what_happened_and_no_server_is_asked() {
    let desk = Desk::new();
    std::fs::write(desk.folder.path().join("a.txt"), "kelp\n").unwrap();
    let reads = Answer::new(Dialect::Ollama).calls("read_file", json!({ "path": "a.txt" }));
    desk.server.script(reads.ends());
    desk.server.script(whole("It says kelp."));
    let data_dir = desk.world.data_dir();
    run(data_dir, &words(&desk.ask(&[]))).await;
    let writes = json!({ "path": "a.txt", "content": "stone\n" });
    let calls = Answer::new(Dialect::Ollama).calls("write_file", writes);
    desk.server.script(calls.ends());
    desk.server.script(whole("Very well."));
    run(data_dir, &words(&desk.ask(&["--session", "last"]))).await;
    let dials = desk.server.counters().dials;

    let ran = run(data_dir, &["replay", "last"]).await;
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(0), "It says kelp.\n\nVery well.\n"),
        "{ran:?}"
    );
    for told in [
        "you: Please.\n",
        "waiting for ",
        "read_file {\"path\":\"a.txt\"}\n",
        "read_file ok: ",
        "write_file would change a file of 5 bytes into one of 6 bytes:\n",
        "+stone\n",
        "not allowed\n",
        "write_file not allowed\n",
    ] {
        assert!(ran.err.contains(told), "{told:?} is not in {ran:?}");
    }
    let one = run(data_dir, &["replay", "last", "--turn", "2"]).await;
    assert_eq!((one.code, one.out.as_str()), (Some(0), "Very well.\n"));
    let none = run(data_dir, &["replay", "last", "--turn", "3"]).await;
    assert_eq!((none.code, none.out.as_str()), (Some(1), ""), "{none:?}");
    assert!(none.err.contains("there is no turn 3"), "{none:?}");
    assert_eq!(desk.server.counters().dials, dials, "a server was asked");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the built app"]
async fn beside_an_open_engine_a_turn_that_was_answered_again_is_shown_as_it_was() {
    let server = ModelServer::start(Dialect::Ollama);
    server.script(whole("The first answer."));
    let second = Answer::new(Dialect::Ollama).says("The second ");
    server.script(second.gate("half").says("answer.").ends());
    let world = World::new().await;
    let session = world.begin(&server, "Say something.").await;
    let window = world.page().await.follow(session);
    window.sees("The first answer.").await;
    window.until_idle().await;
    let expected_tip = window.look(|shown| shown.and_then(|shown| shown.tip()));
    let retry = Op::RetryTurn {
        session,
        turn: TurnId::FIRST,
        expected_tip: expected_tip.expect("a tip"),
    };
    world.submit(retry).await.expect("it runs again");
    server.arrived("half").await;
    window.sees("model: The second ").await;

    let first = run(world.data_dir(), &["replay", "last", "--turn", "1"]).await;
    assert_eq!(
        (first.code, first.out.as_str()),
        (Some(0), "The first answer.\n"),
        "{first:?}"
    );
    let running = run(world.data_dir(), &["replay", "last"]).await;
    assert_eq!(
        (running.code, running.out.as_str()),
        (Some(0), "The second \n"),
        "{running:?}"
    );
    assert!(
        running.err.ends_with("this turn is running\n"),
        "{running:?}"
    );
    server.release("half");
    window.until_idle().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the built app"]
async fn a_long_wait_is_told_and_shortened_or_waited_out_until_somebody_interrupts() {
    let (_server, world) = a_wait().await;
    let piped = run(world.data_dir(), &["replay", "last"]).await;
    assert_eq!(piped.out, "One two.\n", "{piped:?}");
    assert!(piped.err.contains("\na wait of 4 min 12 s\n"), "{piped:?}");

    let fast = run(world.data_dir(), &["replay", "last", "--speed", "10"]).await;
    assert_eq!((fast.code, fast.out.as_str()), (Some(0), "One two.\n"));
    assert!(
        fast.err.contains("\na wait of 4 min 12 s, shortened\n"),
        "{fast:?}"
    );

    let exact = AtTerminal::start_all_there(world.data_dir(), &["replay", "last", "--exact"]);
    exact.sees("a wait of 4 min 12 s").await;
    exact.interrupts();
    let ran = exact.leaves_a_terminal().await;
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(!ran.err.contains("shortened"), "{ran:?}");
    assert!(!ran.err.contains("two."), "it waited: {ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the built app"]
async fn step_by_step_every_key_shows_one_event_and_the_terminal_is_given_back() {
    let (_server, world) = a_wait().await;
    let step = &["replay", "last", "--step"];
    let mut terminal = AtTerminal::start(world.data_dir(), step);
    terminal.sees(STEPS).await;
    assert!(!terminal.is_as_a_shell_wants_it(), "it takes single keys");
    for (key, seen) in [
        (" ", "event 1 of 7: UserMessageAdded"),
        ("\n", "event 2 of 7: TurnStarted"),
        (" ", "event 3 of 7: StepStarted"),
        ("x ", "a wait of 4 min 12 s"),
        (" \n", "event 6 of 7: StepEnded"),
    ] {
        terminal.types(key);
        terminal.sees(seen).await;
    }
    terminal.types("q");
    let ran = terminal.leaves_a_terminal().await;
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(0), "One two.\n"),
        "{ran:?}"
    );

    let interrupted = AtTerminal::start(world.data_dir(), step);
    interrupted.sees(STEPS).await;
    interrupted.interrupts();
    let ran = interrupted.leaves_a_terminal().await;
    assert_eq!((ran.code, ran.out.as_str()), (Some(3), ""), "{ran:?}");

    let nobody = run(world.data_dir(), step).await;
    assert_eq!((nobody.code, nobody.out.as_str()), (Some(2), ""));
    assert!(nobody.err.contains("stdin is no terminal"), "{nobody:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the built app"]
async fn what_was_said_gives_the_terminal_no_orders_and_a_reader_who_leaves_ends_it_quietly() {
    let desk = Desk::new();
    let hostile = "before \x1b[2J\x1b]0;title\x07 after";
    let answer: Script = Answer::new(Dialect::Ollama)
        .thinks("\x1b[31mhm")
        .says(hostile)
        .ends();
    desk.server.script(answer);
    let data_dir = desk.world.data_dir();
    let provider = format!("ollama={}", desk.server.root());
    let ask = ["ask", "--provider", &provider, "Clear\x1b[2J it."];
    run(data_dir, &ask).await;

    let shown = AtTerminal::start_all_there(data_dir, &["replay", "last", "-v", "--speed", "10"]);
    let ran = shown.leaves_a_terminal().await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.err.contains("before \u{fffd}[2J"), "{ran:?}");
    assert!(ran.err.contains("you: Clear\\u{1b}[2J it."), "{ran:?}");
    for order in ["\x1b[2J", "\x1b]0;", "\x07", "\x1b[31m"] {
        assert!(!ran.err.contains(order), "{order:?} is in {ran:?}");
    }

    let unread = run_unread(data_dir, &["replay", "last"]).await;
    assert_eq!(unread.code, Some(0), "{unread:?}");
    assert!(!unread.err.contains("panicked"), "{unread:?}");
}
