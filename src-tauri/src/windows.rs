//! The window, and how the process with a window begins and leaves.
//!
//! Invariant: leaving is ordered: the engine ends what runs, within its limit, then the process goes; whoever asks
//! (the last window, the menu, a signal) comes through the same exit. A turn does not belong to a window: closing the last
//! one while a turn runs leaves the engine at work until it ends, and another start opens the window again; Quit and
//! signals end the turn. The web view never leaves the app.
//! Not here: what a page asks for (`commands`), and how the engine is reached (`door`).

mod keeper;
mod menu;
mod placement;
mod revival;

use std::{
    io::{self, Write},
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use protocol::InterruptedWhy;
use tauri::{
    App, AppHandle, Manager, RunEvent, Url, WebviewUrl, WebviewWindow, WebviewWindowBuilder,
    WindowEvent, async_runtime, webview::NewWindowResponse,
};

use crate::{
    arguments::Wish,
    commands,
    door::{Door, Opened},
    signals::{Asked, Signals},
};

use self::{
    keeper::Keeper,
    placement::{HEIGHT_MIN, WIDTH_MIN},
};

/// The one window there is so far.
const MAIN: &str = "main";

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
pub(crate) fn run(data_dir: PathBuf, wish: Wish) -> Result<i32, NoWindow> {
    #[cfg(target_os = "linux")]
    gtk::init().map_err(|_| NoWindow::NoDisplay)?;
    let app = tauri::Builder::default()
        .invoke_handler(tauri::generate_handler![
            commands::hello,
            commands::attach,
            commands::poll,
            commands::detach,
            commands::load_older,
            commands::submit,
            commands::draft,
            commands::save_draft,
            commands::models,
            commands::probe,
            commands::discover,
            commands::open_link,
            commands::pick_folder,
            commands::health,
            commands::about,
        ])
        .manage(Leaving::default())
        .menu(menu::bar)
        .on_menu_event(|app, event| menu::chosen(app, event.id().as_ref()))
        .on_window_event(|window, event| match event {
            WindowEvent::Moved(_) | WindowEvent::Resized(_) => {
                window.state::<Arc<Keeper>>().changed();
            }
            WindowEvent::CloseRequested { .. } => keep_placement(window.app_handle()),
            WindowEvent::Destroyed => window.state::<Arc<Door>>().window_gone(window.label()),
            // Tauri's own enum is open-ended.
            _ => {}
        })
        .setup(move |app| Ok(set_up(app, data_dir, wish)?))
        .build(tauri::generate_context!())?;
    Ok(app.run_return(|app, event| {
        if let RunEvent::ExitRequested { api, code, .. } = event
            && !app.state::<Leaving>().done.load(Ordering::SeqCst)
        {
            api.prevent_exit();
            match code {
                // The last window was closed, and nobody said that what runs is to end.
                None if app.state::<Arc<Door>>().running_turns() > 0 => stay(app),
                None => leave(app, 0),
                Some(code) => leave(app, code),
            }
        }
    }))
}

fn set_up(app: &mut App, data_dir: PathBuf, wish: Wish) -> tauri::Result<()> {
    let handle = app.handle().clone();
    let keeper = Arc::new(Keeper::of(&data_dir));
    let door = Arc::new(Door::new(data_dir, move || bring_to_front(&handle)));
    app.manage(keeper);
    app.manage(Arc::clone(&door));

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
    listen_to_signals(app.handle().clone());
    open_window(app.handle())
}

fn open_window(app: &AppHandle) -> tauri::Result<()> {
    let keeper = Arc::clone(&app.state::<Arc<Keeper>>());
    let window = window(app, &keeper)?;
    async_runtime::spawn(async move { keeper.keep(&window).await });
    Ok(())
}

fn window(app: &AppHandle, keeper: &Keeper) -> tauri::Result<WebviewWindow> {
    let dev_url = app.config().build.dev_url.clone();
    let window = WebviewWindowBuilder::new(app, MAIN, WebviewUrl::default())
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

/// A window on another desktop or behind others is of no use to someone who just started Holdfast.
fn bring_to_front(app: &AppHandle) {
    let Some(window) = app.get_webview_window(MAIN) else {
        return open_again(app);
    };
    let raised = window
        .unminimize()
        .and_then(|()| window.show())
        .and_then(|()| window.set_focus());
    if let Err(error) = raised {
        tracing::warn!(%error, "the window could not be brought to the front");
    }
}

/// Opens the window of an app that had stayed without one, or notes why not: the next start tries again.
fn open_again(app: &AppHandle) {
    if app.state::<Leaving>().begun.load(Ordering::SeqCst) {
        return; // It is closing.
    }
    let handle = app.clone();
    let asked = app.run_on_main_thread(move || {
        if let Err(error) = open_window(&handle) {
            tracing::warn!(%error, "the window could not be opened again");
        }
    });
    if let Err(error) = asked {
        tracing::warn!(%error, "the window could not be opened again");
    }
}

/// Stays without a window until no turn runs, and leaves then, unless there is a window again.
fn stay(app: &AppHandle) {
    let turns = app.state::<Arc<Door>>().running_turns();
    tracing::info!(
        turns,
        "the window is closed; the engine stays until its turns have ended"
    );
    let app = app.clone();
    async_runtime::spawn(async move {
        let door = Arc::clone(&app.state::<Arc<Door>>());
        door.until_no_turn_runs().await;
        if app.get_webview_window(MAIN).is_none() {
            leave(&app, 0);
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
    if let Some(window) = app.get_webview_window(MAIN) {
        app.state::<Arc<Keeper>>().note(&window);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
