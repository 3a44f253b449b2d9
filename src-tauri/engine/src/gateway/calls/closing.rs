//! Where arguments end, read piece by piece.
//!
//! Invariant: every byte is looked at once, however small the pieces. Only brackets and strings are counted: whether
//! the text between them is valid JSON is judged where calls are run.

/// How far a JSON object or list has come.
#[derive(Debug, Default)]
pub(super) struct Closing {
    depth: u32,
    place: Place,
    closed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Outside,
    InString,
    AfterBackslash,
}

impl Closing {
    pub(super) fn feed(&mut self, text: &str) {
        for byte in text.bytes() {
            if self.closed {
                return;
            }
            self.place = match (self.place, byte) {
                (Place::AfterBackslash, _) => Place::InString,
                (Place::InString, b'\\') => Place::AfterBackslash,
                (Place::InString, b'"') => Place::Outside,
                (Place::InString, _) => Place::InString,
                (Place::Outside, b'"') => Place::InString,
                (Place::Outside, b'{' | b'[') => {
                    self.depth = self.depth.saturating_add(1);
                    Place::Outside
                }
                (Place::Outside, b'}' | b']') => {
                    self.closed = self.depth == 1;
                    self.depth = self.depth.saturating_sub(1);
                    Place::Outside
                }
                (Place::Outside, _) => Place::Outside,
            };
        }
    }

    /// Its last bracket has come.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }
}
