//! Images that messages carry: what of them stands in events. Their bytes are stored beside the events, by their hash.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Images that one message carries at most: what hosted servers take, and enough to compare a few.
pub const IMAGES_MAX: usize = 10;

/// The largest file that is looked at, in bytes: no camera writes a larger photo.
pub const IMAGE_FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The SHA-256 of an image's bytes, which is its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageId([u8; 32]);

impl ImageId {
    /// From the hash.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
    /// The hash, for storage.
    pub const fn bytes(self) -> [u8; 32] {
        self.0
    }
}

impl fmt::Display for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ImageId({self})")
    }
}

/// Text that is not a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAHash;

impl fmt::Display for NotAHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an image's name: expected 64 hexadecimal digits")
    }
}

impl std::error::Error for NotAHash {}

impl FromStr for ImageId {
    type Err = NotAHash;
    fn from_str(text: &str) -> Result<Self, NotAHash> {
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(NotAHash);
        }
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            let digits = text.get(2 * at..2 * at + 2).ok_or(NotAHash)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| NotAHash)?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for ImageId {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ImageId {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// How an image is stored and sent. Others are taken too, and become one of these: not every server reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MediaType {
    /// Without loss.
    #[serde(rename = "image/png")]
    Png,
    /// Photos.
    #[serde(rename = "image/jpeg")]
    Jpeg,
}

impl MediaType {
    /// As servers and pages are told.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
        }
    }

    /// From [`MediaType::name`].
    pub fn of(name: &str) -> Option<Self> {
        [Self::Png, Self::Jpeg]
            .into_iter()
            .find(|media_type| media_type.name() == name)
    }
}

/// An image of a message: everything about it but its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Image {
    /// The hash of its bytes.
    pub image: ImageId,
    /// What they are.
    pub media_type: MediaType,
    /// How many they are.
    pub bytes: u64,
    /// In pixels, as it is shown.
    pub width: u32,
    /// In pixels, as it is shown.
    pub height: u32,
    /// The name of its file, or what stands for it: for the reader.
    pub name: String,
}

impl Image {
    /// Tokens that it takes in a model's context, about: a token for each 28 × 28 pixels, as models that look at the
    /// whole picture count. Others have a fixed number, and only the server knows.
    pub fn tokens_about(&self) -> u64 {
        const PATCH_PX: u64 = 28;
        let across = u64::from(self.width).div_ceil(PATCH_PX);
        let down = u64::from(self.height).div_ceil(PATCH_PX);
        across.saturating_mul(down).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_named_by_its_hash_and_nothing_else_passes_for_one() {
        let hash = "00ff".repeat(16);
        let id: ImageId = hash.parse().unwrap();
        assert_eq!(id.to_string(), hash);
        for text in ["", "00ff", &"0g".repeat(32), &"é".repeat(32)] {
            assert_eq!(text.parse::<ImageId>(), Err(NotAHash), "{text}");
        }
    }

    #[test]
    fn a_picture_takes_tokens_by_its_area() {
        let image = |width, height| Image {
            image: ImageId::from_bytes([0; 32]),
            media_type: MediaType::Png,
            bytes: 1,
            width,
            height,
            name: String::new(),
        };
        assert_eq!(image(1, 1).tokens_about(), 1);
        assert_eq!(image(1_120, 560).tokens_about(), 800);
    }
}
