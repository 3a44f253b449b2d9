//! Whom to ask, when a command line says it or leaves it open.
//!
//! The same rule for the window and for `ask`: what was said, else what the session uses, else what the last turn used,
//! else the first server that is configured, else the first one found on this machine.

use engine::Engine;
use protocol::{
    Dialect, ErrorReport, Failure, LibraryPage, Model, ModelRef, Op, ProbeArgs, ProbeReport,
    Provider, ProviderId, Think, TypedKey,
};

use tauri::Url;

use crate::arguments::{ProviderWish, Wish};

/// Why nobody can be asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoChoice {
    #[error("{}", .0.message)]
    Fails(Failure),
    #[error(
        "no model server is configured and none was found on this machine; start one (Ollama, llama.cpp, LM Studio …) or name one with --provider ollama=URL, openai=URL or anthropic=URL"
    )]
    NoProvider,
    #[error("{0} offers no model; load or pull one there, or name one with --model")]
    NoModel(String),
    #[error(transparent)]
    Refused(#[from] ErrorReport),
}

/// The model to ask, its server configured; with a key, that is what the server is shown as long as this process lives.
///
/// # Errors
/// [`NoChoice`], in words. Nothing was configured then, unless the server answered and offers no model.
pub(crate) async fn choose(
    engine: &Engine,
    wish: &Wish,
    key: Option<&TypedKey>,
    session: Option<&ModelRef>,
) -> Result<ModelRef, NoChoice> {
    let library = engine.library().await?;
    let usual = session.or(library.last_model.as_ref());
    let provider = match &wish.provider {
        Some(wanted) => match configured(&library, wanted.dialect, &wanted.base_url) {
            Some(provider) => provider.clone(),
            None => add(engine, &library, wanted, key, wish.model.as_deref()).await?,
        },
        None => match usual
            .and_then(|usual| by_id(&library, usual.provider))
            .or(library.providers.first())
        {
            Some(provider) => provider.clone(),
            None => discovered(engine, &library).await?,
        },
    };
    if let Some(key) = key {
        engine.lend_key(&provider, key)?;
    }
    let model = match &wish.model {
        Some(model) => model.clone(),
        None => match remembered(&provider, session, library.last_model.as_ref()) {
            Some(model) => model.to_owned(),
            None => first_offered(&provider, engine.models(provider.id).await)?,
        },
    };
    Ok(ModelRef {
        provider: provider.id,
        provider_name: provider.name,
        model,
    })
}

/// The configured server that a wish names; added, unasked, if there is none.
///
/// # Errors
/// The engine's refusal.
pub(crate) async fn ensured(
    engine: &Engine,
    wanted: &ProviderWish,
) -> Result<Provider, ErrorReport> {
    let library = engine.library().await?;
    match configured(&library, wanted.dialect, &wanted.base_url) {
        Some(provider) => Ok(provider.clone()),
        None => {
            let found = Found {
                kind: kind(wanted.dialect, ""),
                dialect: wanted.dialect,
                base_url: wanted.base_url.clone(),
            };
            keep(engine, &library, found).await
        }
    }
}

/// Adds a server; asks it first, unless the model is known already: then the turn's own words are the better ones.
async fn add(
    engine: &Engine,
    library: &LibraryPage,
    wanted: &ProviderWish,
    key: Option<&TypedKey>,
    model: Option<&str>,
) -> Result<Provider, NoChoice> {
    let mut place = Found {
        kind: kind(wanted.dialect, ""),
        dialect: wanted.dialect,
        base_url: wanted.base_url.clone(),
    };
    if model.is_none() {
        let asked = ProbeArgs {
            dialect: Some(wanted.dialect),
            key: key.cloned(),
            ..ProbeArgs::of(wanted.address.clone())
        };
        match engine.probe_by(&asked).await {
            ProbeReport::Works {
                server,
                dialect,
                base_url,
                ..
            } => {
                place.kind = kind(wanted.dialect, &server);
                // Otherwise it answers in this dialect beside another one.
                if dialect == wanted.dialect {
                    place.base_url = base_url;
                }
            }
            ProbeReport::Fails { failure } => return Err(NoChoice::Fails(failure)),
        }
    }
    match configured(library, place.dialect, &place.base_url) {
        Some(provider) => Ok(provider.clone()),
        None => Ok(keep(engine, library, place).await?),
    }
}

async fn discovered(engine: &Engine, library: &LibraryPage) -> Result<Provider, NoChoice> {
    for report in engine.discover().await {
        match report {
            ProbeReport::Works {
                server,
                dialect,
                base_url,
                ..
            } => {
                let place = Found {
                    kind: kind(dialect, &server),
                    dialect,
                    base_url,
                };
                return Ok(keep(engine, library, place).await?);
            }
            ProbeReport::Fails { .. } => {}
        }
    }
    Err(NoChoice::NoProvider)
}

/// A server that is not configured yet.
struct Found {
    kind: String,
    dialect: Dialect,
    base_url: String,
}

async fn keep(
    engine: &Engine,
    library: &LibraryPage,
    found: Found,
) -> Result<Provider, ErrorReport> {
    let provider = Provider {
        id: engine.mint_provider(),
        name: name(library, &found),
        dialect: found.dialect,
        base_url: found.base_url,
        num_ctx: None,
        keep_alive: None,
        think: Think::default(),
        limits: None,
        connection: protocol::Connection::default(),
    };
    let op = Op::AddProvider {
        provider: provider.clone(),
    };
    engine.submit(engine.mint_op(), op).await?;
    Ok(provider)
}

/// What a server calls itself, without its version; a word for its kind if it says nothing of use.
fn kind(dialect: Dialect, server: &str) -> String {
    match dialect {
        Dialect::Ollama => "Ollama",
        Dialect::OpenAiChat if server.is_empty() || server.starts_with("OpenAI") => "Model server",
        Dialect::Anthropic if server.is_empty() || server.starts_with("OpenAI") => "Anthropic",
        Dialect::OpenAiChat | Dialect::Anthropic => {
            server.split([' ', ',']).next().unwrap_or(server)
        }
    }
    .to_owned()
}

/// What a new server is called: by its kind, and by its place too if there is one of that name.
fn name(library: &LibraryPage, found: &Found) -> String {
    if library.providers.iter().any(|p| p.name == found.kind) {
        format!("{} at {}", found.kind, host_and_port(&found.base_url))
    } else {
        found.kind.clone()
    }
}

/// The part of an address that tells servers of one kind apart for a reader.
fn host_and_port(base_url: &str) -> String {
    match Url::parse(base_url) {
        Ok(url) => match (url.host_str(), url.port()) {
            (Some(host), Some(port)) => format!("{host}:{port}"),
            (Some(host), None) => host.to_owned(),
            (None, _) => base_url.to_owned(),
        },
        Err(_) => base_url.to_owned(),
    }
}

fn configured<'a>(
    library: &'a LibraryPage,
    dialect: Dialect,
    base_url: &str,
) -> Option<&'a Provider> {
    library
        .providers
        .iter()
        .find(|p| p.dialect == dialect && p.base_url == base_url)
}

fn by_id(library: &LibraryPage, id: ProviderId) -> Option<&Provider> {
    library.providers.iter().find(|p| p.id == id)
}

fn remembered<'a>(
    provider: &Provider,
    session: Option<&'a ModelRef>,
    last: Option<&'a ModelRef>,
) -> Option<&'a str> {
    [session, last]
        .into_iter()
        .flatten()
        .find(|model| model.provider == provider.id)
        .map(|model| model.model.as_str())
}

fn first_offered(provider: &Provider, report: ProbeReport) -> Result<String, NoChoice> {
    match report {
        ProbeReport::Works { models, .. } => models
            .into_iter()
            .find(can_converse)
            .map(|model| model.name)
            .ok_or_else(|| NoChoice::NoModel(provider.name.clone())),
        ProbeReport::Fails { failure } => Err(NoChoice::Fails(failure)),
    }
}

/// An embedding model answers nobody. A server that does not tell what its models can do gets the benefit of the doubt.
fn can_converse(model: &Model) -> bool {
    model.capabilities.is_empty() || model.capabilities.iter().any(|c| c == "completion")
}

#[cfg(test)]
mod tests {
    use protocol::{Cursor, LogId};

    use super::*;

    fn provider(name: &str, dialect: Dialect, base_url: &str) -> Provider {
        Provider {
            id: ProviderId::from_bits(base_url.len() as u128),
            name: name.to_owned(),
            dialect,
            base_url: base_url.to_owned(),
            num_ctx: None,
            keep_alive: None,
            think: Think::default(),
            limits: None,
            connection: protocol::Connection::default(),
        }
    }

    fn library(providers: Vec<Provider>) -> LibraryPage {
        LibraryPage {
            sessions: vec![],
            providers,
            last_model: None,
            limits: None,
            fallbacks: Vec::new(),
            model_options: Vec::new(),
            pulls: Vec::new(),
            prices: None,
            salvages: Vec::new(),
            as_of: Cursor::at_start(LogId::from_bits(1)),
        }
    }

    #[test]
    fn a_server_is_called_by_its_kind_and_a_second_one_by_its_place_too() {
        let none = library(vec![]);
        let one = library(vec![provider("Ollama", Dialect::Ollama, "http://h:11434")]);
        let called = |library, dialect, server: &str| {
            let found = Found {
                kind: kind(dialect, server),
                dialect,
                base_url: "http://g:1/v1".to_owned(),
            };
            name(library, &found)
        };
        assert_eq!(called(&none, Dialect::Ollama, "Ollama 0.12.3"), "Ollama");
        assert_eq!(called(&one, Dialect::Ollama, ""), "Ollama at g:1");
        assert_eq!(called(&one, Dialect::OpenAiChat, "llama.cpp"), "llama.cpp");
        let anonymous = "OpenAI-compatible server";
        assert_eq!(called(&one, Dialect::OpenAiChat, anonymous), "Model server");
    }

    #[test]
    fn a_server_is_the_configured_one_only_with_the_same_dialect_and_address() {
        let one = library(vec![provider("a", Dialect::Ollama, "http://h:1")]);
        assert!(configured(&one, Dialect::Ollama, "http://h:1").is_some());
        assert!(configured(&one, Dialect::OpenAiChat, "http://h:1").is_none());
        assert!(configured(&one, Dialect::Ollama, "http://h:2").is_none());
    }

    #[test]
    fn the_first_model_that_can_converse_is_taken() {
        let model = |name: &str, capabilities: &[&str]| Model {
            name: name.to_owned(),
            loaded: None,
            memory_bytes: None,
            vram_bytes: None,
            expires_at: None,
            size_bytes: None,
            context_tokens: None,
            parameters: None,
            quantization: None,
            capabilities: capabilities.iter().map(|&c| c.to_owned()).collect(),
        };
        let report = |models| ProbeReport::Works {
            server: "s".to_owned(),
            dialect: Dialect::Ollama,
            base_url: "http://h:1".to_owned(),
            models,
        };
        let asked = provider("a", Dialect::Ollama, "http://h:1");
        let models = vec![
            model("nomic-embed-text", &["embedding"]),
            model("llama3.2", &["completion", "tools"]),
        ];
        assert_eq!(
            first_offered(&asked, report(models)).ok().as_deref(),
            Some("llama3.2")
        );
        let untold = vec![model("m", &[])];
        assert_eq!(
            first_offered(&asked, report(untold)).ok().as_deref(),
            Some("m")
        );
        assert!(matches!(
            first_offered(&asked, report(vec![])),
            Err(NoChoice::NoModel(_))
        ));
    }
}
