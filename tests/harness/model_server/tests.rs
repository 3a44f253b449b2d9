use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream as Client},
};

use super::*;

fn ask(server: &ModelServer, path: &str, body: &str) -> Client {
    let mut client = Client::connect(server.address).expect("the server listens");
    write!(
        client,
        "POST {path} HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .expect("the request goes out");
    client
}

fn rest(client: &mut Client) -> (String, Option<std::io::ErrorKind>) {
    let mut bytes = Vec::new();
    let error = client
        .read_to_end(&mut bytes)
        .err()
        .map(|error| error.kind());
    (
        String::from_utf8(bytes).expect("scripts of these tests are text"),
        error,
    )
}

const CHAT: &str = r#"{"model":"lighthouse:1b","messages":[{"role":"user","content":"hello"}]}"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_script_is_played_byte_for_byte_and_its_request_is_kept() {
    let server = ModelServer::start(Dialect::OpenAiChat);
    server.script(
        Answer::new(Dialect::OpenAiChat)
            .raw(b"one")
            .gate("middle")
            .raw(b"two")
            .ends(),
    );
    let mut client = ask(&server, "/v1/chat/completions", CHAT);
    server.pass("middle").await;
    let (text, error) = rest(&mut client);
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    assert!(text.contains("\r\n3\r\none\r\n3\r\ntwo\r\n"), "{text}");
    assert!(text.ends_with("data: [DONE]\n\n\r\n0\r\n\r\n"), "{text}");
    assert_eq!(error, None);
    assert_eq!(
        server.chat(1).await.conversation(),
        [("user".to_owned(), "hello".to_owned())]
    );
    let counters = server
        .until("the connection to end", |counters| counters.open == 0)
        .await;
    assert_eq!(
        counters,
        Counters {
            dials: 1,
            chats: 1,
            closed_by_us: 0,
            open: 0
        }
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_ends_the_connection_without_an_end_of_the_body() {
    let kinds = [
        (Ending::Fin, None),
        (Ending::Rst, Some(std::io::ErrorKind::ConnectionReset)),
    ];
    for (ending, expected) in kinds {
        let server = ModelServer::start(Dialect::Ollama);
        server.script(
            Answer::new(Dialect::Ollama)
                .says("half")
                .gate("cut")
                .cut(ending),
        );
        let mut client = ask(&server, "/api/chat", CHAT);
        server.pass("cut").await;
        let (text, error) = rest(&mut client);
        assert!(
            text.ends_with("\n\r\n"),
            "the frame is there, the last chunk is not: {text}"
        );
        assert_eq!(error, expected, "{ending:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hangs_up_is_noticed_while_the_server_is_silent() {
    let server = ModelServer::start(Dialect::Ollama);
    server.script(Answer::new(Dialect::Ollama).says("half").goes_silent());
    let client = ask(&server, "/api/chat", CHAT);
    server.chat(1).await;
    assert_eq!(server.counters().closed_by_us, 0);
    client.shutdown(Shutdown::Both).expect("an open connection");
    server
        .until("the hang-up to be counted", |counters| {
            counters.closed_by_us == 1
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pieces_may_cut_code_points() {
    let server = ModelServer::start(Dialect::Ollama);
    server.script(
        Answer::new(Dialect::Ollama)
            .raw("é".as_bytes())
            .cut(Ending::Fin)
            .unchunked()
            .in_pieces_of(1),
    );
    let mut client = ask(&server, "/api/chat", CHAT);
    let (text, _) = rest(&mut client);
    assert!(text.ends_with("\r\n\r\né"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_script_expects_fails_the_test_with_the_request_printed() {
    let server = ModelServer::start(Dialect::Ollama);
    let mut client = ask(&server, "/api/chat", CHAT);
    rest(&mut client);
    let complaint = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(server)))
        .expect_err("dropping the server complains");
    let complaint = complaint.downcast_ref::<String>().expect("in words");
    assert!(
        complaint.contains("unexpected request: POST /api/chat"),
        "{complaint}"
    );
    assert!(complaint.contains("hello"), "{complaint}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_nobody_asks_for_fails_the_test() {
    let server = ModelServer::start(Dialect::Ollama);
    server.script(Answer::new(Dialect::Ollama).gate("never").ends());
    let complaint = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(server)))
        .expect_err("dropping the server complains");
    let complaint = complaint.downcast_ref::<String>().expect("in words");
    assert!(
        complaint.contains("never reached") && complaint.contains("never asked for"),
        "{complaint}"
    );
}
