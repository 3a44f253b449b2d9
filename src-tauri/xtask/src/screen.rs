//! A screen where there is none: Xvfb on a display that it picks itself, with a session bus beside it.
//!
//! Invariant: both are owned, so they end with the chore; the display is ready before anything is started
//! on it. Kept by: Xvfb and dbus-daemon each say their address when they are ready, and that is waited for.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::{Failure, Result};
use crate::owned::{self, Group, Owned};
use crate::tool;

/// A debug build's first window takes about two seconds; a busy machine far longer.
const WINDOW_WAIT: Duration = Duration::from_secs(90);
/// After the window appeared: until the page in it has drawn itself.
const PAGE_WAIT: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// An empty page has one or two colours, text on it with its smoothed edges dozens.
const COLOURS_OF_A_PAGE_MIN: u32 = 24;
/// The part of the window's class that is the same however it is titled.
const WINDOW_CLASS: &str = "holdfast";

/// The session bus of one screen, or of a login that has none.
pub(crate) struct SessionBus {
    _daemon: Owned,
    address: String,
}

impl SessionBus {
    pub(crate) fn start() -> Result<Self> {
        let mut command = owned::helper("dbus-daemon");
        command.args(["--session", "--nofork", "--nopidfile", "--print-address=1"]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let daemon = Owned::start(&mut command, "dbus-daemon", Group::Own)?;
        let address = first_line(&daemon, "dbus-daemon")?;
        Ok(Self {
            _daemon: daemon,
            address,
        })
    }

    /// One for an app on the user's own display, if the login did not start any.
    pub(crate) fn start_if_none() -> Result<Option<Self>> {
        let set = std::env::var_os("DBUS_SESSION_BUS_ADDRESS").is_some();
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").unwrap_or_default();
        if set || Path::new(&runtime).join("bus").exists() || tool::on_path("dbus-daemon").is_none()
        {
            return Ok(None);
        }
        Self::start().map(Some)
    }

    pub(crate) fn show_to(&self, command: &mut Command) {
        command.env("DBUS_SESSION_BUS_ADDRESS", &self.address);
    }
}

/// Xvfb and its session bus.
pub(crate) struct VirtualScreen {
    // Fields are dropped in this order: the bus before the display its services may use.
    bus: SessionBus,
    _xvfb: Owned,
    display: String,
}

impl VirtualScreen {
    pub(crate) fn start() -> Result<Self> {
        let mut command = owned::helper("Xvfb");
        command.args([
            "-displayfd",
            "1",
            "-screen",
            "0",
            "1280x800x24",
            "-nolisten",
            "tcp",
            "-noreset",
        ]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let xvfb = Owned::start(&mut command, "Xvfb", Group::Own)?;
        let display = format!(":{}", first_line(&xvfb, "Xvfb")?);
        Ok(Self {
            bus: SessionBus::start()?,
            _xvfb: xvfb,
            display,
        })
    }

    pub(crate) fn display(&self) -> &str {
        &self.display
    }

    /// Lets a program appear here and nowhere else.
    pub(crate) fn show_to(&self, command: &mut Command) {
        command
            .env("DISPLAY", &self.display)
            .env("GDK_BACKEND", "x11")
            .env_remove("WAYLAND_DISPLAY");
        // No screen reader listens here; GTK would wait for one and complain.
        command.env("NO_AT_BRIDGE", "1");
        self.bus.show_to(command);
    }

    /// Waits until the app's window is on the screen.
    ///
    /// # Errors
    /// The app ended, or its window did not appear in time.
    pub(crate) fn wait_for_window(&self, app: &Owned) -> Result<()> {
        let until = Instant::now() + WINDOW_WAIT;
        while !tool::succeeds(self.tool("xdotool").args([
            "search",
            "--onlyvisible",
            "--class",
            WINDOW_CLASS,
        ])) {
            if let Some(status) = app.ended()? {
                return Err(Failure::new(
                    format!("the app ended with {status} before its window appeared"),
                    "read what it said above",
                ));
            }
            if Instant::now() >= until {
                return Err(Failure::new(
                    format!("no window appeared in {} s", WINDOW_WAIT.as_secs()),
                    "read what the app said above, and its log in the data folder",
                ));
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Saves a picture as soon as the page has drawn itself, or of what is there when that takes too long.
    pub(crate) fn save_picture(&self, file: &Path) -> Result<Painted> {
        let until = Instant::now() + PAGE_WAIT;
        let mut before = 0;
        let painted = loop {
            let colours = self.colours();
            if colours >= COLOURS_OF_A_PAGE_MIN && colours == before {
                break Painted::Yes;
            }
            if Instant::now() >= until {
                break Painted::NotYet;
            }
            before = colours;
            thread::sleep(LOOK_EVERY);
        };
        let mut picture = self.tool("import");
        picture.args(["-silent", "-window", "root"]).arg(file);
        tool::capture(
            &mut picture,
            "run `cargo xtask setup --window-tests`, which brings ImageMagick",
        )?;
        Ok(painted)
    }

    fn colours(&self) -> u32 {
        let mut count = self.tool("import");
        count.args(["-silent", "-window", "root", "-format", "%k", "info:-"]);
        // No answer means nothing to see yet; the wait that asks is bounded.
        tool::capture(&mut count, "")
            .ok()
            .and_then(|told| told.trim().parse().ok())
            .unwrap_or(0)
    }

    fn tool(&self, name: &str) -> Command {
        let mut command = tool::program(name);
        command.env("DISPLAY", &self.display);
        command
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Painted {
    Yes,
    NotYet,
}

/// What a program says when it is ready; it closes its output when it could not become so.
fn first_line(program: &Owned, name: &str) -> Result<String> {
    let mut line = String::new();
    if let Some(out) = program.stdout() {
        BufReader::new(out)
            .read_line(&mut line)
            .map_err(|error| Failure::io(format!("could not read what {name} says"), &error))?;
    }
    match line.trim() {
        "" => Err(Failure::new(
            format!("{name} ended without becoming ready"),
            format!("run `{name}` by hand to see what it objects to"),
        )),
        ready => Ok(ready.to_owned()),
    }
}
