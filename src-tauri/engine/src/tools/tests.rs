//! The tools as a turn uses them: through a [`Toolbox`], on real folders.

use std::{fs, path::Path, sync::Arc, time::Duration};

use protocol::{Effect, Intent, Timestamp, ToolOutcome};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{GiveUp, Prepared, ToolResult, Toolbox, Wanted, bound, list, read, write};
use crate::{
    Harness,
    clock::{Clock, Sleep},
};

struct Noon;

impl Clock for Noon {
    fn wall(&self) -> Timestamp {
        Timestamp::from_millis(1_772_366_400_000)
    }
    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
    fn sleep_until(&self, _at: Duration) -> Sleep {
        Box::pin(std::future::pending())
    }
}

/// A folder that was chosen, beside one that was not.
struct Place {
    root: TempDir,
    tools: Toolbox,
}

fn place() -> Place {
    let root = TempDir::new().unwrap();
    fs::create_dir(root.path().join("chosen")).unwrap();
    fs::create_dir(root.path().join("outside")).unwrap();
    fs::write(root.path().join("outside/secret.txt"), "secret").unwrap();
    let tools = Toolbox::new(Arc::new(Noon), Some(root.path().join("chosen")));
    Place { root, tools }
}

impl Place {
    fn path(&self, name: &str) -> std::path::PathBuf {
        self.root.path().join("chosen").join(name)
    }

    fn has(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), content).unwrap();
    }

    async fn run(&self, name: &str, arguments: Value) -> ToolResult {
        let (name, arguments) = (name.to_owned(), arguments.to_string());
        self.tools.run(name, arguments, None).await
    }

    /// What a reading tool said; it never has an effect.
    async fn said(&self, name: &str, arguments: Value) -> Result<String, String> {
        let result = self.run(name, arguments).await;
        assert_eq!(result.effect, Effect::None);
        words(result)
    }

    async fn read(&self, path: &str) -> Result<String, String> {
        self.said("read_file", json!({"path": path})).await
    }

    async fn prepare(&self, path: &str, content: &str) -> Result<Prepared, String> {
        let arguments = json!({"path": path, "content": content}).to_string();
        let prepared = self.tools.prepare("write_file".into(), arguments).await?;
        Ok(prepared.expect("a write is asked about"))
    }

    async fn carry_out(&self, prepared: Prepared) -> ToolResult {
        // The arguments are said again and must not matter: what was shown is what is done.
        let arguments = json!({"path": "elsewhere", "content": "else"}).to_string();
        self.tools
            .run("write_file".into(), arguments, Some(prepared))
            .await
    }

    async fn write(&self, path: &str, content: &str) -> Result<String, String> {
        let prepared = self.prepare(path, content).await?;
        let result = self.carry_out(prepared).await;
        assert_eq!(result.effect, Effect::Committed);
        words(result)
    }

    /// Everything in the chosen folder, however deep.
    fn names(&self) -> Vec<String> {
        fn walk(dir: &Path, root: &Path, into: &mut Vec<String>) {
            for entry in fs::read_dir(dir).unwrap() {
                let entry = entry.unwrap();
                into.push(
                    entry
                        .path()
                        .strip_prefix(root)
                        .unwrap()
                        .display()
                        .to_string(),
                );
                if entry.file_type().unwrap().is_dir() {
                    walk(&entry.path(), root, into);
                }
            }
        }
        let mut names = Vec::new();
        walk(&self.path(""), &self.path(""), &mut names);
        names.sort();
        names
    }
}

fn words(result: ToolResult) -> Result<String, String> {
    match result.outcome {
        ToolOutcome::Succeeded { output } => Ok(output),
        ToolOutcome::Failed { message } => Err(message),
        other => panic!("a run does not end as {other:?}"),
    }
}

/// `words` hold each of `parts`.
#[track_caller]
fn assert_says(words: &str, parts: &[&str]) {
    for part in parts {
        assert!(words.contains(part), "{words:?} does not say {part:?}");
    }
}

// The box.

#[test]
fn files_are_offered_only_with_a_folder_and_in_a_stable_order() {
    let without = Toolbox::new(Arc::new(Noon), None);
    assert_eq!(without.names(), ["current_time"]);
    let place = place();
    let names = ["current_time", "list_files", "read_file", "write_file"];
    assert_eq!(place.tools.names(), names);
    assert_eq!(place.tools.specs(), place.tools.specs());
    for (spec, name) in place.tools.specs().iter().zip(names) {
        assert_eq!(spec.name, name);
        let schema: Value = serde_json::from_str(&spec.parameters).unwrap();
        assert_eq!(schema["additionalProperties"], json!(false), "{name}");
        assert_eq!(place.tools.changes_something(name), name == "write_file");
    }
    let schema: Value = serde_json::from_str(&place.tools.specs()[3].parameters).unwrap();
    assert_eq!(schema["required"], json!(["path", "content"]));
    assert_eq!(schema["properties"]["content"]["type"], "string");
}

#[tokio::test]
async fn the_time_is_told_and_an_unknown_tool_named() {
    let place = place();
    assert_eq!(
        place.said("current_time", json!({})).await,
        Ok("2026-03-01T12:00:00Z".to_owned())
    );
    let error = place.said("rm", json!({})).await.unwrap_err();
    assert_says(&error, &["\"rm\"", "current_time, list_files"]);
    let asked = place.tools.prepare("read_file".into(), "{}".into()).await;
    assert!(asked.unwrap().is_none(), "reading asks nobody");
}

#[tokio::test]
async fn a_panicking_tool_is_an_error_the_model_can_read() {
    let tools = Toolbox::new(Arc::new(Noon), None).with_panic_tool();
    assert_eq!(tools.names(), ["current_time", "panic_tool"]);
    let result = tools.run("panic_tool".into(), "{}".into(), None).await;
    assert_eq!(result.effect, Effect::None);
    assert_says(&words(result).unwrap_err(), &["bug"]);
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_answered_with_what_is_wrong_and_what_fits() {
    let place = place();
    place.has("a.txt", "1\n2\n3\n");
    for (arguments, says) in [
        ("", "\"path\" is missing"),
        ("null", "\"path\" is missing"),
        ("{}", "\"path\" is missing"),
        (r#"{"path":null}"#, "\"path\" is missing"),
        ("[]", "one JSON object"),
        ("5", "one JSON object"),
        (r#"{"path":"a.txt""#, "not valid JSON"),
        (r#"{"path":"a.txt"}{"#, "not valid JSON"),
        (
            r#"{"path":["a.txt"]}"#,
            "\"path\" must be a text, not a list",
        ),
        (
            r#"{"path":"a.txt","from_line":"2"}"#,
            "\"from_line\" must be a whole number from 1 on, such as 5, not the text \"2\"",
        ),
        (r#"{"path":"a.txt","from_line":0}"#, "not 0"),
        (r#"{"path":"a.txt","from_line":-1}"#, "not -1"),
        (r#"{"path":"a.txt","lines":1.5}"#, "not 1.5"),
        (r#"{"path":"a.txt","line":1}"#, "no argument \"line\""),
    ] {
        let result = place
            .tools
            .run("read_file".into(), arguments.into(), None)
            .await;
        assert_eq!(result.effect, Effect::None);
        let error = words(result).unwrap_err();
        assert_says(&error, &[says, "read_file takes path (a text, required)"]);
    }
    let nulls = json!({"path": "a.txt", "from_line": null, "lines": null});
    assert_eq!(
        place.said("read_file", nulls).await,
        Ok("1\n2\n3\n".to_owned())
    );
    let error = place.said("current_time", json!({"zone": "CET"})).await;
    assert_says(&error.unwrap_err(), &["\"zone\"", "takes no arguments"]);
    let asked = place
        .tools
        .prepare("write_file".into(), r#"{"path":"a"}"#.into())
        .await;
    assert_says(&asked.unwrap_err(), &["\"content\" is missing"]);
}

// Paths.

#[tokio::test]
async fn a_path_that_is_not_below_the_folder_is_refused_in_words_and_by_every_tool() {
    let place = place();
    let outside = place.root.path().join("outside/secret.txt");
    let outside = outside.to_str().unwrap();
    let long = "a/".repeat(3_000);
    for (path, says) in [
        ("", "empty"),
        (" ", "empty"),
        ("../outside/secret.txt", "\"..\""),
        ("a/../../outside/secret.txt", "\"..\""),
        (outside, "outside the folder"),
        ("/etc/passwd", "outside the folder"),
        ("a\0b", "control character"),
        ("a\nb", "control character"),
        ("~/secret.txt", "home"),
        (long.as_str(), "longer"),
    ] {
        let refusals = [
            place.read(path).await,
            place.said("list_files", json!({"path": path})).await,
            place.prepare(path, "x").await.map(|_| String::new()),
        ];
        for refusal in refusals {
            let error = refusal.unwrap_err();
            assert_says(&error, &[says, "refused"]);
            assert!(
                error.len() < 600,
                "what the model wrote is not said back at length"
            );
        }
    }
    assert_eq!(place.names(), Vec::<String>::new());
}

#[tokio::test]
async fn an_absolute_path_inside_the_folder_is_as_good_as_one_from_the_folder_on() {
    let place = place();
    place.has("notes/a.txt", "hello\n");
    let absolute = place.path("notes/a.txt").display().to_string();
    assert_eq!(place.read(&absolute).await, Ok("hello\n".to_owned()));
    assert_eq!(
        place.read("./notes/./a.txt").await,
        Ok("hello\n".to_owned())
    );
    let folder = place.path("").display().to_string();
    let listed = place.said("list_files", json!({"path": folder})).await;
    assert_says(&listed.unwrap(), &["notes/"]);
}

#[tokio::test]
async fn what_is_not_a_file_is_said_to_be_none() {
    let place = place();
    place.has("dir/a.txt", "");
    for (path, says) in [
        ("dir", "it is a folder; list_files"),
        ("dir/", "ends in a slash"),
        (".", "the folder itself"),
        ("nothing.txt", "nothing of that name"),
        ("dir/a.txt/b", "not a folder"),
        (&"n".repeat(300), "longer than the system allows"),
    ] {
        assert_says(&place.read(path).await.unwrap_err(), &[says]);
    }
    for (path, says) in [
        ("dir", "it is a folder"),
        ("dir/", "ends in a slash"),
        (".", "the folder itself"),
        ("dir/a.txt/b", "not a folder"),
        (&"n".repeat(300), "longer than the system allows"),
    ] {
        assert_says(&place.prepare(path, "x").await.unwrap_err(), &[says]);
    }
    let listed = place.said("list_files", json!({"path": "dir/a.txt"})).await;
    assert_says(&listed.unwrap_err(), &["read_file"]);
}

#[tokio::test]
async fn a_folder_that_vanished_is_an_answer_of_its_own() {
    let place = place();
    let prepared = place.prepare("a.txt", "x").await.unwrap();
    fs::remove_dir(place.path("")).unwrap();
    let answers = [
        place.read("a.txt").await,
        place.said("list_files", json!({})).await,
        place.prepare("a.txt", "x").await.map(|_| String::new()),
    ];
    for answer in answers {
        assert_says(&answer.unwrap_err(), &["cannot be opened", "Tell the user"]);
    }
    let result = place.carry_out(prepared).await;
    assert_eq!(result.effect, Effect::None);
    assert_says(&words(result).unwrap_err(), &["cannot be opened"]);
}

#[cfg(unix)]
mod unix {
    use std::os::unix::{ffi::OsStrExt, fs::PermissionsExt, fs::symlink, net::UnixListener};
    use std::process::Command;

    use super::*;

    #[tokio::test]
    async fn links_within_the_folder_are_followed_and_no_link_leads_out_of_it() {
        let place = place();
        place.has("real/a.txt", "inside\n");
        symlink("real/a.txt", place.path("good")).unwrap();
        symlink("../outside/secret.txt", place.path("file")).unwrap();
        symlink(place.root.path().join("outside"), place.path("dir")).unwrap();
        symlink("loop", place.path("loop")).unwrap();
        symlink("nowhere", place.path("dangling")).unwrap();
        assert_eq!(place.read("good").await, Ok("inside\n".to_owned()));
        for path in ["file", "dir/secret.txt"] {
            assert_says(&place.read(path).await.unwrap_err(), &["leads outside"]);
            let asked = place.prepare(path, "x").await;
            assert_says(&asked.unwrap_err(), &["leads outside"]);
        }
        let asked = place.prepare("dir/new.txt", "x").await;
        assert_says(&asked.unwrap_err(), &["leads outside"]);
        let listed = place.said("list_files", json!({"path": "dir"})).await;
        assert_says(&listed.unwrap_err(), &["leads outside"]);
        assert!(place.read("loop").await.is_err());
        assert!(place.prepare("loop", "x").await.is_err());
        let asked = place.prepare("dangling", "x").await;
        assert_says(&asked.unwrap_err(), &["a link to nothing"]);
        let listed = place.said("list_files", json!({"depth": 9})).await.unwrap();
        assert_says(&listed, &["loop -> loop (a link)", "real/a.txt (7 bytes)"]);
        assert!(!listed.contains("dir/secret.txt"), "{listed}");
        let secret = fs::read(place.root.path().join("outside/secret.txt")).unwrap();
        assert_eq!(secret, b"secret");
    }

    #[tokio::test]
    async fn a_link_swapped_in_at_any_moment_never_leads_out() {
        let place = place();
        place.has("real/secret.txt", "inside");
        symlink("real", place.path("sub")).unwrap();
        let stop = Wanted::new();
        let (at, next) = (place.path("sub"), place.path("next"));
        let swapping = std::thread::spawn({
            let stop = stop.clone();
            move || {
                for target in ["../outside", "real"].iter().cycle() {
                    if !stop.still() {
                        break;
                    }
                    symlink(target, &next).unwrap();
                    fs::rename(&next, &at).unwrap();
                }
            }
        });
        for n in 0..300 {
            if let Ok(text) = place.read("sub/secret.txt").await {
                assert_eq!(text, "inside");
            }
            if let Ok(prepared) = place.prepare(&format!("sub/{n}.txt"), "x").await {
                let effect = place.carry_out(prepared).await.effect;
                assert_eq!(
                    effect,
                    Effect::Committed,
                    "shown free of links, so nothing came between"
                );
            }
        }
        drop(GiveUp(stop));
        swapping.join().unwrap();
        let outside: Vec<_> = fs::read_dir(place.root.path().join("outside"))
            .unwrap()
            .collect();
        assert_eq!(outside.len(), 1, "nothing was written outside");
    }

    #[tokio::test]
    async fn a_write_through_a_link_is_shown_and_done_where_the_link_leads() {
        let place = place();
        place.has("real/a.txt", "old\n");
        symlink("real", place.path("alias")).unwrap();
        symlink("real/a.txt", place.path("link.txt")).unwrap();
        for path in ["link.txt", "alias/a.txt"] {
            let prepared = place.prepare(path, &format!("{path}\n")).await.unwrap();
            let Intent::WriteFile { path: shown, .. } = &prepared.intent;
            assert_eq!(*shown, place.path("real/a.txt").display().to_string());
            assert_eq!(place.carry_out(prepared).await.effect, Effect::Committed);
            let written = fs::read_to_string(place.path("real/a.txt")).unwrap();
            assert_eq!(written, format!("{path}\n"));
        }
        assert!(place.path("link.txt").is_symlink(), "the link stays a link");
    }

    #[tokio::test]
    async fn a_parent_that_became_a_link_after_the_question_is_not_followed() {
        let place = place();
        place.has("sub/keep.txt", "");
        place.has("other/keep.txt", "");
        let prepared = place.prepare("sub/new.txt", "x").await.unwrap();
        fs::rename(place.path("sub"), place.path("moved")).unwrap();
        symlink("other", place.path("sub")).unwrap();
        let before = place.names();
        let result = place.carry_out(prepared).await;
        assert_eq!(result.effect, Effect::None);
        assert_says(&words(result).unwrap_err(), &["was not written"]);
        assert_eq!(place.names(), before);
    }

    #[tokio::test]
    async fn pipes_sockets_and_devices_are_refused_at_once() {
        let place = place();
        let made = Command::new("mkfifo")
            .arg(place.path("pipe"))
            .status()
            .unwrap();
        assert!(made.success());
        let _listens = UnixListener::bind(place.path("socket")).unwrap();
        for path in ["pipe", "socket"] {
            assert_says(&place.read(path).await.unwrap_err(), &["a pipe, a socket"]);
            let asked = place.prepare(path, "x").await;
            assert_says(&asked.unwrap_err(), &["a pipe, a socket"]);
        }
        let listed = place.said("list_files", json!({})).await.unwrap();
        assert_says(&listed, &["pipe (a pipe, socket or device)"]);
    }

    #[tokio::test]
    async fn a_replaced_file_keeps_its_permissions_and_a_read_only_one_is_left_alone() {
        let place = place();
        place.has("run.sh", "old\n");
        let mode = |mode| fs::Permissions::from_mode(mode);
        fs::set_permissions(place.path("run.sh"), mode(0o750)).unwrap();
        place.write("run.sh", "new\n").await.unwrap();
        let kept = fs::metadata(place.path("run.sh"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(kept & 0o7777, 0o750);
        let prepared = place.prepare("run.sh", "newer\n").await.unwrap();
        fs::set_permissions(place.path("run.sh"), mode(0o444)).unwrap();
        assert_eq!(place.carry_out(prepared).await.effect, Effect::None);
        let asked = place.prepare("run.sh", "newer\n").await;
        assert_says(&asked.unwrap_err(), &["read-only"]);
        assert_eq!(fs::read_to_string(place.path("run.sh")).unwrap(), "new\n");
    }

    #[tokio::test]
    async fn names_that_are_not_text_are_listed_and_said_to_be_out_of_reach() {
        let place = place();
        let name = std::ffi::OsStr::from_bytes(b"caf\xe9.txt");
        fs::write(place.path("").join(name), "x").unwrap();
        place.has("fake\nforged.txt (9 bytes)", "x");
        let listed = place.said("list_files", json!({})).await.unwrap();
        assert_says(
            &listed,
            &["its name is not text", "control character", "2 entries"],
        );
        assert_eq!(
            listed.lines().count(),
            3,
            "no name makes a line of its own: {listed}"
        );
    }
}

// Reading.

#[tokio::test]
async fn a_file_is_given_byte_for_byte() {
    let place = place();
    for content in [
        "one\ntwo\n",
        "no end",
        "\u{feff}marked\r\nand\r\n",
        "\n\n\n",
        "👩‍👩‍👧‍👦 語 é",
    ] {
        place.has("a.txt", content);
        assert_eq!(place.read("a.txt").await, Ok(content.to_owned()));
    }
    place.has("a.txt", "");
    assert_eq!(
        place.read("a.txt").await,
        Ok("[\"a.txt\" is empty.]".to_owned())
    );
}

#[tokio::test]
async fn lines_are_picked_and_their_place_is_said() {
    let place = place();
    place.has("a.txt", "1\r\n2\r\n3\r\n4");
    for (from, lines, expected) in [
        (
            json!(2),
            json!(2),
            "2\r\n3\r\n[These are lines 2 to 3 of 4.]",
        ),
        (json!(4), json!(null), "4\n[These are lines 4 to 4 of 4.]"),
        (json!(1), json!(4), "1\r\n2\r\n3\r\n4"),
        (json!(null), json!(1), "1\r\n[These are lines 1 to 1 of 4.]"),
        (
            json!(3),
            json!(u64::MAX),
            "3\r\n4\n[These are lines 3 to 4 of 4.]",
        ),
    ] {
        let asked = json!({"path": "a.txt", "from_line": from, "lines": lines});
        assert_eq!(
            place.said("read_file", asked).await,
            Ok(expected.to_owned())
        );
    }
    let asked = json!({"path": "a.txt", "from_line": 5});
    let error = place.said("read_file", asked).await.unwrap_err();
    assert_says(&error, &["only 4 lines"]);
}

#[tokio::test]
async fn a_long_file_is_given_in_parts_that_together_are_the_whole() {
    let place = place();
    let content: String = (1..=5_000).map(|n| format!("line {n} é\n")).collect();
    place.has("log.txt", &content);
    let (mut from, mut whole) = (1, String::new());
    loop {
        let asked = json!({"path": "log.txt", "from_line": from});
        let given = place.said("read_file", asked).await.unwrap();
        assert!(given.len() < bound::LIMIT_BYTES + 500);
        let Some((head, notice)) = given.split_once("[Not everything is shown: the tool ran")
        else {
            whole.push_str(given.split("[These are").next().unwrap());
            break;
        };
        whole.push_str(head);
        let next = notice.split("from_line ").nth(1).unwrap();
        from = next.split(' ').next().unwrap().parse().unwrap();
        assert_says(notice, &["line 5000 é"]);
    }
    assert_eq!(whole, content);
}

#[tokio::test]
async fn characters_across_reads_are_whole_and_other_data_is_named_with_its_size() {
    let place = place();
    let content = format!("x{}", "語".repeat(100_000));
    place.has("a.txt", &content);
    let given = place.read("a.txt").await.unwrap();
    assert!(given.starts_with("x語") && given.ends_with('語') && !given.contains('\u{fffd}'));
    for data in [
        &b"\x89PNG\r\n\x1a\n\0\0"[..],
        b"caf\xe9",
        b"cut \xe8\xaa",
        b"nul\0nul",
    ] {
        place.has("data", data);
        let error = place.read("data").await.unwrap_err();
        assert_says(
            &error,
            &["not a text file", &format!("{} bytes", data.len())],
        );
    }
}

#[tokio::test]
async fn a_huge_file_is_looked_at_up_to_a_limit_that_is_said() {
    let place = place();
    let text = "0123456789abcde\n".repeat(65_536);
    let mut file = fs::File::create(place.path("huge")).unwrap();
    for _ in 0..=(read::SCANNED_BYTES_MAX / text.len() as u64) {
        std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
    }
    let given = place.read("huge").await.unwrap();
    assert_says(&given, &["The file goes on", "the tool ran"]);
    assert!(given.len() < bound::LIMIT_BYTES + 500);
    let asked = json!({"path": "huge", "from_line": 1_000_000, "lines": 2});
    let given = place.said("read_file", asked).await.unwrap();
    assert!(
        given.starts_with("0123456789abcde\n0123456789abcde\n[The file goes on"),
        "{given}"
    );
    let asked = json!({"path": "huge", "from_line": 1_048_577});
    let error = place.said("read_file", asked).await.unwrap_err();
    assert_says(&error, &["looks no further"]);
}

// Listing.

#[tokio::test]
async fn a_listing_is_sorted_and_goes_as_deep_as_asked() {
    let place = place();
    assert_eq!(
        place.said("list_files", json!({})).await,
        Ok("the folder, depth 1: it is empty\n".to_owned())
    );
    place.has("b/c/d.txt", "1234");
    place.has("a.txt", "1");
    assert_eq!(
        place.said("list_files", json!({})).await,
        Ok("the folder, depth 1: 2 entries\na.txt (1 bytes)\nb/\n".to_owned())
    );
    assert_eq!(
        place
            .said("list_files", json!({"path": "b", "depth": 2}))
            .await,
        Ok("\"b\", depth 2: 2 entries\nb/c/\nb/c/d.txt (4 bytes)\n".to_owned())
    );
    let error = place.said("list_files", json!({"depth": 21})).await;
    assert_says(&error.unwrap_err(), &["at most 20"]);
}

#[tokio::test]
async fn a_huge_folder_is_listed_in_part_with_its_heading_and_an_honest_notice() {
    let place = place();
    for n in 0..1_000 {
        fs::File::create(place.path(&format!("file {n:05}"))).unwrap();
    }
    let listed = place.said("list_files", json!({})).await.unwrap();
    assert!(listed.starts_with("the folder, depth 1: 1000 entries\nfile 00000 (0 bytes)\n"));
    assert_says(
        &listed,
        &["the tool ran", "List a folder below", "file 00999"],
    );
    assert!(listed.len() < bound::LIMIT_BYTES + 500);
    assert_eq!(place.said("list_files", json!({})).await.unwrap(), listed);
}

#[tokio::test]
async fn a_deep_tree_ends_and_too_many_entries_are_said_to_be_too_many() {
    let place = place();
    fs::create_dir_all(place.path(&"d/".repeat(60))).unwrap();
    let listed = place
        .said("list_files", json!({"depth": 20}))
        .await
        .unwrap();
    assert_says(&listed, &["depth 20: 20 entries"]);
    for n in 0..list::ENTRIES_MAX {
        fs::File::create(place.path(&format!("{n}"))).unwrap();
    }
    let listed = place
        .said("list_files", json!({"depth": 20}))
        .await
        .unwrap();
    assert_says(&listed, &["more than 2000 entries", "There is more"]);
}

// Writing.

#[tokio::test]
async fn a_write_is_shown_first_then_done_exactly() {
    let place = place();
    place.has("a.txt", "one\ntwo\n");
    let prepared = place.prepare("a.txt", "one\n2\n").await.unwrap();
    assert_eq!(
        prepared.intent,
        Intent::WriteFile {
            path: place.path("a.txt").display().to_string(),
            before: Some(8),
            after: 6,
            diff: "@@ -1,2 +1,2 @@\n one\n-two\n+2\n".to_owned(),
            diff_left_out: 0,
        }
    );
    assert_eq!(
        fs::read(place.path("a.txt")).unwrap(),
        b"one\ntwo\n",
        "only shown"
    );
    let result = place.carry_out(prepared).await;
    assert_eq!(result.effect, Effect::Committed);
    assert_eq!(
        words(result),
        Ok("Wrote \"a.txt\" (replaced, 6 bytes).".to_owned())
    );
    assert_eq!(fs::read(place.path("a.txt")).unwrap(), b"one\n2\n");
    assert_eq!(place.names(), ["a.txt"], "no temporary file is left");
}

#[tokio::test]
async fn a_new_file_brings_its_folders_along() {
    let place = place();
    let prepared = place.prepare("x/y/z.txt", "hi").await.unwrap();
    let Intent::WriteFile { before, diff, .. } = &prepared.intent;
    assert_eq!(*before, None);
    assert_says(diff, &["+hi\n\\ No newline at end of file\n"]);
    assert_eq!(
        place.names(),
        Vec::<String>::new(),
        "nothing is made before the answer"
    );
    assert_eq!(place.carry_out(prepared).await.effect, Effect::Committed);
    assert_eq!(place.names(), ["x", "x/y", "x/y/z.txt"]);
    place.write("empty.txt", "").await.unwrap();
    assert_eq!(fs::read(place.path("empty.txt")).unwrap(), b"");
}

#[tokio::test]
async fn a_file_that_changed_since_the_question_is_left_alone() {
    let place = place();
    place.has("changed.txt", "old");
    place.has("gone.txt", "old");
    let changed = place.prepare("changed.txt", "new").await.unwrap();
    let gone = place.prepare("gone.txt", "new").await.unwrap();
    let appeared = place.prepare("deep/appeared.txt", "new").await.unwrap();
    let became = place.prepare("became.txt", "new").await.unwrap();
    place.has("changed.txt", "mine");
    fs::remove_file(place.path("gone.txt")).unwrap();
    place.has("deep/appeared.txt", "mine");
    fs::create_dir(place.path("became.txt")).unwrap();
    let before = place.names();
    for prepared in [changed, gone, appeared, became] {
        let result = place.carry_out(prepared).await;
        assert_eq!(result.effect, Effect::None);
        assert_says(
            &words(result).unwrap_err(),
            &["changed since the user was asked"],
        );
    }
    assert_eq!(place.names(), before);
    for name in ["changed.txt", "deep/appeared.txt"] {
        assert_eq!(fs::read_to_string(place.path(name)).unwrap(), "mine");
    }
}

#[tokio::test]
async fn another_folder_in_the_place_of_the_chosen_one_is_not_written_to() {
    let place = place();
    let prepared = place.prepare("a.txt", "new").await.unwrap();
    fs::rename(place.path(""), place.root.path().join("moved")).unwrap();
    fs::create_dir(place.path("")).unwrap();
    let result = place.carry_out(prepared).await;
    assert_eq!(result.effect, Effect::None);
    assert_says(&words(result).unwrap_err(), &["replaced by another one"]);
    assert_eq!(place.names(), Vec::<String>::new());
}

#[tokio::test]
async fn a_write_that_nobody_waits_for_any_more_is_given_up_without_a_trace() {
    let place = place();
    place.has("a.txt", "old");
    for path in ["a.txt", "x/y/new.txt"] {
        let prepared = place.prepare(path, "new").await.unwrap();
        let wanted = Wanted::new();
        drop(GiveUp(wanted.clone()));
        let result = write::run(&prepared.planned, &wanted, &Harness::default());
        assert_eq!(result.effect, Effect::None);
        assert_says(&words(result).unwrap_err(), &["the turn had ended"]);
    }
    assert_eq!(
        place.names(),
        ["a.txt"],
        "neither folders nor a temporary file"
    );
    assert_eq!(fs::read_to_string(place.path("a.txt")).unwrap(), "old");
}

#[tokio::test]
async fn a_write_nobody_was_asked_about_does_not_run() {
    let place = place();
    let result = place
        .run("write_file", json!({"path": "a.txt", "content": "x"}))
        .await;
    assert_eq!(result.effect, Effect::None);
    assert_says(&words(result).unwrap_err(), &["the user was not asked"]);
    assert_eq!(place.names(), Vec::<String>::new());
}

#[tokio::test]
async fn files_from_windows_stay_files_from_windows() {
    let place = place();
    place.has("a.txt", "\u{feff}one\r\ntwo\r\n");
    let prepared = place.prepare("a.txt", "one\n2\n").await.unwrap();
    let Intent::WriteFile { diff, after, .. } = &prepared.intent;
    assert_eq!(
        diff.lines().count(),
        4,
        "only what changed is shown: {diff}"
    );
    assert_eq!(*after, 11);
    let said = words(place.carry_out(prepared).await).unwrap();
    assert_says(&said, &["byte order mark and CRLF line ends were kept"]);
    let written = fs::read_to_string(place.path("a.txt")).unwrap();
    assert_eq!(written, "\u{feff}one\r\n2\r\n");
    // Mixed line ends are nobody's manner: the content is taken as it is.
    place.has("b.txt", "one\r\ntwo\n");
    place.write("b.txt", "1\n2\n").await.unwrap();
    assert_eq!(fs::read(place.path("b.txt")).unwrap(), b"1\n2\n");
}

#[tokio::test]
async fn too_much_and_nothing_to_change_are_said_before_anyone_is_asked() {
    let place = place();
    let most = usize::try_from(write::CONTENT_BYTES_MAX).unwrap();
    let asked = place.prepare("a.txt", &"x".repeat(most + 1)).await;
    assert_says(&asked.unwrap_err(), &["at most 1048576 bytes"]);
    place.write("a.txt", &"x".repeat(most)).await.unwrap();
    place.has("big.txt", "x".repeat(most + 1));
    let asked = place.prepare("big.txt", "small").await;
    assert_says(&asked.unwrap_err(), &["at most 1048576 bytes"]);
    place.has("same.txt", "same\n");
    let asked = place.prepare("same.txt", "same\n").await;
    assert_says(&asked.unwrap_err(), &["exactly this content already"]);
}
