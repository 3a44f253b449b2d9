//! The logs of a run, kept to be compared with those of another run (INV-118).
//!
//! Invariant: what is kept of an event is what it says; ids, times and addresses belong to one run, and how a text was cut
//! into pieces is a matter of time too. Without the environment variable nothing is kept.
//! Not here: the comparison, which is `cargo xtask test --repeat`.

use std::{fs::OpenOptions, io::Write, path::PathBuf};

use protocol::{Event, EventBody};
use serde_json::Value;

/// Names the folder that logs are kept in.
pub const FOLDER: &str = "HOLDFAST_KEEP_LOGS";

/// Whatever begins with this is about the test, and no log.
const DIFFERS: &str = "differs";

/// Keeps a session's log under the name of the running test, if somebody wants to compare it.
pub fn keep(events: &[Event]) {
    let Some(file) = file("log") else { return };
    let lines = joined(events)
        .iter()
        .map(|event| format!("{}\n", without_ids(event)))
        .collect::<String>();
    append(&file, &format!("{lines}\n"));
}

/// The running test's log is another one in each run; says why that is right.
pub fn differs(why: &str) {
    if let Some(file) = file(DIFFERS) {
        append(&file, why);
    }
}

fn file(extension: &str) -> Option<PathBuf> {
    let folder = std::env::var_os(FOLDER)?;
    // The test harness names the thread of a test after it, and a story awaits its verdict there.
    let thread = std::thread::current();
    let test = thread.name()?.replace("::", ".");
    Some(PathBuf::from(folder).join(format!("{test}.{extension}")))
}

fn append(file: &PathBuf, text: &str) {
    let mut options = OpenOptions::new();
    let written = options
        .create(true)
        .append(true)
        .open(file)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    written.expect("the folder for logs can be written");
}

/// The events with each text in one piece, and without the numbers that the pieces had.
fn joined(events: &[Event]) -> Vec<Event> {
    let mut whole: Vec<Event> = Vec::new();
    for event in events {
        if let (
            Some(Event {
                body: EventBody::TextAppended { item, text, .. },
                ..
            }),
            EventBody::TextAppended {
                item: own,
                text: more,
                ..
            },
        ) = (whole.last_mut(), &event.body)
            && item == own
        {
            text.push_str(more);
        } else {
            whole.push(event.clone());
        }
    }
    whole
}

/// An event as it would be in any run: ids and times are of this one.
pub fn without_ids(event: &Event) -> Value {
    let mut value = serde_json::to_value(event).expect("an event has a JSON form");
    if let Value::Object(fields) = &mut value {
        fields.remove("seq");
    }
    scrub(&mut value);
    value
}

fn scrub(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for name in [
                "at",
                "op",
                "boot",
                "session",
                "provider",
                "timings",
                "message_id",
                "call_id",
                "folder",
                "retry_in_ms",
            ] {
                fields.remove(name);
            }
            if let Some(Value::Object(failure)) = fields.get_mut("failure") {
                // It names the address, which is of this world.
                failure.remove("message");
                failure.remove("detail");
            }
            fields.values_mut().for_each(scrub);
        }
        Value::Array(values) => values.iter_mut().for_each(scrub),
        // A result that tells the time.
        Value::String(text) if is_time(text) => *text = "now".to_owned(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// `2026-03-01T09:00:00Z`, of any clock.
fn is_time(text: &str) -> bool {
    text.len() == 20 && text.as_bytes()[10] == b'T' && text.ends_with('Z')
}
