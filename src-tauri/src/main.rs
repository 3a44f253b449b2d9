//! Holdfast's shell: the composition root. What the machine knows (arguments, environment, time, places) is asked here
//! and passed in; everything else is told.
//!
//! Invariant: a face without a window touches no window system.

// A release on Windows is a desktop app and has no console of its own.
#![cfg_attr(not(debug_assertions), windows_subsystem = "windows")]

mod arguments;

mod data_dir;
mod trace;

mod choice;
mod headless;
mod image_file;
mod keychain;
mod signals;

mod commands;
mod door;
mod second_start;
#[cfg(target_os = "linux")]
mod webkit;
mod windows;

use std::{
    env,
    ffi::OsString,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use protocol::TypedKey;
use tokio::runtime::Runtime;

use crate::{
    arguments::{CommandLine, Face, KeySource, KeyWish, Talk, Wish},
    data_dir::NoDataDir,
    headless::{Exit, complain},
    trace::Traces,
};

// Cargo unifies features over packages that are built together; a release built beside the tests would be no product.
#[cfg(not(debug_assertions))]
const _: () = assert!(
    !engine::mutant::MUTANTS && !engine::gate::GATES && !engine::FAULTS,
    "build the app alone: the tests' gates, mutants and faults are compiled in"
);

/// Threads for polls, turns and sockets; blocking work has threads of its own.
const WORKERS: usize = 2;

/// A reader of our stdout who never reads, or the like, does not keep the process.
const LEAVE_MAX: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    // Before anything else: this process is to be a model and no app.
    #[cfg(feature = "local-model")]
    if env::args_os()
        .nth(1)
        .is_some_and(|first| first == headless::MODEL_PROCESS)
    {
        return local_model::run();
    }
    let line = match arguments::parse(env::args_os().skip(1)) {
        Ok(line) => line,
        Err(error) => {
            let words = format!("{error}\nTry `holdfast --help`.");
            return complain(words, Exit::Usage).into();
        }
    };
    match composed(line) {
        Ok(code) => code,
        Err(error) => complain(error, Exit::Failed).into(),
    }
}

/// Why a face was not even begun.
#[derive(Debug, thiserror::Error)]
enum NotBegun {
    #[error(transparent)]
    DataDir(#[from] NoDataDir),
    #[error(transparent)]
    Window(#[from] windows::NoWindow),
    #[error("the system gives no threads: {0}")]
    Runtime(#[from] io::Error),
}

fn composed(line: CommandLine) -> Result<ExitCode, NotBegun> {
    let place = || {
        let environment = env::var_os("HOLDFAST_DATA_DIR").map(PathBuf::from);
        data_dir::place(line.data_dir.clone(), environment)
    };
    let exit = match line.face {
        Face::Help => said(arguments::HELP),
        Face::Version => said(concat!("holdfast ", env!("CARGO_PKG_VERSION"), "\n")),
        Face::Window(wish) => return window(data_dir::made(&place()?)?, wish),
        Face::Turn(order) => {
            let key = match order.key_env.as_deref().map(key_from).transpose() {
                Ok(key) => key,
                Err(error) => return Ok(complain(error, Exit::Usage).into()),
            };
            let data_dir = data_dir::made(&place()?)?;
            let _traces = traces(Some(&data_dir), order.talk);
            held(|runtime| runtime.block_on(headless::ask(&data_dir, order, key)))?
        }
        Face::Key(order) => {
            let typed = match &order.wish {
                KeyWish::Keep(KeySource::Environment(name)) => Some(key_from(name)),
                KeyWish::Keep(KeySource::Stdin) | KeyWish::Look | KeyWish::Forget => None,
            };
            let typed = match typed.transpose() {
                Ok(typed) => typed,
                Err(error) => return Ok(complain(error, Exit::Usage).into()),
            };
            let data_dir = data_dir::made(&place()?)?;
            let _traces = traces(Some(&data_dir), Talk::Usual);
            held(|runtime| runtime.block_on(headless::key(&data_dir, order, typed)))?
        }
        Face::Undo { session, turn } => {
            let data_dir = data_dir::existing(&place()?)?;
            let _traces = traces(data_dir.as_deref(), Talk::Usual);
            held(|runtime| runtime.block_on(headless::undo(data_dir, &session, turn)))?
        }
        Face::Models(order) => {
            let data_dir = data_dir::made(&place()?)?;
            let _traces = traces(Some(&data_dir), Talk::Usual);
            held(|runtime| runtime.block_on(headless::models(&data_dir, order)))?
        }
        Face::List { format, scope } => {
            let data_dir = data_dir::existing(&place()?)?;
            let _traces = traces(data_dir.as_deref(), Talk::Usual);
            held(|runtime| runtime.block_on(headless::list(data_dir, format, scope)))?
        }
        Face::Show { session, format } => {
            let data_dir = data_dir::existing(&place()?)?;
            let _traces = traces(data_dir.as_deref(), Talk::Usual);
            held(|runtime| runtime.block_on(headless::show(data_dir, &session, format)))?
        }
        Face::Timings { session, format } => {
            let data_dir = data_dir::existing(&place()?)?;
            let _traces = traces(data_dir.as_deref(), Talk::Usual);
            held(|runtime| runtime.block_on(headless::timings(data_dir, &session, format)))?
        }
        Face::Usage { format, days } => {
            let data_dir = data_dir::existing(&place()?)?;
            let _traces = traces(data_dir.as_deref(), Talk::Usual);
            held(|runtime| runtime.block_on(headless::usage(data_dir, format, days)))?
        }
        Face::Replay(order) => {
            let data_dir = data_dir::existing(&place()?)?;
            let _traces = traces(data_dir.as_deref(), order.talk);
            held(|runtime| runtime.block_on(headless::replay(data_dir, order)))?
        }
        Face::Backup { to } => {
            let data_dir = data_dir::existing(&place()?)?;
            let _traces = traces(data_dir.as_deref(), Talk::Usual);
            headless::backup(data_dir, to.as_deref())
        }
        Face::Events { session, format } => {
            let data_dir = data_dir::existing(&place()?)?;
            let _traces = traces(data_dir.as_deref(), Talk::Usual);
            held(|runtime| runtime.block_on(headless::events(data_dir, &session, format)))?
        }
        Face::Doctor { server, format } => {
            let data_dir = data_dir::made(&place()?)?;
            let _traces = traces(Some(&data_dir), Talk::Usual);
            held(|runtime| runtime.block_on(headless::doctor(&data_dir, server, format)))?
        }
        Face::Health { format } => {
            let data_dir = data_dir::existing(&place()?)?;
            let _traces = traces(data_dir.as_deref(), Talk::Usual);
            held(|runtime| runtime.block_on(headless::health(data_dir, format)))?
        }
    };
    Ok(exit.into())
}

/// Why the environment has no key.
#[derive(Debug, thiserror::Error)]
enum NoKey {
    #[error("there is no variable {0} in the environment")]
    Unset(String),
    #[error("the variable {0} in the environment is empty")]
    Empty(String),
    #[error("the variable {0} in the environment is no text")]
    NotText(String),
}

/// The key that a variable of the environment holds.
fn key_from(name: &str) -> Result<TypedKey, NoKey> {
    let value = env::var_os(name).ok_or_else(|| NoKey::Unset(name.to_owned()))?;
    let value = value
        .into_string()
        .map_err(|_| NoKey::NotText(name.to_owned()))?;
    let key = TypedKey::new(&value);
    if key.is_empty() {
        return Err(NoKey::Empty(name.to_owned()));
    }
    Ok(key)
}

fn window(data_dir: PathBuf, wish: Wish) -> Result<ExitCode, NotBegun> {
    // First of all, so that nothing of a window is seen of a start that only knocks.
    if second_start::handed_over(&data_dir, &wish) {
        return Ok(said(windows::HANDED_OVER_LINE).into());
    }
    #[cfg(target_os = "linux")]
    choose_renderer();
    let _traces = traces(Some(&data_dir), Talk::Usual);
    let runtime = runtime()?;
    tauri::async_runtime::set(runtime.handle().clone());
    let first_model = env::var_os("HOLDFAST_FIRST_MODEL").map(PathBuf::from);
    let code = windows::run(data_dir, wish, first_model)?;
    runtime.shutdown_timeout(LEAVE_MAX);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

#[cfg(target_os = "linux")]
#[expect(
    unsafe_code,
    reason = "the web view takes its settings from the environment only"
)]
fn choose_renderer() {
    if env::var_os(webkit::SWITCH).is_none() && webkit::needs_safe_renderer() {
        // SAFETY: this process has no other thread yet that could read the environment.
        unsafe { env::set_var(webkit::SWITCH, "1") };
    }
}

fn held(face: impl FnOnce(&Runtime) -> Exit) -> io::Result<Exit> {
    let runtime = runtime()?;
    let exit = face(&runtime);
    runtime.shutdown_timeout(LEAVE_MAX);
    Ok(exit)
}

fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
}

fn traces(data_dir: Option<&Path>, talk: Talk) -> Traces {
    let level = env::var_os("HOLDFAST_LOG").map(OsString::into_string);
    // A level that is not even text means nothing, like any other nonsense in it.
    let level = level.and_then(Result::ok);
    trace::begin(data_dir, level.as_deref(), talk)
}

fn said(text: &str) -> Exit {
    // `--help | head -1` is no failure.
    let _ = io::stdout().write_all(text.as_bytes());
    Exit::Done
}
