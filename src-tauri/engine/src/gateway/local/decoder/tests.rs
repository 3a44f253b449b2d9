use proptest::prelude::*;
use protocol::{FailureCode, FinishReason, Part};

use super::*;
use crate::gateway::StepEnd;

const OLDER: &str = "{\"frame\":\"Text\",\"text\":\"stale\"}\n{\"frame\":\"Ended\",\"finish\":\"Stop\",\"usage\":{},\"timings\":{}}\n";
const ASKED: &str = "{\"frame\":\"Asked\",\"ask\":7}\n";
const ANSWER: &str = "{\"frame\":\"Reading\",\"done\":3,\"total\":9}\n{\"frame\":\"Text\",\"text\":\"<think>Wind\"}\n{\"frame\":\"Text\",\"text\":\"</think>Kelp 日\"}\n{\"frame\":\"Call\",\"name\":\"look\",\"arguments\":\"{\\\"at\\\":1}\"}\n{\"frame\":\"Ended\",\"finish\":\"Stop\",\"usage\":{\"prompt_tokens\":9,\"cached_tokens\":3},\"timings\":{\"prompt_ms\":5}}\n";

fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<ModelEvent>, Verdict) {
    let mut decoder = Decoder::of(7);
    let mut events = Vec::new();
    for piece in pieces {
        events.extend(decoder.feed(piece));
    }
    let mut verdict = decoder.finish();
    events.append(&mut verdict.events);
    (joined(events), verdict)
}

fn joined(events: Vec<ModelEvent>) -> Vec<ModelEvent> {
    let mut out: Vec<ModelEvent> = Vec::new();
    for event in events {
        match (out.last_mut(), event) {
            (
                Some(ModelEvent::Text { part, text }),
                ModelEvent::Text {
                    part: next,
                    text: more,
                },
            ) if *part == next => text.push_str(&more),
            (_, event) => out.push(event),
        }
    }
    out
}

fn said(events: &[ModelEvent]) -> Vec<(Part, &str)> {
    events
        .iter()
        .filter_map(|event| match event {
            ModelEvent::Text { part, text } => Some((*part, text.as_str())),
            _ => None,
        })
        .collect()
}

#[test]
fn an_answer_is_what_comes_after_its_own_beginning() {
    let body = format!("{OLDER}{ASKED}{ANSWER}");
    let (events, verdict) = read([body.as_bytes()]);
    assert_eq!(
        said(&events),
        [(Part::Reasoning, "Wind"), (Part::Answer, "Kelp 日")]
    );
    let end: StepEnd = verdict.end.expect("it ended well");
    assert_eq!(end.finish, FinishReason::ToolCalls);
    assert_eq!(end.usage.cached_tokens, Some(3));
    assert_eq!(end.timings.prompt_ms, Some(5));
}

#[test]
fn without_its_own_beginning_nothing_of_it_came() {
    let other = ASKED.replace('7', "6");
    let (events, verdict) = read([format!("{other}{ANSWER}").as_bytes()]);
    assert_eq!(events, []);
    assert_eq!(verdict.end, Err(Fault::Truncated));
}

#[test]
fn a_cut_at_any_byte_is_truncated_and_keeps_what_came() {
    let body = format!("{ASKED}{ANSWER}");
    // The last line without its end is no line.
    for cut in 0..body.len() {
        let (events, verdict) = read([&body.as_bytes()[..cut]]);
        assert!(
            matches!(verdict.end, Err(Fault::Truncated)),
            "cut at {cut}: {:?}",
            verdict.end
        );
        let whole = "Kelp 日";
        assert!(
            said(&events)
                .iter()
                .filter(|(part, _)| *part == Part::Answer)
                .all(|(_, text)| whole.starts_with(text)),
            "cut at {cut}: {events:?}"
        );
    }
}

#[test]
fn the_load_is_told_to_whoever_waits_and_measured() {
    let body = format!(
        "{{\"frame\":\"Ready\"}}\n{{\"frame\":\"Loading\",\"permille\":500}}\n{{\"frame\":\"Loaded\",\"load_ms\":210,\"context_tokens\":4096}}\n{ASKED}{ANSWER}"
    );
    let (events, verdict) = read([body.as_bytes()]);
    assert_eq!(
        events.first(),
        Some(&ModelEvent::Loading {
            permille: Some(500)
        })
    );
    assert_eq!(events.get(1), Some(&ModelEvent::Sent));
    let end = verdict.end.expect("it ended well");
    assert_eq!(end.timings.load_ms, Some(210));
}

#[test]
fn a_model_that_cannot_be_loaded_fails_whoever_waits_for_it() {
    let body =
        "{\"frame\":\"NotLoaded\",\"code\":\"ModelLoadFailed\",\"message\":\"Cut short.\"}\n";
    let (_, verdict) = read([body.as_bytes()]);
    match verdict.end {
        Err(Fault::Failed(failed)) => {
            assert_eq!(failed.code, FailureCode::ModelLoadFailed);
            assert_eq!(failed.message, "Cut short.");
        }
        end => panic!("{end:?}"),
    }
}

#[test]
fn what_is_no_frame_is_passed_over_before_the_answer_and_a_fault_within_it() {
    let (_, verdict) = read([format!("ing\"}}\nllama: hello\n{ASKED}{ANSWER}").as_bytes()]);
    assert!(verdict.end.is_ok(), "{:?}", verdict.end);
    let (_, verdict) = read([format!("{ASKED}llama: hello\n{ANSWER}").as_bytes()]);
    assert!(
        matches!(verdict.end, Err(Fault::Unreadable(_))),
        "{:?}",
        verdict.end
    );
}

proptest! {
    #[test]
    fn frames_do_not_depend_on_how_bytes_arrive(cuts in prop::collection::vec(0_usize..600, 0..20)) {
        let body = format!("{OLDER}{ASKED}{ANSWER}");
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(body.len())).collect();
        cuts.extend([0, body.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|pair| &body.as_bytes()[pair[0]..pair[1]]);
        prop_assert_eq!(read(pieces), read([body.as_bytes()]));
    }

    #[test]
    fn any_bytes_are_no_answer(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let (_, whole) = read([bytes.as_slice()]);
        prop_assert!(whole.end.is_err());
        prop_assert_eq!(read(bytes.chunks(1)).1, whole);
    }
}
