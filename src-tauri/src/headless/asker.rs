//! Who answers the questions of the turn that is followed: whoever said so beforehand, whoever sits there, or nobody.
//!
//! Invariant: one question stands on the terminal at a time, it is still open when its answer is taken, and where nobody
//! can be asked the answer is no. What may have run already is asked about whatever was allowed beforehand.
//! Not here: that an answer is submitted, and whether it was the first.

use protocol::{Answer as Word, ItemId};

use super::{
    answer::Answer,
    print::Margin,
    question::{self, AGAIN, CHOICE, Keyboard, Question, Typed},
};

/// Whether somebody can be asked.
pub(super) enum Hearing {
    /// At the terminal; the keyboard is listened to from the first question on.
    Terminal(Option<Keyboard>),
    /// No, because of this.
    Nobody(String),
}

impl Hearing {
    /// Of this process; a prompt that came by stdin used it up.
    pub(super) fn of_this_process(prompt_by_stdin: bool) -> Self {
        if prompt_by_stdin {
            Self::Nobody("the prompt came by stdin, so nobody can be asked".to_owned())
        } else if Keyboard::is_there() {
            Self::Terminal(None)
        } else {
            Self::Nobody("there is no terminal, so nobody can be asked".to_owned())
        }
    }
}

/// An answer to be submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) item: ItemId,
    pub(super) word: Word,
    /// Why, unless whoever typed it knows.
    pub(super) why: Option<String>,
}

pub(super) struct Asker {
    margin: Margin,
    allowed: Vec<String>,
    hearing: Hearing,
    /// The question that stands on the terminal.
    standing: Option<Question>,
}

impl Asker {
    pub(super) fn new(margin: Margin, allowed: Vec<String>, hearing: Hearing) -> Self {
        Self {
            margin,
            allowed,
            hearing,
            standing: None,
        }
    }

    /// Looks after the first open question: puts it, or knows its answer. `None`: somebody is asked, or nothing is open.
    pub(super) async fn attend(&mut self, answer: &mut Answer) -> Option<Verdict> {
        let question = answer.questions.first().cloned();
        if self.standing.as_ref().map(|standing| standing.item)
            == question.as_ref().map(|question| question.item)
        {
            return None;
        }
        self.standing = None;
        let question = question?;
        answer.end_line().await;
        self.margin.say(question.words());
        let verdict = self.foregone(&question).or_else(|| self.put(&question));
        if verdict.is_none() {
            self.standing = Some(question);
        }
        verdict
    }

    /// The answer that was given beforehand.
    fn foregone(&self, question: &Question) -> Option<Verdict> {
        let allowed = self.allowed.contains(&question.tool) && !question.may_have_run;
        allowed.then(|| Verdict {
            item: question.item,
            word: Word::AllowForSession,
            why: Some(format!(
                "{}: allowed for this conversation",
                question::harmless_line(&question.tool)
            )),
        })
    }

    /// Puts the question to whoever sits there; the answer is no if nobody does.
    fn put(&mut self, question: &Question) -> Option<Verdict> {
        if let Hearing::Terminal(keyboard @ None) = &mut self.hearing {
            match Keyboard::begin() {
                Ok(begun) => *keyboard = Some(begun),
                Err(error) => {
                    let why = format!("the terminal cannot be read: {error}");
                    self.hearing = Hearing::Nobody(why);
                }
            }
        }
        match &mut self.hearing {
            Hearing::Terminal(Some(keyboard)) => {
                keyboard.forget();
                keyboard.listen();
                self.margin.say(CHOICE);
                None
            }
            Hearing::Terminal(None) => None,
            Hearing::Nobody(why) => Some(Verdict {
                item: question.item,
                word: Word::Deny,
                why: Some(denied(question, why)),
            }),
        }
    }

    /// What is typed, while a question stands. Cancel safe.
    pub(super) async fn typed(&mut self) -> Typed {
        match (&self.standing, &mut self.hearing) {
            (Some(_), Hearing::Terminal(Some(keyboard))) => keyboard.line().await,
            (_, Hearing::Terminal(_) | Hearing::Nobody(_)) => std::future::pending().await,
        }
    }

    /// Takes what was typed for an answer, or asks again.
    pub(super) fn heard(&mut self, typed: Typed) -> Option<Verdict> {
        let question = self.standing.take()?;
        let (word, why) = match typed {
            Typed::Line(line) => match question::answer_in(&line) {
                Some(word) => (word, None),
                None => {
                    self.margin.say(AGAIN);
                    // The question stands before them: what is typed from here on is meant for it.
                    if let Hearing::Terminal(Some(keyboard)) = &mut self.hearing {
                        keyboard.listen();
                        self.margin.say(CHOICE);
                    }
                    self.standing = Some(question);
                    return None;
                }
            },
            Typed::End => (Word::Deny, Some("no answer: not allowed".to_owned())),
            Typed::Unreadable(error) => (
                Word::Deny,
                Some(format!("not allowed: the terminal cannot be read: {error}")),
            ),
        };
        match word {
            // Those that were asked at the same time are covered by it.
            Word::AllowForSession => self.allowed.push(question.tool),
            Word::AllowOnce | Word::Deny => {}
        }
        Some(Verdict {
            item: question.item,
            word,
            why,
        })
    }
}

fn denied(question: &Question, why: &str) -> String {
    let tool = question::harmless_line(&question.tool);
    if question.may_have_run {
        format!(
            "not allowed: {why}, and what may have happened already is asked about whatever --allow says"
        )
    } else {
        format!("not allowed: {why}; `--allow {tool}` allows it beforehand")
    }
}

#[cfg(test)]
mod tests {
    use protocol::{Intent, Resolution, TurnId};

    use crate::arguments::Talk;

    use super::*;

    fn question(item: u64, may_have_run: bool) -> Question {
        Question {
            item: ItemId::new(item),
            tool: "write_file".to_owned(),
            intent: Intent::WriteFile {
                path: "/home/ada/a.txt".to_owned(),
                before: None,
                after: 2,
                diff: "+x\n".to_owned(),
                diff_left_out: 0,
            },
            may_have_run,
        }
    }

    fn answer(questions: Vec<Question>) -> Answer {
        let margin = Margin::of_this_process();
        let mut answer = Answer::new(margin, Talk::Usual, TurnId::FIRST);
        answer.questions = questions;
        answer
    }

    fn asker(allowed: &[&str], hearing: Hearing) -> Asker {
        let allowed = allowed.iter().map(|&tool| tool.to_owned()).collect();
        Asker::new(Margin::of_this_process(), allowed, hearing)
    }

    fn nobody() -> Hearing {
        Hearing::Nobody("nobody is there".to_owned())
    }

    #[tokio::test]
    async fn without_a_terminal_the_answer_is_no_and_says_what_would_allow_it() {
        let mut asker = asker(&["read_file"], nobody());
        let verdict = asker.attend(&mut answer(vec![question(3, false)])).await;
        assert_eq!(
            verdict,
            Some(Verdict {
                item: ItemId::new(3),
                word: Word::Deny,
                why: Some(
                    "not allowed: nobody is there; `--allow write_file` allows it beforehand"
                        .to_owned()
                ),
            })
        );
    }

    #[tokio::test]
    async fn what_was_allowed_beforehand_is_allowed_unless_it_may_have_run() {
        let mut asker = asker(&["write_file"], nobody());
        let mut open = answer(vec![question(3, false)]);
        let verdict = asker.attend(&mut open).await.unwrap();
        assert_eq!(verdict.word, Word::AllowForSession);

        open.answered_here(verdict.item);
        open.questions.push(question(4, true));
        let verdict = asker.attend(&mut open).await.unwrap();
        assert_eq!((verdict.item.get(), verdict.word), (4, Word::Deny));
        assert!(verdict.why.unwrap().contains("whatever --allow says"));
        open.answered_here(verdict.item);
        assert_eq!(asker.attend(&mut open).await, None, "nothing is open");
    }

    /// As if the question had been put on a terminal.
    fn standing(asker: &mut Asker, question: Question) {
        asker.standing = Some(question);
    }

    #[tokio::test]
    async fn a_typed_yes_for_the_conversation_covers_what_was_asked_at_the_same_time() {
        let mut asker = asker(&[], nobody());
        let mut open = answer(vec![question(3, false), question(4, false)]);
        standing(&mut asker, question(3, false));
        assert_eq!(asker.attend(&mut open).await, None, "it stands already");
        let verdict = asker.heard(Typed::Line("c\n".to_owned())).unwrap();
        assert_eq!(
            (verdict.item.get(), verdict.word, verdict.why),
            (3, Word::AllowForSession, None)
        );
        open.answered_here(verdict.item);
        let verdict = asker.attend(&mut open).await.unwrap();
        assert_eq!(
            (verdict.item.get(), verdict.word),
            (4, Word::AllowForSession)
        );
    }

    #[tokio::test]
    async fn a_question_answered_elsewhere_stands_no_more_and_what_is_typed_is_no_answer() {
        let mut asker = asker(&[], nobody());
        let mut open = answer(vec![question(3, false)]);
        standing(&mut asker, question(3, false));
        open.resolved(ItemId::new(3), Resolution::AllowedOnce).await;
        assert_eq!(asker.attend(&mut open).await, None);
        assert_eq!(asker.heard(Typed::Line("o\n".to_owned())), None);
    }

    #[test]
    fn an_end_of_input_is_a_no() {
        let mut asker = asker(&[], nobody());
        standing(&mut asker, question(3, false));
        let verdict = asker.heard(Typed::End).unwrap();
        assert_eq!(verdict.word, Word::Deny);
        assert_eq!(verdict.why.as_deref(), Some("no answer: not allowed"));
    }
}
