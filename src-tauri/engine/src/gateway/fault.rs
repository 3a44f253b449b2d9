//! What a decoder can say against an answer, before anybody knows whose answer it is.

use protocol::model_process::Failed;
use serde::de::IgnoredAny;
use serde_json::Value;

/// Why an answer is not one.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fault {
    /// The bytes ended without the dialect's end marker.
    Truncated,
    /// The server said what is wrong.
    Said(Said),
    /// These bytes are no answer of this dialect.
    Unreadable(Unreadable),
    /// A frame or the calls outgrew what we hold.
    TooLong,
    /// A proper end, and nothing said.
    Empty,
    /// The end says that tools were called; none was.
    CallsMissing,
    /// The model's own process said what is wrong, and what kind of failure that is.
    Failed(Failed),
}

/// Bytes that are no answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Unreadable {
    pub(super) kind: Kind,
    pub(super) place: Place,
    pub(super) bytes: u64,
    pub(super) excerpt: String,
}

/// What they look like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// A web page.
    Page,
    /// JSON of another meaning.
    Json,
    /// What begins like JSON and is none.
    BrokenJson,
    /// Words.
    #[default]
    Text,
}

/// Raw text kept of a server's reply: more than the reader is shown, so that a key in it is found whole before it is
/// cut for showing.
pub(super) const EXCERPT_BYTES_MAX: usize = 8192;

impl Unreadable {
    pub(super) fn new(text: &str) -> Self {
        let mut unreadable = Self {
            kind: Kind::of(text),
            ..Self::default()
        };
        unreadable.add(text);
        unreadable
    }

    /// More of it came.
    pub(super) fn add(&mut self, text: &str) {
        self.bytes = self.bytes.saturating_add(text.len() as u64);
        let room = EXCERPT_BYTES_MAX.saturating_sub(self.excerpt.len());
        self.excerpt.push_str(clip(text, room));
    }
}

/// Where in an answer they stood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Place {
    /// In place of it.
    #[default]
    Instead,
    /// In the middle of it.
    Midway,
}

impl Fault {
    /// The fault of an answer of which something had come, or nothing.
    pub(super) fn after(mut self, began: bool) -> Self {
        if let (Self::Unreadable(unreadable), true) = (&mut self, began) {
            unreadable.place = Place::Midway;
        }
        self
    }
}

impl Kind {
    pub(super) fn of(text: &str) -> Self {
        match text.trim_start().bytes().next() {
            Some(b'<') => Self::Page,
            Some(b'{' | b'[') if serde_json::from_str::<IgnoredAny>(text).is_ok() => Self::Json,
            Some(b'{' | b'[') => Self::BrokenJson,
            _ => Self::Text,
        }
    }
}

/// At most `bytes` of `text`, cut between characters.
pub(super) fn clip(text: &str, bytes: usize) -> &str {
    if text.len() <= bytes {
        return text;
    }
    let mut end = bytes;
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    text.get(..end).unwrap_or_default()
}

/// An error in a server's words, whatever it was wrapped in.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Said {
    /// Its words; may be empty.
    pub(super) message: String,
    /// `type`, in its words.
    pub(super) kind: String,
    /// `code`, as a word.
    pub(super) code: String,
    /// `code` or `status`, if it is an HTTP status.
    pub(super) status: Option<u16>,
    /// Tokens that the prompt has, where it says so.
    pub(super) prompt_tokens: Option<u64>,
    /// Tokens that the context holds, where it says so.
    pub(super) context_tokens: Option<u64>,
}

/// Errors within errors within errors: nobody wraps them deeper than this.
const DEPTH_MAX: usize = 4;

impl Said {
    /// Words without any structure.
    pub(super) fn words(message: &str) -> Self {
        Self {
            message: clip(message.trim(), EXCERPT_BYTES_MAX).to_owned(),
            ..Self::default()
        }
    }

    /// What there is to show of it: its words, or else by what name its server knows it.
    pub(super) fn shown(&self) -> &str {
        let is_status = |code: &str| self.status.is_some_and(|s| code.parse() == Ok(s));
        let all = [&self.message, &self.code, &self.kind];
        let mut all = all.into_iter().map(|words| words.trim());
        all.find(|words| !words.is_empty() && !is_status(words))
            .unwrap_or_default()
    }

    /// What it means that an answer ended for this reason, in the server's word, if it means that it was given up.
    pub(super) fn given_up(reason: &str) -> Option<Self> {
        const SIGNS: [&str; 10] = [
            "error",
            "abort",
            "cancel",
            "interrupt",
            "insufficient",
            "timeout",
            "timed_out",
            "fail",
            "overload",
            "disconnect",
        ];
        let word = reason.to_ascii_lowercase();
        SIGNS.iter().any(|sign| word.contains(sign)).then(|| {
            Self::words(&match word.as_str() {
                "error" | "abort" | "aborted" => {
                    "the server gave the answer up without saying why".to_owned()
                }
                _ => format!("the server gave the answer up ({reason})"),
            })
        })
    }

    /// The error a JSON value is, if it is one: `{"error": …}` in every form, FastAPI's `detail`, vLLM's
    /// `{"object":"error"}`. `{"error":null}` is none.
    pub(super) fn read(value: &Value) -> Option<Self> {
        Self::read_at(value, 0)
    }

    fn read_at(value: &Value, depth: usize) -> Option<Self> {
        if let Value::Array(list) = value {
            // Google's servers wrap an error into a list.
            return list
                .first()
                .filter(|_| depth < DEPTH_MAX)
                .and_then(|first| Self::read_at(first, depth.saturating_add(1)));
        }
        let fields = value.as_object()?;
        let is_number = |name: &str| fields.get(name).is_some_and(Value::is_u64);
        match fields.get("error").or_else(|| fields.get("errors")) {
            Some(Value::Null | Value::Bool(false)) => return None,
            Some(Value::String(text)) if text.is_empty() => return None,
            Some(error) => return Some(Self::inner(error, depth)),
            None => {}
        }
        if fields.get("object").and_then(Value::as_str) == Some("error")
            || fields.get("type").and_then(Value::as_str) == Some("error")
            // A gateway's own words, bare. In a model's frame `message` is an object.
            || (fields.get("message").is_some_and(Value::is_string)
                && (is_number("code") || is_number("status"))
                && !fields.contains_key("choices"))
        {
            return Some(Self::inner(value, depth));
        }
        // Gateways that say with every frame whether all is well.
        let failed = fields.get("success") == Some(&Value::Bool(false))
            || matches!(
                fields.get("status").and_then(Value::as_str),
                Some("error" | "failed" | "failure")
            );
        if failed && !fields.contains_key("choices") && !fields.contains_key("done") {
            let words = [
                "message",
                "msg",
                "error_msg",
                "error_message",
                "errmsg",
                "detail",
            ];
            let words = words.iter().find_map(|name| fields.get(*name)?.as_str());
            return Some(match words {
                Some(words) => Self::words(words),
                None => Self::inner(value, depth),
            });
        }
        match fields.get("detail") {
            Some(Value::String(text)) => Some(Self::words(text)),
            Some(detail @ (Value::Array(_) | Value::Object(_))) => {
                Some(Self::words(&detail.to_string()))
            }
            _ => None,
        }
    }

    fn inner(error: &Value, depth: usize) -> Self {
        match error {
            Value::String(text) => {
                // Ollama passes its runner's JSON on as a string.
                if depth < DEPTH_MAX
                    && text.trim_start().starts_with('{')
                    && let Ok(wrapped) = serde_json::from_str::<Value>(text)
                    && let Some(said) = Self::read_at(&wrapped, depth.saturating_add(1))
                {
                    return said;
                }
                Self::words(text)
            }
            Value::Object(fields) => {
                if depth < DEPTH_MAX
                    && let Some(said) = Self::read_at(error, depth.saturating_add(1))
                {
                    return said;
                }
                let text = |name: &str| match fields.get(name) {
                    Some(Value::String(text)) => text.clone(),
                    _ => String::new(),
                };
                let number = |name: &str| fields.get(name).and_then(Value::as_u64);
                let mut said = match fields.get("message") {
                    Some(Value::String(message)) => {
                        // A string that is JSON again.
                        let said =
                            Self::inner(&Value::String(message.clone()), depth.saturating_add(1));
                        if said.message.is_empty() {
                            Self::words(message)
                        } else {
                            said
                        }
                    }
                    Some(Value::Null) | None => Self::words(&text("detail")),
                    Some(other) => Self::words(&other.to_string()),
                };
                if said.kind.is_empty() {
                    said.kind = text("type");
                }
                if said.code.is_empty() {
                    said.code = text("code");
                }
                if said.code.is_empty() {
                    said.code = number("code").map_or_else(String::new, |code| code.to_string());
                }
                said.status = said.status.or_else(|| {
                    ["code", "status", "status_code", "http_code"]
                        .into_iter()
                        .find_map(|name| {
                            let number = number(name)
                                .or_else(|| fields.get(name)?.as_str()?.parse().ok())?;
                            u16::try_from(number)
                                .ok()
                                .filter(|s| (300..600).contains(s))
                        })
                });
                said.prompt_tokens = said.prompt_tokens.or_else(|| number("n_prompt_tokens"));
                said.context_tokens = said.context_tokens.or_else(|| number("n_ctx"));
                said
            }
            Value::Array(list) => list
                .first()
                .filter(|_| depth < DEPTH_MAX)
                .map(|first| Self::inner(first, depth.saturating_add(1)))
                .unwrap_or_default(),
            other => Self::words(&other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_error_is_found_in_every_wrapping() {
        for (value, message) in [
            (json!({"error":"plain string"}), "plain string"),
            (
                json!({"error":{"message":"quota exceeded","code":429}}),
                "quota exceeded",
            ),
            (json!({"error":{"message":"m"},"choices":[]}), "m"),
            (json!({"error":{"error":{"message":"deep"}}}), "deep"),
            (
                json!({"error":"{\"error\":{\"code\":400,\"message\":\"as a string\"}}"}),
                "as a string",
            ),
            (
                json!({"error":{"message":"{\"error\":{\"message\":\"in the message\"}}"}}),
                "in the message",
            ),
            (json!({"errors":[{"message":"first"}]}), "first"),
            (json!({"detail":"Not authenticated"}), "Not authenticated"),
            (
                json!({"object":"error","message":"vLLM","code":404}),
                "vLLM",
            ),
            (json!({"error":{}}), ""),
            (json!({"error":true}), "true"),
            (json!({"error":"{not json"}), "{not json"),
        ] {
            let said = Said::read(&value).unwrap_or_else(|| panic!("no error in {value}"));
            assert_eq!(said.message, message, "{value}");
        }
        for value in [
            json!({"error":null}),
            json!({}),
            json!({"error":""}),
            json!([]),
            json!(null),
        ] {
            assert_eq!(Said::read(&value), None, "{value}");
        }
    }

    #[test]
    fn a_status_is_read_from_a_number_or_its_digits_and_never_from_a_word() {
        let status = |code: Value| Said::read(&json!({"error":{"code":code}})).unwrap().status;
        assert_eq!(status(json!(429)), Some(429));
        assert_eq!(status(json!("503")), Some(503));
        assert_eq!(status(json!("invalid_api_key")), None);
        assert_eq!(status(json!(-1)), None);
        assert_eq!(status(json!(70000)), None);
    }

    #[test]
    fn an_excerpt_is_bounded_and_never_cuts_a_character() {
        let mut unreadable = Unreadable::new("<html>");
        unreadable.add(&"日".repeat(EXCERPT_BYTES_MAX));
        assert_eq!(unreadable.kind, Kind::Page);
        assert!(unreadable.excerpt.len() <= EXCERPT_BYTES_MAX);
        assert_eq!(unreadable.bytes, 6 + 3 * EXCERPT_BYTES_MAX as u64);
    }
}
