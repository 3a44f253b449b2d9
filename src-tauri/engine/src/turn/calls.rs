//! The calls of a step that have no result yet.
//!
//! Invariant: every call that enters leaves with exactly one result, and every question that is asked is answered or
//! expires, once. A call that changes something starts only after it was allowed; the same call twice in one step is
//! asked about once and runs once.

use protocol::{Effect as ToolEffect, EventBody, Intent, ItemId, Resolution, ToolOutcome};

use super::machine::{Effect, Prospect, finished};
use crate::{Harness, mutant::mutated};

/// A call as the model made it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Call {
    pub(super) item: ItemId,
    pub(super) name: String,
    pub(super) arguments: String,
}

/// How far a call has come.
#[derive(Debug, PartialEq)]
enum Stage {
    /// What it would do is being found out.
    Preparing,
    /// The user is asked.
    Asking,
    /// It runs.
    Running,
    /// It is the same as this one, and ends with it.
    Following(ItemId),
}

#[derive(Debug, PartialEq)]
struct Open {
    call: Call,
    stage: Stage,
}

/// In the order they were made.
#[derive(Debug, Default, PartialEq)]
pub(super) struct OpenCalls(Vec<Open>);

impl OpenCalls {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first open question, if nothing else is going on.
    pub(super) fn only_asks(&self) -> Option<ItemId> {
        let works = |open: &Open| matches!(open.stage, Stage::Preparing | Stage::Running);
        if self.0.iter().any(works) {
            return None;
        }
        let asks = self.0.iter().find(|open| open.stage == Stage::Asking);
        asks.map(|open| open.call.item)
    }

    /// The tool a question is about.
    pub(super) fn tool(&self, question: ItemId) -> Option<&str> {
        self.asking(question).map(|open| open.call.name.as_str())
    }

    fn asking(&self, question: ItemId) -> Option<&Open> {
        self.0
            .iter()
            .find(|open| open.call.item == question && open.stage == Stage::Asking)
    }

    /// Takes a call in, and starts it if it changes nothing.
    pub(super) fn begin(
        &mut self,
        call: Call,
        changes: bool,
        harness: &Harness,
        out: &mut Vec<Effect>,
    ) {
        let Call {
            item,
            name,
            arguments,
        } = call.clone();
        let stage = if changes {
            let same = self.0.iter().find(|open| {
                open.stage == Stage::Preparing
                    && open.call.name == name
                    && open.call.arguments == arguments
                    && !mutated!(harness, FollowerRunsToo)
            });
            match same {
                Some(first) => Stage::Following(first.call.item),
                None => {
                    out.push(Effect::Prepare {
                        item,
                        name,
                        arguments,
                    });
                    Stage::Preparing
                }
            }
        } else {
            out.push(Effect::RunTool {
                item,
                name,
                arguments,
            });
            Stage::Running
        };
        self.0.push(Open { call, stage });
    }

    /// It is known what a call would do.
    pub(super) fn prepared(
        &mut self,
        item: ItemId,
        found: Prospect,
        allowed: &[String],
        out: &mut Vec<Effect>,
    ) {
        let Some(open) = self.at(item, &Stage::Preparing) else {
            return;
        };
        match found {
            Prospect::Refused(message) => {
                let outcome = ToolOutcome::Failed { message };
                self.leave(item, outcome, ToolEffect::None, out);
            }
            Prospect::Harmless => open.run(out),
            // What may have run already is asked about, whatever was allowed.
            Prospect::Changes {
                may_have_run: false,
                ..
            } if allowed.contains(&open.call.name) => open.run(out),
            Prospect::Changes {
                intent,
                may_have_run,
            } => {
                open.stage = Stage::Asking;
                self.ask(item, intent, may_have_run, out);
            }
        }
    }

    fn ask(&self, item: ItemId, intent: Intent, may_have_run: bool, out: &mut Vec<Effect>) {
        let shares = |open: &&Open| open.call.item == item || open.stage == Stage::Following(item);
        let calls = self.0.iter().filter(shares);
        let tool = self.tool(item).unwrap_or_default().to_owned();
        out.push(Effect::Record(EventBody::ApprovalRequested {
            item,
            calls: calls.map(|open| open.call.item).collect(),
            tool,
            intent,
            may_have_run,
        }));
    }

    /// The user's word is in the log.
    pub(super) fn answered(
        &mut self,
        question: ItemId,
        resolution: Resolution,
        out: &mut Vec<Effect>,
    ) {
        let Some(open) = self.at(question, &Stage::Asking) else {
            return;
        };
        match resolution {
            Resolution::AllowedOnce | Resolution::AllowedForSession => open.run(out),
            Resolution::Denied | Resolution::Expired => {
                self.leave(question, ToolOutcome::Denied, ToolEffect::None, out);
            }
        }
    }

    /// A tool ended. A second result for a call changes nothing: the first one stands.
    pub(super) fn ended(
        &mut self,
        item: ItemId,
        outcome: ToolOutcome,
        effect: ToolEffect,
        out: &mut Vec<Effect>,
    ) {
        if self.at(item, &Stage::Running).is_some() {
            self.leave(item, outcome, effect, out);
        }
    }

    /// The turn ends under them.
    pub(super) fn close(&mut self, out: &mut Vec<Effect>) {
        for Open { call, stage } in std::mem::take(&mut self.0) {
            let item = call.item;
            if stage == Stage::Asking {
                out.push(Effect::Record(EventBody::ApprovalResolved {
                    item,
                    resolution: Resolution::Expired,
                }));
            }
            out.push(match stage {
                // It had started, and nobody saw it end.
                Stage::Running => finished(item, ToolOutcome::Abandoned, ToolEffect::Unknown),
                Stage::Preparing | Stage::Asking | Stage::Following(_) => {
                    let why = "the turn ended before the call could run".to_owned();
                    finished(item, ToolOutcome::NotRun { why }, ToolEffect::None)
                }
            });
        }
    }

    fn at(&mut self, item: ItemId, stage: &Stage) -> Option<&mut Open> {
        self.0
            .iter_mut()
            .find(|open| open.call.item == item && open.stage == *stage)
    }

    /// A call has its result, and so have those that are the same.
    fn leave(
        &mut self,
        item: ItemId,
        outcome: ToolOutcome,
        effect: ToolEffect,
        out: &mut Vec<Effect>,
    ) {
        let (left, stay) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(|open| open.call.item == item || open.stage == Stage::Following(item));
        self.0 = stay;
        let left: Vec<Open> = left;
        for open in left {
            out.push(if open.call.item == item {
                finished(item, outcome.clone(), effect)
            } else {
                finished(open.call.item, same_as(&outcome), ToolEffect::None)
            });
        }
    }
}

impl Open {
    fn run(&mut self, out: &mut Vec<Effect>) {
        self.stage = Stage::Running;
        out.push(Effect::RunTool {
            item: self.call.item,
            name: self.call.name.clone(),
            arguments: self.call.arguments.clone(),
        });
    }
}

/// The result of a call that another one of the same step stood for.
fn same_as(outcome: &ToolOutcome) -> ToolOutcome {
    match outcome {
        ToolOutcome::Succeeded { .. } => ToolOutcome::NotRun {
            why: "it is the same call as another one of this step, which ran once".to_owned(),
        },
        other => other.clone(),
    }
}
