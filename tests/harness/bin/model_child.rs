//! The stand-in for a model's own process: it asks the scripted server, and passes on what that says.
//!
//! The model's file is none; its path names the server. A connection that ends before the answer ends the process too:
//! by FIN it leaves with a code, by RST it is killed. So every story about a connection is one about a process.

#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "part of the test harness"
)]

use std::{
    io::{BufRead, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::{Arc, Mutex, PoisonError},
};

use protocol::model_process::{Ask, Order};
use serde_json::json;

/// The ask that is under way, and its connection.
type Current = Arc<Mutex<Option<(u64, TcpStream)>>>;

/// The whole program.
pub(crate) fn main() {
    say(b"{\"frame\":\"Ready\"}\n");
    let current = Current::default();
    let mut file = String::new();
    let mut is_first = true;
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        match serde_json::from_str(&line).expect("an order") {
            Order::Load(load) => file = load.file,
            Order::Ask(ask) => {
                let (file, current) = (file.clone(), Arc::clone(&current));
                let preface = if std::mem::take(&mut is_first) {
                    "{\"frame\":\"Loaded\",\"load_ms\":20,\"context_tokens\":4096}\n"
                } else {
                    ""
                };
                std::thread::spawn(move || pass_on(&file, &ask, preface, &current));
            }
            Order::Stop { ask } => {
                let mut current = current.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some((_, stream)) = current.take_if(|(asked, _)| *asked == ask) {
                    // It may have ended by itself.
                    stream.shutdown(Shutdown::Both).unwrap_or(());
                }
            }
        }
    }
    // Whoever started it is gone.
    std::process::exit(0);
}

fn say(bytes: &[u8]) {
    let mut stdout = std::io::stdout().lock();
    let said = stdout.write_all(bytes).and_then(|()| stdout.flush());
    if said.is_err() {
        std::process::exit(0);
    }
}

/// Asks, and passes on the answer; `preface` and the number of the ask go out with its first bytes, in one write.
fn pass_on(file: &str, ask: &Ask, preface: &str, current: &Current) {
    let address = file
        .split('/')
        .find_map(|part| part.parse::<SocketAddr>().ok())
        .expect("the server's address in the path");
    let model = file.rsplit('/').next().unwrap_or_default();
    let begun = format!("{preface}{}\n", json!({ "frame": "Asked", "ask": ask.ask }));
    let Ok(mut stream) = TcpStream::connect(address) else {
        let words = json!({ "frame": "Failed", "code": "ConnectFailed", "message": "refused" });
        return say(format!("{begun}{words}\n").as_bytes());
    };
    let mine = stream.try_clone().expect("one more handle of a socket");
    *current.lock().unwrap_or_else(PoisonError::into_inner) = Some((ask.ask, mine));
    let mut body = serde_json::to_value(ask).expect("an ask is JSON");
    body["model"] = model.into();
    let body = body.to_string();
    let head = format!(
        "POST /local/chat HTTP/1.1\r\nHost: {address}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut end = stream
        .write_all([head.as_bytes(), body.as_bytes()].concat().as_slice())
        .err();
    let mut bytes = vec![0; 64 * 1024];
    let mut came = Vec::new();
    let mut begun = Some(begun);
    while end.is_none() {
        let count = match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) => {
                end = Some(error);
                break;
            }
        };
        came.extend_from_slice(&bytes[..count]);
        if let Some(first) = begun.take() {
            let Some(head) = came.windows(4).position(|window| window == b"\r\n\r\n") else {
                begun = Some(first);
                continue;
            };
            came.drain(..head + 4);
            if came.is_empty() {
                begun = Some(first);
                // The head is behind us; what follows it is the body.
                came.extend_from_slice(b"\r\n\r\n");
                continue;
            }
            say(&[first.as_bytes(), &came].concat());
        } else {
            let from = came.len() - count;
            say(&came[from..]);
        }
        if is_over(&came) {
            current
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take_if(|(asked, _)| *asked == ask.ask);
            // The server may have closed it already.
            stream.shutdown(Shutdown::Both).unwrap_or(());
            return;
        }
    }
    let was_stopped = current
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take_if(|(asked, _)| *asked == ask.ask)
        .is_none();
    if was_stopped {
        return;
    }
    match end {
        None => std::process::exit(1),
        Some(_) => std::process::abort(),
    }
}

/// Whether a frame that ends an answer has come, whole.
fn is_over(came: &[u8]) -> bool {
    let text = String::from_utf8_lossy(came);
    let Some((whole, _)) = text.rsplit_once('\n') else {
        return false;
    };
    whole
        .lines()
        .any(|line| line.contains("\"frame\":\"Ended\"") || line.contains("\"frame\":\"Failed\""))
}
