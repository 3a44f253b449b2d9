//! Our own engine next to llama.cpp's own server: the same file, the same threads, the same questions, both measured
//! from where the engine asks.
//!
//! `HOLDFAST_MODEL` is the file, `HOLDFAST_APP` an app with the engine, `HOLDFAST_MODEL_URL` the server's address with
//! `/v1`, `HOLDFAST_MODEL_NAME` what it calls the model, and `HOLDFAST_THREADS` (else 1) how many threads it was given.

use std::{ffi::OsString, path::PathBuf};

use engine::gateway::local::Host;
use protocol::{
    Connection, Decimal, Dialect, EventBody, ModelOptions, Op, Provider, ProviderId, SessionId,
    Think, Timings, Usage,
};
use tests::{model_server::model_of, sentinel::random_u128, world::World};

/// Questions, each of another beginning, so that none is in a cache.
const ROUNDS: usize = 7;
const WORDS_MAX: u32 = 128;
/// Within which ours has to be.
const TARGET_PERCENT: f64 = 5.0;

pub(super) async fn measure() {
    let file = PathBuf::from(setting("HOLDFAST_MODEL"));
    let threads = std::env::var("HOLDFAST_THREADS").map_or(1, |n| n.parse().expect("a number"));
    let mut world = World::without_engine();
    world.live_in_real_time();
    world.host = Host::new(setting("HOLDFAST_APP"), [OsString::from("--model-process")]);
    world.open().await;
    let folder = file.parent().expect("a folder").display().to_string();
    let ours = provider(1, Dialect::Local, folder);
    let url = setting("HOLDFAST_MODEL_URL").to_string_lossy().into_owned();
    let server = provider(2, Dialect::OpenAiChat, url);
    for provider in [&ours, &server] {
        world.add(provider.clone()).await;
    }
    let name = file.file_name().expect("a name").to_string_lossy();
    let models = [
        ("ours", model_of(&ours, &name), Some(threads)),
        (
            "llama-server",
            model_of(&server, &setting("HOLDFAST_MODEL_NAME").to_string_lossy()),
            None,
        ),
    ];
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); 2];
    let mut firsts: Vec<Vec<f64>> = vec![Vec::new(); 2];
    // Turn by turn, so that whatever else this machine does hits both.
    for round in 0..=ROUNDS {
        for (nth, (who, model, threads)) in models.iter().enumerate() {
            let session = SessionId::from_bits(random_u128());
            let options = ModelOptions {
                num_ctx: threads.map(|_| 2048),
                num_predict: Some(WORDS_MAX),
                temperature: Decimal::nearest(0.0),
                threads: *threads,
                ..ModelOptions::default()
            };
            let text = format!(
                "Question {round}{round}{round}. {} Tell me a long story about all of it.",
                "The lighthouse stands on a rock, and the sea is wide. ".repeat(20)
            );
            let begin = Op::StartSession {
                session,
                model: model.clone(),
                text,
                images: Vec::new(),
                folder: None,
                options,
            };
            world.submit(begin).await.expect("it begins");
            world.page().await.follow(session).until_idle().await;
            let events = world.events(session).into_iter().rev();
            let mut measured = events.filter_map(|event| match event.body {
                EventBody::StepEnded { usage, timings, .. } => Some((usage, timings)),
                _ => None,
            });
            let (usage, timings) = measured.next().expect("a step that ended well");
            let (first, rate) = figures(&usage, &timings);
            println!("  {round} {who}: first word {first:.0} ms, {rate:.1} tokens/s, {usage:?}");
            // The first of each loads the model.
            if round > 0 {
                rates[nth].push(rate);
                firsts[nth].push(first);
            }
        }
    }
    let medians = |of: Vec<Vec<f64>>| of.into_iter().map(median).collect::<Vec<_>>();
    let (rate, first) = (medians(rates), medians(firsts));
    println!(
        "{threads} threads: ours {:.1} tokens/s, llama-server {:.1}: {:+.1} %",
        rate[0],
        rate[1],
        percent(rate[0], rate[1])
    );
    println!(
        "first word: ours {:.0} ms, llama-server {:.0} ms: {:+.1} %",
        first[0],
        first[1],
        percent(first[0], first[1])
    );
    println!("  (aim: within {TARGET_PERCENT} %)");
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn percent(ours: f64, theirs: f64) -> f64 {
    (ours / theirs - 1.0) * 100.0
}

/// Milliseconds to the first word, and tokens a second after it.
fn figures(usage: &Usage, timings: &Timings) -> (f64, f64) {
    let number = |value: Option<u64>| value.expect("it was measured") as f64;
    let first = number(timings.first_content_ms);
    let rest = number(timings.total_ms) - first;
    (
        first,
        (number(usage.completion_tokens) - 1.0) * 1000.0 / rest,
    )
}

fn setting(name: &str) -> OsString {
    std::env::var_os(name).expect(name)
}

fn provider(id: u128, dialect: Dialect, base_url: String) -> Provider {
    Provider {
        id: ProviderId::from_bits(id),
        name: format!("{dialect:?}"),
        dialect,
        base_url,
        num_ctx: None,
        keep_alive: None,
        files: Vec::new(),
        think: Think::ServerDefault,
        limits: None,
        connection: Connection::default(),
    }
}
