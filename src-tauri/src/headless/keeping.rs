//! `key`: where a server's key is kept, and keeping or forgetting one.
//!
//! Invariant: a key comes by stdin or from the environment and goes to where it is kept; what is printed says where
//! that is and at most how the key ends.

use std::{
    io::{self, Read},
    path::Path,
};

use engine::Engine;
use protocol::{
    ErrorReport, InterruptedWhy, KeptSecrets, KeyChange, KeyPlace, KeychainReport, KeysReport,
    Provider, SecretName, TypedKey,
};

use crate::{
    arguments::{KeyOrder, KeySource, KeyWish, ServerWord},
    choice,
};

use super::{Exit, complain, print};

/// No key is longer, and nobody waits for the end of a file that is none.
const KEY_BYTES_MAX: u64 = 64 * 1024;

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
enum NotDone {
    #[error(transparent)]
    NotOpened(#[from] engine::OpenError),
    #[error(transparent)]
    Engine(#[from] ErrorReport),
    #[error(transparent)]
    Server(#[from] NoServer),
    #[error("the key could not be read from stdin: {0}")]
    Stdin(#[source] io::Error),
    #[error("no key came by stdin")]
    Empty,
    #[error("{0}; --place file keeps it in {1}, which only you can read")]
    NoKeychain(String, String),
    #[error("the output could not be printed: {0}")]
    Print(#[source] io::Error),
}

/// Why a server is not known.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoServer {
    #[error(
        "no server is in the settings yet; name one as openai=URL, anthropic=URL or ollama=URL"
    )]
    None,
    #[error("there is no server ‘{word}’; there are {names}")]
    Unknown {
        /// As it was named.
        word: String,
        /// Those there are.
        names: String,
    },
    #[error("several servers are called ‘{0}’; name it by its address")]
    Several(String),
}

/// Shows, keeps or forgets.
pub(crate) async fn key(data_dir: &Path, order: KeyOrder, typed: Option<TypedKey>) -> Exit {
    match done(data_dir, order, typed).await {
        Ok(()) => Exit::Done,
        Err(error) => complain(error, Exit::Failed),
    }
}

async fn done(data_dir: &Path, order: KeyOrder, typed: Option<TypedKey>) -> Result<(), NotDone> {
    let typed = match (&order.wish, typed) {
        (KeyWish::Keep(KeySource::Stdin), None) => Some(from_stdin()?),
        (_, typed) => typed,
    };
    let engine = Engine::open(super::config(data_dir.to_owned())).await?;
    let told = with(&engine, &order, typed).await;
    engine.shutdown(InterruptedWhy::AppExit).await;
    print::put(&told?).map_err(NotDone::Print)?;
    Ok(())
}

fn from_stdin() -> Result<TypedKey, NotDone> {
    let mut text = String::new();
    let read = io::stdin()
        .lock()
        .take(KEY_BYTES_MAX)
        .read_to_string(&mut text);
    read.map_err(NotDone::Stdin)?;
    let key = TypedKey::new(&text);
    if key.is_empty() {
        return Err(NotDone::Empty);
    }
    Ok(key)
}

async fn with(
    engine: &Engine,
    order: &KeyOrder,
    typed: Option<TypedKey>,
) -> Result<String, NotDone> {
    let server = match (&order.server, &order.wish) {
        (ServerWord::New(wish), KeyWish::Keep(_)) => choice::ensured(engine, wish).await?,
        (ServerWord::New(wish), KeyWish::Look | KeyWish::Forget) => {
            known(engine, &wish.base_url).await?
        }
        (ServerWord::Known(word), _) => known(engine, word).await?,
    };
    let name = SecretName::Key;
    let change = match (&order.wish, typed) {
        (KeyWish::Forget, _) => Some(KeyChange::Forget { name }),
        (KeyWish::Keep(_), Some(typed)) => {
            if order.place == KeyPlace::Keychain {
                let report = engine.keys(server.id).await?;
                if let KeychainReport::Missing { why } = report.keychain {
                    return Err(NotDone::NoKeychain(why, report.file));
                }
            }
            let place = order.place;
            Some(KeyChange::Keep { name, typed, place })
        }
        (KeyWish::Keep(_) | KeyWish::Look, _) => None,
    };
    let report = match change {
        Some(change) => engine.change_key(server.id, change).await?,
        None => engine.keys(server.id).await?,
    };
    Ok(words(&server, &report))
}

/// A server of the settings by its name or address.
pub(super) async fn known(engine: &Engine, word: &str) -> Result<Provider, NotKnown> {
    let library = engine.library().await?;
    let base = word.trim_end_matches('/');
    let by_address = library
        .providers
        .iter()
        .find(|server| server.base_url.eq_ignore_ascii_case(base));
    if let Some(server) = by_address {
        return Ok(server.clone());
    }
    let mut named = library
        .providers
        .iter()
        .filter(|server| server.name.to_lowercase() == word.to_lowercase());
    match (named.next(), named.next()) {
        (Some(server), None) => Ok(server.clone()),
        (Some(_), Some(_)) => Err(NoServer::Several(word.to_owned()).into()),
        (None, _) if library.providers.is_empty() => Err(NoServer::None.into()),
        (None, _) => {
            let names: Vec<&str> = library.providers.iter().map(|s| s.name.as_str()).collect();
            Err(NoServer::Unknown {
                word: word.to_owned(),
                names: names.join(", "),
            }
            .into())
        }
    }
}

/// Why a server of the settings cannot be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotKnown {
    #[error(transparent)]
    Server(#[from] NoServer),
    #[error(transparent)]
    Engine(#[from] ErrorReport),
}

impl From<NotKnown> for NotDone {
    fn from(error: NotKnown) -> Self {
        match error {
            NotKnown::Server(error) => Self::Server(error),
            NotKnown::Engine(error) => Self::Engine(error),
        }
    }
}

fn words(server: &Provider, report: &KeysReport) -> String {
    let words = match &report.kept {
        None => format!("no key is kept for {}\n", server.name),
        Some(KeptSecrets {
            place,
            origin,
            key,
            headers,
        }) => {
            let what = match key {
                Some(key) => match &key.ends {
                    Some(ends) => format!("the key of {} ends in {ends}, and is", server.name),
                    None => format!("the key of {} is", server.name),
                },
                None => format!("headers of {} are", server.name),
            };
            let place = match place {
                KeyPlace::Keychain => match &report.keychain {
                    KeychainReport::There { name } => format!("kept in {name}"),
                    KeychainReport::Missing { why } => {
                        format!("kept in the system’s keychain, but {why}")
                    }
                },
                KeyPlace::File => format!("kept in {}", report.file),
                KeyPlace::Memory => "kept until Holdfast is closed".to_owned(),
            };
            let more = match headers.as_slice() {
                [] => String::new(),
                headers => format!("with it: {}\n", headers.join(", ")),
            };
            format!("{what} {place}\nit is sent to {origin} alone\n{more}")
        }
    };
    print::for_stdout(&words).into_owned()
}
