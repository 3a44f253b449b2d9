//! `list`, `show` and `events`: what is stored, read.
//!
//! If no process has the database, it is opened once for its recovery: a turn that a kill cut off is shown as what it is.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use engine::{Config, Engine, OpenError, ReadError, Reader};
use protocol::{
    ApprovalView, AttemptState, Event, InterruptedWhy, ItemBody, ItemView, MessagePurpose, Part,
    Place, SessionId, StreamId, ToolState, TranscriptPage, TurnView,
};
use serde::Serialize;

use crate::arguments::{Format, Scope};

use super::{Exit, complain, health, lookup, print, question, shape, words};

/// Events are read so many at a time; a session's log may be longer than memory is meant for.
const EVENTS_MAX: usize = 1_000;

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unread {
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

pub(super) fn ended(outcome: Result<(), Unread>) -> Exit {
    match outcome {
        Ok(()) => Exit::Done,
        Err(error) => complain(error, Exit::Failed),
    }
}

/// The session that is meant, and what reads it.
///
/// # Errors
/// [`Unread`], in words.
pub(super) async fn found(
    data_dir: Option<PathBuf>,
    word: &str,
) -> Result<(Reader, SessionId), Unread> {
    let Some(data_dir) = data_dir else {
        return Err(lookup::NoSession::NoneAtAll.into());
    };
    let reader = reader(&data_dir).await?;
    let session = lookup::session(&reader.library()?, word)?.session;
    Ok((reader, session))
}

/// Reading needs no lock; recovery does, and is done if nobody else has it.
pub(super) async fn reader(data_dir: &Path) -> Result<Reader, Unread> {
    let config = Config {
        lock_wait: engine::READ_LOCK_WAIT,
        ..Config::new(data_dir)
    };
    let refused = match Engine::open(config).await {
        Ok(engine) => {
            health::tell_of_salvage(&engine);
            engine.shutdown(InterruptedWhy::AppExit).await;
            None
        }
        Err(error) => {
            tracing::debug!(%error, "read without recovery");
            Some(error)
        }
    };
    let refused = refused.filter(|error| !matches!(error, OpenError::InUse { .. }));
    match (Reader::open(data_dir), refused) {
        (Ok(reader), Some(error)) => {
            let words = format!("turns that were cut off are shown as running: {error}");
            print::Margin::of_this_process().say(words);
            Ok(reader)
        }
        (Ok(reader), None) => Ok(reader),
        // What keeps both from opening is best told by the one that was to write.
        (Err(_), Some(first)) => Err(first.into()),
        (Err(error), None) => Err(error.into()),
    }
}

pub(super) fn json(value: &impl Serialize) -> serde_json::Result<String> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    Ok(text)
}

fn line_of(session: &protocol::SessionSummary) -> String {
    let id = session.session.to_string();
    let note = match session.place {
        Place::Shelf if session.unread.is_some() => "  (not seen yet)",
        Place::Shelf => "",
        Place::Bin => "  (in the bin)",
    };
    format!(
        "{}  {}  {:<11}  {}{note}\n",
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
        for attempt in &turn.attempts {
            if let AttemptState::Ended {
                unread,
                unseen_images,
                untold_tools,
                ..
            } = &attempt.state
            {
                for line in
                    engine::words::shortfalls(unread.as_ref(), *unseen_images, *untold_tools)
                {
                    text.push_str(&format!("-- {line}\n"));
                }
            }
        }
        for slept in &turn.slept {
            text.push_str(&format!("-- {}\n", words::slept(slept)));
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
        ItemBody::UserMessage {
            text: said,
            purpose,
            images,
            ..
        } => match purpose {
            MessagePurpose::Said => {
                let shown: String = images
                    .iter()
                    .map(|image| format!("[{}]\n", words::image(image)))
                    .collect();
                writeln!(text, "You, {}\n{shown}{said}\n", words::time(item.began_at))
            }
            // What the model is told then are not the user's words.
            MessagePurpose::Continue { .. } => {
                writeln!(text, "(continued, {})\n", words::time(item.began_at))
            }
        },
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
            approval,
            ..
        } => {
            if let Some(approval) = approval {
                text.push_str(&asked(name, approval));
            }
            writeln!(text, "[{name} {arguments}: {}]\n", tool_state(state))
        }
        ItemBody::Compacted {
            through,
            summary,
            set_aside,
        } => {
            let what = words::compacted(set_aside.len());
            let summed_up = match through {
                Some(through) => format!(" (up to turn {through}):\n{summary}"),
                None => String::new(),
            };
            writeln!(text, "[{what}]{summed_up}\n")
        }
        ItemBody::Unsupported {
            original_kind: kind,
        } => {
            writeln!(text, "[{kind}: this version of Holdfast cannot show it]\n")
        }
    };
}

/// A question and its answer.
fn asked(tool: &str, approval: &ApprovalView) -> String {
    let again = if approval.may_have_run {
        "; the same call was cut off before, and whether it took effect was not known"
    } else {
        ""
    };
    let answer = approval
        .resolution
        .map_or("waits for an answer", question::resolution);
    format!(
        "[asked: {}\n{answer}{again}]\n",
        question::intent(tool, &approval.intent)
    )
}

fn tool_state(state: &ToolState) -> String {
    match state {
        ToolState::Requested => "not run".to_owned(),
        ToolState::Running { .. } => "running".to_owned(),
        ToolState::Finished {
            outcome, effect, ..
        } => {
            let what = words::tool_outcome(outcome);
            let effect = words::effect_unknown(*effect);
            effect.map_or_else(|| what.to_owned(), |words| format!("{what}; {words}"))
        }
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

#[cfg(test)]
mod tests {
    use protocol::{
        Cursor, Effect, Intent, ItemId, LogId, ModelRef, OpId, Origin, ProviderId, Resolution,
        Timestamp, ToolOutcome, TurnId, TurnOutcome,
    };

    use super::*;

    fn page(bodies: Vec<ItemBody>) -> TranscriptPage {
        let at = Timestamp::from_millis(0);
        let items = bodies.into_iter().map(|body| ItemView {
            item: ItemId::new(2),
            began_at: at,
            changed_at: at,
            body,
        });
        TranscriptPage {
            session: SessionId::from_bits(1),
            title: "T".to_owned(),
            origin: Origin::Conversation,
            model: None,
            folder: None,
            options: protocol::ModelOptions::default(),
            turns: vec![TurnView {
                turn: TurnId::FIRST,
                model: ModelRef {
                    provider: ProviderId::from_bits(5),
                    provider_name: "Ollama".to_owned(),
                    model: "m".to_owned(),
                },
                started_at: at,
                items: items.collect(),
                attempts: vec![],
                outcome: Some(TurnOutcome::Interrupted {
                    why: InterruptedWhy::Crash,
                }),
                slept: Vec::new(),
                ended_at: None,
            }],
            more_before: false,
            taken_out: None,
            tip: None,
            as_of: Cursor::at_start(LogId::from_bits(1)),
        }
    }

    fn write(resolution: Option<Resolution>, may_have_run: bool, state: ToolState) -> ItemBody {
        ItemBody::ToolCall {
            name: "write_file".to_owned(),
            arguments: "{}".to_owned(),
            call_id: None,
            step: 1,
            state,
            approval: Some(ApprovalView {
                item: ItemId::new(2),
                intent: Intent::WriteFile {
                    path: "/home/ada/a.txt".to_owned(),
                    before: None,
                    after: 2,
                    diff: "+x\n".to_owned(),
                    diff_left_out: 0,
                },
                may_have_run,
                asked_at: Timestamp::from_millis(0),
                resolution,
            }),
        }
    }

    #[test]
    fn a_transcript_shows_what_was_asked_and_answered_and_what_is_not_known() {
        let unknown = ToolState::Finished {
            outcome: ToolOutcome::Abandoned,
            effect: Effect::Unknown,
            at: Timestamp::from_millis(0),
        };
        let text = transcript(&page(vec![
            write(Some(Resolution::AllowedOnce), true, unknown),
            write(Some(Resolution::Denied), false, ToolState::Requested),
            write(None, false, ToolState::Requested),
        ]));
        let question =
            "[asked: write_file would make a new file of 2 bytes:\n  /home/ada/a.txt\n+x\n";
        let expected = format!(
            "{question}allowed once; the same call was cut off before, and whether it took effect was not known]\n\
             [write_file {{}}: abandoned; whether it took effect is not known]\n\n\
             {question}not allowed]\n[write_file {{}}: not run]\n\n\
             {question}waits for an answer]\n[write_file {{}}: not run]\n\n"
        );
        assert!(text.contains(&expected), "{text}");
    }

    #[test]
    fn a_transcript_shows_continue_and_compaction_as_holdfasts_doing() {
        let text = transcript(&page(vec![
            ItemBody::UserMessage {
                text: "Please go on.".to_owned(),
                op: OpId::from_bits(1),
                purpose: MessagePurpose::Continue { of: TurnId::FIRST },
                images: Vec::new(),
            },
            ItemBody::Compacted {
                through: Some(TurnId::FIRST),
                summary: "They spoke of kelp.".to_owned(),
                set_aside: vec![ItemId::new(9)],
            },
        ]));
        assert!(
            text.contains("(continued, 1970-01-01 00:00 UTC)\n\n[the conversation had outgrown"),
            "{text}"
        );
        assert!(
            text.contains("one tool's result is left out; nothing was deleted] (up to turn 1):\nThey spoke of kelp.\n"),
            "{text}"
        );
        assert!(
            !text.contains("You") && !text.contains("Please go on"),
            "{text}"
        );
    }
}
