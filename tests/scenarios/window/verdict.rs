//! Whether the window shows what the log has, in one word that says what is wrong.
//!
//! Invariant: every damage has a name of its own, and the window's texts are compared whole, in order, each of them once.

use protocol::{ItemBody, Part, TranscriptPage};

use super::glass::{Desk, Window};

/// What the window shows of one kind of text, against what is stored.
async fn compared(window: &Window, testid: &str, stored: &[String]) -> String {
    let shown = window.texts(testid).await;
    let shown: Vec<_> = shown.iter().map(|text| letters(text)).collect();
    let name = verdict(&shown, stored);
    if name == "same" {
        name
    } else {
        format!("{testid} {name}")
    }
}

/// `same`, or what is wrong with it.
pub(super) async fn of(desk: &Desk, window: &Window) -> String {
    let stored = desk.stored();
    let asked = compared(window, "message-user", &asked(&stored)).await;
    let said = compared(window, "message-assistant", &said(&stored)).await;
    match (asked.as_str(), said.as_str()) {
        ("same", "same") => "same".to_owned(),
        ("same", _) => said,
        (_, "same") => asked,
        _ => format!("{asked}, {said}"),
    }
}

fn verdict(shown: &[String], stored: &[String]) -> String {
    if shown == stored {
        return "same".to_owned();
    }
    let times = |text: &String| shown.iter().filter(|other| *other == text).count();
    let most = stored.iter().map(times).max().unwrap_or_default();
    let lost = stored.iter().filter(|text| times(text) == 0).count();
    let blank = shown.iter().filter(|text| text.is_empty()).count();
    if most > 1 {
        format!("dup{most}")
    } else if blank > 0 {
        format!("blank{blank}")
    } else if lost > 0 {
        format!("lost{lost}")
    } else if shown.len() > stored.len() {
        format!("stray{}", shown.len() - stored.len())
    } else {
        "order0".to_owned()
    }
}

fn asked(page: &TranscriptPage) -> Vec<String> {
    texts(page, |body| match body {
        ItemBody::UserMessage { text, .. } => Some(text),
        ItemBody::Text { .. }
        | ItemBody::ToolCall { .. }
        | ItemBody::Compacted { .. }
        | ItemBody::Unsupported { .. } => None,
    })
}

/// What the model said, letters alone.
pub(super) fn said(page: &TranscriptPage) -> Vec<String> {
    texts(page, |body| match body {
        ItemBody::Text {
            part: Part::Answer,
            text,
            ..
        } => Some(text),
        ItemBody::Text {
            part: Part::Reasoning,
            ..
        }
        | ItemBody::UserMessage { .. }
        | ItemBody::ToolCall { .. }
        | ItemBody::Compacted { .. }
        | ItemBody::Unsupported { .. } => None,
    })
}

fn texts(page: &TranscriptPage, wanted: fn(&ItemBody) -> Option<&str>) -> Vec<String> {
    let items = page.turns.iter().flat_map(|turn| &turn.items);
    items
        .filter_map(|item| wanted(&item.body))
        .map(letters)
        .collect()
}

/// A text's letters alone: Markdown's marks and the window's own spaces do not count.
pub(super) fn letters(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).collect()
}

#[test]
fn every_damage_has_its_name() {
    let rows = |texts: &[&str]| {
        texts
            .iter()
            .map(|text| (*text).to_owned())
            .collect::<Vec<_>>()
    };
    let stored = rows(&["one", "two", "three"]);
    for (shown, name) in [
        (rows(&["one", "two", "three"]), "same"),
        (rows(&["one", "two", "two", "three"]), "dup2"),
        (rows(&["one", "three"]), "lost1"),
        (rows(&["one", "", "three"]), "blank1"),
        (rows(&["one", "two", "three", "four"]), "stray1"),
        (rows(&["two", "one", "three"]), "order0"),
        (rows(&[]), "lost3"),
    ] {
        assert_eq!(verdict(&shown, &stored), name, "{shown:?}");
    }
}
