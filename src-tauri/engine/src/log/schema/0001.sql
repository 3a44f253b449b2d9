-- Version 1. Facts first, caches last: every cache can be dropped and is rebuilt from the facts.

CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE boots (
    boot          BLOB PRIMARY KEY,
    started_at    INTEGER NOT NULL,
    clean_exit_at INTEGER
) STRICT, WITHOUT ROWID;

-- A small number for each stream keeps event rows small. 0 is the library.
CREATE TABLE streams (
    stream  INTEGER PRIMARY KEY,
    session BLOB UNIQUE
) STRICT;
INSERT INTO streams (stream, session) VALUES (0, NULL);

CREATE TABLE events (
    stream INTEGER NOT NULL REFERENCES streams (stream),
    seq    INTEGER NOT NULL,
    turn   INTEGER,
    item   INTEGER,
    kind   TEXT NOT NULL,
    at     INTEGER NOT NULL,
    body   TEXT NOT NULL,
    PRIMARY KEY (stream, seq)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER events_are_never_updated BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'events are append-only'); END;

CREATE TRIGGER events_are_never_deleted BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'events are append-only'); END;

CREATE TRIGGER events_are_dense BEFORE INSERT ON events
WHEN NEW.seq IS NOT 1 + coalesce((SELECT max(seq) FROM events WHERE stream = NEW.stream), 0)
BEGIN SELECT RAISE(ABORT, 'the seq of an event is the next of its stream'); END;

CREATE UNIQUE INDEX one_start_per_turn ON events (stream, turn) WHERE kind = 'TurnStarted';
CREATE UNIQUE INDEX one_end_per_turn ON events (stream, turn) WHERE kind = 'TurnEnded';
CREATE UNIQUE INDEX one_result_per_call ON events (stream, item) WHERE kind = 'ToolCallFinished';

-- Written with a turn's start and removed with its end, in the same transactions: refuses a second open turn.
CREATE TABLE open_turns (
    stream INTEGER PRIMARY KEY REFERENCES streams (stream),
    turn   INTEGER NOT NULL
) STRICT;

CREATE TABLE ops (
    op      BLOB PRIMARY KEY,
    digest  BLOB NOT NULL,
    receipt TEXT NOT NULL,
    at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What is typed and not sent. The key is a session's id, or empty for the session not begun yet.
CREATE TABLE drafts (
    session BLOB PRIMARY KEY,
    text    TEXT NOT NULL,
    at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Where each turn begins, and whether a rewind took it out of the conversation: an index of the events, written in
-- their transactions; one that lacks turns is made anew when the engine opens.
CREATE TABLE turns (
    stream    INTEGER NOT NULL REFERENCES streams (stream),
    turn      INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    hidden    INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (stream, turn)
) STRICT, WITHOUT ROWID;

-- Caches.

-- A session's header, as of the event it names.
CREATE TABLE heads (
    stream INTEGER PRIMARY KEY REFERENCES streams (stream),
    as_of  INTEGER NOT NULL,
    body   TEXT NOT NULL
) STRICT;

-- Finished turns, folded.
CREATE TABLE turn_views (
    stream INTEGER NOT NULL REFERENCES streams (stream),
    turn   INTEGER NOT NULL,
    body   TEXT NOT NULL,
    PRIMARY KEY (stream, turn)
) STRICT;
