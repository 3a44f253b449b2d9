//! What goes on: the turns that run or wait for a word, the models being downloaded, the ends that nobody has seen, and
//! the words for that in the tray, in a question and in a notification.
//!
//! Invariant: all of it is read off the library and off the turn that ended; nothing is remembered here.

use protocol::{
    Boot, ItemBody, LibraryPage, OutcomeKind, Part, Place, SessionId, SessionState, TurnOutcome,
    TurnView,
};

/// Longer titles are cut: menus and dialogs are narrow.
const TITLE_CHARS_MAX: usize = 48;
/// So much of an answer is its first words.
const BODY_CHARS_MAX: usize = 160;
/// So many sessions are named; the others are counted.
pub(super) const NAMED_MAX: usize = 8;

/// A session whose turn has not ended, or of whose end nobody knows yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Going {
    pub(super) session: SessionId,
    /// As it may be shown: never empty, one line, not long.
    pub(super) title: String,
    pub(super) doing: Doing,
}

/// What its turn does, or how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    Writing,
    /// It waits for the user's word.
    Asking,
    /// Nobody has seen that yet.
    Ended(OutcomeKind),
}

/// All of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Goings {
    /// What runs; who asks comes first, then who was active last.
    pub(super) running: Vec<Going>,
    /// Models that servers download, in the order in which they were asked to.
    pub(super) downloads: Vec<String>,
    /// What is new, the latest first: what the list in a window marks as new, and nothing else.
    pub(super) unread: Vec<Going>,
}

impl Goings {
    /// As the library has it, in this boot.
    pub(super) fn of(library: &LibraryPage, boot: Boot) -> Self {
        let mut shelf: Vec<_> = library
            .sessions
            .iter()
            .filter(|summary| summary.place == Place::Shelf)
            .collect();
        shelf.sort_by_key(|summary| std::cmp::Reverse(summary.active_at));
        let mut goings = Self::default();
        for summary in shelf {
            let doing = match (summary.state, summary.unread) {
                (SessionState::Running { .. }, _) => Doing::Writing,
                (SessionState::Asking { .. }, _) => Doing::Asking,
                (SessionState::Ended { outcome }, Some(_)) => Doing::Ended(outcome),
                (SessionState::Ended { .. }, None) | (SessionState::Empty, _) => continue,
            };
            let going = Going {
                session: summary.session,
                title: shown_title(&summary.title),
                doing,
            };
            match doing {
                Doing::Writing | Doing::Asking => goings.running.push(going),
                Doing::Ended(_) => goings.unread.push(going),
            }
        }
        let writes = |going: &Going| going.doing != Doing::Asking;
        goings.running.sort_by_key(writes);
        let pulled = library
            .pulls
            .iter()
            .filter(|pull| pull.boot == boot && pull.failure.is_none());
        goings.downloads = pulled.map(|pull| pull.model.model.clone()).collect();
        goings
    }

    /// Whether nothing runs. News holds nobody up.
    pub(super) fn is_quiet(&self) -> bool {
        self.running.is_empty() && self.downloads.is_empty()
    }

    /// What runs, in one line.
    pub(super) fn line(&self) -> String {
        let asks = |going: &&Going| going.doing == Doing::Asking;
        let asking = self.running.iter().filter(asks).count();
        let parts = [
            (
                self.running.len() - asking,
                being_written as fn(usize) -> String,
            ),
            (asking, waiting),
            (self.downloads.len(), being_downloaded),
        ];
        let said: Vec<String> = parts
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, words)| words(count))
            .collect();
        match said.is_empty() {
            true => "Nothing is running".to_owned(),
            false => said.join(", "),
        }
    }

    /// The same, with how much is new.
    pub(super) fn line_with_news(&self) -> String {
        match self.unread.len() {
            0 => self.line(),
            unread => format!("{}, {unread} not seen yet", self.line()),
        }
    }

    /// The number beside the icon; nothing when nothing runs.
    pub(super) fn count(&self) -> String {
        match self.running.len() + self.downloads.len() {
            0 => String::new(),
            count => count.to_string(),
        }
    }

    /// The titles, a line each; of very many the first ones.
    pub(super) fn list(&self) -> String {
        if self.is_quiet() {
            return "• an answer that has just begun".to_owned();
        }
        let turns = self.running.iter().map(Going::words);
        let downloads = self.downloads.iter();
        let downloads = downloads.map(|model| format!("the download of {model}"));
        let all: Vec<String> = turns.chain(downloads).collect();
        let named = all.iter().take(NAMED_MAX);
        let mut lines: Vec<String> = named.map(|words| format!("• {words}")).collect();
        let more = all.len().saturating_sub(NAMED_MAX);
        if more > 0 {
            lines.push(format!("• and {more} more"));
        }
        lines.join("\n")
    }
}

impl Going {
    /// Its line in a list.
    pub(super) fn words(&self) -> String {
        match self.doing {
            Doing::Writing => self.title.clone(),
            Doing::Asking => format!("{} – waits for you", self.title),
            Doing::Ended(outcome) => {
                let news = match outcome {
                    OutcomeKind::Completed | OutcomeKind::Cancelled => "new answer",
                    OutcomeKind::Failed => "failed",
                    OutcomeKind::Interrupted => "interrupted",
                };
                format!("{} – {news}", self.title)
            }
        }
    }
}

fn being_written(count: usize) -> String {
    match count {
        1 => "1 answer is being written".to_owned(),
        count => format!("{count} answers are being written"),
    }
}

fn being_downloaded(count: usize) -> String {
    match count {
        1 => "1 model is being downloaded".to_owned(),
        count => format!("{count} models are being downloaded"),
    }
}

fn waiting(count: usize) -> String {
    match count {
        1 => "1 question waits for you".to_owned(),
        count => format!("{count} questions wait for you"),
    }
}

/// A question before something ends that somebody may still want.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Words {
    pub(super) title: String,
    pub(super) text: String,
}

/// Before quitting.
pub(super) fn before_quitting(goings: &Goings) -> Words {
    Words {
        title: "Quit Holdfast?".to_owned(),
        text: format!(
            "This interrupts what has not ended yet:\n\n{}\n\nWhat is there so far is kept.",
            goings.list()
        ),
    }
}

/// How one comes back to a Holdfast without a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WayBack {
    /// By its icon.
    Tray,
    /// Only by another start.
    Start,
}

/// Before the last window closes, the first time and whenever the user wants to be asked.
pub(super) fn before_closing(goings: &Goings, way_back: WayBack, first: bool) -> Words {
    let back = match way_back {
        WayBack::Tray => {
            "Meanwhile it is in the tray: its menu, or another start of Holdfast, brings the window back."
        }
        WayBack::Start => {
            "This desktop has no tray; starting Holdfast again brings the window back."
        }
    };
    let once = if first {
        "\n\nYou are asked this once; in the settings, under “In the background”, it can be changed."
    } else {
        ""
    };
    Words {
        title: format!("{}. Go on without a window?", goings.line()),
        text: format!(
            "{}\n\nHoldfast can go on until this has ended, and then leave by itself. {back}{once}",
            goings.list()
        ),
    }
}

/// What a notification says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) session: SessionId,
    pub(super) title: String,
    pub(super) body: String,
}

/// The end of a turn, for somebody who did not see it; nothing where they ended it themselves, or the system did.
pub(super) fn of_the_end(session: SessionId, title: &str, turn: &TurnView) -> Option<Notice> {
    let body = match turn.outcome.as_ref()? {
        TurnOutcome::Completed { .. } => match first_words(turn) {
            said if said.is_empty() => "The answer is there.".to_owned(),
            said => said,
        },
        TurnOutcome::Failed { failure } => format!("Failed: {}", shortened(&failure.message)),
        TurnOutcome::Cancelled { .. } | TurnOutcome::Interrupted { .. } => return None,
    };
    Some(Notice {
        session,
        title: shown_title(title),
        body,
    })
}

/// The same where the turn itself could not be read.
pub(super) fn of_an_end(session: SessionId, title: &str, outcome: OutcomeKind) -> Option<Notice> {
    let body = match outcome {
        OutcomeKind::Completed => "The answer is there.",
        OutcomeKind::Failed => "The answer failed.",
        OutcomeKind::Cancelled | OutcomeKind::Interrupted => return None,
    };
    Some(Notice {
        session,
        title: shown_title(title),
        body: body.to_owned(),
    })
}

/// A turn that waits for a word.
pub(super) fn of_a_question(session: SessionId, title: &str) -> Notice {
    Notice {
        session,
        title: shown_title(title),
        body: "Waits for you: something may be changed only with your word.".to_owned(),
    }
}

fn first_words(turn: &TurnView) -> String {
    let mut answers = turn.items.iter().filter_map(|item| match &item.body {
        ItemBody::Text {
            part: Part::Answer,
            text,
            ..
        } => Some(shortened(text)).filter(|text| !text.is_empty()),
        ItemBody::Text {
            part: Part::Reasoning,
            ..
        }
        | ItemBody::UserMessage { .. }
        | ItemBody::ToolCall { .. }
        | ItemBody::Compacted { .. }
        | ItemBody::Unsupported { .. } => None,
    });
    answers.next_back().unwrap_or_default()
}

/// Text on one line, of a bounded length.
fn shortened(text: &str) -> String {
    cut(text, BODY_CHARS_MAX)
}

fn shown_title(title: &str) -> String {
    match cut(title, TITLE_CHARS_MAX) {
        title if title.is_empty() => "New chat".to_owned(),
        title => title,
    }
}

/// Without control characters, which a dialog may stumble over, and with single spaces.
fn cut(text: &str, chars_max: usize) -> String {
    let mut line = String::new();
    let mut length = 0;
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()) {
        if word.is_empty() {
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
            length += 1;
        }
        for letter in word.chars() {
            if length >= chars_max {
                line.truncate(line.trim_end().len());
                line.push('…');
                return line;
            }
            line.push(letter);
            length += 1;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use protocol::{
        Cursor, Failure, FailureCode, ItemId, ItemView, LogId, ModelRef, Origin, ProviderId,
        SessionSummary, StopReason, Timestamp, TurnId,
    };

    use super::*;

    fn library(states: &[(&str, SessionState)]) -> LibraryPage {
        let sessions = states.iter().zip(1_i64..).map(|((title, state), n)| {
            let at = Timestamp::from_millis(n);
            SessionSummary {
                session: SessionId::from_bits(n as u128),
                title: (*title).to_owned(),
                origin: Origin::Conversation,
                created_at: at,
                active_at: at,
                state: *state,
                unread: None,
                place: Place::Shelf,
            }
        });
        LibraryPage {
            sessions: sessions.collect(),
            providers: Vec::new(),
            last_model: None,
            limits: None,
            fallbacks: Vec::new(),
            model_options: Vec::new(),
            pulls: Vec::new(),
            prices: None,
            salvages: Vec::new(),
            as_of: Cursor::at_start(LogId::from_bits(1)),
        }
    }

    const BOOT: Boot = Boot::from_bits(1);

    const RUNNING: SessionState = SessionState::Running {
        turn: TurnId::FIRST,
    };
    const ASKING: SessionState = SessionState::Asking {
        turn: TurnId::FIRST,
    };

    #[test]
    fn the_tray_counts_what_runs_and_names_who_waits_first() {
        let ended = SessionState::Ended {
            outcome: OutcomeKind::Completed,
        };
        let goings = Goings::of(
            &library(&[
                ("older", RUNNING),
                ("done", ended),
                ("new", SessionState::Empty),
                (" ", ASKING),
                ("newer", RUNNING),
            ]),
            BOOT,
        );
        assert_eq!(
            goings.line(),
            "2 answers are being written, 1 question waits for you"
        );
        assert_eq!(goings.count(), "3");
        assert_eq!(
            goings.list(),
            "• New chat – waits for you\n• newer\n• older"
        );
    }

    #[test]
    fn what_nobody_has_seen_is_in_the_tray_as_in_the_list_and_keeps_nobody_up() {
        let ended = |outcome| SessionState::Ended { outcome };
        let mut library = library(&[
            ("seen", ended(OutcomeKind::Completed)),
            ("tides", ended(OutcomeKind::Completed)),
            ("kelp", ended(OutcomeKind::Failed)),
            ("stone", RUNNING),
            ("gone", ended(OutcomeKind::Completed)),
        ]);
        for at in [1, 2, 3, 4] {
            library.sessions[at].unread = Some(TurnId::FIRST);
        }
        library.sessions[4].place = Place::Bin;
        let goings = Goings::of(&library, BOOT);
        let named: Vec<_> = goings.unread.iter().map(Going::words).collect();
        assert_eq!(named, ["kelp – failed", "tides – new answer"]);
        assert_eq!(
            goings.line_with_news(),
            "1 answer is being written, 2 not seen yet"
        );
        assert_eq!(goings.list(), "• stone", "nothing else is interrupted");
        library.sessions[3].state = ended(OutcomeKind::Completed);
        assert!(Goings::of(&library, BOOT).is_quiet());
    }

    #[test]
    fn a_download_counts_as_long_as_it_runs_in_this_boot() {
        let mut page = library(&[("tides", RUNNING)]);
        let pull = |model: &str, boot, failure| protocol::OpenPull {
            model: ModelRef {
                provider: ProviderId::from_bits(1),
                provider_name: "Ollama".to_owned(),
                model: model.to_owned(),
            },
            boot,
            started_at: Timestamp::from_millis(1),
            failure,
        };
        let failure = Failure::new(FailureCode::StreamCut, "cut");
        page.pulls = vec![
            pull("llama3.2", BOOT, None),
            pull("of another boot", Boot::from_bits(2), None),
            pull("failed", BOOT, Some(failure)),
        ];
        let goings = Goings::of(&page, BOOT);
        assert_eq!(
            goings.line(),
            "1 answer is being written, 1 model is being downloaded"
        );
        assert_eq!(goings.list(), "• tides\n• the download of llama3.2");
        page.sessions.clear();
        let goings = Goings::of(&page, BOOT);
        assert!(!goings.is_quiet());
        assert_eq!(goings.count(), "1");
    }

    #[test]
    fn one_is_not_many_and_none_is_nothing() {
        let line = |states: &[(&str, SessionState)]| Goings::of(&library(states), BOOT).line();
        assert_eq!(line(&[]), "Nothing is running");
        assert_eq!(line(&[("a", RUNNING)]), "1 answer is being written");
        assert_eq!(line(&[("a", ASKING)]), "1 question waits for you");
        assert_eq!(
            line(&[("a", ASKING), ("b", ASKING)]),
            "2 questions wait for you"
        );
        assert_eq!(Goings::default().count(), "");
    }

    #[test]
    fn a_question_names_what_would_be_interrupted_and_does_not_grow_without_bound() {
        let titles: Vec<String> = (1..=10).map(|n| format!("chat {n}")).collect();
        let states: Vec<_> = titles.iter().map(|t| (t.as_str(), RUNNING)).collect();
        let words = before_quitting(&Goings::of(&library(&states), BOOT));
        assert!(words.text.contains("• chat 10\n"), "{}", words.text);
        assert!(
            words.text.contains("• chat 3\n• and 2 more"),
            "{}",
            words.text
        );
        assert!(!words.text.contains("chat 2\n"), "{}", words.text);
        let just_begun = before_quitting(&Goings::default());
        assert!(
            just_begun.text.contains("just begun"),
            "{}",
            just_begun.text
        );
    }

    #[test]
    fn what_is_explained_says_how_one_comes_back_with_and_without_a_tray() {
        let goings = Goings::of(&library(&[("tides", RUNNING)]), BOOT);
        let tray = before_closing(&goings, WayBack::Tray, true).text;
        assert!(
            tray.contains("• tides") && tray.contains("in the tray"),
            "{tray}"
        );
        assert!(tray.contains("asked this once"), "{tray}");
        let start = before_closing(&goings, WayBack::Start, false).text;
        assert!(start.contains("starting Holdfast again"), "{start}");
        assert!(!start.contains("once"), "{start}");
    }

    fn turn(texts: &[(Part, &str)], outcome: TurnOutcome) -> TurnView {
        let at = Timestamp::from_millis(0);
        let items = texts.iter().zip(1..).map(|((part, text), n)| ItemView {
            item: ItemId::new(n),
            began_at: at,
            changed_at: at,
            body: ItemBody::Text {
                part: *part,
                text: (*text).to_owned(),
                open: false,
            },
        });
        TurnView {
            turn: TurnId::FIRST,
            model: ModelRef {
                provider: ProviderId::from_bits(1),
                provider_name: "p".to_owned(),
                model: "m".to_owned(),
            },
            started_at: at,
            items: items.collect(),
            attempts: Vec::new(),
            slept: Vec::new(),
            outcome: Some(outcome),
            ended_at: Some(at),
        }
    }

    fn body(texts: &[(Part, &str)], outcome: TurnOutcome) -> Option<String> {
        of_the_end(SessionId::from_bits(1), "t", &turn(texts, outcome)).map(|notice| notice.body)
    }

    #[test]
    fn a_notification_says_the_first_words_of_the_answer_on_one_line() {
        let completed = TurnOutcome::Completed {
            stop: StopReason::EndOfTurn,
        };
        let thought = (Part::Reasoning, "hm");
        let texts = [
            (Part::Answer, "I will look."),
            thought,
            (Part::Answer, "Kelp\n\n\tgrips\u{7} stone."),
        ];
        assert_eq!(
            body(&texts, completed.clone()).as_deref(),
            Some("Kelp grips stone.")
        );
        assert_eq!(
            body(&[thought], completed.clone()).as_deref(),
            Some("The answer is there.")
        );
        let long = body(&[(Part::Answer, &"wörd ".repeat(100))], completed).expect("a notice");
        assert_eq!(long.chars().count(), BODY_CHARS_MAX);
        assert!(long.ends_with("wörd…"), "{long}");
    }

    #[test]
    fn a_failure_is_told_in_its_own_words_and_what_was_stopped_is_not_told() {
        let failure = Failure::new(FailureCode::StreamCut, "the connection ended");
        assert_eq!(
            body(&[], TurnOutcome::Failed { failure }).as_deref(),
            Some("Failed: the connection ended")
        );
        let by = protocol::CancelledBy::User;
        assert_eq!(body(&[], TurnOutcome::Cancelled { by }), None);
        let why = protocol::InterruptedWhy::AppExit;
        assert_eq!(body(&[], TurnOutcome::Interrupted { why }), None);
        let session = SessionId::from_bits(1);
        assert_eq!(of_an_end(session, "t", OutcomeKind::Cancelled), None);
        assert_eq!(of_an_end(session, "t", OutcomeKind::Interrupted), None);
        assert!(of_an_end(session, "t", OutcomeKind::Failed).is_some());
    }
}
