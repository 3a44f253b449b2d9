//! `health`: what the data folder holds, and what was saved of damaged databases.
//!
//! Invariant: no number is shown that means something else than it says. What is counted while Holdfast runs lives in
//! the process that runs, and is shown by its window; this process has just begun and counted nothing.

use std::{fmt::Write as _, path::PathBuf};

use engine::{Config, Engine, OpenError};
use protocol::{ErrorReport, HealthReport, InterruptedWhy, Salvage};

use crate::arguments::Format;

use super::{
    Exit, complain,
    print::{self, Margin},
    shape, words,
};

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
enum Unknown {
    #[error(
        "Holdfast is open, and what it counts is shown by its window, under Settings, Health; close it to see here \
         what the data folder holds"
    )]
    Runs,
    #[error(transparent)]
    NotOpened(OpenError),
    #[error(transparent)]
    Engine(#[from] ErrorReport),
    #[error("the output could not be made: {0}")]
    Shape(#[from] serde_json::Error),
    #[error("the output could not be printed: {0}")]
    Print(#[from] std::io::Error),
}

impl From<OpenError> for Unknown {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::InUse { .. } => Self::Runs,
            other => Self::NotOpened(other),
        }
    }
}

/// Prints how the data folder is.
pub(crate) async fn health(data_dir: Option<PathBuf>, format: Format) -> Exit {
    let told = async {
        let report = match data_dir {
            Some(data_dir) => {
                let config = Config {
                    lock_wait: engine::READ_LOCK_WAIT,
                    ..Config::new(data_dir)
                };
                let engine = Engine::open(config).await?;
                let report = engine.health().await;
                engine.shutdown(InterruptedWhy::AppExit).await;
                Some(report?)
            }
            None => None,
        };
        let text = match (format, &report) {
            (Format::Json, report) => {
                let shape = report.as_ref().map(shape::Health::from);
                format!("{}\n", serde_json::to_string_pretty(&shape)?)
            }
            (Format::Text, Some(report)) => page(report),
            (Format::Text, None) => "nothing is kept yet\n".to_owned(),
        };
        print::put(&text)?;
        Ok::<_, Unknown>(())
    };
    match told.await {
        Ok(()) => Exit::Done,
        Err(error) => complain(error, Exit::Failed),
    }
}

fn page(report: &HealthReport) -> String {
    let mut text = String::new();
    let free = report
        .free_bytes
        .map_or_else(|| "not told by this system".to_owned(), words::bytes);
    let backup = report.last_backup.as_deref().unwrap_or("none yet");
    for (what, value) in [
        ("data folder", report.data_dir.as_str()),
        ("database", &words::bytes(report.database_bytes)),
        ("free on its disk", &free),
        ("last backup", backup),
    ] {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{what:<18}{value}");
    }
    if report.salvages.is_empty() {
        text.push_str("no damaged database was ever found here\n");
    }
    for salvage in &report.salvages {
        text.push_str(&saved(salvage));
    }
    text.push_str(
        "what Holdfast counts while it runs is shown by its window, under Settings, Health\n",
    );
    print::for_stdout(&text).into_owned()
}

/// Says on stderr, once, that this start found a damaged database.
pub(super) fn tell_of_salvage(engine: &Engine) {
    if let Some(salvage) = engine.salvaged() {
        Margin::of_this_process().say(saved(salvage).trim_end());
    }
}

fn saved(salvage: &Salvage) -> String {
    let Salvage {
        kept_as,
        found,
        events,
        sessions,
        incomplete,
    } = salvage;
    if *events == 0 {
        return format!(
            "a damaged database ({found}): nothing could be read of it; the damaged file is {kept_as}\n"
        );
    }
    let lost = match incomplete {
        0 => "none lost anything".to_owned(),
        1 => "one lost something".to_owned(),
        n => format!("{n} lost something"),
    };
    format!(
        "a damaged database ({found}): {events} events of {sessions} conversations were saved, {lost}; the damaged \
         file is {kept_as}\n"
    )
}

#[cfg(test)]
mod tests {
    use protocol::{Boot, Counted, Timestamp};
    use serde_json::json;

    use super::*;

    fn report(salvages: Vec<Salvage>) -> HealthReport {
        HealthReport {
            boot: Boot::from_bits(1),
            started_at: Timestamp::from_millis(0),
            data_dir: "/home/ada/holdfast".to_owned(),
            database_bytes: 5_300_000,
            free_bytes: Some(12_000_000_000),
            running_turns: 0,
            attachments: 0,
            counts: vec![(Counted::TurnEnded, 7)],
            last_backup: None,
            salvages,
        }
    }

    #[test]
    fn a_report_tells_sizes_and_what_was_saved_and_no_count_of_a_process_that_has_just_begun() {
        assert_eq!(
            page(&report(vec![])),
            "data folder       /home/ada/holdfast\n\
             database          5.3 MB\n\
             free on its disk  12.0 GB\n\
             last backup       none yet\n\
             no damaged database was ever found here\n\
             what Holdfast counts while it runs is shown by its window, under Settings, Health\n"
        );
        let salvage = Salvage {
            kept_as: "/home/ada/holdfast/damaged.sqlite3".to_owned(),
            found: "page 4 is damaged".to_owned(),
            events: 120,
            sessions: 3,
            incomplete: 1,
        };
        let text = page(&report(vec![salvage.clone()]));
        assert!(
            text.contains(
                "a damaged database (page 4 is damaged): 120 events of 3 conversations were saved, one lost \
                 something; the damaged file is /home/ada/holdfast/damaged.sqlite3\n"
            ),
            "{text}"
        );
        assert_eq!(
            json!(shape::Health::from(&report(vec![salvage]))),
            json!({
                "data_dir": "/home/ada/holdfast", "database_bytes": 5_300_000, "free_bytes": 12_000_000_000_u64,
                "last_backup": null,
                "salvages": [{"kept_as": "/home/ada/holdfast/damaged.sqlite3", "found": "page 4 is damaged",
                    "events": 120, "sessions": 3, "incomplete": 1}],
            })
        );
    }
}
