//! The real server dies in the middle of its answer, without a word. Has a server of its own, which is not used again.

use protocol::{FailureCode, TurnOutcome};
use rustix::process::{Pid, Signal, kill_process_group};
use tests::verdict::judge;

use super::{answers, outcomes, world_with_the_model};

/// Names the process group of the server that may be killed.
const GROUP: &str = "HOLDFAST_MODEL_GROUP";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real model server, and kills it"]
async fn a_killed_server_is_named_and_what_it_said_is_kept() {
    let group = std::env::var(GROUP).expect(GROUP);
    let group = Pid::from_raw(group.parse().expect("a number")).expect("a process");
    let (mut world, model) = world_with_the_model().await;
    let long = "Write a very long story about a lighthouse, with many chapters.";
    let session = world.begin_with(model, long).await;
    let window = world
        .page()
        .await
        .follow_with_witness(session, world.data_dir());
    window
        .until_text("some words", |text| text.contains("\nmodel: "))
        .await;
    kill_process_group(group, Signal::KILL).expect("the server is killed");
    window.until_idle().await;
    match outcomes(&window).as_slice() {
        [Some(TurnOutcome::Failed { failure })] => {
            assert_eq!(failure.code, FailureCode::StreamCut, "{failure:?}");
        }
        other => panic!("{other:?}"),
    }
    let said = answers(&window);
    assert!(!said.concat().trim().is_empty(), "{said:?}");
    judge(&world, session, &[&window]).await;

    world.say(session, "Are you there?").await;
    window
        .until_shown("the next turn to end", |shown| {
            (shown.turns().len() == 2 && shown.running().is_none()).then_some(())
        })
        .await;
    match outcomes(&window).as_slice() {
        [_, Some(TurnOutcome::Failed { failure })] => {
            assert_eq!(failure.code, FailureCode::ConnectFailed, "{failure:?}");
        }
        other => panic!("{other:?}"),
    }
    let before = window.text();
    drop(window);
    world.restart().await;
    let window = world.page().await.follow(session);
    assert_eq!(window.until_idle().await, before);
}
