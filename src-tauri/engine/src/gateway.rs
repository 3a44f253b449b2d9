//! The gateway: the engine's one door to providers.
//!
//! Invariant: end of bytes is not end of answer. An attempt ends well only when its dialect saw its own end marker.
//! Kept by: pure decoders whose `finish` is the only way to a verdict, and one IO loop around them that owns
//! timeouts and the socket. Dropping an attempt closes its socket.
//! Not here: retries and failover (the turn decides), and what goes into the context.

mod address;
mod peer;

mod access;
mod certificate;
mod dial;
mod tls;
mod way;

mod attempt;
mod decoder;
#[cfg(any(test, feature = "decoding"))]
pub mod decoding;
mod revival;

mod anthropic;
pub mod local;
mod ollama;
mod openai;
mod sight;

mod answer;
mod body;
mod calls;
mod fault;
mod halves;
mod json;
mod lines;
mod plain;
mod sse;
mod stream;
mod tags;
mod thoughts;

mod doctor;
mod download;
mod failure;
mod keys;
mod models;
mod probe;
mod pull;

#[cfg(test)]
pub(crate) mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use protocol::{
    Connection, Dialect, Examination, Failure, FailureCode, FinishReason, Image, MacAddress, Model,
    ModelAction, ModelOptions, Part, ProbeReport, Provider, PullProgress, TimeLimits, Timings,
    Usage,
};
use reqwest::Url;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use crate::{FreeMemory, Harness, clock::Clock, mutant::mutated, wake::Wakes};

pub(crate) use doctor::Wanted;
pub(crate) use download::{Landed, Order, forget};
pub use keys::{ApiKey, Asked, KeyTrouble, Keys, NoKeys, Secrets};
pub(crate) use local::no_engine;
pub(crate) use models::Look;
pub use sight::Images;

use dial::Dialer;
use peer::Peer;

/// For one knock at a server that may be waking up.
const KNOCK_WAIT: Duration = Duration::from_secs(3);

/// The engine's door to providers. Cheap to clone.
#[derive(Clone)]
pub struct Gateway(Arc<Inner>);

struct Inner {
    dialer: Dialer,
    keys: Arc<dyn Keys>,
    /// Addresses of old servers that refuse `stream_options`; asked without from then on.
    plain: Mutex<BTreeSet<String>>,
    /// Models, each with its server's address, that refuse to be told of tools; asked without from then on.
    toolless: Mutex<BTreeSet<(String, String)>>,
    /// Models, each with its server's address, that were found to see images; not asked about it again.
    seeing: Mutex<BTreeSet<(String, String)>>,
    /// Models, each with its server's address, that refused images; told in words of those shown earlier from then on.
    refusing: Mutex<BTreeSet<(String, String)>>,
    /// How models, each with its server's address, want to be asked, where that had to be learnt.
    ways: Mutex<BTreeMap<(String, String), anthropic::Ways>>,
    /// The models of this computer that are in memory, if this program can have any.
    children: Option<local::Children>,
    harness: Harness,
}

/// The gateway could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// TLS or the resolver of this machine.
    #[error("could not set up connections to model servers")]
    Client(#[source] reqwest::Error),
    /// The certificates that this machine trusts.
    #[error("could not read the certificates that this machine trusts")]
    Tls(#[from] rustls::Error),
}

impl Gateway {
    /// A gateway that asks `clock` for the time and `keys` for secrets. Opens no connection.
    ///
    /// # Errors
    /// When this machine's TLS or resolver cannot be set up.
    pub fn new(clock: Arc<dyn Clock>, keys: Arc<dyn Keys>) -> Result<Self, GatewayError> {
        Ok(Self(Arc::new(Inner {
            dialer: Dialer::new(clock)?,
            keys,
            plain: Mutex::default(),
            toolless: Mutex::default(),
            seeing: Mutex::default(),
            refusing: Mutex::default(),
            ways: Mutex::default(),
            children: None,
            harness: Harness::default(),
        })))
    }

    /// The same, told of the computer's sleeps.
    pub(crate) fn woken_by(mut self, wakes: Wakes) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.dialer.wakes = wakes;
        }
        self
    }

    /// The same, with what runs models of this computer.
    pub(crate) fn hosting(
        mut self,
        host: Option<local::Host>,
        free_memory: FreeMemory,
        tracker: &TaskTracker,
    ) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            let clock = Arc::clone(&inner.dialer.clock);
            inner.children =
                host.map(|host| local::Children::new(host, free_memory, clock, tracker.clone()));
        }
        self
    }

    /// Takes every model of this computer out of memory, for good.
    pub(crate) fn close(&self) {
        if let Some(children) = &self.0.children {
            children.close();
        }
    }

    /// The same, in the hands of a test.
    pub(crate) fn held_by(mut self, harness: Harness) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.dialer.held_by(harness.clone());
            inner.harness = harness;
        }
        self
    }

    /// One attempt: dials, sends, and streams into `out`. No retries here. Waiting for room in `out` is backpressure,
    /// during which no silence clock runs. [`ModelEvent::Sent`] comes first, calls before the return.
    ///
    /// Cancel safe: dropping the future closes the socket at once, and what was sent into `out` stays true.
    ///
    /// # Errors
    /// Every other end than the dialect's own end marker, in words, and whether another attempt may help.
    pub async fn stream(
        &self,
        provider: &Provider,
        request: &ModelRequest,
        limits: &Limits,
        out: &mpsc::Sender<ModelEvent>,
    ) -> Result<StepEnd, AttemptError> {
        let images = request.image_count();
        if images == 0 {
            return self.with_tools(provider, request, limits, out).await;
        }
        let (model, shows_now) = (&request.model, request.shows_now());
        let is_blind = self.is_blind(provider, model).await;
        if is_blind && shows_now {
            return Err(sight::cannot_see(model));
        }
        let key = (provider.base_url.clone(), model.clone());
        // Of what was shown earlier, perhaps to another model, it is told in words: a conversation goes on with any model.
        let in_words = async || {
            let request = request.in_words();
            let mut end = self.with_tools(provider, &request, limits, out).await?;
            end.unseen_images = images;
            Ok(end)
        };
        if !shows_now && (is_blind || self.refusing().contains(&key)) {
            return in_words().await;
        }
        match self.with_tools(provider, request, limits, out).await {
            Err(error) if sight::refuses_images(&error.failure) => {
                self.refusing().insert(key);
                if !shows_now {
                    return in_words().await;
                }
                let mut blind = sight::cannot_see(model);
                blind.failure.detail = error.failure.detail;
                Err(blind)
            }
            end => {
                // It sees after all: its server may have been started anew.
                if end.is_ok() {
                    self.refusing().remove(&key);
                }
                end
            }
        }
    }

    /// Whether the provider says of a model that it sees no images. Only an Ollama is asked: others say so by refusing.
    async fn is_blind(&self, provider: &Provider, model: &str) -> bool {
        match provider.dialect {
            Dialect::Ollama => {}
            // Our own engine sees none so far.
            Dialect::Local => return true,
            Dialect::OpenAiChat | Dialect::Anthropic => return false,
        }
        if mutated!(self.0.harness, BlindAsked) {
            return false;
        }
        let key = (provider.base_url.clone(), model.to_owned());
        if self.seeing().contains(&key) {
            return false;
        }
        // Unknown is not blind: whoever does not say is asked, and may refuse.
        let look = self.look_at(provider, model).await;
        match look.ok().and_then(|look| look.sees_images()) {
            Some(true) => {
                self.seeing().insert(key);
                false
            }
            // Not remembered: another version of it may be downloaded.
            Some(false) => true,
            None => false,
        }
    }

    async fn with_tools(
        &self,
        provider: &Provider,
        request: &ModelRequest,
        limits: &Limits,
        out: &mpsc::Sender<ModelEvent>,
    ) -> Result<StepEnd, AttemptError> {
        let key = (provider.base_url.clone(), request.model.clone());
        if request.tools.is_empty() {
            return self.ask(provider, request, limits, out).await;
        }
        let bare = || ModelRequest {
            tools: Vec::new(),
            ..request.clone()
        };
        let without = async || {
            let mut end = self.ask(provider, &bare(), limits, out).await?;
            end.untold_tools = request.tools.len() as u64;
            Ok(end)
        };
        if self.toolless().contains(&key) {
            return without().await;
        }
        match self.ask(provider, request, limits, out).await {
            // A model that knows no tools still answers in words: it is asked once more, without them.
            Err(error) if failure::refuses_tools(&error.failure) => {
                self.toolless().insert(key);
                without().await
            }
            end => end,
        }
    }

    async fn ask(
        &self,
        provider: &Provider,
        request: &ModelRequest,
        limits: &Limits,
        out: &mpsc::Sender<ModelEvent>,
    ) -> Result<StepEnd, AttemptError> {
        let never = |failure| AttemptError {
            failure,
            retry: Retry::Never,
        };
        if provider.dialect == Dialect::Local {
            let Some(children) = &self.0.children else {
                return Err(never(local::no_engine()));
            };
            let clock = self.0.dialer.clock.as_ref();
            let asked = (provider, request);
            return local::run(children, clock, asked, limits, out, &self.0.harness).await;
        }
        let path = match provider.dialect {
            Dialect::Ollama => "/api/chat",
            Dialect::OpenAiChat => "/chat/completions",
            Dialect::Anthropic => "/messages",
            Dialect::Local => return Err(never(local::no_engine())),
        };
        let url = url(provider, path).map_err(never)?;
        let peer = self.peer(provider, &url, Some(&request.model)).await?;
        let send = async |body: serde_json::Value| {
            let outgoing = attempt::Outgoing {
                provider,
                url: url.clone(),
                peer: peer.clone(),
                body: body.to_string().into_bytes(),
            };
            attempt::run(&self.0.dialer, outgoing, limits, out, &self.0.harness).await
        };
        match provider.dialect {
            Dialect::Local => Err(never(local::no_engine())),
            Dialect::Ollama => send(ollama::encode(request)).await,
            Dialect::OpenAiChat if self.is_plain(provider) => {
                send(openai::encode(request, openai::AskUsage::No)).await
            }
            Dialect::OpenAiChat => {
                let mut end = send(openai::encode(request, openai::AskUsage::Yes)).await;
                if let Err(error) = &mut end {
                    let refused = error.failure.code == FailureCode::BadRequest;
                    let detail = error.failure.detail.as_deref().unwrap_or_default();
                    if refused && detail.contains("stream_options") {
                        // Once: the next attempt asks without, and a second refusal is final.
                        self.plain().insert(provider.base_url.clone());
                        error.retry = Retry::Backoff;
                    }
                }
                end
            }
            Dialect::Anthropic => {
                let key = (provider.base_url.clone(), request.model.clone());
                let known = self.ways().get(&key).copied();
                let mut ways = known.unwrap_or_default();
                loop {
                    let end = send(anthropic::encode(request, ways)).await;
                    let refusal = end.as_ref().err();
                    match refusal.and_then(|error| ways.after(&error.failure)) {
                        // Nothing was shown, and the next refusal teaches something else or is the last.
                        Some(better) => {
                            ways = better;
                            self.ways().insert(key.clone(), better);
                        }
                        None => break end,
                    }
                }
            }
        }
    }

    /// What the provider offers. Models of this computer are files, and no server's: `model_files` knows them.
    ///
    /// # Errors
    /// That it cannot be reached or asked, in words.
    pub async fn models(&self, provider: &Provider) -> Result<Vec<Model>, Failure> {
        let peer = self.known(provider, None).await?;
        models::list(&self.0.dialer, provider.dialect, &provider.base_url, &peer).await
    }

    /// Adds which models of this computer are in memory.
    pub(crate) fn mark_loaded(&self, provider: &Provider, models: &mut [Model]) {
        local::mark_loaded(self.0.children.as_ref(), provider, models);
    }

    /// What is known of one model: capabilities and context length, which a list may leave out.
    ///
    /// # Errors
    /// As [`Gateway::models`]; [`FailureCode::ModelNotFound`] if there is no such model.
    pub async fn model(&self, provider: &Provider, model: &str) -> Result<Model, Failure> {
        let peer = self.known(provider, Some(model)).await?;
        models::one(&self.0.dialer, provider, model, &peer).await
    }

    /// What only a closer look tells of a model of an Ollama: its capabilities, and the context it was made for.
    ///
    /// # Errors
    /// As [`Gateway::model`].
    pub(crate) async fn look_at(&self, provider: &Provider, model: &str) -> Result<Look, Failure> {
        let peer = self.known(provider, Some(model)).await?;
        models::look(&self.0.dialer, provider, model, &peer).await
    }

    /// Has an Ollama download a model, and tells how far it is whenever that changes. Ends with the server's own word
    /// that it has the model, and no other way. Silence is waited for as long as `limits` say for a first word.
    ///
    /// Cancel safe: dropping the future closes the socket, which stops the server; what it has stays there.
    ///
    /// # Errors
    /// Every other end, in words.
    pub(crate) async fn pull(
        &self,
        provider: &Provider,
        model: &str,
        limits: &Limits,
        told: impl FnMut(PullProgress),
    ) -> Result<(), Failure> {
        let peer = self.known(provider, Some(model)).await?;
        let asked = pull::Asked {
            provider,
            model,
            peer,
        };
        pull::run(&self.0.dialer, asked, limits, told, &self.0.harness).await
    }

    /// Fetches a model's file to this computer, and tells how far it is. An earlier try is gone on with where the server
    /// says that the file is still the same.
    ///
    /// Cancel safe: dropping the future closes the socket; what came stays there, to be gone on with.
    ///
    /// # Errors
    /// Every other end than a whole file that is what was announced, in words.
    pub(crate) async fn download(
        &self,
        order: Order,
        limits: &Limits,
        told: impl FnMut(PullProgress),
    ) -> Result<Landed, Failure> {
        download::run(&self.0.dialer, order, limits, told, &self.0.harness).await
    }

    /// Deletes, copies or unloads a model of an Ollama.
    ///
    /// # Errors
    /// Why not, in words.
    pub(crate) async fn manage(
        &self,
        provider: &Provider,
        action: &ModelAction,
    ) -> Result<(), Failure> {
        let model = match action {
            ModelAction::Delete { model }
            | ModelAction::Copy { model, .. }
            | ModelAction::Unload { model } => model,
        };
        if provider.dialect == Dialect::Local {
            return local::unload(self.0.children.as_ref(), provider, model).await;
        }
        let peer = self.known(provider, Some(model)).await?;
        models::manage(&self.0.dialer, provider, action, &peer).await
    }

    /// Whether the provider still has to load `model`, as far as it tells; for the status line only. Asks in passing,
    /// on a connection of its own, and disturbs no request that waits.
    pub async fn is_loading(&self, provider: &Provider, model: &str) -> Option<bool> {
        let peer = self.known(provider, Some(model)).await.ok()?;
        models::is_loading(&self.0.dialer, provider, model, &peer).await
    }

    /// Tries an address as a person types it: `gpubox`, `localhost:8080`, `http://host/v1/chat/completions` …
    /// Finds the dialect by itself; `dialect` is what the person believes, and is tried first.
    pub async fn probe(&self, address: &str, dialect: Option<Dialect>) -> ProbeReport {
        let (usual, none) = (Connection::default(), Secrets::default());
        self.probe_by(address, dialect, &usual, none).await
    }

    /// The same for a server that is not reached as usual, or wants a key.
    pub async fn probe_by(
        &self,
        address: &str,
        dialect: Option<Dialect>,
        connection: &Connection,
        secrets: Secrets,
    ) -> ProbeReport {
        if dialect == Some(Dialect::Local) {
            return local::probe(address).await;
        }
        let access = access::Access::of(connection, secrets);
        probe::probe(&self.0.dialer, address, dialect, &access).await
    }

    /// Looks at a server from every side.
    pub(crate) async fn examine(
        &self,
        provider: &Provider,
        secrets: Result<Secrets, KeyTrouble>,
        wanted: Wanted,
    ) -> Examination {
        doctor::examine(&self.0.dialer, provider, secrets, wanted).await
    }

    /// What the keys' keeper says of a server.
    pub(crate) async fn kept_for(&self, provider: &Provider) -> Result<Secrets, KeyTrouble> {
        self.0.keys.secrets(provider).await
    }

    /// Sends the packet that wakes a server.
    ///
    /// # Errors
    /// When none could be sent.
    pub(crate) fn wake(&self, card: &MacAddress) -> std::io::Result<()> {
        doctor::wake(card)
    }

    /// Whether anybody takes connections where a server is, within a few seconds.
    pub(crate) async fn is_awake(&self, provider: &Provider) -> bool {
        let Ok(url) = url(provider, "") else {
            return false;
        };
        let way = way::Way::of(&provider.connection);
        let mut late = self.0.dialer.clock.sleep(KNOCK_WAIT);
        tokio::select! {
            answers = self.0.dialer.answers(&url, &way) => answers,
            () = &mut late => false,
        }
    }

    /// Looks for servers on this machine's usual ports, all at once, for a second. Only those that work.
    pub async fn discover(&self) -> Vec<ProbeReport> {
        probe::discover(&self.0.dialer).await
    }

    async fn known(&self, provider: &Provider, model: Option<&str>) -> Result<Peer, Failure> {
        let peer = self.peer(provider, &url(provider, "")?, model).await;
        peer.map_err(|error| error.failure)
    }

    async fn peer(
        &self,
        provider: &Provider,
        url: &Url,
        model: Option<&str>,
    ) -> Result<Peer, AttemptError> {
        let secrets = self.0.keys.secrets(provider).await;
        let secrets = secrets.map_err(|trouble| failure::key_trouble(&provider.name, &trouble))?;
        Ok(Peer::of(provider, url, model, secrets))
    }

    /// What is kept for a server, to be shown at its own address.
    pub(crate) async fn secrets(&self, provider: &Provider) -> Result<Secrets, Failure> {
        let secrets = self.0.keys.secrets(provider).await;
        secrets.map_err(|trouble| failure::key_trouble(&provider.name, &trouble).failure)
    }

    fn is_plain(&self, provider: &Provider) -> bool {
        self.plain().contains(&provider.base_url)
    }

    fn ways(&self) -> std::sync::MutexGuard<'_, BTreeMap<(String, String), anthropic::Ways>> {
        self.0.ways.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seeing(&self) -> std::sync::MutexGuard<'_, BTreeSet<(String, String)>> {
        self.0.seeing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refusing(&self) -> std::sync::MutexGuard<'_, BTreeSet<(String, String)>> {
        self.0
            .refusing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn toolless(&self) -> std::sync::MutexGuard<'_, BTreeSet<(String, String)>> {
        self.0
            .toolless
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn plain(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.0.plain.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where an API of this dialect most likely begins at an address as a person types it. Nothing is dialled: for a
/// command line that names a server which may not run yet.
///
/// # Errors
/// In words, if it is no address.
pub fn base_url(typed: &str, dialect: Dialect) -> Result<String, Failure> {
    if dialect == Dialect::Local {
        return local::place_of(typed).map(|(folder, _)| folder);
    }
    let place = address::places(typed)?.into_iter().next();
    let base = place.and_then(|place| match dialect {
        Dialect::Ollama => Some(place.ollama),
        // Both begin at the same place.
        Dialect::OpenAiChat | Dialect::Anthropic => place.openai.into_iter().next(),
        Dialect::Local => None,
    });
    base.ok_or_else(|| failure::no_address(typed))
}

/// `typed` without a name and a password in front of its host: for showing it.
pub(crate) fn without_secret(typed: &str) -> String {
    address::without_secret(typed)
}

/// The scheme, host and port of an address, for which a key is meant.
pub(crate) fn origin(base_url: &str) -> Option<String> {
    let url: Url = base_url.parse().ok()?;
    url.has_host().then(|| url.origin().ascii_serialization())
}

/// Whether a server is one of those that give nothing without a key.
pub(crate) fn wants_key(provider: &Provider) -> bool {
    let url = provider.base_url.parse::<Url>();
    url.is_ok_and(|url| peer::Distance::of(&url) == peer::Distance::Internet)
}

/// The provider's base with `path` behind it.
fn url(provider: &Provider, path: &str) -> Result<Url, Failure> {
    join(&provider.base_url, path).ok_or_else(|| failure::no_address(&provider.base_url))
}

fn join(base: &str, path: &str) -> Option<Url> {
    let mut url: Url = format!("{}{path}", base.trim_end_matches('/'))
        .parse()
        .ok()?;
    if url.host_str() == Some("localhost.") {
        url.set_host(Some("localhost")).ok()?;
    }
    (matches!(url.scheme(), "http" | "https") && url.has_host()).then_some(url)
}

/// How long to wait for what. There is no total limit anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For a connection.
    pub connect: Duration,
    /// Silence before the first text or call of an answer; headers and a server's opening frames do not end it, any
    /// body byte restarts it.
    pub first_event: Duration,
    /// Silence after it; any body byte restarts it.
    pub gap: Duration,
}

impl From<&TimeLimits> for Limits {
    fn from(limits: &TimeLimits) -> Self {
        Self {
            connect: Duration::from_millis(limits.connect_ms),
            first_event: Duration::from_millis(limits.first_event_ms),
            gap: Duration::from_millis(limits.gap_ms),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::from(&TimeLimits::default())
    }
}

/// What the model is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelRequest {
    /// The model as the provider names it.
    pub model: String,
    /// The conversation, oldest first.
    pub messages: Vec<Message>,
    /// Tools the model may call; empty for none.
    pub tools: Vec<ToolSpec>,
    /// How it is asked: all of it was chosen by somebody, the server's own options included. Instructions are among the
    /// messages already.
    pub options: ModelOptions,
    /// The bytes of the images that the messages show, as far as they can be read.
    pub images: Images,
}

/// One message of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Instructions.
    System { text: String },
    /// What the user said and showed. The bytes are in [`ModelRequest::images`].
    User { text: String, images: Vec<Image> },
    /// What the model said and which tools it called.
    Assistant {
        text: String,
        calls: Vec<CallMade>,
        /// The blocks it came in, as [`ModelEvent::Verbatim`] had them; only while its turn lasts.
        verbatim: Option<String>,
    },
    /// One call's result, in words.
    ToolResult {
        call_id: String,
        name: String,
        text: String,
    },
}

/// A call the model made earlier, as it is told to it again.
#[derive(Clone, Debug, PartialEq)]
pub struct CallMade {
    /// Our name for it, used as the provider's id in the request.
    pub call_id: String,
    /// The tool.
    pub name: String,
    /// JSON text; an object.
    pub arguments: String,
}

/// A tool, as it is offered to the model.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema of its arguments, as JSON text.
    pub parameters: String,
}

/// What comes out of an attempt while it runs.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelEvent {
    /// The connection stands and the request is out.
    Sent,
    /// The provider said that it loads the model, and how much of it, in thousandths, where it tells.
    Loading { permille: Option<u32> },
    /// The provider reads the prompt.
    ReadingPrompt { done: u64, total: u64 },
    /// Text came. Never empty.
    Text { part: Part, text: String },
    /// All the text of this answer so far was reasoning after all.
    FoundReasoning,
    /// A tool call is being written: bytes of arguments so far.
    CallProgress { name: String, argument_bytes: u64 },
    /// A whole tool call. Sent before the attempt returns, run only after it returned well.
    Call {
        name: String,
        arguments: String,
        call_id: Option<String>,
        /// Why it must not be run, in words for the model: it is not certain what the server meant.
        unclear: Option<String>,
    },
    /// A tool call that was cut: the attempt ended before the call was whole. For the reader; never run.
    CallCut { name: String, arguments: String },
    /// The answer's own blocks, as JSON text: its server wants them back unchanged with the results of its calls.
    Verbatim { blocks: String },
}

/// An attempt that saw its end marker.
#[derive(Clone, Debug, PartialEq)]
pub struct StepEnd {
    /// Why the model stopped.
    pub finish: FinishReason,
    /// As the provider counted.
    pub usage: Usage,
    /// As the provider and our clock measured.
    pub timings: Timings,
    /// Images of earlier messages of which the model, which sees none, was told the names alone.
    pub unseen_images: u64,
    /// Tools of which the model, which takes none, was not told.
    pub untold_tools: u64,
}

/// An attempt that did not.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptError {
    /// What happened, in words.
    pub failure: Failure,
    /// Whether another attempt may help, if nothing was shown yet.
    pub retry: Retry,
}

/// Whether another attempt may help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// No: the same request will fail the same way.
    Never,
    /// Yes, after the usual wait.
    Backoff,
    /// Yes, but not before this long from now: the server said so.
    After(Duration),
    /// The server is up and loads the model; ask again after this long. Not an attempt that failed.
    WhenLoaded(Duration),
    /// Only a shorter request may fare better.
    Shorter(Option<Room>),
}

/// Why a request was too long, where the server said so: in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// What the request needed.
    pub needed: u64,
    /// What there is.
    pub there_is: u64,
}
