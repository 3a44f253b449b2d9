//! Other programs in the foreground: their output is shown live, their environment is the user's own.
//!
//! Invariant: a program started here does not see what `cargo run` told this one (`CARGO_PKG_*`, library
//! paths), so cargo does not rebuild for it and another toolchain does not load foreign libraries.
//! Not here: programs that run beside a chore (`owned.rs`).

use std::env;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::failure::{Failure, Result};
use crate::owned::{Group, Owned};

/// A command without the marks of the cargo that started us.
pub(crate) fn program(name: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(name);
    for (key, value) in env::vars_os() {
        let Some(key) = key.to_str() else { continue };
        if key == "LD_LIBRARY_PATH" || key == "DYLD_FALLBACK_LIBRARY_PATH" {
            let own = env::split_paths(&value).filter(|path| !put_there_by_cargo(path));
            match env::join_paths(own) {
                Ok(paths) if !paths.is_empty() => command.env(key, paths),
                // Nothing of the user's is left, or it cannot be written down again.
                Ok(_) | Err(_) => command.env_remove(key),
            };
        } else if set_by_cargo_run(key) {
            command.env_remove(key);
        }
    }
    command
}

/// The cargo that was asked for this chore.
pub(crate) fn cargo() -> Command {
    program(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs to its end, with its output on ours; Ctrl-C ends it too.
///
/// # Errors
/// It could not be started or said no; `remedy` tells the reader what to do then.
pub(crate) fn run(command: &mut Command, remedy: &str) -> Result<()> {
    let shown = shown(command);
    println!("  $ {shown}");
    let status = Owned::start(command, &shown, Group::Ours)?.wait()?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::new(
        format!("`{shown}` ended with {status}"),
        remedy,
    ))
}

/// Runs to its end and gives what it wrote to stdout.
pub(crate) fn capture(command: &mut Command, remedy: &str) -> Result<String> {
    let shown = shown(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::new(format!("could not start `{shown}`: {error}"), remedy))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(
        format!(
            "`{shown}` ended with {}\n{}",
            output.status,
            said.trim_end()
        ),
        remedy,
    ))
}

/// Whether it ends well; what it says is not shown.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    let quiet = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// Where the search path has this program.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let file = format!("{name}{}", env::consts::EXE_SUFFIX);
    env::split_paths(&env::var_os("PATH")?)
        .map(|folder| folder.join(&file))
        .find(|path| path.is_file())
}

fn set_by_cargo_run(key: &str) -> bool {
    key == "CARGO"
        || key == "OUT_DIR"
        || key.starts_with("CARGO_PKG_")
        || key.starts_with("CARGO_MANIFEST_")
}

fn put_there_by_cargo(path: &std::path::Path) -> bool {
    path.components().any(|part| {
        let name = part.as_os_str();
        name == "rustlib" || name == "toolchains" || name == "debug" || name == "release"
    })
}

/// The command as one would type it: without the environment, with the arguments.
fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_own_cargo_settings_are_kept() {
        for kept in [
            "CARGO_HOME",
            "CARGO_TARGET_DIR",
            "CARGO_NET_OFFLINE",
            "RUSTUP_TOOLCHAIN",
        ] {
            assert!(!set_by_cargo_run(kept), "{kept}");
        }
        for dropped in [
            "CARGO",
            "CARGO_PKG_NAME",
            "CARGO_MANIFEST_DIR",
            "CARGO_MANIFEST_PATH",
        ] {
            assert!(set_by_cargo_run(dropped), "{dropped}");
        }
    }

    #[test]
    fn library_paths_of_a_toolchain_are_not_passed_on() {
        for dropped in [
            "/h/.rustup/toolchains/stable/lib",
            "/p/target/debug/deps",
            "/x/lib/rustlib/t/lib",
        ] {
            assert!(put_there_by_cargo(dropped.as_ref()), "{dropped}");
        }
        assert!(!put_there_by_cargo("/opt/cuda/lib".as_ref()));
    }
}
