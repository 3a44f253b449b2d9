//! What a model hands to a tool: JSON text that becomes a typed struct, or words that say what is wrong with it.
//!
//! Invariant: one table per tool is the schema that the model is shown and the check that its arguments must pass.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// One field of a tool's arguments.
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) need: Need,
    /// For the model.
    pub(super) meaning: &'static str,
}

#[derive(Clone, Copy)]
pub(super) enum Kind {
    Text,
    /// A whole number from 1 on.
    Count,
}

#[derive(Clone, Copy)]
pub(super) enum Need {
    Required,
    Optional,
}

/// The JSON Schema of these fields.
pub(super) fn schema(fields: &[Field]) -> String {
    let properties: Map<String, Value> = fields
        .iter()
        .map(|field| {
            let mut property = match field.kind {
                Kind::Text => json!({"type": "string"}),
                Kind::Count => json!({"type": "integer", "minimum": 1}),
            };
            if let Some(property) = property.as_object_mut() {
                property.insert("description".to_owned(), json!(field.meaning));
            }
            (field.name.to_owned(), property)
        })
        .collect();
    let required: Vec<&str> = fields
        .iter()
        .filter(|field| matches!(field.need, Need::Required))
        .map(|field| field.name)
        .collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
    .to_string()
}

/// The arguments of `tool`, checked against its fields.
///
/// # Errors
/// Words for the model: which field is wrong, and what the tool takes.
pub(super) fn parse<T: DeserializeOwned>(
    tool: &str,
    fields: &[Field],
    arguments: &str,
) -> Result<T, String> {
    let wrong = |what: String| format!("{what}. {tool} {}.", takes(fields));
    let arguments = if arguments.trim().is_empty() {
        "{}"
    } else {
        arguments
    };
    let mut given = match serde_json::from_str(arguments) {
        Ok(Value::Object(given)) => given,
        Ok(Value::Null) => Map::new(),
        Ok(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            return Err(wrong("The arguments must be one JSON object".to_owned()));
        }
        Err(error) => return Err(wrong(format!("The arguments are not valid JSON: {error}"))),
    };
    // `null` for a field says the same as leaving it away.
    given.retain(|_, value| !value.is_null());
    if let Some(name) = given
        .keys()
        .find(|name| !fields.iter().any(|field| field.name == name.as_str()))
    {
        return Err(wrong(format!("There is no argument {}", quoted(name))));
    }
    for field in fields {
        match (given.get(field.name), field.need) {
            (None, Need::Optional) => {}
            (None, Need::Required) => {
                return Err(wrong(format!("The argument {:?} is missing", field.name)));
            }
            (Some(value), Need::Required | Need::Optional) => check(field, value).map_err(wrong)?,
        }
    }
    serde_json::from_value(Value::Object(given))
        .map_err(|error| wrong(format!("The arguments do not fit: {error}")))
}

fn check(field: &Field, value: &Value) -> Result<(), String> {
    let fits = match field.kind {
        Kind::Text => value.is_string(),
        Kind::Count => value.as_u64().is_some_and(|count| count > 0),
    };
    if fits {
        return Ok(());
    }
    let found = match value {
        Value::Null => "nothing".to_owned(),
        Value::Bool(given) => given.to_string(),
        Value::Number(given) => given.to_string(),
        Value::String(given) => format!("the text {}", quoted(given)),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    };
    Err(format!(
        "The argument {:?} must be {}, not {found}",
        field.name,
        kind(field.kind)
    ))
}

fn takes(fields: &[Field]) -> String {
    if fields.is_empty() {
        return "takes no arguments: {}".to_owned();
    }
    let list: Vec<String> = fields
        .iter()
        .map(|field| {
            let need = match field.need {
                Need::Required => "required",
                Need::Optional => "may be left away",
            };
            format!("{} ({}, {need})", field.name, kind(field.kind))
        })
        .collect();
    format!("takes {}", list.join(", "))
}

const fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "a text",
        Kind::Count => "a whole number from 1 on, such as 5",
    }
}

/// Longest piece of what the model wrote that is said back to it.
const QUOTED_CHARS_MAX: usize = 200;

/// In quotes and escaped; only the beginning of a long text.
pub(super) fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTED_CHARS_MAX) {
        None => format!("{text:?}"),
        Some((cut, _)) => format!("{:?}…", text.get(..cut).unwrap_or_default()),
    }
}
