//! `fuzz`: the decoders under made-up bytes, beginning with what real servers sent.
//!
//! Invariant: what is found once is tried first the next time; nothing of it is kept in the clone.
//! Not here: what has to hold (`tests/fuzz/targets`).

use std::{fs, num::NonZeroU64, path::Path};

use serde_json::Value;

use crate::{
    failure::{Failure, Result},
    project::Project,
    setup::{self, Need},
    tool,
};

/// Longer answers are no other answers, only slower ones.
const INPUT_BYTES_MAX: usize = 4_096;

/// One for each dialect, as the target chooses them by the first byte.
const DIALECTS: u8 = 3;

pub(crate) fn chore(project: &Project, runs: NonZeroU64) -> Result<()> {
    setup::ensure(&[Need::Compiler, Need::Fuzzer])?;
    let folder = project.target().join("fuzz");
    let (corpus, found) = (folder.join("corpus"), folder.join("found"));
    for folder in [&corpus, &found] {
        fs::create_dir_all(folder)
            .map_err(|error| Failure::io(format!("could not make {}", folder.display()), &error))?;
    }
    let cassettes = project.root().join("tests/cassettes");
    let seeds = seed(&cassettes, &corpus)?;
    println!("  begins with {seeds} inputs out of recorded answers");
    let mut command = tool::program("cargo");
    command
        .args(["+nightly", "fuzz", "run", "--fuzz-dir=tests/fuzz"])
        // No unsafe code of ours is tried, so what a sanitizer would see is not worth the time it takes.
        .args(["--sanitizer=none", "--target-dir"])
        .args([&folder])
        .arg("decoders")
        .arg(&corpus)
        .arg("--")
        .args([
            format!("-runs={runs}"),
            format!("-max_len={INPUT_BYTES_MAX}"),
        ])
        .arg(format!("-artifact_prefix={}/", found.display()))
        .args(["-print_final_stats=1", "-timeout=10"]);
    tool::run(
        &mut command,
        "the input that did it is in the file named above; make it a test of the gateway's shapes, then mend the decoder",
    )
}

/// Every recorded body, for every dialect: a server may speak another one than it is taken for.
fn seed(cassettes: &Path, corpus: &Path) -> Result<usize> {
    let failed = |path: &Path, error: &std::io::Error| {
        Failure::io(format!("could not use {}", path.display()), error)
    };
    let mut seeds = 0;
    for entry in fs::read_dir(cassettes).map_err(|error| failed(cassettes, &error))? {
        let path = entry.map_err(|error| failed(cassettes, &error))?.path();
        if path
            .extension()
            .is_none_or(|extension| extension != "jsonl")
        {
            continue;
        }
        let recorded = fs::read_to_string(&path).map_err(|error| failed(&path, &error))?;
        let body = body(&recorded);
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        for dialect in 0..DIALECTS {
            let mut input = vec![dialect, 7];
            input.extend_from_slice(&body);
            input.truncate(INPUT_BYTES_MAX);
            let seed = corpus.join(format!("{name}-{dialect}"));
            fs::write(&seed, input).map_err(|error| failed(&seed, &error))?;
            seeds += 1;
        }
    }
    Ok(seeds)
}

/// The pieces of a recorded body together; the first line says what was asked.
fn body(recorded: &str) -> Vec<u8> {
    let pieces = recorded
        .lines()
        .skip(1)
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let texts = pieces.filter_map(|piece| piece.get("body")?.as_str().map(str::to_owned));
    texts.collect::<String>().into_bytes()
}
