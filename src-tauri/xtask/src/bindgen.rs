//! The wasm-bindgen step: `bindgen MODULE.wasm OUT_DIR NAME` writes `NAME.js` and `NAME_bg.wasm`.
//!
//! Invariant: this is wasm-bindgen's own code at the version the module was compiled with, so the two
//! always understand each other. Not here: which files end up in the page (`page.rs` compares and copies).

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [module, out_dir, name] = arguments.as_slice() else {
        eprintln!("usage: bindgen MODULE.wasm OUT_DIR NAME");
        return ExitCode::from(2);
    };
    let mut bindgen = wasm_bindgen_cli_support::Bindgen::new();
    bindgen
        .input_path(module)
        .out_name(name)
        .typescript(false)
        // The page starts the module without naming its file.
        .omit_default_module_path(false)
        .remove_producers_section(true);
    match bindgen.web(true).and_then(|web| web.generate(out_dir)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bindgen: {error:#}");
            ExitCode::FAILURE
        }
    }
}
