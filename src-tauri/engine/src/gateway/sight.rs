//! Images in a request: their bytes as servers take them, and models that see none.
//!
//! Invariant: an image that a message shows is sent, or its place says in words why not, or the request fails by name:
//! none is left out in silence. A model that sees none is never asked about an image of the message it is to answer. A
//! message without images is sent as it always was.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use protocol::{Failure, FailureCode, Image, ImageId};

use super::{AttemptError, Message, ModelRequest, Retry, failure};

/// The bytes of images in base64, as every dialect wants them. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Images {
    bytes: Arc<HashMap<ImageId, Arc<str>>>,
    /// The model is told of them in words alone.
    in_words: bool,
}

impl Images {
    /// Whether the bytes of this one are here.
    pub(crate) fn has(&self, image: ImageId) -> bool {
        self.bytes.contains_key(&image)
    }

    /// One more.
    pub(crate) fn add(&mut self, image: ImageId, bytes: &[u8]) {
        Arc::make_mut(&mut self.bytes).insert(image, STANDARD.encode(bytes).into());
    }
}

impl Message {
    /// What it shows.
    pub(crate) fn images(&self) -> &[Image] {
        match self {
            Self::User { images, .. } => images,
            Self::System { .. } | Self::Assistant { .. } | Self::ToolResult { .. } => &[],
        }
    }
}

impl ModelRequest {
    /// How many images its messages show.
    pub(super) fn image_count(&self) -> u64 {
        let shown = |message: &Message| message.images().len() as u64;
        self.messages.iter().map(shown).sum()
    }

    /// Whether the user's last message shows something, so that an answer that does not see it would be none.
    pub(super) fn shows_now(&self) -> bool {
        let said = |message: &&Message| matches!(message, Message::User { .. });
        let last = self.messages.iter().rev().find(said);
        last.is_some_and(|message| !message.images().is_empty())
    }

    /// The same, for a model that sees no images: where one was shown, words say so.
    pub(super) fn in_words(&self) -> Self {
        Self {
            images: Images {
                bytes: Arc::default(),
                in_words: true,
            },
            ..self.clone()
        }
    }

    /// A message's images that can be sent, each with its bytes, and its text, which speaks of the others.
    pub(super) fn shown<'a>(
        &'a self,
        text: &'a str,
        images: &'a [Image],
    ) -> (Vec<(&'a Image, &'a str)>, Cow<'a, str>) {
        let mut text = Cow::Borrowed(text);
        let mut shown = Vec::new();
        for image in images {
            match self.images.bytes.get(&image.image) {
                Some(bytes) => shown.push((image, bytes.as_ref())),
                None => {
                    let text = text.to_mut();
                    if !text.is_empty() {
                        text.push_str("\n\n");
                    }
                    let why = if self.images.in_words {
                        "You cannot see images."
                    } else {
                        "It cannot be read any more."
                    };
                    text.push_str(&format!("[The image {} was shown here. {why}]", image.name));
                }
            }
        }
        (shown, text)
    }
}

/// The model sees no images.
pub(super) fn cannot_see(model: &str) -> AttemptError {
    AttemptError {
        failure: Failure::new(
            FailureCode::CannotSeeImages,
            format!(
                "{model} cannot see images. Choose another model, or edit the message and take the image out."
            ),
        ),
        retry: Retry::Never,
    }
}

/// Whether a server refused a request because of its images: llama.cpp's "image input is not supported", Ollama's "missing
/// data required for image input", vLLM's "is not a multimodal model", OpenRouter's "support image input", "unknown
/// variant `image_url`" of servers that know text alone, and their like.
pub(super) fn refuses_images(failure: &Failure) -> bool {
    let of_images = [
        "image input",
        "image_url",
        "image inputs",
        "not a multimodal model",
        "multimodal",
        "support images",
        "support image",
        "support vision",
        "images are not supported",
        "at most 0 image",
        "vision is not",
    ];
    let also = [FailureCode::ModelNotFound, FailureCode::ModelLoadFailed];
    failure::refused_for(failure, &also, &of_images)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_images_is_known_in_the_words_of_every_server() {
        let refused =
            |code, words: &str| refuses_images(&Failure::new(code, "no").with_detail(words));
        for words in [
            "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
            "this model is missing data required for image input",
            "No endpoints found that support image input",
            "unknown variant `image_url`, expected `text`",
            "llama-3 is not a multimodal model",
            "At most 0 image(s) may be provided in one prompt.",
            "Model does not support images. Please use a model that does.",
            "Invalid content type. image_url is only supported by certain models.",
        ] {
            for code in [FailureCode::BadRequest, FailureCode::ProviderError] {
                assert!(refused(code, words), "{words}");
            }
            assert!(!refused(FailureCode::StreamCut, words), "{words}");
        }
        assert!(!refused(FailureCode::BadRequest, "messages: too long"));
    }
}
