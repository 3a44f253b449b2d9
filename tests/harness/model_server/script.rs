//! Scripts: what the server does with one request, as values.

use protocol::Dialect;

use super::Request;

/// What the server does with one request for a chat.
#[derive(Clone, Debug)]
pub struct Script {
    pub(super) condition: Condition,
    pub(super) head: Option<Head>,
    pub(super) head_gate: Option<String>,
    pub(super) steps: Vec<Step>,
    pub(super) ending: Ending,
}

/// Which request a script is meant for.
#[derive(Clone, Debug)]
pub(super) enum Condition {
    Next,
    LastMessageContains(String),
}

/// Status line and headers; without one, the steps are the raw bytes of the connection.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) content_type: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) framing: Framing,
}

/// How the end of a body is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Chunked,
    UntilClose,
    Length(usize),
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Send(Vec<u8>),
    Gate(String),
}

/// How a connection ends after the last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// As HTTP wants it.
    Proper,
    /// The connection is closed, whether the body was complete or not.
    Fin,
    /// The connection is reset.
    Rst,
    /// Nothing more comes; the client has to close.
    Silence,
}

/// The two ways in which a connection ends before its answer does.
pub const CUTS: [Ending; 2] = [Ending::Fin, Ending::Rst];

impl Script {
    /// A whole answer that is no stream: errors, web pages.
    pub fn page(status: u16, content_type: &str, body: &str) -> Self {
        Self {
            condition: Condition::Next,
            head: Some(Head {
                status,
                content_type: content_type.to_owned(),
                headers: Vec::new(),
                framing: Framing::Length(body.len()),
            }),
            head_gate: None,
            steps: vec![Step::Send(body.as_bytes().to_vec())],
            ending: Ending::Proper,
        }
    }

    /// Somebody else's web page: a router's login, a proxy's error.
    pub fn html(status: u16) -> Self {
        let body = "<!DOCTYPE html>\n<html><head><title>Welcome</title></head><body><h1>It works!</h1></body></html>\n";
        Self::page(status, "text/html; charset=utf-8", body)
    }

    /// How `dialect`'s server answers when it has no model of that name.
    pub fn unknown_model(dialect: Dialect, model: &str) -> Self {
        match dialect {
            Dialect::Ollama => Self::error(dialect, 404, &format!("model '{model}' not found")),
            Dialect::OpenAiChat => Self::error(dialect, 400, &format!("model '{model}' not found")),
            Dialect::Anthropic => Self::error(dialect, 404, &format!("model: {model}")),
            Dialect::Local => Self::error(dialect, 404, &format!("There is no file {model}.")),
        }
    }

    /// An error with a status of its own, in the form of `dialect`.
    pub fn error(dialect: Dialect, status: u16, message: &str) -> Self {
        let body = match dialect {
            Dialect::Ollama => serde_json::json!({ "error": message }),
            Dialect::OpenAiChat => {
                let kind = match status {
                    401 => "authentication_error",
                    403 => "permission_error",
                    429 => "rate_limit_error",
                    503 => "unavailable_error",
                    500.. => "server_error",
                    _ => "invalid_request_error",
                };
                serde_json::json!({ "error": { "code": status, "message": message, "type": kind } })
            }
            Dialect::Anthropic => super::answer::anthropic_error(status, message),
            Dialect::Local => {
                let code = match status {
                    404 => "ModelNotFound",
                    400..500 => "BadRequest",
                    _ => "ProviderError",
                };
                let frame = format!("{}\n", super::answer::failed(code, message));
                return Self::page(200, "application/x-ndjson", &frame);
            }
        };
        Self::page(status, "application/json; charset=utf-8", &body.to_string())
    }

    /// The connection ends before a single byte of an answer.
    pub fn hang_up(ending: Ending) -> Self {
        Self::raw(Vec::new(), ending)
    }

    /// These writes, byte for byte, status line included.
    pub(super) fn raw(writes: Vec<Vec<u8>>, ending: Ending) -> Self {
        Self {
            condition: Condition::Next,
            head: None,
            head_gate: None,
            steps: writes.into_iter().map(Step::Send).collect(),
            ending,
        }
    }

    /// One more header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let head = self
            .head
            .as_mut()
            .expect("a raw script has no headers of its own");
        head.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Holds everything, headers included, at a gate.
    #[must_use]
    pub fn head_behind(mut self, gate: &str) -> Self {
        self.head_gate = Some(gate.to_owned());
        self
    }

    /// Whether a gate holds the headers back.
    #[must_use]
    pub fn waits_with_its_head(&self) -> bool {
        self.head_gate.is_some()
    }

    /// The body ends with the connection instead of in chunks.
    #[must_use]
    pub fn unchunked(mut self) -> Self {
        self.head
            .as_mut()
            .expect("a raw script has its own framing")
            .framing = Framing::UntilClose;
        self
    }

    /// The same, but the connection ends otherwise.
    #[must_use]
    pub fn but_ends(mut self, ending: Ending) -> Self {
        self.ending = ending;
        self
    }

    /// Sends the body in pieces of `size` bytes, wherever that cuts: lines, code points, UTF-8 sequences.
    #[must_use]
    pub fn in_pieces_of(mut self, size: usize) -> Self {
        let mut steps = Vec::new();
        let mut run = Vec::new();
        for step in self.steps {
            match step {
                Step::Send(bytes) => run.extend(bytes),
                Step::Gate(gate) => {
                    cut_into(&mut steps, std::mem::take(&mut run), size);
                    steps.push(Step::Gate(gate));
                }
            }
        }
        cut_into(&mut steps, run, size);
        self.steps = steps;
        self
    }

    /// Meant for the request whose last message contains `text`, whenever that comes.
    #[must_use]
    pub fn when_asked(mut self, text: &str) -> Self {
        self.condition = Condition::LastMessageContains(text.to_owned());
        self
    }

    pub(super) fn is_for(&self, request: &Request) -> bool {
        match &self.condition {
            Condition::Next => true,
            Condition::LastMessageContains(text) => request
                .messages()
                .last()
                .is_some_and(|message| message.content.contains(text.as_str())),
        }
    }

    pub(super) fn gates(&self) -> impl Iterator<Item = &str> {
        let in_steps = self.steps.iter().filter_map(|step| match step {
            Step::Gate(name) => Some(name.as_str()),
            Step::Send(_) => None,
        });
        self.head_gate.as_deref().into_iter().chain(in_steps)
    }
}

fn cut_into(steps: &mut Vec<Step>, bytes: Vec<u8>, size: usize) {
    steps.extend(bytes.chunks(size).map(|piece| Step::Send(piece.to_vec())));
}
