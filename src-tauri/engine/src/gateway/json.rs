//! JSON as servers write it.
//!
//! Invariant: half a surrogate pair, which no text can hold, becomes `U+FFFD` and costs nothing else. Everything else
//! that is no JSON stays none.
//! Not here: halves that come in two events (`halves`).

use std::borrow::Cow;

use serde_json::Value;

/// Reads a JSON text.
pub(super) fn read(text: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str(text).or_else(|error| match repaired(text, |_| "\\ufffd".to_owned()) {
        Cow::Owned(repaired) => serde_json::from_str(&repaired),
        Cow::Borrowed(_) => Err(error),
    })
}

/// The text with what `lone` says for every escape of a surrogate that has no partner.
pub(super) fn repaired(text: &str, lone: impl Fn(u16) -> String) -> Cow<'_, str> {
    let mut out = String::new();
    let mut rest = text;
    let mut changed = false;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        out.push_str(before);
        let after = |bytes: usize| escape.get(bytes..).unwrap_or_default();
        let (kept, len) = match (surrogate(escape), surrogate(after(ESCAPE_BYTES))) {
            (Some(..=0xdbff), Some(0xdc00..)) => (escape.get(..2 * ESCAPE_BYTES), 2 * ESCAPE_BYTES),
            (Some(unit), _) => {
                changed = true;
                out.push_str(&lone(unit));
                (None, ESCAPE_BYTES)
            }
            (None, _) => {
                // The backslash and what it escapes, which may be one more.
                let len = 1 + after(1).chars().next().map_or(0, char::len_utf8);
                (escape.get(..len), len)
            }
        };
        out.push_str(kept.unwrap_or_default());
        rest = after(len);
    }
    if !changed {
        return Cow::Borrowed(text);
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// `\uXXXX`.
const ESCAPE_BYTES: usize = 6;

/// Half of a pair: a first one below `0xdc00`, or a second one.
fn surrogate(escape: &str) -> Option<u16> {
    let digits = escape.strip_prefix("\\u")?.get(..4)?;
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let unit = u16::from_str_radix(digits, 16).ok().filter(|_| is_hex)?;
    (0xd800..=0xdfff).contains(&unit).then_some(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_pair_costs_one_character_and_whole_pairs_none() {
        for (text, want) in [
            (r#""a\ud83db""#, "a\u{fffd}b"),
            (r#""a\ude00b""#, "a\u{fffd}b"),
            (r#""\ud83d""#, "\u{fffd}"),
            (r#""\ud83d\ud83d\ude00""#, "\u{fffd}😀"),
            (r#""\ud83d\n\ude00""#, "\u{fffd}\n\u{fffd}"),
            (r#""\uD83D\u0041""#, "\u{fffd}A"),
            (r#""\ud83d\ude00""#, "😀"),
            (r#""\\ud83d \ud83d""#, "\\ud83d \u{fffd}"),
            (r#""é\ud83dé""#, "é\u{fffd}é"),
        ] {
            assert_eq!(read(text).unwrap(), Value::from(want), "{text}");
        }
        for text in [
            r#""\ud8""#,
            r#""\ud83d"#,
            r#""\"#,
            "\\ud83d",
            r#""\u+83d""#,
            "{",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
