use super::*;
use serde_json::json;

/// Name, arguments and id of each call; none of them may be unclear.
fn gather(entries: Value) -> Vec<(String, String, Option<String>)> {
    let mut calls = Calls::default();
    for entry in entries.as_array().unwrap() {
        calls.next_delta();
        calls.add(entry).unwrap();
    }
    calls
        .take()
        .into_iter()
        .map(|event| match event {
            ModelEvent::Call {
                name,
                arguments,
                call_id,
                unclear: None,
            } => (name, arguments, call_id),
            other => panic!("not a call: {other:?}"),
        })
        .collect()
}

fn call(name: &str, arguments: &str, id: Option<&str>) -> (String, String, Option<String>) {
    (name.into(), arguments.into(), id.map(String::from))
}

#[test]
fn pieces_by_index_as_openai_sends_them() {
    assert_eq!(
        gather(json!([
            {"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}},
            {"index":0,"function":{"arguments":"{\"x\""}},
            {"index":0,"function":{"arguments":":1}"}},
            {"index":1,"id":"b","type":"function","function":{"name":"g","arguments":"{"}},
            {"index":1,"function":{"arguments":"}"}},
        ])),
        vec![
            call("f", "{\"x\":1}", Some("a")),
            call("g", "{}", Some("b"))
        ]
    );
}

#[test]
fn a_missing_index_is_made_up_for_by_ids_and_missing_ids_by_names() {
    assert_eq!(
        gather(json!([
            {"id":"a","function":{"name":"f","arguments":"{\"x\""}},
            {"function":{"arguments":":1}"}},
            {"id":"b","function":{"name":"f","arguments":"{}"}},
        ])),
        vec![
            call("f", "{\"x\":1}", Some("a")),
            call("f", "{}", Some("b"))
        ]
    );
    assert_eq!(
        gather(json!([
            {"function":{"name":"f","arguments":"{\"x\""}},
            {"function":{"arguments":":1}"}},
            {"function":{"name":"f","arguments":"{\"x\":2}"}},
            {"function":{"name":"g","arguments":"{}"}},
        ])),
        vec![
            call("f", "{\"x\":1}", None),
            call("f", "{\"x\":2}", None),
            call("g", "{}", None)
        ]
    );
    assert_eq!(
        gather(json!([
            {"id":"a","function":{"name":"f","arguments":"{"}},
            {"id":"b","function":{"name":"g","arguments":"{"}},
            {"id":"a","function":{"arguments":"}"}},
            {"id":"b","function":{"arguments":"}"}},
        ])),
        vec![call("f", "{}", Some("a")), call("g", "{}", Some("b"))],
        "interleaved"
    );
}

#[test]
fn index_zero_for_every_call_does_not_fuse_them() {
    assert_eq!(
        gather(json!([
            {"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}},
            {"index":0,"id":"b","function":{"name":"f","arguments":"{\"x\":2}"}},
        ])),
        vec![
            call("f", "{\"x\":1}", Some("a")),
            call("f", "{\"x\":2}", Some("b"))
        ]
    );
    assert_eq!(
        gather(json!([
            {"index":0,"function":{"name":"f","arguments":"{\"x\":1}"}},
            {"index":0,"function":{"name":"f","arguments":"{\"x\":2}"}},
        ])),
        vec![call("f", "{\"x\":1}", None), call("f", "{\"x\":2}", None)]
    );
}

#[test]
fn arguments_may_be_an_object_nothing_null_or_a_number() {
    for (arguments, want) in [
        (json!({"city":"Paris"}), "{\"city\":\"Paris\"}"),
        (json!(""), ""),
        (json!(null), ""),
        (json!("{}"), "{}"),
        (json!([]), "[]"),
        (json!(7), "7"),
        (json!("{\"a\":1}mul{\"b\":2}"), "{\"a\":1}mul{\"b\":2}"),
        (json!("{\"a\":1}{\"a\":1}"), "{\"a\":1}{\"a\":1}"),
        (json!("\"{\\\"a\\\":1}\""), "{\"a\":1}"),
        (json!("\"words\""), "\"words\""),
    ] {
        assert_eq!(
            gather(json!([{"function":{"name":"f","arguments":arguments}}])),
            vec![call("f", want, None)]
        );
    }
    assert_eq!(
        gather(json!([{"function":{"name":"f"}}])),
        vec![call("f", "", None)]
    );
}

#[test]
fn pieces_that_each_repeat_all_before_them_are_the_last_of_them() {
    let grow = |pieces: &[&str]| {
        let entries: Vec<Value> = pieces
            .iter()
            .map(|piece| json!({"index":0,"id":"a","function":{"name":"f","arguments":piece}}))
            .collect();
        gather(json!(entries)).pop().unwrap().1
    };
    assert_eq!(grow(&["{", "{\"a\":", "{\"a\":1}"]), "{\"a\":1}");
    assert_eq!(grow(&["", "{\"a\"", "{\"a\":{}}"]), "{\"a\":{}}");
    // What can be read as it was written is.
    assert_eq!(grow(&["{", "\"a\":1}"]), "{\"a\":1}");
    assert_eq!(grow(&["{\"a\":1", "1}"]), "{\"a\":11}");
    // Cut, or another piece in between: nobody knows.
    assert_eq!(grow(&["{", "{\"a\":"]), "{{\"a\":");
    assert_eq!(grow(&["{", "x", "{\"a\":1}"]), "{x{\"a\":1}");
}

#[test]
fn names_may_be_repeated_and_the_whole_call_may_come_twice() {
    assert_eq!(
        gather(json!([
            {"index":0,"id":"a","function":{"name":"f","arguments":"{"}},
            {"index":0,"id":"a","function":{"name":"f","arguments":"}"}},
            {"index":0,"id":"a","function":{"name":"f","arguments":"{}"}},
        ])),
        vec![call("f", "{}", Some("a"))]
    );
    assert_eq!(
        gather(json!([
            {"index":0,"function":{"name":"f","arguments":""}},
            {"index":0,"id":"a","function":{"arguments":"{}"}},
        ])),
        vec![call("f", "{}", Some("a"))],
        "the id comes late"
    );
}

#[test]
fn things_that_are_no_calls_make_none_and_more_than_we_hold_is_refused() {
    assert_eq!(gather(json!([null, {}, 3, "x", {"index":0}, []])), vec![]);
    let mut calls = Calls::default();
    let mut added = Ok(None);
    for n in 0..=CALLS_MAX {
        added = calls.add(&json!({"index":n,"id":n.to_string(),"function":{"name":"f"}}));
    }
    assert_eq!(added, Err(TooMuch));
}

/// Name and arguments of each call, with a question mark before the name where it must not run.
fn told(deltas: &Value) -> Vec<String> {
    let mut calls = Calls::default();
    for delta in deltas.as_array().unwrap() {
        calls.next_delta();
        for entry in delta.as_array().unwrap() {
            calls.add(entry).unwrap();
        }
    }
    shown(calls.take())
}

fn shown(calls: Vec<ModelEvent>) -> Vec<String> {
    calls
        .into_iter()
        .map(|event| match event {
            ModelEvent::Call {
                name,
                arguments,
                unclear,
                ..
            } => {
                let doubt = if unclear.is_some() { "?" } else { "" };
                format!("{doubt}{name}{arguments}")
            }
            other => panic!("not a call: {other:?}"),
        })
        .collect()
}

#[test]
fn calls_that_can_be_told_apart_are_each_their_own() {
    let f = |arguments: &str| json!({"function":{"name":"f","arguments":arguments}});
    for (what, deltas, want) in [
        (
            "identical whole calls in one list",
            json!([[f("{\"x\":1}"), f("{\"x\":1}")]]),
            vec!["f{\"x\":1}", "f{\"x\":1}"],
        ),
        (
            "identical whole calls one by one",
            json!([[f("{\"x\":1}")], [f("{\"x\":1}")]]),
            vec!["f{\"x\":1}", "f{\"x\":1}"],
        ),
        (
            "identical whole calls in one list, all numbered 0",
            json!([[
                {"index":0,"function":{"name":"f","arguments":"{}"}},
                {"index":0,"function":{"name":"f","arguments":"{}"}},
            ]]),
            vec!["f{}", "f{}"],
        ),
        (
            "identical calls without arguments in one list",
            json!([[f(""), f("")]]),
            vec!["f", "f"],
        ),
        (
            "one id under two indexes",
            json!([
                [{"index":0,"id":"c","function":{"name":"f","arguments":"{\"x\""}}],
                [{"index":1,"id":"c","function":{"name":"g","arguments":"{\"y\""}}],
                [{"index":0,"id":"c","function":{"arguments":":1}"}}],
                [{"index":1,"function":{"arguments":":2}"}}],
            ]),
            vec!["f{\"x\":1}", "g{\"y\":2}"],
        ),
        (
            "one id for every call, no index",
            json!([
                [{"id":"c","function":{"name":"f","arguments":"{}"}}],
                [{"id":"c","function":{"name":"g","arguments":"{}"}}],
            ]),
            vec!["f{}", "g{}"],
        ),
        (
            "arguments as an object, in the first and only piece",
            json!([[{"index":0,"id":"c","function":{"name":"f","arguments":{"x":1}}}]]),
            vec!["f{\"x\":1}"],
        ),
        (
            "the name in every delta",
            json!([
                [{"index":0,"function":{"name":"f","arguments":""}}],
                [{"index":0,"function":{"name":"f","arguments":"{\"x\""}}],
                [{"index":0,"function":{"name":"f","arguments":":1}"}}],
                [{"index":0,"function":{"name":"f","arguments":""}}],
            ]),
            vec!["f{\"x\":1}"],
        ),
        (
            "the name in every delta, and nothing else to go by",
            json!([[f("{\"x\"")], [f(":1}")], [f("{\"x\":2}")]]),
            vec!["f{\"x\":1}", "f{\"x\":2}"],
        ),
        (
            "the id in the last delta only",
            json!([
                [{"index":0,"function":{"name":"f","arguments":"{\"x\""}}],
                [{"index":0,"function":{"arguments":":1}"}}],
                [{"index":0,"id":"c"}],
            ]),
            vec!["f{\"x\":1}"],
        ),
        (
            "indexes that begin at 1",
            json!([
                [{"index":1,"id":"a","function":{"name":"f","arguments":"{"}}],
                [{"index":2,"id":"b","function":{"name":"g","arguments":"{"}}],
                [{"index":1,"function":{"arguments":"}"}}, {"index":2,"function":{"arguments":"}"}}],
            ]),
            vec!["f{}", "g{}"],
        ),
        (
            "the legacy form",
            json!([
                [{"name":"f","arguments":""}],
                [{"arguments":"{\"x\""}],
                [{"arguments":":1}"}],
            ]),
            vec!["f{\"x\":1}"],
        ),
        (
            "brackets within strings end nothing",
            json!([
                [{"index":0,"function":{"name":"f","arguments":"{\"x\":\"}\\\"}"}}],
                [{"index":0,"function":{"arguments":"\"}"}}],
            ]),
            vec!["f{\"x\":\"}\\\"}\"}"],
        ),
    ] {
        assert_eq!(told(&deltas), want, "{what}");
    }
}

#[test]
fn a_piece_that_may_belong_to_several_calls_is_glued_to_none_and_none_of_them_runs() {
    for (what, deltas, want) in [
        (
            "two names under one index",
            json!([
                [{"index":0,"id":"a","function":{"name":"get_"}}],
                [{"index":0,"function":{"name":"weather"}}],
                [{"index":0,"function":{"arguments":"{}"}}],
            ]),
            vec!["?get_", "?weather", "?unnamed{}"],
        ),
        (
            "a piece without any mark after two begun calls",
            json!([
                [{"id":"a","function":{"name":"f","arguments":"{"}}],
                [{"id":"b","function":{"name":"g","arguments":"{"}}],
                [{"function":{"arguments":"}"}}],
                [{"id":"c","function":{"name":"h","arguments":"{}"}}],
            ]),
            vec!["?f{", "?g{", "h{}", "?unnamed}"],
        ),
        (
            "interleaved calls, all numbered 0",
            json!([
                [{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}],
                [{"index":0,"id":"b","function":{"name":"g","arguments":"{"}}],
                [{"index":0,"function":{"arguments":"}"}}],
                [{"index":0,"id":"a","function":{"arguments":"}"}}],
            ]),
            vec!["?f{}", "?g{", "?unnamed}"],
        ),
        (
            "an id of one call and the number of none",
            json!([
                [{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}],
                [{"index":1,"id":"a","function":{"arguments":"}"}}],
            ]),
            vec!["?f{", "?unnamed}"],
        ),
        (
            "a number of one call and a new id",
            json!([
                [{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}],
                [{"index":0,"id":"b","function":{"arguments":"}"}}],
            ]),
            vec!["?f{", "?unnamed}"],
        ),
        (
            "the same numbered call again, later and without an id",
            json!([
                [{"index":0,"function":{"name":"f","arguments":"{\"x\":1}"}}],
                [{"index":0,"function":{"name":"f","arguments":"{\"x\":1}"}}],
            ]),
            vec!["f{\"x\":1}", "?f{\"x\":1}"],
        ),
        (
            "a name again with arguments that are whole by themselves, in the middle of others",
            json!([
                [{"index":0,"function":{"name":"f","arguments":"{\"a\":"}}],
                [{"index":0,"function":{"name":"f","arguments":"{}"}}],
                [{"index":0,"function":{"name":"f","arguments":"}"}}],
            ]),
            vec!["?f{\"a\":", "?f{}", "f}"],
        ),
        (
            "arguments without any name",
            json!([[{"index":0,"function":{"arguments":"{}"}}]]),
            vec!["?unnamed{}"],
        ),
    ] {
        assert_eq!(told(&deltas), want, "{what}");
    }
}

#[test]
fn a_message_that_repeats_the_calls_adds_nothing_and_one_that_completes_them_does() {
    let f = |arguments: &str| json!({"function":{"name":"f","arguments":arguments}});
    use Restated::{AfterDeltas, AmongMessages};
    for (what, streamed, message, how, want) in [
        (
            "again",
            json!([f("{\"x\":1}")]),
            json!([f("{ \"x\": 1 }")]),
            AfterDeltas,
            vec!["f{\"x\":1}"],
        ),
        (
            "two alike",
            json!([f("{}"), f("{}")]),
            json!([f("{}"), f("{}")]),
            AfterDeltas,
            vec!["f{}", "f{}"],
        ),
        (
            "one more",
            json!([f("{}")]),
            json!([f("{}"), {"function":{"name":"g","arguments":"{}"}}]),
            AfterDeltas,
            vec!["f{}", "g{}"],
        ),
        (
            "completed",
            json!([f("{\"x\"")]),
            json!([f("{\"x\":1}")]),
            AfterDeltas,
            vec!["f{\"x\":1}"],
        ),
        (
            "contradicted",
            json!([f("{\"x\":1}")]),
            json!([f("{\"x\":2}")]),
            AfterDeltas,
            vec!["?f{\"x\":1}", "?f{\"x\":2}"],
        ),
        (
            "the only one",
            json!([]),
            json!([f("{}")]),
            AmongMessages,
            vec!["f{}"],
        ),
        (
            "others in each message",
            json!([f("{\"x\":1}")]),
            json!([f("{\"x\":2}")]),
            AmongMessages,
            vec!["f{\"x\":1}", "f{\"x\":2}"],
        ),
        (
            "the same in two messages",
            json!([f("{}")]),
            json!([f("{}")]),
            AmongMessages,
            vec!["f{}", "?f{}"],
        ),
    ] {
        let mut calls = Calls::default();
        for entry in streamed.as_array().unwrap() {
            calls.next_delta();
            calls.add(entry).unwrap();
        }
        calls.next_delta();
        calls.restate(message.as_array().unwrap(), how).unwrap();
        assert_eq!(shown(calls.take()), want, "{what}");
    }
}
