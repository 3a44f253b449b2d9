//! What happens in the library, told to whoever has no window to see it in: the tray, and a notification.
//!
//! Invariant: the end of a turn is told at most once, and only if nobody looked. Kept by: the library is followed like a
//! page follows it, by a cursor, so that every event is seen once; whether somebody looks is asked when it is.

use std::{sync::Arc, time::Duration};

use engine::Engine;
use protocol::{
    Admission, AttachReason, Cursor, ErrorCode, ErrorReport, Event, EventBody, OutcomeKind,
    PROTOCOL, Page, PageId, PollRequest, SessionId, SessionSummary, StreamId, TurnId, TurnView,
};
use tauri::{AppHandle, Manager};
use tokio::sync::watch;

use crate::door::Door;

use super::{
    choices::Choices,
    goings::{self, Goings, Notice},
    lookout::Lookout,
    notifier::Notifier,
    show_goings,
};

/// The engine's name for what follows here; no window is called so.
const LABEL: &str = "shell";

const POLL_WAIT_MS: u32 = 8_000;
const POLL_BYTES_MAX: u32 = 256 * 1024;

/// After an answer that should not have been; the engine is in this process, so it is a matter of its disk.
const PAUSE: Duration = Duration::from_secs(2);

/// What goes on, as far as it was told. Nothing while no engine is followed.
#[derive(Default)]
pub(super) struct News {
    goings: watch::Sender<Goings>,
}

impl News {
    /// What goes on.
    pub(super) fn now(&self) -> Goings {
        self.goings.borrow().clone()
    }

    /// Ready when nothing goes on, and all that went on was told. Cancel safe.
    pub(super) async fn until_quiet(&self) {
        let mut goings = self.goings.subscribe();
        // The sender lives as long as `self`.
        let _ = goings.wait_for(Goings::is_quiet).await;
    }
}

/// What is told of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// A turn ended, and that is news.
    End(SessionId, TurnId, OutcomeKind),
    /// A turn waits for a word.
    Question(SessionId),
    /// Nothing, but the tray shows something else now.
    Change,
    /// Nothing.
    Nothing,
}

fn told(body: &EventBody) -> Told {
    match body {
        EventBody::SessionTurnEnded {
            session,
            turn,
            outcome,
            unread,
        } => match (outcome, unread) {
            (OutcomeKind::Completed | OutcomeKind::Failed, true) => {
                Told::End(*session, *turn, *outcome)
            }
            (OutcomeKind::Completed | OutcomeKind::Failed, false)
            | (OutcomeKind::Cancelled | OutcomeKind::Interrupted, _) => Told::Change,
        },
        EventBody::SessionAsked { session, .. } => Told::Question(*session),
        EventBody::SessionTurnStarted { .. }
        | EventBody::SessionAnswered { .. }
        | EventBody::SessionRestored { .. }
        | EventBody::SessionTitled { .. }
        | EventBody::ModelPullStarted { .. }
        | EventBody::ModelPullEnded { .. }
        | EventBody::SessionSeen { .. }
        | EventBody::SessionBinned { .. }
        | EventBody::SessionUnbinned { .. } => Told::Change,
        EventBody::SessionListed { .. }
        | EventBody::ComputerSlept { .. }
        | EventBody::ProviderAdded { .. }
        | EventBody::ProviderChanged { .. }
        | EventBody::ProviderRemoved { .. }
        | EventBody::TimeLimitsChanged { .. }
        | EventBody::FallbacksChosen { .. }
        | EventBody::ModelOptionsChanged { .. }
        | EventBody::PricesChosen { .. }
        | EventBody::LogSalvaged { .. }
        | EventBody::SessionStarted { .. }
        | EventBody::SessionRenamed { .. }
        | EventBody::ModelChosen { .. }
        | EventBody::FolderChosen { .. }
        | EventBody::OptionsChosen { .. }
        | EventBody::UserMessageAdded { .. }
        | EventBody::TurnStarted { .. }
        | EventBody::StepStarted { .. }
        | EventBody::TextAppended { .. }
        | EventBody::TextFoundReasoning { .. }
        | EventBody::ToolCallRequested { .. }
        | EventBody::ApprovalRequested { .. }
        | EventBody::ApprovalResolved { .. }
        | EventBody::ToolCallStarted { .. }
        | EventBody::ToolCallFinished { .. }
        | EventBody::StepEnded { .. }
        | EventBody::AttemptFailed { .. }
        | EventBody::HistoryCompacted { .. }
        | EventBody::TurnEnded { .. }
        | EventBody::HistoryRewound { .. }
        | EventBody::HistoryRestored { .. }
        | EventBody::Unsupported { .. } => Told::Nothing,
    }
}

/// Follows every engine that this process opens, for as long as it lives.
pub(super) async fn follow(app: AppHandle) {
    let door = Arc::clone(&app.state::<Arc<Door>>());
    let mut cursor = None;
    while let Some(engine) = door.until_open().await {
        let page = engine.mint_page();
        let Err(error) = follow_as(&app, &engine, page, &mut cursor).await;
        if error.code == ErrorCode::ShuttingDown {
            break;
        }
        tracing::debug!(code = ?error.code, "the library is followed anew");
        tokio::time::sleep(PAUSE).await;
    }
    app.state::<News>().goings.send_replace(Goings::default());
}

async fn follow_as(
    app: &AppHandle,
    engine: &Engine,
    page: PageId,
    cursor: &mut Option<Cursor>,
) -> Result<std::convert::Infallible, ErrorReport> {
    engine.hello(LABEL, page, PROTOCOL)?;
    let why = AttachReason::default();
    let attached = engine.attach(page, StreamId::Library, *cursor, why).await?;
    let mut after = match (&attached.page, *cursor) {
        (Some(Page::Library(library)), _) => library.as_of,
        (Some(Page::Session(_)) | None, Some(cursor)) => cursor,
        (Some(Page::Session(_)) | None, None) => attached.head,
    };
    refresh(app, engine).await?;
    *cursor = Some(after);
    loop {
        let request = PollRequest {
            epoch: attached.epoch,
            after,
            seen_status: 0,
            wait_ms: POLL_WAIT_MS,
            max_bytes: POLL_BYTES_MAX,
        };
        let batch = engine.poll(request).await?;
        let mut changed = false;
        for event in &batch.events {
            match after.admits(event.seq) {
                Admission::Next => after = after.advanced_to(event.seq),
                Admission::Seen => continue,
                // Cannot be within one process; the next attachment goes on from the cursor.
                Admission::Gap => {
                    let words = "events of the library were left out";
                    return Err(ErrorReport::new(ErrorCode::Other, words));
                }
            }
            // Before it is told: once more is worse than not at all.
            *cursor = Some(after);
            changed |= told(&event.body) != Told::Nothing;
            tell(app, engine, event).await;
        }
        if changed {
            refresh(app, engine).await?;
        }
    }
}

async fn refresh(app: &AppHandle, engine: &Engine) -> Result<(), ErrorReport> {
    let goings = Goings::of(&engine.library().await?, engine.boot());
    app.state::<News>().goings.send_replace(goings);
    show_goings(app);
    Ok(())
}

async fn tell(app: &AppHandle, engine: &Engine, event: &Event) {
    let session = match told(&event.body) {
        Told::End(session, ..) | Told::Question(session) => session,
        Told::Change | Told::Nothing => return,
    };
    let is_wanted = app.state::<Arc<Choices>>().now().notify;
    // Whoever looks has it before their eyes; that it was seen is in the log a moment later.
    if !is_wanted || app.state::<Arc<Lookout>>().is_looked_at(session) {
        return;
    }
    let Some(notice) = notice(engine, &event.body).await else {
        return;
    };
    let notifier = Arc::clone(&app.state::<Arc<Notifier>>());
    // Before it is known that nothing goes on: a process without a window stays for the click.
    notifier.announce();
    let asked = app.run_on_main_thread(move || notifier.show(&notice));
    if let Err(error) = asked {
        tracing::debug!(%error, "a notification was not shown: the process is leaving");
    }
}

/// The words for it; nothing for an end that somebody has seen meanwhile.
async fn notice(engine: &Engine, body: &EventBody) -> Option<Notice> {
    match told(body) {
        Told::End(session, turn, outcome) => {
            let summary = summary(engine, session).await;
            if summary.as_ref().is_some_and(|s| is_seen(s, turn)) {
                return None;
            }
            match ended(engine, session, turn).await {
                Some((title, turn)) => goings::of_the_end(session, &title, &turn),
                None => goings::of_an_end(session, &title(summary), outcome),
            }
        }
        Told::Question(session) => {
            let title = title(summary(engine, session).await);
            Some(goings::of_a_question(session, &title))
        }
        Told::Change | Told::Nothing => None,
    }
}

/// Whether the end of this turn is no news any more.
fn is_seen(summary: &SessionSummary, turn: TurnId) -> bool {
    summary.unread.is_none_or(|unread| unread < turn)
}

/// The turn, and its session's title; nothing if it is not part of the conversation any more, or cannot be read.
async fn ended(engine: &Engine, session: SessionId, turn: TurnId) -> Option<(String, TurnView)> {
    let as_of = Cursor::at_start(engine.log_id());
    let page = engine.load_older(session, turn.next(), as_of).await.ok()?;
    let view = page.turns.into_iter().find(|view| view.turn == turn)?;
    Some((page.title, view))
}

/// The session as the list has it; nothing if that cannot be read.
async fn summary(engine: &Engine, session: SessionId) -> Option<SessionSummary> {
    let library = engine.library().await;
    let sessions = library.map(|library| library.sessions).unwrap_or_default();
    sessions.into_iter().find(|s| s.session == session)
}

/// A title that cannot be read costs the title.
fn title(summary: Option<SessionSummary>) -> String {
    summary.map(|summary| summary.title).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_and_questions_are_told_and_a_start_only_changes_the_tray() {
        let (session, turn) = (SessionId::from_bits(1), TurnId::FIRST);
        let outcome = OutcomeKind::Failed;
        let ended = EventBody::SessionTurnEnded {
            session,
            turn,
            outcome,
            unread: true,
        };
        assert_eq!(told(&ended), Told::End(session, turn, outcome));
        // What is no news in the list is none here.
        for (outcome, unread) in [
            (OutcomeKind::Failed, false),
            (OutcomeKind::Cancelled, false),
            (OutcomeKind::Interrupted, true),
        ] {
            let ended = EventBody::SessionTurnEnded {
                session,
                turn,
                outcome,
                unread,
            };
            assert_eq!(told(&ended), Told::Change, "{outcome:?} {unread}");
        }
        let asked = EventBody::SessionAsked { session, turn };
        assert_eq!(told(&asked), Told::Question(session));
        let answered = EventBody::SessionAnswered { session, turn };
        assert_eq!(told(&answered), Told::Change);
        // What was seen is not new any more, nor is what is in the bin.
        let seen = EventBody::SessionSeen { session, turn };
        assert_eq!(told(&seen), Told::Change);
        let binned = EventBody::SessionBinned { session };
        assert_eq!(told(&binned), Told::Change);
    }

    #[test]
    fn an_end_is_news_until_it_or_a_later_one_was_seen() {
        let at = protocol::Timestamp::from_millis(1);
        let summary = |unread: Option<u64>| SessionSummary {
            session: SessionId::from_bits(1),
            title: String::new(),
            origin: protocol::Origin::Conversation,
            created_at: at,
            active_at: at,
            state: protocol::SessionState::Empty,
            unread: unread.map(TurnId::new),
            place: protocol::Place::Shelf,
        };
        let seen = |unread| is_seen(&summary(unread), TurnId::new(2));
        assert_eq!([seen(Some(2)), seen(Some(3))], [false, false]);
        assert_eq!([seen(Some(1)), seen(None)], [true, true]);
    }
}
