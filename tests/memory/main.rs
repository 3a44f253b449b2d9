//! What is held in memory does not grow with what windows and turns did: counted in bytes that were allocated and not freed.
//!
//! Invariant: one test alone in its process, since the allocator counts for all of it; and counted at rest only, so that
//! nothing depends on when. That growth would be noticed is shown each time, with a guard that is gone and with a window
//! that keeps what it drew.

#![allow(
    unsafe_code,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a counting allocator, in a test"
)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering},
};

use engine::mutant::Mutant;
use protocol::{Dialect, SessionId, StreamId};
use tests::{
    client::Page,
    model_server::{Answer, ModelServer},
    watched::within_limit,
    world::World,
};

/// The system's allocator, and how many bytes it has given and not got back.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call is the system allocator's own; only a number is kept beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

const DIALECT: Dialect = Dialect::Ollama;

/// Conversations that windows open in turn.
const SESSIONS: usize = 4;

/// More than the engine remembers of pages that are gone.
const WARM_UP: usize = 400;
const CYCLES: usize = 1_000;

/// Far less than the smallest thing that could be left behind by each, and enough for what the runtime does by itself.
fn most_left(cycles: usize) -> i64 {
    signed(32 * cycles)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_windows_and_turns_leave_in_memory_does_not_grow_with_their_number() {
    let left = left_by_windows(None, CYCLES).await;
    println!("{left} bytes more after {CYCLES} windows");
    assert!(left < most_left(CYCLES), "{left} bytes are left");
    let few = CYCLES / 10;
    let lacking = left_by_windows(Some(Mutant::NoReap), few).await;
    println!("{lacking} bytes more after {few} whose attachments stay");
    assert!(lacking > most_left(few), "it would be noticed");

    let held = held_by_a_turn(WORDS, Watched::No).await;
    println!("{held} bytes more after {WORDS} more words of an answer");
    assert!(held < text_of(WORDS) / 4, "{held} bytes are held");
    let watched = held_by_a_turn(WORDS, Watched::Yes).await;
    println!("{watched} bytes more after {WORDS} in a window that shows them");
    assert!(watched > text_of(WORDS), "it would be noticed");
}

fn tasks() -> usize {
    tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks()
}

/// What is held when nothing goes on any more but what went on before.
async fn held_at_rest(world: &World, tasks_before: usize) -> i64 {
    let rest = async {
        while world.engine().counters().parked_now > 0 || tasks() > tasks_before {
            tokio::task::yield_now().await;
        }
    };
    within_limit("everything to come to rest", rest).await;
    held_now()
}

fn held_now() -> i64 {
    signed(HELD.load(Ordering::Relaxed))
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).expect("less than there is memory")
}

/// By how much more is held after so many windows were opened, reloaded and closed, each over a conversation.
async fn left_by_windows(mutant: Option<Mutant>, cycles: usize) -> i64 {
    let server = ModelServer::start(DIALECT);
    let mut world = World::without_engine();
    world.mutant = mutant;
    world.open().await;
    world.add(server.provider()).await;
    let mut sessions = Vec::new();
    for n in 0..SESSIONS {
        server.script(Answer::whole(DIALECT, &format!("Yes {n}.")));
        let session = world.begin_with(server.model(), "Hello?").await;
        world.page().await.follow(session).until_idle().await;
        sessions.push(session);
    }
    world.engine().window_gone("main");
    // Nobody writes any more: the views of the turns are kept.
    world.restart().await;
    let tasks_before = tasks();
    for n in 0..WARM_UP {
        open_reload_and_close(&world, sessions[n % SESSIONS], n).await;
    }
    let before = held_at_rest(&world, tasks_before).await;
    for n in 0..cycles {
        open_reload_and_close(&world, sessions[n % SESSIONS], n).await;
    }
    let after = held_at_rest(&world, tasks_before).await;
    if mutant.is_none() {
        assert_eq!(world.engine().counters().attachments_now, 0);
    }
    after - before
}

async fn open_reload_and_close(world: &World, session: SessionId, n: usize) {
    let name = format!("window {}", n % 7);
    let page = Page::load(&world.line, &name).await;
    page.follow(session).until_idle().await;
    let page = page.reload().await;
    let window = page.follow(session);
    window.until_idle().await;
    window.close().await;
    let left = Page::load(&world.line, &name).await;
    let attached = left.attach(StreamId::Library).await;
    attached.expect("a fresh page may attach");
    world.engine().window_gone(&name);
}

/// Words in each half of an answer, every one a delta of its own.
const WORDS: usize = 10_000;
const WORD: &str = "kelp ";

/// What may wait to be joined while the clock stands.
const JOINED_BYTES: usize = 4 * 1024;

fn text_of(words: usize) -> i64 {
    signed(words * WORD.len())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Watched {
    Yes,
    No,
}

/// By how much more is held in the middle of an answer after its second half than after its first.
async fn held_by_a_turn(words: usize, watched: Watched) -> i64 {
    let server = ModelServer::start(DIALECT);
    let world = World::new().await;
    let half = WORD.repeat(words);
    let answer = Answer::new(DIALECT).says("Well: ").gate("begin");
    let answer = answer.says_word_by_word(&half).gate("half");
    server.script(answer.says_word_by_word(&half).gate("whole").ends());
    let session = world.begin(&server, "Go on.").await;
    let page = world.page().await;
    let window = match watched {
        Watched::Yes => Some(page.follow(session)),
        Watched::No => None,
    };
    server.pass("begin").await;
    let mut held = Vec::new();
    for (gate, halves) in [("half", 1), ("whole", 2)] {
        server.arrived(gate).await;
        // What has arrived here may still be on its way there: all of it but what waits to be joined is in the log.
        let written = async {
            while text_bytes(&world, session) + JOINED_BYTES < halves * words * WORD.len() {
                tokio::task::yield_now().await;
            }
        };
        within_limit("the text to be written", written).await;
        if let Some(window) = &window {
            let all = halves * words - JOINED_BYTES / WORD.len();
            let drawn = |text: &str| text.matches(WORD).count() >= all;
            window.until_text("the text", drawn).await;
            // What brought it is held until its window asks for more.
            let asked = async {
                while world.engine().counters().parked_now == 0 {
                    tokio::task::yield_now().await;
                }
            };
            within_limit("the window to ask for more", asked).await;
        }
        held.push(held_now());
        server.release(gate);
    }
    world.engine().until_no_turn_runs().await;
    held[1] - held[0]
}

fn text_bytes(world: &World, session: SessionId) -> usize {
    let events = world.events(session);
    let texts = events.iter().filter_map(|event| match &event.body {
        protocol::EventBody::TextAppended { text, .. } => Some(text.len()),
        _ => None,
    });
    texts.sum()
}
