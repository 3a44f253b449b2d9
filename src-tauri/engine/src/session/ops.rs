//! What is asked of a session: each op checked against what is there now, and answered after its commit.

use std::path::Path;

use protocol::{
    Answer, Draft, ErrorCode, ErrorReport, EventBody, IMAGES_MAX, Image, ItemBody, ItemId,
    MessagePurpose, ModelOptions, ModelRef, Op, OpId, Origin, OutcomeKind, Receipt, Resolution,
    RewindFor, Seq, StreamId, TitleBy, TurnId,
};

use super::{Session, Stamp, Written};
use crate::{
    log::{Derived, Durability, OpDigest},
    mutant::mutated,
    refusal::{commit_report, invalid, read_report, usable_options},
    sample,
    turn::{self, Answered},
};

/// Longest title taken from a message, in characters: what fits a list's line.
const TITLE_CHARS: usize = 60;

/// What the model is asked by Continue. Told to the model, not shown as the user's own words.
const GO_ON: &str = "Your last answer did not come to its end. Please go on exactly where it stopped, without repeating what it said.";

impl Session {
    /// Writes what an op does; an error is worded for whoever asked.
    pub(super) async fn save(
        &mut self,
        written: Written,
        durability: Durability,
    ) -> Result<Receipt, ErrorReport> {
        self.write(written, durability)
            .await
            .map_err(|e| commit_report(&e))
    }

    // Ops.

    pub(super) async fn op(&mut self, op_id: OpId, op: Op) -> Result<Receipt, ErrorReport> {
        let digest = OpDigest::of(&op)?;
        // An op that ran before is answered as it was then, whatever has happened since.
        if !mutated!(self.shared.harness, NoOpId)
            && let Some(receipt) = self.shared.ran_before(op_id, digest).await?
        {
            return Ok(receipt);
        }
        if self.unsaved.is_some() {
            self.save_unsaved().await;
        }
        let stamp = Some((op_id, digest));
        match op {
            Op::StartSession {
                model,
                text,
                images,
                folder,
                options,
                ..
            } => {
                let beginning = Beginning {
                    model,
                    draft: Draft { text, images },
                    folder,
                    options,
                };
                self.start(stamp, op_id, beginning).await
            }
            Op::AddSample { .. } => self.add_sample(stamp, op_id).await,
            Op::SendMessage { text, images, .. } => {
                self.send(stamp, op_id, Draft { text, images }).await
            }
            Op::RetryTurn {
                turn, expected_tip, ..
            } => self.rewind(stamp, op_id, turn, None, expected_tip).await,
            Op::RestoreTurn {
                turn, expected_tip, ..
            } => self.restore(stamp, turn, expected_tip).await,
            Op::EditMessage {
                turn,
                text,
                images,
                expected_tip,
                ..
            } => {
                let words = Edit { text, images };
                self.rewind(stamp, op_id, turn, Some(words), expected_tip)
                    .await
            }
            Op::RenameSession { title, .. } => self.rename(stamp, &title).await,
            Op::BinSession { session } => {
                self.shelve(stamp, EventBody::SessionBinned { session })
                    .await
            }
            Op::UnbinSession { session } => {
                self.shelve(stamp, EventBody::SessionUnbinned { session })
                    .await
            }
            Op::NoteSeen { turn, .. } => self.note_seen(stamp, turn).await,
            Op::ChooseModel { model, .. } => self.choose_model(stamp, model).await,
            Op::ChooseFolder { folder, .. } => self.choose_folder(stamp, folder).await,
            Op::ChooseOptions { options, .. } => self.choose_options(stamp, options).await,
            Op::ContinueTurn {
                turn, expected_tip, ..
            } => self.go_on(stamp, op_id, turn, expected_tip).await,
            Op::AnswerApproval {
                turn, item, answer, ..
            } => self.answer(stamp, turn, item, answer).await,
            Op::CancelTurn { .. }
            | Op::ChangeTimeLimits { .. }
            | Op::ChooseFallbacks { .. }
            | Op::ChangeModelOptions { .. }
            | Op::PullModel { .. }
            | Op::CancelPull { .. }
            | Op::AddModelFile { .. }
            | Op::ChoosePrices { .. }
            | Op::AddProvider { .. }
            | Op::ChangeProvider { .. }
            | Op::RemoveProvider { .. } => Err(ErrorReport::new(
                ErrorCode::Other,
                "This is not asked of a session.",
            )),
        }
    }

    async fn start(
        &mut self,
        op: Stamp,
        op_id: OpId,
        beginning: Beginning,
    ) -> Result<Receipt, ErrorReport> {
        self.must_be_new()?;
        let Beginning {
            model,
            draft,
            folder,
            options,
        } = beginning;
        let options = usable_options(options)?;
        let session = self.id;
        let message = self.message(draft.clone()).await?;
        let title = title_of(&draft);
        let folder = usable_folder(folder).await?;
        let mut before = vec![
            (
                None,
                EventBody::SessionStarted {
                    session,
                    origin: Origin::Conversation,
                },
            ),
            (
                None,
                EventBody::SessionRenamed {
                    title: title.clone(),
                    by: TitleBy::Holdfast,
                },
            ),
        ];
        if folder.is_some() {
            before.push((None, EventBody::FolderChosen { folder }));
        }
        if !options.is_empty() {
            before.push((None, EventBody::OptionsChosen { options }));
        }
        let library = vec![EventBody::SessionListed {
            session,
            title,
            origin: Origin::Conversation,
        }];
        let written = Written {
            bodies: before,
            library,
            derived: vec![Derived::DraftSent {
                session: None,
                draft,
            }],
            op,
        };
        self.begin_turn(written, op_id, model, message).await
    }

    async fn send(&mut self, op: Stamp, op_id: OpId, draft: Draft) -> Result<Receipt, ErrorReport> {
        self.must_be_idle()?;
        let model = self.model()?;
        let message = self.message(draft.clone()).await?;
        let written = Written {
            derived: vec![Derived::DraftSent {
                session: Some(self.id),
                draft,
            }],
            op,
            ..Written::default()
        };
        self.begin_turn(written, op_id, model, message).await
    }

    async fn rewind(
        &mut self,
        op: Stamp,
        op_id: OpId,
        turn: TurnId,
        words: Option<Edit>,
        expected_tip: Seq,
    ) -> Result<Receipt, ErrorReport> {
        self.must_be_idle()?;
        self.must_be_at(expected_tip)?;
        let model = self.model()?;
        let purpose = if words.is_some() {
            RewindFor::Edit
        } else {
            RewindFor::Retry
        };
        let message = match words {
            Some(Edit {
                text,
                images: Some(images),
            }) => self.message(Draft { text, images }).await?,
            // It shows what it showed, whatever has become of that.
            Some(Edit { text, images: None }) => Message {
                text,
                ..self.message_of(turn).await?
            }
            .said_anew(),
            None => self.message_of(turn).await?,
        };
        let written = Written {
            bodies: vec![(
                None,
                EventBody::HistoryRewound {
                    from: turn,
                    purpose,
                },
            )],
            derived: vec![Derived::TurnsHidden {
                stream: self.stream(),
                from: turn,
            }],
            op,
            ..Written::default()
        };
        if mutated!(self.shared.harness, EditInTwoOps) {
            return self.save(written, Durability::Disk).await;
        }
        self.begin_turn(written, op_id, model, message).await
    }

    /// Brings back a branch of the conversation; the one that stands now steps aside, and can come back likewise.
    async fn restore(
        &mut self,
        op: Stamp,
        turn: TurnId,
        expected_tip: Seq,
    ) -> Result<Receipt, ErrorReport> {
        self.must_be_idle()?;
        self.must_be_at(expected_tip)?;
        let (id, stream) = (self.id, self.stream());
        let reads = self.shared.log.reads();
        let found = reads.read(move |log| log.branch_of(id, turn)).await;
        let no_such = || {
            ErrorReport::new(
                ErrorCode::NotFound,
                "There is no earlier version of that part of the conversation.",
            )
        };
        let branch = found.map_err(|e| read_report(&e))?.ok_or_else(no_such)?;
        let last = branch.turns.last().copied().ok_or_else(no_such)?;
        let view = self.folded_turn(last).await.map_err(|e| read_report(&e))?;
        let outcome = view.and_then(|view| view.outcome).ok_or_else(no_such)?;
        let library = vec![EventBody::SessionRestored {
            session: self.id,
            turn: last,
            outcome: OutcomeKind::from(&outcome),
        }];
        let (from, turns) = (branch.from, branch.turns);
        let written = Written {
            derived: vec![
                Derived::TurnsHidden { stream, from },
                Derived::TurnsShown {
                    stream,
                    turns: turns.clone(),
                },
            ],
            bodies: vec![(None, EventBody::HistoryRestored { from, turns })],
            library,
            op,
        };
        self.save(written, Durability::Disk).await
    }

    /// A message of the user's, whose images are on the disk.
    async fn message(&self, draft: Draft) -> Result<Message, ErrorReport> {
        let Draft { text, images } = draft;
        if images.len() > IMAGES_MAX {
            let words = format!("A message shows {IMAGES_MAX} images at most; take some out.");
            return Err(invalid("images", &words));
        }
        let mut shown = Vec::new();
        if !images.is_empty() {
            let reads = self.shared.log.reads();
            let asked = images.clone();
            let known = reads.read(move |log| log.known_images(&asked)).await;
            for (image, known) in images.into_iter().zip(known.map_err(|e| read_report(&e))?) {
                match known {
                    Some(known) => shown.push(known),
                    None if mutated!(self.shared.harness, UnknownImageSent) => shown.push(image),
                    None => {
                        let words = format!(
                            "The image {} is not there any more; take it out, or attach it again.",
                            image.name
                        );
                        return Err(invalid("images", &words));
                    }
                }
            }
        }
        Ok(Message {
            text,
            purpose: MessagePurpose::Said,
            images: shown,
        })
    }

    async fn message_of(&self, turn: TurnId) -> Result<Message, ErrorReport> {
        let view = self.folded_turn(turn).await.map_err(|e| read_report(&e))?;
        view.and_then(|view| {
            view.items.into_iter().find_map(|item| match item.body {
                ItemBody::UserMessage {
                    text,
                    purpose,
                    images,
                    ..
                } => Some(Message {
                    text,
                    purpose,
                    images,
                }),
                ItemBody::Text { .. }
                | ItemBody::ToolCall { .. }
                | ItemBody::Compacted { .. }
                | ItemBody::Unsupported { .. } => None,
            })
        })
        .ok_or_else(|| ErrorReport::new(ErrorCode::NotFound, "There is no such message any more."))
    }

    async fn rename(&mut self, op: Stamp, title: &str) -> Result<Receipt, ErrorReport> {
        self.must_exist()?;
        let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
        if title.is_empty() {
            return Err(invalid("title", "A title needs at least one character."));
        }
        let title: String = title.chars().take(500).collect();
        let bodies = vec![(
            None,
            EventBody::SessionRenamed {
                title: title.clone(),
                by: TitleBy::User,
            },
        )];
        let library = vec![EventBody::SessionTitled {
            session: self.id,
            title,
        }];
        let written = Written {
            bodies,
            library,
            op,
            ..Written::default()
        };
        self.save(written, Durability::Process).await
    }

    async fn shelve(&mut self, op: Stamp, body: EventBody) -> Result<Receipt, ErrorReport> {
        self.must_exist()?;
        if matches!(body, EventBody::SessionBinned { .. }) {
            // Nobody watches a session in the bin.
            self.shared.cancel(self.id, None, turn::Cause::UserStop);
        }
        let written = Written {
            library: vec![body],
            op,
            ..Written::default()
        };
        self.save(written, Durability::Process).await
    }

    /// What nobody had seen is news no more. Several windows may say so of the same end, and one of them is written.
    async fn note_seen(&mut self, op: Stamp, turn: TurnId) -> Result<Receipt, ErrorReport> {
        self.must_exist()?;
        let summary = self.shared.shelf.session(self.id).await;
        let unread = summary.map_err(|e| read_report(&e))?.and_then(|s| s.unread);
        let is_news = unread.is_some_and(|unread| unread <= turn);
        if !is_news && !mutated!(self.shared.harness, SeenAgain) {
            return Ok(Receipt {
                stream: StreamId::Library,
                seq: None,
                turn: None,
            });
        }
        let session = self.id;
        let written = Written {
            library: vec![EventBody::SessionSeen { session, turn }],
            op,
            ..Written::default()
        };
        self.save(written, Durability::Process).await
    }

    async fn choose_model(&mut self, op: Stamp, model: ModelRef) -> Result<Receipt, ErrorReport> {
        self.must_exist()?;
        let bodies = vec![(None, EventBody::ModelChosen { model })];
        let written = Written {
            bodies,
            op,
            ..Written::default()
        };
        self.save(written, Durability::Process).await
    }

    /// Records the one answer to a question of the running turn, and tells the turn.
    async fn answer(
        &mut self,
        op: Stamp,
        turn: TurnId,
        item: ItemId,
        answer: Answer,
    ) -> Result<Receipt, ErrorReport> {
        let is_open = self.head.open_turn == Some(turn)
            && self.head.questions.iter().any(|(open, _)| *open == item)
            || mutated!(self.shared.harness, AnyAnswerCounts);
        if !is_open {
            return Err(self.already_answered(turn, item).await?);
        }
        let resolution = Resolution::from(answer);
        let body = EventBody::ApprovalResolved { item, resolution };
        let written = Written {
            bodies: vec![(Some(turn), body)],
            op,
            ..Written::default()
        };
        let receipt = self.save(written, Durability::Disk).await?;
        if let Some(running) = &self.running
            && running.turn == turn
        {
            // A turn that has just ended wants no answer any more; its end closed the call.
            running.answers.give(Answered { item, resolution });
        }
        Ok(receipt)
    }

    /// Why a question that is not open cannot be answered.
    async fn already_answered(
        &self,
        turn: TurnId,
        item: ItemId,
    ) -> Result<ErrorReport, ErrorReport> {
        let view = self.folded_turn(turn).await.map_err(|e| read_report(&e))?;
        let resolution =
            view.iter()
                .flat_map(|view| &view.items)
                .find_map(|view| match &view.body {
                    ItemBody::ToolCall {
                        approval: Some(approval),
                        ..
                    } if approval.item == item => approval.resolution,
                    ItemBody::ToolCall { .. }
                    | ItemBody::UserMessage { .. }
                    | ItemBody::Text { .. }
                    | ItemBody::Compacted { .. }
                    | ItemBody::Unsupported { .. } => None,
                });
        Ok(match resolution {
            Some(resolution) => ErrorReport::new(
                ErrorCode::AlreadyResolved { resolution },
                match resolution {
                    Resolution::AllowedOnce => "This was answered already: allowed once.",
                    Resolution::AllowedForSession => {
                        "This was answered already: allowed for this conversation."
                    }
                    Resolution::Denied => "This was answered already: not allowed.",
                    Resolution::Expired => "This question expired when its turn ended.",
                },
            ),
            None => ErrorReport::new(ErrorCode::NotFound, "There is no such question."),
        })
    }

    async fn choose_folder(
        &mut self,
        op: Stamp,
        folder: Option<String>,
    ) -> Result<Receipt, ErrorReport> {
        self.must_be_idle()?;
        let folder = usable_folder(folder).await?;
        let written = Written {
            bodies: vec![(None, EventBody::FolderChosen { folder })],
            op,
            ..Written::default()
        };
        self.save(written, Durability::Process).await
    }

    /// From the next turn on: what runs asks to its end as it began.
    async fn choose_options(
        &mut self,
        op: Stamp,
        options: ModelOptions,
    ) -> Result<Receipt, ErrorReport> {
        self.must_exist()?;
        let options = usable_options(options)?;
        let written = Written {
            bodies: vec![(None, EventBody::OptionsChosen { options })],
            op,
            ..Written::default()
        };
        self.save(written, Durability::Process).await
    }

    /// A new turn that asks the model to go on where the last one's answer stopped.
    async fn go_on(
        &mut self,
        op: Stamp,
        op_id: OpId,
        turn: TurnId,
        expected_tip: Seq,
    ) -> Result<Receipt, ErrorReport> {
        self.must_be_idle()?;
        self.must_be_at(expected_tip)?;
        let model = self.model()?;
        let written = Written {
            op,
            ..Written::default()
        };
        let message = Message {
            text: GO_ON.to_owned(),
            purpose: MessagePurpose::Continue { of: turn },
            images: Vec::new(),
        };
        self.begin_turn(written, op_id, model, message).await
    }

    async fn add_sample(&mut self, op: Stamp, op_id: OpId) -> Result<Receipt, ErrorReport> {
        self.must_be_new()?;
        let session = self.id;
        let (bodies, library) = sample::events(session, self.shared.log.boot(), op_id);
        let turns: Vec<TurnId> = sample::turns(&bodies);
        let written = Written {
            bodies,
            library,
            op,
            ..Written::default()
        };
        let receipt = self.save(written, Durability::Disk).await?;
        for turn in turns {
            self.keep_view(turn);
        }
        Ok(receipt)
    }

    fn must_be_new(&self) -> Result<(), ErrorReport> {
        if self.head.count > 0 {
            return Err(ErrorReport::new(
                ErrorCode::Other,
                "This conversation exists already.",
            ));
        }
        Ok(())
    }

    fn must_exist(&self) -> Result<(), ErrorReport> {
        if self.head.count == 0 {
            return Err(ErrorReport::new(
                ErrorCode::NotFound,
                "There is no such conversation.",
            ));
        }
        Ok(())
    }

    fn must_be_idle(&self) -> Result<(), ErrorReport> {
        self.must_exist()?;
        let unchecked = [
            mutated!(self.shared.harness, NoTurnActive),
            mutated!(self.shared.harness, CheckOutsideTx),
        ];
        if self.head.open_turn.is_some() && !unchecked.contains(&true) {
            return Err(match &self.unsaved {
                Some(_) => ErrorReport::new(
                    ErrorCode::StorageFailed,
                    "The last answer could not be saved yet, so nothing new can begin here.",
                )
                .with_remedy("make room on the disk and try again"),
                None => ErrorReport::new(
                    ErrorCode::TurnActive,
                    "The model is still answering; Esc stops it.",
                ),
            });
        }
        Ok(())
    }

    fn must_be_at(&self, expected_tip: Seq) -> Result<(), ErrorReport> {
        let any_event = mutated!(self.shared.harness, AnyEventIsStale);
        let is_stale = self.head.tip != Some(expected_tip)
            || (any_event && self.head.count > expected_tip.get());
        if !is_stale || mutated!(self.shared.harness, NoExpectedHead) {
            return Ok(());
        }
        Err(ErrorReport::new(
            ErrorCode::StaleHead,
            "This conversation has changed since; have a look at it and try again.",
        ))
    }

    fn model(&self) -> Result<ModelRef, ErrorReport> {
        self.head.model.clone().ok_or_else(|| {
            ErrorReport::new(
                ErrorCode::Invalid {
                    field: "model".into(),
                },
                "No model is chosen yet.",
            )
            .with_remedy("choose one below the text")
        })
    }
}

/// What begins a session.
struct Beginning {
    model: ModelRef,
    draft: Draft,
    folder: Option<String>,
    options: ModelOptions,
}

/// What stands in a message's place.
struct Edit {
    text: String,
    /// Absent: what the message showed.
    images: Option<Vec<Image>>,
}

/// What begins a turn.
pub(super) struct Message {
    pub(super) text: String,
    pub(super) purpose: MessagePurpose,
    pub(super) images: Vec<Image>,
}

impl Message {
    /// The user's own words now, whatever it was before.
    fn said_anew(self) -> Self {
        Self {
            purpose: MessagePurpose::Said,
            ..self
        }
    }
}

/// The folder, if there is one, in its one true form, or words about why tools cannot use it.
async fn usable_folder(typed: Option<String>) -> Result<Option<String>, ErrorReport> {
    let Some(typed) = typed else {
        return Ok(None);
    };
    let typed = typed.trim().to_owned();
    if !Path::new(&typed).is_absolute() {
        return Err(invalid(
            "folder",
            "The path of a folder begins at the root of the disk.",
        ));
    }
    let shown = typed.clone();
    let found = tokio::task::spawn_blocking(move || {
        let folder = std::fs::canonicalize(&typed)?;
        // Reading it now tells of missing rights while the user looks.
        std::fs::read_dir(&folder).map(|_| folder)
    });
    let found = found
        .await
        .unwrap_or_else(|lost| Err(std::io::Error::other(lost)));
    match found.map(|folder| folder.into_os_string().into_string()) {
        Ok(Ok(folder)) => Ok(Some(folder)),
        Ok(Err(_)) => Err(invalid(
            "folder",
            "The name of this folder is not readable as text, so it cannot be used.",
        )),
        Err(error) => Err(invalid(
            "folder",
            &format!("The folder {shown} cannot be used: {error}."),
        )),
    }
}

impl OpDigest {
    /// FNV-1a, 128 bits, of the op's JSON: stable between versions, which `std`'s hashers are not.
    pub(crate) fn of(op: &Op) -> Result<Self, ErrorReport> {
        let text = serde_json::to_vec(op).map_err(|error| {
            tracing::error!(%error, "an op has no JSON form");
            ErrorReport::new(ErrorCode::Other, "This cannot be stored.")
        })?;
        let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        for byte in text {
            hash ^= u128::from(byte);
            hash = hash.wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
        Ok(Self(hash.to_be_bytes()))
    }
}

/// A title for what begins with this.
fn title_of(draft: &Draft) -> String {
    match draft.images.first() {
        Some(image) if draft.text.trim().is_empty() => title_from(&image.name),
        Some(_) | None => title_from(&draft.text),
    }
}

/// A title from the first words of a message.
fn title_from(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= TITLE_CHARS {
        return line;
    }
    let cut: String = line.chars().take(TITLE_CHARS).collect();
    let words = match cut.rfind(' ') {
        Some(space) if space > 20 => cut.get(..space).unwrap_or(&cut),
        Some(_) | None => cut.as_str(),
    };
    format!("{words}…")
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use protocol::SessionId;

    use super::*;

    #[test]
    fn a_title_is_the_first_words_of_the_message() {
        assert_eq!(
            title_from("  What is\n\na holdfast? "),
            "What is a holdfast?"
        );
        let long =
            "Please explain in great detail how the holdfast of a kelp grips the stone below";
        assert_eq!(
            title_from(long),
            "Please explain in great detail how the holdfast of a kelp…"
        );
        assert_eq!(
            title_from(&"x".repeat(100)).chars().count(),
            TITLE_CHARS + 1
        );
    }

    #[test]
    fn the_same_op_has_the_same_digest_and_another_has_another() {
        let op = |title: &str| Op::RenameSession {
            session: SessionId::from_bits(7),
            title: title.into(),
        };
        let digest = |title| OpDigest::of(&op(title)).unwrap();
        assert_eq!(digest("a"), digest("a"));
        assert_ne!(digest("a"), digest("b"));
    }

    #[test]
    fn cancel_is_cloneable_and_the_first_cause_wins() {
        let (cancel, cancelled) = turn::cancel_channel();
        cancel.clone().cancel(turn::Cause::UserStop);
        cancel.cancel(turn::Cause::StorageFailed);
        let mut cancelled = cancelled;
        assert_eq!(
            cancelled.fired().now_or_never(),
            Some(turn::Cause::UserStop)
        );
    }
}
