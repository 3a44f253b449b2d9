//! The sample conversation that comes with Holdfast: events like any others, so that everything about a session can be
//! tried without a model server.

use protocol::{
    Boot, EventBody, FinishReason, ItemId, MessagePurpose, ModelRef, OpId, Origin, OutcomeKind,
    Part, ProviderId, Purpose, SessionId, StopReason, Timings, TitleBy, TurnId, TurnOutcome, Usage,
};

const TITLE: &str = "A first look (sample)";

/// Asked, thought, answered.
const TURNS: &[(&str, &str, &str)] = &[
    (
        "What is Holdfast?",
        include_str!("sample/1-thought.md"),
        include_str!("sample/1-answer.md"),
    ),
    (
        "Show me what an answer can look like.",
        include_str!("sample/2-thought.md"),
        include_str!("sample/2-answer.md"),
    ),
];

type SessionBodies = Vec<(Option<TurnId>, EventBody)>;

/// The sample's events, for its own stream and for the library.
pub(crate) fn events(session: SessionId, boot: Boot, op: OpId) -> (SessionBodies, Vec<EventBody>) {
    let model = ModelRef {
        provider: ProviderId::from_bits(0),
        provider_name: "Sample".to_owned(),
        model: "recorded".to_owned(),
    };
    let mut bodies = vec![
        (
            None,
            EventBody::SessionStarted {
                session,
                origin: Origin::Sample,
            },
        ),
        (
            None,
            EventBody::SessionRenamed {
                title: TITLE.to_owned(),
                by: TitleBy::Holdfast,
            },
        ),
    ];
    let mut library = vec![EventBody::SessionListed {
        session,
        title: TITLE.to_owned(),
        origin: Origin::Sample,
    }];
    let (mut turn, mut item) = (TurnId::FIRST, ItemId::FIRST);
    for (asked, thought, answered) in TURNS {
        let mut say = |body| bodies.push((Some(turn), body));
        say(EventBody::UserMessageAdded {
            item,
            text: (*asked).to_owned(),
            op,
            purpose: MessagePurpose::Said,
            images: Vec::new(),
        });
        say(EventBody::TurnStarted {
            boot,
            message: item,
            model: model.clone(),
            fallbacks: Vec::new(),
        });
        say(EventBody::StepStarted {
            step: 1,
            attempt: 1,
            model: model.clone(),
            purpose: Purpose::Answer,
        });
        for (part, text) in [(Part::Reasoning, thought), (Part::Answer, answered)] {
            item = item.next();
            let mut offset = 0;
            for line in text.trim_end().split_inclusive('\n') {
                say(EventBody::TextAppended {
                    item,
                    part,
                    offset,
                    text: line.to_owned(),
                });
                offset += line.len() as u64;
            }
        }
        say(EventBody::StepEnded {
            step: 1,
            finish: FinishReason::Stop,
            usage: Usage::default(),
            timings: Timings::default(),
            unread: None,
            unseen_images: 0,
            untold_tools: 0,
        });
        say(EventBody::TurnEnded {
            outcome: TurnOutcome::Completed {
                stop: StopReason::EndOfTurn,
            },
        });
        library.push(EventBody::SessionTurnEnded {
            session,
            turn,
            outcome: OutcomeKind::Completed,
            unread: false,
        });
        item = item.next();
        turn = turn.next();
    }
    (bodies, library)
}

/// The turns among these events.
pub(crate) fn turns(bodies: &SessionBodies) -> Vec<TurnId> {
    let ended = bodies
        .iter()
        .filter(|(_, body)| matches!(body, EventBody::TurnEnded { .. }));
    ended.filter_map(|(turn, _)| *turn).collect()
}
