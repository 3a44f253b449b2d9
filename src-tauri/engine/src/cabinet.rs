//! The cabinet: where the secrets of servers are kept, and for whom.
//!
//! Invariant: a secret is at the one place that the user chose (the system's keychain, a file that only this user can
//! read, or nowhere but in this process), and goes to the one origin it was entered for. What stands beside it in the
//! data folder says where it is and at most how it ends; a copy of the database has nothing of it.
//! Kept by: the keychain works on a thread of its own and is waited for as long as [`KEYCHAIN_WAIT`] and no longer, so
//! that one that waits for its password holds up neither a turn nor a window.
//! A server that has no secrets is never looked up in the keychain.

mod keychain;
mod ledger;

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use protocol::{
    Auth, ErrorCode, ErrorReport, KeptSecrets, KeyChange, KeyHint, KeyPlace, KeychainReport,
    KeysReport, Provider, ProviderId, SecretName, TypedKey, header_value_fault,
};

use crate::{
    Harness,
    clock::Clock,
    gateway::{self, ApiKey, Asked, KeyTrouble, Keys, Secrets},
    mutant::mutated,
};

pub use keychain::{Keychain, KeychainError, NoKeychain};
use keychain::{Silent, Worker};
use ledger::{Entry, Kept, Ledger, LedgerError};

/// For somebody who first has to find the keychain's own window, and its password.
pub const KEYCHAIN_WAIT: Duration = Duration::from_secs(60);

/// Secrets shorter than this are told apart by nothing: four characters would be too much of them.
const HINTED_CHARS_MIN: usize = 16;
const HINT_CHARS: usize = 4;

/// The secrets of all servers. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Cabinet(Arc<Inner>);

struct Inner {
    worker: Worker,
    clock: Arc<dyn Clock>,
    harness: Harness,
    ledger: Ledger,
    drawers: Mutex<Drawers>,
    /// Held over every change, so that the keychain and the ledger tell the same.
    changing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Drawers {
    kept: Kept,
    /// Given for this process alone, beside what is kept; with the origin they are for.
    lent: HashMap<ProviderId, (String, ApiKey)>,
    /// Why the ledger could not be read.
    damage: Option<String>,
    /// Counts changes: what was read before one is not kept after it.
    changes: u64,
}

/// Why a secret was not kept.
#[derive(Debug, thiserror::Error)]
enum NotKept {
    #[error(transparent)]
    Keychain(#[from] KeychainError),
    #[error(transparent)]
    Silent(#[from] Silent),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("the secrets kept before could not be read: {0}")]
    Before(KeyTrouble),
    #[error("the address {0} is none that a key can be kept for")]
    NoOrigin(String),
    #[error("{0}")]
    Unusable(String),
    #[error("there is no key to change")]
    Nothing,
    #[error("the list of keys was not written")]
    Lost,
    #[error("the key could not be put into words: {0}")]
    Encode(#[from] serde_json::Error),
}

impl Cabinet {
    /// Reads what is kept in the folder. Blocking; asks no keychain.
    pub(crate) fn open(
        dir: &std::path::Path,
        keychain: Arc<dyn Keychain>,
        clock: Arc<dyn Clock>,
        harness: Harness,
    ) -> Self {
        let ledger = Ledger::in_folder(dir);
        let mut drawers = Drawers::default();
        match ledger.read() {
            Ok(kept) => drawers.kept = kept,
            Err(error) => {
                tracing::error!(%error, "the list of keys could not be read");
                drawers.damage = Some(error.to_string());
            }
        }
        Self(Arc::new(Inner {
            worker: Worker::new(keychain),
            clock,
            harness,
            ledger,
            drawers: Mutex::new(drawers),
            changing: tokio::sync::Mutex::default(),
        }))
    }

    fn drawers(&self) -> std::sync::MutexGuard<'_, Drawers> {
        self.0
            .drawers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self) -> Duration {
        if mutated!(self.0.harness, KeychainForEver) {
            Duration::from_secs(86_400 * 365)
        } else {
            KEYCHAIN_WAIT
        }
    }

    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&dyn Keychain) -> Result<T, KeychainError> + Send + 'static,
    ) -> Result<Result<T, KeychainError>, Silent> {
        let clock = self.0.clock.as_ref();
        self.0.worker.ask(clock, self.wait(), question).await
    }

    /// Where secrets can be kept, and which ones a server has.
    pub(crate) async fn report(&self, id: ProviderId, provider: Option<&Provider>) -> KeysReport {
        let keychain = match self.ask(|keychain| keychain.look()).await {
            Ok(Ok(name)) => KeychainReport::There { name },
            Ok(Err(error)) => KeychainReport::Missing {
                why: error.to_string(),
            },
            Err(silent) => KeychainReport::Missing {
                why: silent.to_string(),
            },
        };
        let origin = provider.and_then(|provider| gateway::origin(&provider.base_url));
        let drawers = self.drawers();
        let told = |entry: &Entry| entry.told(origin.as_ref());
        KeysReport {
            keychain,
            file: self.0.ledger.path().display().to_string(),
            kept: drawers.kept.entries.get(&id).map(told),
            left: drawers.kept.left.contains(&id),
        }
    }

    /// Does what the user wants done to the secrets of a server.
    ///
    /// # Errors
    /// In words; then everything is as it was, unless they say otherwise.
    pub(crate) async fn change(
        &self,
        provider: &Provider,
        change: KeyChange,
    ) -> Result<(), ErrorReport> {
        let _alone = self.0.changing.lock().await;
        let done = match change {
            KeyChange::Keep { name, typed, place } => {
                self.keep(provider, &name, &typed, place).await
            }
            KeyChange::Forget { name } => self.forget(provider.id, &name).await,
            KeyChange::Carry => self.carry(provider).await,
        };
        done.map_err(|error| report(&error))
    }

    /// Uses this key for a server as long as this process lives; what is kept for it stays as it is, and its secret
    /// headers go with the key.
    pub(crate) fn lend(&self, provider: &Provider, typed: &TypedKey) -> Result<(), ErrorReport> {
        let lent = match unusable(provider, &SecretName::Key, typed) {
            Some(fault) => Err(NotKept::Unusable(fault)),
            None => gateway::origin(&provider.base_url)
                .ok_or_else(|| NotKept::NoOrigin(provider.base_url.clone())),
        };
        let origin = lent.map_err(|error| report(&error))?;
        let key = ApiKey::new(typed.expose());
        self.drawers().lent.insert(provider.id, (origin, key));
        Ok(())
    }

    /// Whether anything is kept for anybody, or left where it should not be.
    pub(crate) fn is_used(&self) -> bool {
        let drawers = self.drawers();
        !drawers.kept.entries.is_empty() || !drawers.kept.left.is_empty()
    }

    /// Forgets the secrets of servers that are in the settings no more; what a keychain does not give up now is tried
    /// again at the next start.
    pub(crate) async fn forget_all_but(&self, servers: &BTreeSet<ProviderId>) {
        let _alone = self.0.changing.lock().await;
        let gone: Vec<(ProviderId, Entry)> = self
            .drawers()
            .kept
            .entries
            .iter()
            .filter(|(id, _)| !servers.contains(id))
            .map(|(id, entry)| (*id, entry.clone()))
            .collect();
        for (id, entry) in gone {
            if let Err(error) = self.drop_entry(id, &entry).await {
                tracing::warn!(%id, %error, "the key of a removed server could not be forgotten");
            }
        }
        let left: Vec<ProviderId> = self.drawers().kept.left.iter().copied().collect();
        for id in left {
            if let Err(error) = self.clear_left(id).await {
                tracing::warn!(%id, %error, "a copy of a key is still in the keychain");
            }
        }
    }

    /// Takes out of the keychain what was left there.
    async fn clear_left(&self, id: ProviderId) -> Result<(), NotKept> {
        let account = account(id);
        self.ask(move |keychain| keychain.remove(&account))
            .await??;
        self.note(|kept| {
            kept.left.remove(&id);
        })
        .await
    }

    async fn keep(
        &self,
        provider: &Provider,
        name: &SecretName,
        typed: &TypedKey,
        place: KeyPlace,
    ) -> Result<(), NotKept> {
        if let Some(fault) = unusable(provider, name, typed) {
            return Err(NotKept::Unusable(fault));
        }
        let origin = gateway::origin(&provider.base_url)
            .ok_or_else(|| NotKept::NoOrigin(provider.base_url.clone()))?;
        let before = self.drawers().kept.entries.get(&provider.id).cloned();
        // What was entered for another address stays there, which is to say: it goes.
        let mut secrets = match &before {
            Some(entry) if entry.origin == origin && entry.has_other_than(name) => {
                match self.read(provider.id, entry).await {
                    // What is there no more is nothing that another secret could take the place of.
                    Err(KeyTrouble::Gone(_)) => Secrets::default(),
                    read => read.map_err(NotKept::Before)?,
                }
            }
            Some(_) | None => Secrets::default(),
        };
        let key = ApiKey::new(typed.expose());
        match name {
            SecretName::Key => secrets.key = Some(key),
            SecretName::Header { name } => {
                secrets.headers.insert(name.to_ascii_lowercase(), key);
            }
        }
        let entry = Entry::of(origin, place, &secrets);
        self.put(provider.id, before.as_ref(), entry, secrets).await
    }

    async fn forget(&self, id: ProviderId, name: &SecretName) -> Result<(), NotKept> {
        let before = self.drawers().kept.entries.get(&id).cloned();
        let before = before.ok_or(NotKept::Nothing)?;
        if !before.has_other_than(name) {
            return self.drop_entry(id, &before).await;
        }
        let mut secrets = match self.read(id, &before).await {
            Err(KeyTrouble::Gone(_)) => return self.drop_entry(id, &before).await,
            read => read.map_err(NotKept::Before)?,
        };
        match name {
            SecretName::Key => secrets.key = None,
            SecretName::Header { name } => {
                secrets.headers.remove(&name.to_ascii_lowercase());
            }
        }
        let entry = Entry::of(before.origin.clone(), before.place, &secrets);
        self.put(id, Some(&before), entry, secrets).await
    }

    async fn carry(&self, provider: &Provider) -> Result<(), NotKept> {
        let origin = gateway::origin(&provider.base_url)
            .ok_or_else(|| NotKept::NoOrigin(provider.base_url.clone()))?;
        let entry = self.drawers().kept.entries.get(&provider.id).cloned();
        let entry = entry.ok_or(NotKept::Nothing)?;
        self.note(|kept| {
            kept.entries.insert(provider.id, Entry { origin, ..entry });
        })
        .await
    }

    /// Puts secrets where their entry says, and away from where they were before.
    async fn put(
        &self,
        id: ProviderId,
        before: Option<&Entry>,
        entry: Entry,
        secrets: Secrets,
    ) -> Result<(), NotKept> {
        if entry.place == KeyPlace::Keychain {
            let (account, text) = (account(id), ledger::in_words(&secrets)?);
            let written = self
                .ask(move |keychain| keychain.write(&account, &text))
                .await;
            if let Err(silent) = written {
                let was_there = before.is_some_and(|before| before.place == KeyPlace::Keychain);
                if !was_there {
                    // Whoever unlocks it later has it kept after all.
                    self.note(|kept| {
                        kept.left.insert(id);
                    })
                    .await?;
                }
                return Err(silent.into());
            }
            written??;
        }
        let moves_out = before.is_some_and(|before| {
            before.place == KeyPlace::Keychain && entry.place != KeyPlace::Keychain
        });
        self.note(|kept| {
            match entry.place {
                KeyPlace::Keychain => {
                    kept.left.remove(&id);
                }
                KeyPlace::File | KeyPlace::Memory if moves_out => {
                    kept.left.insert(id);
                }
                KeyPlace::File | KeyPlace::Memory => {}
            }
            kept.entries.insert(id, entry);
            kept.known.insert(id, secrets);
        })
        .await?;
        if moves_out && let Err(error) = self.clear_left(id).await {
            // The change is made; the report says what was left, and the next start tries again.
            tracing::warn!(%id, %error, "a copy of a key is still in the keychain");
        }
        Ok(())
    }

    async fn drop_entry(&self, id: ProviderId, entry: &Entry) -> Result<(), NotKept> {
        if entry.place == KeyPlace::Keychain {
            let account = account(id);
            self.ask(move |keychain| keychain.remove(&account))
                .await??;
        }
        let is_out = entry.place == KeyPlace::Keychain;
        self.note(|kept| {
            kept.entries.remove(&id);
            kept.known.remove(&id);
            if is_out {
                kept.left.remove(&id);
            }
        })
        .await
    }

    /// Writes the ledger, and then takes the change for done. Only one at a time does this.
    async fn note(&self, change: impl FnOnce(&mut Kept)) -> Result<(), NotKept> {
        let (mut kept, is_damaged) = {
            let drawers = self.drawers();
            (drawers.kept.clone(), drawers.damage.is_some())
        };
        change(&mut kept);
        let ledger = self.0.ledger.clone();
        let writing = tokio::task::spawn_blocking(move || {
            if is_damaged {
                // What nobody can read is kept beside, not written over.
                ledger.set_aside()?;
            }
            ledger.write(&kept)?;
            Ok::<_, LedgerError>(kept)
        });
        let kept = writing.await.map_err(|_| NotKept::Lost)??;
        let mut drawers = self.drawers();
        drawers.damage = None;
        drawers.kept = kept;
        drawers.changes = drawers.changes.wrapping_add(1);
        Ok(())
    }

    async fn read(&self, id: ProviderId, entry: &Entry) -> Result<Secrets, KeyTrouble> {
        let (known, changes) = {
            let drawers = self.drawers();
            (drawers.kept.known.get(&id).cloned(), drawers.changes)
        };
        if let Some(secrets) = known {
            return Ok(secrets);
        }
        let gone = |why: &str| KeyTrouble::Gone(why.to_owned());
        match entry.place {
            KeyPlace::Keychain => {}
            KeyPlace::File | KeyPlace::Memory => {
                return Err(gone("its key is not there any more; enter it again"));
            }
        }
        let account = account(id);
        let asked = self.ask(move |keychain| keychain.read(&account)).await;
        let found = asked.map_err(|silent| KeyTrouble::Silent {
            seconds: silent.seconds,
        })?;
        let found = found.map_err(|error| KeyTrouble::Unreadable(error.to_string()))?;
        let text = found.ok_or_else(|| {
            gone("the system’s keychain does not have its key any more; enter it again")
        })?;
        let secrets = ledger::from_words(&text).ok_or_else(|| {
            gone(
                "what the system’s keychain has in place of its key cannot be read; enter it again",
            )
        })?;
        let mut drawers = self.drawers();
        if drawers.changes == changes {
            drawers.kept.known.insert(id, secrets.clone());
        }
        Ok(secrets)
    }
}

impl Keys for Cabinet {
    fn secrets<'a>(&'a self, provider: &'a Provider) -> Asked<'a> {
        Box::pin(async move {
            let origin = gateway::origin(&provider.base_url);
            let (lent, entry, damage) = {
                let drawers = self.drawers();
                let lent = drawers.lent.get(&provider.id);
                let lent = lent.filter(|(lent_for, _)| origin.as_ref() == Some(lent_for));
                let entry = drawers.kept.entries.get(&provider.id).cloned();
                (
                    lent.map(|(_, key)| key.clone()),
                    entry,
                    drawers.damage.clone(),
                )
            };
            if let Some(key) = lent {
                // What is kept beside the key goes with it, as it would with the one that is kept.
                let beside = entry.filter(|entry| {
                    !entry.headers.is_empty() && origin.as_ref() == Some(&entry.origin)
                });
                let mut secrets = match beside {
                    Some(entry) => self.read(provider.id, &entry).await?,
                    None => Secrets::default(),
                };
                secrets.key = Some(key);
                return Ok(secrets);
            }
            let Some(entry) = entry else {
                return match damage {
                    // Whether it has a key cannot be known; most have none.
                    Some(why) if gateway::wants_key(provider) => Err(KeyTrouble::Unreadable(why)),
                    Some(_) | None => Ok(Secrets::default()),
                };
            };
            if origin.as_ref() != Some(&entry.origin)
                && !mutated!(self.0.harness, KeyFollowsAddress)
            {
                return Err(KeyTrouble::ForAnother {
                    entered_for: entry.origin,
                });
            }
            self.read(provider.id, &entry).await
        })
    }
}

/// What the keychain calls a server's secrets; says nothing of the server.
fn account(id: ProviderId) -> String {
    id.to_string()
}

/// How a secret ends, if that tells little of it.
fn hint(secret: &str) -> KeyHint {
    let length = secret.chars().count();
    let ends = (length >= HINTED_CHARS_MIN).then(|| {
        let skipped = length.saturating_sub(HINT_CHARS);
        secret.chars().skip(skipped).collect()
    });
    KeyHint { ends }
}

fn unusable(provider: &Provider, name: &SecretName, typed: &TypedKey) -> Option<String> {
    let secret = typed.expose();
    let fault = match (name, &provider.connection.auth) {
        // A password goes out encoded.
        (SecretName::Key, Auth::Basic { .. }) if !secret.is_empty() => None,
        (SecretName::Key | SecretName::Header { .. }, _) => header_value_fault(secret),
    }?;
    Some(match name {
        SecretName::Key => format!("The key {fault}"),
        SecretName::Header { name } => format!("The header {name} {fault}"),
    })
}

fn report(error: &NotKept) -> ErrorReport {
    let words = crate::sentence(error.to_string().trim_end_matches('.'));
    let invalid = || ErrorCode::Invalid {
        field: "key".to_owned(),
    };
    match error {
        NotKept::Unusable(_) | NotKept::NoOrigin(_) => ErrorReport::new(invalid(), words),
        NotKept::Nothing => ErrorReport::new(ErrorCode::NotFound, words),
        NotKept::Keychain(_) => ErrorReport::new(ErrorCode::Other, words).with_remedy(
            "keep it in the file, or until Holdfast is closed, if it cannot be helped",
        ),
        NotKept::Silent(_) => ErrorReport::new(ErrorCode::Other, words).with_remedy(
            "keep it in the file, or until Holdfast is closed, if it cannot be helped; what the keychain takes too late, \
             Holdfast takes out of it again at its next start",
        ),
        NotKept::Ledger(_) | NotKept::Lost => ErrorReport::new(ErrorCode::StorageFailed, words),
        NotKept::Before(_) | NotKept::Encode(_) => ErrorReport::new(ErrorCode::Other, words),
    }
}

impl Entry {
    fn of(origin: String, place: KeyPlace, secrets: &Secrets) -> Self {
        Self {
            origin,
            place,
            key: secrets.key.as_ref().map(|key| hint(key.expose())),
            headers: secrets.headers.keys().cloned().collect(),
        }
    }

    /// As it is told of a server that is at `origin` now.
    fn told(&self, origin: Option<&String>) -> KeptSecrets {
        KeptSecrets {
            place: self.place,
            origin: self.origin.clone(),
            elsewhere: origin.is_some_and(|origin| *origin != self.origin),
            key: self.key.clone(),
            headers: self.headers.clone(),
        }
    }

    fn has_other_than(&self, name: &SecretName) -> bool {
        match name {
            SecretName::Key => !self.headers.is_empty(),
            SecretName::Header { name } => {
                self.key.is_some()
                    || self
                        .headers
                        .iter()
                        .any(|other| !other.eq_ignore_ascii_case(name))
            }
        }
    }
}

#[cfg(test)]
mod tests;
