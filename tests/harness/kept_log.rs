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
        Value::String(text) => *text = without_chance(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A text without what chance put into it: the name of a temporary folder, and the 16 hex digits of a sentinel.
fn without_chance(text: &str) -> String {
    let mut plain = String::new();
    let mut word = String::new();
    for char in text.chars().chain(['\n']) {
        if char.is_ascii_alphanumeric() {
            word.push(char);
            continue;
        }
        let name = word.len().checked_sub(16).map(|at| word.split_at(at));
        match name {
            _ if plain.ends_with('.') && word.len() == 9 && word.starts_with("tmp") => {
                plain.push_str("tmp");
            }
            Some((name, digits)) if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                plain.push_str(name);
                plain.push('#');
            }
            Some(_) | None => plain.push_str(&word),
        }
        plain.push(char);
        word.clear();
    }
    plain.pop();
    plain
}

/// `2026-03-01T09:00:00Z`, of any clock.
fn is_time(text: &str) -> bool {
    text.len() == 20 && text.as_bytes()[10] == b'T' && text.ends_with('Z')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_is_taken_out_of_a_text_and_the_rest_is_kept() {
        let text = "About stone0227468b80ff4b85? in /tmp/.tmpv4hA3C/a.txt, 2,000 kelp";
        let plain = "About stone#? in /tmp/.tmp/a.txt, 2,000 kelp";
        assert_eq!(without_chance(text), plain);
        assert_eq!(without_chance("é ends.\n"), "é ends.\n");
    }
}
