//! Connections to providers: which client, which headers, and how a reply's head is read.
//!
//! Invariant: no limit but ours. reqwest has no timeouts, no redirects (a redirect must not carry a key elsewhere), no
//! idle connections (dropping a response closes its socket).
//! Not here: which way leads to a server (`way`), whom TLS believes (`tls`), what a server is shown (`access`).

use std::{
    collections::HashMap,
    convert::Infallible,
    net::{Ipv4Addr, Ipv6Addr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::StreamExt;
use reqwest::{
    Client, Proxy, RequestBuilder, Response, Url,
    header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, LOCATION, RETRY_AFTER},
    redirect::Policy,
};
use tokio::{net::TcpStream, sync::oneshot};

use crate::{Harness, clock::Clock, mutant::mutated, wake::Wakes};

use super::{
    AttemptError, GatewayError,
    access::authorised,
    failure::{self, Refusal, Reply},
    fault::EXCERPT_BYTES_MAX,
    peer::{Distance, Peer},
    tls::Tls,
    way::{Route, Through, Way},
};

/// A server that forgot the connection, or a pulled cable, is noticed by the kernel even while a model takes minutes.
/// Short, because a server that came back without it says so at the first question, also right after a sleep.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// Questions without any reply until the connection counts as dead: two minutes, since a network may be away for a
/// moment, and an answer of half an hour must not be lost over that.
const KEEPALIVE_RETRIES: u32 = 12;

/// The same for bytes that we sent.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNACKNOWLEDGED: Duration = Duration::from_secs(130);

/// Lists of models can be long; nothing else we ask for is.
const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Of a refusal, for the reader's eyes: what is longer is cut.
const REFUSAL_BYTES_MAX: usize = 16 * EXCERPT_BYTES_MAX;

/// For the body of a refusal, once its status is known.
const REFUSAL_WAIT: Duration = Duration::from_secs(5);

/// As many ways as somebody with many servers has; more are made anew.
const CLIENTS_MAX: usize = 64;

/// Opens connections.
pub(super) struct Dialer {
    tls: Tls,
    /// One for every way that was gone so far.
    clients: Mutex<HashMap<Route, Client>>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) wakes: Wakes,
    pub(super) harness: Harness,
}

impl Dialer {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Result<Self, GatewayError> {
        let dialer = Self {
            tls: Tls::of_the_system()?,
            clients: Mutex::default(),
            wakes: Wakes::new(Arc::clone(&clock)),
            clock,
            harness: Harness::default(),
        };
        // The way most servers are reached by, so that a machine without it says so at once.
        dialer.client_for(&Route {
            through: Through::Nothing,
            trusts: None,
        })?;
        Ok(dialer)
    }

    /// Whether anybody answers at the address, on a connection made only to see that. A server that no proxy leads to
    /// is not even asked anything: a busy one may serve one request at a time, and its kernel takes the connection all
    /// the same. Behind a proxy it is asked; what it replies does not matter.
    pub(super) async fn answers(&self, url: &Url, way: &Way) -> bool {
        let route = way.to(url, &self.harness);
        match (&route.through, Distance::of(url)) {
            (Through::Nothing, Distance::ThisMachine | Distance::LocalNetwork) => {
                self.takes_connections(url).await
            }
            (Through::Nothing | Through::SystemProxy | Through::Proxy(_), _) => {
                let (Ok(root), Ok(client)) = (url.join("/"), self.client_for(&route)) else {
                    return false;
                };
                match client.get(root).send().await {
                    Ok(_) => true,
                    Err(problem) => !problem.is_connect(),
                }
            }
        }
    }

    async fn takes_connections(&self, url: &Url) -> bool {
        let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            return false;
        };
        let taken = if host == "localhost" {
            let both = [
                (Ipv4Addr::LOCALHOST, port).into(),
                (Ipv6Addr::LOCALHOST, port).into(),
            ];
            TcpStream::connect(&both[..]).await
        } else {
            TcpStream::connect((host.trim_matches(['[', ']']), port)).await
        };
        taken.is_ok()
    }

    /// A POST of JSON, not sent yet, and the news that its connection stands.
    pub(super) fn post(
        &self,
        url: &Url,
        peer: &Peer,
        body: Vec<u8>,
    ) -> Result<(RequestBuilder, oneshot::Receiver<()>), AttemptError> {
        let client = self.client(url, peer)?;
        let (stands, connected) = oneshot::channel();
        let length = body.len();
        // Polled when the connection stands and the head is written, and not before.
        let body = futures_util::stream::once(async move {
            // Nobody may be waiting for the news any more; the request goes out all the same.
            let _ = stands.send(());
            Ok::<_, Infallible>(body)
        });
        let request = client
            .post(url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(CONTENT_LENGTH, length)
            .body(reqwest::Body::wrap_stream(body));
        Ok((request, connected))
    }

    /// A small document, within `limit` from dialling to its last byte.
    pub(super) async fn get(
        &self,
        url: &Url,
        peer: &Peer,
        limit: Duration,
    ) -> Result<Document, Refusal> {
        let request = self.client(url, peer)?.get(url.clone());
        self.ask(request, peer, limit).await
    }

    /// A GET whose reply is read by whoever asks.
    pub(super) fn file(&self, url: &Url, peer: &Peer) -> Result<RequestBuilder, AttemptError> {
        Ok(self.client(url, peer)?.get(url.clone()))
    }

    /// The same for a question that needs a body.
    pub(super) async fn question(
        &self,
        url: &Url,
        body: &serde_json::Value,
        peer: &Peer,
        limit: Duration,
    ) -> Result<Document, Refusal> {
        let (request, _connected) = self.post(url, peer, body.to_string().into_bytes())?;
        self.ask(request, peer, limit).await
    }

    /// The same, to have something deleted.
    pub(super) async fn delete(
        &self,
        url: &Url,
        body: &serde_json::Value,
        peer: &Peer,
        limit: Duration,
    ) -> Result<Document, Refusal> {
        let request = self
            .client(url, peer)?
            .delete(url.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(body.to_string());
        self.ask(request, peer, limit).await
    }

    async fn ask(
        &self,
        request: RequestBuilder,
        peer: &Peer,
        limit: Duration,
    ) -> Result<Document, Refusal> {
        let request = authorised(request, peer, &self.harness)?;
        let exchange = async {
            let response = request
                .send()
                .await
                .map_err(|problem| Refusal::unsent(peer, &problem))?;
            if !response.status().is_success() {
                return Err(self.refusal(response, peer).await);
            }
            let headers = response.headers().clone();
            let (body, end) = read(response, DOCUMENT_BYTES_MAX).await;
            match end {
                End::Whole => Ok(Document { headers, body }),
                End::TooLong | End::Broken => Err(failure::cut(peer, None).into()),
            }
        };
        let mut late = self.clock.sleep(limit);
        tokio::select! {
            answer = exchange => answer,
            () = &mut late => Err(failure::no_connection(peer, limit).into()),
        }
    }

    /// Reads the rest of a reply whose status is no success, and says what it means.
    pub(super) async fn refusal(&self, response: Response, peer: &Peer) -> Refusal {
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let mut late = self.clock.sleep(REFUSAL_WAIT);
        let body = tokio::select! {
            (body, _) = read(response, REFUSAL_BYTES_MAX) => body,
            // The status alone must do.
            () = &mut late => Vec::new(),
        };
        failure::refused(
            peer,
            &Reply {
                status,
                body: &String::from_utf8_lossy(&body),
                retry_after: header(RETRY_AFTER),
                location: header(LOCATION),
                wall: self.clock.wall(),
            },
        )
    }

    fn client(&self, url: &Url, peer: &Peer) -> Result<Client, AttemptError> {
        let route = peer.access.way.to(url, &self.harness);
        self.client_for(&route)
            .map_err(|error| match route.through {
                Through::Proxy(proxy) => failure::no_proxy(peer, &proxy),
                Through::Nothing | Through::SystemProxy => failure::no_client(peer, &error),
            })
    }

    fn client_for(&self, route: &Route) -> Result<Client, GatewayError> {
        let known = self.clients().get(route).cloned();
        if let Some(client) = known {
            return Ok(client);
        }
        let builder = match &route.through {
            Through::Nothing => Client::builder().no_proxy(),
            Through::SystemProxy => Client::builder(),
            Through::Proxy(url) => {
                let proxy = Proxy::all(url).map_err(GatewayError::Client)?;
                Client::builder().no_proxy().proxy(proxy)
            }
        };
        let tls = self.tls.config(route.trusts.as_ref())?;
        // A redirect must not carry a key elsewhere.
        let redirects = if mutated!(self.harness, FollowRedirects) {
            Policy::limited(3)
        } else {
            Policy::none()
        };
        let client = client(builder.tls_backend_preconfigured(tls).redirect(redirects))?;
        let mut clients = self.clients();
        if clients.len() >= CLIENTS_MAX {
            clients.clear();
        }
        clients.insert(route.clone(), client.clone());
        Ok(client)
    }

    fn clients(&self) -> std::sync::MutexGuard<'_, HashMap<Route, Client>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, in the hands of a test.
    pub(super) fn held_by(&mut self, harness: Harness) {
        self.harness = harness;
        self.clients().clear();
    }
}

/// A reply that was read to its end.
pub(super) struct Document {
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

fn client(builder: reqwest::ClientBuilder) -> Result<Client, GatewayError> {
    // Ollama and llama.cpp listen on one of the two only, and a resolver may know just the other.
    let localhost = [
        (Ipv4Addr::LOCALHOST, 0).into(),
        (Ipv6Addr::LOCALHOST, 0).into(),
    ];
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let builder = builder.tcp_user_timeout(UNACKNOWLEDGED);
    builder
        .user_agent(concat!("Holdfast/", env!("CARGO_PKG_VERSION")))
        .referer(false)
        .http1_only()
        .tcp_keepalive(KEEPALIVE)
        .tcp_keepalive_interval(KEEPALIVE)
        .tcp_keepalive_retries(KEEPALIVE_RETRIES)
        .pool_max_idle_per_host(0)
        .resolve_to_addrs("localhost", &localhost)
        .build()
        .map_err(GatewayError::Client)
}

enum End {
    Whole,
    TooLong,
    Broken,
}

async fn read(response: Response, bytes_max: usize) -> (Vec<u8>, End) {
    let mut body = Vec::new();
    let mut stream = response.bytes_stream();
    while let Some(chunk) = stream.next().await {
        let Ok(chunk) = chunk else {
            return (body, End::Broken);
        };
        let room = bytes_max.saturating_sub(body.len());
        body.extend_from_slice(chunk.get(..room).unwrap_or(&chunk));
        if chunk.len() > room {
            return (body, End::TooLong);
        }
    }
    (body, End::Whole)
}
