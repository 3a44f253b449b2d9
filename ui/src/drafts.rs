//! Drafts: what stands in the composers, text and images, one per session and one for the session not begun yet.
//!
//! Invariant: a typed text is with the engine at most [`SAVE_AFTER_MS`] after a key, and at once when its composer
//! goes away. Nothing of it is kept in web storage. Kept by: one save in flight per composer, the newest text last.

use std::collections::HashMap;

use leptos::prelude::*;
use protocol::{Draft as Kept, DraftArgs, Image, SaveDraftArgs, SessionId};

use crate::ipc;

/// Half the second that a crash may cost.
const SAVE_AFTER_MS: u64 = 400;
/// Long enough for a slow disk; a lost save is made up for by the next one.
const SAVE_LIMIT_MS: u64 = 15_000;

/// Whose draft: a session's, or the one not begun yet.
pub(crate) type Whose = Option<SessionId>;

#[derive(Clone, Default)]
struct Draft {
    text: String,
    images: Vec<Image>,
    /// Grows with every change; what was saved is named by it.
    revision: u64,
    saved: u64,
    saving: bool,
    loaded: bool,
    waiting: bool,
}

/// All drafts of this page.
#[derive(Clone, Copy)]
pub(crate) struct Drafts {
    kept: StoredValue<HashMap<Whose, Draft>>,
}

impl Drafts {
    pub(crate) fn new() -> Self {
        Self {
            kept: StoredValue::new(HashMap::new()),
        }
    }

    /// The draft, if this page has seen it already.
    pub(crate) fn known(self, whose: Whose) -> Option<String> {
        self.kept
            .with_value(|kept| kept.get(&whose).map(|draft| draft.text.clone()))
    }

    /// The draft as the engine keeps it; what came meanwhile wins. Its images are given once.
    pub(crate) async fn load(self, whose: Whose) -> Kept {
        let args = DraftArgs { session: whose };
        // A draft that cannot be read is an empty composer; the engine says so itself where it matters.
        let stored = ipc::within(SAVE_LIMIT_MS, ipc::draft(&args))
            .await
            .unwrap_or_default();
        self.kept
            .try_update_value(|kept| {
                let draft = kept.entry(whose).or_default();
                let mut images = Vec::new();
                if draft.revision == 0 && !std::mem::replace(&mut draft.loaded, true) {
                    draft.text = stored.text;
                    draft.images.clone_from(&stored.images);
                    images = stored.images;
                }
                Kept {
                    text: draft.text.clone(),
                    images,
                }
            })
            .unwrap_or_default()
    }

    /// Notes that a key was pressed: `text` gives the text when it is time to save it. Called for every key, so it
    /// must not look at the text, which may be long.
    pub(crate) fn touch(self, whose: Whose, text: impl Fn() -> Option<String> + 'static) {
        let armed = self.kept.try_update_value(|kept| {
            let draft = kept.entry(whose).or_default();
            draft.revision += 1;
            !std::mem::replace(&mut draft.waiting, true)
        });
        if armed == Some(true) {
            ipc::spawn(async move {
                ipc::sleep(SAVE_AFTER_MS).await;
                self.kept.try_update_value(|kept| {
                    if let Some(draft) = kept.get_mut(&whose) {
                        draft.waiting = false;
                    }
                });
                // The composer is gone when it has no text to give; it saved on its way out.
                if let Some(text) = text() {
                    self.put(whose, text);
                }
            });
        }
    }

    /// Keeps a text and saves it now.
    pub(crate) fn put(self, whose: Whose, text: String) {
        let changed = self.kept.try_update_value(|kept| {
            let draft = kept.entry(whose).or_default();
            let changed = draft.text != text;
            if changed {
                draft.text = text;
                draft.revision += 1;
            }
            changed
        });
        if changed == Some(true) {
            self.save(whose);
        }
    }

    /// Keeps images and saves them now.
    pub(crate) fn put_images(self, whose: Whose, images: Vec<Image>) {
        let changed = self.kept.try_update_value(|kept| {
            let draft = kept.entry(whose).or_default();
            let changed = draft.images != images;
            if changed {
                draft.images = images;
                draft.revision += 1;
            }
            changed
        });
        if changed == Some(true) {
            self.save(whose);
        }
    }

    fn save(self, whose: Whose) {
        let next = move || {
            self.kept.try_update_value(|kept| {
                let draft = kept.entry(whose).or_default();
                if draft.saving || draft.saved == draft.revision {
                    return None;
                }
                draft.saving = true;
                let kept = Kept {
                    text: draft.text.clone(),
                    images: draft.images.clone(),
                };
                Some((draft.revision, kept))
            })
        };
        let Some(Some(first)) = next() else { return };
        ipc::spawn(async move {
            let mut now = Some(first);
            while let Some((revision, draft)) = now {
                let args = SaveDraftArgs {
                    session: whose,
                    draft,
                };
                let answer = ipc::within(SAVE_LIMIT_MS, ipc::save_draft(&args)).await;
                self.kept.try_update_value(|kept| {
                    let draft = kept.entry(whose).or_default();
                    draft.saving = false;
                    if answer.is_ok() {
                        draft.saved = revision;
                    }
                });
                // A failed save is made again with the next key, not in a loop.
                now = if answer.is_ok() {
                    next().flatten()
                } else {
                    None
                };
            }
        });
    }
}
