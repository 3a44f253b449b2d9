//! A keychain as a desktop has one: gnome-keyring behind the Secret Service, on a bus and in a home of the test's own.
//!
//! Nothing of whoever runs this is touched. Without that daemon there is nothing to tell, and the test says so.

use std::{path::Path, process::Stdio};

use protocol::Dialect;
use tests::{
    model_server::{Answer, MODEL, ModelServer},
    sentinel::Sentinel,
    watched::within_limit,
    world::World,
};
use tokio::process::Command;

/// One keyring session; what `holdfast` prints, and how it exits each time.
const SESSION: &str = r#"
printf pass | gnome-keyring-daemon --unlock --components=secrets >/dev/null 2>&1
holdfast() { "$HOLDFAST_APP" --data-dir "$DATA" "$@"; echo "exit $?"; }
holdfast key "$SERVER" --key-env SECRET
holdfast ask --provider "$SERVER" --model "$MODEL" Who?
holdfast key "Model server" --forget
holdfast ask --provider "$SERVER" --model "$MODEL" Who?
"#;

fn is_there(program: &str) -> bool {
    let asked = std::process::Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    asked.is_ok_and(|status| status.success())
}

/// Every file below a folder, as far as it can be read.
fn files(folder: &Path) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .flat_map(|entry| match entry.path() {
            path if path.is_dir() => files(&path),
            path => std::fs::read(path).into_iter().collect(),
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the built app"]
#[allow(clippy::print_stdout, reason = "a story that is not told says so")]
async fn a_real_keyring_keeps_a_key_gives_it_to_a_turn_and_forgets_it() {
    if !is_there("gnome-keyring-daemon") || !is_there("dbus-run-session") {
        println!("not told: there is no gnome-keyring-daemon, or no dbus-run-session, here");
        return;
    }
    let server = ModelServer::start(Dialect::OpenAiChat);
    for answer in ["Kelp.", "Stone."] {
        server.script(Answer::whole(Dialect::OpenAiChat, answer));
    }
    let (world, home) = (World::without_engine(), tempfile::tempdir().unwrap());
    let secret = Sentinel::new("sk-keyring-");
    let app = std::env::var("HOLDFAST_APP").expect("HOLDFAST_APP, the path of the built app");
    let session = Command::new("dbus-run-session")
        .args(["--", "sh", "-c", SESSION])
        .env("HOLDFAST_APP", std::path::absolute(app).unwrap())
        .env("DATA", world.data_dir())
        .env("SERVER", format!("openai={}/v1", server.root()))
        .env("MODEL", MODEL)
        .env("SECRET", secret.to_string())
        .env("HOME", home.path())
        .env("XDG_DATA_HOME", home.path().join("share"))
        .env("XDG_RUNTIME_DIR", home.path())
        .env_remove("DBUS_SESSION_BUS_ADDRESS")
        .env_remove("DISPLAY")
        .env_remove("WAYLAND_DISPLAY")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = within_limit("the keyring's session", session).await;
    let output = output.expect("it runs");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let aside = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines: Vec<&str> = told.lines().collect();
    let [
        kept,
        sent_to,
        "exit 0",
        "Kelp.",
        "exit 0",
        forgotten,
        "exit 0",
        "Stone.",
        "exit 0",
    ] = lines[..]
    else {
        panic!("{told}\n{aside}");
    };
    assert!(
        kept.ends_with("is kept in the keyring of this desktop (Secret Service)"),
        "{kept}"
    );
    assert!(sent_to.contains(&server.root()), "{sent_to}");
    assert_eq!(forgotten, "no key is kept for Model server");
    let shown = |n| {
        let server = &server;
        async move {
            let chat = server.chat(n).await;
            chat.header("authorization").map(str::to_owned)
        }
    };
    assert_eq!(shown(1).await, Some(format!("Bearer {secret}")));
    assert_eq!(shown(2).await, None, "it is forgotten");
    assert_eq!(secret.count_in(&format!("{told}{aside}")), 0);
    for bytes in [files(world.data_dir()), files(home.path())].concat() {
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(secret.count_in(&text), 0, "it is nowhere in the clear");
    }
}
