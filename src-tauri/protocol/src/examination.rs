//! What the doctor found at a server: one line per check, and the fix where there is one.

use serde::{Deserialize, Serialize};

use crate::{DraftServer, MacAddress, Provider, ProviderId, ShownCertificate};

/// `examine` -> [`Examination`]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExamineArgs {
    /// Which server.
    pub server: Examined,
    /// The model that is to be there; absent: none in particular.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// A server that is examined.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "is")]
pub enum Examined {
    /// One of the settings, with what is kept for it.
    Known { id: ProviderId },
    /// One that is being typed; its address may be as people type it.
    Draft { draft: Box<DraftServer> },
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Examination {
    /// The server as it was examined.
    pub server: Provider,
    /// One per check that could be made, in the order in which a request goes.
    pub findings: Vec<Finding>,
}

impl Examination {
    /// Whether anything is wrong.
    pub fn is_well(&self) -> bool {
        self.findings
            .iter()
            .all(|finding| finding.verdict != Verdict::Bad)
    }
}

/// What one check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Which check.
    pub check: Check,
    /// How it ended.
    pub verdict: Verdict,
    /// That, in a sentence or two.
    pub message: String,
    /// Somebody else's words about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// What can be done with one click.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<Fix>,
}

impl Finding {
    /// That and no more.
    pub fn new(check: Check, verdict: Verdict, message: impl Into<String>) -> Self {
        Self {
            check,
            verdict,
            message: message.into(),
            detail: None,
            fix: None,
        }
    }
}

/// What is checked, in the order in which a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Check {
    /// Whether the address is one, and leads to where the API begins.
    Address,
    /// Whether the host's name is known.
    Name,
    /// Whether anything goes through a proxy, and whether that is right.
    Proxy,
    /// Whether anybody takes connections.
    Connection,
    /// Whether its certificate is good.
    Certificate,
    /// Whether it is a model server.
    Server,
    /// Whether it wants a key, and takes ours.
    Key,
    /// Whether it is spoken to in its best language.
    Language,
    /// Whether it has models.
    Models,
    /// Whether it has the one that was chosen.
    Model,
    /// Whether the next request would load the model anew.
    Context,
}

impl Check {
    /// In a word.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Address => "Address",
            Self::Name => "Name",
            Self::Proxy => "Proxy",
            Self::Connection => "Connection",
            Self::Certificate => "Certificate",
            Self::Server => "Server",
            Self::Key => "Key",
            Self::Language => "Language",
            Self::Models => "Models",
            Self::Model => "Model",
            Self::Context => "Context",
        }
    }
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// As it should be.
    Good,
    /// It works, and there is something to know.
    Note,
    /// It is why the server cannot be used.
    Bad,
}

/// What can be done with one click.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fix")]
pub enum Fix {
    /// Speak to it like this from now on.
    Change { provider: Box<Provider> },
    /// Trust this certificate, at this server alone.
    Trust { certificate: Box<ShownCertificate> },
    /// Enter a key.
    EnterKey,
    /// Send the key to the server's present address too.
    CarryKey,
    /// Choose one of these.
    ChooseModel { models: Vec<String> },
    /// Wake it.
    Wake { card: MacAddress },
}

/// `wake` -> [`WakeReport`]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WakeArgs {
    /// Which server of the settings.
    pub provider: ProviderId,
    /// Whether to send the packet that wakes it, or only to knock.
    pub send: bool,
}

/// Whether a server is awake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakeReport {
    /// It takes connections.
    pub answers: bool,
}
