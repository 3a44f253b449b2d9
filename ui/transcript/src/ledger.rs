//! The ledger, summed up for the reader: by time and by model, and what it cost where that is known.
//!
//! Invariant: unknown is not zero. A cost is made of the attempts whose tokens are known, at prices that the user
//! entered; it says when some are missing, and a model without a price has none.

use protocol::{Ledger, LedgerRow, LedgerSums, Price, Prices, ProviderId, Purpose};

use crate::{numbers, words};

/// Millionths per million.
const PER_MILLION: u128 = 1_000_000;

/// What some attempts cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Nobody said what any of their models cost, or nobody counted their tokens.
    Unknown,
    /// Millionths of the currency.
    Known(u64),
    /// So much at least: some attempts lack a price or a count.
    AtLeast(u64),
}

impl Cost {
    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unknown, Self::Unknown) => Self::Unknown,
            (Self::Known(one), Self::Known(other)) => Self::Known(one.saturating_add(other)),
            (Self::Unknown, Self::Known(some) | Self::AtLeast(some))
            | (Self::Known(some) | Self::AtLeast(some), Self::Unknown) => Self::AtLeast(some),
            (Self::AtLeast(one), Self::Known(other) | Self::AtLeast(other))
            | (Self::Known(one), Self::AtLeast(other)) => Self::AtLeast(one.saturating_add(other)),
        }
    }

    /// In words; nothing if nothing is known.
    pub fn words(self, currency: &str) -> Option<String> {
        match self {
            Self::Unknown => None,
            Self::Known(micros) => Some(words::money(micros, currency)),
            Self::AtLeast(micros) => Some(format!("at least {}", words::money(micros, currency))),
        }
    }
}

/// What these attempts at one model cost at this price.
pub fn cost(sums: &LedgerSums, price: Option<&Price>) -> Cost {
    let (Some(price), true) = (price, sums.priced > 0) else {
        return Cost::Unknown;
    };
    let part = |tokens: u64, micros: u64| u128::from(tokens) * u128::from(micros);
    let cached = price.cached_micros.unwrap_or(price.input_micros);
    let total = part(sums.priced_input, price.input_micros)
        .saturating_add(part(sums.priced_cached, cached))
        .saturating_add(part(sums.priced_output, price.output_micros));
    let micros = u64::try_from(total / PER_MILLION).unwrap_or(u64::MAX);
    // Servers charge for some failed and stopped requests too, and say so to nobody.
    if sums.priced == sums.attempts() {
        Cost::Known(micros)
    } else {
        Cost::AtLeast(micros)
    }
}

/// An amount of money as people type it ("3", "0.25", "0,25"), in millionths; nothing for what is no amount.
pub fn read_money(typed: &str) -> Option<u64> {
    let typed = typed.trim();
    let (whole, fraction) = typed.split_once(['.', ',']).unwrap_or((typed, ""));
    let is_number = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty())
        || fraction.len() > 6
        || !is_number(whole)
        || !is_number(fraction)
    {
        return None;
    }
    let whole: u64 = match whole {
        "" => 0,
        digits => digits.parse().ok()?,
    };
    let fraction: u64 = format!("{fraction:0<6}").parse().ok()?;
    whole.checked_mul(1_000_000)?.checked_add(fraction)
}

/// The same amount as it is typed: exact, without needless zeros.
pub fn typed_money(micros: u64) -> String {
    let (whole, fraction) = (micros / 1_000_000, micros % 1_000_000);
    match fraction {
        0 => whole.to_string(),
        _ => format!("{whole}.{fraction:06}")
            .trim_end_matches('0')
            .to_owned(),
    }
}

/// The attempts at one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSums {
    /// Which server.
    pub provider: ProviderId,
    /// Its name.
    pub provider_name: String,
    /// The model as the server names it.
    pub model: String,
    /// For answers and summaries together.
    pub sums: LedgerSums,
    /// Of these, for summaries.
    pub summaries: u64,
    /// What they cost.
    pub cost: Cost,
}

/// A bucket of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketSums {
    /// Of all models.
    pub sums: LedgerSums,
    /// What they cost.
    pub cost: Cost,
}

/// All of a ledger's rows, seen from three sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Everything.
    pub all: BucketSums,
    /// One for each bucket, also for those without attempts.
    pub buckets: Vec<BucketSums>,
    /// One for each model, the most tokens first.
    pub models: Vec<ModelSums>,
}

impl Totals {
    /// Of a ledger that was asked for so many buckets.
    pub fn of(ledger: &Ledger, buckets: usize) -> Self {
        let nothing = BucketSums {
            sums: LedgerSums::default(),
            cost: Cost::Known(0),
        };
        let mut totals = Self {
            all: nothing,
            buckets: vec![nothing; buckets],
            models: Vec::new(),
        };
        for row in &ledger.rows {
            let cost = cost(&row.sums, price_of(ledger.prices.as_ref(), row));
            totals.all.add(row, cost);
            if let Some(bucket) = totals.buckets.get_mut(row.bucket as usize) {
                bucket.add(row, cost);
            }
            let known = totals
                .models
                .iter_mut()
                .find(|known| known.provider == row.provider && known.model == row.model);
            let summaries = match row.purpose {
                Purpose::Answer => 0,
                Purpose::Summary => row.sums.attempts(),
            };
            match known {
                Some(known) => {
                    known.sums = known.sums.plus(row.sums);
                    known.summaries += summaries;
                    known.cost = known.cost.plus(cost);
                    // Rows come oldest bucket first: the last name is the present one.
                    known.provider_name.clone_from(&row.provider_name);
                }
                None => totals.models.push(ModelSums {
                    provider: row.provider,
                    provider_name: row.provider_name.clone(),
                    model: row.model.clone(),
                    sums: row.sums,
                    summaries,
                    cost,
                }),
            }
        }
        totals
            .models
            .sort_by_key(|model| std::cmp::Reverse((weight(&model.sums), model.sums.attempts())));
        totals
    }
}

impl BucketSums {
    fn add(&mut self, row: &LedgerRow, cost: Cost) {
        self.cost = match self.sums.attempts() {
            0 => cost,
            _ => self.cost.plus(cost),
        };
        self.sums = self.sums.plus(row.sums);
    }
}

fn price_of<'a>(prices: Option<&'a Prices>, row: &LedgerRow) -> Option<&'a Price> {
    prices?.of(row.provider, &row.model)
}

/// Tokens in both directions, as far as known.
pub const fn weight(sums: &LedgerSums) -> u64 {
    sums.prompt_tokens.saturating_add(sums.completion_tokens)
}

/// A sum of tokens over attempts of which `known` are known: "at least 400", or nothing.
pub fn tokens(sum: u64, known: u64, sums: &LedgerSums) -> Option<String> {
    let of = sums.attempts();
    numbers::Tally { sum, known, of }.amount()
}

/// What came of the attempts that did not end well, each kind counted apart; nothing if all did.
pub fn mishaps(sums: &LedgerSums) -> Option<String> {
    let kinds = [
        (sums.failed, "failed"),
        (sums.cancelled, "stopped"),
        (sums.interrupted, "interrupted"),
        (sums.open, "running"),
    ];
    let said: Vec<String> = kinds
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{} {what}", words::count(count)))
        .collect();
    (!said.is_empty()).then(|| said.join(", "))
}

/// Tokens per second over all attempts of which that is known.
pub fn rate(sums: &LedgerSums) -> Option<f64> {
    numbers::rate(sums.decode_tokens, sums.decode_ms)
}

/// The average time to the first word.
pub const fn first_content_ms(sums: &LedgerSums) -> Option<u64> {
    sums.first_content_ms.checked_div(sums.first_content_known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(bucket: u32, model: &str, sums: LedgerSums) -> LedgerRow {
        LedgerRow {
            bucket,
            provider: ProviderId::from_bits(1),
            provider_name: "box".to_owned(),
            model: model.to_owned(),
            purpose: Purpose::Answer,
            sums,
        }
    }

    fn ended(input: u64, cached: u64, output: u64) -> LedgerSums {
        LedgerSums {
            ended: 1,
            prompt_tokens: input + cached,
            prompt_known: 1,
            cached_tokens: cached,
            completion_tokens: output,
            completion_known: 1,
            priced: 1,
            priced_input: input,
            priced_cached: cached,
            priced_output: output,
            ..LedgerSums::default()
        }
    }

    fn failed() -> LedgerSums {
        LedgerSums {
            failed: 1,
            ..LedgerSums::default()
        }
    }

    fn price(cached_micros: Option<u64>) -> Price {
        Price {
            provider: ProviderId::from_bits(1),
            model: "dear".to_owned(),
            input_micros: 3_000_000,
            cached_micros,
            output_micros: 15_000_000,
        }
    }

    #[test]
    fn a_cost_is_tokens_times_prices_and_cached_ones_cost_as_others_unless_they_have_a_price() {
        let sums = ended(1_000, 2_000, 100);
        assert_eq!(cost(&sums, Some(&price(None))), Cost::Known(10_500));
        assert_eq!(cost(&sums, Some(&price(Some(300_000)))), Cost::Known(5_100));
        assert_eq!(
            cost(&ended(u64::MAX, 0, u64::MAX), Some(&price(None))),
            Cost::Known(u64::MAX)
        );
    }

    #[test]
    fn an_amount_is_read_as_it_is_typed_and_typed_as_it_is_read() {
        for (typed, micros) in [
            ("3", 3_000_000),
            ("0.25", 250_000),
            (".5", 500_000),
            (" 0,000001 ", 1),
            ("0", 0),
        ] {
            assert_eq!(read_money(typed), Some(micros), "{typed}");
            assert_eq!(read_money(&typed_money(micros)), Some(micros));
        }
        assert_eq!(typed_money(250_000), "0.25");
        for typed in [
            "",
            ".",
            "-1",
            "1.2.3",
            "free",
            "1e3",
            "0.0000001",
            "99999999999999999999",
        ] {
            assert_eq!(read_money(typed), None, "{typed}");
        }
    }

    #[test]
    fn no_price_is_no_cost_and_a_missing_count_makes_it_at_least() {
        assert_eq!(cost(&ended(1, 1, 1), None), Cost::Unknown);
        assert_eq!(cost(&failed(), Some(&price(None))), Cost::Unknown);
        let sums = ended(1_000, 0, 0).plus(failed());
        assert_eq!(cost(&sums, Some(&price(None))), Cost::AtLeast(3_000));
    }

    #[test]
    fn totals_by_bucket_and_model_say_what_is_known_and_count_failures_apart() {
        let ledger = Ledger {
            rows: vec![
                row(0, "dear", ended(1_000, 0, 100)),
                row(0, "local", ended(50, 0, 5)),
                row(2, "dear", ended(2_000, 0, 0).plus(failed())),
            ],
            since: None,
            prices: Some(Prices {
                currency: "$".to_owned(),
                models: vec![price(None)],
            }),
        };
        let totals = Totals::of(&ledger, 3);
        let costs: Vec<Cost> = totals.buckets.iter().map(|bucket| bucket.cost).collect();
        assert_eq!(
            costs,
            [Cost::AtLeast(4_500), Cost::Known(0), Cost::AtLeast(6_000)]
        );
        assert_eq!(totals.all.sums.attempts(), 4);
        assert_eq!(mishaps(&totals.all.sums).as_deref(), Some("1 failed"));
        let models: Vec<&str> = totals.models.iter().map(|m| m.model.as_str()).collect();
        assert_eq!(models, ["dear", "local"]);
        let local = totals.models.last().expect("two");
        assert_eq!(local.cost, Cost::Unknown, "not free: unknown");
        assert_eq!(
            tokens(
                totals.all.sums.prompt_tokens,
                totals.all.sums.prompt_known,
                &totals.all.sums
            )
            .as_deref(),
            Some("at least 3,050"),
            "nobody counted the failed one"
        );
        assert_eq!(tokens(0, 0, &failed()), None);
    }

    #[test]
    fn a_bucket_that_nobody_asked_for_is_part_of_the_whole_only() {
        let ledger = Ledger {
            rows: vec![row(7, "local", ended(1, 0, 1))],
            ..Ledger::default()
        };
        let totals = Totals::of(&ledger, 1);
        assert_eq!(totals.buckets.first().map(|b| b.sums.attempts()), Some(0));
        assert_eq!(totals.all.sums.attempts(), 1);
    }
}
