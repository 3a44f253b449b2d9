use image::{ImageBuffer, Rgb, Rgba};

use super::*;

fn noise(width: u32, height: u32) -> DynamicImage {
    let mut state = 7_u32;
    DynamicImage::ImageRgb8(ImageBuffer::from_fn(width, height, |_, _| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let [a, b, c, _] = state.to_be_bytes();
        Rgb([a, b, c])
    }))
}

fn file(picture: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut out = Vec::new();
    picture
        .write_to(&mut Cursor::new(&mut out), format)
        .unwrap();
    out
}

fn refused(bytes: &[u8]) -> NotTaken {
    match made("x", bytes.to_vec()) {
        Ok(taken) => panic!("taken as {:?}", taken.image),
        Err(refusal) => refusal,
    }
}

#[test]
fn every_form_that_is_taken_becomes_one_that_every_server_reads() {
    let picture = noise(40, 30);
    for (format, stored) in [
        (ImageFormat::Png, MediaType::Png),
        (ImageFormat::Jpeg, MediaType::Jpeg),
        (ImageFormat::Gif, MediaType::Png),
        (ImageFormat::WebP, MediaType::Png),
    ] {
        // The name lies; the bytes do not.
        let taken = made("x.svg", file(&picture, format)).unwrap();
        let image = &taken.image;
        assert_eq!((image.width, image.height), (40, 30), "{format:?}");
        assert_eq!(image.media_type, stored, "{format:?}");
        assert_eq!(image.bytes, taken.bytes.len() as u64);
        let again = made("x", taken.bytes.to_vec()).unwrap();
        assert_eq!(
            again.image.image, image.image,
            "stored as it is: {format:?}"
        );
    }
}

#[test]
fn the_same_picture_has_one_name_however_its_file_is_called() {
    let bytes = file(&noise(8, 8), ImageFormat::Png);
    let one = made("a.png", bytes.clone()).unwrap().image;
    let two = made(" b\n.png ", bytes).unwrap().image;
    assert_eq!(one.image, two.image);
    assert_eq!((one.name.as_str(), two.name.as_str()), ("a.png", "b.png"));
}

#[test]
fn a_cut_file_is_refused_wherever_it_was_cut() {
    for format in [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::WebP] {
        let whole = file(&noise(16, 16), format);
        for length in 16..whole.len() {
            assert_eq!(
                refused(&whole[..length]),
                NotTaken::Damaged,
                "{format:?} cut at {length} of {}",
                whole.len()
            );
        }
    }
}

#[test]
fn what_is_no_image_is_refused_by_its_first_bytes_and_named() {
    for (bytes, refusal) in [
        (&b""[..], NotTaken::Empty),
        (b"plain words", NotTaken::NotAnImage),
        (b"\x89PNG\r\n\x1a\n", NotTaken::Damaged),
        (
            b"<?xml version='1.0'?><svg xmlns=''>",
            NotTaken::OtherKind("an SVG drawing"),
        ),
        (
            b"\0\0\0\x18ftypheic\0\0\0\0mif1heic",
            NotTaken::OtherKind("a HEIC photo"),
        ),
        (
            b"\0\0\0\x18ftypavif\0\0\0\0mif1avif",
            NotTaken::OtherKind("an AVIF image"),
        ),
        (
            b"BM\x36\x10\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x20\0\0\0\x20\0\0\0",
            NotTaken::OtherKind("a BMP image"),
        ),
        (b"%PDF-1.7", NotTaken::OtherKind("a PDF document")),
        (b"GGUF\x03\0\0\0", NotTaken::NotAnImage),
    ] {
        assert_eq!(refused(bytes), refusal, "{bytes:?}");
    }
    let words = NotTaken::OtherKind("an SVG drawing").to_string();
    assert_eq!(
        words,
        "is an SVG drawing, which cannot be read here; save it as PNG or JPEG first"
    );
}

#[test]
fn a_small_file_that_would_fill_the_memory_is_refused_by_its_header() {
    // A true header of a picture that nobody could hold; what follows it does not matter.
    let mut bomb = file(&noise(1, 1), ImageFormat::Png);
    bomb[16..20].copy_from_slice(&60_000_u32.to_be_bytes());
    bomb[20..24].copy_from_slice(&60_000_u32.to_be_bytes());
    let check = crc(&bomb[12..29]);
    bomb[29..33].copy_from_slice(&check.to_be_bytes());
    assert_eq!(
        refused(&bomb),
        NotTaken::TooManyPixels {
            width: 60_000,
            height: 60_000
        }
    );
}

fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |mut crc, byte| {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 {
                (crc >> 1) ^ 0xedb8_8320
            } else {
                crc >> 1
            };
        }
        crc
    })
}

#[test]
fn a_large_picture_is_scaled_down_and_a_heavy_one_is_made_lighter() {
    let wide = DynamicImage::ImageRgb8(ImageBuffer::from_pixel(5_000, 1_000, Rgb([9, 99, 199])));
    let taken = made("wide.png", file(&wide, ImageFormat::Png))
        .unwrap()
        .image;
    assert_eq!((taken.width, taken.height), (2_048, 410));
    assert_eq!(taken.media_type, MediaType::Png);

    let heavy = file(&noise(1_400, 1_400), ImageFormat::Png);
    assert!(heavy.len() > STORED_BYTES_MAX, "{}", heavy.len());
    let taken = made("heavy.png", heavy).unwrap().image;
    assert_eq!(taken.media_type, MediaType::Jpeg);
    assert!(taken.bytes <= STORED_BYTES_MAX as u64, "{}", taken.bytes);
}

#[test]
fn what_is_seen_through_is_white_where_nothing_is_seen_through() {
    let glass = DynamicImage::ImageRgba8(ImageBuffer::from_pixel(2, 2, Rgba([0, 0, 0, 0])));
    assert_eq!(on_white(&glass).to_rgb8().get_pixel(0, 0).0, [255; 3]);
}

/// A photo that lies on its side, with where it was taken.
fn photo() -> Vec<u8> {
    let plain = file(&noise(24, 16), ImageFormat::Jpeg);
    let exif =
        b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0SECRET PLACE";
    let length = u16::try_from(exif.len() + 2).unwrap().to_be_bytes();
    let mut out = plain[..2].to_vec();
    out.extend_from_slice(&[0xff, 0xe1]);
    out.extend_from_slice(&length);
    out.extend_from_slice(exif);
    out.extend_from_slice(&plain[2..]);
    out
}

#[test]
fn a_photo_stands_upright_and_does_not_tell_where_it_was_taken() {
    let taken = made("photo.jpg", photo()).unwrap();
    assert_eq!((taken.image.width, taken.image.height), (16, 24), "upright");
    let tells = |bytes: &[u8]| bytes.windows(6).any(|six| six == b"SECRET");
    assert!(tells(&photo()) && !tells(&taken.bytes));

    let mut upright = photo();
    let side = upright.iter().position(|byte| *byte == 0x12).unwrap();
    upright[side + 8] = 1;
    let taken = made("photo.jpg", upright).unwrap();
    assert_eq!((taken.image.width, taken.image.height), (24, 16));
    assert!(!tells(&taken.bytes));
}
