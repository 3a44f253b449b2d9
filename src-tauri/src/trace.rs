//! What the process notes about itself: a file a day in the data folder, the last seven kept.
//!
//! Invariant: ids, never content. Kept by: our own spans carry ids only, other crates speak from `warn` on, and a
//! panic is noted by its place, because its message may quote a conversation.
//! Not here: the events of a session. Those are the log, and another thing.

use std::{io, panic, path::Path, str::FromStr};

use tracing::level_filters::LevelFilter;
use tracing_appender::{
    non_blocking::{NonBlocking, WorkerGuard},
    rolling::{RollingFileAppender, Rotation},
};
use tracing_subscriber::{
    Layer, filter::Targets, layer::SubscriberExt, registry, util::SubscriberInitExt,
};

use crate::arguments::Talk;

/// A week to look back on.
const FILES_MAX: usize = 7;

/// Crates whose spans are ours, and carry no content.
const OURS: [&str; 3] = ["holdfast", "engine", "transcript"];

/// Writes what is still to be written when it is dropped.
pub(crate) struct Traces {
    _guard: Option<WorkerGuard>,
}

/// Begins to note. `wanted` is a level, or levels by target as in `info,engine=debug`; nothing for `info`.
///
/// A folder that cannot be written costs the notes and nothing else.
pub(crate) fn begin(data_dir: Option<&Path>, wanted: Option<&str>, talk: Talk) -> Traces {
    let (file, guard) = match data_dir.and_then(|data_dir| file(data_dir).ok()) {
        Some((writer, guard)) => (Some(writer), Some(guard)),
        None => (None, None),
    };
    let file = file.map(|writer| {
        tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .with_writer(writer)
            .with_filter(filter(wanted))
    });
    let stderr = match talk {
        Talk::Usual => None,
        Talk::Verbose => Some(
            tracing_subscriber::fmt::layer()
                .with_ansi(false)
                .without_time()
                .with_writer(io::stderr)
                .with_filter(LevelFilter::WARN),
        ),
    };
    // A second subscriber is a test's; the first one stays.
    let _ = registry().with(file).with(stderr).try_init();
    note_panics();
    Traces { _guard: guard }
}

fn file(data_dir: &Path) -> io::Result<(NonBlocking, WorkerGuard)> {
    let folder = data_dir.join("logs");
    std::fs::create_dir_all(&folder)?;
    let appender = RollingFileAppender::builder()
        .rotation(Rotation::DAILY)
        .max_log_files(FILES_MAX)
        .filename_prefix("holdfast")
        .filename_suffix("log")
        .build(folder)
        .map_err(io::Error::other)?;
    Ok(tracing_appender::non_blocking(appender))
}

fn filter(wanted: Option<&str>) -> Targets {
    let wanted = wanted.map(str::trim).filter(|wanted| !wanted.is_empty());
    if let Some(levels) = wanted
        && LevelFilter::from_str(levels).is_err()
        && let Ok(targets) = Targets::from_str(levels)
    {
        return targets;
    }
    let level = wanted
        .and_then(|level| LevelFilter::from_str(level).ok())
        .unwrap_or(LevelFilter::INFO);
    Targets::new()
        .with_default(level.min(LevelFilter::WARN))
        .with_targets(OURS.map(|ours| (ours, level)))
}

fn note_panics() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let place = info.location().map(ToString::to_string);
        let thread = std::thread::current();
        tracing::error!(
            place = place.as_deref().unwrap_or("unknown"),
            thread = thread.name().unwrap_or("unnamed"),
            "a panic; the message is on stderr only, because it may quote a conversation"
        );
        usual(info);
    }));
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn a_level_is_for_our_own_crates_and_others_speak_from_warnings_on() {
        let debug = filter(Some("debug"));
        assert!(debug.would_enable("engine::turn", &Level::DEBUG));
        assert!(!debug.would_enable("hyper", &Level::INFO));
        assert!(debug.would_enable("hyper", &Level::WARN));
        let off = filter(Some("off"));
        assert!(!off.would_enable("engine", &Level::ERROR));
        assert!(!off.would_enable("hyper", &Level::ERROR));
    }

    #[test]
    fn nonsense_means_the_usual_level_and_targets_are_taken_as_they_are() {
        for nothing in [None, Some(""), Some("  "), Some("engine=loud")] {
            let usual = filter(nothing);
            assert!(usual.would_enable("engine", &Level::INFO), "{nothing:?}");
            assert!(!usual.would_enable("engine", &Level::DEBUG), "{nothing:?}");
        }
        let targets = filter(Some("warn,engine=trace"));
        assert!(targets.would_enable("engine", &Level::TRACE));
        assert!(!targets.would_enable("holdfast", &Level::INFO));
    }
}
