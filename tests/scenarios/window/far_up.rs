//! INV-112 in the real window: what follows 2^53 arrives there and comes back as it is.

use protocol::Dialect;
use serde_json::json;
use tests::{
    model_server::{Answer, ModelServer},
    seeded,
    world::World,
};

use super::{
    glass::{Desk, Window},
    shows_what_is_stored,
};

const DIALECT: Dialect = Dialect::Ollama;
/// Enough for a cursor of every remainder by four: two of them have no double.
const PIECES: usize = 6;

/// Notes what the page asks for. With a `damage`, also makes doubles of all numbers on their way to the engine.
fn listen(damage: bool) -> String {
    format!(
        "const real = window.fetch;
         window.asked = [];
         window.fetch = (to, init, ...rest) => {{
             window.asked.push(String(to.url ?? to).split('/').pop());
             if ({damage} && init && typeof init.body === 'string') {{
                 const outer = JSON.parse(init.body);
                 if (typeof outer.body === 'string') outer.body = JSON.stringify(JSON.parse(outer.body));
                 init = {{ ...init, body: JSON.stringify(outer) }};
             }}
             return real(to, init, ...rest);
         }};"
    )
}

const ATTACHES: &str = "return window.asked.filter((what) => what === 'attach').length";

fn script(server: &ModelServer, word: &str) {
    let answer = (0..PIECES).fold(Answer::new(DIALECT), |answer, n| {
        let piece = format!("{word}{n}");
        answer.says(&format!("{piece} ")).gate(&piece)
    });
    server.script(answer.ends());
}

async fn open(window: &Window) {
    let session = window.wait_for_text("session", "Hello?").await;
    session.click().await.expect("a row can be clicked");
    window.wait_for_text("message-assistant", "Hello.").await;
    // The list and the conversation are both followed: nothing more is attached to.
    window.wait_for("send").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn a_conversation_beyond_two_to_the_fifty_third_streams_on_and_rounding_would_be_noticed() {
    let (server, world) = (ModelServer::start(DIALECT), World::new().await);
    server.script(Answer::whole(DIALECT, "Hello."));
    let session = world.begin(&server, "Hello?").await;
    world.page().await.follow(session).until_idle().await;
    let data_dir = world.leave().await;
    seeded::move_up(data_dir.path(), session, 1 << 53);
    Desk::tell_in(data_dir, "far-up", &server, async |desk, window| {
        open(&window).await;
        window.run(&listen(false)).await;
        script(&server, "piece");
        window.send("And on?").await;
        for n in 0..PIECES {
            let piece = format!("piece{n}");
            window.wait_for_text("message-assistant", &piece).await;
            server.pass(&piece).await;
        }
        window.wait_for("send").await;
        shows_what_is_stored(desk, &window).await;
        assert_eq!(window.run(ATTACHES).await, json!(0), "nothing was repaired");

        // That it would be noticed.
        window.reload().await;
        window.wait_for_text("message-assistant", "piece5").await;
        window.run(&listen(true)).await;
        script(&server, "word");
        window.send("And then?").await;
        for n in 0..PIECES {
            let word = format!("word{n}");
            let heard = format!("document.body.innerText.includes('{word}')");
            let heard_or_repaired = format!("return {heard} || (() => {{ {ATTACHES} }})() > 0");
            server.arrived(&word).await;
            window.wait_for_script(&heard_or_repaired).await;
            server.release(&word);
        }
        assert_ne!(window.run(ATTACHES).await, json!(0), "it was repaired");
        window.reload().await;
        window.wait_for_text("message-assistant", "word5").await;
        window.wait_for("send").await;
        shows_what_is_stored(desk, &window).await;
        window.close().await;
    })
    .await;
}
