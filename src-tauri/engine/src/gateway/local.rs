//! Models of this computer: files that llama.cpp reads in a child process of this program, one for each loaded model.
//!
//! Invariant: native code runs in that process and in no other; whatever becomes of it is the named end of one turn.

mod child;
mod children;
mod memory;

mod attempt;
mod decoder;

mod files;
mod words;

pub(super) use attempt::run;
pub(super) use children::Children;
pub(super) use decoder::Decoder;
pub(super) use files::probe;
pub(super) use words::failed;
pub(crate) use words::no_engine;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use protocol::{Failure, FailureCode, Model, Provider};

/// The program that becomes a model's process: this one, with arguments that say so.
#[derive(Clone, Debug)]
pub struct Host {
    /// Which program.
    pub program: PathBuf,
    /// What it is told.
    pub arguments: Vec<OsString>,
}

impl Host {
    /// Of this program and these arguments, on this machine.
    pub fn new(program: impl Into<PathBuf>, arguments: impl IntoIterator<Item = OsString>) -> Self {
        Self {
            program: program.into(),
            arguments: arguments.into_iter().collect(),
        }
    }
}

/// Adds which of the models are in memory.
pub(super) fn mark_loaded(children: Option<&Children>, provider: &Provider, models: &mut [Model]) {
    for model in models {
        match children {
            Some(children) => children.describe(&file_of(provider, &model.name), model),
            None => model.loaded = Some(false),
        }
    }
}

/// Takes a model out of memory.
///
/// # Errors
/// That it is in use, in words.
pub(super) async fn unload(
    children: Option<&Children>,
    provider: &Provider,
    model: &str,
) -> Result<(), Failure> {
    let Some(children) = children else {
        return Ok(());
    };
    if children.unload(&file_of(provider, model)).await {
        return Ok(());
    }
    Err(Failure::new(
        FailureCode::BadRequest,
        format!("{model} is answering. Stop that, or wait for its end."),
    ))
}

/// Where a model's file is.
pub fn file_of(provider: &Provider, model: &str) -> PathBuf {
    // An absolute path stands for itself.
    Path::new(&provider.base_url).join(model)
}

/// The folder and, if a file was meant, the model that a person names by a path.
///
/// # Errors
/// In words, if it is none.
pub fn place_of(typed: &str) -> Result<(String, Option<String>), Failure> {
    let typed = typed.trim();
    let path = std::path::absolute(typed).map_err(|_| {
        Failure::new(
            FailureCode::ConnectFailed,
            "Name a GGUF file, or a folder in which such files lie.",
        )
    })?;
    let words = |path: &Path| {
        path.to_str().map(str::to_owned).ok_or_else(|| {
            Failure::new(
                FailureCode::ConnectFailed,
                "The path holds characters that are no text; rename the file or its folder.",
            )
        })
    };
    let is_file = files::is_model(&path) || path.is_file();
    if !is_file && path.exists() && !path.is_dir() {
        return Err(Failure::new(
            FailureCode::ConnectFailed,
            format!(
                "{} is neither a file nor a folder. Name a GGUF file, or a folder in which such files lie.",
                path.display()
            ),
        ));
    }
    match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) if is_file => {
            Ok((words(folder)?, Some(words(Path::new(name))?)))
        }
        _ => Ok((words(&path)?, None)),
    }
}
