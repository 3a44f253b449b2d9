//! What a machine should watch in the sources: the few lines the design draws between its parts.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Command,
};

use protocol::{Event, EventBody};
use serde_json::Value;

#[test]
fn crates_depend_on_each_other_only_along_the_arrows_of_the_design() {
    let arrows = [
        ("holdfast", vec!["engine", "local-model", "protocol"]),
        ("engine", vec!["protocol", "transcript"]),
        ("local-model", vec!["protocol"]),
        ("protocol", vec![]),
        ("tests", vec!["engine", "protocol", "transcript"]),
        ("transcript", vec!["protocol"]),
        ("ui", vec!["protocol", "transcript"]),
        ("xtask", vec![]),
    ];
    let expected: BTreeMap<_, _> = arrows
        .into_iter()
        .map(|(from, to)| (from.to_owned(), to.into_iter().map(str::to_owned).collect()))
        .collect();
    let members = members();
    let names: BTreeSet<_> = members.keys().cloned().collect();
    let found: BTreeMap<String, BTreeSet<String>> = members
        .iter()
        .map(|(name, dependencies)| {
            (
                name.clone(),
                dependencies.intersection(&names).cloned().collect(),
            )
        })
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn no_crate_knows_a_platform_that_is_not_its_own() {
    let foreign = |name: &str, prefixes: &[&str]| -> Vec<String> {
        members()[name]
            .iter()
            .filter(|dependency| prefixes.iter().any(|prefix| dependency.starts_with(prefix)))
            .cloned()
            .collect()
    };
    let glass = [
        "tauri",
        "wry",
        "leptos",
        "wasm-bindgen",
        "js-sys",
        "web-sys",
    ];
    assert_eq!(
        foreign("engine", &glass),
        [""; 0],
        "the engine knows neither window nor page"
    );
    assert_eq!(
        foreign("transcript", &glass),
        [""; 0],
        "the fold runs in both worlds"
    );
    assert_eq!(
        foreign("protocol", &glass),
        [""; 0],
        "the types cross, they do not act"
    );
    assert_eq!(
        foreign("ui", &["tauri", "rusqlite", "tokio", "reqwest"]),
        [""; 0]
    );
    assert_eq!(
        foreign("holdfast", &["rusqlite", "reqwest", "leptos"]),
        [""; 0]
    );
}

#[test]
fn one_file_of_the_page_knows_javascript() {
    // The module has to begin somewhere; that is all lib.rs may say of it.
    let entrance = [
        "use wasm_bindgen::prelude::wasm_bindgen;",
        "#[wasm_bindgen(start)]",
    ];
    let found = lines_with(&["ui/src"], |line| {
        ["wasm_bindgen", "js_sys", "invoke"]
            .iter()
            .any(|word| has_word(line, word))
    });
    let elsewhere: Vec<_> = found
        .into_iter()
        .filter(|(file, line)| {
            let begins = file == Path::new("ui/src/lib.rs") && entrance.contains(&line.as_str());
            file != Path::new("ui/src/ipc.rs") && !begins
        })
        .collect();
    assert_eq!(elsewhere, []);
}

#[test]
fn no_style_is_written_as_an_attribute() {
    // The page's policy takes none; single properties (`style:inline-size=`, `style=("--at", …)`) go another way.
    let found = lines_with(&["ui/src"], |line| {
        line.contains(" style=") && !line.contains(" style=(")
    });
    assert_eq!(found, []);
}

/// A small blur can end WebKitGTK's web process: `ui/src/styles/10-meaning.css` says how. At half the size of everything,
/// the smallest that the window shows, eight pixels are four, and those are the fewest that need no shader.
#[test]
fn no_shadow_is_blurred_by_less_than_half_a_rem() {
    let mut shadows = 0;
    for path in files_under(&root().join("ui/src/styles"), "css") {
        let css = std::fs::read_to_string(&path).expect("a readable style sheet");
        for rule in css.split(['{', '}', ';']) {
            let Some((property, value)) = rule.split_once(':') else {
                continue;
            };
            let name = property.rsplit("*/").next().unwrap_or(property).trim();
            assert!(
                !value.contains("blur(") && !value.contains("drop-shadow("),
                "{}: {name}",
                path.display()
            );
            if !name.contains("shadow") || value.contains("var(--shadow") || value.trim() == "none"
            {
                continue;
            }
            shadows += 1;
            for shadow in outside_parentheses(value) {
                let lengths: Vec<f64> = shadow
                    .split_whitespace()
                    .filter_map(|word| word.trim_end_matches("rem").parse().ok())
                    .collect();
                let blur = lengths.get(2).copied().unwrap_or(0.0);
                assert!(
                    lengths.len() >= 2 && (blur == 0.0 || blur >= 0.5),
                    "{}: {name} is blurred by {blur} rem in {shadow:?}",
                    path.display()
                );
            }
        }
    }
    assert!(shadows >= 4, "the shadows are elsewhere now: {shadows}");
}

/// The parts of a list, whose commas in parentheses are none of its own.
fn outside_parentheses(list: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut depth = 0;
    for letter in list.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => parts.push(String::new()),
            _ if depth == 0 => parts.last_mut().expect("a part").push(letter),
            _ => {}
        }
    }
    parts
}

/// Whoever waited for an answer may be drawn anew by then, and a callback of a view that is gone panics.
#[test]
fn no_task_of_the_page_runs_a_callback_after_it_waited_without_asking_whether_it_is_there() {
    let mut tasks = 0;
    for path in files_under(&root().join("ui/src"), "rs") {
        let code = std::fs::read_to_string(&path).expect("a readable source");
        for task in code.split("async move {").skip(1) {
            let task = inside_braces(task);
            let Some((_, after)) = task.split_once(".await") else {
                continue;
            };
            tasks += 1;
            assert!(
                !after.contains(".run("),
                "{}: `try_run` is wanted in {task}",
                path.display()
            );
        }
    }
    assert!(tasks > 50, "{tasks} tasks were found");
}

/// What stands before the brace that closes a block whose beginning was cut off.
fn inside_braces(code: &str) -> &str {
    let mut open = 1_usize;
    let end = code.find(|letter| {
        match letter {
            '{' => open += 1,
            '}' => open -= 1,
            _ => {}
        }
        open == 0
    });
    end.map_or(code, |end| &code[..end])
}

#[test]
fn nothing_is_pushed_to_a_page() {
    // An answered poll is the only delivery: a push says `Ok` also into a page that is gone.
    let found = lines_with(&["src-tauri/src", "ui/src"], |line| {
        line.contains("ipc::Channel")
            || has_word(line, "emit")
            || has_word(line, "emit_to")
            || has_word(line, "emit_filter")
    });
    assert_eq!(found, []);
}

#[test]
fn only_the_log_knows_sql() {
    let words = [
        "SELECT ",
        "INSERT INTO",
        "DELETE FROM",
        "CREATE TABLE",
        "PRAGMA ",
        "rusqlite",
    ];
    let found = lines_with(&["src-tauri", "ui"], |line| {
        words.iter().any(|word| line.contains(word))
    });
    let elsewhere: Vec<_> = found
        .into_iter()
        .filter(|(file, _)| {
            !file.starts_with("src-tauri/engine/src/log")
                && file != Path::new("src-tauri/engine/src/log.rs")
        })
        .collect();
    assert_eq!(elsewhere, []);
}

#[test]
fn every_kind_of_event_has_a_golden_sample() {
    let golden = root().join("src-tauri/protocol/golden");
    let mut kinds = BTreeSet::new();
    for file in files_under(&golden, "json") {
        let text = std::fs::read_to_string(&file).unwrap();
        let sample: Value = serde_json::from_str(&text).unwrap();
        let event: Event = serde_json::from_value(sample.clone())
            .unwrap_or_else(|error| panic!("{} is no event: {error}", file.display()));
        assert_eq!(
            serde_json::to_value(&event).unwrap(),
            sample,
            "{} does not come back as it was stored",
            file.display()
        );
        kinds.insert(event.body.kind());
    }
    // Never written, so there is nothing to sample.
    kinds.insert("Unsupported");
    assert_eq!(kinds, EventBody::KINDS.iter().copied().collect());
}

#[test]
fn the_readme_names_every_crate() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let missing: Vec<_> = members()
        .into_keys()
        .filter(|name| !readme.contains(&format!("`{name}`")))
        .collect();
    assert_eq!(missing, [""; 0], "README.md's code map does not name them");
}

#[test]
fn no_tracked_file_knows_the_machine_it_was_written_on() {
    let root = root();
    let mut places = vec![root.display().to_string()];
    places.extend(
        std::env::var("HOME")
            .ok()
            .filter(|home| home.len() > 1)
            .map(|home| home + "/"),
    );
    let mut found = Vec::new();
    for file in tracked_files() {
        // Only text can be read for a path; pictures and the like are not.
        let Ok(text) = std::fs::read_to_string(root.join(&file)) else {
            continue;
        };
        for (number, line) in text.lines().enumerate() {
            if places.iter().any(|place| mentions(line, place)) {
                found.push(format!("{}:{}: {line}", file.display(), number + 1));
            }
        }
    }
    assert_eq!(found, [""; 0]);
}

/// Whether a path is named as such, and not as the end of a longer one.
fn mentions(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(at, _)| {
        !line[..at].ends_with(|before: char| before.is_alphanumeric() || "._-/".contains(before))
    })
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

/// Every package of the workspace, with everything its manifest depends on, for whatever purpose.
fn members() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let name = |value: &Value| value["name"].as_str().unwrap().to_owned();
    let packages = metadata["packages"].as_array().unwrap();
    packages
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().unwrap();
            (name(package), dependencies.iter().map(name).collect())
        })
        .collect()
}

/// Lines of the Rust sources below these folders that a condition holds for; comments do not count.
fn lines_with(folders: &[&str], condition: impl Fn(&str) -> bool) -> Vec<(PathBuf, String)> {
    let root = root();
    let mut found = Vec::new();
    for folder in folders {
        for file in files_under(&root.join(folder), "rs") {
            let text = std::fs::read_to_string(&file).unwrap();
            let name = file.strip_prefix(&root).unwrap().to_owned();
            found.extend(
                text.lines()
                    .filter(|line| !line.trim_start().starts_with("//") && condition(line))
                    .map(|line| (name.clone(), line.trim().to_owned())),
            );
        }
    }
    found
}

fn has_word(line: &str, word: &str) -> bool {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(part_of_word) && !line[at + word.len()..].starts_with(part_of_word)
    })
}

fn files_under(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let Ok(entries) = std::fs::read_dir(folder) else {
        return files;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            files.extend(files_under(&path, extension));
        } else if path.extension().is_some_and(|own| own == extension) {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// What git tracks; in a source tree without git, everything that is not built.
fn tracked_files() -> Vec<PathBuf> {
    let root = root();
    let output = Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(&root)
        .output();
    match output {
        Ok(output) if output.status.success() => output
            .stdout
            .split(|byte| *byte == 0)
            .filter(|name| !name.is_empty())
            .map(|name| PathBuf::from(String::from_utf8_lossy(name).into_owned()))
            .collect(),
        Ok(_) | Err(_) => {
            let extensions = ["rs", "toml", "md", "json", "css", "html", "sql", "yml"];
            let files = extensions
                .iter()
                .flat_map(|extension| files_under(&root, extension));
            files
                .map(|file| file.strip_prefix(&root).unwrap().to_owned())
                .collect()
        }
    }
}
