//! `run`: build what is out of date, then start Holdfast and stay with it until it ends.

use std::process::{Command, ExitCode};

use crate::arguments::{Building, Model, Profile, RunArguments};
use crate::failure::Result;
use crate::model_server::ModelServer;
use crate::owned::{self, Group, Owned};
use crate::page;
use crate::project::Project;
use crate::screen::{Painted, SessionBus, VirtualScreen};
use crate::setup::{self, Need};
use crate::steps::Steps;
use crate::tool;

pub(crate) fn chore(project: &Project, arguments: &RunArguments) -> Result<ExitCode> {
    let mut steps = Steps::new();
    steps.step("what this machine needs", || {
        let mut needs = vec![Need::Compiler, Need::App, Need::Wasm];
        if !setup::has_display() {
            needs.push(Need::VirtualScreen);
        }
        if arguments.model == Model::Small {
            needs.push(Need::ModelServer);
        }
        setup::ensure(&needs)
    })?;
    if arguments.building == Building::Wanted {
        steps.step("the page", || page::build(project, arguments.profile))?;
        steps.step("the app", || build_app(arguments.profile))?;
    }

    let mut app = owned::helper(&project.built_app(arguments.profile)?.to_string_lossy());
    let model = match arguments.model {
        Model::Small => Some(steps.step("a small model server", ModelServer::start)?),
        Model::None => None,
    };
    if let Some(model) = &model {
        println!(
            "  its address is {}; it stops when Holdfast ends",
            model.url()
        );
        app.arg("--provider").arg(format!("openai={}", model.url()));
    }
    app.args(&arguments.app);
    steps.step("Holdfast", || {
        if setup::has_display() {
            on_own_display(&mut app)
        } else {
            on_virtual_screen(project, &mut app)
        }
    })
}

/// The app with the page inside; cargo decides what is up to date. The same command is used by `run`,
/// `test` and `bundle`, so that none of them compiles what another one has compiled.
pub(crate) fn build_app(profile: Profile) -> Result<()> {
    let mut command = tool::cargo();
    command.args(["build", "--package=holdfast", "--features=custom-protocol"]);
    if profile == Profile::Release {
        command.arg("--release");
    }
    println!("  compiling the app takes five minutes the first time");
    tool::run(
        &mut command,
        "mend what the compiler names above; `cargo xtask setup` checks the libraries",
    )
}

fn on_own_display(app: &mut Command) -> Result<ExitCode> {
    let bus = if cfg!(target_os = "linux") {
        SessionBus::start_if_none()?
    } else {
        None
    };
    if let Some(bus) = &bus {
        bus.show_to(app);
    }
    let app = Owned::start(app, "Holdfast", Group::Own)?;
    println!("  Holdfast is running; close it or press Ctrl-C here");
    Ok(exit_code(app.wait()?))
}

fn on_virtual_screen(project: &Project, app: &mut Command) -> Result<ExitCode> {
    let screen = VirtualScreen::start()?;
    println!(
        "  there is no display, so Holdfast runs under Xvfb on {}",
        screen.display()
    );
    screen.show_to(app);
    let app = Owned::start(app, "Holdfast", Group::Own)?;
    screen.wait_for_window(&app)?;
    let picture = project.target().join("holdfast-window.png");
    match screen.save_picture(&picture)? {
        Painted::Yes => println!(
            "  its window is open; the screenshot is {}",
            picture.display()
        ),
        Painted::NotYet => {
            println!(
                "  its window is open but its page still looks empty; see {}",
                picture.display()
            );
        }
    }
    println!("  Holdfast is running; press Ctrl-C to end it");
    Ok(exit_code(app.wait()?))
}

fn exit_code(status: std::process::ExitStatus) -> ExitCode {
    // Ended by a signal: it has no code of its own.
    status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from)
}
