//! Older turns: what was read long ago is filed as what it is, and the log decides.

use protocol::{Op, TurnId};
use tests::{
    client::{CallKind, Client, Fault, Page},
    model_server::{Answer, ModelServer},
    seeded,
    verdict::judge,
};
use transcript::Transcript;

use super::DIALECT;

fn first_and_last(window: &Client<Transcript>) -> (u64, u64) {
    window.look(|shown| {
        let turns = || shown.expect("something is shown").turns();
        let id = |turn: Option<&protocol::TurnView>| turn.expect("turns").turn.get();
        (id(turns().next()), id(turns().next_back()))
    })
}

/// `read-across-rewind`, first leg. Mutant: `IgnoreAsOf`.
#[tokio::test(flavor = "multi_thread")]
async fn older_turns_read_before_a_rewind_are_filed_without_what_was_rewound() {
    let server = ModelServer::start(DIALECT);
    let (world, session) = seeded::conversation_of(&server, 59).await;
    let page = world.page().await;
    let window = page.follow(session);
    window.until_idle().await;
    assert_eq!(first_and_last(&window), (37, 60));
    page.fault(CallKind::Older, Fault::HoldAnswer("older".to_owned()));
    let older = window.load_older();
    let rewinding = async {
        page.arrived("older").await;
        // The other window goes back to a turn that only the held page has.
        let other = Page::load(&world.line, "another").await.follow(session);
        other.until_idle().await;
        server.script(Answer::whole(DIALECT, "Another way."));
        let tip = other.look(|shown| shown.and_then(Transcript::tip));
        let edit = Op::EditMessage {
            session,
            turn: TurnId::new(30),
            text: "Differently?".to_owned(),
            expected_tip: tip.expect("a tip"),
            images: None,
        };
        world.submit(edit).await.expect("it is edited");
        window.sees("Another way.").await;
        window.until_idle().await;
        assert_eq!(first_and_last(&window), (61, 61));
        page.release("older");
    };
    let (added, ()) = tokio::join!(older, rewinding);
    assert_eq!(added, 17, "turns 13 to 29, and none that was rewound");
    assert_eq!(first_and_last(&window), (13, 61));
    while window.load_older().await > 0 {}
    assert_eq!(first_and_last(&window), (1, 61));
    assert_eq!(window.counters().swaps, 1);
    judge(&world, session, &[&window]).await;
}

/// `read-across-rewind`, second leg. Mutant: `LastArrivedWins`.
#[tokio::test(flavor = "multi_thread")]
async fn two_older_pages_that_come_in_the_wrong_order_end_as_the_log_has_it() {
    let server = ModelServer::start(DIALECT);
    let (world, session) = seeded::conversation_of(&server, 59).await;
    let page = world.page().await;
    let window = page.follow(session);
    window.until_idle().await;
    page.fault(CallKind::Older, Fault::HoldAnswer("first".to_owned()));
    let first = window.load_older();
    let second = async {
        page.arrived("first").await;
        assert_eq!(window.load_older().await, 24);
        assert_eq!(window.load_older().await, 12);
        assert_eq!(first_and_last(&window), (1, 60));
        page.release("first");
    };
    let (late, ()) = tokio::join!(first, second);
    assert_eq!(late, 0, "all of it was there");
    assert_eq!(
        window.look(|shown| shown.and_then(Transcript::older_before)),
        None,
        "and what it knows of what is above is old"
    );
    judge(&world, session, &[&window]).await;
}

/// `read-across-rewind`, third leg. Mutant: `AnyEdition`.
#[tokio::test(flavor = "multi_thread")]
async fn older_turns_asked_for_before_a_reset_are_declined_after_it() {
    let server = ModelServer::start(DIALECT);
    let (world, session) = seeded::conversation_of(&server, 59).await;
    let page = world.page().await;
    let window = page.follow(session);
    window.until_idle().await;
    page.fault(CallKind::Older, Fault::HoldAnswer("older".to_owned()));
    let older = window.load_older();
    let resetting = async {
        page.arrived("older").await;
        page.fault(
            CallKind::Poll,
            Fault::Refuse(protocol::ErrorCode::UnknownEpoch),
        );
        page.fault(CallKind::Attach, Fault::Reset);
        world.rename(session, "Meanwhile").await;
        window
            .until_counters("the reset", |now| now.swaps == 2)
            .await;
        page.release("older");
    };
    let (late, ()) = tokio::join!(older, resetting);
    assert_eq!((late, window.counters().declined), (0, 1));
    while window.load_older().await > 0 {}
    judge(&world, session, &[&window]).await;
}
