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
    LibraryPage, Provider, SecretName, TypedKey,
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
    #[error(
        "{0} is not in the settings yet; `holdfast ask --provider {0} …` adds it, and so does the window"
    )]
    NotAdded(String),
    #[error("there is no server ‘{word}’; there are {names}")]
    Unknown {
        /// As it was named.
        word: String,
        /// Those there are.
        names: String,
    },
    #[error("several servers are called ‘{word}’; name one by its kind and address: {names}")]
    Several {
        /// As it was named.
        word: String,
        /// Those that it may be.
        names: String,
    },
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
        (word, _) => known(engine, word).await?,
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

/// A server of the settings by its name or address, or by both its kind and address.
pub(super) async fn known(engine: &Engine, word: &ServerWord) -> Result<Provider, NotKnown> {
    let library = engine.library().await?;
    Ok(meant(&library, word)?.clone())
}

fn meant<'a>(library: &'a LibraryPage, word: &ServerWord) -> Result<&'a Provider, NoServer> {
    match word {
        ServerWord::New(wish) => choice::configured(library, wish.dialect, &wish.base_url)
            .ok_or_else(|| NoServer::NotAdded(choice::word(wish.dialect, &wish.base_url))),
        ServerWord::Known(word) => named(library, word),
    }
}

fn named<'a>(library: &'a LibraryPage, word: &str) -> Result<&'a Provider, NoServer> {
    let base = word.trim_end_matches('/');
    let at = |server: &&Provider| server.base_url.eq_ignore_ascii_case(base);
    let called = |server: &&Provider| server.name.to_lowercase() == word.to_lowercase();
    let mut found: Vec<&Provider> = library.providers.iter().filter(at).collect();
    if found.is_empty() {
        found.extend(library.providers.iter().filter(called));
    }
    match found.as_slice() {
        [server] => Ok(server),
        [] => Err(NoServer::among(library, word.to_owned())),
        several => {
            let names = several.iter().map(|s| choice::word(s.dialect, &s.base_url));
            Err(NoServer::Several {
                word: word.to_owned(),
                names: names.collect::<Vec<_>>().join(", "),
            })
        }
    }
}

impl NoServer {
    /// There are others, or none.
    fn among(library: &LibraryPage, word: String) -> Self {
        if library.providers.is_empty() {
            return Self::None;
        }
        let names: Vec<&str> = library.providers.iter().map(|s| s.name.as_str()).collect();
        let names = names.join(", ");
        Self::Unknown { word, names }
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
    let mut words = match &report.kept {
        None => format!("no key is kept for {}\n", server.name),
        Some(KeptSecrets {
            place,
            origin,
            key,
            headers,
            elsewhere,
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
            let moved = if *elsewhere {
                "the server is elsewhere now, and is not sent it; enter it again if it is for that address too\n"
            } else {
                ""
            };
            format!("{what} {place}\nit is sent to {origin} alone\n{moved}{more}")
        }
    };
    if report.left {
        words.push_str(
            "the system’s keychain did not answer, and may still have a copy; the next start takes it out\n",
        );
    }
    print::for_stdout(&words).into_owned()
}

#[cfg(test)]
mod tests {
    use protocol::Dialect;

    use super::*;

    #[test]
    fn a_server_is_meant_by_its_name_or_address_and_never_one_of_two() {
        let provider =
            |name: &str, dialect, base_url: &str| choice::tests::provider(name, dialect, base_url);
        let library = choice::tests::library(vec![
            provider("Box", Dialect::Ollama, "http://h:1"),
            provider("Twin", Dialect::Ollama, "http://h:2"),
            provider("twin", Dialect::OpenAiChat, "http://h:3/v1"),
            provider("Both", Dialect::OpenAiChat, "http://h:44/v1"),
            provider("Ways", Dialect::Anthropic, "http://h:44/v1"),
        ]);
        let found = |word: &str| named(&library, word).map(|server| server.name.clone());
        assert_eq!(found("box").ok().as_deref(), Some("Box"));
        assert_eq!(found("HTTP://h:2/").ok().as_deref(), Some("Twin"));
        for (word, names) in [
            ("TWIN", "ollama=http://h:2, openai=http://h:3/v1"),
            (
                "http://h:44/v1",
                "openai=http://h:44/v1, anthropic=http://h:44/v1",
            ),
        ] {
            let said = found(word).expect_err("two").to_string();
            assert!(said.ends_with(names), "{said}");
        }
        let said = found("nobody").expect_err("none").to_string();
        assert!(said.contains("Box, Twin"), "{said}");
        let none = named(&choice::tests::library(vec![]), "Box").expect_err("none at all");
        assert!(matches!(none, NoServer::None));
    }

    #[test]
    fn a_kind_and_an_address_that_were_not_added_are_told_how_to_be_whatever_is_there() {
        let box_ = choice::tests::provider("Box", Dialect::Ollama, "http://h:1");
        let word = ServerWord::of("openai=http://h:1/v1");
        for servers in [vec![], vec![box_.clone()]] {
            let library = choice::tests::library(servers);
            let said = meant(&library, &word).expect_err("not added").to_string();
            assert!(
                said.starts_with("openai=http://h:1/v1 is not in the settings yet")
                    && said.contains("holdfast ask --provider openai=http://h:1/v1"),
                "{said}"
            );
        }
        let library = choice::tests::library(vec![box_]);
        for word in ["ollama=http://h:1", "Box", "http://h:1"] {
            let found = meant(&library, &ServerWord::of(word)).map(|server| server.name.clone());
            assert_eq!(found.ok().as_deref(), Some("Box"), "{word}");
        }
    }
}
