//! The keychain of the operating system: the Secret Service on Linux, the login keychain on macOS, the Credential
//! Manager on Windows.
//!
//! Invariant: no word that comes from here holds a secret: the library's own errors may quote what they could not
//! read, and are never printed. Every question opens it anew, so that one that was started or unlocked since is found.
//! Not here: how long it is waited for, and on which thread (`engine::cabinet`).

use std::sync::Arc;

use engine::{Keychain, KeychainError};
use keyring_core::{CredentialStore, Entry, Error};

/// Under which name our items are found in it.
const SERVICE: &str = "Holdfast";

/// The one that this computer has.
pub(crate) struct OsKeychain;

impl OsKeychain {
    fn entry(account: &str) -> Result<Entry, KeychainError> {
        let store = store().map_err(|error| missing(&error))?;
        Entry::new_in_store(&store, SERVICE, account).map_err(|error| failed(&error))
    }
}

impl Keychain for OsKeychain {
    fn look(&self) -> Result<String, KeychainError> {
        store()
            .map(|_| NAME.to_owned())
            .map_err(|error| missing(&error))
    }

    fn read(&self, account: &str) -> Result<Option<String>, KeychainError> {
        match Self::entry(account)?.get_password() {
            Ok(secret) => Ok(Some(secret)),
            Err(Error::NoEntry) => Ok(None),
            Err(error) => Err(failed(&error)),
        }
    }

    fn write(&self, account: &str, secret: &str) -> Result<(), KeychainError> {
        let written = Self::entry(account)?.set_password(secret);
        written.map_err(|error| failed(&error))
    }

    fn remove(&self, account: &str) -> Result<(), KeychainError> {
        match Self::entry(account)?.delete_credential() {
            Ok(()) | Err(Error::NoEntry) => Ok(()),
            Err(error) => Err(failed(&error)),
        }
    }
}

#[cfg(target_os = "linux")]
const NAME: &str = "the keyring of this desktop (Secret Service)";
#[cfg(target_os = "macos")]
const NAME: &str = "the login keychain";
#[cfg(target_os = "windows")]
const NAME: &str = "the Credential Manager";
#[cfg(not(any(target_os = "linux", target_os = "macos", target_os = "windows")))]
const NAME: &str = "a keychain";

fn store() -> Result<Arc<CredentialStore>, Error> {
    #[cfg(target_os = "linux")]
    return Ok(dbus_secret_service_keyring_store::Store::new()?);
    #[cfg(target_os = "macos")]
    return Ok(apple_native_keyring_store::keychain::Store::new()?);
    #[cfg(target_os = "windows")]
    return Ok(windows_native_keyring_store::Store::new()?);
    #[cfg(not(any(target_os = "linux", target_os = "macos", target_os = "windows")))]
    return Err(Error::NoDefaultStore);
}

fn missing(error: &Error) -> KeychainError {
    KeychainError::Missing(words(error))
}

fn failed(error: &Error) -> KeychainError {
    match error {
        Error::NoStorageAccess(_) => KeychainError::Locked(words(error)),
        _ => KeychainError::Failed(words(error)),
    }
}

/// What of an error can be shown.
fn words(error: &Error) -> String {
    match error {
        Error::PlatformFailure(inner) | Error::NoStorageAccess(inner) => inner.to_string(),
        Error::NoEntry => "it has no such item".to_owned(),
        Error::BadEncoding(_) | Error::BadDataFormat(..) => "what it has cannot be read".to_owned(),
        Error::TooLong(_, limit) => format!("it takes no more than {limit} characters"),
        Error::Ambiguous(_) => "it has the item twice".to_owned(),
        _ => "it cannot be used".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_error_of_the_keychain_quotes_what_it_could_not_read() {
        let secret = b"sk-keychain-0815".to_vec();
        for error in [
            Error::BadEncoding(secret.clone()),
            Error::BadDataFormat(secret, "sk-keychain-0815".into()),
        ] {
            let said = failed(&error).to_string();
            assert!(
                !said.contains("0815") && !said.contains("115, 107"),
                "{said}"
            );
        }
    }
}
