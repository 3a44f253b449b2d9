//! Toasts: short sentences that something was done or could not be, with a way back where there is one.
//!
//! A toast with an undo stays until it is used, dismissed, or its time is over; time stands still while the pointer or
//! the focus is on it. Not here: what undoing means.

use leptos::prelude::*;

use crate::ipc;

/// Long enough to read a sentence and reach for the mouse.
const TOAST_MS: u64 = 8_000;
/// How often a toast looks whether its time is over.
const TICK_MS: u64 = 250;

/// How a toast is spoken and coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Something was done.
    Calm,
    /// Something needs the reader.
    Alert,
}

/// One toast.
#[derive(Clone)]
pub(crate) struct Toast {
    pub(crate) id: u64,
    pub(crate) tone: Tone,
    pub(crate) words: String,
    pub(crate) undo: Option<Callback<()>>,
}

/// The toasts that are shown, oldest first.
#[derive(Clone, Copy)]
pub(crate) struct Toasts {
    pub(crate) shown: RwSignal<Vec<Toast>>,
    /// The toast under the pointer or the focus.
    pub(crate) held: RwSignal<Option<u64>>,
    next: StoredValue<u64>,
}

impl Toasts {
    pub(crate) fn new() -> Self {
        Self {
            shown: RwSignal::new(Vec::new()),
            held: RwSignal::new(None),
            next: StoredValue::new(1),
        }
    }

    /// Says that something was done.
    pub(crate) fn say(self, words: impl Into<String>) {
        self.show(Tone::Calm, words.into(), None);
    }

    /// Says that something was done, and how to take it back.
    pub(crate) fn say_with_undo(
        self,
        words: impl Into<String>,
        undo: impl Fn() + Send + Sync + 'static,
    ) {
        self.show(
            Tone::Calm,
            words.into(),
            Some(Callback::new(move |()| undo())),
        );
    }

    /// Says that something could not be done.
    pub(crate) fn alert(self, words: impl Into<String>) {
        self.show(Tone::Alert, words.into(), None);
    }

    /// Takes a toast away.
    pub(crate) fn dismiss(self, id: u64) {
        self.shown
            .update(|shown| shown.retain(|toast| toast.id != id));
        self.held.update(|held| {
            if *held == Some(id) {
                *held = None;
            }
        });
    }

    fn show(self, tone: Tone, words: String, undo: Option<Callback<()>>) {
        let id = self.next.get_value();
        self.next.set_value(id + 1);
        self.shown.update(|shown| {
            // The same sentence twice is the same sentence.
            shown.retain(|toast| toast.words != words || toast.undo.is_some());
            shown.push(Toast {
                id,
                tone,
                words,
                undo,
            });
        });
        ipc::spawn(async move {
            let mut left_ms = TOAST_MS;
            while left_ms > 0 {
                ipc::sleep(TICK_MS).await;
                if self.held.get_untracked() != Some(id) {
                    left_ms = left_ms.saturating_sub(TICK_MS);
                }
            }
            self.dismiss(id);
        });
    }
}
