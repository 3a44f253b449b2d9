//! Images in the real window: attached, pasted and dropped, refused in words, sent, seen, and there again.

use std::{fs, path::Path};

use protocol::{Dialect, ItemBody};
use tests::{
    image_file::png,
    model_server::{Answer, MODEL, ModelServer},
};

use super::{
    glass::{Desk, ENTER, ESCAPE, Window},
    looks::WIDE,
};

const DIALECT: Dialect = Dialect::Ollama;

/// Chooses a file, as the system's dialog would.
async fn attach(window: &Window, file: &Path) {
    let path = file.to_str().expect("a plain path");
    window.press_in("attach-input", path).await;
}

/// Waits until so many images of a kind are drawn from their bytes.
async fn sees(window: &Window, testid: &str, count: usize) {
    let script = format!(
        "return [...document.querySelectorAll('[data-testid={testid}] img')].filter(i => i.naturalWidth > 0).length === {count}"
    );
    window.wait_for_script(&script).await;
}

/// Hands a file to the page as `event` does, made of the letters of a PNG in base64.
fn hands_over(event: &str, target: &str, name: &str) -> String {
    // One transparent point.
    const POINT: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let (kind, data) = match event {
        "paste" => ("ClipboardEvent", "clipboardData"),
        _ => ("DragEvent", "dataTransfer"),
    };
    format!(
        "const bytes = Uint8Array.from(atob('{POINT}'), c => c.charCodeAt(0));
         const held = new DataTransfer();
         held.items.add(new File([bytes], '{name}', {{ type: 'image/png' }}));
         const event = new {kind}('{event}', {{ bubbles: true, cancelable: true, {data}: held }});
         document.querySelector('{target}').dispatchEvent(event);
         return event.defaultPrevented"
    )
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a display"]
async fn images_are_attached_refused_in_words_sent_seen_and_there_again() {
    let server = ModelServer::start(DIALECT);
    server.stocks(MODEL, &["completion", "vision"]);
    server.script(Answer::whole(DIALECT, "Kelp, and a stone."));
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, bytes: Vec<u8>| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).expect("a file");
        path
    };
    let kelp = file("kelp.png", png(640, 400, 120));
    let nothing = file("nothing.png", Vec::new());
    let photo = file("photo.png", png(8_000, 5_200, 200));
    Desk::tell("images", &server, async |desk, window| {
        window.type_text("What is this?").await;
        attach(&window, &kelp).await;
        sees(&window, "enclosed", 1).await;
        attach(&window, &nothing).await;
        window
            .wait_for_text("image-refused", "nothing.png is empty (0 bytes)")
            .await;
        window.picture("image-refused").await;
        attach(&window, &photo).await;
        sees(&window, "enclosed", 2).await;
        // What was typed and attached is there after a reload.
        window.reload().await;
        sees(&window, "enclosed", 2).await;
        window
            .wait_for_script(
                "return document.querySelector('[data-testid=composer]').value === 'What is this?'",
            )
            .await;
        window.picture("images-enclosed").await;
        window.type_text(ENTER).await;
        window
            .wait_for_text("message-assistant", "Kelp, and a stone.")
            .await;
        sees(&window, "picture", 2).await;
        window.wait_until_gone("enclosed").await;
        window.picture("images-sent").await;
        window.click("picture").await;
        sees(&window, "large-picture", 1).await;
        window.picture("image-large").await;
        window.press(ESCAPE).await;
        window.wait_until_gone("large-picture").await;
        window.wait_for_focus("picture").await;
        window.reload().await;
        sees(&window, "picture", 2).await;

        // Pasted and dropped ones come the same way.
        let pasted = hands_over("paste", "[data-testid=composer]", "image.png");
        assert_eq!(window.run(&pasted).await, true);
        sees(&window, "enclosed", 1).await;
        let dropped = hands_over("drop", ".chat", "dropped.png");
        assert_eq!(window.run(&dropped).await, true);
        window.wait_for_text("enclosed", "dropped.png").await;
        sees(&window, "enclosed", 2).await;
        window.click("remove-image").await;
        sees(&window, "enclosed", 1).await;
        // From a file manager: WebKitGTK tells the page of no file, and the window does.
        let middle = (WIDE.0 / 2, WIDE.1 / 2);
        window.resize(WIDE.0, WIDE.1).await;
        window.drop_file(&kelp, middle).await;
        window.wait_for_text("enclosed", "kelp.png").await;
        sees(&window, "enclosed", 2).await;

        let stored = desk.stored();
        let items = stored.turns.iter().flat_map(|turn| &turn.items);
        let sizes: Vec<_> = items
            .filter_map(|item| match &item.body {
                ItemBody::UserMessage { images, .. } => Some(images),
                ItemBody::Text { .. }
                | ItemBody::ToolCall { .. }
                | ItemBody::Compacted { .. }
                | ItemBody::Unsupported { .. } => None,
            })
            .flatten()
            .map(|image| (image.name.clone(), image.width, image.height))
            .collect();
        let named = |name: &str, width, height| (name.to_owned(), width, height);
        assert_eq!(
            sizes,
            [
                named("kelp.png", 640, 400),
                named("photo.png", 2_048, 1_331)
            ]
        );
        window.close().await;
    })
    .await;
    let told = server.chat(1).await.json();
    assert_eq!(
        told["messages"][0]["images"].as_array().map(Vec::len),
        Some(2)
    );
}
