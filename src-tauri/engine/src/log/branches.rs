//! The branches of a conversation: what a rewind took out, and how it comes back.
//!
//! Invariant: which turns make up the conversation follows from the events alone, each of which takes a tail of it out;
//! a restored tail stood there before, so the turns are in the order of their ids, always.
//! Not here: the writing. A session decides and writes; the index of turns says the same for the readers.

use std::collections::BTreeMap;

use protocol::{EventBody, SessionId, StreamId, TurnId, TurnVersions};
use rusqlite::{Connection, params};

use super::{ReadError, Snapshot, codec, writer};

/// A tail of a conversation that stands aside.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Branch {
    /// The first turn that gives way to it.
    pub(crate) from: TurnId,
    /// What is put in its place.
    pub(crate) turns: Vec<TurnId>,
}

/// What the conversation is made of, step by step.
#[derive(Debug)]
enum Step {
    Begun(TurnId),
    TakenOut { from: TurnId, restored: Vec<TurnId> },
}

impl Snapshot<'_> {
    /// How to make the conversation what it was before `turn` was taken out of it; `None` when it is part of it, or never was.
    pub(crate) fn branch_of(
        &self,
        session: SessionId,
        turn: TurnId,
    ) -> Result<Option<Branch>, ReadError> {
        let Some(key) = self.key(StreamId::Session(session))? else {
            return Ok(None);
        };
        Ok(branch_of(self.steps(key)?, turn))
    }

    /// The places of a conversation in which more than one turn was begun, in the order of their first.
    pub(crate) fn versions(&self, session: SessionId) -> Result<Vec<TurnVersions>, ReadError> {
        match self.key(StreamId::Session(session))? {
            Some(key) => Ok(versions(self.steps(key)?)),
            None => Ok(Vec::new()),
        }
    }

    /// All that made a conversation what it is.
    fn steps(&self, key: i64) -> Result<impl Iterator<Item = Step> + use<>, ReadError> {
        let mut steps = Vec::new();
        let mut begun = self
            .connection()
            .prepare_cached("SELECT first_seq, turn FROM turns WHERE stream = ?1")?;
        let mut rows = begun.query([key])?;
        while let Some(row) = rows.next()? {
            let turn = TurnId::new(row.get::<_, i64>(1)?.unsigned_abs());
            steps.push((row.get(0)?, Step::Begun(turn)));
        }
        steps.extend(taken_out(self.connection(), key)?);
        steps.sort_by_key(|(seq, _): &(i64, Step)| *seq);
        Ok(steps.into_iter().map(|(_, step)| step))
    }
}

/// The events that took a tail out of a session, with their seqs.
fn taken_out(db: &Connection, key: i64) -> rusqlite::Result<Vec<(i64, Step)>> {
    let mut statement = db.prepare_cached(
        "SELECT seq, at, turn, kind, body FROM events
         WHERE stream = ?1 AND kind IN ('HistoryRewound', 'HistoryRestored') ORDER BY seq",
    )?;
    let mut rows = statement.query([key])?;
    let mut steps = Vec::new();
    while let Some(row) = rows.next()? {
        let body = codec::event_of(row)?.body;
        let seq = row.get(0)?;
        if let EventBody::HistoryRewound { from, .. } = body {
            let restored = Vec::new();
            steps.push((seq, Step::TakenOut { from, restored }));
        } else if let EventBody::HistoryRestored { from, turns } = body {
            let restored = turns;
            steps.push((seq, Step::TakenOut { from, restored }));
        }
    }
    Ok(steps)
}

fn branch_of(steps: impl Iterator<Item = Step>, turn: TurnId) -> Option<Branch> {
    let mut now: Vec<TurnId> = Vec::new();
    let mut then = None;
    for step in steps {
        match step {
            Step::Begun(begun) => now.push(begun),
            Step::TakenOut { from, restored } => {
                let before = now.clone();
                now.retain(|own| *own < from);
                now.extend(restored);
                if before.contains(&turn) && !now.contains(&turn) {
                    then = Some(before);
                }
            }
        }
    }
    let then = then.filter(|_| !now.contains(&turn))?;
    let common = now.iter().zip(&then).take_while(|(a, b)| a == b).count();
    let turns: Vec<TurnId> = then.into_iter().skip(common).collect();
    let from = now.get(common).or(turns.first()).copied()?;
    Some(Branch { from, turns })
}

fn versions(steps: impl Iterator<Item = Step>) -> Vec<TurnVersions> {
    let mut now: Vec<TurnId> = Vec::new();
    // By the turn before them.
    let mut places: BTreeMap<Option<TurnId>, Vec<TurnId>> = BTreeMap::new();
    for step in steps {
        match step {
            Step::Begun(begun) => {
                places.entry(now.last().copied()).or_default().push(begun);
                now.push(begun);
            }
            Step::TakenOut { from, restored } => {
                now.retain(|own| *own < from);
                now.extend(restored);
            }
        }
    }
    let several = places.into_values().filter(|turns| turns.len() > 1);
    several.map(|turns| TurnVersions { turns }).collect()
}

/// Marks in the index of turns, made anew, which of them are part of their conversations.
pub(super) fn index(db: &Connection) -> rusqlite::Result<()> {
    let mut streams = db.prepare(
        "SELECT DISTINCT stream FROM events WHERE kind IN ('HistoryRewound', 'HistoryRestored')",
    )?;
    let streams = streams
        .query_map([], |row| row.get(0))?
        .collect::<Result<Vec<i64>, _>>()?;
    let mut hide = db.prepare(
        "UPDATE turns SET hidden = 1 WHERE stream = ?1 AND turn >= ?2 AND first_seq < ?3",
    )?;
    for key in streams {
        for (seq, step) in taken_out(db, key)? {
            if let Step::TakenOut { from, restored } = step {
                hide.execute(params![key, from.get() as i64, seq])?;
                writer::show_turns(db, key, &restored)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(turn: u64) -> TurnId {
        TurnId::new(turn)
    }

    fn branch(steps: Vec<Step>, turn: u64) -> Option<(u64, Vec<u64>)> {
        let found = branch_of(steps.into_iter(), id(turn))?;
        let turns = found.turns.iter().map(|turn| turn.get()).collect();
        Some((found.from.get(), turns))
    }

    fn begun(turn: u64) -> Step {
        Step::Begun(id(turn))
    }

    fn rewound(from: u64) -> Step {
        Step::TakenOut {
            from: id(from),
            restored: Vec::new(),
        }
    }

    fn restored(from: u64, turns: &[u64]) -> Step {
        Step::TakenOut {
            from: id(from),
            restored: turns.iter().copied().map(id).collect(),
        }
    }

    /// 1 2 3, then 2 again as 4, then 1 again as 5.
    fn twice_rewound() -> Vec<Step> {
        vec![
            begun(1),
            begun(2),
            begun(3),
            rewound(2),
            begun(4),
            rewound(1),
            begun(5),
        ]
    }

    #[test]
    fn what_a_rewind_took_out_comes_back_with_all_that_stood_there() {
        assert_eq!(branch(twice_rewound(), 3), Some((5, vec![1, 2, 3])));
        assert_eq!(branch(twice_rewound(), 4), Some((5, vec![1, 4])));
        assert_eq!(
            branch(twice_rewound(), 1),
            Some((5, vec![1, 4])),
            "it stood there last with 4"
        );
    }

    #[test]
    fn what_is_part_of_the_conversation_or_never_was_cannot_come_back() {
        assert_eq!(branch(twice_rewound(), 5), None);
        assert_eq!(branch(twice_rewound(), 6), None);
    }

    #[test]
    fn turns_that_were_begun_in_one_place_are_its_versions_whichever_stands_there() {
        let of = |steps: Vec<Step>| -> Vec<Vec<u64>> {
            let places = versions(steps.into_iter()).into_iter();
            places
                .map(|place| place.turns.iter().map(|turn| turn.get()).collect())
                .collect()
        };
        assert_eq!(of(vec![begun(1), begun(2)]), [[0; 0]; 0]);
        assert_eq!(of(twice_rewound()), [[1, 5], [2, 4]]);
        let mut steps = twice_rewound();
        steps.extend([restored(5, &[1, 4]), rewound(4), begun(6), begun(7)]);
        assert_eq!(of(steps), [vec![1, 5], vec![2, 4, 6]]);
    }

    #[test]
    fn an_undo_can_be_undone() {
        let mut steps = twice_rewound();
        steps.push(restored(5, &[1, 4]));
        assert_eq!(branch(steps, 5), Some((1, vec![5])));
    }
}
