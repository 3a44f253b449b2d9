//! `test`: everything that must hold before a change is handed in, cheapest first.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::arguments::{Building, Model, ModelEngine, Profile, Reach, TestArguments};
use crate::failure::Result;
use crate::model_server::ModelServer;
use crate::page;
use crate::project::Project;
use crate::run;
use crate::screen::VirtualScreen;
use crate::setup::{self, Need};
use crate::small_model;
use crate::steps::Steps;
use crate::tool;

/// Packages that need neither WebKit nor a display; of `local-model` what surrounds the model engine.
const NATIVE: [&str; 6] = [
    "protocol",
    "engine",
    "local-model",
    "transcript",
    "tests",
    "xtask",
];

/// Tauri's WebDriver and Xvfb go together on Linux only; so do the tests that type at a terminal.
const DRIVES_WINDOWS: bool = cfg!(target_os = "linux");

pub(crate) fn chore(project: &Project, arguments: TestArguments) -> Result<()> {
    let mut steps = Steps::new();
    let full = arguments.reach == Reach::Full;
    let mut untold = false;
    steps.step("what this machine needs", || {
        let mut needs = vec![Need::Compiler, Need::Lints];
        if full {
            needs.extend([Need::App, Need::Wasm]);
        }
        if full && DRIVES_WINDOWS {
            needs.extend([Need::VirtualScreen, Need::WindowTests]);
        }
        if full && arguments.engine == ModelEngine::Within {
            needs.push(Need::ModelEngine);
            if DRIVES_WINDOWS {
                needs.push(Need::ModelServer);
            }
        }
        if arguments.model == Model::Small {
            needs.push(Need::ModelServer);
        }
        setup::ensure(&needs)
    })?;
    steps.step("format", || {
        tool::run(
            tool::cargo().args(["fmt", "--all", "--check"]),
            "run `cargo fmt --all`",
        )
    })?;
    if !full {
        steps.step("clippy, native packages", || clippy(&NATIVE, &[]))?;
    }
    steps.step("native tests", || {
        tool::run(
            packages(tool::cargo().arg("test"), &NATIVE),
            "mend the failing test named above; one test alone: `cargo test -p PACKAGE NAME`",
        )
    })?;
    if full {
        if arguments.building == Building::Wanted {
            steps.step("the page", || page::build(project, Profile::Debug))?;
        }
        let page = [&NATIVE[..], &["ui"]].concat();
        steps.step("clippy, native packages and the page", || {
            clippy(&page, &[])
        })?;
        // Apart from the page: with its macros, cargo would have llama.cpp compiled a second time.
        steps.step("clippy, the app", || {
            let features = arguments.engine.app_features();
            clippy(&["local-model", "holdfast"], &[features])
        })?;
        if arguments.building == Building::Wanted {
            steps.step("the app", || {
                run::build_app(Profile::Debug, arguments.engine)
            })?;
        }
        steps.step("the app's own tests", || app_tests(arguments.engine))?;
        if DRIVES_WINDOWS {
            let model = match arguments.engine {
                ModelEngine::Within => steps.step("a small model", fetched)?,
                ModelEngine::LeftOut => None,
            };
            untold = model.is_none();
            let model = model.as_deref();
            steps.step("tests at the terminal", || terminal_tests(project, model))?;
            steps.step("tests in the real window", || window_tests(project, model))?;
            if let Some(model) = model {
                steps.step("a model of this computer", || {
                    own_model_tests(project, model)
                })?;
            }
        }
    }
    if arguments.model == Model::Small {
        steps.step("a conversation with a real model", || {
            let model = ModelServer::start()?;
            let mut command = ignored_tests("real_model::");
            // The next step's, which needs a server that may be killed.
            command.args(["--skip", KILLING]);
            talk(&mut command, &model)
        })?;
        if cfg!(target_os = "linux") {
            steps.step("a real model server killed in mid-answer", || {
                let model = ModelServer::start()?;
                let mut command = ignored_tests(KILLING);
                command.env("HOLDFAST_MODEL_GROUP", model.group().to_string());
                talk(&mut command, &model)
            })?;
        }
    }
    steps.summary();
    if !full {
        println!(
            "   skipped by --fast: the page, the app, and the tests at the terminal and in the real window"
        );
    } else if !DRIVES_WINDOWS {
        println!("   skipped: the tests at the terminal and in the real window, which need Linux");
    } else if untold {
        println!("   skipped: what a small model's file is needed for, since there is none");
    }
    Ok(())
}

/// The small model's file. Who has no way to it is told so, and is told every other story.
fn fetched() -> Result<Option<PathBuf>> {
    match small_model::file() {
        Ok(file) => Ok(Some(file)),
        Err(failure) => {
            println!("  {failure}");
            Ok(None)
        }
    }
}

const KILLING: &str = "real_model::killed::";

fn talk(command: &mut Command, model: &ModelServer) -> Result<()> {
    command.env("HOLDFAST_MODEL_URL", model.url());
    tool::run(
        command,
        "read which test failed above; the server's log is named there too",
    )
}

/// `mutants`: takes every guard out, one at a time, and shows which story turns red and with which words.
pub(crate) fn mutants() -> Result<()> {
    let mut command = tool::cargo();
    // The same packages as in `test`, so that nothing is compiled a second time with other features.
    packages(command.arg("test"), &NATIVE).args([
        "--test=scenarios",
        "--",
        "--nocapture",
        "mutants::",
    ]);
    tool::run(
        &mut command,
        "a guard that nobody misses has no test, and a story that is red by itself proves nothing: read the verdicts above",
    )
}

fn clippy(names: &[&str], more: &[&str]) -> Result<()> {
    let mut command = tool::cargo();
    packages(command.arg("clippy"), names)
        .args(["--all-targets"])
        .args(more);
    command.args(["--", "-D", "warnings"]);
    tool::run(&mut command, "mend what clippy names above")
}

/// What the shell decides by itself; alone, so that the engine in it is the product's.
fn app_tests(engine: ModelEngine) -> Result<()> {
    tool::run(
        tool::cargo().args(["test", "--package=holdfast", engine.app_features()]),
        "mend the failing test named above; one alone: `cargo test -p holdfast NAME`",
    )
}

/// Where the stories with the built-in model find its file.
const MODEL: &str = "HOLDFAST_MODEL";

/// The stories that want a model's file, and an app that can run it.
const WITH_MODEL: [&str; 2] = ["terminal::files::", "window::local::"];

/// Gives the stories their model, or leaves out those that want one.
fn with_model(command: &mut Command, model: Option<&Path>) {
    match model {
        Some(model) => {
            command.env(MODEL, model);
        }
        None => {
            for stories in WITH_MODEL {
                command.args(["--skip", stories]);
            }
        }
    }
}

fn terminal_tests(project: &Project, model: Option<&Path>) -> Result<()> {
    let mut command = ignored_tests("terminal::");
    command.env("HOLDFAST_APP", project.built_app(Profile::Debug)?);
    with_model(&mut command, model);
    tool::run(
        &mut command,
        "read which test failed above; `holdfast --help` says what the terminal knows",
    )
}

fn window_tests(project: &Project, model: Option<&Path>) -> Result<()> {
    let screen = VirtualScreen::start()?;
    let mut command = ignored_tests("window::");
    // WebDriver allows one session at a time.
    command
        .arg("--test-threads=1")
        .env("HOLDFAST_APP", project.built_app(Profile::Debug)?);
    with_model(&mut command, model);
    screen.show_to(&mut command);
    tool::run(
        &mut command,
        "read which test failed above; `cargo xtask run` shows the same app by hand",
    )
}

fn own_model_tests(project: &Project, model: &Path) -> Result<()> {
    let mut command = ignored_tests("own_model::");
    // They count the processes that they have started.
    command
        .arg("--test-threads=1")
        .env("HOLDFAST_APP", project.built_app(Profile::Debug)?)
        .env(MODEL, model);
    tool::run(
        &mut command,
        "read which test failed above; the model's process is the app with `--model-process`",
    )
}

/// The tests that are ignored because of what they need; the chore has just provided it.
fn ignored_tests(module: &str) -> Command {
    let mut command = tool::cargo();
    packages(command.arg("test"), &NATIVE).args(["--test=scenarios", "--", "--ignored", module]);
    command
}

/// Cargo on the native packages, always these, so that nothing is compiled a second time with other features.
pub(crate) fn native_tests() -> Command {
    let mut command = tool::cargo();
    packages(command.arg("test"), &NATIVE);
    command
}

fn packages<'a>(command: &'a mut Command, names: &[&str]) -> &'a mut Command {
    for name in names {
        command.args(["--package", name]);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fast_reach_touches_no_package_that_needs_webkit() {
        assert!(!NATIVE.contains(&"holdfast") && !NATIVE.contains(&"ui"));
    }

    #[test]
    fn packages_are_named_one_by_one() {
        let mut command = Command::new("cargo");
        packages(command.arg("test"), &["protocol", "engine"]);
        let words: Vec<_> = command.get_args().collect();
        assert_eq!(
            words,
            ["test", "--package", "protocol", "--package", "engine"]
        );
    }
}
