//! Pictures of windows, kept beside the build for people to look at.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::{process::Command, time::timeout};

const LIMIT: Duration = Duration::from_secs(10);

/// What is on the screen now. A window that hangs makes no picture of its own.
pub(super) async fn keep_screen(name: &str) {
    let mut import = Command::new("import");
    import.args(["-silent", "-window", "root"]).arg(file(name));
    import.stdin(Stdio::null()).kill_on_drop(true);
    // The story counts, and not a picture of it.
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
