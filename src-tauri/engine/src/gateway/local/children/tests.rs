//! How long a model stays, and who makes room for whom. The processes are `cat`.
#![cfg(unix)]

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::gateway::tests::HandClock;

#[test]
fn a_model_is_kept_as_long_as_was_said() {
    for (words, kept) in [
        (None, Some(300)),
        (Some("0"), Some(0)),
        (Some("90"), Some(90)),
        (Some("10m"), Some(600)),
        (Some("1h30m"), Some(5400)),
        (Some("1.5h"), Some(5400)),
        (Some("-1"), None),
    ] {
        assert_eq!(kept_for(words), kept.map(Duration::from_secs), "{words:?}");
    }
}

/// Processes that only wait to be ended, files of a hundred bytes, and time in the hands of the test.
struct Shelf {
    folder: tempfile::TempDir,
    clock: Arc<HandClock>,
    free: Arc<AtomicU64>,
    children: Children,
}

impl Shelf {
    fn new() -> Self {
        let clock = Arc::new(HandClock::default());
        let free = Arc::new(AtomicU64::new(u64::MAX));
        let told = Arc::clone(&free);
        let children = Children::new(
            Host::new("cat", []),
            Arc::new(move || Some(told.load(Ordering::Relaxed))),
            Arc::clone(&clock) as Arc<dyn Clock>,
            TaskTracker::new(),
        );
        Self {
            folder: tempfile::tempdir().unwrap(),
            clock,
            free,
            children,
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        let file = self.folder.path().join(name);
        std::fs::write(&file, [0; 100]).unwrap();
        file
    }

    async fn take(&self, name: &str, keep_secs: u64) -> Use {
        let keep = Some(Duration::from_secs(keep_secs));
        let taken = self.children.take(self.file(name), load(None), keep).await;
        taken.unwrap()
    }

    /// The process of a model that nobody uses any more.
    async fn use_once(&self, name: &str) -> Arc<Child> {
        Arc::clone(&self.take(name, 600).await.child)
    }
}

fn load(num_ctx: Option<u32>) -> Load {
    Load {
        file: "a model".to_owned(),
        num_ctx,
        threads: None,
        gpu_layers: None,
    }
}

#[tokio::test]
async fn a_model_leaves_when_its_time_is_over_and_every_use_begins_it_anew() {
    let shelf = Shelf::new();
    let first = shelf.take("kelp.gguf", 600).await;
    let child = Arc::clone(&first.child);
    assert!(shelf.clock.waits().is_empty(), "in use it has no end");
    drop(first);
    assert_eq!(shelf.clock.waits(), [Duration::from_secs(600)]);

    shelf.clock.advance(Duration::from_secs(599));
    let again = shelf.take("kelp.gguf", 600).await;
    assert!(Arc::ptr_eq(&again.child, &child), "the same process");
    // The first time is over now, and says nothing any more.
    shelf.clock.advance(Duration::from_secs(100));
    assert!(!child.is_over());
    drop(again);
    shelf.clock.advance(Duration::from_secs(599));
    let third = shelf.take("kelp.gguf", 600).await;
    assert!(Arc::ptr_eq(&third.child, &child), "still the same");
    drop(third);

    shelf.clock.advance(Duration::from_secs(600));
    child.until_ended().await;
    let fresh = shelf.take("kelp.gguf", 600).await;
    assert!(!Arc::ptr_eq(&fresh.child, &child), "another process");
}

#[tokio::test]
async fn a_model_that_is_not_to_be_kept_leaves_after_its_answer() {
    let shelf = Shelf::new();
    let first = shelf.take("kelp.gguf", 0).await;
    let second = shelf.take("kelp.gguf", 0).await;
    let child = Arc::clone(&first.child);
    drop(first);
    assert!(!child.is_over(), "somebody else uses it");
    drop(second);
    child.until_ended().await;
}

#[tokio::test]
async fn where_memory_is_short_the_longest_unused_model_leaves_and_none_that_answers() {
    let shelf = Shelf::new();
    let busy = shelf.take("busy.gguf", 600).await;
    let old = shelf.use_once("old.gguf").await;
    shelf.clock.advance(Duration::from_secs(1));
    let newer = shelf.use_once("newer.gguf").await;

    shelf.free.store(50, Ordering::Relaxed);
    let _third = shelf.take("third.gguf", 600).await;
    old.until_ended().await;
    assert!(!newer.is_over(), "one was enough");
    let _fourth = shelf.take("fourth.gguf", 600).await;
    newer.until_ended().await;
    // Nobody is left but those that answer: the next one tries its luck.
    let _fifth = shelf.take("fifth.gguf", 600).await;
    assert!(!busy.child.is_over());
}

#[tokio::test]
async fn who_wants_it_loaded_in_another_way_waits_until_nobody_uses_it() {
    let shelf = Shelf::new();
    let first = shelf.take("kelp.gguf", 600).await;
    let child = Arc::clone(&first.child);
    let other = shelf
        .children
        .take(shelf.file("kelp.gguf"), load(Some(4_096)), None);
    tokio::pin!(other);
    tokio::select! {
        biased;
        _ = &mut other => panic!("it is in use"),
        () = std::future::ready(()) => {}
    }
    assert!(!child.is_over());
    drop(first);
    let other = other.await.unwrap();
    child.until_ended().await;
    assert_eq!(other.child.load.num_ctx, Some(4_096));
}

#[tokio::test]
async fn what_is_in_use_is_not_taken_out_and_what_is_not_leaves_at_once() {
    let shelf = Shelf::new();
    let used = shelf.take("kelp.gguf", 600).await;
    let child = Arc::clone(&used.child);
    assert!(!shelf.children.unload(&child.file).await);
    drop(used);
    assert!(shelf.children.unload(&child.file).await);
    assert!(child.is_over());
    assert!(
        shelf.children.unload(&child.file).await,
        "it is out already"
    );
}

#[tokio::test]
async fn after_the_close_none_begins() {
    let shelf = Shelf::new();
    let used = shelf.take("kelp.gguf", 600).await;
    shelf.children.close();
    used.child.until_ended().await;
    let late = shelf
        .children
        .take(shelf.file("kelp.gguf"), load(None), None)
        .await;
    assert!(late.is_err());
}
