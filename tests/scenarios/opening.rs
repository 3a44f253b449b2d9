//! What a conversation costs in the real window, printed: opening a long one, typing and scrolling in it, its memory;
//! and how long a first word is on its way. A benchmark, run by hand, against the build it is told to measure:
//! `HOLDFAST_APP=$PWD/target/release/holdfast cargo test -p tests --test=scenarios -- --ignored --nocapture opening::`

use std::time::Duration;

use protocol::Dialect;
use serde_json::Value;
use tests::{
    model_server::{Answer, ModelServer},
    seeded,
};

use crate::window::glass::{Desk, Window};

/// The aim: the last message painted and typing possible.
const OPEN_TARGET_MS: f64 = 200.0;
const RATIO_TARGET: f64 = 1.3;
const FRAME_TARGET_MS: f64 = 17.0;

const MESSAGES: [u64; 2] = [5_000, 50_000];
const OPENINGS: usize = 9;
const KEYS: usize = 60;
const FIRST_WORDS: usize = 40;
const LIMIT: Duration = Duration::from_secs(900);

/// From the click to the first frame after which the last message stands in the view and the composer takes keys.
const OPEN: &str = r"
    const done = arguments[arguments.length - 1];
    const row = [...document.querySelectorAll('[data-testid=session]')]
        .find((row) => row.textContent.includes('A long one'));
    const began = performance.now();
    row.click();
    const look = () => {
        const view = document.querySelector('[data-testid=transcript]');
        const last = view && view.querySelector('.turn-slot:last-child [data-testid=message-assistant]');
        const edge = view && view.getBoundingClientRect();
        const end = last && last.getBoundingClientRect();
        const composer = document.querySelector('[data-testid=composer]');
        const there = end && end.height > 0 && end.bottom <= edge.bottom && end.bottom > edge.top;
        if (there && document.activeElement === composer) {
            setTimeout(() => done(performance.now() - began), 0);
        } else {
            requestAnimationFrame(look);
        }
    };
    requestAnimationFrame(look);
";

/// Notes how long each key takes until the frame that shows it is through.
const LISTEN: &str = r"
    window.keys = [];
    document.querySelector('[data-testid=composer]').addEventListener('keydown', () => {
        const pressed = performance.now();
        requestAnimationFrame(() => setTimeout(() => window.keys.push(performance.now() - pressed), 0));
    }, true);
";

/// Scrolls back, a stride a frame, and notes how long each frame takes.
const SCROLL: &str = r"
    const done = arguments[arguments.length - 1];
    const view = document.querySelector('[data-testid=transcript]');
    view.dispatchEvent(new WheelEvent('wheel', { deltaY: -1 }));
    const frames = [];
    let last = performance.now();
    const step = (now) => {
        frames.push(now - last);
        last = now;
        if (frames.length === 900) { done(frames.slice(1)); return; }
        view.scrollTop -= 120;
        requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
";

/// Notes when the frame with each first word was through.
const WATCH: &str = r"
    window.painted = {};
    const now = () => performance.timeOrigin + performance.now();
    new MutationObserver(() => {
        const answers = document.querySelectorAll('[data-testid=message-assistant]');
        const last = answers[answers.length - 1];
        const word = last && /first\d+/.exec(last.textContent);
        if (word && !(word[0] in window.painted)) {
            window.painted[word[0]] = null;
            requestAnimationFrame(() => setTimeout(() => { window.painted[word[0]] = now(); }, 0));
        }
    }).observe(document.body, { subtree: true, childList: true, characterData: true });
";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a benchmark, and it needs a display"]
async fn a_first_word_in_the_window() {
    let server = ModelServer::start(Dialect::Ollama);
    Desk::tell_within(LIMIT, tempfile::tempdir().expect("a folder"), "first", &server, async |_, window| {
        window.run(WATCH).await;
        let mut written = Vec::new();
        for n in 0..FIRST_WORDS {
            let word = format!("first{n}");
            let answer = Answer::new(Dialect::Ollama).gate(&word).says(&word);
            server.script(answer.ends());
            window.send("And?").await;
            server.arrived(&word).await;
            // What the sent request still draws is not the word's.
            tokio::time::sleep(Duration::from_millis(100)).await;
            written.push((word.clone(), unix_ms()));
            server.release(&word);
            window.wait_for_text("message-assistant", &word).await;
            window.wait_for("send").await;
        }
        let painted = window.run("return window.painted").await;
        let mut times: Vec<f64> = written
            .iter()
            .filter_map(|(word, at)| Some(painted.get(word)?.as_f64()? - at))
            .collect();
        assert_eq!(times.len(), FIRST_WORDS, "{painted}");
        println!(
            "written by the server -> first word painted: p50 {:.1} ms, p95 {:.1} ms, longest {:.1} ms \
             (aim: p50 {FRAME_TARGET_MS:.0} ms)",
            at(&mut times, 50),
            at(&mut times, 95),
            at(&mut times, 100)
        );
        window.close().await;
    })
    .await;
}

#[allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn unix_ms() -> f64 {
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH);
    since.expect("a time after 1970").as_secs_f64() * 1_000.0
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a benchmark, and it needs a display"]
async fn a_long_conversation_in_the_window() {
    let mut opened = Vec::new();
    for messages in MESSAGES {
        let server = ModelServer::start(Dialect::Ollama);
        let (world, _) = seeded::conversation_of(&server, messages / 2 - 1).await;
        let data_dir = world.leave().await;
        let mut median = 0.0;
        Desk::tell_within(LIMIT, data_dir, "opening", &server, async |desk, window| {
            let mut times = Vec::new();
            for _ in 0..OPENINGS {
                window.wait_for_text("session", "A long one").await;
                window.wait_for_focus("composer").await;
                times.push(window.run_to_its_end(OPEN).await.as_f64().expect("a time"));
                // A page that never had it open, and does not open it by itself.
                window.chord("n").await;
                window.reload().await;
            }
            median = at(&mut times, 50);
            println!(
                "{messages:>6} messages: click -> last message painted, typing possible: median {median:.0} ms, \
                 slowest {:.0} ms (aim: under {OPEN_TARGET_MS:.0} ms)",
                at(&mut times, 100)
            );
            window.wait_for_text("session", "A long one").await;
            window.run_to_its_end(OPEN).await;
            typing(&window, messages).await;
            let before = memory(desk);
            frames(&window, messages).await;
            println!(
                "{messages:>6} messages: memory of the page {} MB, after scrolling back {} MB",
                before / 1_024,
                memory(desk) / 1_024
            );
            window.close().await;
        })
        .await;
        opened.push(median);
    }
    if let [short, long] = opened[..] {
        println!(
            "opening {} messages takes {:.2} times as long as {} (aim: under {RATIO_TARGET})",
            MESSAGES[1],
            long / short,
            MESSAGES[0]
        );
    }
}

async fn typing(window: &Window, messages: u64) {
    window.run(LISTEN).await;
    for _ in 0..KEYS {
        window.type_text("k").await;
    }
    let mut times = numbers(&window.run("return window.keys").await);
    println!(
        "{messages:>6} messages: key -> painted: p50 {:.1} ms, p95 {:.1} ms (aim: {FRAME_TARGET_MS:.0} ms)",
        at(&mut times, 50),
        at(&mut times, 95)
    );
}

async fn frames(window: &Window, messages: u64) {
    let mut times = numbers(&window.run_to_its_end(SCROLL).await);
    println!(
        "{messages:>6} messages: a frame while scrolling back: p50 {:.1} ms, p95 {:.1} ms, longest {:.1} ms \
         (aim: p95 {FRAME_TARGET_MS:.0} ms)",
        at(&mut times, 50),
        at(&mut times, 95),
        at(&mut times, 100)
    );
}

/// The proportional memory of the web process, in kB.
fn memory(desk: &Desk) -> u64 {
    let processes = desk.processes();
    let pages = processes
        .iter()
        .filter(|process| process.name.starts_with("WebKitWebProces"));
    pages
        .filter_map(|process| {
            let path = format!("/proc/{}/smaps_rollup", process.id);
            let told = std::fs::read_to_string(path).ok()?;
            let line = told.lines().find_map(|line| line.strip_prefix("Pss:"))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        })
        .sum()
}

fn numbers(value: &Value) -> Vec<f64> {
    let values = value.as_array().expect("a list");
    values.iter().filter_map(Value::as_f64).collect()
}

fn at(times: &mut [f64], percent: usize) -> f64 {
    times.sort_by(f64::total_cmp);
    times[(times.len() - 1) * percent / 100]
}
