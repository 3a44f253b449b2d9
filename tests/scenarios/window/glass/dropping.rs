//! A file that is dragged over a window and dropped, as a file manager does it: by the XDND protocol, version 5
//! (freedesktop.org). WebDriver knows keys and pointers, and nothing that comes from another program.
//!
//! Invariant: it ends, with the window's word that it took the file, or by name.

use std::{error::Error, path::Path, time::Duration};

use tokio::time::{Instant, sleep};
use x11rb::{
    COPY_FROM_PARENT, CURRENT_TIME, NONE,
    connection::Connection,
    protocol::{
        Event,
        xproto::{
            AtomEnum, ClientMessageEvent, ConnectionExt as _, CreateWindowAux, EventMask, PropMode,
            SelectionNotifyEvent, SelectionRequestEvent, Window, WindowClass,
        },
    },
    rust_connection::RustConnection,
    wrapper::ConnectionExt as _,
};

use super::{LOOK_EVERY, PATIENCE};

x11rb::atom_manager! {
    /// Words of the protocol.
    Atoms: AtomsCookie {
        XdndAware,
        XdndSelection,
        XdndEnter,
        XdndPosition,
        XdndStatus,
        XdndDrop,
        XdndFinished,
        XdndActionCopy,
        URI_LIST: b"text/uri-list",
    }
}

/// The version that is spoken.
const VERSION: u32 = 5;
/// Of a status: the window would take what hangs over it here.
const WOULD_TAKE: u32 = 1;
/// Of the end: it took it.
const TAKEN: u32 = 1;
/// A hand comes from somewhere; what a page says to the first of them, it says before it was asked.
const MOVES_LEAST: u32 = 5;
/// A hand does not move faster.
const MOVES_EVERY: Duration = Duration::from_millis(100);

struct Dragging {
    connection: RustConnection,
    atoms: Atoms,
    source: Window,
    target: Window,
    uris: String,
}

/// The address of a file, as file managers write it.
pub(super) fn address(file: &Path) -> String {
    let path = file.display().to_string();
    format!("file://{}", path.replace(' ', "%20"))
}

/// Drags an address over the window that is the screen's only one, to a place on the screen, and lets go of it.
pub(super) async fn drop_address(address: &str, at: (u32, u32)) {
    let dragging = Dragging::begin(address).expect("a display with one window that takes files");
    let dropped = dragging.go(at).await;
    dropped.expect("the display answers");
}

impl Dragging {
    fn begin(address: &str) -> Result<Self, Box<dyn Error>> {
        let (connection, screen) = x11rb::connect(None)?;
        let atoms = Atoms::new(&connection)?.reply()?;
        let root = connection.setup().roots[screen].root;
        let source = connection.generate_id()?;
        connection.create_window(
            0,
            source,
            root,
            0,
            0,
            1,
            1,
            0,
            WindowClass::INPUT_OUTPUT,
            COPY_FROM_PARENT,
            &CreateWindowAux::new(),
        )?;
        connection.set_selection_owner(source, atoms.XdndSelection, CURRENT_TIME)?;
        let mut target = None;
        for window in connection.query_tree(root)?.reply()?.children {
            let aware = connection
                .get_property(false, window, atoms.XdndAware, AtomEnum::ATOM, 0, 1)?
                .reply()?;
            // The toolkit has others of its own, of one point and beside the screen.
            let place = connection.get_geometry(window)?.reply()?;
            if aware.length > 0 && place.width > 1 {
                target = Some(window);
            }
        }
        Ok(Self {
            connection,
            atoms,
            source,
            target: target.ok_or("no window takes files")?,
            uris: format!("{address}\r\n"),
        })
    }

    async fn go(self, (x, y): (u32, u32)) -> Result<(), Box<dyn Error>> {
        let atoms = &self.atoms;
        self.tell(atoms.XdndEnter, [VERSION << 24, atoms.URI_LIST, NONE, NONE])?;
        let until = Instant::now() + PATIENCE;
        let (mut moved, mut moves, mut dropped) = (None::<Instant>, 0, false);
        while Instant::now() < until {
            // A hand is never quite still, and the page decides only while something moves.
            if !dropped && moved.is_none_or(|moved| moved.elapsed() >= MOVES_EVERY) {
                let place = ((x + moves % 2) << 16) | y;
                let position = [0, place, CURRENT_TIME, atoms.XdndActionCopy];
                self.tell(atoms.XdndPosition, position)?;
                moved = Some(Instant::now());
                moves += 1;
            }
            while let Some(event) = self.connection.poll_for_event()? {
                match event {
                    Event::SelectionRequest(wanted) => self.hand_over(&wanted)?,
                    Event::ClientMessage(said) if said.type_ == atoms.XdndStatus => {
                        let [_, status, ..] = said.data.as_data32();
                        if !dropped && moves >= MOVES_LEAST && status & WOULD_TAKE != 0 {
                            dropped = true;
                            self.tell(atoms.XdndDrop, [0, CURRENT_TIME, 0, 0])?;
                        }
                    }
                    Event::ClientMessage(said) if said.type_ == atoms.XdndFinished => {
                        let [_, accepted, ..] = said.data.as_data32();
                        return match accepted & TAKEN {
                            0 => Err("the window did not take the file in the end".into()),
                            _ => Ok(()),
                        };
                    }
                    _ => {}
                }
            }
            sleep(LOOK_EVERY).await;
        }
        Err(format!("the window did not take the file; let go of it: {dropped}").into())
    }

    fn tell(&self, what: u32, [a, b, c, d]: [u32; 4]) -> Result<(), Box<dyn Error>> {
        let said = ClientMessageEvent::new(32, self.target, what, [self.source, a, b, c, d]);
        self.connection
            .send_event(false, self.target, EventMask::NO_EVENT, said)?;
        self.connection.flush()?;
        Ok(())
    }

    /// The address of the file, to whoever asks for it.
    fn hand_over(&self, wanted: &SelectionRequestEvent) -> Result<(), Box<dyn Error>> {
        let has_it = wanted.target == self.atoms.URI_LIST;
        if has_it {
            self.connection.change_property8(
                PropMode::REPLACE,
                wanted.requestor,
                wanted.property,
                wanted.target,
                self.uris.as_bytes(),
            )?;
        }
        let told = SelectionNotifyEvent {
            response_type: x11rb::protocol::xproto::SELECTION_NOTIFY_EVENT,
            sequence: 0,
            time: wanted.time,
            requestor: wanted.requestor,
            selection: wanted.selection,
            target: wanted.target,
            property: if has_it { wanted.property } else { NONE },
        };
        self.connection
            .send_event(false, wanted.requestor, EventMask::NO_EVENT, told)?;
        self.connection.flush()?;
        Ok(())
    }
}
