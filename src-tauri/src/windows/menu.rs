//! The menu: few entries, each with one meaning, and the keys that belong to them.
//!
//! On macOS and Windows the bar is where people look for it. On Linux it would only take space from the text: it is
//! there, hidden, and F10 shows it; its keys work all the same.
//! Not here: the page's own shortcuts. No key is bound on both sides.

use std::sync::Arc;

use tauri::{
    AppHandle, Manager, Runtime, WebviewWindow,
    menu::{Menu, MenuBuilder, MenuItem, PredefinedMenuItem, SubmenuBuilder},
};

use crate::door::Door;

use super::{
    focused_window,
    keeper::{Keepers, Zoom},
    quit,
};

/// What the menu offers beside the platform's own entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    CloseWindow,
    Quit,
    ReloadView,
    ZoomIn,
    ZoomOut,
    ActualSize,
    FullScreen,
    DataFolder,
}

impl Entry {
    const ALL: [Self; 8] = [
        Self::CloseWindow,
        Self::Quit,
        Self::ReloadView,
        Self::ZoomIn,
        Self::ZoomOut,
        Self::ActualSize,
        Self::FullScreen,
        Self::DataFolder,
    ];

    const fn id(self) -> &'static str {
        match self {
            Self::CloseWindow => "close-window",
            Self::Quit => "quit",
            Self::ReloadView => "reload-view",
            Self::ZoomIn => "zoom-in",
            Self::ZoomOut => "zoom-out",
            Self::ActualSize => "actual-size",
            Self::FullScreen => "full-screen",
            Self::DataFolder => "data-folder",
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::CloseWindow => "Close Window",
            Self::Quit => "Quit Holdfast",
            Self::ReloadView => "Reload View",
            Self::ZoomIn => "Zoom In",
            Self::ZoomOut => "Zoom Out",
            Self::ActualSize => "Actual Size",
            Self::FullScreen => "Full Screen",
            Self::DataFolder => "Open Data Folder",
        }
    }

    const fn keys(self) -> Option<&'static str> {
        match self {
            Self::CloseWindow => Some("CmdOrCtrl+W"),
            Self::Quit => Some("CmdOrCtrl+Q"),
            Self::ZoomIn => Some("CmdOrCtrl+="),
            Self::ZoomOut => Some("CmdOrCtrl+-"),
            Self::ActualSize => Some("CmdOrCtrl+0"),
            Self::FullScreen if cfg!(target_os = "macos") => Some("Ctrl+Cmd+F"),
            Self::FullScreen => Some("F11"),
            Self::ReloadView if cfg!(target_os = "macos") => Some("Cmd+R"),
            Self::ReloadView => Some("F5"),
            Self::DataFolder => None,
        }
    }
}

/// The bar.
///
/// # Errors
/// If the platform refuses an entry.
pub(super) fn bar<R: Runtime>(app: &AppHandle<R>) -> tauri::Result<Menu<R>> {
    let item = |entry: Entry| MenuItem::with_id(app, entry.id(), entry.words(), true, entry.keys());
    let mut bar = MenuBuilder::new(app);
    if cfg!(target_os = "macos") {
        let holdfast = SubmenuBuilder::new(app, "Holdfast")
            .item(&PredefinedMenuItem::about(app, None, None)?)
            .separator()
            .services()
            .separator()
            .hide()
            .hide_others()
            .show_all()
            .separator()
            .item(&item(Entry::Quit)?)
            .build()?;
        let edit = SubmenuBuilder::new(app, "Edit")
            .undo()
            .redo()
            .separator()
            .cut()
            .copy()
            .paste()
            .select_all()
            .build()?;
        let file = SubmenuBuilder::new(app, "File").item(&item(Entry::CloseWindow)?);
        bar = bar.items(&[&holdfast, &file.build()?, &edit]);
    } else {
        let file = SubmenuBuilder::new(app, "File")
            .item(&item(Entry::CloseWindow)?)
            .item(&item(Entry::Quit)?)
            .build()?;
        bar = bar.item(&file);
    }
    let view = SubmenuBuilder::new(app, "View")
        .item(&item(Entry::ZoomIn)?)
        .item(&item(Entry::ZoomOut)?)
        .item(&item(Entry::ActualSize)?)
        .separator()
        .item(&item(Entry::FullScreen)?)
        .separator()
        .item(&item(Entry::ReloadView)?)
        .build()?;
    let help = SubmenuBuilder::new(app, "Help")
        .item(&item(Entry::DataFolder)?)
        .build()?;
    bar.items(&[&view, &help]).build()
}

/// An entry of the bar was chosen; others than ours are the platform's. It means the window that was used last.
pub(super) fn chosen(app: &AppHandle, id: &str) {
    if let Some(entry) = Entry::ALL.into_iter().find(|entry| entry.id() == id) {
        act(app, focused_window(app).as_ref(), entry);
    }
}

fn act(app: &AppHandle, window: Option<&WebviewWindow>, entry: Entry) {
    if entry == Entry::Quit {
        quit(app);
        return;
    }
    let Some(window) = window else {
        return; // It is closing, and the menu with it.
    };
    let zoom = |zoom| match app.state::<Keepers>().keeper(window.label()) {
        Some(keeper) => keeper.zoom(window, zoom),
        None => Ok(()),
    };
    let done = match entry {
        Entry::CloseWindow => window.close(),
        Entry::Quit => Ok(()),
        Entry::ReloadView => window.reload(),
        Entry::ZoomIn => zoom(Zoom::In),
        Entry::ZoomOut => zoom(Zoom::Out),
        Entry::ActualSize => zoom(Zoom::Actual),
        Entry::FullScreen => window
            .is_fullscreen()
            .and_then(|full| window.set_fullscreen(!full)),
        Entry::DataFolder => {
            open::that_detached(app.state::<Arc<Door>>().data_dir()).map_err(tauri::Error::from)
        }
    };
    if let Err(error) = done {
        tracing::warn!(%error, entry = entry.id(), "a menu entry did nothing");
    }
}

/// Hides the bar and listens to its keys: GTK does not, while it is hidden.
///
/// # Errors
/// If the window is gone.
#[cfg(target_os = "linux")]
pub(super) fn prepare(window: &WebviewWindow) -> tauri::Result<()> {
    use gtk::{
        MenuBar,
        glib::{Cast, Propagation},
        prelude::{ContainerExt, WidgetExt},
    };

    let bar = window
        .default_vbox()?
        .children()
        .into_iter()
        .find_map(|child| child.downcast::<MenuBar>().ok());
    if let Some(bar) = &bar {
        bar.hide();
        // Showing the window shows all of its children, except those.
        bar.set_no_show_all(true);
    }
    let here = window.clone();
    window.gtk_window()?.connect_key_press_event(move |_, key| {
        match (meant(&key.keyval(), key.state()), &bar) {
            (Some(Pressed::Entry(entry)), _) => act(here.app_handle(), Some(&here), entry),
            (Some(Pressed::Bar), Some(bar)) => bar.set_visible(!bar.is_visible()),
            (Some(Pressed::Bar), None) | (None, _) => return Propagation::Proceed,
        }
        Propagation::Stop
    });
    Ok(())
}

/// The bar is where the platform puts it.
#[cfg(not(target_os = "linux"))]
pub(super) fn prepare(_: &WebviewWindow) -> tauri::Result<()> {
    Ok(())
}

#[cfg(target_os = "linux")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pressed {
    Entry(Entry),
    Bar,
}

#[cfg(target_os = "linux")]
fn meant(pressed: &gtk::gdk::keys::Key, state: gtk::gdk::ModifierType) -> Option<Pressed> {
    use gtk::gdk::{ModifierType, keys::constants as key};

    let ctrl = state.contains(ModifierType::CONTROL_MASK);
    let shift = state.contains(ModifierType::SHIFT_MASK);
    if state.intersects(ModifierType::MOD1_MASK | ModifierType::SUPER_MASK) {
        return None;
    }
    let entry = match *pressed {
        key::F10 if !ctrl && !shift => return Some(Pressed::Bar),
        key::F11 if !ctrl && !shift => Entry::FullScreen,
        key::F5 if !ctrl && !shift => Entry::ReloadView,
        // With Caps Lock it is the capital letter.
        key::q | key::Q if ctrl && !shift => Entry::Quit,
        key::w | key::W if ctrl && !shift => Entry::CloseWindow,
        // On most keyboards the plus sign needs Shift.
        key::plus | key::equal | key::KP_Add if ctrl => Entry::ZoomIn,
        key::minus | key::KP_Subtract if ctrl && !shift => Entry::ZoomOut,
        key::_0 | key::KP_0 if ctrl && !shift => Entry::ActualSize,
        _ => return None,
    };
    Some(Pressed::Entry(entry))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use gtk::gdk::{ModifierType, keys::constants as key};

    use super::*;

    #[test]
    fn a_key_means_the_same_with_caps_and_num_lock_and_nothing_with_alt() {
        let ctrl = ModifierType::CONTROL_MASK;
        let locks = ModifierType::LOCK_MASK | ModifierType::MOD2_MASK;
        assert_eq!(meant(&key::q, ctrl), Some(Pressed::Entry(Entry::Quit)));
        assert_eq!(
            meant(&key::Q, ctrl | locks),
            Some(Pressed::Entry(Entry::Quit))
        );
        assert_eq!(meant(&key::q, ctrl | ModifierType::MOD1_MASK), None);
        assert_eq!(meant(&key::Q, ctrl | ModifierType::SHIFT_MASK), None);
        assert_eq!(meant(&key::q, ModifierType::empty()), None);
        assert_eq!(meant(&key::F10, locks), Some(Pressed::Bar));
        assert_eq!(
            meant(&key::F5, locks),
            Some(Pressed::Entry(Entry::ReloadView))
        );
        assert_eq!(
            meant(&key::plus, ctrl | ModifierType::SHIFT_MASK),
            Some(Pressed::Entry(Entry::ZoomIn))
        );
    }

    #[test]
    fn every_entry_has_a_name_of_its_own() {
        let mut ids = Entry::ALL.map(Entry::id);
        ids.sort_unstable();
        assert!(ids.windows(2).all(|pair| pair[0] != pair[1]), "{ids:?}");
    }
}
