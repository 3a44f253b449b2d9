//! Which models there are: the GGUF files of a folder.
//!
//! Invariant: a name is the file's path below the folder, and is found again by it.

use std::{
    io,
    path::{Path, PathBuf},
};

use protocol::{Dialect, Failure, FailureCode, Model, ProbeReport};

use super::place_of;

/// Folders within folders within folders: nobody sorts models deeper than this.
const DEPTH_MAX: usize = 4;
/// More files than anybody keeps; a folder of something else is not read to its end.
const FILES_MAX: usize = 2_000;

/// Whether it is called as model files are.
pub(super) fn is_model(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"))
}

/// The models of a folder.
///
/// # Errors
/// That it cannot be read, in words.
async fn list(folder: &str) -> Result<Vec<Model>, Failure> {
    let root = PathBuf::from(folder);
    let read = tokio::task::spawn_blocking(move || {
        let mut models = Vec::new();
        gather(&root, &root, DEPTH_MAX, &mut models)?;
        models.sort_by(|a, b| a.name.cmp(&b.name));
        Ok::<_, io::Error>(models)
    });
    let read = read.await.map_err(io::Error::other).and_then(|read| read);
    read.map_err(|problem| unreadable(folder, &problem))
}

/// What a folder, or the folder of a file, has.
pub(in crate::gateway) async fn probe(typed: &str) -> ProbeReport {
    let folder = match place_of(typed) {
        Ok((folder, _)) => folder,
        Err(failure) => return ProbeReport::Fails { failure },
    };
    match list(&folder).await {
        Ok(models) => ProbeReport::Works {
            server: "This computer".to_owned(),
            dialect: Dialect::Local,
            base_url: folder,
            models,
        },
        Err(failure) => ProbeReport::Fails { failure },
    }
}

fn gather(root: &Path, folder: &Path, depth: usize, models: &mut Vec<Model>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        if models.len() >= FILES_MAX {
            break;
        }
        let path = entry?.path();
        // A file that is gone by now is no model.
        let Ok(found) = std::fs::metadata(&path) else {
            continue;
        };
        if found.is_dir() {
            if depth > 0 {
                // What cannot be read of it has no models for us.
                gather(root, &path, depth.saturating_sub(1), models).unwrap_or(());
            }
        } else if is_model(&path)
            && let Ok(below) = path.strip_prefix(root)
            && let Some(name) = below.to_str()
        {
            models.push(described(name.to_owned(), found.len()));
        }
    }
    Ok(())
}

fn described(name: String, size: u64) -> Model {
    Model {
        size_bytes: Some(size),
        ..Model::named(name)
    }
}

fn unreadable(folder: &str, problem: &io::Error) -> Failure {
    let words = if problem.kind() == io::ErrorKind::NotFound {
        format!("There is no folder {folder}.")
    } else {
        format!("The folder {folder} cannot be read.")
    };
    Failure::new(FailureCode::ConnectFailed, words).with_detail(problem.to_string())
}
