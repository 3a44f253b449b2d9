//! `cargo xtask`: the project's chores.
//!
//! Invariant: from a fresh clone on a machine with Rust and a package manager, each chore either does its
//! work or says, in words, what is missing and the command that brings it. Every program it starts is
//! owned (`owned.rs`) and ends with it.
//! Not here: anything the app needs at run time.

mod arguments;
mod bundle;
mod failure;
mod fuzz;
mod model_server;
mod owned;
mod page;
mod project;
mod repeat;
mod run;
mod screen;
mod setup;
mod small_model;
mod steps;
mod test;
mod tool;
mod wasm;

use std::process::ExitCode;

use arguments::Chore;

fn main() -> ExitCode {
    let chore = match Chore::parse(std::env::args().skip(1)) {
        Ok(chore) => chore,
        Err(misread) => {
            eprintln!("xtask: {misread}\n\n{}", arguments::USAGE);
            return ExitCode::from(2);
        }
    };
    owned::stop_all_when_interrupted();
    let done = project::Project::find().and_then(|project| match chore {
        Chore::Help => {
            println!("{}", arguments::USAGE);
            Ok(ExitCode::SUCCESS)
        }
        Chore::Setup(setup) => setup::chore(&setup).map(|()| ExitCode::SUCCESS),
        Chore::Ui(ui) => page::chore(&project, ui).map(|()| ExitCode::SUCCESS),
        Chore::Run(run) => run::chore(&project, &run),
        Chore::Test(test) => test::chore(&project, test).map(|()| ExitCode::SUCCESS),
        Chore::Repeat(times) => repeat::chore(&project, times).map(|()| ExitCode::SUCCESS),
        Chore::Mutants => test::mutants().map(|()| ExitCode::SUCCESS),
        Chore::Fuzz(runs) => fuzz::chore(&project, runs).map(|()| ExitCode::SUCCESS),
        Chore::Bundle(bundle) => bundle::chore(&project, bundle).map(|()| ExitCode::SUCCESS),
    });
    match done {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("\nxtask: {failure}");
            ExitCode::FAILURE
        }
    }
}
