//! Chaos: calls and answers lost, doubled, late and out of order, pages reloaded, hidden and closed, the engine restarted
//! in mid-turn, several windows at once. After every answer what is shown is the log up to its cursor; in the end, all of it.
//!
//! A story is a function of its seed: nothing in it waits for time, and what is said is in the log before the next thing
//! happens. `HOLDFAST_CHAOS_SEED=N` tells one story alone.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt;
use protocol::{
    Cursor, Epoch, ErrorCode, Event, EventBody, PageId, PollRequest, SessionId, StreamId,
    TranscriptPage,
};
use tests::{
    client::Page,
    dice::Dice,
    hand::{Answer as Heard, Call, Hand},
    model_server::{Answer, ModelServer},
    picture::Draw,
    verdict::{judge, laws_hold},
    world::World,
};
use transcript::{AnswerError, Follow, LOAD_LIMIT_MS, Link, LinkState, Transcript};

use super::DIALECT;

/// Stories that are told.
const SEEDS: u64 = 1_000;
/// Of these, so many are told in one world after another: starting one is what costs.
const SEEDS_PER_WORLD: u64 = 25;
/// Worlds at once.
const WORLDS: usize = 2;
/// What happens in one story.
const STEPS: u64 = 36;
const WINDOWS: u64 = 3;
/// Answers that are under way to one window at most.
const UNDER_WAY_MAX: usize = 6;
/// Pages that are gone and of which something is still under way.
const GHOSTS_MAX: usize = 6;
/// What an answer may carry at most, unless one event is larger.
const BYTES_MAX: u32 = 1_500;
/// What the engine may remember of pages, windows and attachments that are gone.
const REMEMBERED_MAX: usize = 520;

/// `answer-chaos`. Mutants: `NoSeqDrop`, `NoGapCheck`, `StateOnlyOnce`.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_thousand_storms_do_every_window_ends_with_the_whole_text_once() {
    if let Ok(seed) = std::env::var("HOLDFAST_CHAOS_SEED") {
        let seed = seed.parse::<u64>().expect("a seed is a number");
        let (server, mut world) = (ModelServer::start(DIALECT), World::new().await);
        world.add(server.provider()).await;
        Story::tell(seed, &server, &mut world).await;
        return;
    }
    let next = Arc::new(AtomicU64::new(0));
    let mut worlds = tokio::task::JoinSet::new();
    for _ in 0..WORLDS {
        let next = Arc::clone(&next);
        worlds.spawn(async move {
            loop {
                let first = next.fetch_add(SEEDS_PER_WORLD, Ordering::Relaxed);
                if first >= SEEDS {
                    return;
                }
                let (server, mut world) = (ModelServer::start(DIALECT), World::new().await);
                world.add(server.provider()).await;
                for seed in first..first + SEEDS_PER_WORLD {
                    let story = Story::tell(seed, &server, &mut world);
                    if let Err(panic) = AssertUnwindSafe(story).catch_unwind().await {
                        println!("HOLDFAST_CHAOS_SEED={seed} tells this story alone");
                        std::panic::resume_unwind(panic);
                    }
                }
            }
        });
    }
    while let Some(told) = worlds.join_next().await {
        if let Err(error) = told {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}

/// A window of a story.
struct Window {
    label: String,
    hand: Hand<Transcript>,
    under_way: Vec<Heard>,
    is_closed: bool,
    /// What was shown when it was last compared with the log.
    checked: Option<(u64, Cursor)>,
}

/// A page that is gone, and what of it may still be executed.
struct Ghost {
    label: String,
    page: PageId,
    call: Option<Call>,
}

/// A turn as it must be drawn.
struct Turn {
    message: String,
    said: String,
    end: &'static str,
}

struct Story<'a> {
    seed: u64,
    dice: Dice,
    world: &'a mut World,
    server: &'a ModelServer,
    session: SessionId,
    log: Log,
    windows: Vec<Window>,
    ghosts: Vec<Ghost>,
    turns: Vec<Turn>,
    /// The pieces that the running turn's model has still to say.
    to_say: u64,
}

impl Story<'_> {
    async fn tell(seed: u64, server: &ModelServer, world: &mut World) {
        let session = SessionId::from_bits(tests::sentinel::random_u128());
        let to_say = script(server, seed, 1, 3);
        let message = "Go.".to_owned();
        let begin = protocol::Op::StartSession {
            session,
            model: server.model(),
            text: message.clone(),
            folder: None,
            options: protocol::ModelOptions::default(),
            images: Vec::new(),
        };
        world.submit(begin).await.expect("it begins");
        let log = Log::follow(world, seed, session).await;
        let mut story = Story {
            seed,
            dice: Dice::new(seed),
            server,
            session,
            log,
            windows: Vec::new(),
            ghosts: Vec::new(),
            turns: vec![Turn {
                message,
                said: String::new(),
                end: "running",
            }],
            to_say,
            world,
        };
        story.hear_a_piece().await;
        for n in 0..story.dice.between(1, WINDOWS) {
            let window = story.window(&format!("{seed}, window {n}"));
            story.windows.push(window);
        }
        for _ in 0..STEPS {
            story.something_happens().await;
            story.nothing_piles_up();
        }
        story.it_ends_well().await;
    }

    fn window(&mut self, label: &str) -> Window {
        let link = Link::new(StreamId::Session(self.session), self.dice.below(u64::MAX));
        let mut hand = Hand::new(&self.world.line, label, link);
        hand.bytes_max = BYTES_MAX;
        // A page that has not said hello is told so by its first attach.
        Window {
            label: label.to_owned(),
            hand,
            under_way: Vec::new(),
            is_closed: false,
            checked: None,
        }
    }

    async fn something_happens(&mut self) {
        let at = self.dice.below(self.windows.len() as u64) as usize;
        match self.dice.below(100) {
            0..50 => self.ask(at).await,
            50..62 => self.arrive(at),
            62..70 => {
                let ms = self.dice.one_of(&[10, 200, 2_000, 13_000, 20_000]);
                self.windows[at].hand.now_ms += ms;
            }
            70..75 => self.reload(at).await,
            75..79 => self.haunt().await,
            79..83 => match self.dice.below(2) {
                0 => self.windows[at].hand.link.hide(),
                _ => self.windows[at].hand.link.show(),
            },
            83..85 => self.close(at).await,
            85..88 => self.windows[at].hand.link.retry(),
            88..98 => self.go_on().await,
            _ => self.restart().await,
        }
    }

    // What the line does.

    /// A window asks for what it wants, and something becomes of it.
    async fn ask(&mut self, at: usize) {
        let window = &mut self.windows[at];
        if window.hand.link.needs_hello() || window.checked.is_none() && self.dice.once_in(2) {
            // The engine may be restarted in between; then it is said again.
            let _ = window.hand.hello().await;
        }
        let Some(call) = window.hand.call() else {
            window.hand.now_ms += self.dice.below(3_000);
            return;
        };
        let fate = self.dice.below(100);
        let answer = match fate {
            // The call never arrives.
            0..8 => None,
            8..14 => {
                let codes = [
                    ErrorCode::UnknownEpoch,
                    ErrorCode::StorageFailed,
                    ErrorCode::Other,
                    ErrorCode::Superseded,
                ];
                let code = self.dice.one_of(&codes);
                Some(call.failed(AnswerError::Refused(code)))
            }
            14..20 => {
                // Executed twice; both answers arrive, at some time.
                let first = window.hand.execute(&call).await;
                window.under_way.push(first);
                Some(window.hand.execute(&call).await)
            }
            _ => Some(window.hand.execute(&call).await),
        };
        let is_lost = answer.is_none() || (20..30).contains(&fate);
        match answer {
            Some(answer) if (30..42).contains(&fate) => window.under_way.push(answer),
            Some(answer) if !is_lost => self.hear(at, answer),
            // Some transports notice that they lost something, and others do not.
            Some(_) | None if self.dice.once_in(2) => self.hear(at, call.lost()),
            Some(_) | None => {}
        }
        let under_way = &mut self.windows[at].under_way;
        if under_way.len() > UNDER_WAY_MAX {
            under_way.remove(0);
        }
    }

    /// An answer that was under way arrives, perhaps not for the last time.
    fn arrive(&mut self, at: usize) {
        let count = self.windows[at].under_way.len();
        if count == 0 {
            return;
        }
        let which = self.dice.below(count as u64) as usize;
        let answer = match self.dice.below(3) {
            0 => self.windows[at].under_way[which].clone(),
            _ => self.windows[at].under_way.remove(which),
        };
        self.hear(at, answer);
    }

    fn hear(&mut self, at: usize, answer: Heard) {
        if let Heard::Polled(_, Ok(batch)) = &answer {
            let size = |event: &Event| serde_json::to_string(event).expect("JSON").len();
            let bytes: usize = batch.events.iter().map(size).sum();
            assert!(
                bytes <= 2 * BYTES_MAX as usize || batch.events.len() == 1,
                "{bytes} bytes in one answer"
            );
        }
        self.windows[at].hand.hear(answer);
        self.check(at);
    }

    /// What is shown is the log up to the cursor, and nothing else.
    fn check(&mut self, at: usize) {
        let window = &mut self.windows[at];
        let Some(shown) = window.hand.link.shown() else {
            return;
        };
        let now = (window.hand.link.counters().swaps, shown.cursor());
        if window.checked == Some(now) {
            return;
        }
        window.checked = Some(now);
        let count = shown.cursor().count() as usize;
        let replayed = self.log.pages.get(count);
        let replayed = replayed.expect("no more than the log has");
        assert_eq!(shown.to_page(), *replayed, "{}", window.label);
    }

    // What windows do.

    async fn reload(&mut self, at: usize) {
        let label = self.windows[at].label.clone();
        let fresh = self.window(&label);
        let mut old = std::mem::replace(&mut self.windows[at], fresh);
        let ghost = Ghost {
            label,
            page: old.hand.page,
            call: old.hand.call(),
        };
        self.ghosts.push(ghost);
        if self.ghosts.len() > GHOSTS_MAX {
            self.ghosts.remove(0);
        }
        self.windows[at]
            .hand
            .hello()
            .await
            .expect("a fresh page is welcome");
    }

    async fn close(&mut self, at: usize) {
        let window = &mut self.windows[at];
        if window.is_closed {
            let label = window.label.clone();
            self.windows[at] = self.window(&label);
            return;
        }
        window.is_closed = true;
        if let Some(epoch) = window.hand.link.close()
            && self.dice.once_in(2)
        {
            self.world.line.detach(epoch).await.expect("noted");
        }
        if self.dice.once_in(2) {
            self.world.engine().window_gone(&window.label);
        }
        assert!(window.hand.call().is_none(), "a closed window asks");
    }

    /// Something of a page that is gone is executed.
    async fn haunt(&mut self) {
        let Some(ghost) = self.ghosts.last() else {
            return;
        };
        // Nobody is there any more to hear what it is told.
        match (&ghost.call, self.dice.once_in(2)) {
            (Some(Call::Attach { stream, cursor, .. }), true) => {
                let _ = self.world.line.attach(ghost.page, *stream, *cursor).await;
            }
            (Some(Call::Poll { request, .. }), true) => {
                let request = PollRequest {
                    wait_ms: 0,
                    ..*request
                };
                let _ = self.world.line.poll(request).await;
            }
            (Some(_) | None, _) => {
                let _ = self.world.line.hello(&ghost.label, ghost.page).await;
            }
        }
    }

    // What is said.

    async fn go_on(&mut self) {
        if self.turns.last().is_some_and(|turn| turn.end != "running") {
            let number = self.turns.len() as u64 + 1;
            let pieces = self.dice.between(1, 4);
            self.to_say = script(self.server, self.seed, number, pieces);
            let message = format!("And {number}?");
            self.world.say(self.session, &message).await;
            self.turns.push(Turn {
                message,
                said: String::new(),
                end: "running",
            });
            self.hear_a_piece().await;
            return;
        }
        let (turn, left) = (self.turns.len() as u64, self.to_say);
        self.server.pass(&gate(self.seed, turn, left)).await;
        if left > 0 {
            self.hear_a_piece().await;
        } else {
            self.hear_the_end("completed").await;
        }
    }

    /// Waits until the next piece is in the log, and the model stands behind it.
    async fn hear_a_piece(&mut self) {
        let turn = self.turns.len() as u64;
        let piece = piece(turn, self.to_say);
        self.to_say -= 1;
        self.server
            .arrived(&gate(self.seed, turn, self.to_say))
            .await;
        self.log.until_said(self.world, &piece).await;
        if let Some(turn) = self.turns.last_mut() {
            turn.said.push_str(&piece);
        }
    }

    async fn hear_the_end(&mut self, end: &'static str) {
        self.log.until_ended(self.world, self.turns.len()).await;
        if let Some(turn) = self.turns.last_mut() {
            turn.end = end;
        }
    }

    async fn restart(&mut self) {
        self.world.quit().await;
        self.server.release_all();
        self.world.open().await;
        self.log.follow_again(self.world).await;
        if self.turns.last().is_some_and(|turn| turn.end == "running") {
            self.hear_the_end("interrupted: AppExit").await;
        }
    }

    // What must hold.

    fn nothing_piles_up(&self) {
        let now = self.world.engine().counters();
        // One for each window, and the story's own.
        assert!(now.attachments_now <= self.windows.len() + 1, "{now:?}");
        assert_eq!(now.parked_now, 0, "nobody waits in here");
        assert!(now.remembered_now <= REMEMBERED_MAX, "{now:?}");
    }

    /// The line is good again: every window gets there, soon, and with few questions.
    async fn it_ends_well(&mut self) {
        while self.turns.last().is_some_and(|turn| turn.end == "running") {
            self.go_on().await;
        }
        let whole: String = self.turns.iter().map(Turn::drawn).collect();
        let head = self.log.cursor;
        for at in 0..self.windows.len() {
            if self.windows[at].is_closed {
                assert!(
                    self.windows[at].hand.call().is_none(),
                    "a closed window asks"
                );
                continue;
            }
            let window = &mut self.windows[at];
            window.hand.link.show();
            window.hand.link.retry();
            let (began_ms, before) = (window.hand.now_ms, *window.hand.link.counters());
            loop {
                let window = &mut self.windows[at];
                let link = &window.hand.link;
                let is_there = link.shown().is_some_and(|shown| shown.cursor() == head);
                if is_there && link.state() == LinkState::Live {
                    break;
                }
                assert!(
                    link.counters().polls + link.counters().attaches
                        < before.polls + before.attaches + 60,
                    "does not heal: {:?}, {:?}",
                    link.counters(),
                    link.trouble()
                );
                if link.needs_hello() {
                    window.hand.hello().await.expect("a living page is welcome");
                }
                let call = window.hand.next_call();
                let answer = window.hand.execute(&call).await;
                self.hear(at, answer);
            }
            let window = &self.windows[at];
            let now = window.hand.link.counters();
            assert!(now.attaches - before.attaches <= 4, "{now:?}, {before:?}");
            // At most: a lost answer to its limit, and the repairs after it.
            let took_ms = window.hand.now_ms - began_ms;
            assert!(took_ms <= LOAD_LIMIT_MS + 5 * 2_000, "{took_ms} ms");
            let shown = window.hand.link.shown().expect("something is shown");
            assert_eq!(shown.draw(), whole);
        }
        self.stored_and_opened_cold().await;
        for window in &self.windows {
            self.world.engine().window_gone(&window.label);
        }
        self.world.engine().window_gone(&self.log.label);
        self.world.engine().window_gone("a cold window");
        for ghost in &self.ghosts {
            self.world.engine().window_gone(&ghost.label);
        }
        let counters = || self.world.engine().counters();
        super::until("the last poll to end", || counters().parked_now == 0).await;
        assert_eq!(counters().attachments_now, 0);
    }
}

impl Story<'_> {
    /// What is stored, and what a page sees that comes now, is what was replayed.
    async fn stored_and_opened_cold(&mut self) {
        // Every tenth with all that there is to say about a session.
        if self.seed.is_multiple_of(10) {
            judge(self.world, self.session, &[]).await;
            return;
        }
        let replayed = self.log.fold.to_page();
        let stored = self.world.reader().transcript(self.session);
        assert_eq!(stored.expect("it can be read"), replayed);
        let cold = self
            .world
            .line
            .attach(self.log.page, StreamId::Session(self.session), None);
        let page = cold.await.expect("it may").page;
        assert_eq!(page, Some(protocol::Page::Session(replayed)));
        laws_hold(&self.log.events);
    }
}

impl Turn {
    fn drawn(&self) -> String {
        let Self { message, said, end } = self;
        format!("you: {message}\nmodel: {said}\n({end})\n")
    }
}

fn piece(turn: u64, left: u64) -> String {
    format!("turn{turn}piece{left} ")
}

fn gate(seed: u64, turn: u64, left: u64) -> String {
    format!("seed {seed}, turn {turn}, {left} pieces left")
}

/// An answer of so many pieces, each behind a gate but the first, and the end behind one too.
fn script(server: &ModelServer, seed: u64, turn: u64, pieces: u64) -> u64 {
    let mut answer = Answer::new(DIALECT);
    for left in (0..pieces).rev() {
        answer = answer
            .says(&piece(turn, left + 1))
            .gate(&gate(seed, turn, left));
    }
    server.script(answer.ends());
    pieces
}

/// The log as it grows: followed by the story itself, over a good line.
struct Log {
    label: String,
    stream: StreamId,
    page: PageId,
    epoch: Epoch,
    cursor: Cursor,
    events: Vec<Event>,
    fold: Transcript,
    /// What is drawn after so many events.
    pages: Vec<TranscriptPage>,
}

impl Log {
    async fn follow(world: &World, seed: u64, session: SessionId) -> Self {
        let label = format!("{seed}, the log");
        let stream = StreamId::Session(session);
        let page = Page::load(&world.line, &label).await;
        let attached = page.attach(stream).await.expect("it may");
        let fold = Transcript::empty(session, attached.head.log());
        Self {
            label,
            stream,
            page: page.id(),
            epoch: attached.epoch,
            cursor: fold.cursor(),
            events: Vec::new(),
            pages: vec![fold.to_page()],
            fold,
        }
    }

    async fn follow_again(&mut self, world: &World) {
        let page = Page::load(&world.line, &self.label).await;
        self.page = page.id();
        self.epoch = page.attach(self.stream).await.expect("it may").epoch;
    }

    async fn until_said(&mut self, world: &World, piece: &str) {
        let says = |event: &Event| match &event.body {
            EventBody::TextAppended { text, .. } => text.contains(piece),
            _ => false,
        };
        while !self.events.iter().rev().take(4).any(says) {
            self.more(world).await;
        }
    }

    async fn until_ended(&mut self, world: &World, turns: usize) {
        let is_end = |event: &&Event| matches!(event.body, EventBody::TurnEnded { .. });
        while self.events.iter().filter(is_end).count() < turns {
            self.more(world).await;
        }
    }

    /// Waits for more events; text that waits to be joined is let go.
    async fn more(&mut self, world: &World) {
        let request = PollRequest {
            epoch: self.epoch,
            after: self.cursor,
            seen_status: u64::MAX,
            wait_ms: 8_000,
            max_bytes: 1024 * 1024,
        };
        let flush = async {
            loop {
                world
                    .clock
                    .fire_next_within(Duration::from_millis(33))
                    .await;
            }
        };
        let batch = tokio::select! {
            biased;
            batch = world.line.poll(request) => batch.expect("an answer"),
            () = flush => unreachable!("it goes on for ever"),
        };
        for event in batch.events {
            self.fold.apply(&event, &mut Vec::new());
            self.cursor = self.fold.cursor();
            self.pages.push(self.fold.to_page());
            self.events.push(event);
        }
    }
}
