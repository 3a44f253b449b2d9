//! How a model is asked: options of a server, of a model and of a session, the same in every request of a turn.

use protocol::{
    Decimal, Dialect, ErrorCode, EventBody, ModelOptions, Op, SessionId, StreamId, Think,
};
use serde_json::{Value, json};
use tests::{
    backend::Missed,
    model_server::{Answer, ModelServer, Script},
    sentinel::random_u128,
    verdict::judge,
    world::World,
};

const DIALECT: Dialect = Dialect::Ollama;

/// What a request says about how the model is loaded and asked.
fn asked(body: &Value) -> Value {
    json!({
        "options": body["options"], "keep_alive": body["keep_alive"], "think": body["think"],
    })
}

/// B74. Another `num_ctx` or `keep_alive` in one of the requests would have the server load the model anew.
#[tokio::test(flavor = "multi_thread")]
async fn every_request_of_a_session_asks_alike_tools_and_compaction_included() {
    let (server, mut world) = (ModelServer::start(DIALECT), World::new().await);
    let folder = world.data_dir().join("files");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("a.txt"), "kelp").expect("a file");
    let mut provider = server.provider();
    provider.keep_alive = Some("20m".to_owned());
    provider.num_ctx = Some(2048);
    world.add(provider).await;
    let of_model = ModelOptions {
        num_ctx: Some(8192),
        temperature: Decimal::nearest(0.2),
        ..ModelOptions::default()
    };
    let change = Op::ChangeModelOptions {
        model: server.model(),
        options: of_model,
    };
    world.submit(change).await.expect("they are taken");
    let of_session = ModelOptions {
        temperature: Decimal::nearest(0.9),
        think: Some(Think::Low),
        system: Some("You live by the sea.".to_owned()),
        ..ModelOptions::default()
    };
    let session = SessionId::from_bits(random_u128());
    server.script(Answer::whole(DIALECT, "One."));
    let begin = Op::StartSession {
        session,
        model: server.model(),
        text: "First, a long one. ".repeat(40),
        folder: Some(folder.to_str().unwrap().to_owned()),
        options: of_session.clone(),
        images: Vec::new(),
    };
    world.submit(begin).await.expect("it begins");
    let window = world.page().await.follow(session);
    window.until_idle().await;
    // A tool in the second turn.
    server.script(
        Answer::new(DIALECT)
            .calls("read_file", json!({ "path": "a.txt" }))
            .ends(),
    );
    server.script(Answer::whole(DIALECT, "Two."));
    world.say(session, "Second?").await;
    window.sees("model: Two.").await;
    window.until_idle().await;
    // What was chosen holds after a restart.
    world.restart().await;
    let window = world.page().await.follow(session);
    // The third does not fit: a summary is asked for, and then the answer.
    server.script(Script::error(
        DIALECT,
        400,
        "the prompt is longer than the context length currently available to the model",
    ));
    server.script(Answer::whole(DIALECT, "They spoke of the sea."));
    server.script(Answer::whole(DIALECT, "Three."));
    world.say(session, "Third?").await;
    window.sees("model: Three.").await;
    window.until_idle().await;
    for (text, answer) in [("Fourth?", "Four."), ("Fifth?", "Five.")] {
        server.script(Answer::whole(DIALECT, answer));
        world.say(session, text).await;
        window.sees(&format!("model: {answer}")).await;
        window.until_idle().await;
    }
    let chats = server.chats();
    assert_eq!(
        chats.len(),
        8,
        "five turns, a tool, a refusal and a summary"
    );
    for chat in &chats {
        let body = chat.json();
        assert_eq!(
            asked(&body),
            json!({
                "options": { "num_ctx": 8192, "temperature": 0.9 },
                "keep_alive": "20m",
                "think": "low",
            })
        );
        let messages = chat.messages();
        let systems: Vec<_> = messages.iter().filter(|m| m.role == "system").collect();
        assert_eq!(
            systems.len(),
            1,
            "one word of instructions, and it comes first"
        );
        assert_eq!(messages[0].role, "system");
        assert!(messages[0].content.starts_with("You live by the sea."));
    }
    let page = window.look(|shown| shown.map(|shown| shown.options().clone()));
    assert_eq!(page, Some(of_session));
    judge(&world, session, &[&window]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_options_of_a_session_hold_from_its_next_turn_on_and_of_a_model_in_every_session() {
    let (server, world) = (ModelServer::start(DIALECT), World::new().await);
    server.script(Answer::whole(DIALECT, "One."));
    let session = world.begin(&server, "First?").await;
    let page = world.page().await;
    let window = page.follow(session);
    window.until_idle().await;
    let choose = |options| Op::ChooseOptions { session, options };
    let chosen = ModelOptions {
        num_ctx: Some(16_384),
        ..ModelOptions::default()
    };
    world.submit(choose(chosen)).await.expect("they are taken");
    let of_model = ModelOptions {
        num_ctx: Some(4096),
        seed: Some(7),
        ..ModelOptions::default()
    };
    let change = |options| Op::ChangeModelOptions {
        model: server.model(),
        options,
    };
    world
        .submit(change(of_model))
        .await
        .expect("they are taken");
    server.script(Answer::whole(DIALECT, "Two."));
    world.say(session, "Second?").await;
    window.sees("model: Two.").await;
    window.until_idle().await;
    server.script(Answer::whole(DIALECT, "Three."));
    let other = world.begin_with(server.model(), "Elsewhere?").await;
    page.follow(other).until_idle().await;
    // Nothing chosen any more is nothing sent any more.
    world
        .submit(choose(ModelOptions::default()))
        .await
        .expect("they are taken");
    world
        .submit(change(ModelOptions::default()))
        .await
        .expect("they are taken");
    server.script(Answer::whole(DIALECT, "Four."));
    world.say(session, "Fourth?").await;
    window.sees("model: Four.").await;
    window.until_idle().await;
    let sent: Vec<Value> = server
        .chats()
        .iter()
        .map(|chat| chat.json()["options"].clone())
        .collect();
    assert_eq!(
        sent,
        [
            Value::Null,
            json!({ "num_ctx": 16_384, "seed": 7 }),
            json!({ "num_ctx": 4096, "seed": 7 }),
            Value::Null,
        ]
    );
    judge(&world, session, &[&window]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn options_that_cannot_be_meant_are_refused_at_their_field_and_change_nothing() {
    let (server, world) = (ModelServer::start(DIALECT), World::new().await);
    server.script(Answer::whole(DIALECT, "One."));
    let session = world.begin(&server, "First?").await;
    world.page().await.follow(session).until_idle().await;
    let bad = ModelOptions {
        num_ctx: Some(12),
        ..ModelOptions::default()
    };
    let begin = Op::StartSession {
        session: SessionId::from_bits(random_u128()),
        model: server.model(),
        text: "Hello?".to_owned(),
        folder: None,
        options: bad.clone(),
        images: Vec::new(),
    };
    let mut provider = server.provider();
    provider.keep_alive = Some("a while".to_owned());
    let ops = [
        (
            Op::ChooseOptions {
                session,
                options: bad.clone(),
            },
            "num_ctx",
        ),
        (
            Op::ChangeModelOptions {
                model: server.model(),
                options: bad,
            },
            "num_ctx",
        ),
        (begin, "num_ctx"),
        (Op::ChangeProvider { provider }, "keep_alive"),
    ];
    for (op, field) in ops {
        match world.submit(op.clone()).await {
            Err(Missed::Refused(report)) => {
                let field = field.to_owned();
                assert_eq!(report.code, ErrorCode::Invalid { field }, "{op:?}");
            }
            other => panic!("{op:?}: {other:?}"),
        }
    }
    let library = world.reader().events(StreamId::Library, None, usize::MAX);
    let changed = |body: &EventBody| {
        matches!(
            body,
            EventBody::ModelOptionsChanged { .. }
                | EventBody::ProviderChanged { .. }
                | EventBody::OptionsChosen { .. }
        )
    };
    let library = library.expect("it can be read");
    assert!(
        !library
            .iter()
            .chain(&world.events(session))
            .any(|event| changed(&event.body))
    );
}
