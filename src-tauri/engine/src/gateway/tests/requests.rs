//! What goes out: the body of a request in both dialects.

use protocol::{Decimal, Dialect, ModelOptions, Provider, ProviderId, Think};
use serde_json::{Value, json};

use crate::gateway::{
    CallMade, Images, Message, ModelRequest, ToolSpec, anthropic, ollama,
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
        files: Vec::new(),
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
        options: ModelOptions::default(),
        images: Images::default(),
    }
}

fn with(options: ModelOptions) -> ModelRequest {
    ModelRequest {
        options,
        ..asking(vec![])
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
            Message::User {
                text: "hi".into(),
                images: Vec::new(),
            },
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
        ollama::encode(&conversation()),
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
        openai::encode(&conversation(), AskUsage::Yes),
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
        let body = ollama::encode(&ModelRequest {
            options: ModelOptions::of_server(&provider),
            ..request
        });
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
        let options = ModelOptions {
            keep_alive: Some(time.into()),
            ..ModelOptions::default()
        };
        assert_eq!(ollama::encode(&with(options))["keep_alive"], want);
    }
}

#[test]
fn nothing_is_said_about_thinking_unless_the_user_did() {
    let on = || json!({"enable_thinking":true});
    for (think, plain, kwargs, effort) in [
        (Think::ServerDefault, Value::Null, Value::Null, Value::Null),
        (Think::On, json!(true), on(), Value::Null),
        (
            Think::Off,
            json!(false),
            json!({"enable_thinking":false}),
            Value::Null,
        ),
        (Think::Low, json!("low"), on(), json!("low")),
        (Think::Medium, json!("medium"), on(), json!("medium")),
        (Think::High, json!("high"), on(), json!("high")),
    ] {
        let request = with(ModelOptions {
            think: Some(think),
            ..ModelOptions::default()
        });
        assert_eq!(ollama::encode(&request)["think"], plain);
        let body = openai::encode(&request, AskUsage::No);
        assert_eq!(body["chat_template_kwargs"], kwargs);
        assert_eq!(body["reasoning_effort"], effort);
        assert_eq!(body.get("stream_options"), None);
    }
}

#[test]
fn every_dialect_is_told_of_the_options_it_knows_and_of_no_other() {
    let options = ModelOptions {
        num_ctx: Some(8192),
        keep_alive: Some("10m".into()),
        temperature: Decimal::nearest(1.2),
        top_p: Decimal::nearest(0.9),
        top_k: Some(40),
        min_p: Decimal::nearest(0.05),
        repeat_penalty: Decimal::nearest(1.1),
        seed: Some(-7),
        num_predict: Some(512),
        stop: vec!["END".into()],
        ..ModelOptions::default()
    };
    let request = with(options);
    assert_eq!(
        ollama::encode(&request)["options"],
        json!({
            "num_ctx": 8192, "temperature": 1.2, "top_p": 0.9, "top_k": 40, "min_p": 0.05,
            "repeat_penalty": 1.1, "seed": -7, "num_predict": 512, "stop": ["END"],
        })
    );
    assert_eq!(
        ollama::encode(&with(ModelOptions::default())).get("options"),
        None
    );

    let mut body = openai::encode(&request, AskUsage::No);
    for (name, value) in [
        ("temperature", json!(1.2)),
        ("top_p", json!(0.9)),
        ("top_k", json!(40)),
        ("min_p", json!(0.05)),
        ("repeat_penalty", json!(1.1)),
        ("seed", json!(-7)),
        ("max_tokens", json!(512)),
        ("stop", json!(["END"])),
    ] {
        assert_eq!(body[name].take(), value, "{name}");
    }
    assert_eq!(body.get("options"), None);
    assert_eq!(body.get("keep_alive"), None);

    let body = anthropic::encode(&request, anthropic::Ways::default());
    assert_eq!(body["temperature"], json!(1.0), "its scale ends there");
    assert_eq!(body["max_tokens"], json!(512));
    assert_eq!(body["stop_sequences"], json!(["END"]));
    assert_eq!(body["top_k"], json!(40));
    for name in ["seed", "min_p", "repeat_penalty", "options", "keep_alive"] {
        assert_eq!(body.get(name), None, "{name}");
    }
}
