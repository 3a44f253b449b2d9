//! The JSON of `list`, `show`, `events` and `health`: for programs, so a field means the same for ever.

use protocol::{
    Event, ModelOptions, ModelRef, Origin, Place, SessionId, SessionSummary, StreamId, Timestamp,
    TranscriptPage, TurnView,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::words;

/// One session of `list --json`.
#[derive(Debug, Serialize)]
pub(super) struct Listed<'a> {
    id: SessionId,
    title: &'a str,
    state: &'static str,
    created_at: Timestamp,
    active_at: Timestamp,
    origin: Origin,
    #[serde(skip_serializing_if = "is_false")]
    unread: bool,
    #[serde(skip_serializing_if = "is_false")]
    bin: bool,
}

impl<'a> From<&'a SessionSummary> for Listed<'a> {
    fn from(session: &'a SessionSummary) -> Self {
        Self {
            id: session.session,
            title: &session.title,
            state: words::state(session.state),
            created_at: session.created_at,
            active_at: session.active_at,
            origin: session.origin,
            unread: session.unread.is_some(),
            bin: match session.place {
                Place::Shelf => false,
                Place::Bin => true,
            },
        }
    }
}

/// `show --json`.
#[derive(Debug, Serialize)]
pub(super) struct Shown<'a> {
    id: SessionId,
    title: &'a str,
    state: &'static str,
    model: Option<&'a ModelRef>,
    folder: Option<&'a str>,
    #[serde(skip_serializing_if = "ModelOptions::is_empty")]
    options: &'a ModelOptions,
    turns: Vec<ShownTurn<'a>>,
}

/// A turn: its view's own fields, its state in one word, and nothing left out because it is not there yet.
#[derive(Debug, Serialize)]
struct ShownTurn<'a> {
    turn: u64,
    state: &'static str,
    model: &'a ModelRef,
    started_at: Timestamp,
    ended_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    slept: &'a [protocol::Slept],
    items: Vec<ShownItem<'a>>,
    attempts: &'a [protocol::AttemptView],
    outcome: Option<&'a protocol::TurnOutcome>,
}

impl<'a> From<&'a TurnView> for ShownTurn<'a> {
    fn from(turn: &'a TurnView) -> Self {
        Self {
            turn: turn.turn.get(),
            state: words::turn_state(turn.outcome.as_ref()),
            model: &turn.model,
            started_at: turn.started_at,
            ended_at: turn.ended_at,
            slept: &turn.slept,
            items: turn.items.iter().map(ShownItem::from).collect(),
            attempts: &turn.attempts,
            outcome: turn.outcome.as_ref(),
        }
    }
}

/// An item as one flat object, its kind beside its text.
#[derive(Debug, Serialize)]
struct ShownItem<'a> {
    item: protocol::ItemId,
    began_at: Timestamp,
    changed_at: Timestamp,
    #[serde(flatten)]
    body: &'a protocol::ItemBody,
}

impl<'a> From<&'a protocol::ItemView> for ShownItem<'a> {
    fn from(item: &'a protocol::ItemView) -> Self {
        Self {
            item: item.item,
            began_at: item.began_at,
            changed_at: item.changed_at,
            body: &item.body,
        }
    }
}

impl<'a> From<&'a TranscriptPage> for Shown<'a> {
    fn from(page: &'a TranscriptPage) -> Self {
        Self {
            id: page.session,
            title: &page.title,
            state: state(page),
            model: page.model.as_ref(),
            folder: page.folder.as_deref(),
            options: &page.options,
            turns: page.turns.iter().map(ShownTurn::from).collect(),
        }
    }
}

/// `health --json`: what a data folder holds; what was counted belongs to the process that counted.
#[derive(Debug, Serialize)]
pub(super) struct Health<'a> {
    data_dir: &'a str,
    database_bytes: u64,
    free_bytes: Option<u64>,
    last_backup: Option<&'a str>,
    salvages: &'a [protocol::Salvage],
}

impl<'a> From<&'a protocol::HealthReport> for Health<'a> {
    fn from(report: &'a protocol::HealthReport) -> Self {
        Self {
            data_dir: &report.data_dir,
            database_bytes: report.database_bytes,
            free_bytes: report.free_bytes,
            last_backup: report.last_backup.as_deref(),
            salvages: &report.salvages,
        }
    }
}

/// What a session's last turn is doing, or how it ended.
pub(super) fn state(page: &TranscriptPage) -> &'static str {
    page.turns
        .last()
        .map_or("empty", |turn| words::turn_state(turn.outcome.as_ref()))
}

/// One event as one flat object: where it stands, then its kind and the kind's own fields.
///
/// # Errors
/// None that an event of ours can cause; a number that JSON lacks would be one.
pub(super) fn event(stream: StreamId, event: &Event) -> serde_json::Result<Value> {
    let mut line = Map::new();
    line.insert("stream".to_owned(), json!(stream));
    line.insert("seq".to_owned(), json!(event.seq));
    line.insert("at".to_owned(), json!(event.at));
    line.insert("turn".to_owned(), json!(event.turn));
    if let Value::Object(body) = serde_json::to_value(&event.body)? {
        for (field, value) in body {
            // `SessionTurnStarted` and the like name a turn of another stream; theirs is the one that is meant.
            line.insert(field, value);
        }
    }
    Ok(Value::Object(line))
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks with a reference"
)]
const fn is_false(value: &bool) -> bool {
    !*value
}

#[cfg(test)]
mod tests {
    use protocol::{
        ApprovalView, Cursor, Effect, EventBody, Intent, InterruptedWhy, ItemBody, ItemId,
        ItemView, LogId, MessagePurpose, OpId, OutcomeKind, Part, ProviderId, Resolution, Seq,
        SessionState, ToolOutcome, ToolState, TurnId, TurnOutcome,
    };

    use super::*;

    fn model() -> ModelRef {
        ModelRef {
            provider: ProviderId::from_bits(5),
            provider_name: "Ollama".to_owned(),
            model: "m".to_owned(),
        }
    }

    #[test]
    fn a_listed_session_has_the_fields_that_programs_rely_on() {
        let mut session = SessionSummary {
            session: SessionId::from_bits(1),
            title: "T".to_owned(),
            origin: Origin::Conversation,
            created_at: Timestamp::from_millis(10),
            active_at: Timestamp::from_millis(20),
            state: SessionState::Ended {
                outcome: OutcomeKind::Interrupted,
            },
            unread: None,
            place: Place::Shelf,
        };
        let id = "00000000000000000000000000000001";
        assert_eq!(
            json!(Listed::from(&session)),
            json!({"id": id, "title": "T", "state": "interrupted", "created_at": 10,
                "active_at": 20, "origin": "Conversation"})
        );
        session.place = Place::Bin;
        session.state = SessionState::Running {
            turn: TurnId::FIRST,
        };
        assert_eq!(
            json!(Listed::from(&session)),
            json!({"id": id, "title": "T", "state": "running", "created_at": 10,
                "active_at": 20, "origin": "Conversation", "bin": true})
        );
    }

    #[test]
    fn a_shown_session_has_its_turns_with_items_and_outcome() {
        let at = Timestamp::from_millis(10);
        let item = |number, body| ItemView {
            item: ItemId::new(number),
            began_at: at,
            changed_at: at,
            body,
        };
        let page = TranscriptPage {
            session: SessionId::from_bits(1),
            title: "T".to_owned(),
            origin: Origin::Conversation,
            model: Some(model()),
            folder: None,
            options: protocol::ModelOptions::default(),
            turns: vec![TurnView {
                turn: TurnId::FIRST,
                model: model(),
                started_at: at,
                items: vec![
                    item(
                        1,
                        ItemBody::UserMessage {
                            text: "hi".to_owned(),
                            op: OpId::from_bits(2),
                            purpose: MessagePurpose::Said,
                            images: Vec::new(),
                        },
                    ),
                    item(
                        2,
                        ItemBody::Text {
                            part: Part::Answer,
                            text: "hel".to_owned(),
                            open: false,
                        },
                    ),
                ],
                attempts: vec![],
                outcome: Some(TurnOutcome::Interrupted {
                    why: InterruptedWhy::Crash,
                }),
                slept: Vec::new(),
                ended_at: Some(at),
            }],
            more_before: false,
            taken_out: None,
            tip: None,
            as_of: Cursor::at_start(LogId::from_bits(1)),
        };
        let asked = json!({"provider": "00000000000000000000000000000005", "provider_name": "Ollama", "model": "m"});
        assert_eq!(
            json!(Shown::from(&page)),
            json!({
                "id": "00000000000000000000000000000001", "title": "T", "state": "interrupted", "model": asked,
                "folder": null,
                "turns": [{
                    "turn": 1, "state": "interrupted", "model": asked, "started_at": 10, "ended_at": 10,
                    "items": [
                        {"item": 1, "began_at": 10, "changed_at": 10, "kind": "UserMessage",
                            "text": "hi", "op": "00000000000000000000000000000002"},
                        {"item": 2, "began_at": 10, "changed_at": 10, "kind": "Text",
                            "part": "answer", "text": "hel", "open": false},
                    ],
                    "attempts": [],
                    "outcome": {"result": "Interrupted", "why": "Crash"},
                }],
            })
        );
    }

    #[test]
    fn an_item_keeps_question_answer_and_effect() {
        let at = Timestamp::from_millis(10);
        let call = ItemView {
            item: ItemId::new(2),
            began_at: at,
            changed_at: at,
            body: ItemBody::ToolCall {
                name: "write_file".to_owned(),
                arguments: "{}".to_owned(),
                call_id: None,
                step: 1,
                state: ToolState::Finished {
                    outcome: ToolOutcome::Abandoned,
                    effect: Effect::Unknown,
                    at,
                },
                approval: Some(ApprovalView {
                    item: ItemId::new(2),
                    intent: Intent::WriteFile {
                        path: "/a".to_owned(),
                        before: None,
                        after: 1,
                        diff: "+x\n".to_owned(),
                        diff_left_out: 0,
                    },
                    may_have_run: true,
                    asked_at: at,
                    resolution: Some(Resolution::AllowedOnce),
                }),
            },
        };
        assert_eq!(
            json!(ShownItem::from(&call)),
            json!({
                "item": 2, "began_at": 10, "changed_at": 10, "kind": "ToolCall", "name": "write_file",
                "arguments": "{}", "step": 1,
                "state": {"state": "Finished", "outcome": {"result": "Abandoned"}, "effect": "unknown", "at": 10},
                "approval": {
                    "item": 2, "asked_at": 10, "may_have_run": true, "resolution": "AllowedOnce",
                    "intent": {"intent": "WriteFile", "path": "/a", "after": 1, "diff": "+x\n", "diff_left_out": 0},
                },
            })
        );
    }

    #[test]
    fn an_event_is_one_flat_object() {
        let appended = Event {
            seq: Seq::new(7),
            at: Timestamp::from_millis(10),
            turn: Some(TurnId::FIRST),
            body: EventBody::TextAppended {
                item: ItemId::new(2),
                part: Part::Answer,
                offset: 0,
                text: "a\nb".to_owned(),
            },
        };
        let line = event(StreamId::Session(SessionId::from_bits(1)), &appended).expect("JSON");
        assert_eq!(
            line,
            json!({"stream": "00000000000000000000000000000001", "seq": 7, "at": 10, "turn": 1,
                "kind": "TextAppended", "item": 2, "part": "answer", "offset": 0, "text": "a\nb"})
        );
        assert!(!line.to_string().contains('\n'), "one line");
    }
}
