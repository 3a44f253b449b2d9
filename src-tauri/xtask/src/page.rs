//! The page: `ui/dist`, which the app embeds.
//!
//! Invariant: the same sources give the same file names and bytes, and a file whose bytes did not change is
//! not written, so an unchanged page never causes the app to be rebuilt.
//! Kept by: everything is made beside the page and compared before it is copied.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use crate::arguments::Profile;
use crate::failure::{Failure, Result};
use crate::project::Project;
use crate::setup::{self, Need};
use crate::tool;
use crate::wasm;

/// The module's name in the page: `holdfast.js`, `holdfast_bg.wasm`.
const NAME: &str = "holdfast";
/// The page's content policy allows no inline script, so the one line that starts the module is a file.
const START: &str = "import start from \"./holdfast.js\";\nawait start();\n";

pub(crate) fn chore(project: &Project, profile: Profile) -> Result<()> {
    setup::ensure(&[Need::Compiler, Need::Wasm])?;
    build(project, profile)
}

/// Compiles the UI and brings `ui/dist` up to date.
pub(crate) fn build(project: &Project, profile: Profile) -> Result<()> {
    let found = wasm::Found::here()?;
    let way = found.way().ok_or_else(|| {
        Failure::new(
            format!("nothing here compiles for {}", wasm::TARGET),
            "run `cargo xtask setup`",
        )
    })?;
    println!(
        "  the page is compiled {}; the first time takes some minutes",
        way.words()
    );
    let module = way.build(project, profile)?;
    let bound = bind(project, &module)?;

    let mut files = BTreeMap::new();
    for name in [format!("{NAME}.js"), format!("{NAME}_bg.wasm")] {
        files.insert(PathBuf::from(&name), read(&bound.join(&name))?);
    }
    files.insert("start.js".into(), START.into());
    files.insert(
        "index.html".into(),
        read(&project.root().join("ui/index.html"))?,
    );
    files.insert(
        format!("{NAME}.css").into(),
        style_sheet(&project.root().join("ui/src/styles"))?,
    );
    let assets = project.root().join("ui/assets");
    for file in files_under(&assets)? {
        let bytes = read(&assets.join(&file))?;
        files.insert(Path::new("assets").join(file), bytes);
    }
    let changed = bring_up_to_date(&project.dist(), &files)?;
    println!("  ui/dist: {} files, {changed} changed", files.len());
    Ok(())
}

/// Runs wasm-bindgen unless its last answer was for this very module.
fn bind(project: &Project, module: &Path) -> Result<PathBuf> {
    let lock = String::from_utf8_lossy(&read(&project.root().join("Cargo.lock"))?).into_owned();
    let version = bindgen_version(&lock)?;
    let out = module.with_extension("bound");
    let stamp = out.join("made-from");
    let mut hasher = DefaultHasher::new();
    (&version, read(module)?).hash(&mut hasher);
    let wanted = format!("{:016x}", hasher.finish());
    if fs::read_to_string(&stamp).is_ok_and(|made_from| made_from == wanted) {
        return Ok(out);
    }
    // What a previous run left is of another module; there may be nothing yet.
    let _ = fs::remove_dir_all(&out);
    let mut command = tool::cargo();
    command.args([
        "run",
        "--package=xtask",
        "--features=bindgen",
        "--bin=bindgen",
        "--",
    ]);
    command.arg(module).arg(&out).arg(NAME);
    println!("  wasm-bindgen {version}; compiling it takes two minutes the first time");
    tool::run(
        &mut command,
        "mend what is named above, then run `cargo xtask ui`",
    )?;
    fs::write(&stamp, wanted)
        .map_err(|error| Failure::io("could not note what was bound", &error))?;
    Ok(out)
}

/// The one version that the module and the step after it must share.
fn bindgen_version(lock: &str) -> Result<String> {
    let module = locked(lock, "wasm-bindgen");
    let step = locked(lock, "wasm-bindgen-cli-support");
    match (module, step) {
        (Some(module), Some(step)) if module == step => Ok(module.to_owned()),
        (Some(module), step) => Err(Failure::new(
            format!(
                "Cargo.lock has wasm-bindgen {module}, but wasm-bindgen-cli-support {}",
                step.unwrap_or("not at all")
            ),
            format!(
                "set `wasm-bindgen-cli-support = \"={module}\"` in src-tauri/xtask/Cargo.toml (and \
                 `wasm-bindgen = \"={module}\"` in ui/Cargo.toml), then run `cargo xtask ui`"
            ),
        )),
        (None, _) => Err(Failure::new(
            "Cargo.lock does not name wasm-bindgen",
            "run `cargo generate-lockfile`",
        )),
    }
}

fn locked<'a>(lock: &'a str, package: &str) -> Option<&'a str> {
    let name = format!("name = \"{package}\"");
    let mut lines = lock.lines().skip_while(|line| *line != name);
    lines
        .nth(1)?
        .strip_prefix("version = \"")?
        .strip_suffix('"')
}

/// All style sheets in the order of their names, as one file.
fn style_sheet(folder: &Path) -> Result<Vec<u8>> {
    let mut sheet = Vec::new();
    for file in files_under(folder)? {
        if file.extension().is_some_and(|extension| extension == "css") {
            sheet.extend_from_slice(format!("/* {} */\n", file.display()).as_bytes());
            sheet.extend_from_slice(&read(&folder.join(&file))?);
            sheet.push(b'\n');
        }
    }
    Ok(sheet)
}

/// Makes the folder hold exactly these files and says how many had to be written or removed.
fn bring_up_to_date(folder: &Path, files: &BTreeMap<PathBuf, Vec<u8>>) -> Result<usize> {
    let mut changed = 0;
    for stray in files_under(folder)?
        .iter()
        .filter(|file| !files.contains_key(*file))
    {
        fs::remove_file(folder.join(stray)).map_err(|error| {
            Failure::io(format!("could not remove {}", stray.display()), &error)
        })?;
        changed += 1;
    }
    for (file, bytes) in files {
        let path = folder.join(file);
        if fs::read(&path).is_ok_and(|there| there == *bytes) {
            continue;
        }
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|error| {
                Failure::io(format!("could not create {}", parent.display()), &error)
            })?;
        }
        fs::write(&path, bytes)
            .map_err(|error| Failure::io(format!("could not write {}", path.display()), &error))?;
        changed += 1;
    }
    Ok(changed)
}

/// Every file below, relative and sorted; a folder that is not there has none.
fn files_under(folder: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut files = BTreeSet::new();
    let mut open = vec![PathBuf::new()];
    while let Some(relative) = open.pop() {
        let here = folder.join(&relative);
        if !here.is_dir() {
            continue;
        }
        let list = fs::read_dir(&here).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
        for entry in
            list.map_err(|error| Failure::io(format!("could not list {}", here.display()), &error))?
        {
            let path = relative.join(entry.file_name());
            if entry.path().is_dir() {
                open.push(path);
            } else {
                files.insert(path);
            }
        }
    }
    Ok(files)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path)
        .map_err(|error| Failure::io(format!("could not read {}", path.display()), &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "[[package]]\nname = \"wasm-bindgen\"\nversion = \"0.2.130\"\nsource = \"x\"\n\n\
                        [[package]]\nname = \"wasm-bindgen-cli-support\"\nversion = \"0.2.130\"\n";

    #[test]
    fn the_module_and_the_bindgen_step_share_one_version() {
        assert_eq!(bindgen_version(LOCK).ok().as_deref(), Some("0.2.130"));
    }

    #[test]
    fn a_disagreeing_lock_says_which_line_to_change() {
        let lock = LOCK.replacen("0.2.130", "0.2.131", 1);
        let said = bindgen_version(&lock)
            .expect_err("the versions differ")
            .to_string();
        assert!(
            said.contains("wasm-bindgen 0.2.131, but wasm-bindgen-cli-support 0.2.130"),
            "{said}"
        );
        assert!(
            said.contains("wasm-bindgen-cli-support = \"=0.2.131\"` in src-tauri/xtask/Cargo.toml"),
            "{said}"
        );
    }

    #[test]
    fn an_unchanged_page_is_not_written_again_and_strays_are_removed() {
        let folder = std::env::temp_dir().join(format!("holdfast-page-{}", std::process::id()));
        fs::create_dir_all(folder.join("old")).expect("a scratch folder");
        fs::write(folder.join("old/stray.js"), "x").expect("a stray file");
        let files = BTreeMap::from([
            (PathBuf::from("index.html"), b"<p>".to_vec()),
            (PathBuf::from("assets/mark.svg"), b"<svg/>".to_vec()),
        ]);

        let first = bring_up_to_date(&folder, &files).expect("the first time");
        let second = bring_up_to_date(&folder, &files).expect("the second time");
        let left = files_under(&folder).expect("the folder can be listed");
        fs::remove_dir_all(&folder).expect("the scratch folder goes");

        assert_eq!(
            (first, second),
            (3, 0),
            "two written and one removed, then nothing"
        );
        assert!(left.iter().eq(files.keys()), "{left:?}");
    }
}
