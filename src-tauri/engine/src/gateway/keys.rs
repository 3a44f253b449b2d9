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

    /// The value of the `Authorization` header, marked as sensitive; nothing if the key holds what no header can.
    pub(super) fn bearer(&self) -> Option<HeaderValue> {
        sensitive(&format!("Bearer {}", self.0))
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

    /// `text` without this secret in it.
    pub(super) fn redact(&self, text: String) -> String {
        if self.0.len() >= REDACTED_BYTES_MIN && text.contains(&self.0) {
            text.replace(&self.0, "(redacted)")
        } else {
            text
        }
    }
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
}
