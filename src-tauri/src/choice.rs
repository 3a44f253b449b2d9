//! Whom to ask, when a command line says it or leaves it open.
//!
//! The same rule for the window and for `ask`: what was said, else what the session uses, else what the last turn used,
//! else the first server that is configured, else the first one found on this machine.

use std::path::{Path, PathBuf};

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
        "no model server is configured and none was found on this machine; start one (Ollama, llama.cpp, LM Studio …) or name one with --provider ollama=URL, openai=URL or anthropic=URL, or a model's file with --provider local=FILE"
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
    if let Some(file) = new_file(&library, wish)
        && let Some(model) = of_this_computer(engine, &library, &file).await
    {
        return Ok(model);
    }
    let provider = match &wish.provider {
        Some(wanted) => match configured(&library, wanted.dialect, &wanted.base_url) {
            Some(provider) => provider.clone(),
            None => add(engine, &library, wanted, key, wish.model.as_deref()).await?,
        },
        None => usual(engine, &library, session).await?,
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

/// The server that is asked where none is named: the session's, the last one, the first one, or one that is found.
///
/// # Errors
/// [`NoChoice::NoProvider`], or the engine's refusal.
pub(crate) async fn usual(
    engine: &Engine,
    library: &LibraryPage,
    session: Option<&ModelRef>,
) -> Result<Provider, NoChoice> {
    let last = session.or(library.last_model.as_ref());
    let known = last.and_then(|last| by_id(library, last.provider));
    match known.or(library.providers.first()) {
        Some(provider) => Ok(provider.clone()),
        None => discovered(engine, library).await,
    }
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

/// The model in a file, where nobody has chosen anything so far; the file is listed with the models of this computer.
pub(crate) async fn first(engine: &Engine, file: &Path) -> Option<ModelRef> {
    let library = engine.library().await.ok()?;
    let here = engine.local_models()?.provider;
    let is_other = |provider: &Provider| provider.id != here.id;
    if library.last_model.is_some() || library.providers.iter().any(is_other) {
        return None;
    }
    of_this_computer(engine, &library, file).await
}

/// A file that is asked for, in a folder that is not one of the settings.
fn new_file(library: &LibraryPage, wish: &Wish) -> Option<PathBuf> {
    let (folder, model) = (wish.provider.as_ref()?, wish.model.as_ref()?);
    let is_new = folder.dialect == Dialect::Local
        && configured(library, folder.dialect, &folder.base_url).is_none();
    is_new.then(|| Path::new(&folder.base_url).join(model))
}

/// The model in a file, which is listed with the models of this computer from now on. None if it is no model, or if
/// nobody can run one here: what is asked of it then says why.
async fn of_this_computer(engine: &Engine, library: &LibraryPage, file: &Path) -> Option<ModelRef> {
    let here = engine.local_models()?.provider;
    let path = file.to_str()?.to_owned();
    let mut known = library
        .providers
        .iter()
        .filter(|provider| provider.id == here.id)
        .flat_map(|provider| &provider.files);
    if !known.any(|known| *known == path) {
        let op = Op::AddModelFile { path: path.clone() };
        if let Err(report) = engine.submit(engine.mint_op(), op).await {
            tracing::warn!(code = ?report.code, "a model's file could not be added");
            return None;
        }
    }
    let settled = by_id(library, here.id).unwrap_or(&here);
    Some(ModelRef {
        provider: here.id,
        provider_name: settled.name.clone(),
        model: path,
    })
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
        files: Vec::new(),
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
        Dialect::Local => "This computer",
        Dialect::OpenAiChat | Dialect::Anthropic => {
            server.split([' ', ',']).next().unwrap_or(server)
        }
    }
    .to_owned()
}

/// What a new server is called: by its kind, and by its place too if there is one of that name.
fn name(library: &LibraryPage, found: &Found) -> String {
    let is_taken = |name: &str| library.providers.iter().any(|p| p.name == name);
    if found.dialect == Dialect::Local {
        // “This computer” is the models folder of our own.
        let folder = Path::new(&found.base_url);
        let last = folder.file_name().unwrap_or(folder.as_os_str());
        let short = format!("Models in {}", last.to_string_lossy());
        return if is_taken(&short) {
            format!("Models in {}", found.base_url)
        } else {
            short
        };
    }
    if is_taken(&found.kind) {
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

/// How a command line names a server beyond doubt.
pub(crate) fn word(dialect: Dialect, base_url: &str) -> String {
    let kind = match dialect {
        Dialect::Ollama => "ollama",
        Dialect::OpenAiChat => "openai",
        Dialect::Anthropic => "anthropic",
        Dialect::Local => "local",
    };
    format!("{kind}={base_url}")
}

/// The server of the settings of this kind at this address.
pub(crate) fn configured<'a>(
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
    let is_broken = model
        .file
        .as_ref()
        .is_some_and(|file| file.problem.is_some());
    !is_broken
        && (model.capabilities.is_empty() || model.capabilities.iter().any(|c| c == "completion"))
}

#[cfg(test)]
pub(crate) mod tests {
    use protocol::{Cursor, LogId};

    use super::*;

    pub(crate) fn provider(name: &str, dialect: Dialect, base_url: &str) -> Provider {
        Provider {
            id: ProviderId::from_bits(base_url.len() as u128),
            name: name.to_owned(),
            dialect,
            base_url: base_url.to_owned(),
            num_ctx: None,
            keep_alive: None,
            files: Vec::new(),
            think: Think::default(),
            limits: None,
            connection: protocol::Connection::default(),
        }
    }

    pub(crate) fn library(providers: Vec<Provider>) -> LibraryPage {
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
            capabilities: capabilities.iter().map(|&c| c.to_owned()).collect(),
            ..Model::named(name)
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
