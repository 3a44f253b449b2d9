//! How long to wait for what: one set, valid as a whole or refused as a whole.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How long a turn waits for what, in milliseconds. There is no total limit for an answer: slow is not dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeLimits {
    /// For a connection.
    pub connect_ms: u64,
    /// Silence before the first text or call of an answer. Headers do not end it, any body byte restarts it; a model that
    /// loads is waited for this long.
    pub first_event_ms: u64,
    /// Silence after it; any body byte restarts it.
    pub gap_ms: u64,
    /// Active time of a whole turn: waiting for the user's word and sleeping do not count.
    pub ceiling_ms: u64,
}

/// Shortest limit that is accepted: less cannot be told from a hiccup of the network.
pub const LIMIT_MS_MIN: u64 = 1_000;

/// Longest limit that is accepted: thirty days.
pub const LIMIT_MS_MAX: u64 = 30 * 24 * 60 * 60 * 1_000;

impl Default for TimeLimits {
    fn default() -> Self {
        Self {
            connect_ms: 10_000,
            // A cold model on a slow disk takes minutes, and closing the connection aborts its load.
            first_event_ms: 600_000,
            gap_ms: 300_000,
            ceiling_ms: 3_600_000,
        }
    }
}

/// Why a set of limits cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidLimit {
    /// The field at fault, as in [`TimeLimits`].
    pub field: &'static str,
    /// What to change, in a sentence.
    pub message: String,
}

impl fmt::Display for InvalidLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for InvalidLimit {}

impl TimeLimits {
    /// Whether the set can be used. Two limits that fire together would leave one of them unexplained, so the ceiling is
    /// longer than both silences, and equality is refused.
    ///
    /// # Errors
    /// The first field at fault.
    pub fn validate(&self) -> Result<(), InvalidLimit> {
        let named = [
            ("connect_ms", "The wait for a connection", self.connect_ms),
            (
                "first_event_ms",
                "The wait for the first word",
                self.first_event_ms,
            ),
            ("gap_ms", "The longest silence", self.gap_ms),
            ("ceiling_ms", "The limit of a turn", self.ceiling_ms),
        ];
        for (field, name, ms) in named {
            if ms < LIMIT_MS_MIN {
                return Err(invalid(
                    field,
                    format!("{name} must be at least one second."),
                ));
            }
            if ms > LIMIT_MS_MAX {
                return Err(invalid(
                    field,
                    format!("{name} cannot be longer than thirty days."),
                ));
            }
        }
        if self.ceiling_ms <= self.first_event_ms {
            return Err(invalid(
                "ceiling_ms",
                "The limit of a turn must be longer than the wait for the first word.".to_owned(),
            ));
        }
        if self.ceiling_ms <= self.gap_ms {
            return Err(invalid(
                "ceiling_ms",
                "The limit of a turn must be longer than the longest silence.".to_owned(),
            ));
        }
        Ok(())
    }
}

fn invalid(field: &'static str, message: String) -> InvalidLimit {
    InvalidLimit { field, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_valid_as_a_whole_or_refused_at_the_field_at_fault() {
        let good = TimeLimits::default();
        let with = |change: fn(&mut TimeLimits)| {
            let mut limits = good;
            change(&mut limits);
            limits.validate().map_err(|error| error.field)
        };
        type Case = (fn(&mut TimeLimits), Result<(), &'static str>);
        let cases: [Case; 9] = [
            (|_| {}, Ok(())),
            (|l| l.connect_ms = 0, Err("connect_ms")),
            (|l| l.gap_ms = 999, Err("gap_ms")),
            (|l| l.first_event_ms = u64::MAX, Err("first_event_ms")),
            (|l| l.ceiling_ms = l.first_event_ms, Err("ceiling_ms")),
            (|l| l.ceiling_ms = l.first_event_ms + 1, Ok(())),
            (|l| l.gap_ms = l.ceiling_ms, Err("ceiling_ms")),
            (|l| l.gap_ms = l.ceiling_ms - 1, Ok(())),
            (|l| l.ceiling_ms = LIMIT_MS_MAX + 1, Err("ceiling_ms")),
        ];
        for (number, (change, verdict)) in cases.into_iter().enumerate() {
            assert_eq!(with(change), verdict, "case {number}");
        }
    }
}
