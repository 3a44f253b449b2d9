//! Servers in the real window: a key is entered and used, a certificate is trusted, and the doctor puts an address right.

use protocol::Dialect;
use tests::{
    model_server::{Answer, ModelServer},
    sentinel::Sentinel,
    tls_front::{Certificate, TlsFront},
};

use super::glass::{Desk, ENTER, Window};

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
