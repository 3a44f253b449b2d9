use protocol::ProviderId;

use super::*;
use crate::gateway::{ApiKey, Secrets};

fn peer(dialect: Dialect) -> Peer {
    let url = "http://127.0.0.1:11434/v1".parse().unwrap();
    Peer {
        name: "Box".into(),
        dialect: Some(dialect),
        model: Some("llama9".into()),
        ..Peer::at(&url)
    }
}

fn reply(status: u16, body: &str) -> Reply<'_> {
    Reply {
        status,
        body,
        retry_after: None,
        location: None,
        wall: Timestamp::from_millis(784_111_777_000),
    }
}

fn judged(dialect: Dialect, status: u16, body: &str) -> (FailureCode, Retry) {
    let error = refused(&peer(dialect), &reply(status, body)).error;
    (error.failure.code, error.retry)
}

#[test]
fn where_a_server_points_is_told_without_the_key_and_without_what_is_asked_there() {
    let mut peer = peer(Dialect::OpenAiChat);
    peer.access.secrets = Secrets::of(ApiKey::new("sk-secret-123"));
    // A key that the cut for showing would go through.
    let long = format!("http://127.0.0.1:1/{:a<170}/sk-secret-123", "");
    for to in [
        "http://127.0.0.1:1/login?key=sk-secret-123",
        "http://127.0.0.1:1/sk-secret-123/login#sk-secret-123",
        &long,
    ] {
        let reply = Reply {
            location: Some(to),
            ..reply(302, "")
        };
        let message = refused(&peer, &reply).error.failure.message;
        assert!(
            message.contains("points elsewhere: http://127.0.0.1:1/"),
            "{message}"
        );
        assert!(!message.contains("secret"), "{message}");
    }
}

#[test]
fn every_recorded_refusal_has_its_name() {
    use FailureCode::*;
    let later = Retry::WhenLoaded(LOADING_WAIT);
    let too_long = |needed, there_is| Retry::Shorter(Some(Room { needed, there_is }));
    let table = [
        ("error-bad-json", BadRequest, Retry::Never),
        ("error-bad-json-schema", BadRequest, Retry::Never),
        ("error-bad-key", KeyRejected, Retry::Never),
        ("error-bad-temperature", BadRequest, Retry::Never),
        ("error-empty-body", BadRequest, Retry::Never),
        ("error-image-unsupported", BadRequest, Retry::Never),
        ("error-messages-not-list", BadRequest, Retry::Never),
        ("error-no-content", BadRequest, Retry::Never),
        ("error-no-key", KeyRejected, Retry::Never),
        ("error-no-messages", BadRequest, Retry::Never),
        ("error-no-model-router", BadRequest, Retry::Never),
        ("error-not-found", BadStream, Retry::Never),
        ("error-ollama-path", BadStream, Retry::Never),
        (
            "error-overlong-nonstream",
            ContextOverflow,
            too_long(1531, 1024),
        ),
        (
            "error-overlong-stream",
            ContextOverflow,
            too_long(1531, 1024),
        ),
        ("error-parse-nonstream", ProviderError, Retry::Backoff),
        ("error-unknown-model-router", ModelNotFound, Retry::Never),
        ("error-wrong-method", BadStream, Retry::Never),
        ("loading-chat", ProviderError, later),
        ("loading-models", ProviderError, later),
        ("ollama-error-404", BadStream, Retry::Never),
        ("ollama-error-405", BadStream, Retry::Never),
        ("ollama-error-bad-json", BadRequest, Retry::Never),
        ("ollama-error-bad-keep-alive", BadRequest, Retry::Never),
        ("ollama-error-bad-think", BadRequest, Retry::Never),
        ("ollama-error-empty-body", BadRequest, Retry::Never),
        ("ollama-error-no-model", BadRequest, Retry::Never),
        ("ollama-error-no-thinking", BadRequest, Retry::Never),
        ("ollama-error-no-tools", BadRequest, Retry::Never),
        ("ollama-error-origin", KeyRejected, Retry::Never),
        (
            "ollama-error-overlong",
            ContextOverflow,
            too_long(6031, 4096),
        ),
        ("ollama-error-unknown-model", ModelNotFound, Retry::Never),
        (
            "ollama-v1-error-overlong",
            ContextOverflow,
            too_long(6031, 4096),
        ),
        ("ollama-v1-error-unknown-model", ModelNotFound, Retry::Never),
        (
            "router-request-while-unloading",
            ProviderError,
            Retry::Backoff,
        ),
    ];
    for (name, code, retry) in table {
        let tape = crate::gateway::tests::cassette::load(name);
        let dialect = if tape.path.starts_with("/api/") && name.starts_with("ollama") {
            Dialect::Ollama
        } else {
            Dialect::OpenAiChat
        };
        let refusal = refused(&peer(dialect), &reply(tape.status, &tape.text()));
        let AttemptError {
            failure,
            retry: got,
        } = &refusal.error;
        assert_eq!((failure.code, *got), (code, retry), "{name}: {failure:?}");
        assert_eq!(refusal.loading, name.starts_with("loading"), "{name}");
        assert!(
            failure.message.len() > 20 && !failure.message.contains("{\"error"),
            "{name}: {failure:?}"
        );
    }
}

#[test]
fn refusals_met_elsewhere_have_theirs() {
    use FailureCode::*;
    let table = [
        (
            500,
            "{\"error\":\"model requires more system memory (31.2 GiB) than is available (14.1 GiB)\"}",
            ModelLoadFailed,
            Retry::Never,
        ),
        (
            500,
            "{\"error\":\"llama runner process has terminated: cudaMalloc failed: out of memory\"}",
            ModelLoadFailed,
            Retry::Never,
        ),
        (
            503,
            "{\"error\":\"server busy, please try again.  maximum pending requests exceeded\"}",
            RateLimited,
            Retry::Backoff,
        ),
        (503, "upstream connect error", ProviderError, Retry::Backoff),
        (
            500,
            "proxy error: Could not establish connection",
            ProviderError,
            Retry::Backoff,
        ),
        (
            429,
            "{\"error\":{\"message\":\"slow down\",\"type\":\"rate_limit_error\"}}",
            RateLimited,
            Retry::Backoff,
        ),
        (
            429,
            "{\"error\":{\"message\":\"You exceeded your current quota\",\"type\":\"insufficient_quota\"}}",
            QuotaExceeded,
            Retry::Never,
        ),
        (
            402,
            "{\"error\":{\"message\":\"Insufficient credits\"}}",
            QuotaExceeded,
            Retry::Never,
        ),
        (
            400,
            "{\"error\":{\"message\":\"API key not valid. Please pass a valid API key.\"}}",
            KeyRejected,
            Retry::Never,
        ),
        (
            403,
            "{\"error\":{\"message\":\"not for you\"}}",
            KeyRejected,
            Retry::Never,
        ),
        (
            404,
            "{\"error\":{\"message\":\"The model `x` does not exist\",\"code\":\"model_not_found\"}}",
            ModelNotFound,
            Retry::Never,
        ),
        (
            400,
            "{\"error\":{\"message\":\"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens\",\"code\":\"context_length_exceeded\"}}",
            ContextOverflow,
            Retry::Shorter(None),
        ),
        (
            400,
            "{\"error\":\"the prompt is longer than the context length currently available to the model; retry\"}",
            ContextOverflow,
            Retry::Shorter(None),
        ),
        (
            400,
            "{\"error\":{\"message\":\"输入长度超过模型的最大上下文\"}}",
            ContextOverflow,
            Retry::Shorter(None),
        ),
        (
            413,
            "{\"error\":{\"message\":\"prompt is too long: 210000 tokens > 200000 maximum\"}}",
            ContextOverflow,
            Retry::Shorter(Some(Room {
                needed: 210_000,
                there_is: 200_000,
            })),
        ),
        (
            400,
            "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000, decrease input length\"}}",
            ContextOverflow,
            Retry::Shorter(None),
        ),
        (
            413,
            "{\"type\":\"error\",\"error\":{\"type\":\"request_too_large\",\"message\":\"Request exceeds the maximum size\"}}",
            ContextOverflow,
            Retry::Shorter(None),
        ),
        (
            529,
            "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}",
            RateLimited,
            Retry::Backoff,
        ),
        (
            404,
            "{\"type\":\"error\",\"error\":{\"type\":\"not_found_error\",\"message\":\"model: claude-none\"}}",
            ModelNotFound,
            Retry::Never,
        ),
        (
            401,
            "{\"type\":\"error\",\"error\":{\"type\":\"authentication_error\",\"message\":\"x-api-key header is required\"}}",
            KeyRejected,
            Retry::Never,
        ),
        (
            400,
            "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"Your credit balance is too low to access the API\"}}",
            QuotaExceeded,
            Retry::Never,
        ),
        (
            422,
            "{\"detail\":[{\"loc\":[\"body\",\"foo\"],\"msg\":\"extra fields not permitted\"}]}",
            BadRequest,
            Retry::Never,
        ),
        (408, "", ProviderError, Retry::Backoff),
        (
            501,
            "{\"error\":{\"message\":\"no\"}}",
            ProviderError,
            Retry::Never,
        ),
        (500, "", ProviderError, Retry::Backoff),
        (500, "{\"error\":null}", ProviderError, Retry::Backoff),
        (500, "{", ProviderError, Retry::Backoff),
        (302, "", BadStream, Retry::Never),
        (600, "?", ProviderError, Retry::Backoff),
        (0, "", ProviderError, Retry::Backoff),
    ];
    for (status, body, code, retry) in table {
        assert_eq!(
            judged(Dialect::OpenAiChat, status, body),
            (code, retry),
            "{status} {body}"
        );
    }
}

#[test]
fn errors_inside_an_answer_have_theirs() {
    use FailureCode::*;
    for (error, code, retry) in [
        (
            "{\"error\":{\"message\":\"quota exceeded\",\"code\":429}}",
            QuotaExceeded,
            Retry::Never,
        ),
        (
            "{\"error\":{\"message\":\"rate limit exceeded\",\"code\":429}}",
            RateLimited,
            Retry::Backoff,
        ),
        (
            "{\"error\":\"an error was encountered while running the model: unexpected EOF\"}",
            ProviderError,
            Retry::Backoff,
        ),
        (
            "{\"error\":\"an error was encountered while running the model: CUDA error: out of memory\"}",
            ProviderError,
            Retry::Backoff,
        ),
        (
            "{\"error\":\"llama-server chat error: map[code:500 message:x]\"}",
            ProviderError,
            Retry::Backoff,
        ),
        (
            "{\"error\":{\"code\":500,\"message\":\"does not match the expected format\",\"type\":\"server_error\"}}",
            ProviderError,
            Retry::Backoff,
        ),
        (
            "{\"error\":{\"type\":\"exceed_context_size_error\",\"n_prompt_tokens\":3141,\"n_ctx\":1024}}",
            ContextOverflow,
            Retry::Shorter(Some(Room {
                needed: 3_141,
                there_is: 1_024,
            })),
        ),
        ("{\"error\":{}}", ProviderError, Retry::Backoff),
    ] {
        let said = Said::read(&serde_json::from_str(error).unwrap()).unwrap();
        let judged = faulty(&peer(Dialect::Ollama), &Fault::Said(said));
        assert_eq!(
            (judged.failure.code, judged.retry),
            (code, retry),
            "{error}"
        );
    }
}

#[test]
fn sentences_name_what_the_reader_can_act_on() {
    let say = |dialect, status, body: &str| {
        refused(&peer(dialect), &reply(status, body))
            .error
            .failure
            .message
    };
    assert_eq!(
        say(
            Dialect::Ollama,
            404,
            "{\"error\":\"model 'llama9' not found\"}"
        ),
        "Box at 127.0.0.1:11434 has no model llama9. Get it with `ollama pull llama9`."
    );
    assert_eq!(
        say(
            Dialect::OpenAiChat,
            400,
            "{\"error\":{\"type\":\"exceed_context_size_error\",\"n_prompt_tokens\":3141,\"n_ctx\":1024}}"
        ),
        "The conversation does not fit the context of llama9: it has 3141 tokens, and there is room for 1024."
    );
    assert_eq!(
        say(
            Dialect::Ollama,
            400,
            "{\"error\":\"registry.ollama.ai/library/llama9 does not support tools\"}"
        ),
        "Box at 127.0.0.1:11434 refused the request: registry.ollama.ai/library/llama9 does not support tools."
    );
    assert_eq!(
        say(Dialect::OpenAiChat, 401, "{}"),
        "Box at 127.0.0.1:11434 wants a key. Enter it in the settings."
    );
}

#[test]
fn an_error_without_words_is_told_by_its_code() {
    for (status, body, said) in [
        (
            500,
            "{\"error\":{\"code\":\"E1\"}}",
            "failed (status 500): E1.",
        ),
        (
            500,
            "{\"error\":{\"code\":1234}}",
            "failed (status 500): 1234.",
        ),
        (
            500,
            "{\"error\":{\"message\":\" \",\"type\":\"engine_dead\"}}",
            "failed (status 500): engine_dead.",
        ),
        (
            500,
            "{\"error\":{\"code\":\"E1\",\"message\":\"no\"}}",
            "failed (status 500): no.",
        ),
        // What is said already.
        (500, "{\"error\":{\"code\":500}}", "failed (status 500)."),
        (
            400,
            "{\"error\":{\"code\":\"E1\"}}",
            "refused the request: E1.",
        ),
    ] {
        let failure = refused(&peer(Dialect::OpenAiChat), &reply(status, body)).error;
        let said = format!("Box at 127.0.0.1:11434 {said}");
        assert_eq!(failure.failure.message, said, "{body}");
    }
    let said = Said::read(&serde_json::json!({"error":{"code":"E1"}})).unwrap();
    let midway = faulty(&peer(Dialect::OpenAiChat), &Fault::Said(said));
    assert_eq!(midway.failure.message, "Box at 127.0.0.1:11434 failed: E1.");
}

#[test]
fn a_code_that_repeats_the_key_is_redacted_too() {
    let mut peer = peer(Dialect::OpenAiChat);
    peer.access.secrets.key = Some(ApiKey::new("sk-sentinel-4711"));
    let body = "{\"error\":{\"code\":\"no_sk-sentinel-4711\"}}";
    let words = format!("{:?}", refused(&peer, &reply(500, body)).error.failure);
    assert!(!words.contains("sk-sent"), "{words}");
}

#[test]
fn a_web_page_that_says_too_large_names_the_request_and_not_the_address() {
    let page = "<html>\r\n<head><title>413 Request Entity Too Large</title></head>\r\n<body>nginx</body></html>";
    for dialect in [Dialect::Ollama, Dialect::OpenAiChat, Dialect::Anthropic] {
        let error = refused(&peer(dialect), &reply(413, page)).error;
        let said = (error.failure.code, error.retry);
        assert_eq!(said, (FailureCode::BadRequest, Retry::Never));
        let words = error.failure.message;
        assert!(
            words.contains("does not take requests as large as this one")
                && words.contains("client_max_body_size")
                && !words.contains("Check the address"),
            "{words}"
        );
    }
}

#[test]
fn a_server_of_tls_that_was_asked_without_says_so_in_any_of_its_ways() {
    for body in [
        "Client sent an HTTP request to an HTTPS server.\n",
        "<html><body>400 The plain HTTP request was sent to HTTPS port</body></html>",
        "<p>Reason: You're speaking plain HTTP to an SSL-enabled server port.</p>",
    ] {
        let error = refused(&peer(Dialect::OpenAiChat), &reply(400, body)).error;
        assert_eq!(error.failure.code, FailureCode::ConnectFailed, "{body}");
        assert_eq!(
            error.failure.message,
            "Box at 127.0.0.1:11434 wants https. Write https:// in its address."
        );
    }
}

#[test]
fn what_cannot_be_read_is_named_for_what_it_is_and_where_it_stood() {
    let say = |kind, place| {
        let unreadable = Unreadable {
            kind,
            place,
            bytes: 7,
            excerpt: "excerpt".into(),
        };
        let error = faulty(&peer(Dialect::OpenAiChat), &Fault::Unreadable(unreadable));
        assert_eq!(error.failure.code, FailureCode::BadStream);
        assert_eq!(error.failure.detail.as_deref(), Some("excerpt"));
        error.failure.message
    };
    let mut said = std::collections::BTreeSet::new();
    for kind in [Kind::Page, Kind::Json, Kind::BrokenJson, Kind::Text] {
        let (instead, midway) = (say(kind, Place::Instead), say(kind, Place::Midway));
        assert!(instead.contains("7 bytes") && !instead.contains("broke the answer off"));
        assert!(midway.contains("broke the answer off") && !midway.contains("Check the address"));
        said.extend([instead, midway]);
    }
    assert_eq!(said.len(), 8, "each has its own words");
}

#[test]
fn a_wait_is_read_from_seconds_or_a_date_and_nonsense_is_the_usual_wait() {
    const LONGEST: u64 = 366 * 86_400;
    let (now, endless) = (Timestamp::from_millis(784_111_777_000), "9".repeat(400));
    assert_eq!(
        http_date("Tue, 29 Feb 2000 00:00:00 GMT"),
        Some(951_782_400)
    );
    for (text, want) in [
        ("7", Some(7)),
        (" 7 ", Some(7)),
        ("1.2", Some(2)),
        ("999999", Some(999_999)),
        ("0", None),
        ("-1", None),
        ("banana", None),
        ("", None),
        ("NaN", None),
        ("inf", None),
        ("1e300", Some(LONGEST)),
        ("99999999999999999999", Some(LONGEST)),
        (endless.as_str(), Some(LONGEST)),
        ("Sun, 06 Nov 1994 08:49:47 GMT", Some(10)),
        ("Sun, 06 Nov 1994 08:49:37 GMT", None),
        ("Sat, 05 Nov 1994 08:49:37 GMT", None),
        ("Tue, 29 Feb 2000 00:00:00 GMT", Some(LONGEST)),
        ("Sun, 06 Xyz 1994 08:49:47 GMT", None),
        ("Sun, 99 Nov 1994 08:49:47 GMT", None),
        ("Sun, 06 Nov 99999999999999 08:49:47 GMT", None),
    ] {
        assert_eq!(
            retry_after(text, now),
            want.map(Duration::from_secs),
            "{text}"
        );
    }
}

#[test]
fn a_servers_wait_beats_the_usual_one_but_never_makes_a_hopeless_request_worth_repeating() {
    let with_wait = |status, body| {
        let mut reply = reply(status, body);
        reply.retry_after = Some("7");
        refused(&peer(Dialect::OpenAiChat), &reply).error
    };
    for status in [429, 500, 503] {
        let error = with_wait(status, "{}");
        assert_eq!(
            error.retry,
            Retry::After(Duration::from_secs(7)),
            "{status}"
        );
        assert_eq!(
            error.failure.retry_at,
            Some(Timestamp::from_millis(784_111_784_000))
        );
    }
    assert_eq!(with_wait(400, "{}").retry, Retry::Never);
    assert_eq!(
        with_wait(503, "{\"error\":\"overloaded\"}").failure.message,
        "Box at 127.0.0.1:11434 failed (status 503): overloaded. It asks to wait 7 s."
    );
    assert_eq!(
        with_wait(429, "{}").failure.message,
        "Box at 127.0.0.1:11434 asks to wait 7 s before the next request."
    );
}

#[test]
fn raw_words_are_bounded_and_hold_no_key_even_where_they_are_cut() {
    let mut peer = peer(Dialect::OpenAiChat);
    let key = ApiKey::new("sk-sentinel-4711");
    peer.access.secrets.key = Some(key);
    for offset in 0..40 {
        let body = format!(
            "{}sk-sentinel-4711{}",
            "x".repeat(SENTENCE_BYTES_MAX - offset),
            "y".repeat(9000)
        );
        for status in [400, 401, 429, 500] {
            let failure = refused(&peer, &reply(status, &body)).error.failure;
            assert!(failure.detail.as_ref().unwrap().len() <= DETAIL_BYTES_MAX);
            let words = format!("{failure:?}");
            assert!(!words.contains("sk-sent"), "{status} at {offset}");
        }
        let long = format!("{}sk-sentinel-4711", "x".repeat(DETAIL_BYTES_MAX - offset));
        for fault in [
            Fault::Said(Said::words(&long)),
            Fault::Unreadable(Unreadable::new(&long)),
        ] {
            let words = format!("{:?}", faulty(&peer, &fault));
            assert!(!words.contains("sk-sent"), "at {offset}");
        }
    }
}

#[test]
fn a_provider_is_known_by_its_name_model_and_address() {
    let provider = protocol::Provider {
        id: ProviderId::from_bits(1),
        name: "GPU box".into(),
        dialect: Dialect::Ollama,
        base_url: "http://192.168.1.7:11434".into(),
        num_ctx: None,
        keep_alive: None,
        files: Vec::new(),
        think: protocol::Think::ServerDefault,
        limits: None,
        connection: protocol::Connection::default(),
    };
    let url = provider.base_url.parse().unwrap();
    let peer = Peer::of(&provider, &url, Some("m"), Secrets::default());
    let limit = Duration::from_secs(600);
    assert_eq!(
        no_first_event(&peer, limit).failure.message,
        "m on GPU box at 192.168.1.7:11434 did not start to answer within 10 minutes."
    );
    assert_eq!(
        no_connection(&peer, Duration::from_secs(10))
            .failure
            .message,
        "Cannot reach GPU box at 192.168.1.7:11434: no connection within 10 s. Is Ollama running there, and does it listen on the network (OLLAMA_HOST)?"
    );
}

#[test]
fn a_refusal_of_tools_is_told_from_other_refusals() {
    let refused = |code, detail: &str| refuses_tools(&Failure::new(code, "no").with_detail(detail));
    for detail in [
        "{\"error\":\"registry.ollama.ai/library/gemma:2b does not support tools\"}",
        "{\"error\":{\"message\":\"tools param requires --jinja flag\"}}",
    ] {
        assert!(
            refused(FailureCode::BadRequest, detail) && refused(FailureCode::ProviderError, detail)
        );
    }
    assert!(!refused(
        FailureCode::BadRequest,
        "option \"num_ctx\" must be of type integer"
    ));
    assert!(!refused(FailureCode::StreamCut, "does not support tools"));
}
