//! `backup`: a copy of everything, at one moment, also while the window is open.

use std::path::{Path, PathBuf};

use engine::clock::{Clock, SystemClock};

use super::{Exit, complain, print};

/// Makes a copy and prints where it is.
pub(crate) fn backup(data_dir: Option<PathBuf>, to: Option<&Path>) -> Exit {
    let Some(data_dir) = data_dir else {
        return complain("there is nothing to back up yet", Exit::Failed);
    };
    let now = SystemClock::new().wall();
    let made = match engine::backup(&data_dir, to, now) {
        Ok(made) => made,
        Err(error) => return complain(error, Exit::Failed),
    };
    match print::put(&format!("{}\n", made.display())) {
        Ok(_) => Exit::Done,
        Err(error) => complain(
            format!("the backup is made, but its name could not be printed: {error}"),
            Exit::Failed,
        ),
    }
}
