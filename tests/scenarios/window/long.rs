//! A conversation that is too long to be drawn as a whole: it opens at its end, and whoever goes back through it never
//! sees the text jump, whatever comes in above or below.

use protocol::Dialect;
use serde_json::{Value, json};
use tests::{
    model_server::{Answer, ModelServer},
    seeded,
};

use super::glass::{Desk, END, HOME, PAGE_UP, Window};

const TURNS: u64 = 58;
/// More turns than this are never in the page at the same time, however many were read.
const DRAWN_MAX: u64 = 45;
const PIECES: usize = 20;

/// Scrolls up in strides until nothing is left above, and down again. Says how far the text ever moved otherwise than
/// it was scrolled, how many turns were in the page at most, and which were seen.
const THERE_AND_BACK: &str = r"
    const done = arguments[arguments.length - 1];
    const view = document.querySelector('[data-testid=transcript]');
    const list = view.querySelector('.turns');
    const painted = () => new Promise((r) => requestAnimationFrame(() => setTimeout(r, 0)));
    const seen = new Set(), jumps = [];
    let drawn = 0, steps = 0;
    const note = () => {
        const edge = view.getBoundingClientRect();
        drawn = Math.max(drawn, list.children.length);
        for (const slot of list.children) {
            const turn = slot.lastElementChild.getBoundingClientRect();
            if (turn.bottom > edge.top && turn.top < edge.bottom) seen.add(Number(slot.dataset.turn));
        }
    };
    // What is read: the first element that begins inside the view.
    const read = () => {
        const edge = view.getBoundingClientRect().top;
        return [...list.querySelectorAll('.turn p, .turn pre, .turn li, .mine-text')]
            .find((e) => e.getBoundingClientRect().top >= edge);
    };
    const stride = async (by) => {
        const element = read();
        const from = element.getBoundingClientRect().top;
        const top = view.scrollTop;
        view.scrollTop = top + by;
        const scrolled = view.scrollTop - top;
        steps++;
        for (let frame = 0; frame < 2; frame++) {
            await painted();
            note();
            const off = element.getBoundingClientRect().top - (from - scrolled);
            if (element.isConnected && Math.abs(off) > 1) jumps.push([Number(element.closest('[data-turn]').dataset.turn), off]);
        }
    };
    (async () => {
        const height = view.clientHeight;
        note();
        view.dispatchEvent(new WheelEvent('wheel', { deltaY: -1 }));
        let idle = 0;
        while (idle < 2 && steps < 400) {
            await stride(-Math.round(height * 0.7));
            idle = view.scrollTop === 0 && !view.querySelector('.transcript-older') ? idle + 1 : 0;
        }
        const up = seen.size;
        const below = () => view.scrollHeight - view.scrollTop - view.clientHeight;
        while (below() > height && steps < 800) await stride(height);
        done({ jumps, drawn, up, seen: seen.size, steps, top: view.scrollTop });
    })();
";

/// The turn at the upper edge of the view, and where it begins below that edge.
const AT_THE_TOP: &str = "
    const view = document.querySelector('[data-testid=transcript]');
    const edge = view.getBoundingClientRect().top;
    const slots = [...view.querySelectorAll('.turn-slot')];
    const slot = slots.find((s) => s.lastElementChild.getBoundingClientRect().bottom > edge + 60);
    return [Number(slot.dataset.turn), Math.round(slot.lastElementChild.getBoundingClientRect().top - edge)];
";

/// A data folder with a long conversation.
async fn long_one(server: &ModelServer) -> tempfile::TempDir {
    let (world, _) = seeded::conversation_of(server, TURNS).await;
    world.leave().await
}

async fn open_it(window: &Window) {
    let session = window.wait_for_text("session", "A long one").await;
    session.click().await.expect("a row can be clicked");
    let last = format!("Question {}:", TURNS + 1);
    window.wait_for_text("message-user", &last).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn going_back_through_a_long_conversation_moves_nothing_while_an_answer_streams_below() {
    let server = ModelServer::start(Dialect::Ollama);
    let data_dir = long_one(&server).await;
    let pieces: Vec<_> = (0..PIECES).map(|n| format!("piece{n}")).collect();
    let answer = pieces
        .iter()
        .fold(Answer::new(Dialect::Ollama), |said, piece| {
            said.says(&format!("{piece} and a good deal of other text\n\n"))
                .gate(piece)
        });
    server.script(answer.ends());
    Desk::tell_in(data_dir, "long", &server, async |_, window| {
        open_it(&window).await;
        window.picture("long").await;
        window.send("And now?").await;
        window.wait_for_text("message-assistant", &pieces[0]).await;
        let streams = async {
            for piece in &pieces {
                server.pass(piece).await;
            }
        };
        let (told, ()) = tokio::join!(window.run_to_its_end(THERE_AND_BACK), streams);
        assert_eq!(told["jumps"], json!([]), "{told}");
        assert_eq!(
            told["up"],
            json!(TURNS + 2),
            "every turn was seen on the way up: {told}"
        );
        assert!(told["drawn"].as_u64() < Some(DRAWN_MAX), "{told}");
        window.click("jump-latest").await;
        window
            .wait_for_text("message-assistant", &pieces[PIECES - 1])
            .await;
        window.wait_for("send").await;
        window.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn home_and_page_up_bring_older_turns_in_above_what_is_read() {
    let server = ModelServer::start(Dialect::Ollama);
    let data_dir = long_one(&server).await;
    Desk::tell_in(data_dir, "long-keys", &server, async |_, window| {
        open_it(&window).await;
        // The older turns that Home asks for stand above the one that was the first.
        window.press_in("transcript", HOME).await;
        let first = TURNS + 1 - 23;
        window
            .wait_for_script(&format!(
                "const top = (() => {{ {AT_THE_TOP} }})(); return top[0] === {first} && \
             document.querySelector('[data-testid=transcript]').scrollTop > 0;"
            ))
            .await;
        let stood = window.run(AT_THE_TOP).await;
        window.picture("long-home").await;
        window.press_in("transcript", PAGE_UP).await;
        window
            .wait_for_script(&format!(
                "const top = (() => {{ {AT_THE_TOP} }})(); return top[0] < {first};"
            ))
            .await;
        assert_ne!(stood, Value::Null);
        window.press_in("transcript", END).await;
        let last = format!("Question {}:", TURNS + 1);
        window.wait_for_text("message-user", &last).await;
        window
            .wait_for_script(
                "const view = document.querySelector('[data-testid=transcript]');
             return view.scrollHeight - view.scrollTop - view.clientHeight < 2;",
            )
            .await;
        window.close().await;
    })
    .await;
}
