//! How a model wants to be asked, learnt from what it refused.
//!
//! Models differ in how long an answer may be and in how thinking is asked for, and no list of ours would stay true.
//! Invariant: each lesson asks for less than before, so that learning comes to an end.

use protocol::{Failure, FailureCode};

/// Asked for until the model says that it is too much.
const OUTPUT_TOKENS: u64 = 32_000;

/// How one model of one server is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::gateway) struct Ways {
    output_max: Option<u64>,
    pub(super) thinking: Thinking,
}

/// How it is asked to think.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::gateway) enum Thinking {
    /// As much as it likes.
    #[default]
    Adaptive,
    /// Up to a number of tokens: models before the other way.
    Budget,
    /// Not at all: it knows nothing of it, or does not let itself be told.
    Unsaid,
}

impl Ways {
    /// Tokens that an answer may have.
    pub(super) fn output_max(self) -> u64 {
        self.output_max.unwrap_or(OUTPUT_TOKENS)
    }

    /// The ways to ask after this refusal; none if it teaches nothing.
    pub(in crate::gateway) fn after(self, failure: &Failure) -> Option<Self> {
        if failure.code != FailureCode::BadRequest {
            return None;
        }
        let words = failure.detail.as_deref().unwrap_or(&failure.message);
        if words.contains("max_tokens")
            && let Some(limit) = limit(words).filter(|limit| *limit < self.output_max())
        {
            return Some(Self {
                output_max: Some(limit),
                ..self
            });
        }
        if !words.to_lowercase().contains("thinking") {
            return None;
        }
        let thinking = match self.thinking {
            Thinking::Adaptive => Thinking::Budget,
            Thinking::Budget => Thinking::Unsaid,
            Thinking::Unsaid => return None,
        };
        Some(Self { thinking, ..self })
    }
}

/// The limit in "max_tokens: 32000 > 8192, which is the maximum …".
fn limit(words: &str) -> Option<u64> {
    let (_, after) = words.split_once("max_tokens")?;
    let (_, limit) = after.split_once('>')?;
    let digits: String = limit
        .trim_start()
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    digits.parse().ok().filter(|limit| *limit > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(words: &str) -> Failure {
        Failure::new(FailureCode::BadRequest, "refused").with_detail(words)
    }

    #[test]
    fn a_model_that_writes_shorter_answers_is_asked_for_as_much_as_it_allows() {
        let ways = Ways::default()
            .after(&refused(
                "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens for m\"}}",
            ))
            .unwrap();
        assert_eq!(ways.output_max(), 8192);
        let again = refused("max_tokens: 8192 > 8192, which is the maximum");
        assert_eq!(
            ways.after(&again),
            None,
            "what teaches nothing is no lesson"
        );
    }

    #[test]
    fn a_model_that_refuses_one_way_to_think_is_asked_the_older_one_and_then_none() {
        let said = refused("adaptive thinking is not supported on this model");
        let budget = Ways::default().after(&said).unwrap();
        assert_eq!(budget.thinking, Thinking::Budget);
        let unsaid = budget.after(&said).unwrap();
        assert_eq!(unsaid.thinking, Thinking::Unsaid);
        assert_eq!(unsaid.after(&said), None);
    }

    #[test]
    fn other_refusals_and_other_failures_teach_nothing() {
        assert_eq!(Ways::default().after(&refused("messages: too few")), None);
        let late = Failure::new(FailureCode::RateLimited, "thinking is busy");
        assert_eq!(Ways::default().after(&late), None);
    }
}
