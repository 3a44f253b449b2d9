//! The terminal: what is asked, answered, denied and told there. The shipped binary; run by `cargo xtask test`.

mod caring;
mod files;
mod keyboard;
mod keychain;
mod replaying;

use keyboard::{AtTerminal, events, run, said};
use protocol::{Dialect, Op};
use serde_json::{Value, json};
use tests::{
    model_server::{Answer, Ending, MODEL, ModelServer, Script},
    world::World,
};

const CHOICE: &str = "[o]nce, [c]onversation, [n]o?";

/// A model server, a data folder and a folder for tools.
struct Desk {
    server: ModelServer,
    world: World,
    folder: tempfile::TempDir,
}

impl Desk {
    fn new() -> Self {
        Self {
            server: ModelServer::start(Dialect::Ollama),
            world: World::without_engine(),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// The arguments of `ask`, with the folder.
    fn ask(&self, more: &[&str]) -> Vec<String> {
        let provider = format!("ollama={}", self.server.root());
        let folder = self.folder.path().display().to_string();
        let ask = ["ask", "--provider", &provider, "--model", MODEL, "--folder"];
        let words = ask.into_iter().chain([folder.as_str()]);
        let words = words.chain(more.iter().copied()).chain(["Please."]);
        words.map(str::to_owned).collect()
    }

    fn written(&self) -> Option<String> {
        std::fs::read_to_string(self.folder.path().join("a.txt")).ok()
    }
}

fn words(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

fn writes(content: &str) -> Answer {
    let arguments = json!({ "path": "a.txt", "content": content });
    Answer::new(Dialect::Ollama).calls("write_file", arguments)
}

fn whole(text: &str) -> Script {
    Answer::whole(Dialect::Ollama, text)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the built app"]
async fn a_tool_reads_below_the_folder_and_what_it_did_is_told_beside_the_answer() {
    let desk = Desk::new();
    std::fs::write(desk.folder.path().join("a.txt"), "kelp\n").unwrap();
    let reads = Answer::new(Dialect::Ollama).calls("read_file", json!({ "path": "a.txt" }));
    desk.server.script(reads.ends());
    desk.server.script(whole("It says kelp."));
    let ran = run(desk.world.data_dir(), &words(&desk.ask(&[]))).await;
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(0), "It says kelp.\n"),
        "{ran:?}"
    );
    assert!(
        ran.err.contains("read_file {\"path\":\"a.txt\"}\n"),
        "{ran:?}"
    );
    assert!(ran.err.contains("read_file ok: "), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the built app"]
async fn a_folder_that_cannot_be_used_begins_nothing() {
    let desk = Desk::new();
    let none = desk.folder.path().join("none").display().to_string();
    let ran = run(
        desk.world.data_dir(),
        &words(&desk.ask(&["--folder", &none])),
    )
    .await;
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{ran:?}");
    assert!(ran.err.contains("none’ cannot be used: "), "{ran:?}");
    let listed = run(desk.world.data_dir(), &["list"]).await;
    assert_eq!(listed.out, "", "no session");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the built app"]
async fn without_a_terminal_a_change_is_denied_and_said_so_unless_it_was_allowed_beforehand() {
    let desk = Desk::new();
    desk.server.script(writes("kelp\n").ends());
    desk.server.script(whole("Very well."));
    let ran = run(desk.world.data_dir(), &words(&desk.ask(&[]))).await;
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(0), "Very well.\n"),
        "{ran:?}"
    );
    for words in [
        "write_file would make a new file of 5 bytes:\n",
        "a.txt\n",
        "+kelp\n",
        "not allowed: there is no terminal",
        "`--allow write_file` allows it beforehand\n",
        "write_file not allowed\n",
    ] {
        assert!(ran.err.contains(words), "{words:?} is not in {ran:?}");
    }
    assert!(!ran.err.contains(CHOICE), "nobody is asked: {ran:?}");
    let log = events(desk.world.data_dir()).await;
    assert_eq!(said(&log, "ApprovalResolved", "resolution"), ["Denied"]);
    assert_eq!(desk.written(), None);

    desk.server.script(writes("kelp\n").ends());
    desk.server.script(whole("Written."));
    let allowed = desk.ask(&["--session", "last", "--allow", "write_file"]);
    let ran = run(desk.world.data_dir(), &words(&allowed)).await;
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(0), "Written.\n"),
        "{ran:?}"
    );
    assert!(
        ran.err
            .contains("+kelp\nwrite_file: allowed for this conversation\n"),
        "{ran:?}"
    );
    let log = events(desk.world.data_dir()).await;
    assert_eq!(
        said(&log, "ApprovalResolved", "resolution"),
        ["Denied", "AllowedForSession"]
    );
    assert_eq!(desk.written().as_deref(), Some("kelp\n"));
    let shown = run(desk.world.data_dir(), &["show", "last"]).await;
    assert!(
        shown.out.contains("+kelp\nnot allowed]\n")
            && shown
                .out
                .contains("+kelp\nallowed for this conversation]\n"),
        "{shown:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the built app"]
async fn what_a_retry_took_out_comes_back_by_undo_and_goes_again_by_another() {
    let desk = Desk::new();
    let dir = desk.world.data_dir();
    desk.server.script(whole("First."));
    run(dir, &words(&desk.ask(&[]))).await;
    let nothing = run(dir, &["undo", "last"]).await;
    assert_eq!(nothing.code, Some(1), "{nothing:?}");
    assert!(nothing.err.contains("nothing can come back"), "{nothing:?}");

    for answer in ["Second.", "Third."] {
        desk.server.script(whole(answer));
        let again = run(dir, &["retry", "last"]).await;
        assert_eq!(again.out, format!("{answer}\n"), "{again:?}");
    }
    let chats = desk.server.counters().chats;
    for (more, answer) in [
        (&[][..], "Second."),
        (&[], "Third."),
        (&["--turn", "1"], "First."),
    ] {
        let undone = run(dir, &[&["undo", "last"], more].concat()).await;
        assert_eq!(
            (undone.code, undone.out.as_str()),
            (Some(0), ""),
            "{undone:?}"
        );
        assert!(
            undone.err.contains("is back; it ends with turn"),
            "{undone:?}"
        );
        let shown = run(dir, &["show", "last"]).await;
        assert!(shown.out.contains(answer), "{answer} {shown:?}");
        let others = ["First.", "Second.", "Third."].iter();
        for other in others.filter(|other| **other != answer) {
            assert!(!shown.out.contains(other), "{other} {shown:?}");
        }
    }
    let here = run(dir, &["undo", "last", "--turn", "1"]).await;
    assert_eq!(here.code, Some(1), "{here:?}");
    assert!(here.err.contains("no earlier version"), "{here:?}");
    assert_eq!(desk.server.counters().chats, chats, "no model was asked");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the built app"]
async fn keys_pressed_before_a_question_stands_do_not_answer_it() {
    let desk = Desk::new();
    desk.server.script(writes("kelp\n").gate("call").ends());
    desk.server.script(whole("Very well."));
    let mut terminal = AtTerminal::start(desk.world.data_dir(), &words(&desk.ask(&[])));
    desk.server.arrived("call").await;
    terminal.types("o\n");
    terminal.sees("o\n").await;
    desk.server.release("call");
    terminal.sees(CHOICE).await;
    terminal.types("n\n");
    let ran = terminal.leaves().await;
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(0), "Very well.\n"),
        "{ran:?}"
    );
    assert_eq!(desk.written(), None, "{ran:?}");
    let log = events(desk.world.data_dir()).await;
    assert_eq!(said(&log, "ApprovalResolved", "resolution"), ["Denied"]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the built app"]
async fn whoever_sits_at_the_terminal_is_asked_and_a_mistyped_answer_is_asked_again() {
    let desk = Desk::new();
    desk.server.script(writes("kelp\u{202e}\n").ends());
    desk.server.script(writes("stone\n").ends());
    desk.server.script(whole("Written twice."));
    let mut terminal = AtTerminal::start(desk.world.data_dir(), &words(&desk.ask(&[])));
    terminal.sees(CHOICE).await;
    terminal.types("yes\n");
    terminal.sees("please answer o (this once)").await;
    assert_eq!(desk.written(), None);
    terminal.types("o\n");
    terminal
        .sees("would change a file of 8 bytes into one of 6 bytes")
        .await;
    // What is typed before a question stands is no answer to it, and it stands when the choice does.
    terminal.sees_times(CHOICE, 3).await;
    assert_eq!(desk.written().as_deref(), Some("kelp\u{202e}\n"));
    terminal.types("c\n");
    let ran = terminal.leaves().await;
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(0), "Written twice.\n"),
        "{ran:?}"
    );
    assert_eq!(desk.written().as_deref(), Some("stone\n"));
    assert!(
        !ran.err.contains('\u{202e}'),
        "nothing turns a line around: {ran:?}"
    );
    let log = events(desk.world.data_dir()).await;
    assert_eq!(
        said(&log, "ApprovalResolved", "resolution"),
        ["AllowedOnce", "AllowedForSession"]
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the built app"]
async fn ctrl_c_stops_a_turn_that_asks_and_the_process_leaves() {
    let desk = Desk::new();
    desk.server.script(writes("kelp\n").ends());
    let terminal = AtTerminal::start(desk.world.data_dir(), &words(&desk.ask(&[])));
    terminal.sees(CHOICE).await;
    terminal.interrupts();
    let ran = terminal.leaves().await;
    assert_eq!((ran.code, ran.out.as_str()), (Some(3), ""), "{ran:?}");
    assert!(!ran.err.contains("did not end in time"), "{ran:?}");
    let log = events(desk.world.data_dir()).await;
    assert_eq!(said(&log, "ApprovalResolved", "resolution"), ["Expired"]);
    assert_eq!(
        said(&log, "TurnEnded", "outcome"),
        [&json!({ "result": "Cancelled", "by": "User" })]
    );
    assert_eq!(desk.written(), None);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the built app"]
async fn a_cut_answer_is_continued_and_a_whole_one_only_retried() {
    let desk = Desk::new();
    let data_dir = desk.world.data_dir();
    let cut = Answer::new(Dialect::Ollama).says("It begins");
    desk.server.script(cut.cut(Ending::Fin));
    let ran = run(data_dir, &words(&desk.ask(&[]))).await;
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(1), "It begins\n"),
        "{ran:?}"
    );

    desk.server.script(whole(" and ends."));
    let ran = run(data_dir, &["continue", "last"]).await;
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(0), " and ends.\n"),
        "{ran:?}"
    );
    let shown = run(data_dir, &["show", "last"]).await;
    assert!(shown.out.contains("\n(continued, "), "{shown:?}");
    assert_eq!(shown.out.matches("You, ").count(), 1, "{shown:?}");

    let ran = run(data_dir, &["continue", "last"]).await;
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{ran:?}");
    assert!(ran.err.contains("came to its own end"), "{ran:?}");

    desk.server.script(whole(" and ends otherwise."));
    let ran = run(data_dir, &["retry", "last"]).await;
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(0), " and ends otherwise.\n"),
        "{ran:?}"
    );
    let log = events(data_dir).await;
    assert_eq!(said(&log, "HistoryRewound", "purpose"), ["Retry"]);

    let ran = run(data_dir, &["retry", "beef"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("there is no session ‘beef’"), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the built app"]
async fn a_model_that_fails_and_the_one_asked_instead_are_told() {
    let mut desk = Desk::new();
    let other = ModelServer::start(Dialect::OpenAiChat);
    desk.world.open().await;
    desk.world.add(other.provider()).await;
    let models = vec![other.model()];
    desk.world
        .submit(Op::ChooseFallbacks { models })
        .await
        .unwrap();
    desk.world.quit().await;
    desk.server
        .script(Script::error(Dialect::Ollama, 500, "out of memory"));
    other.script(Answer::whole(Dialect::OpenAiChat, "I can."));
    let ran = run(desk.world.data_dir(), &words(&desk.ask(&[]))).await;
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(0), "I can.\n"),
        "{ran:?}"
    );
    let instead = format!("; asking {MODEL} at {} instead\n", other.provider().name);
    assert_eq!(ran.err.matches(&instead).count(), 1, "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the built app"]
async fn health_tells_of_the_folder_and_leaves_the_counts_to_the_process_that_counts() {
    let mut world = World::without_engine();
    world.open().await;
    let ran = run(world.data_dir(), &["health"]).await;
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{ran:?}");
    assert!(ran.err.contains("Holdfast is open"), "{ran:?}");
    let listed = run(world.data_dir(), &["list"]).await;
    assert_eq!(listed.code, Some(0), "reading needs no lock: {listed:?}");
    world.quit().await;

    let ran = run(world.data_dir(), &["health", "--json"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let health: Value = serde_json::from_str(&ran.out).unwrap();
    assert!(health["database_bytes"].as_u64() > Some(0), "{health}");
    assert_eq!(health["salvages"], json!([]));
    assert_eq!(health.get("counts"), None, "{health}");
}
