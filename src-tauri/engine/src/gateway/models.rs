//! What a provider offers: lists of models, read tolerantly from both dialects.
//!
//! Invariant: a name is sent back exactly as it was listed. What a server does not tell stays unknown.

use std::time::Duration;

use protocol::{
    Dialect, Failure, FailureCode, Model, ModelAction, Provider, Timestamp, is_same_model_name,
};
use reqwest::{Url, header::SERVER};
use serde_json::{Value, json};

use super::{
    answer::whole,
    dial::{Dialer, Document},
    failure::{self, Refusal},
    fault::{Fault, Said, Unreadable},
    join,
    peer::Peer,
};

/// For a list: the server only has to look at its disk.
const LIST_WAIT: Duration = Duration::from_secs(10);
/// For what is done to a model: files are removed, or memory is given back.
const MANAGE_WAIT: Duration = Duration::from_secs(60);
/// For a look in passing.
const GLANCE_WAIT: Duration = Duration::from_secs(2);

/// A list, and who gave it.
pub(super) struct Offer {
    pub(super) server: String,
    pub(super) models: Vec<Model>,
}

/// What the provider offers.
pub(super) async fn list(
    dialer: &Dialer,
    dialect: Dialect,
    base: &str,
    peer: &Peer,
) -> Result<Vec<Model>, Failure> {
    let offer = match dialect {
        Dialect::Ollama => ollama(dialer, base, peer, LIST_WAIT).await,
        Dialect::OpenAiChat => openai(dialer, base, peer, LIST_WAIT).await,
        Dialect::Anthropic => anthropic(dialer, base, peer, LIST_WAIT).await,
        // Its models are files, and the gateway has looked at them before anybody is dialled.
        Dialect::Local => Err(Refusal::of(failure::no_address(base))),
    };
    offer
        .map(|offer| offer.models)
        .map_err(|refusal| refusal.error.failure)
}

/// One model, with what only a closer look tells.
pub(super) async fn one(
    dialer: &Dialer,
    provider: &Provider,
    name: &str,
    peer: &Peer,
) -> Result<Model, Failure> {
    let base = &provider.base_url;
    let listed = list(dialer, provider.dialect, base, peer).await?;
    let found = listed.into_iter().find(|model| model.name == name);
    match provider.dialect {
        Dialect::OpenAiChat | Dialect::Anthropic | Dialect::Local => found.ok_or_else(|| {
            Failure::new(
                FailureCode::ModelNotFound,
                format!("{} does not list a model {name}.", peer.place()),
            )
        }),
        Dialect::Ollama => {
            let mut model = found.unwrap_or_else(|| Model::named(name));
            look(dialer, provider, name, peer).await?.add_to(&mut model);
            Ok(model)
        }
    }
}

/// What only a closer look tells of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Look {
    /// In the server's words; empty where it does not tell.
    capabilities: Vec<String>,
    /// The context it was made for.
    context_tokens: Option<u64>,
    parameters: Option<String>,
    quantization: Option<String>,
}

impl Look {
    /// Whether the model sees images, where the server tells what it can do.
    pub(super) fn sees_images(&self) -> Option<bool> {
        protocol::sees_images(&self.capabilities)
    }

    /// Adds it to what a list said.
    pub(crate) fn add_to(&self, model: &mut Model) {
        if !self.capabilities.is_empty() {
            model.capabilities.clone_from(&self.capabilities);
        }
        model.context_tokens = model.context_tokens.or(self.context_tokens);
        if model.parameters.is_none() {
            model.parameters.clone_from(&self.parameters);
        }
        if model.quantization.is_none() {
            model.quantization.clone_from(&self.quantization);
        }
    }
}

/// Looks closer at a model of an Ollama.
pub(super) async fn look(
    dialer: &Dialer,
    provider: &Provider,
    name: &str,
    peer: &Peer,
) -> Result<Look, Failure> {
    let url = at(&provider.base_url, "/api/show").map_err(|refusal| refusal.error.failure)?;
    let shown = dialer
        .question(&url, &json!({ "model": name }), peer, LIST_WAIT)
        .await
        .and_then(|document| json_of(&document, peer))
        .map_err(|refusal| refusal.error.failure)?;
    let details = shown.get("details").unwrap_or(&Value::Null);
    Ok(Look {
        capabilities: shown.get("capabilities").map(strings).unwrap_or_default(),
        context_tokens: trained_context(&shown),
        parameters: text(details, "parameter_size").map(str::to_owned),
        quantization: text(details, "quantization_level").map(str::to_owned),
    })
}

/// Deletes, copies or unloads a model of an Ollama.
pub(super) async fn manage(
    dialer: &Dialer,
    provider: &Provider,
    action: &ModelAction,
    peer: &Peer,
) -> Result<(), Failure> {
    let base = &provider.base_url;
    let place = |path| at(base, path).map_err(|refusal| refusal.error.failure);
    let done = match action {
        ModelAction::Delete { model } => {
            let body = json!({ "model": model });
            dialer
                .delete(&place("/api/delete")?, &body, peer, MANAGE_WAIT)
                .await
        }
        ModelAction::Copy { model, to } => {
            let body = json!({ "source": model, "destination": to });
            dialer
                .question(&place("/api/copy")?, &body, peer, MANAGE_WAIT)
                .await
        }
        ModelAction::Unload { model } => {
            // Nothing is asked of it, and then it need not be kept.
            let body = json!({ "model": model, "keep_alive": 0, "stream": false });
            dialer
                .question(&place("/api/generate")?, &body, peer, MANAGE_WAIT)
                .await
        }
    };
    done.map(drop).map_err(|refusal| refusal.error.failure)
}

/// Whether the model has to be loaded still; none if the server does not tell.
pub(super) async fn is_loading(
    dialer: &Dialer,
    provider: &Provider,
    name: &str,
    peer: &Peer,
) -> Option<bool> {
    match provider.dialect {
        Dialect::Ollama => {
            let url = at(&provider.base_url, "/api/ps").ok()?;
            // A status line is not worth a failure.
            let document = dialer.get(&url, peer, GLANCE_WAIT).await.ok()?;
            let running = json_of(&document, peer).ok()?;
            let running = running.get("models")?.as_array()?;
            Some(!running.iter().any(|entry| is_named(entry, name)))
        }
        // They have their models ready, or do not tell.
        Dialect::Anthropic | Dialect::Local => None,
        Dialect::OpenAiChat => {
            let offer = openai(dialer, &provider.base_url, peer, GLANCE_WAIT).await;
            match offer {
                Ok(offer) => {
                    let model = offer.models.into_iter().find(|model| model.name == name)?;
                    model.loaded.map(|loaded| !loaded)
                }
                Err(refusal) => refusal.loading.then_some(true),
            }
        }
    }
}

/// Ollama: the list, with what of it is in memory.
pub(super) async fn ollama(
    dialer: &Dialer,
    base: &str,
    peer: &Peer,
    limit: Duration,
) -> Result<Offer, Refusal> {
    let (tags, ps, version) = (
        at(base, "/api/tags")?,
        at(base, "/api/ps")?,
        at(base, "/api/version")?,
    );
    let (tags, ps, version) = futures_util::join!(
        dialer.get(&tags, peer, limit),
        dialer.get(&ps, peer, limit),
        dialer.get(&version, peer, limit),
    );
    let tags = tags?;
    let list = json_of(&tags, peer)?;
    let Some(list) = list.get("models").and_then(Value::as_array) else {
        return Err(another_kind(&tags, peer));
    };
    // Old servers and proxies lack these two; the list is worth showing without them.
    let running = ps.ok().and_then(|document| json_of(&document, peer).ok());
    let version = version
        .ok()
        .and_then(|document| json_of(&document, peer).ok());
    let running = running
        .as_ref()
        .and_then(|value| value.get("models"))
        .and_then(Value::as_array);
    let models = list
        .iter()
        .filter_map(|entry| {
            let mut model = tagged(entry)?;
            if let Some(running) = running {
                let now = running.iter().find(|entry| is_named(entry, &model.name));
                model.loaded = Some(now.is_some());
                if let Some(now) = now {
                    model.memory_bytes = whole(now.get("size")).filter(|bytes| *bytes > 0);
                    model.vram_bytes = whole(now.get("size_vram"));
                    model.expires_at = text(now, "expires_at").and_then(moment);
                }
                let in_force = now.and_then(|entry| whole(entry.get("context_length")));
                model.context_tokens = in_force.or(model.context_tokens);
            }
            Some(model)
        })
        .collect();
    let version = version
        .as_ref()
        .and_then(|value| value.get("version"))
        .and_then(Value::as_str);
    Ok(Offer {
        server: version.map_or_else(
            || "Ollama".to_owned(),
            |version| format!("Ollama {version}"),
        ),
        models,
    })
}

/// OpenAI-compatible: the list, with what llama.cpp, vLLM and LM Studio add to it.
pub(super) async fn openai(
    dialer: &Dialer,
    base: &str,
    peer: &Peer,
    limit: Duration,
) -> Result<Offer, Refusal> {
    let document = dialer.get(&at(base, "/models")?, peer, limit).await?;
    let value = json_of(&document, peer)?;
    if is_anthropics(&value) {
        // It is listed here, and does not answer here.
        return Err(another_kind(&document, peer));
    }
    let list = value
        .get("data")
        .and_then(Value::as_array)
        .or_else(|| value.as_array());
    let Some(list) = list else {
        return Err(another_kind(&document, peer));
    };
    let mut models: Vec<Model> = list.iter().filter_map(offered).collect();
    // llama.cpp with one model says more of it in a second list, in Ollama's form.
    for entry in value
        .get("models")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        if let Some(model) = models.iter_mut().find(|model| is_named(entry, &model.name))
            && let Some(more) = entry.get("capabilities")
        {
            model.capabilities = strings(more);
        }
    }
    Ok(Offer {
        server: server(&document, list),
        models,
    })
}

/// Anthropic, or a server that copies it: the list, whichever of the two forms it has.
pub(super) async fn anthropic(
    dialer: &Dialer,
    base: &str,
    peer: &Peer,
    limit: Duration,
) -> Result<Offer, Refusal> {
    // More than there are, so that the first page is the only one.
    let document = dialer
        .get(&at(base, "/models?limit=1000")?, peer, limit)
        .await?;
    let value = json_of(&document, peer)?;
    let Some(list) = value.get("data").and_then(Value::as_array) else {
        return Err(another_kind(&document, peer));
    };
    let server = if is_anthropics(&value) {
        "Anthropic".to_owned()
    } else {
        server(&document, list)
    };
    Ok(Offer {
        server,
        models: list.iter().filter_map(offered).collect(),
    })
}

/// Whether a list of models is in Anthropic's form.
fn is_anthropics(list: &Value) -> bool {
    let of_model = |entry: &Value| text(entry, "type") == Some("model");
    let entries = list.get("data").and_then(Value::as_array);
    list.get("object").is_none()
        && list.get("has_more").is_some()
        && entries.is_some_and(|entries| entries.iter().all(of_model))
}

fn at(base: &str, path: &str) -> Result<Url, Refusal> {
    join(base, path).ok_or_else(|| Refusal::of(failure::no_address(base)))
}

fn json_of(document: &Document, peer: &Peer) -> Result<Value, Refusal> {
    let value = serde_json::from_slice(&document.body).map_err(|_| another_kind(document, peer))?;
    match Said::read(&value) {
        Some(said) => Err(failure::faulty(peer, &Fault::Said(said)).into()),
        None => Ok(value),
    }
}

fn another_kind(document: &Document, peer: &Peer) -> Refusal {
    let unreadable = Unreadable::new(&String::from_utf8_lossy(&document.body));
    failure::faulty(peer, &Fault::Unreadable(unreadable)).into()
}

/// An entry of `/api/tags`.
fn tagged(entry: &Value) -> Option<Model> {
    let mut model = Model::named(text(entry, "name").or_else(|| text(entry, "model"))?);
    let details = entry.get("details").unwrap_or(&Value::Null);
    // Stubs of cloud models have no size here.
    model.size_bytes = whole(entry.get("size")).filter(|bytes| *bytes > 0);
    model.context_tokens = whole(details.get("context_length"));
    model.parameters = text(details, "parameter_size").map(str::to_owned);
    model.quantization = text(details, "quantization_level").map(str::to_owned);
    model.capabilities = entry.get("capabilities").map(strings).unwrap_or_default();
    Some(model)
}

/// An entry of `/v1/models`.
fn offered(entry: &Value) -> Option<Model> {
    let mut model = Model::named(text(entry, "id")?);
    let meta = entry.get("meta").unwrap_or(&Value::Null);
    let state = entry.get("status").and_then(|status| text(status, "value"));
    model.loaded = match state.or_else(|| text(entry, "state")) {
        Some("loaded") => Some(true),
        Some(_) => Some(false),
        // A llama.cpp with one model tells its context, for it has it.
        None => whole(meta.get("n_ctx")).map(|_| true),
    };
    model.size_bytes = whole(meta.get("size"));
    model.context_tokens = [
        meta.get("n_ctx"),
        meta.get("n_ctx_train"),
        entry.get("loaded_context_length"),
        entry.get("max_model_len"),
        entry.get("max_context_length"),
        entry.get("context_length"),
        entry.get("max_input_tokens"),
    ]
    .into_iter()
    .find_map(whole);
    model.parameters = whole(meta.get("n_params")).map(rounded);
    model.quantization = text(entry, "quantization").map(str::to_owned);
    model.capabilities = match entry.get("capabilities") {
        Some(Value::Object(known)) => supported(known),
        Some(list) => strings(list),
        None => Vec::new(),
    };
    Some(model)
}

/// Anthropic's `{"image_input":{"supported":true}, …}`, in the words that others have for it.
fn supported(known: &serde_json::Map<String, Value>) -> Vec<String> {
    let can = |name: &str| {
        let known = known.get(name).and_then(|can| can.get("supported"));
        known.and_then(Value::as_bool) == Some(true)
    };
    let words = [("image_input", "vision"), ("thinking", "thinking")];
    let more = words.iter().filter(|(name, _)| can(name));
    ["completion", "tools"]
        .into_iter()
        .chain(more.map(|(_, word)| *word))
        .map(str::to_owned)
        .collect()
}

/// "135M", "7.2B".
fn rounded(parameters: u64) -> String {
    match parameters {
        0..1_000_000 => parameters.to_string(),
        1_000_000..1_000_000_000 => format!("{}M", (parameters + 500_000) / 1_000_000),
        _ => {
            let tenths = (parameters + 50_000_000) / 100_000_000;
            format!("{}.{}B", tenths / 10, tenths % 10)
        }
    }
}

fn server(document: &Document, list: &[Value]) -> String {
    let header = document
        .headers
        .get(SERVER)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
        .to_ascii_lowercase();
    let owner = list
        .iter()
        .find_map(|entry| text(entry, "owned_by"))
        .unwrap_or_default()
        .to_ascii_lowercase();
    let is = |name: &str| header.contains(name) || owner.contains(name);
    if is("llama.cpp") || is("llamacpp") {
        "llama.cpp"
    } else if is("vllm") {
        "vLLM"
    } else if is("koboldcpp") {
        "KoboldCpp"
    } else if is("sglang") {
        "SGLang"
    } else if owner == "organization_owner" {
        "LM Studio"
    } else {
        "OpenAI-compatible server"
    }
    .to_owned()
}

/// A moment in RFC 3339, as Go writes it: `2026-11-29T17:05:00.368925184Z`, or with `+02:00` at its end.
fn moment(text: &str) -> Option<Timestamp> {
    let (date, time) = text.split_once('T')?;
    let mut date = date.splitn(3, '-').map(str::parse::<i64>);
    let (year, month, day) = (date.next()?.ok()?, date.next()?.ok()?, date.next()?.ok()?);
    let zone_at = time.find(['Z', '+', '-'])?;
    let (clock, zone) = time.split_at(zone_at);
    let mut clock = clock.splitn(3, ':');
    let (hours, minutes) = (clock.next()?.parse::<i64>().ok()?, clock.next()?);
    let minutes: i64 = minutes.parse().ok()?;
    let seconds: f64 = clock.next()?.parse().ok()?;
    let offset_minutes = match zone {
        "Z" => 0,
        zone => {
            let (sign, zone) = match zone.strip_prefix('-') {
                Some(zone) => (-1, zone),
                None => (1, zone.strip_prefix('+')?),
            };
            let (hours, minutes) = zone.split_once(':')?;
            sign * (hours.parse::<i64>().ok()? * 60 + minutes.parse::<i64>().ok()?)
        }
    };
    let in_range =
        (1..=12).contains(&month) && (1..=31).contains(&day) && (1..=9999).contains(&year);
    if !in_range || !(0.0..=61.0).contains(&seconds) {
        return None;
    }
    let days = Timestamp::days_of_civil(year, month, day);
    let minutes = (days * 24 + hours) * 60 + minutes - offset_minutes;
    // Servers say the year 2318 where they mean for ever.
    Some(Timestamp::from_millis(
        minutes * 60_000 + (seconds * 1_000.0) as i64,
    ))
}

/// `<general.architecture>.context_length` of `/api/show`.
fn trained_context(shown: &Value) -> Option<u64> {
    let facts = shown.get("model_info")?;
    let architecture = text(facts, "general.architecture")?;
    whole(facts.get(format!("{architecture}.context_length")))
}

/// Ollama compares names without case, and a missing tag is `latest`.
fn is_named(entry: &Value, name: &str) -> bool {
    ["name", "model"]
        .iter()
        .filter_map(|field| text(entry, field))
        .any(|listed| is_same_model_name(Dialect::Ollama, listed, name))
}

fn text<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name)?.as_str().filter(|text| !text.is_empty())
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_read_whatever_its_zone_and_fraction() {
        for (text, millis) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2026-11-29T17:05:00.368925184Z", Some(1_795_971_900_368)),
            (
                "2026-11-29T19:05:00.368925184+02:00",
                Some(1_795_971_900_368),
            ),
            ("2024-02-29T23:59:59Z", Some(1_709_251_199_000)),
            ("2024-02-29T20:29:59-03:30", Some(1_709_251_199_000)),
            ("2318-03-10T17:05:00Z", Some(10_987_722_300_000)),
            ("yesterday", None),
            ("2024-13-01T00:00:00Z", None),
            ("2024-01-01T00:00Z", None),
        ] {
            assert_eq!(moment(text).map(Timestamp::millis), millis, "{text}");
        }
    }
}
