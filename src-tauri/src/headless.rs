//! The faces without a window: `ask`, `continue`, `retry`, `undo`, `list`, `show`, `replay`, `events`,
//! `backup`, `usage`, `health`, `key`, `doctor`, `models`, `pull`, `rm`, `cp`, `unload`.
//!
//! Invariant: text on stdout was committed before, as in any window; stdout carries the answer and nothing else,
//! stderr what is said about it. A reader who went away (a closed pipe) ends the printing, never the turn.

mod answer;
mod ask;
mod asker;
mod backup;
mod beginning;
mod doctor;
mod following;
mod health;
mod keeping;
mod keys;
mod lookup;
mod models;
mod print;
mod question;
mod replay;
mod shape;
mod stored;
mod undo;
mod usage;
mod words;

use std::{fmt, path::PathBuf, process::ExitCode, sync::Arc};

use engine::{Config, gateway::local::Host};

use crate::keychain::OsKeychain;

pub(crate) use ask::ask;
pub(crate) use backup::backup;
pub(crate) use doctor::doctor;
pub(crate) use health::health;
pub(crate) use keeping::key;
pub(crate) use models::models;
pub(crate) use replay::replay;
pub(crate) use stored::{events, list, show};
pub(crate) use undo::undo;
pub(crate) use usage::{timings, usage};

use self::print::Margin;

/// What an engine that asks servers is made of, in a window or without one.
pub(crate) fn config(data_dir: PathBuf) -> Config {
    Config {
        host: host(),
        keychain: Arc::new(OsKeychain),
        ..Config::new(data_dir)
    }
}

/// The first argument of a process that is to be a model; nobody types it.
pub(crate) const MODEL_PROCESS: &str = "--model-process";

/// This program as a model's process, if it was built with the engine for that.
fn host() -> Option<Host> {
    if !cfg!(feature = "local-model") {
        return None;
    }
    // A program that cannot find itself again runs no models, and says so when it is asked to.
    let program = std::env::current_exe().ok()?;
    Some(Host::new(program, [MODEL_PROCESS.into()]))
}

/// How a face ended; see [`crate::arguments::HELP`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It did what was asked.
    Done,
    /// It could not.
    Failed,
    /// The command line made no sense.
    Usage,
    /// The answer was stopped or interrupted.
    Stopped,
}

impl Exit {
    const fn number(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Stopped => 3,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.number())
    }
}

/// Says why on stderr, in one sentence behind the program's name.
pub(crate) fn complain(words: impl fmt::Display, exit: Exit) -> Exit {
    Margin::of_this_process().complain(words);
    exit
}
