-- Version 5. Images: the bytes that messages show, each named by its SHA-256 and never changed.

CREATE TABLE IF NOT EXISTS images (
    image      BLOB PRIMARY KEY,
    media_type TEXT NOT NULL,
    width      INTEGER NOT NULL,
    height     INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    bytes      BLOB NOT NULL
) STRICT;

-- Those that a message shows or showed; the others may be removed once no draft holds them.
CREATE TABLE IF NOT EXISTS image_uses (
    image BLOB PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- What drafts show besides their text, as JSON; no row for one that shows nothing.
CREATE TABLE IF NOT EXISTS draft_images (
    session BLOB PRIMARY KEY,
    images  TEXT NOT NULL
) STRICT, WITHOUT ROWID;
