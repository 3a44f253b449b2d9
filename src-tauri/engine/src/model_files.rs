//! Model files of this computer: which there are, what they say of themselves, and whether they fit.
//!
//! Invariant: a file that was added is listed until somebody forgets it, also when it is missing or broken; and only
//! files of our own folder are ever deleted. A look at a folder reads so many files and no more, and none of them twice
//! while it stays the same.
//! Not here: fetching a file (`gateway::download`), reading one (`gguf`), and running it.

mod findings;
mod place;

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use protocol::{
    Connection, CuratedModel, Dialect, ErrorCode, ErrorReport, Failure, FailureCode, Model,
    ModelFile, Provider, ProviderId, Think, model_process::usual_context,
};

use crate::{
    Harness,
    gateway::Order,
    gguf::{self, Facts, NotAModel},
    log::FreeSpace,
    mutant::mutated,
    refusal::{invalid, sentence},
};

pub(crate) use findings::findings;
pub(crate) use place::address;

/// The address of a model's file as it is kept, and the file's name here; nothing if it is none.
pub fn model_address(typed: &str) -> Option<(String, String)> {
    let (url, name) = address(typed).ok()?;
    Some((url.to_string(), name))
}

/// Asks how many bytes of memory are free, if the system tells.
pub type FreeMemory = Arc<dyn Fn() -> Option<u64> + Send + Sync>;

/// Files that are looked at in one folder.
const FILES_MAX: usize = 1_000;

/// Files that were added by their path.
const ADDED_MAX: usize = 1_000;

/// Tokens that are worked on at once: room for the chances of every word after each of them.
const AT_ONCE: u64 = 512;

/// What lists the models to begin with.
const CURATED: &str = include_str!("model_files/curated.json");

/// See the module.
pub(crate) struct ModelFiles {
    folder: PathBuf,
    free_memory: FreeMemory,
    free_space: FreeSpace,
    looks: Mutex<HashMap<PathBuf, Look>>,
    harness: Harness,
}

/// What was seen of a file when it looked so from outside.
struct Look {
    bytes: u64,
    changed: Option<SystemTime>,
    seen: Result<Facts, NotAModel>,
}

impl ModelFiles {
    pub(crate) fn new(
        data_dir: &Path,
        free_memory: FreeMemory,
        free_space: FreeSpace,
        harness: Harness,
    ) -> Self {
        Self {
            folder: data_dir.join("models"),
            free_memory,
            free_space,
            looks: Mutex::default(),
            harness,
        }
    }

    /// The provider of models of this computer, as it is before anybody changed it.
    pub(crate) fn provider(&self) -> Provider {
        Provider {
            id: ProviderId::THIS_COMPUTER,
            name: "This computer".to_owned(),
            dialect: Dialect::Local,
            base_url: self.place(),
            num_ctx: None,
            keep_alive: None,
            files: Vec::new(),
            think: Think::default(),
            limits: None,
            connection: Connection::default(),
        }
    }

    /// Our folder as text. One that cannot be written so is shown as well as it can be, and names no file.
    pub(crate) fn place(&self) -> String {
        self.folder.to_string_lossy().into_owned()
    }

    /// `provider`, with the folder where it is now: a data folder may have been moved.
    pub(crate) fn here(&self, mut provider: Provider) -> Provider {
        if provider.id == ProviderId::THIS_COMPUTER {
            provider.base_url = self.place();
        }
        provider
    }

    pub(crate) fn free_memory(&self) -> Option<u64> {
        (self.free_memory)()
    }

    /// Every model of a folder, and every file that was added. Blocks.
    ///
    /// # Errors
    /// That the folder cannot be looked into. One that is not there yet has no files.
    pub(crate) fn list(&self, provider: &Provider) -> Result<Vec<Model>, Failure> {
        let folder = Path::new(&provider.base_url);
        let is_ours = provider.id == ProviderId::THIS_COMPUTER;
        let found = self.files_in(folder, is_ours).map_err(|error| {
            let words = format!(
                "The folder {} cannot be looked into: {error}.",
                folder.display()
            );
            Failure::new(FailureCode::ModelNotFound, words)
        })?;
        let free = self.free_memory();
        let mut models: Vec<Model> = found
            .into_iter()
            .map(|(name, path)| self.model(name, &path, is_ours, provider, free))
            .collect();
        models.sort_by_key(|model| model.name.to_lowercase());
        let added = provider.files.iter().map(|path| {
            let name = path.clone();
            self.model(name, Path::new(path), false, provider, free)
        });
        models.extend(added);
        Ok(models)
    }

    /// Names and paths of what may be a model: in the folder, and in ours also one below.
    fn files_in(&self, folder: &Path, deep: bool) -> io::Result<Vec<(String, PathBuf)>> {
        let mut found = Vec::new();
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
            Err(error) => return Err(error),
        };
        for entry in entries.take(FILES_MAX) {
            let path = entry?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
                // A name that is no text cannot be asked for.
                continue;
            };
            if name.starts_with('.') {
                continue;
            }
            if is_model_name(name) {
                if found.len() < FILES_MAX && !has_first_part(&path, name) {
                    found.push((name.to_owned(), path));
                }
            } else if deep && path.is_dir() {
                let below = self.files_in(&path, false)?;
                let below = below
                    .into_iter()
                    .map(|(file, path)| (format!("{name}/{file}"), path));
                found.extend(below);
                found.truncate(FILES_MAX);
            }
        }
        Ok(found)
    }

    fn model(
        &self,
        name: String,
        path: &Path,
        ours: bool,
        provider: &Provider,
        free: Option<u64>,
    ) -> Model {
        let mut model = Model::named(name);
        let mut file = ModelFile {
            path: path.to_string_lossy().into_owned(),
            ours,
            ..ModelFile::default()
        };
        match self.look(path) {
            Ok(facts) => {
                let usual = || usual_context(facts.context_tokens, facts.token_bytes, free);
                let context = provider.num_ctx.map_or_else(usual, u64::from);
                let needs = needs(&facts, context);
                file.needs_bytes = Some(needs);
                file.warning = free
                    .filter(|free| *free < needs)
                    .map(|free| does_not_fit(needs, free));
                file.title = facts.name;
                file.architecture = Some(facts.architecture);
                file.license = facts.license;
                file.has_template = facts.has_template;
                model.size_bytes = Some(facts.file_bytes);
                model.context_tokens = facts.context_tokens;
                model.parameters = facts.parameters;
                model.quantization = facts.quantization;
                model.capabilities = facts.capabilities;
            }
            Err(why) => {
                file.problem = Some(sentence(&why.to_string()));
                // A link that leads nowhere has no size.
                model.size_bytes = fs::metadata(path).ok().map(|kind| kind.len());
            }
        }
        model.file = Some(file);
        model
    }

    /// What a file says of itself, and whether all that belongs to it is there. Blocks.
    pub(crate) fn look(&self, path: &Path) -> Result<Facts, NotAModel> {
        let outside = fs::metadata(path).map_err(|error| NotAModel::from(&error))?;
        let (bytes, changed) = (outside.len(), outside.modified().ok());
        let known = self.looks().get(path).and_then(|look| {
            let same = look.bytes == bytes && look.changed == changed && changed.is_some();
            same.then(|| look.seen.clone())
        });
        let seen = match known {
            Some(seen) => seen,
            None => {
                let seen = gguf::look(path, &self.harness);
                let look = Look {
                    bytes,
                    changed,
                    seen: seen.clone(),
                };
                let mut looks = self.looks();
                if looks.len() >= 2 * FILES_MAX {
                    looks.clear();
                }
                looks.insert(path.to_owned(), look);
                seen
            }
        };
        let mut facts = seen?;
        let others = other_parts(path);
        if !others.is_empty() {
            for part in others {
                let kind = fs::metadata(&part);
                let kind = kind.map_err(|_| NotAModel::PartMissing(file_name(&part)))?;
                facts.file_bytes = facts.file_bytes.saturating_add(kind.len());
            }
            // What the others hold, only they say.
            facts.weight_bytes = facts.file_bytes;
        }
        Ok(facts)
    }

    fn looks(&self) -> std::sync::MutexGuard<'_, HashMap<PathBuf, Look>> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `provider` with one more file. Blocks.
    pub(crate) fn with(&self, mut provider: Provider, path: &str) -> Result<Provider, ErrorReport> {
        let no = |words: String| Err(invalid("path", &words));
        let typed = path.trim();
        if typed.is_empty() {
            return no("Which file is to be added? Say its whole path.".to_owned());
        }
        let path = Path::new(typed);
        if !path.is_absolute() {
            return no("A file is named by its whole path, from the beginning.".to_owned());
        }
        if let Err(why) = self.look(path)
            && !mutated!(self.harness, AddAnything)
        {
            return no(format!("{}: {why}.", file_name(path)));
        }
        if path.starts_with(&self.folder) || provider.files.iter().any(|file| file == typed) {
            return no(format!("{} is in the list already.", file_name(path)));
        }
        if provider.files.len() >= ADDED_MAX {
            return no("There are 1000 files in the list already.".to_owned());
        }
        provider.files.push(typed.to_owned());
        Ok(provider)
    }

    /// Deletes a file of our folder, with all its parts. Blocks.
    pub(crate) fn delete(&self, name: &str) -> Result<(), ErrorReport> {
        let path = self.folder.join(name);
        let is_below = Path::new(name)
            .components()
            .all(|part| matches!(part, std::path::Component::Normal(_)));
        if !(is_below && is_model_name(name)) {
            return Err(invalid("model", "This is no file of the models folder."));
        }
        let mut parts = vec![path.clone()];
        parts.extend(other_parts(&path));
        for (at, part) in parts.iter().enumerate() {
            match fs::remove_file(part) {
                Ok(()) => {}
                // A part that was missing all along.
                Err(error) if error.kind() == io::ErrorKind::NotFound && at > 0 => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(ErrorReport::new(
                        ErrorCode::NotFound,
                        "The file is gone already.",
                    ));
                }
                Err(error) => {
                    let words = format!("{name} could not be deleted: {error}.");
                    return Err(ErrorReport::new(ErrorCode::Other, words));
                }
            }
        }
        Ok(())
    }

    /// What is to be done to fetch a file.
    pub(crate) fn order(&self, typed: &str) -> Result<Order, ErrorReport> {
        let (url, name) = address(typed).map_err(|words| invalid("model", words))?;
        let free_bytes = match (self.free_space)(self.nearest()) {
            Ok(free) => Some(free),
            Err(error) => {
                // Then it is found out by writing.
                tracing::warn!(%error, "the disk does not say how much room there is");
                None
            }
        };
        let curated = curated()
            .into_iter()
            .find(|model| model.url == url.as_str());
        Ok(Order {
            sha256: curated.and_then(|model| model.sha256),
            url,
            folder: self.folder.clone(),
            name,
            free_bytes,
        })
    }

    /// Our folder, or where it will be.
    fn nearest(&self) -> &Path {
        if self.folder.is_dir() {
            return &self.folder;
        }
        self.folder.parent().unwrap_or(&self.folder)
    }
}

/// Models to begin with, the smallest first.
pub(crate) fn curated() -> Vec<CuratedModel> {
    // A test reads it too; a list that cannot be read is none.
    serde_json::from_str(CURATED).unwrap_or_default()
}

/// What a model takes in memory at a context of so many tokens: its weights, the conversation, and the work.
fn needs(facts: &Facts, context: u64) -> u64 {
    let weights = if facts.weight_bytes == 0 {
        facts.file_bytes
    } else {
        facts.weight_bytes
    };
    let conversation = facts.token_bytes.unwrap_or(0).saturating_mul(context);
    let work = facts.vocabulary.saturating_mul(AT_ONCE).saturating_mul(4);
    weights.saturating_add(conversation).saturating_add(work)
}

fn does_not_fit(needs: u64, free: u64) -> String {
    format!(
        "It takes about {} of memory, and {} are free: loading it may fail, or make this computer very slow. Choose a smaller model, or a shorter context.",
        gguf::in_words(needs),
        gguf::in_words(free)
    )
}

fn is_model_name(name: &str) -> bool {
    Path::new(name)
        .extension()
        .is_some_and(|end| end.eq_ignore_ascii_case("gguf"))
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}

/// "kelp-00002-of-00003.gguf": what stands before the numbers, the number, and the count.
fn part_of(name: &str) -> Option<(&str, u32, u32)> {
    let stem = name.get(..name.len().checked_sub(5)?)?;
    let (rest, count) = stem.rsplit_once("-of-")?;
    let (base, part) = rest.rsplit_once('-')?;
    let number = |digits: &str| (digits.len() == 5).then(|| digits.parse().ok()).flatten();
    Some((base, number(part)?, number(count)?))
}

/// Whether it is a later part of a file whose first part lies beside it: then that one stands for all.
fn has_first_part(path: &Path, name: &str) -> bool {
    match part_of(name) {
        Some((base, part, count)) if part > 1 => path
            .with_file_name(format!("{base}-00001-of-{count:05}.gguf"))
            .exists(),
        Some(_) | None => false,
    }
}

fn other_parts(path: &Path) -> Vec<PathBuf> {
    let name = file_name(path);
    match part_of(&name) {
        Some((base, 1, count)) => (2..=count.min(1_000))
            .map(|part| path.with_file_name(format!("{base}-{part:05}-of-{count:05}.gguf")))
            .collect(),
        Some(_) | None => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
