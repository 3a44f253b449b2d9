//! The guards of pages, attachments and batches.

use std::time::Duration;

use engine::{Fault, gate::Gate, mutant::Mutant};
use protocol::{Attached, Cursor, Op, PollRequest, StreamId};
use tests::client::Page;

use super::{ended, refusal, said, set};

fn request(attached: &Attached, after: Cursor) -> PollRequest {
    PollRequest {
        epoch: attached.epoch,
        after,
        seen_status: u64::MAX,
        wait_ms: 0,
        max_bytes: 1_000,
    }
}

/// The hello of a page that was reloaded comes once more, while the newer one follows.
pub(super) async fn hello_again(mutant: Option<Mutant>) -> String {
    let (world, _server) = set(mutant).await;
    let old = world.page().await;
    let live = old.reload().await;
    let attached = live.attach(StreamId::Library).await.expect("it may");
    let again = world.line.hello("main", old.id()).await;
    assert!(again.is_err() || mutant.is_some());
    let answer = world.line.poll(request(&attached, attached.head)).await;
    format!("live-refused{}", u8::from(refusal(answer).is_some()))
}

/// Nobody polls for a minute.
pub(super) async fn left(mutant: Option<Mutant>) -> String {
    let (world, _server) = set(mutant).await;
    let page = world.page().await;
    page.attach(StreamId::Library).await.expect("it may");
    world.clock.advance(Duration::from_secs(60));
    format!("attachments{}", world.engine().counters().attachments_now)
}

/// A page polls after a newer one has taken its place.
pub(super) async fn overtaken(mutant: Option<Mutant>) -> String {
    let (world, _server) = set(mutant).await;
    let page = world.page().await;
    let attached = page.attach(StreamId::Library).await.expect("it may");
    let _newer = page.reload().await;
    let answer = world.line.poll(request(&attached, attached.head)).await;
    said(refusal(answer), "answered")
}

/// An attach is held, its rows read, until the page has attached again.
pub(super) async fn late_attach(mutant: Option<Mutant>) -> String {
    let (world, _server) = set(mutant).await;
    let page = world.page().await;
    world.gates.hold(Gate::RowsRead);
    let late = page.attach(StreamId::Library);
    let next = async {
        world.gates.arrived(Gate::RowsRead).await;
        let attached = page.attach(StreamId::Library).await.expect("it may");
        world.gates.release(Gate::RowsRead);
        attached
    };
    // Whatever the late one is told: its page waits for the other.
    let (_, attached) = tokio::join!(late, next);
    let answer = world.line.poll(request(&attached, attached.head)).await;
    said(refusal(answer), "the living poll goes on")
}

/// A batch that may hold less than the next event needs.
pub(super) async fn big_event(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    let session = ended(&world, &server).await;
    let title = "long ".repeat(80);
    world
        .submit(Op::RenameSession { session, title })
        .await
        .expect("renamed");
    let page = Page::load(&world.line, "another").await;
    let attached = page
        .attach(StreamId::Session(session))
        .await
        .expect("it may");
    let before = Cursor::from_count(attached.head.log(), attached.head.count() - 1);
    let small = PollRequest {
        max_bytes: 100,
        ..request(&attached, before)
    };
    let batch = world.line.poll(small).await.expect("an answer");
    if batch.events.is_empty() {
        "stuck1"
    } else {
        "delivered"
    }
    .to_owned()
}

/// The look of a poll fails, and another poll comes after it.
pub(super) async fn failed_look(mutant: Option<Mutant>) -> String {
    let (mut world, server) = set(mutant).await;
    let session = ended(&world, &server).await;
    world.restart().await;
    let page = world.page().await;
    let attached = page
        .attach(StreamId::Session(session))
        .await
        .expect("it may");
    let start = Cursor::at_start(attached.head.log());
    world.faults.fail_reads(Fault::IoError);
    let failed = world.line.poll(request(&attached, start)).await;
    assert!(failed.is_err(), "it could not look");
    world.faults.heal();
    let polling = world.line.poll(PollRequest {
        wait_ms: 8_000,
        ..request(&attached, start)
    });
    let parked = async {
        while world.engine().counters().parked_now == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        answer = polling => {
            answer.expect("an answer");
            "answered".to_owned()
        }
        () = parked => "parked1".to_owned(),
    }
}
