//! Where things are: the root of the clone and cargo's target folder.

use std::env;
use std::path::{Path, PathBuf};

use crate::arguments::Profile;
use crate::failure::{Failure, Result};
use crate::tool;

pub(crate) struct Project {
    root: PathBuf,
    target: PathBuf,
}

impl Project {
    /// The clone this binary was built from, whatever the current folder is; chores run in its root.
    pub(crate) fn find() -> Result<Self> {
        let package = env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = package
            .ancestors()
            .nth(2)
            .map(Path::to_path_buf)
            .ok_or_else(|| {
                Failure::new("the clone was not found", "run `cargo xtask` in the clone")
            })?;
        env::set_current_dir(&root)
            .map_err(|error| Failure::io(format!("could not enter {}", root.display()), &error))?;

        let told = tool::capture(
            tool::cargo().args(["metadata", "--no-deps", "--format-version=1"]),
            "run `cargo metadata --no-deps` to see what cargo objects to",
        )?;
        let target = serde_json::from_str::<serde_json::Value>(&told)
            .ok()
            .and_then(|told| Some(PathBuf::from(told.get("target_directory")?.as_str()?)))
            .ok_or_else(|| Failure::new("cargo did not say where it builds", "update cargo"))?;
        Ok(Self { root, target })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// The page that the app embeds; `tauri.conf.json` names the same folder.
    pub(crate) fn dist(&self) -> PathBuf {
        self.root.join("ui/dist")
    }

    pub(crate) fn app(&self, profile: Profile) -> PathBuf {
        let folder = match profile {
            Profile::Debug => "debug",
            Profile::Release => "release",
        };
        self.target
            .join(folder)
            .join(format!("holdfast{}", env::consts::EXE_SUFFIX))
    }

    /// The app's binary, for a chore that was told not to build it.
    pub(crate) fn built_app(&self, profile: Profile) -> Result<PathBuf> {
        let app = self.app(profile);
        if app.is_file() {
            return Ok(app);
        }
        Err(Failure::new(
            format!("{} has not been built yet", app.display()),
            "run the chore again without `--no-build`",
        ))
    }
}
