//! One attempt: dial, send, read, decode. The one loop that owns timeouts and the socket.
//!
//! Invariant: three silences, each with its own limit, and no total. Any byte of the body restarts the clock; the head
//! of the reply does not. While our own reader takes no events no silence clock runs, and nothing more is read, so
//! memory stays bounded. Dropping the future closes the socket; so does every return.

use std::time::Duration;

use futures_util::StreamExt;
use hyper_util::client::legacy::connect::HttpInfo;
use protocol::{FinishReason, Part, Provider, Timings, Usage};
use reqwest::{
    Url,
    header::{CONTENT_ENCODING, HeaderMap},
};
use tokio::sync::mpsc;

use super::{
    AttemptError, Limits, ModelEvent, Retry, StepEnd, access::authorised, answer::Wants,
    decoder::Decoder, dial::Dialer, failure, fault::Fault, peer::Peer, revival::Revival,
};
use crate::{Harness, gate::gate, mutant::mutated};

/// For the usage after a finish reason, which some proxies never send, nor the end of the connection.
const REST_WAIT: Duration = Duration::from_secs(2);

/// What goes out, and to whom.
pub(super) struct Outgoing<'a> {
    pub(super) provider: &'a Provider,
    pub(super) url: Url,
    pub(super) peer: Peer,
    pub(super) body: Vec<u8>,
}

/// Runs it to its end.
pub(super) async fn run(
    dialer: &Dialer,
    outgoing: Outgoing<'_>,
    limits: &Limits,
    out: &mpsc::Sender<ModelEvent>,
    harness: &Harness,
) -> Result<StepEnd, AttemptError> {
    gate!(harness, BeforeDial);
    let Outgoing {
        provider,
        url,
        peer,
        body,
    } = outgoing;
    let clock = dialer.clock.as_ref();
    let started = clock.monotonic();
    let since = || clock.monotonic().saturating_sub(started);
    let mut connect = None;
    let (request, mut connected) = dialer.post(&url, &peer, body)?;
    let request = authorised(request, &peer, harness)?;

    let mut revival = Revival::new(dialer, &url, &peer.access.way, harness);
    let mut sending = Box::pin(request.send());
    let (mut told, mut stands) = (false, false);
    let mut late = clock.sleep(limits.connect);
    let response = loop {
        tokio::select! {
            // A connection that stands is told before the reply it brought.
            biased;
            news = &mut connected, if !told => {
                told = true;
                // The sender is dropped unsent when the dial fails; the other branch has the reason.
                if news.is_ok() {
                    stands = true;
                    connect = Some(since());
                    emit(out, ModelEvent::Sent).await?;
                    late = clock.sleep(limits.first_event);
                }
            }
            reply = &mut sending => match reply {
                Ok(response) => break response,
                Err(problem) => {
                    let slept = if stands { revival.broke() } else { None };
                    return Err(match slept {
                        Some(slept) => failure::did_not_survive(&peer, slept, Some(&problem)),
                        None => failure::unsent(&peer, &problem),
                    });
                }
            },
            slept = revival.died(), if stands => {
                return Err(failure::did_not_survive(&peer, slept, None));
            }
            () = &mut late => {
                return Err(if stands {
                    failure::no_first_event(&peer, limits.first_event)
                } else {
                    failure::no_connection(&peer, limits.connect)
                });
            }
        }
    };
    drop(sending);
    drop(late);
    let head = since();
    gate!(harness, HeadRead);
    if !stands {
        // A reply that overtook its own request.
        emit(out, ModelEvent::Sent).await?;
    }

    if let Some(form) = compressed(response.headers())
        && !mutated!(harness, AnyEncoding)
    {
        return Err(failure::compressed(&peer, response.status(), form));
    }
    if !response.status().is_success() {
        let refusal = dialer.refusal(response, &peer).await;
        if refusal.loading {
            emit(out, ModelEvent::Loading { permille: None }).await?;
        }
        return Err(refusal.error);
    }

    revival.heard();
    revival.local = response
        .extensions()
        .get::<HttpInfo>()
        .map(|info| info.local_addr().ip());
    let mut decoder = Decoder::new(provider.dialect);
    let mut body = response.bytes_stream();
    let mut first_content = None;
    let mut rest_until = None;
    let mut broken = None;
    let mut silent = None;
    let mut died = None;
    let mut spoke = false;
    let heard_now = || mutated!(harness, GapByProgress).then(|| clock.monotonic());
    let mut heard_at = heard_now();
    loop {
        let (limit, until) = match decoder.wants() {
            Wants::Nothing => break,
            Wants::Rest => {
                let until = *rest_until.get_or_insert(clock.monotonic().saturating_add(REST_WAIT));
                (REST_WAIT, until)
            }
            Wants::More => {
                let limit = if decoder.began() || mutated!(harness, GapFromHeaders) {
                    limits.gap
                } else {
                    limits.first_event
                };
                let since = heard_at.unwrap_or_else(|| clock.monotonic());
                (limit, since.saturating_add(limit))
            }
        };
        let until = if mutated!(harness, TotalTimeout) {
            until.min(started.saturating_add(limits.first_event))
        } else {
            until
        };
        let silence = clock.sleep_until(until);
        let chunk = tokio::select! {
            biased;
            chunk = body.next() => chunk,
            slept = revival.died() => {
                died = Some(slept);
                break;
            }
            () = silence => {
                silent = match decoder.wants() {
                    Wants::Rest | Wants::Nothing => None,
                    Wants::More if decoder.began() => Some(failure::went_silent(&peer, limit)),
                    Wants::More if mutated!(harness, RetryLoad) => {
                        Some(failure::cut(&peer, None))
                    }
                    Wants::More => Some(failure::no_first_event(&peer, limit)),
                };
                break;
            }
        };
        match chunk {
            Some(Ok(bytes)) => {
                heard_at = heard_now();
                revival.heard();
                gate!(harness, Decoding);
                let bytes = if mutated!(harness, LinePerChunk) {
                    [&bytes, &b"\n"[..]].concat().into()
                } else {
                    bytes
                };
                for event in decoder.feed(&bytes) {
                    spoke |= is_answer(&event);
                    if first_content.is_none() && is_content(&event) {
                        first_content = Some(since());
                    }
                    emit(out, event).await?;
                }
            }
            Some(Err(problem)) => {
                broken = Some(problem);
                break;
            }
            None => break,
        }
    }
    // Nothing more is wanted: closed here, not when our reader has taken the last events.
    drop(body);
    let total = since();

    let mut verdict = decoder.finish();
    for event in verdict.events {
        spoke |= is_answer(&event);
        emit(out, event).await?;
    }
    if let Some(silent) = silent {
        // What had been held back is out; what is missing does not come any more.
        return Err(silent);
    }
    let passes = match &verdict.end {
        Err(Fault::Said(_)) => mutated!(harness, IgnoreErrorLine),
        Err(Fault::Unreadable(_)) => mutated!(harness, SkipUnreadable),
        Err(Fault::Truncated) => mutated!(harness, EofIsDone),
        Err(Fault::TooLong | Fault::Empty | Fault::CallsMissing | Fault::Failed(_)) | Ok(_) => {
            false
        }
    };
    if passes {
        verdict.end = Ok(StepEnd {
            finish: FinishReason::Stop,
            usage: Usage::default(),
            timings: Timings::default(),
            unseen_images: 0,
            untold_tools: 0,
        });
    }
    if mutated!(harness, TextOnly) && !spoke {
        verdict.end = Err(Fault::Empty);
    }
    match verdict.end {
        Ok(mut end) => {
            if mutated!(harness, HideLimit) && end.finish == FinishReason::Length {
                end.finish = FinishReason::Stop;
            }
            end.timings = Timings {
                // A reply that overtook its own request says when the connection stood at the latest.
                connect_ms: Some(millis(connect.unwrap_or(head))),
                head_ms: Some(millis(head)),
                first_content_ms: first_content.map(millis),
                total_ms: Some(millis(total)),
                ..end.timings
            };
            Ok(end)
        }
        Err(Fault::Truncated) => {
            let why = broken
                .as_ref()
                .map(|problem| problem as &(dyn std::error::Error + 'static));
            Err(match died.or_else(|| revival.broke()) {
                Some(slept) => failure::did_not_survive(&peer, slept, why),
                None => failure::cut(&peer, why),
            })
        }
        Err(fault) => Err(failure::faulty(&peer, &fault)),
    }
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn is_answer(event: &ModelEvent) -> bool {
    match event {
        ModelEvent::Text { part, .. } => *part == Part::Answer,
        ModelEvent::CallProgress { .. } | ModelEvent::Call { .. } | ModelEvent::CallCut { .. } => {
            true
        }
        ModelEvent::Sent
        | ModelEvent::Loading { .. }
        | ModelEvent::ReadingPrompt { .. }
        | ModelEvent::FoundReasoning
        | ModelEvent::Verbatim { .. } => false,
    }
}

pub(super) fn is_content(event: &ModelEvent) -> bool {
    match event {
        ModelEvent::Text { .. }
        | ModelEvent::FoundReasoning
        | ModelEvent::CallProgress { .. }
        | ModelEvent::Call { .. }
        | ModelEvent::CallCut { .. } => true,
        ModelEvent::Sent
        | ModelEvent::Loading { .. }
        | ModelEvent::ReadingPrompt { .. }
        | ModelEvent::Verbatim { .. } => false,
    }
}

/// Waits for the reader: its pace is ours.
pub(super) async fn emit(
    out: &mpsc::Sender<ModelEvent>,
    event: ModelEvent,
) -> Result<(), AttemptError> {
    out.send(event).await.map_err(|_| AttemptError {
        // Only a turn that is gone has no receiver, and a turn that is gone has recorded why.
        failure: protocol::Failure::new(
            protocol::FailureCode::Aborted,
            "The turn went away while its answer was being read.",
        ),
        retry: Retry::Never,
    })
}

/// In which form a body comes that nobody asked to be squeezed.
fn compressed(headers: &HeaderMap) -> Option<&str> {
    let form = headers.get(CONTENT_ENCODING)?.to_str().ok()?.trim();
    (!form.is_empty() && !form.eq_ignore_ascii_case("identity")).then_some(form)
}
