//! The waterfall: where the time of one turn went, as segments, from its events.
//!
//! Invariant: every segment lies within the turn, and what no segment explains is a segment of its own, our overhead: so
//! nothing of the time is missing, and nothing is made up. A server's own durations are believed as far as they fit
//! between our clock's readings; where it says nothing, the wait for the first word stays one piece.
//! Times between events are the wall clock's, those within a request our monotonic clock's.

use protocol::{
    Event, EventBody, InterruptedWhy, ItemId, Purpose, Resolution, Slept, Timestamp, Timings,
    ToolOutcome, TurnOutcome,
};

/// A wait before a request that is longer than this is not our work: the server was asked again until it was ready.
const LEAD_MS_MAX: u64 = 1_000;

/// What the time went to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Until the connection stood.
    Connect,
    /// The server had the request, and neither loaded the model nor read the prompt.
    Queue,
    /// The server loaded the model.
    Load,
    /// The model read the prompt.
    Prompt,
    /// Until the first word, where the server does not say on what.
    FirstToken,
    /// The model wrote.
    Decode,
    /// A request that failed, as far as nothing more is known of it.
    Failed,
    /// The wait before a failed request was repeated.
    Wait,
    /// A tool ran.
    Tool,
    /// The user was asked.
    Asking,
    /// The computer slept.
    Sleep,
    /// Holdfast itself: writing down, preparing, and what nothing else explains.
    Ours,
}

impl Part {
    /// All of them, in the order in which they are listed.
    pub const ALL: [Self; 12] = [
        Self::Connect,
        Self::Queue,
        Self::Load,
        Self::Prompt,
        Self::FirstToken,
        Self::Decode,
        Self::Failed,
        Self::Wait,
        Self::Tool,
        Self::Asking,
        Self::Sleep,
        Self::Ours,
    ];

    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Connect => "connecting",
            Self::Queue => "waiting in the server's queue",
            Self::Load => "loading the model",
            Self::Prompt => "reading the prompt",
            Self::FirstToken => "until the first word",
            Self::Decode => "writing",
            Self::Failed => "failed request",
            Self::Wait => "wait before trying again",
            Self::Tool => "tool",
            Self::Asking => "waiting for you",
            Self::Sleep => "computer asleep",
            Self::Ours => "Holdfast itself",
        }
    }

    /// One word, for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Queue => "queue",
            Self::Load => "load",
            Self::Prompt => "prompt",
            Self::FirstToken => "first_token",
            Self::Decode => "decode",
            Self::Failed => "failed",
            Self::Wait => "wait",
            Self::Tool => "tool",
            Self::Asking => "asking",
            Self::Sleep => "sleep",
            Self::Ours => "ours",
        }
    }
}

/// A stretch of time and what it went to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// What to.
    pub part: Part,
    /// Which model or tool; empty where that goes without saying.
    pub who: String,
    /// From the turn's start.
    pub from_ms: u64,
    /// How long.
    pub ms: u64,
}

impl Segment {
    /// Where it ends.
    pub const fn to_ms(&self) -> u64 {
        self.from_ms.saturating_add(self.ms)
    }

    /// What it is, with its model or tool.
    pub fn words(&self) -> String {
        match self.who.as_str() {
            "" => self.part.words().to_owned(),
            who => format!("{}: {who}", self.part.words()),
        }
    }
}

/// Where the time of a turn went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waterfall {
    /// From its start to its end, or until now.
    pub total_ms: u64,
    /// By their beginning. Tools may overlap each other and a question.
    pub segments: Vec<Segment>,
}

impl Waterfall {
    /// Of one turn's events. `now` is where a turn that still runs is looked at; absent: at its last event.
    pub fn of(events: &[Event], now: Option<Timestamp>) -> Self {
        let Some(first) = events.first() else {
            return Self::default();
        };
        let mut taken = Taken::new(first.at);
        let (events, now) = match before_recovery(events) {
            Some(lived) => (lived, None),
            None => (events, now),
        };
        for event in events {
            taken.take(event);
        }
        taken.finish(events, now)
    }

    /// How long each part took, in the order of [`Part::ALL`]; those that took no time are left out. Of overlapping
    /// tools each counts in full.
    pub fn sums(&self) -> Vec<(Part, u64)> {
        let sum = |part: Part| {
            let of_part = self.segments.iter().filter(|s| s.part == part);
            of_part.fold(0_u64, |sum, segment| sum.saturating_add(segment.ms))
        };
        let sums = Part::ALL.into_iter().map(|part| (part, sum(part)));
        sums.filter(|(_, ms)| *ms > 0).collect()
    }
}

/// What was written while a turn lived that recovery closed. Recovery writes when Holdfast runs again: how long it was
/// away is no part of the turn.
fn before_recovery(events: &[Event]) -> Option<&[Event]> {
    let end = events.iter().position(|event| {
        let recovered = TurnOutcome::Interrupted {
            why: InterruptedWhy::Crash,
        };
        matches!(&event.body, EventBody::TurnEnded { outcome } if *outcome == recovered)
    })?;
    let lived = events.get(..end)?;
    let is_recoverys = |event: &&Event| {
        matches!(
            &event.body,
            EventBody::ApprovalResolved {
                resolution: Resolution::Expired,
                ..
            } | EventBody::ToolCallFinished {
                outcome: ToolOutcome::Abandoned,
                ..
            }
        )
    };
    let closed = lived.iter().rev().take_while(is_recoverys).count();
    lived.get(..end.saturating_sub(closed))
}

/// A request that was begun.
struct Request {
    from_ms: u64,
    who: String,
    /// The first text or call, by its commit.
    first_ms: Option<u64>,
}

struct Taken {
    start: Timestamp,
    request: Option<Request>,
    /// The wait for a repeat, since when.
    waits_since: Option<u64>,
    tools: Vec<(ItemId, String, Option<u64>)>,
    asked: Vec<(ItemId, u64)>,
    segments: Vec<Segment>,
    slept: Vec<Slept>,
    end_ms: Option<u64>,
}

impl Taken {
    const fn new(start: Timestamp) -> Self {
        Self {
            start,
            request: None,
            waits_since: None,
            tools: Vec::new(),
            asked: Vec::new(),
            segments: Vec::new(),
            slept: Vec::new(),
            end_ms: None,
        }
    }

    fn ms(&self, at: Timestamp) -> u64 {
        at.millis_since(self.start)
    }

    fn take(&mut self, event: &Event) {
        if self.end_ms.is_some() {
            return;
        }
        let now = self.ms(event.at);
        match &event.body {
            EventBody::StepStarted { model, purpose, .. } => {
                self.close_request(now, None, Part::Failed);
                if let Some(since) = self.waits_since.take() {
                    self.push(Part::Wait, String::new(), since, now);
                }
                self.request = Some(Request {
                    from_ms: now,
                    who: match purpose {
                        Purpose::Answer => model.model.clone(),
                        Purpose::Summary => format!("{} (summary)", model.model),
                    },
                    first_ms: None,
                });
            }
            EventBody::TextAppended { .. } | EventBody::ToolCallRequested { .. } => {
                if let Some(request) = &mut self.request {
                    request.first_ms.get_or_insert(now);
                }
                if let EventBody::ToolCallRequested { item, name, .. } = &event.body {
                    self.tools.push((*item, name.clone(), None));
                }
            }
            EventBody::StepEnded { timings, .. } => {
                self.close_request(now, Some(timings), Part::Decode);
            }
            EventBody::AttemptFailed { retry_in_ms, .. } => {
                self.close_request(now, None, Part::Failed);
                self.waits_since = retry_in_ms.map(|_| now);
            }
            EventBody::ApprovalRequested { item, .. } => self.asked.push((*item, now)),
            EventBody::ApprovalResolved { item, .. } => {
                if let Some(at) = self.asked.iter().position(|(asked, _)| asked == item) {
                    let (_, since) = self.asked.remove(at);
                    self.push(Part::Asking, String::new(), since, now);
                }
            }
            EventBody::ToolCallStarted { item } => {
                let tool = self.tools.iter_mut().find(|(own, ..)| own == item);
                if let Some((_, _, since)) = tool {
                    since.get_or_insert(now);
                }
            }
            EventBody::ToolCallFinished { item, .. } => {
                if let Some(at) = self.tools.iter().position(|(own, ..)| own == item)
                    && let (_, name, Some(since)) = self.tools.remove(at)
                {
                    self.push(Part::Tool, name, since, now);
                }
            }
            EventBody::ComputerSlept { slept } => self.slept.push(*slept),
            EventBody::TurnEnded { .. } => {
                self.close_all(now);
                self.end_ms = Some(now);
            }
            EventBody::UserMessageAdded { .. }
            | EventBody::TurnStarted { .. }
            | EventBody::TextFoundReasoning { .. }
            | EventBody::HistoryCompacted { .. }
            | EventBody::Unsupported { .. }
            | EventBody::SessionStarted { .. }
            | EventBody::SessionRenamed { .. }
            | EventBody::ModelChosen { .. }
            | EventBody::FolderChosen { .. }
            | EventBody::HistoryRewound { .. }
            | EventBody::HistoryRestored { .. }
            | EventBody::SessionListed { .. }
            | EventBody::SessionTitled { .. }
            | EventBody::SessionTurnStarted { .. }
            | EventBody::SessionTurnEnded { .. }
            | EventBody::SessionSeen { .. }
            | EventBody::SessionAsked { .. }
            | EventBody::SessionAnswered { .. }
            | EventBody::SessionRestored { .. }
            | EventBody::SessionBinned { .. }
            | EventBody::SessionUnbinned { .. }
            | EventBody::ProviderAdded { .. }
            | EventBody::ProviderChanged { .. }
            | EventBody::ProviderRemoved { .. }
            | EventBody::TimeLimitsChanged { .. }
            | EventBody::FallbacksChosen { .. }
            | EventBody::PricesChosen { .. }
            | EventBody::OptionsChosen { .. }
            | EventBody::ModelOptionsChanged { .. }
            | EventBody::ModelPullStarted { .. }
            | EventBody::ModelPullEnded { .. }
            | EventBody::LogSalvaged { .. } => {}
        }
    }

    /// Whatever is open ends here.
    fn close_all(&mut self, now: u64) {
        self.close_request(now, None, Part::Decode);
        if let Some(since) = self.waits_since.take() {
            self.push(Part::Wait, String::new(), since, now);
        }
        for (_, since) in std::mem::take(&mut self.asked) {
            self.push(Part::Asking, String::new(), since, now);
        }
        for (_, name, since) in std::mem::take(&mut self.tools) {
            if let Some(since) = since {
                self.push(Part::Tool, name, since, now);
            }
        }
    }

    /// The open request ended. Without timings nothing is known but when its first words were written down; `rest` is
    /// what came after them, or all of it if there were none.
    fn close_request(&mut self, now: u64, timings: Option<&Timings>, rest: Part) {
        let Some(Request {
            from_ms,
            who,
            first_ms,
        }) = self.request.take()
        else {
            return;
        };
        let known = timings.and_then(|timings| timings.total_ms.map(|total| (timings, total)));
        let Some((timings, total_ms)) = known else {
            let part = match (rest, first_ms) {
                // An answer that was stopped before its first word.
                (Part::Decode, None) => Part::FirstToken,
                (rest, _) => rest,
            };
            let first = first_ms.map_or(from_ms, |first| first.min(now));
            self.push(Part::FirstToken, who.clone(), from_ms, first);
            self.push(part, who, first, now);
            return;
        };
        // It ended when its end was written down, or a moment before; what lies before its beginning is the wait until
        // the server took it.
        let total_ms = total_ms.min(now.saturating_sub(from_ms));
        let lead_ms = now.saturating_sub(from_ms).saturating_sub(total_ms);
        let asleep = self.slept.iter().fold(0_u64, |sum, slept| {
            let slept_from = self.ms(slept.from).max(from_ms);
            sum.saturating_add(self.ms(slept.to).min(now).saturating_sub(slept_from))
        });
        let from_ms = if lead_ms.saturating_sub(asleep) > LEAD_MS_MAX {
            let begun = now.saturating_sub(total_ms);
            self.push(Part::Queue, who.clone(), from_ms, begun);
            begun
        } else {
            from_ms
        };
        let mut at = from_ms;
        let end = from_ms.saturating_add(total_ms);
        let mut until = |this: &mut Self, part: Part, to: u64| {
            let to = to.clamp(at, end);
            this.push(part, who.clone(), at, to);
            at = to;
        };
        let connect_ms = timings.connect_ms.unwrap_or(0);
        until(self, Part::Connect, from_ms.saturating_add(connect_ms));
        let first_ms = timings.first_content_ms.unwrap_or(total_ms);
        let first = from_ms.saturating_add(first_ms).min(end);
        match (timings.load_ms, timings.prompt_ms) {
            (None, None) => until(self, Part::FirstToken, first),
            (load, prompt) => {
                let (load, prompt) = (load.unwrap_or(0), prompt.unwrap_or(0));
                let rest = first_ms
                    .saturating_sub(connect_ms)
                    .saturating_sub(load)
                    .saturating_sub(prompt);
                until(
                    self,
                    Part::Queue,
                    from_ms.saturating_add(connect_ms).saturating_add(rest),
                );
                let loaded = from_ms
                    .saturating_add(connect_ms)
                    .saturating_add(rest)
                    .saturating_add(load);
                until(self, Part::Load, loaded.min(first));
                until(self, Part::Prompt, first);
            }
        }
        until(self, Part::Decode, end);
    }

    fn push(&mut self, part: Part, who: String, from_ms: u64, to_ms: u64) {
        let ms = to_ms.saturating_sub(from_ms);
        if ms > 0 {
            self.segments.push(Segment {
                part,
                who,
                from_ms,
                ms,
            });
        }
    }

    fn finish(mut self, events: &[Event], now: Option<Timestamp>) -> Waterfall {
        let last = events.iter().map(|event| self.ms(event.at)).max();
        let last = last.unwrap_or(0);
        let total_ms = match self.end_ms {
            Some(end) => end,
            None => {
                let seen = now.map_or(last, |now| self.ms(now).max(last));
                self.close_all(seen);
                seen
            }
        };
        for slept in std::mem::take(&mut self.slept) {
            let (from, to) = (self.ms(slept.from), self.ms(slept.to));
            self.push(Part::Sleep, String::new(), from, to);
        }
        // A clock that was set back makes times that lie outside.
        for segment in &mut self.segments {
            segment.from_ms = segment.from_ms.min(total_ms);
            segment.ms = segment.ms.min(total_ms - segment.from_ms);
        }
        self.segments.retain(|segment| segment.ms > 0);
        self.segments
            .sort_by_key(|segment| (segment.from_ms, segment.to_ms()));
        for (from_ms, to_ms) in gaps(&self.segments, total_ms) {
            self.push(Part::Ours, String::new(), from_ms, to_ms);
        }
        self.segments
            .sort_by_key(|segment| (segment.from_ms, segment.to_ms()));
        Waterfall {
            total_ms,
            segments: self.segments,
        }
    }
}

/// What no segment covers; the segments come by their beginning.
fn gaps(segments: &[Segment], total_ms: u64) -> Vec<(u64, u64)> {
    let mut gaps = Vec::new();
    let mut covered = 0;
    for segment in segments {
        if segment.from_ms > covered {
            gaps.push((covered, segment.from_ms));
        }
        covered = covered.max(segment.to_ms());
    }
    if total_ms > covered {
        gaps.push((covered, total_ms));
    }
    gaps
}

#[cfg(test)]
mod tests;
