//! Keeps where every window is, so that it is there again.
//!
//! A file per window, replaced whole, so a crash leaves the old or the new one; without a readable one the first window
//! opens as on the first day, and another one a little below and beside the first.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tauri::{PhysicalPosition, PhysicalSize, WebviewWindow};
use tokio::sync::Notify;

use super::placement::{Placement, Screen, ZOOM_MAX, ZOOM_MIN};

/// Dragging a window tells of every pixel; the place is written when the hand rests.
const REST: Duration = Duration::from_millis(500);

/// The keepers of all windows there are.
pub(super) struct Keepers {
    data_dir: PathBuf,
    kept: Mutex<BTreeMap<String, Arc<Keeper>>>,
}

impl Keepers {
    pub(super) fn of(data_dir: &Path) -> Self {
        Self {
            data_dir: data_dir.to_owned(),
            kept: Mutex::default(),
        }
    }

    /// The keeper of a window that is being opened; `beside` is the window it is opened from.
    pub(super) fn begin(&self, label: &str, beside: Option<&str>) -> Arc<Keeper> {
        let usual = beside
            .and_then(|label| self.keeper(label))
            .map(|keeper| keeper.placement().beside());
        let keeper = Arc::new(Keeper::of(&self.data_dir, label, usual.unwrap_or_default()));
        self.lock().insert(label.to_owned(), Arc::clone(&keeper));
        keeper
    }

    /// The keeper of a window that is open.
    pub(super) fn keeper(&self, label: &str) -> Option<Arc<Keeper>> {
        self.lock().get(label).cloned()
    }

    /// A window is gone.
    pub(super) fn end(&self, label: &str) {
        if let Some(keeper) = self.lock().remove(label) {
            keeper.gone.store(true, Ordering::Relaxed);
            keeper.moved.notify_one();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Arc<Keeper>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The keeper of one window.
pub(super) struct Keeper {
    path: PathBuf,
    placement: Mutex<Placement>,
    moved: Notify,
    gone: AtomicBool,
}

/// Which way the page's zoom goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Zoom {
    In,
    Out,
    Actual,
}

impl Keeper {
    fn of(data_dir: &Path, label: &str, usual: Placement) -> Self {
        let path = data_dir.join(match label {
            super::MAIN => "window.json".to_owned(),
            other => format!("window-{other}.json"),
        });
        let placement = fs::read(&path)
            .ok()
            // A damaged file costs a window's place, which is no reason to bother anybody.
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or(usual);
        Self {
            path,
            placement: Mutex::new(placement),
            moved: Notify::new(),
            gone: AtomicBool::new(false),
        }
    }

    /// Puts a window that is not shown yet where it was, or where it can be.
    ///
    /// # Errors
    /// If the desktop refuses.
    pub(super) fn restore(&self, window: &WebviewWindow) -> tauri::Result<()> {
        let placement = self.placement();
        let rectangle = placement.restored(&screens(window)?);
        window.set_size(PhysicalSize::new(rectangle.width, rectangle.height))?;
        if let Some((x, y)) = rectangle.place {
            window.set_position(PhysicalPosition::new(x, y))?;
        }
        if placement.maximized {
            window.maximize()?;
        }
        window.set_zoom(placement.sane_zoom())
    }

    /// The window moved or changed its size.
    pub(super) fn changed(&self) {
        self.moved.notify_one();
    }

    /// Notes the place whenever the window has come to rest; ends with the window.
    pub(super) async fn keep(&self, window: &WebviewWindow) {
        loop {
            self.moved.notified().await;
            while tokio::time::timeout(REST, self.moved.notified())
                .await
                .is_ok()
            {}
            if self.gone.load(Ordering::Relaxed) {
                return;
            }
            self.note(window);
        }
    }

    /// Notes where the window is now.
    pub(super) fn note(&self, window: &WebviewWindow) {
        match look(window, self.placement()) {
            Ok(Some(seen)) => {
                *self.lock() = seen;
                self.write();
            }
            Ok(None) => {} // Minimised or full screen: the place to come back to is the last one.
            Err(error) => tracing::debug!(%error, "the window does not say where it is"),
        }
    }

    /// Changes the size of everything on the page.
    ///
    /// # Errors
    /// If the web view refuses.
    pub(super) fn zoom(&self, window: &WebviewWindow, zoom: Zoom) -> tauri::Result<()> {
        let factor = {
            let mut placement = self.lock();
            let factor = match zoom {
                Zoom::In => placement.sane_zoom() + 0.1,
                Zoom::Out => placement.sane_zoom() - 0.1,
                Zoom::Actual => 1.0,
            };
            // Tenths that add up to tenths.
            placement.zoom = (factor.clamp(ZOOM_MIN, ZOOM_MAX) * 10.0).round() / 10.0;
            placement.zoom
        };
        self.changed();
        window.set_zoom(factor)
    }

    fn write(&self) {
        if let Err(error) = self.replace_file() {
            tracing::warn!(%error, "the window's place was not kept");
        }
    }

    fn replace_file(&self) -> io::Result<()> {
        let new = self.path.with_extension("json.new");
        fs::write(&new, serde_json::to_vec(&self.placement())?)?;
        fs::rename(new, &self.path)
    }

    fn placement(&self) -> Placement {
        *self.lock()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Placement> {
        self.placement
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn look(window: &WebviewWindow, last: Placement) -> tauri::Result<Option<Placement>> {
    if window.is_minimized()? || window.is_fullscreen()? {
        return Ok(None);
    }
    if window.is_maximized()? {
        return Ok(Some(Placement {
            maximized: true,
            ..last
        }));
    }
    let size = window
        .inner_size()?
        .to_logical::<f64>(window.scale_factor()?);
    let place = window.outer_position().ok();
    Ok(Some(Placement {
        x: place.map(|place| place.x),
        y: place.map(|place| place.y),
        width: size.width,
        height: size.height,
        maximized: false,
        zoom: last.zoom,
    }))
}

/// All monitors' usable parts, the primary one first.
fn screens(window: &WebviewWindow) -> tauri::Result<Vec<Screen>> {
    let screen = |monitor: &tauri::Monitor| {
        let area = monitor.work_area();
        Screen {
            x: area.position.x,
            y: area.position.y,
            width: area.size.width,
            height: area.size.height,
            scale: monitor.scale_factor(),
        }
    };
    let primary = window.primary_monitor()?;
    let all = window.available_monitors()?;
    Ok(primary.iter().chain(&all).map(screen).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_window_has_a_place_of_its_own_and_a_new_one_opens_beside_the_one_it_came_from() {
        let dir = tempfile::tempdir().expect("a folder for the test");
        let keepers = Keepers::of(dir.path());
        let main = keepers.begin(super::super::MAIN, None);
        *main.lock() = Placement {
            x: Some(10),
            y: Some(20),
            zoom: 1.5,
            maximized: true,
            ..Placement::default()
        };
        main.write();
        let second = keepers.begin("w2", Some(super::super::MAIN)).placement();
        assert!(second.x > Some(10) && second.y > Some(20), "{second:?}");
        assert_eq!((second.zoom, second.maximized), (1.5, false));
        keepers.end(super::super::MAIN);
        assert!(keepers.keeper(super::super::MAIN).is_none());
        let again = Keepers::of(dir.path());
        let main = again.begin(super::super::MAIN, None).placement();
        assert_eq!((main.x, main.zoom), (Some(10), 1.5));
    }
}
