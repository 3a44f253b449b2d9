//! Keys as a page or a terminal speaks of them: entered once, and after that only named.
//!
//! Invariant: a key travels one way, towards where it is kept. What comes back tells where it is and at most how it
//! ends. Kept by: the one type that holds a secret is in arguments only, and cannot be printed.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Provider, ProviderId};

/// A secret on its way from the fingers to where it is kept. Unprintable.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TypedKey(String);

impl TypedKey {
    /// As pasted: white space around it is not part of it.
    pub fn new(typed: &str) -> Self {
        Self(typed.trim().to_owned())
    }

    /// The secret, for whoever keeps or sends it.
    pub fn expose(&self) -> &str {
        self.0.trim()
    }

    /// Whether nothing was typed.
    pub fn is_empty(&self) -> bool {
        self.expose().is_empty()
    }
}

impl fmt::Debug for TypedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TypedKey(redacted)")
    }
}

/// Where secrets can live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum KeyPlace {
    /// The system's keychain.
    Keychain,
    /// A file in the data folder that only this user can read.
    File,
    /// Nowhere: until Holdfast is closed.
    Memory,
}

/// Which of a server's secrets.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "secret")]
pub enum SecretName {
    /// Its key, or password.
    Key,
    /// The value of the header of this name.
    Header { name: String },
}

/// `keys` -> [`KeysReport`]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeysArgs {
    /// Whose.
    pub provider: ProviderId,
}

/// Where secrets can be kept, and which ones a server has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeysReport {
    /// What keeps keys on this system; absent: why nothing does.
    pub keychain: KeychainReport,
    /// The file that would hold them otherwise.
    pub file: String,
    /// What is kept for this server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<KeptSecrets>,
    /// Whether the keychain may still have a copy of its secrets that it was to give up; that is tried again at the next
    /// start.
    #[serde(default)]
    pub left: bool,
}

/// What is known of the system's keychain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is")]
pub enum KeychainReport {
    /// It can be used.
    There { name: String },
    /// It cannot, and this is why.
    Missing { why: String },
}

/// Which secrets a server has. Nothing of this is secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptSecrets {
    /// Where they are.
    pub place: KeyPlace,
    /// The scheme, host and port that they were entered for, and that alone are sent them.
    pub origin: String,
    /// Whether the server is at another one now, and so is not sent them.
    #[serde(default)]
    pub elsewhere: bool,
    /// Whether a key is among them, and how it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyHint>,
    /// Headers whose values are among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
}

/// What tells a key from another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyHint {
    /// Its last four characters, if it is long enough for that to tell little.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends: Option<String>,
}

/// `change_key` -> [`KeysReport`]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChangeKeyArgs {
    /// Whose.
    pub provider: ProviderId,
    /// What is done.
    pub change: KeyChange,
}

/// What is done to a server's secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change")]
pub enum KeyChange {
    /// Keep this one, in place of any before. All of a server's secrets live at one place.
    Keep {
        name: SecretName,
        typed: TypedKey,
        place: KeyPlace,
    },
    /// Forget it.
    Forget { name: SecretName },
    /// Send them to where the server is now, though they were entered for another address.
    Carry,
}

/// A server that is not in the settings yet, as it is being typed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DraftServer {
    /// As it would be added.
    pub provider: Provider,
    /// Its key, if one was typed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<TypedKey>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typed_key_is_trimmed_and_cannot_be_printed() {
        let change = KeyChange::Keep {
            name: SecretName::Key,
            typed: TypedKey::new("  sk-typed-0815\n"),
            place: KeyPlace::Keychain,
        };
        let printed = format!("{change:?}");
        assert!(!printed.contains("0815"), "{printed}");
        let KeyChange::Keep { typed, .. } = change else {
            unreachable!()
        };
        assert_eq!(typed.expose(), "sk-typed-0815");
    }
}
