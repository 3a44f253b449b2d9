//! Ids, positions and times: one newtype per meaning, so that none can stand in for another.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Text that is not an id of the expected form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAnId;

impl fmt::Display for NotAnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an id: expected 32 hexadecimal digits")
    }
}

impl std::error::Error for NotAnId {}

macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u128);

        impl $name {
            /// An id from 128 bits that whoever mints it got from a source of ids.
            pub const fn from_bits(bits: u128) -> Self {
                Self(bits)
            }
            /// The bits, for storage.
            pub const fn bits(self) -> u128 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:032x})"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = NotAnId;
            fn from_str(text: &str) -> Result<Self, NotAnId> {
                if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
                    return Err(NotAnId);
                }
                u128::from_str_radix(text, 16).map(Self).map_err(|_| NotAnId)
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

random_id! {
    /// One database. A cursor of another log is answered `Reset`, never clamped.
    LogId
}
random_id! {
    /// One run of the engine.
    Boot
}
random_id! {
    /// One durable conversation.
    SessionId
}
random_id! {
    /// A client-minted name of one op: the op runs once, however often it arrives.
    OpId
}
random_id! {
    /// One load of a page; the newest of a window supersedes the older ones.
    PageId
}
random_id! {
    /// One configured model server.
    ProviderId
}

macro_rules! dense_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(u64);

        impl $name {
            /// The first of its session.
            pub const FIRST: Self = Self(1);
            /// The number as stored.
            pub const fn get(self) -> u64 {
                self.0
            }
            /// From a stored number.
            pub const fn new(number: u64) -> Self {
                Self(number)
            }
            /// The one after this.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

dense_id! {
    /// A turn of one session: 1, 2, 3 … in the order they started; never used again, also not after a rewind.
    TurnId
}
dense_id! {
    /// An item of one session (message, reasoning block, tool call), in the order they appeared.
    ItemId
}
dense_id! {
    /// The 1-based, dense number of an event in its stream.
    Seq
}

/// The position after the last event a client applied, in the log it belongs to; exclusive.
///
/// Opaque on purpose: "no cursor" is `Option::None`, and no number made up by a client passes for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cursor {
    log: LogId,
    after: u64,
}

/// What a cursor says of an event's seq.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The very next event: apply it.
    Next,
    /// Already applied: drop it.
    Seen,
    /// Something is missing in between: attach again.
    Gap,
}

impl Cursor {
    /// Before the first event of a stream in `log`.
    pub const fn at_start(log: LogId) -> Self {
        Self { log, after: 0 }
    }
    /// After the event `seq`.
    pub const fn after(log: LogId, seq: Seq) -> Self {
        Self {
            log,
            after: seq.get(),
        }
    }
    /// From the engine's own count of a stream's events.
    pub const fn from_count(log: LogId, count: u64) -> Self {
        Self { log, after: count }
    }
    /// The log this position belongs to.
    pub const fn log(self) -> LogId {
        self.log
    }
    /// How many events of the stream lie before this position.
    pub const fn count(self) -> u64 {
        self.after
    }
    /// Whether an event is the next one, an old one, or beyond a gap.
    pub const fn admits(self, seq: Seq) -> Admission {
        let seq = seq.get();
        if seq <= self.after {
            Admission::Seen
        } else if seq == self.after + 1 {
            Admission::Next
        } else {
            Admission::Gap
        }
    }
    /// This position moved to after `seq`.
    #[must_use]
    pub const fn advanced_to(self, seq: Seq) -> Self {
        Self {
            log: self.log,
            after: seq.get(),
        }
    }
}

/// Names one attachment; minted by the engine, random-based per boot, so none is valid in another boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Epoch(u64);

impl Epoch {
    /// From the engine's mint.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Text, because a number above 2^53 does not survive JavaScript.
impl Serialize for Epoch {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Epoch {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
        u64::from_str_radix(&text, 16)
            .map(Self)
            .map_err(serde::de::Error::custom)
    }
}

/// Wall-clock time in milliseconds since 1970, UTC. For the reader; nothing is decided by comparing two of them.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From milliseconds since 1970, UTC.
    pub const fn from_millis(ms: i64) -> Self {
        Self(ms)
    }
    /// Milliseconds since 1970, UTC.
    pub const fn millis(self) -> i64 {
        self.0
    }
    /// Milliseconds from `earlier` to this; 0 if the clock was set back in between.
    pub const fn millis_since(self, earlier: Self) -> u64 {
        let ms = self.0.saturating_sub(earlier.0);
        if ms > 0 { ms as u64 } else { 0 }
    }

    /// The date and time of day in UTC, in the proleptic Gregorian calendar.
    ///
    /// Years are counted from March, so that the leap day is the last of its year; 400 of them are one era of 146,097 days.
    pub const fn civil(self) -> Civil {
        let seconds = self.0.div_euclid(1_000);
        let of_day = seconds.rem_euclid(86_400);
        let days = seconds.div_euclid(86_400) + 719_468;
        let era = days.div_euclid(146_097);
        let of_era = days.rem_euclid(146_097);
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * of_year + 2) / 153;
        let month = if month_from_march < 10 {
            month_from_march + 3
        } else {
            month_from_march - 9
        };
        Civil {
            year: year_of_era + era * 400 + (month <= 2) as i64,
            month: month as u8,
            day: (of_year - (153 * month_from_march + 2) / 5 + 1) as u8,
            hour: (of_day / 3_600) as u8,
            minute: (of_day / 60 % 60) as u8,
            second: (of_day % 60) as u8,
        }
    }

    /// Days from 1970 to a date of the same calendar; the inverse of [`Self::civil`]. Months are counted from 1.
    pub const fn days_of_civil(year: i64, month: i64, day: i64) -> i64 {
        let year = if month <= 2 { year - 1 } else { year };
        let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
        era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
    }

    /// RFC 3339 in UTC, to the second: "2026-11-29T18:39:59Z".
    pub fn rfc3339(self) -> String {
        let Civil {
            year,
            month,
            day,
            hour,
            minute,
            second,
        } = self.civil();
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

/// A [`Timestamp`] taken apart as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    /// 1970 is 1970; 0 is the year before 1.
    pub year: i64,
    /// 1 to 12.
    pub month: u8,
    /// 1 to 31.
    pub day: u8,
    /// 0 to 23.
    pub hour: u8,
    /// 0 to 59.
    pub minute: u8,
    /// 0 to 59.
    pub second: u8,
}

/// One append-only list of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StreamId {
    /// What sessions and providers exist.
    Library,
    /// One session.
    Session(SessionId),
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Library => f.write_str("library"),
            Self::Session(session) => write!(f, "{session}"),
        }
    }
}

impl FromStr for StreamId {
    type Err = NotAnId;
    fn from_str(text: &str) -> Result<Self, NotAnId> {
        if text == "library" {
            Ok(Self::Library)
        } else {
            text.parse().map(Self::Session)
        }
    }
}

impl Serialize for StreamId {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for StreamId {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
