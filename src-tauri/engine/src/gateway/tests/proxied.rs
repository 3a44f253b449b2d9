//! The system's proxy and its exemptions, as they stand in the environment of a process of its own.
//!
//! What is through a proxy is really dialled, and so is what is on this computer. What is past it is only decided: its
//! names lead nowhere.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::Command,
    sync::Arc,
    time::Duration,
};

use reqwest::Url;

use super::HandClock;
use crate::{
    Harness,
    gateway::{dial::Dialer, peer::Peer, way::Way},
};

const URLS: &str = "HOLDFAST_TEST_URLS";
const CHILD: &str = "gateway::tests::proxied::the_child_says_which_way_it_goes";

/// Answers every request with `words`, until somebody says that it is enough.
fn answering(listener: &TcpListener, words: &str) {
    for socket in listener.incoming() {
        let mut socket = socket.expect("a connection");
        let mut head = BufReader::new(socket.try_clone().expect("the same socket")).lines();
        let first = head.next().and_then(Result::ok).unwrap_or_default();
        if first == "ENOUGH" {
            return;
        }
        let rest = head.take_while(|line| line.as_ref().is_ok_and(|line| !line.is_empty()));
        rest.for_each(drop);
        let length = words.len();
        let answer = format!(
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{words}"
        );
        // Who asked may be gone.
        let _ = socket.write_all(answer.as_bytes());
    }
}

fn enough(at: SocketAddr) {
    let socket = TcpStream::connect(at).and_then(|mut socket| socket.write_all(b"ENOUGH\n"));
    socket.expect("it still listens");
}

/// Each address with the way to it, as a process with this environment goes.
fn ways(environment: &[(&str, &str)], urls: &[String]) -> Vec<(String, String)> {
    let mut child = Command::new(std::env::current_exe().expect("this program"));
    child.args(["--exact", CHILD, "--ignored", "--nocapture"]);
    for name in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
        child.env_remove(name).env_remove(name.to_uppercase());
    }
    child.env_remove("REQUEST_METHOD");
    child
        .env(URLS, urls.join(" "))
        .envs(environment.iter().copied());
    let told = child.output().expect("it runs");
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    let ways = told.lines().filter_map(|line| {
        let (_, told) = line.split_once("WAY ")?;
        let (url, way) = told.split_once(' ')?;
        Some((url.to_owned(), way.to_owned()))
    });
    let ways: Vec<_> = ways.collect();
    assert_eq!(ways.len(), urls.len(), "{told}");
    ways
}

#[test]
#[ignore = "is run by another test, with an environment of its own"]
fn the_child_says_which_way_it_goes() {
    let Ok(urls) = std::env::var(URLS) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let dialer = Dialer::new(Arc::<HandClock>::default()).unwrap();
    for url in urls.split(' ') {
        let at: Url = url.parse().unwrap();
        let route = Way::default().to(&at, &Harness::default());
        let is_here = url.contains("127.0.0.1") || url.contains("localhost");
        let way = if is_here || route.proxy_before(&at).is_some() {
            let peer = Peer::at(&at);
            let asked = dialer.get(&at, &peer, Duration::from_secs(10));
            let document = runtime.block_on(asked).expect("an answer");
            String::from_utf8_lossy(&document.body).into_owned()
        } else {
            "past".to_owned()
        };
        println!("\nWAY {url} {way}");
    }
}

#[test]
fn the_systems_proxy_is_gone_past_wherever_it_is_said_and_always_to_this_computer() {
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = TcpListener::bind("127.0.0.1:0").unwrap();
    let (proxy_at, here_at) = (proxy.local_addr().unwrap(), here.local_addr().unwrap());
    std::thread::scope(|threads| {
        threads.spawn(|| answering(&proxy, "through"));
        threads.spawn(|| answering(&here, "past"));
        let named = format!("http://{proxy_at}");
        let far = [
            "http://example.invalid/",
            "http://api.example.invalid/",
            "http://notexample.invalid/",
            "http://api.example.invalid:8080/",
            "http://203.0.113.7/",
            "http://203.0.114.7/",
            "http://[2001:db8::7]/",
        ];
        let near = [
            format!("http://{here_at}/"),
            format!("http://localhost:{}/", here_at.port()),
        ];
        let urls: Vec<String> = far.map(str::to_owned).into_iter().chain(near).collect();
        for (variable, exempt, past) in [
            ("HTTP_PROXY", "", &[][..]),
            ("http_proxy", "example.invalid", &[0, 1, 3]),
            ("ALL_PROXY", "203.0.113.7", &[4]),
            ("HTTP_PROXY", "example.invalid", &[0, 1, 3]),
            ("HTTP_PROXY", ".example.invalid", &[0, 1, 3]),
            ("HTTP_PROXY", "*.example.invalid", &[0, 1, 3]),
            ("HTTP_PROXY", "EXAMPLE.invalid , 203.0.113.7", &[0, 1, 3, 4]),
            ("HTTP_PROXY", "203.0.113.0/24", &[4]),
            ("HTTP_PROXY", "203.0.0.0/16,.lan", &[4, 5]),
            ("HTTP_PROXY", "2001:db8::/32", &[6]),
            ("HTTP_PROXY", "2001:db8::7", &[6]),
            ("HTTP_PROXY", "api.example.invalid:8080", &[3]),
            ("HTTP_PROXY", "*", &[0, 1, 2, 3, 4, 5, 6]),
        ] {
            let environment = [(variable, named.as_str()), ("NO_PROXY", exempt)];
            for (n, (url, way)) in ways(&environment, &urls).into_iter().enumerate() {
                let is_past = n >= far.len() || past.contains(&n);
                let expected = if is_past { "past" } else { "through" };
                assert_eq!(way, expected, "{url} with {variable} and NO_PROXY={exempt}");
            }
        }
        enough(proxy_at);
        enough(here_at);
    });
}
