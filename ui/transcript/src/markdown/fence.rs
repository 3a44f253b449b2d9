//! A code fence that is open: takes text line by line and notices its closing fence.
//!
//! Invariant: what was added to the code is never taken back. A line that may still turn out to be the closing fence is
//! held until it is decided. The line end before a line is added with the line, so code never ends in one too many.

/// An open fence at the beginning of a line, outside of any list or quotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fence {
    mark: char,
    count: usize,
    /// The present line, while it may be the closing fence.
    held: String,
    line: Line,
    /// Whether a line came before the present one.
    followed: bool,
}

/// What is known of the present line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// May be the closing fence.
    Undecided,
    /// Is code.
    Code,
}

/// What text did to a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fed<'a> {
    /// All of it was code.
    Open,
    /// It closed the fence; this came after that line.
    Closed { rest: &'a str },
}

impl Fence {
    /// The fence that a line opens, if the line begins with one.
    pub(super) fn opened_by(line: &str) -> Option<Self> {
        let mark = line
            .chars()
            .next()
            .filter(|mark| matches!(mark, '`' | '~'))?;
        let count = line.chars().take_while(|char| *char == mark).count();
        (count >= 3).then_some(Self {
            mark,
            count,
            held: String::new(),
            line: Line::Undecided,
            followed: false,
        })
    }

    /// Adds text to the code.
    pub(super) fn feed<'a>(&mut self, text: &'a str, code: &mut String) -> Fed<'a> {
        let mut rest = text;
        loop {
            let (piece, after) = match rest.split_once('\n') {
                Some((piece, after)) => (piece, Some(after)),
                None => (rest, None),
            };
            match self.line {
                Line::Code => code.push_str(piece),
                Line::Undecided => {
                    self.held.push_str(piece);
                    if !self.may_close() {
                        self.release(code);
                    }
                }
            }
            let Some(after) = after else { return Fed::Open };
            if self.line == Line::Undecided {
                if self.closes() {
                    return Fed::Closed { rest: after };
                }
                self.release(code);
            }
            self.line = Line::Undecided;
            rest = after;
        }
    }

    /// No more text comes. Says whether the fence was closed.
    pub(super) fn finish(&mut self, code: &mut String) -> bool {
        if self.line == Line::Code || self.held.is_empty() {
            return false;
        }
        if self.closes() {
            return true;
        }
        // At the end of the text, a little white space is no line of code.
        if self.held.len() > 3 || !self.held.bytes().all(|byte| byte == b' ') {
            self.release(code);
        }
        false
    }

    /// The present line is code.
    fn release(&mut self, code: &mut String) {
        if self.followed {
            code.push('\n');
        }
        code.push_str(&self.held);
        self.held.clear();
        self.followed = true;
        self.line = Line::Code;
    }

    /// Whether the held line is a closing fence.
    fn closes(&self) -> bool {
        let (marks, after) = self.marks();
        marks >= self.count && after.bytes().all(|byte| byte == b' ')
    }

    /// Whether it can become one.
    fn may_close(&self) -> bool {
        let (marks, after) = self.marks();
        if marks >= self.count {
            after.bytes().all(|byte| byte == b' ')
        } else {
            after.is_empty()
        }
    }

    /// How many marks the held line begins with, after at most three spaces, and what follows them.
    fn marks(&self) -> (usize, &str) {
        let unindented = self.held.trim_start_matches(' ');
        if self.held.len() - unindented.len() > 3 {
            return (0, &self.held);
        }
        let after = unindented.trim_start_matches(self.mark);
        (unindented.len() - after.len(), after)
    }
}
