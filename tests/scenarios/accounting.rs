//! What an answer took: its times and tokens in the log, its row in the ledger, and what of it the model did not see.

use protocol::{
    AttemptState, Dialect, Event, EventBody, Ledger, LedgerArgs, LedgerSums, Op, Price, Prices,
    Purpose, Timestamp, Timings, TurnId, Unread,
};
use tests::{
    model_server::{Answer, DIALECTS, ModelServer, Script},
    verdict::judge,
    world::World,
};
use transcript::{ledger, waterfall::Waterfall};

async fn ledger_of(world: &World) -> Ledger {
    let bounds = vec![Timestamp::from_millis(0), Timestamp::from_millis(i64::MAX)];
    let asked = world.engine().ledger(LedgerArgs { bounds }).await;
    asked.expect("a ledger")
}

fn all(ledger: &Ledger) -> LedgerSums {
    let rows = ledger.rows.iter();
    rows.fold(LedgerSums::default(), |sum, row| sum.plus(row.sums))
}

fn unread(body: EventBody) -> Option<Unread> {
    match body {
        EventBody::StepEnded { unread, .. } => unread,
        _ => None,
    }
}

/// B70: a context that is too small, and a server that says nothing of it. Mutants: `UnreadUntold`, `CacheIsCut`.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_left_out_without_a_word_is_told_and_is_told_again_from_the_log() {
    for dialect in DIALECTS {
        let (server, world) = (ModelServer::start(dialect), World::new().await);
        server.script(Answer::new(dialect).having_read(2_100).says("Oui.").ends());
        let cut = Answer::new(dialect).having_read(4_096).says("Yes.");
        server.script(cut.ends());
        let long = format!("How does kelp hold on? {}", "kelp ".repeat(2_000));
        let session = world.begin(&server, &long).await;
        let window = world.page().await.follow(session);
        window.sees("Oui.").await;
        window.until_idle().await;
        world.say(session, &"tide ".repeat(4_000)).await;
        window.sees("Yes.").await;
        window.until_idle().await;
        let found: Vec<Option<Unread>> = world
            .events(session)
            .into_iter()
            .filter(|event| matches!(event.body, EventBody::StepEnded { .. }))
            .map(|event| unread(event.body))
            .collect();
        let [None, Some(cut)] = found[..] else {
            panic!("{dialect:?}: {found:?}");
        };
        assert_eq!(
            (cut.read_tokens, cut.turns, cut.partly),
            (4_096, 1, Some(TurnId::new(2))),
            "{dialect:?}: {cut:?}"
        );
        assert!(cut.sent_tokens_min > 6_000, "{dialect:?}: {cut:?}");
        // The window, the log and a window that is opened later say the same.
        let shown = |turns: Vec<protocol::TurnView>| {
            let last = turns.last().expect("a turn").attempts.last().cloned();
            match last.expect("an attempt").state {
                AttemptState::Ended { unread, .. } => unread,
                other => panic!("{other:?}"),
            }
        };
        let now = window.look(|shown| shown.map(|shown| shown.turns().cloned().collect()));
        assert_eq!(shown(now.expect("shown")), Some(cut));
        let later = world.page().await.follow(session);
        later.sees("Yes.").await;
        let later = later.look(|shown| shown.map(|shown| shown.turns().cloned().collect()));
        assert_eq!(shown(later.expect("shown")), Some(cut));
        judge(&world, session, &[&window]).await;
    }
}

/// Mutants: `RetryOverwrites`, `UnknownIsZero`.
#[tokio::test(flavor = "multi_thread")]
async fn every_request_has_its_row_also_after_a_restart_and_costs_what_the_user_says() {
    for dialect in DIALECTS {
        let (server, mut world) = (ModelServer::start(dialect), World::new().await);
        server.script(Script::error(dialect, 503, "busy"));
        server.script(Answer::whole(dialect, "Yes."));
        let session = world.begin(&server, "Hello?").await;
        let window = world.page().await.follow(session);
        world.pass_the_wait(&window, 2).await;
        window.sees("Yes.").await;
        window.until_idle().await;
        let before = ledger_of(&world).await;
        let sums = all(&before);
        assert_eq!(
            (sums.attempts(), sums.ended, sums.failed),
            (2, 1, 1),
            "{dialect:?}"
        );
        assert_eq!(
            (
                sums.prompt_tokens,
                sums.prompt_known,
                sums.completion_tokens
            ),
            (31, 1, 7),
            "{dialect:?}"
        );
        assert_eq!(before.prices, None);

        let model = server.model();
        let price = Price {
            provider: model.provider,
            model: model.model,
            input_micros: 1_000_000,
            cached_micros: None,
            output_micros: 10_000_000,
        };
        let prices = Prices {
            currency: "$".to_owned(),
            models: vec![price],
        };
        let chosen = world.submit(Op::ChoosePrices { prices }).await;
        chosen.expect("chosen");
        world.restart().await;
        let after = ledger_of(&world).await;
        assert_eq!(after.rows, before.rows, "{dialect:?}");
        let totals = ledger::Totals::of(&after, 1);
        assert_eq!(totals.all.cost, ledger::Cost::AtLeast(101), "{dialect:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_currency_that_is_none_is_refused_and_bounds_that_do_not_ascend_too() {
    let world = World::new().await;
    let prices = Prices {
        currency: "a whole sentence".to_owned(),
        models: Vec::new(),
    };
    assert!(world.submit(Op::ChoosePrices { prices }).await.is_err());
    let ms = Timestamp::from_millis;
    for bounds in [vec![], vec![ms(1)], vec![ms(2), ms(1)], vec![ms(0); 500]] {
        let asked = world.engine().ledger(LedgerArgs { bounds }).await;
        assert!(asked.is_err());
    }
}

/// Mutant: `SummaryUnlisted`.
#[tokio::test(flavor = "multi_thread")]
async fn the_request_for_a_summary_is_in_the_log_and_in_the_ledger_like_any_other() {
    let dialect = Dialect::Ollama;
    let (server, world) = (ModelServer::start(dialect), World::new().await);
    server.script(Answer::whole(dialect, &"kelp ".repeat(100)));
    let words = "request (1531 tokens) exceeds the available context size (1024 tokens)";
    server.script(Script::error(dialect, 400, words));
    server.script(Answer::whole(dialect, "They spoke of kelp."));
    server.script(Answer::whole(dialect, "Twice a day."));
    let session = world.begin(&server, "What is kelp?").await;
    let window = world.page().await.follow(session);
    window.until_idle().await;
    world.say(session, "And the tides?").await;
    window.sees("Twice a day.").await;
    window.until_idle().await;

    let rows = ledger_of(&world).await.rows;
    let of = |purpose: Purpose| {
        let rows = rows.iter().filter(|row| row.purpose == purpose);
        rows.fold(LedgerSums::default(), |sum, row| sum.plus(row.sums))
    };
    let (answers, summaries) = (of(Purpose::Answer), of(Purpose::Summary));
    assert_eq!((answers.ended, answers.failed), (2, 1));
    assert_eq!((summaries.ended, summaries.failed), (1, 0));
    assert_eq!(
        server.counters().chats,
        answers.attempts() + summaries.attempts(),
        "what was asked is what is counted"
    );
    let events: Vec<Event> = world.events(session);
    let second = events
        .into_iter()
        .filter(|event| event.turn == Some(TurnId::new(2)));
    let now = Timestamp::from_millis(i64::MAX);
    let waterfall = Waterfall::of(&second.collect::<Vec<_>>(), Some(now));
    // The test's clock stands still, so nothing took any time, and none is made up.
    assert_eq!((waterfall.total_ms, waterfall.segments.len()), (0, 0));
    judge(&world, session, &[&window]).await;
}

/// Our clock's readings stand in the log, in the order in which things happen.
#[tokio::test(flavor = "multi_thread")]
async fn the_times_of_a_request_ascend_from_its_connection_to_its_end() {
    for dialect in DIALECTS {
        let (server, world) = (ModelServer::start(dialect), World::new().await);
        server.script(Answer::whole(dialect, "Yes."));
        let session = world.begin(&server, "Hello?").await;
        let window = world.page().await.follow(session);
        window.sees("Yes.").await;
        window.until_idle().await;
        let timings: Vec<Timings> = world
            .events(session)
            .into_iter()
            .filter_map(|event| match event.body {
                EventBody::StepEnded { timings, .. } => Some(timings),
                _ => None,
            })
            .collect();
        let [
            Timings {
                connect_ms: Some(connect),
                head_ms: Some(head),
                first_content_ms: Some(first),
                total_ms: Some(total),
                ..
            },
        ] = timings[..]
        else {
            panic!("{dialect:?}: {timings:?}");
        };
        assert!(
            connect <= head && head <= first && first <= total,
            "{dialect:?}: {timings:?}"
        );
    }
}
