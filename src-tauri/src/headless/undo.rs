//! `undo`: what a retry or an edit took out of a conversation comes back, in place of what took its place.
//!
//! Invariant: it is decided on the conversation that was read, and refused if that has changed since. Nothing is deleted,
//! so an undo is undone the same way, and what else could come back is said.

use std::path::PathBuf;

use engine::{Config, Engine, OpenError};
use protocol::{
    AttachReason, ErrorReport, InterruptedWhy, ItemBody, Op, PROTOCOL, Page, PageId, SessionId,
    StreamId, TranscriptPage, TurnId, TurnVersions, TurnView,
};

use super::{
    Exit, complain, health,
    lookup::{self, NoSession},
    print::Margin,
    question,
};

/// The window's label, as far as the engine is concerned.
const LABEL: &str = "undo";

/// So much of a message is enough to know it by.
const MESSAGE_CHARS_MAX: usize = 60;

/// Why nothing came back.
#[derive(Debug, thiserror::Error)]
enum NotUndone {
    #[error(transparent)]
    NotOpened(#[from] OpenError),
    #[error(transparent)]
    Session(#[from] NoSession),
    #[error(transparent)]
    Engine(#[from] ErrorReport),
    #[error("session {0} could not be read as a whole; try again")]
    Unread(SessionId),
    #[error(
        "nothing was ever taken out of session {0} by a retry or an edit, so nothing can come back"
    )]
    Nothing(SessionId),
}

/// Brings back what was taken out last, or the version of the conversation that has `turn`.
pub(crate) async fn undo(data_dir: Option<PathBuf>, word: &str, turn: Option<TurnId>) -> Exit {
    let undone = async {
        let data_dir = data_dir.ok_or(NoSession::NoneAtAll)?;
        let engine = Engine::open(Config::new(data_dir)).await?;
        health::tell_of_salvage(&engine);
        let told = brought_back(&engine, word, turn).await;
        engine.shutdown(InterruptedWhy::AppExit).await;
        told
    };
    match undone.await {
        Ok(told) => {
            let margin = Margin::of_this_process();
            for line in told {
                margin.say(question::harmless_line(&line));
            }
            Exit::Done
        }
        Err::<_, NotUndone>(error) => complain(error, Exit::Failed),
    }
}

/// Says what the conversation is now.
async fn brought_back(
    engine: &Engine,
    word: &str,
    turn: Option<TurnId>,
) -> Result<Vec<String>, NotUndone> {
    let library = engine.library().await?;
    let session = lookup::session(&library, word)?.session;
    let page = engine.mint_page();
    engine.hello(LABEL, page, PROTOCOL)?;
    let before = transcript(engine, page, session).await?;
    let (taken_out, expected_tip) = before
        .taken_out
        .zip(before.tip)
        .ok_or(NotUndone::Nothing(session))?;
    let op = Op::RestoreTurn {
        session,
        turn: turn.unwrap_or(taken_out),
        expected_tip,
    };
    engine.submit(engine.mint_op(), op).await?;
    let now = transcript(engine, page, session).await?;
    let versions = engine.versions(session).await?;
    Ok(told(&now, &versions))
}

async fn transcript(
    engine: &Engine,
    page: PageId,
    session: SessionId,
) -> Result<TranscriptPage, NotUndone> {
    let stream = StreamId::Session(session);
    let attached = engine
        .attach(page, stream, None, AttachReason::Open)
        .await?;
    match attached.page {
        Some(Page::Session(page)) => Ok(page),
        Some(Page::Library(_)) | None => Err(NotUndone::Unread(session)),
    }
}

fn told(now: &TranscriptPage, versions: &[TurnVersions]) -> Vec<String> {
    let session = now.session;
    let mut lines = vec![format!("session {session}")];
    if let Some(last) = now.turns.last() {
        let message = message(last).unwrap_or("nothing");
        let short: String = message.chars().take(MESSAGE_CHARS_MAX).collect();
        let more = if short.len() < message.len() {
            "…"
        } else {
            ""
        };
        lines.push(format!(
            "the earlier version is back; it ends with turn {}, “{short}{more}”",
            last.turn
        ));
    }
    let is_here = |turn: &TurnId| now.turns.iter().any(|view| view.turn == *turn);
    for place in versions {
        let others: Vec<_> = place.turns.iter().filter(|turn| !is_here(turn)).collect();
        // A place that is not part of the conversation now has no version that is.
        if others.len() == place.turns.len() && !now.more_before {
            continue;
        }
        for other in others {
            lines.push(format!(
                "`holdfast undo {session} --turn {other}` brings back the version with turn {other}"
            ));
        }
    }
    lines
}

/// What the user said, or that they asked to go on.
fn message(turn: &TurnView) -> Option<&str> {
    turn.items.iter().find_map(|item| match &item.body {
        ItemBody::UserMessage { text, .. } => Some(text.as_str()),
        ItemBody::Text { .. }
        | ItemBody::ToolCall { .. }
        | ItemBody::Compacted { .. }
        | ItemBody::Unsupported { .. } => None,
    })
}
