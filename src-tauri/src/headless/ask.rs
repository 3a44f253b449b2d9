//! `ask`, `continue` and `retry`: one turn, followed by attach and poll exactly as a window follows it.
//!
//! Invariant: the turn is followed to its terminal event, whatever is lost on the way, and whoever is asked something
//! meanwhile holds up nothing else: Ctrl-C, text and answers from elsewhere are heard all the same.

use std::{
    cell::Cell,
    io::{self, Read},
    path::{Path, PathBuf},
    pin::{Pin, pin},
    time::Duration,
};

use engine::Engine;
use protocol::{
    AttachReason, Attached, Cursor, ErrorCode, ErrorReport, Image, InterruptedWhy, Op, PROTOCOL,
    Page, PageId, Phase, SessionId, StreamId, TranscriptPage, TurnId, TurnOutcome, TypedKey,
};
use tokio::{task::JoinSet, time::Sleep};

use crate::{
    arguments::{Beginning, Order, Prompt, Talk},
    choice::{self, NoChoice},
    image_file,
    signals::{Asked, Signals},
};

use super::{
    Exit,
    answer::{Answer, Printing},
    asker::{Asker, Hearing, Verdict},
    beginning::{self, NothingTo, Start},
    complain,
    following::{Applied, Following},
    lookup,
    print::Margin,
    words,
};

/// The window's label, as far as the engine is concerned.
const LABEL: &str = "ask";

/// After Ctrl-C the turn's end is awaited for so long.
const STOP_MAX: Duration = Duration::from_secs(3);

/// An ordered shutdown takes less; then the process leaves all the same, and the next start recovers.
const SHUTDOWN_MAX: Duration = Duration::from_secs(4);

/// An attachment that is lost again and again is not a blip.
const ATTACHES_MAX: u32 = 4;

/// Polls in a row that find the turn unsaved: the disk is given a quarter of a minute to recover.
const UNSAVED_POLLS_MAX: u32 = 2;

/// Begins a turn, prints its answer, and says how that ended. The key is for this process alone.
pub(crate) async fn ask(data_dir: &Path, order: Order, key: Option<TypedKey>) -> Exit {
    let margin = Margin::of_this_process();
    let folder = match order.folder.as_deref().map(folder_at).transpose() {
        Ok(folder) => folder,
        Err(error) => return complain(error, Exit::Failed),
    };
    let (wanted, by_stdin) = match wanted(&order.beginning) {
        Ok(wanted) => wanted,
        Err(error) => {
            return complain(
                format!("the prompt could not be read: {error}"),
                Exit::Failed,
            );
        }
    };
    match &wanted {
        Wanted::Said { text, .. } if text.trim().is_empty() => {
            return complain("the prompt is empty", Exit::Usage);
        }
        Wanted::Said { .. } | Wanted::GoingOn(_) | Wanted::Again(_) => {}
    }
    let signals = match Signals::taken() {
        Ok(signals) => signals,
        Err(error) => return complain(format!("signals cannot be handled: {error}"), Exit::Failed),
    };
    let engine = match Engine::open(super::config(data_dir.to_owned())).await {
        Ok(engine) => engine,
        Err(error) => return complain(error, Exit::Failed),
    };
    super::health::tell_of_salvage(&engine);
    let conversation = Conversation {
        engine: engine.clone(),
        margin,
        talk: order.talk,
        key,
        running: Cell::new(None),
    };
    let hearing = Hearing::of_this_process(by_stdin);
    let asker = Asker::new(margin, order.allowed.clone(), hearing);
    let held = conversation.held(&order, wanted, folder, asker);
    let (exit, haste) = under_signals(&conversation, signals, held).await;
    if haste == Haste::AtOnce {
        return exit;
    }
    let shutdown = engine.shutdown(InterruptedWhy::AppExit);
    if tokio::time::timeout(SHUTDOWN_MAX, shutdown).await.is_err() {
        tracing::error!("the engine did not shut down in time; the next start recovers");
    }
    exit
}

/// Why a folder cannot be given to a session.
#[derive(Debug, thiserror::Error)]
enum NoFolder {
    #[error("the folder ‘{path}’ cannot be used: {source}; name another one with --folder")]
    Unusable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("‘{0}’ is not a folder; name one with --folder")]
    NotAFolder(PathBuf),
    #[error("the name of the folder ‘{0}’ is not readable as text, so it cannot be used")]
    NotText(PathBuf),
}

/// The folder under its one name, as a session keeps it.
fn folder_at(path: &Path) -> Result<String, NoFolder> {
    let folder = path.canonicalize().map_err(|source| NoFolder::Unusable {
        path: path.to_owned(),
        source,
    })?;
    if !folder.is_dir() {
        return Err(NoFolder::NotAFolder(path.to_owned()));
    }
    let name = folder.into_os_string().into_string();
    name.map_err(|name| NoFolder::NotText(name.into()))
}

/// What is to be done, with the prompt at hand.
enum Wanted<'a> {
    Said {
        text: String,
        session: Option<&'a str>,
        images: &'a [PathBuf],
    },
    GoingOn(&'a str),
    Again(&'a str),
}

/// Also says whether stdin was read to its end for it.
fn wanted(beginning: &Beginning) -> io::Result<(Wanted<'_>, bool)> {
    Ok(match beginning {
        Beginning::Say {
            prompt,
            session,
            images,
        } => {
            let (text, by_stdin) = match prompt {
                Prompt::Said(text) => (text.clone(), false),
                Prompt::Stdin => {
                    let mut text = String::new();
                    io::stdin().lock().read_to_string(&mut text)?;
                    // The end of the last line belongs to the pipe, not to the question.
                    text.truncate(text.trim_end_matches(['\n', '\r']).len());
                    (text, true)
                }
            };
            let session = session.as_deref();
            let said = Wanted::Said {
                text,
                session,
                images,
            };
            (said, by_stdin)
        }
        Beginning::Continue { session } => (Wanted::GoingOn(session), false),
        Beginning::Retry { session } => (Wanted::Again(session), false),
    })
}

/// How the process leaves after the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Haste {
    /// With an ordered shutdown.
    InOrder,
    /// Somebody pressed Ctrl-C twice; the next start recovers what is left open.
    AtOnce,
}

/// Holds the conversation until it ends by itself or a signal ends it.
async fn under_signals(
    conversation: &Conversation,
    mut signals: Signals,
    held: impl Future<Output = Result<Exit, Refused>>,
) -> (Exit, Haste) {
    let mut held = pin!(held);
    let mut patience = pin!(None);
    // A shutdown runs beside the conversation, which so hears how its turn ended.
    let mut closing = JoinSet::new();
    loop {
        tokio::select! {
            ended = &mut held => {
                let exit = ended.unwrap_or_else(|refused| refused.told(conversation));
                return (exit, Haste::InOrder);
            }
            () = expired(patience.as_mut()) => {
                conversation.margin.murmur("the answer did not end in time");
                return (Exit::Stopped, Haste::InOrder);
            }
            asked = signals.next() => match (asked, conversation.running.get()) {
                (Asked::Stop, _) if patience.is_some() => return (Exit::Stopped, Haste::AtOnce),
                (Asked::Stop, Some((session, turn))) => {
                    conversation.margin.murmur("stopping");
                    let op = Op::CancelTurn { session, turn };
                    let engine = &conversation.engine;
                    if let Err(report) = engine.submit(engine.mint_op(), op).await {
                        conversation.margin.complain(report);
                    }
                    patience.set(Some(tokio::time::sleep(STOP_MAX)));
                }
                // Nothing is said yet that could be stopped.
                (Asked::Stop | Asked::Leave, None) => return (Exit::Stopped, Haste::InOrder),
                (Asked::Leave, Some(_)) => {
                    let engine = conversation.engine.clone();
                    closing.spawn(async move { engine.shutdown(InterruptedWhy::OsShutdown).await });
                    patience.set(Some(tokio::time::sleep(STOP_MAX)));
                }
            },
        }
    }
}

/// Ready when the sleep is over; never without one.
async fn expired(sleep: Pin<&mut Option<Sleep>>) {
    match sleep.as_pin_mut() {
        Some(sleep) => sleep.await,
        None => std::future::pending().await,
    }
}

/// Why there is no turn.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error(transparent)]
    Session(#[from] lookup::NoSession),
    #[error(transparent)]
    Nothing(#[from] NothingTo),
    #[error(transparent)]
    Choice(#[from] NoChoice),
    #[error(transparent)]
    Engine(#[from] ErrorReport),
    #[error("the image ‘{path}’ cannot be read: {source}; name another file with --image")]
    Image {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the message was taken and no turn was begun")]
    NoTurn,
    #[error("the answer came with holes; `holdfast show` has what is stored")]
    Gap,
    #[error(
        "the answer cannot be saved, so waiting for its end makes no sense; what was saved is in `holdfast show`"
    )]
    NotSaved,
}

impl Refused {
    fn told(&self, conversation: &Conversation) -> Exit {
        if let (Self::Choice(NoChoice::Fails(failure)), Talk::Verbose) = (self, conversation.talk)
            && let Some(detail) = &failure.detail
        {
            conversation.margin.murmur(detail);
        }
        conversation.margin.complain(self);
        match self {
            Self::Engine(report) if report.code == ErrorCode::ShuttingDown => Exit::Stopped,
            Self::Session(_)
            | Self::Nothing(_)
            | Self::Choice(_)
            | Self::Engine(_)
            | Self::Image { .. }
            | Self::NoTurn
            | Self::Gap
            | Self::NotSaved => Exit::Failed,
        }
    }
}

struct Conversation {
    engine: Engine,
    margin: Margin,
    talk: Talk,
    key: Option<TypedKey>,
    /// The turn that Ctrl-C stops.
    running: Cell<Option<(SessionId, TurnId)>>,
}

impl Conversation {
    async fn held(
        &self,
        order: &Order,
        wanted: Wanted<'_>,
        folder: Option<String>,
        mut asker: Asker,
    ) -> Result<Exit, Refused> {
        let engine = &self.engine;
        let page = engine.mint_page();
        let welcome = engine.hello(LABEL, page, PROTOCOL)?;
        let word = match &wanted {
            Wanted::Said { session, .. } => *session,
            Wanted::GoingOn(session) | Wanted::Again(session) => Some(*session),
        };
        let (session, turn, attached) = match word {
            Some(word) => {
                let library = engine.library().await?;
                let session = lookup::session(&library, word)?.session;
                let stream = StreamId::Session(session);
                let attached = engine
                    .attach(page, stream, None, AttachReason::Open)
                    .await?;
                let turn = self.begun_in(order, wanted, folder, &attached).await?;
                (session, turn, Some(attached))
            }
            None => {
                let session = engine.mint_session();
                let turn = self.begun_anew(order, wanted, folder, session).await?;
                (session, turn, None)
            }
        };
        self.running.set(Some((session, turn)));
        self.margin.say(format_args!("session {session}"));

        let mut answer = Answer::new(self.margin, self.talk, turn);
        let mut place = match attached {
            Some(attached) => Following::after(&attached),
            None => {
                let start = Cursor::at_start(welcome.log);
                let stream = StreamId::Session(session);
                let attached = engine
                    .attach(page, stream, Some(start), AttachReason::Open)
                    .await?;
                Following::of(&attached, Some(start), &mut answer).await
            }
        };
        let outcome = self
            .followed(page, session, &mut place, &mut answer, &mut asker)
            .await?;
        answer.end_line().await;
        if answer.printing == Printing::Goes {
            let seen = Op::NoteSeen { session, turn };
            // The answer is out either way; where it cannot be noted, a window marks it as new.
            let _ = engine.submit(engine.mint_op(), seen).await;
        }
        if answer.only_thinks(&outcome) {
            self.margin.say(engine::words::ONLY_THOUGHT);
        }
        Ok(match (self.ended(&outcome), answer.printing) {
            (Exit::Done, Printing::Failed) => Exit::Failed,
            (exit, Printing::Goes | Printing::Unheard | Printing::Failed) => exit,
        })
    }

    /// Begins a session with what was said.
    async fn begun_anew(
        &self,
        order: &Order,
        wanted: Wanted<'_>,
        folder: Option<String>,
        session: SessionId,
    ) -> Result<TurnId, Refused> {
        let (text, images) = match wanted {
            Wanted::Said { text, images, .. } => (text, images),
            // Both name a session.
            Wanted::GoingOn(_) | Wanted::Again(_) => return Err(Refused::NoTurn),
        };
        let model = choice::choose(&self.engine, &order.wish, self.key.as_ref(), None).await?;
        self.tell_folder(folder.as_deref());
        let op = Op::StartSession {
            session,
            model,
            text,
            folder,
            options: protocol::ModelOptions::default(),
            images: self.taken(images).await?,
        };
        self.begun_by(op).await
    }

    /// Begins a turn in a session that exists.
    async fn begun_in(
        &self,
        order: &Order,
        wanted: Wanted<'_>,
        folder: Option<String>,
        attached: &Attached,
    ) -> Result<TurnId, Refused> {
        let transcript = transcript_of(attached).ok_or(Refused::NoTurn)?;
        let session = transcript.session;
        let start = match wanted {
            Wanted::Said { text, images, .. } => Start::Say(text, self.taken(images).await?),
            Wanted::GoingOn(_) => Start::going_on(transcript)?,
            Wanted::Again(_) => {
                let start = Start::again(transcript)?;
                for words in beginning::stays(transcript) {
                    self.margin.say(words);
                }
                start
            }
        };
        let engine = &self.engine;
        let present = transcript.model.as_ref();
        let model = choice::choose(engine, &order.wish, self.key.as_ref(), present).await?;
        if present != Some(&model) {
            let choose = Op::ChooseModel { session, model };
            engine.submit(engine.mint_op(), choose).await?;
        }
        let folder_before = transcript.folder.as_deref();
        // Choosing the same one again would take back what was allowed in it.
        if folder.is_some() && folder.as_deref() != folder_before {
            let folder = folder.clone();
            let choose = Op::ChooseFolder { session, folder };
            engine.submit(engine.mint_op(), choose).await?;
        }
        self.tell_folder(folder.as_deref().or(folder_before));
        self.begun_by(start.op_in(session)).await
    }

    /// Has the engine take the images in these files.
    async fn taken(&self, paths: &[PathBuf]) -> Result<Vec<Image>, Refused> {
        let mut taken = Vec::new();
        for path in paths {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let bytes = image_file::read(path).map_err(|source| Refused::Image {
                path: path.clone(),
                source,
            })?;
            let image = self.engine.take_image(&name, bytes).await?;
            self.margin.murmur(words::image(&image));
            taken.push(image);
        }
        Ok(taken)
    }

    /// Whoever lets a model read files should see which.
    fn tell_folder(&self, folder: Option<&str>) {
        if let Some(folder) = folder {
            self.margin
                .murmur(format_args!("tools see the files below {folder}"));
        }
    }

    async fn begun_by(&self, op: Op) -> Result<TurnId, Refused> {
        let receipt = self.engine.submit(self.engine.mint_op(), op).await?;
        receipt.turn.ok_or(Refused::NoTurn)
    }

    /// Follows the turn to its terminal event.
    async fn followed(
        &self,
        page: PageId,
        session: SessionId,
        following: &mut Following,
        answer: &mut Answer,
        asker: &mut Asker,
    ) -> Result<TurnOutcome, Refused> {
        let mut attaches = 1;
        let mut unsaved = 0;
        loop {
            if let Some(outcome) = answer.outcome.take() {
                return Ok(outcome);
            }
            if unsaved > UNSAVED_POLLS_MAX {
                return Err(Refused::NotSaved);
            }
            if let Some(verdict) = asker.attend(answer).await {
                self.submit(session, verdict, answer).await?;
                continue;
            }
            let polled = tokio::select! {
                polled = self.engine.poll(following.request()) => polled,
                typed = asker.typed() => {
                    if let Some(verdict) = asker.heard(typed) {
                        self.submit(session, verdict, answer).await?;
                    }
                    continue;
                }
            };
            match polled {
                Ok(batch) => {
                    let not_saving = batch
                        .status
                        .as_ref()
                        .is_some_and(|status| matches!(status.phase, Phase::NotSaving { .. }));
                    unsaved = if not_saving { unsaved + 1 } else { 0 };
                    match following.take(&batch, answer).await {
                        Applied::All => {}
                        Applied::Gap if attaches < ATTACHES_MAX => {
                            attaches += 1;
                            self.attach_again(page, session, following, answer).await?;
                        }
                        Applied::Gap => return Err(Refused::Gap),
                    }
                }
                Err(report) => match report.code {
                    ErrorCode::UnknownEpoch if attaches < ATTACHES_MAX => {
                        attaches += 1;
                        self.attach_again(page, session, following, answer).await?;
                    }
                    ErrorCode::UnknownEpoch
                    | ErrorCode::TurnActive
                    | ErrorCode::StaleHead
                    | ErrorCode::AlreadyResolved { .. }
                    | ErrorCode::OpIdConflict
                    | ErrorCode::NotFound
                    | ErrorCode::Gone
                    | ErrorCode::Invalid { .. }
                    | ErrorCode::StorageFailed
                    | ErrorCode::ShuttingDown
                    | ErrorCode::Superseded
                    | ErrorCode::ProtocolMismatch
                    | ErrorCode::Other => return Err(report.into()),
                },
            }
        }
    }

    /// Submits an answer; the first one stands, whoever gave it.
    async fn submit(
        &self,
        session: SessionId,
        verdict: Verdict,
        answer: &mut Answer,
    ) -> Result<(), Refused> {
        let Verdict { item, word, why } = verdict;
        let op = Op::AnswerApproval {
            session,
            turn: answer.turn(),
            item,
            answer: word,
        };
        match self.engine.submit(self.engine.mint_op(), op).await {
            Ok(_) => {
                answer.answered_here(item);
                if let Some(why) = why {
                    answer.aside(why).await;
                }
                Ok(())
            }
            Err(report) => match report.code {
                ErrorCode::AlreadyResolved { resolution } => {
                    answer.resolved(item, resolution).await;
                    Ok(())
                }
                ErrorCode::NotFound
                | ErrorCode::TurnActive
                | ErrorCode::StaleHead
                | ErrorCode::OpIdConflict
                | ErrorCode::Gone
                | ErrorCode::Invalid { .. }
                | ErrorCode::StorageFailed
                | ErrorCode::ShuttingDown
                | ErrorCode::Superseded
                | ErrorCode::UnknownEpoch
                | ErrorCode::ProtocolMismatch
                | ErrorCode::Other => Err(report.into()),
            },
        }
    }

    async fn attach_again(
        &self,
        page: PageId,
        session: SessionId,
        following: &mut Following,
        answer: &mut Answer,
    ) -> Result<(), Refused> {
        let cursor = Some(following.cursor);
        let stream = StreamId::Session(session);
        let attached = self
            .engine
            .attach(page, stream, cursor, AttachReason::Gap)
            .await?;
        *following = Following::of(&attached, cursor, answer).await;
        Ok(())
    }

    fn ended(&self, outcome: &TurnOutcome) -> Exit {
        let words = words::outcome(outcome);
        match outcome {
            TurnOutcome::Completed { .. } => {
                if let Some(words) = words {
                    self.margin.murmur(words);
                }
                Exit::Done
            }
            TurnOutcome::Failed { failure } => {
                if let (Talk::Verbose, Some(detail)) = (self.talk, &failure.detail) {
                    self.margin.murmur(detail);
                }
                complain(&failure.message, Exit::Failed)
            }
            TurnOutcome::Cancelled { .. } | TurnOutcome::Interrupted { .. } => {
                if let Some(words) = words {
                    self.margin.say(words);
                }
                Exit::Stopped
            }
        }
    }
}

fn transcript_of(attached: &Attached) -> Option<&TranscriptPage> {
    match &attached.page {
        Some(Page::Session(transcript)) => Some(transcript),
        Some(Page::Library(_)) | None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_name_and_anything_else_is_refused_in_words() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("notes");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("a.txt"), "a").unwrap();
        let named = folder_at(&folder).unwrap();
        assert_eq!(
            folder_at(&folder.join("..").join("notes")).unwrap(),
            named,
            "another spelling"
        );
        let words = |path: &Path| folder_at(path).unwrap_err().to_string();
        assert!(words(&folder.join("a.txt")).ends_with("is not a folder; name one with --folder"));
        assert!(words(&folder.join("none")).contains("cannot be used: "));
    }
}
