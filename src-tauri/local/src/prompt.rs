//! What the model reads: the conversation in the form of its own template.
//!
//! Invariant: the template comes from the model's file and is nobody's program: it sees the conversation and nothing
//! else, and has a bounded number of steps.

use std::{collections::BTreeMap, io};

use minijinja::{
    Environment, Error, ErrorKind, UndefinedBehavior, Value, context,
    syntax::SyntaxConfig,
    value::{Kwargs, Serde, ValueKind},
};
use protocol::{
    CallForm, Think,
    model_process::{Made, Offered, Role, Told},
};
use serde::Serialize;
use serde_json::ser::PrettyFormatter;

/// What stands for an answer that was never given, where a template insists on one.
const UNSAID: &str = "…";

/// Steps of a template; a long conversation takes some hundred thousand.
const FUEL: u64 = 2_000_000;

/// Spaces of a level; nobody wants more.
const INDENT_MAX: usize = 16;

/// For files that bring no template: the form that most models were trained on.
const CHATML: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// Why there is no prompt.
#[derive(Debug)]
pub struct TemplateError(Error);

impl std::fmt::Display for TemplateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // With what lies beneath: the template's own objection is there.
        write!(f, "{:#}", self.0)
    }
}

impl std::error::Error for TemplateError {}

/// A model's template.
pub struct Template {
    environment: Environment<'static>,
    bos: String,
    eos: String,
    form: Option<CallForm>,
}

/// What the model reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// Up to where the model goes on.
    pub text: String,
    /// How it was told to write calls of tools; nothing if it was told of none.
    pub calls: Option<CallForm>,
}

impl Template {
    /// Of a model's file; a general one if it has none. `bos` and `eos` are its tokens, as text.
    ///
    /// # Errors
    /// That it cannot be read.
    pub fn new(source: Option<&str>, bos: &str, eos: &str) -> Result<Self, TemplateError> {
        let source = without_generation(source.unwrap_or(CHATML));
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build();
        environment.set_syntax(syntax.map_err(TemplateError)?);
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_fuel(Some(FUEL));
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_filter("tojson", to_json);
        environment.add_function("raise_exception", |words: String| {
            Err::<Value, _>(Error::new(ErrorKind::InvalidOperation, words))
        });
        // Nobody has asked the clock: a prompt that changed with the day would be read anew.
        environment.add_function("strftime_now", |_form: String| String::new());
        environment
            .add_template_owned("chat", source.clone())
            .map_err(TemplateError)?;
        Ok(Self {
            environment,
            bos: bos.to_owned(),
            eos: eos.to_owned(),
            form: CallForm::of(&source),
        })
    }

    /// How its model writes calls, and answers altogether; nothing if in no form that we understand.
    pub fn form(&self) -> Option<CallForm> {
        self.form
    }

    /// The prompt. It has no tools if the template does not tell of them in a form that we understand.
    ///
    /// # Errors
    /// What the template objects to.
    pub fn render(
        &self,
        messages: &[Told],
        tools: &[Offered],
        think: Option<Think>,
    ) -> Result<Prompt, TemplateError> {
        let messages = &match self.form {
            Some(form) => in_order(form, messages),
            None => in_words(messages),
        };
        let mut rendered = self.rendered(messages, tools, think);
        // Some templates know no instructions, which the first message is told then; and some insist on taking turns.
        let tries: [&dyn Fn() -> Vec<Told>; 3] = [
            &|| without_system(messages),
            &|| taking_turns(messages),
            &|| taking_turns(&without_system(messages)),
        ];
        for other in tries {
            if rendered.is_ok() {
                break;
            }
            // The first objection is the one that is told.
            rendered = self.rendered(&other(), tools, think).or(rendered);
        }
        // A template that fails over a tool still has a conversation to tell; the answer says that it saw no tools.
        if rendered.is_err() && !tools.is_empty() {
            let without = self.render(messages, &[], think);
            return without.map_err(|other| rendered.err().map_or(other, TemplateError));
        }
        let text = rendered.map_err(TemplateError)?;
        // A template may speak of tools and take them from elsewhere.
        let is_told = !tools.is_empty() && tools.iter().all(|tool| text.contains(&tool.name));
        let calls = self.form.filter(|_| is_told);
        Ok(Prompt { text, calls })
    }

    fn rendered(
        &self,
        messages: &[Told],
        tools: &[Offered],
        think: Option<Think>,
    ) -> Result<String, Error> {
        let messages: Vec<_> = messages.iter().map(message).collect();
        let tools: Vec<_> = tools
            .iter()
            .filter(|_| self.form.is_some())
            .map(tool)
            .collect();
        let tools = if tools.is_empty() {
            // Not none: that is iterable here, and has no length.
            Value::UNDEFINED
        } else {
            Value::from(Serde(tools))
        };
        let thinking = match think {
            None | Some(Think::ServerDefault) => Value::UNDEFINED,
            Some(Think::Off) => Value::from(false),
            Some(Think::On | Think::Low | Think::Medium | Think::High) => Value::from(true),
        };
        self.environment.get_template("chat")?.render(context! {
            messages => Value::from(Serde(messages)),
            tools => tools,
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
            add_generation_prompt => true,
            enable_thinking => thinking,
        })
    }
}

/// With the instructions in the first message.
fn without_system(messages: &[Told]) -> Vec<Told> {
    match messages {
        [first, second, after @ ..] if first.role == Role::System && second.role == Role::User => {
            let mut merged = vec![Told {
                content: format!("{}\n\n{}", first.content, second.content),
                ..second.clone()
            }];
            merged.extend_from_slice(after);
            merged
        }
        _ => messages.to_vec(),
    }
}

/// With what one side said in several messages in one: after a turn that failed, two questions stand together.
fn taking_turns(messages: &[Told]) -> Vec<Told> {
    let mut merged: Vec<Told> = Vec::new();
    for told in messages {
        match merged.last_mut() {
            Some(last)
                if last.role == told.role
                    && told.role != Role::Tool
                    && last.tool_calls.is_empty() =>
            {
                if !last.content.is_empty() && !told.content.is_empty() {
                    last.content.push_str("\n\n");
                }
                last.content.push_str(&told.content);
                last.tool_calls.clone_from(&told.tool_calls);
            }
            last => {
                // After a stop nobody answered the result.
                if last.is_some_and(|last| last.role == Role::Tool) && told.role == Role::User {
                    merged.push(Told {
                        role: Role::Assistant,
                        content: UNSAID.to_owned(),
                        ..told.clone()
                    });
                }
                merged.push(told.clone());
            }
        }
    }
    merged
}

/// The marks around what a model is trained on, which some templates have: Python's templates know them, and they say
/// nothing.
fn without_generation(source: &str) -> String {
    let mut rest = source;
    let mut kept = String::with_capacity(source.len());
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        let Some(end) = tag.find("%}") else {
            break;
        };
        let (tag, after) = tag.split_at(end + 2);
        let inside = tag.trim_start_matches("{%").trim_end_matches("%}");
        let word = inside.trim_start_matches('-').trim_end_matches('-').trim();
        if matches!(word, "generation" | "endgeneration") {
            // The white space that its dashes take away.
            kept.push_str(if inside.starts_with('-') {
                before.trim_end()
            } else {
                before
            });
            rest = if inside.ends_with('-') {
                after.trim_start()
            } else {
                after
            };
        } else {
            kept.push_str(before);
            kept.push_str(tag);
            rest = after;
        }
    }
    kept.push_str(rest);
    kept
}

/// For a template that knows nothing of tools: what another model called, and what came of it, in words.
fn in_words(messages: &[Told]) -> Vec<Told> {
    let told = messages.iter().map(|told| {
        let mut lines = vec![told.content.clone()];
        lines.retain(|line| !line.is_empty());
        let mut role = told.role;
        if role == Role::Tool {
            let name = told.name.as_deref().unwrap_or("a tool");
            lines.insert(0, format!("[The tool {name} gave:]"));
            role = Role::User;
        }
        let calls = told.tool_calls.iter();
        lines.extend(calls.map(|call| format!("[Called {} with {}.]", call.name, call.arguments)));
        Told {
            role,
            content: lines.join("\n"),
            tool_calls: Vec::new(),
            name: None,
            tool_call_id: None,
        }
    });
    told.collect()
}

/// As strict templates want it: ids of nine digits, which Mistral's insist on, and no more than one call in a message,
/// for Llama's refuse others and gpt-oss's passes them over.
fn in_order(form: CallForm, messages: &[Told]) -> Vec<Told> {
    let mut ids = BTreeMap::new();
    let mut renamed = |id: &str| {
        let next = ids.len() + 1;
        let number = *ids.entry(id.to_owned()).or_insert(next);
        format!("{number:09}")
    };
    let mut ordered: Vec<Told> = Vec::new();
    for told in messages {
        let mut told = told.clone();
        for call in &mut told.tool_calls {
            call.id = renamed(&call.id);
        }
        told.tool_call_id = told.tool_call_id.as_deref().map(&mut renamed);
        if !matches!(form, CallForm::Bare | CallForm::Channels) {
            ordered.push(told);
        } else if told.role == Role::Tool {
            // Behind the call that it answers.
            let asked = ordered.iter().rposition(|asked| {
                let ids = asked.tool_calls.iter().map(|call| Some(call.id.as_str()));
                ids.into_iter().any(|id| id == told.tool_call_id.as_deref())
            });
            let at = asked.map_or(ordered.len(), |asked| asked + 1);
            ordered.insert(at, told);
        } else {
            let calls = std::mem::take(&mut told.tool_calls);
            let mut content = std::mem::take(&mut told.content);
            if calls.is_empty() {
                ordered.push(Told { content, ..told });
                continue;
            }
            for call in calls {
                ordered.push(Told {
                    content: std::mem::take(&mut content),
                    tool_calls: vec![call],
                    ..told.clone()
                });
            }
        }
    }
    ordered
}

/// A message as templates look at it; what is absent is undefined there.
#[derive(Serialize)]
struct Message<'a> {
    role: Role,
    content: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Function<Called<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
}

/// A tool or a call of one. The fields are in the order in which models have learnt them, and so are those of a schema:
/// templates print the whole.
#[derive(Serialize)]
struct Function<F> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    r#type: &'static str,
    function: F,
}

#[derive(Serialize)]
struct Called<'a> {
    name: &'a str,
    arguments: Value,
}

#[derive(Serialize)]
struct Described<'a> {
    name: &'a str,
    description: &'a str,
    parameters: Value,
}

fn message(told: &Told) -> Message<'_> {
    Message {
        role: told.role,
        content: &told.content,
        tool_calls: told.tool_calls.iter().map(call).collect(),
        name: told.name.as_deref(),
        tool_call_id: told.tool_call_id.as_deref(),
    }
}

fn call(made: &Made) -> Function<Called<'_>> {
    // Broken arguments were never run, and are told as none.
    let arguments = serde_json::from_str::<Value>(&made.arguments).ok();
    let arguments = arguments.filter(|arguments| arguments.kind() == ValueKind::Map);
    Function {
        id: Some(made.id.clone()),
        r#type: "function",
        function: Called {
            name: &made.name,
            arguments: arguments
                .unwrap_or_else(|| Value::from(Serde(BTreeMap::<String, ()>::new()))),
        },
    }
}

fn tool(offered: &Offered) -> Function<Described<'_>> {
    Function {
        id: None,
        r#type: "function",
        function: Described {
            name: &offered.name,
            description: &offered.description,
            parameters: serde_json::from_str(&offered.parameters).unwrap_or_default(),
        },
    }
}

/// As Python writes JSON, for models have learnt from what Python wrote.
/// Of its options only the indentation changes what is written; letters are never escaped here.
fn to_json(value: Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent").ok().flatten();
    let mut bytes = Vec::new();
    let written = match indent {
        Some(spaces) => {
            let spaces = " ".repeat(spaces.min(INDENT_MAX));
            let pretty = PrettyFormatter::with_indent(spaces.as_bytes());
            let mut writer = serde_json::Serializer::with_formatter(&mut bytes, pretty);
            value.serialize(&mut writer)
        }
        None => {
            let mut writer = serde_json::Serializer::with_formatter(&mut bytes, Spaced);
            value.serialize(&mut writer)
        }
    };
    written.map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
    Ok(Value::from_safe_string(
        String::from_utf8_lossy(&bytes).into_owned(),
    ))
}

/// A space after each comma and colon.
struct Spaced;

impl serde_json::ser::Formatter for Spaced {
    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        w: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first { Ok(()) } else { w.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        w: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first { Ok(()) } else { w.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, w: &mut W) -> io::Result<()> {
        w.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(role: Role, content: &str) -> Told {
        Told {
            role,
            content: content.to_owned(),
            tool_calls: Vec::new(),
            name: None,
            tool_call_id: None,
        }
    }

    fn look() -> Offered {
        Offered {
            name: "look".to_owned(),
            description: "Looks <there>.".to_owned(),
            parameters: "{\"type\":\"object\",\"properties\":{}}".to_owned(),
        }
    }

    /// In the manner of Qwen's: tools, calls, results, and a switch for thinking.
    const TOOLS: &str = "{%- if tools %}{{- '<tools>' }}{%- for tool in tools %}{{- \"\\n\" }}{{- tool | tojson }}{%- endfor %}{{- '</tools>' }}{%- endif %}{%- for message in messages %}{%- if message.tool_calls %}{%- for tool_call in message.tool_calls %}{{- '<tool_call>' }}{{- tool_call.function.name }} {{ tool_call.function.arguments | tojson }}{{- '</tool_call>' }}{%- endfor %}{%- else %}{{- '[' + message.role + ']' + message.content.strip() }}{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{- '[assistant]' }}{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think></think>' }}{%- endif %}{%- endif %}";

    #[test]
    fn a_file_without_a_template_is_asked_in_the_usual_form() {
        let template = Template::new(None, "", "").unwrap();
        let prompt = template.render(&[told(Role::User, "Hello?")], &[], None);
        assert_eq!(
            prompt.unwrap().text,
            "<|im_start|>user\nHello?<|im_end|>\n<|im_start|>assistant\n"
        );
        assert_eq!(template.form(), None);
    }

    #[test]
    fn tools_calls_and_the_switch_for_thinking_come_to_their_places() {
        let template = Template::new(Some(TOOLS), "", "").unwrap();
        assert_eq!(template.form(), Some(CallForm::Tagged));
        let mut asked = told(Role::Assistant, "");
        asked.tool_calls.push(Made {
            id: "1".to_owned(),
            name: "look".to_owned(),
            arguments: "{\"at\":[1,2]}".to_owned(),
        });
        let messages = [told(Role::User, " Hi "), asked, told(Role::Tool, "kelp")];
        let prompt = template
            .render(&messages, &[look()], Some(Think::Off))
            .unwrap();
        assert_eq!(prompt.calls, Some(CallForm::Tagged));
        assert_eq!(
            prompt.text,
            "<tools>\n{\"type\": \"function\", \"function\": {\"name\": \"look\", \"description\": \"Looks <there>.\", \"parameters\": {\"type\": \"object\", \"properties\": {}}}}</tools>[user]Hi<tool_call>look {\"at\": [1, 2]}</tool_call>[tool]kelp[assistant]<think></think>"
        );
        let prompt = template.render(&messages, &[], None).unwrap();
        assert_eq!(prompt.calls, None);
        assert!(!prompt.text.contains("<tools>") && prompt.text.ends_with("[assistant]"));
    }

    #[test]
    fn tools_that_a_template_does_not_take_or_not_as_we_understand_are_not_told() {
        for source in [
            "{% if tools %}{{ tools[0].function.name }}<|START_ACTION|>{% endif %}",
            "{{ messages[0].tools }}<tool_call>",
        ] {
            let template = Template::new(Some(source), "", "").unwrap();
            let prompt = template.render(&[told(Role::User, "Hi")], &[look()], None);
            assert_eq!(prompt.unwrap().calls, None, "{source}");
        }
    }

    /// In the manner of Mistral's, which check the ids of calls, and of Llama's, which take one call at a time.
    const STRICT: &str = "{{ tools[0].function.name }}{% for message in messages %}{% if message.tool_calls %}{% if message.tool_calls | length > 1 and one %}{{ raise_exception('one at a time') }}{% endif %}{% for call in message.tool_calls %}{% if call.id | length != 9 %}{{ raise_exception('nine') }}{% endif %}<{{ call.id }}{% endfor %}{% elif message.tool_call_id %}>{{ message.tool_call_id }}{% else %}[{{ message.content }}]{% endif %}{% endfor %}";

    #[test]
    fn calls_and_results_come_as_strict_templates_want_them() {
        let made = |id: &str| Made {
            id: id.to_owned(),
            name: "look".to_owned(),
            arguments: "{}".to_owned(),
        };
        let gave = |id: &str| Told {
            tool_call_id: Some(id.to_owned()),
            ..told(Role::Tool, "kelp")
        };
        let asked = |ids: &[&str]| Told {
            tool_calls: ids.iter().map(|id| made(id)).collect(),
            ..told(Role::Assistant, "")
        };
        let messages = [
            told(Role::User, "Hi"),
            asked(&["call_a", "call_b"]),
            gave("call_a"),
            gave("call_b"),
            asked(&["c"]),
            gave("c"),
            told(Role::Assistant, "Kelp."),
        ];
        let rendered = |marks: &str| {
            let source = format!("{{# {marks} #}}{STRICT}");
            let source = source.replace(
                "and one",
                if marks.contains("TOOL") {
                    "and false"
                } else {
                    ""
                },
            );
            let template = Template::new(Some(&source), "", "").unwrap();
            template.render(&messages, &[look()], None).unwrap().text
        };
        assert_eq!(
            rendered("[TOOL_CALLS]"),
            "look[Hi]<000000001<000000002>000000001>000000002<000000003>000000003[Kelp.]"
        );
        assert_eq!(
            rendered("<|channel|><|call|>"),
            rendered("<|python_tag|>"),
            "gpt-oss's tells the first call of a message alone"
        );
        assert_eq!(
            rendered("<|python_tag|>"),
            "look[Hi]<000000001>000000001<000000002>000000002<000000003>000000003[Kelp.]"
        );
    }

    #[test]
    fn a_template_that_knows_no_instructions_is_told_them_in_the_first_message() {
        let source = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}";
        let template = Template::new(Some(source), "", "").unwrap();
        let both = [told(Role::System, "Be brief."), told(Role::User, "Hi")];
        assert_eq!(
            template.render(&both, &[], None).unwrap().text,
            "Be brief.\n\nHi"
        );
        let alone = [told(Role::System, "Be brief.")];
        let error = template.render(&alone, &[], None).unwrap_err();
        assert!(error.to_string().contains("no system"), "{error}");
    }

    #[test]
    fn a_template_that_insists_on_taking_turns_is_told_both_questions_at_once() {
        let source = "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('turns') }}{% endif %}<{{ m.content }}>{% endfor %}";
        let template = Template::new(Some(source), "", "").unwrap();
        let messages = [
            told(Role::System, "Be brief."),
            told(Role::User, "Hi"),
            told(Role::User, "Hello?"),
            told(Role::Assistant, "Yes."),
        ];
        assert_eq!(
            template.render(&messages, &[], None).unwrap().text,
            "<Be brief.\n\nHi\n\nHello?><Yes.>"
        );
        let first = [told(Role::Assistant, "Yes.")];
        let error = template.render(&first, &[], None).unwrap_err();
        assert!(error.to_string().contains("turns"), "{error}");
    }

    #[test]
    fn a_template_without_tools_is_told_of_earlier_calls_in_words() {
        let source = "{% for m in messages %}<{{ m.role }}|{{ m.content }}>{% endfor %}";
        let template = Template::new(Some(source), "", "").unwrap();
        let mut asked = told(Role::Assistant, "I look.");
        asked.tool_calls.push(Made {
            id: "1".to_owned(),
            name: "look".to_owned(),
            arguments: "{}".to_owned(),
        });
        let gave = Told {
            name: Some("look".to_owned()),
            ..told(Role::Tool, "kelp")
        };
        let messages = [told(Role::User, "Hi"), asked, gave];
        assert_eq!(
            template.render(&messages, &[look()], None).unwrap(),
            Prompt {
                text: "<user|Hi><assistant|I look.\n[Called look with {}.]><user|[The tool look gave:]\nkelp>"
                    .to_owned(),
                calls: None,
            }
        );
    }

    #[test]
    fn what_templates_ask_of_their_language_is_there() {
        let rendered = |source: &str, tools: &[Offered]| {
            let template = Template::new(Some(source), "", "").unwrap();
            template
                .render(&[told(Role::User, "Hi")], tools, None)
                .unwrap()
        };
        // Llama's and Granite's indentation, GLM's letters.
        let source = "{#tools<tool_call>#}{{ tools[0].function.parameters | tojson(indent=2) }}{{ 'é' | tojson(ensure_ascii=False) }}{{ tools[0].function.name }}";
        assert_eq!(
            rendered(source, &[look()]).text,
            "{\n  \"type\": \"object\",\n  \"properties\": {}\n}\"é\"look"
        );
        // Qwen's coders ask so whether there are tools.
        let source =
            "{% if tools is iterable and tools | length > 0 %}tools{% else %}none{% endif %}";
        assert_eq!(rendered(source, &[]).text, "none");
        let source = "{% for m in messages %}a {%- generation -%} {{ m.content }} {%- endgeneration -%} b{% generation %}{% endgeneration %}{% endfor %}{% x";
        let kept = "{% for m in messages %}a{{ m.content }}b{% endfor %}{% x";
        assert_eq!(without_generation(source), kept);
    }

    #[test]
    fn a_template_that_fails_over_a_tool_tells_the_conversation_without() {
        let source = "{#<tool_call>#}{% if tools %}{{ raise_exception('no such type') }}{% endif %}{{ messages[0].content }}";
        let template = Template::new(Some(source), "", "").unwrap();
        let prompt = template.render(&[told(Role::User, "Hi")], &[look()], None);
        let told = Prompt {
            text: "Hi".to_owned(),
            calls: None,
        };
        assert_eq!(prompt.unwrap(), told);
    }

    #[test]
    fn results_stay_apart_and_a_question_after_one_has_an_answer_before_it() {
        let result = |id: &str, text: &str| Told {
            tool_call_id: Some(id.to_owned()),
            ..told(Role::Tool, text)
        };
        let messages = [
            told(Role::User, "Hi"),
            told(Role::User, "Hello?"),
            result("1", "kelp"),
            result("2", "stone"),
            told(Role::User, "And now?"),
        ];
        let turns = taking_turns(&messages);
        let said: Vec<_> = turns.iter().map(|told| told.content.as_str()).collect();
        assert_eq!(said, ["Hi\n\nHello?", "kelp", "stone", UNSAID, "And now?"]);
    }

    #[test]
    fn a_template_that_never_ends_is_ended() {
        let source =
            "{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}";
        let template = Template::new(Some(source), "", "").unwrap();
        assert!(
            template
                .render(&[told(Role::User, "Hi")], &[], None)
                .is_err()
        );
        assert!(Template::new(Some("{% for %}"), "", "").is_err());
    }
}
