//! The grammar of calls: from the mark on, the model can write nothing but a call of an offered tool that fits its schema.

use protocol::{CallForm, model_process::Offered};
use serde_json::{Map, Value, json};

use crate::calls::{self, Marks};

/// The mark that begins a call, and what follows in llama.cpp's notation; nothing where a form is no JSON from its mark
/// on, or a schema holds more than can be said.
pub(crate) fn of_calls(form: CallForm, tools: &[Offered]) -> Option<(&'static str, String)> {
    let is_json = matches!(
        form,
        CallForm::Tagged | CallForm::MistralList | CallForm::Barred
    );
    if tools.is_empty() || !is_json {
        return None;
    }
    let Marks { begin, end } = calls::marks(form);
    let begins = *begin.first()?;
    let calls: Vec<String> = tools.iter().map(call).collect();
    let schema = format!("{{\"anyOf\":[{}]}}", calls.join(","));
    let inner = llama_cpp_2::json_schema_to_grammar(&schema).ok()?;
    let mut lines: Vec<String> = inner
        .lines()
        .map(|line| match line.strip_prefix("root ::=") {
            Some(rest) => format!("one-call ::={rest}"),
            None => line.to_owned(),
        })
        .collect();
    let mark = json!(begins);
    lines.push(match end.map(|end| json!(end)) {
        Some(end) => format!(
            "root ::= {mark} [ \\n]? one-call [ \\n]? {end} ([ \\n]? {mark} [ \\n]? one-call [ \\n]? {end})*"
        ),
        None => format!("root ::= {mark} [ \\n]? \"[\" one-call (\",\" \" \"? one-call)* \"]\""),
    });
    Some((begins, lines.join("\n")))
}

/// As text, for the order of the fields is the order in which the model has to write them: the name first, as it learnt.
fn call(tool: &Offered) -> String {
    let is_schema = serde_json::from_str::<Map<String, Value>>(&tool.parameters).is_ok();
    let parameters = if is_schema {
        tool.parameters.as_str()
    } else {
        "{\"type\":\"object\"}"
    };
    let name = json!(tool.name);
    format!(
        "{{\"type\":\"object\",\"properties\":{{\"name\":{{\"const\":{name}}},\"arguments\":{parameters}}},\"required\":[\"name\",\"arguments\"]}}"
    )
}
