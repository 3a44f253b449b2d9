//! How a model is asked: the form for the options of a model, and the one for those of a chat.
//!
//! A field that is left empty was not chosen: it shows what holds then, which is the server's own value where nobody
//! said anything. What cannot be meant is said at its field, and nothing is saved.

use leptos::{ev, prelude::*};
use protocol::{Dialect, ErrorCode, ModelOptions, OptionField, Think};

use crate::{
    components::{
        icons::{Glyph, Icon},
        settings::refusal_words,
    },
    desk::{Overlay, use_desk},
    ipc::{self, CallError},
};

/// What stands in the fields, as text.
#[derive(Clone, Copy)]
struct Form {
    system: RwSignal<String>,
    think: RwSignal<String>,
    numbers: [RwSignal<String>; FIELDS.len()],
    stop: RwSignal<String>,
    /// Those that are left to the server here.
    servers_own: RwSignal<Vec<OptionField>>,
    /// The field that cannot be used, and why.
    wrong: RwSignal<Option<(OptionField, String)>>,
    /// What is wrong otherwise.
    words: RwSignal<Option<String>>,
    busy: RwSignal<bool>,
}

/// The options that are one line of text.
const FIELDS: [OptionField; 11] = [
    OptionField::NumCtx,
    OptionField::KeepAlive,
    OptionField::NumPredict,
    OptionField::Temperature,
    OptionField::TopP,
    OptionField::TopK,
    OptionField::MinP,
    OptionField::RepeatPenalty,
    OptionField::Seed,
    OptionField::Threads,
    OptionField::GpuLayers,
];

const fn label(field: OptionField) -> &'static str {
    match field {
        OptionField::System => "Instructions",
        OptionField::NumCtx => "Context length (tokens)",
        OptionField::KeepAlive => "Keep the model loaded for",
        OptionField::Think => "Thinking",
        OptionField::Temperature => "Temperature",
        OptionField::TopP => "Top P",
        OptionField::TopK => "Top K",
        OptionField::MinP => "Min P",
        OptionField::RepeatPenalty => "Repeat penalty",
        OptionField::Seed => "Seed",
        OptionField::NumPredict => "Longest answer (tokens)",
        OptionField::Stop => "Words that end the answer, one a line",
        OptionField::Threads => "Threads",
        OptionField::GpuLayers => "Layers on the graphics card",
    }
}

/// A think choice as the value of its option; empty for none.
const fn think_value(think: Option<Think>) -> &'static str {
    match think {
        None => "",
        Some(Think::ServerDefault) => "default",
        Some(Think::Off) => "off",
        Some(Think::On) => "on",
        Some(Think::Low) => "low",
        Some(Think::Medium) => "medium",
        Some(Think::High) => "high",
    }
}

pub(crate) const fn think_words(think: Think) -> &'static str {
    match think {
        Think::ServerDefault => "As the server does it",
        Think::Off => "Off",
        Think::On => "On",
        Think::Low => "A little",
        Think::Medium => "Some",
        Think::High => "Much",
    }
}

pub(crate) const THINKS: [Think; 6] = [
    Think::ServerDefault,
    Think::Off,
    Think::On,
    Think::Low,
    Think::Medium,
    Think::High,
];

/// An option as text; empty if it was not chosen.
fn text_of(options: &ModelOptions, field: OptionField) -> String {
    fn text(value: Option<impl ToString>) -> String {
        value.map(|value| value.to_string()).unwrap_or_default()
    }
    match field {
        OptionField::System => options.system.clone().unwrap_or_default(),
        OptionField::NumCtx => text(options.num_ctx),
        OptionField::KeepAlive => options.keep_alive.clone().unwrap_or_default(),
        OptionField::Think => think_value(options.think).to_owned(),
        OptionField::Temperature => text(options.temperature),
        OptionField::TopP => text(options.top_p),
        OptionField::TopK => text(options.top_k),
        OptionField::MinP => text(options.min_p),
        OptionField::RepeatPenalty => text(options.repeat_penalty),
        OptionField::Seed => text(options.seed),
        OptionField::NumPredict => text(options.num_predict),
        OptionField::Stop => options.stop.join("\n"),
        OptionField::Threads => text(options.threads),
        OptionField::GpuLayers => text(options.gpu_layers),
    }
}

impl Form {
    fn of(options: &ModelOptions) -> Self {
        let field = |field| RwSignal::new(text_of(options, field));
        Self {
            system: field(OptionField::System),
            think: field(OptionField::Think),
            numbers: FIELDS.map(field),
            stop: field(OptionField::Stop),
            servers_own: RwSignal::new(options.servers_own.clone()),
            wrong: RwSignal::new(None),
            words: RwSignal::new(None),
            busy: RwSignal::new(false),
        }
    }

    /// What was typed, or the first field at fault, which is told then.
    fn filled(self) -> Option<ModelOptions> {
        let read = self.read();
        let checked = read.and_then(|options| {
            let valid = options.validate();
            valid
                .map(|()| options)
                .map_err(|wrong| (wrong.field, wrong.message))
        });
        match checked {
            Ok(options) => {
                self.wrong.set(None);
                Some(options)
            }
            Err(wrong) => {
                self.tell(wrong);
                None
            }
        }
    }

    fn tell(self, wrong: (OptionField, String)) {
        let at = field_id(wrong.0);
        self.wrong.set(Some(wrong));
        let _ = ipc::focus(&format!("[data-option={at}]"));
    }

    fn read(self) -> Result<ModelOptions, (OptionField, String)> {
        let left = self.servers_own.get_untracked();
        let is_left = |field: OptionField| left.contains(&field);
        let mut options = ModelOptions {
            servers_own: left.clone(),
            system: Some(self.system.get_untracked())
                .filter(|text| !text.trim().is_empty() && !is_left(OptionField::System)),
            think: THINKS
                .into_iter()
                .find(|think| think_value(Some(*think)) == self.think.get_untracked()),
            stop: self
                .stop
                .get_untracked()
                .lines()
                .filter(|line| !line.is_empty() && !is_left(OptionField::Stop))
                .map(str::to_owned)
                .collect(),
            ..ModelOptions::default()
        };
        for (field, typed) in FIELDS.into_iter().zip(self.numbers) {
            let typed = typed.get_untracked();
            let typed = typed.trim();
            if typed.is_empty() || is_left(field) {
                continue;
            }
            let not_one = |_| (field, format!("{} is a number.", label(field)));
            let not_whole = |_| (field, format!("{} is a whole number.", label(field)));
            match field {
                OptionField::NumCtx => {
                    options.num_ctx = Some(typed.parse().map_err(not_whole)?);
                }
                OptionField::KeepAlive => options.keep_alive = Some(typed.to_owned()),
                OptionField::NumPredict => {
                    options.num_predict = Some(typed.parse().map_err(not_whole)?);
                }
                OptionField::Temperature => {
                    options.temperature = Some(typed.parse().map_err(not_one)?);
                }
                OptionField::TopP => options.top_p = Some(typed.parse().map_err(not_one)?),
                OptionField::TopK => options.top_k = Some(typed.parse().map_err(not_whole)?),
                OptionField::MinP => options.min_p = Some(typed.parse().map_err(not_one)?),
                OptionField::RepeatPenalty => {
                    options.repeat_penalty = Some(typed.parse().map_err(not_one)?);
                }
                OptionField::Seed => options.seed = Some(typed.parse().map_err(not_whole)?),
                OptionField::Threads => options.threads = Some(typed.parse().map_err(not_whole)?),
                OptionField::GpuLayers => {
                    options.gpu_layers = Some(typed.parse().map_err(not_whole)?);
                }
                OptionField::System | OptionField::Think | OptionField::Stop => {}
            }
        }
        Ok(options)
    }
}

const fn field_id(field: OptionField) -> &'static str {
    field.name()
}

/// The form. `wider` is what holds where nothing is chosen here; `save` says whether it was taken.
#[component]
pub(crate) fn OptionsForm(
    /// What was chosen.
    chosen: ModelOptions,
    /// What holds otherwise.
    wider: ModelOptions,
    /// Who is asked.
    dialect: Option<Dialect>,
    /// Takes what was filled in.
    save: Callback<(ModelOptions, Answer)>,
    /// Closes the form.
    done: Callback<()>,
) -> impl IntoView {
    let form = Form::of(&chosen);
    let is_known = move |field: OptionField| dialect.is_none_or(|d| field.is_known_to(d));
    let submit = move || {
        if form.busy.get_untracked() {
            return;
        }
        if let Some(options) = form.filled() {
            form.busy.set(true);
            form.words.set(None);
            let answer = Answer { form, done };
            save.run((options, answer));
        }
    };
    let on_keydown = move |event: ev::KeyboardEvent| {
        if event.key() == "Enter" && !ipc::is_composing(&event) {
            // Not a form: it may stand inside the composer's own.
            event.prevent_default();
            event.stop_propagation();
            submit();
        }
    };
    // What was chosen for more than this, if anything was.
    let chosen_wider =
        move |field: OptionField| Some(text_of(&wider, field)).filter(|text| !text.is_empty());
    let holds = {
        let chosen_wider = chosen_wider.clone();
        move |field: OptionField| {
            chosen_wider(field).unwrap_or_else(|| "the server’s own".to_owned())
        }
    };
    let is_left = move |field: OptionField| form.servers_own.with(|left| left.contains(&field));
    // Only where there is something to go back behind, or somebody did already.
    let leaves = {
        let chosen_wider = chosen_wider.clone();
        move |field: OptionField| {
            let can = chosen_wider(field).is_some() || untrack(|| is_left(field));
            can.then(|| {
                view! {
                    <label class="form-check">
                        <input
                            type="checkbox"
                            data-left=field_id(field)
                            prop:checked=move || is_left(field)
                            on:change=move |event| {
                                let is_left = event_target_checked(&event);
                                form.servers_own.update(|left| {
                                    left.retain(|other| *other != field);
                                    if is_left {
                                        left.push(field);
                                    }
                                });
                            }
                        />
                        "The server’s own"
                    </label>
                }
            })
        }
    };
    let wrong_at = move |field: OptionField| {
        form.wrong
            .with(|wrong| wrong.as_ref().is_some_and(|(at, _)| *at == field))
    };
    let told = move |field: OptionField| {
        let said = move || {
            form.wrong.with(|wrong| match wrong {
                Some((at, words)) if *at == field => Some(words.clone()),
                Some(_) | None => None,
            })
        };
        view! {
            {move || said().map(|words| view! { <p class="alert" role="alert">{words}</p> })}
        }
    };
    let think_holds = match chosen_wider(OptionField::Think) {
        None => "Not chosen (as the server does it)".to_owned(),
        Some(value) => {
            let mut known = THINKS.into_iter();
            let known = known.find(|think| think_value(Some(*think)) == value);
            let words = known.map_or("as the server does it", think_words);
            format!("Not chosen ({})", words.to_lowercase())
        }
    };
    let system_holds = chosen_wider(OptionField::System)
        .unwrap_or_else(|| "Told to the model before every conversation".to_owned());
    let leaves_system = leaves(OptionField::System);
    let leaves_stop = leaves(OptionField::Stop);
    let stop_holds = holds(OptionField::Stop);
    let lines = FIELDS
        .into_iter()
        .zip(form.numbers)
        .filter(|(field, _)| is_known(*field));
    let lines = lines
        .map(|(field, typed)| {
            let leave = leaves(field);
            view! {
                <div class="form-field">
                <label class="form-field">
                    <span class="label">{label(field)}</span>
                    <input
                        class="field"
                        type="text"
                        disabled=move || is_left(field)
                        inputmode=if field == OptionField::KeepAlive { "text" } else { "decimal" }
                        autocomplete="off"
                        spellcheck="false"
                        data-option=field_id(field)
                        placeholder=holds(field)
                        aria-invalid=move || wrong_at(field).then_some("true")
                        bind:value=typed
                        on:keydown=on_keydown
                    />
                    {told(field)}
                </label>
                {leave}
                </div>
            }
        })
        .collect_view();
    view! {
        <div class="options-form" data-testid="options-form">
            <label class="form-field">
                <span class="label">{label(OptionField::System)}</span>
                <textarea
                    class="field options-text"
                    rows="3"
                    data-option=field_id(OptionField::System)
                    placeholder=system_holds
                    disabled=move || is_left(OptionField::System)
                    bind:value=form.system
                />
                {told(OptionField::System)}
            </label>
            {leaves_system}
            <div class="form-grid">
                <label class="form-field">
                    <span class="label">{label(OptionField::Think)}</span>
                    <select
                        class="field"
                        data-option=field_id(OptionField::Think)
                        on:change=move |event| form.think.set(event_target_value(&event))
                    >
                        <option value="" selected=move || form.think.with(String::is_empty)>
                            {think_holds}
                        </option>
                        {THINKS
                            .map(|think| {
                                let value = think_value(Some(think));
                                view! {
                                    <option
                                        value=value
                                        selected=move || form.think.with(|chosen| chosen == value)
                                    >
                                        {think_words(think)}
                                    </option>
                                }
                            })
                            .collect_view()}
                    </select>
                </label>
                {lines}
            </div>
            <label class="form-field options-stop">
                <span class="label">{label(OptionField::Stop)}</span>
                <textarea
                    class="field options-text"
                    rows="2"
                    spellcheck="false"
                    data-option=field_id(OptionField::Stop)
                    placeholder=stop_holds
                    disabled=move || is_left(OptionField::Stop)
                    bind:value=form.stop
                />
                {told(OptionField::Stop)}
            </label>
            {leaves_stop}
            {move || form.words.get().map(|words| view! { <p class="alert" role="alert">{words}</p> })}
            <div class="form-actions">
                <button
                    type="button"
                    class="button button-primary"
                    data-testid="options-save"
                    disabled=move || form.busy.get()
                    on:click=move |_| submit()
                >
                    "Save"
                </button>
                <button type="button" class="button" on:click=move |_| done.run(())>
                    "Cancel"
                </button>
            </div>
        </div>
    }
    .into_any()
}

/// Where the fate of what was saved is told.
#[derive(Clone, Copy)]
pub(crate) struct Answer {
    form: Form,
    done: Callback<()>,
}

impl Answer {
    /// Closes the form, or says in it why not.
    pub(crate) fn take(self, answer: &Result<(), CallError>) {
        if self.form.busy.try_set(false).is_some() {
            // The form is gone, and whoever closed it wants to hear no more.
            return;
        }
        match answer {
            Ok(()) => self.done.run(()),
            Err(error) => match at_fault(error) {
                Some(field) => self.form.tell((field, refusal_words(error))),
                None => self.form.words.set(Some(refusal_words(error))),
            },
        }
    }
}

fn at_fault(error: &CallError) -> Option<OptionField> {
    match error {
        CallError::Refused(report) => match &report.code {
            ErrorCode::Invalid { field } => {
                let mut all = OptionField::ALL.into_iter();
                all.find(|known| known.name() == field)
            }
            ErrorCode::TurnActive
            | ErrorCode::StaleHead
            | ErrorCode::AlreadyResolved { .. }
            | ErrorCode::OpIdConflict
            | ErrorCode::NotFound
            | ErrorCode::Gone
            | ErrorCode::StorageFailed
            | ErrorCode::ShuttingDown
            | ErrorCode::Superseded
            | ErrorCode::UnknownEpoch
            | ErrorCode::ProtocolMismatch
            | ErrorCode::Other => None,
        },
        CallError::Lost(_) => None,
    }
}

/// The button in the composer, and the form for the options of the chat above it.
#[component]
pub(crate) fn ChatOptions() -> impl IntoView {
    let desk = use_desk();
    let open = Memo::new(move |_| desk.overlay.get() == Some(Overlay::Options));
    let chosen = Memo::new(move |_| desk.options());
    let label = move || match chosen.with(|chosen| chosen.chosen().len()) {
        0 => "Options of this chat".to_owned(),
        1 => "Options of this chat: 1 chosen".to_owned(),
        count => format!("Options of this chat: {count} chosen"),
    };
    view! {
        <div class="picker is-folder">
            <button
                type="button"
                class="picker-button folder-chip"
                data-testid="chat-options"
                aria-haspopup="dialog"
                aria-expanded=move || if open.get() { "true" } else { "false" }
                aria-label=label
                title=label
                on:click=move |_| desk.toggle_overlay(Overlay::Options)
            >
                <Glyph icon=Icon::Gear />
                {move || {
                    let count = chosen.with(|chosen| chosen.chosen().len());
                    (count > 0).then(|| view! { <span class="picker-name">{count}</span> })
                }}
            </button>
            {move || open.get().then(|| view! { <ChatOptionsForm chosen=chosen.get_untracked() /> })}
        </div>
    }
    .into_any()
}

#[component]
fn ChatOptionsForm(chosen: ModelOptions) -> impl IntoView {
    let desk = use_desk();
    let model = untrack(move || desk.model());
    let provider = model
        .as_ref()
        .and_then(|model| desk.library.provider(model.provider));
    let of_server = provider.as_ref().map(ModelOptions::of_server);
    let of_model = model.as_ref().map(|model| desk.library.options_of(model));
    let wider = of_model
        .unwrap_or_default()
        .over(&of_server.unwrap_or_default());
    let save = Callback::new(move |(options, answer): (ModelOptions, Answer)| {
        ipc::spawn(async move {
            let saved = desk.choose_options(options).await;
            answer.take(&saved);
        });
    });
    let done = Callback::new(move |()| {
        desk.close_overlay();
        desk.take_attention();
    });
    view! {
        <div
            class="popover picker-popover folder-form options-popover"
            role="dialog"
            aria-label="Options of this chat"
        >
            <p class="hint">
                "They hold from the next message on, in this chat alone. What is left empty is as its model is asked elsewhere."
            </p>
            <OptionsForm
                chosen
                wider
                dialect=provider.map(|provider| provider.dialect)
                save
                done
            />
        </div>
    }
    .into_any()
}
