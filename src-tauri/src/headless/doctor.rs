//! `doctor`: what is wrong with a server, and what can be done.
//!
//! Invariant: nothing is changed. The exit says whether anything is wrong, for programs that ask no more.

use std::{fmt::Write as _, path::Path};

use engine::{Engine, OpenError};
use protocol::{
    Check, Connection, Dialect, DraftServer, ErrorReport, Examination, ExamineArgs, Examined,
    Finding, Fix, InterruptedWhy, Provider, Think, Verdict,
};
use serde_json::json;

use crate::{
    arguments::{self, Format, ProviderWish, ServerWord},
    choice,
};

use super::{
    Exit, complain,
    keeping::{self, NoServer, NotKnown},
    print, stored,
};

/// Why nothing was examined.
#[derive(Debug, thiserror::Error)]
enum NotExamined {
    #[error(
        "Holdfast is open; its window examines servers under Settings, or close it to do that here"
    )]
    Runs,
    #[error(transparent)]
    NotOpened(OpenError),
    #[error(transparent)]
    Engine(#[from] ErrorReport),
    #[error(transparent)]
    Server(#[from] NoServer),
    #[error("the output could not be made: {0}")]
    Shape(#[from] serde_json::Error),
    #[error("the output could not be printed: {0}")]
    Print(#[from] std::io::Error),
}

impl From<OpenError> for NotExamined {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::InUse { .. } => Self::Runs,
            other => Self::NotOpened(other),
        }
    }
}

impl From<NotKnown> for NotExamined {
    fn from(error: NotKnown) -> Self {
        match error {
            NotKnown::Server(error) => Self::Server(error),
            NotKnown::Engine(error) => Self::Engine(error),
        }
    }
}

/// Examines one server or all, and prints what was found.
pub(crate) async fn doctor(data_dir: &Path, server: Option<String>, format: Format) -> Exit {
    let told = async {
        let engine = Engine::open(super::config(data_dir.to_owned())).await?;
        let examined = examined(&engine, server.as_deref()).await;
        engine.shutdown(InterruptedWhy::AppExit).await;
        let examined = examined?;
        let text = match format {
            Format::Json => stored::json(&shapes(&examined))?,
            Format::Text => print::for_stdout(&page(&examined)).into_owned(),
        };
        print::put(&text)?;
        let well = examined.iter().all(Examination::is_well);
        Ok::<_, NotExamined>(if well { Exit::Done } else { Exit::Failed })
    };
    match told.await {
        Ok(exit) => exit,
        Err(error) => complain(error, Exit::Failed),
    }
}

async fn examined(engine: &Engine, word: Option<&str>) -> Result<Vec<Examination>, NotExamined> {
    let library = engine.library().await?;
    let servers = match word {
        None if library.providers.is_empty() => return Err(NoServer::None.into()),
        None => library.providers.clone(),
        Some(word) => {
            let named = ServerWord::of(word);
            let wish = match &named {
                ServerWord::New(wish) => Some(wish),
                ServerWord::Known(_) => None,
            };
            match keeping::known(engine, &named).await {
                Ok(server) => vec![server],
                // What looks like an address need not be in the settings.
                Err(NotKnown::Server(_)) if wish.is_some() || word.contains(['.', ':', '/']) => {
                    let draft = Box::new(DraftServer {
                        provider: typed(engine, word, wish).await,
                        key: None,
                    });
                    let args = ExamineArgs {
                        server: Examined::Draft { draft },
                        model: arguments::model_file(word),
                    };
                    return Ok(vec![engine.examine(args).await?]);
                }
                Err(error) => return Err(error.into()),
            }
        }
    };
    let mut all = Vec::with_capacity(servers.len());
    for server in servers {
        let last = library.last_model.as_ref();
        let model = last
            .filter(|last| last.provider == server.id)
            .map(|last| last.model.clone());
        let server = Examined::Known { id: server.id };
        all.push(engine.examine(ExamineArgs { server, model }).await?);
    }
    Ok(all)
}

/// An address as a server: of the kind that was said, else of the one that answers there, if any does.
async fn typed(engine: &Engine, word: &str, wish: Option<&ProviderWish>) -> Provider {
    let (dialect, base_url) = match wish {
        Some(wish) => (wish.dialect, wish.base_url.clone()),
        None => match engine.probe(word, None).await {
            protocol::ProbeReport::Works {
                dialect, base_url, ..
            } => (dialect, base_url),
            protocol::ProbeReport::Fails { .. } => (Dialect::OpenAiChat, word.to_owned()),
        },
    };
    let name = match dialect {
        Dialect::Local => "This computer",
        Dialect::Ollama | Dialect::OpenAiChat | Dialect::Anthropic => "The server",
    };
    Provider {
        id: engine.mint_provider(),
        name: name.to_owned(),
        dialect,
        base_url,
        num_ctx: None,
        keep_alive: None,
        files: Vec::new(),
        think: Think::default(),
        limits: None,
        connection: Connection::default(),
    }
}

fn page(examined: &[Examination]) -> String {
    let mut text = String::new();
    for Examination { server, findings } in examined {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{} at {}", server.name, server.base_url);
        for finding in findings {
            let word = match finding.verdict {
                Verdict::Good => "good",
                Verdict::Note => "note",
                Verdict::Bad => "WRONG",
            };
            let check = finding.check.words();
            let _ = writeln!(text, "  {word:<5}  {check:<11}  {}", finding.message);
            if let Some(fix) = fix_words(finding) {
                let _ = writeln!(text, "  {:<5}  {:<11}  → {fix}", "", "");
            }
        }
    }
    text
}

/// What to do, for whoever has no button.
fn fix_words(finding: &Finding) -> Option<String> {
    Some(match finding.fix.as_ref()? {
        Fix::Change { provider } => {
            if finding.check == Check::Proxy {
                "choose “No proxy” for it in the window’s settings".to_owned()
            } else {
                format!(
                    "--provider {}",
                    choice::word(provider.dialect, &provider.base_url)
                )
            }
        }
        Fix::Trust { .. } => {
            "compare the SHA-256 with the server’s own, then trust it in the window’s settings"
                .to_owned()
        }
        Fix::EnterKey => "holdfast key SERVER --key-env NAME".to_owned(),
        Fix::CarryKey => "enter the key again: holdfast key SERVER --key-env NAME".to_owned(),
        Fix::ChooseModel { models } => format!("--model {}", models.first()?),
        Fix::Wake { card } => format!("wake it, in the window’s settings or by its card {card}"),
    })
}

fn shapes(examined: &[Examination]) -> serde_json::Value {
    let one = |examination: &Examination| {
        json!({
            "server": examination.server.name,
            "address": examination.server.base_url,
            "well": examination.is_well(),
            "findings": examination.findings,
        })
    };
    examined.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use protocol::ProxyChoice;

    use super::*;

    #[test]
    fn to_go_past_the_proxy_is_said_where_that_is_the_finding_and_nowhere_else() {
        let change = |check, proxy: &ProxyChoice| {
            let mut provider = choice::tests::provider("Box", Dialect::OpenAiChat, "http://h:1/v1");
            provider.connection.proxy = proxy.clone();
            let finding = Finding {
                fix: Some(Fix::Change {
                    provider: Box::new(provider),
                }),
                ..Finding::new(check, Verdict::Bad, "It is so.")
            };
            fix_words(&finding).unwrap_or_default()
        };
        // Whoever goes past every proxy already has other troubles, too.
        for proxy in [ProxyChoice::Direct, ProxyChoice::System] {
            for check in [Check::Address, Check::Language] {
                assert_eq!(
                    change(check, &proxy),
                    "--provider openai=http://h:1/v1",
                    "{check:?} {proxy:?}"
                );
            }
            let said = change(Check::Proxy, &proxy);
            assert!(said.contains("No proxy"), "{said}");
        }
    }
}
