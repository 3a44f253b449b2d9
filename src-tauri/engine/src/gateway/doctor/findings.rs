//! From what was seen at a server to what is wrong with it: a pure function.
//!
//! Invariant: whatever was seen, the same is found. Everything that keeps the server from being used has a finding that
//! is bad, and what can be put right has its fix there.

use std::net::{IpAddr, SocketAddr};

use protocol::{
    Check, Dialect, Failure, FailureCode, Finding, Fix, Model, Provider, ProxyChoice,
    ShownCertificate, Verdict, is_same_model_name,
};

use crate::gateway::{failure, join, keys::KeyTrouble, peer::Distance, way};

/// What was seen.
#[derive(Clone, Debug)]
pub(in crate::gateway) struct Seen {
    pub(in crate::gateway) provider: Provider,
    pub(in crate::gateway) has_key: bool,
    pub(in crate::gateway) key_trouble: Option<KeyTrouble>,
    /// Secret headers whose values are not kept, without which nothing is sent.
    pub(in crate::gateway) headers_unknown: Vec<String>,
    pub(in crate::gateway) wanted: Wanted,
    /// How far away it is; absent if the address is none.
    pub(in crate::gateway) distance: Option<Distance>,
    /// The proxy that the system names for the address.
    pub(in crate::gateway) system_proxy: Option<String>,
    pub(in crate::gateway) names: Names,
    /// What the addresses of the host said; none behind a proxy.
    pub(in crate::gateway) knocks: Vec<(SocketAddr, Knock)>,
    /// What the server said where it is meant to be.
    pub(in crate::gateway) here: Option<Asked>,
    /// Where else one answered.
    pub(in crate::gateway) elsewhere: Vec<Elsewhere>,
}

/// What is to be there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    /// The model.
    pub(crate) model: Option<String>,
    /// Models with a context length of their own, in tokens.
    pub(crate) contexts: Vec<(String, u32)>,
}

/// What is known of a host's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum Names {
    /// Nothing had to be looked up.
    Given,
    Known(Vec<IpAddr>),
    Unknown(String),
    /// Nobody said whether it is known.
    Silent,
}

/// What a knock at an address came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum Knock {
    Open,
    Refused,
    Unreachable,
    Silent,
    Failed(String),
}

/// What a server said.
#[derive(Clone, Debug)]
pub(in crate::gateway) enum Asked {
    Works {
        server: String,
        models: Vec<Model>,
    },
    Fails {
        failure: Failure,
        loading: bool,
        certificate: Option<Box<ShownCertificate>>,
    },
}

/// A server that answered at another address.
#[derive(Clone, Debug)]
pub(in crate::gateway) struct Elsewhere {
    pub(in crate::gateway) base_url: String,
    pub(in crate::gateway) dialect: Dialect,
    pub(in crate::gateway) server: String,
    pub(in crate::gateway) models: Vec<Model>,
}

/// What is found, in the order in which a request goes.
pub(in crate::gateway) fn findings(seen: &Seen) -> Vec<Finding> {
    let mut found: Vec<Finding> = [
        address(seen),
        name(seen),
        proxy(seen),
        connection(seen),
        certificate(seen),
        server(seen),
        key(seen),
        language(seen),
        models(seen),
        model(seen),
        context(seen),
    ]
    .into_iter()
    .flatten()
    .collect();
    found.sort_by_key(|finding| finding.check);
    found
}

impl Seen {
    fn works(&self) -> Option<(&str, &[Model])> {
        match &self.here {
            Some(Asked::Works { server, models }) => Some((server, models)),
            Some(Asked::Fails { .. }) | None => None,
        }
    }

    fn fails(&self) -> Option<(&Failure, bool, Option<&ShownCertificate>)> {
        match &self.here {
            Some(Asked::Fails {
                failure,
                loading,
                certificate,
            }) => Some((failure, *loading, certificate.as_deref())),
            Some(Asked::Works { .. }) | None => None,
        }
    }

    /// The certificate that a proxy showed, if that is what was not taken.
    fn of_proxy(&self) -> Option<&ShownCertificate> {
        let (_, _, certificate) = self.fails()?;
        let url = join(&self.provider.base_url, "")?;
        certificate.filter(|certificate| certificate.endpoint != way::endpoint(&url))
    }

    /// The context length that the next request asks for.
    fn context_of(&self, model: &str) -> Option<u32> {
        let dialect = self.provider.dialect;
        let mut own = self.wanted.contexts.iter();
        let own = own.find(|(name, _)| is_same_model_name(dialect, name, model));
        own.map(|(_, tokens)| *tokens).or(self.provider.num_ctx)
    }

    fn is_far(&self) -> bool {
        self.distance == Some(Distance::Internet)
    }

    /// Whether a proxy is on the way.
    fn proxied(&self) -> Option<String> {
        match &self.provider.connection.proxy {
            ProxyChoice::Direct => None,
            ProxyChoice::Proxy { url } => Some(url.clone()),
            ProxyChoice::System => self.system_proxy.clone().filter(|_| self.is_far()),
        }
    }

    fn with(&self, change: impl FnOnce(&mut Provider)) -> Option<Fix> {
        let mut provider = self.provider.clone();
        change(&mut provider);
        Some(Fix::Change {
            provider: Box::new(provider),
        })
    }
}

/// The best of the places where one answered: in its own language, with models, as like the address as can be.
fn best(seen: &Seen) -> Option<&Elsewhere> {
    let like = |place: &Elsewhere| {
        let (here, there) = (join(&seen.provider.base_url, ""), join(&place.base_url, ""));
        let Some((here, there)) = here.zip(there) else {
            return 0;
        };
        usize::from(here.origin() == there.origin())
            + usize::from(here.host_str() == there.host_str())
            + usize::from(here.port_or_known_default() == there.port_or_known_default())
            + usize::from(here.scheme() == there.scheme())
    };
    seen.elsewhere.iter().max_by_key(|place| {
        (
            like(place),
            place.dialect == Dialect::Ollama,
            place.dialect == seen.provider.dialect,
            !place.models.is_empty(),
            // Some answer without it too; all answer with it.
            place.base_url.ends_with("/v1"),
            std::cmp::Reverse(place.base_url.len()),
        )
    })
}

fn address(seen: &Seen) -> Option<Finding> {
    let base = &seen.provider.base_url;
    let Some(here) = join(base, "") else {
        let message = failure::no_address(base).message;
        return Some(Finding::new(Check::Address, Verdict::Bad, message));
    };
    if seen.works().is_some() {
        let message = format!("{base} is where its API begins.");
        return Some(Finding::new(Check::Address, Verdict::Good, message));
    }
    let (_, loading, certificate) = seen.fails()?;
    if loading || certificate.is_some() {
        return None;
    }
    let better = best(seen)?;
    let there = join(&better.base_url, "")?;
    let what = &better.server;
    let to = &better.base_url;
    let same = |part: fn(&reqwest::Url) -> Option<String>| part(&here) == part(&there);
    let host = |url: &reqwest::Url| url.host_str().map(str::to_owned);
    let message = if here.origin() == there.origin() {
        format!("The path leads nowhere: {what} answers at {to}, and not at {base}.")
    } else if here.scheme() != there.scheme() && same(host) {
        let (is, not) = (there.scheme(), here.scheme());
        format!("It speaks {is} there, not {not}: {what} answers at {to}.")
    } else if same(host) {
        match here.port() {
            None => format!("The port is missing: {what} answers at {to}."),
            Some(port) => format!("Nothing of use is at port {port}: {what} answers at {to}."),
        }
    } else {
        format!("{what} answers under another form of the same address, {to}.")
    };
    let fix = seen.with(|provider| {
        provider.base_url.clone_from(&better.base_url);
        provider.dialect = better.dialect;
    });
    Some(Finding {
        fix,
        ..Finding::new(Check::Address, Verdict::Bad, message)
    })
}

fn name(seen: &Seen) -> Option<Finding> {
    let url = join(&seen.provider.base_url, "")?;
    let host = url.host_str().unwrap_or_default();
    match &seen.names {
        Names::Given => None,
        Names::Known(ips) if ips.is_empty() => {
            let message = format!("The name {host} is known, but has no address.");
            Some(Finding::new(Check::Name, Verdict::Bad, message))
        }
        Names::Known(ips) => {
            let list: Vec<String> = ips.iter().map(IpAddr::to_string).collect();
            let message = format!("{host} is {}.", list.join(", "));
            Some(Finding::new(Check::Name, Verdict::Good, message))
        }
        Names::Unknown(why) => {
            let advice = if host.contains('.') {
                "Check how it is written, and whether this computer is in the right network."
            } else {
                "Check how it is written, or enter the address in numbers, as in 192.168.1.20."
            };
            let message = format!("No machine called {host} is known here. {advice}");
            Some(Finding {
                detail: Some(why.clone()),
                ..Finding::new(Check::Name, Verdict::Bad, message)
            })
        }
        Names::Silent => {
            let message = format!("Nobody said who {host} is. Is this computer in a network?");
            Some(Finding::new(Check::Name, Verdict::Bad, message))
        }
    }
}

fn proxy(seen: &Seen) -> Option<Finding> {
    let failed = seen.fails().is_some_and(|(failure, _, certificate)| {
        failure.code == FailureCode::ConnectFailed && certificate.is_none()
    });
    if let Some(certificate) = seen.of_proxy() {
        let words = failure::proxy_certificate_words(certificate);
        return Some(Finding {
            fix: seen.with(|provider| provider.connection.proxy = ProxyChoice::Direct),
            ..Finding::new(
                Check::Proxy,
                Verdict::Bad,
                crate::sentence(words.trim_end_matches('.')),
            )
        });
    }
    match (&seen.provider.connection.proxy, seen.proxied()) {
        (ProxyChoice::System, None) => {
            let proxy = seen.system_proxy.as_ref().filter(|_| !seen.is_far())?;
            let message = format!(
                "The system’s proxy {proxy} would take this address too; Holdfast goes past it, as to every server near by."
            );
            Some(Finding::new(Check::Proxy, Verdict::Note, message))
        }
        (ProxyChoice::System, Some(proxy)) if failed => Some(Finding {
            fix: seen.with(|provider| provider.connection.proxy = ProxyChoice::Direct),
            ..Finding::new(
                Check::Proxy,
                Verdict::Bad,
                format!(
                    "The way goes through the system’s proxy {proxy}, and no further. If the server can be reached without, go past it."
                ),
            )
        }),
        (ProxyChoice::Proxy { .. }, Some(proxy)) if failed => Some(Finding {
            fix: seen.with(|provider| provider.connection.proxy = ProxyChoice::Direct),
            ..Finding::new(
                Check::Proxy,
                Verdict::Bad,
                format!(
                    "The way goes through {proxy}, the proxy in this server’s settings, and no further. Does it run?"
                ),
            )
        }),
        (_, Some(proxy)) => {
            let message = format!("It is reached through the proxy {proxy}.");
            Some(Finding::new(Check::Proxy, Verdict::Note, message))
        }
        (ProxyChoice::Direct | ProxyChoice::Proxy { .. }, None) => None,
    }
}

fn connection(seen: &Seen) -> Option<Finding> {
    let of = |wanted: fn(&Knock) -> bool| -> Vec<String> {
        let those = seen.knocks.iter().filter(|(_, knock)| wanted(knock));
        those.map(|(at, _)| at.to_string()).collect()
    };
    let open = of(|knock| *knock == Knock::Open);
    let refused = of(|knock| *knock == Knock::Refused);
    let silent = of(|knock| *knock == Knock::Silent);
    if seen.knocks.is_empty() {
        return None;
    }
    if !open.is_empty() {
        let deaf: Vec<String> = of(|knock| *knock != Knock::Open);
        let message = if deaf.is_empty() {
            format!("Connections are taken at {}.", open.join(" and "))
        } else {
            format!(
                "Connections are taken at {}, and not at {}.",
                open.join(" and "),
                deaf.join(" and ")
            )
        };
        return Some(Finding::new(Check::Connection, Verdict::Good, message));
    }
    let ollama = seen.provider.dialect == Dialect::Ollama;
    if !refused.is_empty() {
        let advice = match (seen.distance, ollama) {
            (Some(Distance::ThisMachine), true) => "Is Ollama running?",
            (Some(Distance::ThisMachine), false) => "Is the server running, and at this port?",
            (_, true) => {
                "Is Ollama running there, and does it listen on the network (OLLAMA_HOST=0.0.0.0)?"
            }
            (_, false) => "Is the server running there, and does it listen on the network?",
        };
        let message = format!(
            "The machine is there, but nothing listens at {}. {advice}",
            refused.join(" or ")
        );
        return Some(Finding::new(Check::Connection, Verdict::Bad, message));
    }
    let card = seen.provider.connection.wakes;
    let fix = card.map(|card| Fix::Wake { card });
    if !silent.is_empty() {
        let advice = match (seen.distance, card) {
            (Some(Distance::LocalNetwork), Some(_)) => "It may be asleep.",
            (Some(Distance::LocalNetwork), None) => {
                "It may be off, asleep, or behind a firewall. With the address of its network card in its settings, Holdfast can wake it."
            }
            (Some(Distance::ThisMachine | Distance::Internet) | None, _) => {
                "It may be off, or a firewall is between."
            }
        };
        let message = format!("Nobody answers at {}. {advice}", silent.join(" or "));
        return Some(Finding {
            fix,
            ..Finding::new(Check::Connection, Verdict::Bad, message)
        });
    }
    let words: Vec<String> = seen
        .knocks
        .iter()
        .filter_map(|(_, knock)| match knock {
            Knock::Failed(words) => Some(words.clone()),
            Knock::Open | Knock::Refused | Knock::Unreachable | Knock::Silent => None,
        })
        .collect();
    Some(Finding {
        detail: (!words.is_empty()).then(|| words.join("; ")),
        fix,
        ..Finding::new(
            Check::Connection,
            Verdict::Bad,
            "No way leads to its address from here. Is this computer in the right network, and is the other one on?",
        )
    })
}

fn certificate(seen: &Seen) -> Option<Finding> {
    let url = join(&seen.provider.base_url, "")?;
    if url.scheme() != "https" || seen.of_proxy().is_some() {
        return None;
    }
    let here = way::endpoint(&url);
    let trusts = seen.provider.connection.trusts.as_ref();
    let trusts = trusts.filter(|trusted| trusted.endpoint == here);
    match (seen.works(), seen.fails(), trusts) {
        (_, Some((_, _, Some(certificate))), trusted) => {
            let faults = failure::certificate_faults(certificate);
            let changed = trusted.map_or("", |_| {
                " It is not the certificate that you trusted here before: either the server got a new one, or somebody stands between."
            });
            let print = certificate.sha256.in_pairs();
            let message = format!(
                "The certificate of {here} is not acceptable: {faults}.{changed} Its SHA-256 is {print}. Trust it only if that is what the server itself shows."
            );
            Some(Finding {
                fix: Some(Fix::Trust {
                    certificate: Box::new(certificate.clone()),
                }),
                ..Finding::new(Check::Certificate, Verdict::Bad, message)
            })
        }
        (Some(_), _, Some(trusted)) => {
            let message = format!(
                "You trust one certificate here, whatever this system says, by its SHA-256 {}.",
                trusted.sha256.in_pairs()
            );
            Some(Finding::new(Check::Certificate, Verdict::Note, message))
        }
        (Some(_), _, None) => {
            let message = "This system knows who vouches for its certificate.";
            Some(Finding::new(Check::Certificate, Verdict::Good, message))
        }
        (None, _, _) => None,
    }
}

fn server(seen: &Seen) -> Option<Finding> {
    if let Some((server, _)) = seen.works() {
        let message = format!("{server} answers.");
        return Some(Finding::new(Check::Server, Verdict::Good, message));
    }
    let (failure, loading, certificate) = seen.fails()?;
    if loading {
        let message = "It is still loading its model, and answers in a while.";
        return Some(Finding::new(Check::Server, Verdict::Note, message));
    }
    // Said already, by what comes before.
    let is_away = failure.code == FailureCode::ConnectFailed
        && seen.knocks.iter().all(|(_, knock)| *knock != Knock::Open)
        && (!seen.knocks.is_empty() || seen.names != Names::Given || seen.proxied().is_some());
    let is_unasked = seen.key_trouble.is_some() || !seen.headers_unknown.is_empty();
    if certificate.is_some() || is_away || is_unasked {
        return None;
    }
    match failure.code {
        FailureCode::KeyRejected => {
            let message = "It is there, and asks who we are.";
            Some(Finding::new(Check::Server, Verdict::Note, message))
        }
        FailureCode::ConnectFailed
        | FailureCode::StreamCut
        | FailureCode::BadStream
        | FailureCode::ModelNotFound
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
        | FailureCode::Aborted => Some(Finding {
            detail: failure.detail.clone(),
            ..Finding::new(Check::Server, Verdict::Bad, failure.message.clone())
        }),
    }
}

fn key(seen: &Seen) -> Option<Finding> {
    if let Some(trouble) = &seen.key_trouble {
        let fix = match trouble {
            KeyTrouble::ForAnother { .. } => Fix::CarryKey,
            KeyTrouble::Silent { .. } | KeyTrouble::Unreadable(_) | KeyTrouble::Gone(_) => {
                Fix::EnterKey
            }
        };
        let words = crate::sentence(&trouble.to_string());
        return Some(Finding {
            fix: Some(fix),
            ..Finding::new(Check::Key, Verdict::Bad, words)
        });
    }
    if !seen.headers_unknown.is_empty() {
        let message = format!(
            "It was not asked: a header that goes with every request has no value yet ({}). Enter it where the key is.",
            seen.headers_unknown.join(", ")
        );
        return Some(Finding {
            fix: Some(Fix::EnterKey),
            ..Finding::new(Check::Key, Verdict::Bad, message)
        });
    }
    if seen.works().is_some() {
        let message = match (seen.has_key, seen.is_far()) {
            (true, _) => "Its list of models is given out with the key that is kept.",
            (false, true) => {
                "Its list of models is given out without a key; for answers it may want one all the same."
            }
            (false, false) => "It wants none.",
        };
        return Some(Finding::new(Check::Key, Verdict::Good, message));
    }
    let (failure, _, _) = seen.fails()?;
    if failure.code != FailureCode::KeyRejected {
        return None;
    }
    let message = if seen.has_key {
        "It refuses the key that is kept for it. Enter another one."
    } else {
        "It wants a key, and none is kept."
    };
    Some(Finding {
        detail: failure.detail.clone(),
        fix: Some(Fix::EnterKey),
        ..Finding::new(Check::Key, Verdict::Bad, message)
    })
}

fn language(seen: &Seen) -> Option<Finding> {
    seen.works()?;
    if seen.provider.dialect == Dialect::Ollama {
        return None;
    }
    let ollama = seen
        .elsewhere
        .iter()
        .find(|place| place.dialect == Dialect::Ollama)?;
    let fix = seen.with(|provider| {
        provider.base_url.clone_from(&ollama.base_url);
        provider.dialect = Dialect::Ollama;
    });
    Some(Finding {
        fix,
        ..Finding::new(
            Check::Language,
            Verdict::Note,
            "This is an Ollama. Only in its own language can its context length be set, and how long it keeps a model loaded.",
        )
    })
}

fn models(seen: &Seen) -> Option<Finding> {
    let (_, models) = seen.works()?;
    Some(match models.len() {
        0 if seen.provider.dialect == Dialect::Ollama => Finding::new(
            Check::Models,
            Verdict::Bad,
            "It has no models yet. Get one there: ollama pull llama3.2",
        ),
        0 => Finding::new(
            Check::Models,
            Verdict::Bad,
            "It offers no models. Load one there, then look again.",
        ),
        1 => Finding::new(Check::Models, Verdict::Good, "It offers one model."),
        count => Finding::new(
            Check::Models,
            Verdict::Good,
            format!("It offers {count} models."),
        ),
    })
}

fn model(seen: &Seen) -> Option<Finding> {
    let (_, models) = seen.works()?;
    let wanted = seen.wanted.model.as_ref()?;
    let is_it = |model: &Model| is_same_model_name(seen.provider.dialect, &model.name, wanted);
    if models.is_empty() {
        return None;
    }
    if models.iter().any(is_it) {
        let message = format!("It has {wanted}, the model used last.");
        return Some(Finding::new(Check::Model, Verdict::Good, message));
    }
    let message = format!("It does not have {wanted}, the model used last. Choose another one.");
    Some(Finding {
        fix: Some(Fix::ChooseModel {
            models: models.iter().map(|model| model.name.clone()).collect(),
        }),
        ..Finding::new(Check::Model, Verdict::Bad, message)
    })
}

fn context(seen: &Seen) -> Option<Finding> {
    let (_, models) = seen.works()?;
    if seen.provider.dialect != Dialect::Ollama {
        return None;
    }
    let is_meant = |model: &&Model| {
        let named = seen.wanted.model.as_ref();
        named.is_none_or(|name| is_same_model_name(Dialect::Ollama, &model.name, name))
    };
    let (other, has, wanted) = models
        .iter()
        .filter(|model| model.loaded == Some(true))
        .filter(is_meant)
        .find_map(|model| {
            let (has, wanted) = (model.context_tokens?, seen.context_of(&model.name)?);
            (has != u64::from(wanted)).then_some((model, has, wanted))
        })?;
    let message = format!(
        "{} is loaded with a context of {has} tokens, by somebody else or an earlier setting. Your setting is {wanted}, so the next request loads it anew.",
        other.name
    );
    Some(Finding::new(Check::Context, Verdict::Note, message))
}
