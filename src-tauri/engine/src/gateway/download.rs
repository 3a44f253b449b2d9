//! Downloads: a model's file fetched from an address, and gone on with where an earlier try stopped.
//!
//! Invariant: a file gets its own name only when all of it is there and is what was announced. Until then it is a
//! `.part`, and what is known of it lies beside. It is gone on with only if the server says that it is still the same.
//! Kept by: `If-Range` with the mark of what is there, the SHA-256 of every byte, and the file's own description, which
//! says how long it is where the server does not.
//! Not here: who wants it and what becomes of that (`crate::pulls`), and what the file is (`crate::gguf`).

mod part;

use std::{path::PathBuf, time::Duration};

use futures_util::StreamExt;
use protocol::{Failure, FailureCode, PullProgress};
use reqwest::{
    Response, StatusCode, Url,
    header::{
        CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, IF_RANGE,
        LAST_MODIFIED, LOCATION, RANGE,
    },
};
use tokio::{sync::mpsc, task::spawn_blocking};

use super::{Limits, dial::Dialer, failure, peer::Peer};
use crate::{
    Harness,
    gguf::{self, NotAModel},
    mutant::mutated,
};

use part::{Part, Remembered};

/// As browsers do.
const REDIRECTS_MAX: usize = 10;

/// A store of files answers within seconds, or is gone on with later.
const HEAD_WAIT: Duration = Duration::from_secs(60);

/// Pieces on their way to the disk. Full: the socket is not read, so the disk sets the pace, not memory.
const AHEAD: usize = 16;

/// What is left free: the conversations are on the same disk.
const SPARE_BYTES: u64 = 256 * 1024 * 1024;

/// The first bytes tell whether it is a model at all.
const HEAD_BYTES: usize = 16;

/// Hugging Face says the SHA-256 of a large file before it sends one elsewhere for it.
const LINKED_ETAG: HeaderName = HeaderName::from_static("x-linked-etag");

/// What is to be downloaded, and where to.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) url: Url,
    pub(crate) folder: PathBuf,
    /// The file's name in the folder.
    pub(crate) name: String,
    /// In hexadecimal, where it is known.
    pub(crate) sha256: Option<String>,
    /// What the disk has, if it says.
    pub(crate) free_bytes: Option<u64>,
}

/// A file that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Landed {
    /// In hexadecimal.
    pub(crate) sha256: String,
}

/// Removes what came of a file so far.
pub(crate) fn forget(folder: &std::path::Path, name: &str) {
    part::remove(folder, name);
}

/// Runs it to its end.
pub(super) async fn run(
    dialer: &Dialer,
    order: Order,
    limits: &Limits,
    mut told: impl FnMut(PullProgress),
    harness: &Harness,
) -> Result<Landed, Failure> {
    let mut progress = PullProgress {
        status: "looking at what is there".to_owned(),
        ..PullProgress::default()
    };
    told(progress.clone());
    let mut part = {
        let (folder, name, url) = (
            order.folder.clone(),
            order.name.clone(),
            order.url.to_string(),
        );
        off(move || Part::open(&folder, &name, &url)).await?
    };
    "asking for it".clone_into(&mut progress.status);
    told(progress.clone());
    let mut reply = match ask(dialer, &order.url, part.remembered(), harness).await {
        Ok(reply) => reply,
        Err(failure) => {
            if part.remembered().is_none() {
                part.remove();
            }
            return Err(failure);
        }
    };
    if let Reply::Elsewhere = reply {
        // What is there cannot be gone on with; the whole is asked for, once.
        part = off(move || part.emptied()).await?;
        reply = ask(dialer, &order.url, None, harness).await?;
    }
    let (told_sha256, part) = match reply {
        Reply::Whole { sha256 } => (sha256, part),
        Reply::Elsewhere => {
            return Err(bad(format!(
                "{} does not send the file from its beginning; try again later.",
                place(&order.url)
            )));
        }
        Reply::Body(body) => {
            let sha256 = body.sha256.clone();
            let part = receive(
                dialer, &order, *body, part, limits, progress, &mut told, harness,
            );
            (sha256, part.await?)
        }
    };
    let expected = order.sha256.clone().or(told_sha256);
    let (url, harness) = (order.url.clone(), harness.clone());
    spawn_blocking(move || land(part, &url, expected.as_deref(), &harness))
        .await
        .map_err(|_| disk("the download came apart"))?
}

/// Everything is there: looks at it, and gives it its name. Blocks.
fn land(part: Part, url: &Url, sha256: Option<&str>, harness: &Harness) -> Result<Landed, Failure> {
    let name = part.name().to_owned();
    let found = part.sha256();
    if let Some(sha256) = sha256
        && !sha256.eq_ignore_ascii_case(&found)
        && !mutated!(harness, AnyChecksum)
    {
        part.remove();
        return Err(bad(format!(
            "What came from {} is not the file that was announced, so it was deleted; its SHA-256 is {found} and should be {sha256}. Download it again; if that ends the same way, the file there was exchanged.",
            place(url)
        )));
    }
    match gguf::look(part.path(), harness) {
        // The list says what to do about a file that is whole and still of no use.
        Ok(_)
        | Err(
            NotAModel::Old(_)
            | NotAModel::New(_)
            | NotAModel::BigEndian
            | NotAModel::LaterPart { .. }
            | NotAModel::PartMissing(_)
            | NotAModel::Projector,
        ) => {}
        Err(NotAModel::Cut { there, needed }) if !part.is_whole() => {
            return Err(Failure::new(
                FailureCode::StreamCut,
                format!(
                    "The connection to {} ended before {name} did: {} are there. It goes on from there.",
                    place(url),
                    gguf::of_bytes(there, needed)
                ),
            ));
        }
        Err(
            why @ (NotAModel::Cut { .. }
            | NotAModel::CutEarly
            | NotAModel::Missing
            | NotAModel::Folder
            | NotAModel::Unreadable(_)
            | NotAModel::Empty
            | NotAModel::Other(_)
            | NotAModel::Damaged(_)),
        ) => {
            part.remove();
            return Err(bad(format!(
                "What came from {} is no model that could be used, so it was deleted: {why}.",
                place(url)
            )));
        }
    }
    part.named().map_err(|error| disk(&error.to_string()))?;
    Ok(Landed { sha256: found })
}

/// A reply that can be made use of.
enum Reply {
    /// All of it is there already.
    Whole {
        sha256: Option<String>,
    },
    /// What is there is not what the server has now, or not its beginning.
    Elsewhere,
    Body(Box<Body>),
}

struct Body {
    response: Response,
    peer: Peer,
    /// Where in the file it begins.
    begins: u64,
    /// How long the file is.
    total: Option<u64>,
    sha256: Option<String>,
    /// By what the server tells it from another one.
    mark: Option<String>,
}

async fn ask(
    dialer: &Dialer,
    url: &Url,
    remembered: Option<&Remembered>,
    harness: &Harness,
) -> Result<Reply, Failure> {
    let mut url = url.clone();
    let mut sha256 = None;
    for _ in 0..=REDIRECTS_MAX {
        let peer = Peer {
            name: "the server".to_owned(),
            ..Peer::at(&url)
        };
        let mut request = dialer.file(&url, &peer).map_err(|error| error.failure)?;
        if let Some(known) = remembered {
            request = request.header(RANGE, format!("bytes={}-", known.bytes));
            if !mutated!(harness, ResumeAnything) {
                request = request.header(IF_RANGE, known.mark.as_str());
            }
        }
        let mut late = dialer.clock.sleep(HEAD_WAIT);
        let response = tokio::select! {
            response = request.send() => response.map_err(|problem| failure::unsent(&peer, &problem).failure)?,
            () = &mut late => return Err(failure::no_connection(&peer, HEAD_WAIT).failure),
        };
        sha256 = linked(response.headers()).or(sha256);
        let status = response.status();
        if status.is_redirection() && response.headers().contains_key(LOCATION) {
            url = next(&url, response.headers())?;
            continue;
        }
        return reply(dialer, response, peer, remembered, sha256).await;
    }
    Err(bad(format!(
        "{} sends one on and on and never to the file; check the address.",
        place(&url)
    )))
}

async fn reply(
    dialer: &Dialer,
    response: Response,
    peer: Peer,
    remembered: Option<&Remembered>,
    sha256: Option<String>,
) -> Result<Reply, Failure> {
    let headers = response.headers();
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    match response.status() {
        StatusCode::OK | StatusCode::PARTIAL_CONTENT => {}
        StatusCode::RANGE_NOT_SATISFIABLE => {
            let total =
                text(CONTENT_RANGE).and_then(|range| number(range.strip_prefix("bytes */")?));
            return Ok(match remembered {
                Some(known) if total == Some(known.bytes) => Reply::Whole { sha256 },
                Some(_) => Reply::Elsewhere,
                None => return Err(refusal(dialer, response, peer).await),
            });
        }
        _ => return Err(refusal(dialer, response, peer).await),
    }
    let kind = text(CONTENT_TYPE).unwrap_or_default().to_ascii_lowercase();
    if kind.starts_with("text/html") {
        return Err(page(&peer));
    }
    let mark = text(ETAG)
        // A weak one says that it means the same, not that its bytes are.
        .filter(|etag| !etag.starts_with("W/"))
        .or_else(|| text(LAST_MODIFIED))
        .map(str::to_owned);
    let length = text(CONTENT_LENGTH).and_then(number);
    let (begins, total) = if response.status() == StatusCode::PARTIAL_CONTENT {
        let range = text(CONTENT_RANGE).and_then(|range| {
            let (range, total) = range.strip_prefix("bytes ")?.split_once('/')?;
            Some((number(range.split_once('-')?.0)?, number(total)))
        });
        match range {
            Some((begins, total)) if remembered.is_some_and(|known| known.bytes == begins) => {
                (begins, total.or_else(|| begins.checked_add(length?)))
            }
            Some(_) | None => return Ok(Reply::Elsewhere),
        }
    } else {
        (0, length)
    };
    Ok(Reply::Body(Box::new(Body {
        response,
        peer,
        begins,
        total,
        sha256,
        mark,
    })))
}

/// Reads the body into the part.
#[expect(
    clippy::too_many_arguments,
    reason = "one loop over all there is, split off for its length"
)]
async fn receive(
    dialer: &Dialer,
    order: &Order,
    body: Body,
    part: Part,
    limits: &Limits,
    mut progress: PullProgress,
    told: &mut impl FnMut(PullProgress),
    harness: &Harness,
) -> Result<Part, Failure> {
    let Body {
        response,
        peer,
        begins,
        total,
        mark,
        ..
    } = body;
    if let (Some(total), Some(free)) = (total, order.free_bytes) {
        let missing = total.saturating_sub(begins);
        if free < missing.saturating_add(SPARE_BYTES) && !mutated!(harness, NoRoomLook) {
            return Err(Failure::new(
                FailureCode::ModelLoadFailed,
                format!(
                    "There is no room for {}: {} more are needed and {} are free. Make room on the disk that holds {}, then go on.",
                    order.name,
                    gguf::in_words(missing.saturating_add(SPARE_BYTES)),
                    gguf::in_words(free),
                    order.folder.display()
                ),
            ));
        }
    }
    let url = order.url.to_string();
    // What cannot be known again is fetched anew.
    let marked = mark.is_some();
    let part = off(move || part.continued(begins, &url, mark, total)).await?;
    "downloading".clone_into(&mut progress.status);
    let mut tell = |completed: u64| {
        progress.completed_bytes = progress.completed_bytes.max(completed);
        progress.total_bytes = total;
        let share = total.filter(|total| *total > 0).map_or(0, |total| {
            (u128::from(completed) * 1000 / u128::from(total)).min(999)
        });
        let share = u16::try_from(share).unwrap_or(999);
        progress.permille = progress.permille.max(share);
        told(progress.clone());
    };
    tell(begins);
    let again = if marked {
        "It goes on from where it stopped."
    } else {
        "Its server has no mark for going on, so the next try begins anew."
    };
    let (send, pieces) = mpsc::channel(AHEAD);
    let writing = spawn_blocking(move || write(part, pieces));
    let mut stream = response.bytes_stream();
    let mut there = begins;
    let mut head = Vec::new();
    let end = loop {
        let chunk = tokio::select! {
            chunk = stream.next() => chunk,
            () = dialer.clock.sleep(limits.gap) => break Err(Failure::new(
                FailureCode::IdleTimeout,
                format!(
                    "{} sent nothing of {} for {}. {again}",
                    peer.place(), order.name, failure::in_words(limits.gap)
                ),
            )),
        };
        let piece = match chunk {
            Some(Ok(piece)) => piece,
            Some(Err(problem)) => {
                let mut cut = failure::cut(&peer, Some(&problem)).failure;
                cut.message = format!(
                    "The connection to {} ended before {} did. {again}",
                    peer.place(),
                    order.name
                );
                break Err(cut);
            }
            None => break Ok(()),
        };
        if begins == 0 && head.len() < HEAD_BYTES {
            head.extend_from_slice(piece.get(..HEAD_BYTES).unwrap_or(&piece));
            if head.len() >= 4 && !head.starts_with(b"GGUF") && !mutated!(harness, AnyPageIsAModel)
            {
                break Err(not_a_model(&peer, &head));
            }
        }
        there = there.saturating_add(piece.len() as u64);
        if send.send(piece).await.is_err() {
            // The disk said no; it says so below.
            break Ok(());
        }
        tell(there);
    };
    drop(send);
    let written = writing.await.map_err(|_| disk("the writing came apart"))?;
    let part = written.map_err(|error| {
        disk(&format!(
            "{} could not be written ({error}); make room on the disk that holds {}, then go on",
            order.name,
            order.folder.display()
        ))
    })?;
    match end {
        Ok(()) => Ok(part),
        Err(failure) => {
            if there == 0 || failure.code == FailureCode::BadStream {
                part.remove();
            }
            Err(failure)
        }
    }
}

/// Writes what comes until nothing more does. Blocks.
fn write(mut part: Part, mut pieces: mpsc::Receiver<impl AsRef<[u8]>>) -> std::io::Result<Part> {
    while let Some(piece) = pieces.blocking_recv() {
        part.write(piece.as_ref())?;
    }
    Ok(part)
}

fn next(from: &Url, headers: &HeaderMap) -> Result<Url, Failure> {
    let to = headers.get(LOCATION).and_then(|to| to.to_str().ok());
    let to = to.and_then(|to| from.join(to).ok());
    let to = to.filter(|to| matches!(to.scheme(), "http" | "https") && to.has_host());
    match to {
        Some(to) if from.scheme() == "https" && to.scheme() == "http" => Err(bad(format!(
            "{} sends one on to {}, without protection on the way; look for another address.",
            place(from),
            place(&to)
        ))),
        Some(to) => Ok(to),
        None => Err(bad(format!(
            "{} sends one on to an address that is none.",
            place(from)
        ))),
    }
}

/// A SHA-256 in hexadecimal, in quotes.
fn linked(headers: &HeaderMap) -> Option<String> {
    let told = headers.get(LINKED_ETAG)?.to_str().ok()?.trim_matches('"');
    let is_sha256 = told.len() == 64 && told.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_sha256.then(|| told.to_ascii_lowercase())
}

async fn refusal(dialer: &Dialer, response: Response, peer: Peer) -> Failure {
    let place = peer.place();
    let status = response.status();
    let words = match status {
        StatusCode::NOT_FOUND | StatusCode::GONE => {
            let words = format!("There is no such file at {place}. Check the address.");
            return Failure::new(FailureCode::ModelNotFound, words);
        }
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            let words = format!(
                "{place} does not give this file to everybody. Download it in a browser, where you are signed in, and add the file here."
            );
            return Failure::new(FailureCode::KeyRejected, words);
        }
        StatusCode::TOO_MANY_REQUESTS => {
            let words = format!("{place} asks for fewer requests. Go on in some minutes.");
            return Failure::new(FailureCode::RateLimited, words);
        }
        status if status.is_server_error() => format!(
            "{place} has a problem of its own (status {}). Go on later.",
            status.as_u16()
        ),
        status => format!(
            "{place} does not send the file (status {}). Check the address.",
            status.as_u16()
        ),
    };
    // The server's words are for the fold beneath.
    let said = dialer.refusal(response, &peer).await.error.failure.detail;
    let failure = Failure::new(FailureCode::ProviderError, words);
    match said {
        Some(said) => failure.with_detail(said),
        None => failure,
    }
}

fn page(peer: &Peer) -> Failure {
    bad(format!(
        "{} sent a web page and not a file. Use the address of the file itself; it ends in .gguf.",
        peer.place()
    ))
}

fn not_a_model(peer: &Peer, head: &[u8]) -> Failure {
    match gguf::kind_of(head) {
        "a web page" => page(peer),
        kind => bad(format!(
            "{} sent {kind} and not a model. Use the address of a file in the GGUF format.",
            peer.place()
        )),
    }
}

fn bad(words: String) -> Failure {
    Failure::new(FailureCode::BadStream, words)
}

fn disk(words: &str) -> Failure {
    Failure::new(FailureCode::ModelLoadFailed, crate::sentence(words))
}

fn place(url: &Url) -> String {
    Peer::at(url).address
}

/// Off the threads that wait for sockets.
async fn off<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, Failure> {
    match spawn_blocking(work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(disk(&format!(
            "the file for the download could not be opened ({error})"
        ))),
        Err(_) => Err(disk("the download came apart")),
    }
}
