//! Times and amounts as a reader writes them, in the local zone.

use protocol::{Civil, Timestamp};

use crate::ipc;

const MS_PER_DAY: i64 = 86_400_000;
const MS_PER_MIN: i64 = 60_000;

/// The local day a time belongs to, counted from 1970.
pub(crate) fn day(at: Timestamp) -> i64 {
    local_ms(at).div_euclid(MS_PER_DAY)
}

/// When a local day begins.
pub(crate) fn day_start(day: i64) -> Timestamp {
    let midnight_ms = day.saturating_mul(MS_PER_DAY);
    let at = |offset_min: i64| Timestamp::from_millis(midnight_ms + offset_min * MS_PER_MIN);
    // The offset that holds at midnight, not the one that holds now.
    let about = at(ipc::utc_offset_min(Timestamp::from_millis(midnight_ms)));
    at(ipc::utc_offset_min(about))
}

/// "29 Nov", and with another year than `now`'s "29 Nov 2025".
pub(crate) fn date(at: Timestamp, now: Timestamp) -> String {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let civil = local(at);
    let month = MONTHS.get(usize::from(civil.month).saturating_sub(1));
    let month = month.copied().unwrap_or("?");
    match civil.year == local(now).year {
        true => format!("{} {month}", civil.day),
        false => format!("{} {month} {}", civil.day, civil.year),
    }
}

/// "14:03:22"
pub(crate) fn clock(at: Timestamp) -> String {
    let Civil {
        hour,
        minute,
        second,
        ..
    } = local(at);
    format!("{hour:02}:{minute:02}:{second:02}")
}

/// "14:03", with the date in front unless it is today: "2026-11-29, 14:03".
pub(crate) fn moment(at: Timestamp, now: Timestamp) -> String {
    let Civil {
        year,
        month,
        day: of_month,
        hour,
        minute,
        second: _,
    } = local(at);
    let time = format!("{hour:02}:{minute:02}");
    if day(at) == day(now) {
        return time;
    }
    format!("{year}-{month:02}-{of_month:02}, {time}")
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

/// What the reader's clock shows, taken apart.
fn local(at: Timestamp) -> Civil {
    Timestamp::from_millis(local_ms(at)).civil()
}

#[cfg(test)]
mod tests {
    use super::*;

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
