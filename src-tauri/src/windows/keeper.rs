//! Keeps where the window is, so that it is there again.
//!
//! The file is replaced whole, so a crash leaves the old or the new one; without a readable one the window opens as
//! on the first day.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tauri::{PhysicalPosition, PhysicalSize, WebviewWindow};
use tokio::sync::Notify;

use super::placement::{Placement, Screen, ZOOM_MAX, ZOOM_MIN};

/// Dragging a window tells of every pixel; the place is written when the hand rests.
const REST: Duration = Duration::from_millis(500);

/// See the module.
pub(super) struct Keeper {
    path: PathBuf,
    placement: Mutex<Placement>,
    moved: Notify,
}

/// Which way the page's zoom goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Zoom {
    In,
    Out,
    Actual,
}

impl Keeper {
    /// The keeper of a data folder's window.
    pub(super) fn of(data_dir: &Path) -> Self {
        let path = data_dir.join("window.json");
        let placement = fs::read(&path)
            .ok()
            // A damaged file costs a window's place, which is no reason to bother anybody.
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default();
        Self {
            path,
            placement: Mutex::new(placement),
            moved: Notify::new(),
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
