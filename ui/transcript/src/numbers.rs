//! The numbers of one answer: tokens in and out, and how fast they came.
//!
//! Invariant: unknown is not zero. A sum that lacks the numbers of some requests says "at least", and one of which
//! nothing is known is not said. A rate is made only of requests of which both the tokens and the time are known, and
//! is left out where the time is too short to mean anything.

use protocol::{AttemptState, AttemptView, Timings, Usage};

use crate::words;

/// Shorter is a rounding, or an answer that came in one piece: no rate follows from it.
const DECODE_MS_MIN: u64 = 20;

/// No model writes faster; whoever says so measured something else.
const RATE_MAX: f64 = 100_000.0;

/// A sum over requests of which some may not be known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The sum of what is known.
    pub sum: u64,
    /// Of how many it is the sum.
    pub known: u64,
    /// How many there were.
    pub of: u64,
}

impl Tally {
    fn add(&mut self, number: Option<u64>) {
        self.of += 1;
        if let Some(number) = number {
            self.known += 1;
            self.sum = self.sum.saturating_add(number);
        }
    }

    /// The sum in words; nothing if nothing is known.
    pub fn amount(self) -> Option<String> {
        match self.known {
            0 => None,
            known if known < self.of => Some(format!("at least {}", words::count(self.sum))),
            _ => Some(words::count(self.sum)),
        }
    }

    /// The same with what it counts.
    pub fn words(self, what: &str) -> Option<String> {
        self.amount().map(|amount| format!("{amount} {what}"))
    }
}

/// What the requests of a turn took together, those for summaries left out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Numbers {
    /// Tokens of prompts: every request reads the conversation anew.
    pub input: Tally,
    /// Tokens of answers.
    pub output: Tally,
    /// Tokens per second, as far as known.
    pub rate: Option<f64>,
    /// Requests that failed.
    pub failed: u64,
}

impl Numbers {
    /// Of these requests.
    pub fn of(attempts: &[AttemptView]) -> Self {
        let mut numbers = Self::default();
        let (mut tokens, mut ms) = (0_u64, 0_u64);
        for attempt in attempts.iter().filter(|a| a.purpose.is_answer()) {
            match &attempt.state {
                AttemptState::Ended { usage, timings, .. } => {
                    numbers.input.add(usage.prompt_tokens);
                    numbers.output.add(usage.completion_tokens);
                    if let Some((wrote, took_ms)) = wrote(usage, timings) {
                        tokens = tokens.saturating_add(wrote);
                        ms = ms.saturating_add(took_ms);
                    }
                }
                AttemptState::Failed { .. } => numbers.failed += 1,
                // What it read and wrote nobody counted.
                AttemptState::Open => {
                    numbers.input.add(None);
                    numbers.output.add(None);
                }
            }
        }
        numbers.rate = rate(tokens, ms);
        numbers
    }

    /// For the quiet line: "412 tokens in", "96 out", "40 tokens/s".
    pub fn facts(&self) -> Vec<String> {
        let (input, output) = (self.input.words("tokens in"), self.output.words("out"));
        let rate = self.rate.map(words::rate);
        [input, output, rate].into_iter().flatten().collect()
    }
}

/// What one request wrote, and in which time: the server's own, else ours from the first word to the end.
pub fn wrote(usage: &Usage, timings: &Timings) -> Option<(u64, u64)> {
    let tokens = usage.completion_tokens?;
    let ours = || timings.total_ms?.checked_sub(timings.first_content_ms?);
    let ms = timings.decode_ms.or_else(ours)?;
    (ms >= DECODE_MS_MIN && tokens > 1).then_some((tokens, ms))
}

/// Tokens per second, where that means something.
pub fn rate(tokens: u64, ms: u64) -> Option<f64> {
    if ms < DECODE_MS_MIN || tokens < 2 {
        return None;
    }
    let rate = tokens as f64 * 1_000.0 / ms as f64;
    (rate <= RATE_MAX).then_some(rate)
}

/// One request, word by word, for whoever asks for details.
pub fn details(attempt: &AttemptView) -> Vec<String> {
    let AttemptState::Ended { usage, timings, .. } = &attempt.state else {
        return Vec::new();
    };
    let took = |what: &str, ms: Option<u64>| ms.map(|ms| format!("{what} {}", words::took(ms)));
    [
        usage
            .prompt_tokens
            .map(|n| format!("{} read", words::tokens(n))),
        usage
            .cached_tokens
            .map(|n| format!("{} of them from the cache", words::count(n))),
        usage
            .cache_written_tokens
            .filter(|n| *n > 0)
            .map(|n| format!("{} of them put into the cache", words::count(n))),
        usage
            .completion_tokens
            .map(|n| format!("{} written", words::tokens(n))),
        took("model loaded in", timings.load_ms.filter(|ms| *ms >= 1_000)),
        took("prompt read in", timings.prompt_ms),
        took("first word after", timings.first_content_ms),
        wrote(usage, timings)
            .and_then(|(tokens, ms)| rate(tokens, ms))
            .map(words::rate),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use protocol::{Failure, FailureCode, FinishReason, ModelRef, ProviderId, Purpose, Timestamp};

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
            started_at: Timestamp::from_millis(0),
            state,
        }
    }

    fn ended(input: Option<u64>, output: Option<u64>, timings: Timings) -> AttemptState {
        AttemptState::Ended {
            finish: FinishReason::Stop,
            usage: Usage {
                prompt_tokens: input,
                completion_tokens: output,
                ..Usage::default()
            },
            timings,
            unread: None,
            unseen_images: 0,
            untold_tools: 0,
            at: Timestamp::from_millis(9),
        }
    }

    fn decoded(ms: u64) -> Timings {
        Timings {
            decode_ms: Some(ms),
            ..Timings::default()
        }
    }

    fn facts(states: Vec<AttemptState>) -> Vec<String> {
        let attempts: Vec<_> = states
            .into_iter()
            .map(|state| attempt(Purpose::Answer, state))
            .collect();
        Numbers::of(&attempts).facts()
    }

    #[test]
    fn what_is_known_of_all_requests_is_summed_up() {
        assert_eq!(
            facts(vec![
                ended(Some(400), Some(60), decoded(1_500)),
                ended(Some(1_412), Some(40), decoded(1_000)),
            ]),
            ["1,812 tokens in", "100 out", "40 tokens/s"]
        );
    }

    #[test]
    fn unknown_is_said_to_be_missing_and_never_counted_as_zero() {
        assert_eq!(
            facts(vec![
                ended(Some(400), Some(60), decoded(1_500)),
                ended(None, None, decoded(60_000)),
            ]),
            ["at least 400 tokens in", "at least 60 out", "40 tokens/s"]
        );
        assert_eq!(
            facts(vec![ended(None, None, decoded(60_000))]),
            [""; 0],
            "nothing is known"
        );
        assert_eq!(
            facts(vec![
                ended(Some(400), Some(60), decoded(1_500)),
                AttemptState::Open
            ]),
            ["at least 400 tokens in", "at least 60 out", "40 tokens/s"],
            "what a stopped request wrote nobody counted"
        );
        assert_eq!(
            facts(vec![ended(Some(0), Some(0), decoded(0))]),
            ["0 tokens in", "0 out"],
            "zero is known"
        );
    }

    #[test]
    fn a_time_too_short_to_mean_anything_makes_no_rate() {
        for timings in [decoded(0), decoded(1), Timings::default()] {
            assert_eq!(
                facts(vec![ended(Some(1), Some(5_000), timings)]),
                ["1 tokens in", "5,000 out"]
            );
        }
        assert_eq!(rate(u64::MAX, 20), None, "no model is that fast");
        assert_eq!(rate(1, 1_000), None, "one token has no rate");
    }

    #[test]
    fn our_clock_is_taken_where_the_server_says_nothing_and_only_there() {
        let ours = Timings {
            first_content_ms: Some(1_000),
            total_ms: Some(3_000),
            ..Timings::default()
        };
        assert_eq!(
            facts(vec![ended(None, Some(80), ours)]),
            ["80 out", "40 tokens/s"]
        );
        let theirs = Timings {
            decode_ms: Some(1_000),
            ..ours
        };
        assert_eq!(
            facts(vec![ended(None, Some(80), theirs)]),
            ["80 out", "80 tokens/s"]
        );
        let backwards = Timings {
            first_content_ms: Some(3_001),
            ..ours
        };
        assert_eq!(facts(vec![ended(None, Some(80), backwards)]), ["80 out"]);
    }

    #[test]
    fn a_failed_request_and_a_summary_are_not_part_of_the_answer() {
        let failed = AttemptState::Failed {
            failure: Failure::new(FailureCode::ConnectFailed, "away"),
            retry_in_ms: Some(1),
            next: None,
            at: Timestamp::from_millis(1),
        };
        let numbers = Numbers::of(&[
            attempt(Purpose::Answer, failed),
            attempt(Purpose::Summary, ended(Some(9_000), Some(900), decoded(1))),
            attempt(Purpose::Answer, ended(Some(4), Some(2), decoded(1_000))),
        ]);
        assert_eq!(numbers.failed, 1);
        assert_eq!(numbers.facts(), ["4 tokens in", "2 out", "2.0 tokens/s"]);
    }
}
