//! Tool calls, gathered from whatever pieces a server sends them in.
//!
//! Invariant: no call is lost and no two become one. A piece belongs to the call its index, id or place says; a new id
//! under an index in use, or a new name after complete arguments, is a new call. Arguments are passed on as they came:
//! whether they are valid JSON is judged where calls are run.
//! Seen in the wild: index or ids missing, index 0 for every call, several pieces of one index in one delta, whole
//! calls, arguments as an object, `null` or nothing, the whole call once more at the end.

use serde_json::Value;

use super::ModelEvent;

/// More in one answer is a broken server, not an assistant.
const CALLS_MAX: usize = 512;
/// Arguments are held in memory until the answer is whole.
const ARGUMENT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The calls outgrew what we hold for one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooMuch;

/// The calls of one answer.
#[derive(Debug, Default)]
pub(super) struct Calls {
    list: Vec<Pending>,
    argument_bytes: usize,
}

#[derive(Debug, Default)]
struct Pending {
    index: Option<u64>,
    id: Option<String>,
    name: String,
    arguments: String,
}

/// One entry of `tool_calls`, read without trusting any of it.
struct Piece {
    index: Option<u64>,
    id: Option<String>,
    name: String,
    arguments: String,
}

impl Calls {
    /// Nothing was called.
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Takes in one entry of `tool_calls` (or an old `function_call`); progress to report, if it added anything.
    ///
    /// # Errors
    /// [`TooMuch`]: nothing of the entry was kept.
    pub(super) fn add(&mut self, entry: &Value) -> Result<Option<ModelEvent>, TooMuch> {
        let piece = Piece::read(entry);
        if piece.id.is_none() && piece.name.is_empty() && piece.arguments.is_empty() {
            return Ok(None);
        }
        self.argument_bytes = self.argument_bytes.saturating_add(piece.arguments.len());
        if self.argument_bytes > ARGUMENT_BYTES_MAX || self.list.len() >= CALLS_MAX {
            return Err(TooMuch);
        }
        let at = self.place(&piece);
        let call = match at.and_then(|at| self.list.get_mut(at)) {
            Some(call) => {
                call.merge(piece);
                call
            }
            None => {
                self.list.push(Pending {
                    index: piece.index,
                    id: piece.id,
                    name: piece.name,
                    arguments: piece.arguments,
                });
                let Some(call) = self.list.last_mut() else {
                    return Ok(None);
                };
                call
            }
        };
        Ok(Some(ModelEvent::CallProgress {
            name: call.name.clone(),
            argument_bytes: call.arguments.len() as u64,
        }))
    }

    /// The calls, in the order in which they began.
    pub(super) fn take(&mut self) -> Vec<ModelEvent> {
        std::mem::take(&mut self.list)
            .into_iter()
            .map(|call| ModelEvent::Call {
                name: call.name,
                arguments: call.arguments,
                call_id: call.id,
            })
            .collect()
    }

    /// Which of the calls a piece continues; none if it begins one.
    fn place(&self, piece: &Piece) -> Option<usize> {
        let newest = |fits: &dyn Fn(&Pending) -> bool| self.list.iter().rposition(fits);
        if let Some(id) = &piece.id {
            if let Some(at) = newest(&|call| call.id.as_ref() == Some(id)) {
                return Some(at);
            }
            // The id may come after the name.
            return newest(&|call| {
                piece.index.is_some() && call.index == piece.index && call.id.is_none()
            })
            .filter(|at| self.list.get(*at).is_some_and(|call| call.takes(piece)));
        }
        let at = match piece.index {
            Some(index) => newest(&|call| call.index == Some(index)).or_else(|| {
                // A server that names the index in some of its pieces only.
                newest(&|call| call.index.is_none()).filter(|_| piece.name.is_empty())
            })?,
            None => self.list.len().checked_sub(1)?,
        };
        self.list
            .get(at)
            .is_some_and(|call| call.takes(piece))
            .then_some(at)
    }
}

impl Pending {
    /// Whether a piece that points here can be a part of this call.
    fn takes(&self, piece: &Piece) -> bool {
        if piece.name.is_empty() || self.name.is_empty() {
            return true;
        }
        if piece.index.is_none() && piece.name != self.name {
            return false;
        }
        // A name again: a server that repeats it in every piece, unless the call was already whole.
        !is_whole(&self.arguments)
            || piece.arguments.is_empty()
            || piece.arguments == self.arguments
    }

    fn merge(&mut self, piece: Piece) {
        if self.index.is_none() {
            self.index = piece.index;
        }
        if self.id.is_none() {
            self.id = piece.id;
        }
        if self.name.is_empty() {
            self.name = piece.name;
        } else if self.name != piece.name && self.arguments.is_empty() {
            // A name in pieces.
            self.name.push_str(&piece.name);
        }
        // The whole call once more, at the end, adds nothing.
        if !(is_whole(&self.arguments) && self.arguments == piece.arguments) {
            self.arguments.push_str(&piece.arguments);
        }
    }
}

impl Piece {
    fn read(entry: &Value) -> Self {
        // `function_call` of old, and servers that leave the wrapper out.
        let function = entry.get("function").unwrap_or(entry);
        let text = |value: Option<&Value>| {
            value
                .and_then(Value::as_str)
                .filter(|text| !text.is_empty())
                .map(str::to_owned)
        };
        let arguments = match function
            .get("arguments")
            .or_else(|| function.get("parameters"))
        {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        Self {
            index: [entry.get("index"), function.get("index")]
                .into_iter()
                .flatten()
                .find_map(Value::as_u64),
            id: text(entry.get("id")),
            name: text(function.get("name")).unwrap_or_default(),
            arguments,
        }
    }
}

fn is_whole(arguments: &str) -> bool {
    arguments.trim_end().ends_with('}')
        && serde_json::from_str::<serde::de::IgnoredAny>(arguments).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Name, arguments and id of each call.
    fn gather(entries: Value) -> Vec<(String, String, Option<String>)> {
        let mut calls = Calls::default();
        for entry in entries.as_array().unwrap() {
            calls.add(entry).unwrap();
        }
        calls
            .take()
            .into_iter()
            .map(|event| match event {
                ModelEvent::Call {
                    name,
                    arguments,
                    call_id,
                } => (name, arguments, call_id),
                other => panic!("not a call: {other:?}"),
            })
            .collect()
    }

    fn call(name: &str, arguments: &str, id: Option<&str>) -> (String, String, Option<String>) {
        (name.into(), arguments.into(), id.map(String::from))
    }

    #[test]
    fn pieces_by_index_as_openai_sends_them() {
        assert_eq!(
            gather(json!([
                {"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}},
                {"index":0,"function":{"arguments":"{\"x\""}},
                {"index":0,"function":{"arguments":":1}"}},
                {"index":1,"id":"b","type":"function","function":{"name":"g","arguments":"{"}},
                {"index":1,"function":{"arguments":"}"}},
            ])),
            vec![
                call("f", "{\"x\":1}", Some("a")),
                call("g", "{}", Some("b"))
            ]
        );
    }

    #[test]
    fn a_missing_index_is_made_up_for_by_ids_and_missing_ids_by_names() {
        assert_eq!(
            gather(json!([
                {"id":"a","function":{"name":"f","arguments":"{\"x\""}},
                {"function":{"arguments":":1}"}},
                {"id":"b","function":{"name":"f","arguments":"{}"}},
            ])),
            vec![
                call("f", "{\"x\":1}", Some("a")),
                call("f", "{}", Some("b"))
            ]
        );
        assert_eq!(
            gather(json!([
                {"function":{"name":"f","arguments":"{\"x\""}},
                {"function":{"arguments":":1}"}},
                {"function":{"name":"f","arguments":"{\"x\":2}"}},
                {"function":{"name":"g","arguments":"{}"}},
            ])),
            vec![
                call("f", "{\"x\":1}", None),
                call("f", "{\"x\":2}", None),
                call("g", "{}", None)
            ]
        );
        assert_eq!(
            gather(json!([
                {"id":"a","function":{"name":"f","arguments":"{"}},
                {"id":"b","function":{"name":"g","arguments":"{"}},
                {"id":"a","function":{"arguments":"}"}},
                {"id":"b","function":{"arguments":"}"}},
            ])),
            vec![call("f", "{}", Some("a")), call("g", "{}", Some("b"))],
            "interleaved"
        );
    }

    #[test]
    fn index_zero_for_every_call_does_not_fuse_them() {
        assert_eq!(
            gather(json!([
                {"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}},
                {"index":0,"id":"b","function":{"name":"f","arguments":"{\"x\":2}"}},
            ])),
            vec![
                call("f", "{\"x\":1}", Some("a")),
                call("f", "{\"x\":2}", Some("b"))
            ]
        );
        assert_eq!(
            gather(json!([
                {"index":0,"function":{"name":"f","arguments":"{\"x\":1}"}},
                {"index":0,"function":{"name":"f","arguments":"{\"x\":2}"}},
            ])),
            vec![call("f", "{\"x\":1}", None), call("f", "{\"x\":2}", None)]
        );
    }

    #[test]
    fn arguments_may_be_an_object_nothing_null_or_a_number() {
        for (arguments, want) in [
            (json!({"city":"Paris"}), "{\"city\":\"Paris\"}"),
            (json!(""), ""),
            (json!(null), ""),
            (json!("{}"), "{}"),
            (json!([]), "[]"),
            (json!(7), "7"),
            (json!("{\"a\":1}mul{\"b\":2}"), "{\"a\":1}mul{\"b\":2}"),
        ] {
            assert_eq!(
                gather(json!([{"function":{"name":"f","arguments":arguments}}])),
                vec![call("f", want, None)]
            );
        }
        assert_eq!(
            gather(json!([{"function":{"name":"f"}}])),
            vec![call("f", "", None)]
        );
    }

    #[test]
    fn names_may_be_repeated_or_come_in_pieces_and_the_whole_call_may_come_twice() {
        assert_eq!(
            gather(json!([
                {"index":0,"id":"a","function":{"name":"f","arguments":"{"}},
                {"index":0,"id":"a","function":{"name":"f","arguments":"}"}},
                {"index":0,"id":"a","function":{"name":"f","arguments":"{}"}},
            ])),
            vec![call("f", "{}", Some("a"))]
        );
        assert_eq!(
            gather(json!([
                {"index":0,"id":"a","function":{"name":"get_"}},
                {"index":0,"function":{"name":"weather"}},
                {"index":0,"function":{"arguments":"{}"}},
            ])),
            vec![call("get_weather", "{}", Some("a"))]
        );
        assert_eq!(
            gather(json!([
                {"index":0,"function":{"name":"f","arguments":""}},
                {"index":0,"id":"a","function":{"arguments":"{}"}},
            ])),
            vec![call("f", "{}", Some("a"))],
            "the id comes late"
        );
    }

    #[test]
    fn things_that_are_no_calls_make_none_and_more_than_we_hold_is_refused() {
        assert_eq!(gather(json!([null, {}, 3, "x", {"index":0}, []])), vec![]);
        let mut calls = Calls::default();
        let mut added = Ok(None);
        for n in 0..=CALLS_MAX {
            added = calls.add(&json!({"index":n,"id":n.to_string(),"function":{"name":"f"}}));
        }
        assert_eq!(added, Err(TooMuch));
    }
}
