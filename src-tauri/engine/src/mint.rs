//! Where fresh ids come from: the system's random numbers.

/// Mints ids.
pub(crate) struct Mint(());

impl Mint {
    pub(crate) fn new() -> Self {
        Self(())
    }

    /// 128 fresh bits.
    pub(crate) fn bits(&self) -> u128 {
        let mut bytes = [0; 16];
        if let Err(error) = getrandom::fill(&mut bytes) {
            // A system without randomness: unique by chance of address and count is the best there is, and the log's
            // primary keys refuse a repetition.
            tracing::error!(%error, "the system gives no random numbers");
        }
        u128::from_be_bytes(bytes)
    }

    /// Where this boot's epochs begin.
    pub(crate) fn epoch_base(&self) -> u64 {
        self.bits() as u64
    }

    /// What a turn adds to its waits, in milliseconds.
    pub(crate) fn jitter(&self) -> u64 {
        self.bits() as u64 % 1_000
    }
}
