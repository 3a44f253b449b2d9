//! Keys of providers: where they come from, and the one header they go into.
//!
//! Invariant: a key is where it is kept and in the outgoing header, nowhere else. Kept by a type that cannot be
//! printed or serialised, and by [`ApiKey::redact`], which every word of a server passes through before it is kept.

use std::fmt;

use protocol::ProviderId;
use reqwest::header::HeaderValue;

/// Where keys come from. Answers at once: a slow keychain is read ahead of time by whoever implements this.
pub trait Keys: Send + Sync + 'static {
    /// The key of a provider, if it has one.
    fn key(&self, provider: ProviderId) -> Option<ApiKey>;
}

/// No keys at all: for servers on one's own machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoKeys;

impl Keys for NoKeys {
    fn key(&self, _provider: ProviderId) -> Option<ApiKey> {
        None
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

    /// The value of the `Authorization` header, marked as sensitive; nothing if the key holds what no header can.
    pub(super) fn bearer(&self) -> Option<HeaderValue> {
        sensitive(&format!("Bearer {}", self.0))
    }

    /// The same for a header of its own.
    pub(super) fn bare(&self) -> Option<HeaderValue> {
        sensitive(&self.0)
    }

    /// `text` without this key in it: servers like to repeat what they were sent.
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
        assert_eq!(
            format!("{:?}", key.bearer()),
            "Some(Sensitive)",
            "the header is marked, so no log shows it"
        );
        assert_eq!(
            key.redact("bad key sk-secret-123!".into()),
            "bad key (redacted)!"
        );
        assert_eq!(format!("{:?}", key.bare()), "Some(Sensitive)");
        assert_eq!(ApiKey::new("a\nb").bearer(), None);
    }
}
