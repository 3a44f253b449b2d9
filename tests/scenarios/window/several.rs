//! Several windows on one session, and none at all: each shows the same, once; a question has one answer; a turn
//! belongs to none of them.

use protocol::{Dialect, EventBody, ItemBody, Resolution};
use serde_json::json;
use tests::{
    model_server::{Answer, ModelServer},
    sentinel::Sentinel,
};

use super::{
    asking::choose_folder,
    glass::{Desk, SHIFT, Window},
    shows_what_is_stored,
};

const DIALECT: Dialect = Dialect::Ollama;

/// What the page submits from now on stands at a gate of the page's; what it said to its reader is written down.
const HOLD: &str = "
    const real = window.fetch;
    window.held = [];
    window.said = '';
    window.fetch = (to, ...rest) => String(to.url ?? to).endsWith('/submit')
        ? new Promise((go) => window.held.push(() => go(real(to, ...rest))))
        : real(to, ...rest);
    window.release = () => {
        window.fetch = real;
        window.held.splice(0).forEach((go) => go());
    };
    new MutationObserver(() => {
        for (const toast of document.querySelectorAll('[data-testid=toast]')) window.said += toast.textContent + '\\n';
    }).observe(document.body, { childList: true, subtree: true, characterData: true });
";

/// Opens the session that the list has under this title in a window of its own.
async fn open_in_a_new_window(window: &Window, title: &str) {
    window.wait_for_text("session", title).await;
    window
        .run("document.querySelector('[data-testid=session-menu]').click()")
        .await;
    window.click("open-window").await;
}

/// How many ends the log has, and answers of users.
fn ends_and_answers(desk: &Desk) -> (usize, usize) {
    let events = desk.events();
    let count =
        |wanted: fn(&EventBody) -> bool| events.iter().filter(|event| wanted(&event.body)).count();
    (
        count(|body| matches!(body, EventBody::TurnEnded { .. })),
        count(|body| matches!(body, EventBody::ApprovalResolved { .. })),
    )
}

fn resolutions(desk: &Desk) -> Vec<Option<Resolution>> {
    let stored = desk.stored();
    let items = stored.turns.iter().flat_map(|turn| &turn.items);
    items
        .filter_map(|item| match &item.body {
            ItemBody::ToolCall { approval, .. } => approval.as_ref().map(|asked| asked.resolution),
            ItemBody::UserMessage { .. }
            | ItemBody::Text { .. }
            | ItemBody::Compacted { .. }
            | ItemBody::Unsupported { .. } => None,
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn two_windows_show_the_same_once_and_a_question_answered_in_both_has_one_answer() {
    let server = ModelServer::start(DIALECT);
    let words = ["streams", "ends", "left", "alone"].map(Sentinel::new);
    server.script(Answer::whole(DIALECT, "The first answer."));
    server.script(
        Answer::new(DIALECT)
            .says(&format!("{} ", words[0]))
            .gate("second")
            .says(&words[1].to_string())
            .ends(),
    );
    let arguments = json!({ "path": "tides.md", "content": "two tides a day\n" });
    server.script(Answer::new(DIALECT).calls("write_file", arguments).ends());
    server.script(Answer::whole(DIALECT, "It is noted."));
    server.script(
        Answer::new(DIALECT)
            .says(&format!("{} ", words[2]))
            .gate("close")
            .says(&words[3].to_string())
            .ends(),
    );
    let folder = tempfile::tempdir().expect("a folder");
    Desk::tell("several", &server, async |desk, window| {
        let first = window.next_view(&[]).await;
        choose_folder(&window, folder.path()).await;
        window.send("From the first window").await;
        window
            .wait_for_text("message-assistant", "The first answer.")
            .await;
        window.wait_for("send").await;
        open_in_a_new_window(&window, "From the first window").await;
        let second = window.next_view(&[&first]).await;
        window
            .wait_for_text("message-assistant", "The first answer.")
            .await;
        window.send("From the second window").await;
        for view in [&second, &first] {
            window.look_at(view).await;
            window
                .wait_for_text("message-assistant", &words[0].to_string())
                .await;
            window.wait_for("stop").await;
        }
        server.pass("second").await;
        for view in [&first, &second] {
            window.look_at(view).await;
            window
                .wait_for_text("message-assistant", &words[1].to_string())
                .await;
            window.wait_for("send").await;
            shows_what_is_stored(desk, &window).await;
        }

        window.look_at(&first).await;
        window.send("Note it down").await;
        for (view, choice) in [(&second, "deny"), (&first, "allow-once")] {
            window.look_at(view).await;
            window.wait_for("approval").await;
            window.run(HOLD).await;
            window.click(choice).await;
            window.wait_for_script("return window.held.length === 1").await;
        }
        // Both have answered; the first one's answer arrives first.
        window.run("window.release()").await;
        window.look_at(&second).await;
        window
            .wait_for_text("approval-answer", "You allowed this once")
            .await;
        window.run("window.release()").await;
        window
            .wait_for_script("return window.said.includes('answered already') && window.said.includes('allowed this once')")
            .await;
        for view in [&first, &second] {
            window.look_at(view).await;
            window
                .wait_for_text("message-assistant", "It is noted.")
                .await;
            window
                .wait_for_text("approval-answer", "You allowed this once")
                .await;
            window.wait_for("send").await;
            shows_what_is_stored(desk, &window).await;
        }
        assert_eq!(window.texts("approval-answer").await.len(), 1);
        assert_eq!(resolutions(desk), [Some(Resolution::AllowedOnce)]);
        assert_eq!(ends_and_answers(desk), (3, 1));
        let written = std::fs::read_to_string(folder.path().join("tides.md"));
        assert_eq!(written.expect("written"), "two tides a day\n");

        window.look_at(&first).await;
        window.send("Go on").await;
        window
            .wait_for_text("message-assistant", &words[2].to_string())
            .await;
        window.close_view(first).await;
        window.look_at(&second).await;
        window
            .wait_for_text("message-assistant", &words[2].to_string())
            .await;
        server.pass("close").await;
        window
            .wait_for_text("message-assistant", &words[3].to_string())
            .await;
        window.wait_for("send").await;
        shows_what_is_stored(desk, &window).await;
        assert_eq!(ends_and_answers(desk), (4, 1));
        window.picture("one-of-two-windows").await;
        window.close().await;
    })
    .await;
    let counters = server.counters();
    assert_eq!((counters.chats, counters.closed_by_us), (5, 0));
}

/// An answer of three words with a gate after each but the last.
fn in_three(words: &[Sentinel; 3]) -> tests::model_server::Script {
    Answer::new(DIALECT)
        .says(&format!("{} ", words[0]))
        .gate("first")
        .says(&format!("{} ", words[1]))
        .gate("second")
        .says(&words[2].to_string())
        .ends()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn the_window_of_a_running_turn_is_closed_and_another_shows_the_whole_text() {
    let server = ModelServer::start(DIALECT);
    let words = ["one", "two", "three"].map(Sentinel::new);
    server.script(in_three(&words));
    Desk::tell("reopened", &server, async |desk, window| {
        let first = window.next_view(&[]).await;
        window.send("Tell me").await;
        window
            .wait_for_text("message-assistant", &words[0].to_string())
            .await;
        window.chord(&format!("{SHIFT}n")).await;
        let other = window.next_view(&[&first]).await;
        window.close_view(first).await;

        window.look_at(&other).await;
        open_in_a_new_window(&window, "Tell me").await;
        let second = window.next_view(&[&other]).await;
        window
            .wait_for_text("message-assistant", &words[0].to_string())
            .await;
        server.pass("first").await;
        window
            .wait_for_text("message-assistant", &words[1].to_string())
            .await;
        shows_what_is_stored(desk, &window).await;
        window.close_view(second).await;

        server.pass("second").await;
        desk.until("the turn has ended", |desk| ends_and_answers(desk).0 == 1)
            .await;
        window.look_at(&other).await;
        open_in_a_new_window(&window, "Tell me").await;
        window.next_view(&[&other]).await;
        window
            .wait_for_text("message-assistant", &words[2].to_string())
            .await;
        window.wait_for("send").await;
        let text = window.text().await;
        assert_eq!(words.each_ref().map(|word| word.count_in(&text)), [1; 3]);
        shows_what_is_stored(desk, &window).await;
        window.close().await;
    })
    .await;
    let counters = server.counters();
    assert_eq!((counters.chats, counters.closed_by_us), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn a_turn_goes_on_without_any_window_and_an_idle_holdfast_leaves_with_its_last_one() {
    let server = ModelServer::start(DIALECT);
    let words = ["one", "two", "three"].map(Sentinel::new);
    server.script(in_three(&words));
    let data_dir = tempfile::tempdir().expect("a data folder");
    // Closing was explained to this user before.
    std::fs::write(
        data_dir.path().join("desktop.json"),
        "{\"explained\": true}",
    )
    .expect("written");
    Desk::tell_in(data_dir, "windowless", &server, async |desk, window| {
        let first = window.next_view(&[]).await;
        window.send("Tell me").await;
        window
            .wait_for_text("message-assistant", &words[0].to_string())
            .await;
        window.close_view(first).await;
        server.pass("first").await;
        desk.until("the next word is kept", |desk| {
            let stored = format!("{:?}", desk.stored());
            words[1].count_in(&stored) == 1
        })
        .await;
        assert!(desk.runs(), "a turn does not belong to a window");
        let said = desk.start_again().await;
        assert!(said.contains("brought to the front"), "{said}");

        let second = window.next_view(&[]).await;
        let session = window.wait_for_text("session", "Tell me").await;
        session.click().await.expect("a row can be clicked");
        window
            .wait_for_text("message-assistant", &words[1].to_string())
            .await;
        server.pass("second").await;
        window
            .wait_for_text("message-assistant", &words[2].to_string())
            .await;
        window.wait_for("send").await;
        let text = window.text().await;
        assert_eq!(words.each_ref().map(|word| word.count_in(&text)), [1; 3]);
        shows_what_is_stored(desk, &window).await;
        assert_eq!(ends_and_answers(desk), (1, 0));
        window.close_view(second).await;
        desk.until("the app has left", |desk| !desk.runs()).await;
        window.forget().await;
    })
    .await;
    let counters = server.counters();
    assert_eq!((counters.chats, counters.closed_by_us), (1, 0));
}
