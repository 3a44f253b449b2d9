//! The table of the wire suite: replies, and what they come to.

use protocol::Dialect;
use serde_json::{Value, json};

use super::Case;

const OK: &str = "200 OK\r\nContent-Type: text/event-stream";
const NDJSON: &str = "200 OK\r\nContent-Type: application/x-ndjson";
const DONE: &str = "data: [DONE]\n\n";

/// Every row there is.
pub(super) fn all() -> Vec<Case> {
    let mut all = refusals();
    all.extend(framing());
    all.extend(errors());
    all.extend(endings());
    all.extend(calls());
    all.extend(reasoning());
    all.extend(life_cycle());
    all
}

fn case(id: &'static str, dialect: Dialect, head: &'static str, body: &str, told: &str) -> Case {
    Case {
        id,
        dialect,
        head,
        body: body.as_bytes().to_vec(),
        told: told.to_owned(),
        words: "",
    }
}

fn openai(id: &'static str, body: &str, told: &str) -> Case {
    case(id, Dialect::OpenAiChat, OK, body, told)
}

fn ollama(id: &'static str, body: &str, told: &str) -> Case {
    case(id, Dialect::Ollama, NDJSON, body, told)
}

fn anthropic(id: &'static str, body: &str, told: &str) -> Case {
    case(id, Dialect::Anthropic, OK, body, told)
}

impl Case {
    /// What the words for the reader must hold.
    fn in_words(mut self, words: &'static str) -> Self {
        self.words = words;
        self
    }
}

fn chunk(delta: &Value) -> String {
    format!(
        "data: {}\n\n",
        json!({"choices":[{"index":0,"delta":delta}]})
    )
}

fn finish(reason: &str) -> String {
    let choice = json!({"index":0,"delta":{},"finish_reason":reason});
    format!("data: {}\n\n", json!({"choices":[choice]}))
}

/// An answer of these deltas with a proper end.
fn stream(deltas: &[Value], reason: &str) -> String {
    let deltas: String = deltas.iter().map(chunk).collect();
    deltas + &finish(reason) + DONE
}

fn says(text: &str) -> String {
    chunk(&json!({"content":text}))
}

fn line(message: &Value) -> String {
    format!("{}\n", json!({"message":message,"done":false}))
}

const LAST_LINE: &str = "{\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\"}\n";

fn event(event: &Value) -> String {
    let kind = event["type"].as_str().unwrap_or_default();
    format!("event: {kind}\ndata: {event}\n\n")
}

fn block_text(text: &str) -> String {
    event(
        &json!({"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":text}}),
    )
}

fn stops(reason: &str) -> String {
    event(&json!({"type":"message_delta","delta":{"stop_reason":reason}}))
        + &event(&json!({"type":"message_stop"}))
}

/// B19, B25, B28, B48, B49, B71: what comes in place of an answer.
fn refusals() -> Vec<Case> {
    let refused = |id, head, body: &str, told| case(id, Dialect::OpenAiChat, head, body, told);
    let mut rows = vec![
        refused(
            "B19",
            "400 Bad Request",
            "{\"error\":{\"code\":400,\"message\":\"unknown field\",\"type\":\"invalid_request_error\"}}",
            "fails BadRequest never",
        )
        .in_words("refused the request: unknown field."),
        case(
            "B25",
            Dialect::Ollama,
            "500 Internal Server Error",
            "{\"error\":\"model requires more system memory (31.2 GiB) than is available (14.1 GiB)\"}",
            "fails ModelLoadFailed never",
        )
        .in_words("could not load m: model requires more system memory (31.2 GiB)"),
        refused("B28", "429 X\r\nRetry-After: 18000", "{}", "fails RateLimited after 18000 s")
            .in_words("asks to wait 5 hours"),
        refused("B49", "429 X\r\nRetry-After: 7", "{}", "fails RateLimited after 7 s")
            .in_words("asks to wait 7 s"),
        // The clock of these tests stands at 2001-09-09T01:46:40Z.
        refused(
            "B49",
            "429 X\r\nRetry-After: Sun, 09 Sep 2001 01:47:10 GMT",
            "{}",
            "fails RateLimited after 30 s",
        )
        .in_words("asks to wait 30 s"),
        refused("B49", "429 X\r\nRetry-After: 0", "{}", "fails RateLimited again"),
        refused("B49", "429 X\r\nRetry-After: -1", "{}", "fails RateLimited again"),
        refused("B49", "429 X\r\nRetry-After: banana", "{}", "fails RateLimited again"),
        refused("B49", "429 X", "{}", "fails RateLimited again"),
        refused("B49", "429 X\r\nRetry-After: 999999", "{}", "fails RateLimited after 999999 s")
            .in_words("asks to wait 11 days"),
        refused(
            "B49",
            "429 X\r\nRetry-After: 99999999999999999999999",
            "{}",
            "fails RateLimited after 31622400 s",
        )
        .in_words("asks to wait 366 days"),
        refused("B49", "503 X\r\nRetry-After: 7", "{}", "fails ProviderError after 7 s")
            .in_words("asks to wait 7 s"),
        case(
            "B49",
            Dialect::Anthropic,
            "529 X",
            "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}",
            "fails RateLimited again",
        )
        .in_words("has too much to do"),
    ];
    for words in [
        "{\"error\":{\"code\":400,\"message\":\"request (5003 tokens) exceeds the available context size (4096 tokens), try increasing it\",\"type\":\"exceed_context_size_error\"}}",
        "{\"error\":{\"message\":\"This model's maximum context length is 4096 tokens. However, you requested 5003 tokens.\",\"code\":\"context_length_exceeded\"}}",
        "{\"error\":{\"message\":\"输入长度超过模型的最大上下文长度\"}}",
        "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"prompt is too long: 210000 tokens > 200000 maximum\"}}",
    ] {
        rows.push(
            refused(
                "B71",
                "400 Bad Request",
                words,
                "fails ContextOverflow shorter",
            )
            .in_words("does not fit the context of m"),
        );
    }
    let page = format!(
        "<!DOCTYPE html>\n<html><body>{}</body></html>",
        "<p>no</p>\n".repeat(4000)
    );
    for (head, told, words) in [
        (
            "524 X",
            "fails ProviderError again",
            "a web page (status 524)",
        ),
        (
            "520 X",
            "fails ProviderError again",
            "a web page (status 520)",
        ),
        (
            "502 X",
            "fails ProviderError again",
            "a web page (status 502)",
        ),
        ("403 X", "fails BadStream never", "a web page (status 403)"),
        (
            "200 OK",
            "fails BadStream never",
            "this is not a model's reply",
        ),
    ] {
        for dialect in [Dialect::OpenAiChat, Dialect::Ollama, Dialect::Anthropic] {
            rows.push(case("B48", dialect, head, &page, told).in_words(words));
        }
    }
    for head in ["200 OK\r\nContent-Type: text/html; charset=utf-8", "200 OK"] {
        let login = "\r\n <html><form>login</form></html>";
        rows.push(refused("B48", head, login, "fails BadStream never").in_words("login page"));
    }
    rows
}

/// B38 to B41: how a stream is written.
fn framing() -> Vec<Case> {
    let plain = says("Hel") + &says("lo") + &finish("stop") + DONE;
    let hello = "says Hello\nends Stop";
    let letters = "日本語 – naïve – 👩‍👩‍👧‍👦 – 🇨🇭";
    let long = "日".repeat(4096);
    let blocks = block_text("Hel") + &block_text("lo") + &stops("end_turn");
    let lines = line(&json!({"content":"Hel"})) + &line(&json!({"content":"lo"})) + LAST_LINE;
    vec![
        openai("B38", &plain.replace('\n', "\r\n"), hello),
        openai("B38", &plain.replace('\n', "\r"), hello),
        openai("B38", &plain.replace("\n\n", "\r\n\n"), hello),
        openai("B38", &plain.replace("\n\n", "\r\r\n"), hello),
        anthropic("B38", &blocks.replace('\n', "\r\n"), hello),
        anthropic("B38", &blocks.replace('\n', "\r"), hello),
        ollama("B38", &lines.replace('\n', "\r\n"), hello),
        openai(
            "B39",
            "data:{\"choices\":[{\"delta\":{\"content\":\" a\"}}]}\n\ndata:\n\ndata:[DONE]\n\n",
            "says  a\nends Unknown",
        ),
        openai(
            "B39",
            &(says(" a") + "data: [DONE] \n\n"),
            "says  a\nends Unknown",
        ),
        openai(
            "B39",
            &(says(" a") + "data\n\n" + DONE),
            "says  a\nends Unknown",
        ),
        anthropic("B39", &blocks.replace(": ", ":"), hello),
        openai(
            "B40",
            &(says(letters) + DONE),
            &format!("says {letters}\nends Unknown"),
        ),
        anthropic(
            "B40",
            &(block_text(letters) + &stops("end_turn")),
            &format!("says {letters}\nends Stop"),
        ),
        ollama(
            "B40",
            &(line(&json!({"content":letters})) + LAST_LINE),
            &format!("says {letters}\nends Stop"),
        ),
        openai(
            "B41",
            &(says(&long) + DONE),
            &format!("says {long}\nends Unknown"),
        ),
    ]
}

/// B42: errors inside of a 200.
fn errors() -> Vec<Case> {
    let mut rows = Vec::new();
    for (error, told, words) in [
        (
            "{\"error\":{\"message\":\"quota exceeded\",\"code\":429}}",
            "fails QuotaExceeded never",
            "quota exceeded",
        ),
        (
            "{\"error\":{\"message\":\"slow down\",\"code\":429},\"choices\":[]}",
            "fails RateLimited again",
            "slow down",
        ),
        (
            "{\"error\":\"plain string\"}",
            "fails ProviderError again",
            "plain string",
        ),
        (
            "{\"error\":{\"message\":\"m\"},\"choices\":[{\"delta\":{\"content\":\"\"},\"finish_reason\":\"error\"}]}",
            "fails ProviderError again",
            "failed: m.",
        ),
    ] {
        let frame = format!("data: {error}\n\n");
        let words_first = "word ".repeat(200);
        rows.push(openai("B42", &frame, told).in_words(words));
        rows.push(openai("B42", &(frame.clone() + DONE), told).in_words(words));
        let told = format!("says {words_first}\n{told}");
        rows.push(openai("B42", &(says(&words_first) + &frame + DONE), &told).in_words(words));
    }
    let a = line(&json!({"content":"a"}));
    rows.push(
        ollama(
            "B42",
            &(a.clone() + "{\"error\":\"it broke\"}\n" + &a),
            "says a\nfails ProviderError again",
        )
        .in_words("it broke"),
    );
    let overloaded =
        event(&json!({"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}));
    rows.push(
        anthropic(
            "B42",
            &(block_text("a") + &overloaded),
            "says a\nfails RateLimited again",
        )
        .in_words("Overloaded"),
    );
    rows
}

/// B44 to B46, B51, B77: how a stream ends.
fn endings() -> Vec<Case> {
    let comments = ": OPENROUTER PROCESSING\n\n".repeat(24);
    let cut = "fails StreamCut again";
    let words = "word ".repeat(37);
    let null = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":null}]}\n\n";
    let begun = chunk(&json!({"tool_calls":[{"index":0,"id":"a","type":"function",
        "function":{"name":"write_file","arguments":"{\"path\":\"a.txt\",\"content\":\"half of"}}]}));
    let runner =
        "{\"error\":\"an error was encountered while running the model: unexpected EOF\"}\n";
    let lines = line(&json!({"role":"assistant","content":"a "})).repeat(12);
    let twelve = "a ".repeat(12);
    let half_line = "{\"message\":{\"role\":\"assistant\",\"cont";
    vec![
        openai("B44", &comments, cut).in_words("ended before the answer did"),
        openai(
            "B44",
            &(comments.clone() + &says("a") + DONE),
            "says a\nends Unknown",
        ),
        openai("B44", "", cut),
        ollama("B44", "", cut),
        anthropic("B44", "", cut),
        openai("B44", DONE, "fails EmptyResponse never").in_words("said nothing"),
        anthropic("B44", &event(&json!({"type":"ping"})).repeat(8), cut),
        openai("B45", &says("a"), &format!("says a\n{cut}")),
        openai("B45", &(says("a") + DONE), "says a\nends Unknown"),
        openai("B45", &(says("a") + null + DONE), "says a\nends Unknown"),
        openai("B45", &(says("a") + &finish("stop")), "says a\nends Stop"),
        anthropic("B45", &block_text("a"), &format!("says a\n{cut}")),
        anthropic(
            "B45",
            &(block_text("a") + &stops("end_turn")),
            "says a\nends Stop",
        ),
        anthropic(
            "B45",
            &(block_text("a") + &event(&json!({"type":"message_stop"}))),
            "says a\nends Unknown",
        ),
        openai(
            "B46",
            &says("word ").repeat(37),
            &format!("says {words}\n{cut}"),
        ),
        anthropic(
            "B46",
            &block_text("word ").repeat(37),
            &format!("says {words}\n{cut}"),
        ),
        openai(
            "B51",
            &begun,
            &format!("cut write_file {{\"path\":\"a.txt\",\"content\":\"half of\n{cut}"),
        ),
        openai(
            "B51",
            &(begun.clone() + &finish("length") + DONE),
            "cut write_file {\"path\":\"a.txt\",\"content\":\"half of\nends Length",
        ),
        ollama(
            "B77",
            &(lines.clone() + runner),
            &format!("says {twelve}\nfails ProviderError again"),
        )
        .in_words("unexpected EOF"),
        ollama("B77", &lines, &format!("says {twelve}\n{cut}")),
        ollama(
            "B77",
            &(lines.clone() + half_line),
            &format!("says {twelve}\n{cut}"),
        ),
        // What llama.cpp's router puts into the stream when its model's process dies.
        openai(
            "B77",
            &(says("a ") + "proxy error: Failed to read connection"),
            "says a \nfails ProviderError again",
        )
        .in_words("Failed to read connection"),
    ]
}

fn call(entry: Value) -> Value {
    json!({"tool_calls":[entry]})
}

/// B29, B52 to B59: calls.
fn calls() -> Vec<Case> {
    let mut rows = Vec::new();
    let big = "x".repeat(60_000);
    let whole = json!({"index":0,"id":"a","function":{"name":"w","arguments":format!("{{\"c\":\"{big}\"}}")}});
    rows.push(openai(
        "B29",
        &stream(&[call(whole)], "tool_calls"),
        &format!("calls w {{\"c\":\"{big}\"}}\nends ToolCalls"),
    ));
    let mut letters = vec![call(
        json!({"index":0,"id":"a","function":{"name":"w","arguments":"{\"c\":\""}}),
    )];
    let letter = || call(json!({"index":0,"function":{"arguments":"x"}}));
    letters.extend(std::iter::repeat_with(letter).take(2_000));
    letters.push(call(json!({"index":0,"function":{"arguments":"\"}"}})));
    rows.push(openai(
        "B29",
        &stream(&letters, "tool_calls"),
        &format!(
            "calls w {{\"c\":\"{}\"}}\nends ToolCalls",
            "x".repeat(2_000)
        ),
    ));

    let rowed = |id, deltas: &[Value], told: &str| openai(id, &stream(deltas, "tool_calls"), told);
    let both = "calls f {\"x\":1}\ncalls g {\"y\":2}\nends ToolCalls";
    rows.extend([
        rowed(
            "B52",
            &[
                call(json!({"id":"a","function":{"name":"f","arguments":"{\"x\""}})),
                call(json!({"id":"a","function":{"arguments":":1}"}})),
                call(json!({"id":"b","function":{"name":"g","arguments":"{\"y\""}})),
                call(json!({"id":"b","function":{"arguments":":2}"}})),
            ],
            both,
        ),
        rowed(
            "B52",
            &[
                call(json!({"function":{"name":"f","arguments":"{\"x\""}})),
                call(json!({"function":{"arguments":":1}"}})),
                call(json!({"function":{"name":"g","arguments":"{\"y\""}})),
                call(json!({"function":{"arguments":":2}"}})),
            ],
            both,
        ),
        // Two calls under one index, and one id under two.
        rowed(
            "B52",
            &[
                call(json!({"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}})),
                call(json!({"index":0,"id":"b","function":{"name":"g","arguments":"{\"y\":2}"}})),
            ],
            both,
        ),
        rowed(
            "B52",
            &[
                call(json!({"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}})),
                call(json!({"index":1,"id":"a","function":{"name":"g","arguments":"{\"y\":2}"}})),
            ],
            both,
        ),
        // A name in two pieces may be two calls: neither runs.
        rowed(
            "B52",
            &[
                call(json!({"index":0,"id":"a","function":{"name":"get_"}})),
                call(json!({"index":0,"function":{"name":"weather","arguments":"{}"}})),
            ],
            "?calls get_ \n?calls weather {}\nends ToolCalls",
        ),
    ]);
    for (arguments, want) in [
        (json!({"city":"Paris"}), "{\"city\":\"Paris\"}"),
        (json!(""), ""),
        (json!(null), ""),
        (json!("{}"), "{}"),
        (json!([]), "[]"),
        (json!(7), "7"),
        // A JSON text within a JSON text, and each piece from the beginning.
        (json!("\"{\\\"a\\\":1}\""), "{\"a\":1}"),
    ] {
        let message =
            json!({"tool_calls":[{"function":{"name":"get_weather","arguments":arguments}}]});
        let told = format!("calls get_weather {want}\nends ToolCalls");
        let document = json!({"choices":[{"message":message,"finish_reason":"tool_calls"}]});
        rows.push(openai("B53", &document.to_string(), &told));
        let chunk = format!("data: {document}\n\n{DONE}");
        rows.push(openai("B53", &chunk, &told));
        rows.push(rowed("B53", std::slice::from_ref(&message), &told));
        rows.push(ollama("B53", &(line(&message) + LAST_LINE), &told));
    }
    let piece = |arguments: &str| {
        call(json!({"index":0,"id":"a","function":{"name":"f","arguments":arguments}}))
    };
    rows.push(rowed(
        "B53",
        &[piece("{"), piece("{\"a\":"), piece("{\"a\":1}")],
        "calls f {\"a\":1}\nends ToolCalls",
    ));
    rows.push(rowed(
        "B55",
        &[json!({"tool_calls":[
            {"index":0,"id":"c1","function":{"name":"f","arguments":"{\"a\""}},
            {"index":0,"function":{"arguments":":1}"}},
        ]})],
        "calls f {\"a\":1}\nends ToolCalls",
    ));
    let three = json!({"content":"Let me see.","tool_calls":[
        {"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}},
        {"index":1,"id":"b","function":{"name":"f","arguments":"{\"x\":2}"}},
        {"index":2,"id":"c","function":{"name":"g","arguments":"{}"}},
    ]});
    let told = "says Let me see.\ncalls f {\"x\":1}\ncalls f {\"x\":2}\ncalls g {}\nends ToolCalls";
    rows.push(rowed("B57", std::slice::from_ref(&three), told));
    rows.push(ollama("B57", &(line(&three) + LAST_LINE), told));
    // Two merged into one: no JSON, which is told where calls are run, and not run.
    rows.push(rowed(
        "B57",
        &[piece("{\"a\":1}mul{\"b\":2}")],
        "calls f {\"a\":1}mul{\"b\":2}\nends ToolCalls",
    ));
    rows.push(rowed("B58", &[piece("")], "calls f \nends ToolCalls"));
    rows.push(
        openai(
            "B59",
            &stream(&[json!({"content":"a"})], "tool_calls"),
            "says a\nfails BadStream never",
        )
        .in_words("sent no call; the server lost it"),
    );
    let missing = block_text("a") + &stops("tool_use");
    rows.push(anthropic("B59", &missing, "says a\nfails BadStream never").in_words("sent no call"));
    rows.push(openai(
        "B59",
        &stream(&[piece("{\"x\":1}")], "stop"),
        "calls f {\"x\":1}\nends ToolCalls",
    ));
    // A call that the model wrote into its words is words.
    let tagged = "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>";
    rows.push(openai(
        "B59",
        &stream(&[json!({"content":tagged})], "stop"),
        &format!("says {tagged}\nends Stop"),
    ));
    rows
}

/// B61 to B65: reasoning.
fn reasoning() -> Vec<Case> {
    let rowed = |id, deltas: &[Value], told: &str| openai(id, &stream(deltas, "stop"), told);
    let content = |text: &str| json!({"content":text});
    let mut rows = vec![
        rowed(
            "B61",
            &[
                content("I should "),
                content("add…"),
                content("</thi"),
                content("nk>\n\n4"),
            ],
            "thinks I should add…\nsays 4\nends Stop",
        ),
        rowed(
            "B61",
            &[content("I should add…</think>4")],
            "thinks I should add…\nsays 4\nends Stop",
        ),
        rowed(
            "B62",
            &[content("<thinking>x</thinking>y")],
            "thinks x\nsays y\nends Stop",
        ),
        rowed(
            "B62",
            &[content("<think>never closed")],
            "thinks never closed\nends Stop",
        ),
        rowed(
            "B62",
            &[content("Like this:\n```\n<think>x</think>\n```")],
            "says Like this:\n```\n<think>x</think>\n```\nends Stop",
        ),
        rowed(
            "B62",
            &[content("<th"), content("ink>x</thi"), content("nk>y")],
            "thinks x\nsays y\nends Stop",
        ),
        rowed(
            "B62",
            &[content("<THINK>x</Think>y")],
            "thinks x\nsays y\nends Stop",
        ),
        rowed(
            "B62",
            &[content("<think>a<think>b</think>c</think>d")],
            "thinks a<think>bc\nsays d\nends Stop",
        ),
        rowed(
            "B65",
            &[
                json!({"reasoning":"r1"}),
                content("t1"),
                json!({"reasoning":"r2"}),
                content("t2"),
            ],
            "thinks r1\nsays t1\nthinks r2\nsays t2\nends Stop",
        ),
        rowed(
            "B65",
            &[json!({"reasoning_content":"only this"})],
            "thinks only this\nends Stop",
        ),
    ];
    let details = json!([{"type":"reasoning.text","text":"Hm."}]);
    for thought in [
        json!({"reasoning":"Hm."}),
        json!({"reasoning_content":"Hm."}),
        json!({"thinking":"Hm."}),
        json!({"reasoning_details":details}),
        json!({"reasoning":"Hm.","reasoning_details":details}),
        json!({"reasoning":"Hm.","reasoning_content":"Hm."}),
        json!({"content":[{"type":"thinking","thinking":"Hm."}]}),
    ] {
        let told = "thinks Hm.\nsays a\nends Stop";
        rows.push(rowed("B64", &[thought.clone(), content("a")], told));
        let mut message = thought;
        if message.get("content").is_none() {
            message["content"] = json!("a");
            let document = json!({"choices":[{"message":message,"finish_reason":"stop"}]});
            rows.push(openai("B64", &document.to_string(), told));
        }
    }
    let thinks = line(&json!({"content":"","thinking":"Hm."})) + &line(&content("a")) + LAST_LINE;
    rows.push(ollama("B64", &thinks, "thinks Hm.\nsays a\nends Stop"));
    let block = event(&json!({"type":"content_block_delta","index":0,
        "delta":{"type":"thinking_delta","thinking":"Hm."}}));
    rows.push(anthropic(
        "B64",
        &(block + &block_text("a") + &stops("end_turn")),
        "thinks Hm.\nsays a\nends Stop",
    ));
    rows
}

/// What content may be besides a text; B70's count is in the usage, which other tests read.
fn life_cycle() -> Vec<Case> {
    let mut rows = Vec::new();
    for (content, want) in [
        ("\"a\"", "a"),
        ("42", "42"),
        ("[\"a\",{\"type\":\"text\",\"text\":\"b\"}]", "ab"),
        ("\"x\\ud83dy\"", "x\u{fffd}y"),
        ("\"x\\ud83d\\ude00\"", "x😀"),
    ] {
        let chunk = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":{content}}}}}]}}\n\n");
        let null = "data: {\"choices\":[{\"delta\":{\"content\":null}}]}\n\n";
        let told = format!("says {want}\nends Unknown");
        rows.push(openai("B42", &format!("{null}{chunk}{null}{DONE}"), &told));
    }
    rows
}
