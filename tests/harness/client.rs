//! The client: the page's own `transcript::Link` and folds, over a transport that can be made to fail.
//!
//! Invariant: what the window runs is what runs here; only the line between page and engine is ours. Every drawn text
//! is kept, and while a witness is set, each is compared with what the disk holds at that moment.
//! Clients have the real clock unless told otherwise: their patience is not what most stories are about.

use std::{
    any::Any,
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use engine::{
    Reader,
    clock::{Clock, Sleep, SystemClock},
};
use protocol::{
    AttachMode, Attached, Batch, Cursor, ErrorCode, ErrorReport, ItemBody, Op, OpId, PageId,
    PollRequest, Receipt, ResetReason, SessionId, Status, StreamId, TranscriptPage, TurnView,
};
use tokio::{sync::Notify, task::JoinSet};
use transcript::{
    AnswerError, Counters, Follow, Library, Link, LinkState, Next, Ticket, Transcript, Trouble,
    mutant::Mutant,
};

use crate::{
    backend::{Line, Missed},
    gate::Gates,
    picture::Draw,
    sentinel::random_u128,
    watched::Watched,
};

/// What can go wrong between a page and the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call never arrives.
    LoseCall,
    /// The call is answered, and the answer never arrives.
    LoseAnswer,
    /// The answer arrives twice.
    DoubleAnswer,
    /// The call is executed twice; the first answer arrives.
    DoubleCall,
    /// The answer waits at a gate.
    HoldAnswer(String),
    /// Nothing is asked; the answer to the call before comes once more.
    AnswerBefore,
    /// The first event of the answer is missing.
    LoseFirstEvent,
    /// The call never arrives, and somebody says no.
    Refuse(ErrorCode),
    /// An attach is answered as if its cursor could not be used.
    Reset,
}

/// How long a page waits for the answer to a poll.
pub fn poll_limit() -> Duration {
    Duration::from_millis(u64::from(transcript::POLL_WAIT_MS) + transcript::POLL_MARGIN_MS)
}

/// How long it waits for a load.
pub fn load_limit() -> Duration {
    Duration::from_millis(transcript::LOAD_LIMIT_MS)
}

/// An answer that can be spoilt.
trait Answered: Clone + Send + Sync + 'static {
    fn says_something(&self) -> bool;
    fn lose_first_event(&mut self);
    fn reset(&mut self) {
        panic!("only an attachment can be a reset");
    }
}

impl Answered for Attached {
    fn says_something(&self) -> bool {
        false
    }

    fn lose_first_event(&mut self) {
        panic!("an attachment brings no events");
    }

    fn reset(&mut self) {
        assert!(self.page.is_some(), "a reset brings a page");
        self.mode = AttachMode::Reset(ResetReason::AheadOfHead);
    }
}

impl Answered for TranscriptPage {
    fn says_something(&self) -> bool {
        false
    }

    fn lose_first_event(&mut self) {
        panic!("a page of older turns brings no events");
    }
}

impl Answered for Batch {
    fn says_something(&self) -> bool {
        !self.events.is_empty()
    }

    fn lose_first_event(&mut self) {
        assert!(self.events.len() > 1, "a hole needs something behind it");
        self.events.remove(0);
    }
}

/// Which calls a fault is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    Attach,
    Poll,
    Older,
}

/// A page in a window. Clones are the same page.
#[derive(Clone)]
pub struct Page {
    inner: Arc<PageInner>,
}

struct PageInner {
    line: Line,
    window: String,
    /// Minted at the load, and again when another page took this one's place though this one lives.
    id: Mutex<PageId>,
    /// It was reloaded: nothing of it runs any more, so that it never says hello again.
    left: AtomicBool,
    clock: Arc<dyn Clock>,
    faults: Watched<VecDeque<(CallKind, Fault)>>,
    /// What happens with every call of a kind that meets no fault of its own.
    always: Mutex<Vec<(CallKind, Fault)>>,
    gates: Gates,
    /// Requests that are out.
    out: Watched<usize>,
    /// The last batch with events that was answered.
    last: Mutex<Option<Box<dyn Any + Send>>>,
    /// The guard that its links lack.
    mutant: Option<Mutant>,
}

impl Page {
    /// A freshly loaded page that has said hello.
    pub async fn load(line: &Line, window: &str) -> Self {
        Self::load_with_clock(line, window, Arc::new(SystemClock::new())).await
    }

    /// The same, whose patience is the test's.
    pub async fn load_with_clock(line: &Line, window: &str, clock: Arc<dyn Clock>) -> Self {
        Self::load_lacking(line, window, clock, None).await
    }

    /// The same, with links that lack a guard.
    pub async fn load_lacking(
        line: &Line,
        window: &str,
        clock: Arc<dyn Clock>,
        mutant: Option<Mutant>,
    ) -> Self {
        let page = Self {
            inner: Arc::new(PageInner {
                line: line.clone(),
                window: window.to_owned(),
                id: Mutex::new(PageId::from_bits(random_u128())),
                left: AtomicBool::new(false),
                clock,
                faults: Watched::new(VecDeque::new()),
                always: Mutex::new(Vec::new()),
                gates: Gates::default(),
                out: Watched::new(0),
                last: Mutex::new(None),
                mutant,
            }),
        };
        line.hello(window, page.id())
            .await
            .expect("a fresh page is welcome");
        page
    }

    /// The next page in the same window: what a reload leaves. Whatever this page followed is not told.
    pub async fn reload(&self) -> Self {
        self.inner.left.store(true, Ordering::Relaxed);
        let clock = Arc::clone(&self.inner.clock);
        Self::load_with_clock(&self.inner.line, &self.inner.window, clock).await
    }

    /// Says hello again, as a living page does that finds itself superseded.
    async fn say_hello_again(&self) -> Result<(), Missed> {
        let id = PageId::from_bits(random_u128());
        self.inner.line.hello(&self.inner.window, id).await?;
        *self.inner.id.lock().unwrap_or_else(PoisonError::into_inner) = id;
        Ok(())
    }

    /// Its nonce.
    pub fn id(&self) -> PageId {
        *self.inner.id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows a session.
    pub fn follow(&self, session: SessionId) -> Client<Transcript> {
        Client::new(self.clone(), StreamId::Session(session), None)
    }

    /// Follows a session, and compares everything it draws with what the disk in `data_dir` holds at that moment.
    pub fn follow_with_witness(&self, session: SessionId, data_dir: &Path) -> Client<Transcript> {
        let witness = Witness {
            data_dir: data_dir.to_owned(),
            session,
        };
        Client::new(self.clone(), StreamId::Session(session), Some(witness))
    }

    /// Follows the library.
    pub fn follow_library(&self) -> Client<Library> {
        Client::new(self.clone(), StreamId::Library, None)
    }

    /// Attaches and does nothing with it, as a page does that dies at once.
    ///
    /// # Errors
    /// What the engine says.
    pub async fn attach(&self, stream: StreamId) -> Result<Attached, ErrorReport> {
        self.attach_at(stream, None).await
    }

    /// The same, at a cursor.
    ///
    /// # Errors
    /// What the engine says.
    pub async fn attach_at(
        &self,
        stream: StreamId,
        cursor: Option<Cursor>,
    ) -> Result<Attached, ErrorReport> {
        match self.inner.line.attach(self.id(), stream, cursor).await {
            Ok(attached) => Ok(attached),
            Err(Missed::Refused(report)) => Err(report),
            Err(Missed::Lost) => panic!("there is no engine to attach to"),
        }
    }

    /// What happens with the next call of that kind that has no fault yet.
    pub fn fault(&self, kind: CallKind, fault: Fault) {
        if let Fault::HoldAnswer(gate) = &fault {
            self.inner.gates.announce(gate);
        }
        self.inner
            .faults
            .change(|faults| faults.push_back((kind, fault)));
    }

    /// Waits until a held answer is there.
    pub async fn arrived(&self, gate: &str) {
        self.inner.gates.arrived(gate).await;
    }

    /// Lets a held answer go on.
    pub fn release(&self, gate: &str) {
        self.inner.gates.release(gate);
    }

    /// Submits an op under a fresh id.
    pub async fn submit(&self, op: Op) -> Result<Receipt, Missed> {
        self.inner
            .line
            .submit(OpId::from_bits(random_u128()), op)
            .await
    }

    /// What happens with every call of that kind from now on, until [`Page::mend`].
    pub fn always(&self, kind: CallKind, fault: Fault) {
        self.standing().push((kind, fault));
    }

    /// From now on the line is good.
    pub fn mend(&self) {
        self.standing().clear();
        self.inner.faults.change(VecDeque::clear);
    }

    fn standing(&self) -> std::sync::MutexGuard<'_, Vec<(CallKind, Fault)>> {
        let always = self.inner.always.lock();
        always.unwrap_or_else(PoisonError::into_inner)
    }

    /// How many requests are out now.
    pub fn requests_out(&self) -> usize {
        self.inner.out.read(|out| *out)
    }

    /// Waits until fewer requests are out.
    pub async fn until_fewer_out(&self, than: usize) {
        let fewer = |out: &usize| (*out < than).then_some(());
        self.inner.out.until("an answer", fewer).await;
    }

    /// Waits until all but so many faults have met their calls.
    pub async fn until_faults_met_but(&self, left: usize) {
        let met = |faults: &VecDeque<_>| (faults.len() <= left).then_some(());
        self.inner
            .faults
            .until("a call to meet its fault", met)
            .await;
    }

    /// Waits until every fault has met its call.
    pub async fn until_faults_met(&self) {
        let met = |faults: &VecDeque<_>| faults.is_empty().then_some(());
        self.inner
            .faults
            .until("a call to meet its fault", met)
            .await;
    }

    fn take_fault(&self, kind: CallKind) -> Option<Fault> {
        let once = self.inner.faults.change(|faults| {
            let position = faults.iter().position(|(own, _)| *own == kind)?;
            faults.remove(position).map(|(_, fault)| fault)
        });
        once.or_else(|| {
            let standing = self.standing();
            let of_kind = standing.iter().find(|(own, _)| *own == kind);
            of_kind.map(|(_, fault)| fault.clone())
        })
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Option<Box<dyn Any + Send>>> {
        self.inner
            .last
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.inner.clock.monotonic().as_millis()).expect("tests are short")
    }

    /// Sends a call through the faulty line; how many answers come back is the line's business.
    async fn through<T: Answered>(
        self,
        fault: Option<Fault>,
        call: impl AsyncFn(Line) -> Result<T, Missed>,
    ) -> Vec<Result<T, AnswerError>> {
        let line = self.inner.line.clone();
        let heard = |answer: Result<T, Missed>| {
            answer.map_err(|missed| match missed {
                Missed::Lost => AnswerError::Lost,
                Missed::Refused(report) => AnswerError::Refused(report.code),
            })
        };
        match fault {
            None => {
                let answer = call(line).await;
                if let Ok(answer) = &answer
                    && answer.says_something()
                {
                    *self.last() = Some(Box::new(answer.clone()));
                }
                vec![heard(answer)]
            }
            Some(Fault::AnswerBefore) => {
                let last = self.last();
                let last = last.as_ref().and_then(|last| last.downcast_ref::<T>());
                vec![Ok(last.expect("an answer of its kind came before").clone())]
            }
            Some(Fault::LoseFirstEvent) => {
                let mut answer = heard(call(line).await);
                answer.iter_mut().for_each(T::lose_first_event);
                vec![answer]
            }
            Some(Fault::LoseCall) => vec![],
            Some(Fault::Refuse(code)) => vec![Err(AnswerError::Refused(code))],
            Some(Fault::Reset) => {
                let mut answer = heard(call(line).await);
                answer.iter_mut().for_each(T::reset);
                vec![answer]
            }
            Some(Fault::LoseAnswer) => {
                // What it said is what gets lost.
                let _ = call(line).await;
                vec![]
            }
            Some(Fault::DoubleAnswer) => {
                let answer = heard(call(line).await);
                vec![answer.clone(), answer]
            }
            Some(Fault::DoubleCall) => {
                let first = heard(call(line.clone()).await);
                // Executed again, as a reload can make the shell do; its answer goes to a page that is gone.
                let _ = call(line).await;
                vec![first]
            }
            Some(Fault::HoldAnswer(gate)) => {
                let answer = heard(call(line).await);
                self.inner.gates.pass(&gate).await;
                vec![answer]
            }
        }
    }
}

impl Drop for PageInner {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let mut faults = self.gates.faults();
        self.faults.read(|unused| {
            faults.extend(
                unused
                    .iter()
                    .map(|(kind, fault)| format!("no {kind:?} met {fault:?}")),
            );
        });
        assert!(
            faults.is_empty(),
            "the page in {:?}:\n{}",
            self.window,
            faults.join("\n")
        );
    }
}

/// One pane of a page: follows one stream. Dropping it is closing the pane without a word to anybody.
pub struct Client<F: Follow> {
    page: Page,
    seat: Arc<Seat<F>>,
    _driver: JoinSet<()>,
}

struct Seat<F: Follow> {
    scene: Watched<Scene<F>>,
    nudge: Notify,
    witness: Option<Witness>,
}

/// All that can be seen of a client.
struct Scene<F: Follow> {
    link: Link<F>,
    draws: Vec<String>,
    /// How many changes it was told to draw.
    changes: usize,
    contradictions: Vec<String>,
}

/// Compares what is drawn with what the disk holds.
struct Witness {
    data_dir: PathBuf,
    session: SessionId,
}

enum Answer {
    Attached(Ticket, Vec<Result<Attached, AnswerError>>),
    Polled(Ticket, Vec<Result<Batch, AnswerError>>),
}

impl<F> Client<F>
where
    F: Follow + Draw + Look + Send + Sync + 'static,
{
    fn new(page: Page, stream: StreamId, witness: Option<Witness>) -> Self {
        let seat = Arc::new(Seat {
            scene: Watched::new(Scene {
                link: Link::new(stream, 1).with_mutant(page.inner.mutant),
                draws: Vec::new(),
                changes: 0,
                contradictions: Vec::new(),
            }),
            nudge: Notify::new(),
            witness,
        });
        let mut driver = JoinSet::new();
        driver.spawn(drive(page.clone(), Arc::clone(&seat)));
        Self {
            page,
            seat,
            _driver: driver,
        }
    }

    /// The page it is in.
    pub fn page(&self) -> &Page {
        &self.page
    }

    /// What is drawn now; nothing before the first load.
    pub fn text(&self) -> String {
        self.seat.scene.read(|scene| scene.text())
    }

    /// Every text it has drawn, each change once, oldest first.
    pub fn draws(&self) -> Vec<String> {
        self.seat.scene.read(|scene| scene.draws.clone())
    }

    /// Looks at what is shown.
    pub fn look<R>(&self, look: impl FnOnce(Option<&F>) -> R) -> R {
        self.seat.scene.read(|scene| look(scene.link.shown()))
    }

    pub fn state(&self) -> LinkState {
        self.seat.scene.read(|scene| scene.link.state())
    }

    /// How many changes it was told to draw.
    pub fn changes(&self) -> usize {
        self.seat.scene.read(|scene| scene.changes)
    }

    pub fn counters(&self) -> Counters {
        self.seat.scene.read(|scene| *scene.link.counters())
    }

    /// What keeps it from following, if anything does.
    pub fn trouble(&self) -> Option<Trouble> {
        self.seat.scene.read(|scene| scene.link.trouble().cloned())
    }

    pub fn status(&self) -> Option<Status> {
        self.seat.scene.read(|scene| scene.link.status().cloned())
    }

    /// Where what is shown stands.
    pub fn cursor(&self) -> Option<Cursor> {
        self.look(|shown| shown.map(F::cursor))
    }

    /// Waits until the drawn text satisfies a condition.
    pub async fn until_text(&self, what: &str, condition: impl Fn(&str) -> bool) -> String {
        let look = |scene: &Scene<F>| Some(scene.text()).filter(|text| condition(text));
        self.seat.scene.until(what, look).await
    }

    /// Waits until a text is drawn.
    pub async fn sees(&self, text: &str) -> String {
        self.until_text(&format!("{text:?} to be drawn"), |drawn| {
            drawn.contains(text)
        })
        .await
    }

    /// Waits until what is shown satisfies a condition.
    pub async fn until_shown<R>(&self, what: &str, mut look: impl FnMut(&F) -> Option<R>) -> R {
        self.seat
            .scene
            .until(what, |scene| scene.link.shown().and_then(&mut look))
            .await
    }

    /// Waits until the session's status satisfies a condition.
    pub async fn until_status(&self, what: &str, condition: impl Fn(&Status) -> bool) -> Status {
        let look = |scene: &Scene<F>| scene.link.status().filter(|s| condition(s)).cloned();
        self.seat.scene.until(what, look).await
    }

    /// Waits until the link is in a state.
    pub async fn until_state(&self, state: LinkState) {
        let look = |scene: &Scene<F>| (scene.link.state() == state).then_some(());
        self.seat
            .scene
            .until(&format!("the link to be {state:?}"), look)
            .await;
    }

    /// Waits until the link's counters satisfy a condition.
    pub async fn until_counters(&self, what: &str, condition: impl Fn(Counters) -> bool) {
        let look = |scene: &Scene<F>| condition(*scene.link.counters()).then_some(());
        self.seat.scene.until(what, look).await;
    }

    /// The reader presses the button that begins again.
    pub fn retry(&self) {
        self.with_link(Link::retry);
    }

    /// The pane goes away, as in the window: its link is closed and its attachment let go of.
    pub async fn close(&self) {
        let epoch = self.seat.scene.change(|scene| scene.link.close());
        self.seat.nudge.notify_one();
        if let Some(epoch) = epoch {
            // Only a courtesy, and there may be nobody to hear it.
            let _ = self.page.inner.line.detach(epoch).await;
        }
    }

    pub fn hide(&self) {
        self.with_link(Link::hide);
    }

    pub fn show(&self) {
        self.with_link(Link::show);
    }

    fn with_link(&self, act: impl FnOnce(&mut Link<F>)) {
        self.seat.scene.change(|scene| act(&mut scene.link));
        self.seat.nudge.notify_one();
    }

    /// Fails if something was ever drawn that the disk did not have, or text that had been drawn went away.
    pub fn no_contradictions(&self) {
        let found = self.seat.scene.read(|scene| scene.contradictions.clone());
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}

impl Client<Transcript> {
    /// What is shown, as a page, to be compared as a whole.
    pub fn to_page(&self) -> Option<TranscriptPage> {
        self.look(|shown| shown.map(Transcript::to_page))
    }

    /// Waits until no turn runs any more, and gives the whole text.
    pub async fn until_idle(&self) -> String {
        let look = |scene: &Scene<Transcript>| {
            let shown = scene.link.shown()?;
            let idle = shown.turns().len() > 0 && shown.running().is_none();
            idle.then(|| scene.text())
        };
        self.seat.scene.until("the turn to end", look).await
    }

    /// Loads the turns above the first; how many were new.
    pub async fn load_older(&self) -> usize {
        let asked = self.seat.scene.read(|scene| {
            let shown = scene.link.shown()?;
            let before = shown.older_before()?;
            Some((
                scene.link.edition(),
                shown.session(),
                before,
                shown.cursor(),
            ))
        });
        let Some((edition, session, before, as_of)) = asked else {
            return 0;
        };
        let call = async move |line: Line| line.load_older(session, before, as_of).await;
        let fault = self.page.take_fault(CallKind::Older);
        let answers = self.page.clone().through(fault, call).await;
        self.seat.scene.change(|scene| {
            let mut added = 0;
            for answer in answers {
                let page = answer.expect("older turns can be read");
                // Declined is a way to be filed, too.
                added += scene.link.file_older(edition, before, page).unwrap_or(0);
            }
            scene.draw();
            added
        })
    }
}

/// As much as helps to understand why a wait hangs.
impl<F: Follow + Draw> std::fmt::Debug for Scene<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "a link that is {:?}, {:?}",
            self.link.state(),
            self.link.counters()
        )?;
        writeln!(
            f,
            "status: {:?}, trouble: {:?}",
            self.link.status(),
            self.link.trouble()
        )?;
        write!(f, "drawn:\n{}", self.text())
    }
}

impl<F: Follow + Draw> Scene<F> {
    fn text(&self) -> String {
        self.link.shown().map(F::draw).unwrap_or_default()
    }

    /// Draws what there is to draw; says whether that is another picture.
    fn draw(&mut self) -> bool {
        let text = self.text();
        let is_new = self.draws.last() != Some(&text);
        if is_new {
            self.draws.push(text);
        }
        is_new
    }
}

/// What a witness can be asked about.
pub trait Look {
    /// The turns that are shown.
    fn turns_shown(&self) -> Vec<TurnView>;
}

impl Look for Transcript {
    fn turns_shown(&self) -> Vec<TurnView> {
        self.turns().cloned().collect()
    }
}

impl Look for Library {
    fn turns_shown(&self) -> Vec<TurnView> {
        Vec::new()
    }
}

impl Witness {
    /// What is drawn and not on the disk.
    fn contradiction(&self, drawn: &[TurnView]) -> Option<String> {
        let reader = Reader::open(&self.data_dir).expect("the data folder can be read");
        let stored = reader
            .transcript(self.session)
            .expect("the session can be read");
        for turn in drawn {
            let Some(kept) = stored.turns.iter().find(|kept| kept.turn == turn.turn) else {
                return Some(format!(
                    "turn {} was drawn and is not on the disk",
                    turn.turn
                ));
            };
            for item in &turn.items {
                let kept = kept.items.iter().find(|kept| kept.item == item.item);
                let (Some(drawn), kept) =
                    (text_of(&item.body), kept.and_then(|k| text_of(&k.body)))
                else {
                    continue;
                };
                if !kept.is_some_and(|kept| kept.starts_with(drawn)) {
                    return Some(format!("{drawn:?} was drawn while the disk had {kept:?}"));
                }
            }
        }
        None
    }
}

fn text_of(body: &ItemBody) -> Option<&str> {
    match body {
        ItemBody::UserMessage { text, .. } | ItemBody::Text { text, .. } => Some(text),
        ItemBody::ToolCall { arguments, .. } => Some(arguments),
        ItemBody::Compacted { summary, .. } => Some(summary),
        ItemBody::Unsupported { .. } => None,
    }
}

async fn drive<F>(page: Page, seat: Arc<Seat<F>>)
where
    F: Follow + Draw + Look + Send + Sync + 'static,
{
    let mut requests = JoinSet::new();
    loop {
        if seat.scene.read(|scene| scene.link.needs_hello()) {
            if page.inner.left.load(Ordering::Relaxed) {
                return;
            }
            page.say_hello_again()
                .await
                .expect("a living page is welcome again");
            seat.scene.change(|scene| scene.link.said_hello());
        }
        let now_ms = page.now_ms();
        let next = seat.scene.change_quietly(|scene| {
            let next = scene.link.next(now_ms);
            if matches!(next, Next::Attach { .. } | Next::Poll { .. }) {
                page.inner.out.change(|out| *out += 1);
            }
            next
        });
        let timer = match next {
            Next::Attach {
                ticket,
                stream,
                cursor,
                ..
            } => {
                requests.spawn(attach(page.clone(), ticket, stream, cursor));
                continue;
            }
            Next::Poll {
                ticket, request, ..
            } => {
                requests.spawn(poll(page.clone(), ticket, request));
                continue;
            }
            Next::WaitUntil(ms) => Some(page.inner.clock.sleep_until(Duration::from_millis(ms))),
            Next::Nothing => None,
        };
        tokio::select! {
            Some(answer) = requests.join_next() => match answer {
                Ok(answer) => hear(&page, &seat, answer),
                // The runtime ends, and with it the test.
                Err(error) if error.is_cancelled() => return,
                Err(error) => panic!("a request of the client was lost: {error}"),
            },
            () = due(timer) => {}
            () = seat.nudge.notified() => {}
        }
    }
}

async fn attach(page: Page, ticket: Ticket, stream: StreamId, cursor: Option<Cursor>) -> Answer {
    let id = page.id();
    let fault = page.take_fault(CallKind::Attach);
    let cursor = cursor.filter(|_| fault != Some(Fault::Reset));
    let call = async move |line: Line| line.attach(id, stream, cursor).await;
    Answer::Attached(ticket, page.through(fault, call).await)
}

async fn poll(page: Page, ticket: Ticket, request: PollRequest) -> Answer {
    let fault = page.take_fault(CallKind::Poll);
    let call = async move |line: Line| line.poll(request).await;
    Answer::Polled(ticket, page.through(fault, call).await)
}

fn hear<F>(page: &Page, seat: &Seat<F>, answer: Answer)
where
    F: Follow + Draw + Look,
{
    let now_ms = page.now_ms();
    page.inner.out.change(|out| *out -= 1);
    seat.scene.change(|scene| {
        match answer {
            Answer::Attached(ticket, answers) => {
                for answer in answers {
                    scene.changes += scene.link.attached(ticket, answer, now_ms).changes.len();
                }
            }
            Answer::Polled(ticket, answers) => {
                for answer in answers {
                    scene.changes += scene.link.polled(ticket, answer, now_ms).changes.len();
                }
            }
        }
        if scene.draw()
            && let (Some(witness), Some(shown)) = (&seat.witness, scene.link.shown())
        {
            let found = witness.contradiction(&shown.turns_shown());
            scene.contradictions.extend(found);
        }
    });
}

async fn due(timer: Option<Sleep>) {
    match timer {
        Some(timer) => timer.await,
        None => std::future::pending().await,
    }
}
