//! The turn, decided: what follows from what. No IO, no clock, no async.
//!
//! Invariant: a machine that has ended stays ended, and it ends exactly once: `End` is the last effect it ever gives.
//! A tool runs only after its step has ended with the provider's own end marker, and not after a token limit; one that
//! changes something only after the user allowed it. Every call and every question gets exactly one end.
//! Once something of a step was shown, no second attempt is made for that step; once something of the turn was shown, no
//! other model takes over.
//! Not here: how anything is done, and when (the driver, in `turn`).

use protocol::{
    CancelledBy, Effect as ToolEffect, EventBody, Failure, FailureCode, FinishReason, Intent,
    InterruptedWhy, ItemId, ModelRef, Part, Purpose, Resolution, StopReason, ToolOutcome, TurnId,
    TurnOutcome, Unread,
};

use crate::{
    Harness,
    gateway::{AttemptError, Retry, Room, StepEnd},
    mutant::mutated,
};

use super::{
    Cause,
    calls::{Call, OpenCalls},
};

/// Requests to one model for one answer, the first included.
pub(super) const ATTEMPTS_MAX: u32 = 3;

/// Further attempts of a whole turn: a server that fails again and again does not get three tries at each of many steps.
const RETRIES_MAX: u32 = 6;

/// Answers of one turn. The last one is asked for without tools, so that the turn ends in words.
const STEPS_MAX: u32 = 24;

/// Steps in a row with the same calls: this many run, the next one is answered with a warning, and one more ends the turn.
const SAME_STEPS_MAX: u32 = 2;

/// The wait before the second attempt; doubles with each further one.
const BACKOFF_MS: u64 = 1_000;

/// A server that asks for a longer wait than this is believed, and the turn ends saying when it may work again.
const RETRY_AFTER_MS_MAX: u64 = 120_000;

/// What happened.
#[derive(Debug)]
pub(crate) enum Input {
    /// The turn is in the log.
    Begin,
    /// The model said something.
    Text { part: Part, text: String },
    /// What it has said so far in this answer was no answer yet.
    FoundReasoning,
    /// The model called a tool; the call is whole.
    Call {
        name: String,
        arguments: String,
        call_id: Option<String>,
        /// Why it must not be run all the same.
        unclear: Option<String>,
    },
    /// A call that the end of its attempt cut.
    CallCut { name: String, arguments: String },
    /// The provider's end marker was seen.
    /// With it comes what of the conversation the model cannot have seen.
    AttemptEnded(StepEnd, Option<Unread>),
    /// It was not.
    AttemptFailed(AttemptError),
    /// The wait before the next attempt is over.
    RetryDue,
    /// The conversation was summed up, or why not.
    Compacted(Result<Compaction, Failure>),
    /// What a call that changes something would do is known.
    Prepared { item: ItemId, found: Prospect },
    /// The user answered a question, and the answer is in the log.
    Answered {
        item: ItemId,
        resolution: Resolution,
    },
    /// A tool ended.
    ToolEnded {
        item: ItemId,
        outcome: ToolOutcome,
        effect: ToolEffect,
    },
    /// Somebody or something ended the turn from outside.
    Cancelled(Cause),
}

/// What a call that changes something would do.
#[derive(Debug)]
pub(crate) enum Prospect {
    /// Nothing: it cannot be done, in words for the model.
    Refused(String),
    /// Nothing that the user would have to be asked about.
    Harmless,
    /// This. `may_have_run`: the same call was cut before, and nobody knows whether it took effect.
    Changes { intent: Intent, may_have_run: bool },
}

/// What the model is told in place of a part of the conversation.
#[derive(Debug, PartialEq)]
pub(crate) struct Compaction {
    pub(crate) through: Option<TurnId>,
    pub(crate) summary: String,
    pub(crate) set_aside: Vec<ItemId>,
}

/// What is to be done, in this order.
#[derive(Debug, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "a turn has a handful of them at a time, and most are this one"
)]
pub(crate) enum Effect {
    /// Write this; any buffered text goes before it.
    Record(EventBody),
    /// Write this soon; texts of one item may be joined.
    Append {
        item: ItemId,
        part: Part,
        text: String,
    },
    /// Ask this model of the turn's candidates.
    CallModel { candidate: usize, tools: Tools },
    /// Sum up the conversation by this candidate, which could not take it; then give [`Input::Compacted`].
    /// `step` and `attempt` are those that could not be.
    Compact {
        candidate: usize,
        step: u32,
        attempt: u32,
        overflow: Failure,
        room: Option<Room>,
    },
    /// Find out what a call would do, then give [`Input::Prepared`].
    Prepare {
        item: ItemId,
        name: String,
        arguments: String,
    },
    /// Run a tool; its start is recorded and synced before it runs.
    RunTool {
        item: ItemId,
        name: String,
        arguments: String,
    },
    /// Wait, then give [`Input::RetryDue`].
    Wait {
        ms: u64,
        attempt: u32,
        failure: Failure,
    },
    /// Stop whatever runs: the request, tools, a wait.
    StopWork,
    /// The turn is over.
    End(TurnOutcome),
}

/// Whether the model may call tools in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tools {
    Offered,
    Withheld,
}

/// Where the turn stands.
#[derive(Debug, PartialEq)]
enum State {
    /// Before `Begin`.
    New,
    /// An attempt runs.
    Streaming,
    /// Between attempts.
    Waiting,
    /// The conversation is summed up.
    Compacting,
    /// Calls of the last step have no result yet.
    RunningTools(OpenCalls),
    /// `End` was given.
    Ended,
}

/// What a turn is decided with.
#[derive(Debug)]
pub(crate) struct Rules {
    /// Who is asked, in order. At least one.
    pub(crate) candidates: Vec<ModelRef>,
    /// Tools that exist, by name.
    pub(crate) tools: Vec<String>,
    /// Of these, the ones that change something and need the user's word.
    pub(crate) changing: Vec<String>,
    /// Of these, the ones the user has allowed for the session.
    pub(crate) allowed: Vec<String>,
    /// The first item that is free.
    pub(crate) next_item: ItemId,
    /// Varies the waits of different turns, so that they do not retry in step; 0 to 999.
    pub(crate) jitter: u64,
}

/// One turn.
#[derive(Debug)]
pub(crate) struct Machine {
    rules: Rules,
    state: State,
    /// The candidate that is asked.
    candidate: usize,
    /// How the ones before it failed.
    given_up: Vec<String>,
    step: u32,
    attempt: u32,
    retries: u32,
    /// Whether anything of this step was shown.
    shown: bool,
    /// Whether anything of this turn was.
    said: bool,
    compacted: bool,
    /// The text item that grows.
    open_text: Option<(ItemId, Part)>,
    /// The calls of this step.
    calls: Vec<Call>,
    /// Of these, the ones that must not be run, and why.
    unclear: Vec<(ItemId, String)>,
    /// Calls that this attempt began and did not finish: shown only if no other attempt makes up for them.
    cut: Vec<(String, String)>,
    /// The calls of the last step, and how many steps in a row they have been the same.
    same: (Vec<(String, String)>, u32),
    harness: Harness,
}

impl Machine {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            rules,
            state: State::New,
            candidate: 0,
            given_up: Vec::new(),
            step: 0,
            attempt: 0,
            retries: 0,
            shown: false,
            said: false,
            compacted: false,
            open_text: None,
            calls: Vec::new(),
            unclear: Vec::new(),
            cut: Vec::new(),
            same: (Vec::new(), 0),
            harness: Harness::default(),
        }
    }

    /// The question the turn waits for, when it waits for nothing else.
    pub(crate) fn waits_for_user(&self) -> Option<ItemId> {
        match &self.state {
            State::RunningTools(open) => open.only_asks(),
            State::New | State::Streaming | State::Waiting | State::Compacting | State::Ended => {
                None
            }
        }
    }

    /// The same, in the hands of a test.
    pub(crate) fn held_by(mut self, harness: Harness) -> Self {
        self.harness = harness;
        self
    }

    /// Decides what follows from `input`. What comes after the end, or out of place, changes nothing.
    pub(crate) fn step(&mut self, input: Input) -> Vec<Effect> {
        let mut out = Vec::new();
        match (input, &mut self.state) {
            (_, State::Ended) => {}
            (Input::Cancelled(cause), _) => self.cancelled(cause, &mut out),
            (Input::Begin, State::New) => self.next_step(&mut out),
            (Input::Text { part, text }, State::Streaming) => self.text(part, text, &mut out),
            (Input::FoundReasoning, State::Streaming) => {
                if let Some((item, Part::Answer)) = self.open_text {
                    self.open_text = None;
                    out.push(Effect::Record(EventBody::TextFoundReasoning { item }));
                }
            }
            (
                Input::Call {
                    name,
                    arguments,
                    call_id,
                    unclear,
                },
                State::Streaming,
            ) => {
                let item = self.call(name, arguments, call_id, &mut out);
                self.unclear.extend(unclear.map(|why| (item, why)));
            }
            (Input::CallCut { name, arguments }, State::Streaming) => {
                self.cut.push((name, arguments));
            }
            (Input::AttemptEnded(end, unread), State::Streaming) => {
                self.attempt_ended(end, unread, &mut out);
            }
            (Input::AttemptFailed(error), State::Streaming) => self.attempt_failed(error, &mut out),
            (Input::RetryDue, State::Waiting) => self.dial(&mut out),
            (Input::Compacted(result), State::Compacting) => self.compacted(result, &mut out),
            (Input::Prepared { item, found }, State::RunningTools(open)) => {
                open.prepared(item, found, &self.rules.allowed, &mut out);
                self.after_tools(&mut out);
            }
            (Input::Answered { item, resolution }, State::RunningTools(open)) => {
                if let (Resolution::AllowedForSession, Some(tool)) = (resolution, open.tool(item)) {
                    self.rules.allowed.push(tool.to_owned());
                }
                open.answered(item, resolution, &mut out);
                self.after_tools(&mut out);
            }
            (
                Input::ToolEnded {
                    item,
                    outcome,
                    effect,
                },
                State::RunningTools(open),
            ) => {
                open.ended(item, outcome, effect, &mut out);
                self.after_tools(&mut out);
            }
            (
                Input::Begin
                | Input::Text { .. }
                | Input::FoundReasoning
                | Input::Call { .. }
                | Input::CallCut { .. }
                | Input::AttemptEnded(..)
                | Input::AttemptFailed(_)
                | Input::RetryDue
                | Input::Compacted(_)
                | Input::Prepared { .. }
                | Input::Answered { .. }
                | Input::ToolEnded { .. },
                State::New
                | State::Streaming
                | State::Waiting
                | State::Compacting
                | State::RunningTools(_),
            ) => {}
        }
        out
    }

    fn next_step(&mut self, out: &mut Vec<Effect>) {
        self.step += 1;
        self.attempt = 0;
        self.shown = false;
        self.open_text = None;
        self.calls.clear();
        self.unclear.clear();
        self.dial(out);
    }

    fn dial(&mut self, out: &mut Vec<Effect>) {
        let Some(model) = self.rules.candidates.get(self.candidate) else {
            let failure = super::panicked();
            return self.end(TurnOutcome::Failed { failure }, out);
        };
        self.attempt += 1;
        self.cut.clear();
        self.state = State::Streaming;
        out.push(Effect::Record(EventBody::StepStarted {
            step: self.step,
            attempt: self.attempt,
            model: model.clone(),
            purpose: Purpose::Answer,
        }));
        let is_last = self.step >= STEPS_MAX && !mutated!(self.harness, NoStepLimit);
        let tools = if is_last || self.rules.tools.is_empty() {
            Tools::Withheld
        } else {
            Tools::Offered
        };
        out.push(Effect::CallModel {
            candidate: self.candidate,
            tools,
        });
    }

    fn mint_item(&mut self) -> ItemId {
        let item = self.rules.next_item;
        self.rules.next_item = item.next();
        item
    }

    fn text(&mut self, part: Part, text: String, out: &mut Vec<Effect>) {
        if text.is_empty() {
            return;
        }
        self.shown = true;
        self.said = true;
        let item = match self.open_text {
            Some((item, open)) if open == part => item,
            Some(_) | None => {
                let item = self.mint_item();
                self.open_text = Some((item, part));
                item
            }
        };
        out.push(Effect::Append { item, part, text });
    }

    fn call(
        &mut self,
        name: String,
        arguments: String,
        call_id: Option<String>,
        out: &mut Vec<Effect>,
    ) -> ItemId {
        self.shown = true;
        self.said = true;
        self.open_text = None;
        let item = self.mint_item();
        out.push(Effect::Record(EventBody::ToolCallRequested {
            item,
            step: self.step,
            name: name.clone(),
            arguments: arguments.clone(),
            call_id,
        }));
        self.calls.push(Call {
            item,
            name,
            arguments,
        });
        item
    }

    /// No other attempt will make the calls that this one began: the reader sees what came of them. They are never run.
    fn show_cut_calls(&mut self, out: &mut Vec<Effect>) {
        let said = self.said;
        for (name, arguments) in std::mem::take(&mut self.cut) {
            let item = self.call(name, arguments, None, out);
            if let Some(call) = self.calls.pop() {
                let why = if is_object(&call.arguments) {
                    "the answer was cut before the call could run"
                } else {
                    "cut before its arguments were whole"
                };
                let outcome = ToolOutcome::NotRun { why: why.into() };
                out.push(finished(item, outcome, ToolEffect::None));
            }
        }
        // The failure still counts everybody who was asked.
        self.said = said;
    }

    fn attempt_ended(&mut self, end: StepEnd, unread: Option<Unread>, out: &mut Vec<Effect>) {
        self.show_cut_calls(out);
        self.open_text = None;
        out.push(Effect::Record(EventBody::StepEnded {
            step: self.step,
            finish: end.finish,
            usage: end.usage,
            timings: end.timings,
            unread,
            unseen_images: end.unseen_images,
            untold_tools: end.untold_tools,
        }));
        let stop = match end.finish {
            FinishReason::Length
                if mutated!(self.harness, RunOnParse) && !self.calls.is_empty() =>
            {
                None
            }
            FinishReason::Length => Some(StopReason::Length),
            FinishReason::Filter => Some(StopReason::Filter),
            FinishReason::Stop if self.calls.is_empty() => Some(StopReason::EndOfTurn),
            FinishReason::Unknown if self.calls.is_empty() => Some(StopReason::Unknown),
            FinishReason::ToolCalls if self.calls.is_empty() => Some(StopReason::EndOfTurn),
            FinishReason::Stop | FinishReason::Unknown | FinishReason::ToolCalls => None,
        };
        match stop {
            Some(stop) => {
                // Calls of a cut step never run: half an argument list may happen to parse.
                self.leave_calls("the answer was cut before the call", out);
                self.end(TurnOutcome::Completed { stop }, out);
            }
            None if self.step >= STEPS_MAX && !mutated!(self.harness, NoStepLimit) => {
                self.leave_calls("the turn reached its limit of steps", out);
                self.end(
                    TurnOutcome::Completed {
                        stop: StopReason::StepLimit,
                    },
                    out,
                );
            }
            None => self.run_tools(out),
        }
    }

    fn run_tools(&mut self, out: &mut Vec<Effect>) {
        let (last, times) = &mut self.same;
        let asked: Vec<(String, String)> = self
            .calls
            .iter()
            .map(|call| (call.name.clone(), call.arguments.clone()))
            .collect();
        *times = if *last == asked { *times + 1 } else { 1 };
        *last = asked;
        let times = *times;
        if times > SAME_STEPS_MAX + 1 && !mutated!(self.harness, NoToolLoop) {
            let name = self.calls.first().map_or("", |call| call.name.as_str());
            let failure = Failure::new(
                FailureCode::ToolLoop,
                format!(
                    "The model kept asking for the same tool ({name}, {times} times in a row), also after it was told so."
                ),
            );
            self.leave_calls("the model repeated it, although it was told not to", out);
            return self.end(TurnOutcome::Failed { failure }, out);
        }
        if times > SAME_STEPS_MAX {
            self.leave_calls(
                "the same call with the same arguments ran just before, and its result stands above; answer with it, or do something else",
                out,
            );
            return self.next_step(out);
        }
        let mut open = OpenCalls::default();
        for mut call in std::mem::take(&mut self.calls) {
            if matches!(call.arguments.trim(), "" | "null") {
                // How many servers write "no arguments"; a tool that needs some says so itself.
                call.arguments = "{}".to_owned();
            }
            let unclear = self.unclear.iter().find(|(item, _)| *item == call.item);
            if let Some((_, why)) = unclear {
                let outcome = ToolOutcome::NotRun { why: why.clone() };
                out.push(finished(call.item, outcome, ToolEffect::None));
                continue;
            }
            if let Some(why) = self.cannot_run(&call) {
                out.push(finished(
                    call.item,
                    ToolOutcome::Failed { message: why },
                    ToolEffect::None,
                ));
                continue;
            }
            let changes = self.rules.changing.contains(&call.name);
            open.begin(call, changes, &self.harness, out);
        }
        self.state = State::RunningTools(open);
        self.after_tools(out);
    }

    /// With every result in, the model is told them.
    fn after_tools(&mut self, out: &mut Vec<Effect>) {
        if let State::RunningTools(open) = &self.state
            && open.is_empty()
        {
            self.next_step(out);
        }
    }

    /// Why a call is told to the model as failed instead of being run.
    fn cannot_run(&self, call: &Call) -> Option<String> {
        if !self.rules.tools.contains(&call.name) {
            let known = self.rules.tools.join(", ");
            return Some(format!(
                "there is no tool named {:?}; the tools are: {known}",
                call.name
            ));
        }
        (!is_object(&call.arguments))
            .then(|| "the arguments are not one JSON object, so the tool was not run".into())
    }

    fn attempt_failed(&mut self, error: AttemptError, out: &mut Vec<Effect>) {
        let AttemptError { failure, mut retry } = error;
        if mutated!(self.harness, IgnoreRetryAfter) && retry != Retry::Never {
            retry = Retry::Backoff;
        }
        let compacted = self.compacted && !mutated!(self.harness, CompactAgain);
        if let Retry::Shorter(room) = retry
            && !self.shown
            && !compacted
            && !mutated!(self.harness, ThresholdOnly)
        {
            // Once in a turn: a conversation that still does not fit then never will.
            self.compacted = true;
            self.state = State::Compacting;
            self.fail_attempt(&failure, None, None, out);
            out.push(Effect::Compact {
                candidate: self.candidate,
                step: self.step,
                attempt: self.attempt,
                overflow: failure,
                room,
            });
            return;
        }
        if let Some(next) = self.next_candidate(&failure) {
            let told = (!mutated!(self.harness, SilentFailover)).then_some(next);
            self.fail_attempt(&failure, None, told, out);
            self.give_up_candidate(&failure);
            self.candidate += 1;
            self.attempt = 0;
            return self.dial(out);
        }
        let wait = match retry {
            Retry::Never | Retry::Shorter(_) => None,
            Retry::Backoff => {
                Some((BACKOFF_MS << (self.attempt - 1).min(6)) + self.rules.jitter % 1_000)
            }
            // Loading was waited for already, as long as it may take: see `turn`.
            Retry::WhenLoaded(_) => None,
            Retry::After(wait) => {
                let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
                (ms <= RETRY_AFTER_MS_MAX)
                    .then_some(ms.saturating_add(self.rules.jitter % 1_000 / 10))
            }
        };
        let shown = self.shown && !mutated!(self.harness, RetryAfterContent);
        let may_retry = !shown && self.attempt < ATTEMPTS_MAX && self.retries < RETRIES_MAX;
        let retry_in_ms = wait.filter(|_| may_retry);
        if retry_in_ms.is_none() {
            self.show_cut_calls(out);
        }
        self.fail_attempt(&failure, retry_in_ms, None, out);
        match retry_in_ms {
            Some(ms) => {
                self.retries += 1;
                self.state = State::Waiting;
                out.push(Effect::Wait {
                    ms,
                    attempt: self.attempt + 1,
                    failure,
                });
            }
            None => {
                self.close_calls(out);
                let failure = self.all_failed(failure);
                self.end(TurnOutcome::Failed { failure }, out);
            }
        }
    }

    fn fail_attempt(
        &self,
        failure: &Failure,
        retry_in_ms: Option<u64>,
        next: Option<ModelRef>,
        out: &mut Vec<Effect>,
    ) {
        out.push(Effect::Record(EventBody::AttemptFailed {
            step: self.step,
            attempt: self.attempt,
            failure: failure.clone(),
            retry_in_ms,
            next,
        }));
    }

    /// Who is asked instead. Nobody once something was said: half an answer of one model and half of another is none.
    fn next_candidate(&self, failure: &Failure) -> Option<ModelRef> {
        let ours = matches!(failure.code, FailureCode::Panicked | FailureCode::Aborted);
        if (self.said && !mutated!(self.harness, FailoverAfterContent)) || ours {
            return None;
        }
        self.rules.candidates.get(self.candidate + 1).cloned()
    }

    fn give_up_candidate(&mut self, failure: &Failure) {
        if let Some(model) = self.rules.candidates.get(self.candidate) {
            self.given_up.push(format!(
                "{} on {}: {}",
                model.model, model.provider_name, failure.message
            ));
        }
    }

    /// One failure for all of them, a line for each.
    fn all_failed(&mut self, last: Failure) -> Failure {
        if self.given_up.is_empty() || self.said {
            return last;
        }
        self.give_up_candidate(&last);
        let message = format!("None of the {} models could answer.", self.given_up.len());
        Failure {
            retry_at: last.retry_at,
            ..Failure::new(FailureCode::AllCandidatesFailed, message)
        }
        .with_detail(self.given_up.join("\n"))
    }

    fn compacted(&mut self, result: Result<Compaction, Failure>, out: &mut Vec<Effect>) {
        match result {
            Ok(Compaction {
                through,
                summary,
                set_aside,
            }) => {
                let item = self.mint_item();
                out.push(Effect::Record(EventBody::HistoryCompacted {
                    item,
                    through,
                    summary,
                    set_aside,
                }));
                self.dial(out);
            }
            Err(failure) => {
                if let Some(_next) = self.next_candidate(&failure) {
                    self.give_up_candidate(&failure);
                    self.candidate += 1;
                    self.attempt = 0;
                    return self.dial(out);
                }
                let failure = self.all_failed(failure);
                self.end(TurnOutcome::Failed { failure }, out);
            }
        }
    }

    fn cancelled(&mut self, cause: Cause, out: &mut Vec<Effect>) {
        out.push(Effect::StopWork);
        self.show_cut_calls(out);
        self.close_calls(out);
        let outcome = match cause {
            Cause::Ceiling { .. } if mutated!(self.harness, OutcomeByErrorType) => {
                TurnOutcome::Completed {
                    stop: StopReason::EndOfTurn,
                }
            }
            Cause::Shutdown(_) if mutated!(self.harness, ShutdownIsFailure) => {
                TurnOutcome::Failed {
                    failure: Failure::new(FailureCode::ProviderError, "The answer was cut."),
                }
            }
            Cause::UserStop => TurnOutcome::Cancelled {
                by: CancelledBy::User,
            },
            Cause::Ceiling { limit_ms } => TurnOutcome::Failed {
                failure: Failure::new(
                    FailureCode::TurnTimeout,
                    format!(
                        "The turn reached its limit of {} of work; what was written until then is kept.",
                        in_words(limit_ms)
                    ),
                ),
            },
            Cause::Shutdown(why) => TurnOutcome::Interrupted { why },
            Cause::StorageFailed => TurnOutcome::Interrupted {
                why: InterruptedWhy::StorageFailed,
            },
        };
        self.end(outcome, out);
    }

    /// The calls of this step will not run, and each is told why.
    fn leave_calls(&mut self, why: &str, out: &mut Vec<Effect>) {
        for call in std::mem::take(&mut self.calls) {
            let outcome = ToolOutcome::NotRun {
                why: why.to_owned(),
            };
            out.push(finished(call.item, outcome, ToolEffect::None));
        }
    }

    /// Every call gets its one result and every question its one answer, also when the turn ends under them.
    fn close_calls(&mut self, out: &mut Vec<Effect>) {
        self.leave_calls("the turn ended before the call could run", out);
        if let State::RunningTools(open) = &mut self.state {
            open.close(out);
        }
    }

    fn end(&mut self, outcome: TurnOutcome, out: &mut Vec<Effect>) {
        self.state = State::Ended;
        out.push(Effect::End(outcome));
    }
}

fn is_object(arguments: &str) -> bool {
    serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(arguments).is_ok()
}

/// A limit as its reader thinks of it.
fn in_words(ms: u64) -> String {
    let seconds = ms.div_ceil(1_000);
    if seconds < 120 {
        format!("{seconds} seconds")
    } else {
        format!("{} minutes", seconds.div_ceil(60))
    }
}

pub(super) fn finished(item: ItemId, outcome: ToolOutcome, effect: ToolEffect) -> Effect {
    Effect::Record(EventBody::ToolCallFinished {
        item,
        outcome,
        effect,
    })
}

#[cfg(test)]
mod tests;
