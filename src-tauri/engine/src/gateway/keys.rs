//! Keys of providers: what they are to the gateway, and where it asks for them.
//!
//! Invariant: a secret is where it is kept and in the outgoing header, nowhere else. Kept by a type that cannot be
//! printed or serialised, and by [`Secrets::redact`], which every word of a server passes through before it is kept.
//! Not here: in which header a secret goes (`access`), and where it is kept (`cabinet`).

use std::{collections::BTreeMap, fmt, pin::Pin};

use protocol::Provider;
use reqwest::header::HeaderValue;

/// The answer of [`Keys`], which may take a while.
pub type Asked<'a> = Pin<Box<dyn Future<Output = Result<Secrets, KeyTrouble>> + Send + 'a>>;

/// Where keys come from.
pub trait Keys: Send + Sync + 'static {
    /// The secrets of a provider, for the address it has now. Bounded in time: a keychain may be waiting for its own
    /// password. Dropping the answer asks no less.
    fn secrets<'a>(&'a self, provider: &'a Provider) -> Asked<'a>;
}

/// Why there is no answer whether a provider has a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyTrouble {
    /// It is kept where nobody answers.
    #[error(
        "the system’s keychain did not answer within {seconds} s; it may be waiting for its password in a window of its own"
    )]
    Silent {
        /// How long it was waited for.
        seconds: u64,
    },
    /// It could not be read.
    #[error("{0}")]
    Unreadable(String),
    /// It was kept, and is no more where it was: nothing is lost by keeping another one.
    #[error("{0}")]
    Gone(String),
    /// It was entered for another address, and is not sent anywhere else.
    #[error(
        "its key was entered for {entered_for} and is not sent to another address; enter it again in the settings, or say there that it is for this one too"
    )]
    ForAnother {
        /// The origin it was entered for.
        entered_for: String,
    },
}

/// No keys at all: for servers on one's own machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoKeys;

impl Keys for NoKeys {
    fn secrets<'a>(&'a self, _provider: &'a Provider) -> Asked<'a> {
        Box::pin(std::future::ready(Ok(Secrets::default())))
    }
}

/// What a provider is shown that nobody else is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secrets {
    /// Its key, or password.
    pub key: Option<ApiKey>,
    /// Values of headers, by their names in small letters.
    pub headers: BTreeMap<String, ApiKey>,
}

impl Secrets {
    /// A key alone.
    pub fn of(key: ApiKey) -> Self {
        Self {
            key: Some(key),
            headers: BTreeMap::new(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.key.is_none() && self.headers.is_empty()
    }

    /// `text` without any of them in it: servers like to repeat what they were sent.
    pub(super) fn redact(&self, text: String) -> String {
        let all = self.key.iter().chain(self.headers.values());
        all.fold(text, |text, secret| secret.redact(text))
    }
}

/// A secret. Unprintable.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

/// Shorter ones are not looked for in a server's words: they would tear holes into ordinary text.
const REDACTED_BYTES_MIN: usize = 6;

impl ApiKey {
    /// As pasted: white space around it is not part of it.
    pub fn new(secret: &str) -> Self {
        Self(secret.trim().to_owned())
    }

    /// The secret, for whoever keeps it.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// The key itself, of what people copy with it: quotes around it, `Bearer`, a header's name.
    fn token(&self) -> &str {
        let mut token = self.0.as_str();
        loop {
            let before = token;
            for prefix in ["authorization:", "x-api-key:", "bearer "] {
                let head = token.get(..prefix.len());
                if head.is_some_and(|head| head.eq_ignore_ascii_case(prefix)) {
                    token = token.get(prefix.len()..).unwrap_or_default();
                }
            }
            for (open, close) in [('"', '"'), ('\'', '\''), ('`', '`'), ('“', '”'), ('‘', '’')]
            {
                let inside = token
                    .strip_prefix(open)
                    .and_then(|rest| rest.strip_suffix(close));
                token = inside.unwrap_or(token);
            }
            token = token.trim();
            if token == before {
                return token;
            }
        }
    }

    /// The value of the `Authorization` header, marked as sensitive; nothing if the key holds what no header can.
    pub(super) fn bearer(&self) -> Option<HeaderValue> {
        sensitive(&format!("Bearer {}", self.token()))
    }

    /// The same for a header that holds the key and nothing else.
    pub(super) fn alone(&self) -> Option<HeaderValue> {
        sensitive(self.token())
    }

    /// The same with a name, of which this is the password.
    pub(super) fn basic(&self, user: &str) -> Option<HeaderValue> {
        sensitive(&format!("Basic {}", self.encoded(user)))
    }

    /// The same for a header of its own.
    pub(super) fn bare(&self) -> Option<HeaderValue> {
        sensitive(&self.0)
    }

    /// In the form in which a password goes out.
    pub(super) fn encoded(&self, user: &str) -> String {
        use base64::{Engine, prelude::BASE64_STANDARD};
        BASE64_STANDARD.encode(format!("{user}:{}", self.0))
    }

    /// `text` without this secret in it, also as JSON, a URL or a web page would write it.
    pub(super) fn redact(&self, mut text: String) -> String {
        for secret in [self.0.as_str(), self.token()] {
            if secret.len() < REDACTED_BYTES_MIN {
                continue;
            }
            let in_json = serde_json::to_string(secret).unwrap_or_default();
            let in_json = in_json.get(1..in_json.len().saturating_sub(1));
            let in_json = in_json.unwrap_or_default().to_owned();
            let forms = [
                secret.to_owned(),
                in_json.replace('/', "\\/"),
                in_json,
                in_url(secret, |byte| format!("%{byte:02X}")),
                in_url(secret, |byte| format!("%{byte:02x}")),
                in_page(secret),
            ];
            for form in forms {
                if !form.is_empty() && text.contains(&form) {
                    text = text.replace(&form, "(redacted)");
                }
            }
        }
        text
    }
}

/// As the query of a URL has it; small letters and digits stay.
fn in_url(text: &str, sign: impl Fn(u8) -> String) -> String {
    text.bytes().fold(String::new(), |mut all, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            all.push(char::from(byte));
        } else {
            all.push_str(&sign(byte));
        }
        all
    })
}

/// As HTML has it.
fn in_page(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

fn sensitive(secret: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(secret).ok()?;
    value.set_sensitive(true);
    Some(value)
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(redacted)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_cannot_be_printed_and_is_taken_out_of_a_servers_words() {
        let key = ApiKey::new(" sk-secret-123\n");
        assert_eq!(format!("{key:?}"), "ApiKey(redacted)");
        let mut secrets = Secrets::of(key.clone());
        secrets
            .headers
            .insert("x-ticket".to_owned(), ApiKey::new("ticket-456"));
        let printed = format!("{secrets:?}");
        assert!(
            !printed.contains("123") && !printed.contains("456"),
            "{printed}"
        );
        for value in [key.bearer(), key.bare(), key.basic("kelp")] {
            assert_eq!(
                format!("{value:?}"),
                "Some(Sensitive)",
                "the header is marked, so no log shows it"
            );
        }
        assert_eq!(
            secrets.redact("bad key sk-secret-123, bad ticket-456!".into()),
            "bad key (redacted), bad (redacted)!"
        );
        assert_eq!(ApiKey::new("a\nb").bearer(), None);
    }

    #[test]
    fn what_people_copy_with_a_key_is_no_part_of_it() {
        for pasted in [
            "sk-secret-123",
            "Bearer sk-secret-123",
            "bearer  sk-secret-123 ",
            "Authorization: Bearer sk-secret-123",
            "\"sk-secret-123\"",
            "'Bearer sk-secret-123'",
            "“sk-secret-123”",
        ] {
            let key = ApiKey::new(pasted);
            let text = |value: Option<HeaderValue>| value?.to_str().map(str::to_owned).ok();
            let want = Some("Bearer sk-secret-123".to_owned());
            assert_eq!(text(key.bearer()), want, "{pasted}");
            assert_eq!(
                text(key.alone()).as_deref(),
                Some("sk-secret-123"),
                "{pasted}"
            );
            let echoed = key.redact("no: sk-secret-123, no".to_owned());
            assert_eq!(echoed, "no: (redacted), no", "{pasted}");
        }
    }

    #[test]
    fn a_key_is_not_let_through_in_another_spelling() {
        let key = ApiKey::new("a\"b/c&d<e%F g");
        for echo in [
            "a\"b/c&d<e%F g",
            r#"a\"b/c&d<e%F g"#,
            r#"a\"b\/c&d<e%F g"#,
            "a%22b%2Fc%26d%3Ce%25F%20g",
            "a%22b%2fc%26d%3ce%25F%20g",
            "a&quot;b/c&amp;d&lt;e%F g",
        ] {
            assert_eq!(key.redact(format!("<{echo}>")), "<(redacted)>", "{echo}");
        }
    }
}
