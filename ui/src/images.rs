//! Images of this page: those that stand in the composers, and the bytes of those that are shown.
//!
//! Invariant: what stands in a composer is with the engine already, or is shown as being read; a refusal is said in
//! words and takes nothing else along. Bytes are asked for by whoever draws them, once for all who draw the same, and
//! are given back to the browser when nobody does any more. They never pass through this module's memory.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use leptos::prelude::*;
use protocol::{IMAGE_FILE_BYTES_MAX, IMAGES_MAX, Image, ImageArgs, ImageId};

use crate::{
    components::settings::{refusal_of_file, refusal_words},
    drafts::{Drafts, Whose},
    ipc::{self, ImageFile, ImageUrl},
};

/// A photo from a slow disk, scaled down on a busy computer.
const TAKE_LIMIT_MS: u64 = 120_000;
const READ_LIMIT_MS: u64 = 30_000;

/// An image in a composer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Enclosed {
    /// Tells it from others; the same picture may be there twice.
    pub(crate) key: u64,
    pub(crate) name: String,
    /// Absent while it is being read.
    pub(crate) taken: Option<Image>,
}

/// The images of all composers of this page.
#[derive(Clone, Copy)]
pub(crate) struct Images {
    enclosed: RwSignal<HashMap<Whose, Vec<Enclosed>>>,
    /// Why some were not taken.
    words: RwSignal<HashMap<Whose, Vec<String>>>,
    next_key: StoredValue<u64>,
    drafts: Drafts,
    urls: StoredValue<HashMap<ImageId, Weak<ImageUrl>>>,
}

impl Images {
    pub(crate) fn new(drafts: Drafts) -> Self {
        Self {
            enclosed: RwSignal::new(HashMap::new()),
            words: RwSignal::new(HashMap::new()),
            next_key: StoredValue::new(1),
            drafts,
            urls: StoredValue::new(HashMap::new()),
        }
    }

    /// Those in a composer, in their order.
    pub(crate) fn of(self, whose: Whose) -> Vec<Enclosed> {
        self.enclosed
            .with(|all| all.get(&whose).cloned().unwrap_or_default())
    }

    /// Why some were not taken.
    pub(crate) fn words(self, whose: Whose) -> Vec<String> {
        self.words
            .with(|all| all.get(&whose).cloned().unwrap_or_default())
    }

    /// Nobody needs to read that any more.
    pub(crate) fn hush(self, whose: Whose) {
        if self.words.with_untracked(|all| all.contains_key(&whose)) {
            self.words.update(|all| {
                all.remove(&whose);
            });
        }
    }

    /// Whether one is being read.
    pub(crate) fn is_reading(self, whose: Whose) -> bool {
        self.of(whose).iter().any(|image| image.taken.is_none())
    }

    /// Those that can be sent.
    pub(crate) fn taken(self, whose: Whose) -> Vec<Image> {
        let of = untrack(|| self.of(whose));
        of.into_iter().filter_map(|image| image.taken).collect()
    }

    /// Puts those of a draft into its composer.
    pub(crate) fn show(self, whose: Whose, images: Vec<Image>) {
        for image in images {
            let key = self.key();
            self.change(whose, |enclosed| {
                enclosed.push(Enclosed {
                    key,
                    name: image.name.clone(),
                    taken: Some(image),
                });
            });
        }
    }

    /// Takes one out.
    pub(crate) fn remove(self, whose: Whose, key: u64) {
        self.change(whose, |enclosed| enclosed.retain(|image| image.key != key));
        self.keep(whose);
    }

    /// Takes those out that were sent.
    pub(crate) fn sent(self, whose: Whose, images: &[Image]) {
        let mut left = images.to_vec();
        self.change(whose, |enclosed| {
            enclosed.retain(|image| {
                let at = left
                    .iter()
                    .position(|sent| Some(sent) == image.taken.as_ref());
                at.map(|at| left.remove(at)).is_none()
            });
        });
        self.hush(whose);
        self.keep(whose);
    }

    /// Has the engine take these files, one after the other, and shows that meanwhile.
    pub(crate) fn add(self, whose: Whose, files: Vec<ImageFile>) {
        self.hush(whose);
        let mut reading = Vec::new();
        for file in files {
            let name = file.name();
            if let Some(words) = self.plain_refusal(whose, &file) {
                self.say(whose, words);
                continue;
            }
            let key = self.key();
            let shown = name.clone();
            self.change(whose, |enclosed| {
                enclosed.push(Enclosed {
                    key,
                    name: shown,
                    taken: None,
                });
            });
            reading.push((key, name, file));
        }
        ipc::spawn(async move {
            for (key, name, file) in reading {
                let wanted = self.enclosed.try_with_untracked(|all| {
                    all.get(&whose)
                        .is_some_and(|all| all.iter().any(|image| image.key == key))
                });
                if wanted != Some(true) {
                    continue;
                }
                match ipc::within(TAKE_LIMIT_MS, ipc::take_image(&file)).await {
                    Ok(image) => self.change(whose, |enclosed| {
                        for other in enclosed.iter_mut().filter(|other| other.key == key) {
                            other.taken = Some(image.clone());
                        }
                    }),
                    Err(error) => {
                        self.change(whose, |enclosed| enclosed.retain(|other| other.key != key));
                        self.say(whose, refusal_of_file(&name, "attached", &error));
                    }
                }
                self.keep(whose);
            }
        });
    }

    /// What is refused without reading it.
    fn plain_refusal(self, whose: Whose, file: &ImageFile) -> Option<String> {
        let name = file.name();
        let kind = file.kind();
        if untrack(|| self.of(whose)).len() >= IMAGES_MAX {
            return Some(format!(
                "{name} was not attached: a message shows {IMAGES_MAX} images at most."
            ));
        }
        // Where the system does not know what it is, the engine looks.
        if !kind.is_empty() && !kind.starts_with("image/") {
            return Some(format!(
                "{name} is no image, and was not attached; PNG, JPEG, GIF and WebP can be."
            ));
        }
        if file.bytes() > IMAGE_FILE_BYTES_MAX {
            let megabytes = IMAGE_FILE_BYTES_MAX / (1024 * 1024);
            return Some(format!(
                "{name} is larger than {megabytes} MB, and was not attached; make it smaller first."
            ));
        }
        None
    }

    fn key(self) -> u64 {
        let key = self.next_key.try_update_value(|next| {
            *next += 1;
            *next
        });
        key.unwrap_or_default()
    }

    fn say(self, whose: Whose, words: String) {
        self.words
            .try_update(|all| all.entry(whose).or_default().push(words));
    }

    fn change(self, whose: Whose, change: impl FnOnce(&mut Vec<Enclosed>)) {
        self.enclosed
            .try_update(|all| change(all.entry(whose).or_default()));
    }

    fn keep(self, whose: Whose) {
        self.drafts.put_images(whose, self.taken(whose));
    }

    /// Where the browser finds the bytes of an image; in words, if they cannot be had.
    pub(crate) async fn url(self, image: ImageId) -> Result<Arc<ImageUrl>, String> {
        let known = || {
            let url = self.urls.try_with_value(|urls| urls.get(&image)?.upgrade());
            url.flatten()
        };
        if let Some(url) = known() {
            return Ok(url);
        }
        let args = ImageArgs { image };
        let read = ipc::within(READ_LIMIT_MS, ipc::image(&args)).await;
        // Another may have asked meanwhile.
        if let Some(url) = known() {
            return Ok(url);
        }
        match read {
            Ok(url) => {
                let url = Arc::new(url);
                self.urls.try_update_value(|urls| {
                    urls.retain(|_, url| url.strong_count() > 0);
                    urls.insert(image, Arc::downgrade(&url));
                });
                Ok(url)
            }
            Err(error) => Err(refusal_words(&error)),
        }
    }
}
