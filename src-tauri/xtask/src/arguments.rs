//! The command line, as one closed enum: a flag that a chore does not know is an error, never ignored.

use std::num::{NonZeroU32, NonZeroU64};
use std::str::FromStr;

pub(crate) const USAGE: &str = "\
cargo xtask CHORE

  setup  [--window-tests]     find what this machine lacks, install it, say what was done
  ui     [--release]          build the page: ui/dist
  run    [--release] [--no-model | --with-model] [--no-build] [-- APP ARGUMENTS]
                              build everything and start Holdfast; under Xvfb, with a screenshot, where
                              there is no display. Where no model server answers on this machine, a small
                              model is fetched once (98 MB) and chosen; --no-model leaves that out, and
                              --with-model starts a small real model server instead
  test   [--fast] [--no-own-model] [--real-model] [--no-build]
                              format, clippy, native tests, the page, the app, tests in the real window, and with
                              a small model's file (98 MB, fetched once);
                              --fast: the native part only, no WebKit needed
                              --no-own-model: the app without its own model engine, and no story that wants one
                              --real-model: also a conversation with a small real model server
  test   --repeat N           the headless stories alone, N times; names those that fail, and those whose logs differ
  mutants                     take out every guard, one at a time, and show which story turns red and how;
                              `test` does the same among its native tests
  fuzz   [--runs N]           the decoders under made-up bytes, ten million of them unless told otherwise
  bundle [--debug] [--verify] a Debian package; --verify installs it, starts it and removes it again";

/// Some minutes on one core.
const FUZZ_RUNS: NonZeroU64 = NonZeroU64::new(10_000_000).expect("not zero");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    Debug,
    Release,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Building {
    Wanted,
    /// The user says that what is there is good enough.
    Skipped,
}

/// Whether the app has a model engine of its own, which takes minutes to compile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModelEngine {
    Within,
    LeftOut,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Model {
    None,
    Small,
}

/// What Holdfast is started with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FirstModel {
    /// The small one as a file, where no model server answers.
    IfNoServer,
    /// A small real model server.
    Server,
    /// What is there already.
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SetupArguments {
    pub(crate) window_tests: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunArguments {
    pub(crate) profile: Profile,
    pub(crate) model: FirstModel,
    pub(crate) building: Building,
    /// Handed to the app as they are.
    pub(crate) app: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Only what needs neither WebKit nor a display.
    Fast,
    Full,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TestArguments {
    pub(crate) reach: Reach,
    pub(crate) engine: ModelEngine,
    pub(crate) model: Model,
    pub(crate) building: Building,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BundleArguments {
    pub(crate) profile: Profile,
    pub(crate) verify: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Chore {
    Help,
    Setup(SetupArguments),
    Ui(Profile),
    Run(RunArguments),
    Test(TestArguments),
    /// How often every headless story is told.
    Repeat(NonZeroU32),
    Mutants,
    /// How many inputs are tried.
    Fuzz(NonZeroU64),
    Bundle(BundleArguments),
}

impl Chore {
    /// Reads the arguments after the program's own name.
    ///
    /// # Errors
    /// A sentence that names the argument nobody understood.
    pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut words: Vec<String> = arguments.collect();
        let mut app = Vec::new();
        if let Some(at) = words.iter().position(|word| word == "--") {
            app = words.split_off(at + 1);
            words.pop();
        }
        if words.is_empty()
            || words
                .iter()
                .any(|word| word == "--help" || word == "-h" || word == "help")
        {
            return Ok(Self::Help);
        }
        let mut flags = Flags {
            chore: words.remove(0),
            given: words,
        };
        let chore = match flags.chore.as_str() {
            "setup" => Self::Setup(SetupArguments {
                window_tests: flags.take("--window-tests"),
            }),
            "ui" => Self::Ui(flags.profile("--release", Profile::Release, Profile::Debug)),
            "run" => Self::Run(RunArguments {
                profile: flags.profile("--release", Profile::Release, Profile::Debug),
                model: flags.first_model()?,
                building: flags.building(),
                app: std::mem::take(&mut app),
            }),
            "test" if flags.given.iter().any(|given| given == "--repeat") => {
                Self::Repeat(flags.number("--repeat")?)
            }
            "test" => Self::Test(TestArguments {
                reach: if flags.take("--fast") {
                    Reach::Fast
                } else {
                    Reach::Full
                },
                engine: if flags.take("--no-own-model") {
                    ModelEngine::LeftOut
                } else {
                    ModelEngine::Within
                },
                model: flags.model("--real-model"),
                building: flags.building(),
            }),
            "mutants" => Self::Mutants,
            "fuzz" if flags.given.is_empty() => Self::Fuzz(FUZZ_RUNS),
            "fuzz" => Self::Fuzz(flags.number("--runs")?),
            "bundle" => Self::Bundle(BundleArguments {
                profile: flags.profile("--debug", Profile::Debug, Profile::Release),
                verify: flags.take("--verify"),
            }),
            unknown => return Err(format!("there is no chore named `{unknown}`")),
        };
        if let Some(left) = flags.given.first() {
            return Err(format!("`{}` does not know `{left}`", flags.chore));
        }
        if let Some(left) = app.first() {
            return Err(format!(
                "`{}` takes nothing after `--` (`{left}`)",
                flags.chore
            ));
        }
        Ok(chore)
    }
}

struct Flags {
    chore: String,
    given: Vec<String>,
}

impl Flags {
    fn take(&mut self, flag: &str) -> bool {
        let before = self.given.len();
        self.given.retain(|given| given != flag);
        self.given.len() != before
    }

    fn profile(&mut self, flag: &str, with: Profile, without: Profile) -> Profile {
        if self.take(flag) { with } else { without }
    }

    fn first_model(&mut self) -> Result<FirstModel, String> {
        match (self.take("--with-model"), self.take("--no-model")) {
            (false, false) => Ok(FirstModel::IfNoServer),
            (true, false) => Ok(FirstModel::Server),
            (false, true) => Ok(FirstModel::None),
            (true, true) => Err("`--with-model` and `--no-model` exclude each other".to_owned()),
        }
    }

    fn model(&mut self, flag: &str) -> Model {
        if self.take(flag) {
            Model::Small
        } else {
            Model::None
        }
    }

    /// The number behind a flag.
    fn number<N: FromStr>(&mut self, flag: &str) -> Result<N, String> {
        let at = self.given.iter().position(|given| given == flag);
        let at = at.filter(|at| at + 1 < self.given.len());
        let number = at.map(|at| {
            self.given.remove(at);
            self.given.remove(at)
        });
        number
            .and_then(|number| number.parse().ok())
            .ok_or_else(|| format!("`{flag}` wants to know how often"))
    }

    fn building(&mut self) -> Building {
        if self.take("--no-build") {
            Building::Skipped
        } else {
            Building::Wanted
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Chore, String> {
        Chore::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn no_argument_and_a_plea_for_help_show_the_usage() {
        for line in ["", "help", "--help", "run -h"] {
            assert_eq!(parse(line), Ok(Chore::Help), "{line}");
        }
    }

    #[test]
    fn what_follows_two_dashes_is_the_apps_own() {
        assert_eq!(
            parse("run --with-model -- --data-dir d --release"),
            Ok(Chore::Run(RunArguments {
                profile: Profile::Debug,
                model: FirstModel::Server,
                building: Building::Wanted,
                app: vec!["--data-dir".into(), "d".into(), "--release".into()],
            }))
        );
    }

    #[test]
    fn a_small_model_is_fetched_unless_another_one_is_named_or_none_is_wanted() {
        let model = |line: &str| match parse(line) {
            Ok(Chore::Run(run)) => Ok(run.model),
            other => Err(format!("{other:?}")),
        };
        assert_eq!(model("run"), Ok(FirstModel::IfNoServer));
        assert_eq!(model("run --no-model"), Ok(FirstModel::None));
        assert_eq!(model("run --with-model"), Ok(FirstModel::Server));
        assert!(parse("run --with-model --no-model").is_err());
    }

    #[test]
    fn only_the_bundle_is_optimised_unless_asked() {
        assert_eq!(
            parse("bundle"),
            Ok(Chore::Bundle(BundleArguments {
                profile: Profile::Release,
                verify: false
            }))
        );
        assert_eq!(
            parse("bundle --verify --debug"),
            Ok(Chore::Bundle(BundleArguments {
                profile: Profile::Debug,
                verify: true
            }))
        );
        assert_eq!(parse("ui"), Ok(Chore::Ui(Profile::Debug)));
        assert_eq!(parse("ui --release"), Ok(Chore::Ui(Profile::Release)));
    }

    #[test]
    fn the_flags_of_test_are_independent_of_their_order() {
        let wanted = Chore::Test(TestArguments {
            reach: Reach::Fast,
            engine: ModelEngine::LeftOut,
            model: Model::Small,
            building: Building::Skipped,
        });
        assert_eq!(
            parse("test --fast --no-own-model --real-model --no-build"),
            Ok(wanted.clone())
        );
        assert_eq!(
            parse("test --no-build --real-model --no-own-model --fast"),
            Ok(wanted)
        );
    }

    #[test]
    fn the_tests_have_the_app_with_everything_in_it_unless_told_otherwise() {
        let Ok(Chore::Test(test)) = parse("test") else {
            panic!("`test` is a chore");
        };
        assert_eq!(test.engine, ModelEngine::Within);
        assert_eq!(test.reach, Reach::Full);
    }

    #[test]
    fn how_often_is_a_number_from_one() {
        let times = NonZeroU32::new(20).expect("not zero");
        assert_eq!(parse("test --repeat 20"), Ok(Chore::Repeat(times)));
        let refused = "`--repeat` wants to know how often".to_owned();
        for line in ["test --repeat", "test --repeat 0", "test --repeat often"] {
            assert_eq!(parse(line), Err(refused.clone()), "{line}");
        }
        assert_eq!(
            parse("test --repeat 2 --fast"),
            Err("`test` does not know `--fast`".into())
        );
    }

    #[test]
    fn a_fuzzing_run_is_ten_million_inputs_unless_told_otherwise() {
        assert_eq!(parse("fuzz"), Ok(Chore::Fuzz(FUZZ_RUNS)));
        let few = NonZeroU64::new(500).expect("not zero");
        assert_eq!(parse("fuzz --runs 500"), Ok(Chore::Fuzz(few)));
        assert_eq!(
            parse("fuzz --runs none"),
            Err("`--runs` wants to know how often".into())
        );
    }

    #[test]
    fn an_unknown_word_is_refused_by_name() {
        assert_eq!(parse("tset"), Err("there is no chore named `tset`".into()));
        assert_eq!(
            parse("test --fats"),
            Err("`test` does not know `--fats`".into())
        );
        assert_eq!(
            parse("ui -- x"),
            Err("`ui` takes nothing after `--` (`x`)".into())
        );
    }
}
