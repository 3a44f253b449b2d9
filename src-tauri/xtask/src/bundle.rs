//! `bundle`: a Debian package by the Tauri CLI, and proof that it installs, starts and goes away again.
//!
//! Invariant: nothing is compiled for the package that `run` has compiled already. Kept by: the app is built
//! by the same command, and the CLI only packs (`tauri bundle`).

use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::arguments::{BundleArguments, ModelEngine, Profile};
use crate::failure::{Failure, Result};
use crate::owned::{self, Group, Owned};
use crate::page;
use crate::project::Project;
use crate::run;
use crate::screen::{Painted, VirtualScreen};
use crate::setup::{self, Need};
use crate::steps::Steps;
use crate::tool;

/// Texts that deliberate faults and the tests' gates carry; no package may contain them.
const MARKERS: [&[u8]; 2] = [
    b"holdfast-mutants-compiled-in",
    b"holdfast-gates-compiled-in",
];
const PACKAGE: &str = "holdfast";

pub(crate) fn chore(project: &Project, arguments: BundleArguments) -> Result<()> {
    let mut steps = Steps::new();
    steps.step("what this machine needs", || {
        if !cfg!(target_os = "linux") || tool::on_path("dpkg-deb").is_none() {
            return Err(Failure::new(
                "the bundle is a Debian package, and there is no dpkg here",
                format!(
                    "run it on Debian or Ubuntu (this is {} on {ARCH})",
                    std::env::consts::OS
                ),
            ));
        }
        let mut needs = vec![
            Need::Compiler,
            Need::App,
            Need::Wasm,
            Need::ModelEngine,
            Need::Bundler,
        ];
        if arguments.verify {
            needs.push(Need::VirtualScreen);
        }
        setup::ensure(&needs)
    })?;
    steps.step("the page", || page::build(project, arguments.profile))?;
    steps.step("the app", || {
        run::build_app(arguments.profile, ModelEngine::Within)
    })?;
    steps.step("no deliberate fault is compiled in", || {
        no_mutants(project, arguments.profile)
    })?;
    let package = steps.step("the package", || pack(project, arguments.profile))?;
    if arguments.verify {
        steps.step("install, start, remove", || verify(project, &package))?;
    }
    steps.summary();
    println!("   the package is {}", package.display());
    Ok(())
}

fn no_mutants(project: &Project, profile: Profile) -> Result<()> {
    for file in [
        project.app(profile),
        project.dist().join("holdfast_bg.wasm"),
    ] {
        let bytes = fs::read(&file)
            .map_err(|error| Failure::io(format!("could not read {}", file.display()), &error))?;
        if MARKERS.iter().any(|marker| holds(&bytes, marker)) {
            return Err(Failure::new(
                format!("{} was built with deliberate faults in it", file.display()),
                "build without the feature that compiles them in, then bundle again",
            ));
        }
        println!(
            "  {}: {} MB, clean",
            file.display(),
            bytes.len() / 1_000_000
        );
    }
    Ok(())
}

fn holds(bytes: &[u8], marker: &[u8]) -> bool {
    bytes.windows(marker.len()).any(|window| window == marker)
}

fn pack(project: &Project, profile: Profile) -> Result<PathBuf> {
    let began = SystemTime::now();
    let mut command = tool::program("npx");
    command.args([
        "--yes",
        "@tauri-apps/cli@^2",
        "bundle",
        "--bundles",
        "deb",
        "--ci",
    ]);
    if profile == Profile::Debug {
        command.arg("--debug");
    }
    tool::run(
        &mut command,
        "read what the Tauri CLI objects to above; it needs npm's registry the first time",
    )?;
    let folder = project.app(profile).with_file_name("bundle").join("deb");
    newest_package(&folder, began)
        .map_err(|error| Failure::io(format!("could not look into {}", folder.display()), &error))?
        .ok_or_else(|| Failure::new("the Tauri CLI left no package", "read what it said above"))
}

/// The package made after `began`; older ones of other versions may lie beside it.
fn newest_package(folder: &Path, began: SystemTime) -> std::io::Result<Option<PathBuf>> {
    let mut newest = None;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let made = entry.metadata()?.modified()?;
        if path.extension().is_some_and(|extension| extension == "deb") && made >= began {
            newest = newest.max(Some((made, path)));
        }
    }
    Ok(newest.map(|(_, path)| path))
}

fn verify(project: &Project, package: &Path) -> Result<()> {
    let installed = Installed::put(project, package)?;
    let told = tool::capture(
        tool::program(&installed.binary).arg("--version"),
        "start the installed binary by hand to see what it objects to",
    )?;
    println!("  it says: {}", told.trim());
    if !told.contains(env!("CARGO_PKG_VERSION")) {
        return Err(Failure::new(
            format!(
                "`holdfast --version` does not name {}",
                env!("CARGO_PKG_VERSION")
            ),
            "see what `--version` prints in src-tauri/src/main.rs",
        ));
    }

    let screen = VirtualScreen::start()?;
    let data = project.target().join("bundle-check-data");
    let mut app = owned::helper(&installed.binary.to_string_lossy());
    app.env("HOLDFAST_DATA_DIR", &data);
    screen.show_to(&mut app);
    let app = Owned::start(&mut app, "the installed Holdfast", Group::Own)?;
    screen.wait_for_window(&app)?;
    let picture = project.target().join("holdfast-installed.png");
    if screen.save_picture(&picture)? == Painted::NotYet {
        return Err(Failure::new(
            format!(
                "the installed app's window stays empty; see {}",
                picture.display()
            ),
            "start it by hand; a wrong content policy or a missing file in ui/dist looks like this",
        ));
    }
    println!(
        "  its window is open; the screenshot is {}",
        picture.display()
    );
    drop(app);
    // Scratch data of a check; what could not be removed is overwritten by the next one.
    let _ = fs::remove_dir_all(data);
    installed.remove()
}

/// The package on this system, or unpacked into a folder where it may not be installed.
struct Installed {
    binary: PathBuf,
    place: Place,
}

enum Place {
    System,
    Folder(PathBuf),
    Removed,
}

impl Installed {
    fn put(project: &Project, package: &Path) -> Result<Self> {
        let root =
            tool::capture(tool::program("id").arg("-u"), "").is_ok_and(|id| id.trim() == "0");
        let there = tool::succeeds(tool::program("dpkg-query").args(["--show", PACKAGE]));
        if root && !there {
            tool::run(
                tool::program("dpkg").arg("--install").arg(package),
                "read which dependency is missing above: tauri.conf.json, bundle.linux.deb.depends",
            )?;
            return Ok(Self {
                binary: "/usr/bin/holdfast".into(),
                place: Place::System,
            });
        }
        let why = if root {
            "Holdfast is installed here already"
        } else {
            "this user may not install"
        };
        println!("  {why}, so the package is only unpacked");
        let folder = project.target().join("bundle-check");
        // Left by a check that was killed; usually not there.
        let _ = fs::remove_dir_all(&folder);
        tool::run(
            tool::program("dpkg-deb")
                .arg("--extract")
                .arg(package)
                .arg(&folder),
            "check the disk",
        )?;
        Ok(Self {
            binary: folder.join("usr/bin/holdfast"),
            place: Place::Folder(folder),
        })
    }

    fn remove(mut self) -> Result<()> {
        match std::mem::replace(&mut self.place, Place::Removed) {
            Place::System => {
                let by_hand = "run `dpkg --purge holdfast` by hand";
                tool::run(tool::program("dpkg").args(["--purge", PACKAGE]), by_hand)?;
                if self.binary.exists() {
                    return Err(Failure::new(
                        format!("{} was left behind", self.binary.display()),
                        by_hand,
                    ));
                }
                Ok(())
            }
            Place::Folder(folder) => fs::remove_dir_all(&folder).map_err(|error| {
                Failure::io(format!("could not remove {}", folder.display()), &error)
            }),
            Place::Removed => Ok(()),
        }
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        match &self.place {
            Place::System => {
                // A failed check: the reader is told of that failure, and this one's output is above it.
                let _ = tool::run(tool::program("dpkg").args(["--purge", PACKAGE]), "");
            }
            // Looked at after a failure, removed before the next check.
            Place::Folder(_) | Place::Removed => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_found_wherever_it_stands() {
        for text in [
            &b"holdfast-mutants-compiled-in"[..],
            b"\0\0holdfast-mutants-compiled-in\0",
            b"hhholdfast-mutants-compiled-in",
        ] {
            assert!(holds(text, MARKERS[0]));
        }
        assert!(!holds(b"holdfast-mutants-compiled", MARKERS[0]));
        assert!(!holds(b"", MARKERS[0]));
    }
}
