//! How the pages look where there is little room: at the smallest width, and at twice the size. Pictures of each are
//! kept for people to judge, in the light and in the dark; what no picture is needed for is checked.
//!
//! Invariant: nothing stands beyond the edge of a page, so nobody has to scroll sideways to read or reach anything.

use protocol::Dialect;
use tests::{
    model_server::{Answer, Download, MODEL, ModelServer},
    tls_front::{Certificate, TlsFront},
};

use super::glass::{Colours, Desk, ENTER, ESCAPE, SHIFT, View, Window};

pub(super) const WIDE: (u32, u32) = (1280, 900);
/// The smallest that the window lets itself be made.
const NARROW: (u32, u32) = (400, 800);
/// Presses of the key that makes everything larger by a tenth, to twice the size.
const STEPS_TO_TWICE: usize = 10;

/// What stands beyond the right edge, and in no part that scrolls by itself.
const BEYOND: &str = r"
    const scrolls = (element) => {
        for (let up = element.parentElement; up && up !== document.body; up = up.parentElement) {
            if (['auto', 'scroll', 'hidden', 'clip'].includes(getComputedStyle(up).overflowX)
                && up.getBoundingClientRect().right <= innerWidth + 1) return true;
        }
        return false;
    };
    const beyond = [...document.querySelectorAll('body *')].filter((element) => {
        const place = element.getBoundingClientRect();
        return place.width > 0 && place.height > 0 && place.right > innerWidth + 1 && place.left < innerWidth * 2
            && element.checkVisibility({ visibilityProperty: true, opacityProperty: true })
            && !element.closest('.visually-hidden') && !scrolls(element);
    });
    return beyond.map((element) => `${element.tagName} ${element.className} ${element.dataset.testid ?? ''}: `
        + element.textContent.slice(0, 60));
";

/// Whether a page scrolls sideways as a whole.
const SIDEWAYS: &str = "return document.scrollingElement.scrollWidth > innerWidth + 1";

/// Looks at what is shown now, as it is, narrow, and at twice the size.
pub(super) async fn look(window: &Window, view: &View, name: &str, colours: Colours) {
    let name = match colours {
        Colours::Light => format!("look-{name}"),
        Colours::Dark => format!("look-{name}-dark"),
    };
    window.picture(&name).await;
    window.resize(NARROW.0, NARROW.1).await;
    fits(window, &format!("{name}-narrow")).await;
    window.resize(WIDE.0, WIDE.1).await;
    let usual = window.run("return devicePixelRatio").await.as_f64();
    view.press(&["ctrl+plus"; STEPS_TO_TWICE]).await;
    let twice = usual.unwrap_or(1.0) * 2.0;
    window
        .wait_for_script(&format!(
            "return Math.abs(devicePixelRatio - {twice}) < 0.05 || innerWidth < {}",
            WIDE.0 / 2 + 20
        ))
        .await;
    fits(window, &format!("{name}-twice")).await;
    view.press(&["ctrl+0"]).await;
    window
        .wait_for_script(&format!("return innerWidth > {}", WIDE.0 - 20))
        .await;
}

async fn fits(window: &Window, name: &str) {
    window.picture(name).await;
    let beyond = window.run(BEYOND).await;
    assert_eq!(beyond, serde_json::json!([]), "beyond the edge of {name}");
    let sideways = window.run(SIDEWAYS).await;
    assert_eq!(sideways, false, "{name} scrolls sideways");
}

/// A long answer of everything that is hard to fit.
fn hard_to_fit() -> String {
    let path = "/home/somebody/models/a-very-long-folder-name-that-never-ends/".repeat(3);
    format!(
        "See `{path}` and https://example.com/{path}\n\n```rust\nfn main() {{ println!(\"{path}\"); }}\n```\n\n\
         | layer | bytes | digest | state | since |\n|---|---|---|---|---|\n\
         | weights | 4000000000 | sha256:6a0746a1ec1aef3e7ec53868f220ff6e389f6f8ef87a01d77c96807de94ca2aa | pulled | today |\n\n\
         {}\n",
        "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft"
            .repeat(2)
    )
}

async fn pages(colours: Colours) {
    let server = ModelServer::start(Dialect::Ollama);
    let front = TlsFront::before(server.address(), Certificate::SelfSigned);
    server.download(
        Download::new()
            .part("6a0746a1ec1a", 4_000_000_000, 1_200_000_000)
            .gate("first")
            .succeeds(),
    );
    server.script(Answer::whole(Dialect::Ollama, &hard_to_fit()));
    Desk::tell_in_colours(colours, "looks", &server, async |_, window| {
        let view = window.next_view(&[]).await;
        window.resize(WIDE.0, WIDE.1).await;
        let dark = window.run("return matchMedia('(prefers-color-scheme: dark)').matches");
        assert_eq!(dark.await, colours == Colours::Dark);
        window.send("What of all this does fit?").await;
        window.wait_for_text("message-assistant", "weights").await;
        window.wait_for("send").await;
        look(&window, &view, "chat", colours).await;
        window.click("turn-times").await;
        window.wait_for("times").await;
        look(&window, &view, "waterfall", colours).await;

        window.click("model-picker").await;
        window.wait_for_text("model-option", MODEL).await;
        look(&window, &view, "picker", colours).await;
        window.click("picker-manage").await;
        window.wait_for_text("model", MODEL).await;
        window.fill("pull-name", "kelp:7b").await;
        window.press(ENTER).await;
        window.wait_for_text("pull-words", "30 %").await;
        look(&window, &view, "models", colours).await;
        window.click("model-options").await;
        window.wait_for("options-form").await;
        look(&window, &view, "options", colours).await;
        window.press(ESCAPE).await;
        window.press(ESCAPE).await;

        window.chord(&format!("{SHIFT}l")).await;
        window.wait_for("usage-chart").await;
        look(&window, &view, "usage", colours).await;
        window.press(ESCAPE).await;

        window.wait_for_focus("composer").await;
        window.chord(",").await;
        window.click("server-edit").await;
        window.wait_for("server-address").await;
        look(&window, &view, "server", colours).await;
        let address = format!("https://{}", front.endpoint());
        window.fill("server-address", &address).await;
        window.press(ENTER).await;
        window.wait_until_gone("server-address").await;
        window.click("examine").await;
        window.wait_for("fingerprint").await;
        look(&window, &view, "certificate", colours).await;
        server.release_all();
        window.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn every_page_fits_a_narrow_window_and_twice_the_size() {
    pages(Colours::Light).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn every_page_fits_in_the_dark_too() {
    pages(Colours::Dark).await;
}
