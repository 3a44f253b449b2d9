//! Cassettes: recorded answers of real servers, from `tests/cassettes`. The first line of a file says what was asked and
//! how the reply began and ended; every further line is one piece of the body.

use std::path::Path;

use protocol::Dialect;
use serde_json::Value;

use super::script::{Condition, Ending, Framing, Head, Script, Step};

/// A recorded answer.
#[derive(Clone, Debug)]
pub struct Cassette {
    name: String,
    status: u16,
    content_type: String,
    pieces: Vec<Vec<u8>>,
    ending: Ending,
    dialect: Dialect,
}

impl Cassette {
    /// The cassette of that name.
    pub fn load(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cassettes");
        let file = folder.join(format!("{name}.jsonl"));
        let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{name}: {e}"));
        let mut lines = text.lines().map(|line| {
            serde_json::from_str::<Value>(line).unwrap_or_else(|e| panic!("{name}: {e}"))
        });
        let head = lines.next().unwrap_or_else(|| panic!("{name} is empty"));
        let words = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Self {
            status: head["status"]
                .as_u64()
                .and_then(|s| s.try_into().ok())
                .expect("a status"),
            content_type: words(&head["headers"]["content-type"]),
            pieces: lines.map(|line| piece(name, &line)).collect(),
            ending: match head["ended"].as_str() {
                Some("complete") => Ending::Proper,
                Some("cut") => Ending::Fin,
                Some("client_closed") => Ending::Silence,
                other => panic!("{name} ended {other:?}"),
            },
            dialect: match head["path"].as_str() {
                Some(path) if path.starts_with("/api/") => Dialect::Ollama,
                Some("/v1/messages") => Dialect::Anthropic,
                _ => Dialect::OpenAiChat,
            },
            name: name.to_owned(),
        }
    }

    /// The language it is in.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The server says it again, piece by piece.
    pub fn script(&self) -> Script {
        Script {
            condition: Condition::Next,
            head: Some(Head {
                status: self.status,
                content_type: self.content_type.clone(),
                headers: Vec::new(),
                framing: Framing::Chunked,
            }),
            head_gate: None,
            steps: self.pieces.iter().cloned().map(Step::Send).collect(),
            ending: self.ending,
        }
    }

    /// What the model says in it, `(reasoning, answer)`: read without the product's decoders, by knowing that real
    /// servers write one frame a line.
    pub fn said(&self) -> (String, String) {
        let body = String::from_utf8(self.pieces.concat())
            .unwrap_or_else(|_| panic!("{} is no text", self.name));
        let (mut reasoning, mut answer) = (String::new(), String::new());
        for line in body.lines() {
            let frame = line.strip_prefix("data: ").unwrap_or(line);
            // Pings, the end marker, and what a proxy mixes in.
            let Ok(frame) = serde_json::from_str::<Value>(frame) else {
                continue;
            };
            let voice = match self.dialect {
                Dialect::Ollama => &frame["message"],
                Dialect::Local => &frame,
                Dialect::OpenAiChat => &frame["choices"][0]["delta"],
                Dialect::Anthropic => &frame["delta"],
            };
            for field in ["thinking", "reasoning_content", "reasoning"] {
                reasoning.push_str(voice[field].as_str().unwrap_or_default());
            }
            for field in ["content", "text"] {
                answer.push_str(voice[field].as_str().unwrap_or_default());
            }
        }
        (reasoning, answer)
    }
}

fn piece(name: &str, line: &Value) -> Vec<u8> {
    match (&line["body"], &line["bytes"]) {
        (Value::String(text), _) => text.clone().into_bytes(),
        (_, Value::Array(bytes)) => bytes
            .iter()
            .map(|byte| {
                byte.as_u64()
                    .and_then(|byte| byte.try_into().ok())
                    .expect("a byte")
            })
            .collect(),
        other => panic!("{name}: {other:?} is no piece of a body"),
    }
}
