//! `list`, `show` and `events`: what is stored, read.
//!
//! If no process has the database, it is opened once for its recovery: a turn that a kill cut off is shown as what it is.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use engine::{Config, Engine, OpenError, ReadError, Reader};
use protocol::{
    Event, InterruptedWhy, ItemBody, ItemView, Part, Place, SessionId, StreamId, ToolOutcome,
    ToolState, TranscriptPage, TurnView,
};
use serde::Serialize;

use crate::arguments::{Format, Scope};

use super::{Exit, complain, lookup, print, shape, words};

/// Events are read so many at a time; a session's log may be longer than memory is meant for.
const EVENTS_MAX: usize = 1_000;

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
enum Unread {
    #[error(transparent)]
    NotOpened(#[from] OpenError),
    #[error(transparent)]
    Session(#[from] lookup::NoSession),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("the output could not be made: {0}")]
    Shape(#[from] serde_json::Error),
    #[error("the output could not be printed: {0}")]
    Print(#[from] std::io::Error),
}

/// Prints what sessions there are, newest first.
pub(crate) async fn list(data_dir: Option<PathBuf>, format: Format, scope: Scope) -> Exit {
    let listed = async {
        let mut sessions = match data_dir {
            Some(data_dir) => reader(&data_dir).await?.library()?.sessions,
            None => Vec::new(),
        };
        sessions.retain(|session| match (scope, session.place) {
            (Scope::Everything, _) | (Scope::Shelf, Place::Shelf) => true,
            (Scope::Shelf, Place::Bin) => false,
        });
        sessions.sort_by_key(|session| std::cmp::Reverse((session.active_at, session.session)));
        let text = match format {
            Format::Json => json(&sessions.iter().map(shape::Listed::from).collect::<Vec<_>>())?,
            Format::Text => sessions.iter().map(line_of).collect(),
        };
        print::put(&text)?;
        Ok(())
    };
    ended(listed.await)
}

/// Prints a session's transcript.
pub(crate) async fn show(data_dir: Option<PathBuf>, word: &str, format: Format) -> Exit {
    let shown = async {
        let (reader, session) = found(data_dir, word).await?;
        let page = reader.transcript(session)?;
        let text = match format {
            Format::Json => json(&shape::Shown::from(&page))?,
            Format::Text => transcript(&page),
        };
        print::put(&text)?;
        Ok(())
    };
    ended(shown.await)
}

/// Prints a session's log, one event a line.
pub(crate) async fn events(data_dir: Option<PathBuf>, word: &str, format: Format) -> Exit {
    let printed = async {
        let (reader, session) = found(data_dir, word).await?;
        let stream = StreamId::Session(session);
        let mut after = None;
        loop {
            let events = reader.events(stream, after, EVENTS_MAX)?;
            let Some(last) = events.last() else {
                return Ok(());
            };
            after = Some(last.seq);
            let mut text = String::new();
            for event in &events {
                text.push_str(&event_line(stream, event, format)?);
                text.push('\n');
            }
            match print::put(&text)? {
                print::Listener::There => {}
                print::Listener::Gone => return Ok(()),
            }
        }
    };
    ended(printed.await)
}

fn ended(outcome: Result<(), Unread>) -> Exit {
    match outcome {
        Ok(()) => Exit::Done,
        Err(error) => complain(error, Exit::Failed),
    }
}

async fn found(data_dir: Option<PathBuf>, word: &str) -> Result<(Reader, SessionId), Unread> {
    let Some(data_dir) = data_dir else {
        return Err(lookup::NoSession::NoneAtAll.into());
    };
    let reader = reader(&data_dir).await?;
    let session = lookup::session(&reader.library()?, word)?.session;
    Ok((reader, session))
}

/// Reading needs no lock; recovery does, and is done if nobody else has it.
async fn reader(data_dir: &Path) -> Result<Reader, Unread> {
    let config = Config {
        lock_wait: engine::READ_LOCK_WAIT,
        ..Config::new(data_dir)
    };
    let refused = match Engine::open(config).await {
        Ok(engine) => {
            engine.shutdown(InterruptedWhy::AppExit).await;
            None
        }
        Err(error) => {
            tracing::debug!(%error, "read without recovery");
            Some(error)
        }
    };
    Reader::open(data_dir).map_err(|error| match refused {
        // What keeps both from opening is best told by the one that was to write.
        Some(first) if !matches!(first, OpenError::InUse { .. }) => first.into(),
        Some(_) | None => error.into(),
    })
}

fn json(value: &impl Serialize) -> serde_json::Result<String> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    Ok(text)
}

fn line_of(session: &protocol::SessionSummary) -> String {
    let id = session.session.to_string();
    let bin = match session.place {
        Place::Shelf => "",
        Place::Bin => "  (in the bin)",
    };
    format!(
        "{}  {}  {:<11}  {}{bin}\n",
        id.get(..8).unwrap_or(&id),
        words::time(session.active_at),
        words::state(session.state),
        print::for_stdout(&session.title.replace('\n', " ")),
    )
}

fn transcript(page: &TranscriptPage) -> String {
    let mut text = format!(
        "{}\nsession {} · {}\n",
        page.title,
        page.session,
        shape::state(page)
    );
    for turn in &page.turns {
        text.push('\n');
        for item in &turn.items {
            paragraph(&mut text, turn, item);
        }
        if let Some(words) = turn.outcome.as_ref().and_then(words::outcome) {
            text.push_str(&format!("-- {words}\n"));
        } else if turn.outcome.is_none() {
            text.push_str("-- this turn is running\n");
        }
    }
    print::for_stdout(&text).into_owned()
}

fn paragraph(text: &mut String, turn: &TurnView, item: &ItemView) {
    // Writing to a string does not fail.
    let _ = match &item.body {
        ItemBody::UserMessage { text: said, .. } => {
            writeln!(text, "You, {}\n{said}\n", words::time(item.began_at))
        }
        ItemBody::Text {
            part: Part::Answer,
            text: said,
            ..
        } => writeln!(text, "{}\n{said}\n", words::model(&turn.model)),
        ItemBody::Text {
            part: Part::Reasoning,
            ..
        } => {
            let ms = item.changed_at.millis_since(item.began_at);
            writeln!(text, "(thought for {})\n", words::duration(ms))
        }
        ItemBody::ToolCall {
            name,
            arguments,
            state,
            ..
        } => writeln!(text, "[{name} {arguments}: {}]\n", tool_state(state)),
        ItemBody::Compacted {
            summary, set_aside, ..
        } => writeln!(
            text,
            "[the model goes on from a summary; {} results left out]\n{summary}\n",
            set_aside.len()
        ),
        ItemBody::Unsupported {
            original_kind: kind,
        } => {
            writeln!(text, "[{kind}: this version of Holdfast cannot show it]\n")
        }
    };
}

fn tool_state(state: &ToolState) -> &'static str {
    match state {
        ToolState::Requested => "not run",
        ToolState::Running { .. } => "running",
        ToolState::Finished { outcome, .. } => tool_outcome(outcome),
    }
}

fn event_line(stream: StreamId, event: &Event, format: Format) -> serde_json::Result<String> {
    match format {
        Format::Json => Ok(shape::event(stream, event)?.to_string()),
        Format::Text => {
            let turn = event
                .turn
                .map_or_else(String::new, |turn| format!("turn {turn}"));
            let mut body = serde_json::to_value(&event.body)?;
            if let Some(fields) = body.as_object_mut() {
                fields.remove("kind");
            }
            let line = format!(
                "{:>6}  {}  {turn:<8}  {:<18}  {body}",
                event.seq.get(),
                words::time(event.at),
                event.body.kind(),
            );
            Ok(print::for_stdout(&line).into_owned())
        }
    }
}

const fn tool_outcome(outcome: &ToolOutcome) -> &'static str {
    match outcome {
        ToolOutcome::Succeeded { .. } => "ok",
        ToolOutcome::Failed { .. } => "failed",
        ToolOutcome::Denied => "denied",
        ToolOutcome::NotRun { .. } => "not run",
        ToolOutcome::Abandoned => "abandoned",
    }
}
