//! What goes out: the body of a request in both dialects.

use protocol::{Dialect, Provider, ProviderId, Think};
use serde_json::{Value, json};

use crate::gateway::{
    CallMade, Message, ModelRequest, ToolSpec, ollama,
    openai::{self, AskUsage},
};

pub(super) fn provider(dialect: Dialect) -> Provider {
    Provider {
        id: ProviderId::from_bits(1),
        name: "p".into(),
        dialect,
        base_url: "http://h".into(),
        num_ctx: None,
        keep_alive: None,
        think: Think::ServerDefault,
        limits: None,
        connection: protocol::Connection::default(),
    }
}

fn asking(messages: Vec<Message>) -> ModelRequest {
    ModelRequest {
        model: "m".into(),
        messages,
        tools: vec![],
    }
}

/// A conversation with a call, an answer that was never given, and a tool.
fn conversation() -> ModelRequest {
    let call = |call_id: &str, arguments: &str| CallMade {
        call_id: call_id.into(),
        name: "f".into(),
        arguments: arguments.into(),
    };
    ModelRequest {
        tools: vec![ToolSpec {
            name: "f".into(),
            description: "does f".into(),
            parameters: "{\"type\":\"object\"}".into(),
        }],
        ..asking(vec![
            Message::System {
                text: "be brief".into(),
            },
            Message::User { text: "hi".into() },
            Message::Assistant {
                text: String::new(),
                calls: vec![],
                verbatim: None,
            },
            Message::Assistant {
                text: String::new(),
                calls: vec![call("c1", "{\"x\":1}"), call("c2", "{\"x\":")],
                verbatim: None,
            },
            Message::ToolResult {
                call_id: "c1".into(),
                name: "f".into(),
                text: "one".into(),
            },
            Message::Assistant {
                text: "done".into(),
                calls: vec![],
                verbatim: None,
            },
        ])
    }
}

fn tools() -> Value {
    json!([{"type":"function","function":{"name":"f","description":"does f","parameters":{"type":"object"}}}])
}

#[test]
fn ollama_is_asked_in_its_own_words() {
    assert_eq!(
        ollama::encode(&provider(Dialect::Ollama), &conversation()),
        json!({
            "model": "m",
            "stream": true,
            "truncate": false,
            "tools": tools(),
            "messages": [
                {"role":"system","content":"be brief"},
                {"role":"user","content":"hi"},
                {"role":"assistant","content":"","tool_calls":[
                    {"id":"c1","function":{"name":"f","arguments":{"x":1}}},
                    {"id":"c2","function":{"name":"f","arguments":{}}},
                ]},
                {"role":"tool","content":"one","tool_name":"f","tool_call_id":"c1"},
                {"role":"assistant","content":"done"},
            ],
        })
    );
}

#[test]
fn openai_compatible_servers_are_asked_in_theirs() {
    assert_eq!(
        openai::encode(
            &provider(Dialect::OpenAiChat),
            &conversation(),
            AskUsage::Yes
        ),
        json!({
            "model": "m",
            "stream": true,
            "stream_options": {"include_usage": true},
            "tools": tools(),
            "messages": [
                {"role":"system","content":"be brief"},
                {"role":"user","content":"hi"},
                {"role":"assistant","content":null,"tool_calls":[
                    {"id":"c1","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}},
                    {"id":"c2","type":"function","function":{"name":"f","arguments":"{}"}},
                ]},
                {"role":"tool","tool_call_id":"c1","content":"one"},
                {"role":"assistant","content":"done"},
            ],
        })
    );
}

#[test]
fn context_length_and_keep_alive_are_the_same_in_every_request_of_a_provider() {
    let provider = Provider {
        num_ctx: Some(8192),
        keep_alive: Some("10m".into()),
        think: Think::Off,
        ..provider(Dialect::Ollama)
    };
    for request in [conversation(), asking(vec![])] {
        let body = ollama::encode(&provider, &request);
        assert_eq!(body["options"], json!({"num_ctx":8192}));
        assert_eq!(body["keep_alive"], json!("10m"));
        assert_eq!(body["think"], json!(false));
    }
}

#[test]
fn keep_alive_in_seconds_or_for_ever_is_a_number_as_ollama_wants_it() {
    for (time, want) in [
        ("-1", json!(-1)),
        (" 300 ", json!(300)),
        ("1h30m", json!("1h30m")),
    ] {
        let provider = Provider {
            keep_alive: Some(time.into()),
            ..provider(Dialect::Ollama)
        };
        assert_eq!(
            ollama::encode(&provider, &asking(vec![]))["keep_alive"],
            want
        );
    }
}

#[test]
fn nothing_is_said_about_thinking_unless_the_user_did() {
    for (think, plain, kwargs) in [
        (Think::ServerDefault, Value::Null, Value::Null),
        (Think::On, json!(true), json!({"enable_thinking":true})),
        (Think::Off, json!(false), json!({"enable_thinking":false})),
    ] {
        let provider = Provider {
            think,
            ..provider(Dialect::Ollama)
        };
        let request = asking(vec![]);
        assert_eq!(ollama::encode(&provider, &request)["think"], plain);
        let body = openai::encode(&provider, &request, AskUsage::No);
        assert_eq!(body["chat_template_kwargs"], kwargs);
        assert_eq!(body.get("stream_options"), None);
    }
}
