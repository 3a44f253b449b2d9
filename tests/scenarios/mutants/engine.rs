//! The engine's guards.

mod again;
mod attaching;
mod changing;
mod clicking;
mod damaged;
mod fetching;
mod keeping;
mod local;
mod pulling;
mod serving;
mod showing;
mod sleeping;
mod telling;
mod waiting;

use std::{path::Path, time::Duration};

use engine::{gate::Gate, mutant::Mutant};
use protocol::{
    Cursor, Dialect, ErrorCode, Event, EventBody, ItemId, Op, OpId, Phase, PollRequest, SessionId,
    StreamId, TurnId,
};
use serde_json::json;
use tests::{
    backend::Missed,
    child::{ChildMutant, Held},
    client::{Client, Page},
    model_server::{Answer, Ending, ModelServer, Script},
    picture,
    sentinel::random_u128,
    world::World,
};
use transcript::Transcript;

use super::{Line, story};

const CHILD: &str = env!("CARGO_BIN_EXE_engine_child");

pub(super) fn line(mutant: Mutant) -> Line<Mutant> {
    let (story, green, red): (super::Story<Mutant>, _, _) = match mutant {
        Mutant::EofIsDone => (story!(cut), "failed: StreamCut dials1", "completed dials1"),
        Mutant::RetryAfterContent => (story!(cut), "failed: StreamCut dials1", "asks again dials1"),
        Mutant::LocalWritesOn => (story!(local::stopped), "closed1", "closed0"),
        Mutant::NestedRetry => (story!(again::busy), "dials3", "dials9"),
        Mutant::RetryLoad => {
            let green = "failed: FirstTokenTimeout dials1";
            (story!(again::loads_for_ever), green, "asks again dials1")
        }
        Mutant::LinePerChunk => (story!(again::cut_line), "garbled0", "garbled1"),
        Mutant::HideLimit => (story!(again::limit), "badge1", "badge0"),
        Mutant::GapByProgress => {
            let green = "completed";
            (story!(again::stalled), green, "failed: IdleTimeout")
        }
        Mutant::PingOnOpen => (story!(again::opened), "dials0", "dials3"),
        Mutant::LogAndGoOn => (story!(keeping::end_refused), "terminals1", "terminals0"),
        Mutant::ViewFailsTerminal => (story!(keeping::view_fails), "terminals1", "terminals0"),
        Mutant::ViewInTurn => (story!(keeping::view_held), "refused0", "refused1"),
        Mutant::RewriteWhole => (story!(keeping::twice_the_answer), "bytes2", "bytes4"),
        Mutant::VersionAfterTx => (story!(keeping::migration_killed), "opens", "twice1"),
        Mutant::LockTriedOnce => (story!(keeping::lock_left_behind), "opens", "refused"),
        Mutant::NoLock => (story!(keeping::second_engine), "writers1", "writers2"),
        Mutant::PollHoldsRead => (story!(keeping::parked_poll), "checkpoint1", "checkpoint0"),
        Mutant::PollsShareOneThread => (story!(waiting::behind_parked_polls), "waited0", "waited1"),
        Mutant::SkipVersion => (story!(keeping::other_version), "ProtocolMismatch", "ran1"),
        Mutant::ThresholdOnly => {
            let green = "completed starved0";
            let red = "failed: ContextOverflow starved1";
            (story!(telling::does_not_fit), green, red)
        }
        Mutant::SecondIterator => (story!(telling::half_an_answer), "lost0", "lost1"),
        Mutant::CloseIsDeny => (story!(changing::window_closed), "denied0", "denied1"),
        Mutant::TextOnly => (
            story!(reasoning_alone),
            "completed",
            "failed: EmptyResponse",
        ),
        Mutant::TotalTimeout => (story!(lively_and_long), "completed", "failed: IdleTimeout"),
        Mutant::GapFromHeaders => (story!(long_load), "completed", "failed: FirstTokenTimeout"),
        Mutant::IgnoreRetryAfter => (story!(asked_to_wait), "waits 30 s", "waits 1 s"),
        Mutant::WallClock => (story!(sleeping::night), "completed", "failed: IdleTimeout"),
        Mutant::HalfOpenWaits => {
            let (green, red) = ("failed: StreamCut", "failed: IdleTimeout");
            (story!(sleeping::nobody_answers), green, red)
        }
        Mutant::SilenceIsDeath => {
            let red = "failed: StreamCut";
            (story!(sleeping::thinks_on), "completed", red)
        }
        Mutant::OutcomeByErrorType => (story!(ceiling), "failed: TurnTimeout", "completed"),
        Mutant::ShutdownIsFailure => {
            let red = "failed: ProviderError ends1";
            (story!(quit), "interrupted: AppExit ends1", red)
        }
        Mutant::CloseLogFirst => (story!(quit), "interrupted: AppExit ends1", "running ends0"),
        Mutant::LeaveSocket => (story!(stop), "stopped closed1", "stopped closed0"),
        Mutant::AcceptEqual => {
            let green = "Invalid { field: \"ceiling_ms\" }";
            (story!(equal_limits), green, "taken")
        }
        Mutant::NoGuard => {
            let red = "failed: Aborted backstops1";
            (story!(panic), "failed: Panicked backstops0", red)
        }
        Mutant::TerminalInSelect => (story!(waiting::due_at_once), "logs1", "logs2"),
        Mutant::NoStepLimit => {
            let green = "completed: StepLimit dials24";
            (story!(always_calls), green, "completed dials25")
        }
        Mutant::NoToolLoop => {
            let red = "completed: StepLimit dials24";
            (story!(same_call_again), "failed: ToolLoop dials4", red)
        }
        Mutant::FailoverAfterContent => {
            let green = "failed: StreamCut other0";
            (story!(cut_with_another), green, "completed other1")
        }
        Mutant::SilentFailover => {
            let green = "completed handed1";
            (story!(telling::taken_over), green, "completed handed0")
        }
        Mutant::IgnoreErrorLine => {
            let green = "failed: ProviderError";
            (story!(telling::says_what_is_wrong), green, "completed")
        }
        Mutant::SkipUnreadable => {
            let green = "failed: BadStream";
            (story!(telling::web_page), green, "completed")
        }
        Mutant::AnyEncoding => {
            let green = "failed: BadStream";
            (story!(telling::says_it_is_squeezed), green, "completed")
        }
        Mutant::CutSummaryCounts => {
            let green = "failed: ContextOverflow summaries0";
            let red = "completed summaries1";
            (story!(telling::half_a_summary), green, red)
        }
        Mutant::SummaryOwnOptions => (story!(telling::asked_to_sum_up), "reload0", "reload1"),
        Mutant::SummaryUnlisted => (story!(telling::asks_for_a_summary), "listed1", "listed0"),
        Mutant::UnreadUntold => (story!(telling::reads_a_part), "told1", "told0"),
        Mutant::CacheIsCut => (story!(telling::reads_from_its_cache), "told0", "told1"),
        Mutant::RetryOverwrites => (
            story!(telling::tried_twice),
            "2 requests, 1 failed",
            "1 requests, 0 failed",
        ),
        Mutant::UnknownIsZero => (story!(telling::counts_nothing), "known0", "known1"),
        Mutant::PlaceholderAsResult => {
            let green = "completed told1";
            (story!(telling::result_left_out), green, "completed told0")
        }
        Mutant::KeyByProviderId => {
            let (green, red) = ("completed results2", "completed results1");
            (story!(telling::calls_of_one_name), green, red)
        }
        Mutant::ForgetVerbatim => {
            let green = "completed kept1";
            (story!(telling::signed_thoughts), green, "completed kept0")
        }
        Mutant::CompactAgain => {
            let green = "failed: ContextOverflow dials3";
            (story!(never_fits), green, "completed dials5")
        }
        Mutant::PullGoesBack => (story!(pulling::anew), "shown700", "shown200"),
        Mutant::PullEofIsDone => (story!(pulling::cut), "failed: StreamCut", "completed"),
        Mutant::PullsReadOnce => (story!(pulling::ends_meanwhile), "told1", "told0"),
        Mutant::WaitForLooks => (story!(pulling::slow_look), "listed1", "listed0"),
        Mutant::CopyOver => {
            let green = "Invalid { field: \"to\" }";
            (story!(pulling::copy_over), green, "replaced1")
        }
        Mutant::TrustCutModels => (story!(fetching::cut), "failed: StreamCut", "completed"),
        Mutant::AddAnything => {
            let green = "Invalid { field: \"path\" }";
            (story!(fetching::picture), green, "added")
        }
        Mutant::ResumeAnything => (story!(fetching::changed), "whole1", "whole0"),
        Mutant::AnyChecksum => (
            story!(fetching::exchanged),
            "failed: BadStream",
            "completed",
        ),
        Mutant::AnyPageIsAModel => (story!(fetching::page), "failed: BadStream", "taken"),
        Mutant::NoRoomLook => {
            let green = "failed: ModelLoadFailed";
            (story!(fetching::no_room), green, "completed")
        }
        Mutant::ParkCounts => (story!(park), "completed", "failed: TurnTimeout"),
        // The database refuses it too, but has no words for it.
        Mutant::AnyAnswerCounts => (story!(two_answers), "AlreadyResolved", "Other"),
        Mutant::MayHaveRunIgnored => (story!(changing::stopped_and_again), "asks", "completed"),
        Mutant::FollowerRunsToo => {
            let green = "questions1";
            (story!(changing::twice_in_a_step), green, "questions2")
        }
        Mutant::ChangedSinceAsked => (story!(changing::changed_meanwhile), "mine", "hello"),
        Mutant::FollowLinks => (story!(changing::link_meanwhile), "elsewhere0", "elsewhere1"),
        Mutant::RunOnParse => (story!(cut_call), "runs0", "runs1"),
        Mutant::TextClassForCalls => (story!(tool_sync), "syncs1", "syncs0"),
        Mutant::NoRecovery => {
            let green = "ends1 then taken";
            (story!(crash), green, "ends0 then TurnActive")
        }
        Mutant::NoToolRecovery => (story!(orphan), "results1", "results0"),
        Mutant::WakeBeforeCommit => (story!(held_commit), "ahead0", "ahead1"),
        Mutant::FlushEveryToken => (story!(burst), "pieces2", "pieces200"),
        Mutant::NoFlushBeforeOther => (story!(text_before_call), "order1", "order0"),
        Mutant::SplitOp => (story!(half_an_op), "half0", "half1"),
        Mutant::NoSalvage => (story!(damaged::no_database), "opens", "refused: Damaged"),
        Mutant::SkipDamageCheck => {
            let green = "Unsupported in its place";
            (story!(damaged::missing_event), green, "a hole")
        }
        Mutant::RoomIgnored => (story!(full_disk), "StorageFailed", "taken"),
        Mutant::NoOpId => (story!(op_twice), "the same receipt", "TurnActive"),
        Mutant::NoOpIdInSettings => {
            let green = "the same receipt";
            (story!(removed_twice), green, "NotFound")
        }
        Mutant::NoOpIdInWriter => (story!(server_twice), "the same receipt", "Other"),
        Mutant::NoExpectedHead => {
            let green = "ok1 stale1 rewinds1";
            (story!(retry_twice), green, "ok2 stale0 rewinds2")
        }
        Mutant::CheckOutsideTx => {
            let green = "turns1 active1 lost0";
            (story!(clicking::at_once), green, "turns1 active0 lost1")
        }
        Mutant::AnyEventIsStale => (story!(clicking::after_a_title), "refused0", "refused1"),
        Mutant::EditInTwoOps => (story!(clicking::and_gone), "turns1", "turns0"),
        Mutant::NoTurnActive => (story!(send_while_running), "TurnActive", "Other"),
        Mutant::BareSpawn => (story!(waiting::op_under_way), "tasks0", "tasks1"),
        Mutant::ImageNotStored => {
            let red = "Invalid { field: \"images\" }";
            (story!(showing::sent), "images1", red)
        }
        Mutant::ImagesForgotten => (story!(showing::sent), "images1", "images0"),
        Mutant::UnknownImageSent => {
            let green = "Invalid { field: \"images\" }";
            (story!(showing::unknown), green, "taken")
        }
        Mutant::BlindAsked => {
            let green = "failed: CannotSeeImages";
            (story!(showing::blind), green, "completed")
        }
        Mutant::SeenAgain => (story!(seen_twice), "notes1", "notes2"),
        Mutant::StoppedIsNews => (story!(stopped_by_hand), "read", "unread"),
        Mutant::SkipLogId => (story!(foreign_cursor), "Reset(ForeignLog)", "Resume"),
        Mutant::ClampCursor => (story!(cursor_ahead), "Reset(AheadOfHead)", "Resume"),
        Mutant::CheckThenPark => (story!(wakeup), "answered", "parked1"),
        Mutant::EpochFromOne => (story!(old_boot), "UnknownEpoch", "stranger1"),
        Mutant::NoReap => (story!(reloads), "attachments1", "attachments11"),
        Mutant::LastHelloWins => {
            let green = "live-refused0";
            (story!(attaching::hello_again), green, "live-refused1")
        }
        Mutant::NoIdleReap => {
            let green = "attachments0";
            (story!(attaching::left), green, "attachments1")
        }
        Mutant::ForgetSuperseded => {
            let green = "Superseded";
            (story!(attaching::overtaken), green, "UnknownEpoch")
        }
        Mutant::LateAttachWins => {
            let green = "the living poll goes on";
            (story!(attaching::late_attach), green, "UnknownEpoch")
        }
        Mutant::StrictMaxBytes => (story!(attaching::big_event), "delivered", "stuck1"),
        Mutant::KeyFollowsAddress => {
            let green = "failed: KeyRejected shown0";
            (story!(serving::moved), green, "completed shown1")
        }
        Mutant::FollowRedirects => (story!(serving::pointed_elsewhere), "shown0", "shown1"),
        Mutant::KeyInTheClear => (story!(serving::in_the_clear), "shown0", "shown1"),
        Mutant::TrustAnywhere => {
            let green = "failed: ConnectFailed";
            (story!(serving::trusted_elsewhere), green, "completed")
        }
        Mutant::LocalThroughProxy => {
            let red = "failed: ConnectFailed";
            (story!(serving::past_the_proxy), "completed", red)
        }
        Mutant::KeychainForEver => {
            let green = "failed: KeyRejected";
            (story!(serving::locked), green, "waits on")
        }
        Mutant::KeyAsPasted => (story!(serving::pasted_in_quotes), "key1", "key0"),
        Mutant::FailedCountIsZero => (story!(attaching::failed_look), "answered", "parked1"),
    };
    Line { story, green, red }
}

const DIALECT: Dialect = Dialect::Ollama;

/// A world whose engine lacks the guard, and a server.
async fn set(mutant: Option<Mutant>) -> (World, ModelServer) {
    let mut world = World::without_engine();
    world.mutant = mutant;
    world.limits.ceiling_ms = 3 * 60 * 60 * 1_000;
    world.open().await;
    (world, ModelServer::start(DIALECT))
}

/// Begins a conversation and follows it.
async fn begin(world: &World, server: &ModelServer) -> (SessionId, Client<Transcript>) {
    let session = world.begin(server, "Hello?").await;
    (session, world.page().await.follow(session))
}

/// How the last turn ended.
async fn end_of(window: &Client<Transcript>) -> String {
    window.until_idle().await;
    last_outcome(window)
}

fn last_outcome(window: &Client<Transcript>) -> String {
    window.look(|shown| {
        let turn = shown.and_then(|shown| shown.turns().next_back());
        picture::outcome(turn.and_then(|turn| turn.outcome.as_ref()))
    })
}

fn count(events: &[Event], wanted: fn(&EventBody) -> bool) -> usize {
    events.iter().filter(|event| wanted(&event.body)).count()
}

fn is_end(body: &EventBody) -> bool {
    matches!(body, EventBody::TurnEnded { .. })
}

fn refusal<T>(answer: Result<T, Missed>) -> Option<ErrorCode> {
    match answer {
        Ok(_) => None,
        Err(Missed::Refused(report)) => Some(report.code),
        Err(Missed::Lost) => panic!("nobody answered"),
    }
}

fn said(answer: Option<ErrorCode>, well: &str) -> String {
    answer.map_or_else(|| well.to_owned(), |code| format!("{code:?}"))
}

async fn cut(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    server.script(
        Answer::new(DIALECT)
            .says("Half ")
            .gate("cut")
            .cut(Ending::Fin),
    );
    let (_, window) = begin(&world, &server).await;
    window.sees("Half ").await;
    server.pass("cut").await;
    let end = tokio::select! {
        biased;
        end = end_of(&window) => end,
        _ = window.until_status("another attempt", |status| {
            matches!(status.phase, Phase::Retrying { .. })
        }) => "asks again".to_owned(),
    };
    format!("{end} dials{}", server.counters().chats)
}

async fn reasoning_alone(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    server.script(Answer::new(DIALECT).thinks("Hm.").ends());
    let (_, window) = begin(&world, &server).await;
    end_of(&window).await
}

/// A sign of life just inside the gap, again and again, for longer than any first event may take.
async fn lively_and_long(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    let answer = Answer::new(DIALECT).says("Slow").gate("1").pings();
    server.script(answer.gate("2").pings().gate("3").pings().gate("4").ends());
    let (_, window) = begin(&world, &server).await;
    window.sees("Slow").await;
    let patient = async {
        for gate in ["1", "2", "3", "4"] {
            server.arrived(gate).await;
            tokio::select! {
                () = world.clock.until_armed(world.gap()) => {}
                // What would be left of a total of as long as a first event may take.
                () = world.clock.until_armed(Duration::from_secs(2)) => {}
            }
            world.clock.advance(world.gap() - Duration::from_secs(1));
            server.release(gate);
        }
        std::future::pending::<()>().await;
    };
    let end = tokio::select! {
        biased;
        end = end_of(&window) => end,
        () = patient => unreachable!("it waits for the end"),
    };
    server.release_all();
    end
}

/// The head of the reply at once, the first word after nine minutes.
async fn long_load(mutant: Option<Mutant>) -> String {
    let (world, _) = set(mutant).await;
    let dialect = Dialect::OpenAiChat;
    let server = ModelServer::start(dialect);
    server.script(
        Answer::new(dialect)
            .begins()
            .gate("loaded")
            .says("Here.")
            .ends(),
    );
    world.gates.hold(Gate::Decoding);
    let (_, window) = begin(&world, &server).await;
    window.sees("you: Hello?").await;
    world.gates.pass(Gate::Decoding).await;
    tokio::select! {
        () = world.clock.until_armed(world.first_event()) => {}
        () = world.clock.until_armed(world.gap()) => {}
    }
    world.clock.advance(Duration::from_secs(540));
    tokio::select! {
        biased;
        end = end_of(&window) => {
            server.release_all();
            return end;
        }
        () = world.clock.until_armed(world.first_event() - Duration::from_secs(540)) => {}
    }
    server.pass("loaded").await;
    end_of(&window).await
}

async fn asked_to_wait(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    server.script(Script::error(DIALECT, 429, "slow down").header("Retry-After", "30"));
    let (_, window) = begin(&world, &server).await;
    let status = window
        .until_status("the wait", |status| {
            matches!(status.phase, Phase::Retrying { .. })
        })
        .await;
    let Phase::Retrying { until, .. } = status.phase else {
        panic!("{status:?}")
    };
    format!("waits {} s", until.millis_since(status.since) / 1_000)
}

async fn ceiling(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    server.script(Answer::new(DIALECT).says("On and on").goes_silent());
    let (_, window) = begin(&world, &server).await;
    window.sees("On and on").await;
    world.clock.until_armed(world.ceiling()).await;
    world.clock.advance(world.ceiling());
    end_of(&window).await
}

/// A turn that may take as long as its model may be silent.
async fn equal_limits(mutant: Option<Mutant>) -> String {
    let (world, _server) = set(mutant).await;
    let mut limits = world.limits;
    limits.ceiling_ms = limits.first_event_ms.max(limits.gap_ms);
    said(
        refusal(world.submit(Op::ChangeTimeLimits { limits }).await),
        "taken",
    )
}

async fn quit(mutant: Option<Mutant>) -> String {
    let (mut world, server) = set(mutant).await;
    server.script(Answer::new(DIALECT).says("On and on").goes_silent());
    let (session, window) = begin(&world, &server).await;
    window.sees("On and on").await;
    world.quit().await;
    let stored = world.reader().transcript(session).expect("it can be read");
    let end = picture::outcome(stored.turns[0].outcome.as_ref());
    format!("{end} ends{}", count(&world.events(session), is_end))
}

async fn stop(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    server.script(Answer::new(DIALECT).says("On and on").goes_silent());
    let (session, window) = begin(&world, &server).await;
    window.sees("On and on").await;
    let turn = window
        .until_shown("the turn", |shown| shown.running())
        .await;
    world.stop(session, turn).await;
    let end = end_of(&window).await;
    // Later connections come and go; by then the server has heard of the end of an earlier one.
    for word in ["one", "two", "three"] {
        server.script(Answer::whole(DIALECT, word));
        world.say(session, "And?").await;
        window.sees(word).await;
        window.until_idle().await;
    }
    format!("{end} closed{}", server.counters().closed_by_us)
}

async fn panic(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    server.script(Answer::new(DIALECT).says("On and on").goes_silent());
    world.gates.panic_at(Gate::Deciding);
    let (session, window) = begin(&world, &server).await;
    let end = end_of(&window).await;
    // What was committed is counted by the session before it does anything else.
    let title = "Ended".to_owned();
    let renamed = world.submit(Op::RenameSession { session, title }).await;
    renamed.expect("renamed");
    format!("{end} backstops{}", world.engine().counters().backstops)
}

async fn always_calls(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    for n in 0..24 {
        let arguments = json!({ "again": n });
        server.script(Answer::new(DIALECT).calls("current_time", arguments).ends());
    }
    server.script(Answer::whole(DIALECT, "At last."));
    let (_, window) = begin(&world, &server).await;
    let end = end_of(&window).await;
    server.forget_scripts();
    format!("{end} dials{}", server.counters().chats)
}

async fn same_call_again(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    for _ in 0..24 {
        server.script(Answer::new(DIALECT).calls("current_time", json!({})).ends());
    }
    let (_, window) = begin(&world, &server).await;
    let end = end_of(&window).await;
    server.forget_scripts();
    format!("{end} dials{}", server.counters().chats)
}

async fn cut_with_another(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    let other = ModelServer::start(Dialect::OpenAiChat);
    world.add(other.provider()).await;
    let models = vec![other.model()];
    world
        .submit(Op::ChooseFallbacks { models })
        .await
        .expect("chosen");
    server.script(
        Answer::new(DIALECT)
            .says("Half ")
            .gate("cut")
            .cut(Ending::Fin),
    );
    other.script(Answer::whole(Dialect::OpenAiChat, "of another."));
    let (_, window) = begin(&world, &server).await;
    window.sees("Half ").await;
    server.pass("cut").await;
    let end = end_of(&window).await;
    other.forget_scripts();
    format!("{end} other{}", other.counters().chats)
}

/// A conversation that fits its model no better when it is summed up.
async fn never_fits(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    // Of enough turns the newest stays out of the first summary, so that there is something for a second one.
    const BEFORE: u64 = 12;
    server.script(Answer::whole(DIALECT, "Yes 1."));
    let (session, window) = begin(&world, &server).await;
    window.until_idle().await;
    for n in 2..=BEFORE {
        let answer = format!("Yes {n}.");
        server.script(Answer::whole(DIALECT, &answer));
        world.say(session, "Really?").await;
        window.sees(&answer).await;
        window.until_idle().await;
    }
    for _ in 0..2 {
        let words = "the prompt exceeds the available context size";
        server.script(Script::error(DIALECT, 400, words));
        server.script(Answer::whole(DIALECT, "They said hello."));
    }
    server.script(Answer::whole(DIALECT, "It fits."));
    world.say(session, "And now?").await;
    window.sees("And now?").await;
    let end = end_of(&window).await;
    server.forget_scripts();
    format!("{end} dials{}", server.counters().chats - BEFORE)
}

/// A model asked, and waits for the user's word.
struct Asked<'a> {
    world: &'a World,
    session: SessionId,
    turn: TurnId,
    item: ItemId,
    window: Client<Transcript>,
}

fn a_file(path: &str) -> serde_json::Value {
    json!({ "path": path, "content": "hello" })
}

/// A model that wants to write a file.
fn writes(path: &str) -> Answer {
    Answer::new(DIALECT).calls("write_file", a_file(path))
}

/// A model that wants to change something below a folder of the world, and the question it leads to.
async fn asked<'a>(world: &'a World, server: &ModelServer, wants: Script) -> Asked<'a> {
    let folder = world.data_dir().join("files");
    std::fs::create_dir_all(&folder).expect("a folder");
    world.add(server.provider()).await;
    server.script(wants);
    server.script(Answer::whole(DIALECT, "Done."));
    let session = SessionId::from_bits(random_u128());
    let started = world.submit(Op::StartSession {
        session,
        model: server.model(),
        text: "Write.".to_owned(),
        folder: Some(folder.display().to_string()),
        options: protocol::ModelOptions::default(),
        images: Vec::new(),
    });
    let receipt = started.await.expect("it starts");
    let window = world.page().await.follow(session);
    let asks = |status: &protocol::Status| matches!(status.phase, Phase::Asking { .. });
    let status = window.until_status("the question", asks).await;
    let Phase::Asking { item } = status.phase else {
        panic!("{status:?}")
    };
    Asked {
        world,
        session,
        turn: receipt.turn.expect("a turn"),
        item,
        window,
    }
}

/// Four hours pass before the user answers.
async fn park(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    let set = asked(&world, &server, writes("a.txt").ends()).await;
    let (session, turn, item, window) = (set.session, set.turn, set.item, set.window);
    world.clock.advance(Duration::from_secs(4 * 60 * 60));
    let answer = protocol::Answer::AllowOnce;
    let allow = Op::AnswerApproval {
        session,
        turn,
        item,
        answer,
    };
    let allowed = world.submit(allow).await;
    let end = end_of(&window).await;
    server.forget_scripts();
    assert!(allowed.is_ok() || mutant.is_some(), "{allowed:?}");
    end
}

/// The second answer comes while the turn still runs.
async fn two_answers(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    let set = asked(&world, &server, writes("a.txt").ends()).await;
    let (session, turn, item, window) = (set.session, set.turn, set.item, set.window);
    world.gates.hold(Gate::BeforeDial);
    let mut said = None;
    for answer in [protocol::Answer::AllowOnce, protocol::Answer::Deny] {
        let op = Op::AnswerApproval {
            session,
            turn,
            item,
            answer,
        };
        said = refusal(world.submit(op).await);
        world.gates.arrived(Gate::BeforeDial).await;
    }
    world.gates.release(Gate::BeforeDial);
    window.until_idle().await;
    match said {
        Some(ErrorCode::AlreadyResolved { .. }) => "AlreadyResolved".to_owned(),
        other => self::said(other, "taken"),
    }
}

async fn cut_call(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    server.script(
        Answer::new(DIALECT)
            .calls("current_time", json!({}))
            .reaches_its_limit(),
    );
    server.script(Answer::whole(DIALECT, "At last."));
    let (session, window) = begin(&world, &server).await;
    window.until_idle().await;
    server.forget_scripts();
    let runs = |body: &EventBody| matches!(body, EventBody::ToolCallStarted { .. });
    format!("runs{}", count(&world.events(session), runs))
}

async fn tool_sync(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    server.script(Answer::new(DIALECT).calls("current_time", json!({})).ends());
    server.script(Answer::whole(DIALECT, "At last."));
    world.gates.hold(Gate::BeforeDial);
    world.gates.hold(Gate::ToolRunning);
    let (_, window) = begin(&world, &server).await;
    world.gates.arrived(Gate::BeforeDial).await;
    let before = world.engine().counters().log.syncs;
    world.gates.release(Gate::BeforeDial);
    world.gates.arrived(Gate::ToolRunning).await;
    let after = world.engine().counters().log.syncs;
    world.gates.release(Gate::ToolRunning);
    window.until_idle().await;
    format!("syncs{}", after - before)
}

/// A child engine that is killed in mid-answer, and the folder opened again without the guard.
async fn after_a_crash(mutant: Option<Mutant>, held: Held) -> (World, ModelServer, SessionId) {
    let mut world = World::without_engine();
    world.mutant = mutant;
    let server = ModelServer::start(DIALECT);
    let child = world.spawn_held(Path::new(CHILD), held).await;
    let answer = Answer::new(DIALECT).says("Half ");
    server.script(match held.gate {
        Some(_) => answer.calls("current_time", json!({})).ends(),
        None => answer.goes_silent(),
    });
    let session = world.begin(&server, "Hello?").await;
    match held.gate {
        Some(_) => child.stands().await,
        None => {
            world.page().await.follow(session).sees("Half ").await;
        }
    }
    child.kill().await;
    world.line.cut();
    world.open().await;
    (world, server, session)
}

async fn crash(mutant: Option<Mutant>) -> String {
    let (world, server, session) = after_a_crash(mutant, Held::default()).await;
    let ends = count(&world.events(session), is_end);
    server.script(Answer::whole(DIALECT, "Here."));
    let text = "Are you there?".to_owned();
    let sent = refusal(world.submit(Op::message(session, text)).await);
    if sent.is_none() {
        world.page().await.follow(session).until_idle().await;
    }
    server.forget_scripts();
    format!("ends{ends} then {}", said(sent, "taken"))
}

async fn orphan(mutant: Option<Mutant>) -> String {
    let held = Held {
        gate: Some((Gate::ToolRunning, 1)),
        ..Held::default()
    };
    let (world, _server, session) = after_a_crash(mutant, held).await;
    let result = |body: &EventBody| matches!(body, EventBody::ToolCallFinished { .. });
    format!("results{}", count(&world.events(session), result))
}

/// By how much a poll's head is ahead of what it brings, while a commit is held.
async fn held_commit(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    server.script(
        Answer::new(DIALECT)
            .says("One, ")
            .gate("1")
            .says("two.")
            .gate("2")
            .ends(),
    );
    let (session, window) = begin(&world, &server).await;
    window.sees("One, ").await;
    let other = Page::load(&world.line, "another").await;
    let attached = other
        .attach(StreamId::Session(session))
        .await
        .expect("it may");
    world.gates.hold(Gate::Committing);
    server.pass("1").await;
    server.arrived("2").await;
    world.flush_text().await;
    world.gates.arrived(Gate::Committing).await;
    let batch = world
        .line
        .poll(PollRequest {
            epoch: attached.epoch,
            after: attached.head,
            seen_status: u64::MAX,
            wait_ms: 0,
            max_bytes: 1_000,
        })
        .await
        .expect("an answer");
    let brought = u64::try_from(batch.events.len()).expect("few");
    let ahead = batch.head.count() - attached.head.count() - brought;
    world.gates.release(Gate::Committing);
    server.release("2");
    window.until_idle().await;
    format!("ahead{ahead}")
}

async fn burst(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    let words = "word ".repeat(200);
    server.script(Answer::new(DIALECT).says_word_by_word(&words).ends());
    let (session, window) = begin(&world, &server).await;
    window.until_idle().await;
    let text = |body: &EventBody| matches!(body, EventBody::TextAppended { .. });
    format!("pieces{}", count(&world.events(session), text))
}

async fn text_before_call(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    let answer = Answer::new(DIALECT).says("Let me ").says("look. ");
    server.script(answer.calls("current_time", json!({})).ends());
    server.script(Answer::whole(DIALECT, "Nine."));
    let (session, window) = begin(&world, &server).await;
    window.until_idle().await;
    let events = world.events(session);
    let place =
        |wanted: fn(&EventBody) -> bool| events.iter().position(|event| wanted(&event.body));
    let call = place(|body| matches!(body, EventBody::ToolCallRequested { .. }));
    let text =
        place(|body| matches!(body, EventBody::TextAppended { text, .. } if text.contains("look")));
    format!("order{}", u8::from(text < call))
}

async fn half_an_op(mutant: Option<Mutant>) -> String {
    let mut world = World::new().await;
    let server = ModelServer::start(DIALECT);
    server.script(Answer::whole(DIALECT, "Yes."));
    let session = world.begin(&server, "Hello?").await;
    world.page().await.follow(session).until_idle().await;
    world.quit().await;
    let held = Held {
        gate: Some((Gate::OpHalfWritten, 1)),
        mutant: mutant.map(|_| ChildMutant::SplitOp),
        ..Held::default()
    };
    let child = world.spawn_held(Path::new(CHILD), held).await;
    let text = "And now?".to_owned();
    tokio::select! {
        biased;
        () = child.stands() => {}
        answer = world.submit(Op::message(session, text)) => panic!("answered: {answer:?}"),
    }
    child.kill().await;
    world.line.cut();
    let events = world.events(session);
    let messages = count(&events, |body| {
        matches!(body, EventBody::UserMessageAdded { .. })
    });
    let starts = count(&events, |body| {
        matches!(body, EventBody::TurnStarted { .. })
    });
    format!("half{}", messages - starts)
}

/// Almost nothing is left of the disk.
async fn full_disk(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    let session = ended(&world, &server).await;
    let few = 30 * 1_024 * 1_024;
    world
        .free_bytes
        .store(few, std::sync::atomic::Ordering::Relaxed);
    world.clock.advance(Duration::from_secs(6));
    let text = "And now?".to_owned();
    let sent = refusal(world.submit(Op::message(session, text)).await);
    said(sent, "taken")
}

async fn op_twice(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    server.script(Answer::whole(DIALECT, "Yes."));
    server.script(Answer::new(DIALECT).gate("end").says("Again.").ends());
    let (session, window) = begin(&world, &server).await;
    window.until_idle().await;
    let text = "And now?".to_owned();
    let (op_id, op) = (OpId::from_bits(random_u128()), Op::message(session, text));
    let first = world.line.submit(op_id, op.clone()).await;
    server.arrived("end").await;
    let second = world.line.submit(op_id, op).await;
    let same = first == second;
    server.release("end");
    window.sees("Again.").await;
    window.until_idle().await;
    match refusal(second) {
        None if same => "the same receipt".to_owned(),
        answer => said(answer, "another receipt"),
    }
}

async fn server_twice(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    let provider = server.provider();
    let (op_id, op) = (OpId::from_bits(random_u128()), Op::AddProvider { provider });
    let first = world.line.submit(op_id, op.clone()).await;
    let second = world.line.submit(op_id, op).await;
    let same = first == second;
    match refusal(second) {
        None if same => "the same receipt".to_owned(),
        answer => said(answer, "another receipt"),
    }
}

async fn removed_twice(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    let provider = server.provider();
    let (op_id, op) = (
        OpId::from_bits(random_u128()),
        Op::RemoveProvider {
            provider: provider.id,
        },
    );
    world.add(provider).await;
    let first = world.line.submit(op_id, op.clone()).await;
    let second = world.line.submit(op_id, op).await;
    let same = first == second;
    match refusal(second) {
        None if same => "the same receipt".to_owned(),
        answer => said(answer, "another receipt"),
    }
}

async fn retry_twice(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    server.script(Answer::whole(DIALECT, "Yes."));
    let (session, window) = begin(&world, &server).await;
    window.until_idle().await;
    let expected_tip = window
        .look(|shown| shown.and_then(Transcript::tip))
        .expect("a tip");
    let (mut ok, mut stale) = (0, 0);
    for word in ["one", "two"] {
        server.script(Answer::whole(DIALECT, word));
        let turn = window
            .until_shown("a turn", |shown| {
                shown.turns().next_back().map(|turn| turn.turn)
            })
            .await;
        let retry = Op::RetryTurn {
            session,
            turn,
            expected_tip,
        };
        match refusal(world.submit(retry).await) {
            None => {
                ok += 1;
                window.sees(word).await;
                window.until_idle().await;
            }
            Some(code) => {
                assert_eq!(code, ErrorCode::StaleHead);
                stale += 1;
            }
        }
    }
    server.forget_scripts();
    let rewinds = |body: &EventBody| matches!(body, EventBody::HistoryRewound { .. });
    let rewinds = count(&world.events(session), rewinds);
    format!("ok{ok} stale{stale} rewinds{rewinds}")
}

async fn send_while_running(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    server.script(Answer::new(DIALECT).says("On").gate("end").ends());
    let (session, window) = begin(&world, &server).await;
    window.sees("On").await;
    let text = "And now?".to_owned();
    let sent = refusal(world.submit(Op::message(session, text)).await);
    server.pass("end").await;
    window.until_idle().await;
    said(sent, "taken")
}

/// A session with an ended turn.
async fn ended(world: &World, server: &ModelServer) -> SessionId {
    server.script(Answer::whole(DIALECT, "Yes."));
    let (session, window) = begin(world, server).await;
    window.until_idle().await;
    session
}

async fn foreign_cursor(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    let session = ended(&world, &server).await;
    let foreign = Cursor::from_count(protocol::LogId::from_bits(random_u128()), 3);
    let page = Page::load(&world.line, "another").await;
    let attached = page
        .attach_at(StreamId::Session(session), Some(foreign))
        .await;
    format!("{:?}", attached.expect("it may").mode)
}

async fn cursor_ahead(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    let session = ended(&world, &server).await;
    let ahead = Cursor::from_count(world.engine().log_id(), 1_000);
    let page = Page::load(&world.line, "another").await;
    let attached = page
        .attach_at(StreamId::Session(session), Some(ahead))
        .await;
    format!("{:?}", attached.expect("it may").mode)
}

/// A commit between a poll's look and its parking.
async fn wakeup(mutant: Option<Mutant>) -> String {
    let (mut world, server) = set(mutant).await;
    let session = ended(&world, &server).await;
    // What the turn was doing is told no more: that, too, would make the poll look again.
    world.restart().await;
    let page = Page::load(&world.line, "another").await;
    let attached = page
        .attach(StreamId::Session(session))
        .await
        .expect("it may");
    world.gates.hold(Gate::PollLooked);
    let request = PollRequest {
        epoch: attached.epoch,
        after: attached.head,
        seen_status: u64::MAX,
        wait_ms: 8_000,
        max_bytes: 1_000,
    };
    let line = world.line.clone();
    let polling = async move { line.poll(request).await };
    tokio::pin!(polling);
    tokio::select! {
        biased;
        _ = &mut polling => panic!("there is nothing yet"),
        () = world.gates.arrived(Gate::PollLooked) => {}
    }
    let title = "Meanwhile".to_owned();
    world
        .submit(Op::RenameSession { session, title })
        .await
        .expect("renamed");
    world.gates.release(Gate::PollLooked);
    // Much happens elsewhere, and no time passes.
    let much = async {
        for _ in 0..50 {
            world.add(server.provider()).await;
        }
    };
    tokio::select! {
        biased;
        _ = &mut polling => "answered".to_owned(),
        () = much => format!("parked{}", world.engine().counters().parked_now),
    }
}

/// A poll with an epoch of the boot before, after a stranger attached.
async fn old_boot(mutant: Option<Mutant>) -> String {
    let (mut world, server) = set(mutant).await;
    let page = world.page().await;
    let old = page.attach(StreamId::Library).await.expect("it may");
    let session = ended(&world, &server).await;
    world.restart().await;
    let stranger = Page::load(&world.line, "a stranger").await;
    stranger
        .attach(StreamId::Session(session))
        .await
        .expect("it may");
    let answer = world
        .line
        .poll(PollRequest {
            epoch: old.epoch,
            after: old.head,
            seen_status: 0,
            wait_ms: 0,
            max_bytes: 1_000,
        })
        .await;
    said(refusal(answer), "stranger1")
}

async fn reloads(mutant: Option<Mutant>) -> String {
    let (world, _server) = set(mutant).await;
    let mut page = world.page().await;
    page.attach(StreamId::Library).await.expect("it may");
    for _ in 0..10 {
        page = page.reload().await;
        page.attach(StreamId::Library).await.expect("it may");
    }
    format!("attachments{}", world.engine().counters().attachments_now)
}

async fn seen_twice(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    server.script(Answer::whole(DIALECT, "Here."));
    let (session, window) = begin(&world, &server).await;
    end_of(&window).await;
    let turn = TurnId::FIRST;
    for _ in 0..2 {
        let seen = world.submit(Op::NoteSeen { session, turn }).await;
        seen.expect("noted");
    }
    let events = world.reader().events(StreamId::Library, None, usize::MAX);
    let is_note = |body: &EventBody| matches!(body, EventBody::SessionSeen { .. });
    format!("notes{}", count(&events.expect("it can be read"), is_note))
}

async fn stopped_by_hand(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    server.script(Answer::new(DIALECT).says("On and on").goes_silent());
    let (session, window) = begin(&world, &server).await;
    window.sees("On and on").await;
    world.stop(session, TurnId::FIRST).await;
    end_of(&window).await;
    let library = world.reader().library().expect("it can be read");
    let unread = library.sessions.iter().any(|s| s.unread.is_some());
    if unread { "unread" } else { "read" }.to_owned()
}
