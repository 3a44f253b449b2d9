//! Shapes of answers that people met in the wild, by table; and any bytes at all.

use proptest::prelude::*;
use protocol::{Dialect, FinishReason, Part, Usage};
use serde_json::{Value, json};

use crate::gateway::{
    ModelEvent,
    fault::{Fault, Kind},
};

use super::{Decoded, cassette, decode};

fn openai(body: &str) -> Decoded {
    let whole = decode(Dialect::OpenAiChat, [body.as_bytes()]);
    let bytes = decode(Dialect::OpenAiChat, body.as_bytes().chunks(1));
    assert_eq!(whole, bytes, "byte by byte: {body}");
    whole
}

fn ollama(body: &str) -> Decoded {
    let whole = decode(Dialect::Ollama, [body.as_bytes()]);
    let bytes = decode(Dialect::Ollama, body.as_bytes().chunks(1));
    assert_eq!(whole, bytes, "byte by byte: {body}");
    whole
}

/// A stream of these deltas, ended by this reason and `[DONE]`.
fn stream(deltas: &[Value], finish: &str) -> String {
    let mut body = String::new();
    for delta in deltas {
        body += &format!(
            "data: {}\n\n",
            json!({"choices":[{"index":0,"delta":delta}]})
        );
    }
    body += &format!(
        "data: {}\n\ndata: [DONE]\n\n",
        json!({"choices":[{"index":0,"delta":{},"finish_reason":finish}]})
    );
    body
}

fn finish(decoded: &Decoded) -> Result<FinishReason, &Fault> {
    decoded.end.as_ref().map(|end| end.finish)
}

const A: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";

#[test]
fn four_endings_are_told_apart() {
    let stop = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    let null = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":null}]}\n\n";
    let done = "data: [DONE]\n\n";
    for (body, want) in [
        (A.to_owned(), Err(&Fault::Truncated)),
        (format!("{A}{done}"), Ok(FinishReason::Unknown)),
        (format!("{A}{null}{done}"), Ok(FinishReason::Unknown)),
        (format!("{A}{stop}"), Ok(FinishReason::Stop)),
        (format!("{A}{stop}{done}"), Ok(FinishReason::Stop)),
        (format!("{A}{null}"), Err(&Fault::Truncated)),
    ] {
        assert_eq!(finish(&openai(&body)), want, "{body}");
    }
}

#[test]
fn framing_is_read_as_loosely_as_it_is_written() {
    for body in [
        "data:{\"choices\":[{\"delta\":{\"content\":\" a\"}}]}\n\ndata:\n\ndata:[DONE]\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\" a\"}}]}\n\ndata: [DONE] \n\n",
        ": hello\n\nevent: message\nid: 1\ndata: {\"choices\":[{\"delta\":{\"content\":\" a\"}}]}\n\ndata: [DONE]",
        "data: {\"choices\":\ndata: [{\"delta\":{\"content\":\" a\"}}]}\n\ndata: [DONE]\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\" a\"}}]}\ndata: [DONE]\n",
        "\n\n  \ndata: {\"choices\":[{\"delta\":{\"content\":\" a\"}}]}\n\ndata: [DONE]\n\n",
        "{\"choices\":[{\"delta\":{\"content\":\" a\"}}]}\n{\"choices\":[]}\n[DONE]\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\" a\"}}]}\n\ndata: {}\n\ndata: {\"error\":null}\n\ndata: 3\n\ndata: [DONE]\n\n",
    ] {
        let got = openai(body);
        assert_eq!(got.answer(), " a", "{body}");
        assert_eq!(finish(&got), Ok(FinishReason::Unknown), "{body}");
    }
}

#[test]
fn an_error_inside_a_stream_is_an_error_in_every_form() {
    for (error, words) in [
        (
            "{\"error\":{\"message\":\"quota exceeded\",\"code\":429}}",
            "quota exceeded",
        ),
        (
            "{\"error\":{\"message\":\"m\",\"code\":429},\"choices\":[]}",
            "m",
        ),
        ("{\"error\":\"plain string\"}", "plain string"),
        (
            "{\"choices\":[{\"delta\":{},\"finish_reason\":\"error\",\"error\":{\"message\":\"m\"}}]}",
            "m",
        ),
    ] {
        for body in [
            format!("data: {error}\n\n"),
            format!("{A}data: {error}\n\n"),
            format!("{A}data: {error}\n\ndata: [DONE]\n\n"),
        ] {
            match openai(&body).end {
                Err(Fault::Said(said)) => assert_eq!(said.message, words, "{body}"),
                other => panic!("{body}: {other:?}"),
            }
        }
    }
    for body in [
        format!("{A}event: error\ndata: {{\"message\":\"m\"}}\n\n"),
        format!("{A}event: error\ndata: m\n\n"),
        format!("{A}error: {{\"code\":500,\"message\":\"m\"}}\n\n"),
        "{\"error\":{\"message\":\"m\"}}".to_owned(),
        "{\n  \"error\": {\n    \"message\": \"m\"\n  }\n}\n".to_owned(),
        "[{\"error\":{\"message\":\"m\"}}]".to_owned(),
    ] {
        match openai(&body).end {
            Err(Fault::Said(said)) => assert_eq!(said.message, "m", "{body}"),
            other => panic!("{body}: {other:?}"),
        }
    }
}

#[test]
fn what_comes_after_the_end_marker_changes_nothing() {
    let end =
        "data: {\"choices\":[{\"delta\":{\"content\":\"b\"},\"finish_reason\":\"stop\"}]}\n\n";
    for after in [
        "data: {\"error\":\"late\"}\n\n",
        "data: {\"choices\":[{\"message\":{\"content\":\"ab\"},\"finish_reason\":\"length\"}]}\n\n",
        "garbage\n",
        "data: {\"choi",
    ] {
        let got = openai(&format!("{A}{end}{after}"));
        assert_eq!(got.answer(), "ab", "{after}");
        assert_eq!(finish(&got), Ok(FinishReason::Stop), "{after}");
    }
    let done = "{\"message\":{\"content\":\"a\"},\"done\":true,\"done_reason\":\"stop\"}\n";
    for after in ["{\"error\":\"late\"}\n", done, "garbage\n", "{\"mess"] {
        let got = ollama(&format!("{done}{after}"));
        assert_eq!(got.answer(), "a", "{after}");
        assert_eq!(finish(&got), Ok(FinishReason::Stop), "{after}");
    }
}

#[test]
fn more_of_the_answer_after_its_end_marker_is_not_dropped() {
    let end = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    let cut = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n\n";
    let done = "data: [DONE]\n\n";
    for (body, want) in [
        (format!("{A}{end}{A}"), FinishReason::Stop),
        (format!("{A}{end}{A}{done}"), FinishReason::Stop),
        (format!("{A}{cut}{A}{done}"), FinishReason::Length),
        (format!("{A}{cut}{A}{end}{done}"), FinishReason::Stop),
    ] {
        let got = openai(&body);
        assert_eq!(got.answer(), "aa", "{body}");
        assert_eq!(finish(&got), Ok(want), "{body}");
    }
    let thought =
        "data: {\"choices\":[{\"delta\":{\"reasoning\":\"r\"},\"finish_reason\":\"stop\"}]}\n\n";
    let got = openai(&format!("{thought}{A}{end}{done}"));
    assert_eq!((got.reasoning(), got.answer()), ("r".into(), "a".into()));
    let call = stream(
        &[json!({"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]})],
        "tool_calls",
    );
    let got = openai(&format!("{A}{end}{call}"));
    assert_eq!((&*got.answer(), got.calls()), ("a", vec![("f", "{}")]));
    assert_eq!(finish(&got), Ok(FinishReason::ToolCalls));
}

#[test]
fn a_field_that_nobody_knows_is_passed_over_if_the_answer_came_to_its_end() {
    let end = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    for field in ["x-note: hi\n\n", "meta\n\n", "x-request-id: 77\n"] {
        let whole = openai(&format!("{A}{field}{A}{end}"));
        assert_eq!(whole.answer(), "aa", "{field}");
        assert_eq!(finish(&whole), Ok(FinishReason::Stop), "{field}");
        // What is missing at the end may be what that was.
        match openai(&format!("{A}{field}{A}")).end {
            Err(Fault::Said(said)) => assert_eq!(said.message, field.trim(), "{field}"),
            other => panic!("{field}: {other:?}"),
        }
    }
    for words in [
        "upstream failed\n\n",
        "ta: {\"choices\":[]}\n\n",
        "Bad gateway\n\n",
    ] {
        let spoilt = openai(&format!("{A}{words}{A}{end}"));
        assert!(spoilt.end.is_err(), "{words}");
    }
}

#[test]
fn a_reason_that_says_it_was_given_up_is_no_end() {
    for reason in [
        "cancelled",
        "canceled",
        "insufficient_system_resource",
        "engine_error",
        "timeout",
    ] {
        let end = format!(
            "data: {{\"choices\":[{{\"delta\":{{}},\"finish_reason\":\"{reason}\"}}]}}\n\n"
        );
        match openai(&format!("{A}{end}data: [DONE]\n\n")).end {
            Err(Fault::Said(said)) => {
                assert!(said.message.contains("gave the answer up"), "{said:?}")
            }
            other => panic!("{reason}: {other:?}"),
        }
    }
    let in_ollama =
        "{\"message\":{\"content\":\"a\"}}\n{\"done\":true,\"done_reason\":\"aborted\"}\n";
    let in_anthropic = "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"a\"}}\n\n\
                        data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"timeout\"}}\n\n";
    for (dialect, body) in [
        (Dialect::Ollama, in_ollama),
        (Dialect::Anthropic, in_anthropic),
    ] {
        let got = decode(dialect, [body.as_bytes()]);
        assert_eq!(got.answer(), "a", "{body}");
        match got.end {
            Err(Fault::Said(said)) => assert!(said.message.contains("gave the answer up")),
            other => panic!("{body}: {other:?}"),
        }
    }
    for body in [
        "data: {\"status\":\"error\",\"msg\":\"m\"}\n\n",
        "data: {\"success\":false,\"error_msg\":\"m\"}\n\n",
    ] {
        match openai(&format!("{A}{body}data: [DONE]\n\n")).end {
            Err(Fault::Said(said)) => assert_eq!(said.message, "m", "{body}"),
            other => panic!("{body}: {other:?}"),
        }
    }
}

#[test]
fn a_count_that_nobody_can_have_counted_is_unknown() {
    let end = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":1e300,\"completion_tokens\":18446744073709551615}}\n\n";
    let usage = openai(&format!("{A}{end}")).end.map(|end| end.usage);
    assert_eq!(usage, Ok(Usage::default()));
}

/// Where a piece of text stands, and how JSON has it.
type Piece = (Field, &'static str);

/// A whole answer of these pieces.
fn of_pieces(dialect: Dialect, pieces: &[Piece]) -> String {
    let mut body = String::new();
    for (field, text) in pieces {
        body += &match (dialect, field) {
            (_, Field::Ping) if dialect == Dialect::Anthropic => {
                "event: ping\ndata: {\"type\":\"ping\"}\n\n".to_owned()
            }
            (Dialect::Anthropic, field) => {
                let (kind, name) = match field {
                    Field::Answer | Field::Ping => ("text_delta", "text"),
                    Field::Thought => ("thinking_delta", "thinking"),
                };
                format!(
                    "data: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"{kind}\",\"{name}\":\"{text}\"}}}}\n\n"
                )
            }
            (Dialect::Ollama, field) => {
                let name = field.name("thinking");
                format!(
                    "{{\"message\":{{\"role\":\"assistant\",\"{name}\":\"{text}\"}},\"done\":false}}\n"
                )
            }
            (Dialect::OpenAiChat | Dialect::Local, field) => {
                let name = field.name("reasoning");
                format!(
                    "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"{name}\":\"{text}\"}}}}]}}\n\n"
                )
            }
        };
    }
    body + match dialect {
        Dialect::Anthropic => "data: {\"type\":\"message_stop\"}\n\n",
        Dialect::Ollama => "{\"done\":true,\"done_reason\":\"stop\"}\n",
        Dialect::OpenAiChat | Dialect::Local => "data: [DONE]\n\n",
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Field {
    Answer,
    Thought,
    Ping,
}

impl Field {
    fn name(self, thought: &'static str) -> &'static str {
        match self {
            Self::Answer | Self::Ping => "content",
            Self::Thought => thought,
        }
    }
}

const SPOKEN: [Dialect; 3] = [Dialect::Ollama, Dialect::OpenAiChat, Dialect::Anthropic];

#[test]
fn a_character_whose_halves_come_in_two_events_is_one() {
    use Field::{Answer, Ping, Thought};
    let table: [(&[Piece], &str, &str); 15] = [
        (&[(Answer, r"a\ud83d"), (Answer, r"\ude00b")], "", "a😀b"),
        (&[(Answer, r"\ud83d"), (Answer, r"\ude00")], "", "😀"),
        (
            &[(Thought, r"a\ud83d"), (Thought, r"\ude00b"), (Answer, "c")],
            "a😀b",
            "c",
        ),
        // Several in a row.
        (
            &[
                (Answer, r"\uD83D"),
                (Answer, r"\uDE00\ud83d"),
                (Answer, r"\ude01"),
            ],
            "",
            "😀😁",
        ),
        // The other half does not come.
        (&[(Answer, r"a\ud83d")], "", "a\u{fffd}"),
        (&[(Answer, r"a\ud83d"), (Answer, "b")], "", "a\u{fffd}b"),
        (
            &[
                (Answer, r"\ud83d"),
                (Answer, r"\ud83d"),
                (Answer, r"\ude00"),
            ],
            "",
            "\u{fffd}😀",
        ),
        (&[(Answer, r"\ude00b")], "", "\u{fffd}b"),
        (&[(Answer, "a"), (Answer, r"\ude00b")], "", "a\u{fffd}b"),
        // Only where nothing stands between them.
        (
            &[(Answer, r"\ud83d "), (Answer, r"\ude00")],
            "",
            "\u{fffd} \u{fffd}",
        ),
        (
            &[(Answer, r"\ud83d"), (Answer, r" \ude00")],
            "",
            "\u{fffd} \u{fffd}",
        ),
        // In another field it is no half of it, and comes out before that.
        (
            &[(Thought, r"a\ud83d"), (Answer, r"\ude00b")],
            "a\u{fffd}",
            "\u{fffd}b",
        ),
        // Characters that stand for halves inside are a server's own here.
        (
            &[(Answer, "\u{fdd0}\u{fdd1}\u{fdd2}"), (Answer, r"\ud83d")],
            "",
            "\u{fdd0}\u{fdd1}\u{fdd2}\u{fffd}",
        ),
        (
            &[
                (Answer, "\u{fdd0}\u{fdd1}\u{fdd2}\\ud83d"),
                (Answer, r"\ude00\ufdd0"),
            ],
            "",
            "\u{fdd0}\u{fdd1}\u{fdd2}\u{fffd}\u{fffd}\u{fdd0}",
        ),
        (
            &[(Answer, r"a\ud83d"), (Ping, ""), (Answer, r"\ude00b")],
            "",
            "a😀b",
        ),
    ];
    for dialect in SPOKEN {
        for (pieces, reasoning, answer) in table {
            if pieces.iter().any(|(field, _)| *field == Ping) && dialect != Dialect::Anthropic {
                continue;
            }
            let body = of_pieces(dialect, pieces);
            let got = decode(dialect, [body.as_bytes()]);
            assert_eq!(got, decode(dialect, body.as_bytes().chunks(1)), "{body}");
            assert_eq!(
                (&*got.reasoning(), &*got.answer()),
                (reasoning, answer),
                "{body}"
            );
            assert!(got.end.is_ok(), "{body}: {:?}", got.end);
            // Cut before its end, it has said the same.
            let end = body.trim_end().rfind('\n').unwrap() + 1;
            let cut = decode(dialect, [&body.as_bytes()[..end]]);
            assert_eq!(
                (&*cut.reasoning(), &*cut.answer()),
                (reasoning, answer),
                "{body}"
            );
        }
    }
}

#[test]
fn half_a_character_is_not_held_back_past_anything_else() {
    let half = |delta: &str| format!("data: {{\"choices\":[{{\"delta\":{delta}}}]}}\n\n");
    let (first, second) = (
        half(r#"{"content":"\ud83d"}"#),
        half(r#"{"content":"\ude00"}"#),
    );
    let stop = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    let ended = r#"data: {"choices":[{"delta":{"content":"\ude00"},"finish_reason":"stop"}]}"#;
    for (body, want) in [
        // The last event may bring it, too.
        (format!("{first}{ended}\n\n"), "😀"),
        (format!("{first}{stop}"), "\u{fffd}"),
        (format!("{first}{stop}{second}"), "\u{fffd}\u{fffd}"),
        // What says more than one thing says them in its own order.
        (
            half(r#"{"content":"a","reasoning":"r\ud83d"}"#) + &half(r#"{"reasoning":"\ude00"}"#),
            "a",
        ),
    ] {
        assert_eq!(
            openai(&format!("{body}data: [DONE]\n\n")).answer(),
            want,
            "{body}"
        );
    }
    let both = openai(&format!(
        "{}{}data: [DONE]\n\n",
        half(
            r#"{"reasoning":"r\ud83d","reasoning_details":[{"type":"reasoning.text","text":"r\ud83d"}]}"#
        ),
        half(
            r#"{"reasoning":"\ude00!","reasoning_details":[{"type":"reasoning.text","text":"\ude00!"}]}"#
        ),
    ));
    assert_eq!(both.reasoning(), "r😀!");
    // Of several things that an event says, each comes out where it stood.
    let text = |part, text: &str| ModelEvent::Text {
        part,
        text: text.to_owned(),
    };
    let two = openai(
        &(half(r#"{"reasoning":"r\ud83d","content":"c\ud83d"}"#)
            + &half(r#"{"content":"\ude00d"}"#)),
    );
    assert_eq!(
        two.events,
        [
            text(Part::Reasoning, "r\u{fffd}"),
            text(Part::Answer, "c\u{fffd}"),
            text(Part::Answer, "\u{fffd}d"),
        ]
    );
    let two = openai(&(first.clone() + &half(r#"{"reasoning":"r","content":"\ude00d"}"#)));
    assert_eq!(
        two.events,
        [
            text(Part::Answer, "\u{fffd}"),
            text(Part::Reasoning, "r"),
            text(Part::Answer, "\u{fffd}d"),
        ]
    );
    let ahead = openai(&half(
        r#"{"reasoning":"a\ud83d","reasoning_details":[{"type":"reasoning.text","text":"a😀b"}]}"#,
    ));
    assert_eq!(ahead.reasoning(), "a\u{fffd}a😀b");
    // The last line of an Ollama may bring a half too, and takes none along.
    let line =
        |text: &str, done| format!("{{\"message\":{{\"content\":\"{text}\"}},\"done\":{done}}}\n");
    let last = |body: String| ollama(&body).answer();
    assert_eq!(last(line("a", false) + &line(r"\ud83d", true)), "a\u{fffd}");
    assert_eq!(last(line(r"\ud83d", false) + &line(r"\ude00", true)), "😀");
    let call = r#"{"message":{"tool_calls":[{"function":{"name":"f","arguments":"\ud83d"}}]}}"#;
    let called = ollama(&format!("{call}\n{{\"done\":true}}\n"));
    assert_eq!(called.calls(), [("f", "\u{fffd}")]);
    // Between two events, words of a proxy: the half comes before the answer is spoilt by them.
    let spoilt = openai(&format!("{first}<html>502</html>\n\n{second}{stop}"));
    assert_eq!(spoilt.answer(), "\u{fffd}\u{fffd}");
    assert!(spoilt.end.is_err());
}

#[test]
fn the_arguments_of_a_call_are_joined_where_a_character_was_cut() {
    let piece = |call: &str| {
        format!("data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{call}]}}}}]}}\n\n")
    };
    let body = piece(
        r#"{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":"{\"x\":\"\ud83d"}}"#,
    ) + &piece(r#"{"index":0,"function":{"arguments":"\ude00\"}"}}"#)
        + "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n";
    assert_eq!(openai(&body).calls(), [("f", r#"{"x":"😀"}"#)]);
    let start = r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c","name":"f","input":{}}}"#;
    let delta = |json: &str| {
        format!(
            "data: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"input_json_delta\",\"partial_json\":\"{json}\"}}}}\n\n"
        )
    };
    let body = format!("data: {start}\n\n")
        + &delta(r#"{\"x\":\"\ud83d"#)
        + &delta(r#"\ude00\"}"#)
        + "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"}}\n\n";
    let got = decode(Dialect::Anthropic, [body.as_bytes()]);
    assert_eq!(got.calls(), [("f", r#"{"x":"😀"}"#)]);
}

#[test]
fn bodies_that_are_no_answers_are_named() {
    for (body, want) in [
        ("", Fault::Truncated),
        (
            ": OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\n",
            Fault::Truncated,
        ),
        ("data: [DONE]\n\n", Fault::Empty),
        (
            "data: {\"choices\":[{\"delta\":{\"content\":\" \\n\"},\"finish_reason\":\"stop\"}]}\n\n",
            Fault::Empty,
        ),
        (
            "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n",
            Fault::CallsMissing,
        ),
        ("{\"choices\":[{\"message\":{\"cont", Fault::Truncated),
    ] {
        assert_eq!(openai(body).end, Err(want), "{body}");
    }
    for (body, want) in [
        ("<!DOCTYPE html><html>login</html>", Kind::Page),
        ("\u{feff} \n<html>", Kind::Page),
        ("Bad gateway\n", Kind::Text),
        ("{\"status\":\"ok\"}", Kind::Json),
        ("{}", Kind::Json),
        ("data: {broken}\n\ndata: [DONE]\n\n", Kind::BrokenJson),
    ] {
        match openai(body).end {
            Err(Fault::Unreadable(unreadable)) => assert_eq!(unreadable.kind, want, "{body}"),
            other => panic!("{body}: {other:?}"),
        }
    }
    for (body, want) in [
        ("<!DOCTYPE html>\n<html>\nlogin</html>", Kind::Page),
        ("404 page not found", Kind::Text),
        ("[1]\n", Kind::Json),
    ] {
        match ollama(body).end {
            Err(Fault::Unreadable(unreadable)) => {
                assert_eq!(unreadable.kind, want, "{body}");
                assert_eq!(unreadable.bytes, body.trim_end().len() as u64, "{body}");
            }
            other => panic!("{body}: {other:?}"),
        }
    }
    for body in [
        "",
        "{}\n{\"error\":null}\n",
        "{\"message\":{\"content\":\"a\"},\"done\":false}\n",
    ] {
        assert_eq!(ollama(body).end, Err(Fault::Truncated), "{body}");
    }
}

#[test]
fn a_plain_json_answer_to_a_request_for_a_stream_is_the_answer() {
    let body = json!({"choices":[
        {"index":0,"message":{"content":"a","reasoning_content":"r"},"finish_reason":"stop"},
        {"index":1,"message":{"content":"other"},"finish_reason":"stop"},
    ]});
    for body in [
        body.to_string(),
        serde_json::to_string_pretty(&body).unwrap(),
    ] {
        let got = openai(&body);
        assert_eq!((got.answer(), got.reasoning()), ("a".into(), "r".into()));
        assert_eq!(finish(&got), Ok(FinishReason::Stop));
    }
    let unsaid = openai("{\"choices\":[{\"message\":{\"content\":\"a\"}}]}");
    assert_eq!(finish(&unsaid), Ok(FinishReason::Unknown));
}

#[test]
fn reasoning_is_found_under_every_name_and_shown_once() {
    for delta in [
        json!({"reasoning_content":"r"}),
        json!({"reasoning":"r"}),
        json!({"thinking":"r"}),
        json!({"reasoning_details":[{"type":"reasoning.text","text":"r"}]}),
        json!({"reasoning_details":[{"type":"reasoning.summary","summary":"r"}]}),
        json!({"reasoning":"r","reasoning_details":[{"type":"reasoning.text","text":"r"}]}),
        json!({"reasoning":"r","reasoning_content":"r","content":""}),
        json!({"content":[{"type":"thinking","thinking":[{"type":"text","text":"r"}]}]}),
        json!({"content":"<think>r</think>"}),
    ] {
        let got = openai(&stream(&[delta.clone(), json!({"content":"a"})], "stop"));
        assert_eq!(
            (got.reasoning(), got.answer()),
            ("r".into(), "a".into()),
            "{delta}"
        );
        let only = openai(&stream(std::slice::from_ref(&delta), "stop"));
        assert_eq!(
            finish(&only),
            Ok(FinishReason::Stop),
            "reasoning alone is content: {delta}"
        );
    }
    let turns = openai(&stream(
        &[
            json!({"reasoning":"r1"}),
            json!({"content":"a1"}),
            json!({"reasoning":"r2"}),
            json!({"content":" a2"}),
        ],
        "stop",
    ));
    assert_eq!(
        (turns.reasoning(), turns.answer()),
        ("r1r2".into(), "a1 a2".into())
    );
    assert_eq!(turns.events.len(), 4, "in their order");
}

#[test]
fn white_space_alone_opens_no_item() {
    let got = openai(&stream(
        &[
            json!({"content":"<think>\n\n</think>"}),
            json!({"content":"\n\n"}),
            json!({"content":"a"}),
            json!({"reasoning":"\n"}),
            json!({"content":"\n\nb"}),
        ],
        "stop",
    ));
    assert_eq!(
        (got.reasoning(), got.answer()),
        (String::new(), "a\n\nb".into())
    );
    let spaced = openai(&stream(
        &[json!({"content":"\n"}), json!({"content":"\n a"})],
        "stop",
    ));
    assert_eq!(
        spaced.answer(),
        "\n\n a",
        "leading white space of an answer is the answer's"
    );
}

#[test]
fn calls_survive_every_way_of_ending_and_are_told_from_none() {
    let call = json!({"tool_calls":[
        {"function":{"name":"f","arguments":{"x":1}}},
        {"id":"b","function":{"name":"g","arguments":"{\"a\":1}mul{\"b\":2}"}},
        {"id":"c","function":{"name":"h","arguments":null}},
    ]});
    for reason in ["tool_calls", "stop", "function_call"] {
        let got = openai(&stream(
            &[json!({"content":"Let me see."}), call.clone()],
            reason,
        ));
        assert_eq!(
            got.calls(),
            [
                ("f", "{\"x\":1}"),
                ("g", "{\"a\":1}mul{\"b\":2}"),
                ("h", "")
            ],
            "{reason}"
        );
        assert_eq!(finish(&got), Ok(FinishReason::ToolCalls), "{reason}");
        assert_eq!(got.answer(), "Let me see.");
    }
    let cut = openai(
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"w\",\"arguments\":\"{\\\"path\\\":\\\"a\"}}]}}]}\n\n",
    );
    assert_eq!(cut.calls(), [], "an unfinished call is no call");
    assert_eq!(cut.cut_calls(), [("w", "{\"path\":\"a")]);
    assert_eq!(cut.end, Err(Fault::Truncated));
    let old = openai(&stream(
        &[
            json!({"function_call":{"name":"f","arguments":"{"}}),
            json!({"function_call":{"arguments":"}"}}),
        ],
        "function_call",
    ));
    assert_eq!(old.calls(), [("f", "{}")]);
    let ollama = ollama(
        "{\"message\":{\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"get_weather\",\"arguments\":{\"city\":\"Paris\"}}}]},\"done\":true,\"done_reason\":\"stop\"}\n",
    );
    assert_eq!(ollama.calls(), [("get_weather", "{\"city\":\"Paris\"}")]);
    assert_eq!(finish(&ollama), Ok(FinishReason::ToolCalls));
}

#[test]
fn arguments_in_thousands_of_pieces_are_gathered_in_reasonable_time() {
    let piece = json!({"tool_calls":[{"index":0,"function":{"arguments":"x"}}]});
    let mut deltas =
        vec![json!({"tool_calls":[{"index":0,"id":"a","function":{"name":"w","arguments":"\""}}]})];
    deltas.resize(6000, piece);
    let body = stream(&deltas, "tool_calls");
    let got = decode(Dialect::OpenAiChat, [body.as_bytes()]);
    assert_eq!(got.calls()[0].1.len(), 6000);
}

#[test]
fn an_ollama_line_that_breaks_off_or_breaks_down_ends_the_answer() {
    let line = "{\"message\":{\"content\":\"a\"},\"done\":false}\n";
    let cut = ollama(&format!("{line}{{\"message\":{{\"con"));
    assert_eq!((cut.answer(), cut.end), ("a".into(), Err(Fault::Truncated)));
    let wrong = ollama(&format!("{line}garbage\n"));
    assert!(matches!(wrong.end, Err(Fault::Unreadable(_))));
    let died = ollama(&format!(
        "{line}{{\"error\":\"an error was encountered while running the model: unexpected EOF\"}}\n"
    ));
    assert!(matches!(died.end, Err(Fault::Said(_))));
    let pretty = ollama("{\n  \"error\": \"m\"\n}\n");
    assert!(matches!(pretty.end, Err(Fault::Said(said)) if said.message == "m"));
}

/// Bodies to cut: recorded ones, with everything that a decoder treats specially.
fn bodies() -> Vec<(Dialect, Vec<u8>)> {
    let tapes = [
        "think-stream",
        "tools-parallel-stream",
        "stream-unicode",
        "router-child-kill9",
    ];
    let mut bodies: Vec<_> = tapes
        .iter()
        .map(|name| (Dialect::OpenAiChat, cassette::load(name).body()))
        .collect();
    bodies.push((Dialect::Anthropic, cassette::load("messages-stream").body()));
    for name in ["ollama-chat-think-stream", "ollama-midstream-error"] {
        bodies.push((Dialect::Ollama, cassette::load(name).body()));
    }
    bodies.push((
        Dialect::OpenAiChat,
        stream(
            &[
                json!({"content":"<thi"}),
                json!({"content":"nk>日本語 – naïve"}),
                json!({"content":"</THINK>\n👩‍👩‍👧‍👦 – 🇨🇭"}),
            ],
            "stop",
        )
        .replace('\n', "\r\n")
        .into_bytes(),
    ));
    bodies.extend(odd_bodies());
    bodies
}

/// Everything at once that no manual describes.
fn odd_bodies() -> Vec<(Dialect, Vec<u8>)> {
    let call = |entry: Value| json!({"tool_calls":[entry]});
    let deltas = [
        json!({"reasoning":"I ","reasoning_details":[{"type":"reasoning.text","text":"I"}]}),
        json!({"reasoning_content":"I muse","content":"<think>I mu"}),
        json!({"content":"se</think>\n"}),
        json!({"content":["é",7,{"type":"text","text":"日"}]}),
        call(json!({"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\""}})),
        call(json!({"index":1,"id":"a","function":{"name":"g","arguments":{"y":2}}})),
        call(json!({"function":{"arguments":":1}"}})),
        call(json!({"index":0,"function":{"name":"f","arguments":"{}"}})),
        json!({"function_call":{"name":"h","arguments":"{\"z\":"}}),
    ];
    let half = "data: {\"choices\":[{\"delta\":{\"content\":\"x\\ud83dy\"}}]}\n\n";
    let pretty = "{\n  \"error\": {\n    \"message\": \"m\"\n  }\n}\n";
    let streamed = stream(&deltas, "tool_calls");
    let unended = without_end(&streamed);
    let line = "{\"message\":{\"content\":[1,\"\\ud83d\"]},\"done\":false}\n";
    [
        (Dialect::OpenAiChat, format!("{half}{streamed}")),
        (Dialect::OpenAiChat, format!("{half}{unended}")),
        (Dialect::OpenAiChat, always_finished(&deltas, "stop")),
        (Dialect::OpenAiChat, messages(&deltas) + &messages(&deltas)),
        (Dialect::OpenAiChat, format!("{unended}data: {pretty}\n\n")),
        (
            Dialect::OpenAiChat,
            format!("{unended}<html>\r\n502\r</html>"),
        ),
        (Dialect::OpenAiChat, format!("{A}{}", streamed.trim_end())),
        (Dialect::Ollama, format!("{line}{pretty}")),
        (Dialect::Ollama, format!("{line}{line}{{\"done\":true}}")),
    ]
    .map(|(dialect, body)| (dialect, body.into_bytes()))
    .into()
}

#[test]
fn odd_answers_are_the_same_split_in_two_at_every_byte() {
    for (dialect, body) in odd_bodies() {
        let want = decode(dialect, [body.as_slice()]);
        for at in 0..=body.len() {
            let (head, tail) = body.split_at(at);
            let text = String::from_utf8_lossy(&body);
            assert_eq!(decode(dialect, [head, tail]), want, "{text} at {at}");
        }
    }
}

/// A piece of a call with anything in it and anything missing.
fn piece() -> impl Strategy<Value = Value> {
    let maybe = |values: &'static [&'static str]| prop::option::of(prop::sample::select(values));
    let index = prop::option::of(0_u64..3);
    let names = maybe(&["f", "g", ""]);
    let arguments = maybe(&["{", "}", "{}", "{\"x\":1}", "\"x\"", ":1}", "", "\\", " "]);
    (index, maybe(&["a", "b"]), names, arguments).prop_map(|(index, id, name, arguments)| {
        json!({"index":index,"id":id,"function":{"name":name,"arguments":arguments}})
    })
}

#[test]
fn what_stands_before_a_body_and_says_nothing_says_nothing_in_any_pieces() {
    let mark = "\u{feff}";
    for dialect in [Dialect::OpenAiChat, Dialect::Anthropic] {
        for before in [
            "\r\r",
            "\n",
            mark,
            &format!("\r{mark}"),
            &format!("{mark}\n{mark}"),
        ] {
            for body in ["", "{}", "<html>", "data: {}\n\n"] {
                let want = decode(dialect, [body.as_bytes()]);
                let body = [before.as_bytes(), body.as_bytes()].concat();
                for length in 1..=body.len() {
                    let got = decode(dialect, body.chunks(length));
                    assert_eq!(got, want, "{dialect:?}: {body:?} in pieces of {length}");
                }
            }
        }
        // Half a mark is nothing, too.
        for body in [&b"\r\r\xef"[..], b"\xef\xbb", b"\xef"] {
            let got = decode(dialect, body.chunks(1));
            assert_eq!(got, decode(dialect, [body]), "{dialect:?}: {body:?}");
            assert_eq!(got.end, Err(Fault::Truncated), "{dialect:?}: {body:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_split_gives_the_same_events(which in any::<prop::sample::Index>(), sizes in prop::collection::vec(1_usize..400, 1..40)) {
        let bodies = bodies();
        let (dialect, body) = which.get(&bodies);
        let want = decode(*dialect, [body.as_slice()]);
        let mut rest = body.as_slice();
        let mut pieces = Vec::new();
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, after) = rest.split_at((*size).min(rest.len()));
            pieces.push(piece);
            rest = after;
        }
        prop_assert_eq!(decode(*dialect, pieces), want);
    }

    #[test]
    fn changed_bytes_never_panic_and_never_depend_on_the_split(which in any::<prop::sample::Index>(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8), end in any::<prop::sample::Index>()) {
        let bodies = bodies();
        let (dialect, body) = which.get(&bodies);
        let mut body = body.clone();
        for (at, byte) in &changes {
            let at = at.index(body.len());
            body[at] = *byte;
        }
        body.truncate(end.index(body.len()) + 1);
        let whole = decode(*dialect, [body.as_slice()]);
        prop_assert_eq!(decode(*dialect, body.chunks(1)), whole);
    }

    #[test]
    fn no_pieces_make_a_call_out_of_two_or_of_nothing(lists in prop::collection::vec(prop::collection::vec(piece(), 1..3), 1..8), cut in any::<bool>()) {
        let deltas: Vec<Value> = lists.iter().map(|list| json!({"tool_calls":list})).collect();
        let mut body = stream(&deltas, "tool_calls");
        if cut {
            body = without_end(&body);
        }
        let got = decode(Dialect::OpenAiChat, [body.as_bytes()]);
        prop_assert_eq!(&decode(Dialect::OpenAiChat, body.as_bytes().chunks(1)), &got);
        let pieces: Vec<&Value> = lists.iter().flatten().map(|piece| &piece["function"]).collect();
        let said = |name: &str| pieces.iter().filter(|piece| piece["name"] == name).count();
        for name in ["f", "g"] {
            let calls = [got.calls(), got.cut_calls()].concat();
            let made = calls.iter().filter(|(called, _)| *called == name).count();
            prop_assert!(made <= said(name) && (made > 0) == (said(name) > 0), "{}: {:?}", name, got);
        }
        if cut {
            prop_assert_eq!(got.calls(), vec![]);
        }
        // What is worth saying at all is in some call.
        let all: String = [got.calls(), got.cut_calls()].concat().into_iter().map(|(_, arguments)| arguments).collect();
        for arguments in pieces.iter().filter_map(|piece| piece["arguments"].as_str()) {
            prop_assert!(all.contains(arguments), "{}: {:?}", arguments, got);
        }
    }

    #[test]
    fn any_bytes_are_classified(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for dialect in [Dialect::Ollama, Dialect::OpenAiChat, Dialect::Anthropic] {
            let whole = decode(dialect, [bytes.as_slice()]);
            prop_assert!(whole.end.is_err(), "noise is no answer");
            prop_assert_eq!(decode(dialect, bytes.chunks(1)), whole);
        }
    }
}

#[test]
fn what_stands_in_for_a_missing_piece_spoils_the_answer_even_before_a_proper_end() {
    let end = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    for piece in [
        "data: [{\"error\":{\"message\":\"gem\",\"code\":400}}]\n\n",
        "data: {\"code\":500,\"message\":\"Something broke\"}\n\n",
        "ata: {\"choices\":[{\"delta\":{\"content\":\"NOT \"}}]}\n\n",
        "<html><body>502 Bad Gateway</body></html>\n\n",
    ] {
        let got = openai(&format!("{A}{piece}{end}"));
        assert_eq!(got.answer(), "a", "{piece}");
        assert!(got.end.is_err(), "{piece}: {:?}", got.end);
    }
}

#[test]
fn two_alike_calls_of_an_ollama_are_two() {
    let call = json!({"function":{"name":"roll","arguments":{"sides":6}}});
    let frame =
        json!({"message":{"role":"assistant","content":"","tool_calls":[call, call]},"done":false});
    let end = json!({"message":{"role":"assistant","content":""},"done":true,"done_reason":"stop"});
    let got = ollama(&format!("{frame}\n{end}\n"));
    assert_eq!(got.calls(), [("roll", r#"{"sides":6}"#); 2]);
}

/// Like `stream`, with the finish reason in every chunk.
fn always_finished(deltas: &[Value], reason: &str) -> String {
    deltas
        .iter()
        .map(|delta| {
            let choice = json!({"index":0,"delta":delta,"finish_reason":reason});
            format!("data: {}\n\n", json!({"choices":[choice]}))
        })
        .collect()
}

/// Chunks that hold a message where others hold a delta.
fn messages(messages: &[Value]) -> String {
    let choice = |message: &Value| json!({"choices":[{"index":0,"message":message}]});
    messages
        .iter()
        .map(|message| format!("data: {}\n\n", choice(message)))
        .collect()
}

const DONE: &str = "data: [DONE]\n\n";

/// The same stream, cut before its end.
fn without_end(stream: &str) -> String {
    let frames = stream.strip_suffix(DONE).unwrap().trim_end();
    let last = frames.rfind("\n\n").map_or(0, |at| at + 2);
    frames[..last].to_owned()
}

#[test]
fn a_finish_reason_in_every_chunk_ends_nothing_before_the_last() {
    let words = [
        json!({"content":"<thi"}),
        json!({"content":"nk>r</think>a"}),
        json!({"content":" b"}),
        json!({"content":""}),
    ];
    let body = always_finished(&words, "stop");
    for (end, want) in [(DONE, FinishReason::Stop), ("", FinishReason::Unknown)] {
        let got = openai(&format!("{body}{end}"));
        assert_eq!((got.reasoning(), got.answer()), ("r".into(), "a b".into()));
        assert_eq!(finish(&got), Ok(want));
    }
    let calls = [
        json!({"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}]}),
        json!({"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}),
    ];
    let body = always_finished(&calls, "tool_calls");
    let got = openai(&format!("{body}{DONE}"));
    assert_eq!(got.calls(), [("f", "{}")]);
    assert_eq!(finish(&got), Ok(FinishReason::ToolCalls));
    let cut = openai(&body);
    assert_eq!((cut.calls(), cut.cut_calls()), (vec![], vec![("f", "{}")]));
    assert_eq!(
        cut.end,
        Err(Fault::Truncated),
        "nobody said that this is all"
    );
    let early = openai(&format!(
        "{}{A}{A}{DONE}",
        always_finished(&[json!({"role":"assistant","content":""})], "stop")
    ));
    assert_eq!(
        early.answer(),
        "aa",
        "an end before anything was said is none"
    );
}

#[test]
fn a_usage_without_choices_ends_an_answer_that_has_ended_and_no_other() {
    let usage = "data: {\"choices\":[],\"usage\":{\"completion_tokens\":7}}\n\n";
    let stop = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}";
    for body in [
        format!("{usage}{A}{usage}{A}{stop}\n\n{usage}{DONE}"),
        format!("{usage}{A}{A}{usage}{stop}"),
        format!("{A}{A}{stop}\n\n{}", usage.trim_end()),
    ] {
        let got = openai(&body);
        assert_eq!(got.answer(), "aa", "{body}");
        let end = got.end.unwrap();
        assert_eq!(
            (end.finish, end.usage.completion_tokens),
            (FinishReason::Stop, Some(7))
        );
    }
}

#[test]
fn content_is_read_in_every_form_and_half_a_character_costs_one() {
    let chunk = |content: &str| {
        format!("data: {{\"choices\":[{{\"delta\":{{\"content\":{content}}}}}]}}\n\n")
    };
    for (content, want) in [
        ("42", "42"),
        ("4.5", "4.5"),
        (r#"["a",1,{"type":"text","text":"b"}]"#, "a1b"),
        (r#"{"type":"text","text":"b"}"#, "b"),
        (r#""x\ud83dy""#, "x\u{fffd}y"),
        (r#""x\ude00""#, "x\u{fffd}"),
        (r#""x\ud83d\ude00""#, "x😀"),
    ] {
        let got = openai(&format!("{}{A}{}", chunk(content), DONE));
        assert_eq!(got.answer(), format!("{want}a"), "{content}");
        assert_eq!(finish(&got), Ok(FinishReason::Unknown), "{content}");
        let line = |content: &str| format!("{{\"message\":{{\"content\":{content}}},\"done\":");
        let got = ollama(&format!(
            "{}false}}\n{}true,\"done_reason\":\"stop\"}}",
            line(content),
            line("\"a\"")
        ));
        assert_eq!(got.answer(), format!("{want}a"), "{content}");
        assert_eq!(finish(&got), Ok(FinishReason::Stop), "{content}");
    }
}

#[test]
fn messages_are_read_where_others_send_deltas_and_repeat_nothing() {
    let said = |text: &str| json!({"role":"assistant","content":text});
    let two = [json!({"content":"Hel"}), json!({"content":"lo"})];
    for (what, body, want) in [
        (
            "one by one",
            messages(&[said("Hel"), said("lo"), said(" you")]),
            "Hello you",
        ),
        (
            "growing",
            messages(&[said("He"), said("Hello"), said("Hello you")]),
            "Hello you",
        ),
        ("a word twice", messages(&[said("ha"), said("ha")]), "haha"),
        (
            "all of it at the end",
            stream(&two, "") + &messages(&[said("Hello")]),
            "Hello",
        ),
        (
            "more at the end",
            stream(&two, "") + &messages(&[said("Hello you")]),
            "Hello you",
        ),
        (
            "trimmed at the end",
            stream(&[json!({"content":" Hello"})], "") + &messages(&[said("Hello")]),
            "Hello",
        ),
    ] {
        let body = body.replace(DONE, "") + DONE;
        assert_eq!(openai(&body).answer().trim_start(), want, "{what}");
    }
    let call = json!({"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}});
    let piece = |arguments: &str| json!({"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":arguments}}]});
    let whole = json!({"content":"","reasoning_content":"r","tool_calls":[call]});
    let streamed = [
        json!({"reasoning_content":"r"}),
        piece("{\"x\""),
        piece(":1}"),
    ];
    let body = stream(&streamed, "").replace(DONE, "") + &messages(&[whole]) + DONE;
    let got = openai(&body);
    assert_eq!(
        (got.reasoning(), got.calls()),
        ("r".into(), vec![("f", "{\"x\":1}")])
    );
    let legacy = json!({"tool_calls":[call],"function_call":call["function"]});
    let got = openai(&stream(&[legacy], "tool_calls"));
    assert_eq!(
        got.calls(),
        [("f", "{\"x\":1}")],
        "the old form beside the new one is the same call"
    );
}

#[test]
fn a_thought_that_comes_in_two_places_is_shown_once() {
    let detail = |text: &str| json!([{"type":"reasoning.text","text":text}]);
    for deltas in [
        vec![
            json!({"reasoning":"I muse"}),
            json!({"reasoning_details":detail("I muse")}),
        ],
        vec![
            json!({"reasoning":"I "}),
            json!({"reasoning":"muse"}),
            json!({"reasoning_details":detail("I muse")}),
        ],
        vec![
            json!({"reasoning":"I ","reasoning_details":detail("I")}),
            json!({"reasoning":"muse","reasoning_details":detail(" muse")}),
        ],
        vec![
            json!({"reasoning_content":"I muse"}),
            json!({"content":"<think>I muse</think>"}),
        ],
        vec![
            json!({"reasoning_content":"I muse"}),
            json!({"content":"<think>\nI m"}),
            json!({"content":"use\n</think>\n\n"}),
        ],
        vec![
            json!({"content":"<think>I "}),
            json!({"content":"muse</think>"}),
            json!({"reasoning_content":"I muse"}),
        ],
        vec![
            json!({"reasoning_content":"I ","content":"<think>I "}),
            json!({"reasoning_content":"muse","content":"muse"}),
            json!({"content":"</think>"}),
        ],
    ] {
        let mut deltas = deltas;
        deltas.push(json!({"content":"a"}));
        let got = openai(&stream(&deltas, "stop"));
        assert_eq!(
            (got.reasoning().as_str(), got.answer().as_str()),
            ("I muse", "a"),
            "{deltas:?}"
        );
    }
}

#[test]
fn what_breaks_an_answer_off_is_told_for_what_it_is() {
    use crate::gateway::fault::Place;
    let pretty = "{\n  \"error\": {\n    \"message\": \"m\"\n  }\n}\n";
    for body in [
        format!("{A}{pretty}"),
        format!("{A}{pretty}\n\n{DONE}"),
        format!("{A}data: {pretty}\n\n"),
    ] {
        match openai(&body).end {
            Err(Fault::Said(said)) => assert_eq!(said.message, "m", "{body}"),
            other => panic!("{body}: {other:?}"),
        }
    }
    let line = "{\"message\":{\"content\":\"a\"},\"done\":false}\n";
    match ollama(&format!("{line}{pretty}")).end {
        Err(Fault::Said(said)) => assert_eq!(said.message, "m"),
        other => panic!("{other:?}"),
    }
    for (got, kind, place) in [
        (
            openai(&format!("{A}data: {{\"choices\": oops}}\n\n{DONE}")),
            Kind::BrokenJson,
            Place::Midway,
        ),
        (
            openai("data: {\"choices\": oops}\n\n"),
            Kind::BrokenJson,
            Place::Instead,
        ),
        (
            openai(&format!("{A}<html>\n<h1>502</h1></html>\n")),
            Kind::Page,
            Place::Midway,
        ),
        (
            ollama(&format!("{line}<html>\n<h1>502</h1></html>\n")),
            Kind::Page,
            Place::Midway,
        ),
        (
            ollama(&format!("{line}{{\"message\": oops}}\n")),
            Kind::BrokenJson,
            Place::Midway,
        ),
    ] {
        assert_eq!(got.answer().is_empty(), place == Place::Instead);
        match got.end {
            Err(Fault::Unreadable(unreadable)) => {
                assert_eq!((unreadable.kind, unreadable.place), (kind, place));
            }
            other => panic!("{kind:?}: {other:?}"),
        }
    }
}
