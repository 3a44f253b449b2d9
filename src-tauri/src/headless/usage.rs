//! `usage`: what was asked of which model, day by day, and what it took and cost. And `show --timings`: where the time
//! of each turn went.
//!
//! Invariant: unknown is not zero: it is `-` for people and `null` for programs. Days are those of UTC, and it says so.

use std::{fmt::Write as _, path::PathBuf};

use engine::{
    ReadError, Reader,
    clock::{Clock as _, SystemClock},
    ledger::{self, BucketSums, Cost, Totals},
    waterfall::Waterfall,
};
use protocol::{Event, Ledger, LedgerSums, SessionId, Timestamp, TurnId};
use serde_json::{Value, json};

use crate::arguments::Format;

use super::{Exit, print, stored, words};

const MS_PER_DAY: i64 = 86_400_000;

/// Prints the ledger of so many days, today's included.
pub(crate) async fn usage(data_dir: Option<PathBuf>, format: Format, days: u32) -> Exit {
    let bounds = bounds(SystemClock::new().wall(), days);
    let printed = async {
        let ledger = match data_dir {
            Some(data_dir) => stored::reader(&data_dir).await?.ledger(&bounds)?,
            None => Ledger::default(),
        };
        let text = match format {
            Format::Json => stored::json(&shape(&ledger, &bounds))?,
            Format::Text => page(&ledger, &bounds),
        };
        print::put(&text)?;
        Ok(())
    };
    stored::ended(printed.await)
}

/// Prints where the time of each turn of a session went.
pub(crate) async fn timings(data_dir: Option<PathBuf>, word: &str, format: Format) -> Exit {
    let printed = async {
        let (reader, session) = stored::found(data_dir, word).await?;
        let mut shown = Vec::new();
        for turn in reader.transcript(session)?.turns {
            let events = events_of(&reader, session, turn.turn)?;
            shown.push((turn.turn, Waterfall::of(&events, None)));
        }
        let text = match format {
            Format::Json => {
                let turns: Vec<Value> = shown.iter().map(|(turn, w)| falls(*turn, w)).collect();
                stored::json(&turns)?
            }
            Format::Text => shown.iter().map(|(turn, w)| fallen(*turn, w)).collect(),
        };
        print::put(&print::for_stdout(&text))?;
        Ok(())
    };
    stored::ended(printed.await)
}

fn events_of(reader: &Reader, session: SessionId, turn: TurnId) -> Result<Vec<Event>, ReadError> {
    let mut events: Vec<Event> = Vec::new();
    loop {
        let after = events.last().map(|event| event.seq);
        let Some(page) = reader.turn_events(session, turn, after)? else {
            return Ok(events);
        };
        let is_all = !page.more_after || page.events.is_empty();
        events.extend(page.events);
        if is_all {
            return Ok(events);
        }
    }
}

/// Where each of the last days begins, and where today ends.
fn bounds(now: Timestamp, days: u32) -> Vec<Timestamp> {
    let today = now.millis().div_euclid(MS_PER_DAY);
    (0..=i64::from(days))
        .map(|nth| {
            Timestamp::from_millis((today + 1 - i64::from(days) + nth).saturating_mul(MS_PER_DAY))
        })
        .collect()
}

fn day(at: Timestamp) -> String {
    at.rfc3339().chars().take("2026-11-29".len()).collect()
}

const UNKNOWN: &str = "-";

fn line(out: &mut String, name: &str, sums: &LedgerSums, cost: Cost, currency: &str) {
    let tokens =
        |sum, known| ledger::tokens(sum, known, sums).unwrap_or_else(|| UNKNOWN.to_owned());
    // Writing to a string does not fail.
    let _ = writeln!(
        out,
        "{name:<28} {:>8}  {:>18} {:>18}  {:<20} {}",
        engine::words::count(sums.attempts()),
        tokens(sums.prompt_tokens, sums.prompt_known),
        tokens(sums.completion_tokens, sums.completion_known),
        cost.words(currency).unwrap_or_else(|| UNKNOWN.to_owned()),
        ledger::mishaps(sums).unwrap_or_default(),
    );
}

fn page(ledger: &Ledger, bounds: &[Timestamp]) -> String {
    let days = bounds.len().saturating_sub(1);
    let totals = Totals::of(ledger, days);
    let currency = ledger.prices.as_ref().map_or("", |p| p.currency.as_str());
    let mut text = String::new();
    if totals.all.sums.attempts() == 0 {
        let _ = writeln!(
            text,
            "no model was asked anything in the last {days} days (UTC)"
        );
        return text;
    }
    let _ = writeln!(
        text,
        "{:<28} {:>8}  {:>18} {:>18}  {:<20} not ended well",
        "day (UTC)", "requests", "tokens in", "tokens out", "cost"
    );
    for (begins, BucketSums { sums, cost }) in bounds.iter().zip(&totals.buckets) {
        if sums.attempts() > 0 {
            line(&mut text, &day(*begins), sums, *cost, currency);
        }
    }
    line(
        &mut text,
        "all",
        &totals.all.sums,
        totals.all.cost,
        currency,
    );
    text.push('\n');
    for model in &totals.models {
        let name = format!("{} on {}", model.model, model.provider_name);
        line(&mut text, &name, &model.sums, model.cost, currency);
    }
    print::for_stdout(&text).into_owned()
}

fn counted(sums: &LedgerSums, cost: Cost) -> serde_json::Map<String, Value> {
    let known = |sum: u64, known: u64| (known > 0).then_some(sum);
    let (micros, complete) = match cost {
        Cost::Unknown => (None, false),
        Cost::Known(micros) => (Some(micros), true),
        Cost::AtLeast(micros) => (Some(micros), false),
    };
    let value = json!({
        "requests": sums.attempts(), "ended": sums.ended, "failed": sums.failed, "stopped": sums.cancelled,
        "interrupted": sums.interrupted, "running": sums.open,
        "tokens_in": known(sums.prompt_tokens, sums.prompt_known), "tokens_in_of": sums.prompt_known,
        "tokens_cached": known(sums.cached_tokens, sums.cached_known), "tokens_cached_of": sums.cached_known,
        "tokens_out": known(sums.completion_tokens, sums.completion_known), "tokens_out_of": sums.completion_known,
        "tokens_per_second": ledger::rate(sums),
        "first_word_ms": ledger::first_content_ms(sums),
        "took_ms": sums.took_ms,
        "cost_micros": micros, "cost_complete": complete,
    });
    match value {
        Value::Object(fields) => fields,
        // An object was written down just above.
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            serde_json::Map::new()
        }
    }
}

/// `usage --json`.
fn shape(ledger: &Ledger, bounds: &[Timestamp]) -> Value {
    let totals = Totals::of(ledger, bounds.len().saturating_sub(1));
    let days = bounds.iter().zip(&totals.buckets).map(|(begins, bucket)| {
        let mut fields = counted(&bucket.sums, bucket.cost);
        fields.insert("day".to_owned(), json!(day(*begins)));
        Value::Object(fields)
    });
    let models = totals.models.iter().map(|model| {
        let mut fields = counted(&model.sums, model.cost);
        fields.insert("provider".to_owned(), json!(model.provider));
        fields.insert("provider_name".to_owned(), json!(model.provider_name));
        fields.insert("model".to_owned(), json!(model.model));
        fields.insert("summaries".to_owned(), json!(model.summaries));
        Value::Object(fields)
    });
    json!({
        "from": bounds.first(), "to": bounds.last(),
        "currency": ledger.prices.as_ref().map(|prices| &prices.currency),
        "all": counted(&totals.all.sums, totals.all.cost),
        "days": days.collect::<Vec<_>>(),
        "models": models.collect::<Vec<_>>(),
    })
}

/// A turn of `show --timings --json`.
fn falls(turn: TurnId, waterfall: &Waterfall) -> Value {
    let segments = waterfall.segments.iter().map(|segment| {
        json!({
            "part": segment.part.name(), "who": segment.who,
            "from_ms": segment.from_ms, "ms": segment.ms,
        })
    });
    json!({
        "turn": turn.get(), "total_ms": waterfall.total_ms,
        "segments": segments.collect::<Vec<_>>(),
    })
}

fn fallen(turn: TurnId, waterfall: &Waterfall) -> String {
    const CHART: usize = 32;
    let mut text = format!("turn {turn}, {}\n", engine::words::took(waterfall.total_ms));
    let column = |ms: u64| {
        let scaled = u128::from(ms) * CHART as u128 / u128::from(waterfall.total_ms.max(1));
        usize::try_from(scaled).unwrap_or(CHART).min(CHART)
    };
    for segment in &waterfall.segments {
        let from = column(segment.from_ms).min(CHART - 1);
        let length = column(segment.to_ms()).saturating_sub(from).max(1);
        let bar = format!("{}{}", " ".repeat(from), "#".repeat(length));
        let _ = writeln!(
            text,
            "  {:>9}  {:>9}  |{bar:<CHART$}|  {}",
            engine::words::took(segment.from_ms),
            engine::words::took(segment.ms),
            words::brief(&segment.words()),
        );
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use engine::waterfall::{Part, Segment};
    use protocol::{LedgerRow, Price, Prices, ProviderId, Purpose};

    use super::*;

    fn ledger() -> Ledger {
        let row = |bucket, sums| LedgerRow {
            bucket,
            provider: ProviderId::from_bits(5),
            provider_name: "box".to_owned(),
            model: "m".to_owned(),
            purpose: Purpose::Answer,
            sums,
        };
        let known = LedgerSums {
            ended: 1,
            prompt_tokens: 4_000,
            prompt_known: 1,
            completion_tokens: 100,
            completion_known: 1,
            priced: 1,
            priced_input: 4_000,
            priced_output: 100,
            took_ms: 900,
            ..LedgerSums::default()
        };
        let failed = LedgerSums {
            failed: 1,
            took_ms: 5,
            ..LedgerSums::default()
        };
        Ledger {
            rows: vec![row(0, failed), row(1, known)],
            since: None,
            prices: Some(Prices {
                currency: "$".to_owned(),
                models: vec![Price {
                    provider: ProviderId::from_bits(5),
                    model: "m".to_owned(),
                    input_micros: 1_000_000,
                    cached_micros: None,
                    output_micros: 2_000_000,
                }],
            }),
        }
    }

    #[test]
    fn the_last_days_begin_at_midnight_and_today_is_one_of_them() {
        let now = Timestamp::from_millis(3 * MS_PER_DAY + 5);
        let expected = [2, 3, 4].map(|days| Timestamp::from_millis(days * MS_PER_DAY));
        assert_eq!(bounds(now, 2), expected);
    }

    #[test]
    fn a_page_says_what_is_not_known_and_counts_what_failed_apart() {
        let days = bounds(Timestamp::from_millis(MS_PER_DAY), 2);
        let text = page(&ledger(), &days);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(lines[1], ["1970-01-01", "1", "-", "-", "-", "1", "failed"]);
        assert_eq!(lines[2], ["1970-01-02", "1", "4,000", "100", "$0.0042"]);
        assert_eq!(
            lines[3].join(" "),
            "all 2 at least 4,000 at least 100 at least $0.0042 1 failed"
        );
        assert!(lines[5].join(" ").starts_with("m on box 2 "), "{text}");
        assert!(page(&Ledger::default(), &days).starts_with("no model was asked"));
    }

    #[test]
    fn for_programs_unknown_is_null_and_zero_is_zero() {
        let days = bounds(Timestamp::from_millis(MS_PER_DAY), 2);
        let shape = shape(&ledger(), &days);
        assert_eq!(shape["days"][0]["tokens_in"], Value::Null);
        assert_eq!(shape["days"][0]["cost_micros"], Value::Null);
        assert_eq!(shape["days"][1]["tokens_in"], json!(4_000));
        assert_eq!(
            shape["days"][1]["tokens_cached"],
            Value::Null,
            "nobody said"
        );
        assert_eq!(shape["days"][1]["tokens_cached_of"], json!(0));
        assert_eq!(shape["all"]["cost_micros"], json!(4_200));
        assert_eq!(shape["all"]["cost_complete"], json!(false));
        assert_eq!(shape["all"]["failed"], json!(1));
        assert_eq!(shape["models"][0]["requests"], json!(2));
    }

    #[test]
    fn a_waterfall_is_a_line_for_each_stretch_with_its_words() {
        let waterfall = Waterfall {
            total_ms: 2_000,
            segments: vec![
                Segment {
                    part: Part::Connect,
                    who: "m".to_owned(),
                    from_ms: 0,
                    ms: 1,
                },
                Segment {
                    part: Part::Decode,
                    who: "m".to_owned(),
                    from_ms: 1_000,
                    ms: 1_000,
                },
            ],
        };
        let text = fallen(TurnId::FIRST, &waterfall);
        let expected = format!(
            "turn 1, 2.0 s\n       0 ms       1 ms  |#{}|  connecting: m\n      1.0 s      1.0 s  |{}{}|  writing: m\n\n",
            " ".repeat(31),
            " ".repeat(16),
            "#".repeat(16)
        );
        assert_eq!(text, expected);
        assert_eq!(
            falls(TurnId::FIRST, &waterfall)["segments"][1],
            json!({"part": "decode", "who": "m", "from_ms": 1_000, "ms": 1_000})
        );
    }
}
