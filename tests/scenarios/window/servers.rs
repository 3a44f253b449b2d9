//! Servers in the real window: a key is entered and used, a certificate is trusted, and the doctor puts an address right.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use protocol::Dialect;
use serde_json::{Value, json};
use tests::{
    model_server::{Answer, ModelServer},
    sentinel::Sentinel,
    tls_front::{Certificate, TlsFront},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinSet,
};

use super::{
    glass::{Desk, ENTER, ESCAPE, Window},
    hold_back,
};

/// A server that lists its models to whoever shows it the key, and keeps the head of every request.
struct Guarded {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    /// It goes when this does.
    _serving: JoinSet<()>,
}

impl Guarded {
    async fn start(secret: &Sentinel) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let (kept, bearer) = (Arc::clone(&heads), format!("Bearer {secret}"));
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            loop {
                let (mut socket, _) = listener.accept().await.expect("a connection");
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match socket.read_u8().await {
                        Ok(byte) => head.push(byte),
                        // It only looked whether somebody is there.
                        Err(_) => break,
                    }
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let (status, body) = match (head.contains(&bearer), head.contains("/v1/models")) {
                    (false, _) => ("401 Unauthorized", "{}"),
                    (true, true) => ("200 OK", r#"{"object":"list","data":[{"id":"kelp"}]}"#),
                    (true, false) => ("404 Not Found", "{}"),
                };
                let length = body.len();
                kept.lock().unwrap().push(head);
                let answer = format!(
                    "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
                );
                // Whoever asked may have left.
                socket.write_all(answer.as_bytes()).await.ok();
            }
        });
        Self {
            address,
            heads,
            _serving: serving,
        }
    }

    fn root(&self) -> String {
        format!("http://{}", self.address)
    }

    fn heads(&self) -> String {
        self.heads.lock().unwrap().concat()
    }
}

/// What stands in the field for a key below `place`, and whether the focus is there.
async fn key_field(window: &Window, place: &str) -> (Value, Value) {
    let field = format!("document.querySelector('{place} [data-testid=key-field]')");
    let typed = window.run(&format!("return {field}.value")).await;
    let focus = format!("return {field} === document.activeElement");
    (typed, window.run(&focus).await)
}

const ADDING: &str = ".server-add";
const KNOWN: &str = "[data-testid=server]";

/// Opens the form of the one server there is.
async fn edit(window: &Window) {
    window.wait_for_focus("composer").await;
    window.chord(",").await;
    window.click("server-edit").await;
    window.wait_for("server-address").await;
}

/// Has the server examined, and waits for what was found.
async fn examined(window: &Window, verdict: &str) {
    window.click("examine").await;
    window.wait_for_text("doctor-verdict", verdict).await;
}

/// Gives the server another address.
async fn moved(window: &Window, address: &str) {
    edit(window).await;
    window.fill("server-address", address).await;
    window.press(ENTER).await;
    window.wait_until_gone("server-address").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn a_change_that_is_answered_after_the_list_shows_it_leaves_the_page_as_it_is() {
    let server = ModelServer::start(Dialect::OpenAiChat);
    Desk::tell("answered-late", &server, async |desk, window| {
        edit(&window).await;
        let address = format!("{}/v1/v1", server.root());
        window.fill("server-address", &address).await;
        window.run(&hold_back("submit")).await;
        window.press(ENTER).await;
        // The row with the form is another one by then, and who waits in it for the answer is gone.
        window.wait_for_text("server", &address).await;
        window.run("letGo()").await;
        window.wait_until_gone("server-address").await;
        examined(&window, ILL).await;
        assert_eq!(desk.library().providers[0].base_url, address);
        window.close().await;
    })
    .await;
}

const WELL: &str = "Everything is as it should be";
const ILL: &str = "This is what keeps it from being used";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn a_key_is_entered_kept_where_the_user_said_and_shown_to_the_server_alone() {
    let server = ModelServer::start(Dialect::OpenAiChat);
    let secret = Sentinel::new("sk-window-");
    Desk::tell("key", &server, async |desk, window| {
        edit(&window).await;
        window.fill("key-field", &secret.to_string()).await;
        // Where no keychain is, nothing is chosen beforehand; where one is, another place may be.
        window.click("key-in-file").await;
        window.picture("key-entry").await;
        window.click("key-keep").await;
        window
            .wait_for_text("key-status", "which only you can read")
            .await;
        window.picture("key-kept").await;
        assert_eq!(secret.count_in(&window.text().await), 0, "it is masked");
        let kept = desk.data_dir().join("keys.json");
        let kept = std::fs::read_to_string(kept).expect("the list of keys");
        assert_eq!(secret.count_in(&kept), 1);
        server.script(Answer::whole(Dialect::OpenAiChat, "Kelp."));
        window.chord("n").await;
        window.send("What grips the stone?").await;
        window.wait_for_text("message-assistant", "Kelp.").await;
        let chat = server.chat(1).await;
        assert_eq!(
            chat.header("authorization"),
            Some(format!("Bearer {secret}").as_str())
        );
        window.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn a_certificate_of_ones_own_is_shown_compared_and_trusted_and_then_a_turn_runs() {
    let server = ModelServer::start(Dialect::Ollama);
    let front = TlsFront::before(server.address(), Certificate::SelfSigned);
    let address = format!("https://{}", front.endpoint());
    Desk::tell("certificate", &server, async |desk, window| {
        moved(&window, &address).await;
        examined(&window, ILL).await;
        let print = front.fingerprint().in_pairs();
        window.wait_for_text("fingerprint", &print).await;
        window.picture("certificate").await;
        window.click("fingerprint-compared").await;
        window.click("trust").await;
        window.wait_for_text("doctor-verdict", WELL).await;
        window.picture("certificate-trusted").await;
        let trusted = &desk.library().providers[0].connection.trusts;
        assert_eq!(trusted.as_ref(), Some(&front.trusted()));
        server.script(Answer::whole(Dialect::Ollama, "Kelp."));
        window.chord("n").await;
        window.send("What grips the stone?").await;
        window.wait_for_text("message-assistant", "Kelp.").await;
        assert_eq!(server.chats().len(), 1);
        window.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn the_doctor_finds_a_doubled_path_and_puts_it_right_with_one_click() {
    let server = ModelServer::start(Dialect::OpenAiChat);
    let doubled = format!("{}/v1/v1", server.root());
    Desk::tell("doctor", &server, async |desk, window| {
        moved(&window, &doubled).await;
        examined(&window, ILL).await;
        window
            .wait_for_text("finding-address", "The path leads nowhere")
            .await;
        window.picture("doctor").await;
        let fix = window.wait_for("doctor-fix").await;
        // By keyboard alone.
        fix.send_keys(ENTER).await.expect("a button takes keys");
        window.wait_for_text("doctor-verdict", WELL).await;
        window.picture("doctor-well").await;
        let base = &desk.library().providers[0].base_url;
        assert_eq!(*base, format!("{}/v1", server.root()));
        window.close().await;
    })
    .await;
}

/// The way to the server that is being added, as its fields stand.
async fn open_the_way(window: &Window) {
    window.wait_for("add-way").await;
    window
        .run("document.querySelector('[data-testid=add-way]').open = true")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn a_server_is_not_asked_in_any_other_way_than_the_one_that_was_typed() {
    let (server, other) = (
        ModelServer::start(Dialect::Ollama),
        ModelServer::start(Dialect::OpenAiChat),
    );
    Desk::tell("mistyped", &server, async |_desk, window| {
        window.wait_for_focus("composer").await;
        window.chord(",").await;
        window.fill("settings-address", &other.root()).await;
        open_the_way(&window).await;
        window.fill("card", "00:1b:63").await;
        window.click("settings-test").await;
        window
            .wait_for_text("form-words", "looks like 00:1b:63:84:45:e6")
            .await;
        window.picture("mistyped").await;
        assert_eq!(other.counters().dials, 0, "nothing was sent");
        window.fill("card", "00:1b:63:84:45:e6").await;
        window.click("settings-test").await;
        window.wait_for_text("test-result", "answers, with").await;
        assert_eq!(window.texts("form-words").await, Vec::<String>::new());
        assert!(other.counters().dials > 0);
        window.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn a_header_that_was_typed_before_the_test_is_asked_with_and_saved_with_its_server() {
    let (server, other) = (
        ModelServer::start(Dialect::Ollama),
        ModelServer::start(Dialect::OpenAiChat),
    );
    Desk::tell("header", &server, async |desk, window| {
        window.wait_for_focus("composer").await;
        window.chord(",").await;
        window.fill("settings-address", &other.root()).await;
        open_the_way(&window).await;
        window.click("header-add").await;
        window.fill("header-name", "X-Reef").await;
        window.fill("header-value", "kelp").await;
        // The fields in which it was typed go, and others come that show it.
        window.click("settings-test").await;
        window.wait_for_text("test-result", "answers, with").await;
        window.click("settings-save").await;
        window.wait_for_nth("server", 2).await;
        let providers = desk.library().providers;
        let added = providers
            .iter()
            .find(|provider| provider.base_url.starts_with(&other.root()));
        let headers = &added.expect("the other server").connection.headers;
        let header = headers.first().expect("a header");
        assert_eq!(
            (header.name.as_str(), header.value.as_deref()),
            ("X-Reef", Some("kelp"))
        );
        window.close().await;
    })
    .await;
}

/// Has the address that is being added tested, which wants a key.
async fn tested(window: &Window, server: &Guarded) {
    window.fill("settings-address", &server.root()).await;
    window.click("settings-test").await;
    window.wait_for_text("test-result", "wants a key").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn a_key_that_was_typed_for_one_address_is_forgotten_when_another_one_is_typed() {
    let server = ModelServer::start(Dialect::OpenAiChat);
    let secret = Sentinel::new("sk-window-");
    let (first, other) = (Guarded::start(&secret).await, Guarded::start(&secret).await);
    Desk::tell("key-of-another", &server, async |_desk, window| {
        window.wait_for_focus("composer").await;
        window.chord(",").await;
        tested(&window, &first).await;
        window.fill("key-field", &secret.to_string()).await;
        window.fill("settings-address", &other.root()).await;
        assert_eq!(key_field(&window, ADDING).await.0, json!(""));
        window.click("settings-test").await;
        window.wait_for_text("test-result", "wants a key").await;
        assert_eq!(secret.count_in(&other.heads()), 0, "{}", other.heads());
        // Typed for this one, it is shown to this one.
        window.fill("key-field", &secret.to_string()).await;
        window.click("settings-test").await;
        window.wait_for_text("test-result", "answers, with").await;
        assert_eq!(secret.count_in(&first.heads()), 0);
        assert!(secret.count_in(&other.heads()) > 0);
        window.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn to_enter_a_key_puts_the_focus_into_the_field_of_the_server_that_wants_it() {
    let server = ModelServer::start(Dialect::OpenAiChat);
    let secret = Sentinel::new("sk-window-");
    let (known, new) = (Guarded::start(&secret).await, Guarded::start(&secret).await);
    Desk::tell("key-focus", &server, async |_desk, window| {
        moved(&window, &format!("{}/v1", known.root())).await;
        tested(&window, &new).await;
        examined(&window, ILL).await;
        window.click("doctor-key").await;
        let here = format!("{KNOWN} [data-testid=key-field]:focus");
        window
            .wait_for_script(&format!("return document.querySelector('{here}') !== null"))
            .await;
        assert_eq!(key_field(&window, ADDING).await.1, json!(false));
        // And the other way round, with both fields there.
        window.click("settings-why").await;
        window
            .wait_for_script(&format!(
                "return document.querySelector('{ADDING} [data-testid=doctor-key]') !== null"
            ))
            .await;
        window
            .run(&format!(
                "document.querySelector('{ADDING} [data-testid=doctor-key]').click()"
            ))
            .await;
        assert_eq!(key_field(&window, ADDING).await.1, json!(true));
        window.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn a_key_that_was_typed_at_the_welcome_is_kept_though_its_form_is_gone_by_then() {
    let server = ModelServer::start(Dialect::OpenAiChat);
    let secret = Sentinel::new("sk-window-");
    let guarded = Guarded::start(&secret).await;
    Desk::tell("key-at-the-welcome", &server, async |desk, window| {
        window.wait_for_focus("composer").await;
        window.chord(",").await;
        window.wait_for("server").await;
        window
            .run("document.querySelector('[data-testid=server] [title=Remove]').click()")
            .await;
        window.wait_until_gone("server").await;
        window.press(ESCAPE).await;
        window.fill("welcome-address", &guarded.root()).await;
        window.click("welcome-connect").await;
        window.fill("key-field", &secret.to_string()).await;
        window.click("key-in-file").await;
        window.run(&hold_back("submit")).await;
        window.click("welcome-connect").await;
        // The window learns of the server before the form does.
        window.wait_until_gone("welcome").await;
        window.run("window.letGo()").await;
        let kept = desk.data_dir().join("keys.json");
        desk.until("the key is kept", |_| {
            let kept = std::fs::read_to_string(&kept).unwrap_or_default();
            secret.count_in(&kept) == 1
        })
        .await;
        window.close().await;
    })
    .await;
}
