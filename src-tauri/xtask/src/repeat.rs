//! `test --repeat N`: every headless story N times, and whether it said the same each time (INV-118).
//!
//! Invariant: no retry. A story that fails in one run of many has failed, and one whose log is another one in some run is
//! named, unless it says itself why that is right.
//! Not here: what of a log is compared (`tests/harness/kept_log.rs`).

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    num::NonZeroU32,
    path::Path,
    process::{Command, Stdio},
};

use crate::{
    failure::{Failure, Result},
    project::Project,
    test, tool,
};

/// Where the stories keep their logs; they know the same name.
const KEEP_LOGS: &str = "HOLDFAST_KEEP_LOGS";

/// What a story's file of logs is called, and the one that says why they differ.
const LOG: &str = "log";
const DIFFERS: &str = "differs";

pub(crate) fn chore(project: &Project, times: NonZeroU32) -> Result<()> {
    let folder = project.target().join("repeat");
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|e| cannot("empty", &folder, &e))?;
    }
    tool::run(
        test::native_tests().args(["--test=scenarios", "--no-run"]),
        "mend what the compiler names above",
    )?;
    let mut failed: BTreeMap<String, u32> = BTreeMap::new();
    let mut runs = Vec::new();
    for run in 1..=times.get() {
        let logs = folder.join(run.to_string());
        fs::create_dir_all(&logs).map_err(|e| cannot("make", &logs, &e))?;
        let told = tell(&logs, &folder.join(format!("{run}.txt")))?;
        println!("  run {run} of {times}: {} failed", told.len());
        for story in told {
            *failed.entry(story).or_default() += 1;
        }
        runs.push(read(&logs)?);
    }
    let differing = differing(&runs);
    let meant = meant(&folder, times)?;
    for (story, why) in &meant {
        println!("  another log each time, and it says why: {story}: {why}");
    }
    for (story, count) in &failed {
        println!("  failed in {count} of {times} runs: {story}");
    }
    let unmeant: Vec<_> = differing
        .iter()
        .filter(|story| !meant.contains_key(*story) && !failed.contains_key(*story))
        .collect();
    for story in &unmeant {
        println!("  another log in some run: {story}");
    }
    if failed.is_empty() && unmeant.is_empty() {
        return Ok(());
    }
    Err(Failure::new(
        format!(
            "{} stories failed, and {} had another log in some run",
            failed.len(),
            unmeant.len()
        ),
        format!("compare the runs in {}", folder.display()),
    ))
}

/// Tells every story once; gives the names of those that failed.
fn tell(logs: &Path, told: &Path) -> Result<Vec<String>> {
    let output = fs::File::create(told).map_err(|e| cannot("write", told, &e))?;
    let errors = output.try_clone().map_err(|e| cannot("write", told, &e))?;
    let mut command: Command = test::native_tests();
    command
        .arg("--test=scenarios")
        .env(KEEP_LOGS, logs)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors);
    let status = command
        .status()
        .map_err(|e| Failure::io("could not start cargo", &e))?;
    let told = fs::read_to_string(told).map_err(|e| cannot("read", told, &e))?;
    let failed: Vec<String> = told.lines().filter_map(failed).map(str::to_owned).collect();
    if failed.is_empty() && !status.success() {
        return Err(Failure::new(
            format!("the stories ended with {status}"),
            "read what they printed there",
        ));
    }
    Ok(failed)
}

/// The name in a line like `test asking::an_op … FAILED`.
fn failed(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

/// The logs of one run, by story.
fn read(logs: &Path) -> Result<BTreeMap<String, String>> {
    let mut read = BTreeMap::new();
    for entry in fs::read_dir(logs).map_err(|e| cannot("read", logs, &e))? {
        let file = entry.map_err(|e| cannot("read", logs, &e))?.path();
        if file.extension().is_some_and(|own| own == LOG) {
            let text = fs::read_to_string(&file).map_err(|e| cannot("read", &file, &e))?;
            read.insert(story(&file), text);
        }
    }
    Ok(read)
}

/// Stories that say why their logs differ.
fn meant(folder: &Path, times: NonZeroU32) -> Result<BTreeMap<String, String>> {
    let mut meant = BTreeMap::new();
    for run in 1..=times.get() {
        let logs = folder.join(run.to_string());
        for entry in fs::read_dir(&logs).map_err(|e| cannot("read", &logs, &e))? {
            let file = entry.map_err(|e| cannot("read", &logs, &e))?.path();
            if file.extension().is_some_and(|own| own == DIFFERS) {
                let why = fs::read_to_string(&file).map_err(|e| cannot("read", &file, &e))?;
                meant.insert(story(&file), why);
            }
        }
    }
    Ok(meant)
}

fn story(file: &Path) -> String {
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    name.replace('.', "::")
}

/// Stories that said something else in some run than in the first one, or nothing.
fn differing(runs: &[BTreeMap<String, String>]) -> BTreeSet<String> {
    let stories: BTreeSet<&String> = runs.iter().flat_map(BTreeMap::keys).collect();
    let differs = |story: &&&String| {
        let said: BTreeSet<_> = runs.iter().map(|run| run.get(**story)).collect();
        said.len() > 1
    };
    stories
        .iter()
        .filter(differs)
        .map(ToString::to_string)
        .collect()
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::io(format!("could not {what} {}", path.display()), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(logs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let own = |(story, log): &(&str, &str)| ((*story).to_owned(), (*log).to_owned());
        logs.iter().map(own).collect()
    }

    #[test]
    fn a_story_that_says_something_else_or_nothing_in_one_run_is_named() {
        let runs = [
            run(&[("same", "a"), ("other", "a"), ("gone", "a")]),
            run(&[("same", "a"), ("other", "b")]),
        ];
        let named: Vec<_> = differing(&runs).into_iter().collect();
        assert_eq!(named, ["gone", "other"]);
        assert!(differing(&runs[..1]).is_empty());
    }

    #[test]
    fn a_failed_story_is_named_as_it_is_called() {
        let line = "test asking::an_op_runs_once ... FAILED";
        assert_eq!(failed(line), Some("asking::an_op_runs_once"));
        assert_eq!(failed("test asking::an_op_runs_once ... ok"), None);
    }
}
