//! Compiles `tauri.conf.json`, the capabilities and the icons into the app.
//!
//! Not here: building the page. `cargo xtask ui` does that; a plain `cargo build` embeds what is there.

use std::error::Error;
use std::fs;
use std::path::Path;

/// The page, as `tauri.conf.json` names it. Paths here are relative to the root package.
const PAGE: &str = "ui/dist";

fn main() -> Result<(), Box<dyn Error>> {
    // Tauri tracks the files it embedded; the folder's own time tells of files that are new.
    println!("cargo:rerun-if-changed={PAGE}");
    println!("cargo:rerun-if-changed=src-tauri/capabilities");
    // Tauri refuses to compile without the folder, and checks, editors and clippy need no page.
    fs::create_dir_all(PAGE)?;
    if !Path::new(PAGE).join("index.html").exists() {
        println!(
            "cargo:warning=the page is not built, so the window will be empty: `cargo xtask run`"
        );
    }
    let attributes =
        tauri_build::Attributes::new().capabilities_path_pattern("./src-tauri/capabilities/**/*");
    tauri_build::try_build(attributes)?;
    Ok(())
}
