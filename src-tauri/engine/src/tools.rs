//! Tools the model may call. STAND-IN until the file tools land.

use std::{path::PathBuf, sync::Arc};

use protocol::{Effect, Intent, Timestamp, ToolOutcome};

use crate::{Harness, clock::Clock, gate::gate_blocking, gateway::ToolSpec};

/// Results up to this long are never left out.
pub(crate) const SMALL_RESULT_CHARS: usize = 2_048;

/// What a tool's run gave.
#[derive(Debug)]
pub(crate) struct ToolResult {
    pub(crate) outcome: ToolOutcome,
    pub(crate) effect: Effect,
}

#[derive(Clone)]
pub(crate) struct Toolbox {
    clock: Arc<dyn Clock>,
    folder: Option<PathBuf>,
}
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) intent: Intent,
    path: PathBuf,
    content: String,
}
impl Toolbox {
    pub(crate) fn new(clock: Arc<dyn Clock>, folder: Option<PathBuf>) -> Self {
        Self { clock, folder }
    }
    pub(crate) fn names(&self) -> Vec<String> {
        let mut n = vec![CURRENT_TIME.to_owned()];
        if self.folder.is_some() {
            n.push("write_file".to_owned());
        }
        n
    }
    pub(crate) fn specs(&self) -> Vec<ToolSpec> {
        specs()
    }
    pub(crate) fn changes_something(&self, name: &str) -> bool {
        name == "write_file"
    }
    pub(crate) async fn prepare(
        &self,
        _name: String,
        arguments: String,
    ) -> Result<Option<Prepared>, String> {
        let v: serde_json::Value = serde_json::from_str(&arguments).map_err(|e| e.to_string())?;
        let folder = self.folder.clone().ok_or("no folder")?;
        let path = folder.join(v["path"].as_str().unwrap_or("x"));
        let content = v["content"].as_str().unwrap_or("").to_owned();
        Ok(Some(Prepared {
            intent: Intent::WriteFile {
                path: path.display().to_string(),
                before: None,
                after: content.len() as u64,
                diff: format!("+{content}"),
                diff_left_out: 0,
            },
            path,
            content,
        }))
    }
    pub(crate) async fn run(
        &self,
        name: String,
        arguments: String,
        prepared: Option<Prepared>,
    ) -> ToolResult {
        if let Some(p) = prepared {
            let _ = std::fs::write(p.path, p.content);
            return ToolResult {
                outcome: ToolOutcome::Succeeded {
                    output: "written".into(),
                },
                effect: Effect::Committed,
            };
        }
        run(name, arguments, Arc::clone(&self.clock)).await
    }
}

const CURRENT_TIME: &str = "current_time";
pub(crate) fn specs() -> Vec<ToolSpec> {
    vec![ToolSpec {
        name: CURRENT_TIME.to_owned(),
        description: "Tells the present date and time in UTC.".to_owned(),
        parameters: r#"{"type":"object","properties":{}}"#.to_owned(),
    }]
}

/// Runs a tool by name. A panic inside becomes an error result that the model can read.
pub(crate) async fn run(
    name: String,
    arguments: String,
    clock: Arc<dyn Clock>,
    harness: Harness,
) -> ToolResult {
    let ran = tokio::task::spawn_blocking(move || {
        gate_blocking!(harness, ToolRunning);
        call(&name, &arguments, clock.as_ref())
    })
    .await;
    ran.unwrap_or_else(|error| {
        tracing::error!(%error, "a tool panicked");
        ToolResult {
            outcome: ToolOutcome::Failed {
                message: "the tool failed with a bug of its own".into(),
            },
            effect: Effect::Unknown,
        }
    })
}

fn call(name: &str, _arguments: &str, clock: &dyn Clock) -> ToolResult {
    let outcome = match name {
        CURRENT_TIME => ToolOutcome::Succeeded {
            output: rfc3339(clock.wall()),
        },
        _ => ToolOutcome::Failed {
            message: format!("there is no tool named {name:?}"),
        },
    };
    ToolResult {
        outcome,
        effect: Effect::None,
    }
}

/// A time as RFC 3339 in UTC, to the second. Days to date by Howard Hinnant's `civil_from_days`.
fn rfc3339(at: Timestamp) -> String {
    let seconds = at.millis().div_euclid(1_000);
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let of_era = z.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        of_day / 3_600,
        of_day / 60 % 60,
        of_day % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_as_rfc_3339() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (1_795_977_599_999, "2026-11-29T18:39:59Z"),
            (-1, "1969-12-31T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(Timestamp::from_millis(ms)), text);
        }
    }
}
