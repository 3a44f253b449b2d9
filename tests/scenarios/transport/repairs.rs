//! Repairs: one at a time, each later than the last, four by themselves and then a button; none out of sight.

use std::time::Duration;

use engine::Fault as DiskFault;
use protocol::{ErrorCode, SessionId};
use tests::{
    client::{CallKind, Client, Fault, Page, load_limit, poll_limit},
    clock::TestClock,
    model_server::{Answer, ModelServer},
    verdict::judge,
    world::World,
};
use transcript::{LinkState, REPAIR_DELAY_MS, Transcript, Trouble};

use super::{DIALECT, REPAIR_MAX, patient_page, settled};

const WHOLE: &str = "you: Hello?\nmodel: Yes.\n(completed)\n";

/// A finished conversation in a window whose patience is the test's, with a poll parked.
struct Set {
    world: World,
    _server: ModelServer,
    session: SessionId,
    page: Page,
    clock: TestClock,
    window: Client<Transcript>,
}

async fn ended() -> (World, ModelServer, SessionId) {
    let (server, world) = (ModelServer::start(DIALECT), World::new().await);
    server.script(Answer::whole(DIALECT, "Yes."));
    let session = world.begin(&server, "Hello?").await;
    world.page().await.follow(session).until_idle().await;
    world.engine().window_gone("main");
    (world, server, session)
}

async fn set() -> Set {
    let (world, server, session) = ended().await;
    let (page, clock) = patient_page(&world, "main").await;
    let window = page.follow(session);
    settled(&world, &window).await;
    Set {
        world,
        _server: server,
        session,
        page,
        clock,
        window,
    }
}

impl Set {
    /// The next poll finds its epoch forgotten, and something happens so that there is a next poll.
    async fn forget(&self, title: &str) {
        self.page
            .fault(CallKind::Poll, Fault::Refuse(ErrorCode::UnknownEpoch));
        self.world.rename(self.session, title).await;
    }
}

/// `fail-load` (a). Mutant: `ClearBeforeLoad`.
#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_fails_over_content_changes_nothing_and_is_repaired() {
    let set = set().await;
    set.forget("Meanwhile").await;
    set.window
        .until_counters("the repair", |now| now.repairs == 1)
        .await;
    set.world.faults.fail_reads(DiskFault::IoError);
    set.clock.fire_next_within(REPAIR_MAX).await;
    set.window
        .until_counters("the failure", |now| now.repairs == 2)
        .await;
    let why = Trouble::Refused(ErrorCode::StorageFailed);
    assert_eq!(set.window.trouble(), Some(why), "it is said");
    assert_eq!(set.window.text(), WHOLE);
    set.world.faults.heal();
    set.clock.fire_next_within(2 * REPAIR_MAX).await;
    settled(&set.world, &set.window).await;
    let now = set.window.counters();
    assert_eq!((now.attaches, now.repairs, now.swaps), (3, 2, 1));
    let draws = set.window.draws();
    assert!(draws.iter().all(|drawn| drawn == WHOLE), "{draws:?}");
    judge(&set.world, set.session, &[&set.window]).await;
}

/// `fail-load` (b). `ErrorIsEmpty` cannot be: an error brings no fold, and without a fold there is nothing to call empty.
#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_fails_on_a_cold_open_is_not_an_empty_chat() {
    let (world, _server, session) = ended().await;
    world.faults.fail_reads(DiskFault::IoError);
    let (page, clock) = patient_page(&world, "main").await;
    let window = page.follow(session);
    window
        .until_counters("the failure", |now| now.refused == 1)
        .await;
    assert!(
        window.look(|shown| shown.is_none()),
        "no evidence of anything"
    );
    assert_ne!(window.state(), LinkState::Live);
    world.faults.heal();
    clock.fire_next_within(REPAIR_MAX).await;
    assert_eq!(window.until_idle().await, WHOLE);
    let now = window.counters();
    assert_eq!((now.attaches, now.repairs, now.swaps), (2, 1, 1));
    assert_eq!(window.draws().last().map(String::as_str), Some(WHOLE));
    judge(&world, session, &[&window]).await;
}

/// `repair-bounded`. Mutants: `HealTriggersItself`, `NoRepairDelay`.
#[tokio::test(flavor = "multi_thread")]
async fn twenty_failing_loads_cost_as_many_attaches_as_the_schedule_says_and_the_next_one_heals() {
    let (server, world) = (ModelServer::start(DIALECT), World::new().await);
    server.script(
        Answer::new(DIALECT)
            .says("Half ")
            .gate("end")
            .says("done.")
            .ends(),
    );
    let session = world.begin(&server, "Hello?").await;
    let calm = world.page().await.follow(session);
    calm.sees("Half ").await;
    let before = world.engine().counters().attach_arrived;
    let (page, clock) = patient_page(&world, "troubled").await;
    page.always(CallKind::Attach, Fault::Refuse(ErrorCode::StorageFailed));
    let window = page.follow(session);
    for press in 0..4 {
        for n in 1..=4_u64 {
            window
                .until_counters("the failure", |now| now.refused == press * 5 + n)
                .await;
            let floor = Duration::from_millis(REPAIR_DELAY_MS << (n - 1));
            let armed = clock.until_armed_within(2 * floor).await;
            assert!(
                armed >= floor && armed <= floor + floor / 2,
                "try {n} comes after {armed:?}"
            );
            clock.advance(armed);
        }
        window.until_state(LinkState::NeedsManual).await;
        clock.until_no_timer().await;
        clock.advance(Duration::from_secs(3_600));
        assert_eq!(
            window.counters().attaches,
            press * 5 + 5,
            "nothing by itself"
        );
        if press == 1 {
            server.pass("end").await;
            calm.until_idle().await;
        }
        if press == 3 {
            page.mend();
        }
        window.retry();
    }
    let text = window.until_idle().await;
    assert_eq!(text, calm.text());
    assert_eq!(window.counters().attaches, 21);
    assert_eq!(
        world.engine().counters().attach_arrived - before,
        1,
        "the ones before never arrived"
    );
    judge(&world, session, &[&window, &calm]).await;
}

/// `repair-budget`. Mutant: `ResetsUncounted`.
#[tokio::test(flavor = "multi_thread")]
async fn resets_without_end_stop_at_the_button_which_heals_and_does_not_revive_what_is_closed() {
    let set = set().await;
    set.page.always(CallKind::Attach, Fault::Reset);
    set.page
        .always(CallKind::Poll, Fault::Refuse(ErrorCode::UnknownEpoch));
    set.world.rename(set.session, "Meanwhile").await;
    let at_the_button = set.window.until_state(LinkState::NeedsManual);
    tokio::select! {
        () = at_the_button => {}
        () = async { loop { set.clock.fire_next_within(8 * REPAIR_MAX).await } } => unreachable!("for ever"),
    }
    let now = set.window.counters();
    assert_eq!((now.attaches, now.resets, now.manual), (1 + 4, 4, 1));
    set.clock.until_no_timer().await;
    set.page.mend();
    set.window.retry();
    set.world.rename(set.session, "Healed").await;
    set.window
        .until_shown("the title", |shown| {
            (shown.title() == "Healed").then_some(())
        })
        .await;
    assert_eq!(set.window.state(), LinkState::Live);
    judge(&set.world, set.session, &[&set.window]).await;

    let before = set.window.counters();
    set.window.close().await;
    set.window.retry();
    set.window.show();
    set.clock.until_no_timer().await;
    set.clock.advance(Duration::from_secs(3_600));
    set.clock.until_no_timer().await;
    let now = set.window.counters();
    assert_eq!(
        (now.attaches, now.polls),
        (before.attaches, before.polls),
        "a closed pane stays closed"
    );
}

/// `hidden-repair`. Mutant: `NoFireCheck`.
#[tokio::test(flavor = "multi_thread")]
async fn a_repair_that_was_armed_in_sight_waits_until_there_is_sight_again() {
    let set = set().await;
    set.forget("Meanwhile").await;
    set.window
        .until_counters("the repair", |now| now.repairs == 1)
        .await;
    set.clock.until_armed_within(REPAIR_MAX).await;
    set.window.hide();
    set.clock.until_no_timer().await;
    set.clock.advance(Duration::from_secs(10));
    set.clock.until_no_timer().await;
    assert_eq!(set.window.counters().attaches, 1, "none while hidden");
    set.window.show();
    settled(&set.world, &set.window).await;
    assert_eq!(set.window.counters().attaches, 2, "one after");
    judge(&set.world, set.session, &[&set.window]).await;
}

/// `hung-answer`. Mutant: `NoWaitLimit`.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_does_not_come_is_given_up_at_its_limit_and_declined_when_it_does() {
    let (world, _server, session) = ended().await;
    let (page, clock) = patient_page(&world, "main").await;
    page.fault(CallKind::Attach, Fault::HoldAnswer("attach".to_owned()));
    let window = page.follow(session);
    page.arrived("attach").await;
    clock.until_armed(load_limit()).await;
    clock.advance(load_limit() - Duration::from_millis(1));
    assert_eq!(window.counters().given_up, 0, "not before its limit");
    clock.advance(Duration::from_millis(1));
    clock.fire_next_within(REPAIR_MAX).await;
    settled(&world, &window).await;
    page.fault(CallKind::Poll, Fault::HoldAnswer("poll".to_owned()));
    // The poll that is parked already is answered; the next one's answer is held, and must have something to tell.
    world.rename(session, "One").await;
    window
        .until_shown("the first title", |shown| {
            (shown.title() == "One").then_some(())
        })
        .await;
    world.rename(session, "Two").await;
    page.arrived("poll").await;
    clock.until_armed(poll_limit()).await;
    clock.advance(poll_limit());
    clock.fire_next_within(2 * REPAIR_MAX).await;
    window
        .until_shown("the title", |shown| (shown.title() == "Two").then_some(()))
        .await;
    let (before, shown) = (window.counters(), window.to_page());
    assert_eq!((before.attaches, before.given_up), (3, 2));
    page.release("attach");
    page.release("poll");
    window
        .until_counters("the late answers", |now| now.declined == 2)
        .await;
    assert_eq!(window.to_page(), shown);
    assert_eq!(window.counters().attaches, 3);
    judge(&world, session, &[&window]).await;
}

/// `destroy-midload`. Mutant: `LeakScope`.
#[tokio::test(flavor = "multi_thread")]
async fn a_pane_closed_while_two_loads_are_held_does_nothing_more_and_leaves_nothing() {
    let server = ModelServer::start(DIALECT);
    let (world, session) = tests::seeded::conversation_of(&server, 40).await;
    let (page, clock) = patient_page(&world, "main").await;
    let window = page.follow(session);
    settled(&world, &window).await;
    page.fault(CallKind::Older, Fault::HoldAnswer("older".to_owned()));
    page.fault(CallKind::Poll, Fault::Refuse(ErrorCode::UnknownEpoch));
    page.fault(CallKind::Attach, Fault::HoldAnswer("attach".to_owned()));
    world.rename(session, "Meanwhile").await;
    window
        .until_counters("the repair", |now| now.repairs == 1)
        .await;
    clock.fire_next_within(REPAIR_MAX).await;
    page.arrived("attach").await;
    let before = (window.counters(), window.draws().len());
    let older = window.load_older();
    let closing = async {
        page.arrived("older").await;
        window.close().await;
        page.release("attach");
        page.release("older");
    };
    let (added, ()) = tokio::join!(older, closing);
    assert_eq!(added, 0, "nobody is there to show them");
    window
        .until_counters("both answers", |now| now.declined == 2)
        .await;
    clock.until_no_timer().await;
    clock.advance(Duration::from_secs(3_600));
    clock.until_no_timer().await;
    let after = window.counters();
    assert_eq!(
        (after.attaches, after.polls, window.draws().len()),
        (before.0.attaches, before.0.polls, before.1),
        "nothing is asked, and nothing is drawn"
    );
    world.clock.advance(Duration::from_secs(60));
    let now = world.engine().counters();
    assert_eq!((now.attachments_now, now.parked_now), (0, 0));
    judge(&world, session, &[]).await;
}
