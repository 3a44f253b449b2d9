//! The only file that knows JavaScript: commands, timers, clocks, the clipboard, and the page itself.
//!
//! Invariant: nothing is ever pushed to this page. A command is called, its answer is awaited, and that is all the
//! traffic there is. Kept by: this file binds `invoke` and nothing else of Tauri.
//! Arguments and answers travel as JSON text, so that a 64-bit number never becomes a JavaScript double.
//! Not here: what an answer means (`transcript::Link`), and when to ask (`follow`).

use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, Waker},
};

use protocol::{
    About, AttachArgs, Attached, Batch, ChangeKeyArgs, DesktopChoices, DetachArgs, Draft,
    DraftArgs, DroppedFile, ErrorReport, EventPage, Examination, ExamineArgs, HealthReport,
    HelloArgs, Image, ImageArgs, KeysArgs, KeysReport, Ledger, LedgerArgs, LoadEventsArgs,
    LoadOlderArgs, LoadVersionsArgs, LocalModels, ManageModelArgs, ModelsArgs, NoteBrokenArgs,
    OpenLinkArgs, OpenWindowArgs, PollArgs, ProbeArgs, ProbeReport, Pulls, PullsArgs, Receipt,
    SaveDraftArgs, SessionId, ShowingArgs, SubmitArgs, TakeDroppedArgs, Timestamp, TranscriptPage,
    TurnVersions, WakeArgs, WakeReport, Welcome, WindowWish, WishArgs,
};
use serde::{Serialize, de::DeserializeOwned};
use wasm_bindgen::{JsCast, JsValue, closure::Closure, prelude::wasm_bindgen};

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(catch, js_namespace = ["window", "__TAURI__", "core"], js_name = invoke)]
    fn invoke_raw(command: &str, arguments: &JsValue) -> Result<js_sys::Promise, JsValue>;

    #[wasm_bindgen(catch, js_namespace = window, js_name = matchMedia)]
    fn match_media(query: &str) -> Result<JsValue, JsValue>;
}

// The same with bytes for a body, and options.
#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(catch, js_namespace = ["window", "__TAURI__", "core"], js_name = invoke)]
    fn invoke_with(
        command: &str,
        body: &JsValue,
        options: &JsValue,
    ) -> Result<js_sys::Promise, JsValue>;
}

// Files and their bytes, as far as they are touched here.
#[wasm_bindgen]
extern "C" {
    #[derive(Clone)]
    pub(crate) type File;
    #[wasm_bindgen(method, getter)]
    fn name(this: &File) -> String;
    #[wasm_bindgen(method, getter, js_name = type)]
    fn kind(this: &File) -> String;
    #[wasm_bindgen(method, getter)]
    fn size(this: &File) -> f64;
    #[wasm_bindgen(method, catch, js_name = arrayBuffer)]
    fn array_buffer(this: &File) -> Result<js_sys::Promise, JsValue>;

    type Blob;
    #[wasm_bindgen(constructor)]
    fn new(parts: &js_sys::Array) -> Blob;

    #[wasm_bindgen(catch, js_namespace = URL, js_name = createObjectURL)]
    fn create_object_url(blob: &Blob) -> Result<String, JsValue>;
    #[wasm_bindgen(js_namespace = URL, js_name = revokeObjectURL)]
    fn revoke_object_url(url: &str);
}

// What web-sys would have behind two further features, which the whole page would be compiled anew for.
#[wasm_bindgen]
extern "C" {
    type Placed;
    #[wasm_bindgen(method, js_name = getBoundingClientRect)]
    fn rectangle(this: &Placed) -> Rectangle;
    #[wasm_bindgen(method, getter)]
    fn children(this: &Placed) -> Children;

    type Rectangle;
    #[wasm_bindgen(method, getter)]
    fn top(this: &Rectangle) -> f64;
    #[wasm_bindgen(method, getter)]
    fn bottom(this: &Rectangle) -> f64;

    type Children;
    #[wasm_bindgen(method, getter)]
    fn length(this: &Children) -> u32;
    #[wasm_bindgen(method)]
    fn item(this: &Children, at: u32) -> Option<web_sys::Element>;
}

/// Why a command has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallError {
    /// The shell or the engine said no, in words.
    Refused(ErrorReport),
    /// No answer that could be read, or none in time: the transport's fault, nothing is known about the engine.
    Lost(String),
}

impl std::fmt::Display for CallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(report) => report.fmt(f),
            Self::Lost(words) => f.write_str(words),
        }
    }
}

pub(crate) async fn hello(args: &HelloArgs) -> Result<Welcome, CallError> {
    call("hello", args).await
}
pub(crate) async fn attach(args: &AttachArgs) -> Result<Attached, CallError> {
    call("attach", args).await
}
pub(crate) async fn poll(args: &PollArgs) -> Result<Batch, CallError> {
    call("poll", args).await
}
pub(crate) async fn detach(args: &DetachArgs) -> Result<(), CallError> {
    call("detach", args).await
}
pub(crate) async fn load_older(args: &LoadOlderArgs) -> Result<TranscriptPage, CallError> {
    call("load_older", args).await
}
pub(crate) async fn load_events(args: &LoadEventsArgs) -> Result<EventPage, CallError> {
    call("load_events", args).await
}
pub(crate) async fn load_versions(args: &LoadVersionsArgs) -> Result<Vec<TurnVersions>, CallError> {
    call("load_versions", args).await
}
pub(crate) async fn ledger(args: &LedgerArgs) -> Result<Ledger, CallError> {
    call("ledger", args).await
}
pub(crate) async fn submit(args: &SubmitArgs) -> Result<Receipt, CallError> {
    call("submit", args).await
}
pub(crate) async fn draft(args: &DraftArgs) -> Result<Draft, CallError> {
    call("draft", args).await
}
pub(crate) async fn save_draft(args: &SaveDraftArgs) -> Result<(), CallError> {
    call("save_draft", args).await
}
pub(crate) async fn models(args: &ModelsArgs) -> Result<ProbeReport, CallError> {
    call("models", args).await
}
/// Parks until the downloads are others than the ones seen, or for a while.
pub(crate) async fn pulls(args: &PullsArgs) -> Result<Pulls, CallError> {
    call("pulls", args).await
}
pub(crate) async fn manage_model(args: &ManageModelArgs) -> Result<(), CallError> {
    call("manage_model", args).await
}
pub(crate) async fn probe(args: &ProbeArgs) -> Result<ProbeReport, CallError> {
    call("probe", args).await
}
pub(crate) async fn keys(args: &KeysArgs) -> Result<KeysReport, CallError> {
    call("keys", args).await
}
pub(crate) async fn change_key(args: &ChangeKeyArgs) -> Result<KeysReport, CallError> {
    call("change_key", args).await
}
pub(crate) async fn examine(args: &ExamineArgs) -> Result<Examination, CallError> {
    call("examine", args).await
}
pub(crate) async fn wake(args: &WakeArgs) -> Result<WakeReport, CallError> {
    call("wake", args).await
}
pub(crate) async fn local_models() -> Result<Option<LocalModels>, CallError> {
    call("local_models", &()).await
}
/// The files that were just dropped here; none where the browser hands them over itself.
pub(crate) async fn dropped() -> Result<Vec<DroppedFile>, CallError> {
    call("dropped", &()).await
}
/// The system's dialog; `None` when it was closed.
pub(crate) async fn pick_model() -> Result<Option<String>, CallError> {
    call("pick_model", &()).await
}
pub(crate) async fn discover() -> Result<Vec<ProbeReport>, CallError> {
    call("discover", &()).await
}
pub(crate) async fn open_link(args: &OpenLinkArgs) -> Result<(), CallError> {
    call("open_link", args).await
}
/// The system's dialog; `None` when it was closed.
pub(crate) async fn pick_folder() -> Result<Option<String>, CallError> {
    call("pick_folder", &()).await
}
pub(crate) async fn health() -> Result<HealthReport, CallError> {
    call("health", &()).await
}
pub(crate) async fn about() -> Result<About, CallError> {
    call("about", &()).await
}
/// Parks until the shell wishes this window to show something else, or for a while.
pub(crate) async fn wish(args: &WishArgs) -> Result<WindowWish, CallError> {
    call("wish", args).await
}
pub(crate) async fn showing(args: &ShowingArgs) -> Result<(), CallError> {
    call("showing", args).await
}
pub(crate) async fn open_window(args: &OpenWindowArgs) -> Result<(), CallError> {
    call("open_window", args).await
}
pub(crate) async fn desktop_choices() -> Result<DesktopChoices, CallError> {
    call("desktop_choices", &()).await
}
pub(crate) async fn choose_desktop(choices: &DesktopChoices) -> Result<(), CallError> {
    call("choose_desktop", choices).await
}

/// Has the engine take a file as an image. The bytes go from the browser to the engine as they are, and never into this
/// module's memory, which would keep their room for good.
pub(crate) async fn take_image(file: &ImageFile) -> Result<Image, CallError> {
    let lost = |words: &str| CallError::Lost(words.to_owned());
    let file = match file {
        ImageFile::Given(file) => file,
        ImageFile::Dropped(DroppedFile { number, .. }) => {
            return call("take_dropped", &TakeDroppedArgs { number: *number }).await;
        }
    };
    let read = file
        .array_buffer()
        .map_err(|_| lost("the file cannot be read"))?;
    let bytes = wasm_bindgen_futures::JsFuture::from(read)
        .await
        .map_err(|_| lost("the file cannot be read"))?;
    let bytes = js_sys::Uint8Array::new(&bytes);
    let headers = js_sys::Object::new();
    let name = js_sys::encode_uri_component(&file.name());
    let options = js_sys::Object::new();
    js_sys::Reflect::set(&headers, &"image-name".into(), &name.into())
        .and_then(|_| js_sys::Reflect::set(&options, &"headers".into(), &headers))
        .map_err(|_| lost("the page could not make a request"))?;
    answer(invoke_with("take_image", &bytes, &options)).await
}

/// Where the browser finds the bytes of an image.
pub(crate) async fn image(args: &ImageArgs) -> Result<ImageUrl, CallError> {
    let bytes = settled(invoke_raw("image", &arguments(args)?.into())).await?;
    let blob = Blob::new(&js_sys::Array::of1(&bytes));
    create_object_url(&blob)
        .map(ImageUrl)
        .map_err(|_| CallError::Lost("the page could not keep the image".to_owned()))
}

async fn call<A: Serialize, R: DeserializeOwned>(command: &str, args: &A) -> Result<R, CallError> {
    answer(invoke_raw(command, &arguments(args)?.into())).await
}

fn arguments<A: Serialize>(args: &A) -> Result<js_sys::Object, CallError> {
    let body = serde_json::to_string(args).map_err(|error| CallError::Lost(error.to_string()))?;
    let arguments = js_sys::Object::new();
    js_sys::Reflect::set(&arguments, &"body".into(), &body.into())
        .map_err(|_| CallError::Lost("the page could not make a request".to_owned()))?;
    Ok(arguments)
}

async fn answer<R: DeserializeOwned>(
    called: Result<js_sys::Promise, JsValue>,
) -> Result<R, CallError> {
    // A command without an answer resolves to null, which is what `()` is in JSON.
    let text = settled(called).await?.as_string();
    let text = text.unwrap_or_else(|| "null".to_owned());
    serde_json::from_str(&text)
        .map_err(|error| CallError::Lost(format!("an unreadable answer ({error})")))
}

async fn settled(called: Result<js_sys::Promise, JsValue>) -> Result<JsValue, CallError> {
    let answer = match called {
        Ok(promise) => wasm_bindgen_futures::JsFuture::from(promise).await,
        Err(refusal) => Err(refusal),
    };
    answer.map_err(|refusal| refused(&refusal))
}

/// A file that may be an image.
#[derive(Clone)]
pub(crate) enum ImageFile {
    /// In the browser's hands.
    Given(File),
    /// On the disk, where the window saw it lie.
    Dropped(DroppedFile),
}

impl ImageFile {
    /// Its name; what was pasted has a made-up one.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Given(file) => file.name(),
            Self::Dropped(file) => file.name.clone(),
        }
    }
    /// As the system knows it, by its name; empty if it does not.
    pub(crate) fn kind(&self) -> String {
        match self {
            Self::Given(file) => file.kind(),
            Self::Dropped(_) => String::new(),
        }
    }
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Given(file) => file.size() as u64,
            Self::Dropped(file) => file.bytes,
        }
    }
    /// Whether it has a model's name.
    pub(crate) fn is_model(&self) -> bool {
        self.name().to_ascii_lowercase().ends_with(".gguf")
    }
}

/// An address of bytes that the browser holds, until dropped.
#[derive(Debug)]
pub(crate) struct ImageUrl(String);

impl ImageUrl {
    pub(crate) fn address(&self) -> String {
        self.0.clone()
    }
}

impl Drop for ImageUrl {
    fn drop(&mut self) {
        revoke_object_url(&self.0);
    }
}

thread_local! {
    static KEPT_IMAGES: RefCell<Vec<Image>> = const { RefCell::new(Vec::new()) };
}

/// Notes what stands in the composer besides text, for the page's last word when it breaks.
pub(crate) fn note_images(images: &[Image]) {
    KEPT_IMAGES.with(|kept| {
        if let Ok(mut kept) = kept.try_borrow_mut() {
            images.clone_into(&mut kept);
        }
    });
}

fn property(of: &JsValue, name: &str) -> Option<JsValue> {
    let value = js_sys::Reflect::get(of, &name.into()).ok()?;
    (!value.is_undefined() && !value.is_null()).then_some(value)
}

fn files_in(list: &JsValue) -> Vec<ImageFile> {
    let files = js_sys::Array::from(list).into_iter();
    let files = files.map(|file| ImageFile::Given(file.unchecked_into()));
    files.collect()
}

/// The files that were just chosen in a field for files, which is empty again.
pub(crate) fn chosen_images(event: &web_sys::Event) -> Vec<ImageFile> {
    let Some(field) = event.target() else {
        return Vec::new();
    };
    let files = property(&field, "files").map_or_else(Vec::new, |files| files_in(&files));
    // So that the same file can be chosen again; a field that cannot be emptied is only less handy.
    let _ = js_sys::Reflect::set(&field, &"value".into(), &"".into());
    files
}

/// The pictures on the clipboard, unless there is text beside them.
pub(crate) fn pasted_images(event: &web_sys::Event) -> Vec<ImageFile> {
    let Some(clipboard) = property(event, "clipboardData") else {
        return Vec::new();
    };
    let types = property(&clipboard, "types").map(|types| js_sys::Array::from(&types));
    let has_text = types.is_some_and(|types| {
        let mut types = types.into_iter();
        types.any(|kind| kind.as_string().as_deref() == Some("text/plain"))
    });
    let files = property(&clipboard, "files").map_or_else(Vec::new, |files| files_in(&files));
    let images: Vec<ImageFile> = files
        .into_iter()
        .filter(|file| file.kind().starts_with("image/"))
        .collect();
    if has_text { Vec::new() } else { images }
}

/// Whether files may be dragged: WebKitGTK calls them addresses, as it does links.
pub(crate) fn drags_files(event: &web_sys::Event) -> bool {
    let types = property(event, "dataTransfer").and_then(|data| property(&data, "types"));
    types.is_some_and(|types| {
        let mut types = js_sys::Array::from(&types).into_iter();
        types.any(|kind| {
            let kind = kind.as_string();
            matches!(kind.as_deref(), Some("Files" | "text/uri-list"))
        })
    })
}

/// The link that was dropped, if it was one: of a file no page is told the address.
pub(crate) fn dropped_link(event: &web_sys::Event) -> Option<String> {
    let data: web_sys::DataTransfer = property(event, "dataTransfer")?.dyn_into().ok()?;
    let list = data.get_data("text/uri-list").ok()?;
    // Lines that begin so are remarks (RFC 2483).
    let link = list
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with('#'))?;
    (!link.starts_with("file:")).then(|| link.to_owned())
}

/// Types a text where the caret is, as a keyboard would.
pub(crate) fn type_at_caret(text: &str) {
    let document = window().and_then(|window| window.document());
    let document = document.and_then(|document| document.dyn_into::<web_sys::HtmlDocument>().ok());
    if let Some(document) = document {
        // Where nothing takes text, there is nothing to be done.
        let _ = document.exec_command_with_show_ui_and_value("insertText", false, text);
    }
}

/// Takes a beginning out of the composer of this session, if that is shown and its text begins so.
pub(crate) fn take_from_composer(session: Option<SessionId>, beginning: &str) {
    let Some((field, _)) = composer().filter(|(_, whose)| *whose == session) else {
        return;
    };
    let text = field.value();
    if let Some(rest) = text
        .strip_prefix(beginning)
        .filter(|_| !beginning.is_empty())
    {
        field.set_value(rest);
        // As if somebody had typed it. An event that cannot be made leaves what is kept of the text as it is.
        if let Ok(typed) = web_sys::Event::new("input") {
            let _ = field.dispatch_event(&typed);
        }
    }
}

/// The composer that is shown, and whose it is.
fn composer() -> Option<(web_sys::HtmlTextAreaElement, Option<SessionId>)> {
    let document = window()?.document()?;
    let field = document.query_selector("[data-testid=composer]").ok()??;
    // The session not begun yet has no id.
    let whose = field.get_attribute("data-session");
    let whose = whose.and_then(|session| session.parse().ok());
    Some((field.dyn_into().ok()?, whose))
}

/// The files that were dropped.
pub(crate) fn dropped_files(event: &web_sys::Event) -> Vec<ImageFile> {
    let files = property(event, "dataTransfer").and_then(|data| property(&data, "files"));
    files.map_or_else(Vec::new, |files| files_in(&files))
}

fn refused(refusal: &JsValue) -> CallError {
    let words = refusal.as_string().or_else(|| {
        let error = refusal.dyn_ref::<js_sys::Error>()?;
        error.message().as_string()
    });
    match words {
        Some(text) => match serde_json::from_str(&text) {
            Ok(report) => CallError::Refused(report),
            Err(_) => CallError::Lost(text),
        },
        None => CallError::Lost("no answer".to_owned()),
    }
}

/// Milliseconds since this page was loaded; never goes back.
pub(crate) fn now_ms() -> u64 {
    let now = window()
        .and_then(|w| w.performance())
        .map_or(0.0, |p| p.now());
    now as u64
}

/// The wall clock, for the reader.
pub(crate) fn wall() -> Timestamp {
    Timestamp::from_millis(js_sys::Date::now() as i64)
}

/// 128 bits from the platform's source of ids.
pub(crate) fn random_bits() -> u128 {
    let mut bytes = [0_u8; 16];
    let filled = window()
        .and_then(|w| w.crypto().ok())
        .and_then(|c| c.get_random_values_with_u8_array(&mut bytes).ok());
    if filled.is_none() {
        // A page without `crypto` still has to name things; two fractions of 52 bits are enough to tell ops apart.
        let halves = [
            js_sys::Math::random().to_bits(),
            js_sys::Math::random().to_bits(),
        ];
        return (u128::from(halves[0]) << 64) | u128::from(halves[1]);
    }
    u128::from_le_bytes(bytes)
}

/// Ready after `ms`. Dropping it disarms the timer.
pub(crate) fn sleep(ms: u64) -> Alarm {
    Alarm::set(|ring| {
        let ms = i32::try_from(ms).unwrap_or(i32::MAX);
        let id = window()?
            .set_timeout_with_callback_and_timeout_and_arguments_0(ring, ms)
            .ok()?;
        Some(Box::new(move || {
            if let Some(window) = window() {
                window.clear_timeout_with_handle(id);
            }
        }))
    })
}

/// Ready when the page is about to be drawn. Never, while it is hidden: race it with [`sleep`].
pub(crate) fn next_frame() -> Alarm {
    Alarm::set(|ring| {
        let id = window()?.request_animation_frame(ring).ok()?;
        Some(Box::new(move || {
            if let Some(window) = window() {
                // An alarm that already rang cannot be cancelled, nor needs to be.
                let _ = window.cancel_animation_frame(id);
            }
        }))
    })
}

/// [`next_frame`], but not later than after `ms`, so that a hidden page goes on too.
pub(crate) async fn next_frame_or(ms: u64) {
    first(next_frame(), sleep(ms)).await;
}

/// One callback of the platform as a future, taken back when dropped.
pub(crate) struct Alarm {
    state: Rc<RefCell<AlarmState>>,
    disarm: Option<Box<dyn FnOnce()>>,
    _ring: Closure<dyn FnMut()>,
}

#[derive(Default)]
struct AlarmState {
    rung: bool,
    waker: Option<Waker>,
}

impl Alarm {
    fn set(arm: impl FnOnce(&js_sys::Function) -> Option<Box<dyn FnOnce()>>) -> Self {
        let state = Rc::new(RefCell::new(AlarmState::default()));
        let ringing = Rc::clone(&state);
        let ring = Closure::<dyn FnMut()>::new(move || {
            let waker = {
                let mut state = ringing.borrow_mut();
                state.rung = true;
                state.waker.take()
            };
            if let Some(waker) = waker {
                waker.wake();
            }
        });
        let disarm = arm(ring.as_ref().unchecked_ref());
        // A platform without timers would wait for ever; ready at once is the lesser evil.
        state.borrow_mut().rung |= disarm.is_none();
        Self {
            state,
            disarm,
            _ring: ring,
        }
    }
}

impl Future for Alarm {
    type Output = ();
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.borrow_mut();
        if state.rung {
            return Poll::Ready(());
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let Some(disarm) = self.disarm.take() {
            disarm();
        }
    }
}

/// Which of two futures was ready first.
pub(crate) enum First<A, B> {
    /// The first one, which also wins a tie.
    A(A),
    /// The second one.
    B(B),
}

/// Waits for either; the other one is dropped.
pub(crate) async fn first<A, B>(
    a: impl Future<Output = A>,
    b: impl Future<Output = B>,
) -> First<A, B> {
    let (mut a, mut b) = (pin!(a), pin!(b));
    poll_fn(move |cx| {
        if let Poll::Ready(a) = a.as_mut().poll(cx) {
            return Poll::Ready(First::A(a));
        }
        b.as_mut().poll(cx).map(First::B)
    })
    .await
}

/// The command's answer, or `Lost` when `limit_ms` is over.
pub(crate) async fn within<T>(
    limit_ms: u64,
    answer: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    match first(answer, sleep(limit_ms)).await {
        First::A(answer) => answer,
        First::B(()) => Err(CallError::Lost("no answer in time".to_owned())),
    }
}

/// Runs a task of this page. Tasks own what ends them; see `follow` and `composer`.
pub(crate) fn spawn(task: impl Future<Output = ()> + 'static) {
    wasm_bindgen_futures::spawn_local(task);
}

/// Something that happened on the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageEvent {
    /// It came into view.
    Shown,
    /// It went out of view.
    Hidden,
    /// It is about to go away: the last chance to save.
    Leaving,
}

/// Calls `told` at every [`PageEvent`], for as long as the page lives.
pub(crate) fn on_page_event(told: impl Fn(PageEvent) + 'static) {
    let Some(window) = window() else { return };
    let told = Rc::new(told);
    let visibility = Rc::clone(&told);
    let changed = Closure::<dyn FnMut()>::new(move || {
        visibility(if is_hidden() {
            PageEvent::Hidden
        } else {
            PageEvent::Shown
        });
    });
    let leaving = Closure::<dyn FnMut()>::new(move || told(PageEvent::Leaving));
    if let Some(document) = window.document() {
        listen(&document, "visibilitychange", changed);
    }
    listen(&window, "pagehide", leaving);
}

/// Ready when the page comes into view or goes out of it.
pub(crate) fn visibility_change() -> Alarm {
    const EVENT: &str = "visibilitychange";
    Alarm::set(|ring| {
        let document = window()?.document()?;
        document
            .add_event_listener_with_callback(EVENT, ring)
            .ok()?;
        let ring = ring.clone();
        Some(Box::new(move || {
            // A listener that cannot be taken back rings an alarm that nobody hears.
            let _ = document.remove_event_listener_with_callback(EVENT, &ring);
        }))
    })
}

/// Tells whether somebody looks at the page, whenever that may have changed: it is in view, and its window has the
/// focus. Whoever touches it looks at it, also where the system has no notion of focus.
pub(crate) fn on_look(told: impl Fn(bool) + 'static) {
    let Some(window) = window() else { return };
    let told = Rc::new(told);
    for event in ["focus", "blur"] {
        let told = Rc::clone(&told);
        let changed = Closure::<dyn FnMut()>::new(move || told(is_looked_at()));
        listen(&window, event, changed);
    }
    for event in ["keydown", "pointerdown", "wheel"] {
        let told = Rc::clone(&told);
        listen(
            &window,
            event,
            Closure::<dyn FnMut()>::new(move || told(true)),
        );
    }
    if let Some(document) = window.document() {
        let told = Rc::clone(&told);
        let changed = Closure::<dyn FnMut()>::new(move || told(is_looked_at()));
        listen(&document, "visibilitychange", changed);
    }
    told(is_looked_at());
}

fn is_looked_at() -> bool {
    let document = window().and_then(|w| w.document());
    document.is_some_and(|d| !d.hidden() && d.has_focus().unwrap_or(false))
}

/// Whether the page is out of view.
pub(crate) fn is_hidden() -> bool {
    window()
        .and_then(|w| w.document())
        .is_some_and(|d| d.hidden())
}

fn listen(target: &web_sys::EventTarget, event: &str, told: Closure<dyn FnMut()>) {
    // A page that refuses a listener still works, it only reacts later.
    let _ = target.add_event_listener_with_callback(event, told.as_ref().unchecked_ref());
    // The listener belongs to the page and ends with it.
    told.forget();
}

/// Puts text on the clipboard; says whether that worked.
pub(crate) async fn copy(text: String) -> bool {
    let Some(window) = window() else { return false };
    // Not every webview has the modern clipboard: look before calling, or the call throws.
    let modern = js_sys::Reflect::get(&window.navigator(), &"clipboard".into())
        .is_ok_and(|clipboard| !clipboard.is_undefined());
    if modern {
        let written = window.navigator().clipboard().write_text(&text);
        if wasm_bindgen_futures::JsFuture::from(written).await.is_ok() {
            return true;
        }
    }
    copy_by_selection(&text).unwrap_or(false)
}

/// The old way: select text in an element and ask the document to copy.
fn copy_by_selection(text: &str) -> Option<bool> {
    let document = window()?.document()?;
    let focused = document.active_element();
    let area: web_sys::HtmlTextAreaElement =
        document.create_element("textarea").ok()?.dyn_into().ok()?;
    area.set_value(text);
    area.set_class_name("offscreen");
    document.body()?.append_child(&area).ok()?;
    area.select();
    let copied = document
        .dyn_ref::<web_sys::HtmlDocument>()?
        .exec_command("copy")
        .ok();
    area.remove();
    if let Some(focused) = focused.and_then(|e| e.dyn_into::<web_sys::HtmlElement>().ok()) {
        // Focus is a courtesy here.
        let _ = focused.focus();
    }
    copied
}

/// Whether shortcuts are spelled with the Command key.
pub(crate) fn is_mac() -> bool {
    window()
        .and_then(|w| w.navigator().platform().ok())
        .is_some_and(|p| p.starts_with("Mac"))
}

/// How far the local zone is from UTC at `at`, in minutes to subtract.
pub(crate) fn utc_offset_min(at: Timestamp) -> i64 {
    let date = js_sys::Date::new(&JsValue::from_f64(at.millis() as f64));
    date.get_timezone_offset() as i64
}

/// Names the page, for the window list and for screen readers.
pub(crate) fn set_title(title: &str) {
    if let Some(document) = window().and_then(|w| w.document()) {
        document.set_title(title);
    }
}

/// Whether a key belongs to an input method, which confirms its own text with it.
pub(crate) fn is_composing(event: &web_sys::KeyboardEvent) -> bool {
    /// What engines report as the code of a key that an input method has.
    const INPUT_METHOD_KEY: u32 = 229;
    event.is_composing() || event.key_code() == INPUT_METHOD_KEY
}

/// Whether a key went to something that is pressed with it.
pub(crate) fn is_on_button(event: &web_sys::KeyboardEvent) -> bool {
    let target = event
        .target()
        .and_then(|target| target.dyn_into::<web_sys::Element>().ok());
    target.is_some_and(|element| ["BUTTON", "SUMMARY", "A"].contains(&&*element.tag_name()))
}

/// Whether the reader asked the system for less motion.
pub(crate) fn prefers_stillness() -> bool {
    // An engine that does not know the question has nobody who could have asked.
    match_media("(prefers-reduced-motion: reduce)")
        .and_then(|query| js_sys::Reflect::get(&query, &"matches".into()))
        .is_ok_and(|matches| matches.is_truthy())
}

/// Gives a field the height of its text, up to the limit of the style sheet.
pub(crate) fn fit_field(area: &web_sys::HtmlTextAreaElement) {
    /// A longer text fills the limit anyway: measuring 20,000 lines at every key would freeze the page.
    const MEASURED_CHARS_MAX: u32 = 4_000;
    let style = area.style();
    // An inline height is a property set by script, which the content policy allows; it cannot fail for these values.
    let _ = if area.text_length() > MEASURED_CHARS_MAX {
        // Finding every line's own direction is what takes seconds there.
        area.set_dir("");
        style.set_property("height", "100vh")
    } else {
        area.set_dir("auto");
        style
            .set_property("height", "auto")
            .and_then(|()| style.set_property("height", &format!("{}px", area.scroll_height())))
    };
}

/// Where an element is on the screen, in pixels from the upper edge of the page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Extent {
    pub(crate) top: f64,
    pub(crate) bottom: f64,
}

impl Extent {
    pub(crate) fn height(self) -> f64 {
        self.bottom - self.top
    }
}

/// Lays the page out, if it is not, and says where the element is.
pub(crate) fn extent(element: &web_sys::Element) -> Extent {
    let rectangle = element.unchecked_ref::<Placed>().rectangle();
    Extent {
        top: rectangle.top(),
        bottom: rectangle.bottom(),
    }
}

/// The elements directly inside of one, to be had by their number.
pub(crate) struct Inside(Children);

impl Inside {
    pub(crate) fn of(element: &web_sys::Element) -> Self {
        Self(element.unchecked_ref::<Placed>().children())
    }
    pub(crate) fn count(&self) -> u32 {
        self.0.length()
    }
    pub(crate) fn at(&self, number: u32) -> Option<web_sys::Element> {
        self.0.item(number)
    }
}

/// Gives the focus to the first element that matches; says whether there is one.
pub(crate) fn focus(selector: &str) -> bool {
    let element = window()
        .and_then(|w| w.document())
        .and_then(|d| d.query_selector(selector).ok().flatten())
        .and_then(|e| e.dyn_into::<web_sys::HtmlElement>().ok());
    // Focus is a courtesy: an element that cannot take it leaves it where it is.
    element.is_some_and(|element| element.focus().is_ok())
}

/// Whether somebody has text under the cursor: a field with the focus that is not empty.
pub(crate) fn is_text_focused() -> bool {
    let focused = window()
        .and_then(|w| w.document())
        .and_then(|d| d.active_element());
    focused.is_some_and(|element| {
        if let Some(area) = element.dyn_ref::<web_sys::HtmlTextAreaElement>() {
            return area.text_length() > 0;
        }
        // Any other field is small, and somebody went there on purpose.
        element.tag_name() == "INPUT" || element.tag_name() == "SELECT"
    })
}

/// The value of `attribute` at the nearest element around the focus that has it.
pub(crate) fn focused_within(attribute: &str) -> Option<String> {
    let focused = window()?.document()?.active_element()?;
    let around = focused.closest(&format!("[{attribute}]")).ok()??;
    around.get_attribute(attribute)
}

/// Whether nothing has the focus, as after its element went away.
pub(crate) fn is_focus_lost() -> bool {
    let focused = window()
        .and_then(|w| w.document())
        .and_then(|d| d.active_element());
    focused.is_none_or(|element| element.tag_name() == "BODY")
}

/// Brings the element with this id into view within its own list.
pub(crate) fn reveal(id: &str) {
    let element = window()
        .and_then(|w| w.document())
        .and_then(|d| d.get_element_by_id(id));
    if let Some(element) = element {
        let options = web_sys::ScrollIntoViewOptions::new();
        options.set_block(web_sys::ScrollLogicalPosition::Nearest);
        element.scroll_into_view_with_scroll_into_view_options(&options);
    }
}

/// Brings an element into the middle of the view, with what stands around it.
pub(crate) fn reveal_middle(element: &web_sys::Element) {
    let options = web_sys::ScrollIntoViewOptions::new();
    options.set_block(web_sys::ScrollLogicalPosition::Center);
    element.scroll_into_view_with_scroll_into_view_options(&options);
}

/// Whether some text of the page is selected.
pub(crate) fn has_selection() -> bool {
    window()
        .and_then(|w| w.get_selection().ok().flatten())
        .is_some_and(|s| !s.is_collapsed())
}

/// A setting of this page that may be lost: whether the sidebar is folded and the like.
pub(crate) fn preference(name: &str) -> Option<String> {
    let storage = window()?.local_storage().ok()??;
    storage.get_item(name).ok()?
}

/// Keeps such a setting.
pub(crate) fn keep_preference(name: &str, value: &str) {
    let storage = window().and_then(|w| w.local_storage().ok().flatten());
    if let Some(storage) = storage {
        // Nothing that matters is kept here, so a full or forbidden storage costs nothing.
        let _ = storage.set_item(name, value);
    }
}

/// Tells when an element's size changes, until dropped.
pub(crate) struct SizeWatch {
    observer: web_sys::ResizeObserver,
    _told: Closure<dyn FnMut()>,
}

impl SizeWatch {
    /// Watches `element`.
    pub(crate) fn new(element: &web_sys::Element, told: impl FnMut() + 'static) -> Option<Self> {
        let told = Closure::<dyn FnMut()>::new(told);
        let observer = web_sys::ResizeObserver::new(told.as_ref().unchecked_ref()).ok()?;
        observer.observe(element);
        Some(Self {
            observer,
            _told: told,
        })
    }
}

impl Drop for SizeWatch {
    fn drop(&mut self) {
        self.observer.disconnect();
    }
}

/// Loads the page again. The engine and its turns know nothing of it.
pub(crate) fn reload() {
    if let Some(window) = window() {
        // A page that cannot even reload has nothing better to do than to stay.
        let _ = window.location().reload();
    }
}

thread_local! {
    static PANICKED: Cell<bool> = const { Cell::new(false) };
}

/// From now on a panic of this page, or an exception that nobody caught, loads it anew; the next one soon after
/// replaces it by words and a way back.
pub(crate) fn guard_page() {
    std::panic::set_hook(Box::new(|info| {
        web_sys::console::error_1(&info.to_string().into());
        let said = info.to_string();
        // A panic in a library names its own place, and in its words ours; other words may be of a chat.
        let place = info.location().map(ToString::to_string);
        let words = said.split_whitespace();
        let ours = words.filter(|word| word.starts_with("ui/src/"));
        let places: Vec<_> = place.into_iter().chain(ours.map(str::to_owned)).collect();
        give_up(&said, places.join(" "));
    }));
    let uncaught = Closure::<dyn FnMut(JsValue)>::new(|event: JsValue| {
        let part = |name: &str| js_sys::Reflect::get(&event, &name.into()).ok();
        // An event without an exception is a remark of the engine, as on a list that resizes while it is drawn.
        if part("error").is_some_and(|error| error.is_object()) {
            let text = |name: &str| part(name)?.as_string();
            let line = part("lineno").and_then(|line| line.as_f64());
            let at = text("filename").zip(line);
            give_up(
                &text("message").unwrap_or_default(),
                at.map(|(file, line)| format!("{file}:{line}"))
                    .unwrap_or_default(),
            );
        }
    });
    if let Some(window) = window() {
        let told = uncaught.as_ref().unchecked_ref();
        // Without the listener a panic is still noticed.
        let _ = window.add_event_listener_with_callback("error", told);
    }
    uncaught.forget();
}

/// What the page was last given up at, in its own window, by the wall clock.
const GIVEN_UP: &str = "given-up";

/// Nothing of this module may be called again after this: what has to happen later is done by functions of the
/// platform alone.
fn give_up(why: &str, at: String) {
    if PANICKED.with(|panicked| panicked.replace(true)) {
        return;
    }
    let saved = keep_typed_text();
    note_broken(at);
    let storage = window().and_then(|w| w.session_storage().ok().flatten());
    let last = storage
        .as_ref()
        .and_then(|storage| storage.get_item(GIVEN_UP).ok().flatten())
        .and_then(|ms| ms.parse().ok())
        .map(Timestamp::from_millis);
    let now = wall();
    let noted = storage.is_some_and(|storage| {
        let now = now.millis().to_string();
        storage.set_item(GIVEN_UP, &now).is_ok()
    });
    // A page that cannot remember that it has tried must not try again and again.
    let again = noted && transcript::reloads_by_itself(last, now) && reload_after(saved).is_some();
    if !again {
        draw_panic(why);
    }
}

/// Tells the shell where the page broke. Nobody is left to hear the answer.
fn note_broken(at: String) -> Option<()> {
    let called = invoke_raw(
        "note_broken",
        &arguments(&NoteBrokenArgs { at }).ok()?.into(),
    );
    called.ok().map(drop)
}

/// Saves what stands in the composer, by one call; its answer comes as a promise.
fn keep_typed_text() -> Option<js_sys::Promise> {
    let (field, session) = composer()?;
    let args = SaveDraftArgs {
        session,
        draft: Draft {
            text: field.value(),
            // They were saved when they came.
            images: KEPT_IMAGES.with(|kept| {
                kept.try_borrow()
                    .map(|kept| kept.clone())
                    .unwrap_or_default()
            }),
        },
    };
    invoke_raw("save_draft", &arguments(&args).ok()?.into()).ok()
}

/// Loads the page anew when the promise is settled, or soon, whichever comes first.
fn reload_after(saved: Option<js_sys::Promise>) -> Option<()> {
    const SOON_MS: i32 = 1_500;
    let window = window()?;
    let location: JsValue = window.location().into();
    let reload = js_sys::Reflect::get(&location, &"reload".into()).ok()?;
    let reload: js_sys::Function = reload.dyn_into().ok()?;
    let reload = reload.bind0(&location);
    window
        .set_timeout_with_callback_and_timeout_and_arguments_0(&reload, SOON_MS)
        .ok()?;
    if let Some(saved) = saved {
        let saved: JsValue = saved.into();
        let then = js_sys::Reflect::get(&saved, &"then".into()).ok()?;
        let then: js_sys::Function = then.dyn_into().ok()?;
        // The timer is there if this is refused.
        let _ = then.call2(&saved, &reload, &reload);
    }
    Some(())
}

/// Drawn by plain calls: whatever broke must not be needed to say so. The way back is a link and not a button with
/// a listener, because after a panic nothing of this module may be called again.
fn draw_panic(why: &str) -> Option<()> {
    let document = window()?.document()?;
    let body = document.body()?;
    while let Some(child) = body.first_child() {
        body.remove_child(&child).ok()?;
    }
    let add = |parent: &web_sys::Element, tag: &str, class: &str, text: &str| {
        let element = document.create_element(tag).ok()?;
        element.set_class_name(class);
        element.set_text_content(Some(text));
        parent.append_child(&element).ok()?;
        Some(element)
    };
    let page = add(&body, "main", "words-page", "")?;
    page.set_attribute("role", "alert").ok()?;
    add(&page, "h1", "words-title", "This view hit a bug")?;
    add(
        &page,
        "p",
        "words-text",
        "Only what you see here is affected. An answer that is being written goes on and is kept; \
         nothing is lost.",
    )?;
    let again = add(&page, "a", "button button-primary", "Reload view")?;
    again.set_attribute("href", "").ok()?;
    again.set_attribute("data-testid", "reload-view").ok()?;
    let fold = add(&page, "details", "words-details", "")?;
    add(&fold, "summary", "", "Details")?;
    add(&fold, "pre", "", why)?;
    Some(())
}

fn window() -> Option<web_sys::Window> {
    web_sys::window()
}
