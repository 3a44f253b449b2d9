//! The windows, and how the process with windows begins and leaves.
//!
//! Invariant: leaving is ordered: the engine ends what runs, within its limit, then the process goes; whoever asks
//! (the last window, the menu, the tray, a signal) comes through the same exit. A turn does not belong to a window:
//! closing the last one while a turn runs leaves the engine at work until it ends, and the tray or another start opens
//! a window again. Who quits is asked while something runs; a signal or a logout is not. The web view never leaves the
//! app.
//! Not here: what a page asks for (`commands`), and how the engine is reached (`door`).

pub(crate) mod choices;
mod dialog;
pub(crate) mod drops;
mod goings;
mod keeper;
pub(crate) mod lookout;
mod menu;
mod news;
mod notifier;
mod placement;
mod revival;
mod tray;

use std::{
    io::{self, Write},
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use protocol::{InterruptedWhy, OnClose, Show};
use tauri::{
    App, AppHandle, CloseRequestApi, Manager, RunEvent, Url, WebviewUrl, WebviewWindow,
    WebviewWindowBuilder, Window, WindowEvent, async_runtime, webview::NewWindowResponse,
};

use crate::{
    arguments::Wish,
    commands,
    door::{Door, Opened},
    signals::{Asked, Signals},
};

use self::{
    choices::{Choices, Closing},
    dialog::{Question, Reply},
    keeper::Keepers,
    lookout::Lookout,
    news::News,
    notifier::Notifier,
    placement::{HEIGHT_MIN, WIDTH_MIN},
    tray::Tray,
};

/// The first window; others are `w2`, `w3` …
const MAIN: &str = "main";

/// After the last turn of a Holdfast without a window: so long a notification that still stands can be clicked on.
const LINGER: Duration = Duration::from_secs(120);

/// What a start says that found another one.
pub(crate) const HANDED_OVER_LINE: &str =
    "Holdfast is open on this data folder already; its window was brought to the front\n";

/// Why there is no window.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoWindow {
    #[cfg(target_os = "linux")]
    #[error("no display can be reached, so there is no window; `holdfast ask` works without one")]
    NoDisplay,
    #[error("the window could not be opened")]
    Tauri(#[from] tauri::Error),
}

/// How the process is leaving.
#[derive(Default)]
struct Leaving {
    begun: AtomicBool,
    done: AtomicBool,
    why: Mutex<Option<InterruptedWhy>>,
}

/// Opens the window and stays until it is left; returns the process' exit code.
///
/// # Errors
/// [`NoWindow`], in words.
pub(crate) fn run(
    data_dir: PathBuf,
    wish: Wish,
    first_model: Option<PathBuf>,
) -> Result<i32, NoWindow> {
    #[cfg(target_os = "linux")]
    gtk::init().map_err(|_| NoWindow::NoDisplay)?;
    let app = tauri::Builder::default()
        .invoke_handler(tauri::generate_handler![
            commands::hello,
            commands::attach,
            commands::poll,
            commands::detach,
            commands::load_older,
            commands::load_events,
            commands::ledger,
            commands::load_versions,
            commands::submit,
            commands::draft,
            commands::save_draft,
            commands::take_image,
            commands::image,
            commands::models,
            commands::probe,
            commands::keys,
            commands::change_key,
            commands::examine,
            commands::wake,
            commands::discover,
            commands::pulls,
            commands::manage_model,
            commands::local_models,
            commands::pick_model,
            commands::dropped,
            commands::take_dropped,
            commands::open_link,
            commands::note_broken,
            commands::pick_folder,
            commands::health,
            commands::about,
            commands::wish,
            commands::showing,
            commands::open_window,
            commands::desktop_choices,
            commands::choose_desktop,
        ])
        .manage(Leaving::default())
        .manage(Tray::default())
        .manage(News::default())
        .manage(drops::Drops::default())
        .manage(Arc::new(Lookout::new()))
        .menu(menu::bar)
        .on_menu_event(|app, event| chosen(app, event.id().as_ref()))
        .on_window_event(on_window_event)
        .setup(move |app| Ok(set_up(app, data_dir, wish, first_model)?))
        .build(tauri::generate_context!())?;
    Ok(app.run_return(|app, event| match event {
        RunEvent::ExitRequested { api, code, .. }
            if !app.state::<Leaving>().done.load(Ordering::SeqCst) =>
        {
            api.prevent_exit();
            match code {
                None => last_window_closed(app),
                Some(code) => leave(app, code),
            }
        }
        // A system that ends its session on macOS and Windows asks nobody: what runs is ended here and now.
        RunEvent::Exit if !app.state::<Leaving>().done.load(Ordering::SeqCst) => {
            let door = Arc::clone(&app.state::<Arc<Door>>());
            async_runtime::block_on(door.close(InterruptedWhy::OsShutdown));
        }
        // The icon in the dock was clicked.
        #[cfg(target_os = "macos")]
        RunEvent::Reopen { .. } => bring_to_front(app),
        // Tauri's own enum is open-ended.
        _ => {}
    }))
}

fn set_up(
    app: &mut App,
    data_dir: PathBuf,
    wish: Wish,
    first_model: Option<PathBuf>,
) -> tauri::Result<()> {
    let handle = app.handle().clone();
    app.manage(Keepers::of(&data_dir));
    app.manage(Arc::new(Choices::of(&data_dir)));
    let door = Arc::new(Door::new(data_dir, first_model, move || {
        bring_to_front(&handle);
    }));
    app.manage(Arc::clone(&door));
    let handle = app.handle().clone();
    app.manage(Notifier::new(move |session| {
        open_show(&handle, Show::Session { session });
    }));

    // The engine opens while the window does; a page that is faster waits at the door.
    let handle = app.handle().clone();
    async_runtime::spawn(async move {
        match door.open(&wish).await {
            Opened::HandedOver => {
                // A terminal that is gone hears nothing; the other window is in front all the same.
                let _ = io::stdout().write_all(HANDED_OVER_LINE.as_bytes());
                handle.exit(0);
            }
            Opened::Here | Opened::Refused => {}
        }
    });
    async_runtime::spawn(news::follow(app.handle().clone()));
    listen_to_signals(app.handle().clone());
    open_window(app.handle(), None)
}

fn on_window_event(window: &Window, event: &WindowEvent) {
    let app = window.app_handle();
    let label = window.label();
    match event {
        WindowEvent::Moved(_) | WindowEvent::Resized(_) => {
            if let Some(keeper) = app.state::<Keepers>().keeper(label) {
                keeper.changed();
            }
        }
        WindowEvent::Focused(has_focus) => app.state::<Arc<Lookout>>().focused(label, *has_focus),
        WindowEvent::CloseRequested { api, .. } => close_requested(app, label, api),
        WindowEvent::Destroyed => {
            app.state::<Arc<Door>>().window_gone(label);
            app.state::<Arc<Lookout>>().gone(label);
            app.state::<Keepers>().end(label);
            show_goings(app);
        }
        // Tauri's own enum is open-ended.
        _ => {}
    }
}

// Opening windows, and raising them.

/// Opens another window, under the first name that is free. Call it on the main thread.
fn open_window(app: &AppHandle, show: Option<Show>) -> tauri::Result<()> {
    let label = free_label(|label| app.get_webview_window(label).is_some());
    let lookout = app.state::<Arc<Lookout>>();
    let keepers = app.state::<Keepers>();
    let keeper = keepers.begin(&label, lookout.last_focused().as_deref());
    lookout.opened(&label, show);
    match window(app, &label, &keeper) {
        Ok(window) => {
            async_runtime::spawn(async move { keeper.keep(&window).await });
            show_goings(app);
            Ok(())
        }
        Err(error) => {
            lookout.gone(&label);
            keepers.end(&label);
            Err(error)
        }
    }
}

/// The first name that no window has.
fn free_label(is_taken: impl Fn(&str) -> bool) -> String {
    let names = std::iter::once(MAIN.to_owned()).chain((2_u64..).map(|n| format!("w{n}")));
    let mut free = names.skip_while(|name| is_taken(name));
    // There are more numbers than windows.
    free.next().unwrap_or_default()
}

fn window(app: &AppHandle, label: &str, keeper: &keeper::Keeper) -> tauri::Result<WebviewWindow> {
    let dev_url = app.config().build.dev_url.clone();
    let window = WebviewWindowBuilder::new(app, label, WebviewUrl::default())
        .title("Holdfast")
        .min_inner_size(WIDTH_MIN, HEIGHT_MIN)
        .visible(false)
        // Two data folders are two Holdfasts, and share no web storage either.
        .data_directory(app.state::<Arc<Door>>().data_dir().join("webview"))
        // Files dropped on the page are the page's business.
        .disable_drag_drop_handler()
        .on_navigation(move |url| stays(url, dev_url.as_ref()))
        .on_new_window(|_, _| NewWindowResponse::Deny)
        .on_download(|_, _| false)
        .on_document_title_changed(|window, title| {
            // The title is a courtesy to the window list.
            let _ = window.set_title(&title);
        })
        .build()?;
    keeper.restore(&window)?;
    menu::prepare(&window)?;
    revival::watch(&window)?;
    #[cfg(target_os = "linux")]
    drops::watch(&window)?;
    window.show()?;
    Ok(window)
}

/// Whether the web view stays within the app when it goes to `url`.
fn stays(url: &Url, dev_url: Option<&Url>) -> bool {
    match url.scheme() {
        "tauri" => url.host_str() == Some("localhost"),
        // How Windows spells the same.
        "http" | "https" => {
            url.host_str() == Some("tauri.localhost")
                || dev_url.is_some_and(|dev_url| dev_url.origin() == url.origin())
        }
        _ => false,
    }
}

/// Does something on the main thread, where windows are made.
fn on_main_thread(app: &AppHandle, act: impl FnOnce(&AppHandle) + Send + 'static) {
    let handle = app.clone();
    if let Err(error) = app.run_on_main_thread(move || act(&handle)) {
        tracing::debug!(%error, "nothing is done any more: the process is leaving");
    }
}

/// Opens another window from a page.
pub(crate) fn open_another(app: &AppHandle, show: Show) {
    open_again(app, Some(show));
}

/// A window on another desktop or behind others is of no use to someone who just started Holdfast.
fn bring_to_front(app: &AppHandle) {
    match app
        .webview_windows()
        .into_values()
        .min_by_key(place_in_line)
    {
        Some(first) => raise(&first),
        None => open_again(app, None),
    }
}

/// Windows in the order of their names' numbers; the first one has none.
fn place_in_line(window: &WebviewWindow) -> u64 {
    let number = window.label().strip_prefix('w');
    number.and_then(|number| number.parse().ok()).unwrap_or(1)
}

/// Shows something in a window: in the one that has it open, else in the one that was used last, else in a new one.
fn open_show(app: &AppHandle, show: Show) {
    let lookout = Arc::clone(&app.state::<Arc<Lookout>>());
    let has_it = match show {
        Show::Session { session } => lookout.window_of(session),
        Show::NewChat => None,
    };
    let window = has_it
        .and_then(|label| app.get_webview_window(&label))
        .or_else(|| focused_window(app));
    match window {
        Some(window) => {
            lookout.wish(window.label(), show);
            raise(&window);
        }
        None => open_again(app, Some(show)),
    }
}

/// The window that was used last.
fn focused_window(app: &AppHandle) -> Option<WebviewWindow> {
    let label = app.state::<Arc<Lookout>>().last_focused()?;
    app.get_webview_window(&label)
}

fn raise(window: &WebviewWindow) {
    let raised = window
        .unminimize()
        .and_then(|()| window.show())
        .and_then(|()| window.set_focus());
    if let Err(error) = raised {
        tracing::warn!(%error, "the window could not be brought to the front");
    }
}

/// Opens a window of an app that may have stayed without one, or notes why not: the next start tries again.
fn open_again(app: &AppHandle, show: Option<Show>) {
    if app.state::<Leaving>().begun.load(Ordering::SeqCst) {
        return; // It is closing.
    }
    on_main_thread(app, move |app| {
        if let Err(error) = open_window(app, show) {
            tracing::warn!(%error, "a window could not be opened");
        }
    });
}

// The tray and the menu.

fn chosen(app: &AppHandle, id: &str) {
    match tray::chosen(id) {
        Some(tray::Chosen::Open(show)) => open_show(app, show),
        Some(tray::Chosen::Front) => bring_to_front(app),
        Some(tray::Chosen::Quit) => quit(app),
        None => menu::chosen(app, id),
    }
}

/// Brings the tray up to date: it is there while there is no window, or at all times if the user wants that.
pub(crate) fn show_goings(app: &AppHandle) {
    on_main_thread(app, |app| {
        let leaves = app.state::<Leaving>().begun.load(Ordering::SeqCst);
        let stays = app.state::<Arc<Choices>>().now().stay_when_idle;
        let wanted = !leaves && (stays || app.webview_windows().is_empty());
        let goings = app.state::<News>().now();
        app.state::<Tray>().show(app, &goings, wanted);
    });
}

// Closing and leaving.

/// The user wants to quit: at once if nothing runs, else when they have read what that interrupts.
fn quit(app: &AppHandle) {
    if app.state::<Arc<Door>>().at_work() == 0 {
        app.exit(0);
        return;
    }
    on_main_thread(app, |app| {
        let words = goings::before_quitting(&app.state::<News>().now());
        let leaver = app.clone();
        let above = focused_window(app);
        dialog::ask(
            app,
            above.as_ref(),
            &Question::Quitting(words),
            move |reply| match reply {
                Reply::Interrupt => leaver.exit(0),
                Reply::GoOn | Reply::Nothing => {}
            },
        );
    });
}

/// A window is about to close; the last one only after a question, if one is due.
fn close_requested(app: &AppHandle, label: &str, api: &CloseRequestApi) {
    keep_placement(app);
    if app.webview_windows().len() > 1 {
        return;
    }
    let running = app.state::<Arc<Door>>().at_work();
    let is_first = match app.state::<Arc<Choices>>().on_closing(running) {
        // What that means is decided when the window is gone.
        Closing::Leave | Closing::Stay | Closing::StayIdle => return,
        Closing::Explain => true,
        Closing::Ask => false,
    };
    api.prevent_close();
    let goings = app.state::<News>().now();
    let words = goings::before_closing(&goings, tray::way_back(), is_first);
    let window = app.get_webview_window(label);
    let closing = window.clone();
    let here = app.clone();
    dialog::ask(
        app,
        window.as_ref(),
        &Question::Closing(words),
        move |reply| {
            let choices = here.state::<Arc<Choices>>();
            match reply {
                Reply::GoOn => {
                    if is_first {
                        choices.note_explained(OnClose::KeepWorking);
                    }
                    if let Some(Err(error)) = closing.map(|window| window.destroy()) {
                        tracing::warn!(%error, "the window does not close");
                    }
                }
                Reply::Interrupt => {
                    if is_first {
                        // Once interrupted on purpose is no wish to be interrupted unasked.
                        choices.note_explained(OnClose::Ask);
                    }
                    here.exit(0);
                }
                Reply::Nothing => {}
            }
        },
    );
}

/// The last window is gone, and nobody said that what runs is to end.
fn last_window_closed(app: &AppHandle) {
    let running = app.state::<Arc<Door>>().at_work();
    match app.state::<Arc<Choices>>().on_closing(running) {
        Closing::Leave => leave(app, 0),
        // Whoever was asked has answered: the window would not be gone otherwise.
        Closing::Stay | Closing::Explain | Closing::Ask => stay(app, running),
        Closing::StayIdle => tracing::info!(running, "the window is closed; the tray stays"),
    }
}

/// Stays without a window until nothing runs, and leaves then, unless there is a window again.
fn stay(app: &AppHandle, running: usize) {
    tracing::info!(
        running,
        "the window is closed; the engine stays until what runs has ended"
    );
    let app = app.clone();
    async_runtime::spawn(async move {
        let door = Arc::clone(&app.state::<Arc<Door>>());
        loop {
            door.until_nothing_runs().await;
            app.state::<News>().until_quiet().await;
            // Who is told of the end may want to read it.
            let notifier = Arc::clone(&app.state::<Arc<Notifier>>());
            let _ = tokio::time::timeout(LINGER, notifier.until_none_stands()).await;
            let stays = app.state::<Arc<Choices>>().now().stay_when_idle;
            if stays || !app.webview_windows().is_empty() {
                return;
            }
            if door.at_work() == 0 {
                return leave(&app, 0);
            }
        }
    });
}

fn listen_to_signals(app: AppHandle) {
    async_runtime::spawn(async move {
        let mut signals = match Signals::taken() {
            Ok(signals) => signals,
            Err(error) => {
                tracing::warn!(%error, "signals end the process without an ordered shutdown");
                return;
            }
        };
        let why = match signals.next().await {
            Asked::Stop => InterruptedWhy::AppExit,
            Asked::Leave => InterruptedWhy::OsShutdown,
        };
        *app.state::<Leaving>()
            .why
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(why);
        app.exit(0);
    });
}

/// Begins to leave, once; the process exits with `code` when the engine has ended what ran.
fn leave(app: &AppHandle, code: i32) {
    let leaving = app.state::<Leaving>();
    if leaving.begun.swap(true, Ordering::SeqCst) {
        return;
    }
    let why = leaving
        .why
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .unwrap_or(InterruptedWhy::AppExit);
    keep_placement(app);
    let app = app.clone();
    async_runtime::spawn(async move {
        app.state::<Arc<Door>>().close(why).await;
        app.state::<Leaving>().done.store(true, Ordering::SeqCst);
        app.exit(code);
    });
}

fn keep_placement(app: &AppHandle) {
    let keepers = app.state::<Keepers>();
    for (label, window) in app.webview_windows() {
        if let Some(keeper) = keepers.keeper(&label) {
            keeper.note(&window);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_window_has_the_first_name_that_is_free() {
        let label = |taken: &[&str]| free_label(|label| taken.contains(&label));
        assert_eq!(label(&[]), "main");
        assert_eq!(label(&["main"]), "w2");
        assert_eq!(label(&["main", "w3"]), "w2");
        assert_eq!(label(&["main", "w2", "w3"]), "w4");
        assert_eq!(label(&["w2"]), "main");
    }

    #[test]
    fn the_web_view_never_leaves_the_app() {
        let dev_url = Url::parse("http://localhost:1420/").expect("an address");
        let goes = |text: &str, dev_url: Option<&Url>| {
            stays(&Url::parse(text).expect("an address"), dev_url)
        };
        for text in [
            "tauri://localhost",
            "tauri://localhost/index.html",
            "http://tauri.localhost/",
        ] {
            assert!(goes(text, None), "{text}");
        }
        assert!(goes("http://localhost:1420/x", Some(&dev_url)));
        for text in [
            "https://example.org/",
            "http://localhost:1420/",
            "http://localhost/",
            "http://tauri.localhost.example.org/",
            "tauri://elsewhere/",
            "file:///etc/passwd",
            "data:text/html,x",
            "about:blank",
            "blob:tauri://localhost/x",
        ] {
            assert!(!goes(text, None), "{text}");
        }
        assert!(!goes("http://localhost:1421/", Some(&dev_url)));
    }
}
