//! How fast answers are read: a long stream through each decoder, next to serde_json alone on the same JSON.

use std::time::Instant;

use engine::gateway::{ModelEvent, decoding};
use protocol::{Dialect, Part};
use serde_json::{Value, json};

const STREAM_BYTES: usize = 200 * 1_000 * 1_000;
/// As much as a socket gives at once.
const READ_BYTES: usize = 16 * 1_024;
/// Of serde_json's speed.
const RATIO_TARGET: f64 = 0.7;

const WORDS: [&str; 8] = [
    " a",
    " holdfast",
    " grips",
    " the",
    " rock",
    ",",
    "\n",
    " naïve",
];

/// The opening, what repeats, and the end of an answer.
struct Spoken {
    head: Vec<Value>,
    word: fn(&str) -> Value,
    tail: Vec<Value>,
}

pub(crate) fn measure() {
    for dialect in [Dialect::Ollama, Dialect::OpenAiChat, Dialect::Anthropic] {
        let spoken = spoken(dialect);
        let mut texts: Vec<String> = spoken.head.iter().map(Value::to_string).collect();
        let mut bytes = 0;
        let mut said = 0;
        for word in WORDS.iter().cycle() {
            if bytes >= STREAM_BYTES {
                break;
            }
            let text = (spoken.word)(word).to_string();
            bytes += framed(dialect, &text).len();
            said += word.len();
            texts.push(text);
        }
        texts.extend(spoken.tail.iter().map(Value::to_string));
        let stream: String = texts.iter().map(|text| framed(dialect, text)).collect();

        let began = Instant::now();
        for text in &texts {
            let value: Value = serde_json::from_str(text).expect("JSON");
            std::hint::black_box(value);
        }
        let alone = began.elapsed().as_secs_f64();

        let mut heard = 0;
        let began = Instant::now();
        let end = decoding::decode(dialect, stream.as_bytes().chunks(READ_BYTES), |event| {
            if let ModelEvent::Text { part, text } = event {
                assert_eq!(part, Part::Answer);
                heard += text.len();
            }
        });
        let decoded = began.elapsed().as_secs_f64();
        end.expect("a proper end");
        assert_eq!(heard, said);

        let megabytes = stream.len() as f64 / 1e6;
        println!(
            "  {dialect:?}: {megabytes:.0} MB decoded at {:.0} MB/s, serde_json alone at {:.0} MB/s: {:.2} of its speed \
             (aim: {RATIO_TARGET})",
            megabytes / decoded,
            megabytes / alone,
            alone / decoded
        );
    }
}

fn framed(dialect: Dialect, text: &str) -> String {
    match dialect {
        Dialect::Ollama | Dialect::Local => format!("{text}\n"),
        Dialect::OpenAiChat | Dialect::Anthropic => format!("data: {text}\n\n"),
    }
}

fn spoken(dialect: Dialect) -> Spoken {
    match dialect {
        Dialect::Ollama => Spoken {
            head: Vec::new(),
            word: |word| {
                json!({"model":"llama3.2:latest","created_at":"2026-01-31T12:00:00.123456789Z",
                    "message":{"role":"assistant","content":word},"done":false})
            },
            tail: vec![
                json!({"model":"llama3.2:latest","created_at":"2026-01-31T12:00:00.123456789Z",
                "message":{"role":"assistant","content":""},"done":true,"done_reason":"stop",
                "prompt_eval_count":12,"eval_count":1_000}),
            ],
        },
        Dialect::Local => Spoken {
            head: Vec::new(),
            word: |word| json!({ "frame": "Text", "text": word }),
            tail: vec![json!({ "frame": "Ended", "finish": "Stop", "usage": {}, "timings": {} })],
        },
        Dialect::OpenAiChat => Spoken {
            head: vec![openai(&json!({"role":"assistant","content":null}), None)],
            word: |word| openai(&json!({"content":word}), None),
            tail: vec![openai(&json!({}), Some("stop"))],
        },
        Dialect::Anthropic => Spoken {
            head: vec![
                json!({"type":"message_start","message":{"id":"m","type":"message","role":"assistant",
                    "model":"claude","content":[],"usage":{"input_tokens":12,"output_tokens":1}}}),
                json!({"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}),
            ],
            word: |word| json!({"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":word}}),
            tail: vec![
                json!({"type":"content_block_stop","index":0}),
                json!({"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}}),
                json!({"type":"message_stop"}),
            ],
        },
    }
}

fn openai(delta: &Value, finish: Option<&str>) -> Value {
    json!({"id":"chatcmpl-uvwxyz0123456789ABCDEFGHIJKL","object":"chat.completion.chunk","created":1_769_860_800,
        "model":"llama3.2","system_fingerprint":"b1-abcdef",
        "choices":[{"index":0,"delta":delta,"finish_reason":finish}]})
}
