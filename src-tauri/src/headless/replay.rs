//! `replay`: a past conversation, or a turn of it, shown again as it happened.
//!
//! Invariant: nothing is asked, written or recovered on its behalf but what `show` does: it reads committed events and
//! prints them by the rules of `ask`, at the times the player says. No server hears of it.
//! What is not played is told: a wait that is shortened is named with its whole length.

use std::{path::PathBuf, time::Duration};

use engine::{
    Reader,
    clock::{Clock, SystemClock},
    player::{Moved, Pace, Player, Recording, Torn, Waits},
};
use protocol::{Event, EventBody, MessagePurpose, Phase, SessionId, TurnId};

use crate::{
    arguments::{Replay, Tempo},
    signals::Signals,
};

use super::{
    Exit,
    answer::{Answer, Printing},
    complain,
    keys::{Key, Keys},
    print::{self, Margin},
    question::{self, Question},
    stored::{self, Unread},
    words,
};

/// What is said to whoever goes event by event.
const STEPS: &str = "Enter or Space shows the next event, q leaves";

/// Shows it again, and says how that ended.
pub(crate) async fn replay(data_dir: Option<PathBuf>, order: Replay) -> Exit {
    let margin = Margin::of_this_process();
    let stepped = order.tempo == Some(Tempo::Step);
    if stepped && !Keys::are_there() {
        return complain(
            "--step needs somebody at the keyboard, and stdin is no terminal",
            Exit::Usage,
        );
    }
    let signals = match Signals::taken() {
        Ok(signals) => signals,
        Err(error) => return complain(format!("signals cannot be handled: {error}"), Exit::Failed),
    };
    let (reader, session) = match stored::found(data_dir, &order.session).await {
        Ok(found) => found,
        Err(error) => return complain(error, Exit::Failed),
    };
    let keys = if stepped {
        match Keys::begin() {
            Ok(keys) => {
                margin.murmur(STEPS);
                Some(keys)
            }
            Err(error) => {
                return complain(
                    format!("the terminal cannot be read: {error}"),
                    Exit::Failed,
                );
            }
        }
    } else {
        None
    };
    let mut showing = Showing {
        margin,
        tempo: order.tempo.unwrap_or_else(|| tempo(order.waits)),
        clock: SystemClock::new(),
        signals,
        keys,
    };
    match showing.show(&reader, session, &order).await {
        Ok(Ended::Whole | Ended::Left) => Exit::Done,
        Ok(Ended::Interrupted) => Exit::Stopped,
        Ok(Ended::Unprinted) => Exit::Failed,
        Err(error) => complain(error, Exit::Failed),
    }
}

/// Where nobody watches, nothing is waited for, unless that is what was asked for.
fn tempo(waits: Waits) -> Tempo {
    if print::is_stdout_watched() || waits == Waits::Exact {
        Tempo::Paced(Pace::Recorded)
    } else {
        Tempo::Max
    }
}

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
enum Unshown {
    #[error(transparent)]
    Unread(Box<Unread>),
    #[error("there is no turn {turn} in this session; `holdfast show` shows what there is")]
    NoTurn { turn: TurnId },
    #[error("the turn cannot be read: {0}")]
    Torn(#[from] Torn),
}

impl From<Unread> for Unshown {
    fn from(error: Unread) -> Self {
        Self::Unread(Box::new(error))
    }
}

/// How the showing of a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// With the turn.
    Whole,
    /// Whoever watched has seen enough, or reads no more.
    Left,
    /// By a signal.
    Interrupted,
    /// stdout takes nothing more.
    Unprinted,
}

struct Showing {
    margin: Margin,
    tempo: Tempo,
    clock: SystemClock,
    signals: Signals,
    keys: Option<Keys>,
}

/// What ends a wait.
enum Woken {
    /// It is over.
    Due,
    /// No more is wanted.
    Ended(Ended),
}

impl Showing {
    /// The turn that was named, or those that belong to the conversation, one after the other.
    async fn show(
        &mut self,
        reader: &Reader,
        session: SessionId,
        order: &Replay,
    ) -> Result<Ended, Unshown> {
        let turns = match order.turn {
            Some(turn) => vec![turn],
            None => {
                let page = reader.transcript(session).map_err(Unread::from)?;
                page.turns.iter().map(|view| view.turn).collect()
            }
        };
        let mut answer = Answer::new(self.margin, order.talk, TurnId::FIRST);
        for turn in turns {
            answer.go_on_with(turn);
            let mut player = Player::of(recorded(reader, session, turn)?);
            player.set_waits(order.waits, self.now_ms(), &mut Vec::new());
            let ended = self.play(&mut player, &mut answer).await;
            answer.end_line().await;
            match ended {
                Ended::Whole => {}
                ended @ (Ended::Left | Ended::Interrupted | Ended::Unprinted) => return Ok(ended),
            }
            if player.frame().is_some_and(|view| view.outcome.is_none()) {
                answer.aside("this turn is running".to_owned()).await;
            }
        }
        Ok(Ended::Whole)
    }

    async fn play(&mut self, player: &mut Player, answer: &mut Answer) -> Ended {
        let mut changes = Vec::new();
        if let Tempo::Paced(pace) = self.tempo {
            player.set_pace(pace, self.now_ms(), &mut changes);
            player.play(self.now_ms(), &mut changes);
            changes.clear();
        }
        let mut told = 0;
        loop {
            for event in player.shown().get(told..).unwrap_or_default() {
                tell(event, answer).await;
            }
            // What was shown is told: the words for it stand before the wait that follows.
            if player.position() > told {
                told = player.position();
                self.tell_the_place(player, answer).await;
            }
            match answer.printing {
                Printing::Goes => {}
                Printing::Unheard => return Ended::Left,
                Printing::Failed => return Ended::Unprinted,
            }
            if player.is_at_end() {
                return Ended::Whole;
            }
            match self.wait(player).await {
                Woken::Due => {}
                Woken::Ended(ended) => return ended,
            }
            let moved = match self.tempo {
                Tempo::Paced(_) => player.advance(self.now_ms(), &mut changes),
                Tempo::Max | Tempo::Step => player.step(&mut changes),
            };
            match moved {
                Moved::Nowhere | Moved::On | Moved::Anew => changes.clear(),
            }
        }
    }

    /// What the turn is doing now, and for how long nothing will happen.
    async fn tell_the_place(&self, player: &Player, answer: &mut Answer) {
        let last = player.last();
        let is_text = last.is_some_and(|event| is_text(&event.body));
        if self.tempo == Tempo::Step && !is_text {
            let kind = last.map_or("", |event| event.body.kind());
            let place = format!("event {} of {}: {kind}", player.position(), player.events());
            answer.aside(place).await;
        }
        let phase = player.phase();
        match phase {
            Phase::Waiting { .. } | Phase::Thinking | Phase::RunningTool { .. } => {
                answer.status(&phase).await;
            }
            // The events say these themselves, or nobody recorded them.
            Phase::Idle
            | Phase::Connecting { .. }
            | Phase::LoadingModel { .. }
            | Phase::ReadingPrompt { .. }
            | Phase::Writing
            | Phase::CallingTool { .. }
            | Phase::Asking { .. }
            | Phase::Compacting
            | Phase::Retrying { .. }
            | Phase::Stopping
            | Phase::NotSaving { .. } => {}
        }
        if let Some(wait_ms) = player.wait_ahead_ms() {
            let wait = words::duration(wait_ms);
            let shortened = match (self.tempo, player.waits()) {
                (Tempo::Paced(_), Waits::Shortened) => ", shortened",
                (Tempo::Paced(_), Waits::Exact) | (Tempo::Max | Tempo::Step, _) => "",
            };
            answer.remark(format!("a wait of {wait}{shortened}")).await;
        }
    }

    /// Until the next event is wanted. Signals are heard at any speed.
    async fn wait(&mut self, player: &Player) -> Woken {
        let due = match self.tempo {
            Tempo::Paced(_) => Some(player.due_in_ms(self.now_ms()).unwrap_or(0)),
            Tempo::Max => Some(0),
            Tempo::Step => None,
        };
        let clock = &self.clock;
        let keys = &mut self.keys;
        let wanted = async {
            match (due, keys) {
                (Some(0), _) => Key::Next,
                (Some(due), _) => {
                    clock.sleep(Duration::from_millis(due)).await;
                    Key::Next
                }
                (None, Some(keys)) => keys.next().await,
                (None, None) => Key::Leave,
            }
        };
        tokio::select! {
            biased;
            _ = self.signals.next() => Woken::Ended(Ended::Interrupted),
            key = wanted => match key {
                Key::Next => Woken::Due,
                Key::Leave => Woken::Ended(Ended::Left),
            },
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.clock.monotonic().as_millis()).unwrap_or(u64::MAX)
    }
}

fn recorded(reader: &Reader, session: SessionId, turn: TurnId) -> Result<Recording, Unshown> {
    let mut recording = Recording::of(session, turn);
    loop {
        let page = reader
            .turn_events(session, turn, recording.after())
            .map_err(Unread::from)?
            .ok_or(Unshown::NoTurn { turn })?;
        match recording.take(page)? {
            engine::player::Gathered::More => {}
            engine::player::Gathered::Whole => return Ok(recording),
        }
    }
}

/// One event, as `ask` prints it; what `ask` asks or has just been told is told here.
async fn tell(event: &Event, answer: &mut Answer) {
    match &event.body {
        EventBody::UserMessageAdded {
            text,
            purpose,
            images,
            ..
        } => match purpose {
            MessagePurpose::Said => {
                for image in images {
                    answer
                        .quote(&format!("[{}]", question::harmless(&words::image(image))))
                        .await;
                }
                answer
                    .quote(&format!("you: {}", question::harmless(text)))
                    .await
            }
            MessagePurpose::Continue { .. } => answer.aside("you asked to go on".to_owned()).await,
        },
        EventBody::ApprovalRequested {
            item,
            tool,
            intent,
            may_have_run,
            ..
        } => {
            let question = Question {
                item: *item,
                tool: tool.clone(),
                intent: intent.clone(),
                may_have_run: *may_have_run,
            };
            answer.quote(&question.words()).await;
        }
        EventBody::ApprovalResolved { resolution, .. } => {
            answer
                .aside(question::resolution(*resolution).to_owned())
                .await;
        }
        EventBody::TurnEnded { outcome } => {
            if let Some(words) = words::outcome(outcome) {
                answer.aside(words).await;
            }
        }
        EventBody::Unsupported { original_kind, .. } => {
            let words = format!("{original_kind}: this version of Holdfast cannot show it");
            answer.aside(words).await;
        }
        EventBody::TextAppended { .. }
        | EventBody::TextFoundReasoning { .. }
        | EventBody::ToolCallRequested { .. }
        | EventBody::ToolCallFinished { .. }
        | EventBody::AttemptFailed { .. }
        | EventBody::HistoryCompacted { .. }
        | EventBody::TurnStarted { .. }
        | EventBody::StepStarted { .. }
        | EventBody::ToolCallStarted { .. }
        | EventBody::StepEnded { .. }
        | EventBody::ComputerSlept { .. }
        | EventBody::SessionListed { .. }
        | EventBody::SessionTitled { .. }
        | EventBody::SessionTurnStarted { .. }
        | EventBody::SessionTurnEnded { .. }
        | EventBody::SessionSeen { .. }
        | EventBody::SessionAsked { .. }
        | EventBody::SessionAnswered { .. }
        | EventBody::SessionBinned { .. }
        | EventBody::SessionUnbinned { .. }
        | EventBody::ProviderAdded { .. }
        | EventBody::ProviderChanged { .. }
        | EventBody::ProviderRemoved { .. }
        | EventBody::TimeLimitsChanged { .. }
        | EventBody::FallbacksChosen { .. }
        | EventBody::ModelOptionsChanged { .. }
        | EventBody::ModelPullStarted { .. }
        | EventBody::ModelPullEnded { .. }
        | EventBody::PricesChosen { .. }
        | EventBody::LogSalvaged { .. }
        | EventBody::SessionStarted { .. }
        | EventBody::SessionRenamed { .. }
        | EventBody::ModelChosen { .. }
        | EventBody::FolderChosen { .. }
        | EventBody::OptionsChosen { .. }
        | EventBody::HistoryRewound { .. }
        | EventBody::HistoryRestored { .. }
        | EventBody::SessionRestored { .. } => answer.apply(event).await,
    }
}

const fn is_text(body: &EventBody) -> bool {
    matches!(body, EventBody::TextAppended { .. })
}
