//! Calls that change a file: what keeps them from doing so twice, or to what nobody was shown.

use std::fs;

use engine::{gate::Gate, mutant::Mutant};
use protocol::{EventBody, Op, Phase, Resolution};
use tests::model_server::Answer;

use super::{DIALECT, asked, count, end_of, set, writes};

async fn allow(set: &super::Asked<'_>, answer: protocol::Answer) {
    let (session, turn, item) = (set.session, set.turn, set.item);
    let allow = Op::AnswerApproval {
        session,
        turn,
        item,
        answer,
    };
    set.world.submit(allow).await.expect("the word is taken");
}

/// A change that was stopped while it was made, and asked for again by a model that may change files.
pub(super) async fn stopped_and_again(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    let set = asked(&world, &server, writes("a.txt").ends()).await;
    world.gates.hold(Gate::ToolRunning);
    allow(&set, protocol::Answer::AllowForSession).await;
    world.gates.arrived(Gate::ToolRunning).await;
    world.stop(set.session, set.turn).await;
    set.window.until_idle().await;
    world.gates.release(Gate::ToolRunning);
    server.forget_scripts();
    server.script(writes("a.txt").ends());
    server.script(Answer::whole(DIALECT, "Done."));
    let turn = world.say(set.session, "Again.").await;
    let begun = |shown: &transcript::Transcript| shown.turn(turn).map(|_| ());
    set.window.until_shown("the turn", begun).await;
    let asks = |status: &protocol::Status| matches!(status.phase, Phase::Asking { .. });
    tokio::select! {
        biased;
        end = end_of(&set.window) => end,
        _ = set.window.until_status("the question", asks) => {
            server.forget_scripts();
            "asks".to_owned()
        }
    }
}

/// The same call twice in one step.
pub(super) async fn twice_in_a_step(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    let twice = writes("a.txt").calls("write_file", super::a_file("a.txt"));
    let set = asked(&world, &server, twice.ends()).await;
    let asks = |body: &EventBody| matches!(body, EventBody::ApprovalRequested { .. });
    let asks = count(&world.events(set.session), asks);
    server.forget_scripts();
    format!("questions{asks}")
}

/// The user writes into the file that the question is about.
pub(super) async fn changed_meanwhile(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    let set = asked(&world, &server, writes("a.txt").ends()).await;
    let file = world.data_dir().join("files/a.txt");
    fs::write(&file, "mine").expect("it can be written");
    allow(&set, protocol::Answer::AllowOnce).await;
    set.window.until_idle().await;
    fs::read_to_string(&file).expect("it can be read")
}

/// A link takes the place of the folder that the question is about.
pub(super) async fn link_meanwhile(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    let files = world.data_dir().join("files");
    for name in ["shown", "other"] {
        fs::create_dir_all(files.join(name)).expect("a fresh folder");
    }
    let set = asked(&world, &server, writes("shown/a.txt").ends()).await;
    fs::remove_dir(files.join("shown")).expect("it is empty");
    std::os::unix::fs::symlink("other", files.join("shown")).expect("a link");
    allow(&set, protocol::Answer::AllowOnce).await;
    set.window.until_idle().await;
    let written = u8::from(files.join("other/a.txt").exists());
    format!("elsewhere{written}")
}

/// The only window leaves while its question is open.
pub(super) async fn window_closed(mutant: Option<Mutant>) -> String {
    let (world, server) = set(mutant).await;
    let set = asked(&world, &server, writes("a.txt").ends()).await;
    let stream = protocol::StreamId::Session(set.session);
    let page = tests::client::Page::load(&world.line, "another").await;
    let attached = page.attach(stream).await.expect("it may");
    world
        .line
        .detach(attached.epoch)
        .await
        .expect("it hears it");
    // The session comes to this when it has done what was asked before.
    let session = set.session;
    let title = "Afterwards".to_owned();
    let renamed = world.submit(Op::RenameSession { session, title }).await;
    renamed.expect("renamed");
    let denied = |body: &EventBody| match body {
        EventBody::ApprovalResolved { resolution, .. } => *resolution == Resolution::Denied,
        _ => false,
    };
    let denied = count(&world.events(session), denied);
    world.stop(session, set.turn).await;
    set.window.until_idle().await;
    server.forget_scripts();
    format!("denied{denied}")
}
