//! A conversation with a real model behind a real server. The words are the model's own; what is asserted is ours.

#[cfg(target_os = "linux")]
mod killed;

use std::time::Duration;

use protocol::{
    CancelledBy, Dialect, FailureCode, ItemBody, ModelRef, Op, Part, Provider, ProviderId,
    StopReason, Think, ToolOutcome, ToolState, TurnOutcome,
};
use tests::{
    client::{Client, Page},
    model_server::model_of,
    relay::Relay,
    verdict::judge,
    world::World,
};
use transcript::Transcript;

const MODEL: &str = "smollm2-135m";

/// The same one with a template that makes it call the first tool it is offered.
const CALLING_MODEL: &str = "smollm2-135m-tools";

/// Within which a server sees that it was stopped.
const STOP_LIMIT: Duration = Duration::from_millis(200);

fn provider() -> Provider {
    let url = std::env::var("HOLDFAST_MODEL_URL")
        .expect("HOLDFAST_MODEL_URL, like http://127.0.0.1:8080/v1");
    Provider {
        id: ProviderId::from_bits(1),
        name: "Small model".to_owned(),
        dialect: Dialect::OpenAiChat,
        base_url: url,
        num_ctx: None,
        keep_alive: None,
        files: Vec::new(),
        think: Think::ServerDefault,
        limits: None,
        connection: protocol::Connection::default(),
    }
}

async fn world_with_the_model() -> (World, ModelRef) {
    let world = World::in_real_time().await;
    let provider = provider();
    world.add(provider.clone()).await;
    (world, model_of(&provider, MODEL))
}

/// Host with port, and path, of an address.
fn place(url: &str) -> (&str, &str) {
    let rest = url.strip_prefix("http://").expect("plain HTTP");
    rest.split_once('/').unwrap_or((rest, ""))
}

fn outcomes(window: &Client<Transcript>) -> Vec<Option<TurnOutcome>> {
    window.look(|shown| {
        shown
            .unwrap()
            .turns()
            .map(|turn| turn.outcome.clone())
            .collect()
    })
}

fn answers(window: &Client<Transcript>) -> Vec<String> {
    window.look(|shown| {
        let items = shown.unwrap().turns().flat_map(|turn| &turn.items);
        items
            .filter_map(|item| match &item.body {
                ItemBody::Text {
                    part: Part::Answer,
                    text,
                    ..
                } => Some(text.clone()),
                _ => None,
            })
            .collect()
    })
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real model server"]
async fn a_conversation_of_several_turns_completes_and_is_there_after_a_restart() {
    let (mut world, model) = world_with_the_model().await;
    let session = world
        .begin_with(model, "What is the capital of France? One sentence.")
        .await;
    let window = world
        .page()
        .await
        .follow_with_witness(session, world.data_dir());
    window.until_idle().await;
    for (n, text) in ["And of Italy? One sentence.", "Thank you. Say goodbye."]
        .iter()
        .enumerate()
    {
        world.say(session, text).await;
        let turns = n + 2;
        window
            .until_shown("the next turn to end", |shown| {
                (shown.turns().len() == turns && shown.running().is_none()).then_some(())
            })
            .await;
    }
    let all = outcomes(&window);
    assert_eq!(all.len(), 3);
    for outcome in all {
        let expected = [StopReason::EndOfTurn, StopReason::Length]
            .map(|stop| Some(TurnOutcome::Completed { stop }));
        assert!(expected.contains(&outcome), "{outcome:?}");
    }
    let said = answers(&window);
    assert!(
        said.len() == 3 && said.iter().all(|text| !text.trim().is_empty()),
        "{said:?}"
    );
    judge(&world, session, &[&window]).await;
    let before = window.text();
    drop(window);
    world.restart().await;
    let window = world.page().await.follow(session);
    assert_eq!(window.until_idle().await, before);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real model server"]
async fn stop_keeps_what_was_written_and_the_server_sees_it_at_once() {
    let world = World::in_real_time().await;
    let provider = provider();
    let (server, path) = place(&provider.base_url);
    let relay = Relay::to(server.parse().expect("an address of loopback")).await;
    let provider = Provider {
        base_url: format!("http://{}/{path}", relay.address()),
        ..provider
    };
    world.add(provider.clone()).await;
    let model = model_of(&provider, MODEL);
    let long = "Write a very long story about a lighthouse, with many chapters.";
    let session = world.begin_with(model, long).await;
    let window = world
        .page()
        .await
        .follow_with_witness(session, world.data_dir());
    window
        .until_text("some words", |text| text.contains("\nmodel: "))
        .await;
    let turn = window
        .until_shown("the turn to run", |shown| shown.running())
        .await;
    let pressed = relay.now();
    world.stop(session, turn).await;
    let closed = relay.closed_after(pressed).await;
    assert!(closed < STOP_LIMIT, "the server saw it after {closed:?}");
    window.until_idle().await;
    assert_eq!(
        outcomes(&window),
        [Some(TurnOutcome::Cancelled {
            by: CancelledBy::User
        })]
    );
    world.say(session, "Say yes.").await;
    window
        .until_shown("the next turn to end", |shown| {
            (shown.turns().len() == 2 && shown.running().is_none()).then_some(())
        })
        .await;
    judge(&world, session, &[&window]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real model server"]
async fn an_unknown_model_is_named() {
    let (world, model) = world_with_the_model().await;
    let model = ModelRef {
        model: "no-such-model".to_owned(),
        ..model
    };
    let session = world.begin_with(model, "Hello?").await;
    let window = world.page().await.follow(session);
    window.until_idle().await;
    match outcomes(&window).as_slice() {
        [Some(TurnOutcome::Failed { failure })] => {
            assert_eq!(failure.code, FailureCode::ModelNotFound, "{failure:?}");
            assert!(
                failure.message.contains("no-such-model"),
                "{}",
                failure.message
            );
        }
        other => panic!("{other:?}"),
    }
    judge(&world, session, &[&window]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real model server"]
async fn a_tool_is_called_and_its_result_answered() {
    let (world, model) = world_with_the_model().await;
    let model = ModelRef {
        model: CALLING_MODEL.to_owned(),
        ..model
    };
    let session = world.begin_with(model, "What time is it?").await;
    let window = world.page().await.follow(session);
    window.until_idle().await;
    let called = window.look(|shown| {
        let items = shown.unwrap().turns().flat_map(|turn| &turn.items);
        let called = items.filter_map(|item| match &item.body {
            ItemBody::ToolCall { name, state, .. } => Some((name.clone(), state.clone())),
            _ => None,
        });
        called.collect::<Vec<_>>()
    });
    for (name, state) in &called {
        assert_eq!(name, "current_time");
        assert!(
            matches!(
                state,
                ToolState::Finished {
                    outcome: ToolOutcome::Succeeded { .. },
                    ..
                }
            ),
            "{state:?}"
        );
    }
    assert!(!called.is_empty(), "{}", window.text());
    assert!(!answers(&window).concat().trim().is_empty());
    judge(&world, session, &[&window]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real model server"]
async fn a_message_longer_than_the_context_is_refused_in_words_and_the_next_one_is_answered() {
    let (world, model) = world_with_the_model().await;
    let long = "word ".repeat(6_000);
    let session = world.begin_with(model, &long).await;
    let window = world.page().await.follow(session);
    window.until_idle().await;
    match outcomes(&window).as_slice() {
        [Some(TurnOutcome::Failed { failure })] => {
            assert_eq!(failure.code, FailureCode::ContextOverflow, "{failure:?}");
        }
        other => panic!("{other:?}"),
    }
    judge(&world, session, &[&window]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real model server"]
async fn two_sessions_are_answered_at_once() {
    let (world, model) = world_with_the_model().await;
    let page = Page::load(&world.line, "main").await;
    let one = world.begin_with(model.clone(), "Name three colours.").await;
    let two = world.begin_with(model, "Name three animals.").await;
    let (first, second) = (page.follow(one), page.follow(two));
    tokio::join!(first.until_idle(), second.until_idle());
    for (session, window) in [(one, &first), (two, &second)] {
        assert!(
            !answers(window).concat().trim().is_empty(),
            "{}",
            window.text()
        );
        judge(&world, session, &[window]).await;
    }
    let rename = Op::RenameSession {
        session: one,
        title: "Colours".to_owned(),
    };
    world.submit(rename).await.expect("taken");
}
