//! What the scripted Ollama has on its disk and in its memory, and how a download goes.

use std::sync::{Mutex, PoisonError};

use protocol::Dialect;
use serde_json::{Value, json};

use super::{
    MODEL, Request, Script,
    script::{Condition, Ending, Framing, Head, Step},
};

/// Its models.
#[derive(Debug)]
pub(super) struct Stock(Mutex<Vec<Kept>>);

#[derive(Clone, Debug)]
struct Kept {
    name: String,
    loaded: bool,
    capabilities: Vec<String>,
}

impl Default for Stock {
    fn default() -> Self {
        Self(Mutex::new(vec![Kept {
            name: MODEL.to_owned(),
            loaded: true,
            capabilities: vec!["completion".to_owned(), "tools".to_owned()],
        }]))
    }
}

impl Stock {
    fn kept(&self) -> std::sync::MutexGuard<'_, Vec<Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more model, or another under a name that was there; it is not in memory.
    pub(super) fn add(&self, name: &str, capabilities: &[&str]) {
        let mut all = self.kept();
        all.retain(|kept| kept.name != name);
        all.push(Kept {
            name: name.to_owned(),
            loaded: false,
            capabilities: capabilities.iter().map(|c| (*c).to_owned()).collect(),
        });
    }

    /// One model less.
    pub(super) fn remove(&self, name: &str) {
        self.kept().retain(|kept| kept.name != name);
    }

    /// Whether a model is in memory.
    pub(super) fn load(&self, name: &str, loaded: bool) {
        for kept in self.kept().iter_mut().filter(|kept| kept.name == name) {
            kept.loaded = loaded;
        }
    }

    /// What it says about its models, and does to them.
    pub(super) fn answer(&self, request: &Request) -> Option<Script> {
        let asked = request.json();
        let named = |field: &str| asked[field].as_str().unwrap_or_default().to_owned();
        let body = match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/api/tags") => {
                let kept = self.kept();
                json!({ "models": kept.iter().map(listed).collect::<Vec<_>>() })
            }
            ("GET", "/api/ps") => {
                let kept = self.kept();
                let loaded = kept.iter().filter(|kept| kept.loaded);
                json!({ "models": loaded.map(running).collect::<Vec<_>>() })
            }
            ("POST", "/api/show") => {
                let kept = self.kept();
                let found = kept.iter().find(|kept| kept.name == named("model"));
                match found {
                    Some(kept) => json!({
                        "details": details(),
                        "capabilities": kept.capabilities,
                        "model_info": {
                            "general.architecture": "llama", "llama.context_length": 8192,
                        },
                    }),
                    None => return Some(Script::unknown_model(Dialect::Ollama, &named("model"))),
                }
            }
            ("DELETE", "/api/delete") => {
                let mut kept = self.kept();
                let before = kept.len();
                kept.retain(|kept| kept.name != named("model"));
                if kept.len() == before {
                    return Some(Script::unknown_model(Dialect::Ollama, &named("model")));
                }
                return Some(Script::page(200, "text/plain", ""));
            }
            ("POST", "/api/copy") => {
                let mut kept = self.kept();
                let found = kept
                    .iter()
                    .find(|kept| kept.name == named("source"))
                    .cloned();
                match found {
                    Some(source) => {
                        kept.retain(|kept| kept.name != named("destination"));
                        kept.push(Kept {
                            name: named("destination"),
                            loaded: false,
                            ..source
                        });
                    }
                    None => return Some(Script::unknown_model(Dialect::Ollama, &named("source"))),
                }
                return Some(Script::page(200, "text/plain", ""));
            }
            ("POST", "/api/generate") if asked["keep_alive"] == 0 => {
                self.load(&named("model"), false);
                json!({ "model": named("model"), "response": "", "done": true, "done_reason": "unload" })
            }
            _ => return None,
        };
        let text = body.to_string();
        Some(Script::page(200, "application/json; charset=utf-8", &text))
    }
}

fn details() -> Value {
    json!({
        "parent_model": "", "format": "gguf", "family": "llama", "families": ["llama"],
        "parameter_size": "1.2B", "quantization_level": "Q4_K_M",
    })
}

fn listed(kept: &Kept) -> Value {
    json!({
        "name": kept.name, "model": kept.name, "modified_at": "2026-02-28T12:00:00Z",
        "size": 800_000_000, "digest": "a".repeat(64), "details": details(),
    })
}

fn running(kept: &Kept) -> Value {
    json!({
        "name": kept.name, "model": kept.name, "size": 900_000_000, "digest": "a".repeat(64),
        "details": details(), "expires_at": "2026-03-01T10:00:00Z", "size_vram": 0,
        "context_length": 4096,
    })
}

/// A download, told line by line.
#[derive(Clone, Debug, Default)]
pub struct Download {
    steps: Vec<Step>,
}

impl Download {
    /// One that has begun.
    pub fn new() -> Self {
        Self::default().status("pulling manifest")
    }

    /// A line that says what the server does.
    #[must_use]
    pub fn status(self, status: &str) -> Self {
        self.line(&json!({ "status": status }))
    }

    /// A line about one part; numbers that are 0 are left out, as Ollama does.
    #[must_use]
    pub fn part(self, digest: &str, total: u64, completed: u64) -> Self {
        let mut line = json!({
            "status": format!("pulling {digest}"), "digest": format!("sha256:{digest}"),
        });
        for (name, bytes) in [("total", total), ("completed", completed)] {
            if bytes > 0 {
                line[name] = bytes.into();
            }
        }
        self.line(&line)
    }

    /// Waits at a gate.
    #[must_use]
    pub fn gate(mut self, name: &str) -> Self {
        self.steps.push(Step::Gate(name.to_owned()));
        self
    }

    /// The server has the model.
    pub fn succeeds(self) -> Script {
        self.status("verifying sha256 digest")
            .status("writing manifest")
            .status("success")
            .script(Ending::Proper)
    }

    /// The server gives up, in a line of the stream.
    pub fn fails(self, words: &str) -> Script {
        self.line(&json!({ "error": words })).script(Ending::Proper)
    }

    /// The bytes end.
    pub fn is_cut(self) -> Script {
        self.script(Ending::Proper)
    }

    /// Nothing more comes.
    pub fn goes_silent(self) -> Script {
        self.script(Ending::Silence)
    }

    fn line(mut self, line: &Value) -> Self {
        self.steps
            .push(Step::Send(format!("{line}\n").into_bytes()));
        self
    }

    fn script(self, ending: Ending) -> Script {
        Script {
            condition: Condition::Next,
            head: Some(Head {
                status: 200,
                content_type: "application/x-ndjson".to_owned(),
                headers: Vec::new(),
                framing: Framing::Chunked,
            }),
            head_gate: None,
            steps: self.steps,
            ending,
        }
    }
}
