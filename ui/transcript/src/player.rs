//! Showing a past turn again: at its recorded pace, faster, or event by event, forwards and back.
//!
//! Invariant: with n events shown, what is shown is the fold of the turn's first n events, by the very fold that drew it
//! when it happened; how one got there does not matter. Kept by: going on applies the next event, going back folds the
//! one turn anew, and there is no third way.
//! No clock: `now_ms` is passed in, of any clock that does not go back. Nothing is run again, and nobody is asked.

mod recording;
mod timeline;

use protocol::{
    AttemptState, Event, ItemBody, ModelRef, Part, Phase, Status, Timestamp, ToolState, TurnView,
};

pub use recording::{Gathered, Recording, Torn};
pub use timeline::{LONG_WAIT_MS, Mark, MarkKind, Waits};

use crate::fold::{Change, Turn};
use timeline::Timeline;

/// How fast a turn is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As it happened.
    Recorded,
    /// Twice as fast.
    Double,
    /// Ten times as fast.
    Tenfold,
    /// An event at a time, whenever it is asked for.
    Step,
}

impl Pace {
    /// All of them, the slowest first.
    pub const ALL: [Self; 4] = [Self::Step, Self::Recorded, Self::Double, Self::Tenfold];

    const fn factor(self) -> u64 {
        match self {
            Self::Recorded => 1,
            Self::Double => 2,
            Self::Tenfold => 10,
            Self::Step => 0,
        }
    }
}

/// What became of what is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// It is the same.
    Nowhere,
    /// More events are shown; what they changed was told.
    On,
    /// It may be anything: look at all of it.
    Anew,
}

/// A turn that is shown again.
#[derive(Clone, Debug)]
pub struct Player {
    events: Vec<Event>,
    timeline: Timeline,
    waits: Waits,
    pace: Pace,
    /// The fold of the first `position` events.
    turn: Option<Turn>,
    position: usize,
    /// How far into the showing: at or after the last shown event, before the next.
    shown_ms: u64,
    /// While it plays: the time up to which it has.
    told_ms: Option<u64>,
    folded: u64,
}

impl Player {
    /// At the beginning of a turn, at rest, at the recorded pace and with long waits shortened.
    pub fn of(recording: Recording) -> Self {
        let events = recording.into_events();
        let waits = Waits::Shortened;
        Self {
            timeline: Timeline::of(&events, waits),
            events,
            waits,
            pace: Pace::Recorded,
            turn: None,
            position: 0,
            shown_ms: 0,
            told_ms: None,
            folded: 0,
        }
    }

    // What is shown.

    /// The turn, as it looked. None before its first event.
    pub fn frame(&self) -> Option<&TurnView> {
        self.turn.as_ref().map(|turn| &turn.view)
    }

    /// The event that was shown last.
    pub fn last(&self) -> Option<&Event> {
        self.events.get(self.position.checked_sub(1)?)
    }

    /// The events that are shown.
    pub fn shown(&self) -> &[Event] {
        self.events.get(..self.position).unwrap_or_default()
    }

    /// How many events are shown.
    pub fn position(&self) -> usize {
        self.position
    }

    /// How many there are.
    pub fn events(&self) -> usize {
        self.events.len()
    }

    /// Whether all of them are shown.
    pub fn is_at_end(&self) -> bool {
        self.position == self.events.len()
    }

    /// Whether it goes on by itself.
    pub fn is_playing(&self) -> bool {
        self.told_ms.is_some()
    }

    /// How fast.
    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// How long waits are shown.
    pub fn waits(&self) -> Waits {
        self.waits
    }

    /// What is worth finding again.
    pub fn marks(&self) -> &[Mark] {
        &self.timeline.marks
    }

    /// How much of the recorded time has passed. A shortened wait passes faster, and not less of it.
    pub fn elapsed_ms(&self) -> u64 {
        self.timeline.recorded_at(self.position, self.shown_ms)
    }

    /// How long the turn took.
    pub fn total_ms(&self) -> u64 {
        self.timeline.total_ms()
    }

    /// What the clock said then.
    pub fn moment(&self) -> Timestamp {
        let first = self.events.first().map_or(0, |event| event.at.millis());
        let elapsed = i64::try_from(self.elapsed_ms()).unwrap_or(i64::MAX);
        Timestamp::from_millis(first.saturating_add(elapsed))
    }

    /// The long wait that is being shown, or that the last event has just ended; how long it was.
    pub fn wait_ms(&self) -> Option<u64> {
        let waits = self.shown_ms > self.timeline.reached(self.position);
        let ahead = self
            .timeline
            .gap_after(self.position)
            .filter(|_| self.position > 0 && waits);
        let behind = self
            .position
            .checked_sub(1)
            .and_then(|before| self.timeline.gap_after(before));
        let long = |gap: &u64| *gap > LONG_WAIT_MS;
        ahead.filter(long).or(behind.filter(long))
    }

    /// The long wait before the next event; how long it was.
    pub fn wait_ahead_ms(&self) -> Option<u64> {
        let ahead = self.timeline.gap_after(self.position)?;
        (self.position > 0 && ahead > LONG_WAIT_MS).then_some(ahead)
    }

    /// What the turn was doing, as far as its events say.
    pub fn phase(&self) -> Phase {
        self.frame().map_or(Phase::Idle, |view| doing(view).0)
    }

    /// The same as a window heard it, since when included.
    pub fn status(&self) -> Option<Status> {
        let view = self.frame()?;
        let (phase, since) = doing(view);
        Some(Status {
            revision: self.folded,
            turn: Some(view.turn),
            phase,
            since,
        })
    }

    /// How many events were folded so far: what the showing has cost.
    pub fn folded(&self) -> u64 {
        self.folded
    }

    // Going on.

    /// Goes on by itself from here; from the end, again from the beginning. Step by step, it shows one more event.
    pub fn play(&mut self, now_ms: u64, changes: &mut Vec<Change>) -> Moved {
        if self.pace == Pace::Step {
            return self.step(changes);
        }
        if self.events.is_empty() || self.is_playing() {
            return self.advance(now_ms, changes);
        }
        let moved = if self.is_at_end() {
            self.seek(0)
        } else {
            Moved::Nowhere
        };
        self.told_ms = Some(now_ms);
        // What happened in the same instant is there at once.
        match (moved, self.advance(now_ms, changes)) {
            (Moved::Anew, _) => Moved::Anew,
            (Moved::Nowhere | Moved::On, on) => on,
        }
    }

    /// Stays where it is.
    pub fn pause(&mut self, now_ms: u64, changes: &mut Vec<Change>) -> Moved {
        let moved = self.advance(now_ms, changes);
        self.told_ms = None;
        moved
    }

    /// Shows what is due by now.
    pub fn advance(&mut self, now_ms: u64, changes: &mut Vec<Change>) -> Moved {
        let Some(told_ms) = self.told_ms else {
            return Moved::Nowhere;
        };
        self.told_ms = Some(told_ms.max(now_ms));
        let passed = now_ms.saturating_sub(told_ms);
        let shown_ms = passed
            .saturating_mul(self.pace.factor())
            .saturating_add(self.shown_ms);
        let before = self.position;
        while self
            .timeline
            .next(self.position)
            .is_some_and(|due| due <= shown_ms)
        {
            self.apply_next(changes);
        }
        self.shown_ms = shown_ms;
        if self.is_at_end() {
            self.shown_ms = self.timeline.reached(self.position);
            self.told_ms = None;
        }
        if self.position == before {
            Moved::Nowhere
        } else {
            Moved::On
        }
    }

    /// How long until the next event is due. None while it does not play.
    pub fn due_in_ms(&self, now_ms: u64) -> Option<u64> {
        let told_ms = self.told_ms?;
        let due = self.timeline.next(self.position)?;
        let left = due.saturating_sub(self.shown_ms);
        let wait = left.div_ceil(self.pace.factor().max(1));
        Some(wait.saturating_sub(now_ms.saturating_sub(told_ms)))
    }

    /// Shows one more event, and stays there.
    pub fn step(&mut self, changes: &mut Vec<Change>) -> Moved {
        self.told_ms = None;
        if self.is_at_end() {
            return Moved::Nowhere;
        }
        self.apply_next(changes);
        self.shown_ms = self.timeline.reached(self.position);
        Moved::On
    }

    // Going anywhere.

    /// Shows one event less, and stays there.
    pub fn back(&mut self) -> Moved {
        self.told_ms = None;
        self.seek(self.position.saturating_sub(1))
    }

    /// Shows the first `position` events, or all if there are fewer. What played goes on playing from there.
    pub fn seek(&mut self, position: usize) -> Moved {
        let position = position.min(self.events.len());
        let moved = if position == self.position {
            Moved::Nowhere
        } else {
            Moved::Anew
        };
        if position < self.position {
            self.turn = None;
            self.position = 0;
        }
        // What each event changed is of no interest: all of it is looked at.
        let mut changes = Vec::new();
        while self.position < position {
            self.apply_next(&mut changes);
            changes.clear();
        }
        self.shown_ms = self.timeline.reached(position);
        if self.is_at_end() {
            self.told_ms = None;
        }
        moved
    }

    /// Shows what had happened so long after the turn began.
    pub fn seek_time(&mut self, recorded_ms: u64) -> Moved {
        self.seek(self.timeline.position_at(recorded_ms))
    }

    /// The next place that is worth finding; else the end.
    pub fn seek_next_mark(&mut self) -> Moved {
        self.told_ms = None;
        let marks = self.marks().iter().map(|mark| mark.position);
        let next = marks.filter(|at| *at > self.position).min();
        self.seek(next.unwrap_or(self.events.len()))
    }

    /// The one before; else the beginning.
    pub fn seek_previous_mark(&mut self) -> Moved {
        self.told_ms = None;
        let marks = self.marks().iter().map(|mark| mark.position);
        let previous = marks.filter(|at| *at < self.position).max();
        self.seek(previous.unwrap_or(0))
    }

    // How it is shown.

    /// Another pace, from here on.
    pub fn set_pace(&mut self, pace: Pace, now_ms: u64, changes: &mut Vec<Change>) -> Moved {
        let moved = self.advance(now_ms, changes);
        self.pace = pace;
        if pace == Pace::Step {
            self.told_ms = None;
        }
        moved
    }

    /// Waits in full, or not. A wait that is being shown begins again.
    pub fn set_waits(&mut self, waits: Waits, now_ms: u64, changes: &mut Vec<Change>) -> Moved {
        let moved = self.advance(now_ms, changes);
        self.waits = waits;
        self.timeline.show_waits(waits);
        self.shown_ms = self.timeline.reached(self.position);
        moved
    }

    fn apply_next(&mut self, changes: &mut Vec<Change>) {
        if let Some(event) = self.events.get(self.position) {
            Turn::take(&mut self.turn, event, changes);
            self.position += 1;
            self.folded += 1;
        }
    }
}

/// What a turn is doing that looks like this, and since when. What was never an event (loading, reading the prompt) is
/// not known.
fn doing(turn: &TurnView) -> (Phase, Timestamp) {
    if turn.outcome.is_some() {
        return (Phase::Idle, turn.ended_at.unwrap_or(turn.started_at));
    }
    let Some(attempt) = turn.attempts.last() else {
        // Its model comes with the very next event.
        let phase = if turn.model.model.is_empty() {
            Phase::Idle
        } else {
            waiting(&turn.model)
        };
        return (phase, turn.started_at);
    };
    match &attempt.state {
        AttemptState::Failed {
            failure,
            retry_in_ms: Some(ms),
            next: None,
            at,
        } => {
            let wait = i64::try_from(*ms).unwrap_or(i64::MAX);
            let phase = Phase::Retrying {
                until: Timestamp::from_millis(at.millis().saturating_add(wait)),
                attempt: 0,
                of: 0,
                failure: failure.clone(),
            };
            return (phase, *at);
        }
        AttemptState::Failed {
            next: Some(next),
            at,
            ..
        } => return (waiting(next), *at),
        AttemptState::Failed { .. } | AttemptState::Open | AttemptState::Ended { .. } => {}
    }
    let mut requested = None;
    for view in turn.items.iter().rev() {
        match &view.body {
            ItemBody::Text {
                part, open: true, ..
            } => {
                let phase = match part {
                    Part::Answer => Phase::Writing,
                    Part::Reasoning => Phase::Thinking,
                };
                return (phase, view.began_at);
            }
            ItemBody::ToolCall {
                name,
                state,
                approval,
                ..
            } => {
                let asks = approval.as_ref().filter(|asked| asked.resolution.is_none());
                match (asks, state) {
                    (Some(asked), _) => {
                        return (Phase::Asking { item: asked.item }, asked.asked_at);
                    }
                    (None, ToolState::Running { since }) => {
                        return (Phase::RunningTool { name: name.clone() }, *since);
                    }
                    (None, ToolState::Requested) => requested = Some((name, view.began_at)),
                    (None, ToolState::Finished { .. }) => {}
                }
            }
            ItemBody::Text { open: false, .. }
            | ItemBody::UserMessage { .. }
            | ItemBody::Compacted { .. }
            | ItemBody::Unsupported { .. } => {}
        }
    }
    match requested {
        Some((name, at)) => {
            let phase = Phase::CallingTool {
                name: name.clone(),
                argument_bytes: 0,
            };
            (phase, at)
        }
        None => (waiting(&attempt.model), attempt.started_at),
    }
}

fn waiting(model: &ModelRef) -> Phase {
    Phase::Waiting {
        model: model.model.clone(),
    }
}

#[cfg(test)]
mod tests;
