//! The command line, taken apart once: what comes out can be acted on, what cannot is told in a sentence.
//!
//! Not here: what a session's name or an address means; the faces look that up.

use std::{ffi::OsString, path::PathBuf};

use engine::{
    gateway,
    player::{Pace, Waits},
};
use lexopt::{Arg, ValueExt};
use protocol::{Dialect, KeyPlace, LedgerArgs, TurnId};

/// Days of `usage` unless told otherwise: what a bill is for.
const DAYS: u32 = 30;

/// As many as the ledger gives at once.
const DAYS_MAX: u32 = LedgerArgs::BUCKETS_MAX as u32;

/// What `--help` prints.
pub(crate) const HELP: &str = "\
Holdfast: chat with the models you run yourself. A turn that ran is a turn that appears.

Usage:
  holdfast [OPTIONS]                       open the window
  holdfast [OPTIONS] ask PROMPT            ask, and print the answer as it is written (- reads the prompt from stdin)
  holdfast [OPTIONS] continue SESSION      let the last answer go on where it stopped before its end
  holdfast [OPTIONS] retry SESSION         have the last message answered again
  holdfast [OPTIONS] undo SESSION          bring back what a retry or an edit took out last; twice is as before
  holdfast [OPTIONS] list                  the sessions, newest first
  holdfast [OPTIONS] show SESSION          a session's transcript
  holdfast [OPTIONS] replay SESSION        a session shown again as it happened; no server is asked
  holdfast [OPTIONS] events SESSION        a session's log
  holdfast [OPTIONS] backup [FILE]         copy everything, also while the window is open, and print where to
  holdfast [OPTIONS] key SERVER            where a server's key is kept; with --key-env or -, keep one; with --forget, none
  holdfast [OPTIONS] doctor [SERVER]       what is wrong with a server, or with each of them, and what can be done
  holdfast [OPTIONS] usage                 what was asked of which model, what it took, and what it cost
  holdfast [OPTIONS] health                what the data folder holds, and what was saved of damaged databases
  holdfast [OPTIONS] models [SERVER]       the models of a server, named as in the settings; `local` is this computer
  holdfast [OPTIONS] pull MODEL            have an Ollama download a model, or go on with that; with the address of a
                                           GGUF file, fetch it to this computer
  holdfast [OPTIONS] rm MODEL              delete a model from its Ollama or from this computer; asks first
  holdfast [OPTIONS] cp MODEL NAME         give a model of an Ollama a second name
  holdfast [OPTIONS] unload MODEL          take a model out of its Ollama's memory

  SESSION is an id, the beginning of one, or `last`. SERVER is the name of one in the settings, its address, or
  KIND=URL for one that is added.

Options:
      --data-dir DIR       where everything is kept (else HOLDFAST_DATA_DIR, else the system's place for it)
      --provider KIND=URL  the model server to ask: ollama=URL, openai=URL or anthropic=URL,
                           or local=PATH of a GGUF file or a folder of them; remembered
      --model MODEL        the model to ask
  -h, --help               print this
  -V, --version            print the version

Options of ask, continue and retry:
      --session SESSION    ask: go on with this session instead of beginning one
      --folder DIR         the session's tools see the files below this folder, and no others
      --allow TOOL         allow this tool in this session without being asked, as in --allow write_file; repeatable
      --image FILE         ask: the message shows this image, a PNG, JPEG, GIF or WebP; repeatable
      --key-env NAME       the server's key is in this variable of the environment; it is used once and kept nowhere
  -v, --verbose            also print reasoning, warnings and details, on stderr

Options of undo:
      --turn N             bring back the version of the conversation that has this turn

Options of key (a key is never an argument, where others could read it):
      --key-env NAME       keep the key that is in this variable of the environment
      -                    keep the key that comes by stdin
      --place PLACE        where: keychain (the system's, and the default) or file (in the data folder, for you alone)
      --forget             keep it no more

Options of replay:
      --turn N             this turn alone, also one that was answered again or edited since
      --speed SPEED        1, 2, 10 or max; without it 1 on a terminal, else max
      --step               an event at a time: Enter or Space shows the next, q leaves
      --exact              wait as long as it took; without it a wait of more than 2 s takes 2 s, and is told
  -v, --verbose            also print reasoning, on stderr

Option of rm:
      --yes                delete it without asking

Options of list, show, events, usage, doctor, health and models:
      --json               for programs; events prints one object a line
      --all                list: also what is in the bin
      --timings            show: where the time of each turn went, in place of what was said
      --days N             usage: so many days, today's included; 30 without it, 400 at most

A tool that changes something asks first: on a terminal you are shown exactly what will happen, and answer o (once),
c (for this conversation) or n (no). Where nobody can be asked, the answer is no.

ask, continue and retry exit with 0 when the answer is complete, 1 when it failed, 3 when it was stopped or interrupted,
and every command with 2 when its command line makes no sense. Ctrl-C stops the answer and records that. It ends a
replay, which changes nothing and exits with 3 then.
";

/// A command line that makes sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandLine {
    /// Where everything is kept, if it was said.
    pub(crate) data_dir: Option<PathBuf>,
    /// What is wanted.
    pub(crate) face: Face,
}

/// What is wanted of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Face {
    /// The usage.
    Help,
    /// The version.
    Version,
    /// The window.
    Window(Wish),
    /// One answer on stdout.
    Turn(Order),
    /// An earlier version of a conversation again.
    Undo {
        session: String,
        /// A turn of it; absent: what was taken out last.
        turn: Option<TurnId>,
    },
    /// What sessions there are.
    List { format: Format, scope: Scope },
    /// A transcript.
    Show { session: String, format: Format },
    /// Where the time of each turn went.
    Timings { session: String, format: Format },
    /// The ledger of some days.
    Usage { format: Format, days: u32 },
    /// A log.
    Events { session: String, format: Format },
    /// A conversation, shown again.
    Replay(Replay),
    /// A copy of everything.
    Backup { to: Option<PathBuf> },
    /// How the data folder is.
    Health { format: Format },
    /// A server's key.
    Key(KeyOrder),
    /// What is wrong with a server; with all of them, if none is named.
    Doctor {
        server: Option<String>,
        format: Format,
    },
    /// The models of a server.
    Models(OfModels),
}

/// What is to be done about a server's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyOrder {
    /// As it was named.
    pub(crate) server: ServerWord,
    /// What is wanted.
    pub(crate) wish: KeyWish,
    /// Where it is to be kept.
    pub(crate) place: KeyPlace,
}

/// A server as a command line names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServerWord {
    /// By its name or its address.
    Known(String),
    /// By its kind and address, so that it can be added.
    New(ProviderWish),
}

impl ServerWord {
    /// Where nothing is to be added: what is no kind and address is a name.
    pub(crate) fn of(word: &str) -> Self {
        match provider(word) {
            Ok(wish) => Self::New(wish),
            Err(_) => Self::Known(word.to_owned()),
        }
    }
}

/// What is wanted of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyWish {
    /// To see where it is.
    Look,
    /// That it be kept.
    Keep(KeySource),
    /// That it be kept no more.
    Forget,
}

/// Where a key comes from; never from the command line itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeySource {
    /// From this variable.
    Environment(String),
    /// From stdin.
    Stdin,
}

/// What is wanted of the models of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OfModels {
    /// The server, if an option says it.
    pub(crate) provider: Option<ProviderWish>,
    /// What.
    pub(crate) caring: Caring,
}

/// What is to be done with a server's models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Caring {
    /// To name them; of the server with this name.
    List {
        server: Option<String>,
        format: Format,
    },
    /// To download one.
    Pull { model: String },
    /// To delete one; without asking, if it was said.
    Delete { model: String, unasked: bool },
    /// To give one a second name.
    Copy { model: String, to: String },
    /// To take one out of memory.
    Unload { model: String },
}

/// Whom to ask, as far as it was said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wish {
    /// The server.
    pub(crate) provider: Option<ProviderWish>,
    /// The model, as the server names it.
    pub(crate) model: Option<String>,
}

/// A server named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProviderWish {
    /// How it is spoken to.
    pub(crate) dialect: Dialect,
    /// As it was typed, for the gateway to try.
    pub(crate) address: String,
    /// Where its API most likely begins, in the one form that addresses are kept in.
    pub(crate) base_url: String,
}

/// `ask`, `continue` or `retry`: one turn, to be followed to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// How the turn begins.
    pub(crate) beginning: Beginning,
    /// Whom to ask.
    pub(crate) wish: Wish,
    /// Where the session's tools see files from now on, as it was typed.
    pub(crate) folder: Option<PathBuf>,
    /// Tools whose questions are answered beforehand.
    pub(crate) allowed: Vec<String>,
    /// The variable of the environment that holds the server's key.
    pub(crate) key_env: Option<String>,
    /// How much to tell on stderr.
    pub(crate) talk: Talk,
}

/// How a turn begins; sessions are as they were named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// With a message, in a session of its own or in the one named.
    Say {
        prompt: Prompt,
        session: Option<String>,
        /// Files of what it shows.
        images: Vec<PathBuf>,
    },
    /// Where the session's last answer stopped.
    Continue { session: String },
    /// With the session's last message, again.
    Retry { session: String },
}

/// Where the prompt comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Prompt {
    /// From the command line.
    Said(String),
    /// From stdin.
    Stdin,
}

/// What of a session is shown again, and how fast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replay {
    /// As it was named.
    pub(crate) session: String,
    /// One of its turns; absent: all that belong to the conversation.
    pub(crate) turn: Option<TurnId>,
    /// How fast; absent: as suits whoever reads stdout.
    pub(crate) tempo: Option<Tempo>,
    /// Whether long waits are waited out.
    pub(crate) waits: Waits,
    /// How much to tell on stderr.
    pub(crate) talk: Talk,
}

/// How fast a conversation is shown again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tempo {
    /// At the recorded pace, or so many times as fast.
    Paced(Pace),
    /// As fast as it can be printed.
    Max,
    /// An event per key.
    Step,
}

/// How much to tell on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Talk {
    /// States, the session's id and failures.
    Usual,
    /// Also reasoning, warnings and the server's own words.
    Verbose,
}

/// For whom something is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Which sessions to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Those on the shelf.
    Shelf,
    /// Those in the bin too.
    Everything,
}

/// A command line that makes no sense, in words.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UsageError {
    #[error(
        "there is no command ‘{0}’; there are ask, continue, retry, undo, list, show, replay, events, backup, usage, health, key, doctor, models, pull, rm, cp and unload"
    )]
    UnknownCommand(String),
    #[error("{command} needs {what}")]
    Missing {
        command: &'static str,
        what: &'static str,
    },
    #[error("{command} takes no ‘{argument}’")]
    TooMuch {
        command: &'static str,
        argument: String,
    },
    #[error("{option} is not an option of {command}")]
    Misplaced {
        command: &'static str,
        option: &'static str,
    },
    #[error("{0} needs the path of a folder")]
    NoFolder(&'static str),
    #[error(
        "--provider needs a kind and an address, as in ollama=http://127.0.0.1:11434, openai=http://127.0.0.1:8080/v1, anthropic=https://api.example.com/v1 or local=model.gguf, not ‘{0}’"
    )]
    NotAProvider(String),
    #[error("--provider: {0}")]
    BadAddress(String),
    #[error("{0} needs a value that is not empty")]
    Empty(&'static str),
    #[error("--place is keychain or file, not ‘{0}’")]
    NotAPlace(String),
    #[error(
        "a key is no argument, for others could read it; put it into a variable and name that with --key-env, or say - and send it by stdin"
    )]
    KeyOnTheLine,
    #[error("--turn needs the number of a turn, as in --turn 2, not ‘{0}’")]
    NotATurn(String),
    #[error("--days needs a number from 1 to 400, not ‘{0}’")]
    NotDays(String),
    #[error("--speed is 1, 2, 10 or max, not ‘{0}’")]
    NotASpeed(String),
    #[error("{one} and {other} cannot both be meant")]
    Contradiction {
        one: &'static str,
        other: &'static str,
    },
    #[error(transparent)]
    Syntax(#[from] lexopt::Error),
}

/// Options as they were met, before it is known which command they belong to.
#[derive(Default)]
struct Met {
    data_dir: Option<PathBuf>,
    provider: Option<ProviderWish>,
    /// The model that `--provider local=FILE` means, if no other is named.
    file: Option<String>,
    model: Option<String>,
    session: Option<String>,
    folder: Option<PathBuf>,
    allowed: Vec<String>,
    images: Vec<PathBuf>,
    key_env: Option<String>,
    place: Option<KeyPlace>,
    forget: bool,
    verbose: bool,
    json: bool,
    all: bool,
    turn: Option<TurnId>,
    speed: Option<Tempo>,
    step: bool,
    exact: bool,
    yes: bool,
    timings: bool,
    days: Option<u32>,
}

impl Met {
    /// The options that only `replay` has, the one that only `rm` has, and those of the ledger.
    fn of_replay(&self) -> [(&'static str, bool); 7] {
        [
            ("--yes", self.yes),
            ("--timings", self.timings),
            ("--days", self.days.is_some()),
            ("--turn", self.turn.is_some()),
            ("--speed", self.speed.is_some()),
            ("--step", self.step),
            ("--exact", self.exact),
        ]
    }

    /// Those that only `key` has.
    fn of_key(&self) -> [(&'static str, bool); 2] {
        [("--place", self.place.is_some()), ("--forget", self.forget)]
    }

    /// Those that only turns have.
    fn of_turns(&self) -> [(&'static str, bool); 6] {
        [
            ("--provider", self.provider.is_some()),
            ("--model", self.model.is_some()),
            ("--session", self.session.is_some()),
            ("--folder", self.folder.is_some()),
            ("--allow", !self.allowed.is_empty()),
            ("--image", !self.images.is_empty()),
        ]
    }
}

/// Takes the arguments after the program's own name apart.
///
/// # Errors
/// [`UsageError`], whose words say what would make sense.
pub(crate) fn parse(
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<CommandLine, UsageError> {
    let mut parser = lexopt::Parser::from_args(arguments);
    let mut met = Met::default();
    let mut words: Vec<OsString> = Vec::new();
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Short('h') | Arg::Long("help") => return Ok(only(Face::Help)),
            Arg::Short('V') | Arg::Long("version") => return Ok(only(Face::Version)),
            Arg::Long("data-dir") => met.data_dir = Some(folder("--data-dir", parser.value()?)?),
            Arg::Long("provider") => {
                let value = parser.value()?.string()?;
                met.provider = Some(provider(&value)?);
                met.file = model_file(&value);
            }
            Arg::Long("model") => met.model = Some(filled("--model", parser.value()?)?),
            Arg::Long("session") => met.session = Some(filled("--session", parser.value()?)?),
            Arg::Long("folder") => met.folder = Some(folder("--folder", parser.value()?)?),
            Arg::Long("allow") => met.allowed.push(filled("--allow", parser.value()?)?),
            Arg::Long("image") => met.images.push(image(parser.value()?)?),
            Arg::Long("key-env") => met.key_env = Some(filled("--key-env", parser.value()?)?),
            Arg::Long("place") => met.place = Some(place(&parser.value()?.string()?)?),
            Arg::Long("forget") => met.forget = true,
            Arg::Long("key") => return Err(UsageError::KeyOnTheLine),
            Arg::Short('v') | Arg::Long("verbose") => met.verbose = true,
            Arg::Long("json") => met.json = true,
            Arg::Long("all") => met.all = true,
            Arg::Long("turn") => met.turn = Some(turn(&parser.value()?.string()?)?),
            Arg::Long("speed") => met.speed = Some(speed(&parser.value()?.string()?)?),
            Arg::Long("step") => met.step = true,
            Arg::Long("exact") => met.exact = true,
            Arg::Long("yes") => met.yes = true,
            Arg::Long("timings") => met.timings = true,
            Arg::Long("days") => met.days = Some(days(&parser.value()?.string()?)?),
            Arg::Value(word) => words.push(word),
            Arg::Short(_) | Arg::Long(_) => return Err(argument.unexpected().into()),
        }
    }
    let mut words = words.into_iter();
    let data_dir = met.data_dir.take();
    let face = match words.next() {
        None => window(met)?,
        Some(command) => match command.to_str() {
            Some("ask") => ask(met, words)?,
            Some("continue") => {
                let session = of_last_turn("continue", &met, words)?;
                Face::Turn(order(met, Beginning::Continue { session }))
            }
            Some("retry") => {
                let session = of_last_turn("retry", &met, words)?;
                Face::Turn(order(met, Beginning::Retry { session }))
            }
            Some("undo") => undo(&met, words)?,
            Some("list") => list(met, words)?,
            Some("backup") => backup(met, words)?,
            Some("show") => {
                let timings = std::mem::take(&mut met.timings);
                let (session, format) = read_session("show", &met, words)?;
                match timings {
                    true => Face::Timings { session, format },
                    false => Face::Show { session, format },
                }
            }
            Some("events") => {
                let (session, format) = read_session("events", &met, words)?;
                Face::Events { session, format }
            }
            Some("replay") => Face::Replay(replay(&met, words)?),
            Some("usage") => usage(met, words)?,
            Some("health") => health(&met, words)?,
            Some("key") => key(&met, words)?,
            Some("doctor") => doctor(&met, words)?,
            Some("models") => of_models("models", met, words)?,
            Some("pull") => of_models("pull", met, words)?,
            Some("rm") => of_models("rm", met, words)?,
            Some("cp") => of_models("cp", met, words)?,
            Some("unload") => of_models("unload", met, words)?,
            Some(_) | None => {
                let command = command.to_string_lossy().into_owned();
                return Err(UsageError::UnknownCommand(command));
            }
        },
    };
    Ok(CommandLine { data_dir, face })
}

fn only(face: Face) -> CommandLine {
    CommandLine {
        data_dir: None,
        face,
    }
}

fn window(met: Met) -> Result<Face, UsageError> {
    refuse("the window", &met.of_key())?;
    refuse("the window", &met.of_replay())?;
    refuse(
        "the window",
        &[
            ("--session", met.session.is_some()),
            ("--folder", met.folder.is_some()),
            ("--allow", !met.allowed.is_empty()),
            ("--image", !met.images.is_empty()),
            ("--key-env", met.key_env.is_some()),
            ("--verbose", met.verbose),
            ("--json", met.json),
            ("--all", met.all),
        ],
    )?;
    Ok(Face::Window(Wish {
        provider: met.provider,
        model: met.model.or(met.file),
    }))
}

fn ask(met: Met, words: impl Iterator<Item = OsString>) -> Result<Face, UsageError> {
    refuse("ask", &[("--json", met.json), ("--all", met.all)])?;
    refuse("ask", &met.of_replay())?;
    refuse("ask", &met.of_key())?;
    // Several words are one prompt: who forgets the quotes means that.
    let words = words.map(ValueExt::string).collect::<Result<Vec<_>, _>>()?;
    let said = words.join(" ");
    let prompt = match said.as_str() {
        "-" => Prompt::Stdin,
        text if text.trim().is_empty() => {
            return Err(UsageError::Missing {
                command: "ask",
                what: "a prompt",
            });
        }
        _ => Prompt::Said(said),
    };
    let session = met.session.clone();
    let images = met.images.clone();
    let beginning = Beginning::Say {
        prompt,
        session,
        images,
    };
    Ok(Face::Turn(order(met, beginning)))
}

/// The session whose last turn is meant.
fn of_last_turn(
    command: &'static str,
    met: &Met,
    words: impl Iterator<Item = OsString>,
) -> Result<String, UsageError> {
    let foreign = [
        ("--session", met.session.is_some()),
        ("--image", !met.images.is_empty()),
        ("--json", met.json),
        ("--all", met.all),
    ];
    refuse(command, &foreign)?;
    refuse(command, &met.of_replay())?;
    refuse(command, &met.of_key())?;
    one_session(command, words)
}

fn order(met: Met, beginning: Beginning) -> Order {
    Order {
        beginning,
        wish: Wish {
            provider: met.provider,
            model: met.model.or(met.file),
        },
        folder: met.folder,
        allowed: met.allowed,
        key_env: met.key_env,
        talk: talk(met.verbose),
    }
}

const fn talk(verbose: bool) -> Talk {
    if verbose { Talk::Verbose } else { Talk::Usual }
}

fn list(met: Met, mut words: impl Iterator<Item = OsString>) -> Result<Face, UsageError> {
    refuse_asking("list", &met)?;
    refuse_more("list", words.next())?;
    Ok(Face::List {
        format: format(met.json),
        scope: if met.all {
            Scope::Everything
        } else {
            Scope::Shelf
        },
    })
}

fn backup(met: Met, mut words: impl Iterator<Item = OsString>) -> Result<Face, UsageError> {
    refuse_asking("backup", &met)?;
    refuse("backup", &[("--json", met.json), ("--all", met.all)])?;
    let to = words.next().map(PathBuf::from);
    refuse_more("backup", words.next())?;
    if to.as_ref().is_some_and(|to| to.as_os_str().is_empty()) {
        return Err(UsageError::Empty("backup"));
    }
    Ok(Face::Backup { to })
}

fn health(met: &Met, mut words: impl Iterator<Item = OsString>) -> Result<Face, UsageError> {
    refuse_asking("health", met)?;
    refuse("health", &[("--all", met.all)])?;
    refuse_more("health", words.next())?;
    Ok(Face::Health {
        format: format(met.json),
    })
}

fn key(met: &Met, mut words: impl Iterator<Item = OsString>) -> Result<Face, UsageError> {
    refuse("key", &met.of_turns())?;
    refuse("key", &met.of_replay())?;
    refuse(
        "key",
        &[
            ("--verbose", met.verbose),
            ("--json", met.json),
            ("--all", met.all),
        ],
    )?;
    let missing = UsageError::Missing {
        command: "key",
        what: "a server: the name of one, its address, or KIND=URL",
    };
    let server = server(&words.next().ok_or(missing)?.string()?)?;
    let by_stdin = match words.next() {
        None => false,
        Some(word) if word == "-" => true,
        // Never repeated: it may well be a key.
        Some(_) => return Err(UsageError::KeyOnTheLine),
    };
    refuse_more("key", words.next())?;
    let contradiction = |one, other| Err(UsageError::Contradiction { one, other });
    let wish = match (&met.key_env, by_stdin, met.forget) {
        (Some(_), true, _) => return contradiction("--key-env", "-"),
        (Some(_), _, true) => return contradiction("--key-env", "--forget"),
        (None, true, true) => return contradiction("-", "--forget"),
        (Some(name), false, false) => KeyWish::Keep(KeySource::Environment(name.clone())),
        (None, true, false) => KeyWish::Keep(KeySource::Stdin),
        (None, false, true) => KeyWish::Forget,
        (None, false, false) => KeyWish::Look,
    };
    Ok(Face::Key(KeyOrder {
        server,
        wish,
        place: met.place.unwrap_or(KeyPlace::Keychain),
    }))
}

fn doctor(met: &Met, mut words: impl Iterator<Item = OsString>) -> Result<Face, UsageError> {
    refuse_asking("doctor", met)?;
    refuse("doctor", &[("--all", met.all)])?;
    let server = words.next().map(ValueExt::string).transpose()?;
    refuse_more("doctor", words.next())?;
    Ok(Face::Doctor {
        server,
        format: format(met.json),
    })
}

fn server(word: &str) -> Result<ServerWord, UsageError> {
    let kinds = ["ollama=", "openai=", "anthropic=", "local="];
    if kinds.iter().any(|kind| word.starts_with(kind)) {
        return Ok(ServerWord::New(provider(word)?));
    }
    Ok(ServerWord::Known(word.trim().to_owned()))
}

fn place(value: &str) -> Result<KeyPlace, UsageError> {
    match value.trim().to_ascii_lowercase().as_str() {
        "keychain" => Ok(KeyPlace::Keychain),
        "file" => Ok(KeyPlace::File),
        _ => Err(UsageError::NotAPlace(value.to_owned())),
    }
}

/// `models`, `pull`, `rm`, `cp` or `unload`.
fn of_models(
    command: &'static str,
    mut met: Met,
    words: impl Iterator<Item = OsString>,
) -> Result<Face, UsageError> {
    let (yes, json) = (met.yes, met.json);
    let provider = met.provider.take();
    met.yes = false;
    refuse_asking(command, &met)?;
    refuse(
        command,
        &[
            ("--all", met.all),
            ("--yes", yes && command != "rm"),
            ("--json", json && command != "models"),
        ],
    )?;
    let mut words = words.map(ValueExt::string);
    let mut word = |what: &'static str| match words.next() {
        Some(word) => match word? {
            word if word.trim().is_empty() => Err(UsageError::Missing { command, what }),
            word => Ok(word),
        },
        None => Err(UsageError::Missing { command, what }),
    };
    const MODEL: &str = "the name of a model, such as llama3.2 or qwen3:8b";
    let caring = match command {
        "pull" => Caring::Pull {
            model: word(MODEL)?,
        },
        "rm" => Caring::Delete {
            model: word(MODEL)?,
            unasked: yes,
        },
        "cp" => Caring::Copy {
            model: word(MODEL)?,
            to: word("the second name")?,
        },
        "unload" => Caring::Unload {
            model: word(MODEL)?,
        },
        _ => Caring::List {
            server: match words.next() {
                Some(server) => Some(server?),
                None => None,
            },
            format: format(json),
        },
    };
    match words.next() {
        Some(more) => Err(UsageError::TooMuch {
            command,
            argument: more?,
        }),
        None => Ok(Face::Models(OfModels { provider, caring })),
    }
}

fn usage(mut met: Met, mut words: impl Iterator<Item = OsString>) -> Result<Face, UsageError> {
    let days = met.days.take().unwrap_or(DAYS);
    refuse_asking("usage", &met)?;
    refuse("usage", &[("--all", met.all)])?;
    refuse_more("usage", words.next())?;
    Ok(Face::Usage {
        format: format(met.json),
        days,
    })
}

fn days(typed: &str) -> Result<u32, UsageError> {
    let days = typed.trim().parse().ok();
    days.filter(|days| (1..=DAYS_MAX).contains(days))
        .ok_or_else(|| UsageError::NotDays(typed.to_owned()))
}

fn read_session(
    command: &'static str,
    met: &Met,
    words: impl Iterator<Item = OsString>,
) -> Result<(String, Format), UsageError> {
    refuse_asking(command, met)?;
    refuse(command, &[("--all", met.all)])?;
    Ok((one_session(command, words)?, format(met.json)))
}

fn undo(met: &Met, words: impl Iterator<Item = OsString>) -> Result<Face, UsageError> {
    refuse("undo", &met.of_turns())?;
    refuse("undo", &met.of_key())?;
    refuse(
        "undo",
        &[
            ("--key-env", met.key_env.is_some()),
            ("--verbose", met.verbose),
            ("--json", met.json),
            ("--all", met.all),
            ("--speed", met.speed.is_some()),
            ("--step", met.step),
            ("--exact", met.exact),
            ("--yes", met.yes),
        ],
    )?;
    Ok(Face::Undo {
        session: one_session("undo", words)?,
        turn: met.turn,
    })
}

fn replay(met: &Met, words: impl Iterator<Item = OsString>) -> Result<Replay, UsageError> {
    refuse("replay", &met.of_turns())?;
    refuse("replay", &met.of_key())?;
    refuse("replay", &[("--key-env", met.key_env.is_some())])?;
    refuse("replay", &[("--yes", met.yes)])?;
    refuse("replay", &[("--json", met.json), ("--all", met.all)])?;
    let tempo = match (met.speed, met.step) {
        (Some(_), true) => {
            return Err(UsageError::Contradiction {
                one: "--speed",
                other: "--step",
            });
        }
        (None, true) => Some(Tempo::Step),
        (speed, false) => speed,
    };
    let waits = match (tempo, met.exact) {
        (Some(Tempo::Step), true) => {
            return Err(UsageError::Contradiction {
                one: "--step",
                other: "--exact",
            });
        }
        (Some(Tempo::Max), true) => {
            return Err(UsageError::Contradiction {
                one: "--speed max",
                other: "--exact",
            });
        }
        (Some(Tempo::Paced(_)) | None, true) => Waits::Exact,
        (_, false) => Waits::Shortened,
    };
    Ok(Replay {
        session: one_session("replay", words)?,
        turn: met.turn,
        tempo,
        waits,
        talk: talk(met.verbose),
    })
}

fn one_session(
    command: &'static str,
    mut words: impl Iterator<Item = OsString>,
) -> Result<String, UsageError> {
    let what = "a session: an id, the beginning of one, or `last`";
    let session = words
        .next()
        .ok_or(UsageError::Missing { command, what })?
        .string()?;
    if session.trim().is_empty() {
        return Err(UsageError::Missing { command, what });
    }
    refuse_more(command, words.next())?;
    Ok(session)
}

fn refuse_asking(command: &'static str, met: &Met) -> Result<(), UsageError> {
    refuse(command, &met.of_turns())?;
    refuse(command, &met.of_key())?;
    let unasked = [
        ("--verbose", met.verbose),
        ("--key-env", met.key_env.is_some()),
    ];
    refuse(command, &unasked)?;
    refuse(command, &met.of_replay())
}

fn refuse(command: &'static str, options: &[(&'static str, bool)]) -> Result<(), UsageError> {
    match options.iter().find(|(_, met)| *met) {
        Some(&(option, _)) => Err(UsageError::Misplaced { command, option }),
        None => Ok(()),
    }
}

fn refuse_more(command: &'static str, word: Option<OsString>) -> Result<(), UsageError> {
    match word {
        Some(word) => Err(UsageError::TooMuch {
            command,
            argument: word.to_string_lossy().into_owned(),
        }),
        None => Ok(()),
    }
}

fn format(json: bool) -> Format {
    if json { Format::Json } else { Format::Text }
}

fn folder(option: &'static str, value: OsString) -> Result<PathBuf, UsageError> {
    if value.is_empty() {
        return Err(UsageError::NoFolder(option));
    }
    Ok(PathBuf::from(value))
}

fn image(value: OsString) -> Result<PathBuf, UsageError> {
    if value.is_empty() {
        return Err(UsageError::Empty("--image"));
    }
    Ok(PathBuf::from(value))
}

fn filled(option: &'static str, value: OsString) -> Result<String, UsageError> {
    let value = value.string()?;
    if value.trim().is_empty() {
        return Err(UsageError::Empty(option));
    }
    Ok(value)
}

fn turn(value: &str) -> Result<TurnId, UsageError> {
    let number = value.trim().parse().ok().filter(|number| *number > 0);
    number
        .map(TurnId::new)
        .ok_or_else(|| UsageError::NotATurn(value.to_owned()))
}

fn speed(value: &str) -> Result<Tempo, UsageError> {
    match value.trim().to_ascii_lowercase().as_str() {
        "1" | "1x" => Ok(Tempo::Paced(Pace::Recorded)),
        "2" | "2x" => Ok(Tempo::Paced(Pace::Double)),
        "10" | "10x" => Ok(Tempo::Paced(Pace::Tenfold)),
        "max" => Ok(Tempo::Max),
        _ => Err(UsageError::NotASpeed(value.to_owned())),
    }
}

/// `ollama=URL`, `openai=URL`, `anthropic=URL` or `local=PATH`.
///
/// # Errors
/// That it is none of them, in words.
pub(crate) fn provider(value: &str) -> Result<ProviderWish, UsageError> {
    let not_one = || UsageError::NotAProvider(value.to_owned());
    let (kind, address) = value.split_once('=').ok_or_else(not_one)?;
    let dialect = match kind.trim().to_ascii_lowercase().as_str() {
        "ollama" => Dialect::Ollama,
        "openai" => Dialect::OpenAiChat,
        "anthropic" => Dialect::Anthropic,
        "local" => Dialect::Local,
        _ => return Err(not_one()),
    };
    let base_url = gateway::base_url(address, dialect)
        .map_err(|failure| UsageError::BadAddress(failure.message))?;
    let address = match dialect {
        // Another process that is told of it may be in another folder.
        Dialect::Local => base_url.clone(),
        Dialect::Ollama | Dialect::OpenAiChat | Dialect::Anthropic => address.trim().to_owned(),
    };
    Ok(ProviderWish {
        dialect,
        address,
        base_url,
    })
}

/// The model that is meant by `local=FILE`.
pub(crate) fn model_file(provider: &str) -> Option<String> {
    let (kind, path) = provider.split_once('=')?;
    if !kind.trim().eq_ignore_ascii_case("local") {
        return None;
    }
    // What is no path was refused before.
    let (_, model) = gateway::local::place_of(path).ok()?;
    model
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &[&str]) -> Result<CommandLine, String> {
        parse(line.iter().map(OsString::from)).map_err(|error| error.to_string())
    }

    #[test]
    fn no_argument_opens_the_window() {
        assert_eq!(
            parsed(&[]),
            Ok(only(Face::Window(Wish::default()))),
            "starting Holdfast from a menu passes nothing"
        );
    }

    #[test]
    fn options_may_stand_before_and_after_the_command() {
        let expected = Ok(CommandLine {
            data_dir: Some("d".into()),
            face: Face::Turn(Order {
                beginning: Beginning::Say {
                    prompt: Prompt::Said("why is it so".into()),
                    session: Some("last".into()),
                    images: vec!["a.png".into(), "b.jpg".into()],
                },
                wish: Wish {
                    provider: Some(ProviderWish {
                        dialect: Dialect::OpenAiChat,
                        address: "http://127.0.0.1:8080".into(),
                        base_url: "http://127.0.0.1:8080/v1".into(),
                    }),
                    model: Some("m".into()),
                },
                folder: Some("notes".into()),
                allowed: vec!["write_file".into(), "other".into()],
                key_env: None,
                talk: Talk::Verbose,
            }),
        });
        let provider = "openai=http://127.0.0.1:8080";
        assert_eq!(
            parsed(&[
                "--data-dir",
                "d",
                "--model=m",
                "ask",
                "-v",
                "--folder",
                "notes",
                "--allow",
                "write_file",
                "--image",
                "a.png",
                "--allow=other",
                "--image=b.jpg",
                "--session",
                "last",
                "--provider",
                provider,
                "why",
                "is",
                "it",
                "so",
            ]),
            expected
        );
        assert_eq!(
            parsed(&[
                "ask",
                "why is it so",
                "--verbose",
                "--provider",
                provider,
                "--session=last",
                "--data-dir=d",
                "--image=a.png",
                "--allow=write_file",
                "--image",
                "b.jpg",
                "--folder=notes",
                "--allow",
                "other",
                "--model",
                "m",
            ]),
            expected
        );
    }

    #[test]
    fn a_dash_reads_the_prompt_from_stdin_and_two_dashes_end_the_options() {
        let prompt = |line: &[&str]| match parsed(line).map(|line| line.face) {
            Ok(Face::Turn(Order {
                beginning: Beginning::Say { prompt, .. },
                ..
            })) => prompt,
            other => panic!("{other:?}"),
        };
        assert_eq!(prompt(&["ask", "-"]), Prompt::Stdin);
        assert_eq!(
            prompt(&["ask", "--", "--json", "-v"]),
            Prompt::Said("--json -v".into())
        );
    }

    #[test]
    fn a_backup_goes_where_it_is_said_or_where_backups_are_kept() {
        let backup = |to: Option<&str>| {
            Ok(only(Face::Backup {
                to: to.map(PathBuf::from),
            }))
        };
        assert_eq!(parsed(&["backup"]), backup(None));
        assert_eq!(parsed(&["backup", "copy.db"]), backup(Some("copy.db")));
    }

    #[test]
    fn what_makes_no_sense_is_told_in_a_sentence() {
        for (line, words) in [
            (&["chat"][..], "there is no command ‘chat’"),
            (&["ask"], "ask needs a prompt"),
            (&["ask", "  "], "ask needs a prompt"),
            (&["show"], "show needs a session"),
            (&["show", "a", "b"], "show takes no ‘b’"),
            (&["continue"], "continue needs a session"),
            (&["retry", "a", "b"], "retry takes no ‘b’"),
            (
                &["continue", "--session", "a", "b"],
                "--session is not an option of continue",
            ),
            (
                &["show", "--folder", "d", "a"],
                "--folder is not an option of show",
            ),
            (&["health", "x"], "health takes no ‘x’"),
            (&["undo"], "undo needs a session"),
            (&["undo", "a", "b"], "undo takes no ‘b’"),
            (
                &["undo", "a", "--model", "m"],
                "--model is not an option of undo",
            ),
            (&["undo", "a", "--step"], "--step is not an option of undo"),
            (&["pull"], "pull needs the name of a model"),
            (&["cp", "a"], "cp needs the second name"),
            (&["unload", "a", "b"], "unload takes no ‘b’"),
            (&["pull", "a", "--yes"], "--yes is not an option of pull"),
            (&["rm", "a", "--json"], "--json is not an option of rm"),
            (&["ask", "--yes", "p"], "--yes is not an option of ask"),
            (&["replay"], "replay needs a session"),
            (&["replay", "a", "b"], "replay takes no ‘b’"),
            (
                &["replay", "a", "--model", "m"],
                "--model is not an option of replay",
            ),
            (
                &["replay", "a", "--json"],
                "--json is not an option of replay",
            ),
            (
                &["replay", "a", "--turn", "0"],
                "--turn needs the number of a turn, as in --turn 2, not ‘0’",
            ),
            (
                &["replay", "a", "--turn", "two"],
                "--turn needs the number of a turn",
            ),
            (
                &["replay", "a", "--speed", "3"],
                "--speed is 1, 2, 10 or max, not ‘3’",
            ),
            (
                &["replay", "a", "--speed", "2", "--step"],
                "--speed and --step cannot both be meant",
            ),
            (
                &["replay", "a", "--step", "--exact"],
                "--step and --exact cannot both be meant",
            ),
            (
                &["replay", "a", "--speed", "max", "--exact"],
                "--speed max and --exact cannot both be meant",
            ),
            (
                &["show", "a", "--turn", "2"],
                "--turn is not an option of show",
            ),
            (&["ask", "--step", "p"], "--step is not an option of ask"),
            (
                &["retry", "a", "--exact"],
                "--exact is not an option of retry",
            ),
            (&["--speed", "2"], "--speed is not an option of the window"),
            (
                &["health", "--allow", "write_file"],
                "--allow is not an option of health",
            ),
            (
                &["--folder", "d"],
                "--folder is not an option of the window",
            ),
            (
                &["ask", "--folder=", "p"],
                "--folder needs the path of a folder",
            ),
            (&["ask", "--allow", " ", "p"], "--allow needs a value"),
            (&["list", "x"], "list takes no ‘x’"),
            (&["backup", "a", "b"], "backup takes no ‘b’"),
            (&["backup", "--json"], "--json is not an option of backup"),
            (
                &["list", "--model", "m"],
                "--model is not an option of list",
            ),
            (&["--json"], "--json is not an option of the window"),
            (&["ask", "--json", "p"], "--json is not an option of ask"),
            (&["show", "--all", "x"], "--all is not an option of show"),
            (&["--data-dir"], "missing argument for option '--data-dir'"),
            (&["--data-dir="], "--data-dir needs the path of a folder"),
            (&["--bogus"], "invalid option '--bogus'"),
            (&["-x"], "invalid option '-x'"),
            (
                &["--provider", "vllm=http://h", "ask", "p"],
                "--provider needs a kind",
            ),
            (
                &["--provider", "http://h", "ask", "p"],
                "--provider needs a kind",
            ),
            (&["--provider", "ollama=", "ask", "p"], "--provider: "),
            (&["--model", "", "ask", "p"], "--model needs a value"),
            (
                &["list", "--json=yes"],
                "unexpected argument for option '--json'",
            ),
        ] {
            let error = parsed(line).expect_err("a usage error");
            assert!(error.contains(words), "{line:?} said {error:?}");
        }
    }

    #[test]
    fn the_doctor_looks_at_one_server_or_at_all() {
        let face = |line: &[&str]| parsed(line).map(|line| line.face);
        let all = Face::Doctor {
            server: None,
            format: Format::Text,
        };
        assert_eq!(face(&["doctor"]), Ok(all));
        let one = Face::Doctor {
            server: Some("http://gpubox:8080/v1/v1".into()),
            format: Format::Json,
        };
        assert_eq!(
            face(&["doctor", "http://gpubox:8080/v1/v1", "--json"]),
            Ok(one)
        );
        assert!(face(&["doctor", "a", "b"]).is_err());
        assert!(face(&["doctor", "--model", "m"]).is_err());
    }

    #[test]
    fn a_key_comes_from_the_environment_or_stdin_and_never_stands_on_the_line() {
        let order = |line: &[&str]| match parsed(line).map(|line| line.face) {
            Ok(Face::Key(order)) => Ok(order),
            Ok(other) => panic!("{other:?}"),
            Err(words) => Err(words),
        };
        let known = || ServerWord::Known("Box".into());
        assert_eq!(
            order(&["key", "Box"]),
            Ok(KeyOrder {
                server: known(),
                wish: KeyWish::Look,
                place: KeyPlace::Keychain
            })
        );
        assert_eq!(
            order(&["key", "Box", "-", "--place", "file"]),
            Ok(KeyOrder {
                server: known(),
                wish: KeyWish::Keep(KeySource::Stdin),
                place: KeyPlace::File
            })
        );
        let new = order(&["key", "openai=https://api.example.com", "--key-env", "K"]).unwrap();
        assert_eq!(new.wish, KeyWish::Keep(KeySource::Environment("K".into())));
        assert!(matches!(new.server, ServerWord::New(_)));
        for line in [
            &["key", "Box", "sk-0815"][..],
            &["key", "Box", "--key", "sk-0815"],
            &["key", "Box", "--key=sk-0815"],
            &["ask", "--key", "sk-0815", "Hi"],
        ] {
            let words = parsed(line).unwrap_err();
            assert!(
                words.contains("--key-env") && !words.contains("0815"),
                "{words}"
            );
        }
        assert!(parsed(&["key"]).is_err());
        assert!(parsed(&["key", "Box", "-", "--forget"]).is_err());
        assert!(parsed(&["list", "--key-env", "K"]).is_err());
        assert!(parsed(&["key", "Box", "--place", "cupboard"]).is_err());
    }

    #[test]
    fn continue_and_retry_take_one_session_and_the_options_of_a_turn() {
        let order = |beginning| {
            Ok(only(Face::Turn(Order {
                beginning,
                wish: Wish {
                    provider: None,
                    model: Some("m".into()),
                },
                folder: None,
                allowed: vec!["write_file".into()],
                key_env: None,
                talk: Talk::Usual,
            })))
        };
        let options = ["--model", "m", "--allow", "write_file"];
        let line = |command| [&[command, "last"][..], &options].concat();
        let session = || "last".to_owned();
        assert_eq!(
            parsed(&line("continue")),
            order(Beginning::Continue { session: session() })
        );
        assert_eq!(
            parsed(&line("retry")),
            order(Beginning::Retry { session: session() })
        );
        assert_eq!(
            parsed(&["show", "last", "--timings"]),
            Ok(only(Face::Timings {
                session: "last".to_owned(),
                format: Format::Text
            }))
        );
        assert_eq!(
            parsed(&["usage", "--days", "7", "--json"]),
            Ok(only(Face::Usage {
                format: Format::Json,
                days: 7
            }))
        );
        assert_eq!(
            parsed(&["usage"]),
            Ok(only(Face::Usage {
                format: Format::Text,
                days: DAYS
            }))
        );
        assert_eq!(
            parsed(&["health", "--json"]),
            Ok(only(Face::Health {
                format: Format::Json
            }))
        );
    }

    #[test]
    fn an_undo_is_of_a_session_and_of_one_of_its_turns_if_that_is_said() {
        let undo = |turn: Option<u64>| {
            Ok(only(Face::Undo {
                session: "last".to_owned(),
                turn: turn.map(TurnId::new),
            }))
        };
        assert_eq!(parsed(&["undo", "last"]), undo(None));
        assert_eq!(parsed(&["undo", "last", "--turn", "3"]), undo(Some(3)));
    }

    #[test]
    fn a_replay_is_of_a_session_or_a_turn_at_one_of_its_speeds() {
        let replay = |line: &[&str]| match parsed(&[&["replay", "last"], line].concat()) {
            Ok(CommandLine {
                face: Face::Replay(replay),
                ..
            }) => replay,
            other => panic!("{other:?}"),
        };
        let plain = Replay {
            session: "last".to_owned(),
            turn: None,
            tempo: None,
            waits: Waits::Shortened,
            talk: Talk::Usual,
        };
        assert_eq!(replay(&[]), plain);
        assert_eq!(
            replay(&["--turn", "3", "--exact", "-v"]),
            Replay {
                turn: Some(TurnId::new(3)),
                waits: Waits::Exact,
                talk: Talk::Verbose,
                ..plain.clone()
            }
        );
        for (words, tempo) in [
            (&["--speed", "1"][..], Tempo::Paced(Pace::Recorded)),
            (&["--speed=2x"], Tempo::Paced(Pace::Double)),
            (&["--speed", "10"], Tempo::Paced(Pace::Tenfold)),
            (&["--speed", "MAX"], Tempo::Max),
            (&["--step"], Tempo::Step),
        ] {
            assert_eq!(replay(words).tempo, Some(tempo), "{words:?}");
        }
    }

    #[test]
    fn models_are_listed_downloaded_deleted_copied_and_unloaded() {
        let caring = |line: &[&str]| match parsed(line) {
            Ok(CommandLine {
                face: Face::Models(order),
                ..
            }) => (order.provider.map(|wish| wish.address), order.caring),
            other => panic!("{other:?}"),
        };
        let list = |server: Option<&str>, format| Caring::List {
            server: server.map(str::to_owned),
            format,
        };
        assert_eq!(caring(&["models"]), (None, list(None, Format::Text)));
        assert_eq!(
            caring(&["models", "Box", "--json"]),
            (None, list(Some("Box"), Format::Json))
        );
        let model = || "kelp:7b".to_owned();
        assert_eq!(
            caring(&["--provider", "ollama=http://h:1", "pull", "kelp:7b"]),
            (
                Some("http://h:1".to_owned()),
                Caring::Pull { model: model() }
            )
        );
        assert_eq!(
            caring(&["rm", "kelp:7b", "--yes"]).1,
            Caring::Delete {
                model: model(),
                unasked: true
            }
        );
        let to = "mine".to_owned();
        assert_eq!(
            caring(&["cp", "kelp:7b", "mine"]).1,
            Caring::Copy { model: model(), to }
        );
        assert_eq!(
            caring(&["unload", "kelp:7b"]).1,
            Caring::Unload { model: model() }
        );
    }

    #[test]
    fn help_and_version_win_over_everything_else() {
        assert_eq!(parsed(&["ask", "--help"]), Ok(only(Face::Help)));
        assert_eq!(parsed(&["-V", "nonsense"]), Ok(only(Face::Version)));
    }
}
