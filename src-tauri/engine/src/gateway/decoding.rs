//! The decoders by themselves, for what tries them with made-up bytes and for what measures them.
//!
//! Invariant: they are fed as the IO loop feeds them, no further than they want. Not part of the product.

use protocol::Dialect;

use super::{
    ModelEvent, StepEnd,
    answer::{Verdict, Wants},
    decoder::Decoder,
    fault::Fault,
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
    feed(dialect, pieces, each).map_err(|fault| format!("{fault:?}"))
}

pub(super) fn feed<'a>(
    dialect: Dialect,
    pieces: impl IntoIterator<Item = &'a [u8]>,
    mut each: impl FnMut(ModelEvent),
) -> Result<StepEnd, Fault> {
    let mut decoder = Decoder::new(dialect);
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
