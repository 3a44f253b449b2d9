//! Following: reloads, lost answers, other windows, other boots. What is drawn is the whole text, once, in order.

use std::{sync::Arc, time::Duration};

use protocol::{CancelledBy, Dialect, InterruptedWhy, Op, StreamId, TurnOutcome};
use tests::{
    client::{CallKind, Fault, Page, poll_limit},
    clock::TestClock,
    dice::Dice,
    model_server::{Answer, DIALECTS, ModelServer},
    sentinel::Sentinel,
    verdict::judge,
    world::World,
};
use transcript::LinkState;

#[tokio::test(flavor = "multi_thread")]
async fn a_page_reloaded_in_mid_answer_shows_the_whole_text_once() {
    for dialect in DIALECTS {
        let server = ModelServer::start(dialect);
        let world = World::new().await;
        let (first, last) = (Sentinel::new("first"), Sentinel::new("last"));
        let answer = Answer::new(dialect)
            .says(&format!("{first} "))
            .gate("reload");
        server.script(answer.says(&format!("and {last}")).ends());
        let session = world.begin(&server, "Hello?").await;

        let page = world.page().await;
        let window = page.follow(session);
        window.sees(&first.to_string()).await;
        let reloaded = page.reload().await;
        drop(window);
        let window = reloaded.follow_with_witness(session, world.data_dir());
        window.sees(&first.to_string()).await;
        server.pass("reload").await;

        let text = window.until_idle().await;
        assert_eq!(
            text,
            format!("you: Hello?\nmodel: {first} and {last}\n(completed)\n")
        );
        let blank = window
            .draws()
            .iter()
            .filter(|drawn| first.count_in(drawn) != 1)
            .count();
        assert_eq!(
            blank,
            0,
            "a draw without the first words: {:?}",
            window.draws()
        );
        judge(&world, session, &[&window]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn attaching_again_at_the_cursor_yields_no_gap_and_no_duplicate() {
    for fault in [Fault::LoseCall, Fault::LoseAnswer] {
        let server = ModelServer::start(Dialect::Ollama);
        let world = World::new().await;
        let answer = Answer::new(Dialect::Ollama)
            .says("One, ")
            .gate("1")
            .says("two, ")
            .gate("2");
        server.script(answer.says("three.").ends());
        let session = world.begin(&server, "Count.").await;
        // The page's patience is the test's here.
        let clock = TestClock::default();
        let page = Page::load_with_clock(&world.line, "main", Arc::new(clock.clone()));
        let page = page.await;
        let window = page.follow_with_witness(session, world.data_dir());
        window.sees("One, ").await;

        page.fault(CallKind::Poll, fault.clone());
        server.pass("1").await;
        world.flush_text().await;
        page.until_faults_met().await;
        server.pass("2").await;
        // The page gives up on the lost answer, and begins again where it stands.
        clock.until_armed(poll_limit()).await;
        clock.advance(poll_limit());
        clock.fire_next_within(Duration::from_secs(1)).await;

        let text = window.until_idle().await;
        assert_eq!(
            text, "you: Count.\nmodel: One, two, three.\n(completed)\n",
            "{fault:?}"
        );
        let counters = window.counters();
        assert_eq!(
            (
                counters.attaches,
                counters.swaps,
                counters.given_up,
                counters.repeated
            ),
            (2, 1, 1, 0),
            "attached again at its cursor, and nothing came twice"
        );
        judge(&world, session, &[&window]).await;
    }
}

/// How long a page waits for the answer to a poll.

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_come_twice_and_calls_that_run_twice_change_nothing() {
    for fault in [Fault::DoubleAnswer, Fault::DoubleCall] {
        let server = ModelServer::start(Dialect::Ollama);
        let world = World::new().await;
        let word = Sentinel::new("once");
        let answer = Answer::new(Dialect::Ollama).says("It is said ").gate("1");
        server.script(answer.says(&word.to_string()).ends());
        let session = world.begin(&server, "Hello?").await;
        let page = world.page().await;
        if fault == Fault::DoubleAnswer {
            page.fault(CallKind::Attach, fault.clone());
        }
        page.fault(CallKind::Poll, fault.clone());
        let window = page.follow_with_witness(session, world.data_dir());
        window.sees("It is said ").await;
        server.pass("1").await;
        let text = window.until_idle().await;
        assert_eq!(word.count_in(&text), 1, "{fault:?}: {text}");
        judge(&world, session, &[&window]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_held_until_the_page_has_moved_on_is_declined() {
    let server = ModelServer::start(Dialect::Ollama);
    let world = World::new().await;
    server.script(
        Answer::new(Dialect::Ollama)
            .says("One, ")
            .gate("1")
            .says("two.")
            .ends(),
    );
    let session = world.begin(&server, "Count.").await;
    let clock = TestClock::default();
    let page = Page::load_with_clock(&world.line, "main", Arc::new(clock.clone())).await;
    page.fault(CallKind::Attach, Fault::HoldAnswer("old".to_owned()));
    let window = page.follow(session);
    page.arrived("old").await;
    let load_limit = Duration::from_millis(transcript::LOAD_LIMIT_MS);
    clock.until_armed(load_limit).await;
    clock.advance(load_limit);
    clock.fire_next_within(Duration::from_secs(1)).await;
    window.sees("One, ").await;
    server.pass("1").await;
    window.until_idle().await;
    let before = window.counters();
    page.release("old");
    window
        .until_counters("the old answer to be declined", |now| now.declined == 1)
        .await;
    let after = window.counters();
    assert_eq!((after.swaps, after.attaches), (before.swaps, 2));
    assert_eq!(
        window.text(),
        "you: Count.\nmodel: One, two.\n(completed)\n"
    );
    judge(&world, session, &[&window]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_restarted_under_a_living_page_goes_on_with_the_interrupted_text_once() {
    for dialect in DIALECTS {
        let server = ModelServer::start(dialect);
        let mut world = World::new().await;
        let word = Sentinel::new("half");
        server.script(
            Answer::new(dialect)
                .says(&format!("A {word} "))
                .goes_silent(),
        );
        let session = world.begin(&server, "Hello?").await;
        let window = world
            .page()
            .await
            .follow_with_witness(session, world.data_dir());
        window.sees(&word.to_string()).await;
        world.quit().await;
        server
            .until("our socket to close", |counters| counters.closed_by_us == 1)
            .await;
        world.open().await;
        let text = window.until_idle().await;
        assert_eq!(
            text,
            format!("you: Hello?\nmodel: A {word} \n(interrupted: AppExit)\n")
        );
        let ends: Vec<_> = world
            .reader()
            .transcript(session)
            .unwrap()
            .turns
            .into_iter()
            .map(|turn| turn.outcome)
            .collect();
        let why = InterruptedWhy::AppExit;
        assert_eq!(
            ends,
            [Some(TurnOutcome::Interrupted { why })],
            "{dialect:?}"
        );
        judge(&world, session, &[&window]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_windows_see_the_same_and_closing_either_leaves_the_turn_alone() {
    let server = ModelServer::start(Dialect::OpenAiChat);
    let world = World::new().await;
    let answer = Answer::new(Dialect::OpenAiChat)
        .says("One, ")
        .gate("1")
        .says("two, ")
        .gate("2");
    server.script(answer.says("three.").ends());
    let session = world.begin(&server, "Count.").await;
    let one = Page::load(&world.line, "one").await.follow(session);
    let two = Page::load(&world.line, "two").await.follow(session);
    one.sees("One, ").await;
    two.sees("One, ").await;
    drop(one);
    server.pass("1").await;
    world.flush_text().await;
    two.sees("two, ").await;
    drop(two);
    server.pass("2").await;
    let three = Page::load(&world.line, "three").await.follow(session);
    let text = three.until_idle().await;
    assert_eq!(text, "you: Count.\nmodel: One, two, three.\n(completed)\n");
    assert_eq!(server.counters().closed_by_us, 0);
    judge(&world, session, &[&three]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_page_of_a_window_is_told_that_it_is_superseded() {
    let world = World::new().await;
    let old = world.page().await;
    let library = old.follow_library();
    library.until_state(LinkState::Live).await;
    drop(library);
    let new = old.reload().await;
    let refused = old
        .attach(StreamId::Library)
        .await
        .expect_err("the old page is refused");
    assert_eq!(refused.code, protocol::ErrorCode::Superseded);
    new.attach(StreamId::Library)
        .await
        .expect("the new page is not");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_reloads_leave_one_attachment() {
    let server = ModelServer::start(Dialect::Ollama);
    let world = World::new().await;
    server.script(
        Answer::new(Dialect::Ollama)
            .says("Still ")
            .gate("end")
            .says("here.")
            .ends(),
    );
    let session = world.begin(&server, "Hello?").await;
    let mut page = world.page().await;
    for _ in 0..1_000 {
        page = page.reload().await;
        page.attach(StreamId::Session(session))
            .await
            .expect("a fresh page may attach");
    }
    assert_eq!(world.engine().counters().attachments_now, 1);
    let window = page.follow(session);
    window.sees("Still ").await;
    server.pass("end").await;
    window.until_idle().await;
    assert_eq!(world.engine().counters().attachments_now, 1);
    judge(&world, session, &[&window]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hidden_window_asks_nothing_and_catches_up_when_it_is_shown() {
    let server = ModelServer::start(Dialect::Ollama);
    let world = World::new().await;
    server.script(
        Answer::new(Dialect::Ollama)
            .says("Before. ")
            .gate("1")
            .says("Meanwhile.")
            .ends(),
    );
    let session = world.begin(&server, "Hello?").await;
    let window = world.page().await.follow(session);
    window.sees("Before. ").await;
    window.hide();
    server.pass("1").await;
    let witness = Page::load(&world.line, "another").await.follow(session);
    witness.until_idle().await;
    window.show();
    let text = window.until_idle().await;
    assert_eq!(
        text,
        "you: Hello?\nmodel: Before. Meanwhile.\n(completed)\n"
    );
    assert_eq!(window.counters().swaps, 1, "nothing was loaded anew");
    judge(&world, session, &[&window, &witness]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_library_follows_titles_turns_and_the_bin() {
    let server = ModelServer::start(Dialect::Ollama);
    let world = World::new().await;
    server.script(Answer::new(Dialect::Ollama).gate("end").says("Hi.").ends());
    let page = world.page().await;
    let library = page.follow_library();
    let session = world.begin(&server, "Good morning").await;
    library.sees("Good morning (running)\n").await;
    server.pass("end").await;
    library.sees("Good morning (completed)\n").await;
    let rename = Op::RenameSession {
        session,
        title: "Dawn".to_owned(),
    };
    world.submit(rename).await.unwrap();
    library.sees("Dawn (completed)\n").await;
    world.submit(Op::BinSession { session }).await.unwrap();
    library.sees("Dawn (completed, in the bin)\n").await;
    world.submit(Op::UnbinSession { session }).await.unwrap();
    library
        .until_text("it to be back on the shelf", |text| {
            text == "Dawn (completed)\n"
        })
        .await;
    assert_eq!(
        library.counters().swaps,
        1,
        "each change was one event, not a reload"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_closes_our_socket_and_keeps_what_was_said() {
    for dialect in DIALECTS {
        for (script, said) in [
            (Answer::new(dialect).goes_silent(), ""),
            (
                Answer::new(dialect).thinks("Let me ").goes_silent(),
                "thinks: Let me \n",
            ),
            (
                Answer::new(dialect)
                    .says("Some ")
                    .says("words ")
                    .goes_silent(),
                "model: Some words \n",
            ),
        ] {
            let server = ModelServer::start(dialect);
            let world = World::new().await;
            server.script(script);
            let session = world.begin(&server, "Hello?").await;
            let window = world
                .page()
                .await
                .follow_with_witness(session, world.data_dir());
            server.chat(1).await;
            if let Some(last) = said.split(' ').rfind(|word| word.len() > 1) {
                world.flush_until(&window, last).await;
            }
            let turn = window
                .until_shown("the turn to run", |shown| shown.running())
                .await;
            world.stop(session, turn).await;
            world.stop(session, turn).await;
            assert_eq!(
                window.until_idle().await,
                format!("you: Hello?\n{said}(stopped)\n"),
                "{dialect:?}"
            );
            server
                .until("our socket to close", |counters| counters.closed_by_us == 1)
                .await;
            let outcome = world.reader().transcript(session).unwrap().turns[0]
                .outcome
                .clone();
            assert_eq!(
                outcome,
                Some(TurnOutcome::Cancelled {
                    by: CancelledBy::User
                })
            );
            judge(&world, session, &[&window]).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_lost_doubled_or_reloaded_the_text_is_whole_in_the_end() {
    const PIECES: u64 = 10;
    for seed in 1..=12 {
        let mut dice = Dice::new(seed);
        let server = ModelServer::start(Dialect::Ollama);
        let world = World::new().await;
        let pieces = (0..PIECES).map(|n| format!("piece{n} "));
        let answer = pieces
            .clone()
            .fold(Answer::new(Dialect::Ollama), |answer, piece| {
                answer.says(&piece).gate(&piece)
            });
        server.script(answer.ends());
        let session = world.begin(&server, "Count.").await;
        let clock = TestClock::default();
        let mut page = Page::load_with_clock(&world.line, "main", Arc::new(clock.clone())).await;
        let mut window = page.follow_with_witness(session, world.data_dir());
        let calm = Page::load(&world.line, "a calm window")
            .await
            .follow(session);
        for piece in pieces.clone() {
            for _ in 0..dice.below(3) {
                let kind = match dice.below(3) {
                    0 => CallKind::Attach,
                    _ => CallKind::Poll,
                };
                let fault = match dice.below(4) {
                    0 => Fault::LoseCall,
                    1 => Fault::LoseAnswer,
                    2 => Fault::DoubleAnswer,
                    _ => Fault::DoubleCall,
                };
                page.fault(kind, fault);
            }
            if dice.below(4) == 0 {
                page.mend();
                page = page.reload().await;
                window = page.follow_with_witness(session, world.data_dir());
            }
            server.arrived(&piece).await;
            world.flush_until(&calm, &piece).await;
            server.release(&piece);
        }
        page.mend();
        let text = loop {
            tokio::select! {
                biased;
                text = window.until_idle() => break text,
                () = window.until_state(LinkState::NeedsManual) => window.retry(),
                () = clock.fire_next_within(poll_limit()) => {}
            }
        };
        let said: String = pieces.collect();
        assert_eq!(
            text,
            format!("you: Count.\nmodel: {said}\n(completed)\n"),
            "seed {seed}"
        );
        judge(&world, session, &[&window, &calm]).await;
    }
}
