//! The guards of images.

use engine::mutant::Mutant;
use protocol::{Image, ImageId, Op};
use tests::{
    image_file::png,
    model_server::{Answer, MODEL, ModelServer},
    world::World,
};

use super::{DIALECT, end_of, refusal, said, set};

fn start(world: &World, server: &ModelServer, image: Image) -> Op {
    Op::StartSession {
        session: world.engine().mint_session(),
        model: server.model(),
        text: "What is this?".to_owned(),
        images: vec![image],
        folder: None,
        options: protocol::ModelOptions::default(),
    }
}

/// An image is attached and sent.
pub(super) async fn sent(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    server.stocks(MODEL, &["completion", "vision"]);
    world.add(server.provider()).await;
    let image = world.engine().take_image("kelp.png", png(4, 3, 7)).await;
    server.script(Answer::whole(DIALECT, "Kelp."));
    let op = start(&world, &server, image.expect("it is taken"));
    if let Some(code) = refusal(world.submit(op).await) {
        server.forget_scripts();
        return format!("{code:?}");
    }
    let told = server.chat(1).await.json();
    let images = told["messages"][0]["images"].as_array().map_or(0, Vec::len);
    format!("images{images}")
}

/// A page names an image that nobody has.
pub(super) async fn unknown(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    server.stocks(MODEL, &["completion", "vision"]);
    world.add(server.provider()).await;
    let taken = world.engine().take_image("kelp.png", png(4, 3, 7)).await;
    server.script(Answer::whole(DIALECT, "Kelp."));
    let image = Image {
        image: ImageId::from_bytes([7; 32]),
        ..taken.expect("it is taken")
    };
    let op = start(&world, &server, image);
    let session = op.session();
    let answer = refusal(world.submit(op).await);
    if let (Some(session), None) = (session, &answer) {
        world.page().await.follow(session).until_idle().await;
    }
    server.forget_scripts();
    said(answer, "taken")
}

/// A model that sees nothing is shown something.
pub(super) async fn blind(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    world.add(server.provider()).await;
    let image = world.engine().take_image("kelp.png", png(4, 3, 7)).await;
    server.script(Answer::whole(DIALECT, "I see nothing."));
    let op = start(&world, &server, image.expect("it is taken"));
    let Some(session) = op.session() else {
        return "no session".to_owned();
    };
    world.submit(op).await.expect("it begins");
    let window = world.page().await.follow(session);
    let end = end_of(&window).await;
    server.forget_scripts();
    end
}
