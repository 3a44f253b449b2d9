//! The doctor's look at this computer: whether it can run models, and whether it has the one that was chosen.

use std::path::Path;

use protocol::{Check, Failure, Finding, Fix, Model, Provider, ProviderId, Verdict};

/// What a list of `provider`'s files comes to; `wanted` is the model that was chosen, and `no_engine` says why nothing
/// can run models here, if nothing can.
pub(crate) fn findings(
    provider: &Provider,
    listed: Result<&[Model], &Failure>,
    wanted: Option<&str>,
    no_engine: Option<&Failure>,
) -> Vec<Finding> {
    let mut findings = vec![match no_engine {
        None => Finding::new(
            Check::Server,
            Verdict::Good,
            "Holdfast's own engine runs the models of this computer.",
        ),
        Some(failure) => Finding::new(Check::Server, Verdict::Bad, &failure.message),
    }];
    let models = match listed {
        Ok(models) => models,
        Err(failure) => {
            findings.push(Finding {
                detail: failure.detail.clone(),
                ..Finding::new(Check::Models, Verdict::Bad, &failure.message)
            });
            return findings;
        }
    };
    findings.push(in_folder(provider, models));
    if let Some(wanted) = wanted {
        findings.push(chosen(models, wanted));
    }
    let others = models
        .iter()
        .filter(|model| Some(model.name.as_str()) != wanted);
    findings.extend(others.filter_map(|model| {
        let problem = problem(model)?;
        Some(Finding::new(
            Check::Model,
            Verdict::Note,
            format!("{} cannot be used: {problem}", model.name),
        ))
    }));
    findings
}

fn problem(model: &Model) -> Option<&str> {
    model.file.as_ref()?.problem.as_deref()
}

fn usable(models: &[Model]) -> impl Iterator<Item = &Model> {
    models.iter().filter(|model| problem(model).is_none())
}

fn in_folder(provider: &Provider, models: &[Model]) -> Finding {
    let folder = &provider.base_url;
    // Ours is made when the first model comes.
    if provider.id != ProviderId::THIS_COMPUTER && !Path::new(folder).is_dir() {
        return Finding::new(
            Check::Models,
            Verdict::Bad,
            format!("There is no folder {folder}. Check how it is written, or put it back."),
        );
    }
    match usable(models).count() {
        0 => Finding::new(
            Check::Models,
            Verdict::Bad,
            format!(
                "There is no model yet. Download one, put a GGUF file into {folder}, or name one by its path."
            ),
        ),
        1 => Finding::new(Check::Models, Verdict::Good, "There is one model."),
        more => Finding::new(
            Check::Models,
            Verdict::Good,
            format!("There are {more} models."),
        ),
    }
}

fn chosen(models: &[Model], wanted: &str) -> Finding {
    let found = models.iter().find(|model| model.name == wanted);
    let file = found.and_then(|model| model.file.as_ref());
    let bad = |message: String| {
        let models: Vec<String> = usable(models)
            .take(CHOICES_MAX)
            .map(|model| model.name.clone())
            .collect();
        Finding {
            fix: (!models.is_empty()).then_some(Fix::ChooseModel { models }),
            ..Finding::new(Check::Model, Verdict::Bad, message)
        }
    };
    match (found, file.and_then(|file| file.problem.as_deref())) {
        (None, _) => bad(format!(
            "The file of {wanted}, which was chosen, is not there any more."
        )),
        (Some(_), Some(problem)) => bad(format!(
            "{wanted}, which was chosen, cannot be used: {problem}"
        )),
        (Some(_), None) => match file.and_then(|file| file.warning.as_deref()) {
            Some(warning) => {
                Finding::new(Check::Model, Verdict::Note, format!("{wanted}: {warning}"))
            }
            None => Finding::new(
                Check::Model,
                Verdict::Good,
                format!("{wanted}, which was chosen, is there."),
            ),
        },
    }
}

/// As many as fit on a page of choices.
const CHOICES_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use protocol::{FailureCode, ModelFile};

    use super::*;

    fn provider(base_url: &str) -> Provider {
        let mut provider: Provider = serde_json::from_value(serde_json::json!({
            "id": ProviderId::THIS_COMPUTER,
            "name": "This computer",
            "dialect": "Local",
            "base_url": base_url,
        }))
        .unwrap();
        provider.files = Vec::new();
        provider
    }

    fn model(name: &str, problem: Option<&str>, warning: Option<&str>) -> Model {
        Model {
            file: Some(ModelFile {
                problem: problem.map(str::to_owned),
                warning: warning.map(str::to_owned),
                ..ModelFile::default()
            }),
            ..Model::named(name)
        }
    }

    fn told(findings: &[Finding]) -> Vec<(Check, Verdict)> {
        let told = findings.iter();
        told.map(|finding| (finding.check, finding.verdict))
            .collect()
    }

    #[test]
    fn what_can_be_asked_is_well_and_what_is_broken_beside_it_is_noted() {
        let models = [
            model("kelp.gguf", None, None),
            model("torn.gguf", Some("It ends too early."), None),
        ];
        let found = findings(&provider("/models"), Ok(&models), Some("kelp.gguf"), None);
        let want = [
            (Check::Server, Verdict::Good),
            (Check::Models, Verdict::Good),
            (Check::Model, Verdict::Good),
            (Check::Model, Verdict::Note),
        ];
        assert_eq!(told(&found), want);
        assert!(
            found[3]
                .message
                .contains("torn.gguf cannot be used: It ends too early.")
        );
    }

    #[test]
    fn a_chosen_model_that_is_gone_or_broken_is_why_and_another_is_offered() {
        let models = [
            model("kelp.gguf", None, None),
            model("torn.gguf", Some("It ends too early."), None),
        ];
        for wanted in ["torn.gguf", "gone.gguf"] {
            let found = findings(&provider("/models"), Ok(&models), Some(wanted), None);
            let why = found.iter().find(|finding| finding.verdict == Verdict::Bad);
            let fix = Fix::ChooseModel {
                models: vec!["kelp.gguf".to_owned()],
            };
            assert_eq!(why.and_then(|why| why.fix.clone()), Some(fix), "{wanted}");
        }
    }

    #[test]
    fn no_engine_no_folder_and_no_model_are_each_said() {
        let refused = Failure::new(FailureCode::ModelLoadFailed, "There is no engine.");
        let none = findings(&provider("/models"), Ok(&[]), None, Some(&refused));
        let both = [(Check::Server, Verdict::Bad), (Check::Models, Verdict::Bad)];
        assert_eq!(told(&none), both);
        assert!(none[1].message.contains("put a GGUF file into /models"));
        let mut elsewhere = provider("/no/such/folder");
        elsewhere.id = ProviderId::from_bits(7);
        let found = findings(&elsewhere, Ok(&[]), None, None);
        assert!(
            found[1]
                .message
                .starts_with("There is no folder /no/such/folder.")
        );
    }

    #[test]
    fn a_model_that_hardly_fits_is_one_with_something_to_know() {
        let models = [model("kelp.gguf", None, Some("It needs 9 GB."))];
        let found = findings(&provider("/models"), Ok(&models), Some("kelp.gguf"), None);
        assert_eq!(found[2].verdict, Verdict::Note);
        assert_eq!(found[2].message, "kelp.gguf: It needs 9 GB.");
    }
}
