//! Cases of servers that begin parts anew, mix them, and leave numbers out.

use super::*;

fn line(digest: &str, total: Option<u64>, completed: Option<u64>) -> String {
    let mut frame =
        json!({ "status": format!("pulling {digest}"), "digest": format!("sha256:{digest}") });
    if let Some(total) = total {
        frame["total"] = total.into();
    }
    if let Some(completed) = completed {
        frame["completed"] = completed.into();
    }
    frame.to_string() + "\n"
}

/// Feeds a text in pieces of `size` and keeps all that was told.
fn told(text: &str, size: usize) -> (Vec<PullProgress>, Result<(), Failure>) {
    let mut pull = Pull::new(Harness::default());
    let mut told = Vec::new();
    for piece in text.as_bytes().chunks(size) {
        pull.feed(piece);
        told.push(pull.progress.clone());
    }
    let url = "http://127.0.0.1:11434".parse().unwrap();
    (told, pull.finish("m", &Peer::at(&url)))
}

fn story() -> String {
    [
        "{\"status\":\"pulling manifest\"}\n".to_owned(),
        line("aaa", Some(1000), None),
        line("aaa", Some(1000), Some(600)),
        line("bbb", Some(3000), Some(10)),
        line("aaa", Some(1000), Some(200)),
        line("bbb", None, Some(2000)),
        line("aaa", Some(1000), Some(999)),
        line("ccc", None, None),
        line("ccc", None, Some(50)),
        line("aaa", Some(1000), Some(1000)),
        line("bbb", Some(3000), Some(9000)),
        "{\"status\":\"verifying sha256 digest\"}\n".to_owned(),
        "{\"status\":\"writing manifest\"}\n".to_owned(),
        "{\"status\":\"success\"}\n".to_owned(),
    ]
    .concat()
}

#[test]
fn nothing_that_is_told_ever_gets_less_however_the_bytes_are_cut() {
    let whole = told(&story(), usize::MAX);
    assert_eq!(whole.1, Ok(()));
    for size in [1, 7, 64, 4096] {
        let (told, end) = told(&story(), size);
        assert_eq!(end, Ok(()));
        assert_eq!(told.last(), whole.0.last(), "pieces of {size}");
        for pair in told.windows(2) {
            assert!(pair[0].permille <= pair[1].permille, "{pair:?}");
            assert!(
                pair[0].completed_bytes <= pair[1].completed_bytes,
                "{pair:?}"
            );
            for (before, after) in pair[0].layers.iter().zip(&pair[1].layers) {
                assert_eq!(before.digest, after.digest);
                assert!(before.completed_bytes <= after.completed_bytes, "{pair:?}");
            }
        }
        assert!(
            told[..told.len() - 1]
                .iter()
                .all(|shown| shown.permille < 1000),
            "the whole is there only when the server says so"
        );
    }
}

#[test]
fn a_part_is_never_more_than_it_is_and_an_unknown_size_stays_unknown() {
    let (told, _) = told(&story(), usize::MAX);
    let last = told.last().unwrap();
    let parts: Vec<_> = last
        .layers
        .iter()
        .map(|layer| (layer.total_bytes, layer.completed_bytes))
        .collect();
    assert_eq!(parts, [(Some(1000), 1000), (Some(3000), 3000), (None, 50)]);
    assert_eq!(last.permille, 1000);
}

#[test]
fn only_success_is_the_end() {
    let cut = "{\"status\":\"writing manifest\"}\n";
    let failure = told(cut, usize::MAX).1.unwrap_err();
    assert_eq!(failure.code, FailureCode::StreamCut);
    let half = "{\"status\":\"writing manifest\"}\n{\"status\":\"succ";
    assert_eq!(
        told(half, usize::MAX).1.unwrap_err().code,
        FailureCode::StreamCut
    );
    assert_eq!(told("{\"status\":\"success\"}", usize::MAX).1, Ok(()));
    let after = "{\"status\":\"success\"}\n{\"error\":\"late\"}\n";
    assert_eq!(told(after, usize::MAX).1, Ok(()));
}

#[test]
fn what_the_server_says_is_wrong_is_told_in_its_words_or_in_better_ones() {
    let said = told(
        &format!(
            "{}{{\"error\":\"max retries exceeded: EOF\"}}\n",
            line("aaa", Some(10), Some(9))
        ),
        usize::MAX,
    )
    .1
    .unwrap_err();
    assert!(
        said.message.contains("max retries exceeded: EOF"),
        "{}",
        said.message
    );
    let unknown = "{\"status\":\"pulling manifest\"}\n{\"error\":\"pull model manifest: file does not exist\"}\n";
    let said = told(unknown, usize::MAX).1.unwrap_err();
    assert_eq!(said.code, FailureCode::ModelNotFound);
    assert!(said.message.contains("no model m"), "{}", said.message);
    let page = "<html><body>It works!</body></html>\n";
    assert_eq!(
        told(page, usize::MAX).1.unwrap_err().code,
        FailureCode::BadStream
    );
}

#[test]
fn a_server_may_name_more_parts_than_are_kept() {
    let mut text: String = (0..400)
        .map(|n| line(&format!("{n:012}"), Some(u64::MAX / 2), Some(u64::MAX / 3)))
        .collect();
    text.push_str("{\"status\":\"success\"}\n");
    let (told, end) = told(&text, usize::MAX);
    assert_eq!(end, Ok(()));
    assert_eq!(told.last().unwrap().layers.len(), LAYERS_MAX);
}
