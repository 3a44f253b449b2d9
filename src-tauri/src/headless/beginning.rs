//! How a turn begins: with words, where the last answer stopped, or with the last message again.
//!
//! Invariant: what a session cannot go on with is refused here in words, before any server is asked.

use protocol::{
    Effect, Image, ItemBody, Op, Part, Seq, SessionId, StopReason, ToolState, TranscriptPage,
    TurnId, TurnOutcome, TurnView,
};

use super::words;

/// Why the last turn cannot be gone on with, or said again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NothingTo {
    #[error("nothing was said in this session yet; `holdfast ask --session {0}` says something")]
    Empty(SessionId),
    #[error(
        "the last answer came to its own end, so there is nothing to continue; `holdfast ask --session {0}` says \
         something new, and `holdfast retry {0}` has it written again"
    )]
    ItsOwnEnd(SessionId),
    #[error(
        "the provider's content filter ended the last answer, so there is nothing to continue; say it in other words \
         with `holdfast ask --session {0}`"
    )]
    Filtered(SessionId),
    #[error(
        "the last answer never began, so there is nothing to continue; `holdfast retry {0}` asks again"
    )]
    NeverBegan(SessionId),
}

/// What is submitted to begin the turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Start {
    Say(String, Vec<Image>),
    Continue { turn: TurnId, expected_tip: Seq },
    Retry { turn: TurnId, expected_tip: Seq },
}

impl Start {
    /// Going on where the last answer stopped.
    ///
    /// # Errors
    /// [`NothingTo`], in words.
    pub(super) fn going_on(page: &TranscriptPage) -> Result<Self, NothingTo> {
        let (last, expected_tip) = last(page)?;
        match &last.outcome {
            Some(TurnOutcome::Completed { stop }) => match stop {
                StopReason::EndOfTurn | StopReason::Unknown => {
                    return Err(NothingTo::ItsOwnEnd(page.session));
                }
                StopReason::Filter => return Err(NothingTo::Filtered(page.session)),
                StopReason::Length | StopReason::StepLimit => {}
            },
            // One that runs is refused by its session, in its own words.
            Some(
                TurnOutcome::Failed { .. }
                | TurnOutcome::Cancelled { .. }
                | TurnOutcome::Interrupted { .. },
            )
            | None => {}
        }
        if last.outcome.is_some() && !has_answer(last) {
            return Err(NothingTo::NeverBegan(page.session));
        }
        Ok(Self::Continue {
            turn: last.turn,
            expected_tip,
        })
    }

    /// The last message again.
    ///
    /// # Errors
    /// [`NothingTo::Empty`].
    pub(super) fn again(page: &TranscriptPage) -> Result<Self, NothingTo> {
        let (last, expected_tip) = last(page)?;
        Ok(Self::Retry {
            turn: last.turn,
            expected_tip,
        })
    }

    /// In a session that exists.
    pub(super) fn op_in(self, session: SessionId) -> Op {
        match self {
            Self::Say(text, images) => Op::SendMessage {
                session,
                text,
                images,
            },
            Self::Continue { turn, expected_tip } => Op::ContinueTurn {
                session,
                turn,
                expected_tip,
            },
            Self::Retry { turn, expected_tip } => Op::RetryTurn {
                session,
                turn,
                expected_tip,
            },
        }
    }
}

/// What the turn that is said again did, or may have done, to the world outside; it stays.
pub(super) fn stays(page: &TranscriptPage) -> Vec<String> {
    let items = page.turns.last().map_or(&[][..], |turn| &turn.items);
    let did = items.iter().filter_map(|item| match &item.body {
        ItemBody::ToolCall {
            name,
            arguments,
            state: ToolState::Finished { effect, .. },
            ..
        } => {
            let call = words::tool_call(name, arguments);
            match effect {
                Effect::None => None,
                Effect::Committed => Some(format!("what {call} did before stays")),
                Effect::Unknown => Some(format!(
                    "what {call} may have done before stays; whether it took effect is not known"
                )),
            }
        }
        ItemBody::ToolCall { .. }
        | ItemBody::UserMessage { .. }
        | ItemBody::Text { .. }
        | ItemBody::Compacted { .. }
        | ItemBody::Unsupported { .. } => None,
    });
    did.collect()
}

fn last(page: &TranscriptPage) -> Result<(&TurnView, Seq), NothingTo> {
    page.turns
        .last()
        .zip(page.tip)
        .ok_or(NothingTo::Empty(page.session))
}

/// Whether the model said anything to the reader, or used a tool.
fn has_answer(turn: &TurnView) -> bool {
    turn.items.iter().any(|item| match &item.body {
        ItemBody::Text { part, text, .. } => *part == Part::Answer && !text.trim().is_empty(),
        ItemBody::ToolCall { .. } => true,
        ItemBody::UserMessage { .. }
        | ItemBody::Compacted { .. }
        | ItemBody::Unsupported { .. } => false,
    })
}

#[cfg(test)]
mod tests {
    use protocol::{
        CancelledBy, Cursor, Failure, FailureCode, InterruptedWhy, ItemId, ItemView, LogId,
        ModelRef, Origin, ProviderId, Timestamp, ToolOutcome,
    };

    use super::*;

    fn page(turns: Vec<TurnView>) -> TranscriptPage {
        TranscriptPage {
            session: SessionId::from_bits(1),
            title: "T".to_owned(),
            origin: Origin::Conversation,
            model: None,
            folder: None,
            options: protocol::ModelOptions::default(),
            tip: turns.last().map(|_| Seq::new(9)),
            turns,
            more_before: false,
            taken_out: None,
            as_of: Cursor::at_start(LogId::from_bits(1)),
        }
    }

    fn item(body: ItemBody) -> ItemView {
        let at = Timestamp::from_millis(1);
        ItemView {
            item: ItemId::new(2),
            began_at: at,
            changed_at: at,
            body,
        }
    }

    fn said(text: &str) -> ItemView {
        item(ItemBody::Text {
            part: Part::Answer,
            text: text.to_owned(),
            open: false,
        })
    }

    fn wrote(effect: Effect) -> ItemView {
        item(ItemBody::ToolCall {
            name: "write_file".to_owned(),
            arguments: "{}".to_owned(),
            call_id: None,
            step: 1,
            state: ToolState::Finished {
                outcome: ToolOutcome::Abandoned,
                effect,
                at: Timestamp::from_millis(1),
            },
            approval: None,
        })
    }

    fn turn(items: Vec<ItemView>, outcome: TurnOutcome) -> TurnView {
        TurnView {
            turn: TurnId::FIRST,
            model: ModelRef {
                provider: ProviderId::from_bits(5),
                provider_name: "Ollama".to_owned(),
                model: "m".to_owned(),
            },
            started_at: Timestamp::from_millis(1),
            items,
            attempts: vec![],
            outcome: Some(outcome),
            slept: Vec::new(),
            ended_at: None,
        }
    }

    #[test]
    fn an_answer_is_continued_if_and_only_if_it_began_and_stopped_before_its_end() {
        let session = SessionId::from_bits(1);
        let completed = |stop| TurnOutcome::Completed { stop };
        let failed = TurnOutcome::Failed {
            failure: Failure::new(FailureCode::StreamCut, "cut"),
        };
        let stopped = TurnOutcome::Cancelled {
            by: CancelledBy::User,
        };
        let crashed = TurnOutcome::Interrupted {
            why: InterruptedWhy::Crash,
        };
        let cases = [
            (
                completed(StopReason::EndOfTurn),
                "text",
                Some(NothingTo::ItsOwnEnd(session)),
            ),
            (
                completed(StopReason::Unknown),
                "text",
                Some(NothingTo::ItsOwnEnd(session)),
            ),
            (
                completed(StopReason::Filter),
                "text",
                Some(NothingTo::Filtered(session)),
            ),
            (completed(StopReason::Length), "text", None),
            (completed(StopReason::StepLimit), "text", None),
            (failed.clone(), "text", None),
            (failed, " ", Some(NothingTo::NeverBegan(session))),
            (stopped, "text", None),
            (crashed.clone(), "text", None),
            (crashed, "", Some(NothingTo::NeverBegan(session))),
        ];
        for (outcome, text, refused) in cases {
            let page = page(vec![turn(vec![said(text)], outcome.clone())]);
            let start = Start::going_on(&page);
            assert_eq!(start.clone().err(), refused, "{outcome:?} after {text:?}");
            if refused.is_none() {
                assert_eq!(
                    start.unwrap().op_in(session),
                    Op::ContinueTurn {
                        session,
                        turn: TurnId::FIRST,
                        expected_tip: Seq::new(9)
                    }
                );
            }
        }
    }

    #[test]
    fn any_last_turn_can_be_retried_and_an_empty_session_offers_neither() {
        let session = SessionId::from_bits(1);
        let complete = TurnOutcome::Completed {
            stop: StopReason::EndOfTurn,
        };
        let ended = page(vec![turn(vec![said("text")], complete)]);
        assert_eq!(
            Start::again(&ended).unwrap().op_in(session),
            Op::RetryTurn {
                session,
                turn: TurnId::FIRST,
                expected_tip: Seq::new(9)
            }
        );
        let empty = page(vec![]);
        assert_eq!(Start::again(&empty), Err(NothingTo::Empty(session)));
        assert_eq!(Start::going_on(&empty), Err(NothingTo::Empty(session)));
    }

    #[test]
    fn a_retry_says_what_stays_of_the_first_try() {
        let crashed = || TurnOutcome::Interrupted {
            why: InterruptedWhy::Crash,
        };
        let of = |effect| stays(&page(vec![turn(vec![wrote(effect)], crashed())]));
        assert_eq!(of(Effect::None), [""; 0]);
        assert_eq!(
            of(Effect::Committed),
            ["what write_file {} did before stays"]
        );
        assert_eq!(
            of(Effect::Unknown),
            ["what write_file {} may have done before stays; whether it took effect is not known"]
        );
    }
}
