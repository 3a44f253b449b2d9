//! Notifications, by the system's own service; a click on one opens its session.
//!
//! Invariant: a session has at most one notification at a time, the newest; a service that is missing, slow or gone
//! costs the notification and nothing else. On Linux the signals of all of them are subscribed to once, before the
//! first one is sent, so that no click comes too early to be heard.
//! Not here: whether anybody is to be told (`news`), and the words (`goings`).

use std::{collections::BTreeMap, sync::Arc};

use protocol::SessionId;
use tokio::sync::watch;

use super::goings::Notice;

/// What is done with a click.
type Clicked = Box<dyn Fn(SessionId) + Send + Sync>;

/// See the module.
pub(super) struct Notifier {
    standing: watch::Sender<Standing>,
    clicked: Clicked,
    #[cfg(target_os = "linux")]
    linux: linux::Service,
}

/// The notifications that somebody may still click on.
#[derive(Debug, Default)]
struct Standing {
    /// These are on their way.
    coming: usize,
    /// By the service's own number.
    there: BTreeMap<u32, SessionId>,
}

impl Notifier {
    /// A notification will be shown; from now on it is waited for.
    pub(super) fn announce(&self) {
        self.standing.send_modify(|standing| standing.coming += 1);
    }

    /// Ready when no notification stands that somebody might still click on, nor is announced. Cancel safe.
    pub(super) async fn until_none_stands(&self) {
        let mut standing = self.standing.subscribe();
        let none = standing.wait_for(|standing| standing.coming == 0 && standing.there.is_empty());
        // The sender lives as long as `self`.
        let _ = none.await;
    }

    fn stands(&self, number: u32, session: SessionId) {
        self.standing.send_modify(|standing| {
            standing.there.retain(|_, other| *other != session);
            standing.there.insert(number, session);
        });
    }

    fn is_gone(&self, number: u32) {
        self.standing.send_modify(|standing| {
            standing.there.remove(&number);
        });
    }

    /// What was announced is there, or will never be.
    fn has_come(&self) {
        self.standing
            .send_modify(|standing| standing.coming = standing.coming.saturating_sub(1));
    }
}

#[cfg(target_os = "linux")]
impl Notifier {
    /// On the session's bus. Call it on the main thread, whose loop hears the clicks.
    pub(super) fn new(clicked: impl Fn(SessionId) + Send + Sync + 'static) -> Arc<Self> {
        use gtk::gio;
        let bus = gio::bus_get_sync(gio::BusType::Session, gio::Cancellable::NONE);
        if let Err(error) = &bus {
            tracing::info!(%error, "there are no notifications without a session bus");
        }
        Self::on(bus.ok(), clicked)
    }
}

#[cfg(target_os = "linux")]
mod linux {
    //! `org.freedesktop.Notifications`, by hand: two calls and two signals.

    use std::sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, Ordering},
    };

    use gtk::{
        gio::{Cancellable, DBusCallFlags, DBusConnection, DBusSignalFlags},
        glib::{ToVariant, Variant, VariantDict, VariantTy},
    };
    use protocol::SessionId;

    use super::{Clicked, Notice, Notifier};

    const NAME: &str = "org.freedesktop.Notifications";
    const PATH: &str = "/org/freedesktop/Notifications";

    /// A service that takes longer hangs.
    const WAIT_MS: i32 = 5_000;
    /// The service's own idea of how long a notification stands.
    const AS_USUAL: i32 = -1;
    /// The action of a click on the notification itself.
    const DEFAULT: &str = "default";

    pub(super) struct Service {
        bus: Option<DBusConnection>,
        /// Whether the body is read as markup.
        markup: AtomicBool,
        /// What was heard of a number before its own call was answered.
        early: std::sync::Mutex<Early>,
    }

    #[derive(Default)]
    struct Early {
        calls: usize,
        heard: Vec<(u32, Heard)>,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Heard {
        Clicked,
        Closed,
    }

    impl Notifier {
        /// On this bus, if there is one.
        pub(super) fn on(
            bus: Option<DBusConnection>,
            clicked: impl Fn(SessionId) + Send + Sync + 'static,
        ) -> Arc<Self> {
            let clicked: Clicked = Box::new(clicked);
            let notifier = Arc::new(Self {
                standing: tokio::sync::watch::Sender::default(),
                clicked,
                linux: Service {
                    bus,
                    markup: AtomicBool::new(false),
                    early: std::sync::Mutex::default(),
                },
            });
            notifier.listen();
            notifier
        }

        fn listen(self: &Arc<Self>) {
            let Some(bus) = &self.linux.bus else { return };
            for (signal, what) in [
                ("ActionInvoked", Heard::Clicked),
                ("NotificationClosed", Heard::Closed),
            ] {
                let here = Arc::downgrade(self);
                bus.signal_subscribe(
                    Some(NAME),
                    Some(NAME),
                    Some(signal),
                    Some(PATH),
                    None,
                    DBusSignalFlags::NONE,
                    move |_, _, _, _, _, arguments| {
                        let number = arguments.try_child_value(0).and_then(|n| n.get::<u32>());
                        if let (Some(here), Some(number)) = (here.upgrade(), number) {
                            here.heard(number, what);
                        }
                    },
                );
            }
            let here = Arc::downgrade(self);
            bus.call(
                Some(NAME),
                PATH,
                NAME,
                "GetCapabilities",
                None,
                VariantTy::new("(as)").ok(),
                DBusCallFlags::NONE,
                WAIT_MS,
                Cancellable::NONE,
                move |answer| {
                    let known = answer
                        .ok()
                        .and_then(|a| a.child_value(0).get::<Vec<String>>());
                    if let (Some(here), Some(known)) = (here.upgrade(), known) {
                        let markup = known.iter().any(|word| word == "body-markup");
                        here.linux.markup.store(markup, Ordering::Relaxed);
                    }
                },
            );
        }

        /// Shows a notification in place of the session's last one. Call it where this was made: on the main thread.
        pub(in crate::windows) fn show(self: &Arc<Self>, notice: &Notice) {
            let Some(bus) = &self.linux.bus else {
                return self.has_come();
            };
            let session = notice.session;
            self.early().calls += 1;
            let here = Arc::clone(self);
            bus.call(
                Some(NAME),
                PATH,
                NAME,
                "Notify",
                Some(&self.arguments(notice)),
                VariantTy::new("(u)").ok(),
                DBusCallFlags::NONE,
                WAIT_MS,
                Cancellable::NONE,
                move |answer| {
                    match answer {
                        Ok(answer) => {
                            if let Some(number) = answer.child_value(0).get::<u32>() {
                                here.stands(number, session);
                            }
                        }
                        Err(error) => tracing::info!(%error, "a notification was not shown"),
                    }
                    here.answered();
                    here.has_come();
                },
            );
        }

        fn arguments(&self, notice: &Notice) -> Variant {
            let standing = self.standing.borrow();
            let before = standing.there.iter().find(|(_, of)| **of == notice.session);
            let hints = VariantDict::new(None);
            hints.insert("desktop-entry", "holdfast");
            hints.insert("category", "im.received");
            let body = if self.linux.markup.load(Ordering::Relaxed) {
                escaped(&notice.body)
            } else {
                notice.body.clone()
            };
            Variant::tuple_from_iter([
                "Holdfast".to_variant(),
                before.map_or(0, |(number, _)| *number).to_variant(),
                "holdfast".to_variant(),
                notice.title.to_variant(),
                body.to_variant(),
                [DEFAULT, "Open"].as_slice().to_variant(),
                hints.end(),
                AS_USUAL.to_variant(),
            ])
        }

        fn heard(&self, number: u32, what: Heard) {
            let session = self.standing.borrow().there.get(&number).copied();
            match session {
                Some(session) => {
                    if what == Heard::Clicked {
                        (self.clicked)(session);
                    }
                    self.is_gone(number);
                }
                None => {
                    let mut early = self.early();
                    // Other programs' notifications have numbers too; they are of interest only while one of ours has none.
                    if early.calls > 0 {
                        early.heard.push((number, what));
                    }
                }
            }
        }

        /// A call has its answer: what was heard of its number before counts now.
        fn answered(&self) {
            let heard = {
                let mut early = self.early();
                early.calls = early.calls.saturating_sub(1);
                if early.calls == 0 {
                    std::mem::take(&mut early.heard)
                } else {
                    early.heard.clone()
                }
            };
            for (number, what) in heard {
                if self.standing.borrow().there.contains_key(&number) {
                    self.heard(number, what);
                }
            }
        }

        fn early(&self) -> std::sync::MutexGuard<'_, Early> {
            self.linux
                .early
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// Text that a service which reads markup shows as it is.
    fn escaped(text: &str) -> String {
        text.replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;")
    }

    #[cfg(test)]
    mod tests {
        //! Against a service of our own on a bus of our own; the loop is turned by hand, so everything happens here.

        use std::{
            io::{BufRead, BufReader},
            process::{Child, Command, Stdio},
            sync::Mutex,
        };

        use gtk::{gio, glib::MainContext};

        use super::*;

        const XML: &str = r#"<node><interface name="org.freedesktop.Notifications">
            <method name="GetCapabilities"><arg type="as" direction="out"/></method>
            <method name="Notify"><arg type="s" direction="in"/><arg type="u" direction="in"/>
              <arg type="s" direction="in"/><arg type="s" direction="in"/><arg type="s" direction="in"/>
              <arg type="as" direction="in"/><arg type="a{sv}" direction="in"/><arg type="i" direction="in"/>
              <arg type="u" direction="out"/></method>
            </interface></node>"#;

        /// A private bus; it ends with the test.
        struct Bus {
            daemon: Child,
            address: String,
        }

        impl Bus {
            fn start() -> Self {
                let mut daemon = Command::new("dbus-daemon")
                    .args(["--session", "--nofork", "--nopidfile", "--print-address=1"])
                    .stdin(Stdio::null())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::null())
                    .spawn()
                    .expect("dbus-daemon, which `cargo xtask setup --window-tests` installs");
                let mut address = String::new();
                let out = daemon.stdout.take().expect("a pipe");
                BufReader::new(out)
                    .read_line(&mut address)
                    .expect("an address");
                let address = address.trim().to_owned();
                Self { daemon, address }
            }

            fn connect(&self) -> DBusConnection {
                let flags = gio::DBusConnectionFlags::AUTHENTICATION_CLIENT
                    | gio::DBusConnectionFlags::MESSAGE_BUS_CONNECTION;
                DBusConnection::for_address_sync(&self.address, flags, None, Cancellable::NONE)
                    .expect("a connection")
            }
        }

        impl Drop for Bus {
            fn drop(&mut self) {
                // It has nobody else.
                self.daemon.kill().ok();
                self.daemon.wait().ok();
            }
        }

        /// What arrived: the number that was to be replaced, title and body.
        type Arrived = Arc<Mutex<Vec<(u32, String, String)>>>;

        /// A service that gives the numbers 41, 42 …, and clicks at once if that is wanted, before it answers.
        fn serve(on: &DBusConnection, hasty: bool) -> Arrived {
            let arrived = Arrived::default();
            let seen = Arc::clone(&arrived);
            let node = gio::DBusNodeInfo::for_xml(XML).expect("it is well formed");
            let interface = node.lookup_interface(NAME).expect("it is in there");
            on.register_object(
                PATH,
                &interface,
                move |bus, _, _, _, method, arguments, call| {
                    if method == "GetCapabilities" {
                        call.return_value(Some(&(vec!["body-markup"],).to_variant()));
                        return;
                    }
                    let text = |n| arguments.child_value(n).get::<String>().expect("text");
                    let before = arguments.child_value(1).get::<u32>().expect("a number");
                    let count = {
                        let mut seen = seen.lock().expect("no panic before");
                        seen.push((before, text(3), text(4)));
                        u32::try_from(seen.len()).expect("few")
                    };
                    if hasty {
                        invoke(&bus, 40 + count);
                    }
                    call.return_value(Some(&(40 + count,).to_variant()));
                },
                |_, _, _, _, _| false.to_variant(),
                |_, _, _, _, _, _| false,
            )
            .expect("registered");
            let owned = on
                .call_sync(
                    Some("org.freedesktop.DBus"),
                    "/org/freedesktop/DBus",
                    "org.freedesktop.DBus",
                    "RequestName",
                    Some(&(NAME, 0_u32).to_variant()),
                    None,
                    DBusCallFlags::NONE,
                    -1,
                    Cancellable::NONE,
                )
                .expect("an answer");
            assert_eq!(
                owned.child_value(0).get::<u32>(),
                Some(1),
                "the name is ours"
            );
            arrived
        }

        fn invoke(bus: &DBusConnection, number: u32) {
            let arguments = (number, DEFAULT).to_variant();
            bus.emit_signal(None, PATH, NAME, "ActionInvoked", Some(&arguments))
                .expect("sent");
        }

        fn notice(session: u128, body: &str) -> Notice {
            Notice {
                session: SessionId::from_bits(session),
                title: "Tides & kelp".to_owned(),
                body: body.to_owned(),
            }
        }

        /// Tells a story on a loop of its own; `until` turns it until something is so.
        fn story(
            hasty: bool,
            tell: impl FnOnce(
                &Arc<Notifier>,
                &DBusConnection,
                &Arrived,
                &Mutex<Vec<SessionId>>,
                &dyn Fn(&dyn Fn() -> bool),
            ),
        ) {
            let context = MainContext::new();
            context
                .with_thread_default(|| {
                    let bus = Bus::start();
                    let (theirs, ours) = (bus.connect(), bus.connect());
                    let arrived = serve(&theirs, hasty);
                    let clicks = Arc::new(Mutex::new(Vec::new()));
                    let clicked = Arc::clone(&clicks);
                    let notifier = Notifier::on(Some(ours), move |session| {
                        clicked.lock().expect("no panic before").push(session);
                    });
                    let until = |is_so: &dyn Fn() -> bool| {
                        while !is_so() {
                            context.iteration(true);
                        }
                    };
                    until(&|| notifier.linux.markup.load(Ordering::Relaxed));
                    tell(&notifier, &theirs, &arrived, &clicks, &until);
                })
                .expect("a context of this thread's own");
        }

        #[test]
        fn a_notification_arrives_once_and_its_click_opens_its_session() {
            story(false, |notifier, theirs, arrived, clicks, until| {
                notifier.announce();
                notifier.show(&notice(1, "1 < 2"));
                notifier.show(&notice(2, "other"));
                assert_eq!(notifier.standing.borrow().coming, 1, "it is waited for");
                until(&|| notifier.standing.borrow().there.len() == 2);
                let title = || "Tides & kelp".to_owned();
                assert_eq!(
                    *arrived.lock().expect("no panic before"),
                    [
                        (0, title(), "1 &lt; 2".to_owned()),
                        (0, title(), "other".to_owned())
                    ]
                );
                invoke(theirs, 7);
                invoke(theirs, 42);
                until(&|| !clicks.lock().expect("no panic before").is_empty());
                assert_eq!(
                    *clicks.lock().expect("no panic before"),
                    [SessionId::from_bits(2)],
                    "and a notification of somebody else opens nothing"
                );
                let standing = notifier.standing.borrow();
                assert_eq!((standing.coming, standing.there.len()), (0, 1));
            });
        }

        #[test]
        fn a_session_has_one_notification_the_newest() {
            story(false, |notifier, _, arrived, _, until| {
                notifier.show(&notice(1, "waits"));
                until(&|| notifier.standing.borrow().there.contains_key(&41));
                notifier.show(&notice(1, "done"));
                until(&|| notifier.standing.borrow().there.contains_key(&42));
                assert_eq!(notifier.standing.borrow().there.len(), 1);
                assert_eq!(
                    arrived.lock().expect("no panic before")[1].0,
                    41,
                    "it takes the other one's place"
                );
            });
        }

        #[test]
        fn a_click_that_is_faster_than_the_answer_is_heard() {
            story(true, |notifier, _, _, clicks, until| {
                notifier.show(&notice(1, "done"));
                until(&|| !clicks.lock().expect("no panic before").is_empty());
                assert!(notifier.standing.borrow().there.is_empty());
            });
        }

        #[test]
        fn without_a_bus_nothing_is_shown_and_nothing_breaks() {
            let notifier = Notifier::on(None, |_| {});
            notifier.announce();
            notifier.show(&notice(1, "done"));
            assert_eq!(notifier.standing.borrow().coming, 0, "nothing waits for it");
            assert!(notifier.standing.borrow().there.is_empty());
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl Notifier {
    /// By the platform's own service.
    pub(super) fn new(clicked: impl Fn(SessionId) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            standing: watch::Sender::default(),
            clicked: Box::new(clicked),
        })
    }

    /// Shows a notification, and waits for its click on a thread of its own.
    pub(super) fn show(self: &Arc<Self>, notice: &Notice) {
        use std::sync::atomic::{AtomicU32, Ordering};

        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let (here, session) = (Arc::clone(self), notice.session);
        let mut notification = notify_rust::Notification::new();
        notification
            .appname("Holdfast")
            .summary(&notice.title)
            .body(&notice.body);
        #[cfg(target_os = "windows")]
        notification.app_id("dev.holdfast.desktop");
        let begun = std::thread::Builder::new()
            .name("notification".to_owned())
            .spawn(move || {
                let shown = match notification.show() {
                    Ok(shown) => shown,
                    Err(error) => {
                        tracing::info!(%error, "a notification was not shown");
                        return here.has_come();
                    }
                };
                here.stands(number, session);
                here.has_come();
                let heard = Arc::clone(&here);
                let waited =
                    shown.wait_for_response(move |response: &notify_rust::NotificationResponse| {
                        if matches!(response, notify_rust::NotificationResponse::Default) {
                            (heard.clicked)(session);
                        }
                    });
                if let Err(error) = waited {
                    tracing::info!(%error, "a notification cannot be clicked on");
                }
                here.is_gone(number);
            });
        if let Err(error) = begun {
            tracing::info!(%error, "a notification was not shown");
            self.has_come();
        }
    }
}
