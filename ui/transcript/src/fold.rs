//! The fold: events in, what the reader sees out.
//!
//! Invariant: the same events give the same view, whether they came live, by replay, or as a page followed by the rest.
//! Therefore a view holds all that the fold has to remember, and nothing is kept beside it but indexes.
//! Matches are exhaustive: a new kind of event does not compile until its meaning is decided here.

mod library;
mod transcript;
mod turn;

use protocol::{Cursor, Event, ItemId, Page, StreamId, TurnId};

pub use library::{Library, LibraryChange};
pub use transcript::{Declined, Transcript};
pub use turn::fold_turn;
pub(crate) use turn::{DAMAGED_RECORD, DAMAGED_TEXT, LATE_EVENTS, Turn};

/// A fold of one stream that a [`Link`](crate::Link) can follow.
pub trait Follow: Sized {
    /// What one event can change.
    type Change;
    /// From a read model the engine made.
    ///
    /// # Errors
    /// When the page is of another kind of stream.
    fn from_page(page: Page) -> Result<Self, WrongPage>;
    /// The stream this is the fold of.
    fn stream(&self) -> StreamId;
    /// The position after the last applied event.
    fn cursor(&self) -> Cursor;
    /// Whether the event cannot be folded with what is at hand, so that a page has to be loaded anew.
    fn lacks(&self, _event: &Event) -> bool {
        false
    }
    /// Applies the next event and adds to `changes` what it changed. An event that is not the very next one is
    /// ignored and changes nothing; noticing gaps is the link's business.
    fn apply(&mut self, event: &Event, changes: &mut Vec<Self::Change>);
    /// The same fold without one of its guards, if it is one of its own.
    #[cfg(feature = "mutants")]
    fn lacking(&mut self, _mutant: Option<crate::mutant::Mutant>) {}
}

/// A page of another kind of stream than the one that is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the page is of another kind of stream")]
pub struct WrongPage;

/// What an event changed in a session's transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// A turn appeared; its items follow as [`Change::ItemAdded`].
    TurnAdded(TurnId),
    /// A turn's model, attempts or outcome.
    TurnChanged(TurnId),
    /// An item appeared at the end of its turn.
    ItemAdded { turn: TurnId, item: ItemId },
    /// An item's text grew at its end.
    TextGrew { turn: TurnId, item: ItemId },
    /// Anything else about an item: a tool's state, or that a text is closed.
    ItemChanged { turn: TurnId, item: ItemId },
    /// Turns at the end are gone from the conversation.
    Rewound,
    /// Title, origin or model.
    SessionChanged,
}

#[cfg(test)]
pub(crate) mod tests;
