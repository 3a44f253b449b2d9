//! The app's windows, when there is more than one or none, and what a person does to them with the desktop's means.
//!
//! Invariant: the driver looks at one window at a time, and the story says at which. What happens to a window and not
//! to its page comes from the screen, as on a desktop: the driver's own ways would go past the app.

use std::{path::Path, process::Stdio, time::Duration};

use fantoccini::wd::WindowHandle;
use tokio::{
    process::Command,
    time::{Instant, sleep},
};

use super::{LOOK_EVERY, PATIENCE, Window, desk::app_path};

/// For a page to do what its keys mean.
const PRESS_EVERY: Duration = Duration::from_secs(5);

/// One of the app's windows.
#[derive(Debug)]
pub(crate) struct View {
    /// To the driver.
    handle: WindowHandle,
    /// On the screen.
    frame: String,
}

impl Window {
    /// Waits for a window beside those that are known, and looks at it.
    pub(crate) async fn next_view(&self, known: &[&View]) -> View {
        let until = Instant::now() + PATIENCE;
        loop {
            let handles = self.handles().await;
            let frames = frames().await;
            let handle = handles
                .iter()
                .find(|handle| known.iter().all(|view| view.handle != **handle));
            let frame = frames
                .iter()
                .find(|frame| known.iter().all(|view| view.frame != **frame));
            if let (Some(handle), Some(frame)) = (handle, frame) {
                let view = View {
                    handle: handle.clone(),
                    frame: frame.clone(),
                };
                self.look_at(&view).await;
                self.wait_for("composer").await;
                return view;
            }
            assert!(
                Instant::now() < until,
                "hung while waiting for another window: {handles:?}, {frames:?}"
            );
            sleep(LOOK_EVERY).await;
        }
    }

    async fn handles(&self) -> Vec<WindowHandle> {
        let handles = self.step("list the windows", self.client.windows()).await;
        handles.expect("a list of windows")
    }

    /// From now on the driver looks at this window.
    pub(crate) async fn look_at(&self, view: &View) {
        let looked = self.client.switch_to_window(view.handle.clone());
        let looked = self.step(format!("look at {view:?}"), looked).await;
        looked.expect("the window is there");
    }

    /// Closes a window by its key, and waits until it is off the screen. The driver has to look at another one then.
    pub(crate) async fn close_view(&self, view: View) {
        self.steps.note(&format!("close {view:?}"));
        keys(&view.frame, &["ctrl+w"]).await;
        let until = Instant::now() + PATIENCE;
        while frames().await.contains(&view.frame) {
            assert!(Instant::now() < until, "hung while {view:?} closes");
            sleep(LOOK_EVERY).await;
        }
    }

    /// Puts the window out of sight.
    pub(crate) async fn hide(&self) {
        let hidden = self.client.minimize_window();
        let hidden = self.step("minimise the window", hidden).await;
        hidden.expect("a window can be minimised");
        self.wait_for_script("return document.hidden").await;
    }

    /// Gives the window another size.
    pub(crate) async fn resize(&self, width: u32, height: u32) {
        let sized = self.client.set_window_rect(0, 0, width, height);
        let sized = self.step(format!("make it {width} wide"), sized).await;
        sized.expect("a window can have another size");
        self.wait_for_script(&format!("return window.outerWidth === {width}"))
            .await;
    }

    /// Brings it back.
    pub(crate) async fn unhide(&self) {
        let shown = self.client.set_window_rect(0, 0, 900, 700);
        let shown = self.step("bring the window back", shown).await;
        shown.expect("a window can be brought back");
        self.wait_for_script("return !document.hidden").await;
    }
}

impl View {
    /// What the window is called.
    pub(crate) async fn title(&self) -> String {
        let told = xdotool(&["getwindowname", &self.frame]).await;
        told.trim().to_owned()
    }

    /// Waits until it is called so.
    pub(crate) async fn wait_for_title(&self, title: &str) {
        let until = Instant::now() + PATIENCE;
        loop {
            let shown = self.title().await;
            if shown == title {
                return;
            }
            assert!(
                Instant::now() < until,
                "hung while the window is called {shown:?} and not {title:?}"
            );
            sleep(LOOK_EVERY).await;
        }
    }

    /// Presses keys in it, for a page that no driver tells of: one that is not there yet takes none, so they are
    /// pressed again until what they are for is so.
    pub(crate) async fn press_until(
        &self,
        what: &str,
        pressed: &[&str],
        is_so: impl AsyncFn() -> bool,
    ) {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            keys(&self.frame, pressed).await;
            let again = Instant::now() + PRESS_EVERY;
            while Instant::now() < again {
                if is_so().await {
                    return;
                }
                sleep(LOOK_EVERY).await;
            }
        }
        panic!("hung while {pressed:?} does not lead to {what}");
    }

    /// Presses keys in it.
    pub(crate) async fn press(&self, pressed: &[&str]) {
        keys(&self.frame, pressed).await;
    }

    /// Clicks at a place of it.
    pub(crate) async fn click_at(&self, x: u64, y: u64) {
        let (x, y) = (x.to_string(), y.to_string());
        xdotool(&["mousemove", "--window", &self.frame, &x, &y, "click", "1"]).await;
    }
}

/// The app's windows that can be seen.
async fn frames() -> Vec<String> {
    // Their class is the program's name.
    let app = app_path();
    let class = Path::new(&app).file_name().and_then(|name| name.to_str());
    let class = class.expect("a path with a plain name");
    let told = xdotool(&["search", "--onlyvisible", "--class", class]).await;
    told.split_whitespace().map(str::to_owned).collect()
}

/// Presses keys in a window.
async fn keys(frame: &str, keys: &[&str]) {
    let words = [&["windowfocus", frame, "key"], keys].concat();
    xdotool(&words).await;
}

/// What it says. It fails where nothing is found and where a window is just going: both are nothing.
async fn xdotool(words: &[&str]) -> String {
    let mut command = Command::new("xdotool");
    command.args(words).stdin(Stdio::null()).kill_on_drop(true);
    let told = command.output().await.expect("xdotool runs");
    String::from_utf8_lossy(&told.stdout).into_owned()
}
