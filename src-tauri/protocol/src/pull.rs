//! Pulls: models that a server downloads because we asked it to.
//!
//! That a pull was begun and how it ended are events of the library. How far it is, is not: it is derived anew from
//! what the server says, and is gone with the boot.

use serde::{Deserialize, Serialize};

use crate::{Boot, Dialect, Failure, ModelRef, ProviderId, Timestamp};

/// How a pull ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome")]
pub enum PullOutcome {
    /// The server has the model.
    Completed,
    /// It has not; what was downloaded so far stays there, and a next pull goes on from it.
    Failed { failure: Failure },
    /// The user wants no more of it.
    Cancelled,
}

/// A pull that has not been completed, as the library's events have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenPull {
    /// What is pulled, and by whom.
    pub model: ModelRef,
    /// The boot in which it was begun.
    pub boot: Boot,
    /// When.
    pub started_at: Timestamp,
    /// Why it failed; absent while it runs, or if Holdfast ended first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// How far a server is with a pull.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullProgress {
    /// What the server says it is doing.
    pub status: String,
    /// The parts that it named so far, in that order.
    pub layers: Vec<PullLayer>,
    /// Of all parts named so far, in bytes; never gets less.
    pub completed_bytes: u64,
    /// Of all parts named so far, where the server tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
    /// How much of the whole, in thousandths; never gets less, and is 1000 only when the server said so.
    pub permille: u16,
    /// When any of this last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_at: Option<Timestamp>,
}

/// One part of a model, as it is being downloaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullLayer {
    /// Its name, `sha256:…`.
    pub digest: String,
    /// Its size in bytes, where the server tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
    /// What is there of it; never gets less.
    pub completed_bytes: u64,
}

/// A pull, as the reader sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullView {
    /// What is pulled, and by whom.
    pub model: ModelRef,
    /// When it was begun.
    pub started_at: Timestamp,
    /// Where it stands.
    #[serde(flatten)]
    pub state: PullState,
}

/// Where a pull stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state")]
pub enum PullState {
    /// It waits until another one is over.
    Waiting,
    /// It runs.
    Running { progress: PullProgress },
    /// Holdfast ended before it did; asking again goes on where it stopped.
    Interrupted,
    /// It failed; asking again goes on where it stopped.
    Failed { failure: Failure },
    /// The server has the model. Told for a while, so that whoever waited sees it.
    Completed {
        at: Timestamp,
        /// Of a file that was fetched to this computer, in hexadecimal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sha256: Option<String>,
    },
}

/// Every pull there is, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pulls {
    /// Changes with every change of them.
    pub revision: u64,
    /// Them.
    pub pulls: Vec<PullView>,
}

/// `pulls` -> [`Pulls`]; parks until the revision is another than the one seen, or for a while.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct PullsArgs {
    /// The revision last seen; absent for one that has seen none, which is answered at once.
    pub seen: Option<u64>,
    /// How long to park at most.
    pub wait_ms: u32,
}

/// What is done to a model on its server, at once and not as an event: the server is who keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action")]
pub enum ModelAction {
    /// Take it off the server's disk.
    Delete { model: String },
    /// Give it a second name.
    Copy { model: String, to: String },
    /// Take it out of memory.
    Unload { model: String },
}

/// `manage_model` -> `()`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ManageModelArgs {
    /// On which server.
    pub provider: ProviderId,
    /// What to do.
    pub action: ModelAction,
}

/// Longest name of a model, in bytes.
pub const MODEL_NAME_BYTES_MAX: usize = 256;

/// What a model may be called on an Ollama: `model`, `model:tag`, `owner/model:tag` or `host/owner/model:tag`, trimmed.
///
/// # Errors
/// What to change, in a sentence.
pub fn model_name(typed: &str) -> Result<String, &'static str> {
    let name = typed.trim();
    if name.is_empty() {
        return Err("A model needs a name, such as llama3.2 or qwen3:8b.");
    }
    if name.len() > MODEL_NAME_BYTES_MAX {
        return Err("No model has a name this long; it is one such as llama3.2 or qwen3:8b.");
    }
    let (path, last) = match name.rsplit_once('/') {
        Some((path, last)) => (Some(path), last),
        None => (None, name),
    };
    let (model, tag) = match last.split_once(':') {
        Some((model, tag)) => (model, Some(tag)),
        None => (last, None),
    };
    let sign = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let part = |text: &str| !text.is_empty() && text.chars().all(sign);
    // A registry may have a port.
    let owner = |text: &str| !text.is_empty() && text.chars().all(|c| sign(c) || c == ':');
    let owners: Vec<&str> = path.into_iter().flat_map(|path| path.split('/')).collect();
    let is_name =
        part(model) && tag.is_none_or(part) && owners.len() <= 3 && owners.into_iter().all(owner);
    if !is_name {
        return Err(
            "This is not a model’s name; it is one such as llama3.2, qwen3:8b or owner/model:tag, without spaces.",
        );
    }
    Ok(name.to_owned())
}

/// The same name as Ollama sees it: in small letters, and `latest` if it has no tag.
pub fn canonical_model_name(name: &str) -> String {
    let name = name.trim().to_ascii_lowercase();
    let last = name.rsplit('/').next().unwrap_or_default();
    if last.contains(':') {
        name
    } else {
        name + ":latest"
    }
}

/// Whether two names are of one model on a server of this kind: Ollama compares as [`canonical_model_name`] does, the
/// others letter by letter.
pub fn is_same_model_name(dialect: Dialect, one: &str, other: &str) -> bool {
    match dialect {
        Dialect::Ollama => canonical_model_name(one) == canonical_model_name(other),
        Dialect::OpenAiChat | Dialect::Anthropic | Dialect::Local => one == other,
    }
}

impl ModelRef {
    /// Whether both are the same model of the same server, whatever that was called at the time.
    pub fn is_same(&self, other: &Self) -> bool {
        self.provider == other.provider && self.model == other.model
    }

    /// The same for a model that is pulled, and so by the names of an Ollama.
    pub fn is_same_pull(&self, other: &Self) -> bool {
        self.is_pull_of(other.provider, &other.model)
    }

    /// Whether it is this model, pulled by this server.
    pub fn is_pull_of(&self, provider: ProviderId, model: &str) -> bool {
        self.provider == provider && is_same_model_name(Dialect::Ollama, &self.model, model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_has_a_name_or_is_told_what_one_looks_like() {
        for name in [
            "llama3.2",
            " qwen3:8b ",
            "mistral-nemo:12b-instruct-2407-q4_K_M",
            "someone/model",
            "hf.co/bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M",
            "registry.lan:5000/team/model:1",
        ] {
            assert_eq!(model_name(name), Ok(name.trim().to_owned()));
        }
        for name in [
            "",
            "  ",
            "two words",
            "a:b:c",
            "a:",
            ":b",
            "/a",
            "a/",
            "a//b",
            "ä",
            "a?b",
            "../a b",
            "https://ollama.com/library/llama3.2",
        ] {
            assert!(model_name(name).is_err(), "{name:?}");
        }
        assert!(model_name(&"x".repeat(300)).is_err());
    }

    #[test]
    fn names_are_the_same_whatever_their_case_and_with_or_without_the_usual_tag() {
        assert_eq!(canonical_model_name("Llama3.2"), "llama3.2:latest");
        assert_eq!(canonical_model_name("a/B:c"), "a/b:c");
        assert_eq!(canonical_model_name("h:5000/a/b"), "h:5000/a/b:latest");
        let same = |dialect| is_same_model_name(dialect, "Kelp", "kelp:latest");
        assert!(same(Dialect::Ollama));
        assert!(!same(Dialect::OpenAiChat) && !same(Dialect::Anthropic));
        let of = |provider, model: &str| ModelRef {
            provider: ProviderId::from_bits(provider),
            provider_name: format!("box {model}"),
            model: model.to_owned(),
        };
        assert!(of(1, "Kelp").is_same_pull(&of(1, "kelp:latest")));
        assert!(!of(1, "kelp").is_same_pull(&of(2, "kelp")));
        assert!(!of(1, "Kelp").is_same(&of(1, "kelp:latest")));
    }
}
