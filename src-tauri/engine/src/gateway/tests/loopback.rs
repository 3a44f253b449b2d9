//! The IO loop against real sockets on loopback, with a clock that is moved by hand.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use protocol::{
    Dialect, FailureCode, FinishReason, Part, ProbeReport, Provider, ProviderId, Think, Timestamp,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot},
};

use crate::{
    clock::{Clock, Sleep},
    gateway::{
        ApiKey, Asked, AttemptError, Gateway, Images, Keys, Limits, Message, ModelEvent,
        ModelRequest, NoKeys, Retry, Secrets, StepEnd,
    },
};

use super::cassette;

/// Time that passes only when a test says so.
#[derive(Default)]
pub(crate) struct HandClock(Mutex<Hands>);

#[derive(Default)]
struct Hands {
    now: Duration,
    timers: Vec<(Duration, oneshot::Sender<()>)>,
}

impl HandClock {
    pub(crate) fn advance(&self, by: Duration) {
        let mut hands = self.0.lock().unwrap();
        hands.now += by;
        let now = hands.now;
        let (due, later) = std::mem::take(&mut hands.timers)
            .into_iter()
            .partition::<Vec<_>, _>(|(at, _)| *at <= now);
        hands.timers = later;
        for (_, timer) in due {
            // A timer that was dropped waits for nothing.
            let _ = timer.send(());
        }
    }

    /// Timers that somebody still waits for, as waits from now.
    pub(crate) fn waits(&self) -> Vec<Duration> {
        let mut hands = self.0.lock().unwrap();
        hands.timers.retain(|(_, timer)| !timer.is_closed());
        let now = hands.now;
        hands.timers.iter().map(|(at, _)| *at - now).collect()
    }
}

impl Clock for HandClock {
    fn wall(&self) -> Timestamp {
        Timestamp::from_millis(1_000_000_000_000)
    }
    fn monotonic(&self) -> Duration {
        self.0.lock().unwrap().now
    }
    fn sleep_until(&self, at: Duration) -> Sleep {
        let (timer, fired) = oneshot::channel();
        let mut hands = self.0.lock().unwrap();
        if at > hands.now {
            hands.timers.push((at, timer));
        } else {
            let _ = timer.send(());
        }
        Box::pin(async move {
            if fired.await.is_err() {
                std::future::pending().await
            }
        })
    }
}

/// A model server of one connection at a time, driven by the test.
struct Fake {
    listener: TcpListener,
}

impl Fake {
    async fn start() -> Self {
        Self {
            listener: TcpListener::bind("127.0.0.1:0").await.unwrap(),
        }
    }

    fn address(&self) -> String {
        self.listener.local_addr().unwrap().to_string()
    }

    /// Takes the next connection and reads one request of it.
    async fn request(&self) -> (Call, TcpStream) {
        let (mut socket, _) = self.listener.accept().await.unwrap();
        let call = Call::read(&mut socket).await;
        (call, socket)
    }
}

/// One request as it came.
pub(super) struct Call {
    line: String,
    headers: BTreeMap<String, String>,
    body: String,
}

impl Call {
    pub(super) async fn read(socket: &mut TcpStream) -> Self {
        let mut bytes = Vec::new();
        let head = loop {
            if let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
                break at;
            }
            let mut block = [0; 4096];
            let n = socket.read(&mut block).await.unwrap();
            assert!(n > 0, "the request ended early");
            bytes.extend_from_slice(&block[..n]);
        };
        let text = String::from_utf8(bytes[..head].to_vec()).unwrap();
        let mut lines = text.lines();
        let line = lines.next().unwrap().to_owned();
        let headers: BTreeMap<String, String> = lines
            .map(|l| l.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let length = headers
            .get("content-length")
            .map_or(0, |l| l.parse().unwrap());
        let mut body = bytes[head + 4..].to_vec();
        while body.len() < length {
            let mut block = vec![0; length - body.len()];
            let n = socket.read(&mut block).await.unwrap();
            assert!(n > 0, "the body ended early");
            body.extend_from_slice(&block[..n]);
        }
        Self {
            line,
            headers,
            body: String::from_utf8(body).unwrap(),
        }
    }
}

const CHUNKED: &str =
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/event-stream\r\n\r\n";

async fn say(socket: &mut TcpStream, text: &str) {
    socket.write_all(text.as_bytes()).await.unwrap();
    socket.flush().await.unwrap();
}

async fn chunk(socket: &mut TcpStream, body: &str) {
    say(socket, &format!("{:x}\r\n{body}\r\n", body.len())).await;
}

/// Resolves when the other side has closed.
pub(super) async fn closed(socket: &mut TcpStream) {
    let mut block = [0; 64];
    while !matches!(socket.read(&mut block).await, Ok(0) | Err(_)) {}
}

fn reply(status: &str, headers: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn delta(text: &str) -> String {
    format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
}

const STOP: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";

pub(super) fn provider(dialect: Dialect, address: &str) -> Provider {
    Provider {
        id: ProviderId::from_bits(7),
        name: "Box".into(),
        dialect,
        base_url: match dialect {
            Dialect::Ollama => format!("http://{address}"),
            Dialect::OpenAiChat | Dialect::Anthropic => format!("http://{address}/v1"),
            Dialect::Local => format!("/models/{address}"),
        },
        num_ctx: None,
        keep_alive: None,
        files: Vec::new(),
        think: Think::ServerDefault,
        limits: None,
        connection: protocol::Connection::default(),
    }
}

pub(super) fn request() -> ModelRequest {
    ModelRequest {
        model: "m".into(),
        messages: vec![Message::User {
            text: "hi".into(),
            images: Vec::new(),
        }],
        tools: vec![],
        options: protocol::ModelOptions::default(),
        images: Images::default(),
    }
}

fn text(part: Part, text: &str) -> ModelEvent {
    ModelEvent::Text {
        part,
        text: text.into(),
    }
}

/// An attempt that runs beside its test.
struct Attempt {
    clock: Arc<HandClock>,
    events: mpsc::Receiver<ModelEvent>,
    end: tokio::task::JoinHandle<Result<StepEnd, AttemptError>>,
}

#[expect(clippy::disallowed_methods, reason = "a test owns the tasks it starts")]
fn attempt_with(provider: Provider, limits: Limits, room: usize, keys: Arc<dyn Keys>) -> Attempt {
    let clock = Arc::new(HandClock::default());
    let gateway = Gateway::new(clock.clone(), keys).unwrap();
    let (out, events) = mpsc::channel(room);
    let end =
        tokio::spawn(async move { gateway.stream(&provider, &request(), &limits, &out).await });
    Attempt { clock, events, end }
}

fn attempt(provider: Provider) -> Attempt {
    attempt_with(provider, Limits::default(), 64, Arc::new(NoKeys))
}

impl Attempt {
    async fn next(&mut self) -> ModelEvent {
        self.events.recv().await.expect("another event")
    }

    async fn end(self) -> Result<StepEnd, AttemptError> {
        self.end.await.unwrap()
    }

    async fn fails(self) -> AttemptError {
        self.end().await.unwrap_err()
    }

    /// Waits until the attempt waits for exactly this long.
    async fn until_it_waits(&self, wait: Duration) {
        until(|| self.clock.waits() == [wait]).await;
    }
}

/// Lets everything else run until `fact` holds.
async fn until(fact: impl Fn() -> bool) {
    while !fact() {
        tokio::task::yield_now().await;
    }
}

pub(super) fn run<F: Future>(test: F) -> F::Output {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(test)
}

#[test]
fn an_answer_streams_from_the_request_to_its_end_and_the_socket_is_closed() {
    run(async {
        let fake = Fake::start().await;
        let mut attempt = attempt(provider(Dialect::OpenAiChat, &fake.address()));
        let (call, mut socket) = fake.request().await;
        assert_eq!(call.line, "POST /v1/chat/completions HTTP/1.1");
        assert_eq!(call.headers["content-type"], "application/json");
        assert!(!call.headers.contains_key("transfer-encoding"));
        assert!(!call.headers.contains_key("accept-encoding"));
        assert!(!call.headers.contains_key("authorization"));
        assert!(call.body.contains("\"include_usage\":true"));
        assert_eq!(attempt.next().await, ModelEvent::Sent);
        say(&mut socket, CHUNKED).await;
        chunk(&mut socket, &delta("Hel")).await;
        assert_eq!(attempt.next().await, text(Part::Answer, "Hel"));
        attempt.clock.advance(Duration::from_millis(5));
        chunk(&mut socket, &delta("lo")).await;
        chunk(&mut socket, STOP).await;
        chunk(&mut socket, "data: [DONE]\n\n").await;
        assert_eq!(attempt.next().await, text(Part::Answer, "lo"));
        closed(&mut socket).await;
        let end = attempt.end().await.unwrap();
        assert_eq!(end.finish, FinishReason::Stop);
        assert_eq!(end.timings.first_content_ms, Some(0));
    });
}

#[test]
fn ollama_is_asked_at_its_own_path_and_ends_with_done() {
    run(async {
        let fake = Fake::start().await;
        let mut attempt = attempt(provider(Dialect::Ollama, &fake.address()));
        let (call, mut socket) = fake.request().await;
        assert_eq!(call.line, "POST /api/chat HTTP/1.1");
        assert_eq!(attempt.next().await, ModelEvent::Sent);
        say(&mut socket, CHUNKED).await;
        chunk(
            &mut socket,
            "{\"message\":{\"content\":\"4\"},\"done\":false}\n",
        )
        .await;
        chunk(
            &mut socket,
            "{\"message\":{\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\"}\n",
        )
        .await;
        assert_eq!(attempt.next().await, text(Part::Answer, "4"));
        closed(&mut socket).await;
        assert_eq!(attempt.end().await.unwrap().finish, FinishReason::Stop);
    });
}

#[test]
fn silence_before_the_first_event_has_its_own_limit_that_headers_do_not_end() {
    run(async {
        let fake = Fake::start().await;
        let limits = Limits::default();
        let mut attempt = attempt(provider(Dialect::OpenAiChat, &fake.address()));
        let (_, mut socket) = fake.request().await;
        assert_eq!(attempt.next().await, ModelEvent::Sent);
        attempt.until_it_waits(limits.first_event).await;
        attempt
            .clock
            .advance(limits.first_event - Duration::from_secs(1));
        say(&mut socket, CHUNKED).await;
        attempt.until_it_waits(limits.first_event).await;
        // So that the wait begun by the head is not taken for the one begun by the comment.
        attempt.clock.advance(Duration::from_secs(1));
        // A comment is a byte of the body: it restarts the clock, and still is no event.
        chunk(&mut socket, ": ping\n\n").await;
        attempt.until_it_waits(limits.first_event).await;
        attempt.clock.advance(limits.first_event);
        let error = attempt.fails().await;
        assert_eq!(error.failure.code, FailureCode::FirstTokenTimeout);
        assert_eq!(error.retry, Retry::Never);
        closed(&mut socket).await;
    });
}

#[test]
fn any_byte_restarts_the_gap_and_silence_beyond_it_fails() {
    run(async {
        let fake = Fake::start().await;
        let limits = Limits::default();
        let mut attempt = attempt(provider(Dialect::OpenAiChat, &fake.address()));
        let (_, mut socket) = fake.request().await;
        say(&mut socket, CHUNKED).await;
        chunk(&mut socket, &delta("a")).await;
        assert_eq!(attempt.next().await, ModelEvent::Sent);
        assert_eq!(attempt.next().await, text(Part::Answer, "a"));
        for _ in 0..3 {
            attempt.until_it_waits(limits.gap).await;
            attempt.clock.advance(limits.gap - Duration::from_millis(1));
            chunk(&mut socket, ":\n\n").await;
        }
        attempt.until_it_waits(limits.gap).await;
        attempt.clock.advance(limits.gap);
        assert_eq!(attempt.fails().await.failure.code, FailureCode::IdleTimeout);
    });
}

#[test]
fn no_silence_clock_runs_while_our_own_reader_is_slow() {
    run(async {
        let fake = Fake::start().await;
        let mut attempt = attempt_with(
            provider(Dialect::OpenAiChat, &fake.address()),
            Limits::default(),
            1,
            Arc::new(NoKeys),
        );
        let (_, mut socket) = fake.request().await;
        say(&mut socket, CHUNKED).await;
        chunk(&mut socket, &(delta("a") + &delta("b") + &delta("c"))).await;
        // Sent fills the channel: the attempt waits for us, and for nothing else.
        until(|| attempt.events.len() == 1).await;
        assert_eq!(attempt.next().await, ModelEvent::Sent);
        until(|| attempt.events.len() == 1 && attempt.clock.waits().is_empty()).await;
        attempt.clock.advance(Duration::from_secs(86_400));
        for want in ["a", "b", "c"] {
            assert_eq!(attempt.next().await, text(Part::Answer, want));
        }
        chunk(&mut socket, STOP).await;
        chunk(&mut socket, "data: [DONE]\n\n").await;
        assert_eq!(attempt.end().await.unwrap().finish, FinishReason::Stop);
    });
}

#[test]
fn all_said_but_neither_done_nor_closed_completes_within_a_short_grace() {
    run(async {
        let fake = Fake::start().await;
        let attempt = attempt(provider(Dialect::OpenAiChat, &fake.address()));
        let (_, mut socket) = fake.request().await;
        say(&mut socket, CHUNKED).await;
        chunk(&mut socket, &delta("a")).await;
        chunk(&mut socket, STOP).await;
        attempt.until_it_waits(Duration::from_secs(2)).await;
        attempt.clock.advance(Duration::from_secs(1));
        // Pings do not prolong it.
        chunk(&mut socket, ":\n\n").await;
        attempt.until_it_waits(Duration::from_secs(1)).await;
        attempt.clock.advance(Duration::from_secs(1));
        assert_eq!(attempt.end().await.unwrap().finish, FinishReason::Stop);
        closed(&mut socket).await;
    });
}

#[test]
fn dropping_an_attempt_closes_its_socket_wherever_it_is() {
    run(async {
        let fake = Fake::start().await;
        // Before the reply's head.
        let mut attempt_1 = attempt(provider(Dialect::Ollama, &fake.address()));
        let (_, mut socket) = fake.request().await;
        assert_eq!(attempt_1.next().await, ModelEvent::Sent);
        attempt_1.end.abort();
        closed(&mut socket).await;
        // In mid-answer.
        let mut attempt_2 = attempt(provider(Dialect::Ollama, &fake.address()));
        let (_, mut socket) = fake.request().await;
        say(&mut socket, CHUNKED).await;
        chunk(
            &mut socket,
            "{\"message\":{\"content\":\"4\"},\"done\":false}\n",
        )
        .await;
        assert_eq!(attempt_2.next().await, ModelEvent::Sent);
        assert_eq!(attempt_2.next().await, text(Part::Answer, "4"));
        attempt_2.end.abort();
        closed(&mut socket).await;
    });
}

#[test]
fn a_cut_connection_keeps_what_came_and_is_a_stream_cut() {
    run(async {
        for reset in [false, true] {
            let fake = Fake::start().await;
            let mut attempt = attempt(provider(Dialect::OpenAiChat, &fake.address()));
            let (_, mut socket) = fake.request().await;
            say(&mut socket, CHUNKED).await;
            chunk(&mut socket, &delta("half")).await;
            assert_eq!(attempt.next().await, ModelEvent::Sent);
            assert_eq!(attempt.next().await, text(Part::Answer, "half"));
            if reset {
                socket.set_zero_linger().unwrap();
            }
            drop(socket);
            let error = attempt.fails().await;
            assert_eq!(error.failure.code, FailureCode::StreamCut, "reset: {reset}");
            assert_eq!(error.retry, Retry::Backoff);
        }
    });
}

#[test]
fn an_error_after_the_end_marker_changes_nothing() {
    run(async {
        let fake = Fake::start().await;
        let attempt = attempt(provider(Dialect::OpenAiChat, &fake.address()));
        let (_, mut socket) = fake.request().await;
        say(&mut socket, CHUNKED).await;
        chunk(&mut socket, &(delta("a") + STOP)).await;
        attempt.until_it_waits(Duration::from_secs(2)).await;
        socket.set_zero_linger().unwrap();
        drop(socket);
        assert_eq!(attempt.end().await.unwrap().finish, FinishReason::Stop);
    });
}

#[test]
fn a_server_that_hangs_up_without_a_word_is_a_stream_cut_and_may_be_asked_again() {
    run(async {
        let fake = Fake::start().await;
        let attempt = attempt(provider(Dialect::OpenAiChat, &fake.address()));
        let (_, socket) = fake.request().await;
        drop(socket);
        let error = attempt.fails().await;
        assert_eq!(error.failure.code, FailureCode::StreamCut);
        assert_eq!(error.retry, Retry::Backoff);
    });
}

#[test]
fn a_refused_connection_says_that_nothing_listens_there() {
    run(async {
        let fake = Fake::start().await;
        let address = fake.address();
        drop(fake);
        let error = attempt(provider(Dialect::Ollama, &address)).fails().await;
        assert_eq!(error.failure.code, FailureCode::ConnectFailed);
        assert_eq!(error.retry, Retry::Never);
        assert_eq!(
            error.failure.message,
            format!(
                "Cannot reach Box at {address}: nothing is listening there. Is Ollama running?"
            )
        );
    });
}

#[test]
fn a_connection_that_never_stands_fails_after_its_own_limit() {
    run(async {
        // TLS to a server that takes the connection and is mute.
        let fake = Fake::start().await;
        let mut provider = provider(Dialect::OpenAiChat, &fake.address());
        provider.base_url = provider.base_url.replace("http:", "https:");
        let attempt = attempt(provider);
        let (_socket, _) = fake.listener.accept().await.unwrap();
        attempt.until_it_waits(Duration::from_secs(10)).await;
        attempt.clock.advance(Duration::from_secs(10));
        let error = attempt.fails().await;
        assert_eq!(error.failure.code, FailureCode::ConnectFailed);
        assert!(error.failure.message.contains("no connection within 10 s"));
    });
}

#[test]
fn a_web_page_is_no_answer_whatever_its_status() {
    run(async {
        let page = "<html><body><h1>Login</h1></body></html>";
        for (status, code, retry) in [
            ("200 OK", FailureCode::BadStream, Retry::Never),
            ("403 Forbidden", FailureCode::BadStream, Retry::Never),
            (
                "502 Bad Gateway",
                FailureCode::ProviderError,
                Retry::Backoff,
            ),
            (
                "524 A Timeout Occurred",
                FailureCode::ProviderError,
                Retry::Backoff,
            ),
        ] {
            for dialect in [Dialect::Ollama, Dialect::OpenAiChat] {
                let fake = Fake::start().await;
                let mut attempt = attempt(provider(dialect, &fake.address()));
                let (_, mut socket) = fake.request().await;
                say(
                    &mut socket,
                    &reply(status, "Content-Type: text/html\r\n", page),
                )
                .await;
                assert_eq!(attempt.next().await, ModelEvent::Sent);
                assert_eq!(attempt.events.recv().await, None, "nothing of it is shown");
                let error = attempt.fails().await;
                assert_eq!((error.failure.code, error.retry), (code, retry), "{status}");
                assert_eq!(error.failure.detail.as_deref(), Some(page));
            }
        }
    });
}

#[test]
fn a_server_that_loads_its_model_says_so_and_is_asked_again() {
    run(async {
        let fake = Fake::start().await;
        let mut attempt = attempt(provider(Dialect::OpenAiChat, &fake.address()));
        let (_, mut socket) = fake.request().await;
        let body = cassette::load("loading-chat").text();
        say(&mut socket, &reply("503 Service Unavailable", "", &body)).await;
        assert_eq!(attempt.next().await, ModelEvent::Sent);
        assert_eq!(attempt.next().await, ModelEvent::Loading { permille: None });
        assert_eq!(
            attempt.fails().await.retry,
            Retry::WhenLoaded(Duration::from_secs(2))
        );
    });
}

#[test]
fn retry_after_is_honoured_and_told() {
    run(async {
        let fake = Fake::start().await;
        let attempt = attempt(provider(Dialect::OpenAiChat, &fake.address()));
        let (_, mut socket) = fake.request().await;
        say(
            &mut socket,
            &reply("429 Too Many Requests", "Retry-After: 18000\r\n", "{}"),
        )
        .await;
        let error = attempt.fails().await;
        assert_eq!(error.failure.code, FailureCode::RateLimited);
        assert_eq!(error.retry, Retry::After(Duration::from_secs(18_000)));
        assert_eq!(
            error.failure.retry_at,
            Some(Timestamp::from_millis(1_000_018_000_000))
        );
    });
}

/// A key that must not turn up anywhere but in the header.
struct Sentinel;

impl Keys for Sentinel {
    fn secrets<'a>(&'a self, _provider: &'a Provider) -> Asked<'a> {
        let secrets = Secrets::of(ApiKey::new("sk-sentinel-4711"));
        Box::pin(std::future::ready(Ok(secrets)))
    }
}

#[test]
fn a_key_goes_into_the_header_and_into_no_failure_even_if_the_server_repeats_it() {
    run(async {
        let fake = Fake::start().await;
        for body in [
            "{\"error\":{\"message\":\"Incorrect API key provided: sk-sentinel-4711\"}}",
            "sk-sentinel-4711 is not a key",
        ] {
            for status in ["401 Unauthorized", "400 Bad Request", "500 Oops", "200 OK"] {
                let attempt = attempt_with(
                    provider(Dialect::OpenAiChat, &fake.address()),
                    Limits::default(),
                    64,
                    Arc::new(Sentinel),
                );
                let (call, mut socket) = fake.request().await;
                assert_eq!(call.headers["authorization"], "Bearer sk-sentinel-4711");
                say(&mut socket, &reply(status, "", body)).await;
                let error = attempt.fails().await;
                assert!(!format!("{error:?}").contains("4711"), "{error:?}");
            }
        }
    });
}

#[test]
fn an_anthropic_server_finds_the_key_and_its_version_in_headers_of_their_own() {
    run(async {
        let fake = Fake::start().await;
        let mut attempt = attempt_with(
            provider(Dialect::Anthropic, &fake.address()),
            Limits::default(),
            64,
            Arc::new(Sentinel),
        );
        let (call, mut socket) = fake.request().await;
        assert_eq!(call.line, "POST /v1/messages HTTP/1.1");
        assert_eq!(call.headers["x-api-key"], "sk-sentinel-4711");
        assert_eq!(call.headers["anthropic-version"], "2023-06-01");
        assert!(!call.headers.contains_key("authorization"));
        assert_eq!(attempt.next().await, ModelEvent::Sent);
        say(&mut socket, CHUNKED).await;
        let event = |event: serde_json::Value| format!("data: {event}\n\n");
        let block = serde_json::json!({"type":"content_block_delta","index":0,
            "delta":{"type":"text_delta","text":"4"}});
        chunk(&mut socket, &event(block)).await;
        assert_eq!(attempt.next().await, text(Part::Answer, "4"));
        chunk(
            &mut socket,
            &event(serde_json::json!({"type":"message_stop"})),
        )
        .await;
        closed(&mut socket).await;
        assert_eq!(attempt.end().await.unwrap().finish, FinishReason::Unknown);
    });
}

#[test]
fn a_model_that_refuses_how_it_is_asked_is_asked_in_its_own_way_from_then_on() {
    run(async {
        let fake = Fake::start().await;
        let gateway = Gateway::new(Arc::new(HandClock::default()), Arc::new(NoKeys)).unwrap();
        let provider = provider(Dialect::Anthropic, &fake.address());
        let refuse = |words: &str| {
            let error = serde_json::json!({"type":"error","error":{
                "type":"invalid_request_error","message":words}});
            reply("400 Bad Request", "", &error.to_string())
        };
        let answer = reply(
            "200 OK",
            "",
            "{\"type\":\"message\",\"content\":[{\"type\":\"text\",\"text\":\"4\"}]}",
        );
        let (out, _events) = mpsc::channel(64);
        let longer = "max_tokens: 32000 > 8192, which is the maximum allowed number";
        let rounds = [
            vec![
                ("\"max_tokens\":32000", refuse(longer)),
                ("adaptive", refuse("adaptive thinking is not supported")),
                ("\"budget_tokens\":4096", answer.clone()),
            ],
            vec![("\"budget_tokens\":4096", answer)],
        ];
        for round in rounds {
            let (mut request, limits) = (request(), Limits::default());
            request.options.think = Some(Think::On);
            let serve = async {
                for (asked, answer) in &round {
                    let (call, mut socket) = fake.request().await;
                    assert!(call.body.contains(asked), "{asked} in {}", call.body);
                    say(&mut socket, answer).await;
                    closed(&mut socket).await;
                }
            };
            let (end, ()) =
                futures_util::join!(gateway.stream(&provider, &request, &limits, &out), serve);
            assert!(end.is_ok(), "{end:?}");
        }
    });
}

#[test]
fn a_redirect_is_told_and_never_followed() {
    run(async {
        let fake = Fake::start().await;
        let elsewhere = Fake::start().await;
        let attempt = attempt_with(
            provider(Dialect::OpenAiChat, &fake.address()),
            Limits::default(),
            64,
            Arc::new(Sentinel),
        );
        let (_, mut socket) = fake.request().await;
        let location = format!("Location: http://{}/v1/\r\n", elsewhere.address());
        say(&mut socket, &reply("308 Permanent Redirect", &location, "")).await;
        let error = attempt.fails().await;
        assert_eq!(error.failure.code, FailureCode::BadStream);
        assert!(error.failure.message.contains(&elsewhere.address()));
        let mut dialled = pin!(elsewhere.listener.accept());
        assert!(
            futures_util::poll!(dialled.as_mut()).is_pending(),
            "nobody went there"
        );
    });
}

#[test]
fn a_server_that_refuses_to_be_asked_for_the_usage_is_asked_without_it_once() {
    run(async {
        let fake = Fake::start().await;
        let gateway = Gateway::new(Arc::new(HandClock::default()), Arc::new(NoKeys)).unwrap();
        let provider = provider(Dialect::OpenAiChat, &fake.address());
        let (out, _events) = mpsc::channel(64);
        for (asked, retry) in [(true, Retry::Backoff), (false, Retry::Never)] {
            let (request, limits) = (request(), Limits::default());
            let serve = async {
                let (call, mut socket) = fake.request().await;
                assert_eq!(call.body.contains("stream_options"), asked);
                let body = "{\"detail\":\"extra field stream_options\"}";
                say(&mut socket, &reply("422 Unprocessable", "", body)).await;
                closed(&mut socket).await;
            };
            let (end, ()) =
                futures_util::join!(gateway.stream(&provider, &request, &limits, &out), serve);
            assert_eq!(end.unwrap_err().retry, retry);
        }
    });
}

/// Serves recorded documents by path until it is dropped with its test.
async fn serve(fake: Fake, documents: Vec<(&'static str, &'static str)>) {
    loop {
        let (call, mut socket) = fake.request().await;
        let path = call.line.split(' ').nth(1).unwrap().to_owned();
        let found = documents.iter().find(|(at, _)| *at == path);
        let answer = match found {
            Some((_, name)) => {
                let tape = cassette::load(name);
                reply(
                    &format!("{} X", tape.status),
                    "Server: test\r\n",
                    &tape.text(),
                )
            }
            None => reply(
                "404 Not Found",
                "Content-Type: text/plain\r\n",
                "404 page not found",
            ),
        };
        say(&mut socket, &answer).await;
        closed(&mut socket).await;
    }
}

/// What `ask` comes to while the documents are served.
async fn asked<T>(
    documents: Vec<(&'static str, &'static str)>,
    ask: impl AsyncFnOnce(Gateway, String) -> T,
) -> T {
    let fake = Fake::start().await;
    let address = fake.address();
    let gateway = Gateway::new(Arc::new(HandClock::default()), Arc::new(NoKeys)).unwrap();
    tokio::select! {
        answer = ask(gateway, address) => answer,
        () = serve(fake, documents) => unreachable!("it serves for ever"),
    }
}

const OLLAMA: [(&str, &str); 5] = [
    ("/api/tags", "ollama-tags"),
    ("/api/ps", "ollama-ps"),
    ("/api/version", "ollama-version"),
    ("/api/show", "ollama-show"),
    ("/v1/models", "ollama-v1-models"),
];

#[test]
fn an_ollama_is_found_as_one_however_it_is_addressed() {
    run(asked(OLLAMA.to_vec(), async |gateway, address| {
        for (typed, believed) in [
            (address.clone(), None),
            (format!("http://{address}/"), None),
            (format!("http://{address}/v1"), Some(Dialect::OpenAiChat)),
            (format!("http://{address}/v1/chat/completions"), None),
            (format!("{address}/api/chat"), Some(Dialect::Ollama)),
            (address.replace("127.0.0.1", "localhost"), None),
        ] {
            match gateway.probe(&typed, believed).await {
                ProbeReport::Works {
                    server,
                    dialect,
                    base_url,
                    models,
                } => {
                    assert!(server.starts_with("Ollama "), "{server}");
                    assert_eq!(dialect, Dialect::Ollama);
                    assert!(!base_url.ends_with('/') && !base_url.ends_with("v1"));
                    assert_eq!(models.len(), 3);
                    let small = &models[0];
                    assert_eq!(small.name, "smollm2:135m");
                    assert_eq!(small.loaded, Some(true));
                    assert_eq!(small.context_tokens, Some(4096), "the one in force");
                    assert_eq!(small.parameters.as_deref(), Some("134.52M"));
                    assert_eq!(models[1].loaded, Some(false));
                    assert_eq!(models[1].context_tokens, Some(8192), "the model's own");
                    assert_eq!(models[1].capabilities, ["completion", "tools", "thinking"]);
                }
                fails => panic!("{typed}: {fails:?}"),
            }
        }
    }));
}

#[test]
fn a_closer_look_at_one_model_and_whether_it_is_loaded() {
    run(asked(OLLAMA.to_vec(), async |gateway, address| {
        let provider = provider(Dialect::Ollama, &address);
        let model = gateway
            .model(&provider, "smollm2:135m-think")
            .await
            .unwrap();
        assert_eq!(model.capabilities, ["completion", "tools", "thinking"]);
        assert_eq!(model.context_tokens, Some(8192));
        let loading = async |name: &str| gateway.is_loading(&provider, name).await;
        assert_eq!(loading("smollm2:135m").await, Some(false));
        assert_eq!(
            loading("SmolLM2:135M").await,
            Some(false),
            "names have no case"
        );
        assert_eq!(loading("smollm2:135m-think").await, Some(true));
    }));
}

#[test]
fn a_llama_cpp_is_found_behind_whatever_path_it_has() {
    let single = vec![("/v1/models", "models-single")];
    run(asked(single, async |gateway, address| {
        let report = gateway.probe(&address, Some(Dialect::Ollama)).await;
        let ProbeReport::Works {
            server,
            dialect,
            base_url,
            models,
        } = report
        else {
            panic!("{report:?}");
        };
        assert_eq!(server, "llama.cpp");
        assert_eq!(dialect, Dialect::OpenAiChat);
        assert_eq!(base_url, format!("http://{address}/v1"));
        assert_eq!(models[0].loaded, Some(true));
        assert_eq!(models[0].context_tokens, Some(1024));
        assert_eq!(models[0].parameters.as_deref(), Some("135M"));
        assert_eq!(models[0].capabilities, ["completion"]);
    }));
    let router = vec![("/proxy/x/v1/models", "models-router-one-loaded")];
    run(asked(router, async |gateway, address| {
        let report = gateway.probe(&format!("{address}/proxy/x"), None).await;
        let ProbeReport::Works {
            base_url, models, ..
        } = report
        else {
            panic!("{report:?}");
        };
        assert_eq!(base_url, format!("http://{address}/proxy/x/v1"));
        let loaded: Vec<_> = models.iter().map(|model| model.loaded).collect();
        assert!(loaded.contains(&Some(true)) && loaded.contains(&Some(false)));
    }));
    let loading = vec![
        ("/v1/models", "loading-models"),
        ("/models", "loading-models"),
        ("/api/tags", "loading-models"),
        ("/api/ps", "loading-models"),
        ("/api/version", "loading-models"),
    ];
    run(asked(loading, async |gateway, address| {
        let report = gateway.probe(&address, None).await;
        assert!(
            matches!(&report, ProbeReport::Works { dialect: Dialect::OpenAiChat, models, .. } if models.is_empty()),
            "{report:?}"
        );
    }));
}

#[test]
fn an_address_where_nothing_fits_fails_in_words() {
    run(asked(vec![], async |gateway, address| {
        let ProbeReport::Fails { failure } = gateway.probe(&address, None).await else {
            panic!("nothing is there");
        };
        assert_eq!(failure.code, FailureCode::BadStream);
        let ProbeReport::Fails { failure } = gateway.probe("not an address", None).await else {
            panic!("nothing is there");
        };
        assert_eq!(failure.code, FailureCode::ConnectFailed);
    }));
}

#[test]
fn localhost_means_both_loopback_addresses() {
    run(async {
        let Ok(listener) = TcpListener::bind("[::1]:0").await else {
            // This machine has no IPv6, and so no such server.
            return;
        };
        let fake = Fake { listener };
        let port = fake.listener.local_addr().unwrap().port();
        let attempt = attempt(provider(Dialect::Ollama, &format!("localhost:{port}")));
        let (call, mut socket) = fake.request().await;
        assert_eq!(call.headers["host"], format!("localhost:{port}"));
        say(
            &mut socket,
            &reply("404 Not Found", "", "{\"error\":\"model 'm' not found\"}"),
        )
        .await;
        let error = attempt.fails().await;
        assert_eq!(error.failure.code, FailureCode::ModelNotFound);
        assert!(error.failure.message.contains("`ollama pull m`"));
    });
}

#[test]
fn a_peer_that_speaks_no_http_or_no_tls_is_told_from_one_that_is_away() {
    run(async {
        // What a TLS server, a mail server and a database say to a stranger.
        for bytes in [
            b"\x15\x03\x01\x00\x02\x02\x46".as_slice(),
            b"220 mail.example.org ESMTP\r\n",
            b"-ERR unknown command\r\n",
        ] {
            let fake = Fake::start().await;
            let attempt = attempt(provider(Dialect::OpenAiChat, &fake.address()));
            let (_, mut socket) = fake.request().await;
            socket.write_all(bytes).await.unwrap();
            drop(socket);
            let error = attempt.fails().await;
            let message = &error.failure.message;
            assert_eq!(error.failure.code, FailureCode::BadStream, "{message}");
            assert!(message.contains("does not speak HTTP"), "{message}");
            assert_eq!(error.retry, Retry::Never);
        }
        for answer in ["HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", ""] {
            let fake = Fake::start().await;
            let mut provider = provider(Dialect::OpenAiChat, &fake.address());
            provider.base_url = provider.base_url.replace("http://", "https://");
            let attempt = attempt(provider);
            let (mut socket, _) = fake.listener.accept().await.unwrap();
            let mut hello = [0; 4096];
            assert!(socket.read(&mut hello).await.unwrap() > 0);
            say(&mut socket, answer).await;
            socket.shutdown().await.unwrap();
            let error = attempt.fails().await;
            let message = &error.failure.message;
            assert_eq!(error.failure.code, FailureCode::ConnectFailed, "{message}");
            assert!(
                message.contains("does not speak TLS"),
                "{answer:?}: {message}"
            );
        }
    });
}

#[test]
fn silence_in_the_middle_of_a_call_or_a_tag_loses_nothing_of_either() {
    run(async {
        let fake = Fake::start().await;
        let mut attempt = attempt(provider(Dialect::OpenAiChat, &fake.address()));
        let (_, mut socket) = fake.request().await;
        say(&mut socket, CHUNKED).await;
        chunk(&mut socket, &delta("<think>a</thi")).await;
        let piece = "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\"}}]}}]}\n\n";
        chunk(&mut socket, piece).await;
        assert_eq!(attempt.next().await, ModelEvent::Sent);
        assert_eq!(attempt.next().await, text(Part::Reasoning, "a"));
        let progress = attempt.next().await;
        assert!(matches!(
            progress,
            ModelEvent::CallProgress {
                argument_bytes: 3,
                ..
            }
        ));
        let gap = Limits::default().gap;
        attempt.until_it_waits(gap).await;
        attempt.clock.advance(gap);
        assert_eq!(attempt.next().await, text(Part::Reasoning, "</thi"));
        let cut = ModelEvent::CallCut {
            name: "f".into(),
            arguments: "{\"x".into(),
        };
        assert_eq!(attempt.next().await, cut);
        let error = attempt.fails().await;
        assert_eq!(error.failure.code, FailureCode::IdleTimeout);
    });
}
