//! Spans of time as people type and read them: "90 s", "10 min", "1 h 30 min".
//!
//! Invariant: what [`span`] says is what [`read_span`] reads back.

const UNITS_MS: [(&str, u64); 4] = [
    ("d", 24 * 60 * 60 * 1_000),
    ("h", 60 * 60 * 1_000),
    ("min", 60 * 1_000),
    ("s", 1_000),
];

/// A span in the largest units that say it exactly; milliseconds only where it has some.
pub fn span(ms: u64) -> String {
    let mut left_ms = ms;
    let mut parts = Vec::new();
    for (unit, unit_ms) in UNITS_MS {
        let count = left_ms / unit_ms;
        // A minute and a half is "90 s": two units of which one is small read worse than one.
        let as_seconds =
            unit == "min" && count < 2 && !left_ms.is_multiple_of(unit_ms) && parts.is_empty();
        if count > 0 && !as_seconds {
            parts.push(format!("{count} {unit}"));
            left_ms %= unit_ms;
        }
    }
    if left_ms > 0 || parts.is_empty() {
        parts.push(format!("{left_ms} ms"));
    }
    parts.join(" ")
}

/// What was typed, in milliseconds. A bare number is not a span: nobody can tell what it counts.
pub fn read_span(typed: &str) -> Option<u64> {
    let mut rest = typed.trim();
    let mut total_ms = 0_u64;
    let mut parts = 0;
    while !rest.is_empty() {
        let number_end = rest
            .find(|letter: char| !letter.is_ascii_digit() && letter != '.' && letter != ',')
            .unwrap_or(rest.len());
        let (number, after) = rest.split_at(number_end);
        let after = after.trim_start();
        let unit_end = after
            .find(|letter: char| !letter.is_alphabetic())
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        total_ms = total_ms.checked_add(read_part(number, unit_ms(unit)?)?)?;
        parts += 1;
        let after = after.trim_start();
        rest = after.strip_prefix(',').unwrap_or(after).trim_start();
    }
    (parts > 0).then_some(total_ms)
}

/// A number with at most three digits after its point, times a unit.
fn read_part(number: &str, unit_ms: u64) -> Option<u64> {
    let (whole, fraction) = match number.split_once(['.', ',']) {
        Some((whole, fraction)) => (whole, fraction),
        None => (number, ""),
    };
    if whole.is_empty() || fraction.len() > 3 {
        return None;
    }
    let whole_ms = whole.parse::<u64>().ok()?.checked_mul(unit_ms)?;
    let fraction_ms = match fraction {
        "" if number.len() > whole.len() => return None,
        "" => 0,
        digits => {
            let scale = 10_u64.checked_pow(u32::try_from(digits.len()).ok()?)?;
            digits.parse::<u64>().ok()?.checked_mul(unit_ms)? / scale
        }
    };
    whole_ms.checked_add(fraction_ms)
}

fn unit_ms(unit: &str) -> Option<u64> {
    let ms = match unit.to_lowercase().as_str() {
        "ms" => 1,
        "s" | "sec" | "secs" | "second" | "seconds" => 1_000,
        "m" | "min" | "mins" | "minute" | "minutes" => 60 * 1_000,
        "h" | "hr" | "hrs" | "hour" | "hours" => 60 * 60 * 1_000,
        "d" | "day" | "days" => 24 * 60 * 60 * 1_000,
        _ => return None,
    };
    Some(ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_people_type_is_read_and_what_nobody_can_tell_is_not() {
        let read = [
            ("90 s", Some(90_000)),
            ("90s", Some(90_000)),
            ("10 min", Some(600_000)),
            ("10 minutes", Some(600_000)),
            (" 1 h 30 min ", Some(5_400_000)),
            ("1h30m", Some(5_400_000)),
            ("1 hour, 5 seconds", Some(3_605_000)),
            ("1.5 h", Some(5_400_000)),
            ("0,5 min", Some(30_000)),
            ("30 days", Some(2_592_000_000)),
            ("250 ms", Some(250)),
            ("0 s", Some(0)),
            ("90", None),
            ("", None),
            ("ten minutes", None),
            ("10 parsecs", None),
            ("-5 s", None),
            ("1. s", None),
            (". s", None),
            ("5 s 5", None),
            ("99999999999999999999 s", None),
            ("18446744073709551615 d", None),
        ];
        for (typed, ms) in read {
            assert_eq!(read_span(typed), ms, "{typed:?}");
        }
    }

    #[test]
    fn a_span_is_said_as_people_say_it() {
        let said = [
            (10_000, "10 s"),
            (90_000, "90 s"),
            (120_000, "2 min"),
            (600_000, "10 min"),
            (3_600_000, "1 h"),
            (5_400_000, "1 h 30 min"),
            (2_592_000_000, "30 d"),
            (1_500, "1 s 500 ms"),
            (0, "0 ms"),
        ];
        for (ms, words) in said {
            assert_eq!(span(ms), words, "{ms}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_said_is_read_back(ms in any::<u64>()) {
            prop_assert_eq!(read_span(&span(ms)), Some(ms));
        }

        #[test]
        fn anything_typed_is_read_or_not_and_never_breaks(typed in ".{0,24}") {
            read_span(&typed);
        }
    }
}
