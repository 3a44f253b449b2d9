//! The link's guards.

mod by_hand;

use std::{sync::Arc, time::Duration};

use engine::Fault as DiskFault;
use protocol::{AttachMode, Dialect, ErrorCode, Op, Phase, ResetReason, SessionId, StreamId};
use tests::{
    client::{CallKind, Client, Fault, Page, poll_limit},
    clock::TestClock,
    model_server::{Answer, ModelServer},
    world::World,
};
use transcript::{AnswerError, Counters, Link, LinkState, Next, Transcript, mutant::Mutant};

use super::{Line, story};

pub(super) fn line(mutant: Mutant) -> Line<Mutant> {
    let (story, green, red): (super::Story<Mutant>, _, _) = match mutant {
        Mutant::AnyAnswer => {
            let green = "declined1 repairs1";
            (story!(late_answer), green, "declined1 repairs2")
        }
        Mutant::NoEpochCheck => {
            let green = "declined1 repeated0";
            (story!(answer_of_before), green, "declined0 repeated1")
        }
        Mutant::NoSeqDrop => {
            let green = "damaged0 repeated1";
            (story!(answer_twice), green, "damaged1 repeated0")
        }
        Mutant::NoGapCheck => (story!(hole), "whole1 gaps1", "whole0 gaps0"),
        Mutant::ClearBeforeLoad => (story!(load_over_content), "blank0", "blank1"),
        Mutant::NoFireCheck => (story!(hidden), "armed0", "armed1"),
        Mutant::LatchOnFail => (story!(reload_fails), "disabled0", "disabled1"),
        Mutant::ResetsUncounted => (story!(resets_for_ever), "at the button", "for ever"),
        Mutant::BackgroundRests => (story!(by_hand::out_of_sight), "behind0", "behind1"),
        Mutant::RepairsUnseen => (story!(by_hand::lost_unseen), "repairs0", "repairs1"),
        Mutant::OneBusy => (story!(by_hand::loaded_while_it_runs), "redraw1", "redraw0"),
        Mutant::AnyOffset => (story!(by_hand::text_elsewhere), "garbled0", "garbled1"),
        Mutant::CorruptIsDefault => (story!(by_hand::unreadable), "silent0", "silent1"),
        Mutant::NoWaitLimit => (story!(hung), "given up", "stuck"),
        Mutant::AnyAttachAnswer => {
            let green = "regress0 declined1";
            (story!(by_hand::late_attach), green, "regress1 declined1")
        }
        Mutant::HealTriggersItself => (story!(by_hand::no_load_works), "attach5", "attach21"),
        Mutant::NoRepairDelay => (story!(by_hand::one_after_the_other), "apart", "at once"),
        Mutant::SwapAtFirstEvent => (story!(by_hand::staged), "torn0", "torn1"),
        Mutant::StateOnlyOnce => (story!(by_hand::lost_status), "answered", "spinner1"),
        Mutant::LeakScope => (story!(by_hand::closed), "asks0", "asks1"),
        Mutant::AnyEdition => {
            let green = "filed0 declined1";
            (story!(by_hand::older_of_before), green, "filed24 declined0")
        }
        Mutant::FileAnywhere => (story!(by_hand::older_elsewhere), "hole0", "hole1"),
        Mutant::IgnoreAsOf => (story!(by_hand::older_across_rewind), "rows0", "rows7"),
        Mutant::LastArrivedWins => {
            let green = "page-old0";
            (story!(by_hand::older_reversed), green, "page-old1")
        }
    };
    Line { story, green, red }
}

const DIALECT: Dialect = Dialect::Ollama;

/// A page whose link lacks the guard and whose patience is the test's, over an answer in three pieces.
struct Set {
    world: World,
    server: ModelServer,
    session: SessionId,
    clock: TestClock,
    page: Page,
    window: Client<Transcript>,
}

/// The first piece is drawn; the window is hidden, and nothing is under way.
async fn set(mutant: Option<Mutant>) -> Set {
    let world = World::new().await;
    let server = ModelServer::start(DIALECT);
    let answer = Answer::new(DIALECT).says("One, ").gate("1").says("two, ");
    server.script(answer.gate("2").says("three.").ends());
    let session = world.begin(&server, "Count.").await;
    let clock = TestClock::default();
    let own = Arc::new(clock.clone());
    let page = Page::load_lacking(&world.line, "main", own, mutant).await;
    let window = page.follow(session);
    let set = Set {
        world,
        server,
        session,
        clock,
        page,
        window,
    };
    set.window.sees("One, ").await;
    set.pause().await;
    set
}

impl Set {
    /// Hides the window and lets what is out come home.
    async fn pause(&self) {
        let writing = |status: &protocol::Status| matches!(status.phase, Phase::Writing);
        self.window
            .until_status("the model to write", writing)
            .await;
        self.window.hide();
        loop {
            match self.page.requests_out() {
                0 => break,
                out => tokio::select! {
                    () = self.page.until_fewer_out(out) => {}
                    // A parked poll comes home when its wait is over.
                    () = self.world.clock.fire_next_within(Duration::from_secs(8)) => {}
                },
            }
        }
        // Whatever comes next comes neither too early to be asked for nor too early to be written.
        self.world.clock.advance(Duration::from_secs(1));
        self.clock.advance(Duration::from_secs(1));
    }

    /// Shows the window, and lets its next request go without an answer.
    async fn give_up(&self) {
        self.window.show();
        self.clock.until_armed(poll_limit()).await;
        self.clock.advance(poll_limit());
        self.clock.fire_next_within(Duration::from_secs(1)).await;
    }
}

/// A poll's answer is held until the page has attached again.
async fn late_answer(mutant: Option<Mutant>) -> String {
    let set = set(mutant).await;
    set.page
        .fault(CallKind::Poll, Fault::HoldAnswer("old".to_owned()));
    set.window.show();
    set.server.pass("1").await;
    set.page.arrived("old").await;
    set.give_up().await;
    set.window.sees("two, ").await;
    set.page.release("old");
    let declined = |now: Counters| now.declined == 1;
    set.window.until_counters("the old answer", declined).await;
    let now = set.window.counters();
    set.server.release_all();
    format!("declined{} repairs{}", now.declined, now.repairs)
}

/// The last answer of the attachment before comes in place of the first of this one.
async fn answer_of_before(mutant: Option<Mutant>) -> String {
    let set = set(mutant).await;
    set.window.show();
    set.server.pass("1").await;
    set.window.sees("two, ").await;
    set.pause().await;
    set.page.fault(CallKind::Poll, Fault::LoseAnswer);
    set.page.fault(CallKind::Poll, Fault::AnswerBefore);
    set.give_up().await;
    let heard = |now: Counters| now.declined + now.repeated > 0;
    set.window
        .until_counters("the answer of before", heard)
        .await;
    let now = set.window.counters();
    set.server.release_all();
    format!("declined{} repeated{}", now.declined, now.repeated)
}

/// An answer comes once more, in place of the next.
async fn answer_twice(mutant: Option<Mutant>) -> String {
    let set = set(mutant).await;
    set.window.show();
    set.server.pass("1").await;
    set.window.sees("two, ").await;
    set.pause().await;
    set.page.fault(CallKind::Poll, Fault::AnswerBefore);
    set.window.show();
    tokio::select! {
        _ = set.window.sees("unsupported") => {}
        () = set.window.until_counters("the answer", |now| now.repeated > 0) => {}
    }
    let damaged = set.window.text().matches("unsupported").count();
    set.server.release_all();
    format!(
        "damaged{damaged} repeated{}",
        set.window.counters().repeated
    )
}

/// An answer lacks its first event.
async fn hole(mutant: Option<Mutant>) -> String {
    let set = set(mutant).await;
    set.server.pass("1").await;
    set.server.pass("2").await;
    let calm = Page::load(&set.world.line, "calm")
        .await
        .follow(set.session);
    calm.until_idle().await;
    set.page.fault(CallKind::Poll, Fault::LoseFirstEvent);
    set.window.show();
    let text = tokio::select! {
        text = set.window.until_idle() => text,
        () = async {
            loop {
                set.clock.fire_next_within(Duration::from_secs(1)).await;
            }
        } => unreachable!("it waits for the end"),
    };
    let whole = u8::from(text == calm.text());
    format!("whole{whole} gaps{}", set.window.counters().gaps)
}

/// What is drawn while a new load is on its way.
async fn load_over_content(mutant: Option<Mutant>) -> String {
    let set = set(mutant).await;
    set.page.fault(CallKind::Poll, Fault::LoseAnswer);
    set.page
        .fault(CallKind::Attach, Fault::HoldAnswer("load".to_owned()));
    set.give_up().await;
    set.page.arrived("load").await;
    let blank = set.window.text().is_empty();
    set.page.release("load");
    set.server.release_all();
    format!("blank{}", u8::from(blank))
}

/// Every attach is a reset; its first poll is answered well, and its second one is refused.
async fn resets_for_ever(mutant: Option<Mutant>) -> String {
    let world = World::new().await;
    let server = ModelServer::start(DIALECT);
    server.script(Answer::whole(DIALECT, "One."));
    let session = world.begin(&server, "Count.").await;
    world.page().await.follow(session).until_idle().await;
    let page = Page::load(&world.line, "another").await;
    let stream = StreamId::Session(session);
    let mut link = Link::<Transcript>::new(stream, 7).with_mutant(mutant);
    let (mut now_ms, mut is_first) = (10_000, true);
    for n in 0..200 {
        if link.state() == LinkState::NeedsManual {
            return "at the button".to_owned();
        }
        match link.next(now_ms) {
            Next::WaitUntil(at) => now_ms = at,
            Next::Attach { ticket, .. } => {
                let mut attached = page.attach(stream).await.expect("it may");
                attached.mode = AttachMode::Reset(ResetReason::AheadOfHead);
                link.attached(ticket, Ok(attached), now_ms);
                let title = format!("Title {n}");
                let rename = Op::RenameSession { session, title };
                world.submit(rename).await.expect("renamed");
                is_first = true;
            }
            Next::Poll {
                ticket,
                mut request,
                ..
            } => {
                request.wait_ms = 0;
                let answer = if is_first {
                    Ok(world.line.poll(request).await.expect("it may"))
                } else {
                    Err(AnswerError::Refused(ErrorCode::UnknownEpoch))
                };
                is_first = false;
                link.polled(ticket, answer, now_ms);
            }
            Next::Nothing => return "nothing more".to_owned(),
        }
    }
    "for ever".to_owned()
}

/// A poll is out, and the page is hidden.
async fn hidden(mutant: Option<Mutant>) -> String {
    let set = set(mutant).await;
    set.window.show();
    set.clock.until_armed(poll_limit()).await;
    set.clock.advance(Duration::from_secs(1));
    set.window.hide();
    let armed = tokio::select! {
        biased;
        () = set.clock.until_armed(poll_limit()) => 1,
        () = set.clock.until_no_timer() => 0,
    };
    set.server.release_all();
    format!("armed{armed}")
}

/// A poll is never answered.
async fn hung(mutant: Option<Mutant>) -> String {
    let set = set(mutant).await;
    set.page.fault(CallKind::Poll, Fault::LoseAnswer);
    set.window.show();
    set.page.until_faults_met().await;
    set.clock.until_armed(poll_limit()).await;
    set.clock.advance(poll_limit());
    let next = set.clock.until_armed_within(Duration::from_secs(1)).await;
    set.server.release_all();
    // A repair waits a jittered moment; whoever does not give up looks again after a whole second.
    if next == Duration::from_secs(1) {
        "stuck"
    } else {
        "given up"
    }
    .to_owned()
}

/// A reload that fails once, and whether what needs the engine is in use again afterwards.
async fn reload_fails(mutant: Option<Mutant>) -> String {
    let set = set(mutant).await;
    set.world.faults.fail_reads(DiskFault::IoError);
    set.window.show();
    set.server.pass("1").await;
    set.window
        .until_counters("a read to fail", |now| now.refused == 1)
        .await;
    set.world.faults.heal();
    set.clock.fire_next_within(Duration::from_secs(2)).await;
    set.window.sees("two, ").await;
    let disabled = u8::from(set.window.state() != LinkState::Live);
    set.server.pass("2").await;
    set.window.until_idle().await;
    format!("disabled{disabled}")
}
