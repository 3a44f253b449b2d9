//! What the shell wishes this window to show, and what the page tells it that it shows.
//!
//! Invariant: a hidden page asks nothing. A wish is asked for again and again, one question at a time; what is shown is
//! told one telling at a time, the newest last, so that nobody is notified of what is being read.
//! Not here: what opening something means (`desk`).

use leptos::prelude::*;
use protocol::{Show, ShowingArgs, WishArgs};

use crate::{
    desk::{Desk, Screen},
    ipc,
};

/// The shell answers a parked question after eight seconds at the latest.
const WISH_LIMIT_MS: u64 = 20_000;
/// After a question without an answer.
const WISH_PAUSE_MS: u64 = 2_000;
const TELL_LIMIT_MS: u64 = 10_000;

/// What this page knows of its window's wishes.
#[derive(Clone, Copy)]
pub(crate) struct Wishes {
    /// What the page is to begin with; absent until the shell has answered, or failed to.
    first: RwSignal<Option<Option<Show>>>,
    /// The revision of the newest wish that was granted.
    seen: StoredValue<u64>,
    telling: StoredValue<Telling>,
}

#[derive(Clone, Copy, Default)]
struct Telling {
    busy: bool,
    next: Option<(Show, bool)>,
}

impl Wishes {
    pub(crate) fn new() -> Self {
        Self {
            first: RwSignal::new(None),
            seen: StoredValue::new(0),
            telling: StoredValue::new(Telling::default()),
        }
    }

    /// What the page is to begin with, as soon as that is known; tracked.
    pub(crate) fn first(self) -> Option<Option<Show>> {
        self.first.get()
    }

    /// Asks for wishes for as long as the page lives.
    pub(crate) fn follow(self, desk: Desk) {
        ipc::spawn(async move {
            loop {
                let seen = self.seen.get_value();
                let answer = ipc::within(WISH_LIMIT_MS, ipc::wish(&WishArgs { seen })).await;
                let is_first = self.first.with_untracked(Option::is_none);
                match answer {
                    Ok(wish) if wish.revision > seen => {
                        self.seen.set_value(wish.revision);
                        match wish.show {
                            _ if is_first => self.first.set(Some(wish.show)),
                            Some(show) => desk.show(show),
                            None => {}
                        }
                    }
                    Ok(_) => {}
                    Err(_) => {
                        if is_first {
                            self.first.set(Some(None));
                        }
                        ipc::sleep(WISH_PAUSE_MS).await;
                    }
                }
                while ipc::is_hidden() {
                    ipc::visibility_change().await;
                }
            }
        });
        Effect::new(move |_| {
            let open = match desk.session.get() {
                Some(session) => Show::Session { session },
                None => Show::NewChat,
            };
            self.tell(open, desk.screen.get() == Screen::Chat);
        });
    }

    fn tell(self, open: Show, in_sight: bool) {
        let begins = self.telling.try_update_value(|telling| {
            telling.next = Some((open, in_sight));
            !std::mem::replace(&mut telling.busy, true)
        });
        if begins != Some(true) {
            return;
        }
        ipc::spawn(async move {
            let next = move || {
                self.telling.try_update_value(|telling| {
                    let next = telling.next.take();
                    telling.busy = next.is_some();
                    next
                })
            };
            while let Some(Some((open, in_sight))) = next() {
                let args = ShowingArgs {
                    seen: self.seen.get_value(),
                    open,
                    in_sight,
                };
                // Untold, it costs a notification too many.
                let _ = ipc::within(TELL_LIMIT_MS, ipc::showing(&args)).await;
            }
        });
    }
}
