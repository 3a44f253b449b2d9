//! Polls: a commit wakes whoever waits for it, whenever it comes.

use engine::{Fault, gate::Gate};
use protocol::{Batch, Cursor, Epoch, ErrorCode, EventBody, PollRequest, StreamId};
use tests::{
    backend::{Line, Missed, refusal},
    model_server::{Answer, ModelServer},
    watched::{until, within_limit},
    world::World,
};
use tokio::task::JoinSet;

use super::DIALECT;

/// Longer than anything in here takes.
const HOUR_MS: u32 = 60 * 60 * 1_000;

fn request(epoch: Epoch, after: Cursor) -> PollRequest {
    PollRequest {
        epoch,
        after,
        seen_status: u64::MAX,
        wait_ms: HOUR_MS,
        max_bytes: 1_000,
    }
}

/// A poll that is under way. Dropping it is dropping the poll.
struct Polling(JoinSet<Result<Batch, Missed>>);

fn polling(line: &Line, request: PollRequest) -> Polling {
    let line = line.clone();
    let mut polls = JoinSet::new();
    polls.spawn(async move { line.poll(request).await });
    Polling(polls)
}

impl Polling {
    async fn answer(mut self) -> Result<Batch, Missed> {
        let answer = within_limit("the poll to be answered", self.0.join_next()).await;
        answer.expect("there is one").expect("it ran")
    }
}

/// `lost-wakeup`: before the look, between look and park, and after it. Mutant: `CheckThenPark`.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_at_any_point_of_a_poll_is_answered_while_the_clock_stands() {
    let (server, world) = (ModelServer::start(DIALECT), World::new().await);
    server.script(Answer::whole(DIALECT, "Yes."));
    let session = world.begin(&server, "Hello?").await;
    world.page().await.follow(session).until_idle().await;
    let page = world.page().await;
    for (round, gate) in [
        (1, Some(Gate::PollRegistered)),
        (2, Some(Gate::PollLooked)),
        (3, None),
    ] {
        let attached = page.attach(StreamId::Session(session)).await;
        let attached = attached.expect("it may");
        if let Some(gate) = gate {
            world.gates.hold(gate);
        }
        let poll = polling(&world.line, request(attached.epoch, attached.head));
        match gate {
            Some(gate) => world.gates.arrived(gate).await,
            None => {
                let parked = || world.engine().counters().parked_now == 1;
                until("the poll to be parked", parked).await;
            }
        }
        let title = format!("Title {round}");
        world.rename(session, &title).await;
        if let Some(gate) = gate {
            world.gates.release(gate);
        }
        let batch = poll.answer().await.expect("an answer");
        let titles: Vec<_> = batch
            .events
            .iter()
            .filter_map(|event| match &event.body {
                EventBody::SessionRenamed { title, .. } => Some(title.clone()),
                _ => None,
            })
            .collect();
        assert_eq!(titles, [title], "{gate:?}");
        assert_eq!(batch.head.count(), attached.head.count() + 1);
    }
    assert_eq!(world.engine().counters().parked_now, 0);
}

/// INV-40: a look that failed is not the next one's answer. Mutant: `FailedCountIsZero`.
#[tokio::test(flavor = "multi_thread")]
async fn a_poll_after_one_whose_look_failed_does_not_take_the_stream_for_empty() {
    let (server, mut world) = (ModelServer::start(DIALECT), World::new().await);
    server.script(Answer::whole(DIALECT, "Yes."));
    let session = world.begin(&server, "Hello?").await;
    world.page().await.follow(session).until_idle().await;
    world.restart().await;
    let page = world.page().await;
    let attached = page.attach(StreamId::Session(session)).await;
    let attached = attached.expect("it may");
    let from_the_start = request(attached.epoch, Cursor::at_start(attached.head.log()));
    world.faults.fail_reads(Fault::IoError);
    let failed = refusal(world.line.poll(from_the_start).await);
    assert_eq!(failed, ErrorCode::StorageFailed);
    world.faults.heal();
    let poll = polling(&world.line, from_the_start);
    let batch = poll.answer().await.expect("an answer");
    assert_eq!(batch.head, attached.head);
    assert!(!batch.events.is_empty());
}

/// INV-63: what cannot be polled says why, and never with an empty list. Mutant: `ForgetSuperseded`.
#[tokio::test(flavor = "multi_thread")]
async fn every_poll_that_cannot_be_answered_is_refused_by_name() {
    let (server, mut world) = (ModelServer::start(DIALECT), World::new().await);
    server.script(Answer::whole(DIALECT, "Yes."));
    let session = world.begin(&server, "Hello?").await;
    world.page().await.follow(session).until_idle().await;
    let stream = StreamId::Session(session);
    let page = world.page().await;

    let attached = page.attach(stream).await.expect("it may");
    world.line.detach(attached.epoch).await.expect("noted");
    let detached = world
        .line
        .poll(request(attached.epoch, attached.head))
        .await;

    let attached = page.attach(stream).await.expect("it may");
    let again = page.attach(stream).await.expect("it may");
    let replaced = world
        .line
        .poll(request(attached.epoch, attached.head))
        .await;

    // A parked poll is told in mid-wait, and a later one the same.
    let parked = polling(&world.line, request(again.epoch, again.head));
    until("the poll to be parked", || {
        world.engine().counters().parked_now == 1
    })
    .await;
    let newer = page.reload().await;
    let overtaken = parked.answer().await;
    let overtaken_later = world.line.poll(request(again.epoch, again.head)).await;

    let left = newer.attach(stream).await.expect("it may");
    world.clock.advance(std::time::Duration::from_secs(60));
    let forgotten = world.line.poll(request(left.epoch, left.head)).await;

    let old = newer.attach(stream).await.expect("it may");
    world.restart().await;
    let of_another_boot = world.line.poll(request(old.epoch, old.head)).await;

    let told = [
        ("detached", detached, ErrorCode::UnknownEpoch),
        ("replaced", replaced, ErrorCode::UnknownEpoch),
        ("overtaken", overtaken, ErrorCode::Superseded),
        ("overtaken before", overtaken_later, ErrorCode::Superseded),
        ("left for a minute", forgotten, ErrorCode::UnknownEpoch),
        ("of another boot", of_another_boot, ErrorCode::UnknownEpoch),
    ];
    for (what, answer, expected) in told {
        assert_eq!(refusal(answer), expected, "{what}");
    }
}

/// INV-59: a page that slept is forgotten, and resumes where it stood. Mutant: `NoIdleReap`.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_slept_for_more_than_a_minute_attaches_again_and_resumes() {
    let (server, world) = (ModelServer::start(DIALECT), World::new().await);
    server.script(Answer::whole(DIALECT, "Yes."));
    let session = world.begin(&server, "Hello?").await;
    let window = world.page().await.follow(session);
    window.until_idle().await;
    let parked = || world.engine().counters().parked_now == 1;
    until("the poll to be parked", parked).await;
    // While a poll is parked its page is there, however far the clock jumps.
    assert_eq!(world.engine().counters().attachments_now, 1);
    window.hide();
    world.clock.advance(std::time::Duration::from_secs(3_600));
    until("the poll to come home", || {
        world.engine().counters().parked_now == 0 && window.page().requests_out() == 0
    })
    .await;
    assert_eq!(world.engine().counters().attachments_now, 1, "just polled");
    world.clock.advance(std::time::Duration::from_secs(60));
    assert_eq!(world.engine().counters().attachments_now, 0);
    world.rename(session, "While it slept").await;
    window.show();
    window
        .until_shown("the new title", |shown| {
            (shown.title() == "While it slept").then_some(())
        })
        .await;
    let now = window.counters();
    assert_eq!((now.attaches, now.swaps, now.repairs), (2, 1, 1), "resumed");
}
