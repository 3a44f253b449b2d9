//! What only the real window can break. The shipped binary, driven from outside; run by `cargo xtask test`.

mod asking;
mod breaking;
mod comings;
mod doubled;
mod dying;
mod far_up;
pub(crate) mod glass;
mod hidden;
mod late;
mod limits;
mod local;
mod long;
mod looks;
mod missing;
mod models;
mod parked;
mod player;
mod servers;
mod settings;
mod several;
mod showing;
mod thinking;
mod unread;
mod usage;
mod verdict;
mod versions;

use glass::{Desk, ESCAPE, Window};
use protocol::{Dialect, FailureCode, TurnOutcome};
use tests::{
    model_server::{Answer, Ending, ModelServer, Script},
    picture,
    sentinel::Sentinel,
};
use verdict::letters;

/// A script: the page keeps back the next answer to a command, as a slow engine would, until `letGo()` is called there.
fn hold_back(command: &str) -> String {
    format!(
        "const core = window.__TAURI__.core;
         const ask = core.invoke;
         window.isHeldBack = false;
         window.__TAURI__.core = {{ ...core, invoke: (command, ...rest) => {{
             const answer = ask(command, ...rest);
             if (command !== '{command}' || window.isHeldBack) return answer;
             window.isHeldBack = true;
             return new Promise((resolve) => {{ window.letGo = () => answer.then(resolve); }});
         }} }};"
    )
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn a_conversation_streams_and_is_there_after_a_restart() {
    let server = ModelServer::start(Dialect::Ollama);
    let (first, last) = (Sentinel::new("first"), Sentinel::new("last"));
    server.script(
        Answer::new(Dialect::Ollama)
            .thinks("The user greets me.")
            .says(&format!("Good morning, {first}. "))
            .gate("streaming")
            .says_word_by_word("Here is **a list**:\n\n- kelp\n- stone\n\n")
            .says(&format!("And a word: {last}"))
            .ends(),
    );
    server.script(Answer::whole(Dialect::Ollama, "You are welcome."));
    Desk::tell("conversation", &server, async |desk, window| {
        window.send("Good morning").await;
        window
            .wait_for_text("message-assistant", &first.to_string())
            .await;
        window.wait_for("stop").await;
        window.picture("streaming").await;
        server.pass("streaming").await;
        window
            .wait_for_text("message-assistant", &last.to_string())
            .await;
        window.wait_for("send").await;
        window.send("Thank you").await;
        window
            .wait_for_text("message-assistant", "You are welcome.")
            .await;
        window.wait_for("send").await;
        window.picture("conversation").await;
        shows_what_is_stored(desk, &window).await;
        window.close().await;

        let window = desk.open().await;
        window
            .wait_for_text("session", "Good morning")
            .await
            .click()
            .await
            .unwrap();
        window
            .wait_for_text("message-assistant", "You are welcome.")
            .await;
        let text = window.text().await;
        assert_eq!(
            (first.count_in(&text), last.count_in(&text)),
            (1, 1),
            "{text}"
        );
        shows_what_is_stored(desk, &window).await;
        window.picture("conversation-after-restart").await;
        window.close().await;
    })
    .await;
    assert_eq!(server.counters().chats, 2);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn a_window_reloaded_in_mid_answer_shows_the_whole_text_and_can_stop_it() {
    let server = ModelServer::start(Dialect::OpenAiChat);
    let (first, later) = (Sentinel::new("first"), Sentinel::new("later"));
    server.script(
        Answer::new(Dialect::OpenAiChat)
            .begins()
            .says(&format!("It begins with {first} "))
            .gate("reload")
            .says(&format!("and goes on with {later} "))
            .goes_silent(),
    );
    Desk::tell("reload", &server, async |desk, window| {
        window.send("Tell me").await;
        window
            .wait_for_text("message-assistant", &first.to_string())
            .await;
        window.type_text("a draft for later").await;
        window.reload().await;
        window
            .wait_for_text("message-assistant", &first.to_string())
            .await;
        server.pass("reload").await;
        window
            .wait_for_text("message-assistant", &later.to_string())
            .await;
        let answers = window.texts("message-assistant").await;
        assert_eq!(answers.len(), 1, "{answers:?}");
        assert_eq!(
            (first.count_in(&answers[0]), later.count_in(&answers[0])),
            (1, 1)
        );
        window.picture("reloaded-in-mid-answer").await;
        window.click("stop").await;
        server
            .until("our socket to close", |counters| counters.closed_by_us == 1)
            .await;
        window.wait_until_gone("stop").await;
        shows_what_is_stored(desk, &window).await;
        window.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn stop_and_escape_stop_the_answer_and_close_our_socket() {
    let server = ModelServer::start(Dialect::Ollama);
    for word in ["button", "escape"] {
        let answer = Answer::new(Dialect::Ollama).says(&format!("On and on by {word} "));
        server.script(answer.goes_silent());
    }
    Desk::tell("stop", &server, async |desk, window| {
        window.send("Talk").await;
        window
            .wait_for_text("message-assistant", "On and on by button")
            .await;
        window.click("stop").await;
        server
            .until("our socket to close", |counters| counters.closed_by_us == 1)
            .await;
        window.wait_until_gone("stop").await;

        window.send("Talk again").await;
        window
            .wait_for_text("message-assistant", "On and on by escape")
            .await;
        window.type_text(ESCAPE).await;
        server
            .until("our socket to close", |counters| counters.closed_by_us == 2)
            .await;
        window.wait_until_gone("stop").await;
        window.picture("stopped").await;
        assert_eq!(
            picture::turns(&desk.stored().turns),
            "you: Talk\nmodel: On and on by button \n(stopped)\n\
             you: Talk again\nmodel: On and on by escape \n(stopped)\n"
        );
        window.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn failures_are_named_in_words_and_the_partial_text_is_kept() {
    let server = ModelServer::start(Dialect::Ollama);
    let cut = Sentinel::new("cut");
    server.script(Script::html(200));
    server.script(Script::unknown_model(Dialect::Ollama, "lighthouse:1b"));
    let answer = Answer::new(Dialect::Ollama).says(&format!("Half of it {cut} "));
    server.script(answer.gate("cut").cut(Ending::Fin));
    Desk::tell("failures", &server, async |desk, window| {
        window.send("A web page").await;
        names_the_last_failure(desk, &window, 1, FailureCode::BadStream).await;
        window.picture("failure-web-page").await;
        window.send("An unknown model").await;
        names_the_last_failure(desk, &window, 2, FailureCode::ModelNotFound).await;
        window.send("A cut").await;
        window
            .wait_for_text("message-assistant", &cut.to_string())
            .await;
        server.pass("cut").await;
        names_the_last_failure(desk, &window, 3, FailureCode::StreamCut).await;
        assert_eq!(
            cut.count_in(&window.text().await),
            1,
            "the partial text is kept"
        );
        server.stop().await;
        window.send("Nobody there").await;
        names_the_last_failure(desk, &window, 4, FailureCode::ConnectFailed).await;
        window.wait_for("retry").await;
        window.picture("failures").await;
        window.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn after_a_kill_in_mid_answer_every_word_of_the_window_is_there_and_marked() {
    let server = ModelServer::start(Dialect::Ollama);
    let words: Vec<_> = (0..40)
        .map(|n| Sentinel::new(&format!("word{n}x")))
        .collect();
    let said = words
        .iter()
        .fold(Answer::new(Dialect::Ollama), |answer, word| {
            answer.says(&format!("{word} "))
        });
    server.script(said.goes_silent());
    server.script(Answer::whole(Dialect::Ollama, "I am back."));
    Desk::tell("killed", &server, async |desk, window| {
        window.send("Many words").await;
        window
            .wait_for_text("message-assistant", &words[39].to_string())
            .await;
        let before = window.text().await;
        desk.kill_app().await;
        window.forget().await;
        server
            .until("the dead app's socket to close", |counters| {
                counters.closed_by_us == 1
            })
            .await;

        let window = desk.open().await;
        window
            .wait_for_text("session", "Many words")
            .await
            .click()
            .await
            .unwrap();
        window
            .wait_for_text("message-assistant", &words[39].to_string())
            .await;
        let scar = window.wait_for("scar").await.text().await.unwrap();
        assert!(scar.to_lowercase().contains("interrupted"), "{scar}");
        let after = window.text().await;
        let counts = |text: &str| {
            words
                .iter()
                .map(|word| word.count_in(text))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (counts(&before), counts(&after)),
            (vec![1; 40], vec![1; 40])
        );
        shows_what_is_stored(desk, &window).await;
        window.picture("after-a-kill").await;

        window.send("Are you there?").await;
        window
            .wait_for_text("message-assistant", "I am back.")
            .await;
        window.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn hostile_text_is_shown_as_text_and_does_not_run() {
    let server = ModelServer::start(Dialect::OpenAiChat);
    let last = Sentinel::new("last");
    let hostile = "<script>window.harmed = 1</script>\n\n\
        <img src=x onerror=\"window.harmed = 2\">\n\n\
        [a link](javascript:window.harmed=3) and <a href=\"javascript:window.harmed=4\">another</a>\n\n\
        <svg onload=\"window.harmed = 5\"></svg> <iframe srcdoc=\"<b>6</b>\"></iframe>\n\n";
    server.script(
        Answer::new(Dialect::OpenAiChat)
            .thinks("<b onmouseover=\"window.harmed = 7\">hm</b>")
            .says(hostile)
            .says(&last.to_string())
            .ends(),
    );
    Desk::tell("hostile-text", &server, async |_, window| {
        window.send("<i>Attack</i> me").await;
        window
            .wait_for_text("message-assistant", &last.to_string())
            .await;
        window.wait_for("send").await;
        let text = window.texts("message-assistant").await.concat();
        for shown in [
            "<script>window.harmed = 1</script>",
            "onerror",
            "<svg",
            "<iframe",
        ] {
            assert!(
                text.contains(shown),
                "{shown} is not shown as text:\n{text}"
            );
        }
        let asked = window.texts("message-user").await.concat();
        assert!(asked.contains("<i>Attack</i> me"), "{asked}");
        let transcript = "document.querySelector('[data-testid=transcript]')";
        let alive = format!(
            "const inside = {transcript}.querySelectorAll(
                 'script, img, iframe, svg[onload], [href^=\"javascript\"], [onmouseover]');
             return [window.harmed === undefined, inside.length];"
        );
        assert_eq!(window.run(&alive).await, serde_json::json!([true, 0]));
        window.picture("hostile-text").await;
        window.close().await;
    })
    .await;
}

/// The texts in the window are the texts in the log: each of them, in order, once.
async fn shows_what_is_stored(desk: &Desk, window: &Window) {
    assert_eq!(
        verdict::of(desk, window).await,
        "same",
        "{:?}",
        desk.stored()
    );
}

/// The window says of the `n`-th turn what the log says of it.
async fn names_the_last_failure(desk: &Desk, window: &Window, n: usize, code: FailureCode) {
    window.wait_for_nth("scar", n).await;
    window.wait_until_gone("stop").await;
    let stored = desk.stored();
    assert_eq!(stored.turns.len(), n, "{:?}", stored.turns);
    let Some(TurnOutcome::Failed { failure }) = &stored.turns[n - 1].outcome else {
        panic!("not a failure: {:?}", stored.turns[n - 1].outcome)
    };
    assert_eq!(failure.code, code, "{failure:?}");
    let scars = window.texts("scar").await;
    let scar = scars.last().expect("a scar");
    assert!(
        letters(scar).contains(&letters(&failure.message)),
        "{scar:?} is not {failure:?}"
    );
}
