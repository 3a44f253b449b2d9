//! Recorded answers of real servers, from `tests/cassettes`: the first line of a file says what was asked and how the
//! reply began and ended, every further line is one piece of the body and when it came.

use std::{fs, path::PathBuf};

use serde_json::Value;

/// How a recorded body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum Ended {
    /// As HTTP wants it.
    Complete,
    /// In the middle: the server died.
    Cut,
    /// By the client that recorded it.
    ClientClosed,
}

/// One recorded reply.
#[derive(Debug)]
pub(in crate::gateway) struct Cassette {
    pub(in crate::gateway) name: String,
    pub(in crate::gateway) path: String,
    pub(in crate::gateway) status: u16,
    pub(in crate::gateway) pieces: Vec<Vec<u8>>,
    pub(in crate::gateway) ended: Ended,
}

impl Cassette {
    pub(in crate::gateway) fn body(&self) -> Vec<u8> {
        self.pieces.concat()
    }

    pub(in crate::gateway) fn text(&self) -> String {
        String::from_utf8(self.body()).expect("recorded bodies are text")
    }
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/cassettes")
}

/// The cassette of that name.
pub(in crate::gateway) fn load(name: &str) -> Cassette {
    let path = folder().join(format!("{name}.jsonl"));
    let file = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut lines = file
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("a cassette is lines of JSON"));
    let head = lines.next().expect("a cassette has a head");
    let ended = match head["ended"].as_str() {
        Some("complete") => Ended::Complete,
        Some("cut") => Ended::Cut,
        Some("client_closed") => Ended::ClientClosed,
        other => panic!("{name}: ended {other:?}"),
    };
    let pieces = lines
        .map(|line| match (&line["body"], &line["bytes"]) {
            (Value::String(text), _) => text.clone().into_bytes(),
            (_, Value::Array(bytes)) => bytes
                .iter()
                .map(|b| {
                    b.as_u64()
                        .and_then(|b| u8::try_from(b).ok())
                        .expect("a byte")
                })
                .collect(),
            other => panic!("{name}: {other:?} is no piece of a body"),
        })
        .collect();
    Cassette {
        name: name.to_owned(),
        path: head["path"].as_str().unwrap_or_default().to_owned(),
        status: head["status"]
            .as_u64()
            .and_then(|s| u16::try_from(s).ok())
            .expect("a status"),
        pieces,
        ended,
    }
}

/// Every cassette there is, by name.
pub(in crate::gateway) fn all() -> Vec<Cassette> {
    let mut names: Vec<String> = fs::read_dir(folder())
        .expect("the folder of cassettes")
        .filter_map(|entry| {
            let name = entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("a plain name");
            name.strip_suffix(".jsonl").map(str::to_owned)
        })
        .collect();
    names.sort();
    assert!(names.len() > 100, "the cassettes are missing");
    names.iter().map(|name| load(name)).collect()
}
