//! What every window shows, whether somebody looks at it, and what it is wished to show next.
//!
//! Invariant: a wish is a state with a revision and not a message, so a page that is hidden, reloading or not born yet
//! finds it as soon as it asks; nothing is pushed. A window counts as looked at only while it has the focus.
//! Not here: opening windows, and raising them (`windows`).

use std::{collections::BTreeMap, time::Duration};

use protocol::{SessionId, Show, ShowingArgs, WindowWish};
use tokio::sync::watch;

/// How long a page's question stays parked. Well below its patience.
const WISH_WAIT: Duration = Duration::from_secs(8);

/// See the module.
pub(crate) struct Lookout {
    seen: watch::Sender<Seen>,
}

#[derive(Default)]
struct Seen {
    windows: BTreeMap<String, View>,
    /// Grows whenever a window gets the focus, so that the last one is known.
    focused: u64,
}

/// One window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct View {
    wish: WindowWish,
    /// What it shows and can be read in it; absent while that is not known.
    in_sight: Option<Show>,
    has_focus: bool,
    /// When it last had the focus, in the order of that.
    focused_at: u64,
}

impl Lookout {
    pub(super) fn new() -> Self {
        Self {
            seen: watch::Sender::new(Seen::default()),
        }
    }

    /// A window is being opened.
    pub(super) fn opened(&self, label: &str, show: Option<Show>) {
        self.seen.send_modify(|seen| {
            let view = View {
                wish: WindowWish { revision: 1, show },
                in_sight: None,
                has_focus: false,
                focused_at: 0,
            };
            seen.windows.insert(label.to_owned(), view);
        });
    }

    /// A window is gone.
    pub(super) fn gone(&self, label: &str) {
        self.seen.send_modify(|seen| {
            seen.windows.remove(label);
        });
    }

    /// A window got the focus or lost it.
    pub(super) fn focused(&self, label: &str, has_focus: bool) {
        self.seen.send_modify(|seen| {
            seen.focused += u64::from(has_focus);
            let now = seen.focused;
            if let Some(view) = seen.windows.get_mut(label) {
                view.has_focus = has_focus;
                if has_focus {
                    view.focused_at = now;
                }
            }
        });
    }

    /// Wishes a window to show something.
    pub(super) fn wish(&self, label: &str, show: Show) {
        self.change(label, |view| {
            view.wish = WindowWish {
                revision: view.wish.revision + 1,
                show: Some(show),
            };
        });
    }

    /// A page says what it shows. What it shows is what it comes back to after a reload, unless something else was
    /// wished meanwhile.
    pub(crate) fn showing(&self, label: &str, args: &ShowingArgs) {
        self.change(label, |view| {
            view.in_sight = args.in_sight.then_some(args.open);
            if args.seen >= view.wish.revision {
                view.wish.show = Some(args.open);
            }
        });
    }

    /// What the window of a page is to show, as soon as that is news to the page; or the same after a while.
    ///
    /// Cancel safe: it only looks.
    pub(crate) async fn wished(&self, label: &str, known: u64) -> Option<WindowWish> {
        let mut seen = self.seen.subscribe();
        let news = seen.wait_for(|seen| {
            let wish = seen.windows.get(label).map(|view| view.wish);
            wish.is_none_or(|wish| wish.revision > known)
        });
        // No news is no error; whichever way the wait ended, the state is looked at now.
        let _ = tokio::time::timeout(WISH_WAIT, news).await;
        let seen = self.seen.borrow();
        seen.windows.get(label).map(|view| view.wish)
    }

    /// Whether somebody looks at a session.
    pub(super) fn is_looked_at(&self, session: SessionId) -> bool {
        let shown = Some(Show::Session { session });
        let seen = self.seen.borrow();
        let mut views = seen.windows.values();
        views.any(|view| view.has_focus && view.in_sight == shown)
    }

    /// The window that has a session open, if there is one.
    pub(super) fn window_of(&self, session: SessionId) -> Option<String> {
        let shown = Some(Show::Session { session });
        let seen = self.seen.borrow();
        let mut windows = seen.windows.iter();
        let (label, _) = windows.find(|(_, view)| view.wish.show == shown)?;
        Some(label.clone())
    }

    /// The window that has the focus, or had it last.
    pub(super) fn last_focused(&self) -> Option<String> {
        let seen = self.seen.borrow();
        let last = seen.windows.iter().max_by_key(|(label, view)| {
            // Among windows that never had it, the first one.
            (view.focused_at, std::cmp::Reverse(label.as_str()))
        });
        last.map(|(label, _)| label.clone())
    }

    fn change(&self, label: &str, change: impl FnOnce(&mut View)) {
        self.seen.send_modify(|seen| {
            // A window that is gone wishes and shows nothing.
            if let Some(view) = seen.windows.get_mut(label) {
                change(view);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SessionId = SessionId::from_bits(1);
    const B: SessionId = SessionId::from_bits(2);

    fn shows(session: SessionId) -> Show {
        Show::Session { session }
    }

    fn showing(seen: u64, session: SessionId, in_sight: bool) -> ShowingArgs {
        ShowingArgs {
            seen,
            open: shows(session),
            in_sight,
        }
    }

    #[test]
    fn only_a_focused_window_that_shows_the_session_looks_at_it() {
        let lookout = Lookout::new();
        lookout.opened("main", None);
        lookout.opened("w2", Some(shows(B)));
        assert!(!lookout.is_looked_at(A), "nothing is known yet");
        lookout.showing("main", &showing(1, A, true));
        assert!(!lookout.is_looked_at(A), "it has no focus");
        lookout.focused("main", true);
        assert!(lookout.is_looked_at(A));
        assert!(!lookout.is_looked_at(B), "another one");
        lookout.showing("main", &showing(1, A, false));
        assert!(!lookout.is_looked_at(A), "the settings lie over it");
        lookout.showing("main", &showing(1, A, true));
        lookout.focused("main", false);
        assert!(!lookout.is_looked_at(A), "somebody went elsewhere");
        lookout.focused("main", true);
        lookout.gone("main");
        assert!(!lookout.is_looked_at(A), "the window is gone");
    }

    #[tokio::test]
    async fn a_page_finds_the_newest_wish_and_after_a_reload_what_it_showed() {
        let lookout = Lookout::new();
        lookout.opened("w2", Some(shows(A)));
        let first = lookout.wished("w2", 0).await.expect("a window");
        assert_eq!(first.show, Some(shows(A)));
        lookout.showing("w2", &showing(first.revision, B, true));
        let reloaded = lookout.wished("w2", 0).await.expect("a window");
        assert_eq!(
            (reloaded.revision, reloaded.show),
            (first.revision, Some(shows(B))),
            "what it showed is no news, and what a new page begins with"
        );
        lookout.wish("w2", shows(A));
        // The page had not heard of the wish when it said this.
        lookout.showing("w2", &showing(first.revision, B, true));
        let wished = lookout.wished("w2", first.revision).await.expect("news");
        assert_eq!(wished.show, Some(shows(A)));
        assert!(wished.revision > first.revision);
        assert_eq!(lookout.wished("absent", 0).await, None);
    }

    #[test]
    fn the_menu_acts_on_the_window_that_had_the_focus_last() {
        let lookout = Lookout::new();
        assert_eq!(lookout.last_focused(), None);
        lookout.opened("main", None);
        lookout.opened("w2", None);
        assert_eq!(lookout.last_focused().as_deref(), Some("main"));
        lookout.focused("w2", true);
        lookout.focused("w2", false);
        assert_eq!(lookout.last_focused().as_deref(), Some("w2"));
        lookout.gone("w2");
        assert_eq!(lookout.last_focused().as_deref(), Some("main"));
    }
}
