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

use protocol::{Dialect, ErrorCode, Op, Phase, SessionId};
use tests::{
    backend::Missed,
    client::{Client, Page},
    clock::TestClock,
    watched::within_limit,
    world::World,
};
use transcript::Transcript;

const DIALECT: Dialect = Dialect::Ollama;

/// The floor of a repair and its largest jitter, and a little more.
const REPAIR_MAX: Duration = Duration::from_secs(1);

fn refusal<T: std::fmt::Debug>(answer: Result<T, Missed>) -> ErrorCode {
    match answer {
        Err(Missed::Refused(report)) => report.code,
        other => panic!("not refused: {other:?}"),
    }
}

/// Goes on when something holds; fails when it never does.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let look = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    within_limit(what, look).await;
}

/// A page whose patience is the test's.
async fn patient_page(world: &World, window: &str) -> (Page, TestClock) {
    let clock = TestClock::default();
    let page = Page::load_with_clock(&world.line, window, Arc::new(clock.clone())).await;
    (page, clock)
}

/// How long a page waits for the answer to a poll.
fn poll_limit() -> Duration {
    Duration::from_millis(u64::from(transcript::POLL_WAIT_MS) + transcript::POLL_MARGIN_MS)
}

/// How long it waits for a load.
fn load_limit() -> Duration {
    Duration::from_millis(transcript::LOAD_LIMIT_MS)
}

async fn rename(world: &World, session: SessionId, title: &str) {
    let title = title.to_owned();
    let renamed = world.submit(Op::RenameSession { session, title }).await;
    renamed.expect("renamed");
}

/// Waits until the only window has seen everything, and its next poll is parked.
async fn settled(world: &World, window: &Client<Transcript>) {
    window.until_idle().await;
    let idle = |status: &protocol::Status| status.phase == Phase::Idle;
    window.until_status("the session to be idle", idle).await;
    let parked = || world.engine().counters().parked_now == 1;
    until("its poll to be parked", parked).await;
}
