//! Tool calls, gathered from whatever pieces a server sends them in.
//!
//! Invariant: no call is lost, no two become one, and none is made up. A piece belongs to the one call that its index,
//! id, name or place can mean. Where it can mean several, or what it means cannot be told, nothing is glued: the calls
//! in question are handed on as unclear, with the reason in words for the model, and are never run. Ids of a server
//! are hints, not keys: the same one may stand on two calls. Arguments are passed on as they came: whether they are
//! valid JSON is judged where calls are run.
//! What can be read in one way only is put right: arguments that are a JSON text within a JSON text, and pieces that
//! each repeat all of the ones before.
//! Calls that a model writes into its words (`<tool_call>…`) are words: where a server could not tell, nor can we.
//! Seen in the wild: index or ids missing, index 0 for every call, one id for every call, several pieces of one index
//! in one delta, whole calls, names in every piece, arguments as an object, `null` or nothing, the whole call once more
//! at the end.

mod closing;

#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

use super::ModelEvent;

use closing::Closing;

/// More in one answer is a broken server, not an assistant.
const CALLS_MAX: usize = 512;
/// Arguments are held in memory until the answer is whole.
const ARGUMENT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// What stands for a name that never came; servers refuse a conversation with an empty one.
const UNNAMED: &str = "unnamed";

const PIECES_UNCLEAR: &str = "the server sent this call in pieces that do not say for certain which call they belong to, so it was not run; make the call again, one call at a time";
const REPEAT_UNCLEAR: &str = "the server sent the same call twice, and it is not certain that two were meant, so this second one was not run";
const NAME_MISSING: &str = "the server sent arguments without saying which tool they are for, so nothing was run; make the call again, one call at a time";

/// The calls outgrew what we hold for one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooMuch;

/// How a message that may repeat streamed calls came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Restated {
    /// After deltas that held the same.
    AfterDeltas,
    /// By a server that sends messages where others send deltas.
    AmongMessages,
}

/// The calls of one answer.
#[derive(Debug, Default)]
pub(super) struct Calls {
    list: Vec<Pending>,
    /// Pieces that may belong to several of them.
    stray: String,
    argument_bytes: usize,
    /// Counts deltas, to tell entries of one list from later pieces.
    delta: u64,
}

#[derive(Debug, Default)]
struct Pending {
    index: Option<u64>,
    id: Option<String>,
    name: String,
    arguments: String,
    closing: Closing,
    /// Where the last piece of the arguments begins, while each has begun with all of the one before.
    grown: Option<usize>,
    /// The delta of its last piece.
    delta: u64,
    pieces: u32,
    /// Pieces that said the name.
    named: u32,
    unclear: Option<&'static str>,
}

/// One entry of `tool_calls`, read without trusting any of it.
struct Piece {
    index: Option<u64>,
    id: Option<String>,
    name: String,
    arguments: String,
}

/// What a piece is to the calls so far.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Continues(usize),
    Begins,
    /// Another call, or the same once more: it must not run.
    Repeats,
    /// Another call or a part of this one: neither must run.
    BeginsOrContinues(usize),
    /// A part of one of these: none of them must run.
    OneOf(Vec<usize>),
}

impl Calls {
    /// Nothing was called.
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty() && self.stray.is_empty()
    }

    /// What comes now is of another delta than what came before.
    pub(super) fn next_delta(&mut self) {
        self.delta = self.delta.saturating_add(1);
    }

    /// Takes in one entry of `tool_calls` (or an old `function_call`); progress to report, if it added anything.
    ///
    /// # Errors
    /// [`TooMuch`]: nothing of the entry was kept.
    pub(super) fn add(&mut self, entry: &Value) -> Result<Option<ModelEvent>, TooMuch> {
        let piece = Piece::read(entry);
        if piece.id.is_none() && piece.name.is_empty() && piece.arguments.is_empty() {
            return Ok(None);
        }
        self.make_room(&piece)?;
        let at = match self.place(&piece) {
            Place::Continues(at) => {
                let delta = self.delta;
                if let Some(call) = self.list.get_mut(at) {
                    call.merge(piece, delta);
                }
                at
            }
            Place::Begins => self.begin(piece, None),
            Place::Repeats => self.begin(piece, Some(REPEAT_UNCLEAR)),
            Place::BeginsOrContinues(other) => {
                self.doubt(&[other]);
                self.begin(piece, Some(PIECES_UNCLEAR))
            }
            Place::OneOf(calls) => {
                self.stray.push_str(&piece.arguments);
                self.doubt(&calls);
                return Ok(calls.last().and_then(|at| self.progress(*at)));
            }
        };
        Ok(self.progress(at))
    }

    /// Takes in the calls of a whole message, which may be the ones that were streamed.
    ///
    /// # Errors
    /// [`TooMuch`], at the first entry that is.
    pub(super) fn restate(
        &mut self,
        entries: &[Value],
        how: Restated,
    ) -> Result<Vec<ModelEvent>, TooMuch> {
        let mut out = Vec::new();
        let before = self.list.len();
        let mut seen: Vec<usize> = Vec::new();
        for entry in entries {
            let piece = Piece::read(entry);
            if before == 0 || piece.name.is_empty() || !piece.is_whole() {
                out.extend(self.add(entry)?);
                continue;
            }
            let streamed = || {
                let calls = self.list.iter().enumerate().take(before);
                calls.filter(|(at, call)| call.name == piece.name && !seen.contains(at))
            };
            let first = |fits: &dyn Fn(&Pending) -> bool| {
                streamed().find(|(_, call)| fits(call)).map(|(at, _)| at)
            };
            let same_id = |call: &Pending| piece.id.is_some() && call.id == piece.id;
            let same = first(&|call| same_id(call) && call.says(&piece.arguments))
                .or_else(|| first(&|call| call.says(&piece.arguments)));
            let begun = first(&|call| call.is_begun_by(&piece.arguments));
            let other = first(&|_| how == Restated::AfterDeltas);
            if let Some(found) = same {
                let certain =
                    how == Restated::AfterDeltas || self.list.get(found).is_some_and(same_id);
                seen.push(found);
                if !certain {
                    self.make_room(&piece)?;
                    let new = self.begin(piece, Some(REPEAT_UNCLEAR));
                    out.extend(self.progress(new));
                }
            } else if let Some(found) = begun {
                // The stream left it unfinished; the message has all of it.
                seen.push(found);
                self.make_room(&piece)?;
                if let Some(call) = self.list.get_mut(found) {
                    call.arguments = String::new();
                    call.closing = Closing::default();
                    call.grown = None;
                    call.append(&piece.arguments);
                }
                out.extend(self.progress(found));
            } else {
                // The server does not agree with itself about what was called.
                let doubt = other.map(|other| {
                    seen.push(other);
                    self.doubt(&[other]);
                    PIECES_UNCLEAR
                });
                self.make_room(&piece)?;
                let new = self.begin(piece, doubt);
                out.extend(self.progress(new));
            }
        }
        Ok(out)
    }

    /// The calls, in the order in which they began.
    pub(super) fn take(&mut self) -> Vec<ModelEvent> {
        self.all().into_iter().map(Pending::whole).collect()
    }

    /// The calls of an answer that ended before all was said: whole ones, and ones cut in their arguments.
    pub(super) fn take_ended_early(&mut self) -> Vec<ModelEvent> {
        let calls = self.all().into_iter();
        calls
            .map(|call| match call.closing.is_closed() {
                true => call.whole(),
                false => call.cut(),
            })
            .collect()
    }

    /// The calls of an answer that broke off: for the reader only.
    pub(super) fn take_cut(&mut self) -> Vec<ModelEvent> {
        self.all().into_iter().map(Pending::cut).collect()
    }

    /// Also what nobody can place, as a call of its own.
    fn all(&mut self) -> Vec<Pending> {
        let mut all = std::mem::take(&mut self.list);
        // Not even a beginning: an id that nothing followed.
        all.retain(|call| !call.name.is_empty() || !call.arguments.is_empty());
        let stray = std::mem::take(&mut self.stray);
        if !stray.is_empty() {
            all.push(Pending {
                arguments: stray,
                ..Pending::default()
            });
        }
        all
    }

    fn make_room(&mut self, piece: &Piece) -> Result<(), TooMuch> {
        self.argument_bytes = self.argument_bytes.saturating_add(piece.arguments.len());
        if self.argument_bytes > ARGUMENT_BYTES_MAX || self.list.len() >= CALLS_MAX {
            return Err(TooMuch);
        }
        Ok(())
    }

    fn begin(&mut self, piece: Piece, unclear: Option<&'static str>) -> usize {
        let mut call = Pending {
            unclear,
            ..Pending::default()
        };
        call.merge(piece, self.delta);
        self.list.push(call);
        self.list.len().saturating_sub(1)
    }

    fn doubt(&mut self, calls: &[usize]) {
        for at in calls {
            if let Some(call) = self.list.get_mut(*at) {
                call.unclear.get_or_insert(PIECES_UNCLEAR);
            }
        }
    }

    fn progress(&self, at: usize) -> Option<ModelEvent> {
        self.list.get(at).map(|call| ModelEvent::CallProgress {
            name: call.name.clone(),
            argument_bytes: call.arguments.len() as u64,
        })
    }

    fn place(&self, piece: &Piece) -> Place {
        let fits = match (&piece.id, piece.index) {
            (Some(id), _) if self.list.iter().any(|call| call.id.as_ref() == Some(id)) => {
                let of_id = self.those(|call| call.id.as_ref() == Some(id));
                let fits: Vec<usize> = self
                    .those(|call| call.id.as_ref() == Some(id) && !call.is_numbered_other(piece));
                if fits.is_empty() && piece.name.is_empty() {
                    // The id says one call, the number another.
                    return Place::OneOf(of_id);
                }
                fits
            }
            (Some(_), _) => return self.place_of_new_id(piece),
            (None, Some(index)) => {
                let fits = self.those(|call| call.index == Some(index));
                if fits.is_empty() && piece.name.is_empty() {
                    // A server that names the index in some of its pieces only.
                    self.those(|call| call.index.is_none() && !call.closing.is_closed())
                } else {
                    fits
                }
            }
            (None, None) => self.those(|_| true),
        };
        self.place_among(&fits, piece)
    }

    /// Of a piece whose id no call has: the id of another call, or of one whose first pieces had none yet.
    fn place_of_new_id(&self, piece: &Piece) -> Place {
        let fits = self.those(|call| {
            call.id.is_none()
                && !call.is_numbered_other(piece)
                && (piece.name.is_empty() || (piece.index.is_some() && call.index == piece.index))
        });
        let newest = fits.last().and_then(|at| Some((*at, self.list.get(*at)?)));
        if !piece.name.is_empty() {
            return match newest {
                Some((at, call)) if call.takes_late_id(piece) => Place::Continues(at),
                Some(_) | None => Place::Begins,
            };
        }
        if !piece.arguments.is_empty() {
            // The number says a call that has another id.
            let contrary = self.those(|call| {
                call.id.is_some()
                    && piece.index.is_some()
                    && call.index == piece.index
                    && !call.closing.is_closed()
            });
            if !contrary.is_empty() {
                return Place::OneOf(contrary);
            }
        }
        match fits.as_slice() {
            [only] => Place::Continues(*only),
            [] => Place::Begins,
            // Nothing but an id, for one of several: ids do not matter that much.
            [.., newest] if piece.arguments.is_empty() => Place::Continues(*newest),
            [..] => self.place_among(&fits, piece),
        }
    }

    /// Of a piece that can only be about these calls, or begin another.
    fn place_among(&self, fits: &[usize], piece: &Piece) -> Place {
        let newest = fits.last().and_then(|at| Some((*at, self.list.get(*at)?)));
        let Some((newest, call)) = newest else {
            return Place::Begins;
        };
        if !piece.name.is_empty() {
            return call.place_of_named(newest, piece, self.delta);
        }
        let is_open = |at: &&usize| self.list.get(**at).is_some_and(|c| !c.closing.is_closed());
        let open: Vec<usize> = fits.iter().filter(is_open).copied().collect();
        match open.as_slice() {
            [only] => Place::Continues(*only),
            // After whole arguments, more of them: they are no arguments any more, and are judged so.
            [] => Place::Continues(newest),
            [..] => Place::OneOf(open),
        }
    }

    fn those(&self, fits: impl Fn(&Pending) -> bool) -> Vec<usize> {
        let calls = self.list.iter().enumerate();
        calls.filter(|(_, c)| fits(c)).map(|(at, _)| at).collect()
    }
}

impl Pending {
    fn whole(self) -> ModelEvent {
        let unclear = if self.name.is_empty() {
            Some(NAME_MISSING)
        } else {
            self.unclear
        };
        ModelEvent::Call {
            name: self.shown_name().to_owned(),
            arguments: certain(self.arguments, self.grown),
            call_id: self.id,
            unclear: unclear.map(str::to_owned),
        }
    }

    fn cut(self) -> ModelEvent {
        ModelEvent::CallCut {
            name: self.shown_name().to_owned(),
            arguments: self.arguments,
        }
    }

    fn shown_name(&self) -> &str {
        if self.name.is_empty() {
            UNNAMED
        } else {
            &self.name
        }
    }

    fn is_numbered_other(&self, piece: &Piece) -> bool {
        self.index.is_some() && piece.index.is_some() && self.index != piece.index
    }

    /// Whether this call's arguments are these, however they are written.
    fn says(&self, arguments: &str) -> bool {
        let value = |text: &str| serde_json::from_str::<Value>(text).ok();
        // Only what is about as long is worth parsing, so that no server makes us parse the same again and again.
        let alike = self.arguments.len() / 2 <= arguments.len()
            && arguments.len() / 2 <= self.arguments.len();
        self.arguments == arguments
            || (self.closing.is_closed()
                && alike
                && value(&self.arguments).is_some_and(|said| Some(said) == value(arguments)))
    }

    fn is_begun_by(&self, arguments: &str) -> bool {
        !self.closing.is_closed() && arguments.starts_with(&self.arguments)
    }

    /// Whether the server says the name in every piece.
    fn repeats_name(&self) -> bool {
        self.named == self.pieces
    }

    fn takes_late_id(&self, piece: &Piece) -> bool {
        if self.name.is_empty() || self.arguments.is_empty() || piece.arguments.is_empty() {
            return self.name.is_empty() || self.name == piece.name;
        }
        self.name == piece.name
            && !self.closing.is_closed()
            && self.pieces > 1
            && self.repeats_name()
    }

    /// What a piece with a name is, where this call is the newest that it can be about.
    fn place_of_named(&self, at: usize, piece: &Piece, delta: u64) -> Place {
        let same_list = self.delta == delta;
        let same_id = piece.id.is_some() && self.id == piece.id;
        if self.name.is_empty() {
            return if self.closing.is_closed() && !piece.arguments.is_empty() {
                Place::Begins
            } else {
                Place::Continues(at)
            };
        }
        if self.name != piece.name {
            // Another call, or the second half of a name. Nobody halves a name within one list.
            let is_about_it = same_id || piece.index.is_some();
            return if self.arguments.is_empty() && is_about_it && !same_list {
                Place::BeginsOrContinues(at)
            } else {
                Place::Begins
            };
        }
        if self.closing.is_closed() {
            return if piece.arguments.is_empty() {
                if same_list && !same_id {
                    Place::Begins
                } else {
                    Place::Continues(at)
                }
            } else if !self.says(&piece.arguments) {
                Place::Begins
            } else if same_id && !same_list {
                // The whole call once more, at the end.
                Place::Continues(at)
            } else if !same_id && self.id.is_none() && (piece.index.is_none() || same_list) {
                // Two entries of one list, or of a server that counts nothing and sends whole calls.
                Place::Begins
            } else {
                Place::Repeats
            };
        }
        if self.arguments.is_empty() {
            return match (same_list && !same_id, piece.arguments.is_empty()) {
                (false, _) => Place::Continues(at),
                (true, true) => Place::Begins,
                (true, false) => Place::BeginsOrContinues(at),
            };
        }
        if same_id {
            Place::Continues(at)
        } else if piece.is_object() {
            // A nested object of a server that repeats names, or a call that begins anew.
            Place::BeginsOrContinues(at)
        } else if self.repeats_name() {
            Place::Continues(at)
        } else {
            Place::Begins
        }
    }

    fn merge(&mut self, piece: Piece, delta: u64) {
        self.delta = delta;
        self.pieces = self.pieces.saturating_add(1);
        self.named = self.named.saturating_add(u32::from(!piece.name.is_empty()));
        if self.index.is_none() {
            self.index = piece.index;
        }
        if self.id.is_none() {
            self.id = piece.id;
        }
        if self.name.is_empty() {
            self.name = piece.name;
        }
        // The whole call once more, at the end, adds nothing.
        if !(self.closing.is_closed() && self.says(&piece.arguments)) {
            self.append(&piece.arguments);
        }
    }

    fn append(&mut self, arguments: &str) {
        if arguments.is_empty() {
            return;
        }
        let grows = self.arguments.is_empty()
            || self
                .grown
                .and_then(|at| self.arguments.get(at..))
                .is_some_and(|last| arguments.starts_with(last));
        self.grown = grows.then_some(self.arguments.len());
        self.arguments.push_str(arguments);
        self.closing.feed(arguments);
    }
}

/// The arguments, where they can only be meant in another way than they were written in: an object inside of a text, or
/// one that was told from its beginning again and again.
fn certain(mut arguments: String, grown: Option<usize>) -> String {
    let is_object = |text: &str| serde_json::from_str::<Map<String, Value>>(text).is_ok();
    match serde_json::from_str::<Value>(&arguments) {
        Ok(Value::String(inner)) if is_object(&inner) => inner,
        Ok(_) => arguments,
        Err(_) => match grown.filter(|at| *at > 0) {
            Some(at) if arguments.get(at..).is_some_and(is_object) => arguments.split_off(at),
            Some(_) | None => arguments,
        },
    }
}

impl Piece {
    fn read(entry: &Value) -> Self {
        // `function_call` of old, and servers that leave the wrapper out.
        let function = entry.get("function").unwrap_or(entry);
        let text = |value: Option<&Value>| {
            value
                .and_then(Value::as_str)
                .filter(|text| !text.is_empty())
                .map(str::to_owned)
        };
        let arguments = match function
            .get("arguments")
            .or_else(|| function.get("parameters"))
        {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        Self {
            index: [entry.get("index"), function.get("index")]
                .into_iter()
                .flatten()
                .find_map(Value::as_u64),
            id: text(entry.get("id")),
            name: text(function.get("name")).unwrap_or_default(),
            arguments,
        }
    }

    /// All of its arguments are there, or there are none.
    fn is_whole(&self) -> bool {
        self.arguments.is_empty() || self.is_object()
    }

    fn is_object(&self) -> bool {
        let mut closing = Closing::default();
        closing.feed(&self.arguments);
        self.arguments.trim_start().starts_with('{') && closing.is_closed()
    }
}
