//! Times and amounts as a reader writes them, in the local zone.

use protocol::Timestamp;

use crate::ipc;

const MS_PER_DAY: i64 = 86_400_000;
const MS_PER_MIN: i64 = 60_000;

/// The local day a time belongs to, counted from 1970.
pub(crate) fn day(at: Timestamp) -> i64 {
    local_ms(at).div_euclid(MS_PER_DAY)
}

/// "14:03:22"
pub(crate) fn clock(at: Timestamp) -> String {
    let second_of_day = local_ms(at).rem_euclid(MS_PER_DAY) / 1_000;
    let (hours, minutes) = (second_of_day / 3_600, second_of_day / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}", second_of_day % 60)
}

/// "14:03", with the date in front unless it is today: "2026-11-29, 14:03".
pub(crate) fn moment(at: Timestamp, now: Timestamp) -> String {
    let second_of_day = local_ms(at).rem_euclid(MS_PER_DAY) / 1_000;
    let time = format!(
        "{:02}:{:02}",
        second_of_day / 3_600,
        second_of_day / 60 % 60
    );
    if day(at) == day(now) {
        return time;
    }
    let (year, month, day) = date(day(at));
    format!("{year}-{month:02}-{day:02}, {time}")
}

/// A shorter time is not worth a word.
pub(crate) const NOTICED_MS: u64 = 50;

/// "0.8 s", "14 s", "2 min 5 s"
pub(crate) fn duration(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{:.1} s", ms as f64 / 1_000.0),
        10_000..60_000 => format!("{} s", ms / 1_000),
        _ => format!("{} min {} s", ms / 60_000, ms / 1_000 % 60),
    }
}

/// "4.7 GB", as model servers count: decimal.
pub(crate) fn bytes(count: u64) -> String {
    match count {
        0..1_000_000 => format!("{} kB", count / 1_000),
        1_000_000..1_000_000_000 => format!("{} MB", count / 1_000_000),
        _ => format!("{:.1} GB", count as f64 / 1e9),
    }
}

/// "128k", as model cards write context lengths: powers of two where it is one.
pub(crate) fn context(tokens: u64) -> String {
    match tokens {
        0..1_024 => tokens.to_string(),
        _ if tokens.is_multiple_of(1_024) => format!("{}k", tokens / 1_024),
        _ => format!("{}k", (tokens + 500) / 1_000),
    }
}

fn local_ms(at: Timestamp) -> i64 {
    at.millis() - ipc::utc_offset_min(at) * MS_PER_MIN
}

/// Year, month and day of a day counted from 1970 (the proleptic Gregorian calendar, by eras of 400 years).
fn date(day: i64) -> (i64, i64, i64) {
    let shifted = day + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_their_dates() {
        assert_eq!(date(0), (1970, 1, 1));
        assert_eq!(
            date(11_016),
            (2000, 2, 29),
            "a leap day of a century that has one"
        );
        assert_eq!(date(20_786), (2026, 11, 29));
    }

    #[test]
    fn times_and_amounts_read_as_written_by_hand() {
        assert_eq!(duration(800), "0.8 s");
        assert_eq!(duration(14_200), "14 s");
        assert_eq!(duration(125_000), "2 min 5 s");
        assert_eq!(bytes(4_700_000_000), "4.7 GB");
        assert_eq!(context(131_072), "128k");
        assert_eq!(context(32_000), "32k");
    }
}
