//! Transport, attach, fold: whatever the line does, what is shown is the log, once and in order.
//!
//! Every story names, in its doc comment, the row of the list of scenarios that it tells.

mod chaos;
mod far_up;
mod large;
mod library;
mod older;
mod ops;
mod pages;
mod polls;
mod repairs;
mod resets;
mod windows;

use std::{sync::Arc, time::Duration};

use protocol::{Dialect, Phase};
use tests::{
    client::{Client, Page},
    clock::TestClock,
    watched::until,
    world::World,
};
use transcript::Transcript;

const DIALECT: Dialect = Dialect::Ollama;

/// The floor of a repair and its largest jitter, and a little more.
const REPAIR_MAX: Duration = Duration::from_secs(1);

/// A page whose patience is the test's.
async fn patient_page(world: &World, window: &str) -> (Page, TestClock) {
    let clock = TestClock::default();
    let page = Page::load_with_clock(&world.line, window, Arc::new(clock.clone())).await;
    (page, clock)
}

/// Waits until the only window has seen everything, and its next poll is parked.
async fn settled(world: &World, window: &Client<Transcript>) {
    window.until_idle().await;
    let idle = |status: &protocol::Status| status.phase == Phase::Idle;
    window.until_status("the session to be idle", idle).await;
    let parked = || world.engine().counters().parked_now == 1;
    until("its poll to be parked", parked).await;
}
