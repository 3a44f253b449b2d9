//! One turn: its events folded into its view.
//!
//! Invariant: only the last item can be an open text, and nothing looks running once the turn has ended. What does not
//! fit (a text at a wrong offset, a result without its call, an event after the end) is left out and marked once by an
//! [`ItemBody::Unsupported`] item; the rest renders.

use std::collections::BTreeMap;

use protocol::{
    ApprovalView, AttemptState, AttemptView, Effect, Event, EventBody, Intent, ItemBody, ItemId,
    ItemView, ModelRef, Part, ProviderId, Purpose, Resolution, Seq, Timestamp, ToolOutcome,
    ToolState, TurnId, TurnView,
};

use super::Change;
use crate::mutant::mutated;

/// Kind of the item that marks a text of which something is missing.
pub(crate) const DAMAGED_TEXT: &str = "damaged text";
/// Kind of the item that marks any other record that does not fit its turn.
pub(crate) const DAMAGED_RECORD: &str = "damaged record";
/// Kind of the item that marks a turn with events after its end.
pub(crate) const LATE_EVENTS: &str = "events after the end";

/// Items the log numbers are dense from 1; marks get numbers no log reaches, so that none is taken for the other.
const MARK: u64 = 1 << 63;
/// Within the marks: one for a damaged item, by the item's number.
const MARK_DAMAGED: u64 = MARK | 1 << 62;
/// Within the marks: the one for events after the end.
const MARK_LATE: ItemId = ItemId::new(MARK | 1 << 61);

/// Folds one turn's events into its view; `None` when none of them says that there is a turn.
///
/// The turn is the first event's; events of other turns, and those of the session, are left out.
pub fn fold_turn(events: &[Event]) -> Option<TurnView> {
    let mut turn: Option<Turn> = None;
    let mut changes = Vec::new();
    for event in events {
        Turn::take(&mut turn, event, &mut changes);
        changes.clear();
    }
    turn.map(|turn| turn.view)
}

/// A turn's view, and where its items are in it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Turn {
    pub(crate) view: TurnView,
    index: BTreeMap<ItemId, usize>,
    #[cfg(feature = "mutants")]
    mutant: Option<crate::mutant::Mutant>,
}

impl Turn {
    /// Folds the next event of the one turn that is looked at: brings it into being, or changes it.
    pub(crate) fn take(turn: &mut Option<Self>, event: &Event, changes: &mut Vec<Change>) {
        let Some(id) = event.turn else { return };
        if turn.is_none() && Self::begins_with(&event.body) {
            *turn = Some(Self::begin(id, event.at));
            changes.push(Change::TurnAdded(id));
        }
        if let Some(turn) = turn
            && turn.view.turn == id
        {
            turn.apply(event, changes);
        }
    }

    /// Whether an event brings its turn into being.
    pub(super) fn begins_with(body: &EventBody) -> bool {
        matches!(
            body,
            EventBody::UserMessageAdded { .. } | EventBody::TurnStarted { .. }
        )
    }

    /// A turn of which nothing is known but that it is there. Its model comes with `TurnStarted`, in the same commit.
    pub(super) fn begin(turn: TurnId, at: Timestamp) -> Self {
        Self::from_view(TurnView {
            turn,
            model: ModelRef {
                provider: ProviderId::from_bits(0),
                provider_name: String::new(),
                model: String::new(),
            },
            started_at: at,
            items: Vec::new(),
            attempts: Vec::new(),
            slept: Vec::new(),
            outcome: None,
            ended_at: None,
        })
    }

    pub(super) fn from_view(view: TurnView) -> Self {
        let mut index = BTreeMap::new();
        for (position, item) in view.items.iter().enumerate() {
            index.entry(item.item).or_insert(position);
        }
        Self {
            view,
            index,
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }

    /// The same turn without one of its guards.
    #[cfg(feature = "mutants")]
    pub(super) fn lacking(&mut self, mutant: Option<crate::mutant::Mutant>) {
        self.mutant = mutant;
    }

    pub(crate) fn item(&self, item: ItemId) -> Option<&ItemView> {
        self.view.items.get(self.position(item)?)
    }

    pub(super) fn apply(&mut self, event: &Event, changes: &mut Vec<Change>) {
        let at = event.at;
        if self.view.outcome.is_some() && Self::needs_a_running_turn(&event.body) {
            self.mark(MARK_LATE, LATE_EVENTS, at, changes);
            return;
        }
        match &event.body {
            EventBody::UserMessageAdded {
                item,
                text,
                op,
                purpose,
                images,
            } => {
                let body = ItemBody::UserMessage {
                    text: text.clone(),
                    op: *op,
                    purpose: *purpose,
                    images: images.clone(),
                };
                self.add(*item, body, at, changes);
            }
            EventBody::TurnStarted { model, .. } => {
                self.view.model = model.clone();
                self.view.started_at = at;
                changes.push(Change::TurnChanged(self.view.turn));
            }
            EventBody::StepStarted {
                step,
                attempt,
                model,
                purpose,
            } => {
                self.close_text(changes);
                self.view.attempts.push(AttemptView {
                    step: *step,
                    attempt: *attempt,
                    model: model.clone(),
                    purpose: *purpose,
                    started_at: at,
                    state: AttemptState::Open,
                });
                changes.push(Change::TurnChanged(self.view.turn));
            }
            EventBody::TextAppended {
                item,
                part,
                offset,
                text,
            } => self.append(*item, *part, *offset, text, at, changes),
            EventBody::TextFoundReasoning { item } => self.find_reasoning(*item, at, changes),
            EventBody::ToolCallRequested {
                item,
                step,
                name,
                arguments,
                call_id,
            } => {
                let body = ItemBody::ToolCall {
                    name: name.clone(),
                    arguments: arguments.clone(),
                    call_id: call_id.clone(),
                    step: *step,
                    state: ToolState::Requested,
                    approval: None,
                };
                self.add(*item, body, at, changes);
            }
            EventBody::ApprovalRequested {
                item,
                calls,
                tool: _,
                intent,
                may_have_run,
            } => self.ask(*item, calls, intent, *may_have_run, at, changes),
            EventBody::ApprovalResolved { item, resolution } => {
                self.resolve(*item, *resolution, at, changes);
            }
            EventBody::ToolCallStarted { item } => {
                self.move_tool(*item, ToolState::Running { since: at }, at, changes);
            }
            EventBody::ToolCallFinished {
                item,
                outcome,
                effect,
            } => {
                let finished = ToolState::Finished {
                    outcome: outcome.clone(),
                    effect: *effect,
                    at,
                };
                self.move_tool(*item, finished, at, changes);
            }
            EventBody::StepEnded {
                step,
                finish,
                usage,
                timings,
                unread,
                unseen_images,
                untold_tools,
            } => {
                self.close_text(changes);
                let ended = AttemptState::Ended {
                    finish: *finish,
                    usage: *usage,
                    timings: *timings,
                    unread: *unread,
                    unseen_images: *unseen_images,
                    untold_tools: *untold_tools,
                    at,
                };
                self.end_attempt(*step, None, ended, at, changes);
            }
            EventBody::AttemptFailed {
                step,
                attempt,
                failure,
                retry_in_ms,
                next,
            } => {
                self.close_text(changes);
                let failed = AttemptState::Failed {
                    failure: failure.clone(),
                    retry_in_ms: *retry_in_ms,
                    next: next.clone(),
                    at,
                };
                self.end_attempt(*step, Some(*attempt), failed, at, changes);
            }
            EventBody::HistoryCompacted {
                item,
                through,
                summary,
                set_aside,
            } => {
                let body = ItemBody::Compacted {
                    through: *through,
                    summary: summary.clone(),
                    set_aside: set_aside.clone(),
                };
                self.add(*item, body, at, changes);
            }
            EventBody::ComputerSlept { slept } => {
                self.view.slept.push(*slept);
                changes.push(Change::TurnChanged(self.view.turn));
            }
            EventBody::TurnEnded { outcome } => {
                self.close_text(changes);
                self.close_tools(at, changes);
                self.view.outcome = Some(outcome.clone());
                self.view.ended_at = Some(at);
                changes.push(Change::TurnChanged(self.view.turn));
            }
            EventBody::Unsupported { .. } if mutated!(self, CorruptIsDefault) => {}
            EventBody::Unsupported { original_kind, .. } => {
                self.mark(mark_of(event.seq), original_kind, at, changes);
            }
            // Of the session, not of a turn; whoever routes events has dealt with them.
            EventBody::SessionStarted { .. }
            | EventBody::SessionRenamed { .. }
            | EventBody::ModelChosen { .. }
            | EventBody::FolderChosen { .. }
            | EventBody::OptionsChosen { .. }
            | EventBody::HistoryRewound { .. }
            | EventBody::HistoryRestored { .. }
            // Of the library's stream.
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
            | EventBody::ModelOptionsChanged { .. }
            | EventBody::ModelPullStarted { .. }
            | EventBody::ModelPullEnded { .. }
            | EventBody::PricesChosen { .. }
            | EventBody::LogSalvaged { .. } => {}
        }
    }

    /// Whether an event has no place after the terminal.
    fn needs_a_running_turn(body: &EventBody) -> bool {
        match body {
            EventBody::UserMessageAdded { .. }
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
            | EventBody::ComputerSlept { .. }
            | EventBody::TurnEnded { .. } => true,
            EventBody::SessionListed { .. }
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
            | EventBody::Unsupported { .. } => false,
        }
    }

    fn append(
        &mut self,
        item: ItemId,
        part: Part,
        offset: u64,
        text: &str,
        at: Timestamp,
        changes: &mut Vec<Change>,
    ) {
        let turn = self.view.turn;
        let position = self.position(item);
        let Some(position) = position else {
            if offset == 0 {
                let body = ItemBody::Text {
                    part,
                    text: text.to_owned(),
                    open: true,
                };
                self.add(item, body, at, changes);
            } else {
                self.mark_damaged(item, DAMAGED_TEXT, at, changes);
            }
            return;
        };
        let anywhere = mutated!(self, AnyOffset);
        let Some(view) = self.view.items.get_mut(position) else {
            return;
        };
        match &mut view.body {
            // A fragment that fits is right even after one that did not, so it is kept.
            ItemBody::Text {
                part: own,
                text: grown,
                open: _,
            } if *own == part && (grown.len() as u64 == offset || anywhere) => {
                grown.push_str(text);
                view.changed_at = at;
                changes.push(Change::TextGrew { turn, item });
            }
            ItemBody::Text { .. }
            | ItemBody::UserMessage { .. }
            | ItemBody::ToolCall { .. }
            | ItemBody::Compacted { .. }
            | ItemBody::Unsupported { .. } => self.mark_damaged(item, DAMAGED_TEXT, at, changes),
        }
    }

    /// Adds an item; a second one of the same number is damage, not a replacement.
    fn add(&mut self, item: ItemId, body: ItemBody, at: Timestamp, changes: &mut Vec<Change>) {
        if self.index.contains_key(&item) {
            self.mark_damaged(item, DAMAGED_RECORD, at, changes);
            return;
        }
        self.close_text(changes);
        self.index.insert(item, self.view.items.len());
        self.view.items.push(ItemView {
            item,
            began_at: at,
            changed_at: at,
            body,
        });
        let turn = self.view.turn;
        changes.push(Change::ItemAdded { turn, item });
    }

    /// Moves a tool call forward; never back, and its first result stands.
    fn move_tool(&mut self, item: ItemId, to: ToolState, at: Timestamp, changes: &mut Vec<Change>) {
        let turn = self.view.turn;
        let view = match self.position(item) {
            Some(position) => self.view.items.get_mut(position),
            None => None,
        };
        if let Some(view) = view
            && let ItemBody::ToolCall { state, .. } = &mut view.body
        {
            let forward = match (&*state, &to) {
                (ToolState::Requested, ToolState::Running { .. } | ToolState::Finished { .. })
                | (ToolState::Running { .. }, ToolState::Finished { .. }) => true,
                (
                    ToolState::Requested | ToolState::Running { .. } | ToolState::Finished { .. },
                    ToolState::Requested | ToolState::Running { .. } | ToolState::Finished { .. },
                ) => false,
            };
            if forward {
                *state = to;
                view.changed_at = at;
                changes.push(Change::ItemChanged { turn, item });
                return;
            }
        }
        self.mark_damaged(item, DAMAGED_RECORD, at, changes);
    }

    /// The question stands at every call that shares it.
    fn ask(
        &mut self,
        item: ItemId,
        calls: &[ItemId],
        intent: &Intent,
        may_have_run: bool,
        at: Timestamp,
        changes: &mut Vec<Change>,
    ) {
        let turn = self.view.turn;
        for call in calls {
            let Some(view) = self
                .position(*call)
                .and_then(|position| self.view.items.get_mut(position))
            else {
                self.mark_damaged(*call, DAMAGED_RECORD, at, changes);
                continue;
            };
            match &mut view.body {
                ItemBody::ToolCall {
                    approval: approval @ None,
                    ..
                } => {
                    *approval = Some(ApprovalView {
                        item,
                        intent: intent.clone(),
                        may_have_run,
                        asked_at: at,
                        resolution: None,
                    });
                    view.changed_at = at;
                    changes.push(Change::ItemChanged { turn, item: *call });
                }
                ItemBody::ToolCall { .. }
                | ItemBody::UserMessage { .. }
                | ItemBody::Text { .. }
                | ItemBody::Compacted { .. }
                | ItemBody::Unsupported { .. } => {
                    self.mark_damaged(*call, DAMAGED_RECORD, at, changes);
                }
            }
        }
    }

    /// The first answer stands; a second one is marked.
    fn resolve(
        &mut self,
        question: ItemId,
        resolution: Resolution,
        at: Timestamp,
        changes: &mut Vec<Change>,
    ) {
        let turn = self.view.turn;
        let mut found = false;
        // A question and its calls stand at the end of the turn: they are of its last step.
        for view in self.view.items.iter_mut().rev() {
            let item = view.item;
            let ItemBody::ToolCall {
                approval: Some(approval),
                ..
            } = &mut view.body
            else {
                continue;
            };
            if approval.item == question && approval.resolution.is_none() {
                approval.resolution = Some(resolution);
                view.changed_at = at;
                changes.push(Change::ItemChanged { turn, item });
                found = true;
            }
        }
        if !found {
            self.mark_damaged(question, DAMAGED_RECORD, at, changes);
        }
    }

    fn end_attempt(
        &mut self,
        step: u32,
        attempt: Option<u32>,
        state: AttemptState,
        at: Timestamp,
        changes: &mut Vec<Change>,
    ) {
        let open = self.view.attempts.iter_mut().rev().find(|view| {
            view.step == step
                && attempt.is_none_or(|attempt| view.attempt == attempt)
                && view.state == AttemptState::Open
        });
        match open {
            Some(view) => view.state = state,
            None => self.view.attempts.push(AttemptView {
                step,
                attempt: attempt.unwrap_or(1),
                model: self.view.model.clone(),
                purpose: Purpose::Answer,
                started_at: at,
                state,
            }),
        }
        changes.push(Change::TurnChanged(self.view.turn));
    }

    /// A text that was taken for the answer was none. One that is not there, or no text, is damage.
    fn find_reasoning(&mut self, item: ItemId, at: Timestamp, changes: &mut Vec<Change>) {
        let turn = self.view.turn;
        let position = self.position(item);
        if let Some(view) = position.and_then(|position| self.view.items.get_mut(position))
            && let ItemBody::Text { part, open, .. } = &mut view.body
        {
            *part = Part::Reasoning;
            *open = false;
            view.changed_at = at;
            changes.push(Change::ItemChanged { turn, item });
            return;
        }
        self.mark_damaged(item, DAMAGED_RECORD, at, changes);
    }

    /// Closes the text that was open. When it last changed stays the moment of its last text: that is how long it took.
    fn close_text(&mut self, changes: &mut Vec<Change>) {
        let turn = self.view.turn;
        if let Some(view) = self.view.items.last_mut()
            && let ItemBody::Text { open, .. } = &mut view.body
            && *open
        {
            *open = false;
            let item = view.item;
            changes.push(Change::ItemChanged { turn, item });
        }
    }

    /// At the end of the turn: a call that started and has no result was abandoned, and one that did not start never will.
    /// The engine writes these results itself; this is for a log in which they are missing.
    fn close_tools(&mut self, at: Timestamp, changes: &mut Vec<Change>) {
        let turn = self.view.turn;
        for view in &mut self.view.items {
            let item = view.item;
            let ItemBody::ToolCall {
                state, approval, ..
            } = &mut view.body
            else {
                continue;
            };
            if let Some(approval) = approval
                && approval.resolution.is_none()
            {
                approval.resolution = Some(Resolution::Expired);
                changes.push(Change::ItemChanged { turn, item });
            }
            let (outcome, effect) = match state {
                ToolState::Requested => (
                    ToolOutcome::NotRun {
                        why: "the turn ended before it started".to_owned(),
                    },
                    Effect::None,
                ),
                ToolState::Running { .. } => (ToolOutcome::Abandoned, Effect::Unknown),
                ToolState::Finished { .. } => continue,
            };
            *state = ToolState::Finished {
                outcome,
                effect,
                at,
            };
            view.changed_at = at;
            changes.push(Change::ItemChanged { turn, item });
        }
    }

    fn mark_damaged(&mut self, item: ItemId, kind: &str, at: Timestamp, changes: &mut Vec<Change>) {
        self.mark(ItemId::new(MARK_DAMAGED | item.get()), kind, at, changes);
    }

    /// Adds a mark, once.
    fn mark(&mut self, mark: ItemId, kind: &str, at: Timestamp, changes: &mut Vec<Change>) {
        if !self.index.contains_key(&mark) {
            let kind = kind.to_owned();
            self.add(
                mark,
                ItemBody::Unsupported {
                    original_kind: kind,
                },
                at,
                changes,
            );
        }
    }

    /// Where an item is. Text nearly always goes to the last one.
    fn position(&self, item: ItemId) -> Option<usize> {
        match self.view.items.last() {
            Some(last) if last.item == item => Some(self.view.items.len() - 1),
            Some(_) | None => self.index.get(&item).copied(),
        }
    }
}

fn mark_of(seq: Seq) -> ItemId {
    ItemId::new(MARK | seq.get())
}
