//! `run`: build what is out of date, then start Holdfast and stay with it until it ends.

use std::process::{Command, ExitCode};

use crate::arguments::{Building, FirstModel, ModelEngine, Profile, RunArguments};
use crate::failure::Result;
use crate::model_server::ModelServer;
use crate::owned::{self, Group, Owned};
use crate::page;
use crate::project::Project;
use crate::screen::{Painted, SessionBus, VirtualScreen};
use crate::setup::{self, Need};
use crate::small_model;
use crate::steps::Steps;
use crate::tool;

/// Tells the app of a model's file that it begins with, if nothing was ever chosen.
const FIRST_MODEL: &str = "HOLDFAST_FIRST_MODEL";

pub(crate) fn chore(project: &Project, arguments: &RunArguments) -> Result<ExitCode> {
    let mut steps = Steps::new();
    let wants_file = arguments.model == FirstModel::IfNoServer && !small_model::a_server_answers();
    steps.step("what this machine needs", || {
        let mut needs = vec![Need::Compiler, Need::App, Need::Wasm, Need::ModelEngine];
        if !setup::has_display() {
            needs.push(Need::VirtualScreen);
        }
        if wants_file || arguments.model == FirstModel::Server {
            needs.push(Need::ModelServer);
        }
        setup::ensure(&needs)
    })?;
    if arguments.building == Building::Wanted {
        steps.step("the page", || page::build(project, arguments.profile))?;
        steps.step("the app", || {
            build_app(arguments.profile, ModelEngine::Within)
        })?;
    }

    let mut app = owned::helper(&project.built_app(arguments.profile)?.to_string_lossy());
    let model = match arguments.model {
        FirstModel::Server => Some(steps.step("a small model server", ModelServer::start)?),
        FirstModel::IfNoServer | FirstModel::None => None,
    };
    if wants_file {
        steps.step("a small model", || {
            println!("  no model server answers on this machine");
            match small_model::file() {
                Ok(file) => {
                    app.env(FIRST_MODEL, file);
                }
                // Holdfast is worth starting all the same: it offers to download one itself.
                Err(failure) => println!("  it goes without one: {failure}"),
            }
            Ok(())
        })?;
    }
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

impl ModelEngine {
    /// The page inside, and perhaps an engine for models of this computer.
    pub(crate) fn app_features(self) -> &'static str {
        match self {
            Self::Within => "--features=custom-protocol,local-model",
            Self::LeftOut => "--features=custom-protocol",
        }
    }
}

/// The app with the page inside; cargo decides what is up to date. The same command is used by `run`,
/// `test` and `bundle`, so that none of them compiles what another one has compiled.
pub(crate) fn build_app(profile: Profile, engine: ModelEngine) -> Result<()> {
    let mut command = tool::cargo();
    command.args(["build", "--package=holdfast", engine.app_features()]);
    if profile == Profile::Release {
        command.arg("--release");
    }
    println!(
        "  compiling the app takes ten minutes the first time, half of them for the model engine"
    );
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
