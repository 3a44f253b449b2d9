//! The harness's own promise: a story about a window that hangs ends, says where, and leaves nothing behind.

use std::{panic::AssertUnwindSafe, time::Duration};

use futures_util::FutureExt;
use protocol::Dialect;
use tests::model_server::ModelServer;

use super::glass::Desk;

/// Nothing comes of waiting for a process that is stopped.
const LIMIT: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn a_story_whose_window_hangs_ends_with_its_last_step_and_leaves_no_process() {
    let server = ModelServer::start(Dialect::Ollama);
    let mut mark = None;
    let data_dir = tempfile::tempdir().expect("a data folder");
    let told = Desk::tell_within(LIMIT, data_dir, "hanging", &server, async |desk, window| {
        mark = Some(desk.mark());
        for process in desk.processes() {
            if process.name.starts_with("WebKitWebProces") || process.id == desk.app().id {
                process.kill("STOP").await;
            }
        }
        window.text().await;
    });
    let failure = AssertUnwindSafe(told).catch_unwind().await;
    let failure = failure.expect_err("a window that is stopped is never read");
    let words = failure.downcast_ref::<String>().expect("words");
    assert!(words.contains("the story is not over"), "{words}");
    assert!(
        words.ends_with("find the page") || words.ends_with("read the page"),
        "{words}"
    );
    let left = mark.expect("the story began").processes();
    assert!(left.is_empty(), "{left:?}");
}
