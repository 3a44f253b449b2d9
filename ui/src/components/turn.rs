//! A turn: what was said, what it is doing or how it ended, and what can be done about that.

use leptos::{ev, html, prelude::*};
use protocol::{
    AttemptState, CancelledBy, ItemBody, Op, ProviderId, Slept, Timestamp, TurnId, TurnOutcome,
};
use transcript::{
    numbers::{self, Numbers},
    words::{self, Offer},
};

use crate::{
    calendar,
    components::{
        compacted::Compacted,
        failure::FoldedDetail,
        icons::{Glyph, Icon},
        message::{Answer, UserMessage},
        model_picker::short_name,
        reasoning::Reasoning,
        sidebar::chord,
        status_line::StatusLine,
        times::Times,
        tool_call::ToolCall,
        versions::{BringBack, Versions},
    },
    desk::{Desk, LimitField, SettingsPart, sentence, use_desk},
    ipc,
    pane::{CellBody, ItemCell, Pane, TurnCell, TurnHead},
};

/// One turn.
#[component]
pub(crate) fn Turn(pane: Pane, cell: TurnCell) -> impl IntoView {
    let editing = RwSignal::new(false);
    view! {
        <article class="turn">
            <For each=move || cell.items.get() key=|item| item.key() let:item>
                <Item pane cell item editing />
            </For>
            <TurnFoot pane cell editing />
        </article>
    }
    .into_any()
}

#[component]
fn Item(pane: Pane, cell: TurnCell, item: ItemCell, editing: RwSignal<bool>) -> impl IntoView {
    let turn = cell.turn;
    match item.body {
        CellBody::Continued => view! {
            <div class="continued">
                <p class="hint" data-testid="continued">
                    "You asked to go on"
                </p>
                <Versions pane turn />
            </div>
        }
        .into_any(),
        CellBody::User(said) => view! { <UserMessage pane turn said editing /> }.into_any(),
        CellBody::Answer(prose) => view! { <Answer prose /> }.into_any(),
        CellBody::Reasoning(reasoning) => view! { <Reasoning pane reasoning /> }.into_any(),
        CellBody::Tool(tool) => view! { <ToolCall pane cell item=item.item tool /> }.into_any(),
        CellBody::Compacted(compacted) => view! { <Compacted compacted /> }.into_any(),
        CellBody::Unsupported(kind) => {
            let said = kind.with_value(|kind| words::unsupported(kind));
            view! { <p class="unsupported hint">{said}</p> }.into_any()
        }
    }
}

/// Below what was said: the state while it runs, and the end when it has one, in the same place.
#[component]
fn TurnFoot(pane: Pane, cell: TurnCell, editing: RwSignal<bool>) -> impl IntoView {
    let turn = cell.turn;
    let runs = Memo::new(move |_| cell.head.with(|head| head.outcome.is_none()));
    let is_last = Memo::new(move |_| pane.turns.with(|turns| turns.last() == Some(&turn)));
    // Whether it is asked if the turn shall run again although a tool of it may have had an effect.
    let wondering = RwSignal::new(false);
    let slept = Memo::new(move |_| cell.head.with(|head| head.slept.clone()));
    let failovers = Memo::new(move |_| cell.head.with(|head| notices(head, Notices::Failovers)));
    view! {
        <footer class="turn-foot" class:is-last=is_last>
            {move || slept_lines(&slept.get(), ipc::wall())}
            {move || {
                if runs.get() {
                    view! {
                        {move || attempt_lines(failovers.get())}
                        <StatusLine pane cell />
                    }
                        .into_any()
                } else {
                    let head = cell.head.get();
                    view! {
                        <Scar pane cell head=head.clone() is_last editing wondering />
                        {move || wondering.get().then(|| view! { <Wondering pane turn wondering /> })}
                        <TurnLine pane cell head is_last wondering />
                    }
                        .into_any()
                }
            }}
        </footer>
    }
    .into_any()
}

/// The line under an answer that did not come to its end, and what can be done.
#[component]
fn Scar(
    pane: Pane,
    cell: TurnCell,
    head: TurnHead,
    is_last: Memo<bool>,
    editing: RwSignal<bool>,
    wondering: RwSignal<bool>,
) -> impl IntoView {
    scar_view(pane, cell, head, is_last, editing, wondering)
}

fn scar_view(
    pane: Pane,
    cell: TurnCell,
    head: TurnHead,
    is_last: Memo<bool>,
    editing: RwSignal<bool>,
    wondering: RwSignal<bool>,
) -> Option<impl IntoView> {
    let desk = use_desk();
    let outcome = head.outcome.clone()?;
    let badge = match &outcome {
        TurnOutcome::Completed { stop } => words::badge(*stop),
        TurnOutcome::Failed { .. }
        | TurnOutcome::Cancelled { .. }
        | TurnOutcome::Interrupted { .. } => None,
    };
    let said = words::scar(&outcome).or_else(|| badge.map(str::to_owned))?;
    let class = match &outcome {
        TurnOutcome::Failed { .. } => "scar is-failed",
        TurnOutcome::Completed { .. }
        | TurnOutcome::Cancelled {
            by: CancelledBy::User,
        } => "scar",
        TurnOutcome::Interrupted { .. } => "scar is-interrupted",
    };
    let failure = match outcome {
        TurnOutcome::Failed { failure } => Some(failure),
        TurnOutcome::Completed { .. }
        | TurnOutcome::Cancelled { .. }
        | TurnOutcome::Interrupted { .. } => None,
    };
    let at = head.ended_at.map(calendar::clock);
    let again_at = failure.as_ref().and_then(|failure| failure.retry_at);
    let detail = failure.as_ref().and_then(|failure| failure.detail.clone());
    let deeds: Vec<(Offer, Deed)> = head
        .offers
        .iter()
        .filter_map(|offer| Some((*offer, deed(*offer)?)))
        .collect();
    Some(view! {
        <div class=class data-testid="scar">
            // The status line's last word: what it said while the turn ran, it says now of its end.
            <p class="scar-words" data-testid=move || is_last.get().then_some("status")>
                <span class="scar-said">{said}</span>
                {at.map(|at| view! { <span class="scar-at">{format!(" · {at}")}</span> })}
                {again_at.map(|at| again_words(at, ipc::wall()))}
            </p>
            {move || {
                is_last
                    .get()
                    .then(|| {
                        deeds
                            .iter()
                            .map(|(offer, deed)| {
                                let deed = *deed;
                                view! {
                                    <button
                                        type="button"
                                        class="button"
                                        data-testid=deed.testid()
                                        disabled=move || deed.needs_link() && !pane.is_live()
                                        on:click=move |_| {
                                            act(desk, pane, cell, deed, editing, wondering);
                                        }
                                    >
                                        {offer.label()}
                                    </button>
                                }
                            })
                            .collect_view()
                    })
                    .map(|buttons| {
                        view! {
                            <div class="scar-deeds">{buttons} <BringBack pane turn=cell.turn /></div>
                        }
                    })
            }}
            {detail.map(|detail| view! { <FoldedDetail detail /> })}
        </div>
    })
}

fn again_words(at: Timestamp, now: Timestamp) -> String {
    format!("; it may work again at {}", calendar::moment(at, now))
}

/// What an offer does here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Retry,
    Continue,
    Models,
    Settings,
    Limit(LimitField),
    Edit,
    Report,
    Export,
}

impl Deed {
    const fn testid(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Continue => "continue",
            Self::Models => "choose-model",
            Self::Settings => "open-settings",
            Self::Limit(_) => "change-limit",
            Self::Edit => "edit",
            Self::Report => "copy-report",
            Self::Export => "export",
        }
    }

    /// Whether it asks for something that depends on what is shown being up to date.
    const fn needs_link(self) -> bool {
        match self {
            Self::Retry | Self::Continue | Self::Edit => true,
            Self::Models | Self::Settings | Self::Limit(_) | Self::Report | Self::Export => false,
        }
    }
}

/// What this window can do of what can be done. What nothing here does yet is not offered.
const fn deed(offer: Offer) -> Option<Deed> {
    match offer {
        // An attempt on a conversation that outgrew its model begins by summing it up.
        Offer::TryAgain | Offer::CompactAndTryAgain => Some(Deed::Retry),
        Offer::Continue => Some(Deed::Continue),
        Offer::ChooseModel => Some(Deed::Models),
        Offer::OpenSettings
        | Offer::OpenKey
        | Offer::CheckAddress
        | Offer::ModelSettings
        | Offer::LargerContext => Some(Deed::Settings),
        Offer::EditMessage => Some(Deed::Edit),
        Offer::CopyReport => Some(Deed::Report),
        // The details stand folded beneath the sentence.
        Offer::ShowDetails => None,
        Offer::WaitLonger => Some(Deed::Limit(LimitField::FirstEvent)),
        Offer::ChangeLimit => Some(Deed::Limit(LimitField::Ceiling)),
        Offer::Export => Some(Deed::Export),
        // Everything asked for is a write: the next one tries again.
        Offer::RetryWrite => None,
    }
}

fn act(
    desk: Desk,
    pane: Pane,
    cell: TurnCell,
    deed: Deed,
    editing: RwSignal<bool>,
    wondering: RwSignal<bool>,
) {
    match deed {
        Deed::Retry => retry_or_ask(desk, pane, cell, wondering),
        Deed::Continue => {
            if let Some(expected_tip) = pane.tip() {
                desk.send_in(Op::ContinueTurn {
                    session: pane.session,
                    turn: cell.turn,
                    expected_tip,
                });
            }
        }
        Deed::Models => desk.open_models(),
        Deed::Settings => desk.open_settings(SettingsPart::Servers),
        Deed::Limit(field) => {
            let provider = cell.head.with_untracked(|head| head.model.provider);
            desk.open_settings(SettingsPart::Limits(field, own_limits(desk, provider)));
        }
        Deed::Edit => editing.set(true),
        Deed::Report => copy_report(desk, pane, cell),
        Deed::Export => desk.export(pane),
    }
}

/// The server, if its limits are its own: those are the ones that count.
fn own_limits(desk: Desk, provider: ProviderId) -> Option<ProviderId> {
    desk.library.providers.with_untracked(|providers| {
        let known = providers.iter().find(|known| known.id == provider);
        known
            .filter(|known| known.limits.is_some())
            .map(|known| known.id)
    })
}

/// What a developer needs to know: codes, names and times, and nothing of what was said.
fn copy_report(desk: Desk, pane: Pane, cell: TurnCell) {
    let (session, turn) = (pane.session, cell.turn);
    let head = cell.head.get_untracked();
    ipc::spawn(async move {
        let version = match ipc::about().await {
            Ok(about) => about.version,
            Err(error) => format!("of unknown version ({error})"),
        };
        let mut lines = vec![
            format!("Holdfast {version}"),
            format!("session {session}, turn {turn}"),
            format!("model {} on {}", head.model.model, head.model.provider_name),
            format!("{} attempts", head.attempts.len()),
        ];
        if let Some(TurnOutcome::Failed { failure }) = &head.outcome {
            lines.push(format!("{:?}: {}", failure.code, failure.message));
        }
        desk.copy(lines.join("\n"));
    });
}

/// Says the turn's message again; asks first where doing it twice may do harm.
fn retry_or_ask(desk: Desk, pane: Pane, cell: TurnCell, wondering: RwSignal<bool>) {
    if cell.may_have_had_effect() {
        wondering.set(true);
    } else {
        retry(desk, pane, cell.turn);
    }
}

/// The question before a turn runs again of which nobody knows what it has done.
#[component]
fn Wondering(pane: Pane, turn: TurnId, wondering: RwSignal<bool>) -> impl IntoView {
    let desk = use_desk();
    let calm = NodeRef::<html::Button>::new();
    calm.on_load(|button| {
        // Focus is a courtesy, and rests on the answer that changes nothing.
        let _ = button.focus();
    });
    let leave = move || {
        wondering.set(false);
        desk.take_attention();
    };
    let on_keydown = move |event: ev::KeyboardEvent| {
        if event.key() == "Escape" {
            event.stop_propagation();
            event.prevent_default();
            leave();
        }
    };
    view! {
        <div
            class="ask"
            role="group"
            aria-labelledby="wondering"
            data-testid="wondering"
            on:keydown=on_keydown
        >
            <p class="ask-title" id="wondering">
                "A tool of this turn may already have had an effect. Trying again may do it twice."
            </p>
            <div class="ask-answers">
                <button
                    type="button"
                    class="button"
                    data-testid="retry-anyway"
                    disabled=move || !pane.is_live()
                    on:click=move |_| {
                        wondering.set(false);
                        retry(desk, pane, turn);
                    }
                >
                    "Try again anyway"
                </button>
                <button
                    node_ref=calm
                    type="button"
                    class="button"
                    data-testid="retry-not"
                    on:click=move |_| leave()
                >
                    "Leave it as it is"
                </button>
            </div>
        </div>
    }
    .into_any()
}

/// Says the turn's message again, if nothing has changed since the reader saw it.
fn retry(desk: Desk, pane: Pane, turn: TurnId) {
    if let Some(expected_tip) = pane.tip() {
        desk.send_in(Op::RetryTurn {
            session: pane.session,
            turn,
            expected_tip,
        });
    }
}

/// The quiet line under a finished answer: what can be done with it, and what it took.
#[component]
fn TurnLine(
    pane: Pane,
    cell: TurnCell,
    head: TurnHead,
    is_last: Memo<bool>,
    wondering: RwSignal<bool>,
) -> impl IntoView {
    let desk = use_desk();
    let turn = cell.turn;
    let facts = facts(&head);
    let more = more_facts(&head);
    let timed = RwSignal::new(false);
    let attempts = head.attempts.clone();
    view! {
        {attempt_lines(notices(&head, Notices::All))}
        {unread_line(pane, &head)}
        {untaken_lines(&head)}
        {thought_line(pane, &head, turn)}
        <div class="turn-line">
            <div class="actions">
                {move || {
                    // What was said is copied where it is said now.
                    (cell.has_answer() && !pane.is_replay())
                        .then(|| {
                            view! {
                            <button
                                type="button"
                                class="icon-button"
                                data-testid="copy-answer"
                                aria-label="Copy the answer as Markdown"
                                title="Copy as Markdown"
                                on:click=move |_| desk.copy(pane.answer(turn))
                            >
                                <Glyph icon=Icon::Copy />
                            </button>
                            }
                        })
                }}
                {(!pane.is_replay())
                    .then(|| {
                        view! {
                            <button
                                type="button"
                                class="icon-button"
                                id=replay_id(turn)
                                data-testid="replay-turn"
                                aria-label="Show again as it happened"
                                title=move || {
                                    if is_last.get() {
                                        format!(
                                            "Show again as it happened ({})",
                                            chord("Shift+P"),
                                        )
                                    } else {
                                        "Show again as it happened".to_owned()
                                    }
                                }
                                on:click=move |_| desk.replay(pane.session, turn)
                            >
                                <Glyph icon=Icon::Replay />
                            </button>
                        }
                    })}
                {move || {
                    is_last
                        .get()
                        .then(|| {
                            view! {
                                <button
                                    type="button"
                                    class="icon-button"
                                    data-testid="retry-answer"
                                    aria-label="Answer again"
                                    title="Answer again"
                                    disabled=move || !pane.is_live()
                                    on:click=move |_| retry_or_ask(desk, pane, cell, wondering)
                                >
                                    <Glyph icon=Icon::Again />
                                </button>
                            }
                        })
                }}
                {(!pane.is_replay())
                    .then(|| {
                        view! {
                            <button
                                type="button"
                                class="icon-button"
                                data-testid="turn-times"
                                aria-label="Where the time went"
                                title="Where the time went"
                                aria-expanded=move || timed.get().to_string()
                                on:click=move |_| timed.update(|timed| *timed = !*timed)
                            >
                                <Glyph icon=Icon::Bars />
                            </button>
                        }
                    })}
            </div>
            <span class="turn-facts" title=more>{facts}</span>
        </div>
        {move || {
            timed
                .get()
                .then(|| view! { <Times session=pane.session turn attempts=attempts.clone() /> })
        }}
    }
    .into_any()
}

/// The button that shows a turn again: the focus comes back to it.
pub(crate) fn replay_id(turn: TurnId) -> String {
    format!("replay-{turn}")
}

/// Which attempts are spoken of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Notices {
    /// Those after which another model was asked. A wait before the same one is in the status line.
    Failovers,
    /// All that another one followed.
    All,
}

fn notices(head: &TurnHead, wanted: Notices) -> Vec<String> {
    let attempts = head.attempts.iter().filter(|attempt| match &attempt.state {
        AttemptState::Failed {
            retry_in_ms, next, ..
        } => next.is_some() || (retry_in_ms.is_some() && wanted == Notices::All),
        AttemptState::Open | AttemptState::Ended { .. } => false,
    });
    attempts
        .filter_map(|attempt| words::attempt(&attempt.state))
        .collect()
}

fn slept_lines(slept: &[Slept], now: Timestamp) -> impl IntoView + use<> {
    let lines = slept.iter().map(|slept| {
        let from = calendar::moment(slept.from, now);
        let to = calendar::moment(slept.to, now);
        let said = format!("The computer slept from {from} to {to}.");
        view! { <p class="attempt hint" data-testid="slept">{said}</p> }
    });
    lines.collect_view()
}

fn attempt_lines(notices: Vec<String>) -> impl IntoView {
    notices
        .into_iter()
        .map(|said| view! { <p class="attempt hint" data-testid="attempt">{sentence(&said)}</p> })
        .collect_view()
}

fn facts(head: &TurnHead) -> String {
    let mut facts = vec![short_name(head.model()).to_owned()];
    facts.extend(Numbers::of(&head.attempts).facts());
    let took_ms = head.ended_at.map(|at| at.millis_since(head.started_at));
    facts.extend(
        took_ms
            .filter(|ms| *ms >= calendar::NOTICED_MS)
            .map(calendar::duration),
    );
    facts.join(" · ")
}

fn more_facts(head: &TurnHead) -> String {
    let mut facts = vec![
        format!("{} on {}", head.model.model, head.model.provider_name),
        calendar::moment(head.started_at, ipc::wall()),
    ];
    let answers = head.attempts.iter().filter(|a| a.purpose.is_answer());
    facts.extend(answers.flat_map(numbers::details));
    facts.join("\n")
}

/// That there is no answer, only thoughts.
fn thought_line(pane: Pane, head: &TurnHead, turn: TurnId) -> impl IntoView + use<> {
    let only_thought =
        head.outcome.is_some() && pane.with_turn(turn, words::only_thought) == Some(true);
    only_thought.then(|| {
        view! {
            <p class="ask-warning unread" data-testid="only-thought">
                <Glyph icon=Icon::Warning />
                <span>{words::ONLY_THOUGHT}</span>
            </p>
        }
    })
}

/// What the model cannot take, images or tools, and was therefore not given: once, however many requests it took.
fn untaken_lines(head: &TurnHead) -> impl IntoView + use<> {
    let ended = head.attempts.iter().map(|attempt| match &attempt.state {
        AttemptState::Ended {
            unseen_images,
            untold_tools,
            ..
        } => (*unseen_images, *untold_tools),
        AttemptState::Open | AttemptState::Failed { .. } => (0, 0),
    });
    let (images, tools) = ended.fold((0, 0), |most, one| (most.0.max(one.0), most.1.max(one.1)));
    let lines = [
        ("unseen-images", words::unseen_images(images)),
        ("untold-tools", words::untold_tools(tools)),
    ];
    lines.map(|(testid, said)| {
        said.map(|said| {
            view! {
                <p class="ask-warning unread" data-testid=testid>
                    <Glyph icon=Icon::Warning />
                    <span>{said}</span>
                </p>
            }
        })
    })
}

/// That the model did not see all of the conversation: said once under the answer, however many requests it took.
fn unread_line(pane: Pane, head: &TurnHead) -> impl IntoView + use<> {
    let unread = head
        .attempts
        .iter()
        .rev()
        .find_map(|attempt| match &attempt.state {
            AttemptState::Ended { unread, .. } => *unread,
            AttemptState::Open | AttemptState::Failed { .. } => None,
        });
    unread.map(|unread| {
        let last = unread.through.and_then(|turn| {
            let said = pane.with_turn(turn, |view| {
                view.items.iter().find_map(|item| match &item.body {
                    ItemBody::UserMessage { text, .. } => Some(text.clone()),
                    ItemBody::Text { .. }
                    | ItemBody::ToolCall { .. }
                    | ItemBody::Compacted { .. }
                    | ItemBody::Unsupported { .. } => None,
                })
            });
            said.flatten()
        });
        view! {
            <p class="ask-warning unread" data-testid="unread">
                <Glyph icon=Icon::Warning />
                <span>{words::unread(&unread, last.as_deref())}</span>
            </p>
        }
    })
}
