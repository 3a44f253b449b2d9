//! The data folder: one folder, one name, whichever way it was spelled.
//!
//! Invariant: two spellings of one folder (relative, through a link, with a slash behind) give one path, so that one
//! process per database is one process per folder.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The folder within the platform's place for data.
const NAME: &str = "holdfast";

/// Why there is no data folder.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoDataDir {
    #[error("this system names no place for data; say where with --data-dir")]
    NoPlace,
    #[error("‘{0}’ is not a folder; name one with --data-dir")]
    NotAFolder(PathBuf),
    #[error("the data folder ‘{path}’ cannot be used: {source}; name another one with --data-dir")]
    Unusable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Where the data folder is to be: as said, else as the environment has it, else where the platform keeps such things.
///
/// # Errors
/// [`NoDataDir::NoPlace`] if none of these is known.
pub(crate) fn place(
    said: Option<PathBuf>,
    environment: Option<PathBuf>,
) -> Result<PathBuf, NoDataDir> {
    said.or(environment.filter(|path| !path.as_os_str().is_empty()))
        .or_else(|| dirs::data_dir().map(|data| data.join(NAME)))
        .ok_or(NoDataDir::NoPlace)
}

/// The folder under its one name, made if it was not there.
///
/// # Errors
/// [`NoDataDir`] if it is no folder or cannot be made.
pub(crate) fn made(path: &Path) -> Result<PathBuf, NoDataDir> {
    match make(path) {
        Ok(()) => canonical(path),
        Err(_) if path.exists() && !path.is_dir() => Err(NoDataDir::NotAFolder(path.to_owned())),
        Err(source) => Err(NoDataDir::Unusable {
            path: path.to_owned(),
            source,
        }),
    }
}

/// The folder under its one name, or nothing if there is none: reading does not leave folders behind.
///
/// # Errors
/// [`NoDataDir`] if it is there and no folder, or cannot be looked at.
pub(crate) fn existing(path: &Path) -> Result<Option<PathBuf>, NoDataDir> {
    match path.try_exists() {
        Ok(true) => canonical(path).map(Some),
        Ok(false) => Ok(None),
        Err(source) => Err(NoDataDir::Unusable {
            path: path.to_owned(),
            source,
        }),
    }
}

fn canonical(path: &Path) -> Result<PathBuf, NoDataDir> {
    let path = fs::canonicalize(path).map_err(|source| NoDataDir::Unusable {
        path: path.to_owned(),
        source,
    })?;
    if path.is_dir() {
        Ok(path)
    } else {
        Err(NoDataDir::NotAFolder(path))
    }
}

/// Conversations are nobody else's business: a new folder is its owner's alone.
fn make(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_wins_over_the_environment_and_an_empty_variable_says_nothing() {
        let said = Some(PathBuf::from("said"));
        let environment = Some(PathBuf::from("environment"));
        assert_eq!(place(said.clone(), environment.clone()).ok(), said);
        assert_eq!(place(None, environment.clone()).ok(), environment);
        assert_eq!(
            place(None, Some(PathBuf::new())).ok(),
            dirs::data_dir().map(|data| data.join(NAME))
        );
    }

    #[cfg(unix)]
    #[test]
    fn all_spellings_of_a_folder_give_one_path() {
        let root = tempfile::tempdir().expect("a folder for the test");
        let folder = root.path().join("#%' ünï");
        let one = made(&folder).expect("made");
        let link = root.path().join("link");
        std::os::unix::fs::symlink(&folder, &link).expect("linked");
        for spelling in [
            folder.join(""),
            folder.join("."),
            folder.join("..").join("#%' ünï"),
            link.clone(),
            link.join(""),
        ] {
            assert_eq!(made(&spelling).ok(), Some(one.clone()), "{spelling:?}");
            assert_eq!(existing(&spelling).ok().flatten(), Some(one.clone()));
        }
    }

    #[test]
    fn a_file_is_refused_in_words_and_reading_makes_no_folder() {
        let root = tempfile::tempdir().expect("a folder for the test");
        let file = root.path().join("file");
        fs::write(&file, "x").expect("written");
        assert!(matches!(made(&file), Err(NoDataDir::NotAFolder(_))));
        assert!(matches!(existing(&file), Err(NoDataDir::NotAFolder(_))));
        assert!(matches!(
            made(&file.join("below")),
            Err(NoDataDir::Unusable { .. })
        ));
        let absent = root.path().join("absent");
        assert_eq!(existing(&absent).ok(), Some(None));
        assert!(!absent.exists());
    }
}
