//! What is said of a chat whose model is not where it was.
//!
//! Invariant: nothing is said of what is not known. A server that was not asked yet may well have the model.

use protocol::{Dialect, Failure, Model, ModelRef, is_same_model_name};

/// What is known of a model's server.
#[derive(Clone, Copy, Debug)]
pub enum Server<'a> {
    /// It is no longer in the settings.
    Removed,
    /// It did not say what it has, and this is why.
    Silent(&'a Failure),
    /// It has these.
    Offers(Dialect, &'a [Model]),
}

/// That a model is missing, and where; nothing if it is there.
pub fn missing_model(model: &ModelRef, server: Server<'_>) -> Option<String> {
    let ModelRef {
        provider_name,
        model,
        ..
    } = model;
    match server {
        Server::Removed => Some(format!(
            "{model} cannot be asked: its server, {provider_name}, is no longer in the settings."
        )),
        Server::Silent(failure) => {
            Some(format!("{model} cannot be asked now. {}", failure.message))
        }
        Server::Offers(dialect, models) => {
            let mut offered = models.iter();
            let is_there = offered.any(|offered| is_same_model_name(dialect, &offered.name, model));
            let rest = if models.is_empty() {
                ", or any other"
            } else {
                ""
            };
            (!is_there).then(|| format!("{provider_name} does not have {model}{rest}."))
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::{FailureCode, ProviderId};

    use super::*;

    #[test]
    fn a_model_that_is_not_where_it_was_is_named_and_one_that_is_there_is_not() {
        let model = ModelRef {
            provider: ProviderId::from_bits(1),
            provider_name: "Box".to_owned(),
            model: "kelp".to_owned(),
        };
        let offered = |names: &[&str]| -> Vec<Model> {
            let model = |name| serde_json::from_str(&format!("{{\"name\":\"{name}\"}}"));
            names.iter().map(|name| model(name).unwrap()).collect()
        };
        let said = |dialect, names: &[&str]| {
            missing_model(&model, Server::Offers(dialect, &offered(names)))
        };
        assert_eq!(said(Dialect::Ollama, &["a", "Kelp:latest"]), None);
        assert_eq!(said(Dialect::OpenAiChat, &["kelp"]), None);
        assert_eq!(
            said(Dialect::OpenAiChat, &["kelp:latest"]).as_deref(),
            Some("Box does not have kelp.")
        );
        assert_eq!(
            said(Dialect::Ollama, &[]).as_deref(),
            Some("Box does not have kelp, or any other.")
        );
        assert_eq!(
            missing_model(&model, Server::Removed).as_deref(),
            Some("kelp cannot be asked: its server, Box, is no longer in the settings.")
        );
        let away = Failure::new(FailureCode::ConnectFailed, "Cannot reach Box at h:1.");
        assert_eq!(
            missing_model(&model, Server::Silent(&away)).as_deref(),
            Some("kelp cannot be asked now. Cannot reach Box at h:1.")
        );
    }
}
