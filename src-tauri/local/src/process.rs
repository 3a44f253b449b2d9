//! The process from its first line to its last: load once, then answer, one after the other.

use std::{io, process::ExitCode};

use llama_cpp_2::{
    ggml_time_us, llama_backend::LlamaBackend, model::LlamaModel, sampling::LlamaSampler,
    token::LlamaToken,
};
use protocol::{
    CallForm, FailureCode, FinishReason, Timings, Usage,
    model_process::{Ask, Failed, Frame, Load, Offered},
};

use crate::{
    calls::Call,
    grammar,
    machine::{self, Halt, Machine},
    prompt::Template,
    speech::{Said, Speech, spoken_marks},
    streams::{Inbox, Voice, leave},
    words,
};

/// How much lower our priority is: a window comes first.
#[cfg(unix)]
const GIVES_WAY: i32 = 5;

/// Tokens that an answer should have room for.
const ANSWER_LEAST: usize = 16;

/// Runs until nobody wants anything any more.
pub fn run() -> ExitCode {
    let Ok(voice) = Voice::of_stdout() else {
        return ExitCode::FAILURE;
    };
    voice.say(&Frame::Ready);
    // Not the death signal of Linux: it follows the thread that started us, and those come and go.
    let Ok(inbox) = Inbox::open(io::BufReader::new(io::stdin()), || leave()) else {
        return ExitCode::FAILURE;
    };
    #[cfg(unix)]
    {
        // Without these the machine is only less pleasant.
        let _ = rustix::process::nice(GIVES_WAY);
        let none = rustix::process::Rlimit {
            current: Some(0),
            maximum: Some(0),
        };
        // Where native code gives up, gigabytes of a model in a file would help nobody.
        let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
    }
    let Some(load) = inbox.load() else {
        return ExitCode::SUCCESS;
    };
    match served(&load, &inbox, &voice) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => {
            voice.say(&Frame::NotLoaded(failed));
            ExitCode::FAILURE
        }
    }
}

fn served(load: &Load, inbox: &Inbox, voice: &Voice) -> Result<(), Failed> {
    able()?;
    words::listen();
    let began = ggml_time_us();
    let backend = LlamaBackend::init().map_err(|problem| {
        let words = "The model engine could not be set up.";
        Failed::new(FailureCode::ModelLoadFailed, words).with_detail(problem.to_string())
    })?;
    let model = machine::load(&backend, load, voice)?;
    let context = machine::context(&backend, &model, load)?;
    let mut machine = Machine::new(context);
    let template = template(&model, load)?;
    let spoken = spoken(&model, template.form());
    let loaded = Frame::Loaded {
        load_ms: millis(began, ggml_time_us()).unwrap_or(0),
        context_tokens: machine.room() as u64,
    };
    voice.say(&loaded);
    while let Some(ask) = inbox.ask() {
        if inbox.is_stopped(ask.ask) {
            continue;
        }
        let answering = Answering {
            model: &model,
            template: &template,
            spoken: &spoken,
            inbox,
            voice,
            ask: &ask,
        };
        match answering.run(&mut machine) {
            Ok(ended) => voice.say(&ended),
            // Nobody waits for a word.
            Err(Halt::Stopped) => {}
            Err(Halt::Failed(failed)) => voice.say(&Frame::Failed(failed)),
        }
    }
    Ok(())
}

/// Whether this processor has what the engine was built for.
fn able() -> Result<(), Failed> {
    #[cfg(target_arch = "x86_64")]
    {
        let has_all = std::arch::is_x86_feature_detected!("avx2")
            && std::arch::is_x86_feature_detected!("fma")
            && std::arch::is_x86_feature_detected!("f16c")
            && std::arch::is_x86_feature_detected!("bmi2");
        if !has_all {
            return Err(Failed::new(
                FailureCode::ModelLoadFailed,
                "This processor lacks AVX2, which the built-in engine needs. Ask a model server instead.",
            ));
        }
    }
    Ok(())
}

fn template(model: &LlamaModel, load: &Load) -> Result<Template, Failed> {
    let source = model.chat_template(None).ok();
    let source = source.as_ref().and_then(|template| template.to_str().ok());
    let vocab = model.vocab();
    let text = |token: LlamaToken| {
        let bytes = vocab.token_to_piece(token, true, None);
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let (bos, eos) = (text(vocab.bos()), text(vocab.eos()));
    // Not another one in its place: what a model makes of a form that it never saw looks like an answer and is none.
    Template::new(source, &bos, &eos).map_err(|problem| {
        let words = format!(
            "The chat template in {} cannot be read. Choose another file of this model.",
            load.file
        );
        Failed::new(FailureCode::ModelLoadFailed, words).with_detail(problem.to_string())
    })
}

/// The marks of calls and thoughts that are one token each in this vocabulary.
fn spoken(model: &LlamaModel, form: Option<CallForm>) -> Vec<LlamaToken> {
    let vocab = model.vocab();
    let tokens = spoken_marks(form).filter_map(|mark| {
        match vocab.tokenize(mark.as_bytes(), false, true).as_slice() {
            [token] => Some(*token),
            _ => None,
        }
    });
    tokens.collect()
}

/// One answer.
struct Answering<'a> {
    model: &'a LlamaModel,
    template: &'a Template,
    /// Tokens that are heard although they are no words.
    spoken: &'a [LlamaToken],
    inbox: &'a Inbox,
    voice: &'a Voice,
    ask: &'a Ask,
}

impl Answering<'_> {
    fn run(&self, machine: &mut Machine<'_>) -> Result<Frame, Halt> {
        let (ask, options) = (self.ask, &self.ask.options);
        let asked = Frame::Asked { ask: ask.ask };
        let rendered = self
            .template
            .render(&ask.messages, &ask.tools, options.think);
        let prompt = rendered.map_err(|problem| {
            self.voice.say(&asked);
            let words = "The model's chat template does not take this conversation.";
            Halt::Failed(
                Failed::new(FailureCode::BadRequest, words).with_detail(problem.to_string()),
            )
        })?;
        let vocab = self.model.vocab();
        let bos = vocab.token_to_piece(vocab.bos(), true, None);
        // The tokenizer puts it there, too.
        let text = prompt.text.as_bytes();
        let text = match text.strip_prefix(bos.as_slice()) {
            Some(rest) if !bos.is_empty() && vocab.should_add_bos() => rest,
            Some(_) | None => text,
        };
        let tokens = vocab.tokenize(text, true, true);
        if tokens.is_empty() {
            self.voice.say(&asked);
            let words = "The model's chat template makes nothing of this conversation. Choose another file of this model.";
            return Err(Halt::Failed(Failed::new(FailureCode::BadRequest, words)));
        }
        if tokens.len() + ANSWER_LEAST > machine.room() {
            self.voice.say(&asked);
            return Err(Halt::Failed(too_long(tokens.len(), machine.room())));
        }
        let total = tokens.len() as u64;
        let began = ggml_time_us();
        let mut first = Some(asked);
        let kept = machine.read(&tokens, |done| {
            let reading = Frame::Reading {
                done: done as u64,
                total,
            };
            let frames: Vec<Frame> = first.take().into_iter().chain([reading]).collect();
            self.voice.say_all(&frames);
            !self.inbox.is_stopped(ask.ask)
        })?;
        let read = ggml_time_us();

        let told: &[Offered] = match prompt.calls {
            Some(_) => &ask.tools,
            None => &[],
        };
        let grammar = prompt.calls.and_then(|form| self.grammar(form));
        let mut sampler = machine::sampler(self.model, options, grammar);
        let thinks = prompt.text.trim_end().ends_with("<think>");
        let mut speech = Speech::new(&options.stop, self.template.form(), told, thinks);
        let mut called = false;
        if thinks {
            // The template has begun the thought itself.
            self.say(vec![Said::Words("<think>".to_owned())], &mut called);
        }
        let most = options.num_predict.map_or(usize::MAX, |most| most as usize);
        let mut written = 0;
        let finish = loop {
            if self.inbox.is_stopped(ask.ask) {
                return Err(Halt::Stopped);
            }
            let token = machine.choose(&mut sampler);
            if vocab.is_eog(token) {
                break FinishReason::Stop;
            }
            written += 1;
            let piece = vocab.token_to_piece(token, self.spoken.contains(&token), None);
            self.say(speech.feed(&piece), &mut called);
            self.say_calling(&speech);
            if speech.is_stopped() {
                break FinishReason::Stop;
            }
            if written >= most || machine.held() + 1 >= machine.room() {
                break FinishReason::Length;
            }
            machine.write(token)?;
        };
        self.say(speech.finish(finish == FinishReason::Stop), &mut called);
        Ok(Frame::Ended {
            finish: match finish {
                FinishReason::Stop if called => FinishReason::ToolCalls,
                finish => finish,
            },
            usage: Usage {
                prompt_tokens: Some(total),
                cached_tokens: Some(kept as u64),
                cache_written_tokens: None,
                completion_tokens: Some(written as u64),
            },
            timings: Timings {
                prompt_ms: millis(began, read),
                decode_ms: millis(read, ggml_time_us()),
                ..Timings::default()
            },
            untold_tools: (ask.tools.len() - told.len()) as u64,
        })
    }

    fn grammar(&self, form: CallForm) -> Option<LlamaSampler> {
        let (begins, grammar) = grammar::of_calls(form, &self.ask.tools)?;
        let vocab = self.model.vocab();
        let token = match vocab.tokenize(begins.as_bytes(), false, true).as_slice() {
            [token] => vec![*token],
            _ => Vec::new(),
        };
        // A schema that llama.cpp cannot hold a model to is checked when the call is made, as with any server.
        LlamaSampler::grammar_lazy(self.model, &grammar, "root", [begins], &token).ok()
    }

    /// Else nothing would be heard of an answer for as long as its call is long.
    fn say_calling(&self, speech: &Speech) {
        if let Some((name, bytes)) = speech.calling() {
            self.voice.say(&Frame::Calling {
                name: name.to_owned(),
                bytes: bytes as u64,
            });
        }
    }

    fn say(&self, said: Vec<Said>, called: &mut bool) {
        for said in said {
            self.voice.say(&match said {
                Said::Words(text) => Frame::Text { text },
                Said::Thought(text) => Frame::Thought { text },
                Said::Call(Call { name, arguments }) => {
                    *called = true;
                    Frame::Call { name, arguments }
                }
            });
        }
    }
}

fn too_long(needed: usize, there_is: usize) -> Failed {
    Failed {
        needed: Some(needed as u64),
        there_is: Some(there_is as u64),
        ..Failed::new(
            FailureCode::ContextOverflow,
            format!(
                "The conversation does not fit the model's context: it has {needed} tokens, and there is room for {there_is}."
            ),
        )
    }
}

fn millis(from_us: i64, to_us: i64) -> Option<u64> {
    u64::try_from(to_us.saturating_sub(from_us) / 1000).ok()
}
