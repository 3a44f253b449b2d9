//! The context meter: how much of a model's context a conversation takes, by the server's own counts.
//!
//! Invariant: a number is shown only if a server counted it. It says "about", because the next request is not the last
//! one: reasoning is not sent back, and the next message is not there yet. What was said since the last count makes it
//! "at least"; what nobody counted is unknown, and so is a context of which nobody knows the size.

use protocol::{AttemptState, AttemptView, FailureCode};

use crate::words;

/// How much a conversation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Used {
    /// Nothing was said yet.
    Nothing,
    /// No server has counted it as it is now.
    Unknown,
    /// About so many tokens.
    About(u64),
    /// That, and what was said since.
    AtLeast(u64),
    /// More than fits: the server left out the beginning of the last request.
    Overfull,
}

/// The meter's reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextMeter {
    /// How much is taken.
    pub used: Used,
    /// How much there is, where anybody knows.
    pub size: Option<u64>,
}

impl ContextMeter {
    /// Of the requests of each turn of a conversation, oldest turn first, at a model with a context of `size` tokens.
    pub fn of<'a>(
        turns: impl DoubleEndedIterator<Item = &'a [AttemptView]>,
        size: Option<u64>,
    ) -> Self {
        Self {
            used: used(turns),
            size: size.filter(|size| *size > 0),
        }
    }

    /// The part that is taken, in percent; at most 100.
    pub fn percent(self) -> Option<u64> {
        let size = self.size?;
        match self.used {
            Used::Nothing | Used::Unknown => None,
            Used::Overfull => Some(100),
            Used::About(used) | Used::AtLeast(used) => {
                Some((used.saturating_mul(100) / size).min(100))
            }
        }
    }

    /// Whether there is so little room left that the reader should know.
    pub fn is_nearly_full(self) -> bool {
        const NEARLY_FULL_PERCENT: u64 = 80;
        self.used == Used::Overfull || self.percent().is_some_and(|p| p >= NEARLY_FULL_PERCENT)
    }

    /// In as few words as fit beside a composer; nothing before anything was said.
    pub fn brief(self) -> Option<String> {
        match (self.used, self.percent()) {
            (Used::Nothing, _) => None,
            (Used::Unknown, _) => Some("context: unknown".to_owned()),
            (Used::Overfull, _) => Some("context: full".to_owned()),
            (Used::About(_) | Used::AtLeast(_), Some(percent)) => {
                Some(format!("context: {percent} %"))
            }
            (Used::About(used) | Used::AtLeast(used), None) => {
                Some(format!("context: {}", words::tokens(used)))
            }
        }
    }

    /// In words; nothing before anything was said.
    pub fn words(self) -> Option<String> {
        let about = match self.used {
            Used::Nothing => return None,
            Used::Unknown => {
                return Some("how full the context is, is not known".to_owned());
            }
            Used::Overfull => {
                return Some("the context is full: the beginning was left out".to_owned());
            }
            Used::About(used) => format!("about {}", words::count(used)),
            Used::AtLeast(used) => format!("at least {}", words::count(used)),
        };
        Some(match (self.size, self.percent()) {
            (Some(size), Some(percent)) => {
                format!("{about} of {} tokens ({percent} %)", words::count(size))
            }
            (_, _) => format!("{about} tokens; how many fit is not known"),
        })
    }
}

fn used<'a>(turns: impl DoubleEndedIterator<Item = &'a [AttemptView]>) -> Used {
    let mut said_since = false;
    let mut anything = false;
    for attempts in turns.rev() {
        anything = true;
        for attempt in attempts.iter().rev() {
            match &attempt.state {
                // Room was made, or had to be: what was counted before is no measure any more.
                _ if !attempt.purpose.is_answer() => return Used::Unknown,
                AttemptState::Failed { failure, .. }
                    if failure.code == FailureCode::ContextOverflow =>
                {
                    return Used::Unknown;
                }
                AttemptState::Open => said_since = true,
                AttemptState::Failed { .. } => {}
                AttemptState::Ended {
                    unread: Some(_), ..
                } => return Used::Overfull,
                AttemptState::Ended { usage, .. } => {
                    let (Some(prompt), Some(completion)) =
                        (usage.prompt_tokens, usage.completion_tokens)
                    else {
                        return Used::Unknown;
                    };
                    let used = prompt.saturating_add(completion);
                    return if said_since {
                        Used::AtLeast(used)
                    } else {
                        Used::About(used)
                    };
                }
            }
        }
        // A turn without any count: its message at least came after the last one.
        said_since = true;
    }
    if anything {
        Used::Unknown
    } else {
        Used::Nothing
    }
}

#[cfg(test)]
mod tests {
    use protocol::{
        Failure, FinishReason, ModelRef, ProviderId, Purpose, Timestamp, Timings, Unread, Usage,
    };

    use super::*;

    fn attempt(purpose: Purpose, state: AttemptState) -> AttemptView {
        AttemptView {
            step: 1,
            attempt: 1,
            model: ModelRef {
                provider: ProviderId::from_bits(1),
                provider_name: "box".to_owned(),
                model: "m".to_owned(),
            },
            purpose,
            started_at: Timestamp::from_millis(1),
            state,
        }
    }

    fn ended(prompt: Option<u64>, completion: Option<u64>, unread: Option<Unread>) -> AttemptState {
        AttemptState::Ended {
            finish: FinishReason::Stop,
            usage: Usage {
                prompt_tokens: prompt,
                completion_tokens: completion,
                ..Usage::default()
            },
            timings: Timings::default(),
            unread,
            unseen_images: 0,
            untold_tools: 0,
            at: Timestamp::from_millis(9),
        }
    }

    fn answered(prompt: u64, completion: u64) -> AttemptView {
        attempt(Purpose::Answer, ended(Some(prompt), Some(completion), None))
    }

    fn failed(code: FailureCode) -> AttemptView {
        let state = AttemptState::Failed {
            failure: Failure::new(code, "no"),
            retry_in_ms: None,
            next: None,
            at: Timestamp::from_millis(9),
        };
        attempt(Purpose::Answer, state)
    }

    fn said(turns: &[Vec<AttemptView>], size: Option<u64>) -> Option<String> {
        ContextMeter::of(turns.iter().map(Vec::as_slice), size).words()
    }

    const UNKNOWN: &str = "how full the context is, is not known";

    #[test]
    fn the_last_count_is_what_the_conversation_takes() {
        let turns = [
            vec![answered(100, 50)],
            vec![
                answered(200, 60),
                answered(3_000, 120),
                failed(FailureCode::StreamCut),
            ],
        ];
        assert_eq!(
            said(&turns, Some(8_192)).as_deref(),
            Some("about 3,120 of 8,192 tokens (38 %)")
        );
        assert_eq!(
            said(&turns, None).as_deref(),
            Some("about 3,120 tokens; how many fit is not known")
        );
        assert_eq!(said(&turns, Some(0)), said(&turns, None), "no size is none");
        assert_eq!(said(&[], Some(8_192)), None);
    }

    #[test]
    fn what_nobody_counted_is_unknown_and_what_came_since_makes_it_at_least() {
        let counted = vec![answered(100, 50)];
        let uncounted = attempt(Purpose::Answer, ended(None, Some(5), None));
        assert_eq!(
            said(&[counted.clone(), vec![uncounted]], Some(1_000)).as_deref(),
            Some(UNKNOWN)
        );
        let running = attempt(Purpose::Answer, AttemptState::Open);
        for turn in [vec![running], vec![]] {
            assert_eq!(
                said(&[counted.clone(), turn], Some(1_000)).as_deref(),
                Some("at least 150 of 1,000 tokens (15 %)")
            );
        }
    }

    #[test]
    fn a_count_from_before_room_was_made_and_one_of_the_summary_itself_do_not_count() {
        let summary = attempt(Purpose::Summary, ended(Some(7_000), Some(200), None));
        let mut turn = vec![answered(900, 50), failed(FailureCode::ContextOverflow)];
        assert_eq!(said(&[turn.clone()], Some(1_000)).as_deref(), Some(UNKNOWN));
        turn.push(summary);
        assert_eq!(said(&[turn.clone()], Some(1_000)).as_deref(), Some(UNKNOWN));
        turn.push(answered(300, 20));
        assert_eq!(
            said(&[turn], Some(1_000)).as_deref(),
            Some("about 320 of 1,000 tokens (32 %)")
        );
    }

    #[test]
    fn a_conversation_whose_beginning_was_left_out_is_full_whatever_the_server_counted() {
        let unread = Unread {
            sent_tokens_min: 5_000,
            read_tokens: 4_096,
            context_tokens: None,
            through: None,
            turns: 0,
            partly: None,
            preamble: false,
        };
        let cut = [attempt(
            Purpose::Answer,
            ended(Some(4_096), Some(9), Some(unread)),
        )];
        let meter = ContextMeter::of([&cut[..]].into_iter(), Some(131_072));
        assert!(meter.is_nearly_full());
        assert_eq!(
            meter.words().as_deref(),
            Some("the context is full: the beginning was left out")
        );
    }
}
