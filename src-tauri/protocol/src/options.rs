//! How a model is asked: options that hold for a server, one of its models, or one session.
//!
//! Invariant: an option that nobody chose is absent, and then it is not sent: the server's own value holds, and we do
//! not guess at it. The nearer word wins: a session's over its model's over its server's.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::{Dialect, ModelRef, Provider, Think};

/// A number with at most four digits behind the point. In JSON a plain number, such as `0.7`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Decimal(i64);

/// What one is.
const DECIMAL_ONE: i64 = 10_000;

impl Decimal {
    /// Of so many ten-thousandths.
    pub const fn from_ten_thousandths(parts: i64) -> Self {
        Self(parts)
    }

    /// The nearest one; nothing for what is no number, or is beyond all sense.
    pub fn nearest(value: f64) -> Option<Self> {
        let parts = (value * DECIMAL_ONE as f64).round();
        (parts.abs() < 1e15).then_some(Self(parts as i64))
    }

    /// As servers take it.
    pub fn get(self) -> f64 {
        self.0 as f64 / DECIMAL_ONE as f64
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl FromStr for Decimal {
    type Err = std::num::ParseFloatError;

    /// Takes a decimal comma too, as many keyboards have one.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let value: f64 = text.trim().replace(',', ".").parse()?;
        // "x" is no number in any case, and so is what is beyond all sense.
        Self::nearest(value).map_or_else(|| "x".parse::<f64>().map(|_| Self(0)), Ok)
    }
}

impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.get())
    }
}

impl<'de> Deserialize<'de> for Decimal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = f64::deserialize(deserializer)?;
        Self::nearest(value).ok_or_else(|| D::Error::custom("not a number that can be meant"))
    }
}

/// How a model is asked. What is absent was not chosen, and is not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelOptions {
    /// Instructions that come before the conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// Context length in tokens. Ollama loads the model anew when it changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_ctx: Option<u32>,
    /// How long the model stays loaded, in Ollama's own words ("10m", "-1").
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_alive: Option<String>,
    /// Whether, and how much, the model thinks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub think: Option<Think>,
    /// How freely words are chosen: 0 is always the likeliest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<Decimal>,
    /// Words are chosen among the likeliest, which together have this probability.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<Decimal>,
    /// Words are chosen among so many of the likeliest; 0 for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_k: Option<u32>,
    /// Words are chosen among those at least so likely, compared with the likeliest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_p: Option<Decimal>,
    /// How much what was said is avoided; 1 for not at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeat_penalty: Option<Decimal>,
    /// The same seed chooses the same words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// Longest answer, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_predict: Option<u32>,
    /// The answer ends before the first of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// How many threads reckon, for a model of this computer; its cores when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// How many layers of a model of this computer are put on its graphics card; all that fit when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_layers: Option<u32>,
    /// Options that are left to the server here, whatever was chosen for more than this.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub servers_own: Vec<OptionField>,
}

/// One of the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OptionField {
    /// [`ModelOptions::system`]
    System,
    /// [`ModelOptions::num_ctx`]
    NumCtx,
    /// [`ModelOptions::keep_alive`]
    KeepAlive,
    /// [`ModelOptions::think`]
    Think,
    /// [`ModelOptions::temperature`]
    Temperature,
    /// [`ModelOptions::top_p`]
    TopP,
    /// [`ModelOptions::top_k`]
    TopK,
    /// [`ModelOptions::min_p`]
    MinP,
    /// [`ModelOptions::repeat_penalty`]
    RepeatPenalty,
    /// [`ModelOptions::seed`]
    Seed,
    /// [`ModelOptions::num_predict`]
    NumPredict,
    /// [`ModelOptions::stop`]
    Stop,
    /// [`ModelOptions::threads`]
    Threads,
    /// [`ModelOptions::gpu_layers`]
    GpuLayers,
}

impl OptionField {
    /// All of them, in the order in which people are asked.
    pub const ALL: [Self; 14] = [
        Self::System,
        Self::Think,
        Self::NumCtx,
        Self::KeepAlive,
        Self::NumPredict,
        Self::Temperature,
        Self::TopP,
        Self::TopK,
        Self::MinP,
        Self::RepeatPenalty,
        Self::Seed,
        Self::Stop,
        Self::Threads,
        Self::GpuLayers,
    ];

    /// Its name, as in the log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::NumCtx => "num_ctx",
            Self::KeepAlive => "keep_alive",
            Self::Think => "think",
            Self::Temperature => "temperature",
            Self::TopP => "top_p",
            Self::TopK => "top_k",
            Self::MinP => "min_p",
            Self::RepeatPenalty => "repeat_penalty",
            Self::Seed => "seed",
            Self::NumPredict => "num_predict",
            Self::Stop => "stop",
            Self::Threads => "threads",
            Self::GpuLayers => "gpu_layers",
        }
    }

    /// Whether servers of this dialect are told of it.
    pub const fn is_known_to(self, dialect: Dialect) -> bool {
        match (dialect, self) {
            (Dialect::Local, _)
            | (Dialect::Ollama, Self::NumCtx | Self::KeepAlive)
            | (
                _,
                Self::System
                | Self::Think
                | Self::Temperature
                | Self::TopP
                | Self::TopK
                | Self::NumPredict
                | Self::Stop,
            )
            | (
                Dialect::Ollama | Dialect::OpenAiChat,
                Self::MinP | Self::RepeatPenalty | Self::Seed,
            ) => true,
            (Dialect::OpenAiChat | Dialect::Anthropic, Self::NumCtx | Self::KeepAlive)
            | (Dialect::Anthropic, Self::MinP | Self::RepeatPenalty | Self::Seed)
            | (
                Dialect::Ollama | Dialect::OpenAiChat | Dialect::Anthropic,
                Self::Threads | Self::GpuLayers,
            ) => false,
        }
    }
}

/// The options of one model of one server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OptionsOfModel {
    /// Which.
    pub model: ModelRef,
    /// How it is asked.
    pub options: ModelOptions,
}

/// Longest instructions, in bytes: they are sent with every request.
pub const SYSTEM_BYTES_MAX: usize = 64 * 1024;
/// Least context that is accepted: in less not even a greeting is answered.
pub const NUM_CTX_MIN: u32 = 256;
/// Most context that is accepted: beyond what any model has.
pub const NUM_CTX_MAX: u32 = 16 * 1024 * 1024;
/// Most words that can end an answer, and their length in bytes.
pub const STOPS_MAX: usize = 16;
const STOP_BYTES_MAX: usize = 200;
/// Most threads that are accepted; llama.cpp takes no more.
pub const THREADS_MAX: u32 = 512;
/// Most layers that are accepted: beyond what any model has.
pub const GPU_LAYERS_MAX: u32 = 10_000;

/// Why an option cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidOption {
    /// The one at fault.
    pub field: OptionField,
    /// What to change, in a sentence.
    pub message: String,
}

impl fmt::Display for InvalidOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for InvalidOption {}

impl ModelOptions {
    /// What is said of a server itself, whatever its model.
    pub fn of_server(provider: &Provider) -> Self {
        Self {
            num_ctx: provider.num_ctx,
            keep_alive: provider.keep_alive.clone(),
            think: match provider.think {
                Think::ServerDefault => None,
                said @ (Think::On | Think::Off | Think::Low | Think::Medium | Think::High) => {
                    Some(said)
                }
            },
            ..Self::default()
        }
    }

    /// These where something was chosen, and `wider` where not.
    #[must_use]
    pub fn over(&self, wider: &Self) -> Self {
        let wider = &wider.without(&self.servers_own);
        let text =
            |near: &Option<String>, wide: &Option<String>| near.clone().or_else(|| wide.clone());
        let near = self.chosen();
        let left = wider
            .servers_own
            .iter()
            .filter(|field| !near.contains(field));
        Self {
            servers_own: self.servers_own.iter().chain(left).copied().collect(),
            system: text(&self.system, &wider.system),
            num_ctx: self.num_ctx.or(wider.num_ctx),
            keep_alive: text(&self.keep_alive, &wider.keep_alive),
            think: self.think.or(wider.think),
            temperature: self.temperature.or(wider.temperature),
            top_p: self.top_p.or(wider.top_p),
            top_k: self.top_k.or(wider.top_k),
            min_p: self.min_p.or(wider.min_p),
            repeat_penalty: self.repeat_penalty.or(wider.repeat_penalty),
            seed: self.seed.or(wider.seed),
            num_predict: self.num_predict.or(wider.num_predict),
            stop: if self.stop.is_empty() {
                wider.stop.clone()
            } else {
                self.stop.clone()
            },
            threads: self.threads.or(wider.threads),
            gpu_layers: self.gpu_layers.or(wider.gpu_layers),
        }
    }

    /// These without some of them.
    fn without(&self, fields: &[OptionField]) -> Self {
        let mut rest = self.clone();
        rest.servers_own.retain(|field| !fields.contains(field));
        for field in fields {
            match field {
                OptionField::System => rest.system = None,
                OptionField::NumCtx => rest.num_ctx = None,
                OptionField::KeepAlive => rest.keep_alive = None,
                OptionField::Think => rest.think = None,
                OptionField::Temperature => rest.temperature = None,
                OptionField::TopP => rest.top_p = None,
                OptionField::TopK => rest.top_k = None,
                OptionField::MinP => rest.min_p = None,
                OptionField::RepeatPenalty => rest.repeat_penalty = None,
                OptionField::Seed => rest.seed = None,
                OptionField::NumPredict => rest.num_predict = None,
                OptionField::Stop => rest.stop.clear(),
                OptionField::Threads => rest.threads = None,
                OptionField::GpuLayers => rest.gpu_layers = None,
            }
        }
        rest
    }

    /// Whether nothing was chosen.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Which were chosen; to leave one to the server is a choice too.
    pub fn chosen(&self) -> Vec<OptionField> {
        let is_chosen = |field: &OptionField| self.servers_own.contains(field) || self.has(*field);
        OptionField::ALL.into_iter().filter(is_chosen).collect()
    }

    /// Whether one has a value.
    fn has(&self, field: OptionField) -> bool {
        match field {
            OptionField::System => self.system.is_some(),
            OptionField::NumCtx => self.num_ctx.is_some(),
            OptionField::KeepAlive => self.keep_alive.is_some(),
            OptionField::Think => self.think.is_some(),
            OptionField::Temperature => self.temperature.is_some(),
            OptionField::TopP => self.top_p.is_some(),
            OptionField::TopK => self.top_k.is_some(),
            OptionField::MinP => self.min_p.is_some(),
            OptionField::RepeatPenalty => self.repeat_penalty.is_some(),
            OptionField::Seed => self.seed.is_some(),
            OptionField::NumPredict => self.num_predict.is_some(),
            OptionField::Stop => !self.stop.is_empty(),
            OptionField::Threads => self.threads.is_some(),
            OptionField::GpuLayers => self.gpu_layers.is_some(),
        }
    }

    /// Whether they can be used.
    ///
    /// # Errors
    /// The first field at fault.
    pub fn validate(&self) -> Result<(), InvalidOption> {
        use OptionField as Field;
        let wrong = |field: Field, message: &str| {
            Err(InvalidOption {
                field,
                message: message.to_owned(),
            })
        };
        let within = |value: Option<Decimal>, least: i64, most: i64| {
            value.is_none_or(|v| (least..=most).contains(&v.0))
        };
        let mut both = self.servers_own.iter().filter(|field| self.has(**field));
        if let Some(field) = both.next() {
            return wrong(
                *field,
                "This is either left to the server or has a value, not both.",
            );
        }
        if self.servers_own.len() > OptionField::ALL.len() {
            return wrong(Field::System, "Each option is left to the server once.");
        }
        if let Some(system) = &self.system {
            if system.trim().is_empty() {
                return wrong(
                    Field::System,
                    "Instructions need words; leave them out for none.",
                );
            }
            if system.len() > SYSTEM_BYTES_MAX {
                return wrong(
                    Field::System,
                    "The instructions are longer than 64 KB, and they go out with every request.",
                );
            }
        }
        if self
            .num_ctx
            .is_some_and(|tokens| !(NUM_CTX_MIN..=NUM_CTX_MAX).contains(&tokens))
        {
            return wrong(
                Field::NumCtx,
                "The context length is a number of tokens from 256 to 16777216, such as 8192; leave it empty for the server’s own.",
            );
        }
        if self.keep_alive.as_ref().is_some_and(|time| !is_time(time)) {
            return wrong(
                Field::KeepAlive,
                "How long the model stays loaded is a time such as 10m or 1h30m, a number of seconds, or -1 for as long as the server runs.",
            );
        }
        if !within(self.temperature, 0, 2 * DECIMAL_ONE) {
            return wrong(Field::Temperature, "The temperature is from 0 to 2.");
        }
        if !within(self.top_p, 0, DECIMAL_ONE) {
            return wrong(Field::TopP, "Top P is a share from 0 to 1.");
        }
        if self.top_k.is_some_and(|words| words > 100_000) {
            return wrong(Field::TopK, "Top K is a number of words from 0 to 100000.");
        }
        if !within(self.min_p, 0, DECIMAL_ONE) {
            return wrong(Field::MinP, "Min P is a share from 0 to 1.");
        }
        if !within(self.repeat_penalty, 1, 10 * DECIMAL_ONE) {
            return wrong(
                Field::RepeatPenalty,
                "The repeat penalty is more than 0 and at most 10; 1 is none.",
            );
        }
        if self.seed.is_some_and(|seed| i32::try_from(seed).is_err()) {
            return wrong(
                Field::Seed,
                "A seed is a whole number from -2147483648 to 2147483647.",
            );
        }
        if self.num_predict == Some(0) {
            return wrong(
                Field::NumPredict,
                "The longest answer is at least one token; leave it empty for the server’s own limit.",
            );
        }
        let unusable = |stop: &String| stop.is_empty() || stop.len() > STOP_BYTES_MAX;
        if self.stop.len() > STOPS_MAX || self.stop.iter().any(unusable) {
            return wrong(
                Field::Stop,
                "There can be 16 words that end the answer, each of 1 to 200 bytes.",
            );
        }
        if self
            .threads
            .is_some_and(|threads| !(1..=THREADS_MAX).contains(&threads))
        {
            return wrong(
                Field::Threads,
                "The number of threads is from 1 to 512; leave it empty for as many as there are cores.",
            );
        }
        if self
            .gpu_layers
            .is_some_and(|layers| layers > GPU_LAYERS_MAX)
        {
            return wrong(
                Field::GpuLayers,
                "The number of layers is from 0 to 10000; leave it empty for all that fit.",
            );
        }
        Ok(())
    }
}

/// A time as Ollama takes it: a number of seconds, or Go's `1h30m`.
fn is_time(text: &str) -> bool {
    let text = text.trim();
    if text.parse::<i32>().is_ok() {
        return true;
    }
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let mut parts = 0;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let unit = ["ms", "us", "µs", "ns", "h", "m", "s"]
            .into_iter()
            .find(|unit| after.starts_with(unit));
        let (Ok(_), Some(unit)) = (number.parse::<f64>(), unit) else {
            return false;
        };
        rest = after.strip_prefix(unit).unwrap_or_default();
        parts += 1;
    }
    parts > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_to_the_server_is_not_sent_whatever_was_chosen_for_more() {
        let decimal = |text: &str| text.parse::<Decimal>().ok();
        let of_server = ModelOptions {
            num_ctx: Some(4_096),
            ..ModelOptions::default()
        };
        let of_model = ModelOptions {
            num_ctx: Some(8_192),
            temperature: decimal("0.5"),
            stop: vec!["END".to_owned()],
            ..ModelOptions::default()
        };
        let session = ModelOptions {
            servers_own: vec![OptionField::NumCtx, OptionField::Stop],
            ..ModelOptions::default()
        };
        let asked = session.over(&of_model).over(&of_server);
        assert_eq!(asked.num_ctx, None, "neither its model’s nor its server’s");
        assert_eq!(asked.stop, Vec::<String>::new());
        assert_eq!(asked.temperature, decimal("0.5"));
        assert_eq!(session.chosen(), [OptionField::NumCtx, OptionField::Stop]);
        assert!(!session.is_empty());
        // The nearer word wins over what a model leaves to its server, too.
        let left = ModelOptions {
            servers_own: vec![OptionField::NumCtx],
            ..ModelOptions::default()
        };
        let chosen = ModelOptions {
            num_ctx: Some(2_048),
            ..ModelOptions::default()
        };
        assert_eq!(chosen.over(&left).over(&of_server).num_ctx, Some(2_048));
        assert_eq!(left.over(&of_server).num_ctx, None);
        let both = ModelOptions {
            num_ctx: Some(2_048),
            ..left
        };
        let wrong = both.validate().expect_err("one or the other");
        assert_eq!(wrong.field, OptionField::NumCtx);
        let json = serde_json::to_string(&session).unwrap();
        assert_eq!(json, r#"{"servers_own":["num_ctx","stop"]}"#);
        assert_eq!(
            serde_json::from_str::<ModelOptions>(&json).unwrap(),
            session
        );
    }

    #[test]
    fn a_decimal_is_a_plain_number_in_json_and_comes_back_as_it_was() {
        for (text, json) in [
            ("0.7", "0.7"),
            ("0,05", "0.05"),
            ("1", "1.0"),
            ("1.125", "1.125"),
        ] {
            let decimal: Decimal = text.parse().unwrap();
            assert_eq!(serde_json::to_string(&decimal).unwrap(), json);
            assert_eq!(serde_json::from_str::<Decimal>(json).unwrap(), decimal);
        }
        assert_eq!(
            serde_json::from_str::<Decimal>("2").unwrap().to_string(),
            "2"
        );
        for text in ["", "hot", "1e99", "NaN"] {
            assert!(text.parse::<Decimal>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_nearer_word_wins_and_what_nobody_chose_stays_unsaid() {
        let wide = ModelOptions {
            num_ctx: Some(4096),
            keep_alive: Some("5m".into()),
            stop: vec!["END".into()],
            ..ModelOptions::default()
        };
        let near = ModelOptions {
            num_ctx: Some(8192),
            think: Some(Think::ServerDefault),
            ..ModelOptions::default()
        };
        let both = near.over(&wide);
        assert_eq!(both.num_ctx, Some(8192));
        assert_eq!(both.keep_alive.as_deref(), Some("5m"));
        assert_eq!(both.stop, ["END"]);
        assert_eq!(both.temperature, None);
        assert_eq!(
            both.chosen(),
            [
                OptionField::Think,
                OptionField::NumCtx,
                OptionField::KeepAlive,
                OptionField::Stop
            ]
        );
        assert!(
            ModelOptions::default()
                .over(&ModelOptions::default())
                .is_empty()
        );
    }

    #[test]
    fn options_are_valid_or_refused_at_the_field_at_fault() {
        type Change = fn(&mut ModelOptions);
        let cases: [(Change, Option<OptionField>); 29] = [
            (|_| {}, None),
            (|o| o.num_ctx = Some(0), Some(OptionField::NumCtx)),
            (|o| o.num_ctx = Some(255), Some(OptionField::NumCtx)),
            (|o| o.num_ctx = Some(256), None),
            (|o| o.num_ctx = Some(u32::MAX), Some(OptionField::NumCtx)),
            (|o| o.keep_alive = Some("10m".into()), None),
            (|o| o.keep_alive = Some("1h30m".into()), None),
            (|o| o.keep_alive = Some("-1".into()), None),
            (|o| o.keep_alive = Some("0".into()), None),
            (|o| o.keep_alive = Some("1.5h".into()), None),
            (
                |o| o.keep_alive = Some("".into()),
                Some(OptionField::KeepAlive),
            ),
            (
                |o| o.keep_alive = Some("ten".into()),
                Some(OptionField::KeepAlive),
            ),
            (
                |o| o.keep_alive = Some("10 m".into()),
                Some(OptionField::KeepAlive),
            ),
            (|o| o.temperature = Decimal::nearest(2.0), None),
            (
                |o| o.temperature = Decimal::nearest(2.1),
                Some(OptionField::Temperature),
            ),
            (
                |o| o.temperature = Decimal::nearest(-0.1),
                Some(OptionField::Temperature),
            ),
            (
                |o| o.top_p = Decimal::nearest(1.01),
                Some(OptionField::TopP),
            ),
            (
                |o| o.min_p = Decimal::nearest(-1.0),
                Some(OptionField::MinP),
            ),
            (
                |o| o.repeat_penalty = Decimal::nearest(0.0),
                Some(OptionField::RepeatPenalty),
            ),
            (|o| o.seed = Some(1 << 40), Some(OptionField::Seed)),
            (|o| o.num_predict = Some(0), Some(OptionField::NumPredict)),
            (|o| o.stop = vec![String::new()], Some(OptionField::Stop)),
            (|o| o.stop = vec!["x".into(); 17], Some(OptionField::Stop)),
            (|o| o.system = Some(" ".into()), Some(OptionField::System)),
            (|o| o.threads = Some(0), Some(OptionField::Threads)),
            (|o| o.threads = Some(513), Some(OptionField::Threads)),
            (|o| o.threads = Some(4), None),
            (|o| o.gpu_layers = Some(0), None),
            (
                |o| o.gpu_layers = Some(10_001),
                Some(OptionField::GpuLayers),
            ),
        ];
        for (number, (change, verdict)) in cases.into_iter().enumerate() {
            let mut options = ModelOptions::default();
            change(&mut options);
            let found = options.validate().err().map(|error| error.field);
            assert_eq!(found, verdict, "case {number}: {options:?}");
        }
    }
}
