//! The decoders by themselves, for what tries them with made-up bytes and for what measures them.
//!
//! Invariant: they are fed as the IO loop feeds them, no further than they want. Not part of the product.

use protocol::Dialect;

use super::{
    ModelEvent, StepEnd,
    answer::{Verdict, Wants},
    decoder::Decoder,
    fault::Fault,
    plain::Reading,
};

/// Decodes the body of an answer that arrives in these `pieces`; `each` gets what it says, in order.
///
/// # Errors
/// Every other end than the dialect's own end marker: the fault as its `Debug` tells it.
pub fn decode<'a>(
    dialect: Dialect,
    pieces: impl IntoIterator<Item = &'a [u8]>,
    each: impl FnMut(ModelEvent),
) -> Result<StepEnd, String> {
    feed(Decoder::new(dialect), pieces, each).map_err(|fault| format!("{fault:?}"))
}

/// The same without any shortcut through plain events: it must not say anything else.
///
/// # Errors
/// As [`decode`].
pub fn decode_whole<'a>(
    dialect: Dialect,
    pieces: impl IntoIterator<Item = &'a [u8]>,
    each: impl FnMut(ModelEvent),
) -> Result<StepEnd, String> {
    let decoder = Decoder::reading(dialect, Reading::Whole);
    feed(decoder, pieces, each).map_err(|fault| format!("{fault:?}"))
}

pub(super) fn feed<'a>(
    mut decoder: Decoder,
    pieces: impl IntoIterator<Item = &'a [u8]>,
    mut each: impl FnMut(ModelEvent),
) -> Result<StepEnd, Fault> {
    for piece in pieces {
        if decoder.wants() == Wants::Nothing {
            break;
        }
        decoder.feed(piece).into_iter().for_each(&mut each);
    }
    let Verdict { events, end } = decoder.finish();
    events.into_iter().for_each(each);
    end
}
