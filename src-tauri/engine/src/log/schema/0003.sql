-- Version 3. One more cache: the library's sessions, folded, as of the event that `heads` names for stream 0.

DROP TABLE IF EXISTS shelf;

CREATE TABLE shelf (
    session BLOB PRIMARY KEY,
    body    TEXT NOT NULL
) STRICT, WITHOUT ROWID;
