//! Pages: the newest page of a window owns what it follows, in whatever order the calls of old and new arrive.

use protocol::{Cursor, Epoch, ErrorCode, LogId, PageId, PollRequest, StreamId};
use tests::{
    backend::{Missed, refusal},
    client::Page,
    hand::Hand,
    model_server::{Answer, ModelServer},
    sentinel::random_u128,
    verdict::judge,
    watched::{until, within_limit},
    world::World,
};
use transcript::{Library, Link, LinkState};

use super::DIALECT;

/// What the engine may remember of pages, windows and attachments that are gone.
const REMEMBERED_MAX: usize = 520;

fn poll(epoch: Epoch, after: Cursor) -> PollRequest {
    PollRequest {
        epoch,
        after,
        seen_status: 0,
        wait_ms: 0,
        max_bytes: 1_000,
    }
}

/// A call of the page that was reloaded, executed late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Old {
    Hello,
    Attach,
    Poll,
    HelloAgain,
}

/// Every order of a page's four late calls among three of the living page.
fn orders() -> Vec<Vec<Option<Old>>> {
    fn extend(order: &[Option<Old>], left: &[Old], own: usize, out: &mut Vec<Vec<Option<Old>>>) {
        if left.is_empty() && own == 0 {
            out.push(order.to_vec());
        }
        for call in left {
            let rest: Vec<_> = left.iter().copied().filter(|other| other != call).collect();
            extend(&[order, &[Some(*call)]].concat(), &rest, own, out);
        }
        if own > 0 {
            extend(&[order, &[None]].concat(), left, own - 1, out);
        }
    }
    let mut out = Vec::new();
    let old = [Old::Hello, Old::Attach, Old::Poll, Old::HelloAgain];
    extend(&[], &old, 3, &mut out);
    out
}

/// The living page: hello first, and then whatever its link says.
async fn live(living: &mut Hand<Library>, said_hello: &mut bool) {
    if !*said_hello || living.link.needs_hello() {
        living.hello().await.expect("a living page is welcome");
        *said_hello = true;
    } else {
        living.step().await;
    }
}

/// `page-order`. Mutants: `LastHelloWins`, `ForgetSuperseded`.
#[tokio::test(flavor = "multi_thread")]
async fn in_every_order_of_an_old_pages_calls_the_living_page_is_the_one_attached() {
    let world = World::new().await;
    let orders = orders();
    assert_eq!(orders.len(), 840, "seven calls, three of them in order");
    for order in orders {
        let window = format!("{order:?}");
        let old = PageId::from_bits(random_u128());
        let mut old_epoch = None;
        let mut living = Hand::new(&world.line, &window, Link::new(StreamId::Library, 1));
        let mut said_hello = false;
        for call in &order {
            match call {
                None => live(&mut living, &mut said_hello).await,
                Some(Old::Hello | Old::HelloAgain) => {
                    // Whatever it is told: nobody is there any more to hear it.
                    let _ = world.line.hello(&window, old).await;
                }
                Some(Old::Attach) => {
                    let attached = world.line.attach(old, StreamId::Library, None).await;
                    old_epoch = attached
                        .ok()
                        .map(|attached| (attached.epoch, attached.head));
                }
                Some(Old::Poll) => {
                    let nowhere = (
                        Epoch::new(0),
                        Cursor::at_start(LogId::from_bits(random_u128())),
                    );
                    let (epoch, after) = old_epoch.unwrap_or(nowhere);
                    // As above.
                    let _ = world.line.poll(poll(epoch, after)).await;
                }
            }
        }
        let mut steps = 0;
        loop {
            let polls = living.link.counters().polls;
            live(&mut living, &mut said_hello).await;
            steps += 1;
            assert!(steps < 12, "{order:?} does not settle: {:?}", living.link);
            let polled = living.link.counters().polls > polls;
            if polled && living.link.state() == LinkState::Live {
                break;
            }
        }
        assert_eq!(
            world.engine().counters().attachments_now,
            1,
            "{order:?}: only the living page"
        );
        let late = world.line.hello(&window, old).await;
        assert_eq!(refusal(late), ErrorCode::Superseded, "{order:?}");
        let late = world.line.attach(old, StreamId::Library, None).await;
        assert_eq!(refusal(late), ErrorCode::Superseded, "{order:?}");
        if let Some((epoch, after)) = old_epoch {
            let late = world.line.poll(poll(epoch, after)).await;
            assert_eq!(refusal(late), ErrorCode::Superseded, "{order:?}");
        }
        world.engine().window_gone(&window);
    }
    let now = world.engine().counters();
    assert_eq!((now.attachments_now, now.parked_now), (0, 0));
    assert!(now.remembered_now <= REMEMBERED_MAX, "{now:?}");
}

/// `page-kill`. Mutant: `NoReap`.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_reloads_in_mid_answer_leave_one_attachment_and_one_poll() {
    let (server, world) = (ModelServer::start(DIALECT), World::new().await);
    let words = "word ".repeat(500);
    let answer = Answer::new(DIALECT).says_word_by_word(&words);
    server.script(answer.gate("end").says("end.").ends());
    let session = world.begin(&server, "Hello?").await;
    // All of it has come, and most of it waits to be written.
    server.arrived("end").await;
    let mut page = world.page().await;
    let mut polls = tokio::task::JoinSet::new();
    for n in 0..1_000 {
        page = page.reload().await;
        let attached = page.attach(StreamId::Session(session)).await;
        let attached = attached.expect("a fresh page may attach");
        let line = world.line.clone();
        let request = PollRequest {
            epoch: attached.epoch,
            after: attached.head,
            seen_status: u64::MAX,
            wait_ms: 8_000,
            max_bytes: 1_000,
        };
        polls.spawn(async move { line.poll(request).await });
        if n % 100 == 0 {
            // Some of the text goes to the log between the reloads.
            tokio::select! {
                biased;
                () = world.clock.fire_next_within(std::time::Duration::from_millis(33)) => {}
                () = std::future::ready(()) => {}
            }
        }
    }
    let (mut overtaken, mut brought) = (0, 0);
    while polls.len() > 1 {
        let answer = within_limit("a poll to come home", polls.join_next()).await;
        match answer.expect("there are more").expect("it ran") {
            Ok(batch) => brought += batch.events.len().min(1),
            Err(Missed::Refused(report)) => {
                assert_eq!(report.code, ErrorCode::Superseded);
                overtaken += 1;
            }
            Err(Missed::Lost) => panic!("nobody answered"),
        }
    }
    assert_eq!(overtaken + brought, 999);
    let now = world.engine().counters();
    assert_eq!(now.attachments_now, 1);
    assert!(now.parked_now <= 1, "{now:?}");
    assert!(now.remembered_now <= REMEMBERED_MAX, "{now:?}");
    polls.shutdown().await;
    until("the last poll to end", || {
        world.engine().counters().parked_now == 0
    })
    .await;

    let window = page.follow(session);
    world.flush_until(&window, &words).await;
    server.pass("end").await;
    let text = window.until_idle().await;
    assert_eq!(
        text,
        format!("you: Hello?\nmodel: {words}end.\n(completed)\n")
    );
    judge(&world, session, &[&window]).await;
}

/// INV-59, 129: what windows leave behind is nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_windows_opened_reloaded_and_closed_leave_nothing() {
    let (server, world) = (ModelServer::start(DIALECT), World::new().await);
    server.script(Answer::whole(DIALECT, "Yes."));
    let session = world.begin(&server, "Hello?").await;
    world.page().await.follow(session).until_idle().await;
    world.engine().window_gone("main");
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let tasks_before = tasks();
    let whole = "you: Hello?\nmodel: Yes.\n(completed)\n";
    for n in 0..1_000 {
        let name = format!("window {n}");
        let page = Page::load(&world.line, &name).await;
        let first = page.follow(session);
        assert_eq!(first.until_idle().await, whole);
        drop(first);
        let page = page.reload().await;
        let window = page.follow(session);
        assert_eq!(window.until_idle().await, whole);
        match n % 3 {
            // The pane is closed first, the window goes away under it, or its page just dies.
            0 => window.close().await,
            1 => drop(window),
            _ => {
                world.engine().window_gone(&name);
                drop(window);
            }
        }
        world.engine().window_gone(&name);
    }
    until("every poll to end", || {
        world.engine().counters().parked_now == 0 && tasks() <= tasks_before
    })
    .await;
    let now = world.engine().counters();
    assert_eq!((now.attachments_now, now.parked_now), (0, 0));
    assert!(now.remembered_now <= REMEMBERED_MAX, "{now:?}");
    judge(&world, session, &[]).await;
}
