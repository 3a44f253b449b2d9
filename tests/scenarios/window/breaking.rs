//! A page that breaks costs a view and nothing else: the turn goes on, the text comes back, the draft is kept.

use protocol::Dialect;
use tests::{
    model_server::{Answer, ModelServer},
    sentinel::Sentinel,
};

use super::{
    glass::{Desk, Window},
    shows_what_is_stored,
};

const DIALECT: Dialect = Dialect::Ollama;

/// From now on nothing can be written on the page; one that is loaded anew can write again.
async fn break_page(window: &Window) {
    window
        .run(
            "const broken = () => { throw new Error('broken by the story') };
             const value = Object.getOwnPropertyDescriptor(Node.prototype, 'nodeValue');
             const data = Object.getOwnPropertyDescriptor(CharacterData.prototype, 'data');
             document.createTextNode = broken;
             document.createElementNS = broken;
             Object.defineProperty(Node.prototype, 'nodeValue', { ...value, set: broken });
             Object.defineProperty(CharacterData.prototype, 'data', { ...data, set: broken });
             window.mend = () => {
                 delete document.createTextNode;
                 delete document.createElementNS;
                 Object.defineProperty(Node.prototype, 'nodeValue', value);
                 Object.defineProperty(CharacterData.prototype, 'data', data);
             };",
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn a_page_that_breaks_comes_back_by_itself_once_and_then_by_a_button() {
    let server = ModelServer::start(DIALECT);
    let words = ["first", "second", "third"].map(Sentinel::new);
    server.script(
        Answer::new(DIALECT)
            .says(&format!("{} ", words[0]))
            .gate("first")
            .says(&format!("{} ", words[1]))
            .gate("second")
            .says(&format!("{}", words[2]))
            .ends(),
    );
    Desk::tell("breaking", &server, async |desk, window| {
        desk.breaks(2);
        window.send("Tell me").await;
        window
            .wait_for_text("message-assistant", &words[0].to_string())
            .await;
        window.type_text("a draft for later").await;
        break_page(&window).await;
        server.pass("first").await;
        // A new page has no way to mend what is not broken in it.
        window
            .wait_for_script("return window.mend === undefined && document.querySelector('[data-testid=composer]') !== null")
            .await;
        window
            .wait_for_text("message-assistant", &words[1].to_string())
            .await;
        window
            .wait_for_script("return document.querySelector('[data-testid=composer]').value === 'a draft for later'")
            .await;
        shows_what_is_stored(desk, &window).await;

        break_page(&window).await;
        server.pass("second").await;
        window.wait_for("reload-view").await;
        // The driver needs what was broken.
        window.run("window.mend()").await;
        window.click("reload-view").await;
        window
            .wait_for_text("message-assistant", &words[2].to_string())
            .await;
        window.wait_for("send").await;
        window
            .wait_for_script("return document.querySelector('[data-testid=composer]').value === 'a draft for later'")
            .await;
        shows_what_is_stored(desk, &window).await;
        window.close().await;
    })
    .await;
    let counters = server.counters();
    assert_eq!(
        (counters.chats, counters.closed_by_us),
        (1, 0),
        "the turn was never disturbed"
    );
}
