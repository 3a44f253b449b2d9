//! The client half of attach and poll: follows one stream over a transport that loses, repeats, holds and reorders.
//!
//! Invariant: what is shown holds every event of its log up to its cursor, each once, in order, at any time and after
//! any sequence of answers. An answer counts only if it is the one that is waited for, of the current epoch; an event
//! only if it is the very next one; a page only as a whole.
//! Every way of going wrong ends in one slot: one repair at a time, later each time, four by itself and then a button.
//! Not here: time (passed in, in milliseconds of any monotonic count), sending, and what a change means.

use protocol::{
    Admission, AttachMode, AttachReason, Attached, Batch, Cursor, Epoch, ErrorCode, PollRequest,
    Status, StreamId, TranscriptPage, TurnId,
};

use crate::{Declined, Follow, Transcript, mutant::mutated};

/// How long a poll may stay parked: long enough to be rare, short enough that a lost one is noticed soon.
pub const POLL_WAIT_MS: u32 = 8_000;
/// Room for an answer to travel and for a slow disk, before a parked poll counts as lost.
pub const POLL_MARGIN_MS: u64 = 4_000;
/// A load that takes longer counts as lost.
pub const LOAD_LIMIT_MS: u64 = 15_000;
/// Enough for several screens of text, small enough to be folded within a frame.
pub const POLL_BYTES_MAX: u32 = 256 * 1024;
/// Automatic tries in a row; what four did not heal, the reader decides about.
pub const REPAIRS_MAX: u32 = 4;
/// Wait before the first repair; doubles with every further one.
pub const REPAIR_DELAY_MS: u64 = 500;
/// The doubling ends here.
pub const REPAIR_DELAY_MS_MAX: u64 = 15_000;
/// A page that slept finds its epoch forgotten; that is no fault, so the first time is nearly at once.
pub const FORGOTTEN_DELAY_MS: u64 = 50;
/// Between polls that are answered too early with nothing: no edge of this machine takes no time.
pub const EMPTY_POLL_DELAY_MS: u64 = 100;

/// Names one request; its answer carries it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(u64);

/// Names one of the folds that a link has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Edition(u64);

/// Where a link stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkState {
    /// Not following: not begun, waiting to try again, waiting for a hello, or closed.
    Detached,
    /// Asked to follow.
    Attaching,
    /// Following, and not yet where the stream was when it attached.
    Replaying,
    /// Following. The one state in which something may be asked for.
    Live,
    /// Stopped trying: [`Link::trouble`] says why, [`Link::retry`] begins again.
    NeedsManual,
}

/// What the driver does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Ask to follow; answer with [`Link::attached`].
    Attach {
        /// To come back with the answer.
        ticket: Ticket,
        /// What to follow.
        stream: StreamId,
        /// Where what is shown stands.
        cursor: Option<Cursor>,
        /// What made it necessary; the engine counts it.
        why: AttachReason,
        /// When to stop waiting; the link does so by itself.
        limit_ms: u64,
    },
    /// Ask for events; answer with [`Link::polled`].
    Poll {
        /// To come back with the answer.
        ticket: Ticket,
        /// What to ask.
        request: PollRequest,
        /// When to stop waiting; the link does so by itself.
        limit_ms: u64,
    },
    /// Nothing before this time, or an answer.
    WaitUntil(u64),
    /// Nothing until `show`, `retry` or `said_hello`.
    Nothing,
}

/// An answer that is not one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerError {
    /// The transport failed, or nothing came in time.
    Lost,
    /// The engine said no.
    Refused(ErrorCode),
}

/// What an answer did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard<C> {
    /// What is shown was replaced as a whole: draw all of it. `changes` is empty then.
    pub swapped: bool,
    /// What changed in what is shown.
    pub changes: Vec<C>,
    /// [`Link::status`] is another one.
    pub status_changed: bool,
}

/// What keeps, or kept, a link from following.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// An answer was lost, or did not come in time.
    Lost,
    /// The engine said no.
    Refused(ErrorCode),
    /// The stream did not continue where the transcript ended.
    Gap,
    /// An answer that contradicts its question.
    BadAnswer,
}

/// What happened to a link, counted; shown in diagnostics and asserted in scenarios.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Attach requests.
    pub attaches: u64,
    /// Poll requests.
    pub polls: u64,
    /// Times the shown fold was replaced as a whole.
    pub swaps: u64,
    /// Repairs begun.
    pub repairs: u64,
    /// Answers that were not the one waited for.
    pub declined: u64,
    /// Answers that left events out.
    pub gaps: u64,
    /// `Reset` answers.
    pub resets: u64,
    /// Events that had been applied already.
    pub repeated: u64,
    /// Requests without an answer within their limit.
    pub given_up: u64,
    /// Answers lost by the transport.
    pub lost: u64,
    /// Refusals.
    pub refused: u64,
    /// Answers that contradicted their question.
    pub bad_answers: u64,
    /// Times it stopped trying.
    pub manual: u64,
}

impl Counters {
    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            attaches: self.attaches + other.attaches,
            polls: self.polls + other.polls,
            swaps: self.swaps + other.swaps,
            repairs: self.repairs + other.repairs,
            declined: self.declined + other.declined,
            gaps: self.gaps + other.gaps,
            resets: self.resets + other.resets,
            repeated: self.repeated + other.repeated,
            given_up: self.given_up + other.given_up,
            lost: self.lost + other.lost,
            refused: self.refused + other.refused,
            bad_answers: self.bad_answers + other.bad_answers,
            manual: self.manual + other.manual,
        }
    }
}

/// Follows one stream. At most one request is out at any time.
#[derive(Clone, Debug)]
pub struct Link<F: Follow> {
    stream: StreamId,
    view: View,
    stage: Stage<F>,
    shown: Option<F>,
    /// What is shown cannot take the next event, so the next attach asks for a page.
    anew: bool,
    /// Where the fold stood that could not take the next event last.
    lacked_at: Option<Cursor>,
    status: Option<Status>,
    asked: Option<Asked>,
    /// Nothing is asked before this.
    due_ms: u64,
    /// Repairs since the last real progress.
    tries: u32,
    trouble: Option<Trouble>,
    counters: Counters,
    tickets: u64,
    jitter: u64,
    #[cfg(feature = "mutants")]
    mutant: Option<crate::mutant::Mutant>,
}

/// Whether anybody looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    Visible,
    /// Its window is out of sight, and may be back at any moment.
    Background,
    Hidden,
    Closed,
}

#[derive(Clone, Debug)]
enum Stage<F> {
    Detached,
    AwaitingHello,
    Following(Following<F>),
    Manual,
}

/// One attachment.
#[derive(Clone, Debug)]
struct Following<F> {
    epoch: Epoch,
    goal: Goal<F>,
    proof: Proof,
}

/// What the attachment still has to reach.
#[derive(Clone, Debug)]
enum Goal<F> {
    /// The new fold reaches this head out of sight, and is swapped in then.
    Stage(F, Cursor),
    /// What is shown reaches this head.
    CatchUp(Cursor),
    /// Reached.
    Live,
}

/// What it takes for an attachment to count as progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    /// It began with a `Reset`: its first answer proves nothing, or resets for ever would pass for success.
    Doubted,
    /// Events that apply, or a poll that stayed parked.
    Usual,
}

/// The request that is out.
#[derive(Clone, Copy, Debug)]
struct Asked {
    ticket: Ticket,
    what: Question,
    asked_ms: u64,
    limit_ms: u64,
    /// Absent after a time out of sight: the limit is in visible time, and begins again.
    gives_up_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Question {
    Attach { cursor: Option<Cursor> },
    Poll { request: PollRequest },
}

/// How to go on after something went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remedy {
    /// The attachment may be good; only an answer is missing.
    PollAgain,
    AttachAgain,
}

impl<F: Follow> Link<F> {
    /// A link that has asked for nothing yet. `seed` spreads the repairs of several links in time.
    pub fn new(stream: StreamId, seed: u64) -> Self {
        Self {
            stream,
            view: View::Visible,
            stage: Stage::Detached,
            shown: None,
            anew: false,
            lacked_at: None,
            status: None,
            asked: None,
            due_ms: 0,
            tries: 0,
            trouble: None,
            counters: Counters::default(),
            tickets: 0,
            jitter: seed,
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }

    /// The same without one of its guards.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn with_mutant(mut self, mutant: Option<crate::mutant::Mutant>) -> Self {
        self.mutant = mutant;
        self
    }

    /// The stream it follows.
    pub fn stream(&self) -> StreamId {
        self.stream
    }

    /// What to draw. `None` only before the first successful load; a failed load never takes it away.
    pub fn shown(&self) -> Option<&F> {
        self.shown.as_ref()
    }

    /// How often what is shown was replaced as a whole; whoever asks for a part of it asks for a part of this one.
    pub fn edition(&self) -> Edition {
        Edition(self.counters.swaps)
    }

    /// What the session's turn is doing, as last heard.
    pub fn status(&self) -> Option<&Status> {
        self.status.as_ref()
    }

    /// Where it stands.
    pub fn state(&self) -> LinkState {
        if self.view == View::Closed {
            return LinkState::Detached;
        }
        match &self.stage {
            Stage::Detached => match self.asked {
                Some(_) => LinkState::Attaching,
                None => LinkState::Detached,
            },
            Stage::AwaitingHello => LinkState::Detached,
            Stage::Following(following) => match following.goal {
                Goal::Stage(..) | Goal::CatchUp(_) => LinkState::Replaying,
                Goal::Live
                    if mutated!(self, LatchOnFail)
                        && self.counters.repairs >= self.counters.swaps =>
                {
                    LinkState::Replaying
                }
                Goal::Live => LinkState::Live,
            },
            Stage::Manual => LinkState::NeedsManual,
        }
    }

    /// The current attachment, to be named when it is ended.
    pub fn epoch(&self) -> Option<Epoch> {
        match &self.stage {
            Stage::Following(following) => Some(following.epoch),
            Stage::Detached | Stage::AwaitingHello | Stage::Manual => None,
        }
    }

    /// What went wrong last, until it is live again.
    pub fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Another page took this one's place in its window. If this one lives, it says hello again with a new nonce.
    pub fn needs_hello(&self) -> bool {
        matches!(self.stage, Stage::AwaitingHello)
    }

    /// It did.
    pub fn said_hello(&mut self) {
        if self.needs_hello() {
            self.stage = Stage::Detached;
        }
    }

    /// What to do now. Gives up by itself on a request whose limit is over.
    pub fn next(&mut self, now_ms: u64) -> Next {
        match self.view {
            View::Visible => {}
            View::Hidden if mutated!(self, NoFireCheck) => {}
            View::Background if mutated!(self, BackgroundRests) => return Next::Nothing,
            View::Background if self.goes_well() || mutated!(self, RepairsUnseen) => {}
            View::Background | View::Hidden | View::Closed => return Next::Nothing,
        }
        if let Some(asked) = &mut self.asked {
            let limit_ms = asked.limit_ms;
            let gives_up_ms = *asked
                .gives_up_ms
                .get_or_insert(now_ms.saturating_add(limit_ms));
            if mutated!(self, NoWaitLimit) {
                return Next::WaitUntil(gives_up_ms.max(now_ms.saturating_add(1_000)));
            }
            if now_ms < gives_up_ms {
                return Next::WaitUntil(gives_up_ms);
            }
            self.asked = None;
            self.counters.given_up += 1;
            self.repair(Remedy::AttachAgain, Trouble::Lost, now_ms);
        }
        let question = match &self.stage {
            Stage::Manual | Stage::AwaitingHello => return Next::Nothing,
            Stage::Detached => Question::Attach {
                cursor: self.shown.as_ref().map(F::cursor).filter(|_| !self.anew),
            },
            Stage::Following(following) => {
                let fold = match &following.goal {
                    Goal::Stage(staged, _) => Some(staged),
                    Goal::CatchUp(_) | Goal::Live => self.shown.as_ref(),
                };
                match fold {
                    Some(fold) => Question::Poll {
                        request: PollRequest {
                            epoch: following.epoch,
                            after: fold.cursor(),
                            seen_status: self.seen_status(),
                            wait_ms: POLL_WAIT_MS,
                            max_bytes: POLL_BYTES_MAX,
                        },
                    },
                    // Following without a fold cannot be; attaching heals it.
                    None => Question::Attach { cursor: None },
                }
            }
        };
        if now_ms < self.due_ms {
            return Next::WaitUntil(self.due_ms);
        }
        self.ask(question, now_ms)
    }

    /// The answer to an attach.
    pub fn attached(
        &mut self,
        ticket: Ticket,
        answer: Result<Attached, AnswerError>,
        now_ms: u64,
    ) -> Heard<F::Change> {
        match self.asked {
            Some(Asked {
                ticket: own,
                what: Question::Attach { cursor },
                ..
            }) if own == ticket || mutated!(self, AnyAttachAnswer) => {
                self.asked = None;
                match answer {
                    Ok(attached) => self.follow(attached, cursor, now_ms),
                    Err(error) => {
                        self.fail(error, Remedy::AttachAgain, now_ms);
                        Heard::nothing()
                    }
                }
            }
            Some(_) | None => self.decline(),
        }
    }

    /// The answer to a poll.
    pub fn polled(
        &mut self,
        ticket: Ticket,
        answer: Result<Batch, AnswerError>,
        now_ms: u64,
    ) -> Heard<F::Change> {
        match self.asked {
            Some(Asked {
                ticket: own,
                what: Question::Poll { .. },
                asked_ms,
                limit_ms,
                ..
            }) if own == ticket || mutated!(self, AnyAnswer) => {
                self.asked = None;
                match answer {
                    Ok(batch) => self.hear(batch, asked_ms, now_ms),
                    Err(error) => {
                        let hung = now_ms >= asked_ms.saturating_add(limit_ms);
                        let remedy = if hung {
                            Remedy::AttachAgain
                        } else {
                            Remedy::PollAgain
                        };
                        self.fail(error, remedy, now_ms);
                        Heard::nothing()
                    }
                }
            }
            Some(_) | None => self.decline(),
        }
    }

    /// Nobody looks: nothing is asked from now on. An answer that is under way still counts.
    pub fn hide(&mut self) {
        self.look_away(View::Hidden);
    }

    /// The window is out of sight: polls go on while they go well, so that what is seen first on return is what there
    /// is. Nothing is repaired until then, and no limit runs.
    pub fn send_back(&mut self) {
        self.look_away(View::Background);
    }

    fn look_away(&mut self, view: View) {
        match self.view {
            View::Visible | View::Background | View::Hidden => self.view = view,
            View::Closed => return,
        }
        if let Some(asked) = &mut self.asked {
            asked.gives_up_ms = None;
        }
    }

    /// Whether the next poll may follow and nothing is out of order.
    fn goes_well(&self) -> bool {
        matches!(self.stage, Stage::Following(_)) && self.asked.is_none() && self.trouble.is_none()
    }

    /// Somebody looks again.
    pub fn show(&mut self) {
        match self.view {
            View::Background | View::Hidden => self.view = View::Visible,
            View::Visible | View::Closed => {}
        }
    }

    /// The reader asks to try again, now. Does not revive a closed link.
    pub fn retry(&mut self) {
        self.tries = 0;
        self.due_ms = 0;
        if matches!(self.stage, Stage::Manual) {
            self.stage = Stage::Detached;
        }
    }

    /// The pane is gone: nothing is asked any more, and what still arrives is declined.
    /// Gives the attachment there was, for a parting `detach`.
    pub fn close(&mut self) -> Option<Epoch> {
        let epoch = self.epoch();
        if !mutated!(self, LeakScope) {
            self.view = View::Closed;
            self.stage = Stage::Detached;
            self.asked = None;
        }
        epoch
    }

    fn ask(&mut self, what: Question, now_ms: u64) -> Next {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let (next, wait_ms) = match what {
            Question::Attach { cursor } => {
                if mutated!(self, ClearBeforeLoad) {
                    self.shown = None;
                }
                self.counters.attaches += 1;
                let limit_ms = now_ms.saturating_add(LOAD_LIMIT_MS);
                let next = Next::Attach {
                    ticket,
                    stream: self.stream,
                    cursor,
                    why: self.attach_reason(),
                    limit_ms,
                };
                (next, LOAD_LIMIT_MS)
            }
            Question::Poll { request } => {
                self.counters.polls += 1;
                let wait_ms = u64::from(request.wait_ms) + POLL_MARGIN_MS;
                let limit_ms = now_ms.saturating_add(wait_ms);
                let next = Next::Poll {
                    ticket,
                    request,
                    limit_ms,
                };
                (next, wait_ms)
            }
        };
        self.asked = Some(Asked {
            ticket,
            what,
            asked_ms: now_ms,
            limit_ms: wait_ms,
            gives_up_ms: (self.view != View::Background).then(|| now_ms.saturating_add(wait_ms)),
        });
        next
    }

    /// The newest status that was applied, not the newest that may have been sent.
    fn seen_status(&self) -> u64 {
        if mutated!(self, StateOnlyOnce) {
            return u64::MAX;
        }
        self.status.as_ref().map_or(0, |status| status.revision)
    }

    /// What makes an attach necessary: the trouble that there is, if any.
    fn attach_reason(&self) -> AttachReason {
        match &self.trouble {
            None => AttachReason::Open,
            Some(Trouble::Lost) => AttachReason::LostAnswer,
            Some(Trouble::Gap | Trouble::BadAnswer) => AttachReason::Gap,
            Some(Trouble::Refused(_)) => AttachReason::Reset,
        }
    }

    fn decline(&mut self) -> Heard<F::Change> {
        self.counters.declined += 1;
        Heard::nothing()
    }

    /// Begins an attachment, if its answer makes sense.
    fn follow(
        &mut self,
        attached: Attached,
        asked_at: Option<Cursor>,
        now_ms: u64,
    ) -> Heard<F::Change> {
        let proof = match attached.mode {
            AttachMode::Resume | AttachMode::Fresh => Proof::Usual,
            AttachMode::Reset(_) => {
                self.counters.resets += 1;
                if mutated!(self, ResetsUncounted) {
                    Proof::Usual
                } else {
                    Proof::Doubted
                }
            }
        };
        let epoch = attached.epoch;
        let status = attached.status.clone();
        let Some(goal) = self.goal(attached, asked_at) else {
            self.counters.bad_answers += 1;
            self.repair(Remedy::AttachAgain, Trouble::BadAnswer, now_ms);
            return Heard::nothing();
        };
        self.anew &= matches!(goal, Goal::CatchUp(_) | Goal::Live);
        self.stage = Stage::Following(Following { epoch, goal, proof });
        let mut heard = Heard::nothing();
        heard.status_changed = self.status != status;
        self.status = status;
        self.settle(&mut heard);
        heard
    }

    /// What an attachment has to reach; `None` when the answer contradicts itself, the question, or what is shown.
    fn goal(&self, attached: Attached, asked_at: Option<Cursor>) -> Option<Goal<F>> {
        if attached.stream != self.stream {
            return None;
        }
        let head = attached.head;
        match attached.mode {
            AttachMode::Resume => {
                let own = self.shown.as_ref()?.cursor();
                (asked_at == Some(own) && head.log() == own.log() && head.count() >= own.count())
                    .then_some(Goal::CatchUp(head))
            }
            AttachMode::Fresh | AttachMode::Reset(_) => {
                let fold = F::from_page(attached.page?).ok()?;
                (fold.stream() == self.stream && fold.cursor().log() == head.log())
                    .then_some(Goal::Stage(fold, head))
            }
        }
    }

    /// Takes in an answer to the poll that was out.
    fn hear(&mut self, batch: Batch, asked_ms: u64, now_ms: u64) -> Heard<F::Change> {
        let Stage::Following(following) = &mut self.stage else {
            // A poll is only ever out while following.
            return self.decline();
        };
        if batch.epoch != following.epoch && !mutated!(self, NoEpochCheck) {
            self.repair(Remedy::PollAgain, Trouble::BadAnswer, now_ms);
            return self.decline();
        }
        let (fold, drawn) = match &mut following.goal {
            Goal::Stage(staged, _) => (Some(staged), false),
            Goal::CatchUp(_) | Goal::Live => (self.shown.as_mut(), true),
        };
        let Some(fold) = fold else {
            self.repair(Remedy::AttachAgain, Trouble::BadAnswer, now_ms);
            return self.decline();
        };

        #[cfg(feature = "mutants")]
        fold.lacking(self.mutant);
        let mut heard = Heard::nothing();
        let before = fold.cursor();
        let mut whole = batch.head.log() == before.log() && batch.head.count() >= before.count();
        let mut lacks = false;
        if whole {
            for event in &batch.events {
                match fold.cursor().admits(event.seq) {
                    Admission::Next if fold.lacks(event) => {
                        lacks = true;
                        break;
                    }
                    Admission::Next => fold.apply(event, &mut heard.changes),
                    Admission::Seen if mutated!(self, NoSeqDrop) => {
                        apply_anyway(fold, event, &mut heard.changes);
                    }
                    Admission::Gap if mutated!(self, NoGapCheck) => {
                        apply_anyway(fold, event, &mut heard.changes);
                    }
                    Admission::Seen => self.counters.repeated += 1,
                    Admission::Gap => {
                        whole = false;
                        break;
                    }
                }
            }
        }
        let now = fold.cursor();
        let moved = now != before;
        // Nothing new although the stream goes on is a hole, not an "ok".
        whole = whole && (moved || batch.head.count() <= before.count());
        if !drawn {
            heard.changes.clear();
        }
        if batch.status.is_some() && batch.status != self.status {
            self.status = batch.status;
            heard.status_changed = true;
        }
        if lacks {
            self.anew = true;
            let before = self.lacked_at.replace(now);
            if before.is_none_or(|at| at.log() != now.log() || at.count() < now.count()) {
                // Nothing is wrong: a page has what is lacking, and each one so far led further.
                self.stage = Stage::Detached;
                return heard;
            }
            whole = false;
        }
        if !whole {
            self.counters.gaps += 1;
            self.settle(&mut heard);
            self.repair(Remedy::AttachAgain, Trouble::Gap, now_ms);
            return heard;
        }

        let parked = now_ms.saturating_sub(asked_ms) >= u64::from(POLL_WAIT_MS / 2);
        if parked || (moved && following.proof == Proof::Usual) {
            self.tries = 0;
        }
        following.proof = Proof::Usual;
        if matches!(following.goal, Goal::Live) {
            self.trouble = None;
        }
        if !moved && !parked && !heard.status_changed {
            self.due_ms = now_ms.saturating_add(EMPTY_POLL_DELAY_MS);
        }
        self.settle(&mut heard);
        heard
    }

    /// Swaps in the staged fold, or goes live, when the head named by `Attached` is reached.
    fn settle(&mut self, heard: &mut Heard<F::Change>) {
        if mutated!(self, OneBusy) && self.status.as_ref().is_some_and(|now| now.turn.is_some()) {
            return;
        }
        let Stage::Following(following) = &mut self.stage else {
            return;
        };
        let reached = match &following.goal {
            Goal::Stage(..) if mutated!(self, SwapAtFirstEvent) => true,
            Goal::Stage(staged, head) => staged.cursor().count() >= head.count(),
            Goal::CatchUp(head) => self
                .shown
                .as_ref()
                .is_some_and(|shown| shown.cursor().count() >= head.count()),
            Goal::Live => false,
        };
        if !reached {
            return;
        }
        self.trouble = None;
        match std::mem::replace(&mut following.goal, Goal::Live) {
            Goal::Stage(staged, _) => {
                self.shown = Some(staged);
                self.counters.swaps += 1;
                heard.swapped = true;
                heard.changes.clear();
            }
            Goal::CatchUp(_) | Goal::Live => {}
        }
    }

    /// An answer that is an error: a lost one is retried quietly, a refusal is acted on or shown.
    fn fail(&mut self, error: AnswerError, remedy: Remedy, now_ms: u64) {
        let code = match error {
            AnswerError::Lost => {
                self.counters.lost += 1;
                self.repair(remedy, Trouble::Lost, now_ms);
                return;
            }
            AnswerError::Refused(code) => code,
        };
        self.counters.refused += 1;
        match code {
            // Passing states: the epoch is of another boot, the engine is going or coming, a read failed.
            ErrorCode::UnknownEpoch
            | ErrorCode::ShuttingDown
            | ErrorCode::StorageFailed
            | ErrorCode::Other => {
                self.repair(Remedy::AttachAgain, Trouble::Refused(code), now_ms);
            }
            ErrorCode::Superseded => {
                self.repair(Remedy::AttachAgain, Trouble::Refused(code), now_ms);
                if matches!(self.stage, Stage::Detached) {
                    self.stage = Stage::AwaitingHello;
                }
            }
            // Asking again would only be refused again.
            ErrorCode::Gone
            | ErrorCode::NotFound
            | ErrorCode::ProtocolMismatch
            | ErrorCode::TurnActive
            | ErrorCode::StaleHead
            | ErrorCode::AlreadyResolved { .. }
            | ErrorCode::OpIdConflict
            | ErrorCode::Invalid { .. } => self.give_up(Trouble::Refused(code)),
        }
    }

    /// The one slot of repair: what to do, not before when, and whether at all.
    fn repair(&mut self, remedy: Remedy, trouble: Trouble, now_ms: u64) {
        if self.tries >= REPAIRS_MAX {
            self.give_up(trouble);
            return;
        }
        let delay_ms = if self.tries == 0 && trouble == Trouble::Refused(ErrorCode::UnknownEpoch) {
            self.jittered(FORGOTTEN_DELAY_MS)
        } else {
            let doubled = REPAIR_DELAY_MS.saturating_mul(1 << self.tries);
            self.jittered(doubled.min(REPAIR_DELAY_MS_MAX))
        };
        self.due_ms = if mutated!(self, NoRepairDelay) {
            now_ms
        } else {
            now_ms.saturating_add(delay_ms)
        };
        // Asking once more on an attachment that did not answer twice would only cost time.
        if remedy == Remedy::AttachAgain || self.tries > 0 {
            self.stage = Stage::Detached;
        }
        if !mutated!(self, HealTriggersItself) {
            self.tries += 1;
        }
        self.counters.repairs += 1;
        self.trouble = Some(trouble);
    }

    fn give_up(&mut self, trouble: Trouble) {
        self.stage = Stage::Manual;
        self.counters.manual += 1;
        self.trouble = Some(trouble);
    }

    /// `floor_ms` and up to half of it more, so that links that failed together do not come back together.
    fn jittered(&mut self, floor_ms: u64) -> u64 {
        // SplitMix64: any seed will do, zero included.
        self.jitter = self.jitter.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.jitter;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        floor_ms + bits % (floor_ms / 2 + 1)
    }
}

impl Link<Transcript> {
    /// Files the answer to "older than `before`", asked for while `edition` was shown. Says how many turns were new.
    ///
    /// # Errors
    /// When the answer does not belong to what is shown; nothing has changed then, and nothing has to be done.
    pub fn file_older(
        &mut self,
        edition: Edition,
        before: TurnId,
        page: TranscriptPage,
    ) -> Result<usize, Declined> {
        let is_of_before = edition != self.edition() && !mutated!(self, AnyEdition);
        match &mut self.shown {
            Some(shown) if !is_of_before && self.view != View::Closed => {
                #[cfg(feature = "mutants")]
                shown.lacking(self.mutant);
                shown.file_older(before, page)
            }
            Some(_) | None => {
                self.counters.declined += 1;
                Err(Declined::NotNext)
            }
        }
    }
}

/// What a fold without a guard of its own would do with an event out of its turn.
#[cfg(feature = "mutants")]
fn apply_anyway<F: Follow>(fold: &mut F, event: &protocol::Event, changes: &mut Vec<F::Change>) {
    let seq = protocol::Seq::new(fold.cursor().count() + 1);
    let event = protocol::Event {
        seq,
        ..event.clone()
    };
    fold.apply(&event, changes);
}

#[cfg(not(feature = "mutants"))]
fn apply_anyway<F: Follow>(_: &mut F, _: &protocol::Event, _: &mut Vec<F::Change>) {}

impl<C> Heard<C> {
    const fn nothing() -> Self {
        Self {
            swapped: false,
            changes: Vec::new(),
            status_changed: false,
        }
    }
}

#[cfg(test)]
mod tests;
