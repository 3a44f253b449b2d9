//! The icon in the tray: there while Holdfast has no window, or at all times if the user wants that.
//!
//! Invariant: no tray is no error. Kept by: the icon is built when it is first needed, and a system that cannot (Linux
//! without libayatana-appindicator) leaves Holdfast without one; the way back is another start then.
//! What is in it is said by `goings`.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
};

use protocol::{SessionId, Show};
use tauri::{
    AppHandle, Manager,
    menu::{Menu, MenuBuilder, MenuItem},
    tray::{TrayIcon, TrayIconBuilder},
};

use crate::door::Door;

use super::goings::{Goings, NAMED_MAX, WayBack};

const ID: &str = "holdfast";
const NEW: &str = "tray-new";
const SHOW: &str = "tray-show";
const QUIT: &str = "tray-quit";
const LINE: &str = "tray-line";
const SESSION: &str = "tray-session-";

/// See the module.
#[derive(Default)]
pub(super) struct Tray {
    icon: Mutex<Icon>,
}

#[derive(Default)]
enum Icon {
    #[default]
    Unneeded,
    Impossible,
    There {
        icon: Box<TrayIcon>,
        shown: Option<Goings>,
    },
}

/// What was chosen in the tray's menu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chosen {
    Open(Show),
    Front,
    Quit,
}

/// What an entry's id means; nothing for the ids of others.
pub(super) fn chosen(id: &str) -> Option<Chosen> {
    match id {
        NEW => Some(Chosen::Open(Show::NewChat)),
        SHOW => Some(Chosen::Front),
        QUIT => Some(Chosen::Quit),
        _ => {
            let session: SessionId = id.strip_prefix(SESSION)?.parse().ok()?;
            Some(Chosen::Open(Show::Session { session }))
        }
    }
}

impl Tray {
    /// Shows or hides the icon. Call it on the main thread.
    pub(super) fn show(&self, app: &AppHandle, goings: &Goings, wanted: bool) {
        let mut icon = self.icon.lock().unwrap_or_else(PoisonError::into_inner);
        if wanted && matches!(*icon, Icon::Unneeded) {
            *icon = built(app);
        }
        let Icon::There { icon, shown } = &mut *icon else {
            return;
        };
        let done = if !wanted {
            *shown = None;
            icon.set_visible(false)
        } else if shown.as_ref() == Some(goings) {
            Ok(())
        } else {
            *shown = Some(goings.clone());
            filled(app, icon, goings)
        };
        if let Err(error) = done {
            tracing::warn!(%error, "the tray does not show what goes on");
        }
    }
}

fn built(app: &AppHandle) -> Icon {
    // On Linux the library is looked for at run time, and its absence is a panic of the bindings.
    let built = catch_unwind(AssertUnwindSafe(|| {
        let (plain, coloured) = (
            tauri::include_image!("icons/tray.png"),
            tauri::include_image!("icons/32x32.png"),
        );
        // macOS gives a template the bar's own colour; elsewhere bars are light or dark, and nobody says which.
        let is_template = cfg!(target_os = "macos");
        TrayIconBuilder::with_id(ID)
            .icon(if is_template { plain } else { coloured })
            .icon_as_template(is_template)
            // On Linux the picture is handed over as a file, which two Holdfasts must not share.
            .temp_dir_path(app.state::<Arc<Door>>().data_dir().join("tray"))
            .build(app)
    }));
    match built {
        Ok(Ok(icon)) => Icon::There {
            icon: Box::new(icon),
            shown: None,
        },
        Ok(Err(error)) => {
            tracing::warn!(%error, "there is no tray; another start brings the window back");
            Icon::Impossible
        }
        Err(_) => {
            tracing::warn!(
                "there is no tray, for want of libayatana-appindicator; another start brings the window back"
            );
            Icon::Impossible
        }
    }
}

fn filled(app: &AppHandle, icon: &TrayIcon, goings: &Goings) -> tauri::Result<()> {
    icon.set_menu(Some(menu(app, goings)?))?;
    icon.set_tooltip(Some(format!("Holdfast: {}", goings.line_with_news())))?;
    // Beside the icon, where a panel has room for that; Windows has no such place.
    icon.set_title(Some(goings.count()))?;
    icon.set_visible(true)
}

fn menu(app: &AppHandle, goings: &Goings) -> tauri::Result<Menu<tauri::Wry>> {
    let item = |id: &str, words: &str| MenuItem::with_id(app, id, words, true, None::<&str>);
    let line = MenuItem::with_id(app, LINE, goings.line_with_news(), false, None::<&str>)?;
    let mut menu = MenuBuilder::new(app).item(&line);
    let named = goings.running.iter().chain(&goings.unread);
    for going in named.take(NAMED_MAX) {
        // A single & would underline the letter behind it.
        let words = going.words().replace('&', "&&");
        menu = menu.item(&item(&format!("{SESSION}{}", going.session), &words)?);
    }
    menu.separator()
        .item(&item(NEW, "New Chat")?)
        .item(&item(SHOW, "Show Holdfast")?)
        .separator()
        .item(&item(QUIT, "Quit Holdfast")?)
        .build()
}

/// Whether an icon in the tray would be seen.
#[cfg(target_os = "linux")]
pub(super) fn way_back() -> WayBack {
    use gtk::{
        gio,
        glib::{ToVariant, VariantTy},
    };

    /// Whoever shows trays answers at once, or hangs.
    const WAIT_MS: i32 = 300;
    let hosted = gio::bus_get_sync(gio::BusType::Session, gio::Cancellable::NONE)
        .and_then(|bus| {
            bus.call_sync(
                Some("org.kde.StatusNotifierWatcher"),
                "/StatusNotifierWatcher",
                "org.freedesktop.DBus.Properties",
                "Get",
                Some(
                    &(
                        "org.kde.StatusNotifierWatcher",
                        "IsStatusNotifierHostRegistered",
                    )
                        .to_variant(),
                ),
                VariantTy::new("(v)").ok(),
                gio::DBusCallFlags::NO_AUTO_START,
                WAIT_MS,
                gio::Cancellable::NONE,
            )
        })
        .ok()
        .and_then(|answer| answer.child_value(0).as_variant())
        .and_then(|hosted| hosted.get::<bool>());
    // No bus, no watcher and no answer are all the same: nobody would see it.
    match hosted {
        Some(true) => WayBack::Tray,
        Some(false) | None => WayBack::Start,
    }
}

/// These systems always have one.
#[cfg(not(target_os = "linux"))]
pub(super) fn way_back() -> WayBack {
    WayBack::Tray
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_of_the_tray_means_something_and_others_nothing() {
        let session = SessionId::from_bits(7);
        let show = Show::Session { session };
        assert_eq!(
            chosen(&format!("{SESSION}{session}")),
            Some(Chosen::Open(show))
        );
        assert_eq!(chosen(NEW), Some(Chosen::Open(Show::NewChat)));
        assert_eq!(chosen(SHOW), Some(Chosen::Front));
        assert_eq!(chosen(QUIT), Some(Chosen::Quit));
        for other in [LINE, "quit", "tray-session-", "tray-session-x", ""] {
            assert_eq!(chosen(other), None, "{other}");
        }
    }
}
