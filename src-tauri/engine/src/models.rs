//! Models of a server: what a closer look at them said, and what is done to them.
//!
//! Invariant: a list is never held up by the closer looks: what is known is added, what is not is looked for meanwhile,
//! within limits, and stands in the next list. What was learnt holds for a while only, and only so much is kept.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::{StreamExt, stream};
use protocol::{
    Dialect, ErrorCode, ErrorReport, Failure, Model, ModelAction, Provider, canonical_model_name,
    model_name,
};

use crate::{clock::Clock, engine::Shared, gateway::Look, mutant::mutated, refusal::invalid};

/// How long a look holds: a model may be replaced under its name.
const HOLDS_FOR: Duration = Duration::from_secs(10 * 60);

/// How many looks are kept.
const KEPT_MAX: usize = 4_096;

/// Looks at one server at a time: they read files of its disk, and it may be answering somebody.
const AT_ONCE: usize = 4;

/// How long a list waits for looks before it goes out as it is.
const WAIT: Duration = Duration::from_millis(400);

/// What closer looks said.
#[derive(Default)]
pub(crate) struct Details(Mutex<Known>);

#[derive(Default)]
struct Known {
    looks: HashMap<Key, (Duration, Look)>,
    /// Servers whose models are being looked at.
    busy: HashSet<String>,
}

/// The server's address, the model's name, and its size: another size is another model.
type Key = (String, String, Option<u64>);

fn key(provider: &Provider, model: &Model) -> Key {
    (
        provider.base_url.clone(),
        model.name.clone(),
        model.size_bytes,
    )
}

impl Details {
    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add_to(&self, provider: &Provider, models: &mut [Model], clock: &dyn Clock) {
        let now = clock.monotonic();
        let known = self.known();
        for model in models {
            let look = known.looks.get(&key(provider, model));
            if let Some((_, look)) = look.filter(|(at, _)| now.saturating_sub(*at) < HOLDS_FOR) {
                look.add_to(model);
            }
        }
    }

    fn keep(&self, key: Key, look: Look, clock: &dyn Clock) {
        let now = clock.monotonic();
        let mut known = self.known();
        if known.looks.len() >= KEPT_MAX {
            known
                .looks
                .retain(|_, (at, _)| now.saturating_sub(*at) < HOLDS_FOR);
        }
        if known.looks.len() < KEPT_MAX {
            known.looks.insert(key, (now, look));
        }
    }

    /// A model was changed or is gone.
    fn forget(&self, provider: &Provider, model: &str) {
        let name = canonical_model_name(model);
        self.known().looks.retain(|(base, known, _), _| {
            *base != provider.base_url || canonical_model_name(known) != name
        });
    }
}

/// The models with what closer looks tell of them, as far as that is known now or in a moment.
pub(crate) async fn detailed(
    shared: &Arc<Shared>,
    provider: &Provider,
    mut models: Vec<Model>,
) -> Vec<Model> {
    match provider.dialect {
        Dialect::Ollama => {}
        // Their lists say all they have to say.
        Dialect::OpenAiChat | Dialect::Anthropic => return models,
    }
    let clock = shared.clock.as_ref();
    shared.details.add_to(provider, &mut models, clock);
    let unknown: Vec<Model> = models
        .iter()
        .filter(|model| model.capabilities.is_empty())
        .cloned()
        .collect();
    if unknown.is_empty()
        || !shared
            .details
            .known()
            .busy
            .insert(provider.base_url.clone())
    {
        return models;
    }
    let looking = shared.tracker.spawn({
        let (shared, provider) = (Arc::clone(shared), provider.clone());
        async move {
            tokio::select! {
                () = look_at(&shared, &provider, unknown) => {}
                () = shared.until_closing() => {}
            }
            shared.details.known().busy.remove(&provider.base_url);
        }
    });
    if mutated!(shared.harness, WaitForLooks) {
        drop(looking.await);
    } else {
        tokio::select! {
            // A look that panicked left nothing behind but what it had not learnt.
            _ = looking => {}
            () = shared.clock.sleep(WAIT) => {}
        }
    }
    shared.details.add_to(provider, &mut models, clock);
    models
}

async fn look_at(shared: &Shared, provider: &Provider, models: Vec<Model>) {
    stream::iter(models)
        .for_each_concurrent(AT_ONCE, |model| async move {
            match shared.gateway.look_at(provider, &model.name).await {
                Ok(look) => {
                    let clock = shared.clock.as_ref();
                    shared.details.keep(key(provider, &model), look, clock);
                }
                // The list says what there is; a badge is not worth a failure.
                Err(failure) => {
                    tracing::debug!(code = ?failure.code, "a look at a model failed");
                }
            }
        })
        .await;
}

/// Deletes, copies or unloads a model.
pub(crate) async fn manage(
    shared: &Shared,
    provider: &Provider,
    action: ModelAction,
) -> Result<(), ErrorReport> {
    match provider.dialect {
        Dialect::Ollama => {}
        Dialect::OpenAiChat | Dialect::Anthropic => {
            let words = format!(
                "{} is not an Ollama; its models are cared for by other means.",
                provider.name
            );
            return Err(invalid("provider", &words));
        }
    }
    let action = match action {
        ModelAction::Copy { model, to } => {
            let to = model_name(&to).map_err(|words| invalid("to", words))?;
            if canonical_model_name(&to) == canonical_model_name(&model) {
                return Err(invalid("to", "This is the name that it has already."));
            }
            let there = shared.gateway.models(provider).await.map_err(told)?;
            let is_taken = there
                .iter()
                .any(|other| canonical_model_name(&other.name) == canonical_model_name(&to));
            if is_taken && !mutated!(shared.harness, CopyOver) {
                let words = format!(
                    "{} has a model {to} already, which this would replace; choose another name.",
                    provider.name
                );
                return Err(invalid("to", &words));
            }
            ModelAction::Copy { model, to }
        }
        ModelAction::Delete { .. } | ModelAction::Unload { .. } => action,
    };
    let done = shared.gateway.manage(provider, &action).await;
    let (ModelAction::Delete { model }
    | ModelAction::Copy { model, .. }
    | ModelAction::Unload { model }) = &action;
    shared.details.forget(provider, model);
    done.map_err(told)
}

fn told(failure: Failure) -> ErrorReport {
    ErrorReport::new(ErrorCode::Other, failure.message)
}
