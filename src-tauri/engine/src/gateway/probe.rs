//! Finding servers: at an address a person typed, or on this machine's usual ports.
//!
//! Invariant: an Ollama is reported as one, however it was addressed, for only its own API can hold the model and its
//! context steady. What is reported to work has answered with a list of models, and its base is ready for use.
//! A secret is shown only to a place that asked for it, and never in the clear on the internet unless that was typed.

use std::time::Duration;

use futures_util::{StreamExt, future::join_all, stream::FuturesOrdered};
use protocol::{Dialect, Failure, FailureCode, ProbeReport};

use super::{
    access::Access,
    address::{self, Place, USUAL_PORTS},
    dial::Dialer,
    failure::{self, Refusal},
    join,
    models::{self, Offer},
    peer::{Distance, Peer},
};
use crate::mutant::mutated;

/// For an address somebody typed and waits for.
const PROBE_WAIT: Duration = Duration::from_secs(4);
/// For a port nobody may be listening on.
const DISCOVER_WAIT: Duration = Duration::from_secs(1);

/// Tries an address.
pub(super) async fn probe(
    dialer: &Dialer,
    typed: &str,
    believed: Option<Dialect>,
    access: &Access,
) -> ProbeReport {
    let places = match address::places(typed) {
        Ok(places) => places,
        Err(failure) => return ProbeReport::Fails { failure },
    };
    let in_the_clear = typed
        .trim_start()
        .to_ascii_lowercase()
        .starts_with("http://");
    // Pushed one by one: a closure's future is not provably `Send` for whoever spawns this.
    let mut reports = FuturesOrdered::new();
    for place in &places {
        let shows = Shows {
            access,
            in_the_clear,
        };
        reports.push_back(visit(dialer, place, believed, shows, PROBE_WAIT));
    }
    let mut worst: Option<Failure> = None;
    while let Some(report) = reports.next().await {
        match report {
            works @ ProbeReport::Works { .. } => return works,
            ProbeReport::Fails { failure } => {
                let better = worst
                    .as_ref()
                    .is_none_or(|w| telling(&failure) > telling(w));
                if better {
                    worst = Some(failure);
                }
            }
        }
    }
    ProbeReport::Fails {
        failure: worst.unwrap_or_else(|| failure::no_address(typed)),
    }
}

/// Looks around on this machine.
pub(super) async fn discover(dialer: &Dialer) -> Vec<ProbeReport> {
    let places = USUAL_PORTS.map(|port| Place {
        ollama: format!("http://localhost:{port}"),
        openai: vec![format!("http://localhost:{port}/v1")],
    });
    let access = Access::default();
    let shows = Shows {
        access: &access,
        in_the_clear: false,
    };
    let mut visits = Vec::with_capacity(places.len());
    for place in &places {
        visits.push(visit(dialer, place, None, shows, DISCOVER_WAIT));
    }
    join_all(visits)
        .await
        .into_iter()
        .filter(|report| matches!(report, ProbeReport::Works { .. }))
        .collect()
}

/// Tries every base of one place: the likely dialects at once, then what is left.
async fn visit(
    dialer: &Dialer,
    place: &Place,
    believed: Option<Dialect>,
    shows: Shows<'_>,
    limit: Duration,
) -> ProbeReport {
    let mut worst: Option<(Dialect, Failure)> = None;
    for bases in rounds(place, believed) {
        let mut knocks = Vec::with_capacity(bases.len());
        for (dialect, base) in &bases {
            knocks.push(knock(dialer, *dialect, base, shows, limit));
        }
        let offers = join_all(knocks).await;
        for ((dialect, base), offer) in bases.into_iter().zip(offers) {
            let refusal = match offer {
                Ok(offer) => return works(offer, dialect, base),
                // It is there, it speaks this dialect, and it will have models in a moment.
                Err(refusal) if refusal.loading => {
                    let server = "llama.cpp, still loading its model".to_owned();
                    let models = Vec::new();
                    return works(
                        Offer { server, models },
                        Dialect::OpenAiChat,
                        base_of(place, base),
                    );
                }
                Err(refusal) => refusal,
            };
            let failure = refusal.error.failure;
            let rank =
                |dialect: Dialect, failure: &Failure| (telling(failure), believed == Some(dialect));
            let better = worst
                .as_ref()
                .is_none_or(|(d, f)| rank(dialect, &failure) > rank(*d, f));
            if better {
                worst = Some((dialect, failure));
            }
        }
        let is_away = worst
            .as_ref()
            .is_some_and(|(_, f)| f.code == FailureCode::ConnectFailed);
        if is_away {
            break;
        }
    }
    match worst {
        Some((_, failure)) => ProbeReport::Fails { failure },
        None => ProbeReport::Fails {
            failure: failure::no_address(&place.ollama),
        },
    }
}

/// What is tried, in this order; all of one round at once. An OpenAI-compatible server and one of Anthropic's kind list
/// their models at the same path, and many are both: which of the two is meant is for the person to say.
fn rounds(place: &Place, believed: Option<Dialect>) -> [Vec<(Dialect, &String)>; 2] {
    let all = |dialect| place.openai.iter().map(move |base| (dialect, base));
    let mut first = vec![(Dialect::Ollama, &place.ollama)];
    let (likely, left) = match believed {
        Some(Dialect::Anthropic) => (Dialect::Anthropic, Dialect::OpenAiChat),
        Some(Dialect::Ollama | Dialect::OpenAiChat | Dialect::Local) | None => {
            (Dialect::OpenAiChat, Dialect::Anthropic)
        }
    };
    first.extend(all(likely));
    [first, all(left).collect()]
}

/// A loading llama.cpp answers every path alike, so the base is the likeliest one.
fn base_of<'a>(place: &'a Place, base: &'a str) -> &'a str {
    place.openai.first().map_or(base, String::as_str)
}

/// What is shown to whoever is knocked at.
#[derive(Clone, Copy)]
struct Shows<'a> {
    access: &'a Access,
    /// Whether a person typed http://, and so knows that everybody on the way can read what is sent.
    in_the_clear: bool,
}

async fn knock(
    dialer: &Dialer,
    dialect: Dialect,
    base: &str,
    shows: Shows<'_>,
    limit: Duration,
) -> Result<Offer, Refusal> {
    let url = join(base, "").ok_or_else(|| Refusal::of(failure::no_address(base)))?;
    let mut peer = Peer::at(&url);
    peer.access.way = shows.access.way.clone();
    let stranger = ask(dialer, dialect, base, peer.clone(), limit).await;
    let wants = match &stranger {
        Ok(_) => false,
        Err(refusal) => match refusal.error.failure.code {
            FailureCode::KeyRejected => true,
            // Whatever stands before a server may say it in its own way.
            code => code != FailureCode::ConnectFailed && !shows.access.headers.is_empty(),
        },
    };
    let may_see = url.scheme() == "https"
        || shows.in_the_clear
        || peer.distance != Distance::Internet
        || mutated!(dialer.harness, KeyInTheClear);
    let has_any = !shows.access.secrets.is_empty() || !shows.access.headers.is_empty();
    if wants && has_any && may_see {
        peer.access = shows.access.clone();
        return ask(dialer, dialect, base, peer, limit).await;
    }
    stranger
}

/// What a server says of its models, to whoever shows it what the peer has.
pub(super) async fn ask(
    dialer: &Dialer,
    dialect: Dialect,
    base: &str,
    mut peer: Peer,
    limit: Duration,
) -> Result<Offer, Refusal> {
    match dialect {
        Dialect::Ollama => models::ollama(dialer, base, &peer, limit).await,
        Dialect::OpenAiChat => models::openai(dialer, base, &peer, limit).await,
        Dialect::Anthropic => {
            // It looks for the key in another place.
            peer.dialect = Some(dialect);
            models::anthropic(dialer, base, &peer, limit).await
        }
        Dialect::Local => Err(Refusal::of(failure::no_address(base))),
    }
}

fn works(offer: Offer, dialect: Dialect, base: &str) -> ProbeReport {
    ProbeReport::Works {
        server: offer.server,
        dialect,
        base_url: base.to_owned(),
        models: offer.models,
    }
}

/// How much a failure tells of what is there: a refused key more than a wrong path, that more than no connection.
fn telling(failure: &Failure) -> u8 {
    match failure.code {
        FailureCode::ConnectFailed => 0,
        FailureCode::StreamCut => 1,
        FailureCode::BadStream => 2,
        FailureCode::KeyRejected => 4,
        FailureCode::ModelNotFound
        | FailureCode::ModelLoadFailed
        | FailureCode::FirstTokenTimeout
        | FailureCode::IdleTimeout
        | FailureCode::TurnTimeout
        | FailureCode::EmptyResponse
        | FailureCode::RateLimited
        | FailureCode::QuotaExceeded
        | FailureCode::BadRequest
        | FailureCode::CannotSeeImages
        | FailureCode::ContextOverflow
        | FailureCode::ProviderError
        | FailureCode::AllCandidatesFailed
        | FailureCode::ToolLoop
        | FailureCode::Panicked
        | FailureCode::Aborted => 3,
    }
}
