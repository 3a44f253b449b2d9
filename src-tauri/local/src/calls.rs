//! Calls, out of what a model wrote in the form that its template teaches.
//!
//! Invariant: what is not whole, or cannot be read for certain, is no call. A name that nobody offered is one, except
//! where nothing but the name tells a call from words: the engine answers the model that there is no such tool.

use protocol::{CallForm, model_process::Offered};
use serde_json::{Deserializer, Map, Value};

/// A call as a model made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The tool.
    pub name: String,
    /// JSON text.
    pub arguments: String,
}

/// What calls stand between.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Marks {
    /// Either of them begins one.
    pub(crate) begin: &'static [&'static str],
    /// Ends it; where there is none, the end of the answer does.
    pub(crate) end: Option<&'static str>,
}

pub(crate) const CHANNEL: &str = "<|channel|>";
const NAMED: &str = "[TOOL_CALLS]";
const CALL_ID: &str = "[CALL_ID]";
const ARGUMENTS: &str = "[ARGS]";
const BARRED_END: &str = "<|/tool_call|>";
/// Some models leave out the tag around it.
const FUNCTION: &str = "<function=";

/// The marks of a form; of channels, those that are no marks of calls alone, there are none here.
pub(crate) fn marks(form: CallForm) -> Marks {
    let (begin, end): (&'static [&'static str], _) = match form {
        CallForm::Tagged => (&["<tool_call>"], Some("</tool_call>")),
        CallForm::TaggedParameters => (&["<tool_call>", FUNCTION], Some("</tool_call>")),
        CallForm::MistralList | CallForm::MistralNamed => (&[NAMED], None),
        CallForm::Barred => (&["<|tool_call|>"], None),
        CallForm::Bare => (&["<|python_tag|>"], None),
        CallForm::Channels => (&[], None),
    };
    Marks { begin, end }
}

/// The calls in what stood between the marks, or after one that has no other. `begun` is the mark it began with.
pub(crate) fn read(
    form: CallForm,
    begun: &str,
    written: &str,
    tools: &[Offered],
) -> Option<Vec<Call>> {
    let calls = match form {
        CallForm::Tagged => listed(written)?,
        CallForm::TaggedParameters => match listed(written) {
            Some(calls) => calls,
            None if begun == FUNCTION => vec![by_function(&format!("{FUNCTION}{written}"), tools)?],
            None => vec![by_function(written, tools).or_else(|| by_key(written, tools))?],
        },
        CallForm::MistralList | CallForm::MistralNamed => match listed(written) {
            Some(calls) => calls,
            None => written.split(NAMED).map(named).collect::<Option<_>>()?,
        },
        CallForm::Barred => {
            let written = written.trim_end();
            listed(written.strip_suffix(BARRED_END).unwrap_or(written))?
        }
        CallForm::Bare => {
            let calls: Vec<_> = separated(written)?;
            let all_known = calls.iter().all(|call| is_offered(&call.name, tools));
            all_known.then_some(calls)?
        }
        CallForm::Channels => return None,
    };
    (!calls.is_empty()).then_some(calls)
}

/// Whether what was written so far ends within a value: between the tags of a parameter, or in a text of JSON. A mark
/// there ends nothing.
pub(crate) fn is_within_value(written: &str) -> bool {
    let tags = [
        ("<parameter=", "</parameter>"),
        ("<arg_value>", "</arg_value>"),
    ];
    let is_open = |(opens, closes): &(&str, &str)| {
        written.matches(opens).count() > written.matches(closes).count()
    };
    if !written.trim_start().starts_with(['{', '[']) {
        return tags.iter().any(is_open);
    }
    let mut in_text = false;
    let mut letters = written.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => in_text = !in_text,
            // Whatever it is, it ends no text.
            '\\' if in_text => drop(letters.next()),
            _ => {}
        }
    }
    in_text
}

/// Arguments that are an object of JSON, as it was written.
pub(crate) fn object(written: &str) -> Option<String> {
    let written = written.trim();
    let is_object = serde_json::from_str::<Map<String, Value>>(written).is_ok();
    is_object.then(|| written.to_owned())
}

/// What an answer that begins so may become, where calls have no mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// Words.
    Words,
    /// It is too early to say.
    Unclear,
    /// A call of a tool that was offered.
    Call,
}

/// Whether an answer begins as a call of an offered tool: an object of JSON that names it first.
pub(crate) fn beginning(said: &str, tools: &[Offered]) -> Beginning {
    let mut rest = said.trim_start();
    let mut is_function = false;
    loop {
        // `{"type": "function", "name": …`, too.
        let expected = if is_function { "," } else { "{" };
        let Some(after) = next(&mut rest, expected) else {
            return unclear_if(rest, expected);
        };
        rest = after;
        if let Some(after) = next(&mut rest, "\"name\"") {
            rest = after;
            let Some(after) = next(&mut rest, ":") else {
                return unclear_if(rest, ":");
            };
            rest = after.trim_start();
            let names = tools.iter().map(|tool| format!("\"{}\"", tool.name));
            return names
                .map(|name| match rest {
                    rest if rest.starts_with(&name) => Beginning::Call,
                    rest if name.starts_with(rest) => Beginning::Unclear,
                    _ => Beginning::Words,
                })
                .max_by_key(|beginning| *beginning as u8)
                .unwrap_or(Beginning::Words);
        }
        if is_function {
            return unclear_if(rest, "\"name\"");
        }
        let Some(after) = next(&mut rest, "\"type\"") else {
            return match (unclear_if(rest, "\"name\""), unclear_if(rest, "\"type\"")) {
                (Beginning::Words, Beginning::Words) => Beginning::Words,
                (_, _) => Beginning::Unclear,
            };
        };
        rest = after;
        for expected in [":", "\"function\""] {
            let Some(after) = next(&mut rest, expected) else {
                return unclear_if(rest, expected);
            };
            rest = after;
        }
        is_function = true;
    }
}

/// What follows `expected`, white space before it aside; `rest` is left without that.
fn next<'a>(rest: &mut &'a str, expected: &str) -> Option<&'a str> {
    *rest = rest.trim_start();
    rest.strip_prefix(expected)
}

fn unclear_if(rest: &str, expected: &str) -> Beginning {
    if expected.starts_with(rest) {
        Beginning::Unclear
    } else {
        Beginning::Words
    }
}

fn is_offered(name: &str, tools: &[Offered]) -> bool {
    tools.iter().any(|tool| tool.name == name)
}

/// One object of JSON, or several, or lists of them.
fn listed(written: &str) -> Option<Vec<Call>> {
    let mut calls = Vec::new();
    for value in Deserializer::from_str(written).into_iter() {
        match value.ok()? {
            Value::Array(entries) => {
                for entry in &entries {
                    calls.push(by_name(entry)?);
                }
            }
            value => calls.push(by_name(&value)?),
        }
    }
    Some(calls)
}

/// Objects of JSON with semicolons between them.
fn separated(written: &str) -> Option<Vec<Call>> {
    let mut calls = Vec::new();
    let mut rest = written.trim();
    while !rest.is_empty() {
        let mut values = Deserializer::from_str(rest).into_iter::<Value>();
        let value = values.next()?.ok()?;
        calls.push(by_name(&value).filter(|_| is_nothing_but_a_call(&value))?);
        let after = rest.get(values.byte_offset()..)?.trim_start();
        rest = after.strip_prefix(';').unwrap_or(after).trim_start();
    }
    Some(calls)
}

/// Whether an object of JSON is a call and no answer in JSON that has a name in it. A tool's own description is none
/// either.
fn is_nothing_but_a_call(value: &Value) -> bool {
    const KEYS: [&str; 5] = ["type", "id", "name", "parameters", "arguments"];
    let Some(fields) = value.as_object() else {
        return false;
    };
    let given = fields.get("parameters").or_else(|| fields.get("arguments"));
    let is_schema = given.is_some_and(|given| {
        given.get("type").is_some_and(|kind| kind == "object") && given.get("properties").is_some()
    });
    fields.keys().all(|key| KEYS.contains(&key.as_str()))
        && given.is_some_and(Value::is_object)
        && !is_schema
}

/// `{"name": …, "arguments": {…}}`, which some call `parameters`.
fn by_name(call: &Value) -> Option<Call> {
    let call = call
        .get("function")
        .filter(|it| it.is_object())
        .unwrap_or(call);
    let name = call.get("name")?.as_str()?.to_owned();
    let arguments = call.get("arguments").or_else(|| call.get("parameters"));
    let arguments = match arguments {
        None | Some(Value::Null) => "{}".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    };
    Some(Call { name, arguments })
}

/// `name[ARGS]{…}`, perhaps with an id between the two.
fn named(written: &str) -> Option<Call> {
    let (name, arguments) = written.split_once(ARGUMENTS)?;
    let name = name
        .split_once(CALL_ID)
        .map_or(name, |(name, _)| name)
        .trim();
    let arguments = object(arguments)?;
    (!name.is_empty()).then(|| Call {
        name: name.to_owned(),
        arguments,
    })
}

/// `<function=name><parameter=key>value</parameter></function>`.
fn by_function(written: &str, tools: &[Offered]) -> Option<Call> {
    let rest = written.trim().strip_prefix(FUNCTION)?;
    let (name, rest) = rest.split_once('>')?;
    let mut rest = rest.trim_end().strip_suffix("</function>")?.trim();
    let mut arguments = Arguments::of(name.trim(), tools);
    while !rest.is_empty() {
        let (key, after) = rest.strip_prefix("<parameter=")?.split_once('>')?;
        let (value, after) = after.split_once("</parameter>")?;
        // The line breaks are the tags', the others the value's own.
        let value = value.strip_prefix('\n').unwrap_or(value);
        let value = value.strip_suffix('\n').unwrap_or(value);
        arguments.add(key.trim(), value);
        rest = after.trim_start();
    }
    arguments.call()
}

/// `name<arg_key>key</arg_key><arg_value>value</arg_value>`.
fn by_key(written: &str, tools: &[Offered]) -> Option<Call> {
    let written = written.trim();
    let split = written.find("<arg_key>").unwrap_or(written.len());
    let (name, mut rest) = written.split_at(split);
    // Without arguments it is a word between tags, and people speak of such.
    if rest.is_empty() && !is_offered(name.trim(), tools) {
        return None;
    }
    let mut arguments = Arguments::of(name.trim(), tools);
    while !rest.is_empty() {
        let (key, after) = rest.strip_prefix("<arg_key>")?.split_once("</arg_key>")?;
        let after = after.trim_start().strip_prefix("<arg_value>")?;
        let (value, after) = after.split_once("</arg_value>")?;
        arguments.add(key.trim(), value);
        rest = after.trim_start();
    }
    arguments.call()
}

/// Arguments that a model wrote without saying of what kind they are.
struct Arguments<'a> {
    name: &'a str,
    schema: Value,
    given: Map<String, Value>,
}

impl<'a> Arguments<'a> {
    fn of(name: &'a str, tools: &[Offered]) -> Self {
        let tool = tools.iter().find(|tool| tool.name == name);
        let schema = tool.and_then(|tool| serde_json::from_str(&tool.parameters).ok());
        Self {
            name,
            schema: schema.unwrap_or_default(),
            given: Map::new(),
        }
    }

    /// As the tool's schema has it: what it wants as text is text, were it a number.
    fn add(&mut self, key: &str, value: &str) {
        let wanted = self
            .schema
            .get("properties")
            .and_then(|properties| properties.get(key)?.get("type"));
        let is_text = match wanted {
            Some(Value::String(kind)) => kind == "string",
            Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "string"),
            Some(_) | None => false,
        };
        let text = || Value::String(value.to_owned());
        let value = if is_text {
            text()
        } else {
            serde_json::from_str(value.trim()).unwrap_or_else(|_| text())
        };
        self.given.insert(key.to_owned(), value);
    }

    /// A name without any sense is no call.
    fn call(self) -> Option<Call> {
        let is_name = !self.name.is_empty()
            && self
                .name
                .chars()
                .all(|letter| letter.is_alphanumeric() || "_-.:".contains(letter));
        is_name.then(|| Call {
            name: self.name.to_owned(),
            arguments: Value::Object(self.given).to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools() -> Vec<Offered> {
        let parameters = r#"{"type":"object","properties":{"at":{"type":"string"},"deep":{"type":"integer"},"sure":{"type":"boolean"}}}"#;
        ["look", "look_up"]
            .map(|name| Offered {
                name: name.to_owned(),
                description: String::new(),
                parameters: parameters.to_owned(),
            })
            .to_vec()
    }

    fn call(name: &str, arguments: &str) -> Call {
        Call {
            name: name.to_owned(),
            arguments: arguments.to_owned(),
        }
    }

    #[test]
    fn every_form_of_a_call_is_read() {
        let at = || call("look", r#"{"at":"reef"}"#);
        let both = || vec![at(), call("look_up", "{}")];
        for (form, written, calls) in [
            (
                CallForm::Tagged,
                "\n{\"name\": \"look\", \"arguments\": {\"at\": \"reef\"}}\n",
                vec![at()],
            ),
            (
                CallForm::Tagged,
                r#"[{"name":"look","arguments":"{\"at\":\"reef\"}"},{"name":"look_up"}]"#,
                both(),
            ),
            (
                CallForm::Tagged,
                r#"{"type":"function","function":{"name":"look","parameters":{"at":"reef"}}}"#,
                vec![at()],
            ),
            (
                CallForm::TaggedParameters,
                "\n<function=look>\n<parameter=at>\n12\n</parameter>\n<parameter=deep>\n12\n</parameter>\n<parameter=sure>\ntrue\n</parameter>\n</function>\n",
                vec![call("look", r#"{"at":"12","deep":12,"sure":true}"#)],
            ),
            (
                CallForm::TaggedParameters,
                "<function=look>\n<parameter=at>\na\n\n b\n\n</parameter>\n</function>",
                vec![call("look", r#"{"at":"a\n\n b\n"}"#)],
            ),
            (
                CallForm::TaggedParameters,
                "look\n<arg_key>at</arg_key>\n<arg_value>reef</arg_value>\n",
                vec![at()],
            ),
            (
                CallForm::TaggedParameters,
                "look_up\n",
                vec![call("look_up", "{}")],
            ),
            (
                CallForm::MistralList,
                r#" [{"name": "look", "arguments": {"at": "reef"}, "id": "000000001"}, {"name": "look_up", "arguments": {}}]"#,
                both(),
            ),
            (
                CallForm::MistralNamed,
                r#"look[ARGS]{"at":"reef"}[TOOL_CALLS]look_up[CALL_ID]000000002[ARGS]{}"#,
                both(),
            ),
            (
                CallForm::Barred,
                "[{\"name\": \"look\", \"arguments\": {\"at\": \"reef\"}}]<|/tool_call|>\n",
                vec![at()],
            ),
            (
                CallForm::Bare,
                r#"{"name": "look", "parameters": {"at": "reef"}}; {"name": "look_up", "parameters": {}}"#,
                both(),
            ),
        ] {
            assert_eq!(
                read(form, "", written, &tools()),
                Some(calls),
                "{form:?}: {written}"
            );
        }
        assert_eq!(
            read(
                CallForm::TaggedParameters,
                "<function=",
                "look>\n<parameter=at>\nreef\n</parameter>\n</function>\n",
                &tools()
            ),
            Some(vec![at()])
        );
    }

    #[test]
    fn what_is_not_whole_is_no_call_in_any_form() {
        for (form, written) in [
            (CallForm::Tagged, ""),
            (CallForm::Tagged, "{\"name\": \"look\""),
            (CallForm::Tagged, "{\"arguments\": {}}"),
            (CallForm::Tagged, "{\"name\": \"look\"} and more"),
            (
                CallForm::TaggedParameters,
                "<function=look>\n<parameter=at>\nreef",
            ),
            (
                CallForm::TaggedParameters,
                "<function=look>\n<parameter=at>\nreef\n</function>",
            ),
            (CallForm::TaggedParameters, "I will look there"),
            (
                CallForm::TaggedParameters,
                "look<arg_key>at</arg_key><arg_value>re",
            ),
            (CallForm::MistralList, "[{\"name\": \"look\"}"),
            (CallForm::MistralNamed, "look[ARGS]{\"at\": \"re"),
            (CallForm::MistralNamed, "look[ARGS][1]"),
            (CallForm::MistralNamed, "[ARGS]{}"),
            (CallForm::MistralNamed, "look[ARGS]{}[TOOL_CALLS]"),
            (CallForm::Barred, "[]"),
            (CallForm::TaggedParameters, "..."),
            (
                CallForm::Bare,
                "{\"name\": \"look\", \"description\": \"Looks\"}",
            ),
            (CallForm::Bare, "{\"name\": \"look\", \"age\": 12}"),
            (CallForm::Bare, "{\"name\": \"look\"}"),
            (
                CallForm::Bare,
                "{\"name\": \"look\", \"parameters\": {\"type\": \"object\", \"properties\": {}}}",
            ),
            (CallForm::Bare, "{\"name\": \"cook\", \"parameters\": {}}"),
            (CallForm::Bare, "look.call(at=\"reef\")"),
            (
                CallForm::Bare,
                "{\"name\": \"look\", \"parameters\": {}} is how",
            ),
        ] {
            assert_eq!(
                read(form, "", written, &tools()),
                None,
                "{form:?}: {written}"
            );
        }
    }

    #[test]
    fn an_answer_that_begins_as_a_call_is_told_from_words_as_soon_as_may_be() {
        let whole = "\n{ \"type\": \"function\", \"name\" : \"look_up\"";
        for end in 0..whole.len() {
            let said = &whole[..end];
            assert_eq!(beginning(said, &tools()), Beginning::Unclear, "{said}");
        }
        for (said, is) in [
            (whole, Beginning::Call),
            ("{\"name\":\"look\",", Beginning::Call),
            ("{\"name\":\"look", Beginning::Unclear),
            ("{\"name\":\"Look\"", Beginning::Words),
            ("{\"name\":\"lo\"", Beginning::Words),
            ("{\"title\":", Beginning::Words),
            ("{}", Beginning::Words),
            ("Kelp", Beginning::Words),
            ("{\"type\": \"fish\"", Beginning::Words),
        ] {
            assert_eq!(beginning(said, &tools()), is, "{said}");
        }
        assert_eq!(beginning("{\"name\":\"look\"", &[]), Beginning::Words);
    }
}
