//! Images on their way in: what is taken, what becomes of it, and what is refused in which words.
//!
//! Invariant: what is stored can be shown and sent as it is. It was decoded to its end, stands upright, is a PNG or a
//! JPEG (not every server reads more), is small enough for any server, and says nothing but the picture: no place, no
//! camera, no comment. What a file is, its first bytes say, not its name. Before anything is decoded the header's
//! size in pixels is looked at, so that a small file cannot fill the memory; one image at a time is decoded.

mod bare;

use std::{
    io::Cursor,
    sync::{Arc, LazyLock},
};

use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, imageops::FilterType};
use protocol::{IMAGE_FILE_BYTES_MAX, Image, ImageId, MediaType};
use tokio::sync::Semaphore;

/// Longest side that is stored, in pixels: models scale down what is larger themselves, or refuse it.
const SIDE_PX_MAX: u32 = 2_048;

/// What is stored at most: hosted servers take 5 MB in base64.
const STORED_BYTES_MAX: usize = 3_500_000;

/// The largest picture that is decoded: beyond any camera in a pocket, and 400 MB while it is looked at.
const PIXELS_MAX: u64 = 100_000_000;

/// What decoding may take of the memory.
const DECODED_BYTES_MAX: u64 = 900 * 1024 * 1024;

/// Letters of a file's name that are kept.
const NAME_CHARS_MAX: usize = 120;

/// Of the photos and of what does not fit without loss.
const JPEG_QUALITY: u8 = 88;

/// Held by the one picture that is being decoded.
static DECODING: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(1)));

/// An image that can be stored.
pub(crate) struct Taken {
    pub(crate) image: Image,
    pub(crate) bytes: Arc<[u8]>,
}

/// Why a file is not taken. The words go on behind the file's name.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum NotTaken {
    #[error("is empty (0 bytes); choose another file")]
    Empty,
    #[error(
        "is larger than {} MB, which is more than is looked at; make it smaller first",
        IMAGE_FILE_BYTES_MAX / (1024 * 1024)
    )]
    TooLarge,
    #[error(
        "has {width} × {height} pixels, which is more than is looked at; make it smaller than {} megapixels first",
        PIXELS_MAX / 1_000_000
    )]
    TooManyPixels { width: u32, height: u32 },
    #[error("is {0}, which cannot be read here; save it as PNG or JPEG first")]
    OtherKind(&'static str),
    #[error("is no image that can be read here; PNG, JPEG, GIF and WebP can")]
    NotAnImage,
    #[error(
        "is cut or damaged, and cannot be read to its end; open it elsewhere and save it again"
    )]
    Damaged,
    #[error("could not be made ready because of a bug in Holdfast; choose another file")]
    Panicked,
}

/// Makes an image of a file's bytes. Off the threads that answer; one at a time.
///
/// Cancel safe: nothing is stored here.
pub(crate) async fn taken(name: String, bytes: Vec<u8>) -> Result<Taken, NotTaken> {
    // Never closed.
    let permit = Arc::clone(&DECODING).acquire_owned().await.ok();
    let work = tokio::task::spawn_blocking(move || {
        let _one_at_a_time = permit;
        made(&name, bytes)
    });
    // A decoder that panics over a file has not understood it.
    work.await.unwrap_or(Err(NotTaken::Panicked))
}

fn made(name: &str, bytes: Vec<u8>) -> Result<Taken, NotTaken> {
    if bytes.is_empty() {
        return Err(NotTaken::Empty);
    }
    if bytes.len() as u64 > IMAGE_FILE_BYTES_MAX {
        return Err(NotTaken::TooLarge);
    }
    let format = format_of(&bytes)?;
    let reader = || ImageReader::with_format(Cursor::new(&bytes), format);
    let (width, height) = reader().into_dimensions().map_err(|_| NotTaken::Damaged)?;
    if u64::from(width) * u64::from(height) > PIXELS_MAX {
        return Err(NotTaken::TooManyPixels { width, height });
    }
    let mut reader = reader();
    let mut limits = image::Limits::default();
    limits.max_alloc = Some(DECODED_BYTES_MAX);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(|_| NotTaken::Damaged)?;
    // One that is not said, or said wrongly, is upright.
    let turned = decoder
        .orientation()
        .unwrap_or(image::metadata::Orientation::NoTransforms);
    let picture = DynamicImage::from_decoder(decoder).map_err(|_| NotTaken::Damaged)?;
    let fits = width.max(height) <= SIDE_PX_MAX;
    let upright = turned == image::metadata::Orientation::NoTransforms;
    if format == ImageFormat::WebP && !is_whole_riff(&bytes) {
        return Err(NotTaken::Damaged);
    }
    let as_it_is = match format {
        ImageFormat::Jpeg => Some((
            bare::jpeg(&bytes).ok_or(NotTaken::Damaged)?,
            MediaType::Jpeg,
        )),
        ImageFormat::Png => Some((bare::png(&bytes).ok_or(NotTaken::Damaged)?, MediaType::Png)),
        _ => None,
    };
    let (stored, media_type, (width, height)) = match as_it_is {
        Some((bare, media_type)) if fits && upright && bare.len() <= STORED_BYTES_MAX => {
            (bare, media_type, (width, height))
        }
        Some(_) | None => made_anew(picture, turned, format)?,
    };
    let id = ring::digest::digest(&ring::digest::SHA256, &stored);
    let id = <[u8; 32]>::try_from(id.as_ref()).map_err(|_| NotTaken::Panicked)?;
    Ok(Taken {
        image: Image {
            image: ImageId::from_bytes(id),
            media_type,
            bytes: stored.len() as u64,
            width,
            height,
            name: shown_name(name, media_type),
        },
        bytes: stored.into(),
    })
}

/// Whether a file of chunks is as long as it says; decoders do without its end.
fn is_whole_riff(bytes: &[u8]) -> bool {
    let said = bytes.get(4..8).and_then(|said| said.try_into().ok());
    said.is_some_and(|said| bytes.len() as u64 >= u64::from(u32::from_le_bytes(said)) + 8)
}

/// What is stored of a picture: its bytes, what they are, and its size.
type Stored = (Vec<u8>, MediaType, (u32, u32));

/// Upright, small enough, and in a form that every server reads.
fn made_anew(
    picture: DynamicImage,
    turned: image::metadata::Orientation,
    format: ImageFormat,
) -> Result<Stored, NotTaken> {
    let mut picture = if picture.width().max(picture.height()) > SIDE_PX_MAX {
        picture.resize(SIDE_PX_MAX, SIDE_PX_MAX, FilterType::Triangle)
    } else {
        picture
    };
    picture.apply_orientation(turned);
    let size = (picture.width(), picture.height());
    let mut stored = Vec::new();
    if format != ImageFormat::Jpeg {
        let plain = if picture.color().has_alpha() {
            DynamicImage::ImageRgba8(picture.to_rgba8())
        } else {
            DynamicImage::ImageRgb8(picture.to_rgb8())
        };
        plain
            .write_to(&mut Cursor::new(&mut stored), ImageFormat::Png)
            .map_err(|_| NotTaken::Damaged)?;
        if stored.len() <= STORED_BYTES_MAX {
            return Ok((stored, MediaType::Png, size));
        }
        stored.clear();
    }
    let encoder = image::codecs::jpeg::JpegEncoder::new_with_quality(&mut stored, JPEG_QUALITY);
    on_white(&picture)
        .write_with_encoder(encoder)
        .map_err(|_| NotTaken::Damaged)?;
    Ok((stored, MediaType::Jpeg, size))
}

/// What is seen through is white, as on a page.
fn on_white(picture: &DynamicImage) -> DynamicImage {
    if !picture.color().has_alpha() {
        return DynamicImage::ImageRgb8(picture.to_rgb8());
    }
    let mut out = image::RgbImage::new(picture.width(), picture.height());
    for (to, from) in out.pixels_mut().zip(picture.to_rgba8().pixels()) {
        let [colours @ .., alpha] = from.0;
        let alpha = u32::from(alpha);
        to.0 = colours.map(|colour| {
            let mixed = (u32::from(colour) * alpha + 255 * (255 - alpha)) / 255;
            u8::try_from(mixed).unwrap_or(u8::MAX)
        });
    }
    DynamicImage::ImageRgb8(out)
}

/// What the first bytes say.
fn format_of(bytes: &[u8]) -> Result<ImageFormat, NotTaken> {
    let begins = |magic: &[u8]| bytes.starts_with(magic);
    let brand = |at: usize, word: &[u8]| bytes.get(at..at + word.len()) == Some(word);
    if begins(b"\x89PNG\r\n\x1a\n") {
        return Ok(ImageFormat::Png);
    }
    if begins(b"\xff\xd8\xff") {
        return Ok(ImageFormat::Jpeg);
    }
    if begins(b"GIF87a") || begins(b"GIF89a") {
        return Ok(ImageFormat::Gif);
    }
    if begins(b"RIFF") && brand(8, b"WEBP") {
        return Ok(ImageFormat::WebP);
    }
    if brand(4, b"ftyp") {
        let heic: [&[u8]; 6] = [b"heic", b"heix", b"hevc", b"heim", b"mif1", b"msf1"];
        return Err(if heic.iter().any(|word| brand(8, word)) {
            NotTaken::OtherKind("a HEIC photo")
        } else if brand(8, b"avif") || brand(8, b"avis") {
            NotTaken::OtherKind("an AVIF image")
        } else {
            NotTaken::OtherKind("a video")
        });
    }
    if begins(b"BM") && bytes.len() >= 26 {
        return Err(NotTaken::OtherKind("a BMP image"));
    }
    if begins(b"II*\0") || begins(b"MM\0*") {
        return Err(NotTaken::OtherKind("a TIFF image or a raw photo"));
    }
    if begins(b"\0\0\x01\0") {
        return Err(NotTaken::OtherKind("an icon"));
    }
    if begins(b"\xff\x0a") || begins(b"\0\0\0\x0cJXL ") {
        return Err(NotTaken::OtherKind("a JPEG XL image"));
    }
    if begins(b"%PDF") {
        return Err(NotTaken::OtherKind("a PDF document"));
    }
    let head = String::from_utf8_lossy(bytes.get(..1_024).unwrap_or(bytes)).to_lowercase();
    if head.contains("<svg") {
        return Err(NotTaken::OtherKind("an SVG drawing"));
    }
    Err(NotTaken::NotAnImage)
}

/// A file's name as one line; what was pasted has none.
fn shown_name(name: &str, media_type: MediaType) -> String {
    let is_plain = |letter: &char| !letter.is_control();
    let name: String = name.chars().filter(is_plain).take(NAME_CHARS_MAX).collect();
    match name.trim() {
        "" => match media_type {
            MediaType::Png => "image.png".to_owned(),
            MediaType::Jpeg => "image.jpg".to_owned(),
        },
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests;
