//! Much at once: storms, slow readers, events that are large. All of it arrives, and none of it is kept for anybody.

use std::time::Duration;

use protocol::{Dialect, EventBody, PollRequest, StreamId};
use serde_json::json;
use tests::{
    client::Page,
    model_server::{Answer, ModelServer},
    sentinel::Sentinel,
    verdict::judge,
    watched::{until, within_limit},
    world::World,
};

use super::DIALECT;

/// `storm`. Mutants: `FlushEveryToken`, `NoFlushBeforeOther`.
#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_words_around_four_talkative_tools_come_once_in_order_and_in_few_commits() {
    let (server, world) = (ModelServer::start(DIALECT), World::new().await);
    let folder = world.data_dir().join("files");
    std::fs::create_dir_all(&folder).expect("a folder");
    let mut tools = Answer::new(DIALECT);
    let (before, after) = (words("before", 1_000), words("after", 1_000));
    tools = tools
        .says("First ")
        .gate("storm")
        .says_word_by_word(&before);
    for n in 0..4 {
        let lines: String = (0..500)
            .map(|line| format!("file {n} line {line}\n"))
            .collect();
        std::fs::write(folder.join(format!("{n}.txt")), lines).expect("written");
        tools = tools.calls("read_file", json!({ "path": format!("{n}.txt") }));
    }
    server.script(tools.ends());
    server.script(Answer::new(DIALECT).says_word_by_word(&after).ends());
    let session = world.begin_in(&server, &folder, "Read.").await;
    let page = world.page().await;
    let window = page.follow_with_witness(session, world.data_dir());
    let first = window.sees("First ").await;
    assert!(
        first.ends_with("model: First \n(running)\n"),
        "at once: {first}"
    );
    let commits_before = world.engine().counters().log.commits;
    server.pass("storm").await;
    let text = window.until_idle().await;
    let commits = world.engine().counters().log.commits - commits_before;

    let lines: Vec<_> = text
        .lines()
        .filter(|line| !line.starts_with("file "))
        .collect();
    assert_eq!(lines[0], "you: Read.");
    assert_eq!(lines[1], format!("model: First {before}"));
    let at = |needle: String| {
        text.find(&needle)
            .unwrap_or_else(|| panic!("no {needle:?}"))
    };
    let cards: Vec<_> = (0..4).map(|n| at(format!("\"{n}.txt\""))).collect();
    assert!(cards.is_sorted(), "in call order: {cards:?}");
    for n in 0..4 {
        let own = text.matches(&format!("file {n} line 499")).count();
        assert_eq!(own, 1, "the last line of {n}");
    }
    assert!(at("model: after0 ".to_owned()) > cards[3]);
    assert!(text.ends_with(&format!("model: {after}\n(completed)\n")));
    // The clock stood: two texts of eight kilobytes, in pieces of four, and the steps, calls and results around them.
    assert!(commits <= 40, "{commits} commits for two thousand words");
    judge(&world, session, &[&window]).await;
}

fn words(stem: &str, count: usize) -> String {
    (0..count).map(|n| format!("{stem}{n} ")).collect()
}

/// `slow-reader`. `QueuePerClient` and `SilenceIsEnd` cannot be: an attachment has no room for an event, and no answer of
/// the door can say "ended".
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_stops_in_the_middle_of_ten_megabytes_costs_the_turn_nothing_and_gets_all_of_it()
 {
    const PIECES: usize = 320;
    let (server, world) = (ModelServer::start(DIALECT), World::new().await);
    let piece = "kelp and tide and stone, ".repeat(1_311);
    let mut answer = Answer::new(DIALECT).says("Begin. ").gate("flood");
    for _ in 0..PIECES {
        answer = answer.says(&piece);
    }
    server.script(answer.says("End.").ends());
    let session = world.begin(&server, "Talk.").await;
    let window = world.page().await.follow(session);
    window.sees("Begin. ").await;
    let slow = Page::load(&world.line, "slow").await;
    let attached = slow
        .attach(StreamId::Session(session))
        .await
        .expect("it may");
    window.hide();
    server.pass("flood").await;
    // Nobody polls but the list, and the turn comes to its end all the same.
    let library = Page::load(&world.line, "list").await.follow_library();
    library.sees("Talk. (completed)\n").await;
    assert!(
        window.text().ends_with("(running)\n"),
        "silence is no end: nobody told it of one"
    );
    let (mut after, mut batches, mut events) = (attached.head, 0, 0);
    loop {
        let request = PollRequest {
            epoch: attached.epoch,
            after,
            seen_status: u64::MAX,
            wait_ms: 0,
            max_bytes: 64 * 1024,
        };
        let batch = world.line.poll(request).await.expect("an answer");
        let bytes: usize = batch.events.iter().map(size).sum();
        let largest = batch.events.iter().map(size).max().unwrap_or(0);
        assert!(bytes <= 64 * 1024 || bytes == largest, "{bytes} in a batch");
        batches += 1;
        events += batch.events.len();
        let Some(last) = batch.events.last() else {
            break;
        };
        after = protocol::Cursor::after(after.log(), last.seq);
    }
    assert!(batches > 100 && events > PIECES, "{batches}, {events}");
    let now = world.engine().counters();
    assert_eq!(now.attachments_now, 3);
    window.show();
    let text = window.until_idle().await;
    let said = format!("Begin. {}End.", piece.repeat(PIECES));
    assert!(said.len() > 10_000_000, "{}", said.len());
    assert_eq!(text, format!("you: Talk.\nmodel: {said}\n(completed)\n"));
    assert_eq!(window.counters().swaps, 1, "it went on where it stood");
    judge(&world, session, &[&window]).await;
}

fn size(event: &protocol::Event) -> usize {
    serde_json::to_string(event).expect("JSON").len()
}

/// `big-event`. Mutant: `StrictMaxBytes`.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_larger_than_a_batch_may_be_is_delivered_alone() {
    let (server, world) = (ModelServer::start(DIALECT), World::new().await);
    let word = Sentinel::new("large");
    // One event: a message is stored as it was sent.
    let message = format!("{word} {}", "x".repeat(1_000_000));
    server.script(Answer::whole(DIALECT, "Much."));
    let session = world.begin(&server, &message).await;
    let page = world.page().await;
    let window = page.follow(session);
    window.sees("Much.").await;
    window.until_idle().await;
    let attached = Page::load(&world.line, "another").await;
    let attached = attached
        .attach(StreamId::Session(session))
        .await
        .expect("it may");
    let mut after = protocol::Cursor::at_start(attached.head.log());
    let mut alone = 0;
    while after != attached.head {
        let request = PollRequest {
            epoch: attached.epoch,
            after,
            seen_status: u64::MAX,
            wait_ms: 0,
            max_bytes: 1_000,
        };
        let polled = within_limit("an answer", world.line.poll(request)).await;
        let batch = polled.expect("an answer");
        let last = batch
            .events
            .last()
            .expect("at least one, whatever its size");
        if batch.events.iter().any(|event| size(event) > 1_000_000) {
            assert_eq!(batch.events.len(), 1);
            alone += 1;
        }
        after = protocol::Cursor::after(after.log(), last.seq);
    }
    assert_eq!(alone, 1, "a title is cut to what a list can show");
    judge(&world, session, &[&window]).await;
}

/// `big-event`: fifty megabytes that a tool could say are stored once, as much of them as the model is told.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_tool_says_is_bounded_and_stored_once() {
    let dialect = Dialect::OpenAiChat;
    let (server, world) = (ModelServer::start(dialect), World::new().await);
    let folder = world.data_dir().join("files");
    std::fs::create_dir_all(&folder).expect("a folder");
    let line = format!("{}\n", "tide ".repeat(200));
    std::fs::write(folder.join("long.txt"), line.repeat(50_000)).expect("written");
    server.script(
        Answer::new(dialect)
            .calls("read_file", json!({ "path": "long.txt" }))
            .ends(),
    );
    server.script(Answer::whole(dialect, "Long."));
    let session = world.begin_in(&server, &folder, "Read.").await;
    let window = world.page().await.follow(session);
    window.sees("Long.").await;
    window.until_idle().await;
    let events = world.events(session);
    let results = events
        .iter()
        .filter(|event| matches!(event.body, EventBody::ToolCallFinished { .. }));
    let sizes: Vec<_> = results.map(size).collect();
    assert_eq!(sizes.len(), 1);
    assert!(sizes[0] < 1024 * 1024, "{sizes:?}");
    let others: usize = events.iter().map(size).sum::<usize>() - sizes[0];
    assert!(others < 64 * 1024, "it is nowhere else: {others}");
    let told = server
        .chat(2)
        .await
        .messages()
        .pop()
        .expect("a result")
        .content;
    assert!(told.contains("tide") && told.len() <= sizes[0]);
    until("its poll to be parked", || {
        world.engine().counters().parked_now == 1
    })
    .await;
    world.clock.advance(Duration::from_millis(1));
    judge(&world, session, &[&window]).await;
}
