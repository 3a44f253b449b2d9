//! The answer of the turn that is followed, as far as it was printed, and what is said beside it.
//!
//! Invariant: the answer on stdout is the committed one, each character once, whatever is asked or answered twice.
//! Kept by: every item knows how much of it was printed.

use std::{
    collections::{HashMap, HashSet},
    io,
};

use protocol::{
    AttemptState, Event, EventBody, Failure, ItemBody, ItemId, ModelRef, Part, Phase, Resolution,
    Timestamp, ToolState, TranscriptPage, TurnId, TurnOutcome,
};

use crate::arguments::Talk;

use super::{
    print::{self, Listener, Margin},
    question::{self, Question},
    words,
};

/// Whether the answer reaches anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Printing {
    Goes,
    /// The reader went away, which is theirs to decide.
    Unheard,
    /// stdout takes nothing more.
    Failed,
}

/// The answer, as far as it was printed.
pub(super) struct Answer {
    margin: Margin,
    talk: Talk,
    turn: TurnId,
    printed: HashMap<ItemId, usize>,
    last_item: Option<ItemId>,
    /// Its last words were thoughts.
    only_thinks: bool,
    ends_line: bool,
    whispered: bool,
    last_words: Option<String>,
    /// The tools by their calls, and the calls whose results were told.
    calls: HashMap<ItemId, String>,
    told: HashSet<ItemId>,
    /// Step and attempt of the failures that were told.
    failures: HashSet<(u32, u32)>,
    /// When the computer woke, of the times that were told.
    naps: HashSet<Timestamp>,
    /// Steps of which it was said that the model had not seen all.
    unread: HashSet<u32>,
    /// Questions without an answer in the log, in the order they were asked.
    pub(super) questions: Vec<Question>,
    /// Questions that were answered from here.
    answered: HashSet<ItemId>,
    pub(super) printing: Printing,
    pub(super) outcome: Option<TurnOutcome>,
}

impl Answer {
    pub(super) fn new(margin: Margin, talk: Talk, turn: TurnId) -> Self {
        Self {
            margin,
            talk,
            turn,
            printed: HashMap::new(),
            only_thinks: false,
            last_item: None,
            ends_line: true,
            whispered: false,
            last_words: None,
            calls: HashMap::new(),
            told: HashSet::new(),
            failures: HashSet::new(),
            naps: HashSet::new(),
            unread: HashSet::new(),
            questions: Vec::new(),
            answered: HashSet::new(),
            printing: Printing::Goes,
            outcome: None,
        }
    }

    /// Goes on with another turn of the same session.
    pub(super) fn go_on_with(&mut self, turn: TurnId) {
        self.turn = turn;
        // Steps and attempts are counted anew in every turn.
        self.failures.clear();
        self.unread.clear();
        self.last_words = None;
        self.outcome = None;
    }

    /// The turn it is the answer of.
    pub(super) const fn turn(&self) -> TurnId {
        self.turn
    }

    pub(super) async fn apply(&mut self, event: &Event) {
        if event.turn != Some(self.turn) {
            return;
        }
        match &event.body {
            EventBody::TextAppended {
                item,
                part,
                offset,
                text,
            } => {
                let offset = usize::try_from(*offset).unwrap_or(usize::MAX);
                self.text(*item, *part, offset, text).await;
            }
            EventBody::TurnEnded { outcome } => self.outcome = Some(outcome.clone()),
            EventBody::ToolCallRequested {
                item,
                name,
                arguments,
                ..
            } => self.called(*item, name, arguments).await,
            EventBody::ToolCallFinished {
                item,
                outcome,
                effect,
            } => {
                if self.told.insert(*item) {
                    let tool = self.calls.get(item).map_or("a tool", String::as_str);
                    let words = words::tool_result(tool, outcome, *effect);
                    self.aside(words).await;
                }
            }
            EventBody::ApprovalRequested {
                item,
                calls: _,
                tool,
                intent,
                may_have_run,
            } => self.questions.push(Question {
                item: *item,
                tool: tool.clone(),
                intent: intent.clone(),
                may_have_run: *may_have_run,
            }),
            EventBody::ApprovalResolved { item, resolution } => {
                self.resolved(*item, *resolution).await;
            }
            EventBody::AttemptFailed {
                step,
                attempt,
                failure,
                retry_in_ms,
                next,
            } => {
                let at = (*step, *attempt);
                self.attempt_failed(at, failure, *retry_in_ms, next.as_ref())
                    .await;
            }
            EventBody::HistoryCompacted {
                item, set_aside, ..
            } => {
                if self.told.insert(*item) {
                    self.aside(words::compacted(set_aside.len())).await;
                }
            }
            EventBody::StepEnded {
                step,
                unread,
                unseen_images,
                untold_tools,
                ..
            } => {
                let lines = engine::words::shortfalls(unread.as_ref(), *unseen_images, *untold_tools);
                self.shortfalls(*step, lines).await;
            }
            EventBody::ComputerSlept { slept } => {
                if self.naps.insert(slept.to) {
                    self.aside(words::slept(slept)).await;
                }
            }
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
            | EventBody::UserMessageAdded { .. }
            | EventBody::TurnStarted { .. }
            | EventBody::StepStarted { .. }
            // What went to stdout cannot be taken back.
            | EventBody::TextFoundReasoning { .. }
            | EventBody::ToolCallStarted { .. }
            | EventBody::HistoryRewound { .. }
            | EventBody::HistoryRestored { .. }
            | EventBody::Unsupported { .. } => {}
        }
    }

    /// Prints of our turn what was not printed yet.
    pub(super) async fn catch_up(&mut self, transcript: &TranscriptPage) {
        let Some(turn) = transcript.turns.iter().find(|turn| turn.turn == self.turn) else {
            return;
        };
        for attempt in &turn.attempts {
            match &attempt.state {
                AttemptState::Failed {
                    failure,
                    retry_in_ms,
                    next,
                    ..
                } => {
                    let at = (attempt.step, attempt.attempt);
                    self.attempt_failed(at, failure, *retry_in_ms, next.as_ref())
                        .await;
                }
                AttemptState::Ended {
                    unread,
                    unseen_images,
                    untold_tools,
                    ..
                } => {
                    let lines =
                        engine::words::shortfalls(unread.as_ref(), *unseen_images, *untold_tools);
                    self.shortfalls(attempt.step, lines).await;
                }
                AttemptState::Open => {}
            }
        }
        for slept in &turn.slept {
            if self.naps.insert(slept.to) {
                self.aside(words::slept(slept)).await;
            }
        }
        for item in &turn.items {
            match &item.body {
                ItemBody::Text { part, text, .. } => self.text(item.item, *part, 0, text).await,
                ItemBody::ToolCall {
                    name,
                    arguments,
                    state,
                    ..
                } => {
                    self.called(item.item, name, arguments).await;
                    match state {
                        ToolState::Finished {
                            outcome, effect, ..
                        } if self.told.insert(item.item) => {
                            self.aside(words::tool_result(name, outcome, *effect)).await;
                        }
                        ToolState::Finished { .. }
                        | ToolState::Requested
                        | ToolState::Running { .. } => {}
                    }
                }
                ItemBody::Compacted { set_aside, .. } => {
                    if self.told.insert(item.item) {
                        self.aside(words::compacted(set_aside.len())).await;
                    }
                }
                ItemBody::UserMessage { .. } | ItemBody::Unsupported { .. } => {}
            }
        }
        // What was open before and is not any more was answered elsewhere, or has expired.
        let open = Question::open_in(turn);
        for question in std::mem::replace(&mut self.questions, open) {
            let is_open = |known: &Question| known.item == question.item;
            if !self.questions.iter().any(is_open) && !self.answered.contains(&question.item) {
                let words = format!("the question of {} has its answer already", question.tool);
                self.aside(words).await;
            }
        }
        let answered = &self.answered;
        self.questions
            .retain(|question| !answered.contains(&question.item));
        self.outcome = turn.outcome.clone();
    }

    async fn called(&mut self, item: ItemId, tool: &str, arguments: &str) {
        if self.calls.insert(item, tool.to_owned()).is_none() {
            self.aside(words::tool_call(tool, arguments)).await;
        }
    }

    async fn attempt_failed(
        &mut self,
        at: (u32, u32),
        failure: &Failure,
        retry_in_ms: Option<u64>,
        next: Option<&ModelRef>,
    ) {
        if let Some(words) = words::attempt_failed(failure, retry_in_ms, next)
            && self.failures.insert(at)
        {
            self.aside(words).await;
        }
    }

    /// A question was answered from here; its event says nothing new.
    pub(super) fn answered_here(&mut self, item: ItemId) {
        self.answered.insert(item);
        self.questions.retain(|question| question.item != item);
    }

    /// A question turned out to have an answer that did not come from here.
    pub(super) async fn resolved(&mut self, item: ItemId, resolution: Resolution) {
        let open = self.questions.iter().position(|open| open.item == item);
        let question = open.map(|open| self.questions.remove(open));
        if let (Some(question), false) = (question, self.answered.contains(&item)) {
            let words = match resolution {
                Resolution::Expired => question::resolution(resolution).to_owned(),
                Resolution::AllowedOnce | Resolution::AllowedForSession | Resolution::Denied => {
                    format!(
                        "{} was answered elsewhere: {}",
                        question.tool,
                        question::resolution(resolution)
                    )
                }
            };
            self.aside(words).await;
        }
    }

    /// What the turn is doing; while text comes, the text says it.
    pub(super) async fn status(&mut self, phase: &Phase) {
        let tells = match phase {
            Phase::Idle | Phase::Writing => false,
            Phase::Thinking => self.talk == Talk::Usual,
            Phase::Connecting { .. }
            | Phase::Waiting { .. }
            | Phase::LoadingModel { .. }
            | Phase::ReadingPrompt { .. }
            | Phase::CallingTool { .. }
            | Phase::RunningTool { .. }
            | Phase::Compacting
            | Phase::NotSaving { .. } => true,
            // The question itself stands there, a failed attempt says how it goes on, and whoever pressed Ctrl-C
            // has been told.
            Phase::Asking { .. } | Phase::Retrying { .. } | Phase::Stopping => false,
        };
        match words::phase(phase) {
            Some(words) if tells && self.last_words.as_ref() != Some(&words) => {
                self.last_words = Some(words.clone());
                self.aside(words).await
            }
            Some(_) | None => {}
        }
    }

    /// Whether the turn came to its end with a thought and no answer after it.
    pub(super) fn only_thinks(&self, outcome: &TurnOutcome) -> bool {
        self.only_thinks && matches!(outcome, TurnOutcome::Completed { .. })
    }

    /// What the model did not get of the conversation; said once for each answer.
    async fn shortfalls(&mut self, step: u32, lines: impl Iterator<Item = String>) {
        let mut lines = lines.peekable();
        if lines.peek().is_some() && self.unread.insert(step) {
            for line in lines {
                self.aside(line).await;
            }
        }
    }

    /// A line on stderr that does not begin in the middle of a line of the answer.
    pub(super) async fn aside(&mut self, words: String) {
        self.end_line().await;
        // Names of models and tools, and words of servers, are other people's: none of them begins a line of its own.
        self.margin.murmur(question::harmless_line(&words));
    }

    /// The same in the middle of a text: where the two are not seen together, the answer stays as it was written.
    pub(super) async fn remark(&mut self, words: String) {
        if print::is_stdout_watched() {
            self.aside(words).await;
        } else {
            self.margin.murmur(question::harmless_line(&words));
        }
    }

    /// Lines on stderr that were made harmless where they come from.
    pub(super) async fn quote(&mut self, words: &str) {
        self.end_line().await;
        self.margin.say(words);
    }

    async fn text(&mut self, item: ItemId, part: Part, offset: usize, text: &str) {
        let printed = self.printed.entry(item).or_default();
        let end = offset.saturating_add(text.len());
        let Some(fresh) = text.get(printed.saturating_sub(offset)..) else {
            return; // All of it was printed.
        };
        *printed = (*printed).max(end);
        self.only_thinks = part == Part::Reasoning;
        match (part, self.talk) {
            (Part::Answer, _) => self.say(item, fresh).await,
            (Part::Reasoning, Talk::Verbose) => {
                self.margin.whisper(fresh);
                self.whispered = true;
            }
            (Part::Reasoning, Talk::Usual) => {}
        }
    }

    async fn say(&mut self, item: ItemId, text: &str) {
        if text.is_empty() {
            return;
        }
        if std::mem::take(&mut self.whispered) {
            self.margin.say("");
        }
        let mut said = String::new();
        if self
            .last_item
            .replace(item)
            .is_some_and(|last| last != item)
        {
            // Two answers of one turn, with tools between them.
            said.push_str(if self.ends_line { "\n" } else { "\n\n" });
        }
        said.push_str(&print::for_stdout(text));
        self.ends_line = text.ends_with('\n');
        self.put(said).await
    }

    /// Ends the last line, so that a prompt or a pipe's reader finds it ended.
    pub(super) async fn end_line(&mut self) {
        if std::mem::take(&mut self.whispered) {
            self.margin.say("");
        }
        if !std::mem::replace(&mut self.ends_line, true) {
            self.put("\n".to_owned()).await;
        }
    }

    /// A reader who is slow holds up the printing, on a thread of its own: signals are heard all the same.
    /// Printing that fails is told once, and the turn goes on: it is kept, and can be shown.
    async fn put(&mut self, text: String) {
        match self.printing {
            Printing::Goes => {}
            Printing::Unheard | Printing::Failed => return,
        }
        let printed = tokio::task::spawn_blocking(move || print::put(&text)).await;
        match printed
            .map_err(io::Error::other)
            .and_then(|printed| printed)
        {
            Ok(Listener::There) => {}
            Ok(Listener::Gone) => self.printing = Printing::Unheard,
            Err(error) => {
                self.printing = Printing::Failed;
                self.margin
                    .complain(format_args!("the answer cannot be printed: {error}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::{
        ApprovalView, Cursor, Intent, ItemView, LogId, Origin, ProviderId, SessionId, Timestamp,
        TurnView,
    };

    use super::*;

    const AT: Timestamp = Timestamp::from_millis(1);

    fn page(questions: &[(u64, Option<Resolution>)]) -> TranscriptPage {
        let items = questions.iter().map(|&(number, resolution)| ItemView {
            item: ItemId::new(number),
            began_at: AT,
            changed_at: AT,
            body: ItemBody::ToolCall {
                name: "write_file".to_owned(),
                arguments: "{}".to_owned(),
                call_id: None,
                step: 1,
                state: ToolState::Requested,
                approval: Some(ApprovalView {
                    item: ItemId::new(number),
                    intent: Intent::WriteFile {
                        path: "/home/ada/a.txt".to_owned(),
                        before: None,
                        after: 2,
                        diff: "+x\n".to_owned(),
                        diff_left_out: 0,
                    },
                    may_have_run: false,
                    asked_at: AT,
                    resolution,
                }),
            },
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
                started_at: AT,
                items: items.collect(),
                attempts: vec![],
                outcome: None,
                slept: Vec::new(),
                ended_at: None,
            }],
            more_before: false,
            taken_out: None,
            tip: None,
            as_of: Cursor::at_start(LogId::from_bits(1)),
        }
    }

    #[tokio::test]
    async fn catching_up_finds_open_questions_and_drops_those_answered_elsewhere_or_from_here() {
        let mut answer = Answer::new(Margin::of_this_process(), Talk::Usual, TurnId::FIRST);
        let open = |answer: &Answer| -> Vec<u64> {
            let items = answer.questions.iter().map(|question| question.item.get());
            items.collect()
        };
        answer.catch_up(&page(&[(3, None), (4, None)])).await;
        assert_eq!(open(&answer), [3, 4]);
        answer.answered_here(ItemId::new(3));
        // The page is older than the answer that was given from here.
        answer
            .catch_up(&page(&[(3, None), (4, None), (5, None)]))
            .await;
        assert_eq!(open(&answer), [4, 5], "3 is not asked again");
        let elsewhere = Some(Resolution::Denied);
        answer
            .catch_up(&page(&[(3, None), (4, elsewhere), (5, None)]))
            .await;
        assert_eq!(open(&answer), [5]);
    }
}
