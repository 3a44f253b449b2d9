//! Attachments: which page follows which stream, and the polls that are parked.
//!
//! Invariant: an answer holds only what log, cursor and turn state can give again (L10), so nothing here is a queue and
//! an attachment costs a few fixed bytes. Kept by: `poll` becomes a waiter first and looks second.
//! Not here: whether an answer is stale. The client's `transcript::Link` decides that.

use std::{
    collections::{HashMap, VecDeque},
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

/// Pages that are remembered as gone: far more than can still have a hello under way.
const OLD_PAGES_MAX: usize = 256;

/// Attachments that are remembered as superseded; an older one is merely unknown, and its page learns the rest when it
/// attaches.
const OLD_EPOCHS_MAX: usize = 256;

/// Which page is a window's newest, and what each follows.
pub(crate) struct Attachments {
    desk: Mutex<Desk>,
    harness: Harness,
}

struct Desk {
    /// The newest page of each window.
    windows: HashMap<String, PageId>,
    /// Pages that will never be the newest again, oldest first.
    old: VecDeque<PageId>,
    attached: HashMap<Epoch, Attachment>,
    /// Attachments whose page was superseded, oldest first.
    superseded: VecDeque<Epoch>,
    next_epoch: u64,
}

struct Attachment {
    page: PageId,
    stream: StreamId,
    /// The number of the call that made it.
    call: u64,
    polled_at: Duration,
    /// Dropped with the attachment: polls that are under way notice.
    polls: watch::Sender<()>,
}

impl Attachment {
    /// Whether its page must be gone: no poll is under way, and none was for a while.
    fn is_left(&self, now: Duration) -> bool {
        self.polls.is_closed() && now.saturating_sub(self.polled_at) >= REAP_AFTER
    }
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
                old: VecDeque::new(),
                attached: HashMap::new(),
                superseded: VecDeque::new(),
                next_epoch: base,
            }),
            harness,
        }
    }

    /// The desk, cleared of what nobody polls any more.
    fn desk(&self, now: Duration) -> std::sync::MutexGuard<'_, Desk> {
        let mut desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
        if !mutated!(self.harness, NoIdleReap) {
            desk.attached
                .retain(|_, attachment| !attachment.is_left(now));
        }
        desk
    }

    /// Makes `page` the newest of its window, unless it was overtaken before.
    ///
    /// # Errors
    /// `Superseded` for a page that a newer one has replaced: a re-posted hello does not bring it back.
    pub(crate) fn hello(
        &self,
        window: &str,
        page: PageId,
        now: Duration,
    ) -> Result<(), ErrorReport> {
        let mut desk = self.desk(now);
        if desk.windows.get(window) == Some(&page) {
            return Ok(());
        }
        if desk.old.contains(&page) && !mutated!(self.harness, LastHelloWins) {
            return Err(superseded());
        }
        if let Some(old) = desk.windows.insert(window.to_owned(), page) {
            desk.outlive(old);
            if !mutated!(self.harness, NoReap) {
                desk.supersede(old);
            }
        }
        Ok(())
    }

    /// Whether the page may attach.
    pub(crate) fn admits(&self, page: PageId, now: Duration) -> Result<(), ErrorReport> {
        self.desk(now).admits(page)
    }

    /// Records an attachment that has succeeded; ends an older one of the same page and stream. Calls are numbered as
    /// they arrive: one that took longer to read than the next one does not take that one's place.
    pub(crate) fn attach(
        &self,
        page: PageId,
        stream: StreamId,
        call: u64,
        now: Duration,
    ) -> Result<Epoch, ErrorReport> {
        let mut desk = self.desk(now);
        // Asked again under the lock: a newer page may have come since the rows were read.
        desk.admits(page)?;
        let is_late =
            |own: &Attachment| own.page == page && own.stream == stream && own.call > call;
        if desk.attached.values().any(is_late) && !mutated!(self.harness, LateAttachWins) {
            return Err(unknown_epoch());
        }
        desk.attached
            .retain(|_, own| own.page != page || own.stream != stream);
        let epoch = Epoch::new(desk.next_epoch);
        desk.next_epoch = desk.next_epoch.wrapping_add(1);
        let attachment = Attachment {
            page,
            stream,
            call,
            polled_at: now,
            polls: watch::channel(()).0,
        };
        desk.attached.insert(epoch, attachment);
        Ok(epoch)
    }

    /// The stream of an attachment that is polled now.
    ///
    /// # Errors
    /// `Superseded` if a newer page ended it, `UnknownEpoch` if anything else did.
    pub(crate) fn followed(&self, epoch: Epoch, now: Duration) -> Result<Followed, ErrorReport> {
        let mut desk = self.desk(now);
        if let Some(attachment) = desk.attached.get_mut(&epoch) {
            attachment.polled_at = now;
            return Ok(Followed {
                stream: attachment.stream,
                ended: attachment.polls.subscribe(),
            });
        }
        let is_superseded = desk.superseded.contains(&epoch);
        if is_superseded && !mutated!(self.harness, ForgetSuperseded) {
            return Err(superseded());
        }
        Err(unknown_epoch())
    }

    /// A poll of this attachment is about to be answered: its page has been there until now.
    pub(crate) fn answered(&self, epoch: Epoch, now: Duration) {
        if let Some(attachment) = self.desk(now).attached.get_mut(&epoch) {
            attachment.polled_at = now;
        }
    }

    pub(crate) fn detach(&self, epoch: Epoch, now: Duration) {
        self.desk(now).attached.remove(&epoch);
    }

    /// Ends everything of a window that was closed.
    pub(crate) fn window_gone(&self, window: &str, now: Duration) {
        let mut desk = self.desk(now);
        if let Some(gone) = desk.windows.remove(window) {
            desk.outlive(gone);
            desk.attached
                .retain(|_, attachment| attachment.page != gone);
        }
    }

    pub(crate) fn count(&self, now: Duration) -> usize {
        self.desk(now).attached.len()
    }

    /// Everything that is remembered of pages and windows, counted: bounded, whatever they do.
    pub(crate) fn remembered(&self, now: Duration) -> usize {
        let desk = self.desk(now);
        desk.windows.len() + desk.old.len() + desk.attached.len() + desk.superseded.len()
    }
}

impl Desk {
    fn admits(&self, page: PageId) -> Result<(), ErrorReport> {
        if self.windows.values().any(|newest| *newest == page) {
            Ok(())
        } else {
            Err(superseded())
        }
    }

    /// The page will never be the newest of a window again.
    fn outlive(&mut self, page: PageId) {
        self.old.push_back(page);
        if self.old.len() > OLD_PAGES_MAX {
            self.old.pop_front();
        }
    }

    /// Ends the attachments of a page that a newer one replaced.
    fn supersede(&mut self, page: PageId) {
        let ended = self.attached.extract_if(|_, own| own.page == page);
        let ended: Vec<_> = ended.map(|(epoch, _)| epoch).collect();
        self.superseded.extend(ended);
        while self.superseded.len() > OLD_EPOCHS_MAX {
            self.superseded.pop_front();
        }
    }
}

fn superseded() -> ErrorReport {
    ErrorReport::new(
        ErrorCode::Superseded,
        "A newer page of this window is open.",
    )
}

fn unknown_epoch() -> ErrorReport {
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
        attachments.hello("main", page(1), NOW).unwrap();
        let old = attachments
            .attach(page(1), StreamId::Library, 1, NOW)
            .unwrap();
        attachments.hello("main", page(2), NOW).unwrap();
        assert_eq!(
            attachments.followed(old, NOW).err().unwrap().code,
            ErrorCode::Superseded,
            "by name: a live page says hello again, and a dead one is quiet"
        );
        assert_eq!(
            attachments
                .attach(page(1), StreamId::Library, 1, NOW)
                .unwrap_err()
                .code,
            ErrorCode::Superseded
        );
        attachments
            .attach(page(2), StreamId::Library, 1, NOW)
            .unwrap();
    }

    #[test]
    fn a_page_seen_before_never_becomes_the_newest_again() {
        let attachments = Attachments::new(7, Harness::default());
        attachments.hello("main", page(1), NOW).unwrap();
        attachments.hello("main", page(2), NOW).unwrap();
        assert_eq!(
            attachments.hello("main", page(1), NOW).unwrap_err().code,
            ErrorCode::Superseded
        );
        attachments.hello("main", page(2), NOW).unwrap();
    }

    #[test]
    fn an_attachment_that_nobody_polls_is_reaped_and_one_that_is_polled_is_not() {
        let attachments = Attachments::new(u64::MAX, Harness::default());
        attachments.hello("a", page(1), NOW).unwrap();
        attachments.hello("b", page(2), NOW).unwrap();
        let idle = attachments
            .attach(page(1), StreamId::Library, 1, NOW)
            .unwrap();
        let busy = attachments
            .attach(page(2), StreamId::Library, 1, NOW)
            .unwrap();
        let later = NOW + REAP_AFTER;
        // A poll that was parked all the time.
        let parked = attachments.followed(busy, NOW).unwrap();
        attachments.answered(busy, later);
        drop(parked);
        attachments
            .attach(
                page(2),
                StreamId::Session(protocol::SessionId::from_bits(1)),
                2,
                later,
            )
            .unwrap();
        assert!(attachments.followed(idle, later).is_err());
        assert!(attachments.followed(busy, later).is_ok());
    }

    #[test]
    fn a_page_of_a_closed_window_does_not_open_it_again() {
        let attachments = Attachments::new(7, Harness::default());
        attachments.hello("main", page(1), NOW).unwrap();
        let old = attachments
            .attach(page(1), StreamId::Library, 1, NOW)
            .unwrap();
        attachments.window_gone("main", NOW);
        assert_eq!(
            attachments.hello("main", page(1), NOW).unwrap_err().code,
            ErrorCode::Superseded
        );
        assert_eq!(
            attachments.followed(old, NOW).err().unwrap().code,
            ErrorCode::UnknownEpoch
        );
        attachments.hello("main", page(2), NOW).unwrap();
    }

    #[test]
    fn an_attachment_that_was_left_is_forgotten_though_nobody_attaches() {
        let attachments = Attachments::new(7, Harness::default());
        attachments.hello("main", page(1), NOW).unwrap();
        let left = attachments
            .attach(page(1), StreamId::Library, 1, NOW)
            .unwrap();
        assert_eq!(attachments.count(NOW + REAP_AFTER / 2), 1);
        assert_eq!(attachments.count(NOW + REAP_AFTER), 0);
        assert_eq!(
            attachments
                .followed(left, NOW + REAP_AFTER)
                .err()
                .unwrap()
                .code,
            ErrorCode::UnknownEpoch
        );
    }

    #[test]
    fn an_attach_that_took_longer_than_the_next_one_does_not_end_that_one() {
        let attachments = Attachments::new(7, Harness::default());
        attachments.hello("main", page(1), NOW).unwrap();
        let next = attachments
            .attach(page(1), StreamId::Library, 2, NOW)
            .unwrap();
        let late = attachments.attach(page(1), StreamId::Library, 1, NOW);
        assert_eq!(late.unwrap_err().code, ErrorCode::UnknownEpoch);
        attachments.followed(next, NOW).unwrap();
    }
}
