//! Time limits as people type them: four fields, one set, refused in words at the field at fault.
//!
//! Invariant: a refused set changes nothing. Kept by: the fields are only read when they are saved, all at once.

use leptos::{ev, html, prelude::*};
use protocol::{ErrorCode, ErrorReport, Op, TimeLimits};
use transcript::words;

use crate::{
    components::settings::refusal_words,
    desk::{LimitField, sentence, use_desk},
    ipc::{self, CallError},
};

impl LimitField {
    const ALL: [Self; 4] = [Self::Connect, Self::FirstEvent, Self::Gap, Self::Ceiling];

    /// As [`TimeLimits`] and refusals name it.
    const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect_ms",
            Self::FirstEvent => "first_event_ms",
            Self::Gap => "gap_ms",
            Self::Ceiling => "ceiling_ms",
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Connect => "Wait for a connection",
            Self::FirstEvent => "Wait for the first word",
            Self::Gap => "Longest silence after that",
            Self::Ceiling => "Limit of a whole turn",
        }
    }

    const fn hint(self) -> &'static str {
        match self {
            Self::Connect => "Until the server is reached.",
            Self::FirstEvent => "A model that has to be loaded needs this time.",
            Self::Gap => "Slow is not dead: every byte that comes begins it anew.",
            Self::Ceiling => "Time spent waiting for your answers does not count.",
        }
    }

    const fn of(self, limits: &TimeLimits) -> u64 {
        match self {
            Self::Connect => limits.connect_ms,
            Self::FirstEvent => limits.first_event_ms,
            Self::Gap => limits.gap_ms,
            Self::Ceiling => limits.ceiling_ms,
        }
    }

    /// The field that a refusal names; a server's limits are named with a path before them.
    fn named(name: &str) -> Option<Self> {
        let last = name.rsplit('.').next().unwrap_or(name);
        Self::ALL.into_iter().find(|field| field.name() == last)
    }
}

/// The four fields as they are being typed.
#[derive(Clone, Copy)]
pub(crate) struct LimitsForm {
    connect: RwSignal<String>,
    first_event: RwSignal<String>,
    gap: RwSignal<String>,
    ceiling: RwSignal<String>,
    /// The field at fault, and why.
    words: RwSignal<Option<(LimitField, String)>>,
}

impl LimitsForm {
    pub(crate) fn of(limits: TimeLimits) -> Self {
        let text = |field: LimitField| RwSignal::new(words::span(field.of(&limits)));
        Self {
            connect: text(LimitField::Connect),
            first_event: text(LimitField::FirstEvent),
            gap: text(LimitField::Gap),
            ceiling: text(LimitField::Ceiling),
            words: RwSignal::new(None),
        }
    }

    const fn text(self, field: LimitField) -> RwSignal<String> {
        match field {
            LimitField::Connect => self.connect,
            LimitField::FirstEvent => self.first_event,
            LimitField::Gap => self.gap,
            LimitField::Ceiling => self.ceiling,
        }
    }

    /// Shows other limits; what was being typed is gone.
    pub(crate) fn show(self, limits: TimeLimits) {
        for field in LimitField::ALL {
            self.text(field).set(words::span(field.of(&limits)));
        }
        self.words.set(None);
    }

    /// The set as typed; or none, and words at the field at fault.
    pub(crate) fn filled(self) -> Option<TimeLimits> {
        let read = |field: LimitField| {
            let typed = self.text(field).get_untracked();
            let ms = words::read_span(&typed);
            if ms.is_none() {
                let said = "This is a time like “90 s”, “10 min” or “1 h 30 min”.";
                self.refuse(field, said.to_owned());
            }
            ms
        };
        let limits = TimeLimits {
            connect_ms: read(LimitField::Connect)?,
            first_event_ms: read(LimitField::FirstEvent)?,
            gap_ms: read(LimitField::Gap)?,
            ceiling_ms: read(LimitField::Ceiling)?,
        };
        match limits.validate() {
            Ok(()) => {
                self.words.set(None);
                Some(limits)
            }
            Err(invalid) => {
                let field = LimitField::named(invalid.field).unwrap_or(LimitField::Ceiling);
                self.refuse(field, invalid.message);
                None
            }
        }
    }

    /// Puts a refusal at its field; `false` if it is not about one.
    pub(crate) fn take_refusal(self, error: &CallError) -> bool {
        let CallError::Refused(ErrorReport {
            code: ErrorCode::Invalid { field },
            message,
            ..
        }) = error
        else {
            return false;
        };
        let named = LimitField::named(field);
        if let Some(field) = named {
            self.refuse(field, sentence(message));
        }
        named.is_some()
    }

    fn refuse(self, field: LimitField, said: String) {
        self.words.try_set(Some((field, said)));
        // The words stand at the field, whoever has the focus.
        let _ = ipc::focus(&format!("[data-limit={}]", field.name()));
    }
}

/// The four fields. `focused` takes the focus at once.
#[component]
pub(crate) fn LimitFields(form: LimitsForm, focused: Option<LimitField>) -> impl IntoView {
    let fields = LimitField::ALL.map(|field| {
        let input = NodeRef::<html::Input>::new();
        input.on_load(move |input| {
            if focused == Some(field) {
                // All three are courtesies; the field can be found and clicked.
                let _ = input.focus();
                input.select();
                ipc::reveal_middle(&input);
            }
        });
        let wrong = Memo::new(move |_| {
            form.words.with(|words| {
                let at_fault = words.as_ref().filter(|(at, _)| *at == field);
                at_fault.map(|(_, said)| said.clone())
            })
        });
        let words_id = format!("{}-words", field.name());
        let described_by = words_id.clone();
        view! {
            <div class="form-field">
                <label>
                    <span class="label">{field.label()}</span>
                    <input
                        node_ref=input
                        class="field"
                        type="text"
                        autocomplete="off"
                        spellcheck="false"
                        data-limit=field.name()
                        data-testid=format!("limit-{}", field.name())
                        aria-invalid=move || wrong.with(Option::is_some).then_some("true")
                        aria-describedby=described_by
                        bind:value=form.text(field)
                    />
                </label>
                <div id=words_id>
                    {move || match wrong.get() {
                        Some(said) => {
                            view! { <p class="alert" role="alert" data-testid="limit-error">{said}</p> }
                                .into_any()
                        }
                        None => view! { <p class="hint">{field.hint()}</p> }.into_any(),
                    }}
                </div>
            </div>
        }
    });
    view! { <div class="form-grid">{fields.into_iter().collect_view()}</div> }.into_any()
}

/// The limits that count wherever a server has none of its own.
#[component]
pub(crate) fn GeneralLimits(focused: Option<LimitField>) -> impl IntoView {
    let desk = use_desk();
    let in_force = Memo::new(move |_| desk.library.limits.get().unwrap_or_default());
    let form = LimitsForm::of(in_force.get_untracked());
    // Another window may change them; what is being typed here is not lost to that.
    Effect::new(move |before: Option<TimeLimits>| {
        let now = in_force.get();
        if before.is_some_and(|before| before != now) {
            form.show(now);
        }
        now
    });
    let words = RwSignal::new(None::<String>);
    let save = move |limits: TimeLimits| {
        words.set(None);
        ipc::spawn(async move {
            match desk.submit(Op::ChangeTimeLimits { limits }).await {
                Ok(_) => desk.toasts.say("The time limits are saved"),
                Err(error) => {
                    if !form.take_refusal(&error) {
                        words.try_set(Some(refusal_words(&error)));
                    }
                }
            }
        });
    };
    let on_submit = move |event: ev::SubmitEvent| {
        event.prevent_default();
        if let Some(limits) = form.filled() {
            save(limits);
        }
    };
    view! {
        <form on:submit=on_submit data-testid="limits">
            <LimitFields form focused />
            {move || words.get().map(|words| view! { <p class="alert" role="alert">{words}</p> })}
            <div class="form-actions">
                <button
                    type="button"
                    class="button button-quiet"
                    on:click=move |_| form.show(TimeLimits::default())
                >
                    "Usual values"
                </button>
                <button type="submit" class="button button-primary" data-testid="limits-save">
                    "Save"
                </button>
            </div>
        </form>
    }
    .into_any()
}
