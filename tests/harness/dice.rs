//! Dice: where a random story goes next. The same seed goes the same way, and a story prints its seed when it fails.

/// A sequence of random numbers.
#[derive(Clone, Debug)]
pub struct Dice {
    seed: u64,
    state: u64,
}

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self { seed, state: seed }
    }

    /// What to print when a story fails.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// A number from 0 to `sides - 1`.
    pub fn below(&mut self, sides: u64) -> u64 {
        // SplitMix64: any seed will do, zero included.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % sides
    }

    /// A number from `first` to `last`.
    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// Whether something happens that happens once in `n` times.
    pub fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of these.
    pub fn one_of<T: Clone>(&mut self, choices: &[T]) -> T {
        let last = u64::try_from(choices.len()).expect("a short list");
        let at = usize::try_from(self.below(last)).expect("a short list");
        choices[at].clone()
    }
}
