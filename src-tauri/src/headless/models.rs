//! `models`, `pull`, `rm`, `cp` and `unload`: the models of a server.
//!
//! Invariant: a model is only taken from a server's disk by somebody who was told what that means, or said so beforehand.
//! A download is the engine's; Ctrl-C here stops it, and what the server has of it stays there.

use std::{
    fmt::Write as _,
    io::{self, BufRead, IsTerminal, Write as _},
    path::Path,
};

use engine::Engine;
use protocol::{
    Dialect, ErrorReport, Failure, InterruptedWhy, ManageModelArgs, Model, ModelAction, ModelRef,
    Op, ProbeReport, Provider, ProviderId, PullProgress, PullState, pulled_name,
};
use serde::Serialize;

use crate::{
    arguments::{Caring, Format, OfModels, ServerWord},
    choice::{self, NoChoice},
    signals::Signals,
};

use super::{
    Exit, complain,
    keeping::{self, NoServer, NotKnown},
    print::{self, Margin},
    stored, words,
};

/// As long as an engine parks a question about downloads.
const PULLS_WAIT_MS: u32 = 8_000;

/// Why it was not done.
#[derive(Debug, thiserror::Error)]
enum NotDone {
    #[error(transparent)]
    Choice(#[from] NoChoice),
    #[error(transparent)]
    Refused(#[from] ErrorReport),
    #[error("{}", .0.message)]
    Fails(Failure),
    #[error(transparent)]
    Server(#[from] NoServer),
    #[error("nobody can be asked here whether {0} is to be deleted; say --yes")]
    NobodyToAsk(String),
    #[error("signals cannot be handled: {0}")]
    Signals(#[source] io::Error),
    #[error("the output could not be made: {0}")]
    Shape(#[from] serde_json::Error),
    #[error("the output could not be printed: {0}")]
    Print(#[from] io::Error),
}

impl From<NotKnown> for NotDone {
    fn from(error: NotKnown) -> Self {
        match error {
            NotKnown::Server(error) => Self::Server(error),
            NotKnown::Engine(error) => Self::Refused(error),
        }
    }
}

/// Does what was ordered, on one engine.
pub(crate) async fn models(data_dir: &Path, order: OfModels) -> Exit {
    let engine = match Engine::open(super::config(data_dir.to_owned())).await {
        Ok(engine) => engine,
        Err(error) => return complain(error, Exit::Failed),
    };
    let done = done(&engine, &order).await;
    engine.shutdown(InterruptedWhy::AppExit).await;
    match done {
        Ok(exit) => exit,
        Err(error) => complain(error, Exit::Failed),
    }
}

async fn done(engine: &Engine, order: &OfModels) -> Result<Exit, NotDone> {
    let provider = server(engine, order).await?;
    let margin = Margin::of_this_process();
    match &order.caring {
        Caring::List { format, .. } => {
            let models = match engine.models(provider.id).await {
                ProbeReport::Works { models, .. } => models,
                ProbeReport::Fails { failure } => return Err(NotDone::Fails(failure)),
            };
            let text = match format {
                Format::Json => {
                    let shape: Vec<_> = models.iter().map(|m| Listed::of(m, &provider)).collect();
                    stored::json(&shape)?
                }
                Format::Text => {
                    margin.murmur(format_args!("{} at {}", provider.name, provider.base_url));
                    if models.is_empty() && provider.dialect == Dialect::Local {
                        margin.murmur(
                            "no model yet; put a GGUF file there, or `holdfast pull ADDRESS` of one",
                        );
                    }
                    models.iter().map(line).collect()
                }
            };
            print::put(&print::for_stdout(&text))?;
            Ok(Exit::Done)
        }
        Caring::Pull { model } => pull(engine, &provider, model, margin).await,
        Caring::Delete { model, unasked } => {
            let file = file_of(engine, &provider, model).await;
            if !unasked && !agreed(&provider, model, file.as_ref())? {
                margin.say("nothing was deleted");
                return Ok(Exit::Stopped);
            }
            let action = ModelAction::Delete {
                model: model.clone(),
            };
            manage(engine, &provider, action).await?;
            match file {
                Some(file) if !file.ours => margin.say(format_args!(
                    "{model} is forgotten; the file stays where it is"
                )),
                Some(_) | None => {
                    margin.say(format_args!("{model} was deleted from {}", provider.name));
                }
            }
            Ok(Exit::Done)
        }
        Caring::Copy { model, to } => {
            let action = ModelAction::Copy {
                model: model.clone(),
                to: to.clone(),
            };
            manage(engine, &provider, action).await?;
            margin.say(format_args!("{model} is also called {to} now"));
            Ok(Exit::Done)
        }
        Caring::Unload { model } => {
            let action = ModelAction::Unload {
                model: model.clone(),
            };
            manage(engine, &provider, action).await?;
            margin.say(format_args!("{model} is no longer in memory"));
            Ok(Exit::Done)
        }
    }
}

async fn manage(
    engine: &Engine,
    provider: &Provider,
    action: ModelAction,
) -> Result<(), ErrorReport> {
    let provider = provider.id;
    engine
        .manage_model(ManageModelArgs { provider, action })
        .await
}

/// Whether models of this computer are meant by a name.
fn is_local(name: &str) -> bool {
    name.eq_ignore_ascii_case("local") || name.eq_ignore_ascii_case("this computer")
}

/// What is known of the file of a model, if it is one of this computer.
async fn file_of(engine: &Engine, provider: &Provider, model: &str) -> Option<protocol::ModelFile> {
    if provider.id != ProviderId::THIS_COMPUTER {
        return None;
    }
    match engine.models(provider.id).await {
        ProbeReport::Works { models, .. } => {
            let found = models.into_iter().find(|known| known.name == model);
            found.and_then(|known| known.file)
        }
        // Whoever does it says why not.
        ProbeReport::Fails { .. } => None,
    }
}

/// The server that is meant: by its name or address, by `--provider`, by the model, or the usual one.
async fn server(engine: &Engine, order: &OfModels) -> Result<Provider, NotDone> {
    let named = match &order.caring {
        Caring::List { server, .. } => server.as_deref(),
        Caring::Pull { .. }
        | Caring::Delete { .. }
        | Caring::Copy { .. }
        | Caring::Unload { .. } => None,
    };
    let here = engine.this_computer();
    let is_here = match &order.caring {
        Caring::List { .. } => named.is_some_and(is_local),
        // An address of whatever kind; no model of an Ollama is called so.
        Caring::Pull { model } => model.contains("://"),
        Caring::Delete { model, .. } | Caring::Unload { model } => {
            order.provider.is_none() && file_of(engine, &here, model).await.is_some()
        }
        Caring::Copy { .. } => false,
    };
    if is_here {
        let mut known = engine.library().await?.providers.into_iter();
        return Ok(known
            .find(|provider| provider.id == here.id)
            .unwrap_or(here));
    }
    if let Some(word) = named {
        return Ok(keeping::known(engine, &ServerWord::of(word)).await?);
    }
    if let Some(wanted) = &order.provider {
        return Ok(choice::ensured(engine, wanted).await?);
    }
    let library = engine.library().await?;
    Ok(choice::usual(engine, &library, None).await?)
}

/// Asks at the terminal; says what is lost.
fn agreed(
    provider: &Provider,
    model: &str,
    file: Option<&protocol::ModelFile>,
) -> Result<bool, NotDone> {
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return Err(NotDone::NobodyToAsk(model.to_owned()));
    }
    let mut stderr = io::stderr();
    match file {
        Some(file) if !file.ours => write!(
            stderr,
            "Forget {model}? The file stays where it is, and so do conversations. [y/N] "
        )?,
        Some(_) | None => write!(
            stderr,
            "Delete {model} from {}? Its files are removed there and would have to be downloaded again; conversations stay. [y/N] ",
            provider.name
        )?,
    }
    stderr.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(
        answer.trim().to_ascii_lowercase().as_str(),
        "y" | "yes"
    ))
}

/// Begins or goes on with a download, and follows it to its end.
async fn pull(
    engine: &Engine,
    provider: &Provider,
    model: &str,
    margin: Margin,
) -> Result<Exit, NotDone> {
    let mut signals = Signals::taken().map_err(NotDone::Signals)?;
    let op = Op::PullModel {
        provider: provider.id,
        model: model.to_owned(),
    };
    engine.submit(engine.mint_op(), op).await?;
    // An address is put in order before it is kept, and its file gets a name that every disk takes.
    let file = engine::model_address(model);
    let (model, name) = match &file {
        Some((address, name)) => (address.as_str(), name.as_str()),
        None => (model, pulled_name(model)),
    };
    let mut told = Telling::new();
    let mut seen = None;
    loop {
        let pulls = tokio::select! {
            pulls = engine.pulls(seen, PULLS_WAIT_MS) => pulls?,
            _ = signals.next() => {
                told.end();
                margin.say("stopped; asking again goes on from what is there");
                // Without a word of its end in the log, the window offers to go on with it.
                return Ok(Exit::Stopped);
            }
        };
        seen = Some(pulls.revision);
        let mut all = pulls.pulls.into_iter();
        let ours = all.find(|pull| is_pull_of(&pull.model, provider, model));
        match ours.map(|pull| pull.state) {
            Some(PullState::Waiting) => {}
            Some(PullState::Running { progress }) => told.tell(&progress),
            Some(PullState::Completed { sha256, .. }) => {
                told.end();
                margin.say(format_args!("{} has {name} now", provider.name));
                if let Some(sha256) = sha256 {
                    margin.say(format_args!("its SHA-256 is {sha256}"));
                }
                return Ok(Exit::Done);
            }
            Some(PullState::Failed { failure }) => {
                told.end();
                return Err(NotDone::Fails(failure));
            }
            // Somebody else ended it.
            Some(PullState::Interrupted) | None => {
                told.end();
                margin.say("the download was ended from elsewhere");
                return Ok(Exit::Stopped);
            }
        }
    }
}

fn is_pull_of(pulled: &ModelRef, provider: &Provider, model: &str) -> bool {
    pulled.provider == provider.id
        && if provider.id == ProviderId::THIS_COMPUTER {
            pulled.model == model
        } else {
            pulled.is_pull_of(provider.id, model)
        }
}

/// How far a download is, on stderr: one line that is written over on a terminal, and else a line per tenth.
struct Telling {
    is_terminal: bool,
    last: String,
}

impl Telling {
    fn new() -> Self {
        Self {
            is_terminal: io::stderr().is_terminal(),
            last: String::new(),
        }
    }

    fn tell(&mut self, progress: &PullProgress) {
        let line = if self.is_terminal {
            words_of(progress)
        } else {
            format!("{} %", progress.permille / 100 * 10)
        };
        if line == self.last {
            return;
        }
        let mut stderr = io::stderr();
        // Nobody reads stderr any more; there is no other place to say that.
        let _ = if self.is_terminal {
            write!(stderr, "\r\x1b[K{line}").and_then(|()| stderr.flush())
        } else {
            writeln!(stderr, "{line}")
        };
        self.last = line;
    }

    fn end(&self) {
        if self.is_terminal && !self.last.is_empty() {
            let _ = writeln!(io::stderr());
        }
    }
}

/// "45 %, 1.2 GB of 4.7 GB, pulling 6a0746a1ec1a".
fn words_of(progress: &PullProgress) -> String {
    let mut line = format!("{} %", progress.permille / 10);
    if let Some(total) = progress.total_bytes {
        // Writing to a string does not fail.
        let _ = write!(
            line,
            ", {} of {}",
            words::bytes(progress.completed_bytes),
            words::bytes(total)
        );
    }
    let status = progress.status.chars().filter(|c| !c.is_control());
    line.push_str(", ");
    line.extend(status);
    line
}

/// One model of `models --json`.
#[derive(Debug, Serialize)]
struct Listed<'a> {
    name: &'a str,
    server: &'a str,
    loaded: Option<bool>,
    size_bytes: Option<u64>,
    memory_bytes: Option<u64>,
    vram_bytes: Option<u64>,
    context_tokens: Option<u64>,
    parameters: Option<&'a str>,
    quantization: Option<&'a str>,
    capabilities: &'a [String],
    expires_at: Option<protocol::Timestamp>,
    /// What a file of this computer says of itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a protocol::ModelFile>,
}

impl<'a> Listed<'a> {
    fn of(model: &'a Model, provider: &'a Provider) -> Self {
        Self {
            name: &model.name,
            server: &provider.name,
            loaded: model.loaded,
            size_bytes: model.size_bytes,
            memory_bytes: model.memory_bytes,
            vram_bytes: model.vram_bytes,
            context_tokens: model.context_tokens,
            parameters: model.parameters.as_deref(),
            quantization: model.quantization.as_deref(),
            capabilities: &model.capabilities,
            expires_at: model.expires_at,
            file: model.file.as_ref(),
        }
    }
}

/// One model for people.
fn line(model: &Model) -> String {
    let size = model.size_bytes.map(words::bytes);
    let context = model
        .context_tokens
        .map(|tokens| format!("{tokens} tokens of context"));
    let loaded = (model.loaded == Some(true)).then(|| "loaded".to_owned());
    let shown = |ability: &&String| ability.as_str() != "completion";
    let abilities: Vec<&str> = model
        .capabilities
        .iter()
        .filter(shown)
        .map(String::as_str)
        .collect();
    let abilities = (!abilities.is_empty()).then(|| abilities.join(", "));
    let file = model.file.as_ref();
    let said = file.and_then(|file| file.problem.clone().or_else(|| file.warning.clone()));
    let license = file.and_then(|file| file.license.clone());
    let facts: Vec<String> = [
        loaded,
        model.parameters.clone(),
        model.quantization.clone(),
        size,
        context,
        license,
        abilities,
        said,
    ]
    .into_iter()
    .flatten()
    .collect();
    format!("{:<40} {}\n", model.name, facts.join(" · "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_a_line_with_what_is_known_of_it_and_no_more() {
        let mut model: Model = serde_json::from_str("{\"name\":\"kelp:7b\"}").expect("a model");
        assert_eq!(line(&model).trim_end(), "kelp:7b");
        model.loaded = Some(true);
        model.size_bytes = Some(4_700_000_000);
        model.quantization = Some("Q4_K_M".to_owned());
        model.capabilities = vec!["completion".to_owned(), "vision".to_owned()];
        let line = line(&model);
        assert!(
            line.ends_with(" loaded · Q4_K_M · 4.7 GB · vision\n"),
            "{line}"
        );
    }

    #[test]
    fn a_download_says_how_much_of_it_is_there_where_that_is_known() {
        let mut progress = PullProgress {
            status: "pulling manifest".to_owned(),
            ..PullProgress::default()
        };
        assert_eq!(words_of(&progress), "0 %, pulling manifest");
        progress.permille = 456;
        progress.completed_bytes = 1_200_000_000;
        progress.total_bytes = Some(4_700_000_000);
        assert_eq!(
            words_of(&progress),
            "45 %, 1.2 GB of 4.7 GB, pulling manifest"
        );
    }
}
