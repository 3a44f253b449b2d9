-- Version 4. The ledger: one row for each request to a provider, an index of the events, written in their transactions;
-- one that lacks any is made anew when the engine opens.

DROP TABLE IF EXISTS attempts;
DROP INDEX IF EXISTS requests;

CREATE TABLE attempts (
    stream            INTEGER NOT NULL REFERENCES streams (stream),
    seq               INTEGER NOT NULL, -- of its StepStarted
    turn              INTEGER NOT NULL,
    step              INTEGER NOT NULL,
    at                INTEGER NOT NULL,
    purpose           TEXT NOT NULL,
    provider          BLOB NOT NULL,
    provider_name     TEXT NOT NULL,
    model             TEXT NOT NULL,
    state             TEXT, -- absent while it runs
    code              TEXT,
    ended_at          INTEGER,
    prompt_tokens     INTEGER, -- absent, here and below: not known
    cached_tokens     INTEGER,
    completion_tokens INTEGER,
    decode_tokens     INTEGER,
    decode_ms         INTEGER,
    first_content_ms  INTEGER,
    PRIMARY KEY (stream, seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX attempts_by_time ON attempts (at);
CREATE INDEX open_attempts ON attempts (stream, turn) WHERE state IS NULL;

-- Counts what the ledger must have, without reading what was said.
CREATE INDEX requests ON events (stream, seq) WHERE kind = 'StepStarted';
