//! Two ways to compile for wasm32: rustup's ready standard library, or Debian's packaged source of it.
//!
//! Invariant: both build the same crates with the same profiles into a target folder of their own, so the
//! native build never notices which way was taken.
//! Not here: installing either (`setup.rs`), and what becomes of the module (`page.rs`).

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::arguments::Profile;
use crate::failure::{Failure, Result};
use crate::project::Project;
use crate::tool;

pub(crate) const TARGET: &str = "wasm32-unknown-unknown";
/// Debian's second, current Rust, kept for browsers; its version is independent of Debian's `rustc`.
pub(crate) const DEBIAN_PACKAGES: [&str; 3] = ["rustc-web", "cargo-web", "rust-web-src"];

const DEBIAN_CARGO: &str = "/usr/bin/cargo";
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_SOURCE: &str = "/usr/lib/rustlib/src/rust/library/std/Cargo.toml";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Way {
    /// The toolchain in use has the target's standard library.
    Ready,
    /// Debian's cargo and rustc build the standard library from source; the linker is the toolchain's own.
    FromSource { linker_folder: PathBuf },
}

/// What this machine has of either way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) standard_library: bool,
    pub(crate) debian_source: bool,
    pub(crate) linker_folder: Option<PathBuf>,
}

impl Found {
    pub(crate) fn here() -> Result<Self> {
        let remedy = "install Rust from https://rustup.rs";
        let rustc = || tool::program("rustc");
        let sysroot = tool::capture(rustc().args(["--print", "sysroot"]), remedy)?;
        let libraries = Path::new(sysroot.trim()).join("lib/rustlib");
        let about = tool::capture(rustc().arg("-vV"), remedy)?;
        let host = about
            .lines()
            .find_map(|line| line.strip_prefix("host: "))
            .unwrap_or_default();
        let linker_folder = libraries.join(host).join("bin");
        let has = |path: &str| Path::new(path).exists();
        Ok(Self {
            standard_library: libraries.join(TARGET).join("lib").is_dir(),
            debian_source: has(DEBIAN_CARGO) && has(DEBIAN_RUSTC) && has(DEBIAN_SOURCE),
            linker_folder: linker_folder
                .join("rust-lld")
                .exists()
                .then_some(linker_folder),
        })
    }

    /// The ordinary way wherever it works.
    pub(crate) fn way(&self) -> Option<Way> {
        if self.standard_library {
            return Some(Way::Ready);
        }
        match &self.linker_folder {
            Some(folder) if self.debian_source => Some(Way::FromSource {
                linker_folder: folder.clone(),
            }),
            Some(_) | None => None,
        }
    }
}

impl Way {
    pub(crate) fn words(&self) -> &'static str {
        match self {
            Self::Ready => "with the toolchain's own standard library",
            Self::FromSource { .. } => "with Debian's source of the standard library",
        }
    }

    /// Builds package `ui` and gives the module; cargo decides what is up to date.
    pub(crate) fn build(&self, project: &Project, profile: Profile) -> Result<PathBuf> {
        let profile = match profile {
            Profile::Debug => "wasm-dev",
            Profile::Release => "wasm-release",
        };
        let folder = project.target().join("wasm");
        let mut command = self.cargo()?;
        command.args([
            "build",
            "--package=ui",
            "--target",
            TARGET,
            "--profile",
            profile,
        ]);
        command.arg("--target-dir").arg(&folder);
        tool::run(
            &mut command,
            "mend what the compiler names above, then run `cargo xtask ui`",
        )?;
        Ok(folder.join(TARGET).join(profile).join("ui.wasm"))
    }

    fn cargo(&self) -> Result<Command> {
        match self {
            Self::Ready => Ok(tool::cargo()),
            Self::FromSource { linker_folder } => {
                let search = env::var_os("PATH").unwrap_or_default();
                let folders =
                    std::iter::once(linker_folder.clone()).chain(env::split_paths(&search));
                let path = env::join_paths(folders).map_err(|error| {
                    Failure::new(
                        format!("PATH cannot be extended: {error}"),
                        "remove the odd entry from PATH",
                    )
                })?;
                let mut command = tool::program(DEBIAN_CARGO);
                // Building a standard library is an unstable option of cargo; the flag below allows it.
                command
                    .env("RUSTC", DEBIAN_RUSTC)
                    .env("RUSTC_BOOTSTRAP", "1")
                    .env("PATH", path);
                command.arg("-Zbuild-std=std,panic_abort");
                Ok(command)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(standard_library: bool, debian_source: bool, linker: bool) -> Found {
        let linker_folder = linker.then(|| PathBuf::from("/linker"));
        Found {
            standard_library,
            debian_source,
            linker_folder,
        }
    }

    #[test]
    fn the_ordinary_way_is_taken_wherever_it_works() {
        assert_eq!(found(true, true, true).way(), Some(Way::Ready));
        assert_eq!(found(true, false, false).way(), Some(Way::Ready));
    }

    #[test]
    fn without_it_the_standard_library_is_built_from_debians_source() {
        let linker_folder = PathBuf::from("/linker");
        assert_eq!(
            found(false, true, true).way(),
            Some(Way::FromSource { linker_folder })
        );
    }

    #[test]
    fn half_of_a_way_is_none() {
        assert_eq!(
            found(false, true, false).way(),
            None,
            "nothing could link the module"
        );
        assert_eq!(
            found(false, false, true).way(),
            None,
            "there is no standard library"
        );
    }
}
