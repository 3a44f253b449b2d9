//! How Holdfast behaves on the desktop, by the user's choice, and what was explained to them already.
//!
//! Invariant: a choice is on the disk before the page hears that it was taken. The file is replaced whole, so a crash
//! leaves the old or the new one; without a readable one everything is as on the first day.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use protocol::{DesktopChoices, OnClose};
use serde::{Deserialize, Serialize};

/// See the module.
pub(crate) struct Choices {
    path: PathBuf,
    kept: Mutex<Kept>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Kept {
    #[serde(flatten)]
    choices: DesktopChoices,
    /// Whether the user was told that Holdfast goes on without a window, and said what they think of it.
    explained: bool,
}

/// What closing the last window leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    /// Holdfast goes; what runs ends as interrupted.
    Leave,
    /// Holdfast goes on without a window until nothing runs.
    Stay,
    /// Holdfast stays in the tray until it is told to quit.
    StayIdle,
    /// The user is asked, for the first time.
    Explain,
    /// The user is asked, as they wished.
    Ask,
}

impl Choices {
    /// The choices kept in a data folder.
    pub(super) fn of(data_dir: &Path) -> Self {
        let path = data_dir.join("desktop.json");
        let kept = fs::read(&path)
            .ok()
            // A damaged file costs a few choices that can be made again.
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default();
        Self {
            path,
            kept: Mutex::new(kept),
        }
    }

    /// As chosen.
    pub(crate) fn now(&self) -> DesktopChoices {
        self.lock().choices
    }

    /// What closing the last window does now, with so many turns running.
    pub(super) fn on_closing(&self, running: usize) -> Closing {
        closing(*self.lock(), running)
    }

    /// Keeps the user's choices.
    ///
    /// # Errors
    /// If the disk refuses; then nothing has changed.
    pub(crate) fn choose(&self, choices: DesktopChoices) -> io::Result<()> {
        self.change(|kept| kept.choices = choices)
    }

    /// Keeps that the user knows now what closing does, and what they answered.
    pub(super) fn note_explained(&self, on_close: OnClose) {
        let noted = self.change(|kept| {
            kept.explained = true;
            kept.choices.on_close = on_close;
        });
        if let Err(error) = noted {
            tracing::warn!(%error, "what was explained will be explained again");
        }
    }

    fn change(&self, change: impl FnOnce(&mut Kept)) -> io::Result<()> {
        let mut kept = self.lock();
        let mut changed = *kept;
        change(&mut changed);
        let new = self.path.with_extension("json.new");
        fs::write(&new, serde_json::to_vec_pretty(&changed)?)?;
        fs::rename(new, &self.path)?;
        *kept = changed;
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn closing(kept: Kept, running: usize) -> Closing {
    let idle = if kept.choices.stay_when_idle {
        Closing::StayIdle
    } else {
        Closing::Leave
    };
    if running == 0 {
        return idle;
    }
    match kept.choices.on_close {
        OnClose::Quit => Closing::Leave,
        OnClose::Ask => Closing::Ask,
        // Whoever chose to stay in the tray at all times knows already.
        OnClose::KeepWorking if kept.choices.stay_when_idle => Closing::StayIdle,
        OnClose::KeepWorking if kept.explained => Closing::Stay,
        OnClose::KeepWorking => Closing::Explain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(on_close: OnClose, stay_when_idle: bool, explained: bool) -> Kept {
        Kept {
            choices: DesktopChoices {
                on_close,
                stay_when_idle,
                notify: true,
            },
            explained,
        }
    }

    #[test]
    fn closing_the_last_window_does_what_was_chosen_and_nothing_is_interrupted_unasked() {
        use OnClose::{Ask, KeepWorking, Quit};
        for (on_close, stay_when_idle, explained, running, expected) in [
            (KeepWorking, false, false, 0, Closing::Leave),
            (KeepWorking, false, false, 1, Closing::Explain),
            (KeepWorking, false, true, 1, Closing::Stay),
            (KeepWorking, true, false, 0, Closing::StayIdle),
            (KeepWorking, true, false, 3, Closing::StayIdle),
            (Ask, false, false, 0, Closing::Leave),
            (Ask, false, true, 1, Closing::Ask),
            (Ask, true, true, 1, Closing::Ask),
            (Quit, false, true, 2, Closing::Leave),
            (Quit, true, true, 2, Closing::Leave),
            (Quit, true, true, 0, Closing::StayIdle),
        ] {
            assert_eq!(
                closing(kept(on_close, stay_when_idle, explained), running),
                expected,
                "{on_close:?}, stays when idle: {stay_when_idle}, explained: {explained}, {running} running"
            );
        }
    }

    #[test]
    fn what_was_explained_once_is_not_explained_again_also_by_the_next_start() {
        let dir = tempfile::tempdir().expect("a folder for the test");
        let first = Choices::of(dir.path());
        assert_eq!(first.on_closing(1), Closing::Explain);
        first.note_explained(OnClose::KeepWorking);
        assert_eq!(first.on_closing(1), Closing::Stay);
        let choices = DesktopChoices {
            notify: false,
            ..first.now()
        };
        first.choose(choices).expect("kept");
        let next = Choices::of(dir.path());
        assert_eq!(next.on_closing(1), Closing::Stay);
        assert_eq!(next.now(), choices);
    }

    #[test]
    fn a_file_that_cannot_be_read_or_written_changes_nothing() {
        let dir = tempfile::tempdir().expect("a folder for the test");
        fs::write(dir.path().join("desktop.json"), "{\"notify\":").expect("written");
        assert_eq!(Choices::of(dir.path()).now(), DesktopChoices::default());
        let gone = Choices::of(&dir.path().join("absent"));
        let choices = DesktopChoices {
            notify: false,
            ..DesktopChoices::default()
        };
        assert!(gone.choose(choices).is_err());
        assert_eq!(gone.now(), DesktopChoices::default());
    }
}
