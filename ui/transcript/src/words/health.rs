//! Words of the health page: what is counted, and what was saved of a damaged log.

use protocol::{Counted, Salvage};

use crate::link::Counters;

/// What is counted, as the line of a list.
pub const fn counted(counted: Counted) -> &'static str {
    match counted {
        Counted::TurnEnded => "turns ended",
        Counted::TurnRecovered => "turns of an earlier run closed at the start",
        Counted::Retry => "attempts made again",
        Counted::Failover => "times another model was asked instead",
        Counted::Cancelled => "turns stopped",
        Counted::Panicked => "turns that hit a bug",
        Counted::Backstop => "turns that had to be closed from outside",
        Counted::ToolPanicked => "tools that hit a bug",
        Counted::SlowWrite => "slow writes to the disk",
        Counted::FailedWrite => "failed writes to the disk",
        Counted::FailedRead => "failed reads from the disk",
        Counted::Compaction => "conversations summed up",
        Counted::LowRoom => "times the disk was nearly full",
        Counted::Slept => "times the computer slept meanwhile",
        Counted::Gap => "windows that had missed something",
        Counted::Reset => "windows told to begin anew",
        Counted::LostAnswer => "answers that did not reach their window",
        Counted::OpIdConflict => "actions sent twice with different content",
    }
}

/// What this page's links counted, each with its words.
pub const fn links(counters: &Counters) -> [(&'static str, u64); 11] {
    [
        ("streams opened or opened again", counters.attaches),
        ("repairs begun", counters.repairs),
        ("repairs given up", counters.manual),
        ("answers lost on the way", counters.lost),
        ("answers not waited for any longer", counters.given_up),
        ("answers declined, because too late", counters.declined),
        ("answers with something missing", counters.gaps),
        (
            "answers that contradicted their question",
            counters.bad_answers,
        ),
        ("orders to begin anew", counters.resets),
        ("events that came twice", counters.repeated),
        ("refusals", counters.refused),
    ]
}

/// What was saved of a damaged log, and what was not.
pub fn salvage(salvage: &Salvage) -> String {
    let chats = |count: u64| match count {
        1 => "1 chat".to_owned(),
        count => format!("{count} chats"),
    };
    let saved = chats(salvage.sessions);
    match salvage.incomplete {
        0 => format!("{saved} could be saved whole"),
        incomplete if incomplete >= salvage.sessions => {
            format!("{saved} could be saved; each lacks something")
        }
        1 => format!("{saved} could be saved; 1 of them lacks something"),
        incomplete => format!("{saved} could be saved; {incomplete} of them lack something"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn everything_that_is_counted_has_words_of_its_own() {
        let said: BTreeSet<_> = Counted::ALL.iter().map(|one| counted(*one)).collect();
        assert_eq!(said.len(), Counted::ALL.len());
        let links: BTreeSet<_> = links(&Counters::default()).map(|(words, _)| words).into();
        assert_eq!(links.len(), 11);
    }

    #[test]
    fn a_salvage_says_what_lacks_something() {
        let saved = |sessions, incomplete| {
            salvage(&Salvage {
                kept_as: String::new(),
                found: String::new(),
                events: 9,
                sessions,
                incomplete,
            })
        };
        assert_eq!(saved(3, 0), "3 chats could be saved whole");
        assert_eq!(
            saved(3, 1),
            "3 chats could be saved; 1 of them lacks something"
        );
        assert_eq!(
            saved(3, 2),
            "3 chats could be saved; 2 of them lack something"
        );
        assert_eq!(saved(1, 1), "1 chat could be saved; each lacks something");
    }
}
