//! The player: a past turn in the place of its conversation, drawn by the same components as when it happened, and
//! below it the bar to move through it.
//!
//! Nothing can be asked for in here: the turn's pane is nobody's to follow. The conversation beneath stays as it was,
//! out of reach until this is closed, and then the focus goes back to where it came from.
//! Not here: what is shown when (`transcript::player`).

mod bar;

use leptos::{ev, html, prelude::*};
use protocol::{LoadEventsArgs, SessionId, Timestamp, TurnId};
use transcript::{
    Change,
    player::{Gathered, Moved, Pace, Player as Recorded, Recording, Waits},
    sheet::Scrolled,
    words,
};

use crate::{
    calendar,
    components::{
        icons::{Glyph, Icon},
        settings::refusal_words,
        turn::Turn,
    },
    desk::{Replay, sentence, use_desk},
    ipc::{self, SizeWatch},
    library::set_if_new,
    pane::{Pane, TurnCell},
};
use bar::Bar;

/// A part of a turn that crosses to the page within milliseconds.
const PAGE_BYTES: u32 = 256 * 1024;
/// Reading from a disk that spins up takes seconds, not more.
const LOAD_LIMIT_MS: u64 = 15_000;
/// How often the time is told while nothing happens.
const TICK_MS: u64 = 200;
/// What is due sooner is shown with the next frame.
const FRAME_MS: u64 = 16;

/// All events of a turn, read from the log.
///
/// # Errors
/// In words.
pub(super) async fn recorded(session: SessionId, turn: TurnId) -> Result<Recording, String> {
    let mut recording = Recording::of(session, turn);
    loop {
        let args = LoadEventsArgs {
            session,
            turn,
            after: recording.after(),
            max_bytes: PAGE_BYTES,
        };
        let page = ipc::within(LOAD_LIMIT_MS, ipc::load_events(&args)).await;
        match page.map(|page| recording.take(page)) {
            Ok(Ok(Gathered::More)) => {}
            Ok(Ok(Gathered::Whole)) => return Ok(recording),
            Ok(Err(torn)) => return Err(torn.to_string()),
            Err(error) => return Err(refusal_words(&error)),
        }
    }
}

/// Where the player stands, for the bar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) position: usize,
    pub(super) events: usize,
    pub(super) elapsed_ms: u64,
    pub(super) total_ms: u64,
    pub(super) plays: bool,
    pub(super) pace: Pace,
    pub(super) waits: Waits,
    pub(super) wait_ms: Option<u64>,
    /// What the last event was.
    pub(super) event: String,
    /// All of it, for who listens.
    pub(super) said: String,
}

impl Place {
    fn of(player: &Recorded) -> Self {
        let last = player.last().map(|event| &event.body);
        Self {
            position: player.position(),
            events: player.events(),
            elapsed_ms: player.elapsed_ms(),
            total_ms: player.total_ms(),
            plays: player.is_playing(),
            pace: player.pace(),
            waits: player.waits(),
            wait_ms: player.wait_ms(),
            event: last.map(words::event).unwrap_or_default(),
            said: words::replay_position(
                player.position(),
                player.events(),
                player.elapsed_ms(),
                player.total_ms(),
                last,
            ),
        }
    }
}

/// How far the turn was read.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    Reading,
    Ready,
    Failed(String),
}

/// A turn that is shown again, and what shows it.
#[derive(Clone, Copy)]
pub(super) struct Showing {
    player: StoredValue<Recorded, LocalStorage>,
    pane: Pane,
    cell: RwSignal<Option<TurnCell>>,
    moment: RwSignal<Timestamp>,
    pub(super) place: RwSignal<Place>,
    /// What is said of it to who does not look.
    spoken: RwSignal<String>,
    stage: RwSignal<Stage>,
    swap: StoredValue<u64>,
    /// Whether somebody looks after what is due.
    attended: StoredValue<bool>,
    owner: StoredValue<Owner>,
}

impl Showing {
    fn of(replay: Replay) -> Self {
        let moment = RwSignal::new(Timestamp::from_millis(0));
        let player = Recorded::of(Recording::of(replay.session, replay.turn));
        Self {
            pane: Pane::replayed(replay.session, moment),
            cell: RwSignal::new(None),
            moment,
            place: RwSignal::new(Place::of(&player)),
            player: StoredValue::new_local(player),
            spoken: RwSignal::new(String::new()),
            stage: RwSignal::new(Stage::Reading),
            swap: StoredValue::new(0),
            attended: StoredValue::new(false),
            owner: StoredValue::new(Owner::current().unwrap_or_default()),
        }
    }

    /// Reads the turn, and begins.
    async fn load(self, replay: Replay) {
        let read = recorded(replay.session, replay.turn).await;
        if self.stage.is_disposed() {
            return;
        }
        match read {
            Ok(recording) => {
                self.player.set_value(Recorded::of(recording));
                // Who wants things to stand still says when this one moves.
                if ipc::prefers_stillness() {
                    self.seek(1);
                } else {
                    self.toggle();
                }
                self.stage.set(Stage::Ready);
            }
            Err(words) => self.stage.set(Stage::Failed(words)),
        }
    }

    /// Plays, or pauses; step by step, shows one more event.
    pub(super) fn toggle(self) {
        self.act(|player, now, changes| {
            if player.is_playing() {
                player.pause(now, changes)
            } else {
                player.play(now, changes)
            }
        });
        let said = self.place.with_untracked(|place| {
            if place.plays {
                "Playing".to_owned()
            } else {
                place.said.clone()
            }
        });
        self.spoken.set(said);
    }

    pub(super) fn forward(self) {
        self.go(|player, changes| player.step(changes));
    }

    pub(super) fn back(self) {
        self.go(|player, _| player.back());
    }

    pub(super) fn next_mark(self) {
        self.go(|player, _| player.seek_next_mark());
    }

    pub(super) fn previous_mark(self) {
        self.go(|player, _| player.seek_previous_mark());
    }

    /// Where the slider was put. The slider says it itself.
    pub(super) fn seek(self, position: usize) {
        self.act(|player, _, _| player.seek(position));
    }

    pub(super) fn set_pace(self, pace: Pace) {
        self.act(|player, now, changes| player.set_pace(pace, now, changes));
    }

    pub(super) fn toggle_waits(self) {
        self.act(|player, now, changes| {
            let waits = match player.waits() {
                Waits::Shortened => Waits::Exact,
                Waits::Exact => Waits::Shortened,
            };
            player.set_waits(waits, now, changes)
        });
    }

    pub(super) fn marks(self) -> Vec<transcript::player::Mark> {
        self.player.with_value(|player| player.marks().to_vec())
    }

    /// Goes somewhere, and says where that is.
    fn go(self, deed: impl FnOnce(&mut Recorded, &mut Vec<Change>) -> Moved) {
        self.act(|player, _, changes| deed(player, changes));
        self.spoken
            .set(self.place.with_untracked(|place| place.said.clone()));
    }

    fn act(self, deed: impl FnOnce(&mut Recorded, u64, &mut Vec<Change>) -> Moved) {
        let mut changes = Vec::new();
        let moved = self.player.try_update_value(|player| {
            let moved = deed(player, ipc::now_ms(), &mut changes);
            // Before its first event a turn is nothing that could be looked at.
            if player.position() == 0 {
                player.seek(1);
                return Moved::Anew;
            }
            moved
        });
        let Some(moved) = moved else { return };
        // Signals that are made now go with the player, whoever called.
        self.owner
            .with_value(|owner| owner.with(|| self.show(moved, &changes)));
        self.attend();
    }

    fn show(self, moved: Moved, changes: &[Change]) {
        self.player.with_value(|player| {
            let view = player.frame();
            match (self.cell.get_untracked(), view, moved) {
                (Some(_), Some(_), Moved::Nowhere) | (None, None, _) => {}
                (Some(cell), Some(view), Moved::On) => {
                    cell.show_changes(view, changes, self.next_swap());
                }
                (Some(cell), Some(view), Moved::Anew) => cell.show_anew(view, self.next_swap()),
                (None, Some(view), _) => {
                    let cell = TurnCell::of(view);
                    cell.show_anew(view, self.next_swap());
                    self.cell.set(Some(cell));
                }
                (Some(_), None, _) => self.cell.set(None),
            }
            set_if_new(self.moment, player.moment());
            set_if_new(self.pane.status, player.status());
            set_if_new(self.place, Place::of(player));
        });
    }

    fn next_swap(self) -> u64 {
        self.swap.update_value(|swap| *swap += 1);
        self.swap.get_value()
    }

    /// Looks after what is due, for as long as it plays.
    fn attend(self) {
        if self.attended.get_value() || !self.place.with_untracked(|place| place.plays) {
            return;
        }
        self.attended.set_value(true);
        ipc::spawn(async move {
            loop {
                let due = self
                    .player
                    .try_with_value(|player| player.due_in_ms(ipc::now_ms()));
                match due {
                    Some(Some(due)) if due > FRAME_MS => ipc::sleep(due.min(TICK_MS)).await,
                    Some(Some(_)) => ipc::next_frame_or(TICK_MS).await,
                    Some(None) => break,
                    None => return,
                }
                if self.place.is_disposed() {
                    return;
                }
                self.act(|player, now, changes| player.advance(now, changes));
            }
            self.attended.try_set_value(false);
            if self.player.try_with_value(Recorded::is_at_end) == Some(true) {
                self.spoken.try_set("The end".to_owned());
            }
        });
    }
}

/// A past turn, shown again.
#[component]
pub(crate) fn Player(replay: Replay) -> impl IntoView {
    let desk = use_desk();
    let showing = Showing::of(replay);
    ipc::spawn(showing.load(replay));
    let region = NodeRef::<html::Section>::new();
    region.on_load(|region| {
        // Focus is a courtesy; the keys work from here.
        let _ = region.focus();
    });
    let on_keydown = move |event: ev::KeyboardEvent| {
        let modified = event.ctrl_key() || event.meta_key() || event.alt_key();
        if ipc::is_composing(&event) || modified || event.default_prevented() {
            return;
        }
        let ready = showing.stage.with_untracked(|stage| *stage == Stage::Ready);
        match (event.key().as_str(), event.shift_key()) {
            // Whatever has the focus and can be pressed is pressed.
            (" ", false) if ready && !ipc::is_on_button(&event) => showing.toggle(),
            ("ArrowRight", false) if ready => showing.forward(),
            ("ArrowLeft", false) if ready => showing.back(),
            ("ArrowRight", true) if ready => showing.next_mark(),
            ("ArrowLeft", true) if ready => showing.previous_mark(),
            _ => return,
        }
        event.prevent_default();
    };
    let heading = move || {
        showing.cell.get().map(|cell| {
            cell.head.with(|head| {
                format!(
                    "{}, {}",
                    calendar::moment(head.started_at, ipc::wall()),
                    head.model()
                )
            })
        })
    };
    view! {
        <section
            node_ref=region
            class="player"
            data-testid="player"
            aria-label="An answer shown again as it happened"
            tabindex="-1"
            on:keydown=on_keydown
        >
            <header class="player-head">
                <h2 class="player-title">"Replay"</h2>
                <span class="player-of hint">{heading}</span>
                <button
                    type="button"
                    class="icon-button"
                    data-testid="player-close"
                    aria-label="Close the replay"
                    title="Close (Esc)"
                    on:click=move |_| desk.close_player()
                >
                    <Glyph icon=Icon::Cross />
                </button>
            </header>
            <Scene showing />
            {move || {
                match showing.stage.get() {
                    Stage::Ready => Some(view! { <Bar showing /> }.into_any()),
                    Stage::Reading => None,
                    Stage::Failed(words) => {
                        Some(
                            view! {
                                <p class="alert player-alert" role="alert">
                                    {format!(
                                        "This answer cannot be shown again now: {}",
                                        sentence(&words),
                                    )}
                                </p>
                            }
                                .into_any(),
                        )
                    }
                }
            }}
            <p class="offscreen" role="status">
                {showing.spoken}
            </p>
        </section>
    }
    .into_any()
}

/// The turn as it looked, followed to its end while the reader is there.
#[component]
fn Scene(showing: Showing) -> impl IntoView {
    let scroller = NodeRef::<html::Div>::new();
    let content = NodeRef::<html::Div>::new();
    let follows = StoredValue::new(true);
    let last_top = StoredValue::new(0);
    let watches = StoredValue::new_local(Vec::<SizeWatch>::new());
    let resized = move || {
        if follows.try_get_value() == Some(true)
            && let Some(view) = scroller.try_get_untracked().flatten()
        {
            view.set_scroll_top(view.scroll_height());
            last_top.set_value(view.scroll_top());
        }
    };
    Effect::new(move |_| {
        if let (Some(view), Some(text)) = (scroller.get(), content.get()) {
            let seen = [
                SizeWatch::new(&view, resized),
                SizeWatch::new(&text, resized),
            ];
            watches.set_value(seen.into_iter().flatten().collect());
        }
    });
    view! {
        <div
            node_ref=scroller
            class="player-scene transcript"
            data-testid="player-scene"
            role="group"
            aria-label="The answer as it was then"
            tabindex="0"
            on:scroll=move |_| {
                if let Some(view) = scroller.get_untracked() {
                    let scrolled = Scrolled {
                        from: last_top.get_value(),
                        to: view.scroll_top(),
                        end: view.scroll_height() - view.client_height(),
                    };
                    last_top.set_value(scrolled.to);
                    follows.update_value(|follows| *follows = scrolled.follows(*follows));
                }
            }
        >
            <div node_ref=content class="transcript-column">
                {move || {
                    showing.cell.get().map(|cell| view! { <Turn pane=showing.pane cell /> })
                }}
            </div>
        </div>
    }
    .into_any()
}
