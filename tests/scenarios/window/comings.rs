//! Pages come and go, and the transcript is whole every time: reloads at every place of a storm and one after the
//! other, a web process that is killed, answers that travel the other way. And the detectors of damage, seen to detect.

use std::time::Duration;

use protocol::Dialect;
use serde_json::json;
use tests::{
    model_server::{Answer, ModelServer},
    sentinel::Sentinel,
    world::World,
};

use super::{
    asking::choose_folder,
    glass::{Desk, Window},
    verdict,
};

const DIALECT: Dialect = Dialect::OpenAiChat;
const WORDS: usize = 2_000;
const FILES: usize = 4;
const LINES: usize = 125;
const RELOADS: usize = 20;
/// A page takes a second or two to load on an idle machine, and every one of them may be late.
const RELOADS_LIMIT: Duration = Duration::from_secs(360);

/// Opens the newest chat and waits for a text in its answer.
async fn open_newest(window: &Window, title: &str, text: &str) {
    let session = window.wait_for_text("session", title).await;
    session.click().await.expect("a row can be clicked");
    window.wait_for_text("message-assistant", text).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn a_storm_of_tool_lines_and_words_is_whole_after_reloads_at_every_place() {
    let server = ModelServer::start(DIALECT);
    let folder = tempfile::tempdir().expect("a folder");
    let mut reads = Answer::new(DIALECT).begins().says("I will read them all. ");
    for file in 0..FILES {
        let lines: String = (0..LINES).map(|n| format!("f{file}line{n}x\n")).collect();
        std::fs::write(folder.path().join(format!("{file}.txt")), lines).expect("written");
        reads = reads.calls("read_file", json!({ "path": format!("{file}.txt") }));
    }
    server.script(reads.ends());
    let gates = [
        (WORDS / 10, "a tenth"),
        (WORDS / 2, "half"),
        (WORDS - 20, "nearly"),
    ];
    let storm = (0..WORDS).fold(Answer::new(DIALECT).begins(), |storm, n| {
        let storm = storm.says(&format!("w{n}x "));
        match gates.iter().find(|(at, _)| *at == n) {
            Some((_, gate)) => storm.gate(gate),
            None => storm,
        }
    });
    server.script(storm.ends());
    Desk::tell("storm", &server, async |desk, window| {
        choose_folder(&window, folder.path()).await;
        window.send("Read them and tell me").await;
        for (at, gate) in gates {
            let last = format!("w{at}x");
            window.wait_for_text("message-assistant", &last).await;
            window.reload().await;
            window.wait_for_text("message-assistant", &last).await;
            assert_eq!(
                verdict::of(desk, &window).await,
                "same",
                "reloaded at {gate}"
            );
            server.pass(gate).await;
        }
        let last = format!("w{}x", WORDS - 1);
        window.wait_for_text("message-assistant", &last).await;
        window.wait_for("send").await;
        window.reload().await;
        window.wait_for_text("message-assistant", &last).await;
        assert_eq!(
            verdict::of(desk, &window).await,
            "same",
            "reloaded at the end"
        );
        window
            .run("for (const fold of document.querySelectorAll('.tool > .fold')) fold.click()")
            .await;
        window
            .wait_for_text("tool-call", &format!("f3line{}x", LINES - 1))
            .await;
        let shown = window.texts("tool-call").await;
        assert_eq!(shown.len(), FILES);
        for (file, shown) in shown.iter().enumerate() {
            let counts: Vec<_> = (0..LINES)
                .map(|n| shown.matches(&format!("f{file}line{n}x")).count())
                .collect();
            assert_eq!(counts, vec![1; LINES], "file {file}:\n{shown}");
        }
        window.picture("storm").await;
        window.close().await;
    })
    .await;
    assert_eq!(server.counters().chats, 2);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn twenty_reloads_leave_one_page_and_the_whole_text() {
    let server = ModelServer::start(DIALECT);
    // A piece of text after each: on a busy machine all of them take longer than a server may be silent.
    let pieces: Vec<_> = (0..=RELOADS)
        .map(|n| Sentinel::new(&format!("piece{n}x")).to_string())
        .collect();
    let answer = pieces
        .iter()
        .fold(Answer::new(DIALECT).begins(), |answer, piece| {
            answer.says(&format!("{piece} ")).gate(piece)
        });
    server.script(answer.ends());
    let data_dir = tempfile::tempdir().expect("a data folder");
    let story = async |desk: &mut Desk, window: Window| {
        window.send("Tell me").await;
        for (n, piece) in pieces.iter().enumerate() {
            window.wait_for_text("message-assistant", piece).await;
            if n < RELOADS {
                window.reload().await;
            }
            server.pass(piece).await;
        }
        window.wait_for("send").await;
        assert_eq!(verdict::of(desk, &window).await, "same");
        window.chord(&format!("{}h", super::glass::SHIFT)).await;
        let health = window.wait_for_text("health", "Streams followed now").await;
        let health = health.text().await.expect("the text of an element");
        let (_, after) = health
            .split_once("Streams followed now")
            .expect("it is there");
        let digits: String = after
            .trim()
            .chars()
            .take_while(char::is_ascii_digit)
            .collect();
        let followed: usize = digits.parse().expect("a number");
        // The library and this session, by the one page that is there; each reload that is not noticed adds its own.
        assert!(
            (1..=3).contains(&followed),
            "{followed} streams are followed"
        );
        window.close().await;
    };
    Desk::tell_within(RELOADS_LIMIT, data_dir, "reloads", &server, story).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn a_page_whose_fetch_fails_gets_a_large_transcript_the_other_way() {
    let server = ModelServer::start(DIALECT);
    let last = Sentinel::new("last");
    let line = "let depth = tide.at(hour) - stone.height(); // in metres, of this place\n";
    let code = line.repeat(1_000_000 / line.len());
    server.script(
        Answer::new(DIALECT)
            .begins()
            .says(&format!("```\n{code}```\n\n{last}"))
            .ends(),
    );
    let world = World::in_real_time().await;
    let session = world.begin(&server, "A megabyte, please").await;
    let page = world.page().await.follow(session);
    page.sees(&last.to_string()).await;
    page.until_idle().await;
    drop(page);
    let data_dir = world.leave().await;
    Desk::tell_in(data_dir, "fallback", &server, async |desk, window| {
        window
            .run(
                "const real = window.fetch;
                 window.refused = 0;
                 window.fetch = (to, ...rest) => String(to.url ?? to).startsWith('ipc:')
                     ? (window.refused++, Promise.reject(new TypeError('refused')))
                     : real(to, ...rest);",
            )
            .await;
        open_newest(&window, "A megabyte", &last.to_string()).await;
        assert_ne!(window.run("return window.refused").await, json!(0));
        assert_eq!(verdict::of(desk, &window).await, "same");
        window.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn a_row_that_is_doubled_removed_or_blanked_from_outside_is_named() {
    let server = ModelServer::start(DIALECT);
    for answer in [
        "The first answer.",
        "The second answer.",
        "The third answer.",
    ] {
        server.script(Answer::whole(DIALECT, answer));
    }
    Desk::tell("damage", &server, async |desk, window| {
        for (question, answer) in [("One?", "first"), ("Two?", "second"), ("Three?", "third")] {
            window.send(question).await;
            window.wait_for_text("message-assistant", answer).await;
            window.wait_for("send").await;
        }
        for (damage, named) in [
            ("row.after(row.cloneNode(true))", "message-assistant dup2"),
            ("row.remove()", "message-assistant lost1"),
            ("row.textContent = ''", "message-assistant blank1"),
        ] {
            assert_eq!(verdict::of(desk, &window).await, "same");
            window
                .run(&format!(
                    "const row = document.querySelectorAll('[data-testid=message-assistant]')[1]; {damage}"
                ))
                .await;
            assert_eq!(verdict::of(desk, &window).await, named);
            window.reload().await;
            window.wait_for_text("message-assistant", "third").await;
        }
        window.close().await;
    })
    .await;
}
