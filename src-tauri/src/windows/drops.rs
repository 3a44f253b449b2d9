//! Files dropped on a window, which WebKitGTK no longer hands to its page ([`DroppedFile`]).
//!
//! Invariant: a page learns of no other files than those that hang over its window or were dropped on it, and of where
//! they lie only if they have a model's name. Nothing is pushed: a page that saw a drop asks.
//! Linux alone; elsewhere nothing is noted, and the browser hands over the files themselves, though not their places.

use std::{
    collections::{HashMap, VecDeque},
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use protocol::DroppedFile;

/// More files than anybody drops at once.
const DROPPED_MAX: usize = 64;
/// How long a page may take to ask for what was let go over it. GTK says of a drop, too, that it has left.
#[cfg(target_os = "linux")]
const ASKED_WITHIN: std::time::Duration = std::time::Duration::from_secs(10);

/// What hangs over each window, and what was dropped on it last.
#[derive(Default)]
pub(crate) struct Drops(Mutex<HashMap<String, Held>>);

#[derive(Default)]
struct Held {
    hanging: Vec<PathBuf>,
    /// Which of the drags that came here this is.
    drag: u64,
    /// With their numbers; the oldest are forgotten.
    dropped: VecDeque<(u64, PathBuf)>,
    last: u64,
}

#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "nobody notes them there")
)]
impl Drops {
    /// Files came over a window, or something that is none.
    fn note(&self, window: &str, mut paths: Vec<PathBuf>) {
        paths.truncate(DROPPED_MAX);
        self.held(window, |held| {
            held.drag += 1;
            held.hanging = paths;
        });
    }

    /// Which drag is over the window now, or was last.
    fn drag(&self, window: &str) -> u64 {
        self.held(window, |held| held.drag)
    }

    /// Forgets what hung over a window, if it was this drag's and nobody has asked for it.
    fn forget(&self, window: &str, drag: u64) {
        self.held(window, |held| {
            if held.drag == drag {
                held.hanging.clear();
            }
        });
    }
}

impl Drops {
    /// Where those lie that were dropped on a window now, with their numbers; once.
    pub(crate) fn take(&self, window: &str) -> Vec<(u64, PathBuf)> {
        self.held(window, |held| {
            let mut taken = Vec::new();
            for path in std::mem::take(&mut held.hanging) {
                held.last += 1;
                taken.push((held.last, path));
            }
            held.dropped.extend(taken.iter().cloned());
            let beyond = held.dropped.len().saturating_sub(DROPPED_MAX);
            held.dropped.drain(..beyond);
            taken
        })
    }

    /// Where one of them lies.
    pub(crate) fn place(&self, window: &str, number: u64) -> Option<PathBuf> {
        self.held(window, |held| {
            let mut dropped = held.dropped.iter();
            let found = dropped.find(|(known, _)| *known == number);
            found.map(|(_, path)| path.clone())
        })
    }

    fn held<T>(&self, window: &str, with: impl FnOnce(&mut Held) -> T) -> T {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        with(held.entry(window.to_owned()).or_default())
    }
}

/// What a page is told of a file. Blocks while the disk is asked for its size.
pub(crate) fn described((number, path): &(u64, PathBuf)) -> DroppedFile {
    let is_model = path
        .extension()
        .is_some_and(|end| end.eq_ignore_ascii_case("gguf"));
    let name = path.file_name().unwrap_or(path.as_os_str());
    DroppedFile {
        number: *number,
        name: name.to_string_lossy().into_owned(),
        bytes: std::fs::metadata(path).map_or(0, |file| file.len()),
        model: path.to_str().filter(|_| is_model).map(str::to_owned),
    }
}

/// Notes what hangs over the window. The page receives it as before.
#[cfg(target_os = "linux")]
pub(crate) fn watch(window: &tauri::WebviewWindow) -> tauri::Result<()> {
    use gtk::{glib, prelude::WidgetExt};
    use tauri::Manager;

    let app = window.app_handle().clone();
    let label = window.label().to_owned();
    window.with_webview(move |webview| {
        let view = webview.inner();
        let (noted_by, noted_for) = (app.clone(), label.clone());
        view.connect_drag_data_received(move |_, _, _, _, data, _, _| {
            // Asked for in several forms; the others say nothing of files.
            if data.target().name() != "text/uri-list" {
                return;
            }
            let uris = data.uris();
            let paths: Vec<PathBuf> = uris
                .iter()
                .filter_map(|uri| glib::filename_from_uri(uri).ok())
                .map(|(path, _)| path)
                .collect();
            noted_by.state::<Drops>().note(&noted_for, paths);
        });
        view.connect_drag_leave(move |_, _, _| {
            let (app, label) = (app.clone(), label.clone());
            let drag = app.state::<Drops>().drag(&label);
            glib::timeout_add_local_once(ASKED_WITHIN, move || {
                app.state::<Drops>().forget(&label, drag);
            });
        });
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_learns_of_what_was_dropped_on_it_once_and_of_the_places_of_models_alone() {
        let drops = Drops::default();
        let paths = ["/m/kelp.gguf", "/m/dulse.GGUF", "/m/picture.png"];
        drops.note("main", paths.map(PathBuf::from).to_vec());
        assert!(drops.take("other").is_empty(), "it is another window's");
        let taken = drops.take("main");
        let told: Vec<_> = taken.iter().map(described).collect();
        let models: Vec<_> = told.iter().map(|file| file.model.as_deref()).collect();
        assert_eq!(models, [Some("/m/kelp.gguf"), Some("/m/dulse.GGUF"), None]);
        assert_eq!(told[2].name, "picture.png");
        assert!(drops.take("main").is_empty());
        let place = |number| drops.place("main", number);
        assert_eq!(place(told[2].number), Some("/m/picture.png".into()));
        assert_eq!(place(0), None);
        assert_eq!(drops.place("other", told[2].number), None);
        drops.note("main", vec!["/m/other.png".into()]);
        assert_eq!(place(told[2].number + 1), None, "it only hangs over it");
        for _ in 0..DROPPED_MAX {
            drops.note("main", vec!["/m/other.png".into()]);
            drops.take("main");
        }
        assert_eq!(place(told[2].number), None, "long ago");
    }

    #[test]
    fn what_only_passed_over_a_window_is_forgotten() {
        let drops = Drops::default();
        let other = || vec![PathBuf::from("/m/other.png")];
        drops.note("main", other());
        let passed = drops.drag("main");
        drops.forget("main", passed);
        assert!(drops.take("main").is_empty());
        drops.note("main", other());
        drops.forget("main", passed);
        assert_eq!(drops.take("main").len(), 1, "another drag came meanwhile");
        drops.note("main", other());
        drops.note("main", Vec::new());
        assert!(drops.take("main").is_empty(), "and that one had no files");
    }
}
