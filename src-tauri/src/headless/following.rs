//! Where the terminal stands in the stream it follows.
//!
//! Invariant: every event is applied once and in order, whatever is answered twice, late or not at all. Kept by: the
//! cursor admits an event or does not.

use protocol::{Admission, AttachMode, Attached, Batch, Cursor, Epoch, Page, PollRequest, Status};

use super::answer::Answer;

/// How long a poll stays parked; the next one follows at once.
const POLL_WAIT_MS: u32 = 8_000;
const POLL_BYTES_MAX: u32 = 256 * 1024;

/// Where this client stands in its stream.
pub(super) struct Following {
    epoch: Epoch,
    pub(super) cursor: Cursor,
    seen_status: u64,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Applied {
    All,
    /// Something was missing in between, or it was another attachment's answer.
    Gap,
}

impl Following {
    /// From the position of what came with an attachment; what is in it is not printed.
    pub(super) fn after(attached: &Attached) -> Self {
        let cursor = match &attached.page {
            Some(Page::Session(transcript)) => transcript.as_of,
            Some(Page::Library(library)) => library.as_of,
            None => attached.head,
        };
        Self {
            epoch: attached.epoch,
            cursor,
            seen_status: 0,
        }
    }

    /// From `cursor`, or from the page that came instead, of which our turn is printed as far as it was not.
    pub(super) async fn of(
        attached: &Attached,
        cursor: Option<Cursor>,
        answer: &mut Answer,
    ) -> Self {
        let mut following = Self::after(attached);
        match (attached.mode, cursor, &attached.page) {
            (AttachMode::Resume, Some(cursor), _) => following.cursor = cursor,
            (_, _, Some(Page::Session(transcript))) => answer.catch_up(transcript).await,
            (AttachMode::Resume | AttachMode::Fresh | AttachMode::Reset(_), _, _) => {}
        }
        if let Some(status) = &attached.status {
            following.hear(status, answer).await;
        }
        following
    }

    pub(super) fn request(&self) -> PollRequest {
        PollRequest {
            epoch: self.epoch,
            after: self.cursor,
            seen_status: self.seen_status,
            wait_ms: POLL_WAIT_MS,
            max_bytes: POLL_BYTES_MAX,
        }
    }

    pub(super) async fn take(&mut self, batch: &Batch, answer: &mut Answer) -> Applied {
        if batch.epoch != self.epoch {
            return Applied::Gap;
        }
        for event in &batch.events {
            match self.cursor.admits(event.seq) {
                Admission::Next => {
                    answer.apply(event).await;
                    self.cursor = self.cursor.advanced_to(event.seq);
                }
                Admission::Seen => {}
                Admission::Gap => return Applied::Gap,
            }
        }
        if let Some(status) = &batch.status {
            self.hear(status, answer).await;
        }
        Applied::All
    }

    async fn hear(&mut self, status: &Status, answer: &mut Answer) {
        if status.revision > self.seen_status {
            self.seen_status = status.revision;
            answer.status(&status.phase).await;
        }
    }
}
