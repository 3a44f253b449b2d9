//! Connections to providers: which client, which headers, and how a reply's head is read.
//!
//! Invariant: no limit but ours. reqwest has no timeouts, no redirects (a redirect must not carry a key elsewhere), no
//! idle connections (dropping a response closes its socket). The system's proxy is for the internet only: never for
//! this machine or the local network.

use std::{convert::Infallible, net::Ipv4Addr, net::Ipv6Addr, sync::Arc, time::Duration};

use futures_util::StreamExt;
use protocol::Dialect;
use reqwest::{
    Client, RequestBuilder, Response, Url,
    header::{
        AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, LOCATION, RETRY_AFTER,
    },
    redirect::Policy,
};
use tokio::{net::TcpStream, sync::oneshot};

use crate::{clock::Clock, wake::Wakes};

use super::{
    AttemptError, GatewayError, anthropic,
    failure::{self, Refusal, Reply},
    fault::EXCERPT_BYTES_MAX,
    keys::ApiKey,
    peer::{Distance, Peer},
};

/// Where Anthropic's servers look for the key, and for the words that are spoken to them.
const KEY_HEADER: HeaderName = HeaderName::from_static("x-api-key");
const VERSION_HEADER: HeaderName = HeaderName::from_static("anthropic-version");

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

/// Opens connections.
pub(super) struct Dialer {
    /// For this machine and the local network.
    near: Client,
    /// For the internet: through the system's proxy, if there is one.
    far: Client,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) wakes: Wakes,
}

impl Dialer {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Result<Self, GatewayError> {
        // Somebody else in this process may have chosen a provider already; theirs is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Ok(Self {
            near: client(Client::builder().no_proxy())?,
            far: client(Client::builder())?,
            wakes: Wakes::new(Arc::clone(&clock)),
            clock,
        })
    }

    /// Whether anybody answers at the address, on a connection made only to see that. A server near by is not even
    /// asked anything: a busy one may serve one request at a time, and its kernel takes the connection all the same.
    /// One on the internet is asked, for it may be reached through a proxy only; what it replies does not matter.
    pub(super) async fn answers(&self, url: &Url) -> bool {
        match Distance::of(url) {
            Distance::ThisMachine | Distance::LocalNetwork => self.takes_connections(url).await,
            Distance::Internet => match url.join("/") {
                Ok(root) => match self.far.get(root).send().await {
                    Ok(_) => true,
                    Err(problem) => !problem.is_connect(),
                },
                Err(_) => false,
            },
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
    pub(super) fn post(&self, url: &Url, body: Vec<u8>) -> (RequestBuilder, oneshot::Receiver<()>) {
        let (stands, connected) = oneshot::channel();
        let length = body.len();
        // Polled when the connection stands and the head is written, and not before.
        let body = futures_util::stream::once(async move {
            // Nobody may be waiting for the news any more; the request goes out all the same.
            let _ = stands.send(());
            Ok::<_, Infallible>(body)
        });
        let request = self
            .client(url)
            .post(url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(CONTENT_LENGTH, length)
            .body(reqwest::Body::wrap_stream(body));
        (request, connected)
    }

    /// A small document, within `limit` from dialling to its last byte.
    pub(super) async fn get(
        &self,
        url: &Url,
        peer: &Peer,
        limit: Duration,
    ) -> Result<Document, Refusal> {
        self.ask(self.client(url).get(url.clone()), peer, limit)
            .await
    }

    /// The same for a question that needs a body.
    pub(super) async fn question(
        &self,
        url: &Url,
        body: &serde_json::Value,
        peer: &Peer,
        limit: Duration,
    ) -> Result<Document, Refusal> {
        let (request, _connected) = self.post(url, body.to_string().into_bytes());
        self.ask(request, peer, limit).await
    }

    async fn ask(
        &self,
        request: RequestBuilder,
        peer: &Peer,
        limit: Duration,
    ) -> Result<Document, Refusal> {
        let request = authorised(request, peer)?;
        let exchange = async {
            let response = request
                .send()
                .await
                .map_err(|problem| failure::unsent(peer, &problem))?;
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

    fn client(&self, url: &Url) -> &Client {
        match Distance::of(url) {
            Distance::ThisMachine | Distance::LocalNetwork => &self.near,
            Distance::Internet => &self.far,
        }
    }
}

/// A reply that was read to its end.
pub(super) struct Document {
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

/// The request with the peer's key in it.
pub(super) fn authorised(
    request: RequestBuilder,
    peer: &Peer,
) -> Result<RequestBuilder, AttemptError> {
    let (request, name, secret) = match peer.dialect {
        Some(Dialect::Anthropic) => (
            request.header(VERSION_HEADER, anthropic::VERSION),
            KEY_HEADER,
            peer.key.as_ref().map(ApiKey::bare),
        ),
        Some(Dialect::Ollama | Dialect::OpenAiChat) | None => (
            request,
            AUTHORIZATION,
            peer.key.as_ref().map(ApiKey::bearer),
        ),
    };
    match secret {
        None => Ok(request),
        Some(Some(secret)) => Ok(request.header(name, secret)),
        Some(None) => Err(failure::no_key(peer)),
    }
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
        .redirect(Policy::none())
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
