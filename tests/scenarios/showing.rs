//! Images: on the disk before their message, in every request that tells of them, and there again after anything.

use std::{path::Path, sync::Arc, time::Duration};

use engine::Engine;
use protocol::{
    Dialect, Draft, ErrorCode, EventBody, FailureCode, Image, ItemBody, Op, Seq, SessionId, TurnId,
    TurnOutcome, TurnView,
};
use rusqlite::Connection;
use serde_json::Value;
use tests::{
    backend::Missed,
    image_file::png,
    model_server::{Answer, DIALECTS, MODEL, ModelServer, Request, Script},
    verdict::judge,
    world::World,
};

const CHILD: &str = env!("CARGO_BIN_EXE_engine_child");
const DIALECT: Dialect = Dialect::Ollama;

/// A server whose model sees.
fn seeing(dialect: Dialect) -> ModelServer {
    let server = ModelServer::start(dialect);
    server.stocks(MODEL, &["completion", "vision"]);
    server
}

async fn set(dialect: Dialect) -> (World, ModelServer) {
    let (world, server) = (World::new().await, seeing(dialect));
    world.add(server.provider()).await;
    (world, server)
}

async fn taken(engine: &Engine, name: &str, shade: u8) -> Image {
    let taken = engine.take_image(name, png(4, 3, shade)).await;
    taken.expect("the image is taken")
}

fn start(session: SessionId, server: &ModelServer, images: Vec<Image>) -> Op {
    Op::StartSession {
        session,
        model: server.model(),
        text: "What is this?".to_owned(),
        images,
        folder: None,
        options: protocol::ModelOptions::default(),
    }
}

async fn begin(world: &World, server: &ModelServer, images: Vec<Image>) -> SessionId {
    let session = world.engine().mint_session();
    let begun = world.submit(start(session, server, images)).await;
    begun.expect("the conversation begins");
    session
}

fn report(answer: Result<protocol::Receipt, Missed>) -> protocol::ErrorReport {
    match answer {
        Err(Missed::Refused(report)) => report,
        other => panic!("{other:?}"),
    }
}

/// What the first of the user's messages says to the server.
fn first_message(request: &Request) -> Value {
    let json = request.json();
    let messages = json["messages"].as_array().cloned().unwrap_or_default();
    let mut of_user = messages.into_iter();
    of_user
        .find(|message| message["role"] == "user")
        .unwrap_or_default()
}

fn shown(turn: &TurnView) -> Vec<Image> {
    let items = turn.items.iter();
    let images = items.filter_map(|item| match &item.body {
        ItemBody::UserMessage { images, .. } => Some(images.clone()),
        ItemBody::Text { .. }
        | ItemBody::ToolCall { .. }
        | ItemBody::Compacted { .. }
        | ItemBody::Unsupported { .. } => None,
    });
    images.flatten().collect()
}

fn turns(world: &World, session: SessionId) -> Vec<TurnView> {
    let page = world.reader().transcript(session);
    page.expect("the session can be read").turns
}

fn tip(world: &World, session: SessionId) -> Seq {
    let page = world.reader().transcript(session);
    let tip = page.expect("the session can be read").tip;
    tip.expect("something was said")
}

fn failure(world: &World, session: SessionId) -> protocol::Failure {
    match turns(world, session).pop().and_then(|turn| turn.outcome) {
        Some(TurnOutcome::Failed { failure }) => failure,
        other => panic!("{other:?}"),
    }
}

/// In base64, as the test's own file of three by four grey points; it must be somewhere in what is sent.
fn sends(request: &Request, bytes: &[u8]) -> bool {
    let body = String::from_utf8_lossy(&request.body).into_owned();
    body.contains(&base64(bytes))
}

fn base64(bytes: &[u8]) -> String {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let mut bits = 0_u32;
        for at in 0..3 {
            bits = (bits << 8) | u32::from(three.get(at).copied().unwrap_or_default());
        }
        for at in 0..4 {
            let sign = SIGNS[(bits >> (18 - 6 * at)) as usize & 63];
            out.push(if at <= three.len() { sign as char } else { '=' });
        }
    }
    out
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_told_in_every_dialect_and_in_every_later_request_the_same() {
    for dialect in DIALECTS {
        let (world, server) = set(dialect).await;
        let image = taken(world.engine(), "kelp.png", 7).await;
        let bytes = world
            .engine()
            .image(image.image)
            .await
            .expect("it is there");
        server.script(Answer::whole(dialect, "Kelp."));
        let session = begin(&world, &server, vec![image.clone()]).await;
        let window = world.page().await.follow(session);
        window.until_idle().await;
        server.script(Answer::whole(dialect, "Yes."));
        world.say(session, "Really?").await;
        window.sees("Yes.").await;
        window.until_idle().await;
        let [first, second] = [server.chat(1).await, server.chat(2).await];
        assert!(sends(&first, &bytes), "{dialect:?}: {}", first.json());
        let before = first_message(&first);
        let again = first_message(&second);
        let without_mark = |mut message: Value| {
            // Where the server's cache of the prompt ends is marked at the end alone.
            for part in message["content"].as_array_mut().into_iter().flatten() {
                if let Some(part) = part.as_object_mut() {
                    part.remove("cache_control");
                }
            }
            message
        };
        assert_eq!(without_mark(before), without_mark(again), "{dialect:?}");
        assert_eq!(
            shown(&turns(&world, session)[0]),
            vec![image],
            "{dialect:?}"
        );
        judge(&world, session, &[&window]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_cannot_see_is_not_asked_and_the_turn_says_so() {
    let (world, server) = (World::new().await, ModelServer::start(DIALECT));
    world.add(server.provider()).await;
    let image = taken(world.engine(), "kelp.png", 7).await;
    let session = begin(&world, &server, vec![image.clone()]).await;
    let window = world.page().await.follow(session);
    window.until_idle().await;
    let failure = failure(&world, session);
    assert_eq!(failure.code, FailureCode::CannotSeeImages);
    assert_eq!(
        failure.message,
        format!(
            "{MODEL} cannot see images. Choose another model, or edit the message and take the image out."
        )
    );
    assert_eq!(server.chats().len(), 0);

    // As the words say: the image taken out, the same model answers.
    server.script(Answer::whole(DIALECT, "A guess."));
    let edit = Op::EditMessage {
        session,
        turn: TurnId::FIRST,
        text: "What could it be?".to_owned(),
        images: Some(Vec::new()),
        expected_tip: tip(&world, session),
    };
    world.submit(edit).await.expect("it is edited");
    window.sees("A guess.").await;
    window.until_idle().await;
    judge(&world, session, &[&window]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_images_in_its_own_words_is_understood() {
    let words = "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj";
    let (world, server) = set(Dialect::OpenAiChat).await;
    server.script(Script::error(Dialect::OpenAiChat, 500, words));
    let image = taken(world.engine(), "kelp.png", 7).await;
    let session = begin(&world, &server, vec![image]).await;
    let window = world.page().await.follow(session);
    window.until_idle().await;
    let failure = failure(&world, session);
    assert_eq!(failure.code, FailureCode::CannotSeeImages);
    assert!(failure.detail.unwrap_or_default().contains("mmproj"));
    assert_eq!(server.chats().len(), 1, "asked once, and not again");
    judge(&world, session, &[&window]).await;
}

/// Its server was started anew, with what it needs to see.
#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_refused_images_and_takes_one_by_now_is_shown_the_earlier_ones_too() {
    let dialect = Dialect::OpenAiChat;
    let (world, server) = set(dialect).await;
    let (first, second) = (
        taken(world.engine(), "kelp.png", 7).await,
        taken(world.engine(), "stone.png", 9).await,
    );
    let bytes = world.engine().image(first.image).await;
    let bytes = bytes.expect("it is there");
    let words = "image input is not supported";
    server.script(Script::error(dialect, 500, words));
    let session = begin(&world, &server, vec![first]).await;
    let window = world.page().await.follow(session);
    window.until_idle().await;
    assert_eq!(failure(&world, session).code, FailureCode::CannotSeeImages);

    server.script(Answer::whole(dialect, "A stone."));
    let shows = Op::SendMessage {
        session,
        text: "And now?".to_owned(),
        images: vec![second],
    };
    world.submit(shows).await.expect("it is taken");
    window.sees("A stone.").await;
    window.until_idle().await;
    server.script(Answer::whole(dialect, "And kelp."));
    world.say(session, "And before?").await;
    window.sees("And kelp.").await;
    window.until_idle().await;
    assert_eq!(unseen(&world, session), [0, 0]);
    assert!(
        server
            .chats()
            .last()
            .is_some_and(|chat| sends(chat, &bytes))
    );
    judge(&world, session, &[&window]).await;
}

/// How many images each answer's model was told of in words.
fn unseen(world: &World, session: SessionId) -> Vec<u64> {
    let events = world.events(session);
    let told = events.iter().filter_map(|event| match &event.body {
        EventBody::StepEnded { unseen_images, .. } => Some(*unseen_images),
        _ => None,
    });
    told.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_goes_on_with_a_model_that_sees_nothing_and_the_turn_says_so() {
    for dialect in [Dialect::Ollama, Dialect::OpenAiChat] {
        let (world, seer) = set(dialect).await;
        let image = taken(world.engine(), "kelp.png", 7).await;
        let bytes = world.engine().image(image.image).await;
        let bytes = bytes.expect("it is there");
        seer.script(Answer::whole(dialect, "Kelp."));
        let session = begin(&world, &seer, vec![image]).await;
        let window = world.page().await.follow(session);
        window.until_idle().await;

        let blind = ModelServer::start(dialect);
        world.add(blind.provider()).await;
        let model = blind.model();
        let chosen = world.submit(Op::ChooseModel { session, model }).await;
        chosen.expect("it is chosen");
        // An Ollama says before that its model sees nothing, others when they are asked, and only once.
        let refusals = u64::from(dialect == Dialect::OpenAiChat);
        if refusals > 0 {
            let words = "image input is not supported";
            blind.script(Script::error(dialect, 500, words));
        }
        for (said, answered) in [("Really?", "So I am told."), ("And then?", "It grows.")] {
            blind.script(Answer::whole(dialect, answered));
            world.say(session, said).await;
            window.sees(answered).await;
            window.until_idle().await;
        }
        assert_eq!(unseen(&world, session), [0, 1, 1], "{dialect:?}");
        let chats = blind.chats();
        assert_eq!(chats.len() as u64, 2 + refusals, "{dialect:?}");
        for told in chats.iter().rev().take(2) {
            assert!(!sends(told, &bytes), "{dialect:?}");
            let told = first_message(told).to_string();
            let words = "[The image kelp.png was shown here. You cannot see images.]";
            assert!(told.contains(words), "{dialect:?}: {told}");
        }
        judge(&world, session, &[&window]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn said_again_or_in_other_words_a_message_shows_what_it_showed() {
    let (world, server) = set(DIALECT).await;
    let [one, two] = [
        taken(world.engine(), "one.png", 1).await,
        taken(world.engine(), "two.png", 2).await,
    ];
    let both = vec![one.clone(), two.clone()];
    server.script(Answer::whole(DIALECT, "First."));
    let session = begin(&world, &server, both.clone()).await;
    let window = world.page().await.follow(session);
    window.sees("First.").await;
    window.until_idle().await;
    let edit = |text: &str, images, turn, expected_tip| Op::EditMessage {
        session,
        turn,
        text: text.to_owned(),
        images,
        expected_tip,
    };
    let last = |world: &World| turns(world, session).pop().expect("a turn");
    let cases = [
        ("Retried.", None, both.clone()),
        ("Edited.", Some(None), both.clone()),
        ("One left.", Some(Some(vec![two.clone()])), vec![two]),
    ];
    for (answer, edited, expected) in cases {
        server.script(Answer::whole(DIALECT, answer));
        let (turn, expected_tip) = (last(&world).turn, tip(&world, session));
        let op = match edited {
            None => Op::RetryTurn {
                session,
                turn,
                expected_tip,
            },
            Some(images) => edit("In other words?", images, turn, expected_tip),
        };
        world.submit(op).await.expect(answer);
        window.sees(answer).await;
        window.until_idle().await;
        assert_eq!(shown(&last(&world)), expected, "{answer}");
        let chat = server.chats().pop().expect("it was asked");
        let sent = first_message(&chat)["images"]
            .as_array()
            .map_or(0, Vec::len);
        assert_eq!(sent, expected.len(), "{answer}");
    }
    // And what an undo brings back shows what it showed.
    let restore = Op::RestoreTurn {
        session,
        turn: TurnId::FIRST,
        expected_tip: tip(&world, session),
    };
    world.submit(restore).await.expect("it is restored");
    window.sees("First.").await;
    assert_eq!(shown(&last(&world)), both);
    judge(&world, session, &[&window]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_cannot_be_sent_and_the_draft_stays() {
    let (world, server) = set(DIALECT).await;
    let engine = world.engine();
    let image = taken(engine, "kelp.png", 7).await;
    let draft = Draft {
        text: "What is this?".to_owned(),
        images: vec![image.clone()],
    };
    engine.save_draft(None, draft.clone()).await.expect("kept");
    let unknown = Image {
        image: protocol::ImageId::from_bytes([7; 32]),
        ..image.clone()
    };
    let session = engine.mint_session();
    let refused = report(
        world
            .submit(start(session, &server, vec![image.clone(), unknown]))
            .await,
    );
    let field = "images".to_owned();
    assert_eq!(refused.code, ErrorCode::Invalid { field });
    assert!(refused.message.contains("kelp.png"), "{refused}");
    let many = vec![image.clone(); protocol::IMAGES_MAX + 1];
    let refused = report(world.submit(start(session, &server, many)).await);
    assert!(refused.message.contains("10 images at most"), "{refused}");
    assert_eq!(engine.draft(None).await, Ok(draft.clone()));
    assert!(
        world.reader().transcript(session).is_err(),
        "nothing was written"
    );

    // What a page says of an image does not count, only its name.
    let lied = Image {
        width: 9_999,
        bytes: 1,
        ..image.clone()
    };
    server.script(Answer::whole(DIALECT, "Kelp."));
    let session = begin(&world, &server, vec![lied]).await;
    world.page().await.follow(session).until_idle().await;
    assert_eq!(shown(&turns(&world, session)[0]), vec![image]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draft_keeps_its_images_and_is_gone_when_exactly_it_was_sent() {
    let (mut world, server) = set(DIALECT).await;
    let image = taken(world.engine(), "kelp.png", 7).await;
    let draft = |images: &[Image]| Draft {
        text: "What is this?".to_owned(),
        images: images.to_vec(),
    };
    let with = draft(std::slice::from_ref(&image));
    let kept = world.engine().save_draft(None, with.clone()).await;
    kept.expect("kept");
    world.restart().await;
    assert_eq!(world.engine().draft(None).await, Ok(with.clone()));
    // The same words without the image are another message.
    server.script(Answer::whole(DIALECT, "A guess."));
    let session = begin(&world, &server, Vec::new()).await;
    world.page().await.follow(session).until_idle().await;
    assert_eq!(world.engine().draft(None).await, Ok(with));
    server.script(Answer::whole(DIALECT, "Kelp."));
    let session = begin(&world, &server, vec![image]).await;
    world.page().await.follow(session).until_idle().await;
    assert_eq!(world.engine().draft(None).await, Ok(Draft::default()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_alone_is_a_message_and_gives_the_chat_its_name() {
    let (world, server) = set(DIALECT).await;
    let image = taken(world.engine(), "kelp.png", 7).await;
    server.script(Answer::whole(DIALECT, "Kelp."));
    let session = world.engine().mint_session();
    let op = match start(session, &server, vec![image]) {
        Op::StartSession {
            session,
            model,
            images,
            folder,
            options,
            ..
        } => Op::StartSession {
            session,
            model,
            text: String::new(),
            images,
            folder,
            options,
        },
        other => other,
    };
    world.submit(op).await.expect("it begins");
    let window = world.page().await.follow(session);
    window.sees("Kelp.").await;
    window.until_idle().await;
    let page = world.reader().transcript(session).expect("it can be read");
    assert_eq!(page.title, "kelp.png");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_image_is_said_in_words_and_breaks_nothing() {
    for dialect in DIALECTS {
        for damage in ["UPDATE images SET bytes = x'00ff'", "DELETE FROM images"] {
            let (mut world, server) = set(dialect).await;
            let image = taken(world.engine(), "kelp.png", 7).await;
            server.script(Answer::whole(dialect, "Kelp."));
            let session = begin(&world, &server, vec![image.clone()]).await;
            world.page().await.follow(session).until_idle().await;
            world.quit().await;
            let raw = Connection::open(world.data_dir().join("holdfast.sqlite3")).unwrap();
            assert_eq!(raw.execute(damage, []).unwrap(), 1);
            raw.close().unwrap();
            world.open().await;

            let lost = world
                .engine()
                .image(image.image)
                .await
                .expect_err("it is gone");
            assert_eq!(lost.code, ErrorCode::NotFound);
            let window = world.page().await.follow(session);
            window.until_idle().await;
            server.script(Answer::whole(dialect, "As I said."));
            let retry = Op::RetryTurn {
                session,
                turn: TurnId::FIRST,
                expected_tip: tip(&world, session),
            };
            world.submit(retry).await.expect("it is said again");
            window.sees("As I said.").await;
            window.until_idle().await;
            let told = String::from_utf8(server.chat(2).await.body).unwrap();
            assert!(
                told.contains("[The image kelp.png was shown here. It cannot be read any more.]"),
                "{dialect:?}, {damage}: {told}"
            );
            judge(&world, session, &[&window]).await;
            // The same file attached again makes it whole.
            let again = taken(world.engine(), "again.png", 7).await;
            assert_eq!(again.image, image.image);
            assert!(world.engine().image(image.image).await.is_ok(), "{damage}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_after_the_message_was_taken_its_image_is_there() {
    let mut world = World::without_engine();
    let server = seeing(DIALECT);
    let child = world.spawn(Path::new(CHILD)).await;
    let image = child.take_image("kelp.png", png(4, 3, 7)).await;
    let image = image.expect("the image is taken");
    server.script(Answer::new(DIALECT).goes_silent());
    world.add(server.provider()).await;
    let session = SessionId::from_bits(7);
    let begun = world
        .submit(start(session, &server, vec![image.clone()]))
        .await;
    begun.expect("it begins");
    server.chat(1).await;
    child.kill().await;
    world.line.cut();

    world.open().await;
    let bytes = world
        .engine()
        .image(image.image)
        .await
        .expect("it is there");
    assert_eq!(bytes.as_ref(), png(4, 3, 7));
    assert_eq!(shown(&turns(&world, session)[0]), vec![image]);
    let window = world.page().await.follow(session);
    window.until_idle().await;
    server.script(Answer::whole(DIALECT, "Kelp."));
    let retry = Op::RetryTurn {
        session,
        turn: TurnId::FIRST,
        expected_tip: tip(&world, session),
    };
    world.submit(retry).await.expect("it is said again");
    window.sees("Kelp.").await;
    window.until_idle().await;
    let last = server.chats().pop().expect("it was asked");
    assert!(sends(&last, &bytes));
    judge(&world, session, &[&window]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn images_that_nobody_sent_go_after_a_while_and_no_others() {
    const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);
    let (mut world, server) = set(DIALECT).await;
    let engine = world.engine();
    let [sent, drafted, looked_at] = [
        taken(engine, "sent.png", 1).await,
        taken(engine, "drafted.png", 2).await,
        taken(engine, "looked_at.png", 3).await,
    ];
    let draft = Draft {
        text: String::new(),
        images: vec![drafted.clone()],
    };
    engine.save_draft(None, draft).await.expect("kept");
    server.script(Answer::whole(DIALECT, "Kelp."));
    let session = begin(&world, &server, vec![sent.clone()]).await;
    world.page().await.follow(session).until_idle().await;
    let there = async |world: &World| {
        let mut there = Vec::new();
        for image in [&sent, &drafted, &looked_at] {
            there.push(world.engine().image(image.image).await.is_ok());
        }
        there
    };
    world.restart().await;
    assert_eq!(there(&world).await, [true, true, true]);
    world.clock.advance(WEEK + Duration::from_secs(1));
    world.restart().await;
    assert_eq!(there(&world).await, [true, true, false]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_and_a_salvaged_database_have_the_images_too() {
    let (mut world, server) = set(DIALECT).await;
    let image = taken(world.engine(), "kelp.png", 7).await;
    let large = world
        .engine()
        .take_image("large.png", png(900, 900, 9))
        .await;
    let large = large.expect("the image is taken");
    server.script(Answer::whole(DIALECT, "Kelp."));
    let session = begin(&world, &server, vec![image.clone(), large.clone()]).await;
    world.page().await.follow(session).until_idle().await;
    let copy = world.data_dir().join("copy.sqlite3");
    engine::backup(
        world.data_dir(),
        Some(&copy),
        protocol::Timestamp::default(),
    )
    .expect("copied");
    let copied = Connection::open(&copy).unwrap();
    let images: i64 = copied
        .query_row("SELECT count(*) FROM images", [], |row| row.get(0))
        .unwrap();
    assert_eq!(images, 2);
    copied.close().unwrap();
    world.quit().await;

    // Its first page, where SQLite finds its way, becomes noise.
    let file = world.data_dir().join("holdfast.sqlite3");
    let mut bytes = std::fs::read(&file).unwrap();
    for byte in &mut bytes[100..1_000] {
        *byte = 0xaa;
    }
    std::fs::write(&file, bytes).unwrap();
    world.open().await;
    assert!(world.engine().salvaged().is_some());
    for image in [&image, &large] {
        let whole = world.engine().image(image.image).await;
        assert_eq!(whole.map(|bytes| bytes.len() as u64), Ok(image.bytes));
    }
    assert_eq!(shown(&turns(&world, session)[0]), vec![image, large]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_photo_as_large_as_a_disk_is_scaled_down_and_what_is_none_is_refused_in_words() {
    let world = World::new().await;
    let engine = world.engine();
    let photo = png(8_000, 5_200, 99);
    assert!(photo.len() > 40_000_000, "{}", photo.len());
    let image = engine.take_image("photo.png", photo).await.expect("taken");
    assert_eq!((image.width, image.height), (2_048, 1_331));
    assert!(image.bytes < 3_500_000, "{}", image.bytes);
    for (name, bytes, words) in [
        ("nothing.png", Vec::new(), "nothing.png is empty (0 bytes)"),
        (
            "notes.png",
            b"plain words".to_vec(),
            "notes.png is no image that can be read here",
        ),
        (
            "cut.png",
            png(40, 40, 1)[..900].to_vec(),
            "cut.png is cut or damaged",
        ),
        ("", b"<svg>".to_vec(), "The image is an SVG drawing"),
        (
            "big.png",
            vec![0; 64 * 1024 * 1024 + 1],
            "big.png is larger than 64 MB",
        ),
    ] {
        let refused = engine.take_image(name, bytes).await.expect_err(name);
        let field = "image".to_owned();
        assert_eq!(refused.code, ErrorCode::Invalid { field });
        assert!(refused.message.starts_with(words), "{refused}");
    }
    let events = world
        .reader()
        .events(protocol::StreamId::Library, None, usize::MAX);
    let started = |body: &EventBody| matches!(body, EventBody::SessionListed { .. });
    assert!(
        !events
            .expect("readable")
            .iter()
            .any(|event| started(&event.body))
    );
    // Nobody holds what was refused.
    let bytes: Arc<[u8]> = engine.image(image.image).await.expect("it is there");
    assert_eq!(bytes.len() as u64, image.bytes);
}
