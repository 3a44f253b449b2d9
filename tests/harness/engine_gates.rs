//! The engine's own gates, in the hands of a test: held, released, or made to panic.
//!
//! Invariant: a gate that was planned and is not reached, or reached and not released, fails the test when the world
//! is dropped. Gates that nobody planned let everybody pass.
//! The n-th visit of a gate is counted from the moment the engine opens, so that a story names one and no other.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};

use engine::gate::{Gate, Gatekeeper};

use crate::gate::Gates;

/// What happens at the planned visit of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Hold,
    Panic,
}

#[derive(Debug, Default)]
struct Keeper {
    gates: Gates,
    plans: Mutex<BTreeMap<(Gate, u64), Order>>,
    visits: Mutex<BTreeMap<Gate, u64>>,
}

/// The gates of one world's engines.
#[derive(Debug, Default)]
pub struct EngineGates {
    keeper: Arc<Keeper>,
}

impl EngineGates {
    /// What the engine asks.
    pub fn keeper(&self) -> Arc<dyn Gatekeeper> {
        Arc::new(Door(Arc::clone(&self.keeper)))
    }

    /// How often the gate was visited so far.
    pub fn visits(&self, gate: Gate) -> u64 {
        self.keeper.visits(gate)
    }

    /// Holds whoever comes to the gate next.
    pub fn hold(&self, gate: Gate) {
        self.plan(gate, self.visits(gate) + 1, Order::Hold);
    }

    /// Whoever comes to the gate next panics there.
    pub fn panic_at(&self, gate: Gate) {
        self.plan(gate, self.visits(gate) + 1, Order::Panic);
    }

    fn plan(&self, gate: Gate, visit: u64, order: Order) {
        self.keeper.gates.announce(&name(gate, visit));
        self.keeper.plans().insert((gate, visit), order);
    }

    /// Waits until somebody stands at the gate that was planned last.
    pub async fn arrived(&self, gate: Gate) {
        let name = self.planned(gate);
        self.keeper.gates.arrived(&name).await;
    }

    /// Lets them go on.
    pub fn release(&self, gate: Gate) {
        self.keeper.gates.release(&self.planned(gate));
    }

    /// Waits until somebody stands at the gate and lets them go on.
    pub async fn pass(&self, gate: Gate) {
        self.arrived(gate).await;
        self.release(gate);
    }

    fn planned(&self, gate: Gate) -> String {
        let plans = self.keeper.plans();
        let visit = plans.keys().rfind(|(planned, _)| *planned == gate);
        let (gate, visit) = visit.unwrap_or_else(|| panic!("nothing is planned at {gate:?}"));
        name(*gate, *visit)
    }
}

impl Drop for EngineGates {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let faults = self.keeper.gates.faults();
        assert!(faults.is_empty(), "the engine:\n{}", faults.join("\n"));
    }
}

impl Keeper {
    fn plans(&self) -> std::sync::MutexGuard<'_, BTreeMap<(Gate, u64), Order>> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn visits(&self, gate: Gate) -> u64 {
        let visits = self.visits.lock().unwrap_or_else(PoisonError::into_inner);
        visits.get(&gate).copied().unwrap_or(0)
    }

    /// Counts the visit; the name of the gate if it is held at this one.
    fn visit(&self, gate: Gate) -> Option<String> {
        let visit = {
            let mut visits = self.visits.lock().unwrap_or_else(PoisonError::into_inner);
            let count = visits.entry(gate).or_insert(0);
            *count += 1;
            *count
        };
        let order = self.plans().get(&(gate, visit)).copied()?;
        let name = name(gate, visit);
        match order {
            Order::Hold => Some(name),
            Order::Panic => {
                self.gates.went_through(&name);
                panic!("a test wants a panic at {gate:?}");
            }
        }
    }
}

/// What the engine holds of its keeper.
#[derive(Debug)]
struct Door(Arc<Keeper>);

impl Gatekeeper for Door {
    fn pass(&self, gate: Gate) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let keeper = Arc::clone(&self.0);
        let held_at = self.0.visit(gate);
        Box::pin(async move {
            if let Some(name) = held_at {
                keeper.gates.pass(&name).await;
            }
        })
    }

    fn pass_blocking(&self, gate: Gate) {
        let Some(name) = self.0.visit(gate) else {
            return;
        };
        let waiting = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime to wait in");
        waiting.block_on(self.0.gates.pass(&name));
    }
}

fn name(gate: Gate, visit: u64) -> String {
    format!("{gate:?}, visit {visit}")
}
