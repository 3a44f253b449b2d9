//! What the model is told and what is believed of a server's answer.

use engine::mutant::Mutant;
use protocol::{
    Dialect, EventBody, LedgerArgs, LedgerSums, Op, Provider, Purpose, SessionId, Timestamp,
};
use serde_json::json;
use tests::{
    model_server::{
        Answer, Ending, MODEL, ModelServer, Script, model_of, provider_at, refused_address,
    },
    sentinel::random_u128,
    world::World,
};

use super::{DIALECT, begin, count, end_of, set};

fn too_long() -> Script {
    let words = "request (1531 tokens) exceeds the available context size (1024 tokens)";
    Script::error(DIALECT, 400, words)
}

/// A server that is away, and another one that takes over.
pub(super) async fn taken_over(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    let away = provider_at(DIALECT, refused_address());
    world.add(away.clone()).await;
    world.add(server.provider()).await;
    let models = vec![server.model()];
    let chosen = world.submit(Op::ChooseFallbacks { models }).await;
    chosen.expect("chosen");
    server.script(Answer::whole(DIALECT, "I am here."));
    let session = world.begin_with(model_of(&away, MODEL), "Hello?").await;
    let window = world.page().await.follow(session);
    let end = end_of(&window).await;
    let handed = |body: &EventBody| matches!(body, EventBody::AttemptFailed { next: Some(_), .. });
    format!("{end} handed{}", count(&world.events(session), handed))
}

/// An answer that the server itself breaks off.
pub(super) async fn says_what_is_wrong(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    let half = Answer::new(DIALECT).says("Half ");
    server.script(half.fails("the runner fell over"));
    let (_, window) = begin(&world, &server).await;
    end_of(&window).await
}

/// A web page instead of an answer.
pub(super) async fn web_page(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    server.script(Script::html(200));
    let (_, window) = begin(&world, &server).await;
    end_of(&window).await
}

/// A body of which its server says that it is squeezed, though nobody said that they could read that.
pub(super) async fn says_it_is_squeezed(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    server.script(Answer::whole(DIALECT, "Kelp.").header("Content-Encoding", "gzip"));
    let (_, window) = begin(&world, &server).await;
    end_of(&window).await
}

/// A summary that reaches the limit of tokens.
pub(super) async fn half_a_summary(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    server.script(Answer::whole(DIALECT, &"kelp ".repeat(100)));
    let (session, window) = begin(&world, &server).await;
    window.until_idle().await;
    server.script(too_long());
    let half = Answer::new(DIALECT).says("They spoke of");
    server.script(half.reaches_its_limit());
    server.script(Answer::whole(DIALECT, "Yes."));
    world.say(session, "And the tides?").await;
    window.sees("And the tides?").await;
    let end = end_of(&window).await;
    server.forget_scripts();
    let compacts = |body: &EventBody| matches!(body, EventBody::HistoryCompacted { .. });
    let summaries = count(&world.events(session), compacts);
    format!("{end} summaries{summaries}")
}

/// Begins a conversation whose tools see a long file.
async fn begin_with_file(world: &World, server: &ModelServer) -> SessionId {
    let folder = world.data_dir().join("files");
    std::fs::create_dir(&folder).expect("a fresh folder");
    let long = "kelp and tides\n".repeat(1_000);
    std::fs::write(folder.join("long.txt"), long).expect("a fresh file");
    world.add(server.provider()).await;
    let session = SessionId::from_bits(random_u128());
    let started = world.submit(Op::StartSession {
        session,
        model: server.model(),
        text: "Read.".to_owned(),
        folder: Some(folder.display().to_string()),
        options: protocol::ModelOptions::default(),
        images: Vec::new(),
    });
    started.await.expect("it starts");
    session
}

/// A result that is left out to make room.
pub(super) async fn result_left_out(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    let reads = Answer::new(DIALECT).calls("read_file", json!({ "path": "long.txt" }));
    server.script(reads.ends());
    server.script(too_long());
    server.script(Answer::whole(DIALECT, "I have read it."));
    let session = begin_with_file(&world, &server).await;
    let window = world.page().await.follow(session);
    let end = end_of(&window).await;
    let told = server.chat(3).await.messages().pop().expect("a result");
    let ran = u8::from(told.content.contains("The tool ran"));
    format!("{end} told{ran}")
}

/// A provider that counts its calls anew in every step.
pub(super) async fn calls_of_one_name(mutant: Option<Mutant>) -> String {
    let (world, _) = set(mutant).await;
    let dialect = Dialect::OpenAiChat;
    let server = ModelServer::start(dialect);
    for n in 0..2 {
        let calls = Answer::new(dialect).calls("current_time", json!({ "again": n }));
        server.script(calls.ends());
    }
    server.script(Answer::whole(dialect, "At last."));
    let (_, window) = begin(&world, &server).await;
    let end = end_of(&window).await;
    let asked = server.chat(3).await.json();
    let messages = asked["messages"].as_array().expect("messages").iter();
    let ids: std::collections::HashSet<String> = messages
        .filter_map(|message| message["tool_call_id"].as_str().map(str::to_owned))
        .collect();
    format!("{end} results{}", ids.len())
}

/// A conversation that does not fit its model, and fits when it is summed up.
pub(super) async fn does_not_fit(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    server.script(Answer::whole(DIALECT, &"kelp ".repeat(100)));
    let (session, window) = begin(&world, &server).await;
    window.until_idle().await;
    server.script(too_long());
    server.script(Answer::whole(DIALECT, "They spoke of kelp."));
    server.script(Answer::whole(DIALECT, "Yes."));
    world.say(session, "And the tides?").await;
    window.sees("And the tides?").await;
    let end = end_of(&window).await;
    server.forget_scripts();
    let compacts = |body: &EventBody| matches!(body, EventBody::HistoryCompacted { .. });
    let starved = u8::from(count(&world.events(session), compacts) == 0);
    format!("{end} starved{starved}")
}

/// How often the options change between the requests of a conversation that is summed up in the middle.
pub(super) async fn asked_to_sum_up(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    let provider = Provider {
        num_ctx: Some(4_096),
        keep_alive: Some("30m".to_owned()),
        ..server.provider()
    };
    world.add(provider).await;
    server.script(Answer::whole(DIALECT, &"kelp ".repeat(100)));
    let session = world.begin_with(server.model(), "Hello?").await;
    let window = world.page().await.follow(session);
    window.until_idle().await;
    server.script(too_long());
    server.script(Answer::whole(DIALECT, "They spoke of kelp."));
    server.script(Answer::whole(DIALECT, "Yes."));
    world.say(session, "And the tides?").await;
    window.sees("Yes.").await;
    window.until_idle().await;
    let requests = server.chats();
    let options = requests.iter().map(|request| {
        let body = request.json();
        (body["options"].clone(), body["keep_alive"].clone())
    });
    let options: Vec<_> = options.collect();
    assert_eq!(options.len(), 4, "answered, refused, summed up, answered");
    let reloads = options.windows(2).filter(|pair| pair[0] != pair[1]);
    format!("reload{}", reloads.count())
}

/// An answer that was cut, and what the model is told of it.
pub(super) async fn half_an_answer(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    let half = Answer::new(DIALECT).says("Half an answer");
    server.script(half.fails("the runner fell over"));
    let (session, window) = begin(&world, &server).await;
    window.until_idle().await;
    server.script(Answer::whole(DIALECT, "Yes."));
    world.say(session, "Go on.").await;
    window.sees("Yes.").await;
    window.until_idle().await;
    let told = server.chat(2).await.conversation();
    let lost = !told.iter().any(|(_, text)| text.contains("Half an answer"));
    format!("lost{}", u8::from(lost))
}

/// A server that signs what the model thought before a call, and wants it back with the result.
pub(super) async fn signed_thoughts(mutant: Option<Mutant>) -> String {
    let (world, _) = set(mutant).await;
    let dialect = Dialect::Anthropic;
    let server = ModelServer::start(dialect);
    let thinks = Answer::new(dialect).thinks("The clock will tell. ");
    let calls = thinks
        .says("Let me look. ")
        .calls("current_time", json!({}));
    server.script(calls.ends());
    server.script(Answer::whole(dialect, "It is nine."));
    let (_, window) = begin(&world, &server).await;
    let end = end_of(&window).await;
    let asked = server.chat(2).await.json();
    let back = &asked["messages"][1]["content"];
    let kept = back[0]["thinking"] == "The clock will tell. "
        && back[0]["signature"] == "signed-1"
        && back[1]["text"] == "Let me look. "
        && back[2]["id"] == asked["messages"][2]["content"][0]["tool_use_id"];
    format!("{end} kept{}", u8::from(kept))
}

/// A conversation that is summed up: the request for the summary is one like any other.
pub(super) async fn asks_for_a_summary(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    server.script(Answer::whole(DIALECT, &"kelp ".repeat(100)));
    let (session, window) = begin(&world, &server).await;
    window.until_idle().await;
    server.script(too_long());
    server.script(Answer::whole(DIALECT, "They spoke of kelp."));
    server.script(Answer::whole(DIALECT, "Yes."));
    world.say(session, "And the tides?").await;
    window.sees("Yes.").await;
    end_of(&window).await;
    let summary = |body: &EventBody| {
        matches!(
            body,
            EventBody::StepStarted {
                purpose: Purpose::Summary,
                ..
            }
        )
    };
    format!("listed{}", count(&world.events(session), summary))
}

/// A long message, of which the server says that it read `tokens`.
async fn reads(mutant: Option<Mutant>, tokens: u64) -> String {
    let (world, server) = set(mutant).await;
    server.script(Answer::new(DIALECT).having_read(tokens).says("Oui.").ends());
    let session = world.begin(&server, &"kelp ".repeat(6_000)).await;
    let window = world.page().await.follow(session);
    end_of(&window).await;
    let told = |body: &EventBody| {
        matches!(
            body,
            EventBody::StepEnded {
                unread: Some(_),
                ..
            }
        )
    };
    format!("told{}", count(&world.events(session), told))
}

/// A server whose context is smaller than the message, and that says nothing of it.
pub(super) async fn reads_a_part(mutant: Option<Mutant>) -> String {
    reads(mutant, 4_096).await
}

/// A server that counts only what its cache does not hold.
pub(super) async fn reads_from_its_cache(mutant: Option<Mutant>) -> String {
    reads(mutant, 12).await
}

async fn sums(world: &World) -> LedgerSums {
    let bounds = vec![Timestamp::from_millis(0), Timestamp::from_millis(i64::MAX)];
    let ledger = world.engine().ledger(LedgerArgs { bounds }).await;
    let rows = ledger.expect("a ledger").rows;
    rows.iter()
        .fold(LedgerSums::default(), |sum, row| sum.plus(row.sums))
}

/// A server that is busy once.
pub(super) async fn tried_twice(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    server.script(Script::error(DIALECT, 503, "busy"));
    server.script(Answer::whole(DIALECT, "Yes."));
    let (_, window) = begin(&world, &server).await;
    world.pass_the_wait(&window, 2).await;
    end_of(&window).await;
    let sums = sums(&world).await;
    format!("{} requests, {} failed", sums.attempts(), sums.failed)
}

/// The end of an answer of an Ollama that counts nothing.
const UNCOUNTED: &[u8] =
    b"{\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\"}\n";

/// A server that does not count tokens.
pub(super) async fn counts_nothing(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    let silent = Answer::new(DIALECT).says("Yes.").raw(UNCOUNTED);
    server.script(silent.cut(Ending::Proper));
    let (_, window) = begin(&world, &server).await;
    end_of(&window).await;
    format!("known{}", sums(&world).await.prompt_known)
}
