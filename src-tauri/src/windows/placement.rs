//! Where the window was, and where it may be now.
//!
//! Invariant: a restored window is on a monitor that exists, no larger than it and never too small to use, whatever
//! was saved. Kept by: [`Placement::restored`] is the only way from a saved placement to a rectangle.

use serde::{Deserialize, Serialize};

/// Narrower than this the page has no layout.
pub(super) const WIDTH_MIN: f64 = 360.0;
/// Lower than this composer and answer do not both fit.
pub(super) const HEIGHT_MIN: f64 = 400.0;
const WIDTH: f64 = 1100.0;
const HEIGHT: f64 = 780.0;

/// So much of the window's upper edge has to be on a monitor to be grabbed by a mouse, in logical pixels.
const GRIP_WIDTH: f64 = 120.0;
const GRIP_HEIGHT: f64 = 32.0;

/// Text below half or above five times its size is a mishap, not a wish.
pub(super) const ZOOM_MIN: f64 = 0.5;
pub(super) const ZOOM_MAX: f64 = 5.0;

/// What is saved: the place in physical pixels of the desktop, the size in logical ones, so that it means the same on a
/// monitor with another scale.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Placement {
    /// The outer left edge; absent where the desktop does not tell (Wayland).
    pub(super) x: Option<i32>,
    /// The outer upper edge.
    pub(super) y: Option<i32>,
    /// Of the inside.
    pub(super) width: f64,
    /// Of the inside.
    pub(super) height: f64,
    /// Whether it filled the screen; the rest is where it goes when it no longer does.
    pub(super) maximized: bool,
    /// Of the page; 1 is as designed.
    pub(super) zoom: f64,
}

impl Default for Placement {
    fn default() -> Self {
        Self {
            x: None,
            y: None,
            width: WIDTH,
            height: HEIGHT,
            maximized: false,
            zoom: 1.0,
        }
    }
}

/// A monitor's usable part, in physical pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Screen {
    pub(super) x: i32,
    pub(super) y: i32,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) scale: f64,
}

/// A window's rectangle in physical pixels; without a place the desktop chooses one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rectangle {
    pub(super) place: Option<(i32, i32)>,
    pub(super) width: u32,
    pub(super) height: u32,
}

impl Placement {
    /// Where the window goes on these screens. The first one is where a window without a usable place goes.
    pub(super) fn restored(&self, screens: &[Screen]) -> Rectangle {
        let saved = self.x.zip(self.y);
        let held = saved.and_then(|place| {
            screens
                .iter()
                .find(|screen| screen.holds_grip_of(place, self.width))
        });
        match (held, screens.first()) {
            (Some(screen), _) => {
                let (width, height) = self.size_on(screen);
                Rectangle {
                    place: saved,
                    width,
                    height,
                }
            }
            (None, Some(screen)) => {
                let (width, height) = self.size_on(screen);
                let place = saved.map(|_| screen.centred(width, height));
                Rectangle {
                    place,
                    width,
                    height,
                }
            }
            (None, None) => Rectangle {
                place: None,
                width: sane(self.width, WIDTH_MIN, WIDTH) as u32,
                height: sane(self.height, HEIGHT_MIN, HEIGHT) as u32,
            },
        }
    }

    /// Where a window goes that is opened from one that is here.
    pub(super) fn beside(self) -> Self {
        /// So that the titles of both can be read.
        const STEP: i32 = 32;
        let moved = |at: Option<i32>| at.map(|at| at.saturating_add(STEP));
        Self {
            x: moved(self.x),
            y: moved(self.y),
            maximized: false,
            ..self
        }
    }

    /// The zoom, within reason.
    pub(super) fn sane_zoom(&self) -> f64 {
        if self.zoom.is_finite() {
            self.zoom.clamp(ZOOM_MIN, ZOOM_MAX)
        } else {
            1.0
        }
    }

    fn size_on(&self, screen: &Screen) -> (u32, u32) {
        let fitted = |size: f64, min: f64, usual: f64, room: u32| {
            let size = (sane(size, min, usual) * screen.scale).round();
            // A screen smaller than the least size shows what it can.
            (size as u32).min(room).max(1)
        };
        (
            fitted(self.width, WIDTH_MIN, WIDTH, screen.width),
            fitted(self.height, HEIGHT_MIN, HEIGHT, screen.height),
        )
    }
}

impl Screen {
    /// Whether enough of the upper edge of a window at `place` is here to be dragged.
    fn holds_grip_of(&self, (x, y): (i32, i32), width: f64) -> bool {
        let (x, y) = (f64::from(x), f64::from(y));
        let (left, top) = (f64::from(self.x), f64::from(self.y));
        let (right, bottom) = (left + f64::from(self.width), top + f64::from(self.height));
        let window_right = x + sane(width, WIDTH_MIN, WIDTH) * self.scale;
        let shown = window_right.min(right) - x.max(left);
        shown >= GRIP_WIDTH * self.scale && y >= top && y + GRIP_HEIGHT * self.scale <= bottom
    }

    fn centred(&self, width: u32, height: u32) -> (i32, i32) {
        let middle = |origin: i32, room: u32, size: u32| {
            origin.saturating_add_unsigned(room.saturating_sub(size) / 2)
        };
        (
            middle(self.x, self.width, width),
            middle(self.y, self.height, height),
        )
    }
}

/// A size somebody chose; what nobody chooses is a mishap and becomes the usual one.
fn sane(size: f64, min: f64, usual: f64) -> f64 {
    if size.is_finite() && size >= 1.0 {
        size.clamp(min, 32_767.0)
    } else {
        usual
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEFT: Screen = Screen {
        x: 0,
        y: 0,
        width: 1920,
        height: 1080,
        scale: 1.0,
    };
    const RIGHT_DENSE: Screen = Screen {
        x: 1920,
        y: 0,
        width: 3840,
        height: 2160,
        scale: 2.0,
    };

    fn saved(x: i32, y: i32, width: f64, height: f64) -> Placement {
        Placement {
            x: Some(x),
            y: Some(y),
            width,
            height,
            ..Placement::default()
        }
    }

    fn rectangle(place: Option<(i32, i32)>, width: u32, height: u32) -> Rectangle {
        Rectangle {
            place,
            width,
            height,
        }
    }

    #[test]
    fn a_place_on_a_monitor_is_kept() {
        assert_eq!(
            saved(100, 50, 900.0, 700.0).restored(&[LEFT, RIGHT_DENSE]),
            rectangle(Some((100, 50)), 900, 700)
        );
        assert_eq!(
            saved(-200, 50, 900.0, 700.0).restored(&[LEFT]),
            rectangle(Some((-200, 50)), 900, 700),
            "partly outside, as its owner left it, but still to be grabbed"
        );
    }

    #[test]
    fn a_place_that_no_monitor_shows_becomes_the_middle_of_the_first() {
        for (x, y) in [
            (5000, -3000),
            (100, -3000),
            (100, -20),
            (1900, 50),
            (-890, 50),
            (100, 1070),
            (i32::MIN, i32::MIN),
            (i32::MAX, i32::MAX),
        ] {
            assert_eq!(
                saved(x, y, 900.0, 700.0).restored(&[LEFT]),
                rectangle(Some((510, 190)), 900, 700),
                "saved at ({x}, {y})"
            );
        }
    }

    #[test]
    fn a_size_that_cannot_be_used_becomes_one_that_can() {
        let size = |width, height| {
            let restored = saved(10, 10, width, height).restored(&[LEFT]);
            (restored.width, restored.height)
        };
        assert_eq!(
            size(0.0, 0.0),
            (1100, 780),
            "nothing was saved that makes sense"
        );
        assert_eq!(size(f64::NAN, -5.0), (1100, 780));
        assert_eq!(size(10.0, 10.0), (360, 400), "too small");
        assert_eq!(size(9e9, 9e9), (1920, 1080), "larger than the monitor");
    }

    #[test]
    fn a_size_means_the_same_on_a_monitor_with_another_scale() {
        assert_eq!(
            saved(2000, 50, 900.0, 700.0).restored(&[LEFT, RIGHT_DENSE]),
            rectangle(Some((2000, 50)), 1800, 1400)
        );
        let tight = Screen { scale: 2.5, ..LEFT };
        assert_eq!(
            saved(0, 0, 900.0, 700.0).restored(&[tight]),
            rectangle(Some((0, 0)), 1920, 1080),
            "scaled from 1 to 2.5 it would not fit"
        );
    }

    #[test]
    fn without_a_place_or_without_monitors_the_desktop_chooses() {
        assert_eq!(
            Placement::default().restored(&[LEFT]),
            rectangle(None, 1100, 780)
        );
        assert_eq!(
            saved(5000, -3000, 900.0, 700.0).restored(&[]),
            rectangle(None, 900, 700)
        );
    }

    #[test]
    fn what_was_saved_by_another_version_is_read_as_far_as_it_goes() {
        let read = |text: &str| serde_json::from_str::<Placement>(text).ok();
        assert_eq!(read("{}"), Some(Placement::default()));
        assert_eq!(
            read(r#"{"width":800,"later":true}"#),
            Some(Placement {
                width: 800.0,
                ..Placement::default()
            })
        );
        assert_eq!(read("7"), None);
    }

    #[test]
    fn zoom_stays_within_reason() {
        let zoom = |zoom| {
            Placement {
                zoom,
                ..Placement::default()
            }
            .sane_zoom()
        };
        assert_eq!(zoom(1.5), 1.5);
        assert_eq!(zoom(0.0), ZOOM_MIN);
        assert_eq!(zoom(99.0), ZOOM_MAX);
        assert_eq!(zoom(f64::NAN), 1.0);
    }
}
