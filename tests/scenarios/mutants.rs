//! Every guard, taken out once: its story turns red, and for the named reason.
//!
//! Invariant: a story is told the same with and without the guard and gives its verdict in a few words, whatever
//! happened; only the words differ. A new guard without a line in the matches below does not compile.

mod engine;
mod link;

use std::{fmt::Write, pin::Pin};

use tokio::task::JoinSet;

/// A story, told to its verdict, without the guard if there is one named.
type Story<M> = fn(Option<M>) -> Pin<Box<dyn Future<Output = String> + Send>>;

/// What one guard is good for.
struct Line<M> {
    story: Story<M>,
    /// The verdict with the guard.
    green: &'static str,
    /// The verdict without it.
    red: &'static str,
}

impl<M: Copy + std::fmt::Debug + Send + 'static> Line<M> {
    /// Tells the story twice; adds a line to `told`, and says whether both verdicts are the named ones.
    async fn holds(&self, mutant: M, told: &mut String) -> bool {
        // Each in a task of its own: a story that goes astray is a verdict too, and not the named one.
        let mut stories = JoinSet::new();
        let telling = stories.spawn((self.story)(None)).id();
        stories.spawn((self.story)(Some(mutant)));
        let (mut green, mut red) = (String::new(), String::new());
        while let Some(verdict) = stories.join_next_with_id().await {
            let (id, verdict) =
                verdict.unwrap_or_else(|error| (error.id(), "went astray".to_owned()));
            if id == telling {
                green = verdict;
            } else {
                red = verdict;
            }
        }
        let holds = green == self.green && red == self.red;
        let mark = if holds { "red" } else { "NOT RED" };
        writeln!(told, "{mark}: {mutant:?}: `{green}` → `{red}`")
            .expect("a string takes everything");
        if !holds {
            writeln!(told, "    expected `{}` → `{}`", self.green, self.red)
                .expect("a string takes everything");
        }
        holds
    }
}

/// Tells every mutant's story; fails with all that did not turn out as named.
async fn all_turn_red<M: Copy + std::fmt::Debug + Send + 'static>(
    mutants: &[M],
    line: fn(M) -> Line<M>,
) {
    let (mut told, mut holds) = (String::new(), true);
    for mutant in mutants {
        holds &= line(*mutant).holds(*mutant, &mut told).await;
    }
    println!("{told}");
    assert!(holds, "{told}");
}

/// A story as a plain function.
macro_rules! story {
    ($story:path) => {
        |mutant| Box::pin($story(mutant))
    };
}

use story;

#[tokio::test(flavor = "multi_thread")]
async fn every_guard_of_the_engine_is_missed_when_it_is_gone() {
    all_turn_red(::engine::mutant::Mutant::ALL, engine::line).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_guard_of_the_link_is_missed_when_it_is_gone() {
    all_turn_red(transcript::mutant::Mutant::ALL, link::line).await;
}
