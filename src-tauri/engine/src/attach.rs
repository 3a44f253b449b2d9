//! Attachments: which page follows which stream, and the polls that are parked.
//!
//! Invariant: an answer holds only what log, cursor and turn state can give again (L10), so nothing here is a queue and
//! an attachment costs a few fixed bytes. Kept by: `poll` becomes a waiter first and looks second.
//! Not here: whether an answer is stale. The client's `transcript::Link` decides that.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use protocol::{Epoch, ErrorCode, ErrorReport, PageId, StreamId};
use tokio::sync::watch;

use crate::{Harness, mutant::mutated};

/// Longest time a poll stays parked. Well below the client's patience, so that silence means trouble.
pub(crate) const POLL_WAIT_MS_MAX: u32 = 8_000;

/// Events of one answer: what a window applies within a frame or two.
pub(crate) const BATCH_BYTES_MAX: u32 = 512 * 1024;

/// An attachment that nobody polled for this long belongs to a page that is gone.
const REAP_AFTER: Duration = Duration::from_secs(60);

/// Pages of one window that are remembered as superseded.
const OLD_PAGES_MAX: usize = 64;

/// Which page is a window's newest, and what each follows.
pub(crate) struct Attachments {
    desk: Mutex<Desk>,
    harness: Harness,
}

struct Desk {
    windows: HashMap<String, Window>,
    attached: HashMap<Epoch, Attachment>,
    next_epoch: u64,
}

struct Window {
    page: PageId,
    old: Vec<PageId>,
}

struct Attachment {
    page: PageId,
    stream: StreamId,
    polled_at: Duration,
    /// Dropped with the attachment: parked polls notice.
    _ended: watch::Sender<()>,
    ended: watch::Receiver<()>,
}

/// What a poll needs of its attachment.
pub(crate) struct Followed {
    pub(crate) stream: StreamId,
    /// Closed when the attachment ends.
    pub(crate) ended: watch::Receiver<()>,
}

impl Attachments {
    /// `base` is random: no epoch of another boot is valid in this one.
    pub(crate) fn new(base: u64, harness: Harness) -> Self {
        Self {
            desk: Mutex::new(Desk {
                windows: HashMap::new(),
                attached: HashMap::new(),
                next_epoch: base,
            }),
            harness,
        }
    }

    fn desk(&self) -> std::sync::MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes `page` the newest of its window, unless it was overtaken before.
    ///
    /// # Errors
    /// `Superseded` for a page that a newer one has replaced: a re-posted hello does not bring it back.
    pub(crate) fn hello(&self, window: &str, page: PageId) -> Result<(), ErrorReport> {
        let mut desk = self.desk();
        match desk.windows.get_mut(window) {
            Some(known) if known.page == page => return Ok(()),
            Some(known) if known.old.contains(&page) && !mutated!(self.harness, LastHelloWins) => {
                return Err(superseded());
            }
            Some(known) => {
                let old = std::mem::replace(&mut known.page, page);
                known.old.push(old);
                if known.old.len() > OLD_PAGES_MAX {
                    known.old.remove(0);
                }
                if !mutated!(self.harness, NoReap) {
                    desk.attached.retain(|_, attachment| attachment.page != old);
                }
            }
            None => {
                desk.windows.insert(
                    window.to_owned(),
                    Window {
                        page,
                        old: Vec::new(),
                    },
                );
            }
        }
        Ok(())
    }

    /// Whether the page may attach.
    pub(crate) fn admits(&self, page: PageId) -> Result<(), ErrorReport> {
        if self
            .desk()
            .windows
            .values()
            .any(|window| window.page == page)
        {
            Ok(())
        } else {
            Err(superseded())
        }
    }

    /// Records an attachment that has succeeded; ends an older one of the same page and stream.
    pub(crate) fn attach(
        &self,
        page: PageId,
        stream: StreamId,
        now: Duration,
    ) -> Result<Epoch, ErrorReport> {
        self.admits(page)?;
        let mut desk = self.desk();
        desk.attached.retain(|_, a| {
            let replaced = a.page == page && a.stream == stream;
            !replaced && now.saturating_sub(a.polled_at) < REAP_AFTER
        });
        let epoch = Epoch::new(desk.next_epoch);
        desk.next_epoch = desk.next_epoch.wrapping_add(1);
        let (sender, ended) = watch::channel(());
        let attachment = Attachment {
            page,
            stream,
            polled_at: now,
            _ended: sender,
            ended,
        };
        desk.attached.insert(epoch, attachment);
        Ok(epoch)
    }

    /// The stream of an attachment.
    pub(crate) fn followed(&self, epoch: Epoch, now: Duration) -> Result<Followed, ErrorReport> {
        let mut desk = self.desk();
        match desk.attached.get_mut(&epoch) {
            Some(attachment) => {
                attachment.polled_at = now;
                Ok(Followed {
                    stream: attachment.stream,
                    ended: attachment.ended.clone(),
                })
            }
            None => Err(unknown_epoch()),
        }
    }

    pub(crate) fn detach(&self, epoch: Epoch) {
        self.desk().attached.remove(&epoch);
    }

    /// Ends everything of a window that was closed.
    pub(crate) fn window_gone(&self, window: &str) {
        let mut desk = self.desk();
        if let Some(gone) = desk.windows.remove(window) {
            desk.attached
                .retain(|_, attachment| attachment.page != gone.page);
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.desk().attached.len()
    }
}

fn superseded() -> ErrorReport {
    ErrorReport::new(
        ErrorCode::Superseded,
        "A newer page of this window is open.",
    )
}

pub(crate) fn unknown_epoch() -> ErrorReport {
    ErrorReport::new(
        ErrorCode::UnknownEpoch,
        "This attachment has ended; attach again.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1);

    fn page(n: u128) -> PageId {
        PageId::from_bits(n)
    }

    #[test]
    fn the_newest_page_of_a_window_ends_the_attachments_of_the_older() {
        let attachments = Attachments::new(7, Harness::default());
        attachments.hello("main", page(1)).unwrap();
        let old = attachments.attach(page(1), StreamId::Library, NOW).unwrap();
        attachments.hello("main", page(2)).unwrap();
        assert_eq!(
            attachments.followed(old, NOW).err().unwrap().code,
            ErrorCode::UnknownEpoch
        );
        assert_eq!(
            attachments
                .attach(page(1), StreamId::Library, NOW)
                .unwrap_err()
                .code,
            ErrorCode::Superseded
        );
        attachments.attach(page(2), StreamId::Library, NOW).unwrap();
    }

    #[test]
    fn a_page_seen_before_never_becomes_the_newest_again() {
        let attachments = Attachments::new(7, Harness::default());
        attachments.hello("main", page(1)).unwrap();
        attachments.hello("main", page(2)).unwrap();
        assert_eq!(
            attachments.hello("main", page(1)).unwrap_err().code,
            ErrorCode::Superseded
        );
        attachments.hello("main", page(2)).unwrap();
    }

    #[test]
    fn an_attachment_that_nobody_polls_is_reaped_and_one_that_is_polled_is_not() {
        let attachments = Attachments::new(u64::MAX, Harness::default());
        attachments.hello("a", page(1)).unwrap();
        attachments.hello("b", page(2)).unwrap();
        let idle = attachments.attach(page(1), StreamId::Library, NOW).unwrap();
        let busy = attachments.attach(page(2), StreamId::Library, NOW).unwrap();
        let later = NOW + REAP_AFTER;
        attachments.followed(busy, later).unwrap();
        attachments
            .attach(
                page(2),
                StreamId::Session(protocol::SessionId::from_bits(1)),
                later,
            )
            .unwrap();
        assert!(attachments.followed(idle, later).is_err());
        assert!(attachments.followed(busy, later).is_ok());
    }
}
