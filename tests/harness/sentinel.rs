//! Sentinels: words that occur in nothing but what a test put there.
//!
//! Invariant: random, unique, no part of any prompt or message of ours, and counted as occurrences in text.

use std::{
    fmt,
    hash::{BuildHasher, Hasher, RandomState},
};

/// A word nobody else says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentinel(String);

impl Sentinel {
    /// A new one, recognisable in a failure by its `name`.
    pub fn new(name: &str) -> Self {
        Self(format!("{name}{:016x}", random_u64()))
    }

    /// How often it occurs.
    pub fn count_in(&self, text: &str) -> usize {
        text.matches(self.0.as_str()).count()
    }
}

impl fmt::Display for Sentinel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// 64 random bits. The standard library's hasher is keyed anew for every state.
pub fn random_u64() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// 128 random bits, for ids.
pub fn random_u128() -> u128 {
    (u128::from(random_u64()) << 64) | u128::from(random_u64())
}
