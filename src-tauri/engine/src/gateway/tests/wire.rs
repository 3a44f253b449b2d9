//! Every malformed or unusual reply that users of other apps met on the wire, served over a real socket and cut at every
//! byte, and what it comes to: its events, its end, and the words for the reader.
//!
//! A case is named as the collection of these faults names it: groups B (spinners), D (the wire), E (calls), F (reasoning),
//! G (usage, context, life cycle) and H (addresses). [`ELSEWHERE`] says where a case is told that is no reply.
//! Each piece is a chunk of HTTP, which is what makes it a read of ours, however the kernel hands it on.

mod cases;

use std::{collections::BTreeSet, sync::Arc};

use protocol::{Dialect, Part};
use tokio::{io::AsyncWriteExt, net::TcpListener, sync::mpsc};

use crate::gateway::{AttemptError, Gateway, Limits, ModelEvent, NoKeys, Retry, StepEnd};

use super::loopback::{Call, HandClock, closed, provider, request, run};

/// A reply, and what it comes to.
struct Case {
    /// As the collection names it; several rows may tell the same case.
    id: &'static str,
    dialect: Dialect,
    /// Status and further headers.
    head: &'static str,
    body: Vec<u8>,
    /// What the reader gets, in order: see [`told`].
    told: String,
    /// What the words for the reader must hold, where it fails.
    words: &'static str,
}

/// Cases of these groups that are no reply of a server, and where they are told.
const ELSEWHERE: [(&str, &str); 22] = [
    (
        "B20",
        "loopback: silence before the first event has its own limit; faults: timed",
    ),
    (
        "B21",
        "loopback: all said but neither done nor closed completes within a short grace",
    ),
    (
        "B23",
        "following, any_windows: a window that comes back is whole",
    ),
    (
        "B24",
        "faults: cancelled; nothing of a turn that ended is running",
    ),
    (
        "B26",
        "following: state is folded from the log, not from edges",
    ),
    (
        "B27",
        "killed, killed_at: recovery closes what a crash left open",
    ),
    (
        "B50",
        "turn machine: three requests for an answer, six repeats in a turn",
    ),
    (
        "B60",
        "conversation, killed, approving: the scripted server refuses what a real one does",
    ),
    (
        "B65",
        "fold: a text item for each part, in the order they came",
    ),
    ("B67", "no title is asked of a model: it is the first words"),
    (
        "B68",
        "requests: reasoning is not sent back, but to the server that signed it, in its turn",
    ),
    (
        "B70",
        "requests: history is never cut by the server, for it is told not to",
    ),
    ("B72", "mutants: CompactAgain"),
    ("B73", "loopback: headers end no silence; one request only"),
    (
        "B74",
        "requests: context length and keep_alive are the same in every request",
    ),
    (
        "B75",
        "loopback: an Ollama is found as one however it is addressed",
    ),
    (
        "B76",
        "loopback: dropping an attempt closes its socket wherever it is; faults: cancelled",
    ),
    ("B78", "not a reply of a chat: pulls have their own decoder"),
    ("B80", "loopback: localhost means both loopback addresses"),
    ("B81", "dial: near servers are asked without a proxy"),
    (
        "B82",
        "loopback: a peer that speaks no HTTP or no TLS is told from one that is away",
    ),
    (
        "B83",
        "address: every way to write an address means the same bases",
    ),
];

/// The cases of these groups; other numbers are of other groups, or were never given.
const CASES: [u8; 48] = [
    19, 20, 21, 23, 24, 25, 26, 27, 28, 29, 38, 39, 40, 41, 42, 44, 45, 46, 48, 49, 50, 51, 52, 53,
    55, 57, 58, 59, 60, 61, 62, 64, 65, 67, 68, 70, 71, 72, 73, 74, 75, 76, 77, 78, 80, 81, 82, 83,
];

#[test]
fn every_case_of_these_groups_is_told_here_or_elsewhere() {
    let here: BTreeSet<&str> = cases::all().iter().map(|case| case.id).collect();
    for id in CASES.map(|number| format!("B{number}")) {
        let elsewhere = ELSEWHERE.iter().any(|(other, _)| *other == id);
        assert!(
            here.contains(id.as_str()) || elsewhere,
            "{id} is told nowhere"
        );
    }
}

/// What a reader is told, a line each: `thinks …`, `says …`, `calls name arguments` (`?calls` if it must not run),
/// `cut name arguments`, and the end: `ends Reason` or `fails Code how it may be repeated`.
fn told(events: &[ModelEvent], end: &Result<StepEnd, AttemptError>) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut open = None;
    for event in events {
        match event {
            ModelEvent::Text { part, text } => {
                if open == Some(*part)
                    && let Some(line) = lines.last_mut()
                {
                    line.push_str(text);
                    continue;
                }
                open = Some(*part);
                lines.push(match part {
                    Part::Answer => format!("says {text}"),
                    Part::Reasoning => format!("thinks {text}"),
                });
                continue;
            }
            ModelEvent::FoundReasoning => {
                if let Some(line) = lines.last_mut() {
                    *line = line.replacen("says", "thinks", 1);
                }
            }
            ModelEvent::Call {
                name,
                arguments,
                unclear,
                ..
            } => {
                let doubt = if unclear.is_some() { "?" } else { "" };
                lines.push(format!("{doubt}calls {name} {arguments}"));
            }
            ModelEvent::CallCut { name, arguments } => {
                lines.push(format!("cut {name} {arguments}"));
            }
            ModelEvent::Sent
            | ModelEvent::Loading { .. }
            | ModelEvent::ReadingPrompt { .. }
            | ModelEvent::CallProgress { .. }
            | ModelEvent::Verbatim { .. } => continue,
        }
        open = None;
    }
    lines.push(match end {
        Ok(end) => format!("ends {:?}", end.finish),
        Err(error) => {
            let again = match error.retry {
                Retry::Never => "never".to_owned(),
                Retry::Backoff => "again".to_owned(),
                Retry::After(wait) => format!("after {} s", wait.as_secs()),
                Retry::WhenLoaded(_) => "when loaded".to_owned(),
                Retry::Shorter(_) => "shorter".to_owned(),
            };
            format!("fails {:?} {again}", error.failure.code)
        }
    });
    lines.join("\n")
}

/// How a body is sent.
#[derive(Clone, Copy, Debug)]
enum Pieces {
    Whole,
    /// With its length in the head.
    Measured,
    /// Until the connection ends.
    UntilClose,
    /// Pieces of so many bytes.
    Of(usize),
    /// Two pieces.
    Cut(usize),
}

impl Case {
    fn reply(&self, pieces: Pieces) -> Vec<u8> {
        let framing = match pieces {
            Pieces::Measured => format!("Content-Length: {}\r\n", self.body.len()),
            Pieces::UntilClose => "Connection: close\r\n".to_owned(),
            Pieces::Whole | Pieces::Of(_) | Pieces::Cut(_) => {
                "Transfer-Encoding: chunked\r\n".to_owned()
            }
        };
        let mut reply = format!("HTTP/1.1 {}\r\n{framing}\r\n", self.head).into_bytes();
        let chunks: Vec<&[u8]> = match pieces {
            Pieces::Measured | Pieces::UntilClose => {
                reply.extend_from_slice(&self.body);
                return reply;
            }
            Pieces::Whole => vec![&self.body],
            Pieces::Of(size) => self.body.chunks(size).collect(),
            Pieces::Cut(at) => {
                let (head, tail) = self.body.split_at(at);
                vec![head, tail]
            }
        };
        for chunk in chunks.into_iter().filter(|chunk| !chunk.is_empty()) {
            reply.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            reply.extend_from_slice(chunk);
            reply.extend_from_slice(b"\r\n");
        }
        reply.extend_from_slice(b"0\r\n\r\n");
        reply
    }

    /// Every way to send it that may matter: all cuts of a small body; of a large one those beside a line end, a quote,
    /// a bracket or a character of several bytes.
    fn ways(&self) -> Vec<Pieces> {
        let mut ways = vec![
            Pieces::Whole,
            Pieces::Measured,
            Pieces::UntilClose,
            Pieces::Of(1),
            Pieces::Of(7),
            Pieces::Of(4096),
        ];
        let matters = |at: usize| {
            let beside = [at.checked_sub(1), Some(at)].into_iter().flatten();
            beside
                .filter_map(|at| self.body.get(at))
                .any(|byte| !byte.is_ascii_alphanumeric())
        };
        let small = self.body.len() <= SMALL;
        let cuts = (1..self.body.len()).filter(|at| small || matters(*at));
        let cuts: Vec<usize> = cuts.collect();
        let most = if self.body.len() > LARGE {
            CUTS_OF_LARGE
        } else {
            CUTS_MAX
        };
        let step = cuts.len().div_ceil(most).max(1);
        ways.extend(cuts.into_iter().step_by(step).map(Pieces::Cut));
        ways
    }
}

/// Bytes of a body that is cut everywhere.
const SMALL: usize = 300;
const CUTS_MAX: usize = 300;
/// Of a body that takes long to send.
const LARGE: usize = 8 * 1024;
const CUTS_OF_LARGE: usize = 24;

/// What comes of one reply.
async fn attempt(gateway: &Gateway, listener: &TcpListener, case: &Case, pieces: Pieces) -> String {
    let address = listener.local_addr().unwrap().to_string();
    let provider = provider(case.dialect, &address);
    let reply = case.reply(pieces);
    let serve = async {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.set_nodelay(true).unwrap();
        Call::read(&mut socket).await;
        // A client that has heard enough hangs up.
        if socket.write_all(&reply).await.is_ok() {
            let _ = socket.shutdown().await;
        }
        closed(&mut socket).await;
    };
    let (out, mut inbox) = mpsc::channel(16);
    let listen = async {
        let mut events = Vec::new();
        while let Some(event) = inbox.recv().await {
            events.push(event);
        }
        events
    };
    let ask = async {
        let end = gateway
            .stream(&provider, &request(), &Limits::default(), &out)
            .await;
        drop(out);
        end
    };
    let (end, events, ()) = futures_util::join!(ask, listen, serve);
    if let Err(error) = &end {
        let message = &error.failure.message;
        assert!(
            message.contains(case.words),
            "{} {pieces:?}: {message:?} lacks {:?}",
            case.id,
            case.words
        );
        assert!(
            !message.contains("<html") && !message.contains("{\"error"),
            "{}: {message}",
            case.id
        );
    }
    told(&events, &end)
}

#[test]
fn every_reply_comes_to_the_same_however_it_is_cut() {
    run(async {
        let gateway = Gateway::new(Arc::new(HandClock::default()), Arc::new(NoKeys)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        for case in cases::all() {
            for pieces in case.ways() {
                let got = attempt(&gateway, &listener, &case, pieces).await;
                assert_eq!(
                    got,
                    case.told,
                    "{} {pieces:?} {:?}\n{}",
                    case.id,
                    case.dialect,
                    String::from_utf8_lossy(&case.body)
                );
            }
        }
    });
}
