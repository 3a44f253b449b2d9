//! How models write calls of tools: each as its chat template teaches it.

/// One way to write calls. The marks are those of the models' own templates; what is between them, a model's process
/// reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallForm {
    /// `<tool_call>{"name": …, "arguments": …}</tool_call>`: Hermes, Qwen, SmolLM, Granite 4.
    Tagged,
    /// The same tags, and in them tags of the function and of each parameter: Qwen's coders, GLM.
    TaggedParameters,
    /// `[TOOL_CALLS]` and then a list of JSON to the answer's end: Mistral until 2024.
    MistralList,
    /// `[TOOL_CALLS]name[ARGS]{…}`, once or more: Mistral since.
    MistralNamed,
    /// `<|tool_call|>` and then a list of JSON to the answer's end: Granite 3.
    Barred,
    /// The answer is one object of JSON with `parameters`, or follows `<|python_tag|>`: Llama 3.
    Bare,
    /// A channel of its own with the function for recipient: gpt-oss.
    Channels,
}

impl CallForm {
    /// Of a chat template; nothing if it knows no tools, or writes calls in a way that is none of these.
    pub fn of(template: &str) -> Option<Self> {
        let has = |mark| template.contains(mark);
        if !has("tools") {
            return None;
        }
        Some(if has("<|channel|>") && has("<|call|>") {
            Self::Channels
        } else if has("<tool_call>") && (has("<function=") || has("<arg_key>")) {
            Self::TaggedParameters
        } else if has("<tool_call>") {
            Self::Tagged
        } else if has("[TOOL_CALLS]") && has("[ARGS]") {
            Self::MistralNamed
        } else if has("[TOOL_CALLS]") {
            Self::MistralList
        } else if has("<|tool_call|>") {
            Self::Barred
        } else if has("<|python_tag|>") || has("Environment: ipython") {
            Self::Bare
        } else {
            return None;
        })
    }
}

#[cfg(test)]
mod tests {
    use super::CallForm;

    #[test]
    fn a_template_tells_how_its_model_writes_calls() {
        for (template, form) in [
            ("{% if tools %}<tool_call>", Some(CallForm::Tagged)),
            (
                "{% if tools %}<tool_call>\n<function=look>",
                Some(CallForm::TaggedParameters),
            ),
            (
                "{% if tools %}<tool_call>name<arg_key>",
                Some(CallForm::TaggedParameters),
            ),
            (
                "[AVAILABLE_TOOLS]{{ tools }}[TOOL_CALLS]",
                Some(CallForm::MistralList),
            ),
            (
                "{{ tools }}[TOOL_CALLS]{{ name }}[ARGS]",
                Some(CallForm::MistralNamed),
            ),
            ("{{ tools }}<|tool_call|>", Some(CallForm::Barred)),
            ("{{ tools }}Environment: ipython", Some(CallForm::Bare)),
            (
                "{{ tools }}<|channel|>commentary<|call|>",
                Some(CallForm::Channels),
            ),
            ("{{ tools }}<|START_ACTION|>", None),
            ("<tool_call> without any of them", None),
            ("{{ messages }}", None),
        ] {
            assert_eq!(CallForm::of(template), form, "{template}");
        }
    }
}
