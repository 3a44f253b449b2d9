//! Model servers, as they are configured, and what is known of their models.

use serde::{Deserialize, Serialize};

use crate::{Connection, Failure, ModelFile, ProviderId, TimeLimits, Timestamp};

/// Which language a provider is spoken to in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Dialect {
    /// Ollama's own API (`/api/chat`).
    Ollama,
    /// OpenAI-compatible chat completions (llama.cpp, LM Studio, vLLM …).
    OpenAiChat,
    /// Anthropic's messages API, and what speaks it too.
    Anthropic,
    /// No server: llama.cpp in a child process of this program, for GGUF files on this computer.
    Local,
}

/// One configured model server. Holds no secret: a key never stands in an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provider {
    /// Its identity; survives renames and changes of address.
    pub id: ProviderId,
    /// What the user calls it.
    pub name: String,
    /// How it is spoken to.
    pub dialect: Dialect,
    /// Where its API begins: for Ollama the root (`http://host:11434`), for OpenAI-compatible the part before
    /// `/chat/completions` (`http://host:8080/v1`), for Anthropic the part before `/messages`. No trailing slash.
    /// For [`Dialect::Local`] the folder in which the model files lie, as an absolute path; a model's name is its file's
    /// path below that folder, or an absolute path if it lies elsewhere.
    pub base_url: String,
    /// Ollama and models of this computer: the context length to ask for, in tokens; the server's own default when absent.
    /// Equal in every request, or the server reloads the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_ctx: Option<u32>,
    /// Ollama and models of this computer: how long the model stays loaded, in Ollama's own words ("10m", "-1"); the server's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_alive: Option<String>,
    /// Whether models that can think do.
    #[serde(default)]
    pub think: Think,
    /// How long to wait for what with this server; as in general when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<TimeLimits>,
    /// How it is reached, where that is not as usual.
    #[serde(default, skip_serializing_if = "Connection::is_usual")]
    pub connection: Connection,
    /// Models of this computer: files that were added by their absolute path and lie elsewhere than in the folder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
}

/// Whether a model that can think does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Think {
    /// As the server does it by itself.
    #[default]
    ServerDefault,
    /// Yes.
    On,
    /// No.
    Off,
    /// Yes, but little.
    Low,
    /// Yes, as usual.
    Medium,
    /// Yes, and much.
    High,
}

/// One model a provider offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// As the provider names it, to be sent back exactly so.
    pub name: String,
    /// Whether it is in memory now, where the provider tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded: Option<bool>,
    /// What of it is in memory, in bytes, where the provider tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Of these, in the memory of graphics cards; 0 if all of it runs on the processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vram_bytes: Option<u64>,
    /// When the provider takes it out of memory, if nobody asks it anything before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Size on the provider's disk in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Context length in tokens: the one in force if loaded, else the model's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
    /// "3.2B" and the like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<String>,
    /// "Q4_K_M" and the like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantization: Option<String>,
    /// What it can do, in the provider's words: `completion`, `tools`, `vision`, `thinking` …
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<String>,
    /// What its file says, where it is one of this computer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<ModelFile>,
}

impl Model {
    /// One of which nothing is known but its name.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            loaded: None,
            memory_bytes: None,
            vram_bytes: None,
            expires_at: None,
            size_bytes: None,
            context_tokens: None,
            parameters: None,
            quantization: None,
            capabilities: Vec::new(),
            file: None,
        }
    }

    /// Whether it sees images, where the provider tells what it can do.
    pub fn sees_images(&self) -> Option<bool> {
        sees_images(&self.capabilities)
    }
}

/// Whether a model with these capabilities sees images; a provider that names none has not said.
pub fn sees_images(capabilities: &[String]) -> Option<bool> {
    let sees = |word: &String| matches!(word.as_str(), "vision" | "multimodal" | "image");
    (!capabilities.is_empty()).then(|| capabilities.iter().any(sees))
}

/// What a test of a provider found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "result")]
pub enum ProbeReport {
    /// It answers.
    Works {
        /// The server's name and version, where it tells ("Ollama 0.12.3").
        server: String,
        /// The dialect it speaks best.
        dialect: Dialect,
        /// The base address that worked, ready for [`Provider::base_url`].
        base_url: String,
        /// What it offers; may be empty.
        models: Vec<Model>,
    },
    /// It does not, and this is why.
    Fails { failure: Failure },
}

impl ProbeReport {
    /// `provider` as it is better spoken to, where this test of it found a better way: only an Ollama's own API can hold
    /// a model and its context steady.
    pub fn better(&self, provider: &Provider) -> Option<Provider> {
        match (self, provider.dialect) {
            (
                Self::Works {
                    dialect: dialect @ Dialect::Ollama,
                    base_url,
                    ..
                },
                Dialect::OpenAiChat | Dialect::Anthropic,
            ) => Some(Provider {
                dialect: *dialect,
                base_url: base_url.clone(),
                ..provider.clone()
            }),
            (Self::Works { .. } | Self::Fails { .. }, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ollama_that_was_entered_as_something_else_has_a_better_way() {
        let found = |dialect| ProbeReport::Works {
            server: "Ollama 0.12.3".to_owned(),
            dialect,
            base_url: "http://h:11434".to_owned(),
            models: Vec::new(),
        };
        let entered = |dialect| Provider {
            id: ProviderId::from_bits(1),
            name: "Box".to_owned(),
            dialect,
            base_url: "http://h:11434/v1".to_owned(),
            num_ctx: None,
            keep_alive: None,
            files: Vec::new(),
            think: Think::default(),
            limits: None,
            connection: Connection::default(),
        };
        let better = found(Dialect::Ollama).better(&entered(Dialect::OpenAiChat));
        assert_eq!(
            better.map(|better| (better.dialect, better.base_url, better.name)),
            Some((
                Dialect::Ollama,
                "http://h:11434".to_owned(),
                "Box".to_owned()
            ))
        );
        let as_it_is = found(Dialect::Ollama).better(&entered(Dialect::Ollama));
        assert_eq!(as_it_is, None);
        let another = found(Dialect::OpenAiChat).better(&entered(Dialect::Anthropic));
        assert_eq!(another, None);
    }
}
