//! The reasoning of one answer, which a server may send under several names.
//!
//! Invariant: the same thought is shown once, and none is lost. What comes under a second name and says word for word
//! what was shown under the first is passed over, however differently the two are cut; at the first other word all that
//! was passed over as its beginning is shown.

/// Where reasoning stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    ReasoningContent,
    Reasoning,
    Thinking,
    Details,
    /// In a list of parts.
    Parts,
    /// In the answer's own text.
    Tagged,
}

/// All that was thought.
#[derive(Debug, Default)]
pub(super) struct Thoughts {
    shown: String,
    followers: Vec<Follower>,
}

/// How far one source has said what was shown.
#[derive(Debug)]
struct Follower {
    source: Source,
    /// From here on it repeated.
    since: usize,
    /// Up to here.
    at: usize,
}

impl Thoughts {
    /// Everything so far.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    /// What is new in what a source says.
    pub(super) fn add(&mut self, source: Source, text: &str) -> String {
        let mut follower = match self.followers.iter().position(|f| f.source == source) {
            Some(known) => self.followers.swap_remove(known),
            None => Follower {
                source,
                since: 0,
                at: 0,
            },
        };
        let ahead = self.shown.get(follower.at..).unwrap_or_default();
        let new = if ahead.len() >= text.len() && ahead.starts_with(text) {
            follower.at = follower.at.saturating_add(text.len());
            String::new()
        } else {
            let new = match text.strip_prefix(ahead) {
                Some(new) => new.to_owned(),
                None => {
                    let passed_over = self.shown.get(follower.since..follower.at);
                    passed_over.unwrap_or_default().to_owned() + text
                }
            };
            self.shown.push_str(&new);
            follower.at = self.shown.len();
            follower.since = follower.at;
            new
        };
        self.followers.push(follower);
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Source::{Details, Reasoning};

    #[test]
    fn a_thought_under_two_names_is_one_however_it_is_cut_and_none_is_lost() {
        let table: [(&[(Source, &str)], &str); 8] = [
            (&[(Reasoning, "ha"), (Reasoning, "ha")], "haha"),
            (&[(Reasoning, "ab"), (Details, "ab")], "ab"),
            (&[(Reasoning, "ab"), (Details, "a"), (Details, "b")], "ab"),
            (&[(Details, "a"), (Reasoning, "ab"), (Details, "bc")], "abc"),
            (
                &[
                    (Reasoning, "ab"),
                    (Reasoning, "cd"),
                    (Details, "abcd"),
                    (Details, "e"),
                ],
                "abcde",
            ),
            (
                &[(Reasoning, "I am"), (Details, "I "), (Details, "was")],
                "I amI was",
            ),
            (&[(Reasoning, "a"), (Details, "x"), (Reasoning, "b")], "axb"),
            (
                &[(Reasoning, "日本"), (Details, "日"), (Details, "光")],
                "日本日光",
            ),
        ];
        for (said, want) in table {
            let mut thoughts = Thoughts::default();
            let shown: String = said
                .iter()
                .map(|(source, text)| thoughts.add(*source, text))
                .collect();
            assert_eq!(shown, want, "{said:?}");
            assert_eq!(thoughts.shown(), want, "{said:?}");
        }
    }
}
