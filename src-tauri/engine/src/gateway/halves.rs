//! Characters whose halves come in two events.
//!
//! A server that cuts text between UTF-16 units writes `"\ud83d"` at the end of one event and `"\ude00"` at the beginning
//! of the next one. Each is half of an emoji, and no text can hold it.
//! Invariant: a half is held back only at the very end of all that its event says, and is joined only with the other half
//! at the very beginning of what the next event of the same kind says. Any other half is `U+FFFD`, and one that was held
//! back is told before anything else is, in an event that says nothing but that. The order of the text is never another.
//! Kept by: halves are marked while an event is read; no mark leaves this file.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::{json, openai::OTHER_THOUGHTS};

/// What is not known to be whole of the events so far.
#[derive(Debug, Default)]
pub(super) struct Halves {
    held: Vec<Held>,
}

/// A first half. More than one are held where an event says the same under several names.
#[derive(Debug)]
struct Held {
    unit: u16,
    kind: Kind,
    /// An event that says `U+FFFD` in its place, and no more.
    alone: Value,
}

/// What an event may say: the order of one kind is not that of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Answer,
    Thought,
    Arguments,
}

/// An event that was read.
#[derive(Debug, PartialEq)]
pub(super) struct Read {
    /// What is to be told before it.
    pub(super) before: Vec<Value>,
    pub(super) event: Value,
}

/// A text of an event.
struct Text<'a> {
    kind: Kind,
    alone: Value,
    text: &'a mut String,
}

impl Halves {
    /// Whether the next event may complete something, and is to be read here.
    pub(super) fn wait(&self) -> bool {
        !self.held.is_empty()
    }

    /// Events that say what was held back: its other half does not come.
    pub(super) fn give_up(&mut self) -> Vec<Value> {
        let held = std::mem::take(&mut self.held);
        held.into_iter().map(|held| held.alone).collect()
    }

    /// Reads the next event.
    ///
    /// # Errors
    /// It is no JSON; then nothing has changed.
    pub(super) fn read(&mut self, text: &str) -> Result<Read, serde_json::Error> {
        let error = match serde_json::from_str::<Value>(text) {
            Ok(event) => {
                // A sign of life between two pieces says nothing.
                let is_ping = event.get("type").and_then(Value::as_str) == Some("ping");
                let before = if is_ping { Vec::new() } else { self.give_up() };
                return Ok(Read { before, event });
            }
            Err(error) => error,
        };
        // Where a mark could be a server's own character, halves are what they always are.
        let Some(marked) = (!has_sign(text)).then(|| json::repaired(text, mark)) else {
            let event = json::read(text)?;
            let before = self.give_up();
            return Ok(Read { before, event });
        };
        let mut event = match marked {
            Cow::Owned(marked) => serde_json::from_str(&marked)?,
            Cow::Borrowed(_) => return Err(error),
        };
        let mut held = std::mem::take(&mut self.held);
        if let Some((mut texts, ends)) = texts(&mut event) {
            let fits = |held: &Held| texts.iter().all(|text| text.kind == held.kind);
            if held.iter().all(fits) {
                for Text { alone, text, .. } in &mut texts {
                    let first = held.iter().position(|held| held.alone == *alone);
                    if let Some(first) = first
                        && let Some(whole) = joined(held.get(first).map(|held| held.unit), text)
                    {
                        **text = whole;
                        held.remove(first);
                    }
                }
            }
            if !ends {
                self.hold_back(texts);
            }
        }
        unmark(&mut event);
        let before = held.into_iter().map(|held| held.alone).collect();
        Ok(Read { before, event })
    }

    /// Takes out the last half of each text, if they all end with one, and are of one kind.
    fn hold_back(&mut self, texts: Vec<Text<'_>>) {
        let first = texts.first().map(|text| text.kind);
        let ends = |text: &Text<'_>| Some(text.kind) == first && last(text.text).is_some();
        if !texts.iter().all(ends) {
            return;
        }
        for Text { kind, alone, text } in texts {
            if let Some((before, unit)) = last(text) {
                text.truncate(before);
                self.held.push(Held { unit, kind, alone });
            }
        }
    }
}

/// All that an event says, in any dialect, and whether the answer ends with it; none if it may say more than that.
fn texts(event: &mut Value) -> Option<(Vec<Text<'_>>, bool)> {
    let root = event.as_object_mut()?;
    if root.contains_key("choices") {
        return in_choice(root.get_mut("choices")?.as_array_mut()?);
    }
    let kind = root.get("type").cloned();
    if kind.as_ref().and_then(Value::as_str) == Some("content_block_delta") {
        let block = identity(root, "index");
        let delta = root.get_mut("delta")?.as_object_mut()?;
        let of = identity(delta, "type");
        let texts = in_delta(delta, &|mut delta| {
            delta.extend(of.clone());
            let mut alone = Map::from_iter(block.clone());
            alone.insert("type".into(), kind.clone().unwrap_or_default());
            alone.insert("delta".into(), delta.into());
            alone.into()
        });
        return Some((texts?, false));
    }
    // Of an Ollama, which sends whole calls only.
    let ends = root.get("done").is_some_and(|done| *done != json!(false));
    let message = root.get_mut("message")?.as_object_mut()?;
    let texts = in_delta(message, &|message| json!({ "message": message }))?;
    let is_words = texts.iter().all(|text| text.kind != Kind::Arguments);
    is_words.then_some((texts, ends))
}

/// The same of the one choice of a chunk.
fn in_choice(choices: &mut [Value]) -> Option<(Vec<Text<'_>>, bool)> {
    let [Value::Object(choice)] = choices else {
        return None;
    };
    let ends = choice.get("finish_reason").is_some_and(|r| !r.is_null());
    let index = choice.get("index").cloned();
    let delta = choice.get_mut("delta")?.as_object_mut()?;
    let texts = in_delta(
        delta,
        &|delta| json!({ "choices": [{ "index": index, "delta": delta }] }),
    );
    Some((texts?, ends))
}

/// The field by which an object is told from its like, if it has that.
fn identity(fields: &Map<String, Value>, name: &str) -> Option<(String, Value)> {
    fields
        .get(name)
        .map(|value| (name.to_owned(), value.clone()))
}

/// The texts of a delta; `around` makes an event of another one.
fn in_delta<'a>(
    delta: &'a mut Map<String, Value>,
    around: &dyn Fn(Map<String, Value>) -> Value,
) -> Option<Vec<Text<'a>>> {
    let mut texts = Vec::new();
    for (name, value) in delta {
        let kind = match name.as_str() {
            "role" | "type" => continue,
            "content" | "text" => Kind::Answer,
            "reasoning_content" | "reasoning" | "reasoning_details" => Kind::Thought,
            name if OTHER_THOUGHTS.contains(&name) => Kind::Thought,
            "partial_json" | "tool_calls" => Kind::Arguments,
            _ if says_nothing(value) => continue,
            _ => return None,
        };
        let alone = |value: Value| around(Map::from_iter([(name.clone(), value)]));
        match value {
            value if says_nothing(value) => {}
            Value::String(text) => texts.push(Text {
                kind,
                alone: alone(LONE.into()),
                text,
            }),
            Value::Array(parts) => {
                let [Value::Object(part)] = parts.as_mut_slice() else {
                    return None;
                };
                texts.push(in_part(kind, part, &alone)?);
            }
            _ => return None,
        }
    }
    Some(texts)
}

/// The text of the one entry of a list.
fn in_part<'a>(
    kind: Kind,
    part: &'a mut Map<String, Value>,
    alone: &dyn Fn(Value) -> Value,
) -> Option<Text<'a>> {
    let known = identity(part, "index").or_else(|| identity(part, "id"));
    // A call says its type with its first piece alone.
    let of = identity(part, "type").filter(|_| kind != Kind::Arguments);
    let mut same: Map<String, Value> = known.into_iter().chain(of).collect();
    if kind == Kind::Arguments {
        let Some(Value::String(text)) = part.get_mut("function")?.get_mut("arguments") else {
            return None;
        };
        same.insert("function".into(), json!({ "arguments": LONE }));
        let alone = alone(json!([same]));
        return Some(Text { kind, alone, text });
    }
    let Some(Value::String(text)) = part.get_mut("text") else {
        return None;
    };
    same.insert("text".into(), LONE.into());
    let alone = alone(json!([same]));
    Some(Text { kind, alone, text })
}

/// What half a character is where the other half is missing.
const LONE: &str = "\u{fffd}";

fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    }
}

/// Characters that Unicode keeps for uses like this one.
const SIGNS: std::ops::RangeInclusive<char> = '\u{fdd0}'..='\u{fdef}';

/// Of a mark: each says five bits of the half.
const MARK_SIGNS: usize = 3;
const MARK_BYTES: usize = 9;

/// Whether a text, as it came, may hold one of them.
fn has_sign(text: &str) -> bool {
    let escaped = |at: usize| {
        let digits = text.get(at..).and_then(|rest| rest.get(2..5));
        digits.is_some_and(|digits| ["fdd", "fde"].contains(&&*digits.to_ascii_lowercase()))
    };
    text.contains(|c| SIGNS.contains(&c)) || text.match_indices("\\u").any(|(at, _)| escaped(at))
}

/// A half as characters.
fn mark(unit: u16) -> String {
    let bits = u32::from(unit) & 0x7ff;
    let sign = |shift: u32| char::from_u32(u32::from(*SIGNS.start()) + (bits >> shift & 31));
    [10, 5, 0].into_iter().filter_map(sign).collect()
}

/// The half that this is the mark of.
fn unit(mark: &str) -> Option<u16> {
    let bits = mark.chars().try_fold(0, |bits, sign| {
        let five = u32::from(sign).checked_sub(u32::from(*SIGNS.start()))?;
        (five < 32).then_some(bits << 5 | five)
    })?;
    u16::try_from(0xd800 | bits).ok()
}

/// Where the half begins that a text ends with, and which one it is, if it is a first one.
fn last(text: &str) -> Option<(usize, u16)> {
    let at = text.len().checked_sub(MARK_BYTES)?;
    let unit = unit(text.get(at..)?)?;
    (unit < 0xdc00).then_some((at, unit))
}

/// The text with the character that its beginning completes.
fn joined(first: Option<u16>, text: &str) -> Option<String> {
    let (half, rest) = text.split_at_checked(MARK_BYTES)?;
    let mut whole = char::decode_utf16([first?, unit(half)?]);
    Some(format!("{}{rest}", whole.next()?.ok()?))
}

/// Every half that is left is a lone one.
fn unmark(value: &mut Value) {
    let plain = |text: &mut String| {
        if !text.contains(|c| SIGNS.contains(&c)) {
            return;
        }
        let mut signs = 0;
        for c in std::mem::take(text).chars() {
            if !SIGNS.contains(&c) {
                text.push(c);
                continue;
            }
            signs += 1;
            if signs % MARK_SIGNS == 0 {
                text.push_str(LONE);
            }
        }
    };
    match value {
        Value::String(text) => plain(text),
        Value::Array(list) => list.iter_mut().for_each(unmark),
        Value::Object(fields) => {
            let all = std::mem::take(fields).into_iter();
            fields.extend(all.map(|(mut name, mut value)| {
                plain(&mut name);
                unmark(&mut value);
                (name, value)
            }));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
