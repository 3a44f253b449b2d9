//! A view whose web process died comes back: by itself once, then when its reader asks.
//!
//! Invariant: a death that repeats is not answered by a loop. Kept by one rule over the times of death; the button is
//! drawn without anything that could have died with the page.
//! Not here: a panic of the page itself, which says so by itself, and turns, which know nothing of views.
//! On macOS the platform tells of the death too; on Windows WebView2 restarts its process by itself.

use std::{cell::Cell, time::Duration};

use engine::clock::{Clock, SystemClock};
use tauri::WebviewWindow;

/// A view that lived so long died of something else than the one before it.
const HEALTHY: Duration = Duration::from_secs(60);

/// What to do about a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Reload,
    Ask,
}

/// The page with the button: no script, no style sheet, both themes.
#[cfg(target_os = "linux")]
const PAGE: &str = r#"<!doctype html><meta charset="utf-8"><meta name="color-scheme" content="light dark">
<title>Holdfast</title><body style="font:16px/1.6 system-ui;max-width:34rem;margin:20vh auto;padding:0 1rem">
<h1 style="font-size:1.3rem">This view ended unexpectedly, twice</h1>
<p>Only what you see here is affected. An answer that is being written goes on and is kept; nothing is lost.</p>
<p><a href="tauri://localhost/" data-testid="reload-view">Reload view</a></p>"#;

fn answer(last_death: Option<Duration>, now: Duration) -> Answer {
    match last_death {
        Some(last) if now.saturating_sub(last) < HEALTHY => Answer::Ask,
        Some(_) | None => Answer::Reload,
    }
}

/// Watches over the window's web process.
///
/// # Errors
/// If the window is gone.
#[cfg(target_os = "linux")]
pub(super) fn watch(window: &WebviewWindow) -> tauri::Result<()> {
    use webkit2gtk::WebViewExt;

    window.with_webview(|view| {
        let clock = SystemClock::new();
        let last_death = Cell::new(None);
        view.inner()
            .connect_web_process_terminated(move |view, reason| {
                let now = clock.monotonic();
                let answer = answer(last_death.replace(Some(now)), now);
                tracing::error!(?reason, ?answer, "the web process of the view ended");
                match answer {
                    Answer::Reload => view.reload(),
                    Answer::Ask => view.load_alternate_html(PAGE, "tauri://localhost/", None),
                }
            });
    })
}

/// The platform does it, or tells nobody.
#[cfg(not(target_os = "linux"))]
pub(super) fn watch(_: &WebviewWindow) -> tauri::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_death_in_a_row_is_not_answered_by_a_reload() {
        let second = Duration::from_secs(1);
        assert_eq!(answer(None, second), Answer::Reload);
        assert_eq!(answer(Some(second), 2 * second), Answer::Ask);
        assert_eq!(answer(Some(second), second + HEALTHY), Answer::Reload);
    }
}
