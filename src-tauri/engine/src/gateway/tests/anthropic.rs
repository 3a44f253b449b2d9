//! Anthropic's messages API: what goes out, and what every shape of an answer comes to.

use protocol::{Dialect, FinishReason, Think};
use serde_json::{Value, json};

use crate::gateway::{
    CallMade, Images, Message, ModelEvent, ModelRequest, ToolSpec,
    anthropic::{Ways, encode},
    fault::Fault,
};

use super::{Decoded, decode};

fn user(text: &str) -> Message {
    Message::User {
        text: text.into(),
        images: Vec::new(),
    }
}

fn call(call_id: &str) -> CallMade {
    CallMade {
        call_id: call_id.into(),
        name: "list.files".into(),
        arguments: "{\"x\":1}".into(),
    }
}

fn said(text: &str, calls: Vec<CallMade>) -> Message {
    Message::Assistant {
        text: text.into(),
        calls,
        verbatim: None,
    }
}

fn result(call_id: &str, text: &str) -> Message {
    Message::ToolResult {
        call_id: call_id.into(),
        name: "list.files".into(),
        text: text.into(),
    }
}

fn asking(messages: Vec<Message>) -> ModelRequest {
    ModelRequest {
        model: "m".into(),
        messages,
        tools: vec![],
        options: protocol::ModelOptions::default(),
        images: Images::default(),
    }
}

fn body(request: &ModelRequest) -> Value {
    encode(request, Ways::default())
}

fn offering(request: ModelRequest) -> ModelRequest {
    ModelRequest {
        tools: vec![ToolSpec {
            name: "list.files".into(),
            description: "lists".into(),
            parameters: "{\"properties\":{}}".into(),
        }],
        ..request
    }
}

#[test]
fn a_conversation_is_told_in_blocks_that_take_turns_and_is_marked_for_the_cache() {
    let request = offering(asking(vec![
        Message::System {
            text: "be brief".into(),
        },
        user("hi"),
        said("", vec![]),
        user("are you there?"),
        said("Looking.", vec![call("c1"), call("c2")]),
        result("c1", "one"),
        result("c2", ""),
        user("and now?"),
    ]));
    let called = |id: &str| json!({"type":"tool_use","id":id,"name":"list_files","input":{"x":1}});
    assert_eq!(
        body(&request),
        json!({
            "model": "m",
            "max_tokens": 32_000,
            "stream": true,
            "system": [{"type":"text","text":"be brief","cache_control":{"type":"ephemeral"}}],
            "tools": [{
                "name": "list_files",
                "description": "lists",
                "input_schema": {"type":"object","properties":{}},
            }],
            "messages": [
                {"role":"user","content":[
                    {"type":"text","text":"hi"},
                    {"type":"text","text":"are you there?"},
                ]},
                {"role":"assistant","content":[
                    {"type":"text","text":"Looking."},
                    called("c1"),
                    called("c2"),
                ]},
                {"role":"user","content":[
                    {"type":"tool_result","tool_use_id":"c1","content":"one"},
                    {"type":"tool_result","tool_use_id":"c2","content":""},
                    {"type":"text","text":"and now?","cache_control":{"type":"ephemeral"}},
                ]},
            ],
        })
    );
}

#[test]
fn blocks_that_a_server_signed_go_back_as_they_came_with_our_names_for_their_calls() {
    let thought = json!({"type":"thinking","thinking":"Hm.","signature":"s1"});
    let words = json!({"type":"text","text":"Looking."});
    let blocks = json!([thought, words, {"type":"tool_use"}, {"type":"tool_use"}]).to_string();
    let told = |calls: Vec<CallMade>| {
        let answer = Message::Assistant {
            text: "Looking.".into(),
            calls,
            verbatim: Some(blocks.clone()),
        };
        body(&asking(vec![user("hi"), answer]))["messages"][1]["content"].clone()
    };
    let used = |id: &str| json!({"type":"tool_use","id":id,"name":"list_files","input":{"x":1}});
    assert_eq!(
        told(vec![call("c1"), call("c2")]),
        json!([thought, words, used("c1"), used("c2")])
    );
    assert_eq!(
        told(vec![call("c1")]),
        json!([thought, words, used("c1")]),
        "a part of the answer still begins with what led to it"
    );
}

#[test]
fn calls_of_a_conversation_are_named_as_tools_even_where_none_may_be_called() {
    let request = asking(vec![
        user("hi"),
        said("", vec![call("c1"), call("c2")]),
        result("c1", "one"),
        result("c2", "two"),
    ]);
    let body = body(&request);
    assert_eq!(
        body["tools"],
        json!([{"name":"list_files","input_schema":{"type":"object"}}])
    );
    assert_eq!(body["tool_choice"], json!({"type":"none"}));
    let plain = super::anthropic::body(&asking(vec![user("hi")]));
    assert_eq!(plain.get("tools"), None);
    assert_eq!(plain.get("system"), None);
}

#[test]
fn a_conversation_that_the_model_began_gets_a_user_to_begin_it() {
    let body = body(&asking(vec![said("Hello.", vec![]), user("hi")]));
    let roles: Vec<&str> = body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["user", "assistant", "user"]);
}

#[test]
fn thinking_is_asked_for_in_the_way_that_the_model_takes() {
    let refused = |words: &str| {
        protocol::Failure::new(protocol::FailureCode::BadRequest, "no").with_detail(words)
    };
    let thinking = |think, ways| {
        let mut request = asking(vec![user("hi")]);
        request.options.think = Some(think);
        encode(&request, ways)["thinking"].clone()
    };
    let ways = Ways::default();
    assert_eq!(thinking(Think::ServerDefault, ways), Value::Null);
    assert_eq!(thinking(Think::Off, ways), json!({"type":"disabled"}));
    assert_eq!(
        thinking(Think::On, ways),
        json!({"type":"adaptive","display":"summarized"})
    );
    let ways = ways.after(&refused("thinking: not this")).unwrap();
    assert_eq!(
        thinking(Think::On, ways),
        json!({"type":"enabled","budget_tokens":16_000})
    );
    assert_eq!(
        thinking(Think::Low, ways),
        json!({"type":"enabled","budget_tokens":4_000})
    );
    let ways = ways.after(&refused("max_tokens: 32000 > 4096")).unwrap();
    assert_eq!(
        thinking(Think::On, ways),
        json!({"type":"enabled","budget_tokens":2048})
    );
    let ways = ways.after(&refused("thinking: not that either")).unwrap();
    assert_eq!(thinking(Think::On, ways), Value::Null);
    assert_eq!(thinking(Think::Off, ways), Value::Null);
}

/// These events, as the server writes them.
fn stream(events: &[Value]) -> String {
    events
        .iter()
        .map(|event| {
            format!(
                "event: {}\ndata: {event}\n\n",
                event["type"].as_str().unwrap()
            )
        })
        .collect()
}

fn read(body: &str) -> Decoded {
    let whole = decode(Dialect::Anthropic, [body.as_bytes()]);
    for at in 0..=body.len() {
        let (head, tail) = body.as_bytes().split_at(at);
        assert_eq!(
            decode(Dialect::Anthropic, [head, tail]),
            whole,
            "{at}: {body}"
        );
    }
    let bytes = decode(Dialect::Anthropic, body.as_bytes().chunks(1));
    assert_eq!(bytes, whole, "byte by byte: {body}");
    whole
}

fn begins() -> Value {
    json!({"type":"message_start","message":{"role":"assistant","content":[],"usage":{
        "input_tokens":10,"cache_read_input_tokens":100,"cache_creation_input_tokens":20,"output_tokens":1}}})
}

fn start(index: u64, block: Value) -> Value {
    json!({"type":"content_block_start","index":index,"content_block":block})
}

fn delta(index: u64, delta: Value) -> Value {
    json!({"type":"content_block_delta","index":index,"delta":delta})
}

fn stop(index: u64) -> Value {
    json!({"type":"content_block_stop","index":index})
}

fn because(reason: &str) -> Value {
    json!({"type":"message_delta","delta":{"stop_reason":reason},"usage":{"output_tokens":42}})
}

fn over() -> Value {
    json!({"type":"message_stop"})
}

fn text(index: u64, text: &str) -> [Value; 3] {
    [
        start(index, json!({"type":"text","text":""})),
        delta(index, json!({"type":"text_delta","text":text})),
        stop(index),
    ]
}

/// A call whose arguments come in these pieces.
fn tool(index: u64, name: &str, pieces: &[&str]) -> Vec<Value> {
    let block = json!({"type":"tool_use","id":format!("toolu_{index}"),"name":name,"input":{}});
    let mut events = vec![start(index, block)];
    events.extend(pieces.iter().map(|piece| {
        delta(
            index,
            json!({"type":"input_json_delta","partial_json":piece}),
        )
    }));
    events.push(stop(index));
    events
}

fn thought(index: u64, thinking: &str, signature: &str) -> [Value; 4] {
    [
        start(
            index,
            json!({"type":"thinking","thinking":"","signature":""}),
        ),
        delta(index, json!({"type":"thinking_delta","thinking":thinking})),
        delta(
            index,
            json!({"type":"signature_delta","signature":signature}),
        ),
        stop(index),
    ]
}

fn verbatim(decoded: &Decoded) -> Option<Value> {
    decoded.events.iter().find_map(|event| match event {
        ModelEvent::Verbatim { blocks } => serde_json::from_str(blocks).ok(),
        _ => None,
    })
}

#[test]
fn thoughts_words_and_calls_are_told_apart_and_the_signed_blocks_are_kept() {
    let events = [
        vec![begins(), json!({"type":"ping"})],
        thought(0, "Hm.", "s1").to_vec(),
        vec![
            start(1, json!({"type":"redacted_thinking","data":"xyz"})),
            stop(1),
        ],
        text(2, "Looking. ").to_vec(),
        tool(3, "f", &["", "{\"x\"", ":1}"]),
        tool(4, "g", &[""]),
        vec![because("tool_use"), over()],
    ]
    .concat();
    let got = read(&stream(&events));
    assert_eq!(got.reasoning(), "Hm.");
    assert_eq!(got.answer(), "Looking. ");
    assert_eq!(got.calls(), [("f", "{\"x\":1}"), ("g", "{}")]);
    assert_eq!(
        verbatim(&got),
        Some(json!([
            {"type":"thinking","thinking":"Hm.","signature":"s1"},
            {"type":"redacted_thinking","data":"xyz"},
            {"type":"text","text":"Looking. "},
            {"type":"tool_use"},
            {"type":"tool_use"},
        ]))
    );
    let end = got.end.unwrap();
    assert_eq!(end.finish, FinishReason::ToolCalls);
    assert_eq!(end.usage.prompt_tokens, Some(130), "the cache's part too");
    assert_eq!(end.usage.cached_tokens, Some(100));
    assert_eq!(end.usage.cache_written_tokens, Some(20));
    assert_eq!(end.usage.completion_tokens, Some(42));
}

#[test]
fn nothing_is_kept_that_no_server_asks_back() {
    let unsigned = [
        thought(0, "Hm.", "").to_vec(),
        tool(1, "f", &["{}"]),
        vec![because("tool_use"), over()],
    ];
    assert_eq!(verbatim(&read(&stream(&unsigned.concat()))), None);
    let wordy = [
        thought(0, "Hm.", "s").to_vec(),
        text(1, "Hello.").to_vec(),
        vec![because("end_turn"), over()],
    ];
    assert_eq!(verbatim(&read(&stream(&wordy.concat()))), None);
}

#[test]
fn an_answer_ends_by_its_reason_or_its_last_event_and_by_nothing_else() {
    let said = [vec![begins()], text(0, "a").to_vec()].concat();
    let ends = |last: &[Value]| {
        let body = stream(&[said.as_slice(), last].concat());
        read(&body).end.map(|end| end.finish)
    };
    for (reason, want) in [
        ("end_turn", FinishReason::Stop),
        ("stop_sequence", FinishReason::Stop),
        ("max_tokens", FinishReason::Length),
        ("model_context_window_exceeded", FinishReason::Length),
        ("refusal", FinishReason::Filter),
        ("pause_turn", FinishReason::Unknown),
    ] {
        assert_eq!(ends(&[because(reason), over()]), Ok(want), "{reason}");
        assert_eq!(ends(&[because(reason)]), Ok(want), "{reason}, then a close");
    }
    assert_eq!(ends(&[over()]), Ok(FinishReason::Unknown));
    assert_eq!(ends(&[]), Err(Fault::Truncated));
    let open = json!({"type":"message_delta","delta":{"stop_reason":null}});
    assert_eq!(ends(&[open]), Err(Fault::Truncated));
}

#[test]
fn a_call_that_was_cut_is_cut_and_one_without_an_end_of_its_own_is_whole() {
    let cut = tool(0, "f", &["{\"path\":\"a"]);
    let begun = &cut[..2];
    let got = read(&stream(begun));
    assert_eq!(got.calls(), []);
    assert_eq!(got.cut_calls(), [("f", "{\"path\":\"a")]);
    let got = read(&stream(&[begun, &[because("max_tokens"), over()]].concat()));
    assert_eq!(got.calls(), []);
    assert_eq!(got.cut_calls().len(), 1);
    let unended = [&tool(0, "f", &[])[..1], &[because("tool_use"), over()]].concat();
    assert_eq!(read(&stream(&unended)).calls(), [("f", "{}")]);
    let got = read(&stream(&[begins(), because("tool_use"), over()]));
    assert_eq!(got.end, Err(Fault::CallsMissing));
}

#[test]
fn servers_that_copy_it_loosely_are_understood() {
    // All of the arguments with the beginning, no indexes, no `event:` lines, no blank lines.
    let whole = json!({"type":"content_block_start","content_block":
        {"type":"tool_use","id":"a","name":"f","input":{"x":1}}});
    let body = format!(
        "data:{whole}\ndata:{}\ndata:{}\ndata: [DONE]\n",
        json!({"type":"content_block_stop"}),
        because("tool_use")
    );
    assert_eq!(read(&body).calls(), [("f", "{\"x\":1}")]);
    // An object where pieces of text are usual.
    let object = delta(0, json!({"type":"input_json_delta","partial_json":{"x":1}}));
    let events = [&tool(0, "f", &[])[..1], &[object, stop(0), over()]].concat();
    assert_eq!(read(&stream(&events)).calls(), [("f", "{\"x\":1}")]);
    // Index 0 for every block.
    let events = [
        tool(0, "f", &["{\"x\"", ":1}"]),
        tool(0, "g", &["{\"y\":2}"]),
        vec![over()],
    ]
    .concat();
    let doubled = stream(&events).replacen("toolu_0", "toolu_9", 1);
    assert_eq!(
        read(&doubled).calls(),
        [("f", "{\"x\":1}"), ("g", "{\"y\":2}")]
    );
    // Blocks that are not for us.
    let foreign = [
        vec![start(
            0,
            json!({"type":"server_tool_use","id":"s","name":"web_search","input":{}}),
        )],
        vec![
            delta(
                0,
                json!({"type":"input_json_delta","partial_json":"{\"q\":1}"}),
            ),
            stop(0),
        ],
        vec![
            start(1, json!({"type":"web_search_tool_result","content":[]})),
            stop(1),
        ],
        text(2, "Found.").to_vec(),
        vec![
            json!({"type":"to_be_invented"}),
            because("end_turn"),
            over(),
        ],
    ]
    .concat();
    let got = read(&stream(&foreign));
    assert_eq!((got.answer(), got.calls()), ("Found.".to_owned(), vec![]));
    // A plain document.
    let document = json!({"type":"message","content":[
        {"type":"thinking","thinking":"Hm.","signature":"s"},
        {"type":"text","text":"a"},
        {"type":"tool_use","id":"t","name":"f","input":{"x":1}},
    ],"stop_reason":"tool_use","usage":{"input_tokens":3,"output_tokens":4}});
    let got = read(&document.to_string());
    assert_eq!((got.reasoning(), got.answer()), ("Hm.".into(), "a".into()));
    assert_eq!(got.calls(), [("f", "{\"x\":1}")]);
    assert_eq!(got.end.unwrap().usage.prompt_tokens, Some(3));
}

#[test]
fn what_is_no_answer_is_named() {
    let error = json!({"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}});
    let begun = [vec![begins()], text(0, "a").to_vec()].concat();
    for before in [&[][..], &begun] {
        match read(&(stream(before) + &stream(std::slice::from_ref(&error)))).end {
            Err(Fault::Said(said)) => assert_eq!(said.kind, "overloaded_error"),
            other => panic!("{other:?}"),
        }
    }
    for other in [
        "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: [DONE]\n\n",
        "{\"message\":{\"content\":\"a\"},\"done\":true}\n",
        "<html>login</html>",
        "{\"hello\":1}",
    ] {
        let end = read(other).end;
        assert!(matches!(end, Err(Fault::Unreadable(_))), "{other}: {end:?}");
    }
    assert_eq!(read("").end, Err(Fault::Truncated));
    assert_eq!(read(": ping\n\n").end, Err(Fault::Truncated));
    assert_eq!(read(&stream(&[begins(), over()])).end, Err(Fault::Empty));
}
