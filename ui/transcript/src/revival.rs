//! When a page that broke loads itself anew, and when it waits for its reader.
//!
//! Invariant: a page that breaks again soon is not loaded in a loop.

use protocol::Timestamp;

/// A page that lived so long broke over something else than the one before it.
const HEALTHY_MS: u64 = 5 * 60 * 1_000;

/// Whether a page that breaks now loads itself anew; `last` is when one broke in this window before.
pub fn reloads_by_itself(last: Option<Timestamp>, now: Timestamp) -> bool {
    last.is_none_or(|last| now.millis_since(last) >= HEALTHY_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_loads_itself_anew_once_and_then_waits_for_its_reader() {
        let at = |ms: u64| Timestamp::from_millis(i64::try_from(ms).expect("a time"));
        assert!(reloads_by_itself(None, at(0)));
        assert!(!reloads_by_itself(Some(at(1)), at(2)));
        assert!(!reloads_by_itself(Some(at(0)), at(HEALTHY_MS - 1)));
        assert!(reloads_by_itself(Some(at(0)), at(HEALTHY_MS)));
        assert!(
            !reloads_by_itself(Some(at(10)), at(9)),
            "a clock that was set back is no time in good health"
        );
    }
}
