//! What the cabinet keeps, for whom, and what a keychain may do to it.

use std::{
    collections::BTreeMap,
    sync::{
        Condvar,
        atomic::{AtomicUsize, Ordering},
    },
};

use protocol::{Connection, Dialect, Think};

use super::*;
use crate::gateway::tests::HandClock;

const SECRET: &str = "sk-cabinet-sentinel-0815";

/// A keychain of the test's, which answers only while it is not held.
#[derive(Default)]
struct Fake {
    items: Mutex<BTreeMap<String, String>>,
    held: Mutex<bool>,
    freed: Condvar,
    reads: AtomicUsize,
    refuses: Mutex<Option<KeychainError>>,
}

impl Fake {
    fn hold(&self, held: bool) {
        *self.held.lock().unwrap() = held;
        self.freed.notify_all();
    }

    fn pass(&self) -> Result<(), KeychainError> {
        let held = self.held.lock().unwrap();
        drop(self.freed.wait_while(held, |held| *held).unwrap());
        self.refuses.lock().unwrap().clone().map_or(Ok(()), Err)
    }
}

impl Keychain for Fake {
    fn look(&self) -> Result<String, KeychainError> {
        self.pass().map(|()| "the test’s keychain".to_owned())
    }
    fn read(&self, account: &str) -> Result<Option<String>, KeychainError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.pass()?;
        Ok(self.items.lock().unwrap().get(account).cloned())
    }
    fn write(&self, account: &str, secret: &str) -> Result<(), KeychainError> {
        self.pass()?;
        let mut items = self.items.lock().unwrap();
        items.insert(account.to_owned(), secret.to_owned());
        Ok(())
    }
    fn remove(&self, account: &str) -> Result<(), KeychainError> {
        self.pass()?;
        self.items.lock().unwrap().remove(account);
        Ok(())
    }
}

struct Room {
    dir: tempfile::TempDir,
    keychain: Arc<Fake>,
    clock: Arc<HandClock>,
}

impl Room {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            keychain: Arc::default(),
            clock: Arc::default(),
        }
    }

    fn cabinet(&self) -> Cabinet {
        Cabinet::open(
            self.dir.path(),
            self.keychain.clone(),
            self.clock.clone(),
            Harness::default(),
        )
    }

    fn ledger(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("keys.json")).unwrap_or_default()
    }
}

fn server(base_url: &str) -> Provider {
    Provider {
        id: ProviderId::from_bits(7),
        name: "Box".to_owned(),
        dialect: Dialect::OpenAiChat,
        base_url: base_url.to_owned(),
        num_ctx: None,
        keep_alive: None,
        files: Vec::new(),
        think: Think::default(),
        limits: None,
        connection: Connection::default(),
    }
}

fn keep(secret: &str, place: KeyPlace) -> KeyChange {
    KeyChange::Keep {
        name: SecretName::Key,
        typed: TypedKey::new(secret),
        place,
    }
}

fn key(secret: &str) -> Secrets {
    Secrets::of(ApiKey::new(secret))
}

fn run(story: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(story);
}

const HOME: &str = "https://api.example.com/v1";

#[test]
fn a_key_outlives_the_process_where_it_is_kept_and_nowhere_else() {
    run(async {
        for (place, outlives, in_file, in_keychain) in [
            (KeyPlace::Keychain, true, false, true),
            (KeyPlace::File, true, true, false),
            (KeyPlace::Memory, false, false, false),
        ] {
            let room = Room::new();
            let cabinet = room.cabinet();
            let server = server(HOME);
            let typed = format!("  {SECRET}\n");
            cabinet.change(&server, keep(&typed, place)).await.unwrap();
            assert_eq!(cabinet.secrets(&server).await, Ok(key(SECRET)), "{place:?}");
            assert_eq!(room.ledger().contains(SECRET), in_file, "{place:?}");
            let items = room.keychain.items.lock().unwrap().clone();
            assert_eq!(!items.is_empty(), in_keychain, "{place:?}");
            let report = format!("{:?}", cabinet.report(server.id, Some(&server)).await);
            assert!(!report.contains(SECRET), "{report}");
            assert!(report.contains("Some(\"0815\")"), "{report}");
            let next = room.cabinet();
            let then = if outlives {
                key(SECRET)
            } else {
                Secrets::default()
            };
            assert_eq!(next.secrets(&server).await, Ok(then), "{place:?}");
        }
    });
}

#[cfg(unix)]
#[test]
fn the_file_of_keys_is_for_this_user_alone_whatever_the_folder_is_like() {
    use std::os::unix::fs::PermissionsExt;
    run(async {
        let room = Room::new();
        let left = room.dir.path().join("keys.json.new");
        std::fs::write(&left, "left by a crash, for everybody to read").unwrap();
        let cabinet = room.cabinet();
        for place in [KeyPlace::File, KeyPlace::Keychain, KeyPlace::File] {
            cabinet
                .change(&server(HOME), keep(SECRET, place))
                .await
                .unwrap();
            let file = std::fs::metadata(room.dir.path().join("keys.json")).unwrap();
            assert_eq!(file.permissions().mode() & 0o777, 0o600);
        }
        assert!(!left.exists());
    });
}

#[test]
fn a_key_goes_to_the_origin_it_was_entered_for_until_the_user_says_otherwise() {
    run(async {
        let room = Room::new();
        let cabinet = room.cabinet();
        cabinet
            .change(&server(HOME), keep(SECRET, KeyPlace::File))
            .await
            .unwrap();
        let same = server("https://API.example.com:443/other/v1");
        assert_eq!(cabinet.secrets(&same).await, Ok(key(SECRET)));
        for elsewhere in [
            "http://api.example.com/v1",
            "https://api.example.com:8443/v1",
            "https://api.example.com.evil/v1",
        ] {
            let trouble = cabinet.secrets(&server(elsewhere)).await.unwrap_err();
            let expected = "https://api.example.com".to_owned();
            assert_eq!(
                trouble,
                KeyTrouble::ForAnother {
                    entered_for: expected
                }
            );
        }
        let moved = server("https://llm.example.com/v1");
        cabinet.change(&moved, KeyChange::Carry).await.unwrap();
        assert_eq!(cabinet.secrets(&moved).await, Ok(key(SECRET)));
        assert!(cabinet.secrets(&server(HOME)).await.is_err());
        // Entered anew for another address, the old ones are gone.
        let header = KeyChange::Keep {
            name: SecretName::Header {
                name: "X-Ticket".to_owned(),
            },
            typed: TypedKey::new("ticket"),
            place: KeyPlace::File,
        };
        cabinet.change(&server(HOME), header).await.unwrap();
        let secrets = cabinet.secrets(&server(HOME)).await.unwrap();
        assert_eq!(secrets.key, None);
        assert_eq!(secrets.headers["x-ticket"], ApiKey::new("ticket"));
    });
}

#[test]
fn a_key_that_moves_or_is_forgotten_leaves_nothing_where_it_was() {
    run(async {
        let room = Room::new();
        let cabinet = room.cabinet();
        let server = server(HOME);
        cabinet
            .change(&server, keep(SECRET, KeyPlace::Keychain))
            .await
            .unwrap();
        cabinet
            .change(&server, keep(SECRET, KeyPlace::File))
            .await
            .unwrap();
        assert!(room.keychain.items.lock().unwrap().is_empty());
        cabinet
            .change(&server, keep(SECRET, KeyPlace::Keychain))
            .await
            .unwrap();
        assert!(!room.ledger().contains(SECRET));
        let forget = KeyChange::Forget {
            name: SecretName::Key,
        };
        cabinet.change(&server, forget.clone()).await.unwrap();
        assert!(room.keychain.items.lock().unwrap().is_empty());
        assert_eq!(cabinet.secrets(&server).await, Ok(Secrets::default()));
        let again = cabinet.change(&server, forget).await.unwrap_err();
        assert_eq!(again.code, ErrorCode::NotFound);

        cabinet
            .change(&server, keep(SECRET, KeyPlace::Keychain))
            .await
            .unwrap();
        cabinet.forget_all_but(&BTreeSet::from([server.id])).await;
        assert_eq!(cabinet.secrets(&server).await, Ok(key(SECRET)));
        cabinet.forget_all_but(&BTreeSet::new()).await;
        assert!(room.keychain.items.lock().unwrap().is_empty());
        assert_eq!(cabinet.report(server.id, Some(&server)).await.kept, None);
    });
}

#[test]
fn a_keychain_that_waits_for_its_password_is_named_in_time_and_holds_up_no_other_server() {
    run(async {
        let room = Room::new();
        let kept = server(HOME);
        let before = room.cabinet();
        before
            .change(&kept, keep(SECRET, KeyPlace::Keychain))
            .await
            .unwrap();
        let cabinet = room.cabinet();
        room.keychain.hold(true);
        let other = Provider {
            id: ProviderId::from_bits(8),
            ..server("http://localhost:1")
        };
        assert_eq!(cabinet.secrets(&other).await, Ok(Secrets::default()));
        let time_passes = async {
            while !room.clock.waits().contains(&KEYCHAIN_WAIT) {
                tokio::task::yield_now().await;
            }
            room.clock.advance(KEYCHAIN_WAIT);
        };
        let (asked, ()) = tokio::join!(cabinet.secrets(&kept), time_passes);
        assert_eq!(asked, Err(KeyTrouble::Silent { seconds: 60 }));
        room.keychain.hold(false);
        assert_eq!(cabinet.secrets(&kept).await, Ok(key(SECRET)));
        let reads = room.keychain.reads.load(Ordering::SeqCst);
        assert_eq!(cabinet.secrets(&kept).await, Ok(key(SECRET)));
        assert_eq!(
            room.keychain.reads.load(Ordering::SeqCst),
            reads,
            "it is known by now"
        );
    });
}

#[test]
fn where_no_keychain_is_the_user_is_told_and_nothing_is_kept_unasked() {
    run(async {
        let room = Room::new();
        let why = KeychainError::Missing("no bus".to_owned());
        *room.keychain.refuses.lock().unwrap() = Some(why);
        let cabinet = room.cabinet();
        let report = cabinet.report(server(HOME).id, None).await;
        assert!(
            matches!(&report.keychain, KeychainReport::Missing { why } if why.contains("no bus"))
        );
        assert!(report.file.ends_with("keys.json"), "{}", report.file);
        let refused = cabinet
            .change(&server(HOME), keep(SECRET, KeyPlace::Keychain))
            .await;
        let words = refused.unwrap_err().to_string();
        assert!(
            words.contains("no bus") && !words.contains(SECRET),
            "{words}"
        );
        assert_eq!(cabinet.secrets(&server(HOME)).await, Ok(Secrets::default()));
        assert_eq!(room.ledger(), "");
    });
}

#[test]
fn a_list_of_keys_that_cannot_be_read_is_kept_beside_and_quoted_nowhere() {
    run(async {
        let room = Room::new();
        let path = room.dir.path().join("keys.json");
        std::fs::write(&path, format!("{{\"key\": \"{SECRET}\" oops")).unwrap();
        let cabinet = room.cabinet();
        let local = server("http://localhost:11434");
        assert_eq!(cabinet.secrets(&local).await, Ok(Secrets::default()));
        let trouble = cabinet
            .secrets(&server(HOME))
            .await
            .unwrap_err()
            .to_string();
        assert!(
            trouble.contains("keys.json") && !trouble.contains(SECRET),
            "{trouble}"
        );
        cabinet
            .change(&server(HOME), keep("another-key", KeyPlace::File))
            .await
            .unwrap();
        assert_eq!(cabinet.secrets(&server(HOME)).await, Ok(key("another-key")));
        let aside = std::fs::read_to_string(room.dir.path().join("keys.json.unreadable")).unwrap();
        assert!(aside.contains(SECRET));
    });
}

#[test]
fn what_no_header_can_hold_is_refused_before_it_is_kept() {
    run(async {
        let room = Room::new();
        let cabinet = room.cabinet();
        for typed in ["", "  ", "two\nlines", "ключ", "tab\there"] {
            let refused = cabinet
                .change(&server(HOME), keep(typed, KeyPlace::File))
                .await;
            let refused = refused.unwrap_err();
            assert!(
                matches!(refused.code, ErrorCode::Invalid { .. }),
                "{typed:?}"
            );
        }
        assert_eq!(room.ledger(), "");
    });
}

/// The secret header that some servers want beside the key.
fn ticket(secret: &str, place: KeyPlace) -> KeyChange {
    KeyChange::Keep {
        name: SecretName::Header {
            name: "X-Ticket".to_owned(),
        },
        typed: TypedKey::new(secret),
        place,
    }
}

/// Both in the keychain.
async fn keep_key_and_ticket(cabinet: &Cabinet, server: &Provider) {
    let place = KeyPlace::Keychain;
    for change in [keep(SECRET, place), ticket("ticket-1", place)] {
        cabinet.change(server, change).await.unwrap();
    }
}

#[test]
fn a_key_that_is_gone_from_the_keychain_can_be_replaced_or_forgotten_beside_a_header() {
    run(async {
        for forgotten in [false, true] {
            let room = Room::new();
            let server = server(HOME);
            let before = room.cabinet();
            keep_key_and_ticket(&before, &server).await;
            // Somebody cleans up in the keychain's own window.
            room.keychain.items.lock().unwrap().clear();
            let cabinet = room.cabinet();
            let trouble = cabinet.secrets(&server).await.unwrap_err();
            assert!(matches!(trouble, KeyTrouble::Gone(_)), "{trouble:?}");
            if forgotten {
                let name = SecretName::Key;
                cabinet
                    .change(&server, KeyChange::Forget { name })
                    .await
                    .unwrap();
                assert_eq!(cabinet.secrets(&server).await, Ok(Secrets::default()));
            } else {
                cabinet
                    .change(&server, keep("sk-new", KeyPlace::Keychain))
                    .await
                    .unwrap();
                assert_eq!(cabinet.secrets(&server).await, Ok(key("sk-new")));
                let kept = cabinet.report(server.id, None).await.kept.unwrap();
                assert_eq!(kept.headers, Vec::<String>::new(), "its value is gone too");
            }
        }
        // What only cannot be read now is not written over.
        let room = Room::new();
        let server = server(HOME);
        let before = room.cabinet();
        keep_key_and_ticket(&before, &server).await;
        let cabinet = room.cabinet();
        let locked = KeychainError::Locked("no password".to_owned());
        *room.keychain.refuses.lock().unwrap() = Some(locked);
        let refused = cabinet
            .change(&server, keep("sk-new", KeyPlace::File))
            .await;
        assert!(refused.unwrap_err().to_string().contains("no password"));
        *room.keychain.refuses.lock().unwrap() = None;
        let whole = cabinet.secrets(&server).await.unwrap();
        assert_eq!(whole.key, Some(ApiKey::new(SECRET)));
        assert_eq!(whole.headers.len(), 1);
    });
}

#[test]
fn a_copy_that_a_keychain_did_not_give_up_is_told_and_taken_out_at_the_next_start() {
    run(async {
        for place in [KeyPlace::File, KeyPlace::Memory] {
            let room = Room::new();
            let server = server(HOME);
            let cabinet = room.cabinet();
            cabinet
                .change(&server, keep(SECRET, KeyPlace::Keychain))
                .await
                .unwrap();
            let locked = KeychainError::Locked("no password".to_owned());
            *room.keychain.refuses.lock().unwrap() = Some(locked);
            cabinet.change(&server, keep(SECRET, place)).await.unwrap();
            assert_eq!(cabinet.secrets(&server).await, Ok(key(SECRET)));
            assert!(cabinet.report(server.id, None).await.left, "{place:?}");
            let servers = BTreeSet::from([server.id]);
            let next = room.cabinet();
            assert!(next.is_used(), "{place:?}: there is something to do");
            next.forget_all_but(&servers).await;
            assert!(
                next.report(server.id, None).await.left,
                "it is still locked"
            );
            *room.keychain.refuses.lock().unwrap() = None;
            let last = room.cabinet();
            last.forget_all_but(&servers).await;
            assert!(room.keychain.items.lock().unwrap().is_empty(), "{place:?}");
            assert!(!last.report(server.id, None).await.left);
            assert!(!room.ledger().contains("left"), "{}", room.ledger());
        }
    });
}

#[test]
fn what_a_keychain_takes_after_nobody_waited_any_more_does_not_stay_in_it() {
    run(async {
        let room = Room::new();
        let server = server(HOME);
        let cabinet = room.cabinet();
        room.keychain.hold(true);
        let time_passes = async {
            while !room.clock.waits().contains(&KEYCHAIN_WAIT) {
                tokio::task::yield_now().await;
            }
            room.clock.advance(KEYCHAIN_WAIT);
        };
        let change = keep(SECRET, KeyPlace::Keychain);
        let (refused, ()) = tokio::join!(cabinet.change(&server, change), time_passes);
        let words = refused.unwrap_err().to_string();
        assert!(words.contains("did not answer within 60 s"), "{words}");
        room.keychain.hold(false);
        // One question after the other: this one is answered after the one before.
        let report = cabinet.report(server.id, None).await;
        assert!(report.left && report.kept.is_none(), "{report:?}");
        assert_eq!(room.keychain.items.lock().unwrap().len(), 1, "it took it");
        let next = room.cabinet();
        next.forget_all_but(&BTreeSet::from([server.id])).await;
        assert!(room.keychain.items.lock().unwrap().is_empty());
        assert!(!next.is_used());
    });
}

#[test]
fn a_key_for_once_goes_out_with_the_headers_that_are_kept() {
    run(async {
        let room = Room::new();
        let server = server(HOME);
        let cabinet = room.cabinet();
        let lent = TypedKey::new("sk-for-once");
        cabinet.lend(&server, &lent).unwrap();
        assert_eq!(cabinet.secrets(&server).await, Ok(key("sk-for-once")));
        assert_eq!(
            room.keychain.reads.load(Ordering::SeqCst),
            0,
            "nothing is kept"
        );
        for change in [
            keep(SECRET, KeyPlace::Keychain),
            ticket("ticket-1", KeyPlace::Keychain),
        ] {
            cabinet.change(&server, change).await.unwrap();
        }
        let next = room.cabinet();
        next.lend(&server, &lent).unwrap();
        let both = next.secrets(&server).await.unwrap();
        assert_eq!(both.key, Some(ApiKey::new("sk-for-once")));
        assert_eq!(both.headers["x-ticket"], ApiKey::new("ticket-1"));
        let kept = next.report(server.id, Some(&server)).await.kept.unwrap();
        assert_eq!(kept.key, Some(hint(SECRET)), "what is kept stays as it is");
        assert!(!kept.elsewhere);
    });
}

#[test]
fn a_report_says_whether_the_server_is_where_its_key_was_entered_for() {
    run(async {
        let room = Room::new();
        let cabinet = room.cabinet();
        let typed = keep(SECRET, KeyPlace::File);
        cabinet.change(&server(HOME), typed).await.unwrap();
        for (base_url, elsewhere) in [
            (HOME, false),
            ("https://API.example.com:443/v2", false),
            ("https://api.example.com:8443/v1", true),
            ("http://api.example.com/v1", true),
        ] {
            let report = cabinet
                .report(server(HOME).id, Some(&server(base_url)))
                .await;
            assert_eq!(report.kept.unwrap().elsewhere, elsewhere, "{base_url}");
        }
    });
}
