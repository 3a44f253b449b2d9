//! The turn, decided: what follows from what. No IO, no clock, no async.
//!
//! Invariant: a machine that has ended stays ended, and it ends exactly once: `End` is the last effect it ever gives.
//! A tool runs only after its step has ended with the provider's own end marker, and not after a token limit.
//! Once something of a step was shown, no second attempt is made for that step.
//! Not here: how anything is done (`driver`), and when (the driver's timers).

use protocol::{
    CancelledBy, Effect as ToolEffect, EventBody, Failure, FailureCode, FinishReason,
    InterruptedWhy, ItemId, ModelRef, Part, StopReason, ToolOutcome, TurnOutcome,
};

use crate::{
    Harness,
    gateway::{AttemptError, Retry, StepEnd},
    mutant::mutated,
};

use super::Cause;

/// Requests for one answer, the first included.
pub(super) const ATTEMPTS_MAX: u32 = 3;

/// Answers of one turn. The last one is asked for without tools, so that the turn ends in words.
const STEPS_MAX: u32 = 24;

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
    /// The model called a tool; the call is whole.
    Call {
        name: String,
        arguments: String,
        call_id: Option<String>,
    },
    /// The provider's end marker was seen.
    AttemptEnded(StepEnd),
    /// It was not.
    AttemptFailed(AttemptError),
    /// The wait before the next attempt is over.
    RetryDue,
    /// A tool ended.
    ToolEnded {
        item: ItemId,
        outcome: ToolOutcome,
        effect: ToolEffect,
    },
    /// Somebody or something ended the turn from outside.
    Cancelled(Cause),
}

/// What is to be done, in this order.
#[derive(Debug, PartialEq)]
pub(crate) enum Effect {
    /// Write this; any buffered text goes before it.
    Record(EventBody),
    /// Write this soon; texts of one item may be joined.
    Append {
        item: ItemId,
        part: Part,
        text: String,
    },
    /// Ask the model.
    CallModel { tools: Tools },
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
    /// Tools run; these have no result yet.
    RunningTools { open: Vec<ItemId> },
    /// `End` was given.
    Ended,
}

#[derive(Debug)]
struct Call {
    item: ItemId,
    name: String,
    arguments: String,
}

/// One turn.
#[derive(Debug)]
pub(crate) struct Machine {
    model: ModelRef,
    /// Tools that exist, by name.
    tools: Vec<String>,
    state: State,
    step: u32,
    attempt: u32,
    /// Whether anything of this step was shown.
    shown: bool,
    next_item: ItemId,
    /// The text item that grows.
    open_text: Option<(ItemId, Part)>,
    /// The calls of this step.
    calls: Vec<Call>,
    /// Varies the waits of different turns, so that they do not retry in step; 0 to 999.
    jitter: u64,
    harness: Harness,
}

impl Machine {
    pub(crate) fn new(model: ModelRef, tools: Vec<String>, next_item: ItemId, jitter: u64) -> Self {
        Self {
            model,
            tools,
            state: State::New,
            step: 0,
            attempt: 0,
            shown: false,
            next_item,
            open_text: None,
            calls: Vec::new(),
            jitter: jitter % 1_000,
            harness: Harness::default(),
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
        match (input, &self.state) {
            (_, State::Ended) => {}
            (Input::Begin, State::New) => self.next_step(&mut out),
            (Input::Text { part, text }, State::Streaming) => self.text(part, text, &mut out),
            (
                Input::Call {
                    name,
                    arguments,
                    call_id,
                },
                State::Streaming,
            ) => {
                self.call(name, arguments, call_id, &mut out);
            }
            (Input::AttemptEnded(end), State::Streaming) => self.attempt_ended(end, &mut out),
            (Input::AttemptFailed(error), State::Streaming) => self.attempt_failed(error, &mut out),
            (Input::RetryDue, State::Waiting) => self.dial(&mut out),
            (
                Input::ToolEnded {
                    item,
                    outcome,
                    effect,
                },
                State::RunningTools { .. },
            ) => {
                self.tool_ended(item, outcome, effect, &mut out);
            }
            (Input::Cancelled(cause), _) => self.cancelled(cause, &mut out),
            (
                Input::Begin
                | Input::Text { .. }
                | Input::Call { .. }
                | Input::AttemptEnded(_)
                | Input::AttemptFailed(_)
                | Input::RetryDue
                | Input::ToolEnded { .. },
                State::New | State::Streaming | State::Waiting | State::RunningTools { .. },
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
        self.dial(out);
    }

    fn dial(&mut self, out: &mut Vec<Effect>) {
        self.attempt += 1;
        self.state = State::Streaming;
        out.push(Effect::Record(EventBody::StepStarted {
            step: self.step,
            attempt: self.attempt,
            model: self.model.clone(),
        }));
        let is_last = self.step >= STEPS_MAX && !mutated!(self.harness, NoStepLimit);
        let tools = if is_last || self.tools.is_empty() {
            Tools::Withheld
        } else {
            Tools::Offered
        };
        out.push(Effect::CallModel { tools });
    }

    fn mint_item(&mut self) -> ItemId {
        let item = self.next_item;
        self.next_item = item.next();
        item
    }

    fn text(&mut self, part: Part, text: String, out: &mut Vec<Effect>) {
        if text.is_empty() {
            return;
        }
        self.shown = true;
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
    ) {
        self.shown = true;
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
    }

    fn attempt_ended(&mut self, end: StepEnd, out: &mut Vec<Effect>) {
        self.open_text = None;
        out.push(Effect::Record(EventBody::StepEnded {
            step: self.step,
            finish: end.finish,
            usage: end.usage,
            timings: end.timings,
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
        let mut open = Vec::new();
        for mut call in std::mem::take(&mut self.calls) {
            if matches!(call.arguments.trim(), "" | "null") {
                // How many servers write "no arguments"; a tool that needs some says so itself.
                call.arguments = "{}".to_owned();
            }
            if let Some(why) = self.cannot_run(&call) {
                out.push(finished(
                    call.item,
                    ToolOutcome::Failed { message: why },
                    ToolEffect::None,
                ));
                continue;
            }
            open.push(call.item);
            out.push(Effect::RunTool {
                item: call.item,
                name: call.name,
                arguments: call.arguments,
            });
        }
        if open.is_empty() {
            self.next_step(out);
        } else {
            self.state = State::RunningTools { open };
        }
    }

    /// Why a call is told to the model as failed instead of being run.
    fn cannot_run(&self, call: &Call) -> Option<String> {
        if !self.tools.contains(&call.name) {
            let known = self.tools.join(", ");
            return Some(format!(
                "there is no tool named {:?}; the tools are: {known}",
                call.name
            ));
        }
        match serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&call.arguments) {
            Ok(_) => None,
            Err(_) => Some("the arguments are not one JSON object, so the tool was not run".into()),
        }
    }

    fn tool_ended(
        &mut self,
        item: ItemId,
        outcome: ToolOutcome,
        effect: ToolEffect,
        out: &mut Vec<Effect>,
    ) {
        let State::RunningTools { open } = &mut self.state else {
            return;
        };
        let before = open.len();
        open.retain(|other| *other != item);
        if open.len() == before {
            // A second result for a call: the first one stands.
            return;
        }
        let all_done = open.is_empty();
        out.push(finished(item, outcome, effect));
        if all_done {
            self.next_step(out);
        }
    }

    fn attempt_failed(&mut self, error: AttemptError, out: &mut Vec<Effect>) {
        let AttemptError { failure, mut retry } = error;
        if mutated!(self.harness, IgnoreRetryAfter) && retry != Retry::Never {
            retry = Retry::Backoff;
        }
        let shown = self.shown && !mutated!(self.harness, RetryAfterContent);
        let wait = match retry {
            Retry::Never => None,
            Retry::Backoff => Some((BACKOFF_MS << (self.attempt - 1).min(6)) + self.jitter),
            // Loading was waited for already, as long as it may take: see the driver.
            Retry::WhenLoaded(_) => None,
            Retry::After(wait) => {
                let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
                (ms <= RETRY_AFTER_MS_MAX).then_some(ms.saturating_add(self.jitter / 10))
            }
        };
        let retry_in_ms = wait.filter(|_| !shown && self.attempt < ATTEMPTS_MAX);
        out.push(Effect::Record(EventBody::AttemptFailed {
            step: self.step,
            attempt: self.attempt,
            failure: failure.clone(),
            retry_in_ms,
        }));
        match retry_in_ms {
            Some(ms) => {
                self.state = State::Waiting;
                out.push(Effect::Wait {
                    ms,
                    attempt: self.attempt + 1,
                    failure,
                });
            }
            None => {
                self.close_calls(out);
                self.end(TurnOutcome::Failed { failure }, out);
            }
        }
    }

    fn cancelled(&mut self, cause: Cause, out: &mut Vec<Effect>) {
        out.push(Effect::StopWork);
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
                        "The turn reached its limit of {} minutes of work; what was written until then is kept.",
                        limit_ms.div_ceil(60_000)
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

    /// Every call gets its one result, also when the turn ends under it.
    fn close_calls(&mut self, out: &mut Vec<Effect>) {
        self.leave_calls("the turn ended before the call could run", out);
        if let State::RunningTools { open } = &mut self.state {
            for item in std::mem::take(open) {
                // It had started, and nobody saw it end.
                out.push(finished(item, ToolOutcome::Abandoned, ToolEffect::Unknown));
            }
        }
    }

    fn end(&mut self, outcome: TurnOutcome, out: &mut Vec<Effect>) {
        self.state = State::Ended;
        out.push(Effect::End(outcome));
    }
}

fn finished(item: ItemId, outcome: ToolOutcome, effect: ToolEffect) -> Effect {
    Effect::Record(EventBody::ToolCallFinished {
        item,
        outcome,
        effect,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use protocol::{ProviderId, Timings, Usage};

    use super::*;

    fn machine() -> Machine {
        let model = ModelRef {
            provider: ProviderId::from_bits(1),
            provider_name: "box".into(),
            model: "m".into(),
        };
        Machine::new(model, vec!["current_time".into()], ItemId::new(2), 0)
    }

    fn begun() -> Machine {
        let mut machine = machine();
        machine.step(Input::Begin);
        machine
    }

    fn say(text: &str) -> Input {
        Input::Text {
            part: Part::Answer,
            text: text.into(),
        }
    }

    fn call(name: &str, arguments: &str) -> Input {
        Input::Call {
            name: name.into(),
            arguments: arguments.into(),
            call_id: None,
        }
    }

    fn end(finish: FinishReason) -> Input {
        Input::AttemptEnded(StepEnd {
            finish,
            usage: Usage::default(),
            timings: Timings::default(),
        })
    }

    fn cut(retry: Retry) -> Input {
        let failure = Failure::new(FailureCode::StreamCut, "cut");
        Input::AttemptFailed(AttemptError { failure, retry })
    }

    fn outcome(effects: &[Effect]) -> Option<&TurnOutcome> {
        effects.iter().find_map(|e| match e {
            Effect::End(outcome) => Some(outcome),
            _ => None,
        })
    }

    #[test]
    fn an_answer_with_its_end_marker_completes_the_turn() {
        let mut m = begun();
        assert!(matches!(
            m.step(say("hi")).as_slice(),
            [Effect::Append { .. }]
        ));
        let effects = m.step(end(FinishReason::Stop));
        assert_eq!(
            outcome(&effects),
            Some(&TurnOutcome::Completed {
                stop: StopReason::EndOfTurn
            })
        );
    }

    #[test]
    fn nothing_follows_the_end() {
        let mut m = begun();
        m.step(say("hi"));
        m.step(end(FinishReason::Stop));
        for input in [
            say("more"),
            end(FinishReason::Stop),
            cut(Retry::Backoff),
            Input::Cancelled(Cause::UserStop),
        ] {
            assert_eq!(m.step(input), []);
        }
    }

    #[test]
    fn a_failure_before_content_is_tried_again_and_not_more_than_the_limit() {
        let mut m = begun();
        let mut dials = 1;
        loop {
            let effects = m.step(cut(Retry::Backoff));
            if outcome(&effects).is_some() {
                break;
            }
            assert!(effects.iter().any(|e| matches!(e, Effect::Wait { .. })));
            m.step(Input::RetryDue);
            dials += 1;
        }
        assert_eq!(dials, ATTEMPTS_MAX);
    }

    #[test]
    fn a_failure_after_content_ends_the_turn_whatever_the_server_says() {
        for retry in [Retry::Backoff, Retry::After(Duration::ZERO), Retry::Never] {
            let mut m = begun();
            m.step(say("half an"));
            let effects = m.step(cut(retry));
            assert!(
                matches!(outcome(&effects), Some(TurnOutcome::Failed { .. })),
                "{retry:?}"
            );
        }
    }

    #[test]
    fn a_wait_of_five_hours_is_not_waited_for() {
        let mut m = begun();
        let effects = m.step(cut(Retry::After(Duration::from_secs(18_000))));
        assert!(matches!(
            outcome(&effects),
            Some(TurnOutcome::Failed { .. })
        ));
    }

    #[test]
    fn a_tool_runs_only_after_its_step_ended_well() {
        let mut m = begun();
        let effects = m.step(call("current_time", "{}"));
        assert!(!effects.iter().any(|e| matches!(e, Effect::RunTool { .. })));
        let effects = m.step(end(FinishReason::Stop));
        assert!(effects.iter().any(|e| matches!(e, Effect::RunTool { .. })));
        let effects = m.step(Input::ToolEnded {
            item: ItemId::new(2),
            outcome: ToolOutcome::Succeeded {
                output: "noon".into(),
            },
            effect: ToolEffect::None,
        });
        assert!(
            effects
                .iter()
                .any(|e| matches!(e, Effect::CallModel { .. }))
        );
    }

    #[test]
    fn calls_of_a_cut_or_limited_step_never_run_and_get_a_result() {
        for input in [end(FinishReason::Length), cut(Retry::Backoff)] {
            let mut m = begun();
            m.step(call("current_time", "{}"));
            let effects = m.step(input);
            assert!(!effects.iter().any(|e| matches!(e, Effect::RunTool { .. })));
            let results = effects
                .iter()
                .filter(|e| matches!(e, Effect::Record(EventBody::ToolCallFinished { .. })));
            assert_eq!(results.count(), 1);
        }
    }

    #[test]
    fn unknown_tools_and_broken_arguments_are_told_to_the_model_not_run() {
        for (name, arguments) in [
            ("rm", "{}"),
            ("current_time", "{"),
            ("current_time", r#"{"a":1}mul{"b":2}"#),
            ("current_time", "[]"),
        ] {
            let mut m = begun();
            m.step(call(name, arguments));
            let effects = m.step(end(FinishReason::ToolCalls));
            assert!(
                !effects.iter().any(|e| matches!(e, Effect::RunTool { .. })),
                "{name} {arguments}"
            );
            assert!(
                effects
                    .iter()
                    .any(|e| matches!(e, Effect::CallModel { .. }))
            );
        }
    }

    #[test]
    fn stopping_closes_running_tools_with_an_unknown_effect() {
        let mut m = begun();
        m.step(call("current_time", "{}"));
        m.step(end(FinishReason::ToolCalls));
        let effects = m.step(Input::Cancelled(Cause::UserStop));
        assert!(effects.contains(&finished(
            ItemId::new(2),
            ToolOutcome::Abandoned,
            ToolEffect::Unknown
        )));
        assert_eq!(
            outcome(&effects),
            Some(&TurnOutcome::Cancelled {
                by: CancelledBy::User
            })
        );
    }

    #[test]
    fn a_model_that_always_calls_is_asked_a_last_time_without_tools() {
        let mut m = machine();
        let mut effects = m.step(Input::Begin);
        let mut dials = 0;
        while outcome(&effects).is_none() {
            let Some(Effect::CallModel { tools }) = effects.last() else {
                panic!("{effects:?}")
            };
            dials += 1;
            assert_eq!(*tools == Tools::Withheld, dials == STEPS_MAX);
            m.step(call("current_time", "{}"));
            effects = m.step(end(FinishReason::ToolCalls));
            if let Some(Effect::RunTool { item, .. }) = effects.last() {
                let outcome = ToolOutcome::Succeeded {
                    output: String::new(),
                };
                effects = m.step(Input::ToolEnded {
                    item: *item,
                    outcome,
                    effect: ToolEffect::None,
                });
            }
        }
        assert_eq!(dials, STEPS_MAX);
        assert_eq!(
            outcome(&effects),
            Some(&TurnOutcome::Completed {
                stop: StopReason::StepLimit
            })
        );
    }

    #[test]
    fn reasoning_and_answer_are_items_of_their_own_in_the_order_they_came() {
        let mut m = begun();
        let parts = [Part::Reasoning, Part::Answer, Part::Answer, Part::Reasoning];
        let items: Vec<u64> = parts
            .into_iter()
            .flat_map(|part| {
                m.step(Input::Text {
                    part,
                    text: "x".into(),
                })
            })
            .map(|e| match e {
                Effect::Append { item, .. } => item.get(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(items, [2, 3, 3, 4]);
    }
}
