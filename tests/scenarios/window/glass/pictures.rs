//! Pictures of windows, kept beside the build for people to look at.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::{process::Command, time::timeout};

const LIMIT: Duration = Duration::from_secs(10);

pub(super) fn keep(name: &str, picture: &[u8]) {
    std::fs::write(file(name), picture).expect("the picture is kept");
}

/// A picture of the whole screen: a window that hangs makes none of its own.
pub(super) async fn keep_screen(name: &str) {
    let mut import = Command::new("import");
    import.args(["-silent", "-window", "root"]).arg(file(name));
    import.stdin(Stdio::null()).kill_on_drop(true);
    // The failure that is told of counts, and not a picture of it.
    let _ = timeout(LIMIT, import.status()).await;
}

fn file(name: &str) -> PathBuf {
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = temporary
        .parent()
        .expect("it is inside the target folder")
        .join("screenshots");
    std::fs::create_dir_all(&folder).expect("a folder for pictures");
    folder.join(format!("{name}.png"))
}
