//! The user's answers on their way to the turn that asked.
//!
//! Invariant: none is lost and none is waited for: the session never stands still for a busy turn, and there are at most
//! as many answers as there were questions.

use protocol::{ItemId, Resolution};
use tokio::sync::watch;

/// The user's answer to a question of the turn. It is in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    pub(crate) item: ItemId,
    pub(crate) resolution: Resolution,
}

/// The session's side.
#[derive(Debug)]
pub(crate) struct AnswersIn(watch::Sender<Vec<Answered>>);

/// The turn's side.
#[derive(Debug)]
pub(crate) struct Answers {
    all: watch::Receiver<Vec<Answered>>,
    taken: usize,
}

pub(crate) fn channel() -> (AnswersIn, Answers) {
    let (sender, all) = watch::channel(Vec::new());
    (AnswersIn(sender), Answers { all, taken: 0 })
}

impl AnswersIn {
    pub(crate) fn give(&self, answer: Answered) {
        self.0.send_modify(|all| all.push(answer));
    }
}

impl Answers {
    /// The next one that is there already.
    pub(crate) fn take(&mut self) -> Option<Answered> {
        let next = self.all.borrow_and_update().get(self.taken).copied();
        self.taken += usize::from(next.is_some());
        next
    }

    /// The next one; never, if nobody can answer any more. Cancel safe.
    pub(crate) async fn next(&mut self) -> Answered {
        loop {
            if let Some(next) = self.take() {
                return next;
            }
            if self.all.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn every_answer_comes_once_in_its_order_whether_somebody_waits_or_not() {
        let (give, mut answers) = channel();
        let answer = |number| Answered {
            item: ItemId::new(number),
            resolution: Resolution::Denied,
        };
        assert!(answers.next().now_or_never().is_none());
        give.give(answer(1));
        give.give(answer(2));
        let came = answers
            .next()
            .now_or_never()
            .map(|answer| answer.item.get());
        assert_eq!(came, Some(1));
        assert_eq!(answers.take().map(|answer| answer.item.get()), Some(2));
        give.give(answer(3));
        drop(give);
        assert_eq!(answers.take().map(|answer| answer.item.get()), Some(3));
        assert!(answers.next().now_or_never().is_none());
    }
}
