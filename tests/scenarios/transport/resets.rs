//! Resets: another log, a shorter one, another boot. What is shown is the log that is there, whole, and none of another.

use std::path::{Path, PathBuf};

use engine::gate::Gate;
use protocol::{ErrorCode, Op, SessionId, StreamId};
use tests::{
    client::{CallKind, Client, Fault, Page, load_limit, poll_limit},
    model_server::{Answer, ModelServer},
    seeded::DATABASE,
    sentinel::{Sentinel, random_u128},
    verdict::judge,
    world::World,
};
use transcript::Transcript;

use super::{DIALECT, REPAIR_MAX, patient_page, settled};

/// Begins a conversation under an id of the test's choosing.
async fn begin_as(world: &World, server: &ModelServer, session: SessionId, text: &str) {
    world.add(server.provider()).await;
    let op = Op::StartSession {
        session,
        model: server.model(),
        text: text.to_owned(),
        folder: None,
        options: protocol::ModelOptions::default(),
        images: Vec::new(),
    };
    world.submit(op).await.expect("it begins");
}

/// A folder's database, as files to be put elsewhere. No engine may have it open.
fn database_of(world: &World) -> PathBuf {
    let kept = world.data_dir().join("kept aside");
    std::fs::create_dir_all(&kept).expect("a folder");
    copy(world.data_dir(), &kept);
    kept
}

fn copy(from: &Path, to: &Path) {
    for end in ["", "-wal", "-shm"] {
        let name = format!("{DATABASE}{end}");
        let (from, to) = (from.join(&name), to.join(&name));
        if to.exists() {
            std::fs::remove_file(&to).expect("it goes");
        }
        if from.exists() {
            std::fs::copy(&from, &to).expect("it is copied");
        }
    }
}

/// Every place in which something of a conversation can be seen, as one text.
async fn everywhere(world: &World, session: SessionId, window: &Client<Transcript>) -> String {
    let reader = world.reader();
    let stored = reader.transcript(session).expect("it can be read");
    let events = world.events(session);
    let library = reader
        .events(StreamId::Library, None, usize::MAX)
        .expect("it can be read");
    let list = world.line.library().await.expect("it can be read");
    let shown = window.to_page();
    format!(
        "{}{stored:?}{events:?}{library:?}{list:?}{shown:?}",
        window.text()
    )
}

/// `foreign-log` (a). Mutant: `SkipLogId`; `library` too: the list of the old log goes with it.
#[tokio::test(flavor = "multi_thread")]
async fn another_log_in_place_of_the_database_replaces_all_that_is_shown() {
    let server = ModelServer::start(DIALECT);
    let (old, new) = (Sentinel::new("old"), Sentinel::new("new"));
    let session = SessionId::from_bits(random_u128());
    let mut other = World::new().await;
    server.script(Answer::whole(DIALECT, &format!("It is {new}.")));
    begin_as(&other, &server, session, "New?").await;
    other.page().await.follow(session).until_idle().await;
    other.quit().await;

    let mut world = World::new().await;
    server.script(Answer::whole(DIALECT, &format!("It was {old}.")));
    begin_as(&world, &server, session, &format!("{old}?")).await;
    let page = world.page().await;
    let (window, library) = (page.follow(session), page.follow_library());
    window.until_idle().await;
    library.sees(&old.to_string()).await;
    window.hide();
    library.hide();
    world.quit().await;
    copy(&database_of(&other), world.data_dir());
    world.open().await;
    window.show();
    library.show();
    library
        .until_text("the new log's list", |text| text == "New? (completed)\n")
        .await;
    window.sees(&new.to_string()).await;

    let everywhere = everywhere(&world, session, &window).await;
    assert_eq!(old.count_in(&everywhere), 0, "{everywhere}");
    assert_eq!(old.count_in(&library.text()), 0);
    assert_eq!(
        window.text(),
        format!("you: New?\nmodel: It is {new}.\n(completed)\n")
    );
    let now = window.counters();
    assert_eq!(
        (now.resets, now.swaps),
        (1, 2),
        "one reset, swapped in whole"
    );
    judge(&world, session, &[&window]).await;
}

/// `foreign-log` (b): a backup was put back. Mutant: `ClampCursor`.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_lost_its_tail_is_shown_as_it_is_now_and_goes_on() {
    let server = ModelServer::start(DIALECT);
    let lost = Sentinel::new("lost");
    let mut world = World::new().await;
    server.script(Answer::whole(DIALECT, "First."));
    let session = world.begin(&server, "One?").await;
    let window = world.page().await.follow(session);
    window.until_idle().await;
    window.hide();
    world.quit().await;
    let kept = database_of(&world);
    world.open().await;
    window.show();
    server.script(Answer::whole(DIALECT, &format!("Second, {lost}.")));
    world.say(session, "Two?").await;
    window.sees(&lost.to_string()).await;
    window.until_idle().await;
    window.hide();
    world.quit().await;
    copy(&kept, world.data_dir());
    world.open().await;
    window.show();
    window
        .until_counters("the reset", |now| now.resets == 1 && now.swaps == 2)
        .await;
    assert_eq!(window.text(), "you: One?\nmodel: First.\n(completed)\n");
    let everywhere = everywhere(&world, session, &window).await;
    assert_eq!(lost.count_in(&everywhere), 0, "{everywhere}");
    server.script(Answer::whole(DIALECT, "Second again."));
    world.say(session, "Two?").await;
    window.sees("Second again.").await;
    window.until_idle().await;
    assert_eq!(window.counters().resets, 1);
    judge(&world, session, &[&window]).await;
}

/// `reset-midturn`. Mutant: `SwapAtFirstEvent`. `HealAtIdle` cannot be: a link does not know what a turn is.
#[tokio::test(flavor = "multi_thread")]
async fn a_reset_in_mid_turn_keeps_the_open_text_and_the_open_tool() {
    let (server, world) = (ModelServer::start(DIALECT), World::new().await);
    let word = Sentinel::new("kept");
    let answer = Answer::new(DIALECT)
        .says(&format!("Look: {word} "))
        .gate("call");
    server.script(answer.calls("current_time", serde_json::json!({})).ends());
    let answer = Answer::new(DIALECT).says("It is ").gate("more");
    server.script(answer.says("nine.").ends());
    world.gates.hold(Gate::ToolRunning);
    let session = world.begin(&server, "When?").await;
    let (page, clock) = patient_page(&world, "main").await;
    let window = page.follow(session);
    window.sees(&word.to_string()).await;
    // The poll that is parked brings what comes next; the one after it finds its epoch forgotten, and the cursor bad.
    page.fault(CallKind::Poll, Fault::Refuse(ErrorCode::UnknownEpoch));
    page.fault(CallKind::Attach, Fault::Reset);
    server.pass("call").await;
    world.gates.arrived(Gate::ToolRunning).await;
    page.until_faults_met_but(1).await;
    clock.fire_next_within(REPAIR_MAX).await;
    window
        .until_counters("the reset", |now| now.resets == 1 && now.swaps == 2)
        .await;
    window.sees("tool: current_time {} -> running").await;
    assert_eq!(word.count_in(&window.text()), 1);

    // And once more, while text streams into an item that is open.
    world.gates.release(Gate::ToolRunning);
    world.flush_until(&window, "It is ").await;
    page.fault(CallKind::Poll, Fault::Refuse(ErrorCode::UnknownEpoch));
    page.fault(CallKind::Attach, Fault::Reset);
    world.rename(session, "Meanwhile").await;
    page.until_faults_met_but(1).await;
    clock.fire_next_within(REPAIR_MAX).await;
    window
        .until_counters("the second reset", |now| now.resets == 2 && now.swaps == 3)
        .await;
    assert!(window.text().ends_with("model: It is \n(running)\n"));
    server.pass("more").await;
    let text = window.until_idle().await;
    assert_eq!(
        text,
        format!(
            "you: When?\nmodel: Look: {word} \ntool: current_time {{}} -> 2026-03-01T09:00:00Z\n\
             model: It is nine.\n(completed)\n"
        )
    );
    let torn = window
        .draws()
        .iter()
        .filter(|drawn| word.count_in(drawn) != 1 && !drawn.is_empty())
        .filter(|drawn| !drawn.starts_with("you: When?\n(running)"))
        .count();
    assert_eq!(torn, 0, "{:#?}", window.draws());
    judge(&world, session, &[&window]).await;
}

/// `stale-commit`. Mutants: `AnyAttachAnswer`, and `LateAttachWins` in the engine.
#[tokio::test(flavor = "multi_thread")]
async fn an_attach_whose_rows_were_read_long_ago_changes_nothing_when_it_is_answered() {
    let (server, world) = (ModelServer::start(DIALECT), World::new().await);
    server.script(Answer::whole(DIALECT, "Yes."));
    let session = world.begin(&server, "Hello?").await;
    world.page().await.follow(session).until_idle().await;
    world.engine().window_gone("main");
    let (page, clock) = patient_page(&world, "main").await;
    let before = world.engine().counters().attach_arrived;
    world.gates.hold(Gate::RowsRead);
    let window = page.follow(session);
    world.gates.arrived(Gate::RowsRead).await;
    clock.until_armed(load_limit()).await;
    clock.advance(load_limit());
    clock.fire_next_within(REPAIR_MAX).await;
    window.until_idle().await;
    for n in 1..=10 {
        let title = format!("Title {n}");
        world.rename(session, &title).await;
        window
            .until_shown("the title", |shown| (shown.title() == title).then_some(()))
            .await;
    }
    let (seen, cursor) = (window.counters(), window.cursor());
    world.gates.release(Gate::RowsRead);
    window
        .until_counters("the old answer to be declined", |now| now.declined == 1)
        .await;
    world.rename(session, "The last").await;
    window
        .until_shown("the last title", |shown| {
            (shown.title() == "The last").then_some(())
        })
        .await;
    let now = window.counters();
    assert_eq!(
        (now.swaps, now.attaches),
        (seen.swaps, 2),
        "nothing came of it"
    );
    assert!(window.cursor().map(|now| now.count()) > cursor.map(|then| then.count()));
    let arrived = world.engine().counters().attach_arrived - before;
    assert_eq!(arrived, 2, "and the living attachment was left alone");
    judge(&world, session, &[&window]).await;
}

/// `reattach-in-await`. Mutants: `NoEpochCheck`, `AnyAnswer`.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_one_log_that_comes_after_another_took_its_place_is_not_let_in() {
    let server = ModelServer::start(DIALECT);
    let (ghost, here) = (Sentinel::new("ghost"), Sentinel::new("here"));
    let session = SessionId::from_bits(random_u128());
    let mut other = World::new().await;
    server.script(Answer::whole(DIALECT, &format!("{here}.")));
    begin_as(&other, &server, session, "Same?").await;
    other.page().await.follow(session).until_idle().await;
    other.quit().await;

    let mut world = World::new().await;
    server.script(Answer::whole(DIALECT, "Old."));
    begin_as(&world, &server, session, "Same?").await;
    let (page, clock) = patient_page(&world, "main").await;
    let window = page.follow(session);
    settled(&world, &window).await;
    let at = window.cursor().expect("something is shown");
    page.fault(CallKind::Poll, Fault::HoldAnswer("old".to_owned()));
    // The poll that is out brings the first; the second comes with the one that is held.
    world.rename(session, "A title").await;
    window
        .until_shown("the title", |shown| {
            (shown.title() == "A title").then_some(())
        })
        .await;
    world.rename(session, &ghost.to_string()).await;
    page.arrived("old").await;
    window.hide();
    world.quit().await;
    copy(&database_of(&other), world.data_dir());
    world.open().await;
    window.show();
    clock.until_armed(poll_limit()).await;
    clock.advance(poll_limit());
    // Its epoch is forgotten, its page unknown, and its cursor of another log: each costs a repair.
    let swapped = window.until_counters("the swap", |now| now.swaps == 2);
    tokio::select! {
        () = swapped => {}
        () = async { loop { clock.fire_next_within(4 * REPAIR_MAX).await } } => unreachable!("for ever"),
    }
    assert_eq!(
        window.cursor().map(|cursor| cursor.count()),
        Some(at.count()),
        "the numbers of the old answer would fit nearly as well"
    );
    page.release("old");
    window
        .until_counters("the old answer to be declined", |now| now.declined == 1)
        .await;
    world.rename(session, "The last").await;
    window
        .until_shown("the last title", |shown| {
            (shown.title() == "The last").then_some(())
        })
        .await;
    let everywhere = everywhere(&world, session, &window).await;
    let counts = (
        ghost.count_in(&everywhere),
        here.count_in(&window.text()),
        window.counters().declined,
    );
    assert_eq!(counts, (0, 1, 1), "the old log's, the new log's, declined");
    judge(&world, session, &[&window]).await;
}

/// `old-boot`. Mutant: `EpochFromOne`.
#[tokio::test(flavor = "multi_thread")]
async fn an_epoch_of_the_boot_before_shows_nothing_of_a_stranger_who_attached_first() {
    let (server, mut world) = (ModelServer::start(DIALECT), World::new().await);
    let (half, strange) = (Sentinel::new("half"), Sentinel::new("strange"));
    server.script(Answer::whole(DIALECT, &format!("{strange}.")));
    let stranger = world.begin(&server, "Who?").await;
    Page::load(&world.line, "before")
        .await
        .follow(stranger)
        .until_idle()
        .await;
    server.script(
        Answer::new(DIALECT)
            .says(&format!("A {half} "))
            .goes_silent(),
    );
    let session = world.begin_with(server.model(), "Hello?").await;
    let window = world.page().await.follow(session);
    window.sees(&half.to_string()).await;
    window.hide();
    world.quit().await;
    world.open().await;
    for n in 0..16 {
        let other = Page::load(&world.line, &format!("stranger {n}")).await;
        let attached = other.attach(StreamId::Session(stranger)).await;
        attached.expect("it may");
    }
    window.show();
    let text = window.until_idle().await;
    assert_eq!(
        (half.count_in(&text), strange.count_in(&text)),
        (1, 0),
        "{text}"
    );
    assert!(text.ends_with("(interrupted: AppExit)\n"), "{text}");
    assert!(window.counters().refused >= 1, "its epoch was refused");
    judge(&world, session, &[&window]).await;
}
