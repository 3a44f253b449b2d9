//! Gates: named points at which a fake stops until the test lets it go on.
//!
//! Invariant: a hold is a gate, released by name, never a delay. A gate that a script names and that was not reached
//! or not released makes the test fail when the fake is dropped.

use std::collections::BTreeMap;

use crate::watched::Watched;

#[derive(Clone, Copy, Debug, Default)]
struct Gate {
    arrived: u64,
    released: bool,
    left_early: bool,
}

/// The gates of one fake.
#[derive(Debug)]
pub struct Gates {
    gates: Watched<BTreeMap<String, Gate>>,
}

impl Default for Gates {
    fn default() -> Self {
        Self {
            gates: Watched::new(BTreeMap::new()),
        }
    }
}

impl Gates {
    /// Announces a gate: from now on it has to be reached and released.
    pub fn announce(&self, name: &str) {
        self.gates.change(|gates| {
            gates.entry(name.to_owned()).or_default();
        });
    }

    /// The fake's side: stops here until the test releases the gate. Cancel safe.
    pub async fn pass(&self, name: &str) {
        self.gates
            .change(|gates| gates.entry(name.to_owned()).or_default().arrived += 1);
        self.gates
            .wait(|gates| gates.get(name).filter(|gate| gate.released).map(|_| ()))
            .await;
    }

    /// The fake's side: somebody came to the gate and did not stop there.
    pub fn went_through(&self, name: &str) {
        self.gates.change(|gates| {
            let gate = gates.entry(name.to_owned()).or_default();
            gate.arrived += 1;
            gate.released = true;
        });
    }

    /// The fake's side: whoever was held at the gate went away by itself, which is what the test wanted to see.
    pub fn left_early(&self, name: &str) {
        self.gates
            .change(|gates| gates.entry(name.to_owned()).or_default().left_early = true);
    }

    /// The test's side: waits until the fake stands at the gate.
    pub async fn arrived(&self, name: &str) {
        self.gates
            .until(&format!("the gate {name:?} to be reached"), |gates| {
                gates.get(name).filter(|gate| gate.arrived > 0).map(|_| ())
            })
            .await;
    }

    /// The test's side: lets everyone pass who stands at the gate, and who comes later.
    ///
    /// # Panics
    /// When no script has a gate of that name.
    pub fn release(&self, name: &str) {
        self.gates.change(|gates| match gates.get_mut(name) {
            Some(gate) => gate.released = true,
            None => panic!("no gate is called {name:?}; there are {:?}", gates.keys()),
        });
    }

    /// The test's side: nobody has to be reached or released any more.
    pub fn forget(&self) {
        self.gates.change(|gates| {
            for gate in gates.values_mut() {
                gate.arrived += 1;
                gate.released = true;
            }
        });
    }

    /// What is wrong with the gates at the end of a test.
    pub fn faults(&self) -> Vec<String> {
        self.gates.read(|gates| {
            gates
                .iter()
                .filter_map(|(name, gate)| match gate {
                    Gate { arrived: 0, .. } => Some(format!("the gate {name:?} was never reached")),
                    Gate {
                        released: false,
                        left_early: false,
                        ..
                    } => Some(format!("the gate {name:?} was never released")),
                    Gate { .. } => None,
                })
                .collect()
        })
    }
}
