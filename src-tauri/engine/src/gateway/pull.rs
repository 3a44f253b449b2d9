//! Pulling: an Ollama downloads a model, and tells how far it is.
//!
//! Invariant: nothing that is told ever gets less, whatever the server says: it begins parts anew, names new ones, and
//! leaves numbers out. Only its word `success` is the end; an error line, other bytes and the end of all bytes are not.
//! Not here: who wants it and what becomes of that (`crate::pulls`).

use futures_util::StreamExt;
use protocol::{Failure, FailureCode, Provider, PullLayer, PullProgress};
use serde_json::{Value, json};

use super::{
    Limits,
    access::authorised,
    answer::whole,
    dial::Dialer,
    failure,
    fault::{EXCERPT_BYTES_MAX, Fault, Said, Unreadable},
    join, json,
    lines::Lines,
    peer::Peer,
};
use crate::{Harness, mutant::mutated};

/// A line tells a name and two numbers, or an error in words.
const LINE_BYTES_MAX: usize = 256 * 1024;

/// More parts than any model has; of others only the sum is lost.
const LAYERS_MAX: usize = 256;

/// Of what a server says that it does.
const STATUS_CHARS_MAX: usize = 200;

/// What is to be pulled, and by whom.
pub(super) struct Asked<'a> {
    pub(super) provider: &'a Provider,
    pub(super) model: &'a str,
    pub(super) peer: Peer,
}

/// Runs it to its end.
pub(super) async fn run(
    dialer: &Dialer,
    asked: Asked<'_>,
    limits: &Limits,
    mut told: impl FnMut(PullProgress),
    harness: &Harness,
) -> Result<(), Failure> {
    let Asked {
        provider,
        model,
        peer,
    } = asked;
    let silent = || {
        Failure::new(
            FailureCode::IdleTimeout,
            format!(
                "{} said nothing of the download of {model} for {}.",
                peer.place(),
                failure::in_words(limits.first_event)
            ),
        )
    };
    let url = join(&provider.base_url, "/api/pull")
        .ok_or_else(|| failure::no_address(&provider.base_url))?;
    let body = json!({ "model": model, "stream": true });
    let posted = dialer.post(&url, &peer, body.to_string().into_bytes());
    let (request, connected) = posted.map_err(|error| error.failure)?;
    let request = authorised(request, &peer, harness).map_err(|error| error.failure)?;
    let mut sending = Box::pin(request.send());
    let mut late = dialer.clock.sleep(limits.connect);
    // A connection that stands is waited for longer than one that does not come about.
    let stood = tokio::select! {
        reply = &mut sending => Some(reply),
        stands = connected => {
            // Without one, the reply has the reason.
            drop(stands);
            None
        }
        () = &mut late => return Err(failure::no_connection(&peer, limits.connect).failure),
    };
    let reply = match stood {
        Some(reply) => reply,
        None => tokio::select! {
            reply = &mut sending => reply,
            () = dialer.clock.sleep(limits.first_event) => return Err(silent()),
        },
    };
    drop(late);
    let response = reply.map_err(|problem| failure::unsent(&peer, &problem).failure)?;
    if !response.status().is_success() {
        return Err(dialer.refusal(response, &peer).await.error.failure);
    }
    let mut pull = Pull::new(harness.clone());
    let mut body = response.bytes_stream();
    loop {
        let chunk = tokio::select! {
            chunk = body.next() => chunk,
            () = dialer.clock.sleep(limits.first_event) => return Err(silent()),
        };
        match chunk {
            Some(Ok(bytes)) => {
                pull.feed(&bytes);
                told(pull.progress.clone());
                if pull.is_over() {
                    break;
                }
            }
            Some(Err(problem)) => return Err(pull.cut(model, &peer, Some(&problem))),
            None => break,
        }
    }
    pull.finish(model, &peer)
}

/// What came of the lines so far.
struct Pull {
    lines: Lines,
    progress: PullProgress,
    end: Option<Result<(), Fault>>,
    harness: Harness,
}

impl Pull {
    fn new(harness: Harness) -> Self {
        Self {
            lines: Lines::new(LINE_BYTES_MAX),
            progress: PullProgress::default(),
            end: None,
            harness,
        }
    }

    fn is_over(&self) -> bool {
        self.end.is_some()
    }

    fn feed(&mut self, bytes: &[u8]) {
        let none = Lines::new(LINE_BYTES_MAX);
        let mut lines = std::mem::replace(&mut self.lines, none);
        let fed = lines.feed(bytes, |line| {
            self.line(line);
            Ok(())
        });
        self.lines = lines;
        if fed.is_err() {
            self.end.get_or_insert(Err(Fault::TooLong));
        }
    }

    fn line(&mut self, line: &str) {
        if self.is_over() || line.trim().is_empty() {
            return;
        }
        let frame = match json::read(line) {
            Ok(frame @ Value::Object(_)) => frame,
            Ok(_) | Err(_) => {
                self.end = Some(Err(Fault::Unreadable(Unreadable::new(line))));
                return;
            }
        };
        if let Some(said) = Said::read(&frame) {
            self.end = Some(Err(Fault::Said(said)));
            return;
        }
        let Some(status) = frame.get("status").and_then(Value::as_str) else {
            return;
        };
        self.progress.status = status.chars().take(STATUS_CHARS_MAX).collect();
        if status == "success" {
            self.progress.permille = 1000;
            self.end = Some(Ok(()));
            return;
        }
        if let Some(digest) = frame.get("digest").and_then(Value::as_str) {
            self.layer(
                digest,
                whole(frame.get("total")).filter(|bytes| *bytes > 0),
                whole(frame.get("completed")).unwrap_or(0),
            );
        }
    }

    fn layer(&mut self, digest: &str, total: Option<u64>, completed: u64) {
        let goes_back = mutated!(self.harness, PullGoesBack);
        let layers = &mut self.progress.layers;
        match layers.iter().position(|layer| layer.digest == digest) {
            Some(at) => {
                let Some(layer) = layers.get_mut(at) else {
                    return;
                };
                layer.total_bytes = layer.total_bytes.max(total);
                layer.completed_bytes = if goes_back {
                    completed
                } else {
                    layer.completed_bytes.max(completed)
                };
            }
            None if layers.len() < LAYERS_MAX => layers.push(PullLayer {
                digest: digest.chars().take(STATUS_CHARS_MAX).collect(),
                total_bytes: total,
                completed_bytes: completed,
            }),
            None => {}
        }
        for layer in layers.iter_mut() {
            if let Some(total) = layer.total_bytes {
                layer.completed_bytes = layer.completed_bytes.min(total);
            }
        }
        let sum = |of: fn(&PullLayer) -> u64| layers.iter().map(of).fold(0, u64::saturating_add);
        let completed = sum(|layer| layer.completed_bytes);
        let total = sum(|layer| layer.total_bytes.unwrap_or(layer.completed_bytes));
        let is_told = layers.iter().any(|layer| layer.total_bytes.is_some());
        self.progress.total_bytes = is_told.then_some(total);
        // A part that is named late makes the whole larger; what was shown stays shown. The last word is the server's.
        let share = completed
            .saturating_mul(1000)
            .checked_div(total)
            .filter(|_| is_told)
            .map_or(0, |share| u16::try_from(share.min(999)).unwrap_or(999));
        if goes_back {
            (self.progress.completed_bytes, self.progress.permille) = (completed, share);
        } else {
            self.progress.completed_bytes = self.progress.completed_bytes.max(completed);
            self.progress.permille = self.progress.permille.max(share);
        }
    }

    fn cut(
        &self,
        model: &str,
        peer: &Peer,
        why: Option<&(dyn std::error::Error + 'static)>,
    ) -> Failure {
        let mut failure = failure::cut(peer, why).failure;
        failure.message = format!(
            "The connection to {} ended before the download of {model} did.",
            peer.place()
        );
        failure
    }

    fn finish(mut self, model: &str, peer: &Peer) -> Result<(), Failure> {
        if let Some(tail) = self.lines.finish()
            && !self.is_over()
            && json::read(&tail).is_ok()
        {
            self.line(&tail);
        }
        match self.end.take() {
            Some(Ok(())) => Ok(()),
            Some(Err(Fault::Said(said))) => Err(in_words(&said, model, peer)),
            Some(Err(fault)) => Err(failure::faulty(peer, &fault).failure),
            None if mutated!(self.harness, PullEofIsDone) => Ok(()),
            None => Err(self.cut(model, peer, None)),
        }
    }
}

/// The server's word for why it has no such model is about a file.
fn in_words(said: &Said, model: &str, peer: &Peer) -> Failure {
    let words = said.message.to_lowercase();
    let is_unknown = ["file does not exist", "not found", "404"]
        .iter()
        .any(|word| words.contains(word));
    if is_unknown && words.contains("manifest") {
        let message =
            format!("There is no model {model} to download; look at how its name is written.");
        return Failure::new(FailureCode::ModelNotFound, message)
            .with_detail(failure::redacted(peer, &said.message));
    }
    let excerpt: String = said.message.chars().take(EXCERPT_BYTES_MAX / 16).collect();
    let message = format!(
        "{} could not download {model}: {}",
        peer.name,
        failure::redacted(peer, excerpt.trim().trim_end_matches('.'))
    );
    Failure::new(FailureCode::ProviderError, message + ".")
}

#[cfg(test)]
mod tests;
