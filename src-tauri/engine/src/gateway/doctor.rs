//! The doctor: looks at a server from every side, within a limit; `findings` says what that means.
//!
//! Invariant: an examination ends, whatever the server does, and changes nothing. A key is shown at the origin it is
//! kept for and nowhere else, so that looking for a better address gives nothing away.

pub(super) mod findings;

use std::{
    collections::BTreeSet,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    time::Duration,
};

use futures_util::future::join_all;
use protocol::{Dialect, Examination, FailureCode, MacAddress, Provider};
use reqwest::Url;
use tokio::net::TcpStream;

use super::{
    access::Access,
    address,
    dial::Dialer,
    failure::Refusal,
    join,
    keys::{KeyTrouble, Secrets},
    models::Offer,
    peer::{Distance, Peer},
    probe,
    way::{self, Through},
};

pub(crate) use findings::Wanted;
use findings::{Asked, Elsewhere, Knock, Names, Seen};

/// For one question: somebody waits for all of them.
const LOOK_WAIT: Duration = Duration::from_secs(4);
/// More addresses of one host than anybody has to knock at.
const ADDRESSES_MAX: usize = 6;
/// More places than an address can sensibly mean.
const PLACES_MAX: usize = 24;

/// Examines a server.
pub(super) async fn examine(
    dialer: &Dialer,
    provider: &Provider,
    secrets: Result<Secrets, KeyTrouble>,
    wanted: Wanted,
) -> Examination {
    let seen = look(dialer, provider, secrets, wanted).await;
    Examination {
        server: provider.clone(),
        findings: findings::findings(&seen),
    }
}

async fn look(
    dialer: &Dialer,
    provider: &Provider,
    secrets: Result<Secrets, KeyTrouble>,
    wanted: Wanted,
) -> Seen {
    let url = join(&provider.base_url, "");
    let (secrets, trouble) = match secrets {
        Ok(secrets) => (secrets, None),
        Err(trouble) => (Secrets::default(), Some(trouble)),
    };
    let unknown = provider
        .connection
        .secret_headers()
        .filter(|name| !secrets.headers.contains_key(&name.to_ascii_lowercase()));
    let mut seen = Seen {
        provider: provider.clone(),
        has_key: secrets.key.is_some(),
        headers_unknown: unknown.map(str::to_owned).collect(),
        key_trouble: trouble,
        wanted,
        distance: url.as_ref().map(Distance::of),
        system_proxy: url.as_ref().and_then(shown_proxy),
        names: Names::Given,
        knocks: Vec::new(),
        here: None,
        elsewhere: Vec::new(),
    };
    let Some(url) = url else {
        return seen;
    };
    let access = Access::of(&provider.connection, secrets);
    let is_direct = access.way.to(&url, &dialer.harness).through == Through::Nothing
        || (seen.system_proxy.is_none() && provider.connection.proxy.is_system());
    let network = async {
        if !is_direct {
            return (Names::Given, Vec::new());
        }
        let (names, addresses) = looked_up(dialer, &url).await;
        let knocks = addresses.into_iter().map(|at| knocked(dialer, at));
        (names, join_all(knocks).await)
    };
    let here = async {
        let peer = peer_at(&url, provider, &access);
        let base = &provider.base_url;
        // Of our own key's trouble the server would say nothing better.
        probe::ask(dialer, provider.dialect, base, peer, LOOK_WAIT).await
    };
    let ((names, knocks), here) = futures_util::join!(network, here);
    (seen.names, seen.knocks) = (names, knocks);
    let wanted = match &here {
        Ok(_) => provider.dialect != Dialect::Ollama,
        Err(refusal) => is_worth_a_search(refusal),
    };
    let works = here.is_ok();
    seen.here = Some(asked(here));
    if wanted {
        seen.elsewhere = elsewhere(dialer, &url, provider, &access, works).await;
    }
    seen
}

fn asked(answer: Result<Offer, Refusal>) -> Asked {
    match answer {
        Ok(Offer { server, models }) => Asked::Works { server, models },
        Err(Refusal {
            error,
            loading,
            certificate,
        }) => Asked::Fails {
            failure: error.failure,
            loading,
            certificate,
        },
    }
}

fn peer_at(url: &Url, provider: &Provider, access: &Access) -> Peer {
    Peer {
        name: provider.name.clone(),
        dialect: Some(provider.dialect),
        access: access.clone(),
        ..Peer::at(url)
    }
}

/// Whether another address could be what is missing.
fn is_worth_a_search(refusal: &Refusal) -> bool {
    if refusal.loading || refusal.certificate.is_some() {
        return false;
    }
    match refusal.error.failure.code {
        FailureCode::KeyRejected | FailureCode::RateLimited | FailureCode::QuotaExceeded => false,
        FailureCode::ConnectFailed
        | FailureCode::ModelNotFound
        | FailureCode::ModelLoadFailed
        | FailureCode::FirstTokenTimeout
        | FailureCode::IdleTimeout
        | FailureCode::TurnTimeout
        | FailureCode::StreamCut
        | FailureCode::BadStream
        | FailureCode::EmptyResponse
        | FailureCode::BadRequest
        | FailureCode::CannotSeeImages
        | FailureCode::ContextOverflow
        | FailureCode::ProviderError
        | FailureCode::AllCandidatesFailed
        | FailureCode::ToolLoop
        | FailureCode::Panicked
        | FailureCode::Aborted => true,
    }
}

/// Where else the server may be meant to be; with what works already, only whether it is an Ollama.
async fn elsewhere(
    dialer: &Dialer,
    url: &Url,
    provider: &Provider,
    access: &Access,
    works: bool,
) -> Vec<Elsewhere> {
    let mut tried = BTreeSet::from([(provider.base_url.clone(), provider.dialect as u8)]);
    let mut questions = Vec::new();
    let mut add = |dialect: Dialect, base: String| {
        let is_new = tried.insert((base.clone(), dialect as u8));
        if is_new && questions.len() < PLACES_MAX {
            questions.push((dialect, base));
        }
    };
    let origin = url.origin();
    if works {
        for base in as_ollama(&provider.base_url) {
            add(Dialect::Ollama, base);
        }
    } else {
        for text in address::variants(&provider.base_url) {
            for place in address::places(&text).unwrap_or_default() {
                add(Dialect::Ollama, place.ollama);
                let listed = match provider.dialect {
                    Dialect::Anthropic => Dialect::Anthropic,
                    Dialect::Ollama | Dialect::OpenAiChat | Dialect::Local => Dialect::OpenAiChat,
                };
                for base in place.openai {
                    add(listed, base);
                }
            }
        }
    }
    let answers = questions.into_iter().map(|(dialect, base)| {
        let origin = origin.clone();
        async move {
            let url = join(&base, "")?;
            let mut shown = access.clone();
            if url.origin() != origin {
                shown.secrets = Secrets::default();
                shown.headers.clear();
            }
            let mut peer = peer_at(&url, provider, &shown);
            peer.dialect = Some(dialect);
            let asked = probe::ask(dialer, dialect, &base, peer, LOOK_WAIT).await;
            let (server, models) = match asked {
                Ok(Offer { server, models }) => (server, models),
                Err(refusal) if refusal.loading && dialect == Dialect::OpenAiChat => {
                    ("llama.cpp, still loading its model".to_owned(), Vec::new())
                }
                Err(refusal) if refusal.error.failure.code == FailureCode::KeyRejected => {
                    ("a server that wants a key".to_owned(), Vec::new())
                }
                Err(_) => return None,
            };
            Some(Elsewhere {
                base_url: base,
                dialect,
                server,
                models,
            })
        }
    });
    // Pushed one by one, for the reason that `probe` has.
    let mut list = Vec::new();
    for answer in answers {
        list.push(answer);
    }
    join_all(list).await.into_iter().flatten().collect()
}

/// Where a server that answers would be an Ollama. At another port there may be one too, which is not this one.
fn as_ollama(base_url: &str) -> Vec<String> {
    let origin = |base: &str| join(base, "").map(|url| url.origin());
    let here = origin(base_url);
    let places = address::places(base_url).unwrap_or_default();
    let bases = places.into_iter().map(|place| place.ollama);
    bases.filter(|base| origin(base) == here).collect()
}

async fn looked_up(dialer: &Dialer, url: &Url) -> (Names, Vec<SocketAddr>) {
    let host = url.host_str().unwrap_or_default();
    let port = url.port_or_known_default().unwrap_or_default();
    if let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
        return (Names::Given, vec![(address, port).into()]);
    }
    if host == "localhost" {
        let both = [
            (Ipv4Addr::LOCALHOST, port).into(),
            (Ipv6Addr::LOCALHOST, port).into(),
        ];
        return (Names::Given, both.to_vec());
    }
    let mut late = dialer.clock.sleep(LOOK_WAIT);
    let found = tokio::select! {
        found = tokio::net::lookup_host((host, port)) => found,
        () = &mut late => Err(io::ErrorKind::TimedOut.into()),
    };
    match found {
        Ok(found) => {
            let addresses: Vec<SocketAddr> = found.take(ADDRESSES_MAX).collect();
            let ips = addresses.iter().map(SocketAddr::ip).collect();
            (Names::Known(ips), addresses)
        }
        Err(error) if error.kind() == io::ErrorKind::TimedOut => (Names::Silent, Vec::new()),
        Err(error) => (Names::Unknown(error.to_string()), Vec::new()),
    }
}

async fn knocked(dialer: &Dialer, at: SocketAddr) -> (SocketAddr, Knock) {
    let mut late = dialer.clock.sleep(LOOK_WAIT);
    let knock = tokio::select! {
        taken = TcpStream::connect(at) => match taken {
            Ok(_) => Knock::Open,
            Err(error) => match error.kind() {
                io::ErrorKind::ConnectionRefused => Knock::Refused,
                io::ErrorKind::HostUnreachable
                | io::ErrorKind::NetworkUnreachable
                | io::ErrorKind::AddrNotAvailable => Knock::Unreachable,
                io::ErrorKind::TimedOut => Knock::Silent,
                _ => Knock::Failed(error.to_string()),
            },
        },
        () = &mut late => Knock::Silent,
    };
    (at, knock)
}

/// The proxy that the system names for an address, whether we use it or not.
fn shown_proxy(url: &Url) -> Option<String> {
    let proxy = way::system_proxy(url)?;
    // Its name and password are nobody's business.
    let host = proxy.host_str().unwrap_or_default();
    Some(match proxy.port() {
        Some(port) => format!("{}://{host}:{port}", proxy.scheme()),
        None => format!("{}://{host}", proxy.scheme()),
    })
}

/// Sends the packet that wakes a network card, to everybody on the local network.
///
/// # Errors
/// When no packet could be sent at all.
pub(super) fn wake(card: &MacAddress) -> io::Result<()> {
    /// By custom; the card looks at what is in the packet, and at nothing else.
    const PORTS: [u16; 2] = [9, 7];
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.set_broadcast(true)?;
    let packet = packet(card);
    let mut last = Err(io::ErrorKind::NetworkUnreachable.into());
    for port in PORTS {
        let sent = socket.send_to(&packet, (Ipv4Addr::BROADCAST, port));
        if sent.is_ok() || last.is_err() {
            last = sent.map(drop);
        }
    }
    last
}

/// Six bytes that stand for nothing, and the card's address sixteen times.
fn packet(card: &MacAddress) -> Vec<u8> {
    let mut packet = vec![0xff; 6];
    for _ in 0..16 {
        packet.extend_from_slice(&card.bytes());
    }
    packet
}

#[cfg(test)]
mod tests;
