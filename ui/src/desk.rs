//! The desk: what this window has open. The one context of the page; everything else goes down as signals.
//!
//! Invariant: an op is submitted under one id until its fate is known, so a lost answer never makes it happen twice.
//! Not here: following streams (`follow`), and what is drawn (`components`).

use std::collections::VecDeque;

use leptos::prelude::*;
use protocol::{
    ErrorCode, ErrorReport, Image, Model, ModelOptions, ModelRef, Op, OpId, OpenLinkArgs,
    OpenWindowArgs, Provider, ProviderId, Receipt, SessionId, Show, SubmitArgs, TurnId,
};

use transcript::words;
pub(crate) use transcript::words::sentence;

use crate::{
    catalog::{Catalog, first_choice},
    components::{settings::refusal_words, turn},
    drafts::Drafts,
    follow::{self, Follower},
    images::Images,
    ipc::{self, CallError, PageEvent},
    library::{Library, set_if_new},
    pane::Pane,
    toasts::Toasts,
    wishes::Wishes,
};

/// How many transcripts stay painted after one has left them: switching back to them costs nothing.
const PANES_KEPT: usize = 5;
/// A commit takes milliseconds; a disk that spins up takes seconds.
const SUBMIT_LIMIT_MS: u64 = 15_000;
/// How often an op whose answer got lost is sent again, under its own id.
const SUBMIT_TRIES: u32 = 3;
/// Between two such tries: a reloading shell is back by then.
const SUBMIT_PAUSE_MS: u64 = 400;
/// Between two rounds of them, when nobody hears that something was seen: no reader waits for it.
const SEEN_PAUSE_MS: u64 = 5_000;

/// A server that does not say within this time what it has is left to the model picker.
const MODEL_WAIT_MS: u64 = 6_000;
const MODEL_LOOK_MS: u64 = 100;

/// What the main column shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Screen {
    /// A session, or the one not begun yet.
    Chat,
    /// Settings, scrolled to one of its parts.
    Settings(SettingsPart),
}

/// A part of the settings page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SettingsPart {
    Servers,
    Models,
    /// At one of the time limits: the general ones, or a server's own.
    Limits(LimitField, Option<ProviderId>),
    Usage,
    Health,
    Shortcuts,
}

/// One of the time limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitField {
    Connect,
    FirstEvent,
    Gap,
    Ceiling,
}

/// Something that lies above the page; Escape closes it first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overlay {
    /// The model picker.
    Models,
    /// The folder's form.
    Folder,
    /// The form for the options of the chat.
    Options,
    /// A session's menu in the list.
    SessionMenu(SessionId),
    /// The sidebar, as a drawer over a narrow window.
    Drawer,
}

/// A past turn that is shown again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Replay {
    pub(crate) session: SessionId,
    pub(crate) turn: TurnId,
}

/// A pane and what keeps it alive.
struct Kept {
    pane: Pane,
    follower: Follower,
    owner: Owner,
}

/// What this window has open.
#[derive(Clone, Copy)]
pub(crate) struct Desk {
    pub(crate) library: Library,
    pub(crate) catalog: Catalog,
    pub(crate) drafts: Drafts,
    pub(crate) images: Images,
    /// The image that fills the window.
    pub(crate) large_image: RwSignal<Option<Image>>,
    pub(crate) toasts: Toasts,
    pub(crate) wishes: Wishes,
    pub(crate) screen: RwSignal<Screen>,
    pub(crate) overlay: RwSignal<Option<Overlay>>,
    pub(crate) folded: RwSignal<bool>,
    /// The session whose title is being typed in the list.
    pub(crate) renaming: RwSignal<Option<SessionId>>,
    /// The open session; none is the one not begun yet.
    pub(crate) session: RwSignal<Option<SessionId>>,
    /// Its pane.
    pub(crate) pane: RwSignal<Option<Pane>>,
    /// What is shown again in the place of the open session.
    pub(crate) player: RwSignal<Option<Replay>>,
    /// The model chosen for the session not begun yet.
    pub(crate) model_for_new: RwSignal<Option<ModelRef>>,
    /// A server that is examined as soon as its row is drawn: it was changed to put something right.
    pub(crate) examined_next: RwSignal<Option<ProviderId>>,
    /// The folder chosen for the session not begun yet.
    pub(crate) folder_for_new: RwSignal<Option<String>>,
    /// The options chosen for the session not begun yet.
    pub(crate) options_for_new: RwSignal<ModelOptions>,
    /// Why a message could not be sent with its folder; said where that is chosen.
    pub(crate) folder_words: RwSignal<Option<String>>,
    /// Grows when the composer should take the focus.
    pub(crate) attention: RwSignal<u64>,
    /// Whether somebody looks at this window.
    pub(crate) looked_at: RwSignal<bool>,
    /// Grows when something was sent: the view goes to its end.
    pub(crate) sent: RwSignal<u64>,
    /// The model that was found for those who never chose one.
    best_on_offer: RwSignal<Option<ModelRef>>,
    /// What the command line prefers for new sessions.
    preferred: RwSignal<Option<ModelRef>>,
    /// When a key was last typed into the composer.
    typed_at: StoredValue<Option<u64>>,
    /// What saves the text of the composer, when the page is about to go.
    leaving: StoredValue<Option<Callback<()>>>,
    root: StoredValue<Owner>,
    kept: StoredValue<VecDeque<Kept>, LocalStorage>,
}

/// The desk of this page.
pub(crate) fn use_desk() -> Desk {
    expect_context::<Desk>()
}

impl Desk {
    pub(crate) fn new() -> Self {
        let drafts = Drafts::new();
        Self {
            library: Library::new(),
            catalog: Catalog::new(),
            drafts,
            images: Images::new(drafts),
            large_image: RwSignal::new(None),
            toasts: Toasts::new(),
            wishes: Wishes::new(),
            screen: RwSignal::new(Screen::Chat),
            overlay: RwSignal::new(None),
            folded: RwSignal::new(ipc::preference("sidebar").as_deref() == Some("folded")),
            renaming: RwSignal::new(None),
            session: RwSignal::new(None),
            pane: RwSignal::new(None),
            player: RwSignal::new(None),
            model_for_new: RwSignal::new(None),
            examined_next: RwSignal::new(None),
            folder_for_new: RwSignal::new(None),
            options_for_new: RwSignal::new(ModelOptions::default()),
            folder_words: RwSignal::new(None),
            attention: RwSignal::new(0),
            looked_at: RwSignal::new(false),
            sent: RwSignal::new(0),
            best_on_offer: RwSignal::new(None),
            preferred: RwSignal::new(None),
            typed_at: StoredValue::new(None),
            leaving: StoredValue::new(None),
            root: StoredValue::new(Owner::current().unwrap_or_default()),
            kept: StoredValue::new_local(VecDeque::new()),
        }
    }

    /// Follows the library, and goes where the page was last.
    pub(crate) fn begin(self) -> Follower {
        ipc::on_page_event(move |event| {
            let leaves = match event {
                PageEvent::Leaving | PageEvent::Hidden => true,
                PageEvent::Shown => false,
            };
            if leaves && let Some(save) = self.leaving.get_value() {
                // The composer that wanted it may be gone, and saved on its way out.
                save.try_run(());
            }
        });
        self.wishes.follow(self);
        ipc::on_look(move |looks| set_if_new(self.looked_at, looks));
        follow::library(self)
    }

    /// What is run when the page is about to go.
    pub(crate) fn on_leaving(self, save: impl Fn() + Send + Sync + 'static) {
        self.leaving
            .set_value(Some(Callback::new(move |()| save())));
    }

    /// Opens a session: at once if it is still painted.
    pub(crate) fn open(self, session: SessionId) {
        self.show_chat();
        self.close_overlay();
        set_if_new(self.player, None);
        if self.session.get_untracked() == Some(session) {
            self.take_attention();
            return;
        }
        self.leave_pane();
        let again = self.kept.try_update_value(|kept| {
            let at = kept.iter().position(|k| k.pane.session == session)?;
            let found = kept.remove(at)?;
            found.follower.resume();
            let pane = found.pane;
            kept.push_back(found);
            Some(pane)
        });
        let pane = again.flatten().unwrap_or_else(|| {
            // Not a child of whoever opened it: a pane outlives the row that was clicked.
            let owner = self.root.with_value(|root| root.with(Owner::new));
            let (pane, follower) = Pane::open(session, &owner);
            let mut dropped = None;
            self.kept.update_value(|kept| {
                kept.push_back(Kept {
                    pane,
                    follower,
                    owner,
                });
                if kept.len() > PANES_KEPT {
                    dropped = kept.pop_front();
                }
            });
            if let Some(dropped) = dropped {
                drop_pane(dropped);
            }
            pane
        });
        ipc::keep_preference("session", &session.to_string());
        self.session.set(Some(session));
        self.pane.set(Some(pane));
        self.take_attention();
    }

    /// Back from the large image to where it was opened.
    pub(crate) fn close_large_image(self) {
        if let Some(image) = self.large_image.get_untracked() {
            self.large_image.set(None);
            ipc::focus(&format!("[data-image='{}']", image.image));
        }
    }

    /// Whether the present model sees images, where its server tells.
    pub(crate) fn sees_images(self) -> Option<bool> {
        let model = self.model()?;
        self.catalog.offers.with(|offers| {
            let offered = offers.get(&model.provider)?;
            let known = offered
                .models
                .iter()
                .find(|known| known.name == model.model)?;
            known.sees_images()
        })
    }

    /// Goes to the session not begun yet.
    pub(crate) fn open_new(self) {
        self.show_chat();
        self.close_overlay();
        set_if_new(self.player, None);
        self.leave_pane();
        ipc::keep_preference("session", "");
        self.session.set(None);
        self.pane.set(None);
        self.take_attention();
    }

    /// Shows what the shell wished.
    pub(crate) fn show(self, show: Show) {
        match show {
            Show::NewChat => self.open_new(),
            Show::Session { session } => self.open(session),
        }
    }

    /// Opens the chat that is open here in a window of its own as well, or the one named.
    pub(crate) fn open_window(self, session: Option<SessionId>) {
        let session = session.or_else(|| self.session.get_untracked());
        let show = session.map_or(Show::NewChat, |session| Show::Session { session });
        self.close_overlay();
        ipc::spawn(async move {
            if let Err(error) = ipc::open_window(&OpenWindowArgs { show }).await {
                self.tell(&error);
            }
        });
    }

    /// What this window is to begin with: what the shell says, or the session that was open when a page was last left.
    pub(crate) fn reopen(self, first: Option<Show>) {
        let session = match first {
            Some(Show::NewChat) => return,
            Some(Show::Session { session }) => Some(session),
            None => ipc::preference("session").and_then(|id| id.parse().ok()),
        };
        let listed = |session: &SessionId| {
            self.library.shelves.with_untracked(|shelves| {
                shelves.iter().any(|shelf| shelf.sessions.contains(session))
            })
        };
        if let Some(session) = session.filter(listed) {
            self.open(session);
        }
    }

    /// Leaves the settings. Where the chat is shown already it stays as it is, and is not drawn anew.
    pub(crate) fn show_chat(self) {
        set_if_new(self.screen, Screen::Chat);
    }

    /// Opens the settings.
    pub(crate) fn open_settings(self, part: SettingsPart) {
        self.close_overlay();
        set_if_new(self.player, None);
        self.screen.set(Screen::Settings(part));
    }

    /// Shows a turn again, in the place of its conversation.
    pub(crate) fn replay(self, session: SessionId, turn: TurnId) {
        self.close_overlay();
        set_if_new(self.player, Some(Replay { session, turn }));
    }

    /// Shows the last turn of the open session that has ended again; says whether there is one.
    pub(crate) fn replay_last(self) -> bool {
        let pane = self.pane.get_untracked();
        let last = pane.and_then(|pane| Some((pane.session, pane.last_ended()?)));
        if let Some((session, turn)) = last {
            self.show_chat();
            self.replay(session, turn);
        }
        last.is_some()
    }

    /// Back to the conversation as it is, and the focus to where it came from.
    pub(crate) fn close_player(self) {
        let Some(replay) = self.player.get_untracked() else {
            return;
        };
        self.player.set(None);
        ipc::spawn(async move {
            // What lies beneath takes no focus until it is drawn as being within reach again.
            ipc::next_frame_or(100).await;
            if !ipc::focus(&format!("#{}", turn::replay_id(replay.turn))) {
                self.take_attention();
            }
        });
    }

    /// Hides the sidebar: folds it, or closes the drawer.
    pub(crate) fn hide_sidebar(self) {
        if self.overlay.get_untracked() == Some(Overlay::Drawer) {
            self.close_overlay();
        } else {
            self.toggle_sidebar();
        }
    }

    /// Something was sent: the view goes to its end.
    pub(crate) fn note_sent(self) {
        // What was being written is said.
        self.typed_at.set_value(None);
        self.sent.update(|sent| *sent += 1);
    }

    /// Sends something in the open session.
    pub(crate) fn send_in(self, op: Op) {
        ipc::spawn(async move {
            match self.submit(op).await {
                Ok(_) => {
                    self.note_sent();
                    self.take_attention();
                }
                Err(error) => self.tell(&error),
            }
        });
    }

    /// Adds a model server; the first one's best model is what one begins with.
    pub(crate) async fn add_provider(
        self,
        provider: Provider,
        models: Vec<Model>,
    ) -> Result<(), CallError> {
        let (id, name) = (provider.id, provider.name.clone());
        self.submit(Op::AddProvider { provider }).await?;
        if self.model_untracked().is_none()
            && let Some(model) = first_choice(&models)
        {
            self.model_for_new.set(Some(ModelRef {
                provider: id,
                provider_name: name,
                model: model.name.clone(),
            }));
        }
        self.catalog.note(id, models);
        Ok(())
    }

    /// Opens a link in the system's browser.
    pub(crate) fn open_link(self, url: String) {
        ipc::spawn(async move {
            if let Err(error) = ipc::open_link(&OpenLinkArgs { url }).await {
                self.tell(&error);
            }
        });
    }

    /// Copies a text, and says so.
    pub(crate) fn copy(self, text: String) {
        ipc::spawn(async move {
            if self.copy_quietly(text).await {
                self.toasts.say("Copied");
            }
        });
    }

    /// Copies a text; says only that it could not.
    pub(crate) async fn copy_quietly(self, text: String) -> bool {
        let copied = ipc::copy(text).await;
        if !copied {
            self.toasts.alert("The clipboard cannot be reached");
        }
        copied
    }

    /// Notes that somebody writes.
    pub(crate) fn note_typing(self) {
        self.typed_at.set_value(Some(ipc::now_ms()));
    }

    /// Whether somebody wrote within this time.
    pub(crate) fn typed_within(self, ms: u64) -> bool {
        let at = self.typed_at.get_value();
        at.is_some_and(|at| ipc::now_ms().saturating_sub(at) < ms)
    }

    /// Copies the whole conversation as Markdown, older turns included.
    pub(crate) fn export(self, pane: Pane) {
        ipc::spawn(async move {
            while pane.more_before.try_get_untracked() == Some(true) {
                if !pane.load_older().await {
                    self.toasts
                        .alert("The beginning of this chat cannot be read now; nothing was copied");
                    return;
                }
            }
            if self.copy_quietly(pane.markdown()).await {
                self.toasts.say("The chat was copied as Markdown");
            }
        });
    }

    /// Puts the focus into the composer.
    pub(crate) fn take_attention(self) {
        self.attention.update(|attention| *attention += 1);
    }

    pub(crate) fn close_overlay(self) {
        if self.overlay.get_untracked().is_some() {
            self.overlay.set(None);
        }
    }

    /// Opens an overlay, or closes it if it is the open one.
    pub(crate) fn toggle_overlay(self, overlay: Overlay) {
        self.overlay.update(|open| {
            *open = if *open == Some(overlay) {
                None
            } else {
                Some(overlay)
            };
        });
    }

    pub(crate) fn toggle_sidebar(self) {
        self.folded.update(|folded| *folded = !*folded);
        let folded = self.folded.get_untracked();
        ipc::keep_preference("sidebar", if folded { "folded" } else { "open" });
    }

    /// The model that the next message goes to; none if that is of a server that is not there any more.
    pub(crate) fn model(self) -> Option<ModelRef> {
        let wanted = match self.pane.get() {
            Some(pane) => vec![pane.model.get()],
            None => vec![
                self.model_for_new.get(),
                self.preferred.get(),
                self.library.last_model.get(),
                self.best_on_offer.get(),
            ],
        };
        let mut wanted = wanted.into_iter().flatten();
        wanted.find(|model| self.library.has_provider(model))
    }

    /// Finds the model that one begins with who never chose one: the best that is on offer.
    pub(crate) fn look_for_model(self) {
        if !self.library.loaded.get() || self.pane.get().is_some() || self.model().is_some() {
            return;
        }
        let offers = self.catalog.offers.get();
        for provider in self.library.providers.get() {
            match offers.get(&provider.id) {
                None => self.catalog.ask(provider.id),
                Some(offer) => {
                    if let Some(model) = first_choice(&offer.models) {
                        self.best_on_offer.set(Some(ModelRef {
                            provider: provider.id,
                            provider_name: provider.name,
                            model: model.name.clone(),
                        }));
                        // Whoever started Holdfast may have named one meanwhile.
                        self.ask_preferred();
                        return;
                    }
                }
            }
        }
    }

    /// Asks what the command line prefers; it is known when its server has answered.
    pub(crate) fn ask_preferred(self) {
        ipc::spawn(async move {
            // Without it a new session begins with the last turn's model, which is as good.
            if let Ok(about) = ipc::about().await {
                set_if_new(self.preferred, about.preferred);
            }
        });
    }

    /// The model of a new session, as soon as one is known; a server is just being asked.
    pub(crate) async fn model_in_time(self) -> Option<ModelRef> {
        let mut left_ms = MODEL_WAIT_MS;
        while left_ms > 0 && !self.library.providers.with_untracked(Vec::is_empty) {
            if let Some(model) = self.model_untracked() {
                return Some(model);
            }
            ipc::sleep(MODEL_LOOK_MS).await;
            left_ms = left_ms.saturating_sub(MODEL_LOOK_MS);
        }
        self.model_untracked()
    }

    /// The same, asked once.
    pub(crate) fn model_untracked(self) -> Option<ModelRef> {
        untrack(move || self.model())
    }

    /// Opens the model picker, and asks the servers what they offer.
    pub(crate) fn open_models(self) {
        let providers = self.library.providers.get_untracked();
        self.catalog.ask_all(&providers);
        self.show_chat();
        self.overlay.set(Some(Overlay::Models));
    }

    /// Chooses the model of the open session, or of the one not begun yet.
    pub(crate) fn choose_model(self, model: ModelRef) {
        self.catalog.note_use(&model);
        match self.session.get_untracked() {
            Some(session) => self.act(Op::ChooseModel { session, model }),
            None => self.model_for_new.set(Some(model)),
        }
    }

    /// The folder whose files the next turn's tools see.
    pub(crate) fn folder(self) -> Option<String> {
        match self.pane.get() {
            Some(pane) => pane.folder.get(),
            None => self.folder_for_new.get(),
        }
    }

    /// Chooses the folder of the open session, or of the one not begun yet.
    pub(crate) async fn choose_folder(self, folder: Option<String>) -> Result<(), CallError> {
        match self.session.get_untracked() {
            Some(session) => self
                .submit(Op::ChooseFolder { session, folder })
                .await
                .map(drop),
            None => {
                self.folder_for_new.set(folder);
                Ok(())
            }
        }
    }

    /// How the next turn asks, as far as the chat says it.
    pub(crate) fn options(self) -> ModelOptions {
        match self.pane.get() {
            Some(pane) => pane.options.get(),
            None => self.options_for_new.get(),
        }
    }

    /// Chooses the options of the open session, or of the one not begun yet.
    pub(crate) async fn choose_options(self, options: ModelOptions) -> Result<(), CallError> {
        match self.session.get_untracked() {
            Some(session) => self
                .submit(Op::ChooseOptions { session, options })
                .await
                .map(drop),
            None => {
                self.options_for_new.set(options);
                Ok(())
            }
        }
    }

    /// Puts a session into the bin, and offers to take it out again.
    pub(crate) fn bin(self, session: SessionId) {
        let title = self
            .library
            .row(session)
            .map(|row| row.summary.with_untracked(|s| s.title.clone()))
            .unwrap_or_default();
        ipc::spawn(async move {
            match self.submit(Op::BinSession { session }).await {
                Ok(_) => {
                    if self.session.get_untracked() == Some(session) {
                        self.open_new();
                    }
                    self.toasts
                        .say_with_undo(format!("“{title}” is in the bin"), move || {
                            self.act(Op::UnbinSession { session });
                        });
                }
                Err(error) => self.tell(&error),
            }
        });
    }

    /// The model of a server that was used last, if that was one of its.
    pub(crate) fn model_for(self, provider: ProviderId) -> Option<String> {
        let last = self.library.last_model.get_untracked();
        last.filter(|last| last.provider == provider)
            .map(|last| last.model)
    }

    /// Removes a model server, and offers to bring it back.
    pub(crate) fn remove_provider(self, provider: Provider) {
        ipc::spawn(async move {
            let op = Op::RemoveProvider {
                provider: provider.id,
            };
            match self.submit(op).await {
                Ok(_) => {
                    let words = format!("“{}” was removed", provider.name);
                    self.toasts.say_with_undo(words, move || {
                        self.act(Op::AddProvider {
                            provider: provider.clone(),
                        });
                    });
                }
                Err(error) => self.tell(&error),
            }
        });
    }

    /// Stops the running turn of the open session, and gives the focus back to the composer.
    pub(crate) fn stop(self) {
        let Some(pane) = self.pane.get_untracked() else {
            return;
        };
        if let Some(turn) = pane.running.get_untracked() {
            self.act(Op::CancelTurn {
                session: pane.session,
                turn,
            });
            self.take_attention();
        }
    }

    /// Submits an op whose success shows itself, and says so when it has none.
    pub(crate) fn act(self, op: Op) {
        ipc::spawn(async move {
            if let Err(error) = self.submit(op).await {
                self.tell(&error);
            }
        });
    }

    /// Says that a turn's end was seen, for as long as `seen` says so and nobody has heard it.
    pub(crate) fn note_seen(self, session: SessionId, turn: TurnId, seen: Memo<Option<TurnId>>) {
        let op_id = OpId::from_bits(ipc::random_bits());
        ipc::spawn(async move {
            while seen.try_get_untracked() == Some(Some(turn)) {
                let op = Op::NoteSeen { session, turn };
                match self.submit_as(op_id, op).await {
                    // A refusal is no news to the reader; the mark stays, and is honest.
                    Ok(_) | Err(CallError::Refused(_)) => return,
                    Err(CallError::Lost(_)) => ipc::sleep(SEEN_PAUSE_MS).await,
                }
            }
        });
    }

    /// Submits an op under a new id.
    pub(crate) async fn submit(self, op: Op) -> Result<Receipt, CallError> {
        self.submit_as(OpId::from_bits(ipc::random_bits()), op)
            .await
    }

    /// Submits an op under an id of the caller, who may come back with both after a lost answer.
    pub(crate) async fn submit_as(self, op_id: OpId, op: Op) -> Result<Receipt, CallError> {
        let args = SubmitArgs { op_id, op };
        let mut tries = 1;
        loop {
            let answer = ipc::within(SUBMIT_LIMIT_MS, ipc::submit(&args)).await;
            match answer {
                Err(CallError::Lost(_)) if tries < SUBMIT_TRIES => {
                    tries += 1;
                    ipc::sleep(SUBMIT_PAUSE_MS).await;
                }
                Ok(_) | Err(CallError::Lost(_) | CallError::Refused(_)) => return answer,
            }
        }
    }

    /// Says it where it was asked, and where that is gone by now, as [`Self::tell`] does.
    pub(crate) fn tell_at(self, words: RwSignal<Option<String>>, error: &CallError) {
        if words.try_set(Some(refusal_words(error))).is_some() {
            self.tell(error);
        }
    }

    /// Says that something could not be done: calmly where nothing is broken.
    pub(crate) fn tell(self, error: &CallError) {
        match error {
            CallError::Refused(ErrorReport { code, .. }) => match code {
                ErrorCode::AlreadyResolved { resolution } => {
                    self.toasts
                        .say(sentence(&words::already_resolved(*resolution)));
                }
                ErrorCode::TurnActive
                | ErrorCode::StaleHead
                | ErrorCode::NotFound
                | ErrorCode::Gone
                | ErrorCode::ShuttingDown
                | ErrorCode::Superseded
                | ErrorCode::UnknownEpoch => self.toasts.say(sentence(&error.to_string())),
                ErrorCode::OpIdConflict
                | ErrorCode::Invalid { .. }
                | ErrorCode::StorageFailed
                | ErrorCode::ProtocolMismatch
                | ErrorCode::Other => self.toasts.alert(sentence(&error.to_string())),
            },
            CallError::Lost(words) => self
                .toasts
                .alert(format!("Holdfast's engine did not answer ({words})")),
        }
    }

    fn leave_pane(self) {
        self.kept.update_value(|kept| {
            if let Some(open) = self.session.get_untracked()
                && let Some(left) = kept.iter().find(|k| k.pane.session == open)
            {
                left.follower.pause();
            }
        });
    }
}

/// The follower ends first: nothing may write into a signal that is gone.
fn drop_pane(kept: Kept) {
    drop(kept.follower);
    kept.owner.cleanup();
}

/// A provider as it is first added.
pub(crate) fn new_provider(name: String, dialect: protocol::Dialect, base_url: String) -> Provider {
    Provider {
        id: ProviderId::from_bits(ipc::random_bits()),
        name,
        dialect,
        base_url,
        num_ctx: None,
        keep_alive: None,
        files: Vec::new(),
        think: protocol::Think::ServerDefault,
        limits: None,
        connection: protocol::Connection::default(),
    }
}

/// What a server is called before anyone gave it a name: its host, and the port where that tells more.
pub(crate) fn name_of_address(base_url: &str) -> String {
    if is_folder(base_url) {
        return "This computer".to_owned();
    }
    let after_scheme = base_url.split("://").last().unwrap_or(base_url);
    let host = after_scheme.split('/').next().unwrap_or(after_scheme);
    match host {
        "localhost:11434" | "127.0.0.1:11434" => "Ollama on this computer".to_owned(),
        "localhost:1234" | "127.0.0.1:1234" => "LM Studio on this computer".to_owned(),
        "localhost:8080" | "127.0.0.1:8080" => "llama.cpp on this computer".to_owned(),
        _ => host
            .strip_suffix(":11434")
            .or_else(|| host.strip_suffix(":80"))
            .unwrap_or(host)
            .to_owned(),
    }
}

/// Whether it is the path of a folder of model files, on whichever system.
fn is_folder(address: &str) -> bool {
    let drive = address.as_bytes().get(1..3);
    address.starts_with('/') || drive.is_some_and(|at| matches!(at, [b':', b'\\' | b'/']))
}
