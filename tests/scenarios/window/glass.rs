//! The real window, through WebDriver: the shipped binary, unchanged, on a data folder of its own.
//!
//! Invariant: nothing that a window is asked for or waited for goes on for ever, and what did not come has a name.
//! Waiting for the window looks again and again, with a bound: WebDriver tells nothing by itself.

mod desk;
mod driver;
mod dropping;
mod pictures;
mod processes;
mod views;

use std::{
    collections::VecDeque,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use fantoccini::{Client, Locator, elements::Element, error::CmdError, wd::TimeoutConfiguration};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

pub(crate) use desk::Desk;
pub(crate) use driver::Colours;
pub(crate) use views::View;

/// A debug build on a busy machine is slow to draw.
const PATIENCE: Duration = Duration::from_secs(30);
/// For one answer of the driver, beyond what is waited for in it: a driver without one hangs.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// For a script that goes through all of a conversation.
const SCRIPT_LIMIT: Duration = Duration::from_secs(100);

/// How often an element may be drawn anew just while it is looked at.
const REDRAWS_MAX: usize = 100;

/// Enough to see where a story was.
const STEPS_KEPT: usize = 12;

pub(crate) const ENTER: &str = "\u{E007}";
pub(crate) const SHIFT: &str = "\u{E008}";
const CONTROL: &str = "\u{E009}";
/// Lets go of every key that is held.
const RELEASED: &str = "\u{E000}";
pub(crate) const END: &str = "\u{E010}";
pub(crate) const HOME: &str = "\u{E011}";
pub(crate) const PAGE_UP: &str = "\u{E00E}";
pub(crate) const ESCAPE: &str = "\u{E00C}";

/// What a story did or waited for last.
#[derive(Clone, Default)]
struct Steps(Arc<Mutex<VecDeque<String>>>);

impl Steps {
    fn note(&self, step: &str) {
        let mut steps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if steps.len() == STEPS_KEPT {
            steps.pop_front();
        }
        steps.push_back(step.to_owned());
    }

    /// One a line, the last one last.
    fn told(&self) -> String {
        let steps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: Vec<_> = steps.iter().map(String::as_str).collect();
        lines.join("\n")
    }
}

/// Whether words of a mark are waited for, or their end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    There,
    Gone,
}

/// One open window.
pub(crate) struct Window {
    client: Client,
    steps: Steps,
}

impl Window {
    fn new(client: Client, steps: Steps) -> Self {
        Self { client, steps }
    }

    /// Does a step that the driver has to answer.
    async fn step<T>(&self, what: impl Into<String>, answer: impl Future<Output = T>) -> T {
        let what = what.into();
        self.steps.note(&what);
        match timeout(PATIENCE + ANSWER_LIMIT, answer).await {
            Ok(answer) => answer,
            Err(_) => panic!("hung: no answer from the driver to: {what}"),
        }
    }

    /// Ends the app as WebDriver does it.
    pub(crate) async fn close(self) {
        let closed = self.client.clone().close();
        let closed = self.step("close the window", closed).await;
        closed.expect("the session is closed");
    }

    /// The session with an app that is gone.
    pub(crate) async fn forget(self) {
        let closed = self.client.clone().close();
        // The driver may already have noticed by itself.
        self.step("forget the window", closed).await.ok();
    }

    /// Keeps a picture of the screen, as soon as it shows what the page is now. The driver's own pictures wait for the
    /// page to draw once more; a page at rest may never do that, and the driver then never answers.
    pub(crate) async fn picture(&self, name: &str) {
        let drawn =
            "requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(arguments[0], 0)))";
        self.run_to_its_end(drawn).await;
        let kept = pictures::keep_screen(name);
        self.step(format!("a picture of {name}"), kept).await;
    }

    /// Drops a file on it, at a place on the screen.
    pub(crate) async fn drop_file(&self, file: &Path, at: (u32, u32)) {
        self.drop_address(&dropping::address(file), at).await;
    }

    /// Drops an address on it.
    pub(crate) async fn drop_address(&self, address: &str, at: (u32, u32)) {
        let dropped = dropping::drop_address(address, at);
        self.step(format!("drop {address}"), dropped).await;
    }

    /// Loads the page anew.
    pub(crate) async fn reload(&self) {
        let loaded = self
            .step("load the page again", self.client.refresh())
            .await;
        loaded.expect("the page loads again");
        self.wait_for("composer").await;
    }

    /// Types into the composer.
    pub(crate) async fn type_text(&self, text: &str) {
        let composer = self.wait_for("composer").await;
        let typed = composer.send_keys(text);
        let typed = self.step(format!("type {text:?}"), typed).await;
        typed.expect("the composer takes text");
    }

    /// Types into whatever has the focus.
    pub(crate) async fn press(&self, keys: &str) {
        let until = Instant::now() + PATIENCE;
        let focused = loop {
            let focused = self.client.active_element();
            match self.step("find the focus", focused).await {
                Ok(focused) => break focused,
                // Drawn anew, or taken away, while the driver held it in its hands.
                Err(error) if error.to_string().contains("active element information") => {
                    assert!(Instant::now() < until, "nothing has the focus: {error}");
                    sleep(LOOK_EVERY).await;
                }
                Err(error) => panic!("something has the focus: {error}"),
            }
        };
        let pressed = focused.send_keys(keys);
        let pressed = self.step(format!("press {keys:?}"), pressed).await;
        pressed.expect("it takes keys");
    }

    /// Types into an element.
    pub(crate) async fn press_in(&self, testid: &str, keys: &str) {
        let element = self.wait_for(testid).await;
        let pressed = self.step(
            format!("press {keys:?} in {testid}"),
            element.send_keys(keys),
        );
        pressed.await.expect("it takes keys");
    }

    /// A shortcut: Control and a key, wherever the focus is.
    pub(crate) async fn chord(&self, key: &str) {
        self.press(&format!("{CONTROL}{key}{RELEASED}")).await;
    }

    /// Sends a message with Enter.
    pub(crate) async fn send(&self, text: &str) {
        self.type_text(text).await;
        self.type_text(ENTER).await;
    }

    pub(crate) async fn click(&self, testid: &str) {
        let clicked = self.wait_for(testid).await;
        let clicked = self.step(format!("click {testid}"), clicked.click());
        clicked.await.unwrap_or_else(|e| panic!("{testid}: {e}"));
    }

    /// Waits until an element is there.
    pub(crate) async fn wait_for(&self, testid: &str) -> Element {
        self.wait_for_path(&format!("//*[@data-testid='{testid}']"), testid)
            .await
    }

    /// Waits until there are `n` elements of a kind.
    pub(crate) async fn wait_for_nth(&self, testid: &str, n: usize) -> Element {
        let path = format!("(//*[@data-testid='{testid}'])[{n}]");
        self.wait_for_path(&path, &format!("{testid} number {n}"))
            .await
    }

    /// Waits until an element contains a text. The text has no quotes in it.
    pub(crate) async fn wait_for_text(&self, testid: &str, text: &str) -> Element {
        let path = format!("//*[@data-testid='{testid}'][contains(normalize-space(.), '{text}')]");
        self.wait_for_path(&path, &format!("{text:?} in {testid}"))
            .await
    }

    /// Waits until an element that contains a text contains another one as well, or no more.
    pub(super) async fn wait_for_mark(&self, testid: &str, text: &str, mark: &str, is: Mark) {
        let says = |text: &str| format!("contains(normalize-space(.), '{text}')");
        let (text, mark) = (says(text), says(mark));
        let marked = match is {
            Mark::There => mark,
            Mark::Gone => format!("not({mark})"),
        };
        let path = format!("//*[@data-testid='{testid}'][{text}][{marked}]");
        self.wait_for_path(&path, &path).await;
    }

    /// Waits until an element has the focus.
    pub(crate) async fn wait_for_focus(&self, testid: &str) {
        let wait = self.client.wait().at_most(PATIENCE).every(LOOK_EVERY);
        let focused = format!("[data-testid={testid}]:focus");
        let found = wait.for_element(Locator::Css(&focused));
        let found = self.step(format!("wait for the focus on {testid}"), found);
        if let Err(error) = found.await {
            let text = self.text().await;
            panic!("{testid} did not get the focus ({error}); the window shows:\n{text}")
        }
    }

    /// Puts another text into a field.
    pub(crate) async fn fill(&self, testid: &str, text: &str) {
        let field = self.wait_for(testid).await;
        let emptied = self.step(format!("empty {testid}"), field.clear()).await;
        emptied.expect("a field can be emptied");
        let filled = field.send_keys(text);
        let filled = self
            .step(&format!("fill {testid} with {text:?}"), filled)
            .await;
        filled.expect("a field takes text");
    }

    /// Waits until no such element is there any more.
    pub(crate) async fn wait_until_gone(&self, testid: &str) {
        let path = format!("//body[not(descendant::*[@data-testid='{testid}'])]");
        self.wait_for_path(&path, &format!("no {testid}")).await;
    }

    pub(super) async fn wait_for_path(&self, path: &str, what: &str) -> Element {
        for _ in 0..REDRAWS_MAX {
            let wait = self.client.wait().at_most(PATIENCE).every(LOOK_EVERY);
            let found = wait.for_element(Locator::XPath(path));
            match self.step(format!("wait for {what}"), found).await {
                Ok(element) => return element,
                Err(CmdError::WaitTimeout) => {
                    let text = self.text().await;
                    panic!("hung while waiting for {what}; the window shows:\n{text}")
                }
                // The page drew it anew while the driver held it in its hands: as good as not there yet.
                Err(error) if error.to_string().contains("parse element info") => {}
                Err(error) => panic!("while waiting for {what}: {error}"),
            }
        }
        panic!("{what} is drawn anew without end")
    }

    /// The texts of all elements of a kind.
    pub(crate) async fn texts(&self, testid: &str) -> Vec<String> {
        let path = format!("//*[@data-testid='{testid}']");
        let what = format!("read every {testid}");
        let found = self.client.find_all(Locator::XPath(&path));
        let found = self.step(what.as_str(), found).await.expect("elements");
        let mut texts = Vec::new();
        for element in found {
            let text = self.step(what.as_str(), element.text()).await;
            texts.push(text.expect("the text of an element"));
        }
        texts
    }

    /// Everything that can be read in the window.
    pub(crate) async fn text(&self) -> String {
        let body = self.client.find(Locator::Css("body"));
        let body = self.step("find the page", body).await.expect("a page");
        let text = self.step("read the page", body.text()).await;
        text.expect("the text of the page")
    }

    /// Runs a script of the test's own in the page.
    pub(crate) async fn run(&self, script: &str) -> Value {
        let ran = self.client.execute(script, Vec::new());
        let ran = self.step(format!("run {script:?}"), ran).await;
        ran.expect("the script runs")
    }

    /// Waits until a script of the test's own returns true.
    pub(crate) async fn wait_for_script(&self, script: &str) {
        let until = Instant::now() + PATIENCE;
        while self.run(script).await != Value::Bool(true) {
            assert!(Instant::now() < until, "hung while waiting for {script}");
            sleep(LOOK_EVERY).await;
        }
    }

    /// Runs one that calls its last argument when it is done, which may take as long as a story may.
    pub(crate) async fn run_to_its_end(&self, script: &str) -> Value {
        let limits = TimeoutConfiguration::new(Some(SCRIPT_LIMIT), None, None);
        let set = self.step(
            "set the limit of scripts",
            self.client.update_timeouts(limits),
        );
        set.await.expect("a limit for scripts");
        self.steps.note("run a long script");
        let ran = self.client.execute_async(script, Vec::new()).await;
        ran.expect("the script runs to its end")
    }
}
