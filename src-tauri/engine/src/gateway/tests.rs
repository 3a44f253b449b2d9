//! The gateway against recorded answers, made-up shapes and real sockets on loopback.

pub(super) mod cassette;

mod images;
mod requests;

mod anthropic;
mod plain;
mod recorded;
mod shapes;

mod loopback;
mod proxied;
mod wire;

pub(crate) use loopback::HandClock;

use protocol::{Dialect, Part};

use super::{ModelEvent, StepEnd, decoder::Decoder, decoding::feed, fault::Fault, plain::Reading};

/// All that a decoder makes of a body that arrives in these pieces; and it makes no less of it the short way.
fn decode<'a>(dialect: Dialect, pieces: impl IntoIterator<Item = &'a [u8]>) -> Decoded {
    let pieces: Vec<&[u8]> = pieces.into_iter().collect();
    let read = |reading| {
        let mut events = Vec::new();
        let decoder = Decoder::reading(dialect, reading);
        let end = feed(decoder, pieces.iter().copied(), |event| events.push(event));
        Decoded { events, end }
    };
    let (quick, whole) = (read(Reading::Quick), read(Reading::Whole));
    assert_eq!(quick, whole, "without the short way");
    quick
}

#[derive(Clone, Debug, PartialEq)]
struct Decoded {
    events: Vec<ModelEvent>,
    end: Result<StepEnd, Fault>,
}

impl Decoded {
    fn text(&self, wanted: Part) -> String {
        self.events
            .iter()
            .filter_map(|event| match event {
                ModelEvent::Text { part, text } if *part == wanted => Some(text.as_str()),
                _ => None,
            })
            .collect()
    }

    fn answer(&self) -> String {
        self.text(Part::Answer)
    }

    fn reasoning(&self) -> String {
        self.text(Part::Reasoning)
    }

    /// Name and arguments of each call that was cut.
    fn cut_calls(&self) -> Vec<(&str, &str)> {
        self.events
            .iter()
            .filter_map(|event| match event {
                ModelEvent::CallCut { name, arguments } => {
                    Some((name.as_str(), arguments.as_str()))
                }
                _ => None,
            })
            .collect()
    }

    /// Name and arguments of each call.
    fn calls(&self) -> Vec<(&str, &str)> {
        self.events
            .iter()
            .filter_map(|event| match event {
                ModelEvent::Call {
                    name, arguments, ..
                } => Some((name.as_str(), arguments.as_str())),
                _ => None,
            })
            .collect()
    }
}
