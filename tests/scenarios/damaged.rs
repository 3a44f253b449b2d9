//! Damage: the app opens all the same, the damaged file is kept, and every event that can still be read is there.

use std::{
    fs,
    io::{Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use engine::{Fault, LogCounters, OpenError, Trouble, WriteStep};
use protocol::{Dialect, ErrorCode, InterruptedWhy, SessionId, TurnOutcome};
use rusqlite::Connection;
use tests::{
    model_server::{Answer, ModelServer},
    sentinel::Sentinel,
    verdict::judge,
    world::World,
};

const DIALECT: Dialect = Dialect::Ollama;

/// A folder with two finished conversations in it, and no engine on it.
struct Folder {
    world: World,
    server: ModelServer,
    sessions: [SessionId; 2],
    words: [Sentinel; 2],
}

async fn folder() -> Folder {
    let server = ModelServer::start(DIALECT);
    let mut world = World::new().await;
    world.add(server.provider()).await;
    let words = [Sentinel::new("kelp"), Sentinel::new("stone")];
    let mut sessions = Vec::new();
    let page = world.page().await;
    for word in &words {
        // Many small events, on pages of their own.
        let answer = (0..40).fold(Answer::new(DIALECT), |answer, n| {
            let thought = format!("Hm {n}, what is it that holds on to a stone? ");
            answer.thinks(&thought).says(&format!("Word {n}. "))
        });
        server.script(answer.says(&word.to_string()).ends());
        let session = world
            .begin_with(server.model(), &format!("About {word}?"))
            .await;
        page.follow(session).until_idle().await;
        sessions.push(session);
    }
    drop(page);
    world.quit().await;
    Folder {
        world,
        server,
        sessions: [sessions[0], sessions[1]],
        words,
    }
}

/// Another folder, with nothing in it yet.
async fn empty(like: &Folder) -> Folder {
    Folder {
        world: World::without_engine(),
        server: ModelServer::start(DIALECT),
        sessions: like.sessions,
        words: [Sentinel::new("kelp"), Sentinel::new("stone")],
    }
}

impl Folder {
    fn database(&self) -> PathBuf {
        self.world.data_dir().join("holdfast.sqlite3")
    }

    /// Files whose names begin so.
    fn files(&self, beginning: &str) -> Vec<PathBuf> {
        let mut files: Vec<_> = fs::read_dir(self.world.data_dir())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| {
                path.file_name()
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .starts_with(beginning)
            })
            .collect();
        files.sort();
        files
    }

    fn counters(&self) -> LogCounters {
        self.world.engine().counters().log
    }

    /// Opens the engine on the damaged folder. The damaged file is kept as it was, and a new word is taken and kept.
    async fn opens_and_keeps(&mut self, what: &str) {
        let damaged = fs::read(self.database()).unwrap_or_default();
        self.world.open().await;
        let kept = self.files("holdfast-damaged-");
        let main = kept
            .first()
            .unwrap_or_else(|| panic!("{what}: nothing was kept"));
        assert_eq!(
            fs::read(main).unwrap(),
            damaged,
            "{what}: the kept file was altered"
        );
        assert_eq!(
            self.files("holdfast.salvage"),
            Vec::<PathBuf>::new(),
            "{what}: leftovers"
        );
        self.goes_on(what).await;
    }

    async fn goes_on(&self, what: &str) {
        let last = self.sessions[1];
        self.server.script(Answer::whole(DIALECT, "Still here."));
        let window = self.world.page().await.follow(last);
        window.until_idle().await;
        self.world.say(last, "Are you there?").await;
        window.sees("Still here.").await;
        let text = window.until_idle().await;
        assert_eq!(self.words[1].count_in(&text), 2, "{what}: {text}");
        judge(&self.world, last, &[&window]).await;
    }

    async fn text_of(&self, session: SessionId) -> String {
        self.world.page().await.follow(session).until_idle().await
    }
}

fn raw(path: &Path) -> Connection {
    Connection::open(path).unwrap()
}

/// Where the pages of a table or an index are, root first, and how large a page is.
fn pages_of(path: &Path, name: &str) -> (Vec<u64>, u64) {
    let db = raw(path);
    let size: i64 = db
        .query_row("PRAGMA page_size", [], |row| row.get(0))
        .unwrap();
    let pages = db
        .prepare(
            "SELECT pageno FROM dbstat WHERE name = ?1 AND pagetype <> 'overflow' ORDER BY path",
        )
        .unwrap()
        .query_map([name], |row| row.get::<_, i64>(0))
        .unwrap()
        .map(|page| page.unwrap() as u64)
        .collect();
    (pages, size as u64)
}

fn scribble(path: &Path, page: u64, size: u64) {
    overwrite(path, (page - 1) * size, &vec![0xa5; size as usize]);
}

fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    let mut file = fs::File::options().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(bytes).unwrap();
}

fn note(folder: &Folder) {
    fs::write(
        folder.world.data_dir().join("holdfast.damaged"),
        "met by a test\n",
    )
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_no_database_is_kept_and_the_app_opens() {
    let mut world = World::without_engine();
    let file = world.data_dir().join("holdfast.sqlite3");
    fs::write(&file, "this was never a database ".repeat(100)).unwrap();
    world.open().await;
    let kept: Vec<_> = fs::read_dir(world.data_dir())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().contains("holdfast-damaged-"))
        .collect();
    assert_eq!(kept.len(), 1);
    assert!(fs::read(&kept[0]).unwrap().starts_with(b"this was never"));
    world.quit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_database_is_not_taken_for_a_new_one() {
    let mut folder = folder().await;
    fs::write(folder.database(), "").unwrap();
    folder.world.open().await;
    assert_eq!(folder.files("holdfast-damaged-").len(), 1, "it says so");
    let fresh = World::without_engine();
    fs::write(fresh.data_dir().join("holdfast.sqlite3"), "").unwrap();
    let engine = fresh
        .try_open()
        .await
        .expect("an empty file is a new database");
    engine.shutdown(InterruptedWhy::AppExit).await;
    let files = fs::read_dir(fresh.data_dir()).unwrap().count();
    assert!(files < 5, "nothing was there to be kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn whichever_page_of_the_events_is_damaged_the_others_are_saved() {
    let folder = folder().await;
    let (pages, size) = pages_of(&folder.database(), "events");
    let whole = fs::read(folder.database()).unwrap();
    let events: i64 = raw(&folder.database())
        .query_row("SELECT count(*) FROM events", [], |row| row.get(0))
        .unwrap();
    assert!(pages.len() > 6, "{pages:?}");
    for page in &pages {
        // A folder of its own: connections of an engine that was closed may still be about to go.
        let sessions = folder.sessions;
        let mut folder = empty(&folder).await;
        fs::write(folder.database(), &whole).unwrap();
        scribble(&folder.database(), *page, size);
        note(&folder);
        folder.world.open().await;
        let saved = folder.counters().salvaged_events as i64;
        assert!(
            saved < events && saved >= events - 60,
            "page {page}: {saved} of {events}"
        );
        let library = folder.world.line.library().await.unwrap();
        assert_eq!(library.sessions.len(), 2, "page {page}: both are listed");
        let [salvage] = &library.salvages[..] else {
            panic!("page {page}: the library says {:?}", library.salvages)
        };
        assert_eq!(salvage.events as i64, saved, "page {page}");
        assert!(
            folder.world.data_dir().join(&salvage.kept_as).exists(),
            "page {page}: {salvage:?}"
        );
        // Events lost at the very end of a stream leave no hole behind that would tell.
        let says_so = salvage.found.contains("cannot be read any more");
        assert!(says_so || salvage.incomplete == 0, "{salvage:?}");
        for session in sessions {
            folder
                .world
                .page()
                .await
                .follow(session)
                .until_shown("it", |_| Some(()))
                .await;
            let reader = folder.world.reader();
            let seqs = folder.world.events(session);
            assert!(
                seqs.iter()
                    .zip(1..)
                    .all(|(event, seq)| event.seq.get() == seq),
                "page {page}"
            );
            let page = reader.transcript(session).unwrap();
            assert!(
                page.turns.iter().all(|turn| turn.outcome.is_some()),
                "page {page:?}"
            );
        }
        folder.world.quit().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_beginning_of_the_file_costs_nothing_but_what_was_on_it() {
    let mut folder = folder().await;
    scribble(&folder.database(), 1, 1024);
    folder.opens_and_keeps("the first page").await;
    for (session, word) in folder.sessions.into_iter().zip(&folder.words) {
        assert!(word.count_in(&folder.text_of(session).await) >= 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_was_cut_short_gives_what_is_left_of_it() {
    let mut folder = folder().await;
    let bytes = fs::read(folder.database()).unwrap();
    fs::write(folder.database(), &bytes[..bytes.len() / 2]).unwrap();
    note(&folder);
    folder.world.open().await;
    assert!(folder.counters().salvaged_events > 5);
    assert_eq!(folder.files("holdfast-damaged-").len(), 1);
    let listed = folder.world.line.library().await.unwrap().sessions.len();
    assert!(listed >= 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_cache_or_index_is_made_anew_and_nothing_is_salvaged() {
    for name in [
        "turn_views",
        "turns",
        "heads",
        "shelf",
        "one_end_per_turn",
        "one_result_per_call",
    ] {
        let mut folder = folder().await;
        let before = folder
            .world
            .reader()
            .transcript(folder.sessions[0])
            .unwrap();
        let (pages, size) = pages_of(&folder.database(), name);
        scribble(&folder.database(), pages[0], size);
        note(&folder);
        folder.world.open().await;
        assert_eq!(
            folder.files("holdfast-damaged-"),
            Vec::<PathBuf>::new(),
            "{name}"
        );
        assert_eq!(folder.counters().salvaged_events, 0, "{name}");
        assert_eq!(
            folder
                .world
                .reader()
                .transcript(folder.sessions[0])
                .unwrap(),
            before,
            "{name}"
        );
        folder.goes_on(name).await;
        let found: String = raw(&folder.database())
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .unwrap();
        assert_eq!(found, "ok", "{name}");
    }
}

/// Leaves a folder as a kill leaves it: everything in the write-ahead log.
async fn killed(folder: &mut Folder) {
    folder.world.open().await;
    let copy = tempfile::tempdir().unwrap();
    folder.server.script(
        Answer::new(DIALECT)
            .says("One. ")
            .gate("middle")
            .says_word_by_word(&"two ".repeat(500))
            .ends(),
    );
    folder.world.say(folder.sessions[0], "Again?").await;
    let window = folder.world.page().await.follow(folder.sessions[0]);
    folder.server.pass("middle").await;
    window.sees("Again?").await;
    window.until_idle().await;
    for name in ["holdfast.sqlite3", "holdfast.sqlite3-wal"] {
        fs::copy(folder.world.data_dir().join(name), copy.path().join(name)).unwrap();
    }
    drop(window);
    folder.world.quit().await;
    for name in ["holdfast.sqlite3", "holdfast.sqlite3-wal"] {
        fs::copy(copy.path().join(name), folder.world.data_dir().join(name)).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_ahead_log_that_is_damaged_in_the_middle_does_not_lose_what_is_behind() {
    let mut folder = folder().await;
    killed(&mut folder).await;
    let log = folder.world.data_dir().join("holdfast.sqlite3-wal");
    let length = fs::metadata(&log).unwrap().len();
    // A page image in the second frame of some thirty: SQLite alone would stop there, in silence.
    overwrite(&log, 32 + 24 + 1024 + 24 + 100, &[0xa5; 64]);
    let damaged = fs::read(&log).unwrap();
    folder.opens_and_keeps("a frame").await;
    let text = folder.text_of(folder.sessions[0]).await;
    assert!(text.contains("One. two two"), "{text}");
    assert!(text.ends_with("(completed)\n"), "{text}");
    let kept = folder.files("holdfast-damaged-");
    assert_eq!(kept.len(), 2, "{kept:?}");
    assert_eq!(fs::read(&kept[1]).unwrap(), damaged, "its log is kept too");
    assert!(length > 10 * 1048);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_ahead_log_without_its_header_or_without_its_database_is_read_all_the_same() {
    for what in ["header", "database"] {
        let mut folder = folder().await;
        killed(&mut folder).await;
        match what {
            "header" => overwrite(
                &folder.world.data_dir().join("holdfast.sqlite3-wal"),
                0,
                &[0; 32],
            ),
            _ => fs::write(folder.database(), "").unwrap(),
        }
        folder.world.open().await;
        let text = folder.text_of(folder.sessions[0]).await;
        assert!(text.contains("two two"), "{what}: {text}");
        assert!(text.ends_with("(completed)\n"), "{what}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_salvage_that_was_cut_off_is_ended_by_the_next_start() {
    let mut folder = folder().await;
    scribble(&folder.database(), 1, 1024);
    let damaged = fs::read(folder.database()).unwrap();
    folder.world.open().await;
    folder.world.quit().await;
    let kept = folder.files("holdfast-damaged-");
    let whole = fs::read(folder.database()).unwrap();
    // As a crash leaves it before each of the three renames.
    for moved in [false, true] {
        fs::remove_file(&kept[0]).ok();
        fs::write(folder.world.data_dir().join("holdfast.salvaged"), &whole).unwrap();
        let old = if moved {
            kept[0].clone()
        } else {
            folder.database()
        };
        fs::remove_file(folder.database()).unwrap();
        fs::write(&old, &damaged).unwrap();
        folder.world.open().await;
        folder.world.quit().await;
        assert_eq!(folder.files("holdfast-damaged-"), kept);
        assert_eq!(fs::read(&kept[0]).unwrap(), damaged);
    }
    folder.world.open().await;
    folder.goes_on("after all that").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_was_open_in_the_damaged_file_is_interrupted_in_the_new_one() {
    let mut folder = folder().await;
    folder.world.open().await;
    folder
        .server
        .script(Answer::new(DIALECT).says("Half of ").goes_silent());
    folder.world.say(folder.sessions[0], "More?").await;
    let window = folder.world.page().await.follow(folder.sessions[0]);
    window.sees("Half of ").await;
    let copy = tempfile::tempdir().unwrap();
    for name in ["holdfast.sqlite3", "holdfast.sqlite3-wal"] {
        fs::copy(folder.world.data_dir().join(name), copy.path().join(name)).unwrap();
    }
    drop(window);
    folder.world.quit().await;
    for name in ["holdfast.sqlite3", "holdfast.sqlite3-wal"] {
        fs::copy(copy.path().join(name), folder.world.data_dir().join(name)).unwrap();
    }
    let log = folder.world.data_dir().join("holdfast.sqlite3-wal");
    overwrite(&log, 0, &[0; 32]);
    folder.opens_and_keeps("with an open turn").await;
    let stored = folder
        .world
        .reader()
        .transcript(folder.sessions[0])
        .unwrap();
    let why = InterruptedWhy::Crash;
    assert_eq!(
        stored.turns[1].outcome,
        Some(TurnOutcome::Interrupted { why })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_met_while_running_names_the_file_and_the_next_start_looks_into_it() {
    let mut folder = folder().await;
    folder.world.open().await;
    folder
        .world
        .faults
        .fail_write(1, WriteStep::Append, Fault::Damaged);
    let op = protocol::Op::RenameSession {
        session: folder.sessions[0],
        title: "New".to_owned(),
    };
    let refused = match folder.world.submit(op).await {
        Err(tests::backend::Missed::Refused(report)) => report,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused.code, ErrorCode::StorageFailed);
    assert!(
        refused.message.contains("holdfast.sqlite3 is damaged"),
        "{refused:?}"
    );
    assert!(refused.message.contains("open it again"), "{refused:?}");
    assert_eq!(
        folder.files("holdfast.damaged").len(),
        1,
        "a note for the next start"
    );
    // The disk had only slipped: the next start finds nothing, salvages nothing, and takes the note away.
    folder.world.restart().await;
    assert_eq!(folder.files("holdfast.damaged").len(), 0);
    assert_eq!(folder.files("holdfast-damaged-").len(), 0);
    folder.goes_on("after a slip").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_is_missing_is_met_by_a_reader_and_said_in_its_place_after_the_next_start() {
    let mut folder = folder().await;
    let db = raw(&folder.database());
    db.execute_batch("DROP TRIGGER events_are_never_deleted")
        .unwrap();
    let gone = db
        .execute("DELETE FROM events WHERE stream = 1 AND seq = 6", [])
        .unwrap();
    assert_eq!(gone, 1);
    db.close().unwrap();
    let reader = folder.world.reader();
    let hole = reader.events(
        protocol::StreamId::Session(folder.sessions[0]),
        None,
        usize::MAX,
    );
    assert!(
        hole.unwrap_err().to_string().contains("hole"),
        "it is not taken for the end"
    );
    folder.world.open().await;
    assert!(!folder.files("holdfast-damaged-").is_empty());
    let events = folder.world.events(folder.sessions[0]);
    assert_eq!(events[5].body.kind(), "Unsupported", "{:?}", events[5]);
    let text = folder.text_of(folder.sessions[0]).await;
    assert!(text.contains("EventLost"), "{text}");
    folder.goes_on("over a hole").await;
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn a_locked_database_is_refused_by_name_and_is_no_damage() {
    let folder = folder().await;
    let db = raw(&folder.database());
    db.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE;")
        .unwrap();
    let mut config = folder.world.config();
    config.lock_wait = std::time::Duration::from_millis(50);
    match engine::Engine::open(config).await {
        Err(OpenError::Storage(error)) => {
            assert_eq!(error.trouble(), Trouble::Locked);
            assert!(error.to_string().contains("holdfast.sqlite3"), "{error}");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("opened all the same"),
    }
    assert_eq!(folder.files("holdfast-damaged-").len(), 0);
}
