//! A page driven by hand: one call at a time, over the real door, in a time that is only a number.
//!
//! Invariant: what decides is the product's own `transcript::Link`; a hand only carries. What it carries, when, how often
//! and whether at all is the story's business, so a story can go wrong in every way a transport can, and always alike.

use protocol::{Attached, Batch, Cursor, PageId, PollRequest, StreamId};
use transcript::{AnswerError, Follow, Heard, Link, Next, POLL_BYTES_MAX, Ticket};

use crate::{
    backend::{Line, Missed},
    sentinel::random_u128,
};

/// A page's link, and who the page is.
pub struct Hand<F: Follow> {
    pub line: Line,
    pub window: String,
    pub page: PageId,
    pub link: Link<F>,
    pub now_ms: u64,
    /// What its polls take at most.
    pub bytes_max: u32,
}

/// A call of the page.
#[derive(Clone, Debug)]
pub enum Call {
    Attach {
        ticket: Ticket,
        page: PageId,
        stream: StreamId,
        cursor: Option<Cursor>,
    },
    Poll {
        ticket: Ticket,
        request: PollRequest,
    },
}

/// Its answer.
#[derive(Clone, Debug)]
pub enum Answer {
    Attached(Ticket, Box<Result<Attached, AnswerError>>),
    Polled(Ticket, Result<Batch, AnswerError>),
}

impl Call {
    /// The answer of a transport that lost the call, or its answer, and knows it.
    pub fn lost(&self) -> Answer {
        self.failed(AnswerError::Lost)
    }

    /// The answer of somebody who says no.
    pub fn failed(&self, error: AnswerError) -> Answer {
        match self {
            Self::Attach { ticket, .. } => Answer::Attached(*ticket, Box::new(Err(error))),
            Self::Poll { ticket, .. } => Answer::Polled(*ticket, Err(error)),
        }
    }
}

impl<F: Follow> Hand<F> {
    /// A page that has not said hello.
    pub fn new(line: &Line, window: &str, link: Link<F>) -> Self {
        Self {
            line: line.clone(),
            window: window.to_owned(),
            page: PageId::from_bits(random_u128()),
            link,
            now_ms: 10_000,
            bytes_max: POLL_BYTES_MAX,
        }
    }

    /// Says hello, under a new nonce if the link wants one.
    pub async fn hello(&mut self) -> Result<(), Missed> {
        if self.link.needs_hello() {
            self.page = PageId::from_bits(random_u128());
        }
        self.line.hello(&self.window, self.page).await?;
        self.link.said_hello();
        Ok(())
    }

    /// What the link asks for now, if anything.
    pub fn call(&mut self) -> Option<Call> {
        match self.link.next(self.now_ms) {
            Next::Attach {
                ticket,
                stream,
                cursor,
                ..
            } => Some(Call::Attach {
                ticket,
                page: self.page,
                stream,
                cursor,
            }),
            Next::Poll {
                ticket, request, ..
            } => Some(Call::Poll { ticket, request }),
            Next::WaitUntil(_) | Next::Nothing => None,
        }
    }

    /// What the link asks for next: time passes until it does.
    ///
    /// # Panics
    /// When it has stopped asking.
    pub fn next_call(&mut self) -> Call {
        loop {
            if let Some(call) = self.call() {
                return call;
            }
            match self.link.next(self.now_ms) {
                Next::WaitUntil(at_ms) => self.now_ms = at_ms,
                other => panic!("it has stopped: {other:?}, {:?}", self.link.state()),
            }
        }
    }

    /// Executes a call, without parking.
    pub async fn execute(&self, call: &Call) -> Answer {
        let heard = |missed| match missed {
            Missed::Lost => AnswerError::Lost,
            Missed::Refused(report) => AnswerError::Refused(report.code),
        };
        match call {
            Call::Attach {
                ticket,
                page,
                stream,
                cursor,
            } => {
                let answer = self.line.attach(*page, *stream, *cursor).await;
                Answer::Attached(*ticket, Box::new(answer.map_err(heard)))
            }
            Call::Poll { ticket, request } => {
                let request = PollRequest {
                    wait_ms: 0,
                    max_bytes: request.max_bytes.min(self.bytes_max),
                    ..*request
                };
                Answer::Polled(*ticket, self.line.poll(request).await.map_err(heard))
            }
        }
    }

    /// An answer arrives.
    pub fn hear(&mut self, answer: Answer) -> Heard<F::Change> {
        match answer {
            Answer::Attached(ticket, answer) => self.link.attached(ticket, *answer, self.now_ms),
            Answer::Polled(ticket, answer) => self.link.polled(ticket, answer, self.now_ms),
        }
    }

    /// The next call, executed and heard.
    pub async fn step(&mut self) -> Heard<F::Change> {
        // A poll that does not park may never let anybody else run.
        tokio::task::yield_now().await;
        let call = self.next_call();
        let answer = self.execute(&call).await;
        self.hear(answer)
    }
}
