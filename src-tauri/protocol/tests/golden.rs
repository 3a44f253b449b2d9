//! A stored event means the same for ever: the samples in `golden/` are added once and never edited.
//!
//! A sample's file is named after its kind in snake case; further samples of a kind have a word after a dot
//! (`turn_ended.failed.json`).
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a sample that cannot be read has failed its test, in helpers too"
)]

use std::{collections::BTreeMap, fs, path::Path};

use protocol::{Event, EventBody};

#[test]
fn every_kind_has_a_sample_and_every_sample_a_kind() {
    let mut expected: Vec<String> = EventBody::KINDS.iter().copied().map(snake_case).collect();
    expected.sort();
    let mut found: Vec<String> = samples().into_keys().map(|name| kind_of(&name)).collect();
    found.sort();
    found.dedup();
    assert_eq!(found, expected);
}

#[test]
fn every_sample_decodes_to_its_kind_and_encodes_to_itself() {
    for (name, sample) in samples() {
        let event: Event = serde_json::from_str(&sample)
            .unwrap_or_else(|error| panic!("{name} does not decode: {error}"));
        assert_eq!(snake_case(event.body.kind()), kind_of(&name), "{name}");
        let encoded = serde_json::to_string_pretty(&event)
            .unwrap_or_else(|error| panic!("{name} does not encode: {error}"));
        assert_eq!(encoded + "\n", sample, "{name} is not what it was");
    }
}

#[test]
fn an_unknown_field_does_not_make_a_sample_unreadable() {
    for (name, sample) in samples() {
        let mut value: serde_json::Value = serde_json::from_str(&sample).expect("JSON");
        value["body"]["added_later"] = serde_json::json!({ "by": ["a newer version"] });
        let event: Event = serde_json::from_value(value)
            .unwrap_or_else(|error| panic!("{name} does not decode: {error}"));
        assert_eq!(snake_case(event.body.kind()), kind_of(&name), "{name}");
    }
}

/// File name without extension, to content.
fn samples() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    fs::read_dir(&folder)
        .expect("the folder of samples")
        .map(|entry| {
            let path = entry.expect("an entry of the folder").path();
            let name = path.file_name().expect("a name").to_string_lossy();
            let stem = name
                .strip_suffix(".json")
                .unwrap_or_else(|| panic!("{name} is not a sample"));
            let sample = fs::read_to_string(&path).expect("a readable sample");
            (stem.to_owned(), sample)
        })
        .collect()
}

fn kind_of(name: &str) -> String {
    name.split('.').next().unwrap_or_default().to_owned()
}

fn snake_case(kind: &str) -> String {
    let mut snake = String::new();
    for char in kind.chars() {
        if char.is_ascii_uppercase() {
            if !snake.is_empty() {
                snake.push('_');
            }
            snake.push(char.to_ascii_lowercase());
        } else {
            snake.push(char);
        }
    }
    snake
}
