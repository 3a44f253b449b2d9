//! The page's questions do not stand in each other's way: however many are parked, an op is answered at once.

use protocol::Dialect;
use serde_json::json;
use tests::model_server::{Answer, ModelServer};

use super::glass::Desk;

const DIALECT: Dialect = Dialect::Ollama;

/// Writes down what the page asks.
const LISTEN: &str = "
    const real = window.fetch;
    window.polls = [];
    window.submits = [];
    window.fetch = (to, ...rest) => {
        const list = { poll: window.polls, submit: window.submits }[String(to.url ?? to).split('/').pop()];
        if (list) list.push(JSON.parse(JSON.parse(rest[0].body).body));
        return real(to, ...rest);
    };
";

/// Twelve more polls of the session that is open, none of which has anything to tell; then the other session gets a
/// title. Says what was answered first, and how many polls were out by then.
const PARK: &str = "
    const done = arguments[arguments.length - 1];
    const ask = (command, body) => window.__TAURI__.core.invoke(command, { body: JSON.stringify(body) });
    // The session was attached after the library, and so its epoch is the greater one.
    const epoch = window.polls.map((poll) => poll.request.epoch).sort().at(-1);
    const poll = window.polls.findLast((poll) => poll.request.epoch === epoch);
    const other = window.submits[0];
    const op = {
        op_id: [...other.op_id].reverse().join(''),
        op: { op: 'RenameSession', session: other.op.session, title: 'Another name' },
    };
    let parked = 12;
    const polls = Array.from({ length: parked }, () => ask('poll', poll).then(() => { parked--; return 'poll'; }));
    const submitted = ask('submit', op).then(() => 'submit');
    Promise.race([submitted, ...polls]).then(
        (first) => done([first, parked]),
        (error) => done([String(error), parked]),
    );
";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn an_op_is_answered_while_twelve_polls_are_parked() {
    let server = ModelServer::start(DIALECT);
    server.script(Answer::whole(DIALECT, "The first one."));
    server.script(Answer::whole(DIALECT, "The second one."));
    Desk::tell("parked", &server, async |_, window| {
        window.run(LISTEN).await;
        for (question, answer) in [("One?", "The first one."), ("Two?", "The second one.")] {
            window.click("new-session").await;
            window.send(question).await;
            window.wait_for_text("message-assistant", answer).await;
            window.wait_for("send").await;
        }
        let told = window.run_to_its_end(PARK).await;
        assert_eq!(told, json!(["submit", 12]));
        window.wait_for_text("session", "Another name").await;
        window.close().await;
    })
    .await;
}
