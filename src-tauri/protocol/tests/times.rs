//! A moment's date and time of day are those of the calendar.

use protocol::{Civil, Timestamp};

#[test]
fn times_read_as_rfc_3339() {
    for (ms, text) in [
        (0, "1970-01-01T00:00:00Z"),
        (-1, "1969-12-31T23:59:59Z"),
        (951_782_399_999, "2000-02-28T23:59:59Z"),
        (951_782_400_000, "2000-02-29T00:00:00Z"),
        (1_795_977_599_999, "2026-11-29T18:39:59Z"),
        (4_107_542_400_000, "2100-03-01T00:00:00Z"),
        (-62_167_219_200_000, "0000-01-01T00:00:00Z"),
    ] {
        assert_eq!(Timestamp::from_millis(ms).rfc3339(), text);
    }
}

#[test]
fn the_ends_of_time_have_a_date_too() {
    for ms in [i64::MIN, i64::MAX] {
        let Civil { month, day, .. } = Timestamp::from_millis(ms).civil();
        assert!((1..=12).contains(&month) && (1..=31).contains(&day));
    }
}
