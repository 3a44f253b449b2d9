//! Every recorded answer, decoded whole, cut at every event, split at every byte, with other line ends.
//!
//! What an answer must come to is read from the recording by a second, simple-minded reading of its JSON.

use std::collections::BTreeMap;

use protocol::{Dialect, FinishReason};
use serde_json::Value;

use crate::gateway::fault::Fault;

use super::{
    Decoded,
    cassette::{self, Cassette, Ended},
    decode,
};

/// What an answer says, read from its frames by hand.
#[derive(Debug, Default, PartialEq)]
struct Told {
    answer: String,
    reasoning: String,
    calls: Vec<(String, String)>,
    finish: Option<String>,
}

fn dialect(tape: &Cassette) -> Dialect {
    if tape.path.starts_with("/api/") {
        Dialect::Ollama
    } else if tape.path == "/v1/messages" {
        Dialect::Anthropic
    } else {
        Dialect::OpenAiChat
    }
}

/// The answers to chat requests that came with status 200.
fn answers() -> Vec<Cassette> {
    let chat = ["/api/chat", "/v1/chat/completions", "/v1/messages"];
    let answers: Vec<Cassette> = cassette::all()
        .into_iter()
        .filter(|tape| tape.status == 200 && chat.contains(&tape.path.as_str()))
        .collect();
    assert!(answers.len() > 60, "recorded answers are missing");
    answers
}

fn whole(tape: &Cassette) -> Decoded {
    decode(dialect(tape), [tape.body().as_slice()])
}

fn frames(body: &str) -> Vec<Value> {
    body.lines()
        .map(|line| line.strip_prefix("data: ").unwrap_or(line))
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

fn told(body: &str) -> Told {
    let mut told = Told::default();
    let mut calls: BTreeMap<u64, (String, String)> = BTreeMap::new();
    for frame in frames(body) {
        let choice = &frame["choices"][0];
        let message = [&frame["message"], &choice["delta"], &choice["message"]]
            .into_iter()
            .find(|m| m.is_object())
            .unwrap_or(&Value::Null);
        told.answer += message["content"].as_str().unwrap_or_default();
        for name in ["reasoning_content", "reasoning", "thinking"] {
            told.reasoning += message[name].as_str().unwrap_or_default();
        }
        for (place, call) in message["tool_calls"]
            .as_array()
            .into_iter()
            .flatten()
            .enumerate()
        {
            let index = call["index"].as_u64().unwrap_or(place as u64);
            let (name, arguments) = calls.entry(index).or_default();
            *name += call["function"]["name"].as_str().unwrap_or_default();
            *arguments += &match &call["function"]["arguments"] {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
        }
        told.answer += frame["delta"]["text"].as_str().unwrap_or_default();
        told.answer += frame["content"][0]["text"].as_str().unwrap_or_default();
        let reason = frame["done_reason"]
            .as_str()
            .or(choice["finish_reason"].as_str())
            .or(frame["delta"]["stop_reason"].as_str())
            .or(frame["stop_reason"].as_str())
            .map(|reason| match reason {
                "end_turn" => "stop",
                "max_tokens" => "length",
                reason => reason,
            });
        told.finish = told.finish.or(reason.map(str::to_owned));
    }
    told.calls = calls.into_values().collect();
    told
}

/// Answers that are none, and why.
fn fault(name: &str) -> Option<fn(&Fault) -> bool> {
    Some(match name {
        "error-midstream-parse" | "tools-named-stream" => {
            |fault| matches!(fault, Fault::Said(said) if said.message.contains("does not match the expected"))
        }
        "router-child-kill9" | "router-unload-midstream" => {
            |fault| matches!(fault, Fault::Said(said) if said.message == "proxy error: Failed to read connection")
        }
        "ollama-midstream-error" => {
            |fault| matches!(fault, Fault::Said(said) if said.message.contains("error was encountered"))
        }
        "server-kill9"
        | "server-sigterm-cut"
        | "server-sigterm-stall"
        | "client-disconnect"
        | "client-disconnect-rst"
        | "slow-prompt-client-gives-up"
        | "ollama-v1-midstream-error-lost" => |fault| *fault == Fault::Truncated,
        "ollama-load" | "ollama-unload" | "ollama-truncated-history" => {
            |fault| *fault == Fault::Empty
        }
        _ => return None,
    })
}

#[test]
fn every_recorded_answer_decodes_to_what_it_says_and_ends_as_it_ended() {
    for tape in answers() {
        let (name, got, told) = (&tape.name, whole(&tape), told(&tape.text()));
        if name == "think-format-none-stream" {
            let (reasoning, answer) = told.answer.split_once("</think>").unwrap();
            assert_eq!(got.reasoning(), reasoning.strip_prefix("<think>").unwrap());
            assert_eq!(got.answer(), answer.trim_start());
        } else {
            assert_eq!(got.answer(), told.answer, "{name}");
            assert_eq!(got.reasoning(), told.reasoning, "{name}");
        }
        if let Some(expected) = fault(name) {
            let fault = got.end.unwrap_err();
            assert!(expected(&fault), "{name}: {fault:?}");
            continue;
        }
        assert_eq!(tape.ended, Ended::Complete, "{name}");
        let calls: Vec<(&str, &str)> = told
            .calls
            .iter()
            .map(|(n, a)| (n.as_str(), a.as_str()))
            .collect();
        let whole_and_cut = [got.calls(), got.cut_calls()].concat();
        assert_eq!(whole_and_cut, calls, "{name}");
        let is_cut = told.finish.as_deref() == Some("length");
        assert!(is_cut || got.cut_calls().is_empty(), "{name}");
        let finish = match told.finish.as_deref() {
            _ if !calls.is_empty() && told.finish.as_deref() != Some("length") => {
                FinishReason::ToolCalls
            }
            Some("stop") => FinishReason::Stop,
            Some("length") => FinishReason::Length,
            other => panic!("{name}: {other:?}"),
        };
        let end = got
            .end
            .as_ref()
            .unwrap_or_else(|fault| panic!("{name}: {fault:?}"));
        assert_eq!(end.finish, finish, "{name}");
    }
}

#[test]
fn an_answer_is_the_same_read_byte_by_byte_and_piece_by_piece() {
    for tape in answers() {
        let want = whole(&tape);
        let body = tape.body();
        for size in [1, 7] {
            assert_eq!(
                decode(dialect(&tape), body.chunks(size)),
                want,
                "{} by {size}",
                tape.name
            );
        }
        let pieces = tape.pieces.iter().map(Vec::as_slice);
        assert_eq!(
            decode(dialect(&tape), pieces),
            want,
            "{} as recorded",
            tape.name
        );
    }
}

#[test]
fn an_answer_is_the_same_split_in_two_at_every_byte() {
    for name in [
        "good-key",
        "ollama-chat-cold",
        "ollama-chat-tools-separate-stream",
        "ollama-v1-tools-stream",
        "error-midstream-parse",
        "nonstream",
        "messages-stream",
        "messages-nonstream",
    ] {
        let tape = cassette::load(name);
        let want = whole(&tape);
        let body = tape.body();
        for at in 0..=body.len() {
            let (head, tail) = body.split_at(at);
            assert_eq!(decode(dialect(&tape), [head, tail]), want, "{name} at {at}");
        }
    }
}

#[test]
fn other_line_ends_and_a_byte_order_mark_change_nothing() {
    for tape in answers() {
        let (want, body) = (whole(&tape), tape.text());
        for (how, body) in [
            ("CRLF", body.replace('\n', "\r\n")),
            ("CR", body.replace('\n', "\r")),
            ("mixed", body.replace("\n\n", "\r\n\n")),
            ("BOM", format!("\u{feff}{body}")),
        ] {
            let got = decode(dialect(&tape), body.as_bytes().chunks(3));
            assert_eq!(got, want, "{} with {how}", tape.name);
        }
    }
}

#[test]
fn an_answer_cut_before_its_end_marker_is_truncated_and_keeps_what_came() {
    let mut cuts = 0;
    for tape in answers().iter().filter(|tape| fault(&tape.name).is_none()) {
        let (want, body) = (whole(tape), tape.text());
        let end = match dialect(tape) {
            Dialect::Ollama | Dialect::Local => "\n",
            Dialect::OpenAiChat | Dialect::Anthropic => "\n\n",
        };
        // Long answers hold nothing that short ones do not; their cuts are tried more widely spaced.
        let step = 1 + body.len() / 10_000;
        let cuts_of = body.match_indices(end).map(|(at, _)| at + end.len());
        for at in cuts_of.step_by(step) {
            let (head, _) = body.split_at(at);
            let got = decode(dialect(tape), [head.as_bytes()]);
            let told = told(head);
            if told.finish.is_some() {
                assert!(
                    got.end.is_ok(),
                    "{} cut at {at} after its end marker",
                    tape.name
                );
                assert_eq!(got.events, want.events, "{} cut at {at}", tape.name);
            } else {
                assert_eq!(got.end, Err(Fault::Truncated), "{} cut at {at}", tape.name);
                // A tag that was cut is text, for all that anybody knows.
                let text = |got: &Decoded| {
                    let reasoning = got.reasoning();
                    let cut = ["</think", "</"]
                        .iter()
                        .find_map(|tag| reasoning.strip_suffix(tag));
                    cut.unwrap_or(&reasoning).to_owned() + &got.answer()
                };
                assert!(
                    text(&want).starts_with(&text(&got)),
                    "{} cut at {at}",
                    tape.name
                );
                assert!(got.calls().is_empty() || dialect(tape) == Dialect::Ollama);
                cuts += 1;
            }
        }
    }
    assert!(cuts > 500, "only {cuts} cuts were tried");
}

#[test]
fn a_frame_cut_in_its_middle_is_truncated_too() {
    for name in ["good-key", "ollama-chat-cold"] {
        let (tape, body) = (cassette::load(name), cassette::load(name).text());
        let last = body
            .find("\"finish_reason\":\"")
            .or(body.find("\"done\":true"))
            .unwrap();
        for at in 0..last {
            let got = decode(dialect(&tape), [&body.as_bytes()[..at]]);
            assert_eq!(got.end, Err(Fault::Truncated), "{name} cut at {at}");
        }
    }
}

#[test]
fn usage_and_timings_are_the_servers_own() {
    let llama = whole(&cassette::load("stream-usage")).end.unwrap();
    let frames = frames(&cassette::load("stream-usage").text());
    let last = frames.last().unwrap();
    assert_eq!(
        llama.usage.prompt_tokens,
        last["usage"]["prompt_tokens"].as_u64()
    );
    assert_eq!(llama.usage.completion_tokens, Some(48));
    assert_eq!(
        llama.usage.cached_tokens,
        last["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64()
    );
    assert!(llama.timings.prompt_ms.is_some() && llama.timings.decode_ms.is_some());

    let tape = cassette::load("ollama-chat-cold");
    let cold = whole(&tape).end.unwrap();
    let last = super::recorded::frames(&tape.text()).pop().unwrap();
    assert_eq!(cold.usage.prompt_tokens, last["prompt_eval_count"].as_u64());
    assert_eq!(cold.usage.completion_tokens, last["eval_count"].as_u64());
    assert_eq!(
        cold.timings.load_ms,
        last["load_duration"].as_u64().map(|ns| ns / 1_000_000)
    );
    assert!(cold.timings.decode_ms.is_some());

    let tape = cassette::load("messages-stream");
    let usage = whole(&tape).end.unwrap().usage;
    // One token read, 33 of the cache.
    assert_eq!(usage.prompt_tokens, Some(34));
    assert_eq!(usage.cached_tokens, Some(33));
    assert_eq!(usage.cache_written_tokens, None, "it does not say");
    assert_eq!(usage.completion_tokens, Some(24));
}

#[test]
fn reading_the_prompt_is_told_while_it_lasts() {
    let got = whole(&cassette::load("slow-prompt-progress-stream"));
    let progress: Vec<(u64, u64)> = got
        .events
        .iter()
        .filter_map(|event| match event {
            crate::gateway::ModelEvent::ReadingPrompt { done, total } => Some((*done, *total)),
            _ => None,
        })
        .collect();
    assert!(progress.len() > 3);
    assert!(progress.is_sorted(), "it only grows");
    assert!(progress.iter().all(|(done, total)| done <= total));
}
