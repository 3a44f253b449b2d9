//! A store of files on loopback: ranges, marks and redirects as the large ones have them, and every way to go wrong.
//!
//! Invariant: what it does with a request depends on that request and on what stands in the store at that moment, as
//! with a real one; what was asked is kept. A gate that nobody reached or released fails the test.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinSet,
};

use crate::gate::Gates;

/// What lies at a path.
#[derive(Clone, Debug)]
pub struct Served {
    status: u16,
    bytes: Vec<u8>,
    headers: Vec<(String, String)>,
    mark: Option<String>,
    ranges: bool,
    sized: bool,
    cut_after: Option<usize>,
    gate: Option<(usize, String)>,
}

impl Served {
    /// A file that can be asked for in parts.
    pub fn of(bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            status: 200,
            bytes: bytes.into(),
            headers: vec![(
                "content-type".to_owned(),
                "application/octet-stream".to_owned(),
            )],
            mark: None,
            ranges: true,
            sized: true,
            cut_after: None,
            gate: None,
        }
    }

    /// A web page.
    pub fn page(status: u16) -> Self {
        let mut page = Self::of("<!DOCTYPE html><html><h1>Sign in</h1></html>");
        page.status = status;
        page.headers = vec![("content-type".to_owned(), "text/html".to_owned())];
        page
    }

    /// Sends one elsewhere.
    pub fn sends_to(place: &str) -> Self {
        let mut elsewhere = Self::of("");
        elsewhere.status = 302;
        elsewhere.with("location", place)
    }

    /// With a status of its own.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// With one more header.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With an `ETag`.
    #[must_use]
    pub fn marked(mut self, mark: &str) -> Self {
        self.mark = Some(format!("\"{mark}\""));
        self
    }

    /// Knows nothing of ranges.
    #[must_use]
    pub fn whole_only(mut self) -> Self {
        self.ranges = false;
        self
    }

    /// Does not say how long it is; the connection's end is the file's.
    #[must_use]
    pub fn unsized_body(mut self) -> Self {
        self.sized = false;
        self
    }

    /// Of every reply only so many bytes are sent.
    #[must_use]
    pub fn cut_after(mut self, bytes: usize) -> Self {
        self.cut_after = Some(bytes);
        self
    }

    /// After so many bytes of a reply it stands at a gate.
    #[must_use]
    pub fn gate_after(mut self, bytes: usize, gate: &str) -> Self {
        self.gate = Some((bytes, gate.to_owned()));
        self
    }
}

/// A request, as far as it matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    pub path: String,
    pub range: Option<String>,
    pub if_range: Option<String>,
}

#[derive(Default)]
struct Store {
    files: Mutex<BTreeMap<String, Served>>,
    asked: Mutex<Vec<Fetch>>,
    gates: Gates,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The store, running.
pub struct FileServer {
    address: SocketAddr,
    store: Arc<Store>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Default for FileServer {
    fn default() -> Self {
        Self::start()
    }
}

impl FileServer {
    pub fn start() -> Self {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        listener
            .set_nonblocking(true)
            .expect("a socket that does not block");
        let address = listener.local_addr().expect("it has an address");
        let store = Arc::new(Store::default());
        let (stop, stopped) = oneshot::channel();
        let kept = Arc::clone(&store);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).expect("the same socket");
                tokio::select! {
                    () = serve(listener, kept) => {}
                    _ = stopped => {}
                }
            });
        });
        Self {
            address,
            store,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Puts something at a path, in place of what was there.
    pub fn put(&self, path: &str, served: Served) {
        if let Some((_, gate)) = &served.gate {
            self.store.gates.announce(gate);
        }
        locked(&self.store.files).insert(format!("/{path}"), served);
    }

    /// The address of what lies at a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    /// What was asked so far.
    pub fn asked(&self) -> Vec<Fetch> {
        locked(&self.store.asked).clone()
    }

    /// Waits until a reply stands at the gate.
    pub async fn arrived(&self, gate: &str) {
        self.store.gates.arrived(gate).await;
    }

    /// Lets it go on.
    pub fn release(&self, gate: &str) {
        self.store.gates.release(gate);
    }

    /// Waits until a reply stands at the gate, and lets it go on.
    pub async fn pass(&self, gate: &str) {
        self.arrived(gate).await;
        self.release(gate);
    }
}

impl Drop for FileServer {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // It may have ended by itself.
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !std::thread::panicking() {
                ended.expect("the store served without a panic");
                assert_eq!(self.store.gates.faults(), Vec::<String>::new());
            }
        }
    }
}

async fn serve(listener: TcpListener, store: Arc<Store>) {
    let mut served = JoinSet::new();
    loop {
        let (socket, _) = listener.accept().await.expect("a connection");
        let store = Arc::clone(&store);
        served.spawn(async move {
            // The client may hang up whenever it likes.
            let _ = answer(socket, &store).await;
        });
    }
}

async fn answer(mut socket: TcpStream, store: &Store) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await?);
    }
    let head = String::from_utf8(head).expect("a request is text");
    let path = head
        .split(' ')
        .nth(1)
        .expect("a request has a path")
        .to_owned();
    let header = |wanted: &str| {
        let lines = head.lines().filter_map(|line| line.split_once(": "));
        let mut found = lines.filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.next().map(|(_, value)| value.to_owned())
    };
    let fetch = Fetch {
        path: path.clone(),
        range: header("range"),
        if_range: header("if-range"),
    };
    locked(&store.asked).push(fetch.clone());
    let served = locked(&store.files).get(&path).cloned();
    let Some(served) = served else {
        return socket
            .write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 9\r\nconnection: close\r\n\r\nnot found")
            .await;
    };
    let from = fetch
        .range
        .as_deref()
        .and_then(|range| {
            range
                .strip_prefix("bytes=")?
                .strip_suffix('-')?
                .parse::<usize>()
                .ok()
        })
        .filter(|_| served.ranges && served.status == 200)
        .filter(|_| fetch.if_range.is_none() || fetch.if_range == served.mark);
    let all = served.bytes.len();
    let (status, body, more) = match from {
        Some(from) if from >= all => (416, &[][..], format!("content-range: bytes */{all}\r\n")),
        Some(from) => {
            let range = format!("content-range: bytes {from}-{}/{all}\r\n", all - 1);
            (206, &served.bytes[from..], range)
        }
        None => (served.status, &served.bytes[..], String::new()),
    };
    let mut reply = format!("HTTP/1.1 {status} Something\r\nconnection: close\r\n{more}");
    for (name, value) in &served.headers {
        reply += &format!("{name}: {value}\r\n");
    }
    if let Some(mark) = &served.mark {
        reply += &format!("etag: {mark}\r\n");
    }
    if served.sized {
        reply += &format!("content-length: {}\r\n", body.len());
    }
    socket.write_all((reply + "\r\n").as_bytes()).await?;
    let sent = &body[..served.cut_after.unwrap_or(body.len()).min(body.len())];
    match &served.gate {
        Some((after, gate)) => {
            let (first, rest) = sent.split_at((*after).min(sent.len()));
            socket.write_all(first).await?;
            let mut gone = [0];
            tokio::select! {
                () = store.gates.pass(gate) => {}
                _ = socket.read(&mut gone) => {
                    store.gates.left_early(gate);
                    return Ok(());
                }
            }
            socket.write_all(rest).await?;
        }
        None => socket.write_all(sent).await?,
    }
    socket.shutdown().await
}

/// A small whole model in the GGUF format, with so many bytes of weights.
pub fn model_file(title: &str, weight_bytes: u32) -> Vec<u8> {
    let mut file = b"GGUF".to_vec();
    file.extend(3_u32.to_le_bytes());
    for count in [1_u64, 4] {
        file.extend(count.to_le_bytes());
    }
    let text = |file: &mut Vec<u8>, text: &str| {
        file.extend((text.len() as u64).to_le_bytes());
        file.extend(text.as_bytes());
    };
    for (name, value) in [
        ("general.architecture", "kelp"),
        ("general.name", title),
        ("general.license", "apache-2.0"),
    ] {
        text(&mut file, name);
        file.extend(8_u32.to_le_bytes());
        text(&mut file, value);
    }
    text(&mut file, "kelp.context_length");
    file.extend(4_u32.to_le_bytes());
    file.extend(2_048_u32.to_le_bytes());
    text(&mut file, "weights");
    file.extend(1_u32.to_le_bytes());
    file.extend(u64::from(weight_bytes).to_le_bytes());
    // Numbers of eight bits, from the beginning on.
    file.extend(24_u32.to_le_bytes());
    file.extend(0_u64.to_le_bytes());
    let begins = file.len().next_multiple_of(32);
    file.resize(begins, 0);
    file.extend((0..weight_bytes).map(|at| at.to_le_bytes()[0]));
    file
}
