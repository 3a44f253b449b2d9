//! Following: the loop that drives a `transcript::Link`. It asks what to do next, does it, and gives the answer back.
//!
//! Invariant: of each stream at most one request is out, and after its follower is gone nothing of it acts: no request,
//! no timer, no write into a signal. Kept by: request and timer are parts of the loop's one wait and are dropped with
//! it, and the loop looks whether it is closed after every wait.
//! Not here: whether an answer counts, when to try again (both `transcript::Link`), and what a change looks like.

use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    pin::Pin,
    rc::Rc,
    task::{Poll, Waker},
};

use leptos::prelude::*;
use protocol::{
    AttachArgs, Attached, Batch, DetachArgs, HelloArgs, LoadOlderArgs, PROTOCOL, PageId, PollArgs,
    StreamId,
};
use transcript::{AnswerError, Counters, Follow, Heard, Library, Link, Next, Ticket, Transcript};

use crate::{
    desk::Desk,
    ipc::{self, CallError, First},
    pane::Pane,
};

/// Opening a database may need a migration and its backup.
pub(crate) const HELLO_LIMIT_MS: u64 = 60_000;
/// Before saying hello once more, when the last one got no answer.
const HELLO_PAUSE_MS: u64 = 1_000;
/// A page of older turns that takes longer is asked for by the next scroll.
const OLDER_LIMIT_MS: u64 = 15_000;
/// How often a follower that waits for another one's hello looks again.
const HELLO_LOOK_MS: u64 = 50;

thread_local! {
    /// Who this page is to the engine. One for all its followers.
    static DOOR: Door = Door {
        page: Cell::new(PageId::from_bits(ipc::random_bits())),
        greeting: Cell::new(false),
    };
}

/// What the links of this page counted, those that are gone included.
pub(crate) fn counters() -> Counters {
    TALLY.with(|tally| {
        let tally = tally.borrow();
        let living = tally.living.iter().filter_map(|line| line());
        living.fold(tally.gone, Counters::plus)
    })
}

thread_local! {
    static TALLY: RefCell<Tally> = RefCell::new(Tally::default());
}

/// What is counted over all links of this page, for the health page.
#[derive(Default)]
struct Tally {
    gone: Counters,
    /// One for each link there is; `None` once it is gone.
    living: Vec<Box<dyn Fn() -> Option<Counters>>>,
}

/// Counts a link, for as long as it lives and after.
fn tally<F: Follow + 'static>(line: &Rc<Line<F>>) {
    let line = Rc::downgrade(line);
    TALLY.with(|tally| {
        let mut tally = tally.borrow_mut();
        tally.living.retain(|line| line().is_some());
        tally.living.push(Box::new(move || {
            Some(*line.upgrade()?.link.borrow().counters())
        }));
    });
}

impl<F: Follow> Drop for Line<F> {
    fn drop(&mut self) {
        let counted = *self.link.borrow().counters();
        // A page that goes away altogether has no tally any more.
        let _ = TALLY.try_with(|tally| {
            if let Ok(mut tally) = tally.try_borrow_mut() {
                tally.gone = tally.gone.plus(counted);
            }
        });
    }
}

struct Door {
    page: Cell<PageId>,
    /// Somebody is saying hello.
    greeting: Cell<bool>,
}

fn page() -> PageId {
    DOOR.with(|door| door.page.get())
}

/// Says hello as this page.
pub(crate) async fn hello() -> Result<(), CallError> {
    let args = HelloArgs {
        page: page(),
        protocol: PROTOCOL,
    };
    ipc::within(HELLO_LIMIT_MS, ipc::hello(&args))
        .await
        .map(drop)
}

/// Another page has taken `overtaken`'s place in this window, yet here we are: says hello under a new name, once for
/// all followers that found out.
async fn hello_again(overtaken: PageId) {
    while DOOR.with(|door| door.greeting.get()) {
        ipc::sleep(HELLO_LOOK_MS).await;
    }
    if page() != overtaken {
        return;
    }
    DOOR.with(|door| {
        door.greeting.set(true);
        door.page.set(PageId::from_bits(ipc::random_bits()));
    });
    let mut answer = hello().await;
    while let Err(CallError::Lost(_)) = answer {
        ipc::sleep(HELLO_PAUSE_MS).await;
        answer = hello().await;
    }
    // A refusal is met again by the attach that follows, and shown by its pane.
    DOOR.with(|door| door.greeting.set(false));
}

/// Draws what a link has heard.
type Draw<F> = Box<dyn Fn(&Link<F>, &Heard<<F as Follow>::Change>)>;

/// A link and the loop around it. Dropping this ends both.
pub(crate) struct Follower {
    close: Box<dyn Fn()>,
    pause: Box<dyn Fn()>,
    resume: Box<dyn Fn()>,
}

impl Follower {
    /// Lets go of the stream and keeps what is shown.
    pub(crate) fn pause(&self) {
        (self.pause)();
    }
    /// Follows it again, from where what is shown stands.
    pub(crate) fn resume(&self) {
        (self.resume)();
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        (self.close)();
    }
}

/// What a follower and its loop share.
pub(crate) struct Line<F: Follow> {
    pub(crate) link: RefCell<Link<F>>,
    /// Nobody looks at it, and it is let go of.
    paused: Cell<bool>,
    closed: Cell<bool>,
    bell: Bell,
}

impl<F: Follow> Line<F> {
    fn new(stream: StreamId) -> Rc<Self> {
        Rc::new(Self {
            link: RefCell::new(Link::new(stream, ipc::random_bits() as u64)),
            paused: Cell::new(false),
            closed: Cell::new(false),
            bell: Bell::default(),
        })
    }

    /// Begins again after it stopped trying.
    pub(crate) fn retry(&self) {
        self.link.borrow_mut().retry();
        self.bell.ring();
    }

    fn look(&self) {
        let mut link = self.link.borrow_mut();
        if self.paused.get() {
            link.hide();
        } else if ipc::is_hidden() {
            link.send_back();
        } else {
            link.show();
        }
        drop(link);
        self.bell.ring();
    }
}

/// Follows the library for as long as the page lives.
pub(crate) fn library(desk: Desk) -> Follower {
    let line = Line::<Library>::new(StreamId::Library);
    follow(
        &line,
        Box::new(move |link, _heard| {
            if let Some(library) = link.shown() {
                desk.library.show(library);
            }
        }),
    )
}

/// Follows a session into its pane.
pub(crate) fn session(pane: Pane, owner: Owner) -> (Rc<Line<Transcript>>, Follower) {
    let line = Line::<Transcript>::new(StreamId::Session(pane.session));
    let follower = follow(
        &line,
        Box::new(move |link, heard| {
            owner.with(|| pane.show(link, heard));
        }),
    );
    (line, follower)
}

/// Loads the turns before the oldest one shown; says whether there are new ones.
pub(crate) async fn older(line: &Line<Transcript>) -> bool {
    let (edition, args) = {
        let link = line.link.borrow();
        let older = link.shown().and_then(|shown| {
            Some(LoadOlderArgs {
                session: shown.session(),
                before: shown.older_before()?,
                as_of: shown.cursor(),
            })
        });
        match older {
            Some(args) => (link.edition(), args),
            None => return false,
        }
    };
    let Ok(page) = ipc::within(OLDER_LIMIT_MS, ipc::load_older(&args)).await else {
        // Nothing that is shown changes; the next scroll asks again.
        return false;
    };
    if line.closed.get() {
        return false;
    }
    let mut link = line.link.borrow_mut();
    link.file_older(edition, args.before, page)
        .is_ok_and(|added| added > 0)
}

fn follow<F>(line: &Rc<Line<F>>, draw: Draw<F>) -> Follower
where
    F: Follow + 'static,
{
    tally(line);
    ipc::spawn(run(Rc::clone(line), draw));
    let watched = Rc::downgrade(line);
    ipc::on_page_event(move |_| {
        if let Some(line) = watched.upgrade()
            && !line.closed.get()
        {
            line.look();
        }
    });
    let (closing, pausing, resuming) = (Rc::clone(line), Rc::clone(line), Rc::clone(line));
    Follower {
        close: Box::new(move || {
            let epoch = closing.link.borrow().epoch();
            closing.closed.set(true);
            closing.link.borrow_mut().close();
            closing.bell.ring();
            detach(epoch);
        }),
        pause: Box::new(move || {
            let epoch = pausing.link.borrow().epoch();
            pausing.paused.set(true);
            pausing.look();
            detach(epoch);
        }),
        resume: Box::new(move || {
            resuming.paused.set(false);
            resuming.look();
        }),
    }
}

fn detach(epoch: Option<protocol::Epoch>) {
    if let Some(epoch) = epoch {
        ipc::spawn(async move {
            // Only a courtesy: an attachment nobody polls ends by itself.
            let _ = ipc::detach(&DetachArgs { epoch }).await;
        });
    }
}

/// An answer, with the ticket of its question.
enum Answer {
    Attached(Ticket, Box<Result<Attached, CallError>>),
    Polled(Ticket, Result<Batch, CallError>),
}

type Asked = Pin<Box<dyn Future<Output = Answer>>>;

async fn run<F: Follow>(line: Rc<Line<F>>, draw: Draw<F>) {
    let mut asked: Option<Asked> = None;
    let mut page_of_attach = page();
    loop {
        if line.closed.get() {
            return;
        }
        let next = line.link.borrow_mut().next(ipc::now_ms());
        let until = match next {
            Next::Attach {
                ticket,
                stream,
                cursor,
                why,
                limit_ms: _,
            } => {
                page_of_attach = page();
                let args = AttachArgs {
                    page: page_of_attach,
                    stream,
                    cursor,
                    why,
                };
                asked = Some(Box::pin(async move {
                    Answer::Attached(ticket, Box::new(ipc::attach(&args).await))
                }));
                draw(&line.link.borrow(), &nothing());
                continue;
            }
            Next::Poll {
                ticket,
                request,
                limit_ms: _,
            } => {
                asked = Some(Box::pin(async move {
                    Answer::Polled(ticket, ipc::poll(&PollArgs { request }).await)
                }));
                continue;
            }
            Next::WaitUntil(at_ms) => Some(at_ms),
            Next::Nothing => None,
        };
        let answer = wait(&mut asked, until, &line.bell).await;
        if line.closed.get() {
            return;
        }
        let now_ms = ipc::now_ms();
        let heard = match answer {
            Some(Answer::Attached(ticket, answer)) => {
                let answer = (*answer).map_err(answer_error);
                line.link.borrow_mut().attached(ticket, answer, now_ms)
            }
            Some(Answer::Polled(ticket, answer)) => {
                let answer = answer.map_err(answer_error);
                line.link.borrow_mut().polled(ticket, answer, now_ms)
            }
            None => nothing(),
        };
        draw(&line.link.borrow(), &heard);
        if line.link.borrow().needs_hello() {
            hello_again(page_of_attach).await;
            line.link.borrow_mut().said_hello();
        }
    }
}

/// Waits for the answer, the time or the bell.
async fn wait(asked: &mut Option<Asked>, until_ms: Option<u64>, bell: &Bell) -> Option<Answer> {
    let answer = poll_fn(|cx| match asked {
        Some(answer) => answer.as_mut().poll(cx),
        None => Poll::Pending,
    });
    let time = async {
        match until_ms {
            Some(at_ms) => ipc::sleep(at_ms.saturating_sub(ipc::now_ms())).await,
            None => std::future::pending().await,
        }
    };
    match ipc::first(answer, ipc::first(time, bell.rung())).await {
        First::A(answer) => {
            *asked = None;
            Some(answer)
        }
        First::B(_) => None,
    }
}

const fn nothing<C>() -> Heard<C> {
    Heard {
        swapped: false,
        changes: Vec::new(),
        status_changed: false,
    }
}

fn answer_error(error: CallError) -> AnswerError {
    match error {
        CallError::Lost(_) => AnswerError::Lost,
        CallError::Refused(report) => AnswerError::Refused(report.code),
    }
}

/// Wakes the one loop that waits for it; a ring that nobody hears is heard by the next wait.
#[derive(Default)]
struct Bell {
    rung: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Bell {
    fn ring(&self) {
        self.rung.set(true);
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    fn rung(&self) -> impl Future<Output = ()> {
        poll_fn(|cx| {
            if self.rung.replace(false) {
                return Poll::Ready(());
            }
            *self.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
    }
}
