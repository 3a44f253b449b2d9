//! What a server is shown with every request, and the way it is reached.
//!
//! Invariant: what is secret goes into a header that is marked as such. A user's own header takes the place of ours.

use protocol::{Auth, Connection, CustomHeader, Dialect};
use reqwest::{
    RequestBuilder,
    header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue},
};

use super::{
    AttemptError, anthropic, failure,
    keys::{ApiKey, Secrets},
    peer::Peer,
    way::Way,
};
use crate::{Harness, mutant::mutated};

/// Where Anthropic's servers look for the key, and for the words that are spoken to them.
const KEY_HEADER: HeaderName = HeaderName::from_static("x-api-key");
const VERSION_HEADER: HeaderName = HeaderName::from_static("anthropic-version");

/// What is shown, and the way.
#[derive(Clone, Debug, Default)]
pub(super) struct Access {
    pub(super) auth: Auth,
    pub(super) headers: Vec<CustomHeader>,
    pub(super) secrets: Secrets,
    pub(super) way: Way,
}

impl Access {
    pub(super) fn of(connection: &Connection, secrets: Secrets) -> Self {
        Self {
            auth: connection.auth.clone(),
            headers: connection.headers.clone(),
            secrets,
            way: Way::of(connection),
        }
    }

    /// `text` without any secret, in whichever form it went out.
    pub(super) fn redact(&self, text: &str) -> String {
        let text = self.secrets.redact(text.to_owned());
        match (&self.auth, &self.secrets.key) {
            (Auth::Basic { user }, Some(key)) => ApiKey::new(&key.encoded(user)).redact(text),
            (Auth::Usual | Auth::Bearer | Auth::ApiKey | Auth::Basic { .. }, _) => text,
        }
    }
}

/// The request with what the peer is to be shown.
pub(super) fn authorised(
    request: RequestBuilder,
    peer: &Peer,
    harness: &Harness,
) -> Result<RequestBuilder, AttemptError> {
    let access = &peer.access;
    let mut headers = HeaderMap::new();
    if peer.dialect == Some(Dialect::Anthropic) {
        headers.insert(VERSION_HEADER, HeaderValue::from_static(anthropic::VERSION));
    }
    if let Some(key) = &access.secrets.key {
        let (name, value) = match (&access.auth, peer.dialect) {
            (Auth::Basic { user }, _) => (AUTHORIZATION, key.basic(user)),
            (Auth::ApiKey, _) | (Auth::Usual, Some(Dialect::Anthropic)) => {
                (KEY_HEADER, key.alone())
            }
            (Auth::Bearer, _)
            | (Auth::Usual, Some(Dialect::Ollama | Dialect::OpenAiChat | Dialect::Local) | None) => {
                (AUTHORIZATION, key.bearer())
            }
        };
        let value = if mutated!(harness, KeyAsPasted) {
            key.bare()
        } else {
            value
        };
        headers.insert(name, value.ok_or_else(|| failure::no_key(peer))?);
    }
    for CustomHeader { name, value } in &access.headers {
        let unsendable = || failure::no_header(peer, name);
        let value = match value {
            Some(plain) => HeaderValue::from_str(plain).map_err(|_| unsendable())?,
            None => {
                let secret = access.secrets.headers.get(&name.to_ascii_lowercase());
                let secret = secret.ok_or_else(|| failure::no_header_value(peer, name))?;
                secret.bare().ok_or_else(unsendable)?
            }
        };
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| unsendable())?;
        headers.insert(name, value);
    }
    Ok(request.headers(headers))
}
