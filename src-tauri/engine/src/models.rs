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
    Dialect, ErrorCode, ErrorReport, Failure, FailureCode, Model, ModelAction, Provider,
    ProviderId, is_same_model_name, model_name,
};

use crate::{
    clock::Clock, engine::Shared, gate::gate, gateway::Look, mutant::mutated, refusal::invalid,
};

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

    /// Adds what is known to the models, and says of which there is nothing to add.
    fn add_to(&self, provider: &Provider, models: &mut [Model], clock: &dyn Clock) -> Vec<Model> {
        let now = clock.monotonic();
        let known = self.known();
        let mut unknown = Vec::new();
        for model in models {
            let look = known.looks.get(&key(provider, model));
            match look.filter(|(at, _)| now.saturating_sub(*at) < HOLDS_FOR) {
                Some((_, look)) => look.add_to(model),
                // Some lists have it all.
                None if model.capabilities.is_empty() => unknown.push(model.clone()),
                None => {}
            }
        }
        unknown
    }

    /// A place among those who look at a server, unless somebody does already; given up when it is dropped.
    fn busy_at(&self, base_url: &str) -> Option<Busy<'_>> {
        let is_first = self.known().busy.insert(base_url.to_owned());
        is_first.then(|| Busy(self, base_url.to_owned()))
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
        self.known().looks.retain(|(base, known, _), _| {
            *base != provider.base_url || !is_same_model_name(provider.dialect, known, model)
        });
    }
}

/// Somebody looks at the models of a server.
struct Busy<'a>(&'a Details, String);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.known().busy.remove(&self.1);
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
        Dialect::OpenAiChat | Dialect::Anthropic | Dialect::Local => return models,
    }
    let clock = shared.clock.as_ref();
    let unknown = shared.details.add_to(provider, &mut models, clock);
    if unknown.is_empty() {
        return models;
    }
    let looking = shared.tracker.spawn({
        let (shared, provider) = (Arc::clone(shared), provider.clone());
        async move {
            let Some(_busy) = shared.details.busy_at(&provider.base_url) else {
                return;
            };
            tokio::select! {
                () = look_at(&shared, &provider, unknown) => {}
                () = shared.until_closing() => {}
            }
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
            gate!(shared.harness, LookBegins);
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

/// The model files of this computer.
pub(crate) async fn of_this_computer(
    shared: &Shared,
    provider: &Provider,
) -> Result<Vec<Model>, Failure> {
    let (files, of) = (Arc::clone(&shared.files), provider.clone());
    let listed = tokio::task::spawn_blocking(move || files.list(&of)).await;
    let mut models = listed.map_err(|error| {
        tracing::error!(%error, "a look at the model files was lost");
        Failure::new(
            FailureCode::Panicked,
            "Holdfast hit a bug while looking at the model files.",
        )
    })??;
    shared.gateway.mark_loaded(provider, &mut models);
    Ok(models)
}

/// Deletes, copies or unloads a model.
pub(crate) async fn manage(
    shared: &Shared,
    provider: &Provider,
    action: ModelAction,
) -> Result<(), ErrorReport> {
    match provider.dialect {
        Dialect::Ollama => {}
        Dialect::Local => return manage_file(shared, provider, action).await,
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
            let is_same = |one: &str, other: &str| is_same_model_name(provider.dialect, one, other);
            if is_same(&to, &model) {
                return Err(invalid("to", "This is the name that it has already."));
            }
            let there = shared.gateway.models(provider).await.map_err(told)?;
            let is_taken = there.iter().any(|other| is_same(&other.name, &to));
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

/// The same for a file of this computer. One that lies elsewhere is forgotten, and stays where it is.
async fn manage_file(
    shared: &Shared,
    provider: &Provider,
    action: ModelAction,
) -> Result<(), ErrorReport> {
    match &action {
        ModelAction::Unload { .. } => shared.gateway.manage(provider, &action).await.map_err(told),
        ModelAction::Copy { .. } => {
            let words = "A file of this computer has one name; copy the file itself.";
            Err(invalid("model", words))
        }
        ModelAction::Delete { model } => {
            let model = model.clone();
            // What is in memory need not be; one that is not cannot be taken out of it, and that is well.
            let unload = ModelAction::Unload {
                model: model.clone(),
            };
            let _ = shared.gateway.manage(provider, &unload).await;
            if provider.files.contains(&model) {
                return shared.forget_file(provider.clone(), &model).await;
            }
            if provider.id != ProviderId::THIS_COMPUTER {
                let words = format!(
                    "{model} lies in a folder that is not Holdfast’s own; delete the file itself."
                );
                return Err(invalid("model", &words));
            }
            let files = Arc::clone(&shared.files);
            let deleted = tokio::task::spawn_blocking(move || files.delete(&model)).await;
            deleted.map_err(|error| {
                tracing::error!(%error, "the deletion of a file was lost");
                ErrorReport::new(
                    ErrorCode::Other,
                    "Holdfast hit a bug while deleting the file.",
                )
            })?
        }
    }
}

fn told(failure: Failure) -> ErrorReport {
    ErrorReport::new(ErrorCode::Other, failure.message)
}
