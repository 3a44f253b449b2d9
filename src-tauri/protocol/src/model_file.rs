//! Models that are files of this computer: what is known of one, and which small ones there are to begin with.

use serde::{Deserialize, Serialize};

use crate::{Provider, ProviderId};

impl ProviderId {
    /// The server that is none: models of this computer, in the data folder and added by path.
    pub const THIS_COMPUTER: Self = Self::from_bits(0x686f_6c64_6661_7374_206d_6f64_656c_7300);
}

/// What a model's file says of itself, and what this computer says to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelFile {
    /// Where it lies.
    pub path: String,
    /// Whether it lies in the models folder: then deleting it removes the file. Any other one is only forgotten.
    pub ours: bool,
    /// What it calls itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// "llama", "qwen3" and the like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// "apache-2.0" and the like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub license: Option<String>,
    /// Whether it brings a chat template; without one it only continues texts.
    #[serde(default)]
    pub has_template: bool,
    /// What it takes in memory, about, at the context it would be loaded with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs_bytes: Option<u64>,
    /// That it may not fit, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// Why it cannot be used, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A small model that anybody may use, to begin with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CuratedModel {
    /// What it is called.
    pub name: String,
    /// What it is good for, in a few words.
    pub purpose: String,
    /// About how large its file is.
    pub size_bytes: u64,
    /// Its licence's name.
    pub license: String,
    /// Where its file is.
    pub url: String,
    /// Of its file, in hexadecimal, where somebody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// `local_models` -> this, or nothing where this build cannot run models by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalModels {
    /// The provider of models of this computer, whether it is in the settings yet or not.
    pub provider: Provider,
    /// Models to begin with, the smallest first.
    pub curated: Vec<CuratedModel>,
    /// Memory that is free now, in bytes, if the system tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_memory: Option<u64>,
}

/// What is written for a model that is pulled: the file's name in an address, anything else as it is.
pub fn pulled_name(model: &str) -> &str {
    if !model.starts_with("http://") && !model.starts_with("https://") {
        return model;
    }
    let path = model.split(['?', '#']).next().unwrap_or(model);
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_download_is_called_by_its_file() {
        assert_eq!(
            pulled_name("https://h/a/kelp.gguf?download=true"),
            "kelp.gguf"
        );
        assert_eq!(pulled_name("hf.co/a/b:Q4"), "hf.co/a/b:Q4");
    }
}
