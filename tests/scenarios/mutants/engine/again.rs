//! Requests: how often a server is asked, how its bytes are read, and how long its silence lasts.

use std::time::Duration;

use engine::{gate::Gate, mutant::Mutant};
use protocol::{Phase, StreamId};
use tests::{
    client::Page,
    model_server::{Answer, Script},
};

use super::{DIALECT, begin, end_of, ended, set};

/// A server that is busy every time.
pub(super) async fn busy(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    for _ in 0..9 {
        server.script(Script::error(DIALECT, 503, "busy"));
    }
    let (_, window) = begin(&world, &server).await;
    for attempt in [2, 3] {
        world.pass_the_wait(&window, attempt).await;
    }
    end_of(&window).await;
    server.forget_scripts();
    format!("dials{}", server.counters().chats)
}

/// A model that is not loaded after the longest time there is for it.
pub(super) async fn loads_for_ever(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    server.script(Answer::new(DIALECT).stirs().goes_silent());
    // The silence begins anew with what stirs, and from then on there is nothing on its way.
    world.gates.hold(Gate::Decoding);
    let (_, window) = begin(&world, &server).await;
    window.sees("you: Hello?").await;
    world.gates.arrived(Gate::Decoding).await;
    world.clock.advance(Duration::from_millis(1));
    world.gates.release(Gate::Decoding);
    world.clock.until_armed(world.first_event()).await;
    world.clock.advance(world.first_event());
    let end = tokio::select! {
        biased;
        end = end_of(&window) => end,
        _ = window.until_status("another attempt", |status| {
            matches!(status.phase, Phase::Retrying { .. })
        }) => "asks again".to_owned(),
    };
    format!("{end} dials{}", server.counters().chats)
}

/// A line that comes in two reads.
pub(super) async fn cut_line(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    let answer = Answer::new(DIALECT)
        .raw(br#"{"model":"m","message":{"role":"assistant","content":"One l"#)
        .gate("cut")
        .raw(b"ine.\"},\"done\":false}\n");
    server.script(answer.ends());
    world.gates.hold(Gate::Decoding);
    let (_, window) = begin(&world, &server).await;
    world.gates.pass(Gate::Decoding).await;
    server.pass("cut").await;
    end_of(&window).await;
    let garbled = u8::from(!window.text().contains("One line."));
    format!("garbled{garbled}")
}

/// An answer that reaches the limit of tokens.
pub(super) async fn limit(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    server.script(Answer::new(DIALECT).says("So short").reaches_its_limit());
    let (_, window) = begin(&world, &server).await;
    let end = end_of(&window).await;
    format!("badge{}", u8::from(end.contains("Length")))
}

/// Whoever reads the socket stands for longer than a model may be silent, with its words in hand.
pub(super) async fn stalled(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    let answer = Answer::new(DIALECT).says("One, ").gate("1").says("two, ");
    server.script(answer.gate("2").says("three.").ends());
    let (_, window) = begin(&world, &server).await;
    window.sees("One, ").await;
    world.gates.hold(Gate::Decoding);
    server.pass("1").await;
    world.gates.arrived(Gate::Decoding).await;
    server.arrived("2").await;
    world.clock.advance(world.gap() + Duration::from_secs(60));
    world.gates.release(Gate::Decoding);
    let end = tokio::select! {
        biased;
        end = end_of(&window) => end,
        () = world.clock.until_armed(world.gap()) => {
            server.release("2");
            end_of(&window).await
        }
    };
    server.release_all();
    end
}

/// A conversation is opened whose server is known.
pub(super) async fn opened(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    let session = ended(&world, &server).await;
    let page = Page::load(&world.line, "another").await;
    let before = server.counters().dials;
    page.attach(StreamId::Session(session))
        .await
        .expect("it may");
    format!("dials{}", server.counters().dials - before)
}
