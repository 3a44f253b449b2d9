//! Whom to ask, when a command line says it or leaves it open.
//!
//! The same rule for the window and for `ask`: what was said, else what the session uses, else what the last turn used,
//! else the first server that is configured, else the first one found on this machine.

use engine::Engine;
use protocol::{
    Dialect, ErrorReport, Failure, LibraryPage, Model, ModelRef, Op, ProbeReport, Provider,
    ProviderId, Think,
};

use tauri::Url;

use crate::arguments::{ProviderWish, Wish};

/// Why nobody can be asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoChoice {
    #[error("{}", .0.message)]
    Fails(Failure),
    #[error(
        "no model server is configured and none was found on this machine; start one (Ollama, llama.cpp, LM Studio …) or name one with --provider ollama=URL or openai=URL"
    )]
    NoProvider,
    #[error("{0} offers no model; load or pull one there, or name one with --model")]
    NoModel(String),
    #[error(transparent)]
    Refused(#[from] ErrorReport),
}

/// The model to ask, its server configured.
///
/// # Errors
/// [`NoChoice`], in words. Nothing was configured then, unless the server answered and offers no model.
pub(crate) async fn choose(
    engine: &Engine,
    wish: &Wish,
    session: Option<&ModelRef>,
) -> Result<ModelRef, NoChoice> {
    let library = engine.library().await?;
    let usual = session.or(library.last_model.as_ref());
    let provider = match &wish.provider {
        Some(wanted) => match configured(&library, wanted) {
            Some(provider) => provider.clone(),
            None => add(engine, &library, wanted, wish.model.as_deref()).await?,
        },
        None => match usual
            .and_then(|usual| by_id(&library, usual.provider))
            .or(library.providers.first())
        {
            Some(provider) => provider.clone(),
            None => discovered(engine, &library).await?,
        },
    };
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
    match configured(&library, wanted) {
        Some(provider) => Ok(provider.clone()),
        None => keep(engine, &library, wanted.dialect, &wanted.base_url).await,
    }
}

/// Adds a server; asks it first, unless the model is known already: then the turn's own words are the better ones.
async fn add(
    engine: &Engine,
    library: &LibraryPage,
    wanted: &ProviderWish,
    model: Option<&str>,
) -> Result<Provider, NoChoice> {
    let mut wanted = wanted.clone();
    if model.is_none() {
        match engine.probe(&wanted.address, Some(wanted.dialect)).await {
            ProbeReport::Works {
                dialect, base_url, ..
            } if dialect == wanted.dialect => wanted.base_url = base_url,
            // It answers, and speaks this dialect beside another.
            ProbeReport::Works { .. } => {}
            ProbeReport::Fails { failure } => return Err(NoChoice::Fails(failure)),
        }
    }
    match configured(library, &wanted) {
        Some(provider) => Ok(provider.clone()),
        None => Ok(keep(engine, library, wanted.dialect, &wanted.base_url).await?),
    }
}

async fn discovered(engine: &Engine, library: &LibraryPage) -> Result<Provider, NoChoice> {
    for report in engine.discover().await {
        match report {
            ProbeReport::Works {
                dialect, base_url, ..
            } => return Ok(keep(engine, library, dialect, &base_url).await?),
            ProbeReport::Fails { .. } => {}
        }
    }
    Err(NoChoice::NoProvider)
}

async fn keep(
    engine: &Engine,
    library: &LibraryPage,
    dialect: Dialect,
    base_url: &str,
) -> Result<Provider, ErrorReport> {
    let provider = Provider {
        id: engine.mint_provider(),
        name: name(library, dialect, base_url),
        dialect,
        base_url: base_url.to_owned(),
        num_ctx: None,
        keep_alive: None,
        think: Think::default(),
    };
    let op = Op::AddProvider {
        provider: provider.clone(),
    };
    engine.submit(engine.mint_op(), op).await?;
    Ok(provider)
}

/// What a new server is called: "Ollama" if it is the only one, otherwise where it is.
fn name(library: &LibraryPage, dialect: Dialect, base_url: &str) -> String {
    let place = host_and_port(base_url);
    match dialect {
        Dialect::Ollama if library.providers.iter().any(|p| p.name == "Ollama") => {
            format!("Ollama at {place}")
        }
        Dialect::Ollama => "Ollama".to_owned(),
        Dialect::OpenAiChat => place,
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

fn configured<'a>(library: &'a LibraryPage, wanted: &ProviderWish) -> Option<&'a Provider> {
    library
        .providers
        .iter()
        .find(|p| p.dialect == wanted.dialect && p.base_url == wanted.base_url)
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
        }
    }

    fn library(providers: Vec<Provider>) -> LibraryPage {
        LibraryPage {
            sessions: vec![],
            providers,
            last_model: None,
            as_of: Cursor::at_start(LogId::from_bits(1)),
        }
    }

    #[test]
    fn a_second_server_of_a_kind_is_told_apart_by_its_place() {
        let none = library(vec![]);
        assert_eq!(name(&none, Dialect::Ollama, "http://h:11434"), "Ollama");
        assert_eq!(
            name(&none, Dialect::OpenAiChat, "http://h:8080/v1"),
            "h:8080"
        );
        let one = library(vec![provider("Ollama", Dialect::Ollama, "http://h:11434")]);
        assert_eq!(name(&one, Dialect::Ollama, "http://g:1"), "Ollama at g:1");
    }

    #[test]
    fn a_server_is_the_configured_one_only_with_the_same_dialect_and_address() {
        let one = library(vec![provider("a", Dialect::Ollama, "http://h:1")]);
        let wish = |dialect, base_url: &str| ProviderWish {
            dialect,
            address: base_url.to_owned(),
            base_url: base_url.to_owned(),
        };
        assert!(configured(&one, &wish(Dialect::Ollama, "http://h:1")).is_some());
        assert!(configured(&one, &wish(Dialect::OpenAiChat, "http://h:1")).is_none());
        assert!(configured(&one, &wish(Dialect::Ollama, "http://h:2")).is_none());
    }

    #[test]
    fn the_first_model_that_can_converse_is_taken() {
        let model = |name: &str, capabilities: &[&str]| Model {
            name: name.to_owned(),
            loaded: None,
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
