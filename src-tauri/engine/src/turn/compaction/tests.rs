//! What is left out of conversations of many shapes.

use protocol::{
    Effect, ItemView, MessagePurpose, ModelRef, OpId, Part, ProviderId, StopReason, Timestamp,
    TurnOutcome,
};

use super::*;

const AT: Timestamp = Timestamp::from_millis(0);

fn turn(number: u64, bodies: Vec<ItemBody>, is_running: bool) -> TurnView {
    let items = bodies
        .into_iter()
        .enumerate()
        .map(|(place, body)| ItemView {
            item: ItemId::new(number * 100 + place as u64),
            began_at: AT,
            changed_at: AT,
            body,
        });
    TurnView {
        turn: TurnId::new(number),
        model: ModelRef {
            provider: ProviderId::from_bits(1),
            provider_name: "box".into(),
            model: "m".into(),
        },
        started_at: AT,
        items: items.collect(),
        attempts: Vec::new(),
        outcome: (!is_running).then_some(TurnOutcome::Completed {
            stop: StopReason::EndOfTurn,
        }),
        slept: Vec::new(),
        ended_at: None,
    }
}

fn asks(text: &str) -> ItemBody {
    ItemBody::UserMessage {
        text: text.into(),
        op: OpId::from_bits(1),
        purpose: MessagePurpose::Said,
        images: Vec::new(),
    }
}

fn says(text: &str) -> ItemBody {
    ItemBody::Text {
        part: Part::Answer,
        text: text.into(),
        open: false,
    }
}

fn read(output: &str) -> ItemBody {
    ItemBody::ToolCall {
        name: "read_file".into(),
        arguments: "{}".into(),
        call_id: None,
        step: 1,
        state: ToolState::Finished {
            outcome: ToolOutcome::Succeeded {
                output: output.into(),
            },
            effect: Effect::None,
            at: AT,
        },
        approval: None,
    }
}

fn compacted(through: u64, summary: &str) -> ItemBody {
    ItemBody::Compacted {
        through: Some(TurnId::new(through)),
        summary: summary.into(),
        set_aside: Vec::new(),
    }
}

/// A tenth of what was sent fits.
const TIGHT: Option<Room> = Some(Room {
    needed: 1_000,
    there_is: 100,
});

#[test]
fn older_turns_are_summed_up_and_the_running_one_stays() {
    let turns = [
        turn(
            1,
            vec![asks("what is kelp"), says(&"seaweed ".repeat(200))],
            false,
        ),
        turn(2, vec![asks("and tides?")], true),
    ];
    let plan = plan(&turns, TurnId::new(2), TIGHT).unwrap();
    assert_eq!(plan.through, Some(TurnId::new(1)));
    assert!(plan.request().is_some());
}

/// A message that shows an image of so many points each way.
fn shows(name: &str, points: u32) -> ItemBody {
    let image = Image {
        image: protocol::ImageId::from_bytes([7; 32]),
        media_type: protocol::MediaType::Png,
        bytes: 1,
        width: points,
        height: points,
        name: name.into(),
    };
    ItemBody::UserMessage {
        text: "and this?".into(),
        op: OpId::from_bits(1),
        purpose: MessagePurpose::Said,
        images: vec![image],
    }
}

#[test]
fn an_image_takes_as_much_room_as_it_has_points_and_is_summed_up_by_its_name() {
    let half = Some(Room {
        needed: 2,
        there_is: 1,
    });
    let through = |points| {
        let mut turns: Vec<TurnView> = (1..=20)
            .map(|n| {
                let asked = match n {
                    20 => shows("kelp.png", points),
                    _ => asks("question"),
                };
                turn(n, vec![asked, says(&"word ".repeat(40))], false)
            })
            .collect();
        turns.push(turn(21, vec![asks("next")], true));
        let plan = plan(&turns, TurnId::new(21), half).unwrap();
        (plan.through.map(TurnId::get), plan.source)
    };
    let (small, source) = through(28);
    assert!(small.is_some_and(|through| through < 20), "{small:?}");
    assert!(!source.contains("kelp.png"), "it stays as it is");
    let (large, source) = through(2_048);
    assert_eq!(large, Some(20));
    assert!(source.contains("[shows kelp.png]"), "{source}");
}

#[test]
fn the_newest_turns_stay_whole_while_they_fit() {
    let mut turns: Vec<TurnView> = (1..=20)
        .map(|n| turn(n, vec![asks("question"), says(&"word ".repeat(40))], false))
        .collect();
    turns.push(turn(21, vec![asks("next")], true));
    let half = Some(Room {
        needed: 2,
        there_is: 1,
    });
    let plan = plan(&turns, TurnId::new(21), half).unwrap();
    let through = plan.through.unwrap().get();
    assert!((15..20).contains(&through), "{through}");
}

#[test]
fn a_conversation_of_one_long_message_has_nothing_to_leave_out() {
    let turns = [turn(1, vec![asks(&"word ".repeat(5_000))], true)];
    assert_eq!(plan(&turns, TurnId::new(1), TIGHT), None);
    assert_eq!(plan(&turns, TurnId::new(1), None), None);
}

#[test]
fn bulky_results_of_the_running_turn_are_set_aside_and_small_ones_and_the_newest_stay() {
    let bulky = "line\n".repeat(2_000);
    let turns = [turn(
        1,
        vec![
            asks("look"),
            read(&bulky),
            read("short"),
            read(&bulky),
            read(&bulky),
        ],
        true,
    )];
    let plan = plan(&turns, TurnId::new(1), TIGHT).unwrap();
    assert_eq!(plan.set_aside, [101, 103].map(ItemId::new));
    assert_eq!(plan.through, None);
    assert_eq!(plan.request(), None);
}

#[test]
fn what_was_summed_up_or_set_aside_is_not_a_second_time() {
    let older = vec![asks("what is kelp"), says(&"seaweed ".repeat(300))];
    let turns = [
        turn(1, older, false),
        turn(
            2,
            vec![asks("go"), compacted(1, "they spoke of kelp")],
            true,
        ),
    ];
    assert_eq!(plan(&turns, TurnId::new(2), TIGHT), None);
}

#[test]
fn a_second_summary_is_made_with_the_first_one() {
    let long = "seaweed ".repeat(300);
    let turns = [
        turn(1, vec![asks("what is kelp"), says(&long)], false),
        turn(
            2,
            vec![asks("go"), compacted(1, "FIRST SUMMARY"), says(&long)],
            false,
        ),
        turn(3, vec![asks("next")], true),
    ];
    let roomy = Some(Room {
        needed: 100,
        there_is: 99,
    });
    let mut plan = plan(&turns, TurnId::new(3), roomy).unwrap();
    assert_eq!(plan.through, Some(TurnId::new(2)));
    assert_eq!(plan.source.matches("FIRST SUMMARY").count(), 1);
    plan.unread = 7;
    let summary = plan.with_summary("second".into()).summary;
    assert!(summary.contains("7 bytes"), "{summary}");
}

#[test]
fn a_text_is_cut_between_its_characters_and_says_how_much_is_missing() {
    let text = "ä".repeat(1_000);
    for limit in 0..50 {
        let (cut, unread) = bounded(text.clone(), limit);
        assert!(unread > 0 && cut.contains(&unread.to_string()), "{limit}");
    }
    assert_eq!(bounded(text.clone(), 2_000), (text, 0));
}
