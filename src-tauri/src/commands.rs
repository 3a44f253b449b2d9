//! The whole IPC surface: JSON text in, one call, JSON text out.
//!
//! Invariant: nothing is decided here, and nothing is pushed to a page. 64-bit numbers stay inside the text.
//! A refusal is an [`ErrorReport`] as JSON text; anything else that a page receives as an error came from the transport.

use std::{future::Future, io, pin::Pin, sync::Arc};

use engine::Engine;
use protocol::{
    About, AttachArgs, ChangeKeyArgs, DesktopChoices, DetachArgs, DraftArgs, ErrorCode,
    ErrorReport, ExamineArgs, HelloArgs, ImageArgs, KeysArgs, LedgerArgs, LoadEventsArgs,
    LoadOlderArgs, LoadVersionsArgs, ManageModelArgs, ModelsArgs, NoteBrokenArgs, OpenLinkArgs,
    OpenWindowArgs, PollArgs, ProbeArgs, PullsArgs, SaveDraftArgs, ShowingArgs, SubmitArgs,
    TakeDroppedArgs, WakeArgs, WishArgs,
};
use serde::{Serialize, de::DeserializeOwned};
use tauri::{
    Manager, State, Url, WebviewWindow,
    ipc::{InvokeBody, Request, Response},
};
use tokio::sync::oneshot;

use crate::{
    door::Door,
    image_file,
    windows::{
        self,
        choices::Choices,
        drops::{self, Drops},
        lookout::Lookout,
    },
};

/// The places in its sources where a page broke are no longer.
const PLACE_LETTERS_MAX: usize = 600;
/// Longer addresses than any browser opens are not links.
const LINK_BYTES_MAX: usize = 8 * 1024;

/// What a page receives: the answer or an [`ErrorReport`], both as JSON text.
type Answer = Result<String, String>;
type TheDoor<'a> = State<'a, Arc<Door>>;

#[tauri::command]
pub(crate) async fn hello(door: TheDoor<'_>, window: WebviewWindow, body: String) -> Answer {
    door.knock().await;
    let label = window.label().to_owned();
    answer(&door, &body, |engine, args: HelloArgs| async move {
        engine.hello(&label, args.page, args.protocol)
    })
    .await
}

#[tauri::command]
pub(crate) async fn attach(door: TheDoor<'_>, body: String) -> Answer {
    answer(&door, &body, |engine, args: AttachArgs| async move {
        engine
            .attach(args.page, args.stream, args.cursor, args.why)
            .await
    })
    .await
}

#[tauri::command]
pub(crate) async fn poll(door: TheDoor<'_>, body: String) -> Answer {
    answer(&door, &body, |engine, args: PollArgs| async move {
        engine.poll(args.request).await
    })
    .await
}

#[tauri::command]
pub(crate) async fn detach(door: TheDoor<'_>, body: String) -> Answer {
    answer(&door, &body, |engine, args: DetachArgs| async move {
        engine.detach(args.epoch);
        Ok(())
    })
    .await
}

#[tauri::command]
pub(crate) async fn load_older(door: TheDoor<'_>, body: String) -> Answer {
    answer(&door, &body, |engine, args: LoadOlderArgs| async move {
        engine
            .load_older(args.session, args.before, args.as_of)
            .await
    })
    .await
}

#[tauri::command]
pub(crate) async fn load_events(door: TheDoor<'_>, body: String) -> Answer {
    answer(&door, &body, |engine, args: LoadEventsArgs| async move {
        engine
            .load_events(args.session, args.turn, args.after, args.max_bytes)
            .await
    })
    .await
}

#[tauri::command]
pub(crate) async fn load_versions(door: TheDoor<'_>, body: String) -> Answer {
    answer(&door, &body, |engine, args: LoadVersionsArgs| async move {
        engine.versions(args.session).await
    })
    .await
}

#[tauri::command]
pub(crate) async fn ledger(door: TheDoor<'_>, body: String) -> Answer {
    answer(&door, &body, |engine, args: LedgerArgs| async move {
        engine.ledger(args).await
    })
    .await
}

#[tauri::command]
pub(crate) async fn submit(door: TheDoor<'_>, body: String) -> Answer {
    answer(&door, &body, |engine, args: SubmitArgs| async move {
        engine.submit(args.op_id, args.op).await
    })
    .await
}

#[tauri::command]
pub(crate) async fn draft(door: TheDoor<'_>, body: String) -> Answer {
    answer(&door, &body, |engine, args: DraftArgs| async move {
        engine.draft(args.session).await
    })
    .await
}

#[tauri::command]
pub(crate) async fn save_draft(door: TheDoor<'_>, body: String) -> Answer {
    answer(&door, &body, |engine, args: SaveDraftArgs| async move {
        engine.save_draft(args.session, args.draft).await
    })
    .await
}

/// Takes an image. Its bytes are the request's own body, so that they are never text; its name is a header.
#[tauri::command]
pub(crate) async fn take_image(door: TheDoor<'_>, request: Request<'_>) -> Answer {
    let name = image_name(&request);
    let bytes = match request.body() {
        InvokeBody::Raw(bytes) => Ok(bytes.clone()),
        InvokeBody::Json(_) => Err(ErrorReport::new(
            ErrorCode::ProtocolMismatch,
            "the page sent an image in a form that is not known here",
        )
        .with_remedy("reload the view")),
    };
    let taken = async { door.engine().await?.take_image(&name, bytes?).await };
    told(taken.await)
}

/// The name that a page gives to an image: as in an address, because headers are plain.
fn image_name(request: &Request<'_>) -> String {
    let header = request.headers().get("image-name");
    let name = header
        .and_then(|name| name.to_str().ok())
        .unwrap_or_default();
    let parsed = Url::parse(&format!("image:?name={name}"));
    let name = parsed.ok().and_then(|url| {
        let (_, name) = url.query_pairs().next()?;
        Some(name.into_owned())
    });
    name.unwrap_or_default()
}

/// An image's bytes, as they are.
#[tauri::command]
pub(crate) async fn image(door: TheDoor<'_>, body: String) -> Result<Response, String> {
    let read = async {
        let args: ImageArgs = taken(&body)?;
        door.engine().await?.image(args.image).await
    };
    match read.await {
        Ok(bytes) => Ok(Response::new(bytes.to_vec())),
        Err(report) => Err(told::<()>(Err(report)).err().unwrap_or_default()),
    }
}

#[tauri::command]
pub(crate) async fn models(door: TheDoor<'_>, body: String) -> Answer {
    answer(&door, &body, |engine, args: ModelsArgs| async move {
        Ok(engine.models(args.provider).await)
    })
    .await
}

#[tauri::command]
pub(crate) async fn probe(door: TheDoor<'_>, body: String) -> Answer {
    answer(&door, &body, |engine, args: ProbeArgs| async move {
        Ok(engine.probe_by(&args).await)
    })
    .await
}

#[tauri::command]
pub(crate) async fn keys(door: TheDoor<'_>, body: String) -> Answer {
    answer(&door, &body, |engine, args: KeysArgs| async move {
        engine.keys(args.provider).await
    })
    .await
}

#[tauri::command]
pub(crate) async fn change_key(door: TheDoor<'_>, body: String) -> Answer {
    answer(&door, &body, |engine, args: ChangeKeyArgs| async move {
        engine.change_key(args.provider, args.change).await
    })
    .await
}

#[tauri::command]
pub(crate) async fn examine(door: TheDoor<'_>, body: String) -> Answer {
    answer(&door, &body, |engine, args: ExamineArgs| async move {
        engine.examine(args).await
    })
    .await
}

#[tauri::command]
pub(crate) async fn wake(door: TheDoor<'_>, body: String) -> Answer {
    answer(&door, &body, |engine, args: WakeArgs| async move {
        engine.wake(args).await
    })
    .await
}

#[tauri::command]
pub(crate) async fn discover(door: TheDoor<'_>, body: String) -> Answer {
    answer(&door, &body, |engine, (): ()| async move {
        Ok(engine.discover().await)
    })
    .await
}

#[tauri::command]
pub(crate) async fn pulls(door: TheDoor<'_>, body: String) -> Answer {
    answer(&door, &body, |engine, args: PullsArgs| async move {
        engine.pulls(args.seen, args.wait_ms).await
    })
    .await
}

#[tauri::command]
pub(crate) async fn manage_model(door: TheDoor<'_>, body: String) -> Answer {
    answer(&door, &body, |engine, args: ManageModelArgs| async move {
        engine.manage_model(args).await
    })
    .await
}

#[tauri::command]
pub(crate) async fn open_link(body: String) -> Answer {
    told(taken::<OpenLinkArgs>(&body).and_then(|args| {
        let url = link(&args.url)?;
        open::that_detached(url.as_str()).map_err(|error| {
            ErrorReport::new(
                ErrorCode::Other,
                format!("no browser took the link: {error}"),
            )
            .with_remedy("copy its address instead")
        })
    }))
}

/// A page that breaks is loaded anew, and whoever sees that only sees it flicker: the log says that it was so, and where.
#[tauri::command]
pub(crate) async fn note_broken(window: WebviewWindow, body: String) -> Answer {
    told(taken::<NoteBrokenArgs>(&body).map(|args| {
        let place = place(&args.at);
        tracing::error!(window = window.label(), place, "a page broke");
    }))
}

/// As one word of a line of the log.
fn place(at: &str) -> String {
    let letters = at.chars().filter(|letter| !letter.is_control());
    letters.take(PLACE_LETTERS_MAX).collect()
}

#[tauri::command]
pub(crate) async fn health(door: TheDoor<'_>, body: String) -> Answer {
    answer(&door, &body, |engine, (): ()| async move {
        engine.health().await
    })
    .await
}

/// What is needed to begin with models of this computer; nothing where this build cannot run them.
#[tauri::command]
pub(crate) async fn local_models(door: TheDoor<'_>) -> Answer {
    let models = async { Ok(door.engine().await?.local_models()) };
    told(models.await)
}

/// The system's dialog; the answer is a path, or nothing when it was closed.
#[tauri::command]
pub(crate) async fn pick_folder(window: WebviewWindow) -> Answer {
    told(picked(&window, Wanted::Folder).await)
}

/// The same for the file of a model.
#[tauri::command]
pub(crate) async fn pick_model(window: WebviewWindow) -> Answer {
    told(picked(&window, Wanted::Model).await)
}

/// The files that were just dropped on the page; none where the browser hands them over itself.
#[tauri::command]
pub(crate) async fn dropped(drops: State<'_, Drops>, window: WebviewWindow) -> Answer {
    let taken = drops.take(window.label());
    let described = move || taken.iter().map(drops::described).collect::<Vec<_>>();
    let told_of = tokio::task::spawn_blocking(described).await;
    told(told_of.map_err(|error| {
        ErrorReport::new(
            ErrorCode::Other,
            format!("the files cannot be looked at ({error})"),
        )
        .with_remedy("drop them again")
    }))
}

/// Takes one of them as an image.
#[tauri::command]
pub(crate) async fn take_dropped(
    door: TheDoor<'_>,
    drops: State<'_, Drops>,
    window: WebviewWindow,
    body: String,
) -> Answer {
    let taken = async {
        let TakeDroppedArgs { number } = taken(&body)?;
        let lost = |words: String| {
            ErrorReport::new(ErrorCode::Other, words).with_remedy("drop it again, or choose it")
        };
        let place = drops
            .place(window.label(), number)
            .ok_or_else(|| lost("that file was dropped too long ago".to_owned()))?;
        let name = place.file_name().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        let read = tokio::task::spawn_blocking(move || image_file::read(&place)).await;
        let bytes = read
            .map_err(io::Error::other)
            .flatten()
            .map_err(|error| lost(format!("{name} cannot be read ({error})")))?;
        door.engine().await?.take_image(&name, bytes).await
    };
    told(taken.await)
}

#[derive(Clone, Copy)]
enum Wanted {
    Folder,
    Model,
}

async fn picked(window: &WebviewWindow, wanted: Wanted) -> Result<Option<String>, ErrorReport> {
    let no_dialog = |words: String| {
        ErrorReport::new(
            ErrorCode::Other,
            format!("no dialog can be opened: {words}"),
        )
        .with_remedy("type the path instead")
    };
    let (tell, opened) = oneshot::channel();
    let parent = window.clone();
    // Some systems allow a dialog from their main thread alone; it is waited for here.
    window
        .run_on_main_thread(move || {
            let dialog = rfd::AsyncFileDialog::new().set_parent(&parent);
            let picking: Pin<Box<dyn Future<Output = _> + Send>> = match wanted {
                Wanted::Folder => Box::pin(dialog.set_title("Folder for tools").pick_folder()),
                Wanted::Model => {
                    let dialog = dialog.set_title("Add a model file");
                    let dialog = dialog.add_filter("Models (GGUF)", &["gguf", "GGUF"]);
                    Box::pin(dialog.pick_file())
                }
            };
            // Whoever asked may be gone: then nobody waits.
            let _ = tell.send(picking);
        })
        .map_err(|error| no_dialog(error.to_string()))?;
    let picked = opened.await.map_err(|error| no_dialog(error.to_string()))?;
    let Some(handle) = picked.await else {
        return Ok(None);
    };
    let path = handle.path();
    path.to_str()
        .map(|path| Some(path.to_owned()))
        .ok_or_else(|| {
            let field = match wanted {
                Wanted::Folder => "folder",
                Wanted::Model => "path",
            }
            .to_owned();
            ErrorReport::new(
                ErrorCode::Invalid { field },
                format!("the path {} cannot be written as text", path.display()),
            )
        })
}

#[tauri::command]
pub(crate) async fn about(door: TheDoor<'_>) -> Answer {
    told(Ok(About {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        data_dir: door.data_dir().display().to_string(),
        preferred: door.preferred(),
    }))
}

/// What this window is to show; parks while that is no news.
#[tauri::command]
pub(crate) async fn wish(
    lookout: State<'_, Arc<Lookout>>,
    window: WebviewWindow,
    body: String,
) -> Answer {
    let args = match taken::<WishArgs>(&body) {
        Ok(args) => args,
        Err(report) => return told::<()>(Err(report)),
    };
    let wished = lookout.wished(window.label(), args.seen).await;
    told(wished.ok_or_else(|| ErrorReport::new(ErrorCode::Gone, "this window is closing")))
}

#[tauri::command]
pub(crate) async fn showing(
    lookout: State<'_, Arc<Lookout>>,
    window: WebviewWindow,
    body: String,
) -> Answer {
    told(taken::<ShowingArgs>(&body).map(|args| lookout.showing(window.label(), &args)))
}

#[tauri::command]
pub(crate) async fn open_window(window: WebviewWindow, body: String) -> Answer {
    told(
        taken::<OpenWindowArgs>(&body)
            .map(|args| windows::open_another(window.app_handle(), args.show)),
    )
}

#[tauri::command]
pub(crate) async fn desktop_choices(choices: State<'_, Arc<Choices>>) -> Answer {
    told(Ok(choices.now()))
}

#[tauri::command]
pub(crate) async fn choose_desktop(
    choices: State<'_, Arc<Choices>>,
    window: WebviewWindow,
    body: String,
) -> Answer {
    let chosen = taken::<DesktopChoices>(&body).and_then(|chosen| {
        choices.choose(chosen).map_err(|error| {
            ErrorReport::new(
                ErrorCode::StorageFailed,
                format!("the choice was not kept: {error}"),
            )
        })
    });
    windows::show_goings(window.app_handle());
    told(chosen)
}

/// One command: its arguments read, the engine asked, its answer written.
async fn answer<Args, Out, Call, Called>(door: &Door, body: &str, call: Call) -> Answer
where
    Args: DeserializeOwned,
    Out: Serialize,
    Call: FnOnce(Engine, Args) -> Called,
    Called: Future<Output = Result<Out, ErrorReport>>,
{
    let asked = async {
        let args = taken(body)?;
        call(door.engine().await?, args).await
    };
    told(asked.await)
}

fn taken<Args: DeserializeOwned>(body: &str) -> Result<Args, ErrorReport> {
    // The words of the error may quote the arguments; its place says enough.
    serde_json::from_str(body).map_err(|error| {
        ErrorReport::new(
            ErrorCode::ProtocolMismatch,
            format!(
                "the page asked in a form that is not known here (column {})",
                error.column()
            ),
        )
        .with_remedy("reload the view")
    })
}

fn told<Out: Serialize>(outcome: Result<Out, ErrorReport>) -> Answer {
    let outcome = outcome.and_then(|out| {
        serde_json::to_string(&out).map_err(|error| {
            ErrorReport::new(
                ErrorCode::Other,
                format!("an answer could not be written: {error}"),
            )
        })
    });
    outcome
        .map_err(|report| serde_json::to_string(&report).unwrap_or_else(|error| error.to_string()))
}

/// What may be opened in the system's browser: model text is not to start anything else.
fn link(text: &str) -> Result<Url, ErrorReport> {
    let refused = |words: &str| {
        let field = "url".to_owned();
        Err(ErrorReport::new(ErrorCode::Invalid { field }, words))
    };
    if text.len() > LINK_BYTES_MAX {
        return refused("this link is too long to be opened");
    }
    match Url::parse(text) {
        Ok(url) => match url.scheme() {
            "http" | "https" if url.has_host() => Ok(url),
            "mailto" => Ok(url),
            _ => refused("only web and mail links are opened"),
        },
        Err(_) => refused("this link has no address"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_web_and_mail_links_leave_the_app() {
        for text in [
            "https://example.org/a?b#c",
            "http://127.0.0.1:9/",
            "mailto:a@b.example",
        ] {
            assert!(link(text).is_ok(), "{text}");
        }
        for text in [
            "javascript:alert(1)",
            "file:///etc/passwd",
            "data:text/html,x",
            "tauri://localhost/",
            "ssh://host",
            "https://",
            "/etc/passwd",
            "--help",
            "",
        ] {
            assert!(link(text).is_err(), "{text}");
        }
        assert!(link(&format!("https://h/{}", "a".repeat(LINK_BYTES_MAX))).is_err());
    }

    #[test]
    fn a_refusal_reaches_the_page_as_a_report() {
        let answer = told(taken::<OpenLinkArgs>("{\"secret\":1}").map(|_| ()));
        let text = answer.expect_err("refused");
        let report: ErrorReport = serde_json::from_str(&text).expect("a report");
        assert_eq!(report.code, ErrorCode::ProtocolMismatch);
        assert!(!report.message.contains("secret"), "{}", report.message);
    }

    #[test]
    fn the_place_where_a_page_broke_is_one_line_of_a_bounded_length() {
        assert_eq!(
            place("ui/src/desk.rs:7:1\n2026 ERROR"),
            "ui/src/desk.rs:7:12026 ERROR"
        );
        assert_eq!(place(&"é".repeat(1_000)).chars().count(), PLACE_LETTERS_MAX);
    }

    #[test]
    fn an_answer_without_content_is_null() {
        assert_eq!(told(Ok(())), Ok("null".to_owned()));
    }
}
