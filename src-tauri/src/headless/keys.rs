//! Single keys, for whoever goes through a turn event by event.
//!
//! Invariant: the terminal is left as it was found, however this ends. Kept by: [`Quiet`] puts it back when it is
//! dropped, and signals are ours, so that none of them ends the process in between.

use std::{
    io::{self, IsTerminal, Read},
    thread,
};

use tokio::sync::mpsc;

/// Keys that wait to be looked at; whoever types ahead is not ahead by more.
const KEYS_MAX: usize = 16;

/// What a key means here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// Enter or the space bar: one more.
    Next,
    /// q, or nobody is there any more.
    Leave,
}

/// The keyboard, key by key.
pub(super) struct Keys {
    pressed: mpsc::Receiver<Key>,
    _quiet: Quiet,
}

impl Keys {
    /// Whether somebody sits there.
    pub(super) fn are_there() -> bool {
        io::stdin().is_terminal()
    }

    /// Listens from now on.
    ///
    /// # Errors
    /// The terminal cannot be set up, or the system gives no thread.
    pub(super) fn begin() -> io::Result<Self> {
        let quiet = Quiet::begin()?;
        let (presses, pressed) = mpsc::channel(KEYS_MAX);
        // It may stay in a read for ever; it holds nothing, and the process leaves without it.
        thread::Builder::new()
            .name("keys".to_owned())
            .spawn(move || {
                let mut stdin = io::stdin().lock();
                let mut byte = [0];
                loop {
                    let key = match stdin.read(&mut byte) {
                        Ok(1..) => key(byte),
                        Ok(0) | Err(_) => Some(Key::Leave),
                    };
                    if key.is_some_and(|key| presses.blocking_send(key).is_err()) {
                        return;
                    }
                    if key == Some(Key::Leave) {
                        return;
                    }
                }
            })?;
        Ok(Self {
            pressed,
            _quiet: quiet,
        })
    }

    /// The next key that means something. Cancel safe: one that was not returned is returned by the next call.
    pub(super) async fn next(&mut self) -> Key {
        self.pressed.recv().await.unwrap_or(Key::Leave)
    }
}

fn key([byte]: [u8; 1]) -> Option<Key> {
    /// Ctrl-D: a terminal that passes on single keys passes it on too.
    const END: u8 = 4;
    match byte {
        b'\n' | b'\r' | b' ' => Some(Key::Next),
        b'q' | b'Q' | END => Some(Key::Leave),
        _ => None,
    }
}

/// A terminal that passes keys on at once, and does not show them.
#[cfg(unix)]
struct Quiet(rustix::termios::Termios);

#[cfg(unix)]
impl Quiet {
    fn begin() -> io::Result<Self> {
        use rustix::termios::{
            LocalModes, OptionalActions, SpecialCodeIndex, tcgetattr, tcsetattr,
        };
        let found = tcgetattr(io::stdin())?;
        let mut quiet = found.clone();
        quiet.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        quiet.special_codes[SpecialCodeIndex::VMIN] = 1;
        quiet.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(io::stdin(), OptionalActions::Now, &quiet)?;
        Ok(Self(found))
    }
}

#[cfg(unix)]
impl Drop for Quiet {
    fn drop(&mut self) {
        use rustix::termios::{OptionalActions, tcsetattr};
        if let Err(error) = tcsetattr(io::stdin(), OptionalActions::Now, &self.0) {
            tracing::warn!(%error, "the terminal stays as it was for single keys");
        }
    }
}

/// RULING: without termios a terminal passes on lines, so it takes Enter after a key. What would reopen it: a Windows
/// build that is tested.
#[cfg(not(unix))]
struct Quiet;

#[cfg(not(unix))]
impl Quiet {
    fn begin() -> io::Result<Self> {
        Ok(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enter_and_space_go_on_and_q_leaves() {
        let meant = |keys: &str| {
            keys.bytes()
                .filter_map(|byte| key([byte]))
                .collect::<Vec<_>>()
        };
        assert_eq!(meant(" \n\r"), [Key::Next; 3]);
        assert_eq!(meant("qQ\u{4}"), [Key::Leave; 3]);
        assert_eq!(meant("xyz\u{1b}[A"), []);
    }
}
