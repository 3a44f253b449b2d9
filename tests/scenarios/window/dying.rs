//! A web process that dies: the view is replaced, by itself once and then by a button, and the turn knows nothing of it.
//!
//! The driver's session ends with the process, so from there on the window is looked at from outside: its title, which
//! the page makes of what it follows; the app's notes; and the answer as the page copies it, pasted as a draft.

use protocol::{Dialect, EventBody, Resolution};
use rusqlite::{Connection, OpenFlags};
use serde_json::json;
use tests::{
    model_server::{Answer, ModelServer},
    seeded::DATABASE,
    sentinel::Sentinel,
};

use super::{
    asking::choose_folder,
    glass::{Desk, View},
    verdict::{letters, said},
};

const DIALECT: Dialect = Dialect::Ollama;
const ASKS: &str = "Waiting for you – Tell me – Holdfast";
const ENDED: &str = "the web process of the view ended";

/// SIGKILL for the process that shows the page, which is the only one of its kind.
async fn kill_page(desk: &Desk) {
    let shows = |name: &str| name.starts_with("WebKitWebProces");
    let processes = desk.processes();
    let page: Vec<_> = processes.iter().filter(|p| shows(&p.name)).collect();
    assert_eq!(page.len(), 1, "{page:?}");
    let before = desk.noted(ENDED);
    page[0].kill("KILL").await;
    desk.until("the app has noticed", |desk| desk.noted(ENDED) > before)
        .await;
}

/// What stands in the composers, as it is kept.
fn drafts(desk: &Desk) -> Vec<String> {
    let file = desk.data_dir().join(DATABASE);
    let db = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY);
    let db = db.expect("the database can be read");
    let mut rows = db.prepare("SELECT text FROM drafts").expect("drafts");
    let texts = rows.query_map([], |row| row.get::<_, String>(0));
    let texts = texts.expect("drafts").collect::<Result<_, _>>();
    texts.expect("drafts are texts")
}

/// The page copies the answer it shows; it is pasted over what stands in its composer.
async fn shows_the_stored_answer(desk: &Desk, view: &View, composer: (u64, u64)) {
    let stored = said(&desk.stored()).concat();
    view.press_until(
        "the answer in the composer",
        &["ctrl+shift+c"],
        async || {
            view.click_at(composer.0, composer.1).await;
            view.press(&["ctrl+a", "ctrl+v"]).await;
            drafts(desk).iter().any(|draft| letters(draft) == stored)
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn a_killed_web_process_is_replaced_and_one_killed_again_soon_leaves_a_button() {
    let server = ModelServer::start(DIALECT);
    let words = ["before", "dead", "after"].map(Sentinel::new);
    let arguments = json!({ "path": "tides.md", "content": "two tides a day\n" });
    server.script(
        Answer::new(DIALECT)
            .says(&format!("{} ", words[0]))
            .gate("dead")
            .says(&format!("{} ", words[1]))
            .calls("write_file", arguments)
            .ends(),
    );
    server.script(Answer::whole(DIALECT, &words[2].to_string()));
    let folder = tempfile::tempdir().expect("a folder");
    Desk::tell("dying", &server, async |desk, window| {
        let view = window.next_view(&[]).await;
        choose_folder(&window, folder.path()).await;
        window.send("Tell me").await;
        window
            .wait_for_text("message-assistant", &words[0].to_string())
            .await;
        let place = window
            .run(
                "const place = document.querySelector('[data-testid=composer]').getBoundingClientRect();
                 return [Math.round(place.x + place.width / 2), Math.round(place.y + place.height / 2)];",
            )
            .await;
        let place = |n: usize| place[n].as_u64().expect("a place in the window");
        let composer = (place(0), place(1));

        kill_page(desk).await;
        window.forget().await;
        // Only a page that follows the library and this session can say so: the one before was dead by then.
        server.pass("dead").await;
        view.wait_for_title(ASKS).await;
        shows_the_stored_answer(desk, &view, composer).await;
        desk.screen("dying-replaced").await;

        kill_page(desk).await;
        assert_eq!((desk.noted("answer=Reload"), desk.noted("answer=Ask")), (1, 1));
        view.wait_for_title("Holdfast").await;
        desk.screen("dying-button").await;
        view.press_until("the page", &["Tab", "Return"], async || {
            view.title().await == ASKS
        })
        .await;
        view.press_until("an answer", &["ctrl+j", "a"], async || {
            desk.events().iter().any(|event| {
                matches!(
                    event.body,
                    EventBody::ApprovalResolved { resolution: Resolution::AllowedOnce, .. }
                )
            })
        })
        .await;
        desk.until("the turn has ended", |desk| {
            desk.stored().turns.iter().all(|turn| turn.outcome.is_some())
        })
        .await;
        shows_the_stored_answer(desk, &view, composer).await;
        desk.screen("dying-back").await;
        let events = desk.events();
        let ends = events
            .iter()
            .filter(|event| matches!(event.body, EventBody::TurnEnded { .. }));
        assert_eq!(ends.count(), 1);
        let stored = format!("{:?}", desk.stored());
        assert_eq!(words.each_ref().map(|word| word.count_in(&stored)), [1; 3]);
        desk.app().kill("TERM").await;
        desk.until("the app has left", |desk| !desk.runs()).await;
    })
    .await;
    let counters = server.counters();
    assert_eq!((counters.chats, counters.closed_by_us), (2, 0));
}
