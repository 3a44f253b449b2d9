//! What went wrong, in words for the reader, and whether asking again may help.
//!
//! Invariant: total. Every status, body, error object and broken connection becomes one named failure with a sentence
//! that says whose doing it was and what to do; the server's own words are bounded and hold no key.

use std::{io, time::Duration};

use protocol::{
    CertificateFault, Dialect, Failure, FailureCode, ProxyChoice, ShownCertificate, Slept,
    Timestamp,
};
use reqwest::{StatusCode, Url};

use super::{
    AttemptError, Retry, Room,
    fault::{Fault, Kind, Place, Said, Unreadable, clip},
    keys::KeyTrouble,
    local,
    peer::{Distance, Peer},
    tls, way,
};

/// Raw text a failure holds, for the reader to unfold.
const DETAIL_BYTES_MAX: usize = 4096;

/// Before a server that loads its model is asked again.
const LOADING_WAIT: Duration = Duration::from_secs(2);

/// A reply that is no answer, as it came.
#[derive(Debug)]
pub(super) struct Reply<'a> {
    pub(super) status: u16,
    /// Its first bytes.
    pub(super) body: &'a str,
    /// `Retry-After`, as it came.
    pub(super) retry_after: Option<&'a str>,
    /// Where a redirect points.
    pub(super) location: Option<&'a str>,
    /// Now, for dates and for [`Failure::retry_at`].
    pub(super) wall: Timestamp,
}

/// What a refusal comes to.
#[derive(Debug, PartialEq)]
pub(super) struct Refusal {
    pub(super) error: AttemptError,
    /// The server only has to finish loading the model.
    pub(super) loading: bool,
    /// The certificate that was not taken.
    pub(super) certificate: Option<Box<ShownCertificate>>,
}

impl Refusal {
    /// A request that did not get through.
    pub(super) fn unsent(peer: &Peer, problem: &reqwest::Error) -> Self {
        Self {
            error: unsent(peer, problem),
            loading: false,
            certificate: certificate_in(peer, problem).map(Box::new),
        }
    }

    /// One that nothing can be done about.
    pub(super) fn of(failure: Failure) -> Self {
        AttemptError {
            failure,
            retry: Retry::Never,
        }
        .into()
    }
}

impl From<AttemptError> for Refusal {
    fn from(error: AttemptError) -> Self {
        Self {
            error,
            loading: false,
            certificate: None,
        }
    }
}

/// A status other than success.
pub(super) fn refused(peer: &Peer, reply: &Reply<'_>) -> Refusal {
    let said = serde_json::from_str(reply.body)
        .ok()
        .and_then(|value| Said::read(&value));
    let kind = Kind::of(reply.body);
    let said = match (said, kind) {
        (Some(said), _) => said,
        (None, Kind::Text) => Said::words(reply.body),
        (None, Kind::Page | Kind::Json | Kind::BrokenJson) => Said::default(),
    };
    let loading = reply.status == 503 && said.message.to_lowercase().contains("loading model");
    let wait = reply
        .retry_after
        .and_then(|text| retry_after(text, reply.wall));
    let case = Case {
        peer,
        status: Some(reply.status),
        page: kind == Kind::Page,
        location: reply.location,
        after_headers: false,
        waits: wait.is_some(),
    };
    let mut error = if loading {
        error(
            FailureCode::ProviderError,
            format!("{} is still loading {}.", peer.place(), peer.model()),
            Retry::WhenLoaded(LOADING_WAIT),
        )
    } else if wants_tls(reply) {
        error(
            FailureCode::ConnectFailed,
            format!(
                "{} wants https. Write https:// in its address.",
                peer.place()
            ),
            Retry::Never,
        )
    } else {
        case.judge(&said)
    };
    if let (Some(wait), Retry::Backoff | Retry::After(_)) = (wait, error.retry) {
        error.retry = Retry::After(wait);
        let millis = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        let at = Timestamp::from_millis(reply.wall.millis().saturating_add(millis));
        error.failure.retry_at = Some(at);
        let wait = in_words(wait);
        if error.failure.code == FailureCode::RateLimited {
            error.failure.message = format!(
                "{} asks to wait {wait} before the next request.",
                peer.place(),
            );
        } else {
            let what = &error.failure.message;
            error.failure.message = format!("{what} It asks to wait {wait}.");
        }
    }
    error.failure.detail = detail(peer, reply.body);
    Refusal {
        error,
        loading,
        certificate: None,
    }
}

/// A server of TLS that was addressed without: in the words of Go's servers, nginx and Apache.
fn wants_tls(reply: &Reply<'_>) -> bool {
    let words = reply.body.to_lowercase();
    reply.status == 400
        && [
            "http request was sent to https port",
            "http request to an https server",
            "speaking plain http to an ssl-enabled server",
        ]
        .iter()
        .any(|part| words.contains(part))
}

/// A fault that the decoder found in an answer with status 200.
pub(super) fn faulty(peer: &Peer, fault: &Fault) -> AttemptError {
    match fault {
        Fault::Truncated => cut(peer, None),
        Fault::Said(said) => {
            let case = Case {
                peer,
                status: said.status,
                page: false,
                location: None,
                after_headers: true,
                waits: false,
            };
            let mut error = case.judge(said);
            error.failure.detail = detail(peer, &said.message);
            error
        }
        Fault::Unreadable(unreadable) => not_a_reply(peer, unreadable),
        Fault::TooLong => error(
            FailureCode::BadStream,
            format!(
                "{} sent more in one piece than any answer needs; it was refused.",
                peer.place()
            ),
            Retry::Never,
        ),
        Fault::Empty => error(
            FailureCode::EmptyResponse,
            format!(
                "{} gave no answer: it ended properly and said nothing.",
                peer.model()
            ),
            Retry::Never,
        ),
        Fault::CallsMissing => error(
            FailureCode::BadStream,
            format!(
                "{} says that {} called a tool, but sent no call; the server lost it.",
                peer.place(),
                peer.model()
            ),
            Retry::Never,
        ),
        Fault::Failed(failed) => local::failed(failed),
    }
}

/// The body is squeezed, though nobody said that we could read that.
pub(super) fn compressed(peer: &Peer, status: StatusCode, form: &str) -> AttemptError {
    let (place, form) = (peer.place(), clip(form, 40));
    error(
        FailureCode::BadStream,
        format!(
            "{place} answered with status {} in a compressed form ({form}), which nobody asked for. Switch that off in the server, or in the proxy before it.",
            status.as_u16()
        ),
        Retry::Never,
    )
}

/// The connection ended before the answer did.
pub(super) fn cut(peer: &Peer, why: Option<&(dyn std::error::Error + 'static)>) -> AttemptError {
    let mut cut = error(
        FailureCode::StreamCut,
        format!(
            "The connection to {} ended before the answer did.",
            peer.place()
        ),
        Retry::Backoff,
    );
    cut.failure.detail = why.and_then(|why| detail(peer, &chain(why)));
    cut
}

/// The connection stood when the computer fell asleep, and is gone since it woke.
pub(super) fn did_not_survive(
    peer: &Peer,
    slept: Slept,
    why: Option<&(dyn std::error::Error + 'static)>,
) -> AttemptError {
    let mut cut = cut(peer, why);
    let slept = Duration::from_millis(slept.to.millis_since(slept.from));
    cut.failure.message = format!(
        "The computer slept for {}, and the connection to {} did not survive it.",
        in_words(slept),
        peer.place()
    );
    cut
}

/// The address is none.
pub(super) fn no_address(address: &str) -> Failure {
    Failure::new(
        FailureCode::ConnectFailed,
        format!(
            "\"{}\" is not an address; it should look like http://127.0.0.1:11434.",
            clip(address, 200)
        ),
    )
}

/// The address holds a name or a password.
pub(super) fn secret_in_address() -> Failure {
    Failure::new(
        FailureCode::ConnectFailed,
        "The address holds a user name or password, and addresses are stored readably. Enter the key in its own field.",
    )
}

/// The key cannot be sent.
pub(super) fn no_key(peer: &Peer) -> AttemptError {
    error(
        FailureCode::KeyRejected,
        format!(
            "The key for {} holds characters that cannot be sent; paste it again.",
            peer.name
        ),
        Retry::Never,
    )
}

/// Its key could not be had.
pub(super) fn key_trouble(provider: &str, trouble: &KeyTrouble) -> AttemptError {
    error(
        FailureCode::KeyRejected,
        format!("{provider} was not asked: {trouble}."),
        Retry::Never,
    )
}

/// A header that cannot be sent.
pub(super) fn no_header(peer: &Peer, name: &str) -> AttemptError {
    error(
        FailureCode::KeyRejected,
        format!(
            "The header {name} for {} holds characters that cannot be sent; enter it again.",
            peer.name
        ),
        Retry::Never,
    )
}

/// A header whose value is secret, and not kept anywhere.
pub(super) fn no_header_value(peer: &Peer, name: &str) -> AttemptError {
    error(
        FailureCode::KeyRejected,
        format!(
            "The header {name} for {} has no value; enter it in the settings.",
            peer.name
        ),
        Retry::Never,
    )
}

/// The proxy's address is none.
pub(super) fn no_proxy(peer: &Peer, proxy: &str) -> AttemptError {
    error(
        FailureCode::ConnectFailed,
        format!(
            "The proxy \"{}\" of {} is not an address; it should look like http://proxy.lan:3128.",
            clip(proxy, 200),
            peer.name
        ),
        Retry::Never,
    )
}

/// No connection can be begun at all: this machine's TLS or resolver.
pub(super) fn no_client(peer: &Peer, problem: &dyn std::error::Error) -> AttemptError {
    let mut failed = error(
        FailureCode::ConnectFailed,
        format!(
            "No connection to {} can be set up on this machine.",
            peer.place()
        ),
        Retry::Never,
    );
    failed.failure.detail = detail(peer, &problem.to_string());
    failed
}

/// No connection within the limit.
pub(super) fn no_connection(peer: &Peer, limit: Duration) -> AttemptError {
    error(
        FailureCode::ConnectFailed,
        format!(
            "Cannot reach {}: no connection within {}. {}",
            peer.place(),
            in_words(limit),
            advice(peer)
        ),
        Retry::Never,
    )
}

/// Silence before the answer's first event.
pub(super) fn no_first_event(peer: &Peer, limit: Duration) -> AttemptError {
    error(
        FailureCode::FirstTokenTimeout,
        format!(
            "{} on {} did not start to answer within {}.",
            peer.model(),
            peer.place(),
            in_words(limit)
        ),
        Retry::Never,
    )
}

/// Silence after it.
pub(super) fn went_silent(peer: &Peer, limit: Duration) -> AttemptError {
    error(
        FailureCode::IdleTimeout,
        format!(
            "{} went silent: nothing came from {} for {}.",
            peer.model(),
            peer.place(),
            in_words(limit)
        ),
        Retry::Never,
    )
}

/// The request did not get through: what reqwest says, in words.
pub(super) fn unsent(peer: &Peer, problem: &reqwest::Error) -> AttemptError {
    if let Some(certificate) = certificate_in(peer, problem) {
        let mut failed = error(
            FailureCode::ConnectFailed,
            format!(
                "Cannot reach {}: {}",
                peer.place(),
                certificate_words(peer, problem.url(), &certificate)
            ),
            Retry::Never,
        );
        failed.failure.detail = detail(peer, &chain(problem));
        return failed;
    }
    let why = Why::of(problem);
    let is_tls = problem.url().is_some_and(|url| url.scheme() == "https");
    let detail = detail(peer, &chain(problem));
    let mut failed = match why {
        Why::NoHttp => error(
            FailureCode::BadStream,
            format!(
                "What answers at {} does not speak HTTP. Check the port{}.",
                peer.address,
                if is_tls {
                    ""
                } else {
                    ", and whether the address should begin with https://"
                }
            ),
            Retry::Never,
        ),
        // It was reached, and hung up.
        Why::Other if !problem.is_connect() && !problem.is_builder() => {
            let mut failed = cut(peer, None);
            failed.failure.message =
                format!("{} closed the connection without an answer.", peer.place());
            failed
        }
        Why::Reset => {
            let mut failed = cut(peer, None);
            failed.failure.message = format!("{} broke the connection off.", peer.place());
            failed
        }
        Why::Refused | Why::Name | Why::Certificate | Why::NoTls | Why::Other => error(
            FailureCode::ConnectFailed,
            format!("Cannot reach {}: {}", peer.place(), why.words(peer)),
            Retry::Never,
        ),
    };
    failed.failure.detail = detail;
    failed
}

/// The certificate that was not taken, if that is what went wrong. Its endpoint says whose it is: the server's, or that
/// of a proxy on the way there.
fn certificate_in(peer: &Peer, problem: &reqwest::Error) -> Option<ShownCertificate> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(problem);
    while let Some(cause) = next {
        if let Some(tls) = cause.downcast_ref::<rustls::Error>() {
            let mut certificate = tls::Refused::within(tls)?.certificate.clone();
            if let Some(url) = problem.url() {
                certificate.endpoint = shown_at(peer, url, &certificate.endpoint);
            }
            return Some(certificate);
        }
        // What an IO error holds is not among its sources, only what that comes from.
        let held = cause
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        next = match held {
            Some(inner) => Some(inner),
            None => cause.source(),
        };
    }
    None
}

/// Where a host showed its certificate, on the way to `url`.
fn shown_at(peer: &Peer, url: &Url, host: &str) -> String {
    let is_host = |url: &Url| {
        url.scheme() == "https" && url.host_str().is_some_and(|h| h.eq_ignore_ascii_case(host))
    };
    if is_host(url) {
        return way::endpoint(url);
    }
    let route = peer.access.way.to(url, &crate::Harness::default());
    match route.proxy_before(url).filter(is_host) {
        Some(proxy) => way::endpoint(&proxy),
        None => host.to_owned(),
    }
}

/// What is wrong with it, and how it can be told; the end of a sentence, and more.
fn certificate_words(peer: &Peer, url: Option<&Url>, certificate: &ShownCertificate) -> String {
    if url.is_some_and(|url| way::endpoint(url) != certificate.endpoint) {
        return proxy_certificate_words(certificate);
    }
    let faults = certificate_faults(certificate);
    let print = certificate.sha256.in_pairs();
    let trusted = peer.access.way.trusts.as_ref();
    let changed = trusted
        .filter(|trusted| trusted.endpoint == certificate.endpoint)
        .map_or(
            "",
            |_| " It is not the certificate that you trusted here before.",
        );
    format!(
        "its certificate is not acceptable: {faults}.{changed} Its SHA-256 is {print}. If that is your server’s, it can \
         be trusted in the settings, for this server alone."
    )
}

/// The same for the certificate of a proxy, which cannot be trusted by itself.
pub(super) fn proxy_certificate_words(certificate: &ShownCertificate) -> String {
    format!(
        "the certificate of the proxy {} is not acceptable: {}. Choose another way, or have this system trust who \
         vouches for the proxy.",
        certificate.endpoint,
        certificate_faults(certificate)
    )
}

/// Every fault, in words.
pub(super) fn certificate_faults(certificate: &ShownCertificate) -> String {
    let date = |at: Option<Timestamp>| {
        at.map(Timestamp::rfc3339)
            .and_then(|text| text.get(..10).map(str::to_owned))
            .map_or_else(String::new, |day| format!(" {day}"))
    };
    let words = certificate.faults.iter().map(|fault| match fault {
        CertificateFault::SelfSigned => "nobody but itself vouches for it".to_owned(),
        CertificateFault::UnknownIssuer => format!(
            "\"{}\", who vouches for it, is not known to this system",
            certificate.issuer
        ),
        CertificateFault::WrongName => match certificate.names.as_slice() {
            [] => "it is for no host at all".to_owned(),
            names => format!("it is for {}, not for this host", names.join(", ")),
        },
        CertificateFault::Expired => format!("it expired{}", date(certificate.not_after)),
        CertificateFault::NotYetValid => {
            format!("it is not valid before{}", date(certificate.not_before))
        }
        CertificateFault::Other => "this system does not take it".to_owned(),
    });
    words.collect::<Vec<_>>().join(", and ")
}

enum Why {
    Refused,
    Name,
    Certificate,
    /// It is there, and speaks something else than TLS.
    NoTls,
    /// It is there, and speaks something else than HTTP.
    NoHttp,
    Reset,
    Other,
}

impl Why {
    fn of(problem: &reqwest::Error) -> Self {
        let mut next: Option<&(dyn std::error::Error + 'static)> = Some(problem);
        while let Some(cause) = next {
            if let Some(io) = cause.downcast_ref::<io::Error>() {
                match io.kind() {
                    io::ErrorKind::ConnectionRefused => return Self::Refused,
                    io::ErrorKind::ConnectionReset
                    | io::ErrorKind::ConnectionAborted
                    | io::ErrorKind::BrokenPipe => return Self::Reset,
                    // Before anything could be asked: in the middle of shaking hands.
                    io::ErrorKind::UnexpectedEof if problem.is_connect() => return Self::NoTls,
                    _ => {}
                }
                // What it holds is not among its sources, only what that comes from.
                if let Some(inner) = io.get_ref() {
                    next = Some(inner);
                    continue;
                }
            }
            if let Some(tls) = cause.downcast_ref::<rustls::Error>() {
                return Self::of_tls(tls);
            }
            // The resolver's error has no type of its own.
            if cause.to_string().contains("dns error") {
                return Self::Name;
            }
            // Nor does what reads the head of a reply tell more than its words.
            let words = cause.to_string();
            if words.starts_with("invalid HTTP") || words.starts_with("received unexpected message")
            {
                return Self::NoHttp;
            }
            next = cause.source();
        }
        Self::Other
    }

    fn of_tls(problem: &rustls::Error) -> Self {
        match problem {
            rustls::Error::InvalidMessage(_) => Self::NoTls,
            _ => Self::Certificate,
        }
    }

    fn words(&self, peer: &Peer) -> String {
        match (self, peer.distance) {
            (Self::Refused, Distance::ThisMachine) => {
                format!("nothing is listening there. {}", advice(peer))
            }
            (Self::Refused, Distance::LocalNetwork) => {
                format!("the machine is there, but refuses the connection. {}", advice(peer))
            }
            (Self::Refused, Distance::Internet) => {
                format!("the connection was refused. {}", advice(peer))
            }
            (Self::Name, _) => "no machine of that name is known. Check the address.".to_owned(),
            (Self::Certificate, _) => {
                "its certificate or its TLS is not acceptable. Check the address; a certificate of your own must be known to this system."
                    .to_owned()
            }
            (Self::NoTls, _) => {
                "it is there, but does not speak TLS. Should the address begin with http:// instead of https://?"
                    .to_owned()
            }
            (Self::NoHttp | Self::Reset | Self::Other, _) => format!("no connection. {}", advice(peer)),
        }
    }
}

fn advice(peer: &Peer) -> &'static str {
    match &peer.access.way.proxy {
        ProxyChoice::Proxy { .. } => {
            return "It is reached through the proxy in its settings; does that run?";
        }
        ProxyChoice::System | ProxyChoice::Direct => {}
    }
    match (peer.distance, peer.dialect) {
        (Distance::ThisMachine, Some(Dialect::Ollama)) => "Is Ollama running?",
        (Distance::ThisMachine, _) => "Is the server running?",
        (Distance::LocalNetwork, Some(Dialect::Ollama)) => {
            "Is Ollama running there, and does it listen on the network (OLLAMA_HOST)?"
        }
        (Distance::LocalNetwork, _) => {
            "Is the server running there, and does it listen on the network?"
        }
        (Distance::Internet, _) => "Check the address and this machine's connection.",
    }
}

/// One refusal under judgement.
struct Case<'a> {
    peer: &'a Peer,
    status: Option<u16>,
    /// The body is a web page.
    page: bool,
    location: Option<&'a str>,
    /// It came inside an answer that had begun well.
    after_headers: bool,
    /// The server said how long to wait.
    waits: bool,
}

impl Case<'_> {
    fn judge(&self, said: &Said) -> AttemptError {
        let (peer, status) = (self.peer, self.status.unwrap_or(0));
        let words = said.message.to_lowercase();
        let has = |any: &[&str]| any.iter().any(|part| words.contains(part));
        let tag = |any: &[&str]| any.iter().any(|t| said.kind == *t || said.code == *t);

        if self.page {
            return self.page(status);
        }
        if tag(&[
            "exceed_context_size_error",
            "context_length_exceeded",
            "string_above_max_length",
            "request_too_large",
        ]) || status == 413
            || (status != 429 && overflows(&words))
        {
            return self.overflow(said);
        }
        if status == 401
            || tag(&[
                "authentication_error",
                "invalid_api_key",
                "invalid_authentication",
            ])
            || has(&["invalid api key", "api key not valid", "incorrect api key"])
        {
            return error(
                FailureCode::KeyRejected,
                if peer.access.secrets.key.is_some() {
                    format!(
                        "{} refused the key. Check it in the settings.",
                        peer.place()
                    )
                } else {
                    format!("{} wants a key. Enter it in the settings.", peer.place())
                },
                Retry::Never,
            );
        }
        if status == 402
            || tag(&["insufficient_quota", "billing_error", "quota_exceeded"])
            || (!self.waits
                && has(&[
                    "quota",
                    "billing",
                    "insufficient balance",
                    "credit balance",
                    "out of credits",
                ]))
        {
            return self.with_words(
                FailureCode::QuotaExceeded,
                format!("The account at {} has reached its limit", peer.name),
                said,
                Retry::Never,
            );
        }
        if status == 429
            || tag(&[
                "rate_limit_error",
                "rate_limit_exceeded",
                "too_many_requests",
                "overloaded_error",
            ])
            || status == 529
            || has(&[
                "maximum pending requests",
                "rate limit",
                "too many requests",
            ])
        {
            return self.with_words(
                FailureCode::RateLimited,
                format!("{} has too much to do and asks to try later", peer.place()),
                said,
                Retry::Backoff,
            );
        }
        if status == 403 {
            return self.forbidden(said);
        }
        if tag(&["model_not_found"])
            // "model: claude-…" is all that Anthropic says.
            || (tag(&["not_found_error"]) && words.starts_with("model:"))
            || lacks_model(&words, status)
        {
            return error(
                FailureCode::ModelNotFound,
                self.unknown_model(),
                Retry::Never,
            );
        }
        if !self.after_headers && status >= 500 && fails_to_load(&words) {
            return self.with_words(
                FailureCode::ModelLoadFailed,
                format!("{} could not load {}", peer.place(), peer.model()),
                said,
                Retry::Never,
            );
        }
        // What llama.cpp answers with 500, though asking again cannot help.
        if has(&["image input is not supported", "json.exception"]) {
            return self.refuses(said);
        }
        match status {
            300..=399 => error(
                FailureCode::BadStream,
                match self.location {
                    Some(to) => format!(
                        "{} points elsewhere: {}. If that is right, enter it as the address.",
                        peer.place(),
                        // What stands behind a question mark may be what was sent.
                        clip(&redacted(self.peer, before_query(to)), 200)
                    ),
                    None => format!(
                        "{} points elsewhere (status {status}). Check the address.",
                        peer.place()
                    ),
                },
                Retry::Never,
            ),
            404 | 405 => error(
                FailureCode::BadStream,
                format!(
                    "{} has nothing at this path (status {status}). Check the address, and which kind of server it is.",
                    peer.place()
                ),
                Retry::Never,
            ),
            501 => self.with_words(
                FailureCode::ProviderError,
                format!("{} cannot do this", peer.place()),
                said,
                Retry::Never,
            ),
            408 | 409 | 425 | 499 => self.with_words(
                FailureCode::ProviderError,
                format!("{} gave up (status {status})", peer.place()),
                said,
                Retry::Backoff,
            ),
            400..=498 => self.refuses(said),
            _ if tag(&["invalid_request_error"]) => self.refuses(said),
            _ => self.with_words(
                FailureCode::ProviderError,
                match self.status {
                    Some(status) => format!("{} failed (status {status})", peer.place()),
                    None => format!("{} failed", peer.place()),
                },
                said,
                Retry::Backoff,
            ),
        }
    }

    fn page(&self, status: u16) -> AttemptError {
        let place = self.peer.place();
        match status {
            401 => error(
                FailureCode::KeyRejected,
                format!("{place} asks for a login with a web page. Check the address and the key."),
                Retry::Never,
            ),
            413 => error(
                FailureCode::BadRequest,
                format!(
                    "{place}, or a proxy before it, does not take requests as large as this one (status 413). Show fewer or smaller images, begin a new conversation, or raise the limit there; nginx calls it client_max_body_size."
                ),
                Retry::Never,
            ),
            500..=599 => error(
                FailureCode::ProviderError,
                format!(
                    "{place} answered with a web page (status {status}): something in between could not reach the server."
                ),
                Retry::Backoff,
            ),
            _ => error(
                FailureCode::BadStream,
                format!(
                    "{place} answered with a web page (status {status}): this is not a model's reply. Check the address."
                ),
                Retry::Never,
            ),
        }
    }

    fn forbidden(&self, said: &Said) -> AttemptError {
        let peer = self.peer;
        if peer.dialect == Some(Dialect::Ollama) && said.message.is_empty() {
            return error(
                FailureCode::KeyRejected,
                format!(
                    "{} does not let this machine in (status 403). Ollama allows other hosts by OLLAMA_HOST and OLLAMA_ORIGINS.",
                    peer.place()
                ),
                Retry::Never,
            );
        }
        self.with_words(
            FailureCode::KeyRejected,
            format!(
                "{} does not allow this (status 403). Check the key",
                peer.place()
            ),
            said,
            Retry::Never,
        )
    }

    fn overflow(&self, said: &Said) -> AttemptError {
        let model = self.peer.model();
        let room = match (said.prompt_tokens, said.context_tokens) {
            (Some(needed), Some(there_is)) => Some(Room { needed, there_is }),
            (Some(_), None) | (None, Some(_) | None) => room(&said.message),
        };
        let sizes = room.map_or_else(String::new, |Room { needed, there_is }| {
            format!(": it has {needed} tokens, and there is room for {there_is}")
        });
        error(
            FailureCode::ContextOverflow,
            format!("The conversation does not fit the context of {model}{sizes}."),
            Retry::Shorter(room),
        )
    }

    fn unknown_model(&self) -> String {
        let (place, model) = (self.peer.place(), self.peer.model());
        match self.peer.dialect {
            Some(Dialect::Ollama) => {
                format!("{place} has no model {model}. Get it with `ollama pull {model}`.")
            }
            Some(Dialect::OpenAiChat | Dialect::Anthropic | Dialect::Local) | None => {
                format!("{place} has no model {model}. Choose one that it offers.")
            }
        }
    }

    fn refuses(&self, said: &Said) -> AttemptError {
        self.with_words(
            FailureCode::BadRequest,
            format!("{} refused the request", self.peer.place()),
            said,
            Retry::Never,
        )
    }

    /// `sentence`, with the server's words after it if there are any.
    fn with_words(
        &self,
        code: FailureCode,
        sentence: String,
        said: &Said,
        retry: Retry,
    ) -> AttemptError {
        // Redacted before it is cut, so that no part of a key is left.
        let words = redacted(self.peer, said.shown().trim());
        let words = clip(&words, SENTENCE_BYTES_MAX);
        let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        let message = match words.as_str() {
            "" => format!("{sentence}."),
            words if words.ends_with(['.', '!', '?', '。']) => format!("{sentence}: {words}"),
            words => format!("{sentence}: {words}."),
        };
        error(code, message, retry)
    }
}

/// A server's words inside a sentence; all of them are in the detail.
const SENTENCE_BYTES_MAX: usize = 400;

fn not_a_reply(peer: &Peer, unreadable: &Unreadable) -> AttemptError {
    let (from, bytes) = (peer.place(), unreadable.bytes);
    let what = match unreadable.kind {
        Kind::Page => "a web page",
        Kind::Json => "JSON of another kind",
        Kind::BrokenJson => "broken JSON",
        Kind::Text => "plain text",
    };
    let message = match (unreadable.place, unreadable.kind) {
        (Place::Instead, Kind::Page) => format!(
            "{from} answered with {what} ({bytes} bytes): this is not a model's reply; a login page or a proxy may be in between. Check the address."
        ),
        (Place::Instead, Kind::Json | Kind::Text) => format!(
            "{from} answered with {what} ({bytes} bytes): this is not a model's reply; check the address, and which kind of server it is."
        ),
        (Place::Instead, Kind::BrokenJson) => format!(
            "{from} answered with {what} ({bytes} bytes), which cannot be read; the server or a proxy in between damaged it, or it is no model server."
        ),
        (Place::Midway, Kind::Page) => format!(
            "{from} broke the answer off with {what} ({bytes} bytes): something in between lost the server."
        ),
        (Place::Midway, Kind::Json | Kind::BrokenJson | Kind::Text) => format!(
            "{from} broke the answer off with {what} ({bytes} bytes), which is no part of an answer; what follows it is missing."
        ),
    };
    let mut failed = error(FailureCode::BadStream, message, Retry::Never);
    failed.failure.detail = detail(peer, &unreadable.excerpt);
    failed
}

/// How servers say that the prompt is too long, in the words of many of them.
fn overflows(words: &str) -> bool {
    const PLAIN: [&str; 13] = [
        "context limit",
        "context length",
        "context size",
        "context window",
        "maximum context",
        "prompt is too long",
        "prompt too long",
        "input is too long",
        "too many tokens",
        "longer than the context",
        "exceeds the available context",
        "maximum number of tokens",
        "n_ctx",
    ];
    const CHINESE: [&str; 4] = ["上下文", "超出最大长度", "输入过长", "最大长度限制"];
    let over = [
        "exceed",
        "too long",
        "too large",
        "longer",
        "maximum",
        "max",
        "reduce",
        "limit",
        "overflow",
        // LM Studio: "tokens to keep … greater than the context length".
        "greater than",
    ];
    (PLAIN.iter().any(|part| words.contains(part)) && over.iter().any(|part| words.contains(part)))
        || words.contains("too many tokens")
        || CHINESE.iter().any(|part| words.contains(part))
}

/// The room in "prompt is too long: 210000 tokens > 200000 maximum".
fn room(words: &str) -> Option<Room> {
    let (before, after) = words.split_once('>')?;
    let number = |word: &str| {
        word.trim_matches(|c: char| !c.is_ascii_digit())
            .parse()
            .ok()
    };
    let needed = before.split_whitespace().rev().find_map(number)?;
    let there_is = after.split_whitespace().find_map(number)?;
    (needed > there_is).then_some(Room { needed, there_is })
}

fn lacks_model(words: &str, status: u16) -> bool {
    let missing = [
        "not found",
        "does not exist",
        "not exist",
        "unknown",
        "no such",
        "not available",
    ];
    (matches!(status, 0 | 400 | 404 | 422)
        && words.contains("model")
        && missing.iter().any(|part| words.contains(part)))
        || words.contains("no models loaded")
}

fn fails_to_load(words: &str) -> bool {
    [
        "requires more system memory",
        "error loading model",
        "failed to load",
        "unable to load",
        "could not load",
        "runner process has terminated",
        "runner has unexpectedly stopped",
        "timed out waiting for",
        "cudamalloc",
        "out of memory",
        "unsupported model",
        "invalid magic",
    ]
    .iter()
    .any(|part| words.contains(part))
}

fn error(code: FailureCode, message: String, retry: Retry) -> AttemptError {
    AttemptError {
        failure: Failure::new(code, message),
        retry,
    }
}

fn before_query(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or_default()
}

pub(super) fn redacted(peer: &Peer, text: &str) -> String {
    peer.access.redact(text)
}

/// A server's own words, bounded, without the key; redacted before they are cut, so that no part of a key is left.
fn detail(peer: &Peer, text: &str) -> Option<String> {
    let text = redacted(peer, text.trim());
    (!text.is_empty()).then(|| clip(&text, DETAIL_BYTES_MAX).to_owned())
}

/// An error with all its causes; reqwest's own words name the URL, which is not repeated.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut words = Vec::new();
    let mut next = match error.downcast_ref::<reqwest::Error>() {
        Some(outer) => std::error::Error::source(outer),
        None => Some(error),
    };
    while let Some(cause) = next {
        words.push(cause.to_string());
        next = cause.source();
    }
    words.join(": ")
}

/// A duration as a person says it.
pub(super) fn in_words(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} minutes", seconds / 60),
        7200..=172_799 => format!("{} hours", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// The longest wait that is told. A server that names a longer one says no, for all that anybody can wait for.
const WAIT_MAX: Duration = Duration::from_secs(366 * 86_400);

/// How long `Retry-After` asks to wait: seconds or a date. Nothing sensible, or no wait at all, is the usual wait.
fn retry_after(text: &str, wall: Timestamp) -> Option<Duration> {
    let text = text.trim();
    let is_number = text.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    if let (true, Ok(seconds)) = (is_number, text.parse::<f64>()) {
        // Beyond all counting is still a wait.
        let seconds = seconds.ceil().min(WAIT_MAX.as_secs_f64());
        let wait = Duration::try_from_secs_f64(seconds).ok()?;
        return (!wait.is_zero()).then_some(wait);
    }
    let at = http_date(text)?;
    let millis = at.saturating_mul(1000).saturating_sub(wall.millis());
    u64::try_from(millis)
        .ok()
        .filter(|ms| *ms > 0)
        .map(|ms| Duration::from_millis(ms).min(WAIT_MAX))
}

/// Seconds since 1970 of `Sun, 06 Nov 1994 08:49:37 GMT`; the two older forms are not sent any more.
fn http_date(text: &str) -> Option<i64> {
    let mut words = text.split_whitespace();
    let (_day_name, day, month, year, time) = (
        words.next()?,
        words.next()?,
        words.next()?,
        words.next()?,
        words.next()?,
    );
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let month = i64::try_from(MONTHS.iter().position(|m| *m == month)?).ok()? + 1;
    let (day, year): (i64, i64) = (day.parse().ok()?, year.parse().ok()?);
    let mut clock = time.split(':').map(|part| part.parse::<i64>().ok());
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    let sane = (1970..10_000).contains(&year)
        && (1..=31).contains(&day)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        && (0..=60).contains(&second);
    if !sane {
        return None;
    }
    let days = Timestamp::days_of_civil(year, month, day);
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

/// Whether a server refused a request only because it offered tools: Ollama's "does not support tools", llama.cpp's
/// "tools param requires --jinja flag", vLLM's "requires --enable-auto-tool-choice" and their like.
pub(super) fn refuses_tools(failure: &Failure) -> bool {
    let of_tools = [
        "support tools",
        "support tool",
        "tools param",
        "tool choice",
        "tool-choice",
        "function calling",
    ];
    refused_for(failure, &[], &of_tools)
}

/// Whether a server refused the request itself, or with one of these codes, in any of these words.
pub(super) fn refused_for(failure: &Failure, also: &[FailureCode], words: &[&str]) -> bool {
    let of_request = match failure.code {
        FailureCode::BadRequest | FailureCode::ProviderError => true,
        FailureCode::ConnectFailed
        | FailureCode::KeyRejected
        | FailureCode::ModelNotFound
        | FailureCode::CannotSeeImages
        | FailureCode::ModelLoadFailed
        | FailureCode::FirstTokenTimeout
        | FailureCode::IdleTimeout
        | FailureCode::TurnTimeout
        | FailureCode::StreamCut
        | FailureCode::BadStream
        | FailureCode::EmptyResponse
        | FailureCode::RateLimited
        | FailureCode::QuotaExceeded
        | FailureCode::ContextOverflow
        | FailureCode::AllCandidatesFailed
        | FailureCode::ToolLoop
        | FailureCode::Panicked
        | FailureCode::Aborted => false,
    };
    let said = failure.detail.as_deref().unwrap_or(&failure.message);
    let said = said.to_lowercase();
    (of_request || also.contains(&failure.code)) && words.iter().any(|words| said.contains(words))
}

#[cfg(test)]
mod tests;
