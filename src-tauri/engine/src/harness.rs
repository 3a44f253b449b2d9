//! What a test holds of an engine it opened: its gates, and the one guard it took out.
//!
//! Invariant: without the cargo features `gates` and `mutants`, which only the package `tests` asks for, this is an
//! empty struct, and every use of it compiles to nothing.
//! Not here: what stands at a gate, and what a mutant does. Both stand where they act.

/// Passed in through [`Config`](crate::Config), and from there to whoever has a gate or a guard.
#[derive(Clone, Debug, Default)]
pub struct Harness {
    #[cfg(feature = "gates")]
    keeper: Option<std::sync::Arc<dyn crate::gate::Gatekeeper>>,
    #[cfg(feature = "mutants")]
    mutant: Option<crate::mutant::Mutant>,
}

#[cfg(feature = "gates")]
impl Harness {
    /// Everyone who comes to a gate asks this keeper.
    #[must_use]
    pub fn with_keeper(mut self, keeper: std::sync::Arc<dyn crate::gate::Gatekeeper>) -> Self {
        self.keeper = Some(keeper);
        self
    }

    pub(crate) async fn stand_at(&self, gate: crate::gate::Gate) {
        if let Some(keeper) = &self.keeper {
            keeper.pass(gate).await;
        }
    }

    pub(crate) fn stand_at_blocking(&self, gate: crate::gate::Gate) {
        if let Some(keeper) = &self.keeper {
            keeper.pass_blocking(gate);
        }
    }
}

#[cfg(feature = "mutants")]
impl Harness {
    /// Takes one guard out.
    #[must_use]
    pub fn with_mutant(mut self, mutant: crate::mutant::Mutant) -> Self {
        self.mutant = Some(mutant);
        self
    }

    pub(crate) fn lacks(&self, guard: crate::mutant::Mutant) -> bool {
        self.mutant == Some(guard)
    }
}
