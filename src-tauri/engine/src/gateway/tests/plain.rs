//! Plain events are read the short way, and it changes nothing: whatever stands in them or beside them.

use proptest::{prelude::*, sample::select};
use protocol::{Dialect, Part};

use super::{super::plain, decode};

/// Values that a field may hold against all custom.
const VALUES: [&str; 17] = [
    "null",
    "true",
    "false",
    "0",
    "1",
    "-1",
    "1e999",
    "0.5",
    "\"\"",
    "\"a\"",
    "\" <think>x</think> \"",
    "\"\\u00e9\\n\\ud83d\"",
    "\"stop\"",
    "\"error\"",
    "[]",
    "{}",
    "{\"message\":\"broken\"}",
];

/// Fields that mean something somewhere, and one that does nowhere.
const FIELDS: [&str; 27] = [
    "role",
    "content",
    "thinking",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "tool_calls",
    "function_call",
    "refusal",
    "text",
    "type",
    "index",
    "delta",
    "finish_reason",
    "logprobs",
    "usage",
    "choices",
    "message",
    "done",
    "done_reason",
    "error",
    "detail",
    "object",
    "code",
    "model",
    "created",
    "novelty",
];

/// A field with a value beside the usual ones, or none.
fn extra() -> impl Strategy<Value = String> {
    let field = (select(&FIELDS[..]), select(&VALUES[..]));
    prop_oneof![
        2 => Just(String::new()),
        3 => field.prop_map(|(name, value)| format!(",\"{name}\":{value}")),
    ]
}

fn said() -> impl Strategy<Value = &'static str> {
    prop_oneof![3 => Just("\" word\""), 2 => select(&VALUES[..])]
}

fn event(dialect: Dialect) -> impl Strategy<Value = String> {
    (said(), said(), extra(), extra(), extra()).prop_map(move |(a, b, x, y, z)| match dialect {
        Dialect::Ollama => format!(
            "{{\"model\":\"m\",\"created_at\":\"now\",\"message\":{{\"role\":\"assistant\",\"content\":{a}{x}}},\"done\":false{y}}}\n"
        ),
        Dialect::OpenAiChat => format!(
            "data: {{\"id\":\"c\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":{a},\"reasoning_content\":{b}{x}}}\
             ,\"finish_reason\":null{y}}}]{z}}}\n\n"
        ),
        Dialect::Anthropic | Dialect::Local => format!(
            "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":\
             {{\"type\":\"text_delta\",\"text\":{a}{x}}}{y}}}\n\n"
        ),
    })
}

fn body() -> impl Strategy<Value = (Dialect, Vec<String>)> {
    let dialects = select(vec![
        Dialect::Ollama,
        Dialect::OpenAiChat,
        Dialect::Anthropic,
    ]);
    dialects.prop_flat_map(|dialect| (Just(dialect), prop::collection::vec(event(dialect), 1..6)))
}

proptest! {
    #[test]
    fn the_short_way_says_what_the_long_one_does((dialect, events) in body(), piece in 1_usize..99) {
        // The comparison is in `decode`.
        decode(dialect, events.concat().as_bytes().chunks(piece));
    }
}

#[test]
fn what_servers_really_send_a_word_in_is_read_the_short_way() {
    for line in [
        r#"{"model":"llama3.2:latest","created_at":"2026-01-31T12:00:00.1Z","message":{"role":"assistant","content":" a"},"done":false}"#,
        r#"{"model":"qwen3","created_at":"2026-01-31T12:00:00.1Z","message":{"role":"assistant","content":"","thinking":" a"},"done":false}"#,
    ] {
        assert!(plain::ollama(line).is_some(), "{line}");
    }
    for text in [
        // llama.cpp, OpenAI, vLLM, OpenRouter.
        r#"{"choices":[{"finish_reason":null,"index":0,"delta":{"content":" a"}}],"created":1753900000,"id":"chatcmpl-x","model":"m","system_fingerprint":"b1","object":"chat.completion.chunk"}"#,
        r#"{"id":"chatcmpl-x","object":"chat.completion.chunk","created":1,"model":"gpt","service_tier":"default","system_fingerprint":null,"choices":[{"index":0,"delta":{"content":"a"},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"abc"}"#,
        r#"{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"reasoning":"a","reasoning_content":"a"},"logprobs":null,"finish_reason":null,"token_ids":null}]}"#,
        r#"{"id":"gen","provider":"X","model":"m","object":"chat.completion.chunk","created":1,"choices":[{"index":0,"delta":{"role":"assistant","content":"a"},"finish_reason":null,"native_finish_reason":null,"logprobs":null}]}"#,
    ] {
        assert!(plain::openai(text).is_some(), "{text}");
    }
    for text in [
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":" a"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":" a"}}"#,
    ] {
        assert!(plain::anthropic(text).is_some(), "{text}");
    }
}

#[test]
fn an_end_or_a_call_is_never_taken_for_a_word() {
    assert_eq!(
        plain::ollama(r#"{"message":{"role":"assistant","content":" a"},"done":true}"#),
        None
    );
    let finish = r#"{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}"#;
    assert_eq!(plain::openai(finish), None);
    let calls =
        r#"{"choices":[{"index":0,"delta":{"content":"a","tool_calls":[]},"finish_reason":null}]}"#;
    assert_eq!(plain::openai(calls), None);
    let usage = r#"{"choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"prompt_tokens":1}}"#;
    assert_eq!(plain::openai(usage), None);
    let start =
        r#"{"type":"content_block_start","index":0,"delta":{"type":"text_delta","text":"a"}}"#;
    assert_eq!(plain::anthropic(start), None);
    // And said aloud it is one all the same.
    let body = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\n";
    let decoded = decode(Dialect::OpenAiChat, [body.as_bytes()]);
    assert_eq!(decoded.text(Part::Answer), "a");
    assert!(decoded.end.is_ok());
}
