//! A second start on the same data folder hands its wish to the first one and leaves.
//!
//! Invariant: the lock of the database decides who is first, never this door; a name left over by a killed process
//! changes nothing. Kept by: listening only with the lock held, and taking an answer, not a file, for a living process.
//! RULING: on systems without Unix sockets nothing is handed over; the second start says in words that the first one
//! is open. What would reopen it: a Windows build that is tested.

use std::{io, path::Path};

use engine::gateway;
use protocol::Dialect;
use serde::{Deserialize, Serialize};

use crate::arguments::{ProviderWish, Wish};

/// What the second start says.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Arrival {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dialect: Option<Dialect>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<String>,
}

impl From<&Wish> for Arrival {
    fn from(wish: &Wish) -> Self {
        Self {
            dialect: wish.provider.as_ref().map(|provider| provider.dialect),
            address: wish
                .provider
                .as_ref()
                .map(|provider| provider.address.clone()),
            model: wish.model.clone(),
        }
    }
}

impl From<Arrival> for Wish {
    fn from(arrival: Arrival) -> Self {
        Self {
            provider: arrival
                .dialect
                .zip(arrival.address)
                .and_then(|(dialect, address)| {
                    // Both starts are one program: what the second one could read, the first can.
                    let base_url = gateway::base_url(&address, dialect).ok()?;
                    Some(ProviderWish {
                        dialect,
                        address,
                        base_url,
                    })
                }),
            model: arrival.model,
        }
    }
}

/// Whether a window that has `data_dir` open took the wish over.
pub(crate) fn handed_over(data_dir: &Path, wish: &Wish) -> bool {
    // No socket, nobody behind it, no answer: all the same to a start that only asks whether it is the second.
    door::hand_over(data_dir, &Arrival::from(wish)).unwrap_or(false)
}

/// Waits for other starts for as long as the process lives. Call it with the database's lock held.
///
/// # Errors
/// If the folder takes no socket; then other starts only say that this one is open.
pub(crate) fn listen(data_dir: &Path, arrived: impl Fn(Wish) + Send + 'static) -> io::Result<()> {
    door::listen(data_dir, move |arrival| arrived(Wish::from(arrival)))
}

#[cfg(unix)]
mod door {
    use std::{
        fs::{self, File},
        io::{self, BufRead, BufReader, Read, Write},
        os::{
            fd::AsRawFd,
            unix::net::{UnixListener, UnixStream},
        },
        path::{Path, PathBuf},
        time::Duration,
    };

    use super::Arrival;

    const NAME: &str = "window.sock";
    const TAKEN: &str = "taken\n";

    /// A wish is short; whoever sends more is not a start of ours.
    const BYTES_MAX: u64 = 64 * 1024;

    /// Both sides are on one machine and answer at once, unless they hang.
    const WAIT_MAX: Duration = Duration::from_secs(2);

    /// A socket's address holds about 100 bytes on every system; longer paths go by way of the open folder.
    const PATH_BYTES_MAX: usize = 100;

    pub(super) fn hand_over(data_dir: &Path, arrival: &Arrival) -> io::Result<bool> {
        let path = SocketPath::of(data_dir)?;
        let mut stream = UnixStream::connect(&path.path)?;
        stream.set_read_timeout(Some(WAIT_MAX))?;
        stream.set_write_timeout(Some(WAIT_MAX))?;
        let mut line = serde_json::to_string(arrival)?;
        line.push('\n');
        stream.write_all(line.as_bytes())?;
        let mut answer = String::new();
        BufReader::new(stream.take(BYTES_MAX)).read_line(&mut answer)?;
        Ok(answer == TAKEN)
    }

    pub(super) fn listen(
        data_dir: &Path,
        arrived: impl Fn(Arrival) + Send + 'static,
    ) -> io::Result<()> {
        let path = SocketPath::of(data_dir)?;
        match fs::remove_file(&path.path) {
            Ok(()) => {} // Left over by a killed process: the lock is ours.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let listener = UnixListener::bind(&path.path)?;
        std::thread::Builder::new()
            .name("second-start".to_owned())
            .spawn(move || {
                for stream in listener.incoming() {
                    match stream.and_then(taken) {
                        Ok(arrival) => arrived(arrival),
                        Err(error) => tracing::warn!(%error, "another start said nothing useful"),
                    }
                }
            })?;
        Ok(())
    }

    fn taken(mut stream: UnixStream) -> io::Result<Arrival> {
        stream.set_read_timeout(Some(WAIT_MAX))?;
        stream.set_write_timeout(Some(WAIT_MAX))?;
        let mut line = String::new();
        BufReader::new((&stream).take(BYTES_MAX)).read_line(&mut line)?;
        let arrival = serde_json::from_str(&line)?;
        stream.write_all(TAKEN.as_bytes())?;
        Ok(arrival)
    }

    /// Where the socket is, in a spelling that fits.
    struct SocketPath {
        path: PathBuf,
        _folder: Option<File>,
    }

    impl SocketPath {
        fn of(data_dir: &Path) -> io::Result<Self> {
            let path = data_dir.join(NAME);
            if path.as_os_str().len() <= PATH_BYTES_MAX || !cfg!(target_os = "linux") {
                return Ok(Self {
                    path,
                    _folder: None,
                });
            }
            let folder = File::open(data_dir)?;
            Ok(Self {
                path: PathBuf::from(format!("/proc/self/fd/{}/{NAME}", folder.as_raw_fd())),
                _folder: Some(folder),
            })
        }
    }
}

#[cfg(not(unix))]
mod door {
    use std::{io, path::Path};

    use super::Arrival;

    pub(super) fn hand_over(_: &Path, _: &Arrival) -> io::Result<bool> {
        Ok(false)
    }

    pub(super) fn listen(_: &Path, _: impl Fn(Arrival) + Send + 'static) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn wish() -> Wish {
        Wish {
            provider: Some(ProviderWish {
                dialect: Dialect::Ollama,
                address: "127.0.0.1".to_owned(),
                base_url: "http://127.0.0.1:11434".to_owned(),
            }),
            model: Some("m".to_owned()),
        }
    }

    #[test]
    fn the_second_start_hands_its_wish_to_the_first_also_in_a_folder_with_a_long_name() {
        for name in ["short", &"#%' ünï ".repeat(20)] {
            let root = tempfile::tempdir().expect("a folder for the test");
            let data_dir = root.path().join(name);
            std::fs::create_dir(&data_dir).expect("made");
            assert!(!handed_over(&data_dir, &wish()), "nobody listens");
            let (tell, told) = mpsc::sync_channel(1);
            listen(&data_dir, move |wish| tell.send(wish).expect("received")).expect("listening");
            assert!(handed_over(&data_dir, &wish()));
            assert_eq!(told.recv().ok(), Some(wish()));
        }
    }

    #[test]
    fn a_socket_left_by_a_killed_process_is_neither_an_answer_nor_in_the_way() {
        let data_dir = tempfile::tempdir().expect("a folder for the test");
        drop(std::os::unix::net::UnixListener::bind(
            data_dir.path().join("window.sock"),
        ));
        assert!(data_dir.path().join("window.sock").exists());
        assert!(!handed_over(data_dir.path(), &wish()));
        listen(data_dir.path(), |_| {}).expect("listening");
        assert!(handed_over(data_dir.path(), &Wish::default()));
    }
}
