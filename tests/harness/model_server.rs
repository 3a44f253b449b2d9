//! A model server on loopback that does what a script says: Ollama's NDJSON and OpenAI's SSE, over real TCP.
//!
//! Invariant: nothing passes in silence. A request that no script expects, a script that nobody asked for, a gate that
//! nobody reached: each fails the test when the server is dropped, and the request is printed.
//! What it counts is counted here, at the socket, and not by the client about itself.
//! Not here: being clever. It understands as much of HTTP as one request per connection needs.

mod answer;
mod cassette;
mod manners;
mod models;
mod script;

use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    os::fd::AsFd,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use protocol::{Dialect, ModelRef, Provider, ProviderId, Think};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    runtime::{Handle, Runtime},
    sync::watch,
    task::{AbortHandle, JoinHandle},
};

pub use answer::{Answer, MODEL};
pub use cassette::Cassette;
pub use models::Download;
use models::Stock;
pub use script::{CUTS, Ending, Script};
use script::{Framing, Head, Step};

use crate::{gate::Gates, watched::Watched};

/// The dialects there are; one of them is spoken to a process on this computer, which passes everything on to the server.
pub const ALL_DIALECTS: [Dialect; 4] = [
    Dialect::Ollama,
    Dialect::OpenAiChat,
    Dialect::Anthropic,
    Dialect::Local,
];

/// The dialects that are spoken over HTTP.
pub const DIALECTS: [Dialect; 3] = [Dialect::Ollama, Dialect::OpenAiChat, Dialect::Anthropic];

/// Larger than any request of a test.
const REQUEST_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What the server has seen so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections that were opened to it.
    pub dials: u64,
    /// Requests for a chat.
    pub chats: u64,
    /// Connections the client closed before their script was at its end.
    pub closed_by_us: u64,
    /// Connections that are open now.
    pub open: u64,
}

#[derive(Debug, Default)]
struct Board {
    counters: Counters,
    chats: Vec<Request>,
    pulls: Vec<Request>,
    unexpected: Vec<Request>,
}

/// A request as it came over the wire.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// One message of a chat request, reduced to what both dialects have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub role: String,
    pub content: String,
}

impl Request {
    /// The body as JSON; `null` when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// The conversation it sends.
    pub fn messages(&self) -> Vec<Message> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let json = self.json();
        let messages = json["messages"].as_array().cloned().unwrap_or_default();
        let system = json["system"].as_array().into_iter().flatten();
        let system = system.map(|block| Message {
            role: "system".to_owned(),
            content: text(&block["text"]),
        });
        let messages = messages.iter().flat_map(|message| {
            let role = text(&message["role"]);
            match message["content"].as_array() {
                Some(blocks) => of_blocks(&role, blocks),
                None => vec![Message {
                    role,
                    content: text(&message["content"]),
                }],
            }
        });
        system.chain(messages).collect()
    }

    /// The same as `(role, content)`, without the instructions that come first.
    pub fn conversation(&self) -> Vec<(String, String)> {
        let messages = self.messages().into_iter();
        messages
            .filter(|message| message.role != "system")
            .map(|message| (message.role, message.content))
            .collect()
    }

    fn is_pull(&self) -> bool {
        self.method == "POST" && self.path == "/api/pull"
    }

    fn is_chat(&self) -> bool {
        self.method == "POST"
            && matches!(
                self.path.as_str(),
                "/api/chat" | "/v1/chat/completions" | "/v1/messages" | "/local/chat"
            )
    }
}

/// A message in blocks, as other dialects would say it: each text and each result is one of its own.
fn of_blocks(role: &str, blocks: &[Value]) -> Vec<Message> {
    let said = |role: &str, content: &Value| Message {
        role: role.to_owned(),
        content: content.as_str().unwrap_or_default().to_owned(),
    };
    let mut messages: Vec<Message> = blocks
        .iter()
        .filter_map(|block| match block["type"].as_str() {
            Some("text") => Some(said(role, &block["text"])),
            Some("tool_result") => Some(said("tool", &block["content"])),
            _ => None,
        })
        .collect();
    if messages.is_empty() {
        messages.push(said(role, &Value::Null));
    }
    messages
}

#[derive(Debug)]
struct Shared {
    dialect: Dialect,
    board: Watched<Board>,
    scripts: Mutex<VecDeque<Script>>,
    downloads: Mutex<VecDeque<Script>>,
    stock: Stock,
    /// Where looks at single models are held.
    looks_behind: Mutex<Option<String>>,
    gates: Gates,
    /// Whether a request may be the last one of a process that is dead by now.
    some_were_killed: AtomicBool,
}

/// The server. Dropping it ends every connection and judges what happened.
#[derive(Debug)]
pub struct ModelServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    runtime: Runtime,
    accepting: JoinHandle<()>,
}

impl ModelServer {
    /// Starts one that speaks `dialect`, on a free port, with a runtime of its own: it goes on also while the test blocks.
    pub fn start(dialect: Dialect) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .thread_name("model-server")
            .build()
            .expect("a runtime for the model server");
        let listener =
            std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port on loopback");
        listener
            .set_nonblocking(true)
            .expect("a listener that tokio can use");
        let address = listener
            .local_addr()
            .expect("a bound listener has an address");
        let shared = Arc::new(Shared {
            dialect,
            board: Watched::new(Board::default()),
            scripts: Mutex::default(),
            downloads: Mutex::default(),
            stock: Stock::default(),
            looks_behind: Mutex::default(),
            gates: Gates::default(),
            some_were_killed: AtomicBool::new(false),
        });
        let handle = runtime.handle().clone();
        let accepting = runtime.spawn(accept(listener, Arc::clone(&shared), handle));
        Self {
            address,
            shared,
            running: Mutex::new(Some(Running { runtime, accepting })),
        }
    }

    /// Queues what happens with the next request that it is meant for.
    pub fn script(&self, script: Script) {
        script
            .gates()
            .for_each(|gate| self.shared.gates.announce(gate));
        self.shared.scripts().push_back(script);
    }

    /// Queues what happens with the next request for a download.
    pub fn download(&self, script: Script) {
        script
            .gates()
            .for_each(|gate| self.shared.gates.announce(gate));
        self.shared.downloads().push_back(script);
    }

    /// It has one more model, which is not in memory.
    pub fn stocks(&self, model: &str, capabilities: &[&str]) {
        self.shared.stock.add(model, capabilities);
    }

    /// Whether one of its models is in memory.
    pub fn loads(&self, model: &str, loaded: bool) {
        self.shared.stock.load(model, loaded);
    }

    /// It has a model no more.
    pub fn drops(&self, model: &str) {
        self.shared.stock.remove(model);
    }

    /// Whoever looks at a single model is held at this gate.
    pub fn holds_looks(&self, gate: &str) {
        self.shared.gates.announce(gate);
        *self.shared.looks_behind() = Some(gate.to_owned());
    }

    /// Every request for a download so far.
    pub fn pulls(&self) -> Vec<Request> {
        self.shared.board.read(|board| board.pulls.clone())
    }

    /// Waits until the `n`-th request for a download has arrived, from 1.
    pub async fn pull(&self, n: usize) -> Request {
        let what = format!("request number {n} for a download");
        self.shared
            .board
            .until(&what, |board| board.pulls.get(n - 1).cloned())
            .await
    }

    /// What was scripted for a client that is gone is asked for by nobody any more.
    pub fn forget_scripts(&self) {
        self.shared.scripts().clear();
        self.shared.downloads().clear();
        self.shared.some_were_killed.store(true, Ordering::SeqCst);
    }

    /// The dialect it speaks.
    pub fn dialect(&self) -> Dialect {
        self.shared.dialect
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:PORT`
    pub fn root(&self) -> String {
        format!("http://{}", self.address)
    }

    /// It, as it would be configured in the settings.
    pub fn provider(&self) -> Provider {
        provider_at(self.dialect(), self.address)
    }

    /// Its model, as an op names it.
    pub fn model(&self) -> ModelRef {
        model_of(&self.provider(), MODEL)
    }

    /// What it has counted so far.
    pub fn counters(&self) -> Counters {
        self.shared.board.read(|board| board.counters)
    }

    /// Waits until its counters satisfy a condition.
    pub async fn until(&self, what: &str, condition: impl Fn(Counters) -> bool) -> Counters {
        let look = |board: &Board| condition(board.counters).then_some(board.counters);
        self.shared.board.until(what, look).await
    }

    /// Every request for a chat so far.
    pub fn chats(&self) -> Vec<Request> {
        self.shared.board.read(|board| board.chats.clone())
    }

    /// Waits until the `n`-th request for a chat has arrived, from 1.
    pub async fn chat(&self, n: usize) -> Request {
        let what = format!("chat request number {n}");
        self.shared
            .board
            .until(&what, |board| board.chats.get(n - 1).cloned())
            .await
    }

    /// Waits until a connection stands at the gate.
    pub async fn arrived(&self, gate: &str) {
        self.shared.gates.arrived(gate).await;
    }

    /// Lets a connection pass the gate.
    pub fn release(&self, gate: &str) {
        self.shared.gates.release(gate);
    }

    /// A story took another way: no gate has to be reached any more.
    pub fn release_all(&self) {
        self.shared.gates.forget();
    }

    /// Waits until a connection stands at the gate and lets it pass.
    pub async fn pass(&self, gate: &str) {
        self.arrived(gate).await;
        self.release(gate);
    }

    /// Takes it off the network: connections end, new ones are refused. What it counted stays readable.
    pub async fn stop(&self) {
        let running = self.running().take();
        if let Some(Running { runtime, accepting }) = running {
            accepting.abort();
            // Cancelled is what it is meant to be; the listener is closed by then.
            let _ = accepting.await;
            runtime.shutdown_background();
        }
    }

    /// New connections are refused from now on; those that stand go on standing, in silence.
    pub async fn refuse_connections(&self) {
        let accepting = self.running().as_mut().map(|running| {
            let refusing = running.runtime.spawn(async {});
            std::mem::replace(&mut running.accepting, refusing)
        });
        if let Some(accepting) = accepting {
            accepting.abort();
            // Cancelled is what it is meant to be; the listener is closed by then.
            let _ = accepting.await;
        }
    }

    fn running(&self) -> std::sync::MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An address at which nothing listens.
pub fn refused_address() -> SocketAddr {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port on loopback");
    listener
        .local_addr()
        .expect("a bound listener has an address")
}

/// A provider of that dialect at that address.
pub fn provider_at(dialect: Dialect, address: SocketAddr) -> Provider {
    Provider {
        id: ProviderId::from_bits(u128::from(address.port())),
        name: match dialect {
            Dialect::Ollama => "Scripted Ollama".to_owned(),
            Dialect::OpenAiChat => "Scripted llama-server".to_owned(),
            Dialect::Anthropic => "Scripted Anthropic".to_owned(),
            Dialect::Local => "Scripted files".to_owned(),
        },
        dialect,
        base_url: match dialect {
            Dialect::Ollama => format!("http://{address}"),
            Dialect::OpenAiChat | Dialect::Anthropic => format!("http://{address}/v1"),
            // No such folder: the stand-in for a model's process knows from it whom to ask.
            Dialect::Local => format!("/scripted/{address}"),
        },
        num_ctx: None,
        keep_alive: match dialect {
            Dialect::Ollama | Dialect::OpenAiChat | Dialect::Anthropic => None,
            // Its timer would be one more that a test finds armed.
            Dialect::Local => Some("-1".to_owned()),
        },
        files: Vec::new(),
        think: Think::ServerDefault,
        limits: None,
        connection: protocol::Connection::default(),
    }
}

/// One of its models, as an op names it.
pub fn model_of(provider: &Provider, model: &str) -> ModelRef {
    ModelRef {
        provider: provider.id,
        provider_name: provider.name.clone(),
        model: model.to_owned(),
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        if let Some(running) = self.running().take() {
            running.runtime.shutdown_background();
        }
        if std::thread::panicking() {
            return;
        }
        let mut faults = self.shared.gates.faults();
        self.shared.board.read(|board| {
            faults.extend(board.unexpected.iter().map(|request| {
                format!(
                    "unexpected request: {} {}\n{}",
                    request.method,
                    request.path,
                    String::from_utf8_lossy(&request.body)
                )
            }));
        });
        faults.extend(
            self.shared
                .scripts()
                .iter()
                .map(|script| format!("a script was never asked for: {script:?}")),
        );
        faults.extend(
            self.shared
                .downloads()
                .iter()
                .map(|script| format!("a download was never asked for: {script:?}")),
        );
        assert!(
            faults.is_empty(),
            "the model server at {}:\n{}",
            self.address,
            faults.join("\n")
        );
    }
}

impl Shared {
    fn scripts(&self) -> std::sync::MutexGuard<'_, VecDeque<Script>> {
        self.scripts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn downloads(&self) -> std::sync::MutexGuard<'_, VecDeque<Script>> {
        self.downloads
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn looks_behind(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.looks_behind
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// What an Ollama says about its models; never about a chat or a download.
    fn of_stock(&self, request: &Request) -> Option<Script> {
        if self.dialect != Dialect::Ollama {
            return None;
        }
        let script = self.stock.answer(request)?;
        let held = self.looks_behind().clone();
        Some(match held.filter(|_| request.path == "/api/show") {
            Some(gate) => script.head_behind(&gate),
            None => script,
        })
    }

    fn count(&self, change: impl FnOnce(&mut Counters)) {
        self.board.change(|board| change(&mut board.counters));
    }

    fn take_script_for(&self, request: &Request) -> Option<Script> {
        if request.is_pull() {
            return self.downloads().pop_front();
        }
        if !request.is_chat() {
            return None;
        }
        let mut scripts = self.scripts();
        let position = scripts.iter().position(|script| script.is_for(request))?;
        scripts.remove(position)
    }
}

async fn accept(listener: std::net::TcpListener, shared: Arc<Shared>, handle: Handle) {
    let listener = TcpListener::from_std(listener).expect("a non-blocking listener");
    while let Ok((stream, _)) = listener.accept().await {
        shared.count(|counters| {
            counters.dials += 1;
            counters.open += 1;
        });
        let shared = Arc::clone(&shared);
        let open = Open(Arc::clone(&shared));
        handle.spawn(async move {
            let _open = open;
            // A client that hangs up in mid-request has not asked for anything.
            let is_forgiving = shared.some_were_killed.load(Ordering::SeqCst);
            if let Some(connection) = Connection::of(stream, is_forgiving).await {
                connection.answer(&shared).await;
            }
        });
    }
}

/// Whether the other side's end is here already. Asks the socket itself: the runtime may not have heard of it yet.
fn has_hung_up(stream: &TcpStream) -> bool {
    let socket = stream.as_fd().try_clone_to_owned();
    let socket = std::net::TcpStream::from(socket.expect("one more handle of a socket"));
    match socket.peek(&mut [0; 1]) {
        Ok(there) => there == 0,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    }
}

/// Counts a connection as open for as long as it lives.
struct Open(Arc<Shared>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.count(|counters| counters.open -= 1);
    }
}

/// A connection whose request was read.
struct Connection {
    request: Request,
    write: OwnedWriteHalf,
    closed: watch::Receiver<bool>,
    reader: AbortHandle,
}

impl Connection {
    /// With `is_forgiving`, a client that was dead before its request was read has asked for nothing either.
    async fn of(stream: TcpStream, is_forgiving: bool) -> Option<Self> {
        // What a script sends in one piece should arrive as one, at once. A socket that refuses is merely slower.
        stream.set_nodelay(true).ok();
        let (mut read, write) = stream.into_split();
        let request = read_request(&mut read).await?;
        if is_forgiving && has_hung_up(read.as_ref()) {
            return None;
        }
        let (told, closed) = watch::channel(false);
        let reader = Handle::current().spawn(async move {
            let mut byte = [0; 1];
            // Anything but the end would be a second request on a connection that was told to be the last.
            while matches!(read.read(&mut byte).await, Ok(1..)) {}
            told.send_replace(true);
        });
        Some(Self {
            request,
            write,
            closed,
            reader: reader.abort_handle(),
        })
    }

    async fn answer(self, shared: &Shared) {
        let usual = shared.of_stock(&self.request);
        if let Some(script) = usual.or_else(|| default_answer(shared.dialect, &self.request)) {
            self.play(script, shared).await;
            return;
        }
        let breach = match shared.dialect {
            Dialect::Anthropic if self.request.is_chat() => manners::breach(&self.request),
            Dialect::Anthropic | Dialect::Ollama | Dialect::OpenAiChat | Dialect::Local => None,
        };
        if let Some(words) = breach {
            self.play(Script::error(shared.dialect, 400, &words), shared)
                .await;
            return;
        }
        let script = shared.take_script_for(&self.request);
        let request = self.request.clone();
        shared.board.change(|board| {
            if request.is_chat() {
                board.counters.chats += 1;
                board.chats.push(request.clone());
            }
            if request.is_pull() {
                board.pulls.push(request.clone());
            }
            if script.is_none() {
                board.unexpected.push(request);
            }
        });
        match script {
            Some(script) => self.play(script, shared).await,
            None => {
                self.play(
                    Script::error(shared.dialect, 500, "no script for this"),
                    shared,
                )
                .await
            }
        }
    }

    async fn play(mut self, script: Script, shared: &Shared) {
        let ending = script.ending;
        if let Played::Closed = self.run(script, &shared.gates).await {
            shared.count(|counters| counters.closed_by_us += 1);
            return;
        }
        match ending {
            // The client may be gone by now, which is as good an end.
            Ending::Proper | Ending::Fin => self.write.shutdown().await.unwrap_or(()),
            Ending::Rst => {
                let stream: &TcpStream = self.write.as_ref();
                stream
                    .set_zero_linger()
                    .expect("a socket that can be reset");
                // Without the goodbye that dropping the half would send; the last owner's close is the reset.
                self.write.forget();
                self.reader.abort();
            }
            Ending::Silence => {}
        }
    }

    async fn run(&mut self, script: Script, gates: &Gates) -> Played {
        if let Some(gate) = &script.head_gate
            && let Played::Closed = self.stand_at(gate, gates).await
        {
            return Played::Closed;
        }
        let mut pending = script.head.as_ref().map(head_bytes).unwrap_or_default();
        let framing = script
            .head
            .as_ref()
            .map_or(Framing::UntilClose, |head| head.framing);
        // Kept to the end, so that what is held meanwhile does not become less with every step.
        let mut steps = script.steps.iter().peekable();
        if pending.is_empty() || matches!(steps.peek(), Some(Step::Gate(_)) | None) {
            // The head is on its way before anything else happens.
            if let Played::Closed = self.send(std::mem::take(&mut pending)).await {
                return Played::Closed;
            }
        }
        let mut ended = false;
        while let Some(step) = steps.next() {
            let played = match step {
                Step::Gate(gate) => self.stand_at(gate, gates).await,
                Step::Send(bytes) => {
                    pending.extend(framed(framing, bytes));
                    if steps.peek().is_none() && script.ending == Ending::Proper {
                        // The last bytes and the end of the body are one write: a client that hangs up at the end
                        // marker has not closed early.
                        pending.extend(end_of_body(framing));
                        ended = true;
                    }
                    self.send(std::mem::take(&mut pending)).await
                }
            };
            if let Played::Closed = played {
                return Played::Closed;
            }
        }
        match script.ending {
            Ending::Proper if !ended => self.send(end_of_body(framing).to_vec()).await,
            Ending::Proper | Ending::Fin | Ending::Rst => Played::ToTheEnd,
            Ending::Silence => {
                self.until_closed().await;
                Played::Closed
            }
        }
    }

    async fn send(&mut self, bytes: Vec<u8>) -> Played {
        if *self.closed.borrow() {
            return Played::Closed;
        }
        match self.write.write_all(&bytes).await {
            Ok(()) => Played::ToTheEnd,
            Err(_) => Played::Closed,
        }
    }

    async fn stand_at(&mut self, gate: &str, gates: &Gates) -> Played {
        tokio::select! {
            () = gates.pass(gate) => Played::ToTheEnd,
            () = self.until_closed() => {
                gates.left_early(gate);
                Played::Closed
            }
        }
    }

    async fn until_closed(&self) {
        let mut closed = self.closed.clone();
        // The sender lives until every receiver is gone, so the wait ends for one reason only.
        closed.wait_for(|closed| *closed).await.ok();
    }
}

/// How far a script got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Played {
    ToTheEnd,
    Closed,
}

async fn read_request(read: &mut OwnedReadHalf) -> Option<Request> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if read.read_buf(&mut bytes).await.ok()? == 0 || bytes.len() > REQUEST_BYTES_MAX {
            return None;
        }
        // Not HTTP at all, as of a client that begins with TLS: real servers hang up.
        if bytes.first().is_some_and(|byte| !byte.is_ascii_graphic()) {
            return None;
        }
    };
    let head = String::from_utf8_lossy(bytes.get(..head_end)?).into_owned();
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers: Vec<_> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length: usize = headers
        .iter()
        .find(|(name, _)| name == "content-length")
        .map_or(Some(0), |(_, value)| value.parse().ok())?;
    let mut body = bytes.split_off(head_end + 4);
    while body.len() < length {
        if read.read_buf(&mut body).await.ok()? == 0 || body.len() > REQUEST_BYTES_MAX {
            return None;
        }
    }
    Some(Request {
        method,
        path,
        headers,
        body,
    })
}

fn head_bytes(head: &Head) -> Vec<u8> {
    let mut text = format!(
        "HTTP/1.1 {} Scripted\r\nContent-Type: {}\r\n",
        head.status, head.content_type
    );
    match head.framing {
        Framing::Chunked => text.push_str("Transfer-Encoding: chunked\r\n"),
        Framing::Length(bytes) => text.push_str(&format!("Content-Length: {bytes}\r\n")),
        Framing::UntilClose => {}
    }
    for (name, value) in &head.headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("Connection: close\r\n\r\n");
    text.into_bytes()
}

fn framed(framing: Framing, bytes: &[u8]) -> Vec<u8> {
    match framing {
        // An empty chunk would be the end of the body.
        Framing::Chunked if bytes.is_empty() => Vec::new(),
        Framing::Chunked => [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat(),
        Framing::UntilClose | Framing::Length(_) => bytes.to_vec(),
    }
}

fn end_of_body(framing: Framing) -> &'static [u8] {
    match framing {
        Framing::Chunked => b"0\r\n\r\n",
        Framing::UntilClose | Framing::Length(_) => b"",
    }
}

/// What a server of that dialect says about itself and its models; never about a chat.
fn default_answer(dialect: Dialect, request: &Request) -> Option<Script> {
    let body = match (dialect, request.method.as_str(), request.path.as_str()) {
        (Dialect::Ollama, "GET" | "HEAD", "/") => {
            return Some(Script::page(
                200,
                "text/plain; charset=utf-8",
                "Ollama is running",
            ));
        }
        (Dialect::Ollama, "GET", "/api/version") => json!({ "version": "0.12.3" }),
        (Dialect::OpenAiChat, "GET", "/v1/models" | "/models") => json!({
            "object": "list",
            "data": [{ "id": MODEL, "object": "model", "created": 1, "owned_by": "llamacpp" }],
        }),
        (Dialect::OpenAiChat, "GET", "/health" | "/v1/health") => json!({ "status": "ok" }),
        (Dialect::Ollama, "GET", "/v1/models") => json!({
            "object": "list",
            "data": [{ "id": MODEL, "object": "model", "created": 1, "owned_by": "library" }],
        }),
        // A probe that tries one dialect on the other's server gets what that server really says.
        (Dialect::Ollama, "GET", _) => {
            return Some(Script::page(404, "text/plain", "404 page not found"));
        }
        (Dialect::OpenAiChat, "GET", _) => {
            return Some(Script::error(dialect, 404, "File Not Found"));
        }
        (Dialect::Anthropic, "GET", path) if path.starts_with("/v1/models") => {
            if request.header("anthropic-version").is_none() {
                let words = "anthropic-version: header is required";
                return Some(Script::error(dialect, 400, words));
            }
            json!({
                "data": [{
                    "type": "model", "id": MODEL, "display_name": "Lighthouse",
                    "created_at": "2026-02-28T12:00:00Z", "max_input_tokens": 200_000,
                }],
                "has_more": false, "first_id": MODEL, "last_id": MODEL,
            })
        }
        (Dialect::Anthropic, "GET", _) => {
            return Some(Script::error(dialect, 404, "Not Found"));
        }
        (Dialect::Ollama | Dialect::OpenAiChat | Dialect::Anthropic | Dialect::Local, _, _) => {
            return None;
        }
    };
    Some(Script::page(
        200,
        "application/json; charset=utf-8",
        &body.to_string(),
    ))
}

#[cfg(test)]
mod tests;
