//! The model in memory: reads prompts, and writes one token after another.
//!
//! Invariant: what stands in the cache is exactly what `seen` says, so that of a prompt only what differs is read.

use std::{num::NonZeroU32, path::Path};

use llama_cpp_2::{
    context::{LlamaContext, params::LlamaContextParams},
    ggml_time_us,
    llama_backend::LlamaBackend,
    llama_batch::LlamaBatch,
    model::{LlamaModel, params::LlamaModelParams},
    sampling::LlamaSampler,
    token::LlamaToken,
};
use protocol::{
    Decimal, FailureCode, ModelOptions,
    model_process::{Failed, Frame, Load, usual_context},
};

use crate::{streams::Voice, words};

/// Most tokens that are read at once; more is no faster on a processor.
const BATCH_MAX: usize = 512;
/// Fewest, while one batch takes long: with fewer a prompt takes a quarter longer than with llama.cpp's own server.
const BATCH_MIN: usize = 128;
/// How long one batch should take at most: so long a stop waits while a prompt is read.
const BATCH_US: i64 = 1_000_000;

/// With less, llama.cpp gives up altogether; no conversation fits into less either.
const CONTEXT_MIN: u32 = 64;

/// Samples as llama.cpp's own server does, where nobody says otherwise.
const TEMPERATURE: f64 = 0.8;
const TOP_K: u32 = 40;
const TOP_P: f64 = 0.95;
const MIN_P: f64 = 0.05;
/// Words back to which a repetition counts.
const PENALTY_LAST: i32 = 64;

/// Loads it, and tells how far that is.
pub(crate) fn load(
    backend: &LlamaBackend,
    load: &Load,
    voice: &Voice,
) -> Result<LlamaModel, Failed> {
    let path = Path::new(&load.file);
    if let Some(failed) = words::of_file(path) {
        return Err(failed);
    }
    let (voice, mut told) = (voice.clone(), 0);
    let params = LlamaModelParams::default()
        .with_n_gpu_layers(load.gpu_layers.unwrap_or(u32::from(u16::MAX)))
        .with_progress_callback(move |part| {
            // A part of 1.0 in thousandths; `as` saturates.
            let permille = (part * 1000.0) as u32;
            if permille >= told + 50 || (permille == 0 && told == 0) {
                told = permille.max(1);
                voice.say(&Frame::Loading { permille });
            }
            true
        });
    LlamaModel::load_from_file(backend, path, &params).map_err(|_| words::not_loaded(path))
}

/// A context of the model, of the length that was asked for, or that fits.
pub(crate) fn context<'a>(
    backend: &LlamaBackend,
    model: &'a LlamaModel,
    load: &Load,
) -> Result<LlamaContext<'a>, Failed> {
    let tokens = load.num_ctx.unwrap_or_else(|| fitting(model));
    let tokens = tokens.max(CONTEXT_MIN);
    let threads = load.threads.unwrap_or_else(cores);
    let threads = i32::try_from(threads).unwrap_or(1).max(1);
    let batch = u32::try_from(BATCH_MAX).unwrap_or(512);
    let params = LlamaContextParams::default()
        .with_n_ctx(NonZeroU32::new(tokens))
        .with_n_batch(batch)
        .with_n_ubatch(batch)
        .with_n_threads(threads)
        .with_n_threads_batch(threads);
    model
        .new_context(backend, params)
        .map_err(|_| words::no_context(Path::new(&load.file), tokens))
}

/// As much context as fits.
fn fitting(model: &LlamaModel) -> u32 {
    let trained = Some(u64::from(model.n_ctx_train())).filter(|trained| *trained > 0);
    let heads = u64::from(model.n_head().max(1));
    let width = u64::try_from(model.n_embd()).unwrap_or(0) / heads;
    // Keys and values, of two bytes each.
    let per_token = 4 * u64::from(model.n_layer()) * u64::from(model.n_head_kv().max(1)) * width;
    let tokens = usual_context(trained, Some(per_token), free_bytes());
    u32::try_from(tokens).unwrap_or(u32::MAX)
}

fn free_bytes() -> Option<u64> {
    let said = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = said
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Cores, not threads of cores: two that share one are in each other's way. And only those that nobody else needs now:
/// the engine's threads wait for each other, so that one without a core holds up all of them.
fn cores() -> u32 {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let cores = physical().unwrap_or(threads).clamp(1, threads);
    let said = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let free = cores.saturating_sub(busy(&said)).max(1);
    u32::try_from(free).unwrap_or(1)
}

/// How many cores others have kept busy for a minute and do now, ourselves not counted.
fn busy(said: &str) -> usize {
    let mut words = said.split_whitespace();
    let minute = words.next().and_then(|load| load.parse::<f64>().ok());
    let now = words
        .nth(2)
        .and_then(|runs| runs.split('/').next()?.parse::<usize>().ok());
    match (minute, now) {
        // Whole cores; `as` saturates.
        (Some(minute), Some(now)) => now.saturating_sub(1).min(minute as usize),
        (_, _) => 0,
    }
}

fn physical() -> Option<usize> {
    let said = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let mut seen = std::collections::BTreeSet::new();
    let mut package = "";
    for line in said.lines() {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        match name.trim() {
            "physical id" => package = value.trim(),
            "core id" => {
                seen.insert((package, value.trim()));
            }
            _ => {}
        }
    }
    (!seen.is_empty()).then_some(seen.len())
}

/// How the next token is chosen.
pub(crate) fn sampler(
    model: &LlamaModel,
    options: &ModelOptions,
    grammar: Option<LlamaSampler>,
) -> LlamaSampler {
    let number = |chosen: Option<Decimal>, usual: f64| chosen.map_or(usual, Decimal::get) as f32;
    let mut chain = Vec::new();
    chain.extend(grammar);
    if let Some(penalty) = options.repeat_penalty {
        let vocabulary = model.n_vocab();
        let penalty = penalty.get() as f32;
        chain.push(LlamaSampler::penalties(
            vocabulary,
            PENALTY_LAST,
            penalty,
            0.0,
            0.0,
        ));
    }
    let temperature = number(options.temperature, TEMPERATURE);
    if temperature <= 0.0 {
        chain.push(LlamaSampler::greedy());
        return LlamaSampler::chain(chain, true);
    }
    let top_k = i32::try_from(options.top_k.unwrap_or(TOP_K)).unwrap_or(i32::MAX);
    // Ours comes from settings; llama.cpp's largest seed means one of its own.
    let seed = options.seed.map_or(u32::MAX, |seed| seed as u32);
    chain.extend([
        LlamaSampler::top_k(top_k),
        LlamaSampler::top_p(number(options.top_p, TOP_P), 1),
        LlamaSampler::min_p(number(options.min_p, MIN_P), 1),
        LlamaSampler::temp(temperature),
        LlamaSampler::dist(seed),
    ]);
    LlamaSampler::chain(chain, true)
}

/// The context and what stands in it.
pub(crate) struct Machine<'a> {
    context: LlamaContext<'a>,
    batch: LlamaBatch<'static>,
    seen: Vec<LlamaToken>,
}

/// Nobody waits any more.
#[derive(Debug)]
pub(crate) enum Halt {
    Stopped,
    Failed(Failed),
}

impl<'a> Machine<'a> {
    pub(crate) fn new(context: LlamaContext<'a>) -> Self {
        Self {
            context,
            batch: LlamaBatch::new(BATCH_MAX, 1),
            seen: Vec::new(),
        }
    }

    /// Most tokens that it holds.
    pub(crate) fn room(&self) -> usize {
        usize::try_from(self.context.n_ctx()).unwrap_or(usize::MAX)
    }

    /// How many it holds.
    pub(crate) fn held(&self) -> usize {
        self.seen.len()
    }

    /// Reads a prompt, or what of it has not been read; says how many tokens of it stood there before.
    pub(crate) fn read(
        &mut self,
        prompt: &[LlamaToken],
        mut told: impl FnMut(usize) -> bool,
    ) -> Result<usize, Halt> {
        let same = prompt
            .iter()
            .zip(&self.seen)
            .take_while(|(new, old)| new == old)
            .count();
        // Of the last token the model's next word is wanted, so it is read in any case.
        let mut kept = same.min(prompt.len().saturating_sub(1));
        if kept < self.seen.len() && !self.forget_after(kept) {
            kept = 0;
        }
        let mut at = kept;
        let mut size = 2 * BATCH_MIN;
        while at < prompt.len() {
            if !told(at) {
                return Err(Halt::Stopped);
            }
            let end = prompt.len().min(at + size);
            let began = ggml_time_us();
            let piece = prompt.get(at..end).unwrap_or_default();
            self.decode(piece, end == prompt.len())?;
            let took = ggml_time_us().saturating_sub(began).max(1);
            let fits = i64::try_from(end - at).unwrap_or(1) * BATCH_US / took;
            size = usize::try_from(fits)
                .unwrap_or(BATCH_MIN)
                .clamp(BATCH_MIN, BATCH_MAX);
            at = end;
        }
        Ok(kept)
    }

    /// The next token.
    pub(crate) fn choose(&mut self, sampler: &mut LlamaSampler) -> LlamaToken {
        sampler.sample(&self.context, -1)
    }

    /// Takes it up.
    pub(crate) fn write(&mut self, token: LlamaToken) -> Result<(), Halt> {
        self.decode(&[token], true)
    }

    fn decode(&mut self, tokens: &[LlamaToken], wants_next: bool) -> Result<(), Halt> {
        self.batch.clear();
        for (nth, token) in tokens.iter().enumerate() {
            let position = i32::try_from(self.seen.len() + nth).unwrap_or(i32::MAX);
            let is_last = wants_next && nth + 1 == tokens.len();
            let added = self.batch.add(*token, position, &[0], is_last);
            added.map_err(|problem| failed(&problem))?;
        }
        match self.context.decode(&mut self.batch) {
            Ok(()) => {
                self.seen.extend_from_slice(tokens);
                if wants_next && self.is_senseless(tokens.len()) {
                    return Err(Halt::Failed(Failed::new(
                        FailureCode::ProviderError,
                        "What the model reckons is no number any more: its file is damaged. Download it again.",
                    )));
                }
                Ok(())
            }
            Err(problem) => {
                // What it did of it nobody knows.
                self.context.clear_kv_cache();
                self.seen.clear();
                Err(failed(&problem))
            }
        }
    }

    /// Whether the chances of the next token, which come of the last of so many, are none.
    fn is_senseless(&self, tokens: usize) -> bool {
        let last = i32::try_from(tokens.saturating_sub(1)).unwrap_or(0);
        let chances = self.context.get_logits_ith(last);
        chances.iter().any(|chance| chance.is_nan())
    }

    /// False if the model cannot forget a part; then it has forgotten all.
    fn forget_after(&mut self, kept: usize) -> bool {
        let from = u32::try_from(kept).ok();
        let done = self.context.clear_kv_cache_seq(Some(0), from, None);
        if kept > 0 && matches!(done, Ok(true)) {
            self.seen.truncate(kept);
            return true;
        }
        self.context.clear_kv_cache();
        self.seen.clear();
        false
    }
}

fn failed(problem: &impl std::fmt::Display) -> Halt {
    let words = "The engine could not go on with this model.";
    Halt::Failed(Failed::new(FailureCode::ProviderError, words).with_detail(problem.to_string()))
}

#[cfg(test)]
mod tests {
    use super::busy;

    #[test]
    fn a_core_is_busy_if_it_was_and_is() {
        assert_eq!(busy("0.10 0.20 0.30 1/200 77"), 0);
        assert_eq!(busy("4.90 3.00 2.00 4/200 77"), 3);
        assert_eq!(busy("1.90 3.00 2.00 4/200 77"), 1);
        assert_eq!(
            busy("8.00 3.00 2.00 1/200 77"),
            0,
            "a build that has just ended"
        );
        assert_eq!(busy(""), 0);
    }
}
