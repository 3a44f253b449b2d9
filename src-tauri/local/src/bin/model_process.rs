//! A model's process and nothing else; the app becomes one by a hidden argument.

use std::process::ExitCode;

fn main() -> ExitCode {
    local_model::run()
}
