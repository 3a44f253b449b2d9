//! A past turn shown again in the real window, by keyboard alone: every frame comes from the log, and the last one is
//! what is stored.

use protocol::{Dialect, ItemBody, Part};
use tests::model_server::{Answer, ModelServer};

use super::{
    glass::{Desk, ENTER, ESCAPE, SHIFT, Window},
    verdict::letters,
};

const TAB: &str = "\u{E004}";
const END: &str = "\u{E010}";
const HOME: &str = "\u{E011}";
const LEFT: &str = "\u{E012}";
const RIGHT: &str = "\u{E014}";
const RELEASED: &str = "\u{E000}";

/// What the player's own part of the page says of an expression over it.
async fn in_player(window: &Window, expression: &str) -> serde_json::Value {
    let player = "const player = document.querySelector('[data-testid=player]');";
    window.run(&format!("{player} return {expression};")).await
}

async fn shown(window: &Window, testid: &str) -> Vec<String> {
    let all =
        format!("[...player.querySelectorAll('[data-testid={testid}]')].map(e => e.textContent)");
    serde_json::from_value(in_player(window, &all).await).expect("texts")
}

async fn said_by_the_slider(window: &Window) -> String {
    let said = "player.querySelector('[data-testid=player-slider]').getAttribute('aria-valuetext')";
    serde_json::from_value(in_player(window, said).await).expect("words")
}

/// Waits until the slider says that so many events are shown.
async fn is_at(window: &Window, position: usize) {
    let place = format!("event {position} of ");
    let path =
        format!("//*[@data-testid='player-slider'][starts-with(@aria-valuetext, '{place}')]");
    window.wait_for_path(&path, &format!("{place:?}")).await;
}

/// What is shown in the end is what is stored of the first turn.
async fn shows_the_whole_answer(desk: &Desk, window: &Window) {
    window
        .wait_for_text("player-words", "The end: complete")
        .await;
    let stored = desk.stored();
    let answers = stored.turns[0].items.iter();
    let stored: Vec<String> = answers
        .filter_map(|item| match &item.body {
            ItemBody::Text {
                part: Part::Answer,
                text,
                ..
            } => Some(letters(text)),
            ItemBody::Text { .. }
            | ItemBody::UserMessage { .. }
            | ItemBody::ToolCall { .. }
            | ItemBody::Compacted { .. }
            | ItemBody::Unsupported { .. } => None,
        })
        .collect();
    let shown = shown(window, "message-assistant").await;
    assert_eq!(
        shown.iter().map(|text| letters(text)).collect::<Vec<_>>(),
        stored
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn a_turn_is_shown_again_by_keyboard_alone_and_ends_as_it_is_stored() {
    let server = ModelServer::start(Dialect::Ollama);
    server.script(
        Answer::new(Dialect::Ollama)
            .thinks("I am asked to count.")
            .says("Here is **a list**:\n\n")
            .says_word_by_word("- one\n- two\n- three\n\nand so on and so on and so on.\n\n")
            .says("```\nfn main() {}\n```\n")
            .ends(),
    );
    let second = Answer::new(Dialect::Ollama).says("It goes on ");
    server.script(second.gate("second").says("to its end.").ends());
    Desk::tell("player", &server, async |desk, window| {
        window.send("Count").await;
        window.wait_for("replay-turn").await;
        // Another turn runs meanwhile, and is none of the player's business.
        window.send("Go on").await;
        server.arrived("second").await;
        window
            .wait_for_text("message-assistant", "It goes on")
            .await;
        let before = server.counters();

        window.wait_for_focus("composer").await;
        window.chord(&format!("{SHIFT}p")).await;
        window.wait_for_focus("player-play").await;
        shows_the_whole_answer(desk, &window).await;
        for gone in [
            "retry",
            "retry-answer",
            "edit-message",
            "stop",
            "replay-turn",
        ] {
            assert!(shown(&window, gone).await.is_empty(), "{gone} is there");
        }

        // To the slider, and along it.
        window.press(&format!("{SHIFT}{TAB}{TAB}{RELEASED}")).await;
        window.wait_for_focus("player-slider").await;
        window.press(HOME).await;
        is_at(&window, 1).await;
        assert_eq!(shown(&window, "message-user").await, ["Count"]);
        assert!(shown(&window, "message-assistant").await.is_empty());
        window.press(RIGHT).await;
        is_at(&window, 2).await;
        window.press(&format!("{SHIFT}{RIGHT}{RELEASED}")).await;
        window.wait_for_text("player-words", "Reasoning").await;
        assert!(said_by_the_slider(&window).await.ends_with(", reasoning"));
        window.press(&format!("{SHIFT}{RIGHT}{RELEASED}")).await;
        window.wait_for_text("player-words", "Text").await;
        let first = shown(&window, "message-assistant").await;
        assert_eq!(first.len(), 1, "the answer has begun: {first:?}");
        window.press(&format!("{SHIFT}{LEFT}{RELEASED}")).await;
        window.wait_for_text("player-words", "Reasoning").await;
        assert!(shown(&window, "message-assistant").await.is_empty());
        window.press(END).await;
        shows_the_whole_answer(desk, &window).await;

        // Step by step: Space shows one more event. At the end there is no button to go on.
        for focused in ["player-back", "player-play", "player-step"] {
            window.press(TAB).await;
            window.wait_for_focus(focused).await;
        }
        window.press(ENTER).await;
        window.press(&format!("{SHIFT}{TAB}{RELEASED}")).await;
        window.wait_for_focus("player-play").await;
        let events = in_player(&window, "player.querySelector('input').max").await;
        let events: usize = events
            .as_str()
            .and_then(|max| max.parse().ok())
            .expect("a number");
        window.press(LEFT).await;
        window.press(LEFT).await;
        is_at(&window, events - 2).await;
        window.press(" ").await;
        is_at(&window, events - 1).await;
        window.press(" ").await;
        shows_the_whole_answer(desk, &window).await;

        // Ten times as fast, from the beginning again.
        for focused in ["player-step", "player-1x", "player-2x", "player-10x"] {
            window.press(TAB).await;
            window.wait_for_focus(focused).await;
        }
        window.press(ENTER).await;
        for focused in [
            "player-2x",
            "player-1x",
            "player-step",
            "player-play",
            "player-back",
            "player-slider",
        ] {
            window.press(&format!("{SHIFT}{TAB}{RELEASED}")).await;
            window.wait_for_focus(focused).await;
        }
        window.press(HOME).await;
        is_at(&window, 1).await;
        window.press(TAB).await;
        window.wait_for_focus("player-play").await;
        window.press(ENTER).await;
        shows_the_whole_answer(desk, &window).await;

        // What lies above the player takes Escape first.
        let menu = "document.querySelector('[data-testid=session-menu]').click();
            document.querySelector('[data-testid=player-play]').focus()";
        window.run(menu).await;
        window.wait_for("rename").await;
        window.press(ESCAPE).await;
        window.wait_until_gone("rename").await;
        assert!(!shown(&window, "player-play").await.is_empty());
        window
            .run("document.querySelector('[data-testid=player-play]').focus()")
            .await;

        // Escape closes the player, and stops nothing.
        window.press(ESCAPE).await;
        window.wait_until_gone("player").await;
        window.wait_for_focus("replay-turn").await;
        assert_eq!(
            (server.counters().dials, server.counters().closed_by_us),
            (before.dials, before.closed_by_us),
            "no server was asked, and nothing was stopped"
        );
        window.press(ENTER).await;
        window.wait_for_focus("player-play").await;
        window.press(ESCAPE).await;
        window.wait_until_gone("player").await;
        server.pass("second").await;
        window
            .wait_for_text("message-assistant", "to its end.")
            .await;
        window.close().await;
    })
    .await;
}
