//! The sheet: which turns of a long transcript are drawn, and how much room is left for the others.
//!
//! Invariant: however many turns are loaded, the number of drawn ones has a bound: those near the view, a screenful or
//! two to spare, the last one, and those that somebody holds. A turn that is not drawn takes the room it last had, or
//! will probably have; so what is drawn stands where it would stand among all of them.
//! Not here: measuring, and holding the view when a turn turns out to be of another height. Only the window can.

use protocol::TurnId;

/// As many turns as this stay drawn wherever they are: a conversation of ordinary length is there as a whole.
pub const DRAWN_MIN: usize = 24;
/// So many heights of the view around it are drawn: what a flick reaches before the next look.
const NEAR_VIEWS: f64 = 1.0;
/// Beyond so many, a drawn turn is given up. Farther than near, so that going to and fro draws nothing anew.
const FAR_VIEWS: f64 = 3.0;

/// Room that is taken from must be so many times as much: it stays a fair guess.
const ABSORBED_MIN: f64 = 2.0;

/// All loaded turns, as rows of known or likely height.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sheet {
    rows: Vec<Row>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Row {
    turn: TurnId,
    height: f64,
    drawn: bool,
}

/// A drawn turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drawn {
    /// Which.
    pub turn: TurnId,
    /// The room that the turns right above it take, which are not drawn.
    pub gap: f64,
}

/// A stretch of the sheet, from its top, in the units of the heights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct View {
    /// Where it begins.
    pub top: f64,
    /// How high it is.
    pub height: f64,
}

/// This near to the end counts as being there: a fraction of a line.
const AT_END: i32 = 12;

/// A scroll, as it is reported: some time after it happened, when there may be more text below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scrolled {
    /// Where the view began before.
    pub from: i32,
    /// Where it begins now.
    pub to: i32,
    /// Where it begins at the end of the text.
    pub end: i32,
}

impl Scrolled {
    /// Whether the view follows the end of the text from now on. Only going up lets go of it: text that came meanwhile
    /// and moved the end away is no wish of the reader's.
    pub const fn follows(self, before: bool) -> bool {
        let at_end = self.end - self.to <= AT_END;
        at_end || (before && self.to >= self.from)
    }
}

impl Sheet {
    /// Takes over which turns there are, in order. What is known of a turn stays known; a new one is of its `likely`
    /// height, and drawn when it stands behind all others, where turns begin.
    pub fn list(&mut self, turns: &[TurnId], mut likely: impl FnMut(TurnId) -> f64) {
        let last = self.rows.last().map(|row| row.turn);
        self.rows = turns
            .iter()
            .map(|turn| match self.position(*turn) {
                Some(row) => row,
                None => Row {
                    turn: *turn,
                    height: likely(*turn),
                    drawn: last.is_some_and(|last| last < *turn),
                },
            })
            .collect();
        if let Some(last) = self.rows.last_mut() {
            last.drawn = true;
        }
    }

    /// What a drawn turn really takes.
    pub fn measured(&mut self, turn: TurnId, height: f64) {
        if let Ok(at) = self.rows.binary_search_by_key(&turn, |row| row.turn)
            && let Some(row) = self.rows.get_mut(at)
        {
            row.height = height;
        }
    }

    /// The view upon the end, `height` high.
    pub fn end(&self, height: f64) -> View {
        let whole: f64 = self.rows.iter().map(|row| row.height).sum();
        View {
            top: whole - height,
            height,
        }
    }

    /// Draws what is near the view and gives up what is far from it, but nothing that is `held`. Says whether that
    /// changed anything.
    pub fn look(&mut self, view: View, held: impl Fn(TurnId) -> bool) -> bool {
        let mut changed = false;
        let mut drawn = 0;
        let mut far = Vec::new();
        let mut top = 0.0;
        let last = self.rows.len().saturating_sub(1);
        for (at, row) in self.rows.iter_mut().enumerate() {
            let bottom = top + row.height;
            let away = (view.top - bottom).max(top - (view.top + view.height));
            if away < NEAR_VIEWS * view.height && !row.drawn {
                row.drawn = true;
                changed = true;
            } else if row.drawn && away > FAR_VIEWS * view.height && at != last && !held(row.turn) {
                far.push((away, at));
            }
            drawn += usize::from(row.drawn);
            top = bottom;
        }
        far.sort_by(|one, other| other.0.total_cmp(&one.0));
        for (_, at) in far.into_iter().take(drawn.saturating_sub(DRAWN_MIN)) {
            if let Some(row) = self.rows.get_mut(at) {
                row.drawn = false;
                changed = true;
            }
        }
        changed
    }

    /// Takes `px` from the room of the turns above the first drawn one, which nobody sees: so what turned out to be
    /// higher than was thought moves nothing below it. Says whether there was enough room to take it from.
    pub fn absorb(&mut self, px: f64) -> bool {
        let above = self.rows.iter().take_while(|row| !row.drawn).count();
        let room: f64 = self.rows.iter().take(above).map(|row| row.height).sum();
        if room <= ABSORBED_MIN * px.abs() {
            return false;
        }
        let share = (room - px) / room;
        for row in self.rows.iter_mut().take(above) {
            row.height *= share;
        }
        true
    }

    /// What is drawn, in order.
    pub fn drawn(&self) -> Vec<Drawn> {
        let mut gap = 0.0;
        let mut drawn = Vec::new();
        for row in &self.rows {
            if row.drawn {
                drawn.push(Drawn {
                    turn: row.turn,
                    gap,
                });
                gap = 0.0;
            } else {
                gap += row.height;
            }
        }
        drawn
    }

    fn position(&self, turn: TurnId) -> Option<Row> {
        let at = self.rows.binary_search_by_key(&turn, |row| row.turn).ok()?;
        self.rows.get(at).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEIGHT: f64 = 800.0;

    fn turns(ids: std::ops::RangeInclusive<u64>) -> Vec<TurnId> {
        ids.map(TurnId::new).collect()
    }

    /// Thousand turns of 100 each, looked at from the end.
    fn thousand() -> Sheet {
        let mut sheet = Sheet::default();
        sheet.list(&turns(1..=1_000), |_| 100.0);
        sheet.look(sheet.end(HEIGHT), |_| false);
        sheet
    }

    fn ids(sheet: &Sheet) -> Vec<u64> {
        sheet.drawn().iter().map(|row| row.turn.get()).collect()
    }

    /// How high the sheet is on the screen: gaps, and what is drawn.
    fn whole(sheet: &Sheet, height: impl Fn(TurnId) -> f64) -> f64 {
        let rows = sheet.drawn();
        rows.iter().map(|row| row.gap + height(row.turn)).sum()
    }

    #[test]
    fn only_going_up_lets_go_of_the_end_and_coming_back_to_it_takes_hold_again() {
        let scrolled = |from, to, end| Scrolled { from, to, end };
        // To the end, while more text was already on its way.
        assert!(scrolled(100, 400, 900).follows(true));
        assert!(scrolled(400, 400, 900).follows(true));
        assert!(!scrolled(400, 380, 400).follows(true));
        assert!(!scrolled(380, 385, 400).follows(false));
        assert!(scrolled(380, 390, 400).follows(false));
        // A shorter text takes the view along.
        assert!(scrolled(400, 300, 300).follows(true));
    }

    #[test]
    fn at_the_end_of_a_long_transcript_only_its_end_is_drawn() {
        let sheet = thousand();
        assert_eq!(ids(&sheet), (985..=1_000).collect::<Vec<_>>());
        assert_eq!(sheet.drawn()[0].gap, 984.0 * 100.0);
    }

    #[test]
    fn scrolling_through_all_of_it_draws_a_bounded_number_and_moves_nothing() {
        let mut sheet = thousand();
        let end = sheet.end(HEIGHT).top;
        for step in 0..=1_000 {
            let top = end * f64::from(1_000 - step) / 1_000.0;
            sheet.look(
                View {
                    top,
                    height: HEIGHT,
                },
                |_| false,
            );
            let drawn = sheet.drawn();
            assert!(drawn.len() <= 60, "{} at {top}", drawn.len());
            assert_eq!(whole(&sheet, |_| 100.0), 100_000.0, "at {top}");
            let first = (top / 100.0) as u64 + 1;
            let seen: Vec<_> = ids(&sheet)
                .into_iter()
                .filter(|id| (first..first + 8).contains(id))
                .collect();
            assert_eq!(seen, (first..first + 8).collect::<Vec<_>>(), "at {top}");
        }
        assert_eq!(ids(&sheet).last(), Some(&1_000), "the last one stays");
    }

    #[test]
    fn looking_twice_at_the_same_place_changes_nothing() {
        let mut sheet = thousand();
        let view = View {
            top: 40_000.0,
            height: HEIGHT,
        };
        assert!(sheet.look(view, |_| false));
        assert!(!sheet.look(view, |_| false));
    }

    #[test]
    fn what_is_held_stays_drawn_however_far_it_is() {
        let mut sheet = thousand();
        let held = TurnId::new(990);
        let view = View {
            top: 0.0,
            height: HEIGHT,
        };
        sheet.look(view, |turn| turn == held);
        assert!(ids(&sheet).contains(&990));
        // 16 near the top and enough of the rest to make the fewest, the held one and the last among them.
        sheet.look(view, |_| false);
        assert!(sheet.drawn().len() <= DRAWN_MIN.max(17) + 1);
    }

    #[test]
    fn a_conversation_of_ordinary_length_is_drawn_as_a_whole_once_it_was_read() {
        let mut sheet = Sheet::default();
        sheet.list(&turns(1..=20), |_| 5_000.0);
        let end = sheet.end(HEIGHT).top;
        for step in 0..=100 {
            let top = end * f64::from(100 - step) / 100.0;
            sheet.look(
                View {
                    top,
                    height: HEIGHT,
                },
                |_| false,
            );
        }
        assert_eq!(sheet.drawn().len(), 20);
    }

    #[test]
    fn older_turns_in_front_take_their_likely_room_and_keep_what_is_known() {
        let mut sheet = Sheet::default();
        sheet.list(&turns(25..=48), |_| 100.0);
        sheet.look(sheet.end(HEIGHT), |_| false);
        sheet.measured(TurnId::new(48), 321.0);
        sheet.list(&turns(1..=48), |_| 250.0);
        assert_eq!(ids(&sheet), (33..=48).collect::<Vec<_>>());
        assert_eq!(sheet.drawn()[0].gap, 24.0 * 250.0 + 8.0 * 100.0);
        assert_eq!(
            sheet.end(0.0).top,
            24.0 * 250.0 + 23.0 * 100.0 + 321.0,
            "the measured height counts"
        );
    }

    #[test]
    fn the_room_above_takes_up_what_was_guessed_wrong_as_long_as_there_is_enough_of_it() {
        let mut sheet = thousand();
        let whole_before = whole(&sheet, |_| 100.0);
        sheet.measured(TurnId::new(985), 340.0);
        assert!(sheet.absorb(240.0));
        let height = |turn: TurnId| if turn.get() == 985 { 340.0 } else { 100.0 };
        let after = whole(&sheet, height);
        assert!((after - whole_before).abs() < 0.001, "{after}");
        assert!(!sheet.absorb(60_000.0), "more than half of what there is");
        let mut short = Sheet::default();
        short.list(&turns(1..=3), |_| 100.0);
        short.look(short.end(HEIGHT), |_| false);
        assert!(!short.absorb(1.0), "nothing is left undrawn above");
    }

    #[test]
    fn a_turn_that_begins_is_drawn_and_one_that_is_rewound_is_gone() {
        let mut sheet = thousand();
        sheet.look(
            View {
                top: 0.0,
                height: HEIGHT,
            },
            |_| false,
        );
        sheet.list(&turns(1..=1_001), |_| 10.0);
        assert_eq!(ids(&sheet).last(), Some(&1_001));
        sheet.list(&turns(1..=500), |_| 10.0);
        assert_eq!(ids(&sheet).last(), Some(&500), "the new last one is drawn");
    }
}
