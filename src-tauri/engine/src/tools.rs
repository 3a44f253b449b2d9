//! Tools the model may call: the current time, and with a folder that the user chose, the files below it.
//!
//! Invariant: a tool that changes something does exactly what was prepared and shown, or nothing; every run gives a
//! result, a panicking one too; results are bounded in one place (`bound`), and what is left out is said.
//! Not here: whether the user agrees (the session asks), and the order of calls and results (`turn::machine`).

mod arguments;
mod bound;
mod diff;
mod folder;
mod list;
mod read;
mod write;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use protocol::{Counted, Effect, Intent, ToolOutcome};
use serde::Deserialize;

pub(crate) use bound::FLOOR_CHARS;

use self::{
    arguments::{Field, parse, quoted, schema},
    folder::Folder,
};
use crate::{Harness, clock::Clock, gate::gate_blocking, gateway::ToolSpec, health::Health};

/// The tools a session's turns may use: always the current time; with a folder, also files below it.
#[derive(Clone)]
pub(crate) struct Toolbox {
    clock: Arc<dyn Clock>,
    folder: Option<Arc<Path>>,
    health: Option<Arc<Health>>,
    harness: Harness,
    #[cfg(any(test, feature = "gates"))]
    panics: bool,
}

/// What a changing call would do, and all that is needed to do that and nothing else.
#[derive(Clone)]
pub(crate) struct Prepared {
    pub(crate) intent: Intent,
    planned: write::Planned,
}

/// What a tool's run gave.
#[derive(Debug)]
pub(crate) struct ToolResult {
    pub(crate) outcome: ToolOutcome,
    pub(crate) effect: Effect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    CurrentTime,
    ListFiles,
    ReadFile,
    WriteFile,
    /// Tests call it through real turns.
    #[cfg(any(test, feature = "gates"))]
    Panic,
}

impl Toolbox {
    /// Looks at nothing: the folder is opened by each call, so that one that vanished is an answer of its own.
    pub(crate) fn new(clock: Arc<dyn Clock>, folder: Option<PathBuf>) -> Self {
        Self {
            clock,
            folder: folder.map(Arc::from),
            health: None,
            harness: Harness::default(),
            #[cfg(any(test, feature = "gates"))]
            panics: false,
        }
    }

    /// With the place where panics are counted.
    pub(crate) fn counted_by(mut self, health: Arc<Health>) -> Self {
        self.health = Some(health);
        self
    }

    /// With the gates and the missing guard of a test.
    pub(crate) fn held_by(mut self, harness: Harness) -> Self {
        self.harness = harness;
        self
    }

    /// With `panic_tool`, which panics.
    #[cfg(any(test, feature = "gates"))]
    #[expect(
        clippy::allow_attributes,
        reason = "whether it is used depends on the features"
    )]
    #[allow(dead_code, reason = "used by tests of turns only")]
    pub(crate) const fn with_panic_tool(mut self) -> Self {
        self.panics = true;
        self
    }

    /// In a stable order, so that a session's requests begin alike.
    pub(crate) fn names(&self) -> Vec<String> {
        self.tools().map(|tool| tool.name().to_owned()).collect()
    }

    pub(crate) fn specs(&self) -> Vec<ToolSpec> {
        self.tools()
            .map(|tool| ToolSpec {
                name: tool.name().to_owned(),
                description: tool.description().to_owned(),
                parameters: schema(tool.fields()),
            })
            .collect()
    }

    /// Whether the user is asked before it runs.
    pub(crate) fn changes_something(&self, name: &str) -> bool {
        self.tool(name).is_ok_and(Tool::changes_something)
    }

    /// What a changing call would do, for the user's eyes; reads only, off the async threads. `None`: nothing to ask.
    ///
    /// # Errors
    /// Words for the model; the call is not run.
    ///
    /// Cancel safe: nothing is changed.
    pub(crate) async fn prepare(
        &self,
        name: String,
        arguments: String,
    ) -> Result<Option<Prepared>, String> {
        let tool = self.tool(&name)?;
        if !tool.changes_something() {
            return Ok(None);
        }
        let folder = self.folder()?;
        let prepared = tokio::task::spawn_blocking(move || {
            let asked = parse(tool.name(), tool.fields(), &arguments)?;
            write::prepare(&folder, asked)
        });
        match prepared.await {
            Ok(prepared) => prepared.map(Some),
            Err(error) => {
                tracing::error!(%error, tool = tool.name(), "a tool panicked while it looked what it would do");
                self.count_panic();
                Err(BUG.to_owned())
            }
        }
    }

    fn count_panic(&self) {
        if let Some(health) = &self.health {
            health.count(Counted::ToolPanicked);
        }
    }

    /// Runs it. A changing tool does what its [`Prepared`] says, and its arguments are not looked at again.
    ///
    /// A dropped run ends by itself soon after. A write that had not come to its last step is given up then; whether it
    /// had is not known to who dropped it.
    pub(crate) async fn run(
        &self,
        name: String,
        arguments: String,
        prepared: Option<Prepared>,
    ) -> ToolResult {
        let tool = match self.tool(&name) {
            Ok(tool) => tool,
            Err(message) => return refused(message),
        };
        let toolbox = self.clone();
        let wanted = Wanted::new();
        let running = wanted.clone();
        let _given_up_with_this_future = GiveUp(wanted);
        let ran = tokio::task::spawn_blocking(move || {
            gate_blocking!(toolbox.harness, ToolRunning);
            toolbox.call(tool, &arguments, prepared.as_ref(), &running)
        })
        .await;
        ran.unwrap_or_else(|error| {
            tracing::error!(%error, tool = tool.name(), "a tool panicked");
            self.count_panic();
            ToolResult {
                outcome: ToolOutcome::Failed {
                    message: BUG.to_owned(),
                },
                effect: if tool.changes_something() && error.is_panic() {
                    Effect::Unknown
                } else {
                    Effect::None
                },
            }
        })
    }

    fn call(
        &self,
        tool: Tool,
        arguments: &str,
        prepared: Option<&Prepared>,
        wanted: &Wanted,
    ) -> ToolResult {
        let (name, fields) = (tool.name(), tool.fields());
        let given = match tool {
            Tool::CurrentTime => {
                parse(name, fields, arguments).map(|Nothing {}| self.clock.wall().rfc3339())
            }
            Tool::ListFiles => parse(name, fields, arguments)
                .and_then(|asked| list::run(&Folder::open(&self.folder()?)?, &asked)),
            Tool::ReadFile => parse(name, fields, arguments)
                .and_then(|asked| read::run(&Folder::open(&self.folder()?)?, &asked)),
            Tool::WriteFile => match prepared {
                Some(prepared) => return write::run(&prepared.planned, wanted, &self.harness),
                None => Err(format!("{name} did not run: the user was not asked")),
            },
            #[cfg(any(test, feature = "gates"))]
            #[expect(clippy::panic, reason = "it is what the tool is for")]
            Tool::Panic => panic!("as asked"),
        };
        match given {
            Ok(output) => ToolResult {
                outcome: ToolOutcome::Succeeded { output },
                effect: Effect::None,
            },
            Err(message) => refused(message),
        }
    }

    fn folder(&self) -> Result<Arc<Path>, String> {
        self.folder
            .clone()
            .ok_or_else(|| "No folder is chosen for this conversation".to_owned())
    }

    fn tools(&self) -> impl Iterator<Item = Tool> {
        let files = self
            .folder
            .as_ref()
            .map(|_| [Tool::ListFiles, Tool::ReadFile, Tool::WriteFile]);
        let tools = [Tool::CurrentTime]
            .into_iter()
            .chain(files.into_iter().flatten());
        #[cfg(any(test, feature = "gates"))]
        let tools = tools.chain(self.panics.then_some(Tool::Panic));
        tools
    }

    fn tool(&self, name: &str) -> Result<Tool, String> {
        self.tools()
            .find(|tool| tool.name() == name)
            .ok_or_else(|| {
                format!(
                    "There is no tool named {}; there are {}",
                    quoted(name),
                    self.names().join(", ")
                )
            })
    }
}

impl Tool {
    const fn name(self) -> &'static str {
        match self {
            Self::CurrentTime => "current_time",
            Self::ListFiles => "list_files",
            Self::ReadFile => "read_file",
            Self::WriteFile => "write_file",
            #[cfg(any(test, feature = "gates"))]
            Self::Panic => "panic_tool",
        }
    }

    const fn description(self) -> &'static str {
        match self {
            Self::CurrentTime => "Tells the present date and time in UTC.",
            Self::ListFiles => {
                "Lists the files and folders in the folder that the user chose for this conversation, or in one below \
                 it. Links are named and not followed."
            }
            Self::ReadFile => {
                "Reads a text file below the folder that the user chose. Of a long one only the beginning and the end \
                 are given; from_line and lines give the rest."
            }
            Self::WriteFile => {
                "Writes a text file below the folder that the user chose, new or in place of what it held. The user \
                 is shown the change and may refuse it."
            }
            #[cfg(any(test, feature = "gates"))]
            Self::Panic => "Panics.",
        }
    }

    const fn fields(self) -> &'static [Field] {
        match self {
            Self::CurrentTime => &[],
            Self::ListFiles => list::FIELDS,
            Self::ReadFile => read::FIELDS,
            Self::WriteFile => write::FIELDS,
            #[cfg(any(test, feature = "gates"))]
            Self::Panic => &[],
        }
    }

    const fn changes_something(self) -> bool {
        match self {
            Self::CurrentTime | Self::ListFiles | Self::ReadFile => false,
            Self::WriteFile => true,
            #[cfg(any(test, feature = "gates"))]
            Self::Panic => false,
        }
    }
}

impl fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Toolbox").field(&self.names()).finish()
    }
}

/// Without the files' content, which is nothing for a log.
impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Prepared")
    }
}

const BUG: &str = "The tool failed with a bug of its own";

fn refused(message: String) -> ToolResult {
    ToolResult {
        outcome: ToolOutcome::Failed { message },
        effect: Effect::None,
    }
}

/// The arguments of a tool that takes none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// Whether somebody still waits for a run: what blocks a thread cannot be dropped, only asked to stop.
#[derive(Clone)]
struct Wanted(Arc<AtomicBool>);

impl Wanted {
    fn new() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    fn still(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

struct GiveUp(Wanted);

impl Drop for GiveUp {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
