//! When the events of a turn happened, and when they are shown again.
//!
//! Invariant: time never runs back, whatever the clock of the recording did, and no wait is hidden: a shortened one is
//! still as long as it was in everything that is said about it.

use protocol::{Event, EventBody, MessagePurpose, Part, Timestamp};

/// A longer wait says nothing that its words do not say better.
pub const LONG_WAIT_MS: u64 = 2_000;

/// How long waits are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// At most for [`LONG_WAIT_MS`]; how long they were is said.
    Shortened,
    /// For as long as they were.
    Exact,
}

/// What is found again on a slider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MarkKind {
    /// What the user said.
    Message,
    /// The model began to think.
    Reasoning,
    /// It began to say something.
    Text,
    /// It asked for a tool.
    ToolCall,
    /// The user was asked.
    Approval,
    /// The question had its answer.
    Answered,
    /// An attempt failed, and was made again.
    Retry,
    /// An attempt failed, and another model was asked.
    Failover,
    /// An attempt failed.
    Failure,
    /// The history was summed up.
    Compaction,
    /// The terminal event.
    End,
}

/// A place that is worth finding again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// How many events are shown there: the marked one is the last of them.
    pub position: usize,
    /// What it is.
    pub kind: MarkKind,
}

/// The times of a turn's events.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    /// When each event happened, in milliseconds since the first; never falls.
    recorded: Vec<u64>,
    /// The same with waits as they are shown.
    shown: Vec<u64>,
    pub(super) marks: Vec<Mark>,
}

impl Timeline {
    pub(super) fn of(events: &[Event], waits: Waits) -> Self {
        let first = events.first().map_or(Timestamp::from_millis(0), |e| e.at);
        let mut recorded = Vec::with_capacity(events.len());
        let mut latest = 0;
        for event in events {
            latest = event.at.millis_since(first).max(latest);
            recorded.push(latest);
        }
        let marks = events
            .iter()
            .enumerate()
            .filter_map(|(at, event)| {
                let kind = mark(&event.body)?;
                Some(Mark {
                    position: at + 1,
                    kind,
                })
            })
            .collect();
        let mut timeline = Self {
            recorded,
            shown: Vec::new(),
            marks,
        };
        timeline.show_waits(waits);
        timeline
    }

    /// Lays the events out anew.
    pub(super) fn show_waits(&mut self, waits: Waits) {
        let (mut at, mut before) = (0_u64, 0_u64);
        self.shown.clear();
        for recorded in &self.recorded {
            let gap = recorded - before;
            at = at.saturating_add(match waits {
                Waits::Shortened => gap.min(LONG_WAIT_MS),
                Waits::Exact => gap,
            });
            before = *recorded;
            self.shown.push(at);
        }
    }

    /// How long the turn took.
    pub(super) fn total_ms(&self) -> u64 {
        self.recorded.last().copied().unwrap_or(0)
    }

    /// When the event after the first `position` is shown; none after the last.
    pub(super) fn next(&self, position: usize) -> Option<u64> {
        self.shown.get(position).copied()
    }

    /// When the last of the first `position` events is shown.
    pub(super) fn reached(&self, position: usize) -> u64 {
        before(&self.shown, position)
    }

    /// How long nothing happens after the first `position` events; none after the last.
    pub(super) fn gap_after(&self, position: usize) -> Option<u64> {
        let next = self.recorded.get(position)?;
        Some(next - before(&self.recorded, position))
    }

    /// What the clock of the recording said, `shown_ms` into the showing, with `position` events shown.
    pub(super) fn recorded_at(&self, position: usize, shown_ms: u64) -> u64 {
        let from = before(&self.recorded, position);
        let (Some(gap), Some(next)) = (self.gap_after(position), self.next(position)) else {
            return from;
        };
        let reached = self.reached(position);
        let (into, length) = (shown_ms.saturating_sub(reached), next - reached);
        if length == 0 {
            return from;
        }
        // Wide enough for any two times that a log can hold.
        let into = u128::from(into.min(length)) * u128::from(gap) / u128::from(length);
        from.saturating_add(u64::try_from(into).unwrap_or(u64::MAX))
    }

    /// How many events had happened by then.
    pub(super) fn position_at(&self, recorded_ms: u64) -> usize {
        self.recorded.partition_point(|at| *at <= recorded_ms)
    }
}

fn before(times: &[u64], position: usize) -> u64 {
    let last = position.checked_sub(1);
    last.and_then(|last| times.get(last)).copied().unwrap_or(0)
}

fn mark(body: &EventBody) -> Option<MarkKind> {
    match body {
        EventBody::UserMessageAdded { purpose, .. } => match purpose {
            MessagePurpose::Said | MessagePurpose::Continue { .. } => Some(MarkKind::Message),
        },
        EventBody::TextAppended {
            offset: 0, part, ..
        } => Some(match part {
            Part::Answer => MarkKind::Text,
            Part::Reasoning => MarkKind::Reasoning,
        }),
        EventBody::TextFoundReasoning { .. } => Some(MarkKind::Reasoning),
        EventBody::ToolCallRequested { .. } => Some(MarkKind::ToolCall),
        EventBody::ApprovalRequested { .. } => Some(MarkKind::Approval),
        EventBody::ApprovalResolved { .. } => Some(MarkKind::Answered),
        EventBody::AttemptFailed {
            retry_in_ms, next, ..
        } => Some(match (next, retry_in_ms) {
            (Some(_), _) => MarkKind::Failover,
            (None, Some(_)) => MarkKind::Retry,
            (None, None) => MarkKind::Failure,
        }),
        EventBody::HistoryCompacted { .. } => Some(MarkKind::Compaction),
        EventBody::TurnEnded { .. } => Some(MarkKind::End),
        // These happen within what is marked.
        EventBody::TextAppended { .. }
        | EventBody::TurnStarted { .. }
        | EventBody::StepStarted { .. }
        | EventBody::ToolCallStarted { .. }
        | EventBody::ToolCallFinished { .. }
        | EventBody::StepEnded { .. }
        | EventBody::ComputerSlept { .. }
        | EventBody::Unsupported { .. }
        // Of the session or the library: never part of a turn.
        | EventBody::SessionStarted { .. }
        | EventBody::SessionRenamed { .. }
        | EventBody::ModelChosen { .. }
        | EventBody::FolderChosen { .. }
        | EventBody::OptionsChosen { .. }
        | EventBody::HistoryRewound { .. }
        | EventBody::HistoryRestored { .. }
        | EventBody::SessionRestored { .. }
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
        | EventBody::LogSalvaged { .. } => None,
    }
}
