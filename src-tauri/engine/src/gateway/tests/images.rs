//! Images in requests, byte for byte, in every dialect.

use protocol::{Image, ImageId, MediaType, ModelOptions};

use crate::gateway::{
    Images, Message, ModelRequest, anthropic, ollama,
    openai::{self, AskUsage},
};

fn image(number: u8, media_type: MediaType) -> Image {
    Image {
        image: ImageId::from_bytes([number; 32]),
        media_type,
        bytes: 3,
        width: 2,
        height: 1,
        name: format!("{number}.png"),
    }
}

/// Two messages with images, of which the second's last cannot be read any more.
fn request() -> ModelRequest {
    let shown = [image(1, MediaType::Jpeg), image(2, MediaType::Png)];
    let mut images = Images::default();
    for (image, bytes) in shown.iter().zip([b"abc", b"xyz"]) {
        images.add(image.image, bytes);
    }
    let [first, second] = shown;
    let said = |text: &str, images| Message::User {
        text: text.into(),
        images,
    };
    ModelRequest {
        model: "m".into(),
        messages: vec![
            said("What is this?", vec![first]),
            Message::Assistant {
                text: "Kelp.".into(),
                calls: vec![],
                verbatim: None,
            },
            said("", vec![second, image(3, MediaType::Png)]),
        ],
        tools: vec![],
        options: ModelOptions::default(),
        images,
    }
}

const LOST: &str = "[The image 3.png was shown here. It cannot be read any more.]";

#[test]
fn ollama_has_images_beside_the_text_without_a_prefix() {
    assert_eq!(
        ollama::encode(&request()).to_string(),
        format!(
            r#"{{"messages":[{{"content":"What is this?","images":["YWJj"],"role":"user"}},{{"content":"Kelp.","role":"assistant"}},{{"content":"{LOST}","images":["eHl6"],"role":"user"}}],"model":"m","stream":true,"truncate":false}}"#
        )
    );
}

#[test]
fn openai_has_them_as_data_urls_among_the_parts() {
    assert_eq!(
        openai::encode(&request(), AskUsage::No).to_string(),
        format!(
            r#"{{"messages":[{{"content":[{{"image_url":{{"url":"data:image/jpeg;base64,YWJj"}},"type":"image_url"}},{{"text":"What is this?","type":"text"}}],"role":"user"}},{{"content":"Kelp.","role":"assistant"}},{{"content":[{{"image_url":{{"url":"data:image/png;base64,eHl6"}},"type":"image_url"}},{{"text":"{LOST}","type":"text"}}],"role":"user"}}],"model":"m","stream":true}}"#
        )
    );
}

#[test]
fn anthropic_has_them_as_blocks_with_a_source() {
    let body = anthropic::encode(&request(), anthropic::Ways::default());
    assert_eq!(
        body["messages"].to_string(),
        format!(
            r#"[{{"content":[{{"source":{{"data":"YWJj","media_type":"image/jpeg","type":"base64"}},"type":"image"}},{{"text":"What is this?","type":"text"}}],"role":"user"}},{{"content":[{{"text":"Kelp.","type":"text"}}],"role":"assistant"}},{{"content":[{{"source":{{"data":"eHl6","media_type":"image/png","type":"base64"}},"type":"image"}},{{"cache_control":{{"type":"ephemeral"}},"text":"{LOST}","type":"text"}}],"role":"user"}}]"#
        )
    );
}

#[test]
fn an_image_without_words_is_no_empty_part() {
    let mut request = request();
    request.messages.truncate(1);
    if let Some(Message::User { text, .. }) = request.messages.first_mut() {
        text.clear();
    }
    assert_eq!(
        openai::encode(&request, AskUsage::No)["messages"].to_string(),
        r#"[{"content":[{"image_url":{"url":"data:image/jpeg;base64,YWJj"},"type":"image_url"}],"role":"user"}]"#
    );
    assert_eq!(
        ollama::encode(&request)["messages"].to_string(),
        r#"[{"content":"","images":["YWJj"],"role":"user"}]"#
    );
    let blocks = &anthropic::encode(&request, anthropic::Ways::default())["messages"][0]["content"];
    assert_eq!(blocks.as_array().map(Vec::len), Some(1), "{blocks}");
}

#[test]
fn what_was_sent_before_is_sent_the_same_way_again() {
    let long = request();
    let mut short = request();
    short.messages.truncate(1);
    for encode in [ollama::encode, |r: &_| openai::encode(r, AskUsage::Yes)] {
        let (short, long) = (encode(&short), encode(&long));
        assert_eq!(short["messages"][0], long["messages"][0]);
    }
}
