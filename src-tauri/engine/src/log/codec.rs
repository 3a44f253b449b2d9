//! Rows and events: the one place where a body becomes text and text becomes a body.
//!
//! Invariant: nothing that was stored is ever replaced by a default. A row that cannot be read comes back as
//! [`EventBody::Unsupported`] with its text.
//! A row's `kind` column holds what the JSON's `kind` tag would repeat, so the stored text leaves the tag out.

use protocol::{Event, EventBody, Seq, Timestamp, TurnId};

/// The stored text of a body.
pub(super) fn encode(body: &EventBody) -> Result<String, serde_json::Error> {
    let tagged = serde_json::to_string(body)?;
    let tag = format!("{{\"kind\":\"{}\"", body.kind());
    Ok(match tagged.strip_prefix(&tag) {
        Some(rest) => match rest.strip_prefix(',') {
            Some(fields) => format!("{{{fields}"),
            None => "{}".to_owned(),
        },
        // serde writes an internal tag first; if that ever changes the whole text is kept and still decodes.
        None => tagged,
    })
}

/// The body of a stored row.
pub(super) fn decode(kind: &str, text: &str) -> EventBody {
    let unsupported = || EventBody::Unsupported {
        original_kind: kind.to_owned(),
        body: text.to_owned(),
    };
    if !EventBody::KINDS.contains(&kind) {
        return unsupported();
    }
    let Some(fields) = text.strip_prefix('{') else {
        return unsupported();
    };
    let comma = if fields.starts_with('}') { "" } else { "," };
    let tagged = format!("{{\"kind\":\"{kind}\"{comma}{fields}");
    match serde_json::from_str(&tagged) {
        Ok(body) => body,
        Err(error) => {
            // The reader sees a marked item; the text stays in the log for whoever can read it.
            tracing::warn!(kind, %error, "an event's body cannot be read");
            unsupported()
        }
    }
}

/// A text of which some bytes may be damaged: those are marked, and the rest is as it was.
pub(super) fn text(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<String> {
    let bytes = row.get_ref(column)?.as_bytes()?;
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

/// A text of a cache: a damaged one is none, and is made anew.
pub(super) fn cached(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Option<String>> {
    let bytes = row.get_ref(column)?.as_bytes_or_null()?;
    Ok(bytes.and_then(|bytes| String::from_utf8(bytes.to_owned()).ok()))
}

/// Reads columns `seq, at, turn, kind, body`.
pub(super) fn event_of(row: &rusqlite::Row<'_>) -> rusqlite::Result<Event> {
    let (kind, body) = (text(row, 3)?, text(row, 4)?);
    Ok(Event {
        seq: Seq::new(row.get::<_, i64>(0)?.unsigned_abs()),
        at: Timestamp::from_millis(row.get(1)?),
        turn: row
            .get::<_, Option<i64>>(2)?
            .map(|t| TurnId::new(t.unsigned_abs())),
        body: decode(&kind, &body),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::{ItemId, Part};

    #[test]
    fn a_body_survives_the_row_and_does_not_repeat_its_kind() {
        let body = EventBody::TextAppended {
            item: ItemId::new(3),
            part: Part::Answer,
            offset: 7,
            text: "\"naïve\" {kind}".into(),
        };
        let text = encode(&body).unwrap();
        assert!(!text.contains("TextAppended"), "{text}");
        assert_eq!(decode("TextAppended", &text), body);
    }

    #[test]
    fn bytes_that_are_no_text_spoil_their_own_row_and_no_other() {
        let db = rusqlite::Connection::open_in_memory().unwrap();
        let read = |body: &str| {
            db.query_row(
                &format!("SELECT 1, 0, NULL, 'ToolCallStarted', {body}"),
                [],
                event_of,
            )
        };
        let good = read("'{\"item\":3}'").unwrap();
        assert_eq!(
            good.body,
            EventBody::ToolCallStarted {
                item: ItemId::new(3)
            }
        );
        let bad = read("CAST(x'ff7b' AS TEXT)").unwrap();
        assert!(matches!(bad.body, EventBody::Unsupported { .. }), "{bad:?}");
    }

    #[test]
    fn a_kind_of_another_version_and_a_damaged_body_are_kept_as_they_are() {
        for (kind, text) in [
            ("MoonRisen", "{\"phase\":2}"),
            ("TextAppended", "{\"item\":"),
            ("TextAppended", ""),
        ] {
            assert_eq!(
                decode(kind, text),
                EventBody::Unsupported {
                    original_kind: kind.into(),
                    body: text.into()
                }
            );
        }
    }
}
