//! One attempt at a model of this computer: ask its process, read, decode. A sibling of the attempt over HTTP.
//!
//! Invariant: the same three silences and no total. Connecting is the start of a process until it says something; any
//! byte restarts the others. Dropping the future stops the writing at once, and the model stays loaded; a process that
//! fell silent is ended, for nobody can tell what it is at.

use std::{
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use protocol::{
    Provider, Timings,
    model_process::{Ask, Load, Made, Offered, Order, Role, Told},
};
use tokio::{io::AsyncReadExt, sync::mpsc};

use super::{
    Children, Decoder,
    child::{Child, Ended},
    children::kept_for,
    file_of, words,
};
use crate::{
    Harness,
    clock::Clock,
    gate::gate,
    gateway::{
        AttemptError, CallMade, Limits, Message, ModelEvent, ModelRequest, StepEnd,
        answer::Wants,
        attempt::{emit, is_content, millis},
        failure,
        fault::Fault,
        peer::Peer,
    },
    gguf::{self, NotAModel},
    mutant::mutated,
};

/// One read; as much as a pipe holds.
const READ_BYTES: usize = 64 * 1024;
/// For the status of a process whose streams are closed already.
const STATUS_WAIT: Duration = Duration::from_secs(2);

/// What goes to the process for a request.
pub(super) fn load_of(provider: &Provider, request: &ModelRequest) -> Load {
    Load {
        file: file_of(provider, &request.model).display().to_string(),
        num_ctx: request.options.num_ctx,
        threads: request.options.threads,
        gpu_layers: request.options.gpu_layers,
    }
}

/// The request in the words of the process.
pub(super) fn encode(request: &ModelRequest, ask: u64) -> Ask {
    let tools = request.tools.iter().map(|tool| Offered {
        name: tool.name.clone(),
        description: tool.description.clone(),
        parameters: tool.parameters.clone(),
    });
    Ask {
        ask,
        messages: request
            .messages
            .iter()
            .filter_map(|said| told(request, said))
            .collect(),
        tools: tools.collect(),
        options: request.options.clone(),
    }
}

fn told(request: &ModelRequest, message: &Message) -> Option<Told> {
    let said = |role, content: &str| Told {
        role,
        content: content.to_owned(),
        tool_calls: Vec::new(),
        name: None,
        tool_call_id: None,
    };
    Some(match message {
        Message::System { text } => said(Role::System, text),
        // Nobody shows it any: it is known to see none. What is said of them stays.
        Message::User { text, images } => said(Role::User, &request.shown(text, images).1),
        Message::Assistant { text, calls, .. } => {
            if text.is_empty() && calls.is_empty() {
                return None;
            }
            Told {
                tool_calls: calls.iter().map(made).collect(),
                ..said(Role::Assistant, text)
            }
        }
        Message::ToolResult {
            call_id,
            name,
            text,
        } => Told {
            name: Some(name.clone()),
            tool_call_id: Some(call_id.clone()),
            ..said(Role::Tool, text)
        },
    })
}

fn made(call: &CallMade) -> Made {
    Made {
        id: call.call_id.clone(),
        name: call.name.clone(),
        arguments: call.arguments.clone(),
    }
}

/// An ask that is under way. Dropping it before its end stops the writing.
struct Asking {
    child: Arc<Child>,
    ask: u64,
    is_over: bool,
    harness: Harness,
}

impl Drop for Asking {
    fn drop(&mut self) {
        if !self.is_over && !mutated!(self.harness, LocalWritesOn) {
            self.child.order(&Order::Stop { ask: self.ask });
        }
    }
}

/// Why reading ended before the answer did.
enum Quiet {
    Connecting,
    Beginning(Duration),
    Midway(Duration),
}

/// What can be known of a file before it is loaded. Of one that is not there its process says so.
async fn is_usable(file: &Path, harness: &Harness) -> Result<(), AttemptError> {
    let (path, harness) = (file.to_owned(), harness.clone());
    let look = tokio::task::spawn_blocking(move || gguf::look(&path, &harness));
    match look.await {
        Ok(Err(why)) if why != NotAModel::Missing => Err(words::unusable(file, &why)),
        Ok(Ok(_) | Err(_)) => Ok(()),
        Err(error) => {
            // Loading it tells, too.
            tracing::error!(%error, "a look at a model's file was lost");
            Ok(())
        }
    }
}

/// Runs it to its end.
pub(in crate::gateway) async fn run(
    children: &Children,
    clock: &dyn Clock,
    (provider, request): (&Provider, &ModelRequest),
    limits: &Limits,
    out: &mpsc::Sender<ModelEvent>,
    harness: &Harness,
) -> Result<StepEnd, AttemptError> {
    gate!(harness, BeforeDial);
    let started = clock.monotonic();
    let since = || clock.monotonic().saturating_sub(started);
    let peer = Peer::here(provider, &request.model);
    let file = file_of(provider, &request.model);
    let keep = kept_for(request.options.keep_alive.as_deref());
    let late = || clock.sleep(limits.first_event);
    if !children.has(&file) {
        is_usable(&file, harness).await?;
    }
    let taken = tokio::select! {
        taken = children.take(file, load_of(provider, request), keep) => {
            taken.map_err(|problem| words::not_started(&problem))?
        }
        () = late() => return Err(failure::no_first_event(&peer, limits.first_event)),
    };
    let child = Arc::clone(&taken.child);
    let mut connect = None;
    let mut sent = false;
    if child.is_up.load(Ordering::Relaxed) {
        connect = Some(since());
        sent = true;
        emit(out, ModelEvent::Sent).await?;
    }
    // Whoever else is answered by it is waited for.
    let mut voice = tokio::select! {
        voice = child.voice.lock() => voice,
        () = late() => return Err(failure::no_first_event(&peer, limits.first_event)),
    };
    let ask = child.next_ask();
    let mut asking = Asking {
        child: Arc::clone(&child),
        ask,
        is_over: false,
        harness: harness.clone(),
    };
    child.order(&Order::Ask(Box::new(encode(request, ask))));

    let mut decoder = Decoder::of(ask);
    let mut bytes = vec![0; READ_BYTES];
    let mut first_content = None;
    let mut quiet = None;
    while decoder.wants() != Wants::Nothing {
        let is_up = child.is_up.load(Ordering::Relaxed);
        let (limit, reason) = match (is_up, decoder.began()) {
            (false, _) => (limits.connect, Quiet::Connecting),
            (true, false) => (limits.first_event, Quiet::Beginning(limits.first_event)),
            (true, true) => (limits.gap, Quiet::Midway(limits.gap)),
        };
        let silence = clock.sleep(limit);
        let read = tokio::select! {
            biased;
            read = voice.read(&mut bytes) => read,
            () = silence => {
                quiet = Some(reason);
                break;
            }
        };
        // A pipe that cannot be read any more has ended; why, the process says.
        let count = read.unwrap_or(0);
        let Some(came) = bytes.get(..count).filter(|came| !came.is_empty()) else {
            break;
        };
        child.is_up.store(true, Ordering::Relaxed);
        if !sent {
            sent = true;
            connect = Some(since());
            emit(out, ModelEvent::Sent).await?;
        }
        let events = decoder.feed(came);
        if decoder.has_stirred() {
            gate!(harness, Decoding);
        }
        if decoder.has_loaded() {
            child.is_loaded.store(true, Ordering::Relaxed);
        }
        for event in events {
            if first_content.is_none() && is_content(&event) {
                first_content = Some(since());
            }
            emit(out, event).await?;
        }
    }
    let was_loaded = child.is_loaded.load(Ordering::Relaxed);
    let total = since();
    let verdict = decoder.finish();
    for event in verdict.events {
        emit(out, event).await?;
    }
    if let Some(quiet) = quiet {
        // What it is at, nobody can tell; the next attempt has another one.
        child.end();
        return Err(match quiet {
            Quiet::Connecting => words::not_up(limits.connect),
            Quiet::Beginning(limit) => failure::no_first_event(&peer, limit),
            Quiet::Midway(limit) => failure::went_silent(&peer, limit),
        });
    }
    match verdict.end {
        Ok(end) => {
            asking.is_over = true;
            Ok(StepEnd {
                timings: Timings {
                    connect_ms: connect.map(millis),
                    first_content_ms: first_content.map(millis),
                    total_ms: Some(millis(total)),
                    ..end.timings
                },
                ..end
            })
        }
        Err(Fault::Truncated) => {
            drop(voice);
            let ended = tokio::select! {
                ended = child.until_ended() => ended,
                () = clock.sleep(STATUS_WAIT) => Ended::Unknown,
            };
            child.end();
            Err(words::died(&request.model, ended, was_loaded))
        }
        Err(fault) => {
            match &fault {
                // It is well, and said so itself.
                Fault::Failed(_) if was_loaded => asking.is_over = true,
                Fault::Failed(_) | Fault::Unreadable(_) | Fault::TooLong => child.end(),
                Fault::Empty | Fault::CallsMissing => asking.is_over = true,
                Fault::Truncated | Fault::Said(_) => {}
            }
            Err(failure::faulty(&peer, &fault))
        }
    }
}
