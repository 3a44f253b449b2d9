//! The ledger: what was asked of which model, and what it took and cost.
//!
//! Invariant: unknown stays unknown. A sum says of how many attempts it is the sum, and a price that nobody entered is
//! no price. Money is a whole number of millionths, so that no sum depends on the order of its parts.

use serde::{Deserialize, Serialize};

use crate::{ProviderId, Purpose, Timestamp};

/// What models cost, as the user entered it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prices {
    /// How the user writes the money: "$", "EUR" …
    pub currency: String,
    /// One entry per model that has a price.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<Price>,
}

impl Prices {
    /// Longer than any sign or code of a currency.
    pub const CURRENCY_CHARS_MAX: usize = 8;

    /// What this model costs, if anybody said so.
    pub fn of(&self, provider: ProviderId, model: &str) -> Option<&Price> {
        self.models
            .iter()
            .find(|price| price.provider == provider && price.model == model)
    }
}

/// What one model costs: millionths of the currency per million tokens, which are millionths of a millionth per token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Price {
    /// On which server.
    pub provider: ProviderId,
    /// As the server names it.
    pub model: String,
    /// Tokens of prompts.
    pub input_micros: u64,
    /// Of these, tokens taken from the server's cache; as the others when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_micros: Option<u64>,
    /// Tokens of answers.
    pub output_micros: u64,
}

/// `ledger` -> [`Ledger`]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LedgerArgs {
    /// Where each bucket begins, ascending, and where the last one ends. The client knows where its days begin.
    pub bounds: Vec<Timestamp>,
}

impl LedgerArgs {
    /// Buckets in one answer: a year of days and a bit.
    pub const BUCKETS_MAX: usize = 400;
}

/// The attempts of some time, summed up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// One row per bucket, model and purpose that had any attempt.
    pub rows: Vec<LedgerRow>,
    /// When the first attempt of all was made: since when there is anything to sum up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// What models cost, as the user entered it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<Prices>,
}

/// The attempts of one bucket at one model for one purpose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerRow {
    /// Which bucket, from 0.
    pub bucket: u32,
    /// Which server.
    pub provider: ProviderId,
    /// Its name at the last of these attempts.
    pub provider_name: String,
    /// The model as the server names it.
    pub model: String,
    /// What the attempts were for.
    pub purpose: Purpose,
    /// Their sums.
    pub sums: LedgerSums,
}

/// Sums over attempts. Every attempt is counted once, in exactly one of the first five.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerSums {
    /// Ended with the provider's own end marker.
    pub ended: u64,
    /// Failed.
    pub failed: u64,
    /// Stopped by the user.
    pub cancelled: u64,
    /// Cut by the end of Holdfast.
    pub interrupted: u64,
    /// Still running.
    pub open: u64,

    /// Tokens of prompts, cached ones included …
    pub prompt_tokens: u64,
    /// … of so many attempts; of the others it is unknown.
    pub prompt_known: u64,
    /// Of the prompts' tokens, taken from a server's cache …
    pub cached_tokens: u64,
    /// … of so many attempts; of the others the server did not say.
    #[serde(default)]
    pub cached_known: u64,
    /// Tokens of answers, reasoning included …
    pub completion_tokens: u64,
    /// … of so many attempts.
    pub completion_known: u64,

    /// Of the attempts whose prompts and answers both have known tokens: how many …
    pub priced: u64,
    /// … their prompts' tokens without the cached ones …
    pub priced_input: u64,
    /// … their cached tokens …
    pub priced_cached: u64,
    /// … and their answers' tokens.
    pub priced_output: u64,

    /// Tokens of answers of which it is known how long they took …
    pub decode_tokens: u64,
    /// … and how long: milliseconds.
    pub decode_ms: u64,
    /// From request to first content: milliseconds …
    pub first_content_ms: u64,
    /// … of so many attempts.
    pub first_content_known: u64,
    /// From start to end, by the wall clock: milliseconds, of all that are not open.
    pub took_ms: u64,
}

impl LedgerSums {
    /// All of them: every attempt once.
    pub const fn attempts(&self) -> u64 {
        self.ended
            .saturating_add(self.failed)
            .saturating_add(self.cancelled)
            .saturating_add(self.interrupted)
            .saturating_add(self.open)
    }

    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        macro_rules! sums {
            ($($field:ident),* $(,)?) => {
                Self { $($field: self.$field.saturating_add(other.$field)),* }
            };
        }
        sums!(
            ended,
            failed,
            cancelled,
            interrupted,
            open,
            prompt_tokens,
            prompt_known,
            cached_tokens,
            cached_known,
            completion_tokens,
            completion_known,
            priced,
            priced_input,
            priced_cached,
            priced_output,
            decode_tokens,
            decode_ms,
            first_content_ms,
            first_content_known,
            took_ms,
        )
    }
}
