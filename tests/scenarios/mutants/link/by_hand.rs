//! Guards that show when a page is driven by hand.

use engine::gate::Gate;
use protocol::{
    AttachMode, Cursor, ErrorCode, EventBody, Op, Phase, PollRequest, ResetReason, Seq, SessionId,
    StreamId, TranscriptPage, TurnId,
};
use rusqlite::Connection;
use tests::{
    hand::{Answer, Call, Hand},
    model_server::{self, ModelServer},
    picture::Draw,
    seeded,
    watched::HANG_LIMIT,
    world::World,
};
use transcript::{AnswerError, Link, LinkState, Transcript, mutant::Mutant};

use super::DIALECT;

/// A long conversation, and a page that follows it by hand.
struct Set {
    world: World,
    server: ModelServer,
    session: SessionId,
    hand: Hand<Transcript>,
}

async fn set(mutant: Option<Mutant>, turns: u64) -> Set {
    let server = ModelServer::start(DIALECT);
    let (world, session) = seeded::conversation_of(&server, turns).await;
    let link = Link::new(StreamId::Session(session), 7).with_mutant(mutant);
    let mut hand = Hand::new(&world.line, "by hand", link);
    hand.hello().await.expect("a fresh page is welcome");
    Set {
        world,
        server,
        session,
        hand,
    }
}

impl Set {
    /// Until everything is shown.
    async fn follow(&mut self) {
        while self.hand.link.state() != LinkState::Live {
            self.hand.step().await;
        }
        self.hand.step().await;
    }

    async fn rename(&self, title: &str) {
        let (session, title) = (self.session, title.to_owned());
        let renamed = self
            .world
            .submit(Op::RenameSession { session, title })
            .await;
        renamed.expect("renamed");
    }

    fn shown(&self) -> &Transcript {
        self.hand.link.shown().expect("something is shown")
    }

    fn turns(&self) -> Vec<u64> {
        self.shown().turns().map(|turn| turn.turn.get()).collect()
    }

    async fn older_than(&self, before: u64) -> (TurnId, TranscriptPage) {
        let before = TurnId::new(before);
        let as_of = self.shown().cursor();
        let page = self
            .world
            .line
            .load_older(self.session, before, as_of)
            .await;
        (before, page.expect("they can be read"))
    }

    /// Files an answer to what was asked for just now; how many turns were new.
    fn file(&mut self, (before, page): (TurnId, TranscriptPage)) -> usize {
        let edition = self.hand.link.edition();
        // Declined is a verdict as well.
        let filed = self.hand.link.file_older(edition, before, page);
        filed.unwrap_or(0)
    }
}

/// An attach is answered after the next one was asked for, and before that one is answered.
pub(super) async fn late_attach(mutant: Option<Mutant>) -> String {
    let mut set = set(mutant, 1).await;
    let call = set.hand.next_call();
    let late = set.hand.execute(&call).await;
    set.rename("New").await;
    let call = set.hand.next_call();
    let answer = set.hand.execute(&call).await;
    set.hand.hear(late);
    set.hand.hear(answer);
    let regress = u8::from(set.shown().title() != "New");
    let declined = set.hand.link.counters().declined;
    format!("regress{regress} declined{declined}")
}

/// No attach succeeds.
pub(super) async fn no_load_works(mutant: Option<Mutant>) -> String {
    let mut set = set(mutant, 1).await;
    let mut attaches = 0;
    while attaches < 21 && set.hand.link.state() != LinkState::NeedsManual {
        let call = set.hand.next_call();
        attaches += 1;
        let refused = AnswerError::Refused(ErrorCode::StorageFailed);
        set.hand.hear(call.failed(refused));
    }
    format!("attach{attaches}")
}

/// One attach fails, and the next.
pub(super) async fn one_after_the_other(mutant: Option<Mutant>) -> String {
    let mut set = set(mutant, 1).await;
    let began_ms = set.hand.now_ms;
    for _ in 0..3 {
        let call = set.hand.next_call();
        set.hand.hear(call.lost());
    }
    if set.hand.now_ms > began_ms {
        "apart"
    } else {
        "at once"
    }
    .to_owned()
}

/// A page that is not yet where its attach says that the stream is.
pub(super) async fn staged(mutant: Option<Mutant>) -> String {
    let mut set = set(mutant, 1).await;
    let call = set.hand.next_call();
    let answer = set.hand.execute(&call).await;
    let Answer::Attached(ticket, attached) = answer else {
        panic!("an attach is answered: {answer:?}")
    };
    let mut attached = (*attached).expect("it may");
    set.rename("New").await;
    attached.head = Cursor::from_count(attached.head.log(), attached.head.count() + 1);
    let heard = set
        .hand
        .hear(Answer::Attached(ticket, Box::new(Ok(attached))));
    let torn = u8::from(heard.swapped);
    set.follow().await;
    assert_eq!(set.shown().title(), "New", "in the end it is whole");
    format!("torn{torn}")
}

/// The answer that says that Stop was noted gets lost, and nothing else happens.
pub(super) async fn lost_status(mutant: Option<Mutant>) -> String {
    let mut set = set(mutant, 1).await;
    let script = model_server::Answer::new(DIALECT).says("On").goes_silent();
    set.server.script(script);
    set.world.gates.hold(Gate::BeforeTerminal);
    let turn = set.world.say(set.session, "Go on.").await;
    set.follow().await;
    let writes = |set: &Set| {
        let status = set.hand.link.status();
        status.is_some_and(|status| status.phase == Phase::Writing)
    };
    let is_caught_up = |set: &Set| {
        let head = set.world.events(set.session).len();
        set.shown().cursor().count() == u64::try_from(head).expect("few")
    };
    let has_said = |set: &Set| set.shown().draw().contains("model: On");
    while !writes(&set) || !has_said(&set) || !is_caught_up(&set) {
        set.hand.step().await;
    }
    set.world.stop(set.session, turn).await;
    set.world.gates.arrived(Gate::BeforeTerminal).await;
    let call = set.hand.next_call();
    let _lost = set.hand.execute(&call).await;
    set.hand.hear(call.lost());
    let Call::Poll { request, .. } = set.hand.next_call() else {
        panic!("it polls again")
    };
    let polling = set.world.line.poll(PollRequest {
        wait_ms: 8_000,
        ..request
    });
    let parked = async {
        while set.world.engine().counters().parked_now == 0 {
            tokio::task::yield_now().await;
        }
    };
    let verdict = tokio::select! {
        answer = polling => {
            let status = answer.expect("an answer").status.expect("a status");
            assert_eq!(status.phase, Phase::Stopping);
            "answered"
        }
        () = parked => "spinner1",
    };
    set.world.gates.release(Gate::BeforeTerminal);
    verdict.to_owned()
}

/// The pane is gone.
pub(super) async fn closed(mutant: Option<Mutant>) -> String {
    let mut set = set(mutant, 1).await;
    set.follow().await;
    set.hand.link.close();
    set.hand.now_ms += 60_000;
    format!("asks{}", u8::from(set.hand.call().is_some()))
}

/// Something happens while the window is out of sight.
pub(super) async fn out_of_sight(mutant: Option<Mutant>) -> String {
    let mut set = set(mutant, 1).await;
    set.follow().await;
    set.hand.link.send_back();
    set.rename("New").await;
    set.hand.now_ms += 1_000;
    if let Some(call) = set.hand.call() {
        let answer = set.hand.execute(&call).await;
        set.hand.hear(answer);
    }
    format!("behind{}", u8::from(set.shown().title() != "New"))
}

/// An answer gets lost while the window is out of sight.
pub(super) async fn lost_unseen(mutant: Option<Mutant>) -> String {
    let mut set = set(mutant, 1).await;
    set.follow().await;
    let call = set.hand.next_call();
    set.hand.link.send_back();
    set.hand.hear(call.lost());
    set.hand.now_ms += 60_000;
    format!("repairs{}", u8::from(set.hand.call().is_some()))
}

/// The page of a reset comes in while a turn runs.
pub(super) async fn loaded_while_it_runs(mutant: Option<Mutant>) -> String {
    let mut set = set(mutant, 1).await;
    set.follow().await;
    let script = model_server::Answer::new(DIALECT).says("On and on");
    set.server.script(script.goes_silent());
    set.world.say(set.session, "Go on.").await;
    let says = |set: &Set| set.shown().draw().contains("On and on");
    while !says(&set) {
        set.hand.step().await;
    }
    let swaps = set.hand.link.counters().swaps;
    let call = set.hand.next_call();
    let forgotten = AnswerError::Refused(ErrorCode::UnknownEpoch);
    set.hand.hear(call.failed(forgotten));
    let Call::Attach { ticket, page, .. } = set.hand.next_call() else {
        panic!("it attaches again")
    };
    let stream = StreamId::Session(set.session);
    let attached = set.world.line.attach(page, stream, None).await;
    let attached = Answer::Attached(ticket, Box::new(Ok(attached.expect("it may"))));
    set.hand.hear(attached);
    let swapped = set.hand.link.counters().swaps - swaps;
    assert!(says(&set), "whichever is shown");
    format!("redraw{swapped}")
}

/// A turn whose answer comes in one event, and the events that the next poll brings of it.
async fn answered_unheard(set: &mut Set, text: &str) -> Answer {
    set.follow().await;
    let script = model_server::Answer::whole(DIALECT, text);
    set.server.script(script);
    set.world.say(set.session, "Go on.").await;
    set.world
        .page()
        .await
        .follow(set.session)
        .until_idle()
        .await;
    let call = set.hand.next_call();
    set.hand.execute(&call).await
}

/// A piece of text says that it begins further on than its item ends.
pub(super) async fn text_elsewhere(mutant: Option<Mutant>) -> String {
    let mut set = set(mutant, 1).await;
    let mut answer = answered_unheard(&mut set, "Kelp.").await;
    let Answer::Polled(_, Ok(batch)) = &mut answer else {
        panic!("it polls: {answer:?}")
    };
    let at = batch.events.iter().position(
        |event| matches!(&event.body, EventBody::TextAppended { text, .. } if text == "Kelp."),
    );
    let at = at.expect("the text");
    // What is left of it after a hole: the text is cut in two, and the second piece does not join on.
    let mut second = batch.events[at].clone();
    if let EventBody::TextAppended { text, .. } = &mut batch.events[at].body {
        *text = "Ke".to_owned();
    }
    if let EventBody::TextAppended { text, offset, .. } = &mut second.body {
        *text = "p.".to_owned();
        *offset = 3;
    }
    batch.events.truncate(at + 1);
    second.seq = Seq::new(second.seq.get() + 1);
    batch.events.push(second);
    set.hand.hear(answer);
    let drawn = set.shown().draw();
    assert!(drawn.contains("model: Ke"), "{drawn}");
    format!("garbled{}", u8::from(drawn.contains("Kep.")))
}

/// An event of a turn cannot be read any more.
pub(super) async fn unreadable(mutant: Option<Mutant>) -> String {
    let mut set = set(mutant, 1).await;
    set.follow().await;
    let script = model_server::Answer::whole(DIALECT, "Kelp.");
    set.server.script(script);
    set.world.say(set.session, "Go on.").await;
    set.world
        .page()
        .await
        .follow(set.session)
        .until_idle()
        .await;
    let raw = Connection::open(set.world.data_dir().join(seeded::DATABASE)).expect("it opens");
    raw.busy_timeout(HANG_LIMIT).expect("it waits");
    let damaged = raw.execute_batch(
        "BEGIN IMMEDIATE;
         DROP TRIGGER events_are_never_updated;
         UPDATE events SET body = '{\"item\":' WHERE body LIKE '%Kelp.%';
         COMMIT;",
    );
    damaged.expect("damaged");
    while set.shown().running().is_some() || !set.shown().draw().contains("Go on.") {
        set.hand.step().await;
    }
    let drawn = set.shown().draw();
    assert!(!drawn.contains("Kelp."), "{drawn}");
    format!("silent{}", u8::from(!drawn.contains("unsupported")))
}

/// Older turns, asked for before a reset and answered after it.
pub(super) async fn older_of_before(mutant: Option<Mutant>) -> String {
    let mut set = set(mutant, 59).await;
    set.follow().await;
    let (edition, (before, page)) = (set.hand.link.edition(), set.older_than(37).await);
    let call = set.hand.next_call();
    set.hand
        .hear(call.failed(AnswerError::Refused(ErrorCode::UnknownEpoch)));
    let Call::Attach {
        ticket,
        page: own,
        stream,
        ..
    } = set.hand.next_call()
    else {
        panic!("it attaches again")
    };
    let attached = set.world.line.attach(own, stream, None).await;
    let mut attached = attached.expect("it may");
    attached.mode = AttachMode::Reset(ResetReason::AheadOfHead);
    set.hand
        .hear(Answer::Attached(ticket, Box::new(Ok(attached))));
    // Declined is a verdict as well.
    let filed = set.hand.link.file_older(edition, before, page);
    let declined = set.hand.link.counters().declined;
    format!("filed{} declined{declined}", filed.unwrap_or(0))
}

/// Turns from far above.
pub(super) async fn older_elsewhere(mutant: Option<Mutant>) -> String {
    let mut set = set(mutant, 59).await;
    set.follow().await;
    let far = set.older_than(10).await;
    set.file(far);
    let turns = set.turns();
    let dense = turns
        .iter()
        .zip(&turns[1..])
        .all(|(one, next)| one + 1 == *next);
    format!("hole{}", u8::from(!dense))
}

/// Turns read before a rewind, filed after it.
pub(super) async fn older_across_rewind(mutant: Option<Mutant>) -> String {
    let mut set = set(mutant, 59).await;
    set.follow().await;
    let held = set.older_than(37).await;
    let script = model_server::Answer::whole(DIALECT, "Another way.");
    set.server.script(script);
    let edit = Op::EditMessage {
        session: set.session,
        turn: TurnId::new(30),
        text: "Differently?".to_owned(),
        expected_tip: set.shown().tip().expect("a tip"),
        images: None,
    };
    set.world.submit(edit).await.expect("it is edited");
    while set.turns() != [61] || set.shown().running().is_some() {
        set.hand.step().await;
    }
    set.file(held);
    let rewound = set
        .turns()
        .into_iter()
        .filter(|turn| (30..61).contains(turn));
    format!("rows{}", rewound.count())
}

/// The page that was asked for first arrives last, when everything is there.
pub(super) async fn older_reversed(mutant: Option<Mutant>) -> String {
    let mut set = set(mutant, 59).await;
    set.follow().await;
    let first = set.older_than(37).await;
    for before in [37, 13] {
        let older = set.older_than(before).await;
        set.file(older);
    }
    set.file(first);
    let offers = set.shown().older_before().is_some();
    format!("page-old{}", u8::from(offers))
}
