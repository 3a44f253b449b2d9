//! Why a model could not be loaded, in words, from what llama.cpp says of it.

use std::{
    collections::VecDeque,
    fmt,
    path::Path,
    sync::{Mutex, PoisonError},
};

use protocol::{FailureCode, model_process::Failed};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

/// Its last complaints; the first of a bad load says most, and there are few.
const LINES_MAX: usize = 30;

static COMPLAINTS: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());

/// Listens to llama.cpp from now on. It never prints anything itself.
pub(crate) fn listen() {
    // Nobody else listens in this process.
    tracing::subscriber::set_global_default(Listener).unwrap_or(());
    llama_cpp_2::send_logs_to_tracing(llama_cpp_2::LogOptions::default());
}

/// What it complained about so far.
pub(crate) fn complaints() -> String {
    let lines = COMPLAINTS.lock().unwrap_or_else(PoisonError::into_inner);
    lines.iter().cloned().collect::<Vec<_>>().join("\n")
}

struct Listener;

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut words = Words(String::new());
        event.record(&mut words);
        let mut lines = COMPLAINTS.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() < LINES_MAX {
            lines.push_back(words.0.trim().to_owned());
        }
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct Words(String);

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

/// What is wrong with a file before llama.cpp is asked; nothing if it may be one.
pub(crate) fn of_file(path: &Path) -> Option<Failed> {
    use std::io::Read;
    let name = path.display();
    // Opening a pipe would wait for somebody to write into it.
    if std::fs::metadata(path).is_ok_and(|kind| !kind.is_file()) {
        return Some(Failed::new(
            FailureCode::ModelLoadFailed,
            format!("{name} is no ordinary file."),
        ));
    }
    let mut begins = [0; 4];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut begins));
    match read {
        Ok(()) if begins == *b"GGUF" => None,
        Err(problem) if problem.kind() == std::io::ErrorKind::NotFound => Some(
            Failed::new(
                FailureCode::ModelNotFound,
                format!("There is no model file {name}."),
            )
            .with_detail(problem.to_string()),
        ),
        Err(problem) if problem.kind() != std::io::ErrorKind::UnexpectedEof => Some(
            Failed::new(
                FailureCode::ModelLoadFailed,
                format!("The model file {name} cannot be read."),
            )
            .with_detail(problem.to_string()),
        ),
        Ok(()) | Err(_) => Some(Failed::new(
            FailureCode::ModelLoadFailed,
            format!("{name} is no model: it is not in the format GGUF."),
        )),
    }
}

/// What is wrong with one that llama.cpp does not load.
pub(crate) fn not_loaded(path: &Path) -> Failed {
    let (name, said) = (path.display(), complaints());
    let message = if let Some(architecture) = architecture(&said) {
        format!(
            "{name} is a model of the kind ‘{architecture}’, which this version of the engine does not know."
        )
    } else if is_short(&said) {
        format!("{name} is cut short or damaged; download it again.")
    } else if is_memory(&said) {
        format!("There is not enough memory for {name}. Choose a smaller model.")
    } else {
        format!("{name} could not be loaded.")
    };
    Failed::new(FailureCode::ModelLoadFailed, message).with_detail(said)
}

/// No memory for the context.
pub(crate) fn no_context(path: &Path, tokens: u32) -> Failed {
    let name = path.display();
    let message = format!(
        "There is not enough memory for {name} with a context of {tokens} tokens. Choose a shorter one."
    );
    Failed::new(FailureCode::ModelLoadFailed, message).with_detail(complaints())
}

fn architecture(said: &str) -> Option<&str> {
    let (_, after) = said.split_once("unknown model architecture: '")?;
    after.split('\'').next()
}

fn is_short(said: &str) -> bool {
    [
        "not within the file bounds",
        "corrupted or incomplete",
        "unexpectedly reached end of file",
        "failed to read",
        "read error",
        "failed to load model from",
    ]
    .iter()
    .any(|words| said.contains(words))
        && !is_memory(said)
}

fn is_memory(said: &str) -> bool {
    [
        "unable to allocate",
        "failed to allocate",
        "bad_alloc",
        "mmap failed",
        "Cannot allocate memory",
    ]
    .iter()
    .any(|words| said.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engines_complaints_are_told_apart() {
        assert_eq!(
            architecture("error loading model architecture: unknown model architecture: 'kelp'\n"),
            Some("kelp")
        );
        assert!(is_short(
            "tensor 'x' data is not within the file bounds, model is corrupted or incomplete"
        ));
        assert!(is_memory("alloc_buffer: unable to allocate CPU buffer"));
        assert!(!is_short(
            "unable to allocate CPU buffer, failed to load model from"
        ));
    }
}
