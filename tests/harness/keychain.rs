//! A keychain of the test's: it answers, or waits for its password for as long as the test wants.

use std::{
    collections::BTreeMap,
    sync::{Arc, Condvar, Mutex, PoisonError},
};

use engine::{Keychain, KeychainError};

/// Clones are the same keychain.
#[derive(Clone, Default)]
pub struct TestKeychain(Arc<Inner>);

#[derive(Default)]
struct Inner {
    items: Mutex<BTreeMap<String, String>>,
    locked: Mutex<bool>,
    unlocked: Condvar,
}

impl TestKeychain {
    /// From now on every question waits.
    pub fn lock(&self) {
        *self.0.locked.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// Whoever waits is answered.
    pub fn unlock(&self) {
        *self.0.locked.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.0.unlocked.notify_all();
    }

    /// How many items it has.
    pub fn count(&self) -> usize {
        self.items().len()
    }

    fn items(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, String>> {
        let locked = self.0.locked.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.0.unlocked.wait_while(locked, |locked| *locked);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        self.0.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keychain for TestKeychain {
    fn look(&self) -> Result<String, KeychainError> {
        drop(self.items());
        Ok("the test’s keychain".to_owned())
    }

    fn read(&self, account: &str) -> Result<Option<String>, KeychainError> {
        Ok(self.items().get(account).cloned())
    }

    fn write(&self, account: &str, secret: &str) -> Result<(), KeychainError> {
        self.items().insert(account.to_owned(), secret.to_owned());
        Ok(())
    }

    fn remove(&self, account: &str) -> Result<(), KeychainError> {
        self.items().remove(account);
        Ok(())
    }
}
