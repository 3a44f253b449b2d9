//! Any bytes in any pieces, to the decoder of any dialect: nothing panics, what comes out depends on the bytes alone,
//! however plain events are read, and no call that comes in pieces is given out unless the answer ended well.

#![no_main]

use engine::gateway::{ModelEvent, StepEnd, decoding};
use libfuzzer_sys::fuzz_target;
use protocol::Dialect;

const DIALECTS: [Dialect; 3] = [Dialect::Ollama, Dialect::OpenAiChat, Dialect::Anthropic];

type Decoded = (Vec<ModelEvent>, Result<StepEnd, String>);

// The first byte chooses the dialect, the second how long the pieces are; the rest is the body.
fuzz_target!(|input: &[u8]| {
    let [dialect, step, body @ ..] = input else {
        return;
    };
    let dialect = DIALECTS[usize::from(*dialect) % DIALECTS.len()];
    let whole = decode(dialect, [body]);
    let length = match *step {
        0 => 1,
        step => usize::from(step),
    };
    let pieces = decode(dialect, body.chunks(length));
    assert_eq!(whole, pieces, "in pieces of {length} bytes");
    let mut events = Vec::new();
    let end = decoding::decode_whole(dialect, [body], |event| events.push(event));
    assert_eq!(whole, (events, end), "without the short way");
    sound(dialect, &whole);
});

fn decode<'a>(dialect: Dialect, pieces: impl IntoIterator<Item = &'a [u8]>) -> Decoded {
    let mut events = Vec::new();
    let end = decoding::decode(dialect, pieces, |event| events.push(event));
    (events, end)
}

fn sound(dialect: Dialect, (events, end): &Decoded) {
    for event in events {
        match event {
            ModelEvent::Text { text, .. } => assert!(!text.is_empty(), "a text of nothing"),
            // An Ollama sends each call whole; it is run only if the answer ends well, which is for the turn to see to.
            ModelEvent::Call { .. } if dialect != Dialect::Ollama => {
                assert!(end.is_ok(), "a call of an answer that has no end");
            }
            _ => {}
        }
    }
}
