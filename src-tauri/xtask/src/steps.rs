//! The steps of a long chore: a header before each, its time after it, a summary at the end.

use std::time::{Duration, Instant};

use crate::failure::Result;

pub(crate) struct Steps {
    began: Instant,
    done: Vec<(String, Duration)>,
}

impl Steps {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            done: Vec::new(),
        }
    }

    /// Runs one step. The first failure ends the chore; the summary then says what was still good.
    pub(crate) fn step<T>(&mut self, title: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        println!("\n── {} · {title}", self.done.len() + 1);
        let began = Instant::now();
        let result = work();
        let took = began.elapsed();
        if result.is_ok() {
            println!("   done in {}", seconds(took));
            self.done.push((title.to_owned(), took));
        } else {
            println!("   failed after {}", seconds(took));
            self.list();
            println!("   {:>8}  {title}: failed", seconds(took));
        }
        result
    }

    pub(crate) fn summary(&self) {
        self.list();
        println!(
            "   {:>8}  all {} steps passed",
            seconds(self.began.elapsed()),
            self.done.len()
        );
    }

    fn list(&self) {
        println!("\n── summary");
        for (title, took) in &self.done {
            println!("   {:>8}  {title}", seconds(*took));
        }
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
