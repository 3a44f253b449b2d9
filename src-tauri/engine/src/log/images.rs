//! The bytes of images, beside the events that name them.
//!
//! Invariant: a name is the hash of its bytes, and is checked whenever they are read, so damage is told and never
//! shown. Bytes that a message shows are never removed; those that were only looked at go after a while.

use std::sync::Arc;

use protocol::{Image, ImageId, MediaType, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

/// How long an image stays that was never sent and is in no draft: a week, as somebody may come back to it.
const UNSENT_KEPT_MS: i64 = 7 * 24 * 60 * 60 * 1_000;

/// An image's bytes, as they were found.
pub(crate) enum Found {
    /// Its bytes, sound.
    Whole(Arc<[u8]>),
    /// Others than it was named after.
    Damaged,
    /// None at all.
    Missing,
}

/// Stores an image, if it is not there.
pub(super) fn write(
    db: &Connection,
    image: &Image,
    bytes: &[u8],
    at: Timestamp,
) -> rusqlite::Result<usize> {
    // Damaged bytes make way for sound ones.
    if let Found::Damaged = read(db, image.image)? {
        db.prepare_cached("DELETE FROM images WHERE image = ?1")?
            .execute([image.image.bytes()])?;
    }
    db.prepare_cached(
        "INSERT INTO images (image, media_type, width, height, at, bytes) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (image) DO UPDATE SET at = ?5",
    )?
    .execute(params![
        image.image.bytes(),
        image.media_type.name(),
        image.width,
        image.height,
        at.millis(),
        bytes
    ])
}

/// A message shows these.
pub(super) fn use_them(db: &Connection, images: &[Image]) -> rusqlite::Result<()> {
    let mut used = db.prepare_cached("INSERT OR IGNORE INTO image_uses (image) VALUES (?1)")?;
    for image in images {
        used.execute([image.image.bytes()])?;
    }
    Ok(())
}

/// An image's bytes.
pub(super) fn read(db: &Connection, image: ImageId) -> rusqlite::Result<Found> {
    let row: Option<(String, Vec<u8>)> = db
        .prepare_cached("SELECT media_type, bytes FROM images WHERE image = ?1")?
        .query_row([image.bytes()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    Ok(match row {
        None => Found::Missing,
        Some((media_type, bytes)) => match MediaType::of(&media_type) {
            Some(_) if is_named(image, &bytes) => Found::Whole(bytes.into()),
            Some(_) | None => Found::Damaged,
        },
    })
}

/// What is stored of an image, under the name that a message gives it.
pub(super) fn known(db: &Connection, image: &Image) -> rusqlite::Result<Option<Image>> {
    let row: Option<(String, i64, i64, i64)> = db
        .prepare_cached(
            "SELECT media_type, width, height, length(bytes) FROM images WHERE image = ?1",
        )?
        .query_row([image.image.bytes()], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .optional()?;
    Ok(row.and_then(|(media_type, width, height, bytes)| {
        Some(Image {
            image: image.image,
            media_type: MediaType::of(&media_type)?,
            bytes: bytes.unsigned_abs(),
            width: width.try_into().ok()?,
            height: height.try_into().ok()?,
            name: image.name.clone(),
        })
    }))
}

/// Whether these bytes are those of that name.
pub(super) fn is_named(image: ImageId, bytes: &[u8]) -> bool {
    ring::digest::digest(&ring::digest::SHA256, bytes).as_ref() == image.bytes()
}

/// Removes what nobody sent and no draft holds any more.
pub(super) fn forget_unsent(db: &Connection, now: Timestamp) -> rusqlite::Result<usize> {
    db.execute(
        "DELETE FROM images WHERE at < ?1 AND image NOT IN (SELECT image FROM image_uses)
         AND NOT EXISTS (SELECT 1 FROM draft_images AS draft WHERE instr(draft.images, lower(hex(images.image))) > 0)",
        [now.millis().saturating_sub(UNSENT_KEPT_MS)],
    )
}
