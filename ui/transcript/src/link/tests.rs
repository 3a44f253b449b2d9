//! A link against an engine in memory, over a transport that does whatever the test says.

use proptest::prelude::*;
use protocol::{
    AttachMode, AttachReason, Attached, Batch, Cursor, Epoch, ErrorCode, Event, EventBody, LogId,
    Origin, Page, Phase, PollRequest, ResetReason, Seq, SessionId, Status, StreamId, Timestamp,
    TitleBy, TranscriptPage,
};

use super::*;
use crate::WrongPage;

const SESSION: SessionId = SessionId::from_bits(7);
const STREAM: StreamId = StreamId::Session(SESSION);

/// A line that can be had on a page only.
const ON_A_PAGE: &str = "on a page";

/// The simplest fold there is: remembers every event it was given.
#[derive(Clone, Debug, PartialEq)]
struct Notes {
    cursor: Cursor,
    lines: Vec<String>,
}

impl Follow for Notes {
    type Change = String;

    fn from_page(page: Page) -> Result<Self, WrongPage> {
        match page {
            Page::Session(page) => Ok(Self {
                cursor: page.as_of,
                lines: page
                    .title
                    .split_terminator('\n')
                    .map(str::to_owned)
                    .collect(),
            }),
            Page::Library(_) => Err(WrongPage),
        }
    }

    fn stream(&self) -> StreamId {
        STREAM
    }

    fn cursor(&self) -> Cursor {
        self.cursor
    }

    fn lacks(&self, event: &Event) -> bool {
        matches!(&event.body, EventBody::SessionRenamed { title, .. } if title == ON_A_PAGE)
    }

    fn apply(&mut self, event: &Event, changes: &mut Vec<String>) {
        assert_eq!(
            self.cursor.admits(event.seq),
            Admission::Next,
            "the link let an odd event in"
        );
        let EventBody::SessionRenamed { title, .. } = &event.body else {
            panic!("not of this test: {event:?}");
        };
        self.lines.push(title.clone());
        changes.push(title.clone());
        self.cursor = self.cursor.advanced_to(event.seq);
    }
}

/// An engine with one session. Its lines say which log and place they are of, so that nothing can pass for another.
#[derive(Clone, Debug)]
struct Engine {
    log: LogId,
    lines: Vec<String>,
    epochs: Vec<Epoch>,
    minted: u64,
    /// The page of a fresh attach ends so many events before the head.
    page_lag: usize,
    max_events: usize,
    status: Option<Status>,
}

impl Engine {
    fn with(count: usize) -> Self {
        let mut engine = Self {
            log: LogId::from_bits(1),
            lines: Vec::new(),
            epochs: Vec::new(),
            minted: 1_000,
            page_lag: 0,
            max_events: 100,
            status: None,
        };
        engine.write(count);
        engine
    }

    fn write(&mut self, count: usize) {
        for _ in 0..count {
            let line = format!("{}/{}", self.log, self.lines.len() + 1);
            self.lines.push(line);
        }
    }

    /// Another database takes the place of this one, in another boot.
    fn replace_log(&mut self, count: usize) {
        self.log = LogId::from_bits(self.log.bits() + 1);
        self.lines.clear();
        self.epochs.clear();
        self.write(count);
    }

    fn restart(&mut self) {
        self.epochs.clear();
    }

    fn head(&self) -> Cursor {
        Cursor::from_count(self.log, self.lines.len() as u64)
    }

    fn events(&self, after: u64, limit: usize) -> Vec<Event> {
        (after..self.lines.len() as u64)
            .take(limit)
            .map(|index| Event {
                seq: Seq::new(index + 1),
                at: Timestamp::from_millis(0),
                turn: None,
                body: EventBody::SessionRenamed {
                    title: self.lines[index as usize].clone(),
                    by: TitleBy::User,
                },
            })
            .collect()
    }

    fn page(&self, count: usize) -> Page {
        let title: String = self.lines[..count]
            .iter()
            .map(|line| format!("{line}\n"))
            .collect();
        Page::Session(TranscriptPage {
            session: SESSION,
            title,
            origin: Origin::Conversation,
            model: None,
            folder: None,
            options: protocol::ModelOptions::default(),
            turns: Vec::new(),
            more_before: false,
            taken_out: None,
            tip: None,
            as_of: Cursor::from_count(self.log, count as u64),
        })
    }

    fn attach(&mut self, cursor: Option<Cursor>) -> Attached {
        self.minted += 1;
        let epoch = Epoch::new(self.minted);
        self.epochs.push(epoch);
        let mode = match cursor {
            None => AttachMode::Fresh,
            Some(cursor) if cursor.log() != self.log => AttachMode::Reset(ResetReason::ForeignLog),
            Some(cursor) if cursor.count() > self.head().count() => {
                AttachMode::Reset(ResetReason::AheadOfHead)
            }
            Some(_) => AttachMode::Resume,
        };
        let page = match mode {
            AttachMode::Resume => None,
            AttachMode::Fresh | AttachMode::Reset(_) => {
                Some(self.page(self.lines.len().saturating_sub(self.page_lag)))
            }
        };
        Attached {
            epoch,
            stream: STREAM,
            mode,
            head: self.head(),
            page,
            status: self.status.clone(),
        }
    }

    fn poll(&self, request: PollRequest) -> Result<Batch, AnswerError> {
        if !self.epochs.contains(&request.epoch) {
            return Err(AnswerError::Refused(ErrorCode::UnknownEpoch));
        }
        Ok(Batch {
            epoch: request.epoch,
            events: self.events(request.after.count(), self.max_events),
            head: self.head(),
            status: self.status.clone(),
        })
    }
}

/// A link, its engine, and a clock that only the test moves.
struct Desk {
    link: Link<Notes>,
    engine: Engine,
    now: u64,
}

impl Desk {
    fn with(count: usize) -> Self {
        Self {
            link: Link::new(STREAM, 42),
            engine: Engine::with(count),
            now: 10_000,
        }
    }

    /// One that has attached and is live.
    fn live(count: usize) -> Self {
        let mut desk = Self::with(count);
        desk.attach();
        assert_eq!(desk.link.state(), LinkState::Live);
        desk
    }

    /// The next request, when it may be made: moves the clock there.
    fn request(&mut self) -> Next {
        loop {
            match self.link.next(self.now) {
                Next::WaitUntil(at) => {
                    assert!(at > self.now, "waiting for the past");
                    self.now = at;
                }
                next => return next,
            }
        }
    }

    fn attach_request(&mut self) -> (Ticket, Option<Cursor>) {
        match self.request() {
            Next::Attach { ticket, cursor, .. } => (ticket, cursor),
            other => panic!("expected an attach: {other:?}"),
        }
    }

    fn poll_request(&mut self) -> (Ticket, PollRequest) {
        match self.request() {
            Next::Poll {
                ticket, request, ..
            } => (ticket, request),
            other => panic!("expected a poll: {other:?}"),
        }
    }

    fn attach(&mut self) -> Heard<String> {
        let (ticket, cursor) = self.attach_request();
        let answer = self.engine.attach(cursor);
        self.link.attached(ticket, Ok(answer), self.now)
    }

    fn poll(&mut self) -> Heard<String> {
        let (ticket, request) = self.poll_request();
        let answer = self.engine.poll(request);
        self.link.polled(ticket, answer, self.now)
    }

    fn fail(&mut self, error: AnswerError) {
        match self.request() {
            Next::Attach { ticket, .. } => {
                self.link.attached(ticket, Err(error), self.now);
            }
            Next::Poll { ticket, .. } => {
                self.link.polled(ticket, Err(error), self.now);
            }
            other => panic!("nothing to fail: {other:?}"),
        }
    }

    fn lines(&self) -> Vec<String> {
        self.link
            .shown()
            .map(|notes| notes.lines.clone())
            .unwrap_or_default()
    }

    #[track_caller]
    fn assert_up_to_date(&self) {
        assert_eq!(self.lines(), self.engine.lines);
        assert_eq!(
            self.link.shown().map(Follow::cursor),
            Some(self.engine.head())
        );
    }
}

#[test]
fn a_fresh_link_shows_the_page_and_then_every_event_once() {
    let mut desk = Desk::with(3);
    assert_eq!(desk.link.state(), LinkState::Detached);
    let (ticket, cursor) = desk.attach_request();
    assert_eq!(cursor, None, "no cursor is not cursor 0");
    assert_eq!(desk.link.state(), LinkState::Attaching);
    let answer = desk.engine.attach(cursor);
    let heard = desk.link.attached(ticket, Ok(answer), desk.now);
    assert!(heard.swapped && heard.changes.is_empty());
    desk.assert_up_to_date();
    desk.engine.write(2);
    let heard = desk.poll();
    assert_eq!(heard.changes, desk.engine.lines[3..]);
    desk.assert_up_to_date();
    assert_eq!(desk.link.counters().swaps, 1);
}

#[test]
fn an_empty_stream_is_shown_as_empty_only_after_it_was_loaded() {
    let mut desk = Desk::with(0);
    assert!(desk.link.shown().is_none());
    desk.fail(AnswerError::Lost);
    assert!(
        desk.link.shown().is_none(),
        "a failed load is not an empty chat"
    );
    assert!(desk.attach().swapped);
    desk.assert_up_to_date();
}

#[test]
fn one_request_is_out_at_a_time_and_waits_until_its_limit() {
    let mut desk = Desk::with(1);
    let Next::Attach { limit_ms, .. } = desk.link.next(desk.now) else {
        panic!("expected an attach");
    };
    assert_eq!(limit_ms, desk.now + LOAD_LIMIT_MS);
    assert_eq!(desk.link.next(desk.now + 1), Next::WaitUntil(limit_ms));
    assert_eq!(desk.link.next(limit_ms - 1), Next::WaitUntil(limit_ms));
    assert_eq!(desk.link.counters().attaches, 1);
}

#[test]
fn a_staged_page_is_swapped_in_when_it_has_reached_the_head_named_by_the_attach() {
    let mut desk = Desk::live(3);
    let old = desk.lines();
    desk.engine.replace_log(6);
    desk.engine.page_lag = 4;
    desk.engine.max_events = 1;
    desk.poll();
    assert_eq!(desk.link.state(), LinkState::Detached);
    let heard = desk.attach();
    assert!(!heard.swapped);
    for _ in 0..3 {
        assert_eq!(desk.link.state(), LinkState::Replaying);
        let heard = desk.poll();
        assert_eq!((heard.swapped, heard.changes.len()), (false, 0));
        assert_eq!(desk.lines(), old, "half a transcript was shown");
    }
    let heard = desk.poll();
    assert!(heard.swapped && heard.changes.is_empty());
    assert_eq!(desk.link.state(), LinkState::Live);
    desk.assert_up_to_date();
    assert_eq!(desk.link.counters().swaps, 2);
}

#[test]
fn resuming_replays_what_was_missed_into_what_is_shown() {
    let mut desk = Desk::live(3);
    desk.engine.write(4);
    desk.engine.restart();
    desk.engine.max_events = 2;
    desk.poll();
    assert!(!desk.attach().swapped);
    assert_eq!(desk.link.state(), LinkState::Replaying);
    assert_eq!(desk.poll().changes.len(), 2);
    assert_eq!(desk.link.state(), LinkState::Replaying);
    assert_eq!(desk.poll().changes.len(), 2);
    assert_eq!(desk.link.state(), LinkState::Live);
    desk.assert_up_to_date();
    assert_eq!(
        desk.link.counters().swaps,
        1,
        "a resume needs no second page"
    );
}

#[test]
fn a_foreign_log_replaces_what_is_shown_and_nothing_of_the_old_stays() {
    let mut desk = Desk::live(5);
    desk.engine.replace_log(5);
    desk.poll();
    desk.attach();
    desk.assert_up_to_date();
    assert_eq!(desk.link.counters().resets, 1);
}

#[test]
fn a_log_that_lost_its_tail_is_shown_as_it_is_now() {
    let mut desk = Desk::live(5);
    desk.engine.lines.truncate(2);
    desk.poll();
    assert_eq!(
        desk.link.counters().gaps,
        1,
        "a head behind the cursor is not an ok"
    );
    desk.attach();
    desk.assert_up_to_date();
}

#[test]
fn a_failed_load_changes_nothing_that_is_shown_and_is_repaired_once() {
    let mut desk = Desk::live(3);
    let shown = desk.lines();
    desk.engine.restart();
    desk.engine.write(1);
    desk.poll();
    desk.fail(AnswerError::Refused(ErrorCode::StorageFailed));
    assert_eq!(desk.lines(), shown);
    assert_eq!(
        desk.link.trouble(),
        Some(&Trouble::Refused(ErrorCode::StorageFailed))
    );
    desk.attach();
    desk.poll();
    desk.assert_up_to_date();
    assert_eq!(desk.link.trouble(), None);
}

#[test]
fn an_attach_answer_that_comes_after_a_newer_attach_is_declined() {
    let mut desk = Desk::with(3);
    let (held_ticket, cursor) = desk.attach_request();
    let held = desk.engine.attach(cursor);
    let (ticket, cursor) = desk.attach_request();
    assert!(
        desk.now >= 10_000 + LOAD_LIMIT_MS,
        "the first was given up at its limit"
    );
    desk.engine.write(10);
    let answer = desk.engine.attach(cursor);
    desk.link.attached(ticket, Ok(answer), desk.now);
    let heard = desk.link.attached(held_ticket, Ok(held), desk.now);
    assert_eq!((heard.swapped, heard.changes.len()), (false, 0));
    desk.assert_up_to_date();
    let counters = desk.link.counters();
    assert_eq!(
        (counters.swaps, counters.declined, counters.given_up),
        (1, 1, 1)
    );
}

#[test]
fn a_poll_answer_of_an_earlier_log_is_declined_even_if_its_numbers_fit() {
    let mut desk = Desk::live(10);
    let (held_ticket, request) = desk.poll_request();
    desk.engine.write(2);
    let held = desk.engine.poll(request);
    desk.engine.replace_log(10);
    desk.attach();
    desk.assert_up_to_date();
    desk.link.polled(held_ticket, held, desk.now);
    desk.assert_up_to_date();
    assert_eq!(desk.link.counters().declined, 1);
}

#[test]
fn an_earlier_attach_answer_does_not_take_the_place_of_the_newer_one() {
    let mut desk = Desk::with(3);
    let (held_ticket, cursor) = desk.attach_request();
    let held = desk.engine.attach(cursor);
    let (ticket, cursor) = desk.attach_request();
    let heard = desk.link.attached(held_ticket, Ok(held), desk.now);
    assert!(!heard.swapped, "its epoch ended with the newer attach");
    assert_eq!(desk.link.state(), LinkState::Attaching);
    let answer = desk.engine.attach(cursor);
    let epoch = answer.epoch;
    assert!(desk.link.attached(ticket, Ok(answer), desk.now).swapped);
    assert_eq!(desk.link.epoch(), Some(epoch));
    assert_eq!(desk.link.counters().declined, 1);
}

#[test]
fn an_earlier_poll_answer_does_not_take_the_place_of_the_newer_one() {
    let mut desk = Desk::live(3);
    let (held_ticket, request) = desk.poll_request();
    let held = desk.engine.poll(request);
    desk.attach();
    let (ticket, request) = desk.poll_request();
    desk.engine.write(1);
    desk.link.polled(held_ticket, held, desk.now);
    assert!(
        matches!(desk.link.next(desk.now), Next::WaitUntil(_)),
        "the newer poll is still out"
    );
    let answer = desk.engine.poll(request);
    assert_eq!(
        desk.link.polled(ticket, answer, desk.now).changes.len(),
        1,
        "and its answer still counts"
    );
    assert_eq!(desk.link.counters().declined, 1);
}

#[test]
fn events_under_the_head_of_another_log_are_not_applied() {
    let mut desk = Desk::live(3);
    desk.engine.write(1);
    let (ticket, request) = desk.poll_request();
    let mut batch = desk.engine.poll(request).expect("a batch");
    batch.head = Cursor::from_count(LogId::from_bits(99), 4);
    assert!(
        desk.link
            .polled(ticket, Ok(batch), desk.now)
            .changes
            .is_empty()
    );
    assert_eq!((desk.lines().len(), desk.link.counters().gaps), (3, 1));
    desk.attach();
    desk.poll();
    desk.assert_up_to_date();
}

#[test]
fn a_wrongly_declined_answer_costs_one_more_poll_and_nothing_else() {
    let mut desk = Desk::live(1);
    desk.engine.write(1);
    let (ticket, request) = desk.poll_request();
    let mut answer = desk.engine.poll(request);
    if let Ok(batch) = &mut answer {
        batch.epoch = Epoch::new(3);
    }
    desk.link.polled(ticket, answer, desk.now);
    assert_eq!(desk.lines().len(), 1);
    let before = desk.now;
    desk.poll();
    assert!(
        desk.now >= before + REPAIR_DELAY_MS,
        "a repair takes its time"
    );
    desk.assert_up_to_date();
    let counters = desk.link.counters();
    assert_eq!(
        (counters.declined, counters.repairs, counters.attaches),
        (1, 1, 1)
    );
}

#[test]
fn the_same_answer_twice_counts_once() {
    let mut desk = Desk::live(1);
    desk.engine.write(2);
    let (ticket, request) = desk.poll_request();
    let answer = desk.engine.poll(request);
    assert_eq!(
        desk.link
            .polled(ticket, answer.clone(), desk.now)
            .changes
            .len(),
        2
    );
    assert_eq!(desk.link.polled(ticket, answer, desk.now).changes.len(), 0);
    desk.assert_up_to_date();
}

#[test]
fn repeated_events_are_dropped_and_a_hole_is_never_stepped_over() {
    let mut desk = Desk::live(2);
    desk.engine.write(6);
    let (ticket, request) = desk.poll_request();
    let mut batch = desk.engine.poll(request).expect("a batch");
    let mut events = desk.engine.events(0, 4);
    events.extend(desk.engine.events(5, 100));
    batch.events = events;
    let heard = desk.link.polled(ticket, Ok(batch), desk.now);
    assert_eq!(
        heard.changes,
        desk.engine.lines[2..4],
        "what fits before the hole is kept"
    );
    assert_eq!(desk.lines(), desk.engine.lines[..4]);
    assert_eq!(
        (desk.link.counters().repeated, desk.link.counters().gaps),
        (2, 1)
    );
    let (ticket, cursor) = desk.attach_request();
    assert_eq!(
        cursor,
        Some(Cursor::from_count(desk.engine.log, 4)),
        "repaired from where the hole begins"
    );
    let answer = desk.engine.attach(cursor);
    desk.link.attached(ticket, Ok(answer), desk.now);
    desk.poll();
    desk.assert_up_to_date();
}

#[test]
fn no_events_with_a_head_beyond_the_cursor_is_a_gap() {
    let mut desk = Desk::live(2);
    desk.engine.write(1);
    desk.engine.max_events = 0;
    desk.poll();
    assert_eq!(desk.link.counters().gaps, 1);
    desk.engine.max_events = 1;
    desk.attach();
    desk.poll();
    desk.assert_up_to_date();
}

#[test]
fn a_lost_answer_in_the_middle_is_asked_for_again_from_the_applied_cursor() {
    let mut desk = Desk::live(2);
    desk.engine.write(3);
    let (ticket, lost) = desk.poll_request();
    desk.link.polled(ticket, Err(AnswerError::Lost), desk.now);
    let (ticket, again) = desk.poll_request();
    assert_eq!(again.after, lost.after);
    let answer = desk.engine.poll(again);
    desk.link.polled(ticket, answer, desk.now);
    desk.assert_up_to_date();
    assert_eq!(
        desk.link.counters().attaches,
        1,
        "a blip does not need a new attachment"
    );
}

#[test]
fn an_answer_that_never_comes_is_given_up_at_its_limit_and_declined_when_late() {
    let mut desk = Desk::live(2);
    let (held_ticket, request) = desk.poll_request();
    let asked = desk.now;
    desk.engine.write(1);
    let late = desk.engine.poll(request);
    desk.attach();
    assert!(desk.now >= asked + u64::from(POLL_WAIT_MS) + POLL_MARGIN_MS);
    desk.link.polled(held_ticket, late, desk.now);
    assert_eq!(desk.lines().len(), 2);
    desk.poll();
    desk.assert_up_to_date();
    let counters = desk.link.counters();
    assert_eq!(
        (counters.given_up, counters.declined, counters.attaches),
        (1, 1, 2)
    );
}

#[test]
fn what_only_a_page_has_is_loaded_at_once_however_often_and_costs_no_repair() {
    let mut desk = Desk::live(1);
    for loads in 2..=u64::from(REPAIRS_MAX) + 4 {
        let since = desk.now;
        desk.engine.lines.push(ON_A_PAGE.to_owned());
        assert!(!desk.poll().swapped);
        assert!(desk.attach().swapped);
        desk.assert_up_to_date();
        assert_eq!(desk.now, since, "it waited");
        assert_eq!(desk.link.state(), LinkState::Live);
        let counters = desk.link.counters();
        assert_eq!((counters.repairs, counters.gaps), (0, 0));
        assert_eq!(counters.swaps, loads);
    }
    assert_eq!(desk.link.trouble(), None);
}

#[test]
fn pages_that_lead_no_further_end_at_the_button() {
    let mut desk = Desk::live(1);
    desk.engine.page_lag = 1;
    desk.engine.lines.push(ON_A_PAGE.to_owned());
    for _ in 0..=REPAIRS_MAX {
        desk.poll();
        desk.attach();
    }
    desk.poll();
    assert_eq!(desk.link.state(), LinkState::NeedsManual);
    assert_eq!(desk.lines(), desk.engine.lines[..1]);
}

#[test]
fn twenty_failing_loads_cost_four_repairs_each_later_than_the_last_and_then_a_button() {
    let mut desk = Desk::with(2);
    let mut asked_at = Vec::new();
    for _ in 0..20 {
        match desk.request() {
            Next::Attach { ticket, .. } => {
                asked_at.push(desk.now);
                desk.link.attached(ticket, Err(AnswerError::Lost), desk.now);
            }
            Next::Nothing => break,
            other => panic!("expected an attach: {other:?}"),
        }
    }
    assert_eq!(desk.link.state(), LinkState::NeedsManual);
    assert_eq!(desk.link.trouble(), Some(&Trouble::Lost));
    let waits: Vec<u64> = asked_at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(waits.len() as u32, REPAIRS_MAX);
    for (tries, wait) in waits.iter().enumerate() {
        let floor = (REPAIR_DELAY_MS << tries).min(REPAIR_DELAY_MS_MAX);
        assert!(
            (floor..=floor + floor / 2).contains(wait),
            "repair {tries} after {wait} ms, floor {floor}"
        );
    }
    assert_eq!(desk.link.next(desk.now + 1_000_000), Next::Nothing);
    desk.link.retry();
    assert!(desk.attach().swapped);
    desk.assert_up_to_date();
}

#[test]
fn links_that_fail_together_do_not_come_back_together() {
    let due = |seed: u64| {
        let mut link = Link::<Notes>::new(STREAM, seed);
        let Next::Attach { ticket, .. } = link.next(0) else {
            panic!("expected an attach");
        };
        link.attached(ticket, Err(AnswerError::Lost), 0);
        link.next(0)
    };
    let mut times: Vec<_> = (0..32).map(|seed| format!("{:?}", due(seed))).collect();
    times.sort();
    times.dedup();
    assert!(times.len() > 16, "{times:?}");
}

#[test]
fn resets_for_ever_end_at_the_button() {
    // An engine that forgets every epoch, one whose first answer is good, and one whose answers never join on.
    for kind in ["forgets", "one good answer", "gaps"] {
        let mut desk = Desk::live(3);
        for _ in 0..40 {
            if desk.link.state() == LinkState::NeedsManual {
                break;
            }
            match desk.request() {
                Next::Attach { ticket, .. } => {
                    let mut answer = desk.engine.attach(None);
                    answer.mode = AttachMode::Reset(ResetReason::AheadOfHead);
                    desk.link.attached(ticket, Ok(answer), desk.now);
                    desk.engine.write(1);
                }
                Next::Poll {
                    ticket, request, ..
                } => {
                    let first = request.after.count() + 1 == desk.engine.head().count();
                    let answer = match kind {
                        "one good answer" if first => desk.engine.poll(request),
                        "gaps" => desk.engine.poll(request).map(|mut batch| {
                            batch.events.clear();
                            batch.head = Cursor::from_count(desk.engine.log, u64::MAX);
                            batch
                        }),
                        _ => Err(AnswerError::Refused(ErrorCode::UnknownEpoch)),
                    };
                    desk.link.polled(ticket, answer, desk.now);
                }
                Next::WaitUntil(_) | Next::Nothing => break,
            }
        }
        assert_eq!(desk.link.state(), LinkState::NeedsManual, "{kind}");
        assert_eq!(
            desk.link.counters().repairs,
            u64::from(REPAIRS_MAX),
            "{kind}"
        );
        desk.link.close();
        desk.link.retry();
        assert_eq!(
            desk.link.next(desk.now),
            Next::Nothing,
            "a closed link revived"
        );
    }
}

#[test]
fn success_gives_the_budget_back_only_with_real_progress() {
    let mut desk = Desk::live(1);
    for round in 0..30 {
        desk.engine.restart();
        desk.engine.write(1);
        desk.poll();
        desk.attach();
        desk.poll();
        desk.assert_up_to_date();
        assert_eq!(desk.link.state(), LinkState::Live, "round {round}");
    }
    let mut attaches = 0;
    while desk.link.state() != LinkState::NeedsManual {
        desk.engine.restart();
        desk.poll();
        if desk.link.state() != LinkState::NeedsManual {
            desk.attach();
            attaches += 1;
        }
    }
    assert_eq!(attaches, REPAIRS_MAX, "attaching alone is no progress");
}

#[test]
fn nothing_fires_while_hidden_and_one_attach_after() {
    let mut desk = Desk::live(2);
    desk.engine.restart();
    desk.engine.write(1);
    desk.poll();
    desk.link.hide();
    for _ in 0..10 {
        desk.now += 1_000;
        assert_eq!(desk.link.next(desk.now), Next::Nothing);
    }
    assert_eq!(desk.link.counters().attaches, 1);
    desk.link.show();
    assert!(matches!(desk.link.next(desk.now), Next::Attach { .. }));
    assert_eq!(desk.link.counters().attaches, 2);
}

#[test]
fn limits_run_in_visible_time_and_an_answer_that_comes_while_hidden_counts() {
    let mut desk = Desk::live(2);
    let (ticket, request) = desk.poll_request();
    desk.link.hide();
    desk.now += 3_600_000;
    desk.link.show();
    let limit = u64::from(POLL_WAIT_MS) + POLL_MARGIN_MS;
    assert_eq!(desk.link.next(desk.now), Next::WaitUntil(desk.now + limit));
    desk.link.hide();
    desk.engine.write(1);
    let answer = desk.engine.poll(request);
    assert_eq!(desk.link.polled(ticket, answer, desk.now).changes.len(), 1);
    desk.assert_up_to_date();
    assert_eq!(desk.link.next(desk.now), Next::Nothing);
}

#[test]
fn out_of_sight_it_is_kept_up_to_date_while_all_goes_well_and_repairs_nothing() {
    let mut desk = Desk::live(2);
    desk.link.send_back();
    for _ in 0..3 {
        let (ticket, request) = desk.poll_request();
        desk.now += 3_600_000;
        assert_eq!(desk.link.next(desk.now), Next::Nothing, "no limit runs");
        desk.engine.write(1);
        let answer = desk.engine.poll(request);
        desk.link.polled(ticket, answer, desk.now);
        desk.assert_up_to_date();
    }
    let (ticket, request) = desk.poll_request();
    desk.engine.restart();
    let answer = desk.engine.poll(request);
    desk.link.polled(ticket, answer, desk.now);
    for _ in 0..10 {
        desk.now += 1_000;
        assert_eq!(desk.link.next(desk.now), Next::Nothing);
    }
    assert_eq!(desk.link.counters().attaches, 1);
    desk.link.show();
    assert!(matches!(desk.link.next(desk.now), Next::Attach { .. }));
}

#[test]
fn out_of_sight_a_poll_that_brought_nothing_is_followed_by_the_next_one_a_little_later() {
    let mut desk = Desk::live(2);
    desk.link.send_back();
    desk.poll();
    let due = desk.now + EMPTY_POLL_DELAY_MS;
    assert_eq!(desk.link.next(desk.now), Next::WaitUntil(due));
    desk.engine.write(1);
    desk.poll();
    desk.assert_up_to_date();
}

#[test]
fn what_is_set_aside_asks_nothing_also_while_its_window_comes_and_goes() {
    let mut desk = Desk::live(2);
    desk.link.send_back();
    desk.link.hide();
    assert_eq!(desk.link.next(desk.now), Next::Nothing);
    desk.link.send_back();
    assert!(matches!(desk.link.next(desk.now), Next::Poll { .. }));
    desk.link.close();
    desk.link.send_back();
    desk.link.show();
    assert_eq!(desk.link.next(desk.now), Next::Nothing);
}

#[test]
fn a_page_that_slept_resumes_nearly_at_once() {
    let mut desk = Desk::live(2);
    desk.engine.restart();
    desk.poll();
    let before = desk.now;
    desk.attach();
    let took = desk.now - before;
    assert!((1..=2 * FORGOTTEN_DELAY_MS).contains(&took), "{took} ms");
    assert_eq!(desk.link.state(), LinkState::Live);
}

#[test]
fn a_closed_link_asks_nothing_and_declines_what_still_comes() {
    let mut desk = Desk::live(2);
    let (ticket, request) = desk.poll_request();
    desk.engine.write(1);
    let answer = desk.engine.poll(request);
    assert_eq!(desk.link.close(), Some(request.epoch));
    assert_eq!(desk.link.close(), None);
    assert_eq!(desk.link.polled(ticket, answer, desk.now).changes.len(), 0);
    for action in [
        Link::show,
        Link::retry,
        Link::said_hello,
        Link::hide,
        Link::send_back,
    ] {
        action(&mut desk.link);
        assert_eq!(desk.link.next(desk.now + 1_000_000), Next::Nothing);
    }
    assert_eq!(desk.link.state(), LinkState::Detached);
    assert_eq!(desk.lines().len(), 2);
}

#[test]
fn a_superseded_page_says_hello_before_it_attaches_again() {
    let mut desk = Desk::live(2);
    desk.fail(AnswerError::Refused(ErrorCode::Superseded));
    assert!(desk.link.needs_hello());
    assert_eq!(desk.link.next(desk.now + 1_000_000), Next::Nothing);
    desk.link.said_hello();
    assert!(!desk.link.needs_hello());
    desk.attach();
    desk.assert_up_to_date();
    let mut hellos = 0;
    loop {
        desk.fail(AnswerError::Refused(ErrorCode::Superseded));
        if !desk.link.needs_hello() {
            break;
        }
        desk.link.said_hello();
        hellos += 1;
    }
    assert_eq!(
        hellos,
        REPAIRS_MAX - 1,
        "two pages of one window took turns for ever"
    );
    assert_eq!(desk.link.state(), LinkState::NeedsManual);
}

#[test]
fn every_refusal_is_acted_on_or_shown_and_none_is_asked_again_in_vain() {
    let passing = [
        ErrorCode::UnknownEpoch,
        ErrorCode::ShuttingDown,
        ErrorCode::StorageFailed,
        ErrorCode::Other,
    ];
    let final_ones = [
        ErrorCode::Gone,
        ErrorCode::NotFound,
        ErrorCode::ProtocolMismatch,
        ErrorCode::TurnActive,
        ErrorCode::StaleHead,
        ErrorCode::OpIdConflict,
        ErrorCode::Invalid {
            field: "stream".to_owned(),
        },
    ];
    for code in passing {
        let mut desk = Desk::live(2);
        desk.fail(AnswerError::Refused(code.clone()));
        assert_eq!(desk.link.state(), LinkState::Detached, "{code:?}");
        assert_eq!(desk.link.trouble(), Some(&Trouble::Refused(code)));
        desk.attach();
        desk.assert_up_to_date();
    }
    for code in final_ones {
        let mut desk = Desk::live(2);
        desk.fail(AnswerError::Refused(code.clone()));
        assert_eq!(desk.link.state(), LinkState::NeedsManual, "{code:?}");
        assert_eq!(desk.link.trouble(), Some(&Trouble::Refused(code)));
        assert_eq!(desk.link.next(desk.now + 1_000_000), Next::Nothing);
        assert_eq!(desk.lines().len(), 2, "what was shown is still shown");
        desk.link.retry();
        desk.attach();
        desk.assert_up_to_date();
    }
}

#[test]
fn polls_that_are_answered_at_once_with_nothing_do_not_spin() {
    let mut desk = Desk::live(2);
    let before = desk.now;
    for _ in 0..100 {
        desk.poll();
    }
    assert!(desk.now - before >= 99 * EMPTY_POLL_DELAY_MS);
    assert_eq!(desk.link.counters().repairs, 0);
}

#[test]
fn a_new_status_is_told_once_and_named_as_seen() {
    let mut desk = Desk::live(2);
    desk.engine.status = Some(Status {
        revision: 9,
        turn: None,
        phase: Phase::Thinking,
        since: Timestamp::from_millis(5),
    });
    assert!(desk.poll().status_changed);
    assert_eq!(desk.link.status(), desk.engine.status.as_ref());
    let (ticket, request) = desk.poll_request();
    assert_eq!(request.seen_status, 9);
    let answer = desk.engine.poll(request);
    assert!(!desk.link.polled(ticket, answer, desk.now).status_changed);
}

#[test]
fn an_attach_answer_that_contradicts_its_question_is_not_believed() {
    let other = StreamId::Session(SessionId::from_bits(8));
    type Spoil = fn(&mut Attached);
    let spoils: [(&str, Spoil); 5] = [
        ("no page", |answer| answer.page = None),
        ("another log's page", |answer| {
            answer.head = Cursor::at_start(LogId::from_bits(99));
        }),
        ("another stream", |answer| answer.stream = StreamId::Library),
        ("a library page", |answer| {
            answer.page = Some(Page::Library(protocol::LibraryPage {
                sessions: Vec::new(),
                providers: Vec::new(),
                last_model: None,
                limits: None,
                fallbacks: Vec::new(),
                model_options: Vec::new(),
                pulls: Vec::new(),
                prices: None,
                salvages: Vec::new(),
                as_of: answer.head,
            }));
        }),
        ("resume of nothing", |answer| {
            answer.mode = AttachMode::Resume
        }),
    ];
    assert_ne!(other, STREAM);
    for (name, spoil) in spoils {
        let mut desk = Desk::with(2);
        let (ticket, cursor) = desk.attach_request();
        let mut answer = desk.engine.attach(cursor);
        spoil(&mut answer);
        let heard = desk.link.attached(ticket, Ok(answer), desk.now);
        assert!(!heard.swapped && desk.link.shown().is_none(), "{name}");
        assert_eq!(desk.link.counters().bad_answers, 1, "{name}");
        desk.attach();
        desk.assert_up_to_date();
    }
}

/// What can happen, in any order.
#[derive(Clone, Debug)]
enum Fate {
    /// The next request is made and answered truly.
    Answer,
    /// It is made, answered, and the answer is kept for later.
    Hold,
    /// It is made and the transport fails.
    Lose,
    /// It is made and refused.
    Refuse(u8),
    /// It is made, and events are left out of its answer, doubled or shuffled.
    Spoil(Vec<u8>),
    /// It is made and its answer names another epoch or another log.
    Forge(u8),
    /// A kept answer arrives, or arrives again.
    Release(usize),
    Write(usize),
    Restart,
    ReplaceLog(usize),
    CutTail(usize),
    PageLag(usize),
    MaxEvents(usize),
    Wait(u64),
    Hide,
    SendBack,
    Show,
    Retry,
    SaidHello,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        20 => Just(Fate::Answer),
        6 => Just(Fate::Hold),
        4 => Just(Fate::Lose),
        2 => any::<u8>().prop_map(Fate::Refuse),
        6 => proptest::collection::vec(any::<u8>(), 1..5).prop_map(Fate::Spoil),
        4 => any::<u8>().prop_map(Fate::Forge),
        8 => any::<usize>().prop_map(Fate::Release),
        10 => (0..7_usize).prop_map(Fate::Write),
        2 => Just(Fate::Restart),
        2 => (0..9_usize).prop_map(Fate::ReplaceLog),
        1 => (1..4_usize).prop_map(Fate::CutTail),
        2 => (0..5_usize).prop_map(Fate::PageLag),
        2 => (0..4_usize).prop_map(Fate::MaxEvents),
        6 => (0..20_000_u64).prop_map(Fate::Wait),
        1 => Just(Fate::Hide),
        1 => Just(Fate::SendBack),
        3 => Just(Fate::Show),
        2 => Just(Fate::Retry),
        2 => Just(Fate::SaidHello),
    ]
}

#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there are never more than a few of them"
)]
enum Answer {
    Attach(Ticket, Result<Attached, AnswerError>),
    Poll(Ticket, Result<Batch, AnswerError>),
}

/// A desk at which anything may happen, and the drawing a window would make from what it is told.
struct Chaos {
    desk: Desk,
    drawn: Vec<String>,
    held: Vec<Answer>,
    /// Every log there was, as far as it was ever written; a cut tail is a log of its own from then on.
    logs: Vec<(LogId, Vec<String>)>,
}

impl Chaos {
    fn new(seed: u64) -> Self {
        let mut desk = Desk::with(4);
        desk.link = Link::new(STREAM, seed);
        Self {
            desk,
            drawn: Vec::new(),
            held: Vec::new(),
            logs: Vec::new(),
        }
    }

    fn ask(&mut self) -> Option<Answer> {
        match self.desk.link.next(self.desk.now) {
            Next::Attach { ticket, cursor, .. } => {
                Some(Answer::Attach(ticket, Ok(self.desk.engine.attach(cursor))))
            }
            Next::Poll {
                ticket, request, ..
            } => Some(Answer::Poll(ticket, self.desk.engine.poll(request))),
            Next::WaitUntil(_) | Next::Nothing => None,
        }
    }

    fn deliver(&mut self, answer: Answer) {
        let now = self.desk.now;
        let heard = match answer {
            Answer::Attach(ticket, answer) => self.desk.link.attached(ticket, answer, now),
            Answer::Poll(ticket, answer) => self.desk.link.polled(ticket, answer, now),
        };
        if heard.swapped {
            assert!(heard.changes.is_empty());
            self.drawn = self.desk.lines();
        }
        self.drawn.extend(heard.changes);
    }

    fn suffer(&mut self, fate: Fate) {
        match fate {
            Fate::Answer => {
                if let Some(answer) = self.ask() {
                    self.deliver(answer);
                }
            }
            Fate::Hold => {
                if let Some(answer) = self.ask() {
                    self.held.push(answer);
                }
            }
            Fate::Lose => match self.ask() {
                Some(Answer::Attach(ticket, _)) => {
                    self.deliver(Answer::Attach(ticket, Err(AnswerError::Lost)));
                }
                Some(Answer::Poll(ticket, _)) => {
                    self.deliver(Answer::Poll(ticket, Err(AnswerError::Lost)));
                }
                None => {}
            },
            Fate::Refuse(which) => {
                let code = match which % 5 {
                    0 => ErrorCode::UnknownEpoch,
                    1 => ErrorCode::Superseded,
                    2 => ErrorCode::Gone,
                    3 => ErrorCode::ShuttingDown,
                    _ => ErrorCode::Other,
                };
                match self.ask() {
                    Some(Answer::Attach(ticket, _)) => {
                        self.deliver(Answer::Attach(ticket, Err(AnswerError::Refused(code))));
                    }
                    Some(Answer::Poll(ticket, _)) => {
                        self.deliver(Answer::Poll(ticket, Err(AnswerError::Refused(code))));
                    }
                    None => {}
                }
            }
            Fate::Spoil(how) => {
                let answer = match self.ask() {
                    Some(Answer::Poll(ticket, Ok(mut batch))) => {
                        for byte in how {
                            let count = batch.events.len();
                            if count == 0 {
                                break;
                            }
                            let at = usize::from(byte) / 3 % count;
                            match byte % 3 {
                                0 => drop(batch.events.remove(at)),
                                1 => batch.events.push(batch.events[at].clone()),
                                _ => batch.events.swap(0, at),
                            }
                        }
                        Some(Answer::Poll(ticket, Ok(batch)))
                    }
                    other => other,
                };
                if let Some(answer) = answer {
                    self.deliver(answer);
                }
            }
            Fate::Forge(which) => {
                let foreign = Cursor::from_count(LogId::from_bits(77), u64::from(which));
                let answer = match self.ask() {
                    Some(Answer::Poll(ticket, Ok(mut batch))) => {
                        if which.is_multiple_of(2) {
                            batch.epoch = Epoch::new(u64::from(which));
                        } else {
                            batch.head = foreign;
                        }
                        Some(Answer::Poll(ticket, Ok(batch)))
                    }
                    Some(Answer::Attach(ticket, Ok(mut attached))) => {
                        match which % 4 {
                            0 => attached.stream = StreamId::Library,
                            1 => attached.page = None,
                            2 => attached.head = foreign,
                            _ => attached.mode = AttachMode::Resume,
                        }
                        Some(Answer::Attach(ticket, Ok(attached)))
                    }
                    other => other,
                };
                if let Some(answer) = answer {
                    self.deliver(answer);
                }
            }
            Fate::Release(which) => {
                if !self.held.is_empty() {
                    let answer = self.held[which % self.held.len()].clone();
                    self.deliver(answer);
                }
            }
            Fate::Write(count) => self.desk.engine.write(count),
            Fate::Restart => self.desk.engine.restart(),
            Fate::ReplaceLog(count) => {
                self.remember_log();
                self.desk.engine.replace_log(count);
            }
            Fate::CutTail(count) => {
                // Nothing is written to a cut log here: what a client has of its lost tail could not be told apart.
                self.remember_log();
                let keep = self.desk.engine.lines.len().saturating_sub(count);
                self.desk.engine.replace_log(keep);
            }
            Fate::PageLag(lag) => self.desk.engine.page_lag = lag,
            Fate::MaxEvents(max) => self.desk.engine.max_events = max,
            Fate::Wait(ms) => self.desk.now += ms,
            Fate::Hide => self.desk.link.hide(),
            Fate::SendBack => self.desk.link.send_back(),
            Fate::Show => self.desk.link.show(),
            Fate::Retry => self.desk.link.retry(),
            Fate::SaidHello => self.desk.link.said_hello(),
        }
        self.check();
    }

    fn remember_log(&mut self) {
        let engine = &self.desk.engine;
        self.logs.push((engine.log, engine.lines.clone()));
    }

    /// What is shown is a prefix of one log, as long as its cursor says; and the window that only heard the changes
    /// has drawn just that.
    fn check(&self) {
        let Some(shown) = self.desk.link.shown() else {
            assert!(self.drawn.is_empty());
            return;
        };
        assert_eq!(self.drawn, shown.lines, "drawn from changes");
        assert_eq!(shown.lines.len() as u64, shown.cursor.count());
        let engine = (self.desk.engine.log, self.desk.engine.lines.clone());
        let log = self
            .logs
            .iter()
            .chain([&engine])
            .find(|(log, _)| *log == shown.cursor.log());
        let (_, lines) = log.expect("a log that exists");
        assert_eq!(shown.lines, lines[..shown.lines.len()]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_nothing_is_shown_twice_or_missing_and_it_heals(
        seed in any::<u64>(),
        fates in proptest::collection::vec(fate(), 0..120),
    ) {
        let mut chaos = Chaos::new(seed);
        for fate in fates {
            chaos.suffer(fate);
        }
        let link = &mut chaos.desk.link;
        link.show();
        link.said_hello();
        link.retry();
        chaos.desk.engine.max_events = 2;
        let (attaches, began) = (chaos.desk.link.counters().attaches, chaos.desk.now);
        let mut requests = 0;
        while chaos.desk.lines() != chaos.desk.engine.lines
            || chaos.desk.link.state() != LinkState::Live
        {
            prop_assert!(requests < 60, "does not heal: {:?}", chaos.desk.link);
            requests += 1;
            match chaos.desk.request() {
                Next::Attach { ticket, cursor, .. } => {
                    let answer = chaos.desk.engine.attach(cursor);
                    chaos.deliver(Answer::Attach(ticket, Ok(answer)));
                }
                Next::Poll { ticket, request, .. } => {
                    let answer = chaos.desk.engine.poll(request);
                    chaos.deliver(Answer::Poll(ticket, answer));
                }
                Next::WaitUntil(_) | Next::Nothing => {
                    prop_assert!(false, "stopped: {:?}", chaos.desk.link);
                }
            }
            chaos.check();
        }
        prop_assert!(chaos.desk.link.counters().attaches - attaches <= 3, "too many attaches");
        // At most: one lost answer to its limit, and the repairs after it.
        prop_assert!(chaos.desk.now - began <= LOAD_LIMIT_MS + 3 * 2_000, "too slow");
    }

}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn requests_keep_their_distance_whatever_is_answered(
        seed in any::<u64>(),
        fates in proptest::collection::vec(fate(), 0..200),
    ) {
        // Without progress (nothing is written) and without the button, requests cost time.
        let mut chaos = Chaos::new(seed);
        for fate in fates {
            let quiet = match fate {
                Fate::Write(_) | Fate::ReplaceLog(_) | Fate::CutTail(_) | Fate::Retry => continue,
                Fate::Wait(ms) => Fate::Wait(ms % 10),
                other => other,
            };
            chaos.suffer(quiet);
        }
        let counters = chaos.desk.link.counters();
        let passed = chaos.desk.now - 10_000;
        // One poll after each attach, one more for each event of the four there are, and what the clock allows.
        let allowed = 2 * (passed / FORGOTTEN_DELAY_MS + 1) + 8;
        prop_assert!(
            counters.attaches + counters.polls <= allowed,
            "{} requests in {passed} ms",
            counters.attaches + counters.polls
        );
    }
}

#[test]
fn every_attach_says_what_made_it_necessary() {
    fn why(desk: &mut Desk) -> AttachReason {
        let Next::Attach {
            ticket,
            cursor,
            why,
            ..
        } = desk.request()
        else {
            panic!("expected an attach")
        };
        let answer = desk.engine.attach(cursor);
        desk.link.attached(ticket, Ok(answer), desk.now);
        why
    }
    let mut desk = Desk::with(2);
    assert_eq!(why(&mut desk), AttachReason::Open);

    let (_never_answered, _) = desk.poll_request();
    assert_eq!(why(&mut desk), AttachReason::LostAnswer);

    desk.engine.write(1);
    desk.engine.max_events = 0;
    desk.poll();
    assert_eq!(why(&mut desk), AttachReason::Gap);
    desk.engine.max_events = 100;
    desk.poll();

    desk.fail(AnswerError::Refused(ErrorCode::UnknownEpoch));
    assert_eq!(why(&mut desk), AttachReason::Reset);
    desk.engine.write(1);
    desk.poll();
    desk.assert_up_to_date();
}
